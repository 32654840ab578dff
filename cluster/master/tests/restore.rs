//! A clone or restore looks at the whole snapshot before it touches a table, and a failure leaves the old table or the new.
//!
//! A restore once took the old regions out of meta first, and found afterwards that a file of the snapshot was gone: the
//! table was left without regions.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::*;
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_rpc::RpcError;
use halcyon_schema::TableDescriptor;
use prost::Message;

fn class<T: std::fmt::Debug>(result: Result<T, RpcError>) -> String {
    result.unwrap_err().class.rsplit('.').next().unwrap().to_string()
}

fn snapshot_names(c: &Cluster) -> Vec<String> {
    let response: pb::GetCompletedSnapshotsResponse =
        c.call("GetCompletedSnapshots", &pb::GetCompletedSnapshotsRequest {}).unwrap();
    response.snapshots.into_iter().map(|snapshot| snapshot.name).collect()
}

/// Table t, disabled, one region more than in its snapshot s, whose files are in the archive.
fn with_snapshot() -> (halcyon_env::sim::SimFileSystem, Cluster) {
    let (sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f", "g"]), &["m"])).unwrap();
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("DeleteTable", &delete("t")).unwrap();
    c.run("CreateTable", &create(&table("t", &["f"]), &["b", "c"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    c.run("DisableTable", &disable("t")).unwrap();
    (sim, c)
}

/// What there is of table t, its files and its descriptor included.
fn state_of(c: &Cluster) -> String {
    let regions = c.regions("t");
    let files: Vec<_> = regions.iter().map(|region| c.server.files(region)).collect();
    format!("{:?} {regions:?} {files:?} {:?}", c.state("t"), c.descriptor("t"))
}

/// Expects that neither a restore nor a clone begins, and that they leave nothing.
fn refused(c: &Cluster, class_name: &str, word: &str) {
    let before = state_of(c);
    for target in ["t", "new"] {
        let error = c.run("RestoreSnapshot", &restore("s", target)).unwrap_err();
        assert!(error.class.ends_with(class_name), "{error}");
        assert!(error.message.contains(word), "{error}");
    }
    assert_eq!((before, c.state("new")), (state_of(c), None));
    c.check();
}

fn archived_file(c: &Cluster) -> PathBuf {
    let root = Path::new("/hbase/archive/data/default/t");
    let region = c.env.fs.list(root).unwrap().into_iter().next().unwrap().name;
    let dir = root.join(region).join("f");
    dir.join(c.env.fs.list(&dir).unwrap().into_iter().next().unwrap().name)
}

const MANIFEST: &str = "/hbase/.hbase-snapshot/s/data.manifest";

fn change_manifest(c: &Cluster, change: impl FnOnce(&mut pb::SnapshotDataManifest)) {
    let mut manifest =
        pb::SnapshotDataManifest::decode(&*c.env.fs.read(Path::new(MANIFEST)).unwrap()).unwrap();
    change(&mut manifest);
    c.env.fs.replace(Path::new(MANIFEST), &manifest.encode_to_vec()).unwrap();
}

#[test]
fn a_snapshot_that_lacks_a_file_is_refused() {
    let (_sim, c) = with_snapshot();
    let file = archived_file(&c);
    let bytes = c.env.fs.read(&file).unwrap();
    c.env.fs.remove_file(&file).unwrap();
    refused(&c, "CorruptedSnapshotException", "neither there nor archived");
    c.env.fs.replace(&file, b"shorter or longer").unwrap();
    refused(&c, "CorruptedSnapshotException", "manifest says");
    c.env.fs.replace(&file, &bytes).unwrap();
    c.run("RestoreSnapshot", &restore("s", "t")).unwrap();
    c.check();
}

#[test]
fn a_manifest_that_cannot_be_used_is_refused() {
    let (_sim, c) = with_snapshot();
    let whole = c.env.fs.read(Path::new(MANIFEST)).unwrap();
    change_manifest(&c, |manifest| drop(manifest.region_manifests.remove(0)));
    refused(&c, "CorruptedSnapshotException", "do not cover all rows");
    c.env.fs.replace(Path::new(MANIFEST), &whole).unwrap();
    change_manifest(&c, |manifest| manifest.region_manifests[0].region_info.end_key = Some("a".into()));
    refused(&c, "CorruptedSnapshotException", "not neighbours");
    c.env.fs.replace(Path::new(MANIFEST), &whole).unwrap();
    change_manifest(&c, |manifest| {
        manifest.region_manifests[0].family_files[0].family_name = "other".into();
    });
    refused(&c, "CorruptedSnapshotException", "family other");
    c.env.fs.replace(Path::new(MANIFEST), &whole).unwrap();
    change_manifest(&c, |manifest| {
        let descriptor = TableDescriptor::from_pb(&manifest.table_schema).unwrap();
        let descriptor = descriptor.with("coprocessor$1", "|no.such.Class|1|");
        manifest.table_schema = descriptor.with("hbase.table.sanity.checks", "false").to_pb();
    });
    refused(&c, "DoNotRetryIOException", "no.such.Class");
    c.env.fs.replace(Path::new(MANIFEST), b"not a manifest").unwrap();
    refused(&c, "CorruptedSnapshotException", "data.manifest");
}

/// HBase names the parent of a split beside its daughters, which refer to its files.
#[test]
fn the_parent_of_a_split_is_not_a_region_of_the_snapshot() {
    let (_sim, c) = with_snapshot();
    change_manifest(&c, |manifest| {
        let mut parent = manifest.region_manifests[0].clone();
        parent.region_info.end_key = Some(Default::default());
        parent.region_info.split = Some(true);
        parent.region_info.offline = Some(true);
        manifest.region_manifests.push(parent);
    });
    c.run("RestoreSnapshot", &restore("s", "t")).unwrap();
    assert_eq!(c.regions("t").len(), 2);
    c.check();
}

#[test]
fn a_failure_at_any_step_leaves_the_old_table() {
    for method in ["create_region_files", "meta_put_together"] {
        let (sim, c) = with_snapshot();
        let before = state_of(&c);
        c.server.set_fault(method, Some(ServerFault::Refuses));
        let error = c.run("RestoreSnapshot", &restore("s", "t")).unwrap_err();
        assert!(error.message.contains("refuses"), "{error}");
        c.server.set_fault(method, None);
        assert_eq!(before, state_of(&c), "{method}");
        c.check();
        drop(c);
        let c = Cluster::start(with_real_clock(sim.env()), Path::new(ROOT), 2).unwrap();
        assert_eq!(before, state_of(&c), "{method}: what is on disk is what was in memory");
        c.run("RestoreSnapshot", &restore("s", "t")).unwrap();
        c.check();
        assert_eq!((c.regions("t").len(), c.state("t")), (2, Some(State::Disabled)));
    }
}

#[test]
fn a_file_that_vanishes_on_the_way_leaves_the_old_table() {
    let (_sim, c) = with_snapshot();
    let before = state_of(&c);
    c.server.set_fault("create_region_files", Some(ServerFault::Hangs));
    let id = c.submit("RestoreSnapshot", &restore("s", "t")).unwrap();
    c.env.fs.remove_file(&archived_file(&c)).unwrap();
    c.server.set_fault("create_region_files", None);
    assert!(c.wait(id).unwrap_err().message.contains("neither there nor archived"));
    assert_eq!(before, state_of(&c));
    c.check();
}

#[test]
fn a_restore_that_repeats_can_be_aborted() {
    let (_sim, c) = with_snapshot();
    let before = state_of(&c);
    // A step before the one that changes hbase:meta: behind that one a restore is repeated, and not undone.
    c.server.set_fault("create_region_files", Some(ServerFault::Fails));
    let proc_id = c.submit("RestoreSnapshot", &restore("s", "t")).unwrap();
    while !c.server.has_failed("create_region_files") {
        std::thread::sleep(Duration::from_millis(1));
    }
    let request = pb::AbortProcedureRequest { proc_id, may_interrupt_if_running: Some(true) };
    let abort =
        || c.call::<pb::AbortProcedureResponse>("AbortProcedure", &request).unwrap().is_procedure_aborted;
    while !abort() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(class(c.wait(proc_id)).ends_with("ProcedureAbortedException"));
    assert_eq!(before, state_of(&c));
    c.server.set_fault("create_region_files", None);
    c.check();
}

#[test]
fn a_snapshot_is_not_deleted_while_it_is_read() {
    let (_sim, c) = with_snapshot();
    c.server.set_fault("create_region_files", Some(ServerFault::Hangs));
    let id = c.submit("RestoreSnapshot", &restore("s", "new")).unwrap();
    let request = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "t").snapshot };
    c.call_and_leave("DeleteSnapshot", &request);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(snapshot_names(&c), ["s"]);
    c.server.set_fault("create_region_files", None);
    c.wait(id).unwrap();
    c.quiet();
    assert_eq!((snapshot_names(&c).len(), c.state("new")), (0, Some(State::Enabled)));
    c.check();
}

#[test]
fn time_to_live() {
    let sim = halcyon_env::sim::SimFileSystem::new();
    let mut settings = settings();
    settings.cleaner_period = Duration::from_millis(5);
    let c = Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), 1, settings).unwrap();
    let switch = |enabled| {
        let request = pb::SetSnapshotCleanupRequest { enabled, synchronous: None };
        c.call::<pb::SetSnapshotCleanupResponse>("SwitchSnapshotCleanup", &request).unwrap();
    };
    switch(false);
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    for (name, ttl) in [("short", 1), ("long", 1000), ("unlimited", 0)] {
        let mut request = snapshot(name, "t");
        request.snapshot.ttl = Some(ttl);
        c.run("Snapshot", &request).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(class(c.run("RestoreSnapshot", &restore("short", "u"))), "SnapshotTTLExpiredException");
    c.run("RestoreSnapshot", &restore("long", "u")).unwrap();
    assert_eq!(snapshot_names(&c).len(), 3, "the chore is off");
    switch(true);
    let begin = std::time::Instant::now();
    while snapshot_names(&c).contains(&"short".to_string()) {
        assert!(begin.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(snapshot_names(&c), ["long", "unlimited"]);
    c.quiet();
    c.check();
}

#[test]
fn a_snapshot_keeps_what_it_was_given() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    let mut request = snapshot("s", "t");
    request.snapshot.max_file_size = Some(1 << 30);
    c.run("Snapshot", &request).unwrap();
    c.run("RestoreSnapshot", &restore("s", "u")).unwrap();
    assert_eq!(c.descriptor("u").unwrap().max_file_size(), Some(1 << 30));
    let mut sized = restore("s", "v");
    sized.custom_sft = Some("a.b.FILE".into());
    let error = c.run("RestoreSnapshot", &sized).unwrap_err();
    assert!(error.do_not_retry && error.message.contains("FILE"), "{error}");
    sized.custom_sft = Some("FILE".into());
    sized.restore_acl = Some(true);
    c.run("RestoreSnapshot", &sized).unwrap();
    assert_eq!(c.descriptor("v").unwrap().attribute(b"hbase.store.file-tracker.impl").unwrap(), "FILE");
    let new: Vec<_> = c.regions("v").iter().map(|region| region.encoded_name().to_string()).collect();
    assert!(new.iter().all(|region| c.server.listed.lock().contains(region)), "the lists of its stores");
    c.check();
}

#[test]
fn permissions_of_a_snapshot_are_not_lost_silently() {
    let (_sim, c) = with_snapshot();
    let path = Path::new("/hbase/.hbase-snapshot/s/.snapshotinfo");
    let mut info = pb::SnapshotDescription::decode(&*c.env.fs.read(path).unwrap()).unwrap();
    let user = pb::users_and_permissions::UserPermissions { user: "u".into(), permissions: Vec::new() };
    info.users_and_permissions = Some(pb::UsersAndPermissions { user_permissions: vec![user] });
    c.env.fs.replace(path, &info.encode_to_vec()).unwrap();
    let mut request = restore("s", "new");
    request.restore_acl = Some(true);
    let error = c.run("RestoreSnapshot", &request).unwrap_err();
    assert!(error.do_not_retry && error.message.contains("RESTORE_ACL"), "{error}");
    request.restore_acl = None;
    c.run("RestoreSnapshot", &request).unwrap();
}

/// Older clients ask by the snapshot's name while another one is being taken.
#[test]
fn a_name_that_nobody_takes_is_unknown() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.server.set_fault("flush_region", Some(ServerFault::Hangs));
    let id = c.submit("Snapshot", &snapshot("s", "t")).unwrap();
    let is_done = |name| {
        let request = pb::IsSnapshotDoneRequest { snapshot: Some(snapshot(name, "t").snapshot) };
        c.call::<pb::IsSnapshotDoneResponse>("IsSnapshotDone", &request)
    };
    assert!(!is_done("s").unwrap().done());
    assert_eq!(class(is_done("other")), "UnknownSnapshotException");
    c.server.set_fault("flush_region", None);
    c.wait(id).unwrap();
    assert!(is_done("s").unwrap().done());
}

/// On a local disk the regions of a clone and of a restored table have the snapshot's files themselves, and those outlive the table
/// that they are of.
#[test]
fn on_a_local_disk_nothing_is_copied() {
    use std::os::unix::fs::MetadataExt;
    let root = std::env::temp_dir().join(format!("halcyon-restore-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    let c = Cluster::start(halcyon_env::Env::real(), &root, 2).unwrap();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    let inodes = |c: &Cluster, table_name: &str| -> Vec<u64> {
        let dirs = c.regions(table_name).into_iter().map(|region| region.dir(&c.root).join("f"));
        let files = dirs.flat_map(|dir| std::fs::read_dir(dir).unwrap());
        let mut inodes: Vec<u64> = files.map(|file| file.unwrap().metadata().unwrap().ino()).collect();
        inodes.sort_unstable();
        inodes
    };
    let before = inodes(&c, "t");
    assert_eq!(before.len(), 2);
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    c.run("RestoreSnapshot", &restore("s", "clone")).unwrap();
    assert_eq!(inodes(&c, "clone"), before);
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("RestoreSnapshot", &restore("s", "t")).unwrap();
    assert_eq!(inodes(&c, "t"), before);
    c.run("DeleteTable", &delete("t")).unwrap();
    let gone = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "t").snapshot };
    c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone).unwrap();
    std::fs::remove_dir_all(root.join("archive")).unwrap();
    assert_eq!(inodes(&c, "clone"), before, "the files stay as long as a table has them");
    c.check();
    c.master.stop();
    drop(c);
    std::fs::remove_dir_all(&root).unwrap();
}

/// Names of links have the names of tables in them. On a file system without second names a clone of a table with a long name failed in
/// the middle, and so did a restore.
#[test]
fn files_that_no_link_can_name_are_copied() {
    let (_sim, c) = Cluster::simulated();
    let (long, longer) = ("l".repeat(200), "m".repeat(230));
    c.run("CreateTable", &create(&table(&long, &["f"]), &["m"])).unwrap();
    c.run("FlushTable", &flush(&long)).unwrap();
    c.run("Snapshot", &snapshot("s", &long)).unwrap();
    let files = |name: &str| -> Vec<String> {
        c.regions(name).iter().flat_map(|region| c.server.files(region)).collect()
    };
    let before = files(&long);
    for target in ["short", longer.as_str()] {
        c.run("RestoreSnapshot", &restore("s", target)).unwrap();
        assert_eq!(files(target), before, "they are files, and no links");
    }
    c.run("DisableTable", &disable(&long)).unwrap();
    c.run("RestoreSnapshot", &restore("s", &long)).unwrap();
    assert_eq!(files(&long), before);
    // Names that are not too long are those of links.
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    c.run("Snapshot", &snapshot("s2", "t")).unwrap();
    c.run("RestoreSnapshot", &restore("s2", "linked")).unwrap();
    assert!(files("linked").iter().all(|file| file.contains("t=")), "{:?}", files("linked"));
    c.check();
}
