//! Looks for regions that were split or merged and are not needed any more (HBase: `CatalogJanitor`).
//!
//! A daughter reads her parent's files through references until a compaction has written her own; so does a merged
//! region. When no reference is left, the parents' files go to the archive, and then what meta says of them: the
//! parent's row, or the merged region's `info:merge...` columns. The work itself is a procedure under the table's
//! lock (`CleanRegions`), which `cleaner.rs` submits; a crash between files and meta leaves a row whose files are gone, which is cleaned again.

use std::collections::HashSet;

use halcyon_cell::{Error, Result};
use halcyon_schema::{RegionInfo, TableName, layout};
use tracing::info;

use crate::descriptors::list;
use crate::state::MasterState;
use crate::{archive, meta};

/// One look at all tables: per table the regions that are not needed any more.
pub(crate) fn unused(core: &MasterState) -> Result<Vec<(TableName, Vec<RegionInfo>)>> {
    let mut unused = Vec::new();
    for (table, candidates) in candidates(core) {
        let mut done = Vec::new();
        for region in candidates {
            if is_done(core, &region)? {
                done.push(region);
            }
        }
        if !done.is_empty() {
            unused.push((table, done));
        }
    }
    Ok(unused)
}

/// Per table the parents of splits, and the regions that name what they were merged of.
fn candidates(core: &MasterState) -> Vec<(TableName, Vec<RegionInfo>)> {
    let tables = core.tables.read();
    let of_table = tables.by_name.iter().map(|(name, entry)| {
        let regions = entry.regions.iter();
        let found = regions.filter(|(info, known)| info.is_split() || !known.merged_of.is_empty());
        (name.clone(), found.map(|(info, _)| info.clone()).collect::<Vec<_>>())
    });
    of_table.filter(|(_, regions)| !regions.is_empty()).collect()
}

fn is_done(core: &MasterState, region: &RegionInfo) -> Result<bool> {
    let (daughters, merged_of) = {
        let tables = core.tables.read();
        let Some((_, _, known)) = tables.region(region.encoded_name()) else { return Ok(false) };
        (known.daughters.clone(), known.merged_of.clone())
    };
    if region.is_split() {
        return Ok(!refers(core, &daughters, std::slice::from_ref(region))?);
    }
    Ok(!refers(core, std::slice::from_ref(region), &merged_of)?)
}

/// Whether a child has a reference to a file of one of the parents.
fn refers(core: &MasterState, children: &[RegionInfo], parents: &[RegionInfo]) -> Result<bool> {
    let parents: HashSet<&str> = parents.iter().map(RegionInfo::encoded_name).collect();
    for child in children {
        let dir = child.dir(&core.root);
        for family in list(&*core.env.fs, &dir)?.into_iter().filter(|entry| entry.is_dir) {
            for file in list(&*core.env.fs, &dir.join(family.name))? {
                let reference = layout::parse_reference_name(&file.name);
                if reference.is_some_and(|(_, parent)| parents.contains(parent)) {
                    return Ok(true);
                }
            }
        }
    }
    Ok(false)
}

/// As [`forget_merged`], where the region is about to make place for others and must be done with its parents:
/// Invalid if it is not.
pub(crate) fn end_merge(core: &MasterState, region: &RegionInfo) -> Result<()> {
    if forget_merged(core, region)? {
        return Ok(());
    }
    Err(Error::invalid(format!("{region} still refers to what it was merged of")))
}

/// Whether a region refers to no file of what it was merged of.
pub(crate) fn is_done_with_parents(core: &MasterState, region: &RegionInfo) -> Result<bool> {
    let merged_of =
        core.tables.read().region(region.encoded_name()).map(|(.., known)| known.merged_of.clone());
    let merged_of = merged_of.unwrap_or_default();
    Ok(merged_of.is_empty() || !refers(core, std::slice::from_ref(region), &merged_of)?)
}

/// Takes the parent of a split away if its daughters do not need it. The table's lock is held. May run twice.
pub(crate) fn forget_split(core: &MasterState, parent: &RegionInfo) -> Result<()> {
    let table = parent.table();
    let Ok(entry) = core.table(table) else { return Ok(()) };
    let Some(known) = entry.regions.get(parent).filter(|_| parent.is_split()) else { return Ok(()) };
    if refers(core, &known.daughters, std::slice::from_ref(parent))? {
        return Ok(());
    }
    archive::archive_region(core, table, parent.encoded_name())?;
    core.meta_put(|timestamp| vec![meta::delete_region(parent, timestamp)])?;
    let mut entry = core.locked_table(table)?;
    entry.regions.remove(parent);
    core.tables.write().put(entry);
    info!(region = parent.encoded_name(), "the parent of a split is archived");
    Ok(())
}

/// Takes away what a region was merged of, if it was. The table's lock is held. False if the region still refers to
/// files of theirs. May run twice.
pub(crate) fn forget_merged(core: &MasterState, region: &RegionInfo) -> Result<bool> {
    let table = region.table();
    let Ok(entry) = core.table(table) else { return Ok(true) };
    let Some(known) = entry.regions.get(region).filter(|known| !known.merged_of.is_empty()) else {
        return Ok(true);
    };
    if refers(core, std::slice::from_ref(region), &known.merged_of)? {
        return Ok(false);
    }
    for parent in &known.merged_of {
        archive::archive_region(core, table, parent.encoded_name())?;
    }
    core.meta_put(|timestamp| meta::delete_merge_columns(region, known.merged_of.len(), timestamp))?;
    core.update_table(table, |entry| {
        if let Some(known) = entry.regions.get_mut(region) {
            known.merged_of.clear();
        }
    });
    info!(region = region.encoded_name(), "what a region was merged of is archived");
    Ok(true)
}
