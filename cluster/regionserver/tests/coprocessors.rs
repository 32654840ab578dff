//! Regions with coprocessors while there is no JVM for them: nothing is carried out without its hooks, and what has no coprocessors works.
//! With a JVM: `testing/compat/coprocessors.sh`.

#![allow(clippy::disallowed_methods)] // threads and clocks of the test itself

use crate::common;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Lab, get, settings, table};
use crate::fake_jvm::{FakeJvm, hosted, hosted_with, lab};
use crate::inline_cells::{exec_request, multi_request, mutate_request, wide_put};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::Clock;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::coprocessor::mutation;
use halcyon_proto::pb;
use halcyon_regionserver::{JvmSurroundings, RegionServerSettings};
use halcyon_rpc::{RpcError, Service};
use halcyon_schema::{RegionInfo, TableName};
use prost::Message;

/// The only cell that a write told of, as it was written.
fn told(jvm: &FakeJvm) -> Cell {
    let frame = jvm.told.lock().unwrap().pop().expect("a write was told of");
    let [part] = &*frame.mutation else { panic!("{frame:?}") };
    assert_eq!((part.status(), part.cell.len()), (mutation::Status::Done, 1), "{frame:?}");
    Cell::parse(part.cell[0].clone(), 0).unwrap()
}

/// HBase puts the server's time into the mutations that hooks and coprocessors hold. Here these were copies, and kept the latest time for ever:
/// Phoenix took each table that it had dropped for one that is newer than any other.
#[test]
fn the_jvm_is_told_the_times_of_writes() {
    let (pre_get, post_mutate) = (1, 1 << 7);
    let jvm = FakeJvm::new(pre_get | post_mutate);
    let (lab, dir) = hosted(&jvm, "times");
    lab.put("r", "q", "v");
    let cells = lab.get(get("r")).unwrap().1;
    assert_eq!(told(&jvm).timestamp(), lab.get(get("w")).unwrap().1[0].timestamp(), "its own write");
    jvm.told.lock().unwrap().truncate(1);
    assert_eq!(told(&jvm).timestamp(), cells[0].timestamp(), "a client's");
    // What has its time already is not sent again.
    lab.mutate(common::put(1), vec![Cell::put(b"r", b"f", b"q", 5, b"v")]).unwrap();
    let frame = jvm.told.lock().unwrap().pop().unwrap();
    assert!(frame.mutation[0].cell.is_empty(), "{frame:?}");
    let _ = std::fs::remove_dir_all(&dir);
}

/// One connection opened all scanners that the JVM may have, and every other scan of tables with hooks was refused. One too many
/// was opened in the JVM nevertheless, and stayed there.
#[test]
fn a_connection_leaves_scanners_of_the_jvm_to_others() {
    const SCANS_MAX: usize = 10_000;
    let jvm = FakeJvm::new(1 << 12);
    let (lab, dir) = hosted(&jvm, "scanners");
    let open = || lab.scan(&lab.open(1, pb::Scan::default()));
    // Half of what its peer may have, which is half of all.
    let of_connection = SCANS_MAX / 4;
    let opened: Vec<u64> =
        (0..of_connection).map(|_| open().unwrap().0.scanner_id.expect("it goes on")).collect();
    assert_eq!(jvm.open_count(), of_connection);
    let refused = open().map(drop).unwrap_err();
    assert!(refused.class.ends_with(".RegionTooBusyException"), "{refused:?}");
    assert_eq!(jvm.open_count(), of_connection, "nothing is opened for one that is refused");
    let close = pb::ScanRequest {
        scanner_id: Some(opened[0]),
        number_of_rows: Some(0),
        close_scanner: Some(true),
        ..Default::default()
    };
    lab.scan(&close).unwrap();
    assert!(open().is_ok(), "what is closed is another's");
    assert!(open().is_err());
    let _ = std::fs::remove_dir_all(&dir);
}

const SCANNER: u64 = 1 << 12;
const HELD: &str = "memstores-flushed-held-by-scans";

fn held_by_scans(lab: &Lab) -> u64 {
    lab.server.memory().iter().find(|it| it.name == HELD).expect("a line of the ledger").held
}

/// Reads on with a scanner until its end, by this many rows a call.
fn rest(lab: &Lab, id: u64, rows: u32) -> Vec<Cell> {
    let mut found = Vec::new();
    for seq in 0.. {
        let next = pb::ScanRequest {
            scanner_id: Some(id),
            number_of_rows: Some(rows),
            next_call_seq: Some(seq),
            ..Default::default()
        };
        let (response, cells) = lab.scan(&next).unwrap();
        found.extend(cells);
        if !response.more_results_in_region() {
            break;
        }
    }
    found
}

/// A flush that ended while the scanner rested left its memstores with the scanner, for as long as the client took.
#[test]
fn a_scanner_of_the_jvm_that_rests_holds_nothing_that_was_flushed() {
    let jvm = Arc::new(FakeJvm { hooks: SCANNER, scans: true, ..FakeJvm::default() });
    let (lab, dir) = hosted(&jvm, "flushed");
    let rows = |from: usize| (from..20).map(|row| format!("r{row:02}")).collect::<Vec<_>>();
    rows(0).iter().for_each(|row| lab.put(row, "q", &"v".repeat(1000)));
    let opened = |rows| lab.scan(&lab.open(rows, pb::Scan::default())).unwrap();
    let (first, none) = (opened(1), opened(0));
    assert_eq!(held_by_scans(&lab), 0);
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    assert_eq!(held_by_scans(&lab), 0, "they let go when it was flushed");
    lab.put("r05", "q", "newer");
    assert_eq!(common::rows(&first.1), ["r00"]);
    for (from, (response, _)) in [(1, first), (0, none)] {
        let cells = rest(&lab, response.scanner_id(), 3);
        assert_eq!(common::rows(&cells), rows(from), "they read on in the file");
        assert!(cells.iter().all(|cell| cell.value().len() == 1000), "at their point");
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// A client that loses its scanner names the point that it was told of. It was told of none, so it read the rest as of a later moment.
#[test]
fn a_scan_in_the_jvm_goes_on_at_the_point_that_it_had() {
    let jvm = Arc::new(FakeJvm { hooks: SCANNER, scans: true, ..FakeJvm::default() });
    let (lab, dir) = hosted(&jvm, "resumed");
    let put_all = |value| ["r1", "r2", "r3"].iter().for_each(|row| lab.put(row, "q", value));
    put_all("old");
    let (opened, cells) = lab.scan(&lab.open(1, pb::Scan::default())).unwrap();
    assert_eq!(common::rows(&cells), ["r1"]);
    assert!(opened.mvcc_read_point() > 0, "{opened:?}");
    let resumed = pb::Scan {
        start_row: Some("r1".into()),
        include_start_row: Some(false),
        mvcc_read_point: opened.mvcc_read_point,
        ..Default::default()
    };
    let rest = || lab.scan(&lab.open(10, resumed.clone())).unwrap();
    put_all("new");
    let (again, cells) = rest();
    assert_eq!(again.mvcc_read_point, opened.mvcc_read_point);
    assert_eq!(common::text(&cells), ["old"; 2]);
    // Without its scanner nothing holds the point, and a flush leaves out what it saw: rows are of now, and all are there.
    let close = pb::ScanRequest {
        scanner_id: opened.scanner_id,
        number_of_rows: Some(0),
        close_scanner: Some(true),
        ..Default::default()
    };
    lab.scan(&close).unwrap();
    (0..3).for_each(|_| put_all("newest"));
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    let (again, cells) = rest();
    assert!(again.mvcc_read_point() > opened.mvcc_read_point(), "{again:?}");
    assert_eq!(common::text(&cells), ["newest"; 2]);
    let _ = std::fs::remove_dir_all(&dir);
}

/// The answer to a batch of gets had no limit where a region has coprocessors.
#[test]
fn answers_of_a_batch_have_their_limit() {
    let jvm = FakeJvm::new(0);
    let (mut lab, dir) = hosted_with(&jvm, "batches", |settings| settings.result_bytes_max = 10);
    lab.put("r", "q", "a value of some length");
    for (version, name) in [(Some((2, 6)), "MultiActionResultTooLarge"), (None, "RegionTooBusyException")] {
        lab.connection = common::connection(Some(halcyon_rpc::Codec::KeyValue), version);
        let actions = vec![
            pb::Action::of_get(0, get("r")),
            pb::Action::of_get(1, get("r")),
            pb::Action::of_mutation(2, common::put(1)),
        ];
        let (result, cells) = multi(&lab, actions, vec![Cell::put(b"s", b"f", b"q", i64::MAX, b"v")]);
        let of = |entry: &pb::ResultOrException| entry.exception.as_ref().map(|error| error.name.clone());
        let names: Vec<_> = result.result_or_exception.iter().map(of).collect();
        assert_eq!((cells.len(), &names[0]), (1, &None));
        assert!(names[1..].iter().all(|it| it.as_ref().unwrap().ends_with(name)), "{names:?}");
    }
    lab.connection = common::connection(Some(halcyon_rpc::Codec::KeyValue), Some((2, 6)));
    assert!(lab.row("s").is_empty(), "it was not done");
    let _ = std::fs::remove_dir_all(&dir);
}

/// Each kind of call, as it ends.
fn calls(lab: &Lab) -> Vec<RpcError> {
    let cell = || Cell::put(b"r", b"f", b"q", i64::MAX, b"v");
    let scan = lab.open(1, pb::Scan::default());
    let call = pb::CoprocessorServiceCall {
        service_name: "OtherService".to_string(),
        method_name: "other".to_string(),
        ..Default::default()
    };
    let exec = pb::CoprocessorServiceRequest { region: lab.specifier(), call };
    vec![
        lab.get(get("r")).map(drop).unwrap_err(),
        lab.mutate(common::put(1), vec![cell()]).map(drop).unwrap_err(),
        lab.scan(&scan).map(drop).unwrap_err(),
        lab.call::<pb::CoprocessorServiceResponse>("ExecService", &exec, Vec::new()).map(drop).unwrap_err(),
    ]
}

#[test]
fn without_its_jvm_nothing_is_read_or_written() {
    let lab = lab("/nowhere/java");
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    let begun = Instant::now();
    for error in calls(&lab) {
        assert!(error.class.ends_with("java.io.IOException") && !error.do_not_retry, "{error:?}");
        assert!(error.message.contains("the JVM of coprocessors is not running"), "{error:?}");
        assert!(error.message.contains("/nowhere/java"), "what to look at is named: {error:?}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "no call waits for what does not come");
}

/// Edits of another cluster were written past the observers of the table (`TestMasterReplication` of HBase).
#[test]
fn replicated_edits_are_not_written_past_coprocessors() {
    let lab = lab("/nowhere/java");
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    let writes = || lab.server.server_load().write_requests_count.unwrap_or(0);
    let before = writes();
    let key = pb::WalKey {
        encoded_region_name: "there".into(),
        table_name: lab.info.table().to_string().into(),
        write_time: 1_699_999_999_000,
        ..Default::default()
    };
    let entry = pb::WalEntry { key, associated_cell_count: Some(1), ..Default::default() };
    let request = pb::ReplicateWalEntryRequest { entry: vec![entry], ..Default::default() };
    let cell = Cell::put(b"r", b"f", b"q", 1, b"v");
    let call = lab.raw_call("ReplicateWALEntry", request.encode_to_vec().into(), vec![cell]);
    let error = lab.finish(&lab.admin, lab.admin.call(call)).map(drop).unwrap_err();
    // The client, which would ask the JVM, has no threads in this test.
    assert!(error.message.contains("the server does not serve yet"), "{error:?}");
    assert_eq!(writes(), before);
}

/// A program that ends at once is not a JVM, either.
#[test]
fn a_jvm_that_ends_at_its_start_is_told_of() {
    let lab = lab("/bin/false");
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    for error in calls(&lab) {
        assert!(error.message.contains("it ended at its start"), "{error:?}");
    }
}

/// A table without coprocessors needs the JVM only for filters of classes that are there.
#[test]
fn a_filter_of_another_class_is_for_the_jvm() {
    let mut settings: RegionServerSettings = settings();
    settings.coprocessors.host_classpath = "/nowhere.jar".to_string();
    settings.coprocessors.host_java = "/nowhere/java".to_string();
    let lab = Lab::with(SimFileSystem::new(), settings);
    lab.server.host_coprocessors(JvmSurroundings::default()).unwrap();
    lab.put("r", "q", "v");
    assert_eq!(lab.row("r"), ["v"]);
    let other = pb::Filter { name: "org.x.Filter".to_string(), serialized_filter: None };
    let own = pb::Filter {
        name: "org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter".to_string(),
        serialized_filter: None,
    };
    let with = |filter: &pb::Filter| pb::Get { filter: Some(filter.clone()), ..get("r") };
    lab.get(with(&own)).unwrap();
    let scan = lab.open(1, pb::Scan { filter: Some(other.clone()), ..Default::default() });
    let errors = [lab.get(with(&other)).map(drop), lab.scan(&scan).map(drop)];
    for error in errors.map(Result::unwrap_err) {
        assert!(error.message.contains("the JVM of coprocessors is not running"), "{error:?}");
    }
}

#[test]
fn without_the_setting_a_region_does_not_open() {
    let lab = Lab::with(SimFileSystem::new(), settings());
    let name = TableName::parse(b"observed").unwrap();
    let info = RegionInfo::new(name.clone(), "".into(), "".into(), 1);
    let observed = table().with("coprocessor$1", "|org.x.Observer|1|");
    let error = lab.server.open_region(&info, &Arc::new(observed)).unwrap_err();
    for word in ["org.x.Observer", "halcyon.coprocessor.host.classpath"] {
        assert!(error.message().contains(word), "{error}");
    }
    lab.put("r", "q", "v"); // the other one works
}

/// Whoever may create a table could have any jar loaded; and a descriptor that came from elsewhere was never looked at.
#[test]
fn a_region_with_a_jar_of_no_allowed_path_does_not_open() {
    let mut settings: RegionServerSettings = settings();
    settings.coprocessors.host_classpath = "/nowhere.jar".to_string();
    settings.coprocessors.jar_paths = "file:///opt/coprocessors/*".to_string();
    let lab = Lab::with(SimFileSystem::new(), settings);
    let open = |name: &str, jar: &str| {
        let table_name = TableName::parse(name.as_bytes()).unwrap();
        let info = RegionInfo::new(table_name, "".into(), "".into(), 1);
        let observed = table().with("coprocessor$1", format!("{jar}|org.x.Observer|1|"));
        lab.server.region_files().create_region_files(&info, &observed).unwrap();
        (
            lab.server.open_region(&info, &Arc::new(observed.clone())),
            lab.server.check_coprocessor_jars(&observed),
        )
    };
    let (opened, checked) = open("outside", "file:///opt/coprocessors/../evil.jar");
    for error in [opened.map(drop).unwrap_err(), checked.unwrap_err()] {
        for word in ["org.x.Observer", "hbase.coprocessor.region.whitelist.paths", "evil.jar"] {
            assert!(error.message().contains(word), "{error}");
        }
    }
    let (opened, checked) = open("inside", "file:///opt/coprocessors/index.jar");
    checked.unwrap();
    opened.unwrap();
}

const PRE_MUTATE: u64 = 1 << 4;
const POST_MUTATE: u64 = 1 << 7;

fn increment(nonce: Option<u64>) -> (pb::MutationProto, Cell) {
    let proto = common::mutation(pb::mutation_proto::MutationType::Increment, 1);
    (pb::MutationProto { nonce, ..proto }, Cell::put(b"c", b"f", b"n", i64::MAX, &1i64.to_be_bytes()))
}

/// Waits for what may fail while the JVM starts again.
fn at_last<T>(what: impl Fn() -> Result<T, RpcError>) -> T {
    let begun = Instant::now();
    loop {
        match what() {
            Ok(found) => return found,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn multi(lab: &Lab, action: Vec<pb::Action>, cells: Vec<Cell>) -> (pb::RegionActionResult, Vec<Cell>) {
    multi_of(lab, action, None, cells)
}

fn multi_of(
    lab: &Lab,
    action: Vec<pb::Action>,
    atomic: Option<bool>,
    cells: Vec<Cell>,
) -> (pb::RegionActionResult, Vec<Cell>) {
    let action = pb::RegionAction { region: lab.specifier(), atomic, action, condition: None };
    let request =
        pb::MultiRequest { region_action: vec![action], nonce_group: Some(1), ..Default::default() };
    let (response, cells) = lab.call::<pb::MultiResponse>("Multi", &request, cells).unwrap();
    (response.region_action_result.into_iter().next().unwrap(), cells)
}

/// The JVM ended while a call waited for its first write to be durable, and another call loaded the region in the next JVM. The rest of the first
/// call found no hooks in the JVM that it knew. It was carried out without any, and the client was told that all is well: a row without its
/// index.
#[test]
fn nothing_is_done_without_hooks_once_a_later_jvm_has_the_region() {
    let jvm = FakeJvm::new(PRE_MUTATE | POST_MUTATE);
    let (lab, dir) = hosted(&jvm, "later");
    let (at_post, is_at_post) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    *jvm.at_post.lock().unwrap() = Some(Box::new(move || {
        at_post.send(()).unwrap();
        may_go_on.recv().unwrap();
    }));
    let (increment, one) = increment(None);
    let actions = vec![
        pb::Action::of_mutation(0, common::put(1)),
        pb::Action::of_mutation(1, increment),
        pb::Action::of_get(2, get("old")),
    ];
    let cells = vec![Cell::put(b"r", b"f", b"q", i64::MAX, b"v"), one];
    let result = std::thread::scope(|scope| {
        let call = scope.spawn(|| multi(&lab, actions, cells).0);
        is_at_post.recv_timeout(Duration::from_secs(20)).unwrap();
        let (pid, starts_count) = lab.server.coprocessor_jvm();
        let kill = format!("kill -9 {}", pid.unwrap());
        assert!(std::process::Command::new("/bin/sh").args(["-c", &kill]).status().unwrap().success());
        at_last(|| match lab.server.coprocessor_jvm().1 > starts_count {
            true => lab.get(get("c")).map(drop),
            false => Err(RpcError::io("it has not started again")),
        });
        go_on.send(()).unwrap();
        call.join().unwrap()
    });
    for entry in &result.result_or_exception {
        let exception = entry.exception.as_ref().unwrap_or_else(|| panic!("{entry:?}"));
        assert_eq!(exception.name, "java.io.IOException", "{exception:?}");
    }
    assert_eq!(result.result_or_exception.len(), 3);
    assert!(lab.row("c").is_empty(), "the increment was not done");
    let _ = std::fs::remove_dir_all(&dir);
}

/// The client gets an error where the JVM ends behind a write that is durable. It repeats the call, and the region added a second time.
#[test]
fn an_increment_whose_jvm_ends_behind_it_is_done_once() {
    let jvm = FakeJvm::new(POST_MUTATE);
    let (lab, dir) = hosted(&jvm, "once");
    for (number, way) in (1i64..).zip(WAYS) {
        at_last(|| lab.get(get("c")));
        *jvm.at_post.lock().unwrap() = Some(Box::new(|| ()));
        let error = way(&lab, number as u64, number - 1).unwrap_err();
        assert!(!error.do_not_retry, "{error:?}");
        let cells = at_last(|| way(&lab, number as u64, number - 1));
        assert_eq!(cells[0].value(), number.to_be_bytes(), "way {number}");
    }
    assert_eq!(at_last(|| lab.get(get("c"))).1[0].value(), (WAYS.len() as i64).to_be_bytes());
    let _ = std::fs::remove_dir_all(&dir);
}

/// A repeated call was answered with what the row has now: the value of another client's call, or, where a class had done the operation
/// itself, nothing of its own.
#[test]
fn a_repeated_increment_is_answered_as_the_first_one() {
    let jvm = FakeJvm::new(PRE_MUTATE | POST_MUTATE);
    let (lab, dir) = hosted(&jvm, "repeated");
    let of_class = |value: i64| Some(Cell::put(b"c", b"f", b"n", 7, &value.to_be_bytes()));
    let mut value = 0;
    for (number, way) in (0..).zip(WAYS) {
        let twice = |nonce: u64, before: i64| {
            let first = way(&lab, nonce, before).unwrap();
            // Another client writes, and what the first one was told is in no file.
            let (other, cell) = increment(None);
            lab.mutate(other, vec![cell]).unwrap();
            lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
            let again = way(&lab, nonce, before).unwrap();
            let bytes = |cells: &[Cell]| cells.iter().map(|cell| cell.bytes().clone()).collect::<Vec<_>>();
            assert_eq!(bytes(&first), bytes(&again), "way {number}, nonce {nonce}");
            assert_eq!(first.len(), 1);
            i64::from_be_bytes(first[0].value().try_into().unwrap())
        };
        let nonce = 10 * number + 1;
        assert_eq!(twice(nonce, value), value + 1);
        value += 2;
        *jvm.does.lock().unwrap() = of_class(77);
        assert_eq!(twice(nonce + 1, value), 77, "a hook has done it");
        value += 1;
        *jvm.changes.lock().unwrap() = of_class(99);
        assert_eq!(twice(nonce + 2, value), 99, "a hook behind the write has changed it");
        value += 2;
    }
    assert_eq!(lab.get(get("c")).unwrap().1[0].value(), value.to_be_bytes());
    let _ = std::fs::remove_dir_all(&dir);
}

/// Ways to increment by one with a nonce, where the counter has this value.
type Way = fn(&Lab, u64, i64) -> Result<Vec<Cell>, RpcError>;
const WAYS: [Way; 4] = [alone, in_multi, in_atomic_multi, checked];

fn alone(lab: &Lab, nonce: u64, _before: i64) -> Result<Vec<Cell>, RpcError> {
    let (proto, cell) = increment(Some(nonce));
    lab.mutate(proto, vec![cell]).map(|(_, cells)| cells)
}

fn in_multi(lab: &Lab, nonce: u64, _before: i64) -> Result<Vec<Cell>, RpcError> {
    multi_of_one(lab, nonce, None)
}

fn in_atomic_multi(lab: &Lab, nonce: u64, _before: i64) -> Result<Vec<Cell>, RpcError> {
    multi_of_one(lab, nonce, Some(true))
}

fn multi_of_one(lab: &Lab, nonce: u64, atomic: Option<bool>) -> Result<Vec<Cell>, RpcError> {
    let (proto, cell) = increment(Some(nonce));
    let action = vec![pb::Action::of_mutation(0, proto)];
    let (result, cells) = multi_of(lab, action, atomic, vec![cell]);
    let inline = |result: pb::Result| {
        let cell = |cell: pb::Cell| {
            Cell::put(&cell.row.unwrap(), b"f", b"n", cell.timestamp.unwrap() as i64, &cell.value.unwrap())
        };
        result.cell.into_iter().map(cell).collect::<Vec<_>>()
    };
    let mut all = cells;
    let mut failed = result.exception;
    for entry in result.result_or_exception {
        failed = failed.or(entry.exception);
        all.extend(entry.result.map(inline).unwrap_or_default());
    }
    failed.map_or(Ok(all), |failed| Err(RpcError::io(failed.name)))
}

/// Under the condition that it has this value.
fn checked(lab: &Lab, nonce: u64, before: i64) -> Result<Vec<Cell>, RpcError> {
    let (mutation, cell) = increment(Some(nonce));
    let condition = Some(condition("c", "n", &before.to_be_bytes()));
    let request = pb::MutateRequest { region: lab.specifier(), mutation, condition, nonce_group: Some(1) };
    let (response, cells) = lab.call::<pb::MutateResponse>("Mutate", &request, vec![cell])?;
    assert_eq!(response.processed, Some(true));
    Ok(cells)
}

/// That the column has this value.
fn condition(row: &str, qualifier: &str, value: &[u8]) -> pb::Condition {
    let comparable = pb::ByteArrayComparable { value: Some(Bytes::copy_from_slice(value)) };
    let comparator = pb::BinaryComparator { comparable };
    pb::Condition {
        row: Bytes::copy_from_slice(row.as_bytes()),
        family: Some("f".into()),
        qualifier: Some(Bytes::copy_from_slice(qualifier.as_bytes())),
        compare_type: Some(pb::CompareType::Equal as i32),
        comparator: Some(pb::Comparator {
            name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
            serialized_comparator: Some(comparator.encode_to_vec().into()),
        }),
        ..Default::default()
    }
}

/// A client's timestamp may be ahead of the clock. The put behind a condition on such a cell was "processed", and hidden by that cell.
#[test]
fn a_put_behind_a_condition_is_not_hidden_by_what_was_checked() {
    let jvm = FakeJvm::new(POST_MUTATE);
    let (lab, dir) = hosted(&jvm, "ahead");
    let ahead = lab.clock.now_ms() + 3_600_000;
    lab.mutate(common::put(1), vec![Cell::put(b"r", b"f", b"q", ahead, b"1")]).unwrap();
    let condition = Some(condition("r", "q", b"1"));
    let mutation = common::put(1);
    let request = pb::MutateRequest { region: lab.specifier(), mutation, condition, nonce_group: None };
    let put = vec![Cell::put(b"r", b"f", b"q", i64::MAX, b"2")];
    let (response, _) = lab.call::<pb::MutateResponse>("Mutate", &request, put).unwrap();
    assert_eq!((response.processed, lab.row("r")), (Some(true), vec!["2".to_string()]));
    let _ = std::fs::remove_dir_all(&dir);
}

/// Large Puts waited for room in the memstores with a place among the calls of coprocessors: a few of them had all places, and reads of
/// all regions with coprocessors were refused.
#[test]
fn a_write_that_waits_for_memstores_has_no_place_among_the_calls_of_the_jvm() {
    let jvm = FakeJvm::new(0);
    let (lab, dir) = hosted_with(&jvm, "waits", |settings| {
        settings.coprocessors.calls_max = 1;
        settings.memstore_share = 0.0; // they are full as soon as somebody looks
        settings.hold_back_max = Duration::from_secs(2);
    });
    let put = || wide_put(1_000, 100);
    let writes: [(&str, Vec<u8>); 3] = [
        ("Mutate", mutate_request(&lab, put(), false).encode_to_vec()),
        ("Multi", multi_request(&lab, vec![put()], false).encode_to_vec()),
        ("ExecService", exec_request(&lab, vec![put()]).encode_to_vec()),
    ];
    for (method, message) in &writes {
        let waits = |at: u32| {
            assert!(at < 1_000, "{method} never waits for memstores");
            let before = lab.server.stats().held_back_count;
            let is_held = || lab.server.stats().held_back_count > before;
            std::thread::scope(|scope| {
                let writing = scope.spawn(|| {
                    let _context = lab.runtime.enter();
                    let call = lab.raw_call(method, message.clone().into(), Vec::new());
                    lab.finish(&lab.client, lab.client.call(call)).is_ok()
                });
                while !is_held() && !writing.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let read = is_held().then(|| lab.get(get("r")).map(drop));
                _ = writing.join().unwrap();
                read
            })
        };
        let read = (0..).find_map(waits).expect("it waits at last");
        assert!(read.is_ok(), "{method}: {read:?}");
    }
    let _ = std::fs::remove_dir_all(&dir);
}
