//! The comparators of bytes; numbers and text have files of their own.

mod decimal;
mod text;

use std::cmp::Ordering;

use bytes::Bytes;
use halcyon_cell::{Error, Result};

use crate::Comparator;

pub(crate) use decimal::BigDecimalComparator;
pub(crate) use text::{RegexStringComparator, SubstringComparator};

/// `BinaryComparator`: byte by byte.
pub(crate) struct BinaryComparator(pub(crate) Bytes);

impl Comparator for BinaryComparator {
    fn compare(&self, value: &[u8]) -> Result<Ordering> {
        Ok(self.0[..].cmp(value))
    }
}

/// `BinaryPrefixComparator`: byte by byte, up to the comparator's length.
pub(crate) struct BinaryPrefixComparator(pub(crate) Bytes);

impl Comparator for BinaryPrefixComparator {
    fn compare(&self, value: &[u8]) -> Result<Ordering> {
        Ok(self.0[..].cmp(&value[..value.len().min(self.0.len())]))
    }
}

/// `BinaryComponentComparator`: byte by byte with the part of the value at an offset. A value that ends
/// before the part does is compared with what it has of it (HBase reads on behind the value).
pub(crate) struct BinaryComponentComparator {
    pub(crate) component: Bytes,
    pub(crate) offset: usize,
}

impl Comparator for BinaryComponentComparator {
    fn compare(&self, value: &[u8]) -> Result<Ordering> {
        let part = value.get(self.offset..).unwrap_or_default();
        Ok(self.component[..].cmp(&part[..part.len().min(self.component.len())]))
    }
}

/// `LongComparator`: signed 64-bit integers, eight bytes big-endian.
pub(crate) struct LongComparator(i64);

impl LongComparator {
    pub(crate) fn new(value: &[u8]) -> Result<LongComparator> {
        Ok(LongComparator(read_long(value)?))
    }
}

impl Comparator for LongComparator {
    fn compare(&self, value: &[u8]) -> Result<Ordering> {
        Ok(self.0.cmp(&read_long(value)?))
    }
}

fn read_long(value: &[u8]) -> Result<i64> {
    let bytes = value.try_into().map_err(|_| {
        Error::invalid(format!("LongComparator needs a value of 8 bytes, not of {}", value.len()))
    })?;
    Ok(i64::from_be_bytes(bytes))
}

/// How a [`BitComparator`] joins bits.
#[derive(Clone, Copy)]
pub(crate) enum BitOperator {
    And,
    Or,
    Xor,
}

/// `BitComparator`: a match if the value is as long as the comparator's and some bit of the two, joined, is
/// set.
pub(crate) struct BitComparator {
    pub(crate) bits: Bytes,
    pub(crate) operator: BitOperator,
}

impl Comparator for BitComparator {
    fn compare(&self, value: &[u8]) -> Result<Ordering> {
        let joined = |(&left, &right): (&u8, &u8)| match self.operator {
            BitOperator::And => left & right,
            BitOperator::Or => left | right,
            BitOperator::Xor => left ^ right,
        };
        let same_length = value.len() == self.bits.len();
        let matches = same_length && self.bits.iter().zip(value).any(|pair| joined(pair) != 0);
        Ok(if matches { Ordering::Equal } else { Ordering::Greater })
    }
}

/// `NullComparator`: matches what is not there. A part of a cell always is, even an empty one.
pub(crate) struct NullComparator;

impl Comparator for NullComparator {
    fn compare(&self, _value: &[u8]) -> Result<Ordering> {
        Ok(Ordering::Greater)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ordering::{Equal, Greater, Less};

    fn bytes(text: &'static [u8]) -> Bytes {
        Bytes::from_static(text)
    }

    #[test]
    fn bytes_compare_as_the_comparator_against_the_value() {
        let binary = BinaryComparator(bytes(b"m"));
        assert_eq!(binary.compare(b"n").unwrap(), Less);
        assert_eq!(binary.compare(b"m").unwrap(), Equal);
        assert_eq!(binary.compare(b"").unwrap(), Greater);
        let prefix = BinaryPrefixComparator(bytes(b"ab"));
        assert_eq!(prefix.compare(b"abc").unwrap(), Equal);
        assert_eq!(prefix.compare(b"a").unwrap(), Greater);
        assert_eq!(prefix.compare(b"b").unwrap(), Less);
        let component = BinaryComponentComparator { component: bytes(b"bc"), offset: 1 };
        assert_eq!(component.compare(b"abcd").unwrap(), Equal);
        assert_eq!(component.compare(b"abd").unwrap(), Less);
        assert_eq!(component.compare(b"ab").unwrap(), Greater);
        assert_eq!(component.compare(b"").unwrap(), Greater);
    }

    #[test]
    fn longs_are_signed_and_of_eight_bytes() {
        let minus_one = LongComparator::new(&(-1i64).to_be_bytes()).unwrap();
        assert_eq!(minus_one.compare(&0i64.to_be_bytes()).unwrap(), Less);
        assert_eq!(minus_one.compare(&i64::MIN.to_be_bytes()).unwrap(), Greater);
        assert!(minus_one.compare(b"1234567").is_err());
        assert!(LongComparator::new(b"").is_err());
    }

    #[test]
    fn bits_match_on_equal_length_and_a_bit_set() {
        let with = |operator| BitComparator { bits: bytes(b"\x01\x00"), operator };
        assert_eq!(with(BitOperator::And).compare(b"\x01\x00").unwrap(), Equal);
        assert_eq!(with(BitOperator::And).compare(b"\x02\x01").unwrap(), Greater);
        assert_eq!(with(BitOperator::Or).compare(b"\x00\x00").unwrap(), Equal);
        assert_eq!(with(BitOperator::Xor).compare(b"\x01\x00").unwrap(), Greater);
        assert_eq!(with(BitOperator::Xor).compare(b"\x01").unwrap(), Greater);
        assert_eq!(NullComparator.compare(b"").unwrap(), Greater);
    }
}
