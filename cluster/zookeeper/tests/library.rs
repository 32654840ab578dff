//! What the ZooKeeper library keeps over a lost connection, against a server of this test.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use halcyon_env::spawn_thread;
use tokio::time::{sleep, timeout};
use zookeeper_client as zk;

const SOON: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

const PING: i32 = 11;
const SET_WATCHES: i32 = 101;
const SET_WATCHES_2: i32 = 105;

/// What a client asks after it has connected: the number of the operation, and its body.
type Asked = (i32, Vec<u8>);

fn read_frame(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).ok()?;
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).ok()?;
    Some(frame)
}

fn write_frame(stream: &mut TcpStream, frame: &[u8]) {
    let len = (frame.len() as u32).to_be_bytes();
    let _ = stream.write_all(&[&len[..], frame].concat()); // the client may have gone
}

fn number(bytes: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Grants a session with this timeout and says yes to everything until it is told to close the connection.
fn serve(mut stream: TcpStream, granted_ms: i32, tell: &Sender<Asked>, closed: &Receiver<()>) {
    if read_frame(&mut stream).is_none() {
        return;
    }
    let session = 7_i64.to_be_bytes();
    let password = [&16_u32.to_be_bytes()[..], &[1; 16]].concat();
    write_frame(
        &mut stream,
        &[&0_i32.to_be_bytes()[..], &granted_ms.to_be_bytes(), &session, &password, &[0]].concat(),
    );
    let mut other = stream.try_clone().unwrap();
    let tell = tell.clone();
    spawn_thread("answers", move || {
        while let Some(request) = read_frame(&mut other) {
            let (xid, operation) = (number(&request, 0), number(&request, 4));
            let reply = [&xid.to_be_bytes()[..], &1_i64.to_be_bytes(), &0_i32.to_be_bytes()].concat();
            write_frame(&mut other, &reply);
            if operation != PING {
                let _ = tell.send((operation, request[8..].to_vec()));
            }
        }
    })
    .unwrap();
    let _ = closed.recv();
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// A server that grants each connection the next of these timeouts; its address, what it is asked, and what makes it close the
/// connection.
fn server(granted_ms: &[i32]) -> (String, Receiver<Asked>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ((tell, asked), (close, closed)) = (channel(), channel());
    let granted_ms = granted_ms.to_vec();
    spawn_thread("server", move || {
        for granted_ms in granted_ms {
            serve(listener.accept().unwrap().0, granted_ms, &tell, &closed);
        }
    })
    .unwrap();
    (address, asked, close)
}

async fn next(asked: &Receiver<Asked>) -> Asked {
    timeout(SOON, async {
        loop {
            match asked.try_recv() {
                Ok(asked) => return asked,
                Err(_) => sleep(LOOK).await,
            }
        }
    })
    .await
    .expect("the client asks")
}

/// The timeout was noted once. Members of an ensemble may grant different ones, as during a rolling change of `tickTime`; a
/// lease that is counted by the first one outlives a session whose last connection was granted less.
#[tokio::test]
async fn each_connection_tells_what_timeout_it_was_granted() {
    let (address, _asked, close) = server(&[9000, 4000]);
    let client = zk::Client::connector().with_session_timeout(9 * Duration::from_secs(1));
    let client = client.connect(&address).await.unwrap();
    assert_eq!(client.session_timeout(), Duration::from_millis(9000));
    let (clone, mut states) = (client.clone(), client.state_watcher());
    close.send(()).unwrap();
    let connected = async { while states.changed().await != zk::SessionState::SyncConnected {} };
    timeout(SOON, connected).await.expect("it connects again");
    assert_eq!(clone.session_timeout(), Duration::from_millis(4000), "known when the state is told");
}

/// The kinds of watches were counted wrong, so that persistent ones were never set again, and of a long list a part only.
#[tokio::test]
async fn persistent_watches_are_set_again() {
    let (address, asked, close) = server(&[9000, 9000]);
    let client = zk::Client::connect(&address).await.unwrap();
    let long = "x".repeat(1000);
    let paths: Vec<String> = (0..300).map(|number| format!("/{number}-{long}")).collect();
    let mut watchers = Vec::new();
    for path in &paths {
        watchers.push(client.watch(path, zk::AddWatchMode::PersistentRecursive).await.unwrap());
        next(&asked).await;
    }
    close.send(()).unwrap();
    // All of them have the same number of request, and more than one may be on the way.
    let (mut set, mut requests) = (Vec::new(), 0);
    while set.len() < paths.len() {
        let (operation, body) = next(&asked).await;
        assert!(operation != SET_WATCHES, "only the newer request has persistent watches");
        if operation != SET_WATCHES_2 {
            continue;
        }
        requests += 1;
        let mut at = 8; // behind the transaction that was seen last
        for kind in 0..5 {
            let count = number(&body, at);
            at += 4;
            for _ in 0..count {
                let len = number(&body, at) as usize;
                set.push((kind, String::from_utf8(body[at + 4..at + 4 + len].to_vec()).unwrap()));
                at += 4 + len;
            }
        }
        assert_eq!(at, body.len());
    }
    assert!(requests >= 2 && set.iter().all(|(kind, _)| *kind == 4), "{requests}");
    let mut set: Vec<String> = set.into_iter().map(|(_, path)| path).collect();
    let mut paths = paths;
    set.sort();
    paths.sort();
    assert_eq!(set, paths);
    // The answers to all of them were taken, so the connection is as good as before.
    assert!(timeout(SOON, client.check_stat("/a")).await.expect("it answers").unwrap().is_none());
    drop(watchers);
}

/// A packet of two gigabytes would be waited for until there is no memory.
#[tokio::test]
async fn a_packet_that_no_server_sends_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (tell, told) = channel();
    spawn_thread("server", move || {
        for connection in listener.incoming() {
            let mut stream = connection.unwrap();
            read_frame(&mut stream);
            let _ = stream.write_all(&[0x7f, 0xff, 0xff, 0xff, 1]);
            let closed = matches!(stream.read(&mut [0; 1]), Ok(0) | Err(_));
            let _ = tell.send(closed);
        }
    })
    .unwrap();
    let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(120));
    let connecting = tokio::spawn(async move { connector.connect(&address).await });
    let closed = tokio::task::spawn_blocking(move || told.recv_timeout(SOON)).await.unwrap();
    assert!(closed.expect("it is not waited for"));
    connecting.abort();
}
