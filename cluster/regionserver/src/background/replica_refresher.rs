//! Copies for reads follow the store files of their primaries (HBase: `StorefileRefresherChore`).
//!
//! They look from time to time. Where the primary is open in the same server, they also look after each of its flushes and
//! compactions. One thread does it: a look lists directories and opens what is new.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use halcyon_cell::ErrorKind;
use halcyon_env::{Clock, Mutex};

use super::chores::Due;
use super::listener::StoreFileListener;
use super::queue::RegionQueue;
use super::workers::Worker;
use crate::regions::region_table::{OnlineRegion, RegionTable};
use crate::settings::online::OnlineSettings;

/// See the head of the file.
pub(crate) struct ReplicaRefresher {
    clock: Arc<dyn Clock>,
    root: PathBuf,
    regions: Arc<RegionTable>,
    settings: Arc<OnlineSettings>,
    queue: RegionQueue<OnlineRegion>,
    dues: Mutex<Dues>,
}

#[derive(Default)]
struct Dues {
    tables: Due,
    meta: Due,
}

impl ReplicaRefresher {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        root: PathBuf,
        regions: Arc<RegionTable>,
        settings: Arc<OnlineSettings>,
    ) -> ReplicaRefresher {
        let queue = RegionQueue::new(|online: &OnlineRegion| &online.refresh_queued);
        ReplicaRefresher { clock, root, regions, settings, queue, dues: Mutex::default() }
    }

    /// Queues the copies whose time has come.
    fn queue_due(&self) {
        let (now_ns, settings) = (self.clock.monotonic_ns(), self.settings.in_force());
        let is_due = |due: &mut Due, period: Duration| !period.is_zero() && due.is_due(now_ns, period);
        let mut dues = self.dues.lock();
        let tables = is_due(&mut dues.tables, settings.file_refresh_period);
        let meta = is_due(&mut dues.meta, settings.meta_file_refresh_period);
        drop(dues);
        if !(tables || meta) {
            return;
        }
        for online in self.regions.online() {
            let region = &online.region;
            if region.is_secondary() && if region.info().is_meta() { meta } else { tables } {
                self.queue.push(&online);
            }
        }
    }

    fn refresh(&self, online: &OnlineRegion) {
        let region = &online.region;
        match region.refresh_files(&self.root) {
            Ok(changed) => {
                tracing::debug!(region = region.info().encoded_name(), changed, "looked for files")
            }
            Err(error) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Busy) => {
                tracing::debug!(region = region.info().encoded_name(), %error, "a copy looks for files later");
            }
            Err(error) => {
                tracing::warn!(region = region.info().encoded_name(), %error, "a copy keeps its old files");
            }
        }
    }
}

impl StoreFileListener for ReplicaRefresher {
    fn store_files_changed(&self, online: &Arc<OnlineRegion>) {
        let region = &online.region;
        if region.is_secondary() {
            return;
        }
        if region.info().is_meta() {
            // The number of its replicas changes while it stays open.
            let copies = self.regions.online().into_iter();
            copies
                .filter(|copy| copy.region.is_secondary() && copy.region.info().is_meta())
                .for_each(|copy| self.queue.push(&copy));
            return;
        }
        for copy in region.info().secondaries(region.table().region_replication()) {
            if let Some(copy) = self.regions.get(copy.encoded_name()) {
                self.queue.push(&copy);
            }
        }
    }
}

impl Worker for ReplicaRefresher {
    fn run_once(&self, timeout: Duration) {
        self.queue_due();
        let Some(online) = self.queue.pop(timeout) else { return };
        online.refresh_queued.store(false, Ordering::Release);
        self.refresh(&online);
    }

    fn wake(&self) {
        self.queue.wake_all();
    }
}
