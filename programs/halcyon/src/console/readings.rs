//! What the console reads each second: counters and sizes that the parts of the server keep anyway.
//!
//! The texts are those of `docs/METRICS.md`. When you add a series, add it to the table in `docs/CONSOLE.md`.

use std::sync::Arc;

use halcyon_regionserver::{Counters, READ_KINDS, ServerStats};
use halcyon_rpc::{CallClass, RpcStatsSnapshot};

use super::timeline::{Label, Reading};
use crate::pages::Sources;

type Readings = Vec<(Label, Reading)>;

fn label(name: impl Into<String>, unit: &'static str, help: &'static str) -> Label {
    Label { name: name.into(), unit, help }
}

/// Percentiles of call times: name, share.
const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// All readings of this moment, always in the same order.
pub fn read(sources: &Sources) -> Readings {
    let mut all = Readings::new();
    calls(sources, &mut all);
    latencies(sources, &mut all);
    stalls(sources, &mut all);
    let stats = sources.region_server.stats();
    queues(&stats, &mut all);
    wal(&stats, sources.region_server.take_wal_sync_longest_ns(), &mut all);
    cache(&stats, &mut all);
    memory(sources, &mut all);
    all
}

/// A counter of the region server: name, help, value.
type ServerCount = (&'static str, &'static str, fn(&Counters) -> u64);

const SERVER_COUNTS: &[ServerCount] = &[
    ("calls.get", "Get calls", |counters| counters.gets.get()),
    ("calls.scan", "Scan calls", |counters| counters.scans.get()),
    ("calls.mutate", "Mutate calls", |counters| counters.mutations.get()),
    ("calls.multi", "Multi calls", |counters| counters.multis.get()),
    ("calls.other", "Calls of other methods", |counters| counters.others.get()),
    ("calls.failed", "Calls answered with an exception", |counters| counters.failed.get()),
    ("calls.slow", "Calls that took longer than hbase.ipc.warn.response.time", |counters| {
        counters.slow.get()
    }),
    ("calls.pooled", "Calls that ran on a thread that may wait for the disk", |counters| {
        counters.pooled.get()
    }),
    ("work.flushes", "Memstore flushes", |counters| counters.flushes.get()),
    ("work.memory_compactions", "In-memory compactions", |counters| counters.memory_compactions.get()),
    ("work.compactions", "Compactions of store files", |counters| counters.compactions.get()),
];

fn calls(sources: &Sources, all: &mut Readings) {
    for (name, help, value) in SERVER_COUNTS {
        let unit = if name.starts_with("calls") { "calls/s" } else { "1/s" };
        all.push((label(*name, unit, help), Reading::Count(value(&sources.region_server.counters))));
    }
    let classes = CallClass::ALL.map(|class| sources.queues.snapshot(class));
    let refused = classes.iter().map(|class| class.refused).sum();
    let expired = classes.iter().map(|class| class.expired).sum();
    let help = "Calls refused because the queue of their class was full";
    all.push((label("calls.refused", "calls/s", help), Reading::Count(refused)));
    let help = "Calls dropped because their client's timeout had passed";
    all.push((label("calls.expired", "calls/s", help), Reading::Count(expired)));
    let waiting = classes.iter().map(|class| class.calls_waiting).sum::<usize>() as f64;
    all.push((label("queue.calls", "calls", "Calls that wait to be answered"), Reading::Level(waiting)));
    let ports: Vec<RpcStatsSnapshot> = sources.rpc.iter().map(|(_, read)| read()).collect();
    let sum = |value: fn(&RpcStatsSnapshot) -> u64| ports.iter().map(value).sum::<u64>();
    let received = Reading::Count(sum(|port| port.received_bytes));
    all.push((label("network.received", "bytes/s", "Bytes read from clients"), received));
    let sent = Reading::Count(sum(|port| port.sent_bytes));
    all.push((label("network.sent", "bytes/s", "Bytes written to clients"), sent));
    let open = Reading::Level(sum(|port| port.connections_open as u64) as f64);
    all.push((label("network.connections", "connections", "Connections open now"), open));
}

fn latencies(sources: &Sources, all: &mut Readings) {
    let help = "Time of a call inside the server, from reading the request to queueing the response";
    for class in CallClass::ALL {
        let times = Arc::new(sources.queues.times(class));
        for (name, share) in PERCENTILES {
            let label = label(format!("latency.{}.{name}", class.name()), "ms", help);
            all.push((label, Reading::Quantile { times: times.clone(), share }));
        }
    }
}

fn stalls(sources: &Sources, all: &mut Readings) {
    let count = sources.stalls.sums().iter().map(|(_, sum)| sum.count).sum();
    all.push((
        label("stalls.count", "1/s", "Waits longer than the threshold of 10 ms"),
        Reading::Count(count),
    ));
}

fn queues(stats: &ServerStats, all: &mut Readings) {
    let levels = [
        ("queue.flush", "regions", "Regions that wait for a flush", stats.queued_flushes_count),
        ("queue.compaction", "regions", "Regions that wait for a compaction", stats.queued_compactions_count),
        (
            "queue.disk",
            "calls",
            "Calls that wait for a thread that may wait for the disk",
            stats.waiting_calls_count,
        ),
        ("open.scanners", "scanners", "Open scanners", stats.open_scanners_count),
        ("open.regions", "regions", "Open regions", stats.regions_count),
    ];
    for (name, unit, help, value) in levels {
        all.push((label(name, unit, help), Reading::Level(value as f64)));
    }
    let counts = [
        ("writes.held_back", "Writers held back because memstores were full", stats.held_back_count),
        ("writes.refused", "Writers refused because memstores stayed full", stats.refused_count),
    ];
    for (name, help, value) in counts {
        all.push((label(name, "writes/s", help), Reading::Count(value)));
    }
}

fn wal(stats: &ServerStats, longest_ns: u64, all: &mut Readings) {
    let wal = &stats.wal;
    let mean = Reading::Ratio { part: wal.sync_ns_total as f64 / 1e6, whole: wal.syncs };
    all.push((label("wal.sync_mean", "ms", "Mean time of a WAL sync"), mean));
    let longest_ms = if longest_ns == 0 { f64::NAN } else { longest_ns as f64 / 1e6 };
    let longest = Reading::Level(longest_ms);
    all.push((label("wal.sync_longest", "ms", "Longest WAL sync of the interval"), longest));
    all.push((label("wal.syncs", "1/s", "WAL syncs"), Reading::Count(wal.syncs)));
    all.push((label("wal.bytes", "bytes/s", "Bytes appended to the WAL"), Reading::Count(wal.bytes)));
    let files = Reading::Level(wal.files_count as f64);
    all.push((label("wal.files", "files", "WAL files that are not archived"), files));
}

fn cache(stats: &ServerStats, all: &mut Readings) {
    for (kind, reads) in READ_KINDS.iter().zip(&stats.cache.reads) {
        let help = "Share of the blocks of this kind that were found in memory";
        let whole = reads.hits_count + reads.misses_count;
        let hits = Reading::Ratio { part: reads.hits_count as f64, whole };
        all.push((label(format!("cache.hit.{kind}"), "share", help), hits));
    }
    let tier = stats.cache.file_tier.unwrap_or_default();
    let hits = Reading::Ratio { part: tier.hits_count as f64, whole: tier.hits_count + tier.misses_count };
    let help = "Share of the blocks looked for in the cache file that were found there";
    all.push((label("cache.hit.file", "share", help), hits));
    let evicted = Reading::Count(stats.cache.evictions_count);
    all.push((label("cache.evictions", "blocks/s", "Blocks evicted from memory"), evicted));
}

/// Last, as the number of parts may differ from server to server.
fn memory(sources: &Sources, all: &mut Readings) {
    let resident = (sources.resident_bytes)().map_or(f64::NAN, |bytes| bytes as f64);
    all.push((label("memory.resident", "bytes", "Resident memory of the process"), Reading::Level(resident)));
    for part in sources.memory() {
        let label =
            label(format!("memory.{}", part.name), "bytes", "Memory in use by each part of the server");
        all.push((label, Reading::Level(part.held as f64)));
    }
}
