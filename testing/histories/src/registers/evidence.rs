//! A small set of operations that contradict each other.
//!
//! The operations until the first answer that cannot be explained contradict each other, and may be thousands. One after
//! the other is relaxed: a read is left out, and a write may be anywhere or nowhere, with any answer. If the others still
//! contradict each other, it was not needed. What remains is a contradiction wherever the relaxed writes are. It is minimal:
//! without any one of its operations there is an order, or the search for one reached its limits.

use std::time::Duration;

use super::search::{Effect, Step, search};
use crate::limits::{Budget, Limits};

/// Longest search of one attempt: an operation whose relaxing takes longer is kept.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Indices of the operations that contradict each other, in ascending order. `failing` is what the search returned.
pub fn smallest(steps: &[Step], failing: usize, limits: &Limits) -> Vec<usize> {
    let end = steps[failing].ends;
    let candidates: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].called <= end).collect();
    let whole = Budget::new(limits.evidence_time, limits.states_max);
    let contradicts = |kept: &[usize]| {
        let relaxed = relaxed(steps, &candidates, kept, end);
        let mut budget = Budget::new(ATTEMPT.min(limits.evidence_time), limits.states_max);
        matches!(search(&relaxed, &mut budget), Ok(Some(_)))
    };
    let mut kept = candidates.clone();
    // a check that did not hold makes every number matter to the search, and is seldom the reason
    let without: Vec<usize> =
        kept.iter().copied().filter(|&at| !matches!(steps[at].effect, Effect::Differs(_))).collect();
    if without.len() < kept.len() && contradicts(&without) {
        kept = without;
    }
    let mut size = kept.len().div_ceil(2);
    // halves, quarters and so on, and single ones until none can be relaxed any more
    while size > 0 && whole.look().is_ok() {
        let before = kept.len();
        // the earlier ones first: those that are near the failing answer explain most
        let mut at = 0;
        while at < kept.len() && whole.look().is_ok() {
            let to = (at + size).min(kept.len());
            let others: Vec<usize> = kept[..at].iter().chain(&kept[to..]).copied().collect();
            match contradicts(&others) {
                true => kept = others,
                false => at = to,
            }
        }
        size = if size == 1 && kept.len() < before { 1 } else { size / 2 };
    }
    kept.extend(from_later(steps, &kept, end));
    kept.sort_unstable();
    kept
}

/// Writes of numbers that the evidence shows, which were called only after the failing answer. They are not needed for the
/// contradiction, but say what it is.
fn from_later(steps: &[Step], kept: &[usize], end: u64) -> Vec<usize> {
    let shown = |number: i64| {
        kept.iter().any(|&at| match steps[at].effect {
            Effect::Read(seen) | Effect::Swap { expected: seen, .. } => seen == Some(number),
            _ => false,
        })
    };
    let later = (0..steps.len()).filter(|&at| steps[at].called > end);
    let writes = later.filter(|&at| match steps[at].effect {
        Effect::Write(Some(number)) | Effect::Swap { new: Some(number), .. } => shown(number),
        _ => false,
    });
    writes.collect()
}

/// The steps until the failing answer: those in `kept` as they are, the others without a constraint.
fn relaxed(steps: &[Step], candidates: &[usize], kept: &[usize], end: u64) -> Vec<Step> {
    let mut kept = kept.iter().copied().peekable();
    let mut found = Vec::with_capacity(candidates.len());
    for &at in candidates {
        let mut step = steps[at];
        if kept.next_if_eq(&at).is_none() {
            step.called = 0;
            step.ends = u64::MAX;
            if let Effect::Add { result, .. } = &mut step.effect {
                *result = None;
            }
        } else if step.ends > end {
            step.ends = u64::MAX;
        }
        // a read without an answer says nothing
        if !(step.is_optional() && step.effect.is_read()) {
            found.push(step);
        }
    }
    found
}
