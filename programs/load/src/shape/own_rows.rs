//! Puts and gets of rows that one client owns: it knows the version that it must find.

use std::sync::Arc;

use halcyon_client::{Action, ClientError, Get, Put, Row, Table};

use crate::random::Random;
use crate::run::{Client, Done, Outcome, Recorder, Step, run};
use crate::shape::value::{is_value, row_key, splits, value};
use crate::shape::{FAMILY, NOT_FOUND, QUALIFIER, Setup, WRONG_VALUE};

pub(super) const KINDS: &[&str] = &["PUT", "GET"];
const PUT: usize = 0;
const GET: usize = 1;
/// Bytes of one call while the table is filled.
const CALL_LEN: usize = 4 << 20;
/// Rows of one call while the table is filled.
const CALL_ROWS_MAX: u64 = 1_000;

/// Half puts and half gets, upon a table that is filled before.
pub(super) async fn run_owned(setup: &Setup<'_>) -> Result<Outcome, ClientError> {
    setup.make_table(splits(setup.regions)).await?;
    fill(setup).await?;
    let plan = setup.plan();
    let count = setup.args.clients as u64;
    let clients = (0..count).map(|number| {
        let recorder = plan.recorder();
        let rows: Vec<(u64, u64)> =
            (number..setup.rows).step_by(count as usize).map(|row| (row, 0)).collect();
        let client = OwnRows {
            table: setup.table(number as usize),
            rows,
            value_len: setup.value_len,
            random: Random::fork(setup.seed, number),
            recorder: Arc::clone(&recorder),
        };
        (client, recorder)
    });
    Ok(run(&plan, clients.collect()).await)
}

/// Writes version 0 of all rows.
pub(super) async fn fill(setup: &Setup<'_>) -> Result<(), ClientError> {
    let each = ((CALL_LEN / setup.value_len) as u64).clamp(1, CALL_ROWS_MAX);
    let table = setup.table(0);
    for first in (0..setup.rows).step_by(each as usize) {
        let rows = first..(first + each).min(setup.rows);
        let puts: Vec<Action> = rows.map(|row| put(row, 0, setup.value_len).into()).collect();
        table.batch_all(&puts).await?;
    }
    Ok(())
}

fn put(row: u64, version: u64, len: usize) -> Put {
    Put::new(row_key(row)).column(FAMILY, QUALIFIER, value(row, version, len))
}

/// What is wrong with a row that must have this version.
pub(super) fn wrong(found: &Row, row: u64, version: u64, len: usize) -> Option<&'static str> {
    match found.value(FAMILY, QUALIFIER) {
        None => Some(NOT_FOUND),
        Some(bytes) if is_value(bytes, row, version, len) => None,
        Some(_) => Some(WRONG_VALUE),
    }
}

struct OwnRows {
    table: Table,
    /// Number and version; acknowledged.
    rows: Vec<(u64, u64)>,
    value_len: usize,
    random: Random,
    recorder: Arc<Recorder>,
}

impl Client for OwnRows {
    async fn step(&mut self) -> Result<Step, ClientError> {
        let at = self.random.below(self.rows.len() as u64) as usize;
        let (row, version) = &mut self.rows[at];
        if self.random.below(2) == 0 {
            self.table.put(put(*row, *version + 1, self.value_len)).await?;
            *version += 1;
            return Ok(Step::Done(Done { operations: 1, kind: Some(PUT) }));
        }
        let found = self.table.get(Get::new(row_key(*row))).await?;
        if let Some(class) = wrong(&found, *row, *version, self.value_len) {
            self.recorder.error(class);
        }
        Ok(Step::Done(Done { operations: 1, kind: Some(GET) }))
    }
}
