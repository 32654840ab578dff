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
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::compress::Compressor;
use crate::{CallTracer, Connection, EventLoops, QueueLimits, Queues, RpcStats, Service};

/// Services by their simple descriptor name (`ClientService`).
pub type Services = HashMap<&'static str, Arc<dyn Service>>;

/// Limits of a server. Plain data; the defaults are for one machine with some gigabytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcSettings {
    /// Longest request frame in bytes (`hbase.ipc.max.request.size`); a longer one is refused and ends the
    /// connection. 256 MiB as in HBase.
    pub frame_bytes_max: usize,
    /// Open connections; one more is closed at once. 20,000: HBase has no limit, a machine has.
    pub connections_max: usize,
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
    /// (`Queues`). Five seconds.
    pub silent_timeout: Duration,
    /// A timeout that a client names is at least this long (`hbase.ipc.min.client.request.timeout`). 20 ms.
    pub request_timeout_min: Duration,
    /// A client that takes longer to say who it is keeps no other from arriving. 50 ms.
    pub arriving_timeout: Duration,
    /// Time a connection has for its preamble and header. One minute.
    pub handshake_timeout: Duration,
    /// Time a connection that is being closed has to take the last answer. Two seconds.
    pub linger_timeout: Duration,
}

impl Default for RpcSettings {
    fn default() -> RpcSettings {
        RpcSettings {
            frame_bytes_max: 256 << 20,
            connections_max: 20_000,
            connection_calls_max: 4_096,
            queues: QueueLimits::new(4_096, 512 << 20),
            connection_response_bytes_max: 16 << 20,
            silent_timeout: Duration::from_secs(5),
            request_timeout_min: Duration::from_millis(20),
            arriving_timeout: Duration::from_millis(50),
            handshake_timeout: Duration::from_secs(60),
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
    /// Told when a connection ends while the server stops.
    pub ended: Notify,
    pub stopping: AtomicBool,
}

/// How the server reaches one connection's task.
#[derive(Default)]
pub(crate) struct Control {
    /// No new calls: answer what is there and end.
    pub stopping: AtomicBool,
    /// Close now.
    pub closing: AtomicBool,
    /// Its client takes nothing: what waits for it is to keep nothing else alive.
    pub detaching: AtomicBool,
    /// The `silent_since_ns` for which that was done.
    pub detached_ns: AtomicU64,
    /// `Clock::monotonic_ns` since when its client takes nothing; 0 if there is nothing to take, or it does.
    pub silent_since_ns: AtomicU64,
    /// The task at work, once it ran for the first time: one opens the connection, another one may serve its calls.
    waker: Mutex<Option<Waker>>,
}

impl Control {
    /// Whether its client takes nothing, and what waits for it was made to keep nothing else alive.
    pub fn is_detached(&self) -> bool {
        let since_ns = self.silent_since_ns.load(Ordering::Relaxed);
        since_ns != 0 && self.detached_ns.load(Ordering::Relaxed) == since_ns
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

/// What the connection header settled.
pub(crate) struct Agreed {
    pub connection: Arc<Connection>,
    pub service_name: &'static str,
    pub service: Arc<dyn Service>,
    pub compressor: Option<Compressor>,
}

/// Among those that have just been accepted, until dropped.
pub(crate) type Arriving = OwnedSemaphorePermit;
