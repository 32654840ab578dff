//! What filters compare with.

use halcyon_proto::pb;
use prost::Message;

use super::PACKAGE;
use crate::request::copied;

/// Flags of Java's `Pattern`; HBase's constructor sets the first.
const DOTALL: i32 = 32;
const CASE_INSENSITIVE: i32 = 2;

/// How a filter compares. The cell's bytes stand on the left, the comparator's value on the right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `>=`
    GreaterOrEqual,
    /// `>`
    Greater,
    /// Keeps nothing.
    NoOp,
}

impl CompareOp {
    pub(crate) fn to_pb(self) -> pb::CompareType {
        match self {
            CompareOp::Less => pb::CompareType::Less,
            CompareOp::LessOrEqual => pb::CompareType::LessOrEqual,
            CompareOp::Equal => pb::CompareType::Equal,
            CompareOp::NotEqual => pb::CompareType::NotEqual,
            CompareOp::GreaterOrEqual => pb::CompareType::GreaterOrEqual,
            CompareOp::Greater => pb::CompareType::Greater,
            CompareOp::NoOp => pb::CompareType::NoOp,
        }
    }
}

/// The operation of [`Comparator::bits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOp {
    /// Bits in both.
    And,
    /// Bits in one or both.
    Or,
    /// Bits in one of them.
    Xor,
}

/// What a filter or condition compares with.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparator {
    message: pb::Comparator,
}

impl Comparator {
    fn of(class: &str, message: &impl Message) -> Comparator {
        Comparator::custom(format!("{PACKAGE}{class}"), message.encode_to_vec())
    }

    /// A comparator class of the server's by its full Java name, with its serialized form.
    pub fn custom(class: impl Into<String>, serialized: impl AsRef<[u8]>) -> Comparator {
        let serialized_comparator = Some(copied(serialized));
        Comparator { message: pb::Comparator { name: class.into(), serialized_comparator } }
    }

    /// Bytes (`BinaryComparator`).
    pub fn binary(value: impl AsRef<[u8]>) -> Comparator {
        Comparator::of("BinaryComparator", &pb::BinaryComparator { comparable: comparable(value) })
    }

    /// The first bytes (`BinaryPrefixComparator`).
    pub fn prefix(value: impl AsRef<[u8]>) -> Comparator {
        let message = pb::BinaryPrefixComparator { comparable: comparable(value) };
        Comparator::of("BinaryPrefixComparator", &message)
    }

    /// Bytes at an offset (`BinaryComponentComparator`).
    pub fn component(value: impl AsRef<[u8]>, offset: u32) -> Comparator {
        let message = pb::BinaryComponentComparator { value: copied(value), offset };
        Comparator::of("BinaryComponentComparator", &message)
    }

    /// A number of eight bytes (`LongComparator`).
    pub fn long(value: i64) -> Comparator {
        let message = pb::LongComparator { comparable: comparable(value.to_be_bytes()) };
        Comparator::of("LongComparator", &message)
    }

    /// A decimal in the form of `Bytes.toBytes(BigDecimal)`: the scale in four bytes, then the unscaled value
    /// (`BigDecimalComparator`).
    pub fn big_decimal(scale: i32, unscaled: impl AsRef<[u8]>) -> Comparator {
        let value = [&scale.to_be_bytes(), unscaled.as_ref()].concat();
        Comparator::of("BigDecimalComparator", &pb::BigDecimalComparator { comparable: comparable(value) })
    }

    /// Equal if the operation leaves a bit (`BitComparator`). Values of another length are unequal.
    pub fn bits(value: impl AsRef<[u8]>, op: BitOp) -> Comparator {
        let bitwise_op = match op {
            BitOp::And => pb::bit_comparator::BitwiseOp::And,
            BitOp::Or => pb::bit_comparator::BitwiseOp::Or,
            BitOp::Xor => pb::bit_comparator::BitwiseOp::Xor,
        } as i32;
        Comparator::of("BitComparator", &pb::BitComparator { comparable: comparable(value), bitwise_op })
    }

    /// Equal if there is no value (`NullComparator`).
    pub fn null() -> Comparator {
        Comparator::of("NullComparator", &pb::NullComparator {})
    }

    /// Equal if the text contains a match of Java's pattern (`RegexStringComparator`).
    pub fn regex(pattern: &str) -> Comparator {
        Comparator::regex_with_flags(pattern, DOTALL)
    }

    /// As [`Comparator::regex`], and case does not matter.
    pub fn regex_ignoring_case(pattern: &str) -> Comparator {
        Comparator::regex_with_flags(pattern, DOTALL | CASE_INSENSITIVE)
    }

    /// A pattern with the flags of Java's `Pattern`.
    pub fn regex_with_flags(pattern: &str, flags: i32) -> Comparator {
        let message = pb::RegexStringComparator {
            pattern: pattern.to_string(),
            pattern_flags: flags,
            charset: "UTF-8".to_string(),
            engine: Some("JAVA".to_string()),
        };
        Comparator::of("RegexStringComparator", &message)
    }

    /// Equal if the text contains this one; case does not matter (`SubstringComparator`).
    pub fn substring(text: &str) -> Comparator {
        Comparator::of("SubstringComparator", &pb::SubstringComparator { substr: text.to_lowercase() })
    }

    /// Full Java name of the class.
    pub fn class(&self) -> &str {
        &self.message.name
    }

    pub(crate) fn into_message(self) -> pb::Comparator {
        self.message
    }
}

fn comparable(value: impl AsRef<[u8]>) -> pb::ByteArrayComparable {
    pb::ByteArrayComparable { value: Some(copied(value)) }
}
