//! What the server and its connections share: settings, services, counters, and how to reach each connection's task.
//!
//! `server.rs` uses `calls.rs`, which uses `connection.rs`; all three use this file, and it uses none of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use halcyon_env::Clock;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::compress::Compressor;
use crate::peers::Peer;
use crate::queues::{ArrivingFrame, Charge, Share};
use crate::turns::Turns;
use crate::{
    CallClass, CallTracer, Connection, EventLoops, PeerPlace, Peers, QueueLimits, Queues, RpcStats, Service,
};

/// A compressed cell block may always become as large as this.
pub const UNPACKED_FREE_BYTES: usize = 16 << 20;
/// A client is expected to send so much of a frame in a second when room for requests is short.
const FRAME_BYTES_PER_SECOND_MIN: u64 = 1 << 20;

/// Services by their simple descriptor name (`ClientService`).
pub type Services = HashMap<&'static str, Arc<dyn Service>>;

/// Limits of a server. Plain data; the defaults are for one machine with some gigabytes.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcSettings {
    /// Longest request frame in bytes (`hbase.ipc.max.request.size`); a longer one is refused and ends the
    /// connection. 256 MiB as in HBase.
    pub frame_bytes_max: usize,
    /// Open connections; one more is closed at once (`halcyon.ipc.connections.max`). 20,000: HBase has no limit, a machine
    /// has.
    pub connections_max: usize,
    /// What one peer, that is the connections of one address, may have of connections and of memory for requests that
    /// arrive: this part of what the others leave (`halcyon.peer.share`). Half; 1: there is no limit for a peer.
    pub peer_share: f64,
    /// A compressed cell block of more than [`UNPACKED_FREE_BYTES`] may be at most this many times as large as what
    /// arrived (`halcyon.ipc.cellblock.ratio.max`). 100.
    pub cell_block_ratio_max: usize,
    /// Calls of one connection that wait for their answer; beyond, the connection is not read. 4,096.
    pub connection_calls_max: usize,
    /// Calls of each class that wait for their answer (`hbase.ipc.server.max.callqueue.length`, for the class of
    /// meta `hbase.ipc.server.priority.max.callqueue.length`, for replication
    /// `hbase.ipc.server.replication.max.callqueue.length`), and bytes of requests that do
    /// (`hbase.ipc.server.max.callqueue.size`); beyond, `CallQueueTooBigException` for that class. 4,096 of
    /// each; 512 MiB.
    pub queues: QueueLimits,
    /// Bytes of answers one client does not take; beyond, its connection is not read. 16 MiB.
    pub connection_response_bytes_max: usize,
    /// A client that takes nothing of what it asked for for this long is left when room for answers is short
    /// (`Queues`). Five seconds. So is one whose frame does not arrive when others need its room.
    pub silent_timeout: Duration,
    /// A timeout that a client names is at least this long (`hbase.ipc.min.client.request.timeout`). 20 ms.
    pub request_timeout_min: Duration,
    /// Time a connection has for its preamble and header (`halcyon.ipc.handshake.timeout`). Ten seconds.
    pub handshake_timeout: Duration,
    /// Time a connection that is being closed has to take the last answer. Two seconds.
    pub linger_timeout: Duration,
}

impl Default for RpcSettings {
    fn default() -> RpcSettings {
        RpcSettings {
            frame_bytes_max: 256 << 20,
            connections_max: 20_000,
            peer_share: 0.5,
            cell_block_ratio_max: 100,
            connection_calls_max: 4_096,
            queues: QueueLimits::new(4_096, 512 << 20),
            connection_response_bytes_max: 16 << 20,
            silent_timeout: Duration::from_secs(5),
            request_timeout_min: Duration::from_millis(20),
            handshake_timeout: Duration::from_secs(10),
            linger_timeout: Duration::from_secs(2),
        }
    }
}

/// What all connections of a server see.
pub(crate) struct Shared {
    pub settings: RpcSettings,
    pub services: Services,
    pub cluster_id: String,
    pub clock: Arc<dyn Clock>,
    pub stats: RpcStats,
    pub queues: Arc<Queues>,
    pub event_loops: Option<Arc<EventLoops>>,
    /// `None`: no call is traced.
    pub tracer: Option<Arc<CallTracer>>,
    pub connections: Mutex<HashMap<u64, Arc<Control>>>,
    pub peers: Arc<Peers>,
    /// Places for newcomers that there is something to do for.
    pub arriving: Arc<Semaphore>,
    /// Places for calls whose cells are unpacked beside the event loops.
    pub unpacking: Arc<Turns>,
    /// Told when a connection ends while the server stops.
    pub ended: Notify,
    pub stopping: AtomicBool,
}

impl Shared {
    /// Room for a small frame, or a connection header, of which only a part is here.
    pub fn charge_arriving(&self, place: &PeerPlace, bytes: usize) -> Option<Charge> {
        self.queues.charge_arriving(place.peer(), self.settings.peer_share, bytes)
    }

    /// Room for a large frame of which only a part is here, or for what is unpacked from a frame.
    pub fn charge(&self, class: CallClass, place: &PeerPlace, bytes: usize) -> Option<Charge> {
        self.queues.charge(class, place.peer(), self.share(), bytes)
    }

    /// What a peer may have, as of now.
    pub fn share(&self) -> Share {
        Share { peer: self.settings.peer_share, now_ns: self.clock.monotonic_ns() }
    }

    /// Until when more of a frame has to be here of which `len` bytes are here `now_ns`, if others need its room then.
    pub fn frame_deadline_ns(&self, now_ns: u64, len: usize) -> u64 {
        now_ns + self.settings.silent_timeout.as_nanos() as u64 + sending_ns(len)
    }
}

/// How long a client may take for so many bytes.
fn sending_ns(len: usize) -> u64 {
    len as u64 * (1_000_000_000 / FRAME_BYTES_PER_SECOND_MIN).max(1)
}

/// How the server reaches one connection's task.
pub(crate) struct Control {
    pub peer: Arc<Peer>,
    /// No new calls: answer what is there and end.
    pub stopping: AtomicBool,
    /// Close now.
    pub closing: AtomicBool,
    /// Its client takes or sends nothing: what waits for it is to keep nothing else alive, and what has come of a frame
    /// to keep no room for the rest.
    pub detaching: AtomicBool,
    /// `Clock::monotonic_ns` when bytes were received last, if a frame has begun and is not whole; else 0.
    pub arriving_since_ns: AtomicU64,
    /// The `arriving_since_ns` for which the read buffer was made small.
    pub fitted_ns: AtomicU64,
    /// That frame.
    arriving: Mutex<Option<ArrivingFrame>>,
    /// The `silent_since_ns` for which that was done.
    pub detached_ns: AtomicU64,
    /// `Clock::monotonic_ns` since when its client takes nothing; 0 if there is nothing to take, or it does.
    pub silent_since_ns: AtomicU64,
    /// The task at work, once it ran for the first time: one opens the connection, another one may serve its calls.
    waker: Mutex<Option<Waker>>,
}

impl Control {
    pub fn new(peer: Arc<Peer>) -> Control {
        Control {
            peer,
            stopping: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            detaching: AtomicBool::new(false),
            arriving_since_ns: AtomicU64::new(0),
            fitted_ns: AtomicU64::new(0),
            arriving: Mutex::default(),
            detached_ns: AtomicU64::new(0),
            silent_since_ns: AtomicU64::new(0),
            waker: Mutex::default(),
        }
    }

    /// Whether its client takes nothing, and what waits for it was made to keep nothing else alive.
    pub fn is_detached(&self) -> bool {
        let since_ns = self.silent_since_ns.load(Ordering::Relaxed);
        since_ns != 0 && self.detached_ns.load(Ordering::Relaxed) == since_ns
    }

    /// Whether its client takes nothing of what waits for it for this long.
    pub fn is_silent(&self, now_ns: u64, time: Duration) -> bool {
        is_older(self.silent_since_ns.load(Ordering::Relaxed), now_ns, time)
    }

    /// A frame begins of which a part is here, as of `now_ns`.
    pub fn begin_frame(&self, frame: ArrivingFrame, now_ns: u64) {
        self.arriving_since_ns.store(now_ns, Ordering::Relaxed);
        *self.arriving.lock() = Some(frame);
    }

    /// More of the frame has come: it has as much more time.
    pub fn continue_frame(&self, len: usize, now_ns: u64) {
        self.arriving_since_ns.store(now_ns, Ordering::Relaxed);
        if let Some(frame) = &mut *self.arriving.lock() {
            frame.deadline_ns += sending_ns(len);
        }
    }

    /// The frame is whole, or nothing of it is wanted.
    pub fn end_frame(&self) {
        self.arriving_since_ns.store(0, Ordering::Relaxed);
        *self.arriving.lock() = None;
    }

    pub fn frame(&self) -> Option<ArrivingFrame> {
        *self.arriving.lock()
    }

    /// A frame that has begun and had time to arrive.
    pub fn late_frame(&self, now_ns: u64) -> Option<ArrivingFrame> {
        self.frame().filter(|frame| now_ns > frame.deadline_ns)
    }

    /// Tells a connection to make itself small, once, if its client took nothing or sent nothing of its frame for
    /// `time`. True if it is to be woken for this.
    pub fn fit_if_silent(&self, now_ns: u64, time: Duration) -> bool {
        let sides = [(&self.silent_since_ns, &self.detached_ns), (&self.arriving_since_ns, &self.fitted_ns)];
        let mut any = false;
        for (since, done) in sides {
            let since_ns = since.load(Ordering::Relaxed);
            any |= is_older(since_ns, now_ns, time) && done.swap(since_ns, Ordering::Relaxed) != since_ns;
        }
        if any {
            self.detaching.store(true, Ordering::Relaxed);
        }
        any
    }

    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.stop();
    }

    /// Says which task is to be woken from now on.
    pub fn is_served_by(&self, task: &Waker) {
        let mut waker = self.waker.lock();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(task)) {
            *waker = Some(task.clone());
        }
    }

    pub fn wake(&self) {
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Whether something began, and longer than `time` ago; 0: it did not begin.
fn is_older(since_ns: u64, now_ns: u64, time: Duration) -> bool {
    since_ns != 0 && now_ns.saturating_sub(since_ns) > time.as_nanos() as u64
}

/// What the connection header settled.
pub(crate) struct Agreed {
    pub connection: Arc<Connection>,
    pub service_name: &'static str,
    pub service: Arc<dyn Service>,
    pub compressor: Option<Compressor>,
    /// Room for what the header says, if that is much, as long as the connection is open.
    pub _room: Option<Charge>,
}

/// Among those that have just been accepted, until dropped.
pub(crate) type Arriving = OwnedSemaphorePermit;
