//! Regions of a table that is altered.
//!
//! All regions of the table were once closed before the first was opened again. A server that stood still, and was not yet declared
//! dead, kept the table closed as a whole.

use super::*;

/// Regions of "t" at each server.
fn at_servers(c: &Many) -> BTreeMap<ServerName, BTreeSet<String>> {
    let state = c.servers.state.lock();
    let of_table = |regions: &BTreeMap<String, RegionInfo>| {
        regions.iter().filter(|(_, it)| it.table().to_string() == "t").map(|(name, _)| name.clone()).collect()
    };
    state.online.iter().map(|(server, regions)| (server.clone(), of_table(regions))).collect()
}

/// How often these were opened since `before`.
fn opened_since(
    c: &Many,
    before: &BTreeMap<String, usize>,
    regions: impl Iterator<Item = String>,
) -> BTreeSet<usize> {
    let state = c.servers.state.lock();
    regions.map(|region| state.opened_times[&region] - before[&region]).collect()
}

/// A server that has regions of "t", and not `hbase:meta`.
fn victim(c: &Many) -> ServerName {
    let meta = c.servers.state.lock().meta.clone().unwrap();
    at_servers(c).into_iter().find(|(server, regions)| *server != meta && !regions.is_empty()).unwrap().0
}

/// An alteration begins while a server is frozen. Returns it, the regions of the others, and how often all were opened before.
fn altered_while_frozen(
    c: &Many,
    alter: impl Fn(),
) -> (ServerName, BTreeSet<String>, BTreeMap<String, usize>) {
    let frozen = victim(c);
    let before = c.servers.state.lock().opened_times.clone();
    let others: BTreeSet<String> =
        at_servers(c).into_iter().filter(|(server, _)| *server != frozen).flat_map(|(_, all)| all).collect();
    c.servers.state.lock().frozen.insert(frozen.clone());
    alter();
    let begun = Instant::now();
    while opened_since(c, &before, others.iter().cloned()) != BTreeSet::from([1]) {
        assert!(begun.elapsed() < Duration::from_secs(30), "the others wait: {:?}", at_servers(c));
        std::thread::sleep(Duration::from_millis(1));
    }
    // It has not ended, and what the frozen server has was not opened elsewhere.
    assert_eq!(c.master.procedures().len(), 1);
    let open: usize = at_servers(c).values().map(BTreeSet::len).sum();
    assert_eq!(open, KEYS.len() + 1, "all serve, also those of the frozen server");
    (frozen, others, before)
}

fn with_another_comment(c: &Many) {
    let table = table("t", &["f"]).with("COMMENT", "another");
    let _: pb::ModifyTableResponse = c.call("ModifyTable", &modify(&table));
}

fn cluster() -> Many {
    let c = Many::new(env(), 3);
    c.create(&KEYS);
    // With threads for all regions: those of the frozen server hold one each.
    let servers = c.servers.clone();
    c.master.stop();
    let c = Many::over_with(servers, MasterSettings { region_threads: 16, ..settings() });
    c.quiet();
    c
}

#[test]
fn a_frozen_server_holds_up_its_own_regions_only() {
    let c = cluster();
    let (frozen, others, before) = altered_while_frozen(&c, || with_another_comment(&c));
    // It thaws.
    c.servers.state.lock().frozen.clear();
    c.quiet();
    c.settles("t", KEYS.len() + 1);
    assert_eq!(opened_since(&c, &before, others.into_iter()), BTreeSet::from([1]));
    assert_eq!(opened_since(&c, &before, at_servers(&c)[&frozen].iter().cloned()), BTreeSet::from([1]));
}

/// The step is repeated because of its regions. Those of the others are not reopened again.
#[test]
fn what_was_reopened_stays_so_when_the_frozen_server_dies() {
    let c = cluster();
    let (frozen, others, before) = altered_while_frozen(&c, || with_another_comment(&c));
    let its: BTreeSet<String> = at_servers(&c)[&frozen].clone();
    c.die(&frozen);
    c.quiet();
    c.settles("t", KEYS.len() + 1);
    assert_eq!(opened_since(&c, &before, others.into_iter()), BTreeSet::from([1]));
    assert_eq!(opened_since(&c, &before, its.into_iter()), BTreeSet::from([1]));
}

/// Through two descriptors: each region is opened with both, and with the first one everywhere before the second comes.
#[test]
fn each_region_is_reopened_with_each_tracker() {
    let c = cluster();
    let change = || {
        let request = pb::ModifyTableStoreFileTrackerRequest {
            table_name: table("t", &["f"]).name().to_pb(),
            dst_sft: "FILE".to_string(),
            ..Default::default()
        };
        let _: pb::ModifyTableStoreFileTrackerResponse = c.call("ModifyTableStoreFileTracker", &request);
    };
    let (frozen, others, before) = altered_while_frozen(&c, change);
    c.die(&frozen);
    c.quiet();
    c.settles("t", KEYS.len() + 1);
    assert_eq!(opened_since(&c, &before, others.into_iter()), BTreeSet::from([2]));
}
