//! The verifier: reads all nodes, and holds what is referred to against what is there.

use halcyon_client::{ClientError, Scan, Table};
use halcyon_proto::pb;
use parking_lot::Mutex;
use std::sync::Arc;

use crate::ingest::node::{FAMILY, ROW_END, parse, row_key};
use crate::run::{Client, Done, Step};

/// Nodes of one step.
const STEP_ROWS: u64 = 1_000;

/// What was found so far, by all clients: rows, and references as (row referred to, row that refers).
#[derive(Default)]
pub(super) struct Found {
    pub rows: Vec<u64>,
    pub references: Vec<(u64, u64)>,
    pub corrupt: u64,
    /// Some keys of corrupt nodes, as they are.
    pub corrupt_keys: Vec<String>,
}

/// Corrupt and undefined nodes that are named.
const NAMED_MAX: usize = 10;

/// The verdict, in the words of Accumulo's `ContinuousVerify`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    pub referenced: u64,
    pub unreferenced: u64,
    /// Rows that are referred to and not there.
    pub undefined: u64,
    pub corrupt: u64,
    /// Some undefined rows, and one that refers to each.
    pub undefined_rows: Vec<(u64, u64)>,
}

impl Found {
    /// Compares; the lists are sorted in place.
    pub fn judge(&mut self) -> Verdict {
        self.rows.sort_unstable();
        self.rows.dedup();
        self.references.sort_unstable();
        self.references.dedup_by_key(|(row, _)| *row);
        let mut verdict = Verdict { corrupt: self.corrupt, ..Verdict::default() };
        let mut rows = self.rows.iter().peekable();
        for &(row, referrer) in &self.references {
            while rows.next_if(|there| **there < row).is_some() {
                verdict.unreferenced += 1;
            }
            if rows.next_if(|there| **there == row).is_some() {
                verdict.referenced += 1;
            } else {
                verdict.undefined += 1;
                if verdict.undefined_rows.len() < NAMED_MAX {
                    verdict.undefined_rows.push((row, referrer));
                }
            }
        }
        verdict.unreferenced += rows.count() as u64;
        verdict
    }
}

/// Reads one range of rows.
pub(super) struct Reader {
    scan: halcyon_client::Scanner,
    found: Arc<Mutex<Found>>,
}

impl Reader {
    /// Range `number` of `count`.
    pub fn new(table: &Table, number: u64, count: u64, caching: u32, found: Arc<Mutex<Found>>) -> Reader {
        let edge = |at: u64| row_key((u128::from(ROW_END) * u128::from(at) / u128::from(count)) as u64);
        let scan = pb::Scan {
            start_row: (number > 0).then(|| edge(number)),
            stop_row: (number + 1 < count).then(|| edge(number + 1)),
            column: vec![pb::Column { family: FAMILY.into(), qualifier: Vec::new() }],
            cache_blocks: Some(false),
            ..Default::default()
        };
        Reader { scan: table.scan(Scan::from(scan).caching(caching)), found }
    }
}

impl Client for Reader {
    async fn step(&mut self) -> Result<Step, ClientError> {
        let (mut nodes, mut corrupt) = (Vec::new(), Vec::new());
        let mut is_at_end = false;
        for _ in 0..STEP_ROWS {
            let Some(row) = self.scan.next().await? else {
                is_at_end = true;
                break;
            };
            for cell in &row {
                match parse(cell) {
                    Some(node) => nodes.push(node),
                    None => corrupt.push(cell.row().escape_ascii().to_string()),
                }
            }
        }
        let operations = (nodes.len() + corrupt.len()) as u64;
        let mut found = self.found.lock();
        for node in nodes {
            found.rows.push(node.row);
            found.references.extend(node.before.map(|before| (before, node.row)));
        }
        found.corrupt += corrupt.len() as u64;
        let room = NAMED_MAX.saturating_sub(found.corrupt_keys.len());
        found.corrupt_keys.extend(corrupt.into_iter().take(room));
        match is_at_end && operations == 0 {
            true => Ok(Step::End),
            false => Ok(Step::Done(Done { operations, kind: Some(0) })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_referred_to_and_not_there_is_undefined() {
        let mut found = Found {
            rows: vec![5, 1, 3, 9, 9],
            references: vec![(3, 1), (4, 9), (1, 5), (4, 5)],
            corrupt: 2,
            corrupt_keys: Vec::new(),
        };
        let verdict = found.judge();
        let expected = Verdict {
            referenced: 2,
            unreferenced: 2,
            undefined: 1,
            corrupt: 2,
            undefined_rows: vec![(4, 5)],
        };
        assert_eq!(verdict, expected);
        assert_eq!(Found::default().judge(), Verdict::default());
    }
}
