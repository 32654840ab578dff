//! One mutation of one row, perhaps under a condition.
//!
//! A put or delete is handed to the region and answered when its ticket resolves, which for most is right
//! after the calls that came together with it were handed over. What reads before it writes (Increment, Append,
//! conditions, deletes of the newest version) may need the disk; it then runs again on the pool, where a call
//! also waits for another one with its nonce.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Cell, SeqId};
use halcyon_env::{Lookups, Patience};
use halcyon_proto::pb;
use halcyon_region::{Mutation, MutationKind, Nonce, ReadMode, Region, Scan, WriteTicket};
use halcyon_rpc::{Call, Codec, Outcome, Reply, RpcError, Tags, Terms};

use super::{CallError, INLINE_DECODED_BYTES_MAX, Waits, decode, decode_on_pool, inline, ready};
use crate::RegionServer;
use crate::calls::nonces::{NonceGuard, Once, Turn};
use crate::convert::{self, CellSource, InlineCells};
use crate::coprocessors::{self, Asked, CallPermit, Operation};
use crate::errors;
use crate::metrics::op_times::Op;
use crate::quotas::{Intent, OperationQuota};
use crate::regions::region_table::OnlineRegion;

/// Cells of a mutation, and their bytes, that are written by the event loop which received the call.
const INLINE_CELLS_MAX: usize = 1_000;
const INLINE_BYTES_MAX: usize = 1 << 20;

/// `MutateResponse { processed: true }`.
const PROCESSED: &[u8] = &[0x10, 0x01];

/// What a mutation did, before it is durable.
struct Done {
    processed: Option<bool>,
    result: Option<Vec<Cell>>,
    /// `None` when nothing was written.
    ticket: Option<WriteTicket>,
    guard: Option<NonceGuard>,
}

/// A decoded call.
struct Request {
    online: Arc<OnlineRegion>,
    mutation: Mutation,
    condition: Option<pb::Condition>,
    nonce: Nonce,
    codec: Option<Codec>,
    terms: Terms,
    /// As it was sent, where coprocessors are to see it.
    proto: Option<pb::MutationProto>,
    /// Settled when the call has ended.
    quota: Option<OperationQuota>,
}

pub(super) fn call(server: &Arc<RegionServer>, mut call: Call) -> Outcome {
    server.counters.mutations.add(1);
    server.user_loads.note_writes(&call.connection, 1);
    let param = std::mem::take(&mut call.param);
    let param_len = param.len();
    let begin = move |server: &Arc<RegionServer>, call: Call, message: pb::MutateRequest| {
        begin(server, call, message, param_len).unwrap_or_else(|error| ready(Err(error)))
    };
    if param_len > INLINE_DECODED_BYTES_MAX {
        return decode_on_pool(server, call, "Mutate", param, begin);
    }
    match decode("Mutate", param) {
        Ok(message) => begin(server, call, message),
        Err(error) => ready(Err(error)),
    }
}

/// `param_len`: bytes of the message.
fn begin(
    server: &Arc<RegionServer>,
    call: Call,
    mut message: pb::MutateRequest,
    param_len: usize,
) -> Result<Outcome, RpcError> {
    let online = server.regions.find(&message.region)?;
    let inline = InlineCells::of(&message.mutation);
    inline.check(server.settings.request_cells_bytes_max, &call.connection)?;
    // Whoever opens, splits or moves a region writes to meta: that helps others on, so it does not wait.
    let waits = server.pressure.is_high() && !online.region.info().is_meta();
    let is_large =
        inline.count > INLINE_CELLS_MAX || inline.bytes() > INLINE_BYTES_MAX || inline.are_many_copies();
    if is_large || message.condition.as_ref().is_some_and(has_large_filter) {
        let server = server.clone();
        return Ok(Outcome::Later(Box::pin(async move {
            let terms = call.terms();
            if waits {
                wait_for_room(&server, &terms).await?;
            }
            // Not before: others may use the permit while this call waits.
            let waiting = Waits { hosted: permit(&server, &online)?, ..Waits::new(terms) }.on(&online);
            let waiting = waiting.making_cells(inline.room_bytes(param_len), &server);
            let region = online.clone();
            let request = move |server: &RegionServer| Request::new(server, online, &mut message, call);
            run_on_pool(&server, waiting, &region, request).await
        })));
    }
    let request = Request::new(server, online, &mut message, call)?;
    if waits {
        let server = server.clone();
        return Ok(Outcome::Later(Box::pin(async move {
            wait_for_room(&server, &request.terms).await?;
            let outcome = start(&server, request);
            server.drive_logs();
            match outcome {
                Outcome::Ready(result) => result,
                Outcome::Later(later) => later.await,
            }
        })));
    }
    Ok(start(server, request))
}

async fn wait_for_room(server: &RegionServer, terms: &Terms) -> Result<(), RpcError> {
    server.wait_for_room(terms).await?;
    server.dropped(terms).map_or(Ok(()), Err)
}

fn start(server: &Arc<RegionServer>, request: Request) -> Outcome {
    if request.proto.is_some() {
        return start_hosted(server, request);
    }
    let Request { online, mut mutation, condition, nonce, codec, terms, proto, quota } = request;
    let tag = online.ops.tag(op(&mutation, condition.is_some()), 1);
    let plain = condition.is_none() && !Region::needs_reads(std::slice::from_ref(&mutation));
    let is_large = is_large(&mutation);
    if plain && !is_large {
        // Nothing to repeat, nothing to remember.
        let mut outcome = online.region.mutate_now(vec![mutation]);
        server.after_write(&online);
        match outcome.as_mut().ok().and_then(|outcome| outcome.left.pop()) {
            Some(left) => mutation = left, // another write has its row
            None => {
                let done = outcome.map_err(CallError::from).and_then(|mut outcome| {
                    outcome.results.pop().transpose()?;
                    let ticket = Some(outcome.ticket);
                    Ok(Done { processed: Some(true), result: None, ticket, guard: None })
                });
                return match done {
                    Ok(done) => complete(done, codec, tag),
                    Err(error) => ready(Err(error.into_rpc())),
                };
            }
        }
    }
    let nonce = if plain { Nonce::default() } else { nonce };
    let mut request = Request { online, mutation, condition, nonce, codec, terms, proto, quota };
    let attempted = match plain || is_large {
        true => Err(CallError::NeedsDisk),
        false => inline(|| request.attempt(server, ReadMode::CacheOnly)),
    };
    match attempted {
        Ok(done) => complete(done, codec, tag),
        Err(CallError::Failed(error)) => ready(Err(error)),
        Err(CallError::NeedsDisk) => {
            let waits = Waits::new(request.terms.clone());
            Outcome::Later(Box::pin(run_made_on_pool(server.clone(), waits, request)))
        }
    }
}

/// Carries out a call where blocking is allowed, in a region with coprocessors on the threads of calls to these. `request` is made there.
async fn run_on_pool(
    server: &Arc<RegionServer>,
    waits: Waits,
    online: &Arc<OnlineRegion>,
    request: impl FnOnce(&RegionServer) -> Result<Request, RpcError> + Send + 'static,
) -> Result<Reply, RpcError> {
    // What it reads first may be all of a row. Once it is written nothing asks any more.
    let is_wanted = server.is_wanted_of(&waits.terms, online);
    let on_pool = server.clone();
    let work = move || -> Result<_, RpcError> {
        let mut request = request(&on_pool)?;
        let (codec, tag) = (request.codec, request.tag());
        let is_hosted = request.proto.is_some();
        let mut attempt = || request.attempt(&on_pool, ReadMode::AnyDisk);
        let done = if is_hosted { attempt() } else { Patience::while_wanted(is_wanted, attempt) };
        on_pool.drive_logs(); // nobody else does behind this thread
        Ok((done.map_err(CallError::into_rpc)?, codec, tag))
    };
    let ((done, codec, tag), reservation) = server.run_reserved("Mutate", waits, work).await?;
    let reply = match complete(done, codec, tag) {
        Outcome::Ready(result) => result,
        Outcome::Later(later) => later.await,
    };
    reply.map(|reply| Reply { reservation, ..reply })
}

async fn run_made_on_pool(
    server: Arc<RegionServer>,
    waits: Waits,
    request: Request,
) -> Result<Reply, RpcError> {
    let (waits, online) = (waits.with_room(&server), request.online.clone());
    run_on_pool(&server, waits, &online, move |_| Ok(request)).await
}

/// Whether the filter of a condition may take long to build, and to ask.
fn has_large_filter(condition: &pb::Condition) -> bool {
    let filter = condition.filter.as_ref().and_then(|filter| filter.serialized_filter.as_ref());
    filter.is_some_and(|filter| filter.len() > super::INLINE_BYTES_MAX)
}

/// Whether it takes so long that the other connections of an event loop are not to wait for it.
fn is_large(mutation: &Mutation) -> bool {
    mutation.cells.len() > INLINE_CELLS_MAX
        || mutation.cells.iter().map(|cell| cell.bytes().len()).sum::<usize>() > INLINE_BYTES_MAX
}

/// On the threads of calls to coprocessors.
fn start_hosted(server: &Arc<RegionServer>, request: Request) -> Outcome {
    let permit = match permit(server, &request.online) {
        Ok(permit) => permit,
        Err(error) => return ready(Err(error)),
    };
    let waits = Waits { hosted: permit, ..Waits::new(request.terms.clone()) }.on(&request.online);
    Outcome::Later(Box::pin(run_made_on_pool(server.clone(), waits, request)))
}

/// For a call that calls coprocessors; `None` if its region has none.
fn permit(server: &RegionServer, online: &OnlineRegion) -> Result<Option<CallPermit>, RpcError> {
    online.is_hosted().then(|| server.coprocessors.jvm().permit()).transpose()
}

impl Request {
    /// Takes what it needs out of the message.
    fn new(
        server: &RegionServer,
        online: Arc<OnlineRegion>,
        message: &mut pb::MutateRequest,
        mut call: Call,
    ) -> Result<Request, RpcError> {
        let mutation =
            convert::mutation(&message.mutation, &mut CellSource::new(std::mem::take(&mut call.cells)))?;
        let nonce =
            Nonce { group: message.nonce_group.unwrap_or(0), nonce: message.mutation.nonce.unwrap_or(0) };
        let proto = online.is_hosted().then(|| std::mem::take(&mut message.mutation));
        let (condition, codec) = (message.condition.take(), call.connection.codec);
        let is_atomic = condition.is_some() || mutation.kind.returns_cells();
        let intent = Intent::Batch { writes: 1, reads: usize::from(is_atomic), is_atomic };
        let mut quota = server.quotas.begin(&online, &call.connection, &call.attributes, intent)?;
        server.quotas.check_space(&online, &mutation)?;
        if let Some(quota) = &mut quota {
            quota.add_written(&mutation.cells);
        }
        Ok(Request { online, mutation, condition, nonce, codec, terms: call.into_terms(), proto, quota })
    }

    fn tag(&self) -> u64 {
        self.online.ops.tag(op(&self.mutation, self.condition.is_some()), 1)
    }

    /// Does the work once. `CacheOnly` may end in `NeedsDisk`, with nothing done.
    fn attempt(&mut self, server: &Arc<RegionServer>, mode: ReadMode) -> Result<Done, CallError> {
        let Some(mut quota) = self.quota.take() else { return self.attempt_once(server, mode) };
        let (done, lookups) = Lookups::of(|| self.attempt_once(server, mode));
        quota.add_lookups(lookups);
        self.quota = Some(quota);
        done
    }

    fn attempt_once(&self, server: &Arc<RegionServer>, mode: ReadMode) -> Result<Done, CallError> {
        if let Turn::Done(seq) = turn(server, self.nonce, mode, &self.terms)? {
            return self.repeat(server, seq, mode);
        }
        let done = match &self.proto {
            Some(proto) => self.apply_hosted(server, proto, Once::new(&server.nonces, self.nonce)),
            None => {
                let guard = (self.nonce.nonce != 0).then(|| NonceGuard::new(&server.nonces, self.nonce));
                self.apply(mode, guard)
            }
        };
        server.after_write(&self.online);
        done
    }

    fn apply(&self, mode: ReadMode, guard: Option<NonceGuard>) -> Result<Done, CallError> {
        let region = &self.online.region;
        let batch = vec![self.mutation.clone()];
        let Some(condition) = &self.condition else {
            let mut outcome = region.mutate(batch, false, self.nonce, mode)?;
            let result = outcome.results.pop().transpose()?.flatten();
            let (processed, result) = match self.mutation.kind {
                MutationKind::Put | MutationKind::Delete => (Some(true), None),
                MutationKind::Increment | MutationKind::Append => (None, Some(result.unwrap_or_default())),
            };
            let guard = guard.map(|guard| guard.wrote(outcome.ticket.seq()));
            return Ok(Done { processed, result, ticket: Some(outcome.ticket), guard });
        };
        let condition = convert::condition(condition)?;
        if condition.row != self.mutation.row {
            return Err(errors::invalid("The row of the condition is not the row of the mutation").into());
        }
        let outcome = region.check_and_mutate(condition, batch, self.nonce, mode)?;
        // A condition that did not hold is looked at again when the call is repeated.
        let guard = guard.filter(|_| outcome.processed).map(|guard| guard.wrote(outcome.ticket.seq()));
        let (processed, result) = (Some(outcome.processed), outcome.result);
        Ok(Done { processed, result, ticket: Some(outcome.ticket), guard })
    }

    /// With the hooks of coprocessors. What it returns is durable.
    fn apply_hosted(
        &self,
        server: &Arc<RegionServer>,
        proto: &pb::MutationProto,
        mut once: Once,
    ) -> Result<Done, CallError> {
        let mut operation = Operation::begin(server, &self.online, Some(&self.terms))?;
        let asked = vec![Asked::new(proto, self.mutation.clone())];
        let returns_cells = self.mutation.kind.returns_cells();
        let Some(condition) = &self.condition else {
            let written =
                coprocessors::mutate(&mut operation, &self.online, asked, returns_cells, &mut once, None)?;
            let result = written.into_iter().next().expect("one for each mutation")?;
            if returns_cells {
                server.coprocessors.answers.keep(self.nonce, result.as_deref().unwrap_or_default());
            }
            once.end(); // hooks may have done it without a write
            let (processed, result) =
                if returns_cells { (None, Some(result.unwrap_or_default())) } else { (Some(true), None) };
            return Ok(Done { processed, result, ticket: None, guard: None });
        };
        if condition.row != self.mutation.row {
            return Err(errors::invalid("The row of the condition is not the row of the mutation").into());
        }
        let (processed, result) =
            coprocessors::check_and_mutate(&mut operation, &self.online, condition, asked, &mut once, None)?;
        if processed {
            if let Some(cells) = &result {
                server.coprocessors.answers.keep(self.nonce, cells);
            }
            once.end();
        }
        Ok(Done { processed: Some(processed), result, ticket: None, guard: None })
    }

    /// The answer to a call whose work was done by an earlier one with its nonce.
    fn repeat(&self, server: &RegionServer, seq: SeqId, mode: ReadMode) -> Result<Done, CallError> {
        let processed = self.condition.is_some().then_some(true);
        let result = match self.mutation.kind {
            MutationKind::Increment | MutationKind::Append => {
                match server.coprocessors.answers.of(self.nonce) {
                    Some(kept) => Some(kept),
                    None => Some(read_back(&self.online, &self.mutation, seq, mode)?),
                }
            }
            MutationKind::Put | MutationKind::Delete => None,
        };
        let processed = if result.is_none() { Some(true) } else { processed };
        Ok(Done { processed, result, ticket: None, guard: None })
    }
}

/// Whose turn a nonce gives. A call that would have to wait for another one needs the pool, where it waits no longer than its client does.
pub(super) fn turn(
    server: &RegionServer,
    nonce: Nonce,
    mode: ReadMode,
    terms: &Terms,
) -> Result<Turn, CallError> {
    match server.nonces.begin(nonce) {
        Turn::Running if mode == ReadMode::CacheOnly => Err(CallError::NeedsDisk),
        Turn::Running => await_turn(server, nonce, nonces_until_ns(server, terms)),
        turn => Ok(turn),
    }
}

/// Until when a call that begins to wait now may wait for other ones with its nonces (`monotonic_ns`).
pub(super) fn nonces_until_ns(server: &RegionServer, terms: &Terms) -> u64 {
    let now_ns = server.env.clock.monotonic_ns();
    now_ns.saturating_add(server.settings.rpc_timeout.as_nanos() as u64).min(terms.deadline_ns)
}

/// The turn of a nonce that was running a moment ago. *Blocking*.
pub(super) fn await_turn(server: &RegionServer, nonce: Nonce, until_ns: u64) -> Result<Turn, CallError> {
    let left_ns = until_ns.saturating_sub(server.env.clock.monotonic_ns());
    match server.nonces.wait(nonce, Duration::from_nanos(left_ns)) {
        Turn::Running => Err(RpcError::io("an operation with the same nonce is still running").into()),
        turn => Ok(turn),
    }
}

/// The answer of a finished Increment or Append: the cells with the sequence id of its write. When they are gone, the answer is an error,
/// and not a later value.
/// HBase reads at that sequence id, too (`ServerNonceManager.getMvccFromOperationContext`), and answers with what it finds.
/// An operation that hooks of coprocessors have done without a write has no sequence id, and no answer once that is not kept any more
/// (`coprocessors/answers.rs`). In other regions one without a sequence id has written nothing, and the present cells are the answer.
pub(super) fn read_back(
    online: &OnlineRegion,
    mutation: &Mutation,
    seq: SeqId,
    mode: ReadMode,
) -> Result<Vec<Cell>, CallError> {
    if !mutation.return_results {
        return Ok(Vec::new());
    }
    let mut scan = Scan::of_row(mutation.row.clone());
    for cell in &mutation.cells {
        let part = |part: &[u8]| if part.is_empty() { Bytes::new() } else { cell.bytes().slice_ref(part) };
        let qualifiers = scan.families.entry(part(cell.family())).or_default();
        qualifiers.get_or_insert_with(BTreeSet::new).insert(part(cell.qualifier()));
    }
    scan.time_range = mutation.time_range;
    if seq == SeqId::ZERO && online.is_hosted() {
        return Err(errors::answer_is_gone().into());
    }
    if seq == SeqId::ZERO {
        return Ok(online.region.get(scan, mode)?);
    }
    online.region.answer(scan, seq, mode)?.ok_or_else(|| errors::answer_is_gone().into())
}

/// What HBase counts a mutation as.
fn op(mutation: &Mutation, is_conditional: bool) -> Op {
    match (mutation.kind, is_conditional) {
        (MutationKind::Put, false) => Op::Put,
        (MutationKind::Delete, false) => Op::Delete,
        (MutationKind::Increment, false) => Op::Increment,
        (MutationKind::Append, false) => Op::Append,
        (MutationKind::Put, true) => Op::CheckAndPut,
        (MutationKind::Delete, true) => Op::CheckAndDelete,
        (MutationKind::Increment | MutationKind::Append, true) => Op::CheckAndMutate,
    }
}

/// Answers now if the write is durable already, else when it is.
fn complete(done: Done, codec: Option<Codec>, tag: u64) -> Outcome {
    let Done { processed, result, ticket, guard } = done;
    let reply = Reply { tags: Tags::One(tag), ..reply(processed, result, codec) };
    match ticket {
        Some(ticket) if !ticket.is_ready() => Outcome::Later(Box::pin(async move {
            ticket.await.map_err(|error| errors::to_rpc(&error))?;
            if let Some(guard) = guard {
                guard.end();
            }
            Ok(reply)
        })),
        ticket => {
            if let Some(Err(error)) = ticket.map(WriteTicket::wait) {
                return ready(Err(errors::to_rpc(&error)));
            }
            if let Some(guard) = guard {
                guard.end();
            }
            ready(Ok(reply))
        }
    }
}

fn reply(processed: Option<bool>, result: Option<Vec<Cell>>, codec: Option<Codec>) -> Reply {
    let Some(cells) = result else {
        if processed == Some(true) {
            return Reply::encoded(Bytes::from_static(PROCESSED));
        }
        return Reply::message(&pb::MutateResponse { processed, ..Default::default() });
    };
    let (result, block) = match codec {
        Some(codec) => (convert::no_cells_result(cells.len()), convert::cell_block(codec, &cells)),
        None => (convert::inline_result(&cells, false), None),
    };
    let response = pb::MutateResponse { result: Some(result), processed, ..Default::default() };
    Reply { cells: block, ..Reply::message(&response) }
}
