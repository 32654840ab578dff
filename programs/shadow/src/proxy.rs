//! A proxy between HBase's clients and a cluster that they need not know of.
//!
//! ```text
//! client ── registry port ──┐                       ┌── master or region server that answers the registry
//!        ── ZooKeeper port ─┤  names of servers     ├── ZooKeeper
//!        ── port of master ─┤  become ports of      ├── master
//!        ── port of rs 1  ──┤  this proxy           ├── region server 1
//!        ── port of rs 2  ──┘ (directory.rs)        └── region server 2
//! ```
//!
//! - `relay.rs` passes a connection on, frame by frame (`frames.rs`). `calls.rs` says what has to be known of a call
//! - `names.rs` changes names of servers in answers (`wire.rs`), so that a client meets only ports of this proxy
//! - `zookeeper.rs` does the same for clients that find a cluster by ZooKeeper
//! - what is observed goes into a queue with a limit in bytes ([`Tap`]), and `observer.rs` makes whole reads of it
//!
//! What must hold: whatever the observer does, a client waits for nothing but its server. Bytes that are wrong end one connection.

pub(crate) mod calls;
pub(crate) mod counts;
pub(crate) mod directory;
pub(crate) mod frames;
pub(crate) mod names;
pub(crate) mod relay;
mod scanners;
pub(crate) mod wire;
mod zookeeper;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use halcyon_client::{ClusterAddress, Sighting, active_master};
use halcyon_schema::ServerName;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::args::ProxyArgs;
use crate::proxy::counts::Counts;
use crate::proxy::directory::{Directory, NewPort};
use crate::proxy::relay::Seen;
use crate::proxy::scanners::Scanners;

/// A server answers a connection within this time.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// After an error of `accept`, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Lines about connections that ended badly, at most.
const TOLD_MAX: u64 = 100;

/// What a listening port leads to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A server that answers the registry, whichever it is.
    Registry,
    /// This one, as `host:port`.
    Server(Arc<str>),
}

/// Limits of a proxy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Frames up to this size are looked at.
    pub(crate) frame_bytes_max: usize,
    /// Connections at a time.
    pub(crate) connections_max: usize,
}

/// See the head of the file. Shared by all connections.
pub(crate) struct Proxy {
    pub(crate) address: ClusterAddress,
    pub(crate) directory: Directory,
    pub(crate) limits: Limits,
    /// Bytes of frames that are not small.
    pub(crate) budget: Arc<Semaphore>,
    pub(crate) scanners: Scanners,
    pub(crate) sample: Sample,
    pub(crate) tap: Tap,
    pub(crate) counts: Counts,
    open: AtomicUsize,
    told: AtomicU64,
    /// The server that answered the registry last.
    registry: Mutex<Option<String>>,
}

/// Which reads are observed.
#[derive(Debug)]
pub(crate) struct Sample {
    /// Of 2^32.
    part: u64,
    calls: AtomicU64,
    seed: u64,
}

impl Sample {
    /// `part` is from 0 to 1.
    pub(crate) fn new(part: f64) -> Sample {
        let seed = u64::from_ne_bytes(halcyon_env::random_bytes());
        Sample { part: (part.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64, calls: AtomicU64::new(0), seed }
    }

    /// Whether the next read is chosen.
    pub(crate) fn take(&self) -> bool {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let chance = xxhash_rust::xxh3::xxh3_64_with_seed(&number.to_ne_bytes(), self.seed) >> 32;
        chance < self.part
    }
}

/// The queue of what was seen, with a limit in bytes.
pub(crate) struct Tap {
    room: Arc<Semaphore>,
    sender: UnboundedSender<Seen>,
}

impl Tap {
    /// Each item has at least this weight, for what it costs beside its bytes.
    const ITEM_BYTES: usize = 512;

    pub(crate) fn new(bytes_max: usize) -> (Tap, UnboundedReceiver<Seen>) {
        let (sender, receiver) = mpsc::unbounded_channel(); // its items hold the permits of a semaphore with a limit
        (Tap { room: Arc::new(Semaphore::new(bytes_max)), sender }, receiver)
    }

    /// Room for an item of so many bytes; `None` if there is none now.
    pub(crate) fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        take_room(&self.room, bytes + Tap::ITEM_BYTES)
    }

    /// Room for more bytes of an item. Whether there was any.
    pub(crate) fn more(&self, room: &mut OwnedSemaphorePermit, bytes: usize) -> bool {
        let more = take_room(&self.room, bytes);
        more.map(|more| room.merge(more)).is_some()
    }

    pub(crate) fn send(&self, seen: Seen) {
        let _ = self.sender.send(seen); // the observer has ended
    }
}

/// Bytes of a limit; `None` if it has not so many now.
pub(crate) fn take_room(room: &Arc<Semaphore>, bytes: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(room).try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
}

/// A proxy that listens.
pub(crate) struct Listening {
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) registry: SocketAddr,
    pub(crate) zookeeper: Option<SocketAddr>,
    pub(crate) seen: UnboundedReceiver<Seen>,
}

/// Finds the cluster, and listens for its clients. The error is a sentence for the user.
pub(crate) async fn listen(args: &ProxyArgs) -> Result<Listening, String> {
    let address = args.cluster.cluster().clone();
    let sighting = Sighting::of(&address, CONNECT_LIMIT).await;
    let sighting = sighting.map_err(|error| format!("cannot reach {}: {error}", args.cluster))?;
    let (registry_listener, registry) = bind(args.bind, args.port).await?;
    let (zookeeper_listener, zookeeper) = match &address {
        ClusterAddress::ZooKeeper { .. } => {
            let (listener, bound) = bind(args.bind, args.zookeeper_port).await?;
            (Some(listener), Some(bound))
        }
        ClusterAddress::Registry { .. } if args.zookeeper_port != 0 => {
            return Err(format!(
                "--zookeeper-port needs a cluster with ZooKeeper; {} has none to pass on",
                args.cluster
            ));
        }
        ClusterAddress::Registry { .. } => (None, None),
    };
    let (new_ports, ports) = mpsc::unbounded_channel();
    let (tap, seen) = Tap::new(args.queue_bytes());
    let directory = Directory::new(args.host(), args.bind, args.servers_port, new_ports);
    let proxy = Arc::new(Proxy {
        address,
        directory,
        limits: Limits { frame_bytes_max: args.frame_bytes(), connections_max: args.connections_max },
        budget: Arc::new(Semaphore::new(args.memory_bytes())),
        scanners: Scanners::default(),
        sample: Sample::new(args.sample),
        tap,
        counts: Counts::default(),
        open: AtomicUsize::new(0),
        told: AtomicU64::new(0),
        registry: Mutex::new(None),
    });
    // Ports in an order that does not depend on who asks first.
    let mut servers: Vec<ServerName> = sighting.region_servers;
    servers.extend(active_master(&proxy.address, CONNECT_LIMIT).await);
    servers.sort_by_key(ServerName::address);
    servers.iter().for_each(|server| drop(proxy.directory.shown_address(&server.address())));
    tokio::spawn(serve_new_ports(Arc::clone(&proxy), ports));
    tokio::spawn(accept(Arc::clone(&proxy), registry_listener, Target::Registry));
    if let Some(listener) = zookeeper_listener {
        tokio::spawn(zookeeper::accept(Arc::clone(&proxy), listener));
    }
    Ok(Listening { proxy, registry, zookeeper, seen })
}

async fn bind(ip: IpAddr, port: u16) -> Result<(TcpListener, SocketAddr), String> {
    let failed = |error| format!("cannot listen on {ip}:{port}: {error}");
    let listener = TcpListener::bind((ip, port)).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Serves each port that the directory binds.
async fn serve_new_ports(proxy: Arc<Proxy>, mut ports: UnboundedReceiver<NewPort>) {
    while let Some(NewPort { listener, server }) = ports.recv().await {
        match TcpListener::from_std(listener) {
            Ok(listener) => {
                tokio::spawn(accept(Arc::clone(&proxy), listener, Target::Server(server.into())));
            }
            Err(error) => eprintln!("shadow: no port for {server}: {error}"),
        }
    }
}

async fn accept(proxy: Arc<Proxy>, listener: TcpListener, target: Target) {
    loop {
        let Ok((client, from)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(place) = proxy.enter() else {
            proxy.refused(&format!("{from}: {} connections are open", proxy.limits.connections_max));
            continue;
        };
        let (proxy, target) = (Arc::clone(&proxy), target.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Err(why) = relay::serve(Arc::clone(&proxy), client, target).await {
                proxy.refused(&format!("connection of {from} ended: {why}"));
            }
        });
    }
}

/// A connection's place among those that are open.
pub(crate) struct Place(Arc<Proxy>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Proxy {
    /// Room for a connection; `None` if there are too many.
    pub(crate) fn enter(self: &Arc<Proxy>) -> Option<Place> {
        self.counts.connections.add();
        let place = Place(Arc::clone(self));
        (self.open.fetch_add(1, Ordering::Relaxed) < self.limits.connections_max).then_some(place)
    }

    /// Counts a connection that ended badly, and says why, for the first of them.
    pub(crate) fn refused(&self, why: &str) {
        self.counts.refused.add();
        if self.told.fetch_add(1, Ordering::Relaxed) < TOLD_MAX {
            eprintln!("shadow: {why}");
        }
    }

    /// Connects to the server behind a port. Returns its `host:port` too.
    pub(crate) async fn connect(&self, target: &Target) -> Result<(Arc<str>, TcpStream), String> {
        let connected = match target {
            Target::Server(server) => dial(server).await.map(|stream| (Arc::clone(server), stream)),
            Target::Registry => self.connect_registry().await,
        };
        connected.inspect_err(|_| self.counts.unreachable.add())
    }

    async fn connect_registry(&self) -> Result<(Arc<str>, TcpStream), String> {
        let known = self.registry.lock().clone();
        if let Some(server) = known {
            if let Ok(stream) = dial(&server).await {
                return Ok((server.into(), stream));
            }
            *self.registry.lock() = None;
        }
        let mut last = "no server answers the registry".to_string();
        for server in self.registry_servers().await {
            match dial(&server).await {
                Ok(stream) => {
                    *self.registry.lock() = Some(server.clone());
                    return Ok((server.into(), stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Servers that answer the registry: the active master first, since region servers before 2.5 do not.
    async fn registry_servers(&self) -> Vec<String> {
        match &self.address {
            ClusterAddress::Registry { servers } => servers.clone(),
            ClusterAddress::ZooKeeper { .. } => {
                let mut servers: Vec<String> = Vec::new();
                if let Ok(master) = active_master(&self.address, CONNECT_LIMIT).await {
                    servers.push(master.address());
                }
                if let Ok(sighting) = Sighting::of(&self.address, CONNECT_LIMIT).await {
                    servers.extend(sighting.region_servers.iter().map(ServerName::address));
                }
                servers
            }
        }
    }
}

#[cfg(test)]
impl Proxy {
    /// One without a cluster, whose queue has room for so many bytes, and all that is seen through it.
    pub(crate) fn with_queue(bytes_max: usize) -> (Arc<Proxy>, UnboundedReceiver<Seen>) {
        let (new_ports, _ports) = mpsc::unbounded_channel();
        let (tap, seen) = Tap::new(bytes_max);
        let proxy = Proxy {
            address: ClusterAddress::Registry { servers: Vec::new() },
            directory: Directory::new("proxy".to_string(), IpAddr::from([127, 0, 0, 1]), 0, new_ports),
            limits: Limits { frame_bytes_max: 1 << 20, connections_max: 1 },
            budget: Arc::new(Semaphore::new(1 << 20)),
            scanners: Scanners::default(),
            sample: Sample::new(1.0),
            tap,
            counts: Counts::default(),
            open: AtomicUsize::new(0),
            told: AtomicU64::new(0),
            registry: Mutex::new(None),
        };
        (Arc::new(proxy), seen)
    }
}

/// A connection to `host:port`. The error names it.
pub(crate) async fn dial(server: &str) -> Result<TcpStream, String> {
    match timeout(CONNECT_LIMIT, TcpStream::connect(server)).await {
        Ok(connected) => connected.map_err(|error| format!("{server}: {error}")),
        Err(_) => Err(format!("{server}: no connection within {CONNECT_LIMIT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_its_size() {
        let taken = |part| {
            let sample = Sample::new(part);
            (0..100_000).filter(|_| sample.take()).count()
        };
        assert_eq!((taken(0.0), taken(1.0)), (0, 100_000));
        let tenth = taken(0.1);
        assert!((9_000..11_000).contains(&tenth), "{tenth}");
    }

    #[test]
    fn a_full_queue_has_no_room() {
        let (tap, _receiver) = Tap::new(2_000);
        let first = tap.room(1_000).unwrap();
        assert!(tap.room(1_000).is_none() && tap.room(usize::MAX / 2).is_none());
        drop(first);
        let mut first = tap.room(400).unwrap();
        assert!(tap.more(&mut first, 600) && !tap.more(&mut first, 1_000));
        assert!(tap.room(1_000).is_none());
        drop(first);
        assert!(tap.room(1_000).is_some());
    }
}
