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
/// Sizes of a compiled automaton, in bytes: the smallest one that suffices is what it counts. There are two of them, one for each direction.
const AUTOMATON_SIZES: [usize; 4] = [16 << 10, 128 << 10, 1 << 20, AUTOMATON_SIZE_MAX];
const AUTOMATON_SIZE_MAX: usize = 8 << 20;
/// Size of the cache of each while it runs, at least.
const CACHE_SIZE_MIN: usize = 256 << 10;
/// What an expression takes beside its automatons, about.
const EXPRESSION_BYTES: usize = 16 << 10;

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
    held_bytes: usize,
    /// For messages.
    pattern: String,
}

impl JavaRegex {
    /// Errors (kind `Invalid`): the pattern is not one of Java's, is not supported, or takes more than `left` bytes or than one may.
    /// The message names it.
    pub(crate) fn within(pattern: &str, flags: i32, left: usize) -> Result<JavaRegex> {
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
        let too_large = || refuse(format!("{left} bytes are left for the expressions of its filter"));
        let mut refused = too_large();
        for size in AUTOMATON_SIZES.map(|size| size.min(size_max)) {
            let held_bytes = EXPRESSION_BYTES + 2 * size;
            if held_bytes > left {
                return Err(too_large());
            }
            let built = fancy_regex::RegexBuilder::new(&translated.pattern)
                .backtrack_limit(BACKTRACKS_MAX)
                .delegate_size_limit(size)
                .delegate_dfa_size_limit(size.max(CACHE_SIZE_MIN))
                .max_prog_size(STEPPING_PROGRAM_SIZE_MAX)
                .build();
            match built {
                Ok(regex) => {
                    let steps_back = translated.steps_back;
                    return Ok(JavaRegex { regex, steps_back, held_bytes, pattern: shown });
                }
                Err(error) => refused = refuse(error.to_string()),
            }
        }
        Err(refused)
    }

    /// What it takes in memory at most, its caches left out.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// As [`crate::Filter::cost`]. One search with steps back may take a tenth of a second.
    pub(crate) fn cost(&self) -> u32 {
        if self.steps_back { 1 << 16 } else { 1 << 5 }
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
