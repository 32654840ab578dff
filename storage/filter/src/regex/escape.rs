//! What a backslash begins: characters, predefined classes, properties, bounds and backreferences.

use super::class::{self, Refusal, Set};
use super::flags::CASE_INSENSITIVE;
use super::quote::Token;
use super::translate::{Ends, LINE_BREAK, Reader};

impl Reader<'_> {
    pub(super) fn escape(&mut self, before: Ends) -> Result<Ends, Refusal> {
        self.at += 1;
        let Some(Token { char, quoted: false }) = self.peek_token() else {
            return Err("a backslash stands at the end".to_string());
        };
        if let Some(set) = class::predefined(char, self.flags) {
            self.at += 1;
            return Ok(self.write_set(&set));
        }
        match char {
            'p' | 'P' => {
                let set = self.property()?;
                return Ok(self.write_set(&set));
            }
            '1'..='9' => return Ok(self.backreference()),
            'k' => return self.named_backreference(),
            _ => {}
        }
        let zero_width = match char {
            'A' | 'G' => "\\A",
            'z' => "\\z",
            'b' if self.peek_at(1) == Some('{') && self.peek_at(2) == Some('g') => {
                return Err("\\b{g} is not supported".to_string());
            }
            'b' | 'B' => {
                self.word_bounds = true;
                if char == 'b' { "\\b" } else { "\\B" }
            }
            'Z' => {
                self.at += 1;
                return Ok(self.dollar(before, false));
            }
            'R' => {
                self.at += 1;
                self.out.push_str(LINE_BREAK);
                return Ok(Ends { empty: false, carriage_return: true });
            }
            _ => {
                let char = self.escaped_char()?;
                return Ok(self.literal(char));
            }
        };
        self.at += 1;
        self.out.push_str(zero_width);
        Ok(Ends::NOTHING)
    }

    /// A backreference takes as many digits as there are groups so far.
    fn backreference(&mut self) -> Ends {
        let digit = |char: Option<char>| char.and_then(|char| char.to_digit(10)).map(|digit| digit as usize);
        let mut group = 0;
        while let Some(next) = digit(self.peek()) {
            let grown = group * 10 + next;
            if group > 0 && grown > self.groups {
                break;
            }
            group = grown;
            self.at += 1;
        }
        assert!(group > 0, "a backreference begins with 1 to 9: group 0 would be the match itself");
        if group > self.groups_total {
            self.out.push_str(class::NOTHING);
        } else {
            self.write_backreference(group);
        }
        Ends { empty: true, carriage_return: true }
    }

    fn named_backreference(&mut self) -> Result<Ends, Refusal> {
        self.at += 1;
        if !self.eat('<') {
            return Err("\\k is not followed by '<' for a named capturing group".to_string());
        }
        let name = self.group_name()?;
        let known = self.names.iter().find(|(known, _)| *known == name).map(|(_, group)| *group);
        let Some(group) = known else {
            return Err(format!("named capturing group {name} does not exist"));
        };
        self.write_backreference(group);
        Ok(Ends { empty: true, carriage_return: true })
    }

    fn write_backreference(&mut self, group: usize) {
        self.steps_back = true;
        self.referenced.insert(group);
        self.out.push_str(if self.has(CASE_INSENSITIVE) { "(?i:" } else { "(?:" });
        // Only groups that are referred to are written as such.
        let number = self.written.as_ref().map_or(group, |written| written.range(..=group).count());
        self.out.push_str(&format!("\\{number}"));
        self.out.push(')');
    }

    /// `\p{name}`, `\pL` and their negations; the backslash is behind.
    pub(super) fn property(&mut self) -> Result<Set, Refusal> {
        let negate = self.next("a property")? == 'P';
        let mut name = String::new();
        if self.eat('{') {
            loop {
                match self.next("a property")? {
                    '}' => break,
                    char => name.push(char),
                }
            }
        } else {
            name.push(self.next("a property")?);
        }
        let mut set = class::property(&name, self.flags)?;
        if negate {
            set.negate();
        }
        Ok(set)
    }

    /// An escape for one character; the backslash is behind.
    pub(super) fn escaped_char(&mut self) -> Result<char, Refusal> {
        let char = self.next("an escape")?;
        Ok(match char {
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'f' => '\u{c}',
            'a' => '\u{7}',
            'e' => '\u{1b}',
            'c' => {
                let control = u32::from(self.next("a control escape")?) ^ 64;
                char::from_u32(control).ok_or("illegal control escape sequence")?
            }
            '0' => self.octal()?,
            'x' => self.hexadecimal()?,
            'u' => self.utf16()?,
            char if char.is_ascii_alphanumeric() => {
                return Err(format!("illegal or unsupported escape sequence \\{char}"));
            }
            char => char,
        })
    }

    fn octal(&mut self) -> Result<char, Refusal> {
        let digit = |reader: &Self| reader.peek().and_then(|char| char.to_digit(8));
        let Some(first) = digit(self) else { return Err("illegal octal escape sequence".to_string()) };
        let mut number = first;
        self.at += 1;
        let more = if first <= 3 { 2 } else { 1 };
        for _ in 0..more {
            let Some(next) = digit(self) else { break };
            number = number * 8 + next;
            self.at += 1;
        }
        Ok(char::from_u32(number).expect("three octal digits"))
    }

    fn hexadecimal(&mut self) -> Result<char, Refusal> {
        let illegal = || "illegal hexadecimal escape sequence".to_string();
        if !self.eat('{') {
            return char::from_u32(self.hex_digits(2)?).ok_or_else(illegal);
        }
        let mut number = 0u32;
        let mut digits = 0;
        while !self.eat('}') {
            let digit = self.next("an escape")?.to_digit(16).ok_or_else(illegal)?;
            number = number.checked_mul(16).ok_or_else(illegal)? + digit;
            digits += 1;
        }
        if digits == 0 {
            return Err(illegal());
        }
        char::from_u32(number).ok_or_else(illegal)
    }

    /// `\uhhhh`; two of them may be the halves of one character.
    fn utf16(&mut self) -> Result<char, Refusal> {
        let first = self.hex_digits(4)? as u16;
        let mut units = vec![first];
        if (0xd800..0xdc00).contains(&first) && self.peek() == Some('\\') && self.peek_at(1) == Some('u') {
            self.at += 2;
            units.push(self.hex_digits(4)? as u16);
        }
        let text = String::from_utf16(&units).map_err(|_| "half a character in \\u".to_string())?;
        Ok(text.chars().next().expect("one character"))
    }

    fn hex_digits(&mut self, count: usize) -> Result<u32, Refusal> {
        let mut number = 0;
        for _ in 0..count {
            let digit =
                self.next("an escape")?.to_digit(16).ok_or("illegal Unicode or hexadecimal escape")?;
            number = number * 16 + digit;
        }
        Ok(number)
    }
}
