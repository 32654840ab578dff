//! Compare-and-set: a client replaces the version it knows by the next one, if nobody was faster.
//!
//! A row holds its version. Who wins has made the next one, and nobody else may win with the same; so at the end the version
//! of each row is the number of wins. Who loses reads, and must find a later version than the one it knew.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_client::{Action, CheckAndMutate, ClientError, Get, Put, Row, Table};

use crate::random::Random;
use crate::run::{Client, Done, Outcome, Recorder, Step, run};
use crate::shape::value::{row_key, splits};
use crate::shape::{FAMILY, NOT_FOUND, QUALIFIER, Setup, WRONG_VALUE, add_check};

pub(super) const KINDS: &[&str] = &["CAS", "CAS-LOST"];
const WON: usize = 0;
const LOST: usize = 1;

/// What is known of one row.
#[derive(Default)]
struct Wins {
    won: AtomicU64,
    /// Attempts without an answer.
    under_way: AtomicU64,
}

impl Wins {
    fn is_right_at_end(&self, version: u64) -> bool {
        let won = self.won.load(Ordering::SeqCst);
        (won..=won + self.under_way.load(Ordering::SeqCst)).contains(&version)
    }
}

pub(super) async fn run_shape(setup: &Setup<'_>) -> Result<Outcome, ClientError> {
    setup.make_table(splits(setup.regions)).await?;
    let puts: Vec<Action> = (0..setup.rows).map(|number| put(number, 0).into()).collect();
    for puts in puts.chunks(1_000) {
        setup.table(0).batch_all(puts).await?;
    }
    let wins: Arc<Vec<Wins>> = Arc::new((0..setup.rows).map(|_| Wins::default()).collect());
    let plan = setup.plan();
    let clients = (0..setup.args.clients).map(|number| {
        let recorder = plan.recorder();
        let client = CasClient {
            table: setup.table(number),
            known: vec![0; setup.rows as usize],
            wins: Arc::clone(&wins),
            random: Random::fork(setup.seed, number as u64),
            recorder: Arc::clone(&recorder),
        };
        (client, recorder)
    });
    let mut outcome = run(&plan, clients.collect()).await;
    let wrong = wrong_rows(setup, &wins).await;
    add_check(&mut outcome, WRONG_VALUE, wrong);
    Ok(outcome)
}

async fn wrong_rows(setup: &Setup<'_>, wins: &[Wins]) -> Result<u64, ClientError> {
    let mut wrong = 0;
    for (number, wins) in wins.iter().enumerate() {
        let row = setup.table(0).get(Get::new(row_key(number as u64))).await?;
        wrong += u64::from(!version(&row).is_some_and(|version| wins.is_right_at_end(version)));
    }
    Ok(wrong)
}

fn put(number: u64, version: u64) -> Put {
    Put::new(row_key(number)).column(FAMILY, QUALIFIER, version.to_be_bytes())
}

fn version(row: &Row) -> Option<u64> {
    row.value(FAMILY, QUALIFIER)?.try_into().ok().map(u64::from_be_bytes)
}

struct CasClient {
    table: Table,
    /// The version of each row that this client knows.
    known: Vec<u64>,
    wins: Arc<Vec<Wins>>,
    random: Random,
    recorder: Arc<Recorder>,
}

impl Client for CasClient {
    async fn step(&mut self) -> Result<Step, ClientError> {
        let number = self.random.below(self.wins.len() as u64);
        let (wins, known) = (&self.wins[number as usize], &mut self.known[number as usize]);
        let check = CheckAndMutate::row(row_key(number)).if_equals(FAMILY, QUALIFIER, known.to_be_bytes());
        wins.under_way.fetch_add(1, Ordering::SeqCst);
        let has_won = self.table.check_and_mutate(&check.then(put(number, *known + 1))).await?.processed;
        wins.won.fetch_add(u64::from(has_won), Ordering::SeqCst);
        wins.under_way.fetch_sub(1, Ordering::SeqCst);
        if has_won {
            *known += 1;
            return Ok(Step::Done(Done { operations: 1, kind: Some(WON) }));
        }
        match version(&self.table.get(Get::new(row_key(number))).await?) {
            Some(found) if found > *known => *known = found,
            Some(_) => self.recorder.error(WRONG_VALUE),
            None => self.recorder.error(NOT_FOUND),
        }
        Ok(Step::Done(Done { operations: 1, kind: Some(LOST) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_who_win_with_one_version_are_noticed() {
        let wins = Wins::default();
        wins.won.store(5, Ordering::SeqCst);
        assert!(wins.is_right_at_end(5));
        assert!(!wins.is_right_at_end(4), "two have won with the same version, or a put is lost");
        assert!(!wins.is_right_at_end(6), "somebody has won who was told otherwise");
        wins.under_way.store(1, Ordering::SeqCst);
        assert!(wins.is_right_at_end(6) && !wins.is_right_at_end(7));
    }
}
