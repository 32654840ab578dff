//! What threads do inside a region while others may wait for them (see `halcyon_env::Activity`).

use halcyon_env::Activity;

pub(crate) static READ: Activity = Activity::new("a write that reads first");
pub(crate) static COPY_INTO_MEMSTORE: Activity = Activity::new("a write that copies its cells into a chunk");
pub(crate) static WAIT_FOR_NUMBER: Activity = Activity::new("a write waiting for its sequence id");
pub(crate) static APPEND_TO_WAL: Activity = Activity::new("a write appending to the WAL");
pub(crate) static INSERT_INTO_MEMSTORE: Activity = Activity::new("a write inserting into the memstore");
pub(crate) static BEGIN_FLUSH: Activity = Activity::new("a flush taking its snapshot");
pub(crate) static BEGIN_MEMORY_COMPACTION: Activity =
    Activity::new("an in-memory compaction taking its segment");
pub(crate) static CLOSE: Activity = Activity::new("a close of the region");
