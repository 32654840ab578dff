//! Words, strings, numbers and signs of a command line.

use std::fmt;

use super::{ParseError, wrong};

/// A part of a command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Text(Vec<u8>),
    Word(String),
    Integer(i64),
    Float(f64),
    Comma,
    Arrow,
    Open(char),
    Close(char),
    /// The end of a line, or a semicolon.
    Separator,
    End,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Text(text) => write!(f, "'{}'", text.escape_ascii()),
            Token::Word(word) => write!(f, "{word}"),
            Token::Integer(number) => write!(f, "{number}"),
            Token::Float(number) => write!(f, "{number}"),
            Token::Comma => write!(f, ","),
            Token::Arrow => write!(f, "=>"),
            Token::Open(sign) | Token::Close(sign) => write!(f, "{sign}"),
            Token::Separator => write!(f, "the end of the line"),
            Token::End => write!(f, "the end"),
        }
    }
}

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

/// Whether a byte belongs to a word without quotes.
fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.:*?!/@+$%^|~<>&\\".contains(&byte) || byte >= 0x80
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, at: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a [u8] {
        &self.text.as_bytes()[self.at..]
    }

    fn skip_space(&mut self) {
        loop {
            match self.rest() {
                [b' ' | b'\t' | b'\r', ..] => self.at += 1,
                [b'\\', b'\n', ..] => self.at += 2,
                [b'\\', b'\r', b'\n', ..] => self.at += 3,
                [b'#', ..] => {
                    let line = self.rest().iter().position(|byte| *byte == b'\n');
                    self.at += line.unwrap_or(self.rest().len());
                }
                _ => return,
            }
        }
    }

    pub(super) fn next_token(&mut self) -> Result<(usize, Token), ParseError> {
        self.skip_space();
        let start = self.at;
        let (length, token) = match self.rest() {
            [] => (0, Token::End),
            [b'\\'] => return Err(ParseError::Incomplete),
            [b'\n' | b';', ..] => (1, Token::Separator),
            [b',', ..] => (1, Token::Comma),
            [b'=', b'>', ..] => (2, Token::Arrow),
            [sign @ (b'(' | b'[' | b'{'), ..] => (1, Token::Open(char::from(*sign))),
            [sign @ (b')' | b']' | b'}'), ..] => (1, Token::Close(char::from(*sign))),
            [b'\'', ..] => return self.single_quoted().map(|text| (start, Token::Text(text))),
            [b'"', ..] => return self.double_quoted().map(|text| (start, Token::Text(text))),
            [byte, ..] if is_in_word(*byte) => return Ok((start, self.word())),
            _ => {
                let sign = self.text[start..].chars().next().unwrap_or_default();
                return Err(wrong(start, format!("unexpected {}", sign.escape_default())));
            }
        };
        self.at += length;
        Ok((start, token))
    }

    fn word(&mut self) -> Token {
        let length = self.rest().iter().position(|byte| !is_in_word(*byte)).unwrap_or(self.rest().len());
        let word = &self.text[self.at..self.at + length];
        self.at += length;
        let digits = word.strip_prefix('-').unwrap_or(word);
        if digits.starts_with(|first: char| first.is_ascii_digit()) {
            let plain = word.replace('_', "");
            let is_number = plain.bytes().all(|byte| byte.is_ascii_digit() || b"-.eE+".contains(&byte));
            if let Ok(number) = plain.parse() {
                return Token::Integer(number);
            }
            if let (true, Ok(number)) = (is_number, plain.parse()) {
                return Token::Float(number);
            }
        }
        Token::Word(word.to_string())
    }

    /// Ruby's single quotes: only `\'` and `\\` are escapes.
    fn single_quoted(&mut self) -> Result<Vec<u8>, ParseError> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let length = match self.rest() {
                [] => return Err(ParseError::Incomplete),
                [b'\'', ..] => {
                    self.at += 1;
                    return Ok(text);
                }
                [b'\\', byte @ (b'\'' | b'\\'), ..] => {
                    text.push(*byte);
                    2
                }
                [byte, ..] => {
                    text.push(*byte);
                    1
                }
            };
            self.at += length;
        }
    }

    /// Ruby's double quotes, with escapes for any byte.
    fn double_quoted(&mut self) -> Result<Vec<u8>, ParseError> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            match self.rest() {
                [] | [b'\\'] => return Err(ParseError::Incomplete),
                [b'"', ..] => {
                    self.at += 1;
                    return Ok(text);
                }
                [b'\\', ..] => self.escape(&mut text)?,
                [byte, ..] => {
                    text.push(*byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), ParseError> {
        let start = self.at;
        let kind = self.rest()[1];
        self.at += 2;
        match kind {
            b'n' => text.push(b'\n'),
            b't' => text.push(b'\t'),
            b'r' => text.push(b'\r'),
            b's' => text.push(b' '),
            b'a' => text.push(7),
            b'b' => text.push(8),
            b'v' => text.push(11),
            b'f' => text.push(12),
            b'e' => text.push(27),
            b'x' => match self.digits(16, 2) {
                Some(byte) => text.push(byte as u8),
                None => return Err(wrong(start, "\\x needs hexadecimal digits")),
            },
            b'0'..=b'7' => {
                self.at -= 1;
                let byte = self.digits(8, 3).unwrap_or(0);
                text.push((byte & 0xff) as u8);
            }
            b'u' => {
                let in_braces = self.rest().first() == Some(&b'{');
                self.at += usize::from(in_braces);
                let number = self.digits(16, if in_braces { 6 } else { 4 });
                if in_braces && self.rest().first() == Some(&b'}') {
                    self.at += 1;
                }
                let character = number.and_then(char::from_u32);
                let character =
                    character.ok_or_else(|| wrong(start, "\\u needs the number of a character"))?;
                text.extend(character.encode_utf8(&mut [0; 4]).bytes());
            }
            other => text.push(other),
        }
        Ok(())
    }

    /// Up to `count` digits; `None` if there is none.
    fn digits(&mut self, base: u32, count: usize) -> Option<u32> {
        let mut number = None;
        for _ in 0..count {
            let Some(digit) = self.rest().first().and_then(|byte| char::from(*byte).to_digit(base)) else {
                break;
            };
            number = Some(number.unwrap_or(0) * base + digit);
            self.at += 1;
        }
        number
    }
}
