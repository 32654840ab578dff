//! What the tests against a real ZooKeeper share.
#![allow(dead_code)] // each test binary uses its part

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use halcyon_coord::{Coordinator, Followed};
use halcyon_env::{Clock, FileSystem, RealFileSystem, SystemClock};
use halcyon_schema::ServerName;
use halcyon_zookeeper::{ZooKeeperCluster, ZooKeeperSettings};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use zookeeper_client as zk;

pub mod ensemble;

pub const LIMIT: Duration = Duration::from_secs(30);
/// Names the server as which this test program joins as a process of its own, and its base path.
pub const MEMBER: &str = "HALCYON_ZOOKEEPER_MEMBER";

pub fn zookeeper() -> String {
    std::env::var("CLUSTER_ZOOKEEPER")
        .unwrap_or_else(|_| panic!("CLUSTER_ZOOKEEPER is not set: run these tests by `make zookeeper-test`"))
}

/// ZooKeeper is stopped. It is started again whatever happens, because other tests need it.
pub struct Outage {
    lasts: bool,
}

impl Outage {
    pub async fn begin() -> Outage {
        let outage = Outage { lasts: true };
        tokio::task::spawn_blocking(|| cluster("stop", "zookeeper")).await.unwrap();
        // A process that ends is gone a moment before its sockets are.
        let refused = async {
            while TcpStream::connect(zookeeper()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(LIMIT, refused).await.expect("ZooKeeper still takes connections");
        outage
    }

    pub async fn end(mut self) {
        self.lasts = false;
        tokio::task::spawn_blocking(|| cluster("start", "zookeeper")).await.unwrap();
    }
}

impl Drop for Outage {
    fn drop(&mut self) {
        if self.lasts {
            cluster("start", "zookeeper");
        }
    }
}

/// `cluster.sh stop zookeeper`, for example.
pub fn cluster(verb: &str, process: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testing/cluster/cluster.sh");
    let done = Command::new(script).args([verb, process]).status().unwrap();
    assert!(done.success(), "cluster.sh {verb} {process}");
}

pub fn settings(at: &str, base: &str, session_timeout: Duration) -> ZooKeeperSettings {
    ZooKeeperSettings::new(at, 2181, base, session_timeout).unwrap()
}

pub async fn connect_to(at: &str, base: &str, session_timeout: Duration) -> ZooKeeperCluster {
    let clock = Arc::new(SystemClock::new());
    ZooKeeperCluster::connect(settings(at, base, session_timeout), clock).await.unwrap()
}

pub async fn connect(base: &str, session_timeout: Duration) -> ZooKeeperCluster {
    connect_to(&zookeeper(), base, session_timeout).await
}

/// A client without anything of ours, and an empty base path with the znodes that HBase's master makes first.
pub async fn raw(name: &str) -> (zk::Client, String) {
    let connector = zk::Client::connector().with_session_timeout(Duration::from_secs(60));
    let connector = connector.with_connection_timeout(Duration::from_secs(2));
    let client = connector.connect(&zookeeper()).await.unwrap();
    let base = format!("/test-{name}");
    for path in [&base, &format!("{base}/rs"), &format!("{base}/draining"), &format!("{base}/backup-masters")]
    {
        create(&client, path, b"").await;
    }
    (client, base)
}

pub async fn create(client: &zk::Client, path: &str, data: &[u8]) {
    let options = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    client.create(path, data, &options).await.unwrap();
}

pub fn server(port: u16) -> ServerName {
    ServerName::new("node-1.example", port, 1_700_000_000_000)
}

/// The session that owns the znode of a server.
pub async fn owner(client: &zk::Client, base: &str, server: &ServerName) -> Option<i64> {
    client.check_stat(&format!("{base}/rs/{server}")).await.unwrap().map(|stat| stat.ephemeral_owner)
}

/// Waits until a server is, or is no longer, in the list of region servers.
pub async fn wait_for_member(observer: &ZooKeeperCluster, server: &ServerName, there: bool) {
    let mut servers: Followed<Vec<ServerName>> = observer.view().region_servers.clone();
    servers.wait_for(LIMIT, |servers| servers.contains(server) == there).await.unwrap();
}

pub fn boot_ns() -> u64 {
    SystemClock::new().boot_ns()
}

/// This test program as a process of its own that joins a cluster.
pub struct MemberProcess {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl MemberProcess {
    pub fn start(base: &str, server: &ServerName, session_timeout: Duration) -> MemberProcess {
        MemberProcess::start_as("member_process", "joined", base, server, session_timeout)
    }

    /// Runs the test of this name, until it writes a line that begins like `ready`.
    pub fn start_as(
        test: &str,
        ready: &str,
        base: &str,
        server: &ServerName,
        session_timeout: Duration,
    ) -> MemberProcess {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env(MEMBER, format!("{base} {server} {}", session_timeout.as_millis()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut process = MemberProcess { child, output };
        process.read_until(ready);
        process
    }

    /// Lines up to the one that begins like this, and that one.
    pub fn read_until(&mut self, start: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let count = self.output.read_line(&mut line).unwrap();
            assert!(count > 0, "the process ended before it wrote {start:?}: {lines:?}");
            let found = line.starts_with(start);
            lines.push(line.trim_end().to_string());
            if found {
                return lines;
            }
        }
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The state that the kernel has of the process, such as `T` for one that is stopped.
    pub fn kernel_state(&self) -> char {
        let status = RealFileSystem.read(Path::new(&format!("/proc/{}/status", self.child.id()))).unwrap();
        let status = String::from_utf8(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap();
        line.trim().chars().next().unwrap()
    }

    /// Kills the process; its end was seen.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        let status = self.child.wait().unwrap();
        assert!(!status.success(), "{status}");
    }
}

impl Drop for MemberProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What happens to bytes between a client and ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Open,
    /// Connections are closed, new ones too.
    Cut,
    /// Connections stay open and nothing passes: a network that swallows packets.
    Silent,
}

/// Stands between a client and ZooKeeper.
pub struct Relay {
    pub address: String,
    way: watch::Sender<Way>,
    connections: Arc<AtomicUsize>,
}

impl Relay {
    pub async fn start() -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (way, ways) = watch::channel(Way::Open);
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let ways = ways.clone();
                let passes = *ways.borrow() == Way::Open;
                if passes {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                tokio::spawn(relay(client, ways));
            }
        });
        Relay { address, way, connections }
    }

    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn relay(mut client: TcpStream, mut ways: watch::Receiver<Way>) {
    let mut way = *ways.borrow_and_update();
    let mut server = match way {
        Way::Open => Some(TcpStream::connect(zookeeper()).await.unwrap()),
        _ => None,
    };
    loop {
        match (way, &mut server) {
            (Way::Open, Some(server)) => tokio::select! {
                _ = copy_bidirectional(&mut client, server) => return,
                _ = ways.changed() => {}
            },
            // A connection that has lost bytes cannot go on.
            (Way::Open, None) | (Way::Cut, _) => return,
            (Way::Silent, _) => {
                let _ = ways.changed().await;
                server = None;
            }
        }
        way = *ways.borrow_and_update();
    }
}
