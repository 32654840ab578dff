//! Rolls of a log that has more in its buffer than one round takes: of values with a slow codec, or of files with a limit.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common;
use halcyon_cell::{Cell, ErrorKind, Result, SeqId};
use halcyon_env::sim::{Fault, Operation, SimDisk, SimFileSystem};
use halcyon_env::{Env, FileSystem, ManualClock};
use halcyon_schema::Compression;
use halcyon_wal::{Durability, SyncMode, Wal, WalCompression, WalEntry, WalReader};
use parking_lot::Mutex;

const DIR: &str = "/hbase/WALs/s";
const ARCHIVE_DIR: &str = "/hbase/oldWALs";
/// Files of this size have rounds of three entries.
const LEN_MAX: u64 = 12_500;
const VALUE_BYTES: usize = 3_000;

struct Bench {
    fs: SimFileSystem,
    clock: Arc<ManualClock>,
    wal: Arc<Wal>,
    /// Sequence ids in the order in which they were acknowledged, and the bytes that were buffered then.
    told: Arc<Mutex<Vec<(u64, usize)>>>,
}

impl Bench {
    /// With rounds that fit into a file of that size.
    fn new(sync_mode: SyncMode, len_max: u64) -> Bench {
        let disk = if sync_mode == SyncMode::Remote { SimDisk::Hdfs } else { SimDisk::Local };
        let fs = disk.files(1);
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let mut config = common::config(DIR, ARCHIVE_DIR, "s");
        config.sync_mode = sync_mode;
        fs.set_len_max(len_max);
        let wal = Wal::open(Env { clock: clock.clone(), ..common::env(&fs) }, config).unwrap();
        fs.set_len_max(u64::MAX); // files take more from now on, and rounds stay as they are
        Bench { fs, clock, wal, told: Arc::default() }
    }

    fn append(&self, region: &[u8], seqs: impl IntoIterator<Item = u64>, value_len: usize) {
        self.append_as(Durability::SyncWal, region, seqs, value_len);
    }

    fn append_as(
        &self,
        durability: Durability,
        region: &[u8],
        seqs: impl IntoIterator<Item = u64>,
        value_len: usize,
    ) {
        for seq in seqs {
            let cell = Cell::put(b"r", b"f", b"q", 1, &vec![seq as u8; value_len]).with_seq(seq);
            let cells = [cell.get()];
            let entry = WalEntry {
                region,
                table: b"t",
                seq: SeqId::new(seq),
                write_time_ms: 1,
                nonce_group: 0,
                nonce: 0,
                cluster_ids: &[],
                replicated: &[],
                cells: &cells,
            };
            let (told, wal) = (self.told.clone(), Arc::downgrade(&self.wal));
            let tell = move |result: &Result<()>| {
                result.clone().unwrap();
                told.lock().push((seq, wal.upgrade().unwrap().buffered_bytes()));
            };
            self.wal.append(&entry, durability, Box::new(tell)).unwrap();
        }
    }

    fn drive(&self) {
        for _ in 0..10 {
            self.wal.drive();
            self.clock.advance(Duration::from_secs(2));
        }
    }

    fn told(&self) -> Vec<u64> {
        self.told.lock().iter().map(|(seq, _)| *seq).collect()
    }

    /// Sequence ids of each file that has some, oldest file first. Ends them.
    fn files(&self) -> Vec<Vec<u64>> {
        let env = Env { clock: self.clock.clone(), ..common::env(&self.fs) };
        let read = |path: PathBuf| -> Vec<u64> {
            self.fs.seal(&path).unwrap();
            let reader = WalReader::open(&env, &path).unwrap();
            reader.map(|entry| entry.unwrap().0.log_sequence_number).collect()
        };
        let paths_in = |dir: &str| -> Vec<PathBuf> {
            let names = self.fs.list(Path::new(dir)).unwrap_or_default();
            names.into_iter().map(|entry| Path::new(dir).join(entry.name)).collect()
        };
        let files = [ARCHIVE_DIR, DIR].into_iter().flat_map(paths_in).map(read);
        files.filter(|seqs| !seqs.is_empty()).collect()
    }
}

fn in_all_modes(test: impl Fn(SyncMode)) {
    for sync_mode in [SyncMode::Written, SyncMode::Fsync, SyncMode::Remote] {
        test(sync_mode);
        common::encrypted(|| test(sync_mode));
        common::compressed_as(WalCompression::default(), || test(sync_mode));
    }
}

/// A roll wrote round after round as long as appends came faster than the codec, and nobody was told anything meanwhile: with LZMA a
/// client waited for two minutes, then the roll failed and began again.
#[test]
fn a_roll_writes_one_round_of_a_slow_codec() {
    let values = Some(Compression::Lzma);
    common::compressed_as(WalCompression { values, zstd_in_records: false }, || {
        let bench = Bench::new(SyncMode::Remote, u64::MAX);
        bench.append(b"region", 1..=6, 3 << 20);
        assert!(bench.wal.current_bytes() < 5 << 20, "{}: the file gets no more", bench.wal.current_bytes());
        bench.wal.roll().unwrap();
        assert!(bench.wal.buffered_bytes() > 15 << 20, "{}", bench.wal.buffered_bytes());
        bench.append(b"region", [7], 100);
        bench.drive();
        assert_eq!(bench.told(), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(bench.files(), [vec![1], vec![2, 3, 4, 5, 6, 7]]);
    });
}

/// What a roll wrote was acknowledged only when one more round was written.
#[test]
fn what_a_roll_wrote_is_told_before_the_next_round_is_written() {
    in_all_modes(|sync_mode| {
        let bench = Bench::new(sync_mode, LEN_MAX);
        bench.append(b"region", 1..=6, VALUE_BYTES);
        bench.wal.roll().unwrap();
        let left = bench.wal.buffered_bytes();
        assert!(left > 0 && bench.told().is_empty());
        bench.wal.drive();
        let told = bench.told.lock().clone();
        assert!(told[..3].iter().all(|(_, buffered)| *buffered == left), "{sync_mode:?} {left} {told:?}");
        assert_eq!(told.last(), Some(&(6, 0)), "{sync_mode:?}");
    });
}

/// The new file holds entries that were appended for the old one: it stays until their region has flushed them.
#[test]
fn a_file_stays_for_what_a_roll_has_left_to_it() {
    in_all_modes(|sync_mode| {
        let bench = Bench::new(sync_mode, LEN_MAX);
        bench.append(b"first", 1..=3, VALUE_BYTES);
        bench.append(b"second", 4..=6, VALUE_BYTES);
        bench.wal.roll().unwrap();
        bench.drive();
        bench.wal.flushed(b"first", SeqId::new(3));
        let (second_file, rolled) = (bench.wal.current_file(), bench.wal.roll().unwrap());
        assert_eq!(rolled.archived, Vec::<PathBuf>::new(), "{sync_mode:?}");
        bench.wal.flushed(b"second", SeqId::new(5));
        assert_eq!(bench.wal.archive(), Vec::<PathBuf>::new(), "{sync_mode:?}");
        bench.wal.flushed(b"second", SeqId::new(6));
        let archived = bench.wal.archive();
        assert_eq!(archived.len(), 2, "{sync_mode:?}");
        assert_eq!(archived[1].file_name(), second_file.file_name(), "{sync_mode:?}");
        assert_eq!(bench.files(), [vec![1, 2, 3], vec![4, 5, 6]], "{sync_mode:?}");
    });
}

/// Entries say which file they were appended for, and that changes twice here.
#[test]
fn a_roll_that_fails_leaves_all_to_one_file() {
    for (sync_mode, operation, is_no_space) in [
        (SyncMode::Written, Operation::Write, true),
        (SyncMode::Fsync, Operation::Write, true),
        (SyncMode::Fsync, Operation::Sync, false),
        (SyncMode::Remote, Operation::Write, false),
        (SyncMode::Remote, Operation::Sync, false),
    ] {
        let case = format!("{sync_mode:?}, {operation:?}");
        let bench = Bench::new(sync_mode, LEN_MAX);
        bench.append(b"region", 1..=3, VALUE_BYTES);
        bench.drive();
        bench.append(b"region", 4..=9, VALUE_BYTES);
        let fault = Fault::new(operation, DIR).nth(2); // the first one is the header of the new file
        bench.fs.inject(if is_no_space { fault.no_space() } else { fault });
        let rolled = bench.wal.roll();
        assert_eq!(bench.fs.faults_hit(), 1, "{case}");
        assert_eq!(rolled.err().map(|error| error.kind()), is_no_space.then_some(ErrorKind::Busy), "{case}");
        bench.drive();
        bench.append(b"region", 10..=12, VALUE_BYTES);
        bench.drive();
        assert!(bench.told().into_iter().eq(1..=12), "{case}: {:?}", bench.told());
        assert_eq!(bench.wal.roll().unwrap().archived, Vec::<PathBuf>::new(), "{case}");
        bench.wal.flushed(b"region", SeqId::new(12));
        assert!(!bench.wal.archive().is_empty(), "{case}");
        let mut files = bench.files();
        let whole: Vec<u64> = files.pop().unwrap();
        if is_no_space {
            assert!(files.is_empty() && whole.into_iter().eq(1..=12), "{case}: {files:?}");
        } else {
            // The old file may have some of what it did not bring to disk.
            assert!(files.len() == 1 && files[0].starts_with(&[1, 2, 3]), "{case}: {files:?}");
            assert!(files[0].len() <= 6 && whole.into_iter().eq(4..=12), "{case}: {files:?}");
        }
    }
}

/// What was written without a sync and the round whose sync failed went to the next file in two rounds. When the first one was on disk,
/// that file was acknowledged, and a replication source sent the second round from the file that failed. A crash lost it here.
#[test]
fn what_a_failed_sync_leaves_is_repeated_in_one_round() {
    let test = || {
        // Writes: the round, the header of the next file, and what is repeated there.
        for nth in 3..=4 {
            let bench = Bench::new(SyncMode::Fsync, LEN_MAX);
            bench.append_as(Durability::AsyncWal, b"region", 1..=3, VALUE_BYTES);
            bench.drive();
            bench.append(b"region", 4..=6, VALUE_BYTES);
            let first_file = bench.wal.current_file();
            bench.fs.inject(Fault::new(Operation::Sync, DIR));
            bench.fs.inject(Fault::new(Operation::Write, DIR).nth(nth).no_space().forever());
            bench.wal.drive();
            assert_ne!(bench.wal.current_file(), first_file);
            let is_told = bench.told().len() == 6;
            assert_eq!(bench.wal.acknowledged().is_some(), is_told, "write {nth}: {:?}", bench.told());
            bench.fs.clear_faults();
            bench.drive();
            assert!(bench.wal.acknowledged().is_some() && bench.told().into_iter().eq(1..=6));
            assert_eq!(bench.files()[1], [1, 2, 3, 4, 5, 6]);
        }
    };
    test();
    common::encrypted(test);
    common::compressed_as(WalCompression::default(), test);
}

/// A roll wrote the first part of a repetition to its old file and left the rest to the new one, which then began with entries of a
/// file that is not the one before it.
#[test]
fn a_roll_does_not_divide_what_is_repeated() {
    let bench = Bench::new(SyncMode::Fsync, LEN_MAX);
    bench.append_as(Durability::AsyncWal, b"region", 1..=3, VALUE_BYTES);
    bench.drive();
    bench.append(b"region", 4..=6, VALUE_BYTES);
    bench.fs.inject(Fault::new(Operation::Sync, DIR).nth(2)); // the first one is the header of the new file
    bench.wal.roll().unwrap();
    assert_eq!((bench.wal.stats().replacements, bench.wal.acknowledged()), (1, None));
    bench.wal.roll().unwrap();
    assert_eq!(bench.wal.buffered_bytes(), 0);
    bench.drive();
    assert!(bench.told().into_iter().eq(1..=6), "{:?}", bench.told());
    let files = bench.files();
    assert!(files.len() == 2 && files[1] == [1, 2, 3, 4, 5, 6], "{files:?}");
}

/// What a region was told to have flushed while a roll wrote was forgotten, and the old file stayed for as long as the server lived.
#[test]
fn a_region_that_closes_while_a_roll_writes_does_not_hold_the_file() {
    for (sync_mode, is_full) in [
        (SyncMode::Written, false),
        (SyncMode::Written, true),
        (SyncMode::Fsync, false),
        (SyncMode::Fsync, true),
        (SyncMode::Remote, false),
    ] {
        for (appended, n) in [1, 6].into_iter().flat_map(|appended| (1..40).map(move |n| (appended, n))) {
            let case = format!("{sync_mode:?}, full: {is_full}, {appended} entries, call {n}");
            let bench = Bench::new(sync_mode, LEN_MAX);
            bench.append(b"region", 1..=appended, VALUE_BYTES);
            let old_file = bench.wal.current_file();
            if is_full {
                bench.fs.inject(Fault::new(Operation::Write, DIR).nth(2).no_space());
            }
            let (before, wal) = (bench.fs.calls(), bench.wal.clone());
            bench.fs.pause_at(before + n, move || wal.region_closed(b"region"));
            assert_eq!(bench.wal.roll().is_err(), is_full, "{case}");
            if bench.fs.calls() - before < n {
                assert!(n > 5, "{case}: a roll calls the file system");
                continue;
            }
            bench.drive();
            bench.wal.roll().unwrap();
            bench.wal.archive();
            let archived = Path::new(ARCHIVE_DIR).join(old_file.file_name().unwrap());
            assert!(bench.fs.exists(&archived).unwrap(), "{case}");
        }
    }
}
