//! Cells of one row, as reads return them.

use std::ops::Deref;

use halcyon_cell::Cell;

/// The cells that a read found in one row, in HBase's order. Without cells the row does not exist (HBase: `Result`).
///
/// Dereferences to the slice of its cells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    cells: Vec<Cell>,
    has_more_cells: bool,
}

impl Row {
    pub(crate) fn new(cells: Vec<Cell>) -> Row {
        Row { cells, has_more_cells: false }
    }

    pub(crate) fn partial(cells: Vec<Cell>, has_more_cells: bool) -> Row {
        Row { cells, has_more_cells }
    }

    /// The row key; empty if there are no cells.
    pub fn key(&self) -> &[u8] {
        self.cells.first().map_or(&[], |cell| cell.row())
    }

    /// The cells.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The cells, without a copy.
    pub fn into_cells(self) -> Vec<Cell> {
        self.cells
    }

    /// The newest cell of a column.
    pub fn cell(&self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Option<&Cell> {
        let (family, qualifier) = (family.as_ref(), qualifier.as_ref());
        self.cells.iter().find(|cell| cell.family() == family && cell.qualifier() == qualifier)
    }

    /// The newest value of a column.
    pub fn value(&self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Option<&[u8]> {
        self.cell(family, qualifier).map(|cell| cell.value())
    }

    /// A counter: the newest value of a column that an increment made. `None` if it has not eight bytes.
    pub fn counter(&self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Option<i64> {
        let value = self.value(family, qualifier)?;
        value.try_into().ok().map(i64::from_be_bytes)
    }

    /// Whether the next row of the scan has more cells of this row. Only scans with [`crate::Scan::batch`] or
    /// [`crate::Scan::allow_partial_rows`] return rows in parts.
    pub fn has_more_cells(&self) -> bool {
        self.has_more_cells
    }
}

impl Deref for Row {
    type Target = [Cell];

    fn deref(&self) -> &[Cell] {
        &self.cells
    }
}

impl IntoIterator for Row {
    type Item = Cell;
    type IntoIter = std::vec::IntoIter<Cell>;

    fn into_iter(self) -> Self::IntoIter {
        self.cells.into_iter()
    }
}

impl<'a> IntoIterator for &'a Row {
    type Item = &'a Cell;
    type IntoIter = std::slice::Iter<'a, Cell>;

    fn into_iter(self) -> Self::IntoIter {
        self.cells.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let cells = vec![
            Cell::put(b"r", b"f", b"a", 2, b"new"),
            Cell::put(b"r", b"f", b"a", 1, b"old"),
            Cell::put(b"r", b"f", b"n", 1, &7i64.to_be_bytes()),
        ];
        let row = Row::new(cells);
        assert_eq!((row.key(), row.len()), (&b"r"[..], 3));
        assert_eq!(row.value("f", "a"), Some(&b"new"[..]));
        assert_eq!((row.counter("f", "n"), row.counter("f", "a")), (Some(7), None));
        assert!(row.value("g", "a").is_none() && Row::default().key().is_empty());
    }
}
