//! Increments upon few rows.
//!
//! What an increment returns is checked against what all clients know: at least the increments that were acknowledged before
//! it began, and itself, and at most those that have begun. At the end the same must hold for what each row says.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use halcyon_client::{ClientError, Get, Increment, Table};

use crate::random::Random;
use crate::run::{Client, Done, Outcome, Recorder, Step, run};
use crate::shape::value::{row_key, splits};
use crate::shape::{FAMILY, NOT_FOUND, QUALIFIER, Setup, WRONG_VALUE, add_check};

pub(super) const KINDS: &[&str] = &["INCREMENT"];

/// What is known of one row.
#[derive(Default)]
struct Counter {
    begun: AtomicI64,
    acknowledged: AtomicI64,
}

impl Counter {
    /// Begins an increment: what must be in it at least when it is answered.
    fn begin(&self) -> i64 {
        let before = self.acknowledged.load(Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        before + 1
    }

    fn is_right(&self, least: i64, found: i64) -> bool {
        (least..=self.begun.load(Ordering::SeqCst)).contains(&found)
    }

    fn acknowledge(&self) {
        self.acknowledged.fetch_add(1, Ordering::SeqCst);
    }

    /// After the last operation: those that were never answered may be in it or not.
    fn is_right_at_end(&self, found: i64) -> bool {
        self.is_right(self.acknowledged.load(Ordering::SeqCst), found)
    }
}

pub(super) async fn run_shape(setup: &Setup<'_>) -> Result<Outcome, ClientError> {
    setup.make_table(splits(setup.regions)).await?;
    let counters: Arc<Vec<Counter>> = Arc::new((0..setup.rows).map(|_| Counter::default()).collect());
    let plan = setup.plan();
    let clients = (0..setup.args.clients).map(|number| {
        let recorder = plan.recorder();
        let client = CounterClient {
            table: setup.table(number),
            counters: Arc::clone(&counters),
            random: Random::fork(setup.seed, number as u64),
            recorder: Arc::clone(&recorder),
        };
        (client, recorder)
    });
    let mut outcome = run(&plan, clients.collect()).await;
    let wrong = wrong_counters(setup, &counters).await;
    add_check(&mut outcome, WRONG_VALUE, wrong);
    Ok(outcome)
}

async fn wrong_counters(setup: &Setup<'_>, counters: &[Counter]) -> Result<u64, ClientError> {
    let table = setup.table(0);
    let mut wrong = 0;
    for (number, counter) in counters.iter().enumerate() {
        let row = table.get(Get::new(row_key(number as u64))).await?;
        // a row that nobody has incremented is not there
        let found = row.counter(FAMILY, QUALIFIER).unwrap_or(0);
        wrong += u64::from(!counter.is_right_at_end(found));
    }
    Ok(wrong)
}

struct CounterClient {
    table: Table,
    counters: Arc<Vec<Counter>>,
    random: Random,
    recorder: Arc<Recorder>,
}

impl Client for CounterClient {
    async fn step(&mut self) -> Result<Step, ClientError> {
        let number = self.random.below(self.counters.len() as u64);
        let counter = &self.counters[number as usize];
        let least = counter.begin();
        let increment = Increment::new(row_key(number)).column(FAMILY, QUALIFIER, 1);
        let row = self.table.increment(increment).await?;
        match row.counter(FAMILY, QUALIFIER) {
            Some(found) if counter.is_right(least, found) => {}
            Some(_) => self.recorder.error(WRONG_VALUE),
            None => self.recorder.error(NOT_FOUND),
        }
        counter.acknowledge();
        Ok(Step::Done(Done { operations: 1, kind: Some(0) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_and_a_doubled_increment_are_noticed() {
        let counter = Counter::default();
        let first = counter.begin();
        assert!(counter.is_right(first, 1) && !counter.is_right(first, 0) && !counter.is_right(first, 2));
        counter.acknowledge();
        // two at once may see each other or not
        let (second, third) = (counter.begin(), counter.begin());
        assert!(counter.is_right(second, 2) && counter.is_right(third, 2) && counter.is_right(third, 3));
        assert!(!counter.is_right(second, 1), "the first one is lost");
        assert!(!counter.is_right(second, 4), "one was applied twice");
        counter.acknowledge();
        // the third one was never answered
        assert!(counter.is_right_at_end(2) && counter.is_right_at_end(3));
        assert!(!counter.is_right_at_end(1) && !counter.is_right_at_end(4));
    }
}
