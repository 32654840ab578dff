//! Stalls against time. Each column keeps the longest stall of each cause, so memory stays bounded however many come.

use std::time::Duration;

use halcyon_env::Stall;
use serde::Serialize;

use super::columns::Columns;
use super::timeline::Range;

/// Causes of one column that are told apart. The shortest stalls of more causes are only counted.
const CAUSES_MAX: usize = 8;
/// Bytes of a stall's detail that are kept. All columns together take less than 1 MiB.
const DETAIL_BYTES_MAX: usize = 200;
/// A stall of this length is worth a sentence.
pub const LONG_STALL: Duration = Duration::from_millis(50);

/// The longest stall of one cause in one column.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StallMark {
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: i64,
    pub length_ms: f64,
    pub cause: &'static str,
    pub what: String,
    /// Stalls of this cause in the column.
    pub count: u64,
}

#[derive(Default)]
pub struct StallColumn {
    marks: Vec<StallMark>,
    /// Stalls of [`LONG_STALL`] or more.
    long_count: u64,
}

/// How many long stalls there were, and the longest of them.
#[derive(Debug, Default, PartialEq)]
pub struct LongStalls {
    pub count: u64,
    pub longest: Option<StallMark>,
}

#[derive(Default)]
pub struct StallMarks(Columns<StallColumn>);

impl StallMarks {
    pub fn push(&mut self, at_s: u64, stalls: &[Stall]) {
        for stall in stalls {
            self.0.add(at_s, |column| column.add(stall));
        }
    }

    /// The marks of a range that ends now, the oldest first.
    pub fn of(&self, range: Range, now_s: u64) -> Vec<StallMark> {
        let mut marks: Vec<_> =
            self.0.of(range, now_s).flat_map(|(_, column)| column.marks.clone()).collect();
        marks.sort_by_key(|mark| mark.ended_ms);
        marks
    }

    /// Memory that they take.
    pub fn held_bytes(&self) -> u64 {
        self.0.held_bytes(|column| {
            let texts = column.marks.iter().map(|mark| mark.what.capacity()).sum::<usize>();
            texts + column.marks.capacity() * size_of::<StallMark>()
        })
    }

    pub fn long(&self, range: Range, now_s: u64) -> LongStalls {
        let mut long = LongStalls::default();
        for (_, column) in self.0.of(range, now_s) {
            long.count += column.long_count;
            for mark in &column.marks {
                if long.longest.as_ref().is_none_or(|longest| longest.length_ms < mark.length_ms) {
                    long.longest = Some(mark.clone());
                }
            }
        }
        long
    }
}

impl StallColumn {
    fn add(&mut self, stall: &Stall) {
        self.long_count += u64::from(stall.time >= LONG_STALL);
        let length_ms = stall.time.as_secs_f64() * 1000.0;
        let mark = || StallMark {
            ended_ms: stall.at_ms,
            length_ms,
            cause: stall.cause,
            what: cut(&stall.detail),
            count: 1,
        };
        let has_room = self.marks.len() < CAUSES_MAX;
        match self.marks.iter_mut().find(|mark| mark.cause == stall.cause) {
            Some(known) if known.length_ms < length_ms => {
                *known = StallMark { count: known.count + 1, ..mark() }
            }
            Some(known) => known.count += 1,
            None if has_room => self.marks.push(mark()),
            None => {
                let shortest = self.marks.iter_mut().min_by(|a, b| a.length_ms.total_cmp(&b.length_ms));
                let shortest = shortest.expect("the column is full");
                if shortest.length_ms < length_ms {
                    *shortest = mark();
                }
            }
        }
    }
}

/// Without room for more: there are thousands of marks.
fn cut(text: &str) -> String {
    match text.char_indices().map(|(at, _)| at).find(|at| *at >= DETAIL_BYTES_MAX) {
        Some(end) => [&text[..end], "…"].concat(),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stall(cause: &'static str, ms: u64) -> Stall {
        Stall {
            at_ms: ms as i64,
            cause,
            detail: format!("of {ms} {}", "é".repeat(300)),
            time: Duration::from_millis(ms),
        }
    }

    #[test]
    fn the_longest_of_each_cause_is_kept_and_all_are_counted() {
        let mut marks = StallMarks::default();
        marks.push(5, &[stall("sync", 20), stall("sync", 90), stall("sync", 30), stall("lock", 51)]);
        let of = marks.of(Range::Minutes15, 5);
        let seen: Vec<_> = of.iter().map(|mark| (mark.cause, mark.length_ms, mark.count)).collect();
        assert_eq!(seen, [("lock", 51.0, 1), ("sync", 90.0, 3)]);
        assert!(of[0].what.len() < DETAIL_BYTES_MAX + 8 && of[0].what.ends_with('…'));
        let long = marks.long(Range::Minutes15, 5);
        assert_eq!((long.count, long.longest.unwrap().length_ms), (2, 90.0));
        assert_eq!(marks.long(Range::Minutes15, 2000), LongStalls::default());
    }

    #[test]
    fn memory_is_that_of_the_marks() {
        let mut marks = StallMarks::default();
        let empty = marks.held_bytes();
        marks.push(5, &[stall("sync", 20)]);
        let one = marks.held_bytes() - empty;
        assert!(one >= 4 * 200, "the text stands in four ranges: {one}");
        for second in 0..86_400 / 10 {
            let causes = ["a", "b", "c", "d", "e", "f", "g", "h"];
            marks.push(second * 10, &causes.map(|cause| stall(cause, 20)));
        }
        assert!(marks.held_bytes() < 1 << 20, "{}", marks.held_bytes());
    }

    #[test]
    fn of_many_causes_the_longest_are_kept() {
        const CAUSES: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let mut marks = StallMarks::default();
        for (at, cause) in CAUSES.into_iter().enumerate() {
            marks.push(5, &[stall(cause, 10 + at as u64)]);
        }
        let seen: Vec<_> = marks.of(Range::Hour, 5).iter().map(|mark| mark.cause).collect();
        assert_eq!(seen, ["c", "d", "e", "f", "g", "h", "i", "j"]);
    }
}
