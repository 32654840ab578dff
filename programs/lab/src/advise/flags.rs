//! A JVM's command line, cut into flags.

use std::fmt;

/// One flag: `-XX:+UseG1GC`, `-XX:MaxGCPauseMillis=100`, `-Xmx31g`, `-Dname=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// `UseG1GC`, `MaxGCPauseMillis`, `-Xmx`, `-Xlog:gc`; two flags of one name set the same thing.
    pub name: String,
    /// `+`, `-`, or what stands behind the sign of equality.
    pub value: String,
    /// As it was written.
    pub text: String,
}

impl Flag {
    pub fn parse(text: &str) -> Flag {
        let named =
            |name: &str, value: &str| Flag { name: name.into(), value: value.into(), text: text.into() };
        if let Some(rest) = text.strip_prefix("-XX:") {
            if let Some(name) = rest.strip_prefix('+') {
                return named(name, "+");
            }
            if let Some(name) = rest.strip_prefix('-') {
                return named(name, "-");
            }
            let (name, value) = rest.split_once('=').unwrap_or((rest, ""));
            return named(name, value);
        }
        for name in ["-Xmx", "-Xms", "-Xmn", "-Xss"] {
            if let Some(value) = text.strip_prefix(name) {
                return named(name, value);
            }
        }
        // logs of different things live side by side
        if let Some(rest) = text.strip_prefix("-Xlog:") {
            let gc = rest.starts_with("gc") || rest.starts_with("safepoint");
            return named(if gc { "-Xlog:gc" } else { "-Xlog" }, rest);
        }
        let (name, value) = text.split_once([':', '=']).unwrap_or((text, ""));
        named(name, value)
    }

    /// Whether both set the same thing to the same value; sizes may be written in different units.
    pub fn same(&self, other: &Flag) -> bool {
        let value = |flag: &Flag| {
            super::machine::parse_size(&flag.value).map_or(flag.value.clone(), |bytes| bytes.to_string())
        };
        self.name == other.name && value(self) == value(other)
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Flags between spaces; quotes keep spaces together. A command line may begin with the path of `java`, and ends with the
/// class: what does not begin with a dash is left out, as is what an option such as `-cp` takes.
pub fn parse_all(text: &str) -> Vec<Flag> {
    let (mut words, mut word, mut quote, mut any) = (Vec::new(), String::new(), None, false);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => (quote, any) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if any || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                any = false;
            }
            _ => word.push(c),
        }
    }
    if any || !word.is_empty() {
        words.push(word);
    }
    words
        .iter()
        .filter(|word| word.starts_with('-') && word.len() > 1)
        .map(|word| Flag::parse(word))
        .collect()
}
