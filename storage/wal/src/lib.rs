//! The write-ahead log (WAL): HBase's file format, group commit, archiving, reading and splitting.
//!
//! - `log.rs`: [`Wal`], the WAL being written. `append` copies an entry into a buffer; a round writes and syncs it.
//! - `appends.rs`: that buffer, and which regions have edits in the current file
//! - `drive.rs`: which thread writes rounds and runs completions, and how others wait for it
//! - `full.rs`: what happens while the disk is full
//! - `replace.rs`: a new file instead of one that failed. `hedge.rs`: instead of one that is late
//! - `new_file.rs`: how a file is made
//! - `roll.rs`: the next file, closed files, which regions have unflushed edits in them, the archive
//! - `format.rs`: the bytes of header, entry and trailer; `FORMAT.md` draws them in full
//! - `check.rs`: the check in each entry, and the salt in each file
//! - `cipher.rs`: the cells of encrypted files
//! - `compressing.rs`: files with dictionary compression; `dictionary.rs` has the dictionaries
//! - `reader.rs`: [`WalReader`] reads one file from begin to end. `source.rs` gives it bytes; `compressed.rs` reads keys and
//!   cells of files with dictionary compression. `reader/search.rs` finds the next entry behind damage.
//! - `damage.rs`: what is lost of a damaged log, and how it is set aside
//! - `repeats.rs`: where a log repeats entries of the one before it
//! - `split.rs`: [`split_logs`] turns a dead server's WAL into `recovered.edits` files of its regions;
//!   `split/memory.rs` is what splits share
//!
//! What always holds:
//! - A file contains an entry whole or not at all. Entries are in the order of their appends.
//! - A completion reports `Ok` only when its entry, and every entry appended before it, is as durable as was asked.
//! - Sequence ids of a region rise strictly within a file.
//! - A file is archived only when all its user edits are in HFiles.
//!
//! The crate starts no threads; its callers drive it. `tests/interleavings.rs` runs it under Shuttle
//! (`cargo xtask memory`).
//!
//! When you change the bytes of an entry, also touch `FORMAT.md`, the golden files in `testdata/`, and the
//! compatibility check with HBase's own reader. When you change who drives or wakes whom, run Shuttle.

mod appends;
mod check;
mod cipher;
mod compressed;
mod compressing;
mod config;
mod damage;
mod dictionary;
mod drive;
mod format;
mod full;
mod hedge;
mod log;
mod new_file;
mod reader;
mod region_hash;
mod repeats;
mod replace;
mod roll;
mod source;
mod split;
mod stats;

pub use config::{SyncMode, WalCompression, WalConfig};
pub use damage::{LogDamage, LostPart, OnDamage, RegionPart, examine_log, set_aside};
pub use format::{COMPACTION_QUALIFIER, META_FAMILY, is_marker};
pub use halcyon_schema::Durability;
pub use hedge::{LateSyncs, SyncJob, SyncThreads};
pub use log::{Completion, Wal, WalEntry};
pub use reader::{APPENDED_LEN_MAX, CELL_LEN_MAX, ENTRY_LEN_MAX, KEY_LEN_MAX, WalReader};
pub use repeats::repeated_len;
pub use roll::RollOutcome;
pub use split::{
    Destination, Each, Flushed, FlushedOf, RECOVERED_EDITS_DIR, SplitMemory, SplitReport, TEMPORARY_SUFFIX,
    logs_in, split_log_files, split_logs, split_what_is_needed,
};
pub use stats::WalStats;
