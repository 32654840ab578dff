//! The orderly end of a server.

#![allow(clippy::disallowed_methods)] // threads of the test itself

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{Lab, put, settings, table};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_regionserver::RegionServerSettings;
use halcyon_rpc::{Outcome, ReplyFuture, Service};
use halcyon_schema::RegionInfo;
use halcyon_wal::SyncMode;
use prost::Message;

/// Advances the clock of a lab until it is dropped.
struct Ticking {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticking {
    fn start(lab: &Lab) -> Ticking {
        let is_over = Arc::new(AtomicBool::new(false));
        let (clock, until) = (lab.clock.clone(), is_over.clone());
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                clock.advance(Duration::from_millis(10));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Ticking { is_over, thread: Some(thread) }
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// What takes longer hangs.
const TIME_MAX: Duration = Duration::from_secs(30);

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < TIME_MAX, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Calls a put of this row.
fn put_in(lab: &Lab, region: &RegionInfo, row: &str) -> Outcome {
    let region = pb::RegionSpecifier { r#type: 1, value: region.region_name().clone() };
    let request = pb::MutateRequest { region, mutation: put(1), condition: None, nonce_group: Some(1) };
    let cell = Cell::put(row.as_bytes(), b"f", b"q", i64::MAX, b"v");
    lab.client.call(lab.raw_call("Mutate", request.encode_to_vec().into(), vec![cell]))
}

/// The answer of a put of row `late`, which waits for the WAL.
fn pending_put(lab: &Lab, region: &RegionInfo) -> ReplyFuture {
    let Outcome::Later(answer) = put_in(lab, region, "late") else {
        panic!("no DataNode answers, so the put waits")
    };
    answer
}

/// The story: the thread that writes the WAL ended at the first moment of a stop. What calls had appended before was never written
/// when the WAL stood still in that moment, and the last flush of the region waited for it for ever.
#[test]
fn a_server_that_stops_writes_what_was_appended_when_the_wal_stood_still() {
    for seed in 0..4 {
        let fs = SimFileSystem::hdfs(seed);
        let settings = RegionServerSettings { wal_sync: SyncMode::Remote, ..settings() };
        let lab = Lab::with(fs.clone(), settings.clone());
        lab.put("before", "q", "v");
        let nodes = |are_up| (0..4).for_each(|node| fs.set_data_node(node, are_up));
        nodes(false);
        let context = lab.runtime.enter();
        let answer = pending_put(&lab, &lab.info);
        let ticking = Ticking::start(&lab);
        let stopping = {
            let server = lab.server.clone();
            std::thread::spawn(move || server.stop())
        };
        std::thread::sleep(Duration::from_millis(100));
        assert!(!stopping.is_finished(), "seed {seed}: the region cannot be flushed");
        nodes(true);
        wait_for(&format!("seed {seed}: the server ends"), || stopping.is_finished());
        stopping.join().unwrap().unwrap();
        drop(ticking);
        assert!(lab.runtime.block_on(answer).is_ok(), "seed {seed}");
        drop(context);
        drop(lab);
        let lab = Lab::with(fs, settings);
        for row in ["before", "late"] {
            assert_eq!(lab.get(common::get(row)).unwrap().1.len(), 1, "seed {seed}: {row}");
        }
    }
}

/// The story: a server that was stopped while it was cut off could not close its first region, and gave up. The WAL's thread
/// ended, and the close of the next region waited for ever for a write that nobody wrote.
#[test]
fn a_server_that_gives_up_while_it_stops_ends() {
    for seed in 0..4 {
        let fs = SimFileSystem::hdfs(seed);
        let settings = RegionServerSettings { wal_sync: SyncMode::Remote, ..settings() };
        let lab = Lab::with(fs.clone(), settings.clone());
        let context = lab.runtime.enter();
        for (id, start) in (2..).zip(["a", "b", "c", "d", "e", "f", "g"]) {
            let info = RegionInfo::new(lab.info.table().clone(), start.into(), Bytes::new(), id);
            lab.server.region_files().create_region_files(&info, &table()).unwrap();
            lab.server.open_region(&info, &table().into()).unwrap();
            lab.finish(&lab.client, put_in(&lab, &info, "h")).unwrap();
        }
        lab.put("before", "q", "v");
        let nodes = |are_up| (0..4).for_each(|node| fs.set_data_node(node, are_up));
        nodes(false);
        let answer = pending_put(&lab, &lab.info);
        // Regions are closed in no order. One with cells in memory cannot be flushed, as no DataNode takes the file.
        let ticking = Ticking::start(&lab);
        let stopping = {
            let server = lab.server.clone();
            std::thread::spawn(move || server.stop())
        };
        wait_for(&format!("seed {seed}: the server ends"), || stopping.is_finished());
        assert!(stopping.join().unwrap().is_err(), "seed {seed}: a region could not be closed");
        assert!(lab.server.failure().is_some(), "seed {seed}");
        drop(ticking);
        let told = lab.runtime.block_on(async { tokio::time::timeout(TIME_MAX, answer).await });
        assert!(told.is_ok_and(|told| told.is_err()), "seed {seed}: the put fails: nothing was written");
        drop(context);
        drop(lab);
        nodes(true);
        let lab = Lab::with(fs, settings);
        assert_eq!(lab.get(common::get("before")).unwrap().1.len(), 1, "seed {seed}");
    }
}

/// The WALs hold what is in memory, so a stop leaves them there.
#[test]
fn a_server_that_has_given_up_leaves_its_wals_when_it_is_stopped() {
    let fs = SimFileSystem::new();
    let lab = Lab::with(fs.clone(), settings());
    lab.put("before", "q", "v");
    lab.server.give_up("the test says so");
    let said = lab.server.stop().unwrap_err().to_string();
    assert!(said.contains("has given up: the test says so"), "{said}");
    drop(lab);
    let lab = Lab::with(fs, settings());
    assert_eq!(lab.get(common::get("before")).unwrap().1.len(), 1);
}
