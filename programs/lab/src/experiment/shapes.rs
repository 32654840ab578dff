//! `shapes`: loads that the published benchmarks do not make, with answers that are checked.

use super::about::{About, Definition};
use super::figures::{
    Figure, entries, latency_max_ms, latency_ms, longest_pause_ms, per_cpu_second, resident_mb, server_us,
    text, throughput,
};
use super::options::{Machine, Name, RunArgs, SizeArgs, size_text};
use super::parts::{CELLS_AND_BLOCKS_PERCENT, PRESPLIT, case, halcyon, hbase};
use super::plan::{CasePlan, Collector, Load, Plan};
use crate::outcome::{Experiment, Table};

/// What all cells and blocks of a side have as memory goes so many times into the data of the last cases.
const DATA_TIMES: u64 = 5;
/// Of a YCSB record there: ten fields of this size and about as much again for each 200 bytes of keys.
const FIELD_LEN: u64 = 400;
const RECORD_LEN: u64 = 10 * (FIELD_LEN + 40);
/// Records that HBase takes in a second on two cores.
const RECORDS_PER_S: f64 = 8_000.0;
/// With less, HBase runs out of memory in `regions`: each region that is written to has a chunk of 2 MiB.
const QUICK_HEAP: u64 = 2 << 30;
const FULL_HEAP: u64 = 8 << 30;

/// The experiment `shapes`.
pub struct Shapes;

/// Id, label, and the words behind `bench shape`.
const SHAPES: [(&str, &str, &str); 9] = [
    ("counter-hot", "Increments of one counter", "counter --rows 1"),
    ("counter-1000", "Increments of 1,000 counters", "counter --rows 1000"),
    ("cas", "Compare-and-set upon 100 rows", "cas --rows 100"),
    ("queue", "Queue: put, scan from the front, delete", "queue --rows 1000 --batch 100"),
    ("poll", "Polls of a drained queue", "poll --rows 100000"),
    ("values", "Values of 1 MiB, half puts", "values --rows 256 --value-size 1048576"),
    ("gets", "Gets, 100 in a call", "gets --rows 200000 --value-size 100 --batch 100"),
    ("series", "Time series, 3,600 columns a row", "series --rows 64 --columns 3600 --value-size 16"),
    ("regions", "500 regions, half puts", "regions --rows 100000 --regions 500"),
];

/// In this order: A updates.
const BEYOND: [(char, &str); 3] = [
    ('c', "YCSB C, five times the memory"),
    ('e', "YCSB E, five times the memory"),
    ('a', "YCSB A, five times the memory"),
];

/// Creating 500 regions takes HBase more than the 30 seconds of an operation.
const PATIENCE: &str = "--operation-timeout 300";

impl Definition for Shapes {
    fn about(&self) -> About {
        About {
            title: "Shapes of load",
            question: "Counters, queues, large values, wide rows, many regions, and more data than memory: applications do this, and \
                       benchmarks leave it out. What does each cost, and are all answers right?",
            sources: &[
                (
                    "Apache HBase reference guide: schema design case studies",
                    "https://hbase.apache.org/book.html#schema.casestudies",
                ),
                (
                    "Cassandra anti-patterns: queues and queue-like datasets",
                    "https://www.datastax.com/blog/cassandra-anti-patterns-queues-and-queue-datasets",
                ),
            ],
            not_comparable: &[
                "Nothing of this was published with figures: each side is compared with the others here.",
                "Five times the memory is five times what a side has for cells and blocks. The page cache of the operating system is not limited, and serves both.",
                "Each region of HBase that is written to takes a chunk of 2 MiB of its heap; 500 of them are a gigabyte.",
            ],
        }
    }

    fn plan(&self, args: &RunArgs, machine: &Machine) -> Result<Plan, String> {
        let sizes = &args.sizes;
        sizes.allow(Name::Shapes, &["heap", "jdk", "records", "threads", "seconds", "warmup"])?;
        let quick = args.quick;
        let heap = if quick { QUICK_HEAP } else { FULL_HEAP.min(machine.heap_max()).max(QUICK_HEAP) };
        let heap = SizeArgs::one("heap", &sizes.heap, heap)?;
        let jdk = SizeArgs::one("jdk", &machine.jdks(&sizes.jdk, &[17]), 17)?;
        let threads = SizeArgs::one("threads", &sizes.threads, 16)?;
        let seconds = sizes.seconds.unwrap_or(if quick { 12 } else { 120 });
        let memory = heap / 100 * CELLS_AND_BLOCKS_PERCENT;
        let records = sizes.records.unwrap_or(memory * DATA_TIMES / RECORD_LEN);

        let shape = |(id, label, words): &(&str, &str, &str)| {
            let words = format!("shape {words} --clients {threads} --seconds {seconds} {PATIENCE}");
            case(id, label, &[], Load::new(seconds as f64, &words), sizes.warmup())
        };
        let fill = fill(records, threads);
        let beyond = |(workload, label): &(char, &str)| {
            let load = beyond_run(*workload, records, threads, seconds);
            case(&format!("beyond-{workload}"), label, std::slice::from_ref(&fill), load, sizes.warmup())
        };
        let cases: Vec<CasePlan> = SHAPES.iter().map(shape).chain(BEYOND.iter().map(beyond)).collect();
        Ok(Plan {
            name: Name::Shapes.text().to_string(),
            quick,
            repetitions: args.repetitions.unwrap_or(if quick { 1 } else { 3 }),
            durability: args.durability,
            sides: vec![hbase(&format!("hbase-{jdk}"), Collector::G1, jdk, heap), halcyon("halcyon", heap)],
            cases,
            not_faster: Vec::new(),
            ladders: Vec::new(),
            scaled: vec![format!(
                "Heap {}, {} for cells and blocks on each side; {records} records of 10 fields of {FIELD_LEN} bytes for YCSB.",
                size_text(heap),
                size_text(memory >> 20 << 20)
            )],
        })
    }

    fn tables(&self, experiment: &Experiment) -> Vec<Table> {
        let (p50, p99, p999) = (latency_ms(0.5), latency_ms(0.99), latency_ms(0.999));
        let figures: [Figure<'_>; 9] = [
            ("operations", "/s", &throughput),
            ("server CPU each", "us", &server_us),
            ("for a server CPU second", "", &per_cpu_second),
            ("p50", "ms", &p50),
            ("p99", "ms", &p99),
            ("p99.9", "ms", &p999),
            ("longest", "ms", &latency_max_ms),
            ("longest stall", "ms", &longest_pause_ms),
            ("resident", "MB", &resident_mb),
        ];
        let mut rows = Vec::new();
        for case in &experiment.cases {
            for side in &experiment.sides {
                let head = [text(&case.label), text(&side.label)];
                rows.push(
                    head.into_iter().chain(entries(experiment, &side.id, &case.id, &figures)).collect(),
                );
            }
        }
        let names = figures.iter().map(|(name, ..)| *name);
        vec![Table {
            title: "Shapes of load".to_string(),
            columns: ["load", "side"].into_iter().chain(names).map(str::to_string).collect(),
            rows,
            remark: "Operations of a queue are rows that were taken and deleted, those of gets are rows. Every answer was compared with \
                     what had been acknowledged; a run with a wrong one is partial. The page draws rates and latencies by time."
                .to_string(),
        }]
    }
}

/// YCSB's table with records of 4 KB.
fn fill(records: u64, threads: usize) -> Load {
    Load::new(
        records as f64 / RECORDS_PER_S,
        &format!(
            "ycsb load --workload a -p recordcount={records} -p fieldlength={FIELD_LEN} -p table=beyond \
             -p hbase.presplit={PRESPLIT} -p hbase.recreate=true --threads {threads}",
        ),
    )
}

fn beyond_run(workload: char, records: u64, threads: usize, seconds: u64) -> Load {
    Load::new(
        seconds as f64,
        &format!(
            "ycsb run --workload {workload} -p recordcount={records} -p fieldlength={FIELD_LEN} -p table=beyond \
             -p operationcount={} -p maxexecutiontime={seconds} --threads {threads}",
            u64::from(u32::MAX),
        ),
    )
}
