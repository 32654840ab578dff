//! Where in the cache file which block is. In memory, in as many parts as keep each lock short.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_env::Mutex;

use super::space::{Layout, LiveCounts};
use crate::BlockKey;
use crate::files::Registry;

/// Memory of one entry: key and slot in a table that is seven eighths full at most and half full on average after it
/// grew, the same in the segment's list and in the file's.
pub(super) const ENTRY_BYTES: u64 = 2 * (16 + 24) + 16 + 2 * 9;

const PARTS_COUNT: usize = 256;

/// A record in the cache file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub position: u64,
    pub len: u32,
    /// Whether it was read since it was written.
    pub used: bool,
}

/// See the head of the file. *Thread safety*: from any thread; each call takes one part's lock; *lock order*: the
/// registry's first.
pub(super) struct Index {
    parts: Box<[Mutex<HashMap<BlockKey, Slot>>]>,
    layout: Layout,
    pub live: LiveCounts,
    registry: Arc<Registry>,
    count: AtomicU64,
    record_bytes: AtomicU64,
}

impl Index {
    pub fn new(layout: Layout, registry: Arc<Registry>) -> Index {
        Index {
            parts: (0..PARTS_COUNT).map(|_| Mutex::default()).collect(),
            layout,
            live: LiveCounts::new(layout),
            registry,
            count: AtomicU64::new(0),
            record_bytes: AtomicU64::new(0),
        }
    }

    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Bytes of the cache file that can still be found.
    pub fn record_bytes(&self) -> u64 {
        self.record_bytes.load(Ordering::Relaxed)
    }

    pub fn held_bytes(&self) -> u64 {
        self.count() * ENTRY_BYTES
    }

    pub fn contains(&self, key: &BlockKey) -> bool {
        self.part(key).lock().contains_key(key)
    }

    pub fn get(&self, key: &BlockKey) -> Option<Slot> {
        self.part(key).lock().get(key).copied()
    }

    /// As `get`, and notes that it was used.
    pub fn use_block(&self, key: &BlockKey) -> Option<Slot> {
        let mut part = self.part(key).lock();
        let slot = part.get_mut(key)?;
        slot.used = true;
        Some(*slot)
    }

    /// Adds a block whose record is written.
    pub fn add(&self, key: BlockKey, slot: Slot) {
        // Counted first: another thread may find the block and remove it at once.
        self.count.fetch_add(1, Ordering::Relaxed);
        self.record_bytes.fetch_add(u64::from(slot.len), Ordering::Relaxed);
        self.live.add(self.segment(slot));
        let old = self.registry.in_file.add(key, || self.part(&key).lock().insert(key, slot));
        if let Some(old) = old {
            self.uncount(old);
        }
    }

    /// Forgets a block; returns where it was.
    pub fn remove(&self, key: &BlockKey) -> Option<Slot> {
        self.remove_if(key, |_| true)
    }

    pub fn remove_if(&self, key: &BlockKey, wanted: impl FnOnce(Slot) -> bool) -> Option<Slot> {
        let removed = {
            let mut part = self.part(key).lock();
            let slot = part.get(key).copied().filter(|slot| wanted(*slot))?;
            part.remove(key);
            slot
        };
        self.uncount(removed);
        self.registry.left_file(*key, || !self.contains(key));
        Some(removed)
    }

    /// Forgets about one part in `PARTS_COUNT` of all blocks; returns whether there is a next part.
    pub fn clear_part(&self, at: usize) -> bool {
        let taken = self.parts.get(at).map(|part| std::mem::take(&mut *part.lock()));
        for (key, slot) in taken.into_iter().flatten() {
            self.uncount(slot);
            self.registry.left_file(key, || !self.contains(&key));
        }
        at + 1 < self.parts.len()
    }

    pub fn segment(&self, slot: Slot) -> u32 {
        self.layout.segment_of(slot.position, slot.len).expect("a slot lies in a segment")
    }

    fn uncount(&self, slot: Slot) {
        let (count, len) = (self.count.fetch_sub(1, Ordering::Relaxed), u64::from(slot.len));
        let bytes = self.record_bytes.fetch_sub(len, Ordering::Relaxed);
        assert!(count > 0 && bytes >= len, "a block of {len} bytes leaves {count} blocks of {bytes} bytes");
        self.live.remove(self.segment(slot));
    }

    /// Compares the accounts with what is there. No other thread may change the index meanwhile.
    #[cfg(test)]
    pub fn check_accounts(&self) {
        let slots: Vec<Slot> =
            self.parts.iter().flat_map(|part| part.lock().values().copied().collect::<Vec<_>>()).collect();
        let bytes = slots.iter().map(|slot| u64::from(slot.len)).sum::<u64>();
        assert_eq!((self.count(), self.record_bytes()), (slots.len() as u64, bytes));
        for segment in 0..self.layout.segments_count {
            let blocks_count = slots.iter().filter(|slot| self.segment(**slot) == segment).count();
            assert_eq!(self.live.count(segment), blocks_count, "blocks of segment {segment}");
        }
    }

    fn part(&self, key: &BlockKey) -> &Mutex<HashMap<BlockKey, Slot>> {
        let mixed = (key.file.get() ^ key.offset.get().rotate_left(17)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 32) as usize % PARTS_COUNT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockOffset, FileId};

    #[test]
    fn a_block_that_is_added_again_counts_once() {
        let layout = Layout::of(8 << 20);
        let index = Index::new(layout, Arc::default());
        let key = BlockKey { file: FileId::new(1), offset: BlockOffset::new(7) };
        index.add(key, Slot { position: layout.start_of(0), len: 100, used: false });
        index.add(key, Slot { position: layout.start_of(1), len: 300, used: false });
        index.check_accounts();
        assert_eq!((index.count(), index.record_bytes()), (1, 300));
        index.remove(&key);
        index.check_accounts();
    }
}
