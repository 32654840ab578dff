//! Opening and closing many regions, with what meta and memory say about it.
//!
//! Regions are opened and closed with their copies for reads. The verbs that say so act on exactly the regions that are named.
//! `closing.rs` has those that close.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_contract::{FlushRegionRequest, OpenRegionRequest, Standing};
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor, TableName, barrier_cells};
use tracing::{info, warn};

pub(crate) use crate::closing::{
    check_flags, close, close_exactly, close_flushed, close_only, close_to, died, is_opening,
    set_table_state, was_open,
};
use crate::groups::Scope;
use crate::placement::{Chooser, Place, recovering};
use crate::state::{MasterState, RegionEntry, RegionState, TableState};
use crate::{meta, meta_region, parallel};

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

/// How a region is to be opened.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wanted<'a> {
    /// The server that gets it, if it may get regions.
    pub(crate) to: Option<&'a ServerName>,
    /// A server that does not get it, unless it is the only one.
    pub(crate) not_at: Option<&'a ServerName>,
    /// Where a region that was nowhere before is opened, if it may be; not where another copy of it is.
    pub(crate) near: Option<&'a ServerName>,
    /// Regions that meta shows as OPEN where they are, and that were closed there a moment ago.
    pub(crate) shown: &'a [RegionInfo],
}

/// Regions, and as many copies of each as the table is to have.
fn with_copies(core: &MasterState, table: &TableDescriptor, regions: &[RegionInfo]) -> Vec<RegionInfo> {
    let tables = core.tables.read();
    let copies = tables.by_name.get(table.name()).map(|entry| entry.copies_of(regions)).unwrap_or_default();
    let copies = copies.into_iter().filter(|copy| copy.replica_id() < table.region_replication());
    regions.iter().cloned().chain(copies).collect()
}

/// Opens regions, all or none; meta then shows them open and, if `state` is given, the table in that state.
pub(crate) fn open(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    state: Option<TableState>,
) -> Result<()> {
    open_as(core, table, &with_copies(core, table, regions), state, Wanted::default())
}

/// As [`open`], exactly these, where it is wanted.
pub(crate) fn open_as(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    state: Option<TableState>,
    wanted: Wanted<'_>,
) -> Result<()> {
    let attempts = try_open_of(core, table, regions, wanted)?;
    // Regions are of use without copies that will never open.
    let has_regions = regions.iter().any(|region| !region.is_secondary());
    let (copies, failed): (Vec<_>, Vec<_>) =
        attempts.failed.into_iter().partition(|(region, _)| region.is_secondary() && has_regions);
    if let Some((region, error)) = failed.into_iter().next() {
        mark(core, table.name(), &[region], RegionState::FailedOpen);
        return Err(error);
    }
    attempts.temporary.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))?;
    let copies: Vec<_> = copies.into_iter().map(|(region, _)| region).collect();
    write_opened(core, attempts.opened, &copies, state.map(|state| (table.name(), state)))
}

/// As [`open`], but a region that will never open (its files are damaged, say) stays as FAILED_OPEN, so that the others
/// serve and the table can be worked on.
pub(crate) fn open_what_can(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    state: Option<TableState>,
) -> Result<()> {
    open_exactly(core, table, &with_copies(core, table, regions), state)
}

/// As [`open_what_can`], for regions that take the place of others: at the server that had those, because its cache has blocks of
/// their files (HBase: `AssignmentManagerUtil.createAssignProceduresForSplitDaughters`). Elsewhere if it is gone or drained.
pub(crate) fn open_in_place(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    near: Option<&ServerName>,
) -> Result<()> {
    let wanted = Wanted { near, ..Wanted::default() };
    open_wanted(core, table, &with_copies(core, table, regions), None, wanted)
}

/// As [`open_what_can`], at another server than this one, if there is another (HBase: the same method).
pub(crate) fn open_apart(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    from: Option<&ServerName>,
) -> Result<()> {
    let wanted = Wanted { not_at: from, ..Wanted::default() };
    open_wanted(core, table, &with_copies(core, table, regions), None, wanted)
}

/// As [`open_what_can`], exactly these.
pub(crate) fn open_exactly(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    state: Option<TableState>,
) -> Result<()> {
    open_wanted(core, table, regions, state, Wanted::default())
}

fn open_wanted(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    state: Option<TableState>,
    wanted: Wanted<'_>,
) -> Result<()> {
    let attempts = try_open_of(core, table, regions, wanted)?;
    attempts.temporary.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))?;
    let failed: Vec<_> = attempts.failed.into_iter().map(|(region, _)| region).collect();
    write_opened(core, attempts.opened, &failed, state.map(|state| (table.name(), state)))
}

/// Opens the regions of many tables when the master starts. Returns those to be tried again.
pub(crate) fn open_at_start(
    core: &MasterState,
    regions: Vec<(RegionInfo, Arc<TableDescriptor>)>,
) -> Result<Vec<RegionInfo>> {
    let Attempts { mut opened, failed, temporary } = try_open(core, regions, Wanted::default())?;
    let failed: Vec<_> = failed.into_iter().map(|(region, _)| region).collect();
    let again: Vec<_> = temporary.into_iter().map(|(region, _)| region).collect();
    for region in &again {
        mark(core, region.table(), std::slice::from_ref(region), RegionState::Opening);
    }
    while !opened.is_empty() {
        let rest = opened.split_off(opened.len().min(META_ROWS_MAX));
        write_opened(core, std::mem::replace(&mut opened, rest), &[], None)?;
    }
    if !failed.is_empty() {
        write_opened(core, Vec::new(), &failed, None)?;
    }
    Ok(again)
}

/// Sees to it that a region, without its copies, is open on a server; meta follows only if it was not. What the server has not told the master
/// about a region that it lost is found out here.
pub(crate) fn ensure_open(
    core: &MasterState,
    region: &RegionInfo,
    table: &Arc<TableDescriptor>,
) -> Result<()> {
    let mut attempts = try_open(core, vec![(region.clone(), table.clone())], Wanted::default())?;
    attempts.failed.pop().or(attempts.temporary.pop()).map_or(Ok(()), |(_, error)| Err(error))
}

/// Rows of one write to meta.
const META_ROWS_MAX: usize = 1000;

struct Opened {
    region: RegionInfo,
    server: ServerName,
    seq: u64,
    /// The sequence id with which replication peers get edits of it from now on (`RegionBarriers`); `None`: they get none.
    barrier: Option<u64>,
    /// Meta and memory show it.
    is_written: bool,
}

impl Opened {
    fn cells(&self, timestamp: i64) -> Vec<Cell> {
        open_cells(&self.region, &self.server, (self.seq, self.barrier), timestamp)
    }
}

/// The row of a region that is open, with its barrier.
fn open_cells(
    region: &RegionInfo,
    server: &ServerName,
    (seq, barrier): (u64, Option<u64>),
    timestamp: i64,
) -> Vec<Cell> {
    let mut cells = meta::open_region(region, server, seq, timestamp);
    cells.extend(barrier.into_iter().flat_map(|seq| barrier_cells(region, seq, server, timestamp)));
    cells
}

/// The barrier of an opening with this sequence id. Only the region itself is written to.
fn barrier_of(table: &TableDescriptor, region: &RegionInfo, seq: u64) -> Option<u64> {
    (table.has_global_scope() && !region.is_secondary()).then_some(seq)
}

/// The results of opening regions.
#[derive(Default)]
pub(crate) struct Attempts {
    opened: Vec<Opened>,
    /// Regions that will never open as they are.
    failed: Vec<(RegionInfo, Error)>,
    /// Regions that may open later.
    pub(crate) temporary: Vec<(RegionInfo, Error)>,
}

impl Attempts {
    pub(crate) fn add(&mut self, others: Attempts) {
        self.opened.extend(others.opened);
        self.failed.extend(others.failed);
        self.temporary.extend(others.temporary);
    }

    fn count(&self) -> usize {
        self.opened.len() + self.failed.len() + self.temporary.len()
    }

    /// What is open, and copies that will never be: nobody waits for those.
    pub(crate) fn done(&self) -> Vec<RegionInfo> {
        let opened = self.opened.iter().map(|opened| &opened.region);
        let failed = self.failed.iter().map(|(region, _)| region).filter(|region| region.is_secondary());
        opened.chain(failed).cloned().collect()
    }
}

/// As [`try_open`], for regions of one table, which memory shows as OPENING meanwhile.
pub(crate) fn try_open_of(
    core: &MasterState,
    table: &TableDescriptor,
    regions: &[RegionInfo],
    wanted: Wanted<'_>,
) -> Result<Attempts> {
    if core.cluster.servers.is_one_process() {
        mark(core, table.name(), regions, RegionState::Opening);
    }
    let table = Arc::new(table.clone());
    try_open(core, regions.iter().map(|region| (region.clone(), table.clone())).collect(), wanted)
}

/// A region on its way to a server.
struct Order {
    region: RegionInfo,
    table: Arc<TableDescriptor>,
    server: ServerName,
}

/// Tries every region. Copies come last: what a region replays when it opens is in files then.
fn try_open(
    core: &MasterState,
    regions: Vec<(RegionInfo, Arc<TableDescriptor>)>,
    wanted: Wanted<'_>,
) -> Result<Attempts> {
    let (copies, regions): (Vec<_>, Vec<_>) =
        regions.into_iter().partition(|(region, _)| region.is_secondary());
    let mut attempts = Attempts::default();
    for regions in [regions, copies] {
        if !regions.is_empty() {
            try_open_alike(core, regions, wanted, &mut attempts)?;
        }
    }
    Ok(attempts)
}

fn try_open_alike(
    core: &MasterState,
    regions: Vec<(RegionInfo, Arc<TableDescriptor>)>,
    wanted: Wanted<'_>,
    attempts: &mut Attempts,
) -> Result<()> {
    let count = attempts.count() + regions.len();
    let orders = plan(core, regions, wanted, attempts)?;
    let one_process = core.cluster.servers.is_one_process();
    if !one_process {
        write_opening(core, &orders, wanted.shown)?;
    }
    let shared = core.shared();
    let results = parallel::for_each(core.settings.region_threads, orders, move |order| {
        let result = open_at(&shared, &order).map_err(|error| error.context(&order.region));
        Ok((order, result))
    })?;
    for (Order { region, server, table }, result) in results {
        match result {
            Ok(seq) => {
                let barrier = barrier_of(&table, &region, seq);
                attempts.opened.push(Opened { region, server, seq, barrier, is_written: !one_process });
            }
            Err(error) => {
                warn!(%region, %server, %error, "a region could not be opened");
                if !one_process && error.kind() == ErrorKind::Moved {
                    note_failure(core, &region, &server);
                }
                let is_final = error.kind().is_permanent();
                if is_final {
                    core.transitions.note_failure(&region, error.message());
                }
                let list = if is_final { &mut attempts.failed } else { &mut attempts.temporary };
                list.push((region, error));
            }
        }
    }
    assert_eq!(attempts.count(), count, "each region is open, or it is told why not");
    Ok(())
}

/// Gives each region a server: the one that has it, or a new one.
fn plan(
    core: &MasterState,
    regions: Vec<(RegionInfo, Arc<TableDescriptor>)>,
    wanted: Wanted<'_>,
    attempts: &mut Attempts,
) -> Result<Vec<Order>> {
    let count = attempts.temporary.len() + regions.len();
    let mut chooser = None;
    let mut scopes: HashMap<TableName, Scope> = HashMap::new();
    let mut orders = Vec::with_capacity(regions.len());
    let mut apart = Apart::default();
    for (region, table) in regions {
        let last = match core.place_of(&region) {
            Place::At(server) => {
                orders.push(Order { region, table, server });
                continue;
            }
            // A copy has nothing in WALs.
            Place::Recovering(server) if region.is_secondary() => Some(server),
            Place::Recovering(server) => {
                let error = recovering(&region, &server);
                attempts.temporary.push((region, error));
                continue;
            }
            Place::Nowhere(last) => last.or_else(|| wanted.near.cloned()),
        };
        let chooser = match &mut chooser {
            Some(chooser) => chooser,
            None => {
                let all = Chooser::new(core)?;
                chooser.insert(match wanted.not_at {
                    Some(server) => all.without(server),
                    None => all,
                })
            }
        };
        let others = apart.servers(core, &region, &table);
        let scope = scopes.entry(region.table().clone()).or_insert_with(|| core.scope_of(region.table()));
        let server = match has_failed(core, &region) {
            true => chooser.choose_after_failure(scope, last.as_ref(), &others),
            false => chooser.choose(scope, wanted.to, last.as_ref(), &others),
        };
        match server {
            Ok(server) => {
                apart.note(&region, &table, &server);
                if wanted.to != Some(&server) {
                    core.targets.lock().note(&server); // a move has added what it wants
                }
                orders.push(Order { region, table, server });
            }
            Err(error) => attempts.temporary.push((region, error)),
        }
    }
    assert_eq!(
        orders.len() + attempts.temporary.len(),
        count,
        "each region is ordered somewhere, or told why not"
    );
    Ok(orders)
}

/// Servers that have other copies of regions: a region and its copies are to be on different servers where there are enough.
#[derive(Default)]
struct Apart {
    /// Of this plan, by the name of the region.
    chosen: HashMap<String, Vec<ServerName>>,
}

impl Apart {
    fn servers(&self, core: &MasterState, region: &RegionInfo, table: &TableDescriptor) -> Vec<ServerName> {
        if table.region_replication() <= 1 {
            return Vec::new();
        }
        let mut servers = core.servers_of_others(region);
        servers.extend(self.chosen.get(region.primary().encoded_name()).into_iter().flatten().cloned());
        servers
    }

    fn note(&mut self, region: &RegionInfo, table: &TableDescriptor, server: &ServerName) {
        if table.region_replication() > 1 {
            let of_region = self.chosen.entry(region.primary().encoded_name().to_string()).or_default();
            of_region.push(server.clone());
        }
    }
}

/// Whether the last server that was to open the region could not.
fn has_failed(core: &MasterState, region: &RegionInfo) -> bool {
    let tables = core.tables.read();
    let known = tables.region(region.encoded_name());
    known.is_some_and(|(_, _, known)| known.state == RegionState::FailedOpen)
}

/// The server does not have the region, so another one may try. In memory alone: a master after this one asks it again. It may have
/// been shown as OPEN there, and be asked for because it may be lost.
fn note_failure(core: &MasterState, region: &RegionInfo, server: &ServerName) {
    let is_online = core.cluster.servers.standing(server) == Standing::Online;
    core.update_region(region, |known| {
        let was_ordered =
            known.state == RegionState::Opening || known.state == RegionState::Open && is_online;
        if was_ordered && known.server.as_ref() == Some(server) {
            known.state = RegionState::FailedOpen;
        }
    });
}

/// Meta shows where regions are going before the orders leave: a master that takes over asks there. Those that are `shown` stay as they
/// are in meta, if they go where they were: a write for each would be a time in which it is open nowhere.
fn write_opening(core: &MasterState, orders: &[Order], shown: &[RegionInfo]) -> Result<()> {
    let is_news = |order: &&Order| {
        let tables = core.tables.read();
        let known = tables.region(order.region.encoded_name()).map(|(_, _, known)| known);
        known.is_none_or(|known| {
            let is_shown = known.state == RegionState::Open || shown.contains(&order.region);
            !is_shown || known.server.as_ref() != Some(&order.server)
        })
    };
    let (news, known): (Vec<&Order>, Vec<&Order>) = orders.iter().partition(is_news);
    for Order { region, .. } in known.into_iter().filter(|order| shown.contains(&order.region)) {
        core.update_region(region, |known| known.state = RegionState::Opening);
    }
    for orders in news.chunks(META_ROWS_MAX) {
        core.meta_put(|timestamp| {
            let row = |order: &&Order| meta::opening_region(&order.region, &order.server, timestamp);
            orders.iter().flat_map(row).collect()
        })?;
        for Order { region, server, .. } in orders {
            core.update_region(region, |known| {
                (known.state, known.server) = (RegionState::Opening, Some(server.clone()));
            });
        }
    }
    Ok(())
}

/// Opens a region. A server in another process lets it serve only when meta says so.
fn open_at(core: &MasterState, order: &Order) -> Result<u64> {
    let Order { region, table, server } = order;
    let died = || Error::new(ErrorKind::Busy, format!("{server} has just died"));
    let api = core.cluster.servers.get(server).ok_or_else(died)?;
    core.members.check(&core.cluster, server)?;
    let request = OpenRegionRequest::new(region, table);
    let announce = |seq: u64| {
        if core.cluster.servers.is_one_process() {
            return Ok(()); // written for many regions at once
        }
        if is_open_at(core, region, server, seq) {
            return Ok(()); // it was open all the time
        }
        check_not_elsewhere(core, region, server)?;
        let (barrier, seq) = (barrier_of(table, region, seq), growing(core, region, seq));
        let (shown_region, shown_at) = (region.clone(), server.clone());
        let cells = move |timestamp| open_cells(&shown_region, &shown_at, (seq, barrier), timestamp);
        let shown = core.meta_put_with_others(cells);
        shown.map_err(meta_region::not_refused)?;
        core.update_region(region, |known| {
            assert!(
                known.open_seq < seq,
                "{region} is opened with {seq} after {}: clients would keep to the place before",
                known.open_seq
            );
            (known.state, known.open_seq, known.server) = (RegionState::Open, seq, Some(server.clone()));
        });
        Ok(())
    };
    let opened = api.open_region(&request, &announce)?;
    core.timelines.region_opened(region);
    Ok(opened.open_seq_num)
}

/// Whether a region is open at a live server, as far as the master knows.
pub(crate) fn is_open(core: &MasterState, region: &RegionInfo) -> bool {
    let is_there = matches!(core.place_of(region), Place::At(_));
    let tables = core.tables.read();
    let known = tables.region(region.encoded_name());
    is_there && known.is_some_and(|(_, _, known)| known.state == RegionState::Open)
}

/// `Busy` if the region is open, or to be opened, at another server by now: then that one has it, and this one closes it.
fn check_not_elsewhere(core: &MasterState, region: &RegionInfo, server: &ServerName) -> Result<()> {
    let tables = core.tables.read();
    let known = tables.region(region.encoded_name()).map(|(_, _, known)| known);
    let goes = known.filter(|known| matches!(known.state, RegionState::Opening | RegionState::Open));
    match goes.and_then(|known| known.server.as_ref()).filter(|other| *other != server) {
        Some(other) => {
            let text = format!("{region} is not to be open at {server}: it goes to {other}");
            Err(Error::new(ErrorKind::Busy, text))
        }
        None => Ok(()),
    }
}

/// Whether meta shows this opening of a region.
pub(crate) fn is_open_at(core: &MasterState, region: &RegionInfo, server: &ServerName, seq: u64) -> bool {
    let tables = core.tables.read();
    tables.region(region.encoded_name()).is_some_and(|(_, _, known)| {
        known.state == RegionState::Open && known.server.as_ref() == Some(server) && known.open_seq >= seq
    })
}

/// Writes what became of regions, and a table's new state, to meta and then to memory.
fn write_opened(
    core: &MasterState,
    mut opened: Vec<Opened>,
    failed: &[RegionInfo],
    state: Option<(&TableName, TableState)>,
) -> Result<()> {
    opened.retain(|one| !one.is_written);
    for one in &mut opened {
        one.seq = growing(core, &one.region, one.seq);
    }
    if !(opened.is_empty() && failed.is_empty() && state.is_none()) {
        core.meta_put(|timestamp| {
            let rows = opened.iter().flat_map(|one| one.cells(timestamp));
            let rows = rows.chain(failed.iter().flat_map(|region| meta::failed_region(region, timestamp)));
            rows.chain(state.map(|(table, state)| meta::table_state(table, state, timestamp))).collect()
        })?;
    }
    if let Some((table, state)) = state {
        core.update_table(table, |entry| entry.state = state);
    }
    for one in opened {
        core.update_table(one.region.table(), |entry| {
            let known = if one.region.is_secondary() { &mut entry.replicas } else { &mut entry.regions };
            let region = known.entry(one.region.clone()).or_insert_with(RegionEntry::closed);
            (region.state, region.open_seq, region.server) = (RegionState::Open, one.seq, Some(one.server));
        });
    }
    for region in failed {
        mark(core, region.table(), std::slice::from_ref(region), RegionState::FailedOpen);
    }
    Ok(())
}

/// Writes what became of regions, those aside that may open later. Returns those that will never open as they are.
pub(crate) fn write_attempts(core: &MasterState, attempts: Attempts) -> Result<Vec<(RegionInfo, Error)>> {
    let failed: Vec<_> = attempts.failed.iter().map(|(region, _)| region.clone()).collect();
    write_opened(core, attempts.opened, &failed, None)?;
    Ok(attempts.failed)
}

/// Shows regions in transition; in memory alone, because a restart begins every transition anew.
pub(crate) fn mark(core: &MasterState, table: &TableName, regions: &[RegionInfo], state: RegionState) {
    core.update_table(table, |entry| {
        for region in regions {
            if let Some(known) = entry.known_mut(region) {
                known.state = state;
            }
        }
    });
}

/// Clients drop a location whose number is not above the one they know: the number grows with every open.
fn growing(core: &MasterState, region: &RegionInfo, seq: u64) -> u64 {
    let tables = core.tables.read();
    let known = tables.by_name.get(region.table()).and_then(|entry| entry.known(region));
    seq.max(known.map_or(0, |entry| entry.open_seq).saturating_add(1))
}

/// Flushes the regions that are open and passes over the others: a region that is not open has nothing in memory. `Busy` for one whose
/// server has died, until it is open again: what was in memory is in WALs, or on its way from there. (HBase: `FlushRegionProcedure` waits
/// for the procedure that opens the region.)
pub(crate) fn flush(core: &MasterState, regions: &[RegionInfo], families: &[Bytes]) -> Result<()> {
    let (shared, families) = (core.shared(), families.to_vec());
    parallel::for_each(core.settings.region_threads, regions.to_vec(), move |region| {
        let request = FlushRegionRequest { region, families: families.clone() };
        let flushed = shared.server_of(&request.region).and_then(|server| server.flush_region(&request));
        match flushed {
            Err(error) if error.kind() == ErrorKind::Moved => {
                check_flushed(&shared, &request.region)?;
                info!(region = %request.region, "a region that is not open is not flushed");
                Ok(())
            }
            flushed => flushed.map_err(|error| error.context(&request.region)),
        }
    })?;
    Ok(())
}

/// `Busy` if a region that its server does not have, as that has said, is not in its files as a whole: a server has died with it, also
/// since it was asked, or is about to open it.
fn check_flushed(core: &MasterState, region: &RegionInfo) -> Result<()> {
    let text = match core.place_of(region) {
        Place::Recovering(server) => return Err(recovering(region, &server)),
        Place::Nowhere(Some(server)) if !died(core, std::slice::from_ref(region)).is_empty() => {
            format!("{region} waits until it is opened again: {server} has died with it")
        }
        Place::At(server) if is_opening(core, region) => format!("{region} is being opened at {server}"),
        Place::Nowhere(_) | Place::At(_) => return Ok(()),
    };
    Err(Error::new(ErrorKind::Busy, text))
}
