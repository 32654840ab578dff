//! Read points that somebody will come back with.
//!
//! A scanner that stays open between calls need not hold on to the segments and files that it began with: it may let
//! go of them and open what is there later, at the read point that it has. For that its read point is held here, and
//! flushes, compactions in memory and compactions of files keep whatever it may still see: every cell above the lowest
//! of these points stays, and what is up to it is judged as if nothing had been written since (HBase:
//! `HRegion.getSmallestReadPoint` and `StoreScanner.updateReaders`).
//!
//! *Thread safety*: all verbs from any thread. A point is taken and held under one lock. So who asks for the lowest
//! before the point was held knows that the point is not below what was published then; all that a flush or compaction
//! goes through was published before it asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use halcyon_cell::ReadPoint;
use halcyon_env::{Mutex, invariant};

/// See the head of the file.
#[derive(Default)]
pub(crate) struct ReadPoints {
    /// How often each point is held.
    held: Mutex<BTreeMap<ReadPoint, usize>>,
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

    /// Cells above it are to be kept whatever hides them; [`ReadPoint::NEWEST`] if nobody holds a point. To be asked after what is
    /// to be gone through was published.
    pub fn keep_above(&self) -> ReadPoint {
        self.held.lock().first_key_value().map_or(ReadPoint::NEWEST, |(&point, _)| point)
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
        assert_eq!(points.keep_above(), ReadPoint::NEWEST);
        let (first, second) = (points.hold(|| ReadPoint::new(5)), points.hold(|| ReadPoint::new(5)));
        let later = points.hold(|| ReadPoint::new(9));
        assert_eq!((first.point().get(), points.keep_above().get()), (5, 5));
        drop(first);
        assert_eq!(points.keep_above().get(), 5);
        drop(second);
        assert_eq!(points.keep_above().get(), 9);
        drop(later);
        assert_eq!(points.keep_above(), ReadPoint::NEWEST);
    }
}
