use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall time for timestamps, monotonic time for measuring.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970 (what cell timestamps are made of). May step when the machine's clock is set.
    fn now_ms(&self) -> i64;

    /// Nanoseconds since some fixed point; never goes back.
    fn monotonic_ns(&self) -> u64;

    /// Blocks the calling thread.
    fn sleep(&self, time: Duration);
}

/// The machine's clock.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    #[allow(clippy::disallowed_methods, clippy::new_without_default)] // the one place that may
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

#[allow(clippy::disallowed_methods)] // the one place that may
impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn monotonic_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// A clock that a test moves by hand; sleeping moves it as well.
#[derive(Default)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    monotonic_ns: AtomicU64,
}

impl ManualClock {
    pub fn at(wall_ms: i64) -> ManualClock {
        ManualClock { wall_ms: AtomicI64::new(wall_ms), monotonic_ns: AtomicU64::new(0) }
    }

    pub fn advance(&self, time: Duration) {
        self.wall_ms.fetch_add(time.as_millis() as i64, Ordering::SeqCst);
        self.monotonic_ns.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }

    fn sleep(&self, time: Duration) {
        self.advance(time);
    }
}
