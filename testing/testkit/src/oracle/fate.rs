//! Which cells may be gone, and which are.
//!
//! A flush and a minor compaction see a part of a store's cells (a memstore, some files) and drop from it what a
//! read of that part would not show: versions over `VERSIONS`, older cells of equal keys, hidden and expired
//! cells. Most markers stay. Which parts there are and when they are merged is the engine's choice, so the oracle
//! takes a cell as *may be gone* from the moment at which there is any part that would lose it.
//!
//! With `NEW_VERSION_BEHAVIOR` parts keep everything: `new_version.rs`.
//!
//! A major compaction sees everything and drops the markers as well (HBase: `MajorCompactionScanQueryMatcher`).

use std::collections::BTreeSet;

use halcyon_cell::{Cell, CellType};

use super::read::{hides, is_cell_ttl_over};
use super::{Stored, new_version};
use crate::{FamilyOptions, KeepDeletedCells};

/// Markers whose presence is unknown double the cases to try; more than this many never came up.
const UNKNOWN_MARKERS_MAX: usize = 10;

/// Marks the cells of one row and family that a flush or minor compaction could drop now.
///
/// HBase leaves a column at the first put that is over the limit or hidden together with all that is older. So
/// markers that come behind such a put are lost as well, whatever they could still hide. Not so markers of the family: they
/// lie in the column without a name, and hide cells of other columns, which would come back.
pub(super) fn mark(row: &mut [Stored], options: &FamilyOptions, now_ms: i64) {
    let oldest = options.oldest_unexpired(now_ms);
    if options.new_version_behavior {
        // Everything is kept but files of which all has expired.
        for stored in row.iter_mut().filter(|_| options.min_versions == 0) {
            stored.may_be_gone |= stored.cell.timestamp() < oldest;
        }
        return;
    }
    let masks = compaction_masks(row, options, now_ms);
    for column in row.chunk_by_mut(|a, b| a.cell.qualifier() == b.cell.qualifier()) {
        let mut put_times = BTreeSet::new();
        let mut may_be_left = false;
        let mut before: Option<Cell> = None;
        for stored in column {
            let cell = &stored.cell;
            let is_expired = cell.timestamp() < oldest;
            may_be_left |= is_expired && options.min_versions == 0;
            let mut is_hidden = false;
            if !cell.cell_type().is_delete() {
                put_times.insert(cell.timestamp());
                may_be_left |= put_times.len() > options.versions_max
                    || (is_expired && put_times.len() > options.min_versions);
                for marker in masks.iter().filter(|marker| hides(&marker.cell, cell)) {
                    is_hidden = true;
                    may_be_left |=
                        matches!(marker.cell.cell_type(), CellType::DeleteFamily | CellType::DeleteColumn);
                }
            }
            let is_older_equal = before.as_ref().is_some_and(|it| it.get().key() == cell.get().key());
            let is_passed_over = match is_of_family(cell) {
                true => is_expired && options.min_versions == 0,
                false => may_be_left,
            };
            stored.may_be_gone |=
                is_passed_over || is_hidden || is_older_equal || is_cell_ttl_over(cell, now_ms);
            before = Some(cell.clone());
        }
    }
}

/// The markers by which compactions drop cells (`CompactionScanQueryMatcher.trackDelete`).
fn compaction_masks(row: &[Stored], options: &FamilyOptions, now_ms: i64) -> Vec<Stored> {
    let oldest = options.oldest_unexpired(now_ms);
    row.iter()
        .filter(|it| it.cell.cell_type().is_delete() && !is_cell_ttl_over(&it.cell, now_ms))
        .filter(|marker| match options.keep_deleted_cells {
            KeepDeletedCells::False => true,
            KeepDeletedCells::Ttl => marker.cell.timestamp() < oldest,
            KeepDeletedCells::True => false,
        })
        .cloned()
        .collect()
}

/// Whether the cell is a marker that hides cells of all columns.
pub(super) fn is_of_family(cell: &Cell) -> bool {
    matches!(cell.cell_type(), CellType::DeleteFamily | CellType::DeleteFamilyVersion)
}

/// The oldest timestamp of any put that is surely there: kept markers below it may have nothing left to hide.
pub(super) fn earliest_put<'a>(cells: impl Iterator<Item = &'a Stored>) -> i64 {
    cells
        .filter(|stored| !stored.may_be_gone && !stored.cell.cell_type().is_delete())
        .map(|stored| stored.cell.timestamp())
        .min()
        .unwrap_or(i64::MAX)
}

/// Removes from one row and family what a major compaction of all cells surely drops.
///
/// Versions are counted twice: all stored ones, and those that are surely there. A cell goes if it is over the
/// limit by the second count, and may be gone if it is by the first.
pub(super) fn major_compact(row: &mut Vec<Stored>, options: &FamilyOptions, now_ms: i64, earliest_put: i64) {
    if options.new_version_behavior {
        return new_version::major_compact(row, options, now_ms, earliest_put);
    }
    let oldest = options.oldest_unexpired(now_ms);
    let masks = compaction_masks(row, options, now_ms);
    let mut kept = Vec::new();
    for column in row.chunk_by(|a, b| a.cell.qualifier() == b.cell.qualifier()) {
        let (mut count, mut sure_count) = (0, 0);
        let mut last_put: Option<(i64, bool)> = None;
        for stored in column {
            let cell = &stored.cell;
            let is_expired = cell.timestamp() < oldest;
            if (is_expired && options.min_versions == 0) || is_cell_ttl_over(cell, now_ms) {
                continue;
            }
            let is_over =
                |count: usize| count > options.versions_max || (is_expired && count > options.min_versions);
            let mut stored = stored.clone();
            if cell.cell_type().is_delete() {
                let is_kept = match options.keep_deleted_cells {
                    KeepDeletedCells::False => false,
                    KeepDeletedCells::Ttl => !is_expired,
                    KeepDeletedCells::True => true,
                };
                if !is_kept || (is_over(sure_count) && !is_of_family(cell)) {
                    continue;
                }
                stored.may_be_gone |=
                    (is_over(count) && !is_of_family(cell)) || cell.timestamp() < earliest_put;
            } else {
                let mut hiding = masks.iter().filter(|marker| hides(&marker.cell, cell)).peekable();
                stored.may_be_gone |= hiding.peek().is_some();
                if hiding.any(|marker| !marker.may_be_gone) {
                    continue;
                }
                match last_put {
                    Some((timestamp, true)) if timestamp == cell.timestamp() => continue,
                    // The newer equal cell may be gone, and was counted as far as that goes.
                    Some((timestamp, false)) if timestamp == cell.timestamp() => {}
                    _ => count += 1,
                }
                if is_over(sure_count + 1) {
                    continue;
                }
                sure_count += usize::from(!stored.may_be_gone);
                stored.may_be_gone |= is_over(count);
                last_put = Some((cell.timestamp(), !stored.may_be_gone));
            }
            kept.push(stored);
        }
    }
    *row = kept;
}

/// Reads one row and family, with those of the unsure cells that fit what an engine has found.
pub(super) fn read_with_choices(
    row: &[Stored],
    raw: bool,
    found: &[&[u8]],
    read: impl Fn(&[&Cell]) -> Vec<Cell>,
) -> Vec<Cell> {
    let choices = Choices::new(row, raw, found);
    let mut first = None;
    for choice in choices.all() {
        let seen = read(&choices.cells(choice, None));
        if choices.is_found(&seen) {
            return seen;
        }
        first.get_or_insert(seen);
    }
    first.unwrap_or_default()
}

/// What may be there of one row and family when a read has found `found`.
///
/// An unsure put that is there and was not found changes nothing about the others: it was hidden, out of range,
/// or one too many. So it may be taken as gone, and one that was found is there. Unsure markers are tried both
/// ways, except in raw scans, which return them like puts.
pub(super) struct Choices<'a> {
    row: &'a [Stored],
    found: &'a [&'a [u8]],
    /// Indexes of the markers that are tried both ways.
    unknown: Vec<usize>,
    /// Whether there were more of them, which count as there.
    pub has_more: bool,
}

impl<'a> Choices<'a> {
    pub fn new(row: &'a [Stored], raw: bool, found: &'a [&'a [u8]]) -> Choices<'a> {
        let is_unknown = |at: &usize| row[*at].may_be_gone && !raw && row[*at].cell.cell_type().is_delete();
        let mut unknown: Vec<usize> = (0..row.len()).filter(is_unknown).collect();
        let has_more = unknown.len() > UNKNOWN_MARKERS_MAX;
        unknown.truncate(UNKNOWN_MARKERS_MAX);
        Choices { row, found, unknown, has_more }
    }

    /// A bit for each unknown marker; first that with all of them.
    pub fn all(&self) -> impl Iterator<Item = u32> + use<> {
        (0..1u32 << self.unknown.len()).rev()
    }

    /// Whether the choice has the cell at this index of the row.
    pub fn has(&self, choice: u32, at: usize) -> bool {
        let stored = &self.row[at];
        match self.unknown.iter().position(|unknown| *unknown == at) {
            Some(bit) => choice >> bit & 1 == 1,
            None if self.is_extra_marker(at) => true,
            None => !stored.may_be_gone || self.found.contains(&&stored.cell.bytes()[..]),
        }
    }

    /// The cells of the choice, and that at `more`.
    pub fn cells(&self, choice: u32, more: Option<usize>) -> Vec<&'a Cell> {
        let is_there = |at: &usize| more == Some(*at) || self.has(choice, *at);
        (0..self.row.len()).filter(is_there).map(|at| &self.row[at].cell).collect()
    }

    pub fn is_found(&self, seen: &[Cell]) -> bool {
        seen.iter().map(|cell| &cell.bytes()[..]).eq(self.found.iter().copied())
    }

    pub fn is_unknown(&self, at: usize) -> bool {
        self.unknown.contains(&at)
    }

    fn is_extra_marker(&self, at: usize) -> bool {
        self.has_more && self.row[at].cell.cell_type().is_delete()
    }
}
