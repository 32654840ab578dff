//! The region server role: HBase's `ClientService` and `AdminService` on top of regions.
//!
//! ```text
//! service/      what clients call, one file per RPC         convert/     messages to requests of a region, cells to answers
//! calls/        what calls share: scanners, nonces, pool    errors.rs    error kinds to HBase's exceptions
//! regions/      the open regions; the master's way to them
//! background/   flushes, compactions, splits, block cache   memory/      the budget and who is held back
//! wal/          logs, and those of dead servers             metrics/     counters and reported load
//! settings/     all settings                                regionserver.rs   start, open, close, stop; the threads
//! ```
//!
//! The crate knows both floors below it, `storage` and `wire`, which do not know each other.
//!
//! When you add an RPC, also touch `service/mod.rs` or `service/admin/mod.rs` and the table in
//! `service/tests.rs`; when you add a setting, `RegionServerSettings::set` and its `Display`.

mod background;
mod calls;
mod convert;
pub mod errors;
mod memory;
mod metrics;
mod regions;
mod regionserver;
mod service;
mod settings;
mod wal;

pub use background::split_policy::SplitSettings;
pub use background::throughput::ThroughputSettings;
pub use calls::nonces::NonceStats;
pub use memory::budget::{MemoryPart, MemoryPlan};
pub use metrics::counters::{Counter, Counters};
pub use metrics::load::ServerStats;
pub use regions::region_table::{OnlineRegion, RegionTable};
pub use regionserver::RegionServer;
pub use service::{AdminService, ClientService};
pub use settings::cache::{Engine, FileTierSettings};
pub use settings::server::RegionServerSettings;
