use std::cmp::Ordering;

use crate::{CellRef, CellType, KeyRef};

/// Words of eight bytes that are compared in place.
const INLINE_WORDS: usize = 4;

/// The order of cells: row, family, qualifier ascending; timestamp, type, sequence id descending.
///
/// `Meta` differs in the row part alone (HBase: `MetaCellComparator`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum CellComparator {
    #[default]
    Default,
    Meta,
}

impl CellComparator {
    /// Compares two rows.
    #[inline]
    pub fn compare_rows(self, left: &[u8], right: &[u8]) -> Ordering {
        match self {
            CellComparator::Default => compare_bytes(left, right),
            CellComparator::Meta => compare_meta_rows(left, right),
        }
    }

    /// Compares two keys; equal keys of different sequence ids are equal here.
    #[inline]
    pub fn compare_keys(self, left: KeyRef<'_>, right: KeyRef<'_>) -> Ordering {
        let (left_row, right_row) = (left.row(), right.row());
        match self.compare_rows(left_row, right_row) {
            Ordering::Equal => compare_behind_row(left, right),
            unequal => unequal,
        }
    }

    /// Compares two cells: the key, then the higher sequence id first.
    #[inline]
    pub fn compare(self, left: CellRef<'_>, right: CellRef<'_>) -> Ordering {
        self.compare_keys(left.key(), right.key()).then_with(|| right.seq().cmp(&left.seq()))
    }

    /// The name under which HBase's HFile trailer knows this order.
    pub fn trailer_name(self) -> &'static str {
        match self {
            CellComparator::Default => "org.apache.hadoop.hbase.KeyValue$KVComparator",
            CellComparator::Meta => "org.apache.hadoop.hbase.KeyValue$MetaComparator",
        }
    }
}

/// `left.cmp(right)`, without a call for what lies within the first bytes: rows are short, and are compared at every
/// step of a merge.
#[inline]
fn compare_bytes(mut left: &[u8], mut right: &[u8]) -> Ordering {
    for _ in 0..INLINE_WORDS {
        let (Some((left_word, left_rest)), Some((right_word, right_rest))) =
            (left.split_first_chunk::<8>(), right.split_first_chunk::<8>())
        else {
            break;
        };
        if left_word != right_word {
            return u64::from_be_bytes(*left_word).cmp(&u64::from_be_bytes(*right_word));
        }
        (left, right) = (left_rest, right_rest);
    }
    left.cmp(right)
}

/// `left == right`, without a call for short slices.
#[inline]
pub fn same_bytes(left: &[u8], right: &[u8]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    match left.len() {
        0..=3 => left.iter().zip(right).all(|(left, right)| left == right),
        4..=7 => {
            left.first_chunk::<4>() == right.first_chunk() && left.last_chunk::<4>() == right.last_chunk()
        }
        8..=16 => {
            left.first_chunk::<8>() == right.first_chunk() && left.last_chunk::<8>() == right.last_chunk()
        }
        17..=32 => {
            left.first_chunk::<16>() == right.first_chunk() && left.last_chunk::<16>() == right.last_chunk()
        }
        _ => left == right,
    }
}

/// Puts `bytes` in place of what `kept` holds, without a call for short slices of the length of those before.
#[inline]
pub fn keep_bytes(kept: &mut Vec<u8>, bytes: &[u8]) {
    if kept.len() == bytes.len()
        && let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>())
        && bytes.len() <= 16
    {
        let last_at = bytes.len() - 8;
        kept[..8].copy_from_slice(first);
        kept[last_at..].copy_from_slice(last);
        return;
    }
    kept.clear();
    kept.extend_from_slice(bytes);
}

fn compare_behind_row(left: KeyRef<'_>, right: KeyRef<'_>) -> Ordering {
    let (left_family, right_family) = (left.family(), right.family());
    let (left_qualifier, right_qualifier) = (left.qualifier(), right.qualifier());
    // An empty column of type Minimum stands for the end of the row (CellComparatorImpl.compareWithoutRow).
    let minimum = CellType::Minimum as u8;
    let left_last = left_family.is_empty() && left_qualifier.is_empty() && left.type_code() == minimum;
    let right_last = right_family.is_empty() && right_qualifier.is_empty() && right.type_code() == minimum;
    match (left_last, right_last) {
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        _ => {}
    }
    left_family
        .cmp(right_family)
        .then_with(|| left_qualifier.cmp(right_qualifier))
        .then_with(|| right.timestamp().cmp(&left.timestamp()))
        .then_with(|| right.type_code().cmp(&left.type_code()))
}

/// Rows of `hbase:meta` are `table,start key,region id`: each part is compared by itself, because table names
/// and start keys may hold bytes below the comma, and start keys commas (`MetaCellComparator.compareRows`).
fn compare_meta_rows(left: &[u8], right: &[u8]) -> Ordering {
    let (left_table, left_rest) = split_first(left);
    let (right_table, right_rest) = split_first(right);
    match left_table.cmp(right_table) {
        Ordering::Equal => {}
        unequal => return unequal,
    }
    let (left_rest, right_rest) = match (left_rest, right_rest) {
        (None, None) => return Ordering::Equal,
        (None, Some(_)) => return Ordering::Less,
        (Some(_), None) => return Ordering::Greater,
        (Some(l), Some(r)) => (l, r),
    };
    let (left_start, left_id) = split_last(left_rest);
    let (right_start, right_id) = split_last(right_rest);
    left_start.cmp(right_start).then_with(|| left_id.cmp(right_id))
}

fn split_first(row: &[u8]) -> (&[u8], Option<&[u8]>) {
    match row.iter().position(|&b| b == b',') {
        Some(at) => (&row[..at], Some(&row[at + 1..])),
        None => (row, None),
    }
}

/// Splits at the last comma; without one all is start key and the id is empty.
fn split_last(rest: &[u8]) -> (&[u8], &[u8]) {
    match rest.iter().rposition(|&b| b == b',') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &[]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Key};

    #[test]
    fn short_ways_say_what_the_long_ones_say() {
        let long: Vec<u8> = (0..45).collect();
        for left_len in 0..=long.len() {
            for right_len in 0..=long.len() {
                let (left, right) = (&long[..left_len], &long[..right_len]);
                assert_eq!(same_bytes(left, right), left == right);
                assert_eq!(compare_bytes(left, right), left.cmp(right));
                let mut kept = vec![0xff; right_len];
                keep_bytes(&mut kept, left);
                assert_eq!(kept, left);
            }
            for at in 0..left_len {
                let mut other = long[..left_len].to_vec();
                other[at] ^= 0x81;
                let left = &long[..left_len];
                assert!(!same_bytes(left, &other));
                assert_eq!(compare_bytes(left, &other), left.cmp(&other[..]));
                assert_eq!(compare_bytes(&other, left), other[..].cmp(left));
            }
        }
    }

    #[test]
    fn orders_versions_newest_first_and_deletes_before_puts() {
        let c = CellComparator::Default;
        let put = |ts, seq| Cell::put(b"r", b"f", b"q", ts, b"").with_seq(seq);
        let delete = Cell::build(b"r", b"f", b"q", 5, CellType::DeleteColumn, b"", b"", 1);
        assert_eq!(c.compare(put(6, 0).get(), put(5, 0).get()), Ordering::Less);
        assert_eq!(c.compare(delete.get(), put(5, 9).get()), Ordering::Less);
        assert_eq!(c.compare(put(5, 9).get(), put(5, 8).get()), Ordering::Less);
    }

    #[test]
    fn row_bounds_enclose_every_cell_of_the_row() {
        let c = CellComparator::Default;
        let cell = Cell::put(b"r", b"f", b"q", i64::MIN, b"");
        let first = Key::first_on_row(b"r");
        let last = Key::last_on_row(b"r");
        assert_eq!(c.compare_keys(first.get(), cell.get().key()), Ordering::Less);
        assert_eq!(c.compare_keys(last.get(), cell.get().key()), Ordering::Greater);
        assert_eq!(c.compare_keys(last.get(), Key::first_on_row(b"r\0").get()), Ordering::Less);
    }

    #[test]
    fn meta_rows_compare_part_by_part() {
        let c = CellComparator::Meta;
        let less = |a: &[u8], b: &[u8]| assert_eq!(c.compare_rows(a, b), Ordering::Less, "{a:?} {b:?}");
        less(b"t,,1", b"t ,,"); // 0x20 is below the comma, yet table "t" is before table "t "
        less(b"t,a,9", b"t,a\x01,1");
        less(b"t,a,b,1", b"t,a,c,1");
        less(b"t", b"t,,1");
        less(b"t,k,1", b"t,k,:");
    }
}
