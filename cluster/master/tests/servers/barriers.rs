//! Barriers of serial peers in `hbase:meta`: of moves, deaths, splits and merges, and when they go.

use halcyon_schema::{BARRIER_FAMILY, FamilyDescriptor, RegionBarriers, TableName};

use super::*;

fn replicated() -> TableDescriptor {
    let family = FamilyDescriptor::new(b"f").unwrap().with("REPLICATION_SCOPE", "1");
    TableDescriptor::new(TableName::parse(b"t").unwrap()).with_family(family)
}

fn serial(servers: u16) -> Many {
    Many::over(Servers::new(env(), servers))
}

impl Many {
    fn create_replicated(&self, splits: &[&'static str]) {
        let _: pb::CreateTableResponse = self.call("CreateTable", &create(&replicated(), splits));
        self.settles("t", splits.len() + 1);
        self.quiet();
    }

    fn barriers(&self) -> Vec<RegionBarriers> {
        let rows = self.servers.disk.meta_rows();
        rows.iter().filter_map(|row| RegionBarriers::of_row(row)).collect()
    }

    fn barriers_of(&self, region: &[u8]) -> Option<RegionBarriers> {
        self.barriers().into_iter().find(|found| found.region_name == region)
    }

    /// The servers of a region, by its barriers, which rise.
    fn history(&self, region: &[u8]) -> Vec<ServerName> {
        let ranges = self.barriers_of(region).map(|found| found.ranges).unwrap_or_default();
        assert!(
            ranges.is_sorted_by(|a, b| a.open_seq < b.open_seq && a.timestamp < b.timestamp),
            "{ranges:?}"
        );
        ranges.into_iter().map(|range| range.server).collect()
    }

    fn place(&self, region: &[u8]) -> ServerName {
        ServerName::parse(&self.places()[&String::from_utf8_lossy(region).into_owned()].0).unwrap()
    }

    fn add_serial_peer(&self) {
        let config = pb::ReplicationPeer {
            clusterkey: Some("other:2181:/hbase".into()),
            serial: Some(true),
            ..Default::default()
        };
        let peer_state = pb::ReplicationState { state: pb::replication_state::State::Enabled as i32 };
        let request = pb::AddReplicationPeerRequest { peer_id: "p".into(), peer_config: config, peer_state };
        let _: pb::AddReplicationPeerResponse = self.call("AddReplicationPeer", &request);
        self.quiet();
        assert!(self.servers.disk.peers()[0].config.serial());
    }
}

#[test]
fn each_opening_of_a_replicated_region_has_a_barrier() {
    let c = serial(3);
    c.create_replicated(&["m"]);
    let regions: Vec<Vec<u8>> = c.places().into_keys().map(String::into_bytes).collect();
    let mut expected = vec![c.place(&regions[0])];
    for number in [0, 1, 2] {
        let region = pb::RegionSpecifier { r#type: 1, value: regions[0].clone().into() };
        let request = pb::MoveRegionRequest { region, dest_server_name: Some(name(number).to_pb()) };
        let _: pb::MoveRegionResponse = c.call("MoveRegion", &request);
        expected.push(name(number));
        assert_eq!(c.history(&regions[0]).last(), Some(&name(number)));
    }
    c.die(&name(2));
    c.settles("t", 2);
    c.quiet();
    let history = c.history(&regions[0]);
    assert_eq!((history.last(), history.len()), (Some(&c.place(&regions[0])), expected.len() + 1));
    assert_eq!(history[..expected.len()], expected);
    assert_eq!(c.history(&regions[1]).last(), Some(&c.place(&regions[1])));

    // A master that takes over writes none for what is open.
    let (servers, before) = (c.servers.clone(), c.barriers());
    c.master.stop();
    let c = Many::over(servers);
    c.settles("t", 2);
    assert_eq!(c.barriers(), before);

    // Without a serial peer the newest one stays. With one those stay that it still needs.
    c.add_serial_peer();
    *c.servers.disk.sent_ranges.lock() = 1;
    assert!(c.master.clean_barriers().unwrap() > 0);
    assert_eq!(c.history(&regions[0]), history[1..]);
    *c.servers.disk.sent_ranges.lock() = usize::MAX;
    c.master.clean_barriers().unwrap();
    assert_eq!(c.history(&regions[0]), [c.place(&regions[0])]);
    let versions = c.servers.disk.meta_rows();
    let first = versions.iter().find(|row| row[0].row() == regions[0]).unwrap();
    assert!(
        first.iter().any(|cell| cell.family() == BARRIER_FAMILY && cell.qualifier() == b"seqnumDuringOpen")
    );
    assert_eq!(c.master.clean_barriers().unwrap(), 0);
}

#[test]
fn other_tables_have_no_barriers() {
    let c = Many::new(env(), 2);
    c.create(&["m"]);
    assert!(c.barriers().is_empty());
    assert_eq!(c.master.clean_barriers().unwrap(), 0);
}

/// As when the master was another one, without barriers, when the region was opened.
#[test]
fn a_serial_peer_gives_open_regions_the_barrier_that_they_lack() {
    let c = serial(2);
    c.create_replicated(&["m"]);
    let regions: Vec<Vec<u8>> = c.places().into_keys().map(String::into_bytes).collect();
    let before = c.barriers_of(&regions[1]);
    let newest = c.servers.disk.meta_rows().iter().flatten().map(Cell::timestamp).max().unwrap();
    c.servers.disk.meta_put(vec![halcyon_schema::delete_barriers(&regions[0], newest)]).unwrap();
    assert!(c.history(&regions[0]).is_empty());
    c.add_serial_peer();
    assert_eq!(c.barriers_of(&regions[1]), before);
    let found = c.barriers_of(&regions[0]).unwrap();
    assert_eq!((found.ranges.len(), found.ranges[0].open_seq), (1, 0));
    assert_eq!(found.ranges[0].server, c.place(&regions[0]));
    let region = pb::RegionSpecifier { r#type: 1, value: regions[0].clone().into() };
    let request = pb::MoveRegionRequest { region, dest_server_name: None };
    let _: pb::MoveRegionResponse = c.call("MoveRegion", &request);
    assert_eq!(c.history(&regions[0]).len(), 2);
}

#[test]
fn daughters_and_merged_regions_name_their_parents() {
    let c = serial(2);
    c.create_replicated(&[]);
    let parent = c.places().into_keys().next().unwrap().into_bytes();
    let of_parent = c.history(&parent);
    let known = c.servers.disk.meta_rows().into_iter().find(|row| row[0].row() == parent).unwrap();
    let info = known.iter().find(|cell| cell.qualifier() == b"regioninfo").unwrap();
    let info = RegionInfo::decode_value(info.value()).unwrap();
    let _: pb::SplitTableRegionResponse = c.call("SplitRegion", &split(&info, Some("m")));
    c.quiet();
    // The double counts each order to open it as an opening.
    assert!(c.history(&parent).starts_with(&of_parent), "the parent keeps its own");
    let daughters: Vec<RegionBarriers> =
        c.barriers().into_iter().filter(|found| found.region_name != parent).collect();
    assert_eq!(daughters.len(), 2);
    for daughter in &daughters {
        assert_eq!((daughter.parents.len(), &daughter.parents[0][..]), (1, &parent[..]));
        assert_eq!(daughter.ranges.len(), 1, "{daughter:?}");
    }
}
