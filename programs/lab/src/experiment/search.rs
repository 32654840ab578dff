//! The smallest side of a ladder that serves a load, found by halving.
//!
//! A ladder is a row of sides that differ in their memory alone, the smallest first. A side serves if all its cases were
//! measured as wholes, so without an error and with a steady rate, and the rate that was asked for was held. A side that does
//! not start, runs out of memory or cannot be filled does not serve. What serves with some memory is taken to serve with more,
//! so half of what is left of the ladder falls away with each visit.

use super::plan::{Plan, SidePlan, Visit};
use super::results::Results;
use crate::outcome::Run;

/// Of the rate that was asked for.
const HELD_SHARE_MIN: f64 = 0.98;

/// Whether a run counts as served: whole, and at its rate.
pub fn is_held(run: &Run) -> bool {
    let rate = run.rate_wanted_per_s.unwrap_or(0.0);
    run.partial.is_none() && run.operations > 0 && run.operations_per_s >= rate * HELD_SHARE_MIN
}

/// One ladder in one repetition.
pub struct Search<'a> {
    plan: &'a Plan,
    repetition: u32,
    ladder: Vec<&'a SidePlan>,
    /// The smallest side that serves is not below this, and not above `high`.
    low: usize,
    /// As long as the ladder while no side is known to serve.
    high: usize,
}

impl<'a> Search<'a> {
    pub fn new(plan: &'a Plan, repetition: u32, ladder: &[String]) -> Search<'a> {
        let side = |id: &String| plan.sides.iter().find(|side| side.id == *id);
        let ladder: Vec<&SidePlan> = ladder.iter().filter_map(side).collect();
        let high = ladder.len();
        Search { plan, repetition, ladder, low: 0, high }
    }

    /// The side to measure next.
    pub fn next(&self) -> Option<Visit<'a>> {
        let middle = self.low + (self.high - self.low) / 2;
        (self.low < self.high).then(|| Visit { repetition: self.repetition, side: self.ladder[middle] })
    }

    /// After a visit to the side of [`Search::next`].
    pub fn learn(&mut self, results: &Results) {
        let middle = self.low + (self.high - self.low) / 2;
        match self.serves(self.ladder[middle], results) {
            true => self.high = middle,
            false => self.low = middle + 1,
        }
    }

    fn serves(&self, side: &SidePlan, results: &Results) -> bool {
        let run = |case: &str| results.run(self.repetition, &side.id, case);
        self.plan.cases.iter().all(|case| run(&case.id).is_some_and(is_held))
    }

    /// The smallest one that serves, once the search is over.
    pub fn found(&self) -> Option<&'a SidePlan> {
        assert!(self.low == self.high, "the search is over");
        self.ladder.get(self.high).copied()
    }
}
