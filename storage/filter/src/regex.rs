//! Java's regular expressions (`java.util.regex.Pattern`) on `fancy-regex`.
//!
//! A pattern passes through three steps: `quote.rs` takes `\Q...\E` away, `translate.rs` reads Java's syntax
//! and writes that of `fancy-regex`, and `class.rs` computes the characters of `[...]`, `\d`, `\p{...}` as
//! plain sets. What the two languages disagree about is spelt out in the translated pattern, so flags are
//! never passed on: line ends are five characters and `\r\n`, `$` matches before the last of them, `\w` and
//! `\d` are ASCII, case folding is ASCII unless UNICODE_CASE, `[a&&[^b]]` is an intersection.
//!
//! Not supported, and refused when the comparator is built: `\X`, `\N{...}`, `\b{g}`, most Unicode blocks
//! (`\p{In...}`), and CANON_EQ with a pattern outside ASCII. Patterns without lookaround, backreference or
//! possessive quantifier run in linear time; the others are stopped at [`BACKTRACKS_MAX`].

mod class;
mod quote;
mod translate;

use halcyon_cell::{Error, Result};

/// Longest pattern, in bytes.
const PATTERN_LEN_MAX: usize = 256 << 10;
/// Steps back that one search may take; about a tenth of a second.
const BACKTRACKS_MAX: usize = 1_000_000;
/// Size of a compiled automaton, in bytes, and of its cache while it runs.
const AUTOMATON_SIZE_MAX: usize = 8 << 20;
/// Instructions of a pattern that needs steps back.
const PROGRAM_SIZE_MAX: usize = 100_000;

/// The flags of `java.util.regex.Pattern`.
pub(crate) mod flags {
    pub(crate) const UNIX_LINES: i32 = 1;
    pub(crate) const CASE_INSENSITIVE: i32 = 2;
    pub(crate) const COMMENTS: i32 = 4;
    pub(crate) const MULTILINE: i32 = 8;
    pub(crate) const LITERAL: i32 = 16;
    pub(crate) const DOTALL: i32 = 32;
    pub(crate) const UNICODE_CASE: i32 = 64;
    pub(crate) const CANON_EQ: i32 = 128;
    pub(crate) const UNICODE_CHARACTER_CLASS: i32 = 256;
    pub(crate) const ALL: i32 = 511;
}

/// A compiled pattern of Java's language.
pub(crate) struct JavaRegex {
    regex: fancy_regex::Regex,
    pattern: String,
}

impl JavaRegex {
    /// Errors (kind `Invalid`): the pattern is not one of Java's, is not supported, or is too large. The
    /// message names it.
    pub(crate) fn new(pattern: &str, flags: i32) -> Result<JavaRegex> {
        let shown = abbreviate(pattern);
        let refuse = |why: String| Error::invalid(format!("pattern {shown:?} is refused: {why}"));
        if flags & !flags::ALL != 0 {
            return Err(refuse(format!("unknown flag {:#x}", flags & !flags::ALL)));
        }
        if pattern.len() > PATTERN_LEN_MAX {
            return Err(refuse(format!("its {} bytes are over {PATTERN_LEN_MAX}", pattern.len())));
        }
        let translated = translate::translate(pattern, flags).map_err(refuse)?;
        let regex = fancy_regex::RegexBuilder::new(&translated)
            .backtrack_limit(BACKTRACKS_MAX)
            .delegate_size_limit(AUTOMATON_SIZE_MAX)
            .delegate_dfa_size_limit(AUTOMATON_SIZE_MAX)
            .max_prog_size(PROGRAM_SIZE_MAX)
            .build()
            .map_err(|error| refuse(error.to_string()))?;
        Ok(JavaRegex { regex, pattern: shown })
    }

    /// Whether the pattern matches some part of `text`.
    ///
    /// Errors (kind `Invalid`): the search took too many steps back.
    pub(crate) fn is_found_in(&self, text: &str) -> Result<bool> {
        self.regex.is_match(text).map_err(|error| {
            Error::invalid(format!("pattern {:?} gave up on a value: {error}", self.pattern))
        })
    }
}

/// What of a pattern goes into messages.
fn abbreviate(pattern: &str) -> String {
    const SHOWN_MAX: usize = 200;
    let mut shown: String = pattern.chars().take(SHOWN_MAX).collect();
    if shown.len() < pattern.len() {
        shown.push_str("...");
    }
    shown
}
