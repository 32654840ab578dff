//! How fast compactions write (HBase: `PressureAwareCompactionThroughputController`).
//!
//! All running compactions share one limit in equal parts. The limit lies between two bounds; the more files wait for a
//! compaction, the nearer it is to the upper bound. Off-peak hours have a limit of their own. There is no limit while some
//! store is so full that flushes wait. A compaction that is ahead of its part sleeps on its own thread. Cancelling the
//! compaction ends the sleep.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_env::{Clock, RwLock};
use halcyon_region::{CompactionControl, OffPeakHours};
use halcyon_settings::Effect::Online;
use halcyon_settings::{Description, Maybe, Millis, Number, Section, Text, settings};

const CONTROLLER: &str = "hbase.regionserver.throughput.controller";
const LOWER_BOUND: &str = "hbase.hstore.compaction.throughput.lower.bound";

const SETTINGS: &[Section<ThroughputSettings>] = &[Section {
    title: "Compaction",
    settings: settings!(ThroughputSettings:
        Online, CONTROLLER, "class", Text, controller_class, "`NoLimitThroughputController` turns the limit off.";
        Online, LOWER_BOUND, "bytes/s", Number, lower_bytes,
            "Limit of all compactions together when nothing presses.";
        Online, "hbase.hstore.compaction.throughput.higher.bound", "bytes/s", Number, higher_bytes,
            "Limit just before flushes wait.";
        Online, "hbase.hstore.compaction.throughput.offpeak", "bytes/s", Number, offpeak_bytes,
            "Limit in off-peak hours.";
        Online, "hbase.hstore.compaction.throughput.tune.period", "ms", Millis, tune_period,
            "How often the limit is set anew.";
        Online, "hbase.hstore.compaction.throughput.control.check.interval", "bytes", Maybe<Number>, check_bytes,
            "Bytes after which a compaction looks at the time. Not set: the lower bound.";
    ),
}];
/// A sleeping compaction looks this often whether it has been ended.
const NAP: Duration = Duration::from_millis(50);

/// Settings of the limit. Names in parentheses are the HBase properties that set them.
#[derive(Clone, Debug, PartialEq)]
pub struct ThroughputSettings {
    /// A class whose name ends in `NoLimitThroughputController` turns the limit off
    /// (`hbase.regionserver.throughput.controller`).
    pub controller_class: String,
    /// Bytes in a second when nothing presses (`hbase.hstore.compaction.throughput.lower.bound`).
    pub lower_bytes: u64,
    /// Bytes in a second just before flushes wait (`hbase.hstore.compaction.throughput.higher.bound`).
    pub higher_bytes: u64,
    /// Bytes in a second in off-peak hours (`hbase.hstore.compaction.throughput.offpeak`).
    pub offpeak_bytes: u64,
    /// How often the limit is set anew (`hbase.hstore.compaction.throughput.tune.period`).
    pub tune_period: Duration,
    /// Bytes after which a compaction looks at the time; `None`: `lower_bytes`
    /// (`hbase.hstore.compaction.throughput.control.check.interval`).
    pub check_bytes: Option<u64>,
}

impl Default for ThroughputSettings {
    fn default() -> ThroughputSettings {
        ThroughputSettings {
            controller_class:
                "org.apache.hadoop.hbase.regionserver.throttle.PressureAwareCompactionThroughputController"
                    .to_string(),
            lower_bytes: 50 << 20,
            higher_bytes: 100 << 20,
            offpeak_bytes: i64::MAX as u64,
            tune_period: Duration::from_secs(60),
            check_bytes: None,
        }
    }
}

impl ThroughputSettings {
    /// Sets one by its property name; `Ok(false)` if no setting has that name. Invalid if the value makes no sense.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        halcyon_settings::set(SETTINGS, self, name, value)
    }

    pub(crate) fn describe() -> Vec<Description> {
        halcyon_settings::describe(SETTINGS, &ThroughputSettings::default())
    }

    fn is_unlimited(&self) -> bool {
        self.controller_class.ends_with("NoLimitThroughputController")
    }
}

impl fmt::Display for ThroughputSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        halcyon_settings::print(SETTINGS, self, f)
    }
}

/// The limit that all compactions of a server share. *Thread safety*: all methods from any thread.
pub(crate) struct Throughput {
    settings: RwLock<(ThroughputSettings, OffPeakHours)>,
    clock: Arc<dyn Clock>,
    /// Bytes in a second for all together; `u64::MAX`: no limit.
    limit_bytes: AtomicU64,
    running: AtomicUsize,
}

impl Throughput {
    pub(crate) fn new(
        settings: ThroughputSettings,
        off_peak: OffPeakHours,
        clock: Arc<dyn Clock>,
    ) -> Throughput {
        let first = if settings.is_unlimited() { u64::MAX } else { settings.lower_bytes };
        Throughput {
            settings: RwLock::new((settings, off_peak)),
            clock,
            limit_bytes: AtomicU64::new(first),
            running: AtomicUsize::new(0),
        }
    }

    pub(crate) fn tune_period(&self) -> Duration {
        self.settings.read().0.tune_period
    }

    /// Other settings; they count from the next [`Throughput::tune`] on.
    pub(crate) fn set(&self, settings: ThroughputSettings, off_peak: OffPeakHours) {
        *self.settings.write() = (settings, off_peak);
    }

    /// Bytes after which a compaction looks at the time.
    fn check_bytes(&self) -> u64 {
        let settings = &self.settings.read().0;
        settings.check_bytes.unwrap_or(settings.lower_bytes)
    }

    /// Sets the limit by how much compactions are needed: 0 not at all, above 1 flushes wait for them.
    pub(crate) fn tune(&self, pressure: f64) {
        let (settings, off_peak) = &*self.settings.read();
        let limit = if settings.is_unlimited() || pressure > 1.0 {
            u64::MAX
        } else if off_peak.contains(self.clock.hour_of_day()) {
            settings.offpeak_bytes
        } else {
            let room = settings.higher_bytes.saturating_sub(settings.lower_bytes);
            settings.lower_bytes.saturating_add((room as f64 * pressure.max(0.0)) as u64)
        };
        self.limit_bytes.store(limit, Ordering::Relaxed);
    }

    /// Takes part in the limit until the value is dropped. `cancel` ends the compaction.
    pub(crate) fn begin<'a>(&'a self, cancel: &'a AtomicBool) -> Paced<'a> {
        self.running.fetch_add(1, Ordering::Relaxed);
        let since_ns = self.clock.monotonic_ns();
        Paced { throughput: self, cancel, since_ns, bytes: 0, slept: Duration::ZERO }
    }

    fn bytes_for_each(&self) -> Option<u64> {
        let limit = self.limit_bytes.load(Ordering::Relaxed);
        let running = self.running.load(Ordering::Relaxed).max(1) as u64;
        (limit < i64::MAX as u64).then(|| (limit / running).max(1))
    }
}

/// One compaction under the limit.
pub(crate) struct Paced<'a> {
    throughput: &'a Throughput,
    cancel: &'a AtomicBool,
    /// When the bytes below began to be counted.
    since_ns: u64,
    bytes: u64,
    slept: Duration,
}

impl Paced<'_> {
    pub(crate) fn slept(&self) -> Duration {
        self.slept
    }

    /// How long to wait after `bytes` since `since_ns` so as not to be faster than the limit.
    fn ahead(&self, now_ns: u64) -> Duration {
        let Some(limit) = self.throughput.bytes_for_each() else { return Duration::ZERO };
        let needed = Duration::from_secs_f64((self.bytes as f64 / limit as f64).min(f64::from(u32::MAX)));
        needed.saturating_sub(Duration::from_nanos(now_ns.saturating_sub(self.since_ns)))
    }
}

impl CompactionControl for Paced<'_> {
    fn go_on(&mut self, written_bytes: u64, is_closing: &dyn Fn() -> bool) -> bool {
        self.bytes += written_bytes;
        if self.bytes >= self.throughput.check_bytes() {
            let clock = &self.throughput.clock;
            // Asked for anew after each nap: the limit may have been raised.
            loop {
                let wait = self.ahead(clock.monotonic_ns()).min(NAP);
                if wait.is_zero() || self.cancel.load(Ordering::Relaxed) || is_closing() {
                    break;
                }
                clock.sleep(wait);
                self.slept += wait;
            }
            (self.since_ns, self.bytes) = (clock.monotonic_ns(), 0);
        }
        !self.cancel.load(Ordering::Relaxed)
    }
}

impl Drop for Paced<'_> {
    fn drop(&mut self) {
        self.throughput.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::ManualClock;

    use super::*;

    const MB: u64 = 1 << 20;

    fn throughput(settings: ThroughputSettings) -> (Arc<ManualClock>, Throughput) {
        let clock = Arc::new(ManualClock::at(12 * 3_600_000));
        let off_peak = OffPeakHours { start: 0, end: 6 };
        (clock.clone(), Throughput::new(settings, off_peak, clock))
    }

    fn write(paced: &mut Paced<'_>, megabytes: u64) -> bool {
        (0..megabytes).all(|_| paced.go_on(MB, &|| false))
    }

    #[test]
    fn a_compaction_alone_keeps_to_the_lower_bound() {
        let (clock, throughput) = throughput(ThroughputSettings::default());
        let cancel = AtomicBool::new(false);
        let mut paced = throughput.begin(&cancel);
        assert!(write(&mut paced, 100));
        assert_eq!(clock.monotonic_ns(), 2_000_000_000);
        assert_eq!(paced.slept(), Duration::from_secs(2));
        clock.advance(Duration::from_secs(1)); // slower than allowed: nothing to wait for
        assert!(write(&mut paced, 50));
        assert_eq!(clock.monotonic_ns(), 3_000_000_000);
    }

    #[test]
    fn two_share_it() {
        let (clock, throughput) = throughput(ThroughputSettings::default());
        let cancel = AtomicBool::new(false);
        let mut paced = throughput.begin(&cancel);
        let other = throughput.begin(&cancel);
        assert!(write(&mut paced, 50));
        assert_eq!(clock.monotonic_ns(), 2_000_000_000);
        drop(other);
        assert!(write(&mut paced, 50));
        assert_eq!(clock.monotonic_ns(), 3_000_000_000);
    }

    #[test]
    fn pressure_raises_the_limit_and_too_much_of_it_lifts_it() {
        let (clock, throughput) = throughput(ThroughputSettings::default());
        let limit = |pressure| {
            throughput.tune(pressure);
            throughput.bytes_for_each()
        };
        assert_eq!(limit(0.0), Some(50 * MB));
        assert_eq!(limit(0.5), Some(75 * MB));
        assert_eq!(limit(1.0), Some(100 * MB));
        assert_eq!(limit(1.01), None);
        clock.advance(Duration::from_secs(13 * 3600)); // one in the morning
        assert_eq!(limit(0.0), None, "there is no limit in off-peak hours unless one is set");
    }

    #[test]
    fn there_may_be_no_limit_at_all() {
        let mut settings = ThroughputSettings::default();
        let class = "org.apache.hadoop.hbase.regionserver.throttle.NoLimitThroughputController";
        assert!(settings.set(CONTROLLER, class).unwrap());
        let (clock, throughput) = throughput(settings);
        throughput.tune(0.0);
        let cancel = AtomicBool::new(false);
        assert!(write(&mut throughput.begin(&cancel), 1000));
        assert_eq!(clock.monotonic_ns(), 0);
    }

    #[test]
    fn what_ends_the_compaction_ends_its_sleep() {
        let settings = ThroughputSettings { lower_bytes: 1, ..ThroughputSettings::default() };
        let (clock, throughput) = throughput(settings);
        let cancel = AtomicBool::new(false);
        let mut paced = throughput.begin(&cancel);
        let asked = AtomicUsize::new(0);
        paced.go_on(MB, &|| asked.fetch_add(1, Ordering::Relaxed) == 3);
        assert_eq!(clock.monotonic_ns(), 3 * NAP.as_nanos() as u64);
        cancel.store(true, Ordering::Relaxed);
        assert!(!write(&mut paced, 1));
        assert_eq!(clock.monotonic_ns(), 3 * NAP.as_nanos() as u64);
    }

    #[test]
    fn settings_print_and_parse_back() {
        let settings = ThroughputSettings { lower_bytes: 7, check_bytes: Some(9), ..Default::default() };
        let mut read = ThroughputSettings::default();
        for line in settings.to_string().lines() {
            let (name, value) = line.split_once(" = ").expect("name = value");
            assert!(read.set(name, value).unwrap(), "{name}");
        }
        assert_eq!(read, settings);
        assert!(!read.set("some.other.name", "1").unwrap());
        assert!(read.set(LOWER_BOUND, "much").is_err());
    }
}
