//! Whole rows: each put writes one number to all columns of a row, and a delete removes them all.
//!
//! 1. A get and each row of a scan have the same number in all columns, and all columns or none.
//! 2. Then the row is a register: puts, deletes, gets and rows of scans have an order. A row of a scan may be as old as the scan's
//!    beginning, as HBase promises; rows of one scan need not be of one moment.

use crate::history::{Found, History, Outcome};
use crate::limits::Limits;
use crate::registers;
use crate::report::{Report, Violation};

/// Checks a history of whole rows.
pub fn check(history: &History, limits: &Limits) -> Report {
    let rows = history.by_row();
    let mut report = Report::new(history, rows.len());
    for (row, operations) in rows {
        match mixed(history, &operations) {
            Some((what, operations)) => {
                report.violations.push(Violation { row: row.to_string(), what, operations });
            }
            None => registers::check_row(history, &row, &operations, limits, &mut report),
        }
    }
    report
}

/// The first read that is not whole, with the puts of what it found.
fn mixed(history: &History, operations: &[usize]) -> Option<(String, Vec<usize>)> {
    for &at in operations {
        let one = &history.operations[at];
        let Outcome::Done(Some(Found::Columns(runs))) = &one.outcome else { continue };
        let count: u64 = runs.iter().map(|(_, count)| u64::from(*count)).sum();
        let is_mixed = runs.iter().any(|(number, _)| *number != runs[0].0);
        let what = match (is_mixed, count == u64::from(history.columns)) {
            (false, true) => continue,
            (true, _) => "a read found the numbers of different puts in one row".to_string(),
            (false, false) => format!("a read found {count} of {} columns", history.columns),
        };
        let mut shown: Vec<usize> = operations
            .iter()
            .copied()
            .filter(|&put| match history.operations[put].action {
                crate::Action::Put(number) => runs.iter().any(|run| run.0 == number),
                _ => false,
            })
            .collect();
        shown.push(at);
        shown.sort_by_key(|&at| (history.operations[at].called_ns, at));
        return Some((what, shown));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Verdict;
    use crate::text;

    fn report(lines: &[&str]) -> Report {
        let head = format!("{}\nkind rows\nclock c\ntable t\ncolumns 16\nclient us\nbegin\n", text::HEAD);
        let lines_text: String =
            lines.iter().enumerate().map(|(at, line)| format!("p{at} {line}\n")).collect();
        let history = text::read("f", &format!("{head}{lines_text}end {}\n", lines.len())).unwrap();
        history.validate().unwrap();
        check(&history, &Limits::default())
    }

    fn wrong(lines: &[&str], what: &str, operations: &[usize]) {
        let report = report(lines);
        assert_eq!(report.verdict(), Verdict::Violated, "{lines:?}");
        assert!(report.violations[0].what.contains(what), "{report:?}");
        assert_eq!(report.violations[0].operations, operations, "{lines:?}");
    }

    #[test]
    fn rows_are_whole() {
        let puts = ["put r 1 0 1 ok", "put r 2 2 9 ok", "put s 7 0 1 ok"];
        let with = |lines: &[&'static str]| [&puts, lines].concat();
        for read in ["get r - 4 5 ok:1*16", "scan r - 4 5 ok:2*16", "scan s - 4 5 ok:7*16"] {
            assert_eq!(report(&with(&[read])).verdict(), Verdict::Linearizable, "{read}");
        }
        wrong(&with(&["get r - 4 5 ok:1*10+2*6"]), "numbers of different puts", &[0, 1, 3]);
        wrong(&with(&["scan r - 4 5 ok:2*1+1*14+2*1"]), "numbers of different puts", &[0, 1, 3]);
        wrong(&with(&["get s - 4 5 ok:7*15"]), "found 15 of 16 columns", &[2, 3]);
        wrong(&with(&["get s - 4 5 ok:7*16+7*1"]), "found 17 of 16 columns", &[2, 3]);
    }

    #[test]
    fn rows_are_registers() {
        wrong(&["put r 1 0 1 ok", "put r 2 2 3 ok", "get r - 4 5 ok:1*16"], "no order", &[0, 1, 2]);
        wrong(&["put r 1 0 1 ok", "scan r - 4 5 ok:-"], "no order", &[0, 1]);
        wrong(&["put r 1 0 1 ok", "scan r - 4 5 ok:3*16"], "no order", &[1]);
        let (put, delete) = ("put r 1 0 1 ok", "delete r - 2 3 ok");
        wrong(&[put, delete, "get r - 4 5 ok:1*16"], "no order", &[0, 1, 2]);
        wrong(&[put, delete, "scan r - 4 5 ok:1*8"], "found 8 of 16 columns", &[0, 2]);
        assert_eq!(report(&[put, delete, "scan r - 4 5 ok:-"]).verdict(), Verdict::Linearizable);
        // a scan may be as old as its beginning
        let scan = ["put r 1 0 1 ok", "put r 2 4 5 ok", "scan r - 3 9 ok:1*16", "get r - 6 7 ok:2*16"];
        assert_eq!(report(&scan).verdict(), Verdict::Linearizable);
    }
}
