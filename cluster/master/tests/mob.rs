//! Mob files that nobody needs, and those that a snapshot or a clone still needs.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_env::sim::SimFileSystem;
use halcyon_master::{MasterAdminService, MobChoreSettings};
use halcyon_proto::pb;
use halcyon_schema::{MobFileName, MobFileRefs, RegionInfo, layout};

const PERIOD: Duration = Duration::from_millis(5);

fn start(sim: &SimFileSystem, start_code: i64) -> Cluster {
    let mut settings = settings();
    (settings.archive_keep, settings.cleaner_period) = (Duration::ZERO, Duration::from_secs(3600));
    settings.mob =
        MobChoreSettings { cleaner_period: PERIOD, age_min: PERIOD, ..MobChoreSettings::default() };
    Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), start_code, settings).unwrap()
}

fn mob_dir(c: &Cluster, table: &str) -> PathBuf {
    layout::mob_family_dir(&c.root, &name(table), "f")
}

fn make(c: &Cluster, table: &str, day: u32, number: u32, region: &str) -> String {
    let file = MobFileName::make(b"", day, &format!("{number:032x}"), region);
    c.env.fs.create_dir_all(&mob_dir(c, table)).unwrap();
    c.env.fs.put_new(&mob_dir(c, table).join(&file), b"values").unwrap();
    file
}

fn there(c: &Cluster, table: &str) -> Vec<String> {
    c.env.fs.list(&mob_dir(c, table)).unwrap_or_default().into_iter().map(|entry| entry.name).collect()
}

fn archived(c: &Cluster, table: &str) -> Vec<String> {
    let dir = layout::mob_archive_dir(&c.root, &name(table), "f");
    let files = c.env.fs.list(&dir).unwrap_or_default().into_iter().filter(|entry| !entry.is_dir);
    files.map(|entry| entry.name).collect()
}

/// Waits for the chore.
fn until(c: &Cluster, table: &str, expected: &[&String]) {
    let begin = Instant::now();
    let mut expected: Vec<String> = expected.iter().map(|name| (*name).clone()).collect();
    expected.sort();
    while there(c, table) != expected {
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?} are left", there(c, table));
        std::thread::sleep(PERIOD);
    }
    std::thread::sleep(4 * PERIOD);
    assert_eq!(there(c, table), expected, "and no others");
}

fn clean_archive(c: &Cluster) {
    c.call::<pb::RunCleanerChoreResponse>("RunCleanerChore", &pb::RunCleanerChoreRequest {}).unwrap();
}

#[test]
fn files_of_regions_that_are_gone_are_compared_with_references() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    let descriptor = table("t", &["f"]).with_family(family("f").with("IS_MOB", "true"));
    c.run("CreateTable", &create(&descriptor, &[])).unwrap();
    let gone = "0123456789abcdef0123456789abcdef";
    let own = make(&c, "t", 20_260_101, 1, c.regions("t")[0].encoded_name());
    let referred = make(&c, "t", 20_260_101, 2, gone);
    let orphan = make(&c, "t", 20_260_101, 3, gone);
    until(&c, "t", &[&own, &referred, &orphan]); // a store file does not say what it refers to
    let mut refs = MobFileRefs::default();
    refs.add(&name("t"), &referred);
    *c.server.mob_refs.lock() = Some(refs);
    until(&c, "t", &[&own, &referred]);
    assert_eq!(archived(&c, "t"), [orphan.as_str()]);
    // A store that cannot be read may refer to it, and stops no other cleaning.
    c.server.set_fault("mob_references", Some(ServerFault::Fails));
    let old_wal = layout::old_wals_dir(&c.root).join("h%2C1%2C1.1");
    c.env.fs.create_dir_all(old_wal.parent().unwrap()).unwrap();
    c.env.fs.replace(&old_wal, b"edits").unwrap();
    clean_archive(&c);
    assert_eq!(archived(&c, "t"), [orphan]);
    c.server.set_fault("mob_references", None);
    clean_archive(&c);
    assert!(archived(&c, "t").is_empty());
    c.check();
}

#[test]
fn files_whose_values_have_expired_go() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    let mob = || family("f").with("IS_MOB", "true").with("TTL", "86400").with("VERSIONS", "3");
    for (table_name, versions) in [("t", "0"), ("kept", "1")] {
        let descriptor = table(table_name, &["f"]).with_family(mob().with("MIN_VERSIONS", versions));
        c.run("CreateTable", &create(&descriptor, &[])).unwrap();
    }
    let region = |table_name: &str| c.regions(table_name)[0].encoded_name().to_string();
    let old = make(&c, "t", 20_200_101, 1, &region("t"));
    let young = make(&c, "t", 99_991_231, 2, &region("t"));
    let kept = make(&c, "kept", 20_200_101, 3, &region("kept"));
    until(&c, "t", &[&young]);
    assert_eq!(archived(&c, "t"), [old]);
    assert_eq!(there(&c, "kept"), [kept], "MIN_VERSIONS outlive the time");
}

/// The source of a clone is deleted: its mob files stay in the archive as long as the clone refers to them.
#[test]
fn a_link_keeps_a_file_in_the_archive() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    let descriptor = table("t", &["f"]).with_family(family("f").with("IS_MOB", "true"));
    c.run("CreateTable", &create(&descriptor, &[])).unwrap();
    let file = make(&c, "t", 20_260_101, 1, c.regions("t")[0].encoded_name());
    let mut refs = MobFileRefs::default();
    refs.add(&name("t"), &file);
    *c.server.mob_refs.lock() = Some(refs);
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    c.run("RestoreSnapshot", &restore("s", "u")).unwrap();
    let link = layout::link_name(&name("t"), RegionInfo::of_mob_files(&name("t")).encoded_name(), &file);
    until(&c, "u", &[&link]);
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("DeleteTable", &delete("t")).unwrap();
    let gone = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "t").snapshot };
    c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone).unwrap();
    clean_archive(&c);
    assert_eq!(archived(&c, "t"), [file]);
    // Nothing refers to it any more: first the link goes, then the file.
    *c.server.mob_refs.lock() = Some(MobFileRefs::default());
    until(&c, "u", &[]);
    clean_archive(&c);
    assert!(archived(&c, "t").is_empty());
    c.check();
}

#[test]
fn a_snapshot_that_lacks_a_mob_file_is_refused() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    let descriptor = table("t", &["f"]).with_family(family("f").with("IS_MOB", "true"));
    c.run("CreateTable", &create(&descriptor, &[])).unwrap();
    let file = make(&c, "t", 20_260_101, 1, c.regions("t")[0].encoded_name());
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    let path = mob_dir(&c, "t").join(&file);
    c.env.fs.replace(&path, b"val").unwrap();
    let error = c.run("RestoreSnapshot", &restore("s", "u")).unwrap_err();
    assert!(
        error.class.ends_with("CorruptedSnapshotException") && error.message.contains("3 bytes"),
        "{error:?}"
    );
    c.env.fs.remove_file(&path).unwrap();
    let error = c.run("RestoreSnapshot", &restore("s", "u")).unwrap_err();
    assert!(
        error.class.ends_with("CorruptedSnapshotException") && error.message.contains(&file),
        "{error:?}"
    );
    c.check();
}

/// `update_all_config` of the shell asks masters, too; an error there would hide that region servers have done it. HBase's masters also
/// say which regions they have.
#[test]
fn a_master_answers_what_clients_ask_of_every_server() {
    let c = start(&SimFileSystem::new(), 1);
    let admin = MasterAdminService::new(c.master.clone()).unwrap();
    answer::<pb::UpdateConfigurationResponse>(
        &admin,
        "UpdateConfiguration",
        &pb::UpdateConfigurationRequest {},
    )
    .unwrap();
    let none =
        answer::<pb::GetOnlineRegionResponse>(&admin, "GetOnlineRegion", &pb::GetOnlineRegionRequest {});
    assert!(none.unwrap().region_info.is_empty(), "a master has no regions");
    let info =
        answer::<pb::GetServerInfoResponse>(&admin, "GetServerInfo", &pb::GetServerInfoRequest {}).unwrap();
    assert_eq!(info.server_info.server_name, settings().server_name.to_pb());
    let other = answer::<pb::StopServerResponse>(
        &admin,
        "StopServer",
        &pb::StopServerRequest { reason: String::new() },
    );
    assert!(other.is_err());
}

/// A restore brings the mob files back first and the store files that refer to them last. The chore came in between, found that nothing
/// referred to them and that their regions were gone, and archived them; once the snapshot was deleted the archive's cleaner took
/// them.
#[test]
fn mob_files_that_a_restore_brought_back_stay() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    let descriptor = table("t", &["f"]).with_family(family("f").with("IS_MOB", "true"));
    c.run("CreateTable", &create(&descriptor, &[])).unwrap();
    let file = make(&c, "t", 20_260_101, 1, c.regions("t")[0].encoded_name());
    let refers = |to: &[&String]| {
        let mut refs = MobFileRefs::default();
        to.iter().for_each(|file| refs.add(&name("t"), file));
        *c.server.mob_refs.lock() = Some(refs);
    };
    refers(&[&file]);
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("truncateTable", &truncate("t", false)).unwrap();
    c.run("DisableTable", &disable("t")).unwrap();
    refers(&[]);
    until(&c, "t", &[]);
    assert_eq!(archived(&c, "t"), std::slice::from_ref(&file));

    c.server.set_fault("list_store_files", Some(ServerFault::Fails));
    let id = c.submit("RestoreSnapshot", &restore("s", "t")).unwrap();
    let begin = Instant::now();
    while there(&c, "t") != [file.clone()] {
        assert!(begin.elapsed() < Duration::from_secs(10), "the restore brings the file back");
        std::thread::sleep(Duration::from_micros(100));
    }
    std::thread::sleep(20 * PERIOD); // many runs of the chore
    assert_eq!(there(&c, "t"), std::slice::from_ref(&file), "the chore leaves it");
    refers(&[&file]);
    c.server.set_fault("list_store_files", None);
    c.wait(id).unwrap();
    let gone = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "t").snapshot };
    c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone).unwrap();
    c.quiet();
    clean_archive(&c);
    assert_eq!(there(&c, "t"), [file]);
    c.check();
}

/// Whoever archived it: a mob file is also read from the archive.
#[test]
fn an_archived_mob_file_stays_while_a_store_file_refers_to_it() {
    let sim = SimFileSystem::new();
    let c = start(&sim, 1);
    let descriptor = table("t", &["f"]).with_family(family("f").with("IS_MOB", "true"));
    c.run("CreateTable", &create(&descriptor, &[])).unwrap();
    let archive = layout::mob_archive_dir(&c.root, &name("t"), "f");
    c.env.fs.create_dir_all(&archive).unwrap();
    let file = MobFileName::make(b"", 20_260_101, &format!("{:032x}", 1), "0123456789abcdef0123456789abcdef");
    c.env.fs.put_new(&archive.join(&file), b"values").unwrap();
    let mut refs = MobFileRefs::default();
    refs.add(&name("t"), &file);
    *c.server.mob_refs.lock() = Some(refs);
    clean_archive(&c);
    assert_eq!(archived(&c, "t"), [file]);
    *c.server.mob_refs.lock() = Some(MobFileRefs::default());
    clean_archive(&c);
    assert!(archived(&c, "t").is_empty());
}
