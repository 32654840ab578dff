//! What calls hold while they wait, class by class.
//!
//! A call belongs to one class ([`CallClass`]), which its service tells from its first bytes. Each class has its
//! own limits in calls and in bytes of requests; a class that is full refuses its calls with
//! `CallQueueTooBigException` and touches no other, and so is a connection's call while more of its calls wait than the
//! class has places left. HBase keeps its classes apart with a queue and threads for
//! each (`SimpleRpcScheduler`, `RWQueueRpcExecutor`); here most calls are done by the thread that received them,
//! and what is counted is what that thread had to put aside: calls that wait for a disk, for the log, or for
//! memory. One [`Queues`] may be shared by several servers of a process, whose memory is the same.
//!
//! ```text
//! request_bytes_max = meta 1/16 + reads 1/8 + scans 1/8 + writes 9/16 + replication 1/16 + small frames arriving 1/16
//! ```
//!
//! Answers have one limit for all: those that are being made (who makes a large one keeps room for it,
//! [`Queues::reserve`]) and those that clients did not take yet. Scans begin only while half of it is free, other
//! reads while a quarter is. A connection gets half of what is left, so that clients that take nothing leave
//! something to others; when a quarter of all waits for clients, those that took nothing for a while are closed.
//!
//! A call that waits is counted with its frame and with [`CALL_BYTES`] for what was made of it.
//!
//! A frame is counted from its beginning (`charges.rs`): a small one in a part for all of them, whatever its call, and a
//! large one in the part of its class. A frame that is larger than its class may hold gets room while no other request is
//! counted. One request counts in its class with three quarters of that at most, and with the rest of it in an account of its
//! own: while it arrives, and until it is answered, others have a quarter of the class. What is unpacked from a frame is counted
//! before it is there, too. One peer has a share of these parts and leaves the rest to others, and so it does with calls that
//! wait.

mod charges;
mod wanting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use halcyon_proto::pb;

pub(crate) use self::charges::{ArrivingFrame, Charge};
use self::wanting::IDLE_SHARE;
pub(crate) use self::wanting::Wanting;
use crate::Connection;
use crate::peers::{Peer, fair_max};
use crate::times::{CallTimes, CallTimesSnapshot};

/// What a call that waits takes beside its frame: its decoded message and the state of its work, seen under a flood.
pub(crate) const CALL_BYTES: usize = 8 << 10;

/// What a call is to the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallClass {
    /// On `hbase:meta`, to the master, or marked by the client as above others (HBase: the priority queue).
    Meta,
    /// Rows by their keys.
    Read,
    /// Rows one after the other.
    Scan,
    /// Anything that changes rows.
    Write,
    /// What another cluster sends.
    Replication,
}

/// Priorities above this one go before others (`HConstants.QOS_THRESHOLD`).
const PRIORITY_NORMAL_MAX: u32 = 10;
/// What the class of a call has of the bytes of all requests, in sixteenths.
const BYTES_SHARES: [usize; CallClass::COUNT] = [1, 2, 2, 9, 1];
/// What small frames have of it of which only a part is here.
const ARRIVING_SHARE: usize = 1;
const BYTES_SHARES_SUM: usize = 16;

/// The classes and small frames share all bytes of requests, no more and no less, and each class knows its place.
const _: () = {
    let (mut sum, mut at) = (ARRIVING_SHARE, 0);
    while at < CallClass::COUNT {
        assert!(BYTES_SHARES[at] > 0 && CallClass::ALL[at].index() == at);
        sum += BYTES_SHARES[at];
        at += 1;
    }
    assert!(sum == BYTES_SHARES_SUM);
};

impl CallClass {
    pub const COUNT: usize = 5;
    pub const ALL: [CallClass; CallClass::COUNT] =
        [CallClass::Meta, CallClass::Read, CallClass::Scan, CallClass::Write, CallClass::Replication];

    /// Its place in [`CallClass::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// One word for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            CallClass::Meta => "meta",
            CallClass::Read => "read",
            CallClass::Scan => "scan",
            CallClass::Write => "write",
            CallClass::Replication => "replication",
        }
    }
}

/// What is known of a call before anything of it is decoded.
#[derive(Clone, Copy, Debug)]
pub struct CallHead<'a> {
    pub method: &'a str,
    pub priority: u32,
    /// The encoded parameter message; of a frame that has not arrived whole, what is here of it.
    pub param: &'a [u8],
}

impl CallHead<'_> {
    /// Whether the client wants it before others. It is believed, as HBase does
    /// (`AnnotationReadingPriorityFunction`).
    pub fn is_above_others(&self) -> bool {
        self.priority > PRIORITY_NORMAL_MAX
    }
}

/// Limits of the classes. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Calls of each class that wait for their answer, in the order of [`CallClass::ALL`].
    pub calls_max: [usize; CallClass::COUNT],
    /// Bytes of requests that wait for their answer, of all classes together.
    pub request_bytes_max: usize,
    /// Bytes of answers that are being made or that clients did not take yet.
    pub answer_bytes_max: usize,
}

impl QueueLimits {
    /// The same number of calls for every class, and 512 MiB of answers.
    pub fn new(calls_max: usize, request_bytes_max: usize) -> QueueLimits {
        let calls_max = [calls_max; CallClass::COUNT];
        QueueLimits { calls_max, request_bytes_max, answer_bytes_max: 512 << 20 }
    }

    /// Of them, what one class may hold.
    pub fn class_bytes_max(&self, class: CallClass) -> usize {
        self.request_bytes_max / BYTES_SHARES_SUM * BYTES_SHARES[class.index()]
    }
}

/// What the calls of one class hold, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Held {
    calls: AtomicUsize,
    bytes: AtomicUsize,
    refused: AtomicU64,
    expired: AtomicU64,
    abandoned: AtomicU64,
    /// Peers that found no room lately.
    wanting: Wanting,
    /// The peer that had a request here last which was larger than the class may hold; 0: none had.
    last_over: AtomicU64,
    times: CallTimes,
}

/// What a peer may have of what the others leave, at a moment. Plain data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// While others want it (`halcyon.peer.share`).
    pub peer: f64,
    pub now_ns: u64,
}

impl Share {
    /// Parts of what the others leave: of what waits, or else of what is arriving and unpacked, and of both together. Of what
    /// others want a peer leaves something in each way, and a share of that in both.
    fn of_peer(&self, is_wanted: bool) -> (f64, f64) {
        if is_wanted {
            (self.peer, self.peer * (2.0 - self.peer))
        } else {
            let share = self.peer.max(IDLE_SHARE);
            (share, share)
        }
    }
}

/// Whose call it is that asks for a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    /// What its connection has waiting of the class.
    pub own: &'a OwnWaiting,
    pub connection: u64,
    pub peer: &'a Peer,
    pub share: Share,
}

/// What waits of one class and one connection. Plain data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnWaiting {
    calls: usize,
    bytes: usize,
}

impl OwnWaiting {
    pub fn add(&mut self, frame_bytes: usize) {
        self.calls += 1;
        self.bytes += frame_bytes + CALL_BYTES;
    }

    pub fn sub(&mut self, frame_bytes: usize) {
        let (calls, bytes) = (self.calls.checked_sub(1), self.bytes.checked_sub(frame_bytes + CALL_BYTES));
        self.calls = calls.expect("a call that ends has begun to wait");
        self.bytes = bytes.expect("a call is taken off with the bytes that it was added with");
    }
}

/// What the calls of one class hold at a moment (each number for itself).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassSnapshot {
    /// Calls handed out and not answered yet.
    pub calls_waiting: usize,
    /// Bytes of their requests, and of large ones that are arriving. Of a very large one a part is in no class.
    pub request_bytes: usize,
    /// Calls refused because the class was full.
    pub refused: u64,
    /// Calls dropped because their client's time was over before their turn came.
    pub expired: u64,
    /// Calls dropped because their client had gone before their turn came.
    pub abandoned: u64,
}

/// See the head of the file. *Thread safety*: counters only.
#[derive(Debug)]
pub struct Queues {
    limits: QueueLimits,
    held: [Held; CallClass::COUNT],
    /// Bytes of small frames of which only a part is here.
    arriving: AtomicUsize,
    /// Bytes of requests beyond what one counts with in its class.
    beyond: AtomicUsize,
    answers: Answers,
}

/// Takes something off an account. What is taken off was put on before, so it never gets below nothing: it would wrap, and a
/// class with so many calls takes no more for ever.
#[inline]
fn take_off(account: &AtomicUsize, amount: usize, what: &str) {
    let before = account.fetch_sub(amount, Ordering::Relaxed);
    assert!(before >= amount, "{what}: {amount} are taken off, {before} are there");
}

/// Whether what one has of `all` is more than a share of what the others leave of `max`. Who has nothing has not.
#[inline]
fn is_over(max: usize, all: usize, own: usize, share: f64) -> bool {
    own > 0 && own > fair_max(max, all.saturating_sub(own), share)
}

/// Bytes of answers, on a cache line of their own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Answers {
    /// Sockets did not take them yet.
    waiting: AtomicUsize,
    /// They are being made and may become so large.
    reserved: AtomicUsize,
}

impl Queues {
    pub fn new(limits: QueueLimits) -> Arc<Queues> {
        let (held, answers) = (Default::default(), Answers::default());
        Arc::new(Queues { limits, held, arriving: AtomicUsize::new(0), beyond: AtomicUsize::new(0), answers })
    }

    pub fn limits(&self) -> &QueueLimits {
        &self.limits
    }

    pub fn snapshot(&self, class: CallClass) -> ClassSnapshot {
        let held = &self.held[class.index()];
        ClassSnapshot {
            calls_waiting: held.calls.load(Ordering::Relaxed),
            request_bytes: held.bytes.load(Ordering::Relaxed),
            refused: held.refused.load(Ordering::Relaxed),
            expired: held.expired.load(Ordering::Relaxed),
            abandoned: held.abandoned.load(Ordering::Relaxed),
        }
    }

    /// Bytes of requests under way, of all classes, and of those that are arriving.
    pub fn request_bytes(&self) -> usize {
        self.class_bytes() + self.arriving_bytes()
    }

    /// Bytes of requests whose classes are known.
    fn class_bytes(&self) -> usize {
        let in_classes: usize = self.held.iter().map(|held| held.bytes.load(Ordering::Relaxed)).sum();
        in_classes + self.beyond.load(Ordering::Relaxed)
    }

    /// Calls under way, of all classes.
    pub fn calls_waiting(&self) -> usize {
        self.held.iter().map(|held| held.calls.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of answers that sockets did not take yet.
    pub fn response_bytes(&self) -> usize {
        self.answers.waiting.load(Ordering::Relaxed)
    }

    /// Bytes that answers may have that are being made.
    pub fn reserved_bytes(&self) -> usize {
        self.answers.reserved.load(Ordering::Relaxed)
    }

    fn answer_bytes(&self) -> usize {
        self.response_bytes() + self.reserved_bytes()
    }

    /// What one connection may have of answers: half of what is left. However many take nothing, something is left.
    pub(crate) fn connection_bytes_max(&self) -> usize {
        self.limits.answer_bytes_max.saturating_sub(self.answer_bytes()) / 2
    }

    /// What answers of all calls may have when a call of this class begins: scans leave room for other reads, and
    /// reads for the small answers of the rest.
    fn class_answer_bytes_max(&self, class: CallClass) -> usize {
        match class {
            CallClass::Scan => self.limits.answer_bytes_max / 2,
            CallClass::Read => self.limits.answer_bytes_max / 4 * 3,
            _ => self.limits.answer_bytes_max,
        }
    }

    /// Keeps room for an answer of up to `bytes`. A call that is alone always gets it.
    pub fn reserve(self: &Arc<Self>, terms: &Terms, bytes: usize) -> Result<Reservation, NoRoom> {
        let of_connection = &terms.connection.state;
        let reserved = of_connection.reserved_bytes.load(Ordering::Relaxed);
        let has = reserved + of_connection.waiting_bytes.load(Ordering::Relaxed);
        if terms.connection.is_open() && has > 0 && has + bytes > self.connection_bytes_max() {
            return Err(NoRoom::ForConnection);
        }
        let all = self.answer_bytes();
        if all > 0 && all + bytes > self.class_answer_bytes_max(terms.class) {
            return Err(NoRoom::ForClass);
        }
        self.answers.reserved.fetch_add(bytes, Ordering::Relaxed);
        of_connection.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Reservation { queues: self.clone(), connection: terms.connection.clone(), bytes })
    }

    /// Whether so much waits for clients that those who take nothing have to go.
    pub(crate) fn is_crowded(&self) -> bool {
        self.response_bytes() > self.limits.answer_bytes_max / 4
    }

    /// Whether a class has no room for one more call. While others want what there is, no connection may have more than what
    /// is left, nor may all connections of a peer together have more than its share of what others leave: however many ask
    /// for much, who waits for nothing has a place. While nobody else wants it, one may have all but a little.
    #[inline]
    pub(crate) fn is_full(&self, class: CallClass, asker: &Asker<'_>) -> bool {
        let held = &self.held[class.index()];
        let (calls, bytes) = (held.calls.load(Ordering::Relaxed), held.bytes.load(Ordering::Relaxed));
        let (calls_max, bytes_max) =
            (self.limits.calls_max[class.index()], self.limits.class_bytes_max(class));
        if calls >= calls_max
            || bytes >= bytes_max
            || self.response_bytes() >= self.class_answer_bytes_max(class)
        {
            return true;
        }
        let Asker { own, peer, share, .. } = *asker;
        let peer_calls = peer.waiting_calls[class.index()].load(Ordering::Relaxed);
        let (waiting, arrived) = self.of_peer(class, peer);
        let is_over_shares = |of_connection: f64, of_peer: f64, of_both: f64| {
            // What the peer has in other ways is not another's.
            let without = |mine: usize| bytes.saturating_sub(mine);
            is_over(calls_max, calls, own.calls, of_connection)
                || is_over(bytes_max, bytes, own.bytes, of_connection)
                || is_over(calls_max, calls, peer_calls, of_peer)
                || is_over(bytes_max, without(arrived), waiting, of_peer)
                || (waiting > 0 && is_over(bytes_max, bytes, waiting + arrived, of_both))
        };
        let (of_peer, of_both) = share.of_peer(true);
        is_over_shares(0.5, of_peer, of_both) && {
            let is_wanted = self.is_wanted_beside(class, peer, share);
            let is_alone = !is_wanted && !peer.wanting.is_wanted_beside(asker.connection, share.now_ns);
            let (of_peer, of_both) = share.of_peer(is_wanted);
            is_over_shares(if is_alone { IDLE_SHARE } else { 0.5 }, of_peer, of_both)
        }
    }

    /// Bytes that a peer has waiting of a class, and those that are arriving or unpacked.
    #[inline]
    fn of_peer(&self, class: CallClass, peer: &Peer) -> (usize, usize) {
        let waiting = peer.waiting_bytes[class.index()].load(Ordering::Relaxed);
        (waiting, peer.class_bytes[class.index()].load(Ordering::Relaxed))
    }

    /// Whether another peer found no room in a class lately.
    fn is_wanted_beside(&self, class: CallClass, peer: &Peer, share: Share) -> bool {
        self.held[class.index()].wanting.is_wanted_beside(peer.number, share.now_ns)
    }

    /// Whether so much of a class is taken that what short messages become matters.
    #[inline]
    pub(crate) fn is_filling(&self, class: CallClass) -> bool {
        self.held[class.index()].bytes.load(Ordering::Relaxed) > self.limits.class_bytes_max(class) / 32
    }

    /// What answered calls of the class took inside the server.
    pub fn times(&self, class: CallClass) -> CallTimesSnapshot {
        self.held[class.index()].times.snapshot()
    }

    pub(crate) fn note_time(&self, class: CallClass, time_ns: u64, count: u64) {
        self.held[class.index()].times.record(time_ns, count);
    }

    /// A call of this connection found no room.
    pub(crate) fn note_refused(&self, class: CallClass, peer: &Peer, connection: u64, now_ns: u64) {
        let held = &self.held[class.index()];
        held.refused.fetch_add(1, Ordering::Relaxed);
        held.wanting.note(peer.number, now_ns);
        peer.wanting.note(connection, now_ns);
    }

    pub(crate) fn note_dropped(&self, class: CallClass, why: Dropped) {
        let held = &self.held[class.index()];
        let counter = match why {
            Dropped::Expired => &held.expired,
            Dropped::Abandoned => &held.abandoned,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn begin_wait(&self, class: CallClass, frame_bytes: usize, peer: &Peer) {
        let held = &self.held[class.index()];
        peer.waiting_calls[class.index()].fetch_add(1, Ordering::Relaxed);
        peer.waiting_bytes[class.index()].fetch_add(frame_bytes + CALL_BYTES, Ordering::Relaxed);
        held.calls.fetch_add(1, Ordering::Relaxed);
        held.bytes.fetch_add(frame_bytes + CALL_BYTES, Ordering::Relaxed);
    }

    pub(crate) fn end_wait(&self, class: CallClass, frame_bytes: usize, peer: &Peer) {
        let held = &self.held[class.index()];
        take_off(&held.calls, 1, "calls that wait");
        take_off(&held.bytes, frame_bytes + CALL_BYTES, "bytes of calls that wait");
        take_off(&peer.waiting_calls[class.index()], 1, "calls of a peer that wait");
        take_off(&peer.waiting_bytes[class.index()], frame_bytes + CALL_BYTES, "bytes of a peer's calls");
    }

    pub(crate) fn add_response_bytes(&self, bytes: usize) {
        self.answers.waiting.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub_response_bytes(&self, bytes: usize) {
        take_off(&self.answers.waiting, bytes, "bytes of answers that sockets took");
    }
}

/// Room for an answer that is being made, until it is handed to its connection or dropped.
#[derive(Debug)]
pub struct Reservation {
    queues: Arc<Queues>,
    connection: Arc<Connection>,
    bytes: usize,
}

impl Reservation {
    /// Keeps room for so many bytes more. False if there is none for a call of this class; one that is alone always gets it.
    pub fn grow(&mut self, class: CallClass, bytes: usize) -> bool {
        let all = self.queues.answer_bytes();
        if all > self.bytes && all + bytes > self.queues.class_answer_bytes_max(class) {
            return false;
        }
        self.queues.answers.reserved.fetch_add(bytes, Ordering::Relaxed);
        self.connection.state.reserved_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        true
    }

    /// Both as one. They are of one call.
    pub fn joined(mut self, mut other: Reservation) -> Reservation {
        assert!(
            Arc::ptr_eq(&self.connection, &other.connection),
            "what one connection has taken would be taken off another's account"
        );
        self.bytes += std::mem::take(&mut other.bytes);
        self
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        take_off(&self.queues.answers.reserved, self.bytes, "bytes kept for answers");
        take_off(&self.connection.state.reserved_bytes, self.bytes, "bytes kept for a connection's answers");
    }
}

/// Why there is no room for an answer now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Its client has not taken what it has asked for before.
    ForConnection,
    /// Calls of its class have all that they may have.
    ForClass,
}

/// Why a call was not carried out. Nobody is told: nobody waits (HBase: `CallRunner.run`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The client's time was over before the call's turn came.
    Expired,
    /// The connection had ended before the call's turn came.
    Abandoned,
}

/// What a call that waits is asked when its turn comes, and the class it waits in.
#[derive(Clone, Debug)]
pub struct Terms {
    pub class: CallClass,
    /// `Clock::monotonic_ns` from which on nobody waits for the answer.
    pub deadline_ns: u64,
    pub connection: Arc<Connection>,
    /// The client's number for the call.
    pub call_id: u32,
    /// The parts of its time are noted, however short they are.
    pub is_traced: bool,
    /// What the client says of the call.
    pub attributes: Vec<pb::NameBytesPair>,
}

impl Terms {
    /// Why the call need not be carried out any more, if so.
    pub fn dropped(&self, now_ns: u64) -> Option<Dropped> {
        if !self.connection.is_open() {
            return Some(Dropped::Abandoned);
        }
        (now_ns > self.deadline_ns).then_some(Dropped::Expired)
    }
}

#[cfg(test)]
mod tests;
