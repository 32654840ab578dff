//! `/metrics`: what the server counts, in OpenMetrics text form, through the Prometheus project's Rust client.
//!
//! The counters belong to the parts that count. [`ServerMetrics`] reads them at each scrape and gives each its name, unit
//! and help text. The client adds the unit to the name and `_total` to counters: `rpc_received` in bytes becomes
//! `halcyon_rpc_received_bytes_total`. `docs/METRICS.md` lists every series; add a line there with each new one.

use std::fmt;
use std::sync::Arc;

use halcyon_env::StallSum;
use halcyon_regionserver::Counters;
use halcyon_rpc::{CallClass, ClassSnapshot, RpcStatsSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};

use crate::cluster::ServerState;
use crate::pages::Sources;

/// The content type of [`text`]'s result.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of the server.
pub fn text(sources: &Arc<Sources>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("halcyon");
    registry.register_collector(Box::new(ServerMetrics(Arc::clone(sources))));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

struct ServerMetrics(Arc<Sources>);

impl fmt::Debug for ServerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerMetrics")
    }
}

impl Collector for ServerMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Exposition(encoder);
        self.rpc_ports(&mut out)?;
        self.call_classes(&mut out)?;
        self.call_times(&mut out)?;
        self.memory(&mut out)?;
        self.stalls(&mut out)?;
        self.traces(&mut out)?;
        self.block_cache(&mut out)?;
        self.region_server(&mut out)?;
        self.cluster(&mut out)
    }
}

/// A count that belongs to one RPC port: name, unit, help, value.
type PortCounter = (&'static str, Option<Unit>, &'static str, fn(&RpcStatsSnapshot) -> u64);

const PORT_COUNTERS: &[PortCounter] = &[
    ("rpc_connections_opened", None, "Connections accepted", |stats| stats.connections_opened),
    (
        "rpc_connections_refused",
        None,
        "Connections closed before their first call, for example for an unknown protocol",
        |stats| stats.connections_refused,
    ),
    (
        "rpc_connections_left",
        None,
        "Connections that the server closed because the client did not read its responses",
        |stats| stats.connections_left,
    ),
    ("rpc_calls", None, "Calls received", |stats| stats.calls),
    ("rpc_calls_failed", None, "Calls answered with an exception", |stats| stats.calls_failed),
    ("rpc_calls_refused", None, "Calls refused because a queue was full", |stats| stats.calls_refused),
    ("rpc_received", Some(Unit::Bytes), "Bytes read from clients", |stats| stats.received_bytes),
    ("rpc_sent", Some(Unit::Bytes), "Bytes written to clients", |stats| stats.sent_bytes),
    (
        "rpc_shared_cell",
        Some(Unit::Bytes),
        "Bytes of cells sent from their block or chunk without a copy",
        |stats| stats.shared_cell_bytes,
    ),
    ("rpc_copied_cell", Some(Unit::Bytes), "Bytes of cells copied into a response buffer", |stats| {
        stats.copied_cell_bytes
    }),
];

/// A count that belongs to one class of calls: name, help, value.
type ClassCounter = (&'static str, &'static str, fn(&ClassSnapshot) -> u64);

const CLASS_COUNTERS: &[ClassCounter] = &[
    ("rpc_calls_refused_full", "Calls refused because the queue of their class was full", |class| {
        class.refused
    }),
    ("rpc_calls_expired", "Calls dropped because their client's timeout had passed", |class| class.expired),
    ("rpc_calls_abandoned", "Calls dropped because their connection had closed", |class| class.abandoned),
];

/// A count of the region server: name, help, value.
type ServerCounter = (&'static str, &'static str, fn(&Counters) -> u64);

const SERVER_COUNTERS: &[ServerCounter] = &[
    ("regionserver_gets", "Get calls", |counters| counters.gets.get()),
    ("regionserver_scans", "Scan calls", |counters| counters.scans.get()),
    ("regionserver_mutations", "Mutate calls", |counters| counters.mutations.get()),
    ("regionserver_multis", "Multi calls", |counters| counters.multis.get()),
    ("regionserver_calls_pooled", "Calls that ran on a thread that may wait for the disk", |counters| {
        counters.pooled.get()
    }),
    ("regionserver_calls_failed", "Calls answered with an exception", |counters| counters.failed.get()),
    ("regionserver_calls_slow", "Calls that took longer than hbase.ipc.warn.response.time", |counters| {
        counters.slow.get()
    }),
    (
        "regionserver_calls_large",
        "Calls whose answers were larger than hbase.ipc.warn.response.size",
        |counters| counters.large.get(),
    ),
    ("regionserver_calls_throttled", "Calls, and parts of batches, that a quota refused", |counters| {
        counters.throttled.get()
    }),
    ("regionserver_leases_expired", "Scanners closed because their lease expired", |counters| {
        counters.leases_expired.get()
    }),
    (
        "regionserver_nonces_forgotten",
        "Nonces forgotten before their grace period was over, for want of memory",
        |counters| counters.nonces_forgotten.get(),
    ),
    ("regionserver_flushes", "Memstore flushes", |counters| counters.flushes.get()),
    ("regionserver_memory_compactions", "In-memory compactions", |counters| {
        counters.memory_compactions.get()
    }),
    ("regionserver_compactions", "Compactions of store files", |counters| counters.compactions.get()),
];

impl ServerMetrics {
    fn rpc_ports(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let ports: Vec<(&str, RpcStatsSnapshot)> =
            self.0.rpc.iter().map(|(port, read)| (*port, read())).collect();
        for (name, unit, help, value) in PORT_COUNTERS {
            let samples = ports.iter().map(|(port, stats)| (*port, value(stats)));
            out.counters(name, unit.as_ref(), help, "port", samples)?;
        }
        let open = ports.iter().map(|(port, stats)| (*port, stats.connections_open as u64));
        out.gauges("rpc_connections_open", None, "Connections open now", "port", open)
    }

    fn call_classes(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let classes = CallClass::ALL.map(|class| (class.name(), self.0.queues.snapshot(class)));
        for (name, help, value) in CLASS_COUNTERS {
            let samples = classes.iter().map(|(class, snapshot)| (*class, value(snapshot)));
            out.counters(name, None, help, "class", samples)?;
        }
        let waiting = classes.iter().map(|(class, snapshot)| (*class, snapshot.calls_waiting as u64));
        out.gauges("rpc_calls_waiting", None, "Calls that wait to be answered", "class", waiting)?;
        let requests = classes.iter().map(|(class, snapshot)| (*class, snapshot.request_bytes as u64));
        out.gauges("rpc_request", Some(&Unit::Bytes), "Bytes of requests in memory", "class", requests)?;
        let responses = self.0.queues.response_bytes() as u64;
        out.gauge("rpc_response", Some(&Unit::Bytes), "Bytes of responses in memory", responses)
    }

    /// From the moment a call was read from its socket until its response was handed back to it.
    fn call_times(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let help = "Time of a call inside the server, from reading the request to queueing the response";
        let mut family =
            out.0.encode_descriptor("rpc_call", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for class in CallClass::ALL {
            let times = self.0.queues.times(class);
            let mut below = 0;
            let mut buckets: Vec<(f64, u64)> = Vec::with_capacity(times.up_to.len() + 1);
            for (bound, cumulative) in &times.up_to {
                buckets.push((*bound, cumulative - below));
                below = *cumulative;
            }
            buckets.push((f64::INFINITY, times.count - below));
            let labels = [("class", class.name())];
            family.encode_family(&labels)?.encode_histogram::<[(&str, &str); 0]>(
                times.sum_seconds,
                times.count,
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    fn memory(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let parts = self.0.memory();
        let budget = self.0.region_server.settings().plan().budget;
        let held = parts.iter().map(|part| (part.name, part.held));
        out.gauges("memory", Some(&Unit::Bytes), "Memory in use by each part of the server", "part", held)?;
        let limits = parts.iter().filter_map(|part| Some((part.name, part.limit?)));
        let limits = std::iter::once(("budget", budget)).chain(limits);
        out.gauges("memory_limit", Some(&Unit::Bytes), "Memory limit of each part", "part", limits)?;
        match (self.0.resident_bytes)() {
            Some(bytes) => out.gauge("resident", Some(&Unit::Bytes), "Resident memory of the process", bytes),
            None => Ok(()),
        }
    }

    /// There without traces as well, so that a dashboard finds them.
    fn traces(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let counts = self.0.traces.as_ref().map(|traces| traces.counts()).unwrap_or_default();
        let dropped = "Spans dropped because the queue was full or the collector did not take them";
        out.counter("traces_spans_sent", None, "Spans that the collector has taken", counts.sent)?;
        out.counter("traces_spans_dropped", None, dropped, counts.dropped)
    }

    fn stalls(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let sums = self.0.stalls.sums();
        fn each<T>(
            sums: &[(&'static str, StallSum)],
            value: fn(&StallSum) -> T,
        ) -> impl Iterator<Item = (&'static str, T)> {
            sums.iter().map(move |(cause, sum)| (*cause, value(sum)))
        }
        let counts = each(&sums, |sum| sum.count);
        out.counters("stalls", None, "Waits longer than the threshold, by cause", "cause", counts)?;
        let totals = each(&sums, |sum| sum.total.as_secs_f64());
        out.counters("stalls", Some(&Unit::Seconds), "Total time of these waits", "cause", totals)?;
        let longest = each(&sums, |sum| sum.longest.as_secs_f64());
        out.gauges("stall_seconds_max", None, "Longest of these waits, in seconds", "cause", longest)?;
        let stuck = self.0.region_server.longest_without_progress().as_secs();
        let help = "Longest time that a thread with work has not come on with it";
        out.gauge("thread_without_progress_seconds", None, help, stuck)
    }

    fn region_server(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let counters = &self.0.region_server.counters;
        SERVER_COUNTERS
            .iter()
            .try_for_each(|(name, help, value)| out.counter(name, None, help, value(counters)))?;
        let stats = self.0.region_server.stats();
        let help = "Writes held back because memstores were full";
        out.counter("regionserver_writes_held_back", None, help, stats.held_back_count)?;
        let queued = stats.queued_compactions_count as u64;
        out.gauge("regionserver_compactions_queued", None, "Regions that wait for a compaction", queued)?;
        let help = "WAL files that failed and were replaced by new ones";
        out.counter("wal_files_replaced", None, help, stats.wal.replacements)?;
        let help = "WAL syncs that were late and were tried in the next file too";
        out.counter("wal_late_syncs", None, help, stats.wal.late_syncs)?;
        out.counter("wal_syncs", None, "WAL syncs", stats.wal.syncs)?;
        let help = "Bytes of WAL files that a recovery would read";
        out.gauge("wal_files_bytes", None, help, stats.wal.files_bytes)?;
        let help = "With more bytes of WAL files regions are flushed; 0: there is no limit";
        let bytes_max = self.0.region_server.wal_bytes_max().unwrap_or(0);
        out.gauge("wal_files_bytes_max", None, help, bytes_max)?;
        let seconds = stats.wal.sync_ns_total as f64 / 1e9;
        let mut family = out.0.encode_descriptor(
            "wal_sync",
            "Total time of WAL syncs",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        family.encode_counter(&seconds, NO_EXEMPLAR)
    }

    /// Of the active master of a cluster.
    fn cluster(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let Some(cluster) = self.0.surroundings.cluster() else { return Ok(()) };
        let picture = cluster.picture();
        out.gauge("cluster_epoch", None, "How many masters became active", picture.epoch)?;
        let help = "Standby masters";
        out.gauge("cluster_standby_masters", None, help, picture.standby.len() as u64)?;
        let states = [
            ("online", ServerState::Online),
            ("draining", ServerState::Draining),
            ("recovering", ServerState::Recovering),
            ("dead", ServerState::Dead),
        ];
        let servers = states.map(|(name, state)| (name, picture.in_state(state).count() as u64));
        out.gauges("cluster_servers", None, "Region servers by state", "state", servers.into_iter())?;
        out.gauge("cluster_regions_open", None, "Regions that are open", picture.open_count() as u64)?;
        let moving = picture.transitions.len() as u64;
        out.gauge("cluster_regions_in_transition", None, "Regions in transition", moving)?;
        let help = "Regions in transition for more than a minute";
        out.gauge("cluster_regions_stuck", None, help, picture.stuck_count() as u64)?;
        let under_way = picture.recoveries.iter().filter(|it| it.ended_ms.is_none()).count() as u64;
        out.gauge("cluster_recoveries", None, "Recoveries under way", under_way)?;
        let help = "Time of each part of the last recovery of a region server, from its notice on";
        let seconds = Some(&Unit::Seconds);
        out.gauges("cluster_last_recovery", seconds, help, "part", picture.last_recovery().into_iter())
    }

    fn block_cache(&self, out: &mut Exposition<'_>) -> fmt::Result {
        let bytes = Some(&Unit::Bytes);
        let cache = self.0.region_server.stats().cache;
        out.gauge("block_cache_capacity", bytes, "Capacity of the block cache", cache.capacity_bytes)?;
        out.gauge("block_cache_used", bytes, "Size of the blocks in the cache", cache.used_bytes)?;
        out.gauge("block_cache_blocks", None, "Blocks in the cache", cache.blocks_count)?;
        out.counter("block_cache_hits", None, "Blocks found in memory", cache.hits_count)?;
        out.counter("block_cache_misses", None, "Blocks not found in memory", cache.misses_count)?;
        out.counter("block_cache_inserts", None, "Blocks added", cache.inserts_count)?;
        out.counter("block_cache_evictions", None, "Blocks evicted", cache.evictions_count)?;
        let help = "Bytes of cells decoded from delta-encoded blocks";
        out.counter("block_cache_decoded", bytes, help, cache.decoded_bytes)?;
        let Some(tier) = cache.file_tier else { return Ok(()) };
        let help = "1 while the cache file is in use, 0 after an error has turned it off";
        out.gauge("block_cache_file_on", None, help, u64::from(tier.is_on))?;
        out.gauge("block_cache_file_capacity", bytes, "Size limit of the cache file", tier.capacity_bytes)?;
        out.gauge("block_cache_file_used", bytes, "Bytes of blocks in the cache file", tier.used_bytes)?;
        out.gauge("block_cache_file_blocks", None, "Blocks in the cache file", tier.blocks_count)?;
        out.gauge("block_cache_file_index", bytes, "Memory of the cache file's index", tier.index_bytes)?;
        out.gauge("block_cache_file_queued", bytes, "Blocks that wait to be written", tier.queued_bytes)?;
        out.counter("block_cache_file_hits", None, "Blocks read from the cache file", tier.hits_count)?;
        out.counter("block_cache_file_misses", None, "Blocks not in the cache file", tier.misses_count)?;
        out.counter("block_cache_file_written", None, "Blocks written to it", tier.written_count)?;
        let help = "Blocks not written because the write queue was full";
        out.counter("block_cache_file_dropped", None, help, tier.dropped_count)?;
        out.counter("block_cache_file_evictions", None, "Blocks evicted from it", tier.evictions_count)?;
        let help = "Blocks of the cache file whose checksum was wrong; each was read from its HFile instead";
        out.counter("block_cache_file_damaged", None, help, tier.damaged_count)?;
        out.counter(
            "block_cache_file_restored",
            None,
            "Blocks kept over the last restart",
            tier.restored_count,
        )?;
        out.counter("block_cache_file_failures", None, "I/O errors of the cache file", tier.failures_count)
    }
}

/// Writes metric families, one descriptor each.
struct Exposition<'e>(DescriptorEncoder<'e>);

impl Exposition<'_> {
    fn counter(&mut self, name: &str, unit: Option<&Unit>, help: &str, value: u64) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        encoder.encode_counter(&value, NO_EXEMPLAR)
    }

    fn gauge(&mut self, name: &str, unit: Option<&Unit>, help: &str, value: u64) -> fmt::Result {
        self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// A family of counters that differ in one label.
    fn counters<'l, V: EncodeCounterValue>(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        label: &str,
        samples: impl Iterator<Item = (&'l str, V)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (of, value) in samples {
            family.encode_family(&[(label, of)])?.encode_counter(&value, NO_EXEMPLAR)?;
        }
        Ok(())
    }

    /// A family of gauges that differ in one label.
    fn gauges<'l, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        unit: Option<&Unit>,
        help: &str,
        label: &str,
        samples: impl Iterator<Item = (&'l str, V)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for (of, value) in samples {
            family.encode_family(&[(label, of)])?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

const NO_EXEMPLAR: Option<&Exemplar<[(&str, &str); 0], u64>> = None;
