//! What a service sees: calls in, outcomes back.

use std::any::Any;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;

use crate::{
    CallClass, CallHead, CallParts, CellBlock, Notable, NotedCall, Reservation, RpcError, Terms,
    decoded_bytes,
};

/// What the connection header said, shared by every call of the connection.
#[derive(Debug)]
pub struct Connection {
    /// Process-unique number of the connection.
    pub id: u64,
    /// Client address as `host:port`.
    pub peer: String,
    /// Where the client is, as limits count it ([`crate::peer_of`]); `None`: in this process.
    pub address: Option<IpAddr>,
    /// Effective user, if one was named.
    pub user: Option<String>,
    /// Major and minor client version; `None` from asynchbase and gohbase, which never say.
    pub client_version: Option<(u32, u32)>,
    /// The client is the master of Halcyon with this epoch ([`crate::MASTER_EPOCH`]).
    pub master_epoch: Option<u64>,
    /// `None`: every cell goes inline into the protobuf message.
    pub codec: Option<Codec>,
    /// What the client says of the connection (HBase: `ConnectionFactory.createConnection` with attributes).
    pub attributes: Vec<pb::NameBytesPair>,
    /// What changes while it is open.
    pub state: ConnectionState,
}

/// How a connection is doing, for those who do its calls.
#[derive(Debug, Default)]
pub struct ConnectionState {
    /// Nobody is there to take answers any more.
    pub gone: AtomicBool,
    /// Bytes of answers that the client did not take yet, as of the last turn.
    pub(crate) waiting_bytes: AtomicUsize,
    /// Bytes that answers may have that are being made.
    pub(crate) reserved_bytes: AtomicUsize,
    /// What a service keeps for the connection. The first to put something there has the place.
    pub kept: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// How cells lie in a cell block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    KeyValue,
    KeyValueWithTags,
    Cell,
    CellWithTags,
    Message,
}

impl Connection {
    /// Of a client that has said nothing of itself.
    pub fn new(id: u64, peer: impl Into<String>) -> Connection {
        Connection {
            id,
            peer: peer.into(),
            address: None,
            user: None,
            client_version: None,
            master_epoch: None,
            codec: None,
            attributes: Vec::new(),
            state: ConnectionState::default(),
        }
    }

    /// Whether somebody may still take answers.
    pub fn is_open(&self) -> bool {
        !self.state.gone.load(Ordering::Relaxed)
    }

    /// Whether the client said it has at least this version.
    pub fn client_at_least(&self, major: u32, minor: u32) -> bool {
        self.client_version.is_some_and(|version| version >= (major, minor))
    }

    /// Whether Get answers may use the cell block: a codec was named and the client is 1.3 or newer.
    pub fn get_uses_cell_block(&self) -> bool {
        self.codec.is_some() && self.client_at_least(1, 3)
    }
}

/// One request, its frame decoded down to the parameter message.
pub struct Call {
    /// The client's number for it; answers carry it back.
    pub id: u32,
    /// Method name as sent (`Get`, `getProcedureResult`).
    pub method: String,
    /// Encoded parameter message.
    pub param: Bytes,
    /// Cells of the request's cell block, decoded and checked, in order; empty if there was none.
    pub cells: Vec<Cell>,
    pub priority: u32,
    /// As [`Service::class`] said.
    pub class: CallClass,
    /// How long the client waits; `None` for ever.
    pub timeout: Option<Duration>,
    /// The service is asked for the parts of its time when it has ended ([`Service::noted`]).
    pub is_traced: bool,
    /// `Clock::monotonic_ns` when the frame was complete.
    pub received_ns: u64,
    /// What the client says of this request (HBase: `Table.getRequestAttributes`).
    pub attributes: Vec<pb::NameBytesPair>,
    pub connection: Arc<Connection>,
}

impl Call {
    /// What to ask before the call is carried out later.
    pub fn terms(&self) -> Terms {
        Terms {
            class: self.class,
            deadline_ns: self.deadline_ns(),
            connection: Arc::clone(&self.connection),
            call_id: self.id,
            is_traced: self.is_traced,
            attributes: self.attributes.clone(),
        }
    }

    /// As [`Call::terms`], of a call of which nothing else is needed any more.
    pub fn into_terms(self) -> Terms {
        Terms {
            class: self.class,
            deadline_ns: self.deadline_ns(),
            call_id: self.id,
            is_traced: self.is_traced,
            attributes: self.attributes,
            connection: self.connection,
        }
    }

    fn deadline_ns(&self) -> u64 {
        let timeout_ns = self.timeout.map_or(u64::MAX, |timeout| timeout.as_nanos() as u64);
        self.received_ns.saturating_add(timeout_ns)
    }
}

/// A successful answer.
pub struct Reply {
    /// Encoded response message.
    pub message: Bytes,
    /// Cells that go behind the message; `None` or empty: no cell block.
    pub cells: Option<CellBlock>,
    /// Room that was kept for the answer; goes with it.
    pub reservation: Option<Reservation>,
    /// What the service wants to know of the call when it is answered ([`Service::answered`]).
    pub tags: Tags,
}

/// Numbers that mean something to the service only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    #[default]
    None,
    One(u64),
    Many(Box<[u64]>),
}

impl Tags {
    pub fn as_slice(&self) -> &[u64] {
        match self {
            Tags::None => &[],
            Tags::One(tag) => std::slice::from_ref(tag),
            Tags::Many(tags) => tags,
        }
    }
}

impl Reply {
    /// A message without a cell block.
    pub fn message(message: &impl prost::Message) -> Reply {
        Reply::encoded(Bytes::from(message.encode_to_vec()))
    }

    /// A message that is encoded already.
    pub fn encoded(message: Bytes) -> Reply {
        Reply { message, cells: None, reservation: None, tags: Tags::None }
    }
}

pub type ReplyFuture = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

/// What a service made of a call.
pub enum Outcome {
    /// Answered on the thread that received it.
    Ready(Result<Reply, RpcError>),
    /// To be awaited; the connection goes on serving others meanwhile. The future is driven to its end even
    /// if the client goes away.
    Later(ReplyFuture),
}

/// Calls of one class and with the same tags that arrived together and are answered.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredCalls<'a> {
    pub connection: &'a Connection,
    pub class: CallClass,
    pub count: u64,
    pub failed_count: u64,
    pub took_ns: u64,
    /// Of each of them; none of those that failed.
    pub tags: &'a Tags,
}

/// One protobuf service. Called on network threads: must not block.
pub trait Service: Send + Sync {
    /// Which class of calls this one belongs to. Asked before anything is decoded, perhaps of a frame that is
    /// still arriving, so it has to be quick and to cope with any bytes. [`CallClass::Meta`] unless told
    /// otherwise: administration is rare and goes before the rest.
    fn class(&self, _head: &CallHead<'_>) -> CallClass {
        CallClass::Meta
    }

    /// Whether calls of this method may have a cell block; the cells of others are not even unpacked. None may unless told
    /// otherwise.
    fn takes_cells(&self, _method: &str) -> bool {
        false
    }

    /// What the message of a call becomes when it is decoded, in bytes. Asked of long messages, and of shorter ones when much
    /// waits; room for so much is kept before the call is handed out. What is more than `max` is not counted to its end. Quick,
    /// as [`Service::class`].
    fn decoded_bytes(&self, head: &CallHead<'_>, max: usize) -> usize {
        decoded_bytes(head, max)
    }

    fn call(&self, call: Call) -> Outcome;

    /// Called after a run of calls that arrived together on one connection were handed out, before their
    /// answers are sent: the place to drive group commit.
    fn batch_done(&self) {}

    /// Called when answers were given to the socket: `calls` that arrived together on one connection, how long they took
    /// from then on, and how many of them ended in an exception.
    fn answered(&self, _calls: &AnsweredCalls<'_>) {}

    /// From which limits on the service is told of single calls. Asked once for the calls of a turn.
    fn notable(&self) -> Notable {
        Notable::NONE
    }

    /// Called for each call over a limit of [`Service::notable`], and for each traced call, when the socket has taken its
    /// answer. Of a traced call it returns what else is known of it.
    fn noted(&self, _call: &NotedCall<'_>) -> CallParts {
        CallParts::default()
    }

    /// Called when a connection ends.
    fn connection_closed(&self, _connection: &Connection) {}
}
