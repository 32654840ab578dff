//! `BigDecimalComparator`: decimals of any length.
//!
//! ```text
//! int32 scale | unscaled value, two's complement, big-endian, at least one byte     number = unscaled / 10^scale
//! ```
//!
//! Most numbers fit 128 bits and are compared there. Longer ones are compared by sign, then by the places of
//! their first digits, and only if those agree digit by digit, in base 2^32 after multiplying one of them by
//! a power of ten. That power is then no longer than the numbers are, so a huge scale costs nothing.

use std::cmp::Ordering;

use halcyon_cell::{Error, Natural, Result};

use crate::{Comparator, looks};

/// Longest unscaled value; comparing costs the square of this. About 9,800 decimal digits.
const UNSCALED_LEN_MAX: usize = 4096;
/// The square of the lengths that costs a look: two numbers of the greatest length take a millisecond or two.
const SQUARE_OF_A_LOOK: usize = 1 << 13;

pub(crate) struct BigDecimalComparator {
    encoded: Vec<u8>,
}

impl BigDecimalComparator {
    pub(crate) fn new(value: &[u8]) -> Result<BigDecimalComparator> {
        Decimal::parse(value)?;
        Ok(BigDecimalComparator { encoded: value.to_vec() })
    }
}

impl Comparator for BigDecimalComparator {
    fn compare(&self, value: &[u8]) -> Result<Ordering> {
        looks::spend_on_bytes(value.len())?; // it may begin with any number of bytes that only repeat the sign
        let (own, other) = (Decimal::parse(&self.encoded)?, Decimal::parse(value)?);
        looks::spend((own.unscaled.len() + other.unscaled.len()).pow(2) / SQUARE_OF_A_LOOK)?;
        Ok(own.compare(other))
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.encoded.len()
    }
}

#[derive(Clone, Copy)]
struct Decimal<'a> {
    scale: i32,
    unscaled: &'a [u8],
}

impl<'a> Decimal<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Decimal<'a>> {
        let Some((scale, unscaled)) = bytes.split_first_chunk::<4>().filter(|(_, rest)| !rest.is_empty())
        else {
            return Err(Error::invalid(format!(
                "BigDecimalComparator needs a value of at least 5 bytes, not of {}",
                bytes.len()
            )));
        };
        let mut unscaled = unscaled;
        // Bytes that only repeat the sign.
        while let [first, second, ..] = unscaled
            && ((*first == 0 && *second < 0x80) || (*first == 0xff && *second >= 0x80))
        {
            unscaled = &unscaled[1..];
        }
        if unscaled.len() > UNSCALED_LEN_MAX {
            return Err(Error::invalid(format!(
                "BigDecimalComparator met an unscaled value of {} bytes, over {UNSCALED_LEN_MAX}",
                unscaled.len()
            )));
        }
        Ok(Decimal { scale: i32::from_be_bytes(*scale), unscaled })
    }

    fn compare(self, other: Decimal<'_>) -> Ordering {
        let sign = self.sign();
        match sign.cmp(&other.sign()) {
            Ordering::Equal if sign == 0 => return Ordering::Equal,
            Ordering::Equal => {}
            unequal => return unequal,
        }
        if let Some(order) = self.compare_small(other) {
            return order;
        }
        let order = self.compare_magnitude(other);
        if sign < 0 { order.reverse() } else { order }
    }

    fn sign(self) -> i32 {
        match self.unscaled {
            [0] => 0,
            [first, ..] if *first >= 0x80 => -1,
            _ => 1,
        }
    }

    /// The order, if both numbers fit 128 bits at the greater scale.
    fn compare_small(self, other: Decimal<'_>) -> Option<Ordering> {
        let (left, right) = (to_i128(self.unscaled)?, to_i128(other.unscaled)?);
        let raise = |value: i128, scales: i64| {
            let power = 10i128.checked_pow(u32::try_from(scales).ok()?)?;
            value.checked_mul(power)
        };
        let scales = i64::from(self.scale) - i64::from(other.scale);
        if scales >= 0 {
            Some(left.cmp(&raise(right, scales)?))
        } else {
            Some(raise(left, -scales)?.cmp(&right))
        }
    }

    /// The order of the absolute values.
    fn compare_magnitude(self, other: Decimal<'_>) -> Ordering {
        let magnitude = |decimal: Decimal<'_>| Natural::of_twos_complement(decimal.unscaled).0;
        let (mut left, mut right) = (magnitude(self), magnitude(other));
        // The place of the first digit before the decimal point, as an interval.
        let (left_low, left_high) = left.digits_count();
        let (right_low, right_high) = right.digits_count();
        let (left_scale, right_scale) = (i64::from(self.scale), i64::from(other.scale));
        if left_low - left_scale > right_high - right_scale {
            return Ordering::Greater;
        }
        if left_high - left_scale < right_low - right_scale {
            return Ordering::Less;
        }
        let scales = left_scale - right_scale;
        assert!(
            scales.abs() <= left_high.max(right_high),
            "numbers whose first digits are in one place differ in scale by no more than their digits: {scales}"
        );
        if scales >= 0 {
            right.multiply_by_power_of_ten(scales as u64);
        } else {
            left.multiply_by_power_of_ten(scales.unsigned_abs());
        }
        left.compare(&right)
    }
}

fn to_i128(unscaled: &[u8]) -> Option<i128> {
    if unscaled.len() > 16 {
        return None;
    }
    let mut bytes = [if unscaled[0] >= 0x80 { 0xff } else { 0 }; 16];
    bytes[16 - unscaled.len()..].copy_from_slice(unscaled);
    Some(i128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(scale: i32, unscaled: &[u8]) -> Vec<u8> {
        [&scale.to_be_bytes()[..], unscaled].concat()
    }

    fn compare(left: (i32, &[u8]), right: (i32, &[u8])) -> Ordering {
        let comparator = BigDecimalComparator::new(&encoded(left.0, left.1)).unwrap();
        comparator.compare(&encoded(right.0, right.1)).unwrap()
    }

    #[test]
    fn scales_do_not_matter() {
        assert_eq!(compare((1, &[10]), (0, &[1])), Ordering::Equal);
        assert_eq!(compare((-2, &[1]), (0, &[100])), Ordering::Equal);
        assert_eq!(compare((1, &[11]), (0, &[1])), Ordering::Greater);
        assert_eq!(compare((0, &[0xff]), (5, &[0xff])), Ordering::Less);
        assert_eq!(compare((0, &[0, 0, 0]), (900, &[0])), Ordering::Equal);
        assert_eq!(compare((0, &[0xff]), (0, &[0])), Ordering::Less);
    }

    #[test]
    fn long_numbers_and_huge_scales() {
        // 256^40 and 256^40 + 1, plain and times ten to the 30.
        let mut long = vec![0; 41];
        long[0] = 1;
        let mut longer = long.clone();
        longer[40] = 1;
        assert_eq!(compare((0, &long), (0, &longer)), Ordering::Less);
        assert_eq!(compare((0, &long), (0, &long)), Ordering::Equal);
        assert_eq!(compare((-30, &long), (0, &longer)), Ordering::Greater);
        assert_eq!(compare((i32::MAX, &long), (i32::MIN, &[1])), Ordering::Less);
        assert_eq!(compare((i32::MIN, &[0xff]), (i32::MAX, &long)), Ordering::Less);
        let mut magnitude = Natural::of_twos_complement(&long).0;
        magnitude.multiply_by_power_of_ten(30);
        let times = magnitude.to_twos_complement(false);
        assert_eq!(compare((30, &times), (0, &long)), Ordering::Equal);
        // -2^127 and its neighbours, where two's complement has no positive twin.
        let mut lowest = vec![0u8; 20];
        lowest[0] = 0x80;
        assert_eq!(compare((0, &lowest), (0, &lowest)), Ordering::Equal);
        assert_eq!(compare((1, &lowest), (0, &lowest)), Ordering::Greater);
    }

    #[test]
    fn too_short_and_too_long() {
        assert!(BigDecimalComparator::new(&[0; 4]).is_err());
        let comparator = BigDecimalComparator::new(&encoded(0, &[1])).unwrap();
        assert!(comparator.compare(&[]).is_err());
        assert!(comparator.compare(&encoded(0, &[1; UNSCALED_LEN_MAX + 1])).is_err());
        assert_eq!(comparator.compare(&encoded(0, &[0; 100_000])).unwrap(), Ordering::Greater);
    }
}
