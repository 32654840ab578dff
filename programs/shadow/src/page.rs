//! The result of a comparison as one HTML file, drawn with the parts of the lab's page (decisions 0005 and 0017).

use halcyon_lab::page::document;
use halcyon_lab::page::markup::Markup;
use halcyon_lab::page::plot::{Axis, Mark, Plot, Shape, swatch};
use halcyon_lab::page::quantity::Quantity;
use halcyon_lab::page::scale::Scale;
use hdrhistogram::Histogram;

use crate::compare::Fate;
use crate::read::KINDS;
use crate::report::{Facts, PERCENTILES};
use crate::tally::{Example, Sides, Tally};

/// Points of a curve for each nine.
const PER_NINE: u32 = 40;
/// Classes of the style sheet for both sides.
const LOOKS: [&str; 2] = ["s0", "s1"];
const LETTERS: [&str; 2] = ["a", "b"];

/// A whole number, with a comma before each three digits.
fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// The whole page.
pub(crate) fn html(facts: &Facts, tally: &Tally) -> String {
    document(&format!("{} · Halcyon shadow", facts.title), |main| {
        head(facts, tally, main);
        section(main, "Latency", |main| curves(facts, tally, main));
        section(main, "Calls", |main| calls(tally, main));
        section(main, "Differences", |main| differences(tally, main));
        section(main, "How it was made", |main| made(facts, tally, main));
    })
}

fn section(main: &mut Markup, title: &str, inside: impl FnOnce(&mut Markup)) {
    main.within("section", &[], |section| {
        section.element("h2", &[], title);
        inside(section);
    });
}

fn head(facts: &Facts, tally: &Tally, main: &mut Markup) {
    let all = tally.all();
    main.element("p", &[("class", &"eyebrow")], "halcyon shadow");
    main.element("h1", &[], &facts.title);
    let verdict = match (all.fate(Fate::Stays), all.fate(Fate::Changing), all.count) {
        (_, _, 0) => "No read was compared.".to_string(),
        (0, 0, all) => format!("Both sides answered {} reads alike.", whole(all)),
        (stay, changing, all) => format!(
            "Of {} reads, {} stay different and {} are changing.",
            whole(all),
            whole(stay),
            whole(changing)
        ),
    };
    main.element("p", &[("class", &"question")], &verdict);
    main.within("ul", &[("class", &"sides")], |list| {
        for (side, address) in [&facts.a, &facts.b].into_iter().enumerate() {
            list.within("li", &[], |item| {
                swatch(item, LOOKS[side], Some(side));
                item.element("b", &[], LETTERS[side]);
                item.text(&format!(" {address}"));
            });
        }
    });
    if let Some(damage) = &facts.damage {
        main.element("p", &[("class", &"partial")], &format!("The recording is damaged: {damage}"));
    }
    if facts.left_out > 0 {
        let text = format!("{} copies were not judged when the mirror ended.", whole(facts.left_out));
        main.element("p", &[("class", &"partial")], &text);
    }
    if facts.dropped > 0 {
        let text = format!("{} reads of the sample were dropped: a queue was full.", whole(facts.dropped));
        main.element("p", &[("class", &"partial")], &text);
    }
}

fn curves(facts: &Facts, tally: &Tally, main: &mut Markup) {
    let kinds: Vec<usize> = (0..KINDS.len()).filter(|kind| tally.of_kind(*kind).count > 0).collect();
    if kinds.is_empty() {
        main.element("p", &[("class", &"note")], "No latency was measured.");
        return;
    }
    let class = format!("panels of-{}", kinds.len().min(2));
    main.within("div", &[("class", &class)], |panels| {
        for kind in kinds {
            curve(KINDS[kind], &tally.of_kind(kind)).draw(panels);
        }
    });
    main.element("p", &[("class", &"note")], &facts.note);
}

fn curve(kind: &str, sides: &Sides) -> Plot {
    let most = sides.latencies.iter().map(Histogram::len).max().unwrap_or(10);
    let high = (most.max(10) as f64).log10().clamp(1.0, 9.0);
    let lines: Vec<Vec<(f64, f64)>> = sides.latencies.iter().map(|one| points(one, high)).collect();
    let values = lines.iter().flatten().map(|point| point.1);
    let y = Axis { scale: Scale::log(values), quantity: Quantity::Length, name: "latency" };
    let x = Axis { scale: Scale::Nines { high }, quantity: Quantity::Count, name: "percentile" };
    let sentences: Vec<String> = (0..2)
        .map(|side| {
            let at = |part| Quantity::Length.text(sides.latencies[side].value_at_quantile(part) as f64);
            format!("{}: median {}, 99 % {}, 99.9 % {}", LETTERS[side], at(0.5), at(0.99), at(0.999))
        })
        .collect();
    let marks = lines.into_iter().enumerate().map(|(side, points)| Mark {
        shape: Shape::Line,
        class: LOOKS[side].to_string(),
        name: LETTERS[side].to_string(),
        points,
        sign: Some(side),
    });
    let legend = |side: usize| (LOOKS[side].to_string(), Some(side), LETTERS[side].to_string());
    Plot {
        title: kind.to_string(),
        title_look: None,
        description: format!("Latency by percentile. {}.", sentences.join("; ")),
        x,
        y,
        marks: marks.collect(),
        legend: vec![legend(0), legend(1)],
        notes: sentences,
        empty: "not measured",
    }
}

/// A curve as far as there are reads to tell.
fn points(histogram: &Histogram<u64>, nines_max: f64) -> Vec<(f64, f64)> {
    if histogram.is_empty() {
        return Vec::new();
    }
    let end = (histogram.len() as f64).log10().clamp(0.0, nines_max);
    let steps = (end * f64::from(PER_NINE)).ceil() as u32;
    (0..=steps)
        .map(|step| {
            let nines = (f64::from(step) / f64::from(PER_NINE)).min(end);
            let part = 1.0 - 0.1f64.powf(nines);
            (part, histogram.value_at_quantile(part) as f64)
        })
        .collect()
}

fn calls(tally: &Tally, main: &mut Markup) {
    main.within("div", &[("class", &"scroll"), ("tabindex", &"0")], |scroll| {
        scroll.within("table", &[], |table| {
            table.within("thead", &[], |head| {
                head.within("tr", &[], |row| {
                    for title in ["read", "table", "side"] {
                        row.element("th", &[("class", &"words")], title);
                    }
                    for title in ["reads", "failed"] {
                        row.element("th", &[], title);
                    }
                    for (name, _) in PERCENTILES {
                        row.element("th", &[], name);
                    }
                    for title in ["max", "stay different", "changing", "settled"] {
                        row.element("th", &[], title);
                    }
                });
            });
            table.within("tbody", &[], |body| {
                for ((kind, name), sides) in &tally.sides {
                    for side in 0..2 {
                        body.within("tr", &[], |row| side_row(row, KINDS[*kind], name, sides, side));
                    }
                }
            });
        });
    });
}

fn side_row(row: &mut Markup, kind: &str, table: &str, sides: &Sides, side: usize) {
    let histogram = &sides.latencies[side];
    row.element("th", &[], if side == 0 { kind } else { "" });
    row.element("td", &[("class", &"words")], if side == 0 { table } else { "" });
    row.within("td", &[("class", &"words")], |cell| {
        swatch(cell, LOOKS[side], Some(side));
        cell.text(LETTERS[side]);
    });
    row.element("td", &[], &whole(histogram.len()));
    row.element("td", &[], &whole(sides.failed[side]));
    let text = |value: u64| match histogram.is_empty() {
        true => "–".to_string(),
        false => Quantity::Length.text(value as f64),
    };
    for (_, part) in PERCENTILES {
        row.element("td", &[], &text(histogram.value_at_quantile(part)));
    }
    row.element("td", &[], &text(histogram.max()));
    for fate in [Fate::Stays, Fate::Changing, Fate::Settled] {
        let shown = if side == 0 { whole(sides.fate(fate)) } else { String::new() };
        row.element("td", &[], &shown);
    }
}

fn differences(tally: &Tally, main: &mut Markup) {
    if tally.kinds.is_empty() {
        main.element("p", &[], "No read differed, not even at first.");
        return;
    }
    main.within("dl", &[], |list| {
        for (kind, count) in &tally.kinds {
            list.element("dt", &[], kind.text());
            list.element("dd", &[], &format!("{} reads", whole(*count)));
        }
    });
    for fate in [Fate::Stays, Fate::Changing, Fate::Settled] {
        let examples: Vec<&Example> = tally.examples.iter().filter(|example| example.fate == fate).collect();
        if examples.is_empty() {
            continue;
        }
        let all = whole(tally.all().fate(fate));
        main.element("h3", &[], &format!("{}: {all} reads, {} shown", fate.text(), examples.len()));
        for example in examples {
            main.within("details", &[], |details| {
                details.element("summary", &[], &format!("{} ({} differences)", example.read, example.count));
                for one in &example.told {
                    details.element(
                        "p",
                        &[("class", &"note")],
                        &format!("{} '{}'", one.kind.text(), one.row.escape_ascii()),
                    );
                    details.element("pre", &[], &format!("a: {}\nb: {}", one.a, one.b));
                }
            });
        }
    }
}

fn made(facts: &Facts, tally: &Tally, main: &mut Markup) {
    main.within("dl", &[], |list| {
        let mut fact = |name: &str, text: &str| {
            list.element("dt", &[], name);
            list.element("dd", &[], text);
        };
        fact("a", &facts.a);
        fact("b", &facts.b);
        fact("time", &Quantity::Seconds.text(facts.seconds));
        fact("sample", &format!("{} of all reads", facts.sample));
        if tally.late_count > 0 {
            let late = Quantity::Length.text(tally.late_max.as_micros() as f64);
            fact(
                "late",
                &format!("{} reads began after their turn, at most {late}", whole(tally.late_count)),
            );
        }
        for ((side, class), count) in &tally.errors {
            fact(&format!("errors at {}", LETTERS[*side]), &format!("{class}: {}", whole(*count)));
        }
        if let Some(serde_json::Value::Object(counts)) = &facts.proxy {
            for (name, count) in counts {
                fact(&format!("proxy, {name}"), &count.to_string());
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use halcyon_cell::Cell;
    use halcyon_proto::pb;
    use halcyon_schema::TableName;

    use super::*;
    use crate::compare::compare;
    use crate::read::{Answer, Read};

    #[test]
    fn a_page_is_well_formed_and_loads_nothing() {
        let mut tally = Tally::default();
        let read =
            Read::Get(TableName::parse(b"t").unwrap(), pb::Get { row: "<r&>".into(), ..Default::default() });
        let answer = |value: &str| {
            Ok(Answer::of_cells(vec![Cell::put(b"<r&>", b"f", b"q", 1, value.as_bytes())], 1 << 20))
        };
        let differs = compare(&read, &answer("<script>"), &answer("\u{1}\u{202e}"));
        for number in 1..500u64 {
            let took = [Some(Duration::from_micros(number)), Some(Duration::from_micros(number * 3))];
            let fate = (number == 7).then_some((&differs, Fate::Stays));
            tally.add(&read, took, 1, [None, None], fate);
        }
        let facts = Facts {
            title: "A title <of> text".to_string(),
            a: "hbase://a&b".to_string(),
            b: "hbase://c".to_string(),
            note: "A note.".to_string(),
            seconds: 1.5,
            sample: 1.0,
            proxy: Some(serde_json::json!({ "calls": 5 })),
            dropped: 3,
            left_out: 2,
            damage: Some("at 17".to_string()),
        };
        let page = html(&facts, &tally);
        let text = page.trim_start_matches("<!DOCTYPE html>\n");
        let parsed = roxmltree::Document::parse(text).expect("the page is well-formed");
        assert!(parsed.descendants().all(|node| node.attribute("src").is_none()));
        assert!(
            parsed.descendants().filter_map(|node| node.attribute("href")).all(|href| href.starts_with('#'))
        );
        assert!(!page.contains("<script>'") && page.contains("1 stay different"));
        assert_eq!([0, 12, 999, 1_000, 1_234_567].map(whole), ["0", "12", "999", "1,000", "1,234,567"]);
        assert_eq!(parsed.descendants().filter(|node| node.attribute("data-name").is_some()).count(), 2);
        assert!(html(&Facts { damage: None, ..facts }, &Tally::default()).contains("No read was compared."));
    }
}
