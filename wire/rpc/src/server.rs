//! The server of a port: accepts connections, gives each to an event loop, and drains them when it stops.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use halcyon_env::Clock;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;

use crate::calls::Calls;
use crate::connection::ConnectionTask;
use crate::event_loops::LoopHandle;
use crate::shared::{Agreed, Arriving, Control, RpcSettings, Services, Shared};
use crate::{CallTracer, EventLoops, Queues, RpcStats};

/// Connections that wait to be accepted; after an outage all clients come at once.
const BACKLOG_MAX: u32 = 4096;
/// Connections that are accepted and had no turn of calls yet; while there are so many, others wait to be accepted. However
/// fast clients come and leave, those who stay wait behind so many newcomers at most.
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
        let arriving = places.clone().acquire_owned().await.expect("the semaphore is never closed");
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
    match &open.shared.event_loops {
        None => Calls::new(task, agreed, None, arriving).run().await,
        Some(event_loops) => {
            let loop_handle = event_loops.assign(agreed.service_name);
            move_to_event_loop(open, task, agreed, loop_handle, arriving);
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
