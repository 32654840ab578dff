//! Lines that nobody means: the shell answers each with a result or an error. It never panics, hangs or grows.
//!
//! `cargo xtask fuzz shell` runs these tests again and again, each time with another `HALCYON_SEED`.

use std::time::Duration;

use halcyon_client::{ClusterAddress, ClusterOptions, RetryPolicy};
use halcyon_env::sim::Dice;

use crate::ShellError;
use crate::commands::{Context, execute};
use crate::help;
use crate::parse::{Command, ParseError, parse};
use crate::print::Printer;
use crate::value::{Map, Value};

/// `HALCYON_SEED` gives another sequence.
fn dice(number: u64) -> Dice {
    let shift = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0_u64);
    Dice::new(number ^ shift.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// What lines consist of, in any order.
const PIECES: &[&str] = &[
    "'",
    "\"",
    "\\",
    "\\x",
    "\\u{",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "=>",
    "=",
    ",",
    ";",
    "\n",
    "\r\n",
    "#",
    "a",
    "é",
    "\u{1F600}",
    "\0",
    "9",
    "-",
    "-9223372036854775808",
    "99999999999999999999",
    "1e400",
    "1_0",
    ".",
    "nil",
    "true",
    "get 't', 'r'",
    "scan 't', {LIMIT => 1}",
    "STARTROW",
    "NAME",
    " ",
    "\t",
];

/// What a command may be told, and what it is not meant to be told.
const WORDS: &[&str] = &[
    "",
    "t",
    "ns:t",
    "a:b:c",
    ":",
    "f:q",
    "f:q:toInt",
    "f:q:",
    "*",
    ".*",
    "[",
    "\0",
    "é",
    "-1",
    "0",
    "true",
    "SPLIT",
    "summary",
    "PrefixFilter('a')",
    "ValueFilter(=,'",
    "1588230740",
    "0123456789abcdef0123456789abcdef",
    "t,,1.x.",
    "localhost,1,1",
    "HexStringSplit",
    "UniformSplit",
    "/nowhere/splits",
];

const KEYS: &[&str] = &[
    "NAME",
    "VERSIONS",
    "TTL",
    "SPLITS",
    "SPLITS_FILE",
    "NUMREGIONS",
    "SPLITALGO",
    "METHOD",
    "METADATA",
    "CONFIGURATION",
    "COLUMN",
    "COLUMNS",
    "STARTROW",
    "STOPROW",
    "LIMIT",
    "CACHE",
    "BATCH",
    "RAW",
    "REVERSED",
    "FILTER",
    "TIMERANGE",
    "TIMESTAMP",
    "ROWPREFIXFILTER",
    "MAXLENGTH",
    "INTERVAL",
    "SKIP_FLUSH",
    "SERVER_NAME",
    "delete",
    "CLUSTER_KEY",
    "CONFIG",
    "DATA",
    "ENDPOINT_CLASSNAME",
    "FILTER_BY_OP",
    "GLOBAL_BYPASS",
    "NAMESPACE",
    "NAMESPACES",
    "POLICY",
    "REGIONSERVER",
    "SCOPE",
    "SERIAL",
    "STATE",
    "TABLE",
    "TABLE_CFS",
    "THROTTLE_TYPE",
    "TYPE",
    "USER",
    "READ_TYPE",
    "x",
];

fn line(dice: &mut Dice) -> String {
    let count = 1 + dice.below(16);
    (0..count).map(|_| dice.pick(PIECES)).collect()
}

/// A line that can be typed, with a few characters changed.
fn damaged_line(dice: &mut Dice, lines: &[&str]) -> String {
    let mut characters: Vec<char> = dice.pick(lines).chars().collect();
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(characters.len() + 1);
        match dice.below(4) {
            0 => characters.truncate(at),
            1 => characters.splice(at..at, dice.pick(PIECES).chars()).for_each(drop),
            2 if at < characters.len() => drop(characters.remove(at)),
            _ => characters.extend(dice.pick(PIECES).chars()),
        }
    }
    characters.into_iter().collect()
}

fn value(dice: &mut Dice, depth: usize) -> Value {
    match dice.below(if depth == 0 { 7 } else { 9 }) {
        0 => Value::Text(dice.pick(WORDS).as_bytes().to_vec()),
        1 => Value::Word(dice.pick(WORDS).to_string()),
        2 => Value::Integer(dice.pick(&[i64::MIN, -1, 0, 1, 2, 100, 4_294_967_295, i64::MAX])),
        3 => Value::Float(dice.pick(&[0.5, -1.0, f64::NAN, f64::INFINITY])),
        4 => Value::Flag(dice.one_in(2)),
        5 => Value::Nil,
        6 => {
            let count = dice.below(8);
            Value::Text(dice.bytes(count))
        }
        7 => Value::List((0..dice.below(4)).map(|_| value(dice, depth - 1)).collect()),
        _ => {
            let pair = |dice: &mut Dice| (dice.pick(KEYS).to_string(), value(dice, depth - 1));
            Value::Map(Map((0..dice.below(4)).map(|_| pair(dice)).collect()))
        }
    }
}

#[test]
fn garbage_lines_end_in_a_result() {
    let mut dice = dice(1);
    let lines: Vec<&str> = help::examples().collect();
    let mut wrong_count = 0;
    for _ in 0..20_000 {
        let line = match dice.one_in(2) {
            true => line(&mut dice),
            false => damaged_line(&mut dice, &lines),
        };
        if let Err(ParseError::Wrong { at, message }) = parse(&line) {
            assert!(at <= line.len() && !message.is_empty(), "{line:?}");
            wrong_count += 1;
        }
    }
    assert!(wrong_count > 1_000, "{wrong_count} lines were wrong: they test too little");
}

/// Values of all kinds at all places, without a cluster: what is not refused as usage finds nobody to talk to.
#[test]
fn garbage_arguments_end_in_an_error() {
    let options = ClusterOptions {
        operation_timeout: Duration::from_millis(1),
        retry: RetryPolicy { retries_max: 0, ..RetryPolicy::default() },
        ..ClusterOptions::default()
    };
    let address =
        ClusterAddress::ZooKeeper { quorum: vec!["127.0.0.1:1".to_string()], base: "/hbase".to_string() };
    let mut context = Context::new(address, options, Printer::nowhere(true));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime of one thread");
    let names: Vec<&str> = help::names().filter(|name| *name != "exit").collect();
    let (mut dice, mut usage_count, mut cluster_count) = (dice(2), 0, 0);
    for _ in 0..3_000 {
        let arguments = (0..dice.below(6)).map(|_| value(&mut dice, 3)).collect();
        let command = Command { name: dice.pick(&names).to_string(), arguments };
        let said = format!("{command:?}");
        match runtime.block_on(execute(&mut context, command)) {
            Ok(()) => assert!(["help", "whoami"].iter().any(|name| said.contains(name)), "{said}"),
            Err(ShellError::Usage(text)) => {
                assert!(!text.is_empty(), "{said}");
                usage_count += 1;
            }
            Err(ShellError::Cluster(_)) => cluster_count += 1,
            // a file of splits that does not exist
            Err(ShellError::Io(_)) => assert!(said.contains("SPLITS_FILE"), "{said}"),
            Err(ShellError::Interrupted) => panic!("nobody interrupts: {said}"),
        }
    }
    assert!(
        usage_count > 500 && cluster_count > 100,
        "{usage_count} refused, {cluster_count} found no cluster"
    );
}
