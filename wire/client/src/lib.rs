//! A client for HBase 2.4 to 3.0 and for Halcyon: asynchronous, typed, without a JVM.
//!
//! ```no_run
//! use halcyon_client::{
//!     Cluster, ClusterAddress, ClusterOptions, FamilyDescriptor, Filter, Get, Increment, Put, Scan, TableDescriptor,
//!     TableName,
//! };
//!
//! # async fn example() -> Result<(), halcyon_client::ClientError> {
//! let address = ClusterAddress::zookeeper(["127.0.0.1:2181"]);
//! let cluster = Cluster::connect(address, ClusterOptions::default()).await?;
//!
//! let name = TableName::parse(b"visits")?;
//! let admin = cluster.admin().await?;
//! let descriptor = TableDescriptor::new(name.clone()).with_family(FamilyDescriptor::new("f")?.with("VERSIONS", "3"));
//! admin.create_table(&descriptor, Vec::new()).await?;
//!
//! let table = cluster.table(name, 0);
//! table.put(Put::new("page-1").column("f", "title", "Home")).await?;
//! table.increment(Increment::new("page-1").column("f", "visits", 1)).await?;
//!
//! let row = table.get(Get::new("page-1").family("f")).await?;
//! assert_eq!(row.value("f", "title"), Some(&b"Home"[..]));
//! assert_eq!(row.counter("f", "visits"), Some(1));
//!
//! let scan = Scan::prefix("page-").filter(Filter::parse("SingleColumnValueFilter('f', 'title', =, 'substring:ome')")?);
//! let mut rows = table.scan(scan).into_stream();
//! while let Some(row) = rows.next().await {
//!     println!("{}", row?.key().escape_ascii());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `examples/quickstart.rs` is the same as a program; `examples/tour.rs` uses the rest of the interface.
//!
//! # What to know
//!
//! - A [`Cluster`] has the connections and the cache of region locations. A [`Table`] is a cheap handle.
//! - Every operation has a deadline ([`ClusterOptions::operation_timeout`]), and so have each call and each connect. An
//!   operation that runs late fails with an error for which [`ClientError::is_timeout`] is true.
//! - Errors are sorted by their Java class ([`advice`]). Children of `DoNotRetryIOException` go to the caller at once.
//!   After others the client pauses as HBase's does ([`RetryPolicy`]), looks up the region again if it may have moved, and
//!   tries again. Increments and appends carry a nonce: a retry does not apply them twice.
//! - A scan that loses its scanner continues behind the last cell that the caller has.
//! - [`Connection`] is the layer below: any method of any HBase service, with protobuf messages.
//! - With [`ClusterOptions::status`] the client listens to masters that publish deaths of servers. Calls that wait for a server
//!   that is frozen or lost then end soon and are tried again elsewhere.
//!
//! There is no authentication (Kerberos, TLS), and reads always go to the primary region replica.
//!
//! # Modules
//!
//! - `connection.rs`: one service of one server with many concurrent calls. Each call is appended to one output buffer. A
//!   writer task sends the buffer, and a reader task passes each response to its call
//! - `registry.rs`, `zookeeper.rs`: the two ways to find a cluster
//! - `cluster.rs`: servers with several connections each; `retry.rs`, `exceptions.rs`: what an error asks for
//! - `status.rs`: deaths of servers that masters publish
//! - `locations.rs`: which server has which region, read from `hbase:meta` and remembered
//! - `request/`, `filter/`: what callers ask for; `table.rs`, `batch.rs`, `scanner.rs`, `stream.rs`, `buffered.rs`: rows
//! - `admin/`: namespaces, tables, regions, snapshots, switches, status, peers, procedures, repairs (`HbckService`)
//!
//! When you change what a request looks like, also look at `halcyon-rpc`, which reads it.

#![deny(missing_docs)]

mod admin;
mod batch;
mod buffered;
mod cluster;
mod connection;
mod error;
mod exceptions;
mod filter;
mod locations;
mod registry;
mod request;
mod retry;
mod row;
mod scanner;
mod status;
mod stream;
mod table;
mod zookeeper;

pub use admin::{
    Admin, AlterStatus, BalancerDecision, BalancerRejection, CacheEvictions, CallLog, CallLogFilter,
    ClientMetrics, ClusterMetrics, CompactionState, GroupBalance, Lock, LockKind, LoggedCall, Peer,
    Procedure, Quota, QuotaFilter, QuotaSubject, RegionInTransition, RegionMetrics, ReplicationSource,
    ServerGroup, ServerMetrics, Snapshot, SnapshotType, SpaceUse, Switch, TableState, Task, Throttle,
    UserMetrics,
};
pub use batch::Action;
pub use buffered::{BufferError, BufferedMutator};
pub use cluster::{Cluster, ClusterAddress, ClusterOptions};
pub use connection::{Answer, ConnectOptions, Connection};
pub use error::{ClientError, RemoteException};
pub use filter::{BitOp, Comparator, CompareOp, Filter, RowRange, SingleColumnValue};
pub use locations::RegionLocation;
pub use registry::{Registry, Sighting, active_master, cluster_id};
pub use request::{
    Append, CheckAndMutate, CheckAndMutateBuilder, Delete, Get, Increment, Mutation, Put, ReadType,
    RowMutations, Scan,
};
pub use retry::{Advice, RetryPolicy, advice, pause};
pub use row::Row;
pub use scanner::Scanner;
pub use status::StatusOptions;
pub use stream::RowStream;
pub use table::{ActionResult, Table};

pub use bytes::Bytes;
pub use halcyon_cell::{Cell, CellType};
pub use halcyon_proto::pb::mutation_proto::{Durability as DurabilityLevel, MutationType};
pub use halcyon_proto::pb::{QuotaScope, SpaceViolationPolicy, ThrottleType, TimeUnit};
pub use halcyon_rpc::{Codec, Compressor};
pub use halcyon_schema::{
    FamilyDescriptor, NamespaceDescriptor, RegionInfo, ServerName, TableDescriptor, TableName,
};
