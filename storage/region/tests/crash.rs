//! The machine dies at every sync point of a workload. After each death, and for each fate of the unsynced
//! bytes, the region opens again and shows what was acknowledged, nothing that was never submitted, and whole
//! rows only.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use halcyon_cell::{CellType, Result};
use halcyon_env::sim::{CrashMode, SimDisk};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

const ROWS: [&str; 5] = ["r1", "r2", "r3", "r4", "r5"];
const COLUMNS: [&str; 3] = ["f:a", "f:b", "g:c"];

/// What was done to each row: the states it went through, and how many of them were acknowledged.
#[derive(Clone, Default)]
struct Journal {
    rows: BTreeMap<&'static str, Row>,
}

#[derive(Clone, Default)]
struct Row {
    /// The value that all its columns have, `None` for a deleted row.
    states: Vec<Option<u32>>,
    acknowledged: usize,
}

fn families(policy: Policy) -> Vec<FamilyDescriptor> {
    // Small blocks, so that files have several; one version, so that compaction has something to drop. The clock
    // moves a millisecond with each write, so windows of some milliseconds give files of several windows.
    let family = |name| FamilyDescriptor::new(name).unwrap().with("BLOCKSIZE", "64");
    ["f", "g"].map(|name| with_policy(family(name), policy, 4)).to_vec()
}

fn write(bench: &Bench, journal: &mut Journal, row: &'static str, state: Option<u32>) -> Result<()> {
    bench.clock.advance(Duration::from_millis(1));
    let entry = journal.rows.entry(row).or_default();
    entry.states.push(state);
    let mutation = match state {
        Some(version) => {
            let cell = |column| parse_cell(row, &format!("{column}=v{version}"), CellType::Put, false);
            mutation(MutationKind::Put, row.as_bytes(), COLUMNS.map(cell).to_vec())
        }
        None => mutation(MutationKind::Delete, row.as_bytes(), Vec::new()),
    };
    bench.mutate(mutation)?;
    entry.acknowledged = entry.states.len();
    Ok(())
}

/// Everything that syncs: writes, flushes, compactions, log rolls, a clean reopening.
fn workload(bench: &mut Bench, journal: &mut Journal) -> Result<()> {
    let mut version = 0;
    let mut next = || {
        version += 1;
        Some(version)
    };
    for round in 0..3 {
        for row in ROWS {
            write(bench, journal, row, next())?;
        }
        write(bench, journal, ROWS[round], None)?;
        bench.region.flush(None)?;
        write(bench, journal, ROWS[round + 1], next())?;
        bench.wal.roll()?;
        write(bench, journal, ROWS[round + 2], next())?;
    }
    bench.compact(false)?;
    write(bench, journal, "r1", next())?;
    bench.region.flush(Some(&[bytes::Bytes::from_static(b"f")]))?;
    write(bench, journal, "r2", None)?;
    bench.reopen()?;
    write(bench, journal, "r2", next())?;
    bench.compact(true)?;
    write(bench, journal, "r3", next())?;
    bench.wal.roll()?;
    Ok(())
}

fn check(bench: &Bench, journal: &Journal, what: &str) {
    for (name, row) in &journal.rows {
        let scan = Scan::of_row(bytes::Bytes::from_static(name.as_bytes()));
        let cells = bench.region.get(scan, ReadMode::AnyDisk).unwrap_or_else(|e| panic!("{what}: {e}"));
        let values: Vec<String> =
            cells.iter().map(|cell| String::from_utf8_lossy(cell.value()).into_owned()).collect();
        let shown = values.first().map(|value| value[1..].parse::<u32>().expect("v<number>"));
        if let Some(version) = shown {
            assert_eq!(values, vec![format!("v{version}"); COLUMNS.len()], "{what}: row {name} is torn");
        }
        let first = row.acknowledged.saturating_sub(1);
        let allowed = &row.states[first..];
        let fresh = row.acknowledged == 0 && shown.is_none();
        assert!(
            fresh || allowed.contains(&shown),
            "{what}: row {name} shows {shown:?}, acknowledged and later are {allowed:?}"
        );
    }
}

/// What a crash left without reference goes, and what is referred to stays.
fn check_mob_files(bench: &Bench, journal: &Journal, what: &str) {
    let again = |what: &str| bench.clean_mob_files().unwrap_or_else(|e| panic!("{what}: cleaning: {e}"));
    again(what);
    assert_eq!(again(what), 0, "{what}: one run finds all");
    check(bench, journal, &format!("{what}, cleaned"));
    bench.compact(true).unwrap_or_else(|e| panic!("{what}: compacting: {e}"));
    again(what);
    check(bench, journal, &format!("{what}, compacted and cleaned"));
    let files: usize = ["f", "g"].iter().map(|family| bench.mob_files(family).len()).sum();
    assert!(files <= 2, "{what}: {files} mob files after a major compaction of two families");
}

#[test]
fn every_sync_point() {
    die_at_every_sync_point(&families(Policy::Exploring));
}

/// A compaction here writes several files, and only the last one makes its inputs obsolete.
#[test]
fn every_sync_point_with_files_by_windows_of_time() {
    die_at_every_sync_point(&families(Policy::DateTiered));
}

/// Flushes write a file for each stripe as well, and only the last one says that all of it is in files.
#[test]
fn every_sync_point_with_stripes() {
    die_at_every_sync_point(&families(Policy::Stripe));
}

/// And with stripes that are made of what is of level 0.
#[test]
fn every_sync_point_with_stripes_made_by_compactions() {
    let to_level0 = |family: FamilyDescriptor| {
        family.with_configuration("hbase.store.stripe.compaction.flushToL0", "true")
    };
    die_at_every_sync_point(&families(Policy::Stripe).into_iter().map(to_level0).collect::<Vec<_>>());
}

/// A list says which files are the store's, and what is in its directory besides is nobody's.
#[test]
fn every_sync_point_with_a_list_of_files() {
    die_at_every_sync_point(&families(Policy::Exploring).into_iter().map(listed).collect::<Vec<_>>());
    die_at_every_sync_point(&families(Policy::DateTiered).into_iter().map(listed).collect::<Vec<_>>());
}

/// Both the list and the directory say it.
#[test]
fn every_sync_point_of_a_migration() {
    for (src, dst) in [("DEFAULT", "FILE"), ("FILE", "DEFAULT")] {
        let families = families(Policy::Exploring).into_iter().map(|family| migrating(family, src, dst));
        die_at_every_sync_point(&families.collect::<Vec<_>>());
    }
}

/// A mob file is in its place before the store file that refers to it.
#[test]
fn every_sync_point_with_mob_files() {
    let families = families(Policy::Mob).into_iter().map(|family| family.with("MOB_THRESHOLD", "1"));
    die_at_every_sync_point(&families.collect::<Vec<_>>());
}

/// Files and logs are encrypted, and the log's entries may go to another file than they were made for.
#[test]
fn every_sync_point_with_encryption() {
    encrypted(|| {
        let families: Vec<_> =
            families(Policy::Exploring).into_iter().map(|family| family.with("ENCRYPTION", "AES")).collect();
        die_at_every_sync_point(&families);
    });
}

fn die_at_every_sync_point(families: &[FamilyDescriptor]) {
    SimDisk::ALL.iter().for_each(|&disk| die_at_every_sync_point_of(disk, families));
}

fn die_at_every_sync_point_of(disk: SimDisk, families: &[FamilyDescriptor]) {
    let fs = Arc::new(disk.files(1));
    let mut bench = Bench::on(fs.clone(), families);
    let before = fs.sync_points();
    workload(&mut bench, &mut Journal::default()).unwrap();
    let points = fs.sync_points();
    assert!(points > before + 60, "the workload has {points} sync points");
    for point in 1..=points {
        for mode in CrashMode::ALL {
            let fs = Arc::new(disk.files(1));
            fs.fail_at(point);
            let mut journal = Journal::default();
            let what = format!("{disk:?}, death at sync point {point} of {points}, {mode:?}");
            let Ok(mut bench) = Bench::try_on(fs.clone(), families) else {
                // It died while the region was made: opening on what is left must simply work.
                let left = Arc::new(fs.crash(mode, point));
                Bench::try_on(left, families).unwrap_or_else(|e| panic!("{what}: {e}"));
                continue;
            };
            let done = workload(&mut bench, &mut journal);
            assert!(done.is_err() || point > points - 1, "{what}: nothing failed");
            let left = Arc::new(fs.crash(mode, point));
            bench.recover_on(left).unwrap_or_else(|e| panic!("{what}: opening again: {e}"));
            check(&bench, &journal, &what);
            // And once more, now that everything went through recovery.
            let left = Arc::new(bench.fs.crash(mode, point + 1));
            bench.recover_on(left).unwrap_or_else(|e| panic!("{what}: opening a third time: {e}"));
            check(&bench, &journal, &format!("{what}, second crash"));
            if families.iter().any(FamilyDescriptor::is_mob) {
                check_mob_files(&bench, &journal, &what);
            }
        }
    }
    println!("{disk:?}: {points} sync points, {} deaths each", CrashMode::ALL.len());
}
