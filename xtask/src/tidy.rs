//! Tidiness that no other tool looks after.
//!
//! - A Rust file of more than [`LINES_MAX`] lines says in its head, with the words "one piece", why it is not two.
//! - Nothing unfinished: no `todo` macro and its kin, and no `FIXME`.
//! - Product code says `expect("why")` and not `unwrap()`.
//! - Nothing of the machine it was written on: no absolute paths into somebody's home.
//! - Every library from outside has its line in `docs/decisions/0001-dependencies.md`, and no line is left over.
//! - Files and types are called after what they are, not `util` or `manager`.
//! - Scripts have no line that looks like an assertion and is none ([`crate::scripts`]).

use std::path::Path;
use std::process::Command;

/// Longest Rust file without a reason.
pub const LINES_MAX: usize = 800;

/// The head of a file, in which a reason must stand.
const HEAD_LINES: usize = 30;

/// Written in two halves, so that this file does not complain about itself.
const UNFINISHED: &[&str] =
    &[concat!("tod", "o!("), concat!("unimplem", "ented!("), concat!("db", "g!("), concat!("FIX", "ME")];
const MACHINE: &[&str] =
    &[concat!("/ho", "me/"), concat!("/Use", "rs/"), concat!("/wo", "rk/"), concat!("/tmp/br", "ief")];
const TEXT: &[&str] = &["rs", "toml", "md", "sh", "java", "xml", "proto", "yml", "Makefile", "run"];
const FILE_NAMES: &[&str] =
    &["util.rs", "utils.rs", "helper.rs", "helpers.rs", "manager.rs", "misc.rs", "common.rs"];
const TYPE_NAMES: &[&str] = &["Manager", "Helper", "Util", "Utils"];

const REASONS: &str = "docs/decisions/0001-dependencies.md";

/// Looks at all files that git knows of or would take; each complaint is one line.
pub fn check(root: &Path) -> Vec<String> {
    let listed = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let Ok(listed) = listed else {
        return vec!["git ls-files did not run".to_string()];
    };
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
    let mut complaints = unexplained(&read("Cargo.toml"), &read(REASONS));
    for path in String::from_utf8_lossy(&listed.stdout).lines() {
        let extension = path.rsplit(['.', '/']).next().unwrap_or(path);
        // this file names what it looks for
        if !TEXT.contains(&extension) || path == "xtask/src/tidy.rs" || is_of_others(path) {
            continue;
        }
        // a file that is deleted but not yet committed as such is not there
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            complaints.extend(judge(path, &text));
            complaints.extend(crate::prose::check(path, &text, root));
            complaints.extend(crate::scripts::check(path, &text));
        }
    }
    complaints
}

/// Source that was published by others, and the patches of it.
fn is_of_others(path: &str) -> bool {
    path.starts_with("third_party/") && !path.ends_with("/PATCHES.md") && path.matches('/').count() > 1
}

/// Libraries of the workspace without a line of reason, and lines without a library.
fn unexplained(manifest: &str, reasons: &str) -> Vec<String> {
    let used: Vec<&str> = manifest
        .lines()
        .skip_while(|line| line.trim() != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim())
        .filter(|name| !name.starts_with("halcyon-") && !name.starts_with('#'))
        .collect();
    // the first cell of each row of the table: `one`, `two`
    let explained: Vec<&str> = reasons
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('|').next())
        .flat_map(|cell| cell.split(','))
        .map(|name| name.trim().trim_matches('`'))
        .collect();
    let mut complaints = Vec::new();
    for name in used.iter().filter(|name| !explained.contains(name)) {
        complaints.push(format!("{REASONS}: no reason for {name}"));
    }
    for name in explained.iter().filter(|name| !used.contains(name)) {
        complaints.push(format!("{REASONS}: {name} is not used"));
    }
    complaints
}

fn judge(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in MACHINE.iter().filter(|word| line.contains(**word)) {
            complaints.push(format!("{path}:{}: a path of one machine: {word}", number + 1));
        }
        if path.ends_with(".rs") {
            for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
                complaints.push(format!("{path}:{}: unfinished: {word}", number + 1));
            }
            if let Some(name) = vague_type(line) {
                complaints.push(format!("{path}:{}: {name}: say what it is", number + 1));
            }
        }
    }
    if is_product(path) {
        // tests at the end of a file may
        for (number, line) in text.lines().take_while(|line| !begins_tests(line)).enumerate() {
            if line.contains(".unwrap()") && !line.trim_start().starts_with("//") {
                complaints.push(format!("{path}:{}: unwrap() does not say why it cannot fail", number + 1));
            }
        }
    }
    if path.ends_with(".rs") {
        let lines = text.lines().count();
        if lines > LINES_MAX && !text.lines().take(HEAD_LINES).any(|line| line.contains("one piece")) {
            complaints.push(format!("{path}: {lines} lines, and its head does not say why it is one piece"));
        }
        let file = path.rsplit('/').next().unwrap_or(path);
        if FILE_NAMES.contains(&file) {
            complaints.push(format!("{path}: a name that could hold anything"));
        }
    }
    complaints
}

/// Whether a file is part of a crate that people run, and not of its tests.
fn is_product(path: &str) -> bool {
    path.ends_with(".rs")
        && path.contains("/src/")
        && !path.starts_with("testing/")
        && !path.ends_with("/tests.rs")
        && !path.ends_with("/interleavings.rs")
        && !path.contains("/tests/")
}

/// Whether what follows is for tests, under Shuttle or not.
fn begins_tests(line: &str) -> bool {
    let line = line.trim();
    line == "#[cfg(test)]" || line.starts_with("#[cfg(all(test, ")
}

/// The name of a type that is declared here and says nothing.
fn vague_type(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find(|word| matches!(*word, "struct" | "enum" | "trait"))?;
    let name = words.next()?;
    TYPE_NAMES.iter().any(|ending| name.ends_with(ending)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_need_a_reason() {
        let manifest = "[workspace.dependencies]\nhalcyon-cell = { path = \"x\" }\n# outside\nbytes = \"1\"\nprost = \"0\"\nprost-types = \"0\"\n\n[profile.dev]\nopt = 1\n";
        let table =
            "| library | for |\n|---|---|\n| `bytes` | slices |\n| `prost`, `prost-types` | messages |\n";
        assert_eq!(unexplained(manifest, table), Vec::<String>::new());
        assert_eq!(unexplained(manifest, "| `bytes` | slices |\n").len(), 2);
        assert_eq!(unexplained(manifest, &format!("{table}| `old` | gone |\n")).len(), 1);
    }

    #[test]
    fn long_files_need_a_reason() {
        let long = "// line\n".repeat(LINES_MAX + 1);
        assert_eq!(judge("a/b.rs", &long).len(), 1);
        let reasoned = format!("//! It is one piece because the states belong together.\n{long}");
        assert!(judge("a/b.rs", &reasoned).is_empty());
        assert!(judge("a/b.rs", &"// line\n".repeat(LINES_MAX)).is_empty());
        assert!(judge("a/b.md", &long).is_empty());
    }

    #[test]
    fn unfinished_things_are_found() {
        for word in UNFINISHED {
            assert_eq!(judge("a/b.rs", &format!("fn f() {{}}\n    {word}\n")).len(), 1, "{word}");
        }
        assert!(judge("a/b.md", UNFINISHED[0]).is_empty());
    }

    #[test]
    fn product_code_gives_reasons() {
        let code = "fn f() { g().unwrap(); }\n";
        assert_eq!(judge("storage/a/src/b.rs", code).len(), 1);
        assert!(judge("storage/a/src/b.rs", &format!("#[cfg(test)]\nmod tests {{ {code} }}\n")).is_empty());
        assert!(
            judge("storage/a/src/b.rs", &format!("#[cfg(all(test, x))]\nmod tests {{ {code} }}\n"))
                .is_empty()
        );
        assert!(judge("storage/a/tests/b.rs", code).is_empty());
        assert!(judge("storage/a/src/b/tests.rs", code).is_empty());
    }

    #[test]
    fn paths_of_machines_are_found() {
        for word in MACHINE {
            assert_eq!(judge("README.md", &format!("see {word}somebody\n")).len(), 1, "{word}");
        }
        assert!(judge("README.md", "$HOME/.cache/halcyon\n").is_empty());
    }

    #[test]
    fn vague_names_are_found() {
        assert_eq!(judge("a/util.rs", "").len(), 1);
        assert_eq!(judge("a/b.rs", "pub struct RegionManager {\n").len(), 1);
        assert_eq!(judge("a/b.rs", "pub(crate) enum ScanHelper<'a> {\n").len(), 1);
        assert!(judge("a/b.rs", "let manager = RegionManager::new();\n").is_empty());
    }
}
