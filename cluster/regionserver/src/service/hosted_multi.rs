//! Region actions of a Multi on a region that has coprocessors in the JVM.

use std::sync::Arc;

use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_region::{Mutation, Nonce, ReadMode};
use halcyon_rpc::RpcError;

use super::CallError;
use super::hosted;
use super::multi::{Run, is_put_or_delete};
use super::multi_together::read_back_all;
use super::mutate::read_back;
use crate::calls::nonces::{Once, Turn};
use crate::convert;
use crate::coprocessors::{self, Asked, Operation};
use crate::errors::invalid;
use crate::metrics::op_times::Op;
use crate::regions::region_table::OnlineRegion;

impl Run {
    /// Does a region action on the thread that may wait for coprocessors. *Blocking*.
    pub(super) fn hosted_region_action(
        &mut self,
        online: &Arc<OnlineRegion>,
        action: &pb::RegionAction,
        condition: Option<&pb::Condition>,
    ) {
        let server = self.server.clone();
        // What this call has written before must be seen.
        let settled = self.settle_writes();
        let begun = settled.and_then(|()| Operation::begin(&server, online, Some(&self.terms)));
        let mut operation = match begun {
            Ok(operation) => operation,
            Err(error) => {
                self.skip_cells(action);
                self.reply.fail_action(&error);
                return;
            }
        };
        if condition.is_none() && !action.atomic() {
            return self.hosted_separate(&mut operation, online, action);
        }
        if let Err(error) = self.hosted_together(&mut operation, online, &action.action, condition) {
            self.reply.fail_action(&error);
        }
    }

    fn hosted_separate(
        &mut self,
        operation: &mut Operation,
        online: &Arc<OnlineRegion>,
        region_action: &pb::RegionAction,
    ) {
        let actions = &region_action.action;
        let mut at = 0;
        while let Some(action) = actions.get(at) {
            at += if self.is_over_limit() {
                self.skip_over_limit(action)
            } else if let Some(get) = &action.get {
                self.hosted_get(operation, online, action.index(), get)
            } else if let Some(call) = &action.service_call {
                self.hosted_endpoint(online, action.index(), call)
            } else if let Some(mutation) = &action.mutation {
                if is_put_or_delete(mutation) {
                    self.hosted_batch(operation, online, &actions[at..])
                } else {
                    self.hosted_one(operation, online, action.index(), mutation)
                }
            } else {
                let error = invalid("Error. Action does not specify anything to do");
                self.reply.push_error(action.index(), &error);
                1
            };
        }
        self.reply.end_action(None);
    }

    fn hosted_get(
        &mut self,
        operation: &mut Operation,
        online: &Arc<OnlineRegion>,
        index: u32,
        get: &pb::Get,
    ) -> usize {
        match hosted::read(operation, online, get, false) {
            Ok(found) => {
                self.ops.add(online, Op::Get);
                if found.existence_only {
                    self.reply.push_exists(index, found.exists.unwrap_or(!found.cells.is_empty()));
                } else {
                    self.reply.push_cells(index, &found.cells);
                }
            }
            Err(error) => self.reply.push_error(index, &error),
        }
        1
    }

    fn hosted_endpoint(
        &mut self,
        online: &Arc<OnlineRegion>,
        index: u32,
        call: &pb::CoprocessorServiceCall,
    ) -> usize {
        match self.endpoint(online, index, call, ReadMode::AnyDisk) {
            Ok(count) => count,
            Err(_) => unreachable!("it may use the disk"),
        }
    }

    /// The mutation of an action, checked.
    fn decoded(&mut self, online: &OnlineRegion, proto: &pb::MutationProto) -> Result<Asked, RpcError> {
        let mutation: Mutation = convert::mutation(proto, &mut self.source)?;
        let mutation = self.check_mutation(online, mutation)?;
        Ok(Asked::new(proto, mutation))
    }

    /// The puts and deletes that `actions` begin with.
    fn hosted_batch(
        &mut self,
        operation: &mut Operation,
        online: &Arc<OnlineRegion>,
        actions: &[pb::Action],
    ) -> usize {
        let (mut indices, mut batch, mut count) = (Vec::new(), Vec::new(), 0);
        for action in actions {
            let Some(proto) = action.mutation.as_ref().filter(|proto| is_put_or_delete(proto)) else { break };
            count += 1;
            match self.decoded(online, proto) {
                Ok(asked) => {
                    indices.push(action.index());
                    batch.push(asked);
                }
                Err(error) => self.reply.push_error(action.index(), &error),
            }
        }
        if batch.is_empty() {
            return count;
        }
        let mutations: Vec<Mutation> = batch.iter().map(|asked| asked.mutation.clone()).collect();
        self.ops.add_batch(online, &mutations);
        match coprocessors::mutate(operation, online, batch, false, &mut Once::default(), None) {
            Ok(written) => {
                for (index, written) in indices.into_iter().zip(written) {
                    match written {
                        Ok(_) => self.reply.push_done(index),
                        Err(error) => self.reply.push_error(index, &error),
                    }
                }
            }
            Err(error) => indices.into_iter().for_each(|index| self.reply.push_error(index, &error)),
        }
        self.wrote = true;
        count
    }

    /// An Increment or Append.
    fn hosted_one(
        &mut self,
        operation: &mut Operation,
        online: &Arc<OnlineRegion>,
        index: u32,
        proto: &pb::MutationProto,
    ) -> usize {
        let nonce = Nonce { group: self.nonce_group, nonce: proto.nonce() };
        let asked = self.decoded(online, proto).map_err(CallError::from);
        let done = asked.and_then(|asked| {
            if let Turn::Done(seq) = self.turn(nonce, ReadMode::AnyDisk)? {
                let kept = self.server.coprocessors.answers.of(nonce);
                return kept.map_or_else(|| read_back(online, &asked.mutation, seq, ReadMode::AnyDisk), Ok);
            }
            let mut once = Once::new(&self.server.nonces, nonce);
            let written = coprocessors::mutate(operation, online, vec![asked], true, &mut once, None)?;
            let cells = written.into_iter().next().expect("one for each mutation")?.unwrap_or_default();
            self.server.coprocessors.answers.keep(nonce, &cells);
            once.end(); // hooks may have done it without a write
            self.wrote = true;
            Ok(cells)
        });
        match done.map_err(CallError::into_rpc) {
            Ok(cells) => self.reply.push_cells(index, &cells),
            Err(error) => self.reply.push_error(index, &error),
        }
        1
    }

    fn hosted_together(
        &mut self,
        operation: &mut Operation,
        online: &Arc<OnlineRegion>,
        actions: &[pb::Action],
        condition: Option<&pb::Condition>,
    ) -> Result<(), RpcError> {
        let decoded: Vec<Result<Asked, RpcError>> = actions
            .iter()
            .map(|action| match &action.mutation {
                Some(proto) => self.decoded(online, proto),
                None => Err(invalid("Atomic put and/or delete only, not a Get")),
            })
            .collect(); // every cell is taken before the first error is looked at
        let batch = decoded.into_iter().collect::<Result<Vec<Asked>, RpcError>>()?;
        let nonce = actions.iter().filter_map(|action| action.mutation.as_ref()?.nonce).find(|&n| n != 0);
        let nonce = Nonce { group: self.nonce_group, nonce: nonce.unwrap_or(0) };
        let whose = self.turn(nonce, ReadMode::AnyDisk).map_err(CallError::into_rpc)?;
        if let Turn::Done(seq) = whose {
            let mutations: Vec<Mutation> = batch.into_iter().map(|asked| asked.mutation).collect();
            let cells = match self.server.coprocessors.answers.of(nonce) {
                Some(kept) => Some(kept),
                None => {
                    read_back_all(online, &mutations, seq, ReadMode::AnyDisk).map_err(CallError::into_rpc)?
                }
            };
            self.push_together(actions, cells, Some(true), condition.is_some());
            return Ok(());
        }
        let mut once = Once::new(&self.server.nonces, nonce);
        let (processed, cells) = match condition {
            _ if batch.is_empty() => (true, None),
            Some(condition) => {
                if batch.iter().any(|asked| asked.mutation.row != condition.row) {
                    return Err(invalid("The row of the condition is not the row of every mutation"));
                }
                self.ops.add(online, Op::CheckAndMutate);
                coprocessors::check_and_mutate(operation, online, condition, batch, &mut once, None)?
            }
            None => {
                let mutations: Vec<Mutation> = batch.iter().map(|asked| asked.mutation.clone()).collect();
                self.ops.add_batch(online, &mutations);
                let mut cells: Option<Vec<Cell>> = None;
                for written in coprocessors::mutate(operation, online, batch, true, &mut once, None)? {
                    if let Some(new) = written? {
                        cells.get_or_insert_with(Vec::new).extend(new);
                    }
                }
                (true, cells)
            }
        };
        self.wrote = true;
        if processed {
            if let Some(cells) = &cells {
                self.server.coprocessors.answers.keep(nonce, cells);
            }
            once.end();
        }
        self.push_together(actions, cells, Some(processed), condition.is_some());
        Ok(())
    }
}
