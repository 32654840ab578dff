//! `halcyon lab run`: published experiments, repeated on the reader's machine with the real systems side by side.
//!
//! ```text
//! options ──> plan (read_pauses, plab, offheap, zgc, native_map) ──> runner ──> results ──> report ──> tables, page
//!                  sides × cases × repetitions                         │           │
//!                                                                    stage      a directory
//!                                                                      │
//!                                         here: peers start servers, `halcyon bench` loads them
//! ```
//!
//! - `plan.rs`: what is to be measured, plain data; `parts.rs`: what plans have in common; `options.rs`: the command line
//! - `runner.rs`: one visit after the other, interleaved; `stage.rs`: what it drives, which a test can fake
//! - `here.rs`: this machine; `child.rs`: a load generator; `loaded.rs`: what it wrote; `bound.rs`: who was the limit
//! - `results.rs`: the directory, from which an interrupted experiment goes on; `report.rs`: the whole and its tables as
//!   text; `figures.rs`: medians and percentiles; `display.rs`: progress
//! - `read_pauses.rs`, `plab.rs`, `offheap.rs`, `zgc.rs`, `native_map.rs`: the experiments: what each asks, plans and tells
//!
//! Repetitions are interleaved (A B C A B C) because machines drift, and each visit starts from empty data. Durability is
//! one for all sides. Figures are medians of whole runs; what is partial is shown and never counted.
//!
//! When you add an experiment, also touch `options::Name`, the three functions at the end of this file, and docs/LAB.md.

mod about;
mod bound;
mod child;
mod display;
mod figures;
mod here;
mod loaded;
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
mod stage;
#[cfg(test)]
mod tests;
mod zgc;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_env::Env;

pub use options::{Name, RunArgs, SizeArgs};
pub use plan::Durability;

use crate::outcome::{Environment, Experiment, Table};
use crate::page;
use about::About;
use display::{Display, duration_text};
use here::Here;
use options::Machine;
use plan::Plan;
use results::{Beginning, Results};
use runner::{Audience, Course};

/// Runs an experiment to its end, or goes on with one. The text tells what was found. The error is a sentence for the user:
/// nothing could be measured, or it was interrupted; what was measured is printed before.
pub fn run(env: &Env, args: &RunArgs) -> Result<String, String> {
    let out = directory(args)?;
    let display = Arc::new(Display::new(env));
    let mut here = Here::new(env, args, &out, Arc::clone(&display))?;
    let machine = here.machine();
    let mut plan = plan_of(args, &machine)?;
    plan.choose(&args.sides, &args.cases)?;
    if args.plan {
        return Ok(plan_text(&plan, &out));
    }
    let beginning = Beginning {
        machine: here.machine_text(),
        started_ms: env.clock.now_ms().max(0) as u64,
        plan: plan.clone(),
    };
    let mut results = Results::open(env, &out, beginning, args.fresh)?;
    let environment = here.environment()?;
    let reporter = Reporter { env, args, plan: &plan, environment };
    let mut shown = Shown { display: &display, reporter: &reporter };
    let course = runner::run(&plan, &mut results, &mut here, &mut shown)?;
    display.finish();
    let experiment = reporter.publish(&results, &course, true)?;
    let text = text(&experiment, &out);
    if course.is_interrupted {
        print!("{text}");
        return Err("interrupted; the same command goes on where it stopped".to_string());
    }
    if experiment.runs.iter().all(|run| run.operations == 0) {
        return Err(format!("nothing could be measured: {}", course.notes.join("; ")));
    }
    Ok(text)
}

fn directory(args: &RunArgs) -> Result<PathBuf, String> {
    let form = if args.quick { "-quick" } else { "" };
    let default = || PathBuf::from(format!("lab-{}{form}", args.name.text()));
    let out = args.out.clone().unwrap_or_else(default);
    std::path::absolute(&out).map_err(|error| format!("{}: {error}", out.display()))
}

/// Puts the whole together.
struct Reporter<'a> {
    env: &'a Env,
    args: &'a RunArgs,
    plan: &'a Plan,
    environment: Environment,
}

impl Reporter<'_> {
    fn publish(&self, results: &Results, course: &Course, is_over: bool) -> Result<Experiment, String> {
        let ended_ms = is_over.then(|| self.env.clock.now_ms().max(0) as u64);
        let (about, name) = (about_of(self.args.name), self.args.name);
        let tables = |experiment: &Experiment| tables_of(name, experiment);
        let experiment =
            report::assemble(&about, tables, self.plan, results, course, &self.environment, ended_ms);
        results.publish(&experiment, &page::html(&experiment))?;
        Ok(experiment)
    }
}

struct Shown<'a> {
    display: &'a Display,
    reporter: &'a Reporter<'a>,
}

impl Audience for Shown<'_> {
    fn begins(&mut self, number: usize, of: usize, title: &str, left_s: f64) {
        self.display.begins(number, of, title, left_s);
    }

    fn says(&mut self, sentence: &str) {
        self.display.says(sentence);
    }

    fn visited(&mut self, results: &Results, course: &Course) {
        if let Err(sentence) = self.reporter.publish(results, course, false) {
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
    let all_s: f64 = plan.visits().map(|visit| plan.visit_s(visit.side, plan.cases.iter())).sum();
    let _ = writeln!(text, "{} repetitions, about {} in all", plan.repetitions, duration_text(all_s));
    plan.scaled.iter().for_each(|sentence| {
        let _ = writeln!(text, "{sentence}");
    });
    text
}

fn about_of(name: Name) -> About {
    match name {
        Name::ReadPauses => read_pauses::about(),
        Name::Plab => plab::about(),
        Name::Offheap => offheap::about(),
        Name::Zgc => zgc::about(),
        Name::NativeMap => native_map::about(),
    }
}

fn plan_of(args: &RunArgs, machine: &Machine) -> Result<Plan, String> {
    match args.name {
        Name::ReadPauses => read_pauses::plan(args, machine),
        Name::Plab => plab::plan(args, machine),
        Name::Offheap => offheap::plan(args, machine),
        Name::Zgc => zgc::plan(args, machine),
        Name::NativeMap => native_map::plan(args, machine),
    }
}

fn tables_of(name: Name, experiment: &Experiment) -> Vec<Table> {
    match name {
        Name::ReadPauses => read_pauses::tables(experiment),
        Name::Plab => plab::tables(experiment),
        Name::Offheap => offheap::tables(experiment),
        Name::Zgc => zgc::tables(experiment),
        Name::NativeMap => native_map::tables(experiment),
    }
}
