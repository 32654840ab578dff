//! From when on a call is slow, and an answer large (HBase: `RpcServer.isTooSlow`, `isTooLarge`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use halcyon_rpc::{CallClass, Notable};

/// Plain data; `None`: never (HBase: -1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarnSettings {
    /// Calls that take as long or longer are slow (`hbase.ipc.warn.response.time`).
    pub time: Option<Duration>,
    /// Answers that are larger, in bytes (`hbase.ipc.warn.response.size`).
    pub bytes: Option<u64>,
    /// As `time`, of scans (`hbase.ipc.warn.response.time.scan`); `None`: as other calls.
    pub scan_time: Option<Option<Duration>>,
    /// As `bytes`, of scans (`hbase.ipc.warn.response.size.scan`); `None`: as other calls.
    pub scan_bytes: Option<Option<u64>>,
}

impl Default for WarnSettings {
    fn default() -> WarnSettings {
        WarnSettings {
            time: Some(Duration::from_secs(10)),
            bytes: Some(100 << 20),
            scan_time: None,
            scan_bytes: None,
        }
    }
}

/// The limits in force: every call looks at them. *Thread safety*: all methods from any thread.
pub(crate) struct WarnLimits {
    time_ns: AtomicU64,
    bytes: AtomicU64,
    scan_time_ns: AtomicU64,
    scan_bytes: AtomicU64,
}

impl WarnLimits {
    pub(crate) fn new(settings: &WarnSettings) -> WarnLimits {
        let never = || AtomicU64::new(u64::MAX);
        let limits =
            WarnLimits { time_ns: never(), bytes: never(), scan_time_ns: never(), scan_bytes: never() };
        limits.set(settings);
        limits
    }

    pub(crate) fn set(&self, settings: &WarnSettings) {
        let nanos = |time: Option<Duration>| {
            time.map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
        };
        let WarnSettings { time, bytes, scan_time, scan_bytes } = settings;
        self.time_ns.store(nanos(*time), Ordering::Relaxed);
        self.bytes.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
        self.scan_time_ns.store(nanos(scan_time.unwrap_or(*time)), Ordering::Relaxed);
        self.scan_bytes.store(scan_bytes.unwrap_or(*bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The lower ones of both kinds of calls.
    pub(crate) fn notable(&self) -> Notable {
        let lower = |one: &AtomicU64, other: &AtomicU64| {
            one.load(Ordering::Relaxed).min(other.load(Ordering::Relaxed))
        };
        Notable {
            time_ns: lower(&self.time_ns, &self.scan_time_ns),
            response_bytes: lower(&self.bytes, &self.scan_bytes),
        }
    }

    /// Whether such a call is slow, and whether its answer is large.
    pub(crate) fn judge(&self, class: CallClass, took_ns: u64, response_bytes: u64) -> (bool, bool) {
        let (time_ns, bytes) = match class {
            CallClass::Scan => (&self.scan_time_ns, &self.scan_bytes),
            _ => (&self.time_ns, &self.bytes),
        };
        (took_ns >= time_ns.load(Ordering::Relaxed), response_bytes > bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scans_have_limits_of_their_own_if_they_are_set() {
        let judged = |settings: &WarnSettings, class| {
            let limits = WarnLimits::new(settings);
            [(10, 20), (11, 20), (10, 21)].map(|(ms, bytes)| limits.judge(class, ms * 1_000_000, bytes))
        };
        let settings = WarnSettings {
            time: Some(Duration::from_millis(11)),
            bytes: Some(20),
            ..WarnSettings::default()
        };
        let all = [(false, false), (true, false), (false, true)];
        assert_eq!(judged(&settings, CallClass::Read), all);
        assert_eq!(judged(&settings, CallClass::Scan), all);
        let settings = WarnSettings { scan_time: Some(None), scan_bytes: Some(Some(19)), ..settings };
        assert_eq!(judged(&settings, CallClass::Write), all);
        assert_eq!(judged(&settings, CallClass::Scan), [(false, true); 3]);
        let notable = WarnLimits::new(&settings).notable();
        assert_eq!(notable, Notable { time_ns: 11_000_000, response_bytes: 19 });
        let never = WarnSettings { time: None, bytes: None, scan_time: None, scan_bytes: None };
        assert_eq!(WarnLimits::new(&never).notable(), Notable::NONE);
    }
}
