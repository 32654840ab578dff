//! Compaction: `select` says which files, `rewrite` merges them into one.

mod rewrite;
mod select;

pub use rewrite::{CompactionOutcome, CompactionRequest};
pub(crate) use select::{FileChoice, select};
