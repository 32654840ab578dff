use crate::{Cell, CellRef, KeyRef, Result, SharedCells};

/// Walks the cells of one sorted source (a memstore segment, an HFile) in comparator order.
///
/// A new scanner stands nowhere; seek first. After an error of kind `NeedsDisk` the position is lost: seek
/// again, or drop the scanner. Not thread-safe; one reader owns it.
pub trait CellScanner: Send {
    /// The cell under the scanner; `None` before the first seek and past the end.
    fn peek(&self) -> Option<CellRef<'_>>;

    /// The same cell, shared: holds on to its chunk or block, copies no value bytes.
    fn cell(&self) -> Option<Cell>;

    /// Appends the same cell to others, of which those of one block hold on to it together.
    fn share(&self, out: &mut SharedCells);

    /// Goes to the next cell. Does nothing at the end.
    fn next(&mut self) -> Result<()>;

    /// Goes to the first cell whose key is not before `key`, wherever the scanner stands now.
    fn seek(&mut self, key: KeyRef<'_>) -> Result<()>;

    /// As `seek`, for a `key` at or after the current position: looks nearby first.
    fn reseek(&mut self, key: KeyRef<'_>) -> Result<()>;

    /// Goes to the last cell whose key is before `key`; past the end (`peek` is `None`) if there is none.
    fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()>;

    /// Goes to the very last cell.
    fn seek_to_last(&mut self) -> Result<()>;
}

impl<T: CellScanner + ?Sized> CellScanner for Box<T> {
    fn peek(&self) -> Option<CellRef<'_>> {
        (**self).peek()
    }

    fn cell(&self) -> Option<Cell> {
        (**self).cell()
    }

    fn share(&self, out: &mut SharedCells) {
        (**self).share(out)
    }

    fn next(&mut self) -> Result<()> {
        (**self).next()
    }

    fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        (**self).seek(key)
    }

    fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        (**self).reseek(key)
    }

    fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()> {
        (**self).seek_before(key)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        (**self).seek_to_last()
    }
}
