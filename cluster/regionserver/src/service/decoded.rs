//! What the message of a call becomes when it is decoded, told without decoding it.
//!
//! An empty part of a message has two bytes, and what is made of it has up to some hundred. So the parts that may be there many
//! times are counted where the protocol has them, each with the size of what it becomes. Of other calls, and of what a method
//! does not know, nothing is made but what is as long as its bytes.

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::ColumnValue;
use halcyon_proto::pb::mutation_proto::column_value::QualifierValue;
use halcyon_rpc::CallHead;

use super::class::{Fields, Value};

/// Filters are within filters. What is as deep as this is taken for the worst that it can be.
const DEPTH_MAX: usize = 16;

/// A field of bytes that makes something of its own each time it is there.
struct Part {
    field: u64,
    /// Size of what is made, beside what its own parts make.
    bytes: usize,
    parts: &'static [Part],
}

const fn part(field: u64, bytes: usize, parts: &'static [Part]) -> Part {
    Part { field, bytes, parts }
}

/// `Filter { serialized_filter = 2 }`
static FILTER: [Part; 1] = [part(2, 0, &FILTERS)];
/// `FuzzyRowFilter { fuzzy_keys_data = 1 }`, `MultiRowRangeFilter { row_range_list = 1 }`, `FilterList { filters = 2 }`
static FILTERS: [Part; 2] =
    [part(1, size_of::<pb::RowRange>(), &[]), part(2, size_of::<pb::Filter>(), &FILTER)];
/// `Condition { filter = 7 }`
static CONDITION: [Part; 1] = [part(7, 0, &FILTER)];
/// `Column { qualifier = 2 }`
static COLUMN: [Part; 1] = [part(2, size_of::<Bytes>(), &[])];
/// `ColumnValue { qualifier_value = 2 }`
static COLUMN_VALUE: [Part; 1] = [part(2, size_of::<QualifierValue>(), &[])];
/// `MutationProto { column_value = 3, attribute = 5 }`
static MUTATION: [Part; 2] =
    [part(3, size_of::<ColumnValue>(), &COLUMN_VALUE), part(5, size_of::<pb::NameBytesPair>(), &[])];
/// `Get { column = 2, attribute = 3, filter = 4, cf_time_range = 13 }`
static GET: [Part; 4] = [
    part(2, size_of::<pb::Column>(), &COLUMN),
    part(3, size_of::<pb::NameBytesPair>(), &[]),
    part(4, 0, &FILTER),
    part(13, size_of::<pb::ColumnFamilyTimeRange>(), &[]),
];
/// `Scan { column = 1, attribute = 2, filter = 5, cf_time_range = 19 }`
static SCAN: [Part; 4] = [
    part(1, size_of::<pb::Column>(), &COLUMN),
    part(2, size_of::<pb::NameBytesPair>(), &[]),
    part(5, 0, &FILTER),
    part(19, size_of::<pb::ColumnFamilyTimeRange>(), &[]),
];
/// `Action { mutation = 2, get = 3, service_call = 4 }`, each in an allocation of its own.
static ACTION: [Part; 3] = [
    part(2, size_of::<pb::MutationProto>(), &MUTATION),
    part(3, size_of::<pb::Get>(), &GET),
    part(4, size_of::<pb::CoprocessorServiceCall>(), &CALL),
];
/// `RegionAction { action = 3, condition = 4 }`
static REGION_ACTION: [Part; 2] = [part(3, size_of::<pb::Action>(), &ACTION), part(4, 0, &CONDITION)];
/// `CoprocessorServiceCall { request = 4 }`
static CALL: [Part; 1] = [part(4, 0, &ENDPOINT)];
/// `MutateRowsRequest { mutation_request = 1, condition = 5 }`, `BulkDeleteRequest { scan = 1 }`, `AggregateRequest { scan = 2 }`
static ENDPOINT: [Part; 4] = [
    part(1, size_of::<pb::MutationProto>(), &MUTATION),
    part(1, 0, &SCAN),
    part(2, 0, &SCAN),
    part(5, size_of::<pb::Condition>(), &CONDITION),
];
/// `WALKey { scopes = 6, cluster_ids = 8, extended_attributes = 12 }`
static WAL_KEY: [Part; 3] = [
    part(6, size_of::<pb::FamilyScope>(), &[]),
    part(8, size_of::<pb::Uuid>(), &[]),
    part(12, size_of::<pb::Attribute>(), &[]),
];
/// `WALEntry { key = 1, key_value_bytes = 2 }`
static WAL_ENTRY: [Part; 2] = [part(1, 0, &WAL_KEY), part(2, size_of::<Bytes>(), &[])];

/// `MultiRequest { region_action = 1, condition = 3 }`
static MULTI_CALL: [Part; 2] =
    [part(1, size_of::<pb::RegionAction>(), &REGION_ACTION), part(3, 0, &CONDITION)];
/// `GetRequest { get = 2 }`
static GET_CALL: [Part; 1] = [part(2, 0, &GET)];
/// `MutateRequest { mutation = 2, condition = 3 }`
static MUTATE_CALL: [Part; 2] = [part(2, 0, &MUTATION), part(3, 0, &CONDITION)];
/// `ScanRequest { scan = 2 }`
static SCAN_CALL: [Part; 1] = [part(2, 0, &SCAN)];
/// `CoprocessorServiceRequest { call = 2 }`
static EXEC_CALL: [Part; 1] = [part(2, 0, &CALL)];
/// `ReplicateWALEntryRequest { entry = 1 }`
static REPLICATE_CALL: [Part; 1] = [part(1, size_of::<pb::WalEntry>(), &WAL_ENTRY)];

/// What the message of a call becomes when it is decoded, in bytes, beside its own, which stay as they are.
pub(super) fn decoded_bytes(head: &CallHead<'_>) -> usize {
    let parts: &[Part] = match head.method {
        "Multi" => &MULTI_CALL,
        "Get" => &GET_CALL,
        "Mutate" => &MUTATE_CALL,
        "Scan" => &SCAN_CALL,
        "ExecService" | "ExecRegionServerService" => &EXEC_CALL,
        "ReplicateWALEntry" => &REPLICATE_CALL,
        _ => return 0,
    };
    made_of(head.param, parts, DEPTH_MAX)
}

fn made_of(message: &[u8], parts: &[Part], depth: usize) -> usize {
    if depth == 0 {
        return (message.len() / 2).saturating_mul(size_of::<pb::Filter>());
    }
    let mut bytes = 0usize;
    for (field, value) in Fields(message) {
        let Value::Bytes(value) = value else { continue };
        for part in parts.iter().filter(|part| part.field == field) {
            bytes = bytes.saturating_add(part.bytes);
            if !part.parts.is_empty() && !value.is_empty() {
                bytes = bytes.saturating_add(made_of(value, part.parts, depth - 1));
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn decoded(method: &str, param: &[u8]) -> usize {
        decoded_bytes(&CallHead { method, priority: 0, param })
    }

    /// A field of bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        prost::encoding::encode_varint(content.len() as u64, &mut out);
        out.extend_from_slice(content);
        out
    }

    /// Two bytes for each region action, and two for each action in it.
    #[test]
    fn a_message_of_empty_actions_is_seen_for_what_it_becomes() {
        let empty = [0x0a, 0].repeat(1_000);
        assert_eq!(decoded("Multi", &empty), 1_000 * size_of::<pb::RegionAction>());
        let actions = [&[0x0a, 100][..], &[0x1a, 0].repeat(50)].concat();
        assert_eq!(decoded("Multi", &actions), size_of::<pb::RegionAction>() + 50 * size_of::<pb::Action>());
        assert_eq!(decoded("ReplicateWALEntry", &empty), 1_000 * size_of::<pb::WalEntry>());
        assert_eq!(decoded("Get", &empty), 0);
        assert_eq!(decoded("GetOnlineRegion", &empty), 0);
    }

    /// Frames of 56 MB became gigabytes of nothing on the event loop.
    #[test]
    fn empty_parts_of_every_call_are_seen_for_what_they_become() {
        let empty = |number: u8| [number << 3 | 2, 0].repeat(1_000);
        let values = field(3, &empty(2));
        let mutation = 1_000 * size_of::<QualifierValue>() + size_of::<ColumnValue>();
        assert_eq!(decoded("Mutate", &field(2, &values)), mutation);
        assert_eq!(decoded("Get", &field(2, &field(2, &empty(2)))), 32_000 + size_of::<pb::Column>());
        assert_eq!(decoded("Get", &field(2, &empty(3))), 1_000 * size_of::<pb::NameBytesPair>());
        assert_eq!(decoded("Scan", &field(2, &empty(1))), 1_000 * size_of::<pb::Column>());
        // Each action with all of its parts, in eight bytes.
        let action = field(3, &[0x12, 0, 0x1a, 0, 0x22, 0]);
        let boxed =
            size_of::<pb::MutationProto>() + size_of::<pb::Get>() + size_of::<pb::CoprocessorServiceCall>();
        assert_eq!(
            decoded("Multi", &field(1, &action.repeat(1_000))),
            size_of::<pb::RegionAction>() + 1_000 * (size_of::<pb::Action>() + boxed)
        );
        let call = |request: &[u8]| field(2, &field(4, request));
        assert_eq!(decoded("ExecService", &call(&empty(1))), 1_000 * size_of::<pb::MutationProto>());
        assert!(decoded("ExecService", &call(&field(2, &empty(1)))) >= 1_000 * size_of::<pb::Column>());
        assert!(decoded("ReplicateWALEntry", &field(1, &empty(2))) >= 32_000);
        // Filters in a list, and lists in lists, however deep.
        let mut filter = field(2, &empty(2));
        for _ in 0..100 {
            assert!(decoded("Get", &field(2, &field(4, &filter))) >= 1_000 * size_of::<pb::Filter>());
            filter = field(2, &field(2, &filter));
        }
    }

    #[test]
    fn calls_of_honest_clients_are_seen_for_what_they_are() {
        let value = QualifierValue { value: Some("v".repeat(20_000).into()), ..Default::default() };
        let column_value = ColumnValue { family: "f".into(), qualifier_value: vec![value] };
        let mutation = pb::MutationProto { column_value: vec![column_value], ..Default::default() };
        let call = pb::MutateRequest { mutation, ..Default::default() };
        let made = size_of::<ColumnValue>() + size_of::<QualifierValue>();
        assert_eq!(decoded("Mutate", &call.encode_to_vec()), made, "its value stays where it is");
    }
}
