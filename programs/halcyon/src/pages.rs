//! What the info ports say.

use std::fmt::Write;
use std::sync::Arc;

use halcyon_env::{Clock, Stall, Stalls};
use halcyon_regionserver::{MemoryPart, RegionServer};
use halcyon_rpc::{CallClass, ClassSnapshot, Queues, RpcStatsSnapshot};
use serde_json::{Value, json};

use crate::info::Page;

/// Reads the counters of a port.
type ReadStats = Box<dyn Fn() -> RpcStatsSnapshot + Send + Sync>;

/// What the pages are made of. Shared by both ports.
pub struct Sources {
    pub clock: Arc<dyn Clock>,
    pub stalls: Arc<Stalls>,
    pub started_ms: i64,
    pub cluster_id: String,
    /// The settings as printed.
    pub settings: String,
    pub region_server: Arc<RegionServer>,
    /// What the calls of all ports hold.
    pub queues: Arc<Queues>,
    /// What the operating system says that the process takes.
    pub resident_bytes: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    /// Name of a port and where its counters are read.
    pub rpc: Vec<(&'static str, ReadStats)>,
}

impl Sources {
    pub fn page(&self, path: &str) -> Option<Page> {
        match path {
            "/" => Some(Page::text(self.state())),
            "/stalls" => Some(Page::text(self.stalls())),
            "/stalls.json" => Some(Page::json(self.stalls_json())),
            "/memory" => Some(Page::text(self.memory_page())),
            "/metrics" => Some(Page::metrics(self.metrics())),
            _ => None,
        }
    }

    fn state(&self) -> String {
        let up_s = (self.clock.now_ms() - self.started_ms).max(0) / 1000;
        let mut out = format!(
            "halcyon {} standalone\ncluster {}\nserver {}\nup {up_s} s\n",
            env!("CARGO_PKG_VERSION"),
            self.cluster_id,
            self.region_server.server_name()
        );
        if let Some(failure) = self.region_server.failure() {
            let _ = writeln!(out, "FAILED: {failure}");
        }
        if let Some(failure) = self.region_server.file_tier_failure() {
            let _ = writeln!(out, "the block cache's file is off: {failure}");
        }
        let mut regions = self.region_server.regions().online();
        regions.sort_by(|a, b| a.region.info().region_name().cmp(b.region.info().region_name()));
        let _ = writeln!(out, "\n{} regions", regions.len());
        for online in regions {
            let (info, stats) = (online.region.info(), online.region.stats());
            let _ = writeln!(
                out,
                "{}  memstore {} B  files {} ({} B)  reads {}  writes {}",
                info.region_name().escape_ascii(),
                stats.memstore.data_bytes,
                stats.store_files,
                stats.store_file_bytes,
                stats.read_requests,
                stats.write_requests
            );
        }
        let _ = write!(out, "\nsettings\n{}", self.settings);
        out
    }

    /// The latest waits over the threshold, then sums by cause.
    fn stalls(&self) -> String {
        let mut out = String::from("ended (ms since 1970)  ms  cause  what\n");
        for stall in self.stalls.recent() {
            let ms = stall.time.as_secs_f64() * 1000.0;
            let _ = writeln!(out, "{}  {ms:.1}  {}  {}", stall.at_ms, stall.cause, stall.detail);
        }
        out.push_str("\ncause  count  total ms  longest ms\n");
        for (cause, sum) in self.stalls.sums() {
            let (total, longest) = (sum.total.as_secs_f64() * 1000.0, sum.longest.as_secs_f64() * 1000.0);
            let _ = writeln!(out, "{cause}  {}  {total:.1}  {longest:.1}", sum.count);
        }
        out
    }

    /// The latest waits over the threshold, for programs.
    fn stalls_json(&self) -> String {
        let stall = |stall: Stall| {
            let length_ms = stall.time.as_secs_f64() * 1000.0;
            json!({ "ended_ms": stall.at_ms, "length_ms": length_ms, "cause": stall.cause, "what": stall.detail })
        };
        let stalls: Vec<Value> = self.stalls.recent().into_iter().map(stall).collect();
        let count: u64 = self.stalls.sums().iter().map(|(_, sum)| sum.count).sum();
        json!({ "count": count, "stalls": stalls }).to_string()
    }

    /// What every part of the server holds.
    fn memory(&self) -> Vec<MemoryPart> {
        let mut parts = self.region_server.memory();
        let limits = self.queues.limits();
        let part = |name, held: usize, limit: usize| MemoryPart {
            name,
            held: held as u64,
            limit: Some(limit as u64),
        };
        parts.push(part("requests", self.queues.request_bytes(), limits.request_bytes_max));
        parts.push(part("answers-waiting", self.queues.response_bytes(), limits.answer_bytes_max));
        let reserved = self.queues.reserved_bytes() as u64;
        parts.push(MemoryPart { name: "answers-being-made", held: reserved, limit: None });
        parts
    }

    /// The ledger: who holds how much, and how much it may hold.
    fn memory_page(&self) -> String {
        let mut out = format!("budget {}\n\nheld  limit  part\n", self.region_server.settings().memory_bytes);
        let (mut held, mut limits) = (0, 0);
        for MemoryPart { name, held: bytes, limit } in self.memory() {
            let _ = match limit {
                Some(limit) => writeln!(out, "{bytes}  {limit}  {name}"),
                None => writeln!(out, "{bytes}  (in the limit above)  {name}"),
            };
            held += bytes;
            limits += limit.unwrap_or(0);
        }
        let _ = writeln!(out, "{held}  {limits}  sum");
        if let Some(bytes) = (self.resident_bytes)() {
            let _ = writeln!(out, "\nresident {bytes}");
        }
        out
    }

    fn metrics(&self) -> String {
        let mut out = String::new();
        for (port, read) in &self.rpc {
            let stats = read();
            for (name, kind, value) in [
                ("connections_opened_total", "counter", stats.connections_opened),
                ("connections_refused_total", "counter", stats.connections_refused),
                ("connections_left_total", "counter", stats.connections_left),
                ("connections_open", "gauge", stats.connections_open as u64),
                ("calls_total", "counter", stats.calls),
                ("calls_failed_total", "counter", stats.calls_failed),
                ("calls_refused_total", "counter", stats.calls_refused),
                ("received_bytes_total", "counter", stats.received_bytes),
                ("sent_bytes_total", "counter", stats.sent_bytes),
                ("shared_cell_bytes_total", "counter", stats.shared_cell_bytes),
                ("copied_cell_bytes_total", "counter", stats.copied_cell_bytes),
            ] {
                if *port == self.rpc[0].0 {
                    let _ = writeln!(out, "# TYPE halcyon_rpc_{name} {kind}");
                }
                let _ = writeln!(out, "halcyon_rpc_{name}{{port=\"{port}\"}} {value}");
            }
        }
        type Read = fn(&ClassSnapshot) -> u64;
        let of_class: [(&str, &str, Read); 5] = [
            ("calls_waiting", "gauge", |class| class.calls_waiting as u64),
            ("request_bytes", "gauge", |class| class.request_bytes as u64),
            ("calls_refused_full_total", "counter", |class| class.refused),
            ("calls_expired_total", "counter", |class| class.expired),
            ("calls_abandoned_total", "counter", |class| class.abandoned),
        ];
        for (name, kind, read) in of_class {
            let _ = writeln!(out, "# TYPE halcyon_rpc_{name} {kind}");
            for class in CallClass::ALL {
                let value = read(&self.queues.snapshot(class));
                let _ = writeln!(out, "halcyon_rpc_{name}{{class=\"{}\"}} {value}", class.name());
            }
        }
        self.call_times(&mut out);
        let response_bytes = self.queues.response_bytes();
        let _ = writeln!(out, "# TYPE halcyon_rpc_response_bytes gauge");
        let _ = writeln!(out, "halcyon_rpc_response_bytes {response_bytes}");
        out.push_str("# TYPE halcyon_memory_bytes gauge\n");
        let (memory, plan) = (self.memory(), self.region_server.settings().plan());
        for part in &memory {
            let _ = writeln!(out, "halcyon_memory_bytes{{part=\"{}\"}} {}", part.name, part.held);
        }
        out.push_str("# TYPE halcyon_memory_limit_bytes gauge\n");
        let _ = writeln!(out, "halcyon_memory_limit_bytes{{part=\"budget\"}} {}", plan.budget);
        for part in &memory {
            if let Some(limit) = part.limit {
                let _ = writeln!(out, "halcyon_memory_limit_bytes{{part=\"{}\"}} {limit}", part.name);
            }
        }
        if let Some(bytes) = (self.resident_bytes)() {
            let _ = writeln!(out, "# TYPE halcyon_resident_bytes gauge\nhalcyon_resident_bytes {bytes}");
        }
        for (name, kind) in
            [("stalls_total", "counter"), ("stalls_seconds_total", "counter"), ("stall_seconds_max", "gauge")]
        {
            let _ = writeln!(out, "# TYPE halcyon_{name} {kind}");
            for (cause, sum) in self.stalls.sums() {
                let value = match name {
                    "stalls_total" => sum.count as f64,
                    "stalls_seconds_total" => sum.total.as_secs_f64(),
                    _ => sum.longest.as_secs_f64(),
                };
                let _ = writeln!(out, "halcyon_{name}{{cause=\"{cause}\"}} {value}");
            }
        }
        self.cache_metrics(&mut out);
        let counters = &self.region_server.counters;
        for (name, counter) in [
            ("gets", &counters.gets),
            ("scans", &counters.scans),
            ("mutations", &counters.mutations),
            ("multis", &counters.multis),
            ("calls_pooled", &counters.pooled),
            ("calls_failed", &counters.failed),
            ("calls_slow", &counters.slow),
            ("leases_expired", &counters.leases_expired),
            ("flushes", &counters.flushes),
            ("memory_compactions", &counters.memory_compactions),
            ("compactions", &counters.compactions),
        ] {
            let name = format!("halcyon_regionserver_{name}_total");
            let _ = writeln!(out, "# TYPE {name} counter\n{name} {}", counter.get());
        }
        out
    }

    /// From when a call was read from its socket until its answer was given to it.
    fn call_times(&self, out: &mut String) {
        let _ = writeln!(out, "# TYPE halcyon_rpc_call_seconds histogram");
        for class in CallClass::ALL {
            let (name, times) = (class.name(), self.queues.times(class));
            let mut bucket = |bound: &str, count: u64| {
                let _ = writeln!(
                    out,
                    "halcyon_rpc_call_seconds_bucket{{class=\"{name}\",le=\"{bound}\"}} {count}"
                );
            };
            for (seconds, count) in &times.up_to {
                bucket(&seconds.to_string(), *count);
            }
            bucket("+Inf", times.count);
            let _ = writeln!(out, "halcyon_rpc_call_seconds_sum{{class=\"{name}\"}} {}", times.sum_seconds);
            let _ = writeln!(out, "halcyon_rpc_call_seconds_count{{class=\"{name}\"}} {}", times.count);
        }
    }

    fn cache_metrics(&self, out: &mut String) {
        let cache = self.region_server.stats().cache;
        let mut put = |tier: &str, rows: &[(&str, &str, u64)]| {
            for (name, kind, value) in rows {
                let name = format!("halcyon_{tier}_{name}");
                let _ = writeln!(out, "# TYPE {name} {kind}\n{name} {value}");
            }
        };
        put(
            "block_cache",
            &[
                ("capacity_bytes", "gauge", cache.capacity_bytes),
                ("used_bytes", "gauge", cache.used_bytes),
                ("blocks", "gauge", cache.blocks_count),
                ("hits_total", "counter", cache.hits_count),
                ("misses_total", "counter", cache.misses_count),
                ("inserts_total", "counter", cache.inserts_count),
                ("evictions_total", "counter", cache.evictions_count),
                ("decoded_bytes_total", "counter", cache.decoded_bytes),
            ],
        );
        let Some(tier) = cache.file_tier else { return };
        put(
            "block_cache_file",
            &[
                ("on", "gauge", u64::from(tier.is_on)),
                ("capacity_bytes", "gauge", tier.capacity_bytes),
                ("used_bytes", "gauge", tier.used_bytes),
                ("blocks", "gauge", tier.blocks_count),
                ("index_bytes", "gauge", tier.index_bytes),
                ("queued_bytes", "gauge", tier.queued_bytes),
                ("hits_total", "counter", tier.hits_count),
                ("misses_total", "counter", tier.misses_count),
                ("written_total", "counter", tier.written_count),
                ("dropped_total", "counter", tier.dropped_count),
                ("evictions_total", "counter", tier.evictions_count),
                ("damaged_total", "counter", tier.damaged_count),
                ("restored_total", "counter", tier.restored_count),
                ("failures_total", "counter", tier.failures_count),
            ],
        );
    }
}
