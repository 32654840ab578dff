//! `zgc`: YCSB at several heap sizes with G1 and with ZGC.

use super::about::{About, Definition};
use super::figures::{
    absent, latency_ms, longest_pause_ms, measured, per_cpu_second, published, text, throughput,
};
use super::options::{Machine, Name, RunArgs, SizeArgs, size_text};
use super::parts::{case, halcyon, hbase, scaled, ycsb_load, ycsb_run, zgc_of};
use super::plan::{CasePlan, Collector, Plan, Rate, SidePlan};
use crate::outcome::{Entry, Experiment, Run, Table};

/// In YCSB's own order: D inserts records, and so comes last.
const WORKLOADS: [(char, &str); 5] = [
    ('a', "YCSB A: half updates"),
    ('b', "YCSB B: 5 % updates"),
    ('c', "YCSB C: reads"),
    ('f', "YCSB F: read, modify, write"),
    ('d', "YCSB D: latest, 5 % inserts"),
];

/// Published with 31 GB (below compressed pointers' bound); the others show how it goes with the heap.
const HEAPS: [u64; 4] = [4 << 30, 8 << 30, 16 << 30, 31 << 30];
/// Enough that every side has all the calls that it can do: with 16, Halcyon waits for its clients.
const CLIENTS: usize = 64;
const PUBLISHED_RECORDS: u64 = 100_000_000;
const RECORD_LEN: u64 = 1_200;

/// The experiment `zgc`.
pub struct Zgc;

impl Definition for Zgc {
    fn about(&self) -> About {
        About {
            title: "G1, ZGC, and no collector",
            question: "ZGC's pauses do not grow with the heap. What does it cost in throughput and processor time, at which heap sizes \
                       does it hold, and what is left to gain without any collector?",
            sources: &[
                (
                    "Evaluating ZGC vs G1 GC performance in HBase clusters",
                    "https://besthub.dev/articles/evaluating-zgc-vs-g1-gc-performance-in-hbase-clusters-65a7b5c1c2a4",
                ),
                (
                    "Applying ZGC in 58.com HBase cluster",
                    "https://www.besthub.dev/articles/applying-zgc-in-58-com-hbase-cluster-background-implementation-performance-evaluation-and-tuning-7838ad2b3d43",
                ),
                (
                    "Yoshida: Adopting ZGC in HBase for LINE Messaging (2024)",
                    "https://speakerdeck.com/lycorptech_jp/jjugccc_2024spring",
                ),
            ],
            not_comparable: &[
                "Published with HBase 2.1.0 on three servers of 24 processors, heaps of 31 GB and 100 million rows.",
                "ZGC of JDK 17 maps its heap three times, and the kernel counts each of them as resident: divide what is above the rest.",
                "A JVM's heap and Halcyon's memory are set so that both have the same room for cells and blocks.",
            ],
        }
    }

    fn plan(&self, args: &RunArgs, machine: &Machine) -> Result<Plan, String> {
        let sizes = &args.sizes;
        sizes.allow(Name::Zgc, &["heap", "jdk", "records", "threads", "seconds", "warmup"])?;
        let quick = args.quick;
        let heaps = if quick { vec![2 << 30] } else { fitting(machine) };
        let heaps = SizeArgs::some(&sizes.heap, &heaps);
        let jdks = machine.jdks(&sizes.jdk, if quick { &[17] } else { &[17, 25] });
        let least = heaps.iter().copied().min().expect("there is one");
        // as much as the smallest heap's cache and memstores hold, so that all sizes do the same
        let full = PUBLISHED_RECORDS.min(least / 2 / RECORD_LEN);
        let records = sizes.records.unwrap_or(if quick { 50_000 } else { full });
        let threads = SizeArgs::one("threads", &sizes.threads, CLIENTS)?;
        let seconds = sizes.seconds.unwrap_or(if quick { 12 } else { 60 });
        let warmup = sizes.warmup();

        let mut sides: Vec<SidePlan> = Vec::new();
        for heap in &heaps {
            let size = size_text(*heap);
            for jdk in &jdks {
                sides.push(hbase(&format!("hbase-{jdk}-g1-{size}"), Collector::G1, *jdk, *heap));
                sides.push(hbase(&format!("hbase-{jdk}-zgc-{size}"), zgc_of(*jdk), *jdk, *heap));
            }
            sides.push(halcyon(&format!("halcyon-{size}"), *heap));
        }
        let load = ycsb_load(records, threads);
        let prepare = std::slice::from_ref(&load);
        let mut cases = Vec::new();
        for (letter, label) in WORKLOADS {
            let run = ycsb_run(letter, records, threads, seconds);
            cases.push(case(&format!("ycsb-{letter}"), label, prepare, run.clone(), warmup));
            // the tail at half of the own peak, for the workload that writes most; in the full form for all
            if letter == 'a' || !quick {
                cases.push(CasePlan {
                    rate: Rate::Share { of: format!("ycsb-{letter}"), share: 0.5 },
                    ..case(
                        &half_id(letter),
                        &format!("{label}, at half of the own peak"),
                        prepare,
                        run,
                        warmup,
                    )
                });
            }
        }
        let heaps_here: Vec<String> = heaps.iter().map(|heap| size_text(*heap)).collect();
        Ok(Plan {
            name: Name::Zgc.text().to_string(),
            quick,
            repetitions: args.repetitions.unwrap_or(if quick { 1 } else { 3 }),
            durability: args.durability,
            sides,
            cases,
            not_faster: vec![("ycsb-f".to_string(), "ycsb-a".to_string())],
            ladders: Vec::new(),
            scaled: [
                scaled("Heap", "31g", &heaps_here.join(", ")),
                scaled("Records", &PUBLISHED_RECORDS.to_string(), &records.to_string()),
            ]
            .into_iter()
            .flatten()
            .collect(),
        })
    }

    /// Throughput by workload as the published tables have it, then tails and pauses in the same shape.
    fn tables(&self, experiment: &Experiment) -> Vec<Table> {
        let by_workload = |title: &str, unit: &str, remark: &str, of: &dyn Fn(&Run) -> Option<f64>| {
            shaped(experiment, title, unit, remark, &|case| !case.ends_with("-half"), of)
        };
        let is_half = |case: &str| case.ends_with("-half");
        vec![
            by_workload("Throughput", "/s", PUBLISHED_REMARK, &throughput),
            by_workload("Operations for a second of the server's processor time", "", "", &per_cpu_second),
            by_workload(
                "Longest stall",
                "ms",
                "A JVM's longest pause, or wait for memory of one of its threads; Halcyon's longest recorded wait (its \
                 monitor records what takes 10 ms, so 0 is anything below).",
                &longest_pause_ms,
            ),
            shaped(
                experiment,
                "p99.9 at half of the side's own peak",
                "ms",
                "From the moment at which an operation should have begun.",
                &is_half,
                &latency_ms(0.999),
            ),
        ]
    }
}

fn half_id(letter: char) -> String {
    format!("ycsb-{letter}-half")
}

/// Heaps that this machine has room for, at least the smallest that makes sense.
fn fitting(machine: &Machine) -> Vec<u64> {
    let fitting: Vec<u64> = HEAPS.into_iter().filter(|heap| *heap <= machine.heap_max()).collect();
    if fitting.is_empty() { vec![2 << 30] } else { fitting }
}

const PUBLISHED_REMARK: &str = "Of the published comparisons the setting was found, 31 GB heaps and AHBench on YCSB's core, and the \
    promise of pauses below 10 ms at any heap size, but no table of throughput at the addresses above.";

fn shaped(
    experiment: &Experiment,
    title: &str,
    unit: &str,
    remark: &str,
    is_meant: &dyn Fn(&str) -> bool,
    of: &dyn Fn(&Run) -> Option<f64>,
) -> Table {
    let cases: Vec<_> = experiment.cases.iter().filter(|case| is_meant(&case.id)).collect();
    let labels = cases.iter().map(|case| case.label.clone());
    let mut rows = vec![published_row(cases.len(), title)];
    for side in &experiment.sides {
        let figures = cases.iter().map(|case| measured(experiment, &side.id, &case.id, unit, of));
        rows.push([text(&side.label)].into_iter().chain(figures).collect());
    }
    Table {
        title: title.to_string(),
        columns: ["side".to_string()].into_iter().chain(labels).collect(),
        rows,
        remark: remark.to_string(),
    }
}

fn published_row(cases: usize, title: &str) -> Vec<Entry> {
    // the one number that all accounts of ZGC give is a bound of its pauses
    let entry = || match title {
        "Longest stall" => published(10.0, "ms"),
        _ => absent("none was found"),
    };
    [text("ZGC, heap 31g (published)")].into_iter().chain((0..cases).map(|_| entry())).collect()
}
