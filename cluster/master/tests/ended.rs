//! How procedures ended that clients ask the next master for.
//!
//! A master died after a truncation had ended and before its client had the answer. The client repeated the request, as HBase's does by
//! itself, and the next master truncated the table once more, with all rows that were acknowledged in between.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::Path;
use std::time::Duration;

use crate::common::*;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;

fn start_with(sim: &SimFileSystem, start_code: i64, result_keep: Duration) -> Cluster {
    let settings = halcyon_master::MasterSettings { result_keep, ..settings() };
    Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), start_code, settings).unwrap()
}

const LONG: Duration = Duration::from_secs(900);

fn truncate_once(c: &Cluster, nonce: u64) -> Result<u64, RpcError> {
    let request =
        pb::TruncateTableRequest { nonce_group: Some(7), nonce: Some(nonce), ..truncate("t", true) };
    c.run("truncateTable", &request)
}

fn results(sim: &SimFileSystem) -> usize {
    let fs = sim.env().fs;
    let all = Path::new(ROOT).join("MasterData/procedures");
    let dirs = fs.list(&all).unwrap();
    let files = dirs.iter().flat_map(|dir| fs.list(&all.join(&dir.name)).unwrap());
    files.filter(|file| file.name.ends_with(".ended")).count()
}

#[test]
fn a_request_that_is_repeated_at_the_next_master_is_not_carried_out_again() {
    let sim = SimFileSystem::new();
    let c = start_with(&sim, 1, LONG);
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.run("DisableTable", &disable("t")).unwrap();
    let id = truncate_once(&c, 1).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    let before: Vec<_> = c.regions("t").iter().map(|region| c.server.files(region)).collect();
    assert!(before.iter().all(|files| files.len() == 1));
    drop(c);

    for start_code in 2..4 {
        let c = start_with(&sim, start_code, LONG);
        assert_eq!(truncate_once(&c, 1).unwrap(), id, "the number of then");
        let after: Vec<_> = c.regions("t").iter().map(|region| c.server.files(region)).collect();
        assert_eq!(after, before);
    }
    let c = start_with(&sim, 4, LONG);
    let error = truncate_once(&c, 2).unwrap_err();
    assert!(error.message.contains("t") && error.class.contains("TableNotDisabled"), "{error:?}");
    c.check();
}

#[test]
fn a_failure_is_kept_too() {
    let sim = SimFileSystem::new();
    let c = start_with(&sim, 1, LONG);
    let poisoned = table("t", &["f"]).with("POISON", "1");
    let request = pb::CreateTableRequest { nonce_group: Some(7), nonce: Some(3), ..create(&poisoned, &[]) };
    let failed = c.run("CreateTable", &request).unwrap_err();
    drop(c);
    let c = start_with(&sim, 2, LONG);
    let again = c.run("CreateTable", &request).unwrap_err();
    assert_eq!((again.class, again.message), (failed.class, failed.message));
    c.check();
}

#[test]
fn results_are_forgotten_with_their_files() {
    let sim = SimFileSystem::new();
    let c = start_with(&sim, 1, Duration::from_millis(1));
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    c.run("DisableTable", &disable("t")).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    c.run("EnableTable", &enable("t")).unwrap();
    let mut left = usize::MAX;
    for _ in 0..1000 {
        left = results(&sim);
        if left <= 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(left <= 1, "{left}");
    drop(c);
    std::thread::sleep(Duration::from_millis(5));
    drop(start_with(&sim, 2, Duration::from_millis(1)));
    assert_eq!(results(&sim), 0, "those that are too old are removed at the start");
}
