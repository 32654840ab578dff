//! Batches: actions of many rows, sent to each server as one `Multi`.
//!
//! HBase: `AsyncBatchRpcRetryingCaller`. An action that a server refused is tried again; one that was executed is not sent
//! twice. Appends and increments keep their nonce from attempt to attempt.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::CellBlock;
use tokio::time::Instant;

use crate::cluster::{Server, random_number};
use crate::locations::{Location, Seek};
use crate::request::check_row;
use crate::retry::{Advice, advice};
use crate::table::{ActionResult, atomic_action, decode, plain_cell};
use crate::{
    Answer, Append, CheckAndMutate, ClientError, Delete, Get, Increment, Mutation, Put, Row, RowMutations,
    Table,
};

/// One action of a batch.
#[derive(Clone, Debug)]
pub enum Action {
    /// A read of one row.
    Get(Get),
    /// A put, delete, append or increment.
    Mutate(Mutation),
    /// Mutations of one row that happen together.
    MutateRow(RowMutations),
    /// Mutations of one row that happen together if a condition on the row holds.
    Check(CheckAndMutate),
}

impl Action {
    fn row(&self) -> &[u8] {
        match self {
            Action::Get(get) => get.row(),
            Action::Mutate(mutation) => mutation.row(),
            Action::MutateRow(mutations) => mutations.row(),
            Action::Check(check) => check.key(),
        }
    }

    fn check(&self) -> Result<(), ClientError> {
        match self {
            Action::Get(get) => check_row(get.row()),
            Action::Mutate(mutation) => mutation.check(),
            Action::MutateRow(mutations) => mutations.check(),
            Action::Check(check) => check.check(),
        }
    }

    /// Whether it is a part of a region's action of its own.
    fn is_atomic(&self) -> bool {
        matches!(self, Action::MutateRow(_) | Action::Check(_))
    }

    fn needs_nonce(&self) -> bool {
        match self {
            Action::Get(_) => false,
            Action::Mutate(mutation) => mutation.needs_nonce(),
            Action::MutateRow(_) | Action::Check(_) => true,
        }
    }

    fn cells(&self) -> &[Cell] {
        match self {
            Action::Mutate(mutation) => mutation.cells(),
            _ => &[],
        }
    }
}

macro_rules! into_action {
    ($($name:ident)*) => {
        $(impl From<$name> for Action {
            fn from(built: $name) -> Action {
                Action::Mutate(built.into())
            }
        })*
    };
}

into_action!(Put Delete Append Increment Mutation);

impl From<Get> for Action {
    fn from(get: Get) -> Action {
        Action::Get(get)
    }
}

impl From<RowMutations> for Action {
    fn from(mutations: RowMutations) -> Action {
        Action::MutateRow(mutations)
    }
}

impl From<CheckAndMutate> for Action {
    fn from(check: CheckAndMutate) -> Action {
        Action::Check(check)
    }
}

/// Actions of one region that are one `RegionAction`: plain ones together, an atomic one alone.
struct Group {
    location: Arc<Location>,
    indexes: Vec<usize>,
    is_atomic: bool,
}

/// Actions of one server.
struct Share {
    server: Arc<Server>,
    groups: Vec<Group>,
}

/// An action that is still to be done.
struct Pending {
    index: usize,
    stale: Option<u64>,
}

/// What became of the actions so far.
struct Progress {
    results: Vec<Result<ActionResult, ClientError>>,
    failed: Vec<(Pending, ClientError)>,
}

impl Table {
    /// Does all actions and returns their results in their order. Actions of different rows are independent: some may
    /// fail while others succeed.
    pub async fn batch(&self, actions: &[Action]) -> Vec<Result<ActionResult, ClientError>> {
        let mut results = Vec::new();
        results.resize_with(actions.len(), || Ok(ActionResult { processed: true, row: Row::default() }));
        let mut progress = Progress { results, failed: Vec::new() };
        let mut pending = Vec::with_capacity(actions.len());
        for (index, action) in actions.iter().enumerate() {
            match action.check().and_then(|()| self.codec().map(drop)) {
                Ok(()) => pending.push(Pending { index, stale: None }),
                Err(error) => progress.results[index] = Err(error),
            }
        }
        let nonces: Vec<u64> = match actions.iter().any(Action::needs_nonce) {
            true => actions.iter().map(|_| random_number()).collect(),
            false => Vec::new(),
        };
        let (deadline, mut number) = (self.cluster.deadline(), 0);
        while !pending.is_empty() {
            let shares = self.share(actions, pending, deadline, &mut progress).await;
            let calls = shares.iter().map(|share| self.call_server(share, actions, &nonces, deadline));
            for (share, answer) in shares.iter().zip(join_all(calls).await) {
                progress.collect(&share.groups, answer);
            }
            pending = self.judge(&mut progress, number, deadline).await;
            number += 1;
        }
        progress.results
    }

    /// As [`Table::batch`], for callers that cannot go on after any error: returns the first one. Other actions may have
    /// been executed.
    pub async fn batch_all(&self, actions: &[Action]) -> Result<Vec<Row>, ClientError> {
        let row = |result: Result<ActionResult, ClientError>| result.map(|result| result.row);
        self.batch(actions).await.into_iter().map(row).collect()
    }

    /// Reads several rows; the results stand in the order of the gets.
    pub async fn get_all(&self, gets: impl IntoIterator<Item = Get>) -> Result<Vec<Row>, ClientError> {
        let actions: Vec<Action> = gets.into_iter().map(Action::Get).collect();
        self.batch_all(&actions).await
    }

    /// Writes several rows.
    pub async fn put_all(&self, puts: impl IntoIterator<Item = Put>) -> Result<(), ClientError> {
        let actions: Vec<Action> = puts.into_iter().map(Action::from).collect();
        self.batch_all(&actions).await.map(drop)
    }

    /// Groups actions by server and region; those whose region is not found fail.
    async fn share(
        &self,
        actions: &[Action],
        pending: Vec<Pending>,
        deadline: Instant,
        progress: &mut Progress,
    ) -> Vec<Share> {
        let mut shares = Vec::<Share>::new();
        // places of servers, and of regions in those, by their address in memory, which the shares keep alive
        let (mut servers, mut regions) = (HashMap::new(), HashMap::new());
        let mut unknown: Option<ClientError> = None;
        for Pending { index, stale } in pending {
            let action = &actions[index];
            let seek = Seek::At(action.row());
            // When one row was not found, meta is not read for each of the others.
            let located = match &unknown {
                None => self.cluster.locate(&self.regions, seek, stale, deadline).await,
                Some(error) => self.regions.cached(seek, stale).ok_or_else(|| error.clone()),
            };
            let location = match located {
                Ok(location) => location,
                Err(error) => {
                    unknown.get_or_insert_with(|| error.clone());
                    progress.failed.push((Pending { index, stale }, error));
                    continue;
                }
            };
            let server = *servers.entry(Arc::as_ptr(&location.server).addr()).or_insert_with(|| {
                shares.push(Share { server: Arc::clone(&location.server), groups: Vec::new() });
                shares.len() - 1
            });
            let groups = &mut shares[server].groups;
            if action.is_atomic() {
                groups.push(Group { location, indexes: vec![index], is_atomic: true });
                continue;
            }
            let group = *regions.entry(Arc::as_ptr(&location).addr()).or_insert_with(|| {
                groups.push(Group { location, indexes: Vec::new(), is_atomic: false });
                groups.len() - 1
            });
            groups[group].indexes.push(index);
        }
        shares
    }

    async fn call_server(
        &self,
        share: &Share,
        actions: &[Action],
        nonces: &[u64],
        deadline: Instant,
    ) -> Result<Answer, ClientError> {
        let (codec, cluster) = (self.codec()?, &self.cluster);
        let connection = match share.groups.first() {
            Some(group) => self.connection(&group.location, deadline).await?,
            None => share.server.connection(self.slot, &cluster.inner.options).await?,
        };
        let indexes = share.groups.iter().flat_map(|group| &group.indexes);
        let bytes =
            indexes.flat_map(|&index| actions[index].cells()).map(|cell| 4 + cell.bytes().len()).sum();
        let mut block = CellBlock::with_capacity(codec, bytes);
        let nonce_group = Some(cluster.inner.nonce_group);
        let mut request = pb::MultiRequest { nonce_group, ..Default::default() };
        for group in &share.groups {
            request.region_action.push(region_action(group, actions, nonces, &mut block));
        }
        let timeout = cluster.call_timeout(deadline);
        connection.call_with_cells("Multi", &request, Some(block), Some(timeout)).await
    }

    /// What is to be tried again, after a pause. Errors that no retry helps become results.
    async fn judge(&self, progress: &mut Progress, number: u32, deadline: Instant) -> Vec<Pending> {
        let failed = std::mem::take(&mut progress.failed);
        let (hopeless, again): (Vec<_>, Vec<_>) =
            failed.into_iter().partition(|(_, error)| advice(error) == Advice::Fail);
        for (pending, error) in hopeless {
            progress.results[pending.index] = Err(error);
        }
        let Some((_, first)) = again.first() else { return Vec::new() };
        let waited = self.cluster.wait_to_retry_in(&self.regions, first.clone(), number, deadline).await;
        if let Err(first) = waited {
            // the table may be disabled: then the pause has found a better error for all
            let is_better = first.is_exception("TableNotEnabledException");
            for (pending, error) in again {
                progress.results[pending.index] = Err(if is_better { first.clone() } else { error });
            }
            return Vec::new();
        }
        let retry = |(pending, error): (Pending, ClientError)| Pending {
            stale: pending.stale.filter(|_| advice(&error) == Advice::Relocate),
            ..pending
        };
        again.into_iter().map(retry).collect()
    }
}

/// The part of a `Multi` for one group.
fn region_action(
    group: &Group,
    actions: &[Action],
    nonces: &[u64],
    block: &mut CellBlock,
) -> pb::RegionAction {
    let region = group.location.specifier.clone();
    if group.is_atomic {
        let index = group.indexes[0];
        match &actions[index] {
            Action::MutateRow(mutations) => {
                return atomic_action(region, mutations, None, nonces[index], block);
            }
            Action::Check(check) => {
                let condition = Some(&check.condition);
                return atomic_action(region, &check.mutations, condition, nonces[index], block);
            }
            Action::Get(_) | Action::Mutate(_) => {}
        }
    }
    let mut action = Vec::with_capacity(group.indexes.len());
    for &index in &group.indexes {
        match &actions[index] {
            Action::Get(get) => action.push(pb::Action::of_get(index as u32, get.message.clone())),
            Action::Mutate(mutation) => {
                mutation.cells().iter().for_each(|cell| block.push(cell));
                let nonce = mutation.needs_nonce().then(|| nonces[index]);
                action.push(pb::Action::of_mutation(index as u32, mutation.to_pb(nonce)));
            }
            Action::MutateRow(_) | Action::Check(_) => {}
        }
    }
    pb::RegionAction { region, action, ..Default::default() }
}

impl Progress {
    /// Failed actions carry the generation of the location that failed them.
    fn fail(&mut self, location: &Location, index: usize, error: ClientError) {
        self.failed.push((Pending { index, stale: Some(location.generation) }, error));
    }

    fn fail_group(&mut self, group: &Group, error: &ClientError) {
        for &index in &group.indexes {
            self.fail(&group.location, index, error.clone());
        }
    }

    /// Takes the response of one server apart.
    fn collect(&mut self, groups: &[Group], answer: Result<Answer, ClientError>) {
        let response = answer.and_then(|answer| Ok((decode::<pb::MultiResponse>(&answer)?, answer.cells)));
        let (response, cells) = match response {
            Ok(response) => response,
            Err(error) => return groups.iter().for_each(|group| self.fail_group(group, &error)),
        };
        let missing = ClientError::malformed("a response without a result for each action");
        let mut cells = cells.into_iter();
        for (at, group) in groups.iter().enumerate() {
            let Some(result) = response.region_action_result.get(at) else {
                self.fail_group(group, &missing);
                continue;
            };
            if let Some(exception) = &result.exception {
                self.fail_group(group, &ClientError::of_pair(exception));
            } else if group.is_atomic {
                self.collect_atomic(group, result, &mut cells);
            } else if result.result_or_exception.len() != group.indexes.len() {
                self.fail_group(group, &missing);
            } else {
                self.collect_plain(group, result, &mut cells, &missing);
            }
        }
    }

    fn collect_plain(
        &mut self,
        group: &Group,
        result: &pb::RegionActionResult,
        cells: &mut std::vec::IntoIter<Cell>,
        missing: &ClientError,
    ) {
        for (at, one) in result.result_or_exception.iter().enumerate() {
            // servers answer in the order of asking; one that does not costs a search
            let asked = |index: u32| match group.indexes[at] == index as usize {
                true => Some(index as usize),
                false => group.indexes.iter().copied().find(|&i| i == index as usize),
            };
            let Some(index) = one.index.and_then(asked) else {
                self.fail(&group.location, group.indexes[at], missing.clone());
                continue;
            };
            if let Some(exception) = &one.exception {
                self.fail(&group.location, index, ClientError::of_pair(exception));
            } else if let Some(result) = &one.result {
                match result_cells(result, cells) {
                    Ok(cells) => {
                        self.results[index] = Ok(ActionResult { processed: true, row: Row::new(cells) });
                    }
                    Err(error) => self.fail(&group.location, index, error),
                }
            }
        }
    }

    fn collect_atomic(
        &mut self,
        group: &Group,
        result: &pb::RegionActionResult,
        cells: &mut std::vec::IntoIter<Cell>,
    ) {
        let (index, mut found) = (group.indexes[0], Vec::new());
        for one in &result.result_or_exception {
            if let Some(exception) = &one.exception {
                return self.fail(&group.location, index, ClientError::of_pair(exception));
            }
            match one.result.as_ref().map(|result| result_cells(result, cells)) {
                None => {}
                Some(Ok(cells)) => found.extend(cells),
                Some(Err(error)) => return self.fail(&group.location, index, error),
            }
        }
        let processed = result.processed.unwrap_or(true);
        self.results[index] = Ok(ActionResult { processed, row: Row::new(found) });
    }
}

/// Cells of a result: those of the block, then those of the message.
fn result_cells(result: &pb::Result, cells: &mut std::vec::IntoIter<Cell>) -> Result<Vec<Cell>, ClientError> {
    let count = usize::try_from(result.associated_cell_count()).unwrap_or(0);
    let mut found: Vec<Cell> = cells.by_ref().take(count).collect();
    for cell in &result.cell {
        found.push(plain_cell(cell)?);
    }
    Ok(found)
}
