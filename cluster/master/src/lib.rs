//! The master: which tables there are, where their regions stand, and every administrative action on them.
//!
//! ```text
//! call ─> service/*.rs ──(reads)──> state.rs                      answered from memory, on the network thread
//!                      └─(actions)─> procedure/engine.rs ─> procedure/create_table.rs, ...
//!                                       │  record under MasterData/procedures, then step by step
//!                                       ├─> meta.rs        rows of hbase:meta, through `SystemTables`; meta_batches.rs writes several at once
//!                                       ├─> descriptors.rs .tabledesc files
//!                                       ├─> regions.rs     open, close (closing.rs); through `RegionServerApi`
//!                                       │    reopen.rs     the regions of a table that is altered, one by one
//!                                       │    placement.rs  which server has a region, and which one gets it
//!                                       │    meta_region.rs  the same for `hbase:meta`
//!                                       ├─> wal_split.rs   what a dead server has left
//!                                       ├─> janitor.rs     parents of splits and merges, when they are not needed
//!                                       ├─> hbck.rs        where meta, memory, server and directories disagree
//!                                       └─> archive.rs, snapshot.rs   store files; cleaner.rs deletes old ones
//! pages  ─> timeline.rs      when what of each recovery happened
//!           in_transition.rs, spread.rs, balancer_runs.rs   what else people look at
//! chores ─> left_over.rs   which regions are on their way without a procedure
//!           balancer.rs, balancing.rs   which regions should move
//!           normalizer/      which regions should be split or merged
//!           groups/          which servers a table may be on; region server groups
//! start, stop ─> gathering.rs     which servers a cluster waits for when it starts
//!                  scratch.rs        directories of one master alone, for changes that must not come late
//!                  master_store.rs   what HBase's master would have to know to take the directory over;
//!                  links.rs          files that tables of HBase's share become their own
//! ```
//!
//! An action is a *procedure*: it takes its locks, checks the request (what is wrong then goes straight back to
//! the caller), is written to disk, and runs steps that may each run twice. A master that starts finds the
//! unfinished ones and goes on. What clients may see is in `hbase:meta` first and in memory second, so memory
//! never promises what a restart would not find.
//!
//! Region servers, files of regions and rows of system tables are reached through the traits of `halcyon-contract`. Nothing here is asynchronous: procedures run on
//! threads of their own, and calls that wait for them are answered through a channel.
//!
//! When you add an action: a file under `procedure/` with its record, a line in `procedure::decode`, a method
//! under `service/`, and a case in `tests/crash.rs`. When you change a file, also touch `FORMAT.md`.

mod archive;
mod backup;
mod balancer;
mod balancer_runs;
mod balancing;
mod bootstrap;
mod chore;
mod cleaner;
mod closing;
mod descriptors;
mod erasure_coding;
mod errors;
mod gathering;
mod groups;
mod hbck;
mod in_transition;
mod janitor;
mod left_over;
mod links;
mod master;
mod master_store;
mod members;
mod meta;
mod meta_batches;
mod meta_region;
mod mob;
mod moves;
mod names;
mod namespaces;
mod normalizer;
mod overlaps;
mod parallel;
mod peers;
mod placement;
mod procedure;
mod quotas;
mod recovery;
mod regions;
mod registry;
mod reopen;
mod scratch;
mod service;
mod settings;
mod snapshot;
mod splitters;
mod spread;
mod state;
mod switches;
mod targets;
mod timeline;
mod trackers;
mod wal_split;

pub use balancer_runs::BalancerRun;
pub use bootstrap::{cluster_id, has_served, keep_hbck1_out, root_dir as prepare_root_dir};
pub use descriptors::read_all as table_descriptors;
pub use groups::{GroupMapping, GroupSettings};
pub use in_transition::{RegionInTransition, STUCK_MS};
pub use master::{Master, ProcedureSummary};
pub use mob::cleaner::MobChoreSettings;
pub use normalizer::NormalizerSettings;
pub use procedure::{ProcedureTimes, highest_epoch};
pub use quotas::{QuotaNumbers, SpaceUse};
pub use scratch::make_scratch_dir;
pub use service::{HbckService, LockService, MasterAdminService, MasterService};
pub use settings::{CoprocessorCheck, MasterSettings, QuotaSettings, StopRequest};
pub use spread::{Spread, TableSpread};
pub use timeline::{Noticed, RECOVERIES_MAX, Recovery, RecoveryKind, Timelines};
