//! The last runs of the balancer with their times, for people. `GetLogEntries` has the same without times.

use std::collections::VecDeque;

use halcyon_env::Mutex;

use crate::Master;
use crate::balancer::{Decision, Rejection};

/// Runs that are remembered. A run is noted once more only if it came to something else than the one before.
const RUNS_MAX: usize = 50;
/// Moves of a run that are named.
const MOVES_MAX: usize = 20;

/// A run of the balancer.
#[derive(Clone, Debug, PartialEq)]
pub struct BalancerRun {
    /// Unix time.
    pub at_ms: i64,
    /// How many runs in a row ended so, this one among them.
    pub runs_count: u64,
    pub moves_count: usize,
    /// Encoded region name, from, to; not all if there are many.
    pub moves: Vec<(String, String, String)>,
    /// Costs before and after, or why nothing moved.
    pub reason: String,
}

#[derive(Default)]
pub(crate) struct BalancerRuns(Mutex<VecDeque<BalancerRun>>);

impl BalancerRuns {
    pub(crate) fn decided(&self, at_ms: i64, decision: &Decision) {
        let moves = decision.moves.iter().take(MOVES_MAX);
        let moves = moves
            .map(|it| (it.region.encoded_name().to_string(), it.from.to_string(), it.to.to_string()))
            .collect();
        let (before, after) = (Decision::text(&decision.costs_before), Decision::text(&decision.costs_after));
        let total = (Decision::total(&decision.costs_before), Decision::total(&decision.costs_after));
        let reason =
            format!("costs fall from {:.1} to {:.1}; before: {before} after: {after}", total.0, total.1);
        let reason = reason.trim_end().to_string();
        self.keep(BalancerRun { at_ms, runs_count: 1, moves_count: decision.moves.len(), moves, reason });
    }

    pub(crate) fn rejected(&self, at_ms: i64, rejection: &Rejection) {
        let reason = rejection.0.clone();
        self.keep(BalancerRun { at_ms, runs_count: 1, moves_count: 0, moves: Vec::new(), reason });
    }

    fn keep(&self, mut run: BalancerRun) {
        let mut runs = self.0.lock();
        let is_alike = |last: &&BalancerRun| run.moves_count == 0 && last.reason == run.reason;
        if let Some(last_count) = runs.front().filter(is_alike).map(|last| last.runs_count) {
            run.runs_count += last_count;
            runs.pop_front();
        }
        runs.push_front(run);
        runs.truncate(RUNS_MAX);
    }
}

impl Master {
    /// The last runs of the balancer, the newest first.
    pub fn balancer_runs(&self) -> Vec<BalancerRun> {
        self.core.balancer_runs.0.lock().iter().cloned().collect()
    }
}
