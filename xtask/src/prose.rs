//! Prose of documents and help texts: short sentences, the words of `docs/GLOSSARY.md`, links that lead somewhere.
//!
//! - A sentence in a document has at most [`WORDS_MAX`] words. Tables, code and headings are not counted.
//! - Documents and help texts do not use the words of [`WORDS`].
//! - A relative link in a document leads to a file in the tree, and to a heading if it names one.
//!
//! [`LATER`] lists the documents that are not held to the first two yet. When you rewrite one, take it out.

use std::path::{Component, Path, PathBuf};

/// Longest sentence of a document, in words.
const WORDS_MAX: usize = 30;

/// Words and phrases that hide the subject or have a plainer form; see the end of `docs/GLOSSARY.md`.
const WORDS: &[&str] = &[
    "whoever",
    "somebody",
    "nobody",
    "goes on",
    "stands",
    "is told",
    "beside",
    "taken for",
    "lets go of",
    "so many",
    "there is no such",
];

/// Documents whose sentences and words are not checked yet: a diary, and the byte formats.
const LATER: &[&str] = &["docs/PROGRESS.md"];

/// Files whose doc comments are help texts.
const HELP: &[&str] = &[
    "programs/halcyon/src/args.rs",
    "programs/lab/src/",
    "programs/load/src/",
    "programs/inspect/src/",
    "programs/check/src/",
];

/// Complaints about one file, each a line.
pub fn check(path: &str, text: &str, root: &Path) -> Vec<String> {
    if path.ends_with(".md") {
        let mut complaints = broken_links(path, text, root);
        if !LATER.iter().any(|later| path.ends_with(later)) {
            complaints.extend(document(path, text));
        }
        return complaints;
    }
    let is_help = HELP.iter().any(|start| path.starts_with(start)) && text.contains("clap::");
    if is_help { help(path, text) } else { Vec::new() }
}

fn document(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, paragraph) in paragraphs(text) {
        for word in unwanted(&paragraph) {
            complaints.push(format!("{path}:{number}: \"{word}\": docs/GLOSSARY.md has a plainer word"));
        }
        for sentence in sentences(&paragraph) {
            let words =
                sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
            if words > WORDS_MAX {
                let start: String = sentence.chars().take(50).collect();
                complaints.push(format!("{path}:{number}: a sentence of {words} words: {start}..."));
            }
        }
    }
    complaints
}

/// The doc comments of a file that declares command-line options.
fn help(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("///") else { continue };
        for word in unwanted(&without_code(comment)) {
            complaints
                .push(format!("{path}:{}: \"{word}\": docs/GLOSSARY.md has a plainer word", number + 1));
        }
    }
    complaints
}

fn unwanted(prose: &str) -> impl Iterator<Item = &'static str> {
    let letters = |c: char| if c.is_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { ' ' };
    let words: String = prose.chars().map(letters).collect();
    let line = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
    WORDS.iter().copied().filter(move |word| line.contains(&format!(" {word} ")))
}

/// Paragraphs and list items with the number of their first line. Tables, code, headings and comments are left out.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut is_code, mut is_open) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            (is_code, is_open) = (!is_code, false);
            continue;
        }
        if is_code || trimmed.is_empty() || trimmed.starts_with(['|', '#', '<', '!']) {
            is_open = false;
            continue;
        }
        let is_item = trimmed.starts_with("- ")
            || trimmed.starts_with("* ")
            || trimmed.split_once(". ").is_some_and(|(digits, _)| digits.parse::<u32>().is_ok());
        if is_open && !is_item {
            if let Some((_, paragraph)) = found.last_mut() {
                paragraph.push(' ');
                paragraph.push_str(trimmed);
            }
        } else {
            found.push((number + 1, trimmed.trim_start_matches(['-', '*', ' ']).to_string()));
        }
        is_open = true;
    }
    found.into_iter().map(|(number, paragraph)| (number, without_code(&paragraph))).collect()
}

/// Each piece of code becomes one word; of a link its text stays.
fn without_code(text: &str) -> String {
    let mut plain = String::new();
    for (at, piece) in text.split('`').enumerate() {
        plain.push_str(if at % 2 == 0 { piece } else { "X" });
    }
    while let Some(start) = plain.find("](") {
        let end = plain[start..].find(')').map_or(plain.len(), |end| start + end + 1);
        plain.replace_range(start..end, "");
    }
    plain.replace('[', "")
}

/// Cut behind a full stop, question mark or exclamation mark that a space and a capital or digit follow.
fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, c) in paragraph.char_indices() {
        let rest = &paragraph[at + c.len_utf8()..];
        let rest = rest.trim_start_matches(['*', ')', '"']);
        let begins_another = rest.strip_prefix(' ').is_some_and(|rest| {
            rest.trim_start_matches(['*', '"', '(']).starts_with(|c: char| c.is_uppercase() || c.is_numeric())
        });
        if matches!(c, '.' | '?' | '!') && begins_another {
            found.push(&paragraph[start..=at]);
            start = at + 1;
        }
    }
    found.push(&paragraph[start..]);
    found
}

fn broken_links(path: &str, text: &str, root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut is_code = false;
    for (number, line) in text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        for link in links(line).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { PathBuf::from(path) } else { beneath(path, file) };
            let is_there = root.join(&target).exists();
            let has_heading = heading.is_empty()
                || std::fs::read_to_string(root.join(&target)).is_ok_and(|text| has_heading(&text, heading));
            if !is_there || !has_heading {
                complaints.push(format!("{path}:{}: the link {link} leads nowhere", number + 1));
            }
        }
    }
    complaints
}

/// Targets of `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let plain = line.split('`').step_by(2);
    plain.flat_map(|piece| piece.split("](").skip(1).filter_map(|rest| rest.split(')').next()))
}

/// A path that is relative to the folder of `from`, relative to the root.
fn beneath(from: &str, file: &str) -> PathBuf {
    let mut path = Path::new(from).parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// Whether a document has a heading with this anchor, as GitHub and mdbook make it.
fn has_heading(text: &str, anchor: &str) -> bool {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| line.trim_start_matches('#').trim().to_lowercase()).any(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>() == anchor
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_found_and_tables_are_not() {
        let long = "word ".repeat(WORDS_MAX + 1);
        assert_eq!(document("a.md", &format!("{long}.\n")).len(), 1);
        assert_eq!(document("a.md", &format!("First half {long}\nover. Second {long}\n")).len(), 2);
        for kept in [format!("| {long} |\n"), format!("```\n{long}\n```\n"), format!("# {long}\n")] {
            assert_eq!(document("a.md", &kept), Vec::<String>::new());
        }
        let short = "Word ".repeat(WORDS_MAX);
        assert_eq!(
            document("a.md", &format!("{}. {short}\n- {short}\n- {short}\n", short.trim())),
            Vec::<String>::new()
        );
    }

    #[test]
    fn code_is_one_word_and_links_are_their_text() {
        assert_eq!(without_code("a `b c d` [e f](g.md#h) i"), "a X e f i");
        assert_eq!(sentences("One. Two? three! (Four.) 5 x").len(), 4);
        assert_eq!(sentences("e.g. this is one").len(), 1);
    }

    #[test]
    fn unwanted_words_are_found() {
        assert_eq!(document("a.md", "Nobody waits.\n").len(), 1);
        assert_eq!(document("a.md", "It goes\non here.\n").len(), 1);
        assert!(document("a.md", "`nobody` waits, and besides, it understands.\n").is_empty());
        assert_eq!(help("a.rs", "/// Whoever asks.\nlet nobody = 1;\n").len(), 1);
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let found = |text: &str| broken_links("docs/LAB.md", text, &root).len();
        assert_eq!(found("[a](LOAD.md) [b](../README.md) [c](https://x.y/z) `[d](e.md)`\n"), 0);
        assert_eq!(found("[a](NONE.md)\n[b](GLOSSARY.md#data)\n[c](GLOSSARY.md#nothing)\n"), 2);
    }
}
