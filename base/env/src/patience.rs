//! How much one thread may look at before it gives a piece of work up.
//!
//! Work on an event loop has a budget: what needs more is done again where blocking is allowed. Work for which a client waits asks from
//! time to time whether it still does. Whoever reads tells how much it has looked at; a *look* is about a cell that is compared.
//!
//! A thread without a budget pays a subtraction for each call of [`Patience::spend`].

use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Looks between two questions whether the work is still wanted: some ten milliseconds.
const LOOKS_BETWEEN_QUESTIONS: i64 = 1 << 16;
const ENDLESS: i64 = i64::MAX;

/// Whether the work is wanted still.
pub type IsWanted = Arc<dyn Fn() -> bool + Send + Sync>;

thread_local! {
    static LEFT: Cell<i64> = const { Cell::new(ENDLESS) };
    static IS_WANTED: RefCell<Option<IsWanted>> = const { RefCell::new(None) };
}

/// Why a piece of work is to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impatience {
    /// Its budget is used up.
    Spent,
    /// Nobody wants it any more.
    Unwanted,
}

/// See the head of the file.
pub struct Patience;

impl Patience {
    /// Carries out `work`, which may look at so much.
    pub fn of_looks<T>(looks: u32, work: impl FnOnce() -> T) -> T {
        let _outer = Outer::replaced_by(i64::from(looks), None);
        work()
    }

    /// Carries out `work` as long as `is_wanted` says so.
    pub fn while_wanted<T>(is_wanted: IsWanted, work: impl FnOnce() -> T) -> T {
        let _outer = Outer::replaced_by(LOOKS_BETWEEN_QUESTIONS, Some(is_wanted));
        work()
    }

    /// This thread has looked, or is about to look, at so much.
    #[inline]
    pub fn spend(looks: u32) -> Result<(), Impatience> {
        let left = LEFT.get() - i64::from(looks);
        LEFT.set(left);
        if left >= 0 { Ok(()) } else { Patience::ask() }
    }

    #[cold]
    fn ask() -> Result<(), Impatience> {
        let is_wanted = IS_WANTED.with_borrow(Clone::clone);
        match is_wanted {
            None => Err(Impatience::Spent),
            Some(is_wanted) if is_wanted() => {
                LEFT.set(LOOKS_BETWEEN_QUESTIONS);
                Ok(())
            }
            Some(_) => Err(Impatience::Unwanted),
        }
    }
}

/// What counted before, and counts again afterwards, also when the work fails by an assertion.
struct Outer {
    left: i64,
    is_wanted: Option<IsWanted>,
}

impl Outer {
    fn replaced_by(left: i64, is_wanted: Option<IsWanted>) -> Outer {
        Outer { left: LEFT.replace(left), is_wanted: IS_WANTED.replace(is_wanted) }
    }
}

impl Drop for Outer {
    fn drop(&mut self) {
        // Work that has no end uses nothing up.
        LEFT.set(self.left);
        IS_WANTED.replace(self.is_wanted.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_budget_ends() {
        assert_eq!(Patience::spend(u32::MAX), Ok(()));
        Patience::of_looks(10, || {
            assert_eq!(Patience::spend(10), Ok(()));
            Patience::of_looks(5, || assert_eq!(Patience::spend(6), Err(Impatience::Spent)));
            assert_eq!(Patience::spend(1), Err(Impatience::Spent));
            assert_eq!(Patience::spend(1), Err(Impatience::Spent), "and stays used up");
        });
        assert_eq!(Patience::spend(u32::MAX), Ok(()));
    }

    #[test]
    fn work_goes_on_as_long_as_it_is_wanted() {
        let wanted = Arc::new(AtomicBool::new(true));
        let asked = wanted.clone();
        Patience::while_wanted(Arc::new(move || asked.load(Ordering::Relaxed)), || {
            (0..1_000).for_each(|_| assert_eq!(Patience::spend(10_000), Ok(())));
            wanted.store(false, Ordering::Relaxed);
            assert!((0..1_000).any(|_| Patience::spend(10_000) == Err(Impatience::Unwanted)));
        });
        assert_eq!(Patience::spend(1), Ok(()));
    }
}
