//! The whole of an experiment, put together from what is there, and its tables as text.

use std::fmt::Write as _;

use super::about::About;
use super::figures::all_runs;
use super::plan::Plan;
use super::results::Results;
use super::runner::Progress;
use crate::outcome::{Case, Entry, Environment, Experiment, FORMAT, Run, Side, Table};

/// Of what is there; `ended_ms` once nothing more comes.
pub fn assemble(
    about: &About,
    tables: impl Fn(&Experiment) -> Vec<Table>,
    plan: &Plan,
    results: &Results,
    progress: &Progress,
    environment: &Environment,
    ended_ms: Option<u64>,
) -> Experiment {
    let side = |side: &super::plan::SidePlan| {
        let started = results.started(&side.id).unwrap_or_default();
        Side {
            id: side.id.clone(),
            label: side.label.clone(),
            product: side.server.product(),
            command_line: started.command_line,
            settings: started.settings,
            missing: progress.missing.get(&side.id).cloned(),
        }
    };
    let case = |case: &super::plan::CasePlan| Case { id: case.id.clone(), label: case.label.clone() };
    let mut experiment = Experiment {
        format: FORMAT,
        name: plan.name.clone(),
        title: about.title.to_string(),
        question: about.question.to_string(),
        sources: about.sources(),
        quick: plan.quick,
        partial: partial(plan, results, progress),
        started_ms: results.started_ms,
        ended_ms,
        environment: environment.clone(),
        durability: plan.durability.sentence().to_string(),
        sides: plan.sides.iter().map(side).collect(),
        cases: plan.cases.iter().map(case).collect(),
        runs: in_order(plan, results),
        tables: Vec::new(),
        not_comparable: plan
            .scaled
            .iter()
            .cloned()
            .chain(about.not_comparable.iter().map(|sentence| sentence.to_string()))
            .collect(),
    };
    experiment.tables = tables(&experiment);
    experiment.tables.push(all_runs(&experiment));
    experiment
}

/// As they would have been made without an interruption.
fn in_order(plan: &Plan, results: &Results) -> Vec<Run> {
    let mut runs = Vec::new();
    for visit in plan.visits() {
        let cases = plan.cases.iter();
        runs.extend(
            cases.filter_map(|case| results.run(visit.repetition, &visit.side.id, &case.id)).cloned(),
        );
    }
    runs
}

/// Why it is not whole; nothing if each run is.
fn partial(plan: &Plan, results: &Results, progress: &Progress) -> Option<String> {
    if !plan.ladders.is_empty() {
        // a size that does not serve is a result, too
        let is_whole = progress.unserved == 0 && !progress.is_interrupted;
        return (!is_whole).then(|| progress.notes.join("; "));
    }
    let wanted = plan.sides.len() * plan.cases.len() * plan.repetitions as usize;
    let whole = results.runs().iter().filter(|run| run.partial.is_none()).count();
    if whole == wanted {
        return None;
    }
    let notes = progress.notes.join("; ");
    let colon = if notes.is_empty() { "" } else { ": " };
    Some(format!("{whole} of {wanted} runs are whole{colon}{notes}"))
}

/// A table for a terminal: medians, published figures marked with p.
pub fn text(table: &Table) -> String {
    let cells: Vec<Vec<String>> = table.rows.iter().map(|row| row.iter().map(entry_text).collect()).collect();
    let width = |at: usize| {
        let widths = cells.iter().filter_map(|row| row.get(at)).chain(table.columns.get(at));
        widths.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let mut out = format!("{}\n", table.title);
    let mut line = |row: &[String]| {
        let mut text = String::new();
        for (at, cell) in row.iter().enumerate() {
            // words to the left, figures to the right
            let is_word = table.rows.iter().all(|row| matches!(row.get(at), Some(Entry::Text(_)) | None));
            let width = widths.get(at).copied().unwrap_or(0);
            let _ = if is_word { write!(text, "{cell:<width$}  ") } else { write!(text, "{cell:>width$}  ") };
        }
        let _ = writeln!(out, "  {}", text.trim_end());
    };
    line(&table.columns);
    cells.iter().for_each(|row| line(row));
    if !table.remark.is_empty() {
        let _ = writeln!(out, "  ({})", table.remark);
    }
    out
}

fn entry_text(entry: &Entry) -> String {
    let with_unit = |value: f64, unit: &str| {
        let blank = if unit.is_empty() || unit.starts_with('/') { "" } else { " " };
        format!("{}{blank}{unit}", number(value))
    };
    match entry {
        Entry::Text(text) => text.clone(),
        Entry::Measured { median, unit, .. } => with_unit(*median, unit),
        Entry::Published { value, unit } => format!("{} p", with_unit(*value, unit)),
        Entry::Absent(_) => "-".to_string(),
    }
}

/// Three digits that count, or all before the point.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        0.0 => "0".to_string(),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let measured = |median| Entry::Measured { median, min: 1.0, max: 2.0, unit: "/s".to_string() };
        let table = Table {
            title: "Writes".to_string(),
            columns: ["side", "rows"].map(str::to_string).to_vec(),
            rows: vec![
                vec![Entry::Text("old".into()), Entry::Published { value: 20.0, unit: "%".into() }],
                vec![Entry::Text("a long one".into()), measured(12_345.6)],
                vec![Entry::Text("none".into()), Entry::Absent("no JDK".into())],
            ],
            remark: "all".to_string(),
        };
        let expected = "Writes\n  side            rows\n  old         20.0 % p\n  a long one   12346/s\n  none               -\n  (all)\n";
        assert_eq!(text(&table), expected);
        assert_eq!([0.0, 0.1234, 1.234, 12.34, 123.4].map(number), ["0", "0.123", "1.23", "12.3", "123"]);
    }
}
