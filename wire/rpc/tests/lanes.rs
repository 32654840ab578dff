//! Connections on threads of their own.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{Client, header, opening, request};
use halcyon_env::{Clock, ManualClock, SystemClock};
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

#[tokio::test]
async fn lanes_that_stay_awake_serve_and_go_to_sleep() {
    let lanes = Lanes::start(1).unwrap();
    let clock = Arc::new(ManualClock::at(0));
    let service = Arc::new(common::TestService::default());
    let shared: Arc<dyn Clock> = clock.clone();
    lanes.stay_awake(&shared, Duration::from_micros(50));
    let services = [("TestService", Arc::clone(&service) as Arc<dyn Service>)];
    let server = serve(services, Ok(Arc::clone(&lanes))).await;
    let mut clients = [Client::open(&server).await, Client::open(&server).await];
    for round in 0..20u32 {
        for client in &mut clients {
            client.send(&request(round, "Echo", b"x", b"")).await;
            assert_eq!(client.answer().await.header.call_id, Some(round));
        }
        if round % 5 == 4 {
            // By its own clock the lane has been idle for long enough: it sleeps until the next call, which wakes it.
            common::eventually("it is awake", || lanes.awake_count() == 1).await;
            let sleeps = || {
                clock.advance(Duration::from_millis(1));
                lanes.awake_count() == 0
            };
            common::eventually("it sleeps", sleeps).await;
        }
    }
    // By a clock that stands still it stays awake, and others have their turns nevertheless.
    clients[0].send(&request(90, "Later", b"x", b"")).await;
    common::eventually("it waits", || server.queues().calls_waiting() == 1).await;
    service.release.add_permits(1);
    assert_eq!(clients[0].answer().await.header.call_id, Some(90));
    assert!(server.stop(Duration::from_secs(10)).await);
}
