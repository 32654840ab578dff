//! Delete markers of a row, and which cells they hide.

use std::collections::BTreeSet;

use halcyon_cell::{CellRef, CellType};
use halcyon_env::invariant;

/// What hides a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    No,
    /// By a marker that also hides every older version of the column.
    WithOlder,
    /// By a marker for this one version.
    Alone,
}

/// Remembers the delete markers of one row while its cells go by in order (HBase: `ScanDeleteTracker`).
#[derive(Default)]
pub(crate) struct DeleteTracker {
    family_timestamp: Option<i64>,
    /// A row may have millions of them. They come with the newest first only if none of them names a column, which those of HBase's files and
    /// of bulk loads may: each of these lies with its column.
    family_versions: BTreeSet<i64>,
    column: Option<ColumnDelete>,
    /// Kept between columns so that its memory is used again.
    qualifier: Vec<u8>,
}

struct ColumnDelete {
    cell_type: CellType,
    timestamp: i64,
}

impl DeleteTracker {
    pub fn reset(&mut self) {
        self.family_timestamp = None;
        if !self.family_versions.is_empty() {
            self.family_versions.clear(); // of an empty set it takes a tree apart all the same
        }
        self.column = None;
    }

    pub fn is_empty(&self) -> bool {
        self.family_timestamp.is_none() && self.family_versions.is_empty() && self.column.is_none()
    }

    pub fn add(&mut self, marker: CellRef<'_>) {
        let timestamp = marker.timestamp();
        if self.family_timestamp.is_some_and(|family| timestamp <= family) {
            return; // the family marker hides at least as much
        }
        let cell_type = marker.cell_type();
        match cell_type {
            CellType::DeleteFamily => {
                invariant!(
                    self.family_timestamp.is_none() || !marker.qualifier().is_empty(),
                    "of a row's markers of the family the newest comes first: {timestamp} behind {:?}",
                    self.family_timestamp
                );
                self.family_timestamp = Some(timestamp);
            }
            CellType::DeleteFamilyVersion => {
                self.family_versions.insert(timestamp);
            }
            _ => {
                // A narrower marker behind a wider one of the same column adds nothing.
                let same_column = marker.qualifier() == self.qualifier;
                if let Some(column) = &self.column
                    && same_column
                    && cell_type < column.cell_type
                    && column.cell_type == CellType::DeleteColumn
                {
                    return;
                }
                if !same_column {
                    self.qualifier.clear();
                    self.qualifier.extend_from_slice(marker.qualifier());
                }
                self.column = Some(ColumnDelete { cell_type, timestamp });
            }
        }
    }

    /// Whether the markers seen so far hide `cell`.
    pub fn hides(&mut self, cell: CellRef<'_>) -> Hidden {
        let timestamp = cell.timestamp();
        if self.family_timestamp.is_some_and(|family| timestamp <= family) {
            return Hidden::WithOlder;
        }
        if self.family_versions.contains(&timestamp) {
            return Hidden::Alone;
        }
        if let Some(column) = &self.column {
            if cell.qualifier() != self.qualifier {
                self.column = None; // the scan is past that column
            } else if column.cell_type == CellType::DeleteColumn {
                return Hidden::WithOlder;
            } else if column.timestamp == timestamp {
                return Hidden::Alone;
            } else {
                self.column = None;
            }
        }
        Hidden::No
    }
}

#[cfg(test)]
mod tests {
    use halcyon_cell::Cell;
    use halcyon_env::{Clock, SystemClock};

    use super::*;

    fn cell(qualifier: &[u8], timestamp: i64, cell_type: CellType) -> Cell {
        Cell::build(b"r", b"f", qualifier, timestamp, cell_type, b"", b"", 0)
    }

    /// As files may have them. What such a marker hides begins at its column.
    #[test]
    fn markers_of_a_family_may_lie_with_columns() {
        let mut deletes = DeleteTracker::default();
        let mut hides = |qualifier: &[u8], timestamp, marker: Option<CellType>| {
            if let Some(marker) = marker {
                deletes.add(cell(qualifier, timestamp, marker).get());
            }
            [timestamp + 1, timestamp, timestamp - 1]
                .map(|timestamp| deletes.hides(cell(qualifier, timestamp, CellType::Put).get()))
        };
        use Hidden::{Alone, No, WithOlder};
        assert_eq!(hides(b"", 50, Some(CellType::DeleteFamilyVersion)), [No, Alone, No]);
        assert_eq!(hides(b"a", 60, Some(CellType::DeleteFamilyVersion)), [No, Alone, No]);
        assert_eq!(hides(b"b", 55, Some(CellType::DeleteFamilyVersion)), [No, Alone, No]);
        assert_eq!(hides(b"c", 60, Some(CellType::DeleteFamilyVersion)), [No, Alone, No]);
        for timestamp in [50, 55, 60] {
            assert_eq!(hides(b"d", timestamp, None), [No, Alone, No]);
        }
        assert_eq!(hides(b"e", 30, Some(CellType::DeleteFamily)), [No, WithOlder, WithOlder]);
        assert_eq!(hides(b"f", 20, Some(CellType::DeleteFamily)), [WithOlder; 3]);
        assert_eq!(hides(b"g", 55, Some(CellType::DeleteFamily)), [No, WithOlder, WithOlder]);
        assert_eq!(hides(b"h", 60, None), [No, Alone, No]);
    }

    /// All markers moved for each one that came with a newer timestamp. A flush of some millions took hours, and that of half a
    /// million so long that the server ended itself, as did each that opened the region after it.
    #[test]
    fn many_markers_of_a_family_in_any_order_take_no_time_for_each() {
        const COUNT: i64 = 600_000;
        let clock = SystemClock::new();
        let work = || clock.thread_ran_ns().expect("the system counts it");
        let begun = work();
        let orders: [fn(i64) -> i64; 3] = [|at| at, |at| COUNT + 1 - at, |at| at * 7 % (COUNT + 1)];
        for timestamp_of in orders {
            let mut deletes = DeleteTracker::default();
            for at in 1..=COUNT {
                let (qualifier, timestamp) = (at.to_be_bytes(), 2 * timestamp_of(at));
                deletes.add(cell(&qualifier, timestamp, CellType::DeleteFamilyVersion).get());
                let hidden = [timestamp, timestamp + 1]
                    .map(|at| deletes.hides(cell(&qualifier, at, CellType::Put).get()));
                assert_eq!(hidden, [Hidden::Alone, Hidden::No]);
            }
        }
        let took = std::time::Duration::from_nanos(work() - begun);
        assert!(took < std::time::Duration::from_secs(60), "{took:?}");
    }
}
