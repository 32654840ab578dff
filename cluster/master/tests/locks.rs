//! Locks that clients hold.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_env::sim::SimFileSystem;
use halcyon_master::LockService;
use halcyon_proto::pb;
use halcyon_proto::pb::lock_heartbeat_response::LockStatus;
use halcyon_rpc::RpcError;

fn start(sim: &SimFileSystem, start_code: i64, timeout: Duration) -> (Cluster, LockService) {
    let mut settings = settings();
    settings.remote_lock_timeout = timeout;
    let env = with_real_clock(sim.env());
    let c = Cluster::start_with(env, Path::new(ROOT), start_code, settings).unwrap();
    let locks = LockService::new(c.master.clone());
    (c, locks)
}

fn of_table(table: &str, lock_type: pb::LockType) -> pb::LockRequest {
    pb::LockRequest {
        lock_type: lock_type as i32,
        table_name: Some(name(table).to_pb()),
        description: Some("test".to_string()),
        ..Default::default()
    }
}

fn exclusive(table: &str) -> pb::LockRequest {
    of_table(table, pb::LockType::Exclusive)
}

fn request(locks: &LockService, request: &pb::LockRequest) -> Result<u64, RpcError> {
    answer::<pb::LockResponse>(locks, "RequestLock", request).map(|response| response.proc_id)
}

/// Whether the lock is held.
fn heartbeat(locks: &LockService, proc_id: u64, keep_alive: bool) -> bool {
    let request = pb::LockHeartbeatRequest { proc_id, keep_alive: Some(keep_alive) };
    let response: pb::LockHeartbeatResponse = answer(locks, "LockHeartbeat", &request).unwrap();
    let is_held = response.lock_status() == LockStatus::Locked;
    assert_eq!(response.timeout_ms.is_some(), is_held);
    is_held
}

fn await_held(locks: &LockService, id: u64) {
    let begin = Instant::now();
    while !heartbeat(locks, id, true) {
        assert!(begin.elapsed() < Duration::from_secs(10), "lock {id} is not held");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_lock_keeps_procedures_away_until_it_is_released() {
    let (c, locks) = start(&SimFileSystem::new(), 1, Duration::from_secs(30));
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    let id = request(&locks, &exclusive("t")).unwrap();
    await_held(&locks, id);
    let waiting = request(&locks, &of_table("t", pb::LockType::Shared)).unwrap();
    let given_up = request(&locks, &exclusive("t")).unwrap();
    assert!(!heartbeat(&locks, waiting, true));
    std::thread::scope(|scope| {
        let disabling = scope.spawn(|| c.run("DisableTable", &disable("t")));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!disabling.is_finished(), "the table is locked");
        assert!(!heartbeat(&locks, given_up, false), "one that waits ends at once");
        assert!(!heartbeat(&locks, id, false));
        await_held(&locks, waiting);
        assert!(!disabling.is_finished(), "behind the lock that was asked for before");
        assert!(!heartbeat(&locks, waiting, false));
        disabling.join().unwrap().unwrap();
    });
    assert!(!heartbeat(&locks, id, true), "it has ended");
    assert!(!heartbeat(&locks, 123_456, true), "no such lock");
    c.quiet();
}

#[test]
fn shared_locks_stand_together_and_regions_are_locked_alone() {
    let (c, locks) = start(&SimFileSystem::new(), 1, Duration::from_secs(30));
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    let shared: Vec<u64> =
        (0..2).map(|_| request(&locks, &of_table("t", pb::LockType::Shared)).unwrap()).collect();
    shared.iter().for_each(|id| await_held(&locks, *id));
    let regions = c.regions("t");
    let of_regions = |regions: &[halcyon_schema::RegionInfo]| pb::LockRequest {
        table_name: None,
        region_info: regions.iter().map(halcyon_schema::RegionInfo::to_pb).collect(),
        ..exclusive("t")
    };
    let first = request(&locks, &of_regions(&[regions[0].clone(), regions[0].clone()])).unwrap();
    await_held(&locks, first);
    let other = request(&locks, &of_regions(&regions[1..])).unwrap();
    await_held(&locks, other);
    let both = request(&locks, &of_regions(&regions)).unwrap();
    assert!(!heartbeat(&locks, both, true));
    for id in [first, other] {
        heartbeat(&locks, id, false);
    }
    await_held(&locks, both);
    for id in [both, shared[0], shared[1]] {
        heartbeat(&locks, id, false);
    }
    c.quiet();
}

#[test]
fn a_lock_without_heartbeats_ends() {
    let (c, locks) = start(&SimFileSystem::new(), 1, Duration::from_millis(300));
    let silent = request(&locks, &exclusive("t")).unwrap();
    await_held(&locks, silent);
    let next = request(&locks, &exclusive("t")).unwrap();
    let begin = Instant::now();
    await_held(&locks, next);
    assert!(begin.elapsed() > Duration::from_millis(100), "the first one had its time");
    assert!(!heartbeat(&locks, silent, true));
    heartbeat(&locks, next, false);
    c.quiet();
}

#[test]
fn a_lock_survives_a_restart_and_a_repeated_request_is_one_lock() {
    let sim = SimFileSystem::new();
    let (c, locks) = start(&sim, 1, Duration::from_secs(30));
    let asked = pb::LockRequest { nonce_group: Some(3), nonce: Some(4), ..exclusive("t") };
    let id = request(&locks, &asked).unwrap();
    assert_eq!(request(&locks, &asked).unwrap(), id);
    await_held(&locks, id);
    drop((c, locks));
    let (c, locks) = start(&sim, 2, Duration::from_secs(30));
    await_held(&locks, id);
    let next = request(&locks, &exclusive("t")).unwrap();
    assert!(!heartbeat(&locks, next, true));
    heartbeat(&locks, id, false);
    await_held(&locks, next);
    heartbeat(&locks, next, false);
    c.quiet();
}

#[test]
fn wrong_requests_are_refused() {
    let (c, locks) = start(&SimFileSystem::new(), 1, Duration::from_secs(30));
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.run("CreateTable", &create(&table("u", &["f"]), &[])).unwrap();
    let mixed = [&c.regions("t")[..], &c.regions("u")].concat();
    let nothing = pb::LockRequest { table_name: None, ..exclusive("t") };
    for (wrong, words) in [
        (pb::LockRequest { description: None, ..exclusive("t") }, "Empty description"),
        (nothing.clone(), "one of table/namespace/region"),
        (pb::LockRequest { namespace: Some(String::new()), ..nothing.clone() }, "Empty namespace"),
        (
            pb::LockRequest {
                namespace: Some("n".to_string()),
                lock_type: pb::LockType::Shared as i32,
                ..nothing.clone()
            },
            "Shared lock on namespace",
        ),
        (
            pb::LockRequest {
                region_info: mixed.iter().map(halcyon_schema::RegionInfo::to_pb).collect(),
                ..nothing
            },
            "same table",
        ),
    ] {
        let error = request(&locks, &wrong).unwrap_err();
        assert!(error.do_not_retry && error.message.contains(words), "{error}");
    }
    assert!(answer::<pb::LockResponse>(&locks, "Unlock", &()).is_err());
}
