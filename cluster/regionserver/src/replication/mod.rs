//! Replication: edits that another cluster sends, and edits for other clusters.
//!
//! ```text
//! ReplicateWALEntry -> entries.rs  WAL entries to mutations, by table and in order
//!                   -> sink.rs     regions that are here; through a client what other servers have
//!                   -> loads.rs    bulk loads: files are copied from the other cluster, and loaded
//!
//! master -> sources.rs -> source.rs  one thread for each peer, and one for each claimed queue
//!                      -> claims.rs  queues of servers that are gone
//!                      -> wals.rs    which WALs a source sends, and the next batch of them
//!                      -> serial.rs  serial peers: what waits for other servers; barriers.rs, sent.rs, closings.rs
//!                      -> filter.rs  which cells the peer gets
//!                      -> target.rs  finds the peer and calls ReplicateWALEntry
//!                      -> deleted.rs edits of what is gone here and there
//!                      -> queue.rs   what the peer has got, on disk
//!                      -> holders.rs whose queue a file is
//!        -> books.rs                 of a cluster's active master: what of servers that are gone was sent
//! ```
//!
//! A mutation keeps its timestamps and tags, and the ids of the clusters that have it. They go into the WAL here, so that a
//! source of this cluster does not send it back. Checked against `ReplicationSink` of 2.6.4.

mod barriers;
mod books;
mod claims;
mod closings;
mod deleted;
mod entries;
mod filter;
mod holders;
mod loads;
mod queue;
mod sent;
mod serial;
mod sink;
mod source;
mod sources;
mod target;
mod wals;

pub use barriers::{BarriersFuture, ReadBarriers};
pub(crate) use entries::{Entries, by_table};
pub use loads::OpenSourceFiles;
pub(crate) use loads::SourceDirs;
pub use queue::has_replication_queue;
pub use sink::SinkStats;
pub(crate) use sink::{Sink, write_local};
pub use source::SourceStats;
pub(crate) use sources::Sources;
pub use target::cluster_id_of;

/// Qualifier of the cell that tells of a bulk load (`WALEdit.BULK_LOAD`).
const BULK_LOAD: &[u8] = b"HBASE::BULK_LOAD";
