//! A master or a server whose process has ended before its session did, against a real ZooKeeper. These tests are ignored otherwise; run them
//! by `make zookeeper-test`.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use halcyon_coord::{Coordinator, LeaseState, Loss};
use halcyon_schema::ServerName;
use halcyon_schema::znode::ActiveMaster;
use halcyon_zookeeper::{Candidate, ZooKeeperCluster};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client as zk;

const SECOND: Duration = Duration::from_secs(1);
/// Long enough that nothing here happens by its expiry.
const SESSION: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(3);

/// A master that takes the process of each other one for ended when `end` says so.
async fn watching(base: &str, port: u16, end: &Arc<Notify>) -> (ZooKeeperCluster, Candidate, ServerName) {
    let (cluster, server) = (connect(base, SESSION).await, server(port));
    let candidate = cluster.stand(&server, 0).await.unwrap();
    let end = end.clone();
    let candidate = candidate.watching(move |_| {
        let end = end.clone();
        Box::pin(async move { end.notified().await })
    });
    (cluster, candidate, server)
}

async fn active(client: &zk::Client, base: &str) -> ServerName {
    let path = format!("{base}/master");
    let (data, _) = client.get_data(&path).await.unwrap();
    ActiveMaster::decode(&path, &data).unwrap().server
}

/// The verdict was wrong here: the first master lives. It loses its leadership, and nothing that it writes counts any more.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_master_that_waits_need_not_wait_for_the_session() {
    let (client, base) = raw("takeover").await;
    let (never, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (_first_cluster, first, _) = watching(&base, 16000, &never).await;
    let leadership = first.elected().await.unwrap();
    let (_second_cluster, second, name) = watching(&base, 16001, &end).await;
    assert!(timeout(SECOND, second.elected()).await.is_err(), "the first one is active");

    let begun = Instant::now();
    end.notify_one();
    let taken = timeout(SOON, second.elected()).await.expect("it need not wait").unwrap();
    println!("elected {:?} after the end of the process", begun.elapsed());
    assert_eq!((taken.epoch(), active(&client, &base).await), (2, name));
    assert!(leadership.predecessor_lease().is_none() && taken.predecessor_lease().is_some());
    let loss = timeout(SOON, leadership.lease().lost()).await.expect("the first one learns of it");
    assert!(matches!(loss, Loss::ZnodeTaken { .. } | Loss::ZnodeDeleted | Loss::Deposed), "{loss}");
    leadership.publish_meta(&server(1)).await.unwrap_err();
    taken.publish_meta(&server(2)).await.unwrap();
    assert_eq!(taken.lease().state(), LeaseState::Valid);
}

/// The second master soon ended, too, and its own lease is shorter than what was left of the first one's.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn the_third_master_knows_of_the_lease_of_the_first_one() {
    let (_client, base) = raw("third").await;
    let (never, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (_first_cluster, first, _) = watching(&base, 16000, &never).await;
    first.elected().await.unwrap();
    for (port, epoch) in [(16001, 2), (16002, 3)] {
        let cluster = connect(&base, SESSION / 5).await;
        let candidate = cluster.stand(&server(port), 0).await.unwrap();
        let ended = end.clone();
        let candidate = candidate.watching(move |_| {
            let ended = ended.clone();
            Box::pin(async move { ended.notified().await })
        });
        assert!(timeout(SECOND, candidate.elected()).await.is_err(), "the one before is active");
        end.notify_one();
        let leadership = timeout(SOON, candidate.elected()).await.expect("it need not wait").unwrap();
        let lease = leadership.predecessor_lease().expect("the first one may live");
        assert_eq!(leadership.epoch(), epoch);
        assert!(lease >= SESSION * 2 / 3, "{lease:?}: two thirds of the session of the first one");
        // As if its process had ended: the session is left to ZooKeeper.
        std::mem::forget(cluster);
    }
}

/// The verdict about one master is not used against the next one.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_verdict_is_about_one_master() {
    let (client, base) = raw("verdict").await;
    let (never, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (first_cluster, first, _) = watching(&base, 16000, &never).await;
    first.elected().await.unwrap();
    let (_second_cluster, second, second_name) = watching(&base, 16001, &never).await;
    let (_third_cluster, third, _) = watching(&base, 16002, &end).await;
    assert!(timeout(SECOND, second.elected()).await.is_err());
    assert!(timeout(SECOND, third.elected()).await.is_err());
    first_cluster.close().await;
    let (elected, others) = tokio::select! {
        leadership = second.elected() => (leadership.unwrap(), &third),
        leadership = third.elected() => (leadership.unwrap(), &second),
    };
    sleep(SECOND / 5).await;
    assert!(timeout(SECOND, others.elected()).await.is_err(), "{second_name} or the third is active");
    assert_eq!(&active(&client, &base).await, elected.lease().server());
    assert_eq!(elected.lease().state(), LeaseState::Valid);
}

/// HBase's masters do not raise the epoch, and their WALs are fenced in another way: only the end of their session counts.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn masters_of_hbase_are_left_to_their_sessions() {
    let (client, base) = raw("of-hbase").await;
    let of_hbase = ActiveMaster { server: server(16000), info_port: 0 };
    let data = halcyon_schema::znode::encode("master:16000", [0; 8], &of_hbase.to_pb());
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    client.create(&format!("{base}/master"), &data, &options).await.unwrap();
    let end = Arc::new(Notify::new());
    let (_cluster, candidate, name) = watching(&base, 16001, &end).await;
    end.notify_one();
    assert!(timeout(SECOND, candidate.elected()).await.is_err());
    assert_eq!(active(&client, &base).await, server(16000));
    client.delete(&format!("{base}/master"), None).await.unwrap();
    timeout(SOON, candidate.elected()).await.expect("the znode is gone").unwrap();
    assert_eq!(active(&client, &base).await, name);
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_session_is_ended_by_another_process() {
    let (client, base) = raw("ended").await;
    let cluster = connect(&base, SESSION).await;
    let member = cluster.join(&server(1), 0).await.unwrap();
    let key = cluster.session_key().to_string().parse().unwrap();
    let other = settings(&zookeeper(), &base, SESSION);
    let begun = Instant::now();
    assert!(other.end_session(&key).await.unwrap());
    println!("ended after {:?}", begun.elapsed());
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(owner(&client, &base, &server(1)).await, None);
    assert!(!other.end_session(&key).await.unwrap(), "it has ended");
    let wrong = "7fffffffffffffff:00112233445566778899aabbccddeeff".parse().unwrap();
    assert!(!other.end_session(&wrong).await.unwrap(), "there is no such session");
    timeout(SESSION, member.lease().lost()).await.expect("the server learns of it");
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn the_loss_of_a_znode_is_seen() {
    let (client, base) = raw("lost-znode").await;
    let cluster = connect(&base, SESSION).await;
    let member = cluster.join(&server(1), 0).await.unwrap();
    let (key, other) = (cluster.session_key(), settings(&zookeeper(), &base, SESSION));
    let path = other.paths().region_server(&server(1));
    assert!(timeout(SECOND, other.lost_znode(&key, &path)).await.is_err(), "it is there");
    let lost = tokio::spawn({
        let (other, key, path) = (other.clone(), key.clone(), path.clone());
        async move { other.lost_znode(&key, &path).await }
    });
    sleep(SECOND).await;
    member.leave().await.unwrap();
    timeout(SOON, lost).await.expect("it is seen").unwrap().unwrap();
    // One of the same name in another session is not this one.
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    client.create(&path, b"", &options).await.unwrap();
    timeout(SOON, other.lost_znode(&key, &path)).await.expect("it belongs to another session").unwrap();
}
