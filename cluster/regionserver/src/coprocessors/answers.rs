//! What Increments and Appends with a nonce were answered in regions with coprocessors, for calls that are repeated.
//!
//! A hook may do the operation itself, or change what it returns. Then the cells of the region do not tell what the client would have got.
//! HBase answers with what the row has when the call is repeated. Here the answer is kept for a while; where it is gone, the cells of the
//! write are read, as in other regions (`halcyon_region::Region::answer`).
//!
//! *Thread safety*: all verbs from any thread, by one short lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Cell;
use halcyon_env::{Clock, Mutex};
use halcyon_region::Nonce;

/// As long as a region keeps what it has answered: twice as long as HBase's clients wait before they repeat a call.
const AGE_MAX: Duration = Duration::from_secs(120);
/// Of one server; the oldest go first.
const BYTES_MAX: usize = 4 << 20;
/// What an answer and each of its cells take beside their bytes, about.
const OVERHEAD_BYTES: usize = 100;

/// See the head of the file.
pub(crate) struct KeptAnswers {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    answers: HashMap<Nonce, Vec<Cell>>,
    /// When each was kept (`monotonic_ns`), oldest first.
    order: VecDeque<(u64, Nonce)>,
    bytes: usize,
}

impl KeptAnswers {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> KeptAnswers {
        KeptAnswers { clock, state: Mutex::default() }
    }

    /// To be told before the nonce ends, so that whoever repeats the call finds it. Nonce 0 is none.
    pub(crate) fn keep(&self, nonce: Nonce, cells: &[Cell]) {
        if nonce.nonce == 0 {
            return;
        }
        // Copies: a cell may be a small part of a large message.
        let cells: Vec<Cell> = cells.iter().map(|cell| cell.get().to_cell()).collect();
        let now_ns = self.clock.monotonic_ns();
        let mut state = self.state.lock();
        state.forget_older(now_ns);
        state.bytes += bytes_of(&cells);
        match state.answers.insert(nonce, cells) {
            // The nonce was forgotten meanwhile, and the operation was done once more.
            Some(before) => state.bytes -= bytes_of(&before),
            None => state.order.push_back((now_ns, nonce)),
        }
        while state.bytes > BYTES_MAX {
            state.forget_oldest();
        }
        assert_eq!(state.order.len(), state.answers.len(), "each answer goes when its turn comes");
    }

    pub(crate) fn of(&self, nonce: Nonce) -> Option<Vec<Cell>> {
        let mut state = self.state.lock();
        state.forget_older(self.clock.monotonic_ns());
        state.answers.get(&nonce).cloned()
    }
}

impl State {
    fn forget_older(&mut self, now_ns: u64) {
        let age_max_ns = AGE_MAX.as_nanos() as u64;
        while self.order.front().is_some_and(|(kept_ns, _)| kept_ns.saturating_add(age_max_ns) <= now_ns) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((_, nonce)) = self.order.pop_front() else { return };
        let cells = self.answers.remove(&nonce).expect("what is in the order is kept");
        self.bytes -= bytes_of(&cells);
    }
}

fn bytes_of(cells: &[Cell]) -> usize {
    OVERHEAD_BYTES + cells.iter().map(|cell| cell.bytes().len() + OVERHEAD_BYTES).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use halcyon_env::ManualClock;

    use super::*;

    fn nonce(nonce: u64) -> Nonce {
        Nonce { group: 1, nonce }
    }

    fn cell(len: usize) -> Cell {
        Cell::put(b"r", b"f", b"q", 1, &vec![7; len])
    }

    #[test]
    fn answers_are_kept_for_two_minutes_and_within_their_bytes() {
        let clock = Arc::new(ManualClock::at(0));
        let kept = KeptAnswers::new(clock.clone());
        kept.keep(nonce(0), &[cell(1)]);
        kept.keep(nonce(1), &[cell(1)]);
        kept.keep(nonce(1), &[cell(2), cell(3)]);
        kept.keep(nonce(2), &[]);
        let lens = |of| {
            let cells: Option<Vec<Cell>> = kept.of(nonce(of));
            cells.map(|cells| cells.iter().map(|cell| cell.value().len()).collect::<Vec<_>>())
        };
        assert_eq!([0, 1, 2, 3].map(lens), [None, Some(vec![2, 3]), Some(vec![]), None]);
        clock.advance(Duration::from_secs(119));
        kept.keep(nonce(3), &[cell(4)]);
        clock.advance(Duration::from_secs(1));
        assert_eq!([1, 2, 3].map(lens), [None, None, Some(vec![4])]);
        (10..20).for_each(|of| kept.keep(nonce(of), &[cell(1 << 20)]));
        assert_eq!([3, 10, 16].map(lens), [None, None, None]);
        assert!((17..20).all(|of| lens(of).is_some()), "the newest stay");
        kept.keep(nonce(30), &[cell(BYTES_MAX)]);
        assert_eq!((lens(30), kept.state.lock().bytes), (None, 0));
    }
}
