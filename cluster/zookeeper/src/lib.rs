//! A server's place in a cluster that has a real ZooKeeper, such as HBase's.
//!
//! [`ZooKeeperCluster`] is a [`halcyon_coord::Coordinator`]: it begins a session, follows HBase's znodes, and creates the
//! ephemeral znode by which HBase's master knows a region server. The library `zookeeper-client` speaks the protocol. This
//! crate adds what a server needs of it:
//!
//! - **HBase's properties** (`settings.rs`), such as `hbase.zookeeper.quorum`.
//! - **A session that outlives every connection** (`session.rs`). Connections that come and go are not reported. A session has
//!   ended when a server of ZooKeeper's says so, and not before.
//! - **A deadline on every call**, and errors that say what was asked of whom.
//! - **A view of the cluster** (`follow.rs`): the active master, where `hbase:meta` is, the region servers.
//! - **A lease** (`own.rs`, `member.rs`). A server that was frozen learns late that its session has expired, and others serve its
//!   regions already. So a server answers while its lease is valid: for two thirds of the session timeout from the last question
//!   that ZooKeeper has answered, by a clock that counts suspended time. See [`halcyon_coord::Lease`].
//!
//! - **The election of a master** (`election.rs`, `predecessor.rs`) and what only the active master writes (`leadership.rs`). Each write is refused
//!   by ZooKeeper once another master has become active.
//! - **The end of another process's session** (`other.rs`), for the keeper of a server that was killed.
//! - **Procedures of HBase's master** that are coordinated through znodes (`procedures.rs`): snapshots and flushes for clients
//!   before 2.6.
//!
//! A lost session is final for a server under HBase's master: that master recovers the server's logs and assigns its regions, and
//! refuses every later report. The server then has to leave without touching its regions.
//!
//! A master has to leave as well when its lease is lost. What it did before counts; what it does after that is refused.
//!
//! Not supported: Kerberos, digest authentication and TLS to ZooKeeper.
//!
//! The bytes of znodes are in [`halcyon_schema::znode`]. When you change what a session or a lease does, run
//! `make zookeeper-test`.

mod cluster;
mod deposed;
mod draining;
mod election;
mod follow;
mod leadership;
mod member;
mod other;
mod own;
mod predecessor;
mod procedures;
mod session;
mod settings;
mod transaction;
mod znodes;

pub use cluster::ZooKeeperCluster;
pub use election::Candidate;
pub use leadership::Leadership;
pub use other::SessionKey;
pub use settings::ZooKeeperSettings;
pub use zookeeper_client::SessionInfo;
