//! Bulk loads of tables that HBase's `backup` tool backs up (HBase: `BackupObserver`).
//!
//! WALs have no cells of a bulk load. So the files are noted in `backup:system_bulk`, from where the next incremental backup
//! copies them. They are noted before they become part of the region: a crash in between leaves a note of a file that is not
//! there, which the tool passes over.

use std::path::PathBuf;
use std::sync::Arc;

use halcyon_cell::{Cell, Error, ErrorKind, Result};
use halcyon_contract::{Backups, BulkLoadState, backup_bulk_table_name, backup_table_name, bulk_load_cells};
use halcyon_schema::{RegionInfo, TableName, layout};

use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;
use crate::regions::rows;

/// Whether bulk loads of a table are to be noted: it has a full backup. *Blocking*.
pub(super) fn is_noted(server: &RegionServer, table: &TableName) -> Result<bool> {
    if !server.settings.backup_enabled || table.is_system() || table.namespace() == "backup" {
        return Ok(false);
    }
    let books = backup_table_name();
    let dir = layout::table_dir(&server.resources.root, &books);
    if !server.env.fs.exists(&dir)? {
        return Ok(false);
    }
    let mut sessions = Vec::new();
    for online in regions(server, &books)? {
        sessions.extend(rows::scan_all(&online.region)?);
    }
    Ok(Backups::of_rows(&sessions)?.full_tables().contains(table))
}

/// Notes files by family and their paths in the region. *Blocking*.
pub(super) fn note(
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
    let mut left: Vec<Cell> = files.iter().flat_map(cells).collect();
    for online in regions(server, &backup_bulk_table_name())? {
        let (here, elsewhere): (Vec<Cell>, Vec<Cell>) =
            left.into_iter().partition(|cell| online.region.info().contains_row(cell.row()));
        left = elsewhere;
        if !here.is_empty() {
            rows::put(&online.region, &server.logs, here)?;
            server.after_write(&online);
        }
    }
    if left.is_empty() { Ok(()) } else { Err(not_here(&backup_bulk_table_name())) }
}

fn regions(server: &RegionServer, table: &TableName) -> Result<Vec<Arc<OnlineRegion>>> {
    let online = server.regions.online().into_iter();
    let regions: Vec<_> = online.filter(|online| online.region.info().table() == table).collect();
    if regions.is_empty() { Err(not_here(table)) } else { Ok(regions) }
}

fn not_here(table: &TableName) -> Error {
    let why = format!("a bulk load cannot be noted for backups: {table} is not open on this server");
    Error::new(ErrorKind::Busy, why)
}
