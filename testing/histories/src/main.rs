//! `halcyon-histories`: records histories and checks them.

#![allow(clippy::disallowed_methods)] // a tool for people: real files

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use halcyon_histories::record::{RecordArgs, record};
use halcyon_histories::{Limits, Verdict, check_files};

/// Arguments that make no sense.
const USAGE: u8 = 64;
/// Files that are no histories.
const NO_HISTORY: u8 = 65;
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
    /// 2 one is not decided within the limits, 64 wrong arguments, 65 a file is no whole history.
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
    results.iter().for_each(|(history, report)| print!("{}", report.text(history)));
    let has = |verdict| results.iter().any(|(_, report)| report.verdict() == verdict);
    match (has(Verdict::Violated), has(Verdict::NotDecided)) {
        (true, _) => ExitCode::from(1),
        (false, true) => ExitCode::from(2),
        (false, false) => ExitCode::SUCCESS,
    }
}
