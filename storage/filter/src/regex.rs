//! Java's regular expressions on `fancy-regex`.

use halcyon_cell::{Error, Result};

pub(crate) struct JavaRegex {
    regex: fancy_regex::Regex,
}

impl JavaRegex {
    pub(crate) fn new(pattern: &str, _flags: i32) -> Result<JavaRegex> {
        let regex = fancy_regex::Regex::new(pattern)
            .map_err(|error| Error::invalid(format!("pattern {pattern:?} does not compile: {error}")))?;
        Ok(JavaRegex { regex })
    }

    pub(crate) fn is_found_in(&self, text: &str) -> Result<bool> {
        self.regex.is_match(text).map_err(|error| Error::invalid(format!("pattern gave up: {error}")))
    }
}
