//! The block cache: HFile blocks in memory, uncompressed but encoded as in the file, behind one door.
//!
//! A reader asks with [`BlockCache::get`]; on a miss it reads the block from its file, checks and decompresses
//! it, and hands it in with [`BlockCache::insert`]. What comes out is an `Arc<Block>` whose [`Bytes`] are shared
//! by reference count: cells of an answer point into them, eviction never waits for a reader, and an evicted
//! block is freed by whoever lets go of it last. The cache counts only what it holds itself; blocks that live on
//! in a reader's hands are charged to the reader.
//!
//! Which block goes is decided by `quick_cache` (Clock-PRO, close to S3-FIFO): one long scan does not push out
//! what is read again and again, which is what HBase's single and multi access areas are for.
//!
//! What must always hold: a file number is given to one file only, ever, within the process. A block of a
//! dropped file may stay a while after [`BlockCache::evict_file`] (when a reader inserts it at that moment), but
//! it can never be taken for another file's.
//!
//! When you add a field to [`Block`], also count it in [`Block::weight_bytes`].

mod block;
mod cache;

pub use block::{Block, BlockKind};
pub use cache::{BlockCache, BlockKey, BlockPriority, CacheStats};
