//! What surrounds the figures: what is asked, what is missing, the machine, every command line, what does not compare.

use super::markup::Markup;
use super::plot::swatch;
use super::quantity::{bytes, length, number, wall_clock};
use super::view::View;
use crate::outcome::{Experiment, Source};

pub fn head(view: &View<'_>, page: &mut Markup) {
    let experiment = view.experiment;
    page.within("header", &[], |header| {
        header.element("p", &[("class", &"eyebrow")], &format!("Halcyon lab · {}", experiment.name));
        header.element("h1", &[], &experiment.title);
        header.element("p", &[("class", &"question")], &experiment.question);
        header.within("p", &[("class", &"when")], |p| {
            p.text(&wall_clock(experiment.started_ms));
            if let Some(ended) = experiment.ended_ms {
                let took_us = ended.saturating_sub(experiment.started_ms) as f64 * 1e3;
                p.text(&format!(" · took {}", length(took_us)));
            }
            p.text(if experiment.quick { " · quick form" } else { " · full form" });
            p.text(&format!(" · {} × {}", experiment.environment.cores, experiment.environment.cpu));
            p.text(&format!(" · {}", bytes(experiment.environment.memory_bytes as f64)));
        });
        warnings(view, header);
        header.within("ul", &[("class", &"sides")], |list| {
            for looked in &view.sides {
                list.within("li", &[], |li| {
                    swatch(li, looked.class(), Some(looked.look));
                    li.element("b", &[], &looked.side.label);
                    if let Some(why) = &looked.side.missing {
                        li.element("span", &[("class", &"missing")], &format!("did not take part: {why}"));
                    }
                });
            }
        });
        header.within("p", &[("class", &"durability")], |p| {
            p.element("b", &[], "Durability, for all sides alike: ");
            p.text(&experiment.durability);
        });
    });
}

/// What makes the page less than whole.
fn warnings(view: &View<'_>, header: &mut Markup) {
    let experiment = view.experiment;
    let mut sentences: Vec<String> = Vec::new();
    sentences.extend(experiment.partial.iter().map(|why| format!("This experiment is not whole: {why}")));
    if experiment.ended_ms.is_none() && experiment.partial.is_none() {
        sentences.push("This experiment has not ended: what follows are the runs so far.".to_string());
    }
    if experiment.runs.is_empty() {
        sentences.push("There are no runs: nothing has been measured.".to_string());
    }
    for run in &experiment.runs {
        if let Some(why) = &run.partial {
            sentences.push(format!(
                "Run {} of {} on {} is partial: {why}",
                run.repetition,
                label(experiment.cases.iter().map(|case| (&case.id, &case.label)), &run.case),
                label(experiment.sides.iter().map(|side| (&side.id, &side.label)), &run.side),
            ));
        }
    }
    match view.strangers() {
        0 => {}
        1 => sentences.push("One run is of a side or case that is not listed; it is on no plot.".to_string()),
        several => {
            sentences.push(format!(
                "{several} runs are of sides or cases that are not listed; they are on no plot."
            ));
        }
    }
    if sentences.is_empty() {
        return;
    }
    header.within("div", &[("class", &"partial"), ("role", &"note")], |note| {
        note.element("b", &[], "Partial results");
        note.within("ul", &[], |list| {
            sentences.iter().for_each(|sentence| list.element("li", &[], sentence))
        });
    });
}

fn label<'a>(mut of: impl Iterator<Item = (&'a String, &'a String)>, id: &'a str) -> &'a str {
    of.find(|(other, _)| *other == id).map_or(id, |(_, label)| label)
}

pub fn environment(experiment: &Experiment, page: &mut Markup) {
    let environment = &experiment.environment;
    let sync = environment.sync_ms.map_or("not measured".to_string(), |ms| length(ms * 1e3));
    let facts = [
        ("Processor", format!("{} × {}", environment.cores, environment.cpu)),
        ("Memory", bytes(environment.memory_bytes as f64)),
        ("System", environment.system.clone()),
        ("Writing and syncing 4 KiB, median", sync),
        ("Halcyon", environment.halcyon.clone()),
    ];
    page.within("dl", &[], |list| {
        for (name, value) in facts {
            list.element("dt", &[], name);
            list.element("dd", &[], &value);
        }
        list.element("dt", &[], "JDKs");
        list.within("dd", &[], |dd| match environment.jdks.as_slice() {
            [] => dd.text("none found"),
            jdks => dd.within("ul", &[], |ul| jdks.iter().for_each(|jdk| ul.element("li", &[], jdk))),
        });
    });
}

pub fn command_lines(view: &View<'_>, page: &mut Markup) {
    for looked in &view.sides {
        page.within("details", &[], |details| {
            details.within("summary", &[], |summary| {
                swatch(summary, looked.class(), Some(looked.look));
                summary.text(&format!("Server: {}", looked.side.label));
            });
            match looked.side.command_line.as_slice() {
                [] => details.element("p", &[("class", &"note")], "It was never started."),
                words => details.element("pre", &[], &shell(words)),
            }
            if !looked.side.settings.is_empty() {
                details.element("p", &[], "Settings that differ from the product's defaults:");
                details.element("pre", &[], &looked.side.settings.join("\n"));
            }
        });
    }
    for case in view.experiment.cases.iter().filter(|case| view.has_runs(case)) {
        page.within("details", &[], |details| {
            details.element("summary", &[], &format!("Load: {}", case.label));
            for looked in &view.sides {
                for run in view.runs(looked.side, case) {
                    let seconds = number(run.elapsed_s);
                    let head = format!(
                        "{}, repetition {}, {}, {seconds} s",
                        looked.side.label,
                        run.repetition,
                        wall_clock(run.started_ms)
                    );
                    details.element("p", &[("class", &"note")], &head);
                    details.element("pre", &[], &shell(&run.command_line));
                }
            }
        });
    }
}

/// As one would type it.
fn shell(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+:,./@%".contains(c);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

pub fn not_comparable(experiment: &Experiment, page: &mut Markup) {
    match experiment.not_comparable.as_slice() {
        [] => page.element("p", &[("class", &"note")], "Nothing was noted."),
        sentences => page.within("ul", &[("class", &"sentences")], |list| {
            sentences.iter().for_each(|sentence| list.element("li", &[], sentence));
        }),
    }
}

/// Addresses of the web become links; whatever else stands there stays text.
pub fn sources(sources: &[Source], page: &mut Markup) {
    if sources.is_empty() {
        page.element("p", &[("class", &"note")], "None.");
        return;
    }
    page.within("ul", &[("class", &"sentences")], |list| {
        for source in sources {
            list.within("li", &[], |li| {
                let web = source.address.starts_with("https://") || source.address.starts_with("http://");
                let title = if source.title.is_empty() { &source.address } else { &source.title };
                if web {
                    li.element("a", &[("href", &source.address), ("rel", &"noreferrer")], title);
                } else {
                    li.text(title);
                }
                if *title != source.address {
                    li.element("span", &[("class", &"address")], &source.address);
                }
            });
        }
    });
}

pub fn raw_data(raw: &str, page: &mut Markup) {
    page.within("p", &[], |p| {
        p.text("Everything on this page is drawn from ");
        p.element("code", &[], raw);
        p.text(" beside it, which has every second, pause and bucket of the histograms; ");
        p.element("code", &[], &format!("halcyon lab page {raw}"));
        p.text(" draws it again.");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_can_be_typed() {
        let words = ["java", "-Xlog:gc*,safepoint:file=a b.log", "it's", ""].map(str::to_string);
        assert_eq!(shell(&words), r"java '-Xlog:gc*,safepoint:file=a b.log' 'it'\''s' ''");
    }
}
