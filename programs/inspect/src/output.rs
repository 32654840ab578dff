//! What is printed: lines for people, or one JSON object a line.

use std::io::{self, Write};
use std::path::Path;

use halcyon_cell::Error;
use serde_json::{Value, json};

/// Why a command ends early.
#[derive(Debug)]
pub enum Stop {
    Output(io::Error),
    /// The command cannot be carried out. A sentence.
    Failed(String),
}

pub type Done = Result<(), Stop>;

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Output(error)
    }
}

/// Where records go, and how many of them are damage.
pub struct Output<'a> {
    out: &'a mut dyn Write,
    json: bool,
    damage_count: u64,
    failed_count: u64,
}

impl<'a> Output<'a> {
    pub fn new(out: &'a mut dyn Write, json: bool) -> Output<'a> {
        Output { out, json, damage_count: 0, failed_count: 0 }
    }

    /// Prints one record: the object with `"record": kind` first, or the text.
    pub fn say(&mut self, kind: &str, object: impl FnOnce() -> Value, text: impl FnOnce() -> String) -> Done {
        if !self.json {
            return Ok(writeln!(self.out, "{}", text())?);
        }
        let mut record = serde_json::Map::new();
        record.insert("record".to_string(), kind.into());
        if let Value::Object(fields) = object() {
            record.extend(fields);
        }
        Ok(writeln!(self.out, "{}", Value::Object(record))?)
    }

    /// Prints damage. `what` names the file and the place in it.
    pub fn damage(&mut self, file: &Path, offset: Option<u64>, what: &str) -> Done {
        self.damage_count += 1;
        let object = || json!({"file": file.to_string_lossy(), "offset": offset, "message": what});
        self.say("damage", object, || format!("DAMAGE: {what}"))
    }

    /// As `damage`, of an error that names the file and the place.
    pub fn damaged(&mut self, file: &Path, offset: Option<u64>, error: &Error) -> Done {
        self.damage(file, offset, error.message())
    }

    /// Something that could not be looked at; the command goes on with what is left.
    pub fn failed(&mut self, file: &Path, what: &str) -> Done {
        self.failed_count += 1;
        let object = || json!({"file": file.to_string_lossy(), "message": what});
        self.say("error", object, || format!("ERROR: {what}"))
    }

    pub fn damage_count(&self) -> u64 {
        self.damage_count
    }

    pub fn failed_count(&self) -> u64 {
        self.failed_count
    }

    pub fn finish(&mut self) -> Done {
        Ok(self.out.flush()?)
    }
}
