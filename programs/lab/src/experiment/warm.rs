//! Warm, or not: how long a side is warmed before a case is measured, and which runs are refused because they were not.
//!
//! A JVM interprets its code first and compiles it while it works. What is measured meanwhile says how fast it compiles.
//! So each side is warmed with the load that is measured, until the rates of three consecutive seconds differ by less
//! than 5 %: a JVM for at least a minute, because an interpreter is steady too. `--quick` does not shorten that; it takes
//! fewer repetitions. The load generator extends the warm-up (`halcyon-load`, `run/steady.rs`; `Ingest.java`), and what it
//! says of it is judged again here, with what was measured:
//!
//! 1. no wrong answers and no errors, during the warm-up either;
//! 2. the warm-up was as long as was asked for, and its last three seconds were steady;
//! 3. the last quarter of the run is at most 10 % faster than its first.
//!
//! And over the runs of a visit: a load that does all that another does and more cannot be faster ([`Plan::not_faster`]).
//!
//! [`Plan::not_faster`]: super::plan::Plan::not_faster

use serde::{Deserialize, Serialize};

use super::plan::SidePlan;
use crate::outcome::{Product, Run, Second};

/// A JVM compiles its hot code within this time.
pub const JVM_S: u64 = 60;
/// Halcyon has nothing to compile, only caches and files to fill.
const NATIVE_S: u64 = 10;
/// A side that is not steady by then will not be.
const MAX_S: u64 = 240;
/// Consecutive seconds at the end of a warm-up.
const SECONDS: usize = 3;
const SPREAD_MAX: f64 = 0.05;
/// By how much the last quarter of a run may be faster than the first.
const GAIN_MAX: f64 = 0.1;
/// A generator counts its seconds by a timer.
const TIMER_S: f64 = 0.5;

/// What a case wants before it is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Warmup {
    /// At least so long, and until the rate is steady.
    Steady {
        jvm_s: u64,
        native_s: u64,
        /// Then the run is measured all the same, and partial.
        max_s: u64,
    },
    /// So long, and whatever the rate does. For tests of the lab: such a plan says that its figures do not hold.
    Unjudged { seconds: u64 },
}

/// The part of it that one side is to have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wanted {
    pub least_s: u64,
    /// Where steadiness is wanted.
    pub max_s: Option<u64>,
}

impl Warmup {
    /// `asked_s` lengthens the minimum, and shortens that of Halcyon alone.
    pub fn new(asked_s: Option<u64>, is_unjudged: bool) -> Warmup {
        if is_unjudged {
            return Warmup::Unjudged { seconds: asked_s.unwrap_or(0) };
        }
        let (jvm_s, native_s) = (asked_s.unwrap_or(0).max(JVM_S), asked_s.unwrap_or(NATIVE_S));
        Warmup::Steady { jvm_s, native_s, max_s: MAX_S.max(jvm_s * 2) }
    }

    pub fn wanted(self, side: &SidePlan) -> Wanted {
        match self {
            Warmup::Steady { jvm_s, native_s, max_s } => {
                let least_s = if side.server.product() == Product::Halcyon { native_s } else { jvm_s };
                Wanted { least_s, max_s: Some(max_s) }
            }
            Warmup::Unjudged { seconds } => Wanted { least_s: seconds, max_s: None },
        }
    }

    /// About how long it takes.
    pub fn expected_s(self, side: &SidePlan) -> f64 {
        self.wanted(side).least_s as f64
    }
}

impl Wanted {
    /// Why a run does not count, or nothing.
    pub fn refuses(self, run: &Run) -> Option<String> {
        wrong_answers(run).or_else(|| {
            self.max_s?;
            not_warmed(run, self.least_s).or_else(|| becomes_faster(&run.series))
        })
    }
}

fn wrong_answers(run: &Run) -> Option<String> {
    let named: Vec<String> = run.errors.iter().map(|(class, count)| format!("{class} {count}")).collect();
    (!named.is_empty()).then(|| format!("wrong answers or errors: {}", named.join(", ")))
}

fn not_warmed(run: &Run, least_s: u64) -> Option<String> {
    if run.warmup_s + TIMER_S < least_s as f64 {
        return Some(format!("not steady: warmed for {:.0} s, not for {least_s}", run.warmup_s));
    }
    let is_steady = is_steady(&run.warmup_rates_per_s);
    (!is_steady).then(|| format!("not steady after a warm-up of {:.0} s", run.warmup_s))
}

/// Whether the last three seconds differ by less than 5 %.
pub fn is_steady(rates_per_s: &[f64]) -> bool {
    let Some(last) = rates_per_s.last_chunk::<SECONDS>() else { return false };
    let least = last.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = last.iter().copied().fold(0.0, f64::max);
    largest > 0.0 && largest - least < largest * SPREAD_MAX
}

/// A run that becomes faster measured the end of a warm-up. One of less than four seconds has no quarters.
fn becomes_faster(series: &[Second]) -> Option<String> {
    let quarter = series.len() / 4;
    if quarter == 0 {
        return None;
    }
    let rate = |from: usize, to: usize| {
        let begun_s = from.checked_sub(1).map_or(0.0, |before| series[before].at_s);
        let operations: u64 = series[from..to].iter().map(|second| second.operations).sum();
        operations as f64 / (series[to - 1].at_s - begun_s).max(1e-3)
    };
    // the last entry may be a fraction of a second
    let (first, last) = (rate(0, quarter), rate(series.len() - quarter, series.len()));
    (last > first * (1.0 + GAIN_MAX)).then(|| {
        format!(
            "not steady: its last quarter was {:.0} % faster than its first ({last:.0}/s, {first:.0}/s)",
            (last / first.max(1e-3) - 1.0) * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(rates: &[u64]) -> Vec<Second> {
        let second = |(at, operations): (usize, &u64)| Second {
            at_s: at as f64 + 1.0,
            operations: *operations,
            p50_us: 0,
            p99_us: 0,
            max_us: 0,
            resident_bytes: None,
        };
        rates.iter().enumerate().map(second).collect()
    }

    #[test]
    fn a_run_that_becomes_faster_is_refused() {
        let told = |rates: &[u64]| becomes_faster(&series(rates));
        assert_eq!(told(&[100, 50, 50, 110]), None, "10 % are allowed");
        assert_eq!(
            told(&[100, 100, 100, 111]).unwrap(),
            "not steady: its last quarter was 11 % faster than its first (111/s, 100/s)"
        );
        assert!(told(&[0, 0, 9, 9, 9, 9, 9, 9]).is_some());
        assert_eq!(told(&[200, 200, 9, 9, 9, 9, 9, 9]), None, "slower is the server's own affair");
        assert_eq!(told(&[1, 100, 1000]), None);
        // the rest of a second
        let mut rest = series(&[100, 100, 100, 100, 100, 100, 100, 100]);
        rest[7].at_s = 7.1;
        rest[7].operations = 10;
        assert_eq!(becomes_faster(&rest), None);
    }

    #[test]
    fn a_jvm_has_its_minute_whatever_is_asked_for() {
        let Warmup::Steady { jvm_s, native_s, max_s } = Warmup::new(Some(1), false) else { panic!() };
        assert_eq!((jvm_s, native_s, max_s), (60, 1, 240));
        let Warmup::Steady { jvm_s, native_s, max_s } = Warmup::new(Some(600), false) else { panic!() };
        assert_eq!((jvm_s, native_s, max_s), (600, 600, 1_200));
        let Warmup::Steady { jvm_s, native_s, .. } = Warmup::new(None, false) else { panic!() };
        assert_eq!((jvm_s, native_s), (60, 10));
    }
}
