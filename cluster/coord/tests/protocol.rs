//! ZooKeeper's protocol over a socket, byte for byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use halcyon_coord::{ZkServer, ZkSettings, ZnodeTree};
use halcyon_env::SystemClock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

struct Client {
    stream: TcpStream,
}

async fn start(settings: ZkSettings) -> (ZkServer, Arc<ZnodeTree>) {
    let tree = Arc::new(ZnodeTree::new(Arc::new(SystemClock::new())));
    tree.set("/hbase/hbaseid", Bytes::from_static(b"some id"));
    tree.set("/hbase/meta-region-server", Bytes::from_static(b"some server"));
    let server = ZkServer::bind("127.0.0.1:0".parse().unwrap(), Arc::clone(&tree), settings).await;
    (server.unwrap(), tree)
}

impl Client {
    async fn raw(server: &ZkServer) -> Client {
        Client { stream: TcpStream::connect(server.local_addr()).await.unwrap() }
    }

    /// Connects as the Java client (with the read-only flag) does.
    async fn open(server: &ZkServer) -> Client {
        let mut client = Client::raw(server).await;
        client.send(&connect_request(30_000, 0, true)).await;
        let mut reply = client.frame().await;
        assert_eq!((reply.get_i32(), reply.get_i32()), (0, 30_000));
        assert!(reply.get_i64() != 0);
        assert_eq!(reply.get_i32(), 16);
        reply.advance(16);
        assert_eq!(reply.get_u8(), 0);
        assert!(reply.is_empty());
        client
    }

    async fn send(&mut self, frame: &[u8]) {
        self.stream.write_u32(frame.len() as u32).await.unwrap();
        self.stream.write_all(frame).await.unwrap();
    }

    async fn frame(&mut self) -> Bytes {
        let read = async {
            let len = self.stream.read_u32().await?;
            let mut frame = vec![0; len as usize];
            self.stream.read_exact(&mut frame).await?;
            std::io::Result::Ok(Bytes::from(frame))
        };
        tokio::time::timeout(Duration::from_secs(10), read).await.expect("an answer in time").unwrap()
    }

    /// Sends a request for a path and returns error code and body.
    async fn ask(&mut self, xid: i32, op: i32, path: &str) -> (i32, Bytes) {
        let mut frame = BytesMut::new();
        frame.put_i32(xid);
        frame.put_i32(op);
        frame.put_i32(path.len() as i32);
        frame.put_slice(path.as_bytes());
        frame.put_u8(1); // watch
        self.send(&frame).await;
        self.reply(xid).await
    }

    async fn reply(&mut self, xid: i32) -> (i32, Bytes) {
        let mut reply = self.frame().await;
        assert_eq!(reply.get_i32(), xid);
        assert!(reply.get_i64() > 0, "zxid");
        (reply.get_i32(), reply)
    }

    async fn expect_close(&mut self) {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), self.stream.read_to_end(&mut rest));
        let _ = read.await.expect("a close in time");
        assert!(rest.is_empty(), "{rest:?}");
    }
}

fn connect_request(timeout_ms: i32, session: i64, read_only_flag: bool) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    frame.put_i64(0);
    frame.put_i32(timeout_ms);
    frame.put_i64(session);
    frame.put_i32(16);
    frame.put_slice(&[0; 16]);
    if read_only_flag {
        frame.put_u8(0);
    }
    frame
}

fn strings(body: &mut Bytes) -> Vec<String> {
    let count = body.get_i32();
    let mut next = || {
        let len = body.get_i32() as usize;
        String::from_utf8(body.split_to(len).to_vec()).unwrap()
    };
    (0..count).map(|_| next()).collect()
}

#[tokio::test]
async fn reads() {
    let (server, tree) = start(ZkSettings::default()).await;
    let mut client = Client::open(&server).await;

    let (error, mut body) = client.ask(1, 4, "/hbase/hbaseid").await;
    assert_eq!(error, 0);
    assert_eq!(body.get_i32(), 7);
    assert_eq!(&body.split_to(7)[..], b"some id");
    assert_eq!(body.len(), 68, "a Stat");
    assert_eq!(body.get_i64(), tree.stat("/hbase/hbaseid").unwrap().created_zxid);

    let (error, body) = client.ask(2, 3, "/hbase").await;
    assert_eq!((error, body.len()), (0, 68));

    let (error, mut body) = client.ask(3, 8, "/hbase").await;
    assert_eq!((error, strings(&mut body)), (0, vec!["hbaseid".into(), "meta-region-server".into()]));
    assert!(body.is_empty());

    let (_, mut body) = client.ask(4, 12, "/").await;
    assert_eq!((strings(&mut body), body.len()), (vec!["hbase".into()], 68));

    let (error, mut body) = client.ask(5, 9, "/hbase").await;
    assert_eq!((error, body.get_i32(), &body[..]), (0, 6, &b"/hbase"[..]));

    let (error, mut body) = client.ask(6, 6, "/hbase").await;
    assert_eq!((error, body.get_i32(), body.get_i32()), (0, 1, 1));

    for op in [3, 4, 6, 8, 12] {
        let (error, body) = client.ask(7, op, "/hbase/root-region-server").await;
        assert_eq!((error, body.len()), (-101, 0), "op {op}");
    }
}

#[tokio::test]
async fn session_business() {
    let (server, _tree) = start(ZkSettings::default()).await;
    let mut client = Client::open(&server).await;
    // ping, auth, setWatches with their own xids
    for (xid, op, rest) in [(-2, 11, &b""[..]), (-4, 100, b"\0\0\0\0\0\0\0\x06digest\0\0\0\x03a:b")] {
        let mut frame = BytesMut::new();
        frame.put_i32(xid);
        frame.put_i32(op);
        frame.put_slice(rest);
        client.send(&frame).await;
        assert_eq!(client.reply(xid).await, (0, Bytes::new()));
    }
    let mut frame = BytesMut::new();
    frame.put_i32(-8);
    frame.put_i32(101);
    frame.put_i64(1);
    frame.put_slice(&[0; 12]);
    client.send(&frame).await;
    assert_eq!(client.reply(-8).await, (0, Bytes::new()));

    client.send(b"\x00\x00\x00\x09\xff\xff\xff\xf5").await;
    assert_eq!(client.reply(9).await, (0, Bytes::new()));
    client.expect_close().await;
}

#[tokio::test]
async fn go_clients_do_not_speak_of_read_only_and_old_sessions_are_taken_up() {
    let (server, _tree) = start(ZkSettings::default()).await;
    let mut client = Client::raw(&server).await;
    client.send(&connect_request(10, 77, false)).await;
    let mut reply = client.frame().await;
    assert_eq!(reply.len(), 36);
    assert_eq!((reply.get_i32(), reply.get_i32(), reply.get_i64()), (0, 4_000, 77));
    assert_eq!(client.ask(1, 3, "/hbase").await.0, 0);
}

#[tokio::test]
async fn writes_are_refused() {
    let (server, _tree) = start(ZkSettings::default()).await;
    let mut client = Client::open(&server).await;
    for (op, path, error) in [
        (1, "/new", -119),
        (1, "/hbase", -110),
        (15, "/hbase/rs", -119),
        (2, "/hbase", -119),
        (5, "/hbase", -119),
        (7, "/hbase", -119),
        (14, "/hbase", -119),
        (3, "no slash", -8),
        (4, "/a//b", -8),
        (4711, "/hbase", -6),
    ] {
        assert_eq!(client.ask(1, op, path).await, (error, Bytes::new()), "op {op} {path}");
    }
}

#[tokio::test]
async fn four_letter_words() {
    let (server, _tree) = start(ZkSettings::default()).await;
    for (word, part) in [
        ("ruok", "imok"),
        ("srvr", "Mode: standalone\nNode count: 4\n"),
        ("stat", "Clients:\n"),
        ("mntr", "zk_server_state\tstandalone\n"),
        ("isro", "rw"),
        ("conf", "conf is not executed"),
    ] {
        let mut client = Client::raw(&server).await;
        client.stream.write_all(word.as_bytes()).await.unwrap();
        let mut text = String::new();
        client.stream.read_to_string(&mut text).await.unwrap();
        assert!(text.contains(part), "{word}: {text}");
    }
}

#[tokio::test]
async fn garbage_closes_the_connection_and_nothing_else() {
    let settings = ZkSettings { frame_bytes_max: 1000, ..ZkSettings::default() };
    let (server, _tree) = start(settings).await;
    let mut good = Client::open(&server).await;
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00\x00\x10\x00aaaa",
        b"\x00\x00\x00\x04aaaa",
        b"\x00\x00\x00\x00",
    ] {
        let mut client = Client::raw(&server).await;
        client.stream.write_all(garbage).await.unwrap();
        client.expect_close().await;
    }
    // After the connect: a frame that is too long, one without a header.
    for garbage in [&b"\x00\x01\x00\x00"[..], b"\x00\x00\x00\x02ab"] {
        let mut client = Client::open(&server).await;
        client.stream.write_all(garbage).await.unwrap();
        client.expect_close().await;
    }
    // A string that claims more than there is only spoils its request.
    good.send(b"\x00\x00\x00\x01\x00\x00\x00\x04\x7f\xff\xff\xff/").await;
    assert_eq!(good.reply(1).await.0, -8);
    assert_eq!(good.ask(2, 3, "/hbase").await.0, 0);
}

#[tokio::test]
async fn too_many_connections_and_silence_are_cut_off() {
    let settings = ZkSettings {
        connections_max: 1,
        connect_timeout: Duration::from_millis(100),
        ..ZkSettings::default()
    };
    let (server, _tree) = start(settings).await;
    let mut silent = Client::raw(&server).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut second = Client::raw(&server).await;
    second.expect_close().await;
    silent.expect_close().await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut third = Client::open(&server).await;
    drop(server);
    third.expect_close().await;
}

/// Each session held a megabyte of a request that never ended, for more than two minutes, in no account.
#[tokio::test]
async fn requests_that_do_not_end_are_short_and_short_lived() {
    let settings = ZkSettings { connect_timeout: Duration::from_millis(200), ..ZkSettings::default() };
    let (server, _tree) = start(settings).await;
    let mut hostile = Vec::new();
    for _ in 0..50 {
        let mut client = Client::open(&server).await;
        client.stream.write_u32(4_000).await.unwrap();
        client.stream.write_all(&[0; 3_900]).await.unwrap();
        hostile.push(client);
    }
    assert!(server.held_bytes() <= 50 * (5 << 10), "{}", server.held_bytes());
    for mut client in hostile {
        client.expect_close().await;
    }
    // A megabyte is not even read. The others go on.
    let mut client = Client::open(&server).await;
    client.stream.write_u32(1 << 20).await.unwrap();
    client.expect_close().await;
    let mut good = Client::open(&server).await;
    assert_eq!(good.ask(2, 3, "/hbase").await.0, 0);
    eventually("all is given back", || server.held_bytes() == 0).await;
}

#[tokio::test]
async fn a_client_that_takes_no_answer_goes() {
    let settings = ZkSettings { write_timeout: Duration::from_millis(200), ..ZkSettings::default() };
    let (server, tree) = start(settings).await;
    tree.set("/hbase/large", Bytes::from(vec![7; 512 << 10]));
    let mut client = Client::open(&server).await;
    for xid in 0..200 {
        let mut frame = BytesMut::new();
        frame.put_i32(xid);
        frame.put_i32(4);
        frame.put_i32(12);
        frame.put_slice(b"/hbase/large");
        frame.put_u8(0);
        if client.stream.write_u32(frame.len() as u32).await.is_err()
            || client.stream.write_all(&frame).await.is_err()
        {
            break; // it has gone already
        }
    }
    eventually("it goes, with all that waits for it", || server.held_bytes() == 0).await;
}

#[tokio::test]
async fn an_address_does_not_take_all_sessions() {
    let (server, _tree) = start(ZkSettings { connections_max: 8, ..ZkSettings::default() }).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::open(&server).await);
    }
    Client::raw(&server).await.expect_close().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut elsewhere = Client { stream: socket.connect(server.local_addr()).await.unwrap() };
    elsewhere.send(&connect_request(30_000, 0, true)).await;
    elsewhere.frame().await;
    assert_eq!(elsewhere.ask(2, 3, "/hbase").await.0, 0);
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never happened: {what}");
}
