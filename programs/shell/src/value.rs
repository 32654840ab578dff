//! Values that people type.

use crate::ShellError;

/// A value of a command line.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string in quotes, as bytes.
    Text(Vec<u8>),
    /// A word without quotes: a constant, or a string whose quotes were left out.
    Word(String),
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Float(f64),
    /// `true` or `false`.
    Flag(bool),
    /// `nil`.
    Nil,
    /// `[1, 2]`
    List(Vec<Value>),
    /// `{NAME => 'f'}`, also without braces at the end of a command.
    Map(Map),
}

/// Pairs of a map in the order in which they were typed. Keys are compared without case.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map(pub Vec<(String, Value)>);

impl Map {
    /// The last value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value)
    }

    /// Takes a key out; what is left at the end was not understood.
    pub fn take(&mut self, key: &str) -> Option<Value> {
        let at = self.0.iter().rposition(|(name, _)| name.eq_ignore_ascii_case(key))?;
        Some(self.0.remove(at).1)
    }

    /// An error that names a key that nothing took.
    pub fn finish(&self, command: &str) -> Result<(), ShellError> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => Err(ShellError::usage(format!("{command} does not know the option {name}"))),
        }
    }
}

impl Value {
    /// The value as bytes: strings as they are, numbers and words as their text.
    pub fn bytes(&self) -> Result<Vec<u8>, ShellError> {
        match self {
            Value::Text(bytes) => Ok(bytes.clone()),
            Value::Word(word) => Ok(word.clone().into_bytes()),
            Value::Integer(number) => Ok(number.to_string().into_bytes()),
            Value::Float(number) => Ok(number.to_string().into_bytes()),
            Value::Flag(flag) => Ok(flag.to_string().into_bytes()),
            Value::Nil | Value::List(_) | Value::Map(_) => {
                Err(ShellError::usage(format!("expected a string, found {}", self.kind())))
            }
        }
    }

    /// The value as text.
    pub fn text(&self) -> Result<String, ShellError> {
        String::from_utf8(self.bytes()?).map_err(|_| ShellError::usage("expected text in UTF-8"))
    }

    /// An integer; also one in quotes.
    pub fn integer(&self) -> Result<i64, ShellError> {
        if let Value::Integer(number) = self {
            return Ok(*number);
        }
        let text = self.text()?;
        text.trim().parse().map_err(|_| ShellError::usage(format!("expected an integer, found '{text}'")))
    }

    /// A count that must not be negative.
    pub fn count(&self) -> Result<u32, ShellError> {
        let number = self.integer()?;
        u32::try_from(number).map_err(|_| ShellError::usage(format!("{number} is not a count")))
    }

    /// A flag; also one in quotes.
    pub fn flag(&self) -> Result<bool, ShellError> {
        if let Value::Flag(flag) = self {
            return Ok(*flag);
        }
        match self.text()?.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(ShellError::usage(format!("expected true or false, found '{other}'"))),
        }
    }

    /// The values of a list; another value counts as a list of one.
    pub fn list(self) -> Vec<Value> {
        match self {
            Value::List(values) => values,
            Value::Nil => Vec::new(),
            other => vec![other],
        }
    }

    /// The pairs of a map.
    pub fn map(self) -> Result<Map, ShellError> {
        match self {
            Value::Map(map) => Ok(map),
            other => Err(ShellError::usage(format!("expected {{...}}, found {}", other.kind()))),
        }
    }

    /// What kind of value it is, for errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) | Value::Word(_) => "a string",
            Value::Integer(_) | Value::Float(_) => "a number",
            Value::Flag(_) => "a flag",
            Value::Nil => "nil",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }
}
