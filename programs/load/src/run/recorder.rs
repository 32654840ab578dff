use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::run::slow::{Slow, SlowOperation};

/// Digits of a latency that are kept.
const DIGITS: u8 = 3;

/// What one client has measured since it was last asked.
///
/// # Thread safety
/// The client records, the driver takes away once a second: the lock is nearly always free.
pub struct Recorder {
    kinds: &'static [&'static str],
    /// Latencies above this are kept one by one.
    slow_us: u64,
    /// Latencies of operations that should have begun before this are not measured.
    measured_from_ns: AtomicU64,
    since: Mutex<Totals>,
}

/// Counts and latencies.
#[derive(Clone)]
pub struct Totals {
    /// Operations that are done, measured or not.
    pub operations: u64,
    /// By kind: latencies in microseconds.
    pub latencies: Vec<(&'static str, Histogram<u64>)>,
    /// Errors by class.
    pub errors: BTreeMap<String, u64>,
    pub slow: Slow,
}

impl Totals {
    pub fn new(kinds: &'static [&'static str]) -> Totals {
        let histogram = || Histogram::new(DIGITS).expect("three digits are within bounds");
        let latencies = kinds.iter().map(|&kind| (kind, histogram())).collect();
        Totals { operations: 0, latencies, errors: BTreeMap::new(), slow: Slow::default() }
    }

    /// All latencies, whatever their kind.
    pub fn all(&self) -> Histogram<u64> {
        let mut all = Histogram::new(DIGITS).expect("three digits are within bounds");
        for (_, histogram) in &self.latencies {
            all.add(histogram).expect("a histogram that grows takes any value");
        }
        all
    }

    pub fn add(&mut self, other: &Totals) {
        self.operations += other.operations;
        for ((_, mine), (_, other)) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.add(other).expect("a histogram that grows takes any value");
        }
        for (class, count) in &other.errors {
            *self.errors.entry(class.clone()).or_default() += count;
        }
        self.slow.add(&other.slow);
    }

    fn clear(&mut self) {
        self.operations = 0;
        self.errors.clear();
        self.slow.clear();
        for (_, histogram) in &mut self.latencies {
            if !histogram.is_empty() {
                histogram.reset();
            }
        }
    }
}

impl Recorder {
    /// `kinds` are the kinds of operations, in the order of the numbers by which they are recorded; an operation that takes
    /// longer than `slow_us` microseconds is kept by itself, too.
    pub(super) fn new(kinds: &'static [&'static str], slow_us: u64) -> Recorder {
        let measured_from_ns = AtomicU64::new(u64::MAX);
        Recorder { kinds, slow_us, measured_from_ns, since: Mutex::new(Totals::new(kinds)) }
    }

    pub fn kinds(&self) -> &'static [&'static str] {
        self.kinds
    }

    /// Counts operations without a latency.
    pub fn count(&self, operations: u64) {
        self.since.lock().operations += operations;
    }

    /// From here on latencies are measured.
    pub(super) fn measure_from(&self, now_ns: u64) {
        self.measured_from_ns.store(now_ns, Ordering::Relaxed);
    }

    /// The latency of an operation of a kind, which should have begun at one moment and was done at the other.
    pub fn record(&self, kind: usize, begin_ns: u64, end_ns: u64) {
        self.done(0, Some(kind), begin_ns, end_ns);
    }

    /// Both at once.
    pub(super) fn done(&self, operations: u64, kind: Option<usize>, begin_ns: u64, end_ns: u64) {
        let mut since = self.since.lock();
        since.operations += operations;
        let Some(kind) = kind else { return };
        if begin_ns < self.measured_from_ns.load(Ordering::Relaxed) {
            return;
        }
        // in whole microseconds, rounded up: nothing takes no time
        let latency_us = end_ns.saturating_sub(begin_ns).div_ceil(1_000);
        since.latencies[kind].1.record(latency_us).expect("a histogram that grows takes any value");
        if latency_us > self.slow_us {
            since.slow.push(SlowOperation { latency_us, begin_ns, kind });
        }
    }

    pub fn error(&self, class: &str) {
        *self.since.lock().errors.entry(class.to_string()).or_default() += 1;
    }

    /// Adds what was measured since the last time to `totals`.
    pub(super) fn drain(&self, totals: &mut Totals) {
        let mut since = self.since.lock();
        totals.add(&since);
        since.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_comes_out_once() {
        let recorder = Recorder::new(&["read", "write"], 3_000);
        recorder.done(4, Some(0), 50, 60); // before it is measured
        recorder.drain(&mut Totals::new(recorder.kinds()));
        recorder.measure_from(100);
        recorder.done(1, Some(0), 100, 1_600);
        recorder.done(5, None, 0, 0);
        recorder.record(1, 100, 3_000_100);
        recorder.record(1, 200, 3_000_201);
        recorder.record(1, 99, 9_000_000);
        recorder.error("Timeout");
        let mut totals = Totals::new(recorder.kinds());
        recorder.drain(&mut totals);
        recorder.drain(&mut totals);
        assert_eq!((totals.operations, totals.errors["Timeout"]), (6, 1));
        assert_eq!(totals.latencies[0].1.max(), 2);
        assert_eq!((totals.all().len(), totals.all().max()), (3, 3_001));
        let slow = SlowOperation { latency_us: 3_001, begin_ns: 200, kind: 1 };
        assert_eq!(totals.slow.in_order(), [slow]);
    }
}
