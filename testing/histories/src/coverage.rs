//! Whether a history shows anything of what happened while it was recorded.
//!
//! A file of events has lines of four words:
//!
//! ```text
//! fault kill 81234000111 81299900321            a fault, its beginning and its end
//! flush h-lists 81234000111 81299900321         all stores of a table were flushed in this time
//! compact h-lists 81234000111 81299900321       all its files were compacted
//! replay h-lists/3 81234000111 81299900321      edits of the rows that begin with "3-" were replayed, from large WALs
//! ```
//!
//! A fault is shown by operations that were called and acknowledged in its time. A read is *aged* if a flush, a compaction and a
//! replay, each of its row, lie between the last write of the row that was acknowledged and the read.

use std::collections::BTreeMap;

use crate::history::{History, Operation, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    Fault,
    Flush,
    Compact,
    Replay,
}

/// What has to lie between a write and an aged read.
const AGEING: [EventKind; 3] = [EventKind::Flush, EventKind::Compact, EventKind::Replay];

impl EventKind {
    fn of_word(word: &str) -> Option<EventKind> {
        match word {
            "fault" => Some(EventKind::Fault),
            "flush" => Some(EventKind::Flush),
            "compact" => Some(EventKind::Compact),
            "replay" => Some(EventKind::Replay),
            _ => None,
        }
    }
}

/// Something that happened to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    /// Of a fault, or a table, or a table and the beginning of rows.
    pub name: String,
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Event {
    /// Whether it is of this row.
    fn is_of(&self, table: &str, row: &str) -> bool {
        match self.name.split_once('/') {
            None => self.name == table,
            Some((of, slot)) => {
                of == table && row.strip_prefix(slot).is_some_and(|rest| rest.starts_with('-'))
            }
        }
    }
}

/// Reads a file of events. The error is a sentence with the number of the line.
pub fn read(source: &str, text: &str) -> Result<Vec<Event>, String> {
    text.lines()
        .enumerate()
        .map(|(at, line)| read_event(line).ok_or_else(|| wrong(source, at + 1, line)))
        .collect()
}

fn read_event(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    let [kind, name, from, to] = words[..] else { return None };
    let (kind, from_ns, to_ns) = (EventKind::of_word(kind)?, from.parse().ok()?, to.parse().ok()?);
    (from_ns <= to_ns).then(|| Event { kind, name: name.to_string(), from_ns, to_ns })
}

fn wrong(source: &str, number: usize, line: &str) -> String {
    let line: String = line.chars().take(60).collect();
    format!("{source}:{number}: no event: {line:?}")
}

/// How many operations of each client were called and acknowledged during an event. A client is the letters of a process's name.
pub fn answers(history: &History, event: &Event) -> BTreeMap<String, u64> {
    let mut answers: BTreeMap<String, u64> = BTreeMap::new();
    for one in &history.operations {
        let is_during = one.called_ns >= event.from_ns && one.answered_ns <= event.to_ns;
        let client = one.process.trim_end_matches(|letter: char| letter.is_ascii_digit());
        *answers.entry(client.to_string()).or_default() +=
            u64::from(is_during && matches!(one.outcome, Outcome::Done(_)));
    }
    answers
}

/// How many reads found what was written or deleted before a flush, a compaction and a replay.
pub fn aged_reads(history: &History, events: &[Event]) -> u64 {
    history.by_row().iter().map(|(row, operations)| aged_reads_of(history, row, operations, events)).sum()
}

fn aged_reads_of(history: &History, row: &str, operations: &[usize], events: &[Event]) -> u64 {
    let of_row: Vec<&Event> = events.iter().filter(|event| event.is_of(&history.table, row)).collect();
    let all = || operations.iter().map(|&at| &history.operations[at]);
    // one without an answer may have happened at any time
    let mut writes: Vec<&Operation> =
        all().filter(|one| !one.action.is_read() && one.outcome != Outcome::Refused).collect();
    writes.sort_by_key(|one| one.called_ns);
    let latest_ends: Vec<u64> = writes
        .iter()
        .scan(0, |latest, one| {
            *latest = one.answered_ns.max(*latest);
            Some(*latest)
        })
        .collect();
    let is_aged = |read: &Operation| {
        let before = writes.partition_point(|one| one.called_ns < read.answered_ns);
        let Some(written_ns) = before.checked_sub(1).map(|at| latest_ends[at]) else { return false };
        AGEING.iter().all(|kind| {
            of_row.iter().any(|event| {
                event.kind == *kind && event.from_ns > written_ns && event.to_ns < read.called_ns
            })
        })
    };
    all().filter(|one| one.action.is_read() && !one.is_unknown() && is_aged(one)).count() as u64
}

/// What a history has to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct Least {
    /// Operations of each client that were acknowledged during each fault.
    pub answers: u64,
    pub aged_reads: u64,
}

/// The sentences about what is shown, and those about what is too little.
pub fn judge(history: &History, events: &[Event], least: Least) -> (Vec<String>, Vec<String>) {
    let (mut shown, mut missing) = (Vec::new(), Vec::new());
    let mut fewest: Option<(u64, String)> = None;
    let faults = events.iter().filter(|event| event.kind == EventKind::Fault);
    for event in faults {
        for (client, count) in answers(history, event) {
            let fault = format!("the fault {} at {} s", event.name, event.from_ns / 1_000_000_000);
            if count < least.answers {
                missing.push(format!(
                    "{client} had {count} answers during {fault}, and {} are the least",
                    least.answers
                ));
            }
            if fewest.as_ref().is_none_or(|(least, _)| count < *least) {
                fewest = Some((count, format!("{client} had the fewest answers during {fault}: {count}")));
            }
        }
    }
    shown.extend(fewest.map(|(_, text)| text));
    let aged = aged_reads(history, events);
    shown.push(format!(
        "{aged} reads found what was written or deleted before a flush, a compaction and a replay"
    ));
    if aged < least.aged_reads {
        missing.push(format!(
            "{aged} reads found what was written or deleted before a flush, a compaction and a replay, and {} are the least",
            least.aged_reads
        ));
    }
    (shown, missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text;

    fn history(lines: &[&str]) -> History {
        let mut whole = format!("{}\nkind registers\nclock c\ntable t\nclient us\nbegin\n", text::HEAD);
        lines.iter().for_each(|line| whole.push_str(&format!("{line}\n")));
        whole.push_str(&format!("end {}\n", lines.len()));
        text::read("f", &whole).unwrap()
    }

    #[test]
    fn only_answers_of_the_time_of_a_fault_count() {
        let history = history(&[
            "java0 put 1-r 1 0 9 ok",
            "java0 put 1-r 2 10 19 ok",
            "java1 get 1-r - 11 15 unknown",
            "java1 put 1-r 3 16 17 refused",
            "rust50 get 1-r - 15 21 ok:2",
            "rust51 get 1-r - 12 20 ok:2",
        ]);
        let events = read("f", "fault kill 10 20\nfault move 30 40\n").unwrap();
        let counts = |at: usize| answers(&history, &events[at]).into_iter().collect::<Vec<_>>();
        assert_eq!(counts(0), [("java".to_string(), 1), ("rust".to_string(), 1)]);
        assert_eq!(counts(1), [("java".to_string(), 0), ("rust".to_string(), 0)]);
        let (shown, missing) = judge(&history, &events, Least { answers: 1, aged_reads: 0 });
        assert_eq!(shown[0], "java had the fewest answers during the fault move at 0 s: 0");
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert_eq!(missing[1], "rust had 0 answers during the fault move at 0 s, and 1 are the least");
        assert!(judge(&history, &events[..1], Least { answers: 1, aged_reads: 0 }).1.is_empty());
    }

    #[test]
    fn a_read_is_aged_behind_all_three() {
        let whole = "flush t 10 11\ncompact t 12 13\nreplay t/1 14 15\n";
        let read_at = |line: &str, events: &str| {
            aged_reads(&history(&["a put 1-r 1 0 9 ok", line]), &read("f", events).unwrap())
        };
        assert_eq!(read_at("b get 1-r - 16 17 ok:1", whole), 1);
        for needless in ["flush t 10 11\n", "compact t 12 13\n", "replay t/1 14 15\n"] {
            assert_eq!(read_at("b get 1-r - 16 17 ok:1", &whole.replace(needless, "")), 0, "{needless}");
        }
        for (event, other) in [
            ("flush t", "flush s"),
            ("t/1 14", "t/2 14"),
            ("t/1 14", "t/11 14"),
            ("10 11", "8 11"),
            ("14 15", "14 16"),
        ] {
            assert_eq!(read_at("b get 1-r - 16 17 ok:1", &whole.replace(event, other)), 0, "{other}");
        }
        assert_eq!(read_at("b get 1-r - 16 17 ok:-", whole), 1);
        assert_eq!(read_at("b get 2-r - 16 17 ok:-", whole), 0);
        assert_eq!(read_at("b get 1-r - 16 17 unknown", whole), 0);
        // a write came in between, or may have
        for write in ["b put 1-r 2 12 13 ok", "b put 1-r 2 12 13 unknown"] {
            let history = history(&["a put 1-r 1 0 9 ok", write, "c get 1-r - 16 17 ok:2"]);
            assert_eq!(aged_reads(&history, &read("f", whole).unwrap()), 0, "{write}");
        }
        let (_, missing) = judge(&history(&[]), &[], Least { answers: 0, aged_reads: 1 });
        assert!(missing[0].starts_with("0 reads found what was written or deleted before"), "{missing:?}");
    }

    #[test]
    fn lines_that_are_no_events_are_told() {
        for line in
            ["", "fault kill 1", "fault kill 2 1", "stop kill 1 2", "fault kill 1 x", "fault kill 1 2 3"]
        {
            let error = read("f", &format!("fault kill 1 2\n{line}\n")).unwrap_err();
            assert!(error.starts_with("f:2: no event: "), "{error}");
        }
    }
}
