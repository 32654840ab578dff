//! What the splits of a process keep in memory together.
//!
//! A server that is left alone splits several WALs at once, each with the edits of many regions. It is the last one that must not end for
//! that: so splits share a limit, and whoever has more than its part of it writes out what it has.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Edits that one split holds before some are written out, however much memory there is.
const ONE_MAX_BYTES: usize = 64 << 20;
/// However little there is, a split may have so much: writes of a few bytes each would take forever.
const PART_MIN_BYTES: usize = 256 << 10;
/// Edits of a region that are worth a file of HDFS. To make one takes as long as to read some MiB of a log again, and each region that opens
/// opens its files.
pub(super) const FILE_MIN_BYTES: usize = 64 << 10;
// What is deferred leaves half of what is in memory, or somewhat less. If it left nothing, a split would not come to its end.
const _: () = assert!(PART_MIN_BYTES / 2 >= 2 * FILE_MIN_BYTES);

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
    fn is_short(&self) -> bool {
        self.held_bytes() > self.limit_bytes
    }

    /// How much a split may keep that holds so much, if that is too much: half, so that it has no more to do for some time.
    pub(super) fn reduced(&self, of_one_bytes: usize) -> Option<usize> {
        let most = if self.is_short() { self.part_bytes.min(ONE_MAX_BYTES) } else { ONE_MAX_BYTES };
        (of_one_bytes > most).then_some(most / 2)
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
