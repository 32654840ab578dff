//! What a traced call tells when it has ended: region, lookups of blocks, and where its time went.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::{Lab, get, put};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::{Call, CallClass, CallParts, NotedCall, Service};
use prost::Message;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The end of a call with number 1, as the RPC layer tells of it: 20 ms on the thread of which 12 ms were the batch's, and 30 ms
/// put aside.
fn noted<'a>(lab: &'a Lab, method: &'a str, param: &'a Bytes) -> NotedCall<'a> {
    NotedCall {
        connection: &lab.connection,
        class: if method == "Get" { CallClass::Read } else { CallClass::Write },
        call_id: 1,
        method,
        param,
        failed: false,
        response_bytes: 10,
        thread_ns: 20_000_000,
        waited_ns: 30_000_000,
        network_ns: 1_000_000,
        is_traced: true,
        batch_ns: 12_000_000,
    }
}

fn attributes(parts: &CallParts) -> HashMap<String, String> {
    parts.attributes.iter().map(|found| (found.key.to_string(), found.value.to_string())).collect()
}

fn times(parts: &CallParts) -> HashMap<&str, Duration> {
    parts.before.iter().chain(&parts.within).map(|part| (part.name, part.time)).collect()
}

fn get_param(lab: &Lab, row: &str) -> Bytes {
    pb::GetRequest { region: lab.specifier(), get: get(row) }.encode_to_vec().into()
}

/// Carries out a Get, and ends it as a traced call.
fn parts_of_get(lab: &Lab, is_traced: bool) -> CallParts {
    let param = get_param(lab, "r");
    let _context = lab.runtime.enter();
    let call = Call { is_traced, ..lab.raw_call("Get", param.clone(), Vec::new()) };
    lab.finish(&lab.client, lab.client.call(call)).unwrap();
    lab.client.noted(&noted(lab, "Get", &param))
}

#[test]
fn a_write_waits_for_the_wal_also_on_the_network_thread() {
    let lab = Lab::new();
    let mutation = pb::MutationProto { row: Some("r".into()), ..put(1) };
    let request = pb::MutateRequest { region: lab.specifier(), mutation, ..Default::default() };
    let param = Bytes::from(request.encode_to_vec());
    let parts = lab.client.noted(&noted(&lab, "Mutate", &param));
    assert_eq!(times(&parts)["WAL.sync"], ms(12 + 30));
    let attributes = attributes(&parts);
    assert_eq!((&*attributes["db.system"], &*attributes["db.hbase.table"]), ("hbase", "t"));
    assert!(attributes["db.hbase.regions"].contains(lab.info.encoded_name()), "{attributes:?}");
    assert!(!attributes.contains_key("db.hbase.io.block_cache_hits"), "it looked for no block");
    assert_eq!(lab.server.slow_calls(), [], "traced is not slow");
    let slow = NotedCall { waited_ns: 11_000_000_000, ..noted(&lab, "Mutate", &param) };
    assert_eq!(times(&lab.client.noted(&slow))["WAL.sync"], ms(11_012));
    assert_eq!(lab.server.slow_calls().len(), 1, "it may be both");
    let untraced = NotedCall { is_traced: false, ..slow };
    assert_eq!(lab.client.noted(&untraced), CallParts::default());
}

#[test]
fn lookups_of_blocks_are_counted_for_traced_calls() {
    let lab = Lab::new();
    lab.put("r", "q", "v");
    lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
    let counts = |parts: &CallParts| {
        let attributes = attributes(parts);
        let count = |name: &str| attributes.get(name).map_or(0, |text| text.parse::<u64>().unwrap());
        (count("db.hbase.io.block_cache_hits"), count("db.hbase.io.block_cache_misses"))
    };
    let (_, misses) = counts(&parts_of_get(&lab, true));
    assert!(misses > 0, "the block was not read before");
    let (hits, misses) = counts(&parts_of_get(&lab, true));
    assert!(hits > 0 && misses == 0, "{hits} hits, {misses} misses");
    assert_eq!(counts(&parts_of_get(&lab, false)), (0, 0), "nothing is counted of other calls");
    let cell = Cell::put(b"r", b"f", b"q", i64::MAX, b"v");
    lab.mutate(put(1), vec![cell]).unwrap();
    assert_eq!(counts(&parts_of_get(&lab, true)).1, 0);
}
