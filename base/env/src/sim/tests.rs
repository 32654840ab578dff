use std::io::ErrorKind;
use std::path::Path;

use super::*;
use crate::{FileSystem, WritableFile, is_in_doubt};

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn write(fs: &SimFileSystem, name: &str, synced: &[u8], unsynced: &[u8]) -> Box<dyn WritableFile> {
    let mut file = fs.create(path(name)).unwrap();
    file.write_all(synced).unwrap();
    file.sync().unwrap();
    file.write_all(unsynced).unwrap();
    file
}

#[test]
fn unsynced_bytes_are_dropped_kept_or_torn() {
    for seed in 0..200 {
        let build = || {
            let fs = SimFileSystem::new();
            fs.create_dir_all(path("/d")).unwrap();
            write(&fs, "/d/f", &[1; 5000], &[2; 9000]);
            fs.sync_dir(path("/d")).unwrap();
            fs
        };
        let read = |mode| build().crash(mode, seed).read(path("/d/f")).unwrap();
        assert_eq!(read(CrashMode::Drop), [1; 5000]);
        assert_eq!(read(CrashMode::Keep).len(), 14000);
        let torn = read(CrashMode::Torn);
        assert!(torn.starts_with(&[1; 5000]) && torn.len() <= 14000);
        assert_eq!(torn, read(CrashMode::Torn), "a seed gives one end");
    }
}

#[test]
fn updates_in_place_are_in_doubt_page_by_page_until_they_are_synced() {
    const PAGE: usize = 4096;
    let mut seen = std::collections::HashSet::new();
    for seed in 0..200 {
        let build = |synced: bool| {
            let fs = SimFileSystem::new();
            fs.create_dir_all(path("/d")).unwrap();
            let file = fs.open_update(path("/d/f"), 4 * PAGE as u64).unwrap();
            fs.sync_dir(path("/d")).unwrap();
            file.write_all_at(&[1; 2 * PAGE], 0).unwrap();
            file.sync().unwrap();
            file.write_all_at(&[2; 2 * PAGE], PAGE as u64).unwrap();
            if synced {
                file.sync().unwrap();
            }
            fs
        };
        let read = |synced, mode| build(synced).crash(mode, seed).read(path("/d/f")).unwrap();
        let (old, new) = (read(false, CrashMode::Drop), read(false, CrashMode::Keep));
        assert_eq!((old[0], old[PAGE], old[2 * PAGE], old[3 * PAGE]), (1, 1, 0, 0));
        assert_eq!((new[0], new[PAGE], new[2 * PAGE], new[3 * PAGE]), (1, 2, 2, 0));
        CrashMode::ALL.iter().for_each(|&mode| assert_eq!(read(true, mode), new));
        let torn = read(false, CrashMode::Torn);
        assert_eq!(
            (torn.len(), &torn[..PAGE], &torn[3 * PAGE..]),
            (4 * PAGE, &old[..PAGE], &old[3 * PAGE..])
        );
        for at in [1, 2] {
            let page = at * PAGE..(at + 1) * PAGE;
            let kept = if torn[page.clone()] == new[page.clone()] { "new" } else { "other" };
            seen.insert(if torn[page.clone()] == old[page] { "old" } else { kept });
        }
    }
    assert_eq!(seen.len(), 3, "old pages, new ones, garbage");
}

#[test]
fn names_are_durable_after_a_sync_of_their_directory() {
    let fs = SimFileSystem::new();
    fs.create_dir_all(path("/d")).unwrap();
    write(&fs, "/d/synced", b"1", b"");
    fs.sync_dir(path("/d")).unwrap();
    write(&fs, "/d/late", b"2", b"");
    fs.remove_file(path("/d/synced")).unwrap();
    let fs = fs.crash(CrashMode::Drop, 0);
    assert_eq!(fs.read(path("/d/synced")).unwrap(), b"1");
    assert!(!fs.exists(path("/d/late")).unwrap());
}

#[test]
fn a_rename_is_all_or_nothing_and_needs_both_directories() {
    for seed in 0..50 {
        for synced in [&[][..], &["/from"], &["/to"], &["/from", "/to"]] {
            let fs = SimFileSystem::new();
            fs.create_dir_all(path("/from")).unwrap();
            fs.create_dir_all(path("/to")).unwrap();
            fs.put_new(path("/from/f"), b"x").unwrap();
            fs.rename(path("/from/f"), path("/to/f")).unwrap();
            synced.iter().for_each(|dir| fs.sync_dir(path(dir)).unwrap());
            let mode = if seed == 0 { CrashMode::Drop } else { CrashMode::Torn };
            let after = fs.crash(mode, seed);
            let (old, new) = (after.exists(path("/from/f")).unwrap(), after.exists(path("/to/f")).unwrap());
            assert!(old != new, "seed {seed}, {synced:?} synced: {old} {new}");
            assert!(new || synced.len() < 2);
            assert!(seed > 0 || old || synced.len() == 2);
        }
    }
}

#[test]
fn a_node_that_was_renamed_twice_is_in_one_place() {
    for seed in 0..100 {
        let fs = SimFileSystem::new();
        for dir in ["/a", "/b", "/c"] {
            fs.create_dir_all(path(dir)).unwrap();
        }
        fs.create_dir_all(path("/a/d")).unwrap();
        fs.rename(path("/a/d"), path("/b/d")).unwrap();
        fs.rename(path("/b/d"), path("/c/d")).unwrap();
        if seed % 2 == 0 {
            fs.sync_dir(path("/b")).unwrap();
            fs.sync_dir(path("/c")).unwrap();
        }
        let after = fs.crash(CrashMode::Torn, seed);
        let found: Vec<&str> =
            ["/a/d", "/b/d", "/c/d"].into_iter().filter(|dir| after.exists(path(dir)).unwrap()).collect();
        assert_eq!(found.len(), 1, "seed {seed}: {found:?}");
        assert!(seed % 2 == 1 || found == ["/c/d"]);
    }
}

#[test]
fn a_late_rename_does_not_undo_a_newer_change() {
    let fs = SimFileSystem::new();
    fs.create_dir_all(path("/from")).unwrap();
    fs.create_dir_all(path("/to")).unwrap();
    fs.put_new(path("/from/f"), b"x").unwrap();
    fs.rename(path("/from/f"), path("/to/f")).unwrap();
    fs.remove_file(path("/to/f")).unwrap();
    fs.sync_dir(path("/to")).unwrap();
    fs.sync_dir(path("/from")).unwrap();
    assert!(fs.crash(CrashMode::Keep, 0).dump().is_empty());
}

#[test]
fn replace_leaves_old_or_new_wherever_the_machine_dies() {
    let mut ends = std::collections::BTreeSet::new();
    for mode in CrashMode::ALL {
        for seed in 0..20 {
            let fs = SimFileSystem::new();
            fs.create_dir_all(path("/d")).unwrap();
            fs.put_new(path("/d/f"), b"old").unwrap();
            fs.fail_at(fs.sync_points() + 1);
            assert!(fs.replace(path("/d/f"), b"new").is_err());
            assert!(fs.is_dead() && fs.read(path("/d/f")).is_err() && fs.exists(path("/d/f")).is_err());
            let bytes = fs.crash(mode, seed).read(path("/d/f")).unwrap();
            assert!(bytes == b"old" || bytes == b"new", "{bytes:?}");
            ends.insert(bytes);
        }
    }
    assert_eq!(ends.len(), 2);
}

#[test]
fn locks_exclude_and_die_with_the_machine() {
    let fs = SimFileSystem::new();
    let guard = fs.lock(path("/lock")).unwrap();
    assert_eq!(fs.lock(path("/lock")).err().unwrap().kind(), ErrorKind::WouldBlock);
    drop(guard);
    let _guard = fs.lock(path("/lock")).unwrap();
    let after = fs.crash(CrashMode::Keep, 0);
    assert!(fs.lock(path("/lock")).is_err());
    after.lock(path("/lock")).unwrap();
}

#[test]
fn faults_hit_the_operation_that_was_named() {
    let fs = SimFileSystem::new();
    fs.create_dir_all(path("/wal")).unwrap();
    fs.inject(Fault::new(Operation::Write, "wal/").nth(2).no_space());
    let mut file = fs.create(path("/wal/f")).unwrap();
    let mut other = fs.create(path("/other")).unwrap();
    other.write_all(b"xx").unwrap();
    file.write_all(b"ab").unwrap();
    other.write_all(b"xx").unwrap();
    assert_eq!(file.write_all(b"cdef").unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(fs.read(path("/wal/f")).unwrap(), b"abcd", "half of a failed write is there");
    file.write_all(b"e").unwrap();

    fs.inject(Fault::new(Operation::Rename, "other").forever());
    assert!(fs.rename(path("/other"), path("/another")).is_err());
    assert!(fs.rename(path("/other"), path("/another")).is_err());
    fs.clear_faults();
    fs.rename(path("/other"), path("/another")).unwrap();
    fs.inject(Fault::new(Operation::Read, "another"));
    assert!(fs.read(path("/another")).is_err());
    assert!(fs.read(path("/another")).is_ok());
}

#[test]
fn bytes_of_a_failed_sync_never_reach_the_disk() {
    let fs = SimFileSystem::new();
    let mut file = write(&fs, "/f", b"1", b"2");
    fs.inject(Fault::new(Operation::Sync, "f"));
    assert!(file.sync().is_err());
    file.write_all(b"3").unwrap();
    file.sync().unwrap();
    fs.sync_dir(path("/")).unwrap();
    assert_eq!(fs.crash(CrashMode::Drop, 0).read(path("/f")).unwrap(), b"1");
}

#[test]
fn every_sync_point_can_be_the_last() {
    let script = |fs: &SimFileSystem| -> io::Result<()> {
        fs.create_dir_all(path("/a/b"))?;
        let mut file = fs.create(path("/a/b/f"))?;
        file.write_all(b"x")?;
        file.sync()?;
        fs.sync_dir(path("/a/b"))?;
        fs.put_new(path("/a/g"), b"y")
    };
    let fs = SimFileSystem::new();
    script(&fs).unwrap();
    assert_eq!(fs.sync_points(), 5);
    for n in 1..=5 {
        let fs = SimFileSystem::new();
        fs.fail_at(n);
        assert!(script(&fs).is_err());
        assert_eq!(fs.sync_points(), n);
        let after = fs.crash(CrashMode::Drop, n);
        assert_eq!(after.exists(path("/a")).unwrap(), n > 1);
        assert_eq!(after.exists(path("/a/b/f")).unwrap(), n > 4);
    }
}

#[test]
fn a_lost_answer_is_in_doubt_until_both_names_are_looked_at() {
    let sim = SimFileSystem::new();
    let fs: &dyn FileSystem = &sim;
    fs.put_new(path("/f"), b"").unwrap();
    sim.inject(Fault::answer_lost("/f"));
    let error = fs.rename(path("/f"), path("/g")).unwrap_err();
    assert!(is_in_doubt(&error), "{error}");
    sim.inject(Fault::new(Operation::Exists, "/f"));
    let unknown = fs.resolve_rename(path("/f"), path("/g"), error).unwrap_err();
    assert!(is_in_doubt(&unknown), "{unknown}");
    fs.resolve_rename(path("/f"), path("/g"), unknown).unwrap();
    sim.inject(Fault::new(Operation::Rename, "/g"));
    let error = fs.rename(path("/g"), path("/f")).unwrap_err();
    assert!(!is_in_doubt(&error), "{error}");
    let error = fs.resolve_rename(path("/g"), path("/f"), error).unwrap_err();
    assert!(!is_in_doubt(&error), "{error}");
    assert_eq!(sim.faults_hit(), 3);
}

/// An error of one name is one of the whole list. It hits nothing else, and is not counted by faults of any operation.
#[test]
fn a_name_that_cannot_be_looked_at_fails_its_list() {
    for fs in [SimFileSystem::new(), SimFileSystem::hdfs(1)] {
        fs.create_dir_all(path("/d")).unwrap();
        for name in ["/d/a", "/d/b"] {
            fs.put_new(path(name), b"x").unwrap();
        }
        fs.inject(Fault::new(Operation::Entry, "/d/b"));
        assert!(fs.exists(path("/d/b")).unwrap() && fs.read(path("/d/b")).is_ok());
        assert!(fs.list(path("/d")).unwrap_err().to_string().contains("/d/b"));
        assert_eq!((fs.list(path("/d")).unwrap().len(), fs.faults_hit()), (2, 1));
        fs.inject(Fault::any().nth(2));
        fs.list(path("/d")).unwrap();
        assert!(fs.list(path("/d")).is_err());
    }
}
