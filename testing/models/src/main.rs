//! Explores all models, or some, and prints what was found (`make models`).

use std::process::ExitCode;

use clap::Parser;
use halcyon_env::{Clock, SystemClock};
use halcyon_models::{Counterexample, Entry, Outcome, Size};

/// The cluster's protocols, explored state by state
#[derive(Parser)]
struct Args {
    /// Models to explore; all by default
    models: Vec<String>,
    /// Only this deliberate fault, and how it breaks a rule
    #[arg(long)]
    flaw: Option<String>,
    /// The small bounds of the tests
    #[arg(long)]
    small: bool,
    /// Leaves the flaws out
    #[arg(long)]
    without_flaws: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let clock = SystemClock::new();
    let size = if args.small { Size::Small } else { Size::Full };
    let mut is_good = true;
    let wanted = |entry: &Entry| args.models.is_empty() || args.models.iter().any(|name| name == entry.name);
    for entry in halcyon_models::all().into_iter().filter(wanted) {
        let begun_ns = clock.monotonic_ns();
        let seconds = |since_ns: u64| clock.monotonic_ns().saturating_sub(since_ns) as f64 / 1e9;
        if args.flaw.is_none() {
            let outcome = entry.explore(size, None);
            is_good &= outcome.broken.is_none() && outcome.missing.is_empty();
            println!("{}: {} ({:.1} s)", entry.name, told(&outcome), seconds(begun_ns));
            outcome.broken.iter().for_each(show);
        }
        for (at, flaw) in entry.flaws.iter().enumerate() {
            if args.without_flaws || args.flaw.as_ref().is_some_and(|asked| asked != flaw) {
                continue;
            }
            let begun_ns = clock.monotonic_ns();
            let outcome = entry.explore(size, Some(at));
            match &outcome.broken {
                Some(Counterexample { rule, steps, .. }) => println!(
                    "  {flaw}: found after {} states ({:.1} s), {} steps: not \"{rule}\"",
                    outcome.states,
                    seconds(begun_ns),
                    steps.len()
                ),
                None => {
                    println!("  {flaw}: NOT FOUND in {} states", outcome.states);
                    is_good = false;
                }
            }
            if args.flaw.is_some() {
                outcome.broken.iter().for_each(show);
            }
        }
    }
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn told(outcome: &Outcome) -> String {
    let Outcome { bound, states, depth, broken, missing } = outcome;
    let end = match broken {
        None if missing.is_empty() => "no rule is broken".to_string(),
        None => format!("NEVER SEEN: {}", missing.join(", ")),
        Some(Counterexample { rule, .. }) => format!("BROKEN: {rule}"),
    };
    format!("{states} states, depth {depth}; {bound}; {end}")
}

fn show(counterexample: &Counterexample) {
    for step in &counterexample.steps {
        println!("    {step}");
    }
    println!("    => {}", counterexample.state);
}
