//! Timestamps inside of an atomic batch in which counters run ahead of the clock (`docs/decisions/0003-timestamps-around-deletes.md`).
//!
//! All mutations of a batch get one timestamp, and Increments and Appends are made of what was there before it, as in HBase. A value that
//! is not older than that timestamp has its new value behind it. So have these:
//!
//! - what comes after such a new value in the batch: a delete hides it, a put is not hidden by it;
//! - the new value of a column that a delete before it in the batch covers: the delete hides the value that was there, and not the new
//!   one. As in HBase it does hide one that is made of an older value, or of none.

use std::collections::HashSet;
use std::hash::BuildHasher;

use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};

use crate::api::{Mutation, MutationKind};
use crate::row_lock::AHEAD_MS_MAX;

/// So many rows, families and columns that a batch deletes are noted. A marker of three bytes in a request would need many times as
/// much here, in no account and with its row locked.
const NOTED_MAX: usize = 10_000;

/// Timestamps given in a batch so far.
pub(crate) struct BatchTimes {
    /// That of the batch.
    begin_ms: i64,
    /// The latest one that was given: what comes next has this one at least.
    at_ms: i64,
    /// None of a batch may be later.
    limit_ms: i64,
    /// What was deleted with a timestamp of the server's, and the latest of these. Noted only where something may be made of it.
    deleted: Option<Deleted>,
    deleted_ms: i64,
}

/// Rows, families and columns that are deleted, at most [`NOTED_MAX`] of them; behind more deletes each column is one that they cover.
///
/// They are noted by their hashes, whose key nobody knows. A column that is taken for another one, or covered by all, gets a new value
/// that is behind a delete for nothing: where its value is not older than the batch, a millisecond later.
#[derive(Default)]
struct Deleted {
    hashes: HashSet<u64>,
    covers_all: bool,
}

impl Deleted {
    fn hash_of_row(&self, row: &[u8]) -> u64 {
        self.hashes.hasher().hash_one(row)
    }

    /// `row`: the hash of it. It is made once for all cells, because a row may be long.
    fn hash_of_family(&self, row: u64, family: &[u8]) -> u64 {
        self.hashes.hasher().hash_one((row, family))
    }

    fn hash_of_column(&self, row: u64, cell: &Cell) -> u64 {
        self.hashes.hasher().hash_one((row, cell.family(), cell.qualifier()))
    }

    fn note(&mut self, hash: u64) {
        if self.covers_all {
            return;
        }
        self.hashes.insert(hash);
        if self.hashes.len() > NOTED_MAX {
            *self = Deleted { covers_all: true, ..Deleted::default() };
        }
        assert!(self.hashes.len() <= NOTED_MAX, "what is noted of deletes has a limit");
    }

    fn covers(&self, mutation: &Mutation) -> bool {
        if self.covers_all || self.hashes.is_empty() {
            return self.covers_all;
        }
        let row = self.hash_of_row(&mutation.row);
        let is_noted = |cell: &Cell| {
            self.hashes.contains(&self.hash_of_family(row, cell.family()))
                || self.hashes.contains(&self.hash_of_column(row, cell))
        };
        self.hashes.contains(&row) || mutation.cells.iter().any(is_noted)
    }
}

/// What a new value has to be behind. Plain data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behind {
    /// The timestamp of the batch.
    pub begin_ms: i64,
    /// That of the delete that covers it.
    pub deleted_ms: i64,
    /// But it is not later than this.
    pub limit_ms: i64,
}

impl BatchTimes {
    /// Of a batch that was stamped with `begin_ms`.
    pub fn new(batch: &[Mutation], begin_ms: i64, clock_ms: i64) -> BatchTimes {
        let makes = batch.iter().any(|mutation| mutation.kind.returns_cells());
        BatchTimes {
            begin_ms,
            at_ms: begin_ms,
            limit_ms: clock_ms.saturating_add(AHEAD_MS_MAX),
            deleted: makes.then(Deleted::default),
            deleted_ms: begin_ms,
        }
    }

    /// The timestamp for what comes next.
    pub fn at_ms(&self) -> i64 {
        self.at_ms
    }

    /// Whether something in the batch has run ahead of its timestamp.
    pub fn is_ahead(&self) -> bool {
        self.at_ms > self.begin_ms
    }

    /// A put or delete is written with this timestamp, where it leaves that to the server.
    pub fn note_written(&mut self, mutation: &Mutation, at_ms: i64) {
        let Some(deleted) = &mut self.deleted else { return };
        let row = deleted.hash_of_row(&mutation.row);
        if mutation.kind == MutationKind::Delete && mutation.cells.is_empty() {
            if mutation.timestamp == LATEST_TIMESTAMP {
                deleted.note(row);
                self.deleted_ms = self.deleted_ms.max(at_ms);
            }
            return;
        }
        let is_now = |cell: &&Cell| cell.cell_type().is_delete() && cell.timestamp() == LATEST_TIMESTAMP;
        for cell in mutation.cells.iter().filter(is_now) {
            deleted.note(match cell.cell_type() {
                CellType::DeleteFamily | CellType::DeleteFamilyVersion => {
                    deleted.hash_of_family(row, cell.family())
                }
                _ => deleted.hash_of_column(row, cell),
            });
            self.deleted_ms = self.deleted_ms.max(at_ms);
        }
    }

    /// What the new values of an Increment or Append have to be behind, if a delete covers one of its columns.
    pub fn behind(&self, mutation: &Mutation) -> Option<Behind> {
        let is_covered = self.deleted.as_ref()?.covers(mutation);
        is_covered.then_some(Behind {
            begin_ms: self.begin_ms,
            deleted_ms: self.deleted_ms,
            limit_ms: self.limit_ms,
        })
    }

    /// A new value got this timestamp. One that a client has chosen further ahead moves nothing.
    pub fn note_new(&mut self, at_ms: i64) {
        if at_ms <= self.limit_ms {
            self.at_ms = self.at_ms.max(at_ms);
        }
        assert!(
            self.at_ms <= self.limit_ms.max(self.begin_ms),
            "a batch runs ahead with all that comes after it"
        );
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::api::TimeRange;

    const BEGIN_MS: i64 = 1000;

    fn mutation(kind: MutationKind, row: &'static [u8], cells: Vec<Cell>) -> Mutation {
        Mutation {
            kind,
            row: Bytes::from_static(row),
            cells,
            timestamp: LATEST_TIMESTAMP,
            durability: None,
            time_range: TimeRange::ALL,
            return_results: true,
            cell_ttl_ms: None,
            cluster_ids: None,
        }
    }

    fn increment(row: &'static [u8], family: &[u8], qualifier: &[u8]) -> Mutation {
        let delta = Cell::put(row, family, qualifier, LATEST_TIMESTAMP, &1i64.to_be_bytes());
        mutation(MutationKind::Increment, row, vec![delta])
    }

    fn marker(row: &[u8], qualifier: &[u8], cell_type: CellType) -> Cell {
        Cell::build(row, b"f", qualifier, LATEST_TIMESTAMP, cell_type, b"", &[], 0)
    }

    fn times() -> BatchTimes {
        BatchTimes::new(&[increment(b"r", b"f", b"q")], BEGIN_MS, BEGIN_MS)
    }

    fn is_behind(times: &BatchTimes, row: &'static [u8], family: &[u8], qualifier: &[u8]) -> bool {
        times.behind(&increment(row, family, qualifier)).is_some()
    }

    #[test]
    fn rows_families_and_columns_cover_what_is_in_them() {
        let mut times = times();
        assert!(!is_behind(&times, b"r", b"f", b"q"));
        let column = marker(b"r", b"q", CellType::DeleteColumn);
        times.note_written(&mutation(MutationKind::Delete, b"r", vec![column]), BEGIN_MS + 3);
        let behind = times.behind(&increment(b"r", b"f", b"q")).expect("its column is deleted");
        assert_eq!((behind.begin_ms, behind.deleted_ms), (BEGIN_MS, BEGIN_MS + 3));
        let others: [(&[u8], &[u8], &[u8]); 3] = [(b"s", b"f", b"q"), (b"r", b"g", b"q"), (b"r", b"f", b"")];
        for (row, family, qualifier) in others {
            assert!(!is_behind(&times, row, family, qualifier));
        }
        let family = marker(b"s", b"", CellType::DeleteFamily);
        times.note_written(&mutation(MutationKind::Delete, b"s", vec![family]), BEGIN_MS);
        times.note_written(&mutation(MutationKind::Delete, b"t", vec![]), BEGIN_MS);
        assert!(is_behind(&times, b"s", b"f", b"any") && !is_behind(&times, b"s", b"g", b"q"));
        assert!(is_behind(&times, b"t", b"any", b"q") && !is_behind(&times, b"u", b"f", b"q"));
    }

    /// Each marker of a Delete was kept with copies of its row's, family's and qualifier's handles and bytes: about 250 bytes for one
    /// that has 29 in the request. One call of 50 MB took 0.4 GB that no account had.
    #[test]
    fn what_is_noted_of_deletes_has_a_limit() {
        let mut times = times();
        let count = 3 * NOTED_MAX;
        let cells = (0..count).map(|at| marker(b"r", format!("{at}").as_bytes(), CellType::DeleteColumn));
        times.note_written(&mutation(MutationKind::Delete, b"r", cells.collect()), BEGIN_MS + 1);
        let deleted = times.deleted.as_ref().expect("the batch makes new values");
        let capacity = deleted.hashes.capacity();
        assert!(capacity <= 2 * NOTED_MAX, "{capacity} of {count} are noted");
        for at in [0, NOTED_MAX, count - 1] {
            assert!(is_behind(&times, b"r", b"f", format!("{at}").as_bytes()), "{at} is covered");
        }
    }

    #[test]
    fn nothing_is_noted_where_nothing_is_made_of_it() {
        let delete = mutation(MutationKind::Delete, b"r", vec![marker(b"r", b"q", CellType::DeleteColumn)]);
        let mut times = BatchTimes::new(std::slice::from_ref(&delete), BEGIN_MS, BEGIN_MS);
        times.note_written(&delete, BEGIN_MS);
        assert!(times.deleted.is_none() && !is_behind(&times, b"r", b"f", b"q"));
    }
}
