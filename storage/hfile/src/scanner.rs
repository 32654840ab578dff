//! Walks a file's cells. The position is one cell's place in one block, and the way to that block in the index.

use std::sync::Arc;

use halcyon_cache::{Block, BlockKind};
use halcyon_cell::{Cell, CellRef, CellScanner, Error, KeyRef, Result};

use crate::data_block::{self, CellLayout, CellSpan, Marks, cell_at};
use crate::index::IndexCursor;
use crate::reader::{HFile, ReadMode};

/// A scanner over one file; see [`CellScanner`] for what its verbs promise.
///
/// It holds on to the block under it, and cells it gave out hold on to theirs. Not thread-safe, but may move
/// between threads.
pub struct HFileScanner {
    file: Arc<HFile>,
    mode: ReadMode,
    cache_blocks: bool,
    layout: CellLayout,
    index: IndexCursor,
    /// The block under the scanner; `None` when it stands nowhere.
    block: Option<Arc<Block>>,
    /// The cell under the scanner; all zeros when it stands nowhere.
    span: CellSpan,
}

const NOWHERE: CellSpan = CellSpan { start: 0, end: 0, next: 0, seq: 0 };

impl HFileScanner {
    pub(crate) fn new(file: Arc<HFile>, mode: ReadMode, cache_blocks: bool) -> HFileScanner {
        let layout = file.layout();
        HFileScanner {
            file,
            mode,
            cache_blocks,
            layout,
            index: IndexCursor::default(),
            block: None,
            span: NOWHERE,
        }
    }

    pub fn file(&self) -> &Arc<HFile> {
        &self.file
    }

    /// Goes to the first cell of the file.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.leave();
        if self.index.seek_to_first(&self.file, self.mode)? {
            self.enter_block()?;
            self.stand_at(0);
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.block = None;
        self.span = NOWHERE;
    }

    /// Takes the block under the index cursor. On an error the scanner stands nowhere.
    fn enter_block(&mut self) -> Result<()> {
        let place = self.index.place(&self.file);
        match self.file.load_block(place, BlockKind::Data, self.mode, self.cache_blocks) {
            Ok(block) => {
                self.block = Some(block);
                Ok(())
            }
            Err(error) => {
                self.leave();
                self.index.clear();
                Err(error)
            }
        }
    }

    #[inline]
    fn stand_at(&mut self, start: usize) {
        self.span = cell_at(self.bytes(), start, self.layout);
    }

    /// The payload under the scanner, empty when it stands nowhere.
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.block.as_ref().map_or(&[], |block| block.bytes())
    }

    /// The marks of the block that the scanner has.
    fn marks(&self) -> Marks<'_> {
        Marks::of(self.block.as_ref().map_or(&[], |block| block.marks()))
    }

    fn next_block(&mut self) -> Result<()> {
        match self.index.next(&self.file, self.mode) {
            Ok(true) => {
                self.enter_block()?;
                self.stand_at(0);
                Ok(())
            }
            Ok(false) => {
                self.leave();
                Ok(())
            }
            Err(error) => {
                self.leave();
                Err(error)
            }
        }
    }

    /// Goes to the first cell from `from` on in this block that is not before `key`, else into the next block.
    fn seek_in_block(&mut self, key: KeyRef<'_>, from: usize) -> Result<()> {
        let comparator = self.file.comparator();
        match data_block::seek(self.bytes(), self.marks(), self.layout, comparator, key, from) {
            Some(start) => {
                self.stand_at(start);
                Ok(())
            }
            // The index says that the next block's cells are all behind the key.
            None => self.next_block(),
        }
    }
}

impl CellScanner for HFileScanner {
    #[inline]
    fn peek(&self) -> Option<CellRef<'_>> {
        let block = self.block.as_ref()?;
        if self.span.next == 0 { None } else { Some(self.span.cell(block.bytes())) }
    }

    fn cell(&self) -> Option<Cell> {
        let block = self.block.as_ref().filter(|_| self.span.next != 0)?;
        Some(Cell::trusted(block.bytes().slice(self.span.start..self.span.end), self.span.seq))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let Some(block) = &self.block else { return Ok(()) };
        let next = self.span.next;
        if next < block.bytes().len() {
            self.span = cell_at(block.bytes(), next, self.layout);
            return Ok(());
        }
        self.next_block()
    }

    fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.leave();
        if !self.index.seek(&self.file, key, self.mode)? {
            return Ok(());
        }
        self.enter_block()?;
        self.seek_in_block(key, 0)
    }

    fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        let comparator = self.file.comparator();
        let Some(cell) = self.peek() else { return self.seek(key) };
        if comparator.compare_keys(cell.key(), key).is_ge() {
            return Ok(());
        }
        let last = cell_at(self.bytes(), self.marks().last_cell(), self.layout);
        if comparator.compare_keys(last.cell(self.bytes()).key(), key).is_ge() {
            return self.seek_in_block(key, self.span.start);
        }
        self.seek(key)
    }

    fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.leave();
        let comparator = self.file.comparator();
        if !self.index.seek_before(&self.file, key, self.mode)? {
            return Ok(());
        }
        // An index key may be before all cells of its block, so the cell may be one block further back.
        for _ in 0..2 {
            self.enter_block()?;
            let found = data_block::seek_before(self.bytes(), self.marks(), self.layout, comparator, key);
            if let Some(start) = found {
                self.stand_at(start);
                return Ok(());
            }
            self.leave();
            if !self.index.previous(&self.file, self.mode)? {
                return Ok(());
            }
        }
        let message = format!("index: expected a cell before {key:?} two blocks back, found none");
        Err(Error::corrupt(message).context(self.file.path().display()))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.leave();
        if self.index.seek_to_last(&self.file, self.mode)? {
            self.enter_block()?;
            self.stand_at(self.marks().last_cell());
        }
        Ok(())
    }
}
