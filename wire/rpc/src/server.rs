use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use halcyon_env::Clock;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::calls::{Agreed, Calls};
use crate::connection::ConnectionTask;
use crate::lanes::Seat;
use crate::{Lanes, QueueLimits, Queues, RpcStats, Service};

/// Connections that wait to be accepted; after an outage all clients come at once.
const BACKLOG_MAX: u32 = 4096;
/// Connections that are accepted and had no turn of calls yet; while there are so many, others wait to be accepted. However
/// fast clients come and leave, those who stay wait behind so many newcomers at most.
const ARRIVING_MAX: usize = 64;
/// How often it is looked whether clients take their answers.
const SILENT_CHECK_PERIOD: Duration = Duration::from_millis(250);

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

/// A port that is taken but not served yet: clients that connect wait.
pub struct BoundServer {
    listener: TcpListener,
    address: SocketAddr,
    settings: RpcSettings,
    clock: Arc<dyn Clock>,
    lanes: Option<Arc<Lanes>>,
    queues: Arc<Queues>,
}

/// A running server; dropping it without [`RpcServer::stop`] ends it without draining.
///
/// # Thread safety
/// Connections share [`Shared`] by counters only; the table of connections is locked when one opens or ends.
pub struct RpcServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

/// What all connections of a server see.
pub(crate) struct Shared {
    pub settings: RpcSettings,
    pub services: Services,
    pub cluster_id: String,
    pub clock: Arc<dyn Clock>,
    pub stats: RpcStats,
    pub queues: Arc<Queues>,
    lanes: Option<Arc<Lanes>>,
    connections: Mutex<HashMap<u64, Arc<Control>>>,
    /// Told when a connection ends while the server stops.
    ended: Notify,
    stopping: AtomicBool,
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

impl RpcServer {
    /// Takes the port (0: any). The error names the address.
    pub async fn bind(
        address: SocketAddr,
        settings: RpcSettings,
        clock: Arc<dyn Clock>,
    ) -> io::Result<BoundServer> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        let listener = listen(address).map_err(named)?;
        let address = listener.local_addr()?;
        let queues = Queues::new(settings.queues);
        Ok(BoundServer { listener, address, settings, clock, lanes: None, queues })
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    pub fn stats(&self) -> &RpcStats {
        &self.shared.stats
    }

    /// What its calls hold while they wait.
    pub fn queues(&self) -> &Arc<Queues> {
        &self.shared.queues
    }

    /// Refuses new connections and calls, waits until the calls that were received are answered, at most
    /// `time`, and closes. True if nothing was cut off.
    pub async fn stop(&self, time: Duration) -> bool {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.accepting.abort();
        for control in self.shared.connections.lock().values() {
            control.stop();
        }
        let drained = async {
            loop {
                let ended = self.shared.ended.notified();
                if self.shared.connections.lock().is_empty() {
                    return;
                }
                ended.await;
            }
        };
        let drained = tokio::time::timeout(time, drained).await.is_ok();
        for control in self.shared.connections.lock().values() {
            control.close();
        }
        drained
    }
}

impl Drop for RpcServer {
    fn drop(&mut self) {
        self.accepting.abort();
        for control in self.shared.connections.lock().values() {
            control.close();
        }
    }
}

impl Control {
    /// Whether its client takes nothing, and what waits for it was made to keep nothing else alive.
    pub fn is_detached(&self) -> bool {
        let since_ns = self.silent_since_ns.load(Ordering::Relaxed);
        since_ns != 0 && self.detached_ns.load(Ordering::Relaxed) == since_ns
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.stop();
    }

    /// Says which task is to be woken from now on.
    pub(crate) fn is_served_by(&self, task: &Waker) {
        let mut waker = self.waker.lock();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(task)) {
            *waker = Some(task.clone());
        }
    }

    fn wake(&self) {
        let waker = self.waker.lock().clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl BoundServer {
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections on these lanes instead of the caller's runtime.
    pub fn on_lanes(self, lanes: Arc<Lanes>) -> BoundServer {
        BoundServer { lanes: Some(lanes), ..self }
    }

    /// Counts calls that wait together with other servers of the process; the limits are those of `queues`.
    pub fn sharing(self, queues: Arc<Queues>) -> BoundServer {
        BoundServer { queues, ..self }
    }

    /// Begins to serve. `cluster_id` is what clients with an RPC registry ask for before anything else.
    pub fn serve(self, services: Services, cluster_id: impl Into<String>) -> RpcServer {
        let shared = Arc::new(Shared {
            settings: self.settings,
            services,
            cluster_id: cluster_id.into(),
            clock: self.clock,
            stats: RpcStats::default(),
            lanes: self.lanes,
            queues: self.queues,
            connections: Mutex::new(HashMap::new()),
            ended: Notify::new(),
            stopping: AtomicBool::new(false),
        });
        let accepting = tokio::spawn(accept(self.listener, Arc::clone(&shared)));
        tokio::spawn(leave_silent(Arc::downgrade(&shared)));
        RpcServer { shared, address: self.address, accepting }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?; // a restart need not wait for connections of the last life
    socket.set_keepalive(true)?; // inherited: a client whose machine died is noticed in the end
    socket.bind(address)?;
    socket.listen(BACKLOG_MAX)
}

/// Looks after connections whose clients take nothing: what waits for them is made to keep nothing else alive, and they
/// are closed when room for answers is short. Ends with the server.
async fn leave_silent(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(SILENT_CHECK_PERIOD).await;
        let Some(shared) = shared.upgrade() else { return };
        if shared.queues.response_bytes() == 0 {
            continue;
        }
        let now_ns = shared.clock.monotonic_ns();
        let limit_ns = shared.settings.silent_timeout.as_nanos() as u64;
        let is_crowded = shared.queues.is_crowded();
        for (id, control) in shared.connections.lock().iter() {
            let since_ns = control.silent_since_ns.load(Ordering::Relaxed);
            let silent_ns = if since_ns == 0 { 0 } else { now_ns.saturating_sub(since_ns) };
            if silent_ns > SILENT_CHECK_PERIOD.as_nanos() as u64
                && control.detached_ns.swap(since_ns, Ordering::Relaxed) != since_ns
            {
                control.detaching.store(true, Ordering::Relaxed);
                control.wake();
            }
            if is_crowded && silent_ns > limit_ns {
                tracing::warn!(
                    connection = id,
                    "left a client that takes no answers: there is no room for more"
                );
                shared.stats.connections_left.fetch_add(1, Ordering::Relaxed);
                control.close();
            }
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    let places = Arc::new(Semaphore::new(ARRIVING_MAX));
    loop {
        let arriving = places.clone().acquire_owned().await.expect("nobody closes it");
        match listener.accept().await {
            Ok((stream, peer)) => {
                let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
                begin_connection(&shared, id, stream, peer, arriving);
            }
            Err(error) => {
                // Most likely out of file descriptors: wait for some connection to end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Among those that have just been accepted, until dropped.
pub(crate) type Arriving = OwnedSemaphorePermit;

fn begin_connection(shared: &Arc<Shared>, id: u64, stream: TcpStream, peer: SocketAddr, arriving: Arriving) {
    let stats = &shared.stats;
    if stats.connections_open.load(Ordering::Relaxed) >= shared.settings.connections_max {
        stats.connections_refused.fetch_add(1, Ordering::Relaxed);
        return;
    }
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "the connection is gone already");
        return;
    }
    stats.connections_opened.fetch_add(1, Ordering::Relaxed);
    stats.connections_open.fetch_add(1, Ordering::Relaxed);
    let control = Arc::new(Control::default());
    shared.connections.lock().insert(id, Arc::clone(&control));
    if shared.stopping.load(Ordering::SeqCst) {
        control.stop();
    }
    let open = OpenConnection { shared: Arc::clone(shared), id };
    let task = ConnectionTask::new(Arc::clone(shared), control, id, stream, peer);
    tokio::spawn(serve_connection(open, task, arriving));
}

async fn serve_connection(open: OpenConnection, task: ConnectionTask, arriving: Arriving) {
    let mut arriving = Some(arriving);
    let mut opening = pin!(task.open());
    let opened = match tokio::time::timeout(open.shared.settings.arriving_timeout, &mut opening).await {
        Ok(opened) => opened,
        Err(_) => {
            arriving = None;
            opening.await
        }
    };
    let Some((task, agreed)) = opened else { return };
    match &open.shared.lanes {
        None => Calls::new(task, agreed, None, arriving).run().await,
        Some(lanes) => {
            let seat = lanes.deal(agreed.service_name);
            move_to_lane(open, task, agreed, seat, arriving);
        }
    }
}

/// Goes on with the connection on its lane. A socket belongs to the event loop that it is registered with.
fn move_to_lane(
    open: OpenConnection,
    task: ConnectionTask,
    agreed: Agreed,
    seat: Seat,
    arriving: Option<Arriving>,
) {
    let moving = match task.into_moving() {
        Ok(moving) => moving,
        Err(error) => return tracing::warn!(%error, "cannot move a connection to its lane"),
    };
    let lane = seat.handle().clone();
    lane.spawn(async move {
        let _open = open;
        match moving.arrive() {
            Ok(task) => Calls::new(task, agreed, Some(seat), arriving).run().await,
            Err(error) => tracing::warn!(%error, "cannot move a connection to its lane"),
        }
    });
}

/// Takes the connection off the list however its task ends.
struct OpenConnection {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.connections.lock().remove(&self.id);
        self.shared.stats.connections_open.fetch_sub(1, Ordering::Relaxed);
        self.shared.ended.notify_waiters();
    }
}
