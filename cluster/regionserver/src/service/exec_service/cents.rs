//! Decimals with two digits behind the point, as `BigDecimalColumnInterpreter` makes them of all values.

use std::cmp::Ordering;

use halcyon_cell::Natural;
use halcyon_rpc::RpcError;

use crate::errors::invalid;

/// Decimal digits of a value at most, before rounding or after. Multiplying costs the square of this.
const DIGITS_COUNT_MAX: i64 = 10_000;
/// Bytes of an unscaled value at most: more than so many digits need.
const UNSCALED_LEN_MAX: usize = 4200;
/// Digits behind the point (`setScale(2, HALF_EVEN)`).
const SCALE: i64 = 2;

/// A number of hundredths. Equal numbers are equal values: zero is never negative.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cents {
    magnitude: Natural,
    is_negative: bool,
}

impl Cents {
    fn new(magnitude: Natural, is_negative: bool) -> Cents {
        let is_negative = is_negative && !magnitude.is_zero();
        Cents { magnitude, is_negative }
    }

    /// Reads `Bytes.toBytes(BigDecimal)` and rounds:
    ///
    /// ```text
    /// int32 scale | unscaled value, two's complement, big-endian, at least one byte     number = unscaled / 10^scale
    /// ```
    ///
    /// Java fails with a NullPointerException where there are less than five bytes.
    pub(super) fn parse(bytes: &[u8]) -> Result<Cents, RpcError> {
        let Some((scale, unscaled)) = bytes.split_first_chunk::<4>().filter(|(_, rest)| !rest.is_empty())
        else {
            return Err(invalid(format!("a value of {} bytes is not a BigDecimal", bytes.len())));
        };
        if unscaled.len() > UNSCALED_LEN_MAX {
            let len = unscaled.len();
            return Err(invalid(format!("a BigDecimal of {len} bytes is over {UNSCALED_LEN_MAX} bytes")));
        }
        let (mut magnitude, is_negative) = Natural::of_twos_complement(unscaled);
        let more = SCALE - i64::from(i32::from_be_bytes(*scale));
        if more <= 0 {
            magnitude.divide_by_power_of_ten(more.unsigned_abs());
        } else if !magnitude.is_zero() {
            if magnitude.digits_count().1 + more > DIGITS_COUNT_MAX {
                return Err(invalid(format!("a BigDecimal has over {DIGITS_COUNT_MAX} digits")));
            }
            magnitude.multiply_by_power_of_ten(more.unsigned_abs());
        }
        Ok(Cents::new(magnitude, is_negative))
    }

    /// As `Bytes.toBytes(BigDecimal)`; the scale is 2.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = (SCALE as i32).to_be_bytes().to_vec();
        bytes.extend(self.magnitude.to_twos_complement(self.is_negative));
        bytes
    }

    pub(super) fn plus(&self, other: &Cents) -> Cents {
        let mut magnitude = self.magnitude.clone();
        if self.is_negative == other.is_negative {
            magnitude.add(&other.magnitude);
            return Cents::new(magnitude, self.is_negative);
        }
        if magnitude.compare(&other.magnitude) == Ordering::Less {
            let mut magnitude = other.magnitude.clone();
            magnitude.subtract(&self.magnitude);
            return Cents::new(magnitude, other.is_negative);
        }
        magnitude.subtract(&other.magnitude);
        Cents::new(magnitude, self.is_negative)
    }

    /// The product, rounded to two digits again.
    pub(super) fn times(&self, other: &Cents) -> Cents {
        let mut magnitude = self.magnitude.times(&other.magnitude);
        magnitude.divide_by_power_of_ten(SCALE as u64);
        Cents::new(magnitude, self.is_negative != other.is_negative)
    }

    pub(super) fn compare(&self, other: &Cents) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.magnitude.compare(&other.magnitude),
            (true, true) => other.magnitude.compare(&self.magnitude),
            (false, true) => Ordering::Greater,
            (true, false) => Ordering::Less,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(unscaled: i64, scale: i32) -> Vec<u8> {
        let mut bytes = scale.to_be_bytes().to_vec();
        bytes.extend(unscaled.to_be_bytes());
        bytes
    }

    fn cents(unscaled: i64, scale: i32) -> Cents {
        Cents::parse(&decimal(unscaled, scale)).unwrap()
    }

    /// Checked against `new BigDecimal(..).setScale(2, HALF_EVEN)` of Java 17 and `Bytes.toBytes`.
    #[test]
    fn values_are_rounded_to_two_digits() {
        for (unscaled, scale, expected) in [
            (1, 0, 100),
            (125, 3, 12),
            (135, 3, 14),
            (-125, 3, -12),
            (-135, 3, -14),
            (-4, 3, 0),
            (1251, 4, 13),
            (7, -1, 7000),
            (0, i32::MIN, 0),
            (i64::MAX, i32::MAX, 0),
        ] {
            assert_eq!(cents(unscaled, scale), cents(expected, 2), "{unscaled} {scale}");
        }
        assert_eq!(cents(-1, 0).to_bytes(), [0, 0, 0, 2, 0x9c]);
        assert_eq!(cents(0, 9).to_bytes(), [0, 0, 0, 2, 0]);
        assert_eq!(cents(128, 2).to_bytes(), [0, 0, 0, 2, 0, 0x80]);
    }

    #[test]
    fn sums_and_products_are_those_of_integers() {
        let some = [0, 1, -1, 49, 50, -50, 51, 150, 250, -250, 12_345, -99_999_999, 1 << 40];
        for left in some {
            for right in some {
                let (a, b) = (cents(left, 2), cents(right, 2));
                assert_eq!(a.plus(&b), cents(left + right, 2), "{left} + {right}");
                assert_eq!(a.compare(&b), left.cmp(&right));
                let product = i128::from(left) * i128::from(right);
                let (whole, rest) = (product / 100, (product % 100).abs());
                let up = rest > 50 || (rest == 50 && whole % 2 != 0);
                let rounded = if up { whole + product.signum() } else { whole };
                let mut bytes = 2i32.to_be_bytes().to_vec();
                bytes.extend(rounded.to_be_bytes());
                assert_eq!(a.times(&b), Cents::parse(&bytes).unwrap(), "{left} * {right}");
            }
        }
    }

    #[test]
    fn garbage_and_huge_values_are_refused() {
        for len in 0..5 {
            assert!(Cents::parse(&vec![1; len]).is_err());
        }
        assert!(Cents::parse(&decimal(1, i32::MIN)).is_err());
        assert!(Cents::parse(&decimal(1, -20_000)).is_err());
        assert!(Cents::parse(&vec![1; 5000]).is_err());
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        for len in 5..300 {
            let next = |_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 56) as u8
            };
            let bytes: Vec<u8> = (0..len).map(next).collect();
            if let Ok(cents) = Cents::parse(&bytes) {
                assert_eq!(Cents::parse(&cents.to_bytes()).unwrap(), cents);
            }
        }
    }
}
