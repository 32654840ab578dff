//! Reads blocks ahead into the block cache, for regions whose families ask for it (`PREFETCH_BLOCKS_ON_OPEN`).
//!
//! One thread does it. No call and no opening of a region waits for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::listener::StoreFileListener;
use super::queue::RegionQueue;
use super::workers::Worker;
use crate::regions::region_table::OnlineRegion;

/// See the head of the file.
pub(crate) struct Prefetcher {
    queue: RegionQueue<OnlineRegion>,
}

impl Prefetcher {
    pub(crate) fn new() -> Prefetcher {
        Prefetcher { queue: RegionQueue::new(|online: &OnlineRegion| &online.prefetch_queued) }
    }

    /// Queues a region that has files to be read ahead.
    pub(crate) fn check(&self, online: &Arc<OnlineRegion>) {
        if online.region.prefetch_wanted() {
            self.queue.push(online);
        }
    }
}

impl StoreFileListener for Prefetcher {
    fn store_files_changed(&self, online: &Arc<OnlineRegion>) {
        self.check(online);
    }
}

impl Worker for Prefetcher {
    fn run_once(&self, timeout: Duration) {
        let Some(online) = self.queue.pop(timeout) else { return };
        online.prefetch_queued.store(false, Ordering::Release);
        online.region.prefetch();
    }

    fn wake(&self) {
        self.queue.wake_all();
    }
}
