//! A queue that was drained and is polled while it is empty: each poll passes over what was deleted.
//!
//! Each client has a part of its own, so it knows what a poll must find: nothing, or the one row that it has just put.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_client::{Action, ClientError, Delete, Put, Row, Scan, Table};

use crate::run::{Client, Done, Outcome, Recorder, Step, run};
use crate::shape::value::{is_value, value};
use crate::shape::{FAMILY, LOST, QUALIFIER, Setup, TWICE, WRONG_VALUE};

pub(super) const KINDS: &[&str] = &["POLL", "TAKE"];
const POLL: usize = 0;
const TAKE: usize = 1;
/// One of so many polls finds something.
const POLLS_PER_ROW: u64 = 100;
/// Rows of one call while the queue is filled and drained.
const CALL_ROWS: u64 = 1_000;

pub(super) async fn run_shape(setup: &Setup<'_>) -> Result<Outcome, ClientError> {
    let clients = setup.args.clients as u64;
    let splits = (1..u64::from(setup.regions)).map(|at| prefix(at * clients / u64::from(setup.regions)));
    setup.make_table(splits.collect()).await?;
    let drained = setup.rows / clients;
    drain(setup, drained).await?;
    let plan = setup.plan();
    let clients = (0..clients).map(|part| {
        let recorder = plan.recorder();
        let client = PollClient {
            table: setup.table(part as usize),
            part,
            next: drained,
            polls: part, // not all at once
            value_len: setup.value_len,
            recorder: Arc::clone(&recorder),
        };
        (client, recorder)
    });
    Ok(run(&plan, clients.collect()).await)
}

/// Fills each part and empties it again.
async fn drain(setup: &Setup<'_>, rows: u64) -> Result<(), ClientError> {
    let table = setup.table(0);
    for part in 0..setup.args.clients as u64 {
        let numbers: Vec<u64> = (0..rows).collect();
        for numbers in numbers.chunks(CALL_ROWS as usize) {
            let puts = numbers.iter().map(|number| put(part, *number, setup.value_len).into());
            table.batch_all(&puts.collect::<Vec<Action>>()).await?;
            let deletes = numbers.iter().map(|number| Delete::new(key(part, *number)).into());
            table.batch_all(&deletes.collect::<Vec<Action>>()).await?;
        }
    }
    Ok(())
}

fn prefix(part: u64) -> Bytes {
    Bytes::from(format!("{part:06}-"))
}

fn key(part: u64, number: u64) -> Vec<u8> {
    [&prefix(part)[..], format!("{number:020}").as_bytes()].concat()
}

fn put(part: u64, number: u64, len: usize) -> Put {
    Put::new(key(part, number)).column(FAMILY, QUALIFIER, value(part, number, len))
}

struct PollClient {
    table: Table,
    part: u64,
    /// Number of the next row.
    next: u64,
    polls: u64,
    value_len: usize,
    recorder: Arc<Recorder>,
}

impl Client for PollClient {
    async fn step(&mut self) -> Result<Step, ClientError> {
        self.polls += 1;
        if !self.polls.is_multiple_of(POLLS_PER_ROW) {
            let found = self.poll().await?;
            self.check(&found, None);
            return Ok(Step::Done(Done { operations: 1, kind: Some(POLL) }));
        }
        let number = self.next;
        self.next += 1;
        self.table.put(put(self.part, number, self.value_len)).await?;
        let found = self.poll().await?;
        self.check(&found, Some(number));
        self.table.delete(Delete::new(key(self.part, number))).await?;
        Ok(Step::Done(Done { operations: 1, kind: Some(TAKE) }))
    }
}

impl PollClient {
    async fn poll(&self) -> Result<Vec<Row>, ClientError> {
        let mut scan = self.table.scan(Scan::prefix(prefix(self.part)).caching(10).limit(10));
        let mut rows = Vec::new();
        while let Some(row) = scan.next().await? {
            rows.push(row);
        }
        scan.close().await;
        Ok(rows)
    }

    fn check(&self, found: &[Row], expected: Option<u64>) {
        for class in wrong(found, self.part, expected, self.value_len) {
            self.recorder.error(class);
        }
    }
}

/// What is wrong with what a poll found.
fn wrong(found: &[Row], part: u64, expected: Option<u64>, len: usize) -> Vec<&'static str> {
    let key = expected.map(|number| key(part, number));
    let (right, others): (Vec<&Row>, Vec<&Row>) =
        found.iter().partition(|row| key.as_deref() == Some(row.key()));
    let mut wrong = vec![TWICE; others.len()];
    if let Some(number) = expected {
        match right.first().map(|row| row.value(FAMILY, QUALIFIER)) {
            None => wrong.push(LOST),
            Some(Some(bytes)) if is_value(bytes, part, number, len) => {}
            Some(_) => wrong.push(WRONG_VALUE),
        }
    }
    wrong
}
