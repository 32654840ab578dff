//! ROW_INDEX_V1: whole cells, and behind them where each row starts.
//!
//! Such a block is read where it lies: its cells are the bytes of a plain block, and a seek goes to a cell by the marks
//! that a plain block has (`data_block.rs`). They do what the row index is for, a binary search without reading all
//! cells, and more: they divide wide rows as well, and tell rows apart by four bytes of each. So the row index is
//! held against the cells when the block is loaded, and after that nobody asks it.

use std::ops::Range;

use halcyon_cell::{CellRef, Error, Result};

use crate::format::Reader;

/// Bytes in front of the cells: the encoding.
const HEAD_LEN: usize = 2;

/// A block's row index, held against its cells one by one.
pub(crate) struct RowIndex<'a> {
    cells: &'a [u8],
    offsets: Reader<'a>,
    last_row: Option<&'a [u8]>,
    /// The first row whose offset is not where it starts: expected and found.
    wrong: Option<(usize, Option<u32>)>,
}

impl<'a> RowIndex<'a> {
    /// Takes the payload apart; the cells are not looked at.
    pub(crate) fn parse(payload: &'a [u8]) -> Result<RowIndex<'a>> {
        let rest = payload.get(HEAD_LEN..).and_then(|rest| rest.split_last_chunk::<4>());
        let Some((rest, cells_len)) = rest else {
            return Err(Error::corrupt(format!("row index: expected 4 bytes, found {}", payload.len())));
        };
        let cells_len = u32::from_be_bytes(*cells_len) as usize;
        let Some((cells, offsets)) = rest.split_at_checked(cells_len) else {
            let max = rest.len();
            return Err(Error::corrupt(format!("size of cells: expected at most {max}, found {cells_len}")));
        };
        let mut offsets = Reader::new(offsets);
        let rows_count = offsets.count("row count")? as usize;
        if offsets.left() != rows_count.saturating_mul(4) {
            let expected = offsets.left() / 4;
            return Err(Error::corrupt(format!("row count: expected {expected}, found {rows_count}")));
        }
        Ok(RowIndex { cells, offsets, last_row: None, wrong: None })
    }

    /// Where the cells lie in the payload.
    pub(crate) fn cells(&self) -> Range<usize> {
        HEAD_LEN..HEAD_LEN + self.cells.len()
    }

    /// Looks at the next cell, which was checked and starts here.
    pub(crate) fn see(&mut self, start: usize) {
        let row = CellRef::trusted(&self.cells[start..], 0).row();
        if self.last_row == Some(row) {
            return;
        }
        self.last_row = Some(row);
        let found = self.offsets.count("row offset").ok();
        if found != Some(start as u32) {
            self.wrong.get_or_insert((start, found));
        }
    }

    /// Whether the index was right, after all cells were seen.
    pub(crate) fn finish(self) -> Result<()> {
        if let Some((expected, found)) = self.wrong {
            return Err(Error::corrupt(format!("row offset: expected {expected}, found {found:?}")));
        }
        match self.offsets.left() {
            0 => Ok(()),
            left => Err(Error::corrupt(format!("row index: expected its end, found {} more rows", left / 4))),
        }
    }
}
