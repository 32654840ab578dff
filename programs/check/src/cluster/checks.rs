//! What a running cluster says, compared: `hbase:meta` as in a directory, and with what servers and the master know.

use std::collections::BTreeSet;

use halcyon_client::Procedure;
use halcyon_schema::{RegionInfo, ServerName};

use super::look::Look;
use crate::facts::MetaRegion;
use crate::finding::{Call, Finding};
use crate::meta_checks::{self, PASSING};

/// Findings of `hbase:meta` about the state of a region. What its server says explains more.
const OF_STATES: [&str; 3] = ["not-open-in-enabled-table", "open-in-disabled-table", "long-in-transition"];
/// Findings of `hbase:meta` that a procedure under way explains.
const PASSING_FINDINGS: [&str; 6] = [
    "hole",
    "overlap",
    "no-table-state",
    "table-in-transition",
    "not-open-in-enabled-table",
    "open-in-disabled-table",
];

/// `wait_seconds`: what stays as it is for longer is a finding. `bypass`: whether procedures may be ended.
pub(crate) fn check(look: &Look, now_ms: i64, wait_seconds: u64, bypass: bool) -> Vec<Finding> {
    let stuck = stuck_procedures(look, now_ms, wait_seconds);
    let busy = Busy::of(look, &stuck);
    let placed: Vec<Finding> = look
        .facts
        .regions
        .iter()
        .filter(|region| region.is_live() && !busy.has(&region.info))
        .filter_map(|region| placement(look, region))
        .collect();
    let is_explained = |finding: &Finding| {
        let is_placed = placed.iter().any(|placed| placed.subject == finding.subject);
        let is_table_busy = finding.table.as_ref().is_some_and(|table| busy.tables.contains(table.as_str()));
        let is_region_busy =
            finding.subject.as_ref().is_some_and(|region| busy.regions.contains(region.as_str()));
        OF_STATES.contains(&finding.kind) && (is_placed || is_region_busy)
            || PASSING_FINDINGS.contains(&finding.kind) && is_table_busy
    };
    let not_in_meta = not_in_meta(look, &busy);
    let mut findings = meta_checks::check(&look.facts, now_ms, wait_seconds);
    findings.retain(|finding| !is_explained(finding));
    for finding in findings.iter_mut().filter(|finding| finding.kind == "hole") {
        // an empty region in the hole would hide the rows of the one that is open
        finding.repair.take_if(|_| not_in_meta.iter().any(|other| other.table == finding.table));
    }
    findings.extend(placed);
    findings.extend(silent_servers(look));
    findings.extend(not_in_meta);
    findings.extend(transitions(look, now_ms, wait_seconds));
    findings.extend(stuck.iter().map(|procedure| stuck_finding(procedure, now_ms, bypass)));
    findings.extend(long_locks(look, now_ms, wait_seconds));
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        if !kept.iter().any(|one| one.is_same(&finding)) {
            kept.push(finding);
        }
    }
    kept
}

/// What procedures are about to change: nothing can be said about it yet.
struct Busy<'a> {
    tables: BTreeSet<&'a str>,
    regions: BTreeSet<&'a str>,
}

impl<'a> Busy<'a> {
    /// Procedures that make no progress do not count.
    fn of(look: &'a Look, stuck: &[&Procedure]) -> Busy<'a> {
        let moves = |owner: &Option<&Procedure>| {
            owner.is_none_or(|owner| stuck.iter().all(|procedure| procedure.id != owner.id))
        };
        let names = |resource_type: &str| {
            let locked = look.locked(resource_type).into_iter().filter(|(_, owner)| moves(owner));
            locked.map(|(name, _)| name).collect()
        };
        Busy { tables: names("TABLE"), regions: names("REGION") }
    }

    fn has(&self, region: &RegionInfo) -> bool {
        self.regions.contains(region.encoded_name()) || self.tables.contains(region.table().as_str())
    }
}

fn seconds_since(since_ms: u64, now_ms: i64) -> u64 {
    u64::try_from(now_ms).unwrap_or(0).saturating_sub(since_ms) / 1000
}

/// Compares where meta has a region with where it is open.
fn placement(look: &Look, region: &MetaRegion) -> Option<Finding> {
    let (info, encoded) = (&region.info, region.info.encoded_name());
    let open_on = look.servers_of(info);
    let state = region.state.as_deref().unwrap_or("OFFLINE");
    let finding = |kind, what, advice: &str, calls: Vec<Call>| {
        let finding = Finding::new(kind, Some(info.table().as_str()), what, advice).about(encoded);
        Some(if calls.is_empty() { finding } else { finding.with_calls(calls) })
    };
    let assign = vec![Call::Assign { region: encoded.to_string(), force: true }];
    if let [first, second, ..] = open_on[..] {
        let what = format!("region {info} is open on {first} and on {second}");
        let advice =
            "stop writers of the table; close the region with the admin of each server, then hbck2 assigns";
        return finding("open-twice", what, advice, Vec::new());
    }
    match (state, &region.server, open_on.first()) {
        ("OPEN", None, None) => {
            let what = format!("region {info} is OPEN in hbase:meta and no server has it");
            finding("no-server", what, &format!("hbck2 assigns -o {encoded}"), assign)
        }
        (state, Some(server), None) if state == "OPEN" || PASSING.contains(&state) => {
            if !look.servers.contains_key(server) {
                return unknown_server(look, info, state, server);
            }
            let what =
                format!("region {info} is OPEN on {server} in hbase:meta, and that server does not have it");
            let is_known = look.servers[server].is_ok() && state == "OPEN";
            is_known
                .then(|| finding("not-on-server", what, &format!("hbck2 assigns -o {encoded}"), assign))?
        }
        ("OPEN", server, Some(open_on)) if server.as_ref() != Some(*open_on) => {
            let meta = server.as_ref().map_or("no server".to_string(), ToString::to_string);
            let what = format!("region {info} is open on {open_on}, and hbase:meta has {meta}");
            let advice = format!("hbck2 unassigns -o {encoded}, then hbck2 assigns {encoded}");
            finding("open-elsewhere", what, &advice, Vec::new())
        }
        (state, _, Some(open_on)) if state != "OPEN" && !PASSING.contains(&state) => {
            let what = format!("region {info} is {state} in hbase:meta and open on {open_on}");
            let is_disabled = look.facts.states.get(info.table()).is_some_and(|state| state == "DISABLED");
            let mut calls = vec![Call::SetRegionState { region: encoded.to_string(), state: "OPEN" }];
            let mut advice = format!("hbck2 setRegionState {encoded} OPEN");
            if is_disabled {
                calls.push(Call::Unassign { region: encoded.to_string() });
                advice.push_str(&format!(", then hbck2 unassigns -o {encoded}"));
            }
            finding("open-on-server", what, &advice, calls)
        }
        _ => None,
    }
}

fn unknown_server(look: &Look, info: &RegionInfo, state: &str, server: &ServerName) -> Option<Finding> {
    // the regions of a server that crashed stay in meta until its procedure has assigned them
    if look.unfinished().any(|procedure| procedure.class.ends_with("ServerCrashProcedure")) {
        return None;
    }
    let what = format!("region {info} is {state} in hbase:meta on {server}, which is no live server");
    let advice = format!("hbck2 scheduleRecoveries {server}");
    let finding = Finding::new("unknown-server", Some(info.table().as_str()), what, advice);
    Some(finding.about(info.encoded_name()).with_calls([Call::CrashServer(server.clone())]))
}

/// Their regions are not judged.
fn silent_servers(look: &Look) -> Vec<Finding> {
    let silent = look.servers.iter().filter_map(|(server, regions)| Some((server, regions.as_ref().err()?)));
    silent
        .map(|(server, error)| {
            let what = format!("server {server} does not say which regions it has: {error}");
            let advice = "look at its log output and its pages; stop it if it hangs";
            Finding::new("silent-server", None, what, advice).about(&server.to_string())
        })
        .collect()
}

/// Regions that a server has open and meta does not name.
fn not_in_meta(look: &Look, busy: &Busy<'_>) -> Vec<Finding> {
    let regions = look.facts.regions.iter();
    let infos = regions.flat_map(|region| region.relatives.iter().chain([&region.info]));
    let known: BTreeSet<&str> = infos.map(RegionInfo::encoded_name).collect();
    let mut findings = Vec::new();
    for (server, open) in &look.servers {
        for region in open.iter().flatten() {
            let is_secondary = region.replica_id() != 0;
            if region.is_meta() || is_secondary || known.contains(region.encoded_name()) || busy.has(region) {
                continue;
            }
            let what = format!("region {region} is open on {server} and not in hbase:meta");
            let table = Some(region.table().as_str());
            let finding = if is_in_hole(look, region) {
                let call = Call::WriteRow { region: region.clone(), server: server.clone() };
                Finding::new("not-in-meta", table, what, "write its row of hbase:meta").with_calls([call])
            } else {
                let advice = "close it with the admin of the server: its table is gone, or another region has its rows";
                Finding::new("not-in-meta", table, what, advice)
            };
            findings.push(finding.about(region.encoded_name()));
        }
    }
    findings
}

/// The table exists, and no region of meta has rows of this one.
fn is_in_hole(look: &Look, region: &RegionInfo) -> bool {
    let of_table =
        look.facts.regions.iter().filter(|known| known.is_live() && known.info.table() == region.table());
    let mut overlaps = of_table.filter(|known| meta_checks::share_rows(&known.info, region));
    look.facts.descriptors.contains_key(region.table()) && overlaps.next().is_none()
}

/// Regions that the master has in transition for long.
fn transitions(look: &Look, now_ms: i64, wait_seconds: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    for one in &look.transitions {
        let (info, encoded) = (&one.region, one.region.encoded_name());
        let seconds = one.since_ms.map_or(0, |since_ms| seconds_since(since_ms, now_ms));
        if seconds <= wait_seconds {
            continue;
        }
        let what = format!("region {info} is {} for {seconds} s", one.state);
        let is_of_region =
            |procedure: &&Procedure| procedure.regions.iter().any(|region| region.encoded_name() == encoded);
        let finding = match look.working().find(is_of_region) {
            Some(procedure) => {
                let advice = format!("hbck2 bypass {}, then hbck2 assigns {encoded}", procedure.id);
                Finding::new("long-in-transition", Some(info.table().as_str()), what, advice)
            }
            None => {
                let advice = format!("hbck2 assigns -o {encoded}");
                let call = Call::Assign { region: encoded.to_string(), force: true };
                let finding = Finding::new("long-in-transition", Some(info.table().as_str()), what, advice);
                if look.locked("REGION").contains_key(encoded) { finding } else { finding.with_calls([call]) }
            }
        };
        findings.push(finding.about(encoded));
    }
    findings
}

/// Procedures whose last progress was long ago, and those that repeat a step for long.
fn stuck_procedures(look: &Look, now_ms: i64, wait_seconds: u64) -> Vec<&Procedure> {
    let is_stuck = |procedure: &&Procedure| {
        let repeats = procedure.error.is_some() || procedure.state == "WAITING_TIMEOUT";
        let since_ms = if repeats { procedure.submitted_ms } else { procedure.updated_ms };
        seconds_since(since_ms, now_ms) > wait_seconds
    };
    look.working().filter(is_stuck).collect()
}

fn stuck_finding(procedure: &Procedure, now_ms: i64, bypass: bool) -> Finding {
    let Procedure { id, class, state, .. } = procedure;
    let submitted = seconds_since(procedure.submitted_ms, now_ms);
    let updated = seconds_since(procedure.updated_ms, now_ms);
    let error = procedure.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let what = format!(
        "procedure {id} ({class}) is {state}, submitted {submitted} s ago, last progress {updated} s ago{error}"
    );
    let advice = format!("remove the cause; hbck2 bypass {id} ends it and leaves what it has begun");
    let finding = Finding::new("stuck-procedure", None, what, advice).about(&id.to_string());
    if bypass { finding.with_calls([Call::Bypass(*id)]) } else { finding }
}

/// Exclusive locks of old procedures. How long a lock is held is not known; its procedure is at least as old.
fn long_locks(look: &Look, now_ms: i64, wait_seconds: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    for lock in &look.locks {
        let Some(owner) = &lock.owner else { continue };
        let seconds = seconds_since(owner.submitted_ms, now_ms);
        if seconds <= wait_seconds {
            continue;
        }
        let (kind, name) = (&lock.resource_type, &lock.resource_name);
        let what = format!(
            "procedure {} ({}), submitted {seconds} s ago, has the exclusive lock of {kind} {name}; {} others wait",
            owner.id,
            owner.class,
            lock.waiting.len()
        );
        let table = (kind == "TABLE").then_some(name.as_str());
        let advice = format!("see what procedure {} does (list_procedures)", owner.id);
        findings.push(Finding::new("long-lock", table, what, advice).about(&format!("{kind} {name}")));
    }
    findings
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
