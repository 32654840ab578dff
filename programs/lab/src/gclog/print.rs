//! A log as text for people and as JSON for programs.

use std::fmt::{self, Write};

use super::events::Pause;
use super::reader::Log;
use super::table::{Row, Table};
use crate::json::Json;

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

/// Everything, for programs. With the single stops if asked.
pub(super) fn json(log: &Log, with_pauses: bool) -> Json {
    let table = Table::of(log);
    let name = |name| Json::from(log.names.text(name));
    let jvms = log.jvms.iter().map(|jvm| {
        Json::Object(vec![
            ("collector", Json::or_null(jvm.collector.clone())),
            ("version", Json::or_null(jvm.version.clone())),
            ("wall_s", jvm.wall_s.into()),
        ])
    });
    let rows = table.pauses.iter().map(|(kind, cause, row)| {
        object(row, vec![("kind", kind.as_str().into()), ("cause", cause.as_str().into())])
    });
    let safepoints = log.safepoints.iter().map(|(operation, found)| {
        let front = vec![
            ("operation", name(*operation)),
            ("collection", found.collection.into()),
            ("reaching_total_ms", found.reaching.total_ms.into()),
            ("reaching_max_ms", found.reaching.max_ms.into()),
        ];
        object(&Row::from(&found.total), front)
    });
    let lengths = |(key, found): (&_, &_)| object(&Row::from(found), vec![("name", name(*key))]);
    let cycles = log.cycles.iter().map(|((kind, cause), count)| {
        Json::Object(vec![("kind", name(*kind)), ("cause", name(*cause)), ("count", (*count).into())])
    });
    let mut fields = vec![
        ("jvms", Json::List(jvms.collect())),
        ("wall_s", table.wall_s.into()),
        ("stopped_ms", table.stopped_ms.into()),
        ("stopped_share", Json::or_null(table.stopped_share())),
        ("pauses_all", object(&table.all_pauses, vec![])),
        ("pauses_by_cause", Json::List(rows.collect())),
        ("safepoints_other_all", object(&table.all_other, vec![])),
        ("safepoints", Json::List(safepoints.collect())),
        ("stalls", Json::List(log.stall_lengths.iter().map(lengths).collect())),
        ("concurrent", Json::List(log.phases.iter().map(lengths).collect())),
        ("cycles", Json::List(cycles.collect())),
        ("pacing_ms", log.pacing_ms.into()),
        ("allocated_bytes", log.memory.allocated.into()),
        ("promoted_bytes", Json::or_null(log.memory.promoted)),
        ("used_max_bytes", log.memory.used_max.into()),
        ("capacity_max_bytes", log.memory.capacity_max.into()),
        ("lines", log.lines.into()),
        ("lines_unknown", log.lines_unknown.into()),
    ];
    if with_pauses {
        fields.push(("pauses", Json::List(log.pauses.iter().map(|pause| one(log, pause)).collect())));
        let stalls = log.stalls.iter().map(|stall| {
            Json::Object(vec![
                ("start_s", stall.start_s.into()),
                ("length_ms", stall.length_ms.into()),
                ("kind", name(stall.kind)),
                ("jvm", u64::from(stall.jvm).into()),
            ])
        });
        fields.push(("stall_list", Json::List(stalls.collect())));
    }
    Json::Object(fields)
}

fn object(row: &Row, front: Vec<(&'static str, Json)>) -> Json {
    let mut fields = front;
    fields.extend([
        ("count", row.count.into()),
        ("total_ms", row.total_ms.into()),
        ("mean_ms", row.mean_ms.into()),
        ("p50_ms", row.p50_ms.into()),
        ("p99_ms", row.p99_ms.into()),
        ("p999_ms", row.p999_ms.into()),
        ("max_ms", row.max_ms.into()),
    ]);
    Json::Object(fields)
}

fn one(log: &Log, pause: &Pause) -> Json {
    Json::Object(vec![
        ("jvm", u64::from(pause.jvm).into()),
        ("start_s", pause.start_s.into()),
        ("start_wall_ms", Json::or_null(pause.start_wall_ms)),
        ("length_ms", pause.length_ms.into()),
        ("collection", pause.collection.into()),
        ("kind", log.names.text(pause.kind).into()),
        ("cause", log.names.text(pause.cause).into()),
        ("before_bytes", Json::or_null(pause.heap.map(|heap| heap.before))),
        ("after_bytes", Json::or_null(pause.heap.map(|heap| heap.after))),
    ])
}
