//! `NEW_VERSION_BEHAVIOR` by spans: each put is there from its own moment until what pushes it out, found from the cells
//! before it in the row. The oracle goes through the writes in their order instead.

use halcyon_cell::{Cell, CellType};
use halcyon_testkit::{FamilyOptions, KeepDeletedCells};

use crate::matcher::{Purpose, cell_ttl_over};

/// From when until when a put was there. Twice the sequence id; markers come half a step later.
type Span = (u64, u64);

pub fn walk(cells: &[Cell], options: &FamilyOptions, purpose: &Purpose<'_>, now_ms: i64) -> Vec<Cell> {
    let oldest = options.ttl_ms.map_or(i64::MIN, |ttl| now_ms - ttl);
    if matches!(purpose, Purpose::RetainMarkers) {
        return cells.to_vec();
    }
    let scan = if let Purpose::Read(scan) = purpose { Some(*scan) } else { None };
    let range = scan.map(|scan| *scan.family_time_ranges.get(&options.name).unwrap_or(&scan.time_range));
    let asked = scan.and_then(|scan| scan.columns.get(&options.name)).and_then(Option::as_ref);
    let is_over =
        |cell: &Cell| cell_ttl_over(cell, now_ms) || (options.min_versions == 0 && cell.timestamp() < oldest);
    let stays = |marker: &Cell| match options.keep_deleted_cells {
        KeepDeletedCells::True => true,
        KeepDeletedCells::Ttl => marker.timestamp() >= oldest,
        KeepDeletedCells::False => false,
    };
    let is_in_force = |marker: &Cell| match (range, options.keep_deleted_cells) {
        (None, _) => true,
        (Some(range), KeepDeletedCells::False) => marker.timestamp() >= range.min,
        (Some(range), _) => range.contains(marker.timestamp()),
    };
    let mut out = Vec::new();
    let mut markers: Vec<&Cell> = Vec::new();
    for column in cells.chunk_by(|a, b| a.qualifier() == b.qualifier()) {
        let mut spans: Vec<(i64, Span)> = Vec::new();
        let (mut there, mut kept) = (0, 0);
        for cell in column.iter().filter(|cell| !is_over(cell)) {
            let timestamp = cell.timestamp();
            let is_expired = timestamp < oldest;
            let has_room = kept < if is_expired { options.min_versions } else { options.versions_max };
            if cell.cell_type().is_delete() {
                if is_in_force(cell) {
                    markers.push(cell);
                }
                let is_of_family =
                    matches!(cell.cell_type(), CellType::DeleteFamily | CellType::DeleteFamilyVersion);
                if let Purpose::DropMarkers(earliest_put) = purpose
                    && stays(cell)
                    && timestamp >= *earliest_put
                    && (is_of_family || has_room)
                {
                    out.push(cell.clone());
                }
                continue;
            }
            let hiding: Vec<&&Cell> = markers
                .iter()
                .filter(|marker| {
                    let of_column = marker.qualifier() == cell.qualifier();
                    marker.seq() >= cell.seq()
                        && match marker.cell_type() {
                            CellType::DeleteFamily => timestamp <= marker.timestamp(),
                            CellType::DeleteFamilyVersion => timestamp == marker.timestamp(),
                            CellType::DeleteColumn => of_column && timestamp <= marker.timestamp(),
                            _ => of_column && timestamp == marker.timestamp(),
                        }
                })
                .collect();
            let from = 2 * cell.seq();
            let deleted = hiding.iter().map(|marker| 2 * marker.seq() + 1).min().unwrap_or(u64::MAX);
            let of_timestamp = spans.iter().filter(|(other, _)| *other == timestamp);
            let replaced = of_timestamp.map(|(_, span)| span.0).min().unwrap_or(u64::MAX);
            let others = || spans.iter().filter(|(other, _)| *other > timestamp).map(|(_, span)| span);
            let is_full = |at: &u64| {
                others().filter(|span| span.0 <= *at && *at < span.1).count() >= options.versions_max
            };
            let moments = std::iter::once(from).chain(others().map(|span| span.0).filter(|at| *at > from));
            let full = moments.filter(is_full).min().unwrap_or(u64::MAX);
            let end = deleted.min(replaced).min(full);
            spans.push((timestamp, (from, end)));
            if end == u64::MAX {
                if range.is_some_and(|range| !range.contains(timestamp)) {
                    continue;
                }
                there += 1;
                let is_shown = there <= scan.map_or(usize::MAX, |scan| scan.versions_max)
                    && (!is_expired || there <= options.min_versions)
                    && asked.is_none_or(|asked| asked.contains(cell.qualifier()));
                if is_shown {
                    kept += 1;
                    out.push(cell.clone());
                }
            } else if scan.is_none()
                && end == deleted
                && hiding.iter().all(|marker| stays(marker))
                && has_room
            {
                kept += 1;
                out.push(cell.clone());
            }
        }
    }
    out
}
