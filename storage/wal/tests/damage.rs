//! Logs with wrong bytes in them: nothing panics, nothing is invented, and a lost acknowledged edit is an
//! error, not silence.
#![allow(clippy::disallowed_methods)] // reads testdata

use crate::common;
use std::path::{Path, PathBuf};

use halcyon_cell::{Cell, CellRef, CellType, ErrorKind, Result, SeqId, append_tag};
use halcyon_env::FileSystem;
use halcyon_env::sim::{CrashMode, Dice, SimFileSystem};
use halcyon_wal::{
    Durability, OnDamage, Wal, WalCompression, WalEntry, WalReader, examine_log, set_aside, split_log_files,
};

const ENTRIES_COUNT: u64 = 12;
/// The salt in a `WALTrailer`, its size and the magic.
const TRAILER_LEN: usize = 3 + 16 + 4 + 4;

fn random_cell(dice: &mut Dice) -> Cell {
    let (row_len, family_len, qualifier_len) = (1 + dice.below(40), dice.below(12), dice.below(30));
    let value_len = if dice.below(6) == 0 { dice.below(20_000) } else { dice.below(100) };
    let mut tags = Vec::new();
    for _ in 0..dice.below(3) {
        let len = dice.below(20);
        append_tag(&mut tags, dice.next_u64() as u8, &dice.bytes(len));
    }
    let types = [CellType::Put, CellType::Delete, CellType::DeleteColumn, CellType::DeleteFamily];
    let (row, family) = (dice.bytes(row_len), dice.bytes(family_len));
    let (qualifier, value) = (dice.bytes(qualifier_len), dice.bytes(value_len));
    let timestamp = dice.next_u64() as i64;
    Cell::build(&row, &family, &qualifier, timestamp, types[dice.below(4)], &value, &tags, 0)
}

/// `HALCYON_SEED` moves all seeds of this file, so that longer runs see other damage.
fn first_seed() -> u64 {
    std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A log of random entries, each synced by itself: its bytes, the offsets where entries begin, their cells.
fn random_log(seed: u64, close: bool) -> (Vec<u8>, Vec<u64>, Vec<Vec<Cell>>) {
    let mut dice = Dice::new(seed);
    let fs = SimFileSystem::new();
    let wal = Wal::open(common::env(&fs), common::config("/WALs/h", "/oldWALs", "h")).unwrap();
    let path = wal.current_file();
    let (mut offsets, mut entries) = (Vec::new(), Vec::new());
    for seq in 1..=ENTRIES_COUNT {
        let cells: Vec<Cell> = (0..1 + dice.below(4)).map(|_| random_cell(&mut dice).with_seq(seq)).collect();
        let borrowed: Vec<CellRef<'_>> = cells.iter().map(Cell::get).collect();
        let (region_len, table_len) = (1 + dice.below(40), 1 + dice.below(40));
        let entry = WalEntry {
            region: &dice.bytes(region_len),
            table: &dice.bytes(table_len),
            seq: SeqId::new(seq),
            write_time_ms: dice.next_u64() as i64,
            nonce_group: dice.next_u64() >> dice.below(64),
            nonce: dice.next_u64() >> dice.below(64),
            cluster_ids: &[],
            replicated: &[],
            cells: &borrowed,
        };
        offsets.push(fs.read(&path).unwrap().len() as u64);
        wal.append(&entry, Durability::SyncWal, Box::new(|result| assert!(result.is_ok()))).unwrap();
        wal.drive();
        entries.push(cells);
    }
    if close {
        wal.close().unwrap();
    }
    (fs.read(&path).unwrap(), offsets, entries)
}

/// Appends an entry of one cell and writes it.
pub fn append_one(wal: &Wal, seq: u64, cell: CellRef<'_>, durability: Durability) {
    let cells = [cell];
    let entry = WalEntry {
        region: b"aaaa",
        table: b"t",
        seq: SeqId::new(seq),
        write_time_ms: 1,
        nonce_group: 0,
        nonce: 0,
        cluster_ids: &[],
        replicated: &[],
        cells: &cells,
    };
    wal.append(&entry, durability, Box::new(|result| assert!(result.is_ok()))).unwrap();
    wal.drive();
}

pub struct Found {
    pub entries: Vec<Vec<Cell>>,
    pub torn_at: Option<u64>,
    pub end: Result<()>,
}

pub fn read(bytes: &[u8]) -> Found {
    let fs = SimFileSystem::new();
    fs.put_new(Path::new("/log"), bytes).unwrap();
    let mut entries = Vec::new();
    let mut reader = match WalReader::open(&common::env(&fs), Path::new("/log")) {
        Ok(reader) => reader,
        Err(error) => return Found { entries, torn_at: None, end: Err(error) },
    };
    let mut end = Ok(());
    for entry in &mut reader {
        match entry {
            Ok((_, cells)) => entries.push(cells),
            Err(error) => end = Err(error),
        }
    }
    assert!(reader.next_entry().unwrap().is_none(), "the end is the end");
    Found { entries, torn_at: reader.torn_at(), end }
}

#[test]
fn random_entries_come_back() {
    for seed in (0..60).map(|n| first_seed() + n) {
        let (bytes, _, entries) = random_log(seed, seed % 2 == 0);
        let found = read(&bytes);
        assert!(found.end.is_ok() && found.torn_at.is_none() && found.entries == entries, "seed {seed}");
    }
}

/// Every byte of the entries, changed: what is in front comes back; the entry itself is refused, with an
/// error if a later one knows that it was on disk, or the log was closed in peace.
#[test]
fn a_changed_byte_is_noticed() {
    for close in [false, true] {
        let (bytes, offsets, entries) = random_log(3, close);
        let entries_end = bytes.len() - if close { TRAILER_LEN } else { 0 };
        let mut dice = Dice::new(first_seed() + 1);
        for at in (offsets[0] as usize..entries_end).step_by(7) {
            let mut bad = bytes.clone();
            bad[at] ^= 1 + dice.below(255) as u8;
            let hit = offsets.partition_point(|offset| *offset <= at as u64) - 1;
            let found = read(&bad);
            assert_eq!(found.entries, entries[..hit], "byte {at}");
            if close || hit + 1 < entries.len() {
                let error = found.end.expect_err("was on disk");
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                let place = format!("offset {}", offsets[hit]);
                for word in ["/log", &place, "expected ", "found "] {
                    assert!(error.message().contains(word), "byte {at}: {error} says nothing of {word}");
                }
            } else {
                assert!(found.end.is_ok());
                assert_eq!(found.torn_at, Some(offsets[hit]));
            }
        }
    }
}

/// Entries that were written and never synced may be damaged in any order without that being an error.
#[test]
fn damage_in_what_was_never_synced_is_a_torn_tail() {
    let mut torn_in_front_of_whole_entries = 0;
    for seed in (0..300).map(|n| first_seed() + n) {
        let fs = SimFileSystem::new();
        let wal = Wal::open(common::env(&fs), common::config("/WALs/h", "/oldWALs", "h")).unwrap();
        for seq in 1..=30u64 {
            let cell = Cell::put(b"row", b"f", b"q", 1, &[seq as u8; 600]);
            let durability = if seq <= 5 { Durability::SyncWal } else { Durability::AsyncWal };
            append_one(&wal, seq, cell.get(), durability);
        }
        let after = fs.crash(CrashMode::Torn, seed);
        let bytes = after.read(&wal.current_file()).unwrap();
        let found = read(&bytes);
        found.end.unwrap();
        assert!(found.entries.len() >= 5);
        for (at, cells) in found.entries.iter().enumerate() {
            assert_eq!(cells[0].value(), [at as u8 + 1; 600]);
        }
        let whole_later = bytes.windows(600).any(|window| window == [30; 600]);
        torn_in_front_of_whole_entries += u64::from(whole_later && found.entries.len() < 30);
    }
    assert!(torn_in_front_of_whole_entries > 5, "{torn_in_front_of_whole_entries}");
}

fn golden_logs() -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut logs: Vec<(String, Vec<u8>)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| -> PathBuf { entry.unwrap().path() })
        .filter(|path| path.extension().is_some_and(|extension| extension == "wal"))
        .map(|path| (path.display().to_string(), std::fs::read(path).unwrap()))
        .collect();
    logs.sort();
    logs.push(("ours".to_string(), random_log(9, true).0));
    logs.push(("ours, not closed".to_string(), random_log(9, false).0));
    logs
}

#[test]
fn every_truncation_of_a_log_gives_a_prefix() {
    for (name, bytes) in golden_logs() {
        let whole = read(&bytes);
        assert!(whole.end.is_ok() && whole.torn_at.is_none(), "{name}");
        let step = (bytes.len() / 1500).max(1);
        for len in (0..bytes.len()).step_by(step) {
            let found = read(&bytes[..len]);
            assert!(found.end.is_ok(), "{name} cut to {len}: {}", found.end.unwrap_err());
            assert!(whole.entries.starts_with(&found.entries), "{name} cut to {len}");
            // Zeros behind the cut: the length was on disk, the bytes were not. Our headers are always whole.
            let mut zeros = bytes[..len].to_vec();
            zeros.resize(len + 100, 0);
            let found = read(&zeros);
            if name.starts_with("ours") && len > 300 {
                assert!(found.end.is_ok() && whole.entries.starts_with(&found.entries), "{name} at {len}");
            }
        }
    }
}

/// Changed, cut and shuffled logs: no panic, no end of memory, no entry that breaks the limits.
#[test]
fn garbage_is_refused_in_peace() {
    let logs = golden_logs();
    let mut dice = Dice::new(first_seed() + 42);
    for round in 0..4000 {
        let mut bytes = logs[dice.below(logs.len())].1.clone();
        for _ in 0..1 + dice.below(4) {
            let at = dice.below(bytes.len());
            match dice.below(6) {
                0 => bytes[at] = dice.next_u64() as u8,
                1 => bytes[at] ^= 1 << dice.below(8),
                2 => bytes.truncate(at + 1),
                3 => {
                    let len = dice.below(64);
                    bytes.splice(at..at, dice.bytes(len));
                }
                4 => {
                    let end = bytes.len().min(at + dice.below(200));
                    let copy = bytes[at..end].to_vec();
                    let to = dice.below(bytes.len());
                    bytes.splice(to..to, copy);
                }
                _ => {
                    // A length that promises the sky.
                    let end = bytes.len().min(at + 5);
                    bytes[at..end].fill(if dice.below(2) == 0 { 0xff } else { 0x7f });
                }
            }
        }
        let found = read(&bytes);
        let total: usize = found.entries.iter().flatten().map(|cell| cell.bytes().len()).sum();
        assert!(total < 64 << 20, "round {round}: {total} bytes out of {}", bytes.len());
        if let Err(error) = found.end {
            assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid), "{error}");
        }
    }
    for _ in 0..2000 {
        let len = dice.below(600);
        let mut bytes = logs[dice.below(logs.len())].1[..90].to_vec();
        bytes.truncate(dice.below(91));
        bytes.extend(dice.bytes(len));
        let _ = read(&bytes);
    }
}

#[test]
fn damage_of_encrypted_logs_is_noticed_as_well() {
    common::encrypted(|| {
        random_entries_come_back();
        a_changed_byte_is_noticed();
        every_truncation_of_a_log_gives_a_prefix();
        garbage_is_refused_in_peace();
    });
}

#[test]
fn damage_of_compressed_logs_is_noticed_as_well() {
    // That test looks for values in the file, so there they are as they were.
    common::compressed_as(WalCompression::default(), damage_in_what_was_never_synced_is_a_torn_tail);
    common::compressed(|| {
        random_entries_come_back();
        a_changed_byte_is_noticed();
        every_truncation_of_a_log_gives_a_prefix();
        garbage_is_refused_in_peace();
    });
}

/// The end of the last value looks like a trailer, in a log whose writer died.
#[test]
fn a_compressed_value_that_looks_like_a_trailer_is_a_value() {
    common::compressed_as(WalCompression::default(), || {
        let fs = SimFileSystem::new();
        let wal = Wal::open(fs.env(), common::config("/WALs/h", "/oldWALs", "h")).unwrap();
        let value = [b"value".as_slice(), b"\0\0\0\0LAWP"].concat();
        let cell = Cell::put(b"row", b"f", b"q", 1, &value);
        for seq in 1..=2 {
            append_one(&wal, seq, cell.get(), Durability::SyncWal);
        }
        let reader = WalReader::open(&fs.env(), &wal.current_file()).unwrap();
        assert!(reader.header().has_compression());
        let bytes = fs.read(&wal.current_file()).unwrap();
        assert!(bytes.ends_with(b"LAWP"));
        let found = read(&bytes);
        found.end.unwrap();
        let values: Vec<_> = found.entries.iter().map(|cells| cells[0].value()).collect();
        assert_eq!(values, [&value[..], &value[..]]);
    });
}

/// Nothing of a cell is in an encrypted file, and without the key nothing can be read.
#[test]
fn encrypted_cells_are_not_in_the_file() {
    common::encrypted(|| {
        let (bytes, _, entries) = random_log(5, true);
        let values = entries.iter().flatten().map(|cell| cell.value()).filter(|value| value.len() > 16);
        values.for_each(|value| assert!(!bytes.windows(16).any(|window| window == &value[..16])));
        let fs = SimFileSystem::new();
        fs.put_new(Path::new("/log"), &bytes).unwrap();
        let error = WalReader::open(&fs.env(), Path::new("/log")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().starts_with("/log: key of the log: Key provider "), "{error}");
    });
}

/// One damaged entry kept all regions of its server closed, and there was no way on.
#[test]
fn a_damaged_log_is_split_as_far_as_it_can_be_read_if_that_is_wanted() {
    let fs = SimFileSystem::new();
    let env = common::env(&fs);
    let wal = Wal::open(env.clone(), common::config("/WALs/h", "/oldWALs", "h")).unwrap();
    let log = wal.current_file();
    let mut offsets = Vec::new();
    for seq in 1..=9 {
        offsets.push(fs.read(&log).unwrap().len());
        append_one(&wal, seq, Cell::put(b"r", b"f", b"q", 1, &[seq as u8; 100]).get(), Durability::SyncWal);
    }
    let mut bytes = fs.read(&log).unwrap();
    bytes[offsets[4] + 60..offsets[5] + 60].fill(0xab); // two entries
    fs.replace(&log, &bytes).unwrap();
    let one_by_one =
        |count: usize, work: &(dyn Fn(usize) -> Result<()> + Sync)| (0..count).try_for_each(work);
    let split = |on_damage| {
        let destination = |_: &[u8], _: &[u8]| Ok(Some(PathBuf::from("/edits")));
        split_log_files(&env, vec![log.clone()], &destination, &one_by_one, on_damage)
    };
    assert_eq!(split(OnDamage::Refuse).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(!fs.exists(Path::new("/edits")).unwrap(), "nothing of it has got its name");
    let report = split(OnDamage::PassOver).unwrap();
    let damage = examine_log(&env, &log).unwrap();
    assert_eq!(report.damaged, std::slice::from_ref(&damage));
    assert_eq!((damage.entries_count, damage.lost.len()), (7, 1));
    assert_eq!((damage.lost[0].begin, damage.lost[0].end), (offsets[4] as u64, offsets[6] as u64));
    let part = &damage.regions["aaaa"];
    assert_eq!((part.table.as_str(), part.first_seq.get(), part.last_seq.get()), ("t", 1, 9));
    let text = damage.to_string();
    assert!(text.contains("region aaaa of t (1 to 9)") && text.contains("cannot be read"), "{text}");
    let edits = WalReader::open(&env, &report.files[0]).unwrap();
    let seqs: Vec<u64> = edits.map(|entry| entry.unwrap().0.log_sequence_number).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 7, 8, 9]);
    // Out of the way, and not over another one.
    let corrupt = Path::new("/corrupt");
    let name = log.file_name().unwrap().to_string_lossy().into_owned();
    assert_eq!(set_aside(&env, &log, corrupt).unwrap(), corrupt.join(&name));
    assert_eq!(set_aside(&env, &log, corrupt).unwrap(), corrupt.join(&name), "it was moved before");
    fs.put_new(&log, b"").unwrap();
    assert_eq!(set_aside(&env, &log, corrupt).unwrap(), corrupt.join(format!("{name}-1")));
    assert_eq!(fs.read(&corrupt.join(&name)).unwrap(), bytes);
}

/// A log whose header is damaged has no entry that can be read. A whole one is not damaged, nor is one with a torn tail.
#[test]
fn what_is_lost_of_a_log_is_what_was_promised() {
    let (bytes, offsets, entries) = random_log(3, true);
    let damage_of = |bytes: &[u8]| {
        let fs = SimFileSystem::new();
        fs.put_new(Path::new("/log"), bytes).unwrap();
        examine_log(&common::env(&fs), Path::new("/log")).unwrap()
    };
    let whole = damage_of(&bytes);
    assert!(!whole.is_damaged() && whole.entries_count == entries.len() as u64);
    let torn = damage_of(&bytes[..offsets[ENTRIES_COUNT as usize - 1] as usize + 5]);
    assert!(!torn.is_damaged() && torn.torn_at.is_some());
    let mut headless = bytes.clone();
    headless[..4].fill(7);
    let headless = damage_of(&headless);
    assert_eq!((headless.lost_bytes(), headless.entries_count), (bytes.len() as u64, 0));
}
