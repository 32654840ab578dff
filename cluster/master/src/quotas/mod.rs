//! Quotas: what is in `hbase:quota`, who changes it, and which tables exceed their space (HBase: `MasterQuotaManager`,
//! `QuotaObserverChore`, `NamespaceAuditor`).
//!
//! ```text
//! SetQuota -> merge.rs -> hbase:quota -> region servers read it (QuotaEnforcement::reload, QuotaSource)
//! sizes of regions -> observer.rs -> column u:p of hbase:quota -> region servers; policy DISABLE: the table is disabled
//! sizes of snapshots -> snapshots.rs -> columns u:ss; the observer adds them
//! new tables, splits -> limits.rs: tables and regions of a namespace
//! ```
//!
//! All of this is off unless `hbase.quota.enabled` is set. Then the table is made at the start of a master.

mod limits;
mod merge;
mod numbers;
mod observer;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};

use halcyon_cell::{Cell, CellType, Error, ROW_LEN_MAX, Result};
use halcyon_contract::{
    QUOTA_SETTINGS_FAMILY, QUOTA_SNAPSHOT_QUALIFIER, QUOTA_USAGE_FAMILY, QuotaSource, QuotaSubject,
    QuotaTable, QuotaView, exceed_throttle_cell, quota_table_name, quotas_to_value,
};
use halcyon_env::Mutex;
use halcyon_proto::pb;
use halcyon_rpc::{CallTimes, RpcError};
use halcyon_schema::{RegionInfo, TableName};
use tracing::{info, warn};

use crate::placement::soon;
use crate::state::{MasterState, RegionState, TableState};
use crate::switches::Switch;
use crate::{Master, errors};

pub(crate) use limits::{check_namespace, check_new_regions, check_new_table, check_split};
pub use numbers::{QuotaNumbers, SpaceUse};
pub(crate) use observer::{Observations, Observer};

type Answer<T> = std::result::Result<T, RpcError>;

/// What the master has of quotas in memory.
#[derive(Default)]
pub(crate) struct QuotaState {
    /// Held while the table is changed.
    changing: Mutex<()>,
    pub(crate) observations: halcyon_env::Mutex<Observations>,
    /// Tables that a space quota had disabled which is gone.
    to_enable: halcyon_env::Mutex<BTreeSet<TableName>>,
    observer_times: CallTimes,
    snapshot_times: CallTimes,
}

impl QuotaState {
    pub(crate) fn numbers(&self) -> QuotaNumbers {
        let observations = self.observations.lock();
        QuotaNumbers {
            quotas_count: observations.quotas_count,
            regions_count: observations.regions_count(),
            exceeding_tables_count: numbers::count_exceeded(&observations.tables),
            exceeding_namespaces_count: numbers::count_exceeded(&observations.namespaces),
            tables: numbers::space_use(&observations.tables),
            namespaces: numbers::space_use(&observations.namespaces),
            observer_times: self.observer_times.snapshot(),
            snapshot_times: self.snapshot_times.snapshot(),
        }
    }
}

/// Refuses calls while quotas are off, as HBase does (`MasterQuotaManager.checkQuotaSupport`).
fn check_enabled(core: &MasterState) -> Answer<()> {
    if core.settings.quotas.enabled {
        return Ok(());
    }
    Err(RpcError::do_not_retry("java.lang.UnsupportedOperationException: quota support disabled"))
}

/// As [`check_enabled`]; clients try again while the first start of a master with quotas makes the table.
fn check_ready(core: &MasterState) -> Answer<()> {
    check_enabled(core)?;
    if exists(core) {
        return Ok(());
    }
    Err(RpcError::please_hold("The table hbase:quota is being made, please retry later."))
}

/// Changes the quotas of one subject. *Blocking*.
pub(crate) fn set(core: &MasterState, request: &pb::SetQuotaRequest) -> Answer<pb::SetQuotaResponse> {
    check_ready(core)?;
    let subject = merge::subject(request)?;
    check_length(&subject)?;
    let changing = core.quotas.changing.lock();
    let table = read(core).map_err(|error| errors::from_error(&error))?;
    let old = table.quotas.get(&subject);
    let new = if request.remove_all() { None } else { merge::merge(old, request, &subject)? };
    let cells = change_cells(core, &table, &subject, new.as_ref());
    write(core, cells).map_err(|error| errors::from_error(&error))?;
    drop(changing);
    info!(?subject, removed = new.is_none(), "a quota was changed");
    let has_space = |quotas: Option<&pb::Quotas>| quotas.is_some_and(|quotas| quotas.space.is_some());
    if has_space(old) && !has_space(new.as_ref()) {
        observer::release(core, &table, &subject);
    }
    reload(core);
    Ok(pb::SetQuotaResponse {})
}

/// Names of a client become a row of `hbase:quota` and a column of it.
fn check_length(subject: &QuotaSubject) -> Answer<()> {
    let (row, qualifier) = (subject.row(), subject.qualifier());
    let longest = row.len().max(qualifier.len());
    if longest <= ROW_LEN_MAX {
        return Ok(());
    }
    Err(RpcError::do_not_retry(format!(
        "A quota is kept under the names of what it is for, and {longest} bytes are over {ROW_LEN_MAX}"
    )))
}

/// A subject without quotas loses its row, or its column if others are in that row. What a table is said to use goes with
/// the space quota that it was for.
fn change_cells(
    core: &MasterState,
    table: &QuotaTable,
    subject: &QuotaSubject,
    new: Option<&pb::Quotas>,
) -> Vec<Cell> {
    let timestamp = core.next_meta_timestamp();
    let (row, qualifier) = (subject.row(), subject.qualifier());
    let mut cells = Vec::new();
    match new {
        Some(quotas) => {
            let value = quotas_to_value(quotas);
            cells.push(Cell::put(&row, QUOTA_SETTINGS_FAMILY, &qualifier, timestamp, &value));
        }
        // HBase deletes the whole row of a user who loses his own quota, with those of his on tables.
        None if matches!(subject, QuotaSubject::User(_)) => {
            cells.push(delete_family(&row, QUOTA_SETTINGS_FAMILY, timestamp));
        }
        None => cells.push(delete_column(&row, QUOTA_SETTINGS_FAMILY, &qualifier, timestamp)),
    }
    if new.is_none_or(|quotas| quotas.space.is_none()) {
        let released = observer::without_quota(table, subject);
        cells.extend(released.iter().map(|table| delete_snapshot(table, timestamp)));
    }
    cells
}

fn delete_snapshot(table: &TableName, timestamp: i64) -> Cell {
    let row = QuotaSubject::Table(table.clone()).row();
    delete_column(&row, QUOTA_USAGE_FAMILY, QUOTA_SNAPSHOT_QUALIFIER, timestamp)
}

fn delete_column(row: &[u8], family: &[u8], qualifier: &[u8], timestamp: i64) -> Cell {
    Cell::build(row, family, qualifier, timestamp, CellType::DeleteColumn, b"", b"", 0)
}

fn delete_family(row: &[u8], family: &[u8], timestamp: i64) -> Cell {
    Cell::build(row, family, b"", timestamp, CellType::DeleteFamily, b"", b"", 0)
}

/// Takes a deleted table's or namespace's quotas away. *Blocking*.
pub(crate) fn forget(core: &MasterState, subject: &QuotaSubject) -> Result<()> {
    if !core.settings.quotas.enabled || !core.settings.quotas.removed_with_table || !exists(core) {
        return Ok(());
    }
    if let QuotaSubject::Table(table) = subject {
        core.quotas.observations.lock().forget_table(table);
    }
    let _changing = core.quotas.changing.lock();
    let table = read(core)?;
    let has_snapshot = matches!(subject, QuotaSubject::Table(name) if table.snapshots.contains_key(name));
    if !table.quotas.contains_key(subject) && !has_snapshot {
        return Ok(());
    }
    let timestamp = core.next_meta_timestamp();
    let families = [QUOTA_SETTINGS_FAMILY, QUOTA_USAGE_FAMILY];
    write(core, families.map(|family| delete_family(&subject.row(), family, timestamp)).into())?;
    reload(core);
    Ok(())
}

/// The answer is how it was before. *Blocking*.
pub(crate) fn switch_throttle(core: &MasterState, on: bool) -> Answer<bool> {
    if !core.settings.quotas.enabled {
        return Ok(false);
    }
    let was_on = core.set_switch(Switch::RpcThrottle, on).map_err(|error| errors::from_error(&error))?;
    if was_on != on {
        if let Err(error) = core.cluster.coordination.publish_throttle(on) {
            warn!(%error, "the znode that switches throttling could not be written");
        }
        reload(core);
    }
    Ok(was_on)
}

pub(crate) fn is_throttling(core: &MasterState) -> bool {
    core.settings.quotas.enabled && core.switches.lock().get(Switch::RpcThrottle)
}

/// Lets users exceed their throttles while their region server has room, or no more. The answer is how it was before.
/// *Blocking*.
pub(crate) fn switch_exceeding(core: &MasterState, on: bool) -> Answer<bool> {
    if !core.settings.quotas.enabled {
        return Ok(false);
    }
    check_ready(core)?;
    let changing = core.quotas.changing.lock();
    let table = read(core).map_err(|error| errors::from_error(&error))?;
    if table.exceed_throttle == on {
        return Ok(on);
    }
    if on {
        merge::check_exceeding(&table)?;
    }
    let cell = exceed_throttle_cell(core.next_meta_timestamp(), on);
    write(core, vec![cell]).map_err(|error| errors::from_error(&error))?;
    drop(changing);
    reload(core);
    Ok(!on)
}

fn reload(core: &MasterState) {
    if let Some(quotas) = &core.cluster.quotas {
        quotas.reload();
    }
}

fn exists(core: &MasterState) -> bool {
    core.tables.read().by_name.contains_key(&quota_table_name())
}

fn table_regions(core: &MasterState) -> Result<Vec<RegionInfo>> {
    Ok(core.locked_table(&quota_table_name())?.live_regions())
}

/// Reads `hbase:quota`. *Blocking*.
fn read(core: &MasterState) -> Result<QuotaTable> {
    let mut rows = Vec::new();
    for region in table_regions(core)? {
        rows.extend(soon(&*core.env.clock, || {
            let at = core.server_name_of(&region)?;
            core.cluster.system_tables.scan_rows(&at, &region)
        })?);
    }
    Ok(QuotaTable::of_rows(&rows))
}

/// Writes rows of `hbase:quota`. *Blocking*.
fn write(core: &MasterState, cells: Vec<Cell>) -> Result<()> {
    let mut left = cells;
    for region in table_regions(core)? {
        let (here, elsewhere): (Vec<Cell>, Vec<Cell>) =
            left.into_iter().partition(|cell| region.contains_row(cell.row()));
        left = elsewhere;
        if !here.is_empty() {
            soon(&*core.env.clock, || {
                let at = core.server_name_of(&region)?;
                core.cluster.system_tables.put_rows(&at, &region, here.clone())
            })?;
        }
    }
    if left.is_empty() { Ok(()) } else { Err(Error::corrupt("hbase:quota has a hole")) }
}

impl QuotaSource for Master {
    fn quotas(&self) -> Result<QuotaView> {
        let core = &self.core;
        let table = if exists(core) { read(core)? } else { QuotaTable::default() };
        let mut open_regions = BTreeMap::new();
        for (name, entry) in &core.tables.read().by_name {
            let is_open = |region: &&RegionInfo| entry.regions[*region].state == RegionState::Open;
            open_regions.insert(name.clone(), entry.live_regions().iter().filter(is_open).count());
        }
        Ok(QuotaView {
            table,
            is_throttling: is_throttling(core),
            servers_count: core.cluster.servers.online().len(),
            open_regions,
        })
    }
}

/// What each table uses, in bytes of store files.
pub(crate) fn table_sizes(core: &MasterState) -> pb::GetSpaceQuotaRegionSizesResponse {
    let sizes = core.quotas.observations.lock().table_sizes();
    let size = |(table, size): (TableName, u64)| pb::get_space_quota_region_sizes_response::RegionSizes {
        table_name: Some(table.to_pb()),
        size: Some(size),
    };
    pb::GetSpaceQuotaRegionSizesResponse { sizes: sizes.into_iter().map(size).collect() }
}

/// What the master thinks of tables and namespaces with space quotas.
pub(crate) fn states(core: &MasterState) -> pb::GetQuotaStatesResponse {
    use pb::get_quota_states_response::{NamespaceQuotaSnapshot, TableQuotaSnapshot};
    let observations = core.quotas.observations.lock();
    let table_snapshots = observations.tables.iter().map(|(table, snapshot)| TableQuotaSnapshot {
        table_name: Some(table.to_pb()),
        snapshot: Some(*snapshot),
    });
    let ns_snapshots = observations.namespaces.iter().map(|(namespace, snapshot)| NamespaceQuotaSnapshot {
        namespace: Some(namespace.clone()),
        snapshot: Some(*snapshot),
    });
    pb::GetQuotaStatesResponse {
        table_snapshots: table_snapshots.collect(),
        ns_snapshots: ns_snapshots.collect(),
    }
}

fn state_of(core: &MasterState, table: &TableName) -> Option<TableState> {
    core.tables.read().by_name.get(table).map(|entry| entry.state)
}

/// Names by namespace.
fn tables_by_namespace(core: &MasterState) -> BTreeMap<String, BTreeSet<TableName>> {
    let mut by_namespace: BTreeMap<String, BTreeSet<TableName>> = BTreeMap::new();
    for table in core.tables.read().by_name.keys().filter(|table| !table.is_system()) {
        by_namespace.entry(table.namespace().to_string()).or_default().insert(table.clone());
    }
    by_namespace
}
