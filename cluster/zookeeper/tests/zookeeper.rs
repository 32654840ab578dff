//! Against a real ZooKeeper, which `testing/cluster` starts. These tests are ignored otherwise; run them by
//! `make zookeeper-test`. Needs CLUSTER_ZOOKEEPER and CLUSTER_DIR, as `cluster.sh run` sets them.

mod common;

use std::time::Duration;

use common::*;
use halcyon_cell::ErrorKind;
use halcyon_coord::{Coordinator, LeaseState, Loss, Seen};
use halcyon_proto::pb;
use halcyon_schema::znode::{self, ActiveMaster, MetaLocation};
use tokio::time::{Instant, sleep};
use zookeeper_client as zk;

const SECOND: Duration = Duration::from_secs(1);
/// ZooKeeper's servers look for expired sessions twice a second here, and the machine may be busy.
const LATE: Duration = Duration::from_secs(4);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Lives as a process of its own. It writes a line for all that it does under its lease.
#[tokio::test]
#[ignore = "a part of other tests"]
async fn member_process() {
    let Ok(text) = std::env::var(MEMBER) else { return };
    let [base, server, timeout_ms] = text.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let server = halcyon_schema::ServerName::parse(server).unwrap();
    let cluster = connect(base, ms(timeout_ms.parse().unwrap())).await;
    let member = cluster.join(&server, 16030).await.unwrap();
    println!("\njoined");
    let mut last = None;
    loop {
        let (now_ns, may_act) = (boot_ns(), member.lease().is_valid());
        if may_act {
            println!("acted {now_ns}");
        }
        let state = member.lease().state();
        if last.as_ref() != Some(&state) {
            println!("{state:?} {now_ns}");
            last = Some(state);
        }
        sleep(ms(2)).await;
    }
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn the_view_follows_the_znodes() {
    let (client, base) = raw("view").await;
    let cluster = connect(&base, 4 * SECOND).await;
    let mut view = cluster.view().clone();
    let error = view.master.wait(ms(500)).await.unwrap_err();
    assert!(error.to_string().contains("there is no active master (master)"), "{error}");

    let master = ActiveMaster { server: server(16000), info_port: 16010 };
    let data = |message| znode::encode("master:16000", [7; 8], &message);
    create(&client, &format!("{base}/master"), &data(master.to_pb())).await;
    assert_eq!(view.master.wait(LIMIT).await.unwrap(), master);
    client.set_data(&format!("{base}/master"), b"\xff\0\0\0garbage", None).await.unwrap();
    while !matches!(view.master.changed().await.unwrap(), Seen::Malformed(_)) {}
    let error = view.master.wait(ms(100)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains(&format!("{base}/master: the id of the writer is cut off")),
        "{error}"
    );
    client.delete(&format!("{base}/master"), None).await.unwrap();
    while view.master.changed().await.unwrap() != Seen::Absent {}

    create(&client, &format!("{base}/backup-masters/{}", server(16001)), b"").await;
    assert_eq!(view.backup_masters.wait_for(LIMIT, |seen| !seen.is_empty()).await.unwrap(), [server(16001)]);

    let id = znode::encode("master:16000", [7; 8], &pb::ClusterId { cluster_id: "an-id".to_string() });
    create(&client, &format!("{base}/hbaseid"), &id).await;
    assert_eq!(view.cluster_id.wait(LIMIT).await.unwrap().0, "an-id");
    let up = znode::encode("master:16000", [7; 8], &pb::ClusterUp { start_date: "today".to_string() });
    create(&client, &format!("{base}/running"), &up).await;
    assert_eq!(view.running.wait(LIMIT).await.unwrap(), "today");

    let meta = [0, 2].map(|replica| MetaLocation { replica, server: server(16020), is_open: replica == 0 });
    for location in &meta {
        let data = znode::encode("master:16000", [7; 8], &location.to_pb());
        let name = if location.replica == 0 { "meta-region-server" } else { "meta-region-server-2" };
        create(&client, &format!("{base}/{name}"), &data).await;
    }
    assert_eq!(view.meta.wait_for(LIMIT, |seen| seen.len() == 2).await.unwrap(), meta);
    client.delete(&format!("{base}/meta-region-server"), None).await.unwrap();
    assert_eq!(view.meta.wait_for(LIMIT, |seen| seen.len() == 1).await.unwrap(), meta[1..]);

    create(&client, &format!("{base}/draining/{}", server(5)), b"").await;
    assert_eq!(view.draining.wait_for(LIMIT, |seen| !seen.is_empty()).await.unwrap(), [server(5)]);
    create(&client, &format!("{base}/draining/x"), b"").await;
    while !matches!(view.draining.changed().await.unwrap(), Seen::Malformed(_)) {}
    cluster.close().await;
    assert_eq!(view.draining.changed().await.unwrap_err().kind(), ErrorKind::Stopping);
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_server_joins_and_leaves() {
    let (client, base) = raw("join").await;
    let cluster = connect(&base, 4 * SECOND).await;
    assert_eq!(cluster.session_timeout(), 4 * SECOND);
    let member = cluster.join(&server(1), 16030).await.unwrap();
    assert_eq!(member.lease().state(), LeaseState::Valid);
    let remaining = member.lease().remaining();
    assert!(remaining <= 4 * SECOND * 2 / 3 && remaining > SECOND, "{remaining:?}");

    let path = format!("{base}/rs/{}", server(1));
    let (data, stat) = client.get_data(&path).await.unwrap();
    assert_eq!(stat.ephemeral_owner, cluster.session().id().0);
    let info: pb::RegionServerInfo = znode::message(&path, &data).unwrap();
    assert_eq!(info, znode::region_server_info(16030, "2.6.4"));
    assert_eq!(data[5..][..14], *b"regionserver:1");

    // The same server in a second session: the first one stays.
    let other = connect(&base, 4 * SECOND).await;
    let error = other.join(&server(1), 0).await.err().unwrap();
    assert!(error.to_string().contains("another server of this name runs"), "{error}");
    wait_for_member(&other, &server(1), true).await;

    member.leave().await.unwrap();
    assert_eq!(member.lease().state(), LeaseState::Lost(Loss::Left));
    wait_for_member(&other, &server(1), false).await;
    member.leave().await.unwrap();

    // The end of the session takes the znode along.
    let _member = cluster.join(&server(2), 0).await.unwrap();
    wait_for_member(&other, &server(2), true).await;
    let begun = Instant::now();
    cluster.close().await;
    wait_for_member(&other, &server(2), false).await;
    assert!(begun.elapsed() < 3 * SECOND, "the session was closed and did not expire: {:?}", begun.elapsed());
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_cluster_that_was_never_started_is_an_error() {
    let cluster = connect("/test-nothing", 4 * SECOND).await;
    let error = cluster.join(&server(1), 0).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("there is no /test-nothing/rs"), "{error}");
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_killed_server_is_gone_when_its_session_expires() {
    let (client, base) = raw("killed").await;
    let observer = connect(&base, 4 * SECOND).await;
    let timeout = 2 * SECOND;
    let mut process = MemberProcess::start(&base, &server(1), timeout);
    wait_for_member(&observer, &server(1), true).await;
    process.kill();
    let begun = Instant::now();
    assert!(owner(&client, &base, &server(1)).await.is_some(), "the znode outlives the process");
    wait_for_member(&observer, &server(1), false).await;
    let took = begun.elapsed();
    println!("gone {took:?} after kill -9, with a session of {timeout:?}");
    assert!(took < timeout + LATE, "{took:?}");
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_frozen_server_does_nothing_after_its_thaw() {
    use rustix::process::Signal;
    let (client, base) = raw("frozen").await;
    let observer = connect(&base, 4 * SECOND).await;
    let timeout = 2 * SECOND;
    let mut process = MemberProcess::start(&base, &server(1), timeout);
    wait_for_member(&observer, &server(1), true).await;
    sleep(SECOND).await;
    process.signal(Signal::STOP);
    let frozen_ns = boot_ns();
    sleep(ms(100)).await;
    assert_eq!(process.kernel_state(), 'T', "it is frozen");
    wait_for_member(&observer, &server(1), false).await;
    assert_eq!(
        owner(&client, &base, &server(1)).await,
        None,
        "ZooKeeper took it for dead while it was frozen"
    );
    let thawed_ns = boot_ns();
    process.signal(Signal::CONT);
    let lines = tokio::task::spawn_blocking(move || process.read_until("Lost(")).await.unwrap();
    let times = |word: &str| -> Vec<u64> {
        let ends = lines.iter().filter_map(|line| line.strip_prefix(word));
        ends.map(|end| end.trim().parse().unwrap()).collect()
    };
    let (acted, expired) = (times("acted "), times("Expired "));
    println!(
        "{} actions, the last {} ms before the thaw",
        acted.len(),
        (thawed_ns - acted.last().unwrap()) / 1_000_000
    );
    assert!(
        acted.len() > 50 && acted.iter().all(|at_ns| *at_ns <= frozen_ns + 100_000_000),
        "it acted after its thaw"
    );
    assert!(lines.last().unwrap().starts_with("Lost(SessionExpired)"), "{:?}", lines.last());
    assert!(expired.iter().all(|at_ns| *at_ns >= thawed_ns), "it was not idle before");
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_session_that_was_ended_from_outside_is_lost() {
    let (client, base) = raw("expired").await;
    let relay = Relay::start().await;
    let cluster = connect_to(&relay.address, &base, 6 * SECOND).await;
    let member = cluster.join(&server(1), 0).await.unwrap();
    assert!(member.lease().is_valid());
    // Two clients of one session take the connection from each other for ever.
    relay.set(Way::Cut);
    let other = zk::Client::connector().with_session(cluster.session().clone());
    let other = other.connect(&zookeeper()).await.unwrap();
    assert_eq!(other.session_id(), cluster.session().id());
    let mut states = other.state_watcher();
    drop(other);
    while !states.changed().await.is_terminated() {}
    assert_eq!(owner(&client, &base, &server(1)).await, None, "the session was closed");
    assert_eq!(member.lease().state(), LeaseState::Valid, "it knows nothing of it yet");
    relay.set(Way::Open);
    let begun = Instant::now();
    let loss = tokio::time::timeout(LIMIT, member.lease().lost()).await.unwrap();
    println!("{loss}, noticed after {:?}", begun.elapsed());
    assert_eq!(loss, Loss::SessionExpired);
    assert!(!member.lease().is_valid());
    let error = cluster.join(&server(2), 0).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Expired);
    assert!(
        error.to_string().contains(&format!("create {base}/rs/{}: the session has expired", server(2))),
        "{error}"
    );
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_deleted_znode_is_noticed_at_once() {
    let (client, base) = raw("deleted").await;
    let cluster = connect(&base, 30 * SECOND).await;
    let member = cluster.join(&server(1), 0).await.unwrap();
    sleep(ms(500)).await;
    client.delete(&format!("{base}/rs/{}", server(1)), None).await.unwrap();
    let begun = Instant::now();
    let loss = tokio::time::timeout(LIMIT, member.lease().lost()).await.unwrap();
    assert_eq!(loss, Loss::ZnodeDeleted);
    assert!(
        begun.elapsed() < 2 * SECOND,
        "a renewal is due after 5 s, and a watch is faster: {:?}",
        begun.elapsed()
    );
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_short_cut_is_no_news_and_a_long_one_is_a_loss() {
    let (client, base) = raw("cut").await;
    let observer = connect(&base, 4 * SECOND).await;
    let relay = Relay::start().await;
    let cluster = connect_to(&relay.address, &base, 3 * SECOND).await;
    let member = cluster.join(&server(1), 0).await.unwrap();
    let before = owner(&client, &base, &server(1)).await.unwrap();
    for way in [Way::Cut, Way::Silent] {
        let connections = relay.connections();
        let asked = member.lease().remaining();
        relay.set(way);
        sleep(ms(700)).await;
        assert!(member.lease().remaining() < asked.max(SECOND), "{way:?}: no answers come");
        assert_eq!(relay.connections(), connections, "{way:?}: no connection passes");
        relay.set(Way::Open);
        sleep(2 * SECOND).await;
        assert!(relay.connections() > connections, "{way:?}: there was a new connection");
        assert_eq!(member.lease().state(), LeaseState::Valid, "{way:?}");
        assert_eq!(owner(&client, &base, &server(1)).await, Some(before), "{way:?}");
    }
    relay.set(Way::Silent);
    sleep(3 * SECOND * 2 / 3 + ms(100)).await;
    assert_eq!(member.lease().state(), LeaseState::Expired);
    assert_eq!(owner(&client, &base, &server(1)).await, Some(before), "the lease ends before the session");
    wait_for_member(&observer, &server(1), false).await;
    assert_eq!(member.lease().state(), LeaseState::Expired, "nobody can tell it of the loss");
    sleep(4 * SECOND).await;
    relay.set(Way::Open);
    let loss = tokio::time::timeout(LIMIT, member.lease().lost()).await.unwrap();
    assert_eq!(loss, Loss::SessionExpired);
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn calls_end_at_their_deadlines() {
    let (_client, base) = raw("deadlines").await;
    let relay = Relay::start().await;
    let mut settings = settings(&relay.address, &base, 20 * SECOND);
    settings.call_timeout = SECOND;
    let clock = std::sync::Arc::new(halcyon_env::SystemClock::new());
    let cluster = halcyon_zookeeper::ZooKeeperCluster::connect(settings, clock.clone()).await.unwrap();
    let member = cluster.join(&server(1), 0).await.unwrap();
    relay.set(Way::Silent);
    let begun = Instant::now();
    let error = member.leave().await.unwrap_err();
    assert!(begun.elapsed() >= SECOND && begun.elapsed() < 3 * SECOND, "{:?}", begun.elapsed());
    let text =
        format!("ZooKeeper {}{base}: delete {base}/rs/{}: no answer within 1s", relay.address, server(1));
    assert!(error.to_string().contains(&text), "{error}");
    assert_eq!(member.lease().state(), LeaseState::Lost(Loss::Left), "it has left all the same");
    let begun = Instant::now();
    cluster.close().await;
    assert!(begun.elapsed() < 3 * SECOND, "{:?}", begun.elapsed());

    for way in [Way::Silent, Way::Cut] {
        relay.set(way);
        let mut settings = common::settings(&relay.address, &base, 20 * SECOND);
        settings.connect_timeout = SECOND;
        let begun = Instant::now();
        let error =
            halcyon_zookeeper::ZooKeeperCluster::connect(settings, clock.clone()).await.err().unwrap();
        assert!(begun.elapsed() < 3 * SECOND, "{way:?}: {:?}", begun.elapsed());
        assert!(
            error.to_string().contains(&format!("{}{base}: no session within 1s", relay.address)),
            "{error}"
        );
    }
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_restart_of_zookeeper_is_no_news() {
    let (client, base) = raw("restart").await;
    let cluster = connect(&base, 30 * SECOND).await;
    let member = cluster.join(&server(1), 0).await.unwrap();
    let before = owner(&client, &base, &server(1)).await.unwrap();
    let outage = Outage::begin().await;
    outage.end().await;
    // The next question is due after 5 s; the answer to one that was asked after the restart.
    sleep(12 * SECOND).await;
    assert_eq!(member.lease().state(), LeaseState::Valid);
    assert!(member.lease().remaining() > 13 * SECOND, "renewed since: {:?}", member.lease().remaining());
    assert_eq!(owner(&client, &base, &server(1)).await, Some(before));
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn an_outage_expires_the_lease_and_not_the_session() {
    let (client, base) = raw("outage").await;
    let timeout = 2 * SECOND;
    let cluster = connect(&base, timeout).await;
    let member = cluster.join(&server(1), 0).await.unwrap();
    let before = owner(&client, &base, &server(1)).await.unwrap();
    let outage = Outage::begin().await;
    let begun = Instant::now();
    while member.lease().is_valid() {
        assert!(begun.elapsed() < timeout, "the lease outlasts the session");
        sleep(ms(10)).await;
    }
    // Longer than the library waits.
    sleep(timeout * 3).await;
    assert_eq!(member.lease().state(), LeaseState::Expired, "nobody has ended the session");
    outage.end().await;
    tokio::time::timeout(LIMIT, member.lease().valid()).await.unwrap().unwrap();
    println!("valid again {:?} after the end of ZooKeeper", begun.elapsed());
    assert_eq!(owner(&client, &base, &server(1)).await, Some(before), "the same session");
    // The view follows again.
    create(&client, &format!("{base}/draining/{}", server(9)), b"").await;
    let mut draining = cluster.view().draining.clone();
    draining.wait_for(LIMIT, |seen| *seen == [server(9)]).await.unwrap();
}
