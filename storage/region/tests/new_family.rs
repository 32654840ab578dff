//! A family that was deleted and added again. Its edits of before may still be in WALs.

use std::path::PathBuf;
use std::sync::Arc;

use crate::common::{Bench, Policy, listed, migrating, mutation, parse_cell, root, table, with_policy};
use halcyon_cell::CellType;
use halcyon_env::FileSystem;
use halcyon_env::sim::{CrashMode, Fault, Operation, SimDisk, SimFileSystem};
use halcyon_region::*;
use halcyon_schema::{FamilyDescriptor, layout};

fn put(bench: &Bench, row: &str, column: &str) {
    let cells = vec![parse_cell(row, column, CellType::Put, false)];
    bench.mutate(mutation(MutationKind::Put, row.as_bytes(), cells)).unwrap();
}

fn rows(bench: &Bench) -> Vec<String> {
    let rows = bench.scan(Scan::default()).unwrap();
    rows.iter().map(|row| String::from_utf8_lossy(row[0].row()).into_owned()).collect()
}

fn family(name: &str) -> FamilyDescriptor {
    FamilyDescriptor::new(name).unwrap()
}

/// Opens the region as a table of these families, with the WAL that it has: its server goes on.
fn open_with(bench: &mut Bench, families: &[FamilyDescriptor]) {
    bench.table = table(families);
    let services = bench.services_with(MobFileCache::new(1000, 0.5));
    bench.region = Region::open(services, &root(), bench.info.clone(), bench.table.clone()).unwrap();
}

/// What the master does with the directory of a deleted family.
fn archive_family(bench: &Bench, name: &str) {
    let archive = layout::archive_region_dir(&root(), bench.table.name(), bench.info.encoded_name());
    bench.fs.create_dir_all(&archive).unwrap();
    bench.fs.rename(&bench.region.dir().join(name), &archive.join(name)).unwrap();
    [bench.region.dir(), &archive].iter().for_each(|dir| bench.fs.sync_dir(dir).unwrap());
}

/// Families of each kind, by how their stores know their files and what they hold.
fn kinds() -> Vec<FamilyDescriptor> {
    vec![
        family("g"),
        listed(family("g")),
        migrating(family("g"), "DEFAULT", "FILE"),
        migrating(family("g"), "FILE", "DEFAULT"),
        with_policy(family("g"), Policy::Mob, 0),
        with_policy(family("g"), Policy::Stripe, 0),
    ]
}

fn each(test: impl Fn(SimFileSystem, FamilyDescriptor)) {
    for (seed, kind) in kinds().into_iter().enumerate() {
        SimDisk::ALL.iter().for_each(|disk| test(disk.files(seed as u64), kind.clone()));
    }
}

/// The WAL that has the edit outlived the family, and a replay put it into the empty family of the same name: what was deleted was
/// served again.
#[test]
fn edits_of_a_deleted_family_do_not_come_back() {
    each(|fs, kind| {
        let mut bench = Bench::on(Arc::new(fs), &[family("f"), kind.clone()]);
        put(&bench, "old", "g:q=deleted");
        bench.region.close(false).unwrap();
        open_with(&mut bench, &[family("f")]);
        archive_family(&bench, "g");
        bench.region.close(false).unwrap();
        open_with(&mut bench, &[family("f"), kind.clone()]);
        assert_eq!(rows(&bench), [""; 0], "the family is empty");
        put(&bench, "new", "f:q=v");
        put(&bench, "newer", "g:q=value");
        // The server dies. Another one splits its WAL and opens the region.
        bench.take_over().unwrap();
        assert_eq!(rows(&bench), ["new", "newer"], "{kind:?}");
        bench.region.flush(None).unwrap();
        bench.compact(true).unwrap();
        bench.reopen().unwrap();
        assert_eq!(rows(&bench), ["new", "newer"], "{kind:?}");
    });
}

/// The table was disabled meanwhile: no opening has seen the region without the family, and the highest sequence id is in the
/// archive.
#[test]
fn edits_do_not_come_back_when_the_table_was_disabled() {
    each(|fs, kind| {
        let mut bench = Bench::on(Arc::new(fs), &[family("f"), kind.clone()]);
        (0..5).for_each(|n| put(&bench, &format!("old{n}"), "g:q=deleted"));
        bench.region.close(false).unwrap();
        archive_family(&bench, "g");
        open_with(&mut bench, &[family("f"), kind.clone()]);
        put(&bench, "new", "g:q=value");
        bench.take_over().unwrap();
        assert_eq!(rows(&bench), ["new"], "{kind:?}");
    });
}

/// The server died, and the family was deleted and added before its regions were open again.
#[test]
fn edits_that_wait_for_the_next_opening_do_not_come_back() {
    each(|fs, kind| {
        let mut bench = Bench::on(Arc::new(fs), &[family("f"), kind.clone()]);
        put(&bench, "old", "g:q=deleted");
        put(&bench, "kept", "f:q=v");
        bench.region.close(true).unwrap(); // as a death
        archive_family(&bench, "g");
        bench.take_over().unwrap();
        assert_eq!(rows(&bench), ["kept"], "{kind:?}");
        put(&bench, "new", "g:q=value");
        bench.take_over().unwrap();
        assert_eq!(rows(&bench), ["kept", "new"], "{kind:?}");
    });
}

/// Wherever the opening is cut off that makes the directory.
#[test]
fn a_death_of_the_opening_brings_nothing_back() {
    for kind in [family("g"), listed(family("g"))] {
        for disk in SimDisk::ALL {
            let build = || {
                let bench = Bench::on(Arc::new(disk.files(1)), &[family("f"), kind.clone()]);
                put(&bench, "old", "g:q=deleted");
                put(&bench, "kept", "f:q=v");
                bench.region.close(true).unwrap();
                archive_family(&bench, "g");
                bench
            };
            let mut whole = build();
            let first = whole.fs.sync_points() + 1;
            whole.take_over().unwrap();
            let last = whole.fs.sync_points();
            assert!(last > first + 5, "{first} to {last}");
            for point in first..=last {
                for mode in CrashMode::ALL {
                    let mut bench = build();
                    bench.fs.fail_at(point);
                    let _ = bench.take_over();
                    let left = Arc::new(bench.fs.crash(mode, point));
                    let what = format!("{kind:?}, {disk:?}, death at {point}, {mode:?}");
                    bench.recover_on(left).unwrap_or_else(|error| panic!("{what}: {error}"));
                    assert_eq!(rows(&bench), ["kept"], "{what}");
                }
            }
        }
    }
}

/// A family without data is new in a region without data: nothing but a directory is made.
#[test]
fn a_new_region_has_empty_directories() {
    let bench = Bench::new(&[family("f"), family("g")]);
    for name in ["f", "g"] {
        let dir: PathBuf = bench.region.dir().join(name);
        assert_eq!(bench.fs.list(&dir).unwrap(), []);
    }
}

/// What is not deleted is replayed, also into a family that has no file yet.
#[test]
fn edits_of_a_family_without_files_are_replayed() {
    let mut bench = Bench::new(&[family("f"), family("g")]);
    put(&bench, "a", "g:q=v");
    bench.take_over().unwrap();
    assert_eq!(rows(&bench), ["a"]);
}

/// The server died after the descriptor had lost the family, and a split left its edits out, as they were all in files. No opening knew their
/// numbers any more: they were taken again, also by the family of the same name that was added later. A master that remembers up to where
/// it was flushed had those edits left out as well.
#[test]
fn numbers_of_a_deleted_family_are_not_taken_again() {
    each(|fs, kind| {
        let mut bench = Bench::on(Arc::new(fs), &[family("f"), kind.clone()]);
        (0..20).for_each(|n| put(&bench, &format!("old{n}"), "g:q=deleted"));
        bench.region.flush(None).unwrap();
        let flushed = bench.region.read_point().get();
        bench.region.close(true).unwrap(); // as a death
        bench.fs.remove_dir_all(&root().join("WALs")).unwrap(); // all of it is flushed
        bench.table = table(&[family("f")]);
        bench.take_over().unwrap();
        let opened_at = bench.region.open_seq_num().get();
        assert!(opened_at > flushed, "{opened_at} is not above {flushed}: {kind:?}");
        archive_family(&bench, "g");
        bench.region.close(true).unwrap();
        bench.table = table(&[family("f"), kind.clone()]);
        bench.take_over().unwrap();
        put(&bench, "new", "g:q=value");
        assert!(bench.region.read_point().get() > flushed + 1);
        assert_eq!(rows(&bench), ["new"], "{kind:?}");
    });
}

/// Perhaps it is just for that file that the family was deleted. A block of it that was lost kept the region closed, whose opening alone
/// lets the master archive the directory; and where it could be read and was no HFile, ids that it has were taken again.
#[test]
fn a_file_of_a_deleted_family_that_cannot_be_read_keeps_no_region_from_opening() {
    for is_lost in [false, true] {
        let mut bench = Bench::new(&[family("f"), family("g")]);
        put(&bench, "kept", "f:q=v");
        bench.region.flush(None).unwrap();
        (0..20).for_each(|n| put(&bench, &format!("old{n}"), "g:q=deleted"));
        bench.region.flush(None).unwrap();
        let flushed = bench.region.read_point().get();
        bench.region.close(true).unwrap(); // as a death
        bench.fs.remove_dir_all(&root().join("WALs")).unwrap(); // all of it is flushed
        let dir = bench.region.dir().join("g");
        for entry in bench.fs.list(&dir).unwrap() {
            match is_lost {
                true => bench.fs.inject(Fault::new(Operation::Open, &entry.name).forever()),
                false => bench.fs.replace(&dir.join(&entry.name), b"no HFile").unwrap(),
            }
        }
        bench.table = table(&[family("f")]);
        bench.take_over().unwrap();
        assert_eq!(rows(&bench), ["kept"]);
        let opened_at = bench.region.open_seq_num().get();
        assert!(opened_at > flushed, "{opened_at} is not above {flushed}");
        put(&bench, "later", "f:q=v");
        bench.take_over().unwrap();
        assert_eq!(rows(&bench), ["kept", "later"]);
    }
}
