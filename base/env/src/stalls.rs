//! What took too long, and why: every wait over a threshold is recorded with its cause.
//!
//! Code that waits for something that ought to be quick (a disk, the processor) measures the wait with
//! [`Stalls::watch`]. Under the threshold that costs two clock reads. Locks measure themselves:
//! [`WatchedMutex`](crate::WatchedMutex) and [`WatchedRwLock`](crate::WatchedRwLock).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crate::host::Host;
use crate::waits::{Wait, Waits};
use crate::{Clock, tally};

/// Waits that are kept whole; of older ones the sums stay.
const RECENT_MAX: usize = 1024;
const THRESHOLD_DEFAULT: Duration = Duration::from_millis(10);
/// An operating system counts what its host took when its own clock ticks next, a hundred times in a second or more often.
const HOST_TOLD_AFTER_NS: u64 = 10_000_000;

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

impl StallSum {
    pub(crate) fn add(&mut self, time: Duration) {
        self.count += 1;
        self.total += time;
        self.longest = self.longest.max(time);
    }
}

/// Where stalls are recorded. *Thread safety*: all methods from any thread; recording takes a short lock.
pub struct Stalls {
    threshold_ns: AtomicU64,
    /// The shortest wait that anybody wants: the threshold, or less while a profile of waits is taken.
    wanted_ns: AtomicU64,
    recorded: Mutex<Recorded>,
    waits: Mutex<Option<Waits>>,
    host: OnceLock<Host>,
}

#[derive(Default)]
struct Recorded {
    /// Those since the last look at the host, and when they ended by the monotonic clock.
    fresh: Vec<(Stall, u64)>,
    recent: VecDeque<Stall>,
    /// Stalls that were ever in `recent`.
    kept_count: u64,
    sums: BTreeMap<&'static str, StallSum>,
}

impl Default for Stalls {
    fn default() -> Stalls {
        Stalls {
            threshold_ns: AtomicU64::new(THRESHOLD_DEFAULT.as_nanos() as u64),
            wanted_ns: AtomicU64::new(THRESHOLD_DEFAULT.as_nanos() as u64),
            recorded: Mutex::default(),
            waits: Mutex::default(),
            host: OnceLock::new(),
        }
    }
}

impl Stalls {
    /// Waits from this time on count.
    pub fn set_threshold(&self, threshold: Duration) {
        self.threshold_ns.store(threshold.as_nanos() as u64, Ordering::Relaxed);
        self.want(&self.waits());
    }

    pub fn threshold(&self) -> Duration {
        Duration::from_nanos(self.threshold_ns.load(Ordering::Relaxed))
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
        self.took_as(clock, cause, detail, |_| {}, time_ns);
    }

    /// As [`Stalls::took`]. What `more` adds to the detail differs from wait to wait: a profile does without it.
    #[inline]
    fn took_as(
        &self,
        clock: &dyn Clock,
        cause: &'static str,
        detail: impl FnOnce() -> String,
        more: impl FnOnce(&mut String),
        time_ns: u64,
    ) {
        tally::note(cause, time_ns);
        if time_ns < self.wanted_ns.load(Ordering::Relaxed) {
            return;
        }
        let mut detail = detail();
        let time = Duration::from_nanos(time_ns);
        self.profile(cause, &detail, time);
        if time >= self.threshold() {
            more(&mut detail);
            self.record(Stall { at_ms: clock.now_ms(), cause, detail, time }, clock.monotonic_ns());
        }
    }

    /// From now on waits of this length and more are counted, until [`Stalls::end_profile`]. Stalls are recorded as before.
    /// Returns whether there was no profile already; one that was there continues.
    pub fn begin_profile(&self, shortest: Duration) -> bool {
        let mut waits = self.waits();
        let is_free = waits.is_none();
        waits.get_or_insert_with(|| Waits::new(shortest));
        self.want(&waits);
        is_free
    }

    /// The waits since [`Stalls::begin_profile`], summed by thread, cause and detail, and how many had no place.
    pub fn end_profile(&self) -> (Vec<Wait>, u64) {
        let mut waits = self.waits();
        let profile = waits.take();
        self.want(&waits);
        profile.map(Waits::finish).unwrap_or_default()
    }

    fn want(&self, waits: &Option<Waits>) {
        let threshold = self.threshold();
        let shortest = waits.as_ref().map_or(threshold, |waits| waits.shortest.min(threshold));
        self.wanted_ns.store(shortest.as_nanos() as u64, Ordering::Relaxed);
    }

    #[cold]
    fn profile(&self, cause: &'static str, detail: &str, time: Duration) {
        if let Some(waits) = &mut *self.waits() {
            waits.add(cause, detail, time);
        }
    }

    fn waits(&self) -> MutexGuard<'_, Option<Waits>> {
        self.waits.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// From now on what the host of this virtual machine takes is told apart: `taken` says how much it has taken of each
    /// processor, on average, since the start. It is asked by [`Stalls::look_at_host`], which somebody is to call several
    /// times in a second. A stall of which the host took half or more has the cause `host`.
    pub fn ask_host(&self, taken: Box<dyn Fn() -> Option<Duration> + Send + Sync>) {
        let _ = self.host.set(Host::new(taken)); // once is enough
    }

    /// Sees what the host took, and so of whose making the stalls are that ended since the last look, but for the very last.
    pub fn look_at_host(&self, clock: &dyn Clock) {
        let Some(host) = self.host.get() else { return };
        let now_ns = clock.monotonic_ns();
        host.look(now_ns);
        let mut recorded = self.recorded();
        let is_told = |(_, ended_ns): &mut (Stall, u64)| *ended_ns + HOST_TOLD_AFTER_NS <= now_ns;
        let told: Vec<_> = recorded.fresh.extract_if(.., is_told).collect();
        for (mut stall, ended_ns) in told {
            host.judge(&mut stall, ended_ns);
            recorded.keep(stall);
        }
    }

    #[cold]
    fn record(&self, stall: Stall, ended_ns: u64) {
        let mut recorded = self.recorded();
        if self.host.get().is_some() && recorded.fresh.len() < RECENT_MAX {
            recorded.fresh.push((stall, ended_ns));
        } else {
            recorded.keep(stall);
        }
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The latest ones, the oldest first.
    pub fn recent(&self) -> Vec<Stall> {
        let recorded = self.recorded();
        recorded.recent.iter().chain(recorded.fresh.iter().map(|(stall, _)| stall)).cloned().collect()
    }

    /// The stalls after the first `seen` ones, the oldest first, and how many there were in all. Only the latest are
    /// kept. A stall appears once its cause is known.
    pub fn since(&self, seen: u64) -> (Vec<Stall>, u64) {
        let recorded = self.recorded();
        let new = recorded.kept_count.saturating_sub(seen).min(RECENT_MAX as u64) as usize;
        let old = recorded.recent.len().saturating_sub(new);
        (recorded.recent.iter().skip(old).cloned().collect(), recorded.kept_count)
    }

    /// Sums since the start, by cause, which never go back: a stall counts once it is known whether it is the host's.
    pub fn sums(&self) -> Vec<(&'static str, StallSum)> {
        self.recorded().sums.iter().map(|(cause, sum)| (*cause, *sum)).collect()
    }
}

impl Recorded {
    fn keep(&mut self, stall: Stall) {
        self.sums.entry(stall.cause).or_default().add(stall.time);
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(stall);
        self.kept_count += 1;
    }
}

/// A time at which a thread means to run again.
pub struct Due<'w> {
    watch: &'w Watch,
    set_ns: u64,
    period_ns: u64,
    ran_ns: Option<u64>,
}

impl Due<'_> {
    /// The thread runs, or it has come to this in what it does. Being late is recorded, and how long it ran meanwhile: the
    /// rest it waited for a processor.
    pub fn came(self, cause: &'static str, detail: impl FnOnce() -> String) {
        let Due { watch: Watch { stalls, clock }, set_ns, period_ns, ran_ns } = self;
        let since_ns = clock.monotonic_ns().saturating_sub(set_ns);
        let more = |detail: &mut String| {
            if let (Some(before), Some(now)) = (ran_ns, clock.thread_ran_ns()) {
                let (ran, since) = (now.saturating_sub(before) as f64 / 1e6, since_ns as f64 / 1e6);
                detail.push_str(&format!(", which ran for {ran:.1} ms of {since:.1}"));
            }
        };
        stalls.took_as(&**clock, cause, detail, more, since_ns.saturating_sub(period_ns));
    }
}

/// Stalls and the clock that they are measured with. Cheap to clone.
#[derive(Clone)]
pub struct Watch {
    pub stalls: Arc<Stalls>,
    pub clock: Arc<dyn Clock>,
}

impl Watch {
    /// To be asked before a wait of this length, by the thread that waits.
    pub fn due_in(&self, period: Duration) -> Due<'_> {
        Due {
            watch: self,
            set_ns: self.clock.monotonic_ns(),
            period_ns: period.as_nanos() as u64,
            ran_ns: self.clock.thread_ran_ns(),
        }
    }

    /// Waits for a lock that is not free: `within` the threshold, else `at_last`. A wait over the threshold is recorded
    /// with what `detail` said when the threshold was reached, while the lock was still held. While a profile is taken,
    /// its shortest wait stands for the threshold.
    #[cold]
    pub(crate) fn acquire_slowly<T>(
        &self,
        cause: &'static str,
        within: impl FnOnce(Duration) -> Option<T>,
        at_last: impl FnOnce() -> T,
        detail: impl FnOnce() -> String,
    ) -> T {
        let started_ns = self.clock.monotonic_ns();
        let wanted = Duration::from_nanos(self.stalls.wanted_ns.load(Ordering::Relaxed));
        if let Some(taken) = within(wanted) {
            if tally::is_counting() {
                tally::note(cause, self.clock.monotonic_ns().saturating_sub(started_ns));
            }
            return taken;
        }
        let detail = detail();
        let taken = at_last();
        let waited_ns = self.clock.monotonic_ns().saturating_sub(started_ns);
        self.stalls.took(&*self.clock, cause, || detail, waited_ns);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;

    const TWENTY: Duration = Duration::from_millis(20);

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
        let (new, seen) = stalls.since(RECENT_MAX as u64 + 11);
        assert_eq!((new.len(), seen), (2, RECENT_MAX as u64 + 13));
        assert_eq!((stalls.since(0).0.len(), stalls.since(seen).0.len()), (RECENT_MAX, 0));
        assert_eq!(longest("sync").count, 2 + RECENT_MAX as u64 + 10);
    }

    #[test]
    fn a_profile_counts_shorter_waits_and_no_stall_more() {
        let clock = Arc::new(ManualClock::at(5));
        let watch = Watch { stalls: Arc::default(), clock: clock.clone() };
        let stalls = &watch.stalls;
        let wait = |us| {
            stalls.watch(&*clock, "sync", || "of a file".into(), || clock.advance(Duration::from_micros(us)))
        };
        wait(500);
        assert!(stalls.begin_profile(Duration::from_micros(100)));
        assert!(!stalls.begin_profile(Duration::from_micros(1)), "there is one");
        [50, 100, 500, 12_000].into_iter().for_each(wait);
        for _ in 0..2 {
            let due = watch.due_in(Duration::from_millis(3));
            clock.advance(Duration::from_millis(20));
            due.came("lane", || "lane 1".into()); // each says how long it ran, and they count together
        }
        assert_eq!((stalls.recent().len(), stalls.threshold()), (3, THRESHOLD_DEFAULT));
        let (waits, lost_count) = stalls.end_profile();
        let found: Vec<_> = waits.iter().map(|wait| (wait.cause, &wait.detail[..], wait.sum.count)).collect();
        assert_eq!((found, lost_count), (vec![("lane", "lane 1", 2), ("sync", "of a file", 3)], 0));
        assert_eq!(waits[1].sum.total, Duration::from_micros(12_600));
        assert!(waits[0].thread.contains("a_profile_counts_shorter_waits"), "{}", waits[0].thread);
        wait(500);
        assert_eq!(stalls.end_profile(), (Vec::new(), 0));
    }

    #[test]
    fn who_runs_late_tells_how_long_it_ran() {
        let clock = Arc::new(ManualClock::at(5));
        let watch = Watch { stalls: Arc::default(), clock: clock.clone() };
        let late = |ms, ran_ms| {
            let due = watch.due_in(Duration::from_millis(3));
            clock.advance(Duration::from_millis(ms));
            clock.advance_thread(Duration::from_millis(ran_ms));
            due.came("lane", || "lane 1".into());
            watch.stalls.recent().pop()
        };
        assert_eq!(late(12, 0), None);
        let stall = late(30, 4).expect("too late");
        assert_eq!((stall.cause, stall.time), ("lane", Duration::from_millis(27)));
        assert_eq!(stall.detail, "lane 1, which ran for 4.0 ms of 30.0");
    }

    #[test]
    fn what_the_host_took_is_told_apart() {
        let (clock, stalls) = (ManualClock::at(5), Stalls::default());
        let taken_ms = Arc::new(AtomicU64::new(7000));
        let source = Arc::clone(&taken_ms);
        stalls.ask_host(Box::new(move || Some(Duration::from_millis(source.load(Ordering::Relaxed)))));
        let wait = |ms, taken| {
            stalls.watch(&clock, "lock", || "of a row".into(), || clock.advance(Duration::from_millis(ms)));
            taken_ms.fetch_add(taken, Ordering::Relaxed);
        };
        let look = |after_ms| {
            clock.advance(Duration::from_millis(after_ms));
            stalls.look_at_host(&clock);
            stalls.recent().pop().map(|stall| (stall.cause, stall.detail))
        };
        let told = |cause, detail: &str| Some((cause, detail.to_string()));
        assert_eq!(look(1000), None);
        wait(20, 9);
        assert_eq!(stalls.recent().len(), 1, "seen before it is known whose it is");
        assert_eq!(look(9), told("lock", "of a row"));
        assert_eq!(stalls.sums(), []);
        assert_eq!(look(1), told("lock", "of a row; the host took 9 ms of each processor in 30 ms"));
        assert_eq!(stalls.sums(), [("lock", StallSum { count: 1, total: TWENTY, longest: TWENTY })]);
        wait(20, 10);
        assert_eq!(look(10), told("host", "lock: of a row; the host took 10 ms of each processor in 30 ms"));
        // What it takes before counts only as far as there was no look in between.
        clock.advance(Duration::from_millis(20));
        wait(20, 10);
        assert_eq!(look(10), told("host", "lock: of a row; the host took 10 ms of each processor in 50 ms"));
        taken_ms.fetch_add(10, Ordering::Relaxed);
        look(10);
        wait(20, 0);
        assert_eq!(look(10), told("lock", "of a row"));
        let sums: Vec<_> = stalls.sums().into_iter().map(|(cause, sum)| (cause, sum.count)).collect();
        assert_eq!(sums, [("host", 2), ("lock", 2)]);
    }

    #[test]
    fn a_long_wait_for_a_lock_is_recorded_as_it_was_at_the_threshold() {
        let clock = Arc::new(ManualClock::at(5));
        let watch = Watch { stalls: Arc::default(), clock: clock.clone() };
        let soon = watch.acquire_slowly("lock", |_| Some(2), || unreachable!(), || unreachable!());
        assert_eq!((soon, watch.stalls.recent().len()), (2, 0));
        let held = std::cell::Cell::new(true);
        let late = watch.acquire_slowly(
            "lock",
            |time| {
                clock.advance(time);
                None
            },
            || {
                held.set(false);
                clock.advance(Duration::from_millis(30));
                3
            },
            || format!("held: {}", held.get()),
        );
        assert_eq!(late, 3);
        let stall = watch.stalls.recent().pop().expect("one");
        assert_eq!((stall.cause, stall.time), ("lock", THRESHOLD_DEFAULT + Duration::from_millis(30)));
        assert_eq!(stall.detail, "held: true");
    }
}
