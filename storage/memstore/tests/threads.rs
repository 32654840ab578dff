//! Many threads insert while others scan: nothing is lost, torn or out of order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use halcyon_cell::{Cell, CellComparator, CellRef, CellScanner, Key, ReadPoint, SeqId};
use halcyon_memstore::{ChunkPool, Segment};

const WRITERS: u64 = 4;
const CELLS_EACH: u64 = if cfg!(miri) { 60 } else { 20_000 };

/// A row that all writers collide on in its first bytes, and a value that repeats what the key says.
fn cell(writer: u64, i: u64) -> Cell {
    let row = format!("row-{:06}", mix(i) % CELLS_EACH);
    let value = format!("{row}/{writer}/{i}/").repeat(1 + (i % 7) as usize * (i % 7) as usize);
    Cell::put(row.as_bytes(), b"f", &[b'a' + writer as u8], i as i64, value.as_bytes())
}

fn mix(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17
}

fn check_whole(cell: CellRef<'_>) {
    CellRef::parse(cell.bytes(), 0).expect("a whole cell");
    let writer = cell.qualifier()[0] - b'a';
    let unit = format!("{}/{writer}/{}/", cell.row().escape_ascii(), cell.timestamp());
    let value = cell.value();
    assert!(
        !value.is_empty() && value.chunks(unit.len()).all(|part| part == unit.as_bytes()),
        "torn: {cell:?}"
    );
}

/// Scans all and returns how many cells there were.
fn scan_all(segment: &Arc<Segment>, read_point: u64) -> usize {
    let mut scanner = segment.scanner(ReadPoint::new(read_point));
    scanner.seek(Key::first_on_row(b"").get()).unwrap();
    let mut before: Option<Cell> = None;
    let mut count = 0;
    while let Some(cell) = scanner.peek() {
        check_whole(cell);
        assert!(cell.seq() <= read_point);
        if let Some(before) = &before {
            assert!(segment.comparator().compare(before.get(), cell).is_lt(), "{before:?} {cell:?}");
        }
        before = scanner.cell();
        count += 1;
        scanner.next().unwrap();
    }
    count
}

#[test]
fn inserts_of_many_threads_are_all_found_in_order() {
    let pool = ChunkPool::new(256 << 10, 4);
    let segment = Segment::new(pool.clone(), CellComparator::Default);
    let done = AtomicBool::new(false);
    // Sequence ids up to here are inserted by every writer: what region's mvcc would publish.
    let finished: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (segment, done, finished) = (&segment, &done, &finished);
            scope.spawn(move || {
                let mut rounds = 0;
                while !done.load(Ordering::Acquire) || rounds == 0 {
                    let read_point =
                        finished.iter().map(|it| it.load(Ordering::Acquire)).min().expect("writers");
                    let count = scan_all(segment, read_point);
                    assert_eq!(count as u64, read_point * WRITERS, "at read point {read_point}");
                    let row = format!("row-{:06}", mix(rounds) % CELLS_EACH);
                    let mut scanner = segment.scanner(ReadPoint::new(read_point));
                    scanner.seek_before(Key::first_on_row(row.as_bytes()).get()).unwrap();
                    assert!(scanner.peek().is_none_or(|cell| cell.row() < row.as_bytes()));
                    scanner.seek_to_last().unwrap();
                    assert_eq!(scanner.peek().is_none(), read_point == 0);
                    rounds += 1 + reader;
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (segment, finished) = (&segment, &finished);
                scope.spawn(move || {
                    for i in 0..CELLS_EACH {
                        let cell = cell(writer, i);
                        segment.insert(segment.prepare(cell.bytes(), None), SeqId::new(i + 1));
                        finished[writer as usize].store(i + 1, Ordering::Release);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Release);
    });
    assert_eq!(scan_all(&segment, u64::MAX) as u64, WRITERS * CELLS_EACH);
    assert_eq!(segment.size().cells_count as u64, WRITERS * CELLS_EACH);
    for writer in 0..WRITERS {
        for i in 0..CELLS_EACH {
            let expected = cell(writer, i).with_seq(i + 1);
            let mut scanner = segment.scanner(ReadPoint::NEWEST);
            scanner.seek(expected.get().key()).unwrap();
            assert_eq!(scanner.cell(), Some(expected));
        }
    }
    drop(segment);
    assert_eq!(pool.allocated_bytes(), pool.pooled_bytes());
}

/// All threads insert the very same keys and sequence ids: one of each stays.
#[test]
fn equal_cells_of_many_threads_leave_one() {
    const KEYS: u64 = if cfg!(miri) { 8 } else { 50 };
    for _ in 0..if cfg!(miri) { 2 } else { 200 } {
        let segment = Segment::new(ChunkPool::new(64 << 10, 0), CellComparator::Default);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let segment = &segment;
                scope.spawn(move || {
                    for i in 0..KEYS {
                        let cell = Cell::put(&mix(i).to_be_bytes(), b"f", b"q", 1, &writer.to_be_bytes());
                        segment.insert(segment.prepare(cell.bytes(), None), SeqId::new(7));
                    }
                });
            }
        });
        let mut scanner = segment.scanner(ReadPoint::new(7));
        scanner.seek(Key::first_on_row(b"").get()).unwrap();
        let mut rows = Vec::new();
        while let Some(cell) = scanner.peek() {
            rows.push(cell.row().to_vec());
            scanner.next().unwrap();
        }
        assert!(rows.is_sorted_by(|a, b| a < b));
        assert_eq!((rows.len() as u64, segment.size().cells_count as u64), (KEYS, KEYS));
    }
}

/// Rows that come nearly in order are linked from the end of the list, by each thread from where it thinks the end is.
#[test]
fn rows_nearly_in_order_by_many_threads() {
    let rows: u64 = if cfg!(miri) { 200 } else { 40_000 };
    for batch in [1, 20] {
        let segment = Segment::new(ChunkPool::new(64 << 10, 0), CellComparator::Default);
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let first = next.fetch_add(batch, Ordering::Relaxed);
                        if first >= rows {
                            return;
                        }
                        // The first and the last of a hundred change places.
                        let row = |at: u64| match at % 100 {
                            0 => at + 99,
                            99 => at - 99,
                            _ => at,
                        };
                        let cells = (first..(first + batch).min(rows)).map(|at| {
                            let name = format!("{:08}", row(at));
                            let cell = Cell::put(name.as_bytes(), b"f", b"q", 1, b"v");
                            segment.prepare(cell.bytes(), None)
                        });
                        segment.insert_all(cells.collect(), SeqId::new(first + 1));
                    }
                });
            }
        });
        let mut scanner = segment.scanner(ReadPoint::NEWEST);
        scanner.seek(Key::first_on_row(b"").get()).unwrap();
        for at in 0..rows {
            let cell = scanner.peek().expect("every row is there");
            assert_eq!(cell.row(), format!("{at:08}").as_bytes());
            scanner.next().unwrap();
        }
        assert!(scanner.peek().is_none());
        assert_eq!(segment.size().cells_count as u64, rows);
    }
}
