//! One call's worth of a scan: results until a limit, and the answer.
//!
//! Which limit may stop where:
//!
//! | limit | stops | may cut a row |
//! |---|---|---|
//! | results (`number_of_rows`) | after a result | – |
//! | complete rows (`limit_of_rows`) | after a row; ends the scan | – |
//! | bytes | after a cell or row | if the client handles partial results |
//! | time | after a cell or row; heartbeat | only if the client handles partial results and heartbeats, else no limit |
//!
//! Whether a result of a part of a row was that row's last cannot be known: the next call finds another row
//! and counts the first one as complete then.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, SharedCells};
use halcyon_proto::pb;
use halcyon_region::{NextState, ScanCounts, ScanLimits};
use halcyon_rpc::{Call, CellBlock, Codec, Reply, Tags};

use super::CallError;
use super::get::query_metrics;
use super::scan::{ScanQuota, reset_error};
use crate::RegionServer;
use crate::calls::scanners::OpenScanner;
use crate::convert;
use crate::metrics::op_times::Op;

/// What one call may take, from its message and its connection.
#[derive(Clone)]
pub(super) struct Limits {
    /// Results at most; 0: none, only open or close.
    pub rows: u32,
    /// Complete rows left of the whole scan.
    pub limit_of_rows: Option<u32>,
    pub close: bool,
    /// The client puts parts of rows together.
    pub partials: bool,
    /// `Clock::monotonic_ns` at which a heartbeat is due.
    pub deadline_ns: Option<u64>,
    pub track_metrics: bool,
    /// `Clock::monotonic_ns` when the call was complete.
    received_ns: u64,
    pub codec: Option<Codec>,
    /// The client knows `ScannerResetException`.
    knows_reset: bool,
}

impl Limits {
    pub(super) fn new(server: &RegionServer, call: &Call, request: &pb::ScanRequest) -> Limits {
        let close = request.close_scanner();
        let partials = request.client_handles_partials();
        let heartbeats = partials && request.client_handles_heartbeats();
        Limits {
            rows: request.number_of_rows.unwrap_or(if close { 0 } else { 1 }).min(i32::MAX as u32),
            limit_of_rows: request.limit_of_rows.filter(|&limit| limit > 0),
            close,
            partials,
            deadline_ns: heartbeats.then(|| deadline_ns(server, call)),
            track_metrics: request.track_scan_metrics(),
            received_ns: call.received_ns,
            codec: call.connection.codec,
            knows_reset: call.connection.client_at_least(1, 4),
        }
    }
}

/// Half of what the most impatient party would wait.
fn deadline_ns(server: &RegionServer, call: &Call) -> u64 {
    let patience = server.scanners.lease().min(server.settings.rpc_timeout);
    let patience = call.timeout.map_or(patience, |timeout| timeout.min(patience));
    let time = (patience / 2).max(server.settings.scan_time_min);
    server.env.clock.monotonic_ns() + time.as_nanos() as u64
}

/// A claimed scanner and a call for it.
pub(super) struct ScanRun {
    pub turn: Turn,
    pub holder: Box<OpenScanner>,
    pub limits: Limits,
    /// The call was counted in the scanner's sequence of calls.
    pub counted: bool,
    pub quota: ScanQuota,
}

/// What a call owes to the scanner that it has. If it was claimed and is neither given back nor closed when this is dropped, as when
/// the call failed by an assertion, it is closed. Otherwise it would be busy for ever: no lease runs, and its place is taken.
pub(super) struct Turn {
    pub server: Arc<RegionServer>,
    pub id: u64,
    pub origin: Origin,
    /// It was given back or closed.
    is_over: bool,
}

impl Turn {
    pub(super) fn new(server: Arc<RegionServer>, id: u64, origin: Origin) -> Turn {
        Turn { server, id, origin, is_over: false }
    }

    /// The caller gives the scanner back, or closes it. The server and the scanner's number.
    pub(super) fn end(&mut self) -> (&Arc<RegionServer>, u64) {
        self.is_over = true;
        (&self.server, self.id)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over && matches!(self.origin, Origin::Claimed) {
            self.server.scanners.close(self.id);
        }
    }
}

/// Where a run has its scanner from.
#[derive(Clone, Copy)]
pub(super) enum Origin {
    /// An earlier call opened it.
    Claimed,
    /// This call opened it; it is not among the server's scanners yet.
    Opened { next_call_seq: u64, may_be_kept: bool },
}

/// Results of one call.
#[derive(Default)]
struct Results {
    cells: SharedCells,
    /// Cells of each result, and whether it may be a part of a row.
    shapes: Vec<(u32, bool)>,
    more_in_region: bool,
    /// `limit_of_rows` was reached.
    limit_reached: bool,
    heartbeat: bool,
    cursor: Option<Bytes>,
    /// How often the scanner was asked for a row or a part of one.
    rounds: u64,
    /// Of each result, if the client asked for them.
    metrics: Vec<pb::QueryMetrics>,
}

impl Results {
    fn last_row(&self) -> &[u8] {
        self.cells.last().map_or(&[], |cell| cell.row())
    }
}

impl ScanRun {
    /// How large the answer may become.
    pub(super) fn answer_bytes_max(&self) -> u64 {
        let server_max = self.turn.server.settings.result_bytes_max;
        self.holder.result_bytes_max.map_or(server_max, |size| size.min(server_max))
    }

    /// Serves the call; gives the scanner back or closes it. After an error it is closed.
    pub(super) fn run(mut self) -> Result<Reply, CallError> {
        let started_ns = self.turn.server.env.clock.monotonic_ns();
        // What was looked at to open the scanner is part of this call.
        let before = match self.turn.origin {
            Origin::Claimed => self.holder.scanner.counts(),
            Origin::Opened { .. } => ScanCounts::default(),
        };
        let (results, filter_done) = match self.results() {
            Ok(results) => results,
            Err(error) => return Err(self.fail(CallError::from(error))),
        };
        let nothing_left = results.limit_reached || (filter_done && results.shapes.is_empty());
        let reply = self.reply(&results, nothing_left, before, started_ns);
        let is_over = nothing_left || !results.more_in_region || self.limits.close;
        if !is_over && matches!(self.turn.origin, Origin::Opened { may_be_kept: false, .. }) {
            return Err(CallError::NeedsDisk); // it runs once more, and counts then
        }
        self.note_scanned(results.rounds, before, results.last_row());
        self.pay(&results, before);
        if is_over {
            self.close();
            return Ok(reply);
        }
        if let Some(&(_, partial)) = results.shapes.last() {
            self.holder.partial_row = partial.then(|| Bytes::copy_from_slice(results.last_row()));
        }
        let origin = self.turn.origin;
        let (server, id) = self.turn.end();
        match origin {
            Origin::Claimed => server.scanners.give_back(id, self.holder),
            Origin::Opened { next_call_seq, .. } => {
                server.scanners.keep(id, next_call_seq, self.holder)?;
            }
        }
        Ok(reply)
    }

    /// Counts what this call read, once for the call.
    fn note_scanned(&self, rounds: u64, before: ScanCounts, last_row: &[u8]) {
        let filtered = self.holder.scanner.counts().rows_filtered - before.rows_filtered;
        self.holder.online.region.note_scanned(rounds, filtered, last_row);
        self.turn.server.user_loads.note_reads(&self.holder.connection, rounds);
        if filtered > 0 {
            self.turn.server.user_loads.note_filtered(&self.holder.connection, filtered);
        }
    }

    /// Has the quota know what this call has read.
    fn pay(&mut self, results: &Results, before: ScanCounts) {
        if let Some(quota) = &self.quota {
            let block_bytes = self.block_bytes() - before.block_bytes_scanned;
            let cell_bytes = results.cells.iter().map(|cell| cell.bytes().len()).sum();
            quota.lock().add_scanned(cell_bytes, block_bytes);
            self.holder.history.note(block_bytes);
        }
    }

    fn close(&mut self) {
        let origin = self.turn.origin;
        let (server, id) = self.turn.end();
        match origin {
            Origin::Claimed => server.scanners.close(id),
            Origin::Opened { next_call_seq, .. } => server.scanners.ended(id, next_call_seq),
        }
    }

    /// A scanner that failed in the middle may have moved; it is closed, and the client told to begin anew
    /// behind what it has. One that this call opened has shown nothing yet.
    fn fail(&mut self, error: CallError) -> CallError {
        match (self.turn.origin, error) {
            (Origin::Claimed, CallError::Failed(error)) => {
                self.close();
                let is_moved = error.class.ends_with(".NotServingRegionException");
                CallError::Failed(if is_moved { error } else { reset_error(error, self.limits.knows_reset) })
            }
            (Origin::Claimed, CallError::NeedsDisk) => {
                self.close();
                CallError::NeedsDisk
            }
            (Origin::Opened { .. }, error) => error,
        }
    }

    fn results(&mut self) -> halcyon_cell::Result<(Results, bool)> {
        if self.limits.rows == 0 {
            let results = Results { more_in_region: true, ..Results::default() };
            return Ok((results, self.holder.scanner.filter_done()?));
        }
        let results = self.collect()?;
        Ok((results, self.holder.scanner.filter_done()?))
    }

    fn collect(&mut self) -> halcyon_cell::Result<Results> {
        let size_max = self.answer_bytes_max();
        let mut limits = ScanLimits {
            size_bytes_left: i64::try_from(size_max).unwrap_or(i64::MAX),
            may_cut_row: self.limits.partials,
            deadline_ns: self.limits.deadline_ns,
        };
        let mut results = Results::default();
        let mut complete_rows = 0;
        loop {
            let start = results.cells.len();
            results.rounds += 1;
            let block_bytes_before =
                self.holder.wants_metrics.then(|| self.block_bytes_before(results.rounds));
            let state = self.holder.scanner.next_shared(&mut limits, &mut results.cells)?;
            let count = results.cells.len() - start;
            let more_in_row = matches!(
                state,
                NextState::BatchReached | NextState::SizeReached | NextState::TimeReached { mid_row: true }
            );
            results.more_in_region = state != NextState::Exhausted;
            if count > 0 {
                if let Some(limit) = self.limits.limit_of_rows {
                    if self.begins_row_after_part(&results, start) {
                        complete_rows += 1;
                        if complete_rows >= limit {
                            results.cells.truncate(start);
                            results.limit_reached = true;
                            break;
                        }
                    }
                    if !more_in_row {
                        complete_rows += 1;
                        results.limit_reached = complete_rows >= limit;
                    }
                }
                results.shapes.push((count as u32, more_in_row));
                if let Some(before) = block_bytes_before {
                    results.metrics.push(query_metrics(self.block_bytes() - before));
                }
                if results.limit_reached {
                    break;
                }
            } else if !results.more_in_region
                && let Some(last) = results.shapes.last_mut()
            {
                last.1 = false; // it had no more cells after all
            }
            let late = matches!(state, NextState::TimeReached { .. });
            let full = limits.size_bytes_left <= 0 || results.shapes.len() >= self.limits.rows as usize;
            if results.more_in_region && (late || (full && results.shapes.is_empty())) {
                results.heartbeat = true;
                let row = self.holder.scanner.last_row();
                results.cursor =
                    (self.holder.needs_cursor && !row.is_empty()).then(|| Bytes::copy_from_slice(row));
            }
            if late || full || !results.more_in_region {
                break;
            }
        }
        Ok(results)
    }

    /// Before this round of the call. What was looked at to open the scanner belongs to the first result.
    fn block_bytes_before(&self, round: u64) -> u64 {
        let opened = round == 1 && matches!(self.turn.origin, Origin::Opened { .. });
        if opened { 0 } else { self.block_bytes() }
    }

    fn block_bytes(&self) -> u64 {
        self.holder.scanner.counts().block_bytes_scanned
    }

    /// Whether the result that begins at `start` is of another row than the part of a row before it.
    fn begins_row_after_part(&self, results: &Results, start: usize) -> bool {
        let row = results.cells.get(start).row();
        match results.shapes.last() {
            None => self.holder.partial_row.as_ref().is_some_and(|partial| partial != row),
            Some(&(_, partial)) => partial && results.cells.get(start - 1).row() != row,
        }
    }

    fn reply(&self, results: &Results, nothing_left: bool, before: ScanCounts, started_ns: u64) -> Reply {
        let mut response = pb::ScanResponse {
            scanner_id: Some(self.turn.id),
            more_results: Some(!nothing_left),
            stale: Some(self.holder.online.region.is_secondary()),
            more_results_in_region: Some(results.more_in_region),
            heartbeat_message: results.heartbeat.then_some(true),
            query_metrics: results.metrics.clone(),
            cursor: results.cursor.clone().map(|row| pb::Cursor { row: Some(row) }),
            ..Default::default()
        };
        if matches!(self.turn.origin, Origin::Opened { .. }) {
            response.ttl =
                Some(u32::try_from(self.turn.server.scanners.lease().as_millis()).unwrap_or(u32::MAX));
            response.mvcc_read_point = Some(self.holder.scanner.read_point().get());
        }
        if self.limits.track_metrics && self.limits.rows > 0 {
            let now_ns = self.turn.server.env.clock.monotonic_ns();
            let times_ns = [self.limits.received_ns, started_ns, now_ns];
            response.scan_metrics = Some(metrics(before, self.holder.scanner.counts(), times_ns));
        }
        let block = match self.limits.codec {
            Some(codec) => {
                response.cells_per_result = results.shapes.iter().map(|&(count, _)| count).collect();
                response.partial_flag_per_result =
                    results.shapes.iter().map(|&(_, partial)| partial).collect();
                convert::shared_cell_block(codec, &results.cells)
            }
            None => {
                response.results = inline(results, self.holder.online.region.is_secondary());
                None::<CellBlock>
            }
        };
        let tags = Tags::One(self.holder.online.ops.tag(Op::Scan, 1));
        Reply { cells: block, tags, ..Reply::message(&response) }
    }
}

fn inline(results: &Results, is_secondary: bool) -> Vec<pb::Result> {
    let mut at = 0;
    let inline = results.shapes.iter().map(|&(count, partial)| {
        let cells: Vec<Cell> = (at..at + count as usize).map(|at| results.cells.cell(at)).collect();
        at += count as usize;
        convert::stale_result(convert::inline_result(&cells, partial), is_secondary)
    });
    inline.collect()
}

/// Of one call, by the names of `ServerSideScanMetrics`; times in milliseconds. Times of calls are differences of whole
/// milliseconds, as in HBase: calls that are shorter than one still have a right sum. Clients add up reading times, so these are
/// rounded over the whole scan.
fn metrics(
    before: ScanCounts,
    after: ScanCounts,
    [received_ns, started_ns, now_ns]: [u64; 3],
) -> pb::ScanMetrics {
    const MS: u64 = 1_000_000;
    let between_ms = |from_ns: u64, to_ns: u64| (to_ns / MS).saturating_sub(from_ns / MS);
    let pair = |name: &str, value: u64| pb::NameInt64Pair {
        name: Some(name.to_string()),
        value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
    };
    pb::ScanMetrics {
        metrics: vec![
            pair("ROWS_SCANNED", after.rows_scanned - before.rows_scanned),
            pair("ROWS_FILTERED", after.rows_filtered - before.rows_filtered),
            pair("BLOCK_BYTES_SCANNED", after.block_bytes_scanned - before.block_bytes_scanned),
            pair("BYTES_READ_FROM_FS", after.disk_bytes_read - before.disk_bytes_read),
            pair("BLOCK_READ_OPS_COUNT", after.disk_blocks_read - before.disk_blocks_read),
            pair("FS_READ_TIME", after.disk_ns.div_ceil(MS) - before.disk_ns.div_ceil(MS)),
            pair("BYTES_READ_FROM_BLOCK_CACHE", after.cached_bytes_read - before.cached_bytes_read),
            pair("BYTES_READ_FROM_MEMSTORE", after.memory_bytes_read - before.memory_bytes_read),
            pair("RPC_SCAN_PROCESSING_TIME", between_ms(started_ns, now_ns)),
            pair("RPC_SCAN_QUEUE_WAIT_TIME", between_ms(received_ns, started_ns)),
        ],
    }
}
