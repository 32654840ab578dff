//! How long calls take inside the server: from the moment their bytes were read from the socket until their answer was
//! handed to it. What a client sees beyond that is the network, its own time, and bytes that wait to be read because the
//! network thread is busy or does not run (of which the stall monitor tells).

use std::sync::atomic::{AtomicU64, Ordering};

/// Times up to this one are not told apart.
const FIRST_NS: u64 = 8_000;
/// Two for each doubling; the last one is 8.4 seconds.
const BOUNDS: usize = 41;

/// Counts of times in buckets half a doubling wide. *Thread safety*: from any thread, without a lock.
#[derive(Debug)]
pub struct CallTimes {
    /// The last one: longer than all bounds.
    counts: [AtomicU64; BOUNDS + 1],
    sum_ns: AtomicU64,
}

/// What calls of one class took until one moment (each number for itself).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallTimesSnapshot {
    /// For each bound, in seconds, how many calls took no longer.
    pub up_to: Vec<(f64, u64)>,
    /// All calls, those that took longer too.
    pub count: u64,
    pub sum_seconds: f64,
}

impl Default for CallTimes {
    fn default() -> CallTimes {
        CallTimes { counts: [const { AtomicU64::new(0) }; BOUNDS + 1], sum_ns: AtomicU64::new(0) }
    }
}

/// Where a bucket ends: at 8, 12, 16, 24, 32 ... microseconds.
fn bound_ns(bucket: usize) -> u64 {
    let doubled = FIRST_NS << (bucket / 2);
    if bucket.is_multiple_of(2) { doubled } else { doubled / 2 * 3 }
}

fn bucket_of(time_ns: u64) -> usize {
    if time_ns <= FIRST_NS {
        return 0;
    }
    let doublings = ((time_ns - 1) / FIRST_NS).ilog2() as usize; // the last bound that is below it
    let bucket = 2 * doublings + 1;
    if bucket >= BOUNDS { BOUNDS } else { bucket + usize::from(time_ns > bound_ns(bucket)) }
}

impl CallTimes {
    /// So many calls took so long.
    pub fn record(&self, time_ns: u64, count: u64) {
        self.counts[bucket_of(time_ns)].fetch_add(count, Ordering::Relaxed);
        self.sum_ns.fetch_add(time_ns.saturating_mul(count), Ordering::Relaxed);
    }

    /// Adds what another one has counted.
    pub fn add(&self, other: &CallTimes) {
        for (sum, count) in self.counts.iter().zip(&other.counts) {
            sum.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(other.sum_ns.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> CallTimesSnapshot {
        let mut count = 0;
        let mut up_to = Vec::with_capacity(BOUNDS);
        for (bucket, counter) in self.counts.iter().enumerate() {
            count += counter.load(Ordering::Relaxed);
            if bucket < BOUNDS {
                up_to.push((bound_ns(bucket) as f64 / 1e9, count));
            }
        }
        CallTimesSnapshot { up_to, count, sum_seconds: self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_counted_below_the_first_bound_that_it_does_not_exceed() {
        for bucket in 0..BOUNDS {
            assert_eq!(bucket_of(bound_ns(bucket)), bucket);
            assert_eq!(bucket_of(bound_ns(bucket) + 1), bucket + 1);
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BOUNDS));
        for seconds in 9..600 {
            assert_eq!(bucket_of(seconds * 1_000_000_000), BOUNDS, "{seconds} seconds");
        }
        let times = CallTimes::default();
        times.record(9_000, 3);
        times.record(20_000_000_000, 1);
        let snapshot = times.snapshot();
        assert_eq!((snapshot.up_to[0], snapshot.up_to[1]), ((8e-6, 0), (12e-6, 3)));
        assert_eq!(snapshot.up_to.last().expect("bounds").1, 3);
        assert_eq!((snapshot.count, snapshot.sum_seconds), (4, 20.000027));
    }
}
