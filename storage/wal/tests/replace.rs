//! Errors of the log's file: the log goes on in a new one, and nobody notices but by the time it takes.

use crate::common;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Cell, ErrorKind, Result, SeqId};
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_env::{Env, FileSystem, ManualClock, spawn_thread};
use halcyon_testkit::{for_each_seed, is_part};
use halcyon_wal::{Durability, SyncMode, Wal, WalConfig, WalEntry, WalReader};
use parking_lot::Mutex;

const DIR: &str = "/hbase/WALs/s";
const DATA_NODE_SEEDS: Range<u64> = 0..40;

struct Bench {
    fs: SimFileSystem,
    clock: Arc<ManualClock>,
    wal: Arc<Wal>,
    /// Sequence ids of the appends that were told, and whether they are durable.
    told: Arc<Mutex<Vec<(u64, bool)>>>,
}

impl Bench {
    fn new(change: impl FnOnce(&mut WalConfig)) -> Bench {
        Bench::on(SimFileSystem::new(), change)
    }

    /// A log in HDFS, with a spare file.
    fn remote(seed: u64) -> Bench {
        Bench::on(SimFileSystem::hdfs(seed), |config| {
            (config.sync_mode, config.keeps_spare) = (SyncMode::Remote, true);
        })
    }

    fn on(fs: SimFileSystem, change: impl FnOnce(&mut WalConfig)) -> Bench {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let mut config = common::config(DIR, "/hbase/oldWALs", "s");
        change(&mut config);
        let wal = Wal::open(Env { clock: clock.clone(), ..common::env(&fs) }, config).unwrap();
        Bench { fs, clock, wal, told: Arc::default() }
    }

    fn append(&self, seq: u64, durability: Durability) -> Result<()> {
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
        let told = self.told.clone();
        self.wal.append(&entry, durability, Box::new(move |result| told.lock().push((seq, result.is_ok()))))
    }

    fn append_all(&self, seqs: impl IntoIterator<Item = u64>) {
        seqs.into_iter().for_each(|seq| self.append(seq, Durability::SyncWal).unwrap());
    }

    fn told(&self) -> Vec<(u64, bool)> {
        self.told.lock().clone()
    }

    /// Sequence ids of each file, oldest file first.
    fn files(&self) -> Vec<Vec<u64>> {
        let env = Env { clock: self.clock.clone(), ..common::env(&self.fs) };
        let read = |path: PathBuf| {
            self.fs.seal(&path).unwrap();
            let reader = WalReader::open(&env, &path).unwrap();
            reader.map(|entry| entry.unwrap().0.log_sequence_number).collect()
        };
        let names = self.fs.list(Path::new(DIR)).unwrap();
        names.into_iter().map(|entry| read(Path::new(DIR).join(entry.name))).collect()
    }

    fn retry_later(&self) {
        self.clock.advance(Duration::from_millis(150));
        self.wal.drive();
    }
}

fn all_ok(seqs: std::ops::RangeInclusive<u64>) -> Vec<(u64, bool)> {
    seqs.map(|seq| (seq, true)).collect()
}

#[test]
fn after_a_failed_write_or_sync_the_log_goes_on_in_a_new_file() {
    for operation in [Operation::Write, Operation::Sync] {
        let bench = Bench::new(|_| {});
        bench.append_all([1]);
        bench.wal.drive();
        bench.fs.inject(Fault::new(operation, DIR));
        bench.append_all([2, 3]);
        bench.wal.drive();
        bench.append_all([4]);
        bench.wal.drive();
        assert_eq!(bench.told(), all_ok(1..=4), "{operation:?}: in their order, as if nothing had happened");
        let files = bench.files();
        assert_eq!((files.len(), &files[1][..]), (2, &[2, 3, 4][..]), "{operation:?}");
        let stats = bench.wal.stats();
        assert_eq!((stats.replacements, stats.files_count), (1, 2));
        assert!(bench.wal.stopped().is_none());
        // The old file may hold the same entries, so it stays as long as the new one.
        assert!(bench.wal.roll().unwrap().archived.is_empty());
        bench.wal.flushed(b"region", SeqId::new(4));
        assert_eq!(bench.wal.archive().len(), 2);
    }
}

/// Nobody waits for them, and they were written well; but what was not synced is in doubt after a failed sync.
#[test]
fn entries_that_nobody_wanted_synced_are_written_again() {
    let bench = Bench::new(|_| {});
    for seq in 1..=3 {
        bench.append(seq, Durability::AsyncWal).unwrap();
        bench.wal.drive();
    }
    bench.fs.inject(Fault::new(Operation::Sync, DIR));
    bench.append_all([4]);
    bench.wal.drive();
    assert_eq!(bench.told(), all_ok(1..=4));
    assert_eq!(bench.files()[1], [1, 2, 3, 4]);
    bench.fs.inject(Fault::new(Operation::Sync, DIR));
    bench.append_all([5]);
    bench.wal.drive();
    assert_eq!(bench.files()[2], [5], "what was synced in the second file is not in doubt");
}

#[test]
fn a_log_that_gets_no_new_file_tries_again_and_takes_appends_meanwhile() {
    let bench = Bench::on(SimFileSystem::hdfs(1), |config| {
        (config.sync_mode, config.buffer_max_bytes) = (SyncMode::Remote, 2000);
    });
    bench.fs.inject(Fault::new(Operation::Sync, DIR));
    bench.fs.inject(Fault::new(Operation::Create, DIR));
    bench.append_all([1]);
    bench.wal.drive();
    assert!(bench.told().is_empty() && bench.wal.stopped().is_none());
    bench.append_all([2, 3]);
    bench.wal.drive();
    assert!(bench.told().is_empty(), "it is not tried at once");
    let refused = (4..20).map(|seq| bench.append(seq, Durability::SyncWal)).find_map(Result::err);
    assert_eq!(refused.expect("the buffer has its limit").kind(), ErrorKind::Busy);
    bench.retry_later();
    let told = bench.told();
    assert!(told.len() > 3 && told.iter().all(|(_, is_ok)| *is_ok), "{told:?}");
    assert_eq!(bench.files()[1].len(), told.len());
}

#[test]
fn a_log_with_too_many_errors_in_a_row_stops() {
    for operation in [Operation::Write, Operation::Sync, Operation::Create] {
        let bench = Bench::new(|_| {});
        if operation == Operation::Create {
            bench.fs.inject(Fault::new(Operation::Sync, DIR));
        }
        bench.fs.inject(Fault::new(operation, DIR).forever());
        bench.append_all([1, 2]);
        bench.wal.drive();
        assert_eq!(bench.told(), [(1, false), (2, false)], "{operation:?}");
        assert_eq!(bench.append(3, Durability::SyncWal).unwrap_err().kind(), ErrorKind::Stopping);
        assert_eq!(bench.wal.roll().unwrap_err().kind(), ErrorKind::Stopping);
        assert_eq!(bench.wal.close().unwrap_err().kind(), ErrorKind::Stopping);
    }
}

#[test]
fn errors_with_syncs_in_between_are_not_counted_together() {
    let bench = Bench::new(|_| {});
    for seq in 1..=10 {
        bench.fs.inject(Fault::new(Operation::Sync, DIR));
        bench.append_all([seq]);
        bench.wal.drive();
    }
    assert_eq!(bench.told(), all_ok(1..=10));
    assert_eq!(bench.wal.stats().replacements, 10);
}

/// What it has written since its last sync is not in memory.
#[test]
fn a_log_that_does_not_sync_stops() {
    let bench = Bench::new(|config| config.sync_mode = SyncMode::Written);
    bench.append_all([1]);
    bench.wal.drive();
    bench.fs.inject(Fault::new(Operation::Write, DIR));
    bench.append_all([2]);
    bench.wal.drive();
    assert_eq!(bench.told(), [(1, true), (2, false)]);
    assert!(bench.wal.stopped().is_some());
}

#[test]
fn a_roll_and_a_close_give_a_failed_log_its_file() {
    for close in [false, true] {
        let bench = Bench::on(SimFileSystem::hdfs(1), |config| config.sync_mode = SyncMode::Remote);
        bench.fs.inject(Fault::new(Operation::Sync, DIR));
        bench.fs.inject(Fault::new(Operation::Create, DIR));
        bench.append_all([1]);
        bench.wal.drive();
        assert!(bench.told().is_empty());
        if close {
            bench.wal.close().unwrap();
        } else {
            assert_eq!(bench.wal.roll().unwrap().new_file, bench.wal.current_file());
            bench.wal.drive();
        }
        assert_eq!(bench.told(), all_ok(1..=1), "close: {close}");
    }
}

#[test]
fn a_roll_that_meets_the_error_is_done_by_the_replacement() {
    for nth in 1..=2 {
        let bench = Bench::new(|_| {});
        bench.append_all([1]);
        let old_file = bench.wal.current_file();
        bench.fs.inject(Fault::new(Operation::Write, DIR).nth(nth));
        let rolled = bench.wal.roll();
        bench.wal.drive();
        assert_eq!(bench.told(), all_ok(1..=1));
        assert!(bench.wal.stopped().is_none());
        if nth == 1 {
            assert!(rolled.unwrap_err().message().contains("could not make a new log"));
            assert_eq!(bench.wal.current_file(), old_file, "it goes on with the old one");
        } else {
            let rolled = rolled.unwrap();
            assert_eq!((rolled.old_file, rolled.new_file), (old_file, bench.wal.current_file()));
            assert_eq!((bench.files().len(), bench.wal.stats().replacements), (2, 1));
        }
    }
}

/// What is written and not synced is in memory, so it has a limit.
#[test]
fn what_nobody_wants_synced_is_synced_before_it_takes_too_much_memory() {
    let bench = Bench::new(|config| config.buffer_max_bytes = 32 << 10);
    for seq in 1..=100 {
        bench.append(seq, Durability::AsyncWal).unwrap();
        bench.wal.drive();
        assert!(bench.wal.held_bytes() < 16 << 10, "{}", bench.wal.held_bytes());
    }
    let syncs = bench.wal.stats().syncs;
    assert!((5..20).contains(&syncs), "{syncs} syncs of 40 KiB");
    bench.fs.inject(Fault::new(Operation::Sync, DIR));
    bench.append_all([101]);
    bench.wal.drive();
    let files = bench.files();
    let first = files[1][0];
    assert!(first > 80 && files[1] == (first..=101).collect::<Vec<_>>(), "{:?}", files[1]);
    let mut all = files.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (1..=101).collect::<Vec<_>>());
}

#[test]
fn a_full_disk_is_no_error_that_counts() {
    let bench = Bench::new(|_| {});
    bench.fs.inject(Fault::new(Operation::Sync, DIR));
    bench.fs.inject(Fault::new(Operation::Create, DIR).no_space().forever());
    bench.append_all([1]);
    bench.wal.drive();
    for _ in 0..10 {
        bench.retry_later();
    }
    assert!(bench.told().is_empty() && bench.wal.stopped().is_none());
    assert_eq!(bench.append(2, Durability::SyncWal).unwrap_err().kind(), ErrorKind::Busy);
    bench.fs.clear_faults();
    bench.retry_later();
    bench.retry_later();
    assert_eq!(bench.told(), all_ok(1..=1));
    assert!(bench.wal.no_space().is_none());
    bench.append_all([2]);
}

/// With files on other machines every batch is synced, and nothing is kept besides.
#[test]
fn a_remote_log_syncs_every_batch() {
    let bench = Bench::remote(1);
    for seq in 1..=3 {
        bench.append(seq, Durability::AsyncWal).unwrap();
        bench.wal.drive();
    }
    let stats = bench.wal.stats();
    assert_eq!((stats.writes, stats.syncs), (3, 3));
    bench.append_all([4]);
    assert!(!bench.wal.drive_once(), "it is left to the log's own thread");
    bench.wal.drive_until(|| false);
    bench.wal.drive_or_wake();
    assert_eq!((bench.told().len(), bench.wal.stats().writes), (3, 3));
    bench.wal.drive();
    assert_eq!(bench.told(), all_ok(1..=4));
    assert_eq!(bench.files(), [[1, 2, 3, 4]]);
}

/// DataNodes die and come back. Whatever file the log gets, nothing is lost, and nothing is told that is not there.
#[test]
fn a_remote_log_outlives_data_nodes() {
    let mut replacements = 0;
    for_each_seed(
        "-p halcyon-wal --test all replace::a_remote_log_outlives_data_nodes",
        DATA_NODE_SEEDS,
        |seed| {
            let bench = Bench::remote(seed);
            for seq in 1..=60 {
                if seq % 7 == 0 {
                    _ = bench.wal.keep_spare(); // it may lie on a DataNode that is down
                }
                match seq % 20 {
                    5 => bench.fs.set_data_node(seed as usize % 4, false),
                    15 => bench.fs.set_data_node(seed as usize % 4, true),
                    _ => {}
                }
                let durability = if seq % 3 == 0 { Durability::AsyncWal } else { Durability::SyncWal };
                bench.append(seq, durability).unwrap();
                bench.wal.drive();
                if seq % 11 == 0 {
                    _ = bench.wal.roll();
                }
            }
            (0..20).for_each(|_| bench.retry_later());
            let mut told = bench.told();
            told.sort_unstable();
            assert_eq!(told, all_ok(1..=60), "seed {seed}");
            let mut found = bench.files().concat();
            found.sort_unstable();
            found.dedup();
            assert_eq!(found, (1..=60).collect::<Vec<_>>(), "seed {seed}");
            replacements += bench.wal.stats().replacements;
        },
    );
    assert!(is_part(DATA_NODE_SEEDS) || replacements > 40, "{replacements}");
}

/// A NameNode that is away makes no files, and the old one is lost with its DataNodes: the log waits for a while.
#[test]
fn a_remote_log_waits_for_a_file_that_can_be_written() {
    let bench = Bench::remote(1);
    let fail_for = |pauses: u32| {
        bench.fs.inject(Fault::new(Operation::Sync, DIR));
        bench.fs.inject(Fault::new(Operation::Create, DIR).forever());
        bench.wal.drive();
        (0..pauses).for_each(|_| bench.retry_later());
    };
    bench.append_all([1]);
    fail_for(90); // 13.5 s
    assert!(bench.told().is_empty() && bench.wal.stopped().is_none());
    bench.fs.clear_faults();
    (0..8).for_each(|_| bench.retry_later());
    assert_eq!(bench.told(), all_ok(1..=1), "the pause between two attempts is 0.8 s at most");
    bench.append_all([2]);
    fail_for(120);
    assert_eq!(bench.told(), [(1, true), (2, false)]);
    assert_eq!(bench.append(3, Durability::SyncWal).unwrap_err().kind(), ErrorKind::Stopping);
}

/// The file that failed is still open as HDFS sees it, and would be for ever.
#[test]
fn a_remote_file_that_failed_is_sealed_before_it_is_archived() {
    let test = "-p halcyon-wal --test all replace::a_remote_file_that_failed_is_sealed";
    for_each_seed(test, 0..10, |seed| {
        let bench = Bench::remote(seed);
        bench.append_all([1]);
        bench.fs.inject(Fault::new(Operation::Sync, DIR));
        bench.wal.drive();
        bench.wal.drive();
        bench.wal.flushed(b"region", SeqId::new(1));
        let archived = bench.wal.archive();
        assert_eq!((bench.told(), archived.len()), (all_ok(1..=1), 1));
        let len = || bench.fs.open(&archived[0]).unwrap().len().unwrap();
        let before = len();
        assert!((0..20).all(|_| len() == before), "an open file shows its bytes by chance");
    });
}

#[test]
fn a_spare_file_takes_over_and_leaves_nothing() {
    let bench = Bench::new(|config| config.keeps_spare = true);
    bench.wal.keep_spare().unwrap();
    bench.wal.keep_spare().unwrap();
    assert_eq!(bench.files(), [vec![], vec![]], "one spare");
    bench.fs.inject(Fault::new(Operation::Create, DIR).forever());
    bench.fs.inject(Fault::new(Operation::Sync, DIR));
    bench.append_all([1]);
    bench.wal.drive();
    assert_eq!(bench.told(), all_ok(1..=1), "no file had to be made");
    bench.fs.clear_faults();
    bench.wal.keep_spare().unwrap();
    assert_eq!(bench.wal.roll().unwrap().new_file, bench.wal.current_file());
    bench.wal.keep_spare().unwrap();
    bench.wal.close().unwrap();
    let left = bench.files().len() + bench.fs.list(Path::new("/hbase/oldWALs")).unwrap().len();
    assert_eq!(left, 3, "no empty file");
    assert!(bench.wal.keep_spare().is_err(), "a closed log has no next file");
}

/// Nobody writes a spare file, so nobody else would notice that a machine of it has failed.
#[test]
fn a_spare_file_that_is_of_no_use_is_made_anew() {
    for_each_seed("a_spare_file_that_is_of_no_use_is_made_anew", 0..20, |seed| {
        let bench = Bench::remote(2 * seed + 1); // files tell whether they are fit
        bench.append_all([1]);
        bench.wal.drive();
        let current = bench.wal.current_file();
        let spare = || {
            let listed = bench
                .fs
                .list(Path::new(DIR))
                .unwrap()
                .into_iter()
                .map(|entry| Path::new(DIR).join(entry.name));
            let spares: Vec<_> = listed.filter(|path| *path != current).collect();
            assert_eq!(spares.len(), 1, "seed {seed}: {spares:?}");
            spares[0].clone()
        };
        bench.wal.keep_spare().unwrap();
        let first = spare();
        let mut replaced = 0;
        for node in 0..4 {
            let before = spare();
            bench.fs.set_data_node(node, false);
            _ = bench.wal.keep_spare(); // the next one may lie on a DataNode that is down
            bench.fs.set_data_node(node, true);
            bench.clock.advance(Duration::from_secs(1));
            bench.wal.keep_spare().unwrap();
            replaced += usize::from(spare() != before);
        }
        assert!(
            replaced >= 2,
            "seed {seed}: a file has three copies on four DataNodes, and was made anew {replaced} times"
        );
        assert!(!bench.fs.exists(&first).unwrap());
        bench.wal.keep_spare().unwrap();
        bench.append_all([2]);
        bench.wal.drive();
        assert_eq!(bench.told(), all_ok(1..=2));
        assert!(bench.wal.archive().is_empty(), "no file that is gone is to be archived");
    });
}

/// Readers of the file may see the bytes of a round that failed, and the peer of a replication got what was acknowledged to nobody.
#[test]
fn what_a_failed_sync_leaves_is_not_acknowledged() {
    for fs in [SimFileSystem::new(), SimFileSystem::hdfs(1), SimFileSystem::hdfs(2)] {
        let is_remote = fs.is_remote();
        let bench = Bench::on(fs, |config| {
            if is_remote {
                config.sync_mode = SyncMode::Remote;
            }
        });
        bench.append_all([1]);
        bench.wal.drive();
        let before = bench.wal.acknowledged().expect("a file is being written");
        bench.fs.inject(Fault::new(Operation::Sync, DIR));
        bench.fs.inject(Fault::new(Operation::Create, DIR).no_space().forever());
        bench.append_all([2]);
        bench.wal.drive();
        assert_eq!(bench.told(), all_ok(1..=1));
        assert_eq!(bench.wal.acknowledged(), Some(before.clone()), "what was before the round");
        // The next file has its header, and fails with the round.
        bench.fs.clear_faults();
        bench.fs.inject(Fault::new(Operation::Sync, DIR).nth(2));
        bench.fs.inject(Fault::new(Operation::Create, DIR).nth(2).no_space().forever());
        bench.clock.advance(Duration::from_secs(1));
        bench.wal.drive();
        assert_ne!(bench.wal.current_file(), before.0);
        assert_eq!((bench.told().len(), bench.wal.acknowledged()), (1, None));
        bench.fs.clear_faults();
        (0..4).for_each(|_| bench.retry_later());
        let after = bench.wal.acknowledged().expect("the round is on disk");
        assert_eq!((bench.told(), &after.0), (all_ok(1..=2), &bench.wal.current_file()));
    }
}

/// The same for a log that has stopped.
#[test]
fn what_the_last_round_leaves_is_not_acknowledged() {
    let bench = Bench::on(SimFileSystem::hdfs(1), |config| {
        (config.sync_mode, config.errors_tolerated) = (SyncMode::Remote, 0);
    });
    bench.append_all([1]);
    bench.wal.drive();
    let before = bench.wal.acknowledged();
    bench.append_all([2]);
    bench.fs.inject(Fault::new(Operation::Sync, DIR).forever());
    bench.fs.inject(Fault::new(Operation::Create, DIR).forever());
    for _ in 0..200 {
        bench.retry_later();
    }
    assert!(bench.wal.stopped().is_some());
    assert_eq!(bench.wal.acknowledged(), before);
}

/// While the log rolled, the file that was being ended could move to the archive. If its end failed then, nobody sealed it: for
/// readers it was empty.
#[test]
fn a_file_that_is_being_ended_is_not_archived() {
    for seed in 0..6 {
        for n in 1.. {
            let bench = Bench::remote(seed);
            bench.append_all([1]);
            bench.wal.drive();
            bench.wal.flushed(b"region", SeqId::new(1));
            bench.fs.inject(Fault::new(Operation::Close, DIR));
            let (before, beside) = (bench.fs.calls(), bench.wal.clone());
            // It waits for the roll if that archives itself at this moment.
            let archiving = Arc::new(Mutex::new(None));
            let thread = archiving.clone();
            bench.fs.pause_at(before + n, move || {
                let (told, is_done) = std::sync::mpsc::channel();
                let archive = move || {
                    beside.archive();
                    let _ = told.send(());
                };
                *thread.lock() = Some(spawn_thread("archive", archive).unwrap());
                let _ = is_done.recv_timeout(Duration::from_millis(100));
            });
            bench.wal.roll().unwrap();
            let calls = bench.fs.calls() - before;
            if let Some(thread) = archiving.lock().take() {
                thread.join().unwrap();
            }
            if calls < n {
                assert!(n > 3, "a roll calls the file system");
                break;
            }
            bench.wal.archive();
            let archive = Path::new("/hbase/oldWALs");
            for file in bench.fs.list(archive).unwrap() {
                let len = || bench.fs.open(&archive.join(&file.name)).unwrap().len().unwrap();
                let all = len();
                assert!(
                    all > 0 && (0..20).all(|_| len() == all),
                    "seed {seed}, call {n}: {} is open",
                    file.name
                );
            }
        }
    }
}

/// Each failed attempt left an empty open file, every second, which recovery had to seal and split.
#[test]
fn a_file_that_cannot_be_made_leaves_nothing_and_is_tried_ever_less_often() {
    let bench = Bench::remote(1);
    bench.append_all([1]);
    bench.wal.drive();
    // It is made, and its header does not get there.
    bench.fs.inject(Fault::new(Operation::Sync, DIR).forever());
    let hits = || bench.fs.faults_hit();
    let (mut failed_at, mut names_max) = (Vec::new(), 0);
    for second in 0..200 {
        let before = hits();
        assert_eq!(bench.wal.keep_spare().is_err(), hits() > before);
        if hits() > before {
            failed_at.push(second);
        }
        bench.clock.advance(Duration::from_secs(1));
        names_max = names_max.max(bench.fs.list(Path::new(DIR)).unwrap().len());
    }
    assert_eq!(failed_at, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    assert!(names_max <= 2, "{names_max} files");
    bench.fs.clear_faults();
    bench.clock.advance(Duration::from_secs(60));
    bench.wal.keep_spare().unwrap();
    assert_eq!(bench.fs.list(Path::new(DIR)).unwrap().len(), 2, "the current file and the spare");
    // Its answer is lost.
    let bench = Bench::remote(1);
    bench.fs.inject(Fault::new(Operation::Create, DIR).but_done());
    bench.wal.keep_spare().unwrap_err();
    assert_eq!(bench.fs.list(Path::new(DIR)).unwrap().len(), 2);
    bench.wal.keep_spare().unwrap();
    assert_eq!(bench.fs.list(Path::new(DIR)).unwrap().len(), 1, "what is there is removed");
    bench.clock.advance(Duration::from_secs(1));
    bench.wal.keep_spare().unwrap();
    assert_eq!(bench.fs.list(Path::new(DIR)).unwrap().len(), 2);
}

#[test]
fn an_encrypted_log_goes_on_in_a_new_file_as_well() {
    common::encrypted(|| {
        after_a_failed_write_or_sync_the_log_goes_on_in_a_new_file();
        entries_that_nobody_wanted_synced_are_written_again();
        a_spare_file_takes_over_and_leaves_nothing();
    });
}

#[test]
fn a_compressed_log_goes_on_in_a_new_file_as_well() {
    common::compressed(|| {
        after_a_failed_write_or_sync_the_log_goes_on_in_a_new_file();
        entries_that_nobody_wanted_synced_are_written_again();
        a_spare_file_takes_over_and_leaves_nothing();
        a_full_disk_is_no_error_that_counts();
        a_remote_log_outlives_data_nodes();
    });
}
