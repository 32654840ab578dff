//! Notices the end of a server's process within a fraction of a second.
//!
//! A connection to the server that carries nothing ends when its process does, however that ends. Then the port is tried: the
//! kernel of a live host refuses connections at once when no process listens. A server that listens is not dead, and neither is
//! one that does not answer: it may be frozen or cut off, which its session with ZooKeeper finds out.
//!
//! A server that stops in order listens until it has closed its regions and left ZooKeeper, as HBase's does.
//!
//! A verdict may be wrong: a packet filter resets connections, or a name has another address now. Then the server lives, and has its
//! session. So this verdict takes the WALs of the server, which ends its writes, and its znode, which ends its lease. Its regions open
//! elsewhere when the lease is over. A keeper ends the session of its server's process when that has ended; then nothing is waited for.

use std::io::{ErrorKind, Result};
use std::time::Duration;

use halcyon_schema::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// So many refusals in a row are an end.
const REFUSALS: u32 = 3;
/// Between two of them, and after a connection that the server has ended.
const PAUSE: Duration = Duration::from_millis(25);
/// After an attempt without an answer.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// Waits until no process listens at the address of a server. Cancel safe.
pub async fn process_ended(server: &ServerName) {
    let mut refusals = 0;
    while refusals < REFUSALS {
        match timeout(CONNECT_TIME_MAX, TcpStream::connect((&*server.host, server.port))).await {
            Ok(Ok(stream)) => {
                refusals = 0;
                ended(stream).await;
                sleep(PAUSE).await;
            }
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                refusals += 1;
                sleep(PAUSE).await;
            }
            Ok(Err(_)) | Err(_) => {
                refusals = 0;
                sleep(DOUBT_PAUSE).await;
            }
        }
    }
}

/// Waits until the other side has ended a connection. What it sends is not looked at.
async fn ended(mut stream: TcpStream) {
    let mut bytes = [0; 64];
    let is_more = |read: Result<usize>| read.is_ok_and(|count| count > 0);
    while is_more(stream.read(&mut bytes).await) {}
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    const SHORT: Duration = Duration::from_millis(600);

    async fn listener() -> (TcpListener, ServerName) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, ServerName::new("127.0.0.1", port, 1))
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_noticed() {
        let (listener, server) = listener().await;
        let watched = tokio::spawn(async move { process_ended(&server).await });
        let connection = listener.accept().await.unwrap();
        sleep(PAUSE).await;
        assert!(!watched.is_finished(), "it lives");
        drop((listener, connection));
        timeout(Duration::from_secs(10), watched).await.expect("its end was noticed").unwrap();
    }

    #[tokio::test]
    async fn a_server_that_ends_connections_is_not_dead() {
        let (listener, server) = listener().await;
        let watched = tokio::spawn(async move { process_ended(&server).await });
        for _ in 0..5 {
            drop(listener.accept().await.unwrap());
        }
        sleep(SHORT).await;
        assert!(!watched.is_finished());
    }

    /// The kernel takes connections for a process that is frozen.
    #[tokio::test]
    async fn a_server_that_does_nothing_is_not_dead() {
        let (listener, server) = listener().await;
        assert!(timeout(SHORT, process_ended(&server)).await.is_err());
        drop(listener);
    }
}
