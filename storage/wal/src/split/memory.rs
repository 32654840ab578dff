//! What the splits of a process keep in memory together.
//!
//! A server that is left alone splits several WALs at once, each with the edits of many regions. It is the last one that must not end for
//! that: so splits share a limit, and whoever has more than its part of it writes out what it has.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Edits that one split holds before the largest region's are written out, however much memory there is.
const ONE_MAX_BYTES: usize = 64 << 20;
/// However little there is, a split may have so much: writes of a few bytes each would take forever.
const PART_MIN_BYTES: usize = 256 << 10;

/// See the head of the file. *Thread safety*: all methods from any thread. *Invariants*: what is held is the sum of all rooms.
#[derive(Debug)]
pub struct SplitMemory {
    limit_bytes: usize,
    /// What each split may have while all together have more than the limit.
    part_bytes: usize,
    held_bytes: AtomicUsize,
}

impl SplitMemory {
    /// Of as many splits at once. All together may hold the limit, or twice as much while some of them wait for files, and an entry each.
    pub fn new(limit_bytes: usize, splits_count_max: usize) -> SplitMemory {
        assert!(splits_count_max > 0, "memory for splits is for one at least");
        let part_bytes = (limit_bytes / splits_count_max).max(PART_MIN_BYTES);
        SplitMemory { limit_bytes, part_bytes, held_bytes: AtomicUsize::new(0) }
    }

    /// Of a split that is alone.
    pub fn of_one() -> SplitMemory {
        SplitMemory::new(ONE_MAX_BYTES, 1)
    }

    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Whether all splits together have more than they may.
    pub(super) fn is_short(&self) -> bool {
        self.held_bytes() > self.limit_bytes
    }

    /// Whether a split that holds so much has to write some of it out.
    pub(super) fn is_too_much(&self, of_one_bytes: usize) -> bool {
        of_one_bytes > ONE_MAX_BYTES || (of_one_bytes > self.part_bytes && self.is_short())
    }
}

/// Bytes that somebody holds, until it is dropped.
pub(super) struct Room<'a> {
    memory: &'a SplitMemory,
    bytes: usize,
}

impl<'a> Room<'a> {
    pub(super) fn new(memory: &'a SplitMemory, bytes: usize) -> Room<'a> {
        let mut room = Room { memory, bytes: 0 };
        room.set(bytes);
        room
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn set(&mut self, bytes: usize) {
        let held = &self.memory.held_bytes;
        if bytes >= self.bytes {
            held.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            let before = held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            assert!(before >= self.bytes, "{} bytes are held, and {} of them here", before, self.bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}
