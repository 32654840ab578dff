//! Java's regular expressions (`java.util.regex.Pattern`) on `fancy-regex`.
//!
//! A pattern passes through two steps: `quote.rs` takes `\Q...\E` away, then `translate.rs`, with `escape.rs`
//! and `bracket.rs`, reads Java's syntax and writes that of `fancy-regex`. The characters of `[...]`, `\d` and
//! `\p{...}` are computed as plain sets on the way (`class.rs`). What the two languages disagree about is spelt
//! out in the translated pattern, so flags are never passed on: line ends are five characters and `\r\n`, `$`
//! matches before the last of them, `\w` and `\d` are ASCII, case folding is ASCII unless UNICODE_CASE,
//! `[a&&[^b]]` is an intersection.
//!
//! Not supported, and refused when the comparator is built: `\X`, `\N{...}`, `\b{g}`, most Unicode blocks
//! (`\p{In...}`), a quantifier on a quantifier or on nothing, and CANON_EQ with a pattern outside ASCII; other
//! patterns with CANON_EQ match without it. `testdata/patterns-refused.txt` keeps the list for the golden
//! patterns. Patterns without lookaround, backreference or possessive quantifier run in linear time; the
//! others are stopped at [`BACKTRACKS_MAX`].

mod bracket;
mod class;
mod escape;
mod quote;
mod translate;

use halcyon_cell::{Error, Result};

/// Longest pattern, in bytes.
const PATTERN_LEN_MAX: usize = 256 << 10;
/// Size of a compiled automaton, in bytes, and of its cache while it runs.
const AUTOMATON_SIZE_MAX: usize = 8 << 20;

// A pattern that takes steps back is cut into automatons with instructions between them, so it has tighter
// limits of its own.
/// Longest pattern that takes steps back, in bytes.
const STEPPING_PATTERN_LEN_MAX: usize = 8 << 10;
/// Size of each of its automatons, in bytes, and of their caches.
const STEPPING_AUTOMATON_SIZE_MAX: usize = 512 << 10;
/// Its instructions.
const STEPPING_PROGRAM_SIZE_MAX: usize = 50_000;
/// Longest text for it, in bytes. An automaton may be asked at each character, so time grows with the square.
const STEPPING_TEXT_LEN_MAX: usize = 128 << 10;
/// Steps back that one search may take; about a tenth of a second.
const BACKTRACKS_MAX: usize = 1_000_000;

/// Taking steps back is what costs.
const _: () = assert!(STEPPING_PATTERN_LEN_MAX < PATTERN_LEN_MAX);
const _: () = assert!(STEPPING_AUTOMATON_SIZE_MAX < AUTOMATON_SIZE_MAX);

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
    const CASES: i32 = CASE_INSENSITIVE | UNICODE_CASE | UNICODE_CHARACTER_CLASS;
    const LINES: i32 = UNIX_LINES | MULTILINE | DOTALL;
    const _: () = assert!(ALL == CASES | LINES | COMMENTS | LITERAL | CANON_EQ);
}

/// A compiled pattern of Java's language.
pub(crate) struct JavaRegex {
    regex: fancy_regex::Regex,
    steps_back: bool,
    /// For messages.
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
        let mut size_max = AUTOMATON_SIZE_MAX;
        if translated.steps_back {
            if pattern.len() > STEPPING_PATTERN_LEN_MAX {
                return Err(refuse(format!(
                    "with lookaround, backreferences or atomic groups {} bytes are over {STEPPING_PATTERN_LEN_MAX}",
                    pattern.len()
                )));
            }
            size_max = STEPPING_AUTOMATON_SIZE_MAX;
        }
        let regex = fancy_regex::RegexBuilder::new(&translated.pattern)
            .backtrack_limit(BACKTRACKS_MAX)
            .delegate_size_limit(size_max)
            .delegate_dfa_size_limit(size_max)
            .max_prog_size(STEPPING_PROGRAM_SIZE_MAX)
            .build()
            .map_err(|error| refuse(error.to_string()))?;
        Ok(JavaRegex { regex, steps_back: translated.steps_back, pattern: shown })
    }

    /// Whether the pattern matches some part of `text`.
    ///
    /// Errors (kind `Invalid`): the search took too many steps back, or might on so long a text.
    pub(crate) fn is_found_in(&self, text: &str) -> Result<bool> {
        let give_up =
            |why: String| Error::invalid(format!("pattern {:?} gave up on a value: {why}", self.pattern));
        if self.steps_back && text.len() > STEPPING_TEXT_LEN_MAX {
            return Err(give_up(format!("its {} bytes are over {STEPPING_TEXT_LEN_MAX}", text.len())));
        }
        self.regex.is_match(text).map_err(|error| give_up(error.to_string()))
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
