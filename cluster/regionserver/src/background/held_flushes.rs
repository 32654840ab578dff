//! Flushes that wait: because a store has too many files, or because the last attempt failed.
//!
//! A region with too many files does not get another file at once: it waits beside the flusher's queue for a compaction,
//! but not longer than `hbase.hstore.blockingWaitTime`, and not when memory is short. Its writers are held back
//! meanwhile when its memstore reaches the blocking size (HBase: `MemStoreFlusher.flushRegion`).
//!
//! A flush that failed, of which a full disk is the usual reason, is tried again after a pause.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::regions::region_table::OnlineRegion;

/// How long a region waits after a flush that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Regions whose flush waits. They count as queued for the flusher.
#[derive(Default)]
pub(crate) struct HeldFlushes(Mutex<Vec<HeldFlush>>);

pub(crate) struct HeldFlush {
    pub(crate) online: Arc<OnlineRegion>,
    since_ns: u64,
    pub(crate) failed: bool,
}

impl HeldFlush {
    fn waits(&self, now_ns: u64, wait: Duration, has_too_many_files: bool) -> bool {
        let waited = Duration::from_nanos(now_ns.saturating_sub(self.since_ns));
        if self.failed { waited < PAUSE_AFTER_FAILURE } else { waited < wait && has_too_many_files }
    }
}

impl HeldFlushes {
    pub(crate) fn wait_for_compaction(&self, online: Arc<OnlineRegion>, now_ns: u64) {
        self.0.lock().push(HeldFlush { online, since_ns: now_ns, failed: false });
    }

    pub(crate) fn pause_after_failure(&self, online: Arc<OnlineRegion>, now_ns: u64) {
        self.0.lock().push(HeldFlush { online, since_ns: now_ns, failed: true });
    }

    /// Takes those whose wait is over. `state` tells of a region whether it is still served, and whether it has too
    /// many files. Regions that are not served any more are forgotten.
    pub(crate) fn take_released(
        &self,
        now_ns: u64,
        wait: Duration,
        state: impl Fn(&Arc<OnlineRegion>) -> (bool, bool),
    ) -> Vec<HeldFlush> {
        let held = std::mem::take(&mut *self.0.lock());
        let (mut released, mut waiting) = (Vec::new(), Vec::new());
        for flush in held {
            let (is_served, has_too_many_files) = state(&flush.online);
            if !is_served {
                continue;
            }
            let waits = flush.waits(now_ns, wait, has_too_many_files);
            if waits { waiting.push(flush) } else { released.push(flush) }
        }
        self.0.lock().extend(waiting);
        released
    }
}
