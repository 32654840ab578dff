//! Makes the regions of a table cover all its rows, and meta know them all (HBase: `MetaFixer`).
//!
//! A region that only the master knows gets its row back. One that only meta knows becomes the master's. A hole gets the
//! region whose directory is still there, or a new, empty one. Then regions that overlap are merged, by procedures that follow.

use std::collections::HashSet;

use halcyon_cell::{Cell, Result};
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName};
use tracing::warn;

use super::table_regions::TableRegions;
use super::{HasSteps, Lock, MergeRegions, Parameters, Procedure, Step, parameters, step};
use crate::hbck::{self, Problem};
use crate::state::{MasterState, RegionEntry, RegionState, TableEntry, TableState};
use crate::{errors, meta, overlaps, regions};

pub(super) const KIND: &str = "fix_regions";

/// With the regions that the master shall know, which `prepare` finds.
pub(crate) struct FixRegions(TableRegions);

impl FixRegions {
    pub(crate) fn new(table: TableName) -> FixRegions {
        FixRegions(TableRegions::of(table))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<FixRegions> {
        Ok(FixRegions(TableRegions::decode(KIND, bytes)?))
    }

    /// Rows of meta; their order is that of the table.
    fn rows(&self, core: &MasterState) -> Result<Vec<RegionInfo>> {
        Ok(hbck::regions_of_meta(core)?.remove(&self.0.table).unwrap_or_default())
    }

    /// Regions that the master does not know yet and that are needed.
    fn find(&self, core: &MasterState, entry: &TableEntry) -> Result<Vec<RegionInfo>> {
        let rows = self.rows(core)?;
        let mut found: Vec<_> = hbck::only_rows(entry, &rows).collect();
        let orphans = hbck::orphans(entry, &rows, hbck::directories(core, &self.0.table)?);
        let newest = entry.regions.keys().chain(&rows).chain(&orphans).map(RegionInfo::region_id).max();
        let id = (core.now_ms().max(1) as u64).max(newest.unwrap_or(0) + 1);
        for problem in hbck::gaps(&self.0.table, &hbck::live_with_rows(entry, &rows)) {
            let Problem::Hole { table, start, end } = problem else { continue };
            let hole = RegionInfo::new(table, start, end, id);
            found.push(fill(hole, &orphans)?);
        }
        found.iter().try_for_each(RegionInfo::check_name)?;
        Ok(found)
    }
}

/// The region for a hole: the only orphan of just this range, or the empty `hole`. Invalid if other orphans have rows of
/// it, too, which would stay lost.
fn fill(hole: RegionInfo, orphans: &[RegionInfo]) -> Result<RegionInfo> {
    let overlaps = |region: &&RegionInfo| {
        hbck::reaches_beyond(region, hole.start_key()) && hbck::reaches_beyond(&hole, region.start_key())
    };
    let inside = orphans.iter().filter(|region| !region.is_split() && !region.is_offline()).filter(overlaps);
    let range = |region: &RegionInfo| (region.start_key().clone(), region.end_key().clone());
    let (fitting, others): (Vec<_>, Vec<_>) = inside.partition(|region| range(region) == range(&hole));
    let orphan = match (&fitting[..], others.first()) {
        ([], None) => return Ok(hole),
        ([one], None) => return Ok((*one).clone()),
        (_, Some(other)) => *other,
        ([one, ..], None) => *one,
    };
    Err(halcyon_cell::Error::invalid(format!(
        "the hole from '{}' to '{}' of table {} is not filled: it is not clear which region it belongs to, as the \
         directory of region {orphan} has rows of it. Move that directory away and try again",
        hole.start_key().escape_ascii(),
        hole.end_key().escape_ascii(),
        hole.table()
    )))
}

impl Procedure for FixRegions {
    fn kind(&self) -> &'static str {
        KIND
    }

    /// The name is ours, in the form of HBase's, which repairs without a procedure.
    fn class_name(&self) -> &'static str {
        "org.apache.hadoop.hbase.master.procedure.FixRegionsProcedure"
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        parameters::of(&self.0.table.to_pb())
    }

    fn locks(&self) -> Vec<Lock> {
        Lock::table(&self.0.table)
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        let entry = core.table(&self.0.table)?;
        self.0.regions = self.find(core, &entry).map_err(|error| errors::from_error(&error))?;
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.0.encode()
    }

    /// The merges of regions that overlap. Regions of a table that is not enabled are closed, and cannot be merged.
    fn followers(&self, core: &MasterState) -> Vec<Box<dyn Procedure>> {
        let Ok(entry) = core.table(&self.0.table) else { return Vec::new() };
        if entry.state != TableState::Enabled {
            return Vec::new();
        }
        let problems = hbck::gaps(&self.0.table, &hbck::live_with_rows(&entry, &[]));
        let overlaps = problems.iter().filter_map(|problem| match problem {
            Problem::Overlap(first, second) => Some((first, second)),
            _ => None,
        });
        let mut merges: Vec<Box<dyn Procedure>> = Vec::new();
        for regions in overlaps::merges(overlaps, core.settings.fix_merge_count_max) {
            match MergeRegions::new(regions, true) {
                Ok(merge) => merges.push(Box::new(merge)),
                Err(error) => warn!(table = %self.0.table, %error, "regions that overlap cannot be merged"),
            }
        }
        merges
    }
}

const STEPS: &[Step<FixRegions>] = &[
    step("write files", FixRegions::write_files),
    step("write meta", FixRegions::write_meta),
    step("open regions", FixRegions::open_regions),
];

impl HasSteps for FixRegions {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl FixRegions {
    fn write_files(&mut self, core: &MasterState) -> Result<()> {
        regions::create_files(core, &core.locked_table(&self.0.table)?.descriptor, &self.0.regions)
    }

    fn write_meta(&mut self, core: &MasterState) -> Result<()> {
        let mut entry = core.locked_table(&self.0.table)?;
        let rows = self.rows(core)?;
        let rows: HashSet<RegionInfo> = rows.into_iter().collect();
        let missing: Vec<_> = entry.regions.iter().filter(|(region, _)| !rows.contains(region)).collect();
        let added: Vec<_> = self.0.regions.iter().filter(|region| !rows.contains(region)).collect();
        if !(missing.is_empty() && added.is_empty()) {
            core.meta_put_together(|timestamp| {
                let known = missing.iter().flat_map(|(region, known)| row(region, known, timestamp));
                let new = added.iter().flat_map(|region| meta::closed_region(region, timestamp));
                known.chain(new).collect()
            })?;
        }
        for region in &self.0.regions {
            entry.regions.entry(region.clone()).or_insert_with(RegionEntry::closed);
        }
        core.tables.write().put(entry);
        Ok(())
    }

    fn open_regions(&mut self, core: &MasterState) -> Result<()> {
        let entry = core.locked_table(&self.0.table)?;
        if entry.state != TableState::Enabled {
            return Ok(());
        }
        regions::open_what_can(core, &entry.descriptor, &self.0.regions, None)
    }
}

/// The row of a region that the master knows.
fn row(region: &RegionInfo, known: &RegionEntry, timestamp: i64) -> Vec<Cell> {
    match (known.state, &known.daughters[..], &known.server) {
        (RegionState::Open, _, Some(server)) => meta::open_region(region, server, known.open_seq, timestamp),
        (RegionState::Split, [a, b], _) => meta::split_parent(region, &[a.clone(), b.clone()], timestamp),
        (state, ..) => meta::region_in_state(region, state, timestamp),
    }
}
