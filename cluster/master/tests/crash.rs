//! Every procedure, killed at every point where something is made durable, and taken up by the next master.
//!
//! For each action: the cluster is set up, the disk dies at the n-th sync point of the action, and what is left
//! (unsynced bytes and names dropped, kept or torn) is given to a new master with an empty region server. When it
//! is quiet, an action that was acknowledged must be complete; any other must be complete or not begun.
//! To repeat one case: `cargo test -p halcyon-master --test all crash:: <name>`; the failure prints n and the mode.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use halcyon_env::Env;
use halcyon_env::sim::{CrashMode, SimFileSystem};
use halcyon_proto::pb;
use halcyon_proto::pb::table_state::State;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, layout};
use prost::Message;

type Acknowledged = Result<u64, RpcError>;

struct Action {
    set_up: fn(&Cluster),
    act: fn(&Cluster) -> Acknowledged,
    /// Whether the action is complete; panics if it is neither that nor not begun.
    is_done: fn(&Cluster) -> bool,
}

fn start(sim: &SimFileSystem, start_code: i64) -> halcyon_cell::Result<Cluster> {
    let env: Env = with_real_clock(sim.env());
    Cluster::start(env, Path::new(ROOT), start_code)
}

/// The number of sync points of the set-up, and of all.
fn count(action: &Action, check: fn(&Cluster)) -> (u64, u64) {
    let sim = SimFileSystem::new();
    let cluster = start(&sim, 1).unwrap();
    (action.set_up)(&cluster);
    let before = sim.sync_points();
    let id = (action.act)(&cluster).unwrap();
    end(&cluster, id);
    assert!((action.is_done)(&cluster), "without a crash the action is complete");
    check(&cluster);
    (before, sim.sync_points())
}

fn crash_everywhere(action: Action) {
    crash_everywhere_and(action, Cluster::check);
}

fn crash_everywhere_and(action: Action, check: fn(&Cluster)) {
    let (before, after) = count(&action, check);
    assert!(after > before, "the action makes something durable");
    for n in before + 1..=after + 1 {
        let sim = SimFileSystem::new();
        let cluster = start(&sim, 1).unwrap();
        (action.set_up)(&cluster);
        sim.fail_at(n);
        let acknowledged = (action.act)(&cluster);
        wait_for_end(&sim, &cluster, acknowledged.as_ref().ok());
        drop(cluster);
        for mode in CrashMode::ALL {
            let disk = sim.crash(mode, n);
            let checked =
                catch_unwind(AssertUnwindSafe(|| take_up(&action, check, &disk, acknowledged.is_ok())));
            if let Err(panic) = checked {
                eprintln!("crash at sync point {n} of {before}..{after}, {mode:?}; the disk:");
                disk.dump().iter().for_each(|(path, len)| eprintln!("  {} {len}", path.display()));
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// Waits for a procedure; 0 is one whose number is not told.
fn end(cluster: &Cluster, id: u64) {
    match id {
        0 => cluster.quiet(),
        _ => cluster.wait(id).unwrap(),
    }
}

fn wait_for_end(sim: &SimFileSystem, cluster: &Cluster, id: Option<&u64>) {
    let begin = Instant::now();
    while !sim.is_dead() && begin.elapsed() < Duration::from_secs(10) {
        if id.is_none() || !cluster.is_busy() {
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn take_up(action: &Action, check: fn(&Cluster), disk: &SimFileSystem, acknowledged: bool) {
    let cluster = start(disk, 2).unwrap();
    cluster.quiet();
    check(&cluster);
    let done = (action.is_done)(&cluster);
    assert!(done || !acknowledged, "an acknowledged action is not complete");
    if !done {
        let id = (action.act)(&cluster).unwrap();
        end(&cluster, id);
        assert!((action.is_done)(&cluster), "the action can be asked for again");
        check(&cluster);
    }
}

/// Table t with three regions, some files, two families.
fn with_table(cluster: &Cluster) {
    cluster.run("CreateTable", &create(&table("t", &["f", "g"]), &["b", "c"])).unwrap();
    cluster.run("FlushTable", &flush("t")).unwrap();
}

fn with_disabled_table(cluster: &Cluster) {
    with_table(cluster);
    cluster.run("DisableTable", &disable("t")).unwrap();
}

fn store_files(cluster: &Cluster, table: &str) -> usize {
    let fs = &cluster.env.fs;
    let dirs = cluster.regions(table).into_iter().map(|region| region.dir(&cluster.root));
    let families = dirs.flat_map(|dir| ["f", "g"].map(|family| dir.join(family)));
    families.filter_map(|dir| fs.list(&dir).ok()).map(|files| files.len()).sum()
}

#[test]
fn create_table() {
    crash_everywhere(Action {
        set_up: |_| {},
        act: |c| c.submit("CreateTable", &create(&table("t", &["f", "g"]), &["b", "c"])),
        is_done: |c| match c.state("t") {
            None => false,
            state => {
                assert_eq!(state, Some(State::Enabled));
                assert_eq!(c.regions("t").len(), 3);
                true
            }
        },
    });
}

#[test]
fn disable_table() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| c.submit("DisableTable", &disable("t")),
        is_done: |c| {
            assert_eq!(store_files(c, "t"), 6);
            c.state("t") == Some(State::Disabled)
        },
    });
}

#[test]
fn enable_table() {
    crash_everywhere(Action {
        set_up: with_disabled_table,
        act: |c| c.submit("EnableTable", &enable("t")),
        is_done: |c| c.state("t") == Some(State::Enabled),
    });
}

#[test]
fn delete_table() {
    crash_everywhere(Action {
        set_up: with_disabled_table,
        act: |c| c.submit("DeleteTable", &delete("t")),
        is_done: |c| {
            if c.state("t").is_some() {
                assert_eq!(store_files(c, "t"), 6);
                return false;
            }
            assert!(!c.env.fs.exists(&name("t").dir(&c.root)).unwrap());
            let archived = c.env.fs.list(&c.root.join("archive/data/default/t")).unwrap();
            assert_eq!(archived.len(), 3);
            for region in archived {
                let dir = c.root.join("archive/data/default/t").join(region.name);
                assert_eq!(c.env.fs.list(&dir.join("f")).unwrap().len(), 1);
                assert_eq!(c.env.fs.list(&dir.join("g")).unwrap().len(), 1);
            }
            true
        },
    });
}

fn truncated(c: &Cluster, regions: usize) -> bool {
    if c.state("t") == Some(State::Disabled) {
        assert_eq!(store_files(c, "t"), 6);
        return false;
    }
    assert_eq!(c.state("t"), Some(State::Enabled));
    assert_eq!((c.regions("t").len(), store_files(c, "t")), (regions, 0));
    true
}

#[test]
fn truncate_table() {
    crash_everywhere(Action {
        set_up: with_disabled_table,
        act: |c| c.submit("truncateTable", &truncate("t", false)),
        is_done: |c| truncated(c, 1),
    });
}

#[test]
fn truncate_table_preserving_splits() {
    crash_everywhere(Action {
        set_up: with_disabled_table,
        act: |c| c.submit("truncateTable", &truncate("t", true)),
        is_done: |c| truncated(c, 3),
    });
}

#[test]
fn modify_table() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| {
            let new =
                c.descriptor("t").unwrap().with("MAX_FILESIZE", "1073741824").with("REGION_REPLICATION", "2");
            c.submit("ModifyTable", &modify(&new))
        },
        is_done: |c| c.descriptor("t").unwrap().max_file_size() == Some(1 << 30),
    });
}

#[test]
fn modify_tracker() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| {
            let request = pb::ModifyTableStoreFileTrackerRequest {
                table_name: name("t").to_pb(),
                dst_sft: "FILE".to_string(),
                ..Default::default()
            };
            c.submit("ModifyTableStoreFileTracker", &request)
        },
        is_done: |c| {
            let table = c.descriptor("t").unwrap();
            table.attribute(b"hbase.store.file-tracker.impl").is_some_and(|tracker| tracker == "FILE")
        },
    });
}

#[test]
fn add_family() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| {
            let request = pb::AddColumnRequest {
                table_name: name("t").to_pb(),
                column_families: family("h").to_pb(),
                ..Default::default()
            };
            c.submit("AddColumn", &request)
        },
        is_done: |c| c.descriptor("t").unwrap().family(b"h").is_some(),
    });
}

#[test]
fn delete_family() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| {
            let request = pb::DeleteColumnRequest {
                table_name: name("t").to_pb(),
                column_name: "g".into(),
                ..Default::default()
            };
            c.submit("DeleteColumn", &request)
        },
        is_done: |c| {
            if c.descriptor("t").unwrap().family(b"g").is_some() {
                return false;
            }
            for region in c.regions("t") {
                assert!(!c.env.fs.exists(&region.dir(&c.root).join("g")).unwrap());
                let archived = c.root.join("archive/data/default/t").join(region.encoded_name()).join("g");
                assert_eq!(c.env.fs.list(&archived).unwrap().len(), 1);
            }
            true
        },
    });
}

#[test]
fn truncate_region() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| {
            let request =
                pb::TruncateRegionRequest { region_info: c.regions("t")[1].to_pb(), ..Default::default() };
            c.submit("TruncateRegion", &request)
        },
        is_done: |c| {
            assert_eq!(c.regions("t").len(), 3);
            match store_files(c, "t") {
                6 => false,
                files => {
                    assert_eq!(files, 4);
                    true
                }
            }
        },
    });
}

#[test]
fn unassign_and_assign() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| {
            let region = specifier(c.regions("t")[1].region_name());
            c.call_and_leave("MoveRegion", &pb::MoveRegionRequest { region, dest_server_name: None });
            Ok(0)
        },
        // A region that was moved is where it was; it must be open again, which `check` sees.
        is_done: |c| c.state("t") == Some(State::Enabled),
    });
}

#[test]
fn namespaces() {
    fn create_it(c: &Cluster) -> Acknowledged {
        let request =
            pb::CreateNamespaceRequest { namespace_descriptor: namespace("ns"), ..Default::default() };
        c.submit("CreateNamespace", &request)
    }
    fn found(c: &Cluster) -> Option<pb::NamespaceDescriptor> {
        let request = pb::GetNamespaceDescriptorRequest { namespace_name: "ns".into() };
        let response: Result<pb::GetNamespaceDescriptorResponse, _> =
            c.call("GetNamespaceDescriptor", &request);
        response.ok().map(|response| response.namespace_descriptor)
    }
    crash_everywhere(Action { set_up: |_| {}, act: create_it, is_done: |c| found(c).is_some() });
    crash_everywhere(Action {
        set_up: |c| c.wait(create_it(c).unwrap()).unwrap(),
        act: |c| {
            let mut namespace_descriptor = namespace("ns");
            namespace_descriptor
                .configuration
                .push(pb::NameStringPair { name: "k".into(), value: "v".into() });
            c.submit(
                "ModifyNamespace",
                &pb::ModifyNamespaceRequest { namespace_descriptor, ..Default::default() },
            )
        },
        is_done: |c| !found(c).unwrap().configuration.is_empty(),
    });
    crash_everywhere(Action {
        set_up: |c| c.wait(create_it(c).unwrap()).unwrap(),
        act: |c| {
            let request = pb::DeleteNamespaceRequest { namespace_name: "ns".into(), ..Default::default() };
            c.submit("DeleteNamespace", &request)
        },
        is_done: |c| {
            let gone = found(c).is_none();
            assert!(!gone || !c.env.fs.exists(&c.root.join("data/ns")).unwrap());
            gone
        },
    });
}

fn has_snapshot(c: &Cluster) -> bool {
    let all: pb::GetCompletedSnapshotsResponse =
        c.call("GetCompletedSnapshots", &pb::GetCompletedSnapshotsRequest {}).unwrap();
    !all.snapshots.is_empty()
}

fn with_snapshot(c: &Cluster) {
    with_table(c);
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
}

#[test]
fn take_snapshot() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| c.submit("Snapshot", &snapshot("s", "t")),
        is_done: has_snapshot,
    });
}

#[test]
fn clone_snapshot() {
    crash_everywhere(Action {
        set_up: with_snapshot,
        act: |c| c.submit("RestoreSnapshot", &restore("s", "u")),
        is_done: |c| match c.state("u") {
            None => false,
            state => {
                assert_eq!((state, store_files(c, "u")), (Some(State::Enabled), 6));
                true
            }
        },
    });
}

#[test]
fn restore_snapshot() {
    crash_everywhere(Action {
        set_up: |c| {
            with_snapshot(c);
            c.run("DisableTable", &disable("t")).unwrap();
            c.run("truncateTable", &truncate("t", false)).unwrap();
            c.run("DisableTable", &disable("t")).unwrap();
        },
        act: |c| c.submit("RestoreSnapshot", &restore("s", "t")),
        is_done: |c| {
            assert_eq!(c.state("t"), Some(State::Disabled));
            let files = store_files(c, "t");
            assert!(files == 0 || (files == 6 && c.regions("t").len() == 3), "{files}");
            files == 6
        },
    });
}

/// As `restore_snapshot`, of a table that has lost a family since: the descriptor changes with the regions.
#[test]
fn restore_snapshot_with_another_descriptor() {
    crash_everywhere(Action {
        set_up: |c| {
            with_snapshot(c);
            c.run("DisableTable", &disable("t")).unwrap();
            let changed = c.descriptor("t").unwrap().with("PRIORITY", "3").without_family(b"g");
            c.run("ModifyTable", &modify(&changed)).unwrap();
        },
        act: |c| c.submit("RestoreSnapshot", &restore("s", "t")),
        is_done: |c| {
            assert_eq!((c.state("t"), c.regions("t").len()), (Some(State::Disabled), 3));
            let restored = c.descriptor("t").unwrap().family(b"g").is_some();
            assert_eq!(store_files(c, "t"), if restored { 6 } else { 3 });
            restored
        },
    });
}

// ---- with mob files ----

const MOB_FILE: &str = "d41d8cd98f00b204e9800998ecf8427e19700101\
0123456789abcdef0123456789abcdef_0123456789abcdef0123456789abcdef";

fn with_mob_table(c: &Cluster) {
    let descriptor = table("t", &["f", "g"]).with_family(family("f").with("IS_MOB", "true"));
    c.run("CreateTable", &create(&descriptor, &["b", "c"])).unwrap();
    c.run("FlushTable", &flush("t")).unwrap();
    let dir = layout::mob_family_dir(&c.root, &name("t"), "f");
    c.env.fs.create_dir_all(&dir).unwrap();
    c.env.fs.put_new(&dir.join(MOB_FILE), b"values").unwrap();
}

/// Whether the mob file of table t is with the table, and in the archive.
fn mob_file_of_t(c: &Cluster) -> (bool, bool) {
    let is_in = |dir: std::path::PathBuf| c.env.fs.exists(&dir.join(MOB_FILE)).unwrap();
    let live = layout::mob_family_dir(&c.root, &name("t"), "f");
    (is_in(live), is_in(layout::mob_archive_dir(&c.root, &name("t"), "f")))
}

#[test]
fn delete_table_with_mob_files() {
    crash_everywhere(Action {
        set_up: |c| {
            with_mob_table(c);
            c.run("DisableTable", &disable("t")).unwrap();
        },
        act: |c| c.submit("DeleteTable", &delete("t")),
        is_done: |c| {
            let (live, archived) = mob_file_of_t(c);
            assert!(live || archived, "it is in one of the two places");
            if c.state("t").is_some() {
                return false;
            }
            assert!(!c.env.fs.exists(&layout::mob_table_dir(&c.root, &name("t"))).unwrap());
            archived
        },
    });
}

#[test]
fn truncate_table_with_mob_files() {
    crash_everywhere(Action {
        set_up: |c| {
            with_mob_table(c);
            c.run("DisableTable", &disable("t")).unwrap();
        },
        act: |c| c.submit("truncateTable", &truncate("t", false)),
        is_done: |c| {
            let done = truncated(c, 1);
            assert_eq!(mob_file_of_t(c), (!done, done));
            done
        },
    });
}

#[test]
fn delete_family_with_mob_files() {
    crash_everywhere(Action {
        set_up: with_mob_table,
        act: |c| {
            let (table_name, column_name) = (name("t").to_pb(), "f".into());
            let request = pb::DeleteColumnRequest { table_name, column_name, ..Default::default() };
            c.submit("DeleteColumn", &request)
        },
        is_done: |c| {
            let done = c.descriptor("t").unwrap().family(b"f").is_none();
            assert_eq!(mob_file_of_t(c), (!done, done));
            done
        },
    });
}

/// The files that the mob region of a snapshot names.
fn named_mob_files(c: &Cluster, snapshot: &str) -> Vec<String> {
    let path = layout::snapshots_dir(&c.root).join(snapshot).join("data.manifest");
    let manifest = pb::SnapshotDataManifest::decode(&c.env.fs.read(&path).unwrap()[..]).unwrap();
    let is_mob = |region: &&pb::SnapshotRegionManifest| {
        RegionInfo::from_pb(&region.region_info).unwrap().is_of_mob_files()
    };
    let families = manifest.region_manifests.iter().filter(is_mob).flat_map(|region| &region.family_files);
    families.flat_map(|family| &family.store_files).map(|file| file.name.clone()).collect()
}

#[test]
fn take_snapshot_with_mob_files() {
    crash_everywhere(Action {
        set_up: with_mob_table,
        act: |c| c.submit("Snapshot", &snapshot("s", "t")),
        is_done: |c| {
            let done = has_snapshot(c);
            assert!(!done || named_mob_files(c, "s") == [MOB_FILE]);
            done
        },
    });
}

fn with_mob_snapshot(c: &Cluster) {
    with_mob_table(c);
    c.run("Snapshot", &snapshot("s", "t")).unwrap();
}

/// The link and its back reference keep the file of the source.
#[test]
fn clone_snapshot_with_mob_files() {
    crash_everywhere(Action {
        set_up: with_mob_snapshot,
        act: |c| c.submit("RestoreSnapshot", &restore("s", "u")),
        is_done: |c| {
            if c.state("u").is_none() {
                return false;
            }
            let region = |table: &str| RegionInfo::of_mob_files(&name(table)).encoded_name().to_string();
            let link = layout::link_name(&name("t"), &region("t"), MOB_FILE);
            let back = layout::mob_archive_dir(&c.root, &name("t"), "f")
                .join(layout::back_references_name(MOB_FILE))
                .join(layout::back_reference_name(&name("u"), &region("u")));
            let link = layout::mob_family_dir(&c.root, &name("u"), "f").join(link);
            assert!(c.env.fs.exists(&link).unwrap() && c.env.fs.exists(&back).unwrap());
            assert_eq!((store_files(c, "u"), mob_file_of_t(c)), (6, (true, false)));
            true
        },
    });
}

#[test]
fn restore_snapshot_with_mob_files() {
    crash_everywhere(Action {
        set_up: |c| {
            with_mob_snapshot(c);
            c.run("DisableTable", &disable("t")).unwrap();
            c.run("truncateTable", &truncate("t", false)).unwrap();
            c.run("DisableTable", &disable("t")).unwrap();
        },
        act: |c| c.submit("RestoreSnapshot", &restore("s", "t")),
        is_done: |c| {
            let (files, (live, archived)) = (store_files(c, "t"), mob_file_of_t(c));
            assert!((live || archived) && (files == 0 || (files == 6 && live)), "{files} {live} {archived}");
            files == 6
        },
    });
}

#[test]
fn delete_snapshot() {
    crash_everywhere(Action {
        set_up: with_snapshot,
        act: |c| {
            let request = pb::DeleteSnapshotRequest { snapshot: snapshot("s", "t").snapshot };
            c.call_and_leave("DeleteSnapshot", &request);
            let info = Path::new("/hbase/.hbase-snapshot/s/.snapshotinfo");
            while c.env.fs.exists(info).map_err(|error| RpcError::io(error.to_string()))? {
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(0)
        },
        is_done: |c| {
            let gone = !has_snapshot(c);
            assert!(!gone || !has_working_snapshot(&c.env, "s"));
            gone
        },
    });
}

/// The very first start, killed everywhere.
#[test]
fn bootstrap() {
    let sim = SimFileSystem::new();
    drop(start(&sim, 1).unwrap());
    for n in 1..=sim.sync_points() {
        let sim = SimFileSystem::new();
        sim.fail_at(n);
        assert!(start(&sim, 1).is_err());
        for mode in CrashMode::ALL {
            let cluster = start(&sim.crash(mode, n), 2).unwrap();
            cluster.check();
            cluster.run("CreateTable", &create(&table("t", &["f"]), &[])).unwrap();
            cluster.check();
        }
    }
}

fn is_split(c: &Cluster) -> bool {
    let regions = c.regions("t");
    assert_eq!(c.state("t"), Some(State::Enabled));
    match regions.len() {
        3 => assert_eq!(store_files(c, "t"), 6),
        regions => assert_eq!((regions, store_files(c, "t")), (4, 8)),
    }
    regions.len() == 4
}

#[test]
fn split_region() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| c.submit("SplitRegion", &split(&c.regions("t")[1], Some("bm"))),
        is_done: is_split,
    });
}

#[test]
fn merge_regions() {
    crash_everywhere(Action {
        set_up: with_table,
        act: |c| c.submit("MergeTableRegions", &merge(&c.regions("t")[..2])),
        is_done: |c| {
            assert_eq!(c.state("t"), Some(State::Enabled));
            assert_eq!(store_files(c, "t"), 6, "files, or references to them");
            c.regions("t").len() == 2
        },
    });
}

/// Of regions that are apart; the one between them stays, and is overlapped.
#[test]
fn forced_merge_of_regions_that_are_apart() {
    fn apart(c: &Cluster) -> [RegionInfo; 2] {
        let regions = c.regions("t");
        [regions[0].clone(), regions[2].clone()]
    }
    crash_everywhere_and(
        Action {
            set_up: with_table,
            act: |c| c.submit("MergeTableRegions", &merge_forced(&apart(c))),
            is_done: |c| {
                assert_eq!(store_files(c, "t"), 6, "files, or references to them");
                c.regions("t").len() == 2
            },
        },
        Cluster::check_overlapping,
    );
}

/// What `fixMeta` does after that.
#[test]
fn merge_of_regions_that_overlap() {
    crash_everywhere_and(
        Action {
            set_up: |c| {
                with_table(c);
                let regions = c.regions("t");
                let apart = [regions[0].clone(), regions[2].clone()];
                c.run("MergeTableRegions", &merge_forced(&apart)).unwrap();
                c.regions("t").iter().for_each(|region| c.server.compact(region));
            },
            act: |c| c.submit("MergeTableRegions", &merge(&c.regions("t"))),
            is_done: |c| c.regions("t").len() == 1,
        },
        Cluster::check_overlapping,
    );
}

/// A region that was merged and compacted is split; what it was merged of goes on the way.
#[test]
fn split_of_a_merged_region() {
    crash_everywhere(Action {
        set_up: |c| {
            with_table(c);
            c.run("MergeTableRegions", &merge(&c.regions("t")[..2])).unwrap();
            c.server.compact(&c.regions("t")[0]);
        },
        act: |c| c.submit("SplitRegion", &split(&c.regions("t")[0], Some("bm"))),
        is_done: |c| c.regions("t").len() == 3,
    });
}

#[test]
fn janitor() {
    crash_everywhere(Action {
        set_up: |c| {
            with_table(c);
            c.run("SplitRegion", &split(&c.regions("t")[0], Some("a"))).unwrap();
            c.run("MergeTableRegions", &merge(&c.regions("t")[2..])).unwrap();
            c.regions("t").iter().for_each(|region| c.server.compact(region));
        },
        act: |c| {
            let scan: Result<pb::RunCatalogScanResponse, _> =
                c.call("RunCatalogScan", &pb::RunCatalogScanRequest {});
            scan?;
            // A scan promises nothing: what it does not get to is left to the next one.
            while !c.parents("t").is_empty() {
                c.env.fs.list(&c.root).map_err(|error| RpcError::io(error.to_string()))?;
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(0)
        },
        is_done: |c| c.parents("t").is_empty(),
    });
}

#[test]
fn replication_peers() {
    fn config(bandwidth: i64) -> pb::ReplicationPeer {
        let clusterkey = Some("h:2181:/hbase".to_string());
        pb::ReplicationPeer { clusterkey, bandwidth: Some(bandwidth), ..Default::default() }
    }
    fn add(c: &Cluster) -> Acknowledged {
        let peer_state = pb::ReplicationState { state: pb::replication_state::State::Enabled as i32 };
        let request =
            pb::AddReplicationPeerRequest { peer_id: "p".into(), peer_config: config(0), peer_state };
        c.submit("AddReplicationPeer", &request)
    }
    fn with_peer(c: &Cluster) {
        c.wait(add(c).unwrap()).unwrap();
    }
    /// Whether it is enabled, and its bandwidth. The region server must know the same, once nothing runs.
    fn found(c: &Cluster) -> Option<(bool, i64)> {
        let request = pb::ListReplicationPeersRequest::default();
        let response: pb::ListReplicationPeersResponse = c.call("ListReplicationPeers", &request).unwrap();
        let enabled = pb::replication_state::State::Enabled as i32;
        let of =
            |peer: &pb::ReplicationPeerDescription| (peer.state.state == enabled, peer.config.bandwidth());
        let told: Vec<_> =
            c.server.peers().iter().map(|peer| (peer.is_enabled, peer.config.bandwidth())).collect();
        let listed: Vec<_> = response.peer_desc.iter().map(of).collect();
        assert_eq!(told, listed);
        listed.first().copied()
    }
    crash_everywhere(Action { set_up: |_| {}, act: add, is_done: |c| found(c) == Some((true, 0)) });
    crash_everywhere(Action {
        set_up: with_peer,
        act: |c| {
            c.submit("DisableReplicationPeer", &pb::DisableReplicationPeerRequest { peer_id: "p".into() })
        },
        is_done: |c| !found(c).unwrap().0,
    });
    crash_everywhere(Action {
        set_up: with_peer,
        act: |c| {
            let request =
                pb::UpdateReplicationPeerConfigRequest { peer_id: "p".into(), peer_config: config(9) };
            c.submit("UpdateReplicationPeerConfig", &request)
        },
        is_done: |c| found(c).unwrap().1 == 9,
    });
    crash_everywhere(Action {
        set_up: with_peer,
        act: |c| c.submit("RemoveReplicationPeer", &pb::RemoveReplicationPeerRequest { peer_id: "p".into() }),
        is_done: |c| found(c).is_none(),
    });
}
