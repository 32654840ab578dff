//! The memory part of a store: chunks from a pool, and segments of cells that live in them.
//!
//! ```text
//! prepare: KeyValue bytes --copy, stamp--> chunk [ node | cell ]   (not visible; the WAL reads it here)
//! insert:  sequence id into the node, node linked into the skip list, bottom level first
//! scan:    bottom level from node to node; cells above the read point are passed over
//! find:    where the row was found last (`hints`), else level by level; over versions of a column by column links (`node`)
//! succeed: the segment that follows one in a pipeline goes on with its chunk
//! flatten: pointers to the nodes of segments that take no more cells, sorted, as one array
//! drop:    the segment lets go of its chunks; each goes back to the pool when nobody holds a cell of it
//! ```
//!
//! A cell is copied once, and nothing is allocated per cell: a node and its cell are one piece of a chunk.
//! Readers take no lock and never wait; writers wait only for each other while a new chunk is put in place.
//!
//! `unsafe` stands in `chunk` (memory), `node` (layout of a node in that memory), `list` (linking), `hints` (a table in that memory), `segment`
//! (who owns which chunk), `scanner` (a position that keeps its segment alive) and `flat` (nodes of held segments). What they rely on is said at
//! the top of each. After a change there, run Miri and Shuttle:
//!
//! ```text
//! cargo xtask memory
//! cargo test --release -p halcyon-memstore --test speed -- --ignored --nocapture
//! ```
//!
//! When you change the layout of a node, also look at `SegmentSize` and at the flush sizes in `region`.

mod chunk;
mod flat;
mod hints;
mod list;
mod lookahead;
mod node;
mod order;
mod scanner;
mod segment;

pub use chunk::{CHUNK_SIZE_BYTES_DEFAULT, ChunkPool};
pub use flat::{FlatScanner, FlatSegment};
pub use scanner::SegmentScanner;
pub use segment::{PreparedCell, Segment, SegmentSize};
