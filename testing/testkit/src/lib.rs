//! Shared by the tests of all floors: the oracle, and random scripts that run against it and against an engine.
//!
//! The [`Oracle`] is a plain sorted list of cells per family, with HBase's meaning of reads written for clarity.
//! An [`Engine`] is the code under test: a memstore, a store, a region, a cluster. [`run_script`] drives both
//! with the same [`Script`] and compares every read.
//!
//! ```text
//! Script::random(seed, len) --> steps --> engine.apply / scan / flush / compact / reopen
//!                                    \--> oracle.apply / check / major_compact
//! first difference --> Mismatch: seed, step, expected, found; check_seeds makes the script short first
//! ```
//!
//! # What an engine may choose
//! HBase may drop an invisible cell at any flush or compaction, and keeps it until then. Such a cell can become visible
//! again: newer versions are deleted one by one, or a scan asks for an older time range. The oracle therefore knows
//! which stored cells *may* be gone, and [`Oracle::check`] accepts both answers. It requires all other cells. See
//! `oracle/fate.rs`. What a read has shown to be gone stays so, unless the WAL may bring it back: `oracle/gone.rs`.
//!
//! [`check_file_system`] is another script: what every file system promises, run by the machine's files, the simulated
//! ones and HDFS.
//!
//! [`for_each_seed`] runs a test for each of its seeds; `cargo xtask seeds` chooses how many.
//!
//! When you change the meaning of a read here, also look at `region`'s matcher and its compaction.

mod family;
mod files;
mod oracle;
mod random;
mod run;
mod scan;
mod script;
mod seeds;

pub use family::{FamilyOptions, KeepDeletedCells};
pub use files::{FileAbilities, check_fences, check_file_system};
pub use oracle::Oracle;
pub use random::Random;
pub use run::{Engine, MajorRows, Mismatch, check_seeds, minimize, run_script};
pub use scan::{OracleScan, TimeRange};
pub use script::{Script, Step};
pub use seeds::{for_each_seed, is_part, seeds};
