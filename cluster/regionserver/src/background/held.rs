//! Flushes that wait: because a store has too many files, or because the last attempt failed.
//!
//! A region with too many files does not get another file at once: it waits beside the flusher's queue for the compactor, but not for
//! ever (`hbase.hstore.blockingWaitTime`), and not when memory is short. Its writers are held back meanwhile when its
//! memstore reaches the blocking size (HBase: `MemStoreFlusher.flushRegion`).
//!
//! A flush that failed, of which a full disk is the usual reason, is tried again after a pause.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;

/// Regions whose flush waits; they count as queued for the flusher.
#[derive(Default)]
pub(crate) struct HeldFlushes(Mutex<Vec<Held>>);

struct Held {
    online: Arc<OnlineRegion>,
    since_ns: u64,
    failed: bool,
}

/// How long a region waits after a flush that failed.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

impl RegionServer {
    pub(crate) fn has_too_many_files(&self, online: &OnlineRegion) -> bool {
        !online.region.info().is_meta()
            && !self.pressure.is_over_low()
            && !self.settings.blocking_files_wait.is_zero()
            && online.region.store_files_left() < 0
    }

    /// Lets a region that came out of the flusher's queue wait, and asks for its compaction.
    pub(crate) fn hold_flush(&self, online: Arc<OnlineRegion>) {
        tracing::warn!(
            region = online.region.info().encoded_name(),
            "too many store files; the flush waits for a compaction"
        );
        self.compactor.push(&online, self.settings.compaction_queue_max);
        self.wait_with_flush(online, false);
    }

    /// Lets a region wait whose flush failed.
    pub(crate) fn pause_flush(&self, online: Arc<OnlineRegion>) {
        self.wait_with_flush(online, true);
    }

    fn wait_with_flush(&self, online: Arc<OnlineRegion>, failed: bool) {
        let since_ns = self.env.clock.monotonic_ns();
        self.held_flushes.0.lock().push(Held { online, since_ns, failed });
    }

    /// Queues the regions that have fewer files now, or have waited long enough. One that was closed meanwhile is
    /// forgotten.
    pub(crate) fn release_held_flushes(&self) {
        let held = std::mem::take(&mut *self.held_flushes.0.lock());
        if held.is_empty() {
            return;
        }
        let now_ns = self.env.clock.monotonic_ns();
        let wait_ns = self.settings.blocking_files_wait.as_nanos() as u64;
        let waits = |held: &Held| {
            let waited_ns = now_ns.saturating_sub(held.since_ns);
            if held.failed {
                waited_ns < PAUSE_AFTER_FAILURE.as_nanos() as u64
            } else {
                waited_ns < wait_ns && self.has_too_many_files(&held.online)
            }
        };
        let held = held.into_iter().filter(|held| self.regions.serves(&held.online));
        let (waiting, released): (Vec<Held>, Vec<Held>) = held.partition(waits);
        self.held_flushes.0.lock().extend(waiting);
        for Held { online, failed, .. } in released {
            online.flush_waited.store(!failed, Ordering::Release);
            online.flush_queued.store(false, Ordering::Release);
            self.flush_queue.push(&online);
        }
    }
}
