//! The block cache: HFile blocks, uncompressed but encoded as in the file, in memory and in a file on a local disk.
//!
//! A reader opens a file with [`BlockCache::open_file`]. It looks for a block with [`CachedFile::get`] (memory), then with
//! [`CachedFile::get_from_file`] (file tier). If neither tier has the block, the reader reads, checks and decompresses it,
//! and adds it with [`CachedFile::insert`]. Blocks are `Arc<Block>`s whose [`Bytes`](bytes::Bytes) are reference-counted.
//! Cells of a response point into them, eviction never waits for a reader, and the last reader frees an evicted block. The
//! cache counts only blocks that it holds itself; a block that only a reader holds is charged to the reader.
//!
//! *Memory tier.* `quick_cache` (Clock-PRO, close to S3-FIFO) decides which block is evicted. A block that is read for the
//! first time enters a small queue, and is evicted from there unless it is read again. A block that is read again moves to
//! the main area, where only other such blocks displace it. So a long scan evicts blocks that were read once, and not the
//! working set. Index and bloom blocks and blocks of `IN_MEMORY` families start in the main area. This replaces HBase's
//! single-access, multi-access and in-memory areas, so there are no shares to set
//! (`hbase.lru.blockcache.single.percentage` and the like).
//!
//! *File tier.* Data blocks that are evicted from memory go to the file tier, if there is one (`tier/mod.rs`). Index and
//! bloom blocks do not.
//!
//! *Files.* A file is known by its identity, not by who opened it (`files.rs`). Its blocks survive the close of a region,
//! and in the file tier the end of the process. They are released by [`CachedFile::evict`], by [`CachedFile::retire`] (for
//! a file that was compacted), or by [`BlockCache::sweep`] when a file that is not open no longer exists.
//!
//! *Background work.* Work that grows with the number of blocks is done by [`BlockCache::turn`], in bounded steps, on a
//! thread of the cache's owner. Requests only queue it. The crate starts no thread.
//!
//! What must always hold: a file number is given to one file only, within the process, so that a block is never taken for
//! another file's.
//!
//! When you add a field to [`Block`], also count it in [`Block::weight_bytes`] and write it in `tier/record.rs`. When you
//! change a byte of the cache file or its index, also change the version in `tier/saved.rs`, and `FORMAT.md`.

mod block;
mod cache;
mod evicted;
mod files;
mod names;
mod tier;

pub use block::{Block, BlockKind};
pub(crate) use cache::BlockKey;
pub use cache::{BlockCache, BlockPriority, CacheStats, CachedFile, KindReads, READ_KINDS};
pub use files::FileIdentity;
pub use names::{BlockOffset, FileId};
pub use tier::{FileTierOptions, FileTierStats, FromFile};
