//! The part of a call that quotas are asked for: before it runs, by an estimate, and when it has run, by what it has used (HBase:
//! `DefaultOperationQuota`, `ExceedOperationQuota`).

use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Cell;
use halcyon_env::{Clock, Lookups};
use halcyon_rpc::RpcError;

use super::throttle::{Throttle, Usage};

/// Guesses of HBase for a call whose size is not known yet, in bytes.
const WRITE_GUESS: i64 = 100;
const READ_GUESS: i64 = 100;
const SCAN_GUESS: i64 = 1000;
/// The largest part of a limit that the guess for a scan may be, in tenths: more might never be available.
const SCAN_GUESS_TENTHS: i64 = 9;

/// How sizes are counted.
#[derive(Clone, Debug)]
pub(crate) struct SizeRules {
    /// Bytes of a capacity unit.
    pub(super) read_unit: i64,
    pub(super) write_unit: i64,
    /// Reads count what they return, and not the blocks that they look at.
    pub(super) by_result_size: bool,
    /// Microseconds of a thread that a call is guessed to need.
    pub(super) handler_us: i64,
}

/// What a scanner has looked at in its calls so far, in bytes of blocks. It says what the next call may need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanHistory {
    calls: i64,
    max: i64,
    last: i64,
    difference: i64,
}

impl ScanHistory {
    pub(crate) fn note(&mut self, block_bytes: u64) {
        let bytes = signed(block_bytes);
        self.calls += 1;
        self.max = self.max.max(bytes);
        (self.difference, self.last) = (bytes - self.last, bytes);
    }

    /// The first call is guessed to look at one block. While a scan looks at more and more, so will the next call.
    fn guess(&self, block_size: i64, result_bytes_max: i64) -> i64 {
        if self.calls == 0 {
            block_size
        } else if self.difference > block_size {
            result_bytes_max.min(self.max.saturating_mul(self.calls))
        } else {
            self.max
        }
    }
}

/// What a call is going to do to one region.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Intent {
    Batch { writes: usize, reads: usize, is_atomic: bool },
    Scan { history: ScanHistory, result_bytes_max: u64 },
}

impl Intent {
    pub(crate) const GET: Intent = Intent::Batch { writes: 0, reads: 1, is_atomic: false };
}

/// Takes its estimate from the limits, and settles when it is dropped: also a call that fails pays for what it has used.
pub(crate) struct OperationQuota {
    limits: Vec<Arc<Throttle>>,
    rules: SizeRules,
    clock: Arc<dyn Clock>,
    started_ns: u64,
    estimate: Usage,
    block_size: i64,
    written: i64,
    returned: i64,
    looked_at: i64,
}

/// The limits of a call, in the order in which they are asked.
pub(super) struct Limits {
    pub(super) subjects: Vec<Arc<Throttle>>,
    pub(super) server: Option<Arc<Throttle>>,
    /// The subjects may exceed their limits as long as the server's have room.
    pub(super) may_exceed: bool,
}

impl OperationQuota {
    /// Refuses the call if a limit has no room. `block_size` is that of the region's smallest blocks.
    pub(super) fn begin(
        limits: Limits,
        rules: SizeRules,
        clock: Arc<dyn Clock>,
        intent: Intent,
        block_size: usize,
    ) -> Result<OperationQuota, RpcError> {
        let Limits { subjects, server, may_exceed } = limits;
        let all = || subjects.iter().chain(&server);
        let block_size = signed(block_size as u64);
        let estimate = estimate(&rules, intent, block_size, all());
        let now_ms = now_ms(&*clock);
        match &server {
            // As in HBase the switch means nothing while the server has no limits.
            Some(server) if may_exceed => server.check(&estimate, now_ms)?,
            _ => all().try_for_each(|limit| limit.check(&estimate, now_ms))?,
        }
        all().for_each(|limit| limit.consume(&estimate));
        let started_ns = clock.monotonic_ns();
        let limits = all().cloned().collect();
        let (written, returned, looked_at) = (0, 0, 0);
        Ok(OperationQuota {
            limits,
            rules,
            clock,
            started_ns,
            estimate,
            block_size,
            written,
            returned,
            looked_at,
        })
    }

    /// Bytes of cells that are written.
    pub(crate) fn add_written(&mut self, cells: &[Cell]) {
        self.written = self.written.saturating_add(size_of(cells));
    }

    /// A read has looked at so many bytes of blocks, and returns cells.
    pub(crate) fn add_read(&mut self, cells: &[Cell], block_bytes: u64) {
        self.returned = self.returned.saturating_add(size_of(cells));
        self.looked_at = self.looked_at.saturating_add(signed(block_bytes));
    }

    /// As [`OperationQuota::add_read`], with the bytes of the cells.
    pub(crate) fn add_scanned(&mut self, cell_bytes: usize, block_bytes: u64) {
        self.returned = self.returned.saturating_add(signed(cell_bytes as u64));
        self.looked_at = self.looked_at.saturating_add(signed(block_bytes));
    }

    /// It has looked for blocks that were not measured: each counts as one of the smallest size.
    pub(crate) fn add_lookups(&mut self, lookups: Lookups) {
        let blocks = signed(lookups.hits + lookups.misses);
        self.looked_at = self.looked_at.saturating_add(blocks.saturating_mul(self.block_size));
    }
}

impl Drop for OperationQuota {
    fn drop(&mut self) {
        let read = if self.rules.by_result_size { self.returned } else { self.returned.max(self.looked_at) };
        let took = Duration::from_nanos(self.clock.monotonic_ns().saturating_sub(self.started_ns));
        let Usage { write_size, read_size, write_units, read_units, is_atomic, handler_us, .. } =
            self.estimate;
        // Requests were counted at the beginning. A call pays for its time and not for the guess; HBase adds what the guess
        // was too much.
        let difference = Usage {
            write_size: self.written - write_size,
            read_size: read - read_size,
            write_units: units(self.written, self.rules.write_unit) - write_units,
            read_units: units(read, self.rules.read_unit) - read_units,
            is_atomic,
            handler_us: signed(took.as_micros() as u64) - handler_us,
            ..Usage::default()
        };
        self.limits.iter().for_each(|limit| limit.consume(&difference));
    }
}

fn estimate<'l>(
    rules: &SizeRules,
    intent: Intent,
    block_size: i64,
    limits: impl Iterator<Item = &'l Arc<Throttle>>,
) -> Usage {
    let count = |count: usize| signed(count as u64);
    let (writes, reads, is_atomic, read_size) = match intent {
        Intent::Batch { writes, reads, is_atomic } => {
            let (writes, reads) = (count(writes), count(reads));
            let by_result = reads.saturating_mul(READ_GUESS);
            let size = if rules.by_result_size { by_result } else { block_size.saturating_mul(reads.min(1)) };
            (writes, reads, is_atomic, size)
        }
        Intent::Scan { .. } if rules.by_result_size => (0, 1, false, SCAN_GUESS),
        Intent::Scan { history, result_bytes_max } => {
            let limit = limits.map(|limit| limit.read_size_limit()).min().unwrap_or(i64::MAX);
            let guess = history.guess(block_size, signed(result_bytes_max));
            (0, 1, false, guess.min(limit / 10 * SCAN_GUESS_TENTHS + limit % 10 * SCAN_GUESS_TENTHS / 10))
        }
    };
    let write_size = writes.saturating_mul(WRITE_GUESS);
    Usage {
        writes,
        reads,
        write_size,
        read_size,
        write_units: units(write_size, rules.write_unit),
        read_units: units(read_size, rules.read_unit),
        is_atomic,
        handler_us: rules.handler_us.saturating_mul((writes + reads).max(1)),
    }
}

/// Each begun unit counts.
fn units(bytes: i64, unit: i64) -> i64 {
    (bytes / unit) + i64::from(bytes % unit > 0)
}

fn size_of(cells: &[Cell]) -> i64 {
    signed(cells.iter().map(|cell| cell.bytes().len() as u64).sum())
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A clock that does not go back.
pub(super) fn now_ms(clock: &dyn Clock) -> u64 {
    clock.monotonic_ns() / 1_000_000
}

#[cfg(test)]
mod tests {
    use halcyon_env::ManualClock;
    use halcyon_proto::pb;

    use super::super::rate_limiter::Refill;
    use super::*;

    const BLOCK: usize = 4096;

    fn quota(limit: u64) -> Option<pb::TimedQuota> {
        let time_unit = pb::TimeUnit::Seconds as i32;
        Some(pb::TimedQuota { time_unit, soft_limit: Some(limit), ..Default::default() })
    }

    fn throttle(throttle: pb::Throttle) -> Arc<Throttle> {
        Arc::new(Throttle::new(&throttle, Refill::Steady).unwrap())
    }

    fn rules() -> SizeRules {
        SizeRules { read_unit: 1024, write_unit: 1024, by_result_size: false, handler_us: 1000 }
    }

    fn only(throttle: &Arc<Throttle>) -> Limits {
        Limits { subjects: vec![throttle.clone()], server: None, may_exceed: false }
    }

    fn begin(limits: Limits, clock: &Arc<ManualClock>, intent: Intent) -> Result<OperationQuota, RpcError> {
        OperationQuota::begin(limits, rules(), clock.clone() as Arc<dyn Clock>, intent, BLOCK)
    }

    #[test]
    fn a_read_pays_for_the_blocks_that_it_looked_at() {
        let clock = Arc::new(ManualClock::at(1));
        let limits = throttle(pb::Throttle { read_size: quota(10_000), ..Default::default() });
        let mut get = begin(only(&limits), &clock, Intent::GET).unwrap();
        get.add_read(&[], 10_000);
        drop(get);
        let error = begin(only(&limits), &clock, Intent::GET).err().unwrap();
        assert_eq!(error.message, "read size limit exceeded - wait 409ms");
        clock.advance(Duration::from_millis(500));
        // A call that looks at nothing gives its estimate back.
        (0..10).for_each(|_| drop(begin(only(&limits), &clock, Intent::GET).unwrap()));
    }

    #[test]
    fn capacity_units_are_whole() {
        let clock = Arc::new(ManualClock::at(1));
        let limits = throttle(pb::Throttle { write_capacity_unit: quota(3), ..Default::default() });
        let cell = Cell::put(b"row", b"f", b"q", 1, &[0; 1500]);
        let put = Intent::Batch { writes: 1, reads: 0, is_atomic: false };
        begin(only(&limits), &clock, put).unwrap().add_written(std::slice::from_ref(&cell));
        begin(only(&limits), &clock, put).unwrap().add_written(&[cell]);
        let error = begin(only(&limits), &clock, put).err().unwrap();
        assert_eq!(error.message, "write capacity unit exceeded - wait 666ms");
    }

    /// Ten milliseconds of a thread in a second are 50 calls of 200 microseconds.
    #[test]
    fn calls_of_less_than_a_millisecond_use_their_time() {
        let clock = Arc::new(ManualClock::at(1));
        let limits = throttle(pb::Throttle { req_handler_usage_ms: quota(10), ..Default::default() });
        let calls = (0..1000).take_while(|_| {
            let begun = begin(only(&limits), &clock, Intent::GET);
            clock.advance(Duration::from_micros(200));
            begun.is_ok()
        });
        let calls = calls.count();
        assert!((45..=52).contains(&calls), "{calls} calls");
        let error = begin(only(&limits), &clock, Intent::GET).err().unwrap();
        assert!(error.message.starts_with("request handler usage time exceeded - wait "), "{error:?}");
    }

    #[test]
    fn users_may_exceed_their_limits_while_the_server_has_room() {
        let clock = Arc::new(ManualClock::at(1));
        let user = throttle(pb::Throttle { req_num: quota(1), ..Default::default() });
        let server = throttle(pb::Throttle { req_num: quota(3), ..Default::default() });
        let limits =
            |may_exceed| Limits { subjects: vec![user.clone()], server: Some(server.clone()), may_exceed };
        drop(begin(limits(false), &clock, Intent::GET).unwrap());
        assert!(begin(limits(false), &clock, Intent::GET).is_err());
        (0..2).for_each(|_| drop(begin(limits(true), &clock, Intent::GET).unwrap()));
        let error = begin(limits(true), &clock, Intent::GET).err().unwrap();
        assert_eq!(error.message, "number of requests exceeded - wait 333ms");
    }

    #[test]
    fn the_guess_for_a_scan_grows_with_the_scan_and_always_fits() {
        let mut history = ScanHistory::default();
        assert_eq!(history.guess(100, 10_000), 100);
        history.note(1_000);
        assert_eq!(history.guess(100, 10_000), 1_000);
        history.note(4_000);
        assert_eq!(history.guess(100, 10_000), 8_000);
        assert_eq!(history.guess(100, 5_000), 5_000);
        history.note(4_000);
        assert_eq!(history.guess(100, 10_000), 4_000);
        let clock = Arc::new(ManualClock::at(1));
        let limits = throttle(pb::Throttle { read_size: quota(2_000), ..Default::default() });
        let scan = Intent::Scan { history, result_bytes_max: 10_000 };
        let begun = begin(only(&limits), &clock, scan).unwrap();
        assert_eq!(begun.estimate.read_size, 1_800);
    }
}
