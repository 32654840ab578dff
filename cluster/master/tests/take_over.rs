//! A root directory that HBase's master has used, as its own region tells of it.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::common::*;
use halcyon_cell::{Cell, ErrorKind};
use halcyon_env::Env;
use halcyon_env::sim::SimFileSystem;
use halcyon_master::MasterSettings;
use halcyon_proto::pb;
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

const ROOT: &str = "/hbase";
const HBASE: &str = "h,16020,7";

fn env(sim: &SimFileSystem) -> Env {
    with_real_clock(sim.env())
}

fn store() -> RegionInfo {
    RegionInfo::new(TableName::MASTER_STORE, "".into(), "".into(), 1)
}

/// Writes to the region of HBase's master, behind everything that is there.
fn as_hbase(sim: &SimFileSystem, cells: &[(&[u8], &str, &str, &[u8])]) {
    let env = env(sim);
    env.fs.create_dir_all(Path::new(ROOT)).unwrap();
    static CALLS: AtomicI64 = AtomicI64::new(1);
    let at_ms = env.clock.now_ms() + CALLS.fetch_add(1, Ordering::SeqCst);
    let server = FakeRegionServer::new(env, Path::new(ROOT), 7);
    let cells = cells.iter().map(|(row, family, qualifier, value)| {
        Cell::put(row, family.as_bytes(), qualifier.as_bytes(), at_ms, value)
    });
    server.put_rows(store().encoded_name(), cells.collect()).unwrap();
}

fn column(c: &Cluster, row: &[u8], family: &str, qualifier: &str) -> Option<Vec<u8>> {
    let rows = c.server.scan_rows(store().encoded_name()).unwrap();
    let mut cells = rows.iter().flatten().filter(|cell| cell.row() == row);
    let cell = cells.find(|c| c.family() == family.as_bytes() && c.qualifier() == qualifier.as_bytes());
    cell.map(|cell| cell.value().to_vec())
}

fn procedure(class: &str, state: pb::ProcedureState) -> Vec<u8> {
    pb::Procedure {
        class_name: format!("org.apache.hadoop.hbase.master.procedure.{class}"),
        proc_id: 9,
        state: state as i32,
        ..Default::default()
    }
    .encode_to_vec()
}

const META_ROW: &[u8] = b"hbase:meta,,1";

#[test]
fn hbase_would_find_meta_and_the_server_of_its_regions() {
    let sim = SimFileSystem::new();
    for start_code in [1, 2] {
        let c = Cluster::start(env(&sim), Path::new(ROOT), start_code).unwrap();
        let server = format!("127.0.0.1,16020,{start_code}");
        assert_eq!(column(&c, META_ROW, "info", "sn").unwrap(), server.as_bytes());
        assert_eq!(column(&c, META_ROW, "info", "state").unwrap(), b"OPEN");
        assert_eq!(column(&c, server.as_bytes(), "rs", "state").unwrap(), b"ONLINE");
        // The server of the life before is not to be waited for.
        assert_eq!(column(&c, b"127.0.0.1,16020,0", "rs", "state"), None);
        assert_eq!(column(&c, b"127.0.0.1,16020,1", "rs", "state").is_some(), start_code == 1);
        assert_eq!(column(&c, b"split_enabled", "state", "d").unwrap(), b"PBUF\x08\x01");
    }
    for path in ["data/master/store/.initialized", "data/master/store/.tabledesc"] {
        assert!(sim.env().fs.exists(&Path::new(ROOT).join("MasterData").join(path)).unwrap(), "{path}");
    }
}

#[test]
fn procedures_that_only_hbase_can_end_are_named() {
    let sim = SimFileSystem::new();
    let done = procedure("DeleteTableProcedure", pb::ProcedureState::Success);
    let crash = procedure("ServerCrashProcedure", pb::ProcedureState::Waiting);
    let under_way = procedure("CreateTableProcedure", pb::ProcedureState::Runnable);
    as_hbase(
        &sim,
        &[
            (META_ROW, "info", "sn", HBASE.as_bytes()),
            (&7u64.to_be_bytes(), "proc", "d", &done),
            (&8u64.to_be_bytes(), "proc", "d", &crash),
            (&9u64.to_be_bytes(), "proc", "d", &under_way),
        ],
    );
    let error = Cluster::start(env(&sim), Path::new(ROOT), 20).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("9 CreateTableProcedure (RUNNABLE)"), "{error}");
    assert!(error.message().contains("has 1 procedures"), "{error}");
    // HBase has ended it.
    as_hbase(&sim, &[(&9u64.to_be_bytes(), "proc", "d", b"")]);
    let c = Cluster::start(env(&sim), Path::new(ROOT), 21).unwrap();
    for number in 7u64..10 {
        assert_eq!(column(&c, &number.to_be_bytes(), "proc", "d"), None);
    }
    c.check();
}

/// What was under way here was about tables that HBase may have changed since.
#[test]
fn what_was_left_under_way_here_is_forgotten_if_hbase_was_here_since() {
    for hbase_was_here in [false, true] {
        let sim = SimFileSystem::new();
        let c = Cluster::start(env(&sim), Path::new(ROOT), 1).unwrap();
        c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
        let records = c.root.join("MasterData/procedures");
        drop(c);
        let record = sim.env().fs.list(&records).unwrap();
        assert_eq!(record.len(), 1);
        // A record of a table that is to be disabled: format, number 5, kind, step 0, the table's name.
        let name = TableName::parse(b"t").unwrap().to_pb().encode_to_vec();
        let mut bytes = vec![1, 8, 5, 0x12, 13];
        bytes.extend_from_slice(b"disable_table");
        bytes.extend_from_slice(&[0x22, name.len() as u8]);
        bytes.extend_from_slice(&name);
        sim.env().fs.replace(&records.join("5"), &bytes).unwrap();
        if hbase_was_here {
            as_hbase(
                &sim,
                &[
                    (META_ROW, "info", "sn", HBASE.as_bytes()),
                    (b"merge_enabled", "state", "d", b"PBUF\x08\x00"),
                ],
            );
        }
        let c = Cluster::start(env(&sim), Path::new(ROOT), 2).unwrap();
        c.quiet();
        let expected =
            if hbase_was_here { pb::table_state::State::Enabled } else { pb::table_state::State::Disabled };
        assert_eq!(c.state("t"), Some(expected));
        let asked = pb::IsSplitOrMergeEnabledRequest { switch_type: 1 };
        let merge: pb::IsSplitOrMergeEnabledResponse = c.call("IsSplitOrMergeEnabled", &asked).unwrap();
        assert_eq!(merge.enabled, !hbase_was_here);
        c.check();
    }
}

/// A table that HBase made of a snapshot uses files of another one.
#[test]
fn links_lead_to_their_files() {
    let sim = SimFileSystem::new();
    let c = Cluster::start(env(&sim), Path::new(ROOT), 1).unwrap();
    for name in ["t", "clone"] {
        c.run("CreateTable", &create(&table(name, &["f"]), &[])).unwrap();
    }
    let (source, clone) = (c.regions("t")[0].clone(), c.regions("clone")[0].clone());
    let root = c.root.clone();
    drop(c);
    let fs = sim.env().fs.clone();
    let link = |file| clone.dir(&root).join("f").join(format!("t={}-{file}", source.encoded_name()));
    let archived = root.join("archive/data/default/t").join(source.encoded_name()).join("f");
    let back = archived.join(".links-1a").join(format!("{}.clone", clone.encoded_name()));
    fs.create_dir_all(back.parent().unwrap()).unwrap();
    fs.replace(&back, b"").unwrap();
    for file in ["1a", "2b"] {
        fs.replace(&archived.join(file), b"archived").unwrap();
    }
    fs.replace(&link("1a"), b"").unwrap();
    as_hbase(&sim, &[(META_ROW, "info", "sn", HBASE.as_bytes())]);
    let settings = MasterSettings { archive_keep: Duration::ZERO, ..settings() };
    let c = Cluster::start_with(env(&sim), Path::new(ROOT), 2, settings).unwrap();
    assert!(fs.exists(&link("1a")).unwrap());
    for _ in 0..2 {
        c.call::<pb::RunCleanerChoreResponse>("RunCleanerChore", &pb::RunCleanerChoreRequest {}).unwrap();
    }
    assert!(fs.exists(&archived.join("1a")).unwrap(), "a link leads to it");
    assert!(!fs.exists(&archived.join("2b")).unwrap());
}
