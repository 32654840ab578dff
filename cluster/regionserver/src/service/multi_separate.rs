//! Actions that stand alone, in the order that `multi_order.rs` says.

use std::sync::Arc;

use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_region::{Mutation, MutationKind, Nonce, ReadMode, Region};
use halcyon_rpc::RpcError;

use super::multi::{NeedsDisk, Run, is_put_or_delete};
use super::multi_order::Order;
use super::mutate::read_back;
use super::{CallError, get};
use crate::calls::nonces::{NonceGuard, Turn};
use crate::convert;
use crate::errors::{self, invalid};
use crate::metrics::op_times::{Op, OpTags};
use crate::regions::region_table::OnlineRegion;

impl Run {
    pub(super) fn separate_actions(
        &mut self,
        online: &Arc<OnlineRegion>,
        region_action: &pb::RegionAction,
        mode: ReadMode,
    ) -> Result<(), NeedsDisk> {
        let actions = &region_action.action;
        while let Some(action) = actions.get(self.action_at) {
            let done = if self.decoded.is_none() && self.is_over_limit() {
                self.skip_over_limit(action)
            } else if let Some(get) = &action.get {
                self.get_in_turn(online, actions, get, mode)?
            } else if let Some(call) = &action.service_call {
                self.deferred_gets(online, actions, mode)?;
                self.endpoint(online, action.index(), call, mode)?
            } else if let Some(mutation) = &action.mutation {
                if self.order.comes_behind_get(mutation) {
                    self.deferred_gets(online, actions, mode)?;
                }
                if is_put_or_delete(mutation) {
                    self.batch(online, actions, mode)?
                } else {
                    self.read_and_write(online, action.index(), mutation, mode)?
                }
            } else {
                self.deferred_gets(online, actions, mode)?;
                self.reply
                    .push_error(action.index(), &invalid("Error. Action does not specify anything to do"));
                1
            };
            self.action_at += done;
        }
        self.deferred_gets(online, actions, mode)?;
        self.order = Order::default();
        self.reply.end_action(None);
        Ok(())
    }

    /// Does the get at hand, or puts it off until what was written to its row before can be read.
    fn get_in_turn(
        &mut self,
        online: &OnlineRegion,
        actions: &[pb::Action],
        get: &pb::Get,
        mode: ReadMode,
    ) -> Result<usize, NeedsDisk> {
        let at = self.action_at;
        if self.order.depends(actions, at, &get.row) {
            self.order.defer(actions, at, &get.row);
            return Ok(1);
        }
        if self.has_regions_twice {
            self.see_own_writes(mode)?; // an earlier region action may have written the row
        }
        self.get(online, actions[at].index(), get, mode)
    }

    /// Does the gets that were put off. One wait for the log serves all of them.
    fn deferred_gets(
        &mut self,
        online: &OnlineRegion,
        actions: &[pb::Action],
        mode: ReadMode,
    ) -> Result<(), NeedsDisk> {
        if self.order.first_deferred().is_none() {
            return Ok(());
        }
        if self.order.must_wait() || self.has_regions_twice {
            self.see_own_writes(mode)?;
            self.order.note_seen(self.action_at);
        }
        while let Some(at) = self.order.first_deferred() {
            let action = &actions[at];
            if self.is_over_limit() {
                self.push_over_limit(action);
            } else {
                let get = action.get.as_ref().expect("gets alone are put off");
                self.get(online, action.index(), get, mode)?;
            }
            self.order.note_first_done();
        }
        Ok(())
    }

    fn get(
        &mut self,
        online: &OnlineRegion,
        index: u32,
        get: &pb::Get,
        mode: ReadMode,
    ) -> Result<usize, NeedsDisk> {
        match get::read(online, get, mode, false) {
            Ok(found) => {
                self.ops.add(online, Op::Get);
                self.reply.set_metrics(found.metrics);
                if found.existence_only {
                    self.reply.push_exists(index, !found.cells.is_empty());
                } else {
                    self.reply.push_cells(index, &found.cells);
                }
            }
            Err(CallError::NeedsDisk) => return Err(NeedsDisk),
            Err(CallError::Failed(error)) => self.reply.push_error(index, &error),
        }
        Ok(1)
    }

    /// Does puts and deletes as one batch, from the action at hand on, and puts off the gets between them. Returns how many
    /// actions that were.
    fn batch(
        &mut self,
        online: &Arc<OnlineRegion>,
        actions: &[pb::Action],
        mode: ReadMode,
    ) -> Result<usize, NeedsDisk> {
        if self.has_made_many(mode) {
            return Err(NeedsDisk);
        }
        let from = self.action_at;
        let end = self.order.batch_end(actions, from);
        let mutations =
            actions[from..end].iter().filter_map(|action| Some((action, action.mutation.as_ref()?)));
        let (mut batch, mut failed) = (Vec::with_capacity(end - from), Vec::new());
        let mut note = |at: usize, decoded: Result<Mutation, RpcError>| match decoded {
            Ok(mutation) => batch.push(mutation),
            Err(error) => failed.push((at, error)),
        };
        match self.decoded.take() {
            Some(decoded) => decoded.into_iter().enumerate().for_each(|(at, decoded)| note(at, decoded)),
            None => {
                for (at, (_, mutation)) in mutations.clone().enumerate() {
                    let decoded = convert::mutation(mutation, &mut self.source);
                    note(at, decoded.and_then(|decoded| self.check_mutation(online, decoded)));
                }
            }
        }
        let has_gets = batch.len() + failed.len() < end - from;
        let reads = Region::needs_reads(&batch);
        // A part of such a batch might be done when the rest turns out to need the disk.
        if reads && mode == ReadMode::CacheOnly {
            self.decoded = Some(put_together(batch, failed));
            return Err(NeedsDisk);
        }
        let mut ops = OpTags::default();
        ops.add_batch(online, &batch);
        let outcome = match mode {
            _ if batch.is_empty() => None,
            ReadMode::CacheOnly => Some(online.region.mutate_now(batch)),
            ReadMode::AnyDisk => Some(online.region.mutate(batch, false, Nonce::default(), mode)),
        };
        let outcome = match outcome.transpose() {
            Ok(Some(outcome)) if !outcome.left.is_empty() => {
                self.decoded = Some(put_together(outcome.left, failed)); // another write has a row of theirs
                return Err(NeedsDisk);
            }
            Ok(outcome) => Ok(outcome.map_or_else(Vec::new, |outcome| {
                self.new_bytes += outcome.new_bytes;
                self.tickets.push(outcome.ticket);
                self.unseen = true;
                self.wrote = true;
                outcome.results
            })),
            Err(error) => Err(error),
        };
        self.ops.append(ops);
        let mut failed = failed.into_iter().peekable();
        self.server.after_write(online);
        let (results, whole) = match outcome {
            Ok(results) => (results, None),
            Err(error) => (Vec::new(), Some(errors::to_rpc(&error))),
        };
        let mut results = results.into_iter();
        for (at, (action, _)) in mutations.enumerate() {
            let index = action.index();
            if let Some((_, error)) = failed.next_if(|(failed_at, _)| *failed_at == at) {
                self.reply.push_error(index, &error);
                continue;
            }
            match (&whole, results.next()) {
                (Some(error), _) => self.reply.push_error(index, error),
                (None, Some(Err(error))) => self.reply.push_error(index, &errors::to_rpc(&error)),
                (None, _) => self.reply.push_done(index),
            }
        }
        let gets = if has_gets { from..end } else { end..end };
        for at in gets {
            if let Some(get) = &actions[at].get {
                self.order.defer(actions, at, &get.row);
            }
        }
        Ok(end - from)
    }

    /// An Increment or Append.
    fn read_and_write(
        &mut self,
        online: &Arc<OnlineRegion>,
        index: u32,
        proto: &pb::MutationProto,
        mode: ReadMode,
    ) -> Result<usize, NeedsDisk> {
        let decoded = self.decoded.take().and_then(|mut decoded| decoded.pop());
        let decoded = decoded.unwrap_or_else(|| {
            let decoded = convert::mutation(proto, &mut self.source);
            decoded.and_then(|mutation| self.check_mutation(online, mutation))
        });
        let mutation = match decoded {
            Ok(mutation) => mutation,
            Err(error) => {
                self.reply.push_error(index, &error);
                return Ok(1);
            }
        };
        let nonce = Nonce { group: self.nonce_group, nonce: proto.nonce() };
        match self.read_and_write_once(online, &mutation, nonce, mode) {
            Ok(cells) => self.reply.push_cells(index, &cells),
            Err(CallError::NeedsDisk) => {
                self.decoded = Some(vec![Ok(mutation)]);
                return Err(NeedsDisk);
            }
            Err(CallError::Failed(error)) => self.reply.push_error(index, &error),
        }
        self.server.after_write(online);
        Ok(1)
    }

    fn read_and_write_once(
        &mut self,
        online: &Arc<OnlineRegion>,
        mutation: &Mutation,
        nonce: Nonce,
        mode: ReadMode,
    ) -> Result<Vec<Cell>, CallError> {
        self.may_make_more(online, mode)?;
        if let Turn::Done(seq) = self.turn(nonce, mode)? {
            return read_back(online, mutation, seq, mode);
        }
        let guard = (nonce.nonce != 0).then(|| NonceGuard::new(&self.server.nonces, nonce));
        let mut outcome = online.region.mutate(vec![mutation.clone()], false, nonce, mode)?;
        self.new_bytes += outcome.new_bytes;
        let cells = outcome.results.pop().transpose()?.flatten();
        let is_increment = mutation.kind == MutationKind::Increment;
        self.ops.add(online, if is_increment { Op::Increment } else { Op::Append });
        self.guards.extend(guard.map(|guard| guard.wrote(outcome.ticket.seq())));
        self.tickets.push(outcome.ticket);
        self.unseen = true;
        self.wrote = true;
        Ok(cells.unwrap_or_default())
    }
}

/// Mutations and errors in the order in which they were decoded.
fn put_together<T>(batch: Vec<T>, failed: Vec<(usize, RpcError)>) -> Vec<Result<T, RpcError>> {
    let mut together = Vec::with_capacity(batch.len() + failed.len());
    let mut batch = batch.into_iter().map(Ok);
    for (at, error) in failed {
        let before = at - together.len();
        together.extend(batch.by_ref().take(before));
        together.push(Err(error));
    }
    together.extend(batch);
    together
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_stand_where_their_mutations_stood() {
        let failed = [0, 2, 3, 6].map(|at| (at, invalid(at.to_string())));
        let together = put_together(vec![1, 4, 5, 7], failed.to_vec());
        let places = together.into_iter().map(|it| it.unwrap_or_else(|error| error.message.parse().unwrap()));
        assert_eq!(places.collect::<Vec<i32>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(put_together(vec![0, 1], Vec::new()).len(), 2);
    }
}
