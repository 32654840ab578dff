//! What clients and the master can call: one file per RPC.
//!
//! An event loop answers a call itself whenever memory is enough for it. Otherwise the region answers `NeedsDisk`, and the
//! call runs again, or resumes, on the [`DiskPool`]. The answer of a write waits for its ticket. The WAL resolves the ticket
//! in [`Service::batch_done`] or on the WAL thread.
//!
//! [`DiskPool`]: crate::calls::pool::DiskPool

mod admin;
mod arriving;
mod bulk_load;
mod class;
mod exec_service;
mod get;
mod hosted;
mod hosted_multi;
mod master;
mod multi;
mod multi_order;
mod multi_reply;
mod multi_separate;
mod multi_together;
mod mutate;
mod scan;
mod scan_run;
mod slow_log;
mod traces;

pub use admin::AdminService;

pub(crate) use scan::hosted_reset as scan_reset;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind};
use halcyon_env::{IsWanted, Lookups, Patience, Tally};
use halcyon_rpc::{
    AnsweredCalls, Call, CallClass, CallHead, CallParts, Connection, Notable, NotedCall, Outcome, Reply,
    Reservation, RpcError, Service, Terms,
};
use prost::Message;

use crate::RegionServer;
use crate::calls::pool::AnswerRoom;
use crate::coprocessors::CallPermit;
use crate::errors;
use crate::regions::region_table::OnlineRegion;

/// `ClientService` on the regions of one server.
pub struct ClientService {
    server: Arc<RegionServer>,
}

impl ClientService {
    pub fn new(server: Arc<RegionServer>) -> ClientService {
        ClientService { server }
    }
}

impl RegionServer {
    /// Carries out a call of a client, on a network thread.
    fn carry_out(self: &Arc<RegionServer>, call: Call) -> Outcome {
        if !call.is_traced {
            return self.dispatch(call);
        }
        let terms = call.terms();
        let ((outcome, waits), lookups) = Lookups::of(|| Tally::of(|| self.dispatch(call)));
        self.slow_calls.note(&terms, |noted| {
            noted.on_thread = waits;
            noted.lookups = lookups;
        });
        outcome
    }

    fn dispatch(self: &Arc<RegionServer>, call: Call) -> Outcome {
        let server = self;
        let started_ns = server.env.clock.monotonic_ns();
        if !matches!(call.method.as_str(), "Get" | "Mutate" | "Multi" | "Scan") {
            server.counters.others.add(1);
        }
        let (name, outcome) = match call.method.as_str() {
            "Get" => ("Get", get::call(server, call)),
            "Mutate" => ("Mutate", mutate::call(server, call)),
            "Multi" => ("Multi", multi::call(server, call)),
            "Scan" => ("Scan", scan::call(server, call)),
            "PrepareBulkLoad" | "BulkLoadHFile" | "CleanupBulkLoad" => {
                ("BulkLoad", bulk_load::call(server, call))
            }
            "ExecService" | "ExecRegionServerService" => ("ExecService", exec_service::call(server, call)),
            method => ("unknown", Outcome::Ready(Err(RpcError::unknown_method(method)))),
        };
        // What was answered here, or brought on its way, kept other connections of this thread waiting.
        let time_ns = server.env.clock.monotonic_ns().saturating_sub(started_ns);
        server.env.stalls.took(&*server.env.clock, "call", || name.to_string(), time_ns);
        outcome
    }
}

impl Service for ClientService {
    fn class(&self, head: &CallHead<'_>) -> CallClass {
        class::class_of(head)
    }

    fn takes_cells(&self, method: &str) -> bool {
        matches!(method, "Mutate" | "Multi")
    }

    fn call(&self, call: Call) -> Outcome {
        let server = &self.server;
        if let Err(error) = server.check_call(&call.connection) {
            return Outcome::Ready(Err(error));
        }
        if call.connection.master_epoch.is_some() { server.begin_of_master(call) } else { server.begin(call) }
    }

    fn answered(&self, calls: &AnsweredCalls<'_>) {
        self.server.note_answered(calls);
    }

    fn notable(&self) -> Notable {
        self.server.online.warn.notable()
    }

    fn noted(&self, call: &NotedCall<'_>) -> CallParts {
        self.server.keep_noted(call)
    }

    fn batch_done(&self) {
        let server = &self.server;
        if server.logs.is_noted() {
            let driven = || server.drive_logs();
            server.env.stalls.watch(&*server.env.clock, "log", || "on a network thread".into(), driven);
        }
    }

    fn connection_closed(&self, connection: &Connection) {
        self.server.scanners.connection_closed(connection);
        self.server.user_loads.connection_closed(connection);
        self.server.slow_calls.connection_closed(connection.id);
    }
}

/// How an attempt at a call ended that did not end well.
pub(crate) enum CallError {
    /// Try again where blocking is allowed. Nothing was changed.
    NeedsDisk,
    Failed(RpcError),
}

impl CallError {
    /// For attempts that were allowed to use the disk.
    pub(crate) fn into_rpc(self) -> RpcError {
        match self {
            CallError::NeedsDisk => RpcError::io("a read that may use the disk says that it needs the disk"),
            CallError::Failed(error) => error,
        }
    }
}

impl From<RpcError> for CallError {
    fn from(error: RpcError) -> CallError {
        CallError::Failed(error)
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        match error.kind() {
            ErrorKind::NeedsDisk => CallError::NeedsDisk,
            _ => CallError::Failed(errors::to_rpc(&error)),
        }
    }
}

/// How a call waits for a place where it may block.
struct Waits {
    terms: Terms,
    /// How large its answer may become, or for what else it waits for room.
    answer_bytes: usize,
    /// Room beyond that for cells that are made of its message. It is asked for when the call's turn has come: the call is refused
    /// without it, and does not keep those waiting that are behind it.
    cells_bytes: usize,
    /// It has changed something already, so it has to come to its end.
    begun: bool,
    /// Name of the region; empty if the call has none, or names it itself.
    region: Bytes,
    /// It calls coprocessors, on threads of its own.
    hosted: Option<CallPermit>,
    kind: WorkKind,
    /// Room for what it gathers as a whole: for its answer, or to look at. `None`: that has a limit of its own.
    room: Option<Arc<AnswerRoom>>,
}

/// Which threads do the work of a call that calls no coprocessors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WorkKind {
    #[default]
    Usual,
    /// An administrator's. A dozen of them would keep all others of their class waiting, so they have a few threads.
    Admin,
    /// Files are copied; as with the above.
    Copies,
}

/// Parts of calls from this time on are always noted.
const NOTED_PART_NS_MIN: u64 = 10_000_000;

impl Waits {
    fn new(terms: Terms) -> Waits {
        let (region, kind) = (Bytes::new(), WorkKind::Usual);
        Waits { terms, answer_bytes: 0, cells_bytes: 0, begun: false, region, hosted: None, kind, room: None }
    }

    fn of_answer(terms: Terms, answer_bytes: u64) -> Waits {
        let answer_bytes = usize::try_from(answer_bytes).unwrap_or(usize::MAX);
        Waits { answer_bytes, ..Waits::new(terms) }
    }

    /// Cells are made of its message that take so much memory ([`convert::InlineCells::room_bytes`](crate::convert::InlineCells)). It
    /// waits for room for no more than a large answer has.
    fn making_cells(self, bytes: u64, server: &RegionServer) -> Waits {
        assert!(!self.begun || bytes == 0, "what has begun is not refused");
        let usize_of = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let announced_max = usize_of(server.settings.result_bytes_max).saturating_sub(self.answer_bytes);
        let announced = usize_of(bytes).min(announced_max);
        let (answer_bytes, cells_bytes) = (self.answer_bytes + announced, usize_of(bytes) - announced);
        Waits { answer_bytes, cells_bytes, ..self }.with_room(server)
    }

    /// Rows that it reads as a whole, and new values, ask for room.
    fn with_room(self, server: &RegionServer) -> Waits {
        let room = server.pool.room(&self.terms);
        Waits { room: Some(room), ..self }
    }

    fn on(self, online: &OnlineRegion) -> Waits {
        Waits { region: online.region.info().region_name().clone(), ..self }
    }
}

impl RegionServer {
    fn begin(self: &Arc<Self>, call: Call) -> Outcome {
        let Some(awaited) = self.awaited_by(&call) else { return self.carry_out(call) };
        let server = self.clone();
        Outcome::Later(Box::pin(async move {
            server.wait_for_arrivals(&call, awaited).await?;
            let outcome = server.carry_out(call);
            server.drive_logs(); // nobody else does for a call that comes late
            match outcome {
                Outcome::Ready(result) => result,
                Outcome::Later(later) => later.await,
            }
        }))
    }

    /// Of a master of Halcyon: its writes to system tables count until they are answered, and it waits for those of masters before it.
    #[cold]
    fn begin_of_master(self: &Arc<Self>, call: Call) -> Outcome {
        let connection = &call.connection;
        let write = self.lifecycle.check_writes_before(connection).and_then(|()| {
            if class::writes_system_table(&call.method, &call.param) {
                self.lifecycle.begin_master_write(connection)
            } else {
                Ok(None)
            }
        });
        let write = match write {
            Ok(write) => write,
            Err(error) => return Outcome::Ready(Err(error)),
        };
        match self.begin(call) {
            Outcome::Later(later) if write.is_some() => Outcome::Later(Box::pin(async move {
                let result = later.await;
                drop(write);
                result
            })),
            outcome => outcome,
        }
    }

    /// Counts calls that failed, wherever they ran.
    fn note_answered(&self, calls: &AnsweredCalls<'_>) {
        if calls.failed_count > 0 {
            self.counters.failed.add(calls.failed_count);
        }
        self.op_times.record(calls.tags, calls.took_ns, calls.count);
    }

    /// Whether a part of a call that took so long is to be noted: alone it need not be slow, but it may be a good part of a
    /// slow call, or of one with a large answer.
    fn is_part_notable(&self, took: Duration) -> bool {
        let limit_ns = (self.online.warn.notable().time_ns / 4).min(NOTED_PART_NS_MIN);
        u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) >= limit_ns
    }

    /// Waits until the memstores and the WAL have room for a write.
    async fn wait_for_room(&self, terms: &Terms) -> Result<(), RpcError> {
        let started_ns = self.env.clock.monotonic_ns();
        let waited = self.pressure.wait().await;
        let took = Duration::from_nanos(self.env.clock.monotonic_ns().saturating_sub(started_ns));
        if terms.is_traced || self.is_part_notable(took) {
            self.slow_calls.note(terms, |noted| noted.held_back += took);
        }
        waited
    }

    /// What a call ends in that nobody waits for any more.
    fn dropped(&self, terms: &Terms) -> Option<RpcError> {
        terms.dropped(self.env.clock.monotonic_ns()).map(RpcError::dropped)
    }

    /// Whether somebody waits for what a scan finds. A scan that finds nothing may look at all of a region.
    fn is_wanted(self: &Arc<Self>, terms: &Terms) -> IsWanted {
        let (server, terms) = (self.clone(), terms.clone());
        Arc::new(move || server.dropped(&terms).is_none())
    }

    /// As [`RegionServer::is_wanted`], for what keeps its region from closing while it looks at any number of cells. The region serves
    /// nobody then, and somebody waits to open it elsewhere.
    fn is_wanted_of(self: &Arc<Self>, terms: &Terms, online: &Arc<OnlineRegion>) -> IsWanted {
        let (server, terms, online) = (self.clone(), terms.clone(), online.clone());
        Arc::new(move || server.dropped(&terms).is_none() && !online.region.is_closing())
    }

    /// Runs a part of a call where blocking is allowed, and looks how long that took with the wait before it. A call
    /// whose client has given up or gone meanwhile is dropped, unless it has `begun` to change something.
    async fn run_pooled<T, F>(&self, method: &'static str, waits: Waits, work: F) -> Result<T, RpcError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, RpcError> + Send + 'static,
    {
        self.run_reserved(method, waits, work).await.map(|(result, _)| result)
    }

    /// As [`RegionServer::run_pooled`]; beside the result is the room that was kept for the answer, and what it has taken while it ran.
    async fn run_reserved<T, F>(
        &self,
        method: &'static str,
        waits: Waits,
        work: F,
    ) -> Result<(T, Option<Reservation>), RpcError>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, RpcError> + Send + 'static,
    {
        self.counters.pooled.add(1);
        let started_ns = self.env.clock.monotonic_ns();
        let Waits { terms, answer_bytes, cells_bytes, begun, region, hosted, kind, room } = waits;
        let pool = match kind {
            _ if hosted.is_some() => &self.coprocessors.pool,
            WorkKind::Usual => &self.pool,
            WorkKind::Admin => &self.admin_pool,
            WorkKind::Copies => &self.load_pool,
        };
        let entered = pool.enter(&terms, answer_bytes, begun).await;
        let entered = entered.and_then(|entered| match self.dropped(&terms).filter(|_| !begun) {
            Some(error) => Err(error),
            None => Ok(entered),
        });
        let entered = entered.and_then(|(permit, mut reservation)| {
            if let Some(room) = &room {
                room.hold(reservation.take());
                if cells_bytes > 0 && !room.grow(cells_bytes) {
                    drop(room.take()); // for those who are looked at when the permit is given back
                    let text = format!("there is no room for cells of {} bytes", answer_bytes + cells_bytes);
                    return Err(RpcError::region_too_busy(text));
                }
            }
            Ok((permit, reservation))
        });
        let entered_ns = self.env.clock.monotonic_ns();
        let result = match entered {
            Ok((permit, reservation)) => {
                let of_work = room.clone();
                let is_traced = terms.is_traced;
                let work = move || {
                    let counted = || Tally::of(work);
                    let ((result, waits), lookups) =
                        if is_traced { Lookups::of(counted) } else { (counted(), Lookups::default()) };
                    result.map(|result| (result, (waits, lookups)))
                };
                let work = move || {
                    let _hosted = hosted; // as long as it runs
                    match of_work {
                        Some(room) => room.during(work),
                        None => work(),
                    }
                };
                let taken = || reservation.or_else(|| room.and_then(|room| room.take()));
                pool.run(permit, work).await.map(|(result, counted)| (result, taken(), counted))
            }
            Err(error) => Err(error),
        };
        let between = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
        let queued = between(started_ns, entered_ns);
        let ran = between(entered_ns, self.env.clock.monotonic_ns());
        if terms.is_traced || self.is_part_notable(queued + ran) {
            let (waits, lookups) = result.as_ref().map(|(.., counted)| counted.clone()).unwrap_or_default();
            self.slow_calls.note(&terms, |noted| {
                noted.region = region;
                noted.add_pooled(queued, ran, &waits);
                noted.lookups.merge(lookups);
            });
        }
        if let Err(error) = &result
            && error.dropped.is_none()
        {
            tracing::debug!(method, %error, "call failed");
        }
        result.map(|(result, reservation, _)| (result, reservation))
    }
}

#[inline]
fn decode<M: Message + Default>(method: &str, param: Bytes) -> Result<M, RpcError> {
    M::decode(param).map_err(|error| errors::undecodable(method, &error))
}

/// Decodes a large message on the pool, and goes on with the call as `begin` says, which gets it without its message.
fn decode_on_pool<M: Message + Default + 'static>(
    server: &Arc<RegionServer>,
    call: Call,
    method: &'static str,
    param: Bytes,
    begin: impl FnOnce(&Arc<RegionServer>, Call, M) -> Outcome + Send + 'static,
) -> Outcome {
    let (server, waits) = (server.clone(), Waits::new(call.terms()));
    Outcome::Later(Box::pin(async move {
        let message = server.run_pooled(method, waits, move || decode(method, param)).await?;
        match begin(&server, call, message) {
            Outcome::Ready(result) => result,
            Outcome::Later(later) => later.await,
        }
    }))
}

/// A message with more bytes is decoded, and carried out, on the pool: what it names, such as columns and filters, is sorted and built
/// before anything is read. That is about a millisecond of work, for which all other connections of the thread that received it would
/// wait.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// As [`INLINE_BYTES_MAX`], of messages that write: they may name as much, but most bytes of nearly all of them are of values.
const INLINE_DECODED_BYTES_MAX: usize = 1 << 20;

/// What a thread that serves connections may look at for one call: about a millisecond. What needs more is done again on the pool, as
/// what needs the disk is.
const INLINE_LOOKS: u32 = 4096;

/// Carries out reads of `CacheOnly` on the thread that received the call.
fn inline<T>(work: impl FnOnce() -> T) -> T {
    Patience::of_looks(INLINE_LOOKS, work)
}

fn ready(result: Result<Reply, RpcError>) -> Outcome {
    Outcome::Ready(result)
}
