//! The region server role: HBase's `ClientService` and `AdminService` on top of regions.
//!
//! The tour is in `regionserver.rs`; what each call does stands in `service/`, one file per RPC. The crate knows
//! both floors below it, which are strangers to each other: `convert/` turns messages of the wire into requests
//! of a region and cells into answers, `errors.rs` turns error kinds into HBase's exceptions.
//!
//! When you add an RPC, also touch `service/mod.rs` or `service/admin/mod.rs` and the table in
//! `service/tests.rs`; when you add a setting, `RegionServerSettings::set` and its `Display`.

mod blocks;
mod cache_settings;
mod compactor;
mod convert;
mod counters;
mod door;
pub mod errors;
mod flusher;
mod held;
mod load;
mod logs;
mod memory;
mod nonces;
mod pool;
mod pressure;
mod recover;
mod region_table;
mod regionserver;
mod scanners;
mod servable;
mod service;
mod settings;
mod split_policy;
mod splitter;
mod throughput;
mod tuner;

pub use cache_settings::{Engine, FileTierSettings};
pub use counters::{Counter, Counters};
pub use load::ServerStats;
pub use memory::{MemoryPart, MemoryPlan};
pub use region_table::{OnlineRegion, RegionTable};
pub use regionserver::RegionServer;
pub use service::{AdminService, ClientService};
pub use settings::RegionServerSettings;
pub use split_policy::SplitSettings;
pub use throughput::ThroughputSettings;
