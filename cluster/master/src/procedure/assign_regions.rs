//! Opens regions of one table whose server is dead, or that are open nowhere although they ought to be.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;
use tracing::info;

use super::table_regions::{infos, messages};
use super::{Class, HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::placement::Place;
use crate::regions;
use crate::state::{MasterState, RegionState, TableState};

pub(super) const KIND: &str = "assign_regions";

pub(crate) struct AssignRegions {
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

impl AssignRegions {
    pub(crate) fn new(table: TableName, regions: Vec<RegionInfo>) -> AssignRegions {
        AssignRegions { table, regions }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<AssignRegions> {
        let payload: Payload = payload(KIND, bytes)?;
        Ok(AssignRegions { table: TableName::from_pb(&payload.table)?, regions: infos(&payload.regions)? })
    }
}

impl Procedure for AssignRegions {
    fn kind(&self) -> &'static str {
        KIND
    }

    /// As the procedure that HBase has for each region.
    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.assignment.TransitRegionStateProcedure"
    }

    fn metric(&self) -> Option<&'static str> {
        Some("Assign")
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let Some(first) = self.regions.first() else { return Vec::new() };
        let transition = pb::RegionStateTransitionStateData {
            r#type: pb::RegionTransitionType::Assign as i32,
            force_new_plan: true,
            ..Default::default()
        };
        let mut all = parameters::of_region(first, &transition);
        all.extend(self.regions[1..].iter().map(|region| parameters::any(&region.to_pb())));
        all
    }

    fn locks(&self) -> Vec<Lock> {
        let regions = self.regions.iter().map(Lock::region);
        Lock::table_kept(&self.table).into_iter().chain(regions).collect()
    }

    fn prepare(&mut self, _core: &MasterState) -> std::result::Result<(), RpcError> {
        Ok(())
    }

    fn class(&self, _core: &MasterState) -> Class {
        Class::Assignment
    }

    fn payload(&self) -> Vec<u8> {
        Payload { table: self.table.to_pb(), regions: messages(&self.regions) }.encode_to_vec()
    }
}

const STEPS: &[Step<AssignRegions>] = &[step("open", AssignRegions::open)];

impl HasSteps for AssignRegions {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl AssignRegions {
    /// Regions that were opened, closed, split or deleted since this was asked for are left as they are.
    fn open(&mut self, core: &MasterState) -> Result<()> {
        let Ok(entry) = core.table(&self.table) else { return Ok(()) };
        if !matches!(entry.state, TableState::Enabled | TableState::Enabling) {
            return Ok(());
        }
        let is_wanted = |region: &&RegionInfo| {
            let state = entry.known(region).map(|known| known.state);
            let is_alive = matches!(core.place_of(region), Place::At(_));
            matches!(state, Some(state) if state != RegionState::Open || !is_alive)
                && !region.is_split()
                && !region.is_offline()
        };
        let wanted: Vec<RegionInfo> = self.regions.iter().filter(is_wanted).cloned().collect();
        let begun_ns = core.env.clock.monotonic_ns();
        regions::open_exactly(core, &entry.descriptor, &wanted, None)?;
        let open_ms = core.env.clock.monotonic_ns().saturating_sub(begun_ns) / 1_000_000;
        info!(table = %self.table, regions = wanted.len(), open_ms, "regions that were open nowhere are open");
        Ok(())
    }
}
