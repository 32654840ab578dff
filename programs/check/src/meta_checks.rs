//! What `hbase:meta` says, compared with itself, descriptors and namespaces.

use std::collections::BTreeSet;

use bytes::Bytes;
use halcyon_client::TableState;
use halcyon_inspect::text::binary;
use halcyon_schema::{RegionInfo, TableName};

use crate::facts::{Facts, MetaRegion};
use crate::finding::{Call, Finding};

/// States that a region only passes through.
pub(crate) const PASSING: [&str; 8] = [
    "OPENING",
    "CLOSING",
    "SPLITTING",
    "SPLITTING_NEW",
    "MERGING",
    "MERGING_NEW",
    "PENDING_OPEN",
    "PENDING_CLOSE",
];

pub(crate) fn check(facts: &Facts, now_ms: i64, transition_seconds: u64) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts
        .odd_rows
        .iter()
        .map(|what| {
            Finding::new(
                "odd-row",
                None,
                format!("hbase:meta: {what}"),
                "read the row with halcyon inspect meta -p",
            )
        })
        .collect();
    let mut tables: BTreeSet<&TableName> = facts.regions.iter().map(|region| region.info.table()).collect();
    tables.extend(facts.states.keys());
    tables.extend(facts.descriptors.keys());
    for table in tables.into_iter().filter(|table| !table.is_meta()) {
        let regions: Vec<&MetaRegion> =
            facts.regions.iter().filter(|region| region.info.table() == table).collect();
        findings.extend(chain(table, &regions));
        findings.extend(table_state(facts, table, &regions));
        findings.extend(region_states(facts, table, &regions, now_ms, transition_seconds));
        findings.extend(descriptor(facts, table));
        findings.extend(namespace(facts, table));
    }
    findings
}

/// Holes and overlaps.
fn chain(table: &TableName, regions: &[&MetaRegion]) -> Vec<Finding> {
    let live: Vec<&RegionInfo> =
        regions.iter().filter(|region| region.is_live()).map(|region| &region.info).collect();
    let hole = |from: &[u8], to: &[u8]| {
        let what =
            format!("table {table}: no region has the rows from '{}' to '{}'", binary(from), binary(to));
        let advice = "make an empty region there: hbck2 fixMeta, on a running cluster";
        Finding::new("hole", Some(table.as_str()), what, advice).with_calls([Call::FixMeta])
    };
    let mut findings = Vec::new();
    // The region that reaches furthest; `None`: no row is covered yet.
    let mut last: Option<&RegionInfo> = None;
    for region in &live {
        let covered =
            last.map_or(Some(&Bytes::new()), |last| Some(last.end_key())).cloned().unwrap_or_default();
        let reaches_end = last.is_some_and(|last| last.end_key().is_empty());
        if reaches_end || (last.is_some() && *region.start_key() < covered) {
            let other = last.expect("a region was covered");
            let what = format!("table {table}: regions {other} and {region} have rows in common");
            let advice = "merge them: hbck2 fixMeta, on a running cluster";
            let overlap = Finding::new("overlap", Some(table.as_str()), what, advice);
            findings.push(overlap.with_calls([Call::FixMeta]));
        } else if *region.start_key() > covered {
            findings.push(hole(&covered, region.start_key()));
        }
        let is_further = |last: &RegionInfo| {
            !last.end_key().is_empty() && (region.end_key().is_empty() || region.end_key() > last.end_key())
        };
        if last.is_none_or(is_further) {
            last = Some(region);
        }
    }
    match last {
        None => findings.push(hole(b"", b"")),
        Some(last) if !last.end_key().is_empty() => findings.push(hole(last.end_key(), b"")),
        Some(_) => {}
    }
    findings
}

/// Whether some row belongs to both regions.
pub(crate) fn share_rows(one: &RegionInfo, other: &RegionInfo) -> bool {
    let reaches_beyond =
        |left: &RegionInfo, start: &Bytes| left.end_key().is_empty() || left.end_key() > start;
    reaches_beyond(one, other.start_key()) && reaches_beyond(other, one.start_key())
}

fn table_state(facts: &Facts, table: &TableName, regions: &[&MetaRegion]) -> Option<Finding> {
    let name = Some(table.as_str());
    match facts.states.get(table) {
        None => {
            let what = format!("table {table} has {} regions and no state in hbase:meta", regions.len());
            let is_open = regions.iter().any(|region| region.state.as_deref() == Some("OPEN"));
            let (wanted, state) = if is_open || regions.is_empty() {
                ("ENABLED", TableState::Enabled)
            } else {
                ("DISABLED", TableState::Disabled)
            };
            let advice = format!("hbck2 setTableState {table} {wanted}");
            let call = Call::SetTableState(table.clone(), state);
            Some(Finding::new("no-table-state", name, what, advice).with_calls([call]))
        }
        Some(state) if state == "ENABLING" || state == "DISABLING" => {
            let (wanted, settled) = match state.as_str() {
                "ENABLING" => ("ENABLED", TableState::Enabled),
                _ => ("DISABLED", TableState::Disabled),
            };
            let call = Call::SetTableState(table.clone(), settled);
            let what = format!("table {table} is {state}");
            let advice = format!(
                "if no procedure of the table runs (list_procedures): hbck2 setTableState {table} {wanted}"
            );
            Some(Finding::new("table-in-transition", name, what, advice).with_calls([call]))
        }
        Some(_) => None,
    }
}

/// Regions whose state contradicts that of the table, and regions long in transition.
fn region_states(
    facts: &Facts,
    table: &TableName,
    regions: &[&MetaRegion],
    now_ms: i64,
    transition_seconds: u64,
) -> Vec<Finding> {
    let table_state = facts.states.get(table).map(String::as_str);
    let mut findings = Vec::new();
    for region in regions.iter().filter(|region| region.is_live()) {
        let encoded = region.info.encoded_name();
        let state = region.state.as_deref().unwrap_or("OFFLINE");
        let seconds = u64::try_from(now_ms.saturating_sub(region.state_ms)).unwrap_or(0) / 1000;
        let name = Some(table.as_str());
        let assign = |force| [Call::Assign { region: encoded.to_string(), force }];
        if PASSING.contains(&state) {
            if seconds > transition_seconds {
                let what = format!("region {} is {state} for {seconds} s", region.info);
                let advice = format!(
                    "find its procedure (list_procedures); hbck2 bypass, then hbck2 assigns {encoded}"
                );
                let finding = Finding::new("long-in-transition", name, what, advice);
                findings.push(finding.about(encoded).with_calls(assign(true)));
            }
            continue;
        }
        let what = format!(
            "table {table} is {} and region {} is {state}",
            table_state.unwrap_or("unknown"),
            region.info
        );
        match (table_state, state) {
            (Some("DISABLED"), "OPEN") => {
                let advice = format!("hbck2 unassigns -o {encoded}");
                let call = Call::Unassign { region: encoded.to_string() };
                let finding = Finding::new("open-in-disabled-table", name, what, advice);
                findings.push(finding.about(encoded).with_calls([call]));
            }
            (Some("ENABLED"), state) if state != "OPEN" => {
                let advice = format!("hbck2 assigns {encoded}; the next start of a server opens it as well");
                // other states are not expected by a master that opens a region
                let force = !["CLOSED", "OFFLINE"].contains(&state);
                let finding = Finding::new("not-open-in-enabled-table", name, what, advice).about(encoded);
                let mut others = regions.iter().filter(|other| other.is_live() && other.info != region.info);
                let is_alone = !others.any(|other| share_rows(&other.info, &region.info));
                // Two open regions with the same rows would answer differently.
                findings.push(if is_alone { finding.with_calls(assign(force)) } else { finding });
            }
            _ => {}
        }
    }
    findings
}

fn descriptor(facts: &Facts, table: &TableName) -> Option<Finding> {
    if facts.descriptors.contains_key(table) {
        return None;
    }
    let what = format!("table {table} is in hbase:meta and has no descriptor");
    let advice = format!("hbck2 generateMissingTableDescriptorFile {table}, with the server stopped");
    Some(Finding::new("no-descriptor", Some(table.as_str()), what, advice))
}

fn namespace(facts: &Facts, table: &TableName) -> Option<Finding> {
    let namespaces = facts.namespaces.as_ref()?;
    if namespaces.contains(table.namespace()) {
        return None;
    }
    let what = format!("table {table}: its namespace {} does not exist", table.namespace());
    let advice = format!("create_namespace '{}' in the shell", table.namespace());
    let call = Call::CreateNamespace(table.namespace().to_string());
    Some(Finding::new("no-namespace", Some(table.as_str()), what, advice).with_calls([call]))
}
