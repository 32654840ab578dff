//! The check that each entry of ours has in its key, and what a file has against made up ones.
//!
//! ```text
//! 62 16            field 12 (extended_attributes), 22 bytes
//! 0a 06 "crc32c"   its name
//! 12 0c            its value, 12 bytes:
//!   int32 CRC-32C of the key's bytes before the attribute, then of all cells as they lie in the file,
//!         then of the next eight bytes, then of the second half of the file's salt
//!   int64 bytes of this file known to be on disk when the entry was appended, XOR the first half of the salt
//! ```
//!
//! The second number lets a reader tell a torn tail from damage in the middle: see `reader.rs`. The *salt* ([`Salt`]) is random
//! and in the header of each file. Without it a client could put a value that holds a whole entry, and damage in front of it
//! would seem to be what its number says.

use halcyon_env::random_bytes;
use prost::Message;

use crate::format::{TRAILER, TRAILER_MAGIC};
use crate::source::{Decode, bad};

/// Start of the check attribute, up to its value.
pub(crate) const CHECK_PREFIX: &[u8; 12] = b"\x62\x16\x0a\x06crc32c\x12\x0c";
/// The whole attribute.
pub(crate) const CHECK_LEN: usize = CHECK_PREFIX.len() + 12;
// The lengths inside the prefix are those of what follows them: a reader that skips the attribute trusts them.
const _: () = assert!(CHECK_PREFIX[1] as usize == CHECK_LEN - 2 && CHECK_PREFIX[11] == 12);
const _: () = assert!(CHECK_PREFIX[3] as usize == CHECK_NAME.len());
/// Name of the check attribute.
pub(crate) const CHECK_NAME: &str = "crc32c";

/// The same in a compressed file. HBase's readers look the value of every attribute up in the dictionary of tables, and adding a
/// value twice breaks them; so the check is part of the name, and the value is the index of the entry's own table.
const PACKED_CHECK_PREFIX: &[u8; 10] = b"\x62\x1c\x0a\x16crc32c";
/// In front of the index.
const PACKED_CHECK_VALUE: &[u8; 2] = b"\x12\x02";
/// Twelve bytes, six bits in each character.
const PACKED_LEN: usize = 16;
const PACKED_CHECK_LEN: usize = PACKED_CHECK_PREFIX.len() + PACKED_LEN + PACKED_CHECK_VALUE.len() + 2;
const _: () = assert!(PACKED_CHECK_PREFIX[1] as usize == PACKED_CHECK_LEN - 2);
const _: () = assert!(PACKED_CHECK_PREFIX[3] as usize == CHECK_NAME.len() + PACKED_LEN);
/// The character of six bits that are 0.
const PACKED_ZERO: u8 = b'0';

/// How checks lie in the keys of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckForm {
    Plain,
    /// Of a compressed file.
    Packed,
}

impl CheckForm {
    /// How the attribute begins.
    pub(crate) fn prefix(self) -> &'static [u8] {
        match self {
            CheckForm::Plain => CHECK_PREFIX,
            CheckForm::Packed => PACKED_CHECK_PREFIX,
        }
    }

    /// Bytes of the attribute.
    pub(crate) fn len(self) -> usize {
        match self {
            CheckForm::Plain => CHECK_LEN,
            CheckForm::Packed => PACKED_CHECK_LEN,
        }
    }
}

/// Whether an attribute of a key is its check, in either form.
pub(crate) fn is_check(name: &str) -> bool {
    name.starts_with(CHECK_NAME) && [CHECK_NAME.len(), CHECK_NAME.len() + PACKED_LEN].contains(&name.len())
}

/// Our own fields of the header, and of the trailer; a reader that does not know them skips them. A file has one of the two.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HeaderExtension {
    /// Of a file of before: every entry carries a check, without a salt. A server of then, which knows only this field, takes a
    /// file with a salt for one of HBase's, and reads it.
    #[prost(bool, optional, tag = "1000")]
    pub checked: Option<bool>,
    /// Every entry carries a check with this salt.
    #[prost(bytes = "vec", optional, tag = "1001")]
    pub salt: Option<Vec<u8>>,
}

/// Bytes of a salt.
const SALT_LEN: usize = 16;
/// Bytes of [`Salt::trailer`].
pub(crate) const SALTED_TRAILER_LEN: usize = 3 + SALT_LEN + TRAILER.len();

/// What only those know who can read a file of a log: nobody else can make an entry, or a trailer, that seems to be the file's.
/// With a guess, the CRC is right once in 2^32 times, and as seldom the number of bytes on disk is one that an entry at its place
/// can have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Salt {
    /// XOR of the number of bytes on disk.
    mask: u64,
    /// What the CRC ends with.
    rest: [u8; 8],
}

impl Salt {
    pub(crate) fn random() -> Salt {
        Salt { mask: u64::from_be_bytes(random_bytes()), rest: random_bytes() }
    }

    /// `None` if it is not as long as a salt is.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Salt> {
        let (mask, rest) = bytes.split_first_chunk::<8>()?;
        Some(Salt { mask: u64::from_be_bytes(*mask), rest: rest.try_into().ok()? })
    }

    fn bytes(self) -> Vec<u8> {
        [self.mask.to_be_bytes(), self.rest].concat()
    }

    pub(crate) fn extension(self) -> HeaderExtension {
        HeaderExtension { checked: None, salt: Some(self.bytes()) }
    }

    /// How a file ends that was closed in peace: a `WALTrailer` with the salt, its size and the magic.
    pub(crate) fn trailer(self) -> Vec<u8> {
        let mut trailer = self.extension().encode_to_vec();
        let len = trailer.len() as u32;
        trailer.extend_from_slice(&len.to_be_bytes());
        trailer.extend_from_slice(TRAILER_MAGIC);
        assert_eq!(trailer.len(), SALTED_TRAILER_LEN, "room is kept for a trailer of this length");
        trailer
    }
}

/// What an entry says of the file that it goes to.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) salt: Salt,
    /// Bytes known to be on disk.
    pub(crate) synced_bytes: u64,
}

impl Mark {
    /// For a file of which nothing is known to be on disk.
    pub(crate) fn of_new(salt: Salt) -> Mark {
        Mark { salt, synced_bytes: 0 }
    }
}

/// The check of an entry, taken out of its key's bytes.
pub(crate) struct Check {
    pub crc: u32,
    pub synced_bytes: u64,
    /// In a compressed file: the index of the table, which belongs to what is checked.
    pub table_index: Option<[u8; 2]>,
    /// Of the file; those of before have none.
    salt: Option<Salt>,
}

impl Check {
    /// For an entry that is written.
    pub(crate) fn of_mark(mark: Mark) -> Check {
        Check { crc: 0, synced_bytes: mark.synced_bytes, table_index: None, salt: Some(mark.salt) }
    }

    /// `None` if the key does not end with a check. With another salt than that of its file it is of no use.
    pub(crate) fn of_key(key: &[u8], form: CheckForm, salt: Option<Salt>) -> Option<Check> {
        let at = key.len().checked_sub(form.len())?;
        let rest = key[at..].strip_prefix(form.prefix())?;
        let (value, table_index) = match form {
            CheckForm::Plain => (rest.try_into().ok()?, None),
            CheckForm::Packed => {
                let (packed, index) = rest.split_first_chunk::<PACKED_LEN>()?;
                (unpack(packed)?, Some(index.strip_prefix(PACKED_CHECK_VALUE)?.try_into().ok()?))
            }
        };
        let [c0, c1, c2, c3, synced @ ..]: [u8; 12] = value;
        let crc = u32::from_be_bytes([c0, c1, c2, c3]);
        let synced_bytes = u64::from_be_bytes(synced) ^ salt.map_or(0, |salt| salt.mask);
        Some(Check { crc, synced_bytes, table_index, salt })
    }

    /// Whether an entry that begins at `begin` can say so: when it was appended, no more was on disk than is in front of it. Of
    /// files without a salt nothing is asked.
    pub(crate) fn can_begin_at(&self, begin: u64) -> bool {
        self.salt.is_none() || self.synced_bytes <= begin
    }

    /// The eight bytes behind the CRC.
    fn synced_as_written(&self) -> [u8; 8] {
        (self.synced_bytes ^ self.salt.map_or(0, |salt| salt.mask)).to_be_bytes()
    }

    /// The check over a key with this one at its end; it goes on over the cells.
    pub(crate) fn begin(key: &[u8], form: CheckForm) -> u32 {
        crc32c::crc32c(&key[..key.len() - form.len()])
    }

    /// The check of key and cells as they are; `crc` if they are the ones that were written.
    pub(crate) fn complete(&self, of_key_and_cells: u32) -> u32 {
        let crc = crc32c::crc32c_append(of_key_and_cells, &self.synced_as_written());
        let crc = self.table_index.map_or(crc, |index| crc32c::crc32c_append(crc, &index));
        self.salt.map_or(crc, |salt| crc32c::crc32c_append(crc, &salt.rest))
    }

    /// `Bad` if key and cells are not the ones that were written.
    pub(crate) fn verify(&self, of_key_and_cells: u32) -> Decode<()> {
        let found = self.complete(of_key_and_cells);
        if found != self.crc {
            return bad(format!("check of key and cells: expected {:08x}, found {found:08x}", self.crc));
        }
        Ok(())
    }

    /// The value of the attribute, with the check of a key and cells.
    pub(crate) fn value(&self, of_key_and_cells: u32) -> [u8; 12] {
        let mut value = [0; 12];
        value[..4].copy_from_slice(&self.complete(of_key_and_cells).to_be_bytes());
        value[4..].copy_from_slice(&self.synced_as_written());
        value
    }

    /// Writes the whole attribute, with the check of a key and cells.
    pub(crate) fn put(&self, of_key_and_cells: u32, attribute: &mut [u8]) {
        let value = self.value(of_key_and_cells);
        let parts: [&[u8]; 4] = match &self.table_index {
            None => [CHECK_PREFIX, &value, &[], &[]],
            Some(index) => [PACKED_CHECK_PREFIX, &pack(value), PACKED_CHECK_VALUE, index],
        };
        attribute.copy_from_slice(&parts.concat());
    }
}

/// Twelve bytes as sixteen characters of UTF-8.
fn pack(bytes: [u8; 12]) -> [u8; PACKED_LEN] {
    let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    std::array::from_fn(|at| (0..6).fold(0, |bits, n| bits << 1 | bit(6 * at + n)) + PACKED_ZERO)
}

/// `None` if a character is not one of [`pack`].
fn unpack(packed: &[u8; PACKED_LEN]) -> Option<[u8; 12]> {
    if !packed.iter().all(|character| (PACKED_ZERO..PACKED_ZERO + 64).contains(character)) {
        return None;
    }
    let bit = |at: usize| (packed[at / 6] - PACKED_ZERO) >> (5 - at % 6) & 1;
    Some(std::array::from_fn(|at| (0..8).fold(0, |bits, n| bits << 1 | bit(8 * at + n))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_packed_into_characters() {
        for bytes in [[0; 12], [0xff; 12], *b"\x00\x01\x02\x80\xfe\xaa\x55twelv"] {
            let packed = pack(bytes);
            assert!(packed.is_ascii());
            assert_eq!(unpack(&packed), Some(bytes));
        }
        assert_eq!(unpack(b"012345678901234/"), None);
        assert_eq!(unpack(b"012345678901234p"), None);
    }
}
