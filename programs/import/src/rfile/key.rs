//! A key of Accumulo, and its two forms in files.

use std::cmp::Ordering;

use super::bytes::Reader;
use super::error::{Result, damaged};

/// Row, column family, column qualifier, column visibility, timestamp, and whether it deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) row: Vec<u8>,
    pub(crate) family: Vec<u8>,
    pub(crate) qualifier: Vec<u8>,
    pub(crate) visibility: Vec<u8>,
    pub(crate) timestamp: i64,
    pub(crate) is_deleted: bool,
}

/// Bits of the first byte of a relative key: the field is that of the key before.
const ROW_SAME: u8 = 1;
const FAMILY_SAME: u8 = 1 << 1;
const QUALIFIER_SAME: u8 = 1 << 2;
const VISIBILITY_SAME: u8 = 1 << 3;
const TIMESTAMP_SAME: u8 = 1 << 4;
const DELETED: u8 = 1 << 5;
const HAS_PREFIXES: u8 = 1 << 7;
const ALL_SAME: u8 = ROW_SAME | FAMILY_SAME | QUALIFIER_SAME | VISIBILITY_SAME | TIMESTAMP_SAME;
/// Of the second byte, which has the same places: the field begins as that of the key before; the timestamp is a difference.
const TIMESTAMP_DIFFERENCE: u8 = TIMESTAMP_SAME;

impl Key {
    /// Accumulo's order without the deletion: a column's newest entry comes first.
    fn compare_column(&self, other: &Key) -> Ordering {
        self.row
            .cmp(&other.row)
            .then_with(|| self.family.cmp(&other.family))
            .then_with(|| self.qualifier.cmp(&other.qualifier))
            .then_with(|| self.visibility.cmp(&other.visibility))
    }

    /// Whether both are versions of one column. The visibility is a part of the column in Accumulo.
    pub(crate) fn is_same_column(&self, other: &Key) -> bool {
        // what differs first in practice is asked first
        self.qualifier == other.qualifier
            && self.row == other.row
            && self.family == other.family
            && self.visibility == other.visibility
    }

    /// The whole form, as the index has it:
    /// `v row length | v end of family | v end of qualifier | v end of visibility | bytes | v timestamp | deleted`.
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Key> {
        let ends = [reader.vcount()?, reader.vcount()?, reader.vcount()?, reader.vcount()?];
        if !ends.is_sorted() {
            return damaged(format!("a key whose fields end at {ends:?}"));
        }
        let row = reader.take(ends[0])?.to_vec();
        let family = reader.take(ends[1] - ends[0])?.to_vec();
        let qualifier = reader.take(ends[2] - ends[1])?.to_vec();
        let visibility = reader.take(ends[3] - ends[2])?.to_vec();
        let timestamp = reader.vlong()?;
        Ok(Key { row, family, qualifier, visibility, timestamp, is_deleted: reader.boolean()? })
    }

    /// The relative form, as data blocks have it. `self` is the key before, and becomes the one that is read.
    ///
    /// `fields that are the same [ fields with a common prefix ] | row | family | qualifier | visibility | v timestamp`
    ///
    /// A field is `v length | bytes`, or with a prefix `v length of the prefix | v length of the rest | rest`.
    pub(super) fn read_relative(&mut self, reader: &mut Reader<'_>, is_first: bool) -> Result<()> {
        let same = reader.byte()?;
        let prefixed = if same & HAS_PREFIXES == 0 { 0 } else { reader.byte()? };
        if is_first && (same & (ALL_SAME | HAS_PREFIXES)) != 0 {
            return damaged("the first key of a block refers to one before it");
        }
        for (field, bit) in [
            (&mut self.row, ROW_SAME),
            (&mut self.family, FAMILY_SAME),
            (&mut self.qualifier, QUALIFIER_SAME),
            (&mut self.visibility, VISIBILITY_SAME),
        ] {
            if same & bit != 0 {
                continue;
            }
            if prefixed & bit == 0 {
                field.clear();
            } else {
                let len = reader.vcount()?;
                if len > field.len() {
                    return damaged(format!("a prefix of {len} bytes of a field of {}", field.len()));
                }
                field.truncate(len);
            }
            field.extend_from_slice(reader.vbytes()?);
        }
        if same & TIMESTAMP_SAME == 0 {
            let number = reader.vlong()?;
            self.timestamp = match prefixed & TIMESTAMP_DIFFERENCE {
                0 => number,
                _ => number.wrapping_add(self.timestamp),
            };
        }
        self.is_deleted = same & DELETED != 0;
        Ok(())
    }
}

impl Ord for Key {
    /// As Accumulo's `Key.compareTo`: newest first, and a deletion before what it deletes.
    fn cmp(&self, other: &Key) -> Ordering {
        self.compare_column(other)
            .then_with(|| other.timestamp.cmp(&self.timestamp))
            .then_with(|| other.is_deleted.cmp(&self.is_deleted))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
