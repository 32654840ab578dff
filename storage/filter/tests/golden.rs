//! HBase's own answers, recorded by `testing/compat/golden/FilterGolden.java`, compared with ours.

#![allow(clippy::disallowed_methods)] // reads testdata

mod common;

use common::{Table, hex, scan_lines, table};
use halcyon_cell::Cell;
use halcyon_filter::{ReturnCode, parse_comparator, parse_filter};
use halcyon_proto::pb;
use prost::Message;

fn testdata_path(name: &str) -> String {
    format!("{}/testdata/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn testdata(name: &str) -> String {
    std::fs::read_to_string(testdata_path(name)).unwrap()
}

#[test]
fn every_class_parses_from_the_bytes_of_the_java_client() {
    for line in testdata("classes.txt").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "comparator" => {
                let message = pb::Comparator::decode(hex(words[2])).unwrap();
                parse_comparator(&message).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            "filter" => {
                let message = pb::Filter::decode(hex(words[2])).unwrap();
                parse_filter(&message).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            "fuzzy" => {
                let message = pb::Filter::decode(hex(words[1])).unwrap();
                for expected in &words[2..] {
                    let (row, matches) = expected.split_once('=').unwrap();
                    let row = row.replace('.', "\0");
                    let cell = Cell::put(row.as_bytes(), b"f", b"q", 1, b"v");
                    let code = parse_filter(&message).unwrap().filter_cell(cell.get()).unwrap();
                    assert_eq!(code == ReturnCode::Include, matches == "1", "{line}: {row}");
                }
            }
            other => panic!("unknown line {other}"),
        }
    }
}

#[test]
fn scans_decide_as_hbase_does() {
    let text = testdata("decisions.txt");
    let cells = text.lines().filter_map(|line| line.strip_prefix("cell "));
    let table: Table = table(cells.map(|line| {
        let (_, bytes) = line.split_once(' ').unwrap();
        Cell::parse(hex(bytes), 0).unwrap()
    }));
    let mut cases = 0;
    let mut failures = Vec::new();
    for case in text.split("\ncase ").skip(1) {
        let mut lines = case.lines();
        let title = lines.next().unwrap();
        let filter = pb::Filter::decode(hex(lines.next().unwrap())).unwrap();
        let reversed = title.split(' ').nth(1) == Some("reversed");
        let expected: Vec<&str> = lines.collect();
        let found = scan_lines(&filter, reversed, &table);
        if found != expected {
            let at = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            let at = at.unwrap_or(found.len().min(expected.len()));
            let none = || "nothing".to_string();
            let (found, expected) = (found.get(at).cloned().unwrap_or_else(none), expected.get(at));
            failures.push(format!("case {title}\n  HBase  {expected:?}\n  we     {found:?}"));
        }
        cases += 1;
    }
    assert!(cases >= 480, "only {cases} cases in the file");
    assert!(failures.is_empty(), "{} of {cases} differ:\n{}", failures.len(), failures.join("\n"));
}

/// Java's answer for each pattern and text. Patterns that Java takes and we refuse are named in the file
/// `patterns-refused.txt` (written anew with HALCYON_REWRITE=1), so that the list is seen to shrink or grow.
#[test]
fn patterns_match_as_java_does() {
    let text = testdata("patterns.txt");
    let texts: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("text ")).map(hex).collect();
    let mut failures = Vec::new();
    let mut refused = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("pattern ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let (flags, expected) = (words[1].parse().unwrap(), words[2]);
        let pattern = String::from_utf8(hex(words[0]).to_vec()).unwrap();
        let message = pb::RegexStringComparator {
            pattern: pattern.clone(),
            pattern_flags: flags,
            charset: "UTF-8".to_string(),
            engine: Some("JAVA".to_string()),
        };
        let comparator = match parse_comparator(&common::comparator("RegexStringComparator", &message)) {
            Ok(_) if expected == "refused" => {
                failures.push(format!("{pattern:?} flags {flags}: Java refuses it"));
                continue;
            }
            Err(_) if expected == "refused" => continue,
            Err(error) => {
                refused.push(format!("flags {flags}: {error}\n"));
                continue;
            }
            Ok(comparator) => comparator,
        };
        for (text, expected) in texts.iter().zip(expected.chars()) {
            let found = match comparator.compare(text) {
                Ok(order) => {
                    if order.is_eq() {
                        '1'
                    } else {
                        '0'
                    }
                }
                Err(_) => 'E',
            };
            if found != expected {
                let text = String::from_utf8_lossy(text);
                failures.push(format!("{pattern:?} flags {flags} on {text:?}: Java {expected}, we {found}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    if std::env::var_os("HALCYON_REWRITE").is_some() {
        std::fs::write(testdata_path("patterns-refused.txt"), refused.concat()).unwrap();
    }
    assert_eq!(refused.concat(), testdata("patterns-refused.txt"));
}
