//! Writes of a region with coprocessors, in HBase's order of hooks (`HRegion.doMiniBatchMutate`, `checkAndMutateInternal`).
//!
//! ```text
//! PRE_MUTATE    prePut, preDelete, preIncrement, preAppend     may change a mutation, or do it
//! rows locked   (row_locks.rs)
//! PRE_BATCH     preBatchMutate and the hooks "after row lock"  may also add mutations
//! the write     durable and published
//! POST_MUTATE   postBatchMutate, postPut and its like, postBatchMutateIndispensably
//! rows released
//! ```
//!
//! A call is made only where a class overrides a hook of its kind. Where only one of the first two is overridden they are one call.
//!
//! HBase writes the server's time into the mutations that it is handed, and the hooks behind a write, and a coprocessor that has written
//! through its region, find it there. So the JVM is told the cells as they were written, in `cell` of each mutation: of a Put or
//! Delete all of them with those that hooks have added, of an Increment or Append new ones of columns that had none.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, LATEST_TIMESTAMP};
use halcyon_proto::coprocessor::{Frame, Method, Mutation as Part, mutation::Status};
use halcyon_proto::pb;
use halcyon_region::{CellsWritten, Mutation, MutationKind, Nonce, ReadMode};
use halcyon_rpc::RpcError;
use prost::Message;

use super::RegionCoprocessors;
use super::asked::{garbage, part_of};
use super::frames;
use super::hooks::Hooks;
use super::operation::Operation;
use crate::calls::nonces::Once;
use crate::convert::{self, CellSource};
use crate::errors;
use crate::regions::region_table::OnlineRegion;

/// A mutation as a client has sent it, with its attributes, and as the region takes it.
pub(crate) struct Asked {
    pub proto: pb::MutationProto,
    pub mutation: Mutation,
}

/// What became of a mutation: the new cells of an Increment or Append.
pub(crate) type Written = Result<Option<Vec<Cell>>, RpcError>;

impl Asked {
    pub(crate) fn new(proto: &pb::MutationProto, mutation: Mutation) -> Asked {
        Asked { proto: pb::MutationProto { column_value: Vec::new(), ..proto.clone() }, mutation }
    }

    fn part(&self) -> Part {
        let proto = pb::MutationProto {
            row: Some(self.mutation.row.clone()),
            associated_cell_count: Some(self.mutation.cells.len() as i32),
            ..self.proto.clone()
        };
        Part {
            message: Some(Bytes::from(proto.encode_to_vec())),
            cell: self.mutation.cells.iter().map(|cell| cell.bytes().clone()).collect(),
            ..Part::default()
        }
    }

    fn is_shared(&self) -> bool {
        matches!(self.mutation.kind, MutationKind::Put | MutationKind::Delete)
    }
}

/// A mutation that came from the JVM.
pub(super) fn asked_of(operation: &mut Operation, part: &Part) -> Result<Asked, RpcError> {
    let message = part.message.clone().ok_or_else(|| garbage("a mutation without its message"));
    let message = operation.checked(message)?;
    let proto = pb::MutationProto::decode(message).map_err(|error| garbage(format!("no mutation: {error}")));
    let proto = operation.checked(proto)?;
    let cells = operation.checked(frames::parse(&part.cell))?;
    let mutation = convert::mutation(&proto, &mut CellSource::new(cells))?;
    Ok(Asked::new(&proto, mutation))
}

/// A batch on its way through the hooks.
struct Batch {
    asked: Vec<Asked>,
    /// Set where a hook has decided, and later where the write has.
    done: Vec<Option<Written>>,
    /// What hooks add, and to which mutation.
    added: Vec<(usize, Mutation)>,
    /// As they were written, if the JVM is to know.
    cells: Option<CellsWritten>,
}

impl Batch {
    fn new(asked: Vec<Asked>, tells: bool) -> Batch {
        let done = asked.iter().map(|_| None).collect();
        let cells = tells.then(|| vec![Vec::new(); asked.len()]);
        Batch { asked, done, added: Vec::new(), cells }
    }

    /// Takes over what hooks have made of the mutations.
    fn take(&mut self, operation: &mut Operation, answer: &Frame) -> Result<(), RpcError> {
        if answer.mutation.len() != self.asked.len() {
            let text = format!("{} mutations where {} were sent", answer.mutation.len(), self.asked.len());
            return operation.checked(Err(garbage(text)));
        }
        for (at, part) in answer.mutation.iter().enumerate() {
            match part.status() {
                Status::Run => {
                    if part.message.is_some() {
                        self.asked[at] = asked_of(operation, part)?;
                    }
                    for added in &part.added {
                        self.added.push((at, asked_of(operation, added)?.mutation));
                    }
                }
                Status::Done | Status::Failed => self.done[at] = Some(outcome(operation, part)?),
            }
        }
        Ok(())
    }

    fn lock(
        &self,
        operation: &mut Operation,
        coprocessors: &Arc<RegionCoprocessors>,
        atomic: bool,
    ) -> Result<Locked, RpcError> {
        let open = self.asked.iter().zip(&self.done).filter(|(_, done)| done.is_none());
        let mut rows: Vec<(Bytes, bool)> =
            open.map(|(asked, _)| (asked.mutation.row.clone(), asked.is_shared() && !atomic)).collect();
        rows.sort();
        rows.dedup_by(|next, first| next.0 == first.0); // `false`, which is exclusive, comes first
        let mut locked = Locked { coprocessors: coprocessors.clone(), rows: Vec::new() };
        for (row, shared) in rows {
            match operation.lock_row(coprocessors, &row, shared) {
                Ok(()) => locked.rows.push((row, shared)),
                Err(error) => {
                    locked.release(operation);
                    return Err(error);
                }
            }
        }
        Ok(locked)
    }

    /// Writes what is left. *Blocking*, until it is durable.
    fn write(
        &mut self,
        operation: &Operation,
        online: &Arc<OnlineRegion>,
        atomic: bool,
        once: &mut Once,
    ) -> Result<(), RpcError> {
        let open: Vec<usize> = (0..self.asked.len()).filter(|&at| self.done[at].is_none()).collect();
        let mut mutations: Vec<Mutation> = open.iter().map(|&at| self.asked[at].mutation.clone()).collect();
        if mutations.is_empty() {
            return Ok(());
        }
        let added = std::mem::take(&mut self.added);
        let is_one_row = mutations.iter().all(|mutation| mutation.row == mutations[0].row);
        let (region, server) = (&online.region, &operation.server);
        let failed = |error: halcyon_cell::Error| errors::to_rpc(&error);
        let (mode, nonce) = (ReadMode::AnyDisk, once.nonce);
        let mut cells = CellsWritten::new();
        let told = self.cells.is_some().then_some(&mut cells);
        let added_to: Vec<usize> = added.iter().map(|(at, _)| *at).collect();
        let ticket = if added.is_empty() && (!atomic || is_one_row) {
            let outcome = region.mutate_telling(mutations, atomic, nonce, mode, told).map_err(failed)?;
            for (&at, result) in open.iter().zip(outcome.results) {
                self.done[at] = Some(result.map_err(failed));
            }
            outcome.ticket
        } else {
            // Together with what hooks have added, or of several rows: one entry of the log.
            mutations.extend(added.into_iter().map(|(_, mutation)| mutation));
            let outcome = region.mutate_rows_telling(Vec::new(), mutations, nonce, mode, told);
            let outcome = outcome.map_err(failed)?;
            let mut results = outcome.result;
            for &at in &open {
                let returns = self.asked[at].mutation.kind.returns_cells();
                self.done[at] = Some(Ok(if returns { results.take() } else { None }));
            }
            outcome.ticket
        };
        self.note_cells(&open, &added_to, cells);
        server.after_write(online);
        server.drive_logs();
        let is_done = open.iter().all(|&at| matches!(self.done[at], Some(Ok(_))));
        if is_done {
            once.wrote(ticket.seq());
        }
        ticket.wait().map_err(failed)?;
        if is_done {
            once.durable();
        }
        Ok(())
    }

    /// Keeps the cells of these mutations, and of those that were added to some. HBase puts both together; what an Increment or Append
    /// makes of its own is in no mutation, so neither is what was added to it.
    fn note_cells(&mut self, open: &[usize], added: &[usize], cells: CellsWritten) {
        let Some(told) = &mut self.cells else { return };
        assert!(
            cells.len() == open.len() + added.len(),
            "{} mutations and {} added ones were written, and {} told of",
            open.len(),
            added.len(),
            cells.len()
        );
        let mut cells = cells.into_iter();
        open.iter().zip(&mut cells).for_each(|(&at, cells)| told[at] = cells);
        for (&at, cells) in added.iter().zip(cells) {
            if self.asked[at].is_shared() {
                told[at].extend(cells);
            }
        }
    }

    /// Cells of a mutation as they were written, if they are others than the JVM has.
    fn changed_cells(&self, at: usize) -> Option<&Vec<Cell>> {
        let (told, asked) = (&self.cells.as_ref()?[at], &self.asked[at].mutation.cells);
        let is_same =
            told.len() == asked.len() && told.iter().zip(asked).all(|(a, b)| a.bytes() == b.bytes());
        (!is_same).then_some(told)
    }

    fn into_written(self) -> Vec<Written> {
        let decided = |done: Option<Written>| done.expect("every mutation was done by a hook or written");
        self.done.into_iter().map(decided).collect()
    }
}

/// Rows of a batch that are locked.
struct Locked {
    coprocessors: Arc<RegionCoprocessors>,
    rows: Vec<(Bytes, bool)>,
}

impl Locked {
    fn release(&mut self, operation: &Operation) {
        for (row, shared) in self.rows.drain(..) {
            operation.unlock_row(&self.coprocessors, &row, shared);
        }
    }
}

fn outcome(operation: &mut Operation, part: &Part) -> Result<Written, RpcError> {
    if part.status() == Status::Failed {
        let failure = part.failure.as_ref().ok_or_else(|| garbage("a failure without its exception"));
        return operation.checked(failure).map(|failure| Err(frames::to_rpc(failure)));
    }
    let cells = part.result.as_ref().map(|cells| frames::parse(&cells.cell)).transpose();
    operation.checked(cells).map(Ok)
}

/// Carries out a batch with the hooks of its region. *Blocking*, until what was written is durable. An error is one of the whole batch.
/// `told` gets the cells as they were written. `once` knows whether something was written, also after an error of a hook behind that.
pub(crate) fn mutate(
    operation: &mut Operation,
    online: &Arc<OnlineRegion>,
    asked: Vec<Asked>,
    atomic: bool,
    once: &mut Once,
    told: Option<&mut CellsWritten>,
) -> Result<Vec<Written>, RpcError> {
    let coprocessors = online.coprocessors.clone().expect("a region with coprocessors");
    let hooks = operation.hooks(&coprocessors)?;
    let mut batch = Batch::new(asked, told.is_some() || hooks.any(Hooks::POST_BATCH.or(Hooks::POST_MUTATE)));
    let begun = hooks.any(Hooks::WRITE);
    let both = hooks.any(Hooks::PRE_MUTATE) && hooks.any(Hooks::PRE_BATCH);
    let locks_first = !hooks.any(Hooks::PRE_MUTATE);
    let mut locked = None;
    if locks_first {
        locked = Some(batch.lock(operation, &coprocessors, atomic)?);
    }
    let mut is_begun = false;
    let ended = begin(operation, &coprocessors, &mut batch, begun, !both && hooks.any(Hooks::PRE_BATCH));
    let ended = ended.and_then(|()| {
        // From now on the JVM keeps the batch, until it is told of the end or a batch hook fails.
        is_begun = begun && hooks.any(Hooks::PRE_BATCH.or(Hooks::POST_BATCH).or(Hooks::POST_MUTATE));
        if !locks_first {
            locked = Some(batch.lock(operation, &coprocessors, atomic)?);
        }
        if both {
            is_begun = false;
            let answer = operation.call(frames::call(Method::PreBatch, coprocessors.number))?;
            is_begun = true;
            batch.take(operation, &answer)?;
        }
        batch.write(operation, online, atomic, once)
    });
    let ended = if is_begun { end(operation, &coprocessors, &mut batch, ended) } else { ended };
    if let Some(mut locked) = locked {
        locked.release(operation);
    }
    ended?;
    if let (Some(told), Some(cells)) = (told, batch.cells.take()) {
        *told = cells;
    }
    Ok(batch.into_written())
}

fn begin(
    operation: &mut Operation,
    coprocessors: &RegionCoprocessors,
    batch: &mut Batch,
    begun: bool,
    with_batch_hooks: bool,
) -> Result<(), RpcError> {
    if !begun {
        return Ok(());
    }
    let frame = Frame {
        mutation: batch.asked.iter().map(Asked::part).collect(),
        flag: with_batch_hooks.then_some(true),
        ..frames::call(Method::PreMutate, coprocessors.number)
    };
    let answer = operation.call(frame)?;
    batch.take(operation, &answer)
}

/// Runs the hooks behind a write, or behind one that has failed.
fn end(
    operation: &mut Operation,
    coprocessors: &RegionCoprocessors,
    batch: &mut Batch,
    ended: Result<(), RpcError>,
) -> Result<(), RpcError> {
    let part = |(at, done): (usize, &Option<Written>)| match (done, &ended) {
        (Some(written), _) => part_of(written.clone(), batch.changed_cells(at)),
        (None, Err(error)) => part_of(Err(error.clone()), None),
        (None, Ok(())) => Part::default(),
    };
    let frame = Frame {
        mutation: batch.done.iter().enumerate().map(part).collect(),
        flag: ended.is_ok().then_some(true),
        ..frames::call(Method::PostMutate, coprocessors.number)
    };
    let answer = operation.call(frame);
    ended?;
    let answer = answer?;
    for (at, part) in answer.mutation.iter().enumerate().take(batch.done.len()) {
        // A hook may have changed what an Increment or Append returns.
        if matches!(batch.done[at], Some(Ok(_))) {
            batch.done[at] = Some(outcome(operation, part)?);
        }
    }
    Ok(())
}

/// Carries out mutations of one row if a condition holds. *Blocking*, until what was written is durable. `told` gets the cells as they
/// were written, if they were.
pub(crate) fn check_and_mutate(
    operation: &mut Operation,
    online: &Arc<OnlineRegion>,
    condition: &pb::Condition,
    mut asked: Vec<Asked>,
    once: &mut Once,
    told: Option<&mut CellsWritten>,
) -> Result<(bool, Option<Vec<Cell>>), RpcError> {
    let coprocessors = online.coprocessors.clone().expect("a region with coprocessors");
    let hooks = operation.hooks(&coprocessors)?;
    let has_hooks = hooks.any(Hooks::CHECK);
    if has_hooks {
        let frame = Frame {
            condition: Some(Bytes::from(condition.encode_to_vec())),
            mutation: asked.iter().map(Asked::part).collect(),
            ..frames::call(Method::PreCheck, coprocessors.number)
        };
        let answer = operation.call(frame)?;
        if !answer.more() {
            return checked(operation, &answer);
        }
        take_changes(operation, &mut asked, &answer)?;
    }
    let mut cells_told = CellsWritten::new();
    let tells = (told.is_some() || hooks.any(Hooks::POST_CHECK)).then_some(&mut cells_told);
    operation.lock_row(&coprocessors, &condition.row, false)?;
    let done = check_locked(operation, online, condition, asked, once, tells);
    operation.unlock_row(&coprocessors, &condition.row, false);
    let (processed, cells) = done?;
    let mutation = cells_told.iter().map(|told| part_of(Ok(None), Some(told))).collect();
    if let Some(told) = told {
        *told = cells_told;
    }
    if !has_hooks {
        return Ok((processed, cells));
    }
    let frame = Frame {
        flag: processed.then_some(true),
        mutation,
        cells: cells.iter().map(frames::cells_of).collect(),
        ..frames::call(Method::PostCheck, coprocessors.number)
    };
    let answer = operation.call(frame)?;
    checked(operation, &answer)
}

/// Takes over what hooks of a check have made of its mutations.
fn take_changes(operation: &mut Operation, asked: &mut [Asked], answer: &Frame) -> Result<(), RpcError> {
    if answer.mutation.len() > asked.len() {
        let text = format!("{} mutations where {} were sent", answer.mutation.len(), asked.len());
        return operation.checked(Err(garbage(text)));
    }
    for (asked, part) in asked.iter_mut().zip(&answer.mutation) {
        if part.message.is_some() {
            *asked = asked_of(operation, part)?;
        }
    }
    Ok(())
}

/// Puts behind a condition are not older than the cell that it has looked at, whose timestamp may be ahead of the clock: they would be hidden
/// by it. The others get the server's time when they are written.
pub(crate) fn put_not_before(asked: &mut [Asked], checked_ms: Option<i64>, now_ms: i64) {
    let Some(ahead_ms) = checked_ms.filter(|&checked_ms| checked_ms > now_ms) else { return };
    let puts = asked.iter_mut().filter(|asked| asked.mutation.kind == MutationKind::Put);
    for cell in puts.flat_map(|asked| &mut asked.mutation.cells) {
        if cell.timestamp() == LATEST_TIMESTAMP {
            *cell = cell.with_timestamp(ahead_ms);
        }
    }
}

fn checked(operation: &mut Operation, answer: &Frame) -> Result<(bool, Option<Vec<Cell>>), RpcError> {
    let cells = if answer.cells.is_empty() { None } else { Some(operation.checked(frames::first(answer))?) };
    Ok((answer.flag(), cells))
}

fn check_locked(
    operation: &mut Operation,
    online: &Arc<OnlineRegion>,
    condition: &pb::Condition,
    mut asked: Vec<Asked>,
    once: &mut Once,
    told: Option<&mut CellsWritten>,
) -> Result<(bool, Option<Vec<Cell>>), RpcError> {
    let coprocessors = online.coprocessors.clone().expect("a region with coprocessors");
    if operation.hooks(&coprocessors)?.any(Hooks::PRE_CHECK_LOCKED) {
        let answer = operation.call(frames::call(Method::PreCheckLocked, coprocessors.number))?;
        if !answer.more() {
            return checked(operation, &answer);
        }
        take_changes(operation, &mut asked, &answer)?;
    }
    // The lock keeps other writers of the row away until the mutations are written.
    let condition = convert::condition(condition)?;
    let failed = |error: halcyon_cell::Error| errors::to_rpc(&error);
    let tested = online.region.mutate_rows(vec![condition], Vec::new(), Nonce::default(), ReadMode::AnyDisk);
    let tested = tested.map_err(failed)?;
    tested.ticket.wait().map_err(failed)?;
    if !tested.processed {
        return Ok((false, None));
    }
    put_not_before(&mut asked, tested.checked_ms, operation.server.env.clock.now_ms());
    let mut cells: Option<Vec<Cell>> = None;
    for written in mutate(operation, online, asked, true, once, told)? {
        if let Some(new) = written? {
            cells.get_or_insert_with(Vec::new).extend(new);
        }
    }
    Ok((true, cells))
}
