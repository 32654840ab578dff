//! The sources of a store, and their merge.
//!
//! ```text
//! Source   one segment in memory, or one file: cells in order, none above the read point
//! Heap     several of them as one order; the smallest cell is on top (HBase: `KeyValueHeap`)
//! ```
//!
//! Sources are given newest first: of equal cells that of the newer source comes out first. `seek` goes anywhere; `next`
//! and `reseek` only forward, and move no source that need not move.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use halcyon_cell::{Cell, CellRef, CellScanner, KeyRef, ReadPoint, Result, SeqId, SharedCells};
use halcyon_env::{INVARIANTS, Witness};
use halcyon_hfile::{BlockReads, HFileScanner, HalfScanner};
use halcyon_memstore::{FlatScanner, SegmentScanner};

/// One sorted source of a store. An enum rather than a boxed trait, so that `peek` and `next` are inlined into the merge.
pub(crate) enum Source {
    /// Hides cells above its read point by itself.
    Segment(SegmentScanner),
    /// Likewise.
    Flat(FlatScanner),
    File(UpTo<HFileScanner>),
    /// Some rows of a file, for a reference.
    Half(UpTo<HalfScanner>),
    /// Cells in memory, for scan metrics.
    Counted(Box<Counted>),
}

/// The same call on whichever scanner it is.
macro_rules! delegate {
    ($source:expr, $scanner:ident => $call:expr) => {
        match $source {
            Source::Segment($scanner) => $call,
            Source::Flat($scanner) => $call,
            Source::File($scanner) => $call,
            Source::Half($scanner) => $call,
            Source::Counted($scanner) => $call,
        }
    };
}

impl Source {
    /// The same source, counting what it comes to in memory if `reads` is of scan metrics.
    pub fn counting(self, reads: Option<&Arc<BlockReads>>) -> Source {
        match reads.filter(|reads| reads.clock.is_some()) {
            Some(reads) => Source::Counted(Box::new(Counted { source: self, reads: reads.clone() })),
            None => self,
        }
    }

    #[inline]
    pub fn peek(&self) -> Option<CellRef<'_>> {
        match self {
            Source::File(scanner) => scanner.peek(),
            _ => self.peek_elsewhere(),
        }
    }

    /// Apart from files, so that looking at a file's cell takes no call.
    fn peek_elsewhere(&self) -> Option<CellRef<'_>> {
        delegate!(self, scanner => scanner.peek())
    }

    pub fn cell(&self) -> Option<Cell> {
        delegate!(self, scanner => scanner.cell())
    }

    #[inline]
    fn share(&self, out: &mut SharedCells) {
        delegate!(self, scanner => scanner.share(out))
    }

    #[inline]
    pub fn next(&mut self) -> Result<()> {
        delegate!(self, scanner => scanner.next())
    }

    pub fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        delegate!(self, scanner => scanner.seek(key))
    }

    pub fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        delegate!(self, scanner => scanner.reseek(key))
    }

    pub fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()> {
        delegate!(self, scanner => scanner.seek_before(key))
    }

    pub fn seek_to_last(&mut self) -> Result<()> {
        delegate!(self, scanner => scanner.seek_to_last())
    }
}

/// Adds up the bytes of the cells that a source in memory comes to.
pub(crate) struct Counted {
    source: Source,
    reads: Arc<BlockReads>,
}

impl Counted {
    fn count(&self) {
        let bytes = self.source.peek().map_or(0, |cell| cell.bytes().len() as u64);
        self.reads.memory_bytes.fetch_add(bytes, Relaxed);
    }
}

impl CellScanner for Counted {
    fn peek(&self) -> Option<CellRef<'_>> {
        self.source.peek()
    }

    fn cell(&self) -> Option<Cell> {
        self.source.cell()
    }

    fn share(&self, out: &mut SharedCells) {
        self.source.share(out);
    }

    fn next(&mut self) -> Result<()> {
        self.source.next()?;
        self.count();
        Ok(())
    }

    fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.source.seek(key)?;
        self.count();
        Ok(())
    }

    fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.source.reseek(key)?;
        self.count();
        Ok(())
    }

    fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.source.seek_before(key)?;
        self.count();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.source.seek_to_last()?;
        self.count();
        Ok(())
    }
}

/// A file's scanner that passes over cells above a read point.
pub(crate) struct UpTo<S> {
    scanner: S,
    /// [`ReadPoint::NEWEST`] where the file holds none above it.
    read_point: ReadPoint,
}

impl<S: CellScanner> UpTo<S> {
    pub fn new(scanner: S, read_point: ReadPoint) -> UpTo<S> {
        UpTo { scanner, read_point }
    }

    #[inline]
    fn pass_over_newer(&mut self) -> Result<()> {
        if self.read_point.is_newest() {
            return Ok(());
        }
        while self.scanner.peek().is_some_and(|cell| !self.read_point.sees(SeqId::new(cell.seq()))) {
            self.scanner.next()?;
        }
        Ok(())
    }

    /// Equal keys stand newest first, so when the last of them is too new for the read point all of them are.
    fn pass_back_over_newer(&mut self) -> Result<()> {
        while let Some(cell) = self.scanner.peek()
            && !self.read_point.sees(SeqId::new(cell.seq()))
        {
            let key = cell.key().to_key();
            self.scanner.seek_before(key.get())?;
        }
        Ok(())
    }
}

impl<S: CellScanner> CellScanner for UpTo<S> {
    #[inline]
    fn peek(&self) -> Option<CellRef<'_>> {
        self.scanner.peek()
    }

    fn cell(&self) -> Option<Cell> {
        self.scanner.cell()
    }

    #[inline]
    fn share(&self, out: &mut SharedCells) {
        self.scanner.share(out);
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.scanner.next()?;
        self.pass_over_newer()
    }

    fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.scanner.seek(key)?;
        self.pass_over_newer()
    }

    fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.scanner.reseek(key)?;
        self.pass_over_newer()
    }

    /// Goes to the last visible cell before `key`.
    fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.scanner.seek_before(key)?;
        self.pass_back_over_newer()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.scanner.seek_to_last()?;
        self.pass_back_over_newer()
    }
}

/// Merges sources into one order. Sources are given newest first: of equal cells the newer source's comes out
/// first.
pub(crate) struct Heap {
    comparator: halcyon_cell::CellComparator,
    sources: Vec<Source>,
    /// Indices of the sources that have a cell, as a binary heap with the smallest cell on top.
    order: Vec<u32>,
    /// Which of the two behind the top is the smaller one, as long as only the top moves: it alone has to be compared.
    runner_up: Option<usize>,
    /// The cell on top before this one; none after a seek.
    last: Witness<Option<Cell>>,
}

impl Heap {
    pub fn new(comparator: halcyon_cell::CellComparator, sources: Vec<Source>) -> Heap {
        let order = Vec::with_capacity(sources.len());
        Heap { comparator, sources, order, runner_up: None, last: Witness::default() }
    }

    /// Bytes of the blocks that files' scanners stand on.
    pub fn held_bytes(&self) -> usize {
        let of = |source: &Source| match source {
            Source::Segment(_) | Source::Flat(_) | Source::Counted(_) => 0, // the memstore's
            Source::File(file) => file.scanner.held_bytes(),
            Source::Half(half) => half.scanner.held_bytes(),
        };
        self.sources.iter().map(of).sum()
    }

    /// What is merged, exhausted or not.
    pub fn sources_count(&self) -> usize {
        self.sources.len()
    }

    pub fn comparator(&self) -> halcyon_cell::CellComparator {
        self.comparator
    }

    #[inline]
    pub fn peek(&self) -> Option<CellRef<'_>> {
        self.order.first().and_then(|&top| self.sources[top as usize].peek())
    }

    pub fn cell(&self) -> Option<Cell> {
        self.order.first().and_then(|&top| self.sources[top as usize].cell())
    }

    /// Appends the cell that it stands on, if it does.
    #[inline]
    pub fn share(&self, out: &mut SharedCells) {
        if let Some(&top) = self.order.first() {
            self.sources[top as usize].share(out);
        }
    }

    #[inline]
    pub fn next(&mut self) -> Result<()> {
        let Some(&top) = self.order.first() else { return Ok(()) };
        self.sources[top as usize].next()?;
        self.settle_top();
        Ok(())
    }

    /// Goes to the first cell not before `key`, from anywhere.
    pub fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        for source in &mut self.sources {
            source.seek(key)?;
        }
        self.rebuild();
        Ok(())
    }

    /// As `seek`, for a key that is not before the current cell: moves only the sources that are behind it.
    pub fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        while let Some(&top) = self.order.first() {
            let source = &mut self.sources[top as usize];
            let cell = source.peek().expect("a source in the heap has a cell");
            if self.comparator.compare_keys(cell.key(), key) != Ordering::Less {
                break;
            }
            source.reseek(key)?;
            self.settle_top();
        }
        Ok(())
    }

    /// Goes to the first cell of the last row that has a cell before `key`; with `None`, of the very last
    /// row. The heap is empty afterwards if there is none.
    pub fn seek_to_row_before(&mut self, key: Option<KeyRef<'_>>) -> Result<()> {
        let mut last: Option<Vec<u8>> = None;
        for source in &mut self.sources {
            match key {
                Some(key) => source.seek_before(key)?,
                None => source.seek_to_last()?,
            }
            let Some(cell) = source.peek() else { continue };
            let row = cell.row();
            let later = match &last {
                None => true,
                Some(best) => self.comparator.compare_rows(row, best) == Ordering::Greater,
            };
            if later {
                last = Some(row.to_vec());
            }
        }
        match last {
            Some(row) => self.seek(halcyon_cell::Key::first_on_row(&row).get()),
            None => {
                self.order.clear();
                self.runner_up = None;
                Ok(())
            }
        }
    }

    fn rebuild(&mut self) {
        self.order.clear();
        self.runner_up = None;
        for at in 0..self.sources.len() {
            if self.sources[at].peek().is_some() {
                self.order.push(at as u32);
            }
        }
        for at in (0..self.order.len() / 2).rev() {
            self.sift_down(at);
        }
        self.last = Witness::default();
        self.check_top();
    }

    /// The cell on top is the smallest of all, and not before the one that was there last.
    #[inline]
    fn check_top(&mut self) {
        if !INVARIANTS || self.order.is_empty() {
            return;
        }
        let is_least = (1..self.order.len()).all(|at| !self.before(self.order[at], self.order[0]));
        assert!(is_least, "a cell below the top of the heap is smaller: it would come out too late");
        let top = self.sources[self.order[0] as usize].cell().expect("a source in the heap has a cell");
        let comparator = self.comparator;
        self.last.check(|last| {
            if let Some(last) = last {
                let order = comparator.compare(last.get(), top.get());
                assert!(order != Ordering::Greater, "{top:?} comes after {last:?}: a merge never goes back");
            }
            *last = Some(top);
        });
    }

    /// Restores the order after the top source moved forward or ended.
    #[inline]
    fn settle_top(&mut self) {
        if self.sources[self.order[0] as usize].peek().is_none() {
            self.order.swap_remove(0);
            self.runner_up = None;
        }
        if self.order.len() < 2 {
            return self.check_top();
        }
        let child = match self.runner_up {
            Some(child) => child,
            None => {
                let right_is_less = self.order.len() > 2 && self.before(self.order[2], self.order[1]);
                *self.runner_up.insert(1 + usize::from(right_is_less))
            }
        };
        if self.before(self.order[child], self.order[0]) {
            self.order.swap(0, child);
            self.runner_up = None;
            self.sift_down(child);
        }
        self.check_top();
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.order.len() && self.before(self.order[child], self.order[least]) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.order.swap(at, least);
            at = least;
        }
    }

    #[inline]
    fn before(&self, left: u32, right: u32) -> bool {
        let a = self.sources[left as usize].peek().expect("a source in the heap has a cell");
        let b = self.sources[right as usize].peek().expect("a source in the heap has a cell");
        match self.comparator.compare_rows(a.row(), b.row()) {
            Ordering::Equal => self.comparator.compare(a, b).then(left.cmp(&right)) == Ordering::Less,
            unequal => unequal == Ordering::Less,
        }
    }
}
