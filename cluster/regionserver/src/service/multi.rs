//! Many actions on many regions in one call.
//!
//! A call is a list of region actions; each is atomic, conditional, or a list of actions that stand alone.
//! Actions are done in an order that clients cannot tell from theirs (`multi_order.rs`): puts and deletes go to the region in
//! batches, everything else one by one. The run stops where something needs the disk, with nothing of that step done, and
//! goes on from there on the pool. Checked against `RSRpcServices.multi`, `doNonAtomicRegionMutation`, `doAtomicBatchOp` of 2.6.4,
//! which defers the puts of a region action behind its other actions; clients accept either. A Get sees what
//! the call has written before it.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Error;
use halcyon_env::{Lookups, Patience};
use halcyon_proto::pb;
use halcyon_region::{Mutation, Nonce, ReadMode, WriteTicket};
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Terms};

use super::class::META_NAME_START;
use super::exec_service::{Answer, EndpointCall};
use super::multi_order::Order;
use super::multi_reply::MultiReply;
use super::mutate::{await_turn, nonces_until_ns};
use super::{CallError, INLINE_BYTES_MAX, INLINE_DECODED_BYTES_MAX, Waits, decode, inline, ready};
use crate::RegionServer;
use crate::calls::nonces::{NonceGuard, Turn};
use crate::convert::{CellSource, InlineCells};
use crate::coprocessors::CallPermit;
use crate::errors;
use crate::metrics::op_times::OpTags;
use crate::quotas::{Intent, OperationQuota};
use crate::regions::region_table::OnlineRegion;

/// A Multi with more actions, or with more bytes than [`INLINE_BYTES_MAX`], does not run on the thread that received it: about a
/// millisecond of work, for which all other connections of that thread would wait.
const INLINE_ACTIONS_MAX: usize = 400;
/// So many bytes of cells may Appends and Deletes of rows of a call make there. They make more than they bring.
const INLINE_NEW_BYTES_MAX: usize = 1 << 20;
/// A call that has made so many bytes of cells is asked like a new one whether there is room for more.
const NEW_BYTES_MAX: usize = 16 << 20;

/// A Multi and how far it has come.
pub(super) struct Run {
    pub(super) server: Arc<RegionServer>,
    actions: Vec<pb::RegionAction>,
    /// The condition of clients before 2.4, for the first region action.
    pub(super) old_condition: Option<pb::Condition>,
    pub(super) nonce_group: u64,
    pub(super) source: CellSource,
    /// The client knows the exception for a part of its actions that it has to come back for at once.
    may_cut_off: bool,
    pub(super) reply: MultiReply,
    pub(super) processed: Option<bool>,
    pub(super) tickets: Vec<WriteTicket>,
    /// Something was written that reads may not see yet.
    pub(super) unseen: bool,
    /// Something was written.
    pub(super) wrote: bool,
    /// Bytes of cells that Increments, Appends and Deletes of rows have made.
    pub(super) new_bytes: usize,
    pub(super) terms: Terms,
    /// It would keep the thread that received it for too long.
    is_large: bool,
    /// Room that is to be kept for the cells that are made of values in its message.
    inline_bytes: u64,
    /// A write that was waited for has failed.
    failed: Option<Error>,
    /// Nonces of what was written and is not seen yet.
    pub(super) guards: Vec<NonceGuard>,
    /// Until when it may wait for other calls with its nonces, once it has begun to.
    nonces_until_ns: Option<u64>,
    /// The region action and the action to do next.
    region_at: usize,
    pub(super) action_at: usize,
    /// Of the present region action.
    pub(super) order: Order,
    /// Several region actions are of one region, and some action is a get.
    pub(super) has_regions_twice: bool,
    /// Of what was done.
    pub(super) ops: OpTags,
    /// Of the present region action; settled when it has ended.
    quota: Option<OperationQuota>,
    quota_begun: bool,
    /// For calls to coprocessors.
    permit: Option<CallPermit>,
    /// Mutations that were decoded for the present step before it turned out to need the disk.
    pub(super) decoded: Option<Vec<Result<Mutation, RpcError>>>,
}

pub(super) fn call(server: &Arc<RegionServer>, mut call: Call) -> Outcome {
    server.counters.multis.add(1);
    let param = std::mem::take(&mut call.param);
    if param.len() > INLINE_DECODED_BYTES_MAX {
        let (server, waits) = (server.clone(), Waits::new(call.terms()));
        return Outcome::Later(Box::pin(async move {
            let request = server.run_pooled("Multi", waits, move || Request::decode(param)).await?;
            match begin(&server, call, request) {
                Outcome::Ready(result) => result,
                Outcome::Later(later) => later.await,
            }
        }));
    }
    match Request::decode(param) {
        Ok(request) => begin(server, call, request),
        Err(error) => ready(Err(error)),
    }
}

/// A decoded message, and what is known of it by a look at all of it. Of a large one that takes long, too: calls of endpoints have
/// messages of their own.
struct Request {
    message: pb::MultiRequest,
    /// Bytes of the message.
    param_len: usize,
    inline: InlineCells,
}

impl Request {
    fn decode(param: Bytes) -> Result<Request, RpcError> {
        let param_len = param.len();
        let message: pb::MultiRequest = decode("Multi", param)?;
        let inline = inline_cells(&message.region_action);
        Ok(Request { message, param_len, inline })
    }
}

fn begin(server: &Arc<RegionServer>, call: Call, request: Request) -> Outcome {
    let mut run = match Run::new(server, call, request) {
        Ok(run) => run,
        Err(error) => return ready(Err(error)),
    };
    let is_hosted = run.calls_coprocessors();
    if server.pressure.is_high() && run.writes_tables() {
        let server = server.clone();
        return Outcome::Later(Box::pin(async move {
            server.wait_for_room(&run.terms).await?;
            if let Some(error) = server.dropped(&run.terms) {
                return Err(error);
            }
            // Not before: others may use it while this call waits.
            run.permit = run.permit_if(is_hosted)?;
            run_on_pool(run).await
        }));
    }
    run.permit = match run.permit_if(is_hosted) {
        Ok(permit) => permit,
        Err(error) => return ready(Err(error)),
    };
    if run.is_large || run.permit.is_some() {
        return Outcome::Later(Box::pin(run_on_pool(run)));
    }
    match inline(|| run.go_on(ReadMode::CacheOnly)) {
        Ok(()) => run.complete(),
        Err(NeedsDisk) => Outcome::Later(Box::pin(run_on_pool(run))),
    }
}

async fn run_on_pool(mut run: Run) -> Result<Reply, RpcError> {
    let server = run.server.clone();
    let hosted = run.permit.take();
    let waits = Waits::of_answer(run.terms.clone(), run.answer_bytes_max());
    let waits = Waits { begun: run.wrote, hosted, ..waits }.making_cells(run.inline_bytes, &server);
    let work = move || {
        let done = run.go_on(ReadMode::AnyDisk);
        run.server.drive_logs(); // nobody else does behind this thread
        match done {
            Ok(()) => Ok(run),
            Err(NeedsDisk) => Err(CallError::NeedsDisk.into_rpc()),
        }
    };
    let (run, reservation) = server.run_reserved("Multi", waits, work).await?;
    let reply = match run.complete() {
        Outcome::Ready(result) => result,
        Outcome::Later(later) => later.await,
    };
    reply.map(|reply| Reply { reservation, ..reply })
}

/// Whether the region has coprocessors, or a get has a filter of a class that only their JVM has.
fn is_hosted(online: &OnlineRegion, action: &pb::RegionAction) -> bool {
    let reads_hosted = |get: &pb::Get| get.filter.is_some() && online.reads_hosted(get.filter.as_ref());
    online.is_hosted() || action.action.iter().filter_map(|action| action.get.as_deref()).any(reads_hosted)
}

/// The step at hand cannot be done from memory; nothing of it was done.
pub(super) struct NeedsDisk;

impl Run {
    fn new(server: &Arc<RegionServer>, mut call: Call, request: Request) -> Result<Run, RpcError> {
        let Request { message: request, param_len, inline } = request;
        let bytes = param_len + call.cells.iter().map(|cell| cell.bytes().len()).sum::<usize>();
        let (may_cut_off, codec) = (call.connection.client_at_least(1, 2), call.connection.codec);
        let actions_count: usize = request.region_action.iter().map(|action| action.action.len()).sum();
        let all_actions = request.region_action.iter().flat_map(|action| &action.action);
        let gets_count = all_actions.filter(|action| action.get.is_some()).count();
        server.user_loads.note_reads(&call.connection, gets_count as u64);
        server.user_loads.note_writes(&call.connection, (actions_count - gets_count) as u64);
        inline.check(server.settings.request_cells_bytes_max, &call.connection)?;
        Ok(Run {
            server: server.clone(),
            old_condition: request.condition,
            nonce_group: request.nonce_group.unwrap_or(0),
            source: CellSource::new(std::mem::take(&mut call.cells)),
            may_cut_off,
            reply: MultiReply::new(codec),
            processed: None,
            tickets: Vec::new(),
            unseen: false,
            wrote: false,
            new_bytes: 0,
            is_large: bytes > INLINE_BYTES_MAX
                || actions_count > INLINE_ACTIONS_MAX
                || inline.are_many_copies(),
            inline_bytes: inline.room_bytes(param_len),
            terms: call.into_terms(),
            failed: None,
            guards: Vec::new(),
            nonces_until_ns: None,
            region_at: 0,
            action_at: 0,
            order: Order::default(),
            has_regions_twice: gets_count > 0 && has_regions_twice(&request.region_action),
            actions: request.region_action,
            ops: OpTags::default(),
            quota: None,
            quota_begun: false,
            permit: None,
            decoded: None,
        })
    }

    /// Whether a region of it needs the JVM of coprocessors.
    fn calls_coprocessors(&self) -> bool {
        let server = &self.server;
        let of_jvm = |action: &pb::RegionAction| {
            server.regions.find(&action.region).is_ok_and(|online| is_hosted(&online, action))
        };
        server.settings.coprocessors.has_host() && self.actions.iter().any(of_jvm)
    }

    fn permit_if(&self, is_hosted: bool) -> Result<Option<CallPermit>, RpcError> {
        is_hosted.then(|| self.server.coprocessors.jvm().permit()).transpose()
    }

    /// Whether it changes something, and not only in meta.
    fn writes_tables(&self) -> bool {
        self.actions.iter().any(|region_action| {
            !region_action.region.value.starts_with(META_NAME_START)
                && region_action.action.iter().any(|action| action.get.is_none())
        })
    }

    /// How large the answer may become: only cells that are read have a size to speak of.
    fn answer_bytes_max(&self) -> u64 {
        let mut actions = self.actions.iter().flat_map(|region_action| &region_action.action);
        if actions.any(|action| action.get.is_some()) { self.server.settings.result_bytes_max } else { 0 }
    }

    /// Does what is left, as far as `mode` allows.
    fn go_on(&mut self, mode: ReadMode) -> Result<(), NeedsDisk> {
        if self.old_condition.is_some() && self.actions.is_empty() {
            self.processed = Some(true);
            return Ok(());
        }
        let actions = std::mem::take(&mut self.actions);
        let mut result = Ok(());
        while let Some(action) = actions.get(self.region_at) {
            result = self.counted_region_action(action, mode);
            if result.is_err() {
                break;
            }
            (self.quota, self.quota_begun) = (None, false);
            self.region_at += 1;
            self.action_at = 0;
            if self.old_condition.is_some() {
                break; // such a call has one region action
            }
        }
        self.actions = actions;
        result
    }

    /// Does a region action, and has its quota know how many blocks that took. As in HBase the cells that gets of a batch return
    /// do not count.
    fn counted_region_action(&mut self, action: &pb::RegionAction, mode: ReadMode) -> Result<(), NeedsDisk> {
        if !self.server.quotas.is_limiting() {
            return self.region_action(action, mode);
        }
        let (done, lookups) = Lookups::of(|| self.region_action(action, mode));
        if let Some(quota) = &mut self.quota {
            quota.add_lookups(lookups);
        }
        done
    }

    fn region_action(&mut self, action: &pb::RegionAction, mode: ReadMode) -> Result<(), NeedsDisk> {
        let online = match self.server.regions.find(&action.region) {
            Ok(online) => online,
            Err(error) if self.action_at > 0 => {
                // It closed while the call was on its way to the pool: what is left fails one by one.
                self.fail_rest(action, &error);
                return Ok(());
            }
            Err(error) => {
                self.skip_cells(action);
                self.reply.fail_action(&error);
                return Ok(());
            }
        };
        self.reply.set_secondary(online.region.is_secondary());
        let done = self.action_of(&online, action, mode);
        if done.is_ok() && self.server.settings.region_statistics {
            self.reply.set_statistics(action.region.clone(), self.server.region_statistics(&online.region));
        }
        done
    }

    fn action_of(
        &mut self,
        online: &Arc<OnlineRegion>,
        action: &pb::RegionAction,
        mode: ReadMode,
    ) -> Result<(), NeedsDisk> {
        let condition = if self.region_at == 0 { self.old_condition.as_ref() } else { None };
        let condition = condition.or(action.condition.as_ref()).cloned();
        let stands_alone = condition.is_none() && !action.atomic();
        if !stands_alone && self.is_over_limit() {
            self.skip_cells(action);
            self.reply.fail_action(&self.over_limit());
            return Ok(());
        }
        if let Err(error) = self.begin_quota(online, action, condition.is_some()) {
            self.skip_cells(action);
            self.reply.fail_action(&error);
            return Ok(());
        }
        if is_hosted(online, action) {
            if mode == ReadMode::CacheOnly {
                return Err(NeedsDisk);
            }
            self.hosted_region_action(online, action, condition.as_ref());
            return Ok(());
        }
        if mode == ReadMode::CacheOnly {
            return self.own_region_action(online, action, condition.as_ref(), mode);
        }
        // What it reads may be all of many rows. When nobody wants it any more its reads end, one after the other; once something is
        // read and written nothing asks.
        let is_wanted = self.server.is_wanted_of(&self.terms, online);
        Patience::while_wanted(is_wanted, || self.own_region_action(online, action, condition.as_ref(), mode))
    }

    /// As [`Run::action_of`], in a region without coprocessors in the JVM.
    fn own_region_action(
        &mut self,
        online: &Arc<OnlineRegion>,
        action: &pb::RegionAction,
        condition: Option<&pb::Condition>,
        mode: ReadMode,
    ) -> Result<(), NeedsDisk> {
        if condition.is_none() && !action.atomic() {
            return self.separate_actions(online, action, mode);
        }
        match self.together(online, action, condition, mode) {
            Ok(()) => {}
            Err(CallError::NeedsDisk) => return Err(NeedsDisk),
            Err(CallError::Failed(error)) => {
                self.decoded = None;
                self.reply.fail_action(&error);
            }
        }
        self.server.after_write(online);
        Ok(())
    }

    /// Whether the answer is so large that what is left of the call has to be asked for again.
    pub(super) fn is_over_limit(&self) -> bool {
        self.reply.results_bytes() > self.server.settings.result_bytes_max
    }

    /// What an action is told then. HBase does not limit the answers of clients before 1.2, nor of those that tell no version: they
    /// do not know its exception. All know that a region may be busy, and ask again.
    pub(super) fn over_limit(&self) -> RpcError {
        let text = format!("the answer has {} bytes of results already", self.reply.results_bytes());
        if self.may_cut_off {
            RpcError::multi_action_result_too_large(text)
        } else {
            RpcError::region_too_busy(text)
        }
    }

    /// Leaves an action out of an answer that is too large.
    pub(super) fn skip_over_limit(&mut self, action: &pb::Action) -> usize {
        if let Some(mutation) = &action.mutation {
            self.source.skip(mutation);
        }
        self.push_over_limit(action);
        1
    }

    pub(super) fn push_over_limit(&mut self, action: &pb::Action) {
        self.reply.push_error(action.index(), &self.over_limit());
    }

    /// Asks the quotas before a region action begins.
    fn begin_quota(
        &mut self,
        online: &OnlineRegion,
        action: &pb::RegionAction,
        is_conditional: bool,
    ) -> Result<(), RpcError> {
        if self.quota_begun {
            return Ok(());
        }
        self.quota_begun = true;
        let (mut writes, mut reads, mut is_atomic) = (0, 0, false);
        for action in &action.action {
            match &action.mutation {
                Some(mutation) => {
                    let also_reads = is_conditional || !is_put_or_delete(mutation);
                    (writes, reads) = (writes + 1, reads + usize::from(also_reads));
                    is_atomic |= also_reads;
                }
                None => reads += usize::from(action.get.is_some()),
            }
        }
        let intent = Intent::Batch { writes, reads, is_atomic };
        self.quota =
            self.server.quotas.begin(online, &self.terms.connection, &self.terms.attributes, intent)?;
        Ok(())
    }

    /// Counts what is written, and looks whether the table may still grow.
    pub(super) fn check_mutation(
        &mut self,
        online: &OnlineRegion,
        mutation: Mutation,
    ) -> Result<Mutation, RpcError> {
        self.server.quotas.check_space(online, &mutation)?;
        if let Some(quota) = &mut self.quota {
            quota.add_written(&mutation.cells);
        }
        Ok(mutation)
    }

    /// Whether the call has made so many cells that the rest of it is not for the thread that received it.
    pub(super) fn has_made_many(&self, mode: ReadMode) -> bool {
        mode == ReadMode::CacheOnly && self.new_bytes > INLINE_NEW_BYTES_MAX
    }

    /// Whether Increments, Appends and Deletes of rows of the call may make more cells, on this thread or at all.
    pub(super) fn may_make_more(&self, online: &OnlineRegion, mode: ReadMode) -> Result<(), CallError> {
        if self.has_made_many(mode) {
            return Err(CallError::NeedsDisk);
        }
        let is_large = self.new_bytes > NEW_BYTES_MAX && !online.region.info().is_meta();
        if is_large && self.server.pressure.is_high() {
            let text = format!("the call has made cells of {} bytes, and there is no room", self.new_bytes);
            return Err(RpcError::region_too_busy(text).into());
        }
        Ok(())
    }

    pub(super) fn skip_cells(&mut self, action: &pb::RegionAction) {
        if self.decoded.take().is_none() {
            action.action.iter().filter_map(|a| a.mutation.as_ref()).for_each(|m| self.source.skip(m));
        }
    }

    fn fail_rest(&mut self, action: &pb::RegionAction, error: &RpcError) {
        for at in std::mem::take(&mut self.order).into_deferred() {
            self.reply.push_error(action.action[at].index(), error);
        }
        let mut decoded = self.decoded.take().map_or(0, |decoded| decoded.len());
        for action in &action.action[self.action_at..] {
            match &action.mutation {
                Some(_) if decoded > 0 => decoded -= 1, // its cells were taken
                Some(mutation) => self.source.skip(mutation),
                None => {}
            }
            self.reply.push_error(action.index(), error);
        }
        self.reply.end_action(None);
    }

    /// A call of an endpoint: on the pool, as such a call alone is.
    pub(super) fn endpoint(
        &mut self,
        online: &OnlineRegion,
        index: u32,
        call: &pb::CoprocessorServiceCall,
        mode: ReadMode,
    ) -> Result<usize, NeedsDisk> {
        if mode == ReadMode::CacheOnly {
            return Err(NeedsDisk);
        }
        self.see_own_writes(mode)?;
        let region = pb::RegionSpecifier { r#type: 1, value: online.region.info().region_name().clone() };
        let opened = EndpointCall::new(&self.server, &region, call, self.terms.clone());
        match opened.map_err(CallError::from).and_then(|call| call.run()) {
            Ok(Answer { value, ticket, guard }) => {
                if let Some(ticket) = ticket {
                    self.tickets.push(ticket);
                    self.unseen = true;
                    self.wrote = true;
                }
                self.guards.extend(guard);
                self.reply.push_service_result(index, value);
            }
            Err(error) => self.reply.push_error(index, &error.into_rpc()),
        }
        Ok(1)
    }

    /// Waits until what this call has written can be read; the error of a write that has failed. *Blocking*.
    pub(super) fn settle_writes(&mut self) -> Result<(), RpcError> {
        let _ = self.see_own_writes(ReadMode::AnyDisk); // it may wait
        self.failed.as_ref().map_or(Ok(()), |error| Err(errors::to_rpc(error)))
    }

    /// Waits until what this call has written can be read. Nonces of what was written have ended then.
    pub(super) fn see_own_writes(&mut self, mode: ReadMode) -> Result<(), NeedsDisk> {
        if !self.unseen {
            return Ok(());
        }
        self.server.drive_logs();
        if mode == ReadMode::CacheOnly && !self.tickets.iter().all(WriteTicket::is_ready) {
            return Err(NeedsDisk);
        }
        let failed = self.tickets.drain(..).map(WriteTicket::wait).filter_map(Result::err);
        self.failed = self.failed.take().into_iter().chain(failed).reduce(|first, _| first);
        if self.failed.is_none() {
            self.guards.drain(..).for_each(NonceGuard::end);
        }
        self.unseen = false;
        Ok(())
    }

    /// Whose turn a nonce of this call gives. It may be that of an earlier action of the call, which nobody else ends; and while this call
    /// waits for another one, that may wait for the nonces of this one. So what was written is waited for first. All waiting for
    /// others together takes no longer than that of one call may.
    pub(super) fn turn(&mut self, nonce: Nonce, mode: ReadMode) -> Result<Turn, CallError> {
        let turn = self.server.nonces.begin(nonce);
        if turn != Turn::Running {
            return Ok(turn);
        }
        self.see_own_writes(mode).map_err(|NeedsDisk| CallError::NeedsDisk)?;
        if let Some(error) = &self.failed {
            return Err(errors::to_rpc(error).into());
        }
        if mode == ReadMode::CacheOnly {
            return match self.server.nonces.begin(nonce) {
                Turn::Running => Err(CallError::NeedsDisk),
                turn => Ok(turn),
            };
        }
        let until_ns =
            *self.nonces_until_ns.get_or_insert_with(|| nonces_until_ns(&self.server, &self.terms));
        await_turn(&self.server, nonce, until_ns)
    }

    /// The answer, when all that was written is durable.
    fn complete(self) -> Outcome {
        let Run { reply, processed, mut tickets, failed, guards, old_condition, ops, .. } = self;
        if let Some(error) = failed {
            return ready(Err(errors::to_rpc(&error)));
        }
        let reply = reply.into_reply(processed, old_condition.is_none());
        let reply = Reply { tags: ops.into(), ..reply };
        let end = |guards: Vec<NonceGuard>| guards.into_iter().for_each(NonceGuard::end);
        if tickets.iter().all(WriteTicket::is_ready) {
            let failed = tickets.drain(..).map(WriteTicket::wait).find_map(Result::err);
            return ready(match failed {
                Some(error) => Err(errors::to_rpc(&error)),
                None => {
                    end(guards);
                    Ok(reply)
                }
            });
        }
        Outcome::Later(Box::pin(async move {
            for ticket in tickets {
                // A log that fails fails for every write: the call as a whole is not acknowledged.
                ticket.await.map_err(|error| errors::to_rpc(&error))?;
            }
            end(guards);
            Ok(reply)
        }))
    }
}

/// Cells that are made of values in the message.
fn inline_cells(actions: &[pb::RegionAction]) -> InlineCells {
    let mut inline = InlineCells::default();
    for action in actions.iter().flat_map(|region_action| &region_action.action) {
        if let Some(mutation) = action.mutation.as_deref().filter(|it| !it.column_value.is_empty()) {
            inline.add(&InlineCells::of(mutation));
        }
        if let Some(call) = &action.service_call {
            inline.add(&InlineCells::of_endpoint(call));
        }
    }
    inline
}

fn has_regions_twice(actions: &[pb::RegionAction]) -> bool {
    let mut seen = HashSet::with_capacity(actions.len());
    actions.len() > 1 && !actions.iter().all(|action| seen.insert(&action.region.value))
}

pub(super) fn is_put_or_delete(mutation: &pb::MutationProto) -> bool {
    use pb::mutation_proto::MutationType::{Delete, Put};
    matches!(mutation.mutate_type.map(pb::mutation_proto::MutationType::try_from), Some(Ok(Put | Delete)))
}
