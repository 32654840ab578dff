//! Keys that spread over regions, and values that say which row and version they belong to.

use bytes::Bytes;

use crate::random::Random;

/// The key of a row: 16 hexadecimal digits, another for each number, evenly spread.
pub(super) fn row_key(number: u64) -> Bytes {
    Bytes::from(format!("{:016x}", Random::new(number).next_u64()))
}

/// Keys at which a table of such rows is divided evenly.
pub(super) fn splits(regions: u32) -> Vec<Bytes> {
    let width = u64::MAX / u64::from(regions);
    (1..u64::from(regions)).map(|at| Bytes::from(format!("{:016x}", width * at))).collect()
}

/// The bytes of a version of a row, another for each of both.
pub(super) fn value(row: u64, version: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    let mut random = Random::fork(row, version);
    while bytes.len() < len {
        bytes.extend_from_slice(&random.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Whether these are the bytes of that version of that row, all of them.
pub(super) fn is_value(found: &[u8], row: u64, version: u64, len: usize) -> bool {
    let mut random = Random::fork(row, version);
    found.len() == len && found.chunks(8).all(|part| part == &random.next_u64().to_le_bytes()[..part.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_told_from_every_other() {
        for len in [16, 21, 1 << 20] {
            let bytes = value(7, 3, len);
            assert_eq!(bytes.len(), len);
            assert!(is_value(&bytes, 7, 3, len));
            assert!(!is_value(&bytes, 7, 2, len), "an older version");
            assert!(!is_value(&bytes, 8, 3, len), "another row");
            assert!(!is_value(&bytes[..len - 1], 7, 3, len), "cut off");
            let mut damaged = bytes;
            damaged[len - 1] ^= 1;
            assert!(!is_value(&damaged, 7, 3, len), "the last bit");
        }
    }

    #[test]
    fn keys_spread_over_regions() {
        let splits = splits(500);
        assert_eq!(splits.len(), 499);
        let region = |number| splits.partition_point(|split| *split <= row_key(number));
        let mut counts = vec![0; 500];
        (0..50_000).for_each(|number| counts[region(number)] += 1);
        assert!(counts.iter().all(|count| (40..180).contains(count)), "{counts:?}");
        assert!(super::splits(1).is_empty());
    }
}
