//! `read-pauses`: YCSB reads alone, as Intel's engineers ran them in 2014 to tune G1 for HBase.

use super::about::{About, Definition};
use super::figures::{
    Figure, absent, entries, latency_max_ms, latency_ms, longest_pause_ms, published, stopped,
    stopped_percent, text, throughput,
};
use super::options::{Machine, Name, RunArgs, SizeArgs, size_text};
use super::parts::{case, halcyon, hbase, scaled, with_flags, ycsb_load, ycsb_run};
use super::plan::{CasePlan, Collector, Plan, Rate};
use crate::outcome::{Entry, Experiment, Run, Table};

const PUBLISHED_HEAP: u64 = 100 << 30;
const PUBLISHED_RECORDS: u64 = 400_000_000;
const RECORD_LEN: u64 = 1_200;

/// The experiment `read-pauses`.
pub struct ReadPauses;

impl Definition for ReadPauses {
    fn about(&self) -> About {
        About {
            title: "Pauses under reads: G1, tuned G1, Halcyon",
            question: "How long does a server stand still while it does nothing but answer reads, how much of that does the \
                       published tuning of G1 take away, and what is left without a collector?",
            sources: &[(
                "Kaczmarek, Yi, Wang: Tuning Java Garbage Collection for HBase (2014)",
                "https://blog.cloudera.com/tuning-java-garbage-collection-for-hbase/",
            )],
            not_comparable: &[
                "Published with JDK 7 and HBase 0.98.1 on 40 logical processors and 256 GB; JDKs since then have taken over much of the tuning.",
                "The tuned side fixes its promotion buffers (-XX:-ResizePLAB) as published; JDK 9 to 16 made that a mistake, see the experiment plab.",
                "The load generator runs on the machine of the server.",
            ],
        }
    }

    /// `peak` comes first: `half` is measured at half of each side's own. `same` is one rate for all.
    fn plan(&self, args: &RunArgs, machine: &Machine) -> Result<Plan, String> {
        let sizes = &args.sizes;
        sizes.allow(Name::ReadPauses, &["heap", "jdk", "records", "threads", "rate", "seconds", "warmup"])?;
        let quick = args.quick;
        let default = if quick { 2 << 30 } else { PUBLISHED_HEAP.min(machine.heap_max()) };
        let heap = SizeArgs::one("heap", &sizes.heap, default)?;
        let jdk = SizeArgs::one("jdk", &machine.jdks(&sizes.jdk, &[17]), 17)?;
        // the published table was nearly six times the heap
        let full = PUBLISHED_RECORDS.min(heap / RECORD_LEN * 2);
        let records = sizes.records.unwrap_or(if quick { 100_000 } else { full });
        let threads = SizeArgs::one("threads", &sizes.threads, 16)?;
        // what an HBase on these cores can do without effort
        let rate = sizes.rate.unwrap_or(1_500 * u64::from(machine.cores));
        let seconds = sizes.seconds.unwrap_or(if quick { 16 } else { 300 });
        let warmup = sizes.warmup();

        let load = ycsb_load(records, threads);
        let run = ycsb_run('c', records, threads, seconds);
        let peak =
            case("peak", "YCSB C, as fast as it goes", std::slice::from_ref(&load), run.clone(), warmup);
        let half = CasePlan {
            rate: Rate::Share { of: "peak".to_string(), share: 0.5 },
            ..case(
                "half",
                "YCSB C, at half of the side's own peak",
                std::slice::from_ref(&load),
                run.clone(),
                warmup,
            )
        };
        let same = CasePlan {
            rate: Rate::Fixed { per_s: rate as f64 },
            ..case("same", &format!("YCSB C, at {rate}/s on all sides"), &[load], run, warmup)
        };
        let goal = ["-XX:MaxGCPauseMillis=100".to_string()];
        let g1 = with_flags(hbase("hbase-g1", Collector::G1, jdk, heap), &goal);
        let mut tuned = with_flags(hbase("hbase-g1-tuned", Collector::G1, jdk, heap), &goal);
        tuned.label = tuned.label.replace("G1", "tuned G1");
        let tuned = with_flags(tuned, &tuning(machine.cores, heap));
        let here = |what, published: &str, here: &str| scaled(what, published, here);
        Ok(Plan {
            name: Name::ReadPauses.text().to_string(),
            quick,
            repetitions: args.repetitions.unwrap_or(if quick { 1 } else { 3 }),
            durability: args.durability,
            sides: vec![g1, tuned, halcyon("halcyon", heap)],
            cases: vec![peak, half, same],
            not_faster: Vec::new(),
            ladders: Vec::new(),
            scaled: [
                here("Heap", &size_text(PUBLISHED_HEAP), &size_text(heap)),
                here("Records", &PUBLISHED_RECORDS.to_string(), &records.to_string()),
                here("Logical processors", "40", &machine.cores.to_string()),
            ]
            .into_iter()
            .flatten()
            .collect(),
        })
    }

    fn tables(&self, experiment: &Experiment) -> Vec<Table> {
        vec![pauses(experiment), latencies(experiment)]
    }
}

/// What the post recommends, for a machine of so many processors and a heap of this size.
fn tuning(cores: u32, heap: u64) -> Vec<String> {
    let threads = if cores <= 8 { cores } else { 8 + (cores - 8) * 5 / 8 };
    let new_size_percent = match heap >> 30 {
        100.. => 1,
        64.. => 2,
        _ => 3,
    };
    vec![
        "-XX:+ParallelRefProcEnabled".to_string(),
        "-XX:-ResizePLAB".to_string(),
        format!("-XX:ParallelGCThreads={threads}"),
        "-XX:+UnlockExperimentalVMOptions".to_string(),
        format!("-XX:G1NewSizePercent={new_size_percent}"),
    ]
}

/// Pauses by length.
fn pauses(experiment: &Experiment) -> Table {
    let between = |from_ms: f64, to_ms: f64| {
        move |run: &Run| Some(stopped(run).filter(|length| (from_ms..to_ms).contains(length)).count() as f64)
    };
    let figures: [Figure<'_>; 5] = [
        ("below 100 ms", "", &between(0.0, 100.0)),
        ("100 to 500 ms", "", &between(100.0, 500.0)),
        ("above 500 ms", "", &between(500.0, f64::INFINITY)),
        ("longest", "ms", &longest_pause_ms),
        ("of the time", "%", &stopped_percent),
    ];
    let mut rows = vec![published_row(figures.map(|_| absent("published as a picture")))];
    rows.extend(measured_rows(experiment, &figures));
    Table {
        title: "Times at which the server stood still".to_string(),
        columns: table_columns(&figures),
        rows,
        remark: "Collections and other safepoints of a JVM; of Halcyon the waits that its stall monitor recorded, which are of one \
                 thread and count for the longest only. The post says that handling references with many threads took 30 % off \
                 the pauses."
            .to_string(),
    }
}

fn latencies(experiment: &Experiment) -> Table {
    let figures: [Figure<'_>; 4] = [
        ("reads", "/s", &throughput),
        ("p99", "ms", &latency_ms(0.99)),
        ("p99.9", "ms", &latency_ms(0.999)),
        ("longest", "ms", &latency_max_ms),
    ];
    let none = || absent("none");
    let mut rows = vec![published_row([none(), published(100.0, "ms"), none(), none()])];
    rows.extend(measured_rows(experiment, &figures));
    Table {
        title: "Reads, against the goal of the post".to_string(),
        columns: table_columns(&figures),
        rows,
        remark: "The published figure is the goal: the 99th percentile of a whole call within 100 ms."
            .to_string(),
    }
}

fn table_columns(figures: &[Figure<'_>]) -> Vec<String> {
    ["side", "load"].into_iter().chain(figures.iter().map(|(name, ..)| *name)).map(str::to_string).collect()
}

fn published_row<const N: usize>(entries: [Entry; N]) -> Vec<Entry> {
    let head = [text("HBase 0.98, G1, heap 100g (published)"), text("YCSB C")];
    head.into_iter().chain(entries).collect()
}

fn measured_rows(experiment: &Experiment, figures: &[Figure<'_>]) -> Vec<Vec<Entry>> {
    let mut rows = Vec::new();
    for case in &experiment.cases {
        for side in &experiment.sides {
            let head = [text(&side.label), text(&case.label)];
            rows.push(head.into_iter().chain(entries(experiment, &side.id, &case.id, figures)).collect());
        }
    }
    rows
}
