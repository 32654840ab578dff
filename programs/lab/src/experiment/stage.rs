//! Where an experiment takes place.

use super::plan::{Load, SidePlan};
use super::warm::Wanted;
use crate::outcome::Run;

/// Starts servers and loads them, one server at a time. The machine is one; a test's is another.
pub trait Stage {
    /// Whether a side can take part; the error is a sentence that says what is missing.
    fn available(&mut self, side: &SidePlan) -> Result<(), String>;

    /// Starts a side's server on empty data and returns when it has taken a write. The error is a sentence; nothing runs then.
    fn start(&mut self, side: &SidePlan) -> Result<Started, String>;

    /// Loads the server. What was measured before a load ended early comes back marked partial; the error is a sentence, and
    /// then nothing was measured. The result names no side, case or repetition.
    fn load(&mut self, order: &Order<'_>) -> Result<Run, String>;

    /// Whether the server that was started still runs.
    fn is_running(&mut self) -> bool;

    /// Ends the server and removes its data.
    fn stop(&mut self);

    /// Whether the user wants to stop.
    fn is_interrupted(&self) -> bool;
}

/// How a server was started.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Started {
    pub command_line: Vec<String>,
    /// `name=value`
    pub settings: Vec<String>,
}

/// One load to be made.
#[derive(Debug, Clone)]
pub struct Order<'a> {
    pub load: &'a Load,
    pub rate: Option<f64>,
    pub warmup: Wanted,
}
