//! Whatever bytes a client sends: an answer or an exception, and the server lives on.

use std::collections::BTreeMap;

use crate::common::{Lab, get, put};
use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_env::sim::Dice;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::MutationType;
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

/// A row of a scan that was longer than any row can be met an assertion. Each such request cost a panic and left a stack trace in the
/// server's log output.
#[test]
fn sizes_beyond_every_limit_are_answered() {
    let mut answers = BTreeMap::new();
    for len in [0, 1, 254, 255, 256, 32_765, 32_766, 32_767, 32_768, 65_534, 65_535, 65_536, 70_000, 200_000]
    {
        let lab = Lab::new(); // with the scanners that stay open
        lab.put("r", "q", "v");
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        for byte in [0, b'r', 0xff] {
            for (what, method, message, cells) in sized(&lab, &Bytes::from(vec![byte; len])) {
                let call = lab.raw_call(method, message.into(), cells);
                let _context = lab.runtime.enter();
                let answer = lab.finish(&lab.client, lab.client.call(call));
                let class = answer.err().map(|error| error.class.rsplit('.').next().unwrap().to_string());
                if let Some(class) = &class {
                    let is_known =
                        ["DoNotRetryIOException", "NoSuchColumnFamilyException"].contains(&&**class);
                    assert!(is_known, "{what} of {len} bytes: {class}");
                }
                *answers.entry((what, len > 32_767)).or_insert(0) += u32::from(class.is_some());
            }
        }
        lab.put("another", "q", "still here");
        assert_eq!(lab.row("another"), ["still here"]);
        lab.server.flush_region(lab.info.encoded_name(), &[]).unwrap();
        assert_eq!(lab.row("another"), ["still here"]);
    }
    for what in
        ["start row", "stop row", "reversed start row", "row of a get", "row of a condition", "prefix"]
    {
        assert_eq!(answers[&(what, true)], 6 * 3, "{what}: all rows that are too long are refused");
    }
}

type Sized = (&'static str, &'static str, Vec<u8>, Vec<Cell>);

/// Requests in which one part has these bytes.
fn sized(lab: &Lab, bytes: &Bytes) -> Vec<Sized> {
    let (region, part) = (lab.specifier(), || Some(bytes.clone()));
    let scan =
        |what, scan: pb::Scan| -> Sized { (what, "Scan", lab.open(3, scan).encode_to_vec(), Vec::new()) };
    let get = |what, get: pb::Get| -> Sized {
        (what, "Get", pb::GetRequest { region: region.clone(), get }.encode_to_vec(), Vec::new())
    };
    let filter = |name: &str, message: Vec<u8>| pb::Filter {
        name: format!("org.apache.hadoop.hbase.filter.{name}"),
        serialized_filter: Some(message.into()),
    };
    let filtered = |what, name: &str, message: Vec<u8>| {
        let filter = Some(filter(name, message));
        scan(what, pb::Scan { filter, ..Default::default() })
    };
    let column = |family: Bytes, qualifier: Bytes| pb::Column { family, qualifier: vec![qualifier] };
    let (f, q) = (Bytes::from_static(b"f"), Bytes::from_static(b"q"));
    let comparable = pb::ByteArrayComparable { value: part() };
    let comparator = pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_string(),
        serialized_comparator: Some(pb::BinaryComparator { comparable }.encode_to_vec().into()),
    };
    let condition = |row: &Bytes, family: &Bytes, qualifier: &Bytes| pb::Condition {
        row: row.clone(),
        family: Some(family.clone()),
        qualifier: Some(qualifier.clone()),
        compare_type: Some(pb::CompareType::Equal as i32),
        comparator: Some(comparator.clone()),
        ..Default::default()
    };
    let mutation = |what,
                    row: &Bytes,
                    family: &Bytes,
                    qualifier: &Bytes,
                    value: &Bytes,
                    kind,
                    condition|
     -> Sized {
        let value = pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some(qualifier.clone()),
            value: Some(value.clone()),
            ..Default::default()
        };
        let column_value =
            vec![pb::mutation_proto::ColumnValue { family: family.clone(), qualifier_value: vec![value] }];
        let mutation =
            pb::MutationProto { row: Some(row.clone()), column_value, ..crate::common::mutation(kind, 0) };
        let request = pb::MutateRequest { region: region.clone(), mutation, condition, nonce_group: None };
        (what, "Mutate", request.encode_to_vec(), Vec::new())
    };
    let (row, v) = (Bytes::from_static(b"r"), Bytes::from_static(b"v"));
    let (kind, append) = (MutationType::Put, MutationType::Append);
    let ranges = pb::RowRange { start_row: part(), stop_row: None, ..Default::default() };
    let fuzzy = pb::BytesBytesPair { first: bytes.clone(), second: vec![0; bytes.len()].into() };
    vec![
        scan("start row", pb::Scan { start_row: part(), ..Default::default() }),
        scan("stop row", pb::Scan { stop_row: part(), ..Default::default() }),
        scan(
            "reversed start row",
            pb::Scan { start_row: part(), reversed: Some(true), ..Default::default() },
        ),
        scan(
            "exclusive start row",
            pb::Scan { start_row: part(), include_start_row: Some(false), ..Default::default() },
        ),
        scan("one row", pb::Scan { start_row: part(), stop_row: part(), ..Default::default() }),
        scan("qualifier", pb::Scan { column: vec![column(f.clone(), bytes.clone())], ..Default::default() }),
        scan("family", pb::Scan { column: vec![column(bytes.clone(), q.clone())], ..Default::default() }),
        get("row of a get", pb::Get { row: bytes.clone(), ..Default::default() }),
        get(
            "qualifier of a get",
            pb::Get {
                row: row.clone(),
                column: vec![column(f.clone(), bytes.clone())],
                ..Default::default()
            },
        ),
        filtered("prefix", "PrefixFilter", pb::PrefixFilter { prefix: part() }.encode_to_vec()),
        filtered(
            "range",
            "MultiRowRangeFilter",
            pb::MultiRowRangeFilter { row_range_list: vec![ranges] }.encode_to_vec(),
        ),
        filtered(
            "fuzzy row",
            "FuzzyRowFilter",
            pb::FuzzyRowFilter { fuzzy_keys_data: vec![fuzzy], ..Default::default() }.encode_to_vec(),
        ),
        filtered(
            "stop of a filter",
            "InclusiveStopFilter",
            pb::InclusiveStopFilter { stop_row_key: part() }.encode_to_vec(),
        ),
        filtered(
            "column prefix",
            "ColumnPrefixFilter",
            pb::ColumnPrefixFilter { prefix: bytes.clone() }.encode_to_vec(),
        ),
        filtered(
            "column range",
            "ColumnRangeFilter",
            pb::ColumnRangeFilter { min_column: part(), ..Default::default() }.encode_to_vec(),
        ),
        filtered(
            "page of columns",
            "ColumnPaginationFilter",
            pb::ColumnPaginationFilter { limit: 1, column_offset: part(), ..Default::default() }
                .encode_to_vec(),
        ),
        mutation("row of a put", bytes, &f, &q, &v, kind, None),
        mutation("family of a put", &row, bytes, &q, &v, kind, None),
        mutation("qualifier of a put", &row, &f, bytes, &v, kind, None),
        mutation("value of a put", &row, &f, &q, bytes, kind, None),
        mutation("qualifier of an append", &row, &f, bytes, &v, append, None),
        mutation("row of a condition", &row, &f, &q, &v, kind, Some(condition(bytes, &f, &q))),
        mutation("family of a condition", &row, &f, &q, &v, kind, Some(condition(&row, bytes, &q))),
        mutation("qualifier of a condition", &row, &f, &q, &v, kind, Some(condition(&row, &f, bytes))),
    ]
}
