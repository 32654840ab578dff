//! What a check found.

use std::fmt::{self, Write};

use crate::history::{Action, Found, History, Kind, Operation, Outcome};
use crate::text;

/// Operations of one violation that are printed.
const OPERATIONS_MAX: usize = 24;
/// Violations that are printed; the others are counted.
const PRINTED_MAX: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains every answer.
    Linearizable,
    /// There is none.
    Violated,
    /// The search reached its limits before it knew.
    NotDecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Linearizable => "linearizable",
            Verdict::Violated => "VIOLATED",
            Verdict::NotDecided => "NOT DECIDED",
        })
    }
}

/// A row whose answers cannot be explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub row: String,
    /// What is wrong, as a sentence.
    pub what: String,
    /// The operations that contradict each other, as indices of the history.
    pub operations: Vec<usize>,
}

/// The result for one history. At most one violation of each row is listed.
#[derive(Clone, Debug)]
pub struct Report {
    pub kind: Kind,
    pub table: String,
    pub clients: Vec<String>,
    pub rows: usize,
    pub processes: usize,
    pub operations: usize,
    /// Writes without an answer.
    pub unknown: usize,
    /// Reads without an answer.
    pub unanswered: usize,
    pub refused: usize,
    /// Increments and appends that were acknowledged without their new value.
    pub without_value: usize,
    pub violations: Vec<Violation>,
    /// Rows that were not decided, and why.
    pub undecided: Vec<(String, String)>,
}

impl Report {
    /// The counts of a history, without violations.
    pub fn new(history: &History, rows: usize) -> Report {
        let count =
            |wanted: &dyn Fn(&Operation) -> bool| history.operations.iter().filter(|one| wanted(one)).count();
        let mut processes: Vec<&str> = history.operations.iter().map(|one| &*one.process).collect();
        processes.sort_unstable();
        processes.dedup();
        Report {
            kind: history.kind,
            table: history.table.clone(),
            clients: history.clients.clone(),
            rows,
            processes: processes.len(),
            operations: history.operations.len(),
            unknown: count(&|one| one.is_unknown() && !one.action.is_read()),
            unanswered: count(&|one| one.is_unknown() && one.action.is_read()),
            refused: count(&|one| one.outcome == Outcome::Refused),
            without_value: count(&|one| {
                let is_modify = matches!(one.action, Action::Append(_) | Action::Increment(_));
                is_modify && one.outcome == Outcome::Done(None)
            }),
            violations: vec![],
            undecided: vec![],
        }
    }

    pub fn verdict(&self) -> Verdict {
        match (self.violations.is_empty(), self.undecided.is_empty()) {
            (false, _) => Verdict::Violated,
            (true, false) => Verdict::NotDecided,
            (true, true) => Verdict::Linearizable,
        }
    }

    /// The report as text, with the operations of each violation.
    pub fn text(&self, history: &History) -> String {
        let mut out = String::new();
        let Report { kind, table, rows, processes, operations, .. } = self;
        let clients = if self.clients.is_empty() { "?".to_string() } else { self.clients.join(", ") };
        let _ = writeln!(
            out,
            "{kind} in {table}: {operations} operations of {processes} processes on {rows} rows; clients: {clients}"
        );
        let _ = writeln!(
            out,
            "  {} writes without an answer, {} refused, {} reads without an answer, {} answers without the new value",
            self.unknown, self.refused, self.unanswered, self.without_value
        );
        let _ = writeln!(out, "  verdict: {}", self.verdict());
        for violation in self.violations.iter().take(PRINTED_MAX) {
            let _ = writeln!(out, "  row {}: {}", violation.row, violation.what);
            let left_out = violation.operations.len().saturating_sub(OPERATIONS_MAX);
            if left_out > 0 {
                let _ = writeln!(out, "    {left_out} earlier operations are not printed");
            }
            for &at in &violation.operations[left_out..] {
                let one = &history.operations[at];
                let (from, to) = (seconds(one.called_ns), seconds(one.answered_ns));
                let (one, hidden) = clipped(one);
                let line = shortened(&text::line(&one));
                let hidden = if hidden == 0 { String::new() } else { format!(", after {hidden} other ids") };
                let _ = writeln!(out, "    {from} s to {to} s: {line} ({}{hidden})", history.place(&one));
            }
        }
        if self.violations.len() > PRINTED_MAX {
            let _ = writeln!(out, "  and {} more rows are violated", self.violations.len() - PRINTED_MAX);
        }
        for (row, why) in self.undecided.iter().take(PRINTED_MAX) {
            let _ = writeln!(out, "  row {row}: not decided: {why}");
        }
        if self.undecided.len() > PRINTED_MAX {
            let _ = writeln!(out, "  and {} more rows are not decided", self.undecided.len() - PRINTED_MAX);
        }
        out
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// The end of a long list is what matters; also says how many ids are left out.
fn clipped(one: &Operation) -> (Operation, usize) {
    const SHOWN: usize = 12;
    let mut one = one.clone();
    let mut hidden = 0;
    if let Outcome::Done(Some(Found::List(ids))) = &mut one.outcome {
        hidden = ids.len().saturating_sub(SHOWN);
        ids.drain(..hidden);
    }
    (one, hidden)
}

/// A line of a history without its times, which are printed apart.
fn shortened(line: &str) -> String {
    let mut words: Vec<&str> = line.split(' ').collect();
    words.drain(4..6);
    words.join(" ")
}
