//! A cluster as a client sees it: where it is, its servers, its regions, and patience.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use halcyon_schema::ServerName;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::locations::Locations;
use crate::retry::{Advice, advice, pause};
use crate::zookeeper::ZooKeeper;
use crate::{ClientError, ConnectOptions, Connection, Registry};

/// Longest time to make one connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a cluster can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterAddress {
    /// `hbase.zookeeper.quorum` as `host:port`, and `zookeeper.znode.parent`.
    ZooKeeper { quorum: Vec<String>, base: String },
    /// `hbase.masters` or bootstrap servers as `host:port`: the RPC registry.
    Registry { servers: Vec<String> },
}

impl fmt::Display for ClusterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterAddress::ZooKeeper { quorum, base } => write!(f, "ZooKeeper {}{base}", quorum.join(",")),
            ClusterAddress::Registry { servers } => write!(f, "the registry of {}", servers.join(",")),
        }
    }
}

/// How a client works. Plain data.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Connections to each server; a [`crate::Table`] uses one of them. At least 1.
    pub connections_per_server: usize,
    /// Time one call may take (`hbase.rpc.timeout`). Ten seconds.
    pub call_timeout: Duration,
    /// Time an operation may take with all retries (`hbase.client.operation.timeout`). One minute.
    pub operation_timeout: Duration,
    /// How the connections to `ClientService` introduce themselves.
    pub connect: ConnectOptions,
}

impl Default for ClusterOptions {
    fn default() -> ClusterOptions {
        ClusterOptions {
            connections_per_server: 1,
            call_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(60),
            connect: ConnectOptions::new("ClientService"),
        }
    }
}

/// A cluster: cheap to clone, all clones share connections and the cache of locations.
///
/// # Thread safety
/// Shared freely. Locks are held for a look-up in a map, never while waiting for the network, but for two
/// asynchronous ones: one task connects, and one task reads `hbase:meta`, while others wait for its result.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    address: ClusterAddress,
    pub(crate) options: ClusterOptions,
    servers: Mutex<HashMap<String, Arc<Server>>>,
    pub(crate) locations: Locations,
    /// How often something was tried again, by the exception's simple class.
    retries: Mutex<BTreeMap<String, u64>>,
}

/// One region server and the connections to it.
pub(crate) struct Server {
    address: String,
    connections: Vec<Slot>,
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

    /// Connection `number` modulo their count; made anew if it has ended.
    pub(crate) async fn connection(
        &self,
        number: usize,
        options: &ConnectOptions,
    ) -> Result<Arc<Connection>, ClientError> {
        let slot = &self.connections[number % self.connections.len()];
        if let Some(connection) = slot.usable() {
            return Ok(connection);
        }
        let _one_at_a_time = slot.connecting.lock().await;
        if let Some(connection) = slot.usable() {
            return Ok(connection);
        }
        let connection = Arc::new(connect(&self.address, options).await?);
        *slot.current.lock() = Some(Arc::clone(&connection));
        Ok(connection)
    }
}

impl Slot {
    fn usable(&self) -> Option<Arc<Connection>> {
        self.current.lock().as_ref().filter(|connection| !connection.has_ended()).cloned()
    }
}

/// A connection within [`CONNECT_TIMEOUT`]; errors name the address.
async fn connect(address: &str, options: &ConnectOptions) -> Result<Connection, ClientError> {
    match timeout(CONNECT_TIMEOUT, Connection::connect(address, options)).await {
        Ok(Err(ClientError::Io(error))) => {
            Err(std::io::Error::new(error.kind(), format!("{address}: {error}")).into())
        }
        Ok(connected) => connected,
        Err(_) => Err(timed_out(format!("{address}: no connection within {CONNECT_TIMEOUT:?}"))),
    }
}

pub(crate) fn timed_out(text: String) -> ClientError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, text).into()
}

impl Cluster {
    /// Finds the cluster, asking once: the error comes within seconds and says who was asked.
    pub async fn connect(address: ClusterAddress, options: ClusterOptions) -> Result<Cluster, ClientError> {
        assert!(options.connections_per_server > 0, "a client needs a connection");
        let cluster = Cluster {
            inner: Arc::new(Inner {
                address,
                options,
                servers: Mutex::default(),
                locations: Locations::default(),
                retries: Mutex::default(),
            }),
        };
        let server = cluster.meta_server().await?;
        let server = cluster.server(&server.address());
        server.connection(0, &cluster.inner.options.connect).await?;
        Ok(cluster)
    }

    pub fn address(&self) -> &ClusterAddress {
        &self.inner.address
    }

    /// How often calls were tried again, by the exception's simple class (`Io` for broken connections).
    pub fn retries(&self) -> BTreeMap<String, u64> {
        self.inner.retries.lock().clone()
    }

    pub(crate) async fn meta_server(&self) -> Result<ServerName, ClientError> {
        self.find("the server of hbase:meta", Wanted::Meta).await
    }

    pub(crate) async fn active_master(&self) -> Result<ServerName, ClientError> {
        self.find("an active master", Wanted::Master).await
    }

    /// Asks the servers of the address one after the other.
    async fn find(&self, what: &str, wanted: Wanted) -> Result<ServerName, ClientError> {
        let mut last = None;
        let servers = match &self.inner.address {
            ClusterAddress::ZooKeeper { quorum, .. } => quorum,
            ClusterAddress::Registry { servers } => servers,
        };
        for server in servers {
            match timeout(CONNECT_TIMEOUT, self.ask(server, wanted)).await {
                Ok(Ok(Some(name))) => return Ok(name),
                Ok(Ok(None)) => last = Some(format!("{server} knows of no such server")),
                Ok(Err(error)) => last = Some(format!("{server}: {error}")),
                Err(_) => last = Some(format!("{server}: no answer within {CONNECT_TIMEOUT:?}")),
            }
        }
        let why = last.unwrap_or_else(|| "no address was given".to_string());
        let text = format!("{what} is not to be found at {}: {why}", self.inner.address);
        Err(std::io::Error::new(std::io::ErrorKind::NotFound, text).into())
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
        let server = Arc::new(Server { address: address.to_string(), connections });
        servers.insert(address.to_string(), Arc::clone(&server));
        server
    }

    /// A connection of its own to another service of a server (`AdminService`, `MasterService`).
    pub(crate) async fn service(&self, address: &str, service: &str) -> Result<Connection, ClientError> {
        connect(address, &ConnectOptions { codec: None, ..ConnectOptions::new(service) }).await
    }

    /// When an operation that begins now has to be given up.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.inner.options.operation_timeout
    }

    /// Waits before retry `number` of an operation; the error comes back if nothing will help or time is over.
    pub(crate) async fn wait_to_retry(
        &self,
        error: ClientError,
        number: u32,
        deadline: Instant,
    ) -> Result<Advice, ClientError> {
        let advice = advice(&error);
        // up to a quarter more, so that clients that failed together do not come back together
        let [chance] = halcyon_env::random_bytes();
        let pause = pause(&error, number).mul_f64(1.0 + f64::from(chance) / 1024.0);
        if advice == Advice::Fail || Instant::now() + pause > deadline {
            return Err(error);
        }
        self.count_retry(&error);
        if advice != Advice::Reopen || number > 0 {
            tokio::time::sleep(pause).await;
        }
        Ok(advice)
    }

    pub(crate) fn count_retry(&self, error: &ClientError) {
        *self.inner.retries.lock().entry(error.class().to_string()).or_default() += 1;
    }
}

#[derive(Clone, Copy)]
enum Wanted {
    Meta,
    Master,
}
