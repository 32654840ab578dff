//! What a collector's log tells: stops, phases, safepoints, stalls, and how much memory went where.

use std::collections::BTreeMap;

/// Most different names (of kinds, causes, phases) kept apart; what comes later is called [`OTHER`]. A damaged log must
/// not fill memory with names.
const NAMES_MAX: usize = 400;
const NAME_LEN_MAX: usize = 120;
const OTHER: &str = "other";

/// A text that occurs again and again, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(u16);

/// The texts behind [`Name`]s.
#[derive(Debug, Default)]
pub struct Names {
    texts: Vec<String>,
    numbers: BTreeMap<String, u16>,
}

impl Names {
    pub fn text(&self, name: Name) -> &str {
        &self.texts[usize::from(name.0)]
    }

    pub(super) fn number(&mut self, text: &str) -> Name {
        if let Some(number) = self.numbers.get(text) {
            return Name(*number);
        }
        let full = self.texts.len() >= NAMES_MAX || text.len() > NAME_LEN_MAX;
        if full && text != OTHER {
            return self.number(OTHER);
        }
        let number = u16::try_from(self.texts.len()).expect("NAMES_MAX fits");
        self.texts.push(text.to_string());
        self.numbers.insert(text.to_string(), number);
        Name(number)
    }
}

/// One time at which the whole application stood still.
#[derive(Debug, Clone, PartialEq)]
pub struct Pause {
    /// Seconds since the start of its JVM (or since the log's first line, where the log has no uptime).
    pub start_s: f64,
    /// Milliseconds since 1970, where the log has wall times.
    pub start_wall_ms: Option<f64>,
    pub length_ms: f64,
    /// `Young (Normal)`, `Mark Start (young)`, `Degenerated GC`; for a stop that is no collection, `Safepoint`.
    pub kind: Name,
    /// `G1 Evacuation Pause`, `Allocation Rate`; the operation's name for a safepoint; empty if the log names none.
    pub cause: Name,
    /// False for a safepoint that is no collection.
    pub collection: bool,
    /// Number of the collection, where the log gives one.
    pub cycle: Option<u64>,
    /// Bytes in use before and after, where the log says.
    pub heap: Option<HeapChange>,
    /// Which JVM of the log, from 0.
    pub jvm: u32,
}

/// Bytes in use before and after, and the heap's size after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapChange {
    pub before: u64,
    pub after: u64,
    pub capacity: Option<u64>,
}

/// A thread that had to wait for memory, while others ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Stall {
    /// As [`Pause::start_s`].
    pub start_s: f64,
    /// As [`Pause::start_wall_ms`].
    pub start_wall_ms: Option<f64>,
    pub length_ms: f64,
    /// `Allocation Stall`, `Relocation Stall`.
    pub kind: Name,
    pub jvm: u32,
}

/// Lengths in milliseconds: how many, how long together, the longest, and percentiles that are at most 3.2 % too high. Of
/// fixed size however many lengths come.
#[derive(Debug, Clone, Default)]
pub struct Lengths {
    pub count: u64,
    pub total_ms: f64,
    pub max_ms: f64,
    /// Buckets of nanoseconds: 32 to each power of two.
    buckets: Vec<u32>,
}

const SUB_BITS: u32 = 5;
const BUCKETS: usize = ((64 - SUB_BITS as usize) + 1) << SUB_BITS;

impl Lengths {
    pub fn add(&mut self, ms: f64) {
        self.count += 1;
        self.total_ms += ms;
        self.max_ms = self.max_ms.max(ms);
        let bucket = bucket((ms * 1e6) as u64);
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
    }

    /// Takes in the lengths of another.
    pub fn merge(&mut self, other: &Lengths) {
        self.count += other.count;
        self.total_ms += other.total_ms;
        self.max_ms = self.max_ms.max(other.max_ms);
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        for (own, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = own.saturating_add(*more);
        }
    }

    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.total_ms / self.count as f64 }
    }

    /// The length that the share `quantile` (0 to 1) of all lengths does not exceed.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        let rank = ((quantile * self.count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return (upper_ns(bucket) as f64 / 1e6).min(self.max_ms);
            }
        }
        self.max_ms
    }
}

fn bucket(ns: u64) -> usize {
    let shift = (64 - ns.leading_zeros()).saturating_sub(SUB_BITS + 1);
    let bucket = ((shift as usize) << SUB_BITS) + (ns >> shift) as usize;
    bucket.min(BUCKETS - 1)
}

/// The largest number of nanoseconds in a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    let low = bucket - (shift << SUB_BITS);
    (((low as u64) + 1) << shift) - 1
}

/// Safepoints of one operation.
#[derive(Debug, Clone, Default)]
pub struct Safepoints {
    /// Whether these stops are collections.
    pub collection: bool,
    /// From the wish to stop until the last thread had stopped.
    pub reaching: Lengths,
    /// From the wish to stop until all threads went on.
    pub total: Lengths,
}

/// How much memory was asked for, and how much of it grew old.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes allocated between the first and the last heap size of each JVM; for Shenandoah with the copies that it
    /// makes itself.
    pub allocated: u64,
    /// Bytes that moved to the old generation; `None` if the log has no generations or does not say.
    pub promoted: Option<u64>,
    /// Largest heap use seen.
    pub used_max: u64,
    /// Largest heap size seen.
    pub capacity_max: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_close_and_in_order() {
        let mut last = 0;
        for exponent in 0..63 {
            for ns in [1u64 << exponent, (1 << exponent) + (1 << exponent) / 3, (1u64 << exponent) * 2 - 1] {
                let found = bucket(ns);
                assert!(found >= last, "{ns}");
                last = found;
                assert!(upper_ns(found) >= ns, "{ns} {}", upper_ns(found));
                assert!(upper_ns(found) as f64 <= ns as f64 * 1.032 + 1.0, "{ns} {}", upper_ns(found));
            }
        }
        assert!(bucket(u64::MAX) < BUCKETS);
    }

    #[test]
    fn quantiles() {
        let mut lengths = Lengths::default();
        assert_eq!((lengths.quantile_ms(0.5), lengths.mean_ms()), (0.0, 0.0));
        (1..=1000).for_each(|ms| lengths.add(f64::from(ms)));
        for (quantile, exact) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)] {
            let found = lengths.quantile_ms(quantile);
            assert!(found >= exact && found <= exact * 1.032, "{quantile}: {found}");
        }
    }

    #[test]
    fn names_are_few() {
        let mut names = Names::default();
        for n in 0..10_000 {
            names.number(&n.to_string());
        }
        let late = names.number("late");
        assert_eq!(names.text(late), OTHER);
        assert!(names.texts.len() <= NAMES_MAX + 1);
    }
}
