use std::fmt;

use crate::{CellType, Error, FIXED_KEY_LEN, LATEST_TIMESTAMP, OLDEST_TIMESTAMP, Result};

/// Borrowed key bytes: `int16 row length | row | byte family length | family | qualifier | int64 timestamp | type`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyRef<'a>(&'a [u8]);

impl<'a> KeyRef<'a> {
    /// Checks lengths and type.
    pub fn parse(bytes: &'a [u8]) -> Result<KeyRef<'a>> {
        if bytes.len() < FIXED_KEY_LEN {
            return Err(Error::corrupt(format!("a key of {} bytes is too short", bytes.len())));
        }
        let row_len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        if row_len > crate::ROW_LEN_MAX || FIXED_KEY_LEN + row_len > bytes.len() {
            return Err(Error::corrupt(format!("row length {row_len} in a key of {} bytes", bytes.len())));
        }
        let family_len = usize::from(bytes[2 + row_len]);
        if family_len > crate::FAMILY_LEN_MAX || FIXED_KEY_LEN + row_len + family_len > bytes.len() {
            return Err(Error::corrupt(format!(
                "family length {family_len} in a key of {} bytes",
                bytes.len()
            )));
        }
        let code = bytes[bytes.len() - 1];
        if CellType::from_code(code).is_none() {
            return Err(Error::corrupt(format!("unknown cell type {code}")));
        }
        Ok(KeyRef(bytes))
    }

    /// Takes bytes that were parsed before.
    #[inline]
    pub fn trusted(bytes: &'a [u8]) -> KeyRef<'a> {
        KeyRef(bytes)
    }

    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    #[inline]
    pub fn row(&self) -> &'a [u8] {
        let len = usize::from(u16::from_be_bytes([self.0[0], self.0[1]]));
        &self.0[2..2 + len]
    }

    #[inline]
    fn family_at(&self) -> usize {
        3 + usize::from(u16::from_be_bytes([self.0[0], self.0[1]]))
    }

    #[inline]
    pub fn family(&self) -> &'a [u8] {
        let at = self.family_at();
        &self.0[at..at + usize::from(self.0[at - 1])]
    }

    #[inline]
    pub fn qualifier(&self) -> &'a [u8] {
        let at = self.family_at();
        &self.0[at + usize::from(self.0[at - 1])..self.0.len() - 9]
    }

    #[inline]
    pub fn timestamp(&self) -> i64 {
        let at = self.0.len() - 9;
        i64::from_be_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    #[inline]
    pub fn type_code(&self) -> u8 {
        self.0[self.0.len() - 1]
    }

    pub fn to_key(&self) -> Key {
        Key(self.0.to_vec())
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}:{}/{}/{}",
            self.row().escape_ascii(),
            self.family().escape_ascii(),
            self.qualifier().escape_ascii(),
            self.timestamp(),
            self.type_code()
        )
    }
}

/// An owned key, for seeking and for index entries.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(Vec<u8>);

impl Key {
    pub fn new(row: &[u8], family: &[u8], qualifier: &[u8], timestamp: i64, cell_type: CellType) -> Key {
        assert!(row.len() <= crate::ROW_LEN_MAX && family.len() <= crate::FAMILY_LEN_MAX);
        let mut out = Vec::with_capacity(FIXED_KEY_LEN + row.len() + family.len() + qualifier.len());
        out.extend_from_slice(&(row.len() as u16).to_be_bytes());
        out.extend_from_slice(row);
        out.push(family.len() as u8);
        out.extend_from_slice(family);
        out.extend_from_slice(qualifier);
        out.extend_from_slice(&timestamp.to_be_bytes());
        out.push(cell_type as u8);
        Key(out)
    }

    /// Sorts before every cell of `row` (`PrivateCellUtil.createFirstOnRow`).
    pub fn first_on_row(row: &[u8]) -> Key {
        Key::new(row, b"", b"", LATEST_TIMESTAMP, CellType::Maximum)
    }

    /// Sorts after every cell of `row` (`PrivateCellUtil.createLastOnRow`).
    pub fn last_on_row(row: &[u8]) -> Key {
        Key::new(row, b"", b"", OLDEST_TIMESTAMP, CellType::Minimum)
    }

    /// Sorts before every cell of the column.
    pub fn first_on_column(row: &[u8], family: &[u8], qualifier: &[u8]) -> Key {
        Key::new(row, family, qualifier, LATEST_TIMESTAMP, CellType::Maximum)
    }

    /// Sorts after every cell of the column.
    pub fn last_on_column(row: &[u8], family: &[u8], qualifier: &[u8]) -> Key {
        Key::new(row, family, qualifier, OLDEST_TIMESTAMP, CellType::Minimum)
    }

    #[inline]
    pub fn get(&self) -> KeyRef<'_> {
        KeyRef(&self.0)
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
