use std::hash::Hasher;

/// Hashes encoded names of regions, which are hashes themselves (but for `hbase:meta`'s): each append asks for one.
#[derive(Default)]
pub(crate) struct RegionHasher(u64);

impl RegionHasher {
    fn add(&mut self, word: u64) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.0 ^ word) * u128::from(FACTOR);
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for RegionHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    use super::*;

    #[test]
    fn names_that_differ_little_do_not_meet() {
        let build = BuildHasherDefault::<RegionHasher>::default();
        let hashes: HashSet<u64> =
            (0..10_000).map(|at| build.hash_one(format!("{at:032x}").as_bytes())).collect();
        assert_eq!(hashes.len(), 10_000);
        let tops: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        let bottoms: HashSet<u64> = hashes.iter().map(|hash| hash & 127).collect();
        assert_eq!((tops.len(), bottoms.len()), (128, 128));
    }
}
