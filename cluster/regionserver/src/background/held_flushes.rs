//! Flushes that wait: because a store has too many files, or because the last attempt failed.
//!
//! A region with too many files does not get another file at once: it waits beside the flusher's queue for a compaction,
//! but not longer than `hbase.hstore.blockingWaitTime`, and not when memory is short. Its writers are held back
//! meanwhile when its memstore reaches the blocking size (HBase: `MemStoreFlusher.flushRegion`).
//!
//! A flush that failed, of which a full disk is the usual reason, is tried again after a pause.

use std::sync::Arc;
use std::time::Duration;

use halcyon_env::Mutex;

/// How long a region waits after a flush that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Regions whose flush waits. They count as queued for the flusher.
pub(crate) struct HeldFlushes<T>(Mutex<Vec<HeldFlush<T>>>);

pub(crate) struct HeldFlush<T> {
    pub(crate) online: Arc<T>,
    since_ns: u64,
    pub(crate) failed: bool,
}

/// What is known of a region that waits.
pub(crate) struct HeldState {
    /// False: the region was closed or moved.
    pub(crate) is_served: bool,
    pub(crate) has_too_many_files: bool,
}

impl<T> Default for HeldFlushes<T> {
    fn default() -> HeldFlushes<T> {
        HeldFlushes(Mutex::default())
    }
}

impl<T> HeldFlush<T> {
    fn waits(&self, now_ns: u64, wait: Duration, has_too_many_files: bool) -> bool {
        let waited = Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        if self.failed { waited < PAUSE_AFTER_FAILURE } else { waited < wait && has_too_many_files }
    }
}

impl<T> HeldFlushes<T> {
    pub(crate) fn wait_for_compaction(&self, online: Arc<T>, now_ns: u64) {
        self.0.lock().push(HeldFlush { online, since_ns: now_ns, failed: false });
    }

    pub(crate) fn pause_after_failure(&self, online: Arc<T>, now_ns: u64) {
        self.0.lock().push(HeldFlush { online, since_ns: now_ns, failed: true });
    }

    /// Takes those whose wait is over. Regions that are not served any more are forgotten.
    pub(crate) fn take_released(
        &self,
        now_ns: u64,
        wait: Duration,
        state: impl Fn(&Arc<T>) -> HeldState,
    ) -> Vec<HeldFlush<T>> {
        let held = std::mem::take(&mut *self.0.lock());
        let (mut released, mut waiting) = (Vec::new(), Vec::new());
        for flush in held {
            let state = state(&flush.online);
            if !state.is_served {
                continue;
            }
            let waits = flush.waits(now_ns, wait, state.has_too_many_files);
            if waits { waiting.push(flush) } else { released.push(flush) }
        }
        self.0.lock().extend(waiting);
        released
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const WAIT: Duration = Duration::from_secs(90);

    /// Regions are numbers here: those below 10 are served, odd ones have too many files.
    fn released_at(held: &HeldFlushes<u32>, seconds: u64) -> Vec<(u32, bool)> {
        let state =
            |region: &Arc<u32>| HeldState { is_served: **region < 10, has_too_many_files: **region % 2 == 1 };
        let released = held.take_released(seconds * SECOND_NS, WAIT, state);
        released.into_iter().map(|flush| (*flush.online, flush.failed)).collect()
    }

    #[test]
    fn a_flush_waits_for_a_compaction_but_not_for_ever() {
        let held = HeldFlushes::default();
        for region in [1, 2, 11] {
            held.wait_for_compaction(Arc::new(region), 0);
        }
        assert_eq!(released_at(&held, 1), [(2, false)], "it has few files now");
        assert!(released_at(&held, 89).is_empty());
        assert_eq!(released_at(&held, 90), [(1, false)], "blockingWaitTime is over");
        assert!(released_at(&held, 1000).is_empty(), "11 is not served and was forgotten");
    }

    #[test]
    fn a_flush_that_failed_is_repeated_after_a_pause() {
        let held = HeldFlushes::default();
        held.pause_after_failure(Arc::new(1), 0);
        assert!(released_at(&held, 0).is_empty());
        assert_eq!(released_at(&held, 1), [(1, true)], "whatever the number of its files");
    }
}
