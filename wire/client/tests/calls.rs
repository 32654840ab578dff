//! The client against the server of `halcyon-rpc`.

use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Cell;
use halcyon_client::{ClientError, ConnectOptions, Connection, Registry, cluster_id};
use halcyon_env::SystemClock;
use halcyon_proto::pb;
use halcyon_rpc::{
    Call, CellBlock, Codec, Compressor, Outcome, Reply, RpcError, RpcServer, RpcSettings, Service, Services,
};

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
