//! Building a bloom filter. `bloom.rs` says what it is; chunks go out between data blocks as they fill up.

use halcyon_cache::BlockKind;
use halcyon_cell::{Result, keep_bytes, same_bytes};
use halcyon_env::invariant;

use crate::block_writer::{BlockPlace, BlockWriter};
use crate::bloom::{BLOOM_VERSION, HASH_COUNT_MAX, has_key, order_name, probes};
use crate::format::write_vlong;
use crate::hash::murmur;
use crate::index::KeyOrder;
use crate::index_writer::Chunk;

/// A chunk's size is a multiple of two to this power, so that it can be folded.
const FOLDS: u32 = 7;
/// `MURMUR` in the meta block.
const HASH_TYPE_MURMUR: i32 = 1;

/// How large chunks are and how often a filter may be wrong.
#[derive(Clone, Copy, Debug)]
struct Shape {
    bytes: usize,
    keys_max: u64,
    hash_count: u32,
}

impl Shape {
    /// The arithmetic of HBase's `BloomFilterUtil.createBySize`, truncations included.
    fn new(bytes_hint: usize, error_rate: f64) -> Shape {
        assert!(
            error_rate > 0.0 && error_rate < 1.0,
            "a filter of error rate {error_rate} has infinitely many bits for a key, or none"
        );
        let bytes = bytes_hint.max(1).next_multiple_of(1 << FOLDS);
        let bits = bytes as f64 * 8.0;
        let ln2 = std::f64::consts::LN_2;
        let ideal_keys = ((bits * (ln2 * ln2 / -error_rate.ln())) as u64).max(1);
        let bits_per_key = bytes as u64 * 8 / ideal_keys;
        let hash_count = ((ln2 * bits_per_key as f64).ceil() as u32).max(1);
        assert!(
            hash_count <= HASH_COUNT_MAX as u32,
            "the reader refuses a filter of more than {HASH_COUNT_MAX} hashes: {hash_count} for {error_rate}"
        );
        let k = f64::from(hash_count);
        let keys = -bits / k * (1.0 - (error_rate.ln() / k).exp()).ln();
        Shape { bytes, keys_max: (keys as u64).max(1), hash_count }
    }
}

struct Filling {
    bits: Vec<u8>,
    first_key: Vec<u8>,
    keys_count: u64,
}

struct Ready {
    bits: Vec<u8>,
    first_key: Vec<u8>,
}

/// A filter under construction.
pub(crate) struct BloomWriter {
    shape: Shape,
    order: KeyOrder,
    filling: Option<Filling>,
    ready: Vec<Ready>,
    /// Bits of a written chunk, to be used again.
    spare: Vec<u8>,
    chunks: Chunk,
    last_key: Vec<u8>,
    keys_count: u64,
    keys_max_sum: u64,
    /// Keys of the chunks that are closed.
    chunks_keys_sum: u64,
    bytes_sum: u64,
}

impl BloomWriter {
    /// `error_rate` as the family asks for it; a filter of columns is probed twice
    /// per read and gets a smaller one.
    pub(crate) fn new(order: KeyOrder, chunk_bytes: usize, error_rate: f32) -> BloomWriter {
        // HBase does this in float; with doubles the capacity of a chunk would differ by a few keys.
        let error_rate = if order != KeyOrder::Bytes {
            (1.0 - (1.0 - f64::from(error_rate)).sqrt()) as f32
        } else {
            error_rate
        };
        BloomWriter {
            shape: Shape::new(chunk_bytes, f64::from(error_rate)),
            order,
            filling: None,
            ready: Vec::new(),
            spare: Vec::new(),
            chunks: Chunk::default(),
            last_key: Vec::new(),
            keys_count: 0,
            keys_max_sum: 0,
            chunks_keys_sum: 0,
            bytes_sum: 0,
        }
    }

    pub(crate) fn keys_count(&self) -> u64 {
        self.keys_count
    }

    /// The key added last; empty if there is none.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Adds a key; keys come in the order of the file's cells. The same key again is not added twice.
    pub(crate) fn add(&mut self, key: &[u8]) {
        if self.keys_count > 0 && same_bytes(&self.last_key, key) {
            return;
        }
        if self.filling.as_ref().is_some_and(|f| f.keys_count >= self.shape.keys_max) {
            self.close_chunk();
        }
        let shape = self.shape;
        let spare = &mut self.spare;
        let filling = self.filling.get_or_insert_with(|| {
            let mut bits = std::mem::take(spare);
            bits.clear();
            bits.resize(shape.bytes, 0);
            Filling { bits, first_key: key.to_vec(), keys_count: 0 }
        });
        let first = murmur(key, 0);
        for position in probes(first, murmur(key, first), shape.hash_count, shape.bytes) {
            filling.bits[position >> 3] |= 1 << (position & 7);
        }
        filling.keys_count += 1;
        self.keys_count += 1;
        keep_bytes(&mut self.last_key, key);
    }

    fn close_chunk(&mut self) {
        let Some(Filling { mut bits, first_key, keys_count }) = self.filling.take() else { return };
        let mut keys_max = self.shape.keys_max;
        let mut len = bits.len();
        // Few keys in a large array: lay its halves over one another as long as they stay sparse enough.
        while len & 1 == 0 && keys_max > 2 * keys_count {
            len /= 2;
            keys_max /= 2;
            let (low, high) = bits.split_at_mut(len);
            for (to, from) in low.iter_mut().zip(&high[..len]) {
                *to |= from;
            }
        }
        bits.truncate(len);
        invariant!(
            has_key(&bits, &first_key, murmur, self.shape.hash_count),
            "folding keeps each key, because a position in a half is that in the whole modulo its size"
        );
        assert!(
            keys_count > 0 && keys_max >= keys_count,
            "a chunk has keys and room for them: {keys_count} of {keys_max}, or it lets too many through"
        );
        self.keys_max_sum += keys_max;
        self.bytes_sum += len as u64;
        self.chunks_keys_sum += keys_count;
        self.ready.push(Ready { bits, first_key });
    }

    /// Writes the chunks that are full. Call between data blocks.
    pub(crate) fn write_full_chunks(&mut self, blocks: &mut BlockWriter) -> Result<()> {
        if self.filling.as_ref().is_some_and(|f| f.keys_count >= self.shape.keys_max) {
            self.close_chunk();
        }
        for chunk in std::mem::take(&mut self.ready) {
            let place: BlockPlace = blocks.write_block(BlockKind::BloomChunk, &chunk.bits)?;
            self.chunks.add(&chunk.first_key, place, 0);
            self.spare = chunk.bits;
        }
        Ok(())
    }

    /// Writes the last chunk as well.
    pub(crate) fn write_last_chunk(&mut self, blocks: &mut BlockWriter) -> Result<()> {
        self.close_chunk();
        self.write_full_chunks(blocks)
    }

    /// The payload of the meta block, after the last chunk was written.
    pub(crate) fn meta(&self) -> Vec<u8> {
        assert!(self.filling.is_none() && self.ready.is_empty(), "all chunks are written");
        let mut out = Vec::new();
        out.extend_from_slice(&BLOOM_VERSION.to_be_bytes());
        out.extend_from_slice(&self.bytes_sum.to_be_bytes());
        out.extend_from_slice(&self.shape.hash_count.to_be_bytes());
        out.extend_from_slice(&HASH_TYPE_MURMUR.to_be_bytes());
        out.extend_from_slice(&self.keys_count.to_be_bytes());
        out.extend_from_slice(&self.keys_max_sum.to_be_bytes());
        out.extend_from_slice(&(self.chunks.len() as u32).to_be_bytes());
        let comparator = order_name(self.order);
        write_vlong(&mut out, comparator.len() as i64);
        out.extend_from_slice(comparator.as_bytes());
        self.chunks.write_root(&mut out);
        assert_eq!(
            self.chunks_keys_sum, self.keys_count,
            "every key is in a chunk, or its row would not be found"
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use halcyon_cell::CellComparator;

    use super::*;
    use crate::format::hex;

    #[test]
    fn shapes_are_hbases() {
        let row = Shape::new(128 * 1024, f64::from(0.01f32));
        assert_eq!((row.bytes, row.hash_count), (128 * 1024, 7));
        let row_col = BloomWriter::new(KeyOrder::Cells(CellComparator::Default), 128 * 1024, 0.01);
        assert_eq!(row_col.shape.hash_count, 8);
    }

    #[test]
    fn few_keys_fold_to_hbases_golden_bytes() {
        let mut writer = BloomWriter::new(KeyOrder::Bytes, 128 * 1024, 0.01);
        writer.add(b"r1");
        writer.add(b"r2");
        writer.add(b"r2");
        writer.close_chunk();
        assert_eq!(writer.ready[0].bits, hex("aad0ab80"));
        let mut writer = BloomWriter::new(KeyOrder::Bytes, 128 * 1024, 0.01);
        writer.add(b"r2");
        writer.close_chunk();
        assert_eq!(writer.ready[0].bits, hex("2bd0"));
    }
}
