//! Runs seeds of the simulated cluster, and prints those that fail (`make sim`).

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::process::ExitCode;

use clap::Parser;
use halcyon_env::{Clock, SystemClock};
use halcyon_sim::{Options, simulate};

/// A whole cluster from one seed: the real master over models of all else.
#[derive(Parser)]
struct Args {
    /// How many seeds
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Real region servers, and not models of them
    #[arg(long)]
    real: bool,
    /// A run ends when so many seeds have failed
    #[arg(long, default_value_t = 10)]
    failures: usize,
    /// Prints what is done to the cluster, and what masters and servers log
    #[arg(long)]
    told: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let clock = SystemClock::new();
    let begun_ns = clock.monotonic_ns();
    if args.told {
        let told = tracing_subscriber::fmt().without_time().with_thread_names(true).with_ansi(false);
        told.with_writer(std::io::stdout).init();
    }
    let options = Options { is_told: args.told, is_real: args.real, ..Options::default() };
    let (mut failed, mut run, mut counts) = (Vec::new(), 0_u64, BTreeMap::<&str, u64>::new());
    let (mut settled, mut turns, mut simulated_s) = (Vec::new(), 0, 0.0);
    for seed in args.first..args.first + args.seeds {
        run += 1;
        match catch_unwind(|| simulate(seed, options)) {
            Ok(report) => {
                report.counts.iter().for_each(|(what, count)| *counts.entry(what).or_default() += count);
                settled.push(report.settled);
                turns += report.turns;
                simulated_s += report.simulated.as_secs_f64();
            }
            Err(_) => {
                println!(
                    "seed {seed} fails\nrepeat: HALCYON_SEED={seed} cargo test -p halcyon-sim --test seeds"
                );
                failed.push(seed);
            }
        }
        if failed.len() >= args.failures {
            break;
        }
    }
    let time_s = (clock.monotonic_ns() - begun_ns) as f64 / 1e9;
    settled.sort();
    println!("{run} seeds from {} in {time_s:.1} s, {:.1} a second", args.first, run as f64 / time_s);
    println!("{simulated_s:.0} simulated seconds, {turns} turns of threads");
    if let (Some(median), Some(worst)) = (settled.get(settled.len() / 2), settled.last()) {
        println!("all open after the faults: median {median:.1?}, worst {worst:.1?}");
    }
    println!(
        "{}",
        counts.iter().map(|(what, count)| format!("{what} {count}")).collect::<Vec<_>>().join(", ")
    );
    println!("{} failed: {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
