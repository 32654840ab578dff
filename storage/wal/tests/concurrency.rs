//! Many threads on one log: group commit keeps order, nobody is left behind, failures reach everybody.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::Scratch;
use halcyon_cell::{Cell, ErrorKind, Result, SeqId};
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_env::{Env, FileSystem};
use halcyon_wal::{Completion, Durability, SyncMode, Wal, WalConfig, WalEntry, WalReader};
use parking_lot::Mutex;

fn append(wal: &Wal, region: &[u8], seq: u64, value: &[u8], completion: Completion) -> Result<()> {
    let cell = Cell::put(b"r", b"f", b"q", 1, value);
    let cells = [cell.get()];
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
    wal.append(&entry, Durability::SyncWal, completion)
}

fn sim_config() -> WalConfig {
    WalConfig::new("/WALs/h", "/oldWALs", "h")
}

fn seqs_by_region(env: &Env, dir: &Path) -> HashMap<Vec<u8>, Vec<u64>> {
    let mut out: HashMap<Vec<u8>, Vec<u64>> = HashMap::new();
    for log in env.fs.list(dir).unwrap() {
        let mut reader = WalReader::open(env, &dir.join(log.name)).unwrap();
        for entry in &mut reader {
            let key = entry.unwrap().0;
            out.entry(key.encoded_region_name.to_vec()).or_default().push(key.log_sequence_number);
        }
        assert!(reader.has_trailer());
    }
    out
}

/// Each thread appends to a region of its own, drives, and waits until it is told. If anybody were left
/// behind, it would wait for ever: there is no other driver.
#[test]
fn appenders_that_drive_are_never_left_behind() {
    appenders_finish("drive", SyncMode::Written, |wal, _| {
        wal.drive();
    });
}

/// The same with threads that leave the next round to each other.
#[test]
fn appenders_that_drive_in_turns_are_never_left_behind() {
    appenders_finish("turns", SyncMode::Written, |wal, is_done| wal.drive_until(is_done));
}

/// The same with rounds that take long, so that most threads stop looking before their write is done.
#[test]
fn appenders_that_drive_in_turns_and_wait_for_the_disk_are_never_left_behind() {
    appenders_finish("turns-sync", SyncMode::Fsync, |wal, is_done| wal.drive_until(is_done));
}

fn appenders_finish(name: &str, sync_mode: SyncMode, drive: impl Fn(&Wal, &dyn Fn() -> bool) + Sync) {
    let scratch = Scratch::new(name);
    let env = Env::real();
    let mut config = scratch.config();
    config.sync_mode = sync_mode;
    config.roll_size_bytes = 20_000;
    let wal = Wal::open(env.clone(), config.clone()).unwrap();
    let finished = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (wal, finished, drive) = (&wal, &finished, &drive);
            scope.spawn(move || {
                let region = format!("region{thread}");
                let (sender, receiver) = mpsc::channel();
                let done = Arc::new(AtomicU64::new(0));
                for seq in 1..=300 {
                    let (sender, note) = (sender.clone(), done.clone());
                    let tell = move |result: &Result<()>| {
                        note.store(seq, Ordering::Release);
                        sender.send((seq, result.clone())).unwrap();
                    };
                    append(wal, region.as_bytes(), seq, &vec![7; seq as usize % 90], Box::new(tell)).unwrap();
                    drive(wal, &|| done.load(Ordering::Acquire) == seq);
                    let (told, result) = receiver.recv_timeout(Duration::from_secs(20)).expect("left behind");
                    assert_eq!(told, seq);
                    result.unwrap();
                    if seq % 10 == thread {
                        wal.roll_if_needed().unwrap();
                    }
                }
                finished.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    assert_eq!(finished.load(Ordering::SeqCst), 8);
    let stats = wal.stats();
    assert!(stats.rolls > 3 && stats.files_count == stats.rolls as usize + 1, "{stats:?}");
    assert_eq!((stats.entries, stats.buffered_bytes), (2400, 0));
    wal.close().unwrap();
    let found = seqs_by_region(&env, &config.dir);
    assert_eq!(found.len(), 8);
    assert!(found.values().all(|seqs| *seqs == (1..=300).collect::<Vec<_>>()));
}

/// One driver thread, many appenders that do not wait; completions come in append order.
#[test]
fn completions_run_in_append_order() {
    let env = SimFileSystem::new().env();
    let wal = Wal::open(env.clone(), sim_config()).unwrap();
    let (order, told) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) || wal.stats().buffered_bytes > 0 {
                if wal.wait_for_work(Duration::from_millis(10)) {
                    wal.drive();
                }
            }
        });
        let appenders: Vec<_> = (0..4)
            .map(|thread| {
                let (wal, order, told) = (&wal, &order, &told);
                scope.spawn(move || {
                    for seq in 1..=500u64 {
                        let told = told.clone();
                        // The lock makes the order known; the log itself needs no such thing.
                        let mut order = order.lock();
                        order.push((thread, seq));
                        let tell = move |_: &Result<()>| told.lock().push((thread, seq));
                        append(wal, format!("r{thread}").as_bytes(), seq, b"v", Box::new(tell)).unwrap();
                        drop(order);
                        if seq % 100 == 0 {
                            wal.roll().unwrap();
                        }
                    }
                })
            })
            .collect();
        appenders.into_iter().for_each(|appender| appender.join().unwrap());
        stop.store(true, Ordering::SeqCst);
    });
    wal.close().unwrap();
    assert_eq!(*told.lock(), *order.lock());
    assert_eq!(told.lock().len(), 2000);
}

#[test]
fn a_failed_sync_or_write_stops_a_log_that_tolerates_none() {
    for operation in [Operation::Sync, Operation::Write] {
        let fs = SimFileSystem::new();
        let wal = Wal::open(fs.env(), WalConfig { errors_tolerated: 0, ..sim_config() }).unwrap();
        let told: Arc<Mutex<Vec<(u64, bool)>>> = Arc::default();
        let tell = |seq| -> Completion {
            let told = told.clone();
            Box::new(move |result| told.lock().push((seq, result.is_ok())))
        };
        append(&wal, b"aaaa", 1, b"v", tell(1)).unwrap();
        wal.drive();
        fs.inject(Fault::new(operation, "WALs"));
        append(&wal, b"aaaa", 2, b"v", tell(2)).unwrap();
        append(&wal, b"aaaa", 3, b"v", tell(3)).unwrap();
        wal.drive();
        assert_eq!(*told.lock(), [(1, true), (2, false), (3, false)]);
        let refused = append(&wal, b"aaaa", 4, b"v", tell(4)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Stopping);
        assert!(refused.message().contains("error"), "names the first failure: {refused}");
        assert_eq!(wal.roll().unwrap_err().kind(), ErrorKind::Stopping);
        assert_eq!(wal.close().unwrap_err().kind(), ErrorKind::Stopping);
        assert_eq!(told.lock().len(), 3);
        assert!(wal.archive().is_empty(), "the log is needed");
    }
}

/// With `Written` the old file is synced behind the switch; if that fails the log must not go on.
#[test]
fn a_failed_sync_of_the_old_file_stops_the_log() {
    let fs = SimFileSystem::new();
    let mut config = sim_config();
    config.sync_mode = SyncMode::Written;
    let wal = Wal::open(fs.env(), config).unwrap();
    append(&wal, b"aaaa", 1, b"v", Box::new(|result| assert!(result.is_ok()))).unwrap();
    wal.drive();
    let old = wal.current_file();
    // A file is known by the name that it was made with.
    fs.inject(Fault::new(Operation::Sync, &old.file_name().unwrap().to_string_lossy()));
    assert_eq!(wal.roll().unwrap_err().kind(), ErrorKind::Io);
    let refused = append(&wal, b"aaaa", 2, b"v", Box::new(|_| unreachable!())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Stopping);
}

#[test]
fn a_log_goes_on_when_the_new_file_cannot_be_made() {
    let fs = SimFileSystem::new();
    let wal = Wal::open(fs.env(), sim_config()).unwrap();
    for operation in
        [Operation::Create, Operation::Write, Operation::Sync, Operation::Rename, Operation::SyncDir]
    {
        fs.inject(Fault::new(operation, "WALs").no_space());
        assert_eq!(wal.roll().unwrap_err().kind(), ErrorKind::Io, "{operation:?}");
    }
    append(&wal, b"aaaa", 1, b"v", Box::new(|result| assert!(result.is_ok()))).unwrap();
    wal.close().unwrap();
    let seqs: Vec<u64> = seqs_by_region(&fs.env(), Path::new("/WALs/h")).into_values().flatten().collect();
    assert_eq!(seqs, [1]);
}

#[test]
fn a_full_buffer_is_written_by_the_appender_and_told_by_the_driver() {
    let env = SimFileSystem::new().env();
    let mut config = sim_config();
    config.buffer_max_bytes = 2000;
    let wal = Wal::open(env, config).unwrap();
    let told = Arc::new(AtomicU64::new(0));
    for seq in 1..=100 {
        let told = told.clone();
        let tell = move |_: &Result<()>| _ = told.fetch_add(1, Ordering::SeqCst);
        append(&wal, b"aaaa", seq, &vec![1; if seq == 50 { 9000 } else { 200 }], Box::new(tell)).unwrap();
        assert!(wal.stats().buffered_bytes < 10_000);
    }
    assert_eq!(told.load(Ordering::SeqCst), 0, "the appender may hold locks that completions want");
    assert!(wal.wait_for_work(Duration::ZERO));
    assert!(wal.drive());
    assert!(!wal.drive());
    assert_eq!(told.load(Ordering::SeqCst), 100);
    assert!(wal.stats().writes > 10);
}

#[test]
fn an_async_append_is_told_at_once_and_written_later() {
    let fs = SimFileSystem::new();
    let wal = Wal::open(fs.env(), sim_config()).unwrap();
    let path = wal.current_file();
    let before = fs.read(&path).unwrap().len();
    let cell = Cell::put(b"r", b"f", b"q", 1, b"v");
    let cells = [cell.get()];
    let entry = WalEntry {
        region: b"aaaa",
        table: b"t",
        seq: SeqId::new(1),
        write_time_ms: 1,
        nonce_group: 0,
        nonce: 0,
        cluster_ids: &[],
        replicated: &[],
        cells: &cells,
    };
    let told = Arc::new(AtomicBool::new(false));
    let teller = told.clone();
    let tell = move |_: &Result<()>| teller.store(true, Ordering::SeqCst);
    wal.append(&entry, Durability::AsyncWal, Box::new(tell)).unwrap();
    assert!(told.load(Ordering::SeqCst));
    assert_eq!(fs.read(&path).unwrap().len(), before);
    let syncs = wal.stats().syncs;
    wal.drive();
    assert!(fs.read(&path).unwrap().len() > before);
    assert_eq!(wal.stats().syncs, syncs, "nobody asked for a sync");
}
