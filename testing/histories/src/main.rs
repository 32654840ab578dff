//! `halcyon-histories`: records histories and checks them.

#![allow(clippy::disallowed_methods)] // a tool for people: real files

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use halcyon_histories::coverage::{self, Event, Least};
use halcyon_histories::record::{RecordArgs, record};
use halcyon_histories::{Limits, Verdict, check_files};

/// Arguments that make no sense.
const USAGE: u8 = 64;
/// Files that are no histories.
const NO_HISTORY: u8 = 65;
/// Histories that are linearizable and do not show enough.
const TOO_LITTLE: u8 = 3;
/// The cluster could not be used.
const UNAVAILABLE: u8 = 69;

/// Record histories of operations on HBase or Halcyon, and check that they are linearizable.
#[derive(Debug, Parser)]
#[command(name = "halcyon-histories", version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check histories.
    ///
    /// Files of the same kind and table are checked together. Exit status: 0 all are linearizable, 1 one is not,
    /// 2 one is not decided within the limits, 3 one has too few answers during a fault or too few aged reads, 64 wrong
    /// arguments, 65 a file is no whole history.
    Check(CheckArgs),
    /// Work on a table with the Rust client and record a history.
    ///
    /// The table must exist. Exit status: 0 the history is whole, 64 wrong arguments, 69 the cluster could not be used.
    Record(RecordArgs),
}

#[derive(Debug, clap::Args)]
struct CheckArgs {
    /// Files of histories.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Longest search for one row.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u64,
    /// States that the search for one row may remember; 4 million are about a gigabyte.
    #[arg(long, value_name = "COUNT", default_value_t = 4_000_000)]
    states: usize,
    /// What happened to the cluster: lines of "fault|flush|compact|replay NAME FROM TO", times as in histories.
    #[arg(long, value_name = "FILE")]
    events: Option<PathBuf>,
    /// Operations of each client that were acknowledged during each fault of the events.
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "events")]
    least_answers: u64,
    /// Reads of what was written before a flush, a compaction and a replay of the events.
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "events")]
    least_aged: u64,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match args.command {
        Command::Check(args) => check(&args),
        Command::Record(args) => match record(&args) {
            Ok(summary) => {
                println!("{summary}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                eprintln!("halcyon-histories: {why}");
                ExitCode::from(UNAVAILABLE)
            }
        },
    }
}

fn check(args: &CheckArgs) -> ExitCode {
    let limits =
        Limits { time: Duration::from_secs(args.seconds), states_max: args.states, ..Limits::default() };
    let results = match check_files(&args.files, &limits) {
        Ok(results) => results,
        Err(why) => {
            eprintln!("halcyon-histories: {why}");
            return ExitCode::from(NO_HISTORY);
        }
    };
    let events = match args.events.as_deref().map(read_events).transpose() {
        Ok(events) => events,
        Err(why) => {
            eprintln!("halcyon-histories: {why}");
            return ExitCode::from(NO_HISTORY);
        }
    };
    let least = Least { answers: args.least_answers, aged_reads: args.least_aged };
    let mut is_enough = true;
    for (history, report) in &results {
        print!("{}", report.text(history));
        let Some(events) = &events else { continue };
        let (shown, missing) = coverage::judge(history, events, least);
        shown.iter().for_each(|text| println!("  {text}"));
        missing.iter().for_each(|text| println!("  TOO LITTLE: {text}"));
        is_enough &= missing.is_empty();
    }
    let has = |verdict| results.iter().any(|(_, report)| report.verdict() == verdict);
    match (has(Verdict::Violated), has(Verdict::NotDecided)) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::from(2),
        (false, false) if is_enough => ExitCode::SUCCESS,
        (false, false) => ExitCode::from(TOO_LITTLE),
    }
}

fn read_events(path: &Path) -> Result<Vec<Event>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    coverage::read(&path.display().to_string(), &text)
}
