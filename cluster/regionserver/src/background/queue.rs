//! Queues of regions that wait for a background thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halcyon_env::{Condvar, Mutex};

/// First in, first out; each region at most once. The region itself remembers that it waits.
pub(crate) struct RegionQueue<T> {
    regions: Mutex<VecDeque<Arc<T>>>,
    filled: Condvar,
    queued: fn(&T) -> &AtomicBool,
}

impl<T> RegionQueue<T> {
    pub(crate) fn new(queued: fn(&T) -> &AtomicBool) -> RegionQueue<T> {
        RegionQueue { regions: Mutex::default(), filled: Condvar::new(), queued }
    }

    /// Queues a region unless it is queued already. It counts as queued until its flag is cleared by whoever works on
    /// it.
    pub(crate) fn push(&self, region: &Arc<T>) {
        if (self.queued)(region).swap(true, Ordering::AcqRel) {
            return;
        }
        self.regions.lock().push_back(Arc::clone(region));
        self.filled.notify_one();
    }

    /// The next region; waits for one, at most `timeout`.
    pub(crate) fn pop(&self, timeout: Duration) -> Option<Arc<T>> {
        let mut regions = self.regions.lock();
        if regions.is_empty() {
            self.filled.wait_for(&mut regions, timeout);
        }
        regions.pop_front()
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.lock().len()
    }

    pub(crate) fn wake_all(&self) {
        self.filled.notify_all();
    }
}

/// Ordered by the number of store files that a region may still get before its flushes wait, fewest first; in the
/// order of arrival among equals.
pub(crate) struct CompactionQueue<T> {
    regions: Mutex<VecDeque<(i64, T)>>,
    filled: Condvar,
}

impl<T> Default for CompactionQueue<T> {
    fn default() -> CompactionQueue<T> {
        CompactionQueue { regions: Mutex::default(), filled: Condvar::new() }
    }
}

impl<T> CompactionQueue<T> {
    /// False if `count_max` regions wait already.
    #[must_use]
    pub(crate) fn push(&self, files_left: i64, region: T, count_max: usize) -> bool {
        let mut regions = self.regions.lock();
        if regions.len() >= count_max {
            return false;
        }
        let at = regions.partition_point(|(left, _)| *left <= files_left);
        regions.insert(at, (files_left, region));
        self.filled.notify_one();
        true
    }

    /// The next region; waits for one, at most `timeout`.
    pub(crate) fn pop(&self, timeout: Duration) -> Option<T> {
        let mut regions = self.regions.lock();
        if regions.is_empty() {
            self.filled.wait_for(&mut regions, timeout);
        }
        regions.pop_front().map(|(_, region)| region)
    }

    /// Empties the queue.
    pub(crate) fn take_all(&self) -> Vec<T> {
        self.regions.lock().drain(..).map(|(_, region)| region).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.lock().len()
    }

    pub(crate) fn wake_all(&self) {
        self.filled.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_WAIT: Duration = Duration::ZERO;

    #[test]
    fn a_region_waits_once_until_its_flag_is_cleared() {
        let queue = RegionQueue::<AtomicBool>::new(|flag| flag);
        let (first, second) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for region in [&first, &second, &first] {
            queue.push(region);
        }
        assert_eq!(queue.len(), 2);
        assert!(Arc::ptr_eq(&queue.pop(NO_WAIT).unwrap(), &first));
        queue.push(&first);
        assert_eq!(queue.len(), 1, "the flag is still set");
        first.store(false, Ordering::Release);
        queue.push(&first);
        assert!(Arc::ptr_eq(&queue.pop(NO_WAIT).unwrap(), &second));
        assert!(Arc::ptr_eq(&queue.pop(NO_WAIT).unwrap(), &first));
        assert!(queue.pop(NO_WAIT).is_none());
    }

    #[test]
    fn a_region_with_less_room_for_files_is_compacted_first() {
        let queue = CompactionQueue::default();
        for (files_left, region) in [(3, "a"), (-1, "b"), (3, "c"), (0, "d")] {
            assert!(queue.push(files_left, region, 4));
        }
        assert!(!queue.push(-9, "e", 4), "the queue is full");
        let order = [(); 4].map(|()| queue.pop(NO_WAIT).unwrap());
        assert_eq!(order, ["b", "d", "a", "c"]);
        assert!(queue.push(1, "f", 4));
        assert_eq!((queue.take_all(), queue.len()), (vec!["f"], 0));
    }
}
