//! A client of HBase's RPC: connections, and a cluster built upon them.
//!
//! - `connection.rs`: [`Connection`], one service of one server with many calls under way. Each call is appended to
//!   one output buffer, a writer task sends what has gathered, a reader task hands each answer to the call it
//!   belongs to
//! - `registry.rs`, `zookeeper.rs`: the two ways to find a cluster
//! - `cluster.rs`: [`Cluster`], servers with several connections each; `retry.rs` says what an exception asks for
//! - `locations.rs`: which server has which region, read from `hbase:meta` and remembered
//! - `table.rs`, `batch.rs`, `scan.rs`: rows; `admin.rs`: tables
//!
//! A call that a server refuses is made again after HBase's pauses, where the region is by then, until the
//! operation's time is over. Speaks to HBase 2.4 to 3.0 as well as to Halcyon.
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
