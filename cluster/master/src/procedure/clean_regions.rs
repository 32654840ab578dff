//! Takes away what is left of regions that were split or merged, once nothing refers to their files (`janitor.rs`).

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

use super::{Lock, Procedure, payload};
use crate::janitor;
use crate::state::MasterState;

pub(super) const KIND: &str = "clean_regions";

pub(crate) struct CleanRegions {
    table: TableName,
    /// Parents of splits, and merged regions.
    regions: Vec<RegionInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    table: pb::TableName,
    #[prost(message, repeated, tag = "2")]
    regions: Vec<pb::RegionInfo>,
}

impl CleanRegions {
    pub(crate) fn new(table: TableName, regions: Vec<RegionInfo>) -> CleanRegions {
        CleanRegions { table, regions }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<CleanRegions> {
        let payload: Payload = payload(KIND, bytes)?;
        Ok(CleanRegions {
            table: TableName::from_pb(&payload.table)?,
            regions: payload.regions.iter().map(RegionInfo::from_pb).collect::<Result<_>>()?,
        })
    }
}

impl Procedure for CleanRegions {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.assignment.GCRegionProcedure"
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.table)
    }

    fn prepare(&mut self, _core: &MasterState) -> std::result::Result<(), RpcError> {
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        let regions = self.regions.iter().map(RegionInfo::to_pb).collect();
        Payload { table: self.table.to_pb(), regions }.encode_to_vec()
    }

    fn steps(&self) -> &'static [&'static str] {
        &["archive and forget"]
    }

    /// What was cleaned is not needed; the rest is left to the next run of the janitor.
    fn can_undo(&self, _core: &MasterState, _step: usize) -> bool {
        true
    }

    /// Each region is looked at again: the table may be another one than when the janitor looked.
    fn run(&mut self, core: &MasterState, _step: usize) -> Result<()> {
        for region in &self.regions {
            janitor::forget_split(core, region)?;
            janitor::forget_merged(core, region)?;
        }
        Ok(())
    }
}
