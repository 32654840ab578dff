//! Maps of what has an id of the server's own making, such as scanners and connections.
//!
//! Such ids are numbers in a row. Clients name them, but nothing is kept under one that the server has not given out, so nobody can choose
//! keys that meet. Each call of a scan asks such maps several times, and `SipHash` is most of what that costs.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by ids. The key hashes a `u64` and no more.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("ids are numbers");
    }

    fn write_u64(&mut self, id: u64) {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0 = (self.0 ^ id).wrapping_mul(FACTOR);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    /// A map takes the place from the low bits, and a mark that it compares first from the high ones.
    #[test]
    fn ids_in_a_row_do_not_meet() {
        let build = BuildHasherDefault::<IdHasher>::default();
        let ids = (0..1_024).map(|at| 0x7531_0000_0001 + at);
        let hashes: Vec<u64> = ids.map(|id: u64| build.hash_one(id)).collect();
        let lows: HashSet<u64> = hashes.iter().map(|hash| hash & 1_023).collect();
        let highs: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        assert_eq!((lows.len(), highs.len()), (1_024, 128));
    }
}
