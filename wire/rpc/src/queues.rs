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
//! counted, so the sum stays within the limit as long as no frame may be longer than that. What is unpacked from a frame
//! is counted before it is there, too. One peer has a share of these parts and leaves the rest to others, and so it does with
//! calls that wait.

mod charges;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use halcyon_proto::pb;

pub(crate) use self::charges::Charge;
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
    times: CallTimes,
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
    /// Bytes of their requests, and of large ones that are arriving.
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
    answers: Answers,
}

/// Takes something off an account. What is taken off was put on before, so it never gets below nothing: it would wrap, and a
/// class with so many calls takes no more for ever.
#[inline]
fn take_off(account: &AtomicUsize, amount: usize, what: &str) {
    let before = account.fetch_sub(amount, Ordering::Relaxed);
    assert!(before >= amount, "{what}: {amount} are taken off, {before} are there");
}

/// Whether what a peer has waiting is more than its share of what others leave of `max`.
#[inline]
fn is_over(max: usize, all: usize, of_peer: &AtomicUsize, share: f64) -> bool {
    let own = of_peer.load(Ordering::Relaxed);
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
        let (held, arriving) = (Default::default(), AtomicUsize::new(0));
        Arc::new(Queues { limits, held, arriving, answers: Answers::default() })
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
        self.held.iter().map(|held| held.bytes.load(Ordering::Relaxed)).sum()
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

    /// Whether a class has no room for one more call of a connection that has `own` of it waiting. No connection may have
    /// more than what is left: alone it gets half, and however many ask for much, who waits for nothing has a place. Nor may
    /// all connections of a peer together have more than its share of what others leave.
    #[inline]
    pub(crate) fn is_full(&self, class: CallClass, own: &OwnWaiting, peer: &Peer, share: f64) -> bool {
        let held = &self.held[class.index()];
        let (calls, bytes) = (held.calls.load(Ordering::Relaxed), held.bytes.load(Ordering::Relaxed));
        let (calls_max, bytes_max) =
            (self.limits.calls_max[class.index()], self.limits.class_bytes_max(class));
        calls >= calls_max
            || bytes >= bytes_max
            || own.calls > calls_max - calls
            || own.bytes > bytes_max - bytes
            || is_over(calls_max, calls, &peer.waiting_calls[class.index()], share)
            || is_over(bytes_max, bytes, &peer.waiting_bytes[class.index()], share)
            || self.response_bytes() >= self.class_answer_bytes_max(class)
    }

    /// What answered calls of the class took inside the server.
    pub fn times(&self, class: CallClass) -> CallTimesSnapshot {
        self.held[class.index()].times.snapshot()
    }

    pub(crate) fn note_time(&self, class: CallClass, time_ns: u64, count: u64) {
        self.held[class.index()].times.record(time_ns, count);
    }

    pub(crate) fn note_refused(&self, class: CallClass) {
        self.held[class.index()].refused.fetch_add(1, Ordering::Relaxed);
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
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_classes_are_the_whole() {
        assert_eq!(BYTES_SHARES.iter().sum::<usize>() + ARRIVING_SHARE, BYTES_SHARES_SUM);
        let limits = QueueLimits::new(1, 1 << 20);
        let sum: usize = CallClass::ALL.iter().map(|class| limits.class_bytes_max(*class)).sum();
        assert_eq!(sum + limits.arriving_bytes_max(), 1 << 20);
        for (at, class) in CallClass::ALL.iter().enumerate() {
            assert_eq!(class.index(), at);
        }
    }

    #[test]
    #[should_panic(expected = "calls that wait: 1 are taken off, 0 are there")]
    fn a_call_cannot_end_twice() {
        let peer = Peer::default();
        let queues = Queues::new(QueueLimits::new(2, 1600 << 10));
        queues.begin_wait(CallClass::Scan, 10, &peer);
        queues.end_wait(CallClass::Scan, 10, &peer);
        queues.end_wait(CallClass::Scan, 10, &peer);
    }

    #[test]
    fn a_full_class_leaves_the_others_alone() {
        let peer = Peer::default();
        let queues = Queues::new(QueueLimits::new(2, 1600 << 10));
        let is_full = |class| queues.is_full(class, &OwnWaiting::default(), &Peer::default(), 0.5);
        queues.begin_wait(CallClass::Scan, 10, &Peer::default());
        assert!(!is_full(CallClass::Scan));
        queues.begin_wait(CallClass::Scan, 10, &Peer::default());
        assert!(is_full(CallClass::Scan), "by calls");
        queues.begin_wait(CallClass::Write, 1000 << 10, &peer);
        assert!(is_full(CallClass::Write), "by bytes");
        assert!(!is_full(CallClass::Read) && !is_full(CallClass::Meta));
        queues.end_wait(CallClass::Write, 1000 << 10, &peer);
        assert!(!is_full(CallClass::Write));
        assert_eq!((queues.calls_waiting(), queues.request_bytes()), (2, 2 * (10 + CALL_BYTES)));
    }

    /// One after the other, each takes what it gets: the first one half, and the last one a place.
    #[test]
    fn no_connection_has_more_of_a_class_than_what_is_left() {
        for (calls_max, request_bytes_max, frame_bytes) in [(64, 1 << 30, 100), (1 << 20, 8 << 20, 8 << 10)] {
            let queues = Queues::new(QueueLimits::new(calls_max, request_bytes_max));
            let (peer, mut taken) = (Peer::default(), Vec::new());
            for _ in 0..8 {
                let mut own = OwnWaiting::default();
                while !queues.is_full(CallClass::Scan, &own, &peer, 1.0) {
                    queues.begin_wait(CallClass::Scan, frame_bytes, &peer);
                    own.add(frame_bytes);
                }
                taken.push(own.calls);
            }
            assert_eq!(taken, [33, 16, 8, 4, 2, 1, 0, 0], "{calls_max} {request_bytes_max}");
        }
    }

    /// A dozen connections of one address took all places of a class.
    #[test]
    fn no_peer_has_more_of_a_class_than_its_share() {
        for (calls_max, request_bytes_max, frame_bytes) in [(64, 1 << 30, 100), (1 << 20, 8 << 20, 8 << 10)] {
            let queues = Queues::new(QueueLimits::new(calls_max, request_bytes_max));
            let peers: [Peer; 4] = Default::default();
            let mut taken = [0; 4];
            for (peer, taken) in peers.iter().zip(&mut taken) {
                for _ in 0..16 {
                    let mut own = OwnWaiting::default();
                    while !queues.is_full(CallClass::Scan, &own, peer, 0.5) {
                        queues.begin_wait(CallClass::Scan, frame_bytes, peer);
                        own.add(frame_bytes);
                        *taken += 1;
                    }
                }
            }
            assert_eq!(taken, [33, 16, 8, 4], "{calls_max} {request_bytes_max}");
            for (peer, taken) in peers.iter().zip(taken) {
                (0..taken).for_each(|_| queues.end_wait(CallClass::Scan, frame_bytes, peer));
                assert_eq!(peer.waiting_bytes[CallClass::Scan.index()].load(Ordering::Relaxed), 0);
            }
            assert_eq!((queues.calls_waiting(), queues.request_bytes()), (0, 0));
        }
    }

    #[test]
    fn clients_that_take_nothing_leave_room_for_others() {
        let connection = |id| Arc::new(Connection::new(id, ""));
        let terms = |connection: &Arc<Connection>, class| Terms {
            class,
            deadline_ns: u64::MAX,
            connection: connection.clone(),
            call_id: 0,
            is_traced: false,
            attributes: Vec::new(),
        };
        let queues = Queues::new(QueueLimits { answer_bytes_max: 1000, ..QueueLimits::new(10, 1600) });
        let (silent, other) = (connection(1), connection(2));
        let first = queues.reserve(&terms(&silent, CallClass::Scan), 300).expect("alone");
        let refused = queues.reserve(&terms(&silent, CallClass::Scan), 100).err();
        assert_eq!(refused, Some(NoRoom::ForConnection), "300 and 100 of the 350 that it may have");
        assert_eq!(queues.reserve(&terms(&other, CallClass::Scan), 300).err(), Some(NoRoom::ForClass));
        let second = queues.reserve(&terms(&other, CallClass::Read), 300).expect("a read may have more");
        assert_eq!(queues.reserved_bytes(), 600);
        drop((first, second));
        assert_eq!((queues.reserved_bytes(), queues.connection_bytes_max()), (0, 500));
        queues.add_response_bytes(600);
        let is_full = |class| queues.is_full(class, &OwnWaiting::default(), &Peer::default(), 0.5);
        assert!(is_full(CallClass::Scan) && !is_full(CallClass::Read) && queues.is_crowded());
        queues.sub_response_bytes(600);
        assert!(!is_full(CallClass::Scan) && !queues.is_crowded());
        assert_eq!((queues.response_bytes(), queues.connection_bytes_max()), (0, 500), "all is given back");
    }
}
