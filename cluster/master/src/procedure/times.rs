//! How many procedures began and failed and how long they took, under the words of HBase's metrics.

use std::collections::BTreeMap;

use halcyon_rpc::CallTimesSnapshot;

/// Where a bucket of times ends, in milliseconds.
const BOUNDS_MS: [u64; 16] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 600_000];

/// Procedures of one kind since the start of the master.
#[derive(Clone, Debug, Default)]
pub struct ProcedureTimes {
    pub submitted_count: u64,
    /// Those that ended with an error, refused ones too.
    pub failed_count: u64,
    /// From submission to the end, of those that did not fail.
    pub times: CallTimesSnapshot,
}

#[derive(Default)]
struct Kind {
    submitted_count: u64,
    failed_count: u64,
    ended_count: u64,
    sum_ms: u64,
    /// For each bound, how many took no longer.
    up_to: [u64; BOUNDS_MS.len()],
}

impl Kind {
    fn record(&mut self, took_ms: u64) {
        self.ended_count += 1;
        self.sum_ms += took_ms;
        let longer_bounds = self.up_to.iter_mut().zip(BOUNDS_MS).filter(|(_, bound_ms)| took_ms <= *bound_ms);
        longer_bounds.for_each(|(count, _)| *count += 1);
    }

    fn snapshot(&self) -> ProcedureTimes {
        let bounds_s = BOUNDS_MS.map(|bound_ms| bound_ms as f64 / 1000.0);
        let times = CallTimesSnapshot {
            up_to: bounds_s.into_iter().zip(self.up_to).collect(),
            count: self.ended_count,
            sum_seconds: self.sum_ms as f64 / 1000.0,
        };
        ProcedureTimes { submitted_count: self.submitted_count, failed_count: self.failed_count, times }
    }
}

/// By the word of HBase's metrics; procedures without one are not counted.
#[derive(Default)]
pub(super) struct TimesByKind(BTreeMap<&'static str, Kind>);

impl TimesByKind {
    pub(super) fn submitted(&mut self, metric: Option<&'static str>) {
        if let Some(metric) = metric {
            self.0.entry(metric).or_default().submitted_count += 1;
        }
    }

    pub(super) fn ended(&mut self, metric: Option<&'static str>, is_ok: bool, took_ms: i64) {
        let Some(kind) = metric.map(|metric| self.0.entry(metric).or_default()) else { return };
        if is_ok {
            kind.record(u64::try_from(took_ms).unwrap_or(0));
        } else {
            kind.failed_count += 1;
        }
    }

    pub(super) fn snapshot(&self) -> BTreeMap<&'static str, ProcedureTimes> {
        self.0.iter().map(|(metric, kind)| (*metric, kind.snapshot())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn procedures_are_counted_by_their_word() {
        let mut times = TimesByKind::default();
        for (is_ok, took_ms) in [(true, 3), (true, 700), (false, 9), (true, 3_600_000)] {
            times.submitted(Some("Split"));
            times.ended(Some("Split"), is_ok, took_ms);
        }
        times.submitted(None);
        times.ended(None, true, 1);
        let snapshot = times.snapshot();
        assert_eq!(snapshot.keys().collect::<Vec<_>>(), [&"Split"]);
        let splits = &snapshot["Split"];
        assert_eq!((splits.submitted_count, splits.failed_count, splits.times.count), (4, 1, 3));
        assert_eq!(splits.times.sum_seconds, 3600.703);
        let up_to = |bound_s: f64| splits.times.up_to.iter().find(|(bound, _)| *bound == bound_s).unwrap().1;
        assert_eq!([0.002, 0.005, 0.5, 1.0, 600.0].map(up_to), [0, 1, 1, 2, 2]);
    }
}
