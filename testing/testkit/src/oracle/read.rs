//! What a read returns of one row and family. Checked against HBase's `UserScanQueryMatcher` and its kin, the
//! `ScanDeleteTracker`, `ExplicitColumnTracker` and `ScanWildcardColumnTracker`.
//!
//! A cell goes through, in this order: family TTL, cell TTL, delete markers, time range, requested columns,
//! version count. Sequence ids play no part but this: of equal timestamps in a column the newest is seen.
//!
//! One thing is left out on purpose. Family markers sort among the cells of the empty qualifier, and HBase passes
//! over those that come after a cell of that column which made it seek the next column. Here a marker always
//! counts.

use halcyon_cell::{Cell, CellType, TagType};

use super::new_version;
use crate::{FamilyOptions, KeepDeletedCells, OracleScan};

/// The cells of `row` (one row, one family, sorted) that the scan returns.
pub(super) fn read_store(
    row: &[&Cell],
    options: &FamilyOptions,
    scan: &OracleScan,
    now_ms: i64,
) -> Vec<Cell> {
    let seen = if options.new_version_behavior && !scan.raw {
        new_version::read_columns(row, options, scan, now_ms)
    } else {
        read_columns(row, options, scan, now_ms)
    };
    seen.into_iter().skip(scan.store_offset).take(scan.store_limit.unwrap_or(usize::MAX)).collect()
}

fn read_columns(row: &[&Cell], options: &FamilyOptions, scan: &OracleScan, now_ms: i64) -> Vec<Cell> {
    let time_range = scan.time_range_of(&options.name);
    let qualifiers = scan.qualifiers(&options.name);
    assert!(!scan.raw || qualifiers.is_none(), "a raw scan asks for no columns");
    // A raw scan sees what is stored, whatever VERSIONS and the family's TTL say.
    let oldest = if scan.raw { 0 } else { options.oldest_unexpired(now_ms) };
    let versions_max = if scan.raw { scan.versions_max } else { scan.versions_max.min(options.versions_max) };
    let markers = markers_in_force(row, options, scan, now_ms);

    let mut seen = Vec::new();
    for column in row.chunk_by(|a, b| a.qualifier() == b.qualifier()) {
        if qualifiers.is_some_and(|asked| !asked.contains(column[0].qualifier())) {
            continue;
        }
        let mut versions_count = 0;
        let mut last: Option<(i64, CellType)> = None;
        for cell in column {
            let (timestamp, cell_type) = (cell.timestamp(), cell.cell_type());
            let is_expired = timestamp < oldest;
            if is_expired && options.min_versions == 0 {
                break; // the rest of the column is older still
            }
            if is_cell_ttl_over(cell, now_ms)
                || (cell_type.is_delete() && !scan.raw)
                || markers.iter().any(|marker| hides(marker, cell))
                || !time_range.contains(timestamp)
                || last == Some((timestamp, cell_type))
            {
                continue;
            }
            if !cell_type.is_delete() {
                versions_count += 1;
            }
            if versions_count > versions_max {
                break;
            }
            if is_expired && versions_count > options.min_versions {
                // Asked for by name, a column shows one expired version more: HBase's ExplicitColumnTracker
                // includes the cell at which it finds out that it is done.
                if qualifiers.is_some() {
                    seen.push((*cell).clone());
                }
                break;
            }
            last = Some((timestamp, cell_type));
            seen.push((*cell).clone());
            if qualifiers.is_some() && is_expired && versions_count >= options.min_versions {
                break;
            }
        }
    }
    seen
}

/// The markers that a read minds.
pub(super) fn markers_in_force<'a>(
    row: &[&'a Cell],
    options: &FamilyOptions,
    scan: &OracleScan,
    now_ms: i64,
) -> Vec<&'a Cell> {
    let time_range = scan.time_range_of(&options.name);
    let oldest = options.oldest_unexpired(now_ms);
    row.iter()
        .copied()
        .filter(|cell| !scan.raw && cell.cell_type().is_delete())
        .filter(|marker| !(options.min_versions == 0 && marker.timestamp() < oldest))
        .filter(|marker| !is_cell_ttl_over(marker, now_ms))
        .filter(|marker| match options.keep_deleted_cells {
            // Markers behind the range are in force as well, or a scan of the past would see deleted cells ...
            KeepDeletedCells::False => marker.timestamp() >= time_range.min,
            // ... which is what those who keep them want.
            KeepDeletedCells::True | KeepDeletedCells::Ttl => time_range.contains(marker.timestamp()),
        })
        .collect()
}

/// Whether a marker hides a put of the same row and family.
pub(super) fn hides(marker: &Cell, cell: &Cell) -> bool {
    let same_column = marker.qualifier() == cell.qualifier();
    let (time, marked) = (cell.timestamp(), marker.timestamp());
    match marker.cell_type() {
        CellType::DeleteFamily => time <= marked,
        CellType::DeleteFamilyVersion => time == marked,
        CellType::DeleteColumn => same_column && time <= marked,
        CellType::Delete => same_column && time == marked,
        CellType::Put | CellType::Minimum | CellType::Maximum => false,
    }
}

/// Whether the cell's own TTL has passed; the first TTL tag counts.
pub(super) fn is_cell_ttl_over(cell: &Cell, now_ms: i64) -> bool {
    let tag = cell.get().tag_iter().find(|tag| tag.tag_type == TagType::TTL);
    let ttl_ms = tag.and_then(|tag| tag.value.try_into().ok()).map(i64::from_be_bytes);
    ttl_ms.is_some_and(|ttl_ms| cell.timestamp().saturating_add(ttl_ms) < now_ms)
}
