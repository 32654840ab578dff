//! Batches: actions of many rows, sent to each server as one `Multi`.
//!
//! HBase: `AsyncBatchRpcRetryingCaller`. What a server refuses is tried again, alone if need be; what it has done
//! is not sent twice.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::CellBlock;
use tokio::time::Instant;

use crate::cluster::Server;
use crate::locations::Location;
use crate::retry::{Advice, advice};
use crate::table::{decode, plain_cell};
use crate::{Answer, ClientError, Mutation, Table};

/// One action of a batch.
#[derive(Clone, Debug)]
pub enum Action {
    Get(pb::Get),
    Mutate(Mutation),
}

impl Action {
    fn row(&self) -> &[u8] {
        match self {
            Action::Get(get) => &get.row,
            Action::Mutate(mutation) => &mutation.row,
        }
    }
}

/// Actions of one server, as (region, indexes).
type Share = (Arc<Server>, Vec<(Arc<Location>, Vec<usize>)>);

/// An action that is still to be done.
struct Pending {
    index: usize,
    stale: Option<u64>,
}

impl Table {
    /// Does all actions; the answers stand in their order, cells of a get or none. An error is the first that
    /// retries did not help: other actions may have been done.
    pub async fn batch(&self, actions: &[Action]) -> Result<Vec<Vec<Cell>>, ClientError> {
        let mut answers: Vec<Vec<Cell>> = Vec::new();
        answers.resize_with(actions.len(), Vec::new);
        let (deadline, mut number) = (self.cluster.deadline(), 0);
        let mut pending: Vec<Pending> =
            (0..actions.len()).map(|index| Pending { index, stale: None }).collect();
        loop {
            let (shares, mut failed) = self.share(actions, &pending).await;
            let calls = shares.iter().map(|share| self.call_server(share, actions));
            for ((_, regions), result) in shares.iter().zip(join_all(calls).await) {
                collect(regions, result, &mut answers, &mut failed);
            }
            pending = self.judge(failed, number, deadline).await?;
            if pending.is_empty() {
                return Ok(answers);
            }
            number += 1;
        }
    }

    /// Groups actions by server and region; those whose region is not found fail.
    async fn share(
        &self,
        actions: &[Action],
        pending: &[Pending],
    ) -> (Vec<Share>, Vec<(Pending, ClientError)>) {
        let (mut shares, mut failed) = (Vec::<Share>::new(), Vec::new());
        // places of servers, and of regions in those, by their address in memory, which the shares keep alive
        let (mut servers, mut regions) = (HashMap::new(), HashMap::new());
        for one in pending {
            let index = one.index;
            // who cannot locate one row will not locate the next: not every action is to wait for that
            if let Some((_, error)) = failed.last() {
                let error: ClientError = ClientError::clone(error);
                failed.push((Pending { index, stale: one.stale }, error));
                continue;
            }
            match self.cluster.locate(&self.name, actions[index].row(), one.stale).await {
                Ok(location) => {
                    let address = Arc::as_ptr(&location).addr();
                    let (server, region) = *regions.entry(address).or_insert_with(|| {
                        let server =
                            *servers.entry(Arc::as_ptr(&location.server).addr()).or_insert_with(|| {
                                shares.push((Arc::clone(&location.server), Vec::new()));
                                shares.len() - 1
                            });
                        let of_server = &mut shares[server].1;
                        of_server.push((location, Vec::new()));
                        (server, of_server.len() - 1)
                    });
                    shares[server].1[region].1.push(index);
                }
                Err(error) => failed.push((Pending { index, stale: one.stale }, error)),
            }
        }
        (shares, failed)
    }

    async fn call_server(
        &self,
        (server, regions): &Share,
        actions: &[Action],
    ) -> Result<Answer, ClientError> {
        let options = &self.cluster.inner.options;
        let connection = server.connection(self.slot, &options.connect).await?;
        let mutations =
            regions.iter().flat_map(|(_, indexes)| indexes).filter_map(|&index| match &actions[index] {
                Action::Get(_) => None,
                Action::Mutate(mutation) => Some(&mutation.cells),
            });
        let bytes = mutations.flatten().map(|cell| 4 + cell.bytes().len()).sum();
        let mut block = CellBlock::with_capacity(self.codec()?, bytes);
        let mut request = pb::MultiRequest { nonce_group: Some(1), ..Default::default() };
        for (location, indexes) in regions {
            let mut action = Vec::with_capacity(indexes.len());
            for &index in indexes {
                action.push(match &actions[index] {
                    Action::Get(get) => pb::Action::of_get(index as u32, get.clone()),
                    Action::Mutate(mutation) => {
                        mutation.cells.iter().for_each(|cell| block.push(cell));
                        pb::Action::of_mutation(index as u32, mutation.to_pb())
                    }
                });
            }
            let region = location.specifier.clone();
            request.region_action.push(pb::RegionAction { region, action, ..Default::default() });
        }
        connection.call_with_cells("Multi", &request, Some(block), Some(options.call_timeout)).await
    }

    /// What is to be tried again, after a pause; the first error that nothing will help.
    async fn judge(
        &self,
        failed: Vec<(Pending, ClientError)>,
        number: u32,
        deadline: Instant,
    ) -> Result<Vec<Pending>, ClientError> {
        if let Some((_, error)) = failed.iter().find(|(_, error)| advice(error) == Advice::Fail) {
            return Err(error.clone());
        }
        let Some((_, first)) = failed.first() else { return Ok(Vec::new()) };
        self.cluster.wait_to_retry(first.clone(), number, deadline).await?;
        let again = |(pending, error): (Pending, ClientError)| Pending {
            stale: pending.stale.filter(|_| advice(&error) == Advice::Relocate),
            ..pending
        };
        Ok(failed.into_iter().map(again).collect())
    }
}

/// Takes the answer of one server apart. Failed actions carry the generation of the location that failed them.
fn collect(
    regions: &[(Arc<Location>, Vec<usize>)],
    result: Result<Answer, ClientError>,
    answers: &mut [Vec<Cell>],
    failed: &mut Vec<(Pending, ClientError)>,
) {
    let mut fail = |location: &Location, index: usize, error: &ClientError| {
        failed.push((Pending { index, stale: Some(location.generation) }, error.clone()));
    };
    let response = result.and_then(|answer| Ok((decode::<pb::MultiResponse>(&answer)?, answer.cells)));
    let (response, cells) = match response {
        Ok(response) => response,
        Err(error) => {
            for (location, indexes) in regions {
                indexes.iter().for_each(|&index| fail(location, index, &error));
            }
            return;
        }
    };
    let mut cells = cells.into_iter();
    for (at, (location, indexes)) in regions.iter().enumerate() {
        let missing = ClientError::Malformed("an answer without a result for each action".to_string());
        let Some(result) = response.region_action_result.get(at) else {
            indexes.iter().for_each(|&index| fail(location, index, &missing));
            continue;
        };
        if let Some(exception) = &result.exception {
            let error = ClientError::of_pair(exception);
            indexes.iter().for_each(|&index| fail(location, index, &error));
            continue;
        }
        if result.result_or_exception.len() != indexes.len() {
            indexes.iter().for_each(|&index| fail(location, index, &missing));
            continue;
        }
        for (at, one) in result.result_or_exception.iter().enumerate() {
            // servers answer in the order of asking; one that does not costs a search
            let asked = |index: u32| match indexes[at] == index as usize {
                true => Some(index as usize),
                false => indexes.iter().copied().find(|&i| i == index as usize),
            };
            let Some(index) = one.index.and_then(asked) else {
                fail(location, indexes[0], &missing);
                continue;
            };
            if let Some(exception) = &one.exception {
                fail(location, index, &ClientError::of_pair(exception));
            } else if let Some(result) = &one.result {
                let count = usize::try_from(result.associated_cell_count()).unwrap_or(0);
                answers[index] = cells.by_ref().take(count).collect();
                for cell in &result.cell {
                    match plain_cell(cell) {
                        Ok(cell) => answers[index].push(cell),
                        Err(error) => fail(location, index, &error),
                    }
                }
            }
        }
    }
}
