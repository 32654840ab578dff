//! The engine benchmark: the storage engine compared with RocksDB, and cell by cell. Nothing here fails because it is slow.
//!
//! ```text
//! bin/engine.rs   compare: starts one process per engine, repetition and kind of load, in turns; prints medians
//!                 run:     one such process for our own engine; rocksdb/ is the same for RocksDB
//! plan.rs         what is asked of an engine, as options of both commands
//! phases.rs       the loads: fills, reads, scans, mixed
//! server.rs       a standalone server and tables on it, for bin/server.rs
//! measure.rs      latencies, processor time, bytes written, memory
//! ```
//!
//! Each engine runs in its own process with its own allocator, so that peak memory and bytes written can be attributed.
//! RocksDB is in a crate outside the workspace (`rocksdb/`), which only `make bench-engine` builds.
//!
//! When you add a load, also add its line to README.md.

#![allow(clippy::disallowed_methods)] // a tool for people: real files, real time, real threads

pub mod compare;
pub mod engine;
#[cfg(feature = "halcyon")]
pub mod halcyon;
pub mod keys;
pub mod machine;
pub mod measure;
mod phases;
pub mod plan;
#[cfg(feature = "halcyon")]
pub mod server;

pub use engine::{Engine, Failure, Opening, Row};
pub use phases::run;
