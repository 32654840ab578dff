//! `halcyon-engine-bench`: our engine alone, and beside RocksDB.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use halcyon_allocator::Allocator;
use halcyon_bench::compare::{Contender, compare};
use halcyon_bench::halcyon::HalcyonEngine;
use halcyon_bench::plan::Plan;
use halcyon_bench::{Failure, run};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// As in the server.
const FREE_MEMORY_KEEP_TIME: Duration = Duration::from_millis(10);

#[derive(Parser)]
#[command(about = "Measures the storage engine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Our engine once; one line for each load
    Run {
        #[command(flatten)]
        plan: Plan,
    },
    /// Our engine and another in turns; medians side by side
    Compare {
        #[command(flatten)]
        plan: Plan,
        /// The program that holds the other engine; without it ours runs alone
        #[arg(long)]
        beside: Option<PathBuf>,
        #[arg(long, default_value_t = 3)]
        repetitions: usize,
    },
}

fn main() -> ExitCode {
    halcyon_allocator::set_keep_time(FREE_MEMORY_KEEP_TIME);
    let done = match Arguments::parse().command {
        Command::Run { plan } => run(&plan, HalcyonEngine::open),
        Command::Compare { plan, beside, repetitions } => compare_with(&plan, beside, repetitions),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("halcyon-engine-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare_with(plan: &Plan, beside: Option<PathBuf>, repetitions: usize) -> Result<(), Failure> {
    let mut contenders = vec![Contender { name: "halcyon", program: std::env::current_exe()? }];
    contenders.extend(beside.map(|program| Contender { name: "rocksdb", program }));
    compare(plan, &contenders, repetitions.max(1))
}
