//! Advice as text and as JSON.

use serde_json::{Value, json};

use super::compare::{Change, Verdict};
use super::machine::{Machine, print_size};
use super::rules::{Advice, Source, Warning, advice, warnings};

/// What was asked, in one line.
fn about(machine: &Machine) -> String {
    let mut line = format!(
        "region server on JDK {}, {} with a heap of {}, {} processors; memstores {} and block cache {} of the heap",
        machine.jdk,
        machine.collector,
        print_size(machine.heap),
        machine.cores,
        machine.memstore_share,
        machine.cache_share
    );
    for (what, bytes) in [
        ("direct memory", machine.offheap.unwrap_or(0)),
        ("bucket cache", machine.bucket_cache),
        ("memstores outside the heap", machine.offheap_memstore),
    ] {
        if bytes > 0 {
            line += &format!("; {what} {}", print_size(bytes));
        }
    }
    line
}

/// What the tool knows of flags already in use.
pub(super) struct InUse {
    pub changes: Vec<Change>,
    pub not_understood: Vec<(usize, String)>,
}

pub(super) fn text(machine: &Machine, in_use: Option<&InUse>) -> String {
    let mut out = about(machine) + "\n";
    match in_use {
        None => out += &recommended(&advice(machine)),
        Some(in_use) => out += &changed(in_use),
    }
    let warnings = warnings(machine);
    if !warnings.is_empty() {
        out += "\ntraps\n";
    }
    for Warning { rule, text, source } in &warnings {
        out += &format!("  {rule}: {}\n{}", wrap(text, 4), cite(source));
    }
    out
}

fn recommended(rows: &[Advice]) -> String {
    let flags: Vec<&str> = rows.iter().map(|row| row.flag.as_str()).collect();
    let mut out = format!("\nexport HBASE_REGIONSERVER_OPTS=\"{}\"\n\nwhy\n", flags.join(" "));
    for row in rows {
        out += &format!("  {}\n    {}\n{}", row.flag, wrap(row.reason, 4), cite(&row.source));
    }
    out
}

fn changed(in_use: &InUse) -> String {
    let mut out = String::new();
    for (at, line) in &in_use.not_understood {
        out += &format!("line {at} was not understood, as it would have to be run: {line}\n");
    }
    for verdict in [Verdict::Drop, Verdict::Change, Verdict::Add, Verdict::Keep] {
        let rows: Vec<_> = in_use.changes.iter().filter(|change| change.verdict == verdict).collect();
        if rows.is_empty() {
            continue;
        }
        out += &format!("\n{}\n", verdict.word());
        for row in rows {
            let flag = match (row.flag.as_str(), row.instead.as_str()) {
                (flag, "") => flag.to_string(),
                ("", instead) => instead.to_string(),
                (flag, instead) => format!("{flag} to {instead}"),
            };
            out += &format!("  {flag}\n    {}\n", wrap(&row.reason, 4));
            out += &row.source.as_ref().map(cite).unwrap_or_default();
        }
    }
    out
}

fn cite(source: &Source) -> String {
    format!("    [{}, {}]\n", source.title, source.url)
}

/// Lines of at most 110 characters, all but the first indented.
fn wrap(text: &str, indent: usize) -> String {
    let (mut out, mut column) = (String::new(), indent);
    for word in text.split_whitespace() {
        if column > indent && column + word.len() > 109 {
            out += &format!("\n{:indent$}", "");
            column = indent;
        } else if !out.is_empty() {
            out.push(' ');
        }
        out += word;
        column += word.chars().count() + 1;
    }
    out
}

pub(super) fn json(machine: &Machine, in_use: Option<&InUse>) -> Value {
    let flags = advice(machine).into_iter().map(|row| {
        json!({
            "rule": row.rule,
            "flag": row.flag,
            "reason": row.reason,
            "title": row.source.title,
            "source": row.source.url,
        })
    });
    let traps = warnings(machine).into_iter().map(|row| {
        json!({ "rule": row.rule, "text": row.text, "title": row.source.title, "source": row.source.url })
    });
    let mut whole = json!({
        "jdk": machine.jdk,
        "heap_bytes": machine.heap,
        "cores": machine.cores,
        "collector": machine.collector.to_string(),
        "memstore_share": machine.memstore_share,
        "cache_share": machine.cache_share,
        "offheap_bytes": machine.offheap,
        "bucket_cache_bytes": machine.bucket_cache,
        "offheap_memstore_bytes": machine.offheap_memstore,
        "flags": flags.collect::<Value>(),
        "traps": traps.collect::<Value>(),
    });
    if let Some(in_use) = in_use {
        let changes = in_use.changes.iter().map(|change| {
            json!({
                "do": change.verdict.word(),
                "flag": change.flag,
                "instead": change.instead,
                "reason": change.reason,
                "source": change.source.map(|source| source.url),
            })
        });
        let lines = in_use.not_understood.iter().map(|(at, text)| json!({ "line": at, "text": text }));
        whole["in_use"] = changes.collect();
        whole["not_understood"] = lines.collect();
    }
    whole
}
