//! Procedures of the master and their locks.

use std::sync::LazyLock;

use halcyon_proto::pb;
use halcyon_schema::RegionInfo;
use prost::Name;
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage, Value};
use prost_types::Any;

use super::{Admin, foreign};
use crate::ClientError;

/// A procedure of the master.
#[derive(Clone, Debug)]
pub struct Procedure {
    /// Its id.
    pub id: u64,
    /// The procedure that waits for it.
    pub parent_id: Option<u64>,
    /// Java class.
    pub class: String,
    /// `RUNNABLE`, `WAITING`, `SUCCESS`, ...
    pub state: String,
    /// Who asked for it.
    pub owner: Option<String>,
    /// When it was submitted, in milliseconds since 1970.
    pub submitted_ms: u64,
    /// When it last made progress, in milliseconds since 1970.
    pub updated_ms: u64,
    /// Why it failed.
    pub error: Option<ClientError>,
    /// Parameters as JSON: the messages that the procedure keeps, as HBase's shell shows them. One whose type is not known
    /// has its type and its length instead.
    pub parameters: Vec<serde_json::Value>,
    /// The regions in its parameters.
    pub regions: Vec<RegionInfo>,
}

impl Procedure {
    fn of_pb(message: &pb::Procedure) -> Procedure {
        let known: Vec<_> = message.state_message.iter().filter_map(decode).collect();
        let mut regions = Vec::new();
        known.iter().for_each(|parameter| find_regions(parameter, &mut regions));
        Procedure {
            regions,
            id: message.proc_id,
            parent_id: message.parent_id,
            class: message.class_name.clone(),
            state: message.state().as_str_name().to_string(),
            owner: message.owner.clone().filter(|owner| !owner.is_empty()),
            submitted_ms: message.submitted_time,
            updated_ms: message.last_update,
            error: message.exception.as_ref().map(foreign),
            parameters: message.state_message.iter().map(json).collect(),
        }
    }
}

/// A message as the JSON that protobuf defines.
fn json(any: &Any) -> serde_json::Value {
    decode(any)
        .and_then(|message| serde_json::to_value(message).ok())
        .unwrap_or_else(|| serde_json::json!({ "type": type_name(any), "bytes": any.value.len() }))
}

fn type_name(any: &Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}

/// `None`: the type is not known, or the bytes are no such message.
fn decode(any: &Any) -> Option<DynamicMessage> {
    DynamicMessage::decode(TYPES.get_message_by_name(type_name(any))?, &any.value[..]).ok()
}

/// Adds each region once. A message of HBase's does not contain itself, so this ends.
fn find_regions(message: &DynamicMessage, found: &mut Vec<RegionInfo>) {
    if message.descriptor().full_name() == pb::RegionInfo::full_name() {
        let region =
            message.transcode_to().ok().and_then(|info: pb::RegionInfo| RegionInfo::from_pb(&info).ok());
        found.extend(region.filter(|region| !found.contains(region)));
        return;
    }
    for (_, value) in message.fields() {
        let parts = value.as_list().unwrap_or(std::slice::from_ref(value));
        parts.iter().filter_map(Value::as_message).for_each(|part| find_regions(part, found));
    }
}

/// The types that a master may name.
static TYPES: LazyLock<DescriptorPool> =
    LazyLock::new(|| DescriptorPool::decode(halcyon_proto::DESCRIPTORS).unwrap_or_default());

/// Whether others may hold a lock too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// One procedure holds it.
    Exclusive,
    /// Several may hold it.
    Shared,
}

/// A lock that procedures hold.
#[derive(Clone, Debug)]
pub struct Lock {
    /// `TABLE`, `REGION`, `NAMESPACE`, `SERVER` or `PEER`.
    pub resource_type: String,
    /// Name of the table, region and so on.
    pub resource_name: String,
    /// Whether others may hold it too.
    pub kind: LockKind,
    /// The holder of an exclusive lock.
    pub owner: Option<Procedure>,
    /// How many hold a shared lock.
    pub shared_count: i32,
    /// Procedures that wait for it.
    pub waiting: Vec<Procedure>,
}

impl Admin {
    /// Procedures of the master, with ended ones that it still remembers.
    pub async fn procedures(&self) -> Result<Vec<Procedure>, ClientError> {
        let answer: pb::GetProceduresResponse =
            self.call("GetProcedures", &pb::GetProceduresRequest {}).await?;
        let mut procedures: Vec<_> = answer.procedure.iter().map(Procedure::of_pb).collect();
        procedures.sort_by_key(|procedure| procedure.id);
        Ok(procedures)
    }

    /// Locks of the master.
    pub async fn locks(&self) -> Result<Vec<Lock>, ClientError> {
        let answer: pb::GetLocksResponse = self.call("GetLocks", &pb::GetLocksRequest {}).await?;
        let lock = |lock: &pb::LockedResource| Lock {
            resource_type: lock.resource_type().as_str_name().to_string(),
            resource_name: lock.resource_name().to_string(),
            kind: match lock.lock_type() {
                pb::LockType::Exclusive => LockKind::Exclusive,
                pb::LockType::Shared => LockKind::Shared,
            },
            owner: lock.exclusive_lock_owner_procedure.as_ref().map(Procedure::of_pb),
            shared_count: lock.shared_lock_count.unwrap_or(0),
            waiting: lock.waiting_procedures.iter().map(Procedure::of_pb).collect(),
        };
        Ok(answer.lock.iter().map(lock).collect())
    }

    /// Asks a procedure to end; `false` if it is not to be aborted.
    pub async fn abort_procedure(&self, id: u64, interrupt: bool) -> Result<bool, ClientError> {
        let request = pb::AbortProcedureRequest { proc_id: id, may_interrupt_if_running: Some(interrupt) };
        let answer: pb::AbortProcedureResponse = self.call("AbortProcedure", &request).await?;
        Ok(answer.is_procedure_aborted)
    }
}

#[cfg(test)]
mod tests {
    use halcyon_schema::TableName;
    use prost::Message;

    use super::*;

    #[test]
    fn parameters_are_shown_as_json() {
        let server =
            pb::ServerName { host_name: "h".to_string(), port: Some(16020), start_code: Some(1 << 40) };
        let state = pb::ServerCrashStateData { server_name: server, ..Default::default() };
        let any = Any { type_url: pb::ServerCrashStateData::type_url(), value: state.encode_to_vec() };
        let expected = serde_json::json!({
            "serverName": { "hostName": "h", "port": 16020, "startCode": (1u64 << 40).to_string() }
        });
        assert_eq!(json(&any), expected);
    }

    #[test]
    fn a_procedure_tells_the_regions_of_its_parameters() {
        let region = |start: &'static str, end: &'static str| {
            RegionInfo::new(TableName::parse(b"n:t").unwrap(), start.into(), end.into(), 7)
        };
        let (parent, daughters) = (region("", ""), [region("", "m"), region("m", "")]);
        let split = pb::SplitTableRegionStateData {
            user_info: pb::UserInformation::default(),
            parent_region_info: parent.to_pb(),
            child_region_info: daughters.iter().map(RegionInfo::to_pb).collect(),
        };
        let any = |type_url: String, value: Vec<u8>| Any { type_url, value };
        let message = pb::Procedure {
            state_message: vec![
                any(pb::RegionInfo::type_url(), parent.to_pb().encode_to_vec()),
                any(pb::SplitTableRegionStateData::type_url(), split.encode_to_vec()),
            ],
            ..Default::default()
        };
        let [first, second] = daughters;
        assert_eq!(Procedure::of_pb(&message).regions, [parent, first, second]);
    }

    #[test]
    fn a_parameter_of_an_unknown_type_or_with_garbage_shows_its_type() {
        let unknown = Any { type_url: "type.googleapis.com/hbase.pb.Later".to_string(), value: vec![1, 2] };
        assert_eq!(json(&unknown), serde_json::json!({ "type": "hbase.pb.Later", "bytes": 2 }));
        let garbage = Any { type_url: pb::ServerCrashStateData::type_url(), value: vec![0xff; 5] };
        assert_eq!(
            json(&garbage),
            serde_json::json!({ "type": "hbase.pb.ServerCrashStateData", "bytes": 5 })
        );
    }
}
