//! Region actions that are done together or not at all: atomic ones, and those under a condition.

use std::sync::Arc;

use halcyon_cell::{Cell, SeqId};
use halcyon_proto::pb;
use halcyon_region::{Mutation, MutationResult, Nonce, ReadMode, WriteTicket};
use halcyon_rpc::RpcError;

use super::CallError;
use super::multi::Run;
use super::mutate::read_back;
use crate::calls::nonces::{NonceGuard, Turn};
use crate::convert;
use crate::errors::invalid;
use crate::metrics::op_times::{Op, OpTags};
use crate::regions::region_table::OnlineRegion;

impl Run {
    /// Does a region action as one. `NeedsDisk` leaves it to be done again.
    pub(super) fn together(
        &mut self,
        online: &Arc<OnlineRegion>,
        region_action: &pb::RegionAction,
        condition: Option<&pb::Condition>,
        mode: ReadMode,
    ) -> Result<(), CallError> {
        let actions = &region_action.action;
        let batch = self.decode_all(online, actions)?;
        let nonce = actions.iter().filter_map(|action| action.mutation.as_ref()?.nonce).find(|&n| n != 0);
        let nonce = Nonce { group: self.nonce_group, nonce: nonce.unwrap_or(0) };
        let guard = match self.turn(nonce, mode) {
            Ok(Turn::Done(seq)) => {
                let cells = match read_back_all(online, &batch, seq, mode) {
                    Err(CallError::NeedsDisk) => {
                        self.decoded = Some(batch.into_iter().map(Ok).collect());
                        return Err(CallError::NeedsDisk);
                    }
                    cells => cells?,
                };
                self.push_together(actions, cells, Some(true), condition.is_some());
                return Ok(());
            }
            Ok(_) => (nonce.nonce != 0).then(|| NonceGuard::new(&self.server.nonces, nonce)),
            Err(error) => {
                self.decoded = Some(batch.into_iter().map(Ok).collect());
                return Err(error);
            }
        };
        // What it reads may be on a disk, and its rows may be held by another write.
        let kept = (mode == ReadMode::CacheOnly).then(|| batch.clone());
        let done = self.do_together(online, batch, condition, nonce, mode);
        if let Err(CallError::NeedsDisk) = &done {
            self.decoded = kept.map(|kept| kept.into_iter().map(Ok).collect());
        }
        let (processed, cells) = done?;
        let written = self.tickets.last().map_or(SeqId::ZERO, WriteTicket::seq);
        // A condition that did not hold is looked at again when the call is repeated.
        self.guards.extend(guard.filter(|_| processed).map(|guard| guard.wrote(written)));
        self.push_together(actions, cells, Some(processed), condition.is_some());
        Ok(())
    }

    fn decode_all(
        &mut self,
        online: &OnlineRegion,
        actions: &[pb::Action],
    ) -> Result<Vec<Mutation>, RpcError> {
        let decoded = match self.decoded.take() {
            Some(decoded) => return decoded.into_iter().collect(),
            None => actions
                .iter()
                .map(|action| match &action.mutation {
                    Some(mutation) => convert::mutation(mutation, &mut self.source),
                    None => Err(invalid("Atomic put and/or delete only, not a Get")),
                })
                .collect::<Vec<_>>(), // every cell is taken before the first error is looked at
        };
        decoded
            .into_iter()
            .map(|decoded| decoded.and_then(|mutation| self.check_mutation(online, mutation)))
            .collect()
    }

    fn do_together(
        &mut self,
        online: &Arc<OnlineRegion>,
        batch: Vec<Mutation>,
        condition: Option<&pb::Condition>,
        nonce: Nonce,
        mode: ReadMode,
    ) -> Result<(bool, Option<Vec<Cell>>), CallError> {
        if batch.is_empty() {
            return Ok((true, None));
        }
        // A Delete without cells is one of a row.
        if batch.iter().any(|mutation| mutation.kind.returns_cells() || mutation.cells.is_empty()) {
            self.may_make_more(online, mode)?;
        }
        if let Some(condition) = condition {
            let condition = convert::condition(condition)?;
            if batch.iter().any(|mutation| mutation.row != condition.row) {
                return Err(invalid("The row of the condition is not the row of every mutation").into());
            }
            let outcome = online.region.check_and_mutate(condition, batch, nonce, mode)?;
            self.new_bytes += outcome.new_bytes;
            self.ops.add(online, Op::CheckAndMutate);
            self.tickets.push(outcome.ticket);
            self.unseen = true;
            self.wrote = true;
            return Ok((outcome.processed, outcome.result));
        }
        let mut ops = OpTags::default();
        ops.add_batch(online, &batch);
        let outcome = online.region.mutate(batch, true, nonce, mode)?;
        self.new_bytes += outcome.new_bytes;
        self.ops.append(ops);
        let cells = merge_results(outcome.results)?;
        self.tickets.push(outcome.ticket);
        self.unseen = true;
        self.wrote = true;
        Ok((true, cells))
    }

    /// The entries of a region action that was done as one: the cells of all of it stand with the first.
    pub(super) fn push_together(
        &mut self,
        actions: &[pb::Action],
        cells: Option<Vec<Cell>>,
        processed: Option<bool>,
        conditional: bool,
    ) {
        for index in 0..actions.len() as u32 {
            match &cells {
                Some(cells) if index == 0 => self.reply.push_inline(index, cells),
                _ => self.reply.push_place(index),
            }
        }
        let old_form = self.old_condition.is_some();
        self.reply.end_action(if old_form { None } else { processed });
        if old_form || !conditional {
            self.processed = processed;
        }
    }
}

/// The answer to mutations that were done together by an earlier call with their nonce: the new cells of its Increments and
/// Appends, as `merge_results` puts them together. Errors as for [`read_back`].
pub(super) fn read_back_all(
    online: &OnlineRegion,
    batch: &[Mutation],
    seq: SeqId,
    mode: ReadMode,
) -> Result<Option<Vec<Cell>>, CallError> {
    let mut merged: Option<Vec<Cell>> = None;
    for mutation in batch.iter().filter(|mutation| mutation.kind.returns_cells()) {
        merged.get_or_insert_with(Vec::new).extend(read_back(online, mutation, seq, mode)?);
    }
    Ok(merged)
}

/// The new cells of all Increments and Appends of an atomic batch, in the order of the mutations as in HBase; `None` if
/// there was none of them.
fn merge_results(results: Vec<MutationResult>) -> halcyon_cell::Result<Option<Vec<Cell>>> {
    let mut merged: Option<Vec<Cell>> = None;
    for result in results {
        if let Some(cells) = result? {
            merged.get_or_insert_with(Vec::new).extend(cells);
        }
    }
    Ok(merged)
}
