//! The state of the server in one sentence, and what else an operator should know.

use halcyon_master::ProcedureSummary;
use serde::Serialize;

use super::marks::{LONG_STALL, LongStalls};

/// What the verdict looks back on.
pub const WINDOW_S: u64 = 15 * 60;
/// A stall of this length is a failure for most clients.
const BAD_STALL_MS: f64 = 1000.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Good,
    Warning,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    pub sentence: String,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Verdict {
    #[serde(flatten)]
    pub first: Finding,
    /// Findings besides the first.
    pub others: Vec<Finding>,
}

/// What is judged.
#[derive(Default)]
pub struct Evidence {
    pub up_s: u64,
    /// Why the region server has given up.
    pub failure: Option<String>,
    pub cache_file_failure: Option<String>,
    pub long_stalls: LongStalls,
    pub procedures: Vec<ProcedureSummary>,
    /// What the active master of a cluster knows of that.
    pub cluster: Vec<Finding>,
    /// In the window.
    pub refused_calls: f64,
    pub refused_writes: f64,
    pub held_back_writes: f64,
    pub slow_calls: f64,
}

/// Judges the evidence. The worst finding comes first.
pub fn judge(evidence: &Evidence) -> Verdict {
    let span = span(evidence.up_s);
    let mut findings = Vec::new();
    let mut find = |severity, sentence: String| findings.push(Finding { severity, sentence });
    if let Some(failure) = &evidence.failure {
        find(Severity::Bad, format!("The region server has given up: {failure}."));
    }
    match &evidence.long_stalls {
        LongStalls { count, longest: Some(longest) } if *count > 0 => {
            let severity = if longest.length_ms >= BAD_STALL_MS { Severity::Bad } else { Severity::Warning };
            let stalls = counted(*count as f64, "stall");
            let (length, cause) = (longest.length_ms, longest.cause);
            let limit = LONG_STALL.as_millis();
            let sentence =
                format!("{stalls} over {limit} ms {span}; the longest took {length:.0} ms ({cause}).");
            find(severity, sentence);
        }
        _ => {}
    }
    evidence.cluster.iter().for_each(|it| find(it.severity, it.sentence.clone()));
    let failing = evidence.procedures.iter().filter(|procedure| procedure.is_failing).count();
    if failing > 0 {
        let (verb, last) = if failing == 1 { ("repeats", "fails") } else { ("repeat", "fail") };
        find(
            Severity::Warning,
            format!("{} {verb} a step that {last}.", counted(failing as f64, "procedure")),
        );
    }
    if let Some(failure) = &evidence.cache_file_failure {
        find(Severity::Warning, format!("The cache file is off: {failure}."));
    }
    let counts = [
        (evidence.refused_writes, "write", "refused because memstores were full"),
        (evidence.refused_calls, "call", "refused because a queue was full"),
        (evidence.held_back_writes, "write", "held back because memstores were full"),
        (evidence.slow_calls, "call", "slower than the threshold"),
    ];
    for (count, what, why) in counts.into_iter().filter(|(count, ..)| *count >= 0.5) {
        let verb = if count < 1.5 { "was" } else { "were" };
        find(Severity::Warning, format!("{} {verb} {why} {span}.", counted(count, what)));
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    if findings.is_empty() {
        let sentence = format!("No stall over {} ms {span}.", LONG_STALL.as_millis());
        findings.push(Finding { severity: Severity::Good, sentence });
    }
    let first = findings.remove(0);
    Verdict { first, others: findings }
}

fn counted(count: f64, what: &str) -> String {
    let ending = if count < 1.5 { "" } else { "s" };
    format!("{count:.0} {what}{ending}")
}

fn span(up_s: u64) -> String {
    match up_s {
        0..120 => format!("in the {up_s} s since the start"),
        120..WINDOW_S => format!("in the {} minutes since the start", up_s / 60),
        _ => format!("in the last {} minutes", WINDOW_S / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::marks::StallMark;

    #[test]
    fn without_findings_the_server_is_good() {
        let evidence = |up_s| Evidence { up_s, ..Evidence::default() };
        let verdict = judge(&evidence(5000));
        assert_eq!(verdict.first.severity, Severity::Good);
        assert_eq!(verdict.first.sentence, "No stall over 50 ms in the last 15 minutes.");
        assert_eq!(judge(&evidence(61)).first.sentence, "No stall over 50 ms in the 61 s since the start.");
        assert_eq!(
            judge(&evidence(240)).first.sentence,
            "No stall over 50 ms in the 4 minutes since the start."
        );
    }

    #[test]
    fn the_worst_finding_comes_first() {
        let longest =
            StallMark { ended_ms: 1, length_ms: 312.4, cause: "sync", what: String::new(), count: 3 };
        let mut evidence = Evidence {
            up_s: 5000,
            long_stalls: LongStalls { count: 3, longest: Some(longest) },
            refused_calls: 1.0,
            ..Evidence::default()
        };
        let verdict = judge(&evidence);
        let sentence = "3 stalls over 50 ms in the last 15 minutes; the longest took 312 ms (sync).";
        assert_eq!((verdict.first.severity, &*verdict.first.sentence), (Severity::Warning, sentence));
        let other = "1 call was refused because a queue was full in the last 15 minutes.";
        assert_eq!(verdict.others[0].sentence, other);
        evidence.failure = Some("the WAL failed".to_string());
        let verdict = judge(&evidence);
        assert_eq!(verdict.first.sentence, "The region server has given up: the WAL failed.");
        assert_eq!((verdict.first.severity, verdict.others.len()), (Severity::Bad, 2));
    }
}
