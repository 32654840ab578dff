//! Lists: each append adds an id that is unique, so that one value shows the order of all appends before it.
//!
//! No search is needed. The longest value that anyone saw of a row is its list. Then:
//!
//! 1. Each other value is a prefix of the list, and no id is in it twice. Each id was appended by a known operation that
//!    was not refused.
//! 2. The list gives each operation its place: an append is at the place of its id, a read behind as many appends as it saw,
//!    and an acknowledged append that no one saw is behind everything.
//! 3. An operation that was answered before another was called is not behind it in this order.
//!
//! If these hold, the order of (2) explains all answers; reads of one place are taken in the order of their calls. If one
//! does not hold, no order does. An append without an answer has no end: it may be in the list late, but once.
//!
//! The cost is that of reading the values, and of sorting the operations of a row by their place.

use std::collections::HashMap;

use crate::history::{Action, Found, History, Operation, Outcome};
use crate::report::{Report, Violation};

/// Checks a history of lists.
pub fn check(history: &History) -> Report {
    let rows = history.by_row();
    let mut report = Report::new(history, rows.len());
    for (row, operations) in rows {
        if let Err((what, operations)) = Row::new(history, operations).check() {
            report.violations.push(Violation { row: row.to_string(), what, operations });
        }
    }
    report
}

/// What is wrong, and the operations that show it.
type Wrong = (String, Vec<usize>);

/// The operations of one row, as indices of the history.
struct Row<'a> {
    history: &'a History,
    operations: Vec<usize>,
    /// The operation that appends an id.
    appends: HashMap<i64, usize>,
}

impl<'a> Row<'a> {
    fn new(history: &'a History, operations: Vec<usize>) -> Row<'a> {
        let mut appends = HashMap::new();
        for &at in &operations {
            if let Action::Append(id) = history.operations[at].action {
                appends.insert(id, at);
            }
        }
        Row { history, operations, appends }
    }

    fn operation(&self, at: usize) -> &'a Operation {
        &self.history.operations[at]
    }

    /// What an operation saw of the row.
    fn seen(&self, at: usize) -> Option<&'a [i64]> {
        match &self.operation(at).outcome {
            Outcome::Done(Some(Found::List(ids))) => Some(ids),
            Outcome::Done(Some(Found::Absent)) => Some(&[]),
            _ => None,
        }
    }

    fn check(&self) -> Result<(), Wrong> {
        let longest = self.operations.iter().copied().filter(|&at| self.seen(at).is_some());
        let longest = longest.max_by_key(|&at| self.seen(at).map_or(0, <[i64]>::len));
        let list = longest.and_then(|at| self.seen(at)).unwrap_or_default();
        let places = self.places(longest, list)?;
        for &at in &self.operations {
            self.check_value(at, longest, list)?;
        }
        self.check_order(list, &places)
    }

    /// The place of each id in the list, which has only ids that were appended, and each once.
    fn places(&self, longest: Option<usize>, list: &[i64]) -> Result<HashMap<i64, usize>, Wrong> {
        let mut places = HashMap::new();
        let reader = longest.unwrap_or_default();
        for (place, id) in list.iter().enumerate() {
            let Some(&append) = self.appends.get(id) else {
                return Err((
                    format!("the id {id} is in the list, and no one has appended it"),
                    vec![reader],
                ));
            };
            if self.operation(append).outcome == Outcome::Refused {
                let what = format!("the id {id} is in the list, although its append was refused");
                return Err((what, vec![append, reader]));
            }
            if let Some(before) = places.insert(*id, place) {
                let what = format!("the id {id} is in the list twice, at {before} and {place}");
                return Err((what, vec![append, reader]));
            }
        }
        Ok(places)
    }

    /// What the operation saw is the beginning of the list.
    fn check_value(&self, at: usize, longest: Option<usize>, list: &[i64]) -> Result<(), Wrong> {
        let Some(seen) = self.seen(at) else { return Ok(()) };
        if !list.starts_with(seen) {
            let place = seen.iter().zip(list).take_while(|(one, other)| one == other).count();
            let mut shown: Vec<usize> = [seen[place], list[place]]
                .iter()
                .filter_map(|id| self.appends.get(id).copied())
                .chain([at, longest.expect("there is a list")])
                .collect();
            shown.sort_by_key(|&at| (self.operation(at).called_ns, at));
            shown.dedup();
            let (one, other) = (seen[place], list[place]);
            let what = match seen[..place].contains(&one) {
                true => format!("the id {one} is in a value twice"),
                false => format!("two values differ at place {place}: {one} in one, {other} in the other"),
            };
            return Err((what, shown));
        }
        match self.operation(at).action {
            Action::Append(id) if seen.last() != Some(&id) => {
                Err((format!("the answer of the append of {id} does not end with it"), vec![at]))
            }
            _ => Ok(()),
        }
    }

    /// Walks the operations in the order of their places, and looks for one that was answered before another was called
    /// whose place is before.
    fn check_order(&self, list: &[i64], places: &HashMap<i64, usize>) -> Result<(), Wrong> {
        let mut ordered: Vec<(usize, usize)> = Vec::with_capacity(self.operations.len());
        for &at in &self.operations {
            let operation = self.operation(at);
            let rank = match (operation.action, &operation.outcome) {
                (_, Outcome::Refused) => continue,
                (Action::Append(id), outcome) => match (places.get(&id), outcome) {
                    (Some(place), _) => 2 * place + 1,
                    (None, Outcome::Unknown) => continue,
                    (None, _) => 2 * list.len() + 1,
                },
                _ => match self.seen(at) {
                    Some(seen) => 2 * seen.len(),
                    None => continue,
                },
            };
            ordered.push((rank, at));
        }
        ordered.sort_unstable();
        // of the operations with lower ranks, the one that was called last
        let (mut latest, mut next): (Option<usize>, Option<usize>) = (None, None);
        let later = |one: Option<usize>, other: Option<usize>| match (one, other) {
            (Some(a), Some(b)) if self.operation(a).called_ns < self.operation(b).called_ns => Some(b),
            (Some(a), _) => Some(a),
            (None, b) => b,
        };
        for (index, &(rank, at)) in ordered.iter().enumerate() {
            if index > 0 && ordered[index - 1].0 != rank {
                latest = later(latest, next.take());
            }
            if let Some(before) =
                latest.filter(|&one| self.operation(at).ends_ns() < self.operation(one).called_ns)
            {
                return Err((self.why_not(before, at), vec![at, before]));
            }
            next = later(next, Some(at));
        }
        Ok(())
    }

    /// `second` has its place behind `first`, and had its answer before `first` was called.
    fn why_not(&self, first: usize, second: usize) -> String {
        match (self.operation(first).action, self.operation(second).action) {
            (Action::Append(one), Action::Append(other)) => {
                format!("{other} was appended before the append of {one} began, and is behind it or missing")
            }
            (_, Action::Append(id)) => format!("a read after the append of {id} did not find it"),
            (Action::Append(id), _) => format!("a read found {id} before its append began"),
            _ => "a read found less than one that had ended before it began".to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    /// Lines without process; each has its own.
    fn report(lines: &[&str]) -> Report {
        let mut whole = format!("{}\nkind lists\nclock c\ntable t\nclient us\nbegin\n", text::HEAD);
        lines.iter().enumerate().for_each(|(at, line)| whole.push_str(&format!("p{at} {line}\n")));
        whole.push_str(&format!("end {}\n", lines.len()));
        let history = text::read("f", &whole).unwrap();
        history.validate().unwrap();
        check(&history)
    }

    fn wrong(lines: &[&str], what: &str, operations: &[usize]) {
        let report = report(lines);
        assert_eq!(report.violations.len(), 1, "{lines:?}");
        assert!(report.violations[0].what.contains(what), "{:?}, expected {what}", report.violations);
        assert_eq!(report.violations[0].operations, operations, "{lines:?}");
    }

    fn fine(lines: &[&str]) {
        assert_eq!(report(lines).violations, vec![], "{lines:?}");
    }

    #[test]
    fn values_are_prefixes() {
        fine(&["append r 1 0 9 ok", "append r 2 0 9 ok:1,2", "get r - 3 4 ok:1", "get r - 10 11 ok:1,2"]);
        wrong(
            &["append r 1 0 9 ok", "append r 2 0 9 ok", "get r - 3 4 ok:2", "get r - 10 11 ok:1,2"],
            "differ at place 0: 2 in one, 1 in the other",
            &[0, 1, 2, 3],
        );
        wrong(&["append r 1 0 9 ok", "get r - 10 11 ok:1,1"], "1 is in the list twice", &[0, 1]);
        wrong(&["get r - 10 11 ok:1"], "no one has appended it", &[0]);
        wrong(&["append r 1 0 9 refused", "get r - 10 11 ok:1"], "its append was refused", &[0, 1]);
        wrong(
            &["append r 1 0 9 ok", "append r 2 0 9 ok:1", "get r - 10 11 ok:1,2"],
            "the append of 2 does not end with it",
            &[1],
        );
    }

    #[test]
    fn acknowledged_appends_are_there() {
        wrong(&["append r 1 0 9 ok", "get r - 10 11 ok:-"], "after the append of 1 did not find it", &[0, 1]);
        fine(&["append r 1 0 9 ok", "get r - 9 11 ok:-"]);
        // behind another one that was called later, and no read is left to miss it
        wrong(
            &["append r 1 0 2 ok", "append r 2 3 9 ok:2"],
            "1 was appended before the append of 2 began",
            &[0, 1],
        );
    }

    #[test]
    fn order_is_that_of_time() {
        wrong(
            &["append r 1 5 6 ok", "append r 2 1 2 ok", "get r - 10 11 ok:1,2"],
            "2 was appended before the append of 1 began, and is behind it",
            &[1, 0],
        );
        wrong(
            &["append r 1 0 20 ok", "get r - 1 2 ok:1", "get r - 3 4 ok:-"],
            "found less than one that had ended before",
            &[1, 2],
        );
        wrong(&["append r 1 5 6 ok", "get r - 1 2 ok:1"], "found 1 before its append began", &[1, 0]);
    }

    #[test]
    fn appends_without_an_answer_may_be_there_or_not_and_late() {
        let unknown = "append r 1 0 5 unknown";
        fine(&[unknown, "get r - 10 11 ok:-"]);
        fine(&[unknown, "get r - 10 11 ok:-", "get r - 12 13 ok:1"]);
        wrong(
            &[unknown, "get r - 10 11 ok:1", "get r - 12 13 ok:-"],
            "found less than one that had ended before",
            &[1, 2],
        );
        wrong(&["append r 1 20 25 unknown", "get r - 10 11 ok:1"], "before its append began", &[1, 0]);
        wrong(&[unknown, "get r - 10 11 ok:1,1"], "twice", &[0, 1]);
    }

    #[test]
    fn rows_are_apart_and_each_is_reported_once() {
        let report = report(&[
            "append r 1 0 1 ok",
            "append s 1 0 1 ok",
            "append t 1 0 1 ok",
            "get r - 2 3 ok:-",
            "get r - 2 3 ok:-",
            "get s - 2 3 ok:-",
            "get t - 2 3 ok:1",
        ]);
        let rows: Vec<&str> = report.violations.iter().map(|one| one.row.as_str()).collect();
        assert_eq!(rows, ["r", "s"]);
    }
}
