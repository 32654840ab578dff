//! Reads one family of a region row by row: heap, matcher, limits inside a row (HBase: `StoreScanner`).
//!
//! The matcher decides for the cell on top of the heap: return it, skip it, or seek. [`StoreScanner::next`] carries that out.
//! A limit may interrupt a row; matcher and counters keep their state for the next call.

use std::cmp::Ordering;

use halcyon_cell::{
    Cell, CellComparator, CellRef, Error, ErrorKind, Key, KeyRef, ReadPoint, Result, SeqId, same_bytes,
};
use halcyon_env::{Impatience, Patience, invariant};
use halcyon_filter::Filter;

use super::found::FoundCells;
use super::matcher::{MatchCode, Matcher};
use super::row_size::RowSize;
use super::source::Heap;
use crate::mob::MobReader;
use crate::store::SeenMemory;

/// How often a long row or a long run of dropped cells looks at the clock.
const CELLS_BETWEEN_CLOCK_LOOKS: u32 = 128;

const _: () = assert!(CELLS_BETWEEN_CLOCK_LOOKS.is_power_of_two(), "asked for each cell: no division");

/// So many bytes that are copied cost a look.
const BYTES_OF_A_LOOK: usize = 1 << 10;

/// What a cell costs against the size limit beside its bytes. Clients compute limits with their own estimate of a
/// cell in memory, and so does HBase's server (`KeyValue.heapSize`).
const CELL_OVERHEAD_BYTES: i64 = 32;

/// Why a store stopped reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreState {
    /// Nothing more of this row.
    RowDone,
    BatchReached,
    SizeReached,
    TimeReached,
    /// The filter wants nothing more at all.
    ScanDone,
}

/// Limits inside a row, shared by the stores that are read one after the other.
pub(crate) struct Budget<'a> {
    /// Cells still wanted in this result; `u32::MAX`: no limit.
    pub cells_left: u32,
    pub size_bytes_left: &'a mut i64,
    pub row_size: &'a mut RowSize,
    pub may_cut_row: bool,
    pub deadline_ns: Option<u64>,
    pub clock: &'a dyn halcyon_env::Clock,
    /// See [`LookCost`].
    pub look: LookCost,
}

/// What it costs to look at a cell, with the filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookCost {
    cost: u32,
    /// So often, less one, the clock and the patience are asked; all its bits are ones.
    mask: u32,
}

impl LookCost {
    pub fn new(filter: Option<&dyn Filter>) -> LookCost {
        let cost = filter.map_or(1, Filter::cost).max(1);
        let between =
            (CELLS_BETWEEN_CLOCK_LOOKS / cost.checked_next_power_of_two().unwrap_or(u32::MAX)).max(1);
        assert!(between.is_power_of_two(), "asked for each cell: no division");
        LookCost { cost, mask: between - 1 }
    }

    /// So many cells were looked at, or are about to be.
    pub fn spend(&self, cells: u32) -> Result<()> {
        spend(self.cost.saturating_mul(cells))
    }
}

fn spend(looks: u32) -> Result<()> {
    Patience::spend(looks).map_err(|impatience| match impatience {
        Impatience::Spent => Error::new(ErrorKind::NeedsDisk, "it takes too long for this thread"),
        Impatience::Unwanted => Error::new(ErrorKind::Stopping, "nobody waits for the answer any more"),
    })
}

/// So many bytes were copied, or are about to be: a few long values take as long as many cells. Errors as for [`LookCost::spend`].
#[inline]
pub(crate) fn spend_on_bytes(bytes: usize) -> Result<()> {
    if bytes < BYTES_OF_A_LOOK {
        return Ok(()); // those are a part of the look at their cell
    }
    spend(u32::try_from(bytes / BYTES_OF_A_LOOK).unwrap_or(u32::MAX))
}

impl Budget<'_> {
    /// The limit that the cell just included has used up.
    fn limit_reached(&self) -> Option<StoreState> {
        if self.cells_left == 0 {
            return Some(StoreState::BatchReached);
        }
        (self.may_cut_row && *self.size_bytes_left <= 0).then_some(StoreState::SizeReached)
    }
}

/// Reads one family, row by row.
pub(crate) struct StoreScanner {
    heap: Heap,
    /// The number of the store in its region.
    pub store_at: usize,
    /// No cell above it comes out.
    read_point: ReadPoint,
    /// Only of a scanner that may stay open between calls.
    seen: Option<SeenMemory>,
    /// While the scanner has let go: the cell that it stood on.
    stood_on: Option<(Key, SeqId)>,
    matcher: Matcher,
    /// Follows references to mob files.
    mob: Option<MobReader>,
    reversed: bool,
    /// Most cells of a row after the skipped ones.
    limit: Option<u32>,
    offset: u32,
    cells_of_row: u32,
    /// Nobody asks what is behind the row that it reads.
    ends_with_row: bool,
}

impl StoreScanner {
    pub fn new(
        store_at: usize,
        read_point: ReadPoint,
        heap: Heap,
        matcher: Matcher,
        reversed: bool,
        limit: Option<u32>,
        offset: u32,
    ) -> StoreScanner {
        StoreScanner {
            heap,
            store_at,
            read_point,
            seen: None,
            stood_on: None,
            matcher,
            mob: None,
            reversed,
            limit,
            offset,
            cells_of_row: 0,
            ends_with_row: false,
        }
    }

    /// From now on cells come out with their values where these stand in mob files. What the filter sees is its own affair
    /// (`mob/seeing_values.rs`).
    pub fn resolving(self, mob: Option<MobReader>) -> StoreScanner {
        StoreScanner { mob, ..self }
    }

    /// When the row at hand is done it may stand anywhere, and is of no use any more.
    pub fn end_with_row(&mut self) {
        self.ends_with_row = true;
    }

    /// From now on `holds_flushed` can be told.
    pub fn remember(&mut self, seen: Option<SeenMemory>) {
        self.seen = seen;
    }

    /// Whether it may hold memory that is not the store's any more.
    pub fn holds_flushed(&self) -> bool {
        self.seen.as_ref().is_some_and(SeenMemory::has_left)
    }

    /// Gives up what it reads from, and remembers where it stands. Whatever it knows of the row that it is in stays.
    pub fn let_go(&mut self) -> Heap {
        self.stood_on = self.heap.peek().map(|cell| (cell.key().to_key(), SeqId::new(cell.seq())));
        self.seen = None;
        let nothing = Heap::new(self.heap.comparator(), Vec::new());
        std::mem::replace(&mut self.heap, nothing)
    }

    /// Goes on where `let_go` left off, in a heap of what the store has now. The cell that it stood on may be gone by
    /// now, if nobody at this read point could see it; it goes on with the next one then.
    pub fn open_again(&mut self, mut heap: Heap, seen: SeenMemory) -> Result<()> {
        assert!(
            self.seen.is_none() && self.heap.sources_count() == 0,
            "a scanner that goes on has let go of {} sources: their memory would stay",
            self.heap.sources_count()
        );
        if let Some((key, seq)) = &self.stood_on {
            heap.seek(key.get())?;
            let comparator = heap.comparator();
            let is_before = |cell: CellRef<'_>| {
                SeqId::new(cell.seq()) > *seq
                    && comparator.compare_keys(cell.key(), key.get()) == Ordering::Equal
            };
            while heap.peek().is_some_and(is_before) {
                heap.next()?;
            }
            let row = key.get().row();
            if heap.peek().is_none_or(|cell| cell.row() != row) {
                // Nothing is left of the row that could be seen.
                self.matcher.clear_row();
                if self.reversed {
                    heap.seek_to_row_before(Some(Key::first_on_row(row).get()))?;
                }
            }
            invariant!(
                self.reversed
                    || heap.peek().is_none_or(|cell| comparator.compare_keys(cell.key(), key.get()).is_ge()),
                "it goes on where it stood or behind that, at {key:?}: cells before it were returned"
            );
        }
        self.heap = heap;
        self.seen = Some(seen);
        self.stood_on = None;
        Ok(())
    }

    /// See [`Heap::held_bytes`]; and those of a value out of a mob file that the filter has looked at last.
    pub fn held_bytes(&self) -> usize {
        self.heap.held_bytes() + self.mob.as_ref().map_or(0, MobReader::held_bytes)
    }

    pub fn comparator(&self) -> CellComparator {
        self.heap.comparator()
    }

    /// The first cell of the row that comes next, or the next cell of the row being read.
    #[inline]
    pub fn peek(&self) -> Option<CellRef<'_>> {
        self.heap.peek()
    }

    /// Forward: to the first cell not before `key`.
    pub fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.matcher.clear_row();
        self.heap.seek(key)
    }

    /// Backward: to the first cell of the last row before `key`; `None`: of the last row.
    pub fn seek_to_row_before(&mut self, key: Option<KeyRef<'_>>) -> Result<()> {
        self.matcher.clear_row();
        self.heap.seek_to_row_before(key)
    }

    /// Forward, to `key` if that is ahead.
    pub fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.matcher.clear_row();
        self.heap.reseek(key)
    }

    /// Leaves `row`, wherever in it the scanner stands.
    pub fn skip_row(&mut self, row: &[u8]) -> Result<()> {
        self.matcher.clear_row();
        if self.heap.peek().is_some_and(|cell| cell.row() == row) {
            self.leave_row(row)?;
        }
        Ok(())
    }

    /// Goes on with the row that `peek` stands on and appends its cells to `out`, until the row ends or a
    /// limit is reached. After a limit the next call goes on in the same row.
    pub(super) fn next(
        &mut self,
        filter: &mut Option<Box<dyn Filter>>,
        budget: &mut Budget<'_>,
        out: &mut impl FoundCells,
    ) -> Result<StoreState> {
        let mut looks = 0;
        let state = self.read_row(filter, budget, out, &mut looks)?;
        // Those since the patience was asked last: most rows are shorter than that.
        let left = looks & budget.look.mask;
        if left > 0 {
            budget.look.spend(left)?;
        }
        Ok(state)
    }

    /// As [`StoreScanner::next`]; `looks` gets how many cells were looked at.
    fn read_row(
        &mut self,
        filter: &mut Option<Box<dyn Filter>>,
        budget: &mut Budget<'_>,
        out: &mut impl FoundCells,
        looks: &mut u32,
    ) -> Result<StoreState> {
        let Some(first) = self.heap.peek() else { return Ok(StoreState::RowDone) };
        if !self.matcher.on_row() {
            self.matcher.set_row(first.row());
            self.cells_of_row = 0;
        }
        loop {
            let Some(cell) = self.heap.peek() else {
                return self.row_done();
            };
            invariant!(
                self.read_point.sees(SeqId::new(cell.seq())),
                "{cell:?} of write {} is above the read point {}: a source has let it through",
                cell.seq(),
                self.read_point
            );
            if *looks > 0 && filter.is_none() && !self.reversed && !same_bytes(cell.row(), self.matcher.row())
            {
                self.matcher.clear_row(); // nobody has to be asked about it
                return Ok(StoreState::RowDone);
            }
            if let Some(filter) = filter
                && cell.value().len() >= BYTES_OF_A_LOOK
                && filter.looks_at_value(cell)
            {
                spend_on_bytes(cell.value().len())?;
            }
            let code = self.matcher.match_cell(cell, filter)?;
            match code {
                MatchCode::Include | MatchCode::IncludeAndSeekNextCol | MatchCode::IncludeAndSeekNextRow => {
                    self.cells_of_row += 1;
                    let included = self.cells_of_row > self.offset;
                    if included {
                        self.include(filter, budget, out)?;
                        budget.cells_left = budget.cells_left.saturating_sub(1);
                    }
                    let limit = budget.limit_reached().filter(|_| included);
                    if included && self.is_full() {
                        self.row_done()?;
                        return Ok(limit.unwrap_or(StoreState::RowDone));
                    }
                    if code == MatchCode::IncludeAndSeekNextRow {
                        self.row_done()?;
                        return Ok(limit.unwrap_or(StoreState::RowDone));
                    }
                    self.step_over_included(code)?;
                    if let Some(limit) = limit {
                        return self.stop_at(limit);
                    }
                }
                MatchCode::Skip => self.heap.next()?,
                MatchCode::SeekNextCol => {
                    let key = self.matcher.next_column_key(cell);
                    self.go_to(key)?;
                }
                MatchCode::Done if !self.reversed => {
                    self.matcher.clear_row(); // the merge has left the row by itself
                    return Ok(StoreState::RowDone);
                }
                MatchCode::SeekNextRow | MatchCode::Done => return self.row_done(),
                MatchCode::SeekNextUsingHint => {
                    if self.seek_to_hint(filter)? {
                        return Ok(StoreState::RowDone);
                    }
                }
                MatchCode::DoneScan => return Ok(StoreState::ScanDone),
            }
            *looks += 1;
            if *looks & budget.look.mask == 0 {
                budget.look.spend(budget.look.mask + 1)?;
                if budget.may_cut_row
                    && budget.deadline_ns.is_some_and(|deadline| budget.clock.monotonic_ns() >= deadline)
                {
                    return self.stop_at(StoreState::TimeReached);
                }
            }
        }
    }

    /// Whether the row has all cells that are wanted of it. It is asked after a cell was included, as in HBase: a limit
    /// of zero cells lets one through.
    fn is_full(&self) -> bool {
        self.limit
            .is_some_and(|limit| u64::from(self.cells_of_row) >= u64::from(limit) + u64::from(self.offset))
    }

    #[inline]
    fn include(
        &mut self,
        filter: &mut Option<Box<dyn Filter>>,
        budget: &mut Budget<'_>,
        out: &mut impl FoundCells,
    ) -> Result<()> {
        let len = if let Some(filter) = filter
            && filter.transforms()
        {
            let mut cell = filter.transform_cell(self.heap.cell().expect("the cell was peeked at"))?;
            if let Some(resolved) = self.resolved(cell.get())? {
                cell = resolved;
            }
            let len = cell.bytes().len();
            out.push(cell);
            len
        } else {
            let cell = self.heap.peek().expect("the cell was peeked at");
            match self.resolved(cell)? {
                // The length of what is returned counts, so that answers with large values keep to their limit.
                Some(resolved) => {
                    let len = resolved.bytes().len();
                    out.push(resolved);
                    len
                }
                None => {
                    out.push_from(&self.heap);
                    cell.bytes().len()
                }
            }
        };
        spend_on_bytes(len)?;
        *budget.size_bytes_left -= len as i64 + CELL_OVERHEAD_BYTES;
        budget.row_size.check(*budget.size_bytes_left)
    }

    /// The cell that a reference stands for; `None` if the cell is none.
    #[inline]
    fn resolved(&self, cell: CellRef<'_>) -> Result<Option<Cell>> {
        self.mob.as_ref().map_or(Ok(None), |mob| mob.resolved(cell))
    }

    fn step_over_included(&mut self, code: MatchCode) -> Result<()> {
        match code {
            MatchCode::IncludeAndSeekNextCol => {
                let cell = self.heap.peek().expect("the cell was peeked at");
                let key = self.matcher.next_column_key(cell);
                self.go_to(key)
            }
            _ => self.heap.next(),
        }
    }

    /// To the key, or without one to the next cell.
    fn go_to(&mut self, key: Option<Key>) -> Result<()> {
        match key {
            Some(key) => self.heap.reseek(key.get()),
            None => self.heap.next(),
        }
    }

    /// Follows the filter's hint if that leads on. Returns whether the row was left.
    fn seek_to_hint(&mut self, filter: &mut Option<Box<dyn Filter>>) -> Result<bool> {
        let cell = self.heap.peek().expect("the cell was peeked at");
        let hint = match filter {
            Some(filter) => filter.next_cell_hint(cell)?,
            None => None,
        };
        let Some(hint) = hint else {
            self.heap.next()?;
            return Ok(false);
        };
        if is_inside_family(cell, hint.get()) && cell.qualifier().is_empty() {
            // Markers of the family lie in the column without a name, by their timestamps, and are not passed over unseen.
            self.heap.next()?;
            return Ok(false);
        }
        let comparator = self.heap.comparator();
        // The first key of a row is before its cells: backwards such a hint would lead to the same cell for ever.
        let is_row_before = comparator.compare_rows(hint.get().row(), cell.row()) == Ordering::Less;
        let is_backward = match (comparator.compare_keys(hint.get(), cell.key()), self.reversed) {
            (Ordering::Greater, false) => {
                self.heap.reseek(hint.get())?;
                false
            }
            (Ordering::Less, true) if is_row_before => {
                self.seek_backwards_to(&hint)?;
                true
            }
            _ => {
                self.heap.next()?;
                false
            }
        };
        let row = self.matcher.row();
        if self.heap.peek().is_some_and(|cell| cell.row() == row) {
            return Ok(false);
        }
        if self.reversed && !is_backward {
            // Walking forward inside a row ran out of it, perhaps out of all rows: the way back is to the row before.
            let row = row.to_vec();
            self.leave_row(&row)?;
        }
        self.matcher.clear_row();
        Ok(true)
    }

    /// A hint of a reversed scan names the row to go down to: its first cell, or the row before it.
    fn seek_backwards_to(&mut self, hint: &Key) -> Result<()> {
        let last = Key::last_on_row(hint.get().row());
        self.heap.seek_to_row_before(Some(last.get()))
    }

    fn stop_at(&mut self, state: StoreState) -> Result<StoreState> {
        // If the row ended together with the limit there is nothing to go on with.
        let row_goes_on = self.heap.peek().is_some_and(|cell| cell.row() == self.matcher.row());
        if !row_goes_on {
            self.row_done()?;
        }
        Ok(state)
    }

    fn row_done(&mut self) -> Result<StoreState> {
        // Nearly always the merge has left the row by itself, and then nothing has to be looked for.
        let is_elsewhere = |cell: CellRef<'_>| !same_bytes(cell.row(), self.matcher.row());
        let is_left = !self.reversed && self.heap.peek().is_none_or(is_elsewhere);
        if self.ends_with_row || is_left {
            self.matcher.clear_row();
            return Ok(StoreState::RowDone);
        }
        let row = self.matcher.row().to_vec();
        self.leave_row(&row)?;
        self.matcher.clear_row();
        Ok(StoreState::RowDone)
    }

    fn leave_row(&mut self, row: &[u8]) -> Result<()> {
        if self.reversed {
            self.heap.seek_to_row_before(Some(Key::first_on_row(row).get()))
        } else if self.heap.peek().is_some_and(|cell| cell.row() == row) {
            self.heap.reseek(Key::last_on_row(row).get())
        } else {
            Ok(())
        }
    }
}

/// Whether the key is of the cell's row and family.
fn is_inside_family(cell: CellRef<'_>, key: KeyRef<'_>) -> bool {
    same_bytes(cell.row(), key.row()) && same_bytes(cell.family(), key.family())
}
