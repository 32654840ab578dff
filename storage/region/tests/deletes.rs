//! What Deletes read, and what they write.

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, ErrorKind, LATEST_TIMESTAMP};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

use crate::common::*;

fn newest_version() -> Cell {
    Cell::build(b"r", b"f", b"q", LATEST_TIMESTAMP, CellType::Delete, b"", b"", 0)
}

/// A Delete of the newest version read all versions of its column.
#[test]
fn a_delete_of_the_newest_version_reads_no_other() {
    let bench = Bench::new(&[FamilyDescriptor::new("f").unwrap().with("VERSIONS", "20000")]);
    let version = |timestamp: i64| Cell::put(b"r", b"f", b"q", timestamp, &[7; 1_000]);
    for from in (0..10_000).step_by(1_000) {
        let cells = (from..from + 1_000).map(|at| version(at + 1)).collect();
        bench.mutate(mutation(MutationKind::Put, b"r", cells)).unwrap();
    }
    bench.region.flush(None).unwrap();
    let newest = |count: u32| {
        let scan = Scan { max_versions: count, ..Scan::of_row(Bytes::from_static(b"r")) };
        let cells = bench.region.get(scan, ReadMode::AnyDisk).unwrap();
        cells.iter().map(Cell::timestamp).collect::<Vec<_>>()
    };
    let delete = |atomic: bool, count: usize| {
        let before = bench.fs.calls();
        let delete = mutation(MutationKind::Delete, b"r", vec![newest_version(); count]);
        let outcome = bench.region.mutate(vec![delete], atomic, Nonce::default(), ReadMode::AnyDisk).unwrap();
        let calls = bench.fs.calls() - before;
        bench.wal.drive();
        outcome.ticket.wait().unwrap();
        calls
    };
    let calls = [delete(false, 1), delete(true, 3)];
    assert!(calls.iter().all(|&calls| calls < 20), "{calls:?} calls to the disk");
    assert_eq!(newest(2), [9_996, 9_995], "as many as the Deletes name");
}

/// Deletes of whole rows counted as nothing, and became a marker with the row's key for each family.
#[test]
fn deletes_of_rows_count_what_they_write() {
    change_settings(|settings| {
        settings.mini_batch_rows_max = 256;
        settings.new_values_bytes_max = 8 << 20;
    });
    let families: Vec<_> = (0..40).map(|at| FamilyDescriptor::new(format!("f{at:02}")).unwrap()).collect();
    let bench = Bench::new(&families);
    let deletes = |row_len: usize| -> Vec<Mutation> {
        let row = |at: usize| format!("{at:02}{}", "r".repeat(row_len)).into_bytes();
        (0..8).map(|at| mutation(MutationKind::Delete, &row(at), Vec::new())).collect()
    };
    let entries = |row_len: usize| {
        let before = bench.wal.stats().entries;
        let outcome =
            bench.region.mutate(deletes(row_len), false, Nonce::default(), ReadMode::AnyDisk).unwrap();
        bench.wal.drive();
        outcome.ticket.wait().unwrap();
        assert!(outcome.results.iter().all(Result::is_ok));
        bench.wal.stats().entries - before
    };
    assert_eq!(entries(10), 1, "those of short rows share an entry");
    assert_eq!(entries(30_000), 8, "a megabyte for each row");
    // Together they are one write, which makes more than it brings.
    let together = |row_len| {
        let before = bench.wal.stats().entries;
        let written =
            bench.region.mutate_rows(Vec::new(), deletes(row_len), Nonce::default(), ReadMode::AnyDisk);
        bench.wal.drive();
        written.map(|_| ()).map_err(|error| (error.kind(), bench.wal.stats().entries - before))
    };
    assert_eq!(together(30_000), Err((ErrorKind::Invalid, 0)));
    assert_eq!(together(1_000), Ok(()));
}

/// Clients may send a marker of the family with a column. It was stored there, among the cells of that column: reads of other columns did not
/// see it, and the order of such markers cost flushes the square of their number.
#[test]
fn a_marker_of_a_family_is_stored_without_a_column() {
    for new_version_behavior in ["false", "true"] {
        let family = FamilyDescriptor::new("f").unwrap().with("NEW_VERSION_BEHAVIOR", new_version_behavior);
        let mut bench = Bench::new(&[family.with("VERSIONS", "5")]);
        let cell = |qualifier: &[u8], timestamp, cell_type| {
            Cell::build(b"r", b"f", qualifier, timestamp, cell_type, b"v", b"", 0)
        };
        let puts = [(b"a", 10), (b"q", 10), (b"q", 20), (b"q", 25), (b"z", 10), (b"z", 25), (b"z", 30)];
        let puts = puts.map(|(qualifier, timestamp)| cell(qualifier, timestamp, CellType::Put)).to_vec();
        bench.mutate(mutation(MutationKind::Put, b"r", puts)).unwrap();
        let family_versions =
            |qualifier, timestamp| cell(qualifier, timestamp, CellType::DeleteFamilyVersion);
        let markers = vec![
            cell(b"q", 10, CellType::DeleteFamily),
            family_versions(b"x", 25), // twice the same, once it has no column
            family_versions(b"y", 25),
        ];
        let mut told = CellsWritten::new();
        let delete = vec![mutation(MutationKind::Delete, b"r", markers)];
        let outcome =
            bench.region.mutate_telling(delete, false, Nonce::default(), ReadMode::AnyDisk, Some(&mut told));
        let outcome = outcome.unwrap();
        bench.wal.drive();
        outcome.ticket.wait().unwrap();
        assert!(
            told.concat().iter().all(|cell| cell.qualifier().is_empty() && cell.value() == b"v"),
            "{told:?}"
        );
        // With a Delete that reads, and as deletes in a Put.
        let markers = vec![newest_version().with_timestamp(99), newest_version(), family_versions(b"q", 1)];
        bench.mutate(mutation(MutationKind::Delete, b"r", markers)).unwrap();
        bench.mutate(mutation(MutationKind::Put, b"r", vec![family_versions(b"q", 2)])).unwrap();
        let all = || Scan { max_versions: 9, ..Scan::default() };
        let of_column = |name: &[u8]| {
            let mut scan = all();
            let qualifiers = [Bytes::copy_from_slice(name)].into();
            scan.families.insert(Bytes::from_static(b"f"), Some(qualifiers));
            scan
        };
        for step in ["written", "reopened", "flushed", "compacted"] {
            match step {
                "reopened" => bench.reopen().unwrap(),
                "flushed" => _ = bench.region.flush(None).unwrap(),
                "compacted" => _ = bench.compact(true).unwrap(),
                _ => {}
            }
            let shown = |scan| bench.scan(scan).unwrap().concat().iter().map(show).collect::<Vec<_>>();
            let context = format!("NEW_VERSION_BEHAVIOR {new_version_behavior}, {step}");
            assert_eq!(shown(all()), ["r f:z=v@30"], "{context}");
            for (name, count) in [(b"a", 0), (b"q", 0), (b"z", 1)] {
                assert_eq!(shown(of_column(name)).len(), count, "{context}");
            }
            let raw = bench.scan(Scan { raw: true, ..all() }).unwrap().concat();
            let of_family = |cell: &Cell| {
                matches!(cell.cell_type(), CellType::DeleteFamily | CellType::DeleteFamilyVersion)
            };
            let of_family: Vec<String> = raw.iter().filter(|cell| of_family(cell)).map(show).collect();
            let expected = [
                "r f:=v@25 DeleteFamilyVersion",
                "r f:=v@10 DeleteFamily",
                "r f:=v@2 DeleteFamilyVersion",
                "r f:=v@1 DeleteFamilyVersion",
            ];
            assert_eq!(of_family, if step == "compacted" { &[][..] } else { &expected[..] }, "{context}");
        }
    }
}
