//! Flushes that wait because a store has too many files.
//!
//! Such a region does not get another file at once: it waits beside the flusher's queue for the compactor, but not for
//! ever (`hbase.hstore.blockingWaitTime`), and not when memory is short. Its writers are held back meanwhile when its
//! memstore reaches the blocking size (HBase: `MemStoreFlusher.flushRegion`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::RegionServer;
use crate::region_table::OnlineRegion;

/// Regions whose flush waits; they count as queued for the flusher.
#[derive(Default)]
pub(crate) struct HeldFlushes(Mutex<Vec<Held>>);

struct Held {
    online: Arc<OnlineRegion>,
    since_ns: u64,
}

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
        let since_ns = self.env.clock.monotonic_ns();
        self.held_flushes.0.lock().push(Held { online, since_ns });
    }

    /// Queues the regions that have fewer files now, or have waited long enough.
    pub(crate) fn release_held_flushes(&self) {
        let held = std::mem::take(&mut *self.held_flushes.0.lock());
        if held.is_empty() {
            return;
        }
        let now_ns = self.env.clock.monotonic_ns();
        let wait_ns = self.settings.blocking_files_wait.as_nanos() as u64;
        let (waiting, released): (Vec<Held>, Vec<Held>) = held.into_iter().partition(|held| {
            now_ns.saturating_sub(held.since_ns) < wait_ns && self.has_too_many_files(&held.online)
        });
        self.held_flushes.0.lock().extend(waiting);
        for Held { online, .. } in released {
            online.flush_waited.store(true, Ordering::Release);
            online.flush_queued.store(false, Ordering::Release);
            self.flush_queue.push(&online);
        }
    }
}
