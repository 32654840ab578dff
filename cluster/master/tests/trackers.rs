//! Store file trackers of tables: what is refused, in HBase's words, and how one is changed.

use std::path::Path;

use crate::common::*;
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_proto::pb;
use halcyon_schema::{STORE_FILE_TRACKER, TRACKER_MIGRATION_DST, TRACKER_MIGRATION_SRC, TableDescriptor};

fn with(table: TableDescriptor, tracker: &str) -> TableDescriptor {
    match tracker.split_once("->") {
        Some((src, dst)) => table
            .with(STORE_FILE_TRACKER, "MIGRATION")
            .with(TRACKER_MIGRATION_SRC, src)
            .with(TRACKER_MIGRATION_DST, dst),
        None => table.with(STORE_FILE_TRACKER, tracker),
    }
}

fn change(c: &Cluster, table: &str, to: &str) -> Result<(), String> {
    let request = pb::ModifyTableStoreFileTrackerRequest {
        table_name: name(table).to_pb(),
        dst_sft: to.to_string(),
        ..Default::default()
    };
    c.run("ModifyTableStoreFileTracker", &request).map(|_| ()).map_err(|error| format!("{error}"))
}

fn change_family(c: &Cluster, family: &str, to: &str) -> Result<(), String> {
    let request = pb::ModifyColumnStoreFileTrackerRequest {
        table_name: name("t").to_pb(),
        family: family.to_string().into(),
        dst_sft: to.to_string(),
        ..Default::default()
    };
    c.run("ModifyColumnStoreFileTracker", &request).map(|_| ()).map_err(|error| format!("{error}"))
}

fn settings_of(c: &Cluster, table: &str) -> String {
    let descriptor = c.descriptor(table).unwrap();
    let text = |key: &str| {
        let value = descriptor.attribute(key.as_bytes());
        value.map_or("-".to_string(), |value| String::from_utf8_lossy(value).into_owned())
    };
    [STORE_FILE_TRACKER, TRACKER_MIGRATION_SRC, TRACKER_MIGRATION_DST].map(text).join(" ")
}

#[test]
fn a_change_goes_through_a_migration() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    for (from, to, refused) in [
        (
            "DEFAULT",
            "FILE",
            "Should change to MIGRATION first when migrating from DEFAULT for family f of table t",
        ),
        (
            "DEFAULT",
            "FILE->DEFAULT",
            "Should use src tracker DEFAULT first but got FILE when migrating from DEFAULT",
        ),
        (
            "DEFAULT",
            "DEFAULT->DEFAULT",
            "The src tracker and dst tracker are both DEFAULT for family f of table t",
        ),
        ("DEFAULT", "DEFAULT->FILE", ""),
        ("DEFAULT->FILE", "FILE->FILE", "The src tracker has been changed from DEFAULT to FILE for family f"),
        (
            "DEFAULT->FILE",
            "DEFAULT->DEFAULT",
            "The dst tracker has been changed from FILE to DEFAULT for family f",
        ),
        (
            "DEFAULT->FILE",
            "DEFAULT",
            "Should migrate tracker to FILE but got DEFAULT for family f of table t",
        ),
        ("DEFAULT->FILE", "FILE", ""),
        (
            "FILE",
            "DEFAULT",
            "Should change to MIGRATION first when migrating from FILE for family f of table t",
        ),
    ] {
        let changed = c.run("ModifyTable", &modify(&with(table("t", &["f"]), to)));
        match changed {
            Ok(_) => assert_eq!(refused, "", "{from} to {to}"),
            Err(error) => assert!(
                !refused.is_empty() && error.do_not_retry && error.message.contains(refused),
                "{from} to {to}: {error}"
            ),
        }
    }
    c.run("ModifyTable", &modify(&with(table("t", &["f"]), "FILE->DEFAULT"))).unwrap();
    c.run("DisableTable", &disable("t")).unwrap();
    let error = c.run("ModifyTable", &modify(&with(table("t", &["f"]), "DEFAULT"))).unwrap_err();
    assert!(error.class.ends_with("TableNotEnabledException"), "{error}");
    assert!(error.message.contains("from MIGRATION while table t is disabled"), "{error}");
    c.check();
}

#[test]
fn a_new_table_or_family_has_nothing_to_migrate() {
    let (_sim, c) = Cluster::simulated();
    let refused = "Should not use MIGRATION as store file tracker for new family f of table t";
    let request = create(&with(table("t", &["f"]), "DEFAULT->FILE"), &[]);
    let error = c.run("CreateTable", &request).unwrap_err();
    assert!(error.do_not_retry && error.message.contains(refused), "{error}");
    let unknown = create(&with(table("t", &["f"]), "a.b.Tracker"), &[]);
    assert!(c.run("CreateTable", &unknown).unwrap_err().do_not_retry);
    c.run("CreateTable", &create(&table("t", &["g"]), &[])).unwrap();
    let added = table("t", &["g"]).with_family(
        family("f")
            .with_configuration(STORE_FILE_TRACKER, "MIGRATION")
            .with_configuration(TRACKER_MIGRATION_SRC, "DEFAULT")
            .with_configuration(TRACKER_MIGRATION_DST, "FILE"),
    );
    let error = c.run("ModifyTable", &modify(&added.with(STORE_FILE_TRACKER, "DEFAULT"))).unwrap_err();
    assert!(error.message.contains(refused), "{error}");
    c.check();
}

#[test]
fn new_tables_get_the_tracker_of_the_site() {
    let sim = SimFileSystem::new();
    let mut settings = settings();
    settings.store_file_tracker = "FILE".to_string();
    let c = Cluster::start_with(with_real_clock(sim.env()), Path::new("/hbase"), 1, settings).unwrap();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.run("CreateTable", &create(&with(table("u", &["f"]), "DEFAULT"), &[])).unwrap();
    assert_eq!((settings_of(&c, "t"), settings_of(&c, "u")), ("FILE - -".into(), "DEFAULT - -".into()));
    // Those that the master makes, too; they keep it.
    let changed = Cluster::start(with_real_clock(sim.env()), Path::new("/hbase"), 2);
    for c in [c, changed.unwrap()] {
        for table in ["hbase:meta", "hbase:namespace"] {
            assert_eq!(settings_of(&c, table), "FILE - -", "{table}");
        }
        c.check();
        c.master.stop();
    }
}

#[test]
fn the_master_changes_a_tracker_in_steps() {
    let (sim, c) = Cluster::simulated();
    assert!(change(&c, "t", "FILE").unwrap_err().contains("TableNotFoundException"));
    c.run("CreateTable", &create(&table("t", &["f", "g"]), &["m"])).unwrap();
    assert!(change(&c, "t", "MIGRATION").unwrap_err().contains("Do not need to transfer to MIGRATION"));
    assert!(change(&c, "t", "a.b.Tracker").unwrap_err().contains("a.b.Tracker"));
    // Each write of a descriptor fails once.
    sim.inject(Fault::new(Operation::Put, ".tableinfo"));
    sim.inject(Fault::new(Operation::Put, ".tableinfo").nth(3));
    change(&c, "t", "FILE").unwrap();
    assert_eq!(settings_of(&c, "t"), "FILE - -");
    change(&c, "t", "FILE").unwrap();
    c.run("ModifyTable", &modify(&with(table("t", &["f", "g"]), "FILE->DEFAULT"))).unwrap();
    change(&c, "t", "FILE").unwrap();
    assert_eq!(
        settings_of(&c, "t"),
        "FILE - -",
        "a migration that was begun is ended, and another one follows"
    );
    assert!(change_family(&c, "no", "DEFAULT").unwrap_err().contains("no does not exist for table t"));
    change_family(&c, "g", "DEFAULT").unwrap();
    let descriptor = c.descriptor("t").unwrap();
    let configuration = descriptor.family(b"g").unwrap().configuration().clone();
    assert_eq!(
        configuration.into_iter().collect::<Vec<_>>(),
        [(STORE_FILE_TRACKER.into(), "DEFAULT".into())]
    );
    assert!(descriptor.family(b"f").unwrap().configuration().is_empty());
    assert!(c.regions("t").iter().all(|region| c.server.online_names().contains(region.encoded_name())));
    c.run("DisableTable", &disable("t")).unwrap();
    assert!(change(&c, "t", "DEFAULT").unwrap_err().contains("TableNotEnabledException"));
    c.check();
}

/// What is half written is in the directory as well.
#[test]
fn a_snapshot_has_the_files_of_the_list() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&with(table("t", &["f"]), "FILE"), &[])).unwrap();
    let dir = c.regions("t")[0].dir(&c.root).join("f");
    for name in ["0123456789abcdef0123456789abcdef", "f123456789abcdef0123456789abcdef"] {
        c.env.fs.replace(&dir.join(name), b"cells").unwrap();
    }
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    let manifest = c.env.fs.read(&c.root.join(".hbase-snapshot/s/data.manifest")).unwrap();
    let is_named = |name: &[u8]| manifest.windows(name.len()).any(|bytes| bytes == name);
    assert!(is_named(b"f123456789abcdef0123456789abcdef") && !is_named(b"0123456789abcdef0123456789abcdef"));
}

#[test]
fn a_snapshot_is_not_restored_over_another_tracker() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    change(&c, "t", "FILE").unwrap();
    c.run("DisableTable", &disable("t")).unwrap();
    let error = c.run("RestoreSnapshot", &restore("s", "t")).unwrap_err();
    assert!(error.class.ends_with("RestoreSnapshotException"), "{error}");
    assert!(error.message.contains("Current SFT: class org.apache.hadoop.hbase.regionserver."), "{error}");
    c.check();
}
