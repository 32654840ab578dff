//! HFile version 3, HBase's store file: written once in key order, then only read.
//!
//! *Write.* [`HFileWriter::append`] adds a cell to the open block. A full block is compressed, gets a header and
//! checksums, and goes out through one large buffer. Its first key goes into the index and its rows into the bloom
//! filter. Index and bloom chunks are written between data blocks when they are full. [`HFileWriter::finish`] adds the
//! roots, the file info and the trailer, and syncs. `FORMAT.md` draws the bytes.
//!
//! *Read.* [`HFile::open`] reads trailer, root index, file info and bloom roots into memory. [`HFileScanner`] follows the
//! index to a block. It takes the block from the block cache, or reads it from the disk if its [`ReadMode`] allows that.
//! A cell is a slice of its block; it is not copied. Blocks stay encoded in the cache. A scan decodes PREFIX, DIFF and
//! FAST_DIFF blocks a few dozen cells at a time (`encoding/runs.rs`), which copies each cell once per scan
//! (`CacheStats::decoded_bytes` counts it). Cells of plain and ROW_INDEX_V1 blocks are never copied.
//!
//! Modules import downwards only: `scanner`, `verify`, `walk` > `reader` > `load_on_open`, `bloom` > `index` > `block`. The index
//! loads its blocks through the trait `BlockLoader`, so it can be tested without a file.
//!
//! What must always hold:
//! - The reader verifies a block's checksums and walks its structure once, before the block enters the cache. After that
//!   its bytes are trusted. Before that nothing is: no length allocates memory before it was checked against the file size.
//! - An index key need not be a stored cell. It is greater than the last key of the block before, and not greater than the
//!   first key of its own block. Equal keys are never in two blocks.
//! - Every data block is in the index, at rising offsets.
//!
//! When you change what the writer puts into a file, also touch `FORMAT.md`, the golden files in `testdata/`, and their
//! generator in `testing/compat/golden/`; `testing/compat/files.sh` tries every combination.

mod block;
mod block_writer;
mod bloom;
mod bloom_writer;
mod cell_stats;
mod data_block;
mod encoding;
mod file_info;
mod format;
mod half;
mod hash;
mod index;
mod index_writer;
mod load_on_open;
mod read_mode;
mod reader;
mod scanner;
mod trailer;
mod verify;
mod walk;
mod writer;

pub use block::ChecksumType;
pub use file_info::FileInfo;
pub use halcyon_cache::BlockKind;
pub use halcyon_schema::{BlockEncoding, BloomType, Compression};
pub use half::{HalfScanner, RowRange};
pub use read_mode::ReadMode;
pub use reader::{CacheKinds, HFile, ReaderOptions};
pub use scanner::{BlockReads, HFileScanner};
pub use trailer::Trailer;
pub use walk::{BlockHeader, BlockWalk, BloomFacts, IndexEntry, Unreadable};
pub use writer::{FileKey, FileMeta, HFileWriter, WriterOptions, WrittenFile};

#[cfg(test)]
mod tests {
    mod damage;
    mod rot;
}
