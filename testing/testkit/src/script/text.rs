//! Scripts as text.
//!
//! ```text
//! seed 7
//! start 1000000
//! family f versions=3 min_versions=1 ttl=400 keep=ttl new_version_behavior
//! write put a f:q 999950 =v1 ttl=50 ; delete_column a f:q 999900
//! get a versions=2 columns=f:q,g time=0..5
//! scan from=a until=c reversed raw limit=1 store_limit=2 store_offset=1 batch=3 time:f=2..
//! flush | compact | compact major | reopen | crash | advance 30
//! ```
//!
//! `pad=2000` fills a value with dots up to so many bytes. In names and values, bytes outside the printable ones and `\ , ; : =` are written as `\xNN`.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use halcyon_cell::{Cell, CellType, TagType, append_tag};

use super::{Script, Step};
use crate::{FamilyOptions, KeepDeletedCells, OracleScan, TimeRange};

const TYPES: [(&str, CellType); 5] = [
    ("put", CellType::Put),
    ("delete", CellType::Delete),
    ("delete_family_version", CellType::DeleteFamilyVersion),
    ("delete_column", CellType::DeleteColumn),
    ("delete_family", CellType::DeleteFamily),
];

const KEEPS: [(&str, KeepDeletedCells); 3] =
    [("false", KeepDeletedCells::False), ("true", KeepDeletedCells::True), ("ttl", KeepDeletedCells::Ttl)];

/// Fewer dots are written out.
const PADDING_LEN_MIN: usize = 16;

pub(super) fn write_script(f: &mut fmt::Formatter<'_>, script: &Script) -> fmt::Result {
    writeln!(f, "seed {}", script.seed)?;
    writeln!(f, "start {}", script.start_ms)?;
    for family in &script.families {
        write!(f, "family {} versions={}", escape(&family.name), family.versions_max)?;
        if family.min_versions > 0 {
            write!(f, " min_versions={}", family.min_versions)?;
        }
        if let Some(ttl_ms) = family.ttl_ms {
            write!(f, " ttl={ttl_ms}")?;
        }
        let keep = KEEPS.iter().find(|(_, keep)| *keep == family.keep_deleted_cells);
        write!(f, " keep={}", keep.expect("all are listed").0)?;
        writeln!(f, "{}", if family.new_version_behavior { " new_version_behavior" } else { "" })?;
    }
    script.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
}

pub(super) fn write_step(f: &mut fmt::Formatter<'_>, step: &Step) -> fmt::Result {
    match step {
        Step::Write(cells) => {
            let cells: Vec<String> = cells.iter().map(show_cell).collect();
            write!(f, "write {}", cells.join(" ; "))
        }
        Step::Read(scan) => write_scan(f, scan),
        Step::Flush => write!(f, "flush"),
        Step::Compact { major: false } => write!(f, "compact"),
        Step::Compact { major: true } => write!(f, "compact major"),
        Step::Reopen => write!(f, "reopen"),
        Step::Crash => write!(f, "crash"),
        Step::Advance(ms) => write!(f, "advance {ms}"),
    }
}

fn show_cell(cell: &Cell) -> String {
    let (name, _) = TYPES.iter().find(|(_, it)| *it == cell.cell_type()).expect("all are listed");
    let [row, family, qualifier] = [cell.row(), cell.family(), cell.qualifier()].map(escape);
    let mut out = format!("{name} {row} {family}:{qualifier} {}", cell.timestamp());
    let value = cell.value();
    let unpadded = value.len() - value.iter().rev().take_while(|byte| **byte == b'.').count();
    let is_padded = value.len() - unpadded >= PADDING_LEN_MIN;
    let shown = if is_padded { &value[..unpadded] } else { value };
    if !shown.is_empty() {
        let _ = write!(out, " ={}", escape(shown));
    }
    if is_padded {
        let _ = write!(out, " pad={}", value.len());
    }
    if let Some(ttl_ms) = ttl_of(cell) {
        let _ = write!(out, " ttl={ttl_ms}");
    }
    out
}

fn ttl_of(cell: &Cell) -> Option<i64> {
    let tag = cell.get().tag_iter().find(|tag| tag.tag_type == TagType::TTL)?;
    Some(i64::from_be_bytes(tag.value.try_into().ok()?))
}

fn write_scan(f: &mut fmt::Formatter<'_>, scan: &OracleScan) -> fmt::Result {
    if scan.is_get() {
        write!(f, "get {}", escape(&scan.start_row))?;
    } else {
        write!(f, "scan")?;
        for (row, inclusive, words) in [
            (&scan.start_row, scan.start_inclusive, ["after", "from"]),
            (&scan.stop_row, scan.stop_inclusive, ["until", "through"]),
        ] {
            if !row.is_empty() {
                write!(f, " {}={}", words[usize::from(inclusive)], escape(row))?;
            }
        }
    }
    write!(f, " versions={}", scan.versions_max)?;
    for (word, is_set) in [("reversed", scan.reversed), ("raw", scan.raw)] {
        if is_set {
            write!(f, " {word}")?;
        }
    }
    if !scan.columns.is_empty() {
        let mut names = Vec::new();
        for (family, qualifiers) in &scan.columns {
            match qualifiers {
                None => names.push(escape(family)),
                Some(asked) => {
                    names.extend(asked.iter().map(|it| format!("{}:{}", escape(family), escape(it))));
                }
            }
        }
        write!(f, " columns={}", names.join(","))?;
    }
    if scan.time_range != TimeRange::ALL {
        write!(f, " time={}", show_range(scan.time_range))?;
    }
    for (family, range) in &scan.family_time_ranges {
        write!(f, " time:{}={}", escape(family), show_range(*range))?;
    }
    let offset = (scan.store_offset > 0).then_some(scan.store_offset);
    for (word, count) in [
        ("limit", scan.limit),
        ("store_limit", scan.store_limit),
        ("store_offset", offset),
        ("batch", scan.batch),
    ] {
        if let Some(count) = count {
            write!(f, " {word}={count}")?;
        }
    }
    Ok(())
}

fn show_range(range: TimeRange) -> String {
    if range.max == i64::MAX { format!("{}..", range.min) } else { format!("{}..{}", range.min, range.max) }
}

pub(super) fn parse_script(text: &str) -> Result<Script, String> {
    let mut script = Script { seed: 0, families: Vec::new(), start_ms: 0, steps: Vec::new() };
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            parse_line(&mut script, line).map_err(|error| format!("line {}: {error}", number + 1))?;
        }
    }
    Ok(script)
}

fn parse_line(script: &mut Script, line: &str) -> Result<(), String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let step = match (verb, rest) {
        ("seed", _) => return set(&mut script.seed, rest),
        ("start", _) => return set(&mut script.start_ms, rest),
        ("family", _) => {
            script.families.push(parse_family(rest)?);
            return Ok(());
        }
        ("write", _) => Step::Write(rest.split(" ; ").map(parse_cell).collect::<Result<_, _>>()?),
        ("get", _) => {
            let (row, options) = rest.split_once(' ').unwrap_or((rest, ""));
            Step::Read(parse_scan(OracleScan::get(&unescape(row)?), options)?)
        }
        ("scan", _) => Step::Read(parse_scan(OracleScan::all(), rest)?),
        ("flush", "") => Step::Flush,
        ("compact", "") => Step::Compact { major: false },
        ("compact", "major") => Step::Compact { major: true },
        ("reopen", "") => Step::Reopen,
        ("crash", "") => Step::Crash,
        ("advance", _) => Step::Advance(number(rest)?),
        _ => return Err(format!("unknown step {line:?}")),
    };
    script.steps.push(step);
    Ok(())
}

fn parse_family(rest: &str) -> Result<FamilyOptions, String> {
    let mut words = rest.split_whitespace();
    let mut family = FamilyOptions::new(&unescape(words.next().ok_or("a family has a name")?)?);
    for word in words {
        match word.split_once('=') {
            None if word == "new_version_behavior" => family.new_version_behavior = true,
            Some(("versions", count)) => family.versions_max = number(count)?,
            Some(("min_versions", count)) => family.min_versions = number(count)?,
            Some(("ttl", ms)) => family.ttl_ms = Some(number(ms)?),
            Some(("keep", keep)) => family.keep_deleted_cells = named(&KEEPS, keep)?,
            _ => return Err(format!("unknown setting {word:?}")),
        }
    }
    Ok(family)
}

fn parse_cell(text: &str) -> Result<Cell, String> {
    let mut words = text.split_whitespace();
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{text:?} has no {what}"));
    let cell_type = named(&TYPES, next("type")?)?;
    let row = unescape(next("row")?)?;
    let column = next("column")?;
    let (family, qualifier) = column.split_once(':').ok_or_else(|| format!("no colon in {column:?}"))?;
    let timestamp = number(next("timestamp")?)?;
    let (mut value, mut tags) = (Vec::new(), Vec::new());
    for word in words {
        match word.split_once('=') {
            Some(("", text)) => value = unescape(text)?,
            Some(("pad", len)) => value.resize(number(len)?, b'.'),
            Some(("ttl", ms)) => append_tag(&mut tags, TagType::TTL, &number::<i64>(ms)?.to_be_bytes()),
            _ => return Err(format!("unknown word {word:?}")),
        }
    }
    Ok(Cell::build(&row, &unescape(family)?, &unescape(qualifier)?, timestamp, cell_type, &value, &tags, 0))
}

fn parse_scan(mut scan: OracleScan, options: &str) -> Result<OracleScan, String> {
    for word in options.split_whitespace() {
        match word.split_once('=') {
            Some(("from", row)) => (scan.start_row, scan.start_inclusive) = (unescape(row)?, true),
            Some(("after", row)) => (scan.start_row, scan.start_inclusive) = (unescape(row)?, false),
            Some(("until", row)) => (scan.stop_row, scan.stop_inclusive) = (unescape(row)?, false),
            Some(("through", row)) => (scan.stop_row, scan.stop_inclusive) = (unescape(row)?, true),
            Some(("versions", count)) => scan.versions_max = number(count)?,
            None if word == "reversed" => scan.reversed = true,
            None if word == "raw" => scan.raw = true,
            Some(("columns", names)) => {
                for name in names.split(',') {
                    scan = match name.split_once(':') {
                        Some((family, qualifier)) => scan.column(&unescape(family)?, &unescape(qualifier)?),
                        None => scan.family(&unescape(name)?),
                    };
                }
            }
            Some(("time", range)) => scan.time_range = parse_range(range)?,
            Some(("limit", count)) => scan.limit = Some(number(count)?),
            Some(("store_limit", count)) => scan.store_limit = Some(number(count)?),
            Some(("store_offset", count)) => scan.store_offset = number(count)?,
            Some(("batch", count)) => scan.batch = Some(number(count)?),
            Some((name, range)) if name.starts_with("time:") => {
                scan.family_time_ranges.insert(unescape(&name["time:".len()..])?, parse_range(range)?);
            }
            _ => return Err(format!("unknown word {word:?}")),
        }
    }
    if scan.raw && scan.columns.values().any(|it: &Option<BTreeSet<_>>| it.is_some()) {
        return Err("a raw scan asks for no columns".to_string());
    }
    Ok(scan)
}

fn parse_range(text: &str) -> Result<TimeRange, String> {
    let (min, max) = text.split_once("..").ok_or_else(|| format!("no range: {text:?}"))?;
    let max = if max.is_empty() { i64::MAX } else { number(max)? };
    Ok(TimeRange { min: number(min)?, max })
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("not a number here: {text:?}"))
}

fn set<T: std::str::FromStr>(field: &mut T, text: &str) -> Result<(), String> {
    *field = number(text)?;
    Ok(())
}

fn named<T: Copy>(names: &[(&str, T)], name: &str) -> Result<T, String> {
    names
        .iter()
        .find(|(it, _)| *it == name)
        .map(|(_, it)| *it)
        .ok_or_else(|| format!("unknown word {name:?}"))
}

fn escape(bytes: &[u8]) -> String {
    let mut out = String::new();
    for &byte in bytes {
        if byte.is_ascii_graphic() && !br"\,;:=".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        out.extend_from_slice(before.as_bytes());
        let digits = after.get(..2).ok_or_else(|| format!("cut off: {text:?}"))?;
        out.push(u8::from_str_radix(digits, 16).map_err(|_| format!("no hex digits in {text:?}"))?);
        rest = &after[2..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_random_script_reads_back() {
        for seed in 0..200 {
            let script = Script::random(seed, 60);
            let text = script.to_string();
            assert_eq!(Script::parse(&text).as_ref(), Ok(&script), "{text}");
            assert_eq!(script, Script::random(seed, 60));
        }
    }

    #[test]
    fn text_of_one_of_each() {
        let text = "seed 7\nstart 1000000\nfamily f versions=3 min_versions=1 ttl=400 keep=ttl\n\
            family g versions=1 keep=false new_version_behavior\n\
            write put a f:q 5 =v\\x3a1 pad=30 ttl=50 ; delete_column a\\x00 f:q 4\n\
            get a versions=2 columns=f:q,g time=0..5\n\
            scan from=a until=c versions=1 reversed raw time:f=2.. limit=1 store_limit=2 store_offset=1 batch=3\n\
            flush\ncompact\ncompact major\nreopen\ncrash\nadvance 30\n";
        assert_eq!(Script::parse(text).unwrap().to_string(), text);
        for bad in ["write put", "scan raw columns=f:q", "scan versions=x", "fly", "compact all"] {
            assert!(Script::parse(bad).is_err(), "{bad}");
        }
    }
}
