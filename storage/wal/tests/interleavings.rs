//! Appends, rolls and failures in very many interleavings:
//! `RUSTFLAGS="--cfg halcyon_shuttle" cargo test --release -p halcyon-wal --test interleavings`.
//!
//! Under Shuttle no wait ends by its timeout, so a lost wakeup is a deadlock, which Shuttle reports with a schedule.
#![cfg(halcyon_shuttle)]

use std::path::Path;
use std::sync::atomic::AtomicU64 as Counter;
use std::sync::{Arc, Mutex as Plain};
use std::time::Duration;

use halcyon_cell::{Cell, ErrorKind, Result, SeqId};
use halcyon_env::sim::{CrashMode, Fault, Operation, SimFileSystem};
use halcyon_env::sync::atomic::{AtomicBool, Ordering};
use halcyon_env::sync::{Condvar, Mutex};
use halcyon_wal::{
    Durability, LateSyncs, SyncJob, SyncMode, SyncThreads, Wal, WalConfig, WalEntry, WalReader,
};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

const ROUNDS: usize = 2_000;
const LOGS: &str = "/WALs/h";
const ENTRIES: u64 = 2;

/// Random schedules, and schedules of few preemptions at the most awkward places.
fn explore(body: impl Fn() + Send + Sync + Clone + 'static) {
    let config = || {
        let mut config = Config::new();
        config.stack_size = 1 << 18; // reading a log takes more than the default
        config
    };
    Runner::new(RandomScheduler::new(ROUNDS), config()).run(body.clone());
    Runner::new(PctScheduler::new(3, ROUNDS), config()).run(body);
}

/// How a thread learns what became of its append.
#[derive(Clone, Default)]
struct Ticket(Arc<(Mutex<Option<Result<()>>>, Condvar)>);

impl Ticket {
    fn tell(&self, result: &Result<()>) {
        let before = self.0.0.lock().replace(result.clone());
        assert!(before.is_none(), "an append is told once");
        self.0.1.notify_all();
    }

    fn is_told(&self) -> bool {
        self.0.0.lock().is_some()
    }

    fn wait(&self) -> Result<()> {
        let mut told = self.0.0.lock();
        while told.is_none() {
            self.0.1.wait(&mut told);
        }
        told.clone().expect("told")
    }
}

/// What was acknowledged, in this order: region and sequence id.
type Acknowledged = Arc<Plain<Vec<(u8, u64)>>>;

struct Case {
    fs: SimFileSystem,
    wal: Arc<Wal>,
    acknowledged: Acknowledged,
    /// The machine dies right after so many acknowledgements.
    dies_after: Option<usize>,
    found: Arc<Plain<Option<SimFileSystem>>>,
}

impl Case {
    fn new(dies_after: Option<usize>) -> Arc<Case> {
        Case::with(dies_after, |_| {})
    }

    fn with(dies_after: Option<usize>, change: impl FnOnce(&mut WalConfig)) -> Arc<Case> {
        Case::on(SimFileSystem::new(), dies_after, change)
    }

    /// A log in HDFS, of which a spare file is kept.
    fn remote() -> Arc<Case> {
        Case::on(SimFileSystem::hdfs(1), None, |config| {
            (config.sync_mode, config.keeps_spare) = (SyncMode::Remote, true);
        })
    }

    fn on(fs: SimFileSystem, dies_after: Option<usize>, change: impl FnOnce(&mut WalConfig)) -> Arc<Case> {
        let mut config = WalConfig::new(LOGS, "/oldWALs", "h");
        change(&mut config);
        let wal = Wal::open(fs.env(), config).unwrap();
        let (acknowledged, found) = (Acknowledged::default(), Arc::default());
        Arc::new(Case { fs, wal, acknowledged, dies_after, found })
    }

    fn append(self: &Arc<Self>, region: u8, seq: u64) -> Result<Ticket> {
        let cell = Cell::put(b"r", b"f", b"q", 1, b"v");
        let cells = [cell.get()];
        let entry = WalEntry {
            region: &[region],
            table: b"t",
            seq: SeqId::new(seq),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        let ticket = Ticket::default();
        let (case, told) = (self.clone(), ticket.clone());
        let tell = move |result: &Result<()>| {
            if result.is_ok() {
                case.acknowledge(region, seq);
            }
            told.tell(result);
        };
        self.wal.append(&entry, Durability::FsyncWal, Box::new(tell))?;
        Ok(ticket)
    }

    fn acknowledge(&self, region: u8, seq: u64) {
        let mut acknowledged = self.acknowledged.lock().unwrap();
        acknowledged.push((region, seq));
        if self.dies_after == Some(acknowledged.len()) {
            *self.found.lock().unwrap() = Some(self.fs.crash(CrashMode::Drop, 1));
        }
    }

    /// Appends the entries of a region, one after the other, until one fails. `bring_along` has them written.
    fn write(self: &Arc<Self>, region: u8, bring_along: impl Fn(&Wal, &Ticket)) {
        for seq in 1..=ENTRIES {
            let ticket = match self.append(region, seq) {
                Ok(ticket) => ticket,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Stopping, "{error}");
                    return;
                }
            };
            bring_along(&self.wal, &ticket);
            if ticket.wait().is_err() {
                assert!(self.wal.stopped().is_some(), "a failure stops the WAL");
                let refused = self.append(region, seq + 1).err().expect("and later appends are refused");
                assert_eq!(refused.kind(), ErrorKind::Stopping);
                return;
            }
        }
    }

    /// What recovery finds, in order of the files: region and sequence id.
    fn entries(fs: &SimFileSystem) -> Vec<(u8, u64)> {
        let env = fs.env();
        let mut names: Vec<String> =
            env.fs.list(Path::new(LOGS)).unwrap().into_iter().map(|e| e.name).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        let mut found = Vec::new();
        for name in names {
            env.fs.seal(&Path::new(LOGS).join(&name)).unwrap();
            let mut reader = WalReader::open(&env, &Path::new(LOGS).join(name)).unwrap();
            while let Some((key, _)) = reader.next_entry().unwrap() {
                found.push((key.encoded_region_name[0], key.log_sequence_number));
            }
        }
        found
    }

    /// After the threads have ended.
    fn check(&self, all_is_well: bool) {
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        let found = match self.found.lock().unwrap().take() {
            Some(at_death) => {
                let died_after = self.dies_after.expect("somebody asked for it");
                let found = Case::entries(&at_death);
                for entry in &acknowledged[..died_after] {
                    assert!(
                        found.contains(entry),
                        "{entry:?} was acknowledged before it was on disk: {found:?}"
                    );
                }
                found
            }
            None => Case::entries(&self.fs.crash(CrashMode::Drop, 1)),
        };
        for region in *b"ab" {
            let of_region = |list: &[(u8, u64)]| -> Vec<u64> {
                list.iter().filter(|entry| entry.0 == region).map(|entry| entry.1).collect()
            };
            let (mut found, told) = (of_region(&found), of_region(&acknowledged));
            if self.wal.sync_mode() == SyncMode::Remote {
                // What was in doubt when a file failed may stand in it, and stands in the next one.
                let mut first = std::collections::HashSet::new();
                found.retain(|seq| first.insert(*seq));
            }
            assert!(
                found.is_sorted_by(|a, b| a < b),
                "entries stand in the order of their appends: {found:?}"
            );
            assert!(told.is_sorted_by(|a, b| a < b), "and are acknowledged in it: {told:?}");
            if self.dies_after.is_none() {
                assert!(
                    told.iter().all(|seq| found.contains(seq)),
                    "{told:?} was acknowledged, {found:?} is there"
                );
            }
            if all_is_well {
                assert_eq!((found.len(), told.len()), (ENTRIES as usize, ENTRIES as usize));
            }
        }
    }
}

/// Two threads that write and, if wanted, one that rolls.
fn run(case: &Arc<Case>, bring_along: fn(&Wal, &Ticket), rolls: bool) {
    let mut threads: Vec<_> = (*b"ab")
        .into_iter()
        .map(|region| {
            let case = case.clone();
            thread::spawn(move || case.write(region, bring_along))
        })
        .collect();
    if rolls {
        let case = case.clone();
        threads.push(thread::spawn(move || drop(case.wal.roll())));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A driver that sleeps until there is work, as the server's WAL thread does.
fn with_driver(case: &Arc<Case>, body: impl FnOnce()) {
    let (over, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (wal, is_over, ends) = (case.wal.clone(), over.clone(), ended.clone());
    let driver = thread::spawn(move || {
        while !is_over.load(Ordering::SeqCst) {
            wal.wait_for_work(Duration::from_secs(1));
            if !wal.drive() {
                thread::yield_now(); // another thread is at it; without this an unfair schedule never lets it go on
            }
        }
        ends.store(true, Ordering::SeqCst);
    });
    body();
    over.store(true, Ordering::SeqCst);
    while !ended.load(Ordering::SeqCst) {
        case.wal.wake_driver(); // it may be about to sleep, so once is not enough
        thread::yield_now();
    }
    driver.join().unwrap();
}

/// Threads that drive leave nobody behind, also when the file is rolled meanwhile.
#[test]
fn appenders_that_drive_are_told() {
    explore(|| {
        let case = Case::new(None);
        with_driver(&case, || run(&case, |wal, _| _ = wal.drive(), true));
        case.check(true);
    });
}

/// As above, with no thread that drives always and no roll: whoever appended last drives.
#[test]
fn appenders_that_drive_need_no_other() {
    explore(|| {
        let case = Case::new(None);
        run(&case, |wal, _| _ = wal.drive(), false);
        case.check(true);
    });
}

/// Threads that write one round each in turns; a roll may take what one of them appended.
#[test]
fn appenders_that_take_turns_are_told() {
    explore(|| {
        let case = Case::new(None);
        with_driver(&case, || run(&case, |wal, ticket| wal.drive_until(|| ticket.is_told()), true));
        case.check(true);
    });
}

/// Only the WAL thread drives, as with fsync.
#[test]
fn appenders_that_only_wait_are_told() {
    explore(|| {
        let case = Case::new(None);
        with_driver(&case, || run(&case, |_, _| (), true));
        case.check(true);
    });
}

/// The machine dies right after an acknowledgement: the entry is there.
#[test]
fn an_entry_is_on_disk_when_it_is_acknowledged() {
    for dies_after in 1..=3 {
        explore(move || {
            // The clock stands still, so nothing is tried again later.
            let case = Case::with(Some(dies_after), |config| config.errors_tolerated = 0);
            with_driver(&case, || run(&case, |wal, _| _ = wal.drive(), true));
            case.check(false);
        });
    }
}

/// A failed sync is told to everybody who waits, and to everybody who comes later.
#[test]
fn a_failed_sync_stops_a_wal_that_tolerates_none() {
    for nth in 1..=3 {
        explore(move || {
            let case = Case::with(None, |config| config.errors_tolerated = 0);
            case.fs.inject(Fault::new(Operation::Sync, "WALs").nth(nth));
            with_driver(&case, || run(&case, |wal, _| _ = wal.drive(), true));
            case.check(false);
        });
    }
}

/// After a failed sync the WAL goes on in a new file, whoever drives: everything is acknowledged, and recovered.
#[test]
fn a_failed_sync_is_made_good() {
    for nth in 1..=3 {
        explore(move || {
            let case = Case::new(None);
            case.fs.inject(Fault::new(Operation::Sync, "WALs").nth(nth));
            with_driver(&case, || run(&case, |wal, _| _ = wal.drive(), true));
            case.check(true);
        });
    }
}

/// The same in HDFS, where only the log's own thread writes, while another one makes spare files.
#[test]
fn a_failed_sync_of_a_remote_wal_is_made_good() {
    for nth in 1..=3 {
        explore(move || {
            let case = Case::remote();
            case.fs.inject(Fault::new(Operation::Sync, "WALs").nth(nth));
            let other = case.clone();
            let spares = thread::spawn(move || _ = other.wal.keep_spare()); // the fault may hit it
            with_driver(&case, || run(&case, |wal, _| wal.drive_or_wake(), true));
            spares.join().unwrap();
            case.check(true);
        });
    }
}

/// A full buffer of a remote log: who appends waits for the log's own thread, and writes nothing. A roll that took the buffer woke
/// none of them.
#[test]
fn appenders_wait_for_room_in_a_remote_wal() {
    for rolls in [false, true] {
        explore(move || {
            let case = Case::on(SimFileSystem::hdfs(1), None, |config| {
                (config.sync_mode, config.buffer_max_bytes) = (SyncMode::Remote, 1);
            });
            with_driver(&case, || run(&case, |wal, ticket| wal.drive_until(|| ticket.is_told()), rolls));
            case.check(true);
        });
    }
}

/// A thread of Shuttle's for each job.
struct Threads;

impl SyncThreads for Threads {
    fn run(&self, job: SyncJob) -> std::result::Result<(), SyncJob> {
        thread::spawn(job);
        Ok(())
    }
}

/// Every sync is late at once: a round goes to two files, of which either answers first, or fails.
#[test]
fn the_first_of_two_files_counts() {
    static RACED: Counter = Counter::new(0);
    for nth in 1..=4 {
        explore(move || {
            let fs = SimFileSystem::hdfs(1);
            fs.set_waits_within(false); // else a file answers in time
            let case = Case::on(fs, None, |config| {
                (config.sync_mode, config.keeps_spare) = (SyncMode::Remote, true);
                let [late_min, late_max, give_up_min] = [Duration::ZERO; 3];
                let threads = Arc::new(Threads);
                config.late_syncs = Some(LateSyncs { threads, late_min, late_max, give_up_min });
            });
            case.wal.keep_spare().unwrap();
            if nth > 1 {
                case.fs.inject(Fault::new(Operation::Sync, "WALs").nth(nth - 1));
            }
            with_driver(&case, || run(&case, |wal, _| wal.drive_or_wake(), true));
            case.check(true);
            RACED.fetch_add(case.wal.stats().late_syncs, Ordering::Relaxed);
        });
    }
    assert!(RACED.load(Ordering::Relaxed) > ROUNDS as u64, "most schedules use the spare file");
}
