//! The master's door to a region server in the same process.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use halcyon_cell::{Cell, Error, ErrorKind, LATEST_TIMESTAMP, Result};
use halcyon_master::{RegionServerDoor, RegionShape};
use halcyon_proto::pb;
use halcyon_region::{
    CompactionRequest, Durability, Mutation, MutationKind, Nonce, ReadMode, Region, Scan, ScanLimits,
    TimeRange,
};
use halcyon_schema::{META_ENCODED_NAME, RegionInfo, ServerName, TableDescriptor};
use std::sync::Arc;

use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;

impl RegionServerDoor for RegionServer {
    fn server_name(&self) -> ServerName {
        self.name.clone()
    }

    fn create_region_files(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<()> {
        RegionServer::create_region_files(self, region, table)
    }

    fn open_region(&self, region: &RegionInfo, table: &TableDescriptor) -> Result<u64> {
        RegionServer::open_region(self, region, table)
    }

    fn close_region(&self, encoded_name: &str, abort: bool) -> Result<()> {
        RegionServer::close_region(self, encoded_name, abort)
    }

    fn flush_region(&self, encoded_name: &str, families: &[Bytes]) -> Result<()> {
        RegionServer::flush_region(self, encoded_name, families).map(|_| ())
    }

    fn region_shape(&self, encoded_name: &str, find_row: bool) -> Result<RegionShape> {
        self.shape_by_name(encoded_name, find_row)
    }

    fn split_region_files(
        &self,
        table: &TableDescriptor,
        parent: &RegionInfo,
        daughters: &[RegionInfo; 2],
    ) -> Result<()> {
        self.split_files(table, parent, daughters)
    }

    fn merge_region_files(
        &self,
        table: &TableDescriptor,
        parents: &[RegionInfo],
        merged: &RegionInfo,
    ) -> Result<()> {
        self.merge_files(table, parents, merged)
    }

    fn copy_rows(&self, table: &TableDescriptor, region: &RegionInfo, from: &Path, to: &Path) -> Result<()> {
        self.copy_region_rows(table, region, from, to)
    }

    fn server_load(&self) -> pb::ServerLoad {
        RegionServer::server_load(self)
    }

    fn online_regions(&self) -> Vec<RegionInfo> {
        self.regions.online().iter().map(|online| online.region.info().clone()).collect()
    }

    fn meta_put(&self, cells: Vec<Cell>) -> Result<()> {
        self.put_rows(META_ENCODED_NAME, cells)
    }

    fn put_rows(&self, encoded_name: &str, cells: Vec<Cell>) -> Result<()> {
        let online = self.online_region(encoded_name)?;
        self.put_into(&online.region, cells)?;
        self.after_write(&online);
        Ok(())
    }

    fn meta_put_together(&self, cells: Vec<Cell>) -> Result<()> {
        let online = self.online_region(META_ENCODED_NAME)?;
        let rows: Vec<Mutation> = rows_of(cells).into_iter().flatten().collect();
        let outcome = online.region.mutate_rows(Vec::new(), rows, Nonce::default(), ReadMode::AnyDisk)?;
        self.logs.drive_now();
        outcome.ticket.wait()?;
        self.after_write(&online);
        Ok(())
    }

    fn meta_scan(&self, start_row: &[u8], stop_row: &[u8]) -> Result<Vec<Vec<Cell>>> {
        let online = self.online_region(META_ENCODED_NAME)?;
        let scan = Scan {
            start_row: Bytes::copy_from_slice(start_row),
            stop_row: Bytes::copy_from_slice(stop_row),
            families: [&b"info"[..], b"table"].map(|family| (Bytes::from_static(family), None)).into(),
            ..Scan::default()
        };
        rows_found(&online.region, scan)
    }

    fn scan_rows(&self, encoded_name: &str) -> Result<Vec<Vec<Cell>>> {
        rows_found(&self.online_region(encoded_name)?.region, Scan::default())
    }

    fn visit_region(
        &self,
        root: &Path,
        region: &RegionInfo,
        table: &TableDescriptor,
        visit: &mut dyn FnMut(Vec<Vec<Cell>>) -> Result<Vec<Cell>>,
    ) -> Result<()> {
        let region = self.open_apart(root, region, table)?;
        let visited = rows_found(&region, Scan::default()).and_then(|rows| {
            let cells = visit(rows)?;
            self.put_into(&region, cells)?;
            region.flush(None)?;
            let whole = CompactionRequest { major: true, user: true };
            region.compact(None, whole, &mut &AtomicBool::new(false))
        });
        region.close(visited.is_err())?;
        visited.map(|_| ())
    }
}

impl RegionServer {
    fn online_region(&self, encoded_name: &str) -> Result<Arc<OnlineRegion>> {
        let missing =
            || Error::new(ErrorKind::Moved, format!("{encoded_name} is not online on {}", self.name));
        self.regions.get(encoded_name).ok_or_else(missing)
    }

    /// Writes rows, durably.
    fn put_into(&self, region: &Arc<Region>, cells: Vec<Cell>) -> Result<()> {
        let mut tickets = Vec::new();
        for batch in rows_of(cells) {
            let reads = Region::needs_reads(&batch);
            debug_assert!(!reads, "system tables are written with plain deletes");
            let outcome = region.mutate(batch, true, Nonce::default(), ReadMode::AnyDisk)?;
            outcome.results.into_iter().try_for_each(|result| result.map(|_| ()))?;
            tickets.push(outcome.ticket);
        }
        self.logs.drive_now();
        tickets.into_iter().try_for_each(|ticket| ticket.wait())
    }
}

/// All rows that a scan finds.
fn rows_found(region: &Arc<Region>, scan: Scan) -> Result<Vec<Vec<Cell>>> {
    let mut scanner = region.scanner(scan, ReadMode::AnyDisk)?;
    let mut rows = Vec::new();
    loop {
        let mut row = Vec::new();
        let state = scanner.next(&mut ScanLimits::NONE.clone(), &mut row)?;
        if !row.is_empty() {
            rows.push(row);
        }
        if state == halcyon_region::NextState::Exhausted {
            region.note_scanned(rows.len() as u64 + 1, scanner.counts().rows_filtered);
            return Ok(rows);
        }
    }
}

/// One atomic batch for each row: its puts, and its deletes.
fn rows_of(cells: Vec<Cell>) -> Vec<Vec<Mutation>> {
    let mut rows: Vec<(Bytes, Vec<Mutation>)> = Vec::new();
    let mut places: BTreeMap<Bytes, usize> = BTreeMap::new();
    for cell in cells {
        let row = cell.bytes().slice_ref(cell.row());
        let kind = if cell.cell_type().is_delete() { MutationKind::Delete } else { MutationKind::Put };
        let at = *places.entry(row.clone()).or_insert_with(|| {
            rows.push((row.clone(), Vec::new()));
            rows.len() - 1
        });
        let mutations = &mut rows[at].1;
        match mutations.iter_mut().find(|mutation| mutation.kind == kind) {
            Some(mutation) => mutation.cells.push(cell),
            None => mutations.push(Mutation {
                kind,
                row,
                cells: vec![cell],
                timestamp: LATEST_TIMESTAMP,
                durability: Some(Durability::SyncWal),
                time_range: TimeRange::ALL,
                return_results: false,
                cell_ttl_ms: None,
            }),
        }
    }
    rows.into_iter().map(|(_, mutations)| mutations).collect()
}
