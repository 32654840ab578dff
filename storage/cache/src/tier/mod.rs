//! The file tier: data blocks that had to leave memory, in one file on a local disk (HBase: `BucketCache` with
//! `FileIOEngine`).
//!
//! A block that memory gives up is put into a bounded queue ([`FileTier::offer`]); where the queue is full the block
//! is dropped, so that no request ever waits for the tier. Whoever drives the cache calls [`FileTier::write_one`],
//! which appends the block's record to the segment that is being filled (`space.rs`) and then makes it known to the
//! index (`index.rs`). A reader that finds it there reads the record with one positional read and believes it only if
//! it is the record of that block and its checksum fits (`record.rs`): a segment may be written over while somebody
//! reads there, and disks lie. A record that should be right and is not is a miss, is counted, and is forgotten.
//!
//! The index survives an orderly end in a file of its own (`saved.rs`). It is taken away again when it was read, and
//! the stamp that it has in common with the cache file is drawn anew before anything is written there, so that an
//! index can never be used for a file that has changed since (`life.rs`).
//!
//! An error of the disk turns the tier off until the next start: it is told once, and all goes on without it.

mod index;
mod life;
mod queue;
mod record;
mod saved;
mod space;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use halcyon_env::{FileLock, FileSystem, Mutex, UpdatableFile};

use crate::files::Registry;
use crate::{Block, BlockKey};
use index::{ENTRY_BYTES, Index, Slot};
use queue::Queue;
use saved::Bond;
use space::Space;

/// What a file tier is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTierOptions {
    /// The cache file (`hbase.bucketcache.ioengine`). No other process may use it.
    pub path: PathBuf,
    /// Bytes of the cache file (`hbase.bucketcache.size`, there in MiB).
    pub size_bytes: u64,
    /// Where the index is kept while the process is down; `None`: the tier begins empty
    /// (`hbase.bucketcache.persistent.path`).
    pub index_path: Option<PathBuf>,
    /// Blocks that wait to be written, at most (`hbase.bucketcache.writer.queuelength`).
    pub queue_blocks_max: usize,
}

/// Part of the cache's memory that the index may take; with small blocks the file may not be filled for it.
const INDEX_SHARE: u64 = 4;
/// Part of it that blocks may take that wait to be written, and what they take at most.
const QUEUE_SHARE: u64 = 8;
const QUEUE_BYTES_MAX: u64 = 32 << 20;
/// Index and queue together leave room for blocks: a quarter and an eighth are less than the whole.
const _: () = assert!(INDEX_SHARE + QUEUE_SHARE < INDEX_SHARE * QUEUE_SHARE);

/// A moment's counts of a file tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTierStats {
    /// False after an error of the disk.
    pub is_on: bool,
    /// Bytes of the cache file.
    pub capacity_bytes: u64,
    /// Bytes of records that can be found.
    pub used_bytes: u64,
    pub blocks_count: u64,
    /// Memory that the index takes; part of the cache's own.
    pub index_bytes: u64,
    /// Memory of the blocks that wait to be written; part of the cache's own.
    pub queued_bytes: u64,
    /// Blocks that were read from the file (or from the queue).
    pub hits_count: u64,
    pub misses_count: u64,
    pub written_count: u64,
    /// Blocks that were not written because too many waited.
    pub dropped_count: u64,
    /// Blocks that made room for others.
    pub evictions_count: u64,
    /// Records that were not as they had been written.
    pub damaged_count: u64,
    /// Blocks that an earlier life had left.
    pub restored_count: u64,
    /// Errors of the disk.
    pub failures_count: u64,
}

/// What a reader is told.
pub enum FromFile {
    Found(Arc<Block>),
    NotThere,
    /// It is there, but the disk would have to be waited for.
    NeedsDisk,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    evictions: AtomicU64,
    damaged: AtomicU64,
    restored: AtomicU64,
    failures: AtomicU64,
}

/// See the head of the file.
///
/// *Thread safety*: from any thread. *Lock order*: `space` first. It is held across I/O, by whoever writes, and never
/// taken by readers or by those who offer blocks.
pub(crate) struct FileTier {
    fs: Arc<dyn FileSystem>,
    options: FileTierOptions,
    bond: Bond,
    file: Arc<dyn UpdatableFile>,
    /// What the whole cache may take.
    memory_bytes: AtomicU64,
    registry: Arc<Registry>,
    index: Index,
    queue: Queue,
    space: Mutex<Space>,
    is_on: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Parts of the index that are cleared since the tier is off.
    cleared: AtomicUsize,
    counters: Counters,
    _lock: Box<dyn FileLock>,
}

impl FileTier {
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Why the tier is off; `None` while it is on.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    pub fn stats(&self) -> FileTierStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FileTierStats {
            is_on: self.is_on(),
            capacity_bytes: self.bond.layout.file_len(),
            used_bytes: self.index.record_bytes(),
            blocks_count: self.index.count(),
            index_bytes: self.index.held_bytes(),
            queued_bytes: self.queue.held_bytes(),
            hits_count: count(&self.counters.hits),
            misses_count: count(&self.counters.misses),
            written_count: count(&self.counters.written),
            dropped_count: count(&self.counters.dropped),
            evictions_count: count(&self.counters.evictions),
            damaged_count: count(&self.counters.damaged),
            restored_count: count(&self.counters.restored),
            failures_count: count(&self.counters.failures),
        }
    }

    /// Memory of the index and of the queue.
    pub fn held_bytes(&self) -> u64 {
        self.index.held_bytes() + self.queue.held_bytes()
    }

    /// Memory that is to be kept free for both: for the queue all that it may take, or blocks that leave memory for
    /// its sake would make it longer.
    pub fn reserved_bytes(&self) -> u64 {
        if self.is_on() { self.index.held_bytes() + self.queue_bytes_max() } else { self.held_bytes() }
    }

    /// Changes what the whole cache may take; an index that is too large for it shrinks by `tidy_step`.
    pub fn set_memory(&self, memory_bytes: u64) {
        self.memory_bytes.store(memory_bytes, Ordering::Relaxed);
    }

    fn index_bytes_max(&self) -> u64 {
        self.memory_bytes.load(Ordering::Relaxed) / INDEX_SHARE
    }

    fn queue_bytes_max(&self) -> u64 {
        QUEUE_BYTES_MAX.min(self.memory_bytes.load(Ordering::Relaxed) / QUEUE_SHARE)
    }

    // ---- readers ----

    /// The block, if it is here. `may_wait`: for the disk. `tag` is that of the block's file.
    pub fn read(&self, key: &BlockKey, tag: u64, may_wait: bool) -> FromFile {
        if !self.is_on() {
            return FromFile::NotThere;
        }
        if let Some(block) = self.queue.get(key) {
            self.counters.hits.fetch_add(1, Ordering::Relaxed);
            return FromFile::Found(block);
        }
        let missed = || {
            self.counters.misses.fetch_add(1, Ordering::Relaxed);
            FromFile::NotThere
        };
        let Some(slot) = self.index.use_block(key) else { return missed() };
        let mut record = vec![0; slot.len as usize];
        let read = if may_wait {
            self.file.read_exact_at(&mut record, slot.position).map(|()| true)
        } else {
            self.file.read_resident_at(&mut record, slot.position)
        };
        match read {
            Ok(true) => {}
            Ok(false) => return FromFile::NeedsDisk,
            Err(error) => {
                self.turn_off("read", &error);
                return missed();
            }
        }
        match record::decode(tag, key.offset, record) {
            Some(block) => {
                self.counters.hits.fetch_add(1, Ordering::Relaxed);
                FromFile::Found(Arc::new(block))
            }
            None => {
                // Unless it made room for another one meanwhile.
                if self.index.remove_if(key, |now| now.position == slot.position).is_some() {
                    self.counters.damaged.fetch_add(1, Ordering::Relaxed);
                    let (position, path) = (slot.position, self.options.path.display());
                    tracing::warn!(%path, position, len = slot.len, "a cached block is damaged; its file is read");
                }
                missed()
            }
        }
    }

    /// Forgets a block.
    pub fn remove(&self, key: &BlockKey) {
        self.index.remove(key);
    }

    // ---- writers ----

    /// Takes a block that leaves memory, to be written later. Returns whether there is something to write now.
    pub fn offer(&self, key: BlockKey, block: Arc<Block>) -> bool {
        if !self.is_on() || !record::is_stored(block.kind()) || self.index.contains(&key) {
            return false;
        }
        let taken = self.queue.push(key, block, self.queue_bytes_max());
        if !taken {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// Writes the block that has waited longest; false if none waits. *Blocking*.
    pub fn write_one(&self) -> bool {
        if !self.is_on() {
            self.queue.clear();
            return false;
        }
        let Some((key, block)) = self.queue.front() else { return false };
        self.write_or_turn_off(key, &block);
        self.queue.pop(&key);
        true
    }

    /// Writes a block at once, unless it is here. *Blocking*.
    fn write_or_turn_off(&self, key: BlockKey, block: &Block) {
        if let Err(error) = self.write_block(&mut self.space.lock(), key, block) {
            self.turn_off("written", &error);
        }
    }

    fn write_block(&self, space: &mut Space, key: BlockKey, block: &Block) -> io::Result<()> {
        let Some(file) = self.registry.files.get(key.file).filter(|file| !file.is_gone()) else {
            return Ok(());
        };
        let len = record::len_of(block);
        if !record::is_stored(block.kind()) || !space.fits(len) || self.index.contains(&key) {
            return Ok(());
        }
        if self.index.held_bytes() + ENTRY_BYTES > self.index_bytes_max() {
            self.empty_segment(space, 0)?;
        }
        let mut record = Vec::with_capacity(len);
        record::encode(file.tag, key.offset, block, &mut record);
        assert_eq!(
            record.len(),
            len,
            "a record takes the room that was asked for it, or it runs into the next one"
        );
        self.append(space, key, &record)?;
        self.counters.written.fetch_add(1, Ordering::Relaxed);
        if file.is_gone() {
            self.index.remove(&key); // whoever took its blocks away has not seen this one
        }
        Ok(())
    }

    fn append(&self, space: &mut Space, key: BlockKey, record: &[u8]) -> io::Result<()> {
        let position = loop {
            if let Some(position) = space.take(key, record.len()) {
                break position;
            }
            if space.begin_segment() {
                continue;
            }
            let kept = self.empty_segment(space, self.bond.layout.segment_bytes / 2)?;
            let has_begun = space.begin_segment();
            assert!(
                has_begun,
                "an emptied segment can be begun, or a record would look for room without end"
            );
            for (key, record) in kept {
                self.append(space, key, &record)?;
            }
        };
        self.file.write_all_at(record, position)?;
        self.index.add(key, Slot { position, len: record.len() as u32, used: false });
        Ok(())
    }

    /// Forgets the blocks of a segment. Returns the records that were used since they were written, of at most so many
    /// bytes together.
    fn empty_segment(&self, space: &mut Space, kept_bytes_max: u64) -> io::Result<Vec<(BlockKey, Vec<u8>)>> {
        let Some((segment, keys)) = space.empty_one(&self.index.live) else { return Ok(Vec::new()) };
        let (mut kept, mut kept_bytes) = (Vec::new(), 0);
        for key in keys {
            let Some(slot) = self.index.get(&key).filter(|slot| self.index.segment(*slot) == segment) else {
                continue;
            };
            if slot.used && kept_bytes + u64::from(slot.len) <= kept_bytes_max {
                let mut record = vec![0; slot.len as usize];
                self.file.read_exact_at(&mut record, slot.position)?;
                kept_bytes += u64::from(slot.len);
                kept.push((key, record));
            } else {
                self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            }
            self.index.remove(&key);
        }
        Ok(kept)
    }

    fn turn_off(&self, verb: &str, error: &io::Error) {
        self.counters.failures.fetch_add(1, Ordering::Relaxed);
        if self.is_on.swap(false, Ordering::AcqRel) {
            let reason = format!("{} could not be {verb}: {error}", self.options.path.display());
            tracing::error!(reason, "the file tier of the block cache is off until the next start");
            *self.failure.lock() = Some(reason);
        }
    }

    /// Lets go of some of the memory of an index that is too large, or of a tier that is off; false if nothing is left
    /// to do.
    pub fn tidy_step(&self) -> bool {
        if self.is_on() {
            let before = self.index.held_bytes();
            if before <= self.index_bytes_max() {
                return false;
            }
            // Without records to keep nothing is read, so nothing fails.
            let _ = self.empty_segment(&mut self.space.lock(), 0);
            return self.index.held_bytes() < before; // else only the segment that is being filled is left
        }
        if self.failure.lock().is_none() {
            return false;
        }
        self.queue.clear();
        let at = self.cleared.fetch_add(1, Ordering::Relaxed);
        self.index.clear_part(at)
    }
}
