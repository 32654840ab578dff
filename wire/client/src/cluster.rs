//! A cluster as a client sees it: its address, its servers and their connections, and the rules for retries.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use halcyon_schema::ServerName;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::locations::Locations;
use crate::retry::{Advice, advice, pause};
use crate::status::{DeadServers, StatusListener};
use crate::zookeeper::ZooKeeper;
use crate::{ClientError, ConnectOptions, Connection, Registry, RetryPolicy, StatusOptions};

/// A time that no operation reaches: the end of one without a timeout.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// When a server of the cluster's address says nothing for so long, the next one is asked as well.
const NEXT_AFTER: Duration = Duration::from_millis(300);

/// Where a cluster can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterAddress {
    /// `hbase.zookeeper.quorum` as `host:port`, and `zookeeper.znode.parent`.
    ZooKeeper {
        /// Servers as `host:port`.
        quorum: Vec<String>,
        /// Base znode (`/hbase`).
        base: String,
    },
    /// The RPC registry (`hbase.masters` or bootstrap nodes).
    Registry {
        /// Masters or region servers as `host:port`.
        servers: Vec<String>,
    },
}

impl ClusterAddress {
    /// The ZooKeeper servers of a cluster, as `host:port`, with the base znode `/hbase`.
    pub fn zookeeper<A: Into<String>>(quorum: impl IntoIterator<Item = A>) -> ClusterAddress {
        let quorum = quorum.into_iter().map(Into::into).collect();
        ClusterAddress::ZooKeeper { quorum, base: "/hbase".to_string() }
    }

    /// Masters or region servers of a cluster, as `host:port`.
    pub fn registry<A: Into<String>>(servers: impl IntoIterator<Item = A>) -> ClusterAddress {
        ClusterAddress::Registry { servers: servers.into_iter().map(Into::into).collect() }
    }
}

impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterAddress::ZooKeeper { quorum, base } => write!(f, "ZooKeeper {}{base}", quorum.join(",")),
            ClusterAddress::Registry { servers } => write!(f, "the registry of {}", servers.join(",")),
        }
    }
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Connections to each server; a [`crate::Table`] uses one of them. At least 1.
    pub connections_per_server: usize,
    /// Longest time to make one connection (`hbase.ipc.client.socket.timeout.connect`). Five seconds.
    pub connect_timeout: Duration,
    /// Longest time of one call (`hbase.rpc.timeout`). Ten seconds.
    pub call_timeout: Duration,
    /// Longest time of an operation with all retries (`hbase.client.operation.timeout`). One minute.
    pub operation_timeout: Duration,
    /// Longest time to wait for a procedure of the master (`hbase.client.sync.wait.timeout.msec`). Ten minutes.
    pub procedure_timeout: Duration,
    /// Pauses between attempts, and how many there may be.
    pub retry: RetryPolicy,
    /// How the connections to `ClientService` introduce themselves.
    pub connect: ConnectOptions,
    /// Where masters publish deaths of servers, if the client is to listen (`hbase.status.published`). Default: it does not.
    pub status: Option<StatusOptions>,
}

impl Default for ClusterOptions {
    fn default() -> ClusterOptions {
        ClusterOptions {
            connections_per_server: 1,
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(60),
            procedure_timeout: Duration::from_secs(600),
            retry: RetryPolicy::default(),
            connect: ConnectOptions::new("ClientService"),
            status: None,
        }
    }
}

/// A cluster. Clones are cheap and share connections and the cache of region locations.
///
/// # Thread safety
/// Shared freely. Locks are held for a look-up in a map, never while waiting for the network. Two asynchronous locks are
/// the exception: one task connects, and one task for each table reads `hbase:meta`, while others wait for the result.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    address: ClusterAddress,
    /// The server of the address that has answered last; the next question goes there first.
    answered: AtomicUsize,
    pub(crate) options: ClusterOptions,
    servers: Mutex<HashMap<String, Arc<Server>>>,
    pub(crate) locations: Locations,
    /// Retries by the exception's simple class.
    retries: Mutex<BTreeMap<String, u64>>,
    /// Sent with every nonce of this client.
    pub(crate) nonce_group: u64,
    pub(crate) dead: Mutex<DeadServers>,
    status: OnceLock<StatusListener>,
}

/// One region server and the connections to it.
pub(crate) struct Server {
    address: String,
    connections: Vec<Slot>,
    admin: Slot,
    /// The latest start of the server at this address that is known, -1 without one.
    start_code: AtomicI64,
    is_dead: AtomicBool,
    died: Notify,
}

#[derive(Default)]
struct Slot {
    current: Mutex<Option<Arc<Connection>>>,
    connecting: tokio::sync::Mutex<()>,
}

impl Server {
    /// `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// As [`Server::connection`], if there is a connection already: most calls need not wait for one.
    pub(crate) fn open_connection(&self, number: usize) -> Option<Arc<Connection>> {
        self.connections[number % self.connections.len()].usable()
    }

    /// Connection `number` modulo their count; made anew if it has ended.
    pub(crate) async fn connection(
        &self,
        number: usize,
        options: &ClusterOptions,
    ) -> Result<Arc<Connection>, ClientError> {
        let slot = &self.connections[number % self.connections.len()];
        self.while_alive(slot.connection(&self.address, &options.connect, options.connect_timeout)).await
    }

    /// The connection to `AdminService`.
    pub(crate) async fn admin(&self, options: &ClusterOptions) -> Result<Arc<Connection>, ClientError> {
        let connect = service_options(options, "AdminService");
        self.while_alive(self.admin.connection(&self.address, &connect, options.connect_timeout)).await
    }

    /// Whether a master has published its death.
    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Acquire)
    }

    /// Nobody waits for a connection to a server that is dead.
    async fn while_alive<T>(
        &self,
        connecting: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let died = self.died.notified();
        if self.is_dead() {
            return Err(self.dead_error());
        }
        tokio::select! {
            connected = connecting => if self.is_dead() { Err(self.dead_error()) } else { connected },
            () = died => Err(self.dead_error()),
        }
    }

    fn dead_error(&self) -> ClientError {
        let text = format!("{} was published as dead", self.address);
        std::io::Error::new(std::io::ErrorKind::ConnectionAborted, text).into()
    }

    /// Ends all connections: calls under way fail, and are tried again elsewhere.
    fn end(&self) {
        self.is_dead.store(true, Ordering::Release);
        self.died.notify_waiters();
        for slot in self.connections.iter().chain([&self.admin]) {
            if let Some(connection) = slot.current.lock().take() {
                connection.end(self.dead_error());
            }
        }
    }
}

impl Slot {
    async fn connection(
        &self,
        address: &str,
        options: &ConnectOptions,
        connect_timeout: Duration,
    ) -> Result<Arc<Connection>, ClientError> {
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        let connection = Arc::new(connect(address, options, connect_timeout).await?);
        *self.current.lock() = Some(Arc::clone(&connection));
        Ok(connection)
    }

    fn usable(&self) -> Option<Arc<Connection>> {
        self.current.lock().as_ref().filter(|connection| !connection.has_ended()).cloned()
    }
}

/// How to connect to another service than `ClientService`: without cells, as the same user.
fn service_options(options: &ClusterOptions, service: &str) -> ConnectOptions {
    let (service, user) = (service.to_string(), options.connect.user.clone());
    let (version, version_suffix) = (options.connect.version, options.connect.version_suffix.clone());
    ConnectOptions { user, version, version_suffix, codec: None, ..ConnectOptions::new(service) }
}

/// A connection within the timeout; errors name the address.
async fn connect(
    address: &str,
    options: &ConnectOptions,
    connect_timeout: Duration,
) -> Result<Connection, ClientError> {
    match timeout(connect_timeout, Connection::connect(address, options)).await {
        Ok(Err(ClientError::Io(error))) => {
            Err(std::io::Error::new(error.kind(), format!("{address}: {error}")).into())
        }
        Ok(connected) => connected,
        Err(_) => Err(ClientError::timed_out(format!("{address}: no connection within {connect_timeout:?}"))),
    }
}

impl Cluster {
    /// Finds the cluster, asking once: the error comes within seconds and says who was asked.
    pub async fn connect(address: ClusterAddress, options: ClusterOptions) -> Result<Cluster, ClientError> {
        let listens_to = options.status.clone();
        if options.connections_per_server == 0 {
            return Err(ClientError::invalid("connections_per_server must be at least 1"));
        }
        let cluster = Cluster {
            inner: Arc::new(Inner {
                address,
                answered: AtomicUsize::new(0),
                options,
                servers: Mutex::default(),
                locations: Locations::default(),
                retries: Mutex::default(),
                nonce_group: random_number(),
                dead: Mutex::default(),
                status: OnceLock::new(),
            }),
        };
        if let Some(status) = listens_to {
            let listener = StatusListener::start(&status, Arc::downgrade(&cluster.inner))?;
            let _ = cluster.inner.status.set(listener);
        }
        let server = cluster.meta_server().await?;
        let server = cluster.server(&server.address());
        server.connection(0, &cluster.inner.options).await?;
        Ok(cluster)
    }

    /// Where the cluster was found.
    pub fn address(&self) -> &ClusterAddress {
        &self.inner.address
    }

    /// Retries so far, by the exception's simple class (`Io` for broken connections).
    pub fn retries(&self) -> BTreeMap<String, u64> {
        self.inner.retries.lock().clone()
    }

    pub(crate) async fn meta_server(&self) -> Result<ServerName, ClientError> {
        self.find("the server of hbase:meta", Wanted::Meta).await
    }

    pub(crate) async fn active_master(&self) -> Result<ServerName, ClientError> {
        self.find("an active master", Wanted::Master).await
    }

    /// Asks the servers of the address in turn. One that says nothing delays the next by [`NEXT_AFTER`] only, and the next
    /// look-up begins with the one that has answered.
    async fn find(&self, what: &str, wanted: Wanted) -> Result<ServerName, ClientError> {
        let servers = match &self.inner.address {
            ClusterAddress::ZooKeeper { quorum, .. } => quorum,
            ClusterAddress::Registry { servers } => servers,
        };
        let first = self.inner.answered.load(Ordering::Relaxed);
        let mut turns = (0..servers.len()).map(|turn| (first + turn) % servers.len());
        let mut asked = FuturesUnordered::new();
        let mut last = None;
        loop {
            let turn = turns.next();
            let is_last = turn.is_none();
            if let Some(at) = turn {
                asked.push(async move { (at, self.answer_of(&servers[at], wanted).await) });
            }
            let answer = match is_last {
                true => asked.next().await,
                false => timeout(NEXT_AFTER, asked.next()).await.unwrap_or_default(),
            };
            match answer {
                Some((at, Ok(name))) => {
                    self.inner.answered.store(at, Ordering::Relaxed);
                    return Ok(name);
                }
                Some((_, Err(why))) => last = Some(why),
                None if is_last => break,
                None => {}
            }
        }
        let why = last.unwrap_or_else(|| "no address was given".to_string());
        let text = format!("cannot find {what} through {}: {why}", self.inner.address);
        Err(std::io::Error::new(std::io::ErrorKind::NotFound, text).into())
    }

    /// The answer of one server; the error says why there is none.
    async fn answer_of(&self, server: &str, wanted: Wanted) -> Result<ServerName, String> {
        let limit = self.inner.options.connect_timeout;
        match timeout(limit, self.ask(server, wanted)).await {
            Ok(Ok(Some(name))) => Ok(name),
            Ok(Ok(None)) => Err(format!("{server} knows of no such server")),
            Ok(Err(error)) => Err(format!("{server}: {error}")),
            Err(_) => Err(format!("{server}: no response within {limit:?}")),
        }
    }

    async fn ask(&self, server: &str, wanted: Wanted) -> Result<Option<ServerName>, ClientError> {
        match &self.inner.address {
            ClusterAddress::ZooKeeper { base, .. } => {
                let mut session = ZooKeeper::connect(server).await?;
                let found = match wanted {
                    Wanted::Meta => session.meta_server(base).await,
                    Wanted::Master => session.active_master(base).await,
                };
                session.close().await;
                found
            }
            ClusterAddress::Registry { .. } => {
                let registry = Registry::connect(server).await?;
                match wanted {
                    Wanted::Meta => registry.meta_server().await.map(Some),
                    Wanted::Master => registry.active_master().await.map(Some),
                }
            }
        }
    }

    /// The server at `host:port`.
    pub(crate) fn server(&self, address: &str) -> Arc<Server> {
        let mut servers = self.inner.servers.lock();
        if let Some(server) = servers.get(address) {
            return Arc::clone(server);
        }
        let mut connections = Vec::new();
        connections.resize_with(self.inner.options.connections_per_server, Slot::default);
        let server = Arc::new(Server {
            address: address.to_string(),
            connections,
            admin: Slot::default(),
            start_code: AtomicI64::new(-1),
            is_dead: AtomicBool::new(false),
            died: Notify::new(),
        });
        servers.insert(address.to_string(), Arc::clone(&server));
        server
    }

    /// The server with this name, or its successor at the same address.
    pub(crate) fn named_server(&self, name: &ServerName) -> Arc<Server> {
        let server = self.server(&name.address());
        server.start_code.fetch_max(name.start_code, Ordering::AcqRel);
        server
    }

    /// Ends the connections to a server that is dead, unless another one has been at its address since.
    pub(crate) fn end_server(&self, dead: &ServerName) {
        let mut servers = self.inner.servers.lock();
        let address = dead.address();
        let is_it = |server: &Arc<Server>| server.start_code.load(Ordering::Acquire) <= dead.start_code;
        if servers.get(&address).is_some_and(is_it)
            && let Some(server) = servers.remove(&address)
        {
            drop(servers);
            server.end();
        }
    }

    /// A new connection to another service of a server (`MasterService`).
    pub(crate) async fn service(&self, address: &str, service: &str) -> Result<Connection, ClientError> {
        let options = &self.inner.options;
        connect(address, &service_options(options, service), options.connect_timeout).await
    }

    /// When an operation that begins now has to be given up.
    pub(crate) fn deadline(&self) -> Instant {
        after(self.inner.options.operation_timeout)
    }

    /// Time that a call of the operation may take.
    pub(crate) fn call_timeout(&self, deadline: Instant) -> Duration {
        deadline.saturating_duration_since(Instant::now()).min(self.inner.options.call_timeout)
    }

    /// Waits before retry `number` of an operation. Returns the error if no retry will help, there were too many, or the
    /// deadline would pass.
    pub(crate) async fn wait_to_retry(
        &self,
        error: ClientError,
        number: u32,
        deadline: Instant,
    ) -> Result<Advice, ClientError> {
        let (advice, policy) = (advice(&error), &self.inner.options.retry);
        // up to a quarter more, so that clients that failed together do not come back together
        let [chance] = halcyon_env::random_bytes();
        let pause = pause(policy, &error, number).mul_f64(1.0 + f64::from(chance) / 1024.0);
        if advice == Advice::Fail || number >= policy.retries_max || Instant::now() + pause > deadline {
            return Err(error);
        }
        self.count_retry(&error);
        if advice != Advice::Reopen || number > 0 {
            tokio::time::sleep(pause).await;
        }
        Ok(advice)
    }

    fn count_retry(&self, error: &ClientError) {
        *self.inner.retries.lock().entry(error.class().to_string()).or_default() += 1;
    }
}

/// The instant at the end of a timeout that begins now.
pub(crate) fn after(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(FAR)
}

/// Not 0, which means that there is no nonce.
pub(crate) fn random_number() -> u64 {
    u64::from_ne_bytes(halcyon_env::random_bytes()) | 1
}

#[derive(Clone, Copy)]
enum Wanted {
    Meta,
    Master,
}
