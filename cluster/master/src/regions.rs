//! Opening and closing many regions, with what meta and memory say about it.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Result;
use halcyon_schema::{RegionInfo, TableDescriptor, TableName};
use tracing::warn;

use crate::state::{Core, RegionEntry, RegionState, TableState};
use crate::{meta, parallel};

/// Makes the directories of new regions.
pub(crate) fn create_files(core: &Core, table: &TableDescriptor, regions: &[RegionInfo]) -> Result<()> {
    let (door, table) = (core.door.clone(), table.clone());
    parallel::for_each(core.settings.region_threads, regions.to_vec(), move |region| {
        door.create_region_files(&region, &table)
    })?;
    Ok(())
}

/// Opens regions; meta then shows them open and, if `state` is given, the table in that state.
pub(crate) fn open(
    core: &Core,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    state: Option<TableState>,
) -> Result<()> {
    mark(core, table.name(), regions, RegionState::Opening);
    let (door, descriptor) = (core.door.clone(), table.clone());
    let opened = parallel::for_each(core.settings.region_threads, regions.to_vec(), move |region| {
        let seq = door.open_region(&region, &descriptor).map_err(|error| error.context(&region))?;
        Ok((region, seq))
    })?;
    let opened: Vec<_> = opened.into_iter().map(|(region, seq)| growing_one(core, region, seq)).collect();
    let replicas = table.region_replication();
    let server = core.door.server_name();
    core.meta_put(|timestamp| {
        let rows = opened
            .iter()
            .flat_map(|(region, seq)| meta::open_region(region, replicas, &server, *seq, timestamp));
        rows.chain(state.map(|state| meta::table_state(table.name(), state, timestamp))).collect()
    })?;
    core.update_table(table.name(), |entry| {
        entry.state = state.unwrap_or(entry.state);
        for (region, open_seq) in opened {
            entry.regions.insert(region, RegionEntry { state: RegionState::Open, open_seq });
        }
    });
    Ok(())
}

/// Shows regions in transition; in memory alone, because a restart begins every transition anew.
fn mark(core: &Core, table: &TableName, regions: &[RegionInfo], state: RegionState) {
    core.update_table(table, |entry| {
        for region in regions {
            if let Some(known) = entry.regions.get_mut(region) {
                known.state = state;
            }
        }
    });
}

/// Opens the regions of many tables when the master starts. Returns those that could not be opened.
pub(crate) fn open_at_start(
    core: &Core,
    regions: Vec<(RegionInfo, Arc<TableDescriptor>)>,
) -> Result<Vec<RegionInfo>> {
    const ROWS_MAX: usize = 1000; // of one write to meta
    let door = core.door.clone();
    let results = parallel::for_each(core.settings.region_threads, regions, move |(region, table)| {
        let result = door.open_region(&region, &table);
        Ok((region, table.region_replication(), result))
    })?;
    let (mut opened, mut failed) = (Vec::new(), Vec::new());
    for (region, replicas, result) in results {
        match result {
            Ok(seq) => opened.push((growing_one(core, region, seq), replicas)),
            Err(error) => {
                warn!(%region, %error, "a region could not be opened");
                failed.push(region);
            }
        }
    }
    let server = core.door.server_name();
    for chunk in opened.chunks(ROWS_MAX) {
        core.meta_put(|timestamp| {
            let row = |((region, seq), replicas): &((RegionInfo, u64), i32)| {
                meta::open_region(region, *replicas, &server, *seq, timestamp)
            };
            chunk.iter().flat_map(row).collect()
        })?;
        for ((region, open_seq), _) in chunk {
            core.update_table(region.table(), |entry| {
                entry
                    .regions
                    .insert(region.clone(), RegionEntry { state: RegionState::Open, open_seq: *open_seq });
            });
        }
    }
    Ok(failed)
}

/// Clients drop a location whose number is not above the one they know: the number grows with every open.
fn growing_one(core: &Core, region: RegionInfo, seq: u64) -> (RegionInfo, u64) {
    let tables = core.tables.read();
    let known = tables.by_name.get(region.table()).and_then(|entry| entry.regions.get(&region));
    let before = known.map_or(0, |entry| entry.open_seq);
    (region, seq.max(before + 1))
}

/// Closes regions; meta then shows them closed and, if `state` is given, the table in that state.
pub(crate) fn close(
    core: &Core,
    table: &TableName,
    regions: &[RegionInfo],
    state: Option<TableState>,
) -> Result<()> {
    mark(core, table, regions, RegionState::Closing);
    close_only(core, regions, false)?;
    core.meta_put(|timestamp| {
        let rows = regions.iter().flat_map(|region| meta::closed_region(region, timestamp));
        rows.chain(state.map(|state| meta::table_state(table, state, timestamp))).collect()
    })?;
    core.update_table(table, |entry| {
        entry.state = state.unwrap_or(entry.state);
        for region in regions {
            if let Some(known) = entry.regions.get_mut(region) {
                known.state = RegionState::Closed;
            }
        }
    });
    Ok(())
}

/// Closes regions and tells nobody: they are opened again at once, or about to be deleted.
pub(crate) fn close_only(core: &Core, regions: &[RegionInfo], abort: bool) -> Result<()> {
    let door = core.door.clone();
    parallel::for_each(core.settings.region_threads, regions.to_vec(), move |region| {
        door.close_region(region.encoded_name(), abort).map_err(|error| error.context(&region))
    })?;
    Ok(())
}

pub(crate) fn flush(core: &Core, regions: &[RegionInfo], families: &[Bytes]) -> Result<()> {
    let (door, families) = (core.door.clone(), families.to_vec());
    parallel::for_each(core.settings.region_threads, regions.to_vec(), move |region| {
        door.flush_region(region.encoded_name(), &families).map_err(|error| error.context(&region))
    })?;
    Ok(())
}

/// Writes a table's state to meta, then to memory.
pub(crate) fn set_table_state(core: &Core, table: &TableName, state: TableState) -> Result<()> {
    core.meta_put(|timestamp| vec![meta::table_state(table, state, timestamp)])?;
    core.update_table(table, |entry| entry.state = state);
    Ok(())
}
