use std::io::ErrorKind;
use std::path::Path;

use super::super::*;
use crate::{WritableFile, is_in_doubt};

const SEEDS: u64 = 50;

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn open_file(fs: &SimFileSystem, synced: &[u8], unsynced: &[u8]) -> Box<dyn WritableFile> {
    let mut file = fs.create(path("/f")).unwrap();
    file.write_all(synced).unwrap();
    file.sync().unwrap();
    file.write_all(unsynced).unwrap();
    file
}

/// A reader of an open file sees none of it or what was synced, and both happen.
#[test]
fn unsynced_bytes_are_invisible() {
    let mut seen = HashSet::new();
    for seed in 0..SEEDS {
        let fs = SimFileSystem::hdfs(seed);
        let file = open_file(&fs, b"synced", b", not synced");
        let len = fs.open(path("/f")).unwrap().len().unwrap();
        seen.insert(len);
        assert!([0, 6].contains(&len) && b"synced".starts_with(&fs.read(path("/f")).unwrap()));
        file.close().unwrap();
        assert_eq!(fs.read(path("/f")).unwrap(), b"synced, not synced");
    }
    assert_eq!(seen.len(), 2);
}

/// A seal keeps what was synced and a beginning of the rest, and the old writer adds nothing any more.
#[test]
fn a_sealed_file_is_final() {
    let mut lengths = HashSet::new();
    for seed in 0..SEEDS {
        let fs = SimFileSystem::hdfs(seed);
        let mut file = open_file(&fs, b"synced", b", not synced");
        fs.seal(path("/f")).unwrap();
        let sealed = fs.read(path("/f")).unwrap();
        assert!(sealed.starts_with(b"synced") && b"synced, not synced".starts_with(&sealed));
        lengths.insert(sealed.len());
        let _ = file.write_all(b"late"); // it may be collected in memory
        assert_eq!(file.sync().unwrap_err().kind(), ErrorKind::StaleNetworkFileHandle);
        file.close().unwrap_err();
        fs.seal(path("/f")).unwrap();
        assert_eq!(fs.read(path("/f")).unwrap(), sealed);
    }
    assert!(lengths.len() > 5, "the end is by chance: {lengths:?}");
    let error = SimFileSystem::hdfs(0).seal(path("/no")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// Nor does a writer whose file was removed, or replaced by another one of its name.
#[test]
fn a_writer_without_a_name_is_refused() {
    for replaced in [false, true] {
        let fs = SimFileSystem::hdfs(1);
        let mut file = open_file(&fs, b"old", b"");
        let reader = fs.open(path("/f")).unwrap();
        if replaced {
            fs.replace(path("/f"), b"new").unwrap();
        } else {
            fs.remove_file(path("/f")).unwrap();
        }
        file.write_all(b"more").unwrap();
        file.sync().unwrap_err();
        assert_eq!(reader.read_exact_at(&mut [0; 1], 0).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(fs.read(path("/f")).ok(), replaced.then(|| b"new".to_vec()));
    }
}

#[test]
fn a_program_that_died_leaves_its_file_open() {
    for (mode, expected) in [(CrashMode::Drop, &b"synced"[..]), (CrashMode::Keep, b"synced, not synced")] {
        let fs = SimFileSystem::hdfs(1);
        fs.create_dir(path("/d")).unwrap();
        let file = open_file(&fs, b"synced", b", not synced");
        let after = fs.crash(mode, 2);
        drop(file);
        assert!(after.exists(path("/d")).unwrap(), "names are durable at once");
        after.seal(path("/f")).unwrap();
        assert_eq!(after.read(path("/f")).unwrap(), expected);
        assert_eq!(after.create(path("/f")).err().map(|error| error.kind()), Some(ErrorKind::AlreadyExists));
    }
}

#[test]
fn a_late_change_is_done_when_nobody_waits_any_more() {
    let fs = SimFileSystem::hdfs(1);
    for name in ["/a", "/b", "/c"] {
        fs.put_new(path(name), name.as_bytes()).unwrap();
    }
    for from in ["/a", "/b"] {
        fs.inject(Fault::new(Operation::Rename, from).but_done_later());
        let error = fs.rename(path(from), path("/moved")).unwrap_err();
        assert!(is_in_doubt(&error) && fs.exists(path(from)).unwrap());
    }
    fs.inject(Fault::new(Operation::Remove, "/c").but_done());
    assert!(is_in_doubt(&fs.remove_file(path("/c")).unwrap_err()));
    assert!(!fs.exists(path("/c")).unwrap());
    fs.remove_file(path("/a")).unwrap();
    let after = fs.crash(CrashMode::Drop, 1);
    after.deliver_late();
    assert_eq!(after.dump(), [("/moved".into(), 2)], "the one without a source comes to nothing");
    assert_eq!(fs.faults_hit(), 3);
}

/// The writer fails while a DataNode of its file is away, and stays so afterwards. What was synced is readable.
#[test]
fn data_nodes_that_die_end_the_writers() {
    let mut failed = 0;
    for seed in 0..SEEDS {
        let fs = SimFileSystem::hdfs(seed);
        let mut file = open_file(&fs, b"synced", b"");
        fs.set_data_node(0, false);
        file.write_all(b"more").unwrap();
        let synced = file.sync();
        fs.set_data_node(0, true);
        assert_eq!(file.sync().is_ok(), synced.is_ok(), "a writer that failed stays so");
        failed += u32::from(synced.is_err());
        fs.seal(path("/f")).unwrap();
        let expected = if synced.is_ok() { "syncedmore" } else { "synced" };
        assert!(fs.read(path("/f")).unwrap().starts_with(expected.as_bytes()));
    }
    assert!((1..50).contains(&failed), "{failed}: a file lies on three of four");
    let fs = SimFileSystem::hdfs(3);
    drop(open_file(&fs, b"synced", b""));
    (0..4).for_each(|node| fs.set_data_node(node, false));
    fs.read(path("/f")).unwrap_err();
}

#[test]
fn disturbed_answers_repeat_with_their_seed() {
    let run = |seed| {
        let fs = SimFileSystem::hdfs(seed);
        fs.disturb(3);
        let mut answers = Vec::new();
        for n in 0..200 {
            let name = format!("/{}", n % 7);
            let moved =
                fs.rename(path(&name), path("/x")).map_err(|error| (error.kind(), is_in_doubt(&error)));
            answers.push((
                fs.put_new(path(&name), b"").map_err(|error| (error.kind(), is_in_doubt(&error))),
                moved,
            ));
        }
        (answers, fs.dump())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let (answers, _) = run(1);
    let in_doubt = answers.iter().filter(|(put, _)| matches!(put, Err((_, true)))).count();
    assert!(in_doubt > 10, "{in_doubt}");
}

/// What another server does while the caller of one call stands still.
#[test]
fn a_caller_pauses_before_its_call() {
    let fs = SimFileSystem::hdfs(1);
    fs.put_new(path("/f"), b"").unwrap();
    let other = fs.clone();
    fs.pause_at(fs.calls() + 2, move || other.remove_file(path("/f")).unwrap());
    assert!(fs.exists(path("/f")).unwrap());
    assert_eq!(fs.rename(path("/f"), path("/g")).unwrap_err().kind(), ErrorKind::NotFound);
}
