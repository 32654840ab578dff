//! Delete markers of a row, and which cells they hide.

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
    /// The newest first, each once: they are searched by halves, since a row may have a million of them.
    family_versions: Vec<i64>,
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
        self.family_versions.clear();
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
                    self.family_timestamp.is_none(),
                    "of a row's markers of the family the newest comes first: {timestamp} behind {:?}",
                    self.family_timestamp
                );
                self.family_timestamp = Some(timestamp);
            }
            CellType::DeleteFamilyVersion => {
                // Markers of a family come in the order of their timestamps, so this is nearly always the end.
                if let Err(at) = self.family_versions.binary_search_by(|known| timestamp.cmp(known)) {
                    self.family_versions.insert(at, timestamp);
                }
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
        if self.family_versions.binary_search_by(|known| timestamp.cmp(known)).is_ok() {
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
