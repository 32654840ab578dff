//! What a scan asks of a filter, in the order in which it asks.
//!
//! ```text
//! per row    filter_all_remaining -> filter_row_key(first cell)
//! per cell   filter_all_remaining -> filter_cell -> transform_cell (if included) or next_cell_hint (if it seeks)
//! row done   finish_row = filter_row_cells if has_filter_row, then filter_row if cells are left
//! next row   reset
//! ```
//!
//! A filter that keeps counters or flags keeps them per row (cleared by `reset`) or per scan (never cleared);
//! the same object sees the cells of all families of a row, one family after the other.

use halcyon_cell::{Cell, CellRef, Key, Result};
use halcyon_env::invariant;

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

    /// Whether `filter_cell` or `transform_cell` looks at this cell's value, or at its length. If not, a scan need not read
    /// a value that stands in another file.
    fn looks_at_value(&self, cell: CellRef<'_>) -> bool {
        let _ = cell;
        false
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

    /// Where to go after `SeekNextUsingHint` for `cell`. `None` means that the filter has no hint: go to the
    /// next cell. A hint that is not behind `cell` means the same. In a reversed scan a hint on a row stands
    /// for the greatest row that is not above it.
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

    /// Whether an AND list keeps asking this filter for hints when an earlier filter of the list already
    /// dropped the cell or the row (`HintingFilter`).
    fn is_hinting(&self) -> bool {
        false
    }

    /// What asking about one cell costs at most, about: 1 is a comparison of a few bytes. What long values cost beside that the
    /// comparators tell `halcyon_env::Patience` themselves, and errors of kinds `NeedsDisk` and `Stopping` come from there.
    fn cost(&self) -> u32 {
        1
    }

    /// The filters in it, itself included: so many are asked by [`Filter::filter_all_remaining`], at most.
    fn filters_count(&self) -> u32 {
        1
    }

    /// Bytes that it keeps while its scan is open, about, and caches as if they were full. Parts of the request's message are left out
    /// that it only points to.
    fn held_bytes(&self) -> usize {
        size_of_val(self)
    }

    /// Tells the filter that rows come in descending order. Called once, before the first row.
    fn set_reversed(&mut self, reversed: bool);

    fn is_reversed(&self) -> bool;
}

/// The end of a row, as `RegionScannerImpl.nextInternal` and `FilterWrapper.filterRowCellsWithRet` of HBase's
/// server do it: a filter that decides about complete rows may take cells out; what is left is dropped if the
/// filter drops the row. A row that has no cells before the filter looks at it never counts as accepted.
pub fn finish_row(filter: &mut dyn Filter, cells: &mut Vec<Cell>) -> Result<RowOutcome> {
    if filter.has_filter_row() {
        let before = cells.len();
        filter.filter_row_cells(cells)?;
        invariant!(
            cells.len() <= before,
            "a filter takes cells out of a row and puts none in, for which no limit was counted: {} of {before}",
            cells.len()
        );
    }
    if cells.is_empty() {
        return Ok(RowOutcome::NotCalled);
    }
    if filter.filter_row()? {
        cells.clear();
        return Ok(RowOutcome::Exclude);
    }
    Ok(RowOutcome::Include)
}

/// The two methods about direction, for a filter with a field `reversed`.
macro_rules! direction_flag {
    () => {
        fn set_reversed(&mut self, reversed: bool) {
            self.reversed = reversed;
        }

        fn is_reversed(&self) -> bool {
            self.reversed
        }
    };
}
pub(crate) use direction_flag;
