//! Rows of the key map: each table's key space, cut at every boundary that a range in it has.
//!
//! A region and the daughters it was split into share rows, as do a segment and its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;

use super::keys_text::key_text;
use super::segments::only_key;

/// The key range of a region or of a segment of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub table: String,
    pub start: Vec<u8>,
    /// Empty: to the end of the table.
    pub end: Vec<u8>,
}

/// One row of a map.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub table: String,
    /// Escaped; empty: from the first key.
    pub start: String,
    /// Escaped, not included; empty: to the last key.
    pub end: String,
    /// Key ranges that are joined in this row.
    pub ranges: usize,
    /// The row consists of its first key only.
    pub is_one_key: bool,
}

/// Each table's key space, cut at every boundary.
pub struct Rows<'k> {
    /// Table and first key, in order.
    starts: Vec<(&'k str, &'k [u8])>,
}

/// Rows of a map, and in which of them each cut range is.
pub struct Joined {
    pub rows: Vec<Row>,
    row_of: Vec<usize>,
}

impl<'k> Rows<'k> {
    pub fn of(ranges: &[(u32, &'k KeyRange)]) -> Rows<'k> {
        let mut starts: BTreeMap<&str, BTreeSet<&[u8]>> = BTreeMap::new();
        for (_, range) in ranges {
            let of_table = starts.entry(&range.table).or_default();
            of_table.insert(&range.start);
            if !range.end.is_empty() {
                of_table.insert(&range.end);
            }
        }
        let mut rows: Vec<_> = starts
            .into_iter()
            .flat_map(|(table, keys)| keys.into_iter().map(move |key| (table, key)))
            .collect();
        let covered = Covered::of(ranges);
        rows.retain(|(table, key)| covered.contains(table, key)); // the end of the last range begins no row
        Rows { starts: rows }
    }

    /// The rows that a range covers.
    pub fn covered(&self, range: &KeyRange) -> Range<usize> {
        let first = self.starts.partition_point(|row| *row < (&*range.table, &range.start[..]));
        let end = if range.end.is_empty() {
            self.starts.partition_point(|(table, _)| *table <= &*range.table)
        } else {
            self.starts.partition_point(|row| *row < (&*range.table, &range.end[..]))
        };
        first..end
    }

    /// Joins neighbours of one table until at most `rows_max` rows are left, or one for each table.
    pub fn joined(&self, rows_max: usize) -> Joined {
        let in_one = self.starts.len().div_ceil(rows_max).max(1);
        let mut joined = Joined { rows: Vec::new(), row_of: Vec::with_capacity(self.starts.len()) };
        for (at, (table, start)) in self.starts.iter().enumerate() {
            let next = self.starts.get(at + 1).filter(|(next, _)| next == table);
            let end_key = next.map_or(&[][..], |(_, key)| key);
            let end = key_text(end_key);
            match joined.rows.last_mut() {
                Some(row) if row.table == *table && row.ranges < in_one => {
                    row.ranges += 1;
                    row.end = end;
                    row.is_one_key = false;
                }
                _ => {
                    let (table, start_text) = (table.to_string(), key_text(start));
                    let is_one_key = only_key(start, end_key).is_some();
                    joined.rows.push(Row { table, start: start_text, end, ranges: 1, is_one_key });
                }
            }
            joined.row_of.push(joined.rows.len() - 1);
        }
        joined
    }
}

impl Joined {
    /// The rows of the map that are in these cut ranges, and which share of them each has.
    pub fn shares(&self, covered: Range<usize>) -> Vec<(usize, f64)> {
        let one = 1.0 / covered.len().max(1) as f64;
        let mut shares: Vec<(usize, f64)> = Vec::new();
        for row in &self.row_of[covered] {
            match shares.last_mut() {
                Some((last, share)) if last == row => *share += one,
                _ => shares.push((*row, one)),
            }
        }
        shares
    }
}

/// First key, and end; `None`: the end of the table.
type Span<'k> = (&'k [u8], Option<&'k [u8]>);

/// What ranges cover of each table: disjoint, in order.
struct Covered<'k>(BTreeMap<&'k str, Vec<Span<'k>>>);

impl<'k> Covered<'k> {
    fn of(ranges: &[(u32, &'k KeyRange)]) -> Covered<'k> {
        let mut sorted: Vec<&KeyRange> = ranges.iter().map(|(_, range)| *range).collect();
        sorted.sort_by(|a, b| (&a.table, &a.start).cmp(&(&b.table, &b.start)));
        let mut covered: BTreeMap<&str, Vec<Span<'_>>> = BTreeMap::new();
        for range in sorted {
            let end = (!range.end.is_empty()).then_some(&range.end[..]);
            let of_table = covered.entry(&range.table).or_default();
            match of_table.last_mut() {
                Some((_, last)) if last.is_none_or(|last| &range.start[..] <= last) => {
                    *last = last.and_then(|last| end.map(|end| end.max(last)));
                }
                _ => of_table.push((&range.start, end)),
            }
        }
        Covered(covered)
    }

    fn contains(&self, table: &str, key: &[u8]) -> bool {
        let of_table = self.0.get(table).map_or(&[][..], Vec::as_slice);
        let at = of_table.partition_point(|(start, _)| *start <= key);
        at > 0 && of_table[at - 1].1.is_none_or(|end| key < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(table: &str, start: &str, end: &str) -> KeyRange {
        KeyRange { table: table.to_string(), start: start.into(), end: end.into() }
    }

    #[test]
    fn gaps_between_ranges_are_no_rows() {
        let ranges = [range("t", "a", "c"), range("t", "b", "d"), range("t", "x", ""), range("u", "", "b")];
        let numbered: Vec<(u32, &KeyRange)> = ranges.iter().map(|range| (0, range)).collect();
        let starts: Vec<(&str, &[u8])> = Rows::of(&numbered).starts;
        let expected: [(&str, &[u8]); 5] = [("t", b"a"), ("t", b"b"), ("t", b"c"), ("t", b"x"), ("u", b"")];
        assert_eq!(starts, expected);
    }

    #[test]
    fn a_row_of_one_key_is_called_so_until_it_is_joined() {
        let ranges = [range("t", "", "k"), range("t", "k", "k\0"), range("t", "k\0", "")];
        let numbered: Vec<(u32, &KeyRange)> = ranges.iter().map(|range| (0, range)).collect();
        let rows = Rows::of(&numbered);
        let one_key: Vec<bool> = rows.joined(10).rows.iter().map(|row| row.is_one_key).collect();
        assert_eq!(one_key, [false, true, false]);
        let joined = rows.joined(2);
        assert!(joined.rows.iter().all(|row| !row.is_one_key));
        assert_eq!(joined.shares(0..3).len(), 2);
        assert!((joined.shares(0..3).iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
    }
}
