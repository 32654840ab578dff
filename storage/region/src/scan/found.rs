//! What a scan's cells are appended to.

use halcyon_cell::{Cell, SharedCells};

use super::source::Heap;

/// Where a scan puts the cells that it finds: each by itself, or those of a block together.
pub(super) trait FoundCells {
    fn count(&self) -> usize;

    /// Appends the cell that `heap` stands on, if it does.
    fn push_from(&mut self, heap: &Heap);

    /// Appends a cell that was made anew.
    fn push(&mut self, cell: Cell);

    /// Keeps the first `count`.
    fn truncate(&mut self, count: usize);

    /// Removes those from `start` on and returns them.
    fn split_off(&mut self, start: usize) -> Vec<Cell>;
}

impl FoundCells for Vec<Cell> {
    fn count(&self) -> usize {
        self.len()
    }

    fn push_from(&mut self, heap: &Heap) {
        self.extend(heap.cell());
    }

    fn push(&mut self, cell: Cell) {
        Vec::push(self, cell);
    }

    fn truncate(&mut self, count: usize) {
        Vec::truncate(self, count);
    }

    fn split_off(&mut self, start: usize) -> Vec<Cell> {
        Vec::split_off(self, start)
    }
}

impl FoundCells for SharedCells {
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn push_from(&mut self, heap: &Heap) {
        heap.share(self);
    }

    fn push(&mut self, cell: Cell) {
        SharedCells::push(self, cell);
    }

    fn truncate(&mut self, count: usize) {
        SharedCells::truncate(self, count);
    }

    fn split_off(&mut self, start: usize) -> Vec<Cell> {
        SharedCells::split_off(self, start)
    }
}
