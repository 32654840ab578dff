//! The in-memory part of a store: chunks from a pool, and segments of cells that are in them.
//!
//! ```text
//! prepare: KeyValue bytes --copy, stamp--> chunk [ node | cell ]   (not visible; the WAL reads it here)
//! insert:  sequence id into the node, node linked into the skip list, bottom level first
//! scan:    bottom level from node to node; cells above the read point are skipped
//! find:    from where the row was found last (`hints`), else level by level; column links skip versions (`node`)
//! succeed: the next segment of a pipeline continues with the chunk of the last one
//! flatten: pointers to the nodes of segments that take no more cells, sorted, as one array
//! drop:    the segment releases its chunks; a chunk returns to the pool when no cell of it is referenced
//! ```
//!
//! A cell is copied once. Nothing is allocated per cell: a node and its cell are one range of a chunk. Readers take no
//! lock and never wait. Writers wait for each other only while a new chunk is installed.
//!
//! These files have `unsafe` code; each says at its top what it relies on:
//!
//! | file | what is unsafe |
//! |---|---|
//! | `chunk` | memory |
//! | `node` | the layout of a node in that memory |
//! | `list` | linking nodes |
//! | `hints` | a table in that memory |
//! | `segment` | which segment owns which chunk |
//! | `scanner` | a position that keeps its segment alive |
//! | `flat` | nodes of the segments that it holds |
//!
//! After a change in one of them, run Miri and Shuttle, and compare the speed:
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
