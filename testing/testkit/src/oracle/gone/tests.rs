//! What is gone stays gone, unless the WAL has it.

use halcyon_cell::{Cell, CellType};

use crate::oracle::tests::{all, family, marker, oracle, put, put_ttl};
use crate::{FamilyOptions, KeepDeletedCells, MajorRows, Oracle, OracleScan};

/// Checks that these versions of column `a` are found, newest first.
fn shows(oracle: &mut Oracle, scan: &OracleScan, timestamps: &[i64]) -> Result<(), String> {
    let cells: Vec<Cell> = timestamps.iter().map(|timestamp| put("a", *timestamp, "v")).collect();
    oracle.check(scan, &if cells.is_empty() { Vec::new() } else { vec![cells] })
}

fn refused(oracle: &mut Oracle, scan: &OracleScan, timestamps: &[i64]) -> String {
    shows(oracle, scan, timestamps).expect_err("a cell that was gone has come back")
}

/// Version 1 may be gone: it is one too many. With version 3 deleted it shows if it is not.
fn one_unsure() -> Oracle {
    let puts = [put("a", 1, "v"), put("a", 2, "v"), put("a", 3, "v")];
    oracle(FamilyOptions::new(b"f").versions(2), &[&puts[..], &[marker(CellType::Delete, "a", 3)]].concat())
}

/// An engine that read a compacted file again was right at each read: there, gone, there.
#[test]
fn a_version_does_not_flicker() {
    let mut it = one_unsure();
    assert_eq!(shows(&mut it, &all(), &[2, 1]), Ok(()));
    assert_eq!(shows(&mut it, &all(), &[2]), Ok(()));
    let error = refused(&mut it, &all(), &[2, 1]);
    assert!(error.starts_with("an earlier read has shown that it was gone, and it came back"), "{error}");
    assert!(error.contains("r/f:a/1/4 = v"), "{error}");
    assert_eq!(shows(&mut it, &all(), &[2]), Ok(()));
}

#[test]
fn what_is_written_again_is_another_cell() {
    let mut it = one_unsure();
    assert_eq!(shows(&mut it, &all(), &[2]), Ok(()));
    it.apply(&[put("a", 1, "v").with_seq(9)]);
    assert_eq!(shows(&mut it, &all(), &[2, 1]), Ok(()));
}

#[test]
fn reads_that_would_not_show_a_cell_prove_nothing() {
    let with_offset = OracleScan { store_offset: 1, ..all() };
    let with_store_limit = OracleScan { store_limit: Some(1), ..all() };
    for (scan, timestamps) in [
        (OracleScan::all(), &[2][..]),
        (all().time(2, 9), &[2]),
        (all().column(b"f", b"b"), &[]),
        (OracleScan::get(b"q"), &[]),
        (with_offset, &[]),
        (with_store_limit, &[2]),
    ] {
        let mut it = one_unsure();
        assert_eq!(shows(&mut it, &scan, timestamps), Ok(()), "{scan:?}");
        assert_eq!(shows(&mut it, &all(), &[2, 1]), Ok(()), "{scan:?}");
    }
    for scan in [all().time(0, 3), all().column(b"f", b"a"), OracleScan { store_limit: Some(2), ..all() }] {
        let mut it = one_unsure();
        assert_eq!(shows(&mut it, &scan, &[2]), Ok(()), "{scan:?}");
        refused(&mut it, &all(), &[2, 1]);
    }
}

#[test]
fn rows_behind_the_limit_were_not_looked_at() {
    let of =
        |row: &[u8], timestamp, cell_type| Cell::build(row, b"f", b"a", timestamp, cell_type, b"", b"", 0);
    let put_of = |row, timestamp| of(row, timestamp, CellType::Put);
    let rows = [b"r1", b"r2", b"r3"];
    let unsure = |row| [put_of(row, 1), put_of(row, 2), of(row, 2, CellType::Delete)];
    let cells: Vec<Cell> = rows.iter().flat_map(|row| unsure(&row[..])).collect();
    for reversed in [false, true] {
        let [first, middle, last] = if reversed { [b"r3", b"r2", b"r1"] } else { [b"r1", b"r2", b"r3"] };
        let mut it = oracle(FamilyOptions::new(b"f"), &cells);
        let limited = OracleScan { limit: Some(1), reversed, ..all() };
        // The first row is gone, the last one was not reached.
        assert_eq!(it.check(&limited, &[vec![put_of(middle, 1)]]), Ok(()));
        let whole = OracleScan { reversed, ..all() };
        assert_eq!(it.check(&whole, &[vec![put_of(middle, 1)], vec![put_of(last, 1)]]), Ok(()));
        assert!(it.check(&whole, &[vec![put_of(first, 1)], vec![put_of(middle, 1)]]).is_err());
        // With fewer rows than the limit all were reached.
        let limited = OracleScan { limit: Some(2), ..whole.clone() };
        assert_eq!(it.check(&limited, &[vec![put_of(middle, 1)]]), Ok(()));
        assert!(it.check(&whole, &[vec![put_of(middle, 1)], vec![put_of(last, 1)]]).is_err());
    }
}

/// A marker that is kept goes when there is nothing older than it; then an older put is written.
fn with_unsure_marker() -> Oracle {
    let cells = [put("a", 5, "v"), marker(CellType::DeleteColumn, "a", 3)];
    let mut it = oracle(family().keep(KeepDeletedCells::True), &cells);
    it.major_compact(&MajorRows::ALL);
    it.apply(&[put("a", 2, "v").with_seq(9)]);
    it
}

#[test]
fn a_marker_does_not_flicker() {
    let mut it = with_unsure_marker();
    assert_eq!(shows(&mut it, &all(), &[5]), Ok(()), "the marker may be there");
    assert_eq!(shows(&mut it, &all(), &[5, 2]), Ok(()), "and may be gone");
    let error = refused(&mut it, &all(), &[5]);
    assert!(error.contains("came back") && error.contains("r/f:a/3/12"), "{error}");
}

/// HBase may leave out the file of a marker by its times.
#[test]
fn a_time_range_proves_nothing_about_markers() {
    let mut it = with_unsure_marker();
    assert_eq!(shows(&mut it, &all().time(0, 9), &[5, 2]), Ok(()));
    assert_eq!(shows(&mut it, &all(), &[5]), Ok(()));
}

/// The put may be gone or hidden: which of the two is not known before one of them shows.
#[test]
fn a_put_under_an_unsure_marker_may_be_there() {
    let mut it = with_unsure_marker();
    it.apply(&[put("a", 6, "v").with_seq(10), put("a", 7, "v").with_seq(11)]); // 2 is one too many now
    it.apply(&[marker(CellType::Delete, "a", 7).with_seq(12)]);
    assert_eq!(shows(&mut it, &all(), &[6, 5]), Ok(()));
    assert_eq!(shows(&mut it, &all(), &[6, 5, 2]), Ok(()), "the marker has gone");
    assert_eq!(shows(&mut it, &all(), &[6, 5]), Ok(()), "and now the put");
    refused(&mut it, &all(), &[6, 5, 2]);
}

#[test]
fn raw_scans_show_what_is_gone() {
    let mut it = one_unsure();
    let marker = marker(CellType::Delete, "a", 3);
    let cells = vec![marker, put("a", 3, "v"), put("a", 2, "v")];
    assert_eq!(it.check(&all().raw(), &[cells]), Ok(()));
    refused(&mut it, &all(), &[2, 1]);
}

/// HBase leaves out a segment of which all has expired, until it gets a younger cell.
#[test]
fn raw_scans_may_leave_out_what_has_expired() {
    let mut it = oracle(family().ttl_ms(10), &[put("a", 100, "v")]);
    it.set_now_ms(111);
    assert_eq!(shows(&mut it, &all().raw(), &[]), Ok(()));
    it.apply(&[put("a", 111, "v").with_seq(9)]);
    assert_eq!(shows(&mut it, &all().raw(), &[111, 100]), Ok(()));
}

/// An in-memory compaction has left it out of the memstore, and the WAL has it.
#[test]
fn a_crash_brings_back_what_is_in_the_wal_alone() {
    let mut it = one_unsure();
    assert_eq!(shows(&mut it, &all(), &[2]), Ok(()));
    it.crashed();
    assert_eq!(shows(&mut it, &all(), &[2, 1]), Ok(()));
    // What was replayed is in files before the region opens.
    assert_eq!(shows(&mut it, &all(), &[2]), Ok(()));
    it.crashed();
    refused(&mut it, &all(), &[2, 1]);
}

#[test]
fn what_was_flushed_is_not_replayed() {
    let mut it = one_unsure();
    assert_eq!(shows(&mut it, &all(), &[2]), Ok(()));
    it.flushed();
    it.crashed();
    refused(&mut it, &all(), &[2, 1]);
    let mut it = one_unsure();
    it.flushed();
    assert_eq!(shows(&mut it, &all(), &[2]), Ok(()));
    it.crashed();
    refused(&mut it, &all(), &[2, 1]);
}

/// HBase writes a file without cells then, and its sequence id is what counts.
#[test]
fn a_flush_that_finds_nothing_worth_writing_is_a_flush() {
    let cells = [put("a", 5, "v"), put_ttl("a", 10, "v", 10)];
    let mut it = oracle(FamilyOptions::new(b"f"), &cells);
    it.set_now_ms(21); // the newer one is over, and had made the older one one too many
    assert_eq!(shows(&mut it, &all(), &[]), Ok(()));
    it.flushed();
    it.crashed();
    refused(&mut it, &all(), &[5]);
}
