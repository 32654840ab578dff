//! Deaths that masters publish: calls that wait for a frozen server end and are tried again elsewhere.

mod fake;

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fake::{Running, Say, cell, options, region, say, start};
use halcyon_client::{ClientError, Cluster, ClusterAddress, ClusterOptions, Get, ServerName, StatusOptions};
use halcyon_proto::pb;
use prost::Message;
use rustix::net::{netdevice, sockopt};
use tokio::time::{Instant, timeout};

const GROUP: Ipv4Addr = Ipv4Addr::new(226, 1, 1, 3);
/// Much longer than a test takes.
const LONG: Duration = Duration::from_secs(60);

/// A client that listens at the loopback interface, and the regions at a server that takes connections and never answers.
struct Frozen {
    running: Running,
    /// The connections to it stay open.
    _listener: TcpListener,
    name: ServerName,
    port: u16,
    calls: Arc<AtomicUsize>,
}

impl Frozen {
    async fn start(published: bool) -> Frozen {
        let free = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let status = StatusOptions { interface: "lo".to_string(), port, ..StatusOptions::default() };
        let options = ClusterOptions {
            call_timeout: LONG,
            operation_timeout: LONG,
            status: published.then_some(status),
            ..options()
        };
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let running = start(vec![region("", "", 1)], options, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            row_of("v")
        });
        let running = running.await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = ServerName::new("127.0.0.1", listener.local_addr().unwrap().port(), 7);
        running.state.lock().unwrap().elsewhere = Some(name.clone());
        Frozen { running, _listener: listener, name, port, calls }
    }

    /// A message of a master, as it leaves by the loopback interface.
    fn publish(&self, message: &[u8]) {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let index = netdevice::name_to_index(&socket, "lo").unwrap();
        sockopt::set_ip_multicast_if_with_ifindex(&socket, &GROUP, &Ipv4Addr::UNSPECIFIED, index).unwrap();
        socket.send_to(message, (GROUP, self.port)).unwrap();
    }

    /// A get that waits for the frozen server.
    async fn waiting_get(&self) -> tokio::task::JoinHandle<Result<Option<Vec<u8>>, ClientError>> {
        let table = self.running.table.clone();
        let get = tokio::spawn(async move {
            let row = table.get(Get::new("r")).await?;
            Ok(row.value("f", "q").map(<[u8]>::to_vec))
        });
        let reads = || self.running.state.lock().unwrap().meta_reads;
        while reads() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!get.is_finished(), "the frozen server does not answer");
        get
    }

    fn regions_are_here(&self) {
        self.running.state.lock().unwrap().elsewhere = None;
    }
}

fn row_of(value: &str) -> Say {
    let result = pb::Result { associated_cell_count: Some(1), ..Default::default() };
    say(pb::GetResponse { result: Some(result) }, vec![cell("r", value)])
}

fn dead(servers: &[ServerName]) -> Vec<u8> {
    let dead_servers = servers.iter().map(ServerName::to_pb).collect();
    pb::ClusterStatus { dead_servers, ..Default::default() }.encode_to_vec()
}

#[tokio::test]
async fn a_call_that_waits_for_a_dead_server_is_tried_again_elsewhere() {
    let frozen = Frozen::start(true).await;
    let get = frozen.waiting_get().await;
    frozen.regions_are_here();
    let begun = Instant::now();
    frozen.publish(&dead(std::slice::from_ref(&frozen.name)));
    let got = timeout(Duration::from_secs(20), get).await.expect("the call ends").unwrap().unwrap();
    assert_eq!(got.as_deref(), Some(&b"v"[..]));
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(frozen.running.cluster.published_dead_servers(), std::slice::from_ref(&frozen.name));
    assert_eq!(frozen.calls.load(Ordering::Relaxed), 1);
    assert_eq!(frozen.running.cluster.retries().values().sum::<u64>(), 1);
}

/// HBase's asynchronous client connects again to the server that it finds in `hbase:meta`, and waits.
#[tokio::test]
async fn a_dead_server_that_meta_still_names_is_not_connected_to() {
    let frozen = Frozen::start(true).await;
    let get = frozen.waiting_get().await;
    frozen.publish(&dead(std::slice::from_ref(&frozen.name)));
    let reads = || frozen.running.state.lock().unwrap().meta_reads;
    let waits_from = Instant::now();
    while reads() < 4 {
        assert!(waits_from.elapsed() < Duration::from_secs(20), "it looks up the region again and again");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!get.is_finished());
    frozen.regions_are_here();
    let got = timeout(Duration::from_secs(20), get).await.expect("the call ends").unwrap().unwrap();
    assert_eq!(got.as_deref(), Some(&b"v"[..]));
}

#[tokio::test]
async fn messages_that_do_not_concern_it_change_nothing() {
    let frozen = Frozen::start(true).await;
    let get = frozen.waiting_get().await;
    frozen.regions_are_here();
    let former = ServerName { start_code: frozen.name.start_code - 1, ..frozen.name.clone() };
    let other = ServerName::new("other.example", frozen.name.port, 7);
    frozen.publish(&dead(&[former.clone(), other.clone()]));
    for garbage in [&b""[..], b"\xff", b"\x0a\xff\xff\xff\xff\x0f", &[0; 60_000]] {
        frozen.publish(garbage);
    }
    let cluster = &frozen.running.cluster;
    let waits_from = Instant::now();
    while cluster.published_dead_servers().len() < 2 {
        assert!(waits_from.elapsed() < Duration::from_secs(20), "it listens");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!get.is_finished(), "it waits for a server that is not dead");
    // It listens on, and to the later server at the address.
    frozen.publish(&dead(std::slice::from_ref(&frozen.name)));
    let got = timeout(Duration::from_secs(20), get).await.expect("the call ends").unwrap().unwrap();
    assert_eq!(got.as_deref(), Some(&b"v"[..]));
}

#[tokio::test]
async fn a_client_does_not_listen_by_default() {
    let frozen = Frozen::start(false).await;
    let get = frozen.waiting_get().await;
    frozen.regions_are_here();
    frozen.publish(&dead(std::slice::from_ref(&frozen.name)));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!get.is_finished());
    assert_eq!(frozen.running.cluster.published_dead_servers(), []);
    get.abort();
}

#[tokio::test]
async fn clients_of_one_machine_listen_side_by_side_and_stop_when_they_are_dropped() {
    let frozen = Frozen::start(true).await;
    let status = StatusOptions { interface: "lo".into(), port: frozen.port, ..StatusOptions::default() };
    let address = ClusterAddress::registry([frozen.running.server.local_addr().to_string()]);
    let second = ClusterOptions { status: Some(status), ..options() };
    let second = Cluster::connect(address, second).await.unwrap();
    frozen.publish(&dead(std::slice::from_ref(&frozen.name)));
    let all = [frozen.running.cluster.clone(), second];
    let waits_from = Instant::now();
    while all.iter().any(|cluster| cluster.published_dead_servers().is_empty()) {
        assert!(waits_from.elapsed() < Duration::from_secs(20), "both hear it");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let port = frozen.port;
    drop((all, frozen));
    let waits_from = Instant::now();
    while UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_err() {
        assert!(waits_from.elapsed() < Duration::from_secs(20), "the socket is closed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_client_that_cannot_listen_is_refused() {
    let frozen = Frozen::start(false).await;
    let status = StatusOptions { interface: "nosuch0".into(), ..StatusOptions::default() };
    let address = ClusterAddress::registry([frozen.running.server.local_addr().to_string()]);
    let refused = Cluster::connect(address, ClusterOptions { status: Some(status), ..options() }).await;
    let error = refused.err().expect("there is no such interface").to_string();
    assert!(error.contains("hbase.status.multicast.ni.name: nosuch0"), "{error}");
}
