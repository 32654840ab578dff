//! HBase's matcher as it works: one cell after the other, with trackers that remember. The oracle says the same
//! things as rules over whole columns; the two were written from different ends to check each other.

use std::collections::BTreeSet;

use crate::new_version;
use halcyon_cell::{Cell, CellType, TagType};
use halcyon_testkit::{FamilyOptions, KeepDeletedCells, OracleScan, TimeRange};

/// What becomes of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Code {
    Include,
    IncludeAndNextColumn,
    Skip,
    NextColumn,
}

/// Remembers the markers of a row (`ScanDeleteTracker`).
#[derive(Default)]
struct Deletes {
    family: Option<i64>,
    family_versions: BTreeSet<i64>,
    column: Option<(Vec<u8>, CellType, i64)>,
}

impl Deletes {
    fn add(&mut self, marker: &Cell) {
        let timestamp = marker.timestamp();
        if self.family.is_some_and(|family| timestamp <= family) {
            return;
        }
        match marker.cell_type() {
            CellType::DeleteFamily => self.family = Some(timestamp),
            CellType::DeleteFamilyVersion => drop(self.family_versions.insert(timestamp)),
            cell_type => {
                let is_covered = self
                    .column
                    .as_ref()
                    .is_some_and(|(column, seen, _)| cell_type < *seen && column == marker.qualifier());
                if !is_covered {
                    self.column = Some((marker.qualifier().to_vec(), cell_type, timestamp));
                }
            }
        }
    }

    fn check(&mut self, cell: &Cell) -> Option<Code> {
        let timestamp = cell.timestamp();
        if self.family.is_some_and(|family| timestamp <= family) {
            return Some(Code::NextColumn);
        }
        if self.family_versions.contains(&timestamp) {
            return Some(Code::Skip);
        }
        match &self.column {
            Some((column, cell_type, marked)) if column == cell.qualifier() => {
                if *cell_type == CellType::DeleteColumn {
                    return Some(Code::NextColumn);
                }
                if timestamp == *marked {
                    return Some(Code::Skip);
                }
                self.column = None;
            }
            _ => self.column = None,
        }
        None
    }
}

/// Counts versions (`ScanWildcardColumnTracker`, and `ExplicitColumnTracker` if columns are asked for).
struct Columns {
    asked: Option<BTreeSet<Vec<u8>>>,
    versions_max: usize,
    min_versions: usize,
    oldest: i64,
    column: Option<Vec<u8>>,
    count: usize,
    last: Option<(i64, CellType)>,
}

impl Columns {
    fn check(&mut self, cell: &Cell) -> Code {
        if self.column.as_deref() != Some(cell.qualifier()) {
            self.column = Some(cell.qualifier().to_vec());
            (self.count, self.last) = (0, None);
        }
        let is_expired = cell.timestamp() < self.oldest;
        if let Some(asked) = &self.asked {
            if !asked.contains(cell.qualifier()) {
                return Code::NextColumn;
            }
            if self.last == Some((cell.timestamp(), CellType::Put)) {
                return Code::Skip;
            }
            self.count += 1;
            if self.count >= self.versions_max || (self.count >= self.min_versions && is_expired) {
                return Code::IncludeAndNextColumn;
            }
            self.last = Some((cell.timestamp(), CellType::Put));
            return Code::Include;
        }
        if self.last == Some((cell.timestamp(), cell.cell_type())) {
            return Code::Skip;
        }
        self.count += usize::from(!cell.cell_type().is_delete());
        if self.count > self.versions_max || (self.count > self.min_versions && is_expired) {
            return Code::NextColumn;
        }
        self.last = Some((cell.timestamp(), cell.cell_type()));
        Code::Include
    }
}

impl Columns {
    /// Of a marker of the family that is kept: it is no version of the column that it lies in.
    fn check_family_marker(&mut self, cell: &Cell) -> Code {
        if self.check(cell) == Code::Skip {
            return Code::Skip; // the same one again
        }
        self.last = Some((cell.timestamp(), cell.cell_type()));
        Code::Include
    }
}

fn is_of_family(cell: &Cell) -> bool {
    matches!(cell.cell_type(), CellType::DeleteFamily | CellType::DeleteFamilyVersion)
}

/// What the walk is for.
pub enum Purpose<'a> {
    Read(&'a OracleScan),
    /// A flush or a minor compaction.
    RetainMarkers,
    /// A major compaction, with the oldest timestamp of any put.
    DropMarkers(i64),
}

/// Walks the sorted cells of one row and family and returns those that come through.
pub fn walk(cells: &[Cell], options: &FamilyOptions, purpose: &Purpose<'_>, now_ms: i64) -> Vec<Cell> {
    let scan = if let Purpose::Read(scan) = purpose { Some(*scan) } else { None };
    let raw = scan.is_some_and(|scan| scan.raw);
    if options.new_version_behavior && !raw {
        return new_version::walk(cells, options, purpose, now_ms);
    }
    let oldest = if raw { 0 } else { options.ttl_ms.map_or(i64::MIN, |ttl| now_ms - ttl) };
    let mut columns = Columns {
        asked: scan.and_then(|scan| scan.columns.get(&options.name).cloned().flatten()),
        versions_max: match scan {
            Some(scan) if raw => scan.versions_max,
            Some(scan) => scan.versions_max.min(options.versions_max),
            None => options.versions_max,
        },
        min_versions: options.min_versions,
        oldest,
        column: None,
        count: 0,
        last: None,
    };
    let mut deletes = Deletes::default();
    let mut out = Vec::new();
    let mut passed_over: Option<Vec<u8>> = None;
    for cell in cells {
        // Markers of the family lie in the column without a name, and are looked at in any case.
        let is_passed_over = passed_over.as_deref() == Some(cell.qualifier());
        if is_passed_over && !is_of_family(cell) {
            continue;
        }
        if !is_passed_over {
            passed_over = None;
        }
        let code = if options.min_versions == 0 && cell.timestamp() < oldest {
            Code::NextColumn
        } else if cell_ttl_over(cell, now_ms) {
            Code::Skip
        } else {
            match purpose {
                Purpose::Read(scan) => {
                    let range = scan.family_time_ranges.get(&options.name).unwrap_or(&scan.time_range);
                    match_user(cell, raw, options, range, &mut deletes, &mut columns)
                }
                Purpose::RetainMarkers => match_compaction(cell, None, options, &mut deletes, &mut columns),
                Purpose::DropMarkers(earliest_put) => {
                    match_compaction(cell, Some(*earliest_put), options, &mut deletes, &mut columns)
                }
            }
        };
        if matches!(code, Code::Include | Code::IncludeAndNextColumn) {
            out.push(cell.clone());
        }
        if matches!(code, Code::NextColumn | Code::IncludeAndNextColumn) {
            passed_over = Some(cell.qualifier().to_vec());
        }
    }
    out
}

fn match_user(
    cell: &Cell,
    raw: bool,
    options: &FamilyOptions,
    range: &TimeRange,
    deletes: &mut Deletes,
    columns: &mut Columns,
) -> Code {
    let timestamp = cell.timestamp();
    if !raw && cell.cell_type().is_delete() {
        let in_force = match options.keep_deleted_cells {
            KeepDeletedCells::False => timestamp >= range.min,
            _ => range.contains(timestamp),
        };
        if in_force {
            deletes.add(cell);
        }
        return Code::Skip;
    }
    if !raw && let Some(code) = deletes.check(cell) {
        return code;
    }
    if !range.contains(timestamp) {
        return if timestamp < range.min { Code::NextColumn } else { Code::Skip };
    }
    columns.check(cell)
}

fn match_compaction(
    cell: &Cell,
    drop_markers: Option<i64>,
    options: &FamilyOptions,
    deletes: &mut Deletes,
    columns: &mut Columns,
) -> Code {
    if cell.cell_type().is_delete() {
        let is_kept = match options.keep_deleted_cells {
            KeepDeletedCells::False => false,
            KeepDeletedCells::Ttl => cell.timestamp() >= columns.oldest,
            KeepDeletedCells::True => true,
        };
        if !is_kept {
            deletes.add(cell);
        }
        return match drop_markers {
            None => Code::Include,
            Some(_) if !is_kept => Code::Skip,
            Some(earliest_put) if cell.timestamp() < earliest_put => Code::NextColumn,
            Some(_) if is_of_family(cell) => columns.check_family_marker(cell),
            Some(_) => columns.check(cell),
        };
    }
    match deletes.check(cell) {
        Some(code) => code,
        None => columns.check(cell),
    }
}

pub fn cell_ttl_over(cell: &Cell, now_ms: i64) -> bool {
    cell.get().tag_iter().find(|tag| tag.tag_type == TagType::TTL).is_some_and(|tag| {
        cell.timestamp() + i64::from_be_bytes(tag.value.try_into().expect("eight bytes")) < now_ms
    })
}
