//! What the user reads.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::numbers::Numbers;
use crate::rules::{Judged, Verdict};

pub fn text(numbers: &Numbers, judged: &[Judged]) -> String {
    let mut out = format!(
        "version {}, {} servers, looked at for {} s\n\n",
        numbers.version,
        numbers.servers.len(),
        numbers.time.as_secs()
    );
    let mut count = 0;
    for Judged { rule, server, verdict } in judged {
        if let Verdict::Change { measured, change } = verdict {
            count += 1;
            let _ = writeln!(out, "{rule}  {server}\n  measured  {measured}\n  change    {change}\n");
        }
    }
    let _ = match count {
        0 => writeln!(out, "nothing to change"),
        1 => writeln!(out, "1 thing to change"),
        _ => writeln!(out, "{count} things to change"),
    };
    for Judged { rule, server, verdict } in judged {
        let _ = match verdict {
            Verdict::Fine { measured } => writeln!(out, "fine          {rule}  {server}  {measured}"),
            Verdict::NotMeasured { why } => writeln!(out, "not measured  {rule}  {server}  {why}"),
            Verdict::Change { .. } => Ok(()),
        };
    }
    for (server, why) in &numbers.silent {
        let _ = writeln!(out, "no metrics    {server}  {why}");
    }
    out
}

/// One object in one line.
pub fn json(numbers: &Numbers, judged: &[Judged]) -> String {
    let of = |judged: &Judged| -> Value {
        let (verdict, measured, change) = match &judged.verdict {
            Verdict::Change { measured, change } => ("change", measured, Some(change)),
            Verdict::Fine { measured } => ("fine", measured, None),
            Verdict::NotMeasured { why } => ("not-measured", why, None),
        };
        json!({
            "rule": judged.rule,
            "server": judged.server,
            "verdict": verdict,
            "measured": measured,
            "change": change,
        })
    };
    let silent = |(server, why): &(String, String)| json!({ "server": server, "why": why });
    let line = json!({
        "version": numbers.version,
        "seconds": numbers.time.as_secs_f64(),
        "servers_count": numbers.servers.len(),
        "rules": judged.iter().map(of).collect::<Vec<_>>(),
        "without_metrics": numbers.silent.iter().map(silent).collect::<Vec<_>>(),
    });
    format!("{line}\n")
}
