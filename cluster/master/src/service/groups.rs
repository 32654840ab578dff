//! Region server groups: `RSGroupAdminService`, which clients of HBase 2 reach by `ExecMasterService`, and the same methods of
//! `MasterService`, where HBase 3 has them.
//!
//! Reads are answered at once. Changes follow each other on a thread of their own, because they last until regions have moved.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError};
use halcyon_schema::TableName;
use prost::Message;
use tracing::info;

use super::{Answer, MasterService};
use crate::errors::invalid;
use crate::groups::{self, ATTRIBUTE, Address, DEFAULT, ServersAndTables, group_attribute};
use crate::state::MasterState;
use crate::{Master, errors};

const SERVICE: &str = "RSGroupAdminService";

type ChangeWork = dyn FnOnce(&Master) -> Answer<Bytes> + Send;

/// An answer, or the work that makes it.
enum Work {
    Done(Bytes),
    Change(Box<ChangeWork>),
}

impl MasterService {
    pub(super) fn exec_master_service(&self, call: &Call) -> Answer<Outcome> {
        let request: pb::CoprocessorServiceRequest = super::decode(call)?;
        let asked = &request.call;
        let service = asked.service_name.strip_prefix("hbase.pb.").unwrap_or(&asked.service_name);
        if service != SERVICE || !self.master.core.has_groups() {
            return Err(RpcError::unknown_protocol(format!(
                "No registered Master Coprocessor Endpoint found for {service}. Has it been enabled?"
            )));
        }
        let work = work(&self.master.core, &asked.method_name, &asked.request).ok_or_else(|| {
            let method = &asked.method_name;
            RpcError::unknown_protocol(format!(
                "Unknown method {method} called on Master Coprocessor Endpoint {service}"
            ))
        })??;
        let name = format!("hbase.pb.{}Response", asked.method_name);
        self.answer(call, &asked.method_name, work, move |value| {
            let value = pb::NameBytesPair { name, value: Some(value) };
            let kind = pb::region_specifier::RegionSpecifierType::RegionName as i32;
            let region = pb::RegionSpecifier { r#type: kind, value: Bytes::new() };
            Reply::message(&pb::CoprocessorServiceResponse { region, value })
        })
    }

    fn answer(
        &self,
        call: &Call,
        method: &str,
        work: Work,
        reply: impl FnOnce(Bytes) -> Reply + Send + 'static,
    ) -> Answer<Outcome> {
        match work {
            Work::Done(bytes) => Ok(Outcome::Ready(Ok(reply(bytes)))),
            Work::Change(change) => {
                let user = call.connection.user.as_deref().unwrap_or_default();
                let address = &call.connection.peer;
                info!(target: "halcyon_audit", user, %address, method, "administrative call");
                let master = Arc::clone(&self.master);
                self.group_workers.run(move || change(&master).map(reply))
            }
        }
    }
}

/// A method of HBase 3's `MasterService`; `None` if it is none of groups, or if there are no groups.
pub(super) fn of_master(service: &MasterService, call: &Call) -> Option<Answer<Outcome>> {
    if !service.master.core.has_groups() || call.method == "MoveTables" {
        return None;
    }
    let work = work(&service.master.core, &call.method, &call.param)?;
    Some(work.and_then(|work| service.answer(call, &call.method, work, Reply::encoded)))
}

fn decode<M: Message + Default>(param: &Bytes) -> Answer<M> {
    let unreadable = |error| RpcError::do_not_retry(format!("the request cannot be read: {error}"));
    M::decode(param.clone()).map_err(unreadable)
}

fn done(message: &impl Message) -> Answer<Work> {
    Ok(Work::Done(message.encode_to_vec().into()))
}

/// Work that is answered by a message without fields.
fn change(work: impl FnOnce(&Master) -> Answer<()> + Send + 'static) -> Answer<Work> {
    Ok(Work::Change(Box::new(move |master| work(master).map(|()| Bytes::new()))))
}

fn addresses(servers: &[pb::ServerName]) -> Answer<BTreeSet<Address>> {
    servers.iter().map(Address::from_pb).collect::<Result<_>>().map_err(invalid)
}

fn table_names(tables: &[pb::TableName]) -> Answer<BTreeSet<TableName>> {
    tables.iter().map(TableName::from_pb).collect::<Result<_>>().map_err(invalid)
}

/// What a method does; `None` if there is none of that name.
fn work(core: &MasterState, method: &str, param: &Bytes) -> Option<Answer<Work>> {
    let work: fn(&MasterState, &Bytes) -> Answer<Work> = match method {
        "GetRSGroupInfo" => get,
        "GetRSGroupInfoOfTable" => get_of_table,
        "GetRSGroupInfoOfServer" => get_of_server,
        "ListRSGroupInfos" => {
            |core, _| done(&pb::ListRsGroupInfosResponse { r_s_group_info: core.group_infos() })
        }
        "ListTablesInRSGroup" => list_tables,
        "GetConfiguredNamespacesAndTablesInRSGroup" => list_configured,
        "AddRSGroup" => |_, param| {
            let request: pb::AddRsGroupRequest = decode(param)?;
            change(move |master| groups::add(master, &request.r_s_group_name))
        },
        "RemoveRSGroup" => |_, param| {
            let request: pb::RemoveRsGroupRequest = decode(param)?;
            change(move |master| groups::remove(master, &request.r_s_group_name))
        },
        "RenameRSGroup" => |_, param| {
            let request: pb::RenameRsGroupRequest = decode(param)?;
            let (old, new) = (request.old_rsgroup_name, request.new_rsgroup_name);
            change(move |master| groups::rename(master, &old, &new))
        },
        "MoveServers" => |_, param| {
            let request: pb::MoveServersRequest = decode(param)?;
            let servers = addresses(&request.servers)?;
            change(move |master| groups::move_servers(master, servers, &request.target_group))
        },
        "MoveTables" => |_, param| {
            let request: pb::MoveTablesRequest = decode(param)?;
            let tables = table_names(&request.table_name)?;
            change(move |master| groups::move_tables(master, tables, &request.target_group))
        },
        "MoveServersAndTables" => |_, param| {
            let request: pb::MoveServersAndTablesRequest = decode(param)?;
            let (servers, tables) = (addresses(&request.servers)?, table_names(&request.table_name)?);
            let moved = ServersAndTables { servers, tables };
            change(move |master| groups::move_servers_and_tables(master, moved, &request.target_group))
        },
        "RemoveServers" => |_, param| {
            let servers = addresses(&decode::<pb::RemoveServersRequest>(param)?.servers)?;
            change(move |master| groups::remove_servers(master, &servers))
        },
        "BalanceRSGroup" => |_, param| {
            let request: pb::BalanceRsGroupRequest = decode(param)?;
            let balance = move |master: &Master| groups::balance(master, &request);
            Ok(Work::Change(Box::new(move |master| balance(master).map(|it| it.encode_to_vec().into()))))
        },
        "UpdateRSGroupConfig" => |_, param| {
            let request: pb::UpdateRsGroupConfigRequest = decode(param)?;
            let pairs = request.configuration.into_iter().map(|pair| (pair.name, pair.value));
            let configuration: BTreeMap<String, String> = pairs.collect();
            change(move |master| groups::set_configuration(master, &request.group_name, configuration))
        },
        _ => return None,
    };
    Some(work(core, param))
}

fn get(core: &MasterState, param: &Bytes) -> Answer<Work> {
    let request: pb::GetRsGroupInfoRequest = decode(param)?;
    let r_s_group_info = core.group_info(&request.r_s_group_name);
    done(&pb::GetRsGroupInfoResponse { r_s_group_info })
}

fn get_of_table(core: &MasterState, param: &Bytes) -> Answer<Work> {
    let request: pb::GetRsGroupInfoOfTableRequest = decode(param)?;
    let table = TableName::from_pb(&request.table_name).map_err(invalid)?;
    let group = core.group_of_table(&table);
    let is_known = table.is_meta() || group != DEFAULT || core.table(&table).is_ok();
    let r_s_group_info = core.group_info(&group).filter(|_| is_known);
    done(&pb::GetRsGroupInfoOfTableResponse { r_s_group_info })
}

fn get_of_server(core: &MasterState, param: &Bytes) -> Answer<Work> {
    let request: pb::GetRsGroupInfoOfServerRequest = decode(param)?;
    let address = Address::from_pb(&request.server).map_err(invalid)?;
    let r_s_group_info = core.group_of_address(&address).and_then(|group| core.group_info(&group));
    done(&pb::GetRsGroupInfoOfServerResponse { r_s_group_info })
}

fn check_group(core: &MasterState, name: &str) -> Answer<pb::RsGroupInfo> {
    core.group_info(name).ok_or_else(|| errors::constraint(format!("RSGroup {name} does not exist")))
}

fn list_tables(core: &MasterState, param: &Bytes) -> Answer<Work> {
    let request: pb::ListTablesInRsGroupRequest = decode(param)?;
    let table_name = check_group(core, &request.group_name)?.tables;
    done(&pb::ListTablesInRsGroupResponse { table_name })
}

/// Namespaces and tables whose own descriptors name the group.
fn list_configured(core: &MasterState, param: &Bytes) -> Answer<Work> {
    let request: pb::GetConfiguredNamespacesAndTablesInRsGroupRequest = decode(param)?;
    let name = request.group_name.as_str();
    check_group(core, name)?;
    let table_name = {
        let tables = core.tables.read();
        let named = tables.by_name.values().filter(|entry| group_attribute(&entry.descriptor) == Some(name));
        named.map(|entry| entry.descriptor.name().to_pb()).collect()
    };
    let namespaces = core.namespaces.read();
    let named = namespaces.iter().filter(|it| it.configuration.get(ATTRIBUTE).is_some_and(|of| of == name));
    let namespace = named.map(|it| it.name.clone()).collect();
    done(&pb::GetConfiguredNamespacesAndTablesInRsGroupResponse { namespace, table_name })
}
