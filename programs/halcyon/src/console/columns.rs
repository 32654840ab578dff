//! Events and regions against time: a fixed number of columns for each range.

use std::collections::VecDeque;

use super::timeline::Range;

/// Columns of every range. 90 divides each range into whole seconds: 10, 40, 240 and 960.
pub const COLUMNS_COUNT: usize = 90;

/// One `T` for each interval of each range. An interval without content has none.
pub struct Columns<T> {
    ranges: [VecDeque<(u64, T)>; Range::COUNT],
}

impl<T> Default for Columns<T> {
    fn default() -> Columns<T> {
        Columns { ranges: Default::default() }
    }
}

/// How long a column of this range is.
pub const fn column_s(range: Range) -> u64 {
    range.seconds() / COLUMNS_COUNT as u64
}

/// The number of the first column of a range that ends at `now_s`; negative if that was before second 0.
pub fn first_slot(range: Range, now_s: u64) -> i64 {
    (now_s / column_s(range)) as i64 + 1 - COLUMNS_COUNT as i64
}

impl<T: Default> Columns<T> {
    /// Adds to the column of `at_s` in every range. What is older than the newest column counts into that.
    pub fn add(&mut self, at_s: u64, mut add: impl FnMut(&mut T)) {
        for (columns, range) in self.ranges.iter_mut().zip(Range::ALL) {
            let slot = at_s / column_s(range);
            if columns.back().is_none_or(|(last, _)| *last < slot) {
                columns.push_back((slot, T::default()));
                let oldest = slot.saturating_sub(COLUMNS_COUNT as u64 - 1);
                while columns.front().is_some_and(|(first, _)| *first < oldest) {
                    columns.pop_front();
                }
            }
            add(&mut columns.back_mut().expect("a column was there or was added").1);
        }
    }

    /// The columns of a range that are not before `now_s` minus the range: number from its first one, content.
    pub fn of(&self, range: Range, now_s: u64) -> impl Iterator<Item = (usize, &T)> {
        let first = first_slot(range, now_s);
        let columns =
            self.ranges[Range::ALL.iter().position(|one| *one == range).expect("all are there")].iter();
        let numbered = columns.map(move |(slot, it)| (*slot as i64 - first, it));
        numbered.filter(|(at, _)| *at >= 0).map(|(at, it)| (at as usize, it))
    }

    /// Memory that they take; `content_bytes` is what a column refers to.
    pub fn held_bytes(&self, content_bytes: impl Fn(&T) -> usize) -> u64 {
        let places =
            self.ranges.iter().map(|columns| columns.capacity() * size_of::<(u64, T)>()).sum::<usize>();
        (places + self.all().map(content_bytes).sum::<usize>()) as u64
    }

    /// Every column of every range.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.ranges.iter().flatten().map(|(_, it)| it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_range_end_now_and_old_ones_go() {
        let mut columns = Columns::<u64>::default();
        for second in [0, 5, 10, 899, 900, 1000] {
            columns.add(second, |count| *count += 1);
        }
        let of = |range, now| columns.of(range, now).map(|(at, count)| (at, *count)).collect::<Vec<_>>();
        assert_eq!(of(Range::Minutes15, 1000), [(78, 1), (79, 1), (89, 1)]);
        assert_eq!((first_slot(Range::Minutes15, 1000), first_slot(Range::Minutes15, 5)), (11, -89));
        assert_eq!(of(Range::Minutes15, 1500), [(28, 1), (29, 1), (39, 1)]);
        assert_eq!(of(Range::Day, 1000), [(88, 5), (89, 1)]);
        assert_eq!(of(Range::Minutes15, 5000), []);
    }

    #[test]
    fn the_past_counts_into_the_newest_column() {
        let mut columns = Columns::<u64>::default();
        columns.add(100, |count| *count += 1);
        columns.add(50, |count| *count += 1);
        assert_eq!(columns.of(Range::Minutes15, 100).map(|(_, n)| *n).collect::<Vec<_>>(), [2]);
    }
}
