//! `memory`: how much is resident for the same rows, served at the same rate, where there is no more memory than that takes.
//!
//! A JVM fills the heap that it is given, so what is resident at a chosen heap says which heap was chosen. Here each side has
//! the smallest that serves: heaps of HBase and budgets of Halcyon are searched by halving (`search.rs`).

use super::about::{About, Definition};
use super::figures::{
    Figure, absent, latency_max_ms, latency_ms, measured, resident_mb, server_us, text, throughput,
};
use super::options::{Machine, Name, RunArgs, SizeArgs, size_text};
use super::parts::{case, hbase, ycsb_load, ycsb_run};
use super::plan::{CasePlan, Collector, Plan, Rate, Server, SidePlan};
use super::search::is_held;
use crate::outcome::{Experiment, Product, Run, Table};

const CASE: &str = "serve";
const MB: u64 = 1 << 20;
/// Heaps, and budgets for cells and blocks, in MiB: each about a third or a half above the one before.
const HEAPS_MB: [u64; 11] = [128, 192, 256, 384, 512, 768, 1_024, 1_536, 2_048, 3_072, 4_096];
const BUDGETS_MB: [u64; 11] = [32, 48, 64, 96, 128, 192, 256, 512, 1_024, 2_048, 4_096];
const RECORD_LEN: u64 = 1_200;

/// The experiment `memory`.
pub struct Memory;

impl Definition for Memory {
    fn about(&self) -> About {
        About {
            title: "The least memory that serves",
            question: "A JVM fills the heap that it is given. How much memory does each server need for the same rows at the same rate, \
                       without an error, and what is resident then?",
            sources: &[(
                "Apache HBase reference guide: heap and memory sizing",
                "https://hbase.apache.org/book.html#perf.os.ram",
            )],
            not_comparable: &[
                "HBase's heap holds everything of its server, master and ZooKeeper; Halcyon's budget is for cells and blocks. Compare what is resident.",
                "What a smaller cache costs in reads from files falls on the page cache of the operating system, on both sides.",
            ],
        }
    }

    fn plan(&self, args: &RunArgs, machine: &Machine) -> Result<Plan, String> {
        let sizes = &args.sizes;
        sizes.allow(Name::Memory, &["jdk", "records", "threads", "rate", "seconds", "warmup"])?;
        let quick = args.quick;
        let jdk = SizeArgs::one("jdk", &machine.jdks(&sizes.jdk, &[17]), 17)?;
        let records = sizes.records.unwrap_or(if quick { 100_000 } else { 1_000_000 });
        let threads = SizeArgs::one("threads", &sizes.threads, 16)?;
        // what an HBase on these cores can do without effort
        let rate = sizes.rate.unwrap_or(1_000 * u64::from(machine.cores));
        let seconds = sizes.seconds.unwrap_or(if quick { 20 } else { 300 });

        let most_mb = machine.heap_max() / MB;
        let hbases: Vec<SidePlan> = HEAPS_MB
            .into_iter()
            .filter(|heap_mb| *heap_mb <= most_mb)
            .map(|heap_mb| hbase(&format!("hbase-{jdk}-{heap_mb}m"), Collector::G1, jdk, heap_mb * MB))
            .collect();
        let halcyons: Vec<SidePlan> =
            BUDGETS_MB.into_iter().filter(|budget_mb| *budget_mb <= most_mb).map(of_budget).collect();
        let ladder = |sides: &[SidePlan]| sides.iter().map(|side| side.id.clone()).collect::<Vec<_>>();
        let ladders = vec![ladder(&hbases), ladder(&halcyons)];
        let load = ycsb_load(records, threads);
        let label = format!("YCSB A at {rate}/s upon {records} records");
        let serve = case(CASE, &label, &[load], ycsb_run('a', records, threads, seconds), sizes.warmup());
        Ok(Plan {
            name: Name::Memory.text().to_string(),
            quick,
            repetitions: args.repetitions.unwrap_or(if quick { 1 } else { 3 }),
            durability: args.durability,
            sides: hbases.into_iter().chain(halcyons).collect(),
            cases: vec![CasePlan { rate: Rate::Fixed { per_s: rate as f64 }, ..serve }],
            not_faster: Vec::new(),
            ladders,
            scaled: vec![format!(
                "{records} records, {} of data, at {rate} operations/s for {seconds} s.",
                size_text(records * RECORD_LEN / MB * MB)
            )],
        })
    }

    fn tables(&self, experiment: &Experiment) -> Vec<Table> {
        vec![smallest(experiment), tried(experiment)]
    }
}

fn of_budget(budget_mb: u64) -> SidePlan {
    SidePlan {
        id: format!("halcyon-{budget_mb}m"),
        label: format!("Halcyon, memory {}", size_text(budget_mb * MB)),
        server: Server::Halcyon { memory_bytes: budget_mb * MB },
    }
}

fn end_mb(run: &Run) -> Option<f64> {
    (run.resources.resident_bytes > 0).then(|| run.resources.resident_bytes as f64 / 1e6)
}

/// For each product the smallest side that served in every repetition that tried it.
fn smallest(experiment: &Experiment) -> Table {
    let (p99, p999) = (latency_ms(0.99), latency_ms(0.999));
    let figures: [Figure<'_>; 7] = [
        ("resident at the end", "MB", &end_mb),
        ("resident at most", "MB", &resident_mb),
        ("operations", "/s", &throughput),
        ("server CPU each", "us", &server_us),
        ("p99", "ms", &p99),
        ("p99.9", "ms", &p999),
        ("longest", "ms", &latency_max_ms),
    ];
    let mut rows = Vec::new();
    for (product, name) in [(Product::Hbase, "HBase"), (Product::Halcyon, "Halcyon")] {
        // sides stand from the smallest to the largest
        let served = experiment.sides.iter().filter(|side| side.product == product).find(|side| {
            let mut runs = experiment.runs.iter().filter(|run| run.side == side.id).peekable();
            runs.peek().is_some() && runs.all(is_held)
        });
        let row = match served {
            Some(side) => {
                let of = |(_, unit, of): &Figure<'_>| measured(experiment, &side.id, CASE, unit, of);
                [text(&side.label)].into_iter().chain(figures.iter().map(of)).collect()
            }
            None => {
                let none = |_: &Figure<'_>| absent("no size was found that serves");
                [text(name)].into_iter().chain(figures.iter().map(none)).collect()
            }
        };
        rows.push(row);
    }
    Table {
        title: "The smallest that serves".to_string(),
        columns: ["side"].into_iter().chain(figures.iter().map(|(name, ..)| *name)).map(str::to_string).collect(),
        rows,
        remark: "A side serves if at least 98 % of the rate were held, steadily and without an error, in every repetition. Sizes were \
                 searched by halving: what serves with some memory is taken to serve with more."
            .to_string(),
    }
}

/// Each size that was visited.
fn tried(experiment: &Experiment) -> Table {
    let mut rows = Vec::new();
    for side in &experiment.sides {
        let runs: Vec<&Run> = experiment.runs.iter().filter(|run| run.side == side.id).collect();
        let verdict = match (&side.missing, runs.iter().find(|run| !is_held(run))) {
            (Some(why), _) => format!("no: {why}"),
            (None, Some(run)) => {
                let below = || format!("{:.0}/s", run.operations_per_s);
                format!("no: {}", run.partial.clone().unwrap_or_else(below))
            }
            (None, None) if runs.is_empty() => continue,
            (None, None) => "yes".to_string(),
        };
        rows.push(vec![text(&side.label), text(verdict)]);
    }
    Table {
        title: "Sizes that were tried".to_string(),
        columns: ["side", "serves"].map(str::to_string).to_vec(),
        rows,
        remark: String::new(),
    }
}
