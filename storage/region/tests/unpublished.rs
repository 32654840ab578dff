//! Writes whose log entries are not yet durable: no read sees them, and a flush waits for them.

use crate::common::*;
use halcyon_cell::{Cell, CellType};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

fn put(row: &str) -> Mutation {
    let cell = Cell::build(row.as_bytes(), b"f", b"q", 100, CellType::Put, b"v", b"", 0);
    mutation(MutationKind::Put, row.as_bytes(), vec![cell])
}

fn begin(bench: &Bench, rows: &[&str]) -> BatchOutcome {
    let batch = rows.iter().map(|row| put(row)).collect();
    bench.region.mutate(batch, false, Nonce::default(), ReadMode::AnyDisk).unwrap()
}

fn rows(bench: &Bench) -> usize {
    bench.scan(Scan::default()).unwrap().len()
}

/// A file outlives a crash that the end of the log does not: what goes into it has to be in the log first.
#[test]
fn a_flush_waits_for_the_writes_before_it() {
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    let outcome = begin(&bench, &["c", "a", "b"]);
    assert!(!outcome.ticket.is_ready(), "nobody has written the log yet");
    assert_eq!(rows(&bench), 0);
    assert!(bench.region.flush(None).unwrap().flushed);
    assert!(outcome.ticket.is_ready());
    assert_eq!(rows(&bench), 3);
}

#[test]
fn a_write_is_seen_when_the_log_has_it() {
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap()]);
    let first = begin(&bench, &["a"]);
    bench.wal.drive();
    first.ticket.wait().unwrap();
    let second = begin(&bench, &["b"]);
    assert_eq!(rows(&bench), 1, "the second one is in the memstore and not published");
    bench.wal.drive();
    second.ticket.wait().unwrap();
    assert_eq!(rows(&bench), 2);
}
