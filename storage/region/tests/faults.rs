//! Every operation on files fails once, with `EIO` or for want of space, in the middle of a life of writes, flushes,
//! compactions and rolls. Whatever the failure hits, the error names a file, what was acknowledged can be read
//! then and after a restart, nothing that was deleted comes back, and a region whose log did not fail serves on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use bytes::Bytes;
use halcyon_cell::{CellType, ErrorKind, Result};
use halcyon_env::sim::{CrashMode, Fault, SimDisk, SimFileSystem};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

const ROWS: [&str; 4] = ["r1", "r2", "r3", "r4"];

#[derive(Default)]
struct Row {
    /// What was asked for, in order: a version, or `None` for a delete.
    states: Vec<Option<u32>>,
    /// How many of them, the last acknowledged one included.
    acknowledged: usize,
}

/// A life in which failures are told and not minded.
struct Life {
    bench: Bench,
    rows: BTreeMap<&'static str, Row>,
    version: u32,
    errors: Vec<String>,
    /// After a major compaction.
    files_max: usize,
}

impl Life {
    fn new(fs: Arc<SimFileSystem>, policy: Policy, tracker: Tracker) -> Result<Life> {
        let family = tracker(FamilyDescriptor::new("f").unwrap().with("BLOCKSIZE", "64"));
        let families = [with_policy(family, policy, 0)];
        let files_max = if policy == Policy::Stripe { ROWS.len() } else { 1 };
        let bench = Bench::try_on(fs, &families)?;
        Ok(Life { bench, rows: BTreeMap::new(), version: 0, errors: Vec::new(), files_max })
    }

    fn note<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        result
            .map_err(|error| {
                // A stopped log, a full one and a read from a file: each says what and where.
                assert!(!error.message().is_empty(), "{what} failed without a word");
                assert!(
                    error.message().contains('/') || error.kind() == ErrorKind::Stopping,
                    "{what} failed and names no file: {error}"
                );
                self.errors.push(format!("{what}: {error}"));
            })
            .ok()
    }

    fn write(&mut self, row: &'static str, delete: bool) {
        self.bench.clock.advance(Duration::from_millis(150)); // a full log tries again
        self.version += 1;
        let state = (!delete).then_some(self.version);
        let mutation = match state {
            Some(version) => {
                let cell = parse_cell(row, &format!("f:q=v{version}"), CellType::Put, false);
                mutation(MutationKind::Put, row.as_bytes(), vec![cell])
            }
            None => mutation(MutationKind::Delete, row.as_bytes(), Vec::new()),
        };
        self.rows.entry(row).or_default().states.push(state);
        let outcome = self.bench.region.mutate(vec![mutation], false, Nonce::default(), ReadMode::AnyDisk);
        self.bench.wal.drive();
        // A write that waits for space is neither lost nor acknowledged; its client waits.
        let done = match outcome {
            Ok(outcome) if !outcome.ticket.is_ready() => return,
            Ok(outcome) => outcome.ticket.wait(),
            Err(error) => Err(error),
        };
        if self.note("write", done).is_some() {
            let entry = self.rows.get_mut(row).expect("just written");
            entry.acknowledged = entry.states.len();
        }
    }

    fn flush(&mut self) {
        let done = self.bench.region.flush(None);
        self.note("flush", done);
    }

    fn compact(&mut self, major: bool) {
        let done = self.bench.compact(major);
        self.note("compaction", done);
    }

    fn roll(&mut self) {
        let done = self.bench.wal.roll();
        self.note("roll", done);
    }

    /// Deletes follow what they delete into files of their own, and major compactions drop both: a file that was left
    /// behind before would bring cells back.
    fn live(&mut self) {
        for row in ROWS {
            self.write(row, false);
        }
        self.flush();
        self.write("r1", false);
        self.flush();
        self.compact(false);
        self.write("r2", true);
        self.roll();
        self.flush();
        self.compact(true);
        self.write("r3", false);
        self.write("r1", true);
        self.read();
        self.flush();
        self.compact(true);
        self.roll();
        self.write("r4", false);
    }

    fn read(&mut self) {
        for row in ROWS {
            let cells =
                self.bench.region.get(Scan::of_row(Bytes::from_static(row.as_bytes())), ReadMode::AnyDisk);
            self.note("read", cells);
        }
    }

    fn check(&self, what: &str) {
        for (name, row) in &self.rows {
            let scan = Scan::of_row(Bytes::from_static(name.as_bytes()));
            let cells = self.bench.region.get(scan, ReadMode::AnyDisk);
            let cells = cells.unwrap_or_else(|error| panic!("{what}: {name}: {error}"));
            let value = cells.first().map(|cell| String::from_utf8_lossy(cell.value())[1..].parse().unwrap());
            let allowed = &row.states[row.acknowledged.saturating_sub(1)..];
            let fresh = row.acknowledged == 0 && value.is_none();
            assert!(
                fresh || allowed.contains(&value),
                "{what}: {name} shows {value:?}, allowed are {allowed:?}; errors: {:#?}\n{:#?}",
                self.errors,
                self.bench.fs.dump()
            );
        }
    }

    /// Everything works again: the region takes writes, flushes and compacts, and files that were left are gone.
    fn serves_again(&mut self, what: &str) {
        let before = self.errors.len();
        self.write("r1", false);
        self.write("r2", false);
        self.flush();
        self.write("r2", true);
        self.flush();
        self.compact(true);
        self.roll();
        assert_eq!(self.errors[before..], [] as [&str; 0], "{what}: after the fault is gone");
        // What a restart found half written is left to the cleaner where a list says which files are the store's.
        self.bench.region.archive_strays(|_| true).unwrap_or_else(|e| panic!("{what}: cleaning: {e}"));
        let files = self.bench.fs.dump().into_iter().map(|(path, _)| path);
        let in_store = |path: &PathBuf| {
            path.starts_with("/root/data") && path.parent().is_some_and(|dir| dir.ends_with("f"))
        };
        let data: Vec<PathBuf> = files.filter(in_store).collect();
        let known = self.bench.region.stats().store_files;
        assert_eq!(data.len(), known, "{what}: files that nobody knows: {data:?}");
        assert!(known <= self.files_max, "{what}: after a major compaction: {data:?}");
        self.check(what);
    }
}

fn fault_of(kind: &str, n: u64) -> Fault {
    match kind {
        "EIO" => Fault::any().nth(n),
        "ENOSPC" => Fault::any().nth(n).no_space(),
        "a full disk" => Fault::any().nth(n).no_space().forever(),
        "no answer" => Fault::any().nth(n).but_done(),
        "a late change" => Fault::any().nth(n).but_done_later(),
        _ => Fault::any().nth(n).forever(),
    }
}

/// Sets how stores know their files.
type Tracker = fn(FamilyDescriptor) -> FamilyDescriptor;

#[test]
fn every_operation_fails() {
    each_operation_fails(Policy::Exploring, |family| family);
}

/// What a failed write leaves in a store's directory goes as well, and only after the list has let go of it.
#[test]
fn every_operation_fails_with_a_list_of_files() {
    each_operation_fails(Policy::Exploring, listed);
}

#[test]
fn every_operation_of_a_migration_fails() {
    each_operation_fails(Policy::Exploring, |family| migrating(family, "DEFAULT", "FILE"));
}

/// Flushes and compactions write several files here.
#[test]
fn every_operation_fails_with_stripes() {
    each_operation_fails(Policy::Stripe, |family| family);
}

/// HDFS cannot take back what a full disk refused, so the log stops there.
const KINDS: [(SimDisk, &[&str]); 2] = [
    (SimDisk::Local, &["EIO", "ENOSPC", "a full disk", "a dead disk"]),
    (SimDisk::Hdfs, &["EIO", "no answer", "a late change", "a dead disk"]),
];

fn each_operation_fails(policy: Policy, tracker: Tracker) {
    KINDS.iter().for_each(|(disk, kinds)| each_operation_fails_on(*disk, kinds, policy, tracker));
}

fn each_operation_fails_on(disk: SimDisk, kinds: &[&str], policy: Policy, tracker: Tracker) {
    let fs = Arc::new(disk.files(1));
    let mut whole = Life::new(fs.clone(), policy, tracker).unwrap();
    let first = fs.operations();
    whole.live();
    whole.serves_again("without a fault");
    assert_eq!(whole.errors, [] as [&str; 0]);
    let operations = fs.operations() - first;
    assert!(operations > 150, "{operations} operations");
    let mut stopped = 0;
    for kind in kinds {
        for n in 1..=operations {
            let what = format!("{disk:?}: {kind} from operation {n} of {operations}");
            let fs = Arc::new(disk.files(1));
            let mut life = Life::new(fs.clone(), policy, tracker).unwrap();
            fs.inject(fault_of(kind, n));
            life.live();
            fs.clear_faults();
            if disk == SimDisk::Hdfs {
                fs.deliver_late();
            }
            life.bench.clock.advance(Duration::from_millis(150));
            life.bench.wal.drive();
            life.check(&what);
            if life.bench.wal.stopped().is_some() {
                assert!(!kind.contains("ENOSPC") && !kind.contains("full"), "{what} stopped the log");
                stopped += 1;
            } else {
                life.serves_again(&what);
            }
            for mode in [CrashMode::Keep, CrashMode::Drop] {
                let left = Arc::new(life.bench.fs.crash(mode, n));
                life.bench.recover_on(left).unwrap_or_else(|e| panic!("{what}: opening again: {e}"));
                life.check(&format!("{what}, {mode:?} and open"));
            }
            life.serves_again(&format!("{what}, after a restart"));
        }
    }
    println!("{disk:?}: {operations} operations, four faults each; {stopped} of them stopped the log");
    assert!(stopped > 0);
}

/// A region is opened while operations fail: it is opened or not, and if not, opens when they no longer do.
#[test]
fn every_operation_of_opening_fails() {
    every_operation_of_an_opening_fails(|family| family);
}

#[test]
fn every_operation_of_opening_with_a_list_fails() {
    every_operation_of_an_opening_fails(listed);
    every_operation_of_an_opening_fails(|family| migrating(family, "FILE", "DEFAULT"));
}

fn every_operation_of_an_opening_fails(tracker: Tracker) {
    let lived = || {
        let fs = Arc::new(SimFileSystem::new());
        let mut life = Life::new(fs, Policy::Exploring, tracker).unwrap();
        life.live();
        life.write("r3", true);
        life
    };
    let mut whole = lived();
    let left = Arc::new(whole.bench.fs.crash(CrashMode::Keep, 1));
    let first = left.operations();
    whole.bench.recover_on(left.clone()).unwrap();
    let operations = left.operations() - first;
    for kind in ["EIO", "a full disk"] {
        for n in 1..=operations {
            let what = format!("{kind} from operation {n} of {operations} of an opening");
            let mut life = lived();
            let left = Arc::new(life.bench.fs.crash(CrashMode::Keep, n));
            left.inject(fault_of(kind, n));
            let opened = life.bench.recover_on(left.clone());
            left.clear_faults();
            if life.note("open", opened).is_none() {
                let left = Arc::new(left.crash(CrashMode::Keep, n));
                life.bench.recover_on(left).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            life.check(&what);
            life.serves_again(&what);
        }
    }
    println!("{operations} operations of an opening, two faults each");
}
