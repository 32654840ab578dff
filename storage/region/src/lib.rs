//! One region on one disk: the engine behind every table.
//!
//! ```text
//! put      write.rs    rows locked -> stamped -> chunk -> log -> memstore -> (log's word) -> published
//! get/scan read.rs     read point -> views of the stores -> scan/source merge -> scan/matcher -> filter
//! flush    flush.rs    snapshot -> HFile in .tmp -> store/commit
//! compact  compact/    select -> rewrite -> store/commit
//! open     open.rs     repair -> files -> replay (replay.rs) -> flush
//! bulk     bulk_load.rs  check -> flush -> staged -> one rename -> stores -> marker in the log
//! mob      mob/         large values in files of their own, references to them in store files
//! split    split.rs    files of a closed region -> references of its daughters; merge likewise
//! ```
//!
//! What must always hold:
//! - What is published is in the memstore or in a file of the current view, and as durable as was asked.
//! - A reader's view never changes under it; it sees no cell above its read point. A scanner between two calls may let go of
//!   its view and take a newer one: what its read point sees is kept for it (`read_points.rs`).
//! - The set of a store's files changes in `store/commit.rs` and nowhere else; their renames are in `place.rs` (of bulk
//!   loads in `loads.rs`), which also
//!   keeps a server from committing to a region that another server has opened.
//! - A region starts no thread and never schedules itself.
//!
//! When you change what a flush or compaction drops, also look at the oracle in `testkit`.

mod activity;
mod answers;
mod api;
mod batch_times;
mod bulk_load;
mod close_marker;
mod compact;
mod copy;
mod edits;
mod edits_dir;
mod flush;
mod flush_lock;
mod flush_policy;
mod in_memory;
mod keeping;
mod key_samples;
mod loads;
mod mob;
mod modify;
mod mvcc;
mod new_family;
mod new_files;
mod open;
mod place;
mod read;
mod read_first;
mod read_points;
mod region;
mod replay;
mod replayed_nonces;
mod replica;
mod row_lock;
mod scan;
mod settings;
mod snapshot;
mod split;
mod storage_policy;
mod store;
mod store_hooks;
mod write;

pub use api::{
    BlockReads, ClusterIds, Condition, ConditionTest, Mutation, MutationKind, MutationResult, NextState,
    Nonce, ReadMode, Scan, ScanCounts, ScanLimits, TimeRange,
};
pub use bulk_load::{
    BULK_LOAD_FILES_MAX, BulkLoad, BulkLoadFile, BulkLoadOutcome, LoadNote, cannot_be_loaded,
};
pub use compact::{
    CompactionControl, CompactionOutcome, CompactionPolicy, CompactionRequest, CompactionSettings,
    DateTieredSettings, MajorRows, OffPeakHours, StripeSettings,
};
pub use edits::CellsWritten;
pub use flush::FlushOutcome;
pub use halcyon_schema::Durability;
pub use key_samples::{KeySample, ROW_BYTES_MAX};
pub use mob::{
    MobCacheStats, MobCompactionType, MobCounts, MobFileCache, MobScan, MobSettings, mob_references_of_file,
};
pub use modify::CheckOutcome;
pub use mvcc::WriteTicket;
pub use region::{Region, RegionServices, RegionStats, WalRoot};
pub use replayed_nonces::ReplayedNonce;
pub use scan::row_size::{ROOM_STEP_BYTES, with_room};
pub use scan::{RegionScanner, ReleasedView};
pub use settings::RegionSettings;
pub use storage_policy::{NO_STORAGE_POLICY, set_storage_policy};
pub use store::{MemStoreSize, Reference, is_store_file_name, seq_in_name};
pub use store_hooks::{RewriteHooks, RewriteKind, ScanOptions, Sink, Source, StoreHooks};
pub use write::BatchOutcome;
