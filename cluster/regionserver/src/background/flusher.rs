//! Decides which region is flushed when (HBase: `MemStoreFlusher`).
//!
//! | a region is flushed because | seen by |
//! |---|---|
//! | it is over its flush size | the thread that wrote last (`write_monitor.rs`) |
//! | all memstores together are over the low mark; the largest goes first | [`Flusher::relieve_memory`] |
//! | it holds the oldest WAL file | `wal_threads.rs` |
//! | it has held edits for an hour | `chores.rs` |
//! | a client or the master asked | [`Flusher::flush`], on the caller's thread |
//!
//! Its flush policy chooses the families in the first two cases. All but the last go through one queue, and a region is in
//! it once. A region with too many files waits apart from the queue, see `held_flushes.rs`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{ErrorKind, Result};
use halcyon_env::{Clock, vitals};
use halcyon_memstore::ChunkPool;
use halcyon_region::FlushOutcome;
use halcyon_schema::layout;

use super::compactions::Compactions;
use super::held_flushes::{HeldFlushes, HeldState};
use super::listener::StoreFileListeners;
use super::queue::RegionQueue;
use super::workers::Worker;
use crate::calls::scanners::Scanners;
use crate::memory::pressure::Pressure;
use crate::memory::writers::FileWriters;
use crate::metrics::counters::Counters;
use crate::regions::region_table::{OnlineRegion, RegionTable};
use crate::settings::online::OnlineSettings;

/// What a flusher needs of the rest of the server.
pub(crate) struct FlusherParts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) root: PathBuf,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) scanners: Arc<Scanners>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) chunks: Arc<ChunkPool>,
    pub(crate) writers: Arc<FileWriters>,
    pub(crate) compactions: Arc<Compactions>,
    pub(crate) listeners: StoreFileListeners,
}

/// Plain values out of the server's settings.
pub(crate) struct FlusherSettings {
    pub(crate) threads_count: usize,
    /// For the age at which edits are flushed, and the time that a flush waits for a compaction.
    pub(crate) online: Arc<OnlineSettings>,
}

/// See the head of the file.
pub(crate) struct Flusher {
    parts: FlusherParts,
    settings: FlusherSettings,
    queue: RegionQueue<OnlineRegion>,
    held: HeldFlushes<OnlineRegion>,
}

impl Flusher {
    pub(crate) fn new(parts: FlusherParts, settings: FlusherSettings) -> Flusher {
        let queue = RegionQueue::new(|online: &OnlineRegion| &online.flush_queued);
        Flusher { parts, settings, queue, held: HeldFlushes::default() }
    }

    /// Queues a region.
    pub(crate) fn request(&self, online: &Arc<OnlineRegion>) {
        self.queue.push(online);
    }

    pub(crate) fn queued_count(&self) -> usize {
        self.queue.len()
    }

    /// Flushes families of a region, or all if none is named. *Blocking*. A compaction that it leaves to be done is found
    /// by the next check, unless the caller requests it (HBase: `HRegion.flush`).
    pub(crate) fn flush(&self, online: &Arc<OnlineRegion>, families: &[Bytes]) -> Result<FlushOutcome> {
        let _work = self.work_on(online);
        let outcome = online.region.flush((!families.is_empty()).then_some(families))?;
        self.after_flush(online, &outcome);
        Ok(outcome)
    }

    /// As [`Flusher::flush`]; `None` while another flush of the region is running.
    pub(crate) fn try_flush(
        &self,
        online: &Arc<OnlineRegion>,
        families: &[Bytes],
    ) -> Result<Option<FlushOutcome>> {
        let _work = self.work_on(online);
        let outcome = online.region.try_flush((!families.is_empty()).then_some(families))?;
        if let Some(outcome) = &outcome {
            self.after_flush(online, outcome);
        }
        Ok(outcome)
    }

    fn work_on(&self, online: &OnlineRegion) -> vitals::Work {
        let info = online.region.info();
        let dir = layout::region_dir(&self.parts.root, info.table(), info.encoded_name());
        vitals::work(|| format!("a flush of region {}", info.encoded_name()), Some(&dir))
    }

    /// To be called when a bulk load has given the region store files.
    pub(crate) fn after_bulk_load(&self, online: &Arc<OnlineRegion>) {
        if online.region.compaction_wanted() {
            self.parts.compactions.request(online);
        }
        self.after_flush(online, &FlushOutcome::default());
    }

    /// What every flush leaves for others to do.
    fn after_flush(&self, online: &Arc<OnlineRegion>, outcome: &FlushOutcome) {
        let parts = &self.parts;
        parts.scanners.region_flushed(online);
        parts.counters.flushes.add(u64::from(outcome.flushed));
        parts.listeners.iter().for_each(|listener| listener.store_files_changed(online));
    }

    fn flush_queued(&self, online: Arc<OnlineRegion>) {
        let _work = self.work_on(&online);
        let name = online.region.info().encoded_name();
        let waited = online.flush_waited.swap(false, Ordering::AcqRel);
        if !waited && self.has_too_many_files(&online) {
            tracing::warn!(region = name, "too many store files; the flush waits for a compaction");
            self.parts.compactions.request(&online);
            return self.held.wait_for_compaction(online, self.parts.clock.monotonic_ns());
        }
        let writing = self.parts.writers.enter();
        let everything = online.flush_everything.swap(false, Ordering::AcqRel);
        let families = if everything { None } else { online.region.families_to_flush() };
        let flushed = online.region.flush(families.as_deref());
        drop(writing);
        match flushed {
            Ok(outcome) => {
                if outcome.compaction_wanted {
                    self.parts.compactions.request(&online);
                }
                self.after_flush(&online, &outcome);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Stopping) => {
                tracing::debug!(region = name, %error, "not flushed: closing");
            }
            Err(error) => {
                tracing::error!(region = name, %error, "flush failed; its edits stay in the memstore and the WAL");
                online.flush_everything.fetch_or(everything, Ordering::AcqRel);
                return self.held.pause_after_failure(online, self.parts.clock.monotonic_ns());
            }
        }
        // Only now: the memstore counts what is being flushed, so a writer would queue the region again.
        online.flush_queued.store(false, Ordering::Release);
        self.relieve_memory();
    }

    fn has_too_many_files(&self, online: &OnlineRegion) -> bool {
        !online.region.info().is_meta()
            && !self.parts.pressure.is_over_low()
            && !self.settings.online.in_force().blocking_files_wait.is_zero()
            && online.region.store_files_left() < 0
    }

    /// Queues held regions that have fewer files now, or have waited long enough. A region that was closed meanwhile
    /// is forgotten.
    pub(crate) fn release_held(&self) {
        let parts = &self.parts;
        let wait = self.settings.online.in_force().blocking_files_wait;
        let released = self.held.take_released(parts.clock.monotonic_ns(), wait, |online| {
            let has_too_many_files = self.has_too_many_files(online);
            HeldState { is_served: parts.regions.serves(online), has_too_many_files }
        });
        for held in released {
            held.online.flush_waited.store(!held.failed, Ordering::Release);
            held.online.flush_queued.store(false, Ordering::Release);
            self.queue.push(&held.online);
        }
    }

    /// Measures the memstores, and queues the largest regions while they take too much. What counts is the memory of
    /// their chunks, filled or not, until nobody reads there any more. A flush frees it also where it
    /// holds no cells.
    pub(crate) fn relieve_memory(&self) {
        let parts = &self.parts;
        parts.pressure.update(parts.chunks.used_bytes() as u64);
        if !parts.pressure.is_over_low() {
            return;
        }
        let regions = parts.regions.online();
        let sized = regions.iter().map(|online| (online.region.chunks_bytes(), online));
        let mut sized: Vec<(u64, &Arc<OnlineRegion>)> = sized.collect();
        sized.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let free = self.settings.threads_count.saturating_sub(self.queue.len());
        let idle = sized.iter().filter(|(bytes, o)| *bytes > 0 && !o.flush_queued.load(Ordering::Relaxed));
        for (_, online) in idle.take(free) {
            self.queue.push(online);
            parts.pressure.note_flushes(1);
        }
    }

    /// Queues regions whose edits have been in memory for too long.
    pub(crate) fn flush_old_edits(&self) {
        let now_ms = self.parts.clock.now_ms();
        let period_ms =
            i64::try_from(self.settings.online.in_force().flush_period.as_millis()).unwrap_or(i64::MAX);
        for online in self.parts.regions.online() {
            let holds = online.region.memstore_size().data_bytes > 0;
            if holds && now_ms.saturating_sub(online.region.stats().last_flush_ms) >= period_ms {
                self.request_everything(&online);
            }
        }
    }

    /// Queues the regions that keep old WAL files from being archived.
    pub(crate) fn flush_for_wal(&self, encoded_names: &[String]) {
        for online in encoded_names.iter().filter_map(|name| self.parts.regions.get(name)) {
            self.request_everything(&online);
        }
    }

    /// Queues a region, with all its families whatever its flush policy says.
    fn request_everything(&self, online: &Arc<OnlineRegion>) {
        online.flush_everything.store(true, Ordering::Release);
        self.queue.push(online);
    }
}

impl Worker for Flusher {
    fn run_once(&self, timeout: Duration) {
        if let Some(online) = self.queue.pop(timeout) {
            self.flush_queued(online);
        }
    }

    fn wake(&self) {
        self.queue.wake_all();
    }
}
