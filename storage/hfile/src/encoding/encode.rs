//! Builds the payload of a data block, cell by cell, in any encoding. `mod.rs` draws the bytes.
//!
//! What HBase's reader accepts leaves some freedom: how long a common beginning is claimed to be, when a
//! timestamp goes in as a difference. Here all of it is decided as HBase's encoders decide it, so that the same
//! cells give the same bytes (`tests/golden.rs` compares them). Checked against `PrefixKeyDeltaEncoder`,
//! `DiffKeyDeltaEncoder`, `FastDiffDeltaEncoder`, `RowIndexEncoderV1` and `PrivateCellUtil.findCommonPrefixInFlatKey`.

use halcyon_cell::{CellComparator, CellRef, Error, KEY_OFFSET, KeyRef, Result};
use halcyon_env::{Witness, invariant};
use halcyon_schema::BlockEncoding;

use super::tags::TagEncoder;
use super::{KEY_TAIL, diff, fast_diff, stores_differences};
use crate::data_block::CellLayout;
use crate::format::{vlong_len, write_varint32, write_vlong};

/// How the cells of a file's data blocks are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncoderOptions {
    pub(crate) encoding: BlockEncoding,
    pub(crate) layout: CellLayout,
    /// Tags go through a dictionary; PREFIX, DIFF and FAST_DIFF only.
    pub(crate) compress_tags: bool,
    pub(crate) comparator: CellComparator,
}

/// A data block under construction, used for one block after the other.
///
/// *Invariants*: cells come in order, and all have the same family where the encoding stores it once.
pub(crate) struct BlockEncoder {
    options: EncoderOptions,
    out: Vec<u8>,
    /// Bytes that these cells take without encoding.
    plain_len: usize,
    first_key: Vec<u8>,
    /// The last cell as a KeyValue without tags. Where the payload has whole cells it is there and not here.
    last: Vec<u8>,
    /// Where the last whole cell starts in `out`.
    last_start: usize,
    /// ROW_INDEX_V1: where each row starts in the cell area.
    row_starts: Vec<u32>,
    tags: Option<TagEncoder>,
    /// The payload is complete.
    is_finished: Witness<bool>,
}

impl BlockEncoder {
    pub(crate) fn new(options: EncoderOptions, block_size: usize) -> BlockEncoder {
        let compress_tags = options.compress_tags && stores_differences(options.encoding);
        let mut encoder = BlockEncoder {
            options,
            out: Vec::with_capacity(block_size + block_size / 4),
            plain_len: 0,
            first_key: Vec::new(),
            last: Vec::new(),
            last_start: 0,
            row_starts: Vec::new(),
            tags: compress_tags.then(TagEncoder::default),
            is_finished: Witness::default(),
        };
        encoder.begin();
        encoder
    }

    fn begin(&mut self) {
        if self.options.encoding != BlockEncoding::None {
            self.out.extend_from_slice(&self.options.encoding.id().to_be_bytes());
        }
        if stores_differences(self.options.encoding) {
            self.out.extend_from_slice(&[0; 4]); // the plain size, once it is known
        }
        assert_eq!(self.out.len(), self.head_len(), "blocks are closed by the bytes that follow their head");
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.plain_len == 0
    }

    /// Bytes that the cells take without encoding (HBase: `getUnencodedDataSizeWritten`).
    pub(crate) fn plain_len(&self) -> usize {
        self.plain_len
    }

    /// Bytes that the cells take as they are written, with their row index but without what stands in front of
    /// and behind them once a block (HBase: `getEncodedDataSizeWritten`).
    pub(crate) fn encoded_len(&self) -> usize {
        self.out.len() - self.head_len() + 4 * self.row_starts.len()
    }

    fn head_len(&self) -> usize {
        match self.options.encoding {
            BlockEncoding::None => 0,
            BlockEncoding::RowIndexV1 => 2,
            _ => 6,
        }
    }

    pub(crate) fn first_key(&self) -> KeyRef<'_> {
        KeyRef::trusted(&self.first_key)
    }

    /// The key of the last cell; `None` in an empty block.
    #[inline]
    pub(crate) fn last_key(&self) -> Option<KeyRef<'_>> {
        (!self.is_empty()).then(|| self.last_cell().key())
    }

    fn last_cell(&self) -> CellRef<'_> {
        let bytes = match stores_differences(self.options.encoding) {
            true => &self.last[..],
            false => &self.out[self.last_start..],
        };
        CellRef::trusted(bytes, 0)
    }

    /// Adds a cell. `Invalid` if the encoding cannot hold it: one family a block, where it is stored once.
    pub(crate) fn append(&mut self, cell: &CellRef<'_>) -> Result<()> {
        self.is_finished.check(|finished| {
            assert!(!*finished, "a cell behind the end of a payload would be read as its row index");
        });
        let first = self.is_empty();
        if first {
            self.first_key.clear();
            self.first_key.extend_from_slice(cell.key().bytes());
        }
        match self.options.encoding {
            BlockEncoding::None => self.plain_len += self.append_plain(cell),
            BlockEncoding::RowIndexV1 => {
                let new_row = first || {
                    let last = self.last_cell();
                    self.options.comparator.compare_rows(last.row(), cell.row()).is_ne()
                };
                if new_row {
                    self.row_starts.push((self.out.len() - self.head_len()) as u32);
                }
                self.plain_len += self.append_plain(cell);
            }
            _ => {
                self.append_difference(cell, first)?;
                self.plain_len += self.plain_len_of(cell);
            }
        }
        Ok(())
    }

    fn plain_len_of(&self, cell: &CellRef<'_>) -> usize {
        let layout = self.options.layout;
        let tags_len = if layout.tags { 2 + cell.tags().len() } else { 0 };
        let seq_len = if layout.mvcc { vlong_len(cell.seq() as i64) } else { 0 };
        cell.bytes_without_tags().len() + tags_len + seq_len
    }

    /// Returns the bytes that the cell takes.
    #[inline]
    fn append_plain(&mut self, cell: &CellRef<'_>) -> usize {
        self.last_start = self.out.len();
        let (layout, tags) = (self.options.layout, cell.tags());
        if layout.tags && !tags.is_empty() {
            self.out.extend_from_slice(cell.bytes());
        } else {
            self.out.extend_from_slice(cell.bytes_without_tags());
            if layout.tags {
                self.out.extend_from_slice(&[0; 2]);
            }
        }
        if layout.mvcc {
            write_vlong(&mut self.out, cell.seq() as i64);
        }
        self.out.len() - self.last_start
    }

    fn append_difference(&mut self, cell: &CellRef<'_>, first: bool) -> Result<()> {
        let last = CellRef::trusted(&self.last, 0);
        if !first && last.family() != cell.family() {
            return Err(Error::invalid(format!(
                "encoding {} stores one family a block, found {} behind {}",
                self.options.encoding.name(),
                cell.family().escape_ascii(),
                last.family().escape_ascii()
            )));
        }
        let last = (!first).then_some(last);
        match self.options.encoding {
            BlockEncoding::Prefix => write_prefix(&mut self.out, cell, last),
            BlockEncoding::Diff => write_diff(&mut self.out, cell, last),
            _ => write_fast_diff(&mut self.out, cell, last),
        }
        self.append_tags_and_seq(cell);
        self.last.clear();
        self.last.extend_from_slice(cell.bytes_without_tags());
        Ok(())
    }

    fn append_tags_and_seq(&mut self, cell: &CellRef<'_>) {
        if self.options.layout.tags {
            let tags = cell.tags();
            write_varint32(&mut self.out, tags.len() as u32);
            match &mut self.tags {
                Some(encoder) => encoder.write(tags, &mut self.out),
                None => self.out.extend_from_slice(tags),
            }
        }
        if self.options.layout.mvcc {
            write_vlong(&mut self.out, cell.seq() as i64);
        }
    }

    /// The complete payload. Nothing may be added behind it but [`BlockEncoder::clear`].
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.is_finished.check(|finished| *finished = true);
        let cells_len = self.out.len() - self.head_len();
        assert!(
            stores_differences(self.options.encoding) || cells_len == self.plain_len,
            "cells that lie there whole take {} bytes, as they were counted: {cells_len}",
            self.plain_len
        );
        if stores_differences(self.options.encoding) {
            self.out[2..6].copy_from_slice(&(self.plain_len as u32).to_be_bytes());
        } else if self.options.encoding == BlockEncoding::RowIndexV1 {
            invariant!(
                self.row_starts.first() == Some(&0)
                    && self.row_starts.is_sorted_by(|left, right| left < right),
                "rows are searched by halves: the first begins with the cells, each behind the one before"
            );
            self.out.extend_from_slice(&(self.row_starts.len() as u32).to_be_bytes());
            for start in &self.row_starts {
                self.out.extend_from_slice(&start.to_be_bytes());
            }
            self.out.extend_from_slice(&(cells_len as u32).to_be_bytes());
        }
        invariant!(
            !stores_differences(self.options.encoding)
                || super::check_runs(&self.out, self.options.layout, self.tags.is_some()).is_ok(),
            "what {} has encoded can be decoded",
            self.options.encoding.name()
        );
        &self.out
    }

    /// Begins the next block; keeps at most `keep_bytes` of memory for it.
    pub(crate) fn clear(&mut self, keep_bytes: usize) {
        self.out.clear();
        self.out.shrink_to(keep_bytes);
        self.last.shrink_to(keep_bytes);
        self.plain_len = 0;
        self.last_start = 0;
        self.row_starts.clear();
        self.is_finished.check(|finished| *finished = false);
        if let Some(tags) = &mut self.tags {
            tags.clear();
        }
        self.begin();
    }
}

fn write_prefix(out: &mut Vec<u8>, cell: &CellRef<'_>, last: Option<CellRef<'_>>) {
    let key = cell.key().bytes();
    let common = last.map_or(0, |last| {
        let (common, whole) = common_head(cell, &last);
        // Only behind equal qualifiers does the comparison go on into timestamp and type.
        if whole { common_len(key, last.key().bytes()) } else { common }
    });
    write_varint32(out, (key.len() - common) as u32);
    write_varint32(out, cell.value_len() as u32);
    write_varint32(out, common as u32);
    out.extend_from_slice(&key[common..]);
    out.extend_from_slice(cell.value());
}

fn write_diff(out: &mut Vec<u8>, cell: &CellRef<'_>, last: Option<CellRef<'_>>) {
    let (key_len, value_len, timestamp) = (cell.key_len(), cell.value_len(), cell.timestamp());
    let mut flags = 0;
    let mut common = 0;
    let mut field = timestamp.wrapping_abs();
    let mut negative = timestamp < 0;
    match last {
        None => {
            let family = cell.family();
            out.push(family.len() as u8);
            out.extend_from_slice(family);
        }
        Some(last) => {
            common = common_head(cell, &last).0;
            flags |= if key_len == last.key_len() { diff::SAME_KEY_LEN } else { 0 };
            flags |= if value_len == last.value_len() { diff::SAME_VALUE_LEN } else { 0 };
            flags |= if cell.type_code() == last.type_code() { diff::SAME_TYPE } else { 0 };
            let difference = last.timestamp().wrapping_sub(timestamp);
            if fits_in(difference.wrapping_abs()) < fits_in(field) {
                flags |= diff::IS_DIFFERENCE;
                (field, negative) = (difference.wrapping_abs(), difference < 0);
            }
        }
    }
    let field_len = fits_in(field);
    flags |= ((field_len - 1) as u8) << diff::TIMESTAMP_LEN_SHIFT;
    flags |= if negative { diff::NEGATIVE } else { 0 };
    out.push(flags);
    if flags & diff::SAME_KEY_LEN == 0 {
        write_varint32(out, key_len as u32);
    }
    if flags & diff::SAME_VALUE_LEN == 0 {
        write_varint32(out, value_len as u32);
    }
    write_varint32(out, common as u32);
    write_head_rest(out, cell, common);
    out.extend_from_slice(&field.to_le_bytes()[..field_len]);
    if flags & diff::SAME_TYPE == 0 {
        out.push(cell.type_code());
    }
    out.extend_from_slice(cell.value());
}

fn write_fast_diff(out: &mut Vec<u8>, cell: &CellRef<'_>, last: Option<CellRef<'_>>) {
    let (key_len, value_len) = (cell.key_len(), cell.value_len());
    let Some(last) = last else {
        out.push(0);
        write_varint32(out, key_len as u32);
        write_varint32(out, value_len as u32);
        write_varint32(out, 0);
        out.extend_from_slice(&cell.bytes_without_tags()[KEY_OFFSET..]);
        return;
    };
    let timestamp = cell.timestamp().to_be_bytes();
    let timestamp_common = common_len(&timestamp[..7], &last.timestamp().to_be_bytes());
    let mut flags = timestamp_common as u8;
    flags |= if key_len == last.key_len() { fast_diff::SAME_KEY_LEN } else { 0 };
    flags |= if value_len == last.value_len() { fast_diff::SAME_VALUE_LEN } else { 0 };
    flags |= if cell.type_code() == last.type_code() { fast_diff::SAME_TYPE } else { 0 };
    flags |= if cell.value() == last.value() { fast_diff::SAME_VALUE } else { 0 };
    out.push(flags);
    if flags & fast_diff::SAME_KEY_LEN == 0 {
        write_varint32(out, key_len as u32);
    }
    if flags & fast_diff::SAME_VALUE_LEN == 0 {
        write_varint32(out, value_len as u32);
    }
    let common = common_head(cell, &last).0;
    write_varint32(out, common as u32);
    write_head_rest(out, cell, common);
    out.extend_from_slice(&timestamp[timestamp_common..]);
    if flags & fast_diff::SAME_TYPE == 0 {
        out.push(cell.type_code());
    }
    if flags & fast_diff::SAME_VALUE == 0 {
        out.extend_from_slice(cell.value());
    }
}

/// What `common` does not cover of row length, row and qualifier. The family is left out, with its length.
fn write_head_rest(out: &mut Vec<u8>, cell: &CellRef<'_>, common: usize) {
    let (key, row_end) = (cell.key().bytes(), 2 + cell.row().len());
    let qualifier_start = row_end + 1 + cell.family().len();
    if common < row_end {
        out.extend_from_slice(&key[common..row_end]);
    }
    out.extend_from_slice(&key[common.max(qualifier_start)..key.len() - KEY_TAIL]);
}

/// Leading bytes that both keys share up to the end of the qualifier, and whether they share all of these.
/// Families are equal.
fn common_head(cell: &CellRef<'_>, last: &CellRef<'_>) -> (usize, bool) {
    let (key, last_key) = (cell.key().bytes(), last.key().bytes());
    let (head, last_head) = (&key[..key.len() - KEY_TAIL], &last_key[..last_key.len() - KEY_TAIL]);
    if key[..2] != last_key[..2] {
        return (usize::from(key[0] == last_key[0]), false); // rows of different lengths
    }
    let common = common_len(head, last_head);
    (common, head.len() == last_head.len() && common == head.len())
}

fn common_len(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(l, r)| l == r).count()
}

/// Bytes that a magnitude takes, at least one (HBase: `ByteBufferUtils.longFitsIn`); 8 for the one that stays negative.
fn fits_in(magnitude: i64) -> usize {
    (8 - (magnitude.leading_zeros() / 8) as usize).max(1)
}

#[cfg(test)]
mod tests {
    use halcyon_cell::{Cell, CellType, ErrorKind};

    use super::*;
    use crate::data_block::cell_at;
    use crate::encoding::tests::{decode, golden, plain};

    const ENCODINGS: [BlockEncoding; 4] =
        [BlockEncoding::Prefix, BlockEncoding::Diff, BlockEncoding::FastDiff, BlockEncoding::RowIndexV1];

    fn encoder(encoding: BlockEncoding, layout: CellLayout, compress_tags: bool) -> BlockEncoder {
        let comparator = CellComparator::Default;
        BlockEncoder::new(EncoderOptions { encoding, layout, compress_tags, comparator }, 100)
    }

    const BOTH: CellLayout = CellLayout { tags: true, mvcc: true, seq: None };

    #[test]
    fn golden_blocks_of_hbase_come_out_byte_for_byte() {
        let plain = plain();
        for (encoding, expected) in ENCODINGS.into_iter().zip(golden()) {
            let mut encoder = encoder(encoding, BOTH, false);
            for _ in 0..2 {
                let mut at = 0;
                while at < plain.len() {
                    let span = cell_at(&plain, at, BOTH);
                    encoder.append(&span.cell(&plain)).unwrap();
                    at = span.next;
                }
                assert_eq!(encoder.plain_len(), plain.len());
                assert_eq!(encoder.last_key().unwrap().row(), b"r2");
                assert_eq!(encoder.finish(), expected, "{encoding:?}");
                assert_eq!(encoder.last_key().unwrap().row(), b"r2", "it is asked for after finish");
                encoder.clear(100); // and once more, from scratch
            }
        }
    }

    /// Keys that share, and do not share, what the encodings look for; timestamps at all ends.
    fn hard_cells() -> Vec<Cell> {
        let timestamps =
            [i64::MAX, i64::MAX - 1, 1 << 56, (1 << 40) + 5, 65536, 255, 1, 0, -1, -300, i64::MIN];
        let rows: [&[u8]; 5] = [b"a", b"ab", &[b'a'; 300], &[b'a'; 301], b"b"];
        let mut cells = Vec::new();
        for row in rows {
            cells.push(Cell::build(row, b"fam", b"", 7, CellType::DeleteFamily, b"", b"", 0));
            for qualifier in [&b"q"[..], b"q\0", b"q\0\x7f", b"r"] {
                for (at, timestamp) in timestamps.into_iter().enumerate() {
                    let kind = if at % 4 == 3 { CellType::Delete } else { CellType::Put };
                    let value = vec![b'v'; [0, 3, 3, 200, 70_000][at % 5]];
                    let tags: &[u8] = if at % 3 == 0 { &[0, 3, 8, 1, 2, 0, 1, 9] } else { b"" };
                    cells.push(Cell::build(row, b"fam", qualifier, timestamp, kind, &value, tags, 1 << at));
                }
            }
        }
        cells
    }

    #[test]
    fn hard_cells_come_back_through_every_encoding_and_layout() {
        for (encoding, compress_tags) in ENCODINGS.into_iter().flat_map(|e| [(e, false), (e, true)]) {
            for (tags, mvcc) in [(true, true), (true, false), (false, true), (false, false)] {
                let layout = CellLayout { tags, mvcc, seq: None };
                let mut plain = encoder(BlockEncoding::None, layout, false);
                let mut encoded = encoder(encoding, layout, compress_tags);
                for cell in hard_cells() {
                    plain.append(&cell.get()).unwrap();
                    encoded.append(&cell.get()).unwrap();
                    assert_eq!(encoded.plain_len(), plain.encoded_len());
                    assert_eq!(encoded.last_key().unwrap(), cell.get().key());
                }
                let decoded = decode(encoded.finish(), layout, compress_tags).unwrap();
                assert!(
                    decoded == plain.finish(),
                    "{encoding:?}, {layout:?}, tags compressed {compress_tags}"
                );
            }
        }
    }

    #[test]
    fn a_second_family_is_refused_where_one_is_stored() {
        for encoding in ENCODINGS {
            let mut encoder = encoder(encoding, BOTH, false);
            encoder.append(&Cell::put(b"r", b"f", b"q", 1, b"").get()).unwrap();
            let second = encoder.append(&Cell::put(b"r", b"g", b"q", 1, b"").get());
            if encoding == BlockEncoding::RowIndexV1 {
                second.unwrap();
            } else {
                assert_eq!(second.unwrap_err().kind(), ErrorKind::Invalid);
            }
        }
    }
}
