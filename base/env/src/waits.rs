//! A profile of waits: sums by thread, cause and detail.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::StallSum;

/// Different waits that are kept. Further ones are only counted.
const WAITS_MAX: usize = 10_000;

/// Waits of one thread for one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub thread: String,
    /// As [`crate::Stall::cause`].
    pub cause: &'static str,
    pub detail: String,
    pub sum: StallSum,
}

#[derive(Debug)]
pub(crate) struct Waits {
    /// Shorter waits do not count.
    pub(crate) shortest: Duration,
    sums: BTreeMap<(String, &'static str, String), StallSum>,
    lost_count: u64,
}

impl Waits {
    pub(crate) fn new(shortest: Duration) -> Waits {
        Waits { shortest, sums: BTreeMap::new(), lost_count: 0 }
    }

    /// By the thread that waited.
    pub(crate) fn add(&mut self, cause: &'static str, detail: &str, time: Duration) {
        if time < self.shortest {
            return;
        }
        let thread = std::thread::current().name().unwrap_or("unnamed").to_string();
        let key = (thread, cause, detail.to_string());
        if self.sums.len() >= WAITS_MAX && !self.sums.contains_key(&key) {
            self.lost_count += 1;
            return;
        }
        self.sums.entry(key).or_default().add(time);
    }

    pub(crate) fn finish(self) -> (Vec<Wait>, u64) {
        let wait = |((thread, cause, detail), sum)| Wait { thread, cause, detail, sum };
        (self.sums.into_iter().map(wait).collect(), self.lost_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_different_waits_are_kept() {
        let mut waits = Waits::new(Duration::from_micros(10));
        (0..WAITS_MAX + 3)
            .for_each(|number| waits.add("row-lock", &number.to_string(), Duration::from_secs(1)));
        waits.add("row-lock", "0", Duration::from_secs(1));
        waits.add("row-lock", "0", Duration::from_micros(9));
        let (waits, lost_count) = waits.finish();
        assert_eq!((waits.len(), lost_count, waits[0].sum.count), (WAITS_MAX, 3, 2));
    }
}
