//! Assertions that are too expensive for production.
//!
//! An `assert!` is always on: it costs one comparison, or runs rarely. [`invariant!`](crate::invariant) costs more: it walks
//! a list, copies a key, or runs for each cell. It is compiled in under the feature `invariants` of this crate. Each storage
//! crate has a feature of the same name that enables this one. Tests enable it through their dev-dependencies; a server is
//! built with `--features invariants`. Without the feature the program contains neither the condition nor the state of a
//! [`Witness`].

/// Whether invariants are checked in this build.
pub const INVARIANTS: bool = cfg!(feature = "invariants");

/// Asserts an invariant: `invariant!(a <= b, "why it must hold: {a}")`. Without the feature `invariants` the condition is
/// type-checked and never run.
#[macro_export]
macro_rules! invariant {
    ($condition:expr, $($why:tt)+) => {
        if $crate::INVARIANTS {
            assert!($condition, $($why)+);
        }
    };
}

/// State that only invariants use, such as the previous key. Zero-sized without the feature `invariants`.
#[derive(Debug, Default)]
pub struct Witness<T> {
    #[cfg(feature = "invariants")]
    seen: T,
    #[cfg(not(feature = "invariants"))]
    seen: std::marker::PhantomData<T>,
}

impl<T> Witness<T> {
    /// Runs `check` on the state. Does nothing without the feature `invariants`.
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

    /// Holds with the feature and without it: other crates' tests may enable it.
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
