//! Keys and cells of a log with dictionary compression (HBase: `CompressionContext`, `WALCellCodec.CompressedKvDecoder`), as
//! they are read.

use bytes::Bytes;
use halcyon_cell::{Cell, FIXED_KEY_LEN, KEY_OFFSET};
use halcyon_compression::{codec_of, decompress};
use halcyon_proto::pb;
use halcyon_schema::Compression;

use crate::check::is_check;
use crate::dictionary::{Dictionary, skip_element};
use crate::reader::CELL_LEN_MAX;
use crate::source::{Decode, Source, bad};

/// Slots of dictionaries of regions, tables, rows and tags.
pub(crate) const LARGE: usize = i16::MAX as usize;
/// Slots of those of families and qualifiers.
pub(crate) const SMALL: usize = i8::MAX as usize;

/// The state that runs through a compressed file.
pub(crate) struct CompressionContext {
    regions: Dictionary,
    tables: Dictionary,
    rows: Dictionary,
    families: Dictionary,
    qualifiers: Dictionary,
    tags: Option<Dictionary>,
    values: Option<Compression>,
}

impl CompressionContext {
    /// For a file with this header. `recovered`: a recovered.edits file, which holds one region of one table.
    pub(crate) fn new(header: &pb::WalHeader, recovered: bool) -> Result<CompressionContext, String> {
        let names_count_max = if recovered { 1 } else { LARGE };
        let values = match header.has_value_compression() {
            false => None,
            true => Some(codec_of(header.value_compression_algorithm()).map_err(|error| error.to_string())?),
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
        for attribute in &mut key.extended_attributes {
            attribute.value = self.tables.read_field(&attribute.value)?.into();
        }
        key.extended_attributes.retain(|attribute| !is_check(&attribute.key)); // of the compressed form
        Ok(())
    }

    /// Goes behind one cell without a look at the dictionaries. `Bad` if tags have one: such a cell does not say where it ends.
    pub(crate) fn skip_cell(&self, source: &mut Source) -> Decode<()> {
        let CellLengths { value_len, tags_len, .. } = CellLengths::read(source)?;
        if self.tags.is_some() {
            return bad(
                "tags: expected none with a dictionary in a log with checks, found that they may have one",
            );
        }
        for len_max in [LARGE, SMALL, CELL_LEN_MAX] {
            skip_element(source, len_max)?;
        }
        source.take(9)?; // timestamp and type
        let len = if self.values.is_some() { source.varint32()? as usize } else { value_len };
        source.take(len)?;
        source.take(tags_len).map(|_| ())
    }

    /// Reads one cell and rebuilds its KeyValue.
    pub(crate) fn read_cell(&mut self, source: &mut Source, seq: u64) -> Decode<Cell> {
        let lengths = CellLengths::read(source)?;
        let CellLengths { key_len, value_len, tags_len } = lengths;
        let mut out = Vec::with_capacity(lengths.of_cell().min(64 << 10));
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

/// The lengths in front of a cell.
struct CellLengths {
    key_len: usize,
    value_len: usize,
    tags_len: usize,
}

impl CellLengths {
    fn read(source: &mut Source) -> Decode<CellLengths> {
        let mut len = || source.varint32().map(|len| len as usize);
        let lengths = CellLengths { key_len: len()?, value_len: len()?, tags_len: len()? };
        let CellLengths { key_len, value_len, tags_len } = lengths;
        let fits = tags_len <= usize::from(u16::MAX) && lengths.of_cell() <= CELL_LEN_MAX;
        if key_len < FIXED_KEY_LEN || !fits {
            let found = format!("key length {key_len}, value length {value_len}, tags {tags_len}");
            return bad(format!("cell: expected lengths within their limits, found {found}"));
        }
        Ok(lengths)
    }

    fn of_cell(&self) -> usize {
        KEY_OFFSET + self.key_len + self.value_len + if self.tags_len > 0 { 2 + self.tags_len } else { 0 }
    }
}

/// `varint32 compressed length | bytes`; each value is a whole stream of its own.
fn read_value(source: &mut Source, codec: Compression, value_len: usize, out: &mut Vec<u8>) -> Decode<()> {
    let packed_len = source.varint32()? as usize;
    let packed = source.take(packed_len)?;
    let value = decompress(codec, packed, value_len).or_else(|error| bad(format!("value: {error}")))?;
    out.extend_from_slice(&value);
    Ok(())
}
