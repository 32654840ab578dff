//! A table's rows: gets, mutations, scans. Calls are tried again until the operation's deadline.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::Cell;
use halcyon_proto::pb;
use halcyon_rpc::CellBlock;
use halcyon_schema::TableName;
use prost::Message;
use tokio::time::{Instant, timeout_at};

use crate::cluster::{Cluster, random_number};
use crate::locations::{Location, Seek, TableRegions};
use crate::request::check_row;
use crate::retry::Advice;
use crate::{
    Answer, Append, CheckAndMutate, ClientError, Delete, Get, Increment, Mutation, Put, Row, RowMutations,
    Scan, Scanner,
};

/// One table, by one of the connections to each server. Clones are cheap.
#[derive(Clone)]
pub struct Table {
    pub(crate) cluster: Cluster,
    pub(crate) regions: Arc<TableRegions>,
    pub(crate) slot: usize,
}

/// What came of an action.
#[derive(Clone, Debug, Default)]
pub struct ActionResult {
    /// Whether the action's condition held; true without one.
    pub processed: bool,
    /// Cells of a get, or new cells of an append or increment.
    pub row: Row,
}

impl Cluster {
    /// A table. `slot` picks the connection to each server and may be any number. Whether the table exists shows the first
    /// operation.
    pub fn table(&self, name: TableName, slot: usize) -> Table {
        Table { cluster: self.clone(), regions: self.inner.locations.table(&name), slot }
    }
}

impl Table {
    /// The table's name.
    pub fn name(&self) -> &TableName {
        self.regions.name()
    }

    /// Reads a row. The result has no cells if the row does not exist.
    pub async fn get(&self, get: impl Into<Get>) -> Result<Row, ClientError> {
        let (result, cells) = self.get_result(get.into().message).await?;
        match result {
            Some(result) if !result.cell.is_empty() => {
                Ok(Row::new(result.cell.iter().map(plain_cell).collect::<Result<_, _>>()?))
            }
            _ => Ok(Row::new(cells)),
        }
    }

    /// Whether a row has cells that the get would return.
    pub async fn exists(&self, get: impl Into<Get>) -> Result<bool, ClientError> {
        let message = pb::Get { existence_only: Some(true), ..get.into().message };
        let (result, _) = self.get_result(message).await?;
        Ok(result.and_then(|result| result.exists).unwrap_or(false))
    }

    async fn get_result(&self, get: pb::Get) -> Result<(Option<pb::Result>, Vec<Cell>), ClientError> {
        check_row(&get.row)?;
        let answer = self.call(&get.row, "Get", |location| {
            (pb::GetRequest { region: location.specifier.clone(), get: get.clone() }, None)
        });
        let answer = answer.await?;
        let response: pb::GetResponse = decode(&answer)?;
        Ok((response.result, answer.cells))
    }

    /// Writes a row.
    pub async fn put(&self, put: Put) -> Result<(), ClientError> {
        self.mutate(&put.into()).await.map(drop)
    }

    /// Deletes a row or parts of it.
    pub async fn delete(&self, delete: Delete) -> Result<(), ClientError> {
        self.mutate(&delete.into()).await.map(drop)
    }

    /// Appends to columns of a row and returns the new cells. It is applied once, even if the client has to retry.
    pub async fn append(&self, append: Append) -> Result<Row, ClientError> {
        Ok(self.mutate(&append.into()).await?.row)
    }

    /// Adds to columns of a row and returns the new cells. It is applied once, even if the client has to retry.
    pub async fn increment(&self, increment: Increment) -> Result<Row, ClientError> {
        Ok(self.mutate(&increment.into()).await?.row)
    }

    /// One mutation.
    pub async fn mutate(&self, mutation: &Mutation) -> Result<ActionResult, ClientError> {
        self.mutate_if(mutation, None).await
    }

    async fn mutate_if(
        &self,
        mutation: &Mutation,
        condition: Option<&pb::Condition>,
    ) -> Result<ActionResult, ClientError> {
        mutation.check()?;
        let message = mutation.to_pb(mutation.needs_nonce().then(random_number));
        let codec = self.codec()?;
        let answer = self.call(mutation.row(), "Mutate", |location| {
            let request = pb::MutateRequest {
                region: location.specifier.clone(),
                mutation: message.clone(),
                condition: condition.cloned(),
                nonce_group: message.nonce.map(|_| self.cluster.inner.nonce_group),
            };
            let mut block = CellBlock::new(codec);
            mutation.cells().iter().for_each(|cell| block.push(cell));
            (request, Some(block))
        });
        let answer = answer.await?;
        let response: pb::MutateResponse = decode(&answer)?;
        let mut cells = answer.cells;
        if let Some(result) = response.result.as_ref().filter(|result| !result.cell.is_empty()) {
            cells = result.cell.iter().map(plain_cell).collect::<Result<_, _>>()?;
        }
        let processed = response.processed() || condition.is_none();
        Ok(ActionResult { processed, row: Row::new(cells) })
    }

    /// Mutations of one row that happen together. Returns the new cells of appends and increments.
    pub async fn mutate_row(&self, mutations: &RowMutations) -> Result<Row, ClientError> {
        mutations.check()?;
        Ok(self.mutate_row_if(mutations, None).await?.row)
    }

    /// Mutations of one row that happen together if a condition on the row holds.
    pub async fn check_and_mutate(&self, check: &CheckAndMutate) -> Result<ActionResult, ClientError> {
        check.check()?;
        match check.mutations.single() {
            Some(mutation) => self.mutate_if(mutation, Some(&check.condition)).await,
            None => self.mutate_row_if(&check.mutations, Some(&check.condition)).await,
        }
    }

    async fn mutate_row_if(
        &self,
        mutations: &RowMutations,
        condition: Option<&pb::Condition>,
    ) -> Result<ActionResult, ClientError> {
        let codec = self.codec()?;
        let nonce = random_number();
        let answer = self.call(mutations.row(), "Multi", |location| {
            let mut block = CellBlock::new(codec);
            let region_action =
                atomic_action(location.specifier.clone(), mutations, condition, nonce, &mut block);
            let request = pb::MultiRequest {
                region_action: vec![region_action],
                nonce_group: Some(self.cluster.inner.nonce_group),
                ..Default::default()
            };
            (request, Some(block))
        });
        let answer = answer.await?;
        let response: pb::MultiResponse = decode(&answer)?;
        let result = response.region_action_result.first();
        if let Some(exception) = result.and_then(|result| result.exception.as_ref()) {
            return Err(ClientError::of_pair(exception));
        }
        let mut cells = answer.cells;
        for one in result.iter().flat_map(|result| &result.result_or_exception) {
            if let Some(exception) = &one.exception {
                return Err(ClientError::of_pair(exception));
            }
            for cell in one.result.iter().flat_map(|result| &result.cell) {
                cells.push(plain_cell(cell)?);
            }
        }
        let processed = result.and_then(|result| result.processed).or(response.processed);
        let processed = processed.unwrap_or(false) || condition.is_none();
        Ok(ActionResult { processed, row: Row::new(cells) })
    }

    /// A scan. Nothing is sent before the first row is asked for.
    pub fn scan(&self, scan: impl Into<Scan>) -> Scanner {
        Scanner::new(self.cluster.clone(), Arc::clone(&self.regions), self.slot, scan.into())
    }

    pub(crate) fn codec(&self) -> Result<halcyon_rpc::Codec, ClientError> {
        let codec = self.cluster.inner.options.connect.codec;
        codec.ok_or_else(|| ClientError::invalid("the connections have no codec for cells"))
    }

    /// Calls the server that has the row until it responds, the deadline passes, or no retry will help.
    async fn call<M: Message>(
        &self,
        row: &[u8],
        method: &str,
        mut request: impl FnMut(&Location) -> (M, Option<CellBlock>),
    ) -> Result<Answer, ClientError> {
        let deadline = self.cluster.deadline();
        let (mut number, mut stale) = (0, None);
        loop {
            let mut location = None;
            let tried = async {
                let found = self.cluster.locate(&self.regions, Seek::At(row), stale, deadline).await?;
                let found = location.insert(found);
                let connection = self.connection(found, deadline).await?;
                let (message, cells) = request(found);
                let timeout = self.cluster.call_timeout(deadline);
                connection.call_with_cells(method, &message, cells, Some(timeout)).await
            };
            let error = match tried.await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let waited = self.cluster.wait_to_retry_in(&self.regions, error, number, deadline).await;
            let is_wrong = |error: &ClientError| crate::retry::advice(error) == Advice::Relocate;
            if let (Some(location), true) = (&location, waited.as_ref().is_err_and(is_wrong)) {
                self.regions.forget(location);
            }
            if waited? == Advice::Relocate {
                stale = location.map(|location| location.generation).or(stale);
            }
            number += 1;
        }
    }

    pub(crate) async fn connection(
        &self,
        location: &Location,
        deadline: Instant,
    ) -> Result<Arc<crate::Connection>, ClientError> {
        if let Some(connection) = location.server.open_connection(self.slot) {
            return Ok(connection);
        }
        let connected = location.server.connection(self.slot, &self.cluster.inner.options);
        let late =
            |_| ClientError::timed_out(format!("{}: no connection in time", location.server.address()));
        timeout_at(deadline, connected).await.map_err(late)?
    }
}

impl Cluster {
    /// As [`Cluster::wait_to_retry`], for a region of a table. A region that stays away may belong to a disabled table:
    /// then the operation ends with `TableNotEnabledException`.
    pub(crate) async fn wait_to_retry_in(
        &self,
        regions: &TableRegions,
        error: ClientError,
        number: u32,
        deadline: Instant,
    ) -> Result<Advice, ClientError> {
        let is_away = error.is_exception("NotServingRegionException");
        if number > 0 && is_away && !regions.name().is_meta() {
            let state = timeout_at(deadline, self.read_table_state(regions.name())).await;
            if matches!(state, Ok(Ok(Some(pb::table_state::State::Disabled)))) {
                return Err(ClientError::exception("TableNotEnabledException", regions.name()));
            }
        }
        self.wait_to_retry(error, number, deadline).await
    }
}

/// Mutations of one row for a `Multi`, which happen together; their cells join the block.
pub(crate) fn atomic_action(
    region: pb::RegionSpecifier,
    mutations: &RowMutations,
    condition: Option<&pb::Condition>,
    nonce: u64,
    block: &mut CellBlock,
) -> pb::RegionAction {
    let mut action = Vec::with_capacity(mutations.mutations().len());
    for (index, mutation) in mutations.mutations().iter().enumerate() {
        mutation.cells().iter().for_each(|cell| block.push(cell));
        let message = mutation.to_pb(mutation.needs_nonce().then_some(nonce));
        action.push(pb::Action::of_mutation(index as u32, message));
    }
    pb::RegionAction { region, atomic: Some(true), action, condition: condition.cloned() }
}

pub(crate) fn decode<M: Message + Default>(answer: &Answer) -> Result<M, ClientError> {
    M::decode(answer.message.clone()).map_err(ClientError::malformed)
}

/// A cell that stands in the message itself.
pub(crate) fn plain_cell(cell: &pb::Cell) -> Result<Cell, ClientError> {
    let part = |part: &Option<Bytes>| part.clone().unwrap_or_default();
    let code = u8::try_from(cell.cell_type.unwrap_or(4)).ok().and_then(halcyon_cell::CellType::from_code);
    let cell_type = code.ok_or_else(|| ClientError::malformed("a cell of no known type"))?;
    let timestamp = cell.timestamp.unwrap_or(u64::MAX >> 1) as i64;
    let (row, family) = (part(&cell.row), part(&cell.family));
    Cell::check_parts(&row, &family, b"").map_err(ClientError::malformed)?;
    Ok(Cell::build(&row, &family, &part(&cell.qualifier), timestamp, cell_type, &part(&cell.value), b"", 0))
}
