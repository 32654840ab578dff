//! Takes away what is left of regions that were split or merged, once nothing refers to their files (`janitor.rs`).

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName};

use super::table_regions::TableRegions;
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, step};
use crate::janitor;
use crate::state::MasterState;

pub(super) const KIND: &str = "clean_regions";

/// With parents of splits, and merged regions.
pub(crate) struct CleanRegions(TableRegions);

impl CleanRegions {
    pub(crate) fn new(table: TableName, regions: Vec<RegionInfo>) -> CleanRegions {
        CleanRegions(TableRegions { table, regions })
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<CleanRegions> {
        Ok(CleanRegions(TableRegions::decode(KIND, bytes)?))
    }
}

impl Procedure for CleanRegions {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.assignment.GCRegionProcedure"
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let Some(first) = self.0.regions.first() else { return Vec::new() };
        let mut all = parameters::of_region(first, &pb::GcRegionStateData { region_info: first.to_pb() });
        all.extend(self.0.regions[1..].iter().map(|region| parameters::any(&region.to_pb())));
        all
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.0.table)
    }

    fn prepare(&mut self, _core: &MasterState) -> std::result::Result<(), RpcError> {
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.0.encode()
    }

    /// What was cleaned is not needed; the rest is left to the next run of the janitor.
    fn can_undo(&self, _core: &MasterState, _step: usize) -> bool {
        true
    }
}

const STEPS: &[Step<CleanRegions>] = &[step("archive and forget", CleanRegions::clean)];

impl HasSteps for CleanRegions {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl CleanRegions {
    /// Each region is looked at again: the table may be another one than when the janitor looked.
    fn clean(&mut self, core: &MasterState) -> Result<()> {
        for region in &self.0.regions {
            janitor::forget_split(core, region)?;
            janitor::forget_merged(core, region)?;
        }
        Ok(())
    }
}
