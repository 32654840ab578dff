//! What a scan asks of a filter, in the order in which it asks.
//!
//! ```text
//! per row    filter_all_remaining -> filter_row_key(first cell)
//! per cell   filter_cell -> transform_cell (on cells that are included) or next_cell_hint (on SeekNextUsingHint)
//! row done   finish_row = filter_row_cells, then filter_row if cells are left and has_filter_row
//! next row   reset
//! ```
//!
//! A filter that keeps counters or flags keeps them per row (cleared by `reset`) or per scan (never cleared);
//! the same object sees the cells of all families of a row, one family after the other.

use halcyon_cell::{Cell, CellRef, Key, Result};

/// What a scan does with the cell it asked about, and where it goes from there (`Filter.ReturnCode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReturnCode {
    /// Keep the cell; go to the next one.
    Include,
    /// Keep the cell; older versions of the column are not wanted.
    IncludeAndNextCol,
    /// Drop the cell; go to the next one.
    Skip,
    /// Drop the cell and the older versions of its column.
    NextCol,
    /// Drop the cell and what is left of the row in this family's store.
    NextRow,
    /// Drop the cell and go to [`Filter::next_cell_hint`].
    SeekNextUsingHint,
    /// Keep the cell; what is left of the row in this family's store is not wanted.
    IncludeAndSeekNextRow,
}

impl ReturnCode {
    /// Whether the cell is part of the result.
    #[inline]
    pub fn is_include(self) -> bool {
        matches!(
            self,
            ReturnCode::Include | ReturnCode::IncludeAndNextCol | ReturnCode::IncludeAndSeekNextRow
        )
    }
}

/// What [`finish_row`] found out about a row (`FilterWrapper.FilterRowRetCode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    /// No cells were left, so the filter was not asked about the row.
    NotCalled,
    /// The row stays.
    Include,
    /// The filter dropped the row; the list is empty now.
    Exclude,
}

/// A filter of one scan, with HBase's `FilterBase` as the default of each question.
///
/// *Thread safety*: a filter belongs to one scanner and is never shared; it may move between threads.
///
/// Errors are of kind `Invalid`, when a filter and a comparator do not fit the cells they are given.
pub trait Filter: Send {
    /// Called between rows.
    fn reset(&mut self) -> Result<()> {
        Ok(())
    }

    /// Looks at the row of its first cell; `true` drops the row.
    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        let _ = first;
        self.filter_all_remaining()
    }

    /// `true` ends the scan.
    fn filter_all_remaining(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Decides about one cell.
    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let _ = cell;
        Ok(ReturnCode::Include)
    }

    /// Changes a cell that is part of the result; called right after `filter_cell` included it.
    fn transform_cell(&mut self, cell: Cell) -> Result<Cell> {
        Ok(cell)
    }

    /// Whether [`Filter::transform_cell`] can change a cell; if not, a scan need not call it.
    fn transforms(&self) -> bool {
        false
    }

    /// May take cells out of a complete row.
    fn filter_row_cells(&mut self, cells: &mut Vec<Cell>) -> Result<()> {
        let _ = cells;
        Ok(())
    }

    /// Whether the filter decides about complete rows, so that a scan must not cut them.
    fn has_filter_row(&self) -> bool {
        false
    }

    /// `true` drops the row that was just read.
    fn filter_row(&mut self) -> Result<bool> {
        Ok(false)
    }

    /// Where to go after `SeekNextUsingHint` for `cell`. `None` means that the filter has no hint.
    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        let _ = cell;
        Ok(None)
    }

    /// Whether the family is needed to decide about a row. A scan may read other families only of rows that
    /// stay.
    fn is_family_essential(&self, family: &[u8]) -> Result<bool> {
        let _ = family;
        Ok(true)
    }

    /// Tells the filter that rows come in descending order. Called once, before the first row.
    fn set_reversed(&mut self, reversed: bool);

    fn is_reversed(&self) -> bool;
}

/// The end of a row, as `FilterWrapper.filterRowCellsWithRet` of HBase's server does it: the row's cells pass
/// through the filter, and what is left is dropped if the filter drops the row.
///
/// Call it when [`Filter::has_filter_row`]; without that HBase asks no filter about a complete row.
pub fn finish_row(filter: &mut dyn Filter, cells: &mut Vec<Cell>) -> Result<RowOutcome> {
    filter.filter_row_cells(cells)?;
    if cells.is_empty() {
        return Ok(RowOutcome::NotCalled);
    }
    if filter.filter_row()? {
        cells.clear();
        return Ok(RowOutcome::Exclude);
    }
    Ok(RowOutcome::Include)
}
