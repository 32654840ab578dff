//! Pauses and slow responses against time: one panel for each side, all on the same axes.

use std::collections::{BTreeMap, BTreeSet};

use super::markup::Markup;
use super::plot::{Axis, Mark, Plot, Shape};
use super::quantity::{Quantity, grouped, length};
use super::scale::Scale;
use super::view::{Looked, View};
use crate::outcome::{Case, PauseKind, Run};

/// Drawn at most of one kind in a panel, so that the page stays light.
const POINTS_MAX: usize = 4000;
/// Panels are thinned as if they were this wide and high, in pixels; coarser where it is not enough.
const RASTER: (f64, f64) = (640.0, 220.0);
/// Causes that are told apart where the pointer is.
const CAUSES_MAX: usize = 24;

/// Second since the start and length in microseconds.
type Point = (f64, f64);

/// Later kinds are drawn over earlier ones.
const KINDS_IN_ORDER: [PauseKind; 6] = [
    PauseKind::Disk,
    PauseKind::Host,
    PauseKind::Stall,
    PauseKind::Safepoint,
    PauseKind::Collection,
    PauseKind::AllocationStall,
];

pub fn draw(view: &View<'_>, case: &Case, page: &mut Markup) {
    let runs: Vec<&Run> = view.sides.iter().flat_map(|looked| view.runs(looked.side, case)).collect();
    if runs.iter().all(|run| run.pauses.is_empty() && run.slow.is_empty()) {
        let sentence = "No pause and no slow response was recorded for any side.";
        page.element("p", &[("class", &"note")], sentence);
        return;
    }
    let times = runs
        .iter()
        .map(|run| run.elapsed_s)
        .chain(runs.iter().flat_map(|run| points(run)).map(|point| point.0));
    let x = Axis { scale: Scale::linear(times), quantity: Quantity::Seconds, name: "since the start" };
    let lengths = runs.iter().flat_map(|run| points(run)).map(|point| point.1);
    let y = Axis { scale: Scale::log(lengths), quantity: Quantity::Length, name: "length" };
    page.within("div", &[("class", &format!("panels of-{}", view.sides.len().min(9)))], |panels| {
        for looked in &view.sides {
            panel(looked, &view.runs(looked.side, case), x.clone(), y.clone()).draw(panels);
        }
    });
}

fn points(run: &Run) -> impl Iterator<Item = Point> {
    let pauses = run.pauses.iter().map(|pause| (pause.at_s, pause.length_ms * 1e3));
    pauses.chain(run.slow.iter().map(|slow| (slow.at_s, slow.latency_us as f64))).filter(finite)
}

fn finite(point: &Point) -> bool {
    point.0.is_finite() && point.1.is_finite()
}

/// One side's panel while it is put together. Marks are drawn in the order in which they are added.
#[derive(Default)]
struct Panel {
    marks: Vec<Mark>,
    legend: Vec<(String, Option<usize>, String)>,
    notes: Vec<String>,
    thinned: Thinned,
}

fn panel(looked: &Looked<'_>, runs: &[&Run], x: Axis, y: Axis) -> Plot {
    let mut panel = Panel::default();
    let left_out: u64 = runs.iter().map(|run| run.slow_left_out).fold(0, u64::saturating_add);
    panel.add_slow(runs, left_out);
    for kind in KINDS_IN_ORDER {
        panel.add_pauses(looked, runs, kind);
    }
    if runs.is_empty() {
        panel.notes.push("Not measured.".to_string());
    } else if panel.notes.is_empty() {
        panel.notes.push("No pause and no slow response.".to_string());
    }
    let description = panel.notes.join(" ");
    if runs.len() > 1 {
        panel.notes.push(format!("{} repetitions, drawn over each other.", runs.len()));
    }
    panel.notes.extend(panel.thinned.sentence());
    if left_out > 0 {
        panel.notes.push(format!("{} more slow responses were counted and not kept.", grouped(left_out)));
    }
    Plot {
        title: looked.side.label.clone(),
        title_look: Some((looked.look, looked.class())),
        description,
        x,
        y,
        marks: panel.marks,
        legend: panel.legend,
        notes: panel.notes,
        empty: if runs.is_empty() { "not measured" } else { "none" },
    }
}

impl Panel {
    /// Slow responses, one mark for each kind of operation.
    fn add_slow(&mut self, runs: &[&Run], left_out: u64) {
        let all = || runs.iter().flat_map(|run| &run.slow);
        let slow: Vec<Point> = all().map(|slow| (slow.at_s, slow.latency_us as f64)).filter(finite).collect();
        if slow.is_empty() {
            return;
        }
        self.legend.push(("slow".to_string(), None, "slow responses".to_string()));
        let longest = slow.iter().map(|point| point.1).fold(0.0, f64::max);
        let total = (slow.len() as u64).saturating_add(left_out);
        self.notes.push(format!("{}, the slowest {}.", counted(total, "slow response"), length(longest)));
        let mut kinds: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
        let mut kept: BTreeSet<(u64, u64)> = self.thinned.thin(&slow).into_iter().map(bits).collect();
        for slow in all() {
            let point = (slow.at_s, slow.latency_us as f64);
            if kept.remove(&bits(point)) {
                kinds.entry(&slow.kind).or_default().push(point);
            }
        }
        for (kind, points) in kinds {
            let (shape, name) = (Shape::Dots { square: false }, format!("slow {kind}"));
            self.marks.push(Mark { shape, class: "slow".into(), name, points, sign: None });
        }
    }

    /// Pauses of one kind: a mark for each of the most frequent causes, and one for all others.
    fn add_pauses(&mut self, looked: &Looked<'_>, runs: &[&Run], kind: PauseKind) {
        let (class, name) = looks(kind);
        let of_kind = runs.iter().flat_map(|run| &run.pauses).filter(|pause| pause.kind == kind);
        let mut causes: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
        for pause in of_kind {
            let point = (pause.at_s, pause.length_ms * 1e3);
            if finite(&point) {
                causes.entry(&pause.cause).or_default().push(point);
            }
        }
        let all: Vec<Point> = causes.values().flatten().copied().collect();
        if all.is_empty() {
            return;
        }
        let longest = all.iter().map(|point| point.1).fold(0.0, f64::max);
        let sum: f64 = all.iter().map(|point| point.1.max(0.0)).sum();
        let count = counted(all.len() as u64, name);
        self.notes.push(format!("{count}, the longest {}, {} in all.", length(longest), length(sum)));
        let class = format!("{class} {}", looked.class());
        self.legend.push((class.clone(), None, format!("{name}s")));
        let mut kept: BTreeSet<(u64, u64)> = self.thinned.thin(&all).into_iter().map(bits).collect();
        let mut causes: Vec<(&str, Vec<Point>)> = causes.into_iter().collect();
        causes.sort_by_key(|(_, points)| std::cmp::Reverse(points.len()));
        let square = matches!(kind, PauseKind::Safepoint | PauseKind::Host);
        let mut others = Vec::new();
        for (at, (cause, points)) in causes.into_iter().enumerate() {
            let points: Vec<Point> = points.into_iter().filter(|point| kept.remove(&bits(*point))).collect();
            if at >= CAUSES_MAX {
                others.extend(points);
                continue;
            }
            let shape = Shape::Dots { square };
            self.marks.push(Mark {
                shape,
                class: class.clone(),
                name: cause.to_string(),
                points,
                sign: None,
            });
        }
        let shape = Shape::Dots { square };
        self.marks.push(Mark { shape, class, name: "other causes".into(), points: others, sign: None });
    }
}

/// Class and name, in the singular.
fn looks(kind: PauseKind) -> (&'static str, &'static str) {
    match kind {
        PauseKind::Collection => ("collection", "collection"),
        PauseKind::Safepoint => ("safepoint", "other safepoint"),
        PauseKind::AllocationStall => ("allocation", "allocation stall"),
        PauseKind::Stall => ("stall", "stall"),
        PauseKind::Disk => ("disk", "disk wait"),
        PauseKind::Host => ("host", "host stall"),
    }
}

/// `1 stall`, `2 stalls`.
fn counted(count: u64, name: &str) -> String {
    format!("{} {name}{}", grouped(count), if count == 1 { "" } else { "s" })
}

fn bits(point: Point) -> (u64, u64) {
    (point.0.to_bits(), point.1.to_bits())
}

/// What was left out of a panel because something longer is drawn at the same place.
#[derive(Default)]
struct Thinned {
    all: usize,
    drawn: usize,
    /// Pixels of the coarsest raster used.
    cell: f64,
}

impl Thinned {
    /// The longest of each cell of a raster; a cell is a pixel, or as many as it takes to have at most [`POINTS_MAX`]. The
    /// longest of all is always among them.
    fn thin(&mut self, points: &[Point]) -> Vec<Point> {
        self.all += points.len();
        if points.len() <= POINTS_MAX {
            self.drawn += points.len();
            return points.to_vec();
        }
        let x = Scale::linear(points.iter().map(|point| point.0));
        let y = Scale::log(points.iter().map(|point| point.1));
        let mut cell = 1.0;
        loop {
            let mut longest: BTreeMap<(u32, u32), Point> = BTreeMap::new();
            for point in points {
                let place =
                    ((x.at(point.0) * RASTER.0 / cell) as u32, (y.at(point.1) * RASTER.1 / cell) as u32);
                let kept = longest.entry(place).or_insert(*point);
                if point.1 > kept.1 {
                    *kept = *point;
                }
            }
            if longest.len() <= POINTS_MAX {
                self.drawn += longest.len();
                self.cell = self.cell.max(cell);
                return longest.into_values().collect();
            }
            cell *= 1.25;
        }
    }

    fn sentence(&self) -> Option<String> {
        (self.drawn < self.all).then(|| {
            format!(
                "{} of {} points are drawn: of those within about {} pixels of each other only the longest.",
                grouped(self.drawn as u64),
                grouped(self.all as u64),
                self.cell.ceil()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_the_longest_and_says_so() {
        let points: Vec<Point> = (0..200_000u32)
            .map(|n| (f64::from(n % 997), f64::from(n.wrapping_mul(2_654_435_761) >> 8) + 1.0))
            .collect();
        let longest = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let mut thinned = Thinned::default();
        let kept = thinned.thin(&points);
        assert!(kept.len() <= POINTS_MAX && kept.len() > POINTS_MAX / 2, "{}", kept.len());
        assert!(kept.iter().any(|point| point.1 == longest));
        assert!(
            thinned.sentence().unwrap().contains("of 200,000 points are drawn"),
            "{:?}",
            thinned.sentence()
        );
        let mut whole = Thinned::default();
        assert_eq!(whole.thin(&points[..100]).len(), 100);
        assert_eq!(whole.sentence(), None);
    }
}
