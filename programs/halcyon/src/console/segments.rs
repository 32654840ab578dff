//! The key range of a region, cut where its requests go.
//!
//! A region's counters tell how many requests it has, and samples of their rows tell where ([`KeySample`]). The range
//! is cut at the median row of a segment that has too large a share, until none has, and around a row that has most of
//! its segment to itself: a hot key. Segments that stay keep their numbers, so a map can follow them through time.

use std::collections::BTreeMap;

use halcyon_region::{KeySample, ROW_BYTES_MAX};

/// Segments of a region at most.
pub const SEGMENTS_MAX: usize = 16;
/// A segment with a larger share of the samples is cut.
const SHARE_MAX: f64 = 1.0 / 6.0;
/// A row with a larger share of its segment becomes a segment of its own.
const KEY_SHARE: f64 = 0.5;
/// With fewer samples nothing is cut.
const SAMPLES_MIN: usize = 64;
/// With fewer samples in one interval, earlier ones count too.
const SAMPLES_FEW: usize = 16;
/// Time between two cuts of a region.
const CUT_PERIOD_S: u64 = 30;
/// What is left of a segment's weight after each interval.
const DECAY: f64 = 0.5;

/// Reads and writes, as counts or as shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    pub reads: f64,
    pub writes: f64,
}

impl Weights {
    fn add(&mut self, sample: &KeySample) {
        let part = if sample.is_write { &mut self.writes } else { &mut self.reads };
        *part += sample.weight as f64;
    }
}

/// A part of a region's key range; it ends where the next one begins.
#[derive(Debug)]
struct Segment {
    start: Vec<u8>,
    number: u32,
    weights: Weights,
}

/// A segment's range and number.
pub struct Cut<'s> {
    pub start: &'s [u8],
    /// `None`: where the region ends.
    pub end: Option<&'s [u8]>,
    pub number: u32,
}

/// See the head of the file.
#[derive(Debug)]
pub struct Segments {
    segments: Vec<Segment>,
    cut_at_s: Option<u64>,
}

impl Segments {
    /// One segment: the whole region.
    pub fn whole(start: &[u8], number: u32) -> Segments {
        let segment = Segment { start: start.to_vec(), number, weights: Weights::default() };
        Segments { segments: vec![segment], cut_at_s: None }
    }

    /// The segments in order.
    pub fn cuts(&self) -> impl Iterator<Item = Cut<'_>> {
        self.segments.iter().enumerate().map(|(at, segment)| Cut {
            start: &segment.start,
            end: self.segments.get(at + 1).map(|next| &next.start[..]),
            number: segment.number,
        })
    }

    /// Divides so many reads and writes among the segments as the samples say; without samples as earlier ones did,
    /// and without those equally. Number, reads, writes; their sums are what was given.
    pub fn divide(&mut self, samples: &[KeySample], reads: u32, writes: u32) -> Vec<(u32, u32, u32)> {
        let kept = if samples.len() < SAMPLES_FEW { DECAY } else { 0.0 };
        for segment in &mut self.segments {
            segment.weights.reads *= kept;
            segment.weights.writes *= kept;
        }
        for sample in samples {
            let at = self.at(&sample.row);
            self.segments[at].weights.add(sample);
        }
        let parts = |count, part: fn(Weights) -> f64| {
            let weights: Vec<f64> = self.segments.iter().map(|segment| part(segment.weights)).collect();
            divided(count, &weights)
        };
        let (reads, writes) = (parts(reads, |it| it.reads), parts(writes, |it| it.writes));
        let numbers = self.segments.iter().map(|segment| segment.number);
        numbers
            .zip(reads.into_iter().zip(writes))
            .map(|(number, (reads, writes))| (number, reads, writes))
            .collect()
    }

    /// The segment that a row is in. A row before the region is taken for its first.
    fn at(&self, row: &[u8]) -> usize {
        self.segments.partition_point(|segment| &*segment.start <= row).saturating_sub(1)
    }

    /// Cuts anew if some segment has too large a share of the samples. `number` gives numbers to segments that are new.
    /// Returns whether anything changed.
    pub fn cut(&mut self, at_s: u64, samples: &[KeySample], mut number: impl FnMut() -> u32) -> bool {
        let is_early = self.cut_at_s.is_some_and(|last| at_s < last + CUT_PERIOD_S);
        if samples.len() < SAMPLES_MIN || is_early {
            return false;
        }
        let rows = Rows::of(samples);
        let mut starts: Vec<Vec<u8>> = self.segments.iter().map(|segment| segment.start.clone()).collect();
        while starts.len() < 2 * SEGMENTS_MAX
            && let Some(cut) = rows.next_cut(&starts)
        {
            let at = starts.partition_point(|start| *start < cut);
            starts.insert(at, cut);
        }
        rows.join(&mut starts);
        if starts.iter().eq(self.segments.iter().map(|segment| &segment.start)) {
            return false;
        }
        self.replace(starts, &mut number);
        self.cut_at_s = Some(at_s);
        true
    }

    fn replace(&mut self, starts: Vec<Vec<u8>>, number: &mut impl FnMut() -> u32) {
        let ends = |starts: &[Vec<u8>], at: usize| starts.get(at + 1).cloned();
        let before: Vec<Vec<u8>> = self.segments.iter().map(|segment| segment.start.clone()).collect();
        let old = self.segments.drain(..).enumerate();
        let mut old: BTreeMap<_, _> = old
            .map(|(at, segment)| ((segment.start, ends(&before, at)), (segment.number, segment.weights)))
            .collect();
        for (at, start) in starts.iter().enumerate() {
            let same = old.remove(&(start.clone(), ends(&starts, at)));
            let (number, weights) = same.unwrap_or_else(|| (number(), Weights::default()));
            self.segments.push(Segment { start: start.clone(), number, weights });
        }
    }

    /// Memory that they take.
    pub fn held_bytes(&self) -> usize {
        let starts: usize = self.segments.iter().map(|segment| segment.start.capacity()).sum();
        self.segments.capacity() * size_of::<Segment>() + starts
    }
}

/// The row that a range consists of, if it is only one.
pub fn only_key<'k>(start: &'k [u8], end: &[u8]) -> Option<&'k [u8]> {
    (end.len() == start.len() + 1 && end.starts_with(start) && end.ends_with(&[0])).then_some(start)
}

/// Parts of `count` in proportion to the weights; equal ones if all are 0.
fn divided(count: u32, weights: &[f64]) -> Vec<u32> {
    let sum: f64 = weights.iter().sum();
    let (mut passed, mut given) = (0.0, 0u32);
    let part = |weight: &f64| {
        passed += if sum > 0.0 { weight / sum } else { 1.0 / weights.len() as f64 };
        let until = ((f64::from(count) * passed).round() as u32).clamp(given, count);
        let part = until - given;
        given = until;
        part
    };
    let mut parts: Vec<u32> = weights.iter().map(part).collect();
    // what rounding left over goes to the largest weight, not to the last segment
    let largest = (0..weights.len()).max_by(|a, b| weights[*a].total_cmp(&weights[*b]));
    if let Some(at) = largest {
        parts[at] += count - given;
    }
    parts
}

/// The weight of each row that was sampled.
struct Rows<'r> {
    weights: BTreeMap<&'r [u8], f64>,
    sum: f64,
}

impl<'r> Rows<'r> {
    fn of(samples: &'r [KeySample]) -> Rows<'r> {
        let mut weights: BTreeMap<&[u8], f64> = BTreeMap::new();
        for sample in samples {
            *weights.entry(&sample.row).or_default() += sample.weight as f64;
        }
        let sum = weights.values().sum();
        Rows { weights, sum }
    }

    /// Rows of the segment at `at` with their weights.
    fn within(&self, starts: &[Vec<u8>], at: usize) -> impl Iterator<Item = (&'r [u8], f64)> {
        let is_within = move |row: &[u8]| {
            (at == 0 || row >= &starts[at][..]) && starts.get(at + 1).is_none_or(|end| row < &end[..])
        };
        self.weights.iter().filter(move |(row, _)| is_within(row)).map(|(row, weight)| (*row, *weight))
    }

    fn share(&self, starts: &[Vec<u8>], at: usize) -> f64 {
        self.within(starts, at).map(|(_, weight)| weight).sum::<f64>() / self.sum
    }

    /// Where the first segment that has too large a share is to be cut.
    fn next_cut(&self, starts: &[Vec<u8>]) -> Option<Vec<u8>> {
        let too_large = |at: &usize| self.share(starts, *at) > SHARE_MAX;
        (0..starts.len()).filter(too_large).find_map(|at| self.cut_of(starts, at))
    }

    fn cut_of(&self, starts: &[Vec<u8>], at: usize) -> Option<Vec<u8>> {
        let rows: Vec<(&[u8], f64)> = self.within(starts, at).collect();
        let sum: f64 = rows.iter().map(|(_, weight)| weight).sum();
        let (heaviest, weight) = rows.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        let is_new = |cut: &[u8]| starts.binary_search_by(|start| start[..].cmp(cut)).is_err();
        if *weight > sum * KEY_SHARE && heaviest.len() < ROW_BYTES_MAX {
            let behind = [heaviest, &[0][..]].concat();
            return [heaviest.to_vec(), behind].into_iter().find(|cut| is_new(cut));
        }
        let mut passed = 0.0;
        let middle = rows.iter().position(|(_, weight)| {
            passed += weight;
            passed * 2.0 >= sum
        })?;
        // a cut before the first row would leave an empty segment
        let cut = rows.get(middle.max(1))?.0;
        is_new(cut).then(|| cut.to_vec())
    }

    /// Joins neighbours that have the least until there are not too many.
    fn join(&self, starts: &mut Vec<Vec<u8>>) {
        while starts.len() > SEGMENTS_MAX {
            let shares: Vec<f64> = (0..starts.len()).map(|at| self.share(starts, at)).collect();
            let both = |at: &usize| shares[at - 1] + shares[*at];
            let least = (1..starts.len()).min_by(|a, b| both(a).total_cmp(&both(b)));
            starts.remove(least.expect("there are more than two"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rows: impl Iterator<Item = String>) -> Vec<KeySample> {
        rows.map(|row| KeySample { row: row.into_bytes().into(), is_write: false, weight: 1 }).collect()
    }

    fn cut(segments: &mut Segments, at_s: u64, samples: &[KeySample]) -> bool {
        let mut next = 1000 + at_s as u32;
        segments.cut(at_s, samples, || {
            next += 1;
            next
        })
    }

    fn starts(segments: &Segments) -> Vec<String> {
        segments.cuts().map(|cut| cut.start.escape_ascii().to_string()).collect()
    }

    #[test]
    fn even_requests_are_cut_once_into_even_parts() {
        let even = samples((0..128).map(|at| format!("{at:03}")));
        let mut segments = Segments::whole(b"", 1);
        assert!(cut(&mut segments, 0, &even));
        let parts = segments.divide(&even, 1280, 0);
        assert!((6..=SEGMENTS_MAX).contains(&parts.len()), "{parts:?}");
        assert!(parts.iter().all(|(_, reads, writes)| *reads <= 1280 / 6 + 1 && *writes == 0), "{parts:?}");
        let before = starts(&segments);
        assert!(!cut(&mut segments, 100, &even), "there is nothing to cut");
        assert_eq!(starts(&segments), before);
    }

    #[test]
    fn a_hot_key_becomes_a_segment_of_its_own() {
        let mut rows = samples((0..100).map(|at| format!("{at:03}")));
        rows.extend(samples((0..200).map(|_| "050".to_string())));
        let mut segments = Segments::whole(b"", 1);
        assert!(cut(&mut segments, 0, &rows));
        let hot = segments.cuts().find(|cut| cut.end.is_some_and(|end| only_key(cut.start, end).is_some()));
        let (start, number) = hot.map(|cut| (cut.start.to_vec(), cut.number)).expect("the hot key");
        assert_eq!(start, b"050");
        let parts = segments.divide(&rows, 3000, 30);
        let of_hot = parts.iter().find(|part| part.0 == number).expect("the hot key");
        assert_eq!(of_hot.1, 2010, "{parts:?}");
        assert_eq!(parts.iter().map(|part| part.1).sum::<u32>(), 3000);
        assert_eq!(parts.iter().map(|part| part.2).sum::<u32>(), 30, "also without samples of writes");
    }

    #[test]
    fn only_one_key_is_seen_as_such() {
        let rows = samples((0..64).map(|_| "k".to_string()));
        let mut segments = Segments::whole(b"", 1);
        assert!(cut(&mut segments, 0, &rows));
        assert_eq!(starts(&segments), ["", "k", "k\\x00"]);
        assert_eq!(segments.divide(&rows, 10, 0)[1].1, 10);
        assert!(!cut(&mut segments, 100, &rows), "nothing is left to cut");
    }

    #[test]
    fn requests_that_wander_are_followed_and_what_is_cold_is_joined() {
        let mut segments = Segments::whole(b"", 1);
        for step in 0..50u64 {
            let rows = samples((0..100).map(|at| format!("{:06}", step * 100 + at)));
            assert!(cut(&mut segments, step * CUT_PERIOD_S, &rows));
            assert!(segments.segments.len() <= SEGMENTS_MAX);
            let parts = segments.divide(&rows, 1000, 0);
            let most = parts.iter().map(|part| part.1).max().expect("there are parts");
            assert!(most <= 300, "step {step}: {parts:?}");
        }
    }

    #[test]
    fn nothing_is_cut_for_few_samples_or_too_soon() {
        let rows = samples((0..100).map(|at| format!("{at:03}")));
        let mut segments = Segments::whole(b"", 1);
        assert!(!cut(&mut segments, 0, &rows[..SAMPLES_MIN - 1]));
        assert!(cut(&mut segments, 0, &rows));
        let elsewhere = samples((0..100).map(|at| format!("x{at:03}")));
        assert!(!cut(&mut segments, CUT_PERIOD_S - 1, &elsewhere));
        assert!(cut(&mut segments, CUT_PERIOD_S, &elsewhere));
    }

    #[test]
    fn segments_that_stay_keep_their_numbers() {
        let mut segments = Segments::whole(b"", 1);
        cut(&mut segments, 0, &samples((0..100).map(|at| format!("{at:03}"))));
        let first: Vec<u32> = segments.cuts().map(|cut| cut.number).collect();
        cut(&mut segments, 100, &samples((0..100).map(|at| format!("9{at:03}"))));
        let second: Vec<u32> = segments.cuts().map(|cut| cut.number).collect();
        let kept = first.iter().filter(|number| second.contains(number)).count();
        assert!(kept > 0 && kept < first.len(), "{first:?} {second:?}");
    }

    #[test]
    fn without_samples_the_earlier_ones_count() {
        let rows = samples((0..64).map(|_| "k".to_string()));
        let mut segments = Segments::whole(b"", 1);
        cut(&mut segments, 0, &rows);
        segments.divide(&rows, 10, 0);
        assert_eq!(segments.divide(&[], 10, 0)[1].1, 10);
        let few = samples((0..4).map(|_| "a".to_string()));
        let parts = segments.divide(&few, 20, 0);
        assert!(parts[0].1 > 0 && parts[1].1 > parts[0].1, "{parts:?}");
    }

    #[test]
    fn parts_have_the_sum_that_is_divided() {
        assert_eq!(divided(10, &[1.0, 1.0, 1.0]).iter().sum::<u32>(), 10);
        assert_eq!(divided(7, &[0.0, 0.0]).iter().sum::<u32>(), 7);
        assert_eq!(divided(u32::MAX, &[0.1, 0.7, 0.2]).iter().sum::<u32>(), u32::MAX);
        assert_eq!(divided(5, &[0.0, 1.0, 0.0]), [0, 5, 0]);
    }
}
