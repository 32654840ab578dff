//! What the server does for its block cache: creates it, drives its background work, removes blocks of deleted files.
//!
//! One thread runs what the cache postpones: blocks of closed files, a cache that shrinks, blocks on their way to the
//! file tier. No call waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use halcyon_cache::{BlockCache, FileId, FileTierOptions};
use halcyon_env::Env;

use super::workers::Worker;
use crate::regions::region_table::RegionTable;
use crate::settings::cache::Engine;
use crate::settings::server::RegionServerSettings;

/// How often files that nobody has open are looked for on the disk.
pub(crate) const SWEEP_PERIOD: Duration = Duration::from_secs(10);
/// How many of them at a time.
const SWEEP_FILES_MAX: usize = 1024;
/// How long an orderly end may take to bring blocks from memory to the file tier.
const SAVE_TIME_MAX: Duration = Duration::from_secs(5);

/// The cache that the settings ask for. *Blocking*.
pub(crate) fn new_cache(env: &Env, settings: &RegionServerSettings) -> BlockCache {
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
            BlockCache::with_file_tier(cache_bytes, env.local.clone(), options)
        }
    }
}

/// See the head of the file.
pub(crate) struct CacheUpkeep {
    env: Env,
    cache: Arc<BlockCache>,
    /// Where the next sweep begins.
    swept_to: AtomicU64,
}

impl CacheUpkeep {
    pub(crate) fn new(env: Env, cache: Arc<BlockCache>) -> CacheUpkeep {
        CacheUpkeep { env, cache, swept_to: AtomicU64::new(0) }
    }

    /// Removes blocks of files that do not exist any more; resumes where it ended the last time.
    pub(crate) fn sweep(&self) {
        let from = FileId::new(self.swept_to.load(Ordering::Relaxed));
        let next = self.cache.sweep(&*self.env.fs, from, SWEEP_FILES_MAX).unwrap_or_default();
        self.swept_to.store(next.get(), Ordering::Relaxed);
    }

    /// Gives the room of data that are no longer hot to others, if the cache needs it
    /// (`hbase.regionserver.datatiering.enable`).
    pub(crate) fn evict_cold(&self, regions: &RegionTable) {
        if self.cache.is_nearly_full() {
            regions.online().iter().for_each(|online| online.region.evict_cold_blocks());
        }
    }

    /// Saves what the file tier needs for the next start. *Blocking*.
    pub(crate) fn close(&self) {
        let started_ns = self.env.clock.monotonic_ns();
        let took_ns = || self.env.clock.monotonic_ns().saturating_sub(started_ns);
        self.cache.close_file_tier(|| u128::from(took_ns()) < SAVE_TIME_MAX.as_nanos());
    }
}

impl Worker for CacheUpkeep {
    fn run_once(&self, timeout: Duration) {
        self.cache.turn(timeout);
    }

    fn wake(&self) {
        self.cache.wake();
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::FileSystem;
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    /// The root directory may be on other machines. A cache tier there would be slower than the files it spares.
    #[test]
    fn the_cache_tier_is_on_this_machine() {
        let (root, local) = (SimFileSystem::new(), SimFileSystem::new());
        let env = Env { local: Arc::new(local.clone()), ..root.env() };
        let mut settings = RegionServerSettings::default();
        settings.file_tier.engine = Engine::File("/cache/blocks".into());
        settings.file_tier.size_bytes = 64 << 20;
        drop(new_cache(&env, &settings));
        assert!(local.exists("/cache/blocks".as_ref()).unwrap());
        assert_eq!(root.dump(), []);
    }
}
