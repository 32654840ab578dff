//! What took too long, and why: every wait over a threshold is remembered with its cause.
//!
//! Whoever waits for something that ought to be quick (a disk, a lock, the processor) measures it with
//! [`Stalls::watch`]. Under the threshold that costs two looks at the clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Clock;

/// Waits that are kept whole; of older ones the sums stay.
const RECENT_MAX: usize = 256;
const THRESHOLD_DEFAULT: Duration = Duration::from_millis(20);

/// One wait over the threshold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When it ended, in milliseconds since 1970.
    pub at_ms: i64,
    /// What was waited for, one word: `sync`, `scheduler`, `row-lock` ...
    pub cause: &'static str,
    /// Which of them: a path, a thread, a region.
    pub detail: String,
    pub time: Duration,
}

/// All stalls of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallSum {
    pub count: u64,
    pub total: Duration,
    pub longest: Duration,
}

/// Where stalls are recorded. *Thread safety*: all methods from any thread; recording takes a short lock.
pub struct Stalls {
    threshold_ns: AtomicU64,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    recent: VecDeque<Stall>,
    sums: BTreeMap<&'static str, StallSum>,
}

impl Default for Stalls {
    fn default() -> Stalls {
        Stalls {
            threshold_ns: AtomicU64::new(THRESHOLD_DEFAULT.as_nanos() as u64),
            recorded: Mutex::default(),
        }
    }
}

impl Stalls {
    /// Waits from this time on count.
    pub fn set_threshold(&self, threshold: Duration) {
        self.threshold_ns.store(threshold.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Carries out `body` and remembers how long it took if that is over the threshold. `detail` is asked only then.
    #[inline]
    pub fn watch<T>(
        &self,
        clock: &dyn Clock,
        cause: &'static str,
        detail: impl FnOnce() -> String,
        body: impl FnOnce() -> T,
    ) -> T {
        let started_ns = clock.monotonic_ns();
        let result = body();
        self.took(clock, cause, detail, clock.monotonic_ns().saturating_sub(started_ns));
        result
    }

    /// As [`Stalls::watch`] for what was measured already, in nanoseconds.
    #[inline]
    pub fn took(
        &self,
        clock: &dyn Clock,
        cause: &'static str,
        detail: impl FnOnce() -> String,
        time_ns: u64,
    ) {
        if time_ns >= self.threshold_ns.load(Ordering::Relaxed) {
            let time = Duration::from_nanos(time_ns);
            self.record(Stall { at_ms: clock.now_ms(), cause, detail: detail(), time });
        }
    }

    #[cold]
    fn record(&self, stall: Stall) {
        let mut recorded = self.recorded.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let sum = recorded.sums.entry(stall.cause).or_default();
        sum.count += 1;
        sum.total += stall.time;
        sum.longest = sum.longest.max(stall.time);
        if recorded.recent.len() == RECENT_MAX {
            recorded.recent.pop_front();
        }
        recorded.recent.push_back(stall);
    }

    /// The latest ones, the oldest first.
    pub fn recent(&self) -> Vec<Stall> {
        let recorded = self.recorded.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        recorded.recent.iter().cloned().collect()
    }

    /// Sums since the start, by cause.
    pub fn sums(&self) -> Vec<(&'static str, StallSum)> {
        let recorded = self.recorded.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        recorded.sums.iter().map(|(cause, sum)| (*cause, *sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    #[test]
    fn only_long_waits_are_kept_and_only_so_many() {
        let (clock, stalls) = (ManualClock::at(5), Stalls::default());
        stalls.set_threshold(Duration::from_millis(10));
        let wait = |cause, ms| {
            stalls.watch(&clock, cause, || format!("of {ms}"), || clock.advance(Duration::from_millis(ms)))
        };
        wait("sync", 9);
        assert_eq!(stalls.recent(), []);
        wait("sync", 10);
        wait("lock", 30);
        wait("sync", 20);
        let longest = |cause| stalls.sums().iter().find(|(name, _)| *name == cause).expect("recorded").1;
        assert_eq!(longest("sync").longest, Duration::from_millis(20));
        assert_eq!(longest("sync").total, Duration::from_millis(30));
        assert_eq!(longest("lock").count, 1);
        let last = stalls.recent().pop().expect("one");
        assert_eq!((last.cause, &last.detail[..], last.at_ms), ("sync", "of 20", 5 + 9 + 10 + 30 + 20));
        for _ in 0..RECENT_MAX + 10 {
            wait("sync", 10);
        }
        assert_eq!(stalls.recent().len(), RECENT_MAX);
        assert_eq!(longest("sync").count, 2 + RECENT_MAX as u64 + 10);
    }
}
