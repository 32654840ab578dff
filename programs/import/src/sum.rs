//! Counts and checksums of rows.

use bytes::Bytes;
use halcyon_client::Cell;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

/// Rows in few bytes. The checksum does not depend on the order of cells, because both sides sort columns differently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sum {
    pub(crate) rows: u64,
    pub(crate) cells: u64,
    /// Of cells without their tags.
    pub(crate) bytes: u64,
    /// The upper and lower half of 128 bits; JSON has no wider numbers.
    checksum: (u64, u64),
}

impl Sum {
    pub(crate) fn add_cell(&mut self, cell: &Cell) {
        let plain = cell.get().bytes_without_tags();
        let mut hash = xxh3_128(plain);
        if !cell.tags().is_empty() {
            hash ^= xxh3_128(cell.tags()).rotate_left(64);
        }
        self.cells += 1;
        self.bytes += plain.len() as u64;
        self.add_hash(hash);
    }

    pub(crate) fn add(&mut self, other: &Sum) {
        self.rows += other.rows;
        self.cells += other.cells;
        self.bytes += other.bytes;
        self.add_hash(u128::from(other.checksum.0) << 64 | u128::from(other.checksum.1));
    }

    fn add_hash(&mut self, hash: u128) {
        let sum = u128::from(self.checksum.0) << 64 | u128::from(self.checksum.1);
        let sum = sum.wrapping_add(hash);
        self.checksum = ((sum >> 64) as u64, sum as u64);
    }
}

/// The sum of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowSum {
    pub(crate) row: Bytes,
    pub(crate) sum: Sum,
}

/// Makes rows of cells, which come row by row.
#[derive(Default)]
pub(crate) struct RowSums {
    current: Option<RowSum>,
}

impl RowSums {
    /// Adds a cell; returns the row before if that one is complete.
    pub(crate) fn add(&mut self, cell: &Cell) -> Option<RowSum> {
        let is_same = self.current.as_ref().is_some_and(|current| &current.row[..] == cell.row());
        let mut done = None;
        if !is_same {
            let row = Bytes::copy_from_slice(cell.row());
            done = self.current.replace(RowSum { row, sum: Sum { rows: 1, ..Sum::default() } });
        }
        let current = self.current.as_mut().expect("a row was begun");
        current.sum.add_cell(cell);
        done
    }

    pub(crate) fn finish(&mut self) -> Option<RowSum> {
        self.current.take()
    }
}
