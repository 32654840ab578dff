//! Connections on threads of their own.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Client, header, opening, request};
use halcyon_env::SystemClock;
use halcyon_rpc::{EventLoops, RpcServer, RpcSettings, Service, Services};

async fn serve<const N: usize>(
    services: [(&'static str, Arc<dyn Service>); N],
    event_loops: std::io::Result<Arc<EventLoops>>,
) -> RpcServer {
    serve_with(RpcSettings::default(), services, event_loops).await
}

async fn serve_with<const N: usize>(
    settings: RpcSettings,
    services: [(&'static str, Arc<dyn Service>); N],
    event_loops: std::io::Result<Arc<EventLoops>>,
) -> RpcServer {
    let address = "127.0.0.1:0".parse().unwrap();
    let bound = RpcServer::bind(address, settings, Arc::new(SystemClock::new())).await;
    bound.unwrap().on_event_loops(event_loops.unwrap()).serve(Services::from(services), "c")
}

#[tokio::test]
async fn connections_on_event_loops_are_served_and_drained() {
    let service = Arc::new(common::TestService::default());
    let server =
        serve([("TestService", Arc::clone(&service) as Arc<dyn Service>)], EventLoops::start(2)).await;
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
async fn a_client_of_several_services_has_each_on_all_event_loops() {
    let threads = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let services = [
        ("TestService", Arc::new(OnThread(Arc::clone(&threads))) as Arc<dyn Service>),
        ("Other", Arc::new(common::TestService::default()) as Arc<dyn Service>),
    ];
    let server = serve(services, EventLoops::start(2)).await;
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

/// However fast newcomers come, those who are there wait behind a few of them only: the rest has no turn yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_there_waits_behind_few_newcomers() {
    const CLIENTS: usize = 300;
    let (release, held) = std::sync::mpsc::channel::<()>();
    let service = Arc::new(HeldUp {
        held: parking_lot::Mutex::new(held),
        holds: AtomicBool::new(false),
        calls: AtomicU64::new(0),
        before_mine: AtomicU64::new(0),
    });
    let services = [("TestService", Arc::clone(&service) as Arc<dyn Service>)];
    let server = serve(services, EventLoops::start(1)).await;
    let mut first = Client::open(&server).await;
    first.send(&request(0, "Hold", b"x", b"")).await;
    common::eventually("the event loop is held up", || service.holds.load(Ordering::SeqCst)).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = Client::open(&server).await;
        client.send(&request(1, "Echo", b"x", b"")).await;
        clients.push(client);
    }
    common::eventually("some have come", || server.stats().snapshot().connections_opened >= 64).await;
    first.send(&request(9, "Mine", b"x", b"")).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    release.send(()).unwrap();
    for client in &mut clients {
        assert_eq!(client.answer().await.header.call_id, Some(1));
    }
    assert_eq!(server.stats().snapshot().connections_opened, 1 + CLIENTS as u64);
    let before = service.before_mine.load(Ordering::SeqCst);
    assert!(before <= 130, "{before}: the places of newcomers, and some that came in between");
}

#[tokio::test]
async fn who_does_not_say_who_he_is_keeps_nobody_out() {
    let service = Arc::new(common::TestService::default());
    let server = serve([("TestService", service as Arc<dyn Service>)], EventLoops::start(1)).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(Client::raw(&server).await);
    }
    let mut client = Client::open(&server).await;
    client.send(&request(1, "Echo", b"x", b"")).await;
    assert_eq!(client.answer().await.header.call_id, Some(1));
}

/// A method `Hold` keeps its thread until it is told.
struct HeldUp {
    held: parking_lot::Mutex<std::sync::mpsc::Receiver<()>>,
    holds: AtomicBool,
    calls: AtomicU64,
    /// Calls before `Mine`.
    before_mine: AtomicU64,
}

impl Service for HeldUp {
    fn call(&self, call: halcyon_rpc::Call) -> halcyon_rpc::Outcome {
        let before = self.calls.fetch_add(1, Ordering::SeqCst);
        if call.method == "Mine" {
            self.before_mine.store(before, Ordering::SeqCst);
        }
        if call.method == "Hold" {
            self.holds.store(true, Ordering::SeqCst);
            self.held.lock().recv().unwrap();
        }
        halcyon_rpc::Outcome::Ready(Ok(halcyon_rpc::Reply::encoded(call.param)))
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
