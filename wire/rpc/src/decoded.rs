//! What the message of a call becomes when it is decoded, told without decoding it.
//!
//! An empty part of a message has two bytes, and what is made of it has up to some hundred. So each part that makes something
//! of its own is counted, wherever the types of the messages have one: elements of lists with the places that a list keeps
//! free, messages in allocations of their own, and texts. Values of bytes stay where they are and make nothing.
//!
//! The types are those of [`halcyon_proto::DESCRIPTORS`] (`types.rs`). Some messages hold others as bytes, which are decoded
//! later: filters, calls of endpoints, and orders of a master ([`Within`]). Of each value of a mutation a cell is made later, with a copy
//! of the row, which is in the message once.
//!
//! *Hot path*: the server asks for long messages only.

mod types;

use halcyon_cell::{Cell, ROW_LEN_MAX};

use self::types::{Content, MessageType, SEEN_MAX, TYPES, TypeAt, Types, Within};
use crate::CallHead;
use crate::fields::{Fields, Value, next_of_any};

/// Messages within messages. Filters may be a hundred deep, each in a list within its bytes.
const DEPTH_MAX: usize = 320;
/// Before the names of filters' classes.
const FILTER_PACKAGE: &[u8] = b"org.apache.hadoop.hbase.filter.";
/// Before the names of HBase's services, in calls of some clients.
const SERVICE_PACKAGE: &[u8] = b"hbase.pb.";
/// Services of endpoints whose messages are decoded here: those of `halcyon_schema::Endpoint` and that of groups. Others are for the JVM, and
/// their methods may have names of HBase's methods: Phoenix has a `createTable`.
const ENDPOINTS: [&str; 4] =
    ["MultiRowMutationService", "AggregateService", "BulkDeleteService", "RSGroupAdminService"];
/// The number of `MutationProto.column_value`.
const COLUMN_VALUE: usize = 3;
/// A cell beside its parts: lengths, a timestamp and a type in its bytes, and what refers to these.
const CELL_BYTES: usize = 22 + size_of::<Cell>();

/// What the message of a call becomes, in bytes, beside its own. 0 of a method that no service of HBase has. What is more than
/// `max` is refused, and is not counted to its end: an event loop has better to do.
pub fn decoded_bytes(head: &CallHead<'_>, max: usize) -> usize {
    let types = &*TYPES;
    match types.of_method(head.method) {
        Some(at) => Look { types, max }.made_of(at, head.param, DEPTH_MAX),
        None => 0,
    }
}

/// As [`decoded_bytes`], of a message of HBase that a cell carries. `name`: without its package.
pub fn decoded_bytes_of(name: &str, message: &[u8], max: usize) -> usize {
    let types = &*TYPES;
    let at = types.of_name(name).unwrap_or_else(|| panic!("HBase has no message {name}"));
    Look { types, max }.made_of(at, message, DEPTH_MAX)
}

/// A look at one message.
struct Look<'t> {
    types: &'t Types,
    /// More than this is not counted to its end.
    max: usize,
}

impl Look<'_> {
    /// What is made of a message beside the place for the message itself.
    #[inline]
    fn made_of(&self, at: TypeAt, message: &[u8], depth: usize) -> usize {
        let this = self.types.at(at);
        if message.is_empty() || !this.makes { 0 } else { self.made_of_fields(this, message, depth) }
    }

    fn made_of_fields(&self, this: &MessageType, message: &[u8], depth: usize) -> usize {
        let Some(depth) = depth.checked_sub(1) else { return self.worst(message) };
        let (mut rest, mut made, mut seen) = (message, 0usize, 0u64);
        while let Some((number, value, behind)) = next_field(rest, this.has_numbers) {
            rest = behind;
            let Some(field) = this.fields.get(number).filter(|field| field.makes) else { continue };
            let bit = 1 << (number % SEEN_MAX);
            let is_first = seen & bit == 0;
            seen |= bit;
            made += match field.content {
                Content::Part | Content::List => field.each,
                Content::Texts => field.each + made_of_text(value.bytes()),
                Content::Numbers { bytes } => field.each * numbers_count(value, bytes),
            };
            if is_first {
                made += field.first;
            } else if field.content == Content::Part {
                // Both are put together, and lists of both are one, or a filter gets its name from one and its message from
                // the other. No client does that.
                return self.worst(message);
            }
            if let Some(at) = field.of {
                made = made.saturating_add(self.made_of(at, value.bytes(), depth));
            }
            if made > self.max {
                return usize::MAX;
            }
        }
        match &this.within {
            // Its cells are in a cell block, as those of nearly all are.
            Some(Within::Mutation) if seen & 1 << COLUMN_VALUE == 0 => made,
            Some(within) => made.saturating_add(self.made_within(within, message, depth)),
            None => made,
        }
    }

    /// Whatever it is. Of two bytes may be made a cell, and the others may be its row.
    #[cold]
    fn worst(&self, message: &[u8]) -> usize {
        let len = message.len();
        let of_cell = len.min(ROW_LEN_MAX) + usize::from(u8::MAX) + CELL_BYTES;
        len.saturating_mul(self.types.per_byte_max).saturating_add((len / 2).saturating_mul(of_cell))
    }

    /// What is made of the message that this one holds as bytes. A field that is there twice, or again in a group, which decoders pass over,
    /// may hide another one: no client sends that.
    fn made_within(&self, within: &Within, message: &[u8], depth: usize) -> usize {
        let made = match within {
            Within::Filter => self.made_of_filter(message, depth),
            Within::Endpoint => self.made_of_endpoint(message, depth),
            Within::Order(types) => only(3, message)
                .map(|data| types.iter().map(|&at| self.made_of_bytes(at, data, depth)).max().unwrap_or(0)),
            Within::Mutation => Some(cells_of(message)),
        };
        made.unwrap_or_else(|| self.worst(message))
    }

    fn made_of_bytes(&self, at: TypeAt, bytes: &[u8], depth: usize) -> usize {
        self.types.at(at).bytes.saturating_add(self.made_of(at, bytes, depth))
    }

    /// `None` as of [`only`].
    fn made_of_filter(&self, message: &[u8], depth: usize) -> Option<usize> {
        let (name, serialized) = (only(1, message)?, only(2, message)?);
        let name = name.strip_prefix(FILTER_PACKAGE).and_then(|name| str::from_utf8(name).ok());
        let at = name.and_then(|name| self.types.of_name(name));
        Some(at.map_or(0, |at| self.made_of_bytes(at, serialized, depth)))
    }

    /// `None` as of [`only`].
    fn made_of_endpoint(&self, message: &[u8], depth: usize) -> Option<usize> {
        let (service, method, request) = (only(2, message)?, only(3, message)?, only(4, message)?);
        let service = service.strip_prefix(SERVICE_PACKAGE).unwrap_or(service);
        let is_decoded = ENDPOINTS.iter().any(|name| name.as_bytes() == service);
        let method = str::from_utf8(method).ok().filter(|_| is_decoded);
        let at = method.and_then(|method| self.types.of_method(method));
        Some(at.map_or(0, |at| self.made_of_bytes(at, request, depth)))
    }
}

/// The only field of bytes with this number: nothing if there is none, and `None` if there are several.
fn only(number: u64, message: &[u8]) -> Option<&[u8]> {
    let mut values = Fields(message).of_bytes().filter(|(of, _)| *of == number).map(|(_, bytes)| bytes);
    let first = values.next().unwrap_or_default();
    values.next().is_none().then_some(first)
}

/// Bytes of the cells that are made of the values of a mutation.
fn cells_of(mutation: &[u8]) -> usize {
    let (mut row_len, mut count, mut made) = (0, 0usize, 0usize);
    for (number, part) in Fields(mutation).of_bytes() {
        if number == 1 {
            row_len = part.len().max(row_len);
        } else if number == COLUMN_VALUE as u64 {
            let (mut family_len, mut values_count) = (0, 0usize);
            for (number, part) in Fields(part).of_bytes() {
                match number {
                    1 => family_len = part.len().max(family_len),
                    2 => values_count += 1,
                    _ => {}
                }
            }
            count += values_count;
            made = made.saturating_add(part.len()).saturating_add(values_count.saturating_mul(family_len));
        }
    }
    made.saturating_add(count.saturating_mul(row_len.saturating_add(CELL_BYTES)))
}

/// The next field, and what is behind it; without numbers if they make nothing. Most fields are numbers.
#[inline]
fn next_field(fields: &[u8], with_numbers: bool) -> Option<(usize, Value<'_>, &[u8])> {
    let (number, value, rest) = if with_numbers {
        next_of_any(fields)?
    } else {
        let mut fields = Fields(fields);
        let (number, bytes) = fields.next_bytes()?;
        (number, Value::Bytes(bytes), fields.0)
    };
    Some((usize::try_from(number).unwrap_or(usize::MAX), value, rest))
}

/// Texts are copied, to places for eight letters at least.
fn made_of_text(text: &[u8]) -> usize {
    if text.is_empty() { 0 } else { text.len().max(8) }
}

/// Numbers of a list, which may be packed. `bytes` of each; 0: it differs.
fn numbers_count(value: Value<'_>, bytes: u8) -> usize {
    match (value, usize::from(bytes)) {
        (Value::Number, _) => 1,
        (Value::Bytes(packed), 0) => packed.iter().filter(|byte| **byte < 0x80).count(),
        (Value::Bytes(packed), bytes) => packed.len() / bytes,
    }
}

#[cfg(test)]
mod tests;
