//! Replication: edits that another cluster sends.
//!
//! ```text
//! ReplicateWALEntry -> entries.rs  WAL entries to mutations, by table and in order
//!                   -> sink.rs     regions that are here; through a client what other servers have
//! ```
//!
//! A mutation keeps its timestamps and tags, and the ids of the clusters that have it. They go into the WAL here, so that a
//! source of this cluster does not send it back. Checked against `ReplicationSink` of 2.6.4.

mod entries;
mod sink;

pub(crate) use entries::{TableEdits, by_table};
pub(crate) use sink::{Sink, write_local};
pub use sink::SinkStats;
