//! Splits a region in two.
//!
//! ```text
//! flush the parent      so that it is away for a short time only
//! replace the parent    closed; its files referred to by the daughters'; then, in one write to meta, the parent is
//!                       offline and split and the daughters are there
//! open the daughters
//! ```
//!
//! Until the write to meta the parent is the region: a master that starts opens it, and the step closes it and
//! makes the daughters' files again. From there on the daughters are, and there is no way back. The parent's row and
//! files stay until compactions have written all that the daughters refer to (`janitor.rs`).

use bytes::Bytes;
use halcyon_cell::{Error, Result};
use halcyon_contract::{FlushRegionRequest, RegionInfoRequest};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::RegionInfo;
use prost::Message;

use super::transit_region::check_live;
use super::{HasSteps, Lock, Parameters, Procedure, Step, new_regions, parameters, payload, step};
use crate::state::{MasterState, RegionEntry, RegionState};
use crate::switches::Switch;
use crate::{errors, janitor, meta, quotas, regions};

pub(super) const KIND: &str = "split_region";

pub(crate) struct SplitRegion {
    parent: RegionInfo,
    /// `None`: in the middle.
    row: Option<Bytes>,
    /// Of the first attempt, decided in `prepare`.
    first_daughters: [RegionInfo; 2],
    /// Whose files are made, so that they may be in meta.
    made: Option<[RegionInfo; 2]>,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, required, tag = "1")]
    parent: pb::RegionInfo,
    #[prost(message, required, tag = "2")]
    first: pb::RegionInfo,
    #[prost(message, required, tag = "3")]
    second: pb::RegionInfo,
}

impl SplitRegion {
    pub(crate) fn new(parent: RegionInfo, row: Option<Bytes>) -> SplitRegion {
        SplitRegion { first_daughters: [parent.clone(), parent.clone()], parent, row, made: None }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<SplitRegion> {
        let payload: Payload = payload(KIND, bytes)?;
        let first_daughters = [RegionInfo::from_pb(&payload.first)?, RegionInfo::from_pb(&payload.second)?];
        let (parent, row, made) = (RegionInfo::from_pb(&payload.parent)?, None, None);
        Ok(SplitRegion { parent, row, first_daughters, made })
    }

    /// Checked in the order and with the words of `SplitTableRegionProcedure.checkSplittable`.
    fn find_row(&self, core: &MasterState) -> std::result::Result<Bytes, RpcError> {
        let refuse = |message: String| Err(RpcError::do_not_retry(message));
        let parent = &self.parent;
        let request = RegionInfoRequest { region: parent.clone(), best_split_row: self.row.is_none() };
        let shape = core.server_of(parent).and_then(|server| server.region_info(&request));
        let shape =
            shape.map_err(|error| RpcError::do_not_retry(format!("{parent} NOT splittable: {error}")))?;
        if !shape.splittable {
            return refuse(format!("{parent} NOT splittable"));
        }
        let Some(row) = self.row.clone().or(shape.best_split_row) else {
            return refuse(
                "Region not splittable because bestSplitPoint = null, maybe table is too small for auto split. \
                 For force split, try specifying split row"
                    .to_string(),
            );
        };
        if row == parent.start_key() {
            return refuse(format!("Split row is equal to startkey: {}", row.escape_ascii()));
        }
        if !parent.contains_row(&row) {
            let row = row.escape_ascii();
            return refuse(format!(
                "Split row is not inside region key range splitKey:{row} region: {parent}"
            ));
        }
        Ok(row)
    }
}

impl Procedure for SplitRegion {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.assignment.SplitTableRegionProcedure"
    }

    fn metric(&self) -> Option<&'static str> {
        Some("Split")
    }

    fn parameters(&self, owner: &str) -> Parameters {
        let daughters = self.made.as_ref().unwrap_or(&self.first_daughters);
        let split = pb::SplitTableRegionStateData {
            user_info: parameters::user(owner),
            parent_region_info: self.parent.to_pb(),
            child_region_info: daughters.iter().map(RegionInfo::to_pb).collect(),
        };
        parameters::of_region(&self.parent, &split)
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(self.parent.table())
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        if !core.switches.lock().get(Switch::Split) {
            let message = format!("Split region {} failed due to split switch off", self.parent);
            return Err(RpcError::do_not_retry(message));
        }
        if self.parent.is_meta() {
            return Err(RpcError::do_not_retry(format!("{} NOT splittable", self.parent)));
        }
        if self.parent.replica_id() != 0 {
            return Err(RpcError::do_not_retry("Can't invoke split on non-default regions directly"));
        }
        {
            let tables = core.tables.read();
            let (region, entry) = check_live(&tables, &self.parent)?;
            if entry.state != RegionState::Open {
                let state = entry.state.as_str_name();
                return Err(errors::region_state(format!("{region} is not OPEN; state={state}")));
            }
            self.parent = region.clone();
        }
        quotas::check_split(core, &self.parent)?;
        if let Some(row) = self.row.take() {
            let table = core.table(self.parent.table())?.descriptor;
            self.row = Some(table.split_restriction().start_of(row));
        }
        let row = self.find_row(core)?;
        let parent = &self.parent;
        let id = (core.now_ms().max(1) as u64).max(parent.region_id() + 1);
        let daughter = |start: &Bytes, end: &Bytes| {
            RegionInfo::new(parent.table().clone(), start.clone(), end.clone(), id)
        };
        self.first_daughters = [daughter(parent.start_key(), &row), daughter(&row, parent.end_key())];
        self.first_daughters.iter().try_for_each(RegionInfo::check_name).map_err(errors::invalid)?;
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        let (first, second) = (self.first_daughters[0].to_pb(), self.first_daughters[1].to_pb());
        Payload { parent: self.parent.to_pb(), first, second }.encode_to_vec()
    }

    /// Until the write to meta that puts the new in the place of the old.
    fn can_undo(&self, core: &MasterState, _step: usize) -> bool {
        let is_there = || core.table(self.parent.table()).map(|it| it.regions.contains_key(&self.parent));
        self.made.is_none() && is_there().unwrap_or(false)
    }

    fn undo(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(self.parent.table())?;
        if !entry.regions.contains_key(&self.parent) {
            return Ok(()); // the daughters are in its place
        }
        assert!(self.first_daughters[0] != self.parent, "what is removed are the daughters' directories");
        // From its opening on nothing of an attempt comes into place any more.
        regions::open_what_can(core, &entry.descriptor, std::slice::from_ref(&self.parent), None)?;
        new_regions::remove_all(core, &self.first_daughters)
    }
}

const STEPS: &[Step<SplitRegion>] = &[
    step("flush", SplitRegion::flush),
    step("replace in meta", SplitRegion::replace),
    step("open daughters", SplitRegion::open_daughters),
];

impl HasSteps for SplitRegion {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl SplitRegion {
    fn flush(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(self.parent.table())?;
        regions::ensure_open(core, &self.parent, &entry.descriptor)?;
        core.server_of(&self.parent)?.flush_region(&FlushRegionRequest::all_families(&self.parent))
    }

    fn open_daughters(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(self.parent.table())?;
        let parent = self.parent.clone().with_flags(true, true);
        let known = entry.regions.get(&parent);
        let known = known.ok_or_else(|| Error::invalid(format!("{parent} has no daughters")))?;
        let daughters = known.daughters.as_slice();
        let in_place =
            if core.settings.separate_daughters { daughters.len().min(1) } else { daughters.len() };
        let (here, apart) = daughters.split_at(in_place);
        regions::open_in_place(core, &entry.descriptor, here, known.server.as_ref())?;
        if !apart.is_empty() {
            regions::open_apart(core, &entry.descriptor, apart, known.server.as_ref())?;
        }
        daughters.first().map_or(Ok(()), |made| new_regions::remove_before(core, &self.first_daughters, made))
    }
}

impl SplitRegion {
    fn replace(&mut self, core: &MasterState) -> Result<()> {
        if !core.locked_table(self.parent.table())?.regions.contains_key(&self.parent) {
            return Ok(()); // done before a crash: what is in its place has other flags
        }
        let daughters = match self.made.clone() {
            Some(daughters) => daughters,
            None => self.make_daughters(core)?,
        };
        self.made = Some(daughters.clone());
        self.write_meta(core, daughters).map_err(new_regions::in_doubt)
    }

    fn make_daughters(&self, core: &MasterState) -> Result<[RegionInfo; 2]> {
        let (table, parent) = (self.parent.table(), std::slice::from_ref(&self.parent));
        janitor::end_merge(core, &self.parent)?;
        let entry = core.locked_table(table)?;
        // Opened first, so that edits of a life before are in its files.
        regions::ensure_open(core, &self.parent, &entry.descriptor)?;
        regions::mark(core, table, parent, RegionState::Splitting);
        regions::close_flushed(core, parent)?;
        let made = new_regions::of_next_attempt(core, &self.first_daughters)?;
        let daughters: [RegionInfo; 2] = made.try_into().expect("as many as in the first attempt");
        core.cluster.files.split_region_files(&entry.descriptor, &self.parent, &daughters)?;
        Ok(daughters)
    }

    fn write_meta(&self, core: &MasterState, daughters: [RegionInfo; 2]) -> Result<()> {
        let mut entry = core.locked_table(self.parent.table())?;
        let known = entry.regions.remove(&self.parent).expect("the lock of the table is held");
        let split = self.parent.clone().with_flags(true, true);
        let copies = entry.descriptor.region_replication();
        let has_barriers = entry.descriptor.has_global_scope();
        core.meta_put_together(|timestamp| {
            meta::split_region(&split, copies, &daughters, known.open_seq, has_barriers, timestamp)
        })?;
        for daughter in &daughters {
            entry.regions.insert(daughter.clone(), RegionEntry::unopened(known.open_seq));
        }
        let daughters = daughters.to_vec();
        entry.regions.insert(split, RegionEntry { state: RegionState::Split, daughters, ..known });
        core.tables.write().put(entry);
        Ok(())
    }
}
