//! Deletes a disabled table; its store files go to the archive.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

use super::create_table::delete_from_meta;
use super::enable_table::check_disabled;
use super::{Lock, Procedure, payload};
use crate::archive;
use crate::state::MasterState;

pub(super) const KIND: &str = "delete_table";

pub(crate) struct DeleteTable {
    table: TableName,
    regions: Vec<RegionInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    table: pb::TableName,
    #[prost(message, repeated, tag = "2")]
    regions: Vec<pb::RegionInfo>,
}

impl DeleteTable {
    pub(crate) fn new(table: TableName) -> DeleteTable {
        DeleteTable { table, regions: Vec::new() }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<DeleteTable> {
        let payload: Payload = payload(KIND, bytes)?;
        Ok(DeleteTable {
            table: TableName::from_pb(&payload.table)?,
            regions: payload.regions.iter().map(RegionInfo::from_pb).collect::<Result<_>>()?,
        })
    }
}

impl Procedure for DeleteTable {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.DeleteTableProcedure"
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        if self.table.is_meta() {
            return Err(RpcError::do_not_retry("Can't modify catalog tables"));
        }
        let entry = core.table(&self.table)?;
        check_disabled(&entry)?;
        self.regions = entry.regions.into_keys().collect();
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        let regions = self.regions.iter().map(RegionInfo::to_pb).collect();
        Payload { table: self.table.to_pb(), regions }.encode_to_vec()
    }

    fn steps(&self) -> &'static [&'static str] {
        &["delete from meta", "archive files"]
    }

    fn run(&mut self, core: &MasterState, step: usize) -> Result<()> {
        match step {
            0 => delete_from_meta(core, &self.table, &self.regions),
            _ => archive::archive_table(core, &self.table),
        }
    }
}
