//! HBase's column interpreters: how an aggregate reads values, adds them, and compares them.
//!
//! | class of `org.apache.hadoop.hbase.client.coprocessor` | value of a cell | arithmetic |
//! |---|---|---|
//! | `LongColumnInterpreter` | 8 bytes, big-endian; other lengths count as no value | wraps around |
//! | `DoubleColumnInterpreter` | 8 bytes, IEEE 754; other lengths count as no value | IEEE 754; order of `Double.compareTo` |
//! | `BigDecimalColumnInterpreter` | `Bytes.toBytes(BigDecimal)`; fewer than 5 bytes fail | exact, two digits behind the point |
//!
//! None of them looks at family or qualifier. All use one type for values and for sums. Checked against 2.6.4.

use std::cmp::Ordering;

use bytes::Bytes;
use halcyon_cell::CellRef;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use prost::Message;

use super::cents::Cents;

pub(super) const LONG: &str = "org.apache.hadoop.hbase.client.coprocessor.LongColumnInterpreter";
pub(super) const DOUBLE: &str = "org.apache.hadoop.hbase.client.coprocessor.DoubleColumnInterpreter";
pub(super) const BIG_DECIMAL: &str = "org.apache.hadoop.hbase.client.coprocessor.BigDecimalColumnInterpreter";

/// The largest fraction of Java, `4.9E-324`, as a decimal.
const DOUBLE_MIN_SCALE: i32 = 325;
const DOUBLE_MIN_UNSCALED: u8 = 49;

/// A value of one interpreter.
pub(super) trait Value: Clone {
    /// `None`: the cell has no value for the interpreter.
    fn of(cell: CellRef<'_>) -> Result<Option<Self>, RpcError>;
    fn plus(&self, other: &Self) -> Self;
    fn times(&self, other: &Self) -> Self;
    fn compare(&self, other: &Self) -> Ordering;
    /// The message in which the value travels.
    fn to_message(&self) -> Bytes;
    /// The encoded `getMinValue` of the interpreter.
    fn least_encoded() -> Bytes;
}

impl Value for i64 {
    fn of(cell: CellRef<'_>) -> Result<Option<i64>, RpcError> {
        Ok(<[u8; 8]>::try_from(cell.value()).ok().map(i64::from_be_bytes))
    }

    fn plus(&self, other: &i64) -> i64 {
        self.wrapping_add(*other)
    }

    fn times(&self, other: &i64) -> i64 {
        self.wrapping_mul(*other)
    }

    fn compare(&self, other: &i64) -> Ordering {
        self.cmp(other)
    }

    fn to_message(&self) -> Bytes {
        pb::LongMsg { long_msg: *self }.encode_to_vec().into()
    }

    fn least_encoded() -> Bytes {
        i64::MIN.to_message()
    }
}

impl Value for f64 {
    fn of(cell: CellRef<'_>) -> Result<Option<f64>, RpcError> {
        Ok(<[u8; 8]>::try_from(cell.value()).ok().map(f64::from_be_bytes))
    }

    fn plus(&self, other: &f64) -> f64 {
        first_nan(*self, *other).unwrap_or(self + other)
    }

    fn times(&self, other: &f64) -> f64 {
        first_nan(*self, *other).unwrap_or(self * other)
    }

    /// NaN is the largest number and equal to itself, and -0.0 is less than 0.0 (`Double.compareTo`).
    fn compare(&self, other: &f64) -> Ordering {
        match (self.is_nan(), other.is_nan()) {
            (false, false) => self.total_cmp(other),
            (is_nan, other_is_nan) => is_nan.cmp(&other_is_nan),
        }
    }

    fn to_message(&self) -> Bytes {
        pb::DoubleMsg { double_msg: *self }.encode_to_vec().into()
    }

    /// `Double.MIN_VALUE`: the smallest number above zero.
    fn least_encoded() -> Bytes {
        f64::from_bits(1).to_message()
    }
}

impl Value for Cents {
    fn of(cell: CellRef<'_>) -> Result<Option<Cents>, RpcError> {
        Cents::parse(cell.value()).map(Some)
    }

    fn plus(&self, other: &Cents) -> Cents {
        self.plus(other)
    }

    fn times(&self, other: &Cents) -> Cents {
        self.times(other)
    }

    fn compare(&self, other: &Cents) -> Ordering {
        self.compare(other)
    }

    fn to_message(&self) -> Bytes {
        big_decimal(self.to_bytes())
    }

    /// `BigDecimal.valueOf(Double.MIN_VALUE)`.
    fn least_encoded() -> Bytes {
        let mut bytes = DOUBLE_MIN_SCALE.to_be_bytes().to_vec();
        bytes.push(DOUBLE_MIN_UNSCALED);
        big_decimal(bytes)
    }
}

/// Bits of the first NaN, made quiet: what Java on x86 answers. Compilers of Rust may take either one.
fn first_nan(left: f64, right: f64) -> Option<f64> {
    const QUIET: u64 = 1 << 51;
    let nan = [left, right].into_iter().find(|number| number.is_nan());
    nan.map(|nan| f64::from_bits(nan.to_bits() | QUIET))
}

fn big_decimal(bytes: Vec<u8>) -> Bytes {
    pb::BigDecimalMsg { bigdecimal_msg: bytes.into() }.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use halcyon_cell::Cell;

    use super::*;

    fn of<V: Value>(bytes: &[u8]) -> Result<Option<V>, RpcError> {
        V::of(Cell::put(b"r", b"f", b"q", 1, bytes).get())
    }

    #[test]
    fn values_of_another_length_are_no_values() {
        assert_eq!(of::<i64>(&7i64.to_be_bytes()).unwrap(), Some(7));
        assert_eq!(of::<f64>(&7.5f64.to_be_bytes()).unwrap(), Some(7.5));
        for len in [0, 4, 7, 9] {
            assert_eq!(of::<i64>(&vec![1; len]).unwrap(), None);
            assert_eq!(of::<f64>(&vec![1; len]).unwrap(), None);
        }
        assert!(of::<Cents>(&[0; 4]).is_err());
    }

    #[test]
    fn longs_wrap_around() {
        assert_eq!(i64::MAX.plus(&1), i64::MIN);
        assert_eq!(i64::MAX.times(&2), -2);
        assert_eq!(i64::least_encoded()[..], pb::LongMsg { long_msg: i64::MIN }.encode_to_vec());
    }

    #[test]
    fn doubles_are_in_the_order_of_java() {
        let nan = f64::NAN;
        let sorted = [f64::NEG_INFINITY, -1.0, -0.0, 0.0, f64::from_bits(1), f64::INFINITY, nan];
        for (at, left) in sorted.iter().enumerate() {
            for (other_at, right) in sorted.iter().enumerate() {
                assert_eq!(Value::compare(left, right), at.cmp(&other_at), "{left} {right}");
            }
        }
        assert_eq!(Value::compare(&-nan, &nan), Ordering::Equal, "there is one NaN in Java's order");
        assert_eq!(Value::compare(&-nan, &f64::INFINITY), Ordering::Greater);
        assert!(f64::INFINITY.plus(&f64::NEG_INFINITY).is_nan());
        assert_eq!(f64::MAX.times(&2.0), f64::INFINITY);
        let (one, other) = (f64::from_bits(0x7ff0_0000_0000_0001), f64::from_bits(u64::MAX));
        assert_eq!(one.plus(&other).to_bits(), 0x7ff8_0000_0000_0001);
        assert_eq!(other.times(&one).to_bits(), u64::MAX);
        assert_eq!(1.0f64.plus(&other).to_bits(), u64::MAX);
        assert_eq!(f64::from_bits(1), 4.9e-324);
    }
}
