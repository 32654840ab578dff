//! What one call may gather and make, and what it may keep from others.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use halcyon_cell::Cell;
use halcyon_env::FileSystem;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;
use halcyon_regionserver::RegionServerSettings;
use halcyon_rpc::{CallClass, Connection, QueueLimits, Queues, Terms};
use prost::Message;

use crate::common::{Lab, ROOT, class, get, mutation, put, rows, settings};

fn cell(qualifier: &str, value: &[u8]) -> Cell {
    Cell::put(b"r", b"f", qualifier.as_bytes(), i64::MAX, value)
}

fn put_row(lab: &Lab, cells: usize, value: &[u8]) {
    let cells: Vec<Cell> = (0..cells).map(|at| cell(&format!("{at:03}"), value)).collect();
    lab.mutate(put(cells.len() as i32), cells).unwrap();
}

fn multi(lab: &Lab, action: Vec<pb::Action>, cells: Vec<Cell>) -> pb::MultiResponse {
    let action = pb::RegionAction { region: lab.specifier(), atomic: None, action, condition: None };
    let request = pb::MultiRequest { region_action: vec![action], ..Default::default() };
    lab.call("Multi", &request, cells).unwrap().0
}

/// One Get took as much memory as its row has.
#[test]
fn a_row_that_is_too_big_is_an_exception() {
    let mut settings = settings();
    settings.region.row_bytes_max = 10_000;
    let lab = Lab::with(SimFileSystem::new(), settings);
    put_row(&lab, 20, &[7; 1_000]);
    assert_eq!(class(lab.get(get("r"))), "RowTooBigException");
    let whole_rows =
        |lab: &Lab| pb::ScanRequest { client_handles_partials: None, ..lab.open(10, pb::Scan::default()) };
    assert_eq!(class(lab.scan(&whole_rows(&lab))), "RowTooBigException");
    let response = multi(&lab, vec![pb::Action::of_get(0, get("r"))], Vec::new());
    let entry = &response.region_action_result[0].result_or_exception[0];
    assert_eq!(
        entry.exception.as_ref().expect("an exception").name,
        "org.apache.hadoop.hbase.client.RowTooBigException"
    );
    let few = pb::Get { store_limit: Some(5), ..get("r") };
    assert_eq!(lab.get(few).unwrap().1.len(), 5);
}

/// A request of some KiB made gigabytes on the thread that serves connections.
#[test]
fn what_appends_make_goes_to_the_pool() {
    let lab = Lab::new();
    let appends = |count: u32, value: &[u8]| {
        put_row(&lab, 1, value);
        let append = |index| pb::Action::of_mutation(index, mutation(MutationType::Append, 1));
        let pooled = lab.server.counters.pooled.get();
        let response = multi(&lab, (0..count).map(append).collect(), vec![cell("000", b"x"); count as usize]);
        let entries = &response.region_action_result[0].result_or_exception;
        assert!(entries.iter().all(|entry| entry.exception.is_none()), "{entries:?}");
        lab.server.counters.pooled.get() - pooled
    };
    assert_eq!(appends(20, &[7; 1_000]), 0);
    assert_eq!(appends(20, &[7; 300_000]), 1);
    assert_eq!(lab.row("r").concat().len(), 300_020);
}

fn flush(lab: &Lab) -> pb::FlushRegionResponse {
    let request = pb::FlushRegionRequest { region: lab.specifier(), ..Default::default() };
    lab.admin("FlushRegion", &request).unwrap()
}

/// Rows of the region that are in its files: those that another opening finds when it has nothing else.
fn rows_in_files(lab: &Lab) -> Vec<String> {
    let region = &lab.server.regions().find(&lab.specifier()).unwrap().region;
    assert_eq!(region.memstore_size().data_bytes, 0, "nothing is in memory alone");
    rows(&lab.scan(&lab.open(100, pb::Scan::default())).unwrap().1)
}

/// It answered at once that nothing was flushed, which clients pass over: what was acknowledged before it was in memory only. When
/// each of a dozen slept until the flush was over, no thread was left for others.
#[test]
fn a_flush_beside_another_one_writes_what_came_since() {
    let lab = Lab::new();
    lab.put("before", "q", "value");
    let (in_flush, flush_begun) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let calls = Arc::new(AtomicU64::new(0));
    lab.fs.pause_at(lab.fs.calls() + 2, move || {
        in_flush.send(()).unwrap();
        _ = may_go_on.recv_timeout(Duration::from_secs(60));
    });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| flush(&lab));
        flush_begun.recv().unwrap();
        lab.put("between", "q", "value");
        let others: Vec<_> = (0..12)
            .map(|_| {
                let (lab, calls) = (&lab, calls.clone());
                scope.spawn(move || {
                    calls.fetch_add(1, Ordering::Relaxed);
                    flush(lab)
                })
            })
            .collect();
        while calls.load(Ordering::Relaxed) < 12 {
            std::thread::yield_now();
        }
        halcyon_env::Env::real().clock.sleep(Duration::from_millis(200)); // so that they are there
        // A thread of such calls is left.
        let request = pb::UpdateConfigurationRequest::default();
        lab.admin::<pb::UpdateConfigurationResponse>("UpdateConfiguration", &request).unwrap();
        assert!(!first.is_finished() && others.iter().all(|other| !other.is_finished()), "they wait");
        go_on.send(()).unwrap();
        assert_eq!(first.join().unwrap().flushed, Some(true));
        let flushed: Vec<_> = others.into_iter().map(|other| other.join().unwrap().flushed).collect();
        assert!(flushed.contains(&Some(true)), "{flushed:?}");
    });
    assert_eq!(rows_in_files(&lab), ["before", "between"]);
    assert_eq!(flush(&lab).flushed, Some(false), "nothing was left");
}

/// As [`Lab::new`], with room for so many bytes of answers, and one who may take some of it.
pub fn with_room_for(answer_bytes_max: usize, result_bytes_max: u64) -> (Lab, Arc<Queues>, Terms) {
    let settings = RegionServerSettings { memory_bytes: 512 << 20, result_bytes_max, ..settings() };
    let lab = Lab::with(SimFileSystem::new(), settings);
    let queues = Queues::new(QueueLimits { answer_bytes_max, ..QueueLimits::new(1_000, 64 << 20) });
    lab.server.serve_behind(queues.clone(), lab.runtime.handle().clone());
    let other = Terms {
        class: CallClass::Write,
        deadline_ns: u64::MAX,
        connection: Arc::new(Connection::new(7, "127.0.0.1:10")),
        call_id: 1,
        is_traced: false,
        attributes: Vec::new(),
    };
    (lab, queues, other)
}

/// A row of 34 MB, which asks twice for room.
fn put_large_row(lab: &Lab) {
    for at in 0..34 {
        let cells = (0..10).map(|of| cell(&format!("{at:02}{of}"), &[7; 100_000])).collect();
        lab.mutate(put(10), cells).unwrap();
    }
}

/// What it had announced was counted as if it were another's, and it was told that there was no room whenever it came.
#[test]
fn a_multi_does_not_stand_in_its_own_way() {
    let (lab, queues, other) = with_room_for(40 << 20, 20 << 20);
    put_large_row(&lab);
    let first = |lab: &Lab| {
        let response = multi(lab, vec![pb::Action::of_get(0, get("r"))], Vec::new());
        response.region_action_result[0].result_or_exception[0].clone()
    };
    let entry = first(&lab);
    assert_eq!(entry.exception, None);
    assert_eq!(entry.result.and_then(|result| result.associated_cell_count), Some(340));
    assert_eq!(queues.reserved_bytes(), 0, "all is given back");
    let held = queues.reserve(&other, 10 << 20).unwrap();
    let refused = first(&lab).exception.expect("another has some of it");
    assert!(refused.name.ends_with("RegionTooBusyException"), "{}", refused.name);
    drop(held);
    assert_eq!(queues.reserved_bytes(), 0);
}

/// A filter that looks at whole rows gets them as a whole, also for a client that takes parts of rows.
#[test]
fn a_scan_with_a_filter_of_rows_asks_for_room() {
    let (lab, queues, other) = with_room_for(40 << 20, 2 << 20);
    put_large_row(&lab);
    let comparable = pb::ByteArrayComparable { value: Some("v".into()) };
    let comparator = pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
        serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
    };
    let filter = pb::SingleColumnValueFilter {
        column_family: Some("f".into()),
        column_qualifier: Some("none".into()),
        compare_op: pb::CompareType::Equal as i32,
        comparator,
        filter_if_missing: Some(false),
        latest_version_only: Some(true),
    };
    let filter = pb::Filter {
        name: "org.apache.hadoop.hbase.filter.SingleColumnValueFilter".to_string(),
        serialized_filter: Some(filter.encode_to_vec().into()),
    };
    let open = |rows| lab.open(rows, pb::Scan { filter: Some(filter.clone()), ..Default::default() });
    let read = || lab.scan(&open(10)).map(|(_, cells)| cells.len());
    assert_eq!(read().unwrap(), 340, "alone it gets what it needs");
    let id = lab.scan(&open(0)).unwrap().0.scanner_id;
    let held = queues.reserve(&other, 10 << 20).unwrap();
    assert_eq!(class(read()), "RegionTooBusyException");
    let next = pb::ScanRequest { region: None, scan: None, scanner_id: id, ..open(10) };
    let refused = lab.scan(&next).map(drop).expect_err("an open scanner asks as well");
    assert!(refused.message.contains("no room for a row"), "{refused}");
    drop(held);
    assert_eq!(read().unwrap(), 340);
    assert_eq!(queues.reserved_bytes(), 0);
}

/// A client that takes no parts of rows got rows of any size, beyond what its call had announced.
#[test]
fn a_scan_of_whole_rows_asks_for_room() {
    let (lab, queues, other) = with_room_for(40 << 20, 20 << 20);
    put_large_row(&lab);
    let whole_rows = pb::ScanRequest { client_handles_partials: None, ..lab.open(10, pb::Scan::default()) };
    assert_eq!(lab.scan(&whole_rows).unwrap().1.len(), 340, "alone");
    let held = queues.reserve(&other, 10 << 20).unwrap();
    assert_eq!(class(lab.scan(&whole_rows)), "RegionTooBusyException");
    let parts = lab.open(10, pb::Scan::default());
    assert!(lab.scan(&parts).unwrap().1.len() < 340, "parts fit into what was announced");
    drop(held);
    assert_eq!(queues.reserved_bytes(), 0);
}

/// All cells that pass the filter of a condition stood in memory, in no account.
#[test]
fn a_condition_on_a_large_row_asks_for_room() {
    let (lab, queues, other) = with_room_for(20 << 20, 2 << 20);
    put_large_row(&lab);
    let filter = pb::Filter {
        name: "org.apache.hadoop.hbase.filter.PrefixFilter".to_string(),
        serialized_filter: Some((&b"\x0a\x01r"[..]).into()),
    };
    let condition = pb::Condition { row: "r".into(), filter: Some(filter), ..Default::default() };
    let check = || {
        let request = pb::MutateRequest {
            region: lab.specifier(),
            mutation: put(1),
            condition: Some(condition.clone()),
            nonce_group: None,
        };
        let checked = lab.call::<pb::MutateResponse>("Mutate", &request, vec![cell("z", b"v")]);
        checked.map(|(response, _)| response.processed)
    };
    assert_eq!(check().unwrap(), Some(true), "alone it gets what it needs");
    let held = queues.reserve(&other, 10 << 20).unwrap();
    assert_eq!(class(check()), "RegionTooBusyException");
    drop(held);
    assert_eq!(check().unwrap(), Some(true));
    assert_eq!(queues.reserved_bytes(), 0);
}

/// An atomic batch could answer with all that the log takes, and nothing was kept for that.
#[test]
fn an_atomic_batch_has_a_limit_for_its_results() {
    let lab = Lab::with(SimFileSystem::new(), RegionServerSettings { result_bytes_max: 5_000, ..settings() });
    put_row(&lab, 1, &[7; 1_000]);
    let entries = |count: u32, quiet: bool| {
        let no_results = pb::NameBytesPair { name: "_rr_".to_string(), value: Some(vec![0].into()) };
        let attribute = if quiet { vec![no_results] } else { Vec::new() };
        let append = pb::MutationProto { attribute, ..mutation(MutationType::Append, 1) };
        let action: Vec<_> = (0..count).map(|index| pb::Action::of_mutation(index, append.clone())).collect();
        let action =
            pb::RegionAction { region: lab.specifier(), atomic: Some(true), action, condition: None };
        let request = pb::MultiRequest { region_action: vec![action], ..Default::default() };
        let cells = vec![cell("000", b"x"); count as usize];
        lab.call::<pb::MultiResponse>("Multi", &request, cells).unwrap().0.region_action_result.remove(0)
    };
    let refused = entries(10, false).exception.expect("too much");
    assert!(refused.name.ends_with("DoNotRetryIOException"), "{}", refused.name);
    assert_eq!(lab.row("r").concat().len(), 1_000, "nothing of it was done");
    assert_eq!(entries(4, false).exception, None);
    assert_eq!(entries(10, true).exception, None, "who wants no results gets none");
    assert_eq!(lab.row("r").concat().len(), 1_002);
}

/// An event loop looked at each of a million paths, before their number was.
#[test]
fn a_bulk_load_of_too_many_files_is_refused_at_once() {
    let lab = Lab::new();
    let path = || pb::bulk_load_h_file_request::FamilyPath { family: "f".into(), path: "/hbase/x".into() };
    let request = |count: usize| pb::BulkLoadHFileRequest {
        region: lab.specifier(),
        family_path: (0..count).map(|_| path()).collect(),
        ..Default::default()
    };
    let load = |count| {
        let before = lab.server.counters.pooled.get();
        let loaded = lab.call::<pb::BulkLoadHFileResponse>("BulkLoadHFile", &request(count), Vec::new());
        (loaded.map(drop).expect_err("there is no such file"), lab.server.counters.pooled.get() - before)
    };
    let (error, pooled) = load(10_001);
    assert_eq!(pooled, 0, "{error}");
    assert!(error.do_not_retry && error.message.contains("10001"), "{error}");
    assert_eq!(load(2).1, 1);
}

/// Each such call copied the file, and the region had its cells once more.
#[test]
fn a_region_does_not_load_its_own_files() {
    let lab = Lab::new();
    lab.put("r", "q", "value");
    let request = pb::FlushRegionRequest { region: lab.specifier(), ..Default::default() };
    lab.admin::<pb::FlushRegionResponse>("FlushRegion", &request).unwrap();
    let dir = format!("{ROOT}/data/default/t/{}/f", lab.info.encoded_name());
    let files = lab.fs.list(Path::new(&dir)).unwrap();
    let file = files.iter().find(|entry| !entry.is_dir).expect("it was flushed");
    let path = format!("{dir}/{}", file.name);
    let family_path = pb::bulk_load_h_file_request::FamilyPath { family: "f".into(), path };
    let request = pb::BulkLoadHFileRequest {
        region: lab.specifier(),
        family_path: vec![family_path],
        assign_seq_num: Some(true),
        ..Default::default()
    };
    let loaded = lab.call::<pb::BulkLoadHFileResponse>("BulkLoadHFile", &request, Vec::new());
    assert_eq!(class(loaded), "DoNotRetryIOException");
    let now = lab.fs.list(Path::new(&dir)).unwrap();
    assert_eq!(now.iter().filter(|entry| !entry.is_dir).count(), 1);
}
