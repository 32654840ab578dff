//! Reads a pattern of Java and writes the same for `fancy-regex`.
//!
//! The reader goes through the pattern by recursive descent: alternatives, pieces of a sequence, an
//! atom and its quantifier. Each writes its translation to one string. Flags are state of the reader, since
//! `(?i)` holds to the end of its group; the translation holds no flags but `(?i:...)` around single atoms.
//!
//! For `$` at the end of a pattern there is a short form that needs no lookahead and so keeps the search
//! linear. It may eat the line end, which is unseen by a search that only asks whether there is a match. It
//! would also match between `\r` and `\n`, where `$` does not; so each piece tells whether it can end there.

use std::collections::BTreeSet;

use super::class::{self, Refusal, Set};
use super::flags::*;
use super::quote::{Token, unquote};

/// Groups and classes inside each other. `fancy-regex` has a limit near this one.
pub(super) const DEPTH_MAX: usize = 50;
/// Length of a translation, in bytes. One `\pL` takes some thousands.
const TRANSLATION_LEN_MAX: usize = 4 << 20;

/// What `\R` becomes.
pub(super) const LINE_BREAK: &str = "(?:\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])";

/// A pattern in the language of `fancy-regex`.
pub(super) struct Translation {
    pub(super) pattern: String,
    /// Whether the search may have to take steps back: the pattern looks around, refers back or is atomic.
    pub(super) steps_back: bool,
    /// Whether it looks for bounds of words, which are those of all letters of Unicode.
    pub(super) word_bounds: bool,
    /// Groups whose text it refers back to.
    pub(super) groups_count: usize,
}

/// Translates `pattern`; the error says why it is refused.
pub(super) fn translate(pattern: &str, flags: i32) -> Result<Translation, Refusal> {
    if flags & CANON_EQ != 0 && !pattern.is_ascii() {
        return Err("CANON_EQ is not supported outside ASCII".to_string());
    }
    let flags = if flags & UNICODE_CHARACTER_CLASS != 0 { flags | UNICODE_CASE } else { flags };
    let tokens = if flags & LITERAL != 0 {
        pattern.chars().map(|char| Token { char, quoted: true }).collect()
    } else {
        unquote(pattern)
    };
    // A backreference to a group that the pattern does not have never matches, so they are counted first. A group that
    // nothing refers to is written without its number: for each of the others a search keeps two places per state.
    let mut counter = Reader::new(&tokens, flags, usize::MAX);
    counter.read_all()?;
    let mut reader = Reader::new(&tokens, flags, counter.groups);
    reader.written = Some(counter.referenced.range(..=counter.groups).copied().collect());
    reader.read_all()?;
    assert_eq!(
        reader.groups, counter.groups,
        "both readings find the same groups, or a backreference would mean another one"
    );
    Ok(Translation {
        pattern: reader.out,
        steps_back: reader.steps_back,
        word_bounds: reader.word_bounds,
        groups_count: reader.written.map_or(0, |written| written.len()),
    })
}

/// What is known of a translated piece.
#[derive(Clone, Copy)]
pub(super) struct Ends {
    /// It may match nothing.
    pub(super) empty: bool,
    /// Its last character may be a carriage return.
    pub(super) carriage_return: bool,
}

impl Ends {
    pub(super) const NOTHING: Ends = Ends { empty: true, carriage_return: false };

    fn of_set(set: &Set) -> Ends {
        Ends { empty: false, carriage_return: class::contains(set, '\r') }
    }

    fn then(self, next: Ends) -> Ends {
        Ends {
            empty: self.empty && next.empty,
            carriage_return: next.carriage_return || (next.empty && self.carriage_return),
        }
    }

    fn or(self, other: Ends) -> Ends {
        Ends {
            empty: self.empty || other.empty,
            carriage_return: self.carriage_return || other.carriage_return,
        }
    }
}

pub(super) struct Reader<'a> {
    pub(super) tokens: &'a [Token],
    pub(super) at: usize,
    pub(super) flags: i32,
    pub(super) depth: usize,
    /// Capturing groups opened so far.
    pub(super) groups: usize,
    /// Capturing groups of the whole pattern.
    pub(super) groups_total: usize,
    /// Of groups, with their numbers.
    pub(super) names: Vec<(String, usize)>,
    /// Groups that a backreference was to.
    pub(super) referenced: BTreeSet<usize>,
    /// Groups that are written with a number; `None`: all.
    pub(super) written: Option<BTreeSet<usize>>,
    pub(super) steps_back: bool,
    pub(super) word_bounds: bool,
    pub(super) out: String,
}

impl<'a> Reader<'a> {
    fn new(tokens: &'a [Token], flags: i32, groups_total: usize) -> Reader<'a> {
        Reader {
            tokens,
            at: 0,
            flags,
            depth: 0,
            groups: 0,
            groups_total,
            names: Vec::new(),
            referenced: BTreeSet::new(),
            written: None,
            steps_back: false,
            word_bounds: false,
            out: String::new(),
        }
    }

    pub(super) fn has(&self, flag: i32) -> bool {
        self.flags & flag != 0
    }

    fn read_all(&mut self) -> Result<(), Refusal> {
        self.alternatives()?;
        if self.at < self.tokens.len() {
            return Err("unmatched closing )".to_string());
        }
        assert_eq!(
            self.depth, 0,
            "each group and class that was opened is closed: `$` at the end is outside of all"
        );
        Ok(())
    }

    // ---- tokens ----

    pub(super) fn peek_token(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    /// The next character, if it has its meaning.
    pub(super) fn peek(&self) -> Option<char> {
        self.peek_token().filter(|token| !token.quoted).map(|token| token.char)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<char> {
        self.tokens.get(self.at + ahead).filter(|token| !token.quoted).map(|token| token.char)
    }

    pub(super) fn eat(&mut self, char: char) -> bool {
        let is_next = self.peek() == Some(char);
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn next(&mut self, of: &str) -> Result<char, Refusal> {
        let token = self.peek_token().ok_or_else(|| format!("it ends in the middle of {of}"))?;
        self.at += 1;
        Ok(token.char)
    }

    /// In comments mode, goes over white space and comments.
    pub(super) fn skip_comments(&mut self) {
        while self.has(COMMENTS) {
            match self.peek() {
                Some(' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r') => self.at += 1,
                Some('#') => {
                    let ends = class::line_ends(self.flags);
                    while let Some(token) = self.peek_token() {
                        self.at += 1;
                        if class::contains(&ends, token.char) {
                            break;
                        }
                    }
                }
                _ => return,
            }
        }
    }

    // ---- sequences ----

    fn alternatives(&mut self) -> Result<Ends, Refusal> {
        let mut ends = self.sequence()?;
        while self.eat('|') {
            self.out.push('|');
            ends = ends.or(self.sequence()?);
        }
        Ok(ends)
    }

    fn sequence(&mut self) -> Result<Ends, Refusal> {
        let mut ends = Ends::NOTHING;
        loop {
            self.skip_comments();
            match self.peek() {
                None if self.peek_token().is_none() => return Ok(ends),
                Some('|' | ')') => return Ok(ends),
                _ => ends = ends.then(self.piece(ends)?),
            }
        }
    }

    /// One atom with its quantifier. `before` is what stands before it in its sequence.
    fn piece(&mut self, before: Ends) -> Result<Ends, Refusal> {
        let start = self.out.len();
        if start > TRANSLATION_LEN_MAX {
            return Err("its classes and repetitions are too many".to_string());
        }
        let mut ends = self.atom(before)?;
        self.skip_comments();
        let Some((quantifier, may_be_none)) = self.quantifier()? else { return Ok(ends) };
        ends.empty |= may_be_none;
        if self.out.len() == start {
            return Err("a quantifier behind flags".to_string());
        }
        let look_around =
            ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|open| self.out[start..].starts_with(open));
        if self.out[start..] == *LINE_BREAK {
            // Java gives no half of \r\n back once it repeats line breaks.
            self.steps_back = true;
            self.out.replace_range(start..start + 3, "(?>");
        }
        // A group of its own keeps the quantifier off neighbours and other quantifiers.
        self.out.insert_str(start, "(?:");
        if look_around {
            // Looking once is looking often, and `fancy-regex` repeats no look.
            self.out.push_str(if may_be_none { "|)" } else { ")" });
        } else {
            self.out.push(')');
            self.out.push_str(&quantifier);
        }
        if self.eat('?') {
            self.out.push_str(if look_around { "" } else { "?" });
        } else if self.eat('+') {
            self.steps_back = true;
            self.out.insert_str(start, "(?>");
            self.out.push(')');
        }
        self.skip_comments();
        match self.peek() {
            // Java takes a second {n}, but what it does with it is not what it says.
            Some(char @ ('*' | '+' | '?' | '{')) => Err(format!("dangling meta character {char}")),
            _ => Ok(ends),
        }
    }

    /// A quantifier without its mode, and whether it allows no repetition at all.
    fn quantifier(&mut self) -> Result<Option<(String, bool)>, Refusal> {
        let simple = match self.peek() {
            Some('*') => ("*", true),
            Some('+') => ("+", false),
            Some('?') => ("?", true),
            Some('{') => return self.counted().map(Some),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some((simple.0.to_string(), simple.1)))
    }

    fn counted(&mut self) -> Result<(String, bool), Refusal> {
        self.at += 1;
        let Some(least) = self.number()? else { return Err("illegal repetition".to_string()) };
        let mut text = format!("{{{least}");
        if self.eat(',') {
            text.push(',');
            if let Some(most) = self.number()? {
                if most < least {
                    return Err("illegal repetition range".to_string());
                }
                text.push_str(&most.to_string());
            }
        }
        if !self.eat('}') {
            return Err("unclosed counted closure".to_string());
        }
        text.push('}');
        Ok((text, least == 0))
    }

    fn number(&mut self) -> Result<Option<u32>, Refusal> {
        let mut number = None;
        while let Some(digit) = self.peek().and_then(|char| char.to_digit(10)) {
            self.at += 1;
            let grown = number.unwrap_or(0u32).checked_mul(10).and_then(|number| number.checked_add(digit));
            let grown = grown.filter(|&number| number <= i32::MAX as u32);
            number = Some(grown.ok_or("illegal repetition range")?);
        }
        Ok(number)
    }

    // ---- atoms ----

    fn atom(&mut self, before: Ends) -> Result<Ends, Refusal> {
        let token = self.peek_token().expect("the sequence has looked");
        if token.quoted {
            self.at += 1;
            return Ok(self.literal(token.char));
        }
        match token.char {
            '(' => return self.group(),
            '[' => {
                let set = self.class(true)?;
                return Ok(self.write_set(&set));
            }
            '\\' => return self.escape(before),
            '*' | '+' | '?' => return Err(format!("dangling meta character {}", token.char)),
            '{' => return Err("illegal repetition".to_string()),
            _ => self.at += 1,
        }
        Ok(match token.char {
            '.' => self.dot(),
            '^' => self.caret(),
            '$' => self.dollar(before, self.has(MULTILINE)),
            char => self.literal(char),
        })
    }

    pub(super) fn literal(&mut self, char: char) -> Ends {
        if self.has(CASE_INSENSITIVE) && (char.is_ascii_alphabetic() || self.has(UNICODE_CASE)) {
            let set = class::folded_range(char, char, self.flags);
            return self.write_set(&set);
        }
        class::write_char(char, &mut self.out);
        Ends { empty: false, carriage_return: char == '\r' }
    }

    pub(super) fn write_set(&mut self, set: &Set) -> Ends {
        class::write(set, &mut self.out);
        Ends::of_set(set)
    }

    fn dot(&mut self) -> Ends {
        let mut set = class::range('\0', char::MAX);
        if !self.has(DOTALL) {
            set.difference(&class::line_ends(self.flags));
        }
        self.write_set(&set)
    }

    fn caret(&mut self) -> Ends {
        self.steps_back |= self.has(MULTILINE);
        // In lines `^` matches behind a line end, but neither inside of \r\n nor at the end of the text.
        self.out.push_str(match (self.has(MULTILINE), self.has(UNIX_LINES)) {
            (false, _) => "\\A",
            (true, true) => "(?:(?:\\A|(?<=\\n))(?!\\z))",
            (true, false) => "(?:(?:\\A|(?<=[\\n\\x{85}\\x{2028}\\x{2029}])|(?<=\\r)(?!\\n))(?!\\z))",
        });
        Ends::NOTHING
    }

    pub(super) fn dollar(&mut self, before: Ends, lines: bool) -> Ends {
        let unix = self.has(UNIX_LINES);
        let is_last = self.depth == 0 && matches!(self.peek_behind_comments(), None | Some('|'));
        if !lines && is_last && (unix || !before.carriage_return) {
            let end = "(?:\\r\\n|[\\n\\r\\x{85}\\x{2028}\\x{2029}])?\\z";
            self.out.push_str(if unix { "\\n?\\z" } else { end });
            return Ends::NOTHING;
        }
        self.steps_back = true;
        self.out.push_str(match (lines, unix) {
            (false, true) => "(?=\\n?\\z)",
            (false, false) => "(?=\\r\\n\\z|(?<!\\r)\\n\\z|[\\r\\x{85}\\x{2028}\\x{2029}]\\z|\\z)",
            (true, true) => "(?=\\n|\\z)",
            (true, false) => "(?=\\r|(?<!\\r)\\n|[\\x{85}\\x{2028}\\x{2029}]|\\z)",
        });
        Ends::NOTHING
    }

    /// `None` at the end of the pattern.
    fn peek_behind_comments(&mut self) -> Option<char> {
        let at = self.at;
        self.skip_comments();
        let token = self.peek_token().map(|token| if token.quoted { 'Q' } else { token.char });
        self.at = at;
        token
    }

    // ---- groups ----

    fn group(&mut self) -> Result<Ends, Refusal> {
        self.at += 1;
        let outer_flags = self.flags;
        let mut look_around = false;
        let mut look_behind = false;
        if self.eat('?') {
            match self.next("a group")? {
                ':' => self.out.push_str("(?:"),
                '>' => {
                    self.steps_back = true;
                    self.out.push_str("(?>");
                }
                char @ ('=' | '!') => {
                    look_around = true;
                    self.out.push_str("(?");
                    self.out.push(char);
                }
                '<' => match self.peek() {
                    Some(char @ ('=' | '!')) => {
                        self.at += 1;
                        (look_around, look_behind) = (true, true);
                        self.out.push_str("(?<");
                        self.out.push(char);
                    }
                    _ => self.open_named()?,
                },
                _ => {
                    self.at -= 1;
                    if !self.inline_flags()? {
                        return Ok(Ends::NOTHING);
                    }
                    self.out.push_str("(?:");
                }
            }
        } else {
            self.open_group();
        }
        self.steps_back |= look_around;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} groups inside each other"));
        }
        let ends = self.alternatives()?;
        self.depth -= 1;
        self.flags = outer_flags;
        if !self.eat(')') {
            return Err("unclosed group".to_string());
        }
        self.out.push(')');
        Ok(if look_around { Ends { empty: true, carriage_return: look_behind } } else { ends })
    }

    fn open_group(&mut self) {
        self.groups += 1;
        let is_written = self.written.as_ref().is_none_or(|written| written.contains(&self.groups));
        self.out.push_str(if is_written { "(" } else { "(?:" });
    }

    fn open_named(&mut self) -> Result<(), Refusal> {
        let name = self.group_name()?;
        if self.names.iter().any(|(known, _)| *known == name) {
            return Err(format!("named capturing group {name} is already defined"));
        }
        self.open_group();
        self.names.push((name, self.groups));
        Ok(())
    }

    /// A name up to its `>`.
    pub(super) fn group_name(&mut self) -> Result<String, Refusal> {
        let mut name = String::new();
        loop {
            match self.next("a group name")? {
                '>' if !name.is_empty() => return Ok(name),
                char if char.is_ascii_alphabetic() => name.push(char),
                char if char.is_ascii_digit() && !name.is_empty() => name.push(char),
                _ => {
                    return Err(
                        "a group name starts with a letter and goes on with letters and digits".into()
                    );
                }
            }
        }
    }

    /// The flags behind `(?`; whether a group follows, to whose end they hold.
    fn inline_flags(&mut self) -> Result<bool, Refusal> {
        let mut on = true;
        loop {
            let flag = match self.next("a group")? {
                'i' => CASE_INSENSITIVE,
                'm' => MULTILINE,
                's' => DOTALL,
                'd' => UNIX_LINES,
                'u' => UNICODE_CASE,
                'c' => CANON_EQ,
                'x' => COMMENTS,
                'U' => UNICODE_CHARACTER_CLASS | UNICODE_CASE,
                '-' if on => {
                    on = false;
                    continue;
                }
                ':' => return Ok(true),
                ')' => return Ok(false),
                char => return Err(format!("unknown inline modifier {char:?}")),
            };
            if on {
                self.flags |= flag;
            } else {
                self.flags &= !flag;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_patterns_need_no_lookahead() {
        let steps_back = |pattern| translate(pattern, DOTALL).unwrap().steps_back;
        assert!(!steps_back("^ab$"));
        assert!(!steps_back("^ab$|c[0-9]*$"));
        assert!(steps_back("(ab$)"));
        assert!(steps_back("ab$c"));
        assert!(steps_back(r"\s$"));
    }
}
