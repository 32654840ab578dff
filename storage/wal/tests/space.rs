//! A disk without space: appends wait or are refused, nothing is lost or written twice, and the log goes on.

use crate::common;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use halcyon_cell::{Cell, ErrorKind, Result, SeqId};
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_env::{Clock, Env, FileSystem, ManualClock};
use halcyon_wal::{Durability, SyncMode, Wal, WalEntry, WalReader, split_logs};

const DIR: &str = "/hbase/WALs/s";

struct Bench {
    fs: SimFileSystem,
    clock: Arc<ManualClock>,
    wal: Arc<Wal>,
    done: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
}

impl Bench {
    fn new(sync_mode: SyncMode) -> Bench {
        let fs = SimFileSystem::new();
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let env = Env { clock: clock.clone(), ..fs.env() };
        let mut config = common::config(DIR, "/hbase/oldWALs", "s");
        config.sync_mode = sync_mode;
        let wal = Wal::open(env, config).unwrap();
        Bench { fs, clock, wal, done: Arc::default(), failed: Arc::default() }
    }

    fn append(&self, seq: u64) -> Result<()> {
        let cell = Cell::put(b"r", b"f", &seq.to_be_bytes(), seq as i64, &[seq as u8; 300]).with_seq(seq);
        let cells = [cell.get()];
        let entry = WalEntry {
            region: b"region",
            table: b"t",
            seq: SeqId::new(seq),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        let (done, failed) = (self.done.clone(), self.failed.clone());
        let completion = move |result: &Result<()>| {
            let count = if result.is_ok() { done } else { failed };
            count.fetch_add(1, Ordering::SeqCst);
        };
        self.wal.append(&entry, Durability::SyncWal, Box::new(completion))
    }

    fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// Sequence ids in all files, oldest file first.
    fn written(&self) -> Vec<u64> {
        let env = Env { clock: self.clock.clone(), ..self.fs.env() };
        let mut seqs = Vec::new();
        for file in self.fs.dump().into_iter().filter(|(path, _)| path.starts_with(Path::new(DIR))) {
            let mut reader = WalReader::open(&env, &file.0).unwrap();
            for entry in &mut reader {
                seqs.push(entry.unwrap().0.log_sequence_number);
            }
            assert_eq!(reader.torn_at(), None, "{}", file.0.display());
        }
        seqs
    }

    fn retry_later(&self) {
        self.clock.advance(Duration::from_millis(200));
        self.wal.drive();
    }
}

#[test]
fn writes_wait_for_space_and_new_ones_are_refused() {
    for sync_mode in [SyncMode::Written, SyncMode::Fsync] {
        let bench = Bench::new(sync_mode);
        bench.append(1).unwrap();
        bench.wal.drive();
        bench.append(2).unwrap();
        bench.append(3).unwrap();
        bench.fs.inject(Fault::new(Operation::Write, "WALs").no_space().forever());
        bench.wal.drive();
        assert_eq!(bench.done(), 1, "{sync_mode:?}: the others wait");
        let refused = bench.append(4).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy);
        assert!(refused.message().contains("waits for space on the disk"), "{refused}");
        assert!(refused.message().contains("No space left on device"), "{refused}");
        assert!(bench.wal.no_space().is_some() && bench.wal.stopped().is_none());
        assert_eq!(bench.wal.roll().unwrap_err().kind(), ErrorKind::Busy);
        for _ in 0..5 {
            bench.retry_later();
        }
        assert_eq!(bench.done(), 1);

        bench.fs.clear_faults();
        bench.wal.drive();
        assert_eq!(bench.done(), 1, "not before the next attempt is due");
        bench.retry_later();
        assert_eq!(bench.done(), 3);
        assert!(bench.wal.no_space().is_none());
        bench.append(5).unwrap();
        bench.wal.roll().unwrap();
        bench.append(6).unwrap();
        bench.wal.close().unwrap();
        assert_eq!((bench.done(), bench.failed.load(Ordering::SeqCst)), (5, 0));
        assert_eq!(bench.written(), [1, 2, 3, 5, 6], "{sync_mode:?}");
    }
}

#[test]
fn a_roll_that_finds_no_space_leaves_the_old_file() {
    let bench = Bench::new(SyncMode::Fsync);
    bench.append(1).unwrap();
    bench.wal.drive();
    bench.append(2).unwrap();
    // The header of the new file fits, what waits for the old one does not.
    bench.fs.inject(Fault::new(Operation::Write, "WALs").nth(2).no_space());
    let file = bench.wal.current_file();
    assert_eq!(bench.wal.roll().unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(bench.wal.current_file(), file);
    bench.retry_later();
    assert_eq!(bench.done(), 2);
    // The accounts are the old file's again: it stays as long as the region has not flushed.
    assert!(bench.wal.roll().unwrap().archived.is_empty());
    bench.wal.flushed(b"region", SeqId::new(2));
    assert_eq!(bench.wal.archive().len(), 1);
    assert_eq!(bench.clock.now_ms() - 1_700_000_000_000, 200);
}

#[test]
fn a_log_that_is_closed_without_space_says_so() {
    let bench = Bench::new(SyncMode::Written);
    bench.append(1).unwrap();
    bench.fs.inject(Fault::new(Operation::Write, "WALs").no_space().forever());
    let error = bench.wal.close().unwrap_err();
    assert!(error.message().contains("No space left on device"), "{error}");
    assert_eq!((bench.done(), bench.failed.load(Ordering::SeqCst)), (0, 1));
}

/// Also what waits for space; a server that has given up would wait for ever for it.
#[test]
fn a_log_that_is_abandoned_fails_what_waits_and_writes_nothing_more() {
    for sync_mode in [SyncMode::Written, SyncMode::Fsync] {
        let bench = Bench::new(sync_mode);
        bench.append(1).unwrap();
        bench.wal.drive();
        bench.append(2).unwrap();
        bench.fs.inject(Fault::new(Operation::Write, "WALs").no_space().forever());
        bench.wal.drive();
        assert_eq!((bench.done(), bench.failed.load(Ordering::SeqCst)), (1, 0), "{sync_mode:?}: it waits");
        for _ in 0..2 {
            bench.wal.abandon("the test says so");
            bench.wal.drive();
            assert_eq!((bench.done(), bench.failed.load(Ordering::SeqCst)), (1, 1), "{sync_mode:?}");
        }
        let refused = bench.append(3).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Stopping);
        assert!(refused.message().contains("has ended: the test says so"), "{refused}");
        bench.fs.clear_faults();
        bench.retry_later();
        assert_eq!(bench.written(), [1], "{sync_mode:?}");
    }
}

#[test]
fn a_failed_sync_is_never_tried_again() {
    let bench = Bench::new(SyncMode::Fsync);
    bench.append(1).unwrap();
    bench.fs.inject(Fault::new(Operation::Sync, "WALs"));
    bench.wal.drive();
    assert_eq!((bench.done(), bench.failed.load(Ordering::SeqCst)), (1, 0), "in another file");
    assert!(bench.wal.stopped().is_none() && bench.wal.no_space().is_none());
    assert_eq!((bench.wal.stats().replacements, bench.wal.stats().files_count), (1, 2));
}

/// A log that was closed by dropping it ended well whatever the file system said.
#[test]
fn a_log_says_that_its_file_was_not_closed() {
    let bench = Bench::new(SyncMode::Fsync);
    bench.append(1).unwrap();
    bench.wal.drive();
    bench.fs.inject(Fault::new(Operation::Close, DIR));
    bench.wal.roll().unwrap(); // the entries of the old file are on disk
    assert_eq!(bench.fs.faults_hit(), 1);
    bench.append(2).unwrap();
    bench.wal.drive();
    assert_eq!(bench.done(), 2);
    bench.fs.inject(Fault::new(Operation::Close, DIR));
    bench.wal.close().unwrap_err();
    assert_eq!(bench.fs.faults_hit(), 2);
    assert_eq!(bench.written(), [1, 2]);
}

/// A split whose file cannot be closed has not succeeded, and is done again.
#[test]
fn recovered_edits_get_their_name_after_their_file_is_closed() {
    let bench = Bench::new(SyncMode::Fsync);
    bench.append(1).unwrap();
    bench.wal.drive();
    bench.wal.close().unwrap();
    let env = bench.fs.env();
    let split = || split_logs(&env, Path::new(DIR), &|_, _| Ok(Some("/hbase/edits".into())));
    let names = || -> Vec<String> {
        let entries = env.fs.list(Path::new("/hbase/edits")).unwrap();
        entries.into_iter().map(|entry| entry.name).filter(|name| !name.ends_with(".temp")).collect()
    };
    bench.fs.inject(Fault::new(Operation::Close, "/hbase/edits"));
    split().unwrap_err();
    assert_eq!(bench.fs.faults_hit(), 1);
    assert!(names().is_empty());
    split().unwrap();
    assert_eq!(names().len(), 1);
}

/// A rename whose answer was lost had moved a file to the archive. The log tried again for ever.
#[test]
fn a_file_that_was_archived_without_an_answer_is_done_with() {
    let bench = Bench::new(SyncMode::Fsync);
    bench.append(1).unwrap();
    bench.wal.drive();
    bench.wal.flushed(b"region", SeqId::new(1));
    bench.fs.inject(Fault::answer_lost(DIR).nth(2)); // the first gives the new file its name
    let rolled = bench.wal.roll().unwrap();
    assert_eq!((bench.fs.faults_hit(), rolled.archived.len()), (1, 1));
    assert_eq!(bench.wal.stats().files_count, 1);
    assert!(bench.fs.exists(&rolled.archived[0]).unwrap());
}

/// A server that was declared dead made its directory again with its next log, and nobody looked at that directory.
#[test]
fn a_log_whose_directory_was_taken_away_does_not_make_it_again() {
    let bench = Bench::new(SyncMode::Fsync);
    let (dir, taken) = (Path::new(DIR), Path::new("/hbase/WALs/s-splitting"));
    bench.fs.rename(dir, taken).unwrap();
    bench.wal.roll().unwrap_err();
    let mut config = common::config(DIR, "/hbase/oldWALs", "s");
    config.meta = true;
    assert!(Wal::open_in_place(bench.fs.env(), config).is_err());
    assert!(!bench.fs.exists(dir).unwrap());
}

/// Recovered edits of two logs with the same last sequence id had the same name, and one took the place of the other.
#[test]
fn recovered_edits_of_two_logs_do_not_share_a_name() {
    let edits = Path::new("/hbase/edits");
    let fs = SimFileSystem::new();
    let live = |server: &str, seqs: &[u64]| {
        let dir = Path::new("/hbase/WALs").join(server);
        let wal = Wal::open(fs.env(), common::config(dir.clone(), "/hbase/oldWALs", server)).unwrap();
        let bench = Bench {
            fs: fs.clone(),
            clock: Arc::new(ManualClock::at(1)),
            wal,
            done: Arc::default(),
            failed: Arc::default(),
        };
        seqs.iter().for_each(|&seq| bench.append(seq).unwrap());
        bench.wal.drive();
        bench.wal.close().unwrap();
        dir
    };
    let logs = [live("a", &[1, 7]), live("b", &[2, 3, 7]), live("c", &[4, 7])];
    let mut names = Vec::new();
    for _ in 0..2 {
        for dir in &logs {
            split_logs(&fs.env(), dir, &|_, _| Ok(Some(edits.into()))).unwrap();
        }
        names = fs.list(edits).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), 3, "{names:?}: the second split finds its files");
        assert!(names.iter().all(|name| name.parse::<u64>() == Ok(7)), "{names:?}: HBase reads these");
    }
    let mut seqs = Vec::new();
    for name in names {
        let reader = WalReader::open(&fs.env(), &edits.join(name)).unwrap();
        seqs.extend(reader.map(|entry| entry.unwrap().0.log_sequence_number));
    }
    seqs.sort_unstable();
    assert_eq!(seqs, [1, 2, 3, 4, 7, 7, 7]);
}

/// What did not fit is in the dictionaries already, and is written as it was encoded.
#[test]
fn compressed_writes_wait_for_space_as_well() {
    common::compressed(|| {
        writes_wait_for_space_and_new_ones_are_refused();
        a_roll_that_finds_no_space_leaves_the_old_file();
        a_log_that_is_closed_without_space_says_so();
    });
}
