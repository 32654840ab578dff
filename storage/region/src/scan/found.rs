use halcyon_cell::{Cell, SharedCells};

use super::source::Heap;

/// Where a scan puts the cells that it finds: each by itself, or those of a block together.
pub(super) trait FoundCells {
    fn count(&self) -> usize;

    /// Takes the cell that `heap` stands on, if it does.
    fn take_from(&mut self, heap: &Heap);

    /// Takes a cell that was made anew.
    fn take(&mut self, cell: Cell);

    /// Leaves the first `count`.
    fn cut(&mut self, count: usize);

    /// Takes those from `start` on out.
    fn take_out(&mut self, start: usize) -> Vec<Cell>;
}

impl FoundCells for Vec<Cell> {
    fn count(&self) -> usize {
        self.len()
    }

    fn take_from(&mut self, heap: &Heap) {
        self.extend(heap.cell());
    }

    fn take(&mut self, cell: Cell) {
        self.push(cell);
    }

    fn cut(&mut self, count: usize) {
        self.truncate(count);
    }

    fn take_out(&mut self, start: usize) -> Vec<Cell> {
        self.split_off(start)
    }
}

impl FoundCells for SharedCells {
    fn count(&self) -> usize {
        self.len()
    }

    #[inline]
    fn take_from(&mut self, heap: &Heap) {
        heap.share(self);
    }

    fn take(&mut self, cell: Cell) {
        self.push(cell);
    }

    fn cut(&mut self, count: usize) {
        self.truncate(count);
    }

    fn take_out(&mut self, start: usize) -> Vec<Cell> {
        self.split_off(start)
    }
}
