//! The checkers agree with one that tries every order, on thousands of small histories with random answers.

use std::collections::BTreeSet;
use std::time::Duration;

use halcyon_histories::limits::{Budget, Limits};
use halcyon_histories::registers::evidence::smallest;
use halcyon_histories::registers::search::{Effect, Number, Step, search};
use halcyon_histories::{Action, Found, History, Kind, Operation, Outcome, Verdict, lists, versions};
use halcyon_testkit::Random;
use halcyon_testkit::{for_each_seed, is_part};

const SEEDS: std::ops::Range<u64> = 0..20_000;

/// Tries every order: some operation that is not behind another's end is next. `apply` is the store.
fn has_order<S, O>(
    state: &S,
    operations: &[O],
    left: &[usize],
    times: &dyn Fn(&O) -> (u64, u64),
    apply: &dyn Fn(&S, &O) -> Option<S>,
) -> bool {
    let is_needed = |at: &&usize| times(&operations[**at]).1 != u64::MAX;
    if left.iter().filter(is_needed).count() == 0 {
        return true;
    }
    left.iter().any(|&next| {
        let called = times(&operations[next]).0;
        let is_first = left.iter().all(|&other| times(&operations[other]).1 >= called);
        let rest: Vec<usize> = left.iter().copied().filter(|&other| other != next).collect();
        is_first
            && apply(state, &operations[next])
                .is_some_and(|after| has_order(&after, operations, &rest, times, apply))
    })
}

fn is_linearizable(steps: &[Step]) -> bool {
    let all: Vec<usize> = (0..steps.len()).collect();
    has_order::<Number, Step>(&None, steps, &all, &|step| (step.called, step.ends), &|number, step| {
        // an operation that cannot be placed here, and has no answer, may be left out
        step.effect.apply(*number)
    })
}

fn budget() -> Budget {
    Budget::new(Duration::from_secs(60), 1_000_000)
}

/// Numbers are few, so that about half of the histories have an order.
fn random_steps(dice: &mut Random) -> Vec<Step> {
    let count = dice.between(1, 7);
    let number = |dice: &mut Random| if dice.one_in(5) { None } else { Some(dice.between(1, 4) as i64) };
    let steps = (0..count).map(|_| {
        let called = dice.below(12) as u64;
        let is_lost = dice.one_in(4);
        let ends = if is_lost { u64::MAX } else { called + dice.between(0, 6) as u64 };
        let effect = match dice.below(10) {
            0..3 => Effect::Write(number(dice)),
            3..6 if !is_lost => Effect::Read(number(dice)),
            6 if !is_lost => Effect::Differs(number(dice)),
            7 => {
                let result = (!is_lost && !dice.one_in(3)).then(|| dice.between(1, 5) as i64);
                Effect::Add { amount: dice.between(1, 2) as i64 - dice.below(2) as i64, result }
            }
            _ => Effect::Swap { expected: number(dice), new: number(dice) },
        };
        Step { called, ends, effect }
    });
    steps.collect()
}

#[test]
fn the_search_agrees_with_trying_every_order() {
    let mut linearizable = 0;
    for_each_seed("-p halcyon-histories --test brute_force the_search_agrees", SEEDS, |seed| {
        let steps = random_steps(&mut Random::new(seed));
        let found = search(&steps, &mut budget()).expect("small histories are within limits");
        let expected = is_linearizable(&steps);
        assert_eq!(found.is_none(), expected, "{steps:#?}");
        linearizable += u64::from(expected);
    });
    if !is_part(SEEDS) {
        assert!((4_000..16_000).contains(&linearizable), "{linearizable} of 20,000 are linearizable");
    }
}

/// The steps as the evidence sees them, at the time of the failing answer: those that are not kept say nothing, and writes
/// of them may be anywhere. What had no answer yet may happen or not.
fn relaxed(steps: &[Step], kept: &[usize], end: u64) -> Vec<Step> {
    let known = steps.iter().enumerate().filter(|(_, step)| step.called <= end);
    let all = known.map(|(at, step)| match (kept.contains(&at), step.effect) {
        (true, effect) => Step { ends: if step.ends <= end { step.ends } else { u64::MAX }, effect, ..*step },
        (false, Effect::Add { amount, .. }) => {
            Step { called: 0, ends: u64::MAX, effect: Effect::Add { amount, result: None } }
        }
        (false, effect) => Step { called: 0, ends: u64::MAX, effect },
    });
    all.collect()
}

#[test]
fn evidence_contradicts_itself_and_nothing_of_it_is_needless() {
    let range = 0..5_000;
    for_each_seed("-p halcyon-histories --test brute_force evidence_contradicts", range, |seed| {
        let steps = random_steps(&mut Random::new(seed));
        let Some(failing) = search(&steps, &mut budget()).expect("small histories are within limits") else {
            return;
        };
        let kept = smallest(&steps, failing, &Limits::default());
        let end = steps[failing].ends;
        assert!(!is_linearizable(&relaxed(&steps, &kept, end)), "{steps:#?}: {kept:?}");
        for needless in &kept {
            let others: Vec<usize> = kept.iter().copied().filter(|at| at != needless).collect();
            // those that were called later are shown for the reader
            if steps[*needless].called <= end {
                assert!(
                    is_linearizable(&relaxed(&steps, &others, end)),
                    "{steps:#?}: {kept:?} without {needless}"
                );
            }
        }
    });
}

fn random_lists(dice: &mut Random) -> History {
    let mut history = History::new(Kind::Lists);
    let count = dice.between(1, 6);
    let appends = dice.between(1, 3) as i64;
    for at in 0..count {
        let called_ns = dice.below(12) as u64;
        let answered_ns = called_ns + dice.between(0, 6) as u64;
        let id = at as i64 + 1;
        let action = if id <= appends { Action::Append(id) } else { Action::Get };
        // lists of few ids, mostly in an order that others may have as well
        let mut list: Vec<i64> = (1..=appends).collect();
        if dice.one_in(3) {
            let (one, other) = (dice.below(list.len()), dice.below(list.len()));
            list.swap(one, other);
        }
        list.truncate(dice.below(list.len() + 1));
        if let (Action::Append(id), false) = (action, dice.one_in(5)) {
            list.retain(|other| *other != id);
            list.push(id);
        }
        let outcome = match (action, dice.below(4)) {
            (Action::Append(_), 0) => Outcome::Unknown,
            (Action::Append(_), 1 | 2) => Outcome::Done(None),
            (_, _) if list.is_empty() => Outcome::Done(Some(Found::Absent)),
            (_, _) => Outcome::Done(Some(Found::List(list))),
        };
        let process = format!("p{at}").into();
        history.operations.push(Operation {
            process,
            row: "r".into(),
            action,
            called_ns,
            answered_ns,
            outcome,
            line: 0,
            source: 0,
        });
    }
    history
}

#[test]
fn lists_agree_with_trying_every_order() {
    let mut linearizable = 0;
    for_each_seed("-p halcyon-histories --test brute_force lists_agree", SEEDS, |seed| {
        let history = random_lists(&mut Random::new(seed));
        let all: Vec<usize> = (0..history.operations.len()).collect();
        let times = |one: &Operation| (one.called_ns, one.ends_ns());
        let apply = |list: &Vec<i64>, one: &Operation| {
            let mut after = list.clone();
            if let Action::Append(id) = one.action {
                after.push(id);
            }
            let is_seen = match &one.outcome {
                Outcome::Done(Some(Found::List(seen))) => *seen == after,
                Outcome::Done(Some(Found::Absent)) => after.is_empty(),
                _ => true,
            };
            is_seen.then_some(after)
        };
        let expected = has_order(&vec![], &history.operations, &all, &times, &apply);
        let report = lists::check(&history);
        assert_eq!(
            report.violations.is_empty(),
            expected,
            "{:#?} {:?}",
            history.operations,
            report.violations
        );
        linearizable += u64::from(expected);
    });
    if !is_part(SEEDS) {
        assert!((2_000..18_000).contains(&linearizable), "{linearizable} of 20,000 are linearizable");
    }
}

fn random_versions(dice: &mut Random) -> History {
    let mut history = History::new(Kind::Versions);
    let count = dice.between(1, 6);
    let puts = dice.between(1, 3) as i64;
    for at in 0..count {
        let called_ns = dice.below(12) as u64;
        let answered_ns = called_ns + dice.between(0, 6) as u64;
        let id = at as i64 + 1;
        let (from, width) = (dice.below(3) as i64, dice.between(1, 4) as i64);
        let action = match dice.below(4) {
            _ if id <= puts => Action::Put(id),
            0 => Action::DeleteVersion(dice.between(1, puts as usize) as i64),
            _ => Action::Range { from, to: from + width, is_scan: dice.one_in(2) },
        };
        let found: Vec<i64> = (from..from + width)
            .rev()
            .filter(|number| (1..=puts).contains(number) && !dice.one_in(3))
            .collect();
        let outcome = match (action, dice.below(4)) {
            (Action::Range { .. }, _) if found.is_empty() => Outcome::Done(Some(Found::Absent)),
            (Action::Range { .. }, _) => Outcome::Done(Some(Found::List(found))),
            (_, 0) => Outcome::Unknown,
            _ => Outcome::Done(None),
        };
        let (process, row) = (format!("p{at}").into(), "r".into());
        history.operations.push(Operation {
            process,
            row,
            action,
            called_ns,
            answered_ns,
            outcome,
            line: 0,
            source: 0,
        });
    }
    history
}

/// What the checker of versions calls violated has no order. It looks at one number after the other, so it may miss some.
#[test]
fn violated_versions_have_no_order() {
    let (mut linearizable, mut missed) = (0, 0);
    for_each_seed("-p halcyon-histories --test brute_force violated_versions", SEEDS, |seed| {
        let history = random_versions(&mut Random::new(seed));
        let all: Vec<usize> = (0..history.operations.len()).collect();
        let times = |one: &Operation| (one.called_ns, one.ends_ns());
        let apply = |numbers: &BTreeSet<i64>, one: &Operation| {
            let mut after = numbers.clone();
            match one.action {
                Action::Put(number) => drop(after.insert(number)),
                Action::DeleteVersion(number) => drop(after.remove(&number)),
                _ => {}
            }
            let Action::Range { from, to, .. } = one.action else { return Some(after) };
            let seen = match &one.outcome {
                Outcome::Done(Some(Found::List(seen))) => seen.clone(),
                _ => vec![],
            };
            numbers.range(from..to).rev().eq(&seen).then_some(after)
        };
        let expected = has_order(&BTreeSet::new(), &history.operations, &all, &times, &apply);
        let is_violated = versions::check(&history, &Limits::default()).verdict() == Verdict::Violated;
        assert!(!(expected && is_violated), "{:#?}", history.operations);
        linearizable += u64::from(expected);
        missed += u64::from(!expected && !is_violated);
    });
    if !is_part(SEEDS) {
        assert!((2_000..18_000).contains(&linearizable), "{linearizable} of 20,000 are linearizable");
        assert!(missed < 1_000, "{missed} violations of 20,000 histories were missed");
    }
}
