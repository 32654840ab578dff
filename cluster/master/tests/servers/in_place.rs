//! Where regions are opened that take the place of others.

use super::*;

/// Where the regions of table `t` are open.
fn open(c: &Many) -> BTreeMap<RegionInfo, ServerName> {
    let state = c.servers.state.lock();
    let all =
        state.online.iter().flat_map(|(at, here)| here.values().map(move |it| (it.clone(), at.clone())));
    all.filter(|(region, _)| region.table().to_string() == "t").collect()
}

/// Two regions at two servers, and a third server, which has fewest.
fn two_regions() -> (Many, Vec<RegionInfo>, BTreeMap<RegionInfo, ServerName>) {
    let c = Many::new(env(), 3);
    c.create(&["m"]);
    let before = open(&c);
    let regions: Vec<RegionInfo> = before.keys().cloned().collect();
    assert!(regions.len() == 2 && before[&regions[0]] != before[&regions[1]], "{before:?}");
    c.servers.join(&ServerName::new("first-by-name", 16020, 1));
    (c, regions, before)
}

fn decommission(c: &Many, server: &ServerName) {
    let request = pb::DecommissionRegionServersRequest { server_name: vec![server.to_pb()], offload: false };
    let _: pb::DecommissionRegionServersResponse = c.call("DecommissionRegionServers", &request);
}

#[test]
fn daughters_are_opened_where_the_parent_was() {
    for is_drained in [false, true] {
        let (c, regions, before) = two_regions();
        let at = &before[&regions[0]];
        if is_drained {
            decommission(&c, at);
        }
        let _: pb::SplitTableRegionResponse = c.call("SplitRegion", &split(&regions[0], Some("f")));
        c.quiet();
        let after = open(&c);
        let daughters: Vec<_> = after.iter().filter(|(region, _)| !regions.contains(region)).collect();
        assert_eq!(daughters.len(), 2, "{after:?}");
        assert!(daughters.iter().all(|(_, server)| (*server == at) != is_drained), "{at}: {after:?}");
    }
}

#[test]
fn the_second_daughter_is_opened_elsewhere_if_wanted() {
    for servers in [3, 1] {
        let settings = MasterSettings { separate_daughters: true, ..settings() };
        let c = Many::over_with(Servers::new(env(), servers), settings);
        c.create(&[]);
        let (parent, at) = open(&c).pop_first().unwrap();
        let _: pb::SplitTableRegionResponse = c.call("SplitRegion", &split(&parent, Some("f")));
        c.quiet();
        let after: Vec<_> = open(&c).into_values().collect();
        assert!(after.len() == 2 && after[0] == at && (after[1] != at) == (servers > 1), "{at}: {after:?}");
    }
}

#[test]
fn a_merged_region_is_opened_where_the_first_parent_was() {
    for is_drained in [false, true] {
        let (c, regions, before) = two_regions();
        let at = &before[&regions[0]];
        if is_drained {
            decommission(&c, at);
        }
        let _: pb::MergeTableRegionsResponse = c.call("MergeTableRegions", &merge(&regions));
        c.quiet();
        let after: Vec<_> = open(&c).into_values().collect();
        assert!(after.len() == 1 && (after[0] == *at) != is_drained, "{at}: {after:?}");
    }
}

/// Copies of daughters are elsewhere, as those of all regions.
#[test]
fn copies_of_daughters_are_elsewhere() {
    let c = Many::new(env(), 3);
    c.create_with_copies(2, &["m"]);
    let regions: Vec<RegionInfo> = open(&c).into_keys().filter(|it| !it.is_secondary()).collect();
    let _: pb::SplitTableRegionResponse = c.call("SplitRegion", &split(&regions[0], Some("f")));
    c.settles_with_copies(2, 3);
    c.check_apart(2);
}
