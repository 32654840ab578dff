//! What the server does for its block cache: makes it, drives what goes on behind requests, reads ahead.
//!
//! One thread takes the cache's turns (blocks of files that go, a cache that shrinks, blocks on their way to the file
//! tier), one reads files ahead for regions that ask for it. Neither is ever waited for by a call or by the opening of a
//! region.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use halcyon_cache::{BlockCache, FileTierOptions};
use halcyon_env::Env;

use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;
use crate::settings::cache::Engine;
use crate::settings::server::RegionServerSettings;

/// How often files that nobody has open are looked for on the disk.
pub(crate) const SWEEP_PERIOD: Duration = Duration::from_secs(10);
/// How many of them at a time.
const SWEEP_FILES_MAX: usize = 1024;
/// How long an orderly end may take to bring blocks from memory to the file tier.
const SAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// The cache that the settings ask for. *Blocking*.
pub(crate) fn cache_of(env: &Env, settings: &RegionServerSettings) -> BlockCache {
    let (cache_bytes, tier) = (settings.cache_bytes(), &settings.file_tier);
    match &tier.engine {
        Engine::None => BlockCache::new(cache_bytes),
        Engine::Memory(name) => {
            tracing::info!(
                "hbase.bucketcache.ioengine = {name}: the block cache's memory is one tier here, and \
                 hbase.bucketcache.size is not used"
            );
            BlockCache::new(cache_bytes)
        }
        Engine::File(path) => {
            let options = FileTierOptions {
                path: path.clone(),
                size_bytes: tier.size_bytes,
                index_path: tier.index_path.clone(),
                queue_blocks_max: tier.queue_blocks_max(),
            };
            BlockCache::with_file_tier(cache_bytes, env.fs.clone(), options)
        }
    }
}

impl RegionServer {
    /// Why the file tier of the block cache that the settings ask for is off; `None` while it is on.
    pub fn file_tier_failure(&self) -> Option<String> {
        self.cache.file_tier_failure()
    }

    /// Has blocks read ahead, if the region has files that ask for it.
    pub(crate) fn check_prefetch(&self, online: &Arc<OnlineRegion>) {
        if online.region.prefetch_wanted() {
            self.prefetch_queue.push(online);
        }
    }

    /// One turn of the thread that reads ahead: waits for a region, at most `timeout`.
    pub(crate) fn prefetch_turn(&self, timeout: Duration) {
        let Some(online) = self.prefetch_queue.pop(timeout) else { return };
        online.prefetch_queued.store(false, Ordering::Release);
        online.region.prefetch();
    }

    /// Lets blocks of files go that are nowhere any more; goes on where it ended the last time.
    pub(crate) fn sweep_cache(&self, from: &mut u64) {
        *from = self.cache.sweep(&*self.env.fs, *from, SWEEP_FILES_MAX).unwrap_or(0);
    }

    /// Keeps what the file tier needs for the next start. *Blocking*.
    pub(crate) fn close_cache(&self) {
        let started_ns = self.env.clock.monotonic_ns();
        let took_ns = || self.env.clock.monotonic_ns().saturating_sub(started_ns);
        self.cache.close_file_tier(|| u128::from(took_ns()) < SAVE_TIME_MAX.as_nanos());
    }
}
