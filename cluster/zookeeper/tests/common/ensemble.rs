//! The members of an ensemble of ZooKeeper servers: who leads, which one a session is connected to, and what happens to them.

use std::process::Command;
use std::time::Duration;

use halcyon_coord::{Coordinator, LeaseState, Membership};
use halcyon_zookeeper::ZooKeeperCluster;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::{LIMIT, cluster, connect, server, zookeeper};

/// A member of an ensemble, as the cluster of `testing/cluster` calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnsembleMember {
    pub process: String,
    pub address: String,
}

pub fn members() -> Vec<EnsembleMember> {
    let name = |number| if number == 1 { "zookeeper".to_string() } else { format!("zookeeper{number}") };
    let addresses = zookeeper();
    let found = addresses.split(',').enumerate();
    found
        .map(|(at, address)| EnsembleMember { process: name(at + 1), address: address.to_string() })
        .collect()
}

impl EnsembleMember {
    /// The answer to one of ZooKeeper's words of four letters.
    async fn asked(&self, word: &str) -> Option<String> {
        let ask = async {
            let mut stream = TcpStream::connect(&self.address).await.ok()?;
            stream.write_all(word.as_bytes()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            Some(answer)
        };
        timeout(Duration::from_secs(1), ask).await.ok().flatten()
    }

    /// `leader` or `follower`; `None` if it does not serve.
    pub async fn mode(&self) -> Option<String> {
        let answer = self.asked("srvr").await?;
        answer.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_string)
    }

    /// Whether the session has its connection here.
    pub async fn has_session(&self, session: i64) -> bool {
        let answer = self.asked("cons").await.unwrap_or_default();
        answer.contains(&format!("sid=0x{session:x},"))
    }
}

/// Waits until all members serve.
pub async fn whole_ensemble() -> Vec<EnsembleMember> {
    let members = members();
    assert!(members.len() >= 3, "an ensemble of three is needed, not {}", zookeeper());
    for member in &members {
        let begun = Instant::now();
        while member.mode().await.is_none() {
            assert!(begun.elapsed() < LIMIT, "{member:?} does not serve");
            sleep(Duration::from_millis(50)).await;
        }
    }
    members
}

pub async fn leader() -> EnsembleMember {
    let begun = Instant::now();
    loop {
        for member in members() {
            if member.mode().await.as_deref() == Some("leader") {
                return member;
            }
        }
        assert!(begun.elapsed() < LIMIT, "there is no leader");
        sleep(Duration::from_millis(50)).await;
    }
}

/// Where a session has its connection, once there is one.
pub async fn connected(session: i64) -> EnsembleMember {
    let begun = Instant::now();
    loop {
        for member in members() {
            if member.has_session(session).await {
                return member;
            }
        }
        assert!(begun.elapsed() < LIMIT, "the session {session:#x} is connected to no member");
        sleep(Duration::from_millis(20)).await;
    }
}

/// A server that has joined, connected to a member of this mode.
pub async fn joined_at(
    mode: &str,
    base: &str,
    session_timeout: Duration,
) -> (ZooKeeperCluster, Arc<dyn Membership>, EnsembleMember) {
    for _ in 0..100 {
        let cluster = connect(base, session_timeout).await;
        let at = connected(cluster.session().id().0).await;
        if at.mode().await.as_deref() == Some(mode) {
            let member = cluster.join(&server(1), 0).await.unwrap();
            return (cluster, member, at);
        }
        cluster.close().await;
    }
    panic!("no session was ever connected to a {mode}");
}

/// What happened to a member. It ends whatever happens, because other tests need the member.
pub struct Fault {
    pub member: EnsembleMember,
    /// What ends it.
    verb: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Kill,
    Freeze,
}

impl Fault {
    /// The fault has had its effect when this returns.
    pub async fn begin(kind: FaultKind, member: &EnsembleMember) -> Fault {
        let (begin, end) = match kind {
            FaultKind::Kill => ("kill", "start"),
            FaultKind::Freeze => ("freeze", "thaw"),
        };
        let fault = Fault { member: member.clone(), verb: Some(end) };
        let process = member.process.clone();
        tokio::task::spawn_blocking(move || cluster(begin, &process)).await.unwrap();
        match kind {
            // A process that ends is gone a moment before its sockets are.
            FaultKind::Kill => {
                let refused = async {
                    while TcpStream::connect(&member.address).await.is_ok() {
                        sleep(Duration::from_millis(20)).await;
                    }
                };
                timeout(LIMIT, refused).await.expect("it takes connections, although it was killed");
            }
            // The kernel still accepts connections for it.
            FaultKind::Freeze => assert!(
                TcpStream::connect(&member.address).await.is_ok() && member.asked("ruok").await.is_none(),
                "it is frozen"
            ),
        }
        fault
    }

    /// Ends it; the member may need a while until it serves.
    pub async fn end(mut self) {
        let (verb, process) = (self.verb.take().unwrap(), self.member.process.clone());
        tokio::task::spawn_blocking(move || cluster(verb, &process)).await.unwrap();
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        if let Some(verb) = self.verb {
            cluster(verb, &self.member.process);
        }
    }
}

/// Looks at a lease every few milliseconds.
pub struct LeaseWatch {
    task: tokio::task::JoinHandle<()>,
    seen: Arc<parking_lot::Mutex<LeaseSeen>>,
}

#[derive(Clone, Debug)]
pub struct LeaseSeen {
    pub invalid: Duration,
    pub least: Duration,
    pub lost: Option<LeaseState>,
}

impl LeaseWatch {
    pub fn start(member: Arc<dyn Membership>) -> LeaseWatch {
        let seen = LeaseSeen { invalid: Duration::ZERO, least: Duration::MAX, lost: None };
        let seen = Arc::new(parking_lot::Mutex::new(seen));
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            let mut before = Instant::now();
            loop {
                let lease = member.lease();
                let (now, remaining) = (Instant::now(), lease.remaining());
                {
                    let mut seen = shared.lock();
                    seen.least = seen.least.min(remaining);
                    if !lease.is_valid() {
                        seen.invalid += now - before;
                    }
                    if matches!(lease.state(), LeaseState::Lost(_)) {
                        seen.lost = Some(lease.state());
                    }
                }
                before = now;
                sleep(Duration::from_millis(5)).await;
            }
        });
        LeaseWatch { task, seen }
    }

    pub fn seen(&self) -> LeaseSeen {
        self.seen.lock().clone()
    }
}

impl Drop for LeaseWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// No packets between a member and the others, while clients reach all of them. `zookeeper-test.sh` made the table and the groups,
/// and says so in `HALCYON_ZOOKEEPER_CUTS`.
pub struct Partition;

impl Partition {
    pub fn is_possible() -> bool {
        std::env::var("HALCYON_ZOOKEEPER_CUTS").is_ok()
    }

    pub fn begin(member: &EnsembleMember) -> Partition {
        let members = members();
        let number = 1 + members.iter().position(|other| other == member).unwrap();
        let (mut own, mut all) = (Vec::new(), Vec::new());
        for other in &members {
            for kind in ["peer", "election"] {
                let port = port(&format!("{}-{kind}", other.process));
                all.push(port.clone());
                if other == member {
                    own.push(port);
                }
            }
        }
        let partition = Partition;
        for way in ["dport", "sport"] {
            nft(&format!("add rule inet zookeeper cuts tcp {way} {{ {} }} counter drop", own.join(",")));
            let others = all.join(",");
            nft(&format!(
                "add rule inet zookeeper cuts ct mark {number} tcp {way} {{ {others} }} counter drop"
            ));
        }
        partition
    }

    /// Packets that were dropped.
    pub fn dropped(&self) -> u64 {
        let rules = nft("list chain inet zookeeper cuts");
        let counts = rules.split("packets ").skip(1).filter_map(|rest| rest.split(' ').next());
        counts.map(|count| count.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        nft("flush chain inet zookeeper cuts");
    }
}

fn port(name: &str) -> String {
    let ports = format!("{}/ports", std::env::var("CLUSTER_DIR").unwrap());
    let done = Command::new("cat").arg(&ports).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let found = text.lines().filter_map(|line| line.split_once(' ')).find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("{ports} has no {name}")).1.to_string()
}

fn nft(command: &str) -> String {
    let done = Command::new("nft").arg(command).output().unwrap();
    assert!(done.status.success(), "nft {command}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}
