//! Bulk loads: what is refused, what readers see, what a crash leaves.

#![allow(clippy::disallowed_methods)] // threads of the test itself

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::*;
use bytes::Bytes;
use halcyon_cell::{Cell, CellType, Error, ErrorKind, Result};
use halcyon_env::FileSystem;
use halcyon_env::sim::{CrashMode, Fault, Operation, SimDisk, SimFileSystem};
use halcyon_hfile::{FileMeta, HFileWriter, WriterOptions};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use parking_lot::Mutex;

const ROWS: [&str; 3] = ["a", "b", "c"];

fn families() -> Vec<FamilyDescriptor> {
    let encoded = FamilyDescriptor::new("g").unwrap().with("DATA_BLOCK_ENCODING", "FAST_DIFF");
    vec![FamilyDescriptor::new("f").unwrap(), encoded]
}

/// With and without a list of each store's files.
fn each_tracker() -> [Vec<FamilyDescriptor>; 3] {
    let migrating = families().into_iter().map(|family| migrating(family, "DEFAULT", "FILE"));
    [families(), families().into_iter().map(listed).collect(), migrating.collect()]
}

fn source(family: &str) -> PathBuf {
    Path::new("/out").join(family).join("0123abcd")
}

/// Writes an HFile as a client does, with the timestamp 5 in each cell.
fn write_hfile(bench: &Bench, family: &str, rows: &[&str], value: &str) -> PathBuf {
    let path = source(family);
    bench.fs.create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = HFileWriter::create(&bench.env(), &path, WriterOptions::default()).unwrap();
    for row in rows {
        let cell =
            Cell::build(row.as_bytes(), family.as_bytes(), b"q", 5, CellType::Put, value.as_bytes(), b"", 0);
        writer.append(cell.get()).unwrap();
    }
    writer.finish(FileMeta::default()).unwrap();
    bench.fs.sync_dir(path.parent().unwrap()).unwrap();
    path
}

fn file(family: &str, path: PathBuf) -> BulkLoadFile {
    BulkLoadFile { family: Bytes::copy_from_slice(family.as_bytes()), path, from: None, copy: false }
}

fn load_of(files: Vec<BulkLoadFile>) -> BulkLoad {
    BulkLoad { files, assign_seq: true, cluster_ids: vec!["c".to_string()], replicate: true }
}

fn load_both(bench: &Bench) -> Result<BulkLoadOutcome> {
    bench.region.bulk_load(&load_of(vec![file("f", source("f")), file("g", source("g"))]))
}

fn put(bench: &Bench, row: &str, value: &str) -> Result<()> {
    let cells = ["f", "g"].map(|family| {
        Cell::build(row.as_bytes(), family.as_bytes(), b"q", 5, CellType::Put, value.as_bytes(), b"", 0)
    });
    bench.mutate(mutation(MutationKind::Put, row.as_bytes(), cells.to_vec())).map(drop)
}

/// Of each row the values of its two families.
fn shown(bench: &Bench) -> Vec<String> {
    let rows = bench.scan(Scan::default()).unwrap();
    let values = |cells: Vec<Cell>| {
        let values = cells.iter().map(|cell| String::from_utf8_lossy(cell.value()).into_owned());
        values.collect::<Vec<_>>().join(" ")
    };
    rows.into_iter().map(values).collect()
}

#[test]
fn loaded_cells_are_newer_than_what_was_there_and_older_than_what_comes() {
    let mut bench = Bench::new(&families());
    put(&bench, "a", "old").unwrap();
    for family in ["f", "g"] {
        write_hfile(&bench, family, &ROWS, "bulk");
    }
    let before = bench.region.read_point();
    let BulkLoadOutcome::Loaded { files_count, bytes, .. } = load_both(&bench).unwrap() else { panic!() };
    assert!(files_count == 2 && bytes > 0);
    assert_eq!(shown(&bench), ["bulk bulk"; 3]);
    let scan = Scan { read_point: Some(before), ..Scan::default() };
    assert_eq!(bench.scan(scan).unwrap().len(), 1, "a reader of before does not see what was loaded");
    put(&bench, "b", "new").unwrap();
    let wanted = ["bulk bulk", "new new", "bulk bulk"];
    assert_eq!(shown(&bench), wanted);
    assert!(!bench.fs.exists(&source("f")).unwrap(), "the file was moved");
    let crashed = Arc::new(bench.fs.crash(CrashMode::ALL[0], 1));
    bench.recover_on(crashed).unwrap();
    assert_eq!(shown(&bench), wanted);
    bench.compact(true).unwrap();
    assert_eq!(shown(&bench), wanted);
    bench.reopen().unwrap();
    assert_eq!(shown(&bench), wanted);
}

#[test]
fn a_copied_file_stays() {
    let bench = Bench::new(&families());
    let path = write_hfile(&bench, "f", &ROWS, "bulk");
    let one = BulkLoadFile { copy: true, ..file("f", path.clone()) };
    bench.region.bulk_load(&load_of(vec![one])).unwrap();
    assert_eq!(shown(&bench), ["bulk"; 3]);
    assert!(bench.fs.exists(&path).unwrap());
}

/// The region was kept from flushing and closing for as long as files were copied, which is a quarter of an hour for 100 GB: its memory filled,
/// and its server could not stop.
#[test]
fn a_region_flushes_and_closes_while_files_of_a_load_are_copied() {
    let prepared = || {
        let (bench, elsewhere) = (Arc::new(Bench::new(&families())), SimFileSystem::new());
        let path = write_hfile(&bench, "f", &ROWS, "bulk");
        elsewhere.create_dir_all(path.parent().unwrap()).unwrap();
        elsewhere.put_new(&path, &bench.fs.read(&path).unwrap()).unwrap();
        put(&bench, "z", "old").unwrap();
        let load = load_of(vec![BulkLoadFile { from: Some(elsewhere.env()), ..file("f", path) }]);
        (bench, elsewhere, load)
    };
    let (bench, elsewhere, load) = prepared();
    let before = elsewhere.calls();
    bench.region.bulk_load(&load).unwrap();
    let last = elsewhere.calls() - before;
    for closes in [false, true] {
        let (bench, elsewhere, load) = prepared();
        let other = bench.clone();
        // The last call to that file system is one of the copying.
        elsewhere.pause_at(elsewhere.calls() + last, move || {
            let (done, is_done) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                match closes {
                    true => _ = other.region.close(false).unwrap(),
                    false => _ = other.region.flush(None).unwrap(),
                }
                done.send(()).unwrap();
            });
            is_done.recv_timeout(std::time::Duration::from_secs(20)).expect("it waits for the copying");
            thread.join().unwrap();
        });
        let loaded = bench.region.bulk_load(&load);
        if closes {
            assert_eq!(loaded.unwrap_err().kind(), ErrorKind::Moved);
            continue;
        }
        assert!(matches!(loaded.unwrap(), BulkLoadOutcome::Loaded { files_count: 1, .. }));
        assert_eq!(shown(&bench), ["bulk", "bulk", "bulk", "old old"]);
        let left = bench.fs.list(&bench.region.dir().join(".tmp")).unwrap();
        let left = bench.fs.list(&bench.region.dir().join(".tmp").join(&left[0].name)).unwrap();
        assert!(left.iter().all(|entry| !entry.name.starts_with("copies-")), "{left:?}");
    }
}

/// HBase's backup tool has to know of a file before the region has it. What cannot be noted is not loaded.
#[test]
fn files_are_noted_before_they_are_loaded() {
    let bench = Bench::new(&families());
    for family in ["f", "g"] {
        write_hfile(&bench, family, &ROWS, "bulk");
    }
    let load = load_of(vec![file("f", source("f")), file("g", source("g"))]);
    let refused = bench.region.bulk_load_noting(&load, &mut |_| Err(Error::new(ErrorKind::Busy, "no note")));
    assert_eq!(refused.unwrap_err().message(), "no note");
    assert!(shown(&bench).is_empty());
    assert!(
        bench.fs.exists(&source("f")).unwrap() && bench.fs.exists(&source("g")).unwrap(),
        "they are back"
    );
    let mut noted = Vec::new();
    let outcome = bench.region.bulk_load_noting(&load, &mut |files| {
        assert!(shown(&bench).is_empty());
        assert!(files.iter().all(|(_, path)| !bench.fs.exists(path).unwrap()));
        noted = files.to_vec();
        Ok(())
    });
    assert!(matches!(outcome.unwrap(), BulkLoadOutcome::Loaded { files_count: 2, .. }));
    let families: Vec<&str> = noted.iter().map(|(family, _)| family.as_str()).collect();
    assert_eq!(families, ["f", "g"]);
    assert!(noted.iter().all(|(_, path)| bench.fs.exists(path).unwrap()), "{noted:?}");
}

#[test]
fn what_is_wrong_loads_nothing() {
    let bench = Bench::new(&families());
    write_hfile(&bench, "f", &ROWS, "bulk");
    let whole = bench.fs.read(&source("f")).unwrap();
    bench.fs.create_dir_all(Path::new("/out/g")).unwrap();
    for bad in [&whole[..whole.len() / 2], &b""[..], b"garbage that is no HFile"] {
        bench.fs.replace(&source("g"), bad).unwrap();
        assert_eq!(load_both(&bench).unwrap_err().kind(), ErrorKind::Invalid);
    }
    bench.fs.remove_file(&source("g")).unwrap();
    assert_eq!(load_both(&bench).unwrap_err().kind(), ErrorKind::Invalid, "one of the files is not there");
    let stranger = load_of(vec![file("x", source("f"))]);
    assert_eq!(bench.region.bulk_load(&stranger).unwrap_err().kind(), ErrorKind::NoSuchFamily);
    let twice = load_of(vec![file("f", source("f")), file("f", source("f"))]);
    assert_eq!(bench.region.bulk_load(&twice).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(shown(&bench).is_empty());
    assert_eq!(bench.fs.read(&source("f")).unwrap(), whole);
}

/// Each call to the file system fails once. All is loaded or nothing, and the sources are back or in the region.
#[test]
fn every_fault_leaves_all_or_nothing() {
    each_tracker().iter().for_each(|families| every_fault(families));
}

fn every_fault(families: &[FamilyDescriptor]) {
    for operation in [Operation::Rename, Operation::Create, Operation::Sync] {
        for nth in [".tmp", ".bulk-", "/out/", "/f/", "/g/"] {
            let mut bench = Bench::new(families);
            for family in ["f", "g"] {
                write_hfile(&bench, family, &ROWS, "bulk");
            }
            bench.fs.inject(Fault::new(operation, nth));
            let loaded = load_both(&bench);
            let all = shown(&bench);
            assert!(all.is_empty() || all == ["bulk bulk"; 3], "{operation:?} {nth}: {all:?}");
            assert_eq!(loaded.is_ok(), !all.is_empty(), "{operation:?} {nth}: {loaded:?}");
            if loaded.is_err() {
                load_both(&bench)
                    .unwrap_or_else(|e| panic!("{operation:?} {nth}: the sources are back: {e}"));
            }
            assert_eq!(shown(&bench), ["bulk bulk"; 3]);
            bench.reopen().unwrap();
            assert_eq!(shown(&bench), ["bulk bulk"; 3]);
        }
    }
}

fn prepare(fs: Arc<SimFileSystem>, families: &[FamilyDescriptor]) -> Bench {
    let bench = Bench::on(fs, families);
    put(&bench, "a", "old").unwrap();
    for family in ["f", "g"] {
        write_hfile(&bench, family, &ROWS, "bulk");
    }
    bench
}

/// The machine dies at each sync point of a load. Afterwards both files are loaded or both are where they were.
#[test]
fn every_death_leaves_all_or_nothing() {
    each_tracker().iter().for_each(|families| every_death(families));
}

fn every_death(families: &[FamilyDescriptor]) {
    let nothing = vec!["old old".to_string()];
    let all = vec!["bulk bulk".to_string(); 3];
    for &disk in &SimDisk::ALL {
        let bench = prepare(Arc::new(disk.files(1)), families);
        let first = bench.fs.sync_points() + 1;
        load_both(&bench).unwrap();
        let last = bench.fs.sync_points();
        assert!(last > first + 8, "{first} to {last}");
        let mut seen = [0, 0];
        for point in first..=last {
            for mode in CrashMode::ALL {
                let what = format!("{disk:?}, death at sync point {point}, {mode:?}");
                let mut bench = prepare(Arc::new(disk.files(1)), families);
                bench.fs.fail_at(point);
                let loaded = load_both(&bench);
                let left = Arc::new(bench.fs.crash(mode, point));
                bench.recover_on(left).unwrap_or_else(|e| panic!("{what}: {e}"));
                let rows = shown(&bench);
                assert!(rows == nothing || rows == all, "{what}: {rows:?}");
                assert!(loaded.is_err() || rows == all, "{what}: an answered load is gone");
                let is_loaded = rows == all;
                seen[usize::from(is_loaded)] += 1;
                if !is_loaded {
                    load_both(&bench).unwrap_or_else(|e| panic!("{what}: the sources are back: {e}"));
                    assert_eq!(shown(&bench), all, "{what}");
                }
                let left = Arc::new(bench.fs.crash(mode, point + 1));
                bench.recover_on(left).unwrap_or_else(|e| panic!("{what}, second time: {e}"));
                assert_eq!(shown(&bench), all, "{what}, second time");
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "deaths before and after the commit: {seen:?}");
    }
}
/// A server that had lost the region took the files of a load out of the stores again, which the next opening had just shown: the
/// load had failed there halfway, and the server stood still while it took it back.
#[test]
fn a_load_that_a_lost_server_takes_back_is_not_taken_from_the_next_one() {
    let families = families();
    let prepared = || {
        let bench = prepare(Arc::new(SimFileSystem::hdfs(1)), &families);
        bench.region.flush(None).unwrap();
        // The loaded file of the second family cannot be opened in its store.
        bench.fs.inject(Fault::new(Operation::Open, &format!("{}/g/", bench.info.encoded_name())));
        bench
    };
    let bench = prepared();
    let before = bench.fs.calls();
    load_both(&bench).unwrap_err();
    let calls = bench.fs.calls() - before;
    assert_eq!(bench.fs.faults_hit(), 1);
    assert_eq!(shown(&bench), ["old old"]);
    let (mut all_count, mut none_count) = (0, 0);
    for n in 1..=calls {
        let bench = prepared();
        let next = Arc::new(Mutex::new(None));
        let (slot, mut other) = (next.clone(), bench.other_server());
        bench.fs.pause_at(bench.fs.calls() + n, move || {
            other.fs.clear_faults();
            let opened = other.take_over();
            *slot.lock() = Some(opened.map(|()| other));
        });
        let loaded = load_both(&bench);
        let opened = next.lock().take().expect("it was paused");
        let next = opened.unwrap_or_else(|error| panic!("call {n} of {calls}: {error}"));
        let rows = shown(&next);
        let is_all = rows == ["bulk bulk"; 3];
        assert!(is_all || rows == ["old old"], "call {n} of {calls}: {rows:?}");
        assert!(is_all || loaded.is_err(), "call {n} of {calls}: an answered load is gone");
        *(if is_all { &mut all_count } else { &mut none_count }) += 1;
        next.compact(true).unwrap_or_else(|error| panic!("call {n} of {calls}: {error}"));
        assert_eq!(shown(&next), rows, "call {n} of {calls}");
    }
    assert!(all_count > 0 && none_count > 0, "{all_count} and {none_count}");
}

/// The directory of a load that was shown, and could not be removed, kept its region from snapshots until it was opened again.
#[test]
fn a_directory_that_cannot_be_removed_is_no_load_on_its_way() {
    for families in &each_tracker() {
        let mut bench = prepare(Arc::new(SimDisk::ALL[0].files(1)), families);
        let dir = bench.region.dir().to_path_buf();
        let left = |bench: &Bench| {
            let entries = bench.fs.list(&dir).unwrap();
            entries.into_iter().filter(|entry| entry.name.starts_with(".bulk-")).collect::<Vec<_>>()
        };
        bench.fs.inject(Fault::new(Operation::Remove, ".bulk-"));
        load_both(&bench).unwrap();
        let [entry] = &left(&bench)[..] else { panic!("{:?}", left(&bench)) };
        let load = dir.join(&entry.name);
        assert!(!Region::has_unplaced_load(&bench.env(), &dir).unwrap(), "all its files are in their stores");
        // While files are on their way, or are in no list yet, a snapshot waits.
        bench.fs.remove_file(&load.join("shown")).unwrap();
        assert!(Region::has_unplaced_load(&bench.env(), &dir).unwrap());
        bench.fs.put_new(&load.join("shown"), b"").unwrap();
        bench.compact(true).unwrap();
        bench.reopen().unwrap();
        assert_eq!(shown(&bench), ["bulk bulk"; 3]);
        assert!(left(&bench).is_empty(), "the next opening removes it");
    }
}

/// Such a file said of itself that its cells are older than one of them was. The first compaction wrote that cell with the id it had,
/// and no read ever found a view again that had dropped nothing above its read point.
#[test]
fn cells_with_ids_above_what_their_file_says_stop_no_reads() {
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    let other = Cell::build(b"r2", b"f", b"q", 5, CellType::Put, b"before", b"", 0);
    bench.mutate(mutation(MutationKind::Put, b"r2", vec![other])).unwrap();
    let path = source("f");
    bench.fs.create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = HFileWriter::create(&bench.env(), &path, WriterOptions::default()).unwrap();
    for (row, seq) in [("r1", 1 << 62), ("r3", i64::MAX as u64 - 1)] {
        let cell = Cell::build(row.as_bytes(), b"f", b"q", 5, CellType::Put, b"loaded", b"", seq);
        writer.append(cell.get()).unwrap();
    }
    writer.append_file_info(b"SKIP_RESET_SEQ_ID", &[0xff]);
    writer.append_file_info(b"MAX_MEMSTORE_TS_KEY", &1_i64.to_be_bytes());
    writer.finish(FileMeta::default()).unwrap();
    bench.fs.sync_dir(path.parent().unwrap()).unwrap();
    bench.region.bulk_load(&load_of(vec![file("f", path)])).unwrap();
    bench.region.flush(None).unwrap();
    for major in [false, true] {
        bench.compact(major).unwrap();
        assert_eq!(shown(&bench).len(), 3, "and no read waits for ever");
    }
}
