//! Finished procedures, remembered for a while because clients ask for them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use halcyon_rpc::RpcError;

use super::Parameters;

/// How a procedure ended.
#[derive(Clone)]
pub(crate) struct Finished {
    pub(crate) class_name: &'static str,
    pub(crate) owner: String,
    pub(crate) submitted_ms: i64,
    pub(crate) finished_ms: i64,
    pub(crate) outcome: Result<(), RpcError>,
    /// Whether the caller was told of a refusal instead of a number.
    pub(crate) refused: bool,
    pub(crate) nonce: (u64, u64),
    pub(crate) parameters: Arc<Parameters>,
}

/// The newest `results_max` of the last `keep_ms`.
pub(crate) struct Results {
    by_id: HashMap<u64, Finished>,
    order: VecDeque<u64>,
    keep_ms: i64,
    results_max: usize,
}

impl Results {
    pub(crate) fn new(keep_ms: i64, results_max: usize) -> Results {
        Results { by_id: HashMap::new(), order: VecDeque::new(), keep_ms, results_max }
    }

    /// Remembers one more; returns the nonces of those forgotten.
    pub(crate) fn add(&mut self, id: u64, finished: Finished) -> Vec<(u64, u64)> {
        let now = finished.finished_ms;
        self.by_id.insert(id, finished);
        self.order.push_back(id);
        let mut forgotten = Vec::new();
        while let Some(oldest) = self.order.front().copied() {
            let age = now - self.by_id.get(&oldest).map_or(i64::MIN, |result| result.finished_ms);
            if age <= self.keep_ms && self.order.len() <= self.results_max {
                break;
            }
            self.order.pop_front();
            forgotten.extend(self.by_id.remove(&oldest).map(|result| result.nonce));
        }
        forgotten
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
    use super::*;

    #[test]
    fn forgets_by_age_and_by_number() {
        let finished = |finished_ms| Finished {
            class_name: "x",
            owner: String::new(),
            submitted_ms: 0,
            finished_ms,
            outcome: Ok(()),
            refused: false,
            nonce: (1, finished_ms as u64),
            parameters: Arc::default(),
        };
        let mut results = Results::new(100, 3);
        for id in 1..=3 {
            assert!(results.add(id, finished(id as i64)).is_empty());
        }
        assert_eq!(results.add(4, finished(4)), [(1, 1)]);
        assert_eq!(results.add(5, finished(1000)), [(1, 2), (1, 3), (1, 4)]);
        assert!(results.get(4).is_none() && results.get(5).is_some());
        assert_eq!(results.iter().count(), 1);
    }
}
