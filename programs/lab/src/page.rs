//! An experiment as one HTML file that opens anywhere, without a network.
//!
//! ```text
//! outcome::Experiment ─ view.rs ─┬─ facts.rs    question, what is missing, machine, command lines ─┐
//!   sides with their looks,      ├─ tables.rs   published beside measured; who was bound by what   │
//!   runs by case, medians        ├─ bars.rs     throughput, processor time, memory                 ├─ markup.rs ─ text
//!                                ├─ scatter.rs  pauses and slow responses ─┬─ plot.rs ─ scale.rs    │  (escapes)
//!                                └─ curves.rs   percentiles, over time ────┘             │          │
//!                                                                            quantity.rs ┴──────────┘
//! ```
//!
//! Always holds: the page is whole without its script (`page/page.js` adds what the pointer points at, and the choice of one
//! case); nothing is loaded from anywhere, which a content security policy in the page makes sure of; text of an experiment is
//! never markup; values that are no numbers or beyond all measure do not reach a coordinate. Sides that stand on shared axes
//! differ by sign and dashes as well as by colour.
//!
//! Why SVG by hand and no plotting library: `docs/decisions/0005-plots-by-hand.md`.
//!
//! `halcyon shadow` draws its page with the same parts ([`document`]).
//!
//! When you change how it looks, also run `testing/lab/screenshots.sh` and look at the pictures; `UPDATE=1` writes the
//! expected text in `testdata/` anew.

mod bars;
mod command;
mod curves;
mod facts;
pub mod markup;
pub mod plot;
pub mod quantity;
#[cfg(test)]
mod sample;
pub mod scale;
mod scatter;
mod tables;
#[cfg(test)]
mod tests;
mod view;

pub use command::{PageArgs, read, run};

use crate::outcome::{Case, Experiment};
use markup::Markup;
use view::View;

/// Nothing from elsewhere, ever: not even what a mistake of ours would ask for.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// The whole page; its raw data is `results.json` beside it.
pub fn html(experiment: &Experiment) -> String {
    html_beside(experiment, "results.json")
}

/// The whole page, with the name of the file beside it that has its raw data.
pub fn html_beside(experiment: &Experiment, raw: &str) -> String {
    let view = View::new(experiment);
    document(&format!("{} · Halcyon lab", experiment.title), |main| content(&view, raw, main))
}

/// A page in the lab's style around what `main` puts into it: a whole file that loads nothing.
pub fn document(title: &str, main: impl FnOnce(&mut Markup)) -> String {
    let mut page = Markup::new();
    page.raw("<!DOCTYPE html>\n");
    page.within("html", &[("lang", &"en")], |html| {
        html.within("head", &[], |head| self::head(title, head));
        html.within("body", &[], |body| {
            signs(body);
            body.within("main", &[], main);
            body.raw("<script>/*<![CDATA[*/");
            body.raw(SCRIPT);
            body.raw("/*]]>*/</script>");
        });
    });
    page.into_string()
}

fn head(title: &str, head: &mut Markup) {
    head.void("meta", &[("charset", &"utf-8")]);
    head.void("meta", &[("http-equiv", &"Content-Security-Policy"), ("content", &POLICY)]);
    head.void("meta", &[("name", &"viewport"), ("content", &"width=device-width, initial-scale=1")]);
    head.void("meta", &[("name", &"color-scheme"), ("content", &"light dark")]);
    head.element("title", &[], title);
    head.raw("<style>/*<![CDATA[*/");
    head.raw(STYLE);
    head.raw("/*]]>*/</style>");
}

/// One small sign for each look, which plots and legends refer to.
fn signs(body: &mut Markup) {
    body.raw(concat!(
        r#"<svg class="signs" width="0" height="0" aria-hidden="true"><defs>"#,
        r#"<path id="sign-0" d="M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z"/>"#,
        r#"<path id="sign-1" d="M-4-4h8v8h-8z"/>"#,
        r#"<path id="sign-2" d="M0-5L5 4h-10z"/>"#,
        r#"<path id="sign-3" d="M0-5.5L5.5 0L0 5.5L-5.5 0z"/>"#,
        r#"<path id="sign-4" d="M0 5L5-4h-10z"/>"#,
        r#"<path id="sign-5" d="M-1.6-5h3.2v3.4h3.4v3.2h-3.4v3.4h-3.2v-3.4h-3.4v-3.2h3.4z"/>"#,
        r#"<path id="sign-6" d="M-2.5-5h5l2.5 5l-2.5 5h-5l-2.5-5z"/>"#,
        r#"<path id="sign-7" d="M-5-2.5h10v5h-10z"/>"#,
        "</defs></svg>\n"
    ));
}

fn content(view: &View<'_>, raw: &str, main: &mut Markup) {
    let experiment = view.experiment;
    let measured: Vec<(usize, &Case)> =
        experiment.cases.iter().enumerate().filter(|(_, case)| view.has_runs(case)).collect();
    facts::head(view, main);
    contents(view, &measured, main);
    if !experiment.tables.is_empty() {
        section(main, "tables", "As published, and here", |s| tables::published(&experiment.tables, s));
    }
    if !measured.is_empty() {
        section(main, "totals", "Throughput, and what it cost", |s| {
            for measure in [bars::THROUGHPUT, bars::SERVER_CPU, bars::LONGEST_PAUSE, bars::MEMORY] {
                bars::draw(view, &measure, s);
            }
        });
    }
    for (at, case) in &measured {
        main.within("section", &[("id", &format!("case-{at}")), ("class", &"case")], |s| {
            s.element("h2", &[], &case.label);
            of_case(view, case, s);
        });
    }
    if !measured.is_empty() {
        section(main, "limits", "Who was the limit", |s| tables::limits(view, s));
    }
    section(main, "not-comparable", "What the figures do not say", |s| facts::not_comparable(experiment, s));
    section(main, "environment", "Environment", |s| facts::environment(experiment, s));
    if !experiment.sides.is_empty() {
        section(main, "commands", "Every command line", |s| facts::command_lines(view, s));
    }
    section(main, "sources", "Sources", |s| facts::sources(&experiment.sources, s));
    section(main, "raw", "Raw data", |s| facts::raw_data(raw, s));
}

fn of_case(view: &View<'_>, case: &Case, s: &mut Markup) {
    tables::of_case(view, case, s);
    s.element("h3", &[], "Pauses and slow responses against time");
    scatter::draw(view, case, s);
    s.element("h3", &[], "Latency by percentile");
    curves::latencies(view, case, s);
    s.element("h3", &[], "Over time");
    curves::over_time(view, case, s);
}

fn section(main: &mut Markup, id: &'static str, title: &str, inside: impl FnOnce(&mut Markup)) {
    main.within("section", &[("id", &id)], |section| {
        section.element("h2", &[], title);
        inside(section);
    });
}

/// Links to the sections; the script makes a choice of the cases.
fn contents(view: &View<'_>, cases: &[(usize, &Case)], main: &mut Markup) {
    main.within("nav", &[("aria-label", &"Contents")], |nav| {
        if !view.experiment.tables.is_empty() {
            nav.element("a", &[("href", &"#tables")], "Tables");
        }
        if !cases.is_empty() {
            nav.element("a", &[("href", &"#totals")], "Throughput and cost");
        }
        for (at, case) in cases {
            nav.element("a", &[("href", &format!("#case-{at}")), ("class", &"case")], &case.label);
        }
        if !cases.is_empty() {
            nav.element("a", &[("href", &"#limits")], "Limits");
        }
        nav.element("a", &[("href", &"#not-comparable")], "What they do not say");
        nav.element("a", &[("href", &"#environment")], "Environment");
        nav.element("a", &[("href", &"#commands")], "Command lines");
        nav.element("a", &[("href", &"#sources")], "Sources");
    });
}
