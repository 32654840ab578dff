//! A reference: a small file by which a region shows rows of a store file of its parent.
//!
//! ```text
//! <family>/<hfile>.<parent's encoded name>     "PBUF" | Reference { splitkey, range TOP or BOTTOM }
//! ```
//!
//! The key is the first one of the split row, in the form of a KeyValue's key. TOP are the rows from there on,
//! BOTTOM those before (HBase: `Reference`, `StoreFileInfo`).

use std::path::Path;

use bytes::Bytes;
use halcyon_cell::{Error, Key, KeyRef, Result};
use halcyon_env::Env;
use halcyon_hfile::RowRange;
use halcyon_proto::{PB_MAGIC, pb};
use prost::Message;

/// The rows of a parent's store file that a region shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub split_row: Bytes,
    /// The rows from `split_row` on; else those before it.
    pub top: bool,
}

impl Reference {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = PB_MAGIC.to_vec();
        self.to_pb().encode(&mut out).expect("a Vec grows as needed");
        out
    }

    pub fn to_pb(&self) -> pb::Reference {
        let range = if self.top { pb::reference::Range::Top } else { pb::reference::Range::Bottom };
        let splitkey = Bytes::from(Key::first_on_row(&self.split_row).into_bytes());
        pb::Reference { splitkey, range: range as i32 }
    }

    /// Corrupt if the bytes are not a reference.
    pub fn decode(bytes: &[u8]) -> Result<Reference> {
        let wrong = |what: &str| Error::corrupt(format!("reference: {what}"));
        let rest = bytes.strip_prefix(&PB_MAGIC[..]).ok_or_else(|| wrong("it does not begin with PBUF"))?;
        let message = pb::Reference::decode(rest).map_err(|error| wrong(&error.to_string()))?;
        // The decoder gives a missing field its default, and the wrong half would be shown.
        if message.encoded_len() != rest.len() {
            return Err(wrong("it is not whole"));
        }
        let range = pb::reference::Range::try_from(message.range)
            .map_err(|_| wrong(&format!("range {}", message.range)))?;
        let key = KeyRef::parse(&message.splitkey)?;
        Ok(Reference {
            split_row: Bytes::copy_from_slice(key.row()),
            top: range == pb::reference::Range::Top,
        })
    }

    /// Corrupt, with the file's name, if it is not a reference.
    pub fn read(env: &Env, path: &Path) -> Result<Reference> {
        Reference::decode(&env.fs.read(path)?).map_err(|error| error.context(path.display()))
    }

    pub fn range(&self) -> RowRange {
        let row = Some(self.split_row.clone());
        if self.top { RowRange { start: row, end: None } } else { RowRange { start: None, end: row } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_hbase() {
        let top = Reference { split_row: Bytes::from_static(b"m"), top: true };
        let golden = b"PBUF\x0a\x0d\x00\x01m\x00\x7f\xff\xff\xff\xff\xff\xff\xff\xff\x10\x00";
        assert_eq!(top.encode(), golden);
        assert_eq!(Reference::decode(golden).unwrap(), top);
        let bottom = Reference { top: false, ..top };
        assert_eq!(Reference::decode(&bottom.encode()).unwrap(), bottom);
        assert_eq!(bottom.range(), RowRange { start: None, end: Some(Bytes::from_static(b"m")) });
    }

    #[test]
    fn damage_is_an_error() {
        let whole = Reference { split_row: Bytes::from_static(b"row"), top: true }.encode();
        for len in 0..whole.len() {
            assert!(Reference::decode(&whole[..len]).is_err(), "{len}");
        }
        let mut other = whole.clone();
        *other.last_mut().unwrap() = 7;
        assert!(Reference::decode(&other).is_err());
    }
}
