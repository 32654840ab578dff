//! The write-ahead log: HBase's file format, group commit, archiving, reading and splitting.
//!
//! - `log.rs`: [`Wal`], the log being written: `append` copies into a buffer, `drive` writes and syncs it
//! - `full.rs`: what happens while the disk has no space left
//! - `roll.rs`: new files, closed files, which regions hold them, the archive
//! - `format.rs`: the bytes of header, entry and trailer; drawn in full in `FORMAT.md`
//! - `reader.rs`: [`WalReader`], one file from begin to end, with `source.rs` for its bytes and
//!   `dictionary.rs`, `compressed.rs` for logs that HBase wrote with dictionary compression
//! - `split.rs`: [`split_logs`], a dead server's logs to `recovered.edits` of the regions
//!
//! What always holds: an entry is in a log whole or not at all; entries stand in append order; a completion
//! says `Ok` only when everything appended before it is as durable as it is itself; a file is archived only
//! when all its user edits are in HFiles. The crate starts no threads: callers drive.
//!
//! When you change the bytes of an entry, also touch `FORMAT.md`, the golden files in `testdata/`, and the
//! compatibility check with HBase's own reader.

mod compressed;
mod config;
mod dictionary;
mod format;
mod full;
mod log;
mod reader;
mod region_hash;
mod roll;
mod source;
mod split;
mod stats;

pub use config::{SyncMode, WalConfig};
pub use format::{COMPACTION_QUALIFIER, META_FAMILY, is_marker};
pub use halcyon_schema::Durability;
pub use log::{Completion, Wal, WalEntry};
pub use reader::{CELL_LEN_MAX, ENTRY_LEN_MAX, KEY_LEN_MAX, WalReader};
pub use roll::RollOutcome;
pub use split::{Destination, RECOVERED_EDITS_DIR, SplitReport, split_logs};
pub use stats::WalStats;
