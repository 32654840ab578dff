use std::collections::{HashSet, VecDeque, hash_set};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use halcyon_env::{Condvar, FileSystem, Lookups, Mutex};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, OptionsBuilder};

use crate::evicted::{CollectEvicted, Evicted, KeyedBlock, WeightInBytes};
use crate::files::{FileIdentity, KnownFile, Registry};
use crate::tier::{FileTier, FileTierOptions, FileTierStats, FromFile};
use crate::{Block, BlockKind, BlockOffset, FileId};

/// Names a block: the number of a file, and the offset of the block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub file: FileId,
    pub offset: BlockOffset,
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

/// Kinds of blocks that reads are counted by.
pub const READ_KINDS: [&str; 3] = ["data", "index", "bloom"];

/// Reads of blocks of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindReads {
    pub hits_count: u64,
    pub misses_count: u64,
}

/// A moment's counts. Bytes include overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Memory that blocks, and index and queue of the file tier, may take.
    pub capacity_bytes: u64,
    /// Memory that they do take.
    pub used_bytes: u64,
    /// Blocks in memory; so are the five below.
    pub blocks_count: u64,
    pub hits_count: u64,
    pub misses_count: u64,
    /// Hits and misses by kind of block, in the order of [`READ_KINDS`].
    pub reads: [KindReads; READ_KINDS.len()],
    pub inserts_count: u64,
    pub evictions_count: u64,
    /// Bytes of cells that were made plain for readers, of blocks that hold differences.
    pub decoded_bytes: u64,
    /// `None`: there is no file tier.
    pub file_tier: Option<FileTierStats>,
}

/// The cache. See the head of the crate.
///
/// *Thread safety*: all methods may be called from any thread at any time. `get` takes one shard's lock for
/// reading; `insert` takes one lock of the table of files, and then one shard's lock for writing. *Lock order*: the
/// table of files, shards of the memory tier; parts of the file tier's index are taken below the table of files, too.
///
/// *Invariants*: what is in memory is at most `capacity_bytes`, shard by shard, once [`BlockCache::turn`] has nothing
/// left to do. A block larger than one shard's part is not taken in.
pub struct BlockCache {
    blocks: Cache<BlockKey, Arc<Block>, WeightInBytes, DefaultHashBuilder, CollectEvicted>,
    pushed_out: CollectEvicted,
    registry: Arc<Registry>,
    tier: Option<FileTier>,
    /// Why there is no file tier although one was asked for.
    no_tier: Option<String>,
    /// What the capacity is to be.
    target_bytes: AtomicU64,
    leaving: Mutex<Leaving>,
    /// Numbers of files that wait for `leaving`.
    to_leave: Mutex<VecDeque<FileId>>,
    work: Work,
    hits: [ReadCounter; COUNTERS_COUNT],
    misses: [ReadCounter; COUNTERS_COUNT],
    decoded: [Counter; COUNTERS_COUNT],
    inserts: AtomicU64,
    evictions: AtomicU64,
}

const COUNTERS_COUNT: usize = 8;
/// What a block weighs in most families; the number of shards is estimated from it.
const TYPICAL_BLOCK_BYTES: u64 = 64 * 1024;
/// What one step of `turn` does at most: blocks of a file that goes, bytes of a cache that shrinks, blocks written.
const LEAVING_BLOCKS_MAX: usize = 256;
const SHRINK_BYTES_MAX: u64 = 4 << 20;
const WRITES_MAX: usize = 16;
/// Memory that the file tier gives back is not taken again in smaller steps.
const TIER_BYTES_STEP: u64 = 256 << 10;

/// One counter on its own cache line: threads that read different files do not fight for it.
#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// As [`Counter`], one count for each kind of [`READ_KINDS`].
#[derive(Default)]
#[repr(align(64))]
struct ReadCounter([AtomicU64; READ_KINDS.len()]);

/// The place of a kind in [`READ_KINDS`].
#[inline]
fn read_kind(kind: BlockKind) -> usize {
    match kind {
        BlockKind::BloomChunk | BlockKind::GeneralBloomMeta | BlockKind::DeleteFamilyBloomMeta => 2,
        BlockKind::LeafIndex | BlockKind::IntermediateIndex | BlockKind::RootIndex => 1,
        BlockKind::Data | BlockKind::Meta | BlockKind::FileInfo => 0,
    }
}

/// Whether there is something for `turn` to do.
#[derive(Default)]
struct Work {
    is_there: Mutex<bool>,
    came: Condvar,
}

impl Work {
    fn raise(&self) {
        *self.is_there.lock() = true;
        self.came.notify_one();
    }

    fn wait(&self, timeout: Duration) {
        let mut is_there = self.is_there.lock();
        if !*is_there {
            self.came.wait_for(&mut is_there, timeout);
        }
        *is_there = false;
    }
}

/// The file of which blocks are leaving just now.
#[derive(Default)]
struct Leaving {
    file: FileId,
    in_memory: Option<hash_set::IntoIter<BlockOffset>>,
    in_file: Option<hash_set::IntoIter<BlockOffset>>,
}

impl BlockCache {
    /// A cache for this many bytes, overhead included. With 0 nothing is ever kept.
    pub fn new(capacity_bytes: u64) -> BlockCache {
        let estimated_count = (capacity_bytes / TYPICAL_BLOCK_BYTES).clamp(64, 1 << 24) as usize;
        let options = OptionsBuilder::new()
            .weight_capacity(capacity_bytes)
            .estimated_items_capacity(estimated_count)
            .build()
            .expect("both capacities are given");
        let pushed_out = CollectEvicted::default();
        let hasher = DefaultHashBuilder::default();
        BlockCache {
            blocks: Cache::with_options(options, WeightInBytes, hasher, pushed_out.clone()),
            pushed_out,
            registry: Arc::default(),
            tier: None,
            no_tier: None,
            target_bytes: AtomicU64::new(capacity_bytes),
            leaving: Mutex::default(),
            to_leave: Mutex::default(),
            work: Work::default(),
            hits: Default::default(),
            misses: Default::default(),
            decoded: Default::default(),
            inserts: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// As `new`, with a file tier behind the memory. *Blocking*. If the file cannot be used there is none, which is
    /// told in the log and by [`BlockCache::file_tier_failure`].
    pub fn with_file_tier(
        capacity_bytes: u64,
        fs: Arc<dyn FileSystem>,
        options: FileTierOptions,
    ) -> BlockCache {
        let mut cache = BlockCache::new(capacity_bytes);
        let path = options.path.clone();
        match FileTier::open(fs, options, capacity_bytes, cache.registry.clone()) {
            Ok(tier) => {
                cache.tier = Some(tier);
                cache.set_capacity(cache.wanted_bytes());
            }
            Err(error) => {
                let reason = format!("{} cannot be used: {error}", path.display());
                tracing::error!(reason, "the block cache has no file tier");
                cache.no_tier = Some(reason);
            }
        }
        cache
    }

    /// Says that a file is open: its blocks are looked for and kept under what is given back, whoever opened it
    /// before. `path` is where the file is now.
    pub fn open_file(self: &Arc<Self>, identity: FileIdentity, path: &Path) -> CachedFile {
        CachedFile { file: self.registry.files.open(identity, path), cache: self.clone() }
    }

    /// Whether more blocks would push out others soon: then what nobody has read yet is better left out.
    pub fn is_nearly_full(&self) -> bool {
        self.blocks.weight() >= self.blocks.capacity() / 10 * 9
    }

    /// Changes the capacity. A larger one holds at once; towards a smaller one blocks go in steps, by `turn`.
    pub fn resize(&self, capacity_bytes: u64) {
        self.target_bytes.store(capacity_bytes, Ordering::Release);
        if let Some(tier) = &self.tier {
            tier.set_memory(capacity_bytes);
        }
        let wanted = self.wanted_bytes();
        if wanted > self.blocks.capacity() {
            self.set_capacity(wanted);
        } else {
            self.work.raise();
        }
    }

    pub fn stats(&self) -> CacheStats {
        let sum = |counters: &[Counter]| counters.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
        let by_kind = |counters: &[ReadCounter], kind: usize| -> u64 {
            counters.iter().map(|counter| counter.0[kind].load(Ordering::Relaxed)).sum()
        };
        let reads = std::array::from_fn(|kind| KindReads {
            hits_count: by_kind(&self.hits, kind),
            misses_count: by_kind(&self.misses, kind),
        });
        let failed = || FileTierStats { failures_count: 1, ..FileTierStats::default() };
        CacheStats {
            capacity_bytes: self.target_bytes.load(Ordering::Relaxed),
            used_bytes: self.blocks.weight() + self.tier_bytes(),
            blocks_count: self.blocks.len() as u64,
            hits_count: reads.iter().map(|kind| kind.hits_count).sum(),
            misses_count: reads.iter().map(|kind| kind.misses_count).sum(),
            reads,
            inserts_count: self.inserts.load(Ordering::Relaxed),
            evictions_count: self.evictions.load(Ordering::Relaxed),
            decoded_bytes: sum(&self.decoded),
            file_tier: self
                .tier
                .as_ref()
                .map(FileTier::stats)
                .or_else(|| self.no_tier.as_ref().map(|_| failed())),
        }
    }

    /// Why the file tier that was asked for is off; `None` while it is on, and if none was asked for.
    pub fn file_tier_failure(&self) -> Option<String> {
        self.no_tier.clone().or_else(|| self.tier.as_ref().and_then(FileTier::failure))
    }

    // ---- what is done behind the requests ----

    /// Waits until there is something to do, at most `timeout`, and does a bounded part of it: blocks of files that go
    /// are let go, the cache shrinks, blocks are written to the file tier. Returns whether more is left to do.
    /// *Blocking*. Called again and again by one thread that whoever owns the cache has for it.
    pub fn turn(&self, timeout: Duration) -> bool {
        self.work.wait(timeout);
        let more = self.step();
        if more {
            self.work.raise();
        }
        more
    }

    /// Ends a `turn` that waits.
    pub fn wake(&self) {
        self.work.raise();
    }

    /// Does what is to be done until nothing is left, without waiting for more. *Blocking*.
    pub fn settle(&self) {
        while self.step() {}
    }

    fn step(&self) -> bool {
        let mut more = self.leave_step();
        more |= self.shrink_step();
        if let Some(tier) = &self.tier {
            let written = (0..WRITES_MAX).take_while(|_| tier.write_one()).count();
            more |= written == WRITES_MAX;
            more |= tier.tidy_step();
        }
        more
    }

    /// Lets go of some blocks of a file that goes; false if none is going.
    pub(crate) fn leave_step(&self) -> bool {
        let mut leaving = self.leaving.lock();
        if leaving.in_memory.is_none() && leaving.in_file.is_none() {
            let Some(file) = self.to_leave.lock().pop_front() else { return false };
            leaving.file = file;
            leaving.in_memory = Some(self.registry.in_memory.take(file).into_iter());
            leaving.in_file = self.tier.is_some().then(|| self.registry.in_file.take(file).into_iter());
        }
        let file = leaving.file;
        for _ in 0..LEAVING_BLOCKS_MAX {
            let Some(offset) = leaving.in_memory.as_mut().and_then(Iterator::next) else {
                leaving.in_memory = None;
                break;
            };
            self.remove(BlockKey { file, offset });
        }
        for _ in 0..LEAVING_BLOCKS_MAX {
            let Some(offset) = leaving.in_file.as_mut().and_then(Iterator::next) else {
                leaving.in_file = None;
                break;
            };
            if let Some(tier) = &self.tier {
                tier.remove(&BlockKey { file, offset });
            }
        }
        if leaving.in_memory.is_none() && leaving.in_file.is_none() {
            self.registry.forget_unused(file);
        }
        true
    }

    /// Comes a step nearer to the capacity that is wanted; false if it is reached.
    fn shrink_step(&self) -> bool {
        let (wanted, now) = (self.wanted_bytes(), self.blocks.capacity());
        // A capacity is rounded up to a multiple of the number of shards.
        let is_there = now.abs_diff(wanted) <= self.blocks.num_shards() as u64;
        let is_small_change = wanted > now && wanted - now < TIER_BYTES_STEP && self.tier.is_some();
        if is_there || is_small_change {
            return false;
        }
        self.set_capacity(wanted.max(now.saturating_sub(SHRINK_BYTES_MAX)));
        true
    }

    /// The capacity of the memory tier: without what the file tier takes.
    fn wanted_bytes(&self) -> u64 {
        let reserved = self.tier.as_ref().map_or(0, FileTier::reserved_bytes);
        self.target_bytes.load(Ordering::Acquire).saturating_sub(reserved)
    }

    fn tier_bytes(&self) -> u64 {
        self.tier.as_ref().map_or(0, FileTier::held_bytes)
    }

    fn set_capacity(&self, capacity_bytes: u64) {
        self.blocks.set_capacity(capacity_bytes);
        let pushed_out = self.pushed_out.take();
        self.push_out(pushed_out);
    }

    /// Looks at some files that nobody has open, from number `after` on; blocks of those that are not on the disk any
    /// more are let go, by `turn`. Returns where to go on, `None` at the end. *Blocking*.
    pub fn sweep(&self, fs: &dyn FileSystem, after: FileId, files_max: usize) -> Option<FileId> {
        let (closed, next) = self.registry.files.closed_after(after, files_max.max(1));
        for (number, path) in closed {
            if matches!(fs.exists(&path), Ok(false)) && self.registry.files.retire(number, 0) {
                self.let_go(number);
            }
        }
        next
    }

    /// Keeps what the file tier needs to go on in the next life of the process: the data blocks in memory are written
    /// to it as long as `go_on` says so, then its index is. Nothing is cached in the file afterwards. *Blocking*.
    pub fn close_file_tier(&self, go_on: impl Fn() -> bool) {
        if let Some(tier) = &self.tier {
            let is_data = |(_, block): &KeyedBlock| block.kind() == BlockKind::Data;
            tier.save(self.blocks.iter().filter(is_data).take_while(|_| go_on()));
        }
    }

    // ---- blocks ----

    /// Lets the blocks of a file go, by `turn`.
    fn let_go(&self, file: FileId) {
        self.to_leave.lock().push_back(file);
        self.work.raise();
    }

    fn push_out(&self, evicted: Vec<KeyedBlock>) {
        if evicted.is_empty() {
            return;
        }
        self.evictions.fetch_add(evicted.len() as u64, Ordering::Relaxed);
        let mut to_write = false;
        for (key, block) in evicted {
            self.registry.left_memory(key, || !self.blocks.contains_key(&key));
            if let Some(tier) = &self.tier {
                to_write |= tier.offer(key, block);
            }
        }
        if to_write {
            self.work.raise();
        }
    }

    fn remove(&self, key: BlockKey) {
        let mut removed = None;
        self.registry.left_memory(key, || {
            removed = self.blocks.remove(&key);
            true
        });
        drop(removed); // outside the locks
    }

    fn insert(&self, key: BlockKey, block: Arc<Block>, priority: BlockPriority) {
        let mut evicted = Evicted::wanted();
        self.registry.in_memory.add(key, || self.blocks.insert_with_lifecycle(key, block, &mut evicted));
        self.inserts.fetch_add(1, Ordering::Relaxed);
        self.push_out(evicted.take());
        if priority == BlockPriority::High {
            drop(self.blocks.get(&key));
        }
    }
}

/// A file as somebody has it open: the way to its blocks. Blocks stay when it is dropped, for whoever opens the file
/// again.
///
/// *Thread safety*: from any thread.
pub struct CachedFile {
    file: Arc<KnownFile>,
    cache: Arc<BlockCache>,
}

impl CachedFile {
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    pub(crate) fn key(&self, offset: BlockOffset) -> BlockKey {
        BlockKey { file: self.file.number, offset }
    }

    fn counter<'a, T>(&self, counters: &'a [T; COUNTERS_COUNT]) -> &'a T {
        &counters[self.file.number.get() as usize % COUNTERS_COUNT]
    }

    /// The block that begins at this offset of the file, if it is in memory; this counts as a use of it, and as a read
    /// of this kind.
    #[inline]
    pub fn get(&self, offset: BlockOffset, kind: BlockKind) -> Option<Arc<Block>> {
        let found = self.cache.blocks.get(&self.key(offset));
        Lookups::note(found.is_some());
        let counters = if found.is_some() { &self.cache.hits } else { &self.cache.misses };
        self.counter(counters).0[read_kind(kind)].fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Whether the block is in memory; no use of it.
    pub fn is_in_memory(&self, offset: BlockOffset) -> bool {
        self.cache.blocks.contains_key(&self.key(offset))
    }

    /// Blocks of the file in either tier.
    pub fn cached_count(&self) -> usize {
        let registry = &self.cache.registry;
        let (number, in_file) = (self.file.number, registry.in_file.offsets(self.file.number));
        let in_memory = registry.in_memory.offsets(number);
        in_memory.iter().chain(&in_file).collect::<HashSet<_>>().len()
    }

    /// A block that `get` did not find, from the file tier; it belongs into memory again. *Blocking* if it `may_wait`
    /// for the disk.
    pub fn get_from_file(&self, offset: BlockOffset, may_wait: bool) -> FromFile {
        match &self.cache.tier {
            Some(tier) => tier.read(&self.key(offset), self.file.tag, may_wait),
            None => FromFile::NotThere,
        }
    }

    /// Takes a block in, perhaps at the cost of others. A block that is already here is replaced.
    pub fn insert(&self, offset: BlockOffset, block: Arc<Block>, priority: BlockPriority) {
        if self.file.is_gone() {
            return;
        }
        let key = self.key(offset);
        self.cache.insert(key, block, priority);
        if self.file.is_gone() {
            // Whoever took the file's blocks away may not have seen this one.
            self.cache.remove(key);
        }
    }

    /// Counts cells that were made plain.
    #[inline]
    pub fn note_decoded(&self, bytes: usize) {
        self.counter(&self.cache.decoded).0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Lets all blocks of the file go, in steps, by [`BlockCache::turn`]. Blocks that are read later are kept again.
    pub fn evict(&self) {
        self.cache.let_go(self.file.number);
    }

    /// As `evict`, at once and on the caller's thread. Returns the number of blocks in either tier. *Blocking*.
    pub fn evict_now(&self) -> usize {
        let registry = &self.cache.registry;
        let in_memory = registry.in_memory.take(self.file.number);
        let in_file = registry.in_file.take(self.file.number);
        in_memory.iter().for_each(|offset| self.cache.remove(self.key(*offset)));
        if let Some(tier) = &self.cache.tier {
            in_file.iter().for_each(|offset| tier.remove(&self.key(*offset)));
        }
        in_memory.union(&in_file).count()
    }

    /// As `evict`, for a file that is gone for good: nothing of it is kept any more, though it may still be read. If it
    /// is open elsewhere as well, its blocks stay for whoever has it there.
    pub fn retire(&self) {
        if self.cache.registry.files.retire(self.file.number, 1) {
            self.evict();
        }
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        self.cache.registry.files.close(self.file.number);
        self.cache.registry.forget_unused(self.file.number);
    }
}

#[cfg(test)]
impl BlockCache {
    pub(crate) fn tier_for_test(&self) -> &FileTier {
        self.tier.as_ref().expect("the test made one")
    }
}

#[cfg(test)]
impl CachedFile {
    pub(crate) fn number_for_test(&self) -> FileId {
        self.file.number
    }
}

#[cfg(test)]
mod tests;
