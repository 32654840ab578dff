//! Which parts of the cache file are free.
//!
//! The file is cut into segments that are filled from their beginning, one after the other. When none is free the one
//! that was filled first is emptied, unless there is one of which all blocks have gone already: no free list, no
//! fragments, and a disk that is written in long runs. What was used meanwhile is written once more before its segment
//! goes, as many blocks as fill half a segment.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::BlockKey;

/// Bytes of a segment at most, and at least.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// A file has about this many segments, or more.
const SEGMENTS_COUNT: u64 = 32;
const _: () = assert!(SEGMENT_BYTES_MIN <= SEGMENT_BYTES_MAX && SEGMENT_BYTES_MAX <= u32::MAX as u64);
const _: () = assert!(SEGMENT_BYTES_MIN.is_multiple_of(4096) && FIRST_SEGMENT.is_multiple_of(4096));
/// Behind the file's own header.
pub(super) const FIRST_SEGMENT: u64 = 4096;

/// How a file of some size is cut. Never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub segment_bytes: u64,
    pub segments_count: u32,
}

impl Layout {
    pub fn of(size_bytes: u64) -> Layout {
        let segment_bytes = (size_bytes / SEGMENTS_COUNT).clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let segment_bytes = segment_bytes / 4096 * 4096;
        let room = size_bytes.saturating_sub(FIRST_SEGMENT);
        let segments_count = u32::try_from(room / segment_bytes).unwrap_or(u32::MAX).max(2);
        Layout { segment_bytes, segments_count }
    }

    pub fn file_len(self) -> u64 {
        FIRST_SEGMENT + self.segment_bytes * u64::from(self.segments_count)
    }

    pub fn start_of(self, segment: u32) -> u64 {
        FIRST_SEGMENT + self.segment_bytes * u64::from(segment)
    }

    /// The segment that these bytes lie in; `None` if they are not within one.
    pub fn segment_of(self, position: u64, len: u32) -> Option<u32> {
        let inside = position.checked_sub(FIRST_SEGMENT)?;
        let segment = u32::try_from(inside / self.segment_bytes).ok()?;
        let fits = inside % self.segment_bytes + u64::from(len) <= self.segment_bytes;
        (segment < self.segments_count && fits).then_some(segment)
    }
}

/// How many blocks of each segment are still wanted. *Thread safety*: from any thread.
pub(super) struct LiveCounts(Box<[AtomicU32]>);

impl LiveCounts {
    pub fn new(layout: Layout) -> LiveCounts {
        LiveCounts((0..layout.segments_count).map(|_| AtomicU32::new(0)).collect())
    }

    pub fn add(&self, segment: u32) {
        self.0[segment as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn remove(&self, segment: u32) {
        let before = self.0[segment as usize].fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a block leaves segment {segment}, which has none: it would never be free again");
    }

    #[cfg(test)]
    pub fn count(&self, segment: u32) -> usize {
        self.0[segment as usize].load(Ordering::Relaxed) as usize
    }

    fn is_dead(&self, segment: u32) -> bool {
        self.0[segment as usize].load(Ordering::Relaxed) == 0
    }
}

/// The writer's view of the file.
pub(super) struct Space {
    layout: Layout,
    /// Never filled, or emptied.
    free: Vec<u32>,
    /// Filled, oldest first.
    filled: VecDeque<u32>,
    current: Option<Filling>,
    /// What was written into each segment, by its number; some of it may have gone.
    blocks: Vec<Vec<BlockKey>>,
}

struct Filling {
    segment: u32,
    used_bytes: u64,
}

impl Space {
    pub fn new(layout: Layout) -> Space {
        Space {
            layout,
            free: (0..layout.segments_count).rev().collect(),
            filled: VecDeque::new(),
            current: None,
            blocks: vec![Vec::new(); layout.segments_count as usize],
        }
    }

    /// Takes over what an earlier life has filled: segments, oldest first, with their blocks.
    pub fn restore(layout: Layout, filled: Vec<(u32, Vec<BlockKey>)>) -> Space {
        let mut space = Space::new(layout);
        for (segment, blocks) in filled {
            space.free.retain(|free| *free != segment);
            space.blocks[segment as usize] = blocks;
            space.filled.push_back(segment);
        }
        space.check_segments();
        space
    }

    /// Whether a record of this length could be in the file.
    pub fn fits(&self, len: usize) -> bool {
        len as u64 <= self.layout.segment_bytes
    }

    /// Room for a record in the segment that is being filled; `None`: begin another one.
    pub fn take(&mut self, key: BlockKey, len: usize) -> Option<u64> {
        let filling = self.current.as_mut()?;
        if filling.used_bytes + len as u64 > self.layout.segment_bytes {
            return None;
        }
        let position = self.layout.start_of(filling.segment) + filling.used_bytes;
        assert!(
            self.layout.segment_of(position, len as u32) == Some(filling.segment),
            "a record of {len} bytes at {position} lies in segment {}",
            filling.segment
        );
        filling.used_bytes += len as u64;
        self.blocks[filling.segment as usize].push(key);
        Some(position)
    }

    /// Ends the segment that is being filled and begins a free one; false if none is free.
    pub fn begin_segment(&mut self) -> bool {
        let Some(segment) = self.free.pop() else { return false };
        assert!(
            self.blocks[segment as usize].is_empty(),
            "free segment {segment} has blocks: they would be written over"
        );
        if let Some(full) = self.current.replace(Filling { segment, used_bytes: 0 }) {
            self.filled.push_back(full.segment);
        }
        self.check_segments();
        true
    }

    /// Frees a segment, if one was filled: with what was written into it.
    pub fn empty_one(&mut self, live: &LiveCounts) -> Option<(u32, Vec<BlockKey>)> {
        let at = self.filled.iter().position(|segment| live.is_dead(*segment)).unwrap_or(0);
        let segment = self.filled.remove(at)?;
        assert!(
            !self.free.contains(&segment),
            "segment {segment} is free already: two blocks would share its bytes"
        );
        self.free.push(segment);
        self.check_segments();
        Some((segment, std::mem::take(&mut self.blocks[segment as usize])))
    }

    fn check_segments(&self) {
        let found = self.free.len() + self.filled.len() + usize::from(self.current.is_some());
        let expected = self.layout.segments_count as usize;
        assert_eq!(
            found, expected,
            "each segment is free, filled or being filled: a lost one is never used again"
        );
    }

    /// All segments with blocks, oldest first.
    pub fn in_use(&self) -> Vec<u32> {
        self.filled.iter().copied().chain(self.current.iter().map(|filling| filling.segment)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockOffset, FileId};

    #[test]
    fn layouts_stay_inside_the_file() {
        for size in [0, 1 << 20, 10 << 20, 1 << 30, 1 << 40] {
            let layout = Layout::of(size);
            assert!(
                layout.file_len() <= size.max(FIRST_SEGMENT + 2 * SEGMENT_BYTES_MIN),
                "{size}: {layout:?}"
            );
            assert!(layout.file_len() + layout.segment_bytes + FIRST_SEGMENT >= size, "{size}: {layout:?}");
            let last = layout.start_of(layout.segments_count - 1);
            assert_eq!(layout.segment_of(last, layout.segment_bytes as u32), Some(layout.segments_count - 1));
            assert_eq!(layout.segment_of(last + 1, layout.segment_bytes as u32), None);
            assert_eq!(layout.segment_of(layout.file_len(), 1), None);
            assert_eq!(layout.segment_of(100, 1), None);
        }
    }

    #[test]
    fn fills_frees_the_oldest_and_the_dead_first() {
        let layout = Layout { segment_bytes: 100, segments_count: 3 };
        let (mut space, live) = (Space::new(layout), LiveCounts::new(layout));
        let key = |offset| BlockKey { file: FileId::new(1), offset: BlockOffset::new(offset) };
        assert_eq!(space.take(key(0), 10), None, "no segment has begun");
        for segment in 0..3 {
            assert!(space.begin_segment());
            let start = layout.start_of(segment);
            assert_eq!(space.take(key(u64::from(segment)), 60), Some(start));
            assert_eq!(space.take(key(u64::from(segment) + 10), 40), Some(start + 60));
            assert_eq!(space.take(key(9), 1), None);
            live.add(segment);
        }
        assert!(!space.begin_segment());
        assert_eq!(space.empty_one(&live), Some((0, vec![key(0), key(10)])));
        assert!(space.begin_segment());
        live.remove(2);
        assert_eq!(space.empty_one(&live), Some((2, vec![key(2), key(12)])), "nobody wants it");
        assert_eq!(space.in_use(), [1, 0]);
        let restored = Space::restore(layout, vec![(1, vec![key(1)]), (0, vec![])]);
        assert_eq!((restored.in_use(), restored.free), (vec![1, 0], vec![2]));
    }
}
