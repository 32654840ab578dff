//! Puts the families of a region together into rows, runs the filter over them, and keeps to the limits of a call (HBase:
//! `RegionScannerImpl`).

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use halcyon_cell::{
    Cell, CellComparator, Error, Key, ReadPoint, Result, SharedCells, keep_bytes, same_bytes,
};
use halcyon_env::{Clock, invariant};
use halcyon_filter::{Filter, RowOutcome, finish_row};

use super::found::FoundCells;
use super::row_size::RowSize;
use super::source::Heap;
use super::store_scanner::{Budget, LookCost, StoreScanner, StoreState};
use crate::api::{NextState, Scan, ScanCounts, ScanLimits};
use crate::read_points::HeldReadPoint;
use crate::region::Region;

/// Reads rows of one region at one read point, family by family (HBase: `RegionScannerImpl`).
///
/// Holds on to the segments and files it started with, so flushes and compactions go on beside it. Between two calls
/// it can let go of them ([`RegionScanner::let_go`]); the next call goes on in what is there then, at the same read
/// point. Owned by one call at a time; after an error it is of no use any more.
pub struct RegionScanner {
    /// `None`: it lives for one call.
    resumable: Option<ResumableScan>,
    clock: Arc<dyn Clock>,
    comparator: CellComparator,
    read_point: ReadPoint,
    /// Families that decide about a row, in order of their names.
    stores: Vec<StoreScanner>,
    /// Families that the filter does not need; read for rows that passed.
    joined: Vec<StoreScanner>,
    filter: Option<Box<dyn Filter>>,
    stop_row: Bytes,
    include_stop_row: bool,
    reversed: bool,
    batch: Option<u32>,
    look: LookCost,
    row: Vec<u8>,
    size: RowSize,
    position: Position,
    counts: ScanCounts,
    exhausted: bool,
}

/// What a row that gives nothing costs in looks, those at its cells left out: stores are left, sought, and chosen from.
pub(super) const LOOKS_OF_A_ROW: u32 = 8;

/// What a scanner needs to resume later with other segments and files.
pub(crate) struct ResumableScan {
    pub region: Arc<Region>,
    /// Without its filter.
    pub scan: Scan,
    /// The time at which the scan began; what expires later is still there for it.
    pub now_ms: i64,
    /// `None` for a reader of what is not published yet: nothing is kept for it.
    pub _held: Option<HeldReadPoint>,
    pub has_let_go: bool,
}

/// Segments, files and blocks that a scanner held; freed when this is dropped.
pub struct ReleasedView {
    _heaps: Vec<Heap>,
}

/// Where in a row the scanner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    BetweenRows,
    /// Inside `row`, with this store next.
    InStores(usize),
    /// Inside `row`, which passed the filter, with this joined store next.
    InJoined(usize),
}

/// What a scanner is made of; filled by `Region::scanner`.
pub(crate) struct Parts {
    pub resumable: Option<ResumableScan>,
    pub clock: Arc<dyn Clock>,
    pub comparator: CellComparator,
    pub read_point: ReadPoint,
    pub stores: Vec<StoreScanner>,
    pub joined: Vec<StoreScanner>,
    pub filter: Option<Box<dyn Filter>>,
    pub stop_row: Bytes,
    pub include_stop_row: bool,
    pub reversed: bool,
    pub batch: Option<u32>,
    /// Most bytes of a row, or of a part of one, that a call may return.
    pub row_bytes_max: usize,
}

/// How far a row was read.
enum Progress {
    Complete,
    Cut(NextState),
    ScanDone,
}

impl RegionScanner {
    pub(crate) fn new(parts: Parts) -> Result<RegionScanner> {
        if parts.batch.is_some() && parts.filter.as_ref().is_some_and(|filter| filter.has_filter_row()) {
            return Err(Error::invalid(
                "Cannot set batch on a scan using a filter that returns true for filter.hasFilterRow",
            ));
        }
        let is_ordered = |stores: &[StoreScanner]| stores.is_sorted_by(|a, b| a.store_at < b.store_at);
        assert!(
            is_ordered(&parts.stores) && is_ordered(&parts.joined),
            "families come in the order of their names, and each of them once"
        );
        assert!(
            parts.joined.is_empty() || parts.filter.is_some(),
            "families are read late for rows that pass a filter: without one all families decide"
        );
        let look = LookCost::new(parts.filter.as_deref());
        if parts.filter.is_some() {
            look.spend(1)?; // a filter may take longer for one cell than a thread has
        }
        Ok(RegionScanner {
            resumable: parts.resumable,
            clock: parts.clock,
            comparator: parts.comparator,
            read_point: parts.read_point,
            stores: parts.stores,
            joined: parts.joined,
            filter: parts.filter,
            stop_row: parts.stop_row,
            include_stop_row: parts.include_stop_row,
            reversed: parts.reversed,
            batch: parts.batch,
            look,
            row: Vec::new(),
            size: RowSize::up_to(parts.row_bytes_max),
            position: Position::BetweenRows,
            counts: ScanCounts::default(),
            exhausted: false,
        })
    }

    /// Bytes of the blocks that it stands on, and of values that it looked at and has not returned.
    pub fn held_bytes(&self) -> u64 {
        self.stores.iter().chain(&self.joined).map(|store| store.held_bytes() as u64).sum()
    }

    /// Bytes that its filter keeps as long as the scanner is open, about ([`Filter::held_bytes`]).
    pub fn filter_bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, |filter| filter.held_bytes())
    }

    pub fn read_point(&self) -> ReadPoint {
        self.read_point
    }

    /// Whether it may hold memory that was flushed since it began, or since it went on.
    pub fn holds_flushed(&self) -> bool {
        self.stores.iter().chain(&self.joined).any(StoreScanner::holds_flushed)
    }

    /// Gives up segments, files and blocks until the next call of [`RegionScanner::next`], which may have to wait for the
    /// disk then. Takes little time; freeing what is returned may take more.
    ///
    /// The scanner of a secondary gives up nothing: its primary rewrites files without knowing who reads at which point, so what
    /// the scanner sees may be in none of the files of later.
    pub fn let_go(&mut self) -> ReleasedView {
        let Some(resumable) = self.resumable.as_mut().filter(|resumable| !resumable.region.is_secondary())
        else {
            return ReleasedView { _heaps: Vec::new() };
        };
        if std::mem::replace(&mut resumable.has_let_go, true) {
            return ReleasedView { _heaps: Vec::new() };
        }
        ReleasedView {
            _heaps: self.stores.iter_mut().chain(&mut self.joined).map(StoreScanner::let_go).collect(),
        }
    }

    /// Whether it has let go, and not gone on since.
    pub fn has_let_go(&self) -> bool {
        self.resumable.as_ref().is_some_and(|resumable| resumable.has_let_go)
    }

    fn go_on(&mut self) -> Result<()> {
        let Some(resumable) = self.resumable.as_mut().filter(|resumable| resumable.has_let_go) else {
            return Ok(());
        };
        let stores = self.stores.iter_mut().chain(&mut self.joined);
        resumable.region.open_again(&resumable.scan, self.read_point, resumable.now_ms, stores)?;
        resumable.has_let_go = false;
        Ok(())
    }

    pub fn counts(&self) -> ScanCounts {
        let reads = self.resumable.as_ref().and_then(|resumable| resumable.scan.reads.as_ref());
        reads.map_or(self.counts, |reads| ScanCounts {
            block_bytes_scanned: reads.scanned_bytes.load(Relaxed),
            disk_blocks_read: reads.disk_count.load(Relaxed),
            disk_bytes_read: reads.disk_bytes.load(Relaxed),
            disk_ns: reads.disk_ns.load(Relaxed),
            cached_bytes_read: reads.cached_bytes.load(Relaxed),
            memory_bytes_read: reads.memory_bytes.load(Relaxed),
            ..self.counts
        })
    }

    /// The row looked at last, for cursors.
    pub fn last_row(&self) -> &[u8] {
        &self.row
    }

    pub fn filter_has_row(&self) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.has_filter_row())
    }

    /// Whether the filter wants nothing more.
    pub fn filter_done(&mut self) -> Result<bool> {
        match &mut self.filter {
            Some(filter) => filter.filter_all_remaining(),
            None => Ok(false),
        }
    }

    /// Reads one row, or a part of one, appending its cells to `out`.
    pub fn next(&mut self, limits: &mut ScanLimits, out: &mut Vec<Cell>) -> Result<NextState> {
        self.next_into(limits, out)
    }

    /// As [`RegionScanner::next`], for whoever takes many rows before it looks at them: cells of a block hold on to it
    /// together.
    pub fn next_shared(&mut self, limits: &mut ScanLimits, out: &mut SharedCells) -> Result<NextState> {
        self.next_into(limits, out)
    }

    fn next_into(&mut self, limits: &mut ScanLimits, out: &mut impl FoundCells) -> Result<NextState> {
        if self.exhausted {
            return Ok(NextState::Exhausted);
        }
        self.go_on()?;
        let start = out.count();
        let mut limits_in_row = *limits;
        if self.filter_has_row() {
            limits_in_row.may_cut_row = false; // the filter has to see whole rows
        }
        let state = self.next_row(&mut limits_in_row, out, start);
        limits.size_bytes_left = limits_in_row.size_bytes_left;
        let state = state?;
        if self.position == Position::BetweenRows
            && let Some(filter) = &mut self.filter
        {
            filter.reset()?;
            if state != NextState::Exhausted && filter.filter_all_remaining()? {
                self.exhausted = true;
                return Ok(NextState::Exhausted);
            }
        }
        self.exhausted = state == NextState::Exhausted;
        Ok(state)
    }

    fn next_row(
        &mut self,
        limits: &mut ScanLimits,
        out: &mut impl FoundCells,
        start: usize,
    ) -> Result<NextState> {
        let size_before = limits.size_bytes_left;
        self.size.begin(size_before);
        loop {
            if self.position == Position::BetweenRows {
                if !self.begin_row()? {
                    return Ok(NextState::Exhausted);
                }
                if self.row_key_is_filtered()? {
                    let done = self.filter_done()?;
                    // HBase does not count the row that ends a scan as scanned.
                    self.counts.rows_scanned += u64::from(!done);
                    match self.drop_row(limits, done)? {
                        Some(end) => return Ok(end),
                        None => continue,
                    }
                }
                self.position = Position::InStores(0);
            }
            let mut scan_done = false;
            if let Position::InStores(_) = self.position {
                match self.read_stores(limits, out, start)? {
                    Progress::Complete => {}
                    Progress::Cut(state) => return Ok(state),
                    Progress::ScanDone => scan_done = true,
                }
                self.counts.rows_scanned += 1;
                if !self.row_stays(out, start)? {
                    out.truncate(start);
                    limits.size_bytes_left = size_before;
                    match self.drop_row(limits, scan_done)? {
                        Some(end) => return Ok(end),
                        None => continue,
                    }
                }
                self.position = Position::InJoined(0);
            }
            if let Progress::Cut(state) = self.read_joined(limits, out, start)? {
                return Ok(state);
            }
            self.position = Position::BetweenRows;
            if out.count() > start || scan_done {
                // Where the size limit falls on the end of a row HBase does not look whether another one follows
                // (`RegionScannerImpl.nextInternal`): the next call finds out. Clients count on it.
                let is_full = limits.may_cut_row && limits.size_bytes_left <= 0;
                let end = scan_done || (!is_full && self.peek_row().is_none_or(|row| self.is_past_stop(row)));
                return Ok(if end { NextState::Exhausted } else { NextState::RowDone });
            }
            self.counts.rows_filtered += 1;
            self.reset_filter()?;
            if self.is_late(limits)? {
                return Ok(NextState::TimeReached { mid_row: false });
            }
        }
    }

    /// The row that comes next: the first (reversed: the last) that any deciding store stands on.
    #[inline]
    fn peek_row(&self) -> Option<&[u8]> {
        if let [store] = &self.stores[..] {
            return store.peek().map(|cell| cell.row());
        }
        let mut best: Option<&[u8]> = None;
        for store in &self.stores {
            let Some(row) = store.peek().map(|cell| cell.row()) else { continue };
            let better = match best {
                None => true,
                Some(best) => {
                    let order = self.comparator.compare_rows(row, best);
                    order == if self.reversed { Ordering::Greater } else { Ordering::Less }
                }
            };
            if better {
                best = Some(row);
            }
        }
        best
    }

    #[inline]
    fn is_past_stop(&self, row: &[u8]) -> bool {
        if self.stop_row.is_empty() {
            return false;
        }
        let mut order = self.comparator.compare_rows(row, &self.stop_row);
        if self.reversed {
            order = order.reverse();
        }
        order == Ordering::Greater || (order == Ordering::Equal && !self.include_stop_row)
    }

    /// Whether a scan comes to `next` after `row`.
    fn is_ahead(&self, row: &[u8], next: &[u8]) -> bool {
        let wanted = if self.reversed { Ordering::Greater } else { Ordering::Less };
        self.comparator.compare_rows(row, next) == wanted
    }

    fn begin_row(&mut self) -> Result<bool> {
        let mut row = std::mem::take(&mut self.row);
        let found = match self.peek_row() {
            Some(next) if !self.is_past_stop(next) => {
                invariant!(
                    row.is_empty() || self.is_ahead(&row, next),
                    "row {:?} comes after {row:?}: rows come in one direction, each of them once",
                    next
                );
                keep_bytes(&mut row, next);
                true
            }
            _ => false,
        };
        self.row = row;
        Ok(found)
    }

    fn row_key_is_filtered(&mut self) -> Result<bool> {
        let Some(filter) = &mut self.filter else { return Ok(false) };
        let first = self.stores.iter().filter_map(|store| store.peek()).find(|cell| cell.row() == self.row);
        match first {
            Some(first) => filter.filter_row_key(first),
            None => Ok(false),
        }
    }

    fn read_stores(
        &mut self,
        limits: &mut ScanLimits,
        out: &mut impl FoundCells,
        start: usize,
    ) -> Result<Progress> {
        let Position::InStores(from) = self.position else { return Ok(Progress::Complete) };
        let (progress, at) = read_row(
            &mut self.stores,
            from,
            &self.row,
            &mut self.filter,
            &mut budget(limits, &mut self.size, (self.batch, self.look), out.count() - start, &*self.clock),
            out,
        )?;
        self.position = Position::InStores(at);
        Ok(progress)
    }

    fn read_joined(
        &mut self,
        limits: &mut ScanLimits,
        out: &mut impl FoundCells,
        start: usize,
    ) -> Result<Progress> {
        let Position::InJoined(from) = self.position else { return Ok(Progress::Complete) };
        if self.joined.is_empty() {
            return Ok(Progress::Complete);
        }
        for store in &mut self.joined[from..] {
            // The row may lie far ahead: these stores were not read for the rows that were dropped.
            let behind = store.peek().is_some_and(|cell| {
                let order = self.comparator.compare_rows(cell.row(), &self.row);
                order == if self.reversed { Ordering::Greater } else { Ordering::Less }
            });
            if behind && self.reversed {
                store.seek_to_row_before(Some(Key::last_on_row(&self.row).get()))?;
            } else if behind {
                store.reseek(Key::first_on_row(&self.row).get())?;
            }
        }
        let of_stores = out.count();
        let (progress, at) = read_row(
            &mut self.joined,
            from,
            &self.row,
            &mut self.filter,
            &mut budget(limits, &mut self.size, (self.batch, self.look), of_stores - start, &*self.clock),
            out,
        )?;
        self.position = Position::InJoined(at);
        if of_stores > start && out.count() > of_stores {
            // a family that was read late may come before one that the filter needed: clients search sorted rows
            let mut row = out.split_off(start);
            row.sort_by(|left, right| self.comparator.compare_keys(left.get().key(), right.get().key()));
            row.into_iter().for_each(|cell| out.push(cell));
        }
        Ok(progress)
    }

    /// Asks the filter about the row read so far. An empty row does not stay.
    fn row_stays(&mut self, out: &mut impl FoundCells, start: usize) -> Result<bool> {
        let was_empty = out.count() == start;
        let Some(filter) = &mut self.filter else { return Ok(!was_empty) };
        if filter.has_filter_row() {
            let mut row = out.split_off(start);
            let outcome = finish_row(filter.as_mut(), &mut row)?;
            row.into_iter().for_each(|cell| out.push(cell));
            return Ok(!was_empty && outcome != RowOutcome::Exclude);
        }
        if was_empty {
            return Ok(false);
        }
        Ok(!filter.filter_row()?)
    }

    /// Leaves a row that does not pass the filter. Returns how the call ends there, if it does: the row was the scan's last, or
    /// the time is over.
    fn drop_row(&mut self, limits: &ScanLimits, is_last: bool) -> Result<Option<NextState>> {
        self.counts.rows_filtered += 1;
        self.leave_row()?;
        if is_last {
            return Ok(Some(NextState::Exhausted));
        }
        Ok(self.is_late(limits)?.then_some(NextState::TimeReached { mid_row: false }))
    }

    /// Leaves the row behind in every deciding store and starts the filter anew.
    fn leave_row(&mut self) -> Result<()> {
        for store in &mut self.stores {
            store.skip_row(&self.row)?;
        }
        self.position = Position::BetweenRows;
        self.reset_filter()
    }

    fn reset_filter(&mut self) -> Result<()> {
        match &mut self.filter {
            Some(filter) => filter.reset(),
            None => Ok(()),
        }
    }

    /// Asked for each row that gives nothing.
    fn is_late(&self, limits: &ScanLimits) -> Result<bool> {
        self.look.spend(LOOKS_OF_A_ROW)?;
        Ok(limits.deadline_ns.is_some_and(|deadline| self.clock.monotonic_ns() >= deadline))
    }
}

fn budget<'a>(
    limits: &'a mut ScanLimits,
    row_size: &'a mut RowSize,
    (batch, look): (Option<u32>, LookCost),
    cells_so_far: usize,
    clock: &'a dyn Clock,
) -> Budget<'a> {
    Budget {
        cells_left: batch.map_or(u32::MAX, |batch| batch.saturating_sub(cells_so_far as u32)),
        size_bytes_left: &mut limits.size_bytes_left,
        row_size,
        may_cut_row: limits.may_cut_row,
        deadline_ns: limits.deadline_ns,
        clock,
        look,
    }
}

/// Reads `row` from the stores, beginning with number `from`. Returns how far it came, and the store to go on
/// with.
fn read_row(
    stores: &mut [StoreScanner],
    from: usize,
    row: &[u8],
    filter: &mut Option<Box<dyn Filter>>,
    budget: &mut Budget<'_>,
    out: &mut impl FoundCells,
) -> Result<(Progress, usize)> {
    for at in from..stores.len() {
        if stores[at].peek().is_none_or(|cell| !same_bytes(cell.row(), row)) {
            continue;
        }
        let state = match stores[at].next(filter, budget, out)? {
            StoreState::RowDone => continue,
            StoreState::ScanDone => return Ok((Progress::ScanDone, at)),
            StoreState::BatchReached => NextState::BatchReached,
            StoreState::SizeReached => NextState::SizeReached,
            StoreState::TimeReached => NextState::TimeReached { mid_row: true },
        };
        let more = stores[at..].iter().any(|store| store.peek().is_some_and(|cell| cell.row() == row));
        if !more {
            return Ok((Progress::Complete, at)); // the limit fell on the end of the row
        }
        return Ok((Progress::Cut(state), at));
    }
    Ok((Progress::Complete, stores.len()))
}
