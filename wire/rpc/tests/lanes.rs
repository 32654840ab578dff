//! Connections on threads of their own.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Client, header, opening, request};
use halcyon_env::SystemClock;
use halcyon_rpc::{Lanes, RpcServer, RpcSettings, Service, Services};

async fn serve<const N: usize>(
    services: [(&'static str, Arc<dyn Service>); N],
    lanes: std::io::Result<Arc<Lanes>>,
) -> RpcServer {
    let address = "127.0.0.1:0".parse().unwrap();
    let bound = RpcServer::bind(address, RpcSettings::default(), Arc::new(SystemClock::new())).await;
    bound.unwrap().on_lanes(lanes.unwrap()).serve(Services::from(services), "c")
}

#[tokio::test]
async fn connections_on_lanes_are_served_and_drained() {
    let service = Arc::new(common::TestService::default());
    let server = serve([("TestService", Arc::clone(&service) as Arc<dyn Service>)], Lanes::start(2)).await;
    let mut clients = Vec::new();
    for id in 0..5 {
        let mut client = Client::open(&server).await;
        client.send(&request(id, "Echo", b"x", b"")).await;
        client.send(&request(id + 10, "Later", b"y", b"")).await;
        clients.push(client);
    }
    for (id, client) in (0..).zip(&mut clients) {
        assert_eq!(client.answer().await.header.call_id, Some(id));
    }
    common::eventually("all wait", || server.queues().calls_waiting() == 5).await;
    service.release.add_permits(5);
    assert!(server.stop(Duration::from_secs(10)).await);
    for (id, client) in (10..).zip(&mut clients) {
        assert_eq!(client.answer().await.header.call_id, Some(id));
        client.expect_close().await;
    }
}

#[tokio::test]
async fn a_client_of_several_services_has_each_on_all_lanes() {
    let threads = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let services = [
        ("TestService", Arc::new(OnThread(Arc::clone(&threads))) as Arc<dyn Service>),
        ("Other", Arc::new(common::TestService::default()) as Arc<dyn Service>),
    ];
    let server = serve(services, Lanes::start(2)).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let mut other = Client::raw(&server).await;
        other.send(&opening(&pb_header("Other"))).await;
        let mut client = Client::open(&server).await;
        for client in [&mut other, &mut client] {
            client.send(&request(1, "Echo", b"x", b"")).await;
            client.answer().await;
        }
        clients.extend([other, client]);
    }
    let mut threads = threads.lock().clone();
    threads.sort();
    assert_eq!(threads, ["network-0", "network-0", "network-1", "network-1"]);
    // Told to each connection's task, although another one opened the connection.
    assert!(server.stop(Duration::from_secs(10)).await);
    for client in &mut clients {
        client.expect_close().await;
    }
}

/// Remembers which threads did its calls.
struct OnThread(Arc<parking_lot::Mutex<Vec<String>>>);

impl Service for OnThread {
    fn call(&self, call: halcyon_rpc::Call) -> halcyon_rpc::Outcome {
        self.0.lock().push(std::thread::current().name().unwrap_or_default().to_string());
        halcyon_rpc::Outcome::Ready(Ok(halcyon_rpc::Reply::encoded(call.param)))
    }
}

fn pb_header(service: &str) -> halcyon_proto::pb::ConnectionHeader {
    halcyon_proto::pb::ConnectionHeader { service_name: Some(service.to_string()), ..header(None, None) }
}
