//! Numbers of requests since start.

use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_env::Mutex;

/// One counter on a cache line of its own, so that network threads do not fight for the neighbour's.
#[derive(Default)]
#[repr(align(64))]
pub struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Requests of clients by kind, and what went wrong. A small read costs one of these, and no more.
#[derive(Default)]
pub struct Counters {
    pub gets: Counter,
    pub scans: Counter,
    pub mutations: Counter,
    pub multis: Counter,
    /// Calls of `ClientService` of other kinds, and those of `AdminService`.
    pub others: Counter,
    /// Mutations of regions that are not open here any more.
    pub closed_writes: Counter,
    /// Calls that went to the disk pool; all others were answered by the thread that received them.
    pub pooled: Counter,
    /// Calls that were answered with an exception, wherever they ran.
    pub failed: Counter,
    /// Calls that took longer than the settings call slow, from their arrival until their answer went to the socket,
    /// wherever they ran.
    pub slow: Counter,
    /// Calls whose answers were larger than the settings call large.
    pub large: Counter,
    pub leases_expired: Counter,
    /// Calls, and parts of batches, that a quota refused.
    pub throttled: Counter,
    /// Nonces that were forgotten before their grace period was over, for want of memory.
    pub nonces_forgotten: Counter,
    pub flushes: Counter,
    pub memory_compactions: Counter,
    pub compactions: Counter,
}

impl Counters {
    /// Calls since start (HBase: `RSRpcServices.requestCount`).
    pub(crate) fn requests(&self) -> u64 {
        [&self.gets, &self.scans, &self.mutations, &self.multis, &self.others].map(Counter::get).iter().sum()
    }
}

/// The window over which requests are counted (HBase: `hbase.regionserver.metrics.period`).
const WINDOW_NS: u64 = 5_000_000_000;

/// Requests per second over the last whole window, whoever asks and however often
/// (HBase: `MetricsRegionServerWrapperImpl`).
pub(crate) struct RequestRate(Mutex<Window>);

/// What is known of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub per_second: u64,
    /// When the window began that it is of; while there is none yet, the server's start.
    pub since_ms: i64,
}

struct Window {
    rate: Rate,
    began_ns: u64,
    began_ms: i64,
    /// Requests before it began.
    before: u64,
}

impl RequestRate {
    pub(crate) fn new(now_ns: u64, now_ms: i64) -> RequestRate {
        let rate = Rate { per_second: 0, since_ms: now_ms };
        RequestRate(Mutex::new(Window { rate, began_ns: now_ns, began_ms: now_ms, before: 0 }))
    }

    /// Ends the window if it is long enough, with so many requests since start.
    pub(crate) fn update(&self, requests: u64, now_ns: u64, now_ms: i64) {
        let mut window = self.0.lock();
        let passed_ns = now_ns.saturating_sub(window.began_ns);
        if passed_ns < WINDOW_NS {
            return;
        }
        let count = u128::from(requests.saturating_sub(window.before));
        let per_second = (count * 1_000_000_000 / u128::from(passed_ns)) as u64;
        let rate = Rate { per_second, since_ms: window.began_ms };
        *window = Window { rate, began_ns: now_ns, began_ms: now_ms, before: requests };
    }

    pub(crate) fn get(&self) -> Rate {
        self.0.lock().rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate was since whoever had asked last: with rare questions an average over hours.
    #[test]
    fn the_rate_is_of_the_last_window_whoever_asks() {
        let second = |s: u64| s * 1_000_000_000;
        let rate = RequestRate::new(second(100), 7_000);
        rate.update(50, second(101), 8_000);
        assert_eq!(rate.get(), Rate { per_second: 0, since_ms: 7_000 }, "the first window is not over");
        rate.update(500, second(105), 12_000);
        assert_eq!(rate.get(), Rate { per_second: 100, since_ms: 7_000 });
        for at in 106..110 {
            rate.update(500 + at, second(at), 13_000);
            assert_eq!(rate.get(), Rate { per_second: 100, since_ms: 7_000 }, "asking changes nothing");
        }
        rate.update(500, second(110), 17_000);
        assert_eq!(rate.get(), Rate { per_second: 0, since_ms: 12_000 });
    }
}
