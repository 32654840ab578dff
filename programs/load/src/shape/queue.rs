//! A queue: producers put rows at its end, each consumer scans its part from the front and deletes what it found.
//!
//! Each consumer has a part of its own, and producers go from part to part. A part that holds `--rows` rows takes no more
//! until its consumer has come: so it is as long on a slow server as on a fast one. What a scan finds is checked: each row
//! once, with its value, and none passed over that was acknowledged before the scan began.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_client::{Action, ClientError, Delete, Put, Row, Scan, Table};
use parking_lot::Mutex;

use crate::run::{Client, Done, Outcome, Recorder, Step, run};
use crate::shape::value::{is_value, value};
use crate::shape::{FAMILY, LOST, QUALIFIER, Setup, TWICE, WRONG_VALUE, add_errors};

pub(super) const KINDS: &[&str] = &["PUT", "TAKE", "EMPTY"];
const PUT: usize = 0;
const TAKE: usize = 1;
const EMPTY: usize = 2;
/// A producer before a full part, and a consumer before an empty one, wait so long.
const WAIT: Duration = Duration::from_millis(1);
/// The most rows that are read to check a part at the end.
const REST_MAX: u32 = 10_000_000;

/// Whether a row that is in a part was acknowledged; those that are not in it are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begun,
    Acknowledged,
}

/// One part of the queue, as its clients know it.
#[derive(Default)]
struct Part {
    next: u64,
    rows: BTreeMap<u64, State>,
}

impl Part {
    /// Begins a row at the end, unless the part is full.
    fn begin(&mut self, rows_max: u64) -> Option<u64> {
        if self.rows.len() as u64 >= rows_max {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.rows.insert(number, State::Begun);
        Some(number)
    }

    /// A consumer may have found the row before its producer had the answer.
    fn acknowledge(&mut self, number: u64) {
        if let Some(state) = self.rows.get_mut(&number) {
            *state = State::Acknowledged;
        }
    }

    /// The first rows that a scan must find which begins now.
    fn expected(&self, count: usize) -> Vec<u64> {
        let rows = self.rows.iter().filter(|(_, state)| **state == State::Acknowledged);
        rows.map(|(number, _)| *number).take(count).collect()
    }

    /// What is wrong with what a scan found; what it found is taken. `is_cut`: there may be more behind.
    fn take(&mut self, expected: &[u64], found: &[u64], is_cut: bool) -> Vec<&'static str> {
        let mut wrong = Vec::new();
        for number in found {
            if self.rows.remove(number).is_none() {
                wrong.push(TWICE);
            }
        }
        let last = found.last().copied().filter(|_| is_cut);
        for number in expected.iter().filter(|number| last.is_none_or(|last| **number < last)) {
            // what is still there was passed over; it is told once
            if self.rows.remove(number).is_some() {
                wrong.push(LOST);
            }
        }
        wrong
    }
}

type Parts = Arc<Vec<Mutex<Part>>>;

pub(super) async fn run_shape(setup: &Setup<'_>) -> Result<Outcome, ClientError> {
    let consumers = setup.args.clients / 2;
    let regions = setup.regions.min(consumers as u32) as usize;
    let splits = (1..regions).map(|at| prefix(at * consumers / regions, consumers));
    setup.make_table(splits.collect()).await?;
    let parts: Parts = Arc::new((0..consumers).map(|_| Mutex::default()).collect());
    let plan = setup.plan();
    let clients = (0..setup.args.clients).map(|number| {
        let recorder = plan.recorder();
        let role = match number < consumers {
            true => Role::Consumer { part: number, was_empty: false },
            false => Role::Producer { next: number },
        };
        let client = QueueClient {
            table: setup.table(number),
            parts: Arc::clone(&parts),
            role,
            rows_max: setup.rows,
            batch: setup.args.batch,
            value_len: setup.value_len,
            recorder: Arc::clone(&recorder),
        };
        (client, recorder)
    });
    let mut outcome = run(&plan, clients.collect()).await;
    if outcome.partial.is_none() {
        check_rest(setup, &parts, &mut outcome).await?;
    }
    Ok(outcome)
}

/// What nobody has taken must be there, and nothing else.
async fn check_rest(setup: &Setup<'_>, parts: &Parts, outcome: &mut Outcome) -> Result<(), ClientError> {
    for (number, part) in parts.iter().enumerate() {
        let prefix = prefix(number, parts.len());
        let found = scan(&setup.table(0), &prefix, REST_MAX).await?;
        let found: Vec<u64> = found.iter().filter_map(number_of).collect();
        let mut part = part.lock();
        let expected = part.expected(usize::MAX);
        for class in part.take(&expected, &found, false) {
            add_errors(outcome, class, 1);
        }
    }
    Ok(())
}

/// Where a part begins: parts are spread evenly over the keys.
fn prefix(part: usize, parts: usize) -> Bytes {
    Bytes::from(format!("{:04x}-", part * 0x1_0000 / parts))
}

fn key(prefix: &[u8], number: u64) -> Vec<u8> {
    [prefix, format!("{number:020}").as_bytes()].concat()
}

/// The number in the key of a row.
fn number_of(row: &Row) -> Option<u64> {
    std::str::from_utf8(row.key().get(5..)?).ok()?.parse().ok()
}

async fn scan(table: &Table, prefix: &[u8], rows_max: u32) -> Result<Vec<Row>, ClientError> {
    let mut scan = table.scan(Scan::prefix(prefix).caching(rows_max.min(1_000)).limit(rows_max));
    let mut rows = Vec::new();
    while let Some(row) = scan.next().await? {
        rows.push(row);
    }
    scan.close().await;
    Ok(rows)
}

enum Role {
    Producer {
        /// The part whose turn it is.
        next: usize,
    },
    Consumer {
        part: usize,
        was_empty: bool,
    },
}

struct QueueClient {
    table: Table,
    parts: Parts,
    role: Role,
    rows_max: u64,
    batch: u32,
    value_len: usize,
    recorder: Arc<Recorder>,
}

/// A step that only waited.
const WAITED: Step = Step::Done(Done { operations: 0, kind: None });

impl Client for QueueClient {
    async fn step(&mut self) -> Result<Step, ClientError> {
        match &mut self.role {
            Role::Producer { next } => {
                let part = *next % self.parts.len();
                *next += 1;
                self.produce(part).await
            }
            Role::Consumer { was_empty, .. } if *was_empty => {
                *was_empty = false;
                tokio::time::sleep(WAIT).await;
                Ok(WAITED)
            }
            Role::Consumer { part, .. } => {
                let part = *part;
                self.consume(part).await
            }
        }
    }
}

impl QueueClient {
    async fn produce(&self, part: usize) -> Result<Step, ClientError> {
        let begun = self.parts[part].lock().begin(self.rows_max);
        let Some(number) = begun else {
            tokio::time::sleep(WAIT).await;
            return Ok(WAITED);
        };
        let bytes = value(part as u64, number, self.value_len);
        let key = key(&prefix(part, self.parts.len()), number);
        self.table.put(Put::new(key).column(FAMILY, QUALIFIER, bytes)).await?;
        self.parts[part].lock().acknowledge(number);
        // a row counts when it has been taken
        Ok(Step::Done(Done { operations: 0, kind: Some(PUT) }))
    }

    async fn consume(&mut self, part: usize) -> Result<Step, ClientError> {
        let expected = self.parts[part].lock().expected(self.batch as usize);
        let rows = scan(&self.table, &prefix(part, self.parts.len()), self.batch).await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let number = number_of(row);
            let is_right = number.is_some_and(|number| {
                row.value(FAMILY, QUALIFIER)
                    .is_some_and(|value| is_value(value, part as u64, number, self.value_len))
            });
            if !is_right {
                self.recorder.error(WRONG_VALUE);
            }
            found.extend(number);
        }
        let is_cut = rows.len() == self.batch as usize;
        for class in self.parts[part].lock().take(&expected, &found, is_cut) {
            self.recorder.error(class);
        }
        if rows.is_empty() {
            self.role = Role::Consumer { part, was_empty: true };
            return Ok(Step::Done(Done { operations: 0, kind: Some(EMPTY) }));
        }
        let deletes: Vec<Action> = rows.iter().map(|row| Delete::new(row.key()).into()).collect();
        self.table.batch_all(&deletes).await?;
        Ok(Step::Done(Done { operations: rows.len() as u64, kind: Some(TAKE) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part with rows 0 to 4, of which 3 is not acknowledged.
    fn part() -> Part {
        let mut part = Part::default();
        (0..5).for_each(|number| assert_eq!(part.begin(5), Some(number)));
        assert_eq!(part.begin(5), None, "it is full");
        [0, 1, 2, 4].into_iter().for_each(|number| part.acknowledge(number));
        part
    }

    #[test]
    fn what_a_scan_should_find_is_known() {
        let mut part = part();
        let expected = part.expected(3);
        assert_eq!(expected, [0, 1, 2]);
        assert!(part.take(&expected, &[0, 1, 2, 3], true).is_empty(), "3 may be there before its answer");
        part.acknowledge(3);
        assert_eq!(part.expected(9), [4], "3 is taken");
        assert_eq!(part.begin(5), Some(5));
    }

    #[test]
    fn rows_that_come_twice_or_never_are_noticed() {
        let mut twice = part();
        assert!(twice.take(&[0, 1], &[0, 1], true).is_empty());
        assert_eq!(twice.take(&[2], &[1, 2], true), [TWICE], "a delete had no effect");
        let mut lost = part();
        assert_eq!(lost.take(&[0, 1, 2], &[0, 2], true), [LOST], "1 was passed over");
        let mut cut = part();
        assert!(cut.take(&[0, 1, 2, 4], &[0, 1], true).is_empty(), "the scan ended at its limit");
        assert_eq!(cut.take(&[2, 4], &[], false), [LOST, LOST], "there are rows, and none is found");
        assert_eq!(cut.take(&[2, 4], &[], false), [""; 0], "each is told once");
    }

    #[test]
    fn keys_of_parts_are_in_order() {
        let prefixes: Vec<Bytes> = (0..7).map(|part| prefix(part, 7)).collect();
        assert!(prefixes.is_sorted() && prefixes.iter().all(|prefix| prefix.len() == 5));
        assert!(key(&prefixes[0], 9) < key(&prefixes[0], 10));
    }
}
