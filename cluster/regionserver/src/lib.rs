//! The region server role: HBase's `ClientService` and `AdminService` on top of regions.
//!
//! ```text
//! service/         what clients and the master call, one file per RPC    convert/   messages to requests, cells to answers
//! regionserver.rs  start, open, close, stop                              errors.rs  error kinds to HBase's exceptions
//! background/      flushes, compactions, splits, WAL threads, chores     lifecycle.rs  serving, stopping, aborted
//! memory/          the budget, and who is held back
//! wal/             WALs, and those of dead servers
//! calls/           what calls share: scanners, nonces, disk pool
//! replication/     edits of other clusters                            quotas/    limits of users, tables, namespaces
//! regions/         the open regions, and files of regions that are not open
//! metrics/         counters and reported load                            settings/  all settings
//! coprocessors/    the JVM that runs Java classes for regions
//! ```
//!
//! Imports point down this list: `service` uses `regionserver`, which puts the parts of `background` together; those use
//! `memory`, `wal`, `calls`, `regions` and `metrics`. No part below `regionserver.rs` knows the server. `settings` knows
//! the settings that a part declares beside its code.
//!
//! The crate knows both floors below it, `storage` and `wire`, which do not know each other. It does not know the
//! master: the messages between the two are in `halcyon-contract`.
//!
//! When you add an RPC, also touch `service/mod.rs` or `service/admin/mod.rs`, and the table in `service/class.rs`. When
//! you add a background thread, write a `Worker` and start it in `background/mod.rs`. When a part of the server holds
//! memory, also touch `memory/accountant.rs`. When you add a setting, add a line to its table;
//! `docs/CONFIGURATION.md` is written anew by a test of `programs/halcyon`.

mod background;
mod backup;
mod calls;
mod convert;
mod coprocessors;
pub mod errors;
mod lifecycle;
mod memory;
mod metrics;
mod quotas;
mod regions;
mod regionserver;
mod remote;
mod replication;
mod service;
mod settings;
mod wal;

pub use background::split_policy::SplitSettings;
pub use background::throughput::ThroughputSettings;
pub use calls::nonces::NonceStats;
pub use calls::slow_calls::SlowCall;
pub use calls::time_parts::TimeParts;
pub use coprocessors::{JvmSurroundings, decode_coprocessor_frame};
pub use halcyon_cache::READ_KINDS;
pub use halcyon_region::WalRoot;
pub use memory::account::MemoryAccount;
pub use memory::budget::{MemoryPart, MemoryPlan};
pub use metrics::counters::{Counter, Counters};
pub use metrics::load::ServerStats;
pub use metrics::op_times::{Op, TableTimes};
pub use quotas::QuotaSettings;
pub use regions::region_table::{OnlineRegion, RegionTable};
pub use regionserver::RegionServer;
pub use remote::{
    BarrierWork, CallMaster, ClusterBooks, FindMaster, MasterLink, RemoteMaster, RemoteQuotas, Version,
};
pub use replication::{
    BarriersFuture, OpenSourceFiles, ReadBarriers, SinkStats, SourceStats, cluster_id_of,
    has_replication_queue,
};
pub use service::{AdminService, ClientService};
pub use settings::cache::{Engine, FileTierSettings};
pub use settings::coprocessors::{BACKUP_OBSERVER, WHITELIST_OBSERVER};
pub use settings::server::RegionServerSettings;
pub use settings::warn::WarnSettings;
pub use wal::recover::Predecessors;
