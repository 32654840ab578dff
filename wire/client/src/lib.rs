//! A client of HBase's RPC: one connection with many calls under way, and the RPC registry.
//!
//! [`Connection`] speaks to one service of one server. Calls from any number of tasks share it: each is
//! appended to one output buffer, a writer task sends what has gathered, a reader task hands each answer to
//! the call it belongs to. There is no retrying, no locating of regions and no pooling here: who needs those
//! builds them on top. Speaks to HBase 2.4 to 3.0 as well as to Halcyon.
//!
//! When you change what a request looks like, also look at `halcyon-rpc`, which reads it.

mod connection;
mod error;
mod registry;

pub use connection::{Answer, ConnectOptions, Connection};
pub use error::{ClientError, RemoteException};
pub use registry::{Registry, cluster_id};
