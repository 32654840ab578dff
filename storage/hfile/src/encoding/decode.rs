//! Reading encoded blocks. `mod.rs` draws the bytes.

use halcyon_cell::{Error, FIXED_KEY_LEN, KEY_OFFSET, Result};

use super::tags::TagDictionary;
use super::{KEY_TAIL, diff, fast_diff};
use crate::data_block::CellLayout;
use crate::format::{Reader, write_vlong};

/// What is reserved before any cell was decoded, whatever the block claims.
const RESERVED_BYTES_MAX: usize = 1 << 20;

/// The plain form of an encoded block's payload. Its structure is not checked yet.
pub(crate) fn decode(payload: &[u8], layout: CellLayout, compressed_tags: bool) -> Result<Vec<u8>> {
    let mut reader = Reader::new(payload);
    match reader.u16("block encoding")? {
        2 => Decoder::new(reader, layout, compressed_tags)?.run(Decoder::prefix_cell),
        3 => {
            let mut decoder = Decoder::new(reader, layout, compressed_tags)?;
            let family_len = usize::from(decoder.reader.u8("family length")?);
            let family = decoder.reader.take(family_len, "family")?;
            decoder.family = [&[family_len as u8], family].concat();
            decoder.run(Decoder::diff_cell)
        }
        4 => Decoder::new(reader, layout, compressed_tags)?.run(Decoder::fast_diff_cell),
        7 => row_index_cells(reader.take(reader.left(), "cells")?).map(<[u8]>::to_vec),
        other => Err(Error::corrupt(format!("block encoding: expected 2, 3, 4 or 7, found {other}"))),
    }
}

/// The size of the cell area stands at the end; what lies between is the row index, which our marks replace.
fn row_index_cells(bytes: &[u8]) -> Result<&[u8]> {
    let Some((rest, len)) = bytes.split_last_chunk::<4>() else {
        return Err(Error::corrupt(format!("row index: expected 4 bytes, found {}", bytes.len())));
    };
    let len = u32::from_be_bytes(*len) as usize;
    rest.get(..len)
        .ok_or_else(|| Error::corrupt(format!("size of cells: expected at most {}, found {len}", rest.len())))
}

/// Where the cell before lies in the output.
#[derive(Clone, Copy, Default)]
struct Previous {
    key: usize,
    key_len: usize,
    value_len: usize,
    row_len: usize,
}

struct Decoder<'a> {
    reader: Reader<'a>,
    layout: CellLayout,
    out: Vec<u8>,
    /// The plain size that the block claims.
    plain_len: usize,
    /// `None` before the first cell.
    previous: Option<Previous>,
    /// DIFF: family length and family of all cells.
    family: Vec<u8>,
    tags: Option<TagDictionary<'a>>,
}

impl<'a> Decoder<'a> {
    fn new(mut reader: Reader<'a>, layout: CellLayout, compressed_tags: bool) -> Result<Decoder<'a>> {
        let plain_len = reader.count("plain size")? as usize;
        Ok(Decoder {
            reader,
            layout,
            out: Vec::with_capacity(plain_len.min(RESERVED_BYTES_MAX)),
            plain_len,
            previous: None,
            family: Vec::new(),
            tags: compressed_tags.then(TagDictionary::default),
        })
    }

    fn run(mut self, decode_cell: fn(&mut Self) -> Result<Previous>) -> Result<Vec<u8>> {
        while self.reader.left() > 0 {
            let at = self.reader.at();
            let place = |e: Error| e.context(format_args!("encoded cell at position {at}"));
            let previous = decode_cell(&mut self).map_err(place)?;
            self.previous = Some(previous);
            self.finish_cell().map_err(place)?;
        }
        if self.out.len() != self.plain_len {
            let (expected, found) = (self.plain_len, self.out.len());
            return Err(Error::corrupt(format!("plain size: expected {expected}, found {found}")));
        }
        self.out.shrink_to_fit();
        Ok(self.out)
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
            self.reserve(0)?;
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
        self.copy(value_len, "value")?;
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
        let family = std::mem::take(&mut self.family);
        let row_len = self.key_without_tail(key_len, previous, first, |decoder| {
            decoder.out.extend_from_slice(&family);
            Ok(family.len())
        });
        self.family = family;
        let row_len = row_len?;
        self.diff_tail(flags, previous)?;
        self.copy(value_len, "value")?;
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
            self.copy(value_len, "value")?;
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
            decoder.repeat(at, len, limit, "family length").map(|()| len)
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
            self.copy(value_len, "value")?;
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
        family: impl FnOnce(&mut Self) -> Result<usize>,
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
        let left = self.plain_len.saturating_sub(self.out.len());
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

    /// Appends bytes of the output again.
    fn repeat(&mut self, start: usize, len: usize, len_max: usize, what: &str) -> Result<()> {
        if len > len_max {
            return Err(Error::corrupt(format!("{what}: expected at most {len_max}, found {len}")));
        }
        self.out.extend_from_within(start..start + len);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_block;
    use crate::encoding::tests::{golden, plain};

    const BOTH: CellLayout = CellLayout { tags: true, mvcc: true, seq: None };

    #[test]
    fn golden_blocks_of_hbase() {
        for block in golden() {
            assert_eq!(decode(&block, BOTH, false).unwrap(), plain(), "encoding {}", block[1]);
        }
    }

    #[test]
    fn truncated_and_damaged_blocks_never_panic() {
        for block in golden() {
            for at in 0..block.len() {
                for compressed_tags in [false, true] {
                    let _ = decode(&block[..at], BOTH, compressed_tags);
                    for bit in 0..8 {
                        let mut bad = block.clone();
                        bad[at] ^= 1 << bit;
                        if let Ok(out) = decode(&bad, BOTH, compressed_tags) {
                            let _ = data_block::check(&out, BOTH, halcyon_cell::CellComparator::Default);
                        }
                    }
                }
            }
        }
    }
}
