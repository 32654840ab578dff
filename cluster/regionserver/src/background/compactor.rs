//! Decides which region is compacted when, and by which of two threads.
//!
//! Regions come from flushes, from a check every few seconds (which is also how major compactions become due)
//! and from administrators. A region stands in one queue at a time, before all whose stores have more room for
//! files. Large compactions have a thread of their own, so that small ones do not wait for hours. How fast both write is
//! decided in `throughput`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_cell::{ErrorKind, Result};
use halcyon_region::CompactionRequest;
use parking_lot::{Condvar, Mutex};

use crate::RegionServer;
use crate::background::throughput::Throughput;
use crate::regions::region_table::OnlineRegion;

/// Which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Small,
    Large,
}

/// The two queues and the switch.
pub(crate) struct Compactor {
    large_bytes: u64,
    pub(crate) throughput: Throughput,
    lanes: [LaneQueue; 2],
    enabled: AtomicBool,
    /// Tells running compactions to give up.
    cancel: AtomicBool,
}

#[derive(Default)]
struct LaneQueue {
    /// With the files that each may still get before flushes wait, fewest first.
    regions: Mutex<VecDeque<(i64, Arc<OnlineRegion>)>>,
    filled: Condvar,
}

impl Compactor {
    pub(crate) fn new(large_bytes: u64, enabled: bool, throughput: Throughput) -> Compactor {
        Compactor {
            large_bytes,
            throughput,
            lanes: Default::default(),
            enabled: AtomicBool::new(enabled),
            cancel: AtomicBool::new(false),
        }
    }

    fn lane(&self, lane: Lane) -> &LaneQueue {
        &self.lanes[lane as usize]
    }

    /// Queues a region unless it is queued already or its queue is full.
    pub(crate) fn push(&self, online: &Arc<OnlineRegion>, queue_max: usize) {
        if !online.region.table().compaction_enabled() {
            return online.forget_compaction();
        }
        if online.compaction_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_large = online.region.compaction_bytes() > self.large_bytes;
        let lane = if is_large { Lane::Large } else { Lane::Small };
        let files_left = online.region.store_files_left();
        let queue = self.lane(lane);
        let mut regions = queue.regions.lock();
        if regions.len() >= queue_max {
            return online.forget_compaction(); // the next check finds it again
        }
        let place = regions.partition_point(|(left, _)| *left <= files_left);
        regions.insert(place, (files_left, online.clone()));
        queue.filled.notify_one();
    }

    fn pop(&self, lane: Lane, timeout: Duration) -> Option<Arc<OnlineRegion>> {
        let queue = self.lane(lane);
        let mut regions = queue.regions.lock();
        if regions.is_empty() {
            queue.filled.wait_for(&mut regions, timeout);
        }
        regions.pop_front().map(|(_, online)| online)
    }

    /// Empties a queue (`ClearCompactionQueues`).
    pub(crate) fn clear(&self, lane: Lane) {
        for (_, online) in self.lane(lane).regions.lock().drain(..) {
            online.forget_compaction();
        }
    }

    /// Turns compactions on or off; off also ends the running ones. Returns what it was before.
    pub(crate) fn switch(&self, enabled: bool) -> bool {
        self.cancel.store(!enabled, Ordering::Release);
        self.enabled.swap(enabled, Ordering::AcqRel)
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    pub(crate) fn queued_count(&self) -> usize {
        self.lanes.iter().map(|lane| lane.regions.lock().len()).sum()
    }

    pub(crate) fn stop(&self) {
        self.cancel.store(true, Ordering::Release);
        self.lanes.iter().for_each(|lane| {
            lane.filled.notify_all();
        });
    }
}

impl RegionServer {
    /// One turn of a compactor's thread: waits for a region, at most `timeout`, and compacts it.
    pub(crate) fn compact_turn(&self, lane: Lane, timeout: Duration) {
        let Some(online) = self.compactor.pop(lane, timeout) else { return };
        // One that was closed while it waited may be the parent of a split, whose directory goes.
        if !self.compactor.is_enabled() || !self.regions.serves(&online) {
            online.forget_compaction();
            return;
        }
        let name = online.region.info().encoded_name();
        let request =
            CompactionRequest { major: false, user: online.compaction_asked.swap(false, Ordering::AcqRel) };
        online.major_asked.store(false, Ordering::Release);
        let mut paced = self.compactor.throughput.begin(&self.compactor.cancel);
        self.writers.fetch_add(1, Ordering::Relaxed);
        let outcome = online.region.compact(None, request, &mut paced);
        self.writers.fetch_sub(1, Ordering::Relaxed);
        let slept = paced.slept();
        drop(paced);
        // Whoever asks from here on queues the region; whoever asked since the flags were cleared, and found it
        // queued, is seen below.
        online.compaction_queued.swap(false, Ordering::AcqRel);
        let compacted = outcome.as_ref().is_ok_and(|outcome| outcome.compacted_files > 0);
        if online.is_compaction_asked() || (compacted && online.region.compaction_wanted()) {
            self.compactor.push(&online, self.settings.compaction_queue_max);
        }
        match outcome {
            Ok(outcome) if compacted => {
                self.counters.compactions.add(1);
                tracing::debug!(region = name, ?outcome, ?slept, "compacted");
                self.check_prefetch(&online);
                self.check_split(&online);
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Stopping) => {
                tracing::debug!(region = name, %error, "not compacted");
            }
            Err(error) => tracing::error!(region = name, %error, "compaction failed; the old files stay"),
        }
    }

    /// Sets the limit of throughput by the store that needs compactions most.
    pub(crate) fn tune_compactions(&self) {
        let pressures = self.regions.online().into_iter().map(|online| online.region.compaction_pressure());
        self.compactor.throughput.tune(pressures.fold(0.0, f64::max));
    }

    /// Queues every region that wants a compaction.
    pub(crate) fn check_compactions(&self) {
        if !self.compactor.is_enabled() {
            return;
        }
        for online in self.regions.online() {
            if !online.compaction_queued.load(Ordering::Relaxed) && online.region.compaction_wanted() {
                self.compactor.push(&online, self.settings.compaction_queue_max);
            }
        }
    }

    /// What an administrator asks for: files of a family or of all, merged in the background.
    pub(crate) fn request_compaction(
        &self,
        online: &Arc<OnlineRegion>,
        family: Option<&[u8]>,
        major: bool,
    ) -> Result<()> {
        if let Some(family) = family
            && online.region.table().family(family).is_none()
        {
            return Err(halcyon_cell::Error::invalid(format!(
                "Column family {} does not exist in region {}",
                family.escape_ascii(),
                online.region.info().region_name().escape_ascii()
            )));
        }
        if major {
            online.region.request_major_compaction(family);
            online.major_asked.store(true, Ordering::Release);
        } else {
            online.compaction_asked.store(true, Ordering::Release);
        }
        self.compactor.push(online, self.settings.compaction_queue_max);
        Ok(())
    }
}
