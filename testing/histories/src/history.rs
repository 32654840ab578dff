//! Operations on rows and what came of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// What the rows of a history are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Lists of unique ids.
    Lists,
    /// Numbers, or nothing.
    Registers,
    /// Many columns that are written together with one number.
    Rows,
    /// Sets of numbers, each a version of one column whose timestamp is the number.
    Versions,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Lists, Kind::Registers, Kind::Rows, Kind::Versions];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Lists => "lists",
            Kind::Registers => "registers",
            Kind::Rows => "rows",
            Kind::Versions => "versions",
        }
    }

    pub fn of_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Get,
    /// One row of a scan. Its times are those of the whole scan.
    Scan,
    /// A get, or one row of a scan, of all versions from one timestamp to another one, which it does not find.
    Range {
        from: i64,
        to: i64,
        is_scan: bool,
    },
    Append(i64),
    Put(i64),
    Delete,
    /// Of one version, which was seen before.
    DeleteVersion(i64),
    Increment(i64),
    /// `None`: the row has no value, before or after.
    CheckAndMutate {
        expected: Option<i64>,
        new: Option<i64>,
    },
}

impl Action {
    pub fn is_read(self) -> bool {
        matches!(self, Action::Get | Action::Scan | Action::Range { .. })
    }

    /// One row of a scan of several.
    pub fn is_scan(self) -> bool {
        matches!(self, Action::Scan | Action::Range { is_scan: true, .. })
    }

    /// Its word in the text of a history.
    pub fn word(self) -> &'static str {
        match self {
            Action::Get | Action::Range { is_scan: false, .. } => "get",
            Action::Scan | Action::Range { is_scan: true, .. } => "scan",
            Action::Append(_) => "append",
            Action::Put(_) => "put",
            Action::Delete | Action::DeleteVersion(_) => "delete",
            Action::Increment(_) => "increment",
            Action::CheckAndMutate { .. } => "check",
        }
    }
}

/// What an answer held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The row has no value.
    Absent,
    Number(i64),
    List(Vec<i64>),
    /// Runs of equal numbers in the order of the columns.
    Columns(Vec<(i64, u32)>),
    /// Whether the condition of a check-and-mutate held.
    Held(bool),
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// There was no answer: a write may have happened, may still happen, or never. A read says nothing.
    Unknown,
    /// It did not happen and never will.
    Refused,
    /// It happened. A write may be acknowledged without a value.
    Done(Option<Found>),
}

/// One operation of a history.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Who called. The operations of one process are one after the other.
    pub process: Arc<str>,
    pub row: Arc<str>,
    pub action: Action,
    /// Just before the call, by the machine's monotonic clock.
    pub called_ns: u64,
    /// Just after the answer, or when the client gave up.
    pub answered_ns: u64,
    pub outcome: Outcome,
    /// Line of its file, from 1; 0 if there is none.
    pub line: usize,
    /// Which of [`History::sources`].
    pub source: usize,
}

impl Operation {
    pub fn is_unknown(&self) -> bool {
        self.outcome == Outcome::Unknown
    }

    /// When the operation has happened at the latest: never for a write without an answer.
    pub fn ends_ns(&self) -> u64 {
        if self.is_unknown() { u64::MAX } else { self.answered_ns }
    }
}

/// Operations of one kind, of one recorder or of several whose clock is the same.
#[derive(Clone, Debug)]
pub struct History {
    pub kind: Kind,
    /// What all times of the history are measured by; times by other clocks cannot be compared.
    pub clock: String,
    pub table: String,
    /// Columns of a whole row; 0 for other kinds.
    pub columns: u32,
    /// Which clients recorded it.
    pub clients: Vec<String>,
    /// Files that it was read from.
    pub sources: Vec<String>,
    pub operations: Vec<Operation>,
}

impl History {
    /// An empty history that was not read from a file.
    pub fn new(kind: Kind) -> History {
        let columns = if kind == Kind::Rows { 16 } else { 0 };
        let (clock, table) = ("none".to_string(), kind.name().to_string());
        History { kind, clock, table, columns, clients: vec![], sources: vec![], operations: vec![] }
    }

    /// Whether two histories are of the same rows, so that they can only be checked together.
    pub fn is_of_same_rows(&self, other: &History) -> bool {
        (self.kind, &self.table) == (other.kind, &other.table)
    }

    /// Adds what another recorder saw of the same rows at the same time. The error is a sentence.
    pub fn merge(&mut self, other: History) -> Result<(), String> {
        if self.clock != other.clock {
            return Err(format!(
                "the histories of the table {} have different clocks, {} and {}",
                self.table, self.clock, other.clock
            ));
        }
        if self.columns != other.columns {
            return Err(format!(
                "the histories of the table {} have different numbers of columns",
                self.table
            ));
        }
        let shift = self.sources.len();
        self.sources.extend(other.sources);
        self.clients.extend(other.clients);
        self.operations
            .extend(other.operations.into_iter().map(|one| Operation { source: one.source + shift, ..one }));
        Ok(())
    }

    /// Where an operation was read.
    pub fn place(&self, operation: &Operation) -> String {
        match self.sources.get(operation.source) {
            Some(source) if operation.line > 0 => format!("{source}:{}", operation.line),
            _ => "-".to_string(),
        }
    }

    /// Checks what every recorder promises; the error is a sentence that names the operation.
    ///
    /// - an operation ends after it began, and a process has one at a time
    /// - numbers that are appended or written to a row are written once
    pub fn validate(&self) -> Result<(), String> {
        let mut last_of: HashMap<&str, &Operation> = HashMap::new();
        let mut written: HashMap<(&str, i64), &Operation> = HashMap::new();
        let mut ordered: Vec<&Operation> = self.operations.iter().collect();
        ordered.sort_by_key(|one| (one.called_ns, one.answered_ns));
        for one in ordered {
            if one.answered_ns < one.called_ns {
                return Err(format!("{}: the operation ends before it begins", self.place(one)));
            }
            if let Some(last) = last_of.insert(&one.process, one) {
                // the rows of one scan have the times of the scan
                let is_same_scan = one.action.is_scan()
                    && last.action == one.action
                    && (one.called_ns, one.answered_ns) == (last.called_ns, last.answered_ns);
                if last.answered_ns > one.called_ns && !is_same_scan {
                    let (this, other) = (self.place(one), self.place(last));
                    return Err(format!(
                        "{this}: {} had another operation at that time ({other})",
                        one.process
                    ));
                }
            }
            let number = match one.action {
                Action::Append(number) | Action::Put(number) => Some(number),
                Action::CheckAndMutate { new, .. } => new,
                _ => None,
            };
            let Some(number) = number else { continue };
            if let Some(other) = written.insert((&one.row, number), one) {
                let (this, other) = (self.place(one), self.place(other));
                return Err(format!("{this}: the number {number} was written to the row before ({other})"));
            }
        }
        Ok(())
    }

    /// The operations of each row, as indices, in the order of the rows' names.
    pub fn by_row(&self) -> Vec<(Arc<str>, Vec<usize>)> {
        let mut rows: HashMap<&Arc<str>, Vec<usize>> = HashMap::new();
        for (at, operation) in self.operations.iter().enumerate() {
            rows.entry(&operation.row).or_default().push(at);
        }
        let mut rows: Vec<_> = rows.into_iter().map(|(row, at)| (Arc::clone(row), at)).collect();
        rows.sort();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(process: &str, action: Action, called_ns: u64, answered_ns: u64) -> Operation {
        let outcome = Outcome::Done(None);
        let (process, row) = (process.into(), "r".into());
        Operation { process, row, action, called_ns, answered_ns, outcome, line: 0, source: 0 }
    }

    fn history(operations: Vec<Operation>) -> History {
        History { operations, ..History::new(Kind::Registers) }
    }

    #[test]
    fn a_process_has_one_operation_at_a_time() {
        let one = operation("a", Action::Put(1), 10, 20);
        history(vec![one.clone(), operation("a", Action::Put(2), 20, 30)]).validate().unwrap();
        history(vec![one.clone(), operation("b", Action::Put(2), 15, 30)]).validate().unwrap();
        let error = history(vec![one, operation("a", Action::Put(2), 19, 30)]).validate().unwrap_err();
        assert!(error.contains("a had another operation at that time"), "{error}");
    }

    #[test]
    fn rows_of_one_scan_have_its_times() {
        let scan = operation("a", Action::Scan, 10, 20);
        let other = Operation { row: "s".into(), ..scan.clone() };
        history(vec![scan.clone(), other]).validate().unwrap();
        assert!(history(vec![scan, operation("a", Action::Scan, 11, 20)]).validate().is_err());
    }

    #[test]
    fn numbers_are_written_once_and_time_goes_on() {
        let one = operation("a", Action::Put(1), 10, 20);
        let swap = Action::CheckAndMutate { expected: None, new: Some(1) };
        let error = history(vec![one.clone(), operation("b", swap, 30, 40)]).validate().unwrap_err();
        assert!(error.contains("the number 1 was written to the row before"), "{error}");
        let other_row = Operation { row: "s".into(), ..operation("b", swap, 30, 40) };
        history(vec![one, other_row]).validate().unwrap();
        assert!(history(vec![operation("a", Action::Get, 10, 9)]).validate().is_err());
    }

    #[test]
    fn histories_of_other_clocks_are_not_merged() {
        let mut one = history(vec![]);
        one.merge(history(vec![operation("a", Action::Get, 1, 2)])).unwrap();
        assert_eq!(one.operations.len(), 1);
        let error = one.merge(History { clock: "other".to_string(), ..history(vec![]) }).unwrap_err();
        assert!(error.contains("different clocks"), "{error}");
    }
}
