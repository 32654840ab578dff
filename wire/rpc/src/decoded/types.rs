//! The types of messages, and what each of their fields makes when it is decoded.

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// What makes something has a smaller number.
pub(super) const SEEN_MAX: usize = u64::BITS as usize;
/// A field with a larger number is not looked at: no type has one.
const FIELD_NUMBER_MAX: usize = 255;
pub(super) const PACKAGE: &str = ".hbase.pb.";
/// Methods whose messages do not have their names.
pub(super) const OTHER_NAMES: [(&str, &str); 30] = [
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

pub(super) static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let files = FileDescriptorSet::decode(halcyon_proto::DESCRIPTORS);
    Types::of(&files.expect("they were written when the program was built"))
});

/// The place of a type among all.
pub(super) type TypeAt = u16;

/// Types of messages, by their places.
pub(super) struct Types {
    types: Vec<MessageType>,
    /// What a byte of any message becomes at most.
    pub per_byte_max: usize,
    /// Those of HBase's package, by their names in it.
    by_name: HashMap<String, TypeAt>,
    /// Of the message of each method; also by names that begin with a small letter.
    by_method: HashMap<String, TypeAt>,
}

#[derive(Default)]
pub(super) struct MessageType {
    /// Size of the type in memory, or a little more.
    pub bytes: usize,
    /// Some part of it makes something of its own.
    pub makes: bool,
    /// By their numbers.
    pub fields: Vec<Field>,
    /// Whether some of these are lists of numbers.
    pub has_numbers: bool,
    pub within: Option<Within>,
}

/// What a field makes. A list that grows has up to twice as many places as elements, and when it begins places for four.
#[derive(Clone, Copy, Default)]
pub(super) struct Field {
    pub makes: bool,
    pub content: Content,
    /// Type of the messages in it.
    pub of: Option<TypeAt>,
    /// Bytes of each that is there, beside what is made of its message or text.
    pub each: usize,
    /// Bytes that the first one makes besides.
    pub first: usize,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Content {
    /// One message, as a part of the one it is in or in an allocation of its own.
    #[default]
    Part,
    /// Messages, or bytes.
    List,
    /// One text, or several.
    Texts,
    /// Numbers of so many bytes, which may be packed; 0: of any.
    Numbers { bytes: u8 },
}

/// A message that a type holds as bytes.
pub(super) enum Within {
    /// `Filter { name = 1, serialized_filter = 2 }`
    Filter,
    /// `CoprocessorServiceCall { service_name = 2, method_name = 3, request = 4 }`
    Endpoint,
    /// `RemoteProcedureRequest { proc_data = 3 }`: one of these.
    Order(Vec<TypeAt>),
    /// `MutationProto { row = 1, column_value = 3 { family = 1, qualifier_value = 2 } }`: a cell of each value.
    Mutation,
}

/// The messages of a descriptor set, while their types are made.
struct Sources<'a> {
    messages: Vec<(&'a DescriptorProto, bool)>,
    by_name: &'a HashMap<String, TypeAt>,
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
        let by_name: HashMap<String, TypeAt> = names.iter().cloned().zip(0..).collect();
        let sizes = vec![Size::Unknown; messages.len()];
        let mut sources = Sources { messages, by_name: &by_name, sizes };
        let mut types: Vec<MessageType> = (0..names.len()).map(|at| sources.message_type(at)).collect();
        let orders: Vec<TypeAt> =
            names.iter().zip(0..).filter(|(name, _)| name.ends_with("Parameter")).map(|(_, at)| at).collect();
        for (name, within) in [
            ("Filter", Within::Filter),
            ("CoprocessorServiceCall", Within::Endpoint),
            ("RemoteProcedureRequest", Within::Order(orders)),
            ("MutationProto", Within::Mutation),
        ] {
            if let Some(&at) = by_name.get(&format!("{PACKAGE}{name}")) {
                let this = &mut types[usize::from(at)];
                (this.within, this.makes) = (Some(within), true);
            }
        }
        spread_making(&mut types);
        let by_method = methods(&by_name);
        let in_package = |(name, at): (String, TypeAt)| Some((name.strip_prefix(PACKAGE)?.to_string(), at));
        let by_name: HashMap<String, TypeAt> = by_name.into_iter().filter_map(in_package).collect();
        let per_byte_max = types.iter().map(worst_of).max().unwrap_or(0);
        Types { types, per_byte_max, by_name, by_method }
    }

    #[inline]
    pub fn at(&self, at: TypeAt) -> &MessageType {
        &self.types[usize::from(at)]
    }

    pub fn of_method(&self, method: &str) -> Option<TypeAt> {
        self.by_method.get(method).copied()
    }

    /// A type of HBase's package.
    pub fn of_name(&self, name: &str) -> Option<TypeAt> {
        self.by_name.get(name).copied()
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
fn methods(by_name: &HashMap<String, TypeAt>) -> HashMap<String, TypeAt> {
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
            for number in 0..types[at].fields.len() {
                let Field { makes, of, .. } = types[at].fields[number];
                if !makes && of.is_some_and(|of| types[usize::from(of)].makes) {
                    types[at].fields[number].makes = true;
                    (types[at].makes, any) = (true, true);
                }
            }
        }
        if !any {
            return;
        }
    }
}

/// What a byte of a part of this type becomes at most, beside what is made of the parts in it. Each byte counts for one part
/// only: the first ones of a part, its tag and its length, for the part itself, the others for what is in it.
fn worst_of(this: &MessageType) -> usize {
    /// Of a part. A larger number makes the tag longer.
    const HEAD_BYTES_MIN: usize = 2;
    /// A text of one letter.
    const TEXT_BYTES: usize = 8;
    let of_field = |field: &Field| match field.content {
        // Packed ones have a byte each.
        Content::Numbers { .. } => HEAD_BYTES_MIN * (field.each + field.first),
        _ => field.each + field.first + TEXT_BYTES,
    };
    let of_fields = this.fields.iter().map(of_field).max().unwrap_or(0);
    // What is held as bytes has more than a head: at least the name of what it is.
    of_fields.max(this.bytes).div_ceil(HEAD_BYTES_MIN)
}

impl Sources<'_> {
    /// Its fields, without what is spread from type to type behind it.
    fn message_type(&mut self, at: usize) -> MessageType {
        let bytes = self.size(at).expect("nobody asks for it meanwhile");
        let (message, _) = self.messages[at];
        let mut this = MessageType { bytes, ..MessageType::default() };
        for proto in &message.field {
            let number = usize::try_from(proto.number()).unwrap_or(0);
            assert!((1..=FIELD_NUMBER_MAX).contains(&number), "{}.{}", message.name(), proto.name());
            if this.fields.len() <= number {
                this.fields.resize(number + 1, Field::default());
            }
            let field =
                if proto.label() == Label::Repeated { self.list(proto) } else { self.single(message, proto) };
            assert!(
                number < SEEN_MAX || field.of.is_none() && !field.makes,
                "the number of {}",
                proto.name()
            );
            this.makes |= field.makes;
            this.has_numbers |= matches!(field.content, Content::Numbers { .. });
            this.fields[number] = field;
        }
        this
    }

    fn single(&mut self, message: &DescriptorProto, proto: &FieldDescriptorProto) -> Field {
        let of = self.by_name.get(proto.type_name()).copied();
        if let Some(of) = of {
            let is_boxed = self.is_boxed(message, proto, of);
            let bytes = if is_boxed { self.size(usize::from(of)) } else { Some(0) };
            let each = bytes.expect("of another message, or known");
            return Field { makes: is_boxed, of: Some(of), each, ..Field::default() };
        }
        let is_text = proto.r#type() == Type::String;
        Field {
            makes: is_text,
            content: if is_text { Content::Texts } else { Content::Part },
            ..Field::default()
        }
    }

    fn list(&mut self, proto: &FieldDescriptorProto) -> Field {
        let of = self.by_name.get(proto.type_name()).copied();
        let (content, bytes) = match (of, proto.r#type()) {
            (Some(of), _) => {
                let bytes = self.size(usize::from(of)).expect("of another message, or known");
                // A hash table is never full.
                (Content::List, if self.is_map_entry(of) { bytes + bytes / 4 } else { bytes })
            }
            (None, Type::Bytes) => (Content::List, size_of::<Bytes>()),
            (None, Type::String) => (Content::Texts, size_of::<String>()),
            (None, Type::Double | Type::Fixed64 | Type::Sfixed64) => (Content::Numbers { bytes: 8 }, 8),
            (None, Type::Float | Type::Fixed32 | Type::Sfixed32) => (Content::Numbers { bytes: 4 }, 4),
            (None, Type::Bool) => (Content::Numbers { bytes: 0 }, 1),
            (None, Type::Int32 | Type::Uint32 | Type::Sint32 | Type::Enum) => {
                (Content::Numbers { bytes: 0 }, 4)
            }
            (None, _) => (Content::Numbers { bytes: 0 }, 8),
        };
        // As `RawVec::grow_amortized`: twice as many when it is full, of bytes at least eight.
        let first = if bytes == 1 { 6 } else { 2 * bytes };
        Field { makes: true, content, of, each: 2 * bytes, first }
    }

    fn is_map_entry(&self, of: TypeAt) -> bool {
        self.messages[usize::from(of)].0.options.as_ref().is_some_and(|options| options.map_entry())
    }

    /// As `base/proto/build.rs` and prost decide.
    fn is_boxed(&self, message: &DescriptorProto, field: &FieldDescriptorProto, of: TypeAt) -> bool {
        let asked = message.name() == "Action" && ["mutation", "get", "service_call"].contains(&field.name());
        asked || self.holds(usize::from(of), message, 0)
    }

    /// Whether a message has another one as a part of it, at any depth.
    fn holds(&self, at: usize, wanted: &DescriptorProto, depth: usize) -> bool {
        let (message, _) = self.messages[at];
        if std::ptr::eq(message, wanted) {
            return true;
        }
        let singles = message.field.iter().filter(|field| field.label() != Label::Repeated);
        let mut parts = singles.filter_map(|field| self.by_name.get(field.type_name()));
        depth < 16 && parts.any(|&part| self.holds(usize::from(part), wanted, depth + 1))
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
        let is_map = of.is_some_and(|of| self.is_map_entry(of));
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
            let bytes = self.size(usize::from(of)).expect("a message that is a part of itself is boxed");
            // Whether it is there may need a place of its own.
            return if field.label() == Label::Required || self.has_niche(usize::from(of)) {
                bytes
            } else {
                bytes + 8
            };
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
