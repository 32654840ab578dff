//! Room for what comes from clients, kept before it is there: frames that are arriving, and cells that are unpacked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::wanting::IDLE_SHARE;
use super::{ARRIVING_SHARE, BYTES_SHARES_SUM, CallClass, QueueLimits, Queues, Share, take_off};
use crate::peers::{Peer, fair_max};

/// With a batch of replication that is larger than its class, all requests have at most this part of their memory.
const BORROWED_PART: usize = 4;

/// Room in the memory for requests, until dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    queues: Arc<Queues>,
    peer: Arc<Peer>,
    /// `None`: of small frames, whose calls are not looked at until they are whole.
    class: Option<CallClass>,
    bytes: usize,
    /// Bytes that the call it is for holds already while it waits.
    beside: usize,
    /// It was more than its class may hold and was let in because nothing else was there: the rest of it is, too.
    was_alone: bool,
}

impl QueueLimits {
    /// What small frames that are arriving may hold.
    pub fn arriving_bytes_max(&self) -> usize {
        self.request_bytes_max / BYTES_SHARES_SUM * ARRIVING_SHARE
    }
}

impl Queues {
    /// Bytes kept for small frames of which only a part is here.
    pub fn arriving_bytes(&self) -> usize {
        self.arriving.load(Ordering::Relaxed)
    }

    /// Keeps room for a small frame of which only a part is here; `None` if its peer has all that it may have.
    pub(crate) fn charge_arriving(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        share: f64,
        bytes: usize,
    ) -> Option<Charge> {
        let (all, own) = (&self.arriving, &peer.arriving_bytes);
        let max = self.limits.arriving_bytes_max();
        let (all_before, own_before) =
            (all.fetch_add(bytes, Ordering::Relaxed), own.fetch_add(bytes, Ordering::Relaxed));
        let (queues, peer) = (Arc::clone(self), Arc::clone(peer));
        let charge = Charge { queues, peer, class: None, bytes, beside: 0, was_alone: false };
        // Taken back by the drop.
        let others = all_before.saturating_sub(own_before);
        (own_before.saturating_add(bytes) <= fair_max(max, others, share)).then_some(charge)
    }

    /// Keeps room for a frame that is arriving, or for what is made of one, in the part of its class; `None` if there
    /// is none. What is larger than its class may hold gets room while no other request is counted. The first of a peer
    /// may have all that is left of its class but a little, the others what is left of the peer's share.
    pub(crate) fn charge(
        self: &Arc<Self>,
        class: CallClass,
        peer: &Arc<Peer>,
        share: Share,
        bytes: usize,
    ) -> Option<Charge> {
        self.charge_beside(class, peer, share, bytes, 0)
    }

    /// As [`Queues::charge`], for a call that waits and holds `beside` bytes already.
    pub(crate) fn charge_beside(
        self: &Arc<Self>,
        class: CallClass,
        peer: &Arc<Peer>,
        share: Share,
        bytes: usize,
        beside: usize,
    ) -> Option<Charge> {
        let (queues, peer) = (Arc::clone(self), Arc::clone(peer));
        let mut charge = Charge { queues, peer, class: Some(class), bytes: 0, beside, was_alone: false };
        charge.grow(share, bytes).then_some(charge)
    }

    /// Whether so much of the memory for requests is taken that frames which do not arrive have to go.
    pub(crate) fn is_crowded_by_requests(&self) -> bool {
        let of_class = |class: CallClass| self.held[class.index()].bytes.load(Ordering::Relaxed);
        self.arriving_bytes() > self.limits.arriving_bytes_max() / 2
            || CallClass::ALL.iter().any(|class| of_class(*class) > self.limits.class_bytes_max(*class) / 2)
    }
}

impl Charge {
    /// As many bytes more; false, with nothing changed, if there is no room for them. What a call needs later is judged
    /// as if it had been asked for at once, so a call that nothing else is beside never stands in its own way.
    pub fn grow(&mut self, share: Share, bytes: usize) -> bool {
        let queues = &self.queues;
        let class = self.class.expect("only the charge of a class grows");
        let others_before = queues.class_bytes() - self.bytes.min(queues.class_bytes());
        let (all, own) = (&queues.held[class.index()].bytes, &self.peer.class_bytes[class.index()]);
        let all_before = all.fetch_add(bytes, Ordering::Relaxed);
        let own_before = own.fetch_add(bytes, Ordering::Relaxed);
        let of_class = queues.limits.class_bytes_max(class);
        let is_alone = self.was_alone || others_before <= self.beside;
        let all_but_little = fair_max(of_class, 0, IDLE_SHARE);
        let is_first = own_before == self.bytes && all_before.saturating_add(bytes) <= all_but_little;
        // Batches of replication are often larger than their class, and the same batch comes again until it is taken: on a
        // server that is never idle it would come for ever.
        let is_of_idle = class == CallClass::Replication
            && own_before == self.bytes
            && others_before.saturating_add(self.bytes).saturating_add(bytes)
                <= queues.limits.request_bytes_max / BORROWED_PART
            && !queues.is_wanted_beside(class, &self.peer, share);
        let fits = is_alone || is_first || is_of_idle || {
            // What the peer has waiting is not its neighbours'. Counters that are read one after the other may disagree for
            // a moment.
            let waiting = self.peer.waiting_bytes[class.index()].load(Ordering::Relaxed);
            let others = all_before.saturating_sub(own_before.saturating_add(waiting));
            let own = own_before.saturating_add(bytes);
            let is_within = |(of_peer, of_both): (f64, f64)| {
                own <= fair_max(of_class, others, of_peer)
                    && own.saturating_add(waiting) <= fair_max(of_class, others, of_both)
            };
            is_within(share.of_peer(true))
                || (!queues.is_wanted_beside(class, &self.peer, share) && is_within(share.of_peer(false)))
        };
        if fits {
            self.bytes += bytes;
            self.was_alone = is_alone && self.bytes > all_but_little;
        } else {
            give_back(all, own, bytes);
        }
        fits
    }

    /// Gives back all but `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        let class = self.class.expect("only the charge of a class shrinks").index();
        let rest = self.bytes.checked_sub(bytes).expect("less is left than there was");
        give_back(&self.queues.held[class].bytes, &self.peer.class_bytes[class], rest);
        self.bytes = bytes;
    }

    /// The call it is for waits now, and is counted with as many bytes for itself.
    pub fn waits_beside(&mut self, bytes: usize) {
        self.beside = bytes;
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

fn give_back(all: &AtomicUsize, own: &AtomicUsize, bytes: usize) {
    take_off(all, bytes, "bytes of requests that are arriving");
    take_off(own, bytes, "bytes of a peer's requests that are arriving");
}

impl Drop for Charge {
    fn drop(&mut self) {
        let (queues, peer) = (&self.queues, &self.peer);
        match self.class {
            None => give_back(&queues.arriving, &peer.arriving_bytes, self.bytes),
            Some(class) => {
                let index = class.index();
                give_back(&queues.held[index].bytes, &peer.class_bytes[index], self.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::CALL_BYTES;

    const ALL: Share = Share { peer: 1.0, now_ns: 0 };
    const HALF: Share = Share { peer: 0.5, now_ns: 0 };

    fn peer() -> Arc<Peer> {
        Arc::new(Peer::default())
    }

    #[test]
    fn a_frame_larger_than_its_class_gets_room_alone() {
        let queues = Queues::new(QueueLimits::new(2, 1600));
        let charge = |class, bytes| queues.charge(class, &peer(), ALL, bytes);
        let large = charge(CallClass::Read, 1500).expect("alone");
        assert!(charge(CallClass::Read, 1).is_none());
        assert!(charge(CallClass::Meta, 101).is_none());
        let meta = charge(CallClass::Meta, 100).expect("within its share");
        drop(large);
        assert!(charge(CallClass::Read, 1500).is_none());
        assert!(charge(CallClass::Read, 200).is_some());
        drop(meta);
        assert_eq!(queues.request_bytes(), 0, "all is given back");
    }

    /// One that sends beginnings of frames and never an end must not keep others from sending.
    #[test]
    fn a_peer_leaves_room_for_others() {
        const MAX: usize = 16 << 20;
        let queues = Queues::new(QueueLimits::new(2, MAX));
        let (hostile, honest) = (peer(), peer());
        queues.note_refused(CallClass::Read, &peer(), 9, 0);
        for small in [true, false] {
            let charge = |peer: &Arc<Peer>| match small {
                true => queues.charge_arriving(peer, 0.5, 64 << 10),
                false => queues.charge(CallClass::Read, peer, HALF, 64 << 10),
            };
            let max = if small { MAX / 16 } else { MAX / 8 };
            let held: Vec<Charge> = std::iter::from_fn(|| charge(&hostile)).collect();
            assert_eq!(held.len() * (64 << 10), max / 2);
            let others: Vec<Charge> = std::iter::from_fn(|| charge(&honest)).collect();
            assert_eq!(others.len() * (64 << 10), max / 4, "half of what is left");
            assert!(queues.is_crowded_by_requests());
            drop((held, others));
            assert_eq!((queues.request_bytes(), queues.arriving_bytes()), (0, 0));
            assert!(!queues.is_crowded_by_requests());
        }
        assert_eq!(hostile.arriving_bytes.load(Ordering::Relaxed), 0);
    }

    /// A batch of replication had room for its message and then none for its cells, each time it was sent again.
    #[test]
    fn a_call_that_is_alone_may_grow() {
        let queues = Queues::new(QueueLimits::new(2, 1600));
        let (one, other) = (peer(), peer());
        let mut call = queues.charge(CallClass::Replication, &one, HALF, 90).expect("the first");
        assert!(call.grow(HALF, 10), "all of its class");
        assert!(call.grow(HALF, 900), "and more, as nothing else is there");
        let meta = queues.charge(CallClass::Meta, &other, HALF, 10).expect("within its share");
        assert!(call.grow(HALF, 100), "what has begun alone is not stopped half-way");
        assert!(queues.charge(CallClass::Replication, &other, HALF, 1).is_none());
        call.shrink(90);
        assert_eq!((call.bytes(), queues.request_bytes()), (90, 100), "what it does not need is given back");
        drop((call, meta));
        assert_eq!(queues.request_bytes(), 0);
        assert_eq!(one.class_bytes[CallClass::Replication.index()].load(Ordering::Relaxed), 0);
    }

    /// What a loader had waiting was counted as if it were another's, and it could have little beside it.
    #[test]
    fn what_a_peer_has_waiting_is_not_another_s() {
        let queues = Queues::new(QueueLimits::new(1 << 20, 16 << 20));
        let (loader, other) = (peer(), peer());
        let max = queues.limits().class_bytes_max(CallClass::Write);
        let frame_bytes = max / 4 - CALL_BYTES;
        queues.note_refused(CallClass::Write, &other, 2, 0);
        queues.begin_wait(CallClass::Write, frame_bytes, &loader);
        let held: Vec<Charge> =
            std::iter::from_fn(|| queues.charge(CallClass::Write, &loader, HALF, max / 64)).collect();
        assert_eq!(held.len(), 32, "half of the class, as if nothing waited");
        assert!(queues.charge(CallClass::Write, &other, HALF, max / 8).is_some(), "something is left");
        queues.end_wait(CallClass::Write, frame_bytes, &loader);
        queues.begin_wait(CallClass::Write, frame_bytes, &other);
        let more = queues.charge(CallClass::Write, &loader, HALF, max / 64);
        assert!(more.is_none(), "what another has waiting counts");
        queues.end_wait(CallClass::Write, frame_bytes, &other);
        drop(held);
        assert_eq!(queues.request_bytes(), 0);
    }

    /// A batch of replication found room on an idle server only, and a server with clients is never idle.
    #[test]
    fn a_batch_of_replication_has_what_is_idle_of_other_classes() {
        let queues = Queues::new(QueueLimits::new(1 << 20, 16 << 20));
        let (source, other) = (peer(), peer());
        queues.begin_wait(CallClass::Write, (1 << 20) - CALL_BYTES, &other);
        let charge = |peer, bytes| queues.charge(CallClass::Replication, peer, HALF, bytes);
        assert!(charge(&source, 4 << 20).is_none(), "a quarter of all with what others have");
        let mut batch = charge(&source, 2 << 20).expect("the class has 1 MiB, and others leave more");
        assert!(batch.grow(HALF, 1 << 20) && !batch.grow(HALF, 1));
        assert!(charge(&source, 1).is_none(), "one at a time");
        drop(batch);
        assert!(
            queues.charge(CallClass::Scan, &source, HALF, 3 << 20).is_none(),
            "other classes have theirs"
        );
        queues.note_refused(CallClass::Replication, &other, 2, 0);
        assert!(charge(&source, 2 << 20).is_none(), "another source waits for the class");
        queues.end_wait(CallClass::Write, (1 << 20) - CALL_BYTES, &other);
        assert_eq!(queues.request_bytes(), 0);
    }

    #[test]
    fn the_first_frame_of_a_peer_may_have_what_is_left_of_its_class() {
        let queues = Queues::new(QueueLimits::new(2, 1600));
        let (one, other) = (peer(), peer());
        [&one, &other].into_iter().for_each(|peer| queues.note_refused(CallClass::Read, peer, 1, 0));
        let _waits = queues.charge(CallClass::Read, &other, HALF, 50).unwrap();
        let mut first = queues.charge(CallClass::Read, &one, HALF, 100).expect("more than its share");
        assert!(first.grow(HALF, 37), "also when it grows");
        assert!(!first.grow(HALF, 1), "a little is left for who comes next");
        assert!(queues.charge(CallClass::Read, &one, HALF, 1).is_none());
        assert!(queues.charge(CallClass::Read, &peer(), HALF, 1).is_some());
        assert_eq!((first.bytes(), queues.snapshot(CallClass::Read).request_bytes), (137, 187));
    }

    /// What a loader unpacks while nobody else wants the memory is limited by the memory.
    #[test]
    fn a_peer_that_is_alone_has_all_that_is_idle() {
        let queues = Queues::new(QueueLimits::new(1 << 20, 16 << 20));
        let (loader, other) = (peer(), peer());
        let max = queues.limits().class_bytes_max(CallClass::Write);
        let charge = |peer: &Arc<Peer>| queues.charge(CallClass::Write, peer, HALF, max / 64);
        let mut held: Vec<Charge> = std::iter::from_fn(|| charge(&loader)).collect();
        assert_eq!(held.len(), 60, "fifteen sixteenths");
        queues.note_refused(CallClass::Write, &loader, 1, 0);
        assert!(charge(&other).is_some(), "there is room for who comes next");
        queues.note_refused(CallClass::Write, &other, 2, 0);
        held.truncate(40);
        assert!(charge(&loader).is_none(), "it has more than its share of what another wants");
        held.truncate(20);
        assert!(charge(&loader).is_some());
    }
}
