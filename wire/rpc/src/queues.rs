//! What calls hold while they wait, class by class.
//!
//! A call belongs to one class ([`CallClass`]), which its service tells from its first bytes. Each class has its
//! own limits in calls and in bytes of requests; a class that is full refuses its calls with
//! `CallQueueTooBigException` and touches no other. HBase keeps its classes apart with a queue and threads for
//! each (`SimpleRpcScheduler`, `RWQueueRpcExecutor`); here most calls are done by the thread that received them,
//! and what is counted is what that thread had to put aside: calls that wait for a disk, for the log, or for
//! memory. One [`Queues`] may be shared by several servers of a process, whose memory is the same.
//!
//! ```text
//! request_bytes_max = meta 1/16 + reads 1/8 + scans 1/8 + writes 5/8 + replication 1/16
//! ```
//!
//! A large frame is counted from its beginning, when its class is known and little more. A frame that is larger
//! than its class may hold gets room while no other request is counted, so the sum stays within the limit as long
//! as no frame may be longer than that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::Connection;

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
const BYTES_SHARES: [usize; CallClass::COUNT] = [1, 2, 2, 10, 1];
const BYTES_SHARES_SUM: usize = 16;

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
}

impl QueueLimits {
    /// The same number of calls for every class.
    pub fn new(calls_max: usize, request_bytes_max: usize) -> QueueLimits {
        QueueLimits { calls_max: [calls_max; CallClass::COUNT], request_bytes_max }
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
    /// Answers that sockets did not take yet.
    response_bytes: AtomicUsize,
}

impl Queues {
    pub fn new(limits: QueueLimits) -> Arc<Queues> {
        Arc::new(Queues { limits, held: Default::default(), response_bytes: AtomicUsize::new(0) })
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

    /// Bytes of requests under way, of all classes.
    pub fn request_bytes(&self) -> usize {
        self.held.iter().map(|held| held.bytes.load(Ordering::Relaxed)).sum()
    }

    /// Calls under way, of all classes.
    pub fn calls_waiting(&self) -> usize {
        self.held.iter().map(|held| held.calls.load(Ordering::Relaxed)).sum()
    }

    /// Bytes of answers that sockets did not take yet.
    pub fn response_bytes(&self) -> usize {
        self.response_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_full(&self, class: CallClass) -> bool {
        let held = &self.held[class.index()];
        held.calls.load(Ordering::Relaxed) >= self.limits.calls_max[class.index()]
            || held.bytes.load(Ordering::Relaxed) >= self.limits.class_bytes_max(class)
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

    pub(crate) fn begin_wait(&self, class: CallClass, bytes: usize) {
        let held = &self.held[class.index()];
        held.calls.fetch_add(1, Ordering::Relaxed);
        held.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn end_wait(&self, class: CallClass, bytes: usize) {
        let held = &self.held[class.index()];
        held.calls.fetch_sub(1, Ordering::Relaxed);
        held.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts a frame that is arriving; false, with nothing counted, if there is no room for it.
    pub(crate) fn charge(&self, class: CallClass, bytes: usize) -> bool {
        let alone = self.request_bytes() == 0;
        let held = &self.held[class.index()].bytes;
        let before = held.fetch_add(bytes, Ordering::Relaxed);
        let fits = alone || before + bytes <= self.limits.class_bytes_max(class);
        if !fits {
            held.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    pub(crate) fn release(&self, class: CallClass, bytes: usize) {
        self.held[class.index()].bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_response_bytes(&self, bytes: usize) {
        self.response_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn sub_response_bytes(&self, bytes: usize) {
        self.response_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
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
        assert_eq!(BYTES_SHARES.iter().sum::<usize>(), BYTES_SHARES_SUM);
        let limits = QueueLimits::new(1, 1 << 20);
        let sum: usize = CallClass::ALL.iter().map(|class| limits.class_bytes_max(*class)).sum();
        assert_eq!(sum, 1 << 20);
        for (at, class) in CallClass::ALL.iter().enumerate() {
            assert_eq!(class.index(), at);
        }
    }

    #[test]
    fn a_full_class_leaves_the_others_alone() {
        let queues = Queues::new(QueueLimits::new(2, 1600));
        queues.begin_wait(CallClass::Scan, 10);
        assert!(!queues.is_full(CallClass::Scan));
        queues.begin_wait(CallClass::Scan, 10);
        assert!(queues.is_full(CallClass::Scan), "by calls");
        queues.begin_wait(CallClass::Write, 1000);
        assert!(queues.is_full(CallClass::Write), "by bytes");
        assert!(!queues.is_full(CallClass::Read) && !queues.is_full(CallClass::Meta));
        queues.end_wait(CallClass::Write, 1000);
        assert!(!queues.is_full(CallClass::Write));
        assert_eq!((queues.calls_waiting(), queues.request_bytes()), (2, 20));
    }

    #[test]
    fn a_frame_larger_than_its_class_gets_room_alone() {
        let queues = Queues::new(QueueLimits::new(2, 1600));
        assert!(queues.charge(CallClass::Read, 1500));
        assert!(!queues.charge(CallClass::Read, 1));
        assert!(!queues.charge(CallClass::Meta, 101));
        assert!(queues.charge(CallClass::Meta, 100), "within its share");
        queues.release(CallClass::Read, 1500);
        assert!(!queues.charge(CallClass::Read, 1500));
        assert!(queues.charge(CallClass::Read, 200));
    }
}
