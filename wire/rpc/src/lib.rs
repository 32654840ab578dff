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
//! One task per connection owns its socket (`connection.rs`). A turn of it (`calls.rs`) reads what is there
//! (`input.rs`), cuts whole frames out of the read buffer without copying ([`bytes::Bytes`] slices of it become
//! the parameter and the cells), hands each call to the service, calls [`Service::batch_done`], polls what was
//! not ready at once, and writes all answers with one vectored write (`output.rs`). Calls that wait
//! ([`Outcome::Later`]) stay with the connection's task and cost no task of their own; they are driven to their
//! end even if the client goes.
//!
//! With [`EventLoops`], another task opens the connection first. The connection moves to an event loop when it has named
//! its service (`event_loops.rs`). The time of a call, from its bytes being read to its answer being given to the
//! socket, is counted by class (`times.rs`).
//!
//! Every call belongs to a class with limits of its own (`queues.rs`). A call whose client has given up or gone
//! before its turn came is dropped without a word, and counted.
//!
//! What must hold: an answer is sent at most once per call and only for calls that were received; every length is
//! checked against the frame before it is believed; every queue has a limit in [`RpcSettings`].
//! Checked against HBase 2.6.4 (`NettyRpcServer`, `ServerRpcConnection`, `CellBlockBuilder`).
//!
//! When you change the form of an answer, also look at `wire/client` and at the golden frames in `tests/`.

mod calls;
mod cell_block;
mod codec;
mod compress;
mod connection;
mod error;
mod event_loops;
pub mod exceptions;
mod frame;
mod input;
mod output;
mod preamble;
mod queues;
mod server;
mod service;
mod shared;
mod stats;
mod times;

pub use cell_block::{CellBlock, SHARED_CELL_BYTES_MIN};
pub use codec::{decode_cells, encode_cell};
pub use compress::Compressor;
pub use error::RpcError;
pub use event_loops::EventLoops;
pub use exceptions::ExceptionClass;
pub use queues::{
    CallClass, CallHead, ClassSnapshot, Dropped, NoRoom, QueueLimits, Queues, Reservation, Terms,
};
pub use server::{BoundServer, RpcServer};
pub use service::{
    AnsweredCalls, Call, Codec, Connection, ConnectionState, Outcome, Reply, ReplyFuture, Service,
};
pub use shared::{RpcSettings, Services};
pub use stats::{RpcStats, RpcStatsSnapshot};
pub use times::CallTimesSnapshot;
