//! RFiles, Accumulo's store files, for reading: versions 3, 4, 6, 7 and 8, which Accumulo 1.3 to 2.1 have written.
//!
//! ```text
//! container.rs   blocks, compressed; meta blocks by name (BCFile 1 and 3)
//! index.rs       locality groups and their index, of one level or several
//! key.rs         keys, whole and relative to the one before
//! scan.rs        the entries of a group in their order
//! bytes.rs       numbers as Hadoop writes them
//! ```
//!
//! Nothing here trusts a file: each length is checked before memory is taken for it, keys must be in order, each block must
//! have the entries that the index says, and no byte more. The format has no checksums. A flipped bit within a value
//! can be found only by the codec.
//!
//! Checked against `RFile`, `RelativeKey`, `MultiLevelIndex` and `BCFile` of Accumulo 2.1.

mod bytes;
mod container;
mod error;
mod index;
mod key;
mod scan;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use halcyon_env::ReadableFile;

pub(crate) use bytes::Reader;
pub(crate) use error::RFileError;
pub(crate) use index::{Group, Leaves};
pub(crate) use key::Key;
pub(crate) use scan::GroupScanner;

use container::Container;
use error::Result;

/// An open RFile. Its root indexes are in memory.
pub(crate) struct RFile {
    container: Arc<Container>,
    version: i32,
    groups: Vec<Group>,
}

impl RFile {
    /// Reads the trailer and the indexes. `len` is the file's length.
    pub(crate) fn open(file: Arc<dyn ReadableFile>, len: u64) -> Result<RFile> {
        let container = Container::open(file, len)?;
        let index = container.meta("RFile.index")?;
        let (version, groups) = index::read_groups(&index).map_err(|error| error.at("RFile.index"))?;
        Ok(RFile { container: Arc::new(container), version, groups })
    }

    /// The version of its index, which is that of the file.
    #[cfg(test)]
    pub(crate) fn version(&self) -> i32 {
        self.version
    }

    pub(crate) fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The data blocks of a group from the one on that may have `row`.
    pub(crate) fn leaves(&self, group: usize, row: &[u8]) -> Result<Leaves> {
        Leaves::seek(&self.container, self.version, &self.groups[group], row)
    }

    /// The entries of a group with rows from `start` on and before `end`; empty: the first and the last.
    pub(crate) fn scan(&self, group: usize, start: &[u8], end: &[u8]) -> Result<GroupScanner> {
        let leaves = self.leaves(group, start)?;
        Ok(GroupScanner::new(Arc::clone(&self.container), leaves, end))
    }
}

impl Key {
    /// The whole form of a key, as `exporttable` writes it, too.
    pub(crate) fn read_whole(reader: &mut Reader<'_>) -> Result<Key> {
        Key::read(reader)
    }
}
