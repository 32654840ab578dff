//! Serial peers of a cluster: the edits of a region arrive in their order, whatever servers have had it, and whoever dies.

#![allow(clippy::disallowed_methods)] // the time is the real one: so is the connection to the peer

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{ROOT, settings};
use crate::peer::here::{Here, archive_wals, description, waits};
use crate::peer::{Peer, Say};
use bytes::Bytes;
use halcyon_cell::{Cell, ErrorKind};
use halcyon_contract::{
    CloseRegionRequest, OpenRegionRequest, PeerDescription, RegionServerApi, ReplicationBooks,
    ReplicationSources,
};
use halcyon_env::sim::SimFileSystem;
use halcyon_regionserver::{BarriersFuture, ReadBarriers, RegionServer};
use halcyon_schema::{
    FamilyDescriptor, RegionBarriers, RegionInfo, ServerName, TableDescriptor, TableName, barrier_cells,
    layout, parents_cell, peer_files,
};

/// So long nothing must arrive that has to wait.
const QUIET: Duration = Duration::from_millis(700);

/// `hbase:meta`, as far as it has barriers.
#[derive(Default)]
struct Meta {
    rows: Mutex<BTreeMap<Bytes, Vec<Cell>>>,
    clock: Mutex<i64>,
}

impl Meta {
    fn put(&self, cells: impl FnOnce(i64) -> Vec<Cell>) {
        let mut clock = self.clock.lock().unwrap();
        *clock += 1;
        for cell in cells(*clock) {
            let row = Bytes::copy_from_slice(cell.row());
            self.rows.lock().unwrap().entry(row).or_default().push(cell);
        }
    }

    fn all(&self) -> Vec<RegionBarriers> {
        self.rows.lock().unwrap().values().filter_map(|row| RegionBarriers::of_row(row)).collect()
    }
}

impl ReadBarriers for Meta {
    fn find<'a>(&'a self, _: &'a TableName, _: &'a [u8], encoded_name: &'a str) -> BarriersFuture<'a> {
        let end = format!(".{encoded_name}.");
        let found = self.all().into_iter().find(|found| found.region_name.ends_with(end.as_bytes()));
        Box::pin(async move { Ok(found) })
    }

    fn named<'a>(&'a self, region_name: &'a [u8]) -> BarriersFuture<'a> {
        let found = self.all().into_iter().find(|found| found.region_name == region_name);
        Box::pin(async move { Ok(found) })
    }
}

/// The cluster: files, meta, the peer and the master's books.
struct World {
    fs: SimFileSystem,
    meta: Arc<Meta>,
    peer: Peer,
    table: Arc<TableDescriptor>,
    books: Arc<dyn ReplicationBooks>,
    _master: Arc<RegionServer>,
}

impl World {
    fn new(peer: Peer) -> World {
        let fs = SimFileSystem::new();
        let family = FamilyDescriptor::new(b"f").unwrap().with("REPLICATION_SCOPE", "1");
        let table = TableDescriptor::new(TableName::parse(b"moved").unwrap()).with_family(family);
        let name = ServerName::new("localhost", 100, 9);
        let master = RegionServer::start_as(fs.env(), ROOT.as_ref(), None, settings(), name).unwrap();
        let books = master.replication_books();
        let world = World { fs, meta: Arc::default(), peer, table: Arc::new(table), books, _master: master };
        peer_files::write(&world.fs.env(), ROOT.as_ref(), &world.serial(true)).unwrap();
        world.books.peer_changed(&world.serial(true)).unwrap();
        world
    }

    fn serial(&self, is_enabled: bool) -> PeerDescription {
        let mut serial = description(&self.peer, is_enabled);
        serial.config.serial = Some(true);
        serial
    }

    fn server(&self, port: u16) -> Here {
        Here::one_of_several_with(&self.fs, settings(), port, |server| {
            server.read_barriers_with(self.meta.clone());
        })
    }

    fn region(&self, start: &str, end: &str, id: u64, at: &Here) -> RegionInfo {
        let bytes = |key: &str| Bytes::copy_from_slice(key.as_bytes());
        let region = RegionInfo::new(self.table.name().clone(), bytes(start), bytes(end), id);
        at.lab.server.region_files().create_region_files(&region, &self.table).unwrap();
        region
    }

    /// As a master has it opened: meta has the barrier before the region serves.
    fn open(&self, region: &RegionInfo, at: &Here) {
        let name = at.lab.server.server_name().clone();
        let announce = |seq: u64| {
            self.meta.put(|timestamp| barrier_cells(region, seq, &name, timestamp).to_vec());
            Ok(())
        };
        let request = OpenRegionRequest::new(region, &self.table);
        RegionServerApi::open_region(&*at.lab.server, &request, &announce).unwrap();
    }

    fn move_region(&self, region: &RegionInfo, from: &Here, to: &Here) {
        close(region, from);
        self.open(region, to);
    }

    /// What was in memory there is in recovered edits then, and the WALs are archived.
    fn kill(&self, server: Here, other: &Here) -> ServerName {
        let name = server.lab.server.server_name().clone();
        server.lab.server.abort("killed");
        let env = self.fs.env();
        let dir = layout::wals_dir(ROOT.as_ref()).join(name.to_string());
        for wal in env.fs.list(&dir).unwrap() {
            let path = dir.join(wal.name);
            let below = path.strip_prefix(ROOT).unwrap();
            let split = RegionServerApi::split_wal(&*other.lab.server, below).unwrap();
            assert_eq!(split, halcyon_contract::SplitWal::Done);
        }
        archive_wals(&env, &name);
        name
    }

    fn share(&self, servers: &[&Here]) -> usize {
        let left = self.books.left_queues().unwrap();
        for (number, queue) in left.iter().enumerate().filter(|(_, queue)| queue.claimed_by.is_none()) {
            match servers[number % servers.len()].lab.server.claim_queue("p", &queue.name) {
                Err(error) if error.kind() == ErrorKind::Busy => {}
                claimed => claimed.unwrap(),
            }
        }
        left.len()
    }

    /// The rows that have arrived, each where it came first.
    fn arrived(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        self.peer.rows().into_iter().filter(|row| seen.insert(row.clone())).collect()
    }

    fn counts(&self) -> Vec<usize> {
        self.books.sent_ranges(&["p".to_string()], &self.meta.all()).unwrap()
    }
}

fn close(region: &RegionInfo, at: &Here) {
    let request = CloseRegionRequest { region: region.clone(), abort: false, destination: None };
    RegionServerApi::close_region(&*at.lab.server, &request).unwrap();
}

fn names(prefix: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{prefix}{number:03}")).collect()
}

#[test]
fn a_region_that_moves_waits_for_what_was_written_before() {
    let world = World::new(Peer::start(|_| Say::Done));
    let (first, second) = (world.server(1), world.server(2));
    let region = world.region("", "", 1, &first);
    world.open(&region, &first);
    // The first server sends nothing for a while.
    first.lab.server.peer_changed(&world.serial(false)).unwrap();
    names("r", 0..5).iter().for_each(|row| first.put_into(&region, row));
    world.move_region(&region, &first, &second);
    names("r", 5..9).iter().for_each(|row| second.put_into(&region, row));
    second.put("of another region, and behind");
    std::thread::sleep(QUIET);
    assert!(world.peer.rows().is_empty(), "{:?}", world.peer.rows());
    assert_eq!(world.counts(), [0]);

    // It comes back, and goes again.
    world.move_region(&region, &second, &first);
    names("r", 9..12).iter().for_each(|row| first.put_into(&region, row));
    world.move_region(&region, &first, &second);
    names("r", 12..15).iter().for_each(|row| second.put_into(&region, row));
    first.lab.server.peer_changed(&world.serial(true)).unwrap();
    waits("all arrives", || world.arrived().len() == 16);
    let mut got = world.arrived();
    got.retain(|row| row.starts_with('r'));
    assert_eq!(got, names("r", 0..15));
    waits("the master learns of it", || world.counts() == [3]);

    // What comes to a server that has sent all goes at once.
    names("r", 15..18).iter().for_each(|row| second.put_into(&region, row));
    waits("it arrives", || world.arrived().len() == 19);
    world.move_region(&region, &second, &first);
    waits("the last but one is sent, too", || world.counts() == [4]);
}

#[test]
fn what_a_dead_server_left_goes_before_what_follows_it() {
    let world = World::new(Peer::start(|_| Say::Done));
    let (first, second, third) = (world.server(1), world.server(2), world.server(3));
    let region = world.region("", "", 1, &first);
    world.open(&region, &first);
    first.lab.server.peer_changed(&world.serial(false)).unwrap();
    names("r", 0..5).iter().for_each(|row| first.put_into(&region, row));
    // Nothing is written between this opening and the next.
    world.move_region(&region, &first, &third);
    world.kill(third, &second);
    world.open(&region, &second);
    names("r", 5..9).iter().for_each(|row| second.put_into(&region, row));
    let dead = world.kill(first, &second);
    std::thread::sleep(QUIET);
    assert!(world.peer.rows().is_empty(), "{:?}", world.peer.rows());

    // The claimer dies, too, before it has sent anything.
    let claimer = world.server(4);
    let queue = world.books.left_queues().unwrap().into_iter().find(|queue| queue.server == dead).unwrap();
    claimer.lab.server.peer_changed(&world.serial(false)).unwrap();
    peer_files::write(&world.fs.env(), ROOT.as_ref(), &world.serial(false)).unwrap();
    claimer.lab.server.claim_queue("p", &queue.name).unwrap();
    peer_files::write(&world.fs.env(), ROOT.as_ref(), &world.serial(true)).unwrap();
    std::thread::sleep(QUIET);
    assert!(world.peer.rows().is_empty(), "{:?}", world.peer.rows());
    world.kill(claimer, &second);
    waits("nothing is left", || world.share(&[&second]) == 0);
    waits("all arrives", || world.arrived().len() == 9);
    assert_eq!(world.arrived(), names("r", 0..9));
    waits("the master learns of it", || world.counts() == [2]);
}

#[test]
fn daughters_and_merged_regions_wait_for_those_they_come_from() {
    let world = World::new(Peer::start(|_| Say::Done));
    let (first, second, third) = (world.server(1), world.server(2), world.server(3));
    let parent = world.region("", "", 1, &first);
    world.open(&parent, &first);
    first.lab.server.peer_changed(&world.serial(false)).unwrap();
    first.put_into(&parent, "a0");
    first.put_into(&parent, "n0");
    close(&parent, &first);
    let daughters = [world.region("", "m", 2, &second), world.region("m", "", 2, &second)];
    for daughter in &daughters {
        world.meta.put(|timestamp| vec![parents_cell(daughter, std::slice::from_ref(&parent), timestamp)]);
    }
    world.open(&daughters[0], &second);
    world.open(&daughters[1], &third);
    second.put_into(&daughters[0], "a1");
    // Of the other one nothing is written.
    close(&daughters[0], &second);
    close(&daughters[1], &third);
    let merged = world.region("", "", 3, &third);
    world.meta.put(|timestamp| vec![parents_cell(&merged, &daughters, timestamp)]);
    world.open(&merged, &third);
    third.put_into(&merged, "a2");
    third.put_into(&merged, "n2");
    std::thread::sleep(QUIET);
    assert!(world.peer.rows().is_empty(), "{:?}", world.peer.rows());
    assert!(world.counts().iter().all(|count| *count == 0), "also of those of which nothing was written");
    first.lab.server.peer_changed(&world.serial(true)).unwrap();
    waits("all arrives", || world.arrived().len() == 5);
    let got = world.arrived();
    let at = |row: &str| got.iter().position(|other| other == row).unwrap();
    assert!(at("a0") < at("a1") && at("a1") < at("a2") && at("n0") < at("n2"), "{got:?}");
    let mut sent: Vec<usize> = world.counts();
    sent.sort_unstable();
    assert_eq!(sent, [0, 1, 1, 1], "all but the merged one, which is open");
}

/// A small generator (xorshift): the order of events has to be the same each time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn edits_arrive_in_their_order_in_whatever_order_regions_move_and_servers_die() {
    for seed in 1..=2_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let world = World::new(Peer::start(move |number| match (number as u64 * 5 + seed) % 9 {
            3 => Say::Fail,
            6 => Say::DoneAndFail,
            _ => Say::Done,
        }));
        let (mut port, mut put) = (3, [0usize; 3]);
        let mut servers: Vec<Here> = (1..=3).map(|port| world.server(port)).collect();
        // Each region has the server with this number.
        let mut places: Vec<(RegionInfo, usize)> = Vec::new();
        for (number, (start, end)) in [("", "1"), ("1", "2"), ("2", "")].into_iter().enumerate() {
            let region = world.region(start, end, 1, &servers[number]);
            world.open(&region, &servers[number]);
            places.push((region, number));
        }
        for _ in 0..60 {
            let (of, to) = (random.below(3), random.below(servers.len()));
            match random.below(8) {
                0..=2 => {
                    for _ in 0..3 {
                        let row = format!("{of}-{:03}", put[of]);
                        servers[places[of].1].put_into(&places[of].0, &row);
                        put[of] += 1;
                    }
                }
                3 | 4 if places[of].1 != to => {
                    world.move_region(&places[of].0, &servers[places[of].1], &servers[to]);
                    places[of].1 = to;
                }
                5 => servers[to].roll(),
                6 => _ = world.share(&servers.iter().collect::<Vec<_>>()),
                7 => {
                    port += 1;
                    let next = world.server(port);
                    let dead = std::mem::replace(&mut servers[to], next);
                    world.kill(dead, &servers[to]);
                    for (region, at) in &places {
                        if *at == to {
                            world.open(region, &servers[to]);
                        }
                    }
                }
                _ => {}
            }
        }
        let all: Vec<&Here> = servers.iter().collect();
        waits("nothing is left", || world.share(&all) == 0);
        waits("all arrives", || world.arrived().len() == put.iter().sum::<usize>());
        let got = world.arrived();
        for (of, count) in put.into_iter().enumerate() {
            let of_region: Vec<&String> =
                got.iter().filter(|row| row.starts_with(&format!("{of}-"))).collect();
            assert!(of_region.is_sorted(), "seed {seed}: {of_region:?}");
            assert_eq!(of_region.len(), count, "seed {seed}");
        }
    }
}
