//! Which clusters can be peers.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_schema::ClusterId;

fn cluster() -> Cluster {
    Cluster::start(with_real_clock(SimFileSystem::new().env()), Path::new(ROOT), 1).unwrap()
}

fn add(c: &Cluster, key: &str) -> Result<u64, String> {
    let config = pb::ReplicationPeer { clusterkey: Some(key.to_string()), ..Default::default() };
    let peer_state = pb::ReplicationState { state: pb::replication_state::State::Enabled as i32 };
    let request = pb::AddReplicationPeerRequest { peer_id: "p".into(), peer_config: config, peer_state };
    c.run("AddReplicationPeer", &request).map_err(|error| error.message)
}

/// The peer was taken, and its source could do nothing but say that it is this cluster itself (`TestMasterReplication` of HBase).
#[test]
fn a_cluster_is_no_peer_of_itself() {
    let c = cluster();
    let own = c.master.cluster_id().clone();
    let other = ClusterId("01234567-89ab-cdef-0123-456789abcdef".to_string());
    c.server
        .clusters
        .lock()
        .extend([("own:2181:/hbase".to_string(), own), ("other:2181:/x".to_string(), other)]);
    let told = add(&c, "own:2181:/hbase").unwrap_err();
    assert!(told.contains("Invalid cluster key: own:2181:/hbase, should not replicate to itself"), "{told}");
    assert!(c.master.peers().is_empty() && c.server.peers().is_empty());
    add(&c, "other:2181:/x").unwrap();
    assert_eq!(c.master.peers().len(), 1);
}

/// What HBase 2.6.4 says. A ZooKeeper without a cluster is taken by it, too.
#[test]
fn a_peer_that_is_away_is_refused() {
    let c = cluster();
    let told = add(&c, "away:2181:/hbase").unwrap_err();
    assert!(told.contains("Can't get peerClusterId for clusterKey=away:2181:/hbase"), "{told}");
    assert!(c.master.peers().is_empty() && c.server.peers().is_empty());
    add(&c, "nothing:2181:/hbase").unwrap();
    assert_eq!(c.server.peers().len(), 1);
}

/// `hbase.replication.peer.base.config` was not looked at (`TestMasterReplication` of HBase).
#[test]
fn each_peer_has_the_base_configuration() {
    let sim = SimFileSystem::new();
    let start = |start_code, base: &str| {
        let mut settings = settings();
        settings.peer_base_config = base.to_string();
        Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), start_code, settings).unwrap()
    };
    let configuration = |c: &Cluster| {
        let peer = c.master.peers().remove(0);
        peer.config.configuration.into_iter().map(|pair| (pair.name, pair.value)).collect::<Vec<_>>()
    };
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    let c = start(1, "a=1; b = 2;");
    add(&c, "other:2181:/hbase").unwrap();
    assert_eq!(configuration(&c), [pair("a", "1"), pair("b", "2")]);
    drop(c);
    let c = start(2, "a=;b=3");
    assert_eq!(configuration(&c), [pair("b", "3")]);
    drop(c);
    assert_eq!(configuration(&start(3, "")), [pair("b", "3")], "it is written");
}

/// The next master took the peer for one that all servers know: it had everything sent that servers had left which died before that.
#[test]
fn an_addition_ends_as_one_under_the_next_master() {
    let sim = SimFileSystem::new();
    let start = |start_code| Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), start_code).unwrap();
    let c = start(1);
    c.server.set_fault("peer_added", Some(ServerFault::Fails));
    let config =
        pb::ReplicationPeer { clusterkey: Some("other:2181:/hbase".to_string()), ..Default::default() };
    let peer_state = pb::ReplicationState { state: pb::replication_state::State::Enabled as i32 };
    let request = pb::AddReplicationPeerRequest { peer_id: "p".into(), peer_config: config, peer_state };
    c.call_and_leave("AddReplicationPeer", &request);
    let begin = Instant::now();
    while c.server.peers_told.lock().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(30), "the servers are not told");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(c.master.peers().len(), 1, "it is written");
    drop(c);

    let c = start(2);
    c.quiet();
    assert_eq!(*c.server.peers_told.lock(), ["added"], "not found as one that was there");
    assert_eq!(c.server.peers().len(), 1);
    drop(c);
    let c = start(3);
    assert_eq!(*c.server.peers_told.lock(), ["found"]);
}
