//! The client against the server of `halcyon-rpc`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_client::{ClientError, ConnectOptions, Connection, Registry, cluster_id};
use halcyon_env::SystemClock;
use halcyon_proto::pb;
use halcyon_rpc::{
    Call, CellBlock, Codec, Compressor, Outcome, Reply, RpcError, RpcServer, RpcSettings, Service, Services,
};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

struct Echo;

impl Service for Echo {
    fn takes_cells(&self, _method: &str) -> bool {
        true
    }

    fn call(&self, call: Call) -> Outcome {
        let answer = match call.method.as_str() {
            "Echo" => {
                let cells = call.connection.codec.map(|codec| {
                    let mut block = CellBlock::new(codec);
                    call.cells.iter().for_each(|cell| block.push(cell));
                    block
                });
                Ok(Reply { cells, ..Reply::encoded(call.param) })
            }
            "Never" => return Outcome::Later(Box::pin(std::future::pending())),
            "GetClusterId" => Ok(Reply::message(&pb::GetClusterIdResponse { cluster_id: Some("c".into()) })),
            "GetActiveMaster" => Ok(Reply::message(&pb::GetActiveMasterResponse {
                server_name: Some(pb::ServerName {
                    host_name: "m".into(),
                    port: Some(16000),
                    start_code: Some(5),
                }),
            })),
            method => Err(RpcError::unknown_method(method)),
        };
        Outcome::Ready(answer)
    }
}

async fn start() -> RpcServer {
    let mut services = Services::new();
    services.insert("ClientService", Arc::new(Echo));
    services.insert("ClientMetaService", Arc::new(Echo));
    let address = "127.0.0.1:0".parse().unwrap();
    let bound = RpcServer::bind(address, RpcSettings::default(), Arc::new(SystemClock::new())).await;
    bound.unwrap().serve(services, "the id")
}

fn message(text: &str) -> pb::ClusterId {
    pb::ClusterId { cluster_id: text.to_string() }
}

#[tokio::test]
async fn calls_from_many_tasks_share_a_connection() {
    let server = start().await;
    let connection = Connection::connect(server.local_addr(), &ConnectOptions::new("ClientService")).await;
    let connection = Arc::new(connection.unwrap());
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move {
                let text = format!("number {number}");
                let answer: pb::ClusterId = connection.call("Echo", &message(&text)).await.unwrap();
                assert_eq!(answer.cluster_id, text);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(server.stats().snapshot().connections_opened, 1);
}

#[tokio::test]
async fn cells_go_there_and_back() {
    let server = start().await;
    let compressor = (Compressor::Snappy, "org.apache.hadoop.io.compress.SnappyCodec".to_string());
    for compressor in [None, Some(compressor)] {
        for codec in [Codec::KeyValue, Codec::Message] {
            let options = ConnectOptions {
                codec: Some(codec),
                compressor: compressor.clone(),
                ..ConnectOptions::new("ClientService")
            };
            let connection = Connection::connect(server.local_addr(), &options).await.unwrap();
            let cell = Cell::put(b"r", b"f", b"q", 1, &[1; 10_000]);
            let mut block = connection.cell_block().unwrap();
            block.push(&cell);
            let answer = connection.call_with_cells("Echo", &message(""), Some(block), None).await.unwrap();
            assert_eq!(answer.cells, [cell]);
        }
    }
}

#[tokio::test]
async fn failures_tell_what_happened() {
    let server = start().await;
    let options = ConnectOptions::new("ClientService");
    let connection = Connection::connect(server.local_addr(), &options).await.unwrap();
    let error = connection.call::<pb::ClusterId>("Nothing", &message("")).await.unwrap_err();
    let exception = error.remote().unwrap();
    assert_eq!((exception.simple_class(), exception.do_not_retry), ("DoNotRetryIOException", true));

    let time = Duration::from_millis(50);
    let error = connection.call_with_cells("Never", &message(""), None, Some(time)).await.unwrap_err();
    assert!(matches!(&error, ClientError::Io(e) if e.kind() == std::io::ErrorKind::TimedOut), "{error}");
    connection.call::<pb::ClusterId>("Echo", &message("still")).await.unwrap();

    let unknown = Connection::connect(server.local_addr(), &ConnectOptions::new("Unknown")).await.unwrap();
    assert!(unknown.call::<pb::ClusterId>("Echo", &message("")).await.is_err());
    server.stop(Duration::from_millis(10)).await;
    assert!(connection.call::<pb::ClusterId>("Echo", &message("")).await.is_err());
}

#[tokio::test]
async fn the_registry_is_asked() {
    let server = start().await;
    assert_eq!(cluster_id(server.local_addr()).await.unwrap(), "the id");
    let registry = Registry::connect(server.local_addr()).await.unwrap();
    assert_eq!(registry.cluster_id().await.unwrap(), "c");
    assert_eq!(registry.active_master().await.unwrap().to_string(), "m,16000,5");
    assert!(registry.region_servers().await.is_err());
}

/// Takes one connection, and answers when and what a test says.
struct ByHand(tokio::net::TcpStream);

impl ByHand {
    /// The connection, and a client's end of it.
    async fn connect() -> (ByHand, Connection) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let options = ConnectOptions::new("AdminService");
        let connected = Connection::connect(listener.local_addr().unwrap(), &options).await.unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 6]).await.unwrap();
        let mut server = ByHand(stream);
        server.frame().await;
        (server, connected)
    }

    async fn frame(&mut self) -> Bytes {
        let mut frame = vec![0; self.0.read_u32().await.unwrap() as usize];
        self.0.read_exact(&mut frame).await.unwrap();
        frame.into()
    }

    async fn next_id(&mut self) -> u32 {
        pb::RequestHeader::decode_length_delimited(self.frame().await).unwrap().call_id()
    }

    /// An exception of this class, or a message.
    async fn answer(&mut self, id: u32, said: Result<&str, &str>) {
        let exception = said.err().map(|class| pb::ExceptionResponse {
            exception_class_name: Some(format!("org.apache.hadoop.hbase.{class}")),
            ..Default::default()
        });
        let header = pb::ResponseHeader { call_id: Some(id), exception, ..Default::default() };
        let mut answer = header.encode_length_delimited_to_vec();
        if let Ok(text) = said {
            answer.extend(message(text).encode_length_delimited_to_vec());
        }
        self.0.write_u32(answer.len() as u32).await.unwrap();
        self.0.write_all(&answer).await.unwrap();
    }
}

/// A server stood still. The answer to a call that was given up meanwhile, `NotServingRegionException` for its region, became the
/// answer of all other calls of the connection: a master took it for the close of another region, and opened that a second time.
#[tokio::test]
async fn a_late_exception_is_of_no_other_call() {
    let (mut server, connection) = ByHand::connect().await;
    let param = message("");
    let time = Duration::from_millis(100);
    let given_up = connection.call_with_cells("GetRegionInfo", &param, None, Some(time)).await.unwrap_err();
    assert!(
        matches!(&given_up, ClientError::Io(e) if e.kind() == std::io::ErrorKind::TimedOut),
        "{given_up}"
    );
    let serving = async {
        let (late, under_way) = (server.next_id().await, server.next_id().await);
        server.answer(late, Err("NotServingRegionException")).await;
        server.answer(late, Ok("twice")).await;
        server.answer(under_way, Ok("mine")).await;
    };
    let (answer, ()) = tokio::join!(connection.call::<pb::ClusterId>("Echo", &param), serving);
    assert_eq!(answer.unwrap().cluster_id, "mine");
    assert!(!connection.has_ended());
}

/// HBase answers a connection that it refuses with an exception of call -1, or of another negative one.
#[tokio::test]
async fn an_exception_of_no_call_ends_the_connection() {
    for number in [-1_i32, -33, i32::MIN] {
        let (mut server, connection) = ByHand::connect().await;
        let serving = async {
            server.next_id().await;
            server.answer(number as u32, Err("security.AccessDeniedException")).await;
        };
        let param = message("");
        let (answer, ()) = tokio::join!(connection.call::<pb::ClusterId>("Echo", &param), serving);
        assert!(answer.unwrap_err().is_exception("AccessDeniedException"), "{number}");
        let later = connection.call::<pb::ClusterId>("Echo", &param).await.unwrap_err();
        assert!(later.is_exception("AccessDeniedException"), "{number}");
    }
}
