//! Read points that somebody will come back with.
//!
//! A scanner that stays open between calls need not hold on to the segments and files that it began with: it may let
//! go of them and open what is there later, at the read point that it has. For that its read point is held here, and
//! flushes, compactions in memory and compactions of files keep whatever it may still see: every cell above the lowest
//! of these points stays, and what is up to it is judged as if nothing had been written since (HBase:
//! `HRegion.getSmallestReadPoint` and `StoreScanner.updateReaders`).
//!
//! A client that repeats an Increment or Append comes back, too: for the cells with the sequence id of its first call. So the
//! read points of recent operations with a nonce are held for a while. HBase does not do that, and may answer with nothing.
//!
//! *Thread safety*: all verbs from any thread. A point is taken and held under one lock. So who asks for the lowest
//! before the point was held knows that the point is not below what was published then; all that a flush or compaction
//! goes through was published before it asks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{ReadPoint, SeqId};
use halcyon_env::{Mutex, invariant};

/// So long what an operation with a nonce has answered can be read: twice as long as HBase's clients wait for a call before they
/// repeat it (`hbase.rpc.timeout`).
pub(crate) const ANSWER_AGE: Duration = Duration::from_secs(120);
/// Answers that are kept at most, about; the oldest go first. A counter of one column keeps about 100 bytes for each.
const ANSWERS_MAX: usize = 1 << 17;
/// Operations within so short a time are one group.
const GROUP_AGE: Duration = Duration::from_secs(1);
const GROUP_MAX: usize = ANSWERS_MAX / 16;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct ReadPoints {
    /// How often each point is held.
    held: Mutex<BTreeMap<ReadPoint, usize>>,
    /// Oldest first.
    answers: Mutex<VecDeque<Answers>>,
}

/// Operations with a nonce that were done at about the same time.
struct Answers {
    began_ns: u64,
    oldest: SeqId,
    count: usize,
}

/// A read point that is respected as long as this lives.
pub(crate) struct HeldReadPoint {
    points: Arc<ReadPoints>,
    point: ReadPoint,
}

impl ReadPoints {
    /// Takes a read point and holds it.
    pub fn hold(self: &Arc<Self>, read_point: impl FnOnce() -> ReadPoint) -> HeldReadPoint {
        let mut held = self.held.lock();
        let point = read_point();
        *held.entry(point).or_default() += 1;
        invariant!(
            held.values().all(|&count| count > 0),
            "a point that nobody holds is kept: flushes would keep everything above it"
        );
        HeldReadPoint { points: self.clone(), point }
    }

    /// An operation with a nonce has this sequence id. To be told before its cells are in the memstore.
    pub fn answered(&self, seq: SeqId, now_ns: u64) {
        let mut answers = self.answers.lock();
        let is_open = |last: &&mut Answers| {
            last.count < GROUP_MAX && now_ns < last.began_ns.saturating_add(GROUP_AGE.as_nanos() as u64)
        };
        if let Some(last) = answers.back_mut().filter(is_open) {
            last.oldest = last.oldest.min(seq);
            last.count += 1;
            return;
        }
        answers.push_back(Answers { began_ns: now_ns, oldest: seq, count: 1 });
        let mut count: usize = answers.iter().map(|group| group.count).sum();
        while count > ANSWERS_MAX {
            count -= answers.pop_front().map_or(count, |oldest| oldest.count);
        }
    }

    /// Cells above it are to be kept whatever hides them; [`ReadPoint::NEWEST`] if nobody holds a point. To be asked after what is
    /// to be gone through was published.
    pub fn keep_above(&self, now_ns: u64) -> ReadPoint {
        let answered = {
            let mut answers = self.answers.lock();
            let age_max_ns = (ANSWER_AGE + GROUP_AGE).as_nanos() as u64;
            while answers.front().is_some_and(|oldest| oldest.began_ns.saturating_add(age_max_ns) <= now_ns) {
                answers.pop_front();
            }
            answers.iter().map(|group| ReadPoint::at(group.oldest)).min().unwrap_or(ReadPoint::NEWEST)
        };
        let held = self.held.lock().first_key_value().map_or(ReadPoint::NEWEST, |(&point, _)| point);
        held.min(answered)
    }
}

impl HeldReadPoint {
    pub fn point(&self) -> ReadPoint {
        self.point
    }
}

impl Drop for HeldReadPoint {
    fn drop(&mut self) {
        let mut held = self.points.held.lock();
        let count = held.get_mut(&self.point).expect("a point stays until its last holder has gone");
        *count -= 1; // a count of 0 is not kept, so this one is at least 1
        if *count == 0 {
            held.remove(&self.point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_point_counts_until_its_last_holder_has_gone() {
        let points = Arc::new(ReadPoints::default());
        assert_eq!(points.keep_above(0), ReadPoint::NEWEST);
        let (first, second) = (points.hold(|| ReadPoint::new(5)), points.hold(|| ReadPoint::new(5)));
        let later = points.hold(|| ReadPoint::new(9));
        assert_eq!((first.point().get(), points.keep_above(0).get()), (5, 5));
        drop(first);
        assert_eq!(points.keep_above(0).get(), 5);
        drop(second);
        assert_eq!(points.keep_above(0).get(), 9);
        drop(later);
        assert_eq!(points.keep_above(0), ReadPoint::NEWEST);
    }

    #[test]
    fn answers_are_kept_for_a_while_and_not_too_many_of_them() {
        let (points, second) = (ReadPoints::default(), 1_000_000_000);
        points.answered(SeqId::new(8), 0);
        points.answered(SeqId::new(7), second / 2);
        points.answered(SeqId::new(9), 5 * second);
        assert_eq!(points.keep_above(120 * second).get(), 7);
        assert_eq!(points.keep_above(121 * second).get(), 9);
        assert_eq!(points.keep_above(126 * second), ReadPoint::NEWEST);
        let count = 3 * ANSWERS_MAX as u64;
        (1..=count).for_each(|seq| points.answered(SeqId::new(seq), 200 * second));
        let kept = count - points.keep_above(200 * second).get();
        assert!((ANSWERS_MAX - GROUP_MAX..=ANSWERS_MAX).contains(&(kept as usize)), "{kept}");
    }
}
