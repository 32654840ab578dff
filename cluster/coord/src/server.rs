use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
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

/// Limits. Plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZkSettings {
    /// Longest request in bytes (`jute.maxbuffer`). 1 MiB as in ZooKeeper.
    pub frame_bytes_max: usize,
    /// Open connections; one more is closed at once. 4,096.
    pub connections_max: usize,
    /// Time for the first request. Ten seconds.
    pub connect_timeout: Duration,
}

impl Default for ZkSettings {
    fn default() -> ZkSettings {
        ZkSettings {
            frame_bytes_max: 1 << 20,
            connections_max: 4_096,
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// A running endpoint; ends when dropped.
pub struct ZkServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
    /// Dropped to tell the connections.
    _stop: watch::Sender<()>,
}

struct Shared {
    tree: Arc<ZnodeTree>,
    settings: ZkSettings,
    counters: Counters,
    stop: watch::Receiver<()>,
}

/// What the four letter words tell.
#[derive(Default)]
pub(crate) struct Counters {
    connections: AtomicUsize,
    received: AtomicU64,
    sent: AtomicU64,
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
        let shared = Arc::new(Shared { tree, settings, counters: Counters::default(), stop });
        let accepting = tokio::spawn(accept(listener, shared));
        Ok(ZkServer { address, accepting, _stop: stop_sender })
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
                if shared.counters.connections.load(Ordering::Relaxed) >= shared.settings.connections_max {
                    continue;
                }
                let open = OpenConnection::new(&shared);
                tokio::spawn(async move {
                    let mut stop = open.0.stop.clone();
                    let session = Session::new(stream, &open.0);
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
struct OpenConnection(Arc<Shared>);

impl OpenConnection {
    fn new(shared: &Arc<Shared>) -> OpenConnection {
        shared.counters.connections.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(shared))
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.counters.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection; its session lives as long.
struct Session<'a> {
    stream: TcpStream,
    shared: &'a Shared,
    input: BytesMut,
    output: BytesMut,
}

impl Session<'_> {
    fn new(stream: TcpStream, shared: &Shared) -> Session<'_> {
        Session { stream, shared, input: BytesMut::new(), output: BytesMut::new() }
    }

    async fn run(mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        let limit = self.shared.settings.connect_timeout;
        let Some(first) = timeout(limit, self.first_frame()).await?? else { return Ok(()) };
        let session_timeout = self.connect(&first)?;
        self.stream.write_all_buf(&mut self.output).await?;

        loop {
            let frame = timeout(session_timeout, self.frame()).await??;
            self.shared.counters.received.fetch_add(1, Ordering::Relaxed);
            let next = answer(&frame, &self.shared.tree, &mut self.output).map_err(malformed)?;
            self.shared.counters.sent.fetch_add(1, Ordering::Relaxed);
            self.stream.write_all_buf(&mut self.output).await?;
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
        self.stream.write_all(text.as_bytes()).await?;
        self.stream.shutdown().await?;
        Ok(None)
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
