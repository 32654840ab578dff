//! Cases computed by hand from HBase's rules.

use halcyon_cell::{Cell, CellType, TagType, append_tag};

use crate::{FamilyOptions, KeepDeletedCells, MajorRows, Oracle, OracleScan};

pub(super) fn put(qualifier: &str, timestamp: i64, value: &str) -> Cell {
    Cell::put(b"r", b"f", qualifier.as_bytes(), timestamp, value.as_bytes())
}

pub(super) fn put_ttl(qualifier: &str, timestamp: i64, value: &str, ttl_ms: i64) -> Cell {
    let mut tags = Vec::new();
    append_tag(&mut tags, TagType::TTL, &ttl_ms.to_be_bytes());
    Cell::build(b"r", b"f", qualifier.as_bytes(), timestamp, CellType::Put, value.as_bytes(), &tags, 0)
}

pub(super) fn marker(cell_type: CellType, qualifier: &str, timestamp: i64) -> Cell {
    Cell::build(b"r", b"f", qualifier.as_bytes(), timestamp, cell_type, b"", b"", 0)
}

/// An oracle with one family `f` and these cells, their sequence ids in the order given.
pub(super) fn oracle(options: FamilyOptions, cells: &[Cell]) -> Oracle {
    let mut oracle = Oracle::new(vec![options]);
    for (at, cell) in cells.iter().enumerate() {
        oracle.apply(&[cell.clone().with_seq(at as u64 + 1)]);
    }
    oracle
}

pub(super) fn family() -> FamilyOptions {
    FamilyOptions::new(b"f").versions(3)
}

/// The values of all results, a bar between results; markers as their type and timestamp.
fn read(oracle: &Oracle, scan: &OracleScan) -> String {
    let results = oracle.scan(scan);
    let show = |cell: &Cell| {
        if cell.cell_type().is_delete() {
            format!("{:?}@{}", cell.cell_type(), cell.timestamp())
        } else {
            String::from_utf8(cell.value().to_vec()).unwrap()
        }
    };
    let lines: Vec<String> =
        results.iter().map(|cells| cells.iter().map(show).collect::<Vec<_>>().join(" ")).collect();
    lines.join(" | ")
}

pub(super) fn all() -> OracleScan {
    OracleScan::all().versions(10)
}

#[test]
fn newest_version_by_default_and_not_more_than_the_family_keeps() {
    let it = oracle(family(), &[put("a", 1, "1"), put("a", 4, "4"), put("a", 2, "2"), put("a", 3, "3")]);
    assert_eq!(read(&it, &OracleScan::all()), "4");
    assert_eq!(read(&it, &OracleScan::all().versions(2)), "4 3");
    assert_eq!(read(&it, &all()), "4 3 2");
}

#[test]
fn of_equal_timestamps_the_last_written_is_seen_and_counts_once() {
    let it = oracle(family(), &[put("a", 5, "old"), put("a", 5, "new"), put("a", 4, "4"), put("a", 3, "3")]);
    assert_eq!(read(&it, &all()), "new 4 3");
}

/// The well-known surprise: a marker hides puts that are written after it, if their timestamps are not above
/// its own, until a major compaction removes the marker.
#[test]
fn a_marker_hides_puts_that_come_later() {
    let mut it = oracle(family(), &[marker(CellType::DeleteColumn, "a", 10), put("a", 9, "late")]);
    assert_eq!(read(&it, &all()), "");
    it.major_compact(&MajorRows::ALL);
    assert_eq!(read(&it, &all()), "", "what the marker hid went with it");
    it.apply(&[put("a", 9, "later").with_seq(9)]);
    assert_eq!(read(&it, &all()), "later");
}

#[test]
fn the_four_markers() {
    let puts =
        [put("a", 1, "a1"), put("a", 2, "a2"), put("a", 3, "a3"), put("b", 2, "b2"), put("b", 3, "b3")];
    let with = |cell_type, qualifier| {
        let mut cells = puts.to_vec();
        cells.push(marker(cell_type, qualifier, 2));
        read(&oracle(family(), &cells), &all())
    };
    assert_eq!(with(CellType::Delete, "a"), "a3 a1 b3 b2");
    assert_eq!(with(CellType::DeleteColumn, "a"), "a3 b3 b2");
    assert_eq!(with(CellType::DeleteFamily, ""), "a3 b3");
    assert_eq!(with(CellType::DeleteFamilyVersion, ""), "a3 a1 b3");
}

#[test]
fn a_hidden_version_does_not_count() {
    let cells = [put("a", 3, "3"), put("a", 2, "2"), put("a", 1, "1"), marker(CellType::Delete, "a", 3)];
    assert_eq!(read(&oracle(family(), &cells), &OracleScan::all()), "2");
}

#[test]
fn time_ranges_leave_out_their_end_and_come_before_the_version_count() {
    let it = oracle(family().versions(1), &[put("a", 5, "5"), put("a", 7, "7")]);
    assert_eq!(read(&it, &all().time(5, 7)), "5");
    assert_eq!(read(&it, &all().time(6, 8)), "7");
    assert_eq!(read(&it, &all().time(8, 9)), "");
}

#[test]
fn markers_behind_the_time_range_count_unless_deleted_cells_are_kept() {
    let cells = [put("a", 5, "5"), marker(CellType::DeleteColumn, "a", 7)];
    let with = |keep| read(&oracle(family().keep(keep), &cells), &all().time(0, 6));
    assert_eq!(with(KeepDeletedCells::False), "");
    assert_eq!(with(KeepDeletedCells::True), "5");
    assert_eq!(with(KeepDeletedCells::Ttl), "5");
    let now = read(&oracle(family().keep(KeepDeletedCells::True), &cells), &all());
    assert_eq!(now, "", "the present does not show it");
    // Markers in front of the range are out of it either way, and have nothing to hide there.
    let before = [put("a", 5, "5"), marker(CellType::DeleteColumn, "a", 3)];
    assert_eq!(read(&oracle(family(), &before), &all().time(4, 9)), "5");
}

#[test]
fn family_ttl_and_min_versions() {
    let cells = [put("a", 100, "100"), put("a", 90, "90"), put("a", 80, "80")];
    let at = |options: FamilyOptions, now_ms, scan: &OracleScan| {
        let mut it = oracle(options, &cells);
        it.set_now_ms(now_ms);
        read(&it, scan)
    };
    // A cell lives as long as its age is not above the TTL.
    assert_eq!(at(family().ttl_ms(10), 100, &all()), "100 90");
    assert_eq!(at(family().ttl_ms(10), 101, &all()), "100");
    assert_eq!(at(family().ttl_ms(10), 111, &all()), "");
    assert_eq!(at(family().ttl_ms(10).min_versions(1), 111, &all()), "100");
    assert_eq!(at(family().ttl_ms(10).min_versions(2), 200, &all()), "100 90");
    assert_eq!(at(family().ttl_ms(10).min_versions(2), 200, &OracleScan::all()), "100");
    // Asked for by name, HBase shows the first expired version over the minimum as well.
    let by_name = all().column(b"f", b"a");
    assert_eq!(at(family().ttl_ms(10).min_versions(1), 101, &by_name), "100 90");
    assert_eq!(at(family().ttl_ms(10).min_versions(1), 111, &by_name), "100");
    assert_eq!(at(family().ttl_ms(10), 111, &all().raw()), "100 90 80", "raw scans know no TTL");
}

#[test]
fn cell_ttl_ends_a_cell_and_shows_what_is_below() {
    let mut it = oracle(family().versions(1), &[put("a", 5, "old"), put_ttl("a", 5, "new", 10)]);
    it.set_now_ms(15);
    assert_eq!(read(&it, &all()), "new");
    it.set_now_ms(16);
    assert_eq!(read(&it, &all()), "old");
    let old = put("a", 5, "old");
    assert_eq!(it.check(&all(), &[vec![old]]), Ok(()));
    assert_eq!(it.check(&all(), &[]), Ok(()), "a flush may have dropped it while it was hidden");
}

#[test]
fn raw_scans_show_markers_and_what_they_hide() {
    let cells = [
        put("a", 2, "a2"),
        marker(CellType::DeleteColumn, "a", 2),
        marker(CellType::DeleteFamily, "", 1),
        put("a", 1, "a1"),
    ];
    let it = oracle(family(), &cells);
    assert_eq!(read(&it, &all().raw()), "DeleteFamily@1 DeleteColumn@2 a2 a1");
    assert_eq!(read(&it, &OracleScan::all().raw()), "DeleteFamily@1 DeleteColumn@2 a2");
    assert_eq!(read(&it, &all().raw().time(2, 3)), "DeleteColumn@2 a2");
}

#[test]
fn major_compaction_keeps_deleted_cells_if_told_to() {
    let cells = [put("a", 5, "5"), marker(CellType::DeleteColumn, "a", 7)];
    let mut it = oracle(family().keep(KeepDeletedCells::True), &cells);
    it.major_compact(&MajorRows::ALL);
    assert_eq!(read(&it, &all().raw()), "DeleteColumn@7 5");
    let mut it = oracle(family(), &cells);
    it.major_compact(&MajorRows::ALL);
    assert_eq!(read(&it, &all().raw()), "");
    // Until the marker is older than the TTL.
    let mut it = oracle(family().keep(KeepDeletedCells::Ttl).ttl_ms(10).min_versions(1), &cells);
    it.set_now_ms(17);
    it.major_compact(&MajorRows::ALL);
    assert_eq!(read(&it, &all().raw()), "DeleteColumn@7 5");
    it.set_now_ms(18);
    it.major_compact(&MajorRows::ALL);
    assert_eq!(read(&it, &all().raw()), "");
}

#[test]
fn major_compaction_keeps_versions_by_their_number() {
    let mut it = oracle(family().versions(2), &[put("a", 1, "1"), put("a", 2, "2"), put("a", 3, "3")]);
    assert_eq!(read(&it, &all().raw()), "3 2 1");
    it.major_compact(&MajorRows::ALL);
    assert_eq!(read(&it, &all().raw()), "3 2");
    it.apply(&[marker(CellType::Delete, "a", 3).with_seq(9)]);
    assert_eq!(read(&it, &all()), "2");
}

/// With one version kept, the second one is gone after a flush and there without one.
#[test]
fn a_version_too_many_may_be_there_and_may_be_gone() {
    let cells = [put("a", 1, "1"), put("a", 2, "2"), marker(CellType::Delete, "a", 2)];
    let mut it = oracle(family().versions(1), &cells);
    assert_eq!(it.check(&all(), &[vec![put("a", 1, "1")]]), Ok(()));
    assert_eq!(it.check(&all(), &[]), Ok(()));
    assert!(it.check(&all(), &[vec![put("a", 2, "2")]]).is_err(), "this one is deleted");
    // With two versions kept it is not the engine's to drop.
    let mut it = oracle(family().versions(2), &cells);
    assert_eq!(it.check(&all(), &[vec![put("a", 1, "1")]]), Ok(()));
    assert!(it.check(&all(), &[]).is_err());
}

#[test]
fn rows_families_limits_and_batches() {
    let mut it = Oracle::new(vec![FamilyOptions::new(b"f"), FamilyOptions::new(b"g")]);
    for row in [b"r1", b"r2", b"r3"] {
        for (family, qualifier) in [(b"g", b"x"), (b"f", b"a"), (b"f", b"b"), (b"f", b"c")] {
            let value = format!("{}{}", row[1] as char, qualifier[0] as char);
            it.apply(&[Cell::put(row, family, qualifier, 1, value.as_bytes())]);
        }
    }
    let scan = OracleScan::all;
    assert_eq!(read(&it, &scan()), "1a 1b 1c 1x | 2a 2b 2c 2x | 3a 3b 3c 3x");
    assert_eq!(read(&it, &scan().family(b"g")), "1x | 2x | 3x");
    assert_eq!(read(&it, &scan().column(b"f", b"b").family(b"g")), "1b 1x | 2b 2x | 3b 3x");
    assert_eq!(read(&it, &OracleScan::get(b"r2").family(b"g")), "2x");
    let reversed = OracleScan { reversed: true, limit: Some(2), ..scan().family(b"g") };
    assert_eq!(read(&it, &reversed), "3x | 2x");
    let bounds = OracleScan {
        start_row: b"r1".to_vec(),
        start_inclusive: false,
        stop_row: b"r3".to_vec(),
        ..scan().family(b"g")
    };
    assert_eq!(read(&it, &bounds), "2x");
    let stores = OracleScan { store_limit: Some(1), store_offset: 1, ..OracleScan::get(b"r1") };
    assert_eq!(read(&it, &stores), "1b");
    let batches = OracleScan { batch: Some(3), limit: Some(2), ..scan() };
    assert_eq!(read(&it, &batches), "1a 1b 1c | 1x | 2a 2b 2c | 2x");
}

#[test]
fn a_family_may_have_a_time_range_of_its_own() {
    let mut it = Oracle::new(vec![FamilyOptions::new(b"f"), FamilyOptions::new(b"g")]);
    it.apply(&[Cell::put(b"r", b"f", b"a", 1, b"f1"), Cell::put(b"r", b"g", b"a", 1, b"g1")]);
    let mut scan = all().time(5, 9);
    scan.family_time_ranges.insert(b"g".to_vec(), crate::TimeRange { min: 0, max: 2 });
    assert_eq!(read(&it, &scan), "g1");
}

#[test]
fn a_wrong_answer_is_refused_and_shown() {
    let mut it = oracle(family(), &[put("a", 1, "1"), put("b", 1, "2")]);
    let error = it.check(&all(), &[vec![put("a", 1, "1"), put("b", 1, "x")]]).unwrap_err();
    assert!(error.contains("r/f:b/1/4 = 2 (") && error.contains("r/f:b/1/4 = x ("), "{error}");
    assert!(it.check(&all(), &[vec![put("a", 1, "1")], vec![put("b", 1, "2")]]).is_err(), "two results");
}
