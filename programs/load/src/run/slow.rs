use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Slow operations that are kept.
const KEPT_MAX: usize = 20_000;

/// An operation that took longer than was asked for. In order of latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlowOperation {
    pub latency_us: u64,
    /// When it should have begun, by the clock that all latencies are counted with.
    pub begin_ns: u64,
    /// Number of its kind.
    pub kind: usize,
}

/// The slowest operations, and how many others were too slow.
#[derive(Clone, Debug)]
pub struct Slow {
    /// The fastest of them on top.
    kept: BinaryHeap<Reverse<SlowOperation>>,
    kept_max: usize,
    left_out: u64,
}

impl Default for Slow {
    fn default() -> Slow {
        Slow { kept: BinaryHeap::new(), kept_max: KEPT_MAX, left_out: 0 }
    }
}

impl Slow {
    pub(super) fn push(&mut self, operation: SlowOperation) {
        if self.kept.len() < self.kept_max {
            self.kept.push(Reverse(operation));
            return;
        }
        self.left_out += 1;
        let mut fastest = self.kept.peek_mut().expect("there is room for more than none");
        if operation > fastest.0 {
            *fastest = Reverse(operation);
        }
    }

    pub(super) fn add(&mut self, other: &Slow) {
        self.left_out += other.left_out;
        other.kept.iter().for_each(|operation| self.push(operation.0));
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.left_out = 0;
    }

    /// Those that are kept, in the order in which they should have begun.
    pub fn in_order(&self) -> Vec<SlowOperation> {
        let mut operations: Vec<SlowOperation> = self.kept.iter().map(|operation| operation.0).collect();
        operations.sort_unstable_by_key(|operation| (operation.begin_ns, operation.latency_us));
        operations
    }

    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_are_kept_and_the_others_counted() {
        let operation = |latency_us| SlowOperation { latency_us, begin_ns: 1_000 - latency_us, kind: 0 };
        let mut slow = Slow { kept_max: 3, ..Slow::default() };
        [5, 1, 9].into_iter().for_each(|latency| slow.push(operation(latency)));
        let mut other = Slow { kept_max: 3, ..Slow::default() };
        [7, 2, 3, 4].into_iter().for_each(|latency| other.push(operation(latency)));
        slow.add(&other);
        let kept: Vec<u64> = slow.in_order().iter().map(|operation| operation.latency_us).collect();
        assert_eq!((kept, slow.left_out()), (vec![9, 7, 5], 4));
        slow.clear();
        assert_eq!((slow.in_order().len(), slow.left_out()), (0, 0));
    }
}
