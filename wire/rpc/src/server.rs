//! The server of a port: accepts connections, gives each to an event loop, and drains them when it stops.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use halcyon_env::Clock;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::calls::Calls;
use crate::connection::ConnectionTask;
use crate::event_loops::LoopHandle;
use crate::peers::unpacking_max;
use crate::shared::{Agreed, Arriving, Control, RpcSettings, Services, Shared};
use crate::turns::Turns;
use crate::{CallTracer, EventLoops, Peers, Queues, RpcStats};

/// Connections that wait to be accepted; after an outage all clients come at once.
const BACKLOG_MAX: u32 = 4096;
/// Newcomers that there is something to do for, until their first turn of calls; while there are so many, others wait,
/// most of them to be accepted. However fast clients come and leave, those who stay wait behind so many newcomers at most.
/// A newcomer that has not sent its header is no work, and keeps nobody out.
const ARRIVING_MAX: usize = 64;
/// How often it is looked whether clients take their answers.
const SILENT_CHECK_PERIOD: Duration = Duration::from_millis(250);

/// A port that is taken but not served yet: clients that connect wait.
pub struct BoundServer {
    listener: TcpListener,
    address: SocketAddr,
    settings: RpcSettings,
    clock: Arc<dyn Clock>,
    event_loops: Option<Arc<EventLoops>>,
    tracer: Option<Arc<CallTracer>>,
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
        Ok(BoundServer { listener, address, settings, clock, event_loops: None, tracer: None, queues })
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

impl BoundServer {
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves connections on these event loops instead of the caller's runtime.
    pub fn on_event_loops(self, event_loops: Arc<EventLoops>) -> BoundServer {
        BoundServer { event_loops: Some(event_loops), ..self }
    }

    /// Counts calls that wait together with other servers of the process; the limits are those of `queues`.
    pub fn sharing(self, queues: Arc<Queues>) -> BoundServer {
        BoundServer { queues, ..self }
    }

    /// Traces calls; `None`: none, as without this.
    pub fn traced_by(self, tracer: Option<Arc<CallTracer>>) -> BoundServer {
        BoundServer { tracer, ..self }
    }

    /// Begins to serve. `cluster_id` is what clients with an RPC registry ask for before anything else.
    pub fn serve(self, services: Services, cluster_id: impl Into<String>) -> RpcServer {
        let shared = Arc::new(Shared {
            peers: Peers::new(self.settings.connections_max, self.settings.peer_share),
            arriving: Arc::new(Semaphore::new(ARRIVING_MAX)),
            unpacking: Turns::new(unpacking_max()),
            settings: self.settings,
            services,
            cluster_id: cluster_id.into(),
            clock: self.clock,
            stats: RpcStats::default(),
            event_loops: self.event_loops,
            tracer: self.tracer,
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

/// Looks after connections whose clients take nothing, or send a part of a frame and no more: what waits for them is made
/// to keep nothing else alive, and they are closed when room is short. Ends with the server.
async fn leave_silent(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(SILENT_CHECK_PERIOD).await;
        let Some(shared) = shared.upgrade() else { return };
        if shared.queues.response_bytes() == 0 && shared.queues.request_bytes() == 0 {
            continue;
        }
        let now_ns = shared.clock.monotonic_ns();
        let is_crowded = shared.queues.is_crowded();
        let keeps_others_out = |id: u64, control: &Control| {
            let needs = |frame| shared.queues.is_needed_by_others(&frame, &control.peer, id, now_ns);
            control.late_frame(now_ns).is_some_and(needs)
        };
        for (id, control) in shared.connections.lock().iter() {
            if control.fit_if_silent(now_ns, SILENT_CHECK_PERIOD) {
                control.wake();
            }
            let limit = shared.settings.silent_timeout;
            let why = if is_crowded && control.is_silent(now_ns, limit) {
                "takes no answers"
            } else if keeps_others_out(*id, control) {
                "does not send the rest of a request"
            } else {
                continue;
            };
            tracing::warn!(connection = id, "left a client that {why}: there is no room for more");
            shared.stats.connections_left.fetch_add(1, Ordering::Relaxed);
            control.close();
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    loop {
        let arriving = place_of_newcomer(&shared).await;
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

fn begin_connection(shared: &Arc<Shared>, id: u64, stream: TcpStream, peer: SocketAddr, arriving: Arriving) {
    let stats = &shared.stats;
    let Some(place) = shared.peers.enter(peer.ip()) else {
        stats.connections_refused.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%peer, open = shared.peers.connections(), "no connection is left for this peer");
        return;
    };
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "the connection is gone already");
        return;
    }
    stats.connections_opened.fetch_add(1, Ordering::Relaxed);
    stats.connections_open.fetch_add(1, Ordering::Relaxed);
    let control = Arc::new(Control::new(Arc::clone(place.peer())));
    shared.connections.lock().insert(id, Arc::clone(&control));
    if shared.stopping.load(Ordering::SeqCst) {
        control.stop();
    }
    let open = OpenConnection { shared: Arc::clone(shared), id };
    let task = ConnectionTask::new(Arc::clone(shared), control, id, stream, peer, place);
    tokio::spawn(serve_connection(open, task, arriving));
}

/// Waits until a newcomer may have its turn.
async fn place_of_newcomer(shared: &Shared) -> Arriving {
    let places = Arc::clone(&shared.arriving);
    places.acquire_owned().await.expect("the semaphore is never closed")
}

async fn serve_connection(open: OpenConnection, task: ConnectionTask, arriving: Arriving) {
    let shared = Arc::clone(&open.shared);
    let mut opening = pin!(task.open());
    let at_once = std::future::poll_fn(|cx| Poll::Ready(opening.as_mut().poll(cx))).await;
    let (opened, arriving) = match at_once {
        Poll::Ready(opened) => (opened, Some(arriving)),
        Poll::Pending => {
            drop(arriving); // whoever says nothing keeps nobody out
            (opening.await, None)
        }
    };
    let Some((task, agreed)) = opened else { return };
    let arriving = match arriving {
        Some(arriving) => arriving,
        None => place_of_newcomer(&shared).await,
    };
    match &shared.event_loops {
        None => Calls::new(task, agreed, None, Some(arriving)).run().await,
        Some(event_loops) => {
            let loop_handle = event_loops.assign(agreed.service_name);
            move_to_event_loop(open, task, agreed, loop_handle, Some(arriving));
        }
    }
}

/// Goes on with the connection on its event loop. A socket belongs to the event loop that it is registered with.
fn move_to_event_loop(
    open: OpenConnection,
    task: ConnectionTask,
    agreed: Agreed,
    loop_handle: LoopHandle,
    arriving: Option<Arriving>,
) {
    let moving = match task.into_moving() {
        Ok(moving) => moving,
        Err(error) => return tracing::warn!(%error, "cannot move a connection to its event loop"),
    };
    let event_loop = loop_handle.handle().clone();
    event_loop.spawn(async move {
        let _open = open;
        match moving.arrive() {
            Ok(task) => Calls::new(task, agreed, Some(loop_handle), arriving).run().await,
            Err(error) => tracing::warn!(%error, "cannot move a connection to its event loop"),
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
