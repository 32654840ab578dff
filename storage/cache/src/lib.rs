//! The block cache: HFile blocks, uncompressed but encoded as in the file, in memory and in a file on a local disk.
//!
//! A reader that opens a file asks [`BlockCache::open_file`] for the way to its blocks. It looks for a block with
//! [`CachedFile::get`], then with [`CachedFile::get_from_file`]; if it is in neither tier it reads the block from its
//! file, checks and decompresses it, and hands it in with [`CachedFile::insert`]. What comes out is an `Arc<Block>`
//! whose [`Bytes`](bytes::Bytes) are shared by reference count: cells of an answer point into them, eviction never
//! waits for a reader, and an evicted block is freed by whoever lets go of it last. The cache counts only what it holds
//! itself; blocks that live on in a reader's hands are charged to the reader.
//!
//! *Memory.* Which block goes is decided by `quick_cache` (Clock-PRO, close to S3-FIFO): a block that is read for the
//! first time waits in a small queue and goes from there unless it is read again; one that was read again has a place
//! among nearly all of the memory, and loses it to another one of its kind only. So a scan of any length pushes out
//! what was read once, and not what is read again and again. Index and bloom blocks and blocks of `IN_MEMORY` families
//! begin as if they had been read before. That is what HBase's single access, multi access and in-memory areas are for,
//! so there are no shares to set (`hbase.lru.blockcache.single.percentage` and its sisters).
//!
//! *File.* Data blocks that leave memory go on to the file tier, if there is one (`tier/mod.rs`). Index and bloom
//! blocks do not.
//!
//! *Files.* A file is known by what it is, not by who opened it (`files.rs`): blocks outlive the closing of a region,
//! and in the file tier the process. They are let go when somebody says so ([`CachedFile::evict`], or
//! [`CachedFile::retire`] of a file that was compacted), or when [`BlockCache::sweep`] finds that a file which nobody
//! has open is no longer there.
//!
//! *Steps.* Whatever takes time with the number of blocks is done by [`BlockCache::turn`], in bounded steps, on a
//! thread that the owner of the cache has for it; requests only say what is to be done. The crate starts no thread.
//!
//! What must always hold: a number is given to one file only, ever, within the process, so a block that stays a while
//! too long can never be taken for another file's.
//!
//! When you add a field to [`Block`], also count it in [`Block::weight_bytes`] and write it in `tier/record.rs`; when
//! you change a byte of the cache file or its index, also change the version in `tier/saved.rs`, and `FORMAT.md`.

mod block;
mod cache;
mod evicted;
mod files;
mod tier;

pub use block::{Block, BlockKind};
pub(crate) use cache::BlockKey;
pub use cache::{BlockCache, BlockPriority, CacheStats, CachedFile};
pub use files::FileIdentity;
pub use tier::{FileTierOptions, FileTierStats, FromFile};
