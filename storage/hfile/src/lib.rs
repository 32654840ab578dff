//! HFile version 3, HBase's store file: written once in key order, then read by key for ever.
//!
//! A write passes through [`HFileWriter::append`] into a block buffer; a full block is compressed, given a
//! header and checksums and goes out through one large buffer, its first key into the index, its rows into
//! the bloom filter; both flow out as blocks of their own whenever they have filled up. [`HFileWriter::finish`]
//! adds the roots, the file info and the trailer, and syncs. `FORMAT.md` draws the bytes.
//!
//! A read starts at [`HFile::open`], which takes trailer, root index, file info and bloom roots into memory.
//! [`HFileScanner`] walks the index to a block, takes it from the block cache or (if it may) with one positional
//! read from the disk, and steps over cells that stay where they are: a cell is a slice of its block. Blocks stay
//! encoded in the cache; of PREFIX, DIFF and FAST_DIFF blocks a few dozen cells at a time are decoded, and a cell is
//! a slice of those (`encoding/runs.rs`). That copies each cell that is walked over once per walk, whole, and is
//! counted (`CacheStats::decoded_bytes`); of blocks without encoding and of ROW_INDEX_V1 nothing is copied.
//!
//! What must always hold:
//! - A block's checksums are verified when it is read, and its structure is walked once before it enters the
//!   cache. Behind that point bytes are trusted; in front of it nothing is, and no length allocates memory
//!   before it was held against the size of the file.
//! - An index key need not be a stored cell: it lies behind the last cell of the block before and not behind
//!   the first cell of its own. Equal keys never straddle a block boundary.
//!
//! When you change what the writer puts into a file, also touch `FORMAT.md`, the golden files under
//! `testdata/`, and their generator in `testing/compat/golden/`; `testing/compat/files.sh` tries every combination.

mod block;
mod block_writer;
mod bloom;
mod bloom_writer;
mod cell_stats;
mod compression;
mod data_block;
mod encoding;
mod file_info;
mod format;
mod half;
mod hash;
mod index;
mod index_writer;
mod load_on_open;
mod reader;
mod scanner;
mod trailer;
mod verify;
mod writer;

pub use block::ChecksumType;
pub use file_info::FileInfo;
pub use halcyon_schema::{BlockEncoding, BloomType, Compression};
pub use half::{HalfScanner, RowRange};
pub use reader::{CacheKinds, HFile, ReadMode, ReaderOptions};
pub use scanner::{BlockReads, HFileScanner};
pub use writer::{FileMeta, HFileWriter, WriterOptions, WrittenFile};

#[cfg(test)]
mod tests {
    mod damage;
    mod rot;
}
