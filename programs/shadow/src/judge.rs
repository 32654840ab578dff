//! Compares what two sides answered, and follows a difference until it has settled.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::ask::{Asked, System};
use crate::compare::{Fate, READINGS_FACTOR, Settling, compare};
use crate::read::Read;
use crate::tally::Tally;

/// Differences that are followed at a time; more wait for their turn. Each costs both clusters a read in each pause.
const FOLLOWED_MAX: usize = 256;

/// How a difference is followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Time before each new reading.
    pub(crate) pause: Duration,
    /// Readings after the first one that shows a row.
    pub(crate) readings: u32,
}

/// Judges reads of two sides.
///
/// # Thread safety
/// Shared by the tasks that ask. The tally's lock is held to add numbers.
pub(crate) struct Judge {
    /// Side a, if it is a cluster and not a recording.
    a: Option<System>,
    b: System,
    patience: Patience,
    /// Values of side a are checksums.
    hashed: bool,
    pub(crate) tally: Mutex<Tally>,
    following: tokio::sync::Semaphore,
}

impl Judge {
    pub(crate) fn new(a: Option<System>, b: System, patience: Patience, hashed: bool) -> Arc<Judge> {
        let following = tokio::sync::Semaphore::new(FOLLOWED_MAX);
        Arc::new(Judge { a, b, patience, hashed, tally: Mutex::default(), following })
    }

    /// Counts a read with both its answers, and reads again what differs.
    pub(crate) async fn judge(&self, read: &Read, a: Asked, b: Asked, slot: usize) {
        let b = self.like_a(b);
        let first = compare(read, &a.answer, &b.answer);
        let fate = match first.is_empty() {
            true => None,
            false => Some(self.follow(read, &a, &first, slot).await),
        };
        let took = [&a, &b].map(|side| side.answer.is_ok().then_some(side.took));
        let cells = a.answer.as_ref().map_or(0, |answer| answer.cells_count());
        let errors = [&a, &b].map(|side| side.answer.as_ref().err().map(String::as_str));
        self.tally.lock().add(read, took, cells, errors, fate.map(|fate| (&first, fate)));
    }

    fn like_a(&self, b: Asked) -> Asked {
        match self.hashed {
            true => Asked { answer: b.answer.map(|answer| answer.with_hashed_values()), took: b.took },
            false => b,
        }
    }

    async fn follow(
        &self,
        read: &Read,
        recorded: &Asked,
        first: &crate::compare::Differences,
        slot: usize,
    ) -> Fate {
        let Ok(_place) = self.following.acquire().await else { return Fate::Stays };
        if self.patience.readings == 0 {
            return Fate::Stays;
        }
        let mut settling = Settling::new(first, self.patience.readings);
        loop {
            tokio::time::sleep(self.patience.pause).await;
            let ask_a = async {
                match &self.a {
                    Some(a) => a.ask(read, slot).await,
                    None => recorded.clone(),
                }
            };
            let (a, b) = tokio::join!(ask_a, self.b.ask(read, slot));
            let b = self.like_a(b);
            if settling.add(&compare(read, &a.answer, &b.answer)) {
                break;
            }
        }
        settling.fate()
    }

    /// Asks both sides at the same time, and judges.
    pub(crate) async fn ask_both(&self, read: &Read, slot: usize, recorded: Option<Asked>) {
        let ask_a = async {
            match (&self.a, recorded) {
                (Some(a), _) => Some(a.ask(read, slot).await),
                (None, recorded) => recorded,
            }
        };
        let (a, b) = tokio::join!(ask_a, self.b.ask(read, slot));
        if let Some(a) = a {
            self.judge(read, a, b, slot).await;
        }
    }

    /// Asks side b alone: side a has answered its client.
    pub(crate) async fn ask_b(&self, read: &Read, slot: usize) -> Asked {
        self.b.ask(read, slot).await
    }
}

impl Patience {
    /// The longest time between a difference and its judgement, without the reads themselves.
    pub(crate) fn whole(self) -> Duration {
        self.pause * (self.readings * READINGS_FACTOR)
    }
}
