//! Against an ensemble of three ZooKeeper servers that fail, which `testing/cluster` starts. These tests are ignored otherwise;
//! run them by `make zookeeper-test`. Each fault shows that it had its effect before anything is concluded from it.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::ensemble::*;
use common::*;
use halcyon_coord::{Coordinator, LeaseState};
use halcyon_zookeeper::ZooKeeperCluster;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client as zk;

const SECOND: Duration = Duration::from_secs(1);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The view follows the znodes at the member to which the session has moved.
async fn view_follows(cluster: &ZooKeeperCluster, client: &zk::Client, base: &str, number: u16) {
    let path = format!("{base}/draining/{}", server(number));
    // The test's own client may have to move as well.
    let options = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    let begun = Instant::now();
    while let Err(error) = client.create(&path, b"", &options).await {
        assert!(error == zk::Error::NodeExists || begun.elapsed() < LIMIT, "{error}");
        if error == zk::Error::NodeExists {
            break;
        }
        sleep(ms(100)).await;
    }
    let mut draining = cluster.view().draining.clone();
    draining.wait_for(LIMIT, |seen| seen.contains(&server(number))).await.unwrap();
}

/// The owner of the server's znode, asked until there is an answer.
async fn owner_now(client: &zk::Client, base: &str) -> Option<i64> {
    let begun = Instant::now();
    loop {
        match client.check_stat(&format!("{base}/rs/{}", server(1))).await {
            Ok(stat) => return stat.map(|stat| stat.ephemeral_owner),
            Err(error) => assert!(begun.elapsed() < LIMIT, "{error}"),
        }
        sleep(ms(100)).await;
    }
}

/// The member that a session is connected to fails: the session goes on at another one, and the lease never ends.
async fn failover(kind: FaultKind, mode: &str) {
    whole_ensemble().await;
    let (client, base) = raw(&format!("{kind:?}-{mode}").to_lowercase()).await;
    let session_timeout = 8 * SECOND;
    for round in 0..3 {
        let (cluster, member, at) = joined_at(mode, &base, session_timeout).await;
        let id = cluster.session().id().0;
        let watch = LeaseWatch::start(member.clone());
        let fault = Fault::begin(kind, &at).await;
        let begun = Instant::now();
        let now = connected(id).await;
        let took = begun.elapsed();
        assert_ne!(now, at, "the session has moved");
        view_follows(&cluster, &client, &base, 100 + round).await;
        // Two renewals at the new member.
        sleep(session_timeout / 2).await;
        let seen = watch.seen();
        println!(
            "{kind:?} of the {mode} {}: at {} after {took:?}; at least {:?} of the lease remained, invalid for {:?}",
            at.process, now.process, seen.least, seen.invalid
        );
        assert_eq!(seen.lost, None);
        assert!(member.lease().remaining() > session_timeout / 4, "it is renewed");
        assert_eq!(seen.invalid, Duration::ZERO, "the lease ended, {:?}", at.process);
        assert_eq!(owner_now(&client, &base).await, Some(id), "the znode was there all the time");
        fault.end().await;
        whole_ensemble().await;
        assert_eq!(member.lease().state(), LeaseState::Valid);
        assert_eq!(owner_now(&client, &base).await, Some(id));
        member.leave().await.unwrap();
        cluster.close().await;
    }
}

#[tokio::test]
#[ignore = "needs an ensemble"]
async fn a_follower_is_killed() {
    failover(FaultKind::Kill, "follower").await;
}

#[tokio::test]
#[ignore = "needs an ensemble"]
async fn a_leader_is_killed() {
    failover(FaultKind::Kill, "leader").await;
}

#[tokio::test]
#[ignore = "needs an ensemble"]
async fn a_follower_is_frozen() {
    failover(FaultKind::Freeze, "follower").await;
}

#[tokio::test]
#[ignore = "needs an ensemble"]
async fn a_leader_is_frozen() {
    failover(FaultKind::Freeze, "leader").await;
}

/// The leader dies while servers join one after the other: each of them joins, and its znode is its own.
#[tokio::test]
#[ignore = "needs an ensemble"]
async fn the_leader_is_killed_while_servers_join() {
    for kind in [FaultKind::Kill, FaultKind::Freeze] {
        whole_ensemble().await;
        let (client, base) = raw(&format!("joins-{kind:?}").to_lowercase()).await;
        let cluster = Arc::new(connect(&base, 20 * SECOND).await);
        let id = cluster.session().id().0;
        let before = leader().await;
        let killing = {
            let before = before.clone();
            tokio::spawn(async move {
                sleep(ms(300)).await;
                let fault = Fault::begin(kind, &before).await;
                (fault, Instant::now())
            })
        };
        let (mut port, mut longest, mut after) = (1, Duration::ZERO, 0);
        let mut leases = Vec::new();
        while after < 20 {
            let begun = Instant::now();
            let member = cluster.join(&server(port), 0).await.unwrap();
            longest = longest.max(begun.elapsed());
            assert_eq!(member.lease().state(), LeaseState::Valid);
            leases.push(member);
            port += 1;
            after += u16::from(killing.is_finished());
            assert!(port < 20_000);
        }
        let (fault, _) = killing.await.unwrap();
        let now = leader().await;
        println!(
            "{kind:?}: {} servers have joined, the slowest in {longest:?}; {} led, then {}",
            port - 1,
            before.process,
            now.process
        );
        assert_ne!(now, before, "another one leads");
        assert!(port > 21, "some had joined before");
        // A znode cannot be created without a leader, so one of them had to wait for the election.
        assert!(longest > ms(150), "none was there during the election: {longest:?}");
        for port in 1..port {
            let path = format!("{base}/rs/{}", server(port));
            let owner = client.check_stat(&path).await.unwrap().map(|stat| stat.ephemeral_owner);
            assert_eq!(owner, Some(id), "{path}");
        }
        assert!(leases.iter().all(|member| member.lease().state() == LeaseState::Valid));
        fault.end().await;
        whole_ensemble().await;
        drop(leases);
    }
}

/// Without a majority nothing can be renewed: the lease ends in time. The session does not, so the server goes on when one is back.
/// A leader that is frozen and not dead may end the session when it thaws: its clock has gone on.
#[tokio::test]
#[ignore = "needs an ensemble"]
async fn two_of_three_are_dead() {
    let kind = FaultKind::Kill;
    for without in ["follower", "leader"] {
        whole_ensemble().await;
        let (client, base) = raw(&format!("two-{kind:?}-{without}").to_lowercase()).await;
        let session_timeout = 6 * SECOND;
        // The one that stays alone is the one of the session.
        let (cluster, member, at) = joined_at(without, &base, session_timeout).await;
        let id = cluster.session().id().0;
        let mut faults = Vec::new();
        for other in members().iter().filter(|other| **other != at) {
            faults.push(Fault::begin(kind, other).await);
        }
        let begun = Instant::now();
        while member.lease().is_valid() {
            assert!(begun.elapsed() < session_timeout, "the lease outlasts the session");
            sleep(ms(5)).await;
        }
        let ended = begun.elapsed();
        assert_eq!(member.lease().state(), LeaseState::Expired);
        // Longer than the library waits before it gives up.
        sleep(session_timeout * 2).await;
        assert_eq!(member.lease().state(), LeaseState::Expired, "without a majority no session ends");
        assert_eq!(at.mode().await, None, "the last one does not serve");
        faults.pop().unwrap().end().await;
        let leader = leader().await;
        let begun = Instant::now();
        timeout(LIMIT, member.lease().valid()).await.unwrap().unwrap();
        let took = begun.elapsed();
        println!(
            "{kind:?} of both others of a {without}: the lease ended after {ended:?}, and is valid {took:?} after {} led",
            leader.process
        );
        assert!(took < 3 * SECOND, "the server waits without a reason: {took:?}");
        assert_eq!(owner_now(&client, &base).await, Some(id), "the same session");
        faults.pop().unwrap().end().await;
        whole_ensemble().await;
        assert_eq!(member.lease().state(), LeaseState::Valid);
        cluster.close().await;
    }
}

/// Short outages of a majority, of several lengths: the server goes on soon after the end of each.
#[tokio::test]
#[ignore = "needs an ensemble"]
async fn a_majority_is_away_for_a_while() {
    whole_ensemble().await;
    let (client, base) = raw("away").await;
    // The lease lasts 26 s, longer than each outage.
    let cluster = connect(&base, 40 * SECOND).await;
    let member = cluster.join(&server(1), 0).await.unwrap();
    let id = cluster.session().id().0;
    let mut worst = Duration::ZERO;
    for (kind, away) in
        [(FaultKind::Kill, 3), (FaultKind::Kill, 6), (FaultKind::Kill, 9), (FaultKind::Freeze, 6)]
    {
        let others: Vec<EnsembleMember> = members().into_iter().take(2).collect();
        let mut faults = Vec::new();
        for other in &others {
            faults.push(Fault::begin(kind, other).await);
        }
        sleep(Duration::from_secs(away)).await;
        for fault in faults {
            fault.end().await;
        }
        leader().await;
        let begun = Instant::now();
        connected(id).await;
        println!("connected {:?} after there was a leader, {kind:?} for {away} s", begun.elapsed());
        worst = worst.max(begun.elapsed());
        whole_ensemble().await;
        assert_eq!(owner_now(&client, &base).await, Some(id));
        assert_eq!(member.lease().state(), LeaseState::Valid);
    }
    assert!(worst < 3 * SECOND, "{worst:?}");
    cluster.close().await;
}

/// Members that are dead or frozen when a session begins cost little, also with HBase's usual session timeout of 90 s.
#[tokio::test]
#[ignore = "needs an ensemble"]
async fn failed_members_do_not_delay_a_new_session() {
    for (kind, limit) in [(FaultKind::Kill, SECOND), (FaultKind::Freeze, 8 * SECOND)] {
        let members = whole_ensemble().await;
        let (_client, base) = raw(&format!("begin-{kind:?}").to_lowercase()).await;
        let follower = {
            let leader = leader().await;
            members.into_iter().find(|member| *member != leader).unwrap()
        };
        let fault = Fault::begin(kind, &follower).await;
        let mut times = Vec::new();
        for _ in 0..8 {
            let begun = Instant::now();
            let cluster = connect(&base, 90 * SECOND).await;
            assert_ne!(connected(cluster.session().id().0).await, follower);
            cluster.join(&server(1), 0).await.unwrap();
            times.push(begun.elapsed());
            cluster.close().await;
        }
        println!("{kind:?}: {times:?}");
        let longest = times.iter().max().unwrap();
        assert!(*longest < limit, "{kind:?}: {longest:?}");
        fault.end().await;
    }
}

/// A member that hears nothing of the others, while the server hears of all.
#[tokio::test]
#[ignore = "needs an ensemble"]
async fn a_minority_is_cut_off() {
    if !Partition::is_possible() {
        println!("left out: needs root, nft and a network namespace");
        return;
    }
    for mode in ["follower", "leader"] {
        whole_ensemble().await;
        let (client, base) = raw(&format!("cut-{mode}")).await;
        let session_timeout = 8 * SECOND;
        let (cluster, member, at) = joined_at(mode, &base, session_timeout).await;
        let id = cluster.session().id().0;
        let watch = LeaseWatch::start(member.clone());
        let partition = Partition::begin(&at);
        let begun = Instant::now();
        while at.mode().await.is_some() {
            assert!(begun.elapsed() < LIMIT, "it serves without the others");
            sleep(ms(20)).await;
        }
        let alone = begun.elapsed();
        let now = connected(id).await;
        let took = begun.elapsed();
        assert_ne!(now, at, "the session has moved");
        view_follows(&cluster, &client, &base, 5).await;
        assert_ne!(leader().await, at);
        sleep(session_timeout).await;
        let (seen, dropped) = (watch.seen(), partition.dropped());
        println!(
            "the {mode} {} cut off: it stopped after {alone:?}, at {} after {took:?}; at least {:?} of the lease remained; {dropped} packets dropped",
            at.process, now.process, seen.least
        );
        assert!(dropped > 0, "no packet was dropped");
        assert_eq!((seen.lost, seen.invalid), (None, Duration::ZERO));
        assert_eq!(owner_now(&client, &base).await, Some(id));
        drop(partition);
        whole_ensemble().await;
        assert_eq!(member.lease().state(), LeaseState::Valid);
        cluster.close().await;
    }
}
