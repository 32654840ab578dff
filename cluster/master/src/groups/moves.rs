//! Regions that are on servers of other groups than their tables'.

use std::collections::HashSet;

use halcyon_schema::{RegionInfo, ServerName, TableName};
use tracing::info;

use crate::Master;
use crate::moves::Move;
use crate::placement::Place;
use crate::procedure::{Procedure, RegionAction, Resource, TransitRegion};
use crate::state::{MasterState, RegionState, TableEntry, TableState};

/// Open regions that are not where they ought to be, although a server of their group could take them. `hbase:meta` comes last,
/// so that the others' moves can be written to it.
pub(crate) fn misplaced(core: &MasterState) -> Vec<(RegionInfo, ServerName)> {
    if !core.has_groups() || core.cluster.servers.is_one_process() {
        return Vec::new();
    }
    let entries: Vec<TableEntry> = core.tables.read().by_name.values().cloned().collect();
    let mut found: Vec<_> =
        entries.iter().flat_map(|entry| misplaced_of(core, entry.descriptor.name(), entry)).collect();
    let meta = RegionInfo::meta();
    if let Place::At(server) = core.place_of(&meta)
        && is_misplaced(core, &TableName::META, &server)
    {
        found.push((meta, server));
    }
    found
}

/// The regions of all enabled tables that have, or had, a server.
pub(crate) fn with_servers(core: &MasterState) -> Vec<(RegionInfo, ServerName)> {
    let tables = core.tables.read();
    let enabled = tables.by_name.values().filter(|entry| entry.state == TableState::Enabled);
    let of_table = |entry: &TableEntry| {
        let at = |region: RegionInfo| entry.regions[&region].server.clone().map(|server| (region, server));
        entry.live_regions().into_iter().filter_map(at).collect::<Vec<_>>()
    };
    enabled.flat_map(of_table).collect()
}

fn misplaced_of(core: &MasterState, table: &TableName, entry: &TableEntry) -> Vec<(RegionInfo, ServerName)> {
    if entry.state != TableState::Enabled {
        return Vec::new();
    }
    let at = |region: RegionInfo| {
        let known = &entry.regions[&region];
        known.server.clone().filter(|_| known.state == RegionState::Open).map(|server| (region, server))
    };
    let mut found: Vec<_> = entry.live_regions().into_iter().filter_map(at).collect();
    let servers: HashSet<ServerName> = found.iter().map(|(_, server)| server.clone()).collect();
    let wrong: HashSet<ServerName> =
        servers.into_iter().filter(|server| is_misplaced(core, table, server)).collect();
    found.retain(|(_, server)| wrong.contains(server));
    found
}

fn is_misplaced(core: &MasterState, table: &TableName, server: &ServerName) -> bool {
    let online = core.cluster.servers.online();
    let scope = core.scope_of(table);
    let picked = scope.pick(online.iter());
    !picked.is_empty() && !picked.contains(&server)
}

/// Moves of a table's regions that its group asks for, as procedures.
pub(crate) fn moves_of_table(core: &MasterState, table: &TableName) -> Vec<Box<dyn Procedure>> {
    let here = misplaced(core).into_iter().filter(|(region, _)| region.table() == table);
    here.map(|(region, _)| Box::new(a_move(region)) as Box<dyn Procedure>).collect()
}

fn a_move(region: RegionInfo) -> TransitRegion {
    TransitRegion::new(region, RegionAction::Move, false)
}

/// Encoded names of the regions that procedures have to themselves, or wait for.
pub(crate) fn busy_regions(master: &Master) -> HashSet<String> {
    let locks = master.engine.views().into_iter().flat_map(|view| view.locks);
    let regions = locks.filter_map(|lock| match lock.resource {
        Resource::Region(name) => Some(name),
        _ => None,
    });
    regions.collect()
}

/// Has those of the misplaced regions moved that `wanted` names and that no procedure is working on. All that it names are
/// returned.
pub(crate) fn move_misplaced(
    master: &Master,
    wanted: impl Fn(&RegionInfo, &ServerName) -> bool,
) -> Vec<RegionInfo> {
    let mut found = misplaced(&master.core);
    found.retain(|(region, server)| wanted(region, server));
    if found.is_empty() {
        return Vec::new();
    }
    let busy = busy_regions(master);
    let idle = found.iter().filter(|(region, _)| !busy.contains(region.encoded_name()));
    let moves: Vec<Move> = idle
        .map(|(region, server)| {
            let group = master.core.group_of_table(region.table());
            info!(%region, %server, group, "a region moves to the servers of its group");
            Move { region: region.clone(), from: Some(server.clone()), to: None }
        })
        .collect();
    master.moves.add(moves);
    found.into_iter().map(|(region, _)| region).collect()
}
