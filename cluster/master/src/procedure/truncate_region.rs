//! Empties one region: a new region of the same range takes its place.
//!
//! HBase keeps the region's name. Here the name changes, because edits in the write-ahead log belong to a region
//! by its name, and a replay after a crash must not bring back what was truncated.

use halcyon_cell::Result;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::RegionInfo;
use prost::Message;

use super::table_regions::{infos, messages};
use super::transit_region::check_live;
use super::{HasSteps, Lock, Parameters, Procedure, Step, parameters, payload, step};
use crate::state::{MasterState, RegionEntry};
use crate::{archive, errors, meta, regions};

pub(super) const KIND: &str = "truncate_region";

pub(crate) struct TruncateRegion {
    old: RegionInfo,
    new: RegionInfo,
    /// Regions that only the old one refers to.
    merged_of: Vec<RegionInfo>,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    old: pb::RegionInfo,
    #[prost(message, required, tag = "2")]
    new: pb::RegionInfo,
    #[prost(message, repeated, tag = "3")]
    merged_of: Vec<pb::RegionInfo>,
}

impl TruncateRegion {
    pub(crate) fn new(region: RegionInfo) -> TruncateRegion {
        TruncateRegion { new: region.clone(), old: region, merged_of: Vec::new() }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<TruncateRegion> {
        let payload: Payload = payload(KIND, bytes)?;
        Ok(TruncateRegion {
            old: RegionInfo::from_pb(&payload.old)?,
            new: RegionInfo::from_pb(&payload.new)?,
            merged_of: infos(&payload.merged_of)?,
        })
    }
}

impl Procedure for TruncateRegion {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.TruncateRegionProcedure"
    }

    fn parameters(&self, owner: &str) -> Parameters {
        let (user_info, region_info) = (parameters::user(owner), self.old.to_pb());
        let state = pb::TruncateRegionStateData { user_info, region_info, snapshot_name: None };
        parameters::of_region(&self.old, &state)
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(self.old.table())
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        if self.old.table().is_system() {
            return Err(RpcError::do_not_retry("Can't truncate region in catalog tables"));
        }
        if self.old.replica_id() != 0 {
            return Err(RpcError::do_not_retry(
                "Can't truncate replicas directly. Replicas are auto-truncated when their primary is truncated.",
            ));
        }
        let tables = core.tables.read();
        let (old, known) = check_live(&tables, &self.old)?;
        (self.old, self.merged_of) = (old.clone(), known.merged_of.clone());
        let id = (core.now_ms().max(1) as u64).max(self.old.region_id() + 1);
        let (start, end) = (self.old.start_key().clone(), self.old.end_key().clone());
        self.new = RegionInfo::new(self.old.table().clone(), start, end, id);
        self.new.check_name().map_err(errors::invalid)
    }

    fn payload(&self) -> Vec<u8> {
        let merged_of = messages(&self.merged_of);
        Payload { old: self.old.to_pb(), new: self.new.to_pb(), merged_of }.encode_to_vec()
    }
}

const STEPS: &[Step<TruncateRegion>] = &[
    step("write files", TruncateRegion::write_files),
    step("close and write meta", TruncateRegion::replace),
    step("open", TruncateRegion::open),
    step("archive", TruncateRegion::archive),
];

impl HasSteps for TruncateRegion {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl TruncateRegion {
    fn write_files(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(self.old.table())?;
        regions::create_files(core, &entry.descriptor, std::slice::from_ref(&self.new))
    }

    fn open(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(self.old.table())?;
        regions::open(core, &entry.descriptor, std::slice::from_ref(&self.new), None)
    }

    fn archive(&mut self, core: &MasterState) -> Result<()> {
        let mut gone = std::iter::once(&self.old).chain(&self.merged_of);
        gone.try_for_each(|region| archive::archive_region(core, self.old.table(), region.encoded_name()))
    }
}

impl TruncateRegion {
    /// The old region leaves together with its row: as long as it has one, a restart opens it.
    fn replace(&mut self, core: &MasterState) -> Result<()> {
        regions::close_only(core, std::slice::from_ref(&self.old), false)?;
        core.meta_put(|timestamp| {
            let mut cells = meta::closed_region(&self.new, timestamp);
            cells.push(meta::delete_region(&self.old, timestamp));
            cells
        })?;
        let mut entry = core.locked_table(self.old.table())?;
        entry.regions.remove(&self.old);
        entry.regions.insert(self.new.clone(), RegionEntry::closed());
        core.tables.write().put(entry);
        Ok(())
    }
}
