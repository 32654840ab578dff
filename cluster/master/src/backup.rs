//! What HBase's `backup` tool needs of a master (HBase: `LogRollMasterProcedureManager`, `BackupLogCleaner`, `BackupHFileCleaner`).
//!
//! ```text
//! rolllog-proc    every server starts new WALs; backup:system gets the number of the last complete one of each
//! oldWALs         a WAL stays until the newest backup of each directory has it
//! archive         a file of a bulk load stays until an incremental backup has it
//! ```
//!
//! Everything else the tool does by itself, as a client: snapshots, copies, its tables. All of this is off unless
//! `hbase.backup.enable` is set.

use std::collections::HashSet;

use halcyon_cell::{Cell, Error, Result};
use halcyon_contract::{
    BACKUP_ROLLS_COUNT, Backups, bulk_loaded_files, last_wal_number, log_roll_cell, needs_wal,
};
use halcyon_env::DirEntry;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{ServerName, TableName, layout};
use tracing::info;

use crate::descriptors::list;
use crate::errors;
use crate::placement::soon;
use crate::state::{MasterState, TableState};

/// The procedure of `ExecProcedure`.
pub(crate) const ROLL_SIGNATURE: &str = "rolllog-proc";
/// Rolls the WALs of all servers for the backups in the directory that the description names. *Blocking*.
pub(crate) fn roll_logs(
    core: &MasterState,
    description: &pb::ProcedureDescription,
) -> std::result::Result<(), RpcError> {
    let root = description.configuration.first().map(|pair| pair.value.as_str()).unwrap_or_default();
    roll(core, root).map_err(|error| errors::from_error(&error))
}

fn roll(core: &MasterState, backup_root: &str) -> Result<()> {
    let table = &core.settings.backup_tables.system;
    if !exists(core, table) {
        return Err(Error::invalid(format!("there is no table {table}, which HBase's backup tool makes")));
    }
    let mut cells = Vec::new();
    for name in core.cluster.servers.online() {
        // Of a server that dies meanwhile all WALs are split, and found in `oldWALs` by the tool.
        let Some(server) = core.cluster.servers.get(&name) else { continue };
        let Some(number) = last_number(core, &name)? else { continue };
        for _ in 0..BACKUP_ROLLS_COUNT {
            server.roll_wals()?;
        }
        info!(server = %name, number, backup_root, "WALs were rolled for a backup");
        cells.push(log_roll_cell(backup_root, &name, number));
    }
    write(core, table, cells)
}

/// The highest number of the WALs that a server has now; not of those of meta.
fn last_number(core: &MasterState, server: &ServerName) -> Result<Option<i64>> {
    let wals = &core.cluster.wals;
    let dir = layout::wals_dir(&wals.root).join(server.to_string());
    let files = list(&*wals.env.fs, &dir)?;
    Ok(last_wal_number(files.iter().map(|file| &*file.name)))
}

/// Names of WALs in `oldWALs` that an incremental backup is still to copy; all if that cannot be told. *Blocking*.
pub(crate) fn needed_wals(core: &MasterState, files: &[DirEntry]) -> Result<HashSet<String>> {
    if !core.settings.backup_enabled || files.is_empty() {
        return Ok(HashSet::new());
    }
    let boundaries = backups(core)?.boundaries();
    let needed = files.iter().filter(|file| needs_wal(&boundaries, &file.name));
    Ok(needed.map(|file| file.name.clone()).collect())
}

/// Names of archived files that an incremental backup is still to copy. *Blocking*.
pub(crate) fn needed_files(core: &MasterState) -> Result<HashSet<String>> {
    if !core.settings.backup_enabled {
        return Ok(HashSet::new());
    }
    Ok(bulk_loaded_files(&read(core, &core.settings.backup_tables.bulk)?))
}

fn backups(core: &MasterState) -> Result<Backups> {
    Backups::of_rows(&read(core, &core.settings.backup_tables.system)?)
}

fn exists(core: &MasterState, table: &TableName) -> bool {
    core.tables.read().by_name.contains_key(table)
}

/// All rows of a table; none if there is no such table. While it is disabled, as during a restore of the tool's own snapshot, nobody
/// knows what is in it.
fn read(core: &MasterState, table: &TableName) -> Result<Vec<Vec<Cell>>> {
    let regions = match core.tables.read().by_name.get(table) {
        None => return Ok(Vec::new()),
        Some(entry) if entry.state == TableState::Enabled => entry.live_regions(),
        Some(_) => return Err(Error::invalid(format!("{table} is not enabled"))),
    };
    let mut rows = Vec::new();
    for region in regions {
        rows.extend(soon(&*core.env.clock, || {
            let at = core.server_name_of(&region)?;
            core.cluster.system_tables.scan_rows(&at, &region)
        })?);
    }
    Ok(rows)
}

fn write(core: &MasterState, table: &TableName, cells: Vec<Cell>) -> Result<()> {
    let regions = core.locked_table(table)?.live_regions();
    let mut left = cells;
    for region in regions {
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
    if left.is_empty() { Ok(()) } else { Err(Error::corrupt(format!("{table} has a hole"))) }
}
