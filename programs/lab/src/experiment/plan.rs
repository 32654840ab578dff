//! What an experiment wants to have measured: plain data, the same for the same options on the same machine.
//!
//! A plan has sides and cases. The runner visits each side once in each repetition, A B C A B C: it starts the side's server
//! on empty data, and measures all cases in their order before it stops it.

use serde::{Deserialize, Serialize};

use super::warm::Warmup;
use crate::outcome::Product;

/// What is to be measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Of the experiment.
    pub name: String,
    pub quick: bool,
    pub repetitions: u32,
    pub durability: Durability,
    pub sides: Vec<SidePlan>,
    pub cases: Vec<CasePlan>,
    /// Pairs of cases: the first does all that the second does, and more, so it cannot be faster on the same side.
    #[serde(default)]
    pub not_faster: Vec<(String, String)>,
    /// Ids of sides that differ in their memory alone, the smallest first. Where there are ladders, only the smallest side of
    /// each that serves is searched for; else all sides are measured.
    #[serde(default)]
    pub ladders: Vec<Vec<String>>,
    /// How sizes differ from the published ones, a sentence each.
    pub scaled: Vec<String>,
}

/// What an acknowledged write has survived; the same for all sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// With the operating system: survives a crash of the server. HBase's own default, on one copy.
    Written,
    /// On the disk: survives a crash of the machine.
    Fsync,
}

impl Durability {
    pub fn sentence(self) -> &'static str {
        match self {
            Durability::Written => {
                "An acknowledged write has been handed to the operating system: it survives a crash of the server, not of the machine."
            }
            Durability::Fsync => {
                "An acknowledged write is on the disk (fsync, shared by a group of writes): it survives a crash of the machine."
            }
        }
    }
}

/// One of those that are compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SidePlan {
    pub id: String,
    pub label: String,
    pub server: Server,
}

/// A server and all that is set about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    Halcyon {
        /// For cells and blocks together.
        memory_bytes: u64,
    },
    Hbase {
        /// Feature release.
        jdk: u32,
        heap_bytes: u64,
        collector: Collector,
        flags: Vec<String>,
        /// Of hbase-site.xml.
        properties: Vec<(String, String)>,
    },
    Accumulo {
        jdk: u32,
        heap_bytes: u64,
        /// Native maps instead of Java's.
        native: bool,
        /// What all maps together may hold.
        maps_bytes: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Collector {
    G1,
    /// The one generation of JDK 15 to 23.
    Zgc,
    /// JDK 21 and later.
    GenerationalZgc,
}

impl Server {
    pub fn product(&self) -> Product {
        match self {
            Server::Halcyon { .. } => Product::Halcyon,
            Server::Hbase { .. } => Product::Hbase,
            Server::Accumulo { .. } => Product::Accumulo,
        }
    }

    /// Seconds that a start usually takes, for the time that is left.
    pub fn start_s(&self) -> f64 {
        match self {
            Server::Halcyon { .. } => 2.0,
            Server::Hbase { .. } => 18.0,
            Server::Accumulo { .. } => 20.0,
        }
    }
}

/// One load that all sides get.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CasePlan {
    pub id: String,
    pub label: String,
    /// What must have been done in this life of the server; done once for all cases that ask for it.
    pub prepare: Vec<Load>,
    pub load: Load,
    pub rate: Rate,
    pub warmup: Warmup,
}

/// A call of the load generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The words behind `halcyon bench`, without where the server is, rates and files.
    pub words: Vec<String>,
    /// About how long it takes, in seconds without the warm-up.
    pub expected_s: f64,
}

impl Load {
    /// The words are those between blanks.
    pub fn new(expected_s: f64, words: &str) -> Load {
        Load { words: words.split_whitespace().map(str::to_string).collect(), expected_s }
    }
}

/// Operations a second that are asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rate {
    /// As many as go.
    Free,
    /// The same for all sides.
    Fixed { per_s: f64 },
    /// A share of what the same side reached in another case, which comes before.
    Share { of: String, share: f64 },
}

/// A side in a repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Visit<'a> {
    /// From 1.
    pub repetition: u32,
    pub side: &'a SidePlan,
}

impl Plan {
    /// All visits in the order in which they are made.
    pub fn visits(&self) -> impl Iterator<Item = Visit<'_>> {
        (1..=self.repetitions)
            .flat_map(move |repetition| self.sides.iter().map(move |side| Visit { repetition, side }))
    }

    /// Visits as they are likely to be: of a ladder as many as halving takes, whichever they are.
    pub fn expected_visits(&self) -> Vec<Visit<'_>> {
        if self.ladders.is_empty() {
            return self.visits().collect();
        }
        let steps = |ladder: &Vec<String>| (usize::BITS - ladder.len().leading_zeros()) as usize;
        let ids: Vec<&String> =
            self.ladders.iter().flat_map(|ladder| ladder.iter().take(steps(ladder))).collect();
        self.visits().filter(|visit| ids.contains(&&visit.side.id)).collect()
    }

    /// Leaves out sides and cases that were not asked for. The error names those that are not known.
    pub fn choose(&mut self, sides: &[String], cases: &[String]) -> Result<(), String> {
        let known: Vec<&str> = self.sides.iter().map(|side| side.id.as_str()).collect();
        all_known("side", sides, &known)?;
        let known: Vec<&str> = self.cases.iter().map(|case| case.id.as_str()).collect();
        all_known("case", cases, &known)?;
        self.sides.retain(|side| sides.is_empty() || sides.contains(&side.id));
        for ladder in &mut self.ladders {
            ladder.retain(|id| sides.is_empty() || sides.contains(id));
        }
        self.ladders.retain(|ladder| !ladder.is_empty());
        let needed: Vec<String> = cases.iter().flat_map(|id| self.with_needed(id)).collect();
        self.cases.retain(|case| cases.is_empty() || needed.contains(&case.id));
        Ok(())
    }

    /// A case and the one whose rate it needs.
    fn with_needed(&self, id: &str) -> Vec<String> {
        let case = self.cases.iter().find(|case| case.id == id);
        let needed = case.and_then(|case| match &case.rate {
            Rate::Share { of, .. } => Some(of.clone()),
            Rate::Free | Rate::Fixed { .. } => None,
        });
        needed.into_iter().chain([id.to_string()]).collect()
    }

    /// About how long one visit takes that measures these cases, in seconds.
    pub fn visit_s<'a>(&self, side: &SidePlan, cases: impl Iterator<Item = &'a CasePlan>) -> f64 {
        let mut prepared: Vec<&Load> = Vec::new();
        let mut all_s = side.server.start_s();
        for case in cases {
            for load in &case.prepare {
                if !prepared.contains(&load) {
                    prepared.push(load);
                    all_s += load.expected_s;
                }
            }
            all_s += case.load.expected_s + case.warmup.expected_s(side);
        }
        all_s
    }
}

fn all_known(what: &str, wanted: &[String], known: &[&str]) -> Result<(), String> {
    match wanted.iter().find(|id| !known.contains(&id.as_str())) {
        Some(id) => Err(format!("there is no {what} '{id}' here, only {}", known.join(", "))),
        None => Ok(()),
    }
}
