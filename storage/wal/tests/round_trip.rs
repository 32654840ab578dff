//! What is appended is read back, whole and in order, from the log and from its splits.
#![allow(clippy::disallowed_methods)] // cuts real files

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{self, Scratch};
use halcyon_cell::{Cell, CellRef, ErrorKind, SeqId};
use halcyon_env::Env;
use halcyon_wal::{
    APPENDED_LEN_MAX, Durability, Flushed, OnDamage, SplitMemory, SyncMode, Wal, WalEntry, WalReader,
    split_logs, split_what_is_needed,
};

fn append(wal: &Wal, region: &[u8], seq: u64, durability: Durability, done: &Arc<AtomicUsize>) {
    let cell =
        Cell::put(format!("row{seq}").as_bytes(), b"f", b"q", seq as i64, &vec![b'v'; seq as usize % 300]);
    let cells: [CellRef<'_>; 1] = [cell.get()];
    let entry = WalEntry {
        region,
        table: b"t",
        seq: SeqId::new(seq),
        write_time_ms: 1000,
        nonce_group: 1,
        nonce: seq,
        cluster_ids: &[],
        replicated: &[],
        cells: &cells,
    };
    let done = done.clone();
    let completion = Box::new(move |result: &halcyon_cell::Result<()>| {
        assert!(result.is_ok());
        done.fetch_add(1, Ordering::SeqCst);
    });
    wal.append(&entry, durability, completion).unwrap();
}

#[test]
fn entries_come_back_in_order_and_split_by_region() {
    let scratch = Scratch::new("round-trip");
    let env = Env::real();
    let wal = Wal::open(env.clone(), scratch.config()).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let regions: [&[u8]; 2] = [b"aaaa", b"bbbb"];
    for seq in 1..=500u64 {
        let durability = match seq % 3 {
            0 => Durability::AsyncWal,
            1 => Durability::SyncWal,
            _ => Durability::FsyncWal,
        };
        append(&wal, regions[seq as usize % 2], seq, durability, &done);
        if seq % 7 == 0 {
            assert!(wal.drive());
        }
        if seq == 250 {
            assert!(wal.roll().unwrap().archived.is_empty());
        }
    }
    wal.drive();
    assert_eq!(done.load(Ordering::SeqCst), 500);
    let mut seqs = Vec::new();
    let logs = wal.close().map(|()| env.fs.list(&scratch.config().dir).unwrap()).unwrap();
    assert_eq!(logs.len(), 2);
    for log in &logs {
        let mut reader = WalReader::open(&env, &scratch.config().dir.join(&log.name)).unwrap();
        for entry in &mut reader {
            let (key, cells) = entry.unwrap();
            assert_eq!((cells.len(), cells[0].seq()), (1, key.log_sequence_number));
            assert_eq!(key.nonce, Some(key.log_sequence_number));
            assert_eq!(cells[0].row(), format!("row{}", key.log_sequence_number).as_bytes());
            seqs.push(key.log_sequence_number);
        }
        assert!(reader.has_trailer() && !reader.is_torn());
    }
    assert_eq!(seqs, (1..=500).collect::<Vec<_>>());

    let root = scratch.path().to_path_buf();
    let destination = |region: &[u8], table: &[u8]| {
        assert_eq!(table, b"t");
        Ok((region == b"aaaa").then(|| root.join("aaaa/recovered.edits")))
    };
    for _ in 0..2 {
        let report = split_logs(&env, &scratch.config().dir, &destination).unwrap();
        assert_eq!((report.entries, report.dropped, report.torn.len()), (500, 250, 0));
        assert_eq!(report.files, [root.join("aaaa/recovered.edits/0000000000000000500")]);
    }
    let reader = WalReader::open(&env, &root.join("aaaa/recovered.edits/0000000000000000500")).unwrap();
    let keys: Vec<_> = reader.map(|entry| entry.unwrap().0).collect();
    // Replay tells the server of the nonces, so that a repeated operation is not applied again.
    let nonces = keys.iter().map(|key| (key.nonce_group(), key.nonce(), key.write_time));
    assert!(
        nonces.eq((2..=500).step_by(2).map(|seq| (1, seq, 1000))),
        "a split keeps nonces and write times"
    );
    let seqs: Vec<u64> = keys.iter().map(|key| key.log_sequence_number).collect();
    assert_eq!(seqs, (2..=500).step_by(2).collect::<Vec<_>>());
}

#[test]
fn flushed_logs_go_to_the_archive() {
    let scratch = Scratch::new("archive");
    let env = Env::real();
    let mut config = scratch.config();
    config.files_count_max = 1;
    config.sync_mode = SyncMode::Written;
    let wal = Wal::open(env.clone(), config.clone()).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    append(&wal, b"aaaa", 1, Durability::SyncWal, &done);
    append(&wal, b"bbbb", 2, Durability::SyncWal, &done);
    wal.drive();
    assert!(wal.regions_holding_oldest(u64::MAX).is_empty());
    let first = wal.roll().unwrap();
    assert!(first.archived.is_empty());
    append(&wal, b"aaaa", 3, Durability::SyncWal, &done);
    assert_eq!(wal.regions_holding_oldest(u64::MAX), [b"aaaa", b"bbbb"]);
    wal.flushed(b"aaaa", SeqId::new(1));
    assert_eq!(wal.regions_holding_oldest(u64::MAX), [b"bbbb"]);
    let second = wal.roll().unwrap();
    assert!(second.archived.is_empty());
    wal.region_closed(b"bbbb");
    let name = first.old_file.file_name().unwrap();
    assert_eq!(wal.archive(), [config.archive_dir.join(name)]);
    assert_eq!(wal.regions_holding_oldest(u64::MAX), [b"aaaa"]);
    wal.flushed(b"aaaa", SeqId::new(2));
    assert!(wal.archive().is_empty());
    wal.close().unwrap();
    wal.close().unwrap();
    assert_eq!(env.fs.list(&config.dir).unwrap().len(), 1);
    assert_eq!(env.fs.list(&config.archive_dir).unwrap().len(), 2);
    let cell = Cell::put(b"r", b"f", b"q", 1, b"");
    let cells = [cell.get()];
    let entry = WalEntry {
        region: b"aaaa",
        table: b"t",
        seq: SeqId::new(9),
        write_time_ms: 0,
        nonce_group: 0,
        nonce: 0,
        cluster_ids: &[],
        replicated: &[],
        cells: &cells,
    };
    let refused = wal.append(&entry, Durability::SyncWal, Box::new(|_| unreachable!("never told")));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Stopping);
    assert_eq!(done.load(Ordering::SeqCst), 3);
}

#[test]
fn files_that_are_too_much_for_a_recovery_are_held_by_regions() {
    let scratch = Scratch::new("too-much");
    let mut config = scratch.config();
    config.sync_mode = SyncMode::Written;
    let wal = Wal::open(Env::real(), config).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let mut files_bytes = Vec::new();
    for (seq, region) in (1..).zip([b"aaaa", b"bbbb", b"cccc", b"aaaa"]) {
        append(&wal, region, seq, Durability::SyncWal, &done);
        wal.drive();
        files_bytes.push(wal.current_bytes());
        if seq < 4 {
            wal.roll().unwrap();
        }
    }
    let all = wal.stats().files_bytes;
    assert!(files_bytes.iter().sum::<u64>() <= all, "with the trailers of those that are closed");
    assert!(wal.regions_holding_oldest(all).is_empty());
    assert_eq!(wal.regions_holding_oldest(all - 1), [b"aaaa"]);
    let closed_bytes = (all - files_bytes[3]) / 3;
    assert_eq!(wal.regions_holding_oldest(all - closed_bytes - 1), [b"aaaa", b"bbbb"]);
    assert_eq!(wal.regions_holding_oldest(0), [b"aaaa", b"bbbb", b"cccc"]);
    wal.flushed(b"bbbb", SeqId::new(2));
    assert_eq!(wal.regions_holding_oldest(0), [b"aaaa", b"cccc"]);
    assert_eq!(wal.archive().len(), 1, "also when an older file has to stay");
    assert!(wal.stats().files_bytes < all && wal.regions_holding_oldest(all - 1).is_empty());
    wal.close().unwrap();
}

#[test]
fn every_truncation_is_a_prefix() {
    let scratch = Scratch::new("truncation");
    let env = Env::real();
    let wal = Wal::open(env.clone(), scratch.config()).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    for seq in 1..=12 {
        append(&wal, b"aaaa", seq, Durability::SyncWal, &done);
        wal.drive();
    }
    wal.close().unwrap();
    let path = scratch.config().dir.join(&env.fs.list(&scratch.config().dir).unwrap()[0].name);
    let bytes = std::fs::read(&path).unwrap();
    let cut = scratch.path().join("cut.1");
    let mut most = 0;
    for len in 0..=bytes.len() {
        std::fs::write(&cut, &bytes[..len]).unwrap();
        let mut reader = WalReader::open(&env, &cut).unwrap();
        let seqs: Vec<u64> = (&mut reader).map(|entry| entry.unwrap().0.log_sequence_number).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
        assert!(seqs.len() >= most, "length {len}");
        most = seqs.len();
        assert!(reader.is_torn() || reader.offset() == len as u64 || reader.has_trailer());
    }
    assert_eq!(most, 12);
}

/// What another process may be sent of a log that is being written.
#[test]
fn acknowledged_bytes_are_whole_entries() {
    let scratch = Scratch::new("acknowledged");
    let env = Env::real();
    let config = halcyon_wal::WalConfig { sync_mode: SyncMode::Fsync, ..scratch.config() };
    let wal = Wal::open(env.clone(), config).unwrap();
    let done = Arc::new(AtomicUsize::new(0));
    let read = || -> (std::path::PathBuf, Vec<u64>) {
        let (path, len) = wal.acknowledged().expect("the log is open, and does not roll");
        let reader = WalReader::open_up_to(&env, &path, len).unwrap();
        assert_eq!(reader.end(), len);
        (path, reader.map(|entry| entry.unwrap().0.log_sequence_number).collect())
    };
    append(&wal, b"aaaa", 1, Durability::FsyncWal, &done);
    wal.drive();
    append(&wal, b"aaaa", 2, Durability::AsyncWal, &done);
    let (first, seqs) = read();
    assert_eq!(seqs, [1]);
    wal.roll().unwrap();
    append(&wal, b"aaaa", 3, Durability::FsyncWal, &done);
    wal.drive();
    let (second, seqs) = read();
    assert_eq!(seqs, [3]);
    assert_ne!(first, second);
    wal.close().unwrap();
    assert!(wal.acknowledged().is_none());
}

/// A compressed log is read once, however often there is more of it: the index of a name needs no look back.
#[test]
fn a_reader_goes_on_where_it_was() {
    common::compressed(|| {
        let scratch = Scratch::new("goes-on");
        let env = Env::real();
        let wal = Wal::open(env.clone(), scratch.config()).unwrap();
        let done = Arc::new(AtomicUsize::new(0));
        let add = |seqs: std::ops::RangeInclusive<u64>| {
            seqs.for_each(|seq| append(&wal, b"aaaa", seq, Durability::FsyncWal, &done));
            wal.drive();
        };
        let rest = |reader: &mut WalReader| -> Vec<u64> {
            reader.map(|entry| entry.unwrap().0.log_sequence_number).collect()
        };
        add(1..=3);
        let (path, len) = wal.acknowledged().unwrap();
        let mut reader = WalReader::open_up_to(&env, &path, len).unwrap();
        assert!(reader.header().has_compression());
        assert_eq!(rest(&mut reader), [1, 2, 3]);
        reader.go_on(&env, &path, Some(len)).unwrap();
        assert!(rest(&mut reader).is_empty());
        add(4..=9);
        let (_, len) = wal.acknowledged().unwrap();
        reader.go_on(&env, &path, Some(len)).unwrap();
        assert_eq!(rest(&mut reader), [4, 5, 6, 7, 8, 9]);
        add(10..=11);
        wal.region_closed(b"aaaa");
        let moved = wal.roll().unwrap().archived.pop().unwrap();
        reader.go_on(&env, &moved, None).unwrap();
        assert_eq!(rest(&mut reader), [10, 11]);
        assert!(reader.has_trailer() && !reader.is_torn());
    });
}

/// Old edits were put into the directories of regions that had moved on, or were closed: a snapshot of a disabled table was refused
/// when any server that had it once had died.
#[test]
fn a_split_leaves_out_what_files_have() {
    let scratch = Scratch::new("flushed");
    let env = Env::real();
    let wal = Wal::open(env.clone(), scratch.config()).unwrap();
    let append_at = |region: &[u8], seq: u64, families: &[&[u8]], nonce: u64, write_time_ms: i64| {
        let cells: Vec<Cell> =
            families.iter().map(|family| Cell::put(b"row", family, b"q", 1, b"v")).collect();
        let cells: Vec<CellRef<'_>> = cells.iter().map(Cell::get).collect();
        let entry = WalEntry {
            region,
            table: b"t",
            seq: SeqId::new(seq),
            write_time_ms,
            nonce_group: 1,
            nonce,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        wal.append(&entry, Durability::SyncWal, Box::new(|_| {})).unwrap();
    };
    let append =
        |region: &[u8], seq, families: &[&[u8]], nonce| append_at(region, seq, families, nonce, 1000);
    append(b"closed", 3, &[b"f", b"g"], 0);
    append_at(b"closed", 4, &[b"f", b"g"], 8, 999);
    append(b"open", 3, &[b"f", b"g"], 0);
    append(b"open", 4, &[b"f"], 7);
    append(b"open", 5, &[b"f", b"g"], 0);
    append(b"open", 6, &[b"f"], 0);
    append(b"open", 7, &[b"f"], 0);
    wal.drive();
    wal.close().unwrap();
    let dir = scratch.config().dir;
    let logs = env.fs.list(&dir).unwrap().into_iter().map(|log| dir.join(log.name)).collect();
    let root = scratch.path().to_path_buf();
    let edits = |region: &[u8]| root.join(String::from_utf8_lossy(region).into_owned());
    let flushed = |region: &[u8]| match region {
        b"closed" => Flushed { region: SeqId::new(4), nonces_since_ms: 1000, ..Flushed::default() },
        _ => Flushed {
            region: SeqId::new(3),
            families: vec![("f".into(), SeqId::new(6))],
            nonces_since_ms: 1000,
        },
    };
    let each = |count: usize, work: &(dyn Fn(usize) -> halcyon_cell::Result<()> + Sync)| {
        (0..count).try_for_each(work)
    };
    let report = split_what_is_needed(
        &env,
        logs,
        &|region, _| Ok(Some(edits(region))),
        &flushed,
        &each,
        OnDamage::Refuse,
        &SplitMemory::of_one(),
    )
    .unwrap();
    assert_eq!((report.entries, report.flushed), (7, 4));
    assert_eq!(report.files, [root.join("open/0000000000000000007")]);
    let reader = WalReader::open(&env, &report.files[0]).unwrap();
    let left: Vec<(u64, usize)> = reader
        .map(|entry| entry.map(|(key, cells)| (key.log_sequence_number, cells.len())).unwrap())
        .collect();
    assert_eq!(left, [(4, 1), (5, 1), (7, 1)], "that with a young nonce, what g lacks, and what nobody has");
}

/// It was acknowledged, and no reader took it: all regions of the server stayed closed after a crash.
#[test]
fn an_entry_that_could_not_be_read_back_is_refused() {
    let scratch = Scratch::new("too-long");
    let wal = Wal::open(Env::real(), scratch.config()).unwrap();
    let cell = Cell::put(b"r", b"f", b"q", 5, &vec![7; 1 << 20]);
    let cells: Vec<CellRef<'_>> = vec![cell.get(); APPENDED_LEN_MAX >> 20];
    let entry = WalEntry {
        region: b"aaaa",
        table: b"t",
        seq: SeqId::new(1),
        write_time_ms: 1000,
        nonce_group: 0,
        nonce: 0,
        cluster_ids: &[],
        replicated: &[],
        cells: &cells,
    };
    let completion = Box::new(|_: &halcyon_cell::Result<()>| panic!("it was refused"));
    let error = wal.append(&entry, Durability::SyncWal, completion).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let done = Arc::new(AtomicUsize::new(0));
    append(&wal, b"aaaa", 1, Durability::SyncWal, &done);
    wal.drive();
    assert_eq!(done.load(Ordering::SeqCst), 1, "the log goes on");
}
