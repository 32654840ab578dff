//! A scan that wants only cells whose values stand in mob files (HBase: `MobReferenceOnlyFilter`, `HMobStore.createScanner`).

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, Key, Result};
use halcyon_filter::{Filter, ReturnCode};
use halcyon_schema::mob::is_mob_reference;

/// The scan's own filter, and behind it one that drops cells which are no references.
pub(crate) struct ReferencesOnly {
    inner: Option<Box<dyn Filter>>,
    /// The first family with `IS_MOB` of the scan. HBase puts the filter in when it opens that store: those before it return
    /// all cells, those behind it only references.
    first_family: Bytes,
    reversed: bool,
}

impl ReferencesOnly {
    pub fn new(inner: Option<Box<dyn Filter>>, first_family: Bytes) -> ReferencesOnly {
        ReferencesOnly { inner, first_family, reversed: false }
    }
}

impl Filter for ReferencesOnly {
    fn cost(&self) -> u32 {
        self.inner.as_ref().map_or(1, |inner| inner.cost())
    }

    fn filters_count(&self) -> u32 {
        self.inner.as_ref().map_or(1, |inner| inner.filters_count())
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.inner.as_ref().map_or(0, |inner| inner.held_bytes())
    }

    fn reset(&mut self) -> Result<()> {
        self.inner.as_mut().map_or(Ok(()), |inner| inner.reset())
    }

    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        self.inner.as_mut().map_or(Ok(false), |inner| inner.filter_row_key(first))
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        self.inner.as_mut().map_or(Ok(false), |inner| inner.filter_all_remaining())
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let code = match &mut self.inner {
            Some(inner) => inner.filter_cell(cell)?,
            None => ReturnCode::Include,
        };
        if cell.family() < &self.first_family[..] || is_mob_reference(cell) {
            return Ok(code);
        }
        Ok(match code {
            ReturnCode::Include => ReturnCode::Skip,
            ReturnCode::IncludeAndNextCol => ReturnCode::NextCol,
            ReturnCode::IncludeAndSeekNextRow => ReturnCode::NextRow,
            dropped => dropped,
        })
    }

    fn transform_cell(&mut self, cell: Cell) -> Result<Cell> {
        match &mut self.inner {
            Some(inner) => inner.transform_cell(cell),
            None => Ok(cell),
        }
    }

    fn transforms(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.transforms())
    }

    fn filter_row_cells(&mut self, cells: &mut Vec<Cell>) -> Result<()> {
        self.inner.as_mut().map_or(Ok(()), |inner| inner.filter_row_cells(cells))
    }

    fn has_filter_row(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.has_filter_row())
    }

    fn filter_row(&mut self) -> Result<bool> {
        self.inner.as_mut().map_or(Ok(false), |inner| inner.filter_row())
    }

    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        self.inner.as_mut().map_or(Ok(None), |inner| inner.next_cell_hint(cell))
    }

    fn is_family_essential(&self, family: &[u8]) -> Result<bool> {
        self.inner.as_ref().map_or(Ok(true), |inner| inner.is_family_essential(family))
    }

    fn is_hinting(&self) -> bool {
        self.inner.as_ref().is_some_and(|inner| inner.is_hinting())
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
        if let Some(inner) = &mut self.inner {
            inner.set_reversed(reversed);
        }
    }

    fn is_reversed(&self) -> bool {
        self.reversed
    }
}
