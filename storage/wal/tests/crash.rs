//! The machine dies at every sync point of a scripted life of a log, and of the split that follows.
//!
//! What must hold, region by region: acknowledged ⊆ recovered ⊆ appended; recovered entries are whole, in
//! order and, unless the log is merely `Written`, without holes; a split that died is simply done again.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cell::{Cell, CellRef, Result, SeqId};
use halcyon_env::FileSystem;
use halcyon_env::sim::{CrashMode, Dice, Fault, Operation, SimDisk, SimFileSystem};
use halcyon_testkit::for_each_seed;
use halcyon_wal::{Durability, SyncMode, Wal, WalConfig, WalEntry, WalReader, split_logs};
use parking_lot::Mutex;

const REGIONS: [&[u8]; 3] = [b"aaaa", b"bbbb", b"cccc"];
const LOG_DIR: &str = "/hbase/WALs/h%2C1%2C2";

/// A region's name and a seq.
type Edit = (Vec<u8>, u64);

/// What the caller of the log knows when the machine dies.
#[derive(Default)]
struct Knowledge {
    appended: Vec<Edit>,
    /// With the durability that was asked for.
    acknowledged: Arc<Mutex<Vec<(Edit, Durability)>>>,
    /// Last seq per region that is safe in a file.
    flushed: BTreeMap<Vec<u8>, u64>,
}

fn config(sync_mode: SyncMode) -> WalConfig {
    let mut config = common::config(LOG_DIR, "/hbase/oldWALs", "h%2C1%2C2");
    config.sync_mode = sync_mode;
    config
}

/// Bytes of an edit follow from its name, so that recovery can check them. Some are larger than pages.
fn cells_of(region: &[u8], seq: u64) -> Vec<Cell> {
    let value_len = if seq.is_multiple_of(5) { 9000 } else { 40 };
    let value: Vec<u8> = (0..value_len).map(|at| (at as u64 * 31 + seq) as u8).collect();
    let cell = |at: u64| Cell::put(region, b"f", &at.to_be_bytes(), seq as i64, &value).with_seq(seq);
    (0..=seq % 3).map(cell).collect()
}

/// What is in the buffer when the script rolls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buffer {
    Empty,
    /// Mostly more than one round takes.
    Long,
}

/// A file with this limit takes the longest entry; rounds of a log that began with such a one are no longer.
const LEN_MAX: u64 = 29_500;

/// The script. Ends early, with an error, where the machine dies.
fn live(fs: &SimFileSystem, sync_mode: SyncMode, knowledge: &mut Knowledge) -> Result<()> {
    live_with(Buffer::Empty, fs, sync_mode, knowledge)
}

fn live_with(
    buffer: Buffer,
    fs: &SimFileSystem,
    sync_mode: SyncMode,
    knowledge: &mut Knowledge,
) -> Result<()> {
    if buffer == Buffer::Long {
        fs.set_len_max(LEN_MAX);
    }
    let wal = Wal::open(common::env(fs), config(sync_mode));
    fs.set_len_max(u64::MAX);
    let wal = wal?;
    for seq in 1..=40u64 {
        let region = REGIONS[(seq * seq % 7 % 3) as usize];
        let durability = match seq % 4 {
            0 => Durability::AsyncWal,
            1 => Durability::FsyncWal,
            _ => Durability::SyncWal,
        };
        let cells = cells_of(region, seq);
        let cells: Vec<CellRef<'_>> = cells.iter().map(Cell::get).collect();
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
        let (acknowledged, edit) = (knowledge.acknowledged.clone(), (region.to_vec(), seq));
        knowledge.appended.push(edit.clone());
        let completion = move |result: &Result<()>| {
            if result.is_ok() {
                acknowledged.lock().push((edit, durability));
            }
        };
        wal.append(&entry, durability, Box::new(completion))?;
        let drives = match buffer {
            Buffer::Empty => seq % 3 != 1,
            Buffer::Long => seq % 9 == 1,
        };
        if drives {
            wal.drive();
        }
        if seq % 9 == 0 {
            wal.roll()?;
            assert!(
                buffer == Buffer::Empty || seq < 27 || wal.buffered_bytes() > 0,
                "{seq}: a roll takes all"
            );
        }
        if seq % 13 == 0 {
            // A flush of the region: from here on its edits are safe without the log.
            knowledge.flushed.insert(region.to_vec(), seq);
            wal.flushed(region, SeqId::new(seq));
        }
    }
    wal.drive();
    wal.stopped().map_or(Ok(()), Err)?;
    wal.close()
}

fn recovered_dir(region: &[u8]) -> PathBuf {
    Path::new("/hbase/data").join(String::from_utf8_lossy(region).as_ref()).join("recovered.edits")
}

fn split(fs: &SimFileSystem) -> Result<()> {
    if fs.exists(Path::new(LOG_DIR))? {
        split_logs(&common::env(fs), Path::new(LOG_DIR), &|region, _| Ok(Some(recovered_dir(region))))?;
    }
    Ok(())
}

/// Splits, and reads back what the regions would replay.
fn recover(fs: &SimFileSystem) -> Result<Vec<Edit>> {
    split(fs)?;
    read_recovered(fs)
}

fn read_recovered(fs: &SimFileSystem) -> Result<Vec<Edit>> {
    let env = common::env(fs);
    let mut edits = Vec::new();
    for region in REGIONS {
        let dir = recovered_dir(region);
        for file in fs.list(&dir).unwrap_or_default() {
            if file.name.ends_with(".temp") {
                continue;
            }
            let mut last_seq = 0;
            for entry in WalReader::open(&env, &dir.join(&file.name))? {
                let (key, cells) = entry?;
                let seq = key.log_sequence_number;
                // After an error of a file its entries stand in the next one too.
                let again = edits.iter().any(|(of, known)| of == region && *known == seq);
                assert!(seq > last_seq || again, "out of order");
                assert_eq!(key.encoded_region_name, region);
                assert_eq!(cells, cells_of(region, seq), "not the bytes that were appended");
                last_seq = last_seq.max(seq);
                edits.push((region.to_vec(), seq));
            }
            assert_eq!(file.name, format!("{last_seq:019}"));
        }
    }
    Ok(edits)
}

fn check(
    knowledge: &Knowledge,
    recovered: &[Edit],
    must_be_there: impl Fn(Durability) -> bool,
    holes: bool,
    case: &str,
) {
    let recovered: BTreeSet<&Edit> = recovered.iter().collect();
    let appended: BTreeSet<&Edit> = knowledge.appended.iter().collect();
    assert!(recovered.is_subset(&appended), "{case}: recovered what was never appended");
    let is_flushed = |edit: &Edit| knowledge.flushed.get(&edit.0).is_some_and(|up_to| edit.1 <= *up_to);
    for (edit, durability) in knowledge.acknowledged.lock().iter() {
        let lost = must_be_there(*durability) && !is_flushed(edit) && !recovered.contains(edit);
        assert!(!lost, "{case}: {edit:?} with {durability:?} was acknowledged and is lost");
    }
    for region in REGIONS.into_iter().filter(|_| !holes) {
        let mut of_region = knowledge.appended.iter().filter(|edit| edit.0 == region && !is_flushed(edit));
        of_region.by_ref().find(|edit| !recovered.contains(edit));
        assert!(of_region.all(|edit| !recovered.contains(edit)), "{case}: a hole in {region:?}");
    }
}

#[test]
fn acknowledged_edits_survive_a_crash_at_every_sync_point() {
    for disk in SimDisk::ALL {
        [SyncMode::Fsync, SyncMode::Written]
            .iter()
            .for_each(|&sync_mode| die_at_every_sync_point(disk, sync_mode));
    }
    die_at_every_sync_point(SimDisk::Hdfs, SyncMode::Remote);
}

/// What a roll leaves to the new file was appended for the old one.
#[test]
fn edits_that_a_roll_leaves_to_the_new_file_survive_a_crash() {
    for sync_mode in [SyncMode::Fsync, SyncMode::Written] {
        die_at_every_sync_point_with(Buffer::Long, SimDisk::Local, sync_mode);
    }
    die_at_every_sync_point_with(Buffer::Long, SimDisk::Hdfs, SyncMode::Remote);
}

fn die_at_every_sync_point(disk: SimDisk, sync_mode: SyncMode) {
    die_at_every_sync_point_with(Buffer::Empty, disk, sync_mode);
}

fn die_at_every_sync_point_with(buffer: Buffer, disk: SimDisk, sync_mode: SyncMode) {
    let whole = disk.files(1);
    live_with(buffer, &whole, sync_mode, &mut Knowledge::default()).unwrap();
    let sync_points = whole.sync_points();
    assert!(sync_points > 20);
    for n in 1..=sync_points {
        for (mode, seeds) in [(CrashMode::Drop, 1), (CrashMode::Keep, 1), (CrashMode::Torn, 12)] {
            for seed in 0..seeds {
                let case =
                    format!("{disk:?}, {sync_mode:?}, {buffer:?}, sync point {n}, {mode:?}, seed {seed}");
                let fs = disk.files(1);
                fs.fail_at(n);
                let mut knowledge = Knowledge::default();
                live_with(buffer, &fs, sync_mode, &mut knowledge).expect_err("the machine dies");
                let after = fs.crash(mode, seed);
                let recovered = recover(&after).unwrap_or_else(|error| panic!("{case}: {error}"));
                let different: BTreeSet<&Edit> = recovered.iter().collect();
                assert_eq!(different.len(), recovered.len(), "{case}: nothing stands in two files");
                // `AsyncWal` promises nothing; `Written` promises against the death of the process only.
                let must_be_there = |durability| match durability {
                    Durability::SkipWal | Durability::AsyncWal => false,
                    Durability::SyncWal => sync_mode != SyncMode::Written || mode == CrashMode::Keep,
                    Durability::FsyncWal => true,
                };
                // A log that is `Written` may lose a file and keep the next.
                let holes = sync_mode == SyncMode::Written && mode != CrashMode::Keep;
                check(&knowledge, &recovered, must_be_there, holes, &case);
            }
        }
    }
}

/// A file fails, the log goes on in another one, and then the machine dies.
#[test]
fn acknowledged_edits_survive_an_error_and_a_crash_after_it() {
    for operation in [Operation::Write, Operation::Sync] {
        for nth in 1..=24 {
            die_after_an_error(SimDisk::Local, SyncMode::Fsync, operation, nth);
            die_after_an_error(SimDisk::Hdfs, SyncMode::Remote, operation, nth);
        }
    }
}

fn die_after_an_error(disk: SimDisk, sync_mode: SyncMode, operation: Operation, nth: u64) {
    let build = || {
        let fs = disk.files(nth);
        fs.inject(Fault::new(operation, LOG_DIR).nth(nth));
        fs
    };
    let whole = build();
    let outcome = live(&whole, sync_mode, &mut Knowledge::default());
    assert_eq!(whole.faults_hit(), 1, "{disk:?}, {operation:?} {nth}");
    if outcome.is_err() {
        return; // the first file could not be made, or a roll could not make the next one
    }
    for n in (1..=whole.sync_points()).filter(|n| n % 3 == nth % 3) {
        for (mode, seeds) in [(CrashMode::Drop, 1), (CrashMode::Keep, 1), (CrashMode::Torn, 3)] {
            for seed in 0..seeds {
                let case = format!("{disk:?}, {operation:?} {nth}, sync point {n}, {mode:?}, seed {seed}");
                let fs = build();
                fs.fail_at(n);
                let mut knowledge = Knowledge::default();
                let _ = live(&fs, sync_mode, &mut knowledge); // the archive may be in want only
                assert!(fs.is_dead(), "{case}");
                let after = fs.crash(mode, seed);
                let recovered = recover(&after).unwrap_or_else(|error| panic!("{case}: {error}"));
                let must_be_there = |durability| durability != Durability::AsyncWal;
                check(&knowledge, &recovered, must_be_there, false, &case);
            }
        }
    }
}

#[test]
fn a_split_that_died_is_done_again() {
    SimDisk::ALL.iter().for_each(|&disk| split_dies_at_every_sync_point(disk));
}

fn split_dies_at_every_sync_point(disk: SimDisk) {
    let build = || {
        let fs = disk.files(1);
        let mut knowledge = Knowledge::default();
        live(&fs, SyncMode::Fsync, &mut knowledge).unwrap();
        (fs.crash(CrashMode::Drop, 0), knowledge)
    };
    let (whole, knowledge) = build();
    let expected = recover(&whole).unwrap();
    check(&knowledge, &expected, |_| true, false, "undisturbed");
    for mode in CrashMode::ALL {
        // The logs may go once the split has returned.
        let (fs, _) = build();
        recover(&fs).unwrap();
        assert_eq!(read_recovered(&fs.crash(mode, 7)).unwrap(), expected);
    }
    for n in 1..=whole.sync_points() {
        for mode in CrashMode::ALL {
            for seed in 0..4 {
                let (fs, _) = build();
                fs.fail_at(n);
                recover(&fs).expect_err("the machine dies");
                let after = fs.crash(mode, seed);
                assert_eq!(recover(&after).unwrap(), expected, "sync point {n}, {mode:?}, seed {seed}");
            }
        }
    }
}

/// One call in so many is disturbed during a split by seed.
const DISTURBED_ONE_IN: usize = 12;
const ATTEMPTS_MAX: usize = 400;

/// A log in HDFS with one fault or none dies, and so do some of those that split it, while answers of the NameNode get
/// lost.
#[test]
fn acknowledged_edits_survive_what_a_seed_chooses() {
    let test = "-p halcyon-wal --test all crash::acknowledged_edits_survive_what_a_seed_chooses";
    for_each_seed(test, 0..150, die_by_seed);
}

fn die_by_seed(seed: u64) {
    let mut dice = Dice::new(seed);
    let sync_mode = dice.pick(&[SyncMode::Remote, SyncMode::Remote, SyncMode::Fsync]);
    let operation = dice.pick(&[Operation::Write, Operation::Sync, Operation::Create, Operation::Close]);
    let (has_fault, nth) = (dice.one_in(2), dice.between(1, 24) as u64);
    let buffer = dice.pick(&[Buffer::Empty, Buffer::Long]);
    let build = || {
        let fs = SimFileSystem::hdfs(seed);
        if has_fault {
            fs.inject(Fault::new(operation, LOG_DIR).nth(nth));
        }
        fs
    };
    let whole = build();
    let _ = live_with(buffer, &whole, sync_mode, &mut Knowledge::default());
    let fs = build();
    fs.fail_at(dice.between(1, whole.sync_points().max(1) as usize) as u64);
    let mut knowledge = Knowledge::default();
    let _ = live_with(buffer, &fs, sync_mode, &mut knowledge); // a file that cannot be made ends it early
    let mut left = fs.crash(dice.pick(&CrashMode::ALL), dice.next_u64());
    let (mut deaths, mut attempts) = (0, 0);
    loop {
        left.clear_faults();
        if dice.one_in(2) {
            left.disturb(DISTURBED_ONE_IN);
        }
        if deaths < 3 && dice.one_in(2) {
            left.fail_at(left.sync_points() + dice.between(1, 12) as u64);
        }
        match split(&left) {
            Ok(()) if !left.is_dead() => break,
            result if left.is_dead() => {
                deaths += 1;
                left = left.crash(dice.pick(&CrashMode::ALL), dice.next_u64());
                drop(result);
            }
            result => {
                attempts += 1;
                assert!(attempts < ATTEMPTS_MAX, "seed {seed}: {result:?}");
            }
        }
    }
    let must_be_there = |durability| durability != Durability::AsyncWal;
    left.clear_faults();
    check(&knowledge, &read_recovered(&left).unwrap(), must_be_there, false, &format!("seed {seed}"));
    left.deliver_late();
    let found = read_recovered(&left.crash(CrashMode::Drop, seed)).unwrap();
    check(&knowledge, &found, must_be_there, false, &format!("seed {seed}, after late changes"));
}

/// Two servers had the region, and its last entry stands in the WALs of both, as after an error of a file. The WALs are split
/// apart: the second file of recovered edits with the same last sequence id replaced the first one.
#[test]
fn recovered_edits_of_two_servers_are_both_kept() {
    for_each_seed("-p halcyon-wal --test all crash::recovered_edits_of_two_servers", 0..100, |seed| {
        let (fs, mut dice) = (SimFileSystem::hdfs(seed), Dice::new(seed));
        let last = dice.between(3, 9) as u64;
        let of_first = dice.between(1, last as usize - 2) as u64;
        let seqs = [(1..=of_first).chain([last]).collect(), (of_first + 1..=last).collect::<Vec<u64>>()];
        for (server, seqs) in ["a", "b"].into_iter().zip(seqs) {
            append_alone(&fs, server, &seqs);
        }
        fs.disturb(DISTURBED_ONE_IN);
        let mut order = ["a", "b", "a", "b"];
        order[dice.below(2)..].rotate_left(1);
        for server in order {
            let dir = Path::new("/hbase/WALs").join(server);
            let split =
                |_: &usize| split_logs(&common::env(&fs), &dir, &|it, _| Ok(Some(recovered_dir(it)))).is_ok();
            assert!((0..ATTEMPTS_MAX).find(split).is_some(), "seed {seed}: the WALs cannot be split");
        }
        fs.clear_faults();
        fs.deliver_late();
        let dir = recovered_dir(REGIONS[0]);
        let mut files: Vec<String> = fs.list(&dir).unwrap().into_iter().map(|file| file.name).collect();
        files.retain(|name| !name.ends_with(".temp"));
        let read = |name: &String| WalReader::open(&common::env(&fs), &dir.join(name)).unwrap();
        let found = files.iter().flat_map(read).map(|entry| entry.unwrap().0.log_sequence_number);
        assert_eq!(found.collect::<BTreeSet<u64>>(), (1..=last).collect(), "seed {seed}: {files:?}");
        assert_eq!(files.len(), 2, "seed {seed}: a split that is done again makes the same files");
    });
}

/// Entries of one region in the WAL of a server, which leaves it.
fn append_alone(fs: &SimFileSystem, server: &str, seqs: &[u64]) {
    let mut config = common::config(Path::new("/hbase/WALs").join(server), "/hbase/oldWALs", server);
    config.sync_mode = SyncMode::Remote;
    let wal = Wal::open(common::env(fs), config).unwrap();
    for &seq in seqs {
        let cells = cells_of(REGIONS[0], seq);
        let cells: Vec<CellRef<'_>> = cells.iter().map(Cell::get).collect();
        let entry = WalEntry {
            region: REGIONS[0],
            table: b"t",
            seq: SeqId::new(seq),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        wal.append(&entry, Durability::SyncWal, Box::new(|result| assert!(result.is_ok()))).unwrap();
        wal.drive();
    }
}

#[test]
fn encrypted_edits_survive_a_crash_as_well() {
    common::encrypted(|| {
        die_at_every_sync_point(SimDisk::ALL[0], SyncMode::Fsync);
        die_at_every_sync_point(SimDisk::Hdfs, SyncMode::Remote);
        die_after_an_error(SimDisk::ALL[0], SyncMode::Fsync, Operation::Sync, 3);
        split_dies_at_every_sync_point(SimDisk::ALL[0]);
        recovered_edits_of_two_servers_are_both_kept();
    });
}

#[test]
fn compressed_edits_survive_a_crash_as_well() {
    common::compressed(|| {
        die_at_every_sync_point(SimDisk::ALL[0], SyncMode::Fsync);
        die_at_every_sync_point(SimDisk::ALL[0], SyncMode::Written);
        die_at_every_sync_point(SimDisk::Hdfs, SyncMode::Remote);
        for operation in [Operation::Sync, Operation::Write] {
            die_after_an_error(SimDisk::ALL[0], SyncMode::Fsync, operation, 3);
        }
        split_dies_at_every_sync_point(SimDisk::ALL[0]);
    });
}
