//! The writer. A node may refer only to one whose write was acknowledged: then a reference to a row that is not
//! there means that an acknowledged write was lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_client::{Action, ClientError, Mutation, Table};

use crate::ingest::node::{QUALIFIER_END, ROW_END, cell, row_key};
use crate::random::Random;
use crate::run::{Client, Done, Step};

/// Nodes in a chain, from one without reference on (`ContinuousIngest.MAX_DEPTH`).
const DEPTH_MAX: u64 = 25;

/// Writes layers of `layer` nodes: those of a layer refer to those of the one before, the first of each chain to none.
pub(super) struct Writer {
    table: Table,
    name: String,
    random: Random,
    /// Nodes that nobody has begun, of all clients.
    left: Arc<AtomicU64>,
    batch: u64,
    layer: usize,
    depth: u64,
    count: u64,
    /// Rows of the layer before, and of this one so far; all acknowledged.
    before: Vec<u64>,
    current: Vec<u64>,
}

impl Writer {
    pub fn new(
        table: Table,
        name: String,
        random: Random,
        left: Arc<AtomicU64>,
        batch: u64,
        layer: u64,
    ) -> Writer {
        // whole batches, so that no batch belongs to two layers
        let layer = usize::try_from(layer.div_ceil(batch) * batch).unwrap_or(usize::MAX);
        let (before, current) = (Vec::new(), Vec::new());
        Writer { table, name, random, left, batch, layer, depth: 0, count: 0, before, current }
    }

    /// How many nodes of those that are left this step writes.
    fn take(&self) -> u64 {
        let take = |left: u64| (left > 0).then(|| left - left.min(self.batch));
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        left.map_or(0, |left| left.min(self.batch))
    }
}

impl Client for Writer {
    async fn step(&mut self) -> Result<Step, ClientError> {
        let nodes = self.take();
        if nodes == 0 {
            return Ok(Step::End);
        }
        let mut rows = Vec::with_capacity(nodes as usize);
        let mut actions = Vec::with_capacity(nodes as usize);
        for _ in 0..nodes {
            let row = self.random.below(ROW_END);
            let before = self.before.get(self.current.len() + rows.len()).copied();
            let qualifier = self.random.below(QUALIFIER_END);
            let cell = cell(row, qualifier, &self.name, self.count, before);
            self.count += 1;
            actions.push(Action::Mutate(Mutation::put(row_key(row), vec![cell])));
            rows.push(row);
        }
        self.table.batch_all(&actions).await?;
        self.current.append(&mut rows);
        if self.current.len() >= self.layer {
            self.depth += 1;
            self.before = std::mem::take(&mut self.current);
            if self.depth == DEPTH_MAX {
                self.depth = 0;
                self.before.clear();
            }
        }
        Ok(Step::Done(Done { operations: nodes, kind: Some(0) }))
    }

    fn operations_per_step(&self) -> u64 {
        self.batch
    }
}
