//! Prints nanoseconds per insert, scan step and seek:
//! `cargo test --release -p halcyon-memstore --test speed -- --ignored --nocapture`.

use std::hint::black_box;

use halcyon_cell::{Cell, CellComparator, CellScanner, Key, ReadPoint, SeqId};
use halcyon_env::{Clock, SystemClock};
use halcyon_memstore::{ChunkPool, Segment};

fn row(i: u64) -> String {
    // A long common beginning, as of PerformanceEvaluation's rows.
    format!("user{:022}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40)
}

const ROW_START: &[u8] = b"user00000000000000";

fn measure(clock: &SystemClock, what: &str, count: u64, body: impl FnOnce()) {
    let start = clock.monotonic_ns();
    body();
    let took = clock.monotonic_ns() - start;
    println!("  {what}: {} ns", took / count);
}

fn run(value_len: usize, count: u64, writers: u64, row_start: &[u8]) {
    println!(
        "{count} cells of {value_len} value bytes, {writers} writers, row start {:?}",
        row_start.escape_ascii().to_string()
    );
    let clock = SystemClock::new();
    let pool = ChunkPool::new(halcyon_memstore::CHUNK_SIZE_BYTES_DEFAULT, 1000);
    let value = vec![b'x'; value_len];
    let cells: Vec<Cell> =
        (0..count).map(|i| Cell::put(row(i).as_bytes(), b"cf", b"field0", 5, &value)).collect();
    // The first segment takes its memory from the system, the second from the pool.
    for kind in ["new chunks", "pooled chunks"] {
        let segment = Segment::with_row_start(pool.clone(), CellComparator::Default, row_start);
        measure(&clock, &format!("insert, {kind}, wall time by all writers"), count, || {
            std::thread::scope(|scope| {
                for part in cells.chunks(cells.len() / writers as usize) {
                    let segment = &segment;
                    scope.spawn(move || {
                        for (i, cell) in part.iter().enumerate() {
                            segment.insert(segment.prepare(cell.bytes(), Some(5)), SeqId::new(i as u64));
                        }
                    });
                }
            });
        });
        if kind == "new chunks" {
            continue;
        }
        println!("  {:?}", segment.size());
        let mut scanner = segment.scanner(ReadPoint::NEWEST);
        measure(&clock, "scan step with peek", count, || {
            scanner.seek(Key::first_on_row(b"").get()).unwrap();
            while let Some(cell) = scanner.peek() {
                black_box(cell.row());
                scanner.next().unwrap();
            }
        });
        measure(&clock, "scan step with cell()", count, || {
            scanner.seek(Key::first_on_row(b"").get()).unwrap();
            while let Some(cell) = scanner.cell() {
                black_box(&cell);
                scanner.next().unwrap();
            }
        });
        measure(&clock, "seek", count, || {
            for cell in &cells {
                scanner.seek(cell.get().key()).unwrap();
                assert!(scanner.peek().is_some());
            }
        });
        let mut sorted = cells.clone();
        sorted.sort_by(|a, b| a.row().cmp(b.row()));
        measure(&clock, "reseek to every tenth", count / 10, || {
            scanner.seek(Key::first_on_row(b"").get()).unwrap();
            for cell in sorted.iter().step_by(10) {
                scanner.reseek(cell.get().key()).unwrap();
            }
        });
        drop(scanner);
        measure(&clock, "drop, of all", 1, || drop(segment));
        let segment_of_runs = Segment::with_row_start(pool.clone(), CellComparator::Default, row_start);
        measure(&clock, "insert in runs of 200, pooled chunks", count, || {
            for run in cells.chunks(200) {
                let prepared =
                    run.iter().map(|cell| segment_of_runs.prepare(cell.bytes(), Some(5))).collect();
                segment_of_runs.insert_all(prepared, SeqId::new(1));
            }
        });
        drop(segment_of_runs);
    }
}

#[test]
#[ignore = "prints speeds"]
fn speeds() {
    run(1000, 100_000, 1, ROW_START);
    run(1000, 100_000, 1, b"");
    run(1000, 100_000, 2, ROW_START);
    run(100, 1_000_000, 1, ROW_START);
    run(100, 100_000, 1, ROW_START);
}
