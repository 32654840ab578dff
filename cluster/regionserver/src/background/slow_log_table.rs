//! Slow calls on their way to the table `hbase:slowlog` (HBase: `SlowLogPersistentService`, `SlowLogTableAccessor`).
//!
//! ```text
//! slow call -> queue; the oldest make room -> one thread, once a period -> rows of hbase:slowlog
//!
//! row = time of the write in ms, times 100,000, plus a number of this server     8 bytes, so rows stand by time
//! info:call_details, info:client_address, ... = text
//! ```
//!
//! A call that is noted only takes the lock of the queue. Calls of a batch that failed stay in the queue for the next
//! period; those of them that were written get a second row. HBase skips the WAL; here rows go through it, because the calls before a crash are the ones to look at.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Cell, Error, ErrorKind, LATEST_TIMESTAMP, Result};
use halcyon_env::{Clock, Mutex};
use halcyon_proto::pb;
use halcyon_schema::{ServerName, TableName};

use super::chores::Due;
use super::write_monitor::WriteMonitor;
use crate::lifecycle::Lifecycle;
use crate::memory::pressure::Pressure;
use crate::regions::region_table::{OnlineRegion, RegionTable};
use crate::regions::rows;
use crate::wal::logs::Logs;

/// Calls that are written together (HBase: `SYSTABLE_PUT_BATCH_SIZE`).
const BATCH_CALLS: usize = 100;
/// How often it is looked whether the period is over.
const LOOK_PERIOD: Duration = Duration::from_millis(500);
/// Rows of one millisecond; HBase puts five digits behind the time.
const ROWS_PER_MS: i64 = 100_000;
const FAMILY: &[u8] = b"info";

/// What the table is written with.
pub(crate) struct SlowLogParts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) write_monitor: WriteMonitor,
}

/// See the head of the file.
pub(crate) struct SlowLogTable {
    name: TableName,
    parts: SlowLogParts,
    queue: SlowCallQueue,
    rows: Mutex<RowKeys>,
}

impl SlowLogTable {
    /// At most `queue_max` calls wait.
    pub(crate) fn new(parts: SlowLogParts, queue_max: usize) -> SlowLogTable {
        let rows = Mutex::new(RowKeys::of(parts.lifecycle.server_name()));
        let name = halcyon_contract::slow_log_table_name();
        SlowLogTable { name, parts, queue: SlowCallQueue::new(queue_max), rows }
    }

    /// Queues a slow or large call. Calls on the table itself are left out: each scan of it would make it longer.
    pub(crate) fn add(&self, call: pb::SlowLogPayload) {
        let table = call.region_name().split(',').next().unwrap_or_default();
        if table != self.name.to_string() {
            self.queue.add(call);
        }
    }

    /// Waits a while, and writes if the period is over. The first call begins the period.
    pub(super) fn run_once(&self, due: &mut Due, period: Duration) {
        self.parts.lifecycle.pause(LOOK_PERIOD);
        if due.is_due(self.parts.clock.monotonic_ns(), period) {
            self.write_queued();
        }
    }

    /// Writes what is queued, until that fails. *Blocking*.
    pub(crate) fn write_queued(&self) {
        let mut rows = self.rows.lock();
        let (left_out, mut waiting) = self.queue.take_all();
        if left_out > 0 {
            tracing::warn!(left_out, "slow calls are not in hbase:slowlog: its queue was full");
        }
        while !waiting.is_empty() {
            let count = waiting.len().min(BATCH_CALLS);
            let batch = waiting.iter().take(count);
            let row = || rows.next(self.parts.clock.now_ms());
            if let Err(error) = self.write(batch, row) {
                let waiting_count = waiting.len();
                tracing::warn!(%error, waiting_count, "slow calls could not be written to hbase:slowlog");
                return self.queue.put_back(waiting);
            }
            waiting.drain(..count);
        }
    }

    fn write<'c>(
        &self,
        calls: impl Iterator<Item = &'c pb::SlowLogPayload>,
        mut row: impl FnMut() -> i64,
    ) -> Result<()> {
        if self.parts.pressure.is_high() {
            return Err(Error::new(ErrorKind::Busy, "the memstores of this server are full"));
        }
        let regions = self.regions();
        let mut cells_by_region: Vec<Vec<Cell>> = regions.iter().map(|_| Vec::new()).collect();
        for call in calls {
            let row = row().to_be_bytes();
            let place = regions.iter().position(|online| online.region.info().contains_row(&row));
            let closed = || Error::new(ErrorKind::Moved, "the region of the row is not open on this server");
            cells_by_region[place.ok_or_else(closed)?].extend(cells(&row, call));
        }
        for (online, cells) in regions.iter().zip(cells_by_region).filter(|(_, cells)| !cells.is_empty()) {
            rows::put(&online.region, &self.parts.logs, cells)?;
            self.parts.write_monitor.after_write(online);
        }
        Ok(())
    }

    fn regions(&self) -> Vec<Arc<OnlineRegion>> {
        let mut regions = self.parts.regions.online();
        regions.retain(|online| *online.region.info().table() == self.name && !online.region.is_secondary());
        regions
    }
}

/// The columns of a call, as HBase 2.6.4 has them. Numbers are text. `block_bytes_scanned` is missing: it is not known
/// when a call is noted.
fn cells(row: &[u8], call: &pb::SlowLogPayload) -> Vec<Cell> {
    let columns = [
        ("call_details", call.call_details.clone()),
        ("client_address", call.client_address.clone()),
        ("fs_read_time", call.fs_read_time().to_string()),
        ("method_name", call.method_name.clone()),
        ("param", call.param().to_string()),
        ("processing_time", call.processing_time.to_string()),
        ("queue_time", call.queue_time.to_string()),
        ("region_name", call.region_name().to_string()),
        ("response_size", call.response_size.to_string()),
        ("server_class", call.server_class.clone()),
        ("start_time", call.start_time.to_string()),
        ("type", call.r#type().as_str_name().to_string()),
        ("username", call.user_name.clone()),
    ];
    let cell = |(qualifier, value): (&str, String)| {
        Cell::put(row, FAMILY, qualifier.as_bytes(), LATEST_TIMESTAMP, value.as_bytes())
    };
    columns.into_iter().map(cell).collect()
}

/// Keys that rise. Two servers that write in the same millisecond begin at different numbers.
struct RowKeys {
    server_number: i64,
    last: i64,
}

impl RowKeys {
    fn of(server: &ServerName) -> RowKeys {
        let bytes = server.to_string().into_bytes();
        let sum = bytes.iter().fold(0i64, |sum, byte| (sum * 31 + i64::from(*byte)) % ROWS_PER_MS);
        RowKeys { server_number: sum, last: 0 }
    }

    fn next(&mut self, now_ms: i64) -> i64 {
        self.last = (now_ms * ROWS_PER_MS + self.server_number).max(self.last + 1);
        self.last
    }
}

/// Calls that wait for their row.
struct SlowCallQueue {
    calls_max: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    calls: VecDeque<pb::SlowLogPayload>,
    /// Calls that made room for newer ones since the last look.
    left_out: u64,
}

impl Waiting {
    fn shrink(&mut self, calls_max: usize) {
        let surplus = self.calls.len().saturating_sub(calls_max);
        self.calls.drain(..surplus);
        self.left_out += surplus as u64;
    }
}

impl SlowCallQueue {
    fn new(calls_max: usize) -> SlowCallQueue {
        SlowCallQueue { calls_max, waiting: Mutex::default() }
    }

    fn add(&self, call: pb::SlowLogPayload) {
        let mut waiting = self.waiting.lock();
        waiting.calls.push_back(call);
        waiting.shrink(self.calls_max);
    }

    /// How many were left out, and all that wait, the oldest first.
    fn take_all(&self) -> (u64, VecDeque<pb::SlowLogPayload>) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        (waiting.left_out, waiting.calls)
    }

    /// Calls that could not be written, older than all that came since.
    fn put_back(&self, mut calls: VecDeque<pb::SlowLogPayload>) {
        let mut waiting = self.waiting.lock();
        calls.append(&mut waiting.calls);
        waiting.calls = calls;
        waiting.shrink(self.calls_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start_time: i64) -> pb::SlowLogPayload {
        pb::SlowLogPayload { start_time, ..Default::default() }
    }

    fn times(calls: &VecDeque<pb::SlowLogPayload>) -> Vec<i64> {
        calls.iter().map(|call| call.start_time).collect()
    }

    #[test]
    fn a_full_queue_loses_the_oldest_calls_and_counts_them() {
        let queue = SlowCallQueue::new(3);
        (1..=5).for_each(|time| queue.add(call(time)));
        let (left_out, taken) = queue.take_all();
        assert_eq!((left_out, times(&taken)), (2, vec![3, 4, 5]));
        queue.add(call(6));
        queue.put_back(taken);
        let (left_out, taken) = queue.take_all();
        assert_eq!((left_out, times(&taken)), (1, vec![4, 5, 6]), "what came back is older");
        assert_eq!(queue.take_all().0, 0);
    }

    #[test]
    fn row_keys_rise_also_when_the_clock_does_not() {
        let mut rows = RowKeys::of(&ServerName::new("h", 16020, 1));
        let keys: Vec<i64> = [1000, 1000, 1001, 900].map(|now_ms| rows.next(now_ms)).into();
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        assert_eq!([keys[0], keys[1], keys[2]].map(|key| key / ROWS_PER_MS), [1000, 1000, 1001]);
        let mut other = RowKeys::of(&ServerName::new("i", 16020, 1));
        assert_ne!(other.next(1000), keys[0]);
    }
}
