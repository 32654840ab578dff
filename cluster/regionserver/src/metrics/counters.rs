//! Numbers of requests since start.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

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
    /// Calls that went to the disk pool; all others were answered by the thread that received them.
    pub pooled: Counter,
    /// Calls that ended in an exception.
    pub failed: Counter,
    /// Calls that took longer than the settings call slow.
    pub slow: Counter,
    pub leases_expired: Counter,
    pub flushes: Counter,
    pub memory_compactions: Counter,
    pub compactions: Counter,
}

/// Requests per second, from one report to the next.
#[derive(Default)]
pub(crate) struct RequestRate(Mutex<Sample>);

#[derive(Clone, Copy, Default)]
struct Sample {
    total: u64,
    at_ms: i64,
    per_second: u64,
}

impl RequestRate {
    /// The rate since the last report at least one second ago, and the time of that.
    pub(crate) fn sample(&self, total: u64, now_ms: i64) -> (u64, i64) {
        let mut last = self.0.lock();
        let passed_ms = now_ms.saturating_sub(last.at_ms);
        let since_ms = last.at_ms;
        if passed_ms >= 1000 {
            let requests = total.saturating_sub(last.total);
            *last = Sample { total, at_ms: now_ms, per_second: requests * 1000 / passed_ms as u64 };
        }
        (last.per_second, since_ms)
    }
}
