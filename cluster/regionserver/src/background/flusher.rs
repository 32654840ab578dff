//! Decides which region is flushed when.
//!
//! A region is flushed because it is over its flush size (seen by whoever wrote last), because all memstores
//! together are over the low mark (the largest goes first), because it holds the oldest log file, because it
//! has held edits for an hour, or because somebody asked. All of these are a place in one queue; a region
//! stands in it once. What a flush leaves behind for the compactor is handed on. A region with too many files waits
//! beside the queue, see `held.rs`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_cell::ErrorKind;
use parking_lot::{Condvar, Mutex};

use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;

/// Regions that wait for something, each at most once.
pub(crate) struct RegionQueue {
    regions: Mutex<VecDeque<Arc<OnlineRegion>>>,
    filled: Condvar,
    /// Where a region remembers that it waits.
    queued: fn(&OnlineRegion) -> &AtomicBool,
}

impl RegionQueue {
    pub(crate) fn new(queued: fn(&OnlineRegion) -> &AtomicBool) -> RegionQueue {
        RegionQueue { regions: Mutex::default(), filled: Condvar::new(), queued }
    }

    /// Queues a region unless it is queued already.
    pub(crate) fn push(&self, online: &Arc<OnlineRegion>) {
        if (self.queued)(online).swap(true, Ordering::AcqRel) {
            return;
        }
        self.regions.lock().push_back(online.clone());
        self.filled.notify_one();
    }

    pub(crate) fn pop(&self, timeout: Duration) -> Option<Arc<OnlineRegion>> {
        let mut regions = self.regions.lock();
        if regions.is_empty() {
            self.filled.wait_for(&mut regions, timeout);
        }
        regions.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.lock().len()
    }

    pub(crate) fn wake_all(&self) {
        self.filled.notify_all();
    }
}

impl RegionServer {
    /// One turn of a flusher's thread: waits for a region, at most `timeout`, and flushes it.
    pub(crate) fn flush_turn(&self, timeout: Duration) {
        let Some(online) = self.flush_queue.pop(timeout) else { return };
        let name = online.region.info().encoded_name();
        let waited = online.flush_waited.swap(false, Ordering::AcqRel);
        if !waited && self.has_too_many_files(&online) {
            return self.hold_flush(online);
        }
        self.writers.fetch_add(1, Ordering::Relaxed);
        let flushed = online.region.flush(None);
        self.writers.fetch_sub(1, Ordering::Relaxed);
        match flushed {
            Ok(outcome) => {
                self.scanners.region_flushed(&online);
                self.counters.flushes.add(u64::from(outcome.flushed));
                if outcome.compaction_wanted {
                    self.compactor.push(&online, self.settings.compaction_queue_max);
                }
                self.check_prefetch(&online);
                self.check_split(&online);
            }
            Err(error) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Stopping) => {
                tracing::debug!(region = name, %error, "not flushed: closing");
            }
            Err(error) => {
                tracing::error!(region = name, %error, "flush failed; its edits stay in memory and log");
                return self.pause_flush(online);
            }
        }
        // Only now: the memstore counts what is being flushed, so a writer would queue the region again.
        online.flush_queued.store(false, Ordering::Release);
        self.measure_memory();
    }

    /// One turn of the thread for in-memory compaction: waits for a region, at most `timeout`.
    pub(crate) fn compact_memory_turn(&self, timeout: Duration) {
        let Some(online) = self.memory_queue.pop(timeout) else { return };
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

    /// Looks at a region that was just written to, and remembers that its log is to be driven.
    #[inline]
    pub(crate) fn after_write(&self, online: &Arc<OnlineRegion>) {
        self.logs.note_write();
        if online.region.flush_wanted() {
            self.flush_queue.push(online);
        } else if online.region.memory_compaction_wanted() {
            self.memory_queue.push(online);
        }
        if self.logs.is_behind() {
            self.pressure.update_log(true);
        }
        // Between two looks of the chores' thread a flood writes many times what is left.
        if !self.pressure.is_memory_high() && self.chunks.used_bytes() as u64 >= self.pressure.high_bytes() {
            self.measure_memory();
        }
    }

    /// Looks how much the memstores take, and queues the largest regions while that is too much. What counts is the
    /// memory of their chunks, filled or not, until nobody reads there any more.
    pub(crate) fn measure_memory(&self) {
        self.pressure.update(self.chunks.used_bytes() as u64);
        if !self.pressure.is_over_low() {
            return;
        }
        let regions = self.regions.online();
        let sized = regions.iter().map(|online| (online.region.memstore_size().heap_bytes, online));
        let mut sized: Vec<(u64, &Arc<OnlineRegion>)> = sized.collect();
        sized.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let free = self.settings.flush_threads_count.saturating_sub(self.flush_queue.len());
        let idle = sized.iter().filter(|(bytes, o)| *bytes > 0 && !o.flush_queued.load(Ordering::Relaxed));
        for (_, online) in idle.take(free) {
            self.flush_queue.push(online);
            self.pressure.note_flushes(1);
        }
    }

    /// Queues regions whose edits have been in memory for too long.
    pub(crate) fn flush_old_edits(&self) {
        let now_ms = self.env.clock.now_ms();
        let period_ms = i64::try_from(self.settings.flush_period.as_millis()).unwrap_or(i64::MAX);
        for online in self.regions.online() {
            let holds = online.region.memstore_size().data_bytes > 0;
            if holds && now_ms.saturating_sub(online.region.stats().last_flush_ms) >= period_ms {
                self.flush_queue.push(&online);
            }
        }
    }

    /// Queues the regions that keep old log files from going.
    pub(crate) fn flush_for_log(&self, encoded_names: &[String]) {
        for online in encoded_names.iter().filter_map(|name| self.regions.get(name)) {
            self.flush_queue.push(&online);
        }
    }
}
