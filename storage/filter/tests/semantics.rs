//! What each filter means, filter by filter, on tables small enough to check by eye; and properties that
//! hold for any rows.

mod common;

use std::collections::BTreeSet;

use bytes::Bytes;
use common::{Table, binary, comparator, list, message, scan_lines, table};
use halcyon_cell::{Cell, ErrorKind};
use halcyon_env::sim::Dice;
use halcyon_filter::{
    Filter, ReturnCode, RowOutcome, compare_op_keeps, finish_row, parse_comparator, parse_filter,
};
use halcyon_proto::pb;
use pb::CompareType;
use pb::filter_list::Operator::{MustPassAll, MustPassOne};

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Cells from words like `r1/f:q/5=value`.
fn cells(text: &str) -> Table {
    table(text.split_whitespace().map(|word| {
        let (place, value) = word.split_once('=').unwrap_or((word, ""));
        let parts: Vec<&str> = place.split(['/', ':']).collect();
        let timestamp = parts.get(3).map_or(1, |timestamp| timestamp.parse().unwrap());
        Cell::put(parts[0].as_bytes(), parts[1].as_bytes(), parts[2].as_bytes(), timestamp, value.as_bytes())
    }))
}

/// The rows that a scan keeps, each with the numbers of its cells.
fn kept(filter: &pb::Filter, reversed: bool, table: &Table) -> Vec<String> {
    let lines = scan_lines(filter, reversed, table);
    let rows = lines.iter().filter_map(|line| {
        let (decisions, cells) = line.split_once(" kept")?;
        Some(format!("{}{cells}", decisions.split(' ').next().unwrap()))
    });
    rows.collect()
}

fn compare_filter(op: CompareType, comparator: pb::Comparator) -> pb::CompareFilter {
    pb::CompareFilter { compare_op: op as i32, comparator: Some(comparator) }
}

fn row_filter(op: CompareType, row: &str) -> pb::Filter {
    message("RowFilter", &pb::RowFilter { compare_filter: compare_filter(op, binary(row)) })
}

fn value_filter(op: CompareType, value: &str) -> pb::Filter {
    message("ValueFilter", &pb::ValueFilter { compare_filter: compare_filter(op, binary(value)) })
}

fn prefix_filter(prefix: &[u8]) -> pb::Filter {
    message("PrefixFilter", &pb::PrefixFilter { prefix: Some(Bytes::copy_from_slice(prefix)) })
}

fn key_only(len_as_val: bool) -> pb::Filter {
    message("KeyOnlyFilter", &pb::KeyOnlyFilter { len_as_val })
}

fn page(page_size: i64) -> pb::Filter {
    message("PageFilter", &pb::PageFilter { page_size })
}

fn single_column() -> pb::SingleColumnValueFilter {
    pb::SingleColumnValueFilter {
        column_family: Some(bytes("f")),
        column_qualifier: Some(bytes("q")),
        compare_op: CompareType::Equal as i32,
        comparator: binary("yes"),
        filter_if_missing: None,
        latest_version_only: None,
    }
}

#[test]
fn an_operator_holds_for_the_part_against_the_comparator() {
    use CompareType::*;
    use std::cmp::Ordering;
    // The part is above the comparator's value, so the comparator is less than the part.
    let above = [Less, LessOrEqual, Equal, NotEqual, GreaterOrEqual, Greater, NoOp]
        .map(|op| compare_op_keeps(op, Ordering::Less));
    assert_eq!(above, [false, false, false, true, true, true, false]);
    let equal = [Less, LessOrEqual, Equal, NotEqual, GreaterOrEqual, Greater, NoOp]
        .map(|op| compare_op_keeps(op, Ordering::Equal));
    assert_eq!(equal, [false, true, true, false, true, false, false]);
}

#[test]
fn rows_by_key() {
    let table = cells("a/f:q b/f:q c/f:q");
    assert_eq!(kept(&row_filter(CompareType::Less, "b"), false, &table), ["a 0"]);
    assert_eq!(kept(&row_filter(CompareType::GreaterOrEqual, "b"), false, &table), ["b 0", "c 0"]);
    assert_eq!(kept(&row_filter(CompareType::NoOp, "b"), false, &table), [""; 0]);
    let stop = message("InclusiveStopFilter", &pb::InclusiveStopFilter { stop_row_key: Some(bytes("b")) });
    assert_eq!(kept(&stop, false, &table), ["a 0", "b 0"]);
    assert_eq!(kept(&stop, true, &table), ["c 0", "b 0"]);
}

#[test]
fn prefixes_hint_to_their_first_row_and_end_behind_their_last() {
    let table = cells("a/f:q ab1/f:q ab2/f:q ac/f:q b/f:q");
    let filter = prefix_filter(b"ab");
    assert_eq!(
        scan_lines(&filter, false, &table),
        ["a f=h[ab/:/max/255] dropped", "ab1 f=I kept 0", "ab2 f=I kept 0", "ac dropped by key", "end"]
    );
    assert_eq!(kept(&filter, true, &table), ["ab2 0", "ab1 0"]);
    // Wrapped, in either direction.
    let wrapped = message("WhileMatchFilter", &pb::WhileMatchFilter { filter: filter.clone() });
    assert_eq!(kept(&wrapped, true, &cells("ab1/f:q ab2/f:q a/f:q")), ["ab2 0", "ab1 0"]);
    // No prefix at all keeps no row.
    let none = message("PrefixFilter", &pb::PrefixFilter { prefix: None });
    assert_eq!(kept(&none, false, &table), [""; 0]);
}

#[test]
fn pages_count_rows_that_stay() {
    let table = cells("a/f:q=no b/f:q=yes c/f:q=yes d/f:q=yes");
    assert_eq!(kept(&page(2), false, &table), ["a 0", "b 0"]);
    assert_eq!(kept(&page(0), false, &table), [""; 0]);
    // Rows that lost their cells to another filter are not asked about, so they are not counted.
    let both = list(MustPassAll, vec![value_filter(CompareType::Equal, "yes"), page(2)]);
    assert_eq!(kept(&both, false, &table), ["b 0", "c 0"]);
    // Rows that a filter before the page drops as rows are not counted either; behind the page they are.
    let column = message("SingleColumnValueFilter", &single_column());
    let before = list(MustPassAll, vec![column.clone(), page(2)]);
    assert_eq!(kept(&before, false, &table), ["b 0", "c 0"]);
    let behind = list(MustPassAll, vec![page(2), column]);
    assert_eq!(kept(&behind, false, &table), ["b 0"]);
}

#[test]
fn columns_counted_and_paged() {
    let table = cells("a/f:a a/f:b a/g:c a/g:d b/f:a");
    let count = message("ColumnCountGetFilter", &pb::ColumnCountGetFilter { limit: 3 });
    assert_eq!(scan_lines(&count, false, &table)[0], "a f=CC g=Cc kept 0 1 2");
    let paged = |limit, offset| {
        let page = pb::ColumnPaginationFilter { limit, offset: Some(offset), column_offset: None };
        kept(&message("ColumnPaginationFilter", &page), false, &table)
    };
    // One counter goes through all families of a row.
    assert_eq!(paged(2, 1), ["a 1 2"]);
    assert_eq!(paged(1, 0), ["a 0", "b 0"]);
    assert_eq!(paged(0, 0), [""; 0]);
    assert_eq!(paged(i32::MAX, 1), ["a 1 2 3"]);
    let from = pb::ColumnPaginationFilter { limit: 1, offset: None, column_offset: Some(bytes("b")) };
    let from = message("ColumnPaginationFilter", &from);
    assert_eq!(scan_lines(&from, false, &table)[0], "a f=h[a/f:b/max/255]C g=r kept 1");
}

#[test]
fn qualifiers_by_prefix_and_range() {
    let table = cells("r/f:a r/f:ab r/f:ac r/f:b r/f:c");
    let prefix = message("ColumnPrefixFilter", &pb::ColumnPrefixFilter { prefix: bytes("ab") });
    assert_eq!(scan_lines(&prefix, false, &table)[0], "r f=h[r/f:ab/max/255]Ir kept 1");
    let range = |min: Option<&str>, min_inclusive, max: Option<&str>, max_inclusive| {
        let range = pb::ColumnRangeFilter {
            min_column: min.map(bytes),
            min_column_inclusive: Some(min_inclusive),
            max_column: max.map(bytes),
            max_column_inclusive: Some(max_inclusive),
        };
        scan_lines(&message("ColumnRangeFilter", &range), false, &table)[0].clone()
    };
    assert_eq!(range(Some("ab"), false, Some("b"), true), "r f=h[r/f:ab/max/255]cIIr kept 2 3");
    assert_eq!(range(None, false, Some("ab"), false), "r f=Ir kept 0");
    assert_eq!(range(Some("b"), true, None, false), "r f=h[r/f:b/max/255]II kept 3 4");
    let several = |prefixes: &[&str]| {
        let sorted_prefixes = prefixes.iter().map(|prefix| bytes(prefix)).collect();
        let filter = pb::MultipleColumnPrefixFilter { sorted_prefixes };
        scan_lines(&message("MultipleColumnPrefixFilter", &filter), false, &table)[0].clone()
    };
    assert_eq!(several(&["c", "ab"]), "r f=h[r/f:ab/max/255]Ih[r/f:c/max/255]I kept 1 4");
    // The greatest prefix not above a qualifier hides shorter ones.
    assert_eq!(several(&["a", "ab"]), "r f=IIr kept 0 1");
    assert_eq!(several(&[]), "r f=IIIII kept 0 1 2 3 4");
}

#[test]
fn first_keys() {
    let table = cells("r/f:a/2 r/f:a/1 r/f:b r/g:a s/g:b");
    let first = message("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {});
    assert_eq!(scan_lines(&first, false, &table)[..2], ["r f=Ir g=r kept 0", "s g=I kept 0"]);
    let qualifiers = vec![bytes("b"), bytes("x")];
    let of = pb::FirstKeyValueMatchingQualifiersFilter { qualifiers };
    let of = message("FirstKeyValueMatchingQualifiersFilter", &of);
    assert_eq!(scan_lines(&of, false, &table)[0], "r f=III g=r kept 0 1 2");
}

#[test]
fn one_column_decides_about_the_row() {
    let table = cells("a/f:q/2=no a/f:q/1=yes a/f:z b/f:q=yes b/g:x c/f:z");
    let with = |if_missing, latest| pb::SingleColumnValueFilter {
        filter_if_missing: Some(if_missing),
        latest_version_only: Some(latest),
        ..single_column()
    };
    let single = |if_missing, latest| {
        kept(&message("SingleColumnValueFilter", &with(if_missing, latest)), false, &table)
    };
    assert_eq!(single(false, true), ["b 0 1", "c 0"]);
    assert_eq!(single(true, true), ["b 0 1"]);
    assert_eq!(single(true, false), ["a 0 1 2", "b 0 1"]);
    let exclude = pb::SingleColumnValueExcludeFilter { single_column_value_filter: with(true, false) };
    assert_eq!(kept(&message("SingleColumnValueExcludeFilter", &exclude), false, &table), ["a 2", "b 1"]);
    let filter = parse_filter(&message("SingleColumnValueFilter", &with(true, true))).unwrap();
    assert!(filter.is_family_essential(b"f").unwrap() && !filter.is_family_essential(b"g").unwrap());
    let filter = parse_filter(&message("SingleColumnValueFilter", &with(false, true))).unwrap();
    assert!(filter.is_family_essential(b"g").unwrap());
    let no_op = pb::SingleColumnValueFilter { compare_op: CompareType::NoOp as i32, ..single_column() };
    assert_eq!(scan_lines(&message("SingleColumnValueFilter", &no_op), false, &table), ["a error"]);
    // Of two mistakes HBase names that of the value.
    let long = pb::LongComparator {
        comparable: pb::ByteArrayComparable { value: Some(Bytes::copy_from_slice(&7i64.to_be_bytes())) },
    };
    let complaint = |against: pb::Comparator| {
        let filter = pb::SingleColumnValueFilter { comparator: against, ..no_op.clone() };
        let mut filter = parse_filter(&message("SingleColumnValueFilter", &filter)).unwrap();
        filter.filter_cell(table[&b"a"[..]][&b"f"[..]][0].get()).err().unwrap().message().to_string()
    };
    assert_eq!(
        complaint(comparator("LongComparator", &long)),
        "LongComparator needs a value of 8 bytes, not of 2"
    );
    assert!(complaint(binary("no")).contains("NO_OP"));
}

#[test]
fn one_column_alone() {
    let table = cells("a/e:x a/f:q/2=no a/f:q/1=yes a/f:z");
    let filter = pb::ColumnValueFilter {
        family: bytes("f"),
        qualifier: bytes("q"),
        compare_op: CompareType::Equal as i32,
        comparator: binary("yes"),
    };
    let filter = message("ColumnValueFilter", &filter);
    assert_eq!(scan_lines(&filter, false, &table)[0], "a e=c f=sIr kept 2");
    assert!(!parse_filter(&filter).unwrap().is_family_essential(b"e").unwrap());
}

#[test]
fn cells_that_depend_on_the_timestamps_of_a_column() {
    let table = cells("a/f:q/5=yes a/f:q/4=no a/f:x/5 a/f:x/4 a/f:x/3 b/f:x/5");
    let filter = |drop, comparator: Option<pb::Comparator>| {
        let op = if comparator.is_some() { CompareType::Equal } else { CompareType::NoOp };
        let filter = pb::DependentColumnFilter {
            compare_filter: pb::CompareFilter { compare_op: op as i32, comparator },
            column_family: Some(bytes("f")),
            column_qualifier: Some(bytes("q")),
            drop_dependent_column: Some(drop),
        };
        kept(&message("DependentColumnFilter", &filter), false, &table)
    };
    assert_eq!(filter(false, None), ["a 0 1 2 3", "b"]);
    assert_eq!(filter(true, None), ["a 2 3", "b"]);
    assert_eq!(filter(false, Some(binary("yes"))), ["a 0 2", "b"]);
}

#[test]
fn timestamps() {
    let table = cells("a/f:q/9 a/f:q/7 a/f:q/5 a/f:q/3 a/f:r/5 a/f:r/1");
    let filter = |can_hint| {
        let filter = pb::TimestampsFilter { timestamps: vec![5, 9], can_hint: Some(can_hint) };
        scan_lines(&message("TimestampsFilter", &filter), false, &table)[0].clone()
    };
    assert_eq!(filter(false), "a f=IsIcIc kept 0 2 4");
    assert_eq!(filter(true), "a f=Ih[a/f:q/5/255]IcIc kept 0 2 4");
    let below = pb::TimestampsFilter { timestamps: vec![-1], can_hint: None };
    assert_eq!(parse_filter(&message("TimestampsFilter", &below)).err().unwrap().kind(), ErrorKind::Invalid);
}

#[test]
fn keys_only() {
    let table = cells("a/f:q=value");
    assert_eq!(kept(&key_only(false), false, &table), ["a 0="]);
    assert_eq!(kept(&key_only(true), false, &table), ["a 0=5"]);
    // In a list of OR a filter changes only what it included itself.
    let page_of_none = message(
        "ColumnPaginationFilter",
        &pb::ColumnPaginationFilter { limit: 0, offset: Some(0), column_offset: None },
    );
    let transformed = list(MustPassAll, vec![key_only(true), page_of_none]);
    let or = list(MustPassOne, vec![transformed, value_filter(CompareType::Equal, "value")]);
    assert_eq!(kept(&or, false, &table), ["a 0"]);
    // Tags go with the value.
    let cell = Cell::build(b"r", b"f", b"q", 1, halcyon_cell::CellType::Put, b"v", &[0, 2, 9, 7], 4);
    let bare = parse_filter(&key_only(false)).unwrap().transform_cell(cell).unwrap();
    assert_eq!((bare.value(), bare.tags(), bare.seq()), (&b""[..], &b""[..], 4));
    assert!(Cell::parse(bare.bytes().clone(), 0).is_ok());
}

fn single_x() -> pb::Filter {
    let column_qualifier = Some(bytes("x"));
    let comparator = binary("1");
    let filter = pb::SingleColumnValueFilter { column_qualifier, comparator, ..single_column() };
    message("SingleColumnValueFilter", &filter)
}

#[test]
fn filters_around_filters() {
    let table = cells("a/f:x=1 a/f:y=2 b/f:x=1 b/f:y=1 c/f:x=1");
    let ones = value_filter(CompareType::Equal, "1");
    let skip = message("SkipFilter", &pb::SkipFilter { filter: ones.clone() });
    assert_eq!(kept(&skip, false, &table), ["b 0 1", "c 0"]);
    let while_match = message("WhileMatchFilter", &pb::WhileMatchFilter { filter: ones.clone() });
    assert_eq!(scan_lines(&while_match, false, &table), ["a f=Is kept 0", "end"]);
    let wrapper = message("FilterWrapper", &pb::FilterWrapper { filter: single_x() });
    assert_eq!(kept(&wrapper, false, &table), ["a 0 1", "b 0 1", "c 0"]);
}

#[test]
fn empty_lists_keep_everything() {
    let table = cells("a/f:x b/f:x");
    for operator in [MustPassAll, MustPassOne] {
        let empty = list(operator, vec![]);
        assert_eq!(kept(&empty, false, &table), ["a 0", "b 0"]);
        assert!(parse_filter(&empty).unwrap().is_family_essential(b"any").unwrap());
    }
}

/// A list of OR must not ask a filter again before the scan is where the filter wanted to be, or counters
/// would count the same column twice (HBASE-17678).
#[test]
fn lists_of_or_leave_filters_alone_until_their_place() {
    let table = cells("r/f:a/3 r/f:a/2 r/f:a/1 r/f:b/3 r/f:b/2 r/f:c/3");
    let paged = pb::ColumnPaginationFilter { limit: 1, offset: Some(1), column_offset: None };
    let filters = vec![
        message("ColumnPaginationFilter", &paged),
        message("TimestampsFilter", &pb::TimestampsFilter { timestamps: vec![1], can_hint: None }),
    ];
    assert_eq!(scan_lines(&list(MustPassOne, filters), false, &table)[0], "r f=ssIIss kept 2 3");
}

#[test]
fn random_rows_come_by_chance() {
    let table = table((0..4000u32).map(|row| Cell::put(&row.to_be_bytes(), b"f", b"q", 1, b"")));
    let of = |chance| {
        let filter = message("RandomRowFilter", &pb::RandomRowFilter { chance });
        kept(&filter, false, &table).len()
    };
    assert_eq!((of(-0.5), of(1.5)), (0, 4000));
    assert!((800..1200).contains(&of(0.25)));
}

#[test]
fn rows_without_cells_are_not_decided_about() {
    let mut filter = parse_filter(&page(1)).unwrap();
    assert_eq!(finish_row(&mut *filter, &mut Vec::new()).unwrap(), RowOutcome::NotCalled);
    let mut row = vec![Cell::put(b"r", b"f", b"q", 1, b"")];
    assert_eq!(finish_row(&mut *filter, &mut row).unwrap(), RowOutcome::Include);
    assert_eq!(finish_row(&mut *filter, &mut row).unwrap(), RowOutcome::Exclude);
    assert!(row.is_empty());
}

#[test]
fn nothing_stays() {
    let table = cells("r/f:a/2 r/f:a/1 r/g:a s/g:b");
    let all = message("FilterAllFilter", &pb::FilterAllFilter {});
    // Each cell is looked at, older versions too, and none is kept.
    assert_eq!(scan_lines(&all, false, &table)[..2], ["r f=ss g=s dropped", "s g=s dropped"]);
    assert!(kept(&all, true, &table).is_empty());
}

#[test]
fn what_is_wrong_is_named() {
    let error = |filter: &pb::Filter| {
        let error = parse_filter(filter).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        error.message().to_string()
    };
    let mut unknown = page(1);
    unknown.name = "org.example.MyFilter".to_string();
    assert!(error(&unknown).contains("org.example.MyFilter"));
    // A required field is missing: the empty message is not a PageFilter.
    assert!(error(&message("PageFilter", &pb::FirstKeyOnlyFilter {})).contains("PageFilter"));
    assert!(error(&page(-1)).contains("PageFilter"));
    assert!(error(&prefix_filter(&[7; 40_000])).contains("PrefixFilter"));
    let nothing = pb::RowFilter {
        compare_filter: pb::CompareFilter { compare_op: CompareType::Less as i32, comparator: None },
    };
    assert!(error(&message("RowFilter", &nothing)).contains("comparator"));
    let inner = list(MustPassAll, vec![page(1), unknown]);
    assert!(error(&inner).contains("org.example.MyFilter"));
    assert!(error(&message("FuzzyRowFilter", &pb::FuzzyRowFilter::default())).contains("FuzzyRowFilter"));
    assert!(error(&fuzzy(&[("ab", &[0])])).contains("differ in length"));
    let long = comparator(
        "LongComparator",
        &pb::LongComparator { comparable: pb::ByteArrayComparable { value: Some(bytes("short")) } },
    );
    assert!(parse_comparator(&long).err().unwrap().message().contains("LongComparator"));
}

// ---- rows with hints, against what they mean ----

fn fuzzy(keys: &[(&str, &[u8])]) -> pb::Filter {
    let pair = |(key, mask): &(&str, &[u8])| pb::BytesBytesPair {
        first: bytes(key),
        second: Bytes::copy_from_slice(mask),
    };
    let fuzzy_keys_data = keys.iter().map(pair).collect();
    message("FuzzyRowFilter", &pb::FuzzyRowFilter { fuzzy_keys_data, is_mask_v2: Some(true) })
}

#[test]
fn fuzzy_rows_hint_to_the_next_row_that_may_match() {
    let table = cells("aa1/f:q ab1/f:q ab2/f:q ba1/f:q bb1/f:q bb2/f:q");
    let filter = fuzzy(&[("?b1", &[1, 0, 0])]);
    assert_eq!(
        scan_lines(&filter, false, &table),
        [
            "aa1 f=h[ab1/:/max/255] dropped",
            "ab1 f=I kept 0",
            "ab2 f=h[bb1/:/max/255] dropped",
            "bb1 f=I kept 0",
            "bb2 f=h[cb1/:/max/255] dropped",
            "end of rows"
        ]
    );
    assert_eq!(kept(&filter, true, &table), ["bb1 0", "ab1 0"]);
    let fixed = fuzzy(&[("ab", &[0, 0])]);
    assert_eq!(scan_lines(&fixed, false, &table)[3..], ["ba1 f=h[-] dropped", "end"]);
}

/// Rows that repeat themselves from their seed.
struct Random(Dice);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    /// Bytes of a small alphabet with both ends of the range in it.
    fn row(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| [0, 1, 0x41, 0x42, 0x7f, 0x80, 0xfe, 0xff][self.below(8)]).collect()
    }
}

type Meaning = Box<dyn Fn(&[u8]) -> bool>;

/// A filter of rows, and which rows it means.
fn random_row_filter(random: &mut Random, depth: usize) -> (pb::Filter, Meaning) {
    match random.below(if depth > 0 { 6 } else { 4 }) {
        0 => {
            let len = 1 + random.below(2);
            let prefix = random.row(len);
            (prefix_filter(&prefix), Box::new(move |row| row.starts_with(&prefix)))
        }
        1 => {
            let mut ranges = Vec::new();
            for _ in 0..1 + random.below(4) {
                let mut rows = [random.row(2), random.row(2)];
                rows.sort();
                let [start, stop] = rows;
                let same = start == stop;
                let inclusive = [same || random.below(2) == 0, same || random.below(2) == 0];
                let stop = if random.below(8) == 0 { Vec::new() } else { stop };
                ranges.push((start, inclusive[0], stop, inclusive[1]));
            }
            let row_range_list = ranges.iter().map(|(start, from, stop, to)| pb::RowRange {
                start_row: Some(start.clone().into()),
                start_row_inclusive: Some(*from),
                stop_row: Some(stop.clone().into()),
                stop_row_inclusive: Some(*to),
            });
            let filter = pb::MultiRowRangeFilter { row_range_list: row_range_list.collect() };
            let means = move |row: &[u8]| {
                ranges.iter().any(|(start, from, stop, to)| {
                    let above = if *from { row >= &start[..] } else { row > &start[..] };
                    above && (stop.is_empty() || if *to { row <= &stop[..] } else { row < &stop[..] })
                })
            };
            (message("MultiRowRangeFilter", &filter), Box::new(means))
        }
        2 => {
            let mut keys = Vec::new();
            for _ in 0..1 + random.below(3) {
                let len = 1 + random.below(3);
                let mask: Vec<u8> = (0..len).map(|_| random.below(2) as u8).collect();
                keys.push((random.row(len), mask));
            }
            let pair = |(key, mask): &(Vec<u8>, Vec<u8>)| pb::BytesBytesPair {
                first: key.clone().into(),
                second: mask.clone().into(),
            };
            let fuzzy_keys_data = keys.iter().map(pair).collect();
            let filter = pb::FuzzyRowFilter { fuzzy_keys_data, is_mask_v2: Some(true) };
            let means = move |row: &[u8]| {
                keys.iter().any(|(key, mask)| {
                    row.iter().zip(key.iter().zip(mask)).all(|(byte, (key, &mask))| mask == 1 || byte == key)
                })
            };
            (message("FuzzyRowFilter", &filter), Box::new(means))
        }
        3 => {
            let row = random.row(2);
            let filter = pb::RowFilter {
                compare_filter: compare_filter(
                    CompareType::NotEqual,
                    comparator(
                        "BinaryPrefixComparator",
                        &pb::BinaryPrefixComparator {
                            comparable: pb::ByteArrayComparable { value: Some(row.clone().into()) },
                        },
                    ),
                ),
            };
            (message("RowFilter", &filter), Box::new(move |other| !other.starts_with(&row)))
        }
        which => {
            let filters: Vec<_> =
                (0..2 + random.below(2)).map(|_| random_row_filter(random, depth - 1)).collect();
            let (filters, meanings): (Vec<_>, Vec<_>) = filters.into_iter().unzip();
            if which == 4 {
                (list(MustPassAll, filters), Box::new(move |row| meanings.iter().all(|means| means(row))))
            } else {
                (list(MustPassOne, filters), Box::new(move |row| meanings.iter().any(|means| means(row))))
            }
        }
    }
}

/// Whatever hints they give, filters of rows and lists of them keep the rows that they mean, in both
/// directions. Rows are as long as the longest fuzzy key: a hint may pass shorter ones, in HBase too.
#[test]
fn hints_lose_no_row() {
    let mut random = Random(Dice::new(42));
    for round in 0..4_000 {
        let rows: BTreeSet<Vec<u8>> = (0..1 + random.below(40))
            .map(|_| {
                let len = 3 + random.below(2);
                random.row(len)
            })
            .collect();
        let table = table(rows.iter().map(|row| Cell::put(row, b"f", b"q", 1, b"")));
        let (filter, means) = random_row_filter(&mut random, round % 3);
        for reversed in [false, true] {
            let mut expected: Vec<String> = table
                .keys()
                .filter(|row| means(row))
                .map(|row| format!("{} 0", row.escape_ascii()))
                .collect();
            if reversed {
                expected.reverse();
            }
            assert_eq!(kept(&filter, reversed, &table), expected, "round {round}, reversed {reversed}");
        }
    }
}

#[test]
fn codes_tell_whether_they_include() {
    assert!(ReturnCode::IncludeAndSeekNextRow.is_include() && !ReturnCode::SeekNextUsingHint.is_include());
    let filter = parse_filter(&page(1)).unwrap();
    assert!(filter.has_filter_row() && !filter.transforms() && !filter.is_reversed());
    let _: &dyn Filter = &*filter;
}
