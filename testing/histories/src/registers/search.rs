//! The search for an order: Wing and Gong's, with a cache of states, after Lowe's "just in time".
//!
//! It walks the calls and answers of one row in the order of time, and keeps all states in which the row can be
//! ([`State`]): the number, which of the pending operations have had their place, and which writes without an answer were
//! used. When an answer comes, each state in which its operation has not had its place yet is continued by all sequences of
//! pending operations that end with that operation. An operation is not placed earlier than an answer asks for it: this loses
//! no order, because the operations that are placed at an answer are those before the answered one in the order.
//! If no state is left, no order explains the answers so far.
//!
//! What keeps it small:
//!
//! - States are remembered (the cache), and at a quiet point, where nothing is pending, what is left is the number and the
//!   writes without an answer. So a history is cut there by itself.
//! - A read is placed as soon as the number fits: it changes nothing, so this is never wrong.
//! - Of two states that differ only in which writes without an answer were used, the one that used fewer of them can do
//!   all that the other can. The other is dropped.
//! - Equal increments without an answer are the same to all later answers: the earliest is used first.
//! - A write without an answer whose number no later answer could show is left out ([`useful`]). At each answer, one is only
//!   placed if its number leads to one that a pending operation asks for ([`Wanted`]). Other sequences end in states that used
//!   more writes for nothing.

use std::collections::{BTreeSet, HashMap, VecDeque};

use smallvec::SmallVec;

use crate::limits::{Budget, OutOfLimits};

/// Pending operations with an answer to come, of one row at one time.
const PENDING_MAX: usize = 128;

/// A row's number; `None` if it has none.
pub type Number = Option<i64>;

/// What an operation does to the number, and what it saw of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    Read(Number),
    /// A check that did not hold.
    Differs(Number),
    Write(Number),
    /// An absent number counts as 0.
    Add {
        amount: i64,
        result: Option<i64>,
    },
    /// A check that held. Without an answer: it has its place only where it holds.
    Swap {
        expected: Number,
        new: Number,
    },
}

impl Effect {
    /// It never changes the number.
    pub fn is_read(self) -> bool {
        matches!(self, Effect::Read(_) | Effect::Differs(_))
    }

    /// The number after it; `None` if it cannot be placed here.
    pub fn apply(self, number: Number) -> Option<Number> {
        match self {
            Effect::Read(seen) => (seen == number).then_some(number),
            Effect::Differs(expected) => (expected != number).then_some(number),
            Effect::Write(new) => Some(new),
            Effect::Add { amount, result } => {
                let sum = number.unwrap_or(0).wrapping_add(amount);
                result.is_none_or(|result| result == sum).then_some(Some(sum))
            }
            Effect::Swap { expected, new } => (expected == number).then_some(new),
        }
    }
}

/// An operation of one row. Its place is after `called` and before `ends`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub called: u64,
    /// `u64::MAX`: there was no answer, so it may be anywhere after its call, or nowhere.
    pub ends: u64,
    pub effect: Effect,
}

impl Step {
    pub fn is_optional(&self) -> bool {
        self.ends == u64::MAX
    }
}

/// Looks for an order of all steps, from a row without a number. `Some(n)`: there is none, and step `n` is the first whose
/// answer cannot be explained.
pub fn search(steps: &[Step], budget: &mut Budget) -> Result<Option<usize>, OutOfLimits> {
    Search::new(steps).run(budget)
}

/// Writes without an answer that were used, as bits. Equal sets have equal words: the last is not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Used(SmallVec<[u64; 2]>);

impl Used {
    fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn with(&self, at: usize) -> Used {
        let mut words = self.0.clone();
        if words.len() <= at / 64 {
            words.resize(at / 64 + 1, 0);
        }
        words[at / 64] |= 1 << (at % 64);
        Used(words)
    }

    fn is_within(&self, other: &Used) -> bool {
        self.0.len() <= other.0.len() && self.0.iter().zip(&other.0).all(|(one, two)| one & !two == 0)
    }
}

/// How the row can be.
#[derive(Clone, Debug)]
struct State {
    number: Number,
    /// Pending operations that have had their place, as bits by their slot.
    placed: u128,
    used: Used,
}

/// States of which none is as good as another one.
#[derive(Default)]
struct States {
    of: HashMap<(Number, u128), SmallVec<[Used; 1]>>,
    count: usize,
}

impl States {
    /// Whether the state is new; one that used more than a known one is not.
    fn insert(&mut self, state: &State) -> bool {
        let known = self.of.entry((state.number, state.placed)).or_default();
        if known.iter().any(|used| used.is_within(&state.used)) {
            return false;
        }
        let before = known.len();
        known.retain(|used| !state.used.is_within(used));
        known.push(state.used.clone());
        self.count += known.len();
        self.count -= before;
        true
    }

    fn into_list(self) -> Vec<State> {
        let all = self.of.into_iter().flat_map(|((number, placed), sets)| {
            sets.into_iter().map(move |used| State { number, placed, used })
        });
        all.collect()
    }
}

struct Search<'a> {
    steps: &'a [Step],
    /// The pending operation in each slot.
    slots: Vec<Option<usize>>,
    /// Writes without an answer that were called.
    optional: Vec<Effect>,
    /// For each of them the one before that does the same.
    twin: Vec<Option<usize>>,
    states: Vec<State>,
}

impl<'a> Search<'a> {
    fn new(steps: &'a [Step]) -> Search<'a> {
        let first = State { number: None, placed: 0, used: Used::default() };
        Search { steps, slots: vec![], optional: vec![], twin: vec![], states: vec![first] }
    }

    fn run(mut self, budget: &mut Budget) -> Result<Option<usize>, OutOfLimits> {
        let useful = useful(self.steps);
        // at one time calls come before answers: then the operations overlap
        let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * self.steps.len());
        for (at, step) in self.steps.iter().enumerate() {
            if step.is_optional() && !useful[at] {
                continue;
            }
            events.push((step.called, false, at));
            if !step.is_optional() {
                events.push((step.ends, true, at));
            }
        }
        events.sort_unstable();
        budget.look()?;
        for (_, is_answer, at) in events {
            match is_answer {
                false => self.call(at)?,
                true => {
                    self.answer(at, budget)?;
                    if self.states.is_empty() {
                        return Ok(Some(at));
                    }
                }
            }
        }
        Ok(None)
    }

    fn call(&mut self, at: usize) -> Result<(), OutOfLimits> {
        let step = &self.steps[at];
        if step.is_optional() {
            if !step.effect.is_read() {
                self.twin.push(self.optional.iter().rposition(|other| *other == step.effect));
                self.optional.push(step.effect);
            }
            return Ok(());
        }
        let slot = self.slots.iter().position(Option::is_none).unwrap_or(self.slots.len());
        if slot == PENDING_MAX {
            return Err(OutOfLimits(format!("more than {PENDING_MAX} operations at one time")));
        }
        if slot == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot] = Some(at);
        if step.effect.is_read() {
            for state in &mut self.states {
                if step.effect.apply(state.number).is_some() {
                    state.placed |= 1 << slot;
                }
            }
        }
        Ok(())
    }

    /// Only states remain in which the operation has had its place.
    fn answer(&mut self, at: usize, budget: &mut Budget) -> Result<(), OutOfLimits> {
        let slot = self.slots.iter().position(|pending| *pending == Some(at)).expect("it was called");
        let bit = 1u128 << slot;
        let (mut seen, mut done) = (States::default(), States::default());
        // those that used fewer of the writes without an answer come first
        let (mut queue, mut later) = (VecDeque::new(), VecDeque::new());
        let wanted = Wanted::new(self.steps, &self.slots, &self.optional);
        for state in std::mem::take(&mut self.states) {
            match state.placed & bit {
                0 if seen.insert(&state) => queue.push_back(state),
                0 => {}
                _ => drop(done.insert(&State { placed: state.placed & !bit, ..state })),
            }
        }
        loop {
            let Some(state) = queue.pop_front() else {
                if later.is_empty() {
                    break;
                }
                std::mem::swap(&mut queue, &mut later);
                continue;
            };
            budget.step(seen.count + done.count)?;
            let mut take = |next: State, queue: &mut VecDeque<State>| {
                if next.placed & bit != 0 {
                    done.insert(&State { placed: next.placed & !bit, ..next });
                } else if seen.insert(&next) {
                    queue.push_back(next);
                }
            };
            for (slot, pending) in self.slots.iter().enumerate() {
                let Some(pending) = pending else { continue };
                let effect = self.steps[*pending].effect;
                if effect.is_read() || state.placed >> slot & 1 == 1 {
                    continue;
                }
                if let Some(number) = effect.apply(state.number) {
                    let placed = self.with_reads(state.placed | 1 << slot, number);
                    take(State { number, placed, used: state.used.clone() }, &mut queue);
                }
            }
            let is_any = wanted.is_any(state.placed);
            for (at, effect) in self.optional.iter().enumerate() {
                if state.used.has(at) || self.twin[at].is_some_and(|twin| !state.used.has(twin)) {
                    continue;
                }
                let number = effect.apply(state.number).filter(|number| *number != state.number);
                if let Some(number) = number.filter(|number| is_any || wanted.leads(*number)) {
                    let placed = self.with_reads(state.placed, number);
                    take(State { number, placed, used: state.used.with(at) }, &mut later);
                }
            }
        }
        self.slots[slot] = None;
        self.states = done.into_list();
        Ok(())
    }

    /// Places the pending reads that fit.
    fn with_reads(&self, mut placed: u128, number: Number) -> u128 {
        for (slot, pending) in self.slots.iter().enumerate() {
            let Some(pending) = pending else { continue };
            let effect = self.steps[*pending].effect;
            if effect.is_read() && effect.apply(number).is_some() {
                placed |= 1 << slot;
            }
        }
        placed
    }
}

/// Numbers that pending operations ask for. Between a write without an answer and the next operation with an answer there are
/// only others without one. So the write matters if they lead from its number to one that is asked for.
struct Wanted {
    numbers: BTreeSet<i64>,
    is_absent: bool,
    /// What all increments without an answer add; `None` if one of them subtracts.
    sum: Option<i64>,
    /// An operation takes any number and passes it on.
    is_all: bool,
    /// Slots of checks that did not hold. One that is not placed yet asks for any other number.
    differing: u128,
}

impl Wanted {
    fn new(steps: &[Step], slots: &[Option<usize>], optional: &[Effect]) -> Wanted {
        let (numbers, is_absent, is_all, differing) = (BTreeSet::new(), false, false, 0);
        let mut wanted = Wanted { numbers, is_absent, sum: Some(0), is_all, differing };
        for (slot, pending) in slots.iter().enumerate() {
            match pending.map(|at| steps[at].effect) {
                Some(Effect::Read(number) | Effect::Swap { expected: number, .. }) => wanted.add(number),
                Some(Effect::Add { amount, result: Some(result) }) => {
                    let before = result.wrapping_sub(amount);
                    wanted.add(Some(before));
                    if before == 0 {
                        wanted.add(None);
                    }
                }
                Some(Effect::Add { result: None, .. }) => wanted.is_all = true,
                Some(Effect::Differs(_)) => wanted.differing |= 1 << slot,
                Some(Effect::Write(_)) | None => {}
            }
        }
        for effect in optional {
            if let Effect::Add { amount, .. } = effect {
                wanted.sum = wanted.sum.filter(|_| *amount >= 0).and_then(|sum| sum.checked_add(*amount));
            }
        }
        // what a check expects is wanted if its new number is
        let mut is_grown = true;
        while is_grown {
            is_grown = false;
            for effect in optional {
                if let Effect::Swap { expected, new } = *effect
                    && wanted.leads(new)
                    && !wanted.has(expected)
                {
                    wanted.add(expected);
                    is_grown = true;
                }
            }
        }
        wanted
    }

    fn add(&mut self, number: Number) {
        match number {
            Some(number) => drop(self.numbers.insert(number)),
            None => self.is_absent = true,
        }
    }

    fn has(&self, number: Number) -> bool {
        number.map_or(self.is_absent, |number| self.numbers.contains(&number))
    }

    fn is_any(&self, placed: u128) -> bool {
        self.is_all || self.differing & !placed != 0
    }

    /// Whether increments without an answer make one of the numbers of it, or it is one.
    fn leads(&self, number: Number) -> bool {
        let Some(sum) = self.sum else { return true };
        let from = number.unwrap_or(0);
        self.has(number) || self.numbers.range(from..=from.saturating_add(sum)).next().is_some()
    }
}

/// Which writes without an answer may matter. One whose number no other operation shows or expects is only a number that
/// differs from others. That matters to a check that did not hold; without one it can be left out.
fn useful(steps: &[Step]) -> Vec<bool> {
    let mut shown: BTreeSet<i64> = BTreeSet::new();
    // numbers that are shown may have been written less than this below
    let mut sum = Some(0i64);
    let (mut is_all, mut is_absent_shown) = (false, false);
    for step in steps {
        let mut show = |number: Number| match number {
            Some(number) => drop(shown.insert(number)),
            None => is_absent_shown = true,
        };
        match step.effect {
            Effect::Read(number) => show(number),
            Effect::Differs(_) => is_all = true,
            Effect::Swap { expected, .. } => show(expected),
            Effect::Add { amount, result } => {
                sum = sum.filter(|_| amount >= 0).and_then(|sum| sum.checked_add(amount));
                // what is added to nothing shows that there was nothing
                show(None);
                if result.is_some() {
                    show(result);
                }
            }
            Effect::Write(_) => {}
        }
    }
    let matters = |step: &Step| match (step.effect, sum) {
        (Effect::Write(Some(number)), Some(sum)) | (Effect::Swap { new: Some(number), .. }, Some(sum)) => {
            shown.range(number..=number.saturating_add(sum)).next().is_some()
        }
        (Effect::Write(None) | Effect::Swap { new: None, .. }, _) => is_absent_shown,
        _ => true,
    };
    steps.iter().map(|step| is_all || matters(step)).collect()
}
