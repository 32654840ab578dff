//! Many gets of random rows in one call, each value compared.

use std::sync::Arc;

use halcyon_client::{ClientError, Get, Table};

use crate::random::Random;
use crate::run::{Client, Done, Outcome, Recorder, Step, run};
use crate::shape::Setup;
use crate::shape::own_rows::{fill, wrong};
use crate::shape::value::{row_key, splits};

pub(super) const KINDS: &[&str] = &["BATCH"];

pub(super) async fn run_shape(setup: &Setup<'_>) -> Result<Outcome, ClientError> {
    setup.make_table(splits(setup.regions)).await?;
    fill(setup).await?;
    let plan = setup.plan();
    let clients = (0..setup.args.clients).map(|number| {
        let recorder = plan.recorder();
        let client = GetsClient {
            table: setup.table(number),
            rows: setup.rows,
            batch: setup.args.batch,
            value_len: setup.value_len,
            random: Random::fork(setup.seed, number as u64),
            recorder: Arc::clone(&recorder),
        };
        (client, recorder)
    });
    Ok(run(&plan, clients.collect()).await)
}

struct GetsClient {
    table: Table,
    rows: u64,
    batch: u32,
    value_len: usize,
    random: Random,
    recorder: Arc<Recorder>,
}

impl Client for GetsClient {
    async fn step(&mut self) -> Result<Step, ClientError> {
        let wanted: Vec<u64> = (0..self.batch).map(|_| self.random.below(self.rows)).collect();
        let found = self.table.get_all(wanted.iter().map(|row| Get::new(row_key(*row)))).await?;
        assert_eq!(found.len(), wanted.len(), "the client answers each get");
        for (row, found) in wanted.iter().zip(&found) {
            if let Some(class) = wrong(found, *row, 0, self.value_len) {
                self.recorder.error(class);
            }
        }
        Ok(Step::Done(Done { operations: u64::from(self.batch), kind: Some(0) }))
    }

    fn operations_per_step(&self) -> u64 {
        u64::from(self.batch)
    }
}
