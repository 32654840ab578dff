//! A table's rows: gets, mutations, batches, scans. Calls are tried again until the operation's time is over.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::CellBlock;
use halcyon_schema::TableName;
use prost::Message;
use tokio::time::timeout_at;

use crate::cluster::{Cluster, timed_out};
use crate::locations::Location;
use crate::retry::Advice;
use crate::scan::ScanRun;
use crate::{Answer, ClientError};

/// One table, by one of the connections to each server. Cheap to clone.
#[derive(Clone)]
pub struct Table {
    pub(crate) cluster: Cluster,
    pub(crate) name: TableName,
    pub(crate) slot: usize,
}

/// What a mutation did.
#[derive(Clone, Debug, Default)]
pub struct Mutated {
    /// Whether a condition held; true without one.
    pub processed: bool,
    /// Cells of an increment or append.
    pub cells: Vec<Cell>,
}

/// A change of one row: what kind, and its cells, which all have that row.
#[derive(Clone, Debug)]
pub struct Mutation {
    pub row: Bytes,
    pub kind: pb::mutation_proto::MutationType,
    pub durability: pb::mutation_proto::Durability,
    pub cells: Vec<Cell>,
}

impl Mutation {
    /// A put with the table's durability.
    pub fn put(row: Bytes, cells: Vec<Cell>) -> Mutation {
        let (kind, durability) =
            (pb::mutation_proto::MutationType::Put, pb::mutation_proto::Durability::UseDefault);
        Mutation { row, kind, durability, cells }
    }

    /// Increments and appends carry a nonce, so that a call that is made twice counts once.
    pub(crate) fn to_pb(&self) -> pb::MutationProto {
        use pb::mutation_proto::MutationType::{Append, Increment};
        let nonce = matches!(self.kind, Append | Increment).then(random_number);
        pb::MutationProto {
            row: Some(self.row.clone()),
            mutate_type: Some(self.kind as i32),
            durability: Some(self.durability as i32),
            associated_cell_count: Some(self.cells.len() as i32),
            nonce,
            ..Default::default()
        }
    }
}

fn random_number() -> u64 {
    u64::from_ne_bytes(halcyon_env::random_bytes()) | 1
}

impl Cluster {
    /// A table; `slot` picks the connection to each server and may be any number.
    pub fn table(&self, name: TableName, slot: usize) -> Table {
        Table { cluster: self.clone(), name, slot }
    }
}

impl Table {
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// A row's cells; none if it does not exist.
    pub async fn get(&self, get: pb::Get) -> Result<Vec<Cell>, ClientError> {
        let answer = self.call(&get.row, "Get", |location| {
            (pb::GetRequest { region: location.specifier.clone(), get: get.clone() }, None)
        });
        let answer = answer.await?;
        let response = decode::<pb::GetResponse>(&answer)?;
        match response.result {
            Some(result) if !result.cell.is_empty() => result.cell.iter().map(plain_cell).collect(),
            _ => Ok(answer.cells),
        }
    }

    /// One mutation, perhaps under a condition.
    pub async fn mutate(
        &self,
        mutation: &Mutation,
        condition: Option<pb::Condition>,
    ) -> Result<Mutated, ClientError> {
        let is_conditional = condition.is_some();
        let message = mutation.to_pb();
        let codec = self.codec()?;
        let answer = self.call(&mutation.row, "Mutate", |location| {
            let request = pb::MutateRequest {
                region: location.specifier.clone(),
                mutation: message.clone(),
                condition: condition.clone(),
                nonce_group: message.nonce.map(|_| 1),
            };
            let mut block = CellBlock::new(codec);
            mutation.cells.iter().for_each(|cell| block.push(cell));
            (request, Some(block))
        });
        let answer = answer.await?;
        let response = decode::<pb::MutateResponse>(&answer)?;
        let mut cells = answer.cells;
        if let Some(result) = response.result.as_ref().filter(|result| !result.cell.is_empty()) {
            cells = result.cell.iter().map(plain_cell).collect::<Result<_, _>>()?;
        }
        Ok(Mutated { processed: response.processed() || !is_conditional, cells })
    }

    /// Mutations of one row that happen together, if a condition holds (`RowMutations`).
    pub async fn mutate_row(
        &self,
        mutations: &[Mutation],
        condition: Option<pb::Condition>,
    ) -> Result<bool, ClientError> {
        let first = mutations.first().expect("there is something to change");
        let is_conditional = condition.is_some();
        let codec = self.codec()?;
        let answer = self.call(&first.row, "Multi", |location| {
            let mut block = CellBlock::new(codec);
            let mut action = Vec::with_capacity(mutations.len());
            for (index, mutation) in mutations.iter().enumerate() {
                mutation.cells.iter().for_each(|cell| block.push(cell));
                action.push(pb::Action::of_mutation(index as u32, mutation.to_pb()));
            }
            let region_action = pb::RegionAction {
                region: location.specifier.clone(),
                atomic: Some(true),
                action,
                condition: condition.clone(),
            };
            (pb::MultiRequest { region_action: vec![region_action], ..Default::default() }, Some(block))
        });
        let answer = answer.await?;
        let response = decode::<pb::MultiResponse>(&answer)?;
        let result = response.region_action_result.first();
        if let Some(exception) = result.and_then(|result| result.exception.as_ref()) {
            return Err(ClientError::of_pair(exception));
        }
        let processed = result.and_then(|result| result.processed).or(response.processed);
        Ok(processed.unwrap_or(false) || !is_conditional)
    }

    /// A scan of `caching` rows each call.
    pub fn scan(&self, scan: pb::Scan, caching: u32) -> ScanRun {
        ScanRun::new(self.cluster.clone(), self.name.clone(), self.slot, scan, caching)
    }

    pub(crate) fn codec(&self) -> Result<halcyon_rpc::Codec, ClientError> {
        let codec = self.cluster.inner.options.connect.codec;
        codec.ok_or_else(|| ClientError::Malformed("the connections have no codec for cells".to_string()))
    }

    /// Calls the server that has the row until it answers, time is over, or nothing will help.
    async fn call<M: Message>(
        &self,
        row: &[u8],
        method: &str,
        mut request: impl FnMut(&Location) -> (M, Option<CellBlock>),
    ) -> Result<Answer, ClientError> {
        let options = &self.cluster.inner.options;
        let (mut deadline, mut number, mut stale) = (None, 0, None);
        loop {
            let mut location = None;
            let tried = async {
                let found: Arc<Location> = self.cluster.locate(&self.name, row, stale).await?;
                let found = location.insert(found);
                let connection = found.server.connection(self.slot, &options.connect).await?;
                let (message, cells) = request(found);
                connection.call_with_cells(method, &message, cells, Some(options.call_timeout)).await
            };
            let tried = match deadline {
                None => tried.await,
                Some(deadline) => timeout_at(deadline, tried)
                    .await
                    .unwrap_or_else(|_| Err(timed_out(format!("{method}: no answer in time")))),
            };
            let error = match tried {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let deadline = *deadline.get_or_insert_with(|| self.cluster.deadline());
            if self.cluster.wait_to_retry(error, number, deadline).await? == Advice::Relocate {
                stale = location.map(|location| location.generation).or(stale);
            }
            number += 1;
        }
    }
}

pub(crate) fn decode<M: Message + Default>(answer: &Answer) -> Result<M, ClientError> {
    M::decode(answer.message.clone()).map_err(|error| ClientError::Malformed(error.to_string()))
}

/// A cell that stands in the message itself.
pub(crate) fn plain_cell(cell: &pb::Cell) -> Result<Cell, ClientError> {
    let part = |part: &Option<Bytes>| part.clone().unwrap_or_default();
    let code = u8::try_from(cell.cell_type.unwrap_or(4)).ok().and_then(halcyon_cell::CellType::from_code);
    let cell_type = code.ok_or_else(|| ClientError::Malformed("a cell of no known type".to_string()))?;
    let timestamp = cell.timestamp.unwrap_or(u64::MAX >> 1) as i64;
    let (row, family) = (part(&cell.row), part(&cell.family));
    Cell::check_parts(&row, &family, b"").map_err(|error| ClientError::Malformed(error.to_string()))?;
    Ok(Cell::build(&row, &family, &part(&cell.qualifier), timestamp, cell_type, &part(&cell.value), b"", 0))
}
