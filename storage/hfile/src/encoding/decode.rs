//! Reading cells that are stored as differences, one after the other. `mod.rs` draws the bytes.
//!
//! A decoder writes plain cells, one behind the other. It may start at the head of a block or, given the cell
//! before, at any other cell; `runs.rs` decides where.

use halcyon_cell::{Error, FIXED_KEY_LEN, KEY_OFFSET, KeyRef, Result};
use halcyon_env::invariant;
use halcyon_schema::BlockEncoding;

use super::tags::TagDictionary;
use super::{KEY_TAIL, diff, fast_diff};
use crate::data_block::CellLayout;
use crate::format::{Reader, write_vlong};

/// Bytes in front of the cells: encoding and plain size.
const HEAD_LEN: usize = 6;

/// Where the cell before lies in the output: its key, and the value behind it.
#[derive(Clone, Copy, Default)]
struct Previous {
    key: usize,
    key_len: usize,
    value_len: usize,
    row_len: usize,
}

/// What of the cell before must be known to decode a cell in the middle of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Before<'k> {
    pub(super) key: &'k [u8],
    /// Where its value lies in the payload.
    pub(super) value_at: usize,
    pub(super) value_len: usize,
}

pub(super) struct Decoder<'a> {
    encoding: BlockEncoding,
    reader: Reader<'a>,
    layout: CellLayout,
    /// What the next cell needs of the one before, and behind it the cells.
    out: Vec<u8>,
    /// Where the cells start in `out`, and how long it may get.
    cells_start: usize,
    limit: usize,
    /// `None` before the first cell of the block.
    previous: Option<Previous>,
    /// Where the value of the cell before lies in the payload.
    value_at: usize,
    /// DIFF: family length and family of all cells.
    family: &'a [u8],
    tags: Option<TagDictionary<'a>>,
}

impl<'a> Decoder<'a> {
    /// A decoder at the head of a block, and the size that the block claims for its plain cells.
    pub(super) fn open(
        payload: &'a [u8],
        layout: CellLayout,
        tags: Option<TagDictionary<'a>>,
    ) -> Result<(Decoder<'a>, usize)> {
        let mut reader = Reader::new(payload);
        let id = reader.u16("block encoding")?;
        let encoding = BlockEncoding::from_id(id).filter(|&encoding| super::stores_differences(encoding));
        let encoding = encoding
            .ok_or_else(|| Error::corrupt(format!("block encoding: expected 2, 3, 4 or 7, found {id}")))?;
        let plain_len = reader.count("plain size")? as usize;
        let mut family: &[u8] = &[];
        if encoding == BlockEncoding::Diff {
            let len = usize::from(reader.u8("family length")?);
            reader.take(len, "family")?;
            family = &payload[HEAD_LEN..HEAD_LEN + 1 + len];
        }
        let decoder = Decoder {
            encoding,
            reader,
            layout,
            out: Vec::new(),
            cells_start: 0,
            limit: 0,
            previous: None,
            value_at: 0,
            family,
            tags,
        };
        Ok((decoder, plain_len))
    }

    /// A decoder at position `start` of a block that was checked, for cells of `plain_len` bytes.
    pub(super) fn resume(
        payload: &'a [u8],
        layout: CellLayout,
        tags: Option<TagDictionary<'a>>,
        start: usize,
        before: Option<Before<'_>>,
        plain_len: usize,
    ) -> Result<Decoder<'a>> {
        let (mut decoder, _) = Decoder::open(payload, layout, tags)?;
        let key_len = before.map_or(0, |before| before.key.len());
        if let Some(before) = before {
            decoder.reader = Reader::at_position(payload, start);
            let repeats_value = decoder.encoding == BlockEncoding::FastDiff
                && payload.get(start).is_some_and(|flags| flags & fast_diff::SAME_VALUE != 0);
            let value: &[u8] = match repeats_value {
                true => &payload[before.value_at..before.value_at + before.value_len],
                false => &[],
            };
            decoder.out.reserve_exact(key_len + value.len() + plain_len);
            decoder.out.extend_from_slice(before.key);
            decoder.out.extend_from_slice(value);
            decoder.value_at = before.value_at;
            let row_len = KeyRef::trusted(before.key).row().len();
            decoder.previous = Some(Previous { key: 0, key_len, value_len: before.value_len, row_len });
        } else {
            assert_eq!(
                decoder.position(),
                start,
                "only the first run has no cell before it, and it begins behind the block's head"
            );
            decoder.out.reserve_exact(plain_len);
        }
        decoder.cells_start = decoder.out.len();
        decoder.limit = decoder.cells_start + plain_len;
        Ok(decoder)
    }

    /// Forgets the cells so far, but for what the next one needs; at most `plain_len` bytes of cells may follow.
    pub(super) fn begin_run(&mut self, plain_len: usize) {
        if let Some(previous) = &mut self.previous {
            let len = previous.key_len + previous.value_len;
            self.out.copy_within(previous.key..previous.key + len, 0);
            self.out.truncate(len);
            previous.key = 0;
        }
        self.cells_start = self.out.len();
        self.limit = self.cells_start.saturating_add(plain_len);
    }

    /// Position of the next cell in the payload.
    pub(super) fn position(&self) -> usize {
        self.reader.at()
    }

    pub(super) fn at_end(&self) -> bool {
        self.reader.left() == 0
    }

    /// What the next cell needs; `None` at the head of the block.
    pub(super) fn before(&self) -> Option<Before<'_>> {
        let previous = self.previous?;
        let key = &self.out[previous.key..previous.key + previous.key_len];
        Some(Before { key, value_at: self.value_at, value_len: previous.value_len })
    }

    /// The cells so far.
    pub(super) fn cells(&self) -> &[u8] {
        &self.out[self.cells_start..]
    }

    /// All that was decoded, and where the cells start in it.
    pub(super) fn into_cells(self) -> (Vec<u8>, usize) {
        (self.out, self.cells_start)
    }

    pub(super) fn into_tags(self) -> Option<TagDictionary<'a>> {
        self.tags
    }

    /// Decodes the next cell, which must be there.
    pub(super) fn next_cell(&mut self) -> Result<()> {
        let at = self.reader.at();
        self.decode_cell().map_err(|e| e.context(format_args!("encoded cell at position {at}")))
    }

    fn decode_cell(&mut self) -> Result<()> {
        let cell = match self.encoding {
            BlockEncoding::Prefix => self.prefix_cell()?,
            BlockEncoding::Diff => self.diff_cell()?,
            _ => self.fast_diff_cell()?,
        };
        invariant!(
            self.out.len() == cell.key + cell.key_len + cell.value_len,
            "a cell has the lengths that it says, because the next one repeats bytes of it: {} and {}",
            cell.key_len,
            cell.value_len
        );
        invariant!(
            self.value_at + cell.value_len <= self.reader.at(),
            "a value that the next run may repeat lies in what was read: {} bytes at {}",
            cell.value_len,
            self.value_at
        );
        self.previous = Some(cell);
        self.finish_cell()?;
        invariant!(
            self.out.len() <= self.limit,
            "no cell makes a block larger than it claims: {} of {} bytes",
            self.out.len(),
            self.limit
        );
        Ok(())
    }

    /// Tags and sequence id.
    fn finish_cell(&mut self) -> Result<()> {
        if self.layout.tags {
            let len = self.compressed_int("tags length")?;
            let len = u16::try_from(len)
                .map_err(|_| Error::corrupt(format!("tags length: expected at most 65535, found {len}")))?;
            self.reserve(2 + usize::from(len))?;
            self.out.extend_from_slice(&len.to_be_bytes());
            match &mut self.tags {
                Some(tags) => tags.read(&mut self.reader, usize::from(len), &mut self.out)?,
                None => self.copy(usize::from(len), "tags")?,
            }
        }
        if self.layout.mvcc {
            let seq = self.reader.vlong("sequence id")?;
            write_vlong(&mut self.out, seq);
            if self.out.len() > self.limit {
                return Err(Error::corrupt("plain size: expected bytes for a sequence id, found none"));
            }
        }
        Ok(())
    }

    fn prefix_cell(&mut self) -> Result<Previous> {
        let key_len = self.compressed_int("rest of key length")?;
        let value_len = self.compressed_int("value length")?;
        let common = self.compressed_int("common length")?;
        let previous = self.previous.unwrap_or_default();
        self.start_cell(common.saturating_add(key_len), value_len)?;
        let key = self.out.len();
        self.repeat(previous.key, common, previous.key_len, "common length")?;
        self.copy(key_len, "rest of key")?;
        self.copy_value(value_len)?;
        Ok(Previous { key, key_len: common + key_len, value_len, row_len: 0 })
    }

    fn diff_cell(&mut self) -> Result<Previous> {
        let first = self.previous.is_none();
        let previous = self.previous.unwrap_or_default();
        let flags = self.reader.u8("flags")?;
        let same = |bit: u8| flags & bit != 0;
        if first && same(diff::SAME_KEY_LEN | diff::SAME_VALUE_LEN | diff::SAME_TYPE | diff::IS_DIFFERENCE) {
            return Err(Error::corrupt(format!("flags of the first cell: found {flags:02x}")));
        }
        let key_len =
            if same(diff::SAME_KEY_LEN) { previous.key_len } else { self.compressed_int("key length")? };
        let value_len = if same(diff::SAME_VALUE_LEN) {
            previous.value_len
        } else {
            self.compressed_int("value length")?
        };
        self.start_cell(key_len, value_len)?;
        let key = self.out.len();
        let row_len = self.key_without_tail(key_len, previous, first, |decoder| {
            decoder.out.extend_from_slice(decoder.family);
            Ok(())
        })?;
        self.diff_tail(flags, previous)?;
        self.copy_value(value_len)?;
        Ok(Previous { key, key_len, value_len, row_len })
    }

    fn diff_tail(&mut self, flags: u8, previous: Previous) -> Result<()> {
        let len = usize::from((flags >> diff::TIMESTAMP_LEN_SHIFT) & 7) + 1;
        let little = self.reader.take(len, "timestamp")?;
        let magnitude = little.iter().rev().fold(0u64, |sum, &b| (sum << 8) | u64::from(b));
        let mut timestamp = magnitude as i64;
        if flags & diff::NEGATIVE != 0 {
            timestamp = timestamp.wrapping_neg();
        }
        let tail = previous.key + previous.key_len;
        if flags & diff::IS_DIFFERENCE != 0 {
            let before = &self.out[tail - KEY_TAIL..tail - 1];
            let before = i64::from_be_bytes(before.try_into().expect("eight bytes"));
            timestamp = before.wrapping_sub(timestamp);
        }
        let type_code =
            if flags & diff::SAME_TYPE != 0 { self.out[tail - 1] } else { self.reader.u8("type")? };
        self.out.extend_from_slice(&timestamp.to_be_bytes());
        self.out.push(type_code);
        Ok(())
    }

    fn fast_diff_cell(&mut self) -> Result<Previous> {
        let first = self.previous.is_none();
        let previous = self.previous.unwrap_or_default();
        let flags = self.reader.u8("flags")?;
        let same = |bit: u8| flags & bit != 0;
        if first && flags != 0 {
            return Err(Error::corrupt(format!("flags of the first cell: expected 00, found {flags:02x}")));
        }
        let key_len =
            if same(fast_diff::SAME_KEY_LEN) { previous.key_len } else { self.compressed_int("key length")? };
        let value_len = if same(fast_diff::SAME_VALUE_LEN) {
            previous.value_len
        } else {
            self.compressed_int("value length")?
        };
        if same(fast_diff::SAME_VALUE) && value_len != previous.value_len {
            return Err(Error::corrupt("a repeated value of another length"));
        }
        self.start_cell(key_len, value_len)?;
        let key = self.out.len();
        if first {
            let common = self.compressed_int("common length")?;
            if common != 0 {
                return Err(Error::corrupt(format!("common length: expected 0, found {common}")));
            }
            self.copy(key_len, "key")?;
            self.copy_value(value_len)?;
            let row_len = usize::from(u16::from_be_bytes([self.out[key], self.out[key + 1]]));
            if FIXED_KEY_LEN + row_len > key_len {
                return Err(Error::corrupt(format!("row length {row_len} in a key of {key_len} bytes")));
            }
            return Ok(Previous { key, key_len, value_len, row_len });
        }
        let row_len = self.key_without_tail(key_len, previous, false, |decoder| {
            let at = previous.key + 2 + previous.row_len;
            let len = 1 + usize::from(decoder.out[at]);
            let limit = previous.key_len - KEY_TAIL - 2 - previous.row_len;
            decoder.repeat(at, len, limit, "family length")
        })?;
        let tail = previous.key + previous.key_len;
        let common_timestamp = usize::from(flags & fast_diff::TIMESTAMP_COMMON_MASK);
        self.repeat(tail - KEY_TAIL, common_timestamp, 8, "timestamp")?;
        self.copy(8 - common_timestamp, "timestamp")?;
        if same(fast_diff::SAME_TYPE) {
            self.repeat(tail - 1, 1, 1, "type")?;
        } else {
            self.copy(1, "type")?;
        }
        if same(fast_diff::SAME_VALUE) {
            self.repeat(tail, value_len, previous.value_len, "value")?;
        } else {
            self.copy_value(value_len)?;
        }
        Ok(Previous { key, key_len, value_len, row_len })
    }

    /// DIFF and FAST_DIFF: common length, then what it does not cover of row length, row, family (which is not
    /// stored but appended by `family`) and qualifier. Gives the row's length.
    fn key_without_tail(
        &mut self,
        key_len: usize,
        previous: Previous,
        first: bool,
        family: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<usize> {
        let key = self.out.len();
        let head_len = key_len - KEY_TAIL;
        let common = self.compressed_int("common length")?;
        let limit = if first { 0 } else { previous.key_len - KEY_TAIL };
        self.repeat(previous.key, common, limit.min(head_len), "common length")?;
        let mut row_len = previous.row_len;
        if first || common < 2 + previous.row_len {
            self.copy(2usize.saturating_sub(common), "row length")?;
            row_len = usize::from(u16::from_be_bytes([self.out[key], self.out[key + 1]]));
            let row_rest = (2 + row_len).checked_sub(common.max(2)).filter(|_| 3 + row_len <= head_len);
            let row_rest = row_rest
                .ok_or_else(|| Error::corrupt(format!("row length {row_len} in a key of {key_len} bytes")))?;
            self.copy(row_rest, "rest of row")?;
            family(self)?;
        }
        let done = self.out.len() - key;
        let rest = head_len.checked_sub(done).ok_or_else(|| {
            Error::corrupt(format!("key length: expected at least {}, found {key_len}", done + KEY_TAIL))
        })?;
        self.copy(rest, "rest of qualifier")?;
        Ok(row_len)
    }

    /// Writes the two lengths, if a cell of such a size fits the block.
    fn start_cell(&mut self, key_len: usize, value_len: usize) -> Result<()> {
        if key_len < FIXED_KEY_LEN {
            return Err(Error::corrupt(format!(
                "key length: expected at least {FIXED_KEY_LEN}, found {key_len}"
            )));
        }
        self.reserve(KEY_OFFSET.saturating_add(key_len).saturating_add(value_len))?;
        self.out.extend_from_slice(&(key_len as u32).to_be_bytes());
        self.out.extend_from_slice(&(value_len as u32).to_be_bytes());
        Ok(())
    }

    /// Refuses what does not fit the size that the block claims.
    fn reserve(&self, len: usize) -> Result<()> {
        let left = self.limit.saturating_sub(self.out.len());
        if len > left {
            return Err(Error::corrupt(format!("plain size: expected {len} more bytes, found {left}")));
        }
        Ok(())
    }

    fn compressed_int(&mut self, what: &str) -> Result<usize> {
        self.reader.varint32(what).map(|value| value as usize)
    }

    /// Appends bytes of the block.
    fn copy(&mut self, len: usize, what: &str) -> Result<()> {
        self.out.extend_from_slice(self.reader.take(len, what)?);
        Ok(())
    }

    fn copy_value(&mut self, len: usize) -> Result<()> {
        self.value_at = self.reader.at();
        self.copy(len, "value")
    }

    /// Appends bytes of the output again.
    fn repeat(&mut self, start: usize, len: usize, len_max: usize, what: &str) -> Result<()> {
        if len > len_max {
            return Err(Error::corrupt(format!("{what}: expected at most {len_max}, found {len}")));
        }
        self.out.extend_from_within(start..start + len);
        Ok(())
    }
}
