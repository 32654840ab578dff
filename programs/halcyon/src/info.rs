//! The HTTP server of an info port: `axum` routes, `hyper` connections with limits.
//!
//! `axum::serve` has no limit on connections and none on the time a client may take to send its request, so one
//! slow client could hold the port. The accept loop here enforces [`Limits`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use halcyon_rpc::Peers;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Size limit of a request's head. `hyper` accepts no smaller buffer.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Pause after an error of `accept`, such as too many open files.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(50);

/// What one info port grants its clients.
#[derive(Clone, Copy)]
struct Limits {
    /// Connections at the same time. Further ones wait in the listen backlog.
    connections_max: usize,
    /// What one address may have of them: this part of what the others leave. Further ones are closed.
    peer_share: f64,
    /// How long a client may take to send the head of a request.
    request_time_max: Duration,
    /// How long a connection may stay open, all its requests and responses included.
    connection_time_max: Duration,
}

const LIMITS: Limits = Limits {
    connections_max: 64,
    peer_share: 0.5,
    request_time_max: Duration::from_secs(10),
    connection_time_max: Duration::from_secs(60),
};

/// An info port that serves; it stops when dropped.
pub struct InfoServer {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

/// An info port that is bound and does not serve yet.
pub struct BoundInfo(TcpListener);

impl BoundInfo {
    /// Binds the port. The error names the address.
    pub async fn bind(address: SocketAddr) -> io::Result<BoundInfo> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        Ok(BoundInfo(TcpListener::bind(address).await.map_err(named)?))
    }

    /// Binds the port if there is to be one.
    pub async fn bind_if(address: Option<SocketAddr>) -> io::Result<Option<BoundInfo>> {
        match address {
            Some(address) => BoundInfo::bind(address).await.map(Some),
            None => Ok(None),
        }
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Starts to answer requests with `routes`. Must be called within a `tokio` runtime.
    pub fn serve(self, routes: Router) -> io::Result<InfoServer> {
        self.serve_within(routes, LIMITS)
    }

    fn serve_within(self, routes: Router, limits: Limits) -> io::Result<InfoServer> {
        let address = self.0.local_addr()?;
        Ok(InfoServer { address, serving: tokio::spawn(accept(self.0, routes, limits)) })
    }
}

impl InfoServer {
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for InfoServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Turns the routes of a port that serves into others. Connections stay.
#[derive(Clone)]
pub struct RouteSwitch(Arc<RwLock<Router>>);

impl RouteSwitch {
    /// Routes that can be turned into others, and how.
    pub fn new(first: Router) -> (Router, RouteSwitch) {
        let switch = RouteSwitch(Arc::new(RwLock::new(first)));
        let now = switch.clone();
        let routes = Router::new().fallback(move |request: Request| {
            let routes = TowerToHyperService::new(now.0.read().clone());
            async move { routes.call(request).await }
        });
        (routes, switch)
    }

    pub fn turn_to(&self, routes: Router) {
        *self.0.write() = routes;
    }
}

async fn accept(listener: TcpListener, routes: Router, limits: Limits) {
    let slots = Arc::new(Semaphore::new(limits.connections_max));
    let peers = Peers::new(limits.connections_max, limits.peer_share);
    loop {
        let slot = Arc::clone(&slots).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, peer)) => {
                let Some(place) = peers.enter(peer.ip()) else { continue };
                let routes = routes.clone();
                tokio::spawn(async move {
                    let _places = (slot, place);
                    let serving = serve_connection(stream, routes, limits.request_time_max);
                    let _ = tokio::time::timeout(limits.connection_time_max, serving).await;
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_ERROR_PAUSE).await,
        }
    }
}

/// Serves the requests of one connection. An error is the client's and ends its connection only.
async fn serve_connection(
    stream: TcpStream,
    routes: Router,
    request_time_max: Duration,
) -> hyper::Result<()> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(request_time_max)
        .max_buf_size(REQUEST_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn start(limits: Limits) -> InfoServer {
        let bound = BoundInfo::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        bound.serve_within(Router::new().route("/", get(|| async { "all is well\n" })), limits).unwrap()
    }

    async fn ask(server: &InfoServer, request: &str) -> String {
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn answers_get_and_head_and_refuses_the_rest() {
        let server = start(LIMITS).await;
        let request = |line: &str| format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = ask(&server, &request("GET /?x=1")).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nall is well\n"));
        assert!(ask(&server, &request("GET /no")).await.starts_with("HTTP/1.1 404"));
        assert!(ask(&server, &request("POST /")).await.starts_with("HTTP/1.1 405"));
        assert!(ask(&server, &request("HEAD /")).await.ends_with("\r\n\r\n"));
    }

    #[tokio::test]
    async fn routes_change_while_the_port_serves() {
        let page = |text: &'static str| Router::new().route("/", get(move || async move { text }));
        let (routes, switch) = RouteSwitch::new(page("before"));
        let bound = BoundInfo::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let server = bound.serve(routes).unwrap();
        let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        assert!(ask(&server, request).await.ends_with("before"));
        switch.turn_to(page("after"));
        assert!(ask(&server, request).await.ends_with("after"));
        assert!(ask(&server, "GET /no HTTP/1.0\r\n\r\n").await.starts_with("HTTP/1.0 404"));
    }

    #[tokio::test]
    async fn a_long_head_is_refused_and_garbage_ends_the_connection() {
        let server = start(LIMITS).await;
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(3 * REQUEST_BYTES_MAX));
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        let _ = stream.write_all(long.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{}", answer.escape_ascii());
        assert!(!ask(&server, "\0\u{1}\u{2}nothing of HTTP\r\n\r\n").await.contains("200 OK"));
        assert!(ask(&server, "GET / HTTP/1.0\r\n\r\n").await.contains("200 OK"), "the port still answers");
    }

    #[tokio::test]
    async fn an_address_leaves_connections_to_others() {
        let server = start(Limits { connections_max: 4, ..LIMITS }).await;
        let _silent = [
            TcpStream::connect(server.local_addr()).await.unwrap(),
            TcpStream::connect(server.local_addr()).await.unwrap(),
        ];
        let mut third = TcpStream::connect(server.local_addr()).await.unwrap();
        assert_eq!(third.read(&mut [0]).await.unwrap_or(0), 0, "closed at once");
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut elsewhere = socket.connect(server.local_addr()).await.unwrap();
        elsewhere.write_all(b"GET / HTTP/1.0\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        elsewhere.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("200 OK"), "{answer}");
    }

    #[tokio::test]
    async fn silent_clients_lose_their_connections() {
        for (request_ms, connection_ms) in [(50, 60_000), (60_000, 50)] {
            let server = start(Limits {
                connections_max: 2,
                peer_share: 1.0,
                request_time_max: Duration::from_millis(request_ms),
                connection_time_max: Duration::from_millis(connection_ms),
            });
            let server = server.await;
            let _silent = [
                TcpStream::connect(server.local_addr()).await.unwrap(),
                TcpStream::connect(server.local_addr()).await.unwrap(),
            ];
            // both slots are taken, so this request waits until one of the two loses its slot
            assert!(ask(&server, "GET / HTTP/1.0\r\n\r\n").await.contains("200 OK"));
        }
    }
}
