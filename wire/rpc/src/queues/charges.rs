//! Room for what comes from clients, kept before it is there: frames that are arriving, and cells that are unpacked.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::wanting::IDLE_SHARE;
use super::{ARRIVING_SHARE, BYTES_SHARES_SUM, CallClass, QueueLimits, Queues, Share, take_off};
use crate::peers::{Peer, fair_max};

/// With a batch of replication that is larger than its class, all requests have at most this part of their memory.
const BORROWED_PART: usize = 4;

/// Room in the memory for requests, until dropped.
///
/// *Invariant*: `counted` is what [`Charge::counted_of`] says of `frame + bytes`. So much of it is on the accounts of its class and its
/// peer, and the rest on those for what is beyond: together they have `frame + bytes`.
#[derive(Debug)]
pub(crate) struct Charge {
    queues: Arc<Queues>,
    peer: Arc<Peer>,
    /// `None`: of small frames, whose calls are not looked at until they are whole.
    class: Option<CallClass>,
    bytes: usize,
    /// Bytes of the frame that its call came in, if that keeps its room.
    frame: usize,
    /// What of both counts in the class.
    counted: usize,
    /// Bytes that the call it is for holds already while it waits.
    beside: usize,
    /// It was more than its class may hold and was let in because nothing else was there: the rest of it is, too.
    was_alone: bool,
}

/// A frame of which only a part is here. Plain data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivingFrame {
    /// `None`: it is small, or its class is not known yet.
    pub class: Option<CallClass>,
    /// What it counts with where it is counted.
    pub counted_bytes: usize,
    /// `Clock::monotonic_ns` until when more of it has to be here if others need its room.
    pub deadline_ns: u64,
}

/// What was on the accounts of a class before something was added.
struct Before {
    /// What counted, of all peers.
    all: usize,
    /// What counted of its peer, and what that had in all.
    own_counted: usize,
    own: usize,
}

impl QueueLimits {
    /// What small frames that are arriving may hold.
    pub fn arriving_bytes_max(&self) -> usize {
        self.request_bytes_max / BYTES_SHARES_SUM * ARRIVING_SHARE
    }

    /// With how much one request counts in its class at most. The others have the rest of the class.
    fn counted_bytes_max(&self, class: CallClass) -> usize {
        self.class_bytes_max(class) / 4 * 3
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
        let mut charge = Charge::none(self, peer, None);
        (charge.bytes, charge.counted) = (bytes, bytes);
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
        let mut charge = Charge::none(self, peer, Some(class));
        charge.beside = beside;
        charge.grow(share, bytes).then_some(charge)
    }

    /// Whether others need the room of a frame that does not arrive: they have most of the part that it is counted in, or one of
    /// them found no room lately.
    pub(crate) fn is_needed_by_others(
        &self,
        frame: &ArrivingFrame,
        peer: &Peer,
        connection: u64,
        now_ns: u64,
    ) -> bool {
        let (all, max) = match frame.class {
            None => (self.arriving_bytes(), self.limits.arriving_bytes_max()),
            Some(class) => {
                let all = self.held[class.index()].bytes.load(Ordering::Relaxed);
                (all, self.limits.class_bytes_max(class))
            }
        };
        let is_wanted =
            |class: CallClass| self.held[class.index()].wanting.is_wanted_beside(peer.number, now_ns);
        all.saturating_sub(frame.counted_bytes) > max / 2
            || frame.class.is_some_and(is_wanted)
            || peer.wanting.is_wanted_beside(connection, now_ns)
    }

    /// Whether a request of this peer may have more than its class because nothing else is there. Who had that last is not the
    /// next one while another peer wants room.
    fn may_be_over(&self, class: CallClass, peer: &Peer, share: Share) -> bool {
        self.held[class.index()].last_over.load(Ordering::Relaxed) != peer.number
            || !self.is_wanted_beside(class, peer, share)
    }
}

impl Charge {
    fn none(queues: &Arc<Queues>, peer: &Arc<Peer>, class: Option<CallClass>) -> Charge {
        let (queues, peer) = (Arc::clone(queues), Arc::clone(peer));
        Charge { queues, peer, class, bytes: 0, frame: 0, counted: 0, beside: 0, was_alone: false }
    }

    /// With how much a request counts in its class that has `total` bytes here.
    fn counted_of(&self, class: CallClass, total: usize) -> usize {
        total.min(self.queues.limits.counted_bytes_max(class).saturating_sub(self.beside))
    }

    /// As many bytes more; false, with nothing changed, if there is no room for them. What a call needs later is judged
    /// as if it had been asked for at once, so a call that nothing else is beside never stands in its own way.
    pub fn grow(&mut self, share: Share, bytes: usize) -> bool {
        let queues = &self.queues;
        let class = self.class.expect("only the charge of a class grows");
        let (limits, of_class) = (&queues.limits, queues.limits.class_bytes_max(class));
        let had = self.total();
        let wanted = had + bytes;
        let counted = self.counted_of(class, wanted);
        let before = self.put_on(class, counted - self.counted, bytes);
        let others_bytes = queues.class_bytes().saturating_sub(wanted);
        let all_but_little = fair_max(of_class, 0, IDLE_SHARE);
        let is_first = before.own == had && before.all - self.counted + wanted <= all_but_little;
        let is_alone = self.was_alone
            || (others_bytes <= self.beside && (is_first || queues.may_be_over(class, &self.peer, share)));
        // Batches of replication are often larger than their class, and the same batch comes again until it is taken: on a
        // server that is never idle it would come for ever.
        let is_of_idle = class == CallClass::Replication
            && before.own == had
            && others_bytes.saturating_add(wanted) <= limits.request_bytes_max / BORROWED_PART
            && !queues.is_wanted_beside(class, &self.peer, share);
        let fits = is_alone || is_first || is_of_idle || {
            // What the peer has waiting is not its neighbours'. Counters that are read one after the other may disagree for
            // a moment.
            let waiting = self.peer.waiting_bytes[class.index()].load(Ordering::Relaxed);
            let others = before.all.saturating_sub(before.own_counted.saturating_add(waiting));
            let own = before.own.saturating_add(bytes);
            let is_within = |(of_peer, of_both): (f64, f64)| {
                own <= fair_max(of_class, others, of_peer)
                    && own.saturating_add(waiting) <= fair_max(of_class, others, of_both)
            };
            is_within(share.of_peer(true))
                || (!queues.is_wanted_beside(class, &self.peer, share) && is_within(share.of_peer(false)))
        };
        if !fits {
            self.take_off(class, counted - self.counted, bytes);
            return false;
        }
        (self.bytes, self.counted) = (self.bytes + bytes, counted);
        self.was_alone = is_alone && wanted > all_but_little;
        if self.was_alone {
            queues.held[class.index()].last_over.store(self.peer.number, Ordering::Relaxed);
        }
        true
    }

    /// The frame that it is for is whole. One that was let in because nothing else was there keeps its room until its call is
    /// answered; the room of any other is given back.
    pub fn arrived(mut self) -> Option<Charge> {
        assert!(self.frame == 0, "a frame arrives once");
        self.frame = std::mem::take(&mut self.bytes);
        self.was_alone.then_some(self)
    }

    /// Gives back all but `bytes`; of the frame nothing.
    pub fn shrink(&mut self, bytes: usize) {
        let rest = self.bytes.checked_sub(bytes).expect("less is left than there was");
        self.bytes = bytes;
        self.settle(rest);
    }

    /// The call it is for waits now, and is counted with as many bytes for itself.
    pub fn waits_beside(&mut self, bytes: usize) {
        self.beside = bytes;
        self.settle(0);
    }

    /// Brings the accounts to what it has after `less` bytes were given back, and to what counts of it in its class now.
    fn settle(&mut self, less: usize) {
        let class = self.class.expect("only the charge of a class changes");
        let counted = self.counted_of(class, self.total());
        if less == 0 && counted == self.counted {
            return;
        }
        let not_any_more = self.counted.checked_sub(counted).expect("not more counts than before");
        let bytes = self.total() - counted; // beyond the class, now
        let bytes_before = self.total() + less - self.counted;
        if bytes > bytes_before {
            self.put_on(class, 0, bytes - bytes_before);
            self.take_off(class, not_any_more, not_any_more);
        } else {
            self.take_off(class, not_any_more, not_any_more + bytes_before - bytes);
        }
        self.counted = counted;
    }

    /// What it has without the frame.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it has in all.
    pub fn total(&self) -> usize {
        self.frame + self.bytes
    }

    /// With how much it counts where it is counted.
    pub fn counted(&self) -> usize {
        self.counted
    }

    /// Adds so many bytes, of which `counted` count in the class.
    fn put_on(&self, class: CallClass, counted: usize, bytes: usize) -> Before {
        let beyond = bytes.checked_sub(counted).expect("not more counts than there is");
        let (queues, peer, at) = (&self.queues, &self.peer, class.index());
        queues.beyond.fetch_add(beyond, Ordering::Relaxed);
        let own_beyond = peer.beyond_bytes[at].fetch_add(beyond, Ordering::Relaxed);
        let own_counted = peer.class_bytes[at].fetch_add(counted, Ordering::Relaxed);
        let all = queues.held[at].bytes.fetch_add(counted, Ordering::Relaxed);
        Before { all, own_counted, own: own_counted + own_beyond }
    }

    fn take_off(&self, class: CallClass, counted: usize, bytes: usize) {
        let (queues, peer, at) = (&self.queues, &self.peer, class.index());
        let beyond = bytes.checked_sub(counted).expect("not more counts than there is");
        take_off(&queues.held[at].bytes, counted, "bytes of requests that are arriving");
        take_off(&peer.class_bytes[at], counted, "bytes of a peer's requests that are arriving");
        take_off(&queues.beyond, beyond, "bytes beyond the classes");
        take_off(&peer.beyond_bytes[at], beyond, "bytes of a peer beyond a class");
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        match self.class {
            None => {
                take_off(&self.queues.arriving, self.bytes, "bytes of small requests that are arriving");
                take_off(&self.peer.arriving_bytes, self.bytes, "bytes of a peer's small requests");
            }
            Some(class) => self.take_off(class, self.counted, self.total()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::queues::{Asker, CALL_BYTES, OwnWaiting};

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
        let other = charge(CallClass::Read, 50).expect("a quarter of the class is there for others");
        assert!(charge(CallClass::Read, 1).is_none());
        assert!(charge(CallClass::Meta, 101).is_none());
        let meta = charge(CallClass::Meta, 100).expect("within its share");
        assert_eq!((queues.request_bytes(), queues.snapshot(CallClass::Read).request_bytes), (1650, 200));
        drop((large, other));
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
            let class = (!small).then_some(CallClass::Read);
            let frame = ArrivingFrame { class, counted_bytes: 64 << 10, deadline_ns: 0 };
            let has_to_go = || queues.is_needed_by_others(&frame, &Peer::default(), 1, u64::MAX);
            assert!(has_to_go(), "others have most of it");
            drop((held, others));
            assert_eq!((queues.request_bytes(), queues.arriving_bytes()), (0, 0));
            assert!(!has_to_go());
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
        assert!(queues.charge(CallClass::Replication, &other, HALF, 24).is_none());
        assert!(queues.charge(CallClass::Replication, &other, HALF, 23).is_some(), "nearly all that is left");
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

    /// A frame that was larger than its class had all of it, and the part of every other client, until its call was answered. If it
    /// never came to its end, nobody had a place for minutes.
    #[test]
    fn others_have_a_part_of_the_class_beside_a_very_large_request() {
        let queues = Queues::new(QueueLimits::new(1 << 20, 16 << 20));
        let (hostile, honest) = (peer(), peer());
        let class = CallClass::Write;
        let max = queues.limits().class_bytes_max(class);
        let frame = queues.charge(class, &hostile, HALF, 15 << 20).expect("alone");
        assert_eq!(frame.counted(), max / 4 * 3);
        assert!(queues.charge(class, &hostile, HALF, 1).is_none(), "one at a time");
        let fits = |bytes| queues.charge(class, &honest, HALF, bytes);
        drop(fits(max / 32 * 7).expect("nearly a quarter, while nobody else wants it"));
        assert!(queues.charge(class, &honest, HALF, 15 << 20).is_none(), "it is not alone");
        let mut call = frame.arrived().expect("its call keeps the room");
        assert!(call.grow(HALF, 9 << 20), "its message and cells have room, too");
        call.waits_beside(CALL_BYTES);
        queues.begin_wait(class, 0, &hostile);
        assert_eq!((call.bytes(), call.total()), (9 << 20, 24 << 20));
        assert_eq!(queues.snapshot(class).request_bytes, max / 4 * 3, "its message counts no more");
        let asker = Asker { own: &OwnWaiting::default(), connection: 7, peer: &honest, share: HALF };
        assert!(!queues.is_full(class, &asker), "calls of others are carried out");
        assert!(fits(max / 8).is_some());
        queues.end_wait(class, 0, &hostile);
        drop(call);
        assert_eq!((queues.request_bytes(), queues.beyond.load(Ordering::Relaxed)), (0, 0));
        // It is not the next one again while another one waits for a place.
        let large = |peer| queues.charge(class, peer, HALF, 15 << 20);
        queues.note_refused(class, &honest, 7, 0);
        assert!(large(&hostile).is_none());
        drop(large(&honest).expect("who has waited"));
        assert!(large(&hostile).is_some());
    }

    /// Whatever is charged, grows, shrinks, waits and goes, in whatever order: the accounts have what the charges say.
    #[test]
    fn accounts_are_the_sum_of_the_charges() {
        let queues = Queues::new(QueueLimits::new(1 << 20, 1 << 20));
        let peers = [peer(), peer(), peer()];
        let mut charges: Vec<(usize, Charge)> = Vec::new();
        let mut state = 7_u64;
        let mut below = |max: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % max
        };
        for round in 0..3_000 {
            let class = CallClass::ALL[below(CallClass::COUNT)];
            let share = Share { peer: [0.5, 1.0][below(2)], now_ns: round };
            let bytes = [below(100), below(40_000), below(2 << 20)][below(3)];
            match below(8) {
                0..3 => {
                    let who = below(peers.len());
                    match queues.charge(class, &peers[who], share, bytes) {
                        Some(charge) => charges.push((who, charge)),
                        None if below(50) == 0 => queues.note_refused(class, &peers[who], 1, round),
                        None => {}
                    }
                }
                _ if charges.is_empty() => {}
                what => {
                    let at = below(charges.len());
                    let charge = &mut charges[at].1;
                    match what {
                        3 => {
                            charge.grow(share, bytes);
                        }
                        4 => charge.shrink(charge.bytes() / 2),
                        5 => charge.waits_beside(charge.beside.max(bytes)),
                        6 if charge.frame == 0 => {
                            let (who, charge) = charges.swap_remove(at);
                            charges.extend(charge.arrived().map(|charge| (who, charge)));
                        }
                        _ => drop(charges.swap_remove(at)),
                    }
                }
            }
            check_sums(&queues, &peers, &charges);
        }
        charges.clear();
        check_sums(&queues, &peers, &charges);
    }

    fn check_sums(queues: &Queues, peers: &[Arc<Peer>], charges: &[(usize, Charge)]) {
        let load = |account: &AtomicUsize| account.load(Ordering::Relaxed);
        let total: usize = charges.iter().map(|(_, charge)| charge.total()).sum();
        assert_eq!(queues.request_bytes(), total);
        for class in CallClass::ALL {
            let of_class = || charges.iter().filter(|(_, charge)| charge.class == Some(class));
            let counted: usize = of_class().map(|(_, charge)| charge.counted()).sum();
            assert_eq!(load(&queues.held[class.index()].bytes), counted);
            let max = queues.limits().class_bytes_max(class);
            assert!(of_class().all(|(_, charge)| charge.counted() <= max / 4 * 3));
            for (who, peer) in peers.iter().enumerate() {
                let own = || of_class().filter(|(of, _)| *of == who).map(|(_, charge)| charge);
                let counted: usize = own().map(Charge::counted).sum();
                assert_eq!(load(&peer.class_bytes[class.index()]), counted);
                let beyond: usize = own().map(|charge| charge.total() - charge.counted()).sum();
                assert_eq!(load(&peer.beyond_bytes[class.index()]), beyond);
            }
        }
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
