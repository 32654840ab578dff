use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Wall time for timestamps, monotonic time for measuring.
pub trait Clock: Send + Sync {
    /// Milliseconds since 1970 (what cell timestamps are made of). May step when the machine's clock is set.
    fn now_ms(&self) -> i64;

    /// As [`Clock::now_ms`], in nanoseconds.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.now_ms()).unwrap_or(0).saturating_mul(1_000_000)
    }

    /// The hour of the day, 0 to 23, that it is now where the machine stands.
    fn hour_of_day(&self) -> i64 {
        self.now_ms().div_euclid(3_600_000).rem_euclid(24)
    }

    /// The date of a wall time where the machine stands, as a number such as 20261126. Before the year 1 the first day of that,
    /// after the year 9999 the last one.
    fn day_of(&self, wall_ms: i64) -> u32 {
        day_in(&TimeZone::UTC, wall_ms)
    }

    /// Nanoseconds since some fixed point; never goes back. Stands still while the machine is suspended.
    fn monotonic_ns(&self) -> u64;

    /// Nanoseconds since the machine started, also while it was suspended; never goes back. Leases are measured by it:
    /// other machines do not wait for one that is suspended.
    fn boot_ns(&self) -> u64;

    /// Nanoseconds for which the calling thread has had a processor, since it began; `None` where that is not known.
    fn thread_ran_ns(&self) -> Option<u64> {
        None
    }

    /// Blocks the calling thread.
    fn sleep(&self, time: Duration);
}

/// The machine's clock. Its time zone is that of the variable `TZ`, else the system's, else UTC, as it was when the clock
/// was made.
pub struct SystemClock {
    start_ns: u64,
    zone: TimeZone,
}

impl SystemClock {
    #[allow(clippy::new_without_default)]
    pub fn new() -> SystemClock {
        SystemClock { start_ns: monotonic_ns(), zone: TimeZone::try_system().unwrap_or(TimeZone::UTC) }
    }
}

#[allow(clippy::disallowed_methods)] // the one place that may
impl Clock for SystemClock {
    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    fn now_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn hour_of_day(&self) -> i64 {
        hour_in(&self.zone, self.now_ms())
    }

    fn day_of(&self, wall_ms: i64) -> u32 {
        day_in(&self.zone, wall_ms)
    }

    fn monotonic_ns(&self) -> u64 {
        monotonic_ns() - self.start_ns
    }

    fn boot_ns(&self) -> u64 {
        let since = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(since).expect("the machine started in the past").as_nanos() as u64
    }

    fn thread_ran_ns(&self) -> Option<u64> {
        let ran = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(ran).ok().map(|ran| ran.as_nanos() as u64)
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Nanoseconds since the machine started, without those for which it was suspended. As `std::time::Instant` has it, without its
/// arithmetic: a call asks for it some ten times.
#[inline]
fn monotonic_ns() -> u64 {
    let since = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    since.tv_sec as u64 * 1_000_000_000 + since.tv_nsec as u64
}

fn hour_in(zone: &TimeZone, wall_ms: i64) -> i64 {
    let at = Timestamp::from_millisecond(wall_ms).unwrap_or(Timestamp::UNIX_EPOCH);
    i64::from(zone.to_datetime(at).hour())
}

fn day_in(zone: &TimeZone, wall_ms: i64) -> u32 {
    let nearest = if wall_ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let at = Timestamp::from_millisecond(wall_ms).unwrap_or(nearest);
    let date = zone.to_datetime(at).date();
    if date.year() < 1 {
        return 10_101;
    }
    u32::from(date.year().unsigned_abs()) * 10_000
        + u32::from(date.month().unsigned_abs()) * 100
        + u32::from(date.day().unsigned_abs())
}

/// A clock that a test moves by hand; sleeping moves it as well. It stands where UTC is.
#[derive(Default)]
pub struct ManualClock {
    wall_ms: AtomicI64,
    monotonic_ns: AtomicU64,
    suspended_ns: AtomicU64,
    thread_ran_ns: AtomicU64,
}

impl ManualClock {
    pub fn at(wall_ms: i64) -> ManualClock {
        ManualClock { wall_ms: AtomicI64::new(wall_ms), ..ManualClock::default() }
    }

    /// All threads have had a processor for so much longer; the time is as before.
    pub fn advance_thread(&self, ran: Duration) {
        self.thread_ran_ns.fetch_add(ran.as_nanos() as u64, Ordering::SeqCst);
    }

    pub fn advance(&self, time: Duration) {
        self.wall_ms.fetch_add(time.as_millis() as i64, Ordering::SeqCst);
        self.monotonic_ns.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    /// The machine was suspended for so long: [`Clock::monotonic_ns`] alone has not moved.
    pub fn suspend(&self, time: Duration) {
        self.wall_ms.fetch_add(time.as_millis() as i64, Ordering::SeqCst);
        self.suspended_ns.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> i64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst)
    }

    fn boot_ns(&self) -> u64 {
        self.monotonic_ns.load(Ordering::SeqCst) + self.suspended_ns.load(Ordering::SeqCst)
    }

    fn thread_ran_ns(&self) -> Option<u64> {
        Some(self.thread_ran_ns.load(Ordering::SeqCst))
    }

    fn sleep(&self, time: Duration) {
        self.advance(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspended_machine_ages() {
        let clock = ManualClock::at(1_000);
        clock.advance(Duration::from_secs(1));
        clock.suspend(Duration::from_secs(5));
        assert_eq!(clock.monotonic_ns(), 1_000_000_000);
        assert_eq!((clock.boot_ns(), clock.now_ms()), (6_000_000_000, 7_000));
        let clock = SystemClock::new();
        let (boot_ns, monotonic_ns) = (clock.boot_ns(), clock.monotonic_ns());
        clock.sleep(Duration::from_millis(5));
        assert!(clock.boot_ns() - boot_ns >= 5_000_000 && clock.monotonic_ns() - monotonic_ns >= 5_000_000);
    }

    #[test]
    fn hours_are_those_of_the_zone() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule");
        let (winter_ms, summer_ms) = (1_768_476_600_000, 1_784_114_999_999); // 2026-01-15 11:30, 2026-07-15 11:29 UTC
        assert_eq!(hour_in(&TimeZone::UTC, winter_ms), 11);
        assert_eq!((hour_in(&zone, winter_ms), hour_in(&zone, summer_ms)), (12, 13));
        assert_eq!(hour_in(&TimeZone::UTC, -1), 23);
        assert!((0..24).contains(&SystemClock::new().hour_of_day()));
        assert_eq!(ManualClock::at(25 * 3_600_000).hour_of_day(), 1);
    }

    #[test]
    fn days_are_those_of_the_zone() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a rule");
        let late_ms = 1_768_519_800_000; // 2026-01-15 23:30 UTC
        assert_eq!((day_in(&TimeZone::UTC, late_ms), day_in(&zone, late_ms)), (20_260_115, 20_260_116));
        assert_eq!((day_in(&zone, i64::MIN), day_in(&TimeZone::UTC, i64::MAX)), (10_101, 99_991_230));
        assert_eq!(ManualClock::at(0).day_of(1), 19_700_101);
    }
}
