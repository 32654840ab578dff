use std::sync::Arc;

use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};
use halcyon_env::{FileSystem, ManualClock};
use halcyon_testkit::for_each_seed;

use super::*;

const STORE: &str = "/t/r/f";
const A: &str = "0123456789abcdef0123456789abcdef";
const B: &str = "11112222333344445555666677778888";

fn env_of(fs: &SimFileSystem) -> Env {
    Env { clock: Arc::new(ManualClock::at(1_000)), ..fs.env() }
}

fn disk() -> (SimFileSystem, Env) {
    let fs = SimFileSystem::new();
    fs.create_dir_all(Path::new(STORE)).unwrap();
    let env = env_of(&fs);
    (fs, env)
}

fn begin(env: &Env) -> OpeningDir {
    OpeningDir::begin(env, Path::new("/t/r"), Path::new("/archive/t/r")).unwrap()
}

fn open(env: &Env) -> (FileList, Option<Vec<Listed>>) {
    FileList::open(env, Path::new(STORE)).unwrap()
}

fn file(name: &str) -> Listed {
    Listed { name: name.to_string(), len: 7 }
}

fn read(env: &Env) -> Vec<String> {
    read_list(env, Path::new(STORE)).unwrap().into_iter().map(|file| file.name).collect()
}

fn names(fs: &SimFileSystem) -> Vec<String> {
    let dir = Path::new(STORE).join(DIR);
    fs.list(&dir).unwrap_or_default().into_iter().map(|entry| entry.name).collect()
}

fn put(fs: &SimFileSystem, name: &str, bytes: &[u8]) {
    let dir = Path::new(STORE).join(DIR);
    fs.create_dir_all(&dir).unwrap();
    fs.replace(&dir.join(name), bytes).unwrap();
}

/// Written by HBase 2.6.4: a store with three files.
const GOLDEN: &[u8] = include_bytes!("../../../testdata/filelist.hbase");

#[test]
fn bytes_are_those_of_hbase() {
    let list = decode(GOLDEN).unwrap().unwrap();
    let files: Vec<Listed> =
        list.store_file.iter().map(|entry| Listed { name: entry.name.clone(), len: entry.size }).collect();
    assert!(!files.is_empty() && files.iter().all(|file| file.len > 0), "{files:?}");
    assert_eq!(encode(list.timestamp, files), GOLDEN);
}

#[test]
fn two_files_in_turn_and_the_newest_opening_counts() {
    let (fs, env) = disk();
    let place = begin(&env);
    let (mut list, before) = open(&env);
    assert_eq!((before, names(&fs)), (None, vec![]), "an opening alone writes nothing");
    list.write(&place, vec![file(A)]).unwrap();
    assert_eq!(names(&fs), ["f1.1000"]);
    list.write(&place, vec![file(A), file(B)]).unwrap();
    assert_eq!(names(&fs), ["f2.1000"]);
    list.write(&place, vec![file(B)]).unwrap();
    assert_eq!(names(&fs), ["f1.1000"]);
    let (mut list, found) = open(&env);
    assert_eq!(found, Some(vec![file(B)]));
    list.write(&place, vec![]).unwrap();
    assert_eq!(names(&fs), ["f1.1000", "f1.1001"], "with the clock at 1000 still");
    assert_eq!(open(&env).1, Some(vec![]));
    assert_eq!(names(&fs), ["f1.1001"], "an opening removes what an earlier one wrote");
}

#[test]
fn of_one_opening_the_later_list_counts() {
    let (fs, env) = disk();
    put(&fs, "f1.5", &encode(8, vec![file(A)]));
    put(&fs, "f2.5", &encode(9, vec![file(B)]));
    assert_eq!(read(&env), [B]);
    put(&fs, "f2.5", &encode(8, vec![file(B)]));
    assert_eq!(read(&env), [A], "the first one of two that are alike, as in HBase");
    // Before HBASE-27230 the names had no number.
    let (fs, env) = disk();
    put(&fs, "f1", &encode(3, vec![file(A)]));
    put(&fs, "README", b"of nobody");
    assert_eq!(read(&env), [A]);
    put(&fs, "f2.1", &encode(2, vec![]));
    assert!(read(&env).is_empty());
}

/// What HBase leaves when it dies while it writes one.
#[test]
fn a_list_that_ends_too_early_was_never_written() {
    let (fs, env) = disk();
    let whole = encode(9, vec![file(B)]);
    put(&fs, "f1.5", &encode(8, vec![file(A)]));
    for len in 0..whole.len() {
        put(&fs, "f2.5", &whole[..len]);
        assert_eq!(read(&env), [A], "{len} bytes");
        put(&fs, "f2.6", &whole[..len]);
        assert_eq!(read(&env), [A], "{len} bytes of a newer opening");
        fs.remove_file(&Path::new(STORE).join(DIR).join("f2.6")).unwrap();
    }
    put(&fs, "f2.5", &whole);
    assert_eq!(read(&env), [B]);
}

#[test]
fn damage_is_an_error() {
    let (fs, env) = disk();
    let error = |fs: &SimFileSystem| {
        let read = read_list(&env_of(fs), Path::new(STORE)).map(|_| ());
        let opened = FileList::open(&env_of(fs), Path::new(STORE)).map(|_| ());
        let error = read.unwrap_err();
        assert_eq!(error.message(), opened.unwrap_err().message());
        error
    };
    let whole = encode(9, vec![file(B)]);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        put(&fs, "f1.5", &bytes);
        // A length that is larger now makes the list one that ends too early.
        let is_longer =
            at < NUMBER_LEN && u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize > whole.len() - 8;
        let is_too_long =
            u32::from_be_bytes(bytes[..4].try_into().unwrap()) as i32 > LEN_MAX || bytes[0] & 0x80 != 0;
        if is_longer && !is_too_long {
            assert!(read(&env).is_empty(), "byte {at}");
            continue;
        }
        let error = error(&fs);
        assert!(error.message().contains("f1.5") && error.message().contains("offset"), "byte {at}: {error}");
    }
    put(&fs, "f1.5", &encode(9, vec![file("../../other")]));
    assert!(error(&fs).message().contains("doesn't look like a valid StoreFile"));
    let later = pb::StoreFileList { timestamp: 9, store_file: vec![], version: Some(2) }.encode_to_vec();
    let mut bytes = (later.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&later);
    bytes.extend_from_slice(&crc32fast::hash(&later).to_be_bytes());
    put(&fs, "f1.5", &bytes);
    assert!(error(&fs).message().contains("higher store file list version"));
    for name in ["f1", "f1.0", "f2.00"] {
        put(&fs, name, &whole);
    }
    assert!(error(&fs).message().contains("at most 2 track files"));
}

/// Any bytes: an error or a list, never a panic.
#[test]
fn damaged_by_seed() {
    for_each_seed("-p halcyon-region --lib file_list::tests::damaged_by_seed", 0..2_000, |seed| {
        let mut state = seed;
        let mut below = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % end
        };
        let mut bytes = encode(9, vec![file(A), file(B)]);
        for _ in 0..below(4) + 1 {
            let at = below(bytes.len());
            bytes[at] = below(256) as u8;
        }
        bytes.truncate(below(bytes.len() + 1));
        let _ = decode(&bytes);
        // And with a length and a checksum that are right.
        if bytes.len() > 2 * NUMBER_LEN {
            let end = bytes.len() - NUMBER_LEN;
            bytes[..NUMBER_LEN].copy_from_slice(&((end - NUMBER_LEN) as u32).to_be_bytes());
            let checksum = crc32fast::hash(&bytes[NUMBER_LEN..end]).to_be_bytes();
            bytes[end..].copy_from_slice(&checksum);
            if let Ok(Some(list)) = decode(&bytes) {
                let _ = files_of(list, Path::new(STORE));
            }
        }
    });
}

/// The region has been opened elsewhere. A list by the same name may be there from before.
#[test]
fn an_opening_that_lost_the_region_writes_no_list() {
    for earlier in [0, 1, 2] {
        let (_, env) = disk();
        let place = begin(&env);
        let (mut list, _) = open(&env);
        for _ in 0..earlier {
            list.write(&place, vec![file(A)]).unwrap();
        }
        let second = begin(&env);
        let (mut of_second, found) = open(&env);
        list.write(&place, vec![file(B)]).unwrap_err();
        list.write(&place, vec![file(B)]).unwrap_err();
        assert_eq!(
            read(&env),
            found.unwrap_or_default().into_iter().map(|file| file.name).collect::<Vec<_>>()
        );
        of_second.write(&second, vec![file(A), file(B)]).unwrap();
        list.write(&place, vec![]).unwrap_err();
        assert_eq!(read(&env), [A, B]);
    }
}

/// Each call of a write fails, or fails to answer, or stands in doubt until later; and the machine dies at each.
#[test]
fn a_write_that_fails_leaves_the_old_list_or_says_so() {
    let mut hits = 0;
    for kind in 0..3 {
        for nth in 1..20 {
            let fs = SimFileSystem::hdfs(nth);
            fs.create_dir_all(Path::new(STORE)).unwrap();
            let env = env_of(&fs);
            let place = begin(&env);
            let (mut list, _) = open(&env);
            list.write(&place, vec![file(A)]).unwrap();
            let fault = Fault::any().nth(nth);
            fs.inject(match kind {
                0 => fault,
                1 => fault.but_done(),
                _ => fault.but_done_later(),
            });
            let written = list.write(&place, vec![file(B)]);
            let is_hit = fs.faults_hit() > 0;
            fs.clear_faults();
            hits += usize::from(is_hit);
            match written {
                Ok(()) => assert_eq!(read(&env), [B], "kind {kind}, call {nth}"),
                Err(_) if list.is_ahead() => {}
                Err(_) => {
                    fs.deliver_late();
                    assert_eq!(read(&env), [A], "kind {kind}, call {nth}");
                }
            }
            list.write(&place, vec![file(A), file(B)]).unwrap();
            fs.deliver_late();
            assert_eq!(read(&env), [A, B], "kind {kind}, call {nth}");
            for mode in [CrashMode::Drop, CrashMode::Torn] {
                let after = fs.crash(mode, nth);
                assert_eq!(read(&env_of(&after)), [A, B], "kind {kind}, call {nth}, after a crash");
            }
            if !is_hit {
                break;
            }
        }
    }
    assert!(hits > 15, "{hits}");
}

#[test]
fn a_machine_that_dies_has_one_list_or_the_other() {
    let mut crashes = 0;
    for call in 1..30 {
        let (fs, env) = disk();
        let place = begin(&env);
        let (mut list, _) = open(&env);
        list.write(&place, vec![file(A)]).unwrap();
        fs.inject(Fault::any().nth(call).forever());
        let written = list.write(&place, vec![file(B)]);
        for mode in [CrashMode::Drop, CrashMode::Keep, CrashMode::Torn] {
            let found = read(&env_of(&fs.crash(mode, call)));
            assert!(found == [B] || written.is_err() && found == [A], "before call {call}: {found:?}");
        }
        if written.is_ok() && fs.faults_hit() == 0 {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 5, "{crashes}");
}

/// The owner writes while another one reads.
#[test]
fn a_reader_sees_a_list_that_was_there() {
    for call in 1..8 {
        let (fs, env) = disk();
        put(&fs, "f1.3", &encode(1, vec![])); // of an earlier opening
        let place = begin(&env);
        let mut list = open(&env).0;
        list.write(&place, vec![file(A)]).unwrap();
        put(&fs, "f1.3", &encode(1, vec![]));
        fs.pause_at(fs.calls() + call, move || list.write(&place, vec![file(A), file(B)]).unwrap());
        let found = read(&env);
        assert!(found == [A] || found == [A, B], "before call {call}: {found:?}");
    }
}

#[test]
fn the_list_of_a_closed_region_is_replaced() {
    let (fs, env) = disk();
    replace_closed(&env, Path::new(STORE), vec![file(A)]).unwrap();
    replace_closed(&env, Path::new(STORE), vec![file(B)]).unwrap();
    assert_eq!(read(&env), [B]);
    let (_, found) = open(&env);
    assert_eq!(found, Some(vec![file(B)]));
    fs.inject(Fault::new(Operation::Rename, "list"));
    replace_closed(&env, Path::new(STORE), vec![]).unwrap_err();
    assert_eq!(read(&env), [B]);
}
