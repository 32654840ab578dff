//! The pages behind the info ports: a text page and Prometheus metrics, without a web framework.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Longest request that is read.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Requests at the same time; more wait.
const CONNECTIONS_MAX: usize = 64;
/// A request and its answer take at most this long.
const TIME_MAX: Duration = Duration::from_secs(10);

/// What a page says.
pub struct Page {
    pub content_type: &'static str,
    pub body: String,
}

impl Page {
    pub fn text(body: String) -> Page {
        Page { content_type: "text/plain; charset=utf-8", body }
    }

    pub fn json(body: String) -> Page {
        Page { content_type: "application/json", body }
    }

    /// Prometheus' text form.
    pub fn metrics(body: String) -> Page {
        Page { content_type: "text/plain; version=0.0.4; charset=utf-8", body }
    }
}

/// Makes the page of a path; `None` if there is none.
pub type Pages = dyn Fn(&str) -> Option<Page> + Send + Sync;

/// A port that answers HTTP GET; ends when dropped.
pub struct InfoServer {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

/// A port that is taken but not answered yet.
pub struct BoundInfo(TcpListener);

impl BoundInfo {
    /// The error names the address.
    pub async fn bind(address: SocketAddr) -> io::Result<BoundInfo> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
        Ok(BoundInfo(TcpListener::bind(address).await.map_err(named)?))
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    pub fn serve(self, pages: Arc<Pages>) -> io::Result<InfoServer> {
        let address = self.0.local_addr()?;
        Ok(InfoServer { address, serving: tokio::spawn(accept(self.0, pages)) })
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

async fn accept(listener: TcpListener, pages: Arc<Pages>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = Arc::clone(&pages);
                tokio::spawn(async move {
                    let _place = place;
                    let _ = tokio::time::timeout(TIME_MAX, answer(stream, &*pages)).await;
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn answer(mut stream: TcpStream, pages: &Pages) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > REQUEST_BYTES_MAX || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    let (status, page) = match (method, pages(path)) {
        ("GET" | "HEAD", Some(page)) => ("200 OK", page),
        ("GET" | "HEAD", None) => ("404 Not Found", Page::text("There is no such page.\n".to_string())),
        _ => ("405 Method Not Allowed", Page::text("Only GET is answered.\n".to_string())),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.content_type,
        page.body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if method != "HEAD" {
        stream.write_all(page.body.as_bytes()).await?;
    }
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(server: &InfoServer, request: &str) -> String {
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn pages_are_found_and_other_things_refused() {
        let bound = BoundInfo::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let pages = |path: &str| (path == "/").then(|| Page::text("all is well\n".to_string()));
        let server = bound.serve(Arc::new(pages)).unwrap();
        let answer = ask(&server, "GET /?x=1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nall is well\n"));
        assert!(ask(&server, "GET /no HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404"));
        assert!(ask(&server, "POST / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405"));
        assert!(ask(&server, "HEAD / HTTP/1.1\r\n\r\n").await.ends_with("\r\n\r\n"));
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(3 * REQUEST_BYTES_MAX));
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        let _ = stream.write_all(long.as_bytes()).await;
        let mut nothing = Vec::new();
        let _ = stream.read_to_end(&mut nothing).await;
        assert!(nothing.is_empty());
    }
}
