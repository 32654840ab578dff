//! Pages of small, large, empty and hostile experiments.
//!
//! `UPDATE=1 cargo test -p halcyon-lab page` writes the expected text anew; read the difference.

use std::path::PathBuf;

use proptest::prelude::*;
use roxmltree::{Document, Node};

use super::sample::{large, small};
use super::*;
use crate::outcome::*;

/// The page without its first line, as XML; scripts and styles lie in sections that XML does not read.
fn parsed(page: &str) -> Document<'_> {
    let body = page.strip_prefix("<!DOCTYPE html>\n").expect("it begins with its type");
    Document::parse(body).unwrap_or_else(|error| panic!("{error}"))
}

fn tag<'a>(node: &Node<'a, '_>) -> &'a str {
    node.tag_name().name()
}

/// All text below a node, with single spaces.
fn text(node: Node<'_, '_>) -> String {
    let parts: Vec<&str> =
        node.descendants().filter_map(|n| n.is_text().then(|| n.text()).flatten()).collect();
    parts.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn has_class(node: &Node<'_, '_>, class: &str) -> bool {
    node.attribute("class").is_some_and(|classes| classes.split(' ').any(|one| one == class))
}

/// What a page says, line by line: texts, tables, and of plots their axes and marks.
fn outline(page: &str) -> String {
    let mut out = String::new();
    let document = parsed(page);
    lines_of(document.root_element(), &mut out);
    out
}

fn lines_of(node: Node<'_, '_>, out: &mut String) {
    let mut line = |indent: usize, what: &str| out.push_str(&format!("{:indent$}{what}\n", ""));
    match tag(&node) {
        "head" | "script" => {}
        "h1" | "h2" | "h3" => line(0, &format!("\n# {}", text(node))),
        "p" | "li" | "dt" | "summary" | "figcaption" | "caption" => line(2, &text(node)),
        "dd" | "pre" => line(4, &text(node)),
        "tr" => {
            let cells: Vec<String> = node.children().filter(|n| n.is_element()).map(text).collect();
            line(4, &format!("| {} |", cells.join(" | ")));
        }
        "div" if has_class(&node, "row") => line(4, &text(node)),
        "svg" if has_class(&node, "picture") => {
            for axis in ["x", "y"] {
                let labels: Vec<String> =
                    node.descendants().filter(|n| tag(n) == "text" && has_class(n, axis)).map(text).collect();
                let ends = node.attribute(format!("data-{axis}").as_str()).expect("it has axes");
                line(4, &format!("{axis} ({ends}): {}", labels.join(" ")));
            }
            for mark in node.descendants().filter(|n| tag(n) == "path") {
                let (class, name) =
                    (mark.attribute("class").expect("it has one"), mark.attribute("data-name"));
                let path = mark.attribute("d").expect("it has one");
                line(4, &format!("{class} {:?} {path:.60}", name.unwrap_or_default()));
            }
        }
        _ => node.children().filter(|n| n.is_element()).for_each(|child| lines_of(child, out)),
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // a test's own files
fn a_small_page_reads_as_expected() {
    let found = outline(&html(&small()));
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/page-small.expected");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "UPDATE=1 writes it anew");
}

/// Finds what no page may have, whatever it is made of.
fn judge(page: &str) {
    let document = parsed(page);
    let places = ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "dx"];
    for node in document.descendants().filter(Node::is_element) {
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            assert!(!name.starts_with("on"), "{name}={value}");
            match name {
                "d" => path_is_within(node, value),
                "data-x" | "data-y" => {
                    let ends: Vec<f64> =
                        value.split(' ').skip(1).take(2).map(|end| end.parse().unwrap()).collect();
                    assert!(ends[0].is_finite() && ends[1].is_finite() && ends[0] < ends[1], "{value}");
                }
                "href" if tag(&node) == "use" => {
                    let target = value.strip_prefix('#').expect("in the page");
                    assert!(document.descendants().any(|n| n.attribute("id") == Some(target)), "{value}");
                }
                "href" => assert!(
                    ["#", "http://", "https://"].iter().any(|start| value.starts_with(start)),
                    "{value}"
                ),
                _ if places.contains(&name) => {
                    let number: f64 =
                        value.trim_end_matches('%').parse().unwrap_or_else(|_| panic!("{name}={value}"));
                    let whole = if value.ends_with('%') { 0.0..=100.0 } else { -100.0..=1000.0 };
                    assert!(number.is_finite() && whole.contains(&number), "{name}={value}");
                }
                _ => {}
            }
        }
        if has_class(&node, "picture") {
            assert!(node.attribute("aria-label").is_some_and(|label| label.len() > 2));
        }
        if tag(&node) == "th" {
            assert!(node.attribute("scope").is_some());
        }
    }
    let ids: Vec<&str> = document.descendants().filter_map(|n| n.attribute("id")).collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "{ids:?}");
    assert_eq!(document.descendants().filter(|n| tag(n) == "script").count(), 1);
}

/// Paths of plots lie in a square of 1000.
fn path_is_within(node: Node<'_, '_>, path: &str) {
    if !node.ancestors().any(|n| has_class(&n, "area")) {
        return;
    }
    for word in path.split(|c: char| c.is_ascii_alphabetic() || c == ' ').filter(|word| !word.is_empty()) {
        let number: i32 = word.parse().unwrap_or_else(|_| panic!("{word} in {path}"));
        assert!((0..=1000).contains(&number), "{path}");
    }
}

#[test]
#[allow(clippy::disallowed_methods)] // a test's own files
fn a_large_page_is_light_and_sound() {
    let experiment = large();
    let page = html(&experiment);
    judge(&page);
    let results = serde_json::to_string(&experiment).unwrap();
    assert!(page.len() < 700 << 10, "{} bytes", page.len());
    assert!(page.len() < results.len() / 2, "{} of {}", page.len(), results.len());
    if let Some(path) = std::env::var_os("PAGE_SAMPLE") {
        std::fs::write(&path, results).unwrap();
        std::fs::write(PathBuf::from(path).with_extension("html"), page).unwrap();
    }
}

#[test]
fn nothing_is_needed() {
    let mut experiment = small();
    experiment.runs.clear();
    judge(&html(&experiment));
    assert!(html(&experiment).contains("nothing has been measured"));
    experiment.cases.clear();
    experiment.tables.clear();
    experiment.sources.clear();
    judge(&html(&experiment));
    experiment.sides.clear();
    judge(&html(&experiment));
    let mut bare = small();
    for run in &mut bare.runs {
        run.latencies.clear();
        run.series.clear();
        run.slow.clear();
        run.pauses.clear();
        run.operations = 0;
        run.elapsed_s = 0.0;
    }
    judge(&html(&bare));
}

#[test]
fn text_from_outside_is_never_markup() {
    let hostile = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload=\"x]]>";
    let mut experiment = large();
    experiment.title = hostile.into();
    experiment.question = hostile.into();
    experiment.environment.cpu = hostile.into();
    experiment.sources = vec![
        Source { title: hostile.into(), address: "javascript:alert(1)".into() },
        Source { title: String::new(), address: format!("https://{hostile}") },
    ];
    for side in &mut experiment.sides {
        side.label = hostile.into();
        side.command_line.push(hostile.into());
    }
    for run in &mut experiment.runs {
        run.pauses.iter_mut().for_each(|pause| pause.cause = hostile.into());
    }
    let page = html_beside(&experiment, hostile);
    judge(&page);
    assert!(!page.contains("<img"));
    assert_eq!(page.matches("<script").count(), 1);
}

/// Numbers of all sizes, and what is none.
fn numbers() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => 0.0..1e4f64,
        2 => any::<f64>(),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 0.0, -0.0]),
    ]
}

fn counts() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..100_000u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

/// Few names, so that runs find their sides; and any text at all.
fn names() -> impl Strategy<Value = String> {
    prop_oneof![3 => prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_string), 1 => any::<String>()]
}

fn runs() -> impl Strategy<Value = Run> {
    let pause = (numbers(), numbers(), names(), 0..6usize).prop_map(|(at_s, length_ms, cause, kind)| {
        let kinds = [
            PauseKind::Collection,
            PauseKind::Safepoint,
            PauseKind::AllocationStall,
            PauseKind::Stall,
            PauseKind::Disk,
            PauseKind::Host,
        ];
        Pause { at_s, length_ms, kind: kinds[kind], cause }
    });
    let slow =
        (numbers(), counts(), names()).prop_map(|(at_s, latency_us, kind)| Slow { at_s, latency_us, kind });
    let second =
        (numbers(), counts(), prop::option::of(counts())).prop_map(|(at_s, count, resident_bytes)| Second {
            at_s,
            operations: count,
            p50_us: count,
            p99_us: count,
            max_us: count,
            resident_bytes,
        });
    let latency = (names(), prop::collection::vec((counts(), counts()), 0..6))
        .prop_map(|(kind, histogram)| Latency { kind, mean_us: 0.0, histogram });
    let parts = (
        prop::collection::vec(pause, 0..8),
        prop::collection::vec(slow, 0..8),
        prop::collection::vec(second, 0..8),
        prop::collection::vec(latency, 0..3),
    );
    let alone = (
        names(),
        names(),
        any::<u32>(),
        names(),
        counts(),
        prop::option::of(numbers()),
        prop::option::of(names()),
    );
    (parts, alone, prop::array::uniform5(numbers())).prop_map(
        |((pauses, slow, series, latencies), alone, n)| {
            let (side, case, repetition, word, count, rate_wanted_per_s, partial) = alone;
            Run {
                side,
                case,
                repetition,
                command_line: vec![word.clone()],
                started_ms: count,
                elapsed_s: n[0],
                partial,
                warmup_s: n[2],
                warmup_rates_per_s: vec![n[3]],
                operations: count,
                operations_per_s: n[1],
                rate_wanted_per_s,
                latencies,
                series,
                slow,
                slow_left_out: count,
                pauses,
                resources: Resources {
                    server_cpu_s: n[2],
                    client_cpu_s: n[3],
                    others_cpu_s: n[4],
                    resident_bytes: count,
                    resident_peak_bytes: count,
                    disk_read_bytes: count,
                    disk_written_bytes: count,
                    io_wait_s: n[4],
                    stolen_s: n[4],
                    bound_by: word.clone(),
                },
                errors: vec![(word, count)],
                disk_bytes: Some(count),
            }
        },
    )
}

fn tables() -> impl Strategy<Value = Table> {
    let entry =
        (0..4usize, names(), prop::array::uniform3(numbers())).prop_map(|(kind, word, n)| match kind {
            0 => Entry::Text(word),
            1 => Entry::Measured { median: n[0], min: n[1], max: n[2], unit: word },
            2 => Entry::Published { value: n[0], unit: word },
            _ => Entry::Absent(word),
        });
    let rows = prop::collection::vec(prop::collection::vec(entry, 0..4), 0..4);
    (names(), prop::collection::vec(names(), 0..4), rows, names())
        .prop_map(|(title, columns, rows, remark)| Table { title, columns, rows, remark })
}

fn experiments() -> impl Strategy<Value = Experiment> {
    let sides = prop::collection::vec((names(), names(), any::<bool>(), prop::option::of(names())), 0..12);
    let cases = prop::collection::vec((names(), names()), 0..4);
    let rest = (
        names(),
        counts(),
        prop::option::of(counts()),
        prop::option::of(names()),
        prop::option::of(numbers()),
    );
    (sides, cases, prop::collection::vec(runs(), 0..6), prop::collection::vec(tables(), 0..3), rest).prop_map(
        |(sides, cases, runs, tables, (word, count, ended_ms, partial, sync_ms))| {
            let side = |(id, label, ours, missing): (String, String, bool, Option<String>)| Side {
                id,
                label: label.clone(),
                product: if ours { Product::Halcyon } else { Product::Accumulo },
                command_line: vec![label.clone()],
                settings: vec![label],
                missing,
            };
            Experiment {
                title: word.clone(),
                question: word.clone(),
                sources: vec![Source { title: word.clone(), address: word.clone() }],
                partial,
                started_ms: count,
                ended_ms,
                environment: Environment {
                    memory_bytes: count,
                    sync_ms,
                    system: word.clone(),
                    ..small().environment
                },
                durability: word.clone(),
                sides: sides.into_iter().map(side).collect(),
                cases: cases.into_iter().map(|(id, label)| Case { id, label }).collect(),
                runs,
                tables,
                not_comparable: vec![word],
                ..small()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn any_experiment_is_a_sound_page(experiment in experiments()) {
        judge(&html(&experiment));
    }
}

#[test]
fn the_command_says_what_is_wrong_and_writes_the_page_whole() {
    use halcyon_env::FileSystem;
    use halcyon_env::sim::SimFileSystem;
    let fs = SimFileSystem::new();
    let env = fs.env();
    let args = |results: &str, output: Option<&str>| PageArgs {
        results: results.into(),
        output: output.map(Into::into),
    };
    let wrong = |results: &str| run(&env, &args(results, None)).unwrap_err();
    assert_eq!(wrong("/none.json"), "/none.json: no such file");
    fs.replace("/bad.json".as_ref(), b"{\"format\": 1}").unwrap();
    assert!(wrong("/bad.json").starts_with("/bad.json: not the results of an experiment: missing field"));
    let mut experiment = small();
    experiment.format = FORMAT + 1;
    fs.replace("/new.json".as_ref(), &serde_json::to_vec(&experiment).unwrap()).unwrap();
    assert_eq!(wrong("/new.json"), "/new.json: format 2 is from a newer version; this version reads up to 1");
    fs.replace("/good.json".as_ref(), &serde_json::to_vec(&small()).unwrap()).unwrap();
    assert!(run(&env, &args("/good.json", Some("/good.json"))).is_err());
    assert!(run(&env, &args("/good.json", None)).unwrap().starts_with("/good.html ("));
    let page = String::from_utf8(fs.read("/good.html".as_ref()).unwrap()).unwrap();
    assert_eq!(page, html_beside(&small(), "good.json"));
    assert_eq!(run(&env, &args("/good.json", Some("-"))).unwrap(), page);
}
