use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use halcyon_rpc::{PeerPlace, Peers};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::jute::{Malformed, Reader, Writer};
use crate::request::{Next, answer};
use crate::{ZnodeTree, words};

/// A session ends after this much silence: bounds for what a client may ask for, as of ZooKeeper with a tick
/// of 2 s, but up to HBase's own default.
const SESSION_TIMEOUT_MS_MIN: i32 = 4_000;
const SESSION_TIMEOUT_MS_MAX: i32 = 90_000;
const PASSWORD_LEN: usize = 16;
/// A small memory is no reason for fewer connections: those that wait hold nothing.
const CONNECTIONS_MIN: usize = 512;
/// Room for a read: most requests fit.
const READ_BYTES: usize = 512;
/// What a session holds beside the request at hand: its answer, and what was read behind the request.
const KEPT_BYTES: usize = 1 << 10;

/// Limits. Plain data.
#[derive(Clone, Debug, PartialEq)]
pub struct ZkSettings {
    /// Longest request in bytes. 4 KiB: all requests that are answered name a path. ZooKeeper takes 1 MiB
    /// (`jute.maxbuffer`), for data that is written, which nobody may do here. A longer one ends its connection.
    pub frame_bytes_max: usize,
    /// Open connections; one more is closed at once. 4,096.
    pub connections_max: usize,
    /// What the connections of one address may have of them: this part of what the others leave (`halcyon.peer.share`).
    pub peer_share: f64,
    /// Time for the first request, and for the rest of each request that has begun. Ten seconds.
    pub connect_timeout: Duration,
    /// Time for a client to take an answer. Ten seconds.
    pub write_timeout: Duration,
}

impl Default for ZkSettings {
    fn default() -> ZkSettings {
        ZkSettings {
            frame_bytes_max: 4 << 10,
            connections_max: 4_096,
            peer_share: 0.5,
            connect_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
        }
    }
}

impl ZkSettings {
    /// What all sessions together may hold.
    pub fn held_bytes_max(&self) -> usize {
        self.connections_max * (self.frame_bytes_max + KEPT_BYTES)
    }

    /// As many connections as may be within so much memory, but at least some hundred.
    pub fn within(self, bytes: usize) -> ZkSettings {
        let fitting = (bytes / (self.frame_bytes_max + KEPT_BYTES)).max(CONNECTIONS_MIN);
        ZkSettings { connections_max: self.connections_max.min(fitting), ..self }
    }
}

/// A running endpoint; ends when dropped.
pub struct ZkServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
    shared: Arc<Shared>,
    /// Dropped to tell the connections.
    _stop: watch::Sender<()>,
}

struct Shared {
    tree: Arc<ZnodeTree>,
    settings: ZkSettings,
    peers: Arc<Peers>,
    counters: Counters,
    stop: watch::Receiver<()>,
}

/// What the four letter words tell.
#[derive(Default)]
pub(crate) struct Counters {
    connections: AtomicUsize,
    received: AtomicU64,
    sent: AtomicU64,
    /// Bytes of buffers of all sessions.
    held_bytes: AtomicUsize,
}

pub(crate) struct Seen {
    pub connections: usize,
    pub received: u64,
    pub sent: u64,
}

impl Counters {
    pub fn seen(&self) -> Seen {
        Seen {
            connections: self.connections.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
        }
    }
}

impl ZkServer {
    /// Takes the port (0: any) and answers. The error names the address.
    pub async fn bind(
        address: SocketAddr,
        tree: Arc<ZnodeTree>,
        settings: ZkSettings,
    ) -> io::Result<ZkServer> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(named)?;
        let address = listener.local_addr()?;
        let (stop_sender, stop) = watch::channel(());
        let peers = Peers::new(settings.connections_max, settings.peer_share);
        let shared = Arc::new(Shared { tree, settings, peers, counters: Counters::default(), stop });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(ZkServer { address, accepting, shared, _stop: stop_sender })
    }

    /// Bytes that the buffers of all sessions hold.
    pub fn held_bytes(&self) -> usize {
        self.shared.counters.held_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that they may hold: what each session keeps while it waits, and a request.
    pub fn held_bytes_max(&self) -> usize {
        self.shared.settings.held_bytes_max()
    }

    /// Reads what the sessions hold, and may hold, for as long as the endpoint is there.
    pub fn account(&self) -> impl Fn() -> (usize, usize) + Send + Sync + use<> {
        let (shared, max) = (Arc::downgrade(&self.shared), self.held_bytes_max());
        move || {
            let held = |shared: Arc<Shared>| shared.counters.held_bytes.load(Ordering::Relaxed);
            (shared.upgrade().map_or(0, held), max)
        }
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ZkServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Some(place) = shared.peers.enter(peer.ip()) else {
                    tracing::debug!(%peer, "no connection is left for this peer");
                    continue;
                };
                let open = OpenConnection::new(&shared, place);
                tokio::spawn(async move {
                    let mut stop = open.shared.stop.clone();
                    let session = Session::new(stream, &open.shared);
                    tokio::select! {
                        end = session.run() => {
                            if let Err(error) = end {
                                tracing::debug!(%peer, %error, "connection ended");
                            }
                        }
                        _ = stop.changed() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Counts itself.
struct OpenConnection {
    shared: Arc<Shared>,
    _place: PeerPlace,
}

impl OpenConnection {
    fn new(shared: &Arc<Shared>, place: PeerPlace) -> OpenConnection {
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection { shared: Arc::clone(shared), _place: place }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.shared.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection; its session lives as long.
struct Session<'a> {
    stream: TcpStream,
    shared: &'a Shared,
    input: BytesMut,
    output: BytesMut,
    /// Of `held_bytes` of the counters.
    held_bytes: usize,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.hold(0);
    }
}

impl Session<'_> {
    fn new(stream: TcpStream, shared: &Shared) -> Session<'_> {
        Session { stream, shared, input: BytesMut::new(), output: BytesMut::new(), held_bytes: 0 }
    }

    /// Counts what its buffers hold.
    fn hold(&mut self, bytes: usize) {
        let held_bytes = &self.shared.counters.held_bytes;
        held_bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = held_bytes.fetch_sub(self.held_bytes, Ordering::Relaxed);
        assert!(before >= self.held_bytes, "a session gives back what it was counted with");
        self.held_bytes = bytes;
    }

    async fn run(mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let limit = self.shared.settings.connect_timeout;
        let Some(first) = timeout(limit, self.first_frame()).await?? else { return Ok(()) };
        let session_timeout = self.connect(&first)?;
        drop(first);
        self.write().await?;

        loop {
            if self.input.is_empty() {
                (self.input, self.output) = (BytesMut::new(), BytesMut::new());
                self.hold(0); // as long as it waits for nothing
                timeout(session_timeout, self.stream.readable()).await??;
            }
            // What has begun comes soon: a client that sends a part of a request and then nothing goes.
            let frame = timeout(limit.min(session_timeout), self.frame()).await??;
            self.shared.counters.received.fetch_add(1, Ordering::Relaxed);
            let next = answer(&frame, &self.shared.tree, &mut self.output).map_err(malformed)?;
            drop(frame);
            self.hold(self.input.capacity() + self.output.capacity());
            self.shared.counters.sent.fetch_add(1, Ordering::Relaxed);
            self.write().await?;
            if next == Next::Close {
                return self.stream.shutdown().await;
            }
        }
    }

    /// The connect request; `None` if it was a four letter word, which is answered.
    async fn first_frame(&mut self) -> io::Result<Option<Bytes>> {
        self.fill(4).await?;
        let word = *self.input.first_chunk().expect("four bytes are there");
        let Some(text) = words::answer(word, &self.shared.tree, &self.shared.counters) else {
            return Ok(Some(self.frame().await?));
        };
        self.output.put_slice(text.as_bytes());
        self.write().await?;
        self.stream.shutdown().await?;
        Ok(None)
    }

    /// Writes what there is. A client that does not take it goes: others wait for its place.
    async fn write(&mut self) -> io::Result<()> {
        timeout(self.shared.settings.write_timeout, self.stream.write_all_buf(&mut self.output)).await?
    }

    /// Opens the session, or goes on with one from before: nothing hangs on it. Returns how long the client
    /// may be silent.
    fn connect(&mut self, frame: &[u8]) -> io::Result<Duration> {
        let mut request = Reader::new(frame);
        let request = ConnectRequest::read(&mut request).map_err(malformed)?;
        let timeout_ms = request.timeout_ms.clamp(SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MAX);
        let session = if request.session == 0 { new_session() } else { request.session };

        let len = 4 + 4 + 8 + 4 + PASSWORD_LEN + usize::from(request.told_read_only);
        self.output.put_u32(len as u32);
        self.output.put_i32(0); // protocol version
        self.output.put_i32(timeout_ms);
        self.output.put_i64(session);
        self.output.put_buffer(&[0; PASSWORD_LEN]);
        if request.told_read_only {
            self.output.put_u8(0);
        }
        // Clients give up on us after two thirds; be slower than they are.
        Ok(Duration::from_millis(timeout_ms as u64) * 3 / 2)
    }

    async fn frame(&mut self) -> io::Result<Bytes> {
        self.fill(4).await?;
        let len = self.input.get_u32() as usize;
        if len > self.shared.settings.frame_bytes_max {
            let text = format!("a frame of {len} bytes is too long");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.fill(len).await?;
        Ok(self.input.split_to(len).freeze())
    }

    async fn fill(&mut self, len: usize) -> io::Result<()> {
        while self.input.len() < len {
            self.input.reserve(READ_BYTES);
            self.hold(self.input.capacity() + self.output.capacity());
            if self.stream.read_buf(&mut self.input).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

struct ConnectRequest {
    timeout_ms: i32,
    session: i64,
    /// Clients from 3.4 on say whether they would take a read-only server, and expect to be told.
    told_read_only: bool,
}

impl ConnectRequest {
    fn read(request: &mut Reader<'_>) -> Result<ConnectRequest, Malformed> {
        let (_version, _last_zxid) = (request.int()?, request.long()?);
        let (timeout_ms, session) = (request.int()?, request.long()?);
        request.buffer()?; // the password; sessions own nothing here
        let told_read_only = !request.is_empty();
        if told_read_only {
            request.bool()?;
        }
        Ok(ConnectRequest { timeout_ms, session, told_read_only })
    }
}

/// A positive number that no session of this or another process has.
fn new_session() -> i64 {
    i64::from_be_bytes(halcyon_env::random_bytes()) & i64::MAX | 1
}

fn malformed(Malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed request")
}
