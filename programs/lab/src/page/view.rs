//! An experiment as the page goes through it: sides with their looks, runs by case and side, medians.

use crate::outcome::{Case, Experiment, Latency, Product, Run, Side};

/// Colours and signs there are; more sides than these take the first ones again.
pub const LOOKS: usize = 8;

pub struct View<'a> {
    pub experiment: &'a Experiment,
    pub sides: Vec<Looked<'a>>,
}

/// A side and how it is drawn, the same everywhere on the page.
#[derive(Clone, Copy)]
pub struct Looked<'a> {
    pub side: &'a Side,
    /// Less than [`LOOKS`].
    pub look: usize,
}

impl Looked<'_> {
    /// Class of its colour and dashes.
    pub fn class(&self) -> &'static str {
        ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"][self.look]
    }
}

impl<'a> View<'a> {
    /// The first side that is Halcyon has the first look, whichever place it has.
    pub fn new(experiment: &'a Experiment) -> View<'a> {
        let ours = experiment.sides.iter().position(|side| side.product == Product::Halcyon);
        let mut next = 1;
        let looked = |(at, side)| {
            let look = if Some(at) == ours {
                0
            } else {
                let look = next;
                next = if next + 1 == LOOKS { 1 } else { next + 1 };
                look
            };
            Looked { side, look }
        };
        View { experiment, sides: experiment.sides.iter().enumerate().map(looked).collect() }
    }

    /// In the order of their repetitions.
    pub fn runs(&self, side: &Side, case: &Case) -> Vec<&'a Run> {
        let of_both = |run: &&Run| run.side == side.id && run.case == case.id;
        let mut runs: Vec<&Run> = self.experiment.runs.iter().filter(of_both).collect();
        runs.sort_by_key(|run| run.repetition);
        runs
    }

    pub fn has_runs(&self, case: &Case) -> bool {
        self.experiment.runs.iter().any(|run| run.case == case.id)
    }

    /// Runs whose side or case nobody knows; these are on no plot.
    pub fn strangers(&self) -> usize {
        let known = |run: &&Run| {
            self.experiment.sides.iter().any(|side| side.id == run.side)
                && self.experiment.cases.iter().any(|case| case.id == run.case)
        };
        self.experiment.runs.len() - self.experiment.runs.iter().filter(known).count()
    }
}

/// The run in the middle by throughput; the slower one of two.
pub fn median_run<'a>(runs: &[&'a Run]) -> Option<&'a Run> {
    let mut runs: Vec<&Run> = runs.to_vec();
    runs.sort_by(|a, b| a.operations_per_s.total_cmp(&b.operations_per_s));
    runs.get(runs.len().saturating_sub(1) / 2).copied()
}

/// Least, median and most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub min: f64,
    pub median: f64,
    pub max: f64,
}

/// Of the values that are numbers, if there are any.
pub fn spread(values: impl Iterator<Item = f64>) -> Option<Spread> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let half = values.len() / 2;
    let median =
        if values.len() % 2 == 1 { values[half] } else { values[half - 1] / 2.0 + values[half] / 2.0 };
    Some(Spread { min, median, max })
}

/// Latencies of one kind in one run, ready to be asked.
pub struct Counted {
    /// Value in microseconds and how many are not longer.
    up_to: Vec<(u64, u128)>,
}

impl Counted {
    pub fn new(latency: &Latency) -> Counted {
        let mut buckets = latency.histogram.clone();
        buckets.sort_unstable();
        let mut total = 0u128;
        let mut up_to = Vec::with_capacity(buckets.len());
        for (value, count) in buckets.into_iter().filter(|(_, count)| *count > 0) {
            total += u128::from(count);
            up_to.push((value, total));
        }
        Counted { up_to }
    }

    pub fn total(&self) -> u128 {
        self.up_to.last().map_or(0, |(_, total)| *total)
    }

    /// The least value that at least this part of all does not exceed; microseconds.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = ((part * self.total() as f64).ceil() as u128).clamp(1, self.total().max(1));
        let at = self.up_to.partition_point(|(_, up_to)| *up_to < wanted);
        self.up_to.get(at).or(self.up_to.last()).map(|(value, _)| *value as f64)
    }
}

/// Latencies of `kind`, of each run that has any.
pub fn counted(runs: &[&Run], kind: &str) -> Vec<Counted> {
    let of_kind = |run: &&Run| run.latencies.iter().find(|latency| latency.kind == kind).map(Counted::new);
    runs.iter().filter_map(of_kind).filter(|counted| counted.total() > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let latency = Latency {
            kind: "read".into(),
            mean_us: 0.0,
            histogram: vec![(100, 90), (1000, 9), (50_000, 1), (7, 0)],
        };
        let counted = Counted::new(&latency);
        let found = [0.0, 0.5, 0.9, 0.901, 0.99, 0.999, 1.0, f64::NAN].map(|part| counted.quantile(part));
        let expected = [100.0, 100.0, 100.0, 1000.0, 1000.0, 50_000.0, 50_000.0, 100.0].map(Some);
        assert_eq!(found, expected);
        let nothing = Counted::new(&Latency { kind: String::new(), mean_us: 0.0, histogram: vec![] });
        assert_eq!(nothing.quantile(0.5), None);
    }

    #[test]
    fn spreads() {
        assert_eq!(spread([].into_iter()), None);
        let of = |values: &[f64]| spread(values.iter().copied()).unwrap();
        assert_eq!(of(&[3.0, f64::NAN, 1.0, 2.0]), Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert_eq!(of(&[4.0, 1.0]).median, 2.5);
    }
}
