//! Keys and cells of a log that HBase wrote with dictionary compression (`CompressionContext`,
//! `WALCellCodec.CompressedKvDecoder`). We read such logs and never write them.

use std::io::Read;

use bytes::Bytes;
use halcyon_cell::{Cell, FIXED_KEY_LEN, KEY_OFFSET};
use halcyon_proto::pb;

use crate::dictionary::Dictionary;
use crate::reader::CELL_LEN_MAX;
use crate::source::{Decode, Source, bad};

const LARGE: usize = i16::MAX as usize;
const SMALL: usize = i8::MAX as usize;
const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";

/// The state that runs through a compressed file.
pub(crate) struct CompressionContext {
    regions: Dictionary,
    tables: Dictionary,
    rows: Dictionary,
    families: Dictionary,
    qualifiers: Dictionary,
    tags: Option<Dictionary>,
    values: Option<ValueCodec>,
}

/// How values are compressed; the numbers are those of the HFile trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueCodec {
    Gz,
    None,
    Snappy,
    Lz4,
    Zstd,
}

impl CompressionContext {
    /// For a file with this header. `recovered`: a recovered.edits file, which holds one region of one table.
    pub(crate) fn new(header: &pb::WalHeader, recovered: bool) -> Result<CompressionContext, String> {
        let names_count_max = if recovered { 1 } else { LARGE };
        let values = match (header.has_value_compression(), header.value_compression_algorithm()) {
            (false, _) => None,
            (true, 1) => Some(ValueCodec::Gz),
            (true, 2) => Some(ValueCodec::None),
            (true, 3) => Some(ValueCodec::Snappy),
            (true, 4) => Some(ValueCodec::Lz4),
            (true, 6) => Some(ValueCodec::Zstd),
            (true, other) => return Err(format!("values are compressed with codec {other}")),
        };
        Ok(CompressionContext {
            regions: Dictionary::new(names_count_max),
            tables: Dictionary::new(names_count_max),
            rows: Dictionary::new(LARGE),
            families: Dictionary::new(SMALL),
            qualifiers: Dictionary::new(SMALL),
            tags: header.has_tag_compression().then(|| Dictionary::new(LARGE)),
            values,
        })
    }

    /// Puts the names of a key in place of their elements.
    pub(crate) fn expand_key(&mut self, key: &mut pb::WalKey) -> Decode<()> {
        key.encoded_region_name = self.regions.read_field(&key.encoded_region_name)?.into();
        key.table_name = self.tables.read_field(&key.table_name)?.into();
        for scope in &mut key.scopes {
            scope.family = self.families.read_field(&scope.family)?.into();
        }
        Ok(())
    }

    /// Reads one cell and rebuilds its KeyValue.
    pub(crate) fn read_cell(&mut self, source: &mut Source, seq: u64) -> Decode<Cell> {
        let key_len = source.varint32()? as usize;
        let value_len = source.varint32()? as usize;
        let tags_len = source.varint32()? as usize;
        let len = KEY_OFFSET + key_len + value_len + if tags_len > 0 { 2 + tags_len } else { 0 };
        if key_len < FIXED_KEY_LEN || tags_len > usize::from(u16::MAX) || len > CELL_LEN_MAX {
            return bad(format!("cell with key length {key_len}, value length {value_len}, tags {tags_len}"));
        }
        let mut out = Vec::with_capacity(len.min(64 << 10));
        out.extend_from_slice(&(key_len as u32).to_be_bytes());
        out.extend_from_slice(&(value_len as u32).to_be_bytes());
        self.read_key(source, key_len, &mut out)?;
        match self.values {
            None => out.extend_from_slice(source.take(value_len)?),
            Some(codec) => read_value(source, codec, value_len, &mut out)?,
        }
        if tags_len > 0 {
            out.extend_from_slice(&(tags_len as u16).to_be_bytes());
            self.read_tags(source, tags_len, &mut out)?;
        }
        Cell::parse(Bytes::from(out), seq).or_else(|error| bad(error.to_string()))
    }

    fn read_key(&mut self, source: &mut Source, key_len: usize, out: &mut Vec<u8>) -> Decode<()> {
        let begin = out.len();
        out.extend_from_slice(&[0; 2]);
        let row_len = self.rows.read(source, LARGE, out)?;
        out[begin..begin + 2].copy_from_slice(&(row_len as u16).to_be_bytes());
        out.push(0);
        let family_len = self.families.read(source, SMALL, out)?;
        out[begin + 2 + row_len] = family_len as u8;
        let Some(qualifier_len) = key_len.checked_sub(FIXED_KEY_LEN + row_len + family_len) else {
            return bad(format!("key length {key_len} with row {row_len} and family {family_len}"));
        };
        self.qualifiers.read(source, qualifier_len, out)?;
        out.extend_from_slice(source.take(9)?); // timestamp and type
        if out.len() - begin != key_len {
            return bad(format!("key of {} bytes, {key_len} announced", out.len() - begin));
        }
        Ok(())
    }

    fn read_tags(&mut self, source: &mut Source, tags_len: usize, out: &mut Vec<u8>) -> Decode<()> {
        let Some(dictionary) = &mut self.tags else {
            out.extend_from_slice(source.take(tags_len)?);
            return Ok(());
        };
        let end = out.len() + tags_len;
        while out.len() < end {
            let at = out.len();
            let Some(len_max) = (end - at).checked_sub(2) else { return bad("one stray byte of tags") };
            out.extend_from_slice(&[0; 2]);
            let len = dictionary.read(source, len_max, out)?;
            out[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
        }
        Ok(())
    }
}

/// `varint32 compressed length | bytes`; each value is a whole stream of its own.
fn read_value(source: &mut Source, codec: ValueCodec, value_len: usize, out: &mut Vec<u8>) -> Decode<()> {
    let compressed_len = source.varint32()? as usize;
    let bytes = source.take(compressed_len)?;
    let begin = out.len();
    match codec {
        ValueCodec::None => out.extend_from_slice(bytes),
        ValueCodec::Gz => inflate_gzip(bytes, value_len, out)?,
        ValueCodec::Snappy => expand_blocks(bytes, value_len, expand_snappy, out)?,
        ValueCodec::Lz4 => expand_blocks(bytes, value_len, expand_lz4, out)?,
        // Hadoop's native codec writes a plain frame, HBase's own a block stream of frames.
        ValueCodec::Zstd if bytes.starts_with(ZSTD_MAGIC) => out.extend(expand_zstd(bytes, value_len)?),
        ValueCodec::Zstd => expand_blocks(bytes, value_len, expand_zstd, out)?,
    }
    if out.len() - begin != value_len {
        return bad(format!("value of {} bytes, {value_len} announced", out.len() - begin));
    }
    Ok(())
}

fn inflate_gzip(bytes: &[u8], value_len: usize, out: &mut Vec<u8>) -> Decode<()> {
    let mut limited = flate2::read::GzDecoder::new(bytes).take(value_len as u64 + 1);
    limited.read_to_end(out).or_else(|error| bad(format!("gzip value: {error}")))?;
    Ok(())
}

/// Hadoop's block stream: `( int32 raw length | ( int32 compressed length | compressed bytes )* )*`.
/// `expand` is given a piece and the most bytes that it may become.
fn expand_blocks(
    bytes: &[u8],
    value_len: usize,
    expand: fn(&[u8], usize) -> Decode<Vec<u8>>,
    out: &mut Vec<u8>,
) -> Decode<()> {
    let begin = out.len();
    let mut rest = bytes;
    while out.len() - begin < value_len {
        let block_end = out.len() + take_len(&mut rest)?;
        if block_end - begin > value_len {
            return bad("compressed value is longer than announced");
        }
        while out.len() < block_end {
            let piece_len = take_len(&mut rest)?;
            let Some((piece, behind)) = rest.split_at_checked(piece_len) else {
                return bad("compressed value is cut short");
            };
            rest = behind;
            let raw = expand(piece, block_end - out.len())?;
            if raw.is_empty() || raw.len() > block_end - out.len() {
                return bad("compressed piece does not fit its block");
            }
            out.extend_from_slice(&raw);
        }
    }
    Ok(())
}

fn take_len(rest: &mut &[u8]) -> Decode<usize> {
    let Some((len, behind)) = rest.split_first_chunk::<4>() else { return bad("value is cut short") };
    *rest = behind;
    Ok(u32::from_be_bytes(*len) as usize)
}

fn expand_snappy(piece: &[u8], len_max: usize) -> Decode<Vec<u8>> {
    match snap::raw::decompress_len(piece) {
        Ok(len) if len <= len_max => {}
        _ => return bad("snappy piece does not fit its block"),
    }
    snap::raw::Decoder::new().decompress_vec(piece).or_else(|error| bad(format!("snappy value: {error}")))
}

/// An LZ4 block does not say how long it becomes, but at most 255 times as long.
fn expand_lz4(piece: &[u8], len_max: usize) -> Decode<Vec<u8>> {
    let len_max = len_max.min(piece.len().saturating_mul(255));
    lz4_flex::block::decompress(piece, len_max).or_else(|error| bad(format!("LZ4 value: {error}")))
}

fn expand_zstd(piece: &[u8], len_max: usize) -> Decode<Vec<u8>> {
    let decoder = zstd::stream::read::Decoder::with_buffer(piece);
    let mut limited = decoder.or_else(|e| bad(format!("zstd value: {e}")))?.take(len_max as u64 + 1);
    let mut out = Vec::new();
    limited.read_to_end(&mut out).or_else(|error| bad(format!("zstd value: {error}")))?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(pieces: &[(usize, Vec<u8>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (raw_len, piece) in pieces {
            out.extend_from_slice(&(*raw_len as u32).to_be_bytes());
            out.extend_from_slice(&(piece.len() as u32).to_be_bytes());
            out.extend_from_slice(piece);
        }
        out
    }

    #[test]
    fn block_streams_of_several_blocks_are_expanded() {
        let (first, second) = (vec![b'a'; 5000], b"bcd".to_vec());
        let whole = [&first[..], &second[..]].concat();
        let lz4 = |raw: &Vec<u8>| (raw.len(), lz4_flex::block::compress(raw));
        let snappy = |raw: &Vec<u8>| (raw.len(), snap::raw::Encoder::new().compress_vec(raw).unwrap());
        let zstd = |raw: &Vec<u8>| (raw.len(), zstd::stream::encode_all(&raw[..], 3).unwrap());
        type Expand = fn(&[u8], usize) -> Decode<Vec<u8>>;
        let cases: [(Vec<u8>, Expand); 3] = [
            (blocks(&[lz4(&first), lz4(&second)]), expand_lz4),
            (blocks(&[snappy(&first), snappy(&second)]), expand_snappy),
            (blocks(&[zstd(&first), zstd(&second)]), expand_zstd),
        ];
        for (stream, expand) in cases {
            let mut out = Vec::new();
            expand_blocks(&stream, whole.len(), expand, &mut out).unwrap();
            assert!(out == whole);
            for len in 0..stream.len() {
                assert!(expand_blocks(&stream[..len], whole.len(), expand, &mut Vec::new()).is_err());
            }
            assert!(expand_blocks(&stream, whole.len() - 1, expand, &mut Vec::new()).is_err());
        }
    }
}
