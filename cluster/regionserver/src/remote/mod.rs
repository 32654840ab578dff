//! A master in another process: its orders, and what it is told.
//!
//! ```text
//! master ──ExecuteProcedures──> orders.rs ──queue──> transits.rs    open and close regions
//!                                                    descriptors.rs what many openings share
//!                                                    refused.rs     tables that stay on HBase's servers
//!                                                    callables.rs   remote procedures: flush, split a WAL
//!                                                    snapshots.rs   those of snapshots
//!                                                    telling.rs     how orders end, told again until it is taken
//! master ──znodes──> halcyon-zookeeper ──────────────> barriers.rs   snapshots and flushes for clients before 2.6
//! hbase:quota ──halcyon-client──> quotas.rs                           limits; sizes of regions for the master
//! backup:system <──halcyon-client── books.rs                           bulk loads, WALs that a backup is to have
//! master <──RegionServerStatusService── link.rs      startup, reports, transitions, ends of procedures
//! ```
//!
//! The master of HBase 2.6.4 gives its orders in `AdminService.ExecuteProcedures`. The server answers at once and works
//! on threads of its own, of which those for `hbase:meta` and for the splitting of WALs do nothing else. It tells the end of each order by `ReportRegionStateTransition` or `ReportProcedureDone`, and
//! goes on until the master has taken it. A region serves only after the master has recorded that it is open here.
//!
//! A master that got no answer sends its order again, so numbers of procedures are remembered for a while.
//!
//! Checked against `RSRpcServices.executeProcedures`, `AssignRegionHandler`, `UnassignRegionHandler` and
//! `HRegionServer.reportRegionStateTransition` of HBase 2.6.4.

mod barriers;
mod books;
mod callables;
mod descriptors;
mod executor;
mod link;
mod orders;
mod quotas;
mod refused;
mod reports;
mod snapshots;
mod telling;
mod transits;

pub use barriers::BarrierWork;
pub use books::ClusterBooks;
pub use link::{CallMaster, FindMaster, MasterLink, Version};
pub use quotas::RemoteQuotas;
pub use reports::RemoteMaster;

pub(crate) use orders::Orders;
