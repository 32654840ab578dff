//! What HBase's backup tool asks of a master: rolled WALs with a note, and files that stay until a backup has them.

use std::path::Path;
use std::time::Duration;

use crate::common::*;
use halcyon_cell::Cell;
use halcyon_contract::{BackupTables, BulkLoadState, bulk_load_cells};
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_proto::pb::backup_info::BackupState;
use halcyon_schema::TableName;
use prost::Message;

fn roll() -> pb::ProcedureDescription {
    pb::ProcedureDescription {
        signature: "rolllog-proc".into(),
        instance: Some("rolllog".into()),
        creation_time: None,
        configuration: vec![pb::NameStringPair { name: "backupRoot".into(), value: "file:/b".into() }],
    }
}

fn start(sim: &std::sync::Arc<SimFileSystem>, enabled: bool) -> Cluster {
    let mut settings = settings();
    settings.backup_enabled = enabled;
    (settings.archive_keep, settings.old_wals_keep) = (Duration::ZERO, Duration::ZERO);
    Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), 1, settings).unwrap()
}

fn make_books(c: &Cluster) {
    let request =
        pb::CreateNamespaceRequest { namespace_descriptor: namespace("backup"), ..Default::default() };
    c.run("CreateNamespace", &request).unwrap();
    for name in [BackupTables::default().system, BackupTables::default().bulk] {
        c.run("CreateTable", &create(&table(&name.to_string(), &["session", "meta"]), &[])).unwrap();
    }
}

fn rows(c: &Cluster, table: &TableName) -> Vec<Vec<Cell>> {
    c.server.scan_rows(c.regions(&table.to_string())[0].encoded_name()).unwrap()
}

fn write(c: &Cluster, table: &TableName, cells: Vec<Cell>) {
    c.server.put_rows(c.regions(&table.to_string())[0].encoded_name(), cells).unwrap();
}

#[test]
fn wals_are_rolled_and_the_last_complete_one_is_noted() {
    let sim = std::sync::Arc::new(SimFileSystem::new());
    let c = start(&sim, true);
    let request = pb::ExecProcedureRequest { procedure: roll() };
    let early = c.call::<pb::ExecProcedureResponse>("ExecProcedure", &request).unwrap_err();
    assert!(early.message.contains("there is no table backup:system"), "{early}");
    make_books(&c);
    let dir = Path::new(ROOT).join("WALs/127.0.0.1,16020,1");
    c.env.fs.create_dir_all(&dir).unwrap();
    c.env.fs.replace(&dir.join("127.0.0.1%2C16020%2C1.77"), b"edits").unwrap();
    let answer: pb::ExecProcedureResponse = c.call("ExecProcedure", &request).unwrap();
    assert!(answer.expected_timeout() > 0);
    let done = pb::IsProcedureDoneRequest { procedure: Some(roll()) };
    assert!(c.call::<pb::IsProcedureDoneResponse>("IsProcedureDone", &done).unwrap().done());
    let noted = rows(&c, &BackupTables::default().system);
    assert_eq!(noted.len(), 1);
    assert_eq!(noted[0][0].row(), b"rslogts:file:/b\x00127.0.0.1:16020");
    assert_eq!(noted[0][0].value(), 77i64.to_be_bytes(), "not the number of a file that is written");
    assert!(c.env.fs.list(&dir).unwrap().len() >= 2, "there are new WALs");
}

#[test]
fn without_the_setting_there_is_no_such_procedure() {
    let sim = std::sync::Arc::new(SimFileSystem::new());
    let c = start(&sim, false);
    let request = pb::ExecProcedureRequest { procedure: roll() };
    let refused = c.call::<pb::ExecProcedureResponse>("ExecProcedure", &request).unwrap_err();
    assert!(refused.message.contains("not registered"), "{refused}");
}

#[test]
fn what_a_backup_lacks_stays() {
    let sim = std::sync::Arc::new(SimFileSystem::new());
    let c = start(&sim, true);
    make_books(&c);
    let numbers = pb::backup_info::RsTimestampMap { rs_timestamp: [("h:1".to_string(), 100)].into() };
    let info = pb::BackupInfo {
        backup_id: Some("backup_1".to_string()),
        backup_state: Some(BackupState::Complete as i32),
        backup_root_dir: Some("file:/b".to_string()),
        table_set_timestamp: [("t".to_string(), numbers)].into(),
        ..Default::default()
    };
    let session = Cell::put(b"session:backup_1", b"session", b"context", 1, &info.encode_to_vec());
    write(&c, &BackupTables::default().system, vec![session]);
    let loaded = bulk_load_cells(
        &TableName::parse(b"t").unwrap(),
        "abc",
        b"f",
        "file:/hbase/data/default/t/abc/f/loaded",
        BulkLoadState::Loaded,
    );
    write(&c, &BackupTables::default().bulk, loaded.iter().map(|cell| cell.with_timestamp(1)).collect());
    let (old_wals, archive) =
        (Path::new(ROOT).join("oldWALs"), Path::new(ROOT).join("archive/data/default/t/abc/f"));
    let fill = || {
        for dir in [&old_wals, &archive] {
            c.env.fs.create_dir_all(dir).unwrap();
        }
        for number in [100, 101] {
            c.env.fs.replace(&old_wals.join(format!("h%2C1%2C5.{number}")), b"edits").unwrap();
        }
        for name in ["loaded", "compacted"] {
            c.env.fs.replace(&archive.join(name), b"cells").unwrap();
        }
    };
    let clean = || c.call::<pb::RunCleanerChoreResponse>("RunCleanerChore", &pb::RunCleanerChoreRequest {});
    let left = |dir: &Path| -> Vec<String> {
        c.env.fs.list(dir).unwrap().into_iter().map(|entry| entry.name).collect()
    };
    fill();
    clean().unwrap();
    assert_eq!(left(&old_wals), ["h%2C1%2C5.101"]);
    assert_eq!(left(&archive), ["loaded"]);
    // While the books cannot be read, everything may be needed.
    fill();
    let damaged = Cell::put(b"session:backup_2", b"session", b"context", 1, &[0xff]);
    write(&c, &BackupTables::default().system, vec![damaged]);
    assert!(clean().is_err());
    assert_eq!((left(&old_wals).len(), left(&archive).len()), (2, 2));
}
