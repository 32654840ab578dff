//! Files that have a size that they cannot exceed, as a WAL in HDFS that has one block.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common;
use halcyon_cell::{Cell, ErrorKind, Result, SeqId};
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_env::{Env, FileSystem, ManualClock};
use halcyon_wal::{Durability, SyncMode, Wal, WalConfig, WalEntry, WalReader};
use parking_lot::Mutex;

const DIR: &str = "/hbase/WALs/s";
const FILE_BYTES: u64 = 1 << 20;

/// What each append was told, by its sequence id.
type Told = Vec<(u64, Result<()>)>;

struct Bench {
    fs: SimFileSystem,
    clock: Arc<ManualClock>,
    wal: Arc<Wal>,
    told: Arc<Mutex<Told>>,
}

impl Bench {
    fn new(change: impl FnOnce(&mut WalConfig)) -> Bench {
        let (fs, clock) = (SimFileSystem::hdfs(1), Arc::new(ManualClock::at(1_700_000_000_000)));
        fs.set_len_max(FILE_BYTES);
        let mut config = common::config(DIR, "/hbase/oldWALs", "s");
        config.sync_mode = SyncMode::Remote;
        change(&mut config);
        let wal = Wal::open(Env { clock: clock.clone(), ..common::env(&fs) }, config).unwrap();
        Bench { fs, clock, wal, told: Arc::default() }
    }

    fn append(&self, seq: u64, len: usize) -> Result<()> {
        let value: Vec<u8> = (0..len as u64).map(|n| ((n * n * 31 + n * 7 + seq) >> 3) as u8).collect();
        let cell = Cell::put(b"r", b"f", b"q", 1, &value).with_seq(seq);
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
        let told = self.told.clone();
        let completion = Box::new(move |result: &Result<()>| told.lock().push((seq, result.clone())));
        self.wal.append(&entry, Durability::SyncWal, completion)
    }

    fn drive(&self) {
        for _ in 0..10 {
            self.wal.drive();
            self.clock.advance(Duration::from_secs(2));
        }
    }

    /// Sequence ids of each file, oldest file first.
    fn files(&self) -> Vec<Vec<u64>> {
        let env = Env { clock: self.clock.clone(), ..common::env(&self.fs) };
        let read = |path: PathBuf| {
            self.fs.seal(&path).unwrap();
            assert!(self.fs.open(&path).unwrap().len().unwrap() <= FILE_BYTES);
            let reader = WalReader::open(&env, &path).unwrap();
            reader.map(|entry| entry.unwrap().0.log_sequence_number).collect()
        };
        let names = self.fs.list(Path::new(DIR)).unwrap();
        names.into_iter().map(|entry| read(Path::new(DIR).join(entry.name))).collect()
    }

    fn assert_all_ok(&self, count: u64) {
        let told = self.told.lock();
        assert!(told.iter().all(|(_, result)| result.is_ok()), "{told:?}");
        assert!(told.iter().map(|(seq, _)| *seq).eq(1..=count), "{told:?}");
        assert!(self.files().concat().into_iter().eq(1..=count), "{:?}", self.files());
        assert!(self.wal.stopped().is_none());
    }
}

/// It was accepted and could never be written. After fifteen seconds the log stopped, and with it all writes of the server; the
/// client took it to the next one.
#[test]
fn an_entry_that_fits_no_file_is_refused_and_the_log_goes_on() {
    let test = || {
        let bench = Bench::new(|_| {});
        bench.append(1, 1000).unwrap();
        for len in [FILE_BYTES as usize - 100, FILE_BYTES as usize, 3 << 19] {
            let refused = bench.append(2, len).expect_err("no file takes it");
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.message().contains("hbase.regionserver.hlog.blocksize"), "{refused}");
        }
        bench.append(2, 1000).unwrap();
        bench.drive();
        bench.append(3, 1000).unwrap();
        bench.drive();
        bench.assert_all_ok(3);
        assert_eq!(bench.files().len(), 1);
    };
    test();
    common::encrypted(test);
    common::compressed(test);
}

/// The largest entry that is taken.
#[test]
fn an_entry_that_is_taken_is_written() {
    let test = || {
        let bench = Bench::new(|_| {});
        let len = (1..21).map(|part| part * FILE_BYTES as usize / 20).rev();
        let largest = len.clone().find(|len| bench.wal.check_entry_len(*len).is_ok()).unwrap();
        assert!(largest >= FILE_BYTES as usize * 2 / 5, "{largest}");
        for seq in 1..=4 {
            bench.append(seq, largest - 2000).unwrap();
            bench.drive();
        }
        bench.assert_all_ok(4);
    };
    test();
    common::encrypted(test);
    common::compressed(test);
}

/// What is appended while the log has no file, or one that does not answer, may be more than a file takes.
#[test]
fn a_round_that_is_larger_than_a_file_is_written_in_parts() {
    let test = |files_count_min: usize| {
        let bench = Bench::new(|config| config.errors_tolerated = 0);
        (1..=30).for_each(|seq| bench.append(seq, 100_000).unwrap());
        bench.drive();
        bench.assert_all_ok(30);
        assert!(bench.files().len() >= files_count_min);
    };
    test(3);
    common::encrypted(|| test(3));
    common::compressed(|| test(1)); // these values get small
}

#[test]
fn large_entries_are_written_after_errors_of_files() {
    let bench = Bench::new(|config| config.buffer_max_bytes = 1000);
    bench.fs.inject(Fault::new(Operation::Sync, DIR));
    bench.fs.inject(Fault::new(Operation::Create, DIR));
    bench.append(1, 700_000).unwrap();
    bench.wal.drive();
    assert!(bench.told.lock().is_empty());
    assert_eq!(bench.append(2, 700_000).unwrap_err().kind(), ErrorKind::Busy);
    bench.drive();
    bench.append(2, 700_000).unwrap();
    bench.drive();
    let told = bench.told.lock();
    assert!(told.len() == 2 && told.iter().all(|(_, result)| result.is_ok()), "{told:?}");
}

#[test]
fn more_than_a_file_takes_is_rolled_and_closed() {
    for close in [false, true] {
        let bench = Bench::new(|_| {});
        bench.append(1, 1000).unwrap();
        bench.drive();
        (2..=25).for_each(|seq| bench.append(seq, 100_000).unwrap());
        if close {
            bench.wal.close().unwrap();
        } else {
            bench.wal.roll().unwrap();
            bench.drive();
        }
        let told = bench.told.lock();
        assert_eq!(told.len(), 25);
        assert!(told.iter().all(|(_, result)| result.is_ok()), "close {close}: {told:?}");
    }
}

/// A limit that is not what it was said to be: these writes fail, once, and others go on.
#[test]
fn what_fits_no_file_after_all_fails_and_is_not_tried_again() {
    let bench = Bench::new(|config| config.errors_tolerated = 0);
    bench.append(1, 1000).unwrap();
    bench.drive();
    bench.fs.set_len_max(200_000);
    bench.append(2, 500_000).unwrap();
    bench.drive();
    bench.append(3, 1000).unwrap();
    bench.drive();
    let told = bench.told.lock();
    let kinds: Vec<_> =
        told.iter().map(|(seq, result)| (*seq, result.as_ref().err().map(|e| e.kind()))).collect();
    assert_eq!(kinds, [(1, None), (2, Some(ErrorKind::Invalid)), (3, None)]);
    assert!(bench.files().len() <= 4, "{:?}", bench.files());
    assert!(bench.wal.stopped().is_none());
}
