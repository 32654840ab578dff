//! Decoding of messages with the strictness of Java's protobuf.
//!
//! The generated Rust messages take a required field that is missing as its default, while HBase refuses the
//! message; a filter without its limit would then quietly be one with limit 0.

use bytes::{Buf, Bytes};
use halcyon_cell::{Error, Result};
use halcyon_proto::pb;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{DecodeError, Message};

/// Decodes the message of the class `name`. Each of `required` is the numbers that lead to a field that must
/// be there, from the outermost message inwards.
///
/// Errors (kind `Invalid`): the bytes are not this message.
pub(crate) fn decode<M: Message + Default>(name: &str, bytes: &Bytes, required: &[&[u32]]) -> Result<M> {
    let bad = |error: DecodeError| Error::invalid(format!("{name}: bytes are not its message: {error}"));
    let message = M::decode(bytes.clone()).map_err(bad)?;
    for path in required {
        let mut inside = bytes.clone();
        for number in *path {
            inside = field(inside, *number).map_err(bad)?.ok_or_else(|| {
                Error::invalid(format!("{name}: bytes are not its message: field {path:?} is missing"))
            })?;
        }
    }
    Ok(message)
}

/// The last occurrence of a field: its bytes if it has a length, else empty.
fn field(mut message: Bytes, number: u32) -> std::result::Result<Option<Bytes>, DecodeError> {
    let mut found = None;
    while message.has_remaining() {
        let (at, wire_type) = decode_key(&mut message)?;
        let mut value = Bytes::new();
        if wire_type == WireType::LengthDelimited {
            let length = decode_varint(&mut message)?;
            // The message was decoded before, so the length fits.
            value = message.split_to(message.len().min(usize::try_from(length).unwrap_or(usize::MAX)));
        } else {
            skip_field(wire_type, at, &mut message, DecodeContext::default())?;
        }
        if at == number {
            found = Some(value);
        }
    }
    Ok(found)
}

/// The operator of a number in a request.
pub(crate) fn compare_type(name: &str, number: i32) -> Result<pb::CompareType> {
    pb::CompareType::try_from(number)
        .map_err(|_| Error::invalid(format!("{name}: unknown compare_op {number}")))
}
