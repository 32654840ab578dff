//! Command lines: the part of HBase's shell syntax that people type.
//!
//! ```text
//! line      = [command {";" command}]
//! command   = name [arguments] | name "(" [arguments] ")"
//! arguments = argument {"," argument}
//! argument  = value | key "=>" value             pairs at the end are one map
//! value     = 'text' | "text\x00" | word | 12 | 1.5 | true | false | nil | "[" ... "]" | "{" key "=>" value, ... "}"
//! ```
//!
//! `#` begins a comment. A command goes on in the next line behind a comma, a backslash, `=>`, and inside brackets.

mod lexer;
#[cfg(test)]
mod tests;

use lexer::{Lexer, Token};

use crate::value::{Map, Value};

/// Brackets inside each other.
const DEPTH_MAX: usize = 50;

/// One command.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// Its name.
    pub name: String,
    /// Its arguments. Pairs without braces are one map at the end.
    pub arguments: Vec<Value>,
}

/// Why text is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The text may become one with more lines.
    Incomplete,
    /// The text cannot become one.
    Wrong {
        /// Byte at which it went wrong.
        at: usize,
        /// What was expected.
        message: String,
    },
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ParseError::Incomplete => write!(f, "the command is incomplete"),
            ParseError::Wrong { at, message } => write!(f, "at character {}: {message}", at + 1),
        }
    }
}

/// Reads the commands of a text.
pub fn parse(text: &str) -> Result<Vec<Command>, ParseError> {
    let mut parser = Parser { lexer: Lexer::new(text), next: None, depth: 0 };
    let mut commands = Vec::new();
    loop {
        match parser.take()? {
            (_, Token::End) => return Ok(commands),
            (_, Token::Separator) => {}
            (_, Token::Word(name)) => commands.push(parser.command(name)?),
            (at, token) => return Err(wrong(at, format!("expected a command, found {token}"))),
        }
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    next: Option<(usize, Token)>,
    depth: usize,
}

fn wrong(at: usize, message: impl Into<String>) -> ParseError {
    ParseError::Wrong { at, message: message.into() }
}

impl Parser<'_> {
    fn take(&mut self) -> Result<(usize, Token), ParseError> {
        match self.next.take() {
            Some(token) => Ok(token),
            None => self.lexer.next_token(),
        }
    }

    fn peek(&mut self) -> Result<&Token, ParseError> {
        let token = self.take()?;
        Ok(&self.next.insert(token).1)
    }

    fn skip_lines(&mut self) -> Result<(), ParseError> {
        while matches!(self.peek()?, Token::Separator) {
            // a semicolon inside brackets is found where a value is expected
            self.take()?;
        }
        Ok(())
    }

    fn command(&mut self, name: String) -> Result<Command, ParseError> {
        let in_parentheses = matches!(self.peek()?, Token::Open('('));
        if in_parentheses {
            self.take()?;
        }
        let arguments = self.arguments(in_parentheses)?;
        if in_parentheses {
            match self.take()? {
                (_, Token::Close(')')) => {}
                (_, Token::End) => return Err(ParseError::Incomplete),
                (at, token) => return Err(wrong(at, format!("expected , or ), found {token}"))),
            }
        }
        match self.take()? {
            (_, Token::Separator | Token::End) => Ok(Command { name, arguments }),
            (at, token) => Err(wrong(at, format!("expected , or the end of the command, found {token}"))),
        }
    }

    fn arguments(&mut self, in_parentheses: bool) -> Result<Vec<Value>, ParseError> {
        let (mut arguments, mut pairs) = (Vec::new(), Map::default());
        loop {
            if in_parentheses {
                self.skip_lines()?;
            }
            match self.peek()? {
                Token::End | Token::Separator | Token::Close(')')
                    if arguments.is_empty() && pairs.0.is_empty() =>
                {
                    break;
                }
                Token::End => return Err(ParseError::Incomplete),
                _ => {}
            }
            let value = self.value()?;
            if matches!(self.peek()?, Token::Arrow) {
                let key = self.key(value)?;
                pairs.0.push((key, self.behind_arrow()?));
            } else {
                arguments.push(value);
            }
            if in_parentheses {
                self.skip_lines()?;
            }
            if !matches!(self.peek()?, Token::Comma) {
                break;
            }
            self.take()?;
            // a comma at the end of a line: the command goes on
            self.skip_lines()?;
        }
        if !pairs.0.is_empty() {
            arguments.push(Value::Map(pairs));
        }
        Ok(arguments)
    }

    fn key(&mut self, value: Value) -> Result<String, ParseError> {
        let at = self.lexer.position();
        value.text().map_err(|_| wrong(at, "expected a name before =>"))
    }

    fn behind_arrow(&mut self) -> Result<Value, ParseError> {
        self.take()?;
        self.skip_lines()?;
        self.value()
    }

    fn value(&mut self) -> Result<Value, ParseError> {
        let (at, token) = self.take()?;
        Ok(match token {
            Token::Text(text) => Value::Text(text),
            Token::Integer(number) => Value::Integer(number),
            Token::Float(number) => Value::Float(number),
            Token::Word(word) => match word.as_str() {
                "true" => Value::Flag(true),
                "false" => Value::Flag(false),
                "nil" => Value::Nil,
                _ => Value::Word(word),
            },
            Token::Open(open @ ('[' | '{')) => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err(wrong(at, "too many brackets inside each other"));
                }
                let value = if open == '[' { self.list()? } else { self.map()? };
                self.depth -= 1;
                value
            }
            Token::End => return Err(ParseError::Incomplete),
            token => return Err(wrong(at, format!("expected a value, found {token}"))),
        })
    }

    fn list(&mut self) -> Result<Value, ParseError> {
        let mut values = Vec::new();
        loop {
            self.skip_lines()?;
            if matches!(self.peek()?, Token::Close(']')) {
                self.take()?;
                return Ok(Value::List(values));
            }
            values.push(self.value()?);
            self.comma_before(']')?;
        }
    }

    fn map(&mut self) -> Result<Value, ParseError> {
        let mut pairs = Map::default();
        loop {
            self.skip_lines()?;
            if matches!(self.peek()?, Token::Close('}')) {
                self.take()?;
                return Ok(Value::Map(pairs));
            }
            let key = self.value()?;
            let key = self.key(key)?;
            self.skip_lines()?;
            if !matches!(self.peek()?, Token::Arrow) {
                let (at, token) = self.take()?;
                return Err(match token {
                    Token::End => ParseError::Incomplete,
                    token => wrong(at, format!("expected =>, found {token}")),
                });
            }
            pairs.0.push((key, self.behind_arrow()?));
            self.comma_before('}')?;
        }
    }

    /// A comma, or the bracket that closes, which stays.
    fn comma_before(&mut self, close: char) -> Result<(), ParseError> {
        self.skip_lines()?;
        match self.peek()? {
            Token::Comma => self.take().map(drop),
            Token::Close(found) if *found == close => Ok(()),
            Token::End => Err(ParseError::Incomplete),
            _ => {
                let (at, token) = self.take()?;
                Err(wrong(at, format!("expected , or {close}, found {token}")))
            }
        }
    }
}
