//! Which dead servers clients are told of, and the message that tells them (HBase: `ClusterStatusPublisher`).
//!
//! Datagrams get lost, so each server is named [`SENDS`] times. The first time is at once, in a message with new names alone.
//! Each period has one message after that, with the names that were sent least.

use halcyon_proto::pb;
use halcyon_schema::ServerName;
use prost::Message;

/// Messages that name one server, as HBase's `NB_SEND`.
pub const SENDS: u32 = 5;
/// Servers in one message, as HBase's `MAX_SERVER_PER_MESSAGE`: it should fit into one packet.
pub const NAMES_MAX: usize = 10;
/// Servers that are named at the same time. HBase has no limit.
pub const PUBLISHED_MAX: usize = 1_000;

/// Dead servers that are still to be named.
///
/// # Invariants
/// At most [`PUBLISHED_MAX`], none twice, and each was sent fewer than [`SENDS`] times.
#[derive(Debug, Default)]
pub struct PublishedDead {
    /// With how often it was sent; the order is that of their deaths.
    servers: Vec<(ServerName, u32)>,
}

impl PublishedDead {
    /// Adds a server. False if it is there, or if there are too many: then clients are not told of it.
    pub fn add(&mut self, server: ServerName) -> bool {
        if self.servers.len() >= PUBLISHED_MAX || self.servers.iter().any(|(known, _)| *known == server) {
            return false;
        }
        self.servers.push((server, 0));
        true
    }

    /// Leaves out servers. A client cuts all connections to the address of a dead one, also those to its successor.
    pub fn retain(&mut self, mut wanted: impl FnMut(&ServerName) -> bool) {
        self.servers.retain(|(server, _)| wanted(server));
    }

    pub fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    /// The names of a message that is sent at once: those that were never sent. Empty if there are none.
    pub fn next_new(&mut self) -> Vec<ServerName> {
        let new = (0..self.servers.len()).filter(|at| self.servers[*at].1 == 0);
        let new = new.take(NAMES_MAX).collect();
        self.take(new)
    }

    /// The names of the message of a period: those that were sent least.
    pub fn least_sent(&mut self) -> Vec<ServerName> {
        let mut least: Vec<usize> = (0..self.servers.len()).collect();
        least.sort_by_key(|at| self.servers[*at].1);
        least.truncate(NAMES_MAX);
        self.take(least)
    }

    fn take(&mut self, places: Vec<usize>) -> Vec<ServerName> {
        assert!(places.len() <= NAMES_MAX, "a message with {} names fits into no packet", places.len());
        let names = places.iter().map(|at| self.servers[*at].0.clone()).collect();
        for at in places {
            self.servers[at].1 += 1;
        }
        self.servers.retain(|(_, sent)| *sent < SENDS);
        names
    }
}

/// The `ClusterStatus` that HBase's master publishes: dead servers, and who says so. Byte for byte what
/// `ClusterMetricsBuilder.toClusterStatus` makes of it.
pub fn status_message(version: &str, cluster_id: &str, master: &ServerName, dead: &[ServerName]) -> Vec<u8> {
    let status = pb::ClusterStatus {
        hbase_version: Some(pb::HBaseVersionFileContent { version: version.to_string() }),
        cluster_id: Some(pb::ClusterId { cluster_id: cluster_id.to_string() }),
        master: Some(master.to_pb()),
        dead_servers: dead.iter().map(ServerName::to_pb).collect(),
        // HBase publishes no port of a page, and writes the 0 all the same.
        master_info_port: Some(0),
        ..Default::default()
    };
    status.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> ServerName {
        ServerName::new("h", 16020, number as i64)
    }

    fn with(count: usize) -> PublishedDead {
        let mut dead = PublishedDead::default();
        assert!((0..count).all(|number| dead.add(name(number))));
        dead
    }

    #[test]
    fn each_server_is_sent_five_times() {
        let mut dead = with(1);
        assert!(!dead.add(name(0)), "it is there");
        assert_eq!(dead.next_new(), [name(0)]);
        assert_eq!(dead.next_new(), []);
        for _ in 1..SENDS {
            assert!(!dead.is_empty());
            assert_eq!(dead.least_sent(), [name(0)]);
        }
        assert!(dead.is_empty());
        assert_eq!(dead.least_sent(), []);
    }

    #[test]
    fn a_message_has_ten_names_and_the_new_ones_come_first() {
        let mut dead = with(12);
        assert_eq!(dead.next_new(), (0..10).map(name).collect::<Vec<_>>());
        assert_eq!(dead.next_new(), [name(10), name(11)]);
        assert!(dead.add(name(12)));
        assert_eq!(dead.least_sent()[..3], [name(12), name(0), name(1)]);
        let mut sent = vec![0; 13];
        while !dead.is_empty() {
            let names = dead.least_sent();
            assert!(names.len() <= NAMES_MAX);
            names.iter().for_each(|it| sent[it.start_code as usize] += 1);
        }
        // Nine were sent twice before, and the newest one once.
        assert_eq!(sent, [3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4]);
    }

    #[test]
    fn the_list_has_a_limit_and_servers_that_came_back_leave_it() {
        let mut dead = with(PUBLISHED_MAX);
        assert!(!dead.add(name(PUBLISHED_MAX)));
        dead.retain(|server| server.start_code >= 990);
        assert_eq!(dead.next_new(), (990..1000).map(name).collect::<Vec<_>>());
        assert!(dead.add(name(PUBLISHED_MAX)));
    }

    /// The bytes are those of `ClusterMetricsBuilder.toClusterStatus` of HBase 2.6.4 with the same content.
    #[test]
    fn the_message_is_that_of_hbase() {
        let (master, dead) = (
            ServerName::new("m1.example", 16000, 1700000000001),
            ServerName::new("127.0.0.1", 16020, 1700000000002),
        );
        let id = "5f3c1f2e-0000-4000-8000-00000000abcd";
        let bytes = status_message("2.6.4", id, &master, &[dead.clone(), ServerName::new("h2", 60020, 7)]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        let decoded = pb::ClusterStatus::decode(bytes.as_slice()).unwrap();
        assert_eq!(ServerName::from_pb(&decoded.dead_servers[0]).unwrap(), dead);
        assert_eq!(ServerName::from_pb(&decoded.master.unwrap()).unwrap(), master);
    }

    const GOLDEN: &str = concat!(
        "0a070a05322e362e341a150a093132372e302e302e3110947d1882d095ffbc311a0a0a02683210f4d40318072a260a243566336331663265",
        "2d303030302d343030302d383030302d3030303030303030616263643a160a0a6d312e6578616d706c6510807d1881d095ffbc315000",
    );
}
