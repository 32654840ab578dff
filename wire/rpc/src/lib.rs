//! HBase's RPC: frames, calls, cell blocks. Knows nothing of storage; what a call means is a [`Service`]'s
//! business.
//!
//! ```text
//! preamble    "HBas" | version 0 | auth 0x50          (or "Regist", "Securi": one answer)
//! connection  int32 length | ConnectionHeader          one service, one codec, no answer
//! request     int32 length | varint, RequestHeader  | varint, parameter | cell block
//! answer      int32 length | varint, ResponseHeader | varint, message   | cell block
//! ```
//!
//! One task per connection owns its socket (`connection.rs`). One poll of it (`calls.rs`) does the following:
//!
//! 1. It reads what has arrived (`input.rs`), and cuts whole frames out of the read buffer without copying. Slices of the
//!    buffer ([`bytes::Bytes`]) become parameters and cells.
//! 2. It hands each call to the service, and then calls [`Service::batch_done`].
//! 3. It polls calls that were not ready at once.
//! 4. It writes all answers with one vectored write (`output.rs`).
//!
//! Calls that wait ([`Outcome::Later`]) belong to the connection's task and need no task of their own. They are driven to
//! their end even if the client disconnects.
//!
//! With [`EventLoops`], another task opens the connection first. The connection moves to an event loop when it has named
//! its service (`event_loops.rs`). The time of a call, from its bytes being read to its answer being given to the
//! socket, is counted by class (`times.rs`).
//!
//! Every call belongs to a class with limits of its own (`queues.rs`). A queued call whose client timed out or
//! disconnected is dropped without an answer, and counted.
//!
//! Invariants: an answer is sent at most once per call, and only for calls that were received. Every length is checked
//! against the frame before it is used. Every queue has a limit in [`RpcSettings`].
//! Checked against HBase 2.6.4 (`NettyRpcServer`, `ServerRpcConnection`, `CellBlockBuilder`).
//!
//! Imports point one way: `server` to `calls` to `connection`, and all three to `shared`.
//!
//! When you change the form of an answer, also touch `wire/client` and the golden frames in `tests/`.

mod calls;
mod cell_block;
mod codec;
mod compress;
mod connection;
mod decoded;
mod error;
mod event_loops;
pub mod exceptions;
mod fields;
mod frame;
mod input;
mod noted;
mod output;
mod peers;
mod preamble;
mod queues;
mod server;
mod service;
mod shared;
mod stats;
mod times;
mod trace;
mod turns;
mod unpack;

pub use calls::LONG_PARAM_BYTES;
pub use cell_block::{CellBlock, SHARED_CELL_BYTES_MIN};
pub use codec::{decode_cells, encode_cell};
pub use compress::Compressor;
pub use decoded::{decoded_bytes, decoded_bytes_of};
pub use error::RpcError;
pub use event_loops::EventLoops;
pub use exceptions::ExceptionClass;
pub use fields::{Fields, Value};
pub use noted::{Notable, NotedCall};
pub use peers::{PeerPlace, Peers, fair_max, peer_of};
pub use preamble::MASTER_EPOCH;
pub use queues::{
    CallClass, CallHead, ClassSnapshot, Dropped, NoRoom, QueueLimits, Queues, Reservation, Terms,
};
pub use server::{BoundServer, RpcServer};
pub use service::{
    AnsweredCalls, Call, Codec, Connection, ConnectionState, Outcome, Reply, ReplyFuture, Service, Tags,
};
pub use shared::{RpcSettings, Services, UNPACKED_FREE_BYTES};
pub use stats::{RpcStats, RpcStatsSnapshot};
pub use times::{CallTimes, CallTimesSnapshot};
pub use trace::{CallParts, CallTracer, Part};
