//! A WAL in HDFS whose DataNodes stop and fail at random, so that its files race and replace each other. Its server dies, each file is
//! split alone, and the region is opened by servers that die as well. What was acknowledged is there, once.
#![allow(clippy::disallowed_methods)] // waits for real threads

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Bench, env_of, root, set_replay_flush_bytes};
use crate::overlapping::{cell_of, row_of, split_alone};
use halcyon_cell::{Cell, Result, SeqId};
use halcyon_env::sim::{CrashMode, Dice, Fault, Operation, SimFileSystem};
use halcyon_env::{FileSystem, spawn_thread};
use halcyon_region::Scan;
use halcyon_schema::FamilyDescriptor;
use halcyon_testkit::for_each_seed;
use halcyon_wal::{Durability, LateSyncs, SyncJob, SyncMode, SyncThreads, Wal, WalConfig, WalEntry};
use parking_lot::Mutex;

const SEEDS: Range<u64> = 0..4;
const LATE: Duration = Duration::from_millis(2);
const WAIT_MAX: Duration = Duration::from_secs(20);
/// Some edits.
const FLUSH_BYTES: u64 = 6 << 10;
const ROUNDS: usize = 16;
/// Deaths that are tried for each seed, about.
const DEATHS: usize = 16;
/// Whose cells all have the same column and time: the one with the highest sequence id counts.
const SHARED_ROW: &str = "shared";

struct Threads;

impl SyncThreads for Threads {
    fn run(&self, job: SyncJob) -> std::result::Result<(), SyncJob> {
        spawn_thread("sync", job).expect("a thread");
        Ok(())
    }
}

/// What became of each edit: `true` if it was acknowledged.
type Told = Arc<Mutex<BTreeMap<u64, bool>>>;

/// The server that dies.
struct Writer<'a> {
    bench: &'a Bench,
    dir: PathBuf,
    wal: Arc<Wal>,
    told: Told,
    next_seq: u64,
    races: u64,
}

impl Writer<'_> {
    fn open(bench: &Bench) -> Writer<'_> {
        let dir = root().join("dead/s");
        let mut config = WalConfig::new(dir.clone(), root().join("oldWALs"), "s");
        (config.sync_mode, config.keeps_spare) = (SyncMode::Remote, true);
        let (late_min, late_max, give_up_min) = (LATE, LATE, LATE);
        config.late_syncs = Some(LateSyncs { threads: Arc::new(Threads), late_min, late_max, give_up_min });
        let wal = Wal::open(env_of(&bench.fs, &bench.clock), config).unwrap();
        let next_seq = bench.region.open_seq_num().get() + 1;
        Writer { bench, dir, wal, told: Told::default(), next_seq, races: 0 }
    }

    fn append(&mut self) {
        let (seq, told) = (self.next_seq, self.told.clone());
        self.next_seq += 1;
        let shared = Cell::put(SHARED_ROW.as_bytes(), b"f", b"q", 1, &seq.to_be_bytes());
        let own = cell_of(seq);
        let cells = [own.get(), shared.get()];
        let entry = WalEntry {
            region: self.bench.info.encoded_name().as_bytes(),
            table: b"t",
            seq: SeqId::new(seq),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        told.lock().insert(seq, false);
        let tell = move |result: &Result<()>| {
            told.lock().insert(seq, result.is_ok());
        };
        self.wal.append(&entry, Durability::SyncWal, Box::new(tell)).unwrap();
    }

    /// One round, with something that goes wrong.
    fn round(&mut self, dice: &mut Dice) {
        let fs = &self.bench.fs;
        self.bench.clock.advance(Duration::from_secs(61)); // a race is allowed again
        _ = self.wal.keep_spare();
        (0..1 + dice.below(4)).for_each(|_| self.append());
        match dice.below(8) {
            0 => fs.inject(Fault::new(Operation::Sync, "/dead/")),
            1 => (1..=2).for_each(|nth| fs.inject(Fault::new(Operation::Sync, "/dead/").nth(nth))),
            2 => fs.inject(Fault::new(Operation::Write, "/dead/")),
            3 => _ = self.wal.roll(),
            4 | 5 => return self.race(),
            _ => {}
        }
        self.wal.drive();
        self.bench.clock.advance(Duration::from_secs(1));
        self.wal.drive();
        if dice.below(4) > 0 {
            fs.clear_faults();
        }
    }

    /// All DataNodes stand still until the round is on its way to both files.
    fn race(&mut self) {
        let (fs, before) = (&self.bench.fs, self.wal.stats().late_syncs);
        (0..4).for_each(|node| fs.freeze_data_node(node, true));
        let (wal, is_over) = (self.wal.clone(), Arc::new(AtomicBool::new(false)));
        let over = is_over.clone();
        let driver = spawn_thread("driver", move || {
            wal.drive();
            over.store(true, Ordering::SeqCst);
        });
        let begin = Instant::now();
        let has_begun =
            || self.wal.stats().late_syncs > before || begin.elapsed() > Duration::from_millis(100);
        while !has_begun() && !is_over.load(Ordering::SeqCst) {
            assert!(begin.elapsed() < WAIT_MAX);
            std::thread::sleep(Duration::from_millis(1));
        }
        (0..4).for_each(|node| fs.freeze_data_node(node, false));
        driver.unwrap().join().unwrap();
        self.races += self.wal.stats().late_syncs - before;
        self.wal.drive();
    }
}

/// Every file, with its bytes.
type Image = Vec<(PathBuf, Vec<u8>)>;

fn image_of(fs: &SimFileSystem) -> Image {
    let names = fs.dump().into_iter().map(|(path, _)| path);
    names
        .map(|path| {
            fs.seal(&path).unwrap();
            let bytes = fs.read(&path).unwrap();
            (path, bytes)
        })
        .collect()
}

fn files_of(image: &Image, bench: &Bench, seed: u64) -> Arc<SimFileSystem> {
    let fs = SimFileSystem::hdfs(seed);
    let region_dir = bench.info.dir(&root());
    [region_dir.join("f"), root().join("WALs"), root().join("oldWALs"), root().join("dead/s")]
        .iter()
        .for_each(|dir| fs.create_dir_all(dir).unwrap());
    for (path, bytes) in image {
        fs.create_dir_all(path.parent().unwrap()).unwrap();
        fs.put_new(path, bytes).unwrap();
    }
    Arc::new(fs)
}

/// Splits each file that is left of the dead server, and opens the region. May be repeated.
fn recover(bench: &mut Bench, fs: &Arc<SimFileSystem>) -> Result<()> {
    bench.fs = fs.clone();
    let dead = Path::new("/root/dead/s");
    let mut logs: Vec<PathBuf> = fs.list(dead)?.into_iter().map(|entry| dead.join(entry.name)).collect();
    logs.reverse(); // in whatever order
    for log in logs {
        split_alone(bench, &log)?;
        let to = root().join("oldWALs").join(log.file_name().unwrap());
        fs.rename(&log, &to).or_else(|error| fs.resolve_rename_of(&log, &to, error))?;
    }
    bench.recover_on(fs.clone())
}

trait Resolve {
    fn resolve_rename_of(&self, from: &Path, to: &Path, error: std::io::Error) -> std::io::Result<()>;
}

impl Resolve for SimFileSystem {
    fn resolve_rename_of(&self, from: &Path, to: &Path, error: std::io::Error) -> std::io::Result<()> {
        (self as &dyn FileSystem).resolve_rename(from, to, error)
    }
}

fn check(bench: &Bench, told: &BTreeMap<u64, bool>, what: &str) {
    let rows = bench.scan(Scan { max_versions: 3, ..Scan::default() }).unwrap();
    let found: BTreeMap<Vec<u8>, usize> = rows.iter().map(|row| (row[0].row().to_vec(), row.len())).collect();
    let mut newest = 0;
    for (seq, is_acknowledged) in told {
        let versions = found.get(row_of(*seq).as_bytes()).copied().unwrap_or_default();
        assert!(
            versions == 1 || !(*is_acknowledged || versions > 1),
            "{what}: {seq} is there {versions} times"
        );
        newest = if versions == 1 { *seq } else { newest };
    }
    let shared = rows.iter().find(|row| row[0].row() == SHARED_ROW.as_bytes()).expect("something is written");
    let value = u64::from_be_bytes(shared[0].value().try_into().unwrap());
    assert_eq!(value, newest, "{what}: the newest of equal cells counts");
}

#[test]
fn what_was_acknowledged_is_replayed_once() {
    let (mut races, mut useless) = (0, 0);
    for_each_seed("-p halcyon-region --test all raced_wals::what_was_acknowledged", SEEDS, |seed| {
        set_replay_flush_bytes(FLUSH_BYTES);
        let mut dice = Dice::new(seed);
        let family = FamilyDescriptor::new("f").unwrap().with("VERSIONS", "3");
        let mut bench = Bench::on(Arc::new(SimFileSystem::hdfs(2 * seed)), &[family]);
        bench.region.close(false).unwrap();
        bench.wal.close().unwrap();
        let (image, told) = {
            let mut writer = Writer::open(&bench);
            (0..ROUNDS).for_each(|_| writer.round(&mut dice));
            assert!(bench.fs.exists(&writer.dir).unwrap());
            races += writer.races;
            useless += writer.wal.useless_files().len();
            let told = writer.told.lock().clone();
            (image_of(&bench.fs.crash(CrashMode::Drop, seed)), told)
        };
        assert!(told.values().filter(|acknowledged| **acknowledged).count() > ROUNDS, "{told:?}");
        let whole = files_of(&image, &bench, seed);
        let first = whole.sync_points() + 1;
        recover(&mut bench, &whole).unwrap();
        check(&bench, &told, &format!("seed {seed}"));
        let last = whole.sync_points();
        for point in (first..=last).step_by(1 + dice.below(2 * (last - first) as usize / DEATHS + 1)) {
            let what = format!("seed {seed}, death at {point} of {first} to {last}");
            let mut fs = files_of(&image, &bench, seed);
            fs.fail_at(point);
            let _ = recover(&mut bench, &fs);
            fs = Arc::new(fs.crash(CrashMode::Keep, point));
            // Another one dies as well.
            fs.fail_at(1 + dice.below((last - first) as usize) as u64);
            if recover(&mut bench, &fs).is_err() {
                fs = Arc::new(fs.crash(CrashMode::Keep, point));
                recover(&mut bench, &fs).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            check(&bench, &told, &what);
        }
    });
    println!("{races} races, {useless} files that lost one were left");
    assert!(races > 0);
}
