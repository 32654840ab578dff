//! The orderly end of a server.

#![allow(clippy::disallowed_methods)] // threads of the test itself

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Lab, put, settings};
use halcyon_cell::Cell;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_regionserver::RegionServerSettings;
use halcyon_rpc::{Outcome, Service};
use halcyon_wal::SyncMode;
use prost::Message;

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
        let region = lab.specifier();
        let request = pb::MutateRequest { region, mutation: put(1), condition: None, nonce_group: Some(1) };
        let cell = Cell::put(b"late", b"f", b"q", i64::MAX, b"v");
        let outcome = lab.client.call(lab.raw_call("Mutate", request.encode_to_vec().into(), vec![cell]));
        let Outcome::Later(answer) = outcome else { panic!("seed {seed}: no DataNode answers") };
        let is_over = Arc::new(AtomicBool::new(false));
        let ticking = {
            let (clock, is_over) = (lab.clock.clone(), is_over.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    clock.advance(Duration::from_millis(10));
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        };
        let stopping = {
            let server = lab.server.clone();
            std::thread::spawn(move || server.stop())
        };
        std::thread::sleep(Duration::from_millis(100));
        assert!(!stopping.is_finished(), "seed {seed}: the region cannot be flushed");
        nodes(true);
        let began = Instant::now();
        while !stopping.is_finished() && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(stopping.is_finished(), "seed {seed}: the server does not end");
        stopping.join().unwrap().unwrap();
        is_over.store(true, Ordering::Relaxed);
        ticking.join().unwrap();
        assert!(lab.runtime.block_on(answer).is_ok(), "seed {seed}");
        drop(context);
        drop(lab);
        let lab = Lab::with(fs, settings);
        for row in ["before", "late"] {
            assert_eq!(lab.get(common::get(row)).unwrap().1.len(), 1, "seed {seed}: {row}");
        }
    }
}
