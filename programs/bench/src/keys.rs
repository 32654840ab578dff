//! Keys and values: the same ones for every engine and every run.

/// Sixteen decimal digits, so that the order of keys is the order of numbers.
pub type Key = [u8; 16];

pub fn key(mut number: u64) -> Key {
    let mut key = [b'0'; 16];
    for digit in key.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    key
}

/// A small generator of pseudo-random numbers (xorshift64*).
#[derive(Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(limit)) >> 64) as u64
    }
}

/// All numbers below `count`, each once, in random order.
pub fn shuffled(count: u64) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..u32::try_from(count).expect("fewer keys than 2^32")).collect();
    let mut dice = Dice::new(count);
    for last in (1..numbers.len()).rev() {
        numbers.swap(last, dice.below(last as u64 + 1) as usize);
    }
    numbers
}

/// Bytes that a fast codec makes about half as long; values are pieces of them.
pub struct Values {
    bytes: Vec<u8>,
    len: usize,
}

const VALUE_BYTES: usize = 1 << 20;

impl Values {
    pub fn new(len: usize) -> Values {
        let mut dice = Dice::new(1);
        let mut bytes = Vec::with_capacity(VALUE_BYTES + len);
        while bytes.len() < VALUE_BYTES + len {
            bytes.extend_from_slice(&dice.roll().to_le_bytes());
            bytes.extend_from_slice(b"halcyon.");
        }
        Values { bytes, len }
    }

    pub fn get(&self, number: u64) -> &[u8] {
        let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize % VALUE_BYTES;
        &self.bytes[at..at + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers() {
        assert_eq!(&key(1234), b"0000000000001234");
        assert!(key(9) < key(10) && key(99_999) < key(100_000));
    }

    #[test]
    fn a_shuffle_has_every_number_once() {
        let mut numbers = shuffled(1000);
        assert!(numbers.windows(2).any(|pair| pair[0] > pair[1]));
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..1000));
    }
}
