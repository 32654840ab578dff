//! Scanners that let go of their view between two calls: they return what they would have returned with it, and nothing
//! of what was flushed stays in memory for them.

use std::collections::VecDeque;

use crate::common::scripts::{descriptor, region_scan};
use crate::common::*;
use bytes::Bytes;
use halcyon_cell::{Cell, CellType};
use halcyon_filter::{Filter, parse_filter};
use halcyon_proto::pb;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use halcyon_testkit::{FamilyOptions, OracleScan, Random, Script, Step, TimeRange as AskedRange};
use prost::Message;

/// What one call of a scanner returned.
type Answer = (NextState, Vec<Bytes>);

fn call(scanner: &mut RegionScanner, random: &mut Random) -> Answer {
    let limits = ScanLimits {
        size_bytes_left: 1 + random.below(400) as i64,
        may_cut_row: random.one_in(2),
        ..ScanLimits::NONE
    };
    let mut cells = Vec::new();
    let state = scanner.next(&mut limits.clone(), &mut cells).unwrap();
    (state, cells.iter().map(|cell| cell.bytes().clone()).collect())
}

/// A scanner that is to give the answers that another one gave at once.
struct Open {
    scanner: RegionScanner,
    /// Draws the limits of its calls.
    limits: Random,
    expected: VecDeque<Answer>,
    scan: OracleScan,
}

impl Open {
    fn new(bench: &Bench, scan: &OracleScan, seed: u64) -> Open {
        let open = || {
            let filter = (seed.is_multiple_of(4) && scan.batch.is_none()).then(|| a_filter(seed));
            let asked = Scan { filter, load_families_on_demand: seed.is_multiple_of(8), ..region_scan(scan) };
            bench.region.scanner(asked, ReadMode::AnyDisk).unwrap()
        };
        let (mut at_once, mut limits) = (open(), Random::new(seed));
        let mut expected = VecDeque::new();
        while expected.back().is_none_or(|(state, _)| *state != NextState::Exhausted) {
            expected.push_back(call(&mut at_once, &mut limits));
        }
        drop(at_once);
        Open { scanner: open(), limits: Random::new(seed), expected, scan: scan.clone() }
    }

    /// One call. Returns whether there are more. That a row is whole, or the last, may be known a call earlier: what was
    /// hidden behind it is gone.
    fn go_on(&mut self) -> bool {
        let (state, found) = call(&mut self.scanner, &mut self.limits);
        let (expected_state, expected) = self.expected.pop_front().expect("the scan ends in time");
        assert_eq!(found, expected, "{state:?} {expected_state:?} {:?}", self.scan);
        if state != expected_state {
            let was_cut = [NextState::BatchReached, NextState::SizeReached].contains(&expected_state);
            let is_known_earlier = match state {
                NextState::RowDone => was_cut,
                NextState::Exhausted => was_cut || expected_state == NextState::RowDone,
                _ => false,
            };
            assert!(is_known_earlier, "{state:?} {expected_state:?} {:?}", self.scan);
        }
        if state == NextState::Exhausted {
            assert!(self.expected.iter().all(|(_, cells)| cells.is_empty()), "{:?}", self.scan);
            return false;
        }
        !self.expected.is_empty()
    }
}

/// Filters with a memory, with hints, one that reads whole rows, and those that look at values, wherever these stand.
fn a_filter(seed: u64) -> Box<dyn Filter> {
    let of = |name: &str, message: Vec<u8>| {
        let name = format!("org.apache.hadoop.hbase.filter.{name}");
        parse_filter(&pb::Filter { name, serialized_filter: Some(message.into()) }).unwrap()
    };
    let by_value = |family: &[u8]| {
        let comparable = pb::ByteArrayComparable { value: Some(b"v2".to_vec().into()) };
        let comparator = pb::Comparator {
            name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
            serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
        };
        let message = pb::SingleColumnValueFilter {
            column_family: Some(family.to_vec().into()),
            column_qualifier: Some(b"q".to_vec().into()),
            compare_op: pb::CompareType::Greater as i32,
            comparator,
            filter_if_missing: Some(true),
            latest_version_only: Some(seed.is_multiple_of(16)),
        };
        of("SingleColumnValueFilter", message.encode_to_vec())
    };
    match seed / 4 % 5 {
        3 => by_value(b"f"),
        4 => by_value(b"fa"),
        0 => of("PageFilter", pb::PageFilter { page_size: 4 }.encode_to_vec()),
        1 => {
            of("ColumnPrefixFilter", pb::ColumnPrefixFilter { prefix: b"q".to_vec().into() }.encode_to_vec())
        }
        _ => of("ColumnPaginationFilter", {
            pb::ColumnPaginationFilter { limit: 2, offset: Some(1), ..Default::default() }.encode_to_vec()
        }),
    }
}

/// Reads of a script whose answer does not depend on what a flush may choose to drop.
fn has_one_answer(scan: &OracleScan) -> bool {
    !scan.raw && scan.time_range == AskedRange::ALL && scan.family_time_ranges.is_empty()
}

fn run(seed: u64, policy: Policy) -> usize {
    let mut script = Script::random(seed, 300);
    // A version that newer ones push out may be dropped, and comes into sight again when those are deleted one by one, if
    // it was not. So there are either no versions too many, or no markers for one version.
    let keeps_all_versions = seed.is_multiple_of(2);
    for family in &mut script.families {
        (family.ttl_ms, family.min_versions) = (None, 0);
        if keeps_all_versions {
            family.versions_max = 1000 + seed as usize % 8;
        }
    }
    let is_of_one_version =
        |cell: &Cell| matches!(cell.cell_type(), CellType::Delete | CellType::DeleteFamilyVersion);
    let families: Vec<FamilyDescriptor> =
        script.families.iter().map(|options: &FamilyOptions| descriptor(options, policy)).collect();
    let bench = Bench::new(&families);
    let mut random = Random::new(seed);
    let (mut open, mut let_go) = (Vec::<Open>::new(), 0);
    for step in &script.steps {
        match step {
            Step::Write(cells) => {
                // Cells that expire by themselves are not there later.
                let mut cells: Vec<&Cell> =
                    cells.iter().filter(|cell| cell.get().tags().is_empty()).collect();
                cells.retain(|cell| keeps_all_versions || !is_of_one_version(cell));
                let cells: Vec<Cell> = cells.iter().map(|cell| (*cell).clone().with_seq(0)).collect();
                let Some(first) = cells.first() else { continue };
                let is_put = cells.iter().any(|cell| cell.cell_type() == CellType::Put);
                let kind = if is_put { MutationKind::Put } else { MutationKind::Delete };
                let row = first.row().to_vec();
                bench.mutate(mutation(kind, &row, cells)).unwrap();
                if random.one_in(3) {
                    bench.region.compact_memory().unwrap();
                }
            }
            Step::Read(scan) if has_one_answer(scan) => {
                let scan = OracleScan { limit: None, ..scan.clone() };
                open.push(Open::new(&bench, &scan, random.next_u64()));
            }
            Step::Flush => drop(bench.region.flush(None).unwrap()),
            Step::Compact { major } => {
                bench.region.flush(None).unwrap();
                bench.compact(*major).unwrap();
            }
            _ => {}
        }
        open.retain_mut(|it| {
            if random.one_in(3) {
                it.scanner.let_go();
                let_go += 1;
            }
            !random.one_in(6) || it.go_on()
        });
    }
    for mut it in open {
        while it.go_on() {
            it.scanner.let_go();
        }
    }
    let_go
}

fn agree(policy: Policy, seeds: u64) {
    let seeds = std::env::var("HALCYON_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(seeds);
    for seed in 1..=seeds {
        println!("seed {seed}");
        assert!(run(seed, policy) > 10);
    }
}

#[test]
fn a_scanner_that_let_go_returns_what_it_would_have() {
    agree(Policy::Exploring, 60);
}

#[test]
fn in_stripes_as_well() {
    agree(Policy::Stripe, 60);
}

#[test]
fn in_windows_of_time_as_well() {
    agree(Policy::DateTiered, 20);
}

#[test]
fn by_ratio_as_well() {
    agree(Policy::RatioBased, 20);
}

/// A filter sees the value of a cell, whether it was flushed or not.
#[test]
fn with_values_in_mob_files_as_well() {
    agree(Policy::Mob, 20);
}

fn put(row: &str, qualifier: &str, value: &[u8]) -> Mutation {
    let cell = Cell::put(row.as_bytes(), b"f", qualifier.as_bytes(), i64::MAX, value);
    mutation(MutationKind::Put, row.as_bytes(), vec![cell])
}

fn family() -> FamilyDescriptor {
    FamilyDescriptor::new(b"f").unwrap()
}

fn bench() -> Bench {
    let bench = Bench::new(&[family()]);
    for number in 0..40 {
        for qualifier in ["a", "b", "c"] {
            bench.mutate(put(&format!("r{number:02}"), qualifier, b"old")).unwrap();
        }
    }
    bench
}

fn overwrite(bench: &Bench, value: &[u8]) {
    for number in 0..40 {
        for qualifier in ["a", "b", "c"] {
            bench.mutate(put(&format!("r{number:02}"), qualifier, value)).unwrap();
        }
    }
}

/// What was seen in the soak: clients that open scanners and leave kept each memstore that there had been, until their
/// leases ran out, and writers were refused meanwhile.
#[test]
fn nothing_that_was_flushed_stays_in_memory_for_an_idle_scanner() {
    for reversed in [false, true] {
        let bench = bench();
        let scan = || Scan { reversed, ..Scan::default() };
        let mut scanner = bench.region.scanner(scan(), ReadMode::AnyDisk).unwrap();
        let mut one = Vec::new();
        // Into the middle of a row.
        let cut = ScanLimits { size_bytes_left: 1, may_cut_row: true, deadline_ns: None };
        assert_eq!(scanner.next(&mut cut.clone(), &mut one).unwrap(), NextState::SizeReached);
        assert_eq!((one.len(), one[0].qualifier()), (1, &b"a"[..]));
        drop(one);
        assert!(!scanner.holds_flushed(), "it is all in use");
        bench.region.flush(None).unwrap();
        assert!(scanner.holds_flushed() && bench.chunks.used_bytes() > 0);
        drop(scanner.let_go());
        assert_eq!((scanner.holds_flushed(), scanner.has_let_go()), (false, true));
        assert_eq!((bench.chunks.used_bytes(), scanner.held_bytes()), (0, 0));

        // All versions of old go twice, as far as others can see.
        overwrite(&bench, b"new");
        bench.region.flush(None).unwrap();
        overwrite(&bench, b"newer");
        bench.region.flush(None).unwrap();
        bench.compact(true).unwrap();
        let mut rest = Vec::new();
        while scanner.next(&mut ScanLimits::NONE.clone(), &mut rest).unwrap() != NextState::Exhausted {}
        assert_eq!(rest.len(), 40 * 3 - 1);
        assert!(rest.iter().all(|cell| cell.value() == b"old"));
        let (first, row) = (rest[0].row().to_vec(), if reversed { b"r39" } else { b"r00" });
        assert_eq!((&first[..], rest[0].qualifier()), (&row[..], &b"b"[..]));

        // Once it has gone, what it saw goes.
        drop(scanner);
        overwrite(&bench, b"newest");
        bench.region.flush(None).unwrap();
        bench.compact(true).unwrap();
        let raw = bench.scan(Scan { raw: true, max_versions: 9, ..Scan::default() }).unwrap();
        assert!(raw.iter().flatten().all(|cell| cell.value() == b"newest"));
    }
}

/// A marker that comes after a scanner's read point hides nothing from it, whatever is compacted.
#[test]
fn markers_that_come_later_hide_nothing() {
    let bench = bench();
    let mut scanner = bench.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    scanner.let_go();
    for number in 0..40 {
        let row = format!("r{number:02}");
        bench.mutate(mutation(MutationKind::Delete, row.as_bytes(), Vec::new())).unwrap();
    }
    bench.region.flush(None).unwrap();
    bench.compact(true).unwrap();
    assert!(bench.scan(Scan::default()).unwrap().is_empty());
    let mut found = Vec::new();
    while scanner.next(&mut ScanLimits::NONE.clone(), &mut found).unwrap() != NextState::Exhausted {}
    assert_eq!(found.len(), 40 * 3);
}

#[test]
fn in_a_region_that_closes_it_cannot_go_on() {
    let bench = bench();
    let mut scanner = bench.region.scanner(Scan::default(), ReadMode::AnyDisk).unwrap();
    scanner.let_go();
    bench.region.close(false).unwrap();
    let error = scanner.next(&mut ScanLimits::NONE.clone(), &mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), halcyon_cell::ErrorKind::Moved);
}
