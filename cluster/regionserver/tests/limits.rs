//! What one call may gather and make, and what it may keep from others.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use halcyon_cell::Cell;
use halcyon_env::FileSystem;
use halcyon_env::sim::{Operation, SimFileSystem};
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;

use crate::common::{Lab, ROOT, class, get, mutation, put, settings};

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

/// A dozen of them slept until the flush was over, and no thread was left for writers.
#[test]
fn a_flush_does_not_wait_for_another_one() {
    let lab = Lab::new();
    lab.put("r", "q", "value");
    let (in_flush, flush_begun) = channel();
    let (answered, is_answered) = channel();
    let waited = Arc::new(AtomicBool::new(false));
    let has_waited = waited.clone();
    lab.fs.interrupt(Operation::Create, ".tmp", move || {
        in_flush.send(()).unwrap();
        let in_time = is_answered.recv_timeout(Duration::from_secs(30)).is_ok();
        has_waited.store(!in_time, Ordering::Relaxed);
    });
    let flush = || {
        let request = pb::FlushRegionRequest { region: lab.specifier(), ..Default::default() };
        lab.admin::<pb::FlushRegionResponse>("FlushRegion", &request).unwrap()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(flush);
        flush_begun.recv().unwrap();
        assert_eq!(flush().flushed, Some(false));
        _ = answered.send(());
        assert_eq!(first.join().unwrap().flushed, Some(true));
    });
    assert!(!waited.load(Ordering::Relaxed), "the second call waited for the first one");
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
