//! What a comparison has found so far: calls and latencies by kind and table, differences, and what became of them.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::compare::{Difference, Differences, Fate, Kind};
use crate::read::{KINDS, Read};

/// Digits of a latency that are kept.
const DIGITS: u8 = 3;
/// Tables that are counted one by one; more are counted together.
const TABLES_MAX: usize = 200;
/// The name of what is counted together.
const OTHERS: &str = "(other tables)";
/// Examples of differences of each fate.
const EXAMPLES_MAX: usize = 50;
/// Classes of errors that are counted one by one.
const ERRORS_MAX: usize = 50;

/// Both sides of one kind of read of one table.
#[derive(Clone, Debug)]
pub(crate) struct Sides {
    /// Latencies in microseconds, of a and of b.
    pub(crate) latencies: [Histogram<u64>; 2],
    /// Reads.
    pub(crate) count: u64,
    /// Cells that side a returned.
    pub(crate) cells: u64,
    /// Reads that differed at first, by what became of them.
    pub(crate) fates: BTreeMap<Fate, u64>,
    /// Reads that failed at a side.
    pub(crate) failed: [u64; 2],
}

impl Sides {
    fn new() -> Sides {
        let histogram = || Histogram::new(DIGITS).expect("three digits are within bounds");
        Sides {
            latencies: [histogram(), histogram()],
            count: 0,
            cells: 0,
            fates: BTreeMap::new(),
            failed: [0; 2],
        }
    }

    fn add(&mut self, other: &Sides) {
        for (mine, other) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.add(other).expect("a histogram that grows takes any value");
        }
        self.count += other.count;
        self.cells += other.cells;
        for (fate, count) in &other.fates {
            *self.fates.entry(*fate).or_default() += count;
        }
        for (mine, other) in self.failed.iter_mut().zip(other.failed) {
            *mine += other;
        }
    }

    pub(crate) fn fate(&self, fate: Fate) -> u64 {
        self.fates.get(&fate).copied().unwrap_or(0)
    }
}

/// A read that differed.
#[derive(Clone, Debug)]
pub(crate) struct Example {
    pub(crate) read: String,
    pub(crate) fate: Fate,
    pub(crate) count: u64,
    pub(crate) told: Vec<Difference>,
}

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// By kind (its position in [`KINDS`]) and table.
    pub(crate) sides: BTreeMap<(usize, String), Sides>,
    pub(crate) examples: Vec<Example>,
    /// Reads that differed, by the kind of their first difference.
    pub(crate) kinds: BTreeMap<Kind, u64>,
    /// Errors by side and class.
    pub(crate) errors: BTreeMap<(usize, String), u64>,
    /// The longest time by which a read began after its turn, and how many did by more than a millisecond.
    pub(crate) late_max: Duration,
    pub(crate) late_count: u64,
}

/// What one read took at a side; `None` of one that failed.
pub(crate) type Took = [Option<Duration>; 2];

impl Tally {
    /// Counts a read. `differed` is how it differed at first, and what became of that.
    pub(crate) fn add(
        &mut self,
        read: &Read,
        took: Took,
        cells: u64,
        errors: [Option<&str>; 2],
        differed: Option<(&Differences, Fate)>,
    ) {
        let sides = self.sides_of(read);
        sides.count += 1;
        sides.cells += cells;
        for (side, took) in took.iter().enumerate() {
            match took {
                Some(took) => {
                    let took_us = took.as_nanos().div_ceil(1_000).max(1) as u64;
                    sides.latencies[side].record(took_us).expect("a histogram that grows takes any value");
                }
                None => sides.failed[side] += 1,
            }
        }
        if let Some((_, fate)) = differed {
            *sides.fates.entry(fate).or_default() += 1;
        }
        for (side, class) in errors.iter().enumerate() {
            let Some(class) = class else { continue };
            let key = (side, class.to_string());
            if self.errors.len() < ERRORS_MAX || self.errors.contains_key(&key) {
                *self.errors.entry(key).or_default() += 1;
            }
        }
        if let Some((differences, fate)) = differed {
            if let Some(first) = differences.told.first() {
                *self.kinds.entry(first.kind).or_default() += 1;
            }
            if self.examples.iter().filter(|example| example.fate == fate).count() < EXAMPLES_MAX {
                let (count, told) = (differences.count, differences.told.clone());
                self.examples.push(Example { read: read.describe(), fate, count, told });
            }
        }
    }

    fn sides_of(&mut self, read: &Read) -> &mut Sides {
        let mut key = (read.kind(), read.table().to_string());
        if self.sides.len() >= TABLES_MAX * KINDS.len() && !self.sides.contains_key(&key) {
            key.1 = OTHERS.to_string();
        }
        self.sides.entry(key).or_insert_with(Sides::new)
    }

    pub(crate) fn late(&mut self, by: Duration) {
        self.late_max = self.late_max.max(by);
        self.late_count += u64::from(by > Duration::from_millis(1));
    }

    /// All tables of a kind together.
    pub(crate) fn of_kind(&self, kind: usize) -> Sides {
        let mut all = Sides::new();
        self.sides.iter().filter(|((other, _), _)| *other == kind).for_each(|(_, sides)| all.add(sides));
        all
    }

    pub(crate) fn all(&self) -> Sides {
        let mut all = Sides::new();
        self.sides.values().for_each(|sides| all.add(sides));
        all
    }
}

#[cfg(test)]
mod tests {
    use halcyon_proto::pb;
    use halcyon_schema::TableName;

    use super::*;

    #[test]
    fn tables_beyond_the_limit_are_counted_together() {
        let mut tally = Tally::default();
        let took = [Some(Duration::from_micros(5)), None];
        for number in 0..TABLES_MAX * KINDS.len() + 10 {
            let table = TableName::parse(format!("t{number}").as_bytes()).unwrap();
            tally.add(&Read::Get(table, pb::Get::default()), took, 1, [None, Some("Io")], None);
        }
        assert_eq!(tally.sides.len(), TABLES_MAX * KINDS.len() + 1);
        let all = tally.all();
        assert_eq!((all.count, all.latencies[0].max(), all.failed[1]), (810, 5, 810));
        assert_eq!(tally.of_kind(3).count, 0);
        assert_eq!(tally.errors[&(1, "Io".to_string())], 810);
    }
}
