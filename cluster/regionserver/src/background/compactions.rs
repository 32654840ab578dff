//! Decides which region is compacted when, and by which of two threads (HBase: `CompactSplit`).
//!
//! Regions come from flushes, from a check every few seconds, which is also how major compactions become due, and from
//! administrators. A region stands in one queue at a time, before all whose stores have more room for files. Large
//! compactions have a thread of their own, so that small ones do not wait for hours. `throughput.rs` decides how fast
//! both write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_region::{CompactionRequest, OffPeakHours};

use super::listener::StoreFileListeners;
use super::queue::CompactionQueue;
use super::throughput::{Throughput, ThroughputSettings};
use super::workers::Worker;
use crate::memory::writers::FileWriters;
use crate::metrics::counters::Counters;
use crate::quotas::Quotas;
use crate::regions::region_table::{OnlineRegion, RegionTable};

/// Which queue and thread: by the bytes that a compaction would read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactionSize {
    Small,
    Large,
}

/// What compactions need of the rest of the server.
pub(crate) struct CompactionParts {
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) writers: Arc<FileWriters>,
    pub(crate) listeners: StoreFileListeners,
    pub(crate) quotas: Arc<Quotas>,
}

/// Plain values out of the server's settings.
pub(crate) struct CompactionLimits {
    /// A region whose compaction would read more than this goes to the large queue.
    pub(crate) large_bytes: u64,
    /// Of each queue.
    pub(crate) queue_max: usize,
}

/// See the head of the file.
pub(crate) struct Compactions {
    parts: CompactionParts,
    limits: CompactionLimits,
    throughput: Throughput,
    queues: [CompactionQueue<Arc<OnlineRegion>>; 2],
    enabled: AtomicBool,
    /// Tells running compactions to give up.
    cancel: AtomicBool,
    pressure_percent: AtomicU32,
}

impl Compactions {
    pub(crate) fn new(
        parts: CompactionParts,
        limits: CompactionLimits,
        enabled: bool,
        throughput: Throughput,
    ) -> Compactions {
        Compactions {
            parts,
            limits,
            throughput,
            queues: Default::default(),
            enabled: AtomicBool::new(enabled),
            cancel: AtomicBool::new(false),
            pressure_percent: AtomicU32::new(0),
        }
    }

    fn queue(&self, size: CompactionSize) -> &CompactionQueue<Arc<OnlineRegion>> {
        &self.queues[size as usize]
    }

    /// Queues a region unless it is queued already or its queue is full.
    pub(crate) fn request(&self, online: &Arc<OnlineRegion>) {
        let table = online.region.table();
        if !table.compaction_enabled() || self.parts.quotas.forbids_compactions(table.name()) {
            return online.forget_compaction();
        }
        if online.compaction_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        online.major_begun.store(false, Ordering::Release); // that was the one before
        let is_large = online.region.compaction_bytes() > self.limits.large_bytes;
        let size = if is_large { CompactionSize::Large } else { CompactionSize::Small };
        let files_left = online.region.store_files_left();
        if !self.queue(size).push(files_left, Arc::clone(online), self.limits.queue_max) {
            online.forget_compaction(); // the next check finds it again
        }
    }

    /// What an administrator asks for: files of a family or of all, merged in the background.
    pub(crate) fn request_by_user(
        &self,
        online: &Arc<OnlineRegion>,
        family: Option<&[u8]>,
        major: bool,
    ) -> Result<()> {
        if let Some(family) = family
            && online.region.table().family(family).is_none()
        {
            let message = format!(
                "Column family {} does not exist in region {}",
                family.escape_ascii(),
                online.region.info().region_name().escape_ascii()
            );
            return Err(Error::new(ErrorKind::NoSuchFamily, message));
        }
        if major {
            online.region.request_major_compaction(family);
            online.major_asked.store(true, Ordering::Release);
        } else {
            online.compaction_asked.store(true, Ordering::Release);
        }
        self.request(online);
        Ok(())
    }

    /// Queues every region that wants a compaction.
    pub(crate) fn check_all(&self) {
        if !self.is_enabled() {
            return;
        }
        for online in self.parts.regions.online() {
            if !online.compaction_queued.load(Ordering::Relaxed) && online.region.compaction_wanted() {
                self.request(&online);
            }
        }
    }

    /// Empties a queue (`ClearCompactionQueues`).
    pub(crate) fn clear(&self, size: CompactionSize) {
        self.queue(size).take_all().iter().for_each(|online| online.forget_compaction());
    }

    /// Turns compactions on or off; off also ends the running ones. Returns what it was before.
    pub(crate) fn switch(&self, enabled: bool) -> bool {
        self.cancel.store(!enabled, Ordering::Release);
        self.enabled.swap(enabled, Ordering::AcqRel)
    }

    fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    pub(crate) fn queued_count(&self) -> usize {
        self.queues.iter().map(CompactionQueue::len).sum()
    }

    /// Sets the limit of throughput by the store that needs compactions most.
    pub(crate) fn tune(&self) {
        let regions = self.parts.regions.online();
        let pressures = regions.into_iter().map(|online| online.region.compaction_pressure());
        let pressure = pressures.fold(0.0, f64::max);
        self.pressure_percent.store((pressure * 100.0).clamp(0.0, 100.0) as u32, Ordering::Relaxed);
        self.throughput.tune(pressure);
    }

    /// How much the store that needs compactions most needs them, 0 to 100, when the throughput was tuned last.
    pub(crate) fn pressure_percent(&self) -> u32 {
        self.pressure_percent.load(Ordering::Relaxed)
    }

    /// Other settings of the throughput; in force at once.
    pub(crate) fn set_throughput(&self, settings: ThroughputSettings, off_peak: OffPeakHours) {
        self.throughput.set(settings, off_peak);
        self.tune();
    }

    pub(crate) fn tune_period(&self) -> Duration {
        self.throughput.tune_period()
    }

    /// Ends running compactions for good.
    fn stop(&self) {
        self.cancel.store(true, Ordering::Release);
    }

    fn compact(&self, online: Arc<OnlineRegion>) {
        // One that was closed while it waited may be the parent of a split, whose directory goes.
        if !self.is_enabled() || !self.parts.regions.serves(&online) {
            return online.forget_compaction();
        }
        let name = online.region.info().encoded_name();
        let request =
            CompactionRequest { major: false, user: online.compaction_asked.swap(false, Ordering::AcqRel) };
        online.major_begun.store(online.major_asked.load(Ordering::Acquire), Ordering::Release);
        online.major_asked.store(false, Ordering::Release);
        let mut paced = self.throughput.begin(&self.cancel);
        let writing = self.parts.writers.enter();
        let outcome = online.region.compact(None, request, &mut paced);
        drop(writing);
        let slept = paced.slept();
        drop(paced);
        // Whoever asks from here on queues the region; whoever asked since the flags were cleared, and found it
        // queued, is seen below.
        online.compaction_queued.swap(false, Ordering::AcqRel);
        let compacted = outcome.as_ref().is_ok_and(|outcome| outcome.compacted_files > 0);
        if online.is_compaction_asked() || (compacted && online.region.compaction_wanted()) {
            self.request(&online);
        }
        match outcome {
            Ok(outcome) if compacted => {
                self.parts.counters.compactions.add(1);
                tracing::debug!(region = name, ?outcome, ?slept, "compacted");
                self.parts.listeners.iter().for_each(|listener| listener.store_files_changed(&online));
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Stopping) => {
                tracing::debug!(region = name, %error, "not compacted");
            }
            Err(error) => tracing::error!(region = name, %error, "compaction failed; the old files stay"),
        }
    }
}

/// The thread of one queue.
pub(crate) struct CompactionWorker {
    compactions: Arc<Compactions>,
    size: CompactionSize,
}

impl CompactionWorker {
    pub(crate) fn new(compactions: &Arc<Compactions>, size: CompactionSize) -> Arc<CompactionWorker> {
        Arc::new(CompactionWorker { compactions: Arc::clone(compactions), size })
    }
}

impl Worker for CompactionWorker {
    fn run_once(&self, timeout: Duration) {
        if let Some(online) = self.compactions.queue(self.size).pop(timeout) {
            self.compactions.compact(online);
        }
    }

    fn wake(&self) {
        self.compactions.stop();
        self.compactions.queue(self.size).wake_all();
    }
}
