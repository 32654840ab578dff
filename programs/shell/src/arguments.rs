//! What a command was given, taken one after the other.

use std::collections::VecDeque;

use halcyon_client::TableName;

use crate::ShellError;
use crate::parse::Command;
use crate::value::{Map, Value};

/// The arguments of a command that nothing has taken yet.
pub(crate) struct Arguments {
    command: String,
    values: VecDeque<Value>,
}

impl Arguments {
    pub(crate) fn new(command: Command) -> Arguments {
        Arguments { command: command.name, values: command.arguments.into() }
    }

    /// Those of a line.
    #[cfg(test)]
    pub(crate) fn typed(line: &str) -> Arguments {
        Arguments::new(crate::parse::parse(line).unwrap().remove(0))
    }

    pub(crate) fn error(&self, text: impl std::fmt::Display) -> ShellError {
        ShellError::usage(format!("{}: {text}; see help '{}'", self.command, self.command))
    }

    /// The next argument.
    pub(crate) fn next(&mut self, what: &str) -> Result<Value, ShellError> {
        self.values.pop_front().ok_or_else(|| self.error(format_args!("{what} is missing")))
    }

    /// The next argument, if there is one that is not `nil`.
    pub(crate) fn optional(&mut self) -> Option<Value> {
        self.values.pop_front().filter(|value| *value != Value::Nil)
    }

    /// The next argument, unless it is a map.
    pub(crate) fn optional_plain(&mut self) -> Option<Value> {
        match self.values.front() {
            None | Some(Value::Map(_)) => None,
            Some(_) => self.optional(),
        }
    }

    pub(crate) fn text(&mut self, what: &str) -> Result<String, ShellError> {
        self.next(what)?.text()
    }

    /// The only argument.
    pub(crate) fn only_text(&mut self, what: &str) -> Result<String, ShellError> {
        let text = self.text(what)?;
        self.finish()?;
        Ok(text)
    }

    pub(crate) fn bytes(&mut self, what: &str) -> Result<Vec<u8>, ShellError> {
        self.next(what)?.bytes()
    }

    pub(crate) fn flag(&mut self, what: &str) -> Result<bool, ShellError> {
        self.next(what)?.flag()
    }

    pub(crate) fn table(&mut self) -> Result<TableName, ShellError> {
        table_name(&self.next("the table")?)
    }

    /// The options at the end: all maps that are left, as one.
    pub(crate) fn options(&mut self) -> Result<Map, ShellError> {
        let mut all = Map::default();
        while matches!(self.values.back(), Some(Value::Map(_))) {
            if let Some(Value::Map(map)) = self.values.pop_back() {
                all.0.splice(0..0, map.0);
            }
        }
        Ok(all)
    }

    /// What is left.
    pub(crate) fn rest(&mut self) -> Vec<Value> {
        self.values.drain(..).collect()
    }

    /// An error if something is left.
    pub(crate) fn finish(&self) -> Result<(), ShellError> {
        match self.values.front() {
            None => Ok(()),
            Some(value) => {
                Err(self.error(format_args!("there are too many arguments, beginning with {}", value.kind())))
            }
        }
    }
}

pub(crate) fn table_name(value: &Value) -> Result<TableName, ShellError> {
    Ok(TableName::parse(&value.bytes()?).map_err(halcyon_client::ClientError::from)?)
}
