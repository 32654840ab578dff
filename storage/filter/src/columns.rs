//! Filters that decide by the qualifier, or count columns. Counters are per row and go on from one family of
//! a row to the next.

use bytes::Bytes;
use halcyon_cell::{CellRef, Key, Result};
use halcyon_env::invariant;

use crate::filter::direction_flag;
use crate::{Filter, ReturnCode};

/// `ColumnCountGetFilter`: the first columns of a row. Once a row has more, the scan ends, which is why it
/// suits gets only.
pub(crate) struct ColumnCountGetFilter {
    limit: u32,
    count: u32,
    reversed: bool,
}

impl ColumnCountGetFilter {
    pub(crate) fn new(limit: u32) -> ColumnCountGetFilter {
        ColumnCountGetFilter { limit, count: 0, reversed: false }
    }
}

impl Filter for ColumnCountGetFilter {
    fn reset(&mut self) -> Result<()> {
        self.count = 0;
        Ok(())
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        Ok(self.count > self.limit)
    }

    fn filter_cell(&mut self, _cell: CellRef<'_>) -> Result<ReturnCode> {
        self.count = self.count.saturating_add(1);
        Ok(if self.count > self.limit { ReturnCode::NextCol } else { ReturnCode::IncludeAndNextCol })
    }

    direction_flag!();
}

/// Where a [`ColumnPaginationFilter`] starts.
pub(crate) enum PageStart {
    /// This many columns are left out first.
    Skip(u32),
    /// At this qualifier.
    Qualifier(Bytes),
}

/// `ColumnPaginationFilter`: one page of a row's columns.
///
/// HBase adds limit and offset in 32 bits and returns nothing when that overflows; here it does not.
pub(crate) struct ColumnPaginationFilter {
    limit: u32,
    start: PageStart,
    count: u64,
    reversed: bool,
}

impl ColumnPaginationFilter {
    pub(crate) fn new(limit: u32, start: PageStart) -> ColumnPaginationFilter {
        ColumnPaginationFilter { limit, start, count: 0, reversed: false }
    }
}

impl Filter for ColumnPaginationFilter {
    fn reset(&mut self) -> Result<()> {
        self.count = 0;
        Ok(())
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let limit = u64::from(self.limit);
        let code = match &self.start {
            PageStart::Qualifier(_) if self.count >= limit => return Ok(ReturnCode::NextRow),
            PageStart::Qualifier(qualifier) => {
                if self.count == 0 && cell.qualifier() < &qualifier[..] {
                    return Ok(ReturnCode::SeekNextUsingHint);
                }
                ReturnCode::IncludeAndNextCol
            }
            PageStart::Skip(offset) => {
                let offset = u64::from(*offset);
                if self.count >= offset + limit {
                    return Ok(ReturnCode::NextRow);
                }
                if self.count < offset { ReturnCode::NextCol } else { ReturnCode::IncludeAndNextCol }
            }
        };
        self.count += 1;
        invariant!(
            match &self.start {
                PageStart::Skip(offset) => self.count <= u64::from(*offset) + limit,
                PageStart::Qualifier(_) => self.count <= limit,
            },
            "a row has no more columns in the page than it may: {} of {limit}",
            self.count
        );
        Ok(code)
    }

    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        Ok(match &self.start {
            PageStart::Qualifier(qualifier) => {
                Some(Key::first_on_column(cell.row(), cell.family(), qualifier))
            }
            PageStart::Skip(_) => None,
        })
    }

    direction_flag!();
}

/// `ColumnPrefixFilter`: qualifiers that start with a prefix.
pub(crate) struct ColumnPrefixFilter {
    prefix: Bytes,
    reversed: bool,
}

impl ColumnPrefixFilter {
    pub(crate) fn new(prefix: Bytes) -> ColumnPrefixFilter {
        ColumnPrefixFilter { prefix, reversed: false }
    }
}

impl Filter for ColumnPrefixFilter {
    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let qualifier = cell.qualifier();
        let order = qualifier[..qualifier.len().min(self.prefix.len())].cmp(&self.prefix);
        Ok(match order {
            std::cmp::Ordering::Less => ReturnCode::SeekNextUsingHint,
            std::cmp::Ordering::Equal => ReturnCode::Include,
            std::cmp::Ordering::Greater => ReturnCode::NextRow,
        })
    }

    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        Ok(Some(Key::first_on_column(cell.row(), cell.family(), &self.prefix)))
    }

    fn is_hinting(&self) -> bool {
        true
    }

    direction_flag!();
}

/// `ColumnRangeFilter`: an interval of qualifiers; `None` leaves a side open.
pub(crate) struct ColumnRangeFilter {
    min: Option<Bytes>,
    min_inclusive: bool,
    max: Option<Bytes>,
    max_inclusive: bool,
    reversed: bool,
}

impl ColumnRangeFilter {
    pub(crate) fn new(
        min: Option<Bytes>,
        min_inclusive: bool,
        max: Option<Bytes>,
        max_inclusive: bool,
    ) -> ColumnRangeFilter {
        ColumnRangeFilter { min, min_inclusive, max, max_inclusive, reversed: false }
    }
}

impl Filter for ColumnRangeFilter {
    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let qualifier = cell.qualifier();
        if let Some(min) = &self.min {
            if qualifier < &min[..] {
                return Ok(ReturnCode::SeekNextUsingHint);
            }
            if !self.min_inclusive && qualifier == &min[..] {
                return Ok(ReturnCode::NextCol);
            }
        }
        let inside = match &self.max {
            None => true,
            Some(max) if self.max_inclusive => qualifier <= &max[..],
            Some(max) => qualifier < &max[..],
        };
        Ok(if inside { ReturnCode::Include } else { ReturnCode::NextRow })
    }

    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        let min = self.min.as_ref();
        Ok(min.map(|min| Key::first_on_column(cell.row(), cell.family(), min)))
    }

    fn is_hinting(&self) -> bool {
        true
    }

    direction_flag!();
}

/// `MultipleColumnPrefixFilter`: qualifiers that start with any of some prefixes. Without prefixes it keeps
/// all.
///
/// It looks only at the greatest prefix not above the qualifier, as HBase does: of the prefixes `a` and `ab`
/// the qualifier `ac` is refused.
pub(crate) struct MultipleColumnPrefixFilter {
    /// Ascending, without duplicates.
    prefixes: Vec<Bytes>,
    /// Index of the prefix to seek to, set with each `SeekNextUsingHint`.
    hint: usize,
    reversed: bool,
}

impl MultipleColumnPrefixFilter {
    /// `prefixes` are sorted and distinct.
    pub(crate) fn new(prefixes: Vec<Bytes>) -> MultipleColumnPrefixFilter {
        assert!(prefixes.is_sorted_by(|left, right| left < right), "prefixes are distinct and sorted");
        MultipleColumnPrefixFilter { prefixes, hint: 0, reversed: false }
    }
}

impl Filter for MultipleColumnPrefixFilter {
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.prefixes.capacity() * size_of::<Bytes>()
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        if self.prefixes.is_empty() {
            return Ok(ReturnCode::Include);
        }
        let qualifier = cell.qualifier();
        let above = self.prefixes.partition_point(|prefix| &prefix[..] <= qualifier);
        if above > 0 && qualifier.starts_with(&self.prefixes[above - 1]) {
            return Ok(ReturnCode::Include);
        }
        if above == self.prefixes.len() {
            return Ok(ReturnCode::NextRow);
        }
        self.hint = above;
        Ok(ReturnCode::SeekNextUsingHint)
    }

    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        let prefix = self.prefixes.get(self.hint);
        Ok(prefix.map(|prefix| Key::first_on_column(cell.row(), cell.family(), prefix)))
    }

    fn is_hinting(&self) -> bool {
        true
    }

    direction_flag!();
}

/// `FirstKeyOnlyFilter`, and `FirstKeyValueMatchingQualifiersFilter`: a row's cells up to and including the
/// first one (of certain qualifiers).
pub(crate) struct FirstKeyOnlyFilter {
    /// Sorted; `None`: any cell counts.
    qualifiers: Option<Vec<Bytes>>,
    found: bool,
    reversed: bool,
}

impl FirstKeyOnlyFilter {
    pub(crate) fn new() -> FirstKeyOnlyFilter {
        FirstKeyOnlyFilter { qualifiers: None, found: false, reversed: false }
    }

    pub(crate) fn of_qualifiers(mut qualifiers: Vec<Bytes>) -> FirstKeyOnlyFilter {
        qualifiers.sort();
        FirstKeyOnlyFilter { qualifiers: Some(qualifiers), found: false, reversed: false }
    }
}

impl Filter for FirstKeyOnlyFilter {
    fn held_bytes(&self) -> usize {
        let qualifiers = self.qualifiers.as_ref().map_or(0, Vec::capacity);
        size_of::<Self>() + qualifiers * size_of::<Bytes>()
    }

    fn reset(&mut self) -> Result<()> {
        self.found = false;
        Ok(())
    }

    fn filter_row_key(&mut self, _first: CellRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        if self.found {
            return Ok(ReturnCode::NextRow);
        }
        self.found = match &self.qualifiers {
            None => true,
            Some(some) => some.binary_search_by(|one| one[..].cmp(cell.qualifier())).is_ok(),
        };
        Ok(ReturnCode::Include)
    }

    direction_flag!();
}
