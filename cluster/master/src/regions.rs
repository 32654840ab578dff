//! Opening and closing many regions, with what meta and memory say about it.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{CloseRegionRequest, FlushRegionRequest, OpenRegionRequest};
use halcyon_schema::{RegionInfo, TableDescriptor, TableName};
use tracing::{info, warn};

use crate::state::{MasterState, RegionEntry, RegionState, TableState};
use crate::{meta, parallel};

/// Makes the directories of new regions.
pub(crate) fn create_files(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
) -> Result<()> {
    let (files, table) = (core.cluster.files.clone(), table.clone());
    parallel::for_each(core.settings.region_threads, regions.to_vec(), move |region| {
        files.create_region_files(&region, &table)
    })?;
    Ok(())
}

/// Opens regions, all or none; meta then shows them open and, if `state` is given, the table in that state.
pub(crate) fn open(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    state: Option<TableState>,
) -> Result<()> {
    let attempts = try_open_of(core, table, regions)?;
    if let Some((region, error)) = attempts.failed.into_iter().next() {
        mark(core, table.name(), &[region], RegionState::FailedOpen);
        return Err(error);
    }
    attempts.temporary.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))?;
    write_opened(core, attempts.opened, &[], state.map(|state| (table.name(), state)))
}

/// As [`open`], but a region that will never open (its files are damaged, say) stays as FAILED_OPEN, so that the others
/// serve and the table can be worked on.
pub(crate) fn open_what_can(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    state: Option<TableState>,
) -> Result<()> {
    let attempts = try_open_of(core, table, regions)?;
    attempts.temporary.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))?;
    let failed: Vec<_> = attempts.failed.into_iter().map(|(region, _)| region).collect();
    write_opened(core, attempts.opened, &failed, state.map(|state| (table.name(), state)))
}

/// Opens the regions of many tables when the master starts. Returns those to be tried again.
pub(crate) fn open_at_start(
    core: &MasterState,
    regions: Vec<(RegionInfo, Arc<TableDescriptor>)>,
) -> Result<Vec<RegionInfo>> {
    const ROWS_MAX: usize = 1000; // of one write to meta
    let Attempts { mut opened, failed, temporary } = try_open(core, regions)?;
    let failed: Vec<_> = failed.into_iter().map(|(region, _)| region).collect();
    let again: Vec<_> = temporary.into_iter().map(|(region, _)| region).collect();
    for region in &again {
        mark(core, region.table(), std::slice::from_ref(region), RegionState::Opening);
    }
    while !opened.is_empty() {
        let rest = opened.split_off(opened.len().min(ROWS_MAX));
        write_opened(core, std::mem::replace(&mut opened, rest), &[], None)?;
    }
    if !failed.is_empty() {
        write_opened(core, Vec::new(), &failed, None)?;
    }
    Ok(again)
}

struct Opened {
    region: RegionInfo,
    seq: u64,
    replicas: i32,
}

/// The results of opening regions.
#[derive(Default)]
struct Attempts {
    opened: Vec<Opened>,
    /// Regions that will never open as they are.
    failed: Vec<(RegionInfo, Error)>,
    /// Regions that may open later.
    temporary: Vec<(RegionInfo, Error)>,
}

/// As [`try_open`], for regions of one table, which memory shows as OPENING meanwhile.
fn try_open_of(core: &MasterState, table: &TableDescriptor, regions: &[RegionInfo]) -> Result<Attempts> {
    mark(core, table.name(), regions, RegionState::Opening);
    let table = Arc::new(table.clone());
    try_open(core, regions.iter().map(|region| (region.clone(), table.clone())).collect())
}

/// Tries every region.
fn try_open(core: &MasterState, regions: Vec<(RegionInfo, Arc<TableDescriptor>)>) -> Result<Attempts> {
    let server = core.cluster.region_server.clone();
    let results = parallel::for_each(core.settings.region_threads, regions, move |(region, table)| {
        let opened = server.open_region(&OpenRegionRequest::new(&region, &table));
        let result = opened.map(|opened| opened.open_seq_num).map_err(|error| error.context(&region));
        Ok((region, table.region_replication(), result))
    })?;
    let mut attempts = Attempts::default();
    for (region, replicas, result) in results {
        match result {
            Ok(seq) => attempts.opened.push(Opened { region, seq, replicas }),
            Err(error) => {
                warn!(%region, %error, "a region could not be opened");
                let is_final = error.kind().is_permanent();
                let list = if is_final { &mut attempts.failed } else { &mut attempts.temporary };
                list.push((region, error));
            }
        }
    }
    Ok(attempts)
}

/// Writes what became of regions, and a table's new state, to meta and then to memory.
fn write_opened(
    core: &MasterState,
    mut opened: Vec<Opened>,
    failed: &[RegionInfo],
    state: Option<(&TableName, TableState)>,
) -> Result<()> {
    for one in &mut opened {
        one.seq = growing(core, &one.region, one.seq);
    }
    let server = core.cluster.region_server.server_name();
    core.meta_put(|timestamp| {
        let open = |one: &Opened| meta::open_region(&one.region, one.replicas, &server, one.seq, timestamp);
        let rows = opened.iter().flat_map(open);
        let rows = rows.chain(failed.iter().flat_map(|region| meta::failed_region(region, timestamp)));
        rows.chain(state.map(|(table, state)| meta::table_state(table, state, timestamp))).collect()
    })?;
    if let Some((table, state)) = state {
        core.update_table(table, |entry| entry.state = state);
    }
    for one in opened {
        core.update_table(one.region.table(), |entry| {
            let region = entry.regions.entry(one.region.clone()).or_insert_with(RegionEntry::closed);
            (region.state, region.open_seq) = (RegionState::Open, one.seq);
        });
    }
    for region in failed {
        mark(core, region.table(), std::slice::from_ref(region), RegionState::FailedOpen);
    }
    Ok(())
}

/// Shows regions in transition; in memory alone, because a restart begins every transition anew.
pub(crate) fn mark(core: &MasterState, table: &TableName, regions: &[RegionInfo], state: RegionState) {
    core.update_table(table, |entry| {
        for region in regions {
            if let Some(known) = entry.regions.get_mut(region) {
                known.state = state;
            }
        }
    });
}

/// Clients drop a location whose number is not above the one they know: the number grows with every open.
fn growing(core: &MasterState, region: &RegionInfo, seq: u64) -> u64 {
    let tables = core.tables.read();
    let known = tables.by_name.get(region.table()).and_then(|entry| entry.regions.get(region));
    seq.max(known.map_or(0, |entry| entry.open_seq) + 1)
}

/// Closes regions; meta then shows them closed and, if `state` is given, the table in that state.
pub(crate) fn close(
    core: &MasterState,
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
pub(crate) fn close_only(core: &MasterState, regions: &[RegionInfo], abort: bool) -> Result<()> {
    let server = core.cluster.region_server.clone();
    parallel::for_each(core.settings.region_threads, regions.to_vec(), move |region| {
        let request = CloseRegionRequest { encoded_name: region.encoded_name().to_string(), abort };
        server.close_region(&request).map_err(|error| error.context(&region))
    })?;
    Ok(())
}

/// Flushes the regions that are open and passes over the others, as HBase's `FlushRegionProcedure` does: a region that
/// is not open has nothing in memory.
pub(crate) fn flush(core: &MasterState, regions: &[RegionInfo], families: &[Bytes]) -> Result<()> {
    let (server, families) = (core.cluster.region_server.clone(), families.to_vec());
    parallel::for_each(core.settings.region_threads, regions.to_vec(), move |region| {
        let families = families.clone();
        let request = FlushRegionRequest { encoded_name: region.encoded_name().to_string(), families };
        match server.flush_region(&request) {
            Err(error) if error.kind() == ErrorKind::Moved => {
                info!(%region, "a region that is not open is not flushed");
                Ok(())
            }
            flushed => flushed.map_err(|error| error.context(&region)),
        }
    })?;
    Ok(())
}

/// Writes a table's state to meta, then to memory.
pub(crate) fn set_table_state(core: &MasterState, table: &TableName, state: TableState) -> Result<()> {
    core.meta_put(|timestamp| vec![meta::table_state(table, state, timestamp)])?;
    core.update_table(table, |entry| entry.state = state);
    Ok(())
}
