//! Latency by percentile, and throughput and memory over time: one line for each side on shared axes.

use super::markup::Markup;
use super::plot::{Axis, Mark, Plot, Shape};
use super::quantity::{Quantity, bytes, length, number};
use super::scale::Scale;
use super::view::{Counted, Looked, View, counted, median_run, spread};
use crate::outcome::{Case, Run};

/// Kinds of operations that get a plot of their own.
const KINDS_MAX: usize = 6;
/// Points of a line over time; more seconds are put together.
const TIMES_MAX: usize = 360;
/// Points of a percentile line for each decade.
const PER_DECADE: u32 = 24;

/// The kinds of operations of a case in the order of their first appearance.
pub fn kinds(view: &View<'_>, case: &Case) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for looked in &view.sides {
        for latency in view.runs(looked.side, case).iter().flat_map(|run| &run.latencies) {
            if !kinds.contains(&latency.kind) && latency.histogram.iter().any(|(_, count)| *count > 0) {
                kinds.push(latency.kind.clone());
            }
        }
    }
    kinds.truncate(KINDS_MAX);
    kinds
}

pub fn latencies(view: &View<'_>, case: &Case, page: &mut Markup) {
    let kinds = kinds(view, case);
    if kinds.is_empty() {
        page.element("p", &[("class", &"note")], "No latency was recorded.");
        return;
    }
    page.within("div", &[("class", &format!("panels of-{}", kinds.len().min(2)))], |panels| {
        for kind in kinds {
            percentiles(view, case, &kind).draw(panels);
        }
    });
}

fn percentiles(view: &View<'_>, case: &Case, kind: &str) -> Plot {
    let measured: Vec<(&Looked<'_>, Vec<Counted>)> = view
        .sides
        .iter()
        .map(|looked| (looked, counted(&view.runs(looked.side, case), kind)))
        .filter(|(_, counted)| !counted.is_empty())
        .collect();
    let most = measured.iter().flat_map(|(_, counted)| counted).map(Counted::total).max().unwrap_or(10);
    let high = (most as f64).log10().clamp(1.0, 9.0);
    let lines: Vec<(&Looked<'_>, Line)> =
        measured.iter().map(|(looked, counted)| (*looked, Line::new(counted, high))).collect();
    let values = lines.iter().flat_map(|(_, line)| line.low.iter().chain(&line.high)).map(|point| point.1);
    let y = Axis { scale: Scale::log(values), quantity: Quantity::Length, name: "latency" };
    let x = Axis { scale: Scale::Nines { high }, quantity: Quantity::Count, name: "percentile" };
    let mut marks = Vec::new();
    let mut sentences = Vec::new();
    for (looked, line) in &lines {
        if line.several {
            let shape = Shape::Band(line.high.clone());
            marks.push(Mark {
                shape,
                class: looked.class().into(),
                name: String::new(),
                points: line.low.clone(),
                sign: None,
            });
        }
        let at = |part: f64| {
            spread(counted_at(&measured, looked, part)).map_or("–".into(), |s| length(s.median))
        };
        sentences.push(format!(
            "{}: median {}, 99 % {}, 99.9 % {}",
            looked.side.label,
            at(0.5),
            at(0.99),
            at(0.999)
        ));
    }
    for (looked, line) in lines {
        let name = looked.side.label.clone();
        let (class, sign) = (looked.class().to_string(), Some(looked.look));
        marks.push(Mark { shape: Shape::Line, class, name, points: line.median, sign });
    }
    let wanted = rates_wanted(view, case);
    Plot {
        title: kind.to_string(),
        title_look: None,
        description: format!("Latency by percentile. {}.", sentences.join("; ")),
        x,
        y,
        marks,
        legend: legend(&measured.iter().map(|(looked, _)| **looked).collect::<Vec<_>>()),
        notes: vec![
            "Line: median of the repetitions at each percentile; band: least to most.".to_string(),
            wanted.to_string(),
        ],
        empty: "not measured",
    }
}

fn counted_at<'a>(
    measured: &'a [(&Looked<'_>, Vec<Counted>)],
    looked: &Looked<'_>,
    part: f64,
) -> impl Iterator<Item = f64> + 'a {
    let of_side = measured.iter().find(|(other, _)| std::ptr::eq(other.side, looked.side));
    of_side.into_iter().flat_map(|(_, counted)| counted).filter_map(move |counted| counted.quantile(part))
}

/// Latency from when an operation was sent, or was meant to be?
fn rates_wanted(view: &View<'_>, case: &Case) -> &'static str {
    let runs: Vec<&Run> = view.sides.iter().flat_map(|looked| view.runs(looked.side, case)).collect();
    match runs.iter().filter(|run| run.rate_wanted_per_s.is_some()).count() {
        0 => {
            "As fast as each side answered: no rate was asked for, so latencies of different loads stand side by side."
        }
        some if some == runs.len() => {
            "At a rate that was asked for; counted from the intended start of each operation."
        }
        _ => "Some of the runs had a rate that was asked for.",
    }
}

struct Line {
    low: Vec<(f64, f64)>,
    median: Vec<(f64, f64)>,
    high: Vec<(f64, f64)>,
    several: bool,
}

impl Line {
    /// As far as the smallest repetition has operations to tell.
    fn new(counted: &[Counted], nines_max: f64) -> Line {
        let least = counted.iter().map(Counted::total).min().unwrap_or(1);
        let end = (least as f64).log10().clamp(0.0, nines_max);
        let mut line = Line { low: vec![], median: vec![], high: vec![], several: counted.len() > 1 };
        let steps = (end * f64::from(PER_DECADE)).ceil() as u32;
        for step in 0..=steps {
            let nines = (f64::from(step) / f64::from(PER_DECADE)).min(end);
            let part = 1.0 - 0.1f64.powf(nines);
            if let Some(spread) = spread(counted.iter().filter_map(|counted| counted.quantile(part))) {
                line.low.push((part, spread.min));
                line.median.push((part, spread.median));
                line.high.push((part, spread.max));
            }
        }
        line
    }
}

fn legend(sides: &[Looked<'_>]) -> Vec<(String, Option<usize>, String)> {
    sides
        .iter()
        .map(|looked| (looked.class().to_string(), Some(looked.look), looked.side.label.clone()))
        .collect()
}

/// Throughput and resident memory of each side's run in the middle.
pub fn over_time(view: &View<'_>, case: &Case, page: &mut Markup) {
    let runs: Vec<(Looked<'_>, &Run)> = view
        .sides
        .iter()
        .filter_map(|looked| median_run(&view.runs(looked.side, case)).map(|run| (*looked, run)))
        .filter(|(_, run)| !run.series.is_empty())
        .collect();
    if runs.is_empty() {
        page.element("p", &[("class", &"note")], "Nothing was recorded over time.");
        return;
    }
    let rates = |run: &Run| run.series.iter().map(|second| (second.at_s, second.operations as f64)).collect();
    let slowest = |run: &Run| run.series.iter().map(|second| (second.at_s, second.p99_us as f64)).collect();
    let memory = |run: &Run| {
        run.series.iter().filter_map(|second| Some((second.at_s, second.resident_bytes? as f64))).collect()
    };
    page.within("div", &[("class", &"panels of-3")], |panels| {
        let joined = |points: &mut dyn Iterator<Item = f64>, count: f64| points.sum::<f64>() / count;
        let plot = timed(&runs, "Throughput", "operations in a second", Quantity::Count, rates, joined);
        plot.draw(panels);
        let most = |points: &mut dyn Iterator<Item = f64>, _: f64| points.fold(0.0, f64::max);
        timed(&runs, "99th percentile of each second", "latency", Quantity::Length, slowest, most)
            .draw(panels);
        timed(&runs, "Resident memory of the server", "resident", Quantity::Bytes, memory, most).draw(panels);
    });
}

/// Takes off a last point that follows the one before by less than half a second: what is left of a second when a run ends has
/// few operations, and would look like a fall. Whether there was one.
fn without_remainder(points: &mut Vec<(f64, f64)>) -> bool {
    let remainder = matches!(points.as_slice(), [.., _, before, last] if last.0 - before.0 < 0.5);
    if remainder {
        points.pop();
    }
    remainder
}

/// `join` makes one value of those that are put together, and of their number.
fn timed(
    runs: &[(Looked<'_>, &Run)],
    title: &str,
    name: &'static str,
    quantity: Quantity,
    values: impl Fn(&Run) -> Vec<(f64, f64)>,
    join: impl Fn(&mut dyn Iterator<Item = f64>, f64) -> f64,
) -> Plot {
    let mut lines = Vec::new();
    let mut sentences = Vec::new();
    let mut together = 1;
    let mut cut = false;
    for (looked, run) in runs {
        let mut points = values(run);
        points.retain(|point| point.0.is_finite() && point.1.is_finite());
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        cut |= without_remainder(&mut points);
        let size = points.len().div_ceil(TIMES_MAX).max(1);
        together = together.max(size);
        let joined =
            |part: &[(f64, f64)]| (part[0].0, join(&mut part.iter().map(|point| point.1), part.len() as f64));
        let points: Vec<(f64, f64)> = points.chunks(size).map(joined).collect();
        if let Some(spread) = spread(points.iter().map(|point| point.1)) {
            let text = |value| match quantity {
                Quantity::Bytes => bytes(value),
                Quantity::Length => length(value),
                _ => number(value),
            };
            let label = &looked.side.label;
            sentences.push(format!(
                "{label}: {} to {}, median {}",
                text(spread.min),
                text(spread.max),
                text(spread.median)
            ));
            lines.push((*looked, points));
        }
    }
    let times = lines.iter().flat_map(|(_, points)| points).map(|point| point.0);
    let x = Axis { scale: Scale::linear(times), quantity: Quantity::Seconds, name: "since the start" };
    let heights = || lines.iter().flat_map(|(_, points)| points).map(|point| point.1);
    let scale = if quantity == Quantity::Length {
        Scale::log(heights())
    } else {
        Scale::linear(heights()).rounded(quantity)
    };
    let mut notes = vec!["The repetition in the middle by throughput.".to_string()];
    if cut {
        notes.push("The last second is left out where it was not whole.".to_string());
    }
    if together > 1 {
        notes.push(format!("Up to {together} seconds make one point."));
    }
    Plot {
        title: title.to_string(),
        title_look: None,
        description: if sentences.is_empty() {
            "Not recorded.".into()
        } else {
            format!("{}.", sentences.join("; "))
        },
        x,
        y: Axis { scale, quantity, name },
        legend: legend(&lines.iter().map(|(looked, _)| *looked).collect::<Vec<_>>()),
        marks: lines
            .into_iter()
            .map(|(looked, points)| Mark {
                shape: Shape::Line,
                // noise in dashes is hard to read: here the signs alone tell the sides apart
                class: format!("{} solid", looked.class()),
                name: looked.side.label.clone(),
                points,
                sign: Some(looked.look),
            })
            .collect(),
        notes,
        empty: "not recorded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_that_was_not_whole_is_no_fall() {
        let mut points = vec![(1.0, 50.0), (2.0, 51.0), (2.02, 1.0)];
        assert!(without_remainder(&mut points));
        assert_eq!(points, [(1.0, 50.0), (2.0, 51.0)]);
        assert!(!without_remainder(&mut points));
        assert!(!without_remainder(&mut vec![]));
    }
}
