//! Whatever bytes a client sends: an answer or an exception, and the server lives on.

use crate::common::{Lab, get, put};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::sim::Dice;
use halcyon_proto::pb;
use halcyon_rpc::Service;
use prost::Message;

/// Damage that repeats itself from its seed.
struct Random(Dice);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit.max(1))
    }
}

fn requests(lab: &Lab) -> Vec<(&'static str, Vec<u8>)> {
    let region = lab.specifier();
    let mutation = pb::MutationProto { row: Some("r".into()), nonce: Some(3), ..put(1) };
    let filter = pb::Filter {
        name: "org.apache.hadoop.hbase.filter.PageFilter".to_string(),
        serialized_filter: Some(pb::PageFilter { page_size: 3 }.encode_to_vec().into()),
    };
    let column = pb::Column { family: "f".into(), qualifier: vec!["q".into()] };
    let full_get = pb::Get { column: vec![column.clone()], filter: Some(filter.clone()), ..get("r") };
    let action = |mutation: Option<pb::MutationProto>, get: Option<pb::Get>| pb::Action {
        index: Some(1),
        mutation: mutation.map(Box::new),
        get: get.map(Box::new),
        service_call: None,
    };
    let actions = vec![action(Some(mutation.clone()), None), action(None, Some(full_get.clone()))];
    let region_action =
        pb::RegionAction { region: region.clone(), atomic: None, action: actions, condition: None };
    let scan =
        pb::Scan { column: vec![column], filter: Some(filter), batch_size: Some(2), ..Default::default() };
    vec![
        ("Get", pb::GetRequest { region: region.clone(), get: full_get }.encode_to_vec()),
        (
            "Mutate",
            pb::MutateRequest { region, mutation, condition: None, nonce_group: Some(1) }.encode_to_vec(),
        ),
        (
            "Multi",
            pb::MultiRequest { region_action: vec![region_action], ..Default::default() }.encode_to_vec(),
        ),
        ("Scan", lab.open(3, scan).encode_to_vec()),
    ]
}

#[test]
fn damaged_parameters_never_panic() {
    let lab = Lab::new();
    lab.put("r", "q", "v");
    let mut random = Random(Dice::new(0x5eed));
    for (method, bytes) in requests(&lab) {
        for _ in 0..600 {
            let mut damaged = bytes.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(damaged.len());
                match random.below(4) {
                    0 => damaged[at] = random.next() as u8,
                    1 => damaged[at] ^= 1 << random.below(8),
                    2 => damaged.truncate(at + 1),
                    _ => damaged.insert(at, random.next() as u8),
                }
            }
            let cells = vec![Cell::put(b"r", b"f", b"q", i64::MAX, b"w")];
            let call = lab.raw_call(method, Bytes::from(damaged), cells);
            let _answer = lab.finish(&lab.client, lab.client.call(call));
        }
    }
    lab.put("another", "q", "still here");
    assert_eq!(lab.row("another"), ["still here"]);
}

#[test]
fn noise_is_refused_by_every_method() {
    let lab = Lab::new();
    let mut random = Random(Dice::new(0xbad));
    let methods = ["Get", "Mutate", "Multi", "Scan", "ExecService", "BulkLoadHFile"];
    let admin = [
        "GetRegionInfo",
        "FlushRegion",
        "CompactRegion",
        "CompactionSwitch",
        "GetRegionLoad",
        "GetLogEntries",
        "ReplicateWALEntry",
    ];
    for round in 0..300 {
        let noise: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
        let call = lab.raw_call(methods[round % methods.len()], noise.clone().into(), Vec::new());
        let _answer = lab.finish(&lab.client, lab.client.call(call));
        let call = lab.raw_call(admin[round % admin.len()], noise.into(), Vec::new());
        let _answer = lab.finish(&lab.admin, lab.admin.call(call));
    }
    lab.put("r", "q", "still here");
}

/// A damaged request may be applied or refused; cells that nobody counts are never written.
#[test]
fn damaged_entries_of_replication_never_panic() {
    let lab = Lab::new();
    let mut random = Random(Dice::new(0x4e91));
    let key = pb::WalKey { table_name: "t".into(), encoded_region_name: "r".into(), ..Default::default() };
    let id = pb::Uuid { least_sig_bits: 1, most_sig_bits: 2 };
    let key = pb::WalKey { cluster_ids: vec![id], write_time: 7, log_sequence_number: 9, ..key };
    let entry = pb::WalEntry { key, associated_cell_count: Some(2), ..Default::default() };
    let bytes = pb::ReplicateWalEntryRequest { entry: vec![entry], ..Default::default() }.encode_to_vec();
    for _ in 0..600 {
        let mut damaged = bytes.clone();
        for _ in 0..=random.below(4) {
            let at = random.below(damaged.len());
            match random.below(3) {
                0 => damaged[at] = random.next() as u8,
                1 => damaged[at] ^= 1 << random.below(8),
                _ => damaged.truncate(at + 1),
            }
        }
        let cells = vec![Cell::put(b"r", b"f", b"q", 5, b"w"), Cell::put(b"s", b"f", b"q", 5, b"w")];
        let call = lab.raw_call("ReplicateWALEntry", Bytes::from(damaged), cells);
        let _answer = lab.finish(&lab.admin, lab.admin.call(call));
    }
    lab.put("another", "q", "still here");
    assert_eq!(lab.row("another"), ["still here"]);
}
