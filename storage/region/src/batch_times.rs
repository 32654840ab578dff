//! Timestamps inside of an atomic batch in which counters run ahead of the clock (`docs/decisions/0003-timestamps-around-deletes.md`).
//!
//! All mutations of a batch get one timestamp, and Increments and Appends are made of what was there before it, as in HBase. A value that
//! is not older than that timestamp has its new value behind it. So have these:
//!
//! - what comes after such a new value in the batch: a delete hides it, a put is not hidden by it;
//! - the new value of a column that a delete before it in the batch covers: the delete hides the value that was there, and not the new
//!   one. As in HBase it does hide one that is made of an older value, or of none.

use std::collections::HashSet;

use bytes::Bytes;
use halcyon_cell::{Cell, CellType, LATEST_TIMESTAMP};

use crate::api::{Mutation, MutationKind};
use crate::row_lock::AHEAD_MS_MAX;

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

#[derive(Default)]
struct Deleted {
    rows: HashSet<Bytes>,
    families: HashSet<[Bytes; 2]>,
    columns: HashSet<[Bytes; 3]>,
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
        if mutation.kind == MutationKind::Delete && mutation.cells.is_empty() {
            if mutation.timestamp == LATEST_TIMESTAMP {
                deleted.rows.insert(mutation.row.clone());
                self.deleted_ms = self.deleted_ms.max(at_ms);
            }
            return;
        }
        let is_now = |cell: &&Cell| cell.cell_type().is_delete() && cell.timestamp() == LATEST_TIMESTAMP;
        for cell in mutation.cells.iter().filter(is_now) {
            let (row, family) = (mutation.row.clone(), Bytes::copy_from_slice(cell.family()));
            match cell.cell_type() {
                CellType::DeleteFamily | CellType::DeleteFamilyVersion => {
                    deleted.families.insert([row, family]);
                }
                _ => {
                    deleted.columns.insert([row, family, Bytes::copy_from_slice(cell.qualifier())]);
                }
            }
            self.deleted_ms = self.deleted_ms.max(at_ms);
        }
    }

    /// What the new values of an Increment or Append have to be behind, if a delete covers one of its columns.
    pub fn behind(&self, mutation: &Mutation) -> Option<Behind> {
        let deleted = self.deleted.as_ref()?;
        let covers = |cell: &Cell| {
            let family = || [mutation.row.clone(), Bytes::copy_from_slice(cell.family())];
            let column = || {
                let [row, family] = family();
                [row, family, Bytes::copy_from_slice(cell.qualifier())]
            };
            (!deleted.families.is_empty() && deleted.families.contains(&family()))
                || (!deleted.columns.is_empty() && deleted.columns.contains(&column()))
        };
        let is_covered = deleted.rows.contains(&mutation.row) || mutation.cells.iter().any(covers);
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
