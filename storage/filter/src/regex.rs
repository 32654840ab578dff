//! Java's regular expressions (`java.util.regex.Pattern`) on `regex-automata` and `fancy-regex`.
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
//! patterns.
//!
//! What a search may cost at most:
//!
//! ```text
//! pattern                                    by               its text                   and
//! most                                       automaton.rs     any                        ends when it has made too many states
//! \b, \B                                     fancy-regex      text x states              -
//! lookaround, backreference, possessive      fancy-regex      text x text x states       BACKTRACKS_MAX
//! ```
//!
//! `fancy-regex` cannot be told to stop, so what it would take at worst has a limit. Building an automaton, and searching, is told of before
//! (`looks.rs`).

mod automaton;
mod bracket;
mod class;
mod escape;
mod outline;
mod quote;
mod translate;

use halcyon_cell::{Error, Result};

use self::automaton::{Automaton, Failed, GaveUp};
use self::outline::{Outline, outline};
use self::translate::Translation;
use crate::looks;

/// Longest pattern, in bytes.
const PATTERN_LEN_MAX: usize = 256 << 10;
/// Size of a compiled automaton, in bytes.
const AUTOMATON_SIZE_MAX: usize = 8 << 20;
/// An automaton of this size is built by whatever thread has the time to read its pattern; what needs more is told of.
const AUTOMATON_SIZE_SMALL: usize = 64 << 10;
/// Bytes of a pattern whose reading costs a look, and of an automaton whose building does.
const PATTERN_BYTES_OF_A_LOOK: usize = 4;
const AUTOMATON_BYTES_OF_A_LOOK: usize = 16;
/// What any pattern costs beside that.
const LOOKS_OF_A_PATTERN: usize = 100;
/// Steps from a state to another one that cost a look.
const STEPS_OF_A_LOOK: usize = 1 << 10;

// Of patterns that `fancy-regex` searches for. It cuts those that take steps back into parts with instructions between them.
/// What such an expression takes beside its automatons, about.
const EXPRESSION_BYTES: usize = 16 << 10;
/// What each part takes beside its automaton: an engine with its cache, about.
const PART_BYTES: usize = 32 << 10;
/// Size of the cache of a part, at most, unless its automaton is larger.
const PART_CACHE_BYTES: usize = 64 << 10;
/// The automaton of a part exists for both directions, and another engine has places for each state where the cache does not suffice.
const AUTOMATON_FACTOR: usize = 6;
/// What an instruction and a state of it takes for each byte of the pattern.
const INSTRUCTIONS_FACTOR: usize = 8;
/// Steps from a state to another one in a search that looks for bounds of words. One or two seconds at worst: five were seen on a
/// machine with six times as much to do as it could.
const WORD_STEPS_MAX: u64 = 1 << 29;
/// Longest pattern that takes steps back, in bytes.
const STEPPING_PATTERN_LEN_MAX: usize = 8 << 10;
/// Size of its automatons, in bytes.
const STEPPING_AUTOMATON_SIZE_MAX: usize = 512 << 10;
/// Its instructions.
const STEPPING_PROGRAM_SIZE_MAX: usize = 50_000;
/// Longest text for it, in bytes.
const STEPPING_TEXT_LEN_MAX: usize = 128 << 10;
/// An automaton may be asked at each character, and walk over what is left of the text: its steps. Some ten seconds at worst, and a small
/// part of that for most patterns. One that is asked again and again on the way from each character may take as many times as long as
/// [`BACKTRACKS_MAX`] allows.
const STEPPING_STEPS_MAX: u64 = 1 << 34;
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
    engine: Engine,
    /// Of its automaton, or of those of its parts together.
    states_count: usize,
    held_bytes: usize,
    /// For messages.
    pattern: String,
}

enum Engine {
    Automaton(Box<Automaton>),
    /// A pattern that looks for bounds of words.
    Words(fancy_regex::Regex),
    /// A pattern that takes steps back.
    Stepping(fancy_regex::Regex),
}

impl JavaRegex {
    /// Errors (kind `Invalid`): the pattern is not one of Java's, is not supported, or takes more than `left` bytes or than one may.
    /// The message names it. Other kinds: as [`looks::spend`].
    pub(crate) fn within(pattern: &str, flags: i32, left: usize) -> Result<JavaRegex> {
        let shown = abbreviate(pattern);
        let refuse = |why: String| refusal(&shown, &why);
        let translated = read(pattern, flags)?;
        let steps_back = translated.steps_back;
        looks::spend(translated.pattern.len() / PATTERN_BYTES_OF_A_LOOK)?;
        let Outline { pattern: outlined, parts_count } = outline(&translated.pattern);
        let parsed = automaton::parse(&outlined).map_err(refuse)?;
        drop(outlined);
        let size_max = if steps_back { STEPPING_AUTOMATON_SIZE_MAX } else { AUTOMATON_SIZE_MAX };
        let mut built = automaton::build(&parsed, AUTOMATON_SIZE_SMALL.min(size_max).min(left));
        if matches!(built, Err(Failed::TooLarge)) && left > AUTOMATON_SIZE_SMALL {
            looks::spend(size_max.min(left) / AUTOMATON_BYTES_OF_A_LOOK)?;
            built = automaton::build(&parsed, size_max.min(left));
        }
        drop(parsed);
        let too_large = || {
            refuse(format!(
                "{left} bytes are left for the expressions of its filter, or of all conditions together"
            ))
        };
        let nfa = built.map_err(|failed| match failed {
            Failed::TooLarge if left < size_max => too_large(),
            Failed::TooLarge => refuse(format!("its automaton takes more than {size_max} bytes")),
            Failed::Refused(why) => refuse(why),
        })?;
        let (states_count, nfa_bytes) = (nfa.states().len(), nfa.memory_usage());
        looks::spend(nfa_bytes / AUTOMATON_BYTES_OF_A_LOOK)?;
        let (engine, engine_bytes) = if steps_back || translated.word_bounds {
            let parts_bytes =
                parts_count * PART_BYTES + nfa_bytes * (AUTOMATON_FACTOR + 2 * translated.groups_count);
            let bytes = EXPRESSION_BYTES + translated.pattern.len() * INSTRUCTIONS_FACTOR + parts_bytes;
            if bytes > left {
                return Err(too_large());
            }
            looks::spend(
                parts_count * LOOKS_OF_A_PATTERN + AUTOMATON_FACTOR * nfa_bytes / AUTOMATON_BYTES_OF_A_LOOK,
            )?;
            let regex = build_stepping(&translated.pattern, size_max, nfa_bytes).map_err(refuse)?;
            (if steps_back { Engine::Stepping(regex) } else { Engine::Words(regex) }, bytes)
        } else {
            let automaton = Automaton::new(nfa).map_err(refuse)?;
            let bytes = automaton.held_bytes();
            (Engine::Automaton(Box::new(automaton)), bytes)
        };
        let held_bytes = engine_bytes + size_of::<JavaRegex>() + shown.len();
        if held_bytes > left {
            return Err(too_large());
        }
        Ok(JavaRegex { engine, states_count, held_bytes, pattern: shown })
    }

    /// Errors: as [`JavaRegex::within`], but no automaton is built that could turn out to be too large.
    pub(crate) fn check(pattern: &str, flags: i32) -> Result<()> {
        read(pattern, flags).map(|_| ())
    }

    /// What it takes in memory at most, with its caches.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// As [`crate::Filter::cost`], for a short text. One search with steps back may take a tenth of a second.
    pub(crate) fn cost(&self) -> u32 {
        match self.engine {
            Engine::Automaton(_) => 1 << 4,
            Engine::Words(_) => 1 << 5,
            Engine::Stepping(_) => 1 << 16,
        }
    }

    /// Whether the pattern matches some part of `text`.
    ///
    /// Errors (kind `Invalid`): the search took too many steps, or might on so long a text. Other kinds: as [`looks::spend`].
    pub(crate) fn is_found_in(&self, text: &str) -> Result<bool> {
        let give_up =
            |why: String| Error::invalid(format!("pattern {:?} gave up on a value: {why}", self.pattern));
        let too_long = |len_max: usize| give_up(format!("its {} bytes are over {len_max}", text.len()));
        looks::spend(text.len().saturating_mul(self.states_count) / STEPS_OF_A_LOOK)?;
        let (len, states) = (text.len() as u64, self.states_count as u64);
        let regex = match &self.engine {
            Engine::Automaton(automaton) => {
                return automaton.is_found_in(text).map_err(|GaveUp| {
                    give_up(format!("its {} bytes lead through too many states", text.len()))
                });
            }
            Engine::Words(regex) => {
                let len_max = WORD_STEPS_MAX / states.max(1);
                if len > len_max {
                    return Err(too_long(len_max as usize));
                }
                regex
            }
            Engine::Stepping(regex) => {
                let len_max = (STEPPING_STEPS_MAX / states.max(1)).isqrt().min(STEPPING_TEXT_LEN_MAX as u64);
                if len > len_max {
                    return Err(too_long(len_max as usize));
                }
                regex
            }
        };
        regex.is_match(text).map_err(|error| give_up(error.to_string()))
    }
}

fn refusal(shown: &str, why: &str) -> Error {
    Error::invalid(format!("pattern {shown:?} is refused: {why}"))
}

/// Reads a pattern and translates it. Errors: as [`JavaRegex::within`].
fn read(pattern: &str, flags: i32) -> Result<Translation> {
    let refuse = |why: String| refusal(&abbreviate(pattern), &why);
    if flags & !flags::ALL != 0 {
        return Err(refuse(format!("unknown flag {:#x}", flags & !flags::ALL)));
    }
    if pattern.len() > PATTERN_LEN_MAX {
        return Err(refuse(format!("its {} bytes are over {PATTERN_LEN_MAX}", pattern.len())));
    }
    looks::spend(LOOKS_OF_A_PATTERN + pattern.len() / PATTERN_BYTES_OF_A_LOOK)?;
    let translated = translate::translate(pattern, flags).map_err(refuse)?;
    if translated.steps_back && pattern.len() > STEPPING_PATTERN_LEN_MAX {
        return Err(refuse(format!(
            "with lookaround, backreferences or atomic groups {} bytes are over {STEPPING_PATTERN_LEN_MAX}",
            pattern.len()
        )));
    }
    Ok(translated)
}

fn build_stepping(
    translated: &str,
    size_max: usize,
    nfa_bytes: usize,
) -> std::result::Result<fancy_regex::Regex, class::Refusal> {
    let built = fancy_regex::RegexBuilder::new(translated)
        .backtrack_limit(BACKTRACKS_MAX)
        .delegate_size_limit(size_max)
        .delegate_dfa_size_limit(nfa_bytes.max(PART_CACHE_BYTES))
        .max_prog_size(STEPPING_PROGRAM_SIZE_MAX)
        .build();
    built.map_err(|error| error.to_string())
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
