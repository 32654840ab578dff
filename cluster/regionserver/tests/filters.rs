//! Filters that take long to build or to ask, and what open scanners keep of them.

use halcyon_cell::Cell;
use halcyon_proto::pb;
use prost::Message;

use crate::common::{Lab, class, get, put};

fn named(class: &str, message: &impl Message) -> (String, Option<bytes::Bytes>) {
    (format!("org.apache.hadoop.hbase.filter.{class}"), Some(message.encode_to_vec().into()))
}

fn comparator(class: &str, message: &impl Message) -> pb::Comparator {
    let (name, serialized_comparator) = named(class, message);
    pb::Comparator { name, serialized_comparator }
}

pub fn filter(class: &str, message: &impl Message) -> pb::Filter {
    let (name, serialized_filter) = named(class, message);
    pb::Filter { name, serialized_filter }
}

fn equals(comparator: pb::Comparator) -> pb::CompareFilter {
    pb::CompareFilter { compare_op: pb::CompareType::Equal as i32, comparator: Some(comparator) }
}

fn pattern(pattern: &str) -> pb::Comparator {
    let message = pb::RegexStringComparator {
        pattern: pattern.to_string(),
        pattern_flags: 32,
        charset: "UTF-8".to_string(),
        engine: None,
    };
    comparator("RegexStringComparator", &message)
}

fn row_filter(of: &str) -> pb::Filter {
    filter("RowFilter", &pb::RowFilter { compare_filter: equals(pattern(of)) })
}

pub fn value_filter(substring: &str) -> pb::Filter {
    let comparator =
        comparator("SubstringComparator", &pb::SubstringComparator { substr: substring.to_string() });
    filter("ValueFilter", &pb::ValueFilter { compare_filter: equals(comparator) })
}

fn pooled<T>(lab: &Lab, work: impl FnOnce() -> T) -> (u64, T) {
    let before = lab.server.counters.pooled.get();
    let done = work();
    (lab.server.counters.pooled.get() - before, done)
}

/// A look at any value cost the same, so an event loop compared megabytes with whatever text a client sent.
#[test]
fn a_get_that_compares_a_long_value_goes_to_the_pool() {
    let lab = Lab::new();
    for (row, len) in [("long", 2 << 20), ("short", 2 << 10)] {
        let cell = Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, &vec![b'a'; len]);
        lab.mutate(put(1), vec![cell]).unwrap();
    }
    let text = "A".repeat(1_000);
    let get_with = |row: &str, text: &str| {
        let get = pb::Get { filter: Some(value_filter(text)), store_limit: Some(1), ..get(row) };
        pooled(&lab, || lab.get(get).unwrap().1.len())
    };
    assert_eq!(get_with("short", &text), (0, 1));
    assert_eq!(get_with("short", &format!("{text}b")), (0, 0));
    assert_eq!(get_with("long", &format!("{text}b")), (1, 0));
    // Under the row's lock, too.
    let condition = pb::Condition {
        row: "long".into(),
        filter: Some(value_filter(&format!("{text}b"))),
        ..Default::default()
    };
    let cell = Cell::put(b"long", b"f", b"q", i64::MAX, b"new");
    let request = pb::MutateRequest {
        region: lab.specifier(),
        mutation: put(1),
        condition: Some(condition),
        nonce_group: None,
    };
    let (count, response) =
        pooled(&lab, || lab.call::<pb::MutateResponse>("Mutate", &request, vec![cell]).unwrap().0);
    assert_eq!((count, response.processed), (1, Some(false)));
}

/// Each Get of a call builds its own expressions, and one whose family is unknown had spent nothing when it failed.
#[test]
fn expressions_that_take_long_to_build_are_built_on_the_pool() {
    let lab = Lab::new();
    lab.put("r", "q", "value");
    let get_with = |of: &str, family: &'static str| pb::Get {
        filter: Some(row_filter(of)),
        column: vec![pb::Column { family: family.into(), qualifier: Vec::new() }],
        ..get("r")
    };
    let multi = |gets: Vec<pb::Get>| {
        let action = gets.into_iter().enumerate().map(|(at, get)| pb::Action::of_get(at as u32, get));
        let action = pb::RegionAction {
            region: lab.specifier(),
            atomic: None,
            action: action.collect(),
            condition: None,
        };
        let request = pb::MultiRequest { region_action: vec![action], ..Default::default() };
        pooled(&lab, || lab.call::<pb::MultiResponse>("Multi", &request, Vec::new()).unwrap().0)
    };
    let errors = |response: &pb::MultiResponse| {
        let entries = &response.region_action_result[0].result_or_exception;
        entries.iter().filter(|entry| entry.exception.is_some()).count()
    };
    assert_eq!(pooled(&lab, || lab.get(get_with("^r", "f")).unwrap().1.len()), (0, 1));
    let (count, response) = multi(vec![get_with("^r", "f"); 3]);
    assert_eq!((count, errors(&response)), (0, 0));
    let (count, response) = multi(vec![get_with(".{300}", "nope"); 40]);
    assert_eq!((count, errors(&response)), (1, 40));
    assert_eq!(pooled(&lab, || class(lab.get(get_with(".{9000}", "nope")))).0, 1);
}

/// An event loop sorted two million columns of a Get, and put a hundred thousand filters together, before it looked at anything.
#[test]
fn what_a_large_message_names_is_built_on_the_pool() {
    let lab = Lab::new();
    lab.put("r", "q", "value");
    let columns = |count: u32, len: usize| {
        let name = |at: u32| bytes::Bytes::copy_from_slice(&at.to_be_bytes()[4 - len..]);
        pb::Column { family: "f".into(), qualifier: (0..count).map(name).chain(["q".into()]).collect() }
    };
    let get_of = |count, len| {
        let get = pb::Get { column: vec![columns(count, len)], ..get("r") };
        pooled(&lab, || lab.get(get).unwrap().1.len())
    };
    assert_eq!(get_of(500, 4), (0, 1));
    assert_eq!(get_of(20_000, 1), (1, 1), "a short message may name many as well");
    assert_eq!(get_of(20_000, 4), (2, 1), "decoded there, and carried out");
    let scan_of = |count, len| {
        let scan = pb::Scan { column: vec![columns(count, len)], ..Default::default() };
        let request = pb::ScanRequest { limit_of_rows: Some(1), ..lab.open(1, scan) };
        pooled(&lab, || lab.scan(&request).unwrap().1.len())
    };
    assert_eq!(scan_of(500, 4), (0, 1));
    assert_eq!(scan_of(20_000, 1), (1, 1));
    assert_eq!(scan_of(20_000, 4), (2, 1));
    let multi_of = |count, len| {
        let get = pb::Get { column: vec![columns(count, len)], ..get("r") };
        let action = vec![pb::Action::of_get(0, get)];
        let action = pb::RegionAction { region: lab.specifier(), atomic: None, action, condition: None };
        let request = pb::MultiRequest { region_action: vec![action], ..Default::default() };
        pooled(&lab, || lab.call::<pb::MultiResponse>("Multi", &request, Vec::new()).unwrap().1.len())
    };
    assert_eq!(multi_of(500, 4), (0, 1));
    assert_eq!(multi_of(20_000, 4), (1, 1));
    assert_eq!(multi_of(200_000, 4), (2, 1));
    let check_of = |count: usize| {
        let prefix = filter("PrefixFilter", &pb::PrefixFilter { prefix: Some("r".into()) });
        let list = pb::FilterList { operator: 1, filters: vec![prefix; count] };
        let condition = pb::Condition {
            row: "r".into(),
            filter: Some(filter("FilterList", &list)),
            ..Default::default()
        };
        let request = pb::MutateRequest {
            region: lab.specifier(),
            mutation: put(1),
            condition: Some(condition),
            nonce_group: None,
        };
        let cell = Cell::put(b"r", b"f", b"q", i64::MAX, b"new");
        pooled(&lab, || lab.call::<pb::MutateResponse>("Mutate", &request, vec![cell]).unwrap().0.processed)
    };
    assert_eq!(check_of(10), (0, Some(true)));
    assert_eq!(check_of(2_000), (1, Some(true)));
}

/// Each condition of a call had 32 MiB for its expressions, and a call may have any number of conditions.
#[test]
fn conditions_of_a_call_have_their_expressions_together() {
    let lab = Lab::new();
    lab.put("r", "q", "value");
    let condition = |at: usize| pb::Condition {
        row: "r".into(),
        filter: Some(row_filter(&format!("r|.{{{}}}", 9_000 + at))),
        ..Default::default()
    };
    let check = |count: usize, differ: usize| {
        let conditions = (0..count).map(|at| condition(at * differ)).collect();
        crate::endpoints::mutate_rows(&lab, conditions, Vec::new())
    };
    assert_eq!(check(1, 1).unwrap().processed, Some(true));
    assert_eq!(check(40, 0).unwrap().processed, Some(true), "equal ones are one");
    let refused = check(40, 1).expect_err("each takes some MiB");
    assert!(refused.do_not_retry && refused.message.contains("of all conditions"), "{refused}");
    // Of a call with one condition after the other each has its own.
    let region_action = |at| pb::RegionAction {
        region: lab.specifier(),
        atomic: None,
        action: vec![pb::Action::of_mutation(0, put(1))],
        condition: Some(condition(at)),
    };
    let request =
        pb::MultiRequest { region_action: (0..40).map(region_action).collect(), ..Default::default() };
    let cells = vec![Cell::put(b"r", b"f", b"q", i64::MAX, b"new"); 40];
    let response = lab.call::<pb::MultiResponse>("Multi", &request, cells).unwrap().0;
    assert!(response.region_action_result.iter().all(|result| result.processed == Some(true)));
}

/// A filter of 140 bytes keeps some MiB, and its scanner counted as one of 4 KiB.
#[test]
fn scanners_count_with_what_their_filters_keep() {
    let opened = |of: &str| {
        let lab = Lab::new();
        lab.put("r1", "q", "value");
        lab.put("r2", "q", "value");
        let scan = pb::Scan { filter: Some(row_filter(of)), ..Default::default() };
        let errors = (0..200).map(|_| lab.scan(&lab.open(1, scan.clone())).err());
        let mut count = 0;
        for error in errors {
            match error {
                None => count += 1,
                Some(error) => {
                    assert!(error.class.ends_with("RegionTooBusyException"), "{error}");
                    break;
                }
            }
        }
        count
    };
    assert_eq!(opened("r|.{9000}"), 0);
    let (large, small) = (opened("r|.{50}"), opened("^r[0-9]+$"));
    assert!((1..10).contains(&large), "{large}, with some hundred KiB each");
    assert!(
        small > 3 * large && small < 200,
        "{small} with a small automaton each, {large} with a large one"
    );
}
