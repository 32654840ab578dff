//! What the load generator wrote (`halcyon bench ... --json`, docs/LOAD.md), as a run.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::outcome::{Latency, Resources, Run, Second, Slow};

/// The parts of the file that are used here. Unknown ones are left alone.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BenchResult {
    command_line: Vec<String>,
    started_ms: u64,
    elapsed_s: f64,
    partial: Option<String>,
    warmup_s: f64,
    warmup_rates_per_s: Vec<f64>,
    operations: u64,
    operations_per_s: f64,
    rate_wanted_per_s: Option<f64>,
    client_cpu_s: f64,
    server_cpu_s: Option<f64>,
    latency_us: BTreeMap<String, Summary>,
    histogram_us: BTreeMap<String, Vec<(u64, u64)>>,
    errors: BTreeMap<String, u64>,
    series: Vec<BenchSecond>,
    slow: Vec<Slow>,
    slow_left_out: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Summary {
    mean: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BenchSecond {
    elapsed_s: f64,
    operations: u64,
    p50_us: u64,
    p99_us: u64,
    max_us: u64,
}

/// A run without side, case, pauses and, but for processor time, resources. The error is a sentence.
pub fn run_of(json: &[u8]) -> Result<Run, String> {
    let result: BenchResult = serde_json::from_slice(json)
        .map_err(|error| format!("what the load generator wrote cannot be read: {error}"))?;
    if result.started_ms == 0 {
        return Err("the load generator did not say when it began".to_string());
    }
    let mean_us = |kind: &String| result.latency_us.get(kind).map_or(0.0, |summary| summary.mean);
    let latency = |(kind, histogram): (&String, &Vec<(u64, u64)>)| Latency {
        kind: kind.clone(),
        mean_us: mean_us(kind),
        histogram: histogram.clone(),
    };
    let second = |second: &BenchSecond| Second {
        at_s: second.elapsed_s,
        operations: second.operations,
        p50_us: second.p50_us,
        p99_us: second.p99_us,
        max_us: second.max_us,
        resident_bytes: None,
    };
    Ok(Run {
        side: String::new(),
        case: String::new(),
        repetition: 0,
        command_line: result.command_line,
        started_ms: result.started_ms,
        elapsed_s: result.elapsed_s,
        partial: result.partial,
        warmup_s: result.warmup_s,
        warmup_rates_per_s: result.warmup_rates_per_s,
        operations: result.operations,
        operations_per_s: result.operations_per_s,
        rate_wanted_per_s: result.rate_wanted_per_s,
        latencies: result
            .histogram_us
            .iter()
            .filter(|(_, histogram)| !histogram.is_empty())
            .map(latency)
            .collect(),
        series: result.series.iter().map(second).collect(),
        slow: result.slow,
        slow_left_out: result.slow_left_out,
        pauses: Vec::new(),
        resources: Resources {
            server_cpu_s: result.server_cpu_s.unwrap_or(0.0),
            client_cpu_s: result.client_cpu_s,
            others_cpu_s: 0.0,
            resident_bytes: 0,
            resident_peak_bytes: 0,
            disk_read_bytes: 0,
            disk_written_bytes: 0,
            io_wait_s: 0.0,
            stolen_s: 0.0,
            bound_by: String::new(),
        },
        errors: result.errors.into_iter().collect(),
        disk_bytes: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_becomes_a_run() {
        let json = br#"{"benchmark": "ycsb run", "started_ms": 5, "elapsed_s": 2.0, "operations": 30, "operations_per_s": 15.0,
            "rate_wanted_per_s": 16.0, "partial": null, "client_cpu_s": 0.5, "server_cpu_s": 1.5,
            "latency_us": {"READ": {"count": 30, "mean": 7.5, "p50": 7}}, "histogram_us": {"READ": [[7, 20], [9, 10]], "UPDATE": []},
            "errors": {"NotFound": 2}, "series": [{"elapsed_s": 1.0, "operations": 30, "p50_us": 7, "p99_us": 9, "p99.9_us": 9, "max_us": 9}],
            "slow": [{"at_s": 0.5, "kind": "READ", "latency_us": 20000}], "slow_left_out": 3, "extra": {}}"#;
        let run = run_of(json).unwrap();
        assert_eq!((run.operations, run.rate_wanted_per_s), (30, Some(16.0)));
        assert_eq!((run.resources.client_cpu_s, run.resources.server_cpu_s), (0.5, 1.5));
        let latency = Latency { kind: "READ".into(), mean_us: 7.5, histogram: vec![(7, 20), (9, 10)] };
        assert_eq!(run.latencies, [latency]);
        assert_eq!((run.series.len(), run.slow[0].latency_us, run.slow_left_out), (1, 20_000, 3));
        assert_eq!(run.errors, [("NotFound".to_string(), 2)]);
        assert!(run_of(b"{}").is_err() && run_of(b"{").is_err());
    }
}
