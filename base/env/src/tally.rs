//! What one thread waits for while it does one piece of work, by cause.
//!
//! [`Stalls`](crate::Stalls) knows long waits of all threads. A [`Tally`] knows all measured waits, short ones too, of the
//! thread that counts. A thread that does not count pays one comparison for each wait.

use std::cell::{Cell, RefCell};
use std::time::Duration;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static TALLY: RefCell<Tally> = const { RefCell::new(Tally(Vec::new())) };
}

/// Waits of one thread, by cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(Vec<Waited>);

/// All waits of one cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited {
    pub cause: &'static str,
    pub count: u64,
    pub time: Duration,
}

impl Tally {
    /// Carries out `body` and counts what this thread waits for in it. A count inside another one is a part of that one
    /// and comes back empty.
    pub fn of<T>(body: impl FnOnce() -> T) -> (T, Tally) {
        if COUNTS.replace(true) {
            return (body(), Tally::default());
        }
        let counting = Counting;
        let result = body();
        let tally = TALLY.take();
        drop(counting);
        (result, tally)
    }

    pub fn waits(&self) -> &[Waited] {
        &self.0
    }

    /// Adds what another count has found.
    pub fn merge(&mut self, other: &Tally) {
        other.0.iter().for_each(|waited| self.add(waited.cause, waited.count, waited.time));
    }

    fn add(&mut self, cause: &'static str, count: u64, time: Duration) {
        match self.0.iter_mut().find(|waited| waited.cause == cause) {
            Some(waited) => {
                waited.count += count;
                waited.time += time;
            }
            None => self.0.push(Waited { cause, count, time }),
        }
    }
}

/// Ends the count, also when the work fails by an assertion.
struct Counting;

impl Drop for Counting {
    fn drop(&mut self) {
        COUNTS.set(false);
        TALLY.take();
    }
}

/// Whether this thread counts.
#[inline]
pub(crate) fn is_counting() -> bool {
    COUNTS.get()
}

/// This thread has waited.
#[inline]
pub(crate) fn note(cause: &'static str, time_ns: u64) {
    if is_counting() {
        TALLY.with_borrow_mut(|tally| tally.add(cause, 1, Duration::from_nanos(time_ns)));
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_thread_counts_only_while_it_is_asked_to() {
        note("read", 5);
        let ((), tally) = Tally::of(|| {
            note("read", 10);
            note("sync", 1);
            let ((), inner) = Tally::of(|| note("read", 20));
            assert_eq!(inner, Tally::default());
            let other = crate::spawn_thread("other", || note("read", 1000)).expect("there are threads");
            other.join().expect("it ends");
        });
        note("read", 5);
        let read = Waited { cause: "read", count: 2, time: Duration::from_nanos(30) };
        let sync = Waited { cause: "sync", count: 1, time: Duration::from_nanos(1) };
        assert_eq!(tally.waits(), [read, sync]);
        let mut twice = tally.clone();
        twice.merge(&tally);
        assert_eq!((twice.waits()[0].count, twice.waits()[0].time), (4, Duration::from_nanos(60)));
        let failed = catch_unwind(|| {
            Tally::of(|| {
                note("read", 7);
                panic!("as asked")
            })
        });
        assert!(failed.is_err() && !is_counting());
        assert_eq!(Tally::of(|| ()).1, Tally::default(), "the waits of a failed work are forgotten");
    }
}
