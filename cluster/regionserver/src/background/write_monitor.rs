//! Looks at each region that was just written to: does it have to be flushed, is memory short?
//!
//! It runs on the thread that wrote. It takes no lock, but for a region that has to be queued.

use std::sync::Arc;

use halcyon_memstore::ChunkPool;

use super::flusher::Flusher;
use super::memory_compactor::MemoryCompactor;
use crate::memory::pressure::Pressure;
use crate::regions::region_table::OnlineRegion;
use crate::wal::logs::Logs;

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct WriteMonitor {
    pub(crate) logs: Arc<Logs>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) chunks: Arc<ChunkPool>,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) memory_compactor: Arc<MemoryCompactor>,
}

impl WriteMonitor {
    /// Also remembers that the region's WAL is to be driven.
    #[inline]
    pub(crate) fn after_write(&self, online: &Arc<OnlineRegion>) {
        self.logs.note_write();
        if online.region.flush_wanted() {
            self.flusher.request(online);
        } else if online.region.memory_compaction_wanted() {
            self.memory_compactor.request(online);
        }
        if self.logs.is_behind() {
            self.pressure.update_log(true);
        }
        // Between two measurements of the chores' thread a flood writes many times what is left.
        if !self.pressure.is_memory_high() && self.chunks.used_bytes() as u64 >= self.pressure.high_bytes() {
            self.flusher.relieve_memory();
        }
    }
}
