//! Servers take a region from one another, one after the other. Each of them may stand still before any call to HDFS, also
//! in the middle of splitting a log or of opening the region, and goes on when its successors have worked for a while. In
//! half of the seeds answers of the NameNode get lost besides, and changes come late.
//!
//! What must hold at each server that has the region, and after a restart: what was acknowledged is shown, whichever server
//! acknowledged it, and no cell that was deleted.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::common::*;
use halcyon_cell::CellType;
use halcyon_env::sim::{CrashMode, Dice, SimFileSystem};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use halcyon_testkit::{for_each_seed, is_part};
use parking_lot::Mutex;

const SEEDS: Range<u64> = 0..150;
const SERVERS_MAX: u64 = 4;
const STEPS: usize = 14;
const ROWS: usize = 6;
const ATTEMPTS_MAX: usize = 400;
/// An opening makes many calls, and all must succeed.
const DISTURBED_ONE_IN: usize = 40;

/// Values that each row may show, `None` for a deleted one: the last acknowledged one, and those written since without an
/// answer. Each with the number of its write.
type Known = BTreeMap<String, Vec<(u64, Option<String>)>>;

/// What all servers of a run share.
struct Run {
    seed: u64,
    known: Mutex<Known>,
    dice: Mutex<Dice>,
    writes: AtomicU64,
    /// Who has the region: the last server whose opening began.
    owner: AtomicU64,
    is_disturbed: bool,
}

impl Run {
    fn below(&self, end: usize) -> usize {
        self.dice.lock().below(end)
    }

    fn what(&self, server: u64) -> String {
        format!("seed {}, server {server}", self.seed)
    }

    fn write(&self, bench: &Bench, server: u64, step: usize) {
        let row = format!("r{}", self.below(ROWS));
        let value = (self.below(4) > 0).then(|| format!("{server}/{step}"));
        let kind = if value.is_some() { MutationKind::Put } else { MutationKind::Delete };
        let cell = |value: &String| parse_cell(&row, &format!("f:q={value}"), CellType::Put, false);
        let cells = value.iter().map(cell).collect();
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        self.known.lock().entry(row.clone()).or_insert_with(|| vec![(0, None)]).push((number, value));
        if bench.mutate(mutation(kind, row.as_bytes(), cells)).is_err() {
            return;
        }
        let mut known = self.known.lock();
        let values = known.get_mut(&row).expect("was just put in");
        // Another server may have had the last word since, if this one stood still before it got its answer.
        if let Some(at) = values.iter().position(|(of, _)| *of == number) {
            values.drain(..at);
        }
    }

    /// It goes on after an error, as a server does that does not know yet that it has lost the region.
    fn step(&self, bench: &Bench, server: u64, step: usize) {
        match self.below(8) {
            0..4 => self.write(bench, server, step),
            4 => _ = bench.region.flush(None),
            5 => _ = bench.compact(false),
            6 => _ = bench.compact(true),
            _ => _ = bench.wal.roll(),
        }
    }

    /// Only the owner sees the last writes. Another server may become the owner during the scan.
    fn check(&self, bench: &Bench, server: u64, what: &str) {
        let scan = || bench.scan(Scan { max_versions: 1, ..Scan::default() });
        let rows = (1..).find_map(|attempt| match scan() {
            Ok(rows) => Some(rows),
            Err(_) if self.owner.load(Ordering::SeqCst) != server => Some(Vec::new()),
            Err(error) => {
                assert!(self.is_disturbed && attempt < ATTEMPTS_MAX, "{what}: {error}");
                None
            }
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let shown: BTreeMap<_, _> =
            rows.iter().flatten().map(|row| (text(row[0].row()), text(row[0].value()))).collect();
        if self.owner.load(Ordering::SeqCst) != server {
            return;
        }
        for (row, values) in &*self.known.lock() {
            let value = shown.get(row).cloned();
            let is_allowed = values.iter().any(|(_, allowed)| *allowed == value);
            assert!(is_allowed, "{what}: row {row} shows {value:?}, allowed are {values:?}");
        }
    }

    /// `false` if another server began to open the region meanwhile: then the master does not let this one serve.
    fn open(&self, bench: &mut Bench, server: u64) -> bool {
        self.owner.store(server, Ordering::SeqCst);
        for _ in 0..ATTEMPTS_MAX {
            let opened = bench.take_over();
            if self.owner.load(Ordering::SeqCst) != server {
                return false;
            }
            match opened {
                Ok(()) => return true,
                Err(error) => assert!(self.is_disturbed, "{}: {error}", self.what(server)),
            }
        }
        panic!("{}: the region does not open in {ATTEMPTS_MAX} attempts", self.what(server));
    }
}

/// The life of one server. The next one lives while this one stands still.
fn live(run: &Arc<Run>, mut bench: Bench, server: u64) {
    let next = Arc::new(Mutex::new(None));
    if server < SERVERS_MAX {
        let (other, run, slot) = (bench.other_server(), run.clone(), next.clone());
        let call = bench.fs.calls() + 1 + run.below(130) as u64;
        bench.fs.pause_at(call, move || {
            let fs = other.fs.clone();
            live(&run, other, server + 1);
            *slot.lock() = Some(fs.calls());
        });
    }
    if server > 1 && !run.open(&mut bench, server) {
        return;
    }
    run.check(&bench, server, &run.what(server));
    for step in 0..STEPS {
        run.step(&bench, server, step);
        run.check(&bench, server, &format!("{}, step {step}", run.what(server)));
    }
}

fn run(seed: u64) -> u64 {
    let fs = Arc::new(SimFileSystem::hdfs(seed));
    let family = FamilyDescriptor::new("f").unwrap().with("BLOCKSIZE", "64");
    let bench = Bench::on(fs.clone(), &[family]);
    let mut last = bench.other_server();
    let run = Arc::new(Run {
        seed,
        known: Mutex::default(),
        dice: Mutex::new(Dice::new(seed)),
        writes: AtomicU64::new(0),
        owner: AtomicU64::new(1),
        is_disturbed: seed % 2 == 1,
    });
    if run.is_disturbed {
        fs.disturb(DISTURBED_ONE_IN);
    }
    live(&run, bench, 1);
    fs.clear_faults();
    let servers = run.owner.load(Ordering::SeqCst);
    for (mode, late) in [(CrashMode::Torn, true), (CrashMode::Drop, false)] {
        let left = last.fs.crash(mode, seed);
        if late {
            left.deliver_late();
        }
        let what = format!("seed {seed}, after {servers} servers, {mode:?}");
        last.recover_on(Arc::new(left)).unwrap_or_else(|error| panic!("{what}: {error}"));
        run.check(&last, servers, &what);
    }
    servers
}

#[test]
fn servers_that_thaw_change_nothing() {
    let mut servers = 0;
    for_each_seed("-p halcyon-region --test all frozen::servers_that_thaw", SEEDS, |seed| {
        servers += run(seed)
    });
    assert!(is_part(SEEDS) || servers > 300, "{servers} servers: others take over");
}
