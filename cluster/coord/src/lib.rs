//! Coordination: how clients and servers find each other.
//!
//! One process needs no coordination, but HBase's clients ask ZooKeeper where the cluster is. [`ZkServer`] answers them
//! in ZooKeeper's protocol from a tree in memory ([`ZnodeTree`]) that the process fills through [`ClusterZnodes`].
//! Reads work as in ZooKeeper 3.8; writes are refused.
//!
//! A request passes through three steps: `server.rs` keeps the connection and cuts frames, `request.rs` takes
//! one apart and asks the tree, `jute.rs` encodes numbers and strings. What must hold: replies come in
//! the order of requests; zxids are positive and never go back, not even across restarts; every length is
//! checked. Checked against ZooKeeper 3.8.4 (`ZooKeeperServer`, `ClientCnxn`) and HBase 2.6.4 (`ZNodePaths`,
//! `RecoverableZooKeeper`).
//!
//! [`ClientMetaService`] tells the same to clients that ask a server instead of ZooKeeper.
//!
//! [`Coordinator`] is what a region server needs of a coordination service: a view of the cluster that follows it, and a
//! [`Membership`] with a [`Lease`]. [`EmbeddedCoordinator`] is the one within a process; the crate `halcyon-zookeeper` has the
//! one over a real ZooKeeper.
//!
//! When you add a znode, add its name and bytes to [`halcyon_schema::znode`], which all sides share. Also look at the table of
//! section 3.1 of the wire contract for who reads it.

mod coordinator;
mod embedded;
mod jute;
mod lease;
mod registry;
mod request;
mod server;
mod tree;
mod words;
mod znodes;

pub use coordinator::{ClusterPublisher, ClusterView, Coordinator, Followed, Membership, Publisher, Seen};
pub use embedded::EmbeddedCoordinator;
pub use lease::{Lease, LeaseState, Loss};
pub use registry::{ClientMetaService, ConnectionRegistry, MemberRegistry};
pub use server::{ZkServer, ZkSettings};
pub use tree::{Stat, ZnodeTree};
pub use znodes::ClusterZnodes;
