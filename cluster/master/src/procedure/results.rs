//! Finished procedures, remembered for a while because clients ask for them.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use halcyon_rpc::RpcError;

use super::Parameters;
use super::parameters::bytes_of;
use super::record::Ended;

/// Memory that parameters of ended procedures take at most, in bytes. Those of older ones are forgotten first.
const PARAMETERS_MAX: usize = 16 << 20;

/// How a procedure ended.
#[derive(Clone)]
pub(crate) struct Finished {
    pub(crate) class_name: Cow<'static, str>,
    pub(crate) owner: String,
    pub(crate) submitted_ms: i64,
    pub(crate) finished_ms: i64,
    pub(crate) outcome: Result<(), RpcError>,
    /// Whether the caller was told of a refusal instead of a number.
    pub(crate) refused: bool,
    pub(crate) nonce: (u64, u64),
    /// Whether a file has it, for the next master.
    pub(crate) is_kept: bool,
    pub(crate) parameters: Arc<Parameters>,
}

impl Finished {
    /// As the master before has left it. Its parameters are not kept.
    pub(super) fn of_record(ended: &Ended) -> Finished {
        Finished {
            class_name: ended.class_name.clone().into(),
            owner: ended.owner.clone(),
            submitted_ms: ended.submitted_ms,
            finished_ms: ended.finished_ms,
            outcome: ended.failure.as_ref().map_or(Ok(()), |failure| Err(failure.to_error())),
            refused: false,
            nonce: (ended.nonce_group, ended.nonce),
            is_kept: true,
            parameters: Arc::default(),
        }
    }
}

/// What is forgotten with a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Forgotten {
    pub(super) id: u64,
    pub(super) nonce: (u64, u64),
    pub(super) is_kept: bool,
}

/// The newest `results_max` of the last `keep_ms`.
pub(crate) struct Results {
    by_id: HashMap<u64, Finished>,
    order: VecDeque<u64>,
    keep_ms: i64,
    results_max: usize,
    /// Those with parameters, oldest first.
    with_parameters: VecDeque<u64>,
    parameters_bytes: usize,
}

impl Results {
    pub(crate) fn new(keep_ms: i64, results_max: usize) -> Results {
        Results {
            by_id: HashMap::new(),
            order: VecDeque::new(),
            keep_ms,
            results_max,
            with_parameters: VecDeque::new(),
            parameters_bytes: 0,
        }
    }

    /// Remembers one more; returns those forgotten.
    pub(super) fn add(&mut self, id: u64, finished: Finished) -> Vec<Forgotten> {
        let now = finished.finished_ms;
        if !finished.parameters.is_empty() {
            self.parameters_bytes += bytes_of(&finished.parameters);
            self.with_parameters.push_back(id);
        }
        self.by_id.insert(id, finished);
        self.order.push_back(id);
        let mut forgotten = Vec::new();
        while let Some(oldest) = self.order.front().copied() {
            let age =
                now.saturating_sub(self.by_id.get(&oldest).map_or(i64::MIN, |result| result.finished_ms));
            if age <= self.keep_ms && self.order.len() <= self.results_max {
                break;
            }
            self.order.pop_front();
            if self.with_parameters.front() == Some(&oldest) {
                self.forget_parameters();
            }
            forgotten.extend(self.by_id.remove(&oldest).map(|result| Forgotten {
                id: oldest,
                nonce: result.nonce,
                is_kept: result.is_kept,
            }));
        }
        while self.parameters_bytes > PARAMETERS_MAX {
            self.forget_parameters();
        }
        assert!(self.order.len() <= self.results_max, "results are remembered up to a limit");
        assert!(self.by_id.len() <= self.order.len(), "a result that has no turn would never be forgotten");
        forgotten
    }

    /// Of the oldest one that has some.
    fn forget_parameters(&mut self) {
        let oldest = self.with_parameters.pop_front().and_then(|id| self.by_id.get_mut(&id));
        if let Some(result) = oldest {
            let bytes = bytes_of(&result.parameters);
            assert!(bytes <= self.parameters_bytes, "{bytes} bytes of parameters go that were not counted");
            self.parameters_bytes -= bytes;
            result.parameters = Arc::default();
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<&Finished> {
        self.by_id.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Finished)> {
        self.order.iter().filter_map(|id| self.by_id.get(id).map(|result| (*id, result)))
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Any;

    use super::*;

    fn finished(finished_ms: i64, parameters: Parameters) -> Finished {
        Finished {
            class_name: "x".into(),
            owner: String::new(),
            submitted_ms: 0,
            finished_ms,
            outcome: Ok(()),
            refused: false,
            nonce: (1, finished_ms as u64),
            is_kept: finished_ms % 2 == 0,
            parameters: Arc::new(parameters),
        }
    }

    #[test]
    fn parameters_are_forgotten_before_the_results() {
        let parameters = || vec![Any { type_url: String::new(), value: vec![0; PARAMETERS_MAX / 3] }];
        let mut results = Results::new(100, 4);
        for id in 1..=4 {
            results.add(id, finished(id as i64, parameters()));
        }
        let shown = |results: &Results| -> Vec<_> {
            results.iter().filter(|(_, it)| !it.parameters.is_empty()).map(|(id, _)| id).collect()
        };
        assert_eq!((results.iter().count(), shown(&results)), (4, vec![2, 3, 4]));
        results.add(5, finished(5, Vec::new()));
        results.add(6, finished(6, Vec::new()));
        assert_eq!((results.iter().count(), shown(&results)), (4, vec![3, 4]));
        assert_eq!(
            results.parameters_bytes,
            PARAMETERS_MAX / 3 * 2,
            "those of forgotten results do not count"
        );
        results.add(7, finished(1000, Vec::new()));
        assert_eq!((results.iter().count(), results.parameters_bytes), (1, 0));
    }

    #[test]
    fn forgets_by_age_and_by_number() {
        let mut results = Results::new(100, 3);
        for id in 1..=3 {
            assert!(results.add(id, finished(id as i64, Vec::new())).is_empty());
        }
        let forgotten = |id| Forgotten { id, nonce: (1, id), is_kept: id % 2 == 0 };
        assert_eq!(results.add(4, finished(4, Vec::new())), [forgotten(1)]);
        assert_eq!(results.add(5, finished(1000, Vec::new())), [2, 3, 4].map(forgotten));
        assert!(results.get(4).is_none() && results.get(5).is_some());
        assert_eq!(results.iter().count(), 1);
    }
}
