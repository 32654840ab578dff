//! What reads have shown to be gone, and what may bring it back.
//!
//! A cell that may be gone is there or not, and no read decides that anew. A read that would have shown the put and did not has shown that
//! it is gone; so has one that returns what a marker would have hidden. From then on the oracle goes without the cell: an engine that has it
//! again is wrong. It has perhaps opened a file that was compacted away.
//!
//! ```text
//! may be gone --(a read that would show it does not)--> gone
//!      ^                                                  |
//!      +------(a crash, if the WAL may still have it)-----+
//! ```
//!
//! # What may come back
//! Only the WAL brings a cell back. HBase's in-memory compaction leaves cells out of the memstore (`MemStoreCompactor` with `EAGER`), the WAL
//! keeps them, and after a crash `HRegion.replayRecoveredEdits` writes all edits whose sequence ids are above that of the store's files. So
//! a cell may come back
//! - in a crash, and not in an orderly close, which flushes and leaves nothing to be replayed;
//! - once: the region flushes what it has replayed before it opens (`HRegion.replayRecoveredEditsIfAny`), and removes the edits;
//! - until a flush, whose file has the sequence id up to which nothing is replayed. HBase writes that file even if it finds no cell worth
//!   writing (`DefaultStoreFlusher.flushSnapshot` looks at the cells of the memstore, not at those that are left).
//!
//! Not so what a compaction has left out: its inputs are in files. A file that was compacted away is not opened again after a crash either.
//! The new one names it (`COMPACTION_EVENT_KEY`), or the marker in the WAL does (`HRegion.replayWALCompactionMarker`).
//!
//! # What proves nothing
//! - A read behind whose limit of rows or cells the cell lies.
//! - A read with an offset: it may lie among what was passed over.
//! - About markers a read with a time range: HBase may leave out a file by its times.
//! - A raw scan about what is older than the family's TTL: HBase leaves out segments and files of which all is (`StoreScanner.selectScannersFrom`).
//!   A segment is looked at again when it gets a younger cell.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use halcyon_cell::Cell;

use super::fate::Choices;
use super::{ByStore, Family, Oracle, Stored, read, same_bytes, show};
use crate::{FamilyOptions, OracleScan, TimeRange};

impl Oracle {
    /// All that was written is in files: after a flush of everything, and after an orderly close.
    pub fn flushed(&mut self) {
        for family in self.families.values_mut() {
            for stored in family.rows.values_mut().chain(family.gone.values_mut()).flatten() {
                stored.may_be_replayed = false;
            }
        }
    }

    /// The engine has crashed and was opened again.
    pub fn crashed(&mut self) {
        for family in self.families.values_mut() {
            family.bring_back(|gone| gone.may_be_replayed);
        }
        self.flushed();
        self.update_fates();
    }

    /// Learns from a right answer.
    pub(super) fn note_gone(&mut self, scan: &OracleScan, found: &[Vec<Cell>]) {
        if scan.store_offset > 0 {
            return;
        }
        let by_store = ByStore::new(found);
        for (name, family) in self.families.iter_mut().filter(|(name, _)| scan.includes_family(name)) {
            let has_range = scan.time_range_of(name) != TimeRange::ALL;
            for (row_name, row) in &mut family.rows {
                if !scan.includes_row(row_name) || !is_reached(row_name, scan, found) {
                    continue;
                }
                let gone =
                    shown_gone(row, &family.options, scan, by_store.of(row, &family.options), self.now_ms);
                let mut at = 0;
                row.retain(|stored| {
                    let is_gone =
                        gone[at] && !(has_range && stored.cell.cell_type().is_delete() && !scan.raw);
                    at += 1;
                    if is_gone {
                        family.gone.entry(row_name.clone()).or_default().push(stored.clone());
                    }
                    !is_gone
                });
            }
            family.rows.retain(|_, row| !row.is_empty());
        }
    }

    /// Which cells that were gone explain an answer that is wrong without them; empty if none do.
    pub(super) fn came_back(&self, scan: &OracleScan, found: &[Vec<Cell>]) -> String {
        let mut with_all = self.clone();
        with_all.families.values_mut().for_each(|family| family.bring_back(|_| true));
        if !same_bytes(&with_all.expected(scan, found), found) {
            return String::new();
        }
        let all = self.families.iter().filter(|(name, _)| scan.includes_family(name));
        let in_rows = all.flat_map(|(_, family)| &family.gone).filter(|(row, _)| scan.includes_row(row));
        let gone: Vec<Cell> = in_rows.flat_map(|(_, row)| row).map(|stored| stored.cell.clone()).collect();
        let is_found = |cell: &&Cell| found.iter().flatten().any(|it| it.bytes() == cell.bytes());
        let shown: Vec<Cell> = gone.iter().filter(is_found).cloned().collect();
        let markers = || gone.iter().filter(|cell| cell.cell_type().is_delete()).cloned().collect();
        let named = if shown.is_empty() { markers() } else { shown };
        format!("an earlier read has shown that it was gone, and it came back:\n{}", show(&[named]))
    }
}

impl Family {
    /// Those of the cells that are gone may be there again.
    fn bring_back(&mut self, is_meant: impl Fn(&Stored) -> bool) {
        let gone = std::mem::take(&mut self.gone);
        for (name, row) in gone {
            let (back, gone): (Vec<Stored>, Vec<Stored>) = row.into_iter().partition(&is_meant);
            back.into_iter().for_each(|stored| self.store(stored));
            if !gone.is_empty() {
                self.gone.insert(name, gone);
            }
        }
    }
}

/// Whether an answer with a limit of rows says anything about this one.
fn is_reached(row: &[u8], scan: &OracleScan, found: &[Vec<Cell>]) -> bool {
    let rows: BTreeSet<&[u8]> = found.iter().flatten().map(Cell::row).collect();
    let last = if scan.reversed { rows.first() } else { rows.last() };
    match (scan.limit, last) {
        (Some(limit), Some(last)) if rows.len() >= limit => {
            if scan.reversed {
                row >= *last
            } else {
                row <= *last
            }
        }
        (Some(0), None) => false,
        _ => true,
    }
}

/// For each cell of one row and family, whether no choice that explains the answer has it.
///
/// One put at a time is enough: those that are not shown change nothing about one another.
fn shown_gone(
    row: &[Stored],
    options: &FamilyOptions,
    scan: &OracleScan,
    found: &[&[u8]],
    now_ms: i64,
) -> Vec<bool> {
    let choices = Choices::new(row, scan.raw, found);
    let oldest = options.oldest_unexpired(now_ms);
    let is_left_out = |cell: &Cell| scan.raw && options.min_versions == 0 && cell.timestamp() < oldest;
    let mut gone: Vec<bool> = row
        .iter()
        .map(|stored| stored.may_be_gone && !choices.has_more && !is_left_out(&stored.cell))
        .collect();
    let is_right = |choice: u32, more: Option<usize>| {
        choices.is_found(&read::read_store(&choices.cells(choice, more), options, scan, now_ms))
    };
    for choice in choices.all() {
        if !gone.contains(&true) {
            break;
        }
        if !is_right(choice, None) {
            continue;
        }
        for (at, is_gone) in gone.iter_mut().enumerate().filter(|(_, is_gone)| **is_gone) {
            let may_be_there =
                choices.has(choice, at) || (!choices.is_unknown(at) && is_right(choice, Some(at)));
            *is_gone = !may_be_there;
        }
    }
    gone
}
