//! A script: a table's families and steps for it, from a seed or from text.

mod generate;
mod text;

use std::fmt;

use halcyon_cell::Cell;

use crate::{FamilyOptions, OracleScan};

/// What is done to an engine and to the oracle, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What it was made from; 0 if it was written by hand.
    pub seed: u64,
    pub families: Vec<FamilyOptions>,
    /// Wall time at the beginning, in milliseconds.
    pub start_ms: i64,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// One mutation: puts and markers of one row. Sequence ids are given when the script runs.
    Write(Vec<Cell>),
    /// A scan or get.
    Read(OracleScan),
    Flush,
    Compact {
        major: bool,
    },
    /// An orderly close and open.
    Reopen,
    /// What was not synced is lost; then open.
    Crash,
    /// The clock moves on by so many milliseconds.
    Advance(i64),
}

impl Script {
    /// A script of about `len` steps in small key spaces, so that versions, markers and reads collide often. The
    /// same seed and length always make the same script.
    pub fn random(seed: u64, len: usize) -> Script {
        generate::script(seed, len)
    }

    /// Reads what `Display` writes; blank lines and lines that begin with `#` are passed over.
    pub fn parse(text: &str) -> Result<Script, String> {
        text::parse_script(text)
    }
}

/// One line per family and step.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write_script(f, self)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write_step(f, self)
    }
}
