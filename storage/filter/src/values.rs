//! Filters that compare a part of each cell, or decide about a row by the value of one column.

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, Error, Key, Result};
use halcyon_env::invariant;
use halcyon_proto::pb::CompareType;

use crate::comparator::Comparison;
use crate::filter::direction_flag;
use crate::kept::Room;
use crate::{Filter, ReturnCode, looks};

/// What a [`PartFilter`] compares.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Family,
    Qualifier,
    Value,
}

/// `FamilyFilter`, `QualifierFilter` and `ValueFilter`: cells whose part stands in the relation.
pub(crate) struct PartFilter {
    part: Part,
    comparison: Comparison,
    reversed: bool,
}

impl PartFilter {
    pub(crate) fn new(part: Part, comparison: Comparison) -> PartFilter {
        PartFilter { part, comparison, reversed: false }
    }
}

impl Filter for PartFilter {
    fn cost(&self) -> u32 {
        self.comparison.cost()
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.comparison.held_bytes()
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let (kept, code) = match self.part {
            Part::Family if cell.family().is_empty() => (true, ReturnCode::NextRow),
            Part::Family => (self.comparison.keeps(cell.family())?, ReturnCode::NextRow),
            Part::Qualifier => (self.comparison.keeps(cell.qualifier())?, ReturnCode::Skip),
            Part::Value => (self.comparison.keeps(cell.value())?, ReturnCode::Skip),
        };
        Ok(if kept { ReturnCode::Include } else { code })
    }

    fn looks_at_value(&self, _cell: CellRef<'_>) -> bool {
        self.part == Part::Value
    }

    direction_flag!();
}

/// A column that a filter looks for. An absent family or qualifier in a request means an empty one.
#[derive(Clone)]
pub(crate) struct Column {
    pub(crate) family: Bytes,
    pub(crate) qualifier: Bytes,
}

impl Column {
    #[inline]
    fn matches(&self, cell: CellRef<'_>) -> bool {
        cell.qualifier() == &self.qualifier[..] && cell.family() == &self.family[..]
    }
}

/// `ColumnValueFilter`: nothing but the cells of one column whose value stands in the relation.
pub(crate) struct ColumnValueFilter {
    column: Column,
    comparison: Comparison,
    found: bool,
    reversed: bool,
}

impl ColumnValueFilter {
    pub(crate) fn new(column: Column, comparison: Comparison) -> ColumnValueFilter {
        ColumnValueFilter { column, comparison, found: false, reversed: false }
    }
}

impl Filter for ColumnValueFilter {
    fn cost(&self) -> u32 {
        self.comparison.cost()
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.comparison.held_bytes()
    }

    fn reset(&mut self) -> Result<()> {
        self.found = false;
        Ok(())
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        if !self.column.matches(cell) {
            return Ok(if self.found { ReturnCode::NextRow } else { ReturnCode::NextCol });
        }
        self.found = true;
        let kept = self.comparison.keeps(cell.value())?;
        Ok(if kept { ReturnCode::Include } else { ReturnCode::Skip })
    }

    fn looks_at_value(&self, cell: CellRef<'_>) -> bool {
        self.column.matches(cell)
    }

    fn is_family_essential(&self, family: &[u8]) -> Result<bool> {
        Ok(family == &self.column.family[..])
    }

    direction_flag!();
}

/// `SingleColumnValueFilter`, and with `exclude` `SingleColumnValueExcludeFilter`: one column's value decides
/// about the whole row. The column has to be among those that the scan reads.
pub(crate) struct SingleColumnValueFilter {
    pub(crate) column: Column,
    pub(crate) comparison: Comparison,
    /// Rows without the column are dropped.
    pub(crate) filter_if_missing: bool,
    /// The newest version alone decides; otherwise any version may save the row.
    pub(crate) latest_version_only: bool,
    /// The column itself is taken out of rows that stay.
    pub(crate) exclude: bool,
    found: bool,
    matched: bool,
    reversed: bool,
}

impl SingleColumnValueFilter {
    pub(crate) fn new(column: Column, comparison: Comparison) -> SingleColumnValueFilter {
        SingleColumnValueFilter {
            column,
            comparison,
            filter_if_missing: false,
            latest_version_only: false,
            exclude: false,
            found: false,
            matched: false,
            reversed: false,
        }
    }
}

impl Filter for SingleColumnValueFilter {
    fn cost(&self) -> u32 {
        self.comparison.cost()
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.comparison.held_bytes()
    }

    fn reset(&mut self) -> Result<()> {
        self.found = false;
        self.matched = false;
        Ok(())
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        if self.matched {
            return Ok(ReturnCode::Include);
        }
        if self.latest_version_only && self.found {
            return Ok(ReturnCode::NextRow);
        }
        if !self.column.matches(cell) {
            return Ok(ReturnCode::Include);
        }
        self.found = true;
        if self.comparison.op() == CompareType::NoOp {
            // HBase compares before it looks at the operator, so of two mistakes it names the value's.
            self.comparison.check(cell.value())?;
            return Err(Error::invalid("SingleColumnValueFilter cannot compare with NO_OP"));
        }
        self.matched = self.comparison.keeps(cell.value())?;
        Ok(if !self.matched && self.latest_version_only { ReturnCode::NextRow } else { ReturnCode::Include })
    }

    fn looks_at_value(&self, cell: CellRef<'_>) -> bool {
        let is_decided = self.matched || (self.latest_version_only && self.found);
        !is_decided && self.column.matches(cell)
    }

    fn filter_row_cells(&mut self, cells: &mut Vec<Cell>) -> Result<()> {
        if self.exclude {
            cells.retain(|cell| !self.column.matches(cell.get()));
        }
        Ok(())
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    fn filter_row(&mut self) -> Result<bool> {
        invariant!(self.found || !self.matched, "a value that matches is of the column, so the row has it");
        Ok(if self.found { !self.matched } else { self.filter_if_missing })
    }

    fn is_family_essential(&self, family: &[u8]) -> Result<bool> {
        Ok(!self.filter_if_missing || family == &self.column.family[..])
    }

    direction_flag!();
}

/// Room for so many timestamps is kept from one row to the next, and counted by `held_bytes` only.
const TIMESTAMPS_KEPT_MAX: usize = 64;

/// `DependentColumnFilter`: keeps the cells of a row whose timestamp is that of a (passing) cell of the
/// column.
pub(crate) struct DependentColumnFilter {
    column: Column,
    drop_column: bool,
    /// Without a comparator every cell of the column passes; with one and `NO_OP` none does.
    comparison: Comparison,
    /// Timestamps of the column's cells in this row, descending.
    timestamps: Vec<i64>,
    room: Room,
    reversed: bool,
}

impl DependentColumnFilter {
    pub(crate) fn new(
        column: Column,
        drop_column: bool,
        comparison: Comparison,
        room: Room,
    ) -> DependentColumnFilter {
        let timestamps = Vec::new();
        DependentColumnFilter { column, drop_column, comparison, timestamps, room, reversed: false }
    }

    /// Each of many filters has all timestamps of its column.
    fn make_room(&mut self) -> Result<()> {
        let count = self.timestamps.len();
        if count < TIMESTAMPS_KEPT_MAX || count < self.timestamps.capacity() {
            return Ok(());
        }
        self.room.grow_to(2 * count * size_of::<i64>())?;
        self.timestamps.reserve_exact(count);
        Ok(())
    }
}

impl Filter for DependentColumnFilter {
    fn cost(&self) -> u32 {
        self.comparison.cost()
    }

    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.comparison.held_bytes() + TIMESTAMPS_KEPT_MAX * size_of::<i64>()
    }

    fn reset(&mut self) -> Result<()> {
        self.timestamps.clear();
        self.timestamps.shrink_to(TIMESTAMPS_KEPT_MAX);
        self.room.clear();
        Ok(())
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        if !self.column.matches(cell) {
            return Ok(ReturnCode::Include);
        }
        if self.comparison.has_comparator() && !self.comparison.keeps(cell.value())? {
            return Ok(ReturnCode::Skip);
        }
        let timestamp = cell.timestamp();
        if let Err(at) = self.timestamps.binary_search_by(|one| timestamp.cmp(one)) {
            self.make_room()?;
            self.timestamps.insert(at, timestamp);
            invariant!(
                self.timestamps.is_sorted_by(|left, right| left > right),
                "timestamps of a row are searched by halves: {timestamp} came in at {at}"
            );
        }
        Ok(if self.drop_column { ReturnCode::Skip } else { ReturnCode::Include })
    }

    fn looks_at_value(&self, cell: CellRef<'_>) -> bool {
        self.comparison.has_comparator() && self.column.matches(cell)
    }

    fn filter_row_cells(&mut self, cells: &mut Vec<Cell>) -> Result<()> {
        let timestamps = &self.timestamps;
        cells.retain(|cell| timestamps.binary_search_by(|one| cell.timestamp().cmp(one)).is_ok());
        Ok(())
    }

    fn has_filter_row(&self) -> bool {
        true
    }

    direction_flag!();
}

/// `TimestampsFilter`: cells of certain timestamps.
pub(crate) struct TimestampsFilter {
    /// Ascending, without duplicates.
    timestamps: Vec<i64>,
    can_hint: bool,
    reversed: bool,
}

impl TimestampsFilter {
    pub(crate) fn new(mut timestamps: Vec<i64>, can_hint: bool) -> TimestampsFilter {
        timestamps.sort_unstable();
        timestamps.dedup();
        TimestampsFilter { timestamps, can_hint, reversed: false }
    }
}

impl Filter for TimestampsFilter {
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.timestamps.capacity() * size_of::<i64>()
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let timestamp = cell.timestamp();
        Ok(if self.timestamps.binary_search(&timestamp).is_ok() {
            ReturnCode::Include
        } else if timestamp < *self.timestamps.first().unwrap_or(&i64::MAX) {
            ReturnCode::NextCol
        } else if self.can_hint {
            ReturnCode::SeekNextUsingHint
        } else {
            ReturnCode::Skip
        })
    }

    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        if !self.can_hint {
            return Ok(None);
        }
        let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
        let below = self.timestamps.partition_point(|&one| one < cell.timestamp());
        Ok(Some(match below.checked_sub(1) {
            Some(at) => {
                Key::new(row, family, qualifier, self.timestamps[at], halcyon_cell::CellType::Maximum)
            }
            None => Key::last_on_column(row, family, qualifier),
        }))
    }

    fn is_hinting(&self) -> bool {
        true
    }

    direction_flag!();
}

/// `KeyOnlyFilter`: every cell without its value, or with the value's length as four bytes.
pub(crate) struct KeyOnlyFilter {
    length_as_value: bool,
    reversed: bool,
}

impl KeyOnlyFilter {
    pub(crate) fn new(length_as_value: bool) -> KeyOnlyFilter {
        KeyOnlyFilter { length_as_value, reversed: false }
    }
}

impl Filter for KeyOnlyFilter {
    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn transform_cell(&mut self, cell: Cell) -> Result<Cell> {
        let from = cell.get();
        looks::spend_on_key(from.key().bytes().len())?;
        let length = (from.value_len() as u32).to_be_bytes();
        let value: &[u8] = if self.length_as_value { &length } else { &[] };
        let key = from.key().bytes();
        let mut bytes = Vec::with_capacity(halcyon_cell::KEY_OFFSET + key.len() + value.len());
        bytes.extend_from_slice(&(key.len() as u32).to_be_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_be_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        invariant!(
            CellRef::parse(&bytes, 0).is_ok_and(|made| made.key() == from.key() && made.value() == value),
            "what nobody checks again is a cell of the same key"
        );
        Ok(Cell::trusted(bytes.into(), cell.seq()))
    }

    fn looks_at_value(&self, _cell: CellRef<'_>) -> bool {
        self.length_as_value
    }

    fn transforms(&self) -> bool {
        true
    }

    direction_flag!();
}
