//! One plot: axes, grid and marks as SVG that keeps its letters at their size however wide it becomes.
//!
//! The outer `svg` has no view box: places are percentages and letters pixels, so that a phone shows the same letters on a
//! narrower plot. What is drawn as paths lies in an inner `svg` of 1000 by 1000 that is stretched over the area, with
//! strokes that do not stretch; a dot is a stroke of no length with round ends. That keeps a point at about ten bytes.

use super::markup::Markup;
use super::quantity::Quantity;
use super::scale::Scale;

/// Units of the inner `svg` on each side.
const AREA: f64 = 1000.0;

#[derive(Debug, Clone)]
pub struct Axis {
    pub scale: Scale,
    pub quantity: Quantity,
    /// What it counts; the unit is added where there is one for the whole axis.
    pub name: &'static str,
}

impl Axis {
    /// With its unit.
    fn title(&self) -> String {
        let unit = match self.scale {
            Scale::Linear { low, high } => self.quantity.axis_unit(high.max(-low)).1,
            Scale::Log { .. } | Scale::Nines { .. } => "",
        };
        match (unit, self.scale) {
            ("", Scale::Log { .. }) => format!("{} (logarithmic)", self.name),
            ("", _) => self.name.to_string(),
            _ if self.quantity == Quantity::Seconds => format!("{unit} {}", self.name),
            _ => format!("{}, {unit}", self.name),
        }
    }
}

#[derive(Debug, Clone)]
pub enum Shape {
    /// Round, or square where `square`.
    Dots {
        square: bool,
    },
    Line,
    /// Between the points and these.
    Band(Vec<(f64, f64)>),
}

#[derive(Debug, Clone)]
pub struct Mark {
    pub shape: Shape,
    /// Classes of the style sheet.
    pub class: String,
    /// Shown where the pointer is; empty for what is not pointed at.
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Number of the sign put on some points of a line, for those who do not tell the colours apart.
    pub sign: Option<usize>,
}

#[derive(Debug, Clone)]
pub struct Plot {
    pub title: String,
    /// Number of the sign and class of the colour before the title.
    pub title_look: Option<(usize, &'static str)>,
    /// Read aloud instead of the picture.
    pub description: String,
    pub x: Axis,
    pub y: Axis,
    pub marks: Vec<Mark>,
    /// Class, sign and text of what is drawn.
    pub legend: Vec<(String, Option<usize>, String)>,
    /// Below the plot, each on a line of its own.
    pub notes: Vec<String>,
    /// Instead of marks, where there is nothing to draw.
    pub empty: &'static str,
}

impl Plot {
    pub fn draw(&self, page: &mut Markup) {
        page.within("figure", &[("class", &"plot")], |figure| {
            figure.within("figcaption", &[], |caption| {
                if let Some((sign, class)) = self.title_look {
                    swatch(caption, class, Some(sign));
                }
                caption.text(&self.title);
            });
            // also where they are empty: panels beside each other share the rows of their four parts
            figure.within("div", &[("class", &"legend")], |legend| {
                for (class, sign, text) in &self.legend {
                    legend.within("span", &[], |entry| {
                        swatch(entry, class, *sign);
                        entry.text(text);
                    });
                }
            });
            figure.within("div", &[("class", &"frame")], |frame| self.picture(frame));
            figure.within("p", &[("class", &"note")], |note| {
                self.notes.iter().for_each(|line| note.element("span", &[], line));
            });
        });
    }

    fn picture(&self, frame: &mut Markup) {
        let attributes: &[(&'static str, &dyn std::fmt::Display)] = &[
            ("xmlns", &"http://www.w3.org/2000/svg"),
            ("class", &"picture"),
            ("role", &"img"),
            ("width", &"100%"),
            ("height", &"220"),
            ("aria-label", &format!("{}. {}", self.title, self.description)),
            ("data-x", &format!("{} {}", self.x.scale.description(), quantity_name(self.x.quantity))),
            ("data-y", &format!("{} {}", self.y.scale.description(), quantity_name(self.y.quantity))),
        ];
        frame.within("svg", attributes, |svg| {
            self.grid(svg);
            let area: &[(&'static str, &dyn std::fmt::Display)] = &[
                ("class", &"area"),
                ("width", &"100%"),
                ("height", &"100%"),
                ("viewBox", &"0 0 1000 1000"),
                ("preserveAspectRatio", &"none"),
            ];
            svg.within("svg", area, |area| self.marks.iter().for_each(|mark| self.mark(area, mark)));
            self.signs(svg);
            if self.marks.iter().all(|mark| mark.points.is_empty()) {
                svg.element("text", &[("class", &"empty"), ("x", &"50%"), ("y", &"50%")], self.empty);
            }
        });
    }

    fn grid(&self, svg: &mut Markup) {
        svg.within("g", &[("class", &"grid")], |grid| {
            for tick in self.y.scale.ticks(self.y.quantity) {
                let y = percent(1.0 - tick.at);
                let class = if tick.label.is_empty() { "minor" } else { "major" };
                grid.void(
                    "line",
                    &[("class", &class), ("x1", &"0"), ("x2", &"100%"), ("y1", &y), ("y2", &y)],
                );
                if !tick.label.is_empty() {
                    grid.element(
                        "text",
                        &[("class", &"y"), ("x", &"-8"), ("y", &y), ("dy", &"0.35em")],
                        &tick.label,
                    );
                }
            }
            for tick in self.x.scale.ticks(self.x.quantity) {
                let x = percent(tick.at);
                let line: &[(&'static str, &dyn std::fmt::Display)] =
                    &[("class", &"minor"), ("y1", &"0"), ("y2", &"100%"), ("x1", &x), ("x2", &x)];
                grid.void("line", line);
                let text: &[(&'static str, &dyn std::fmt::Display)] =
                    &[("class", &"x"), ("x", &x), ("y", &"100%"), ("dy", &"1.5em")];
                grid.element("text", text, &tick.label);
            }
            grid.void(
                "line",
                &[("class", &"base"), ("x1", &"0"), ("x2", &"100%"), ("y1", &"100%"), ("y2", &"100%")],
            );
            grid.element("text", &[("class", &"name"), ("x", &"-8"), ("y", &"-12")], &self.y.title());
            let below: &[(&'static str, &dyn std::fmt::Display)] =
                &[("class", &"name end"), ("x", &"100%"), ("y", &"100%"), ("dy", &"2.9em")];
            grid.element("text", below, &self.x.title());
        });
    }

    fn place(&self, (x, y): (f64, f64)) -> (i32, i32) {
        ((self.x.scale.at(x) * AREA).round() as i32, ((1.0 - self.y.scale.at(y)) * AREA).round() as i32)
    }

    fn mark(&self, area: &mut Markup, mark: &Mark) {
        if mark.points.is_empty() {
            return;
        }
        let mut path = String::with_capacity(mark.points.len() * 10);
        let placed = || mark.points.iter().map(|point| self.place(*point));
        let class = match &mark.shape {
            Shape::Dots { square } => {
                for (x, y) in placed() {
                    path.push_str(&format!("M{x} {y}h0"));
                }
                if *square { "dots square" } else { "dots" }
            }
            Shape::Line => {
                polyline(&mut path, placed());
                "line"
            }
            Shape::Band(other) => {
                polyline(&mut path, placed().chain(other.iter().rev().map(|point| self.place(*point))));
                path.push('z');
                "band"
            }
        };
        let class = format!("{class} {}", mark.class);
        match mark.name.is_empty() {
            true => area.void("path", &[("class", &class), ("d", &path)]),
            false => area.void("path", &[("class", &class), ("data-name", &mark.name), ("d", &path)]),
        }
    }

    /// Six on each line that has them, and never two on each other.
    fn signs(&self, svg: &mut Markup) {
        for (nth, mark) in self.marks.iter().enumerate() {
            let Some(sign) = mark.sign else { continue };
            let step = mark.points.len().div_ceil(6).max(1);
            // lines begin at different places, so that signs of lines that lie on each other do not
            for point in mark.points.iter().skip((nth * 2 + 1) * step / 5 % step).step_by(step) {
                let (x, y) = (self.x.scale.at(point.0), 1.0 - self.y.scale.at(point.1));
                let href = format!("#sign-{sign}");
                svg.void(
                    "use",
                    &[("class", &mark.class), ("href", &href), ("x", &percent(x)), ("y", &percent(y))],
                );
            }
        }
    }
}

fn polyline(path: &mut String, points: impl Iterator<Item = (i32, i32)>) {
    let mut last = None;
    for (x, y) in points {
        if last == Some((x, y)) {
            continue;
        }
        path.push(if last.is_none() { 'M' } else { 'L' });
        path.push_str(&format!("{x} {y}"));
        last = Some((x, y));
    }
}

/// The sign of a side in its colour, for legends and titles.
pub fn swatch(page: &mut Markup, class: &str, sign: Option<usize>) {
    let attributes: &[(&'static str, &dyn std::fmt::Display)] = &[
        ("class", &format!("swatch {class}")),
        ("width", &"18"),
        ("height", &"12"),
        ("viewBox", &"0 0 18 12"),
        ("aria-hidden", &"true"),
    ];
    page.within("svg", attributes, |svg| match sign {
        Some(sign) => {
            svg.void("path", &[("class", &format!("line {class}")), ("d", &"M0 6L18 6")]);
            svg.void(
                "use",
                &[("class", &class), ("href", &format!("#sign-{sign}")), ("x", &"9"), ("y", &"6")],
            );
        }
        None => svg.void("path", &[("class", &format!("dots {class}")), ("d", &"M9 6h0")]),
    });
}

/// Of a part of one; two digits after the point.
pub fn percent(part: f64) -> String {
    format!("{}%", (part * 1e4).round() / 100.0)
}

fn quantity_name(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Count => "count",
        Quantity::Bytes => "bytes",
        Quantity::Length => "length",
        Quantity::Seconds => "seconds",
    }
}
