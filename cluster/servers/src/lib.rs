//! The region servers of a cluster, as the active master sees them over the network: Halcyon's and HBase's.
//!
//! ```text
//! caller ── open_region ──> RemoteServer ── Order ──> Sender ── ExecuteProcedures ──> region server
//!    ^                        Waiters <── OPENED ── StatusService <── ReportRegionStateTransition ──┘
//!    └── announce, in the thread of the caller; then the report is answered, and the region serves
//! ```
//!
//! - `servers.rs`: [`Servers`], the table of servers; `admission.rs`: who may start and report; `dead.rs`: who may not
//! - `remote_server.rs`: one server, as the master's steps call it; `waiters.rs`: callers that wait for reports
//! - `orders.rs`, `sender.rs`: orders as messages, and how they are sent; `links.rs`: connections;
//!   `network.rs`: what a simulation has in their place
//! - `status_service.rs`, `transitions.rs`: [`StatusService`], what servers report; `flushed.rs`: flushed sequence ids
//! - `peers.rs`: [`ClusterSources`], replication peers, to which all servers send; `claims.rs`: who sends what a dead server has left
//! - `permitted_fs.rs`: [`PermittedFs`], the files of a master while it may act
//! - `sights.rs`: what reports sum up to, for people
//! - `sentinel.rs`: the end of a process, noticed at once
//! - `published.rs`, `multicast.rs`: clients are told of dead servers
//! - `tables.rs`, `mutations.rs`, `scan.rs`: [`RemoteTables`], rows of system tables
//!
//! # Invariants
//!
//! - A server that was declared dead is never online again under that name, and its reports are refused.
//! - A report that a region is open is answered after the announcement, never before. The region serves after the answer.
//! - A close ends by the report of its own number, or when the server says that it does not have the region.
//! - A report that a region is open is refused while a close of it waits: its server closes nothing before the report has an answer.
//! - No caller waits for ever for a server that lives.
//! - Reports come from other processes: texts, counts and numbers in them have limits, and no report blocks a thread of the
//!   runtime.
//!
//! Checked against `ServerManager`, `MasterRpcServices` and `RSProcedureDispatcher` of HBase 2.6.4.
//!
//! When you change a message, also touch the other side, `cluster/regionserver/src/remote`.

mod admission;
mod channel;
mod claims;
mod dead;
mod errors;
mod flushed;
mod links;
mod multicast;
mod mutations;
mod network;
mod orders;
mod peers;
mod permitted_fs;
mod published;
mod remote_server;
mod scan;
mod sender;
mod sentinel;
mod servers;
mod settings;
mod sights;
mod status_service;
mod tables;
mod transitions;
mod waiters;

pub use flushed::FlushedIds;
pub use multicast::{MULTICAST_PUBLISHER, MulticastSender, StatusSettings};
pub use network::{Network, Target};
pub use peers::ClusterSources;
pub use permitted_fs::{LEASE_IS_OVER, PermittedFs};
pub use published::{PUBLISHED_MAX, PublishedDead, status_message};
pub use sentinel::process_ended;
pub use servers::Servers;
pub use settings::{Permit, ServersSettings};
pub use sights::{ReportSums, Sight};
pub use status_service::StatusService;
pub use tables::RemoteTables;
