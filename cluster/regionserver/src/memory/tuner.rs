//! Moves memory between memstores and block cache by load (HBase: `DefaultHeapMemoryTuner`).
//!
//! Memstores are short of memory when the memory limit caused flushes or held writers back. The cache is short when blocks
//! were evicted and others were missed. When one side is short and the other is not, one step of memory moves to it. A
//! setting that names a share fixes both shares.

use std::time::Duration;

/// How often it is looked.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);
/// Part of the whole memory that one step moves.
const STEP_SHARE: f64 = 0.02;
/// Neither side gets less than this part of the whole memory.
const SHARE_MIN: f64 = 0.1;

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Flushes and waits of writers for the sake of memory.
    pub memstores: u64,
    /// Blocks that left the cache for others.
    pub evicted: u64,
    /// Blocks that were looked for and not there.
    pub missed: u64,
}

/// What was seen last, and how the memory is divided.
#[derive(Debug)]
pub(crate) struct Tuner {
    seen: Needs,
    memstore_share: f64,
    /// Of both sides together.
    sum_share: f64,
}

impl Tuner {
    pub(crate) fn new(memstore_share: f64, cache_share: f64) -> Tuner {
        Tuner { seen: Needs::default(), memstore_share, sum_share: memstore_share + cache_share }
    }

    /// The memstores' new part of what both sides have together, if it is to change.
    pub(crate) fn next_memstore_part(&mut self, now: Needs) -> Option<f64> {
        self.step(now).map(|share| share / self.sum_share)
    }

    /// The memstores' new share, if it is to change.
    fn step(&mut self, now: Needs) -> Option<f64> {
        let before = std::mem::replace(&mut self.seen, now);
        let memstores_short = now.memstores > before.memstores;
        let blocks_short = now.evicted > before.evicted && now.missed > before.missed;
        let step = match (memstores_short, blocks_short) {
            (true, false) => STEP_SHARE,
            (false, true) => -STEP_SHARE,
            _ => return None,
        };
        let most = (self.sum_share - SHARE_MIN).max(self.memstore_share);
        let share = (self.memstore_share + step).clamp(SHARE_MIN.min(self.memstore_share), most);
        (share != self.memstore_share).then(|| {
            self.memstore_share = share;
            share
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_where_it_is_short_and_stays_where_both_are() {
        let mut tuner = Tuner::new(0.35, 0.35);
        let mut needs = Needs::default();
        assert_eq!(tuner.step(needs), None);
        needs.memstores += 1;
        assert_eq!(tuner.step(needs), Some(0.37));
        (needs.evicted, needs.missed) = (5, 5);
        assert_eq!(tuner.step(needs), Some(0.35));
        (needs.evicted, needs.missed, needs.memstores) = (6, 6, 2);
        assert_eq!(tuner.step(needs), None, "both are short");
        needs.evicted += 1;
        assert_eq!(tuner.step(needs), None, "evicted by what was written, not by what was missed");
        for _ in 0..100 {
            needs.memstores += 1;
            tuner.step(needs);
        }
        assert!((tuner.memstore_share - 0.6).abs() < 1e-9, "{tuner:?}");
        for _ in 0..100 {
            (needs.evicted, needs.missed) = (needs.evicted + 1, needs.missed + 1);
            tuner.step(needs);
        }
        assert!((tuner.memstore_share - 0.1).abs() < 1e-9, "{tuner:?}");
    }
}
