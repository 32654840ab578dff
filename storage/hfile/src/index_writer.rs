//! Writing the block index. `index.rs` draws the bytes.
//!
//! Entries of data blocks collect in a leaf chunk; when it has reached its size it goes out between the data
//! blocks and becomes one entry of the root. A file that never fills a leaf chunk has a root alone. At the
//! end the root is folded into intermediate levels until it is small enough. Checked against HBase's
//! `HFileBlockIndex.BlockIndexWriter`.

use halcyon_cache::{BlockKind, BlockOffset};
use halcyon_cell::Result;

use crate::block::HEADER_LEN;
use crate::block_writer::{BlockPlace, BlockWriter};
use crate::format::write_vlong;

/// HBase's bound on levels, and ours when reading.
pub(crate) const LEVELS_MAX: u32 = 16;

/// Entries of one index block.
#[derive(Default)]
pub(crate) struct Chunk {
    /// `int64 offset | int32 on-disk size | key` after one another.
    entries: Vec<u8>,
    ends: Vec<u32>,
    /// Data blocks up to and including each entry.
    blocks_before_end: Vec<u64>,
    /// Size in root form.
    root_len: usize,
    /// End of the block that was added last: the next one lies behind it.
    next_offset: BlockOffset,
}

impl Chunk {
    /// `blocks_count` is the number of data blocks below the entry, where the mid-key needs it.
    pub(crate) fn add(&mut self, key: &[u8], place: BlockPlace, blocks_count: u64) {
        assert!(
            place.offset >= self.next_offset,
            "an entry at {} overlaps {}",
            place.offset,
            self.next_offset
        );
        assert!(
            place.on_disk_len as usize >= HEADER_LEN,
            "readers refuse a block without a whole header: {} bytes at {}",
            place.on_disk_len,
            place.offset
        );
        self.next_offset = place.offset.after(u64::from(place.on_disk_len));
        self.entries.extend_from_slice(&place.offset.get().to_be_bytes());
        self.entries.extend_from_slice(&place.on_disk_len.to_be_bytes());
        self.entries.extend_from_slice(key);
        self.ends.push(u32::try_from(self.entries.len()).expect("an index block is smaller than 4 GiB"));
        let before = self.blocks_before_end.last().copied().unwrap_or(0);
        self.blocks_before_end.push(before + blocks_count);
        self.root_len += 12 + vint_len(key.len()) + key.len();
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn entry(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.entries[start..self.ends[at] as usize]
    }

    fn non_root_len(&self) -> usize {
        4 + 4 * (self.len() + 1) + self.entries.len()
    }

    pub(crate) fn write_non_root(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&(self.len() as u32).to_be_bytes());
        out.extend_from_slice(&0u32.to_be_bytes());
        for end in &self.ends {
            out.extend_from_slice(&end.to_be_bytes());
        }
        out.extend_from_slice(&self.entries);
        assert_eq!(
            out.len() - start,
            self.non_root_len(),
            "leaves are closed by the size that they will have"
        );
    }

    pub(crate) fn write_root(&self, out: &mut Vec<u8>) {
        let start = out.len();
        for at in 0..self.len() {
            let (place, key) = self.entry(at).split_at(12);
            out.extend_from_slice(place);
            write_vlong(out, key.len() as i64);
            out.extend_from_slice(key);
        }
        assert_eq!(out.len() - start, self.root_len, "levels are added by the size that the root will have");
    }

    /// `int64 leaf offset | int32 leaf on-disk size | int32 entry in that leaf` of the middle data block.
    fn write_mid_key(&self, out: &mut Vec<u8>) {
        let total = *self.blocks_before_end.last().expect("a root over leaves has entries");
        let middle = (total - 1) / 2;
        let at = self.blocks_before_end.partition_point(|&end| end <= middle);
        let before = if at == 0 { 0 } else { self.blocks_before_end[at - 1] };
        assert!(
            before <= middle && middle < self.blocks_before_end[at],
            "the middle block {middle} is below entry {at}, which has blocks {before} to {}",
            self.blocks_before_end[at]
        );
        out.extend_from_slice(&self.entry(at)[..12]);
        out.extend_from_slice(&((middle - before) as u32).to_be_bytes());
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.ends.clear();
        self.blocks_before_end.clear();
        self.root_len = 0; // `next_offset` stays: what comes next lies behind what went out
    }
}

/// Bytes of a key length as a VInt.
fn vint_len(value: usize) -> usize {
    match value {
        0..=127 => 1,
        128..=255 => 2,
        256..=65_535 => 3,
        _ => 4,
    }
}

/// What the trailer needs to know of the finished index.
pub(crate) struct WrittenIndex {
    pub(crate) blocks_count: u64,
    pub(crate) root_entries_count: u32,
    pub(crate) levels: u32,
    pub(crate) uncompressed_bytes: u64,
}

pub(crate) struct IndexWriter {
    chunk_bytes_max: usize,
    entries_min: usize,
    leaf: Chunk,
    root: Chunk,
    scratch: Vec<u8>,
    uncompressed_bytes: u64,
    /// Data blocks that were added.
    blocks_count: u64,
}

impl IndexWriter {
    pub(crate) fn new(chunk_bytes_max: usize, entries_min: usize) -> IndexWriter {
        IndexWriter {
            chunk_bytes_max,
            entries_min: entries_min.max(2),
            leaf: Chunk::default(),
            root: Chunk::default(),
            scratch: Vec::new(),
            uncompressed_bytes: 0,
            blocks_count: 0,
        }
    }

    pub(crate) fn add(&mut self, key: &[u8], place: BlockPlace) {
        self.leaf.add(key, place, 1);
        self.blocks_count += 1;
    }

    /// Writes the leaf chunk if it has reached its size. Call between data blocks.
    pub(crate) fn write_full_leaf(&mut self, blocks: &mut BlockWriter) -> Result<()> {
        if self.leaf.non_root_len() >= self.chunk_bytes_max { self.write_leaf(blocks) } else { Ok(()) }
    }

    /// Writes the last leaf chunk, unless there is no other: then its entries are the root's.
    pub(crate) fn write_last_leaf(&mut self, blocks: &mut BlockWriter) -> Result<()> {
        if self.root.len() > 0 && self.leaf.len() > 0 { self.write_leaf(blocks) } else { Ok(()) }
    }

    fn write_leaf(&mut self, blocks: &mut BlockWriter) -> Result<()> {
        assert!(self.leaf.len() > 0, "an index block is found by its first key, so it has an entry");
        let place = self.write_node(blocks, BlockKind::LeafIndex, None)?;
        let key = &self.leaf.entry(0)[12..];
        self.root.add(key, place, self.leaf.len() as u64);
        self.leaf.clear();
        Ok(())
    }

    /// Writes `chunk`, or the leaf.
    fn write_node(
        &mut self,
        blocks: &mut BlockWriter,
        kind: BlockKind,
        chunk: Option<&Chunk>,
    ) -> Result<BlockPlace> {
        self.scratch.clear();
        let chunk = chunk.unwrap_or(&self.leaf);
        chunk.write_non_root(&mut self.scratch);
        self.uncompressed_bytes += self.scratch.len() as u64;
        let place = blocks.write_block(kind, &self.scratch)?;
        assert!(
            place.offset >= chunk.next_offset,
            "an index block is behind the blocks it leads to: it is at {}, they end at {}",
            place.offset,
            chunk.next_offset
        );
        Ok(place)
    }

    /// Writes intermediate levels and the root block; gives the root's offset, too.
    pub(crate) fn finish(mut self, blocks: &mut BlockWriter) -> Result<(BlockOffset, WrittenIndex)> {
        let top = if self.root.len() == 0 { &self.leaf } else { &self.root };
        let indexed = top.blocks_before_end.last().copied().unwrap_or(0);
        assert!(
            indexed == self.blocks_count && (self.root.len() == 0 || self.leaf.len() == 0),
            "{} data blocks were added, the root leads to {indexed}, {} are in a leaf that was not written",
            self.blocks_count,
            self.leaf.len()
        );
        let mut levels = 1;
        let mut mid_key = Vec::new();
        let mut root = if self.root.len() == 0 {
            std::mem::take(&mut self.leaf)
        } else {
            levels = 2;
            self.root.write_mid_key(&mut mid_key);
            std::mem::take(&mut self.root)
        };
        while levels > 1
            && levels < LEVELS_MAX
            && root.root_len > self.chunk_bytes_max
            && root.len() > self.entries_min
        {
            root = self.write_intermediate_level(blocks, &root)?;
            levels += 1;
        }
        let mut payload = Vec::with_capacity(root.root_len + mid_key.len());
        root.write_root(&mut payload);
        payload.extend_from_slice(&mid_key);
        self.uncompressed_bytes += payload.len() as u64;
        let place = blocks.write_block(BlockKind::RootIndex, &payload)?;
        let written = WrittenIndex {
            blocks_count: self.blocks_count,
            root_entries_count: root.len() as u32,
            levels,
            uncompressed_bytes: self.uncompressed_bytes,
        };
        Ok((place.offset, written))
    }

    fn write_intermediate_level(&mut self, blocks: &mut BlockWriter, below: &Chunk) -> Result<Chunk> {
        let mut above = Chunk::default();
        let mut node = Chunk::default();
        for at in 0..below.len() {
            let (place, key) = below.entry(at).split_at(12);
            let place = BlockPlace {
                offset: BlockOffset::new(u64::from_be_bytes(place[..8].try_into().expect("eight bytes"))),
                on_disk_len: u32::from_be_bytes(place[8..].try_into().expect("four bytes")),
            };
            node.add(key, place, 0);
            let full = at >= self.entries_min && node.root_len >= self.chunk_bytes_max;
            if full || at + 1 == below.len() {
                let place = self.write_node(blocks, BlockKind::IntermediateIndex, Some(&node))?;
                above.add(&node.entry(0)[12..], place, 0);
                node.clear();
            }
        }
        assert!(
            above.len() < below.len(),
            "a level is smaller than the one below it, or the root never fits: {} entries over {}",
            above.len(),
            below.len()
        );
        Ok(above)
    }
}
