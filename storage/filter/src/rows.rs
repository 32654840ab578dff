//! Filters that decide by the row key, or count rows.

use bytes::Bytes;
use halcyon_cell::{CellRef, Key, Result};
use halcyon_env::invariant;

use crate::comparator::Comparison;
use crate::filter::direction_flag;
use crate::{Filter, ReturnCode};

/// `RowFilter`: keeps rows whose key stands in the relation to the comparator.
pub(crate) struct RowFilter {
    comparison: Comparison,
    drop_row: bool,
    reversed: bool,
}

impl RowFilter {
    pub(crate) fn new(comparison: Comparison) -> RowFilter {
        RowFilter { comparison, drop_row: false, reversed: false }
    }
}

impl Filter for RowFilter {
    fn cost(&self) -> u32 {
        self.comparison.cost()
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.comparison.held_bytes()
    }

    fn reset(&mut self) -> Result<()> {
        self.drop_row = false;
        Ok(())
    }

    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        if !self.comparison.keeps(first.row())? {
            self.drop_row = true;
        }
        Ok(self.drop_row)
    }

    fn filter_cell(&mut self, _cell: CellRef<'_>) -> Result<ReturnCode> {
        Ok(if self.drop_row { ReturnCode::NextRow } else { ReturnCode::Include })
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.drop_row)
    }

    direction_flag!();
}

/// `FilterAllFilter`: keeps nothing, but has the scan look at every cell. Not hinting past them is its purpose:
/// it measures a scan without its results.
#[derive(Default)]
pub(crate) struct FilterAllFilter {
    reversed: bool,
}

impl Filter for FilterAllFilter {
    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, _cell: CellRef<'_>) -> Result<ReturnCode> {
        Ok(ReturnCode::Skip)
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    direction_flag!();
}

/// `PrefixFilter`: keeps rows that start with a prefix, hints to the first of them and ends the scan behind
/// the last.
pub(crate) struct PrefixFilter {
    /// `None` drops every row.
    prefix: Option<Bytes>,
    passed: bool,
    drop_row: bool,
    before_prefix: bool,
    reversed: bool,
}

impl PrefixFilter {
    pub(crate) fn new(prefix: Option<Bytes>) -> PrefixFilter {
        PrefixFilter { prefix, passed: false, drop_row: true, before_prefix: false, reversed: false }
    }
}

impl Filter for PrefixFilter {
    fn reset(&mut self) -> Result<()> {
        self.drop_row = true;
        Ok(())
    }

    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        let Some(prefix) = &self.prefix else { return Ok(true) };
        if self.passed {
            return Ok(true);
        }
        let row = first.row();
        let order = row[..row.len().min(prefix.len())].cmp(prefix);
        let order = if self.reversed { order.reverse() } else { order };
        self.passed = order.is_gt();
        self.before_prefix = order.is_lt();
        self.drop_row = order.is_ne();
        Ok(self.passed)
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        Ok(self.passed)
    }

    fn filter_cell(&mut self, _cell: CellRef<'_>) -> Result<ReturnCode> {
        Ok(if self.before_prefix {
            ReturnCode::SeekNextUsingHint
        } else if self.drop_row {
            ReturnCode::NextRow
        } else {
            ReturnCode::Include
        })
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.drop_row)
    }

    fn next_cell_hint(&mut self, _cell: CellRef<'_>) -> Result<Option<Key>> {
        let Some(prefix) = &self.prefix else { return Ok(None) };
        Ok(Some(if self.reversed {
            Key::first_on_row(&increase_last_byte(prefix.to_vec()))
        } else {
            Key::first_on_row(prefix)
        }))
    }

    fn is_hinting(&self) -> bool {
        true
    }

    direction_flag!();
}

/// A row above every row that starts with `row`, of the same length: a reversed scan that is sent there
/// misses none of them. Bytes of 0xff have nothing above them, so the byte before them grows.
///
/// HBase's `PrivateCellUtil.increaseLastNonMaxByte` compares signed bytes, which turns a last 0xff into 0x00
/// and so hides rows from reversed scans; not repeated here.
pub(crate) fn increase_last_byte(mut row: Vec<u8>) -> Vec<u8> {
    if let Some(at) = row.iter().rposition(|&byte| byte != 0xff) {
        row[at] += 1;
    }
    row
}

/// `InclusiveStopFilter`: ends the scan behind a row.
pub(crate) struct InclusiveStopFilter {
    stop_row: Bytes,
    done: bool,
    reversed: bool,
}

impl InclusiveStopFilter {
    pub(crate) fn new(stop_row: Bytes) -> InclusiveStopFilter {
        InclusiveStopFilter { stop_row, done: false, reversed: false }
    }
}

impl Filter for InclusiveStopFilter {
    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        if !self.done {
            let order = first.row().cmp(&self.stop_row);
            self.done = if self.reversed { order.is_lt() } else { order.is_gt() };
        }
        Ok(self.done)
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        Ok(self.done)
    }

    fn filter_cell(&mut self, _cell: CellRef<'_>) -> Result<ReturnCode> {
        Ok(if self.done { ReturnCode::NextRow } else { ReturnCode::Include })
    }

    direction_flag!();
}

/// `PageFilter`: accepts a number of rows, then ends the scan. It counts what one scanner of one region
/// accepts, so clients get up to a page of rows from each region.
pub(crate) struct PageFilter {
    page_size: u64,
    rows_accepted: u64,
    reversed: bool,
}

impl PageFilter {
    pub(crate) fn new(page_size: u64) -> PageFilter {
        PageFilter { page_size, rows_accepted: 0, reversed: false }
    }
}

impl Filter for PageFilter {
    fn filter_all_remaining(&mut self) -> Result<bool> {
        Ok(self.rows_accepted >= self.page_size)
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        self.rows_accepted += 1;
        Ok(self.rows_accepted > self.page_size)
    }

    direction_flag!();
}

/// `RandomRowFilter`: keeps each row with a chance; below 0 none, above 1 all.
pub(crate) struct RandomRowFilter {
    chance: f32,
    random: u64,
    drop_row: bool,
    reversed: bool,
}

impl RandomRowFilter {
    /// `seed` starts the sequence of this scan's choices.
    pub(crate) fn new(chance: f32, seed: u64) -> RandomRowFilter {
        RandomRowFilter { chance, random: seed, drop_row: false, reversed: false }
    }

    /// The next number in 0..1 (SplitMix64, upper 24 bits: what an f32 can hold).
    fn next_random(&mut self) -> f32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let random = (mixed >> 40) as f32 / (1u32 << 24) as f32;
        invariant!((0.0..1.0).contains(&random), "a chance of 1 keeps each row, one of 0 none: {random}");
        random
    }
}

impl Filter for RandomRowFilter {
    fn reset(&mut self) -> Result<()> {
        self.drop_row = false;
        Ok(())
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        let keep =
            if self.chance < 0.0 { false } else { self.chance > 1.0 || self.next_random() < self.chance };
        self.drop_row = !keep;
        Ok(self.drop_row)
    }

    fn filter_cell(&mut self, _cell: CellRef<'_>) -> Result<ReturnCode> {
        Ok(if self.drop_row { ReturnCode::NextRow } else { ReturnCode::Include })
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.drop_row)
    }

    direction_flag!();
}
