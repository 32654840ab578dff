//! Reads and durable writes of whole rows, for the server's own use of system tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, LATEST_TIMESTAMP, Result};
use halcyon_region::{
    Durability, Mutation, MutationKind, NextState, Nonce, ReadMode, Region, Scan, ScanLimits, TimeRange,
};

use crate::wal::logs::Logs;

/// Writes rows, durably. *Blocking*.
pub(crate) fn put(region: &Arc<Region>, logs: &Logs, cells: Vec<Cell>) -> Result<()> {
    let mut tickets = Vec::new();
    for batch in by_row(cells) {
        let reads = Region::needs_reads(&batch);
        debug_assert!(!reads, "system tables are written with plain deletes");
        let outcome = region.mutate(batch, true, Nonce::default(), ReadMode::AnyDisk)?;
        outcome.results.into_iter().try_for_each(|result| result.map(|_| ()))?;
        tickets.push(outcome.ticket);
    }
    logs.drive_now();
    tickets.into_iter().try_for_each(|ticket| ticket.wait())
}

/// As [`put`], but all rows become visible together and survive a crash together. *Blocking*.
pub(crate) fn put_together(region: &Arc<Region>, logs: &Logs, cells: Vec<Cell>) -> Result<()> {
    let rows: Vec<Mutation> = by_row(cells).into_iter().flatten().collect();
    let outcome = region.mutate_rows(Vec::new(), rows, Nonce::default(), ReadMode::AnyDisk)?;
    logs.drive_now();
    outcome.ticket.wait()
}

/// All rows of a region; of each cell the newest version. *Blocking*.
pub(crate) fn scan_all(region: &Arc<Region>) -> Result<Vec<Vec<Cell>>> {
    scan(region, Scan::default())
}

/// All rows that a scan finds. *Blocking*.
pub(crate) fn scan(region: &Arc<Region>, scan: Scan) -> Result<Vec<Vec<Cell>>> {
    let mut scanner = region.scanner(scan, ReadMode::AnyDisk)?;
    let mut rows = Vec::new();
    loop {
        let mut row = Vec::new();
        let state = scanner.next(&mut ScanLimits::NONE.clone(), &mut row)?;
        if !row.is_empty() {
            rows.push(row);
        }
        if state == NextState::Exhausted {
            region.note_scanned(rows.len() as u64 + 1, scanner.counts().rows_filtered, &[]);
            return Ok(rows);
        }
    }
}

/// One atomic batch for each row: its puts, and its deletes.
fn by_row(cells: Vec<Cell>) -> Vec<Vec<Mutation>> {
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
                cluster_ids: None,
            }),
        }
    }
    rows.into_iter().map(|(_, mutations)| mutations).collect()
}
