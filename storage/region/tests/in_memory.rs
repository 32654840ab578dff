//! In-memory compaction: what each policy leaves, and that nobody who reads beside it misses anything.

#![allow(clippy::disallowed_methods)] // threads from outside

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::*;
use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

fn family(name: &str, policy: &str) -> FamilyDescriptor {
    FamilyDescriptor::new(name.as_bytes()).unwrap().with("IN_MEMORY_COMPACTION", policy)
}

fn put(row: &str, families: &[&str], value: &str) -> Mutation {
    let cell = |family: &&str| {
        Cell::build(
            row.as_bytes(),
            family.as_bytes(),
            b"q",
            LATEST_TIMESTAMP,
            CellType::Put,
            value.as_bytes(),
            b"",
            0,
        )
    };
    mutation(MutationKind::Put, row.as_bytes(), families.iter().map(cell).collect())
}

fn bytes_after_overwrites(policy: &str, rows: usize) -> u64 {
    let bench = Bench::new(&[family("f", policy)]);
    for number in 0..200 {
        bench.clock.advance(std::time::Duration::from_millis(1));
        bench.mutate(put(&format!("r{}", number % rows), &["f"], &"x".repeat(1000))).unwrap();
        if number % 20 == 19 {
            assert_eq!(bench.region.compact_memory().unwrap(), policy != "NONE");
        }
    }
    let found = bench.scan(Scan::default()).unwrap();
    assert_eq!(found.len(), rows);
    assert!(found.iter().all(|row| row.len() == 1));
    bench.region.memstore_size().data_bytes
}

#[test]
fn eager_leaves_hidden_versions_out_and_basic_does_not() {
    let (one_each, all) = (5 * 1000, 200 * 1000);
    assert!(bytes_after_overwrites("NONE", 5) > all);
    assert!(bytes_after_overwrites("BASIC", 5) > all);
    assert!(bytes_after_overwrites("EAGER", 5) < 2 * one_each);
    assert!(bytes_after_overwrites("ADAPTIVE", 5) < 10 * one_each);
    assert!(bytes_after_overwrites("ADAPTIVE", 200) > all, "nothing to leave out");
}

/// The newest cell was left out, because a client gave it an older timestamp. The next compaction, with nothing new, took the
/// cell before it for the newest that was ever left out, and the server ended. Found by seed 168 of `oracle`.
#[test]
fn what_was_left_out_before_counts_in_the_next_compaction() {
    let bench = Bench::new(&[family("f", "EAGER")]);
    for text in ["f:q=new@10", "f:q=old@5"] {
        let cell = parse_cell("r", text, CellType::Put, false);
        bench.mutate(mutation(MutationKind::Put, b"r", vec![cell])).unwrap();
    }
    for _ in 0..3 {
        assert!(bench.region.compact_memory().unwrap());
    }
    let found = bench.scan(Scan::default()).unwrap();
    assert_eq!((found.len(), found[0].len(), found[0][0].value()), (1, 1, &b"new"[..]));
}

/// Two families, one version each: whatever is flushed, compacted or left out meanwhile, each read finds a whole row,
/// and never an older one than the read before.
#[test]
fn readers_find_whole_rows_beside_all_of_it() {
    const ROWS: usize = 8;
    let bench = Bench::new(&[family("e", "EAGER"), family("n", "NONE")]);
    let stop = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    for row in 0..ROWS {
        bench.mutate(put(&format!("r{row}"), &["e", "n"], "0")).unwrap();
    }
    let (bench, stop, reads) = (&bench, &stop, &reads);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            scope.spawn(move || {
                let mut seen = [0u64; ROWS];
                let mut number = reader;
                while !stop.load(Ordering::Relaxed) {
                    let row = number % ROWS;
                    number += 1;
                    let scan = Scan::of_row(format!("r{row}").into_bytes().into());
                    let cells = bench.region.get(scan, ReadMode::AnyDisk).unwrap();
                    assert_eq!(cells.len(), 2, "{cells:?}");
                    assert_eq!(cells[0].value(), cells[1].value());
                    let value: u64 = std::str::from_utf8(cells[0].value()).unwrap().parse().unwrap();
                    assert!(value >= seen[row], "{value} after {}", seen[row]);
                    seen[row] = value;
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                bench.region.compact_memory().unwrap();
                std::thread::yield_now();
            }
        });
        scope.spawn(move || {
            let mut flushes = 0;
            while !stop.load(Ordering::Relaxed) {
                bench.region.flush(None).unwrap();
                flushes += 1;
                if flushes % 4 == 0 {
                    bench.compact(false).unwrap();
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        for value in 1..6000u64 {
            bench.clock.advance(std::time::Duration::from_millis(1));
            let row = format!("r{}", value as usize % ROWS);
            bench.mutate(put(&row, &["e", "n"], &value.to_string())).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 100);
}
