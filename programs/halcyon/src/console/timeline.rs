//! Numbers against time, in a fixed amount of memory.
//!
//! A [`Timeline`] takes one reading of every series each second and keeps three levels: one point a second for
//! 15 minutes, one in 10 seconds for 6 hours, and one a minute for 24 hours. Each level computes its points from the
//! readings at both ends of the point's interval. A percentile over a minute is therefore the true one, not the mean
//! of 60 percentiles.
//!
//! ```text
//! memory = series (at most SERIES_MAX) x points (900 + 2160 + 1440) x 4 bytes, about 2 MiB
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use halcyon_rpc::CallTimesSnapshot;

/// Series beyond this number are not kept.
pub const SERIES_MAX: usize = 128;

/// A span of time that ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub enum Range {
    #[serde(rename = "15m")]
    Minutes15,
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "6h")]
    Hours6,
    #[serde(rename = "24h")]
    Day,
}

impl Range {
    pub const COUNT: usize = 4;
    pub const ALL: [Range; Range::COUNT] = [Range::Minutes15, Range::Hour, Range::Hours6, Range::Day];

    pub const fn seconds(self) -> u64 {
        match self {
            Range::Minutes15 => 15 * 60,
            Range::Hour => 60 * 60,
            Range::Hours6 => 6 * 60 * 60,
            Range::Day => 24 * 60 * 60,
        }
    }

    /// The level of a timeline that covers it.
    const fn level(self) -> usize {
        match self {
            Range::Minutes15 => 0,
            Range::Hour | Range::Hours6 => 1,
            Range::Day => 2,
        }
    }
}

/// Step and number of points of each level.
const LEVELS: [(u64, usize); 3] = [(1, 900), (10, 2160), (60, 1440)];

/// What a counter says at one moment.
#[derive(Clone, Debug)]
pub enum Reading {
    /// Grows since the start. A point is its growth per second.
    Count(u64),
    /// Goes up and down. A point is the largest reading of its interval.
    Level(f64),
    /// Two counts. A point is the growth of `part` for each `whole`; there is none while `whole` does not grow.
    Ratio { part: f64, whole: u64 },
    /// A histogram. A point is the time in milliseconds that this share of the interval's calls did not exceed.
    Quantile { times: Arc<CallTimesSnapshot>, share: f64 },
}

/// Name, unit and meaning of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub name: String,
    pub unit: &'static str,
    pub help: &'static str,
}

/// Points of one series over a range.
#[derive(Debug)]
pub struct Points {
    pub label: Label,
    /// `NaN`: there was nothing to measure.
    pub values: Vec<f32>,
}

/// Points of several series on one time axis.
#[derive(Debug)]
pub struct Window {
    /// Start of the first point's interval, in seconds since the start of the timeline.
    pub first_s: u64,
    pub step_s: u64,
    pub count: usize,
    pub series: Vec<Points>,
}

/// See the head of the file.
#[derive(Default)]
pub struct Timeline {
    labels: Vec<Label>,
    levels: [Level; LEVELS.len()],
}

#[derive(Default)]
struct Level {
    /// The interval that is not over, by its number; `None` before the first reading.
    current: Option<u64>,
    /// When its first reading was taken.
    began_s: u64,
    /// The readings then.
    first: Vec<Reading>,
    /// The largest reading of each series in it.
    largest: Vec<f64>,
    /// Points of intervals that are over, the last one is that before `current`.
    points: Vec<VecDeque<f32>>,
}

impl Timeline {
    /// Takes the readings of one second. A series keeps its place for good; new ones come at the end.
    pub fn push(&mut self, at_s: u64, readings: Vec<(Label, Reading)>) {
        let mut values = Vec::with_capacity(readings.len().min(SERIES_MAX));
        for (at, (label, reading)) in readings.into_iter().take(SERIES_MAX).enumerate() {
            if self.labels.len() <= at {
                self.labels.push(label);
            } else if self.labels[at].name != label.name {
                self.labels[at] = label; // a part that the server did not have before
            }
            values.push(reading);
        }
        for (level, (step_s, points_max)) in self.levels.iter_mut().zip(LEVELS) {
            level.push(at_s, &values, step_s, points_max);
        }
    }

    /// The points of `range`, of series that `wanted` names. With `after_s` only intervals that begin later.
    pub fn window(&self, range: Range, after_s: Option<u64>, wanted: impl Fn(&str) -> bool) -> Window {
        let (step_s, _) = LEVELS[range.level()];
        let level = &self.levels[range.level()];
        let end = level.current.unwrap_or(0);
        let kept = level.points.iter().map(VecDeque::len).max().unwrap_or(0);
        let count = kept.min((range.seconds() / step_s) as usize);
        let new = after_s.map_or(count, |after| end.saturating_sub(after / step_s + 1) as usize);
        let count = count.min(new);
        let last = |points: &VecDeque<f32>| -> Vec<f32> {
            let missing = count.saturating_sub(points.len());
            let skipped = points.len().saturating_sub(count);
            std::iter::repeat_n(f32::NAN, missing).chain(points.iter().skip(skipped).copied()).collect()
        };
        let series = self.labels.iter().zip(&level.points).filter(|(label, _)| wanted(&label.name));
        let series =
            series.map(|(label, points)| Points { label: label.clone(), values: last(points) }).collect();
        Window { first_s: (end - count as u64) * step_s, step_s, count, series }
    }

    /// Memory that it takes.
    pub fn held_bytes(&self) -> u64 {
        let labels = self.labels.iter().map(|label| size_of::<Label>() + label.name.len()).sum::<usize>();
        (labels + self.levels.iter().map(Level::held_bytes).sum::<usize>()) as u64
    }

    /// How much a counter has grown in the last `seconds`, by its rates.
    pub fn grown(&self, name: &str, seconds: u64) -> f64 {
        let Some(at) = self.labels.iter().position(|label| label.name == name) else { return 0.0 };
        let Some(points) = self.levels[0].points.get(at) else { return 0.0 };
        let rates = points.iter().rev().take(seconds as usize).filter(|value| !value.is_nan());
        rates.map(|rate| f64::from(*rate)).sum()
    }
}

impl Level {
    fn push(&mut self, at_s: u64, readings: &[Reading], step_s: u64, points_max: usize) {
        let slot = at_s / step_s;
        match self.current {
            Some(current) if slot < current => return, // readings of the past change nothing
            Some(current) if slot > current => self.complete(current, slot, at_s, readings, points_max),
            Some(_) => {}
            None => self.first = readings.to_vec(),
        }
        if self.current != Some(slot) {
            (self.current, self.began_s) = (Some(slot), at_s);
            self.first = readings.to_vec();
            self.largest = vec![f64::NAN; readings.len()];
        }
        self.largest.resize(readings.len(), f64::NAN);
        for (largest, reading) in self.largest.iter_mut().zip(readings) {
            if let Reading::Level(value) = reading {
                *largest = largest.max(*value);
            }
        }
    }

    fn held_bytes(&self) -> usize {
        let points =
            self.points.iter().map(|points| size_of_val(points) + points.capacity() * size_of::<f32>());
        let readings =
            self.first.capacity() * size_of::<Reading>() + self.largest.capacity() * size_of::<f64>();
        readings + points.sum::<usize>()
    }

    /// Adds the points up to interval `next`. Those without a reading are empty.
    fn complete(&mut self, current: u64, next: u64, at_s: u64, readings: &[Reading], points_max: usize) {
        let seconds = (at_s - self.began_s).max(1) as f64;
        let known = self.points.first().map_or(0, VecDeque::len);
        self.points.resize_with(readings.len().max(self.points.len()), || {
            let mut points = VecDeque::with_capacity(points_max);
            points.resize(known, f32::NAN); // a new series begins now
            points
        });
        for (at, points) in self.points.iter_mut().enumerate() {
            let point = match (self.first.get(at), readings.get(at)) {
                (Some(Reading::Level(_)), _) => self.largest[at],
                (Some(first), Some(last)) => first.until(last, seconds),
                _ => f64::NAN,
            };
            let empty = (next - current - 1).min(points_max as u64) as usize;
            let added = std::iter::once(point as f32).chain(std::iter::repeat_n(f32::NAN, empty));
            // Old points go first, so that the deque never grows.
            let surplus = (points.len() + 1 + empty).saturating_sub(points_max);
            points.drain(..surplus.min(points.len()));
            points.extend(added.skip((1 + empty).saturating_sub(points_max)));
        }
    }
}

impl Reading {
    /// The point between two readings that are so many seconds apart.
    fn until(&self, later: &Reading, seconds: f64) -> f64 {
        match (self, later) {
            (Reading::Count(first), Reading::Count(last)) => last.saturating_sub(*first) as f64 / seconds,
            (
                Reading::Ratio { part: first, whole: first_whole },
                Reading::Ratio { part: last, whole: last_whole },
            ) => match last_whole.saturating_sub(*first_whole) {
                0 => f64::NAN,
                whole => (last - first).max(0.0) / whole as f64,
            },
            (Reading::Quantile { times: first, share }, Reading::Quantile { times: last, .. }) => {
                quantile_ms(first, last, *share)
            }
            _ => f64::NAN,
        }
    }
}

/// The bound in milliseconds that `share` of the calls between two snapshots did not exceed.
fn quantile_ms(first: &CallTimesSnapshot, last: &CallTimesSnapshot, share: f64) -> f64 {
    let count = last.count.saturating_sub(first.count);
    if count == 0 {
        return f64::NAN;
    }
    let rank = ((count as f64 * share).ceil() as u64).clamp(1, count);
    let before = |at: usize| first.up_to.get(at).map_or(0, |(_, count)| *count);
    let found =
        last.up_to.iter().enumerate().find(|(at, (_, below))| below.saturating_sub(before(*at)) >= rank);
    let longest = || last.up_to.last().map_or(f64::NAN, |(bound, _)| *bound);
    found.map_or_else(longest, |(_, (bound, _))| *bound) * 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(name: &str) -> Label {
        Label { name: name.to_string(), unit: "1", help: "" }
    }

    fn one(timeline: &Timeline, range: Range) -> Vec<f32> {
        timeline.window(range, None, |_| true).series.remove(0).values
    }

    #[test]
    fn memory_is_what_the_head_of_the_file_says() {
        let mut timeline = Timeline::default();
        let push = |timeline: &mut Timeline, second| {
            let series = (0..2 * SERIES_MAX).map(|at| (label(&format!("s{at}")), Reading::Count(second)));
            timeline.push(second, series.collect());
        };
        push(&mut timeline, 0);
        let without_points = timeline.held_bytes();
        (1..200).for_each(|second| push(&mut timeline, second * 60));
        let full = (SERIES_MAX * (900 + 2160 + 1440) * 4) as u64;
        let points = timeline.held_bytes() - without_points;
        assert!((full..full + 100_000).contains(&points), "{points} of {full}");
        (200..2000).for_each(|second| push(&mut timeline, second * 60));
        assert_eq!(timeline.held_bytes() - without_points, points, "a series does not grow");
    }

    #[test]
    fn counts_become_rates_at_every_level() {
        let mut timeline = Timeline::default();
        for second in 0..130 {
            timeline.push(second, vec![(label("calls"), Reading::Count(second * 7))]);
        }
        let window = timeline.window(Range::Minutes15, None, |_| true);
        assert_eq!((window.first_s, window.step_s, window.count), (0, 1, 129));
        assert!(window.series[0].values.iter().all(|rate| *rate == 7.0));
        assert_eq!(one(&timeline, Range::Hour), vec![7.0; 12]);
        assert_eq!(one(&timeline, Range::Day), vec![7.0; 2]);
        assert_eq!(timeline.grown("calls", 10), 70.0);
    }

    #[test]
    fn seconds_without_a_reading_are_empty_and_the_past_changes_nothing() {
        let mut timeline = Timeline::default();
        for second in [0, 1, 5, 3, 6] {
            timeline.push(second, vec![(label("calls"), Reading::Count(second * 4))]);
        }
        let values = one(&timeline, Range::Minutes15);
        assert_eq!(
            values.iter().map(|v| v.is_nan()).collect::<Vec<_>>(),
            [false, false, true, true, true, false]
        );
        assert_eq!((values[0], values[1], values[5]), (4.0, 4.0, 4.0));
    }

    #[test]
    fn the_largest_level_of_an_interval_is_its_point() {
        let mut timeline = Timeline::default();
        for second in 0..=20 {
            let level = if second == 13 { 50.0 } else { 2.0 };
            timeline.push(second, vec![(label("waiting"), Reading::Level(level))]);
        }
        assert_eq!(one(&timeline, Range::Hour), [2.0, 50.0]);
    }

    #[test]
    fn a_percentile_is_that_of_the_calls_in_between() {
        let times = |fast: u64, slow: u64| {
            let up_to = vec![(0.001, fast), (0.002, fast), (0.1, fast + slow)];
            Arc::new(CallTimesSnapshot { up_to, count: fast + slow, sum_seconds: 0.0 })
        };
        assert!(quantile_ms(&times(5, 0), &times(5, 0), 0.5).is_nan());
        assert_eq!(quantile_ms(&times(1000, 0), &times(1000, 2), 0.5), 100.0, "only the two new ones");
        assert_eq!(quantile_ms(&times(0, 0), &times(99, 1), 0.99), 1.0);
        assert_eq!(quantile_ms(&times(0, 0), &times(98, 2), 0.99), 100.0);
    }

    #[test]
    fn memory_is_bounded_and_a_window_can_continue_another() {
        let mut timeline = Timeline::default();
        let many = |second: u64| {
            (0..SERIES_MAX + 9).map(|at| (label(&at.to_string()), Reading::Count(second))).collect()
        };
        for second in 0..2000 {
            timeline.push(second, many(second));
        }
        let window = timeline.window(Range::Minutes15, None, |_| true);
        assert_eq!((window.series.len(), window.count, window.first_s), (SERIES_MAX, 900, 1099));
        let newer = timeline.window(Range::Minutes15, Some(1995), |name| name == "3");
        assert_eq!((newer.series.len(), newer.count, newer.first_s), (1, 3, 1996));
        assert_eq!(timeline.window(Range::Minutes15, Some(5000), |_| true).count, 0);
    }
}
