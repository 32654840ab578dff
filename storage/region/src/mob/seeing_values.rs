//! A filter of a scan that finds references: what looks at values is shown those, wherever they stand. So the answer does not
//! depend on whether a cell was flushed. HBase's filters see the reference, once there is one.

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, Key, Result};
use halcyon_filter::{Filter, ReturnCode};

use super::MobReader;

/// The scan's own filter, in a scan of families whose values may stand in mob files.
pub(crate) struct SeeingValues {
    inner: Box<dyn Filter>,
    /// By family.
    readers: Vec<(Bytes, MobReader)>,
}

impl SeeingValues {
    pub fn new(inner: Box<dyn Filter>, readers: Vec<(Bytes, MobReader)>) -> SeeingValues {
        SeeingValues { inner, readers }
    }

    /// The cell that a reference stands for, if the filter looks at its value. Errors as for [`MobReader::resolved`].
    fn resolved(&self, cell: CellRef<'_>) -> Result<Option<Cell>> {
        match self.reader(cell) {
            Some(reader) if reader.is_reference(cell) && self.inner.looks_at_value(cell) => {
                reader.looked_at(cell)
            }
            _ => Ok(None),
        }
    }

    fn reader(&self, cell: CellRef<'_>) -> Option<&MobReader> {
        self.readers.iter().find(|(family, _)| family == cell.family()).map(|(_, reader)| reader)
    }
}

impl Filter for SeeingValues {
    fn cost(&self) -> u32 {
        self.inner.cost()
    }

    fn filters_count(&self) -> u32 {
        self.inner.filters_count()
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.inner.held_bytes()
    }

    fn reset(&mut self) -> Result<()> {
        self.readers.iter().for_each(|(_, reader)| reader.forget());
        self.inner.reset()
    }

    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        self.inner.filter_row_key(first)
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        self.inner.filter_all_remaining()
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let Some(resolved) = self.resolved(cell)? else { return self.inner.filter_cell(cell) };
        let code = self.inner.filter_cell(resolved.get());
        // A value of any size would stay with the scanner for as long as that is open.
        if !code.as_ref().is_ok_and(|code| code.is_include()) {
            self.reader(cell).into_iter().for_each(MobReader::forget);
        }
        code
    }

    fn looks_at_value(&self, cell: CellRef<'_>) -> bool {
        self.inner.looks_at_value(cell)
    }

    fn transform_cell(&mut self, cell: Cell) -> Result<Cell> {
        let resolved = self.resolved(cell.get())?;
        if resolved.is_some() {
            self.reader(cell.get()).into_iter().for_each(MobReader::forget); // what becomes of it is returned
        }
        self.inner.transform_cell(resolved.unwrap_or(cell))
    }

    fn transforms(&self) -> bool {
        self.inner.transforms()
    }

    fn filter_row_cells(&mut self, cells: &mut Vec<Cell>) -> Result<()> {
        self.inner.filter_row_cells(cells)
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

    fn is_family_essential(&self, family: &[u8]) -> Result<bool> {
        self.inner.is_family_essential(family)
    }

    fn is_hinting(&self) -> bool {
        self.inner.is_hinting()
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.inner.set_reversed(reversed);
    }

    fn is_reversed(&self) -> bool {
        self.inner.is_reversed()
    }
}
