//! Families with `NEW_VERSION_BEHAVIOR`: the writes of a row are gone through in the order of their sequence ids, and
//! each takes effect at once and for good (HBASE-15968). What is there at the end is what is read.
//!
//! Of one sequence id puts come before markers. A marker hides what it hides when it comes; a put takes the place of
//! the one with its timestamp; and when there is one version too many, that with the smallest timestamp goes.

use std::collections::{BTreeMap, BTreeSet};

use halcyon_cell::Cell;

use super::Stored;
use super::fate::is_of_family;
use super::read::{hides, is_cell_ttl_over, markers_in_force};
use crate::{FamilyOptions, KeepDeletedCells, OracleScan};

/// Why a put is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By the marker with this index.
    Deleted(usize),
    /// By another put of its timestamp, or by newer timestamps than there is room for.
    PushedOut,
}

/// Goes through the writes of one column. Returns what became of each put; `None`: it is there.
fn ends(puts: &[&Cell], markers: &[&Cell], versions_max: usize) -> Vec<Option<End>> {
    let of_puts = puts.iter().enumerate().map(|(at, put)| (put.seq(), false, at));
    let of_markers = markers.iter().enumerate().map(|(at, marker)| (marker.seq(), true, at));
    let in_order: BTreeSet<(u64, bool, usize)> = of_puts.chain(of_markers).collect();
    let mut ends = vec![None; puts.len()];
    let mut there: BTreeMap<i64, usize> = BTreeMap::new();
    for (_, is_marker, at) in in_order {
        if is_marker {
            there.retain(|_, put| {
                let is_hidden = hides(markers[at], puts[*put]);
                if is_hidden {
                    ends[*put] = Some(End::Deleted(at));
                }
                !is_hidden
            });
            continue;
        }
        if let Some(replaced) = there.insert(puts[at].timestamp(), at) {
            ends[replaced] = Some(End::PushedOut);
        }
        if there.len() > versions_max
            && let Some((_, oldest)) = there.pop_first()
        {
            ends[oldest] = Some(End::PushedOut);
        }
    }
    ends
}

/// What a scan that is not raw returns of one row and family.
pub(super) fn read_columns(
    row: &[&Cell],
    options: &FamilyOptions,
    scan: &OracleScan,
    now_ms: i64,
) -> Vec<Cell> {
    let time_range = scan.time_range_of(&options.name);
    let qualifiers = scan.qualifiers(&options.name);
    let oldest = options.oldest_unexpired(now_ms);
    let markers = markers_in_force(row, options, scan, now_ms);
    let mut seen = Vec::new();
    for column in row.chunk_by(|a, b| a.qualifier() == b.qualifier()) {
        if qualifiers.is_some_and(|asked| !asked.contains(column[0].qualifier())) {
            continue;
        }
        let is_put = |cell: &&Cell| !cell.cell_type().is_delete() && !is_cell_ttl_over(cell, now_ms);
        let puts: Vec<&Cell> = column.iter().copied().filter(is_put).collect();
        let ends = ends(&puts, &markers, options.versions_max);
        let there = puts.iter().zip(ends).filter(|(_, end)| end.is_none()).map(|(put, _)| *put);
        for (number, put) in there.filter(|put| time_range.contains(put.timestamp())).enumerate() {
            if number < scan.versions_max && (put.timestamp() >= oldest || number < options.min_versions) {
                seen.push(put.clone());
            }
        }
    }
    seen
}

/// Removes from one row and family what a major compaction drops.
///
/// Where deleted cells are kept, those stay that would be among the versions kept if nothing had been deleted, and
/// markers as long as there is an older put. They never take the place of a put that is there.
pub(super) fn major_compact(row: &mut Vec<Stored>, options: &FamilyOptions, now_ms: i64, earliest_put: i64) {
    let oldest = options.oldest_unexpired(now_ms);
    let cells: Vec<Cell> = row.iter().map(|stored| stored.cell.clone()).collect();
    let is_over = |cell: &Cell| {
        is_cell_ttl_over(cell, now_ms) || (options.min_versions == 0 && cell.timestamp() < oldest)
    };
    let markers: Vec<&Cell> =
        cells.iter().filter(|cell| cell.cell_type().is_delete() && !is_over(cell)).collect();
    let stays = |marker: &Cell| match options.keep_deleted_cells {
        KeepDeletedCells::False => false,
        KeepDeletedCells::Ttl => marker.timestamp() >= oldest,
        KeepDeletedCells::True => true,
    };
    let mut kept = Vec::new();
    for column in row.chunk_by(|a, b| a.cell.qualifier() == b.cell.qualifier()) {
        let puts: Vec<&Cell> = column
            .iter()
            .map(|stored| &stored.cell)
            .filter(|cell| !cell.cell_type().is_delete() && !is_over(cell))
            .collect();
        let mut ends = ends(&puts, &markers, options.versions_max).into_iter();
        let (mut kept_count, mut there_count) = (0, 0);
        for stored in column.iter().filter(|stored| !is_over(&stored.cell)) {
            let cell = &stored.cell;
            let is_expired = cell.timestamp() < oldest;
            let has_room = kept_count < if is_expired { options.min_versions } else { options.versions_max };
            let mut stored = stored.clone();
            let is_kept = if cell.cell_type().is_delete() {
                stored.may_be_gone |= cell.timestamp() < earliest_put;
                stays(cell) && (is_of_family(cell) || has_room)
            } else {
                match ends.next().expect("one for each put") {
                    None => {
                        there_count += 1;
                        !is_expired || there_count <= options.min_versions
                    }
                    Some(End::Deleted(by)) => {
                        let is_forgotten = |marker: &&&Cell| {
                            !stays(marker) && marker.seq() >= cell.seq() && hides(marker, cell)
                        };
                        stays(markers[by]) && !markers.iter().any(|it| is_forgotten(&it)) && has_room
                    }
                    Some(End::PushedOut) => false,
                }
            };
            if is_kept {
                kept_count += usize::from(!cell.cell_type().is_delete());
                kept.push(stored);
            }
        }
    }
    *row = kept;
}
