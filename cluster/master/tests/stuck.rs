//! No procedure is stuck for good: regions that are not open do not stop a flush or a snapshot, and what fails again and
//! again can be aborted or bypassed.
//!
//! One command of a user (`flush 't'`) once made a table with a broken region unmanageable: the flush of a region that
//! was not open was repeated for ever, and assign, disable and drop waited behind its lock.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_rpc::RpcError;
use halcyon_schema::RegionInfo;

fn unassign(c: &Cluster, region: &RegionInfo) {
    let request = pb::UnassignRegionRequest { region: specifier(region.region_name()), force: None };
    c.call::<pb::UnassignRegionResponse>("UnassignRegion", &request).unwrap();
}

fn assign(c: &Cluster, region: &RegionInfo) -> Result<pb::AssignRegionResponse, RpcError> {
    c.call(
        "AssignRegion",
        &pb::AssignRegionRequest { region: specifier(region.region_name()), r#override: None },
    )
}

fn abort(c: &Cluster, proc_id: u64, may_interrupt: bool) -> bool {
    let request = pb::AbortProcedureRequest { proc_id, may_interrupt_if_running: Some(may_interrupt) };
    c.call::<pb::AbortProcedureResponse>("AbortProcedure", &request).unwrap().is_procedure_aborted
}

fn bypass(c: &Cluster, ids: &[u64], wait_ms: u64, force: bool) -> Vec<bool> {
    let request = pb::BypassProcedureRequest {
        proc_id: ids.to_vec(),
        wait_time: Some(wait_ms),
        r#override: Some(force),
        recursive: Some(true),
    };
    answer::<pb::BypassProcedureResponse>(&c.hbck, "BypassProcedure", &request).unwrap().bypassed
}

fn procedure(c: &Cluster, id: u64) -> pb::Procedure {
    let all: pb::GetProceduresResponse = c.call("GetProcedures", &pb::GetProceduresRequest {}).unwrap();
    all.procedure.into_iter().find(|procedure| procedure.proc_id == id).unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until the procedure has failed at least twice and waits for the next attempt.
fn until_repeated(c: &Cluster, id: u64) -> pb::Procedure {
    let mut seen = None;
    until("the step is repeated", || {
        let found = procedure(c, id);
        let message = found.exception.clone().and_then(|e| e.generic_exception).and_then(|e| e.message);
        let repeated = message.is_some_and(|text| !text.contains("failed 1 times"));
        seen = Some(found);
        repeated
    });
    seen.unwrap()
}

/// A master that repeats a step so seldom that the tests look at it in between.
fn patient() -> (halcyon_env::sim::SimFileSystem, Cluster) {
    let sim = halcyon_env::sim::SimFileSystem::new();
    let mut settings = settings();
    settings.retry_pause_max = Duration::from_millis(100);
    let cluster = Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), 1, settings).unwrap();
    (sim, cluster)
}

#[test]
fn flush_and_snapshot_end_although_a_region_is_unassigned() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    let region = c.regions("t")[0].clone();
    unassign(&c, &region);
    c.run("FlushTable", &flush("t")).unwrap();
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    assign(&c, &region).unwrap();
    c.run("RestoreSnapshot", &restore("s", "copy")).unwrap();
    for region in c.regions("copy") {
        assert_eq!(c.server.files(&region).len(), 1, "the region that was not open is in the snapshot, too");
    }
    c.check();
}

#[test]
fn flush_and_snapshot_end_although_a_region_failed_to_open() {
    let (sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    let bad = c.regions("t")[0].clone();
    drop(c);
    let info = bad.dir(Path::new(ROOT)).join(".regioninfo");
    let fs = sim.env().fs;
    fs.rename(&info, &info.with_extension("away")).unwrap();
    let c = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).unwrap();
    c.quiet();
    c.run("FlushTable", &flush("t")).unwrap();
    c.run("Snapshot", &snapshot("s", "t")).unwrap();

    // With edits that were not replayed the files of the region are not all of it.
    let edits = bad.dir(Path::new(ROOT)).join("recovered.edits");
    fs.create_dir_all(&edits).unwrap();
    fs.replace(&edits.join("0000000000000000417"), b"edits").unwrap();
    let error = c.run("Snapshot", &snapshot("u", "t")).unwrap_err();
    assert!(error.message.contains("recovered edits"), "{error}");
    assert!(!c.env.fs.exists(Path::new("/hbase/.hbase-snapshot/u")).unwrap());
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("DeleteTable", &delete("t")).unwrap();
}

#[test]
fn a_step_that_repeats_says_why_and_since_when() {
    let (_sim, c) = patient();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.server.set_fault("flush_region", Some(ServerFault::Fails));
    let id = c.submit("FlushTable", &flush("t")).unwrap();
    let found = until_repeated(&c, id);
    let text = found.exception.unwrap().generic_exception.unwrap().message.unwrap();
    for part in ["'flush regions'", "times since", "flush_region fails"] {
        assert!(text.contains(part), "{text}");
    }
    let summary = c.master.procedures().into_iter().find(|procedure| procedure.id == id).unwrap();
    assert_eq!((summary.name, summary.owner.as_str()), ("FlushTableProcedure", "tester"));
    assert!(summary.locks.contains(&"table t".to_string()), "{summary:?}");
    until("the page says so", || {
        c.master.procedures().iter().any(|one| one.id == id && one.state.contains("flush_region fails"))
    });
    let locks: pb::GetLocksResponse = c.call("GetLocks", &pb::GetLocksRequest {}).unwrap();
    assert!(locks.lock.iter().any(|lock| lock.resource_name() == "t"), "its lock is shown while it waits");
    c.server.set_fault("flush_region", None);
    c.wait(id).unwrap();
    c.check();
}

#[test]
fn what_repeats_can_be_aborted_where_it_can_be_undone() {
    let (_sim, c) = patient();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.server.set_fault("open_region", Some(ServerFault::Fails));

    // A new table is taken back.
    let id = c.submit("CreateTable", &create(&table("new", &["f"]), &["m"])).unwrap();
    until_repeated(&c, id);
    assert!(!abort(&c, id, false), "it has begun");
    assert!(abort(&c, id, true));
    let error = c.wait(id).unwrap_err();
    assert!(error.message.contains("aborted") && error.message.contains("open_region fails"), "{error}");
    assert_eq!(c.state("new"), None);

    // An enable goes back to disabled.
    c.run("DisableTable", &disable("t")).unwrap();
    let id = c.submit("EnableTable", &enable("t")).unwrap();
    until_repeated(&c, id);
    assert!(abort(&c, id, true));
    c.wait(id).unwrap_err();
    assert_eq!(c.state("t"), Some(State::Disabled));
    assert!(!abort(&c, id, true), "it has ended");

    // What has taken the old away cannot be undone.
    let id = c.submit("truncateTable", &truncate("t", false)).unwrap();
    until_repeated(&c, id);
    assert!(!abort(&c, id, true));
    c.server.set_fault("open_region", None);
    c.wait(id).unwrap();
    c.check();
}

#[test]
fn a_procedure_that_runs_is_aborted_before_its_next_step() {
    let (_sim, c) = patient();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.server.set_fault("flush_region", Some(ServerFault::Hangs));
    let id = c.submit("Snapshot", &snapshot("s", "t")).unwrap();
    assert!(!abort(&c, id, false));
    until("the step has begun", || abort(&c, id, true));
    c.server.set_fault("flush_region", None);
    let error = c.wait(id).unwrap_err();
    assert!(error.class.ends_with("ProcedureAbortedException"), "{error}");
    assert!(!c.env.fs.exists(Path::new("/hbase/.hbase-snapshot/s")).unwrap());
    c.check();
}

#[test]
fn a_procedure_that_repeats_can_be_bypassed() {
    let (_sim, c) = patient();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.run("DisableTable", &disable("t")).unwrap();
    c.server.set_fault("open_region", Some(ServerFault::Fails));
    let id = c.submit("truncateTable", &truncate("t", false)).unwrap();
    until_repeated(&c, id);
    c.call_and_leave("DisableTable", &disable("t")); // waits behind its lock
    assert_eq!(bypass(&c, &[id, 4711], 1000, false), [true, false]);
    let error = c.wait(id).unwrap_err();
    assert!(error.message.contains("bypassed") && error.message.contains("open regions"), "{error}");
    c.server.set_fault("open_region", None);
    c.quiet();
    assert_eq!(bypass(&c, &[id], 0, true), [false], "it has ended");
    // What it left is a table in an odd state that can be worked on.
    assert!(c.state("t").is_some());
    assert_eq!(c.records(), [] as [String; 0]);
}

/// A cluster with a flush that hangs, and the flush.
fn hanging() -> (halcyon_env::sim::SimFileSystem, Cluster, u64) {
    let (sim, c) = patient();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.server.set_fault("flush_region", Some(ServerFault::Hangs));
    let id = c.submit("FlushTable", &flush("t")).unwrap();
    until("it runs", || procedure(&c, id).state() == pb::ProcedureState::Runnable);
    assert_eq!(bypass(&c, &[id], 20, false), [false], "it is still running");
    assert_eq!(bypass(&c, &[id], 0, true), [true]);
    (sim, c, id)
}

#[test]
fn a_step_that_hangs_is_bypassed_by_force() {
    let (_sim, c, id) = hanging();
    c.server.set_fault("flush_region", None);
    assert!(c.wait(id).unwrap_err().message.contains("bypassed"));
    c.run("DisableTable", &disable("t")).unwrap();
    c.check();
}

#[test]
fn a_restart_does_not_go_on_with_what_was_bypassed() {
    for mode in halcyon_env::sim::CrashMode::ALL {
        let (sim, c, _) = hanging();
        let disk = sim.crash(mode, 1);
        c.server.set_fault("flush_region", None);
        drop(c);
        let next = Cluster::start(with_real_clock(disk.env()), Path::new(ROOT), 2).unwrap();
        assert!(!next.is_busy());
        next.check();
    }
}

/// A master whose pauses grow as long as those of a server.
fn as_a_server() -> Cluster {
    let env = with_real_clock(halcyon_env::sim::SimFileSystem::new().env());
    let settings = halcyon_master::MasterSettings { retry_pause_max: Duration::from_secs(10), ..settings() };
    Cluster::start_with(env, Path::new(ROOT), 1, settings).unwrap()
}

/// Waits until a request could not be checked, and returns its number.
fn until_unchecked(c: &Cluster) -> u64 {
    let mut id = 0;
    until("the request waits", || {
        let mut all = c.master.procedures().into_iter();
        let found = all.find(|it| it.state.contains("step 'check the request' failed"));
        id = found.as_ref().map_or(0, |it| it.id);
        found.is_some()
    });
    id
}

/// A creation looks into `hbase:meta` whether the name is free. While meta moved it was refused after two seconds.
#[test]
fn a_request_that_cannot_be_checked_waits() {
    let c = as_a_server();
    c.server.set_fault("meta_scan", Some(ServerFault::Fails));
    std::thread::scope(|scope| {
        let created = scope.spawn(|| c.run("CreateTable", &create(&table("t", &["f"]), &[])));
        until_unchecked(&c);
        c.server.set_fault("meta_scan", None);
        created.join().unwrap().unwrap();
    });
    assert_eq!(c.state("t"), Some(State::Enabled));
    assert!(c.master.procedures().is_empty());
}

/// Nothing was done, so nothing is undone.
#[test]
fn a_request_that_waits_to_be_checked_can_be_taken_back() {
    for bypasses in [false, true] {
        let c = as_a_server();
        let request = create(&table("t", &["f"]), &[]);
        c.server.set_fault("meta_scan", Some(ServerFault::Fails));
        std::thread::scope(|scope| {
            let created = scope.spawn(|| c.run("CreateTable", &request));
            let id = until_unchecked(&c);
            until("it is taken back", || match bypasses {
                true => bypass(&c, &[id], 0, false) == [true],
                false => abort(&c, id, true),
            });
            created.join().unwrap().unwrap_err();
        });
        c.server.set_fault("meta_scan", None);
        assert!(c.master.procedures().is_empty());
        assert_eq!(c.state("t"), None);
        c.run("CreateTable", &request).unwrap();
    }
}

/// Each of the client's attempts after the first one got the same refusal for 15 minutes, also when meta was back.
#[test]
fn a_refusal_that_may_pass_is_not_repeated_to_the_same_nonce() {
    let (_sim, c) = Cluster::simulated();
    let mut request = create(&table("t", &["f"]), &[]);
    (request.nonce_group, request.nonce) = (Some(7), Some(9));
    c.server.set_fault("meta_scan", Some(ServerFault::Fails));
    let error = c.run("CreateTable", &request).unwrap_err();
    assert!(error.message.contains("meta_scan fails"), "{error:?}");
    c.server.set_fault("meta_scan", None);
    c.run("CreateTable", &request).unwrap();
    assert_eq!(c.state("t"), Some(State::Enabled));
    // One that stays is still the answer.
    (request.nonce_group, request.nonce) = (Some(7), Some(10));
    c.run("CreateTable", &request).unwrap_err();
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("DeleteTable", &delete("t")).unwrap();
    let error = c.run("CreateTable", &request).unwrap_err();
    assert!(error.message.contains("t"), "{error:?}");
    assert_eq!(c.state("t"), None);
}

/// A server proposes each five seconds to split a region that is too large. While its table was locked, the proposals filled the queue, and
/// other requests were refused.
#[test]
fn what_is_proposed_again_waits_once() {
    use halcyon_contract::{RegionServerStatus as _, RegionStateTransition};
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    let locks = halcyon_master::LockService::new(c.master.clone());
    let request = pb::LockRequest {
        lock_type: pb::LockType::Exclusive as i32,
        table_name: Some(name("t").to_pb()),
        description: Some("why".to_string()),
        ..Default::default()
    };
    let _: pb::LockResponse = answer(&locks, "RequestLock", &request).unwrap();
    let server = halcyon_schema::ServerName::new("127.0.0.1", 16020, 1);
    for parent in c.regions("t").iter().cycle().take(20) {
        let transition =
            RegionStateTransition::ReadyToSplit { parent: parent.clone(), split_row: "x".into() };
        c.master.report_region_state_transition(&server, transition);
    }
    let splits = |c: &Cluster| c.master.procedures().iter().filter(|it| it.name.starts_with("Split")).count();
    assert_eq!(splits(&c), 2, "{:?}", c.master.procedures());
}
