//! Looks that a test cannot bring a real server to.

use std::collections::BTreeSet;

use halcyon_client::{Lock, LockKind, RegionInTransition};
use halcyon_schema::{TableDescriptor, TableName};

use super::*;
use crate::facts::Facts;

const NOW_MS: i64 = 1_000_000;

fn table() -> TableName {
    TableName::parse(b"t").unwrap()
}

fn region(start: &'static str, end: &'static str) -> RegionInfo {
    RegionInfo::new(table(), start.into(), end.into(), 7)
}

fn server(number: i64) -> ServerName {
    ServerName::new("h", 1, number)
}

fn in_meta(info: &RegionInfo, state: &str) -> MetaRegion {
    MetaRegion {
        info: info.clone(),
        state: Some(state.to_string()),
        state_ms: NOW_MS - 1_000,
        server: Some(server(1)),
        relatives: Vec::new(),
    }
}

/// Two regions on one of two servers.
fn sound() -> Look {
    let regions = [region("", "m"), region("m", "")];
    let facts = Facts {
        regions: regions.iter().map(|info| in_meta(info, "OPEN")).collect(),
        states: [(table(), "ENABLED".to_string())].into(),
        descriptors: [(table(), TableDescriptor::new(table()))].into(),
        namespaces: Some(BTreeSet::from(["default".to_string()])),
        ..Facts::default()
    };
    let servers = [(server(1), Ok(regions.to_vec())), (server(2), Ok(Vec::new()))];
    Look { facts, servers: servers.into(), ..Look::default() }
}

fn procedure(id: u64, state: &str, submitted_ms: u64, updated_ms: u64) -> Procedure {
    Procedure {
        id,
        parent_id: None,
        class: "org.apache.hadoop.hbase.master.procedure.DisableTableProcedure".to_string(),
        state: state.to_string(),
        owner: None,
        submitted_ms,
        updated_ms,
        error: None,
        parameters: Vec::new(),
        regions: Vec::new(),
    }
}

fn exclusive(resource_type: &str, name: &str, owner: Procedure) -> Lock {
    Lock {
        resource_type: resource_type.to_string(),
        resource_name: name.to_string(),
        kind: LockKind::Exclusive,
        owner: Some(owner),
        shared_count: 0,
        waiting: Vec::new(),
    }
}

fn expect(look: &Look, kinds: &[&str]) -> Vec<Finding> {
    let findings = check(look, NOW_MS, 60, false);
    let found: Vec<&str> = findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(found, kinds, "{findings:#?}");
    findings
}

#[test]
fn a_sound_cluster_has_no_findings() {
    expect(&sound(), &[]);
}

#[test]
fn a_procedure_without_progress_is_found_and_ended_only_if_wanted() {
    let mut look = sound();
    look.procedures.push(procedure(3, "RUNNABLE", 1, 950_000));
    look.procedures.push(procedure(4, "SUCCESS", 1, 2));
    expect(&look, &[]);
    look.procedures.push(procedure(5, "RUNNABLE", 1, 939_000));
    assert!(expect(&look, &["stuck-procedure"])[0].calls().is_empty());
    let wanted = check(&look, NOW_MS, 60, true);
    assert_eq!(wanted[0].calls(), [Call::Bypass(5)]);
    // its parent waits for it
    look.procedures.push(procedure(2, "WAITING", 1, 1));
    look.procedures[2].parent_id = Some(2);
    assert!(expect(&look, &["stuck-procedure"])[0].what.starts_with("procedure 5 "));
}

#[test]
fn a_procedure_that_repeats_a_step_is_found() {
    let mut look = sound();
    look.procedures.push(procedure(5, "WAITING_TIMEOUT", 939_000, 999_000));
    expect(&look, &["stuck-procedure"]);
    look.procedures[0].submitted_ms = 950_000;
    expect(&look, &[]);
}

#[test]
fn what_a_procedure_is_about_to_change_is_no_finding() {
    let mut look = sound();
    look.facts.states.insert(table(), "DISABLING".to_string());
    look.facts.regions[0].state = Some("CLOSED".to_string());
    expect(&look, &["table-in-transition", "open-on-server"]);
    let young = procedure(5, "RUNNABLE", 999_000, 999_500);
    look.procedures.push(young.clone());
    look.locks.push(exclusive("TABLE", "t", young));
    expect(&look, &[]);
    // one that makes no progress explains nothing
    let old = procedure(5, "RUNNABLE", 900_000, 900_000);
    (look.procedures[0], look.locks[0]) = (old.clone(), exclusive("TABLE", "t", old));
    expect(&look, &["table-in-transition", "open-on-server", "stuck-procedure", "long-lock"]);
}

#[test]
fn a_region_that_its_procedure_has_is_no_finding() {
    let mut look = sound();
    let encoded = look.facts.regions[1].info.encoded_name().to_string();
    look.facts.regions[1].state = Some("CLOSED".to_string());
    look.servers.insert(server(1), Ok(vec![region("", "m")]));
    assert_eq!(
        expect(&look, &["not-open-in-enabled-table"])[0].calls(),
        [Call::Assign { region: encoded.clone(), force: false }]
    );
    let young = procedure(5, "RUNNABLE", 999_000, 999_500);
    look.procedures.push(young.clone());
    look.locks.push(exclusive("REGION", &encoded, young));
    expect(&look, &[]);
}

#[test]
fn a_region_on_two_servers_is_found_and_left() {
    let mut look = sound();
    look.servers.insert(server(2), Ok(vec![region("m", "")]));
    assert!(expect(&look, &["open-twice"])[0].calls().is_empty());
}

#[test]
fn a_server_that_does_not_answer_is_found_and_its_regions_are_not_judged() {
    let mut look = sound();
    look.servers.insert(server(1), Err("no response".to_string()));
    expect(&look, &["silent-server"]);
}

#[test]
fn regions_of_a_crash_under_way_are_not_judged() {
    let mut look = sound();
    look.servers.remove(&server(1));
    let findings = expect(&look, &["unknown-server", "unknown-server"]);
    assert!(findings.iter().all(|finding| finding.calls() == [Call::CrashServer(server(1))]));
    let mut crash = procedure(5, "WAITING", 999_000, 999_000);
    crash.class = "org.apache.hadoop.hbase.master.procedure.ServerCrashProcedure".to_string();
    look.procedures.push(crash);
    expect(&look, &[]);
}

#[test]
fn a_row_is_written_only_for_a_region_that_fills_a_hole() {
    let mut look = sound();
    look.facts.regions.remove(1);
    let findings = expect(&look, &["hole", "not-in-meta"]);
    assert!(findings[0].calls().is_empty(), "an empty region would hide the open one");
    assert_eq!(findings[1].calls(), [Call::WriteRow { region: region("m", ""), server: server(1) }]);
    look.servers.insert(server(1), Ok(vec![region("", "m")]));
    assert_eq!(expect(&look, &["hole"])[0].calls(), [Call::FixMeta]);
    // rows of this one are those of another
    let mut look = sound();
    look.servers.insert(server(2), Ok(vec![region("k", "p")]));
    assert!(expect(&look, &["not-in-meta"])[0].calls().is_empty());
}

#[test]
fn a_region_long_in_transition_is_opened_if_no_procedure_has_it() {
    let mut look = sound();
    let since = |since_ms| RegionInTransition {
        region: region("m", ""),
        state: "OPENING".to_string(),
        since_ms: Some(since_ms),
    };
    look.transitions.push(since(950_000));
    expect(&look, &[]);
    look.transitions[0] = since(900_000);
    assert_eq!(expect(&look, &["long-in-transition"])[0].calls().len(), 1);
    let mut moving = procedure(5, "RUNNABLE", 999_000, 999_000);
    moving.regions.push(region("m", ""));
    look.procedures.push(moving);
    let findings = expect(&look, &["long-in-transition"]);
    assert!(findings[0].calls().is_empty() && findings[0].advice.contains("bypass 5"), "{findings:#?}");
}

#[test]
fn a_missing_namespace_is_created() {
    let mut look = sound();
    look.facts.namespaces = Some(BTreeSet::new());
    assert_eq!(expect(&look, &["no-namespace"])[0].calls(), [Call::CreateNamespace("default".to_string())]);
}
