//! A client of HBase's RPC: connections, and a cluster built upon them.
//!
//! - `connection.rs`: [`Connection`], one service of one server with many concurrent calls. Each call is appended to
//!   one output buffer. A writer task sends the buffer, and a reader task passes each response to its call
//! - `registry.rs`, `zookeeper.rs`: the two ways to find a cluster
//! - `cluster.rs`: [`Cluster`], servers with several connections each; `retry.rs` says what an exception asks for
//! - `locations.rs`: which server has which region, read from `hbase:meta` and remembered
//! - `table.rs`, `batch.rs`, `scan.rs`: rows; `admin.rs`: tables
//!
//! A rejected call is retried with HBase's pauses, at the region's current server, until the operation's timeout. The
//! client works with HBase 2.4 to 3.0 and with Halcyon.
//!
//! When you change what a request looks like, also look at `halcyon-rpc`, which reads it.

mod admin;
mod batch;
mod cluster;
mod connection;
mod error;
mod locations;
mod registry;
mod retry;
mod scan;
mod table;
mod zookeeper;

pub use admin::Admin;
pub use batch::Action;
pub use cluster::{Cluster, ClusterAddress, ClusterOptions};
pub use connection::{Answer, ConnectOptions, Connection};
pub use error::{ClientError, RemoteException};
pub use registry::{Registry, cluster_id};
pub use retry::{Advice, advice};
pub use scan::ScanRun;
pub use table::{Mutated, Mutation, Table};
