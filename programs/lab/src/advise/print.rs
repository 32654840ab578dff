//! Advice as text and as JSON.

use super::compare::{Change, Verdict};
use super::machine::{Machine, print_size};
use super::rules::{Advice, Source, Warning, advice, warnings};
use crate::json::Json;

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

pub(super) fn json(machine: &Machine, in_use: Option<&InUse>) -> Json {
    let source = |source: &Source| [("title", source.title.into()), ("source", source.url.into())];
    let rows = advice(machine).into_iter().map(|row| {
        let mut fields =
            vec![("rule", row.rule.into()), ("flag", row.flag.into()), ("reason", row.reason.into())];
        fields.extend(source(&row.source));
        Json::Object(fields)
    });
    let traps = warnings(machine).into_iter().map(|row| {
        let mut fields = vec![("rule", row.rule.into()), ("text", row.text.into())];
        fields.extend(source(&row.source));
        Json::Object(fields)
    });
    let mut fields = vec![
        ("jdk", u64::from(machine.jdk).into()),
        ("heap_bytes", machine.heap.into()),
        ("cores", u64::from(machine.cores).into()),
        ("collector", machine.collector.to_string().into()),
        ("memstore_share", machine.memstore_share.into()),
        ("cache_share", machine.cache_share.into()),
        ("offheap_bytes", Json::or_null(machine.offheap)),
        ("bucket_cache_bytes", machine.bucket_cache.into()),
        ("offheap_memstore_bytes", machine.offheap_memstore.into()),
        ("flags", Json::List(rows.collect())),
        ("traps", Json::List(traps.collect())),
    ];
    if let Some(in_use) = in_use {
        let changes = in_use.changes.iter().map(|change| {
            Json::Object(vec![
                ("do", change.verdict.word().into()),
                ("flag", change.flag.as_str().into()),
                ("instead", change.instead.as_str().into()),
                ("reason", change.reason.as_str().into()),
                ("source", Json::or_null(change.source.map(|source| source.url))),
            ])
        });
        let lines = in_use.not_understood.iter().map(|(at, text)| {
            Json::Object(vec![("line", (*at as u64).into()), ("text", text.as_str().into())])
        });
        fields.push(("in_use", Json::List(changes.collect())));
        fields.push(("not_understood", Json::List(lines.collect())));
    }
    Json::Object(fields)
}
