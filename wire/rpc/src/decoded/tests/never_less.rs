//! What is told of a message is never less than what decoding it allocates, whatever the message is.

use std::collections::HashMap;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_proto::pb::mutation_proto::ColumnValue;
use halcyon_proto::pb::mutation_proto::column_value::QualifierValue;
use prost::Message;
use prost::encoding::encode_varint;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};

use super::field;
use crate::{CallHead, decoded_bytes};

const FILTER_PACKAGE: &str = "org.apache.hadoop.hbase.filter.";
const FILTERS: [&str; 9] = [
    "FilterList",
    "SkipFilter",
    "WhileMatchFilter",
    "FilterWrapper",
    "MultiRowRangeFilter",
    "FuzzyRowFilter",
    "MultipleColumnPrefixFilter",
    "TimestampsFilter",
    "PrefixFilter",
];
/// Services, methods and their messages. What is not decoded here may be anything.
const CALLS: [(&str, &str, &str); 4] = [
    ("hbase.pb.MultiRowMutationService", "MutateRows", "MutateRowsRequest"),
    ("AggregateService", "GetSum", "AggregateRequest"),
    ("BulkDeleteService", "delete", "BulkDeleteRequest"),
    ("org.example.AggregateService", "MutateRows", "MutateRowsRequest"),
];

/// What a value has allocated, in bytes, and what messages become that it holds as bytes.
trait Held {
    fn held(&self) -> usize;
}

impl<T: Held> Held for Vec<T> {
    fn held(&self) -> usize {
        self.capacity() * size_of::<T>() + self.iter().map(Held::held).sum::<usize>()
    }
}

impl<T: Held> Held for Option<T> {
    fn held(&self) -> usize {
        self.as_ref().map_or(0, Held::held)
    }
}

impl<T: Held> Held for Box<T> {
    fn held(&self) -> usize {
        size_of::<T>() + self.as_ref().held()
    }
}

impl Held for String {
    fn held(&self) -> usize {
        self.capacity()
    }
}

impl Held for Bytes {
    fn held(&self) -> usize {
        0 // a part of the message
    }
}

impl Held for i64 {
    fn held(&self) -> usize {
        0
    }
}

/// A type with those of its fields that may hold something.
macro_rules! held {
    ($($type:ty: $($field:ident),*;)*) => {
        $(impl Held for $type {
            fn held(&self) -> usize {
                0 $(+ self.$field.held())*
            }
        })*
    };
}

held! {
    pb::MultiRequest: region_action, condition;
    pb::RegionAction: action, condition;
    pb::Action: mutation, get, service_call;
    pb::MutateRequest: mutation, condition;
    pb::GetRequest: get;
    pb::ScanRequest: scan;
    ColumnValue: qualifier_value;
    QualifierValue: ;
    pb::NameBytesPair: name;
    pb::Get: column, attribute, filter, cf_time_range;
    pb::Scan: column, attribute, filter, cf_time_range;
    pb::Column: qualifier;
    pb::ColumnFamilyTimeRange: ;
    pb::Condition: comparator, filter;
    pb::Comparator: name;
    pb::FilterList: filters;
    pb::SkipFilter: filter;
    pb::MultiRowRangeFilter: row_range_list;
    pb::RowRange: ;
    pb::FuzzyRowFilter: fuzzy_keys_data;
    pb::BytesBytesPair: ;
    pb::MultipleColumnPrefixFilter: sorted_prefixes;
    pb::TimestampsFilter: timestamps;
    pb::MutateRowsRequest: mutation_request, condition;
    pb::AggregateRequest: interpreter_class_name, scan;
    pb::BulkDeleteRequest: scan;
}

/// With the cells that are made of its values.
impl Held for pb::MutationProto {
    fn held(&self) -> usize {
        let len = |part: &Option<Bytes>| part.as_ref().map_or(0, Bytes::len);
        let cells = self.column_value.iter().flat_map(|column| {
            column.qualifier_value.iter().map(|value| {
                let parts = len(&self.row) + column.family.len() + len(&value.qualifier) + len(&value.value);
                parts + len(&value.tags) + 20 + size_of::<Cell>()
            })
        });
        self.column_value.held() + self.attribute.held() + cells.sum::<usize>()
    }
}

/// A message that is decoded later, if it can be.
fn later<M: Message + Default + Held>(bytes: &Bytes) -> usize {
    M::decode(bytes.clone()).map_or(0, |message| size_of::<M>() + message.held())
}

impl Held for pb::Filter {
    fn held(&self) -> usize {
        let none = Bytes::new();
        let bytes = self.serialized_filter.as_ref().unwrap_or(&none);
        let later = match self.name.strip_prefix(FILTER_PACKAGE) {
            Some("FilterList") => later::<pb::FilterList>(bytes),
            Some("SkipFilter" | "WhileMatchFilter" | "FilterWrapper") => later::<pb::SkipFilter>(bytes),
            Some("MultiRowRangeFilter") => later::<pb::MultiRowRangeFilter>(bytes),
            Some("FuzzyRowFilter") => later::<pb::FuzzyRowFilter>(bytes),
            Some("MultipleColumnPrefixFilter") => later::<pb::MultipleColumnPrefixFilter>(bytes),
            Some("TimestampsFilter") => later::<pb::TimestampsFilter>(bytes),
            _ => 0,
        };
        self.name.capacity() + later
    }
}

impl Held for pb::CoprocessorServiceCall {
    fn held(&self) -> usize {
        let later = match (self.service_name.as_str(), self.method_name.as_str()) {
            ("hbase.pb.MultiRowMutationService", "MutateRows") => {
                later::<pb::MutateRowsRequest>(&self.request)
            }
            ("AggregateService", "GetSum") => later::<pb::AggregateRequest>(&self.request),
            ("BulkDeleteService", "delete") => later::<pb::BulkDeleteRequest>(&self.request),
            _ => 0,
        };
        self.service_name.capacity() + self.method_name.capacity() + later
    }
}

/// Messages of any kind, often with empty parts, with many of them, and with single parts that are there again.
struct Maker<'a> {
    random: u64,
    messages: HashMap<String, &'a DescriptorProto>,
}

impl<'a> Maker<'a> {
    fn new(files: &'a FileDescriptorSet, seed: u64) -> Maker<'a> {
        let mut messages = HashMap::new();
        for file in &files.file {
            let parent = format!(".{}", file.package());
            file.message_type.iter().for_each(|message| gather(message, &parent, &mut messages));
        }
        Maker { random: seed | 1, messages }
    }

    fn below(&mut self, max: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % max
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = [0, 0, 1, 7, 9, 200][self.below(6)];
        (0..len).map(|_| b'a' + self.below(26) as u8).collect()
    }

    fn message(&mut self, name: &str, depth: usize) -> Vec<u8> {
        match name {
            ".hbase.pb.Filter" if self.below(4) > 0 => {
                let class = FILTERS[self.below(FILTERS.len())];
                let held = self.part(&format!(".hbase.pb.{class}"), depth);
                let parts = [field(1, format!("{FILTER_PACKAGE}{class}").as_bytes()), field(2, &held)];
                let out =
                    if self.below(8) == 0 { [&parts[1][..], &parts[0]].concat() } else { parts.concat() };
                return self.with_group(out);
            }
            ".hbase.pb.CoprocessorServiceCall" if self.below(4) > 0 => {
                let (service, method, class) = CALLS[self.below(CALLS.len())];
                let held = self.part(&format!(".hbase.pb.{class}"), depth);
                let parts = [field(2, service.as_bytes()), field(3, method.as_bytes()), field(4, &held)];
                return self.with_group(parts.concat());
            }
            _ => {}
        }
        let message = self.messages[name];
        let mut out = Vec::new();
        for _ in 0..self.below(6) {
            let field = &message.field[self.below(message.field.len())];
            let is_list = field.label() == Label::Repeated;
            let count = if is_list { [1, 1, 2, 3, 5, 9, 40][self.below(7)] } else { 1 };
            for _ in 0..count {
                self.field(
                    field.number() as u32,
                    field.r#type(),
                    field.type_name(),
                    (is_list, depth),
                    &mut out,
                );
            }
        }
        self.with_group(out)
    }

    /// Now and then with a group that no message has, and which decoders pass over: before the fields or behind them.
    fn with_group(&mut self, message: Vec<u8>) -> Vec<u8> {
        if self.below(16) > 0 {
            return message;
        }
        let mut group = vec![0xfb, 0x7f];
        for _ in 0..=self.below(3) {
            let number = self.below(4) as u32 + 1;
            group.extend(field(number, &self.bytes()));
        }
        group.extend([0xfc, 0x7f]);
        if self.below(2) == 0 { [group, message].concat() } else { [message, group].concat() }
    }

    fn part(&mut self, name: &str, depth: usize) -> Vec<u8> {
        if depth == 0 || self.below(4) == 0 { Vec::new() } else { self.message(name, depth - 1) }
    }

    fn field(
        &mut self,
        number: u32,
        of: Type,
        of_message: &str,
        (is_list, depth): (bool, usize),
        out: &mut Vec<u8>,
    ) {
        match of {
            Type::Message => {
                let part = self.part(of_message, depth);
                out.extend(field(number, &part));
            }
            Type::Bytes | Type::String => out.extend(field(number, &self.bytes())),
            Type::Fixed64 | Type::Sfixed64 | Type::Double => {
                encode_varint(u64::from(number << 3 | 1), out);
                out.extend([0; 8]);
            }
            Type::Fixed32 | Type::Sfixed32 | Type::Float => {
                encode_varint(u64::from(number << 3 | 5), out);
                out.extend([0; 4]);
            }
            _ if is_list && self.below(2) == 0 => {
                let packed = vec![1; self.below(40)];
                out.extend(field(number, &packed));
            }
            _ => {
                encode_varint(u64::from(number << 3), out);
                encode_varint([0, 1, 200, u64::MAX][self.below(4)], out);
            }
        }
    }
}

fn gather<'a>(message: &'a DescriptorProto, parent: &str, all: &mut HashMap<String, &'a DescriptorProto>) {
    let name = format!("{parent}.{}", message.name());
    message.nested_type.iter().for_each(|nested| gather(nested, &name, all));
    all.insert(name, message);
}

/// What decoding makes of it; `None` if it cannot be decoded.
fn held(method: &str, param: &[u8]) -> Option<usize> {
    fn of<M: Message + Default + Held>(param: &[u8]) -> Option<usize> {
        M::decode(Bytes::copy_from_slice(param)).ok().map(|message| message.held())
    }
    match method {
        "Multi" => of::<pb::MultiRequest>(param),
        "Mutate" => of::<pb::MutateRequest>(param),
        "Get" => of::<pb::GetRequest>(param),
        "Scan" => of::<pb::ScanRequest>(param),
        method => panic!("{method}"),
    }
}

/// True if it could be decoded.
fn check(method: &str, param: &[u8]) -> bool {
    let head = CallHead { method, priority: 0, param };
    let told = decoded_bytes(&head, usize::MAX);
    let Some(held) = held(method, param) else { return false };
    assert!(told >= held, "{method}: {held} bytes are held, {told} are told: {param:02x?}");
    true
}

#[test]
fn no_message_becomes_more_than_is_told() {
    let files = FileDescriptorSet::decode(halcyon_proto::DESCRIPTORS).expect("it is ours");
    let mut maker = Maker::new(&files, 0x9e37_79b9_7f4a_7c15);
    let (mut checked_count, mut changed_count) = (0, 0);
    for round in 0..4_000 {
        let method = ["Multi", "Mutate", "Get", "Scan"][round % 4];
        let mut param = maker.message(&format!(".hbase.pb.{method}Request"), 7);
        if maker.below(8) == 0 {
            param.extend(maker.message(&format!(".hbase.pb.{method}Request"), 7)); // put together by who decodes it
        }
        checked_count += usize::from(check(method, &param));
        for _ in 0..4 {
            if !param.is_empty() {
                let at = maker.below(param.len());
                param[at] = [0, 2, 0x0a, 0x12, 0x1a, 0x22][maker.below(6)];
                changed_count += usize::from(check(method, &param));
            }
        }
    }
    assert!(checked_count > 2_000 && changed_count > 500, "{checked_count} and {changed_count}");
}

/// A list in two parts that are put together has places for both.
#[test]
fn parts_that_are_there_twice_are_seen_together() {
    let values = |count: usize| field(3, &field(2, b"").repeat(count));
    for (first, second) in [(8, 1), (1, 8), (64, 1), (4, 1)] {
        let param = [field(2, &values(first)), field(2, &values(second))].concat();
        assert!(check("Mutate", &param), "{first} and {second}");
        let columns = |count: usize| field(2, &field(2, b"").repeat(count));
        assert!(check("Get", &[columns(first), columns(second)].concat()), "{first} and {second}");
    }
    let list = field(2, &field(2, b"").repeat(1_000));
    let name = field(1, format!("{FILTER_PACKAGE}FilterList").as_bytes());
    let get = field(2, &[field(4, &name), field(4, &list)].concat());
    assert!(check("Get", &get), "a filter with its name in one part and its message in another");
    let held = held("Get", &get).expect("it is whole");
    assert!(held >= 1_000 * size_of::<pb::Filter>(), "{held}");
}
