//! The file of a history while it is recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::history::{History, Operation, Outcome};
use crate::text;

/// Where all processes write. The line `end` shows that nothing is missing.
pub struct Output {
    path: String,
    open: Mutex<Open>,
}

struct Open {
    file: BufWriter<File>,
    rows: BTreeSet<String>,
    count: u64,
    unknown: u64,
    /// Operations that were done, by process and word of the action.
    done: BTreeMap<(Arc<str>, &'static str), u64>,
}

impl Output {
    /// The errors of all methods are sentences that name the file.
    pub fn create(path: &Path, head: &History) -> Result<Output, String> {
        let path_text = path.display().to_string();
        let file = File::create(path).map_err(|error| format!("{path_text}: {error}"))?;
        let mut file = BufWriter::new(file);
        file.write_all(text::head(head).as_bytes()).map_err(|error| format!("{path_text}: {error}"))?;
        let open = Open { file, rows: BTreeSet::new(), count: 0, unknown: 0, done: BTreeMap::new() };
        Ok(Output { path: path_text, open: Mutex::new(open) })
    }

    pub fn write(&self, operations: &[Operation]) -> Result<(), String> {
        let mut open = self.open.lock();
        for one in operations {
            writeln!(open.file, "{}", text::line(one)).map_err(|error| format!("{}: {error}", self.path))?;
            open.count += 1;
            open.unknown += u64::from(one.is_unknown());
            let is_done = matches!(one.outcome, Outcome::Done(_));
            *open.done.entry((Arc::clone(&one.process), one.action.word())).or_default() +=
                u64::from(is_done);
            if !open.rows.contains(&*one.row) {
                open.rows.insert(one.row.to_string());
            }
        }
        Ok(())
    }

    /// The rows of all operations so far.
    pub fn rows(&self) -> Vec<String> {
        self.open.lock().rows.iter().cloned().collect()
    }

    /// Fails if a process had fewer than `least` answers to one of the actions: then the history says little about it.
    pub fn expect_answers(
        &self,
        processes: &[Arc<str>],
        actions: &[&'static str],
        least: u64,
    ) -> Result<(), String> {
        let open = self.open.lock();
        for process in processes {
            for action in actions {
                let done = open.done.get(&(Arc::clone(process), *action)).copied().unwrap_or_default();
                if done < least {
                    return Err(format!(
                        "{process} had {done} answers to {action}, and {least} are the least"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Ends the file. Returns how many operations it has, and how many of them have no answer.
    pub fn finish(&self) -> Result<(u64, u64), String> {
        let mut open = self.open.lock();
        let count = open.count;
        let ended = writeln!(open.file, "end {count}").and_then(|()| open.file.flush());
        ended.map_err(|error| format!("{}: {error}", self.path))?;
        Ok((count, open.unknown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Action, Kind};

    /// A recorder whose client never found its way back said "recorded" and ended with success.
    #[test]
    fn processes_with_too_few_answers_are_told() {
        let dir = std::env::temp_dir().join(format!("halcyon-histories-output-{}", std::process::id()));
        let history = History { clock: "c".to_string(), ..History::new(Kind::Lists) };
        let output = Output::create(&dir, &history).unwrap();
        let (first, second): (Arc<str>, Arc<str>) = ("rust50".into(), "rust51".into());
        let one = |process: &Arc<str>, action: Action, outcome: Outcome| {
            let (process, row) = (Arc::clone(process), "0-1".into());
            Operation { process, row, action, called_ns: 1, answered_ns: 2, outcome, line: 0, source: 0 }
        };
        for process in [&first, &second] {
            output.write(&[one(process, Action::Get, Outcome::Done(None))]).unwrap();
            output.write(&[one(process, Action::Append(1), Outcome::Unknown)]).unwrap();
            output.write(&[one(process, Action::Append(2), Outcome::Refused)]).unwrap();
        }
        let expect =
            |processes: &[Arc<str>], least| output.expect_answers(processes, &["append", "get"], least);
        let (both, one_of_them) = ([first.clone(), second], [first.clone()]);
        let error = expect(&both, 1).unwrap_err();
        assert_eq!(error, "rust50 had 0 answers to append, and 1 are the least");
        output.write(&[one(&first, Action::Append(3), Outcome::Done(None))]).unwrap();
        assert_eq!(expect(&both, 1).unwrap_err(), "rust51 had 0 answers to append, and 1 are the least");
        expect(&one_of_them, 1).unwrap();
        assert!(expect(&one_of_them, 2).is_err());
        std::fs::remove_file(&dir).unwrap();
    }
}
