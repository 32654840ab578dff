//! The result of a comparison as text and as JSON.

use halcyon_env::Env;
use serde_json::{Value, json};

use crate::args::CompareArgs;
use crate::compare::Fate;
use crate::page;
use crate::read::KINDS;
use crate::tally::{Example, Sides, Tally};

/// What a result says beside its numbers.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) title: String,
    /// Addresses of both sides.
    pub(crate) a: String,
    pub(crate) b: String,
    /// How latencies were taken.
    pub(crate) note: String,
    pub(crate) seconds: f64,
    pub(crate) sample: f64,
    /// Counters of the proxy, of a mirror.
    pub(crate) proxy: Option<Value>,
    /// Reads of the sample that were dropped.
    pub(crate) dropped: u64,
    /// Copies of a mirror that were not judged when it ended.
    pub(crate) left_out: u64,
    /// What of a recording could not be read.
    pub(crate) damage: Option<String>,
}

/// Percentiles of tables: name and part of all.
pub(crate) const PERCENTILES: [(&str, f64); 4] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
/// Examples that are printed.
const PRINTED_MAX: usize = 10;

/// One line for who waits.
pub(crate) fn progress(tally: &Tally) -> String {
    let all = tally.all();
    let (stay, settled, changing) =
        (all.fate(Fate::Stays), all.fate(Fate::Settled), all.fate(Fate::Changing));
    format!("{} reads compared: {stay} stay different, {changing} are changing, {settled} settled", all.count)
}

/// Prints the result, writes the files, and says whether all is well. The error is a sentence for the user.
pub(crate) fn conclude(env: &Env, args: &CompareArgs, facts: &Facts, tally: &Tally) -> Result<(), String> {
    print!("{}", text(facts, tally));
    if let Some(path) = &args.json {
        let mut text = serde_json::to_vec_pretty(&json(facts, tally)).expect("all keys are text");
        text.push(b'\n');
        crate::write(env, path, &text)?;
    }
    if let Some(path) = &args.page {
        crate::write(env, path, page::html(facts, tally).as_bytes())?;
    }
    match verdict(facts, tally) {
        None => Ok(()),
        Some(text) => Err(text),
    }
}

/// What is wrong. A comparison that compared nothing does not say that all is well.
fn verdict(facts: &Facts, tally: &Tally) -> Option<String> {
    let all = tally.all();
    if let Some(damage) = &facts.damage {
        return Some(format!("the recording is damaged: {damage}"));
    }
    if all.count == 0 {
        let (dropped, left_out) = (facts.dropped, facts.left_out);
        return Some(format!("no read was compared ({dropped} were dropped, {left_out} left out)"));
    }
    if let Some(side) = (0..2).find(|&side| all.failed[side] == all.count) {
        return Some(format!("all {} reads failed at {}", all.count, ["a", "b"][side]));
    }
    match all.fate(Fate::Stays) {
        0 => None,
        stay => Some(format!("{stay} reads stay different")),
    }
}

pub(crate) fn text(facts: &Facts, tally: &Tally) -> String {
    let mut out = String::new();
    let all = tally.all();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!("a: {}", facts.a));
    line(format!("b: {}", facts.b));
    line(format!("{} reads in {:.1} s, {} cells", all.count, facts.seconds, all.cells));
    if tally.late_count > 0 {
        let late = tally.late_max.as_secs_f64() * 1e3;
        line(format!(
            "{} reads began more than 1 ms after their turn, at most {late:.1} ms",
            tally.late_count
        ));
    }
    line(format!(
        "{:<8} {:<4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "ms", "", "reads", "p50", "p90", "p99", "p99.9", "max"
    ));
    for (kind, name) in KINDS.iter().enumerate() {
        let sides = tally.of_kind(kind);
        if sides.count == 0 {
            continue;
        }
        for (side, letter) in ["a", "b"].iter().enumerate() {
            let ms = |part: f64| sides.latencies[side].value_at_quantile(part) as f64 / 1e3;
            let shown: Vec<String> =
                PERCENTILES.iter().map(|(_, part)| format!("{:>9.3}", ms(*part))).collect();
            let max = sides.latencies[side].max() as f64 / 1e3;
            let label = if side == 0 { *name } else { "" };
            line(format!(
                "{label:<8} {letter:<4} {:>9} {} {max:>9.3}",
                sides.latencies[side].len(),
                shown.join(" ")
            ));
        }
    }
    for (count, what) in [
        (facts.dropped, "were dropped and not compared"),
        (facts.left_out, "were not judged when the mirror ended"),
    ] {
        if count > 0 {
            line(format!("{count} reads {what}"));
        }
    }
    for ((side, class), count) in &tally.errors {
        line(format!("errors at {}: {class} {count}", ["a", "b"][*side]));
    }
    for (kind, count) in &tally.kinds {
        line(format!("differences: {} {count}", kind.text()));
    }
    for example in tally.examples.iter().filter(|example| example.fate != Fate::Settled).take(PRINTED_MAX) {
        line(format!("{}: {}, {} differences", example.fate.text(), example.read, example.count));
        if let Some(first) = example.told.first() {
            line(format!("    {} '{}'", first.kind.text(), first.row.escape_ascii()));
            line(format!("    a: {}", first.a));
            line(format!("    b: {}", first.b));
        }
    }
    line(progress(tally));
    out
}

pub(crate) fn json(facts: &Facts, tally: &Tally) -> Value {
    let mut by_table: Vec<Value> = Vec::new();
    for ((kind, table), sides) in &tally.sides {
        let mut one = json!({ "kind": KINDS[*kind], "table": table });
        merge(&mut one, sides_json(sides));
        by_table.push(one);
    }
    let by_kind: serde_json::Map<String, Value> = KINDS
        .iter()
        .enumerate()
        .map(|(kind, name)| (name.to_string(), sides_json(&tally.of_kind(kind))))
        .collect();
    let errors: Vec<Value> = tally
        .errors
        .iter()
        .map(|((side, class), count)| json!({ "side": (["a", "b"][*side]), "class": class, "count": count }))
        .collect();
    let kinds: serde_json::Map<String, Value> =
        tally.kinds.iter().map(|(kind, count)| (kind.text().to_string(), json!(count))).collect();
    json!({
        "title": facts.title,
        "a": facts.a,
        "b": facts.b,
        "seconds": facts.seconds,
        "sample": facts.sample,
        "all": sides_json(&tally.all()),
        "byKind": by_kind,
        "byTable": by_table,
        "differences": kinds,
        "examples": tally.examples.iter().map(example_json).collect::<Vec<_>>(),
        "errors": errors,
        "late": { "count": tally.late_count, "maxMs": tally.late_max.as_secs_f64() * 1e3 },
        "dropped": facts.dropped,
        "leftOut": facts.left_out,
        "damage": facts.damage,
        "proxy": facts.proxy,
    })
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn sides_json(sides: &Sides) -> Value {
    let latencies = |side: usize| {
        let histogram = &sides.latencies[side];
        let mut found = serde_json::Map::new();
        found.insert("reads".to_string(), json!(histogram.len()));
        for (name, part) in PERCENTILES {
            found.insert(format!("{name}Us"), json!(histogram.value_at_quantile(part)));
        }
        found.insert("maxUs".to_string(), json!(histogram.max()));
        Value::Object(found)
    };
    json!({
        "reads": sides.count,
        "cells": sides.cells,
        "a": latencies(0),
        "b": latencies(1),
        "failed": { "a": sides.failed[0], "b": sides.failed[1] },
        "settled": sides.fate(Fate::Settled),
        "changing": sides.fate(Fate::Changing),
        "staysDifferent": sides.fate(Fate::Stays),
    })
}

fn example_json(example: &Example) -> Value {
    let told = example.told.iter().map(|one| {
        json!({
            "kind": one.kind.text(),
            "row": one.row.escape_ascii().to_string(),
            "a": one.a,
            "b": one.b,
        })
    });
    json!({
        "read": example.read,
        "fate": example.fate.text(),
        "count": example.count,
        "differences": told.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use halcyon_proto::pb;
    use halcyon_schema::TableName;

    use super::*;
    use crate::read::Read;

    fn facts() -> Facts {
        Facts {
            title: String::new(),
            a: "a".to_string(),
            b: "b".to_string(),
            note: String::new(),
            seconds: 1.0,
            sample: 1.0,
            proxy: None,
            dropped: 0,
            left_out: 0,
            damage: None,
        }
    }

    /// Nothing was compared, and the status said that all is well.
    #[test]
    fn nothing_compared_is_not_all_well() {
        let read = Read::Get(TableName::parse(b"t").unwrap(), pb::Get::default());
        let took = Some(Duration::from_millis(1));
        let mut tally = Tally::default();
        let dropped = Facts { dropped: 7, ..facts() };
        assert_eq!(verdict(&facts(), &tally).unwrap(), "no read was compared (0 were dropped, 0 left out)");
        assert_eq!(verdict(&dropped, &tally).unwrap(), "no read was compared (7 were dropped, 0 left out)");
        assert!(text(&dropped, &tally).contains("7 reads were dropped and not compared"));
        tally.add(&read, [None, None], 0, [Some("TableNotFoundException"); 2], None);
        assert_eq!(verdict(&facts(), &tally).unwrap(), "all 1 reads failed at a");
        tally.add(&read, [took, took], 1, [None, None], None);
        assert_eq!(verdict(&facts(), &tally), None);
    }
}
