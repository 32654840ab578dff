//! What a write tells of its cells: coprocessors find the server's time in the mutations that they have written.

use crate::common::*;
use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

const MODE: ReadMode = ReadMode::AnyDisk;

fn bench() -> Bench {
    Bench::new(&[FamilyDescriptor::new("f").unwrap(), FamilyDescriptor::new("g").unwrap()])
}

fn of(kind: MutationKind, row: &str, cell_type: CellType, timestamp: i64, value: &[u8]) -> Mutation {
    let cell = Cell::build(row.as_bytes(), b"f", b"q", timestamp, cell_type, value, b"", 0);
    mutation(kind, row.as_bytes(), vec![cell])
}

fn put(row: &str, timestamp: i64) -> Mutation {
    of(MutationKind::Put, row, CellType::Put, timestamp, b"v")
}

fn write(bench: &Bench, batch: Vec<Mutation>, atomic: bool) -> CellsWritten {
    let (mut told, count) = (CellsWritten::new(), batch.len());
    let outcome =
        bench.region.mutate_telling(batch, atomic, Nonce::default(), MODE, Some(&mut told)).unwrap();
    assert_eq!((told.len(), outcome.results.len()), (count, count));
    bench.wal.drive();
    outcome.ticket.wait().unwrap();
    told
}

fn stored(bench: &Bench, row: &str) -> Vec<Cell> {
    let scan = Scan { raw: true, max_versions: 9, ..Scan::of_row(row.as_bytes().to_vec().into()) };
    bench.scan(scan).unwrap().concat()
}

#[test]
fn puts_and_deletes_have_the_times_of_what_is_stored() {
    for atomic in [false, true] {
        let bench = bench();
        for mutation in [
            put("r", 5),
            put("r", LATEST_TIMESTAMP),
            of(MutationKind::Delete, "r", CellType::DeleteColumn, LATEST_TIMESTAMP, b""),
            Mutation { cell_ttl_ms: Some(7_000), ..put("r", LATEST_TIMESTAMP) },
        ] {
            let told = write(&bench, vec![mutation], atomic).concat();
            assert_eq!(told.len(), 1);
            let is_told = |cell: &Cell| cell.bytes() == told[0].bytes();
            assert!(stored(&bench, "r").iter().any(is_told), "{told:?} of {:?}", stored(&bench, "r"));
        }
    }
}

#[test]
fn a_delete_of_the_newest_version_has_its_time_and_one_of_a_row_is_one_of_each_family() {
    let bench = bench();
    write(&bench, vec![put("r", 5), put("r", 8)], false);
    let newest = || of(MutationKind::Delete, "r", CellType::Delete, LATEST_TIMESTAMP, b"");
    assert_eq!(write(&bench, vec![newest()], false)[0][0].timestamp(), 8);
    assert_eq!(write(&bench, vec![newest()], true)[0][0].timestamp(), 5);
    let of_row = write(&bench, vec![mutation(MutationKind::Delete, b"r", Vec::new())], false).concat();
    let families: Vec<&[u8]> = of_row.iter().map(Cell::family).collect();
    assert_eq!(families, [b"f", b"g"]);
    assert!(of_row.iter().all(|marker| marker.timestamp() != LATEST_TIMESTAMP));
}

#[test]
fn a_batch_tells_of_each_and_of_none_that_failed() {
    let bench = bench();
    let unknown = Cell::build(b"b", b"x", b"q", 1, CellType::Put, b"v", b"", 0);
    let batch = vec![
        put("a", LATEST_TIMESTAMP),
        mutation(MutationKind::Put, b"b", vec![unknown]),
        of(MutationKind::Increment, "c", CellType::Put, LATEST_TIMESTAMP, &[0; 8]),
        put("d", 4),
    ];
    let told = write(&bench, batch.clone(), false);
    assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1, 1]);
    assert_eq!((told[0][0].row(), told[2][0].row(), told[3][0].timestamp()), (&b"a"[..], &b"c"[..], 4));
    // The column has a cell now; its new value is in no mutation.
    assert_eq!(write(&bench, batch, false)[2], []);
}

#[test]
fn rows_that_are_written_together_are_told_of() {
    let bench = bench();
    let mut told = CellsWritten::new();
    let batch = vec![
        put("a", LATEST_TIMESTAMP),
        of(MutationKind::Append, "a", CellType::Put, LATEST_TIMESTAMP, b"x"),
        of(MutationKind::Delete, "b", CellType::DeleteColumn, LATEST_TIMESTAMP, b""),
    ];
    let outcome =
        bench.region.mutate_rows_telling(Vec::new(), batch, Nonce::default(), MODE, Some(&mut told)).unwrap();
    bench.wal.drive();
    outcome.ticket.wait().unwrap();
    assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
    assert!(told.concat().iter().all(|cell| cell.timestamp() != LATEST_TIMESTAMP));
}
