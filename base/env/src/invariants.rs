//! Assertions that are too dear for a server that people use.
//!
//! An `assert!` stays on everywhere; it costs a comparison or happens seldom. [`invariant!`](crate::invariant) costs more
//! than that (it walks a list, copies a key, runs for each cell) and is compiled in under the feature `invariants` of this
//! crate. Every storage crate has a feature of the same name that turns this one on. Tests turn it on through their
//! dev-dependencies, a server built for the soak with `--features invariants`; a plain build leaves it off, and then
//! neither the condition nor what a [`Witness`] remembers exists in the program.

/// Whether invariants are checked in this build.
pub const INVARIANTS: bool = cfg!(feature = "invariants");

/// Asserts what must hold: `invariant!(a <= b, "why it must hold: {a}")`. Only with the feature `invariants`; otherwise the
/// condition is compiled but never run.
#[macro_export]
macro_rules! invariant {
    ($condition:expr, $($why:tt)+) => {
        if $crate::INVARIANTS {
            assert!($condition, $($why)+);
        }
    };
}

/// What only invariants look at, such as the key before this one. Has no size where they are not checked.
#[derive(Debug, Default)]
pub struct Witness<T> {
    #[cfg(feature = "invariants")]
    seen: T,
    #[cfg(not(feature = "invariants"))]
    seen: std::marker::PhantomData<T>,
}

impl<T> Witness<T> {
    /// Runs `check` on what is remembered, and does nothing where invariants are not checked.
    #[inline]
    pub fn check(&mut self, check: impl FnOnce(&mut T)) {
        #[cfg(feature = "invariants")]
        check(&mut self.seen);
        #[cfg(not(feature = "invariants"))]
        let _ = (check, self.seen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The feature of the workspace's tests decides, so both halves are written for whichever it is.
    #[test]
    fn conditions_run_only_under_the_feature() {
        let mut runs = 0;
        let mut holds = || {
            runs += 1;
            true
        };
        invariant!(holds(), "always");
        assert_eq!(runs, usize::from(INVARIANTS));
        let mut witness = Witness::<u64>::default();
        witness.check(|seen| *seen += 1);
        let mut seen_value = 0;
        witness.check(|seen| seen_value = *seen);
        assert_eq!(seen_value, u64::from(INVARIANTS));
        assert_eq!(size_of::<Witness<u64>>() > 0, INVARIANTS);
    }

    #[test]
    fn a_broken_one_says_why() {
        let (low, high) = std::hint::black_box((1, 2));
        let broken = std::panic::catch_unwind(|| invariant!(low > high, "{low} is less than {high}"));
        assert_eq!(broken.is_err(), INVARIANTS);
    }
}
