//! Flushes every open region of an enabled table. Regions that are not open are passed over.

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::TableName;
use prost::Message;

use super::enable_table::check_enabled;
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::regions;
use crate::state::MasterState;

pub(super) const KIND: &str = "flush_table";

pub(crate) struct FlushTable {
    table: TableName,
    /// Empty: all.
    families: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    table: pb::TableName,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    families: Vec<Bytes>,
}

impl FlushTable {
    pub(crate) fn new(table: TableName, families: Vec<Bytes>) -> FlushTable {
        FlushTable { table, families }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<FlushTable> {
        let payload: Payload = payload(KIND, bytes)?;
        Ok(FlushTable { table: TableName::from_pb(&payload.table)?, families: payload.families })
    }
}

impl Procedure for FlushTable {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.FlushTableProcedure"
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let (table_name, column_family) = (self.table.to_pb(), self.families.clone());
        parameters::of(&pb::FlushTableProcedureStateData { table_name, column_family })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table_shared(&self.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let entry = if self.table.is_meta() { None } else { Some(core.table(&self.table)?) };
        let Some(entry) = entry else { return Ok(()) };
        check_enabled(&entry)?;
        let missing: Vec<_> = self
            .families
            .iter()
            .filter(|name| entry.descriptor.family(name).is_none())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(RpcError::no_such_column_family(format!(
            "Column families [{}] don't exist in table {}",
            missing.join(", "),
            self.table
        )))
    }

    fn payload(&self) -> Vec<u8> {
        Payload { table: self.table.to_pb(), families: self.families.clone() }.encode_to_vec()
    }

    /// A flush changes nothing that could be seen.
    fn can_undo(&self, _core: &MasterState, _step: usize) -> bool {
        true
    }
}

const STEPS: &[Step<FlushTable>] = &[step("flush regions", FlushTable::flush)];

impl HasSteps for FlushTable {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl FlushTable {
    fn flush(&mut self, core: &MasterState) -> Result<()> {
        if self.table.is_meta() {
            return regions::flush(core, &[halcyon_schema::RegionInfo::meta()], &self.families);
        }
        regions::flush(core, &core.locked_table(&self.table)?.live_regions(), &self.families)
    }
}
