//! A flame graph as SVG: one picture without scripts. A box is a function; what it calls stands on it; its width is its
//! share of the whole. Boxes show their name and share when the mouse rests on them.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::folded::Folded;

const WIDTH: f64 = 1200.0;
const ROW: f64 = 17.0;
const MARGIN: f64 = 10.0;
/// Title and two lines of notes.
const HEAD: f64 = 58.0;
const CHARACTER: f64 = 6.6;
/// Narrower boxes are left out, and with them what they call.
const BOX_WIDTH_MIN: f64 = 0.4;
/// A box narrower than this has no text.
const TEXT_WIDTH_MIN: f64 = 24.0;

const STYLE: &str = "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#111}.t{font-size:15px}.n{fill:#555}\
     .b{fill:#fff}rect:hover{stroke:#111}\
     @media(prefers-color-scheme:dark){.b{fill:#16181d}.t{fill:#eee}.n{fill:#aaa}rect:hover{stroke:#fff}}";

/// What is drawn.
pub struct FlameGraph<'p> {
    pub title: String,
    /// A line below the title, such as when and how it was taken.
    pub notes: Vec<String>,
    /// What a number of `folded` is, as in "12 samples".
    pub unit: &'static str,
    pub folded: &'p Folded,
}

/// A function at one place of the graph.
#[derive(Default)]
struct Node<'p> {
    weight: u64,
    calls: BTreeMap<&'p str, Node<'p>>,
}

impl FlameGraph<'_> {
    /// The picture, a few hundred KiB at most.
    pub fn svg(&self) -> String {
        let root = Node::of(self.folded);
        let scale = (WIDTH - 2.0 * MARGIN) / (root.weight.max(1) as f64);
        let rows = root.rows(scale);
        let height = HEAD + rows as f64 * ROW + MARGIN;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\">\n<style>{STYLE}</style>\n\
             <rect class=\"b\" width=\"100%\" height=\"100%\"/>\n"
        );
        self.head(&mut out);
        let drawing =
            Drawing { scale, bottom: height - MARGIN - ROW, total: root.weight.max(1), unit: self.unit };
        drawing.draw(&mut out, "all", &root, MARGIN, 0);
        out.push_str("</svg>\n");
        out
    }

    fn head(&self, out: &mut String) {
        let _ = writeln!(out, "<text class=\"t\" x=\"{MARGIN}\" y=\"22\">{}</text>", escape(&self.title));
        for (at, note) in self.notes.iter().take(2).enumerate() {
            let y = 38 + at * 14;
            let _ = writeln!(out, "<text class=\"n\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escape(note));
        }
    }
}

impl<'p> Node<'p> {
    fn of(folded: &'p Folded) -> Node<'p> {
        let mut root = Node::default();
        for (stack, weight) in folded.iter() {
            let mut at = &mut root;
            at.weight += weight;
            for name in stack {
                at = at.calls.entry(name).or_default();
                at.weight += weight;
            }
        }
        root
    }

    fn rows(&self, scale: f64) -> usize {
        let shown = self.calls.values().filter(|call| call.weight as f64 * scale >= BOX_WIDTH_MIN);
        1 + shown.map(|call| call.rows(scale)).max().unwrap_or(0)
    }
}

/// What all boxes of a picture have in common.
struct Drawing {
    /// Width of a unit.
    scale: f64,
    /// Top of the lowest row.
    bottom: f64,
    total: u64,
    unit: &'static str,
}

impl Drawing {
    fn draw(&self, out: &mut String, name: &str, node: &Node<'_>, left: f64, row: usize) {
        let width = node.weight as f64 * self.scale;
        if width < BOX_WIDTH_MIN {
            return;
        }
        let top = self.bottom - row as f64 * ROW;
        let share = node.weight as f64 * 100.0 / self.total as f64;
        let _ = write!(
            out,
            "<g><title>{} ({} {}, {share:.1}%)</title>\
             <rect x=\"{left:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\" rx=\"1\" fill=\"{}\"/>",
            escape(name),
            node.weight,
            self.unit,
            (width - 0.3).max(0.2),
            ROW - 1.0,
            colour(name)
        );
        if width >= TEXT_WIDTH_MIN {
            let (x, y) = (left + 3.0, top + 12.0);
            let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y}\">{}</text>", escape(&label(name, width)));
        }
        out.push_str("</g>\n");
        let mut left = left;
        for (name, call) in &node.calls {
            self.draw(out, name, call, left, row + 1);
            left += call.weight as f64 * self.scale;
        }
    }
}

/// As much of a name as has place. The end says more than the path before it.
fn label(name: &str, width: f64) -> String {
    let places = ((width - 6.0) / CHARACTER) as usize;
    let count = name.chars().count();
    if count <= places {
        return name.to_string();
    }
    let is_path = |at: usize| name[..at].chars().all(|c| c.is_alphanumeric() || c == '_' || c == ':');
    let short = match name.rfind("::") {
        Some(at) if is_path(at) => &name[at + 2..],
        _ => name,
    };
    if short.chars().count() <= places {
        return short.to_string();
    }
    let kept: String = short.chars().take(places.saturating_sub(2)).collect();
    format!("{kept}..")
}

/// The same for the same crate, more or less, in the colours of fire; grey for what has no name.
fn colour(name: &str) -> String {
    if name.starts_with('[') || name == "all" {
        return "#c9c9c9".to_string();
    }
    let hash =
        |text: &str| text.bytes().fold(2_166_136_261u32, |h, b| (h ^ u32::from(b)).wrapping_mul(16_777_619));
    let krate = name.trim_start_matches('<').split("::").next().unwrap_or(name);
    let hue = hash(krate) % 50;
    let light = 62 + hash(name) % 14;
    format!("hsl({hue},85%,{light}%)")
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(stacks: &[(&str, u64)]) -> Folded {
        let mut folded = Folded::default();
        for (stack, weight) in stacks {
            folded.add(stack.split(';').map(str::to_string).collect(), *weight);
        }
        folded
    }

    fn svg(folded: &Folded) -> String {
        FlameGraph {
            title: "A <b> & \u{1} title".into(),
            notes: vec!["note".into()],
            unit: "samples",
            folded,
        }
        .svg()
    }

    #[test]
    fn boxes_are_as_wide_as_their_share_and_stand_on_their_caller() {
        let text = svg(&folded(&[("main;a::read", 30), ("main;a::read;<T as X>::poll", 60), ("main;b", 10)]));
        let parsed = roxmltree::Document::parse(&text).unwrap();
        let find = |wanted: &str| {
            let group = parsed.descendants().find(|node| {
                node.has_tag_name("title") && node.text().is_some_and(|text| text.starts_with(wanted))
            });
            let group = group.unwrap_or_else(|| panic!("no {wanted}")).parent().unwrap();
            let rect = group.children().find(|node| node.has_tag_name("rect")).unwrap();
            let number = |name| rect.attribute(name).unwrap().parse::<f64>().unwrap();
            (number("x"), number("y"), number("width"))
        };
        let (all, read, poll, b) = (
            find("all (100 samples, 100.0%)"),
            find("a::read (90 samples, 90.0%)"),
            find("<T as X>::poll (60"),
            find("b (10"),
        );
        assert!(
            (all.2 - 1180.0).abs() < 1.0
                && (read.2 - 0.9 * 1180.0).abs() < 1.0
                && (poll.2 - 0.6 * 1180.0).abs() < 1.0
        );
        assert!(all.1 > read.1 && read.1 > poll.1, "what is called stands above");
        assert!(
            (b.0 - (read.0 + 0.9 * 1180.0)).abs() < 0.2 && b.1 == read.1,
            "calls of one function are neighbours"
        );
    }

    #[test]
    fn what_is_too_narrow_is_left_out() {
        let text = svg(&folded(&[("main;wide", 1_000_000), ("main;narrow;inside", 1)]));
        assert!(text.contains("wide") && !text.contains("narrow") && !text.contains("inside"));
    }

    #[test]
    fn nothing_is_a_picture_too_and_names_are_only_text() {
        for folded in [folded(&[]), folded(&[("<script>alert(\"&\")</script>\u{0}", 1)])] {
            let text = svg(&folded);
            let parsed = roxmltree::Document::parse(&text).unwrap();
            assert!(parsed.descendants().all(|node| !node.has_tag_name("script") && !node.has_tag_name("b")));
        }
    }

    #[test]
    fn labels_are_cut_at_the_path_first() {
        let wide = |places: usize| 6.0 + CHARACTER * (places as f64 + 0.5);
        assert_eq!(label("halcyon_region::read::get", wide(25)), "halcyon_region::read::get");
        assert_eq!(label("halcyon_region::read::get", wide(24)), "get");
        assert_eq!(label("halcyon_region::read::a_long_name", wide(8)), "a_long..");
        assert_eq!(label("<a::B as c::D>::e", wide(6)), "<a::..");
    }
}
