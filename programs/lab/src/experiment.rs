//! `halcyon lab run`: published experiments, repeated on the reader's machine with the real systems side by side.
//!
//! ```text
//! options ──> plan (read_pauses, plab, offheap, zgc, shapes...) ──> runner ──> results ──> report ──> tables, page
//!                  sides × cases × repetitions                         │           │
//!                                                                    stage      a directory
//!                                                                      │
//!                                LocalMachine: peers start servers, `halcyon bench` loads them
//! ```
//!
//! - `plan.rs`: what is to be measured, plain data; `parts.rs`: what plans have in common; `options.rs`: the command line
//! - `runner.rs`: one visit after the other, interleaved; `stage.rs`: what it drives, which a test can fake
//! - `warm.rs`: when a side is warm, and which runs are refused because it was not
//! - `aging.rs`: each case once more, upon a table that has been updated, flushed and compacted
//! - `search.rs`: the smallest side that serves, by halving
//! - `local_machine.rs`: this machine; `child.rs`: a load generator; `bench_result.rs`: its JSON file;
//!   `bound.rs`: which resource was the bottleneck
//! - `results.rs`: the results directory, from which an interrupted experiment resumes; `report.rs`: the outcome and its
//!   tables as text; `figures.rs`: medians and percentiles; `display.rs`: progress
//! - `read_pauses.rs`, `plab.rs`, `offheap.rs`, `zgc.rs`, `native_map.rs`, `shapes.rs`, `memory.rs`: one `Definition` each
//!
//! Repetitions are interleaved (A B C A B C) because machines drift, and each visit starts from empty data. Durability is
//! one for all sides. Figures are medians of whole runs; partial runs are shown and never counted. A side is warm before it is
//! measured, and a run that becomes faster meanwhile is partial.
//!
//! When you add an experiment, also touch `options::Name`, `definition` at the end of this file, and docs/LAB.md.

mod about;
mod aging;
mod bench_result;
mod bound;
mod child;
mod display;
mod figures;
mod local_machine;
mod memory;
mod native_map;
mod offheap;
mod options;
mod parts;
mod plab;
mod plan;
mod read_pauses;
mod report;
mod results;
mod runner;
mod search;
mod shapes;
mod stage;
#[cfg(test)]
mod tests;
mod warm;
mod zgc;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_env::Env;

pub use options::{Name, RunArgs, SizeArgs};
pub use plan::Durability;

use crate::outcome::{Environment, Experiment};
use crate::page;
use about::Definition;
use display::{Display, duration_text};
use local_machine::LocalMachine;
use plan::Plan;
use results::{Beginning, Results};
use runner::{Observer, Progress};

/// Runs an experiment to its end, or resumes one. Returns the results as text. The error is a sentence for the user: the
/// experiment measured nothing, or it was interrupted; then the partial results are printed first.
pub fn run(env: &Env, args: &RunArgs) -> Result<String, String> {
    let out = directory(args)?;
    let display = Arc::new(Display::new(env));
    let mut local = LocalMachine::new(env, args, &out, Arc::clone(&display))?;
    let machine = local.machine();
    let mut plan = definition(args.name).plan(args, &machine)?;
    plan.scaled.extend(args.sizes.unjudged_note());
    if args.aged {
        aging::add(&mut plan)?;
    }
    plan.choose(&args.sides, &args.cases)?;
    if args.plan {
        return Ok(plan_text(&plan, &out));
    }
    let beginning = Beginning {
        machine: local.machine_text(),
        started_ms: env.clock.now_ms().max(0) as u64,
        plan: plan.clone(),
    };
    let mut results = Results::open(env, &out, beginning, args.fresh)?;
    let environment = local.environment()?;
    let reporter = Reporter { env, args, plan: &plan, environment };
    let mut observer = ConsoleReporter { display: &display, reporter: &reporter };
    let progress = runner::run(&plan, &mut results, &mut local, &mut observer)?;
    display.finish();
    let experiment = reporter.publish(&results, &progress, true)?;
    let text = text(&experiment, &out);
    if progress.is_interrupted {
        print!("{text}");
        return Err("interrupted; run the same command again to resume".to_string());
    }
    if experiment.runs.iter().all(|run| run.operations == 0) {
        return Err(format!("nothing could be measured: {}", progress.notes.join("; ")));
    }
    Ok(text)
}

fn directory(args: &RunArgs) -> Result<PathBuf, String> {
    let form = if args.quick { "-quick" } else { "" };
    let default = || PathBuf::from(format!("lab-{}{form}", args.name.text()));
    let out = args.out.clone().unwrap_or_else(default);
    std::path::absolute(&out).map_err(|error| format!("{}: {error}", out.display()))
}

/// Writes results and page.
struct Reporter<'a> {
    env: &'a Env,
    args: &'a RunArgs,
    plan: &'a Plan,
    environment: Environment,
}

impl Reporter<'_> {
    fn publish(&self, results: &Results, progress: &Progress, is_over: bool) -> Result<Experiment, String> {
        let ended_ms = is_over.then(|| self.env.clock.now_ms().max(0) as u64);
        let definition = definition(self.args.name);
        let tables = |experiment: &Experiment| definition.tables(experiment);
        let about = definition.about();
        let experiment =
            report::assemble(&about, tables, self.plan, results, progress, &self.environment, ended_ms);
        results.publish(&experiment, &page::html(&experiment))?;
        Ok(experiment)
    }
}

/// Shows progress on the console and publishes the page after each visit.
struct ConsoleReporter<'a> {
    display: &'a Display,
    reporter: &'a Reporter<'a>,
}

impl Observer for ConsoleReporter<'_> {
    fn begins(&mut self, number: usize, of: usize, title: &str, left_s: f64) {
        self.display.begins(number, of, title, left_s);
    }

    fn says(&mut self, sentence: &str) {
        self.display.says(sentence);
    }

    fn visited(&mut self, results: &Results, progress: &Progress) {
        if let Err(sentence) = self.reporter.publish(results, progress, false) {
            self.display.says(&sentence);
        }
    }
}

/// What was found, for a terminal.
fn text(experiment: &Experiment, out: &Path) -> String {
    let mut text = format!("{}\n\n", experiment.title);
    for table in &experiment.tables {
        let _ = writeln!(text, "{}", report::text(table));
    }
    let _ = writeln!(text, "p: as published. -: not measured or not published; the page says why.");
    let _ = writeln!(text, "{}", experiment.durability);
    for sentence in &experiment.not_comparable {
        let _ = writeln!(text, "Not comparable: {sentence}");
    }
    if let Some(partial) = &experiment.partial {
        let _ = writeln!(text, "Partial: {partial}");
    }
    let _ = writeln!(text, "The page: file://{}", out.join("index.html").display());
    text
}

/// What would be measured.
fn plan_text(plan: &Plan, out: &Path) -> String {
    let mut text = format!("{} into {}\n", plan.name, out.display());
    for side in &plan.sides {
        let _ = writeln!(text, "side {}: {}", side.id, side.label);
    }
    for case in &plan.cases {
        let _ = writeln!(text, "case {}: {}\n  {}", case.id, case.label, case.load.words.join(" "));
    }
    let visits = plan.expected_visits().into_iter();
    let all_s: f64 = visits.map(|visit| plan.visit_s(visit.side, plan.cases.iter())).sum();
    let _ = writeln!(text, "{} repetitions, about {} in all", plan.repetitions, duration_text(all_s));
    if !plan.ladders.is_empty() {
        let _ = writeln!(text, "of the sides, only those are measured that halving comes to");
    }
    plan.scaled.iter().for_each(|sentence| {
        let _ = writeln!(text, "{sentence}");
    });
    text
}

/// The one place that knows which experiments there are.
fn definition(name: Name) -> &'static dyn Definition {
    match name {
        Name::ReadPauses => &read_pauses::ReadPauses,
        Name::Plab => &plab::Plab,
        Name::Offheap => &offheap::Offheap,
        Name::Zgc => &zgc::Zgc,
        Name::NativeMap => &native_map::NativeMap,
        Name::Shapes => &shapes::Shapes,
        Name::Memory => &memory::Memory,
    }
}
