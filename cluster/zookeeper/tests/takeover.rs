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
use parking_lot::Mutex;
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

/// While the second master looked for the highest epoch, the session of the first one ended, and a master of HBase became active. The
/// transaction of the second one deleted its znode: two masters were active, and HBase's does not end by that.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_master_of_hbase_that_becomes_active_meanwhile_stays_it() {
    let (client, base) = raw("of-hbase-meanwhile").await;
    let (never, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (first_cluster, first, _) = watching(&base, 16000, &never).await;
    first.elected().await.unwrap();
    let path = format!("{base}/master");
    assert_eq!(client.check_stat(&path).await.unwrap().unwrap().version, 1, "none of HBase has this version");
    let (_second_cluster, second, second_name) = watching(&base, 16001, &end).await;
    let (client, looks) = (Arc::new(client), Arc::new(Mutex::new(Some(first_cluster))));
    let second = {
        let (client, looks, path) = (client.clone(), looks.clone(), path.clone());
        second.above(move || {
            let (client, first_cluster, path) = (client.clone(), looks.lock().take(), path.clone());
            Box::pin(async move {
                if let Some(first_cluster) = first_cluster {
                    first_cluster.close().await;
                    create_of_hbase(&client, &path).await;
                }
                Ok(0)
            })
        })
    };
    end.notify_one();
    assert!(timeout(SECOND, second.elected()).await.is_err(), "HBase's master is active");
    assert!(looks.lock().is_none(), "it was about to take the place of the first one");
    let stat = client.check_stat(&path).await.unwrap().expect("nobody deletes it");
    assert_eq!(stat.ephemeral_owner, client.session_id().0);
    client.delete(&path, None).await.unwrap();
    timeout(SOON, second.elected()).await.expect("the znode is gone").unwrap();
    assert_eq!(active(&client, &base).await, second_name);
}

async fn create_of_hbase(client: &zk::Client, path: &str) {
    let of_hbase = ActiveMaster { server: server(16009), info_port: 0 };
    let data = halcyon_schema::znode::encode("master:16009", [0; 8], &of_hbase.to_pb());
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    client.create(path, &data, &options).await.unwrap();
}

/// An earlier program wrote its znode once, as HBase does: the transaction that replaces it could hit one of HBase.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_znode_that_was_written_once_is_left_to_its_session() {
    let (client, base) = raw("written-once").await;
    let (path, epoch) = (format!("{base}/master"), format!("{base}/halcyon/master-epoch"));
    create(&client, &format!("{base}/halcyon"), b"").await;
    create(&client, &epoch, b"4").await;
    let earlier = ActiveMaster { server: server(16000), info_port: 0 };
    let data = halcyon_schema::znode::encode("master:16000", [0; 8], &earlier.to_pb());
    let mut transaction = client.new_multi_writer();
    let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    transaction.add_create(&path, &data, &options).unwrap();
    transaction.add_set_data(&epoch, b"5", None).unwrap();
    transaction.commit().await.unwrap();

    // One that takes its process for ended, and one at its address.
    let end = Arc::new(Notify::new());
    let (_cluster, watching, _) = watching(&base, 16001, &end).await;
    end.notify_one();
    let cluster = connect(&base, SESSION).await;
    let again = ServerName::new("node-1.example", 16000, 1_700_000_000_500);
    let again = cluster.stand(&again, 0).await.unwrap();
    assert!(timeout(SECOND, watching.elected()).await.is_err());
    assert!(timeout(SECOND, again.elected()).await.is_err());
    assert_eq!(active(&client, &base).await, server(16000));
    // As this program has it.
    client.set_data(&path, &data, Some(0)).await.unwrap();
    let elected = async {
        tokio::select! {
            elected = watching.elected() => elected,
            elected = again.elected() => elected,
        }
    };
    assert_eq!(timeout(SOON, elected).await.expect("it is replaced").unwrap().epoch(), 6);
}

/// A candidate that never learns of the end of a process.
async fn standing(base: &str, port: u16, session: Duration) -> (ZooKeeperCluster, Candidate) {
    let cluster = connect(base, session).await;
    let candidate = cluster.stand(&server(port), 0).await.unwrap();
    assert!(timeout(SECOND / 2, candidate.elected()).await.is_err(), "another one is active");
    (cluster, candidate)
}

/// The second master was active when its machine died. Its session ended, and the first one, whose lease is longer, was still changing
/// files: the third one knew of nobody.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn the_third_master_knows_of_the_first_one_when_the_second_one_is_gone() {
    let (_client, base) = raw("second-gone").await;
    let (never, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (_first_cluster, first, _) = watching(&base, 16000, &never).await;
    first.elected().await.unwrap();
    let (second_cluster, second, _) = watching(&base, 16001, &end).await;
    end.notify_one();
    timeout(SOON, second.elected()).await.expect("it need not wait").unwrap();
    let begun = Instant::now();
    let (_third_cluster, third) = standing(&base, 16002, SESSION / 5).await;
    second_cluster.close().await;
    let leadership = timeout(SOON, third.elected()).await.expect("there is none").unwrap();
    let lease = leadership.predecessor_lease().expect("the first one may live");
    assert!(lease <= SESSION * 2 / 3 + SECOND / 10, "{lease:?}");
    assert!(
        lease + begun.elapsed() >= SESSION * 2 / 3,
        "{lease:?}: two thirds of the session of the first one"
    );
}

/// A stop waits for the master before, and procedures that delete wait, too: not for one that cannot act any more.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_master_that_has_outlived_its_predecessor_leaves_none() {
    let (client, base) = raw("outlived").await;
    let session = 6 * SECOND;
    let first_cluster = connect(&base, session).await;
    first_cluster.stand(&server(16000), 0).await.unwrap().elected().await.unwrap();
    let second_cluster = connect(&base, session).await;
    let second = second_cluster.stand(&server(16001), 0).await.unwrap();
    let second = second.watching(|_| Box::pin(std::future::ready(())));
    let leadership = timeout(SOON, second.elected()).await.expect("it need not wait").unwrap();
    let begun = Instant::now();
    assert!(leadership.predecessor_lease().is_some_and(|lease| lease >= session * 2 / 3));
    sleep(2 * SECOND).await;
    let (_third_cluster, third) = standing(&base, 16002, session).await;
    let path = format!("{base}/master");
    while client.check_stat(&path).await.unwrap().unwrap().version < 2 {
        assert!(begun.elapsed() < session, "it is not written again");
        sleep(SECOND / 20).await;
    }
    assert!(begun.elapsed() >= session * 2 / 3 - SECOND / 10, "{:?}", begun.elapsed());
    leadership.publish_meta(&server(1)).await.unwrap();
    leadership.resign().await.unwrap();
    let leadership = timeout(SOON, third.elected()).await.expect("the second one has resigned").unwrap();
    assert_eq!(leadership.predecessor_lease(), None);
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
