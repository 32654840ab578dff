//! `native-map`: Accumulo's continuous ingest with native maps, with Java's, and into Halcyon.

use super::about::{About, Definition};
use super::figures::{
    Figure, absent, collection_s, entries, latency_max_ms, longest_pause_ms, published, resident_mb,
    server_us, text, throughput,
};
use super::options::{Machine, Name, RunArgs, SizeArgs, size_text};
use super::parts::{case, halcyon};
use super::plan::{Load, Plan, Server, SidePlan};
use crate::outcome::{Experiment, Table};

const CASE: &str = "ingest";
const REGIONS: u32 = 8;

/// The experiment `native-map`.
pub struct NativeMap;

impl Definition for NativeMap {
    fn about(&self) -> About {
        About {
            title: "Memory that no collector sees: native maps",
            question: "Accumulo keeps what was written in a C++ map, because a Java map of that size keeps the collector busy. How much \
                       does that bring, and how far is it from a server that has no collector at all?",
            sources: &[
                (
                    "Accumulo, in-depth installation: native map",
                    "https://accumulo.apache.org/docs/2.x/administration/in-depth-install#native-map",
                ),
                (
                    "Turner: notes from testing Accumulo 2.0.0-alpha-2 on S3, continuous ingest for a day",
                    "https://gist.github.com/keith-turner/149f35f218d10e13227461714012d7bf",
                ),
            ],
            not_comparable: &[
                "Accumulo is loaded by its own Java client (BatchWriter), Halcyon by halcyon bench ingest: both write linked lists of the same \
                 nodes in batches that are acknowledged as a whole.",
                "The published rate is that of ten servers with eight processors each and S3 behind them, divided by ten.",
                "Accumulo's documentation promises a significant gain of native maps without a number.",
            ],
        }
    }

    fn plan(&self, args: &RunArgs, machine: &Machine) -> Result<Plan, String> {
        let sizes = &args.sizes;
        sizes.allow(Name::NativeMap, &["heap", "jdk", "threads", "seconds", "warmup"])?;
        let quick = args.quick;
        let heap = if quick { 2 << 30 } else { (8 << 30).min(machine.heap_max()) };
        let heap = SizeArgs::one("heap", &sizes.heap, heap)?;
        let jdk = SizeArgs::one("jdk", &machine.jdks(&sizes.jdk, &[17]), 17)?;
        let threads = SizeArgs::one("threads", &sizes.threads, 4)?;
        let seconds = sizes.seconds.unwrap_or(if quick { 20 } else { 600 });
        let warmup = sizes.warmup();

        let accumulo = |id: &str, name: &str, native: bool| SidePlan {
            id: id.to_string(),
            label: format!("Accumulo 2.1.4, {name} maps, JDK {jdk}, heap {}", size_text(heap)),
            // half of the heap, as large as a Java map can be; a native one has it beside the heap
            server: Server::Accumulo { jdk, heap_bytes: heap, native, maps_bytes: heap / 2 },
        };
        let load = Load::new(
            seconds as f64,
            &format!(
                "ingest write --nodes {} --time {seconds} --clients {threads} --batch 1000 --presplit {REGIONS}",
                u64::from(u32::MAX),
            ),
        );
        let label = format!("Continuous ingest, {threads} writers");
        Ok(Plan {
            name: Name::NativeMap.text().to_string(),
            quick,
            repetitions: args.repetitions.unwrap_or(if quick { 1 } else { 3 }),
            durability: args.durability,
            sides: vec![
                accumulo("accumulo-native", "native", true),
                accumulo("accumulo-java", "Java", false),
                halcyon("halcyon", heap),
            ],
            cases: vec![case(CASE, &label, &[], load, warmup)],
            not_faster: Vec::new(),
            ladders: Vec::new(),
            scaled: vec![format!(
                "A day as published, {seconds} seconds here, on one server with a heap of {}.",
                size_text(heap)
            )],
        })
    }

    fn tables(&self, experiment: &Experiment) -> Vec<Table> {
        let figures: [Figure<'_>; 6] = [
            ("nodes", "/s", &throughput),
            ("longest stall", "ms", &longest_pause_ms),
            ("longest batch", "ms", &latency_max_ms),
            ("in collections", "s", &collection_s),
            ("server CPU a node", "us", &server_us),
            ("resident", "MB", &resident_mb),
        ];
        let none = || absent("not published");
        let mut rows = vec![vec![
            text("Accumulo 2.0.0-alpha-2, a server of ten (published)"),
            published(85_600.0, "/s"),
            none(),
            none(),
            none(),
            none(),
            none(),
        ]];
        for side in &experiment.sides {
            rows.push(
                [text(&side.label)]
                    .into_iter()
                    .chain(entries(experiment, &side.id, CASE, &figures))
                    .collect(),
            );
        }
        vec![Table {
            title: "Continuous ingest".to_string(),
            columns: ["side"].into_iter().chain(figures.iter().map(|(name, ..)| *name)).map(str::to_string).collect(),
            rows,
            remark: "The published rate: 74 billion keys in about 24 hours on ten workers. A batch is acknowledged as a whole."
                .to_string(),
        }]
    }
}
