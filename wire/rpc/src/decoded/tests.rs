use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::ColumnValue;
use halcyon_proto::pb::mutation_proto::column_value::QualifierValue;
use prost::Message as _;

use super::types::OTHER_NAMES;
use super::*;

mod never_less;

const SERVICES: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../base/proto/services/services.proto"));

fn decoded(method: &str, param: &[u8]) -> usize {
    decoded_bytes(&CallHead { method, priority: 0, param }, usize::MAX)
}

/// A field of bytes.
fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_varint(u64::from(number << 3 | 2), &mut out);
    prost::encoding::encode_varint(content.len() as u64, &mut out);
    out.extend_from_slice(content);
    out
}

/// As many empty fields, of two bytes each.
fn empty(number: u32, count: usize) -> Vec<u8> {
    field(number, b"").repeat(count)
}

/// Methods of all services, and the types of their messages.
fn methods() -> Vec<(&'static str, &'static str)> {
    let rpcs = SERVICES.lines().filter_map(|line| line.trim().strip_prefix("rpc "));
    let method = |rpc: &'static str| {
        let (method, rest) = rpc.split_once('(')?;
        Some((method.trim(), rest.split_once(')')?.0.trim().strip_prefix("hbase.pb.")?))
    };
    rpcs.map(|rpc| method(rpc).expect("a method and its message")).collect()
}

#[test]
fn every_method_has_its_message() {
    let methods = methods();
    assert!(methods.len() > 200, "{}", methods.len());
    for (method, message) in methods {
        let of_name = TYPES.of_name(message);
        assert_eq!(TYPES.of_method(method), of_name, "{method}({message})");
    }
    for (method, message) in OTHER_NAMES {
        assert!(TYPES.of_name(message).is_some(), "{method}");
    }
}

/// Each list of each message of each method: whatever is there many times is seen, whichever service it is asked of.
#[test]
fn empty_elements_of_every_list_are_seen() {
    let mut lists_count = 0;
    for (method, message) in methods() {
        let Some(at) = TYPES.of_method(method) else { continue };
        for (number, field) in TYPES.at(at).fields.iter().enumerate() {
            let is_text = field.content == Content::Texts && field.each > 0;
            if field.content != Content::List && !is_text {
                continue;
            }
            let told = decoded(method, &empty(number as u32, 1_000));
            let places = told / (field.each / 2);
            assert!((1_024..=2_002).contains(&places), "{method}({message}) {number}: {places}");
            lists_count += 1;
        }
    }
    assert!(lists_count > 40, "{lists_count}");
}

#[test]
fn types_have_their_sizes() {
    fn check<M: prost::Message + prost::Name>() {
        let name = M::full_name();
        let at =
            name.strip_prefix("hbase.pb.").and_then(|name| TYPES.of_name(name)).expect("a type of HBase");
        let (told, is) = (TYPES.at(at).bytes, size_of::<M>());
        assert!((is..=is + is / 4 + 8).contains(&told), "{}: {is} bytes, {told} are told", M::full_name());
    }
    check::<pb::Action>();
    check::<pb::Attribute>();
    check::<pb::Column>();
    check::<pb::ColumnFamilyTimeRange>();
    check::<pb::Condition>();
    check::<pb::CoprocessorServiceCall>();
    check::<pb::FamilyScope>();
    check::<pb::Filter>();
    check::<pb::Get>();
    check::<pb::MutationProto>();
    check::<ColumnValue>();
    check::<QualifierValue>();
    check::<pb::NameBytesPair>();
    check::<pb::RegionAction>();
    check::<pb::RegionInfo>();
    check::<pb::RegionLoad>();
    check::<pb::RegionSpecifier>();
    check::<pb::RegionStateTransition>();
    check::<pb::RowRange>();
    check::<pb::Scan>();
    check::<pb::ServerName>();
    check::<pb::SnapshotDescription>();
    check::<pb::TableName>();
    check::<pb::TableSchema>();
    check::<pb::Uuid>();
    check::<pb::WalEntry>();
    check::<pb::WalKey>();
    check::<pb::bulk_load_h_file_request::FamilyPath>();
    check::<pb::open_region_request::RegionOpenInfo>();
}

#[test]
fn lists_have_the_places_that_are_told() {
    for count in [0usize, 1, 2, 3, 4, 5, 100, 512, 513, 1_000] {
        let get = pb::Get::decode(&*empty(2, count)).unwrap();
        let told = decoded("Get", &field(2, &empty(2, count))) / size_of::<pb::Column>();
        let places = get.column.capacity();
        assert!((places..=2 * places + 2).contains(&told), "{count}: {places} are there, {told} are told");
    }
}

/// Frames of 56 MB became gigabytes of nothing on the event loop.
#[test]
fn parts_within_parts_are_seen() {
    let values = field(3, &empty(2, 1_000));
    let told = decoded("Mutate", &field(2, &values));
    assert!(told >= 1_024 * size_of::<QualifierValue>() + 4 * size_of::<ColumnValue>(), "{told}");
    // Each action with all of its parts, in eight bytes.
    let action = field(3, &[0x12, 0, 0x1a, 0, 0x22, 0]);
    let boxed =
        size_of::<pb::MutationProto>() + size_of::<pb::Get>() + size_of::<pb::CoprocessorServiceCall>();
    let multi = decoded("Multi", &field(1, &action.repeat(1_000)));
    assert!(multi >= 1_024 * size_of::<pb::Action>() + 1_000 * boxed, "{multi}");
    // A value of its own for each column: three lists of four places.
    let put = field(2, &field(3, &field(3, &empty(2, 1))));
    assert!(decoded("Multi", &field(1, &field(3, &put))) > 4 * size_of::<QualifierValue>());
    assert!(decoded("ReplicateWALEntry", &field(1, &empty(2, 1_000))) >= 32_000);
    assert!(decoded("BulkLoadHFile", &empty(2, 1_000)) >= 24_000);
}

#[test]
fn what_messages_hold_as_bytes_is_seen() {
    let call = |service: &str, method: &str, request: &[u8]| {
        field(2, &[field(2, service.as_bytes()), field(3, method.as_bytes()), field(4, request)].concat())
    };
    let mutations = call("MultiRowMutationService", "MutateRows", &empty(1, 1_000));
    let least = 1_000 * size_of::<pb::MutationProto>();
    assert!(decoded("ExecService", &mutations) >= least);
    assert!(decoded("Multi", &field(1, &field(3, &field(4, &mutations[3..])))) >= least);
    let columns = field(2, &empty(1, 1_000));
    let max = call("hbase.pb.AggregateService", "GetMax", &columns);
    assert!(decoded("ExecService", &max) >= 1_000 * size_of::<pb::Column>());
    let servers = call("RSGroupAdminService", "MoveServers", &empty(3, 1_000));
    assert!(decoded("ExecMasterService", &servers) >= 24_000);
    let order = field(3, &field(3, &empty(2, 1_000)));
    assert!(decoded("ExecuteProcedures", &order) >= 32_000, "families of a flush");
}

/// The `createTable` of Phoenix's endpoint was taken for that of HBase's master, of which it has no field. Such a message was counted as
/// the worst that any may become, and Phoenix could not make its own tables.
#[test]
fn messages_of_other_endpoints_are_not_decoded_here() {
    let mutations = field(1, &[7; 300]).repeat(60);
    let create = [field(2, b"MetaDataService"), field(3, b"createTable"), field(4, &mutations)].concat();
    assert_eq!(decoded("ExecService", &field(2, &create)), decoded("ExecService", &field(2, &create[..42])));
}

/// A decoder passes over groups that it does not know, and a field in one hid the message: 8 MB became 700.
#[test]
fn fields_that_are_there_again_hide_no_message() {
    let mutations =
        [field(2, b"MultiRowMutationService"), field(3, b"MutateRows"), field(4, &empty(1, 1_000))];
    let call = |parts: &[Vec<u8>]| decoded("ExecService", &field(2, &parts.concat()));
    let plain = call(&mutations);
    assert!(plain >= 1_000 * size_of::<pb::MutationProto>());
    let filter = [field(1, &[FILTER_PACKAGE, b"FilterList"].concat()), field(2, &empty(2, 1_000))];
    let get = |parts: &[Vec<u8>]| decoded("Get", &field(2, &field(4, &parts.concat())));
    let plain_filter = get(&filter);
    assert!(plain_filter >= 1_000 * size_of::<pb::Filter>());
    let order = |parts: &[Vec<u8>]| decoded("ExecuteProcedures", &field(3, &parts.concat()));
    let flush = [field(3, &empty(2, 1_000))];
    for number in 1..5 {
        let of_group = [&[0x7b][..], &field(number, b"x"), &[0x7c]].concat();
        for extra in [of_group, field(number, b"x")] {
            let behind = |parts: &[Vec<u8>]| [parts, std::slice::from_ref(&extra)].concat();
            if number > 1 {
                assert!(call(&behind(&mutations)) >= plain, "{number}");
            }
            if number < 3 {
                assert!(get(&behind(&filter)) >= plain_filter, "{number}");
            }
            assert!(order(&behind(&flush)) >= order(&flush), "{number}");
        }
    }
}

/// Filters in a list, in a filter that has one filter, and lists in lists, however deep.
#[test]
fn filters_within_filters_are_seen() {
    let filter = |class: &str, message: &[u8]| {
        [field(1, format!("org.apache.hadoop.hbase.filter.{class}").as_bytes()), field(2, message)].concat()
    };
    let get = |filter: &[u8]| decoded("Get", &field(2, &field(4, filter)));
    let list = filter("FilterList", &empty(2, 1_000));
    let least = 1_000 * size_of::<pb::Filter>();
    for wrapper in ["SkipFilter", "WhileMatchFilter", "FilterWrapper"] {
        assert!(get(&filter(wrapper, &field(1, &list))) >= least, "{wrapper}");
    }
    let mut deep = list;
    for _ in 0..100 {
        assert!(get(&deep) >= least);
        deep = filter("FilterList", &field(2, &deep));
    }
    assert!(get(&filter("MultiRowRangeFilter", &empty(1, 1_000))) >= 1_000 * size_of::<pb::RowRange>());
    assert!(get(&filter("FuzzyRowFilter", &empty(1, 1_000))) >= 64_000);
    assert!(get(&filter("MultipleColumnPrefixFilter", &empty(1, 1_000))) >= 32_000);
    // Numbers, packed and not.
    assert!(get(&filter("TimestampsFilter", &field(1, &[1; 1_000]))) >= 8_000);
    assert!(get(&filter("TimestampsFilter", &[0x08, 0x01].repeat(1_000))) >= 8_000);
    let condition = field(3, &field(7, &filter("FilterList", &empty(2, 1_000))));
    assert!(decoded("Mutate", &condition) >= least);
}

#[test]
fn calls_of_honest_clients_are_seen_for_what_they_are() {
    let value = QualifierValue { value: Some("v".repeat(20_000).into()), ..Default::default() };
    let column_value = ColumnValue { family: "f".into(), qualifier_value: vec![value] };
    let message_len = column_value.encoded_len();
    let mutation = pb::MutationProto { column_value: vec![column_value], ..Default::default() };
    let call = pb::MutateRequest { mutation, ..Default::default() };
    let made = 4 * (size_of::<ColumnValue>() + size_of::<QualifierValue>());
    let of_cell = message_len + 1 + 22 + size_of::<Cell>();
    assert_eq!(decoded("Mutate", &call.encode_to_vec()), made + of_cell, "its value is copied once");
    let mutation = pb::MutationProto { row: Some("r".repeat(20_000).into()), ..Default::default() };
    let call = pb::MutateRequest { mutation, ..Default::default() };
    assert_eq!(decoded("Mutate", &call.encode_to_vec()), 0, "its row stays where it is");
    assert_eq!(decoded("NoSuchMethod", &empty(1, 1_000)), 0, "nothing is decoded");
}

/// A Put of 80 KB was told to become 4 MB, and cells of 393 MB were made of it.
#[test]
fn the_copies_of_a_row_are_seen() {
    let row = field(1, &[b'r'; 30_000]);
    let columns = [field(1, b"f"), field(2, &field(2, b"")).repeat(1_000)].concat();
    let columns = [field(3, &columns), field(3, &columns)].concat();
    let call = |method: &str, request: &[u8]| {
        let service = field(2, b"MultiRowMutationService");
        field(2, &[field(1, b""), service, field(3, method.as_bytes()), field(4, request)].concat())
    };
    for mutation in [[&row[..], &columns].concat(), [&columns[..], &row].concat()] {
        let rows = call("MutateRows", &field(1, &mutation));
        for (method, param) in [
            ("Mutate", field(2, &mutation)),
            ("Multi", field(1, &field(3, &field(2, &mutation)))),
            ("Multi", field(1, &field(3, &field(4, &rows[4..])))),
            ("ExecService", rows.clone()),
        ] {
            let told = decoded(method, &param);
            assert!((60_000_000..70_000_000).contains(&told), "{method}: {told}");
        }
    }
    let twice = [field(2, &row), field(2, &columns)].concat();
    assert!(decoded("Mutate", &twice) >= 60_000_000, "both are put together");
    let huge = field(2, &[&field(1, &[b'r'; 30_000])[..], &columns.repeat(1_000)].concat());
    assert!(decoded("Mutate", &huge) >= 60_000_000_000);
}

/// Counting a message of a hundred megabytes to its end was as long as receiving it.
#[test]
fn what_is_refused_is_not_counted_to_its_end() {
    let get = field(2, &empty(2, 1_000_000));
    let head = CallHead { method: "Get", priority: 0, param: &get };
    assert_eq!(decoded_bytes(&head, 1 << 20), usize::MAX);
    let whole = decoded_bytes(&head, usize::MAX);
    assert_eq!(whole, 2_000_002 * size_of::<pb::Column>());
    assert_eq!(decoded_bytes(&head, whole), whole);
    let values = field(2, &field(3, &field(2, b"")).repeat(100_000));
    let head = CallHead { method: "Mutate", priority: 0, param: &values };
    assert_eq!(decoded_bytes(&head, 1 << 20), usize::MAX, "lists of lists");
}

#[test]
fn any_bytes_become_something() {
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for len in 0..300 {
        let mut param = Vec::with_capacity(len);
        for _ in 0..len {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            param.push((random >> 56) as u8);
        }
        for (method, _) in methods() {
            decoded(method, &param);
        }
    }
}
