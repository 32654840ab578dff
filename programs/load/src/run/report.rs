//! How a run went: text for a reader, JSON for a program.

use std::fmt::Write as _;
use std::path::Path;

use halcyon_client::Cluster;
use halcyon_env::Env;
use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use crate::run::machine::Machine;
use crate::run::{Outcome, Plan, SlowOperation};

/// Percentiles that are told.
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// Prints the outcome, writes the file that was asked for, and turns a partial one into an error.
///
/// `extra` joins the JSON under its own name: what only this kind of run knows.
pub fn conclude(
    plan: &Plan<'_>,
    outcome: &Outcome,
    cluster: Option<&Cluster>,
    extra: Value,
) -> Result<(), String> {
    print!("{}", result_text(plan, outcome, cluster));
    if let Some(file) = &plan.report.json {
        write_json(plan.env, file, &result_json(plan, outcome, cluster, extra))?;
    }
    match &outcome.partial {
        None => Ok(()),
        Some(why) => Err(format!("the result is partial: {why}")),
    }
}

/// Writes a file as a whole, or leaves the one that was there.
pub fn write_json(env: &Env, file: &Path, json: &Value) -> Result<(), String> {
    let mut bytes = serde_json::to_vec_pretty(json).map_err(|error| error.to_string())?;
    bytes.push(b'\n');
    let written = std::path::absolute(file).and_then(|path| env.fs.replace(&path, &bytes));
    written.map_err(|error| format!("{}: {error}", file.display()))
}

/// `p50 12 p90 20 ... max 31`.
fn percentiles_text(histogram: &Histogram<u64>) -> String {
    let mut text = String::new();
    for (name, quantile) in QUANTILES {
        let _ = write!(text, "{name} {} ", histogram.value_at_quantile(quantile));
    }
    let _ = write!(text, "max {}", histogram.max());
    text
}

/// The outcome for a reader.
pub fn result_text(plan: &Plan<'_>, outcome: &Outcome, cluster: Option<&Cluster>) -> String {
    let mut out = String::new();
    let operations = outcome.totals.operations;
    let marked = if outcome.partial.is_some() { " (partial)" } else { "" };
    let _ = writeln!(
        out,
        "{}{marked}: {operations} operations in {:.2} s, {:.0}/s",
        plan.name,
        outcome.elapsed_s,
        per(operations as f64, outcome.elapsed_s)
    );
    if outcome.warmup_operations > 0 {
        let _ = writeln!(
            out,
            "  after a warm-up of {:.0} s with {} operations",
            outcome.warmup_s, outcome.warmup_operations
        );
    }
    for (kind, histogram) in outcome.totals.latencies.iter().filter(|(_, histogram)| !histogram.is_empty()) {
        let _ = writeln!(
            out,
            "  {kind} latency (us), {}: mean {:.0} {}",
            histogram.len(),
            histogram.mean(),
            percentiles_text(histogram)
        );
    }
    let cores = per(outcome.client_cpu_s, outcome.elapsed_s);
    let us = per(outcome.client_cpu_s * 1e6, operations as f64);
    let _ = writeln!(
        out,
        "  client cpu {:.2} s, {cores:.2} cores, {us:.2} us per operation",
        outcome.client_cpu_s
    );
    if let Some(server) = outcome.server_cpu_s {
        let us = per(server * 1e6, operations as f64);
        let cores = per(server, outcome.elapsed_s);
        let _ = writeln!(out, "  server cpu {server:.2} s, {cores:.2} cores, {us:.2} us per operation");
    }
    for (class, count) in &outcome.totals.errors {
        let _ = writeln!(out, "  failed: {class} {count}");
    }
    for (class, count) in cluster.map(Cluster::retries).unwrap_or_default() {
        let _ = writeln!(out, "  tried again: {class} {count}");
    }
    out
}

fn per(what: f64, each: f64) -> f64 {
    if each > 0.0 { what / each } else { 0.0 }
}

/// The outcome for a program.
pub fn result_json(plan: &Plan<'_>, outcome: &Outcome, cluster: Option<&Cluster>, extra: Value) -> Value {
    let operations = outcome.totals.operations;
    let (mut latencies, mut histograms) = (Map::new(), Map::new());
    for (kind, histogram) in &outcome.totals.latencies {
        let mut summary = Map::new();
        summary.insert("count".into(), histogram.len().into());
        summary.insert("mean".into(), histogram.mean().into());
        for (name, quantile) in QUANTILES {
            summary.insert(name.into(), histogram.value_at_quantile(quantile).into());
        }
        summary.insert("max".into(), histogram.max().into());
        latencies.insert((*kind).into(), summary.into());
        let counts = histogram.iter_recorded().map(|at| json!([at.value_iterated_to(), at.count_at_value()]));
        histograms.insert((*kind).into(), counts.collect::<Vec<_>>().into());
    }
    let second = |second: &crate::run::driver::Second| {
        json!({
            "elapsed_s": second.elapsed_s,
            "operations": second.operations,
            "p50_us": second.p50_us,
            "p99_us": second.p99_us,
            "p99.9_us": second.p999_us,
            "max_us": second.max_us,
        })
    };
    let slow = |slow: &SlowOperation| {
        json!({
            "at_s": slow.begin_ns.saturating_sub(outcome.start_ns) as f64 / 1e9,
            "kind": plan.kinds[slow.kind],
            "latency_us": slow.latency_us,
        })
    };
    let machine = Machine::new(plan.env);
    json!({
        "benchmark": plan.name,
        "command_line": std::env::args().collect::<Vec<_>>(),
        "environment": machine.describe(),
        "cluster": cluster.map(|cluster| cluster.address().to_string()),
        "started_ms": outcome.started_ms,
        "ended_ms": plan.env.clock.now_ms(),
        "warmup_s": outcome.warmup_s,
        "warmup_rates_per_s": outcome.warmup_rates_per_s,
        "warmup_operations": outcome.warmup_operations,
        "partial": outcome.partial,
        "rate_wanted_per_s": plan.report.rate,
        "elapsed_s": outcome.elapsed_s,
        "operations": operations,
        "operations_per_s": per(operations as f64, outcome.elapsed_s),
        "client_cpu_s": outcome.client_cpu_s,
        "client_cpu_us_per_operation": per(outcome.client_cpu_s * 1e6, operations as f64),
        "server_cpu_s": outcome.server_cpu_s,
        "server_cpu_us_per_operation": outcome.server_cpu_s.map(|cpu| per(cpu * 1e6, operations as f64)),
        "server_resident_bytes": plan.report.server_pid.and_then(|p| machine.process_resident_bytes(p)),
        "latency_us": latencies,
        "histogram_us": histograms,
        "errors": outcome.totals.errors,
        "retries": cluster.map(Cluster::retries),
        "series": outcome.series.iter().map(second).collect::<Vec<_>>(),
        "slow_ms": plan.report.slow_ms,
        "slow": outcome.totals.slow.in_order().iter().map(slow).collect::<Vec<_>>(),
        "slow_left_out": outcome.totals.slow.left_out(),
        "extra": extra,
    })
}
