//! Merges segments of memstores in memory, for families that ask for it (`IN_MEMORY_COMPACTION`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::queue::RegionQueue;
use super::workers::Worker;
use crate::calls::scanners::Scanners;
use crate::metrics::counters::Counters;
use crate::regions::region_table::OnlineRegion;

/// See the head of the file.
pub(crate) struct MemoryCompactor {
    queue: RegionQueue<OnlineRegion>,
    scanners: Arc<Scanners>,
    counters: Arc<Counters>,
}

impl MemoryCompactor {
    pub(crate) fn new(scanners: Arc<Scanners>, counters: Arc<Counters>) -> MemoryCompactor {
        let queue = RegionQueue::new(|online: &OnlineRegion| &online.memory_queued);
        MemoryCompactor { queue, scanners, counters }
    }

    /// Queues a region.
    pub(crate) fn request(&self, online: &Arc<OnlineRegion>) {
        self.queue.push(online);
    }
}

impl Worker for MemoryCompactor {
    fn run_once(&self, timeout: Duration) {
        let Some(online) = self.queue.pop(timeout) else { return };
        online.memory_queued.store(false, Ordering::Release);
        match online.region.compact_memory() {
            Ok(done) => {
                self.scanners.region_flushed(&online);
                self.counters.memory_compactions.add(u64::from(done));
            }
            Err(error) => {
                let region = online.region.info().encoded_name();
                tracing::debug!(region, %error, "not compacted in memory");
            }
        }
    }

    fn wake(&self) {
        self.queue.wake_all();
    }
}
