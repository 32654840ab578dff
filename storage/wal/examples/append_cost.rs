//! What an append costs: threads, value length, and how `SYNC_WAL` is meant are the arguments.
//!
//! `cargo run --release -p halcyon-wal --example append_cost -- <dir> <threads> <value bytes> written|fsync|async`
//!
//! Each thread appends one cell to a region of its own and waits for it (not with `async`), for five seconds;
//! a driver thread writes and syncs.
#![allow(clippy::disallowed_methods)] // it measures the machine

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use halcyon_cell::{Cell, SeqId};
use halcyon_env::Env;
use halcyon_wal::{Durability, SyncMode, Wal, WalConfig, WalEntry};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, threads, value_len, mode] = &args[..] else {
        panic!("arguments: <dir> <threads> <value bytes> written|fsync|async");
    };
    let (threads, value_len): (usize, usize) = (threads.parse().unwrap(), value_len.parse().unwrap());
    let durability = if mode == "async" { Durability::AsyncWal } else { Durability::SyncWal };
    let mut config = WalConfig::new(format!("{dir}/WALs/h"), format!("{dir}/oldWALs"), "h");
    config.sync_mode = if mode == "fsync" { SyncMode::Fsync } else { SyncMode::Written };
    let wal = Wal::open(Env::real(), config).unwrap();
    let (stop, append_ns) = (AtomicBool::new(false), AtomicU64::new(0));
    let running = AtomicUsize::new(threads);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Until the last appender has been told, and gone.
            while running.load(Ordering::Relaxed) > 0 {
                if wal.wait_for_work(Duration::from_millis(20)) {
                    wal.drive();
                    if let Some(rolled) = wal.roll_if_needed().unwrap() {
                        std::fs::remove_file(rolled.old_file).unwrap();
                    }
                }
            }
        });
        for thread in 0..threads {
            let (wal, stop, append_ns, running) = (&wal, &stop, &append_ns, &running);
            scope.spawn(move || {
                let region = format!("{thread:032x}");
                let cell = Cell::put(b"row-0000000000", b"f", b"q", 1, &vec![7; value_len]);
                let cells = [cell.get()];
                let (sender, receiver) = mpsc::channel();
                for seq in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        running.fetch_sub(1, Ordering::Relaxed);
                        return;
                    }
                    let (region, table) = (region.as_bytes(), &b"usertable"[..]);
                    let entry = WalEntry {
                        region,
                        table,
                        seq: SeqId::new(seq),
                        write_time_ms: 1,
                        nonce_group: 0,
                        nonce: 0,
                        cluster_ids: &[],
                        replicated: &[],
                        cells: &cells,
                    };
                    let sender = sender.clone();
                    let begin = Instant::now();
                    wal.append(&entry, durability, Box::new(move |_| _ = sender.send(()))).unwrap();
                    append_ns.fetch_add(begin.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    receiver.recv().unwrap();
                }
            });
        }
        std::thread::sleep(Duration::from_secs(5));
        stop.store(true, Ordering::Relaxed);
    });
    let stats = Arc::clone(&wal).stats();
    println!(
        "{threads} threads, {value_len} byte values, {mode}: {} entries/s, {:.1} MB/s, append {} ns, {} writes/s, \
         {} syncs/s, sync mean {} us, longest {} us",
        stats.entries / 5,
        stats.bytes as f64 / 5e6,
        append_ns.load(Ordering::Relaxed) / stats.entries.max(1),
        stats.writes / 5,
        stats.syncs / 5,
        stats.sync_ns_total / 1000 / stats.syncs.max(1),
        stats.sync_ns_longest / 1000,
    );
}
