//! `[...]`: characters, ranges, classes inside classes, and intersections with `&&`.

use super::class::{self, Refusal, Set};
use super::quote::Token;
use super::translate::{DEPTH_MAX, Reader};

impl Reader<'_> {
    /// A class. With `bracketed` it is read from its `[` to behind its `]`; without, it is the right side of
    /// a `&&`, and its end is that of the class around it, which stays.
    pub(super) fn class(&mut self, bracketed: bool) -> Result<Set, Refusal> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} classes inside each other"));
        }
        self.at += usize::from(bracketed);
        let negate = bracketed && self.eat('^');
        let mut set: Option<Set> = None;
        let unite = |set: &mut Option<Set>, more: Set| match set {
            None => *set = Some(more),
            Some(set) => set.union(&more),
        };
        loop {
            self.skip_comments();
            match self.peek() {
                None if self.peek_token().is_none() => return Err("unclosed character class".to_string()),
                Some('[') => {
                    let inner = self.class(true)?;
                    unite(&mut set, inner);
                }
                Some('&') if self.peek_at(1) == Some('&') => {
                    self.at += 2;
                    let right = self.right_of_and()?;
                    match (&mut set, right) {
                        (None, None) => return Err("bad class syntax".to_string()),
                        (None, right) => set = right,
                        (Some(left), Some(right)) => left.intersect(&right),
                        (Some(_), None) => {}
                    }
                }
                Some(']') if set.is_some() => {
                    self.at += usize::from(bracketed);
                    break;
                }
                _ => {
                    let more = self.class_range()?;
                    unite(&mut set, more);
                }
            }
        }
        self.depth -= 1;
        let mut set = set.expect("the loop ends with a set");
        if negate {
            set.negate();
        }
        Ok(set)
    }

    fn right_of_and(&mut self) -> Result<Option<Set>, Refusal> {
        let mut right: Option<Set> = None;
        loop {
            self.skip_comments();
            let more = match self.peek() {
                Some(']' | '&') => return Ok(right),
                None if self.peek_token().is_none() => return Err("unclosed character class".to_string()),
                Some('[') => self.class(true)?,
                _ => self.class(false)?,
            };
            match &mut right {
                None => right = Some(more),
                Some(right) => right.union(&more),
            }
        }
    }

    /// One character, a range, or an escape that stands for a set.
    fn class_range(&mut self) -> Result<Set, Refusal> {
        let first = if self.peek() == Some('\\') {
            self.at += 1;
            let Some(Token { char, quoted: false }) = self.peek_token() else {
                return Err("a backslash stands at the end".to_string());
            };
            if let Some(set) = class::predefined(char, self.flags) {
                self.at += 1;
                return Ok(set);
            }
            if matches!(char, 'p' | 'P') {
                return self.property();
            }
            self.escaped_char()?
        } else {
            self.next("a class")?
        };
        self.skip_comments();
        let behind = self.tokens.get(self.at + 1);
        let ends_range = |token: &Token| token.quoted || !matches!(token.char, '[' | ']');
        if self.peek() != Some('-') || !behind.is_some_and(ends_range) {
            return Ok(class::folded_range(first, first, self.flags));
        }
        self.at += 1;
        self.skip_comments();
        let last = if self.eat('\\') { self.escaped_char()? } else { self.next("a class")? };
        if last < first {
            return Err("illegal character range".to_string());
        }
        Ok(class::folded_range(first, last, self.flags))
    }
}
