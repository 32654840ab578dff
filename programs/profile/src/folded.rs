//! Stacks as names, with a number each.

use std::collections::BTreeMap;
use std::fmt;

/// Numbers of stacks. A stack is a list of names, the outermost first. Prints in the form that other flame graph tools
/// read: `outer;inner number`, a line for each stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded(BTreeMap<Vec<String>, u64>);

impl Folded {
    /// Adds to what the stack has already.
    pub fn add(&mut self, stack: Vec<String>, weight: u64) {
        *self.0.entry(stack).or_default() += weight;
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// In the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&[String], u64)> {
        self.0.iter().map(|(stack, weight)| (&stack[..], *weight))
    }
}

impl fmt::Display for Folded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (stack, weight) in self.iter() {
            for (at, name) in stack.iter().enumerate() {
                let separator = if at == 0 { "" } else { ";" };
                // a name is one field of one line
                let name = name.replace([';', '\n', '\r'], ",");
                write!(f, "{separator}{name}")?;
            }
            writeln!(f, " {weight}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_one_line_and_names_cannot_break_it() {
        let mut folded = Folded::default();
        let stack = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        folded.add(stack(&["main", "b"]), 2);
        folded.add(stack(&["main", "a;\nb"]), 1);
        folded.add(stack(&["main", "b"]), 3);
        assert_eq!(folded.to_string(), "main;a,,b 1\nmain;b 5\n");
        assert_eq!(folded.total(), 6);
    }
}
