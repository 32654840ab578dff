//! Walks a file's cells. The position is one cell's place in one block, and the way to that block in the index.
//!
//! Cells of most blocks lie in the block itself. A block of differences is decoded run by run (`encoding/runs.rs`): the
//! scanner then holds the plain cells of one run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use halcyon_cache::{Block, BlockKind};
use halcyon_cell::{Cell, CellRef, CellScanner, Error, KeyRef, Result, SharedCells};
use halcyon_env::{Clock, invariant};

use crate::data_block::{self, CellLayout, CellSpan, Marks, cell_at};
use crate::encoding::Runs;
use crate::index::IndexCursor;
use crate::read_mode::ReadMode;
use crate::reader::HFile;

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
    /// Plain cells of the block, or of the run of it under the scanner; empty when it stands nowhere.
    cells: Bytes,
    /// The run that `cells` are of; 0 in a block whose cells lie there whole.
    run: usize,
    /// The cell under the scanner, in `cells`; all zeros when it stands nowhere.
    span: CellSpan,
    /// Where to count blocks; `None`: nobody asks.
    reads: Option<Arc<BlockReads>>,
}

/// What the scanners of one scan took: data blocks, and for scan metrics cells in memory.
#[derive(Default)]
pub struct BlockReads {
    /// Of scan metrics: reads of the disk are timed by it, and cells in memory are counted. Others do without both.
    pub clock: Option<Arc<dyn Clock>>,
    /// Bytes of all of them, plain.
    pub scanned_bytes: AtomicU64,
    /// Those that were not in the cache, and their bytes in the file.
    pub disk_count: AtomicU64,
    pub disk_bytes: AtomicU64,
    /// How long those took, with a clock.
    pub disk_ns: AtomicU64,
    /// Bytes in the file of those that were in the cache.
    pub cached_bytes: AtomicU64,
    /// Bytes of the cells that were looked at in memory, as KeyValues; with a clock.
    pub memory_bytes: AtomicU64,
}

impl std::fmt::Debug for BlockReads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockReads").field("disk_bytes", &self.disk_bytes).finish_non_exhaustive()
    }
}

impl BlockReads {
    pub fn for_metrics(clock: Arc<dyn Clock>) -> BlockReads {
        BlockReads { clock: Some(clock), ..BlockReads::default() }
    }

    fn now_ns(&self) -> u64 {
        self.clock.as_ref().map_or(0, |clock| clock.monotonic_ns())
    }

    fn count(&self, block: &Block, on_disk_bytes: u64, began_ns: Option<u64>, is_from_disk: bool) {
        self.scanned_bytes.fetch_add(block.bytes().len() as u64, Ordering::Relaxed);
        if !is_from_disk {
            self.cached_bytes.fetch_add(on_disk_bytes, Ordering::Relaxed);
            return;
        }
        self.disk_count.fetch_add(1, Ordering::Relaxed);
        self.disk_bytes.fetch_add(on_disk_bytes, Ordering::Relaxed);
        let took_ns = self.now_ns().saturating_sub(began_ns.unwrap_or_default());
        self.disk_ns.fetch_add(took_ns, Ordering::Relaxed);
    }
}

/// A block under a counter of its own. Each cell that is given out counts a reference, and who walks through blocks
/// gives out many: on the block's own counter, which all its readers write, two scans of the same rows would wait for
/// each other at every cell. A read of one row stays with the block's counter and allocates nothing.
struct WalkedBlock(Arc<Block>);

impl AsRef<[u8]> for WalkedBlock {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

const NOWHERE: CellSpan = CellSpan { start: 0, end: 0, next: 0, seq: 0 };

impl HFile {
    pub fn scanner(self: &Arc<Self>, mode: ReadMode, cache_blocks: bool) -> HFileScanner {
        HFileScanner::new(self.clone(), mode, cache_blocks)
    }
}

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
            cells: Bytes::new(),
            run: 0,
            span: NOWHERE,
            reads: None,
        }
    }

    /// Counts the blocks that it takes from here on.
    pub fn counting(self, reads: Option<Arc<BlockReads>>) -> HFileScanner {
        HFileScanner { reads, ..self }
    }

    pub fn file(&self) -> &Arc<HFile> {
        &self.file
    }

    /// Bytes of memory of the block that the scanner stands on, and of what was decoded of it. The block may be in the
    /// cache as well.
    pub fn held_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| block.weight_bytes() as usize);
        block + if self.run > 0 { self.cells.len() } else { 0 }
    }

    #[cfg(test)]
    pub(crate) fn block_for_test(&self) -> &Arc<Block> {
        self.block.as_ref().expect("the scanner stands on a cell")
    }

    /// Goes to the first cell of the file.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.leave();
        if self.index.seek_to_first(&*self.file, self.mode)? {
            self.enter_block()?;
        }
        Ok(())
    }

    fn leave(&mut self) {
        self.block = None;
        self.cells = Bytes::new();
        self.span = NOWHERE;
    }

    /// Takes the block under the index cursor. On an error the scanner stands nowhere.
    fn load_block(&mut self) -> Result<()> {
        let place = self.index.place(&*self.file);
        let began_ns = self.reads.as_ref().map(|reads| reads.now_ns());
        let loaded = self.file.find_block(place, BlockKind::Data, self.mode, self.cache_blocks);
        let (block, is_from_disk) = self.or_nowhere(loaded)?;
        if let Some(reads) = &self.reads {
            reads.count(&block, u64::from(place.on_disk_len), began_ns, is_from_disk);
        }
        self.block = Some(block);
        self.cells = Bytes::new();
        Ok(())
    }

    /// Takes the cells of a run of the block. On an error the scanner stands nowhere.
    fn enter_run(&mut self, run: usize) -> Result<()> {
        let block = self.block.as_ref().expect("a block was loaded");
        let cells = self.file.plain_cells(block, run);
        let named = |e: Error| e.context(self.file.source().place(self.index.place(&*self.file).offset));
        let cells = cells.map_err(named);
        self.cells = self.or_nowhere(cells)?;
        assert!(!self.cells.is_empty(), "run {run} has a cell: a block or a run without one is refused");
        self.run = run;
        Ok(())
    }

    fn or_nowhere<T>(&mut self, result: Result<T>) -> Result<T> {
        result.inspect_err(|_| {
            self.leave();
            self.index.clear();
        })
    }

    /// Takes the block under the index cursor and stands at its first cell.
    fn enter_block(&mut self) -> Result<()> {
        self.load_block()?;
        self.enter_run(0)?;
        self.stand_at(0);
        Ok(())
    }

    /// The runs of the block; `None` if its cells lie there whole, or there is no block.
    fn runs(&self) -> Option<Runs<'_>> {
        self.block.as_ref().and_then(|block| self.file.runs(block))
    }

    #[inline]
    fn stand_at(&mut self, start: usize) {
        invariant!(
            self.block.is_some(),
            "a scanner that stands on a cell knows its block, to go on from there"
        );
        self.span = cell_at(&self.cells, start, self.layout);
    }

    /// The marks of the block that the scanner has, whose cells lie there whole.
    fn marks(&self) -> Marks<'_> {
        Marks::of(self.block.as_ref().map_or(&[], |block| block.marks()))
    }

    /// The last key of the block that the scanner has.
    fn last_key(&self) -> KeyRef<'_> {
        match self.runs() {
            Some(runs) => runs.last_key(runs.count() - 1),
            None => cell_at(&self.cells, self.marks().last_cell(), self.layout).cell(&self.cells).key(),
        }
    }

    /// Goes to the first cell behind `cells`.
    fn next_run(&mut self) -> Result<()> {
        if self.runs().is_some_and(|runs| self.run + 1 < runs.count()) {
            self.enter_run(self.run + 1)?;
            self.stand_at(0);
            return Ok(());
        }
        self.next_block()
    }

    fn next_block(&mut self) -> Result<()> {
        match self.index.next(&*self.file, self.mode) {
            Ok(true) => {
                self.enter_block()?;
                self.count_alone();
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

    /// Cells of the block are given out under a counter that only this scanner's cells write.
    fn count_alone(&mut self) {
        if let Some(block) = &self.block
            && self.file.runs(block).is_none()
        {
            self.cells = Bytes::from_owner(WalkedBlock(block.clone()));
        }
    }

    /// Goes to the first cell of the block that is not before `key`, else into the next block. `from` is the start of
    /// a cell that is not behind it, in the run under the scanner if it has one.
    fn seek_in_block(&mut self, key: KeyRef<'_>, mut from: usize) -> Result<()> {
        let comparator = self.file.comparator();
        let found = if let Some(runs) = self.runs() {
            let (run, count) = (runs.find(comparator, key), runs.count());
            if run < count && (self.cells.is_empty() || run != self.run) {
                self.enter_run(run)?;
                from = 0;
            }
            if run < count { data_block::walk(&self.cells, self.layout, comparator, key, from) } else { None }
        } else {
            if self.cells.is_empty() {
                self.enter_run(0)?;
            }
            data_block::seek(&self.cells, self.marks(), self.layout, comparator, key, from)
        };
        match found {
            Some(start) => {
                self.stand_at(start);
                Ok(())
            }
            // The index says that the next block's cells are all behind the key.
            None => self.next_block(),
        }
    }

    /// Goes to the last cell of the block that is before `key`; `false` if there is none.
    fn seek_before_in_block(&mut self, key: KeyRef<'_>) -> Result<bool> {
        let comparator = self.file.comparator();
        let Some(runs) = self.runs() else {
            self.enter_run(0)?;
            let found = data_block::seek_before(&self.cells, self.marks(), self.layout, comparator, key);
            found.inspect(|&start| self.stand_at(start));
            return Ok(found.is_some());
        };
        // All runs in front of this one are before the key; it may begin behind it.
        let run = runs.find(comparator, key).min(runs.count() - 1);
        for run in [Some(run), run.checked_sub(1)].into_iter().flatten() {
            self.enter_run(run)?;
            self.stand_at(0);
            if comparator.compare_keys(self.span.cell(&self.cells).key(), key).is_lt() {
                let start = data_block::walk_before(&self.cells, self.layout, comparator, key, 0);
                self.stand_at(start);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl CellScanner for HFileScanner {
    #[inline]
    fn peek(&self) -> Option<CellRef<'_>> {
        if self.span.next == 0 { None } else { Some(self.span.cell(&self.cells)) }
    }

    #[inline]
    fn cell(&self) -> Option<Cell> {
        if self.span.next == 0 {
            return None;
        }
        Some(Cell::trusted(self.cells.slice(self.span.start..self.span.end), self.span.seq))
    }

    #[inline]
    fn share(&self, out: &mut SharedCells) {
        if self.span.next != 0 {
            out.push_slice(&self.cells, self.span.start..self.span.end, self.span.seq);
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let next = self.span.next;
        if next < self.cells.len() {
            self.span = cell_at(&self.cells, next, self.layout);
            return Ok(());
        }
        if self.block.is_none() { Ok(()) } else { self.next_run() }
    }

    fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.leave();
        if !self.index.seek(&*self.file, key, self.mode)? {
            return Ok(());
        }
        self.load_block()?;
        self.seek_in_block(key, 0)
    }

    fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        let comparator = self.file.comparator();
        let Some(cell) = self.peek() else { return self.seek(key) };
        if comparator.compare_keys(cell.key(), key).is_ge() {
            return Ok(());
        }
        // Behind an older version or the last cell of a row it is the next one.
        if self.span.next < self.cells.len() {
            self.stand_at(self.span.next);
            if comparator.compare_keys(self.span.cell(&self.cells).key(), key).is_ge() {
                return Ok(());
            }
        }
        if comparator.compare_keys(self.last_key(), key).is_ge() {
            return self.seek_in_block(key, self.span.start);
        }
        self.seek(key)
    }

    fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.leave();
        if !self.index.seek_before(&*self.file, key, self.mode)? {
            return Ok(());
        }
        // An index key may be before all cells of its block, so the cell may be one block further back.
        for _ in 0..2 {
            self.load_block()?;
            if self.seek_before_in_block(key)? {
                return Ok(());
            }
            self.leave();
            if !self.index.previous(&*self.file, self.mode)? {
                return Ok(());
            }
        }
        let message = format!("index: expected a cell before {key:?} two blocks back, found none");
        Err(Error::corrupt(message).context(self.file.path().display()))
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.leave();
        if !self.index.seek_to_last(&*self.file, self.mode)? {
            return Ok(());
        }
        self.load_block()?;
        self.enter_run(self.runs().map_or(0, |runs| runs.count() - 1))?;
        let last_mark = if self.runs().is_none() { self.marks().last_cell() } else { 0 };
        self.stand_at(last_mark);
        while self.span.next < self.cells.len() {
            self.stand_at(self.span.next);
        }
        Ok(())
    }
}
