//! Registers: put, get, check-and-mutate, increment and delete of a number in each row.
//!
//! Rows are independent: each is checked by itself ([`search`]). A row that has no order is shown by as few operations as
//! contradict each other ([`evidence`]).

pub mod evidence;
pub mod search;

use crate::history::{Action, Found, History, Operation, Outcome};
use crate::limits::{Budget, Limits};
use crate::report::{Report, Violation};
use search::{Effect, Step};

/// Checks a history of registers.
pub fn check(history: &History, limits: &Limits) -> Report {
    let rows = history.by_row();
    let mut report = Report::new(history, rows.len());
    for (row, operations) in rows {
        check_row(history, &row, &operations, limits, &mut report);
    }
    report
}

/// Checks the operations of one row, and adds what is found to the report.
pub(crate) fn check_row(
    history: &History,
    row: &str,
    operations: &[usize],
    limits: &Limits,
    report: &mut Report,
) {
    let (steps, indices): (Vec<Step>, Vec<usize>) =
        operations.iter().filter_map(|&at| Some((step(&history.operations[at])?, at))).unzip();
    match search::search(&steps, &mut Budget::new(limits.time, limits.states_max)) {
        Ok(None) => {}
        Ok(Some(failing)) => {
            let mut shown: Vec<usize> =
                evidence::smallest(&steps, failing, limits).into_iter().map(|at| indices[at]).collect();
            shown.sort_by_key(|&at| (history.operations[at].called_ns, at));
            let what = "no order of these operations explains their answers, wherever the other writes before them are";
            let what = what.to_string();
            report.violations.push(Violation { row: row.to_string(), what, operations: shown });
        }
        Err(out) => report.undecided.push((row.to_string(), out.0)),
    }
}

/// An operation as the search sees it; `None` if it says nothing.
fn step(one: &Operation) -> Option<Step> {
    let found = match &one.outcome {
        Outcome::Refused => return None,
        Outcome::Unknown => None,
        Outcome::Done(found) => found.as_ref(),
    };
    let effect = match (one.action, found) {
        (Action::Get | Action::Scan, None) => return None,
        (Action::Get | Action::Scan, Some(found)) => Effect::Read(match found {
            Found::Number(number) => Some(*number),
            Found::Columns(runs) => runs.first().map(|(number, _)| *number),
            _ => None,
        }),
        (Action::Put(number), _) => Effect::Write(Some(number)),
        (Action::Delete, _) => Effect::Write(None),
        (Action::Increment(amount), Some(Found::Number(result))) => {
            Effect::Add { amount, result: Some(*result) }
        }
        (Action::Increment(amount), _) => Effect::Add { amount, result: None },
        (Action::CheckAndMutate { expected, .. }, Some(Found::Held(false))) => Effect::Differs(expected),
        (Action::CheckAndMutate { expected, new }, _) => Effect::Swap { expected, new },
        (Action::Append(_) | Action::Range { .. } | Action::DeleteVersion(_), _) => {
            unreachable!("the parser refuses them in registers and rows")
        }
    };
    Some(Step { called: one.called_ns, ends: one.ends_ns(), effect })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;
    use crate::text;

    fn history(lines: &[&str]) -> History {
        let mut whole = format!("{}\nkind registers\nclock c\ntable t\nclient us\nbegin\n", text::HEAD);
        lines.iter().enumerate().for_each(|(at, line)| whole.push_str(&format!("p{at} {line}\n")));
        whole.push_str(&format!("end {}\n", lines.len()));
        let history = text::read("f", &whole).unwrap();
        history.validate().unwrap();
        history
    }

    fn fine(lines: &[&str]) {
        let report = check(&history(lines), &Limits::default());
        assert_eq!(report.verdict(), Verdict::Linearizable, "{lines:?}: {report:?}");
    }

    fn wrong(lines: &[&str], operations: &[usize]) {
        let report = check(&history(lines), &Limits::default());
        assert_eq!(report.verdict(), Verdict::Violated, "{lines:?}: {report:?}");
        assert_eq!(report.violations[0].operations, operations, "{lines:?}");
    }

    #[test]
    fn reads_see_the_newest_write() {
        fine(&["put r 1 0 1 ok", "put r 2 2 3 ok", "get r - 4 5 ok:2"]);
        fine(&["put r 1 0 1 ok", "put r 2 2 9 ok", "get r - 4 5 ok:1", "get r - 4 5 ok:2"]);
        // the write of 3 was nowhere near
        wrong(
            &["put r 1 0 1 ok", "put r 2 2 3 ok", "get r - 4 5 ok:1", "put r 3 6 7 ok", "get r - 8 9 ok:3"],
            &[0, 1, 2],
        );
        wrong(&["get r - 0 1 ok:7"], &[0]);
        wrong(&["put r 1 0 1 ok", "get r - 2 3 ok:-"], &[0, 1]);
        fine(&["put r 1 0 1 ok", "delete r - 2 3 ok", "get r - 4 5 ok:-"]);
        // a deleted number is back
        wrong(&["put r 1 0 1 ok", "delete r - 2 3 ok", "get r - 4 5 ok:1"], &[0, 1, 2]);
    }

    #[test]
    fn increments_happen_once() {
        fine(&["put r 10 0 1 ok", "increment r 1 2 3 ok:11", "increment r 1 2 3 ok:12", "get r - 4 5 ok:12"]);
        fine(&["increment r 5 0 1 ok:5", "increment r 1 2 3 ok", "get r - 4 5 ok:6"]);
        wrong(&["put r 10 0 1 ok", "increment r 1 2 3 ok:11", "get r - 4 5 ok:12"], &[2]);
        wrong(&["put r 10 0 1 ok", "increment r 1 2 3 ok:11", "increment r 1 4 5 ok:11"], &[1, 2]);
    }

    #[test]
    fn checks_hold_or_not() {
        fine(&[
            "check r -:1 0 1 ok:true",
            "check r 1:2 2 3 ok:true",
            "check r 1:3 4 5 ok:false",
            "get r - 6 7 ok:2",
        ]);
        wrong(&["check r -:1 0 1 ok:true", "check r 1:2 2 3 ok:false"], &[0, 1]);
        wrong(&["check r -:1 0 9 ok:true", "check r -:2 0 9 ok:true"], &[0, 1]);
        fine(&["check r -:1 0 9 ok:true", "check r 1:- 0 9 ok:true", "check r -:2 0 9 ok:true"]);
    }

    #[test]
    fn writes_without_an_answer_may_happen_late_or_never() {
        let (first, unknown) = ("put r 1 0 1 ok", "put r 2 2 3 unknown");
        fine(&[first, unknown, "get r - 4 5 ok:1"]);
        fine(&[first, unknown, "get r - 4 5 ok:1", "get r - 6 7 ok:2"]);
        wrong(&[first, unknown, "get r - 4 5 ok:2", "get r - 6 7 ok:1"], &[0, 2, 3]);
        // it cannot happen before it was called
        wrong(&[first, "get r - 2 3 ok:2", "put r 2 4 5 unknown"], &[1, 2]);
        fine(&["increment r 1 0 1 unknown", "get r - 2 3 ok:-", "get r - 4 5 ok:1"]);
        wrong(&["increment r 1 0 1 unknown", "get r - 2 3 ok:2"], &[1]);
        fine(&[first, "check r 1:3 2 3 unknown", "get r - 4 5 ok:3"]);
        wrong(&[first, "check r 7:3 2 3 unknown", "get r - 4 5 ok:3"], &[2]);
        wrong(&[first, "put r 2 2 3 refused", "get r - 4 5 ok:2"], &[2]);
    }

    #[test]
    fn limits_leave_a_row_undecided() {
        let lines: Vec<String> = (0..12).map(|at| format!("put r {at} 0 99 ok")).collect();
        let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        lines.push("get r - 100 101 ok:5");
        lines.push("put s 1 0 1 ok");
        let limits = Limits { states_max: 10, ..Limits::default() };
        let report = check(&history(&lines), &limits);
        assert_eq!(report.verdict(), Verdict::NotDecided);
        assert_eq!(report.undecided[0].0, "r");
        assert!(report.undecided[0].1.contains("more than 10 states"), "{:?}", report.undecided);
        fine(&lines);
    }
}
