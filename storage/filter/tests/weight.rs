//! What filters keep and what they cost, as a server counts it.

mod common;

use bytes::Bytes;
use common::{comparator, list, message};
use halcyon_cell::{Cell, ErrorKind, ROW_LEN_MAX};
use halcyon_env::Patience;
use halcyon_filter::{ReturnCode, check_filter, parse_comparator, parse_filter};
use halcyon_proto::pb;
use pb::filter_list::Operator::{MustPassAll, MustPassOne};

fn regex(pattern: &str) -> pb::Comparator {
    let message = pb::RegexStringComparator {
        pattern: pattern.to_string(),
        pattern_flags: 32,
        charset: "UTF-8".to_string(),
        engine: None,
    };
    comparator("RegexStringComparator", &message)
}

fn row_filter(pattern: &str) -> pb::Filter {
    let compare_op = pb::CompareType::Equal as i32;
    let compare_filter = pb::CompareFilter { compare_op, comparator: Some(regex(pattern)) };
    message("RowFilter", &pb::RowFilter { compare_filter })
}

fn held_bytes(filter: &pb::Filter) -> usize {
    parse_filter(filter).unwrap().held_bytes()
}

/// Each of these is some ten or hundred bytes in a request.
#[test]
fn expressions_are_counted_with_their_automatons() {
    let small = held_bytes(&row_filter("^user-[0-9]+$"));
    assert!((20_000..80_000).contains(&small), "{small}");
    let large = held_bytes(&row_filter(".{9000}"));
    assert!((3 << 20..16 << 20).contains(&large), "{large}");
    let stepping = held_bytes(&row_filter("^(?!.*secret).*[0-9]$"));
    assert!((60_000..400_000).contains(&stepping), "{stepping}");
    // One that stands in many places of a filter is there once, and counted once.
    let many = list(MustPassAll, vec![row_filter(".{300}"); 400]);
    let many = list(MustPassOne, vec![many, row_filter(".{300}")]);
    let (many, one) = (held_bytes(&many), held_bytes(&row_filter(".{300}")));
    assert!(many >= one && many - one < 400 * 400, "{many} and {one}");
}

#[test]
fn what_else_filters_keep_is_counted() {
    let empty = held_bytes(&list(MustPassAll, Vec::new()));
    let lists = held_bytes(&list(MustPassOne, vec![list(MustPassAll, Vec::new()); 1_000]));
    assert!(lists > 1_000 * empty, "{lists}");
    let ranges = (0..1_000u32).map(|at| {
        let row = Some(Bytes::copy_from_slice(&at.to_be_bytes()));
        let (start_row_inclusive, stop_row_inclusive) = (Some(true), Some(true));
        pb::RowRange { start_row: row.clone(), start_row_inclusive, stop_row: row, stop_row_inclusive }
    });
    let ranges = pb::MultiRowRangeFilter { row_range_list: ranges.collect() };
    assert!(held_bytes(&message("MultiRowRangeFilter", &ranges)) > 64 * 1_000);
    let timestamps = pb::TimestampsFilter { timestamps: (0..1_000).collect(), can_hint: None };
    assert!(held_bytes(&message("TimestampsFilter", &timestamps)) > 8 * 1_000);
}

/// A row much longer than the keys was kept for each of them, to say where the scan goes next.
#[test]
fn next_rows_of_fuzzy_keys_are_as_long_as_the_keys() {
    let pair = |at: u8| pb::BytesBytesPair { first: vec![at, 0].into(), second: vec![0, 1].into() };
    let keys = pb::FuzzyRowFilter { fuzzy_keys_data: (2..100).map(pair).collect(), is_mask_v2: None };
    let mut filter = parse_filter(&message("FuzzyRowFilter", &keys)).unwrap();
    let cell = Cell::put(&vec![1; ROW_LEN_MAX], b"f", b"q", 1, b"");
    assert_eq!(filter.filter_cell(cell.get()).unwrap(), ReturnCode::SeekNextUsingHint);
    assert_eq!(filter.next_cell_hint(cell.get()).unwrap().unwrap().get().row(), [2]);
    assert!(filter.held_bytes() < 98 * 300, "{}", filter.held_bytes());
    let long = |at: u8| pb::BytesBytesPair { first: vec![at; 6_400].into(), second: vec![1; 6_400].into() };
    let keys = pb::FuzzyRowFilter { fuzzy_keys_data: (0..50).map(long).collect(), is_mask_v2: None };
    assert_eq!(parse_filter(&message("FuzzyRowFilter", &keys)).unwrap().cost(), 50 * 101, "by their bytes");
}

/// A list asks each of its filters whether all is done, and each list around it does so again.
#[test]
fn lists_inside_each_other_cost_what_they_ask() {
    let leaf = || message("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {});
    let nested = |depth: usize, leaves: usize| {
        let bottom = list(MustPassAll, vec![leaf(); leaves]);
        let around = |filter, _| list(MustPassOne, vec![filter]);
        parse_filter(&(1..depth).fold(bottom, around)).unwrap().cost()
    };
    assert_eq!(nested(1, 1_000), 1_001);
    assert!((90_000..120_000).contains(&nested(99, 1_000)), "{}", nested(99, 1_000));
}

#[test]
fn building_expressions_costs_looks() {
    let inline = |filter: &pb::Filter| Patience::of_looks(4_096, || parse_filter(filter)).err();
    assert!(inline(&row_filter("^user-[0-9]+$")).is_none());
    for (pattern, count) in [(".{9000}", 1), ("(?i)\\p{L}{20}", 1), ("[a-z]+", 100), ("(?=a)b", 100)] {
        let filters = (0..count).map(|at| row_filter(&format!("{pattern}|{at}"))).collect();
        let error = inline(&list(MustPassOne, filters)).map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::NeedsDisk), "{count} of {pattern}");
    }
    let unwanted =
        Patience::while_wanted(std::sync::Arc::new(|| false), || parse_filter(&row_filter(".{9000}")));
    assert_eq!(unwanted.err().map(|error| error.kind()), Some(ErrorKind::Stopping));
    // Whoever only asks whether a filter is known here builds nothing.
    assert!(check_filter(&row_filter("a{2000000000}")).is_ok() && check_filter(&row_filter("(")).is_err());
    let unknown =
        list(MustPassAll, vec![pb::Filter { name: "com.example.Mine".into(), serialized_filter: None }]);
    assert!(check_filter(&unknown).is_err());
}

/// Two numbers of four thousand bytes take a thousand times as long as two of sixteen.
#[test]
fn long_decimals_cost_looks() {
    let value = |len: usize| [&[0, 0, 0, 3][..], &vec![0x55; len]].concat();
    let decimal = |len: usize| {
        let comparable = pb::ByteArrayComparable { value: Some(value(len).into()) };
        let message = pb::BigDecimalComparator { comparable };
        parse_comparator(&comparator("BigDecimalComparator", &message)).unwrap()
    };
    let (long, short) = (decimal(4_000), decimal(12));
    let compare = |count: usize, comparator: &dyn halcyon_filter::Comparator, len: usize| {
        let value = value(len);
        Patience::of_looks(4_096, || (0..count).try_for_each(|_| comparator.compare(&value).map(drop)))
    };
    assert_eq!(compare(1, &*long, 4_000).unwrap_err().kind(), ErrorKind::NeedsDisk);
    compare(1_000, &*short, 12).unwrap();
}

/// For each group that a pattern could refer back to, a search keeps places in each state.
#[test]
fn groups_are_counted_if_they_are_referred_to() {
    let groups = "(a)".repeat(1_000);
    assert!(held_bytes(&row_filter(&format!("{groups}.{{200}}"))) < 2 << 20);
    let last = held_bytes(&row_filter(&format!("{groups}.{{20}}\\1000")));
    assert!(last < 4 << 20, "{last}");
    let all: String = (1..=500).map(|at| format!("\\{at}")).collect();
    let error = parse_filter(&row_filter(&format!("{groups}.{{200}}{all}"))).err().expect("too many");
    assert!(error.message().contains("of its filter"), "{error}");
    let compare =
        |pattern: &str, text: &[u8]| parse_comparator(&regex(pattern)).unwrap().compare(text).unwrap();
    assert!(
        compare("(x)(y)?(?<n>[ab])z\\3", b"xaza").is_eq()
            && compare("(x)(y)?(?<n>[ab])z\\3", b"xazb").is_ne()
    );
    assert!(compare("(x)(y)(?<n>[ab])z\\k<n>\\1", b"xybzbx").is_eq());
    assert!(compare("(x)(y)(?<n>[ab])z\\k<n>\\1", b"xybzbb").is_ne());
    assert!(compare("(a)|b\\2", b"b2").is_ne() && compare("a\\1", b"a1").is_ne());
}
