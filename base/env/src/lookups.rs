//! How often one thread looks for blocks in memory while it does one piece of work.
//!
//! A thread that does not count pays one comparison for each lookup.

use std::cell::Cell;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
    static LOOKUPS: Cell<Lookups> = const { Cell::new(Lookups { hits: 0, misses: 0 }) };
}

/// Lookups of blocks in the cache, by one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    pub hits: u64,
    pub misses: u64,
}

impl Lookups {
    /// Carries out `body` and counts the lookups of this thread in it. A count inside another one takes its part of it away.
    pub fn of<T>(body: impl FnOnce() -> T) -> (T, Lookups) {
        let counting = Counting { outer: COUNTS.replace(true) };
        LOOKUPS.take();
        let result = body();
        let lookups = LOOKUPS.take();
        drop(counting);
        (result, lookups)
    }

    /// This thread has looked for a block.
    #[inline]
    pub fn note(is_hit: bool) {
        if COUNTS.get() {
            Lookups::add(is_hit);
        }
    }

    #[cold]
    fn add(is_hit: bool) {
        let Lookups { hits, misses } = LOOKUPS.get();
        LOOKUPS.set(Lookups { hits: hits + u64::from(is_hit), misses: misses + u64::from(!is_hit) });
    }

    /// Adds what another count has found.
    pub fn merge(&mut self, other: Lookups) {
        self.hits += other.hits;
        self.misses += other.misses;
    }
}

/// Ends the count, also when the work fails by an assertion.
struct Counting {
    outer: bool,
}

impl Drop for Counting {
    fn drop(&mut self) {
        COUNTS.set(self.outer);
        LOOKUPS.take();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_thread_counts_only_while_it_is_asked_to() {
        Lookups::note(true);
        let ((), lookups) = Lookups::of(|| {
            [true, false, true].into_iter().for_each(Lookups::note);
            crate::spawn_thread("other", || Lookups::note(true))
                .expect("there are threads")
                .join()
                .expect("it ends");
        });
        Lookups::note(false);
        assert_eq!(lookups, Lookups { hits: 2, misses: 1 });
        let failed = catch_unwind(|| {
            Lookups::of(|| {
                Lookups::note(true);
                panic!("as asked")
            })
        });
        assert!(failed.is_err() && !COUNTS.get());
        assert_eq!(Lookups::of(|| ()).1, Lookups::default());
        let mut sum = lookups;
        sum.merge(lookups);
        assert_eq!(sum, Lookups { hits: 4, misses: 2 });
    }
}
