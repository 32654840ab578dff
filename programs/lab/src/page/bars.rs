//! Bars from zero, one for each side in each case: the median, whiskers from the least to the most, a dot for each repetition.

use super::markup::Markup;
use super::plot::{percent, swatch};
use super::quantity::Quantity;
use super::scale::Scale;
use super::view::{View, spread};
use crate::outcome::{Case, Run};

/// What is drawn as bars.
pub struct Measure {
    pub title: &'static str,
    /// Below the title.
    pub remark: &'static str,
    /// With a space before it; after the numbers.
    pub unit: &'static str,
    pub quantity: Quantity,
    /// Said where there is no value.
    pub absent: &'static str,
    pub of: fn(&Run) -> Option<f64>,
}

/// Operations in a second.
pub const THROUGHPUT: Measure = Measure {
    title: "Throughput",
    remark: "Operations in a second; more is better.",
    unit: " /s",
    quantity: Quantity::Count,
    absent: "not measured",
    of: |run| Some(run.operations_per_s),
};

/// The server's processor time for each operation; the page's only figure that says what a machine could do.
pub const SERVER_CPU: Measure = Measure {
    title: "Processor time of the server for each operation",
    remark: "Less is better. All of its threads, collector and compactions included.",
    unit: "",
    quantity: Quantity::Length,
    absent: "not measured",
    of: |run| {
        let known = run.operations > 0 && run.resources.server_cpu_s > 0.0;
        known.then(|| run.resources.server_cpu_s * 1e6 / run.operations as f64)
    },
};

/// What clients feel most.
pub const LONGEST_PAUSE: Measure = Measure {
    title: "Longest pause",
    remark: "Less is better. Collections, safepoints and allocation stalls of a JVM; stalls of Halcyon, but for waits for a disk and for what the host of a virtual machine took.",
    unit: "",
    quantity: Quantity::Length,
    absent: "not known",
    // a run without any counts: the median is that of all runs
    of: |run| {
        let lengths_us = run.own_pauses().map(|pause| pause.length_ms * 1e3);
        Some(lengths_us.filter(|us| us.is_finite()).fold(0.0, f64::max))
    },
};

/// Not zero: then nobody looked.
pub const MEMORY: Measure = Measure {
    title: "Resident memory of the server, at most",
    remark: "Less is better. What the operating system counts, heap and everything else.",
    unit: "",
    quantity: Quantity::Bytes,
    absent: "not measured",
    of: |run| (run.resources.resident_peak_bytes > 0).then_some(run.resources.resident_peak_bytes as f64),
};

pub fn draw(view: &View<'_>, measure: &Measure, page: &mut Markup) {
    let cases: Vec<&Case> = view.experiment.cases.iter().filter(|case| view.has_runs(case)).collect();
    page.element("h3", &[], measure.title);
    page.within("p", &[("class", &"note")], |p| {
        p.text(measure.remark);
        p.text(" Each case has its own scale. Bar: median; whisker: least to most; dots: repetitions.");
    });
    page.within("div", &[("class", &"panels bars")], |panels| {
        for case in cases {
            of_case(view, measure, case, panels);
        }
    });
}

fn of_case(view: &View<'_>, measure: &Measure, case: &Case, panels: &mut Markup) {
    let values = |runs: &[&Run]| -> Vec<f64> {
        runs.iter().filter_map(|run| (measure.of)(run)).filter(|value| value.is_finite()).collect()
    };
    let sides: Vec<_> = view
        .sides
        .iter()
        .map(|looked| (looked, view.runs(looked.side, case)))
        .map(|(looked, runs)| (looked, values(&runs), runs))
        .collect();
    let scale = Scale::linear(sides.iter().flat_map(|(_, values, _)| values).copied());
    panels.within("figure", &[("class", &"bars")], |figure| {
        figure.element("figcaption", &[], &case.label);
        for (looked, values, runs) in &sides {
            let spread = spread(values.iter().copied());
            figure.within("div", &[("class", &"row")], |row| {
                row.within("span", &[("class", &"side")], |side| {
                    swatch(side, looked.class(), Some(looked.look));
                    side.element("span", &[], &looked.side.label);
                });
                let Some(spread) = spread else {
                    row.element(
                        "span",
                        &[("class", &"value absent")],
                        if runs.is_empty() { "not measured" } else { measure.absent },
                    );
                    return;
                };
                row.within("span", &[("class", &"value")], |value| {
                    value.element(
                        "b",
                        &[],
                        &format!("{}{}", measure.quantity.text(spread.median), measure.unit),
                    );
                    if values.len() > 1 {
                        value.element(
                            "span",
                            &[("class", &"range")],
                            &measure.quantity.range(spread.min, spread.max),
                        );
                    }
                });
                bar(row, looked.class(), &scale, values, (spread.min, spread.median, spread.max));
            });
        }
    });
}

fn bar(row: &mut Markup, class: &str, scale: &Scale, values: &[f64], (min, median, max): (f64, f64, f64)) {
    let (zero, median) = (scale.at(0.0), scale.at(median));
    let attributes: &[(&'static str, &dyn std::fmt::Display)] =
        &[("class", &"bar"), ("width", &"100%"), ("height", &"18"), ("aria-hidden", &"true")];
    row.within("svg", attributes, |svg| {
        svg.void(
            "rect",
            &[("class", &"track"), ("width", &"100%"), ("height", &"12"), ("y", &"3"), ("rx", &"2")],
        );
        let (x, width) = (percent(zero.min(median)), percent((median - zero).abs()));
        let class = format!("fill {class}");
        svg.void(
            "rect",
            &[("class", &class), ("x", &x), ("width", &width), ("height", &"12"), ("y", &"3"), ("rx", &"2")],
        );
        if values.len() > 1 {
            let (low, high) = (percent(scale.at(min)), percent(scale.at(max)));
            let whisker: &[(&'static str, &dyn std::fmt::Display)] =
                &[("class", &"whisker"), ("x1", &low), ("x2", &high), ("y1", &"9"), ("y2", &"9")];
            svg.void("line", whisker);
            for end in [&low, &high] {
                svg.void(
                    "line",
                    &[("class", &"whisker"), ("x1", end), ("x2", end), ("y1", &"5"), ("y2", &"13")],
                );
            }
            for value in values {
                svg.void(
                    "circle",
                    &[
                        ("class", &"repetition"),
                        ("cx", &percent(scale.at(*value))),
                        ("cy", &"9"),
                        ("r", &"2"),
                    ],
                );
            }
        }
    });
}
