//! Reads that look at too much for the thread that they run on, or that nobody waits for any more.

use std::sync::Arc;

use halcyon_cell::{Cell, CellType, Error, ErrorKind, LATEST_TIMESTAMP};
use halcyon_env::Patience;
use halcyon_filter::parse_filter;
use halcyon_proto::pb;
use halcyon_region::*;
use halcyon_schema::FamilyDescriptor;
use prost::Message;

use crate::common::*;

fn bench() -> Bench {
    Bench::new(&[FamilyDescriptor::new("f").unwrap()])
}

fn put_columns(bench: &Bench, row: &str, count: usize) {
    let cell = |at| {
        let qualifier = format!("{at:06}");
        Cell::build(row.as_bytes(), b"f", qualifier.as_bytes(), 5, CellType::Put, b"value", b"", 0)
    };
    bench.mutate(mutation(MutationKind::Put, row.as_bytes(), (0..count).map(cell).collect())).unwrap();
}

fn get(bench: &Bench, row: &'static str) -> Result<usize, Error> {
    bench.region.get(Scan::of_row(row.into()), ReadMode::CacheOnly).map(|cells| cells.len())
}

fn kind<T>(result: Result<T, Error>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// An event loop was in such a read for as long as it took, with all of its connections.
#[test]
fn a_wide_row_is_not_for_a_thread_with_a_budget() {
    let bench = bench();
    put_columns(&bench, "narrow", 100);
    put_columns(&bench, "wide", 5_000);
    let inline = |row| Patience::of_looks(2_000, || get(&bench, row));
    assert_eq!(inline("narrow").unwrap(), 100);
    assert_eq!(kind(inline("wide")), Some(ErrorKind::NeedsDisk));
    assert_eq!(get(&bench, "wide").unwrap(), 5_000);
}

/// The front of a queue: each row was put and deleted.
#[test]
fn rows_that_give_nothing_count() {
    let bench = bench();
    for at in 0..1_000 {
        let row = format!("{at:04}");
        put_columns(&bench, &row, 1);
        let marker = parse_cell(&row, "f:@5", CellType::DeleteFamily, false);
        bench.mutate(mutation(MutationKind::Delete, row.as_bytes(), vec![marker])).unwrap();
    }
    put_columns(&bench, "last", 1);
    let front = || {
        let scan = Scan { batch: None, ..Scan::default() };
        let mut scanner = bench.region.scanner(scan, ReadMode::CacheOnly)?;
        let mut cells = Vec::new();
        scanner.next(&mut ScanLimits::NONE.clone(), &mut cells).map(|_| cells.len())
    };
    assert_eq!(kind(Patience::of_looks(2_000, front)), Some(ErrorKind::NeedsDisk));
    assert_eq!(front().unwrap(), 1);
}

#[test]
fn a_costly_filter_is_not_for_a_thread_with_a_budget() {
    let bench = bench();
    put_columns(&bench, "r", 20);
    let get = |pattern: &str| get_matching(&bench, "r", pattern);
    let inline = |pattern| Patience::of_looks(2_000, || get(pattern));
    assert_eq!(inline("^v").unwrap(), 20, "this one takes no steps back");
    assert_eq!(kind(inline("(?=(v|va)+)")), Some(ErrorKind::NeedsDisk));
    assert_eq!(get("(?=(v|va)+)").unwrap(), 20);
}

/// How many cells of the row have values that this pattern is in.
fn get_matching(bench: &Bench, row: &'static str, pattern: &str) -> Result<usize, Error> {
    let comparator = pb::RegexStringComparator {
        pattern: pattern.to_string(),
        pattern_flags: 32,
        charset: "UTF-8".to_string(),
        engine: None,
    };
    let comparator = pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.RegexStringComparator".to_string(),
        serialized_comparator: Some(comparator.encode_to_vec().into()),
    };
    let compare_filter =
        pb::CompareFilter { compare_op: pb::CompareType::Equal as i32, comparator: Some(comparator) };
    let filter = pb::Filter {
        name: "org.apache.hadoop.hbase.filter.ValueFilter".to_string(),
        serialized_filter: Some(pb::ValueFilter { compare_filter }.encode_to_vec().into()),
    };
    let scan = Scan { filter: Some(parse_filter(&filter).unwrap()), ..Scan::of_row(row.into()) };
    bench.region.get(scan, ReadMode::CacheOnly).map(|cells| cells.len())
}

/// A scan whose client had gone went on to the end of its region.
#[test]
fn what_nobody_waits_for_ends() {
    let bench = bench();
    put_columns(&bench, "wide", 70_000);
    let whole = || bench.region.get(Scan::of_row("wide".into()), ReadMode::AnyDisk).map(|cells| cells.len());
    let read = |is_wanted| Patience::while_wanted(Arc::new(move || is_wanted), whole);
    assert_eq!(read(true).unwrap(), 70_000);
    assert_eq!(kind(read(false)), Some(ErrorKind::Stopping));
}

/// Only every 128th cell of a row was told of, so rows that were shorter cost nothing, however many of them were looked at.
#[test]
fn short_rows_count() {
    let bench = bench();
    for at in 0..40 {
        let row = format!("{at:04}");
        put_columns(&bench, &row, 100);
    }
    let gets = |count: usize| {
        let row = |at: usize| Scan::of_row(format!("{at:04}").into());
        (0..count).try_for_each(|at| bench.region.get(row(at), ReadMode::CacheOnly).map(|_| ()))
    };
    Patience::of_looks(2_000, || gets(15)).unwrap();
    assert_eq!(kind(Patience::of_looks(2_000, || gets(40))), Some(ErrorKind::NeedsDisk));
    let all = || {
        let mut scanner = bench.region.scanner(Scan::default(), ReadMode::CacheOnly)?;
        let (mut cells, mut state) = (Vec::new(), NextState::RowDone);
        while state != NextState::Exhausted {
            state = scanner.next(&mut ScanLimits::NONE.clone(), &mut cells)?;
        }
        Ok(cells.len())
    };
    assert_eq!(kind(Patience::of_looks(2_000, all)), Some(ErrorKind::NeedsDisk), "rows that are returned");
    // Each of these rows is dropped, by a marker for each of its columns.
    for at in 0..40 {
        let row = format!("{at:04}");
        let marker = |at| parse_cell(&row, &format!("f:{at:06}@5"), CellType::DeleteColumn, false);
        let markers = (0..100).map(marker).collect();
        bench.mutate(mutation(MutationKind::Delete, row.as_bytes(), markers)).unwrap();
    }
    assert_eq!(kind(Patience::of_looks(2_000, all)), Some(ErrorKind::NeedsDisk), "rows that are deleted");
    assert_eq!(all().unwrap(), 0);
}

/// An event loop copied a value of any length, once for each change of it.
#[test]
fn a_long_value_is_not_for_a_thread_with_a_budget() {
    let bench = bench();
    let value = vec![7; 6 << 20];
    let cell = |row: &str, value: &[u8]| {
        Cell::build(row.as_bytes(), b"f", b"q", LATEST_TIMESTAMP, CellType::Put, value, b"", 0)
    };
    for (row, value) in [("long", &value[..]), ("short", b"v")] {
        bench.mutate(mutation(MutationKind::Put, row.as_bytes(), vec![cell(row, value)])).unwrap();
    }
    let written = bench.wal.stats().entries;
    let append = |row: &'static str, mode: ReadMode| {
        let suffix = mutation(MutationKind::Append, row.as_bytes(), vec![cell(row, b"x")]);
        let outcome = bench.region.mutate(vec![suffix], false, Nonce::default(), mode)?;
        bench.wal.drive();
        outcome.ticket.wait()
    };
    let inline = |row| Patience::of_looks(4_096, || append(row, ReadMode::CacheOnly));
    assert_eq!(kind(inline("long")), Some(ErrorKind::NeedsDisk));
    // Also if it is only looked at.
    let inline_get = || Patience::of_looks(4_096, || get_matching(&bench, "long", "^v"));
    assert_eq!(kind(inline_get()), Some(ErrorKind::NeedsDisk));
    assert_eq!(get_matching(&bench, "long", "^v").unwrap(), 0);
    assert_eq!(bench.wal.stats().entries, written, "nothing was written");
    inline("short").unwrap();
    append("long", ReadMode::CacheOnly).unwrap();
    Patience::while_wanted(Arc::new(|| true), || append("long", ReadMode::AnyDisk)).unwrap();
    let row = || Scan::of_row("long".into());
    assert_eq!(bench.region.get(row(), ReadMode::AnyDisk).unwrap()[0].value().len(), value.len() + 2);
}
