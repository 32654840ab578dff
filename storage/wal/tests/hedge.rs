//! Syncs of files in HDFS that are late: the round goes to the spare file too, and the first answer counts.
#![allow(clippy::disallowed_methods)] // waits for real threads

use crate::common;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use halcyon_cell::{Cell, Result, SeqId};
use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};
use halcyon_env::{Env, FileSystem, ManualClock, spawn_thread};
use halcyon_wal::{
    Durability, LateSyncs, SyncJob, SyncMode, SyncThreads, Wal, WalConfig, WalEntry, WalReader, repeated_len,
    split_logs,
};
use parking_lot::Mutex;

const DIR: &str = "/hbase/WALs/s";
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A new thread for each job, as long as some are left.
struct Threads {
    left: AtomicUsize,
}

impl SyncThreads for Threads {
    fn run(&self, job: SyncJob) -> std::result::Result<(), SyncJob> {
        let taken = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if taken.is_err() {
            return Err(job);
        }
        spawn_thread("sync", job).expect("a thread");
        Ok(())
    }
}

struct Bench {
    fs: SimFileSystem,
    clock: Arc<ManualClock>,
    wal: Arc<Wal>,
    threads: Arc<Threads>,
    told: Arc<Mutex<Vec<(u64, bool)>>>,
}

impl Bench {
    /// A log with a spare file that does not lie on one DataNode of the current file; and that DataNode.
    fn new(late: Duration) -> (Bench, usize) {
        let made = (1..100).find_map(|seed| {
            let bench = Bench::on(seed, late);
            let of_current = bench.fs.data_nodes_of(&bench.wal.current_file()).unwrap();
            let of_spare = bench.fs.data_nodes_of(&bench.spare()).unwrap();
            let slow = of_current.into_iter().find(|node| !of_spare.contains(node))?;
            Some((bench, slow))
        });
        made.expect("not all files lie on the same DataNodes")
    }

    fn on(seed: u64, late: Duration) -> Bench {
        Bench::with(seed, late, |_| {})
    }

    fn with(seed: u64, late: Duration, adapt: impl FnOnce(&mut WalConfig)) -> Bench {
        Bench::made(seed, late, false, adapt)
    }

    fn made(seed: u64, late: Duration, waits_within: bool, adapt: impl FnOnce(&mut WalConfig)) -> Bench {
        let fs = SimFileSystem::hdfs(seed);
        fs.set_waits_within(waits_within);
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let threads = Arc::new(Threads { left: AtomicUsize::new(usize::MAX) });
        let mut config = common::config(DIR, "/hbase/oldWALs", "s");
        (config.sync_mode, config.keeps_spare) = (SyncMode::Remote, true);
        let (threads_too, late_max, give_up_min) = (threads.clone(), late, late);
        config.late_syncs = Some(LateSyncs { threads: threads_too, late_min: late, late_max, give_up_min });
        adapt(&mut config);
        let wal = Wal::open(Env { clock: clock.clone(), ..common::env(&fs) }, config).unwrap();
        wal.keep_spare().unwrap();
        Bench { fs, clock, wal, threads, told: Arc::default() }
    }

    fn spare(&self) -> PathBuf {
        let mut names: Vec<_> = self.fs.list(Path::new(DIR)).unwrap();
        let current = self.wal.current_file();
        names.retain(|entry| Path::new(DIR).join(&entry.name) != current);
        Path::new(DIR).join(&names.pop().expect("a spare").name)
    }

    fn append(&self, seq: u64) {
        self.append_with(seq, Durability::SyncWal);
    }

    fn append_with(&self, seq: u64, durability: Durability) {
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
        let told = (durability != Durability::AsyncWal).then_some(told);
        let tell = move |result: &Result<()>| {
            told.into_iter().for_each(|told| told.lock().push((seq, result.is_ok())));
        };
        self.wal.append(&entry, durability, Box::new(tell)).unwrap();
    }

    /// On the thread of the caller, so that it is not late.
    fn write(&self, seq: u64) {
        self.threads.left.store(0, Ordering::SeqCst);
        self.append(seq);
        self.wal.drive();
        self.threads.left.store(usize::MAX, Ordering::SeqCst);
    }

    fn check_told(&self, seqs: impl IntoIterator<Item = u64>) {
        assert_eq!(*self.told.lock(), seqs.into_iter().map(|seq| (seq, true)).collect::<Vec<_>>());
    }

    /// What recovery finds, on the files as they are or as a crash leaves them.
    fn recovered(fs: &SimFileSystem) -> Vec<u64> {
        let env = common::env(fs);
        split_logs(&env, Path::new(DIR), &|_, _| Ok(Some("/hbase/edits".into()))).unwrap();
        let mut seqs = Vec::new();
        for file in fs.list(Path::new("/hbase/edits")).unwrap() {
            let reader = WalReader::open(&env, &Path::new("/hbase/edits").join(file.name)).unwrap();
            seqs.extend(reader.map(|entry| entry.unwrap().0.log_sequence_number));
        }
        seqs.sort_unstable();
        seqs.dedup();
        seqs
    }
}

/// `FSYNC_WAL` asks for the disks (`hsync`), `SYNC_WAL` for the memory of the DataNodes (`hflush`) unless the log is told
/// otherwise, in a race as well as on the log's own thread.
#[test]
fn only_fsync_wal_waits_for_the_disks() {
    for hsync in [false, true] {
        for threads in [0, usize::MAX] {
            let bench = Bench::with(1, Duration::from_secs(20), |config| config.hsync = hsync);
            bench.threads.left.store(threads, Ordering::SeqCst);
            let disk_syncs = |seq: u64, durability: Durability| {
                let before = bench.fs.disk_syncs();
                bench.append_with(seq, durability);
                bench.wal.drive();
                bench.fs.disk_syncs() - before
            };
            assert_eq!(disk_syncs(1, Durability::SyncWal), u64::from(hsync));
            assert_eq!(disk_syncs(2, Durability::FsyncWal), 1);
            assert_eq!(disk_syncs(3, Durability::AsyncWal), u64::from(hsync));
            let before = bench.fs.disk_syncs();
            bench.append_with(4, Durability::FsyncWal);
            bench.append_with(5, Durability::SyncWal);
            bench.wal.drive();
            assert_eq!(bench.fs.disk_syncs() - before, 1, "one of a batch is enough");
            bench.check_told([1, 2, 4, 5]);
        }
    }
}

/// A batch that failed keeps what was asked for it in the next file.
#[test]
fn fsync_wal_waits_for_the_disks_of_the_next_file_too() {
    let bench = Bench::with(1, Duration::from_secs(20), |config| config.hsync = false);
    bench.threads.left.store(0, Ordering::SeqCst);
    let current = bench.wal.current_file();
    bench.fs.inject(Fault::new(Operation::Sync, current.to_str().unwrap()));
    let before = bench.fs.disk_syncs();
    bench.append_with(1, Durability::FsyncWal);
    bench.wal.drive();
    bench.wal.drive();
    assert_ne!(bench.wal.current_file(), current);
    assert_eq!(bench.fs.disk_syncs() - before, 2, "the one that failed, and that of the spare file");
    bench.check_told([1]);
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < WAIT_MAX, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A DataNode hangs. Writes go on in the spare file, and what the old file answers later changes nothing.
#[test]
fn a_frozen_data_node_delays_a_round_by_no_more_than_the_limit() {
    let (bench, slow) = Bench::new(Duration::from_millis(5));
    bench.write(1);
    let spare = bench.spare();
    bench.fs.freeze_data_node(slow, true);
    bench.append(2);
    bench.append(3);
    bench.wal.drive(); // it would wait for ever
    assert_eq!(bench.wal.current_file(), spare);
    bench.write(4);
    bench.check_told(1..=4);
    let stats = bench.wal.stats();
    assert_eq!((stats.replacements, stats.late_syncs, stats.files_count), (1, 1, 2));
    // The old file may have the round as well, so it stays until the region has flushed, and is sealed then.
    assert!(bench.wal.archive().is_empty());
    bench.fs.freeze_data_node(slow, false);
    bench.write(5);
    let found = Bench::recovered(&bench.fs.crash(CrashMode::Drop, 3));
    assert_eq!(found, [1, 2, 3, 4, 5]);
}

/// Whenever the machine dies after the spare has answered, what was told is found.
#[test]
fn a_crash_after_a_late_sync_loses_nothing() {
    for mode in CrashMode::ALL {
        for rounds in 1..=4 {
            let (bench, slow) = Bench::new(Duration::from_millis(2));
            bench.write(1);
            bench.fs.freeze_data_node(slow, true);
            bench.append(2);
            bench.wal.drive();
            (3..2 + rounds).for_each(|seq| bench.write(seq));
            bench.check_told(1..=1 + rounds);
            let found = Bench::recovered(&bench.fs.crash(mode, rounds));
            assert_eq!(found, (1..=1 + rounds).collect::<Vec<_>>(), "{mode:?}, {rounds} rounds");
        }
    }
}

/// Both files wait; either may answer first. The old file stays until the flush, and a spare file that has lost is removed.
#[test]
fn the_first_answer_counts_whichever_file_gives_it() {
    let mut spares_won = 0;
    for round in 0..20 {
        let bench = Bench::on(round, Duration::from_millis(2));
        bench.write(1);
        (0..4).for_each(|node| bench.fs.freeze_data_node(node, true));
        bench.append(2);
        let wal = bench.wal.clone();
        let driver = spawn_thread("driver", move || _ = wal.drive()).unwrap();
        wait_until("the round goes to the spare", || bench.wal.stats().late_syncs == 1);
        (0..4).for_each(|node| bench.fs.freeze_data_node(node, false));
        driver.join().unwrap();
        bench.check_told(1..=2);
        let spare_won = bench.wal.stats().replacements;
        spares_won += spare_won;
        bench.write(3);
        assert_eq!(bench.wal.stats().files_count as u64, 1 + spare_won, "the old file may have the round");
        assert!(bench.wal.archive().is_empty());
        bench.wal.flushed(b"region", SeqId::new(3));
        assert_eq!(bench.wal.archive().len() as u64, spare_won);
        assert_eq!(bench.fs.list(Path::new(DIR)).unwrap().len(), 1, "a spare file that has lost is removed");
        // The current file has what was written to it.
        let first = if bench.wal.stats().replacements == 0 { 1 } else { 2 };
        assert_eq!(Bench::recovered(&bench.fs), (first..=3).collect::<Vec<_>>(), "round {round}");
    }
    println!("the spare won {spares_won} of 20");
}

/// Both files fail. It is an error like others: the round goes to a third file.
#[test]
fn two_files_that_fail_are_replaced() {
    let bench = Bench::on(1, Duration::from_millis(2));
    bench.write(1);
    (0..4).for_each(|node| bench.fs.freeze_data_node(node, true));
    bench.append(2);
    let wal = bench.wal.clone();
    let driver = spawn_thread("driver", move || _ = wal.drive()).unwrap();
    wait_until("the round goes to the spare", || bench.wal.stats().late_syncs == 1);
    (1..=2).for_each(|nth| bench.fs.inject(Fault::new(Operation::Sync, DIR).nth(nth)));
    (0..4).for_each(|node| bench.fs.freeze_data_node(node, false));
    driver.join().unwrap();
    bench.clock.advance(Duration::from_secs(1));
    bench.wal.drive();
    bench.write(3);
    bench.check_told(1..=3);
    assert_eq!((bench.fs.faults_hit(), bench.wal.stats().files_count), (2, 2), "without the spare");
    assert_eq!(Bench::recovered(&bench.fs.crash(CrashMode::Drop, 1)), [1, 2, 3]);
}

/// Without an idle thread, or with none left for the spare, rounds are written as if there were no hedge.
#[test]
fn a_log_without_idle_threads_waits() {
    for left in 0..=1 {
        let bench = Bench::on(1, Duration::from_millis(2));
        let spare = bench.spare();
        bench.threads.left.store(left, Ordering::SeqCst);
        (0..4).for_each(|node| bench.fs.freeze_data_node(node, true));
        bench.append(1);
        let wal = bench.wal.clone();
        let driver = spawn_thread("driver", move || _ = wal.drive()).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert!(bench.told.lock().is_empty());
        (0..4).for_each(|node| bench.fs.freeze_data_node(node, false));
        driver.join().unwrap();
        bench.check_told(1..=1);
        assert_eq!((bench.wal.stats().late_syncs, bench.spare()), (0, spare), "{left} threads");
    }
}

/// The log's own thread writes, and stops waiting. The spare file lies on other machines and takes over.
#[test]
fn a_late_round_goes_to_a_spare_file_without_the_slow_machine() {
    let made = (1..100).find_map(|seed| {
        let bench = Bench::made(seed, Duration::from_millis(5), true, |_| {});
        let of_spare = bench.fs.data_nodes_of(&bench.spare()).unwrap();
        let of_current = bench.fs.data_nodes_of(&bench.wal.current_file()).unwrap();
        let slow = of_current.into_iter().find(|node| !of_spare.contains(node))?;
        Some((bench, slow))
    });
    let (bench, slow) = made.expect("not all files lie on the same DataNodes");
    bench.threads.left.store(0, Ordering::SeqCst);
    bench.append(1);
    bench.wal.drive(); // needs no thread
    bench.threads.left.store(usize::MAX, Ordering::SeqCst);
    let spare = bench.spare();
    bench.fs.freeze_data_node(slow, true);
    bench.append(2);
    bench.wal.drive();
    assert_eq!(bench.wal.current_file(), spare);
    bench.check_told(1..=2);
    assert_eq!((bench.wal.stats().replacements, bench.wal.stats().late_syncs), (1, 1));
    bench.fs.freeze_data_node(slow, false);
    bench.append(3);
    bench.wal.drive();
    assert_eq!(Bench::recovered(&bench.fs.crash(CrashMode::Drop, 3)), [1, 2, 3]);
}

/// The spare file has the slow machine, too: the log goes on in a third file without it, and nothing is lost in any crash.
#[test]
fn a_late_round_goes_to_a_new_file_if_the_spare_has_the_slow_machine() {
    for mode in CrashMode::ALL {
        let made = (1..100).find_map(|seed| {
            let bench = Bench::made(seed, Duration::from_millis(5), true, |_| {});
            let of_spare = bench.fs.data_nodes_of(&bench.spare()).unwrap();
            let of_current = bench.fs.data_nodes_of(&bench.wal.current_file()).unwrap();
            let slow = of_current.into_iter().find(|node| of_spare.contains(node))?;
            Some((bench, slow))
        });
        let (bench, slow) = made.expect("four DataNodes have two files of three");
        bench.append(1);
        bench.wal.drive();
        let (first, spare) = (bench.wal.current_file(), bench.spare());
        bench.fs.freeze_data_node(slow, true);
        bench.append(2);
        bench.append(3);
        bench.wal.drive();
        bench.wal.drive();
        let third = bench.wal.current_file();
        assert!(third != first && third != spare, "{third:?}");
        assert!(!bench.fs.data_nodes_of(&third).unwrap().contains(&slow));
        bench.check_told(1..=3);
        assert_eq!((bench.wal.stats().replacements, bench.wal.stats().late_syncs), (1, 0));
        // The spare file is not forgotten.
        bench.fs.freeze_data_node(slow, false);
        assert_eq!((bench.wal.stats().files_count, bench.wal.useless_files()), (2, vec![spare.clone()]));
        assert!(bench.wal.archive().is_empty() && !bench.fs.exists(&spare).unwrap());
        assert_eq!(Bench::recovered(&bench.fs.crash(mode, 1)), [1, 2, 3], "{mode:?}");
    }
}

/// The spare file has the slow machine, too. A short pause of it is no reason to do without it: that may cost a copy.
#[test]
fn a_short_pause_of_a_machine_replaces_nothing() {
    let made = (1..100).find_map(|seed| {
        let bench = Bench::made(seed, Duration::from_millis(5), true, |config| {
            let late_syncs = config.late_syncs.as_mut().expect("hedged");
            late_syncs.give_up_min = Duration::from_secs(60);
        });
        let of_spare = bench.fs.data_nodes_of(&bench.spare()).unwrap();
        let of_current = bench.fs.data_nodes_of(&bench.wal.current_file()).unwrap();
        let slow = of_current.into_iter().find(|node| of_spare.contains(node))?;
        Some((bench, slow))
    });
    let (bench, slow) = made.expect("four DataNodes have two files of three");
    let (first, spare) = (bench.wal.current_file(), bench.spare());
    bench.append(1);
    bench.wal.drive();
    bench.fs.freeze_data_node(slow, true);
    bench.append(2);
    let wal = bench.wal.clone();
    let driver = spawn_thread("driver", move || _ = wal.drive()).unwrap();
    std::thread::sleep(Duration::from_millis(50)); // ten times as long as a sync may take
    bench.check_told(1..=1);
    bench.fs.freeze_data_node(slow, false);
    driver.join().unwrap();
    bench.check_told(1..=2);
    assert_eq!((bench.wal.stats().replacements, bench.wal.stats().late_syncs), (0, 0));
    assert_eq!((bench.wal.current_file(), bench.spare()), (first, spare));
    assert_eq!(Bench::recovered(&bench.fs.crash(CrashMode::Drop, 1)), [1, 2]);
}

/// All machines are late: nobody is blamed, and the first answer counts.
#[test]
fn nobody_is_blamed_when_all_machines_are_late() {
    let bench = Bench::made(1, Duration::from_millis(2), true, |_| {});
    (0..4).for_each(|node| bench.fs.freeze_data_node(node, true));
    bench.append(1);
    let wal = bench.wal.clone();
    let driver = spawn_thread("driver", move || _ = wal.drive()).unwrap();
    wait_until("the round goes to the spare", || bench.wal.stats().late_syncs == 1);
    (0..4).for_each(|node| bench.fs.freeze_data_node(node, false));
    driver.join().unwrap();
    bench.check_told(1..=1);
    assert_eq!(bench.wal.stats().files_count + bench.wal.useless_files().len(), 2);
}

/// A spare file that had lost a race stayed among the files of the log, with a round that stands in the middle of another
/// one: whoever read them one after the other met old entries behind newer ones. The process may die before it is removed, and
/// then it can be told from the others.
#[test]
fn a_spare_file_that_lost_a_race_repeats_another_one_and_is_removed() {
    let mut lost = 0;
    for seed in 0..20 {
        let bench = Bench::on(seed, Duration::from_millis(2));
        bench.write(1);
        let (first, spare) = (bench.wal.current_file(), bench.spare());
        (0..4).for_each(|node| bench.fs.freeze_data_node(node, true));
        (2..=4).for_each(|seq| bench.append(seq));
        let wal = bench.wal.clone();
        let driver = spawn_thread("driver", move || _ = wal.drive()).unwrap();
        wait_until("the round goes to the spare", || bench.wal.stats().late_syncs == 1);
        (0..4).for_each(|node| bench.fs.freeze_data_node(node, false));
        driver.join().unwrap();
        bench.check_told(1..=4);
        bench.write(5);
        let crashed = bench.fs.crash(CrashMode::Drop, seed);
        let env = common::env(&crashed);
        let open = |path: &Path| -> Result<WalReader> {
            env.fs.seal(path)?;
            WalReader::open(&env, path)
        };
        let seqs = |from: u64| -> Vec<u64> {
            let mut reader = open(&spare).unwrap();
            let all = std::iter::from_fn(|| {
                let at = reader.offset();
                reader.next_entry().unwrap().map(|(key, _)| (at, key.log_sequence_number))
            });
            all.filter(|(at, _)| *at >= from).map(|(_, seq)| seq).collect()
        };
        let repeated = repeated_len(&|| open(&spare), &mut [&first].into_iter().map(|it| open(it))).unwrap();
        if bench.wal.current_file() == spare {
            let of_first =
                open(&first).unwrap().filter(|entry| entry.as_ref().unwrap().0.log_sequence_number > 1);
            let of_first = of_first.count() as u64;
            assert_eq!(seqs(repeated), (2 + of_first..=5).collect::<Vec<_>>(), "seed {seed}");
        } else {
            assert_eq!(seqs(repeated), [], "seed {seed}: it has nothing that the other one has not");
            assert_eq!(bench.wal.useless_files(), [spare]);
            lost += 1;
        }
        assert_eq!(Bench::recovered(&crashed), [1, 2, 3, 4, 5]);
    }
    assert!(lost > 0, "the spare has won each time");
}

/// A spare file on a machine that died is not tried.
#[test]
fn a_spare_file_on_a_dead_machine_is_left_out() {
    let bench = Bench::made(3, Duration::from_secs(20), true, |_| {});
    bench.append(1);
    bench.wal.drive();
    let spare = bench.spare();
    let of_spare = bench.fs.data_nodes_of(&spare).unwrap();
    let of_current = bench.fs.data_nodes_of(&bench.wal.current_file()).unwrap();
    let dead = of_current.into_iter().find(|node| of_spare.contains(node)).expect("four have two of three");
    bench.fs.set_data_node(dead, false);
    bench.append(2);
    for _ in 0..50 {
        bench.wal.drive();
        bench.clock.advance(Duration::from_secs(1)); // a new file may get the dead machine
    }
    assert_ne!(bench.wal.current_file(), spare);
    bench.check_told(1..=2);
}

#[test]
fn an_encrypted_round_goes_to_two_files_as_well() {
    common::encrypted(|| {
        the_first_answer_counts_whichever_file_gives_it();
        a_crash_after_a_late_sync_loses_nothing();
    });
}

#[test]
fn a_compressed_round_goes_to_two_files_as_well() {
    common::compressed(|| {
        the_first_answer_counts_whichever_file_gives_it();
        a_crash_after_a_late_sync_loses_nothing();
        a_late_round_goes_to_a_spare_file_without_the_slow_machine();
        a_log_without_idle_threads_waits();
    });
}
