//! Get and Mutate.

use crate::common;
use crate::common::{Lab, class, connection, get, mutation, put, table, text};
use bytes::Bytes;
use halcyon_cell::{Cell, CellType, ErrorKind};
use halcyon_env::sim::{Fault, Operation, SimFileSystem};
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;
use halcyon_rpc::{Codec, Service};
use prost::Message;

fn number(value: i64) -> Vec<u8> {
    value.to_be_bytes().to_vec()
}

#[test]
fn puts_are_read_back_from_memory_and_from_files() {
    let lab = Lab::new();
    lab.put("r1", "q", "one");
    lab.put("r1", "q", "two");
    assert_eq!(lab.row("r1"), ["two"]);
    let versions = pb::Get { max_versions: Some(9), ..get("r1") };
    lab.clock.advance(std::time::Duration::from_millis(5));
    lab.put("r1", "q", "three");
    assert_eq!(text(&lab.get(versions.clone()).unwrap().1), ["three", "two"]);
    assert!(lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap());
    assert_eq!(lab.row("r1"), ["three"], "from the file");
    assert_eq!(text(&lab.get(versions).unwrap().1), ["three", "two"]);
    assert_eq!(lab.row("r2"), Vec::<String>::new());
}

#[test]
fn golden_answers_of_get() {
    let mut lab = Lab::new();
    lab.put("r", "q", "v");
    let bytes = |lab: &Lab, get: pb::Get| {
        let request = pb::GetRequest { region: lab.specifier(), get };
        let call = lab.raw_call("Get", request.encode_to_vec().into(), Vec::new());
        let reply = lab.finish(&lab.client, lab.client.call(call)).unwrap();
        (reply.message.to_vec(), reply.cells.is_some())
    };
    let exists = pb::Get { existence_only: Some(true), ..get("r") };
    assert_eq!(bytes(&lab, get("r")), (vec![0x0a, 4, 0x10, 1, 0x20, 0], true));
    assert_eq!(bytes(&lab, get("none")), (vec![0x0a, 2, 0x10, 0], false));
    assert_eq!(bytes(&lab, exists), (vec![0x0a, 4, 0x10, 0, 0x18, 1], false));
    // gohbase and asynchbase: a codec, but no version: cells stand in the message.
    lab.connection = connection(Some(Codec::KeyValue), None);
    let (inline, block) = bytes(&lab, get("r"));
    assert!(!block);
    assert_eq!(inline[inline.len() - 4..], [0x20, 0, 0x28, 0]);
}

#[test]
fn bad_gets_name_what_is_wrong() {
    let lab = Lab::new();
    let closest = pb::Get { closest_row_before: Some(true), ..get("r") };
    assert_eq!(class(lab.get(closest)), "UnknownProtocolException");
    assert_eq!(class(lab.get(get(""))), "DoNotRetryIOException");
    let family = pb::Column { family: "nope".into(), qualifier: Vec::new() };
    assert_eq!(class(lab.get(pb::Get { column: vec![family], ..get("r") })), "NoSuchColumnFamilyException");
    let range = pb::TimeRange { from: Some(5), to: Some(4) };
    assert_eq!(class(lab.get(pb::Get { time_range: Some(range), ..get("r") })), "DoNotRetryIOException");
    let filter = pb::Filter { name: "com.example.Unknown".to_string(), serialized_filter: None };
    assert_eq!(class(lab.get(pb::Get { filter: Some(filter), ..get("r") })), "DoNotRetryIOException");
    let mut request = pb::GetRequest { region: lab.specifier(), get: get("r") };
    request.region.value = Bytes::from_static(b"t,,1.00000000000000000000000000000000.");
    assert_eq!(class(lab.call::<pb::GetResponse>("Get", &request, Vec::new())), "NotServingRegionException");
    assert_eq!(
        class(lab.call::<pb::GetResponse>("NoSuchMethod", &request, Vec::new())),
        "DoNotRetryIOException"
    );
}

#[test]
fn mutations_come_inline_too() {
    let lab = Lab::new();
    let value = pb::mutation_proto::column_value::QualifierValue {
        qualifier: Some("q".into()),
        value: Some("v".into()),
        ..Default::default()
    };
    let column = pb::mutation_proto::ColumnValue { family: "f".into(), qualifier_value: vec![value] };
    let inline = pb::MutationProto {
        row: Some("r".into()),
        column_value: vec![column.clone()],
        timestamp: Some(77),
        ..mutation(MutationType::Put, 0)
    };
    lab.mutate(inline.clone(), Vec::new()).unwrap();
    let (_, cells) = lab.get(get("r")).unwrap();
    assert_eq!((text(&cells), cells[0].timestamp()), (vec!["v".to_string()], 77));
    let mut delete = pb::MutationProto { mutate_type: Some(MutationType::Delete as i32), ..inline };
    delete.column_value[0].qualifier_value[0].delete_type =
        Some(pb::mutation_proto::DeleteType::DeleteMultipleVersions as i32);
    lab.mutate(delete, Vec::new()).unwrap();
    assert!(lab.row("r").is_empty());
    let whole = pb::MutationProto { row: Some("r".into()), ..mutation(MutationType::Delete, 0) };
    lab.put("r", "q", "again");
    lab.clock.advance(std::time::Duration::from_millis(1));
    lab.mutate(whole, Vec::new()).unwrap();
    assert!(lab.row("r").is_empty(), "a delete without columns takes every family");
}

#[test]
fn bad_mutations_name_what_is_wrong() {
    let lab = Lab::new();
    let cell = |row: &[u8], family: &[u8]| Cell::put(row, family, b"q", 5, b"v");
    assert_eq!(class(lab.mutate(put(2), vec![cell(b"r", b"f")])), "DoNotRetryIOException");
    assert_eq!(class(lab.mutate(put(2), vec![cell(b"r", b"f"), cell(b"s", b"f")])), "DoNotRetryIOException");
    assert_eq!(class(lab.mutate(put(1), vec![cell(b"r", b"nope")])), "NoSuchColumnFamilyException");
    assert_eq!(class(lab.mutate(put(0), vec![])), "DoNotRetryIOException");
    let delete = mutation(MutationType::Delete, 1);
    assert_eq!(class(lab.mutate(delete, vec![cell(b"r", b"f")])), "DoNotRetryIOException");
    let increment = mutation(MutationType::Increment, 1);
    assert_eq!(class(lab.mutate(increment.clone(), vec![cell(b"r", b"f")])), "DoNotRetryIOException");
    lab.put("text", "q", "not a number");
    let by_one = Cell::put(b"text", b"f", b"q", i64::MAX, &number(1));
    assert_eq!(class(lab.mutate(increment, vec![by_one])), "DoNotRetryIOException");
    let ttl = pb::NameBytesPair { name: "_ttl".to_string(), value: Some("abc".into()) };
    let with_ttl = pb::MutationProto { attribute: vec![ttl], ..put(1) };
    assert_eq!(class(lab.mutate(with_ttl, vec![cell(b"r", b"f")])), "DoNotRetryIOException");
    let unknown = pb::MutationProto { mutate_type: Some(99), ..put(1) };
    assert_eq!(class(lab.mutate(unknown, vec![cell(b"r", b"f")])), "DoNotRetryIOException");
}

#[test]
fn increments_and_appends_answer_with_the_new_cells() {
    let lab = Lab::new();
    let increment =
        |nonce: u64| pb::MutationProto { nonce: Some(nonce), ..mutation(MutationType::Increment, 1) };
    let by = |amount: i64| vec![Cell::put(b"r", b"f", b"n", i64::MAX, &number(amount))];
    let (response, cells) = lab.mutate(increment(0), by(5)).unwrap();
    assert_eq!(response.processed, None);
    assert_eq!(response.result.unwrap().associated_cell_count, Some(1));
    assert_eq!(cells[0].value(), number(5));
    assert_eq!(lab.mutate(increment(0), by(-2)).unwrap().1[0].value(), number(3));
    // From a file: the disk is needed, so it runs on the pool.
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    assert_eq!(lab.mutate(increment(0), by(1)).unwrap().1[0].value(), number(4));
    // A nonce makes it happen once; the repeated call reads.
    assert_eq!(lab.mutate(increment(9), by(10)).unwrap().1[0].value(), number(14));
    assert_eq!(lab.mutate(increment(9), by(10)).unwrap().1[0].value(), number(14));
    assert_eq!(lab.mutate(increment(10), by(10)).unwrap().1[0].value(), number(24));

    let append = mutation(MutationType::Append, 1);
    let suffix = |text: &str| vec![Cell::put(b"r", b"f", b"s", i64::MAX, text.as_bytes())];
    lab.mutate(append.clone(), suffix("a")).unwrap();
    assert_eq!(text(&lab.mutate(append.clone(), suffix("b")).unwrap().1), ["ab"]);
    let no_results = pb::NameBytesPair { name: "_rr_".to_string(), value: Some(vec![0].into()) };
    let quiet = pb::MutationProto { attribute: vec![no_results], ..append };
    let (response, cells) = lab.mutate(quiet, suffix("c")).unwrap();
    assert_eq!((response.result.unwrap().associated_cell_count, cells.len()), (Some(0), 0));
    assert_eq!(text(&lab.get(get("r")).unwrap().1)[1], "abc");
}

fn condition(value: Option<&str>, op: pb::CompareType) -> pb::Condition {
    let comparable = pb::ByteArrayComparable { value: value.map(|v| Bytes::copy_from_slice(v.as_bytes())) };
    let comparator = pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
        serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
    };
    pb::Condition {
        row: "r".into(),
        family: Some("f".into()),
        qualifier: Some("q".into()),
        compare_type: Some(op as i32),
        comparator: Some(comparator),
        ..Default::default()
    }
}

#[test]
fn conditions_decide() {
    let lab = Lab::new();
    let try_put = |condition: pb::Condition, value: &str| {
        let request = pb::MutateRequest {
            region: lab.specifier(),
            mutation: put(1),
            condition: Some(condition),
            nonce_group: None,
        };
        let cell = Cell::put(b"r", b"f", b"q", i64::MAX, value.as_bytes());
        lab.call::<pb::MutateResponse>("Mutate", &request, vec![cell]).map(|(response, _)| response.processed)
    };
    let absent = || condition(None, pb::CompareType::Equal);
    assert_eq!(try_put(absent(), "first").unwrap(), Some(true));
    assert_eq!(try_put(absent(), "second").unwrap(), Some(false));
    assert_eq!(lab.row("r"), ["first"]);
    assert_eq!(try_put(condition(Some("first"), pb::CompareType::Equal), "m").unwrap(), Some(true));
    // The expected value stands on the left: "a" < "m".
    assert_eq!(try_put(condition(Some("a"), pb::CompareType::Less), "n").unwrap(), Some(true));
    assert_eq!(try_put(condition(Some("z"), pb::CompareType::Less), "x").unwrap(), Some(false));
    let mut other_row = absent();
    other_row.row = "other".into();
    assert_eq!(class(try_put(other_row, "x")), "DoNotRetryIOException");
    // An operator that compares nothing was taken for one that does not hold.
    assert_eq!(class(try_put(condition(Some("n"), pb::CompareType::NoOp), "x")), "DoNotRetryIOException");
    let no_test = pb::Condition { row: "r".into(), ..Default::default() };
    assert_eq!(class(try_put(no_test, "x")), "DoNotRetryIOException");
    assert_eq!(lab.row("r"), ["n"]);
}

/// The repeated call was told that the condition held, although nothing had been done.
#[test]
fn a_condition_that_did_not_hold_is_looked_at_again() {
    let lab = Lab::new();
    let try_put = |expected, nonce| {
        let request = pb::MutateRequest {
            region: lab.specifier(),
            mutation: pb::MutationProto { nonce: Some(nonce), ..put(1) },
            condition: Some(condition(expected, pb::CompareType::Equal)),
            nonce_group: Some(1),
        };
        let cell = Cell::put(b"r", b"f", b"q", i64::MAX, b"new");
        lab.call::<pb::MutateResponse>("Mutate", &request, vec![cell]).unwrap().0.processed
    };
    assert_eq!(try_put(Some("old"), 1), Some(false));
    assert_eq!(try_put(Some("old"), 1), Some(false), "nothing was done");
    lab.put("r", "q", "old");
    assert_eq!(try_put(Some("old"), 2), Some(true));
    assert_eq!(try_put(Some("old"), 2), Some(true), "it was done, and is not looked at again");
    assert_eq!(lab.row("r"), ["new"]);
}

#[test]
fn rows_that_are_changed_together_are_changed_once() {
    let lab = Lab::new();
    let value = pb::mutation_proto::column_value::QualifierValue {
        qualifier: Some("n".into()),
        value: Some(number(1).into()),
        ..Default::default()
    };
    let column = pb::mutation_proto::ColumnValue { family: "f".into(), qualifier_value: vec![value] };
    let increment = pb::MutationProto {
        row: Some("r".into()),
        column_value: vec![column],
        ..mutation(MutationType::Increment, 0)
    };
    let mutate_rows = |nonce| {
        let rows = pb::MutateRowsRequest {
            mutation_request: vec![increment.clone()],
            nonce_group: Some(1),
            nonce: Some(nonce),
            ..Default::default()
        };
        let call = pb::CoprocessorServiceCall {
            row: "r".into(),
            service_name: "hbase.pb.MultiRowMutationService".to_string(),
            method_name: "MutateRows".to_string(),
            request: rows.encode_to_vec().into(),
        };
        let request = pb::CoprocessorServiceRequest { region: lab.specifier(), call };
        let (response, _): (pb::CoprocessorServiceResponse, _) =
            lab.call("ExecService", &request, Vec::new()).unwrap();
        let answer = pb::MutateRowsResponse::decode(response.value.value.unwrap()).unwrap();
        let value = lab.get(get("r")).unwrap().1[0].value().to_vec();
        (answer.processed(), value)
    };
    assert_eq!(mutate_rows(5), (true, number(1)));
    assert_eq!(mutate_rows(5), (true, number(1)), "a repeated call");
    assert_eq!(mutate_rows(6), (true, number(2)));
}

#[test]
fn mixed_puts_and_newest_version_deletes() {
    let lab = Lab::new();
    lab.put("r", "a", "1");
    lab.put("r", "b", "2");
    lab.clock.advance(std::time::Duration::from_millis(1));
    let cells = vec![
        Cell::put(b"r", b"f", b"c", i64::MAX, b"3"),
        Cell::build(b"r", b"f", b"a", i64::MAX, CellType::DeleteColumn, b"", b"", 0),
    ];
    lab.mutate(put(2), cells).unwrap();
    assert_eq!(lab.row("r"), ["2", "3"]);
    let newest = Cell::build(b"r", b"f", b"b", i64::MAX, CellType::Delete, b"", b"", 0);
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    lab.mutate(mutation(MutationType::Delete, 1), vec![newest]).unwrap();
    assert_eq!(lab.row("r"), ["3"]);
}

#[test]
fn what_is_not_served_says_so() {
    let lab = Lab::new();
    let call = pb::CoprocessorServiceCall {
        row: "r".into(),
        service_name: "AggregateService".to_string(),
        method_name: "getMax".to_string(),
        request: Bytes::new(),
    };
    let exec = pb::CoprocessorServiceRequest { region: lab.specifier(), call };
    for method in ["ExecService", "ExecRegionServerService"] {
        let result = lab.call::<pb::CoprocessorServiceResponse>(method, &exec, Vec::new());
        assert_eq!(class(result), "UnknownProtocolException");
    }
}

#[test]
fn a_region_with_much_in_memory_is_flushed_before_it_closes() {
    let mut settings = common::settings();
    settings.preclose_flush_bytes = 10_000;
    let lab = Lab::with(SimFileSystem::new(), settings);
    let (name, flushes) = (lab.info.encoded_name(), || lab.server.counters.flushes.get());
    let close_and_open = || {
        lab.server.close_region(name, false).unwrap();
        lab.server.open_region(&lab.info, &table().into()).unwrap();
    };
    lab.put("a", "q", "little");
    close_and_open();
    assert_eq!(flushes(), 0, "what a close itself writes is not counted");
    lab.put("b", "q", &"much".repeat(5_000));
    close_and_open();
    assert_eq!(flushes(), 1);
    lab.put("c", "q", &"much".repeat(5_000));
    lab.server.close_region(name, true).unwrap();
    assert_eq!(flushes(), 1, "an aborted close flushes nothing");
    lab.server.open_region(&lab.info, &table().into()).unwrap();
    assert_eq!((lab.row("a").len(), lab.row("b").len()), (1, 1));
}

/// Its edits are in the WAL alone then, so whoever asks again must not take it for closed and open it elsewhere.
#[test]
fn a_region_whose_last_flush_fails_is_not_closed() {
    let lab = Lab::new();
    let name = lab.info.encoded_name();
    lab.put("a", "q", "only in the WAL");
    lab.fs.inject(Fault::new(Operation::Create, ".tmp/").forever());
    assert!(lab.server.close_region(name, false).is_err());
    assert!(lab.fs.faults_hit() > 0 && lab.server.failure().is_some());
    lab.fs.clear_faults();
    for _ in 0..2 {
        assert_eq!(lab.server.close_region(name, false).unwrap_err().kind(), ErrorKind::Stopping);
    }
}

/// A timestamp of the client's own counts where there was no cell, as in HBase (`HRegion.reckonDelta`). It was taken for an existing
/// one as well, and a later write of the server's clock lay under it.
#[test]
fn increments_and_appends_take_a_timestamp_where_there_was_none() {
    let lab = Lab::new();
    let now_ms = halcyon_env::Clock::now_ms(&*lab.clock);
    for kind in [MutationType::Increment, MutationType::Append] {
        let row = format!("{kind:?}");
        let at = |timestamp| {
            let cell = Cell::put(row.as_bytes(), b"f", b"q", timestamp, &number(1));
            lab.mutate(mutation(kind, 1), vec![cell]).unwrap().1[0].timestamp()
        };
        assert_eq!(at(50), 50, "there was no cell");
        let next = at(70);
        assert!((now_ms..now_ms + 200).contains(&next), "{next}: the clock's time, not the client's");
        assert!((next + 1..now_ms + 200).contains(&at(i64::MAX - 1)), "and behind the one before");
        let far = now_ms + 1_000_000;
        lab.put(&row, "q", "12345678");
        let ahead = Cell::put(row.as_bytes(), b"f", b"q", far, &number(1));
        lab.mutate(put(1), vec![ahead]).unwrap();
        assert_eq!(at(70), far, "so far ahead the later write is the newer one");
        assert_eq!(at(70), far);
    }
}

fn with_tags(row: &str, value_len: usize, tags_len: usize) -> Cell {
    let mut tags = Vec::new();
    while tags.len() < tags_len {
        let len = (tags_len - tags.len() - 3).min(1000);
        let len = if (1..3).contains(&(tags_len - tags.len() - 3 - len)) { len - 3 } else { len };
        halcyon_cell::append_tag(&mut tags, 77, &vec![1; len]);
    }
    assert_eq!(tags.len(), tags_len);
    let value = vec![0; value_len];
    Cell::build(row.as_bytes(), b"f", b"q", i64::MAX, halcyon_cell::CellType::Put, &value, &tags, 0)
}

/// Tags of an Append, of the cell before it and of a time to live come together in the new cell. Where they were too long for it, the
/// server met an assertion.
#[test]
fn tags_that_do_not_fit_are_refused() {
    let lab = Lab::new();
    let ttl = pb::NameBytesPair {
        name: "_ttl".to_string(),
        value: Some((1i64 << 40).to_be_bytes().to_vec().into()),
    };
    let with_ttl = |proto: pb::MutationProto| pb::MutationProto { attribute: vec![ttl.clone()], ..proto };
    lab.mutate(put(1), vec![with_tags("most", 1, 65_535)]).unwrap();
    lab.mutate(with_ttl(put(1)), vec![with_tags("ttl", 1, 65_535 - 11)]).unwrap();
    assert_eq!(
        class(lab.mutate(with_ttl(put(1)), vec![with_tags("ttl", 1, 65_535 - 10)])),
        "DoNotRetryIOException"
    );
    let append = || mutation(MutationType::Append, 1);
    lab.mutate(append(), vec![with_tags("a", 1, 40_000)]).unwrap();
    assert_eq!(class(lab.mutate(append(), vec![with_tags("a", 1, 40_000)])), "DoNotRetryIOException");
    assert_eq!(
        class(lab.mutate(with_ttl(append()), vec![with_tags("a", 1, 25_530)])),
        "DoNotRetryIOException"
    );
    lab.mutate(with_ttl(append()), vec![with_tags("a", 1, 20_000)]).unwrap();
    assert_eq!(lab.get(get("a")).unwrap().1[0].value().len(), 2);
}

/// What takes long was done by the thread that received the call, and all other connections of that thread waited.
#[test]
fn what_takes_long_is_not_done_by_the_thread_that_received_it() {
    let lab = Lab::new();
    let is_later = |method: &str, request: Vec<u8>, cells: Vec<Cell>| {
        let outcome = lab.client.call(lab.raw_call(method, request.into(), cells));
        let is_later = matches!(outcome, halcyon_rpc::Outcome::Later(_));
        lab.finish(&lab.client, outcome).unwrap();
        is_later
    };
    let write = |kind, cells: Vec<Cell>| {
        let mutation = mutation(kind, cells.len() as i32);
        let request =
            pb::MutateRequest { region: lab.specifier(), mutation, condition: None, nonce_group: None };
        is_later("Mutate", request.encode_to_vec(), cells)
    };
    let wide: Vec<Cell> =
        (0..5_000).map(|at| Cell::put(b"wide", b"f", format!("{at:06}").as_bytes(), 5, b"v")).collect();
    assert!(write(MutationType::Put, wide));
    let read = |row: &str| {
        let request = pb::GetRequest { region: lab.specifier(), get: get(row) };
        is_later("Get", request.encode_to_vec(), Vec::new())
    };
    lab.put("narrow", "q", "v");
    assert!(!read("narrow"));
    assert!(read("wide"));
    let newest = Cell::build(b"wide", b"f", b"000000", i64::MAX, CellType::Delete, b"", b"", 0);
    assert!(write(MutationType::Delete, vec![newest; 2_000]));
    assert_eq!(lab.row("wide").len(), 4_999);
    let front = pb::ScanRequest {
        region: Some(lab.specifier()),
        scan: Some(pb::Scan::default()),
        number_of_rows: Some(1),
        limit_of_rows: Some(1),
        ..Default::default()
    };
    assert!(!is_later("Scan", front.encode_to_vec(), Vec::new()));
    for at in 0..1_000 {
        let row = format!("a{at:04}");
        lab.put(&row, "q", "v");
        let marker = Cell::build(row.as_bytes(), b"f", b"", i64::MAX, CellType::DeleteFamily, b"", b"", 0);
        lab.mutate(mutation(MutationType::Delete, 1), vec![marker]).unwrap();
    }
    assert!(is_later("Scan", front.encode_to_vec(), Vec::new()), "behind a thousand deleted rows");
}
