//! A log as text for people and as JSON for programs.

use std::fmt::{self, Write};

use serde_json::{Value, json};

use super::events::Pause;
use super::reader::Log;
use super::table::{Row, Table};

const MB: f64 = (1u64 << 20) as f64;
/// Concurrent phases listed; the shortest in total are left out.
const PHASES_MAX: usize = 12;

/// The summary.
pub(super) fn text(log: &Log) -> String {
    let mut out = String::new();
    write_text(&mut out, log, &Table::of(log)).expect("a string takes everything");
    out
}

fn write_text(out: &mut String, log: &Log, table: &Table) -> fmt::Result {
    for jvm in &log.jvms {
        let collector = jvm.collector.as_deref().unwrap_or("collector not named");
        let version = jvm.version.as_deref().unwrap_or("not named");
        writeln!(out, "{collector}, JVM {version}, {:.3} s of log", jvm.wall_s)?;
    }
    writeln!(out, "{} lines, {} not understood", log.lines, log.lines_unknown)?;

    writeln!(out, "\n{}", head("pauses of collections, ms"))?;
    for (kind, cause, row) in &table.pauses {
        let name = if cause.is_empty() { kind.clone() } else { format!("{kind} · {cause}") };
        writeln!(out, "{}", line(&name, row))?;
    }
    writeln!(out, "{}", line("all", &table.all_pauses))?;
    if !table.other_safepoints.is_empty() {
        writeln!(out, "\n{}", head("safepoints that are no collection, ms"))?;
        for (name, row) in &table.other_safepoints {
            writeln!(out, "{}", line(name, row))?;
        }
    }
    if !log.safepoints.is_empty() {
        writeln!(out, "\n{}", head("safepoints, ms, with the time to reach them"))?;
        let mut found: Vec<_> = log.safepoints.iter().collect();
        found.sort_by(|a, b| b.1.total.total_ms.total_cmp(&a.1.total.total_ms));
        for (name, safepoints) in found {
            let mark = if safepoints.collection { "" } else { " (no collection)" };
            let name = format!("{}{mark}", log.names.text(*name));
            writeln!(out, "{}", line(&name, &Row::from(&safepoints.total)))?;
        }
        if let Some(reaching) = &table.reaching {
            writeln!(out, "{}", line("time to safepoint, all", &Row::from(reaching)))?;
        }
    }
    if !log.stall_lengths.is_empty() {
        writeln!(out, "\n{}", head("stalls of single threads, ms"))?;
        for (name, lengths) in &log.stall_lengths {
            writeln!(out, "{}", line(log.names.text(*name), &Row::from(lengths)))?;
        }
    }
    if !log.phases.is_empty() {
        writeln!(out, "\n{}", head("beside the application, ms"))?;
        let mut found: Vec<_> = log.phases.iter().collect();
        found.sort_by(|a, b| b.1.total_ms.total_cmp(&a.1.total_ms));
        for (name, lengths) in found.iter().take(PHASES_MAX) {
            writeln!(out, "{}", line(log.names.text(**name), &Row::from(*lengths)))?;
        }
        if found.len() > PHASES_MAX {
            writeln!(out, "and {} shorter ones", found.len() - PHASES_MAX)?;
        }
    }
    if !log.cycles.is_empty() {
        writeln!(out, "\ncollections by cause")?;
        for ((kind, cause), count) in &log.cycles {
            writeln!(
                out,
                "{:<60}{count:>8}",
                format!("{} · {}", log.names.text(*kind), log.names.text(*cause))
            )?;
        }
    }
    writeln!(out)?;
    write_sums(out, log, table)
}

fn write_sums(out: &mut String, log: &Log, table: &Table) -> fmt::Result {
    write!(out, "stopped    {:.3} s", table.stopped_ms / 1e3)?;
    match table.stopped_share() {
        Some(share) => writeln!(out, " of {:.3} s, {:.2} %", table.wall_s, share * 100.0)?,
        None => writeln!(out, "; the log has no times to compare with")?,
    }
    if table.reaching.is_none() {
        writeln!(
            out,
            "           without the time to safepoint: the log has no safepoints (-Xlog:safepoint)"
        )?;
    }
    let memory = &log.memory;
    let rate = |bytes: u64| match table.wall_s > 0.0 {
        true => format!(", {:.1} MB/s", bytes as f64 / MB / table.wall_s),
        false => String::new(),
    };
    writeln!(out, "allocated  {:.1} MB{}", memory.allocated as f64 / MB, rate(memory.allocated))?;
    if let Some(promoted) = memory.promoted {
        writeln!(out, "promoted   {:.1} MB{}", promoted as f64 / MB, rate(promoted))?;
    }
    writeln!(
        out,
        "heap       {:.1} MB used at most of {:.1} MB",
        memory.used_max as f64 / MB,
        memory.capacity_max as f64 / MB
    )?;
    if log.pacing_ms > 0.0 {
        writeln!(out, "pacing     {:.3} s of all threads together", log.pacing_ms / 1e3)?;
    }
    Ok(())
}

fn head(title: &str) -> String {
    format!(
        "{title:<60}{:>8}{:>12}{:>10}{:>10}{:>10}{:>10}{:>10}",
        "count", "total", "mean", "p50", "p99", "p99.9", "max"
    )
}

fn line(name: &str, row: &Row) -> String {
    let name: String = name.chars().take(59).collect();
    format!(
        "{name:<60}{:>8}{:>12.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}",
        row.count, row.total_ms, row.mean_ms, row.p50_ms, row.p99_ms, row.p999_ms, row.max_ms
    )
}

/// One line for each stop: tab-separated, with a head.
pub(super) fn pauses(log: &Log) -> String {
    let mut out = "jvm\tstart_s\tlength_ms\twhat\tkind\tcause\tbefore_mb\tafter_mb\n".to_string();
    for pause in &log.pauses {
        let what = if pause.collection { "collection" } else { "safepoint" };
        let (before, after) = match pause.heap {
            Some(heap) => {
                (format!("{:.1}", heap.before as f64 / MB), format!("{:.1}", heap.after as f64 / MB))
            }
            None => (String::new(), String::new()),
        };
        let (kind, cause) = (log.names.text(pause.kind), log.names.text(pause.cause));
        let (jvm, start, length) = (pause.jvm, pause.start_s, pause.length_ms);
        out += &format!("{jvm}\t{start:.4}\t{length:.6}\t{what}\t{kind}\t{cause}\t{before}\t{after}\n");
    }
    out
}

/// Everything, for programs. With the single pauses if asked.
pub(super) fn json(log: &Log, with_pauses: bool) -> Value {
    let table = Table::of(log);
    let name = |name| log.names.text(name);
    let jvms = log.jvms.iter().map(
        |jvm| json!({ "collector": jvm.collector, "version": jvm.version, "wall_s": rounded(jvm.wall_s) }),
    );
    let pauses =
        table.pauses.iter().map(|(kind, cause, row)| merged(json!({ "kind": kind, "cause": cause }), row));
    let safepoints = log.safepoints.iter().map(|(operation, found)| {
        let front = json!({
            "operation": name(*operation),
            "collection": found.collection,
            "reaching_total_ms": rounded(found.reaching.total_ms),
            "reaching_max_ms": rounded(found.reaching.max_ms),
        });
        merged(front, &Row::from(&found.total))
    });
    let lengths = |(key, found): (&_, &_)| merged(json!({ "name": name(*key) }), &Row::from(found));
    let cycles = log
        .cycles
        .iter()
        .map(|((kind, cause), count)| json!({ "kind": name(*kind), "cause": name(*cause), "count": count }));
    let mut whole = json!({
        "jvms": jvms.collect::<Value>(),
        "wall_s": rounded(table.wall_s),
        "stopped_ms": rounded(table.stopped_ms),
        "stopped_share": table.stopped_share().map(rounded),
        "pauses_all": merged(json!({}), &table.all_pauses),
        "pauses_by_cause": pauses.collect::<Value>(),
        "safepoints_other_all": merged(json!({}), &table.all_other),
        "safepoints": safepoints.collect::<Value>(),
        "stalls": log.stall_lengths.iter().map(lengths).collect::<Value>(),
        "concurrent": log.phases.iter().map(lengths).collect::<Value>(),
        "cycles": cycles.collect::<Value>(),
        "pacing_ms": rounded(log.pacing_ms),
        "allocated_bytes": log.memory.allocated,
        "promoted_bytes": log.memory.promoted,
        "used_max_bytes": log.memory.used_max,
        "capacity_max_bytes": log.memory.capacity_max,
        "lines": log.lines,
        "lines_unknown": log.lines_unknown,
    });
    if with_pauses {
        whole["pauses"] = log.pauses.iter().map(|pause| pause_json(log, pause)).collect();
        let stalls = log.stalls.iter().map(|stall| {
            json!({
                "start_s": rounded(stall.start_s),
                "length_ms": rounded(stall.length_ms),
                "kind": name(stall.kind),
                "jvm": stall.jvm,
            })
        });
        whole["stall_list"] = stalls.collect();
    }
    whole
}

/// The fields of `front`, then those of `row`.
fn merged(mut front: Value, row: &Row) -> Value {
    front["count"] = row.count.into();
    let lengths = [
        ("total_ms", row.total_ms),
        ("mean_ms", row.mean_ms),
        ("p50_ms", row.p50_ms),
        ("p99_ms", row.p99_ms),
        ("p999_ms", row.p999_ms),
        ("max_ms", row.max_ms),
    ];
    for (name, length) in lengths {
        front[name] = rounded(length);
    }
    front
}

fn pause_json(log: &Log, pause: &Pause) -> Value {
    json!({
        "jvm": pause.jvm,
        "start_s": rounded(pause.start_s),
        "start_wall_ms": pause.start_wall_ms.map(rounded),
        "length_ms": rounded(pause.length_ms),
        "collection": pause.collection,
        "kind": log.names.text(pause.kind),
        "cause": log.names.text(pause.cause),
        "before_bytes": pause.heap.map(|heap| heap.before),
        "after_bytes": pause.heap.map(|heap| heap.after),
    })
}

/// Rounded to a millionth, which is a nanosecond where milliseconds are meant. `null` if it is not finite.
fn rounded(number: f64) -> Value {
    ((number * 1e6).round() / 1e6).into()
}
