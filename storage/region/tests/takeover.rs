//! A server stands still before any one of its calls to HDFS, as if it were frozen. Another one takes its log and its
//! region over and serves. Then the first one goes on, and a third one opens the region.
//!
//! What must hold: the third one shows what was acknowledged by the first two, and no cell that the second one deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::*;
use halcyon_cell::{CellType, Result};
use halcyon_env::FileSystem;
use halcyon_env::sim::{CrashMode, Fault, SimFileSystem};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use halcyon_testkit::for_each_seed;
use parking_lot::Mutex;

/// Sets how stores know their files.
type Tracker = fn(FamilyDescriptor) -> FamilyDescriptor;

/// Values that each row may show, `None` for a deleted one: the last acknowledged one, and those written since without an
/// answer.
type Known = BTreeMap<String, Vec<Option<String>>>;

fn write(bench: &Bench, known: &Mutex<Known>, row: &str, value: Option<&str>) -> Result<()> {
    let kind = if value.is_some() { MutationKind::Put } else { MutationKind::Delete };
    let cell = |value| parse_cell(row, &format!("f:q={value}"), CellType::Put, false);
    known.lock().entry(row.to_string()).or_default().push(value.map(str::to_string));
    bench.mutate(mutation(kind, row.as_bytes(), value.map(cell).into_iter().collect()))?;
    let mut known = known.lock();
    let values = known.get_mut(row).expect("was just put in");
    values.drain(..values.len() - 1);
    Ok(())
}

fn check(bench: &Bench, known: &Known, what: &str) {
    let rows = bench.scan(Scan { max_versions: 1, ..Scan::default() }).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shown: BTreeMap<_, _> =
        rows.iter().map(|cells| (text(cells[0].row()), text(cells[0].value()))).collect();
    for (row, values) in known {
        assert!(
            values.contains(&shown.get(row).cloned()),
            "{what}: row {row} of {shown:?}, known is {known:?}"
        );
    }
    assert!(shown.keys().all(|row| known.contains_key(row)), "{what}: {shown:?}");
}

/// Two files and something in memory, in the region of the first server. Files of a family with a storage policy are made in
/// another directory.
fn prepared(seed: u64, known: &Mutex<Known>, tracker: Tracker) -> Bench {
    let family = tracker(FamilyDescriptor::new("f").unwrap());
    let family = if seed.is_multiple_of(2) { family } else { family.with("STORAGE_POLICY", "ALL_SSD") };
    let bench = Bench::on(Arc::new(SimFileSystem::hdfs(seed)), &[family]);
    for row in ["both", "first", "gone"] {
        write(&bench, known, row, Some("1")).unwrap();
        bench.region.flush(None).unwrap();
    }
    write(&bench, known, "memory", Some("1")).unwrap();
    bench
}

/// All that a server does with its files. It goes on after an error, as a server does that was frozen.
fn first_server(bench: &Bench, known: &Mutex<Known>) {
    let _ = bench.region.flush(None);
    let _ = write(bench, known, "first", Some("2"));
    let _ = bench.compact(false);
    let _ = bench.wal.roll();
    let _ = write(bench, known, "first", Some("3"));
    let _ = bench.region.flush(None);
    let _ = bench.compact(true);
}

/// The second one deletes what the first one has, until no file names it any more; or keeps the files that it found.
fn second_server(bench: &Bench, known: &Mutex<Known>, compacts: bool) {
    write(bench, known, "gone", None).unwrap();
    write(bench, known, "memory", None).unwrap();
    write(bench, known, "both", Some("2")).unwrap();
    bench.region.flush(None).unwrap();
    if compacts {
        bench.compact(true).unwrap();
    }
    write(bench, known, "second", Some("1")).unwrap();
}

/// `false` if the first server makes fewer calls than that. It may get no answer to one of the renames of its files.
fn frozen_before(seed: u64, call: u64, lost_answer: Option<u64>, tracker: Tracker) -> bool {
    let known = Arc::new(Mutex::new(Known::new()));
    let bench = prepared(seed, &known, tracker);
    if let Some(nth) = lost_answer {
        let openings = bench.fs.list(&bench.region.dir().join(".tmp")).unwrap();
        bench.fs.inject(Fault::answer_lost(&openings[0].name).nth(nth));
    }
    let (mut other, slot) = (bench.other_server(), Arc::new(Mutex::new(None)));
    let (known2, slot2) = (known.clone(), slot.clone());
    bench.fs.pause_at(bench.fs.calls() + call, move || {
        other.take_over().unwrap();
        second_server(&other, &known2, lost_answer.is_none());
        *slot2.lock() = Some(other);
    });
    first_server(&bench, &known);
    let Some(mut other) = slot.lock().take() else { return false };
    let what = format!("seed {seed}, frozen before call {call}, lost answer {lost_answer:?}");
    check(&other, &known.lock(), &what);
    other.recover_on(Arc::new(other.fs.crash(CrashMode::Torn, seed))).unwrap();
    check(&other, &known.lock(), &format!("{what}, opened again"));
    true
}

#[test]
fn a_server_that_thaws_changes_nothing() {
    let mut freezes = 0;
    for_each_seed("-p halcyon-region --test all takeover::a_server_that_thaws", 0..3, |seed| {
        let calls = (1..).take_while(|&call| frozen_before(seed, call, None, |family| family)).count();
        assert!(calls > 60, "{calls}");
        freezes += calls;
    });
    println!("frozen before each of {freezes} calls");
}

/// Nor does it write a list of files, and what it makes in the store's directory is nobody's.
#[test]
fn a_server_that_thaws_changes_no_list() {
    let between: [Tracker; 3] = [
        listed,
        |family| migrating(family, "DEFAULT", "FILE"),
        |family| migrating(family, "FILE", "DEFAULT"),
    ];
    for_each_seed(
        "-p halcyon-region --test all takeover::a_server_that_thaws_changes_no_list",
        0..4,
        |seed| {
            let tracker = between[seed.min(2) as usize];
            let calls = (1..).take_while(|&call| frozen_before(seed, call, None, tracker)).count();
            assert!(calls > 60, "{calls}");
        },
    );
}

/// A rename that put a file in place had no answer, and the server is frozen before it takes the file back. The next server
/// found it in the store, and it was removed there.
#[test]
fn a_server_that_thaws_takes_back_no_file_of_another() {
    for_each_seed("-p halcyon-region --test all takeover::a_server_that_thaws_takes_back", 0..4, |seed| {
        for tracker in [(|family| family) as Tracker, listed] {
            let frozen = |call: &u64| frozen_before(seed, *call, Some(1 + seed % 4), tracker);
            assert!((1..).take_while(frozen).count() > 40);
        }
    });
}

/// Nor does its log take an entry any more, whatever it is about to do.
#[test]
fn the_log_of_a_frozen_server_is_sealed() {
    for_each_seed("-p halcyon-region --test all takeover::the_log_of_a_frozen_server", 0..20, |seed| {
        let known = Mutex::new(Known::new());
        let bench = prepared(seed, &known, |family| family);
        let mut other = bench.other_server();
        other.take_over().unwrap();
        assert!(write(&bench, &known, "first", Some("late")).is_err(), "seed {seed}");
        bench.wal.roll().unwrap_err();
        assert!(!bench.fs.exists(&root().join("WALs/s1")).unwrap());
    });
}
