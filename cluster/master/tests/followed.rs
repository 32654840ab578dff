//! Masters of which two act at a time: one whose place was taken although it lives, and its successor.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_env::sim::SimFileSystem;
use halcyon_master::MasterSettings;
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_schema::{RegionInfo, layout};
use prost::Message;

/// As the master writes it, the fields that count here.
#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    kind: String,
    #[prost(bytes = "vec", tag = "4")]
    payload: Vec<u8>,
    #[prost(message, optional, tag = "10")]
    failure: Option<Failure>,
}

#[derive(Clone, PartialEq, Message)]
struct Failure {
    #[prost(string, tag = "1")]
    class: String,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct CreateTable {
    #[prost(message, required, tag = "1")]
    schema: pb::TableSchema,
    #[prost(message, repeated, tag = "2")]
    regions: Vec<pb::RegionInfo>,
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn start(sim: &SimFileSystem, start_code: i64, predecessor_lease: Duration) -> Cluster {
    let env = with_real_clock(sim.env());
    let until_ns = env.clock.boot_ns() + predecessor_lease.as_nanos() as u64;
    let settings = MasterSettings { predecessor_until_ns: Some(until_ns), ..settings() };
    Cluster::start_with(env, Path::new(ROOT), start_code, settings).unwrap()
}

fn answers(c: &Cluster) -> bool {
    let asked = pb::IsSplitOrMergeEnabledRequest { switch_type: 1 };
    c.call::<pb::IsSplitOrMergeEnabledResponse>("IsSplitOrMergeEnabled", &asked).is_ok()
}

fn records() -> PathBuf {
    Path::new(ROOT).join("MasterData/procedures")
}

fn descriptors(sim: &SimFileSystem, table: &str) -> usize {
    let dir = layout::table_desc_dir(Path::new(ROOT), &name(table));
    sim.env().fs.list(&dir).map_or(0, |files| files.iter().filter(|file| !file.is_dir).count())
}

/// A successor took the records and made the table, and clients wrote to it. The first master found out by the record of the failure that it
/// has one, and undid the creation all the same.
#[test]
fn what_a_successor_does_is_not_undone() {
    let sim = SimFileSystem::new();
    let c = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 1).unwrap();
    c.server.set_fault("create_region_files", Some(ServerFault::Hangs));
    c.submit("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    until("the step runs", || descriptors(&sim, "t") == 1);
    let fs = sim.env().fs;
    let own = records().join(fs.list(&records()).unwrap()[0].name.clone());
    fs.rename(&own, &records().join("0000000000000009-h,16000,9")).unwrap();
    c.server.set_fault("create_region_files", Some(ServerFault::Refuses));
    until("it learns of its successor", || !answers(&c));
    c.master.stop();
    assert_eq!(descriptors(&sim, "t"), 1, "the successor has the table by now");
}

/// A step that failed for a moment was repeated when a successor had ended the procedure.
#[test]
fn a_step_is_not_repeated_by_a_master_that_has_a_successor() {
    let sim = SimFileSystem::new();
    let c = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 1).unwrap();
    c.server.set_fault("create_region_files", Some(ServerFault::Hangs));
    c.submit("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    until("the step runs", || descriptors(&sim, "t") == 1);
    let fs = sim.env().fs;
    let own = records().join(fs.list(&records()).unwrap()[0].name.clone());
    fs.rename(&own, &records().join("0000000000000009-h,16000,9")).unwrap();
    // The table was altered since.
    let dir = layout::table_desc_dir(Path::new(ROOT), &name("t"));
    let first = dir.join(fs.list(&dir).unwrap().into_iter().find(|file| !file.is_dir).unwrap().name);
    fs.rename(&first, &dir.join(".tableinfo.0000000002")).unwrap();
    c.server.set_fault("create_region_files", Some(ServerFault::Fails));
    until("it learns of its successor", || !answers(&c));
    c.master.stop();
    assert!(fs.exists(&dir.join(".tableinfo.0000000002")).unwrap(), "that of the alteration");
    assert!(!fs.exists(&first).unwrap(), "it was not begun again");
}

/// The master before may be at a creation, or at its undo, until its lease ends. It would write over the descriptor of the table that clients
/// use by then, or archive it.
#[test]
fn a_creation_waits_for_the_master_that_began_it() {
    let lasting = Duration::from_secs(100_000);
    for failure in
        [None, Some(Failure { class: "java.io.IOException".to_string(), message: "aborted".to_string() })]
    {
        let sim = SimFileSystem::new();
        drop(Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 1).unwrap());
        let (schema, id) = (table("t", &["f"]), 900_000);
        let regions = vec![RegionInfo::new(name("t"), "".into(), "".into(), 7).to_pb()];
        let payload = CreateTable { schema: schema.to_pb(), regions }.encode_to_vec();
        let is_undone = failure.is_some();
        let record = Record { id, kind: "create_table".to_string(), payload, failure };
        let fs = sim.env().fs;
        let own = records().join(fs.list(&records()).unwrap()[0].name.clone());
        fs.replace(&own.join(id.to_string()), &[&[1][..], &record.encode_to_vec()].concat()).unwrap();
        let desc = layout::table_desc_dir(Path::new(ROOT), &name("t")).join("by-the-master-before");
        fs.create_dir_all(desc.parent().unwrap()).unwrap();
        fs.put_new(&desc, b"").unwrap();

        let c = start(&sim, 2, lasting);
        c.run("CreateTable", &create(&table("u", &["f"]), &[])).unwrap(); // the first one knows nothing of it
        assert!(c.master.procedures().iter().any(|it| it.id == id), "it waits");
        assert!(fs.exists(&desc).unwrap(), "no step and no undo has run");
        c.master.stop();
        drop(c);

        let c = start(&sim, 3, Duration::ZERO);
        c.quiet();
        assert!(!fs.exists(&desc).unwrap());
        assert_eq!(c.state("t"), (!is_undone).then_some(State::Enabled));
        c.check();
    }
}
