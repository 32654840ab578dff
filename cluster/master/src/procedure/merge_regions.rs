//! Merges regions into one that has the rows of all of them and, if they are not neighbours, of what lies between.
//!
//! The same way as a split, backwards: flush the parents; close them, let the merged region refer to their files,
//! and in one write to meta put it in their place; open it. Until that write the parents are the regions, from there
//! on the merged one is. Its row names the parents until their files are not needed any more (`janitor.rs`).
//!
//! Regions that overlap are merged like neighbours: that is how an overlap is repaired (`hbck/overlaps.rs`). Only a forced merge
//! takes regions that are apart. A region between them stays, and the merged one overlaps it. Checked against
//! `MergeTableRegionsProcedure`.

use std::collections::BTreeSet;

use halcyon_cell::{Error, Result};
use halcyon_contract::RegionInfoRequest;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, ServerName};
use prost::Message;

use super::table_regions::{infos, messages};
use super::transit_region::find_whole;
use super::{HasSteps, Lock, Parameters, Procedure, Step, new_regions, parameters, payload, step};
use crate::state::{MasterState, RegionEntry, RegionState, TableEntry};
use crate::switches::Switch;
use crate::{errors, janitor, meta, regions};

pub(super) const KIND: &str = "merge_regions";

pub(crate) struct MergeRegions {
    /// In the order of their rows.
    parents: Vec<RegionInfo>,
    /// Of the first attempt; its region id is decided in `prepare`.
    first_merged: RegionInfo,
    /// Whose files are made, so that it may be in meta.
    merged: Option<RegionInfo>,
    /// The server that had the first parent. A master that takes over does not know it.
    parents_at: Option<ServerName>,
}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(message, repeated, tag = "1")]
    parents: Vec<pb::RegionInfo>,
    #[prost(message, required, tag = "2")]
    merged: pb::RegionInfo,
}

impl MergeRegions {
    /// Checks what can be said of the regions themselves, in the order of the request
    /// (`MergeTableRegionsProcedure.checkRegionsToMerge`). With `forcible` they need not be neighbours.
    pub(crate) fn new(
        parents: Vec<RegionInfo>,
        forcible: bool,
    ) -> std::result::Result<MergeRegions, RpcError> {
        let refuse = |message: String| Err(errors::merge_region(message));
        let unique = parents.iter().collect::<BTreeSet<_>>().len();
        if unique < parents.len() {
            return refuse(format!(
                "Duplicate regions specified; cannot merge a region to itself. Passed in {} but only {unique} unique.",
                parents.len(),
            ));
        }
        if unique < 2 {
            return refuse("Need two Regions at least to run a Merge".to_string());
        }
        if unique > PARENTS_MAX {
            return refuse(format!("Can't merge {unique} regions in one go; {PARENTS_MAX} is upper-limit."));
        }
        for pair in parents.windows(2) {
            let [previous, region] = pair else { continue };
            if previous.table() != region.table() {
                let (previous, region) = (previous.described(), region.described());
                return refuse(format!("Can't merge regions from different tables: {previous}, {region}"));
            }
            if !(forcible || region.is_adjacent(previous) || region.overlaps(previous)) {
                return refuse(format!(
                    "Unable to merge non-adjacent or non-overlapping regions '{}', '{}' when force=false",
                    previous.encoded_name(),
                    region.encoded_name()
                ));
            }
        }
        if let Some(replica) = parents.iter().find(|region| region.replica_id() != 0) {
            return refuse(format!("Can't merge non-default replicas; {}", replica.described()));
        }
        Ok(MergeRegions {
            first_merged: around(&parents),
            parents: sorted(parents),
            merged: None,
            parents_at: None,
        })
    }

    /// Whether merges are on, for the cluster and for the table. HBase asks when a request comes, and again when it begins.
    pub(crate) fn check_enabled(
        core: &MasterState,
        regions: &[RegionInfo],
    ) -> std::result::Result<(), RpcError> {
        let Some(first) = regions.first() else { return Ok(()) };
        let names = || short_names(regions);
        if !core.switches.lock().get(Switch::Merge) {
            let message = format!("Merge of {} failed because merge switch is off", names());
            return Err(RpcError::do_not_retry(message));
        }
        if first.is_meta() {
            return Err(errors::merge_region("hbase:meta has one region".to_string()));
        }
        if !core.table(first.table())?.descriptor.merge_enabled() {
            let message = format!("Merge of {} failed as region merge is disabled for the table", names());
            return Err(RpcError::do_not_retry(message));
        }
        Ok(())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<MergeRegions> {
        let payload: Payload = payload(KIND, bytes)?;
        let first_merged = RegionInfo::from_pb(&payload.merged)?;
        Ok(MergeRegions { parents: infos(&payload.parents)?, first_merged, merged: None, parents_at: None })
    }

    fn check_parent(&self, core: &MasterState, parent: &RegionInfo) -> std::result::Result<(), RpcError> {
        {
            let tables = core.tables.read();
            // Of a disabled table as well it is the state of the region that HBase names.
            let (_, entry) = find_whole(&tables, parent)?;
            if entry.state != RegionState::Open {
                let state = entry.state.as_str_name();
                return Err(errors::merge_region(format!(
                    "org.apache.hadoop.hbase.client.DoNotRetryRegionException: {} is not OPEN; state={state}",
                    parent.encoded_name()
                )));
            }
        }
        let (all, name) = (short_names(&self.parents), short_names(std::slice::from_ref(parent)));
        if !janitor::is_done_with_parents(core, parent).map_err(|error| errors::from_error(&error))? {
            return Err(errors::merge_region(format!(
                "Skip merging {all}, because a parent, {name}, has a merge qualifier (if a 'merge column' in parent, it was \
                 recently merged but still has outstanding references to its parents that must be cleared before it can \
                 participate in merge -- major compact it to hurry clearing of its references)"
            )));
        }
        let request = RegionInfoRequest { region: parent.clone(), best_split_row: false };
        let shape = core.server_of(parent).and_then(|server| server.region_info(&request));
        let shape = shape.map_err(|error| errors::merge_region(format!("{name} NOT mergeable: {error}")))?;
        if !shape.mergeable {
            let message = format!("Skip merging {all}, because a parent, {name}, is not mergeable");
            return Err(errors::merge_region(message));
        }
        Ok(())
    }
}

/// Parents of one merge. The columns that name them have four digits, in HBase too.
const PARENTS_MAX: usize = 10_000;

fn sorted(mut regions: Vec<RegionInfo>) -> Vec<RegionInfo> {
    regions.sort();
    regions
}

/// The smallest region that has the rows of all of these. HBase's ends too early where a region that reaches to the end of the
/// table comes before one that does not: it takes the empty key for the lowest, and loses the rows behind.
fn around(regions: &[RegionInfo]) -> RegionInfo {
    let start = regions.iter().map(RegionInfo::start_key).min().expect("there are two regions at least");
    let reaches_end = regions.iter().any(|region| region.end_key().is_empty());
    let end = regions.iter().map(RegionInfo::end_key).max().filter(|_| !reaches_end);
    RegionInfo::new(regions[0].table().clone(), start.clone(), end.cloned().unwrap_or_default(), 0)
}

/// As messages of HBase name regions: `[encoded, encoded]`.
fn short_names(regions: &[RegionInfo]) -> String {
    let names: Vec<&str> = regions.iter().map(RegionInfo::encoded_name).collect();
    format!("[{}]", names.join(", "))
}

impl Procedure for MergeRegions {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.assignment.MergeTableRegionsProcedure"
    }

    fn metric(&self) -> Option<&'static str> {
        Some("Merge")
    }

    fn parameters(&self, owner: &str) -> Parameters {
        let merged = self.merged.as_ref().unwrap_or(&self.first_merged);
        parameters::of(&pb::MergeTableRegionsStateData {
            user_info: parameters::user(owner),
            region_info: self.parents.iter().map(RegionInfo::to_pb).collect(),
            merged_region_info: Some(merged.to_pb()),
            forcible: None,
        })
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(self.first_merged.table())
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        MergeRegions::check_enabled(core, &self.parents)?;
        for parent in &self.parents {
            self.check_parent(core, parent)?;
        }
        let newest = self.parents.iter().map(RegionInfo::region_id).max().unwrap_or(0);
        let id = (core.now_ms().max(1) as u64).max(newest + 1);
        let (start, end) = (self.first_merged.start_key().clone(), self.first_merged.end_key().clone());
        self.first_merged = RegionInfo::new(self.first_merged.table().clone(), start, end, id);
        self.first_merged.check_name().map_err(errors::invalid)
    }

    fn payload(&self) -> Vec<u8> {
        let parents = messages(&self.parents);
        Payload { parents, merged: self.first_merged.to_pb() }.encode_to_vec()
    }

    /// Until the write to meta that puts the new in the place of the old.
    fn can_undo(&self, core: &MasterState, _step: usize) -> bool {
        let is_there = || core.table(self.first_merged.table()).map(|entry| self.made(&entry).is_some());
        self.merged.is_none() && !is_there().unwrap_or(true)
    }

    fn undo(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(self.first_merged.table())?;
        if self.made(&entry).is_some() {
            return Ok(()); // it is in their place
        }
        // From their opening on nothing of an attempt comes into place any more.
        regions::open_what_can(core, &entry.descriptor, &self.parents, None)?;
        new_regions::remove_all(core, std::slice::from_ref(&self.first_merged))
    }
}

const STEPS: &[Step<MergeRegions>] = &[
    step("flush", MergeRegions::flush),
    step("replace in meta", MergeRegions::replace),
    step("open merged", MergeRegions::open_merged),
];

impl HasSteps for MergeRegions {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl MergeRegions {
    fn flush(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(self.first_merged.table())?;
        for parent in &self.parents {
            regions::ensure_open(core, parent, &entry.descriptor)?;
        }
        regions::flush(core, &self.parents, &[])
    }

    fn open_merged(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(self.first_merged.table())?;
        let merged = self.made(&entry).ok_or_else(|| Error::invalid("the parents are not merged"))?;
        let near = self.parents_at.as_ref();
        regions::open_in_place(core, &entry.descriptor, std::slice::from_ref(&merged), near)?;
        new_regions::remove_before(core, std::slice::from_ref(&self.first_merged), &merged)
    }

    /// The region that is in the place of the parents, if it is.
    fn made(&self, entry: &TableEntry) -> Option<RegionInfo> {
        let is_of_parents = |merged_of: &[RegionInfo]| {
            merged_of.len() == self.parents.len() && merged_of.iter().all(|of| self.parents.contains(of))
        };
        let mut found = entry.regions.iter().filter(|(_, known)| is_of_parents(&known.merged_of));
        found.next().map(|(region, _)| region.clone())
    }
}

impl MergeRegions {
    fn replace(&mut self, core: &MasterState) -> Result<()> {
        let table = self.first_merged.table();
        if self.made(&core.locked_table(table)?).is_some() {
            return Ok(()); // done before a crash
        }
        let merged = match self.merged.clone() {
            Some(merged) => merged,
            None => self.make_merged(core)?,
        };
        self.merged = Some(merged.clone());
        self.write_meta(core, merged).map_err(new_regions::in_doubt)
    }

    fn make_merged(&self, core: &MasterState) -> Result<RegionInfo> {
        let table = self.first_merged.table();
        for parent in &self.parents {
            janitor::end_merge(core, parent)?;
        }
        let entry = core.locked_table(table)?;
        // Opened first, so that edits of a life before are in its files.
        for parent in &self.parents {
            regions::ensure_open(core, parent, &entry.descriptor)?;
        }
        regions::mark(core, table, &self.parents, RegionState::Merging);
        regions::close_flushed(core, &self.parents)?;
        let first = std::slice::from_ref(&self.first_merged);
        let merged = new_regions::of_next_attempt(core, first)?.remove(0);
        core.cluster.files.merge_region_files(&entry.descriptor, &self.parents, &merged)?;
        Ok(merged)
    }

    fn write_meta(&mut self, core: &MasterState, merged: RegionInfo) -> Result<()> {
        let mut entry = core.locked_table(self.first_merged.table())?;
        let first = self.parents.first().and_then(|parent| entry.regions.get(parent));
        self.parents_at = first.and_then(|known| known.server.clone());
        let removed = self.parents.iter().filter_map(|parent| entry.regions.remove(parent));
        let open_seq = removed.map(|known| known.open_seq).max().unwrap_or(0);
        let has_barriers = entry.descriptor.has_global_scope();
        core.meta_put_together(|timestamp| {
            meta::merge_regions(&self.parents, &merged, open_seq, has_barriers, timestamp)
        })?;
        let merged_of = self.parents.clone();
        entry.regions.insert(merged, RegionEntry { merged_of, ..RegionEntry::unopened(open_seq) });
        core.tables.write().put(entry);
        Ok(())
    }
}
