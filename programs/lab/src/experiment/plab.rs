//! `plab`: sequential writes with and without G1's fixed promotion buffers, where HBase lost a fifth from JDK 8 to 11.

use super::about::{About, Definition};
use super::figures::{
    Figure, absent, collection_s, collections, entries, longest_pause_ms, median, published, text, throughput,
};
use super::options::{Machine, Name, RunArgs, SizeArgs, size_text};
use super::parts::{PRESPLIT, case, halcyon, hbase, with_flags};
use super::plan::{Collector, Load, Plan, SidePlan};
use crate::outcome::{Entry, Experiment, Table};

const FIXED: &str = "-XX:-ResizePLAB";
const CASE: &str = "sequential-write";

/// The experiment `plab`.
pub struct Plab;

impl Definition for Plab {
    fn about(&self) -> About {
        About {
            title: "The price of fixed promotion buffers",
            question: "An upgrade from JDK 8 to 11 cost HBase nearly 20 % of its writes, because a flag that had been good advice fixed \
                       G1's promotion buffers at a fraction of their size. What does the flag cost today, and what do collections \
                       cost at all?",
            sources: &[
                (
                    "After JDK upgrade from 8 to 11 the HBase performance drops by nearly 20 % (2021)",
                    "https://www.programmersought.net/2021/08/09/after-jdk-upgrade-from-8-to-11-the-hbase-performance-drops-by-nearly-20/",
                ),
                (
                    "JDK-8257145: Performance regression with -XX:-ResizePLAB after JDK-8079555",
                    "https://github.com/openjdk/jdk/pull/1474",
                ),
            ],
            not_comparable: &[
                "Published with HBase 2.3.2 on three servers under JDK 8 and 11; the repair is in JDK 17 and later, so no loss is expected there.",
                "A JDK 11 shows the loss itself: --jdk 11, where one is installed and the HBase here runs on it.",
            ],
        }
    }

    fn plan(&self, args: &RunArgs, machine: &Machine) -> Result<Plan, String> {
        let sizes = &args.sizes;
        sizes.allow(Name::Plab, &["heap", "jdk", "records", "threads", "value-size", "seconds", "warmup"])?;
        let quick = args.quick;
        // less is not enough for HBase: with 2 GB it ran out of memory in this load
        let heap = if quick { 4 << 30 } else { (16 << 30).min(machine.heap_max()) };
        let heap = SizeArgs::one("heap", &sizes.heap, heap)?;
        let default: &[u32] = if quick { &[17] } else { &[11, 17, 25] };
        let jdks = machine.jdks(&sizes.jdk, default);
        let records = sizes.records.unwrap_or(if quick { 200_000 } else { 2_000_000 });
        let threads = SizeArgs::one("threads", &sizes.threads, 4)?;
        let value_size = SizeArgs::one("value-size", &sizes.value_size, 1_000)?;

        let rows = records * threads as u64;
        let seconds = sizes.seconds.unwrap_or(if quick { 20 } else { 300 });
        // the rows again and again: a single pass is over before a JVM has compiled its code
        let load = Load::new(
            seconds as f64,
            &format!(
                "pe --table=Plab --rows={records} --seconds={seconds} --presplit={PRESPLIT} --compress=SNAPPY \
                 --inmemoryCompaction=BASIC --valueSize={value_size} sequentialWrite {threads}"
            ),
        );
        let label = format!("PE sequentialWrite, {threads} clients, Snappy, BASIC");
        let mut sides = Vec::new();
        for jdk in jdks {
            let resizing = hbase(&format!("hbase-{jdk}"), Collector::G1, jdk, heap);
            let fixed = with_flags(hbase(&fixed_id(jdk), Collector::G1, jdk, heap), &[FIXED.to_string()]);
            sides.push(resizing);
            sides.push(SidePlan { label: format!("{}, {FIXED}", fixed.label), ..fixed });
        }
        sides.push(halcyon("halcyon", heap));
        Ok(Plan {
            name: Name::Plab.text().to_string(),
            quick,
            repetitions: args.repetitions.unwrap_or(if quick { 2 } else { 3 }),
            durability: args.durability,
            sides,
            cases: vec![case(CASE, &label, &[], load, sizes.warmup())],
            not_faster: Vec::new(),
            ladders: Vec::new(),
            scaled: vec![format!(
                "Written: {rows} rows of {value_size} bytes, over and over for {seconds} s, into one server with a heap of {}, on {} \
                 logical processors.",
                size_text(heap),
                machine.cores
            )],
        })
    }

    /// Transactions a second and time in collections, as published: before and after.
    fn tables(&self, experiment: &Experiment) -> Vec<Table> {
        let figures: [Figure<'_>; 4] = [
            ("rows", "/s", &throughput),
            ("collections", "", &collections),
            ("time in them", "s", &collection_s),
            ("longest pause", "ms", &longest_pause_ms),
        ];
        let mut rows = vec![vec![
            text("HBase 2.3.2, JDK 8 to 11 (published)"),
            absent("only the share was found"),
            absent("only the share was found"),
            absent("only the share was found"),
            absent("only the share was found"),
            published(-20.0, "%"),
        ]];
        for side in &experiment.sides {
            let mut row = vec![text(&side.label)];
            row.extend(entries(experiment, &side.id, CASE, &figures));
            row.push(change(experiment, &side.id));
            rows.push(row);
        }
        let names = figures.iter().map(|(name, ..)| *name);
        vec![Table {
            title: "Writes in order".to_string(),
            columns: ["side"].into_iter().chain(names).chain(["against resizing"]).map(str::to_string).collect(),
            rows,
            remark: "The last column: rows a second with fixed buffers against those of the same JDK with buffers that are resized, \
                     which is the default. The published loss is \"nearly 20 %\"."
                .to_string(),
        }]
    }
}

fn fixed_id(jdk: u32) -> String {
    format!("hbase-{jdk}-fixed")
}

/// Of medians, in percent.
fn change(experiment: &Experiment, side: &str) -> Entry {
    let Some(resizing) = side.strip_suffix("-fixed") else { return text("") };
    let rows = |side| median(experiment, side, CASE, throughput).filter(|rows| *rows > 0.0);
    match (rows(side), rows(resizing)) {
        (Some(fixed), Some(resizing)) => {
            let percent = (fixed / resizing - 1.0) * 100.0;
            Entry::Measured { median: percent, min: percent, max: percent, unit: "%".to_string() }
        }
        _ => absent("one of the two was not measured"),
    }
}
