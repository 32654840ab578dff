//! A scan inside of the server, for endpoints that look at every row of a range.
//!
//! HBase hands an endpoint one row at a time. A round here is what one of its calls of `RegionScanner.next` returns: a row,
//! or a batch of a row if the scan has a batch size. A row that is too large for one piece comes in several pieces, and the
//! round ends with the last one. The scanner cannot tell whether a piece that ends at the size limit is the last one of its
//! row: the next piece tells, by its row.

use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::SharedCells;
use halcyon_region::{NextState, ReadMode, RegionScanner, Scan, ScanLimits};
use halcyon_rpc::RpcError;

use super::{CallError, EndpointCall};

/// Cells that are in memory at the same time, in bytes; one more cell may be.
const PIECE_BYTES_MAX: i64 = 1 << 20;
/// So often the scan looks whether it is still wanted.
const SLICE: Duration = Duration::from_millis(100);
/// The clock is looked at after so many pieces.
const PIECES_PER_LOOK: u64 = 32;

pub(super) struct RowScan<'a> {
    call: &'a EndpointCall,
    scanner: RegionScanner,
    /// Cells of the piece.
    pub cells: SharedCells,
    /// The row of which more cells may follow.
    cut_row: Option<Bytes>,
    /// The last row ended where the size limit did: the scanner has not looked for another one.
    was_full: bool,
    /// Most cells of a round; `None`: a round is a row.
    batch: Option<u32>,
    /// Cells of the round in the pieces before.
    of_round_count: usize,
    /// Rows and parts of rows that were read.
    pieces_count: u64,
    slice_end_ns: u64,
}

/// What one piece says about rounds. The cells of the piece belong to the round that follows `ended_before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The round that earlier pieces belong to ended before this one.
    pub ended_before: bool,
    /// The round ends with this piece.
    pub ends: bool,
    /// A round without cells follows, the last one.
    pub empty_follows: bool,
    /// The scan may stop here and resume behind [`RowScan::last_row`].
    pub between_rows: bool,
    /// More may follow in this region.
    pub more: bool,
}

impl<'a> RowScan<'a> {
    /// *Blocking.*
    pub(super) fn open(call: &'a EndpointCall, scan: Scan) -> Result<RowScan<'a>, CallError> {
        Ok(RowScan {
            call,
            batch: scan.batch,
            of_round_count: 0,
            scanner: call.online.region.scanner(scan, ReadMode::AnyDisk)?,
            cells: SharedCells::new(),
            cut_row: None,
            was_full: false,
            pieces_count: 0,
            slice_end_ns: 0,
        })
    }

    /// Reads the next piece into `cells`. *Blocking.* An error if no client waits any more or the region is closed.
    pub(super) fn next(&mut self) -> Result<Piece, CallError> {
        self.cells.truncate(0);
        if self.pieces_count.is_multiple_of(PIECES_PER_LOOK) {
            self.look_up()?;
        }
        self.pieces_count += 1;
        let mut limits = ScanLimits {
            size_bytes_left: PIECE_BYTES_MAX,
            may_cut_row: true,
            deadline_ns: Some(self.slice_end_ns),
        };
        let scanned_before = self.scanner.counts().rows_scanned;
        let state = self.scanner.next_shared(&mut limits, &mut self.cells)?;
        if matches!(state, NextState::TimeReached { .. }) {
            self.slice_end_ns = 0;
            self.look_up()?;
        }
        let first_row = (!self.cells.is_empty()).then(|| self.cells.get(0).row());
        let cut_row = self.cut_row.take();
        let goes_on = cut_row.as_deref().zip(first_row).is_some_and(|(cut, first)| cut == first);
        let is_between = state == NextState::TimeReached { mid_row: false };
        // The end of a cut row is found with the cells of another one, or with none.
        let ended_before = cut_row.is_some() && !goes_on;
        let is_cut = matches!(state, NextState::SizeReached | NextState::TimeReached { mid_row: true });
        if is_cut {
            self.cut_row = match first_row {
                Some(row) => Some(Bytes::copy_from_slice(row)),
                None => cut_row.filter(|_| !ended_before),
            };
        }
        // HBase's last call is empty if the filter drops the last rows, and counts all the same.
        let known_count = u64::from(ended_before);
        let has_dropped = self.scanner.counts().rows_scanned - scanned_before > known_count;
        let is_nothing_new = (self.was_full || ended_before) && self.cells.is_empty() && !has_dropped;
        self.was_full = state == NextState::RowDone && limits.size_bytes_left <= 0;
        let ends = match state {
            NextState::RowDone | NextState::BatchReached => true,
            NextState::SizeReached | NextState::TimeReached { .. } => false,
            NextState::Exhausted => !is_nothing_new,
        };
        self.of_round_count = self.cells.len() + if ended_before { 0 } else { self.of_round_count };
        let is_batch_full = self.batch.is_some_and(|batch| self.of_round_count == batch as usize);
        if ends {
            self.of_round_count = 0;
        }
        Ok(Piece {
            ended_before,
            ends,
            // Where the last batch is full HBase does not look whether another row follows.
            empty_follows: state == NextState::Exhausted && is_batch_full,
            between_rows: state == NextState::RowDone || is_between,
            more: state != NextState::Exhausted,
        })
    }

    /// Whether the call is still wanted, once for each slice of time. What the scan holds is let go of: flushes and
    /// compactions can free it.
    fn look_up(&mut self) -> Result<(), CallError> {
        let server = &self.call.server;
        let now_ns = server.env.clock.monotonic_ns();
        if now_ns < self.slice_end_ns {
            return Ok(());
        }
        self.slice_end_ns = now_ns.saturating_add(SLICE.as_nanos() as u64);
        if let Some(why) = self.call.terms.dropped(now_ns) {
            return Err(RpcError::dropped(why).into());
        }
        if !server.regions.serves(&self.call.online) {
            return Err(server.regions.not_online(self.call.online.region.info().region_name()).into());
        }
        if self.cells.is_empty() && self.cut_row.is_none() && self.scanner.holds_flushed() {
            drop(self.scanner.let_go());
        }
        Ok(())
    }

    /// The row that was looked at last.
    pub(super) fn last_row(&self) -> &[u8] {
        self.scanner.last_row()
    }
}

impl Drop for RowScan<'_> {
    /// Counts what was read, once for the call.
    fn drop(&mut self) {
        let filtered = self.scanner.counts().rows_filtered;
        self.call.online.region.note_scanned(self.pieces_count, filtered, self.scanner.last_row());
        let (loads, connection) = (&self.call.server.user_loads, &self.call.terms.connection);
        loads.note_reads(connection, self.pieces_count);
        if filtered > 0 {
            loads.note_filtered(connection, filtered);
        }
    }
}
