//! Bloom filters: may a file have cells of this row (or column)?
//!
//! A filter is cut into chunks, each a block of its own that is read when asked for; the meta block, kept in
//! memory, has the first key of each chunk. A chunk's payload is its bit array and nothing else. Checked against
//! HBase's `CompoundBloomFilter` and `BloomFilterUtil`.

use bytes::Bytes;
use halcyon_cell::{CellComparator, CellType, Error, KeyRef, LATEST_TIMESTAMP, Result};
use halcyon_env::invariant;

use crate::format::Reader;
use crate::hash::HashType;
use crate::index::{KeyOrder, RootIndex};
use crate::trailer::comparator_of;

/// The version of the compound filter; the only one that was ever written.
pub(crate) const BLOOM_VERSION: i32 = 3;
/// More would be slower than reading the block.
pub(crate) const HASH_COUNT_MAX: i32 = 64;

/// A filter's root: what is known of it without reading a chunk.
pub(crate) struct Bloom {
    hash_type: HashType,
    hash_count: u32,
    /// Bytes of all chunks.
    pub(crate) size_bytes: u64,
    /// Keys that were added, and those that there would have been room for.
    pub(crate) keys_count: i64,
    pub(crate) keys_max: i64,
    /// The order of chunk keys.
    pub(crate) order: KeyOrder,
    /// One entry per chunk.
    pub(crate) chunks: RootIndex,
    /// The last key in the filter, where that is known.
    last_key: Option<Bytes>,
}

impl Bloom {
    /// Parses the payload of a bloom meta block; `cells` is the file's order of cells if the filter's keys are
    /// cells. Keys were added in that order, whatever comparator is named: HBase names the default one in files of
    /// `hbase:meta` too.
    pub(crate) fn parse(payload: &Bytes, cells: Option<CellComparator>) -> Result<Bloom> {
        let mut reader = Reader::new(payload);
        let version = reader.i32("bloom version")?;
        if version != BLOOM_VERSION {
            return Err(Error::corrupt(format!("bloom version: expected {BLOOM_VERSION}, found {version}")));
        }
        let size_bytes = reader.i64("bloom size")?.max(0) as u64;
        let hash_count = reader.i32("bloom hash count")?;
        if !(1..=HASH_COUNT_MAX).contains(&hash_count) {
            return Err(Error::corrupt(format!(
                "bloom hash count: expected 1 to {HASH_COUNT_MAX}, found {hash_count}"
            )));
        }
        let hash_type = HashType::from_code(reader.i32("bloom hash type")?)?;
        let keys_count = reader.i64("bloom key count")?;
        let keys_max = reader.i64("bloom key capacity")?;
        let chunks_count = reader.count("bloom chunk count")?;
        let comparator = reader.vint_bytes("bloom comparator name")?;
        let order = match cells {
            Some(order) => {
                comparator_of(&String::from_utf8_lossy(comparator))?;
                KeyOrder::Cells(order)
            }
            None => KeyOrder::Bytes,
        };
        let chunks = RootIndex::parse(payload, reader.at(), chunks_count, order)?;
        Ok(Bloom {
            hash_type,
            hash_count: hash_count as u32,
            size_bytes,
            keys_count,
            keys_max,
            order,
            chunks,
            last_key: None,
        })
    }

    /// Takes the last key from file info.
    pub(crate) fn set_last_key(&mut self, key: Option<&Bytes>) -> Result<()> {
        if let (Some(key), KeyOrder::Cells(_)) = (key, self.order) {
            KeyRef::parse(key).map_err(|e| e.context("file info LAST_BLOOM_KEY"))?;
        }
        self.last_key = key.cloned();
        Ok(())
    }

    pub(crate) fn is_behind_last(&self, key: &[u8]) -> bool {
        self.last_key.as_ref().is_some_and(|last| self.order.compare(key, last).is_gt())
    }

    /// Whether a chunk's bits have room for `key`.
    pub(crate) fn chunk_may_contain(&self, bits: &[u8], key: &[u8]) -> bool {
        has_key(bits, key, |key, seed| self.hash_type.hash(key, seed), self.hash_count)
    }
}

/// Whether all bits of a key are set.
#[inline]
pub(crate) fn has_key(bits: &[u8], key: &[u8], hash: impl Fn(&[u8], u32) -> u32, hash_count: u32) -> bool {
    let first = hash(key, 0);
    let second = hash(key, first);
    probes(first, second, hash_count, bits.len())
        .all(|position| bits[position >> 3] & (1 << (position & 7)) != 0)
}

/// How HBase names the order of chunk keys in a filter's meta block.
pub(crate) fn order_name(order: KeyOrder) -> &'static str {
    match order {
        KeyOrder::Bytes => "",
        KeyOrder::Cells(CellComparator::Default) => "org.apache.hadoop.hbase.CellComparatorImpl",
        KeyOrder::Cells(CellComparator::Meta) => "org.apache.hadoop.hbase.MetaCellComparator",
    }
}

/// The bit positions of a key in an array of `len` bytes (not 0): `|h1 + i*h2| mod bits` in 32-bit arithmetic.
#[inline]
pub(crate) fn probes(first: u32, second: u32, count: u32, len: usize) -> impl Iterator<Item = usize> {
    invariant!(len > 0, "a chunk has bits to find a key in: one without is refused when it is read");
    let bits = len as u64 * 8;
    let mask = if bits.is_power_of_two() { bits - 1 } else { 0 };
    let mut composite = first as i32;
    (0..count).map(move |_| {
        let magnitude = u64::from(composite.unsigned_abs());
        composite = composite.wrapping_add(second as i32);
        // Java's remainder has the dividend's sign, so its magnitude is the magnitude's remainder.
        (if mask != 0 { magnitude & mask } else { magnitude % bits }) as usize
    })
}

/// The key of a `RowCol` filter: a cell key without family, sorting before every cell of the column.
pub(crate) fn row_col_key(out: &mut Vec<u8>, row: &[u8], qualifier: &[u8]) {
    out.clear();
    out.extend_from_slice(&(row.len() as u16).to_be_bytes());
    out.extend_from_slice(row);
    out.push(0);
    out.extend_from_slice(qualifier);
    out.extend_from_slice(&LATEST_TIMESTAMP.to_be_bytes());
    out.push(CellType::Maximum as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::hex;
    use crate::hash::murmur;

    fn bits_of(keys: &[&[u8]], hash_count: u32, len: usize) -> Vec<u8> {
        let mut bits = vec![0; len];
        for key in keys {
            let first = murmur(key, 0);
            for position in probes(first, murmur(key, first), hash_count, len) {
                bits[position >> 3] |= 1 << (position & 7);
            }
        }
        bits
    }

    #[test]
    fn golden_chunks_of_hbase() {
        assert_eq!(bits_of(&[b"r1", b"r2"], 7, 4), hex("aad0ab80"));
        assert_eq!(bits_of(&[b"r2"], 7, 2), hex("2bd0"));
    }

    #[test]
    fn row_col_keys_are_cell_keys_without_family() {
        let mut key = Vec::new();
        row_col_key(&mut key, b"r1", b"q");
        assert_eq!(key, hex("0002 7231 00 71 7fffffffffffffff ff"));
        KeyRef::parse(&key).unwrap();
    }

    #[test]
    fn probes_stay_inside_an_array_that_is_no_power_of_two() {
        for len in [1, 3, 5, 100] {
            for seed in 0..100u32 {
                let h = seed.wrapping_mul(0x9e37_79b9);
                assert!(probes(h, !h, 20, len).all(|p| p < len * 8));
            }
        }
    }
}
