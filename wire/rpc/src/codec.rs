//! How single cells lie in a cell block; no header, no end mark, cells one after the other.
//!
//! ```text
//! KeyValueCodec          int32 length | KeyValue without tags
//! KeyValueCodecWithTags  int32 length | KeyValue [ int16 tags length | tags ]
//! CellCodec              int32 + row | int32 + family | int32 + qualifier | int64 timestamp | byte type
//!                        | int32 + value | int64 sequence id
//! CellCodecWithTags      the same with int32 + tags between value and sequence id
//! MessageCodec           varint length | hbase.pb.Cell
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use halcyon_cell::{Cell, CellRef, CellType, Error, FAMILY_LEN_MAX, ROW_LEN_MAX, Result};
use halcyon_proto::pb;
use prost::Message;

use crate::Codec;

const CODEC_PACKAGE: &str = "org.apache.hadoop.hbase.codec.";

impl Codec {
    /// The codec of a Java class name as the connection header gives it.
    pub fn of_class(class: &str) -> Option<Codec> {
        Some(match class.strip_prefix(CODEC_PACKAGE)? {
            "KeyValueCodec" => Codec::KeyValue,
            "KeyValueCodecWithTags" => Codec::KeyValueWithTags,
            "CellCodec" => Codec::Cell,
            "CellCodecWithTags" => Codec::CellWithTags,
            "MessageCodec" => Codec::Message,
            _ => return None,
        })
    }

    /// The Java class name.
    pub fn class(self) -> &'static str {
        match self {
            Codec::KeyValue => "org.apache.hadoop.hbase.codec.KeyValueCodec",
            Codec::KeyValueWithTags => "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags",
            Codec::Cell => "org.apache.hadoop.hbase.codec.CellCodec",
            Codec::CellWithTags => "org.apache.hadoop.hbase.codec.CellCodecWithTags",
            Codec::Message => "org.apache.hadoop.hbase.codec.MessageCodec",
        }
    }
}

/// Appends one cell. Tags are left out where the codec has no place for them.
pub fn encode_cell(codec: Codec, cell: CellRef<'_>, out: &mut BytesMut) {
    match codec {
        Codec::KeyValue => put_part(out, cell.bytes_without_tags()),
        Codec::KeyValueWithTags => put_part(out, cell.bytes()),
        Codec::Cell => encode_parts(cell, false, out),
        Codec::CellWithTags => encode_parts(cell, true, out),
        Codec::Message => encode_message(cell, out),
    }
}

fn put_part(out: &mut BytesMut, part: &[u8]) {
    out.reserve(4 + part.len());
    out.put_u32(u32::try_from(part.len()).expect("a part of a cell is shorter than 4 GiB"));
    out.put_slice(part);
}

fn encode_parts(cell: CellRef<'_>, with_tags: bool, out: &mut BytesMut) {
    put_part(out, cell.row());
    put_part(out, cell.family());
    put_part(out, cell.qualifier());
    out.put_i64(cell.timestamp());
    out.put_u8(cell.type_code());
    put_part(out, cell.value());
    if with_tags {
        put_part(out, cell.tags());
    }
    out.put_u64(cell.seq());
}

fn encode_message(cell: CellRef<'_>, out: &mut BytesMut) {
    let tags = cell.tags();
    let message = pb::Cell {
        row: Some(Bytes::copy_from_slice(cell.row())),
        family: Some(Bytes::copy_from_slice(cell.family())),
        qualifier: Some(Bytes::copy_from_slice(cell.qualifier())),
        timestamp: Some(cell.timestamp() as u64),
        cell_type: Some(i32::from(cell.type_code())),
        value: Some(Bytes::copy_from_slice(cell.value())),
        tags: (!tags.is_empty()).then(|| Bytes::copy_from_slice(tags)),
    };
    message.encode_length_delimited(out).expect("a BytesMut grows");
}

/// Reads all cells of an uncompressed block. KeyValues stay slices of `block`; every length is checked.
///
/// `Corrupt` if the bytes are not whole cells of this codec.
pub fn decode_cells(codec: Codec, block: Bytes) -> Result<Vec<Cell>> {
    decode_counted(codec, block, 0)
}

/// As [`decode_cells`], with room for `count` cells from the beginning.
pub(crate) fn decode_counted(codec: Codec, block: Bytes, count: usize) -> Result<Vec<Cell>> {
    let mut rest = Reader { bytes: block, at: 0 };
    let mut cells = Vec::with_capacity(count);
    while rest.at < rest.bytes.len() {
        let cell = decode_cell(codec, &mut rest).map_err(|error| error.context(codec.class()))?;
        cells.push(cell);
    }
    Ok(cells)
}

/// How many cells a block has, by their lengths alone. `Corrupt` if these do not fit into it.
pub(crate) fn count_cells(codec: Codec, block: &[u8]) -> Result<usize> {
    let (mut rest, mut count) = (block, 0);
    while !rest.is_empty() {
        let skipped = match codec {
            Codec::KeyValue | Codec::KeyValueWithTags => skip_part(&mut rest),
            Codec::Message => skip_delimited(&mut rest),
            Codec::Cell => skip_parts(&mut rest, false),
            Codec::CellWithTags => skip_parts(&mut rest, true),
        };
        skipped.ok_or_else(|| Error::corrupt(format!("{}: the block ends within a cell", codec.class())))?;
        count += 1;
    }
    Ok(count)
}

#[inline]
fn skip_part(rest: &mut &[u8]) -> Option<()> {
    let (len, tail) = rest.split_first_chunk()?;
    *rest = tail.get(u32::from_be_bytes(*len) as usize..)?;
    Some(())
}

fn skip_delimited(rest: &mut &[u8]) -> Option<()> {
    let len = prost::encoding::decode_varint(rest).ok()?;
    *rest = rest.get(usize::try_from(len).ok()?..)?;
    Some(())
}

fn skip_parts(rest: &mut &[u8], with_tags: bool) -> Option<()> {
    const STAMP_AND_TYPE_LEN: usize = 8 + 1;
    const SEQ_LEN: usize = 8;
    for _ in 0..3 {
        skip_part(rest)?;
    }
    *rest = rest.get(STAMP_AND_TYPE_LEN..)?;
    for _ in 0..1 + usize::from(with_tags) {
        skip_part(rest)?;
    }
    *rest = rest.get(SEQ_LEN..)?;
    Some(())
}

/// A cell block being read.
struct Reader {
    bytes: Bytes,
    at: usize,
}

impl Reader {
    fn take(&mut self, len: usize) -> Result<Bytes> {
        if len > self.bytes.len() - self.at {
            return Err(Error::corrupt(format!(
                "cell block of {} bytes: {len} bytes wanted at {}",
                self.bytes.len(),
                self.at
            )));
        }
        let taken = self.bytes.slice(self.at..self.at + len);
        self.at += len;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.bytes.get(self.at..self.at + N).and_then(|part| part.try_into().ok());
        let taken = taken.ok_or_else(|| Error::corrupt("cell block ends within a cell"))?;
        self.at += N;
        Ok(taken)
    }

    /// Bytes behind an int32 length.
    fn part(&mut self) -> Result<Bytes> {
        let len = u32::from_be_bytes(self.fixed()?) as usize;
        self.take(len)
    }

    /// Bytes behind a varint length.
    fn delimited(&mut self) -> Result<Bytes> {
        let mut tail = &self.bytes[self.at..];
        let before = tail.len();
        let len = prost::encoding::decode_varint(&mut tail).map_err(|e| Error::corrupt(e.to_string()))?;
        self.at += before - tail.len();
        self.take(usize::try_from(len).unwrap_or(usize::MAX))
    }
}

fn decode_cell(codec: Codec, rest: &mut Reader) -> Result<Cell> {
    match codec {
        Codec::KeyValue => {
            let cell = Cell::parse(rest.part()?, 0)?;
            let len = cell.get().bytes_without_tags().len();
            if len == cell.bytes().len() {
                Ok(cell)
            } else {
                Ok(Cell::trusted(cell.into_bytes().slice(..len), 0))
            }
        }
        Codec::KeyValueWithTags => Cell::parse(rest.part()?, 0),
        Codec::Cell => decode_parts(rest, false),
        Codec::CellWithTags => decode_parts(rest, true),
        Codec::Message => decode_message(rest),
    }
}

fn decode_parts(rest: &mut Reader, with_tags: bool) -> Result<Cell> {
    let (row, family, qualifier) = (rest.part()?, rest.part()?, rest.part()?);
    let timestamp = i64::from_be_bytes(rest.fixed()?);
    let [type_code] = rest.fixed()?;
    let value = rest.part()?;
    let tags = if with_tags { rest.part()? } else { Bytes::new() };
    let seq = u64::from_be_bytes(rest.fixed()?);
    build(&row, &family, &qualifier, timestamp, type_code, &value, &tags, seq)
}

fn decode_message(rest: &mut Reader) -> Result<Cell> {
    let message = pb::Cell::decode(rest.delimited()?).map_err(|e| Error::corrupt(e.to_string()))?;
    let type_code = u8::try_from(message.cell_type.unwrap_or(i32::from(CellType::Put as u8)));
    let type_code = type_code.map_err(|_| Error::corrupt("the cell type does not fit one byte"))?;
    let timestamp = message.timestamp.unwrap_or(u64::MAX >> 1) as i64;
    let part = |part: Option<Bytes>| part.unwrap_or_default();
    let (row, family, qualifier) = (part(message.row), part(message.family), part(message.qualifier));
    build(&row, &family, &qualifier, timestamp, type_code, &part(message.value), &part(message.tags), 0)
}

#[allow(clippy::too_many_arguments)] // a cell has that many parts
fn build(
    row: &[u8],
    family: &[u8],
    qualifier: &[u8],
    timestamp: i64,
    type_code: u8,
    value: &[u8],
    tags: &[u8],
    seq: u64,
) -> Result<Cell> {
    let cell_type = CellType::from_code(type_code)
        .ok_or_else(|| Error::corrupt(format!("unknown cell type {type_code}")))?;
    if row.len() > ROW_LEN_MAX || family.len() > FAMILY_LEN_MAX || tags.len() > usize::from(u16::MAX) {
        return Err(Error::corrupt("a row, family or tag area is too long for its length field"));
    }
    let cell = Cell::build(row, family, qualifier, timestamp, cell_type, value, tags, seq);
    Cell::parse(cell.into_bytes(), seq)
}
