use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::{Error, FAMILY_LEN_MAX, KeyRef, ROW_LEN_MAX, Result, TagIterator};

/// Where the key starts in a cell: after the two lengths.
pub const KEY_OFFSET: usize = 8;
/// Bytes of a key that are not row, family or qualifier.
pub const FIXED_KEY_LEN: usize = 2 + 1 + 8 + 1;

/// The type byte of a key (`KeyValue.Type`). Cells sort by it in descending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CellType {
    Minimum = 0,
    Put = 4,
    /// Hides one version of a column.
    Delete = 8,
    /// Hides all cells of a family that have exactly its timestamp.
    DeleteFamilyVersion = 10,
    /// Hides a column's versions up to its timestamp.
    DeleteColumn = 12,
    /// Hides a family's cells up to its timestamp.
    DeleteFamily = 14,
    Maximum = 255,
}

impl CellType {
    #[inline]
    pub fn from_code(code: u8) -> Option<CellType> {
        Some(match code {
            0 => CellType::Minimum,
            4 => CellType::Put,
            8 => CellType::Delete,
            10 => CellType::DeleteFamilyVersion,
            12 => CellType::DeleteColumn,
            14 => CellType::DeleteFamily,
            255 => CellType::Maximum,
            _ => return None,
        })
    }

    #[inline]
    pub fn is_delete(self) -> bool {
        matches!(
            self,
            CellType::Delete
                | CellType::DeleteFamilyVersion
                | CellType::DeleteColumn
                | CellType::DeleteFamily
        )
    }
}

/// A borrowed cell: KeyValue bytes that passed [`CellRef::parse`], and the sequence id.
#[derive(Clone, Copy)]
pub struct CellRef<'a> {
    bytes: &'a [u8],
    seq: u64,
}

impl<'a> CellRef<'a> {
    /// Checks that `bytes` are exactly one KeyValue: lengths agree, the type is known, tags are whole.
    pub fn parse(bytes: &'a [u8], seq: u64) -> Result<CellRef<'a>> {
        check(bytes)?;
        Ok(CellRef { bytes, seq })
    }

    /// Takes bytes that were parsed before (a chunk's or a checked block's).
    ///
    /// Panics later, in an accessor, if they are not a KeyValue after all.
    #[inline]
    pub fn trusted(bytes: &'a [u8], seq: u64) -> CellRef<'a> {
        CellRef { bytes, seq }
    }

    /// The whole KeyValue.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The sequence id (mvcc): engine time, 0 where it is no longer needed.
    #[inline]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    #[inline]
    pub fn key_len(&self) -> usize {
        read_u32(self.bytes, 0)
    }

    /// Where the value ends.
    #[inline]
    fn value_end(&self) -> usize {
        let lengths: &[u8; KEY_OFFSET] = self.bytes.first_chunk().expect("a cell begins with its lengths");
        let lengths = u64::from_be_bytes(*lengths);
        KEY_OFFSET + (lengths >> 32) as usize + lengths as u32 as usize
    }

    #[inline]
    pub fn value_len(&self) -> usize {
        read_u32(self.bytes, 4)
    }

    /// Key bytes: row, family, qualifier, timestamp, type.
    #[inline]
    pub fn key(&self) -> KeyRef<'a> {
        KeyRef::trusted(&self.bytes[KEY_OFFSET..KEY_OFFSET + self.key_len()])
    }

    #[inline]
    pub fn row(&self) -> &'a [u8] {
        let len = usize::from(u16::from_be_bytes([self.bytes[8], self.bytes[9]]));
        &self.bytes[10..10 + len]
    }

    #[inline]
    pub fn family(&self) -> &'a [u8] {
        self.key().family()
    }

    #[inline]
    pub fn qualifier(&self) -> &'a [u8] {
        self.key().qualifier()
    }

    #[inline]
    pub fn timestamp(&self) -> i64 {
        self.key().timestamp()
    }

    #[inline]
    pub fn type_code(&self) -> u8 {
        self.bytes[KEY_OFFSET + self.key_len() - 1]
    }

    /// The type; `Maximum` and `Minimum` never occur in stored cells.
    #[inline]
    pub fn cell_type(&self) -> CellType {
        CellType::from_code(self.type_code()).unwrap_or(CellType::Maximum)
    }

    #[inline]
    pub fn value(&self) -> &'a [u8] {
        let start = KEY_OFFSET + self.key_len();
        &self.bytes[start..start + self.value_len()]
    }

    /// Tag bytes without their total length; empty if there are none.
    #[inline]
    pub fn tags(&self) -> &'a [u8] {
        self.bytes.get(self.value_end() + 2..).unwrap_or(&[])
    }

    pub fn tag_iter(&self) -> TagIterator<'a> {
        TagIterator::new(self.tags())
    }

    /// The KeyValue without tags: what `KeyValueCodec` puts on the wire.
    #[inline]
    pub fn bytes_without_tags(&self) -> &'a [u8] {
        &self.bytes[..self.value_end()]
    }

    pub fn to_cell(&self) -> Cell {
        Cell { bytes: Bytes::copy_from_slice(self.bytes), seq: self.seq }
    }
}

impl fmt::Debug for CellRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/vlen={}/seq={}", self.key(), self.value_len(), self.seq)
    }
}

/// A cell that shares its bytes by reference count; cloning copies no bytes.
#[derive(Clone)]
pub struct Cell {
    bytes: Bytes,
    seq: u64,
}

impl Cell {
    /// As [`CellRef::parse`].
    pub fn parse(bytes: Bytes, seq: u64) -> Result<Cell> {
        check(&bytes)?;
        Ok(Cell { bytes, seq })
    }

    /// As [`CellRef::trusted`].
    #[inline]
    pub fn trusted(bytes: Bytes, seq: u64) -> Cell {
        Cell { bytes, seq }
    }

    /// Builds a cell of copied parts. `tags` is the tag area without its length, empty for none.
    ///
    /// Panics if a part is too long for its length field; check requests with [`Cell::check_parts`] first.
    #[allow(clippy::too_many_arguments)] // a cell has that many parts
    pub fn build(
        row: &[u8],
        family: &[u8],
        qualifier: &[u8],
        timestamp: i64,
        cell_type: CellType,
        value: &[u8],
        tags: &[u8],
        seq: u64,
    ) -> Cell {
        assert!(
            row.len() <= ROW_LEN_MAX && family.len() <= FAMILY_LEN_MAX && tags.len() <= u16::MAX as usize
        );
        let key_len = FIXED_KEY_LEN + row.len() + family.len() + qualifier.len();
        let tags_len = if tags.is_empty() { 0 } else { 2 + tags.len() };
        let mut out = Vec::with_capacity(KEY_OFFSET + key_len + value.len() + tags_len);
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        put(&u32::try_from(key_len).expect("a key is shorter than 4 GiB").to_be_bytes());
        put(&u32::try_from(value.len()).expect("a value is shorter than 4 GiB").to_be_bytes());
        put(&(row.len() as u16).to_be_bytes());
        put(row);
        put(&[family.len() as u8]);
        put(family);
        put(qualifier);
        put(&timestamp.to_be_bytes());
        put(&[cell_type as u8]);
        put(value);
        if !tags.is_empty() {
            put(&(tags.len() as u16).to_be_bytes());
            put(tags);
        }
        Cell { bytes: out.into(), seq }
    }

    /// A put without tags, sequence id 0.
    pub fn put(row: &[u8], family: &[u8], qualifier: &[u8], timestamp: i64, value: &[u8]) -> Cell {
        Cell::build(row, family, qualifier, timestamp, CellType::Put, value, &[], 0)
    }

    /// Whether parts of these lengths fit a KeyValue.
    pub fn check_parts(row: &[u8], family: &[u8], tags: &[u8]) -> Result<()> {
        if row.is_empty() || row.len() > ROW_LEN_MAX {
            return Err(Error::invalid(format!("Row length {} is not in 1..={ROW_LEN_MAX}", row.len())));
        }
        if family.len() > FAMILY_LEN_MAX {
            return Err(Error::invalid(format!("Family length {} is over {FAMILY_LEN_MAX}", family.len())));
        }
        if tags.len() > u16::MAX as usize {
            return Err(Error::invalid(format!("Tags length {} is over {}", tags.len(), u16::MAX)));
        }
        Ok(())
    }

    #[inline]
    pub fn get(&self) -> CellRef<'_> {
        CellRef { bytes: &self.bytes, seq: self.seq }
    }

    #[inline]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    #[inline]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    #[inline]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    pub fn with_seq(self, seq: u64) -> Cell {
        Cell { bytes: self.bytes, seq }
    }

    /// The same cell with another timestamp (copies the bytes).
    pub fn with_timestamp(&self, timestamp: i64) -> Cell {
        let mut out = BytesMut::from(&self.bytes[..]);
        let at = KEY_OFFSET + self.get().key_len() - 9;
        out[at..at + 8].copy_from_slice(&timestamp.to_be_bytes());
        Cell { bytes: out.freeze(), seq: self.seq }
    }

    #[inline]
    pub fn row(&self) -> &[u8] {
        self.get().row()
    }

    #[inline]
    pub fn family(&self) -> &[u8] {
        self.get().family()
    }

    #[inline]
    pub fn qualifier(&self) -> &[u8] {
        self.get().qualifier()
    }

    #[inline]
    pub fn timestamp(&self) -> i64 {
        self.get().timestamp()
    }

    #[inline]
    pub fn cell_type(&self) -> CellType {
        self.get().cell_type()
    }

    #[inline]
    pub fn value(&self) -> &[u8] {
        self.get().value()
    }

    #[inline]
    pub fn tags(&self) -> &[u8] {
        self.get().tags()
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Equal bytes and equal sequence id.
impl PartialEq for Cell {
    fn eq(&self, other: &Cell) -> bool {
        self.seq == other.seq && self.bytes == other.bytes
    }
}

impl Eq for Cell {}

#[inline]
fn read_u32(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn check(bytes: &[u8]) -> Result<()> {
    if bytes.len() < KEY_OFFSET + FIXED_KEY_LEN {
        return Err(Error::corrupt(format!("a cell of {} bytes is too short", bytes.len())));
    }
    let key_len = read_u32(bytes, 0);
    let value_len = read_u32(bytes, 4);
    let end = KEY_OFFSET as u64 + key_len as u64 + value_len as u64;
    if end > bytes.len() as u64 {
        return Err(Error::corrupt(format!(
            "cell of {} bytes: key length {key_len} and value length {value_len} do not fit",
            bytes.len()
        )));
    }
    KeyRef::parse(&bytes[KEY_OFFSET..KEY_OFFSET + key_len])?;
    let rest = &bytes[end as usize..];
    match rest.len() {
        0 => Ok(()),
        1 => Err(Error::corrupt("one stray byte behind a cell's value")),
        _ => {
            let tags_len = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
            if tags_len != rest.len() - 2 {
                return Err(Error::corrupt(format!(
                    "tags length {tags_len}, but {} bytes follow",
                    rest.len() - 2
                )));
            }
            TagIterator::check(&rest[2..])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// Bytes that HBase's KeyValueCodec wrote for row r1, f:q1, timestamp 1000, value v1.
    #[test]
    fn golden_bytes_of_hbase() {
        let golden = hex("00000011 00000002 0002 7231 01 66 7131 00000000000003e8 04 7631");
        let cell = Cell::put(b"r1", b"f", b"q1", 1000, b"v1");
        assert_eq!(&cell.bytes()[..], &golden[..]);
        let parsed = CellRef::parse(&golden, 7).unwrap();
        assert_eq!((parsed.row(), parsed.family(), parsed.qualifier()), (&b"r1"[..], &b"f"[..], &b"q1"[..]));
        assert_eq!(
            (parsed.timestamp(), parsed.cell_type(), parsed.value()),
            (1000, CellType::Put, &b"v1"[..])
        );
        assert!(parsed.tags().is_empty());
    }

    #[test]
    fn golden_bytes_with_ttl_tag() {
        let golden = hex(
            "00000011 00000002 0002 7231 01 66 7131 00000000000003e8 04 7631 000b 0009 08 000000000000ea60",
        );
        let parsed = CellRef::parse(&golden, 0).unwrap();
        let tag = parsed.tag_iter().next().unwrap();
        assert_eq!((tag.tag_type, tag.value), (8, &60000i64.to_be_bytes()[..]));
        assert_eq!(parsed.bytes_without_tags(), &golden[..golden.len() - 13]);
    }

    #[test]
    fn every_truncation_and_every_flipped_length_is_refused_or_parsed_without_panic() {
        let golden = hex(
            "00000011 00000002 0002 7231 01 66 7131 00000000000003e8 04 7631 000b 0009 08 000000000000ea60",
        );
        for len in 0..golden.len() {
            // The one proper prefix that is a whole cell is the one without tags.
            assert_eq!(CellRef::parse(&golden[..len], 0).is_ok(), len == golden.len() - 13, "length {len}");
        }
        for at in 0..golden.len() {
            for bit in 0..8 {
                let mut bad = golden.clone();
                bad[at] ^= 1 << bit;
                if let Ok(cell) = CellRef::parse(&bad, 0) {
                    let _ = (cell.row(), cell.family(), cell.qualifier(), cell.value(), cell.tags());
                }
            }
        }
    }
}
