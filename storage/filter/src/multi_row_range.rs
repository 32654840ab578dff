//! `MultiRowRangeFilter`: rows of any of some ranges, with hints over the gaps.
//!
//! Ranges are sorted and merged when the filter is built, so at any row at most one of them matters: the one
//! that holds the row, or the next one in the direction of the scan. Java clients send their ranges merged
//! already; for others the union is exact, where HBase's own merge takes or loses a border row in some
//! overlaps of inclusive with exclusive ends.

use std::cmp::Ordering;

use bytes::Bytes;
use halcyon_cell::{CellRef, Error, Key, Result};
use halcyon_env::invariant;

use crate::filter::direction_flag;
use crate::{Filter, ReturnCode};

/// A range of rows. An empty start or stop leaves that side open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowRange {
    pub(crate) start: Bytes,
    pub(crate) start_inclusive: bool,
    pub(crate) stop: Bytes,
    pub(crate) stop_inclusive: bool,
}

impl RowRange {
    fn is_valid(&self) -> bool {
        self.start.is_empty()
            || self.stop.is_empty()
            || self.start < self.stop
            || (self.start == self.stop && self.stop_inclusive)
    }

    /// Where `row` is: before the range, in it, or behind it.
    fn locate(&self, row: &[u8]) -> Ordering {
        match row.cmp(&self.start) {
            Ordering::Less => return Ordering::Less,
            Ordering::Equal if !self.start_inclusive => return Ordering::Less,
            _ => {}
        }
        if self.stop.is_empty() {
            return Ordering::Equal;
        }
        match row.cmp(&self.stop) {
            Ordering::Greater => Ordering::Greater,
            Ordering::Equal if !self.stop_inclusive => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    /// Whether no row lies between this range and `next`, which does not start before it.
    fn touches(&self, next: &RowRange) -> bool {
        if self.stop.is_empty() {
            return true;
        }
        match next.start.cmp(&self.stop) {
            Ordering::Less => true,
            Ordering::Equal => self.stop_inclusive || next.start_inclusive,
            Ordering::Greater => false,
        }
    }

    /// Takes over the stop of `other` if it is farther.
    fn extend_to(&mut self, other: RowRange) {
        assert!(
            self.start <= other.start,
            "ranges are joined in the order of their starts: rows from {} on would be left out",
            other.start.escape_ascii()
        );
        if self.stop.is_empty() {
            return;
        }
        if other.stop.is_empty() || other.stop > self.stop {
            self.stop = other.stop;
            self.stop_inclusive = other.stop_inclusive;
        } else if other.stop == self.stop {
            self.stop_inclusive |= other.stop_inclusive;
        }
    }
}

/// Sorts and joins ranges that overlap or touch.
///
/// Errors (kind `Invalid`): there is no range, or one ends before it starts.
fn merge(mut ranges: Vec<RowRange>) -> Result<Vec<RowRange>> {
    if ranges.is_empty() {
        return Err(Error::invalid("MultiRowRangeFilter: No ranges found."));
    }
    if let Some(bad) = ranges.iter().find(|range| !range.is_valid()) {
        return Err(Error::invalid(format!(
            "MultiRowRangeFilter: invalid range: start row {}, stop row {}",
            bad.start.escape_ascii(),
            bad.stop.escape_ascii()
        )));
    }
    ranges.sort_by(|left, right| {
        left.start.cmp(&right.start).then_with(|| right.start_inclusive.cmp(&left.start_inclusive))
    });
    let mut merged: Vec<RowRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.touches(&range) => last.extend_to(range),
            _ => merged.push(range),
        }
    }
    assert!(
        merged.is_sorted_by(|left, right| left.start <= right.start && !left.touches(right)),
        "ranges ascend with gaps between them: a row is looked for from the range of the row before it"
    );
    Ok(merged)
}

pub(crate) struct MultiRowRangeFilter {
    /// Ascending, with gaps between them.
    ranges: Vec<RowRange>,
    /// The range that the last row was in or before.
    at: usize,
    /// The answer to every cell of this row, `None` before the row key was seen.
    code: Option<ReturnCode>,
    done: bool,
    reversed: bool,
}

impl MultiRowRangeFilter {
    pub(crate) fn new(ranges: Vec<RowRange>) -> Result<MultiRowRangeFilter> {
        Ok(MultiRowRangeFilter { ranges: merge(ranges)?, at: 0, code: None, done: false, reversed: false })
    }

    fn decide(&mut self, row: &[u8]) -> ReturnCode {
        if self.ranges[self.at].locate(row) == Ordering::Equal {
            return ReturnCode::Include;
        }
        // The first range that does not end before the row, which may hold it.
        let not_behind = self.ranges.partition_point(|range| range.locate(row) == Ordering::Greater);
        if let Some(range) = self.ranges.get(not_behind)
            && range.locate(row) == Ordering::Equal
        {
            self.at = not_behind;
            return ReturnCode::Include;
        }
        // The row is in a gap: `not_behind` is the range above it, and the one before that the range below.
        let next = if self.reversed { not_behind.checked_sub(1) } else { Some(not_behind) };
        let Some((at, range)) = next.and_then(|at| Some((at, self.ranges.get(at)?))) else {
            self.done = true;
            return ReturnCode::NextRow;
        };
        self.at = at;
        // On an exclusive border the hint would lead to where the scan is.
        let border = if self.reversed { &range.stop } else { &range.start };
        invariant!(
            if self.reversed { row >= &border[..] } else { row <= &border[..] },
            "the next range begins ahead of {}: {} is behind it, and the hint would lead back",
            row.escape_ascii(),
            border.escape_ascii()
        );
        if row == &border[..] { ReturnCode::NextRow } else { ReturnCode::SeekNextUsingHint }
    }
}

impl Filter for MultiRowRangeFilter {
    fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.ranges.capacity() * size_of::<RowRange>()
    }

    fn reset(&mut self) -> Result<()> {
        self.code = None;
        Ok(())
    }

    fn filter_row_key(&mut self, first: CellRef<'_>) -> Result<bool> {
        if self.done {
            return Ok(true);
        }
        self.code = Some(self.decide(first.row()));
        // Never true: a dropped row would not ask for the hint.
        Ok(false)
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        Ok(self.done)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        // A filter around this one may not have passed on the row key.
        if self.code.is_none() {
            self.code = Some(self.decide(cell.row()));
        }
        Ok(self.code.expect("decided above"))
    }

    fn next_cell_hint(&mut self, _cell: CellRef<'_>) -> Result<Option<Key>> {
        let range = &self.ranges[self.at];
        Ok(Some(Key::first_on_row(if self.reversed { &range.stop } else { &range.start })))
    }

    fn is_hinting(&self) -> bool {
        true
    }

    direction_flag!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> RowRange {
        let (start, stop) = text[1..text.len() - 1].split_once(',').unwrap();
        RowRange {
            start: Bytes::copy_from_slice(start.as_bytes()),
            start_inclusive: text.starts_with('['),
            stop: Bytes::copy_from_slice(stop.as_bytes()),
            stop_inclusive: text.ends_with(']'),
        }
    }

    fn merged(texts: &[&str]) -> Vec<String> {
        let ranges = merge(texts.iter().map(|text| range(text)).collect()).unwrap();
        let show = |range: &RowRange| {
            let (open, close) =
                (if range.start_inclusive { '[' } else { '(' }, if range.stop_inclusive { ']' } else { ')' });
            format!("{open}{},{}{close}", range.start.escape_ascii(), range.stop.escape_ascii())
        };
        ranges.iter().map(show).collect()
    }

    #[test]
    fn merges_what_overlaps_or_touches() {
        assert_eq!(merged(&["[30,40)", "[10,20)"]), ["[10,20)", "[30,40)"]);
        assert_eq!(merged(&["[10,20)", "[20,30)"]), ["[10,30)"]);
        assert_eq!(merged(&["[10,20)", "(20,30)"]), ["[10,20)", "(20,30)"]);
        assert_eq!(merged(&["[10,20]", "(20,30)"]), ["[10,30)"]);
        assert_eq!(merged(&["[10,40)", "[20,30]", "[35,50)"]), ["[10,50)"]);
        assert_eq!(merged(&["[10,40)", "[20,30]"]), ["[10,40)"]);
        assert_eq!(merged(&["(10,40)", "[10,30)"]), ["[10,40)"]);
        assert_eq!(merged(&["[10,)", "[20,30)", "[40,50)"]), ["[10,)"]);
        assert_eq!(merged(&["[,20)", "[15,)"]), ["[,)"]);
        assert_eq!(merged(&["[10,10]", "[05,07)"]), ["[05,07)", "[10,10]"]);
    }

    #[test]
    fn refuses_what_is_not_a_range() {
        assert!(merge(vec![]).is_err());
        assert!(merge(vec![range("[20,10)")]).is_err());
        assert!(merge(vec![range("[10,10)")]).is_err());
        assert!(merge(vec![range("[10,20)"), range("[40,30)")]).is_err());
    }
}
