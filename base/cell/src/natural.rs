use std::cmp::Ordering;

/// A natural number of any length, for decimals of Java (`BigInteger`).
///
/// Costs: adding and comparing are linear in the number of words, multiplying two numbers and dividing by a power of ten
/// are quadratic. Callers limit the length of what comes from outside. *Thread safety*: plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Natural(
    /// In base 2^32, lowest word first. *Invariant*: the last word is not 0; zero has no words.
    Vec<u32>,
);

impl Natural {
    pub const ZERO: Natural = Natural(Vec::new());

    /// The absolute value of a two's complement number, big-endian, of at least one byte; and whether it is negative.
    pub fn of_twos_complement(bytes: &[u8]) -> (Natural, bool) {
        let is_negative = bytes[0] >= 0x80;
        let mut carry = is_negative;
        let mut words = Vec::with_capacity(bytes.len() / 4 + 1);
        for chunk in bytes.rchunks(4) {
            let mut word = [if is_negative { 0xff } else { 0 }; 4];
            word[4 - chunk.len()..].copy_from_slice(chunk);
            let mut word = u32::from_be_bytes(word);
            if is_negative {
                (word, carry) = (!word).overflowing_add(u32::from(carry));
            }
            words.push(word);
        }
        if carry && is_negative {
            words.push(1);
        }
        (Natural::trimmed(words), is_negative)
    }

    /// The shortest two's complement form, big-endian, of this number or its negative; at least one byte
    /// (`BigInteger.toByteArray`).
    pub fn to_twos_complement(&self, is_negative: bool) -> Vec<u8> {
        let mut bytes = vec![0u8];
        bytes.extend(self.0.iter().rev().flat_map(|word| word.to_be_bytes()));
        if is_negative {
            let mut carry = true;
            for byte in bytes.iter_mut().rev() {
                (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
            }
        }
        let repeats_sign = |pair: &[u8]| match pair[0] {
            0 => pair[1] < 0x80,
            0xff => pair[1] >= 0x80,
            _ => false,
        };
        let repeated = bytes.windows(2).take_while(|pair| repeats_sign(pair)).count();
        bytes.split_off(repeated)
    }

    fn trimmed(mut words: Vec<u32>) -> Natural {
        while words.last() == Some(&0) {
            words.pop();
        }
        Natural(words)
    }

    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_odd(&self) -> bool {
        self.0.first().is_some_and(|word| word & 1 == 1)
    }

    /// Bounds of the number of decimal digits.
    pub fn digits_count(&self) -> (i64, i64) {
        let top = self.0.last().copied().unwrap_or(0);
        let bits = self.0.len() as i64 * 32 - i64::from(top.leading_zeros());
        // log10(2) lies between 0.30102 and 0.30103; 2^(bits-1) <= number < 2^bits.
        ((bits - 1).max(0) * 30102 / 100_000 + 1, bits * 30103 / 100_000 + 1)
    }

    pub fn add(&mut self, other: &Natural) {
        let mut carry = 0u64;
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (at, word) in self.0.iter_mut().enumerate() {
            carry += u64::from(*word) + u64::from(other.0.get(at).copied().unwrap_or(0));
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Takes away a number that is not greater.
    pub fn subtract(&mut self, other: &Natural) {
        assert!(self.compare(other) != Ordering::Less, "no natural number is less than zero");
        let mut borrow = 0i64;
        for (at, word) in self.0.iter_mut().enumerate() {
            let rest = i64::from(*word) - i64::from(other.0.get(at).copied().unwrap_or(0)) + borrow;
            *word = rest as u32;
            borrow = rest >> 32;
        }
        *self = Natural::trimmed(std::mem::take(&mut self.0));
    }

    pub fn times(&self, other: &Natural) -> Natural {
        let mut words = vec![0u32; self.0.len() + other.0.len()];
        for (at, &left) in self.0.iter().enumerate() {
            let mut carry = 0u64;
            for (word, &right) in words[at..].iter_mut().zip(&other.0) {
                carry += u64::from(*word) + u64::from(left) * u64::from(right);
                *word = carry as u32;
                carry >>= 32;
            }
            words[at + other.0.len()] = carry as u32;
        }
        Natural::trimmed(words)
    }

    pub fn multiply_by_power_of_ten(&mut self, mut power: u64) {
        while power > 0 {
            let step = power.min(9);
            self.multiply(10u32.pow(step as u32));
            power -= step;
        }
    }

    fn multiply(&mut self, factor: u32) {
        let mut carry = 0u64;
        for word in &mut self.0 {
            carry += u64::from(*word) * u64::from(factor);
            *word = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    /// Divides by a power of ten and rounds to the nearest number, to the even one of two (`RoundingMode.HALF_EVEN`).
    pub fn divide_by_power_of_ten(&mut self, power: u64) {
        if power == 0 {
            return;
        }
        // With so many digits taken away, less than a tenth is left.
        if power > self.digits_count().1 as u64 + 1 {
            *self = Natural::ZERO;
            return;
        }
        let mut is_inexact = false;
        let mut left = power - 1;
        while left > 0 {
            let step = left.min(9);
            is_inexact |= self.divide(10u32.pow(step as u32)) != 0;
            left -= step;
        }
        let last_digit = self.divide(10);
        if last_digit > 5 || (last_digit == 5 && (is_inexact || self.is_odd())) {
            self.add(&Natural(vec![1]));
        }
    }

    /// Divides and returns what is left.
    fn divide(&mut self, divisor: u32) -> u32 {
        let mut rest = 0u64;
        for word in self.0.iter_mut().rev() {
            rest = rest << 32 | u64::from(*word);
            *word = (rest / u64::from(divisor)) as u32;
            rest %= u64::from(divisor);
        }
        *self = Natural::trimmed(std::mem::take(&mut self.0));
        rest as u32
    }

    pub fn compare(&self, other: &Natural) -> Ordering {
        debug_assert!(
            self.0.last() != Some(&0) && other.0.last() != Some(&0),
            "the number with more words is the larger one, because the highest word is not 0"
        );
        let by_length = self.0.len().cmp(&other.0.len());
        by_length.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: i128) -> (Natural, bool) {
        Natural::of_twos_complement(&number.to_be_bytes())
    }

    fn back((natural, is_negative): (Natural, bool)) -> i128 {
        let bytes = natural.to_twos_complement(is_negative);
        let mut wide = [if bytes[0] >= 0x80 { 0xff } else { 0 }; 16];
        wide[16 - bytes.len()..].copy_from_slice(&bytes);
        i128::from_be_bytes(wide)
    }

    /// Numbers around each power of two.
    fn numbers() -> impl Iterator<Item = i128> {
        (0..100).flat_map(|bits| {
            let power = 1i128 << bits;
            [power - 1, power, power + 1, -power, -power - 1, 1 - power]
        })
    }

    #[test]
    fn twos_complement_goes_there_and_back_in_its_shortest_form() {
        for number in numbers() {
            assert_eq!(back(of(number)), number);
            let (natural, is_negative) = of(number);
            let shortest = natural.to_twos_complement(is_negative);
            let bits =
                if number < 0 { 128 - (!number).leading_zeros() } else { 128 - number.leading_zeros() };
            assert_eq!(shortest.len() as u32, bits / 8 + 1, "{number}");
        }
    }

    #[test]
    fn sums_differences_and_products_are_those_of_integers() {
        for left in numbers().filter(|number| *number >= 0) {
            for right in numbers().filter(|number| *number >= 0) {
                let (mut sum, other) = (of(left).0, of(right).0);
                sum.add(&other);
                assert_eq!(back((sum.clone(), false)), left + right);
                sum.subtract(&other);
                assert_eq!(sum, of(left).0);
                assert_eq!(sum.compare(&other), left.cmp(&right));
                if let Some(product) = left.checked_mul(right) {
                    assert_eq!(back((sum.times(&other), false)), product, "{left} {right}");
                }
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_the_even_number() {
        for (number, power, rounded) in [
            (25, 1, 2),
            (35, 1, 4),
            (251, 2, 3),
            (2500, 3, 2),
            (3500, 3, 4),
            (2501, 3, 3),
            (5, 1, 0),
            (6, 1, 1),
            (50, 2, 0),
            (51, 2, 1),
            (99, 2, 1),
            (99, 3, 0),
            (7, 0, 7),
            (0, 5, 0),
            (i128::MAX, 38, 2),
            (5, u64::MAX, 0),
        ] {
            let mut natural = of(number).0;
            natural.divide_by_power_of_ten(power);
            assert_eq!(back((natural, false)), rounded, "{number} / 10^{power}");
        }
        let mut natural = of(123_456_789).0;
        natural.multiply_by_power_of_ten(25);
        natural.divide_by_power_of_ten(25);
        assert_eq!(natural, of(123_456_789).0);
    }
}
