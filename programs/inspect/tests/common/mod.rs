//! Runs `halcyon inspect` in this process.
#![allow(dead_code, clippy::disallowed_methods)] // files from outside; each test uses its part

use std::path::{Path, PathBuf};

use clap::Parser;
use halcyon_env::Env;
use halcyon_inspect::{InspectArgs, inspect};
use serde_json::Value;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    inspect: InspectArgs,
}

/// The exit code, and what was printed.
pub fn run(env: &Env, arguments: &[&str]) -> (u8, String) {
    let arguments = Arguments::try_parse_from([&["inspect"], arguments].concat());
    let arguments = arguments.unwrap_or_else(|error| panic!("{error}"));
    let mut out = Vec::new();
    let code = inspect(env, &arguments.inspect, &mut out);
    let text = String::from_utf8(out).expect("output is text");
    match code {
        Ok(code) => (code, text),
        Err(sentence) => (2, text + &sentence),
    }
}

/// As `run`, with `--json`: the records.
pub fn records(env: &Env, arguments: &[&str]) -> (u8, Vec<Value>) {
    let (code, text) = run(env, &[arguments, &["--json"]].concat());
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")));
    (code, records.collect())
}

pub fn of_kind<'a>(records: &'a [Value], kind: &str) -> Vec<&'a Value> {
    records.iter().filter(|record| record["record"] == kind).collect()
}

/// Files that HBase wrote.
pub fn golden(crate_name: &str, extension: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../storage").join(crate_name).join("testdata");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    assert!(files.len() > 4, "{files:?}");
    files
}
