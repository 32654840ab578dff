//! Snapshots: taken, listed, cloned, restored, deleted.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::*;
use halcyon_contract::WalFiles;
use halcyon_env::FileSystem;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, TableName, layout};

fn class<T: std::fmt::Debug>(result: Result<T, RpcError>) -> String {
    result.unwrap_err().class.rsplit('.').next().unwrap().to_string()
}

fn list(c: &Cluster) -> Vec<pb::SnapshotDescription> {
    let response: pb::GetCompletedSnapshotsResponse =
        c.call("GetCompletedSnapshots", &pb::GetCompletedSnapshotsRequest {}).unwrap();
    response.snapshots
}

/// The store files of a table by start key and family: its own and those that it has links to, which are there.
pub(crate) fn files(c: &Cluster, table: &str) -> Vec<(String, String, String)> {
    let mut out = Vec::new();
    for region in c.regions(table) {
        for family in ["f", "g"] {
            let dir = region.dir(&c.root).join(family);
            for file in c.env.fs.list(&dir).unwrap_or_default() {
                let start = String::from_utf8_lossy(region.start_key()).into_owned();
                let mut name = file.name.as_str();
                if let Some((table, owner, hfile)) = layout::parse_link_name(name) {
                    let places = [layout::region_dir, layout::archive_region_dir];
                    let place = |of: fn(&Path, &TableName, &str) -> PathBuf| of(&c.root, &table, owner);
                    let is_in = |dir: PathBuf| c.env.fs.exists(&dir.join(family).join(hfile)).unwrap();
                    assert!(places.into_iter().any(|of| is_in(place(of))), "{name} leads nowhere");
                    name = hfile;
                }
                out.push((start, family.to_string(), name.to_string()));
            }
        }
    }
    out
}

#[test]
fn a_snapshot_outlives_its_table() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f", "g"]), &["m"])).unwrap();
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
    let taken = list(&c);
    assert_eq!((taken.len(), taken[0].name.as_str(), taken[0].table()), (1, "s", "t"));
    assert_eq!((taken[0].owner(), taken[0].version()), ("tester", 2));
    assert!(taken[0].creation_time() > 0);
    let held = files(&c, "t");
    assert_eq!(held.len(), 4, "taking it flushed the table");
    assert_eq!(class(c.submit("Snapshot", &snapshot("s", "t"))), "SnapshotExistsException");
    assert_eq!(class(c.submit("Snapshot", &snapshot("u", "no"))), "SnapshotCreationException");
    assert_eq!(class(c.submit("Snapshot", &snapshot(".u", "t"))), "DoNotRetryIOException");
    assert_eq!(class(c.submit("RestoreSnapshot", &restore("no", "u"))), "SnapshotDoesNotExistException");
    assert_eq!(class(c.submit("RestoreSnapshot", &restore("s", "t"))), "TableNotDisabledException");

    c.run("RestoreSnapshot", &restore("s", "copy")).unwrap();
    c.check();
    assert_eq!((c.state("copy"), files(&c, "copy")), (Some(State::Enabled), held.clone()));
    assert_eq!(c.descriptor("copy").unwrap().families(), c.descriptor("t").unwrap().families());

    c.run("DisableTable", &disable("t")).unwrap();
    let changed = c.descriptor("t").unwrap().with("PRIORITY", "3").without_family(b"g");
    c.run("ModifyTable", &modify(&changed)).unwrap();
    c.run("RestoreSnapshot", &restore("s", "t")).unwrap();
    c.check();
    assert_eq!((c.state("t"), files(&c, "t")), (Some(State::Disabled), held.clone()));
    assert_eq!((c.descriptor("t").unwrap().priority(), c.descriptor("t").unwrap().families().len()), (0, 2));

    c.run("DeleteTable", &delete("t")).unwrap();
    c.run("RestoreSnapshot", &restore("s", "t")).unwrap();
    c.check();
    assert_eq!((c.state("t"), files(&c, "t")), (Some(State::Enabled), held));

    let done = pb::IsSnapshotDoneRequest { snapshot: Some(snapshot("s", "t").snapshot) };
    assert!(c.call::<pb::IsSnapshotDoneResponse>("IsSnapshotDone", &done).unwrap().done());
    let gone = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "t").snapshot };
    c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone).unwrap();
    let again = c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone);
    assert_eq!(class(again), "SnapshotDoesNotExistException");
    assert_eq!(
        class(c.call::<pb::IsSnapshotDoneResponse>("IsSnapshotDone", &done)),
        "UnknownSnapshotException"
    );
    assert!(list(&c).is_empty());
}

/// People empty the directory of snapshots that are being made, and HBase's masters do. A deletion was then repeated for ever, and nobody
/// could take, clone or restore a snapshot of that name.
#[test]
fn snapshots_are_taken_and_deleted_where_the_directory_of_masters_was_emptied() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    let (tmp, fs) = (c.root.join(".hbase-snapshot/.tmp"), c.env.fs.clone());
    let first = fs.list(&tmp).unwrap()[0].name.clone();
    for round in 0..3 {
        fs.remove_dir_all(&tmp).unwrap();
        if round == 1 {
            fs.create_dir(&tmp).unwrap();
        }
        c.run("Snapshot", &snapshot("s", "t")).unwrap();
        assert_eq!(list(&c).len(), 1);
        fs.remove_dir_all(&tmp).unwrap();
        let gone = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "t").snapshot };
        c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone).unwrap();
        assert!(list(&c).is_empty() && !fs.exists(&c.root.join(".hbase-snapshot/s")).unwrap());
        // A late request may make that one.
        assert!(!fs.exists(&tmp.join(&first)).unwrap(), "round {round}");
    }
    let left = fs.list(&tmp).unwrap();
    assert!(left.len() == 1 && left[0].name.starts_with(&first), "the next master takes it away: {left:?}");
    c.check();
}

/// Names that would lead out of the directory of snapshots name none.
#[test]
fn a_name_is_not_a_path() {
    let (_sim, c) = Cluster::simulated();
    for name in ["../data", "..", ".", "", "a/b", ".tmp"] {
        let request = pb::DeleteSnapshotRequest { snapshot: snapshot(name, "t").snapshot };
        let deleted = c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &request);
        assert_eq!(class(deleted), "SnapshotDoesNotExistException");
        assert_eq!(class(c.submit("RestoreSnapshot", &restore(name, "u"))), "SnapshotDoesNotExistException");
    }
    c.check();
}

#[test]
fn a_snapshot_by_exec_procedure() {
    let (_sim, c) = Cluster::simulated();
    c.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
    let procedure = pb::ProcedureDescription {
        signature: "online-snapshot".into(),
        instance: Some("s".into()),
        creation_time: None,
        configuration: vec![pb::NameStringPair { name: "table".into(), value: "t".into() }],
    };
    let request = pb::ExecProcedureRequest { procedure: procedure.clone() };
    c.call::<pb::ExecProcedureResponse>("ExecProcedure", &request).unwrap();
    c.quiet();
    let request = pb::IsProcedureDoneRequest { procedure: Some(procedure) };
    assert!(c.call::<pb::IsProcedureDoneResponse>("IsProcedureDone", &request).unwrap().done());
    assert_eq!(list(&c).len(), 1);
}

/// What the cleaner may delete: old logs, and archived files that no snapshot names; each when its time has come.
#[test]
fn the_archive_is_cleaned_but_for_snapshots() {
    let sim = SimFileSystem::new();
    let keep_nothing = || {
        let mut settings = settings();
        (settings.archive_keep, settings.old_wals_keep) = (Duration::ZERO, Duration::ZERO);
        settings
    };
    let start =
        |settings| Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), 1, settings).unwrap();
    let clean = |c: &Cluster| {
        let ran: pb::RunCleanerChoreResponse =
            c.call("RunCleanerChore", &pb::RunCleanerChoreRequest {}).unwrap();
        ran.cleaner_chore_ran
    };
    let left = || sim.dump().into_iter().filter(|(path, _)| path.starts_with("/hbase/archive")).count();

    let c = start(settings());
    for table_name in ["kept", "gone"] {
        c.run("CreateTable", &create(&table(table_name, &["f", "g"]), &["m"])).unwrap();
        c.run("FlushTable", &flush(table_name)).unwrap();
    }
    c.run("Snapshot", &snapshot("s", "kept")).unwrap();
    for table_name in ["kept", "gone"] {
        c.run("DisableTable", &disable(table_name)).unwrap();
        c.run("DeleteTable", &delete(table_name)).unwrap();
    }
    c.env.fs.create_dir_all(Path::new("/hbase/oldWALs")).unwrap();
    c.env.fs.replace(Path::new("/hbase/oldWALs/log.1"), b"edits").unwrap();
    assert_eq!(left(), 8);
    assert!(clean(&c) && clean(&c));
    assert_eq!(left(), 8, "nothing is old enough");
    drop(c);

    let c = start(keep_nothing());
    let off = pb::SetCleanerChoreRunningRequest { on: false };
    c.call::<pb::SetCleanerChoreRunningResponse>("SetCleanerChoreRunning", &off).unwrap();
    assert!(!clean(&c));
    assert_eq!(left(), 8);
    let on = pb::SetCleanerChoreRunningRequest { on: true };
    c.call::<pb::SetCleanerChoreRunningResponse>("SetCleanerChoreRunning", &on).unwrap();
    assert!(clean(&c));
    assert_eq!(left(), 4, "the snapshot keeps its files");
    assert!(!c.env.fs.exists(Path::new("/hbase/oldWALs/log.1")).unwrap());
    assert!(c.env.fs.list(Path::new("/hbase/archive/data/default/gone")).unwrap().is_empty());
    c.run("RestoreSnapshot", &restore("s", "kept")).unwrap();
    assert_eq!(files(&c, "kept").len(), 4);
    let gone = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "kept").snapshot };
    c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone).unwrap();
    assert!(clean(&c));
    assert_eq!(
        (left(), files(&c, "kept").len()),
        (8, 4),
        "each of the four files is kept by a link's back reference"
    );
    c.check();
    c.run("DisableTable", &disable("kept")).unwrap();
    c.run("Snapshot", &snapshot("of_links", "kept")).unwrap();
    c.run("DeleteTable", &delete("kept")).unwrap();
    for _ in 0..3 {
        assert!(clean(&c));
    }
    assert_eq!(left(), 8, "links go to the archive, and the snapshot keeps them and their files");
    let gone = pb::DeleteSnapshotRequest { snapshot: snapshot("of_links", "kept").snapshot };
    c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone).unwrap();
    for _ in 0..3 {
        assert!(clean(&c));
    }
    assert_eq!(left(), 0);
    c.check();
}

/// A replication peer copies the files of bulk loads by itself, perhaps long after a compaction has archived them.
#[test]
fn archived_files_of_bulk_loads_stay_until_peers_have_them() {
    let sim = SimFileSystem::new();
    let mut settings = settings();
    settings.archive_keep = Duration::ZERO;
    settings.peer_wal_bytes_max = Some(2);
    let c = Cluster::start_with(with_real_clock(sim.env()), Path::new(ROOT), 1, settings).unwrap();
    let dir = Path::new("/hbase/archive/data/default/t/0123/f");
    c.env.fs.create_dir_all(dir).unwrap();
    let names = ["old_SeqId_1_", "new_SeqId_2_", "other_SeqId_3_"];
    names.iter().for_each(|name| c.env.fs.replace(&dir.join(name), b"xx").unwrap());
    let config = pb::ReplicationPeer { clusterkey: Some("h:2181:/hbase".into()), ..Default::default() };
    let peer_state = pb::ReplicationState { state: pb::replication_state::State::Enabled as i32 };
    let request = pb::AddReplicationPeerRequest { peer_id: "p".into(), peer_config: config, peer_state };
    c.run("AddReplicationPeer", &request).unwrap();
    let left = || {
        let ran = c.call::<pb::RunCleanerChoreResponse>("RunCleanerChore", &pb::RunCleanerChoreRequest {});
        assert!(ran.unwrap().cleaner_chore_ran);
        let left = c.env.fs.list(dir).unwrap_or_default();
        left.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    *c.server.needed_hfiles.lock() = names[..2].iter().map(ToString::to_string).collect();
    assert_eq!(left(), ["new_SeqId_2_"], "there is room for the newer of two");
    c.server.needed_hfiles.lock().clear();
    assert!(left().is_empty());
}

/// With `hbase.wal.dir`, the master did not look where the WALs are: old ones stayed for ever, snapshots lacked edits that were
/// not replayed, and what a region had there outlived it.
#[test]
fn wals_have_a_root_directory_of_their_own() {
    let (sim, wals) = (SimFileSystem::new(), SimFileSystem::new());
    let mut settings = settings();
    settings.old_wals_keep = Duration::ZERO;
    let files = WalFiles { env: wals.env(), root: "/wals".into(), is_root: false };
    let env = with_real_clock(sim.env());
    let c = Cluster::start_over(env, Path::new(ROOT), 1, settings, Some(files)).unwrap();
    c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    let regions = c.regions("t");
    let edits = |region: &RegionInfo| region.dir(Path::new("/wals")).join("recovered.edits");
    for region in &regions {
        wals.create_dir_all(&edits(region)).unwrap();
        wals.put_new(&edits(region).join("7.seqid"), b"").unwrap();
        let of_root = region.dir(Path::new(ROOT)).join("recovered.edits");
        sim.create_dir_all(&of_root).unwrap();
        sim.put_new(&of_root.join("halcyon.nonces"), b"of a flush").unwrap();
    }

    for (fs, root) in [(&sim, ROOT), (&wals, "/wals")] {
        fs.create_dir_all(&Path::new(root).join("oldWALs")).unwrap();
        fs.replace(&Path::new(root).join("oldWALs/log.1"), b"edits").unwrap();
    }
    let clean = || c.call::<pb::RunCleanerChoreResponse>("RunCleanerChore", &pb::RunCleanerChoreRequest {});
    assert!(clean().unwrap().cleaner_chore_ran);
    for (fs, root) in [(&sim, ROOT), (&wals, "/wals")] {
        assert!(fs.list(&Path::new(root).join("oldWALs")).unwrap().is_empty(), "{root}");
    }

    c.run("DisableTable", &disable("t")).unwrap();
    c.run("Snapshot", &snapshot("markers", "t")).unwrap();
    for region in &regions {
        sim.remove_dir_all(&region.dir(Path::new(ROOT)).join("recovered.edits")).unwrap();
    }
    wals.put_new(&edits(&regions[0]).join("0000000000000000008"), b"edits").unwrap();
    let refused = c.run("Snapshot", &snapshot("lacking", "t")).unwrap_err();
    assert!(refused.message.contains("recovered edits that were not replayed"), "{}", refused.message);
    wals.remove_file(&edits(&regions[0]).join("0000000000000000008")).unwrap();
    c.run("EnableTable", &enable("t")).unwrap();

    c.run("MergeTableRegions", &merge(&regions)).unwrap();
    c.server.compact(&c.regions("t")[0]);
    c.call::<pb::RunCatalogScanResponse>("RunCatalogScan", &pb::RunCatalogScanRequest {}).unwrap();
    c.quiet();
    assert!(c.parents("t").is_empty());
    for region in &regions {
        assert!(!wals.exists(&region.dir(Path::new("/wals"))).unwrap(), "{region}");
    }
    wals.create_dir_all(&edits(&c.regions("t")[0])).unwrap();
    c.run("DisableTable", &disable("t")).unwrap();
    c.run("DeleteTable", &delete("t")).unwrap();
    assert!(!wals.exists(Path::new("/wals/data/default/t")).unwrap());
    c.check();
}

/// A cluster whose archive keeps nothing, so that its cleaner deletes what it may at once.
fn with_eager_cleaner(sim: &SimFileSystem) -> Arc<Cluster> {
    let mut settings = settings();
    (settings.archive_keep, settings.old_wals_keep) = (Duration::ZERO, Duration::ZERO);
    let env = with_real_clock(sim.env());
    Arc::new(Cluster::start_with(env, Path::new(ROOT), 1, settings).unwrap())
}

/// A compaction of the first region's store `f`: its output comes, its inputs go to the archive. How many went.
pub(crate) fn compact(c: &Cluster) -> usize {
    let region = c.regions("t").remove(0);
    let dir = region.dir(&c.root).join("f");
    let archive = layout::archive_region_dir(&c.root, region.table(), region.encoded_name()).join("f");
    c.env.fs.create_dir_all(&archive).unwrap();
    let inputs = c.env.fs.list(&dir).unwrap();
    for file in &inputs {
        let bytes = c.env.fs.read(&dir.join(&file.name)).unwrap();
        c.env.fs.put_new(&dir.join("0123456789abcdef0123456789abcdef"), &bytes).unwrap();
        c.env.fs.rename(&dir.join(&file.name), &archive.join(&file.name)).unwrap();
    }
    inputs.len()
}

pub(crate) fn clean(c: &Cluster) {
    let _: pb::RunCleanerChoreResponse = c.call("RunCleanerChore", &pb::RunCleanerChoreRequest {}).unwrap();
}

/// A snapshot of many regions listed a file, a compaction sent it to the archive, and the cleaner deleted it before the manifest was
/// there: the snapshot was complete, and nothing could be made of it.
#[test]
fn the_cleaner_spares_what_a_snapshot_under_way_has_listed() {
    let (mut calls, mut archived) = (0, 0);
    for n in 0.. {
        let sim = SimFileSystem::new();
        let c = with_eager_cleaner(&sim);
        c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
        c.run("FlushTable", &flush("t")).unwrap();
        let before = sim.calls();
        let went = Arc::new(AtomicUsize::new(0));
        if n > 0 {
            let (c, went) = (c.clone(), went.clone());
            sim.pause_at(before + n, move || {
                went.store(compact(&c), Ordering::SeqCst);
                clean(&c);
                clean(&c);
            });
        }
        c.run("Snapshot", &snapshot("s", "t")).unwrap();
        if n == 0 {
            calls = sim.calls() - before;
            continue;
        }
        if n > calls {
            break;
        }
        archived += went.load(Ordering::SeqCst);
        c.run("RestoreSnapshot", &restore("s", "clone")).unwrap();
        assert_eq!(files(&c, "clone").len(), 2, "call {n} of {calls}");
        // What no snapshot names goes as before.
        let gone = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "t").snapshot };
        c.call::<pb::DeleteSnapshotResponse>("DeleteSnapshot", &gone).unwrap();
        c.quiet();
        c.check();
    }
    assert!(archived as u64 >= calls / 2, "compactions ran in {archived} of {calls} calls");
}

/// As one whose file somebody deletes by hand, or by a cleaner that knows nothing of snapshots.
#[test]
fn a_snapshot_without_one_of_its_files_gets_no_name() {
    let mut refused = 0;
    for n in 1.. {
        let sim = SimFileSystem::new();
        let c = with_eager_cleaner(&sim);
        c.run("CreateTable", &create(&table("t", &["f"]), &["m"])).unwrap();
        c.run("FlushTable", &flush("t")).unwrap();
        let before = sim.calls();
        let breaking = c.clone();
        sim.pause_at(before + n, move || {
            let dir = breaking.regions("t")[0].dir(&breaking.root).join("f");
            for file in breaking.env.fs.list(&dir).unwrap() {
                breaking.env.fs.remove_file(&dir.join(file.name)).unwrap();
            }
        });
        let taken = c.run("Snapshot", &snapshot("s", "t"));
        if sim.calls() <= before + n {
            break; // the snapshot was there before
        }
        match taken {
            Ok(_) => {
                let whole = list(&c).len() == 1;
                assert!(whole);
            }
            Err(_) => {
                assert!(list(&c).is_empty(), "call {n}");
                assert!(!has_working_snapshot(&c.env, "s"));
                refused += 1;
            }
        }
    }
    assert!(refused > 0, "no snapshot lost a file that it had listed");
}

/// The files of a load go into their stores one after the other. A snapshot between two of them had the rows of one family only.
#[test]
fn a_snapshot_has_all_of_a_bulk_load_or_nothing() {
    let (mut with, mut without) = (0, 0);
    for n in 1.. {
        let sim = SimFileSystem::new();
        let c = with_eager_cleaner(&sim);
        c.run("CreateTable", &create(&table("t", &["f", "g"]), &[])).unwrap();
        c.run("FlushTable", &flush("t")).unwrap();
        let before = sim.calls();
        let loading = c.clone();
        sim.pause_at(before + n, move || {
            let region = loading.regions("t")[0].dir(&loading.root);
            let place = {
                let (c, region) = (loading.clone(), region.clone());
                move |family: &str| c.env.fs.put_new(&region.join(family).join("10ad"), b"rows").unwrap()
            };
            loading.env.fs.create_dir(&region.join(".bulk-1")).unwrap();
            place("f");
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(5));
                place("g");
                loading.env.fs.remove_dir_all(&region.join(".bulk-1")).unwrap();
            });
        });
        c.run("Snapshot", &snapshot("s", "t")).unwrap();
        if sim.calls() <= before + n {
            break;
        }
        c.run("RestoreSnapshot", &restore("s", "clone")).unwrap();
        let loaded: Vec<_> = files(&c, "clone").into_iter().filter(|(_, _, name)| name == "10ad").collect();
        match loaded.len() {
            0 => without += 1,
            2 => with += 1,
            _ => panic!("call {n}: only {loaded:?}"),
        }
    }
    assert!(with > 0 && without > 0, "{with} snapshots have the load, {without} do not");
}
