//! A few inserts and a scan in very many interleavings (Miri looks after memory orders):
//! `RUSTFLAGS="--cfg halcyon_shuttle" cargo test --release -p halcyon-memstore --test interleavings`.
#![cfg(halcyon_shuttle)]

use std::sync::Arc;

use halcyon_cell::{Cell, CellComparator, CellScanner, Key, ReadPoint, SeqId};
use halcyon_memstore::{ChunkPool, Segment};

fn cell(row: &str, value: &str) -> Cell {
    Cell::put(row.as_bytes(), b"f", b"q", 1, value.as_bytes())
}

fn insert(segment: &Segment, row: &str, value: &str, seq: u64) {
    segment.insert(segment.prepare(cell(row, value).bytes(), None), SeqId::new(seq));
}

/// All visible cells as `row=value`.
fn scan(segment: &Arc<Segment>) -> Vec<String> {
    let mut scanner = segment.scanner(ReadPoint::NEWEST);
    scanner.seek(Key::first_on_row(b"").get()).unwrap();
    let mut out = Vec::new();
    while let Some(cell) = scanner.peek() {
        out.push(format!("{}={}", cell.row().escape_ascii(), cell.value().escape_ascii()));
        scanner.next().unwrap();
    }
    out
}

const ROUNDS: usize = 20_000;

/// Random schedules, and schedules of few preemptions at the most awkward places.
fn explore(body: impl Fn() + Send + Sync + Clone + 'static) {
    shuttle::check_random(body.clone(), ROUNDS);
    shuttle::check_pct(body, ROUNDS, 3);
}

#[test]
fn two_writers_and_a_reader() {
    explore(|| {
        // Chunks so small that the first one brings a table of hints.
        let segment = Segment::new(ChunkPool::new(1 << 12, 0), CellComparator::Default);
        insert(&segment, "b", "0", 1);
        let threads = [("a", "c"), ("d", "b")].map(|(first, second)| {
            let segment = segment.clone();
            shuttle::thread::spawn(move || {
                insert(&segment, first, "1", 2);
                insert(&segment, second, "1", 2);
            })
        });
        let seen = scan(&segment);
        assert!(seen.is_sorted_by(|a, b| a[..1] <= b[..1]), "{seen:?}");
        assert!(seen.contains(&"b=0".to_string()), "{seen:?}");
        let mut scanner = segment.scanner(ReadPoint::NEWEST);
        for _ in 0..2 {
            scanner.seek(Key::first_on_row(b"b").get()).unwrap();
            assert_eq!(scanner.peek().unwrap().row(), b"b");
        }
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(scan(&segment), ["a=1", "b=1", "b=0", "c=1", "d=1"]);
    });
}

/// As above, but each writer links its cells together: what it found may be old when it comes to the second.
#[test]
fn two_writers_of_runs() {
    explore(|| {
        let segment = Segment::new(ChunkPool::new(1 << 16, 0), CellComparator::Default);
        insert(&segment, "b", "0", 1);
        let threads = [["a", "c", "e"], ["d", "b", "e"]].map(|rows| {
            let segment = segment.clone();
            shuttle::thread::spawn(move || {
                let run = rows.map(|row| segment.prepare(cell(row, "1").bytes(), None));
                segment.insert_all(run.into(), SeqId::new(2));
            })
        });
        let seen = scan(&segment);
        assert!(seen.is_sorted_by(|a, b| a[..1] <= b[..1]), "{seen:?}");
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(scan(&segment), ["a=1", "b=1", "b=0", "c=1", "d=1", "e=1"]);
        assert_eq!(segment.size().cells_count, 6);
    });
}

#[test]
fn of_equal_cells_one_stays() {
    explore(|| {
        let segment = Segment::new(ChunkPool::new(1 << 16, 0), CellComparator::Default);
        insert(&segment, "a", "0", 1);
        let threads = ["1", "2"].map(|value| {
            let segment = segment.clone();
            shuttle::thread::spawn(move || insert(&segment, "a", value, 1))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        let seen = scan(&segment);
        assert!(seen == ["a=1"] || seen == ["a=2"], "{seen:?}");
        assert_eq!(segment.size().cells_count, 1);
    });
}

/// What a reader sees once stays where it is when it looks again.
#[test]
fn seeks_find_what_scans_saw() {
    explore(|| {
        let segment = Segment::new(ChunkPool::new(1 << 16, 0), CellComparator::Default);
        let writer = {
            let segment = segment.clone();
            shuttle::thread::spawn(move || {
                for row in ["b", "c", "a"] {
                    insert(&segment, row, "1", 1);
                }
            })
        };
        let seen = scan(&segment);
        let mut scanner = segment.scanner(ReadPoint::NEWEST);
        for cell in &seen {
            scanner.seek(Key::first_on_row(&cell.as_bytes()[..1]).get()).unwrap();
            assert!(scanner.peek().is_some_and(|it| it.row() == &cell.as_bytes()[..1]));
            scanner.seek_before(Key::last_on_row(&cell.as_bytes()[..1]).get()).unwrap();
            assert!(scanner.peek().is_some_and(|it| it.row() == &cell.as_bytes()[..1]));
        }
        writer.join().unwrap();
        assert_eq!(scan(&segment), ["a=1", "b=1", "c=1"]);
    });
}
