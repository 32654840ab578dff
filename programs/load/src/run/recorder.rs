use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

/// Digits of a latency that are kept.
const DIGITS: u8 = 3;

/// What one client has measured since it was last asked.
///
/// # Thread safety
/// The client records, the driver takes away once a second: the lock is nearly always free.
pub struct Recorder {
    kinds: &'static [&'static str],
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
}

impl Totals {
    pub fn new(kinds: &'static [&'static str]) -> Totals {
        let histogram = || Histogram::new(DIGITS).expect("three digits are within bounds");
        let latencies = kinds.iter().map(|&kind| (kind, histogram())).collect();
        Totals { operations: 0, latencies, errors: BTreeMap::new() }
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
    }

    fn clear(&mut self) {
        self.operations = 0;
        self.errors.clear();
        for (_, histogram) in &mut self.latencies {
            if !histogram.is_empty() {
                histogram.reset();
            }
        }
    }
}

impl Recorder {
    /// `kinds` are the kinds of operations, in the order of the numbers by which they are recorded.
    pub fn new(kinds: &'static [&'static str]) -> Recorder {
        Recorder { kinds, since: Mutex::new(Totals::new(kinds)) }
    }

    pub fn kinds(&self) -> &'static [&'static str] {
        self.kinds
    }

    /// Counts operations without a latency.
    pub fn count(&self, operations: u64) {
        self.since.lock().operations += operations;
    }

    /// A latency of a kind.
    pub fn record(&self, kind: usize, latency_ns: u64) {
        record(&mut self.since.lock(), kind, latency_ns);
    }

    /// Both at once.
    pub(super) fn done(&self, operations: u64, kind: Option<usize>, latency_ns: u64) {
        let mut since = self.since.lock();
        since.operations += operations;
        if let Some(kind) = kind {
            record(&mut since, kind, latency_ns);
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

/// In whole microseconds, rounded up: nothing takes no time.
fn record(since: &mut Totals, kind: usize, latency_ns: u64) {
    let histogram = &mut since.latencies[kind].1;
    histogram.record(latency_ns.div_ceil(1_000)).expect("a histogram that grows takes any value");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recorded_comes_out_once() {
        let recorder = Recorder::new(&["read", "write"]);
        recorder.done(1, Some(0), 1_500);
        recorder.done(5, None, 0);
        recorder.record(1, 3_000_000);
        recorder.error("Timeout");
        let mut totals = Totals::new(recorder.kinds());
        recorder.drain(&mut totals);
        recorder.drain(&mut totals);
        assert_eq!((totals.operations, totals.errors["Timeout"]), (6, 1));
        assert_eq!(totals.latencies[0].1.max(), 2);
        assert_eq!((totals.all().len(), totals.all().max()), (2, 3_001));
    }
}
