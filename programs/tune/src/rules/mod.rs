//! The rules. Each is a function from numbers to a verdict, and has a test on made-up numbers.
//!
//! Below a number of events a share or a mean says nothing: then a rule says that it was not measured.

mod calls;
mod memory;
mod regions;
#[cfg(test)]
mod tests;
mod wal;

use crate::numbers::{Numbers, ServerNumbers};

/// What a rule says. Sentences carry the numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    Change { measured: String, change: String },
    Fine { measured: String },
    NotMeasured { why: String },
}

/// A rule's verdict on one server, or on the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    pub rule: &'static str,
    pub server: String,
    pub verdict: Verdict,
}

type ServerRule = fn(&ServerNumbers, seconds: f64) -> Verdict;
type ClusterRule = fn(&Numbers) -> Verdict;

const SERVER_RULES: &[(&str, ServerRule)] = &[
    ("cache-too-small", memory::cache_too_small),
    ("writes-blocked", memory::writes_blocked),
    ("handlers-full", calls::handlers_full),
    ("calls-refused", calls::calls_refused),
    ("small-calls", calls::small_calls),
    ("slow-wal-sync", wal::slow_sync),
    ("many-store-files", regions::many_store_files),
    ("compactions-behind", regions::compactions_behind),
    ("small-regions", regions::small_regions),
];

const CLUSTER_RULES: &[(&str, ClusterRule)] =
    &[("hot-region", regions::hot_region), ("uneven-servers", regions::uneven_servers)];

/// Everything that there is to say, what is to be changed first.
pub fn judge(numbers: &Numbers) -> Vec<Judged> {
    let seconds = numbers.time.as_secs_f64();
    let mut judged: Vec<Judged> = CLUSTER_RULES
        .iter()
        .map(|(rule, of)| Judged { rule, server: "cluster".to_string(), verdict: of(numbers) })
        .collect();
    for server in &numbers.servers {
        judged.extend(SERVER_RULES.iter().map(|(rule, of)| {
            let verdict = of(server, seconds);
            Judged { rule, server: server.name.clone(), verdict }
        }));
    }
    judged.sort_by_key(|one| match one.verdict {
        Verdict::Change { .. } => 0,
        Verdict::Fine { .. } => 1,
        Verdict::NotMeasured { .. } => 2,
    });
    judged
}

impl Verdict {
    /// A change if `is_bad`.
    fn of(is_bad: bool, measured: String, change: &str) -> Verdict {
        if is_bad {
            Verdict::Change { measured, change: change.to_string() }
        } else {
            Verdict::Fine { measured }
        }
    }

    fn not_measured(why: &str) -> Verdict {
        Verdict::NotMeasured { why: why.to_string() }
    }
}

/// A number of bytes for people.
fn bytes(count: f64) -> String {
    let mib = count / f64::from(1 << 20);
    if mib >= 10_240.0 { format!("{:.1} GiB", mib / 1024.0) } else { format!("{mib:.0} MiB") }
}
