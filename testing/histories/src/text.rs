//! The files of histories.
//!
//! ```text
//! halcyon-history 1
//! kind registers
//! clock 6f1e0c6e-...          the machine's boot id: times are of its monotonic clock
//! table h-registers
//! columns 0
//! client HBase's Java client 2.6.4
//! begin
//! java0 put 3-17 1048576 81234000111 81234900321 ok
//! java1 get 3-17 - 81235000000 81235700000 ok:1048576
//! ...
//! end 2
//! ```
//!
//! A line is `PROCESS ACTION ROW ARGUMENT CALLED ANSWERED RESULT`, with one blank between. Times are nanoseconds.
//!
//! | action | argument | result |
//! |---|---|---|
//! | `get` | `-`, or `FROM:TO` of versions | `ok:VALUE`, `unknown` |
//! | `scan` | as of `get` | the same, for one row of a scan; times are those of the scan |
//! | `append` | id | `ok`, `ok:VALUE` (the new value), `refused`, `unknown` |
//! | `put` | number | `ok`, `refused`, `unknown` |
//! | `delete` | `-`, or a number of versions | `ok`, `refused`, `unknown` |
//! | `increment` | amount | `ok`, `ok:NUMBER` (the new value), `refused`, `unknown` |
//! | `check` | `EXPECTED:NEW`, each a number or `-` | `ok:true`, `ok:false`, `refused`, `unknown` |
//!
//! A value is `-` (absent), a number (registers), `1,2,3` (lists), `3,2,1` (versions, the newest first), or runs of equal columns (rows): `17*10+18*6`.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use crate::history::{Action, Found, History, Kind, Operation, Outcome};

/// The first line of each file.
pub const HEAD: &str = "halcyon-history 1";
/// Longest name of a process or row.
const NAME_MAX: usize = 200;

/// Reads a history. `source` names the file in errors, which are sentences with the line's number.
pub fn read(source: &str, text: &str) -> Result<History, String> {
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    match lines.next() {
        Some((_, HEAD)) => {}
        Some((_, other)) => {
            return Err(format!("{source}:1: expected {HEAD:?}, found {:?}", start_of(other)));
        }
        None => return Err(format!("{source}: the file is empty")),
    }
    let mut history = read_head(source, &mut lines)?;
    let mut names = Names::default();
    for (number, line) in lines.by_ref() {
        if let Some(count) = line.strip_prefix("end ") {
            return match count.parse::<usize>() {
                Ok(count) if count == history.operations.len() => match lines.next() {
                    None => Ok(history),
                    Some((number, _)) => Err(format!("{source}:{number}: there is more after the end")),
                },
                Ok(count) => Err(format!(
                    "{source}:{number}: expected {count} operations, found {}",
                    history.operations.len()
                )),
                Err(_) => Err(format!("{source}:{number}: {:?} is no number of operations", start_of(count))),
            };
        }
        let operation = read_operation(history.kind, number, line, &mut names)
            .map_err(|why| format!("{source}:{number}: {why}"))?;
        history.operations.push(operation);
    }
    Err(format!(
        "{source}: the line \"end\" is missing: the recorder was interrupted, and operations may be missing"
    ))
}

fn read_head<'a>(
    source: &str,
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
) -> Result<History, String> {
    let mut found: HashMap<&str, &str> = HashMap::new();
    for (number, line) in lines {
        if line == "begin" {
            let wanted = |key: &str| {
                let value = found.get(key).filter(|value| !value.is_empty());
                value.copied().ok_or_else(|| format!("{source}: the head has no line {key:?}"))
            };
            let name = wanted("kind")?;
            let kind = Kind::of_name(name).ok_or_else(|| {
                format!("{source}: no kind {:?}: lists, registers, rows or versions", start_of(name))
            })?;
            let columns = found.get("columns").copied().unwrap_or("0");
            let columns = columns
                .parse()
                .map_err(|_| format!("{source}: {:?} is no number of columns", start_of(columns)))?;
            if (kind == Kind::Rows) != (columns > 0) {
                return Err(format!("{source}: {columns} columns in a history of {kind}"));
            }
            return Ok(History {
                clock: wanted("clock")?.to_string(),
                table: wanted("table")?.to_string(),
                columns,
                clients: vec![wanted("client")?.to_string()],
                sources: vec![source.to_string()],
                ..History::new(kind)
            });
        }
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        if !matches!(key, "kind" | "clock" | "table" | "columns" | "client") {
            return Err(format!("{source}:{number}: no line of a head: {:?}", start_of(line)));
        }
        if found.insert(key, value).is_some() {
            return Err(format!("{source}:{number}: a second line {key:?}"));
        }
    }
    Err(format!("{source}: the head has no end, \"begin\""))
}

/// Names of processes and rows are kept once.
#[derive(Default)]
struct Names(HashMap<String, Arc<str>>);

impl Names {
    fn of(&mut self, name: &str) -> Result<Arc<str>, String> {
        if let Some(known) = self.0.get(name) {
            return Ok(Arc::clone(known));
        }
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(format!("a name has 1 to {NAME_MAX} bytes, this one {}", name.len()));
        }
        let new: Arc<str> = name.into();
        self.0.insert(name.to_string(), Arc::clone(&new));
        Ok(new)
    }
}

fn read_operation(kind: Kind, number: usize, line: &str, names: &mut Names) -> Result<Operation, String> {
    let words: Vec<&str> = line.split(' ').collect();
    let [process, action, row, argument, called, answered, result] = words[..] else {
        return Err(format!("expected 7 words, found {}: {:?}", words.len(), start_of(line)));
    };
    let action = read_action(kind, action, argument)?;
    Ok(Operation {
        process: names.of(process)?,
        row: names.of(row)?,
        action,
        called_ns: read_number(called, "time")?,
        answered_ns: read_number(answered, "time")?,
        outcome: read_outcome(kind, action, result)?,
        line: number,
        source: 0,
    })
}

fn read_number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, String> {
    // "+1" is a number for Rust
    match text.starts_with('+') {
        false => text.parse().map_err(|_| format!("{:?} is no {what}", start_of(text))),
        true => Err(format!("{:?} is no {what}", start_of(text))),
    }
}

fn read_optional(text: &str) -> Result<Option<i64>, String> {
    if text == "-" { Ok(None) } else { read_number(text, "number").map(Some) }
}

fn read_action(kind: Kind, name: &str, argument: &str) -> Result<Action, String> {
    let allowed: &[&str] = match kind {
        Kind::Lists => &["get", "append"],
        Kind::Registers => &["get", "put", "delete", "increment", "check"],
        Kind::Rows => &["get", "scan", "put", "delete"],
        Kind::Versions => &["get", "scan", "put", "delete"],
    };
    if !allowed.contains(&name) {
        return Err(format!("no action of {kind}: {:?}", start_of(name)));
    }
    match name {
        "append" => Ok(Action::Append(read_number(argument, "id")?)),
        "put" => Ok(Action::Put(read_number(argument, "number")?)),
        "increment" => Ok(Action::Increment(read_number(argument, "amount")?)),
        "check" => {
            let parts = argument.split_once(':');
            let (expected, new) =
                parts.ok_or_else(|| format!("{:?} is not EXPECTED:NEW", start_of(argument)))?;
            Ok(Action::CheckAndMutate { expected: read_optional(expected)?, new: read_optional(new)? })
        }
        "delete" if kind == Kind::Versions => Ok(Action::DeleteVersion(read_number(argument, "number")?)),
        _ if kind == Kind::Versions => {
            let parts = argument.split_once(':');
            let (from, to) = parts.ok_or_else(|| format!("{:?} is not FROM:TO", start_of(argument)))?;
            let (from, to) = (read_number(from, "time")?, read_number(to, "time")?);
            Ok(Action::Range { from, to, is_scan: name == "scan" })
        }
        _ if argument != "-" => Err(format!("{name} has no argument, found {:?}", start_of(argument))),
        "get" => Ok(Action::Get),
        "scan" => Ok(Action::Scan),
        _ => Ok(Action::Delete),
    }
}

fn read_outcome(kind: Kind, action: Action, text: &str) -> Result<Outcome, String> {
    match text {
        "unknown" => return Ok(Outcome::Unknown),
        "refused" if !action.is_read() => return Ok(Outcome::Refused),
        "ok" if !action.is_read() && !matches!(action, Action::CheckAndMutate { .. }) => {
            return Ok(Outcome::Done(None));
        }
        _ => {}
    }
    let wrong = || format!("no result of this action: {:?}", start_of(text));
    let value = text.strip_prefix("ok:").ok_or_else(wrong)?;
    let found = match (kind, action) {
        (_, Action::CheckAndMutate { .. }) => match value {
            "true" => Found::Held(true),
            "false" => Found::Held(false),
            _ => return Err(wrong()),
        },
        _ if action.is_read() && value == "-" => Found::Absent,
        (Kind::Registers, Action::Get) => Found::Number(read_number(value, "number")?),
        (_, Action::Increment(_)) => Found::Number(read_number(value, "number")?),
        (Kind::Lists, _) | (Kind::Versions, Action::Range { .. }) => {
            Found::List(value.split(',').map(|id| read_number(id, "id")).collect::<Result<_, _>>()?)
        }
        (Kind::Rows, Action::Get | Action::Scan) => {
            Found::Columns(value.split('+').map(read_run).collect::<Result<_, _>>()?)
        }
        _ => return Err(wrong()),
    };
    Ok(Outcome::Done(Some(found)))
}

fn read_run(text: &str) -> Result<(i64, u32), String> {
    let (number, count) = text
        .split_once('*')
        .ok_or_else(|| format!("{:?} is no run of columns, such as 17*10", start_of(text)))?;
    Ok((read_number(number, "number")?, read_number(count, "number of columns")?))
}

/// What an error quotes.
fn start_of(text: &str) -> String {
    const QUOTED_MAX: usize = 60;
    match text.char_indices().nth(QUOTED_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

/// The lines before the operations, with line ends.
pub fn head(history: &History) -> String {
    format!(
        "{HEAD}\nkind {}\nclock {}\ntable {}\ncolumns {}\nclient {}\nbegin\n",
        history.kind,
        history.clock,
        history.table,
        history.columns,
        history.clients.join(", "),
    )
}

/// An operation as a line, without its end.
pub fn line(one: &Operation) -> String {
    let optional = |number: Option<i64>| number.map_or("-".to_string(), |number| number.to_string());
    let argument = match one.action {
        Action::Get | Action::Scan | Action::Delete => "-".to_string(),
        Action::Range { from, to, .. } => format!("{from}:{to}"),
        Action::Append(number)
        | Action::Put(number)
        | Action::Increment(number)
        | Action::DeleteVersion(number) => number.to_string(),
        Action::CheckAndMutate { expected, new } => format!("{}:{}", optional(expected), optional(new)),
    };
    let (process, action, row) = (&one.process, one.action.word(), &one.row);
    let mut line = format!("{process} {action} {row} {argument} {} {} ", one.called_ns, one.answered_ns);
    match &one.outcome {
        Outcome::Unknown => line.push_str("unknown"),
        Outcome::Refused => line.push_str("refused"),
        Outcome::Done(None) => line.push_str("ok"),
        Outcome::Done(Some(found)) => {
            line.push_str("ok:");
            write_found(&mut line, found);
        }
    }
    line
}

fn write_found(line: &mut String, found: &Found) {
    let _ = match found {
        Found::Absent => write!(line, "-"),
        Found::Number(number) => write!(line, "{number}"),
        Found::Held(held) => write!(line, "{held}"),
        Found::List(ids) => ids.iter().enumerate().try_for_each(|(at, id)| match at {
            0 => write!(line, "{id}"),
            _ => write!(line, ",{id}"),
        }),
        Found::Columns(runs) => runs.iter().enumerate().try_for_each(|(at, (number, count))| match at {
            0 => write!(line, "{number}*{count}"),
            _ => write!(line, "+{number}*{count}"),
        }),
    };
}

/// A whole history as text.
pub fn write(history: &History) -> String {
    let mut text = head(history);
    for one in &history.operations {
        text.push_str(&line(one));
        text.push('\n');
    }
    let _ = writeln!(text, "end {}", history.operations.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(kind: &str, columns: u32, lines: &[&str]) -> String {
        let head = format!("{HEAD}\nkind {kind}\nclock c\ntable t\ncolumns {columns}\nclient us\nbegin\n");
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        format!("{head}{lines}")
    }

    #[test]
    fn what_was_written_is_read() {
        let cases = [
            (
                "lists",
                0,
                vec![
                    "a append r 5 1 2 ok:5",
                    "a append r 6 3 4 ok",
                    "a get r - 5 6 ok:5,6",
                    "a get r - 7 8 ok:-",
                    "a get r - 9 10 unknown",
                ],
            ),
            (
                "registers",
                0,
                vec![
                    "a put r -5 1 2 refused",
                    "a delete r - 3 4 unknown",
                    "a increment r 1 5 6 ok:7",
                    "a increment r 1 7 8 ok",
                    "a check r -:9 9 10 ok:true",
                    "a check r -3:- 11 12 ok:false",
                    "a get r - 13 14 ok:9",
                ],
            ),
            ("rows", 16, vec!["a put r 5 1 2 ok", "a scan r - 3 4 ok:5*16", "a get r - 5 6 ok:5*10+6*6"]),
            ("rows", 16, vec!["a delete r - 1 2 ok"]),
            (
                "versions",
                0,
                vec![
                    "a put r 5 1 2 ok",
                    "a get r 3:9 3 4 ok:7,5",
                    "a scan r 3:5 5 6 ok:-",
                    "a delete r 5 7 8 refused",
                    "a get r 0:9 9 10 unknown",
                ],
            ),
        ];
        for (kind, columns, lines) in cases {
            let text = format!("{}end {}\n", text(kind, columns, &lines), lines.len());
            let history = read("f", &text).expect(kind);
            assert_eq!(write(&history), text);
            assert_eq!(history.place(&history.operations[0]), "f:8");
        }
    }

    #[test]
    fn garbage_is_met_with_the_line_and_the_reason() {
        for (lines, expected) in [
            (vec!["a append r 5 1 2"], "f:8: expected 7 words, found 6"),
            (vec!["a append r five 1 2 ok"], "f:8: \"five\" is no id"),
            (vec!["a append r +5 1 2 ok"], "f:8: \"+5\" is no id"),
            (vec!["a append r 5 1 2 ok", "a put r 5 3 4 ok"], "f:9: no action of lists: \"put\""),
            (vec!["a append r 5 -1 2 ok"], "f:8: \"-1\" is no time"),
            (vec!["a append r 5 1 2 yes"], "f:8: no result of this action: \"yes\""),
            (vec!["a get r - 1 2 ok"], "f:8: no result of this action: \"ok\""),
            (vec!["a get r - 1 2 refused"], "f:8: no result of this action"),
            (vec!["a get r 5 1 2 ok:5"], "f:8: get has no argument, found \"5\""),
            (vec!["a get r - 1 2 ok:5,,6"], "f:8: \"\" is no id"),
            (vec![" get r - 1 2 ok:5"], "f:8: a name has 1 to 200 bytes, this one 0"),
            (vec!["a append r 5 1 2 ok", "end 2"], "f:9: expected 2 operations, found 1"),
            (vec!["end none"], "f:8: \"none\" is no number of operations"),
            (vec!["end 0", "a"], "f:9: there is more after the end"),
            (vec!["a append r 5 1 2 ok"], "f: the line \"end\" is missing"),
        ] {
            let error = read("f", &text("lists", 0, &lines)).expect_err(expected);
            assert!(error.contains(expected), "{error}, expected {expected}");
        }
        let registers = |line: &str| read("f", &text("registers", 0, &[line])).expect_err(line);
        assert!(registers("a check r 5 1 2 ok:true").contains("\"5\" is not EXPECTED:NEW"));
        assert!(registers("a check r 5:6 1 2 ok").contains("no result of this action"));
        assert!(registers("a check r 5:6 1 2 ok:maybe").contains("no result of this action"));
        let rows = |line: &str| read("f", &text("rows", 16, &[line])).expect_err(line);
        assert!(rows("a get r - 1 2 ok:5").contains("is no run of columns"));
        assert!(rows("a get r - 1 2 ok:5*many").contains("is no number of columns"));
        let versions = |line: &str| read("f", &text("versions", 0, &[line])).expect_err(line);
        assert!(versions("a get r - 1 2 ok:5").contains("\"-\" is not FROM:TO"));
        assert!(versions("a scan r 1:x 1 2 ok:5").contains("\"x\" is no time"));
        assert!(versions("a delete r - 1 2 ok").contains("\"-\" is no number"));
        assert!(versions("a delete r 5 1 2 ok:5").contains("no result of this action"));
        assert!(versions("a increment r 5 1 2 ok").contains("no action of versions"));
    }

    #[test]
    fn a_head_is_whole() {
        for (whole, expected) in [
            ("", "f: the file is empty"),
            ("\u{0}\u{1}\n", "f:1: expected \"halcyon-history 1\""),
            ("halcyon-history 2\n", "f:1: expected \"halcyon-history 1\", found \"halcyon-history 2\""),
            ("halcyon-history 1\nkind lists\n", "the head has no end"),
            ("halcyon-history 1\nkind lists\nkind lists\n", "f:3: a second line \"kind\""),
            ("halcyon-history 1\nhello\n", "f:2: no line of a head: \"hello\""),
            ("halcyon-history 1\nbegin\n", "no line \"kind\""),
            ("halcyon-history 1\nkind lists\nclock\ntable t\nclient c\nbegin\n", "no line \"clock\""),
            (
                "halcyon-history 1\nkind graphs\nbegin\n",
                "no kind \"graphs\": lists, registers, rows or versions",
            ),
            ("halcyon-history 1\nkind rows\nbegin\n", "0 columns in a history of rows"),
            ("halcyon-history 1\nkind lists\ncolumns 4\nbegin\n", "4 columns in a history of lists"),
            ("halcyon-history 1\nkind lists\ncolumns x\nbegin\n", "\"x\" is no number of columns"),
        ] {
            let error = read("f", whole).expect_err(expected);
            assert!(error.contains(expected), "{error}, expected {expected}");
        }
    }

    #[test]
    fn long_garbage_is_quoted_in_part() {
        let error = read("f", &"ä".repeat(10_000)).unwrap_err();
        assert!(error.len() < 300, "{}", error.len());
    }

    #[test]
    fn damaged_files_are_errors_and_no_panics() {
        let lines = ["a append r 5 1 2 ok:5", "a get r - 5 6 ok:5", "end 2"];
        let whole = text("lists", 0, &lines).into_bytes();
        let mut dice = halcyon_env::sim::Dice::new(1);
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..dice.between(1, 4) {
                let at = dice.below(bytes.len());
                bytes[at] = dice.next_u64() as u8 & 0x7f;
            }
            bytes.truncate(dice.between(0, bytes.len()));
            if let Ok(history) = read("f", &String::from_utf8_lossy(&bytes)) {
                assert!(history.operations.len() <= 2);
            }
        }
    }
}
