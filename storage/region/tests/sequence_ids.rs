//! Sequence ids of cells in old files: a major compaction drops them, as HBase does. Other programs refuse files that have some (Hudi's
//! reader looks at `MAX_MEMSTORE_TS_KEY`).

use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{CellType, SeqId};
use halcyon_hfile::{HFile, ReaderOptions};
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;

use crate::common::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn bench(new_version_behavior: bool) -> Bench {
    let family = FamilyDescriptor::new("f").unwrap().with("VERSIONS", "3");
    Bench::new(&[family.with("NEW_VERSION_BEHAVIOR", new_version_behavior.to_string())])
}

fn put(bench: &Bench, row: &str, text: &str) {
    let cell = parse_cell(row, text, CellType::Put, false);
    bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell])).unwrap();
}

/// Two files of three rows.
fn two_files(bench: &Bench) {
    for rows in [["a", "b"], ["b", "c"]] {
        rows.iter().for_each(|row| put(bench, row, "f:q=v@5"));
        bench.region.flush(None).unwrap();
    }
}

/// What the only file says is the highest sequence id of a cell, and those of its cells.
fn in_file(bench: &Bench) -> (u64, Vec<u64>) {
    let names = store_files(bench);
    assert_eq!(names.len(), 1, "{names:?}");
    let path = bench.region.dir().join("f").join(&names[0]);
    let cache = Arc::new(halcyon_cache::BlockCache::new(1 << 20));
    let file = HFile::open(&bench.env(), &path, &cache, ReaderOptions::default()).unwrap();
    assert!(file.info().max_seq_id().is_some_and(|seq| seq > SeqId::ZERO), "replay goes by it");
    let cells = bench.scan(Scan::default()).unwrap().concat();
    (file.info().max_mvcc().get(), cells.iter().map(|cell| cell.seq()).collect())
}

#[test]
fn a_major_compaction_of_old_files_drops_sequence_ids() {
    let mut bench = bench(false);
    two_files(&bench);
    bench.clock.advance(6 * DAY);
    bench.compact(true).unwrap();
    assert_eq!(in_file(&bench), (0, vec![0; 3]));
    // What is written later is newer than a cell that has none.
    put(&bench, "a", "f:q=newer@5");
    for reopens in [false, true] {
        if reopens {
            bench.reopen().unwrap();
        }
        let found = bench.scan(Scan::default()).unwrap().concat();
        assert_eq!(found.iter().map(|cell| cell.value()).collect::<Vec<_>>(), [&b"newer"[..], b"v", b"v"]);
    }
}

#[test]
fn sequence_ids_stay_as_long_as_somebody_needs_them() {
    // Of a young file.
    let young = bench(false);
    two_files(&young);
    young.clock.advance(4 * DAY);
    young.compact(true).unwrap();
    assert!(in_file(&young).0 > 0);
    // Of a young file beside an old one.
    let mixed = bench(false);
    two_files(&mixed);
    mixed.clock.advance(6 * DAY);
    put(&mixed, "d", "f:q=v@5");
    mixed.region.flush(None).unwrap();
    mixed.compact(true).unwrap();
    let (highest, seqs) = in_file(&mixed);
    assert!(highest > 0 && seqs == [0, 0, 0, highest], "{highest} {seqs:?}");
    // Where an open scanner does not see all.
    let scanned = bench(false);
    two_files(&scanned);
    scanned.clock.advance(6 * DAY);
    let mut scanner = scanned.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    put(&scanned, "e", "f:q=v@5");
    scanned.region.flush(None).unwrap();
    scanned.clock.advance(6 * DAY);
    scanner.let_go();
    scanned.compact(true).unwrap();
    let (highest, seqs) = in_file(&scanned);
    assert!(highest > 0 && seqs == [0, 0, 0, highest], "{highest} {seqs:?}");
    let mut found = Vec::new();
    while scanner.next(&mut ScanLimits::NONE.clone(), &mut found).unwrap() != NextState::Exhausted {}
    assert_eq!(found.len(), 3, "the row that came later is not seen");
    // Where the order of writing decides.
    let ordered = bench(true);
    two_files(&ordered);
    ordered.clock.advance(6 * DAY);
    ordered.compact(true).unwrap();
    assert!(in_file(&ordered).0 > 0);
}
