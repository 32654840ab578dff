//! Tables: those in the shape of the published ones, what each side did in a case, and who was bound by what.

use super::curves::kinds;
use super::markup::Markup;
use super::plot::swatch;
use super::quantity::{bytes, grouped, length, number, share};
use super::view::{Looked, View, counted, spread};
use crate::outcome::{Case, Entry, Run, Table};

pub fn published(tables: &[Table], page: &mut Markup) {
    for table in tables {
        let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
        // a column of words stands at the left, and so does its head
        let words = |at: usize| table.rows.iter().any(|row| matches!(row.get(at), Some(Entry::Text(_))));
        framed(page, &table.title, &columns, words, |rows| {
            rows.within("tbody", &[], |body| {
                for row in &table.rows {
                    body.within("tr", &[], |tr| {
                        row.iter().enumerate().for_each(|(at, entry)| cell(tr, at == 0, entry));
                    });
                }
            });
        });
        if !table.remark.is_empty() {
            page.element("p", &[("class", &"note")], &table.remark);
        }
    }
}

/// A table that scrolls by itself where it is wider than the page; `rows` are bodies of it.
fn framed(
    page: &mut Markup,
    title: &str,
    columns: &[&str],
    words: impl Fn(usize) -> bool,
    rows: impl FnOnce(&mut Markup),
) {
    let region: super::markup::Attribute<'_> = ("role", &"region");
    page.within(
        "div",
        &[("class", &"scroll"), region, ("aria-label", &title), ("tabindex", &"0")],
        |frame| {
            frame.within("table", &[], |table| {
                // its text stays where it is while the table scrolls below it
                table.within("caption", &[], |caption| caption.element("span", &[], title));
                table.within("thead", &[], |head| {
                    head.within("tr", &[], |tr| {
                        for (at, column) in columns.iter().enumerate() {
                            let class = if words(at) { "words" } else { "numbers" };
                            tr.element("th", &[("scope", &"col"), ("class", &class)], column);
                        }
                    });
                });
                rows(table);
            });
        },
    );
}

fn cell(tr: &mut Markup, first: bool, entry: &Entry) {
    match entry {
        Entry::Text(text) if first => tr.element("th", &[("scope", &"row")], text),
        Entry::Text(text) => tr.element("td", &[("class", &"words")], text),
        Entry::Measured { median, min, max, unit } => tr.within("td", &[("class", &"measured")], |td| {
            td.element("b", &[], &with_unit(*median, unit));
            if min != max {
                td.element("span", &[("class", &"range")], &format!("{} – {}", number(*min), number(*max)));
            }
        }),
        Entry::Published { value, unit } => tr.within("td", &[("class", &"published")], |td| {
            td.element("i", &[], &with_unit(*value, unit));
            td.element("span", &[("class", &"range")], "published");
        }),
        Entry::Absent(why) => tr.within("td", &[("class", &"absent")], |td| {
            td.text(if why.is_empty() { "not measured" } else { why });
        }),
    }
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => number(value),
        unit => format!("{} {unit}", number(value)),
    }
}

/// Rate, latencies, pauses of each side in one case; medians of the repetitions.
pub fn of_case(view: &View<'_>, case: &Case, page: &mut Markup) {
    let kinds = kinds(view, case);
    let mut columns: Vec<String> = vec!["side".into(), "operations".into()];
    for kind in &kinds {
        columns.extend(
            ["50\u{a0}%", "99\u{a0}%", "99.9\u{a0}%", "slowest"].map(|part| format!("{kind} {part}")),
        );
    }
    columns.extend(["longest pause", "pauses", "all stood still", "slow responses"].map(str::to_string));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    framed(
        page,
        &format!("{}: medians of the repetitions", case.label),
        &columns,
        |at| at == 0,
        |rows| {
            rows.within("tbody", &[], |body| {
                for looked in &view.sides {
                    let runs = view.runs(looked.side, case);
                    body.within("tr", &[], |tr| {
                        side_head(tr, looked);
                        if runs.is_empty() {
                            let why = looked.side.missing.as_deref().unwrap_or("it was not run");
                            let span = columns.len() - 1;
                            tr.element(
                                "td",
                                &[("class", &"absent"), ("colspan", &span)],
                                &format!("not measured: {why}"),
                            );
                            return;
                        }
                        side_cells(tr, &runs, &kinds);
                    });
                }
            });
        },
    );
}

fn side_head(tr: &mut Markup, looked: &Looked<'_>) {
    tr.within("th", &[("scope", &"row")], |th| {
        th.within("span", &[("class", &"side")], |side| {
            swatch(side, looked.class(), Some(looked.look));
            side.element("span", &[], &looked.side.label);
        });
    });
}

fn side_cells(tr: &mut Markup, runs: &[&Run], kinds: &[String]) {
    let median = |of: &dyn Fn(&Run) -> f64, text: &dyn Fn(f64) -> String| {
        spread(runs.iter().map(|run| of(run))).map_or("–".to_string(), |spread| text(spread.median))
    };
    let mut put = |text: String| tr.element("td", &[], &text);
    put(median(&|run| run.operations_per_s, &|rate| format!("{} /s", number(rate))));
    for kind in kinds {
        let counted = counted(runs, kind);
        for part in [0.5, 0.99, 0.999, 1.0] {
            let values = counted.iter().filter_map(|counted| counted.quantile(part));
            put(spread(values).map_or("–".to_string(), |spread| length(spread.median)));
        }
    }
    let lengths = |run: &Run| {
        let lengths_us = run.own_pauses().map(|pause| pause.length_ms * 1e3);
        lengths_us.filter(|us| us.is_finite()).collect()
    };
    let longest = |run: &Run| -> f64 { Vec::into_iter(lengths(run)).fold(0.0, f64::max) };
    put(median(&longest, &|us| if us > 0.0 { length(us) } else { "none".into() }));
    put(median(&|run| run.own_pauses().count() as f64, &|count| grouped(count.round() as u64)));
    // waits of single threads overlap: they add up to nothing
    let stopped = |run: &Run| -> f64 {
        let all = run.pauses.iter().filter(|pause| pause.kind.stops_all());
        let lengths_ms = all.map(|pause| pause.length_ms).filter(|ms| ms.is_finite());
        lengths_ms.sum::<f64>() / 1e3 / run.elapsed_s
    };
    put(median(&stopped, &share));
    let slow = |run: &Run| run.slow.len() as f64 + run.slow_left_out as f64;
    put(median(&slow, &|count| grouped(count.round() as u64)));
}

/// Who used what, for each case and side.
pub fn limits(view: &View<'_>, page: &mut Markup) {
    let columns = [
        "side",
        "bound by",
        "server, cores",
        "client, cores",
        "others, cores",
        "waiting for disks",
        "taken by the host, cores",
        "client for each operation",
        "read",
        "written",
        "on disk after it",
        "errors",
    ];
    framed(
        page,
        "Who used what, medians of the repetitions",
        &columns,
        |at| matches!(at, 0 | 1 | 11),
        |rows| {
            for case in view.experiment.cases.iter().filter(|case| view.has_runs(case)) {
                rows.within("tbody", &[], |body| {
                    body.within("tr", &[("class", &"group")], |tr| {
                        tr.element("th", &[("scope", &"rowgroup"), ("colspan", &columns.len())], &case.label);
                    });
                    for looked in &view.sides {
                        let runs = view.runs(looked.side, case);
                        if !runs.is_empty() {
                            body.within("tr", &[], |tr| {
                                side_head(tr, looked);
                                limit_cells(tr, &runs);
                            });
                        }
                    }
                });
            }
        },
    );
}

fn limit_cells(tr: &mut Markup, runs: &[&Run]) {
    let mut bounds: Vec<&str> = Vec::new();
    for run in runs {
        if !bounds.contains(&run.resources.bound_by.as_str()) {
            bounds.push(&run.resources.bound_by);
        }
    }
    tr.element("td", &[("class", &"words")], &bounds.join("; or "));
    let median =
        |of: &dyn Fn(&Run) -> f64| spread(runs.iter().map(|run| of(run))).map(|spread| spread.median);
    let mut put = |value: Option<f64>, text: &dyn Fn(f64) -> String| {
        tr.element("td", &[], &value.map_or("–".to_string(), text));
    };
    put(median(&|run| run.resources.server_cpu_s / run.elapsed_s), &number);
    put(median(&|run| run.resources.client_cpu_s / run.elapsed_s), &number);
    put(median(&|run| run.resources.others_cpu_s / run.elapsed_s), &number);
    put(median(&|run| run.resources.io_wait_s / run.elapsed_s), &share);
    put(median(&|run| run.resources.stolen_s / run.elapsed_s), &number);
    put(median(&|run| run.resources.client_cpu_s * 1e6 / run.operations as f64), &length);
    put(median(&|run| run.resources.disk_read_bytes as f64), &bytes);
    put(median(&|run| run.resources.disk_written_bytes as f64), &bytes);
    put(median(&|run| run.disk_bytes.map_or(f64::NAN, |bytes| bytes as f64)), &bytes);
    let mut errors: Vec<(&str, u64)> = Vec::new();
    for (class, count) in runs.iter().flat_map(|run| &run.errors) {
        match errors.iter_mut().find(|(other, _)| other == class) {
            Some((_, sum)) => *sum = sum.saturating_add(*count),
            None => errors.push((class, *count)),
        }
    }
    let errors: Vec<String> =
        errors.iter().map(|(class, count)| format!("{} {class}", grouped(*count))).collect();
    let text = if errors.is_empty() { "none".to_string() } else { errors.join(", ") };
    tr.element("td", &[("class", &"words")], &text);
}
