//! Files that have a size that they cannot exceed, as a WAL in HDFS that has one block.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common;
use halcyon_cell::{Cell, CellRef, ErrorKind, Result, SeqId};
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_env::{Env, FileSystem, ManualClock};
use halcyon_schema::Compression;
use halcyon_wal::{Durability, SyncMode, Wal, WalCompression, WalConfig, WalEntry, WalReader};
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
        self.append_as(seq, len, Durability::SyncWal)
    }

    fn append_as(&self, seq: u64, len: usize, durability: Durability) -> Result<()> {
        let value: Vec<u8> = (0..len as u64).map(|n| ((n * n * 31 + n * 7 + seq) >> 3) as u8).collect();
        let cell = Cell::put(b"r", b"f", b"q", 1, &value).with_seq(seq);
        self.append_cells(seq, &[cell.get()], durability)
    }

    fn append_cells(&self, seq: u64, cells: &[CellRef<'_>], durability: Durability) -> Result<()> {
        let told = self.told.clone();
        let completion = Box::new(move |result: &Result<()>| told.lock().push((seq, result.clone())));
        self.wal.append(&entry(seq, cells), durability, completion)
    }

    /// How each append has ended, in the order in which they were told.
    fn ends(&self) -> Vec<(u64, Option<ErrorKind>)> {
        let kind_of = |result: &Result<()>| result.as_ref().err().map(|error| error.kind());
        self.told.lock().iter().map(|(seq, result)| (*seq, kind_of(result))).collect()
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

fn entry<'a>(seq: u64, cells: &'a [CellRef<'a>]) -> WalEntry<'a> {
    WalEntry {
        region: b"region",
        table: b"t",
        seq: SeqId::new(seq),
        write_time_ms: 1,
        nonce_group: 0,
        nonce: 0,
        cluster_ids: &[],
        replicated: &[],
        cells,
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
        let is_taken = |len: &usize| bench.wal.check_entry(&entry(1, &[]), *len, 1).is_ok();
        let largest = len.clone().find(is_taken).unwrap();
        let largest = (largest..).take_while(is_taken).last().unwrap();
        assert!(largest >= FILE_BYTES as usize * 2 / 5, "{largest}");
        for seq in 1..=4 {
            bench.append(seq, largest - Cell::put(b"r", b"f", b"q", 1, b"").bytes().len()).unwrap();
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

/// A limit that is not what it was said to be: this entry fails, once, and what was appended before it does not. The log ends: its
/// regions waited for the failed one for ever, and the server that had it looked well.
#[test]
fn the_log_ends_with_an_entry_that_fits_no_file_after_all() {
    let test = || {
        let bench = Bench::new(|config| config.errors_tolerated = 0);
        bench.append(1, 1000).unwrap();
        bench.drive();
        bench.fs.set_len_max(200_000);
        bench.append(2, 90_000).unwrap();
        bench.append(3, 500_000).unwrap();
        bench.append(4, 1000).unwrap();
        bench.drive();
        let failed = Some(ErrorKind::Io); // somewhere else it may be taken
        assert_eq!(bench.ends(), [(1, None), (2, None), (3, failed), (4, failed)]);
        assert!(bench.files().len() <= 5, "{:?}", bench.files());
        assert_eq!(bench.files().concat(), [1, 2]);
        assert!(bench.wal.stopped().is_some());
        assert_eq!(bench.append(5, 1000).unwrap_err().kind(), ErrorKind::Stopping);
    };
    test();
    common::encrypted(test);
}

/// All writes of the round failed, of whichever region.
#[test]
fn a_round_that_fits_no_file_is_written_entry_by_entry() {
    let test = || {
        for closes in [false, true] {
            let bench = Bench::new(|config| config.errors_tolerated = 0);
            bench.append(1, 1000).unwrap();
            bench.drive();
            bench.fs.set_len_max(200_000);
            for seq in 2..=8 {
                let durability = if seq % 3 == 0 { Durability::AsyncWal } else { Durability::SyncWal };
                bench.append_as(seq, 90_000, durability).unwrap();
            }
            if closes {
                bench.wal.close().unwrap();
            } else {
                bench.drive();
                bench.append(9, 1000).unwrap();
                bench.drive();
                assert_eq!(
                    bench.append(10, 500_000).unwrap_err().kind(),
                    ErrorKind::Invalid,
                    "it is known now"
                );
                assert!(bench.wal.stopped().is_none());
            }
            let mut ends = bench.ends();
            ends.sort_by_key(|(seq, _)| *seq); // two were told at once
            let count = if closes { 8 } else { 9 };
            assert!(ends.into_iter().eq((1..=count).map(|seq| (seq, None))));
        }
    };
    test();
    common::encrypted(test);
    common::compressed(test);
}

/// The first entry of a divided round ended the doubt about all of it: replication read the file that had failed to its end, and a peer
/// got entries that were durable nowhere.
#[test]
fn a_divided_round_is_acknowledged_when_its_last_entry_is() {
    let bench = Bench::new(|_| {});
    bench.append(1, 1000).unwrap();
    bench.drive();
    let first_file = bench.wal.current_file();
    bench.fs.inject(Fault::new(Operation::Sync, DIR));
    bench.fs.inject(Fault::new(Operation::Create, DIR).no_space().forever());
    let acknowledged: Arc<Mutex<Vec<(u64, bool)>>> = Arc::default();
    for seq in 2..=5 {
        let (wal, acknowledged) = (bench.wal.clone(), acknowledged.clone());
        let value = vec![seq as u8; 90_000];
        let cell = Cell::put(b"r", b"f", b"q", 1, &value).with_seq(seq);
        let told = Box::new(move |result: &Result<()>| {
            assert!(result.is_ok());
            acknowledged.lock().push((seq, wal.acknowledged().is_some()));
        });
        bench.wal.append(&entry(seq, &[cell.get()]), Durability::SyncWal, told).unwrap();
    }
    bench.wal.drive();
    assert!(acknowledged.lock().is_empty(), "the sync has failed");
    bench.fs.clear_faults();
    bench.clock.advance(Duration::from_secs(2));
    bench.fs.set_len_max(200_000);
    bench.drive();
    assert_ne!(bench.wal.current_file(), first_file);
    assert_eq!(*acknowledged.lock(), [(2, false), (3, false), (4, false), (5, true)]);
}

/// The log stood still for a minute while it compressed one entry of millions of short values, and the server ended itself.
#[test]
fn an_entry_has_no_more_values_than_its_codec_gets_through() {
    for (values, refused) in
        [(None, None), (Some(Compression::Snappy), None), (Some(Compression::Lzma), Some(ErrorKind::Invalid))]
    {
        common::compressed_as(WalCompression { values, zstd_in_records: false }, || {
            let bench = Bench::new(|_| {});
            let check = |count: usize| bench.wal.check_entry(&entry(1, &[]), 0, count);
            check(100_000).unwrap();
            let more = check(100_001).err();
            assert_eq!(more.as_ref().map(|error| error.kind()), refused);
            assert!(more.is_none_or(|error| {
                error.message().contains("hbase.regionserver.wal.value.compression.type")
            }));
        });
    }
}

/// Streams of BZIP2 made an entry of such values more than twice as long: it was accepted, and no file took it.
#[test]
fn an_entry_of_short_values_is_refused_or_written() {
    for values in [Compression::Bzip2, Compression::Gz, Compression::Lz4] {
        let compression = WalCompression { values: Some(values), zstd_in_records: false };
        common::compressed_as(compression, || {
            let bench = Bench::new(|config| config.errors_tolerated = 0);
            let cells: Vec<Cell> =
                (0..19_000).map(|at| Cell::put(b"r", b"f", b"", at, b"v").with_seq(1)).collect();
            let cells: Vec<CellRef<'_>> = cells.iter().map(Cell::get).collect();
            let bytes =
                |count: usize| -> usize { cells[..count].iter().map(|cell| cell.bytes().len()).sum() };
            let is_taken =
                |count: &usize| bench.wal.check_entry(&entry(1, &[]), bytes(*count), *count).is_ok();
            let count = (1..20).map(|part| part * 1_000).take_while(is_taken).last().unwrap();
            assert!(count >= 9_000, "{values:?} {count}");
            bench.append_cells(1, &cells[..count], Durability::SyncWal).unwrap();
            bench.drive();
            bench.assert_all_ok(1);
        });
    }
}
