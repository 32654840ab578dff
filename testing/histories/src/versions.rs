//! Versions of one column: each put writes a number whose timestamp is the number, so it is a version of its own. Reads find all
//! versions of a range of time.
//!
//! 1. What a read found is in its range, each version once, and the newest first.
//! 2. Each number is a register: it is there from its put on until its delete. A read whose range has it either found it or not.
//!
//! A version is deleted only after it was seen, and put only once. So the delete hides no later put, as HBase's deletes do before a
//! major compaction, and the order of its put and delete is known.
//!
//! Numbers are checked one by one: that they were together in one answer is not looked at. So what is found is a contradiction, and
//! two gets that saw two concurrent puts in different orders are not found.

use std::collections::{BTreeMap, HashSet};

use crate::history::{Action, Found, History, Operation, Outcome};
use crate::limits::{Budget, Limits};
use crate::registers::evidence;
use crate::registers::search::{Effect, Step, search};
use crate::report::{Report, Violation};

/// Checks a history of versions.
pub fn check(history: &History, limits: &Limits) -> Report {
    let rows = history.by_row();
    let mut report = Report::new(history, rows.len());
    for (row, operations) in rows {
        match misread(history, &operations) {
            Some((what, operation)) => {
                report.violations.push(Violation { row: row.to_string(), what, operations: vec![operation] });
            }
            None => check_row(history, &row, &operations, limits, &mut report),
        }
    }
    report
}

/// What a read found.
fn seen(one: &Operation) -> Option<&[i64]> {
    match (&one.action, &one.outcome) {
        (Action::Range { .. }, Outcome::Done(Some(Found::List(numbers)))) => Some(numbers),
        (Action::Range { .. }, Outcome::Done(Some(Found::Absent))) => Some(&[]),
        _ => None,
    }
}

/// The first read whose answer makes no sense by itself.
fn misread(history: &History, operations: &[usize]) -> Option<(String, usize)> {
    operations.iter().find_map(|&at| {
        let one = &history.operations[at];
        let (Action::Range { from, to, .. }, Some(numbers)) = (one.action, seen(one)) else { return None };
        if let Some(number) = numbers.iter().find(|number| !(from..to).contains(number)) {
            return Some((format!("a read from {from} to {to} found {number}"), at));
        }
        let pair = numbers.windows(2).find(|pair| pair[0] <= pair[1])?;
        Some((format!("a read found {} and then {}", pair[0], pair[1]), at))
    })
}

/// Looks for an order of each number's operations. The first number without one is the violation of the row.
fn check_row(history: &History, row: &str, operations: &[usize], limits: &Limits, report: &mut Report) {
    let mut budget = Budget::new(limits.time, limits.states_max);
    let reads: Vec<(usize, HashSet<i64>)> = operations
        .iter()
        .filter_map(|&at| Some((at, seen(&history.operations[at])?.iter().copied().collect())))
        .collect();
    for (number, writes) in numbers(history, operations) {
        let (steps, indices) = steps(history, number, &writes, &reads);
        match search(&steps, &mut budget) {
            Ok(None) => {}
            Ok(Some(failing)) => {
                let mut shown: Vec<usize> =
                    evidence::smallest(&steps, failing, limits).into_iter().map(|at| indices[at]).collect();
                shown.sort_by_key(|&at| (history.operations[at].called_ns, at));
                let what = format!("no order of these operations explains whether {number} was there");
                report.violations.push(Violation { row: row.to_string(), what, operations: shown });
                return;
            }
            Err(out) => {
                report.undecided.push((row.to_string(), out.0));
                return;
            }
        }
    }
}

/// Each number that was written, deleted or found, and its writes and deletes.
fn numbers(history: &History, operations: &[usize]) -> BTreeMap<i64, Vec<usize>> {
    let mut numbers: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for &at in operations {
        let one = &history.operations[at];
        match one.action {
            Action::Put(number) | Action::DeleteVersion(number) => {
                numbers.entry(number).or_default().push(at)
            }
            _ => seen(one).unwrap_or_default().iter().for_each(|number| {
                numbers.entry(*number).or_default();
            }),
        }
    }
    numbers
}

/// The operations of one number as the search sees them, and their indices in the history.
fn steps(
    history: &History,
    number: i64,
    writes: &[usize],
    reads: &[(usize, HashSet<i64>)],
) -> (Vec<Step>, Vec<usize>) {
    let writes = writes.iter().filter_map(|&at| {
        let one = &history.operations[at];
        let effect = Effect::Write(matches!(one.action, Action::Put(_)).then_some(number));
        (one.outcome != Outcome::Refused).then(|| (step(one, effect), at))
    });
    let reads = reads.iter().filter_map(|(at, found)| {
        let one = &history.operations[*at];
        let Action::Range { from, to, .. } = one.action else { return None };
        let effect = Effect::Read(found.contains(&number).then_some(number));
        (from..to).contains(&number).then(|| (step(one, effect), *at))
    });
    writes.chain(reads).unzip()
}

fn step(one: &Operation, effect: Effect) -> Step {
    Step { called: one.called_ns, ends: one.ends_ns(), effect }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;
    use crate::text;

    fn report(lines: &[&str]) -> Report {
        let mut whole = format!("{}\nkind versions\nclock c\ntable t\nclient us\nbegin\n", text::HEAD);
        lines.iter().enumerate().for_each(|(at, line)| whole.push_str(&format!("p{at} {line}\n")));
        whole.push_str(&format!("end {}\n", lines.len()));
        let history = text::read("f", &whole).unwrap();
        history.validate().unwrap();
        check(&history, &Limits::default())
    }

    fn fine(lines: &[&str]) {
        let report = report(lines);
        assert_eq!(report.verdict(), Verdict::Linearizable, "{lines:?}: {report:?}");
    }

    fn wrong(lines: &[&str], what: &str, operations: &[usize]) {
        let report = report(lines);
        assert_eq!(report.verdict(), Verdict::Violated, "{lines:?}: {report:?}");
        assert!(report.violations[0].what.contains(what), "{report:?}");
        assert_eq!(report.violations[0].operations, operations, "{lines:?}");
    }

    const PUTS: [&str; 2] = ["put r 5 0 1 ok", "put r 7 2 3 ok"];

    fn with<'a>(lines: &[&'a str]) -> Vec<&'a str> {
        [&PUTS[..], lines].concat()
    }

    #[test]
    fn answers_make_sense_by_themselves() {
        fine(&with(&["get r 0:9 4 5 ok:7,5", "scan r 5:7 4 5 ok:5", "get r 6:7 4 5 ok:-"]));
        wrong(&with(&["get r 5:7 4 5 ok:7,5"]), "from 5 to 7 found 7", &[2]);
        wrong(&with(&["get r 0:9 4 5 ok:5,7"]), "found 5 and then 7", &[2]);
        wrong(&with(&["scan r 0:9 4 5 ok:7,5,5"]), "found 5 and then 5", &[2]);
    }

    #[test]
    fn versions_of_the_range_are_there() {
        let what = "whether 5 was there";
        wrong(&with(&["get r 0:9 4 5 ok:7"]), what, &[0, 2]);
        wrong(&with(&["scan r 5:7 4 5 ok:-"]), what, &[0, 2]);
        wrong(&with(&["get r 0:9 4 5 ok:7,6,5"]), "whether 6 was there", &[2]);
        // at the same time, or out of the range
        fine(&["put r 5 0 9 ok", "get r 0:9 1 2 ok:5", "get r 0:9 3 4 ok:5"]);
        fine(&["put r 5 0 9 ok", "get r 0:9 1 2 ok:-", "get r 0:9 3 4 ok:5"]);
        wrong(&["put r 5 0 9 ok", "get r 0:9 1 2 ok:5", "get r 0:9 3 4 ok:-"], what, &[1, 2]);
        wrong(&["put r 5 0 1 refused", "get r 0:9 1 2 ok:5"], what, &[1]);
        fine(&["put r 5 0 1 unknown", "get r 0:9 1 2 ok:-", "get r 0:9 3 4 ok:5"]);
    }

    #[test]
    fn deleted_versions_are_gone() {
        let (deleted, what) = (with(&["delete r 5 4 5 ok"]), "whether 5 was there");
        let and = |line| [&deleted[..], &[line]].concat();
        fine(&and("get r 0:9 6 7 ok:7"));
        wrong(&and("get r 0:9 6 7 ok:7,5"), what, &[0, 2, 3]);
        wrong(&and("scan r 5:6 6 7 ok:5"), what, &[0, 2, 3]);
        wrong(&and("get r 0:9 6 7 ok:5"), what, &[0, 2, 3]);
        // another version than the one that was deleted
        wrong(&and("get r 0:9 6 7 ok:-"), "whether 7 was there", &[1, 3]);
        fine(&with(&["delete r 5 4 5 unknown", "get r 0:9 6 7 ok:7,5", "get r 0:9 8 9 ok:7"]));
    }
}
