//! `offheap`: writes into memstores on and off the heap and compacting ones; reads from caches on and off the heap.

use super::about::{About, Definition};
use super::figures::{absent, collection_s, measured, median, published, text, throughput};
use super::options::{Machine, Name, RunArgs, SizeArgs, size_text};
use super::parts::{PRESPLIT, case, halcyon, hbase, with_flags, with_properties};
use super::plan::{CasePlan, Collector, Load, Plan, SidePlan};
use super::warm::Warmup;
use crate::outcome::{Entry, Experiment, Run, Table};

const HEAP_ID: &str = "hbase-heap";
const OFFHEAP_ID: &str = "hbase-offheap";
const COMPACTING_ID: &str = "hbase-compacting";

/// Threads, operations a second with and without the off-heap read path: multi-gets of 100 rows, YCSB, 90 GB in the cache.
const PUBLISHED_READS: [(usize, f64, f64); 4] = [
    (10, 28_045.53, 23_277.97),
    (25, 45_767.99, 25_922.18),
    (50, 58_904.03, 24_558.72),
    (75, 63_280.86, 24_316.74),
];

/// Rows of one multi-get, as published.
const MULTI_GET: u64 = 100;

/// The experiment `offheap`.
pub struct Offheap;

impl Definition for Offheap {
    fn about(&self) -> About {
        About {
            title: "Memory off the heap, and compacted in the heap",
            question: "HBase moved its block cache and then its memstores out of the collector's sight, and compacts what stays inside. What \
                       does each bring to writes and reads, against threads and size of values, and how far from it is a server \
                       whose memory was never in a heap?",
            sources: &[
                (
                    "Offheaping the Read Path in Apache HBase, part 2 (2015)",
                    "https://blogs.apache.org/hbase/entry/offheaping_the_read_path_in1",
                ),
                (
                    "Offheap Read-Path in Production, the Alibaba story (2017)",
                    "https://blogs.apache.org/hbase/entry/offheap-read-path-in-production",
                ),
                (
                    "Accordion: HBase Breathes with In-Memory Compaction (2017)",
                    "https://blogs.apache.org/hbase/entry/accordion-hbase-breathes-with-in",
                ),
            ],
            not_comparable: &[
                "Published reads: 8 cores, 150 GB, 9 GB of heap and 102 GB off it, before and after HBASE-11425; the HBase here has only what came after.",
                "Published writes: Accordion's gains are of 100 to 200 GB of data under YCSB, mostly fewer flushes; a short run flushes little.",
                "All sides have the same memory in sum: the off-heap side has half of it as heap and a quarter each for memstores and cache.",
            ],
        }
    }

    fn plan(&self, args: &RunArgs, machine: &Machine) -> Result<Plan, String> {
        let sizes = &args.sizes;
        sizes.allow(
            Name::Offheap,
            &["heap", "jdk", "records", "threads", "value-size", "seconds", "warmup"],
        )?;
        let quick = args.quick;
        let memory = if quick { 2 << 30 } else { (100 << 30).min(machine.heap_max()) };
        let memory = SizeArgs::one("heap", &sizes.heap, memory)?;
        let jdk = SizeArgs::one("jdk", &machine.jdks(&sizes.jdk, &[17]), 17)?;
        // of each case, all clients together
        let records =
            sizes.records.unwrap_or(if quick { 200_000 } else { (memory / 2 / 1_200).min(20_000_000) });
        let threads = SizeArgs::some(&sizes.threads, if quick { &[4, 16] } else { &[10, 25, 50, 75] });
        let values =
            SizeArgs::some(&sizes.value_size, if quick { &[100, 1_000] } else { &[100, 1_000, 10_000] });

        let seconds = sizes.seconds.unwrap_or(if quick { 11 } else { 120 });
        let (mut cases, warmup): (Vec<CasePlan>, _) = (Vec::new(), sizes.warmup());
        for value in &values {
            for threads in &threads {
                cases.push(write(records, *threads, *value, seconds, warmup));
            }
        }
        for threads in &threads {
            cases.push(read(records, *threads, seconds, warmup));
        }
        let threads_here: Vec<String> = threads.iter().map(usize::to_string).collect();
        Ok(Plan {
            name: Name::Offheap.text().to_string(),
            quick,
            repetitions: args.repetitions.unwrap_or(if quick { 1 } else { 3 }),
            durability: args.durability,
            sides: sides(jdk, memory),
            cases,
            not_faster: Vec::new(),
            ladders: Vec::new(),
            scaled: vec![
                format!("Memory: {} here, 111g as published.", size_text(memory)),
                format!("Threads: {} here, 10, 25, 50, 75 as published.", threads_here.join(", ")),
                format!("Rows of a case: {records} here, 100 million as published."),
            ],
        })
    }

    fn tables(&self, experiment: &Experiment) -> Vec<Table> {
        vec![writes(experiment), reads(experiment)]
    }
}

fn sides(jdk: u32, memory: u64) -> Vec<SidePlan> {
    let heap = hbase(HEAP_ID, Collector::G1, jdk, memory);
    let heap = SidePlan { label: format!("{}, all on the heap", heap.label), ..heap };
    let (half, quarter_mb) = (memory / 2, (memory / 4) >> 20);
    let offheap = hbase(OFFHEAP_ID, Collector::G1, jdk, half);
    let offheap = SidePlan {
        label: format!("HBase 2.6.4, G1, JDK {jdk}, heap {}, memstores and cache off it", size_text(half)),
        ..offheap
    };
    // beside memstores and cache there are buffers of the network
    let direct = format!("-XX:MaxDirectMemorySize={}m", quarter_mb * 2 + 512);
    let offheap = with_properties(
        with_flags(offheap, &[direct]),
        &[
            ("hbase.regionserver.offheap.global.memstore.size", quarter_mb.to_string()),
            ("hbase.bucketcache.ioengine", "offheap".to_string()),
            ("hbase.bucketcache.size", quarter_mb.to_string()),
            ("hfile.block.cache.size", "0.2".to_string()),
        ],
    );
    let compacting = hbase(COMPACTING_ID, Collector::G1, jdk, memory);
    let compacting = SidePlan { label: format!("{}, compacting memstores", compacting.label), ..compacting };
    let compacting =
        with_properties(compacting, &[("hbase.hregion.compacting.memstore.type", "BASIC".to_string())]);
    vec![heap, offheap, compacting, halcyon("halcyon", memory)]
}

/// Each write case has a table of its own.
fn write(records: u64, threads: usize, value: u64, seconds: u64, warmup: Warmup) -> CasePlan {
    // large values: fewer rows, small ones: more, so that each case writes about as much, within reason
    let rows = (records * 1_000 / value).clamp(1_000, records * 3) / threads as u64;
    let load = Load::new(
        seconds as f64,
        &format!(
            "pe --table=W{threads}x{value} --rows={rows} --seconds={seconds} --presplit={PRESPLIT} --valueSize={value} \
             randomWrite {threads}",
        ),
    );
    case(&write_id(threads, value), &format!("Writes, {threads} clients, {value} bytes"), &[], load, warmup)
}

/// Multi-gets from one table, whose rows have been flushed and read once, so that they come from the cache.
fn read(records: u64, threads: usize, seconds: u64, warmup: Warmup) -> CasePlan {
    let pe = |expected_s: f64, words: &str| Load::new(expected_s, &format!("pe --table=Reads {words}"));
    let expected_s = records as f64 / 60_000.0;
    let fill = pe(
        expected_s,
        &format!(
            "--rows={records} --presplit={PRESPLIT} --valueSize=1000 --flushCommits=true sequentialWrite 1"
        ),
    );
    let cache = pe(expected_s, &format!("--rows={records} --valueSize=1000 scan 1"));
    let rows = records / threads as u64;
    let read = pe(
        seconds as f64,
        &format!(
            "--rows={rows} --seconds={seconds} --valueSize=1000 --multiGet={MULTI_GET} randomRead {threads}"
        ),
    );
    case(
        &read_id(threads),
        &format!("Multi-gets of {MULTI_GET}, {threads} clients"),
        &[fill, cache],
        read,
        warmup,
    )
}

fn write_id(threads: usize, value: u64) -> String {
    format!("write-t{threads}-v{value}")
}

fn read_id(threads: usize) -> String {
    format!("read-t{threads}")
}

/// Threads and sizes of values downwards, sides across, as the posts have it.
fn writes(experiment: &Experiment) -> Table {
    let mut rows = Vec::new();
    for (label, percent) in [
        ("Accordion, writes alone, uniform (published, up to)", 50.0),
        ("Accordion, writes alone, Zipf (published, up to)", 20.0),
    ] {
        let mut row = vec![text(label)];
        row.extend((0..experiment.sides.len()).map(|_| absent("only the gain was published")));
        row.push(published(percent, "%"));
        rows.push(row);
    }
    for case in experiment.cases.iter().filter(|case| case.id.starts_with("write-")) {
        let mut row = vec![text(&case.label)];
        row.extend(across(experiment, &case.id, "/s", &throughput));
        row.push(gain(experiment, &case.id));
        rows.push(row);
    }
    Table {
        title: "Writes: rows a second".to_string(),
        columns: headed("load", experiment, "compacting against heap"),
        rows,
        remark: "Buffered writes of PerformanceEvaluation, random rows. Accordion's authors also found up to 30 % less written to \
                 disks and up to 36 % less collection."
            .to_string(),
    }
}

fn reads(experiment: &Experiment) -> Table {
    let mut rows = Vec::new();
    for (threads, with, without) in PUBLISHED_READS {
        let entry = |side: &str| match side {
            HEAP_ID => published(without, "/s"),
            OFFHEAP_ID => published(with, "/s"),
            _ => absent("not part of it"),
        };
        let label = format!("Multi-gets of 100, {threads} clients (published)");
        let across = experiment.sides.iter().map(|side| entry(&side.id));
        rows.push([text(label)].into_iter().chain(across).chain([text("")]).collect());
    }
    for case in experiment.cases.iter().filter(|case| case.id.starts_with("read-")) {
        let row = [text(&case.label)].into_iter().chain(across(experiment, &case.id, "/s", &throughput));
        rows.push(row.chain([collection_share(experiment, &case.id)]).collect());
    }
    Table {
        title: "Reads from the cache: rows a second".to_string(),
        columns: headed("load", experiment, "heap: in collections"),
        rows,
        remark: "Measured figures are rows; published ones are YCSB's operations as the post counts them, before (under the heap) and \
                 after (under off-heap) HBASE-11425, on 8 cores: compare how they go with the clients, not their height. Alibaba reports peaks of 100,000 operations a second on one server of 64 \
                 cores with what came of it."
            .to_string(),
    }
}

fn headed(first: &str, experiment: &Experiment, last: &str) -> Vec<String> {
    let labels = experiment.sides.iter().map(|side| side.label.clone());
    [first.to_string()].into_iter().chain(labels).chain([last.to_string()]).collect()
}

fn across<'a>(
    experiment: &'a Experiment,
    case: &'a str,
    unit: &'a str,
    of: &'a dyn Fn(&Run) -> Option<f64>,
) -> impl Iterator<Item = Entry> + 'a {
    experiment.sides.iter().map(move |side| measured(experiment, &side.id, case, unit, of))
}

/// Of medians: what compacting memstores bring.
fn gain(experiment: &Experiment, case: &str) -> Entry {
    let rows = |side| median(experiment, side, case, throughput).filter(|rows| *rows > 0.0);
    match (rows(COMPACTING_ID), rows(HEAP_ID)) {
        (Some(compacting), Some(heap)) => {
            let percent = (compacting / heap - 1.0) * 100.0;
            Entry::Measured { median: percent, min: percent, max: percent, unit: "%".to_string() }
        }
        _ => absent("one of the two was not measured"),
    }
}

fn collection_share(experiment: &Experiment, case: &str) -> Entry {
    let share =
        |run: &Run| collection_s(run).filter(|_| run.elapsed_s > 0.0).map(|s| s / run.elapsed_s * 100.0);
    measured(experiment, HEAP_ID, case, "%", share)
}
