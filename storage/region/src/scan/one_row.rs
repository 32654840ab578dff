//! The cells of one row, where no filter, batch or limit has a say: a Get, or what a write reads.
//!
//! What [`RegionScanner`](super::RegionScanner) keeps from row to row is not needed for that. And nobody asks what is behind the row,
//! so its stores stop at the last wanted cell: moving on costs a seek, and may need the next block from a disk.

use std::cmp::Ordering;

use halcyon_cell::{Cell, Result};
use halcyon_env::Clock;

use super::region_scanner::LOOKS_OF_A_ROW;
use super::row_size::RowSize;
use super::store_scanner::{Budget, LookCost, StoreScanner, StoreState};
use crate::api::ScanLimits;

/// What was read of the row so far.
pub(crate) struct OneRow<'a> {
    row: &'a [u8],
    clock: &'a dyn Clock,
    look: LookCost,
    size: RowSize,
    size_bytes_left: i64,
    cells: Vec<Cell>,
    /// A store has cells of it, returned or not.
    is_there: bool,
    /// The number of the store that was read last.
    last_store: Option<usize>,
}

impl<'a> OneRow<'a> {
    /// `bytes_max`: most bytes that the row may have.
    pub fn new(row: &'a [u8], bytes_max: usize, clock: &'a dyn Clock) -> OneRow<'a> {
        let (look, mut size, size_bytes_left) =
            (LookCost::new(None), RowSize::up_to(bytes_max), ScanLimits::NONE.size_bytes_left);
        size.begin(size_bytes_left);
        let (cells, is_there, last_store) = (Vec::new(), false, None);
        OneRow { row, clock, look, size, size_bytes_left, cells, is_there, last_store }
    }

    /// Reads what the next store has of it. The store stands on the first cell that is not before the row.
    pub fn read(&mut self, store: &mut StoreScanner) -> Result<()> {
        assert!(
            self.last_store.is_none_or(|last| last < store.store_at),
            "families come in the order of their names, and each of them once"
        );
        self.last_store = Some(store.store_at);
        let order = |row: &[u8]| store.comparator().compare_rows(row, self.row);
        if store.peek().is_none_or(|cell| order(cell.row()) != Ordering::Equal) {
            return Ok(());
        }
        self.is_there = true;
        store.end_with_row();
        let mut budget = Budget {
            cells_left: u32::MAX,
            size_bytes_left: &mut self.size_bytes_left,
            row_size: &mut self.size,
            may_cut_row: ScanLimits::NONE.may_cut_row,
            deadline_ns: ScanLimits::NONE.deadline_ns,
            clock: self.clock,
            look: self.look,
        };
        let state = store.next(&mut None, &mut budget, &mut self.cells)?;
        assert!(
            state == StoreState::RowDone,
            "without limits and filters a row is read to its end: {state:?}"
        );
        Ok(())
    }

    /// Its cells, and whether it has some of which none is returned.
    pub fn done(self) -> Result<(Vec<Cell>, bool)> {
        let is_dropped = self.is_there && self.cells.is_empty();
        if is_dropped {
            self.look.spend(LOOKS_OF_A_ROW)?;
        }
        Ok((self.cells, is_dropped))
    }
}
