//! What the message of a call becomes when it is decoded, told without decoding it.
//!
//! An empty part of a message has two bytes, and what is made of it has up to some hundred. So each part that makes something
//! of its own is counted, wherever the types of the messages have one: elements of lists with the places that a list keeps
//! free, and messages in allocations of their own. Values of bytes stay where they are and make nothing.
//!
//! The types are those of [`halcyon_proto::DESCRIPTORS`]. Some messages hold others as bytes, which are decoded later:
//! filters, calls of endpoints, and orders of a master ([`Within`]).
//!
//! *Hot path*: the server asks for long messages only.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

use crate::CallHead;
use crate::fields::{Fields, Value};

/// Messages within messages. Filters may be a hundred deep, each in a list within its bytes.
const DEPTH_MAX: usize = 320;
/// What is as deep as this is taken for the worst that its bytes can become.
const WORST_PER_BYTE: usize = 128;
/// Lists that one type of message has at most.
const LISTS_MAX: usize = 16;
/// A field with a larger number is not looked at: no type has one.
const FIELD_NUMBER_MAX: usize = 255;
const PACKAGE: &str = ".hbase.pb.";
/// Before the names of filters' classes.
const FILTER_PACKAGE: &[u8] = b"org.apache.hadoop.hbase.filter.";
/// Methods whose messages do not have their names.
const OTHER_NAMES: [(&str, &str); 30] = [
    ("Replay", "ReplicateWALEntryRequest"),
    ("ReplicateToReplica", "ReplicateWALEntryRequest"),
    ("GetSlowLogResponses", "SlowLogResponseRequest"),
    ("GetLargeLogResponses", "SlowLogResponseRequest"),
    ("ClearSlowLogsResponses", "ClearSlowLogResponseRequest"),
    ("GetLogEntries", "LogRequest"),
    ("ExecService", "CoprocessorServiceRequest"),
    ("ExecRegionServerService", "CoprocessorServiceRequest"),
    ("ExecMasterService", "CoprocessorServiceRequest"),
    ("RequestLock", "LockRequest"),
    ("SplitRegion", "SplitTableRegionRequest"),
    ("IsMasterInMaintenanceMode", "IsInMaintenanceModeRequest"),
    ("SwitchSnapshotCleanup", "SetSnapshotCleanupRequest"),
    ("ExecProcedureWithRet", "ExecProcedureRequest"),
    ("getLastMajorCompactionTimestamp", "MajorCompactionTimestampRequest"),
    ("getLastMajorCompactionTimestampForRegion", "MajorCompactionTimestampForRegionRequest"),
    ("getSecurityCapabilities", "SecurityCapabilitiesRequest"),
    ("IsReplicationPeerEnabled", "GetReplicationPeerStateRequest"),
    ("ReportRegionSpaceUse", "RegionSpaceUseReportRequest"),
    ("ReportFileArchival", "FileArchiveNotificationRequest"),
    ("GetMax", "AggregateRequest"),
    ("GetMin", "AggregateRequest"),
    ("GetSum", "AggregateRequest"),
    ("GetRowNum", "AggregateRequest"),
    ("GetAvg", "AggregateRequest"),
    ("GetStd", "AggregateRequest"),
    ("GetMedian", "AggregateRequest"),
    ("delete", "BulkDeleteRequest"),
    ("addLabels", "VisibilityLabelsRequest"),
    ("clearAuths", "SetAuthsRequest"),
];

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(halcyon_proto::DESCRIPTORS);
    Types::of(&files.expect("they were written when the program was built"))
});

/// What the message of a call becomes, in bytes, beside its own. 0 of a method that no service of HBase has. What is more than
/// `max` is refused, and is not counted to its end: an event loop has better to do.
pub fn decoded_bytes(head: &CallHead<'_>, max: usize) -> usize {
    match TYPES.of_method(head.method) {
        Some(at) => TYPES.made_of(at, head.param, Limits { depth: DEPTH_MAX, bytes: max }),
        None => 0,
    }
}

/// How far a message is looked at.
#[derive(Clone, Copy)]
struct Limits {
    depth: usize,
    bytes: usize,
}

impl Limits {
    fn of_part(self) -> Limits {
        Limits { depth: self.depth - 1, ..self }
    }
}

/// Types of messages, by their places.
struct Types {
    types: Vec<MessageType>,
    /// By their full names, which begin with a dot.
    by_name: HashMap<String, usize>,
    /// Of the message of each method; also by names that begin with a small letter.
    by_method: HashMap<String, usize>,
}

#[derive(Default)]
struct MessageType {
    /// Size of the type in memory, or a little more.
    bytes: usize,
    /// Some part of it makes something of its own.
    makes: bool,
    /// By their numbers.
    fields: Vec<Content>,
    /// Size of an element of each of its lists.
    lists: Vec<usize>,
    within: Option<Within>,
}

/// What a field makes.
#[derive(Clone, Copy)]
enum Content {
    Nothing,
    /// A message that is a part of the one it is in.
    Part(usize),
    /// A message in an allocation of its own.
    Boxed(usize),
    List(usize, Element),
}

#[derive(Clone, Copy)]
enum Element {
    Bytes,
    Text,
    Message(usize),
    /// Numbers, which may be packed: of so many bytes, or of any.
    Fixed(usize),
    Varint,
}

/// A message that a type holds as bytes.
enum Within {
    /// `Filter { name = 1, serialized_filter = 2 }`
    Filter,
    /// `CoprocessorServiceCall { method_name = 3, request = 4 }`
    Endpoint,
    /// `RemoteProcedureRequest { proc_data = 3 }`: one of these.
    Order(Vec<usize>),
}

/// The messages of a descriptor set, while their types are made.
struct Sources<'a> {
    messages: Vec<(&'a DescriptorProto, bool)>,
    by_name: &'a HashMap<String, usize>,
    sizes: Vec<Size>,
}

/// How far the size of a message is known.
#[derive(Clone, Copy, PartialEq)]
enum Size {
    Unknown,
    /// It is asked for by a part of itself.
    Asked,
    Known(usize),
}

impl Types {
    fn of(files: &FileDescriptorSet) -> Types {
        let (mut messages, mut names) = (Vec::new(), Vec::new());
        for file in &files.file {
            let is_proto3 = file.syntax() == "proto3";
            let package = format!(".{}", file.package());
            file.message_type
                .iter()
                .for_each(|it| gather(it, &package, is_proto3, &mut messages, &mut names));
        }
        let by_name: HashMap<String, usize> = names.iter().cloned().zip(0..).collect();
        let sizes = vec![Size::Unknown; messages.len()];
        let mut sources = Sources { messages, by_name: &by_name, sizes };
        let mut types: Vec<MessageType> = (0..names.len()).map(|at| sources.message_type(at)).collect();
        let orders: Vec<usize> =
            names.iter().zip(0..).filter(|(name, _)| name.ends_with("Parameter")).map(|(_, at)| at).collect();
        for (name, within) in [
            ("Filter", Within::Filter),
            ("CoprocessorServiceCall", Within::Endpoint),
            ("RemoteProcedureRequest", Within::Order(orders)),
        ] {
            if let Some(&at) = by_name.get(&format!("{PACKAGE}{name}")) {
                (types[at].within, types[at].makes) = (Some(within), true);
            }
        }
        spread_making(&mut types);
        let by_method = methods(&by_name);
        Types { types, by_name, by_method }
    }

    fn of_method(&self, method: &str) -> Option<usize> {
        self.by_method.get(method).copied()
    }

    /// What is made of a message beside the place for the message itself.
    fn made_of(&self, at: usize, message: &[u8], limits: Limits) -> usize {
        let this = &self.types[at];
        if !this.makes || message.is_empty() {
            return 0;
        }
        if limits.depth == 0 {
            return message.len().saturating_mul(WORST_PER_BYTE);
        }
        let (mut made, mut counts) = (0usize, [0usize; LISTS_MAX]);
        for (number, value) in Fields(message) {
            let field = usize::try_from(number).ok().and_then(|number| this.fields.get(number));
            made = made.saturating_add(match (field, value) {
                (Some(&Content::Part(part)), Value::Bytes(bytes)) => {
                    self.made_of(part, bytes, limits.of_part())
                }
                (Some(&Content::Boxed(part)), Value::Bytes(bytes)) => {
                    self.types[part].bytes.saturating_add(self.made_of(part, bytes, limits.of_part()))
                }
                (Some(&Content::List(list, element)), value) => {
                    let (count, made) = self.elements(element, value, limits);
                    counts[list] = counts[list].saturating_add(count);
                    if counts[list].saturating_mul(this.lists[list]) > limits.bytes {
                        return usize::MAX;
                    }
                    made
                }
                _ => 0,
            });
            if made > limits.bytes {
                return made;
            }
        }
        for (&count, &bytes) in counts.iter().zip(&this.lists) {
            made = made.saturating_add(capacity(count, bytes).saturating_mul(bytes));
        }
        made.saturating_add(
            this.within.as_ref().map_or(0, |within| self.made_within(within, message, limits)),
        )
    }

    /// How many elements of a list a value is, and what they make beside their places in it.
    fn elements(&self, element: Element, value: Value<'_>, limits: Limits) -> (usize, usize) {
        match (element, value) {
            (Element::Bytes, Value::Bytes(_)) => (1, 0),
            (Element::Text, Value::Bytes(text)) => (1, text.len()),
            (Element::Message(part), Value::Bytes(bytes)) => (1, self.made_of(part, bytes, limits.of_part())),
            (Element::Fixed(of), Value::Bytes(packed)) => (packed.len() / of, 0),
            (Element::Varint, Value::Bytes(packed)) => {
                (packed.iter().filter(|byte| **byte < 0x80).count(), 0)
            }
            (Element::Fixed(_) | Element::Varint, Value::Number) => (1, 0),
            _ => (0, 0), // decoders refuse it
        }
    }

    /// What is made of the message that this one holds as bytes.
    fn made_within(&self, within: &Within, message: &[u8], limits: Limits) -> usize {
        let last = |wanted: u64| {
            let values = Fields(message).filter_map(|(number, value)| match value {
                Value::Bytes(bytes) if number == wanted => Some(bytes),
                _ => None,
            });
            values.last().unwrap_or_default()
        };
        let made_of = |at: usize, bytes: &[u8]| {
            self.types[at].bytes.saturating_add(self.made_of(at, bytes, limits.of_part()))
        };
        match within {
            Within::Filter => {
                let name = last(1).strip_prefix(FILTER_PACKAGE).and_then(|name| str::from_utf8(name).ok());
                let at = name.and_then(|name| self.by_name.get(&format!("{PACKAGE}{name}")));
                at.map_or(0, |&at| made_of(at, last(2)))
            }
            Within::Endpoint => {
                let at = str::from_utf8(last(3)).ok().and_then(|method| self.of_method(method));
                at.map_or(0, |at| made_of(at, last(4)))
            }
            Within::Order(types) => {
                let data = last(3);
                types.iter().map(|&at| made_of(at, data)).max().unwrap_or(0)
            }
        }
    }
}

/// Adds a message and those that are declared in it.
fn gather<'a>(
    message: &'a DescriptorProto,
    parent: &str,
    is_proto3: bool,
    messages: &mut Vec<(&'a DescriptorProto, bool)>,
    names: &mut Vec<String>,
) {
    let name = format!("{parent}.{}", message.name());
    messages.push((message, is_proto3));
    names.push(name.clone());
    message.nested_type.iter().for_each(|nested| gather(nested, &name, is_proto3, messages, names));
}

/// The types of methods' messages by the methods' names.
fn methods(by_name: &HashMap<String, usize>) -> HashMap<String, usize> {
    let mut methods = HashMap::new();
    for (name, &at) in by_name {
        let method = name.strip_prefix(PACKAGE).and_then(|name| name.strip_suffix("Request"));
        let Some(method) = method.filter(|method| !method.is_empty() && !method.contains('.')) else {
            continue;
        };
        let (first, rest) = method.split_at(1);
        methods.insert(format!("{}{rest}", first.to_ascii_lowercase()), at);
        methods.insert(method.to_string(), at);
    }
    for (method, message) in OTHER_NAMES {
        if let Some(&at) = by_name.get(&format!("{PACKAGE}{message}")) {
            methods.insert(method.to_string(), at);
        }
    }
    methods
}

/// A type makes something if one of its parts does.
fn spread_making(types: &mut [MessageType]) {
    loop {
        let mut any = false;
        for at in 0..types.len() {
            let makes = |content: &Content| matches!(content, Content::Part(part) if types[*part].makes);
            if !types[at].makes && types[at].fields.iter().any(makes) {
                (types[at].makes, any) = (true, true);
            }
        }
        if !any {
            return;
        }
    }
}

/// Places of a list that has grown to so many elements one by one (`RawVec::grow_amortized`).
fn capacity(count: usize, element_bytes: usize) -> usize {
    const SMALL_BYTES: usize = 1024;
    match count {
        0 => 0,
        _ if element_bytes <= SMALL_BYTES => count.next_power_of_two().max(4),
        _ => count.next_power_of_two(),
    }
}

impl Sources<'_> {
    /// Its fields, without what is spread from type to type behind it.
    fn message_type(&mut self, at: usize) -> MessageType {
        let bytes = self.size(at).expect("nobody asks for it meanwhile");
        let (message, _) = self.messages[at];
        let mut this = MessageType { bytes, ..MessageType::default() };
        for field in &message.field {
            let number = usize::try_from(field.number()).unwrap_or(0);
            assert!((1..=FIELD_NUMBER_MAX).contains(&number), "{}.{}", message.name(), field.name());
            if this.fields.len() <= number {
                this.fields.resize(number + 1, Content::Nothing);
            }
            let content = self.content(message, field, &mut this.lists);
            this.makes |= matches!(content, Content::List(..) | Content::Boxed(_));
            this.fields[number] = content;
        }
        assert!(this.lists.len() <= LISTS_MAX, "{} has {} lists", message.name(), this.lists.len());
        this
    }

    fn content(
        &mut self,
        message: &DescriptorProto,
        field: &FieldDescriptorProto,
        lists: &mut Vec<usize>,
    ) -> Content {
        let of = self.by_name.get(field.type_name()).copied();
        if field.label() != Label::Repeated {
            return match of {
                Some(of) if self.is_boxed(message, field, of) => Content::Boxed(of),
                Some(of) => Content::Part(of),
                None => Content::Nothing,
            };
        }
        let (element, bytes) = match (of, field.r#type()) {
            (Some(of), _) => (Element::Message(of), self.size(of).expect("of another message, or known")),
            (None, Type::Bytes) => (Element::Bytes, size_of::<Bytes>()),
            (None, Type::String) => (Element::Text, size_of::<String>()),
            (None, Type::Double | Type::Fixed64 | Type::Sfixed64) => (Element::Fixed(8), 8),
            (None, Type::Float | Type::Fixed32 | Type::Sfixed32) => (Element::Fixed(4), 4),
            (None, Type::Bool) => (Element::Varint, 1),
            (None, Type::Int32 | Type::Uint32 | Type::Sint32 | Type::Enum) => (Element::Varint, 4),
            (None, _) => (Element::Varint, 8),
        };
        lists.push(bytes);
        Content::List(lists.len() - 1, element)
    }

    /// As `base/proto/build.rs` and prost decide.
    fn is_boxed(&self, message: &DescriptorProto, field: &FieldDescriptorProto, of: usize) -> bool {
        let asked = message.name() == "Action" && ["mutation", "get", "service_call"].contains(&field.name());
        asked || self.holds(of, message, 0)
    }

    /// Whether a message has another one as a part of it, at any depth.
    fn holds(&self, at: usize, wanted: &DescriptorProto, depth: usize) -> bool {
        let (message, _) = self.messages[at];
        if std::ptr::eq(message, wanted) {
            return true;
        }
        let singles = message.field.iter().filter(|field| field.label() != Label::Repeated);
        let mut parts = singles.filter_map(|field| self.by_name.get(field.type_name()));
        depth < 16 && parts.any(|&part| self.holds(part, wanted, depth + 1))
    }

    /// Size of a message in memory. `None` while it is asked for by a part of itself.
    fn size(&mut self, at: usize) -> Option<usize> {
        match self.sizes[at] {
            Size::Known(bytes) => return Some(bytes),
            Size::Asked => return None,
            Size::Unknown => self.sizes[at] = Size::Asked,
        }
        let (message, is_proto3) = self.messages[at];
        let mut bytes = 0usize;
        for field in &message.field {
            bytes += self.size_of_field(message, field, is_proto3);
        }
        let bytes = bytes.next_multiple_of(8);
        self.sizes[at] = Size::Known(bytes);
        Some(bytes)
    }

    /// As prost has it in a struct. Of several of which only one can be there, each.
    fn size_of_field(
        &mut self,
        message: &DescriptorProto,
        field: &FieldDescriptorProto,
        is_proto3: bool,
    ) -> usize {
        let of = self.by_name.get(field.type_name()).copied();
        let is_map =
            of.is_some_and(|of| self.messages[of].0.options.as_ref().is_some_and(|it| it.map_entry()));
        let is_optional = match field.label() {
            Label::Repeated if is_map => return size_of::<HashMap<String, String>>(),
            Label::Repeated => return size_of::<Vec<u8>>(),
            Label::Required => false,
            Label::Optional => !is_proto3 || field.proto3_optional(),
        };
        if let Some(of) = of {
            if self.is_boxed(message, field, of) {
                return size_of::<Box<u8>>();
            }
            let bytes = self.size(of).expect("a message that is a part of itself is boxed");
            // Whether it is there may need a place of its own.
            return if field.label() == Label::Required || self.has_niche(of) { bytes } else { bytes + 8 };
        }
        match field.r#type() {
            Type::Bytes => size_of::<Bytes>(),
            Type::String => size_of::<String>(),
            Type::Bool => 1,
            Type::Int32
            | Type::Uint32
            | Type::Sint32
            | Type::Fixed32
            | Type::Sfixed32
            | Type::Float
            | Type::Enum => 4 << usize::from(is_optional),
            _ => 8 << usize::from(is_optional),
        }
    }

    /// Whether a type has values that mean nothing, for the case that it is not there.
    fn has_niche(&self, at: usize) -> bool {
        self.messages[at].0.field.iter().any(|field| {
            let is_optional = field.label() == Label::Optional;
            field.label() == Label::Repeated
                || matches!(field.r#type(), Type::String | Type::Bool)
                || (field.r#type() == Type::Bytes && !is_optional)
        })
    }
}

#[cfg(test)]
mod tests;
