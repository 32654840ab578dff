//! Filters around another filter.
//!
//! HBase's `SkipFilter` and `WhileMatchFilter` pass on cells, transforms and resets, but neither hints nor
//! complete rows, and `SkipFilter` does not pass on row keys either. So it is here. The direction of a scan is
//! passed on, which HBase forgets: a `PrefixFilter` inside would end a reversed scan at its first row.

use halcyon_cell::{Cell, CellRef, Key, Result};

use crate::{Filter, ReturnCode};

/// What all of them ask the filter inside, in an `impl Filter`.
macro_rules! pass_on {
    () => {
        fn looks_at_value(&self, cell: CellRef<'_>) -> bool {
            self.inner.looks_at_value(cell)
        }

        fn transform_cell(&mut self, cell: Cell) -> Result<Cell> {
            self.inner.transform_cell(cell)
        }

        fn transforms(&self) -> bool {
            self.inner.transforms()
        }

        fn cost(&self) -> u32 {
            self.inner.cost().saturating_add(1)
        }

        fn filters_count(&self) -> u32 {
            self.inner.filters_count().saturating_add(1)
        }

        fn held_bytes(&self) -> usize {
            size_of::<Self>() + self.inner.held_bytes()
        }

        fn is_family_essential(&self, family: &[u8]) -> Result<bool> {
            self.inner.is_family_essential(family)
        }

        fn set_reversed(&mut self, reversed: bool) {
            self.inner.set_reversed(reversed);
        }

        fn is_reversed(&self) -> bool {
            self.inner.is_reversed()
        }
    };
}

/// `SkipFilter`: drops a row if the inner filter answers any of its cells with anything but `Include`.
pub(crate) struct SkipFilter {
    inner: Box<dyn Filter>,
    drop_row: bool,
}

impl SkipFilter {
    pub(crate) fn new(inner: Box<dyn Filter>) -> SkipFilter {
        SkipFilter { inner, drop_row: false }
    }
}

impl Filter for SkipFilter {
    fn reset(&mut self) -> Result<()> {
        self.drop_row = false;
        self.inner.reset()
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let code = self.inner.filter_cell(cell)?;
        self.drop_row |= code != ReturnCode::Include;
        Ok(code)
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.drop_row)
    }

    pass_on!();
}

/// `WhileMatchFilter`: ends the scan at the first row key, cell or row that the inner filter does not plainly
/// include.
pub(crate) struct WhileMatchFilter {
    inner: Box<dyn Filter>,
    done: bool,
}

impl WhileMatchFilter {
    pub(crate) fn new(inner: Box<dyn Filter>) -> WhileMatchFilter {
        WhileMatchFilter { inner, done: false }
    }
}

impl Filter for WhileMatchFilter {
    fn reset(&mut self) -> Result<()> {
        self.inner.reset()
    }

    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        if self.filter_all_remaining()? {
            return Ok(true);
        }
        let dropped = self.inner.filter_row_key(first)?;
        self.done |= dropped;
        Ok(dropped)
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        Ok(self.done || self.inner.filter_all_remaining()?)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let code = self.inner.filter_cell(cell)?;
        self.done |= code != ReturnCode::Include;
        Ok(code)
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        let dropped = self.inner.filter_row()?;
        self.done |= dropped;
        Ok(dropped)
    }

    pass_on!();
}

/// `FilterWrapper`: passes everything on and decides about complete rows in one go.
pub(crate) struct FilterWrapper {
    inner: Box<dyn Filter>,
}

impl FilterWrapper {
    pub(crate) fn new(inner: Box<dyn Filter>) -> FilterWrapper {
        FilterWrapper { inner }
    }
}

impl Filter for FilterWrapper {
    fn reset(&mut self) -> Result<()> {
        self.inner.reset()
    }

    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        Ok(self.inner.filter_all_remaining()? || self.inner.filter_row_key(first)?)
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        self.inner.filter_all_remaining()
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        self.inner.filter_cell(cell)
    }

    fn filter_row_cells(&mut self, cells: &mut Vec<Cell>) -> Result<()> {
        self.inner.filter_row_cells(cells)?;
        if !cells.is_empty() && self.inner.filter_row()? {
            cells.clear();
        }
        Ok(())
    }

    fn has_filter_row(&self) -> bool {
        self.inner.has_filter_row()
    }

    fn filter_row(&mut self) -> Result<bool> {
        self.inner.filter_row()
    }

    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        self.inner.next_cell_hint(cell)
    }

    pass_on!();
}
