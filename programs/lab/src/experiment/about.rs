//! What defines an experiment: its question, its plan and its tables.

use super::options::{Machine, RunArgs};
use super::plan::Plan;
use crate::outcome::{Experiment, Source, Table};

/// One published experiment that the lab repeats.
pub trait Definition: Sync {
    /// Title, question and sources.
    fn about(&self) -> About;

    /// Sides, cases and repetitions for this machine. The error names an option that does not fit.
    fn plan(&self, args: &RunArgs, machine: &Machine) -> Result<Plan, String>;

    /// Published and measured figures.
    fn tables(&self, experiment: &Experiment) -> Vec<Table>;
}

/// In words.
#[derive(Debug, Clone, Copy)]
pub struct About {
    pub title: &'static str,
    pub question: &'static str,
    /// Title and address of what is repeated.
    pub sources: &'static [(&'static str, &'static str)],
    pub not_comparable: &'static [&'static str],
}

impl About {
    pub fn sources(&self) -> Vec<Source> {
        let source = |(title, address): &(&str, &str)| Source {
            title: title.to_string(),
            address: address.to_string(),
        };
        self.sources.iter().map(source).collect()
    }
}
