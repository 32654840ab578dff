//! Turns encoded data blocks into plain ones when they are loaded; behind that nobody knows of encodings.
//!
//! ```text
//! int16 encoding | int32 size of the plain cells | cell*                       PREFIX 2, DIFF 3, FAST_DIFF 4
//! int16 encoding | plain cells | int32 rows | rows * int32 offset | int32 size   ROW_INDEX_V1 7
//!
//! PREFIX      cInt key length | cInt value length | cInt common | rest of key | value
//! DIFF        family once at the head; flags | [key length] | [value length] | cInt common
//!             | rest of row | rest of qualifier | timestamp | [type] | value
//! FAST_DIFF   flags | [key length] | [value length] | cInt common | rest of row | rest of qualifier
//!             | rest of timestamp | [type] | [value]          (the first cell: whole key, value)
//! each cell   then: [ cInt tags length | tags ] | [ VLong sequence id ]
//! ```
//!
//! *common* counts the leading bytes of the key that are those of the cell before. Tags are plain or, where file
//! info says so, go through a dictionary that starts empty in each block. Checked against HBase's
//! `PrefixKeyDeltaEncoder`, `DiffKeyDeltaEncoder`, `FastDiffDeltaEncoder`, `RowIndexCodecV1` and
//! `TagCompressionContext`.

use halcyon_cell::{Error, FIXED_KEY_LEN, KEY_OFFSET, Result};

use crate::data_block::CellLayout;
use crate::format::{Reader, write_vlong};

/// Bytes of timestamp and type at a key's end.
const KEY_TAIL: usize = 9;
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
        if first && same(0x01 | 0x02 | 0x04 | 0x08) {
            return Err(Error::corrupt(format!("flags of the first cell: found {flags:02x}")));
        }
        let key_len = if same(0x01) { previous.key_len } else { self.compressed_int("key length")? };
        let value_len = if same(0x02) { previous.value_len } else { self.compressed_int("value length")? };
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
        let len = usize::from((flags >> 4) & 7) + 1;
        let little = self.reader.take(len, "timestamp")?;
        let magnitude = little.iter().rev().fold(0u64, |sum, &b| (sum << 8) | u64::from(b));
        let mut timestamp = magnitude as i64;
        if flags & 0x80 != 0 {
            timestamp = timestamp.wrapping_neg();
        }
        let tail = previous.key + previous.key_len;
        if flags & 0x08 != 0 {
            let before = &self.out[tail - KEY_TAIL..tail - 1];
            let before = i64::from_be_bytes(before.try_into().expect("eight bytes"));
            timestamp = before.wrapping_sub(timestamp);
        }
        let type_code = if flags & 0x04 != 0 { self.out[tail - 1] } else { self.reader.u8("type")? };
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
        let key_len = if same(0x08) { previous.key_len } else { self.compressed_int("key length")? };
        let value_len = if same(0x10) { previous.value_len } else { self.compressed_int("value length")? };
        if same(0x40) && value_len != previous.value_len {
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
        let common_timestamp = usize::from(flags & 7);
        self.repeat(tail - KEY_TAIL, common_timestamp, 8, "timestamp")?;
        self.copy(8 - common_timestamp, "timestamp")?;
        if same(0x20) {
            self.repeat(tail - 1, 1, 1, "type")?;
        } else {
            self.copy(1, "type")?;
        }
        if same(0x40) {
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

/// Slots of the tag dictionary of a block.
const TAG_SLOTS_COUNT: usize = 127;

/// Tags of a block that were seen already. When all slots are taken the least recently used is given away.
#[derive(Default)]
struct TagDictionary<'a> {
    slots: Vec<(&'a [u8], u64)>,
    /// Counts uses; a slot's number is that of its last.
    uses: u64,
}

impl<'a> TagDictionary<'a> {
    /// Appends tags of `len` plain bytes.
    fn read(&mut self, reader: &mut Reader<'a>, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let end = out.len() + len;
        while out.len() < end {
            let tag = self.tag(reader)?;
            let left = end - out.len();
            if tag.len() + 2 > left {
                let found = tag.len() + 2;
                return Err(Error::corrupt(format!("tag: expected at most {left} bytes, found {found}")));
            }
            out.extend_from_slice(&(tag.len() as u16).to_be_bytes());
            out.extend_from_slice(tag);
        }
        Ok(())
    }

    fn tag(&mut self, reader: &mut Reader<'a>) -> Result<&'a [u8]> {
        self.uses += 1;
        let status = reader.u8("tag status")?;
        if status != 0xff {
            let slot = usize::from(status) << 8 | usize::from(reader.u8("tag index")?);
            let count = self.slots.len();
            let Some(found) = self.slots.get_mut(slot) else {
                return Err(Error::corrupt(format!("tag index: expected one below {count}, found {slot}")));
            };
            found.1 = self.uses;
            return Ok(found.0);
        }
        let len = reader.varint32("tag length")? as usize;
        let tag = reader.take(len, "tag")?;
        if !tag.is_empty() {
            self.add(tag);
        }
        Ok(tag)
    }

    fn add(&mut self, tag: &'a [u8]) {
        if self.slots.len() < TAG_SLOTS_COUNT {
            self.slots.push((tag, self.uses));
        } else if let Some(oldest) = self.slots.iter_mut().min_by_key(|slot| slot.1) {
            *oldest = (tag, self.uses);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_block;
    use crate::format::hex;

    const BOTH: CellLayout = CellLayout { tags: true, mvcc: true, seq: None };

    fn plain() -> Vec<u8> {
        hex("00000011 00000002 0002 7231 01 66 7131 00000000000003e8 04 7631 0000 05
             00000011 00000002 0002 7231 01 66 7132 00000000000003e9 04 7631 000b 0009080000 00000000ea60 06
             0000000f 00000000 0002 7232 01 66 0000000000000384 0e 0000 8e012c")
    }

    fn golden() -> [Vec<u8>; 4] {
        let row_index = [hex("0007"), plain(), hex("00000002 00000000 00000047 00000063")].concat();
        [
            hex("0002 00000063 11 02 00 0002 7231 01 66 7131 00000000000003e8 04 7631 00 05
                 0a 02 07 32 00000000000003e9 04 7631 0b 0009080000 00000000ea60 06
                 0c 00 03 32 01 66 0000000000000384 0e 00 8e012c"),
            hex("0003 00000063 01 66 10 11 02 00 0002 7231 7131 e803 04 7631 00 05
                 8f 07 32 01 7631 0b 0009080000 00000000ea60 06
                 08 0f 00 03 32 65 0e 00 8e012c"),
            hex("0004 00000063 00 11 02 00 0002 7231 01 66 7131 00000000000003e8 04 7631 00 05
                 7f 07 32 e9 0b 0009080000 00000000ea60 06
                 07 0f 00 03 32 84 0e 00 8e012c"),
            row_index,
        ]
    }

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

    #[test]
    fn the_tag_dictionary_gives_its_oldest_slot_away() {
        let names: Vec<[u8; 2]> = (0..TAG_SLOTS_COUNT as u8 + 1).map(|n| [8, n]).collect();
        let mut tags = TagDictionary::default();
        let mut read = |bytes: &[u8]| {
            let bytes = Box::leak(bytes.to_vec().into_boxed_slice());
            tags.tag(&mut Reader::new(bytes)).map(<[u8]>::to_vec)
        };
        for name in &names[..TAG_SLOTS_COUNT] {
            assert_eq!(read(&[&[0xff, 2], &name[..]].concat()).unwrap(), name);
        }
        assert_eq!(read(&[0, 0]).unwrap(), names[0]);
        read(&[&[0xff, 2], &names[TAG_SLOTS_COUNT][..]].concat()).unwrap();
        assert_eq!(read(&[0, 0]).unwrap(), names[0], "it was used, so slot 1 was given away");
        assert_eq!(read(&[0, 1]).unwrap(), names[TAG_SLOTS_COUNT]);
        assert!(read(&[0, 127]).is_err());
    }
}
