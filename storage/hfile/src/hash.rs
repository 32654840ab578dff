//! The hash functions of bloom filters (HBase: `MurmurHash`, `JenkinsHash`, `MurmurHash3`).

use halcyon_cell::{Error, Result};
use halcyon_schema::jenkins_hash;

/// Which hash function a bloom filter was built with. Ours are built with `Murmur`, HBase's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashType {
    Jenkins,
    Murmur,
    Murmur3,
}

impl HashType {
    pub(crate) fn from_code(code: i32) -> Result<HashType> {
        match code {
            0 => Ok(HashType::Jenkins),
            1 => Ok(HashType::Murmur),
            2 => Ok(HashType::Murmur3),
            _ => Err(Error::corrupt(format!("bloom hash type: expected 0, 1 or 2, found {code}"))),
        }
    }

    pub(crate) fn hash(self, key: &[u8], seed: u32) -> u32 {
        match self {
            HashType::Jenkins => jenkins_hash(key, seed),
            HashType::Murmur => murmur(key, seed),
            HashType::Murmur3 => murmur3(key, seed),
        }
    }
}

fn word(chunk: &[u8]) -> u32 {
    u32::from_le_bytes(chunk.try_into().expect("four bytes"))
}

/// 32-bit MurmurHash2; HBase adds the tail bytes with their sign.
#[inline]
pub(crate) fn murmur(key: &[u8], seed: u32) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut h = seed ^ key.len() as u32;
    let mut chunks = key.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = word(chunk).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = chunks.remainder();
    if !tail.is_empty() {
        for (at, &byte) in tail.iter().enumerate().rev() {
            h ^= (i32::from(byte as i8) as u32) << (8 * at);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

/// MurmurHash3, x86, 32 bits.
fn murmur3(key: &[u8], seed: u32) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let scramble = |k: u32| k.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);
    let mut h = seed;
    let mut chunks = key.chunks_exact(4);
    for chunk in &mut chunks {
        h = (h ^ scramble(word(chunk))).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = chunks.remainder();
    if !tail.is_empty() {
        let k = tail.iter().enumerate().fold(0u32, |k, (at, &byte)| k ^ (u32::from(byte) << (8 * at)));
        h ^= scramble(k);
    }
    h ^= key.len() as u32;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_values_of_hbase() {
        for (key, first, second) in [
            ("", 0, 0),
            ("a", 0x9268_5f5e, 0x5b2b_9c66),
            ("abc", 0x1357_7c9b, 0xf369_e600),
            ("row-0001", 0x5afd_3425, 0x25ee_519a),
            ("hello world", 0x44a8_1419, 0x80bd_8ad2),
        ] {
            assert_eq!(murmur(key.as_bytes(), 0), first, "{key}");
            assert_eq!(murmur(key.as_bytes(), first), second, "{key}");
        }
        assert_eq!(jenkins_hash(b"a", 0), 0x58d6_8708);
        assert_eq!(jenkins_hash(b"abc", 0), 0x0e39_7631);
        assert_eq!(murmur3(b"a", 0), 0x3c25_69b2);
        assert_eq!(murmur3(b"abc", 0), 0xb3dd_93fa);
        assert_eq!(murmur3(b"hello world", 0), 0x5e92_8f0f);
    }
}
