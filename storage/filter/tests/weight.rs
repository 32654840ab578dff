//! What filters keep and what they cost, as a server counts it.

mod common;

use bytes::Bytes;
use common::{binary, comparator, list, message};
use halcyon_cell::{Cell, ErrorKind, ROW_LEN_MAX};
use halcyon_env::Patience;
use halcyon_filter::{ReturnCode, check_filter, parse_comparator, parse_filter, parse_filters};
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

/// The most memory that this process ever had resident, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Each filter of a list of OR had a copy of the key that it was asked about, and one with its hint: some gigabytes for one cell.
#[test]
fn filters_of_a_list_have_no_copies_of_a_long_key() {
    let compare_op = pb::CompareType::Equal as i32;
    let compare_filter = pb::CompareFilter { compare_op, comparator: Some(binary("x")) };
    let prefix = pb::ColumnPrefixFilter { prefix: Bytes::from_static(b"z") };
    let timestamps = pb::TimestampsFilter { timestamps: vec![1], can_hint: Some(true) };
    let kinds = [
        (message("FamilyFilter", &pb::FamilyFilter { compare_filter }), [ReturnCode::NextRow; 3]),
        (message("ColumnPrefixFilter", &prefix), [ReturnCode::SeekNextUsingHint; 3]),
        (message("TimestampsFilter", &timestamps), [ReturnCode::SeekNextUsingHint; 3]),
        (
            message("ColumnCountGetFilter", &pb::ColumnCountGetFilter { limit: 1 }),
            [ReturnCode::IncludeAndNextCol, ReturnCode::NextCol, ReturnCode::NextCol],
        ),
    ];
    let cell = |letter: u8, timestamp| Cell::put(b"r", b"f", &vec![letter; 1 << 20], timestamp, b"");
    for (filter, expected) in kinds {
        for reversed in [false, true] {
            let mut many = parse_filter(&list(MustPassOne, vec![filter.clone(); 1_000])).unwrap();
            many.set_reversed(reversed);
            let cells = [cell(b'a', 5), cell(b'a', 4), cell(b'b', 5)];
            let codes = cells.map(|cell| {
                let code = many.filter_cell(cell.get()).unwrap();
                if code == ReturnCode::SeekNextUsingHint {
                    many.next_cell_hint(cell.get()).unwrap().expect("each filter gives one");
                }
                code
            });
            assert_eq!(codes, expected, "{}, reversed: {reversed}", filter.name);
        }
    }
    assert!(peak_kib() < 400 << 10, "{} KiB were resident", peak_kib());
}

/// A key that is made again for each of many filters is told of.
#[test]
fn hints_with_long_keys_cost_looks() {
    let prefix = pb::ColumnPrefixFilter { prefix: vec![b'z'; 1 << 20].into() };
    for operator in [MustPassAll, MustPassOne] {
        let filters = vec![message("ColumnPrefixFilter", &prefix); 2];
        let mut filter = parse_filter(&list(operator, filters)).unwrap();
        let mut hint = |qualifier: &[u8]| {
            let cell = Cell::put(b"r", b"f", qualifier, 1, b"");
            assert_eq!(filter.filter_cell(cell.get()).unwrap(), ReturnCode::SeekNextUsingHint);
            Patience::of_looks(1_000, || filter.next_cell_hint(cell.get()))
        };
        assert_eq!(hint(b"q").unwrap_err().kind(), ErrorKind::NeedsDisk);
    }
}

/// Each of them keeps the timestamps of its column in the row: together some gigabytes.
#[test]
fn timestamps_of_dependent_columns_have_a_limit_together() {
    let filter = pb::DependentColumnFilter {
        compare_filter: pb::CompareFilter { compare_op: pb::CompareType::NoOp as i32, comparator: None },
        column_family: Some(Bytes::from_static(b"f")),
        column_qualifier: Some(Bytes::from_static(b"q")),
        drop_dependent_column: Some(false),
    };
    let filter = message("DependentColumnFilter", &filter);
    let ask = |filter: &mut dyn halcyon_filter::Filter, count: i64| {
        (0..count).rev().try_for_each(|timestamp| {
            filter.filter_cell(Cell::put(b"r", b"f", b"q", timestamp, b"").get()).map(drop)
        })
    };
    let mut many = parse_filter(&list(MustPassAll, vec![filter.clone(); 20_000])).unwrap();
    ask(&mut *many, 100).unwrap();
    many.reset().unwrap();
    assert_eq!(ask(&mut *many, 200).unwrap_err().kind(), ErrorKind::Invalid);
    many.reset().unwrap();
    ask(&mut *many, 100).unwrap();
    assert!(many.held_bytes() > 20_000 * 64 * 8, "what is not counted then: {}", many.held_bytes());
    let mut one = parse_filter(&filter).unwrap();
    ask(&mut *one, 5_000).unwrap();
}

/// Conditions of a call had 32 MiB of expressions each.
#[test]
fn filters_of_one_request_have_their_expressions_together() {
    let filters: Vec<pb::Filter> = (0..12).map(|at| row_filter(&format!(".{{{}}}", 9_000 + at))).collect();
    let held: usize = filters.iter().map(held_bytes).sum();
    assert!(held > 32 << 20, "each is allowed, together they are too much: {held} bytes");
    let error = parse_filters(&filters).err().expect("together they are too much");
    let message = error.message();
    assert!(error.kind() == ErrorKind::Invalid, "{error}");
    assert!(message.contains("of all conditions") || message.contains("of its filter"), "{error}");
    let equal = vec![filters[0].clone(); 20];
    assert_eq!(parse_filters(&equal).unwrap().len(), 20, "one expression is built once");
    assert!(parse_filters([]).unwrap().is_empty());
}

/// What a filter is built of was decoded, sorted and copied on the event loop, however much it was.
#[test]
fn building_filters_costs_looks() {
    let row = |at: u32| Bytes::copy_from_slice(&at.to_be_bytes());
    let range = |at| {
        let (start_row_inclusive, stop_row_inclusive) = (Some(true), Some(true));
        pb::RowRange {
            start_row: Some(row(at)),
            start_row_inclusive,
            stop_row: Some(row(at)),
            stop_row_inclusive,
        }
    };
    let ranges = |count| pb::MultiRowRangeFilter { row_range_list: (0..count).map(range).collect() };
    let pair = |at| pb::BytesBytesPair { first: row(at), second: vec![0; 4].into() };
    let keys =
        |count| pb::FuzzyRowFilter { fuzzy_keys_data: (0..count).map(pair).collect(), is_mask_v2: None };
    let prefixes = |count| pb::MultipleColumnPrefixFilter { sorted_prefixes: (0..count).map(row).collect() };
    let qualifiers =
        |count| pb::FirstKeyValueMatchingQualifiersFilter { qualifiers: (0..count).map(row).collect() };
    let timestamps = |count: u32| {
        let timestamps = (0..i64::from(8 * count)).collect();
        pb::TimestampsFilter { timestamps, can_hint: None }
    };
    let of_each = |count: u32| {
        [
            list(
                MustPassAll,
                vec![message("FirstKeyOnlyFilter", &pb::FirstKeyOnlyFilter {}); count as usize],
            ),
            message("MultiRowRangeFilter", &ranges(count)),
            message("FuzzyRowFilter", &keys(count)),
            message("MultipleColumnPrefixFilter", &prefixes(count)),
            message("FirstKeyValueMatchingQualifiersFilter", &qualifiers(count)),
            message("TimestampsFilter", &timestamps(count)),
        ]
    };
    for filter in of_each(300) {
        Patience::of_looks(4_096, || parse_filter(&filter))
            .unwrap_or_else(|error| panic!("{error}: {}", filter.name));
    }
    for filter in of_each(5_000) {
        let inline = Patience::of_looks(4_096, || parse_filter(&filter)).err().map(|error| error.kind());
        assert_eq!(inline, Some(ErrorKind::NeedsDisk), "{}", filter.name);
        parse_filter(&filter).unwrap();
        Patience::of_looks(1, || check_filter(&filter)).expect("whether it is known is asked anywhere");
    }
}
