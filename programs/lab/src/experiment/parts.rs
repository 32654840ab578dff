//! What plans of several experiments are made of.

use super::options::size_text;
use super::plan::{CasePlan, Collector, Load, Rate, Server, SidePlan};
use super::warm::Warmup;

/// Below this, G1's regions are set: HBase's chunks of 2 MiB must be smaller than half a region, or each takes whole ones.
const REGIONS_SET_BELOW: u64 = 32 << 30;

/// Of HBase's heap, by its own defaults: two fifths for cells and two for blocks.
pub const CELLS_AND_BLOCKS_PERCENT: u64 = 80;

/// Regions of tables that are made divided.
pub const PRESPLIT: u32 = 10;

/// G1's own flags, which a side has before those that are compared.
pub fn g1_flags(heap_bytes: u64) -> Vec<String> {
    match heap_bytes {
        heap if heap >= REGIONS_SET_BELOW => Vec::new(),
        heap if heap > 2 << 30 => vec!["-XX:G1HeapRegionSize=16m".to_string()],
        _ => vec!["-XX:G1HeapRegionSize=8m".to_string()],
    }
}

/// An HBase of a collector; the label says JDK, collector and heap.
pub fn hbase(id: &str, collector: Collector, jdk: u32, heap_bytes: u64) -> SidePlan {
    let (name, flags) = match collector {
        Collector::G1 => ("G1", g1_flags(heap_bytes)),
        Collector::Zgc => ("ZGC", Vec::new()),
        Collector::GenerationalZgc => ("generational ZGC", Vec::new()),
    };
    SidePlan {
        id: id.to_string(),
        label: format!("HBase 2.6.4, {name}, JDK {jdk}, heap {}", size_text(heap_bytes)),
        server: Server::Hbase { jdk, heap_bytes, collector, flags, properties: Vec::new() },
    }
}

/// The ZGC that a JDK has: of one generation before JDK 21.
pub fn zgc_of(jdk: u32) -> Collector {
    if jdk >= 21 { Collector::GenerationalZgc } else { Collector::Zgc }
}

/// A Halcyon with as much memory for cells and blocks as an HBase of this heap has by its defaults.
pub fn halcyon(id: &str, heap_bytes: u64) -> SidePlan {
    let memory_bytes = heap_bytes / 100 * CELLS_AND_BLOCKS_PERCENT;
    let memory_bytes = memory_bytes >> 20 << 20;
    SidePlan {
        id: id.to_string(),
        label: format!("Halcyon, memory {}", size_text(memory_bytes)),
        server: Server::Halcyon { memory_bytes },
    }
}

/// Adds to a side's flags.
pub fn with_flags(mut side: SidePlan, added: &[String]) -> SidePlan {
    match &mut side.server {
        Server::Hbase { flags, .. } => flags.extend_from_slice(added),
        Server::Halcyon { .. } | Server::Accumulo { .. } => unreachable!("only HBase has such flags here"),
    }
    side
}

/// Adds to a side's hbase-site.xml.
pub fn with_properties(mut side: SidePlan, added: &[(&str, String)]) -> SidePlan {
    match &mut side.server {
        Server::Hbase { properties, .. } => {
            properties.extend(added.iter().map(|(name, value)| (name.to_string(), value.clone())));
        }
        Server::Halcyon { .. } | Server::Accumulo { .. } => {
            unreachable!("only HBase has such properties here")
        }
    }
    side
}

/// YCSB's table, filled anew: records of ten fields of 100 bytes.
pub fn ycsb_load(records: u64, threads: usize) -> Load {
    // a record is a call of its own; HBase takes about ten thousand a second on two cores
    let expected_s = records as f64 / 10_000.0;
    Load::new(
        expected_s,
        &format!(
            "ycsb load --workload a -p recordcount={records} -p hbase.presplit={PRESPLIT} -p hbase.recreate=true \
             --threads {threads}",
        ),
    )
}

/// A workload upon that table, for a time.
pub fn ycsb_run(workload: char, records: u64, threads: usize, seconds: u64) -> Load {
    Load::new(
        seconds as f64,
        &format!(
            "ycsb run --workload {workload} -p recordcount={records} -p operationcount={} -p maxexecutiontime={seconds} \
             --threads {threads}",
            u64::from(u32::MAX),
        ),
    )
}

/// A case without a wanted rate.
pub fn case(id: &str, label: &str, prepare: &[Load], load: Load, warmup: Warmup) -> CasePlan {
    CasePlan {
        id: id.to_string(),
        label: label.to_string(),
        prepare: prepare.to_vec(),
        load,
        rate: Rate::Free,
        warmup,
    }
}

/// What was published against what is taken here; a sentence where they differ.
pub fn scaled(what: &str, published: &str, here: &str) -> Option<String> {
    (published != here).then(|| format!("{what}: {here} here, {published} as published."))
}
