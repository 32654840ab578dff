//! Equal stacks, counted.

use std::collections::HashMap;

use crate::folded::Folded;
use crate::symbols::Symbols;

/// Different stacks that are kept. Samples of further ones are lost and counted.
const STACKS_MAX: usize = 50_000;

/// One stack: the thread's name, and code addresses, the innermost first. Each lies within the instruction that ran or
/// called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stack {
    pub(crate) thread: String,
    pub(crate) addresses: Box<[u64]>,
}

#[derive(Debug, Default)]
pub(crate) struct Stacks {
    weights: HashMap<Stack, u64>,
    pub(crate) samples_count: u64,
    pub(crate) lost_count: u64,
}

impl Stacks {
    pub(crate) fn add(&mut self, stack: Stack, weight: u64) {
        if self.weights.len() >= STACKS_MAX && !self.weights.contains_key(&stack) {
            self.lost_count += 1;
            return;
        }
        self.samples_count += 1;
        *self.weights.entry(stack).or_default() += weight;
    }

    /// With names instead of addresses, up to the first frame that `ends` says. *Blocking*: reads the program's debug
    /// information, which can take seconds.
    pub(crate) fn fold(&self, symbols: &mut Symbols, ends: fn(&str) -> bool) -> Folded {
        let mut folded = Folded::default();
        for (stack, weight) in &self.weights {
            let mut frames = vec![stack.thread.clone()];
            for address in stack.addresses.iter().rev() {
                symbols.push_names(*address, &mut frames);
            }
            let len = frames.iter().position(|name| ends(name)).unwrap_or(frames.len());
            frames.truncate(len);
            folded.add(frames, *weight);
        }
        folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_stacks_are_kept_and_the_rest_is_counted() {
        let stack = |number: usize| Stack { thread: "t".into(), addresses: [number as u64].into() };
        let mut stacks = Stacks::default();
        (0..STACKS_MAX + 3).for_each(|number| stacks.add(stack(number), 2));
        stacks.add(stack(0), 5);
        assert_eq!((stacks.samples_count, stacks.lost_count), (STACKS_MAX as u64 + 1, 3));
        assert_eq!(stacks.weights[&stack(0)], 7);
    }
}
