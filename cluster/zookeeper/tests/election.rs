//! Elections of a master, against a real ZooKeeper. These tests are ignored otherwise; run them by `make zookeeper-test`.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use halcyon_cell::{Error, ErrorKind};
use halcyon_coord::{Coordinator, LeaseState, Loss, Seen};
use halcyon_proto::pb;
use halcyon_schema::znode::{self, ActiveMaster, MetaLocation, ZnodePaths};
use halcyon_schema::{ClusterId, ServerName};
use halcyon_zookeeper::{Candidate, Leadership, ZooKeeperCluster};
use pb::deprecated_table_state::State as Mirrored;
use pb::table_state::State as TableState;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client as zk;

const SECOND: Duration = Duration::from_secs(1);
/// ZooKeeper's servers look for expired sessions twice a second here, and the machine may be busy.
const LATE: Duration = Duration::from_secs(4);
const INFO_PORT: u16 = 16010;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// One master with a session of its own.
struct Master {
    cluster: ZooKeeperCluster,
    candidate: Candidate,
    server: ServerName,
}

impl Master {
    async fn stand(base: &str, port: u16, session_timeout: Duration) -> Master {
        Master::stand_at(&zookeeper(), base, port, session_timeout).await
    }

    async fn stand_at(at: &str, base: &str, port: u16, session_timeout: Duration) -> Master {
        let (cluster, server) = (connect_to(at, base, session_timeout).await, server(port));
        let candidate = cluster.stand(&server, INFO_PORT).await.unwrap();
        Master { cluster, candidate, server }
    }

    async fn elected(&self) -> Leadership {
        let elected = timeout(LIMIT, self.candidate.elected()).await.expect("elected in time");
        let leadership = elected.unwrap();
        assert_eq!(leadership.lease().state(), LeaseState::Valid);
        assert_eq!(leadership.lease().server(), &self.server);
        leadership
    }

    async fn waits(&self) {
        let elected = timeout(ms(300), self.candidate.elected()).await;
        assert!(elected.is_err(), "{} is active beside another one", self.server);
    }
}

async fn data(client: &zk::Client, path: &str) -> Option<Vec<u8>> {
    match client.get_data(path).await {
        Ok((data, _)) => Some(data),
        Err(zk::Error::NoNode) => None,
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Who is the active master, by the bytes in the znode.
async fn active(client: &zk::Client, base: &str) -> Option<ServerName> {
    let path = format!("{base}/master");
    let master = ActiveMaster::decode(&path, &data(client, &path).await?).unwrap();
    assert_eq!(master.info_port, INFO_PORT);
    Some(master.server)
}

async fn meta(client: &zk::Client, base: &str) -> Option<ServerName> {
    let path = format!("{base}/meta-region-server");
    let location = MetaLocation::decode(&path, 0, &data(client, &path).await?).unwrap();
    assert!(location.is_open);
    Some(location.server)
}

async fn epoch(client: &zk::Client, base: &str) -> String {
    String::from_utf8(data(client, &format!("{base}/halcyon/master-epoch")).await.unwrap()).unwrap()
}

async fn backups(client: &zk::Client, base: &str) -> Vec<String> {
    let mut names = client.list_children(&format!("{base}/backup-masters")).await.unwrap();
    names.sort();
    names
}

/// Every write of a master that is not the active one any more.
async fn all_writes_fail(leadership: &Leadership) {
    let states = BTreeMap::from([("t".to_string(), TableState::Disabled)]);
    let other = server(9999);
    let errors: [Error; 7] = [
        leadership.publish_meta(&other).await.unwrap_err(),
        leadership.publish_running().await.unwrap_err(),
        leadership.remove_running().await.unwrap_err(),
        leadership.publish_cluster_id(&ClusterId("other".to_string())).await.unwrap_err(),
        leadership.set_draining(&other, true).await.unwrap_err(),
        leadership.set_draining(&server(5), false).await.unwrap_err(),
        leadership.publish_table_states(&states).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
    }
    assert!(matches!(leadership.lease().state(), LeaseState::Lost(_)));
}

/// All znodes below a path with their data and versions.
async fn snapshot(client: &zk::Client, path: &str) -> BTreeMap<String, (Vec<u8>, i32, i64)> {
    let (mut found, mut paths) = (BTreeMap::new(), vec![path.to_string()]);
    while let Some(path) = paths.pop() {
        let Ok((data, stat)) = client.get_data(&path).await else { continue };
        paths.extend(client.list_children(&path).await.unwrap().iter().map(|name| format!("{path}/{name}")));
        found.insert(path, (data, stat.version, stat.czxid));
    }
    found
}

/// Ends the session of a cluster that is cut off from ZooKeeper: two clients of one session would take it from each other for ever.
async fn expire(cluster: &ZooKeeperCluster) {
    let other = zk::Client::connector().with_session(cluster.session().clone());
    let other = other.connect(&zookeeper()).await.unwrap();
    assert_eq!(other.session_id(), cluster.session().id());
    let mut states = other.state_watcher();
    drop(other);
    while !states.changed().await.is_terminated() {}
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn one_of_three_is_active_at_a_time() {
    let (client, base) = raw("three").await;
    let [one, two, three] = [16000, 16001, 16002].map(|port| Master::stand(&base, port, 10 * SECOND));
    let (one, two, three) = (one.await, two.await, three.await);
    let names = |masters: &[&Master]| -> Vec<String> {
        masters.iter().map(|master| master.server.to_string()).collect()
    };
    assert_eq!(backups(&client, &base).await, names(&[&one, &two, &three]));

    let first = one.elected().await;
    assert_eq!((first.epoch(), epoch(&client, &base).await), (1, "1".to_string()));
    assert_eq!(active(&client, &base).await, Some(one.server.clone()));
    assert_eq!(backups(&client, &base).await, names(&[&two, &three]));
    let path = format!("{base}/backup-masters/{}", two.server);
    let backup = ActiveMaster::decode(&path, &data(&client, &path).await.unwrap()).unwrap();
    assert_eq!(backup, ActiveMaster { server: two.server.clone(), info_port: INFO_PORT });
    assert_eq!(data(&client, &path).await.unwrap()[..5 + 12], *b"\xff\0\0\0\x14master:16001");
    two.waits().await;
    three.waits().await;
    assert_eq!(one.elected().await.epoch(), 1, "the same leadership");
    let mut view = two.cluster.view().clone();
    assert_eq!(view.master.wait(LIMIT).await.unwrap().server, one.server);
    assert_eq!(view.master_epoch.wait_for(LIMIT, |epoch| *epoch > 0).await.unwrap(), 1);

    // The session ends in order: a master that waits is elected at once.
    let begun = Instant::now();
    one.cluster.close().await;
    assert_eq!(first.lease().state(), LeaseState::Lost(Loss::Left));
    let (next, last) = tokio::select! {
        leadership = two.elected() => (leadership, &three),
        leadership = three.elected() => (leadership, &two),
    };
    println!("elected {:?} after the end of the session", begun.elapsed());
    assert!(begun.elapsed() < 3 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(next.epoch(), 2);
    assert_eq!(active(&client, &base).await.as_ref(), Some(next.lease().server()));
    last.waits().await;
    assert_eq!(first.publish_running().await.unwrap_err().kind(), ErrorKind::Stopping);
    // A call that was given up did not end the election.
    next.resign().await.unwrap();
    let final_one = last.elected().await;
    assert_eq!((final_one.epoch(), epoch(&client, &base).await), (3, "3".to_string()));
    assert_eq!(view.master_epoch.wait_for(LIMIT, |epoch| *epoch > 2).await.unwrap(), 3);
    assert_eq!(next.lease().state(), LeaseState::Lost(Loss::Left));
    assert_eq!(backups(&client, &base).await, [""; 0]);
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_master_makes_a_cluster() {
    let connector = zk::Client::connector().with_session_timeout(60 * SECOND);
    let client = connector.connect(&zookeeper()).await.unwrap();
    let base = "/test-fresh/deep";
    let (master, again) =
        (Master::stand(base, 16000, 10 * SECOND).await, Master::stand(base, 16001, 10 * SECOND).await);
    let paths = ZnodePaths::new(base).unwrap();
    for name in znode::EMPTY {
        let (data, stat) = client.get_data(&paths.below(name)).await.unwrap();
        assert_eq!((data.len(), stat.ephemeral_owner), (0, 0), "{name}");
    }
    assert!(data(&client, &paths.namespace("hbase")).await.unwrap().ends_with(b"\n\x05hbase"));
    let (acls, _) = client.get_acl(&paths.below("online-snapshot")).await.unwrap();
    assert_eq!(acls, zk::Acls::anyone_all().to_vec());
    let member = again.cluster.join(&server(1), 0).await.unwrap();
    assert!(member.lease().is_valid());

    let leadership = master.elected().await;
    let (acls, stat) = client.get_acl(&paths.master()).await.unwrap();
    assert_eq!(acls, zk::Acls::anyone_all().to_vec());
    assert_eq!(stat.ephemeral_owner, master.cluster.session().id().0);
    let mut view = again.cluster.view().clone();
    let seen = view.master.wait(LIMIT).await.unwrap();
    assert_eq!(seen, ActiveMaster { server: master.server.clone(), info_port: INFO_PORT });

    leadership.publish_cluster_id(&ClusterId("an-id".to_string())).await.unwrap();
    assert_eq!(view.cluster_id.wait(LIMIT).await.unwrap().0, "an-id");
    leadership.publish_running().await.unwrap();
    let since = view.running.wait(LIMIT).await.unwrap();
    println!("running since {since}");
    assert!(since.contains(" UTC 20"), "{since}");
    sleep(SECOND).await;
    leadership.publish_running().await.unwrap();
    assert_eq!(client.check_stat(&paths.running()).await.unwrap().unwrap().version, 0, "the start stays");
    client.set_data(&paths.running(), b"garbage", None).await.unwrap();
    leadership.publish_running().await.unwrap();
    view.running.wait_for(LIMIT, |now| *now > since || now.contains("UTC")).await.unwrap();
    leadership.publish_meta(&server(1)).await.unwrap();
    leadership.publish_meta(&server(2)).await.unwrap();
    let location = MetaLocation { replica: 0, server: server(2), is_open: true };
    assert_eq!(view.meta.wait_for(LIMIT, |seen| seen[0].server == server(2)).await.unwrap(), [location]);
    for port in [1, 2, 1] {
        leadership.set_draining(&server(port), true).await.unwrap();
    }
    leadership.set_draining(&server(1), false).await.unwrap();
    leadership.set_draining(&server(1), false).await.unwrap();
    assert_eq!(view.draining.wait_for(LIMIT, |seen| seen.len() == 1).await.unwrap(), [server(2)]);
    // What regions are to leave is noted, also of one that was decommissioned before, and goes with the znode.
    let both = [server(1), server(2)];
    assert!(leadership.offloading(&both).await.unwrap().is_empty());
    leadership.begin_offload(&server(2)).await.unwrap();
    leadership.begin_offload(&server(1)).await.unwrap();
    leadership.set_draining(&server(1), true).await.unwrap();
    assert_eq!(leadership.offloading(&both).await.unwrap(), both);
    leadership.set_draining(&server(1), false).await.unwrap();
    leadership.set_draining(&server(1), true).await.unwrap();
    assert_eq!(leadership.offloading(&both).await.unwrap(), both[1..]);
    leadership.remove_running().await.unwrap();
    leadership.remove_running().await.unwrap();
    while view.running.changed().await.unwrap() != Seen::Absent {}
    leadership.resign().await.unwrap();
    assert_eq!(again.elected().await.epoch(), 2);
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn states_of_tables_are_mirrored() {
    let (client, base) = raw("tables").await;
    let master = Master::stand(&base, 16000, 10 * SECOND).await;
    let leadership = master.elected().await;
    let state = async |name: &str| {
        let path = format!("{base}/table/{name}");
        let data = data(&client, &path).await?;
        Some(znode::message::<pb::DeprecatedTableState>(&path, &data).unwrap().state())
    };
    let version =
        async |name: &str| client.check_stat(&format!("{base}/table/{name}")).await.unwrap().unwrap().version;
    // Of an earlier master; one has a child, which no version of HBase makes.
    for name in ["gone", "t1", "full", "full/child"] {
        create(&client, &format!("{base}/table/{name}"), b"garbage").await;
    }
    let mut states: BTreeMap<String, TableState> =
        (0..250).map(|number| (format!("t{number}"), TableState::Enabled)).collect();
    states.insert("n:t".to_string(), TableState::Disabling);
    let begun = Instant::now();
    leadership.publish_table_states(&states).await.unwrap();
    println!("{} states in {:?}", states.len(), begun.elapsed());
    assert_eq!(client.list_children(&format!("{base}/table")).await.unwrap().len(), states.len() + 1);
    assert_eq!((state("t249").await, state("t1").await), (Some(Mirrored::Enabled), Some(Mirrored::Enabled)));
    assert_eq!((state("n:t").await, state("gone").await), (Some(Mirrored::Disabling), None));

    states.insert("t7".to_string(), TableState::Disabled);
    states.remove("t8");
    leadership.publish_table_states(&states).await.unwrap();
    assert_eq!((state("t7").await, state("t8").await), (Some(Mirrored::Disabled), None));
    assert_eq!((version("t7").await, version("t9").await), (1, 0), "only what has changed is written");
    // Others delete what this master knows.
    client.delete(&format!("{base}/table/t7"), None).await.unwrap();
    states.insert("t7".to_string(), TableState::Enabling);
    leadership.publish_table_states(&states).await.unwrap();
    assert_eq!(state("t7").await, Some(Mirrored::Enabling));
    states.insert("not/a/name".to_string(), TableState::Enabled);
    assert!(leadership.publish_table_states(&states).await.is_err());
    states.remove("not/a/name");
    leadership.publish_table_states(&states).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_master_whose_session_has_expired_changes_nothing() {
    let (client, base) = raw("master-expired").await;
    let relay = Relay::start().await;
    let old = Master::stand_at(&relay.address, &base, 16000, 6 * SECOND).await;
    let leadership = old.elected().await;
    leadership.publish_meta(&server(1)).await.unwrap();
    leadership.set_draining(&server(5), true).await.unwrap();
    let new = Master::stand(&base, 16001, 6 * SECOND).await;
    new.waits().await;
    relay.set(Way::Cut);
    expire(&old.cluster).await;
    let begun = Instant::now();
    let next = new.elected().await;
    println!("elected {:?} after the session was ended", begun.elapsed());
    assert!(begun.elapsed() < 2 * SECOND, "a watch is fast: {:?}", begun.elapsed());
    assert_eq!((next.epoch(), leadership.epoch()), (2, 1));
    next.publish_meta(&server(2)).await.unwrap();
    let before = snapshot(&client, &base).await;
    relay.set(Way::Open);
    let loss = timeout(LIMIT, leadership.lease().lost()).await.unwrap();
    assert_eq!(loss, Loss::SessionExpired);
    all_writes_fail(&leadership).await;
    leadership.resign().await.unwrap_err();
    assert_eq!(snapshot(&client, &base).await, before);
    let error = old.candidate.elected().await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
    let error = old.cluster.stand(&server(16000), 0).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Expired, "{error}");
    assert!(next.lease().is_valid());
}

/// Lives as a process of its own. It writes as fast as it can without a look at its lease, as a master does that was frozen after
/// its look.
#[tokio::test]
#[ignore = "a part of other tests"]
async fn master_process() {
    let Ok(text) = std::env::var(MEMBER) else { return };
    let [base, server, timeout_ms] = text.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let cluster = connect(base, ms(timeout_ms.parse().unwrap())).await;
    let candidate = cluster.stand(&ServerName::parse(server).unwrap(), INFO_PORT).await.unwrap();
    let leadership = candidate.elected().await.unwrap();
    println!("\nelected");
    let meta = common::server(1);
    loop {
        let was_valid = leadership.lease().is_valid();
        match leadership.publish_meta(&meta).await {
            Ok(()) => println!("wrote {was_valid}"),
            Err(error) => {
                println!("{:?} {:?} {error}", error.kind(), leadership.lease().state());
                sleep(ms(20)).await;
            }
        }
        if matches!(leadership.lease().state(), LeaseState::Lost(_)) {
            println!("ends");
            return;
        }
    }
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_frozen_master_changes_nothing_after_its_thaw() {
    use rustix::process::Signal;
    let (client, base) = raw("master-frozen").await;
    let session_timeout = 2 * SECOND;
    let old = server(16000);
    let mut process = MemberProcess::start_as("master_process", "elected", &base, &old, session_timeout);
    let new = Master::stand(&base, 16001, 10 * SECOND).await;
    new.waits().await;
    assert_eq!(active(&client, &base).await, Some(old));
    let before = client.check_stat(&format!("{base}/meta-region-server")).await.unwrap().unwrap().version;
    process.signal(Signal::STOP);
    let begun = Instant::now();
    let next = new.elected().await;
    println!("elected {:?} after the freeze; {before} writes before", begun.elapsed());
    assert!(begun.elapsed() < session_timeout + LATE, "{:?}", begun.elapsed());
    assert_eq!((next.epoch(), process.kernel_state()), (2, 'T'));
    assert!(before > 10, "it has written");
    next.publish_meta(&server(2)).await.unwrap();
    let before = snapshot(&client, &base).await;
    process.signal(Signal::CONT);
    let lines = tokio::task::spawn_blocking(move || process.read_until("ends")).await.unwrap();
    println!("{:?}", &lines[lines.len() - 3..]);
    assert!(lines[lines.len() - 2].starts_with("Expired Lost(SessionExpired)"), "{:?}", lines.last());
    assert_eq!(snapshot(&client, &base).await, before);
    assert_eq!(meta(&client, &base).await, Some(server(2)));
}

/// The session of the old master lives: ZooKeeper refuses its write because of the epoch alone.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_deposed_master_with_a_session_changes_nothing() {
    let (client, base) = raw("master-deposed").await;
    let relay = Relay::start().await;
    let old = Master::stand_at(&relay.address, &base, 16000, 30 * SECOND).await;
    let leadership = old.elected().await;
    leadership.publish_meta(&server(1)).await.unwrap();
    leadership.set_draining(&server(5), true).await.unwrap();
    let new = Master::stand(&base, 16001, 30 * SECOND).await;
    new.waits().await;
    relay.set(Way::Silent);
    sleep(ms(100)).await;
    client.delete(&format!("{base}/master"), None).await.unwrap();
    let next = new.elected().await;
    next.publish_meta(&server(2)).await.unwrap();
    assert_eq!(leadership.lease().state(), LeaseState::Valid, "it knows nothing of it yet");
    let before = snapshot(&client, &base).await;
    let writes = {
        let leadership = leadership.clone();
        tokio::spawn(async move { leadership.publish_meta(&server(1)).await })
    };
    sleep(ms(100)).await;
    relay.set(Way::Open);
    let error = timeout(LIMIT, writes).await.unwrap().unwrap().unwrap_err();
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::Expired);
    all_writes_fail(&leadership).await;
    leadership.resign().await.unwrap();
    assert_eq!(snapshot(&client, &base).await, before);
    assert_eq!(active(&client, &base).await, Some(new.server.clone()));
    // It stands again, and follows the one that took over.
    old.waits().await;
    next.resign().await.unwrap();
    assert_eq!(old.elected().await.epoch(), 3);
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn an_epoch_that_was_raised_by_others_ends_the_leadership() {
    let (client, base) = raw("raised").await;
    let master = Master::stand(&base, 16000, 30 * SECOND).await;
    let leadership = master.elected().await;
    leadership.set_draining(&server(5), true).await.unwrap();
    client.set_data(&format!("{base}/halcyon/master-epoch"), b"41", None).await.unwrap();
    let before = snapshot(&client, &base).await;
    sleep(ms(300)).await;
    assert_eq!(leadership.lease().state(), LeaseState::Valid, "nothing has happened to its znode");
    let error = leadership.publish_meta(&server(1)).await.unwrap_err();
    println!("{error}");
    assert!(
        error.to_string().ends_with("is not the active master any more: another master became active"),
        "{error}"
    );
    assert_eq!(leadership.lease().state(), LeaseState::Lost(Loss::Deposed));
    all_writes_fail(&leadership).await;
    assert_eq!(snapshot(&client, &base).await, before);
    // Its znode is there still. The next election gives it up and begins anew.
    assert_eq!(active(&client, &base).await, Some(master.server.clone()));
    let next = master.elected().await;
    assert_eq!(next.epoch(), 42);
    next.publish_meta(&server(1)).await.unwrap();
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_deleted_znode_ends_the_leadership() {
    let (client, base) = raw("master-deleted").await;
    let master = Master::stand(&base, 16000, 30 * SECOND).await;
    let leadership = master.elected().await;
    sleep(ms(300)).await;
    client.delete(&format!("{base}/master"), None).await.unwrap();
    let begun = Instant::now();
    let loss = timeout(LIMIT, leadership.lease().lost()).await.unwrap();
    assert_eq!(loss, Loss::ZnodeDeleted);
    assert!(begun.elapsed() < 2 * SECOND, "a watch is faster than a renewal: {:?}", begun.elapsed());
    all_writes_fail(&leadership).await;
    leadership.resign().await.unwrap();
    let next = master.elected().await;
    assert_eq!(next.epoch(), 2);
    assert_eq!(leadership.lease().state(), LeaseState::Lost(Loss::ZnodeDeleted));

    // Another session takes the znode: the owner is what counts.
    let data = data(&client, &format!("{base}/master")).await.unwrap();
    let taken = async {
        let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
        let mut transaction = client.new_multi_writer();
        transaction.add_delete(&format!("{base}/master"), None).unwrap();
        transaction.add_create(&format!("{base}/master"), &data, &options).unwrap();
        transaction.commit().await.unwrap();
    };
    taken.await;
    let loss = timeout(LIMIT, next.lease().lost()).await.unwrap();
    assert_eq!(loss, Loss::ZnodeTaken { session: client.session_id().0 });
    all_writes_fail(&next).await;
    next.resign().await.unwrap();
    assert!(active(&client, &base).await.is_some(), "what belongs to others stays");
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn resigning_lets_the_next_one_in_at_once() {
    let (client, base) = raw("resign").await;
    let (one, two) =
        (Master::stand(&base, 16000, 30 * SECOND).await, Master::stand(&base, 16001, 30 * SECOND).await);
    let mut leadership = one.elected().await;
    for round in 2..8 {
        let (from, to) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
        to.waits().await;
        let begun = Instant::now();
        leadership.resign().await.unwrap();
        assert_eq!(leadership.lease().state(), LeaseState::Lost(Loss::Left));
        let next = to.elected().await;
        println!("elected {:?} after the other has resigned", begun.elapsed());
        assert!(begun.elapsed() < 2 * SECOND, "{:?}", begun.elapsed());
        assert_eq!(next.epoch(), round);
        leadership.resign().await.unwrap();
        assert_eq!(active(&client, &base).await, Some(to.server.clone()), "resigning twice harms nothing");
        from.waits().await;
        assert_eq!(backups(&client, &base).await, [from.server.to_string()]);
        leadership = next;
    }
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn garbage_keeps_masters_waiting_and_is_named() {
    let (client, base) = raw("master-garbage").await;
    create(&client, &format!("{base}/master"), b"\xff\xff\xff\xff\xffgarbage").await;
    let master = Master::stand(&base, 16000, 30 * SECOND).await;
    master.waits().await;
    client.set_data(&format!("{base}/master"), b"", None).await.unwrap();
    master.waits().await;
    client.delete(&format!("{base}/master"), None).await.unwrap();
    let leadership = master.elected().await;
    assert_eq!(leadership.epoch(), 1);
    // In its own znode: the owner is what counts.
    client.set_data(&format!("{base}/master"), b"garbage", None).await.unwrap();
    sleep(SECOND).await;
    leadership.publish_meta(&server(1)).await.unwrap();
    assert_eq!(leadership.lease().state(), LeaseState::Valid);
    leadership.resign().await.unwrap();

    let path = format!("{base}/halcyon/master-epoch");
    for garbage in [&b""[..], b"-1", b"1 ", b"\xff", b"18446744073709551616"] {
        client.set_data(&path, garbage, None).await.unwrap();
        let error = timeout(LIMIT, master.candidate.elected()).await.unwrap().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&format!("{path}: \"")), "{error}");
        assert_eq!(active(&client, &base).await, None);
    }
    client.set_data(&path, b"18446744073709551615", None).await.unwrap();
    let error = timeout(LIMIT, master.candidate.elected()).await.unwrap().err().unwrap();
    assert!(error.to_string().contains("cannot be raised"), "{error}");
    client.set_data(&path, b"6", None).await.unwrap();
    assert_eq!(master.elected().await.epoch(), 7);
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn an_earlier_life_of_the_same_address_is_not_waited_for() {
    let (client, base) = raw("earlier").await;
    let relay = Relay::start().await;
    let now = ServerName::new("node-1.example", 16000, 1_700_000_000_500);
    let (old, later) = (server(16000), ServerName::new("node-1.example", 16000, 1_700_000_000_501));
    let killed = connect_to(&relay.address, &base, 30 * SECOND).await;
    let candidate = killed.stand(&old, INFO_PORT).await.unwrap();
    let leadership = candidate.elected().await.unwrap();
    let cluster = connect(&base, 30 * SECOND).await;
    relay.set(Way::Silent);
    let candidate = cluster.stand(&now, INFO_PORT).await.unwrap();
    let begun = Instant::now();
    let next = timeout(LIMIT, candidate.elected()).await.unwrap().unwrap();
    assert!(
        begun.elapsed() < 2 * SECOND,
        "the session of the other one lasts for 30 s: {:?}",
        begun.elapsed()
    );
    assert_eq!(next.epoch(), 2);
    // The other one may be on another machine, which had this address, and acts until its lease ends.
    assert!(next.predecessor_lease().is_some());
    relay.set(Way::Open);
    let loss = timeout(LIMIT, leadership.lease().lost()).await.unwrap();
    assert!(matches!(loss, Loss::ZnodeTaken { .. } | Loss::ZnodeDeleted), "{loss}");
    next.resign().await.unwrap();

    // One that began later is not deleted by one that began before it.
    let theirs = ActiveMaster { server: later.clone(), info_port: INFO_PORT };
    let base = format!("{base}-later");
    create(&client, &base, b"").await;
    create(&client, &format!("{base}/master"), &znode::encode("master:16000", [7; 8], &theirs.to_pb())).await;
    let cluster = connect(&base, 30 * SECOND).await;
    let candidate = cluster.stand(&now, INFO_PORT).await.unwrap();
    assert!(timeout(SECOND, candidate.elected()).await.is_err());
    assert_eq!(active(&client, &base).await, Some(later));
}

/// The znode of the earlier life was deleted in a transaction of its own. A master that waited saw it go, became active, and did not know
/// that the earlier one may act.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn whoever_follows_an_earlier_life_knows_of_its_lease() {
    for round in 0..5 {
        let (client, base) = raw(&format!("earlier-and-standby-{round}")).await;
        let relay = Relay::start().await;
        let killed = connect_to(&relay.address, &base, 30 * SECOND).await;
        let candidate = killed.stand(&server(16000), INFO_PORT).await.unwrap();
        candidate.elected().await.unwrap();
        let standby = Master::stand(&base, 16001, 10 * SECOND).await;
        standby.waits().await;
        relay.set(Way::Silent);
        let cluster = connect(&base, 10 * SECOND).await;
        let again = ServerName::new("node-1.example", 16000, 1_700_000_000_500);
        let again = cluster.stand(&again, INFO_PORT).await.unwrap();
        let next = tokio::select! {
            next = again.elected() => next.unwrap(),
            next = standby.elected() => next,
        };
        let lease = next.predecessor_lease().expect("the one before may live");
        assert!(
            lease >= 20 * SECOND,
            "{lease:?}: two thirds of its session, which lasts longer than the own one"
        );
        assert_eq!(epoch(&client, &base).await, "2");
    }
}

/// HBase's own classes read what a master writes.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn hbase_reads_what_a_master_writes() {
    let Ok(class_path) = std::env::var("HBASE_CLASS_PATH") else {
        println!("left out: HBASE_CLASS_PATH is not set");
        return;
    };
    let (client, base) = raw("read-by-hbase").await;
    let (one, two) =
        (Master::stand(&base, 16000, 30 * SECOND).await, Master::stand(&base, 16001, 30 * SECOND).await);
    let leadership = one.elected().await;
    leadership.publish_cluster_id(&ClusterId("an-id".to_string())).await.unwrap();
    leadership.publish_running().await.unwrap();
    leadership.publish_meta(&server(1)).await.unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testing/cluster/znodes/ReadMaster.java");
    let mut java = std::process::Command::new(std::env::var("JAVA").unwrap_or("java".to_string()));
    java.args(["-Dlog4j2.level=OFF", "-cp", &class_path, source, &zookeeper(), &base]);
    let done = tokio::task::spawn_blocking(move || java.output()).await.unwrap().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    let expected = [
        format!("master {} {INFO_PORT}", one.server),
        format!("backup {} {INFO_PORT}", two.server),
        format!("meta {} OPEN", server(1)),
        "cluster an-id".to_string(),
        "running true".to_string(),
    ];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected, "{errors}");
    assert_eq!(active(&client, &base).await, Some(one.server));
}

/// Connections end all the time, so that answers are lost: every election has one winner and one epoch.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn lost_answers_cost_no_election() {
    let (client, base) = raw("lost-answers").await;
    let relay = Relay::start().await;
    let one = Master::stand_at(&relay.address, &base, 16000, 20 * SECOND).await;
    let relay = std::sync::Arc::new(relay);
    let cuts = {
        let relay = relay.clone();
        tokio::spawn(async move {
            for round in 0u64.. {
                sleep(ms(20 + round * 37 % 90)).await;
                relay.set(Way::Cut);
                sleep(ms(5)).await;
                relay.set(Way::Open);
            }
        })
    };
    let begun = Instant::now();
    for round in 1..=30 {
        let leadership = one.elected().await;
        assert_eq!(leadership.epoch(), round);
        let states = BTreeMap::from([(format!("t{round}"), TableState::Enabled)]);
        leadership.publish_table_states(&states).await.unwrap();
        leadership.publish_meta(&server(round as u16)).await.unwrap();
        assert_eq!(meta(&client, &base).await, Some(server(round as u16)));
        assert_eq!(client.list_children(&format!("{base}/table")).await.unwrap(), [format!("t{round}")]);
        leadership.set_draining(&server(1), round % 2 == 0).await.unwrap();
        leadership.resign().await.unwrap();
        assert_eq!(active(&client, &base).await, None);
    }
    cuts.abort();
    println!("30 elections over {} connections in {:?}", relay.connections(), begun.elapsed());
    assert!(relay.connections() > 20);
    assert_eq!(epoch(&client, &base).await, "30");
}

#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_restart_of_zookeeper_is_no_news_to_masters() {
    let (client, base) = raw("master-restart").await;
    let (one, two) =
        (Master::stand(&base, 16000, 30 * SECOND).await, Master::stand(&base, 16001, 30 * SECOND).await);
    let leadership = one.elected().await;
    two.waits().await;
    let outage = Outage::begin().await;
    outage.end().await;
    timeout(LIMIT, leadership.publish_meta(&server(1))).await.unwrap().unwrap();
    assert_eq!(leadership.lease().state(), LeaseState::Valid);
    two.waits().await;
    leadership.resign().await.unwrap();
    assert_eq!(two.elected().await.epoch(), 2);
    assert_eq!(meta(&client, &base).await, Some(server(1)));
}

/// ZooKeeper's data were lost: epochs began with 1 again, and what masters before had left in HDFS seemed to be of a later one.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn an_epoch_is_above_those_of_masters_that_have_left_files() {
    let (client, base) = raw("epoch-lost").await;
    for (port, left, expected) in [(16000, 0, 1), (16001, 57, 58), (16002, 3, 59)] {
        let (cluster, server) = (connect(&base, 10 * SECOND).await, server(port));
        let candidate = cluster.stand(&server, INFO_PORT).await.unwrap();
        let candidate = candidate.above(move || Box::pin(async move { Ok(left) }));
        let leadership = timeout(LIMIT, candidate.elected()).await.unwrap().unwrap();
        assert_eq!((leadership.epoch(), epoch(&client, &base).await), (expected, expected.to_string()));
        assert_eq!(leadership.predecessor_lease(), None);
        leadership.resign().await.unwrap();
    }
}

/// A master that took a live server for dead took its WALs and left it its znode, and so its lease: it answered reads while the regions
/// were open elsewhere.
#[tokio::test]
#[ignore = "needs a ZooKeeper"]
async fn a_server_that_is_deposed_loses_its_lease() {
    let (client, base) = raw("deposed").await;
    let first = Master::stand(&base, 16000, 4 * SECOND).await;
    let leadership = first.elected().await;
    let joined = connect(&base, 6 * SECOND).await;
    let member = joined.join(&server(16020), 0).await.unwrap();
    assert_eq!(member.lease().state(), LeaseState::Valid);
    let (znode, note) =
        (format!("{base}/rs/{}", server(16020)), format!("{base}/halcyon/deposed/{}", server(16020)));

    let lease = leadership.depose(&server(16020)).await.unwrap();
    assert!(lease >= 4 * SECOND && lease < 4 * SECOND + ms(10), "two thirds of its session: {lease:?}");
    assert!(data(&client, &znode).await.is_none() && data(&client, &note).await.is_some());
    let loss = timeout(SECOND, member.lease().lost()).await.expect("it has watched its znode");
    assert_eq!(loss, Loss::ZnodeDeleted);

    // The next master has to wait as well. One that was deposed is not told that there is nothing to wait for.
    let second = Master::stand(&base, 16001, 4 * SECOND).await;
    leadership.resign().await.unwrap();
    let next = second.elected().await;
    assert_eq!(next.depose(&server(16020)).await.unwrap(), lease);
    assert!(leadership.depose(&server(16020)).await.is_err());
    assert_eq!(next.deposed().await.unwrap(), [(server(16020), lease)]);
    next.forget_deposed(&server(16020)).await.unwrap();
    assert!(next.deposed().await.unwrap().is_empty());
    assert_eq!(next.depose(&server(16020)).await.unwrap(), Duration::ZERO);
    assert_eq!(next.depose(&server(16029)).await.unwrap(), Duration::ZERO, "it was never there");

    // A keeper ends the session of a process that has ended: there is no lease any more.
    let kept = connect(&base, 6 * SECOND).await;
    let _member = kept.join(&server(16021), 0).await.unwrap();
    let ended = server(16021);
    let (deposed, ()) = tokio::join!(next.depose(&ended), async {
        sleep(ms(100)).await;
        kept.close().await;
    });
    assert_eq!(deposed.unwrap(), Duration::ZERO);
}
