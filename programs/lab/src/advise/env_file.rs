//! `hbase-env.sh`, read without a shell.
//!
//! Assignments (`export NAME="..."`) are followed, with `$NAME` and `${NAME}` of what was assigned before. Everything a shell
//! would have to run (commands, conditions, functions, `${NAME:-...}`) is not: its line is reported, so that the reader
//! knows what the advice does not cover.

use std::collections::BTreeMap;

use super::flags::{Flag, parse_all};
use super::machine::parse_size;

/// Longest value; a file that repeats itself must not grow without end.
const VALUE_LEN_MAX: usize = 64 << 10;

/// What was read.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct EnvFile {
    values: BTreeMap<String, String>,
    /// Line numbers (from 1) and texts that were not understood.
    pub not_understood: Vec<(usize, String)>,
}

impl EnvFile {
    pub fn read(text: &str) -> EnvFile {
        let mut file = EnvFile::default();
        let mut lines = text.lines().enumerate();
        while let Some((at, first)) = lines.next() {
            let mut line = first.to_string();
            // a value goes on behind a backslash, or while its quotes are open
            while line.ends_with('\\') || open_quote(&line) {
                let Some((_, more)) = lines.next().filter(|_| line.len() < VALUE_LEN_MAX) else { break };
                match line.strip_suffix('\\') {
                    Some(head) => line = head.to_string() + more,
                    None => line = line + " " + more,
                }
            }
            file.line(at + 1, line.trim());
        }
        file
    }

    fn line(&mut self, at: usize, line: &str) {
        if line.is_empty() || line.starts_with('#') {
            return;
        }
        let assignment = line.strip_prefix("export ").unwrap_or(line).trim_start();
        let valid =
            |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let value = assignment
            .split_once('=')
            .filter(|(name, _)| valid(name))
            .and_then(|(name, value)| Some((name.to_string(), self.value(value)?)));
        match value {
            Some((name, value)) if value.len() < VALUE_LEN_MAX => {
                self.values.insert(name, value);
            }
            _ => self.not_understood.push((at, line.chars().take(120).collect())),
        }
    }

    /// What a shell would make of a value without running anything; `None` if it would have to.
    fn value(&self, text: &str) -> Option<String> {
        let (mut out, mut quote) = (String::new(), None);
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '"' | '\'') => quote = Some(c),
                (Some('\''), c) => out.push(c),
                (_, '`') => return None,
                (_, '\\') => out.push(chars.next()?),
                (_, '$') => {
                    let braces = chars.next_if_eq(&'{').is_some();
                    let mut name = String::new();
                    while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                        name.push(c);
                    }
                    if name.is_empty() || braces && chars.next() != Some('}') {
                        return None;
                    }
                    match self.values.get(&name) {
                        Some(value) => out.push_str(value),
                        // what comes from outside may be anything; of HBase's own variables it is usually nothing
                        None if name.starts_with("HBASE_")
                            && (name.ends_with("OPTS") || name == "HBASE_JMX_BASE") => {}
                        None => out.push_str(&format!("${{{name}}}")),
                    }
                }
                (None, '#') if out.is_empty() || out.ends_with(' ') => break,
                (None, ' ' | '\t') => match chars.clone().find(|c| !c.is_whitespace()) {
                    // another command or assignment behind
                    Some(c) if c != '#' => return None,
                    _ => break,
                },
                (None, ';' | '&' | '|' | '<' | '>' | '(' | ')') => return None,
                (_, c) => out.push(c),
            }
            if out.len() >= VALUE_LEN_MAX {
                return None;
            }
        }
        quote.is_none().then_some(out)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// The flags of a region server in the order in which `bin/hbase` gives them to the JVM: the last one wins.
    pub fn flags(&self) -> Vec<Flag> {
        let mut text = String::new();
        if let Some(size) = self.size("HBASE_HEAPSIZE") {
            text += &format!(" -Xmx{size}");
        }
        if let Some(size) = self.size("HBASE_OFFHEAPSIZE") {
            text += &format!(" -XX:MaxDirectMemorySize={size}");
        }
        let mut flags = parse_all(&text);
        for name in ["HBASE_OPTS", "HBASE_REGIONSERVER_OPTS", "SERVER_GC_OPTS"] {
            flags.extend(parse_all(self.get(name).unwrap_or_default()));
        }
        flags
    }

    /// `bin/hbase` takes a number without a unit for megabytes.
    fn size(&self, name: &str) -> Option<String> {
        let text = self.get(name)?.trim();
        let bare = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let text = if bare { format!("{text}m") } else { text.to_ascii_lowercase() };
        parse_size(&text).is_ok().then_some(text)
    }
}

fn open_quote(line: &str) -> bool {
    let (mut quote, mut escaped) = (None, false);
    if line.trim_start().starts_with('#') {
        return false;
    }
    for c in line.chars() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            _ => {}
        }
    }
    quote.is_some()
}
