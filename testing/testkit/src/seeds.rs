//! How many seeds a test runs, and the command that repeats one.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The first seed, or the only one if [`SEEDS`] is not set.
const SEED: &str = "HALCYON_SEED";
/// How many seeds each test runs.
const SEEDS: &str = "HALCYON_SEEDS";

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn chosen(default: Range<u64>, first: Option<u64>, count: Option<u64>) -> Range<u64> {
    match (first, count) {
        (None, None) => default,
        (Some(first), None) => first..first + 1,
        (first, Some(count)) => {
            let first = first.unwrap_or(default.start);
            first..first + count
        }
    }
}

/// The seeds that a test runs: `default`, unless the variables `HALCYON_SEED` and `HALCYON_SEEDS` say otherwise.
pub fn seeds(default: Range<u64>) -> Range<u64> {
    chosen(default, number(SEED), number(SEEDS))
}

/// Whether the variables leave so few seeds that a test cannot expect something of all of them together.
pub fn is_part(default: Range<u64>) -> bool {
    let wanted = default.end - default.start;
    let seeds = seeds(default);
    seeds.end - seeds.start < wanted
}

/// Runs a test once for each of its [`seeds`]. A failure prints the seed and the command that repeats it; `test` are the
/// arguments of `cargo test` that choose this test. At the end prints how many seeds there were, for `cargo xtask seeds`.
pub fn for_each_seed(test: &str, default: Range<u64>, mut run: impl FnMut(u64)) {
    let seeds = seeds(default);
    for seed in seeds.clone() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("seed {seed} fails\nrepeat: {SEED}={seed} cargo test {test}");
            resume_unwind(panic);
        }
    }
    println!("{} seeds from {}: cargo test {test}", seeds.end - seeds.start, seeds.start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_choose_seeds() {
        assert_eq!(chosen(3..13, None, None), 3..13);
        assert_eq!(chosen(3..13, Some(70), None), 70..71);
        assert_eq!(chosen(3..13, None, Some(500)), 3..503);
        assert_eq!(chosen(3..13, Some(70), Some(500)), 70..570);
    }
}
