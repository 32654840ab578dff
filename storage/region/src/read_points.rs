//! Read points that somebody will come back with.
//!
//! A scanner that stays open between calls need not hold on to the segments and files that it began with: it may let
//! go of them and open what is there later, at the read point that it has. For that its read point is held here, and
//! flushes, compactions in memory and compactions of files keep whatever it may still see: every cell above the lowest
//! of these points stays, and what is up to it is judged as if nothing had been written since (HBase:
//! `HRegion.getSmallestReadPoint` and `StoreScanner.updateReaders`).
//!
//! A client whose scanner is gone, because its connection broke or its region was closed, asks for the rows behind its
//! last one and names the point that it had (HBase: `ScanRequest.mvcc_read_point`). Nobody may have held that point
//! meanwhile, so it is a wish: it is held again if no rewrite has begun since that leaves out what it could see, and
//! otherwise the present point is held. A scan that goes on at a later point shows newer versions. One that went on at
//! a point of which versions are gone would miss rows that were there all the time.
//!
//! *Thread safety*: all verbs from any thread. A point is taken and held under one lock. So who asks for the lowest
//! before the point was held knows that the point is not below what was published then; all that a flush or compaction
//! goes through was published before it asks. An older point is held again only above what those who have asked leave
//! out.

use std::collections::BTreeMap;
use std::sync::Arc;

use halcyon_cell::{ReadPoint, SeqId};
use halcyon_env::{Mutex, invariant};

/// See the head of the file.
#[derive(Default)]
pub(crate) struct ReadPoints {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How often each point is held.
    held: BTreeMap<ReadPoint, usize>,
    /// Only to points that do not see this may cells be missing, or be about to go.
    left_out_up_to: SeqId,
}

impl State {
    fn hold(&mut self, point: ReadPoint) {
        *self.held.entry(point).or_default() += 1;
        invariant!(
            self.held.values().all(|&count| count > 0),
            "a point that nobody holds is kept: flushes would keep everything above it"
        );
    }

    fn lowest(&self) -> ReadPoint {
        self.held.first_key_value().map_or(ReadPoint::NEWEST, |(&point, _)| point)
    }
}

/// A read point that is respected as long as this lives.
pub(crate) struct HeldReadPoint {
    points: Arc<ReadPoints>,
    point: ReadPoint,
}

impl ReadPoints {
    /// Takes a read point and holds it.
    pub fn hold(self: &Arc<Self>, read_point: impl FnOnce() -> ReadPoint) -> HeldReadPoint {
        let mut state = self.state.lock();
        let point = read_point();
        state.hold(point);
        HeldReadPoint { points: self.clone(), point }
    }

    /// Holds a point again that nobody may have held meanwhile; if what it could see is not all there, or not published
    /// here, `present` instead.
    pub fn hold_again(
        self: &Arc<Self>,
        wish: ReadPoint,
        present: impl FnOnce() -> ReadPoint,
    ) -> HeldReadPoint {
        let mut state = self.state.lock();
        let present = present();
        let point = if wish.sees(state.left_out_up_to) && wish <= present { wish } else { present };
        state.hold(point);
        HeldReadPoint { points: self.clone(), point }
    }

    /// The lowest point that is held; [`ReadPoint::NEWEST`] if none is.
    pub fn lowest(&self) -> ReadPoint {
        self.state.lock().lowest()
    }

    /// For a rewrite of cells up to `up_to` that leaves out what nobody sees: cells above the returned point are to be kept
    /// whatever hides them; [`ReadPoint::NEWEST`] if nobody holds a point. To be asked after what is to be gone through was
    /// published, and before anything is left out.
    pub fn keep_above(&self, up_to: SeqId) -> ReadPoint {
        let mut state = self.state.lock();
        let lowest = state.lowest();
        state.left_out_up_to = state.left_out_up_to.max(up_to.min(SeqId::new(lowest.get())));
        lowest
    }

    /// Nothing is known of what earlier points could see: the region was opened, or its files were exchanged by others.
    pub fn begin_at(&self, point: ReadPoint) {
        let mut state = self.state.lock();
        state.left_out_up_to = state.left_out_up_to.max(SeqId::new(point.get()));
    }
}

impl HeldReadPoint {
    pub fn point(&self) -> ReadPoint {
        self.point
    }
}

impl Drop for HeldReadPoint {
    fn drop(&mut self) {
        let held = &mut self.points.state.lock().held;
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
        assert_eq!(points.lowest(), ReadPoint::NEWEST);
        let (first, second) = (points.hold(|| ReadPoint::new(5)), points.hold(|| ReadPoint::new(5)));
        let later = points.hold(|| ReadPoint::new(9));
        assert_eq!((first.point().get(), points.lowest().get()), (5, 5));
        drop(first);
        assert_eq!(points.lowest().get(), 5);
        drop(second);
        assert_eq!(points.lowest().get(), 9);
        drop(later);
        assert_eq!(points.lowest(), ReadPoint::NEWEST);
    }

    #[test]
    fn a_point_is_held_again_unless_a_rewrite_may_leave_out_what_it_sees() {
        let points = Arc::new(ReadPoints::default());
        let again = |wish, present| {
            let held = points.hold_again(ReadPoint::new(wish), || ReadPoint::new(present));
            held.point().get()
        };
        points.begin_at(ReadPoint::new(10));
        assert_eq!((again(9, 20), again(10, 20)), (20, 10), "what came before the opening is not known");
        assert_eq!(again(21, 20), 20, "what is not published is not read");

        points.keep_above(SeqId::new(15));
        assert_eq!((again(14, 20), again(15, 20)), (20, 15));

        let held = points.hold(|| ReadPoint::new(17));
        points.keep_above(SeqId::new(20));
        assert_eq!((again(16, 20), again(17, 20), again(18, 20)), (20, 17, 18), "kept for another scanner");
        drop(held);
        points.keep_above(SeqId::new(20));
        assert_eq!((again(19, 20), again(20, 20)), (20, 20));
    }
}
