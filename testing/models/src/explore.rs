//! Exploration of one model, breadth first: every state that its actions lead to.

use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// How much is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// In a second, also without optimisation.
    Small,
    /// In a minute with it.
    Full,
}

/// A model with deliberate faults.
pub trait Protocol:
    Model<State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static, Action: Clone + Debug + PartialEq>
    + Send
    + Sync
    + 'static
{
    /// Each is found by the exploration.
    type Flaw: Copy + Debug + PartialEq + 'static;

    const NAME: &'static str;
    const FLAWS: &'static [Self::Flaw];

    /// One model for each bound.
    fn bounds(size: Size, flaw: Option<Self::Flaw>) -> Vec<Self>;

    /// What there is at most, for a person.
    fn bound(&self) -> String;
}

/// How a rule was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    pub rule: &'static str,
    /// The actions, from the first state on.
    pub steps: Vec<String>,
    /// Where they lead to.
    pub state: String,
}

/// What an exploration has found.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub bound: String,
    /// States that differ.
    pub states: usize,
    /// The most actions that the shortest way to a state needs, plus one.
    pub depth: usize,
    /// Without one, all states of the bound were looked at.
    pub broken: Option<Counterexample>,
    /// What has to be possible, and was in no state.
    pub missing: Vec<&'static str>,
}

/// A model of the list.
pub struct Entry {
    pub name: &'static str,
    pub flaws: Vec<String>,
    explore: fn(Size, Option<usize>) -> Outcome,
}

impl Entry {
    pub(crate) fn of<P: Protocol>() -> Entry {
        let flaws = P::FLAWS.iter().map(|flaw| format!("{flaw:?}")).collect();
        let explore = |size, flaw: Option<usize>| explore_all(P::bounds(size, flaw.map(|at| P::FLAWS[at])));
        Entry { name: P::NAME, flaws, explore }
    }

    /// `flaw` is a number in [`Entry::flaws`].
    pub fn explore(&self, size: Size, flaw: Option<usize>) -> Outcome {
        (self.explore)(size, flaw)
    }
}

/// One after the other, until a rule is broken.
fn explore_all<P: Protocol>(models: Vec<P>) -> Outcome {
    let mut outcomes = models.into_iter().map(explore);
    let mut all = outcomes.next().expect("a model has a bound");
    while all.broken.is_none()
        && let Some(next) = outcomes.next()
    {
        all.bound = format!("{}; {}", all.bound, next.bound);
        (all.states, all.depth) = (all.states + next.states, all.depth.max(next.depth));
        all.broken = next.broken;
        all.missing.retain(|name| next.missing.contains(name));
    }
    all
}

/// Ends at the first state that breaks a rule. One thread, so that each run finds the same.
fn explore<P: Protocol>(model: P) -> Outcome {
    let bound = model.bound();
    let checker = model.checker().threads(1).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut found = checker.discoveries();
    let (mut broken, mut missing) = (None, Vec::new());
    for property in checker.model().properties() {
        let path = found.remove(property.name);
        match (property.expectation, path) {
            (Expectation::Sometimes, None) => missing.push(property.name),
            (Expectation::Always, Some(path)) if broken.is_none() => {
                let steps = path.clone().into_actions().iter().map(|action| format!("{action:?}")).collect();
                let state = format!("{:?}", path.last_state());
                broken = Some(Counterexample { rule: property.name, steps, state });
            }
            _ => {}
        }
    }
    Outcome { bound, states: checker.unique_state_count(), depth: checker.max_depth(), broken, missing }
}
