//! What HBase's `backup` tool needs of a region server (HBase: `BackupObserver`, `LogRollBackupSubprocedure`).
//!
//! WALs have no cells of a bulk load. So its files are noted in `backup:system_bulk`, from where the next incremental backup
//! copies them. They are noted before they become part of the region: a crash in between leaves a note of a file that is not
//! there, which the tool passes over.
//!
//! HBase's master has each server start new WALs before a backup, and each notes its last complete one in `backup:system`. A
//! master of Halcyon does that for its servers.

use std::path::PathBuf;
use std::sync::Arc;

use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_contract::{
    BACKUP_ROLLS_COUNT, BackupBooks, Backups, BulkLoadState, bulk_load_cells, last_wal_number, log_roll_cell,
    noted_log_roll,
};
use halcyon_schema::{RegionInfo, TableName, layout};

use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;
use crate::regions::rows;

/// The only server of a cluster has all regions of the books.
struct OwnBooks<'a>(&'a RegionServer);

impl OwnBooks<'_> {
    fn regions(&self, table: &TableName) -> Vec<Arc<OnlineRegion>> {
        let online = self.0.regions.online().into_iter();
        online.filter(|online| online.region.info().table() == table).collect()
    }
}

impl BackupBooks for OwnBooks<'_> {
    fn rows(&self, table: &TableName) -> Result<Option<Vec<Vec<Cell>>>> {
        let server = self.0;
        if !server.env.fs.exists(&layout::table_dir(&server.resources.root, table))? {
            return Ok(None);
        }
        let regions = self.regions(table);
        if regions.is_empty() {
            return Err(not_here(table));
        }
        let mut all = Vec::new();
        for online in regions {
            all.extend(rows::scan_all(&online.region)?);
        }
        Ok(Some(all))
    }

    fn put(&self, table: &TableName, cells: Vec<Cell>) -> Result<()> {
        let mut left = cells;
        for online in self.regions(table) {
            let (here, elsewhere): (Vec<Cell>, Vec<Cell>) =
                left.into_iter().partition(|cell| online.region.info().contains_row(cell.row()));
            left = elsewhere;
            if !here.is_empty() {
                rows::put(&online.region, &self.0.logs, here)?;
                self.0.after_write(&online);
            }
        }
        if left.is_empty() { Ok(()) } else { Err(not_here(table)) }
    }
}

fn not_here(table: &TableName) -> Error {
    Error::new(ErrorKind::Busy, format!("{table} is not open: it is needed for backups"))
}

/// Whether bulk loads of a table are to be noted: it has a full backup, or gets one. *Blocking*.
pub(crate) fn is_noted(server: &RegionServer, table: &TableName) -> Result<bool> {
    let tables = &server.settings.backup_tables;
    if !server.settings.backup_enabled || table.is_system() || tables.contains(table) {
        return Ok(false);
    }
    let Some(rows) = books(server, |books| books.rows(&tables.system))? else { return Ok(false) };
    Ok(Backups::of_rows(&rows)?.full_tables().contains(table))
}

/// Notes files by family and their paths in the region. *Blocking*.
pub(crate) fn note(
    server: &RegionServer,
    region: &RegionInfo,
    files: &[(String, PathBuf)],
    state: BulkLoadState,
) -> Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let authority = server.env.fs.address().unwrap_or_else(|| "file:".to_string());
    let cells = |(family, path): &(String, PathBuf)| {
        let path = format!("{authority}{}", path.display());
        bulk_load_cells(region.table(), region.encoded_name(), family.as_bytes(), &path, state)
    };
    let cells = files.iter().flat_map(cells).collect();
    books(server, |books| books.put(&server.settings.backup_tables.bulk, cells))
}

/// Starts new WALs for the backups in a directory, and notes the last one before them. *Blocking*.
pub(crate) fn roll_logs(server: &RegionServer, backup_root: &str) -> Result<()> {
    let number = server.last_wal_number()?;
    for _ in 0..BACKUP_ROLLS_COUNT {
        server.logs.roll()?;
    }
    let Some(number) = number else { return Ok(()) };
    let books_name = &server.settings.backup_tables.system;
    let rows = books(server, |books| books.rows(books_name))?;
    let rows = rows.ok_or_else(|| Error::invalid(format!("there is no table {books_name}")))?;
    if noted_log_roll(&rows, backup_root, &server.name).is_some_and(|noted| noted > number) {
        return Ok(()); // this order is older than the one that noted that
    }
    tracing::info!(number, backup_root, "WALs were rolled for a backup");
    books(server, |books| books.put(books_name, vec![log_roll_cell(backup_root, &server.name, number)]))
}

fn books<T>(server: &RegionServer, ask: impl FnOnce(&dyn BackupBooks) -> Result<T>) -> Result<T> {
    match server.backup_books() {
        Some(books) => ask(&**books),
        None => ask(&OwnBooks(server)),
    }
}

impl RegionServer {
    /// The highest number of the WALs of this server; not of those of meta.
    fn last_wal_number(&self) -> Result<Option<i64>> {
        let (env, dir) = self.wal_place();
        let files = env.fs.list(dir)?;
        Ok(last_wal_number(files.iter().map(|file| &*file.name)))
    }
}
