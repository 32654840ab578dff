use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};

use crate::Block;

/// Names a block: a file number that is unique in the process, and the offset of the block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockKey {
    pub file: u64,
    pub offset: u64,
}

/// How dear a block is when it comes in. After that its uses decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockPriority {
    /// A data block.
    Normal,
    /// An index or bloom block, or a block of an `IN_MEMORY` family: starts as if it had been read before, so
    /// that a scan over cold blocks does not take its place.
    High,
}

/// A moment's counts. Bytes include overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub blocks_count: u64,
    pub hits_count: u64,
    pub misses_count: u64,
    pub inserts_count: u64,
    pub evictions_count: u64,
}

/// The cache. See the head of the crate.
///
/// *Thread safety*: all methods may be called from any thread at any time. `get` takes one shard's lock for
/// reading; `insert` takes one shard's lock for writing, and one lock of the table of files.
///
/// *Invariants*: `used_bytes` is at most `capacity_bytes`, shard by shard. A block larger than one shard's part
/// is not taken in.
pub struct BlockCache {
    blocks: Cache<BlockKey, Arc<Block>, WeightInBytes, DefaultHashBuilder, CollectEvicted>,
    files: [Mutex<FileOffsets>; FILE_TABLES_COUNT],
    hits: [Counter; COUNTERS_COUNT],
    misses: [Counter; COUNTERS_COUNT],
    inserts: AtomicU64,
    evictions: AtomicU64,
}

const FILE_TABLES_COUNT: usize = 16;
const COUNTERS_COUNT: usize = 8;
/// What a block weighs in most families; the number of shards is estimated from it.
const TYPICAL_BLOCK_BYTES: u64 = 64 * 1024;

/// Which blocks of a file are (or lately were) in the cache, so that dropping a file need not walk them all.
#[derive(Default)]
struct FileOffsets {
    by_file: HashMap<u64, HashSet<u64>>,
}

/// One counter on its own cache line: threads that read different files do not fight for it.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

impl BlockCache {
    /// A cache for this many bytes, overhead included. With 0 nothing is ever kept.
    pub fn new(capacity_bytes: u64) -> BlockCache {
        let estimated_count = (capacity_bytes / TYPICAL_BLOCK_BYTES).clamp(64, 1 << 24) as usize;
        let options = OptionsBuilder::new()
            .weight_capacity(capacity_bytes)
            .estimated_items_capacity(estimated_count)
            .build()
            .expect("both capacities are given");
        BlockCache {
            blocks: Cache::with_options(
                options,
                WeightInBytes,
                DefaultHashBuilder::default(),
                CollectEvicted,
            ),
            files: Default::default(),
            hits: Default::default(),
            misses: Default::default(),
            inserts: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The block, if it is here; this counts as a use of it.
    #[inline]
    pub fn get(&self, key: &BlockKey) -> Option<Arc<Block>> {
        let found = self.blocks.get(key);
        let counters = if found.is_some() { &self.hits } else { &self.misses };
        counters[key.file as usize % COUNTERS_COUNT].0.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Takes a block in, perhaps at the cost of others. A block that is already here is replaced.
    pub fn insert(&self, key: BlockKey, block: Arc<Block>, priority: BlockPriority) {
        // The table of files first: were it last, a block evicted in between would stay in the table.
        self.file_table(key.file).lock().by_file.entry(key.file).or_default().insert(key.offset);
        let mut evicted = Evicted::default();
        self.blocks.insert_with_lifecycle(key, block, &mut evicted);
        self.inserts.fetch_add(1, Ordering::Relaxed);
        self.forget(&evicted);
        if priority == BlockPriority::High {
            drop(self.blocks.get(&key));
        }
    }

    /// Drops all blocks of a file that is no longer used.
    pub fn evict_file(&self, file: u64) {
        let offsets = self.file_table(file).lock().by_file.remove(&file);
        for offset in offsets.into_iter().flatten() {
            self.blocks.remove(&BlockKey { file, offset });
        }
    }

    /// Changes the capacity; blocks go until the rest fits.
    pub fn resize(&self, capacity_bytes: u64) {
        self.blocks.set_capacity(capacity_bytes);
    }

    pub fn stats(&self) -> CacheStats {
        let sum = |counters: &[Counter]| counters.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
        CacheStats {
            capacity_bytes: self.blocks.capacity(),
            used_bytes: self.blocks.weight(),
            blocks_count: self.blocks.len() as u64,
            hits_count: sum(&self.hits),
            misses_count: sum(&self.misses),
            inserts_count: self.inserts.load(Ordering::Relaxed),
            evictions_count: self.evictions.load(Ordering::Relaxed),
        }
    }

    fn file_table(&self, file: u64) -> &Mutex<FileOffsets> {
        &self.files[file as usize % FILE_TABLES_COUNT]
    }

    fn forget(&self, evicted: &Evicted) {
        self.evictions.fetch_add(evicted.blocks.len() as u64, Ordering::Relaxed);
        for (key, _) in &evicted.blocks {
            let mut table = self.file_table(key.file).lock();
            if let Some(offsets) = table.by_file.get_mut(&key.file) {
                offsets.remove(&key.offset);
                if offsets.is_empty() {
                    table.by_file.remove(&key.file);
                }
            }
        }
    }
}

#[derive(Clone)]
struct WeightInBytes;

impl Weighter<BlockKey, Arc<Block>> for WeightInBytes {
    #[inline]
    fn weight(&self, _key: &BlockKey, block: &Arc<Block>) -> u64 {
        block.weight_bytes()
    }
}

/// Collects what an insert pushes out, so that it is freed and counted after the shard's lock is released.
#[derive(Clone)]
struct CollectEvicted;

#[derive(Default)]
struct Evicted {
    blocks: Vec<(BlockKey, Arc<Block>)>,
}

impl Lifecycle<BlockKey, Arc<Block>> for CollectEvicted {
    type RequestState = Evicted;

    fn on_evict(&self, state: &mut Evicted, key: BlockKey, block: Arc<Block>) {
        state.blocks.push((key, block));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::BlockKind;

    fn block(len: usize) -> Arc<Block> {
        Arc::new(Block::new(BlockKind::Data, Bytes::from(vec![7; len]), Box::new([]), len))
    }

    fn key(file: u64, offset: u64) -> BlockKey {
        BlockKey { file, offset }
    }

    #[test]
    fn a_block_comes_back_as_the_same_bytes() {
        let cache = BlockCache::new(1 << 20);
        assert!(cache.get(&key(1, 0)).is_none());
        let put = block(100);
        cache.insert(key(1, 0), put.clone(), BlockPriority::Normal);
        let got = cache.get(&key(1, 0)).unwrap();
        assert!(Arc::ptr_eq(&put, &got));
        let stats = cache.stats();
        assert_eq!((stats.hits_count, stats.misses_count, stats.blocks_count), (1, 1, 1));
        assert_eq!(stats.used_bytes, put.weight_bytes());
    }

    #[test]
    fn never_holds_more_than_its_capacity_and_readers_keep_what_they_hold() {
        let cache = BlockCache::new(10 << 20);
        let held = block(64 << 10);
        cache.insert(key(1, 0), held.clone(), BlockPriority::Normal);
        for offset in 1..1000 {
            cache.insert(key(1, offset), block(64 << 10), BlockPriority::Normal);
            assert!(cache.stats().used_bytes <= 10 << 20);
        }
        let stats = cache.stats();
        assert!(stats.blocks_count > 100, "{stats:?}");
        assert_eq!(stats.inserts_count - stats.evictions_count, stats.blocks_count);
        assert_eq!(held.bytes().len(), 64 << 10);
        let tracked: usize =
            cache.files.iter().flat_map(|t| t.lock().by_file.remove(&1)).map(|s| s.len()).sum();
        assert_eq!(tracked as u64, stats.blocks_count, "the table of files forgets what was evicted");
    }

    #[test]
    fn dear_blocks_outlive_a_scan() {
        let cache = BlockCache::new(16 << 20);
        for offset in 0..20 {
            cache.insert(key(1, offset), block(64 << 10), BlockPriority::High);
        }
        for offset in 0..2000 {
            cache.insert(key(2, offset), block(64 << 10), BlockPriority::Normal);
        }
        let left = (0..20).filter(|&offset| cache.get(&key(1, offset)).is_some()).count();
        assert!(left >= 18, "{left} of 20 are left");
    }

    #[test]
    fn drops_a_file_and_only_that() {
        let cache = BlockCache::new(1 << 20);
        for file in 0..40 {
            cache.insert(key(file, 0), block(100), BlockPriority::Normal);
            cache.insert(key(file, 1), block(100), BlockPriority::Normal);
        }
        cache.evict_file(17);
        assert!(cache.get(&key(17, 0)).is_none() && cache.get(&key(17, 1)).is_none());
        assert_eq!(cache.stats().blocks_count, 78);
    }

    #[test]
    fn shrinks_and_grows() {
        let cache = BlockCache::new(8 << 20);
        for offset in 0..100 {
            cache.insert(key(1, offset), block(64 << 10), BlockPriority::Normal);
        }
        cache.resize(1 << 20);
        let stats = cache.stats();
        assert!(stats.used_bytes <= 1 << 20 && stats.blocks_count > 0, "{stats:?}");
        cache.resize(8 << 20);
        assert_eq!(cache.stats().capacity_bytes, 8 << 20);
    }

    #[test]
    fn nothing_fits_a_cache_of_no_bytes() {
        let cache = BlockCache::new(0);
        cache.insert(key(1, 0), block(10), BlockPriority::High);
        assert!(cache.get(&key(1, 0)).is_none());
        assert_eq!(cache.stats().used_bytes, 0);
    }
}
