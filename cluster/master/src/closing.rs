//! Closing many regions, with what meta and memory say about it. `regions.rs` has the openings.

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::CloseRegionRequest;
use halcyon_schema::{RegionInfo, ServerName, TableName};

use crate::placement::{Place, may_be_open, recovering};
use crate::regions::mark;
use crate::state::{MasterState, MetaState, RegionState, TableState};
use crate::{meta, parallel};

/// Closes regions; meta then shows them closed and, if `state` is given, the table in that state.
pub(crate) fn close(
    core: &MasterState,
    table: &TableName,
    regions: &[RegionInfo],
    state: Option<TableState>,
) -> Result<()> {
    close_to(core, table, &and_copies(core, regions), state, None)
}

/// Regions and all copies of them that are known, copies first: they read what the regions write.
fn and_copies(core: &MasterState, regions: &[RegionInfo]) -> Vec<RegionInfo> {
    let Some(first) = regions.first() else { return Vec::new() };
    let tables = core.tables.read();
    let copies = tables.by_name.get(first.table()).map(|entry| entry.copies_of(regions)).unwrap_or_default();
    copies.into_iter().chain(regions.iter().cloned()).collect()
}

/// As [`close`], exactly these; clients of the server are told where the regions go.
pub(crate) fn close_to(
    core: &MasterState,
    table: &TableName,
    regions: &[RegionInfo],
    state: Option<TableState>,
    destination: Option<&ServerName>,
) -> Result<()> {
    assert!(
        regions.iter().all(|region| region.table() == table),
        "regions of {table} are closed, and of no other"
    );
    check_flags(core, regions)?;
    if !core.cluster.servers.is_one_process() && !regions.is_empty() {
        core.meta_put(|timestamp| {
            let closing =
                |region: &RegionInfo| meta::region_in_state(region, RegionState::Closing, timestamp);
            regions.iter().flat_map(closing).collect()
        })?;
    }
    mark(core, table, regions, RegionState::Closing);
    close_at(core, regions, false, destination)?;
    core.meta_put(|timestamp| {
        let rows = regions.iter().flat_map(|region| meta::closed_region(region, timestamp));
        rows.chain(state.map(|state| meta::table_state(table, state, timestamp))).collect()
    })?;
    core.update_table(table, |entry| {
        entry.state = state.unwrap_or(entry.state);
        for region in regions {
            if let Some(known) = entry.known_mut(region) {
                known.state = RegionState::Closed;
            }
        }
    });
    Ok(())
}

/// Writes a table's state to meta, then to memory.
pub(crate) fn set_table_state(core: &MasterState, table: &TableName, state: TableState) -> Result<()> {
    core.meta_put(|timestamp| vec![meta::table_state(table, state, timestamp)])?;
    core.update_table(table, |entry| entry.state = state);
    Ok(())
}

/// Invalid if a region was split since it was read: what is written to its row has its flags, and without them the next master would open
/// it again, over its daughters.
pub(crate) fn check_flags(core: &MasterState, regions: &[RegionInfo]) -> Result<()> {
    let tables = core.tables.read();
    let differs = |region: &&RegionInfo| {
        let known = tables.region(region.encoded_name()).map(|(_, known, _)| known);
        known.is_some_and(|known| known.is_split() != region.is_split())
    };
    match regions.iter().filter(|region| !region.is_secondary()).find(differs) {
        Some(region) => Err(Error::invalid(format!("{region} is the parent of a split"))),
        None => Ok(()),
    }
}

/// Closes regions and tells no client: they are opened again at once, or about to be deleted. Until then they are CLOSING in memory.
pub(crate) fn close_only(core: &MasterState, regions: &[RegionInfo], abort: bool) -> Result<()> {
    close_at(core, &and_copies(core, regions), abort, None)
}

/// As [`close_only`], exactly these.
pub(crate) fn close_exactly(core: &MasterState, regions: &[RegionInfo]) -> Result<()> {
    close_at(core, regions, false, None)
}

/// Closes regions whose files become those of others: each by a server, which flushes it. `Busy` if one is open nowhere: its server has
/// died, and what was in memory there is in no file before the region has been opened again.
pub(crate) fn close_flushed(core: &MasterState, regions: &[RegionInfo]) -> Result<()> {
    close_each(core, &and_copies(core, regions), false, None, true)
}

/// Those that are open nowhere because their server died with them.
pub(crate) fn died(core: &MasterState, regions: &[RegionInfo]) -> Vec<RegionInfo> {
    let open_nowhere = |region: &&RegionInfo| matches!(core.place_of(region), Place::Nowhere(Some(_)));
    regions.iter().filter(|region| was_open(core, region)).filter(open_nowhere).cloned().collect()
}

/// Whether the last server of a region may have it, or had it when it died.
pub(crate) fn was_open(core: &MasterState, region: &RegionInfo) -> bool {
    let tables = core.tables.read();
    tables.region(region.encoded_name()).is_some_and(|(_, _, known)| may_be_open(known.state))
}

/// Whether a server is to open a region, and has not told yet that it is open. What the region replays is in no store file before.
pub(crate) fn is_opening(core: &MasterState, region: &RegionInfo) -> bool {
    if core.cluster.servers.is_one_process() {
        return false; // it knows by itself what it has open
    }
    if region.is_meta() {
        return core.meta_place.read().state == MetaState::Opening;
    }
    let tables = core.tables.read();
    let known = tables.region(region.encoded_name());
    known.is_some_and(|(_, _, known)| known.state == RegionState::Opening)
}

fn close_at(
    core: &MasterState,
    regions: &[RegionInfo],
    abort: bool,
    destination: Option<&ServerName>,
) -> Result<()> {
    close_each(core, regions, abort, destination, false)
}

/// What is to be closed is wanted nowhere from now on: a server that opens it late is refused, and closes it. In memory alone, and
/// whoever closes it goes on from there.
fn mark_closing(core: &MasterState, regions: &[RegionInfo]) {
    for region in regions.iter().filter(|region| !core.is_closing(region)) {
        core.update_region(region, |known| {
            if may_be_open(known.state) {
                known.state = RegionState::Closing;
            }
        });
    }
}

/// `are_open`: a region that no server has is an error.
fn close_each(
    core: &MasterState,
    regions: &[RegionInfo],
    abort: bool,
    destination: Option<&ServerName>,
    are_open: bool,
) -> Result<()> {
    mark_closing(core, regions);
    let (shared, destination) = (core.shared(), destination.cloned());
    parallel::for_each(core.settings.region_threads, regions.to_vec(), move |region| {
        let server = match shared.place_of(&region) {
            Place::At(server) => server,
            Place::Nowhere(_) if are_open && !region.is_secondary() => {
                let text = format!("{region} is open nowhere: it is opened again, and then closed");
                return Err(Error::new(ErrorKind::Busy, text));
            }
            Place::Nowhere(_) => return Ok(()),
            Place::Recovering(_) if region.is_secondary() => return Ok(()), // it is gone with its server
            Place::Recovering(server) => return Err(recovering(&region, &server)),
        };
        let Some(server) = shared.cluster.servers.get(&server) else {
            return Err(Error::new(ErrorKind::Busy, format!("{server}, which has {region}, has just died")));
        };
        let request = CloseRegionRequest { region, abort, destination: destination.clone() };
        server.close_region(&request).map_err(|error| error.context(&request.region))
    })?;
    Ok(())
}
