//! What a server does for procedures that HBase's master coordinates through znodes. `halcyon-zookeeper` tests the barriers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use halcyon_cell::{Cell, Result};
use halcyon_contract::{
    BackupBooks, BackupTables, BarrierKind, BarrierProcedure, Cancelled, ProcedureMember, last_wal_number,
    log_roll_cell, noted_log_roll,
};
use halcyon_env::FileSystem;
use halcyon_env::sim::{Fault, Operation};
use halcyon_proto::pb;
use halcyon_proto::pb::snapshot_description::Type;
use halcyon_regionserver::{BarrierWork, RegionServerSettings};
use halcyon_schema::{RegionInfo, TableName, layout};
use parking_lot::Mutex;
use prost::Message;

fn run_until(lab: &Lab, kind: BarrierKind, instance: &str, data: &[u8], cancelled: &Cancelled) -> Result<()> {
    let member = BarrierWork::new(Arc::clone(&lab.server));
    let procedure = BarrierProcedure { kind, instance: instance.to_string(), data: data.to_vec() };
    (member.prepare(&procedure)?.work)(cancelled)
}

fn run(lab: &Lab, kind: BarrierKind, instance: &str, data: &[u8]) -> Result<()> {
    run_until(lab, kind, instance, data, &Cancelled::default())
}

fn why(result: Result<()>) -> String {
    result.unwrap_err().message().to_string()
}

fn snapshot(name: &str, table: &str, kind: Type) -> pb::SnapshotDescription {
    let table = Some(table.to_string());
    let (name, r#type) = (name.to_string(), Some(kind as i32));
    pb::SnapshotDescription { name, table, r#type, version: Some(2), ..Default::default() }
}

/// Store files of a family.
fn files(lab: &Lab, family: &str) -> usize {
    lab.fs.list(&lab.info.dir(Path::new(ROOT)).join(family)).map_or(0, |entries| entries.len())
}

/// The working directory of a snapshot, which the master makes.
fn working_dir(lab: &Lab, name: &str) -> std::path::PathBuf {
    let dir = layout::snapshots_dir(Path::new(ROOT)).join(".tmp").join(name);
    lab.fs.create_dir_all(&dir).unwrap();
    dir
}

fn manifest(lab: &Lab, dir: &Path) -> Option<pb::SnapshotRegionManifest> {
    let bytes = lab.fs.read(&dir.join(format!("region-manifest.{}", lab.info.encoded_name()))).ok()?;
    Some(pb::SnapshotRegionManifest::decode(&bytes[..]).unwrap())
}

fn put_into(lab: &Lab, family: &[u8], row: &str) {
    let cell = halcyon_cell::Cell::put(row.as_bytes(), family, b"q", i64::MAX, b"value");
    lab.mutate(put(1), vec![cell]).unwrap();
}

#[test]
fn a_snapshot_flushes_and_names_the_files() {
    let lab = Lab::new();
    put_into(&lab, b"f", "r");
    for (name, kind, expected) in [("skip", Type::Skipflush, 0), ("flush", Type::Flush, 1)] {
        let dir = working_dir(&lab, name);
        run(&lab, BarrierKind::Snapshot, name, &snapshot(name, "t", kind).encode_to_vec()).unwrap();
        let manifest = manifest(&lab, &dir).expect("a manifest");
        let named: usize = manifest.family_files.iter().map(|family| family.store_files.len()).sum();
        assert_eq!((named, files(&lab, "f")), (expected, expected), "{name}");
        assert_eq!(manifest.region_info, lab.info.to_pb());
    }
    // A server without a region of the table has nothing to do, and the coordinator may wait for it.
    let dir = working_dir(&lab, "other");
    run(&lab, BarrierKind::Snapshot, "other", &snapshot("other", "u", Type::Flush).encode_to_vec()).unwrap();
    assert_eq!(manifest(&lab, &dir), None);
}

/// `Admin.execProcedure` makes a description without a version. HBase's master then looks for directories of regions.
#[test]
fn a_snapshot_without_a_version_has_the_first_format() {
    let lab = Lab::new();
    put_into(&lab, b"f", "r");
    let dir = working_dir(&lab, "s");
    let description = pb::SnapshotDescription { version: None, ..snapshot("s", "t", Type::Flush) };
    run(&lab, BarrierKind::Snapshot, "s", &description.encode_to_vec()).unwrap();
    let region = dir.join(lab.info.encoded_name());
    let info = lab.fs.read(&region.join(".regioninfo")).unwrap();
    assert_eq!(RegionInfo::decode_file(&info).unwrap(), lab.info);
    let names = |dir: &Path| {
        let mut names: Vec<_> = lab.fs.list(dir).unwrap().into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    };
    assert_eq!(names(&region), [".regioninfo", "f"]); // nothing of the empty family
    let files = names(&region.join("f"));
    assert_eq!(files, names(&lab.info.dir(Path::new(ROOT)).join("f")));
    assert_eq!(lab.fs.read(&region.join("f").join(&files[0])).unwrap(), b"");
    assert_eq!(manifest(&lab, &dir), None);
    let future = pb::SnapshotDescription { version: Some(3), ..description };
    let refused = why(run(&lab, BarrierKind::Snapshot, "s", &future.encode_to_vec()));
    assert!(refused.contains("3 is no format"), "{refused}");
}

#[test]
fn a_snapshot_that_cannot_be_taken_is_an_error() {
    let lab = Lab::new();
    put_into(&lab, b"f", "r");
    let data = snapshot("s", "t", Type::Flush).encode_to_vec();
    let dir = working_dir(&lab, "s");
    let cancelled = Cancelled::default();
    cancelled.set();
    let failed = why(run_until(&lab, BarrierKind::Snapshot, "s", &data, &cancelled));
    assert!(failed.contains("was cancelled"), "{failed}");
    assert_eq!((manifest(&lab, &dir), files(&lab, "f")), (None, 0));

    lab.fs.inject(Fault::new(Operation::Put, "region-manifest."));
    let failed = why(run(&lab, BarrierKind::Snapshot, "s", &data));
    assert!(failed.contains(lab.info.encoded_name()), "{failed}");
    assert_eq!((lab.fs.faults_hit(), manifest(&lab, &dir)), (1, None));
    run(&lab, BarrierKind::Snapshot, "s", &data).unwrap();
    assert!(manifest(&lab, &dir).is_some());
}

#[test]
fn a_flush_takes_all_families_or_those_that_are_named() {
    let lab = Lab::new();
    put_into(&lab, b"f", "r");
    put_into(&lab, b"g", "r");
    let named = |families: &str| {
        pb::NameStringPair { name: "family".to_string(), value: families.to_string() }.encode_to_vec()
    };
    run(&lab, BarrierKind::FlushTable, "u", b"").unwrap();
    run(&lab, BarrierKind::FlushTable, "t", &named("g")).unwrap();
    assert_eq!((files(&lab, "f"), files(&lab, "g")), (0, 1));
    run(&lab, BarrierKind::FlushTable, "t", b"").unwrap();
    assert_eq!((files(&lab, "f"), files(&lab, "g")), (1, 1));
    for family in [b"f", b"g"] {
        put_into(&lab, family, "s");
    }
    run(&lab, BarrierKind::FlushTable, "default:t", &named("f,g")).unwrap();
    assert_eq!((files(&lab, "f"), files(&lab, "g")), (2, 2));
    assert!(run(&lab, BarrierKind::FlushTable, "t", &named("no")).is_err());
}

#[test]
fn garbage_is_refused_with_a_sentence() {
    let lab = Lab::new();
    let refused = |kind, instance: &str, data: &[u8]| why(run(&lab, kind, instance, data));
    let garbage = b"\xff\xff\xff";
    assert!(refused(BarrierKind::Snapshot, "s", garbage).contains("online-snapshot \"s\" cannot be decoded"));
    assert!(refused(BarrierKind::FlushTable, "t", garbage).contains("cannot be decoded"));
    assert!(run(&lab, BarrierKind::FlushTable, "a b", b"").is_err());
    let described = |description: &pb::SnapshotDescription| description.encode_to_vec();
    let other = described(&snapshot("other", "t", Type::Flush));
    assert!(refused(BarrierKind::Snapshot, "s", &other).contains("has the name \"other\""));
    let disabled = described(&snapshot("s", "t", Type::Disabled));
    assert!(refused(BarrierKind::Snapshot, "s", &disabled).contains("type 0"));
    let future = pb::SnapshotDescription { r#type: Some(9), ..snapshot("s", "t", Type::Flush) };
    assert!(refused(BarrierKind::Snapshot, "s", &described(&future)).contains("type 9"));
    let upwards = described(&snapshot("..", "t", Type::Flush));
    assert!(refused(BarrierKind::Snapshot, "..", &upwards).contains("no name of a snapshot"));
    assert!(run(&lab, BarrierKind::Snapshot, "s", &described(&snapshot("s", "", Type::Flush))).is_err());
    assert!(refused(BarrierKind::RollLogs, "rolllog", b"hdfs://backup").contains("hbase.backup.enable"));
}

/// `backup:system` in a cluster.
#[derive(Default)]
struct Books {
    cells: Mutex<Option<Vec<Cell>>>,
}

impl BackupBooks for Books {
    fn rows(&self, table: &TableName) -> Result<Option<Vec<Vec<Cell>>>> {
        assert_eq!(*table, BackupTables::default().system);
        Ok(self.cells.lock().as_ref().map(|cells| cells.iter().map(|cell| vec![cell.clone()]).collect()))
    }

    fn put(&self, table: &TableName, cells: Vec<Cell>) -> Result<()> {
        assert_eq!(*table, BackupTables::default().system);
        self.cells.lock().as_mut().expect("it was read before").extend(cells);
        Ok(())
    }
}

#[test]
fn wals_are_rolled_for_a_backup_and_the_last_one_is_noted() {
    let settings = RegionServerSettings { backup_enabled: true, ..settings() };
    let lab = Lab::with(halcyon_env::sim::SimFileSystem::new(), settings);
    let books = Arc::new(Books::default());
    lab.server.keep_backup_books(Arc::clone(&books) as Arc<dyn BackupBooks>);
    let name = lab.server.server_name().clone();
    let dir = layout::wals_dir(Path::new(ROOT)).join(name.to_string());
    let files = || lab.fs.list(&dir).unwrap().into_iter().map(|file| file.name).collect::<Vec<_>>();
    let last = || last_wal_number(files().iter().map(|name| &**name)).expect("there is one");
    let roll = || run(&lab, BarrierKind::RollLogs, "rolllog", b"hdfs://backup");
    assert!(why(roll()).contains("there is no table backup:system"));
    *books.cells.lock() = Some(Vec::new());
    lab.put("r", "q", "v");
    let before = last();
    roll().unwrap();
    assert!(last() > before, "{} follows {before}", last());
    let noted =
        || books.cells.lock().as_ref().unwrap().iter().map(|cell| vec![cell.clone()]).collect::<Vec<_>>();
    assert_eq!(noted_log_roll(&noted(), "hdfs://backup", &name), Some(before));
    assert_eq!(noted_log_roll(&noted(), "hdfs://other", &name), None);
    // An order that comes late does not take back what a later one has noted.
    *books.cells.lock() = Some(vec![log_roll_cell("hdfs://backup", &name, i64::MAX)]);
    roll().unwrap();
    assert_eq!(noted().len(), 1);
    assert!(
        why(run(&lab, BarrierKind::RollLogs, "rolllog", b"\xff"))
            .contains("the root directory of the backup")
    );
}

#[test]
fn limits_of_time_are_settings() {
    let settings = RegionServerSettings {
        snapshot_time_max: Duration::from_secs(7),
        flush_table_time_max: Duration::from_secs(8),
        ..settings()
    };
    let lab = Lab::with(halcyon_env::sim::SimFileSystem::new(), settings);
    let member = BarrierWork::new(Arc::clone(&lab.server));
    let data = snapshot("s", "t", Type::Flush).encode_to_vec();
    for (kind, instance, data, limit) in
        [(BarrierKind::Snapshot, "s", data, 7), (BarrierKind::FlushTable, "t", Vec::new(), 8)]
    {
        let procedure = BarrierProcedure { kind, instance: instance.to_string(), data };
        assert_eq!(member.prepare(&procedure).unwrap().time_max, Duration::from_secs(limit));
    }
}
