//! What a source sends, to a double of a peer: one that is slow, gone for a while, loses answers, refuses, or answers garbage.

#![allow(clippy::disallowed_methods)] // the time is the real one: so is the connection to the peer

use crate::peer;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::settings;
use crate::peer::here::{Here, OWN, description, in_file_names, open, rows, waits};
use crate::peer::{Peer, Say};
use halcyon_contract::ReplicationSources;
use halcyon_env::sim::SimFileSystem;
use halcyon_proto::pb;
use halcyon_regionserver::RegionServerSettings;
use halcyon_rpc::exceptions;
use halcyon_schema::{TableName, layout, peer_files};
use halcyon_wal::{SyncMode, WalReader};
use prost::Message;

#[test]
fn a_peer_gets_all_edits_in_order_and_the_ids_of_those_who_have_them() {
    let (here, peer) = (Here::new(), Peer::start(|_| Say::Done));
    here.put("before");
    here.add_peer(&peer);
    for row in rows(0..40) {
        here.put(&row);
        if row.ends_with('9') {
            here.roll();
        }
    }
    waits("all rows arrive", || peer.rows().len() >= 41);
    let mut got = peer.rows();
    // the WAL that was written when the peer was added is sent as a whole
    got.retain(|row| row != "before");
    assert_eq!(got, rows(0..40));
    for entry in peer.entries() {
        let ids: Vec<pb::Uuid> = entry.key.cluster_ids.clone();
        assert_eq!(ids.len(), 1, "{entry:?}");
        assert_eq!(&entry.key.table_name[..], b"sent");
    }
    assert!(peer.cluster_ids().iter().all(|id| id == OWN));
    waits("the lag ends", || here.load().replication_lag == 0 && here.load().running());
    waits("all are counted", || here.load().o_ps_shipped() >= 41);
}

/// Its entries need those before them, and come in many batches.
#[test]
fn edits_of_compressed_wals_are_sent_as_well() {
    let settings = RegionServerSettings {
        wal_compression: true,
        wal_value_compression: true,
        replication_batch_entries: 3,
        ..settings()
    };
    let refusing = |number: usize| if number % 4 == 1 { Say::Refuse(&exceptions::IO) } else { Say::Done };
    let (here, peer) = (Here::on(SimFileSystem::new(), settings), Peer::start(refusing));
    here.add_peer(&peer);
    for row in rows(0..40) {
        here.put(&row);
        if row.ends_with('9') {
            waits("a part of a WAL arrives", || !peer.rows().is_empty());
            here.roll();
        }
    }
    waits("all rows arrive", || peer.rows().len() >= 40);
    assert_eq!(peer.rows(), rows(0..40));
    let (env, dir) = (here.lab.fs.env(), wal_dir(&here));
    let newest = env.fs.list(&dir).unwrap().into_iter().map(|file| file.name).max().unwrap();
    let read = WalReader::open(&env, &dir.join(newest)).unwrap();
    assert!(read.header().has_compression() && read.header().has_value_compression());
}

#[test]
fn tables_without_a_scope_stay_here() {
    let (here, peer) = (Here::new(), Peer::start(|_| Say::Done));
    here.add_peer(&peer);
    here.lab.put("unsent", "q", "v");
    here.put("a");
    waits("the row arrives", || !peer.rows().is_empty());
    assert_eq!(peer.rows(), ["a"]);
}

#[test]
fn a_peer_that_refuses_gets_everything_later_and_in_order() {
    let (here, peer) = (
        Here::new(),
        Peer::start(|number| match number % 3 {
            2 => Say::Done,
            1 => Say::Refuse(&exceptions::IO),
            _ => Say::Fail,
        }),
    );
    here.add_peer(&peer);
    rows(0..10).iter().for_each(|row| here.put(row));
    waits("all rows arrive", || peer.rows().len() >= 10);
    assert_eq!(peer.rows(), rows(0..10));
    assert!(peer.calls() >= 3);
}

#[test]
fn an_answer_that_is_lost_makes_a_peer_get_edits_twice_and_never_miss_any() {
    let (here, peer) =
        (Here::new(), Peer::start(|number| if number == 0 { Say::DoneAndFail } else { Say::Done }));
    here.add_peer(&peer);
    rows(0..5).iter().for_each(|row| here.put(row));
    waits("rows arrive again", || peer.rows().len() >= 6);
    here.put("last");
    waits("the last row arrives", || peer.rows().last().is_some_and(|row| row == "last"));
    let got = peer.rows();
    for row in rows(0..5) {
        assert!(got.contains(&row), "{row} is missing in {got:?}");
    }
    let first = got.iter().position(|row| *row == "r000").unwrap();
    assert!(got[first + 1..].contains(&"r000".to_string()), "the first batch came twice: {got:?}");
}

#[test]
fn a_peer_that_is_gone_for_a_while_is_waited_for() {
    let (here, peer) = (Here::new(), Peer::start(|_| Say::Done));
    peer.zookeeper_is(peer::ZooKeeper::Closes);
    here.add_peer(&peer);
    assert!(!here.load().edits_since_restart());
    here.put("a");
    waits("the source says that it does not run", || !here.load().running());
    waits("the lag counts", || here.load().time_stamp_of_next_to_replicate.unwrap_or(0) > 0);
    // The shell takes 0 for "No Ops shipped since last restart".
    let load = here.load();
    assert_eq!((load.edits_since_restart(), load.time_stamp_of_last_shipped_op), (true, 0));
    assert!(peer.rows().is_empty());
    let wals = here.lab.fs.env().fs.list(&wal_dir(&here)).unwrap();
    let names: Vec<String> = wals.into_iter().map(|file| file.name).collect();
    let needed = here.lab.server.needed_wals(&["p".to_string()], &names).unwrap();
    assert!(!needed.is_empty(), "WALs are kept for a peer that is gone");
    peer.zookeeper_is(peer::ZooKeeper::Answers);
    waits("the row arrives", || peer.rows() == ["a"]);
    waits("the shipment is noted", || here.load().time_stamp_of_last_shipped_op > 0);
    let load = here.load();
    assert_eq!(load.time_stamp_of_next_to_replicate, Some(load.time_stamp_of_last_shipped_op));
    waits("there is no lag", || here.load().replication_lag == 0);
}

fn wal_dir(here: &Here) -> std::path::PathBuf {
    layout::wals_dir("/hbase".as_ref()).join(here.lab.server.server_name().to_string())
}

#[test]
fn a_peer_that_lies_gets_nothing_until_it_stops() {
    for lie in [
        peer::ZooKeeper::Garbage,
        peer::ZooKeeper::Id("no uuid".to_string()),
        peer::ZooKeeper::Id(OWN.to_string()),
        peer::ZooKeeper::NoServers,
    ] {
        let (here, peer) = (Here::new(), Peer::start(|_| Say::Done));
        peer.zookeeper_is(lie.clone());
        here.add_peer(&peer);
        here.put("a");
        waits("the source says that it does not run", || !here.load().running());
        assert!(peer.rows().is_empty(), "{lie:?}");
        peer.zookeeper_is(peer::ZooKeeper::Answers);
        waits("the row arrives", || peer.rows() == ["a"]);
    }
    let (here, peer) = (Here::new(), Peer::start(|number| if number < 2 { Say::Garbage } else { Say::Done }));
    here.add_peer(&peer);
    here.put("a");
    waits("the row arrives", || peer.rows() == ["a"]);
}

#[test]
fn a_peer_that_never_answers_can_be_disabled_and_removed() {
    let (here, peer) = (Here::new(), Peer::start(|_| Say::Never));
    here.add_peer(&peer);
    here.put("a");
    waits("the call is there", || peer.calls() > 0);
    let began = Instant::now();
    here.lab.server.peer_changed(&description(&peer, false)).unwrap();
    waits("the source stands still", || !here.load().running());
    here.lab.server.peer_removed("p").unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(here.lab.server.server_load().repl_load_source.is_empty());
}

#[test]
fn a_server_that_starts_again_goes_on_where_the_peer_is() {
    let peer = Peer::start(|_| Say::Done);
    let durable = || RegionServerSettings { wal_sync: SyncMode::Fsync, ..settings() };
    let here = Here::on(SimFileSystem::new(), durable());
    here.add_peer(&peer);
    rows(0..5).iter().for_each(|row| here.put(row));
    waits("the rows arrive", || peer.rows().len() == 5);
    waits("it is noted", || here.load().o_ps_shipped() == 5);
    let crashed = here.lab.fs.crash(halcyon_env::sim::CrashMode::ALL[0], 1);
    here.lab.server.abort("the machine died");
    let again = Here::on(crashed, durable());
    again.lab.server.peer_changed(&description(&peer, true)).unwrap();
    again.put("after");
    waits("the new row arrives", || peer.rows().last().is_some_and(|row| row == "after"));
    let got = peer.rows();
    assert!(got.len() <= 11, "what was noted is not sent again: {got:?}");
}

#[test]
fn a_server_of_a_cluster_obeys_the_files_of_peers() {
    let (root, here, peer) = (Path::new("/hbase"), Here::new(), Peer::start(|_| Say::Done));
    let env = here.lab.fs.env();
    here.lab.server.replicate_own_wals();
    let mut wrong = description(&peer, true);
    wrong.config.clusterkey = Some("no key".to_string());
    peer_files::write(&env, root, &wrong).unwrap();
    here.lab.server.read_peers().unwrap(); // the others, if there were any, get their edits
    assert!(here.lab.server.server_load().repl_load_source.is_empty());
    let error = here.lab.server.peer_changed(&wrong).unwrap_err();
    assert!(error.kind().is_permanent(), "{error}");
    let queues = layout::replication_queues_dir(root);
    assert!(!env.fs.exists(&queues).unwrap() || env.fs.list(&queues).unwrap().is_empty());

    // A queue that a standalone server finds is one that a server of a cluster has left.
    let alone = Here::new();
    let left = Here::on(SimFileSystem::new(), settings());
    left.lab.server.replicate_own_wals();
    left.lab.server.peer_changed(&description(&peer, false)).unwrap();
    let name = format!("p-{}", in_file_names(left.lab.server.server_name()));
    let bytes = left.lab.fs.env().fs.read(&queues.join(&name)).unwrap();
    let env = alone.lab.fs.env();
    env.fs.create_dir_all(&queues).unwrap();
    env.fs.replace(&queues.join(&name), &bytes).unwrap();
    alone.add_peer(&peer);
    alone.put("a");
    waits("the row arrives", || peer.rows().last().is_some_and(|row| row == "a"));
    assert!(!env.fs.exists(&queues.join(&name)).unwrap(), "it was adopted");
}

/// HDFS shows nothing of a file that its writer has left open.
#[test]
fn a_peer_gets_what_is_in_a_wal_that_was_given_up() {
    let settings = || RegionServerSettings { wal_sync: SyncMode::Remote, ..settings() };
    for seed in 0..6 {
        let (fs, peer) = (SimFileSystem::hdfs(seed), Peer::start(|_| Say::Done));
        let here = Here::on(fs.clone(), settings());
        here.add_peer(&peer);
        here.put("first");
        waits("the first row arrives", || peer.rows() == ["first"]);
        peer.zookeeper_is(peer::ZooKeeper::Closes);
        here.lab.server.peer_changed(&description(&peer, false)).unwrap();
        let wals = || fs.env().fs.list(&wal_dir(&here)).unwrap().len();
        let before = wals();
        let is_over = Arc::new(AtomicBool::new(false));
        let ticking = {
            // A log that has met an error waits before it tries another file.
            let (clock, is_over) = (here.lab.clock.clone(), is_over.clone());
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    clock.advance(Duration::from_millis(10));
                    std::thread::sleep(Duration::from_millis(1));
                }
            })
        };
        let mut put = Vec::new();
        for node in 0..4 {
            fs.set_data_node(node, false);
            for number in 0..3 {
                put.push(format!("r{node}-{number}"));
                here.put(put.last().unwrap());
            }
            fs.set_data_node(node, true);
        }
        is_over.store(true, Ordering::Relaxed);
        ticking.join().unwrap();
        assert!(wals() > before, "seed {seed}: no WAL was given up");
        peer.zookeeper_is(peer::ZooKeeper::Answers);
        here.lab.server.peer_changed(&description(&peer, true)).unwrap();
        waits("the last row arrives", || peer.rows().last() == put.last());
        let got = peer.rows();
        let missing: Vec<_> = put.iter().filter(|row| !got.contains(row)).collect();
        assert!(missing.is_empty(), "seed {seed}: {missing:?} of {got:?}");
    }
}

/// As the file of a queue holds it.
#[derive(Clone, PartialEq, Message)]
struct StoredQueue {
    #[prost(string, repeated, tag = "1")]
    done: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    positions: Vec<StoredPosition>,
}

#[derive(Clone, PartialEq, Message)]
struct StoredPosition {
    #[prost(string, tag = "1")]
    wal: String,
    #[prost(uint64, tag = "2")]
    offset: u64,
}

/// A WAL with three rows, and where its entries begin and end.
struct Three {
    bytes: Vec<u8>,
    header: usize,
    ends: [usize; 3],
}

impl Three {
    fn new() -> Three {
        let here = Here::new();
        ["a", "b", "c"].iter().for_each(|row| here.put(row));
        let (env, dir) = (here.lab.fs.env(), wal_dir(&here));
        let path = dir.join(env.fs.list(&dir).unwrap().into_iter().map(|file| file.name).max().unwrap());
        let mut reader = WalReader::open(&env, &path).unwrap();
        let header = reader.offset() as usize;
        let mut ends = Vec::new();
        while let Some((_, cells)) = reader.next_entry().unwrap() {
            if cells[0].family() == b"f" {
                ends.push(reader.offset() as usize);
            }
        }
        let bytes = env.fs.read(&path).unwrap();
        Three { bytes, header, ends: ends.try_into().expect("three rows end somewhere") }
    }

    /// A WAL with the rows from that number on, and before that one.
    fn part(&self, from: usize, to: usize) -> Vec<u8> {
        let begin = if from == 0 { self.header } else { self.ends[from - 1] };
        [&self.bytes[..self.header], &self.bytes[begin..self.ends[to - 1]]].concat()
    }

    /// Where the first row of such a part ends.
    fn first_end(&self, from: usize) -> u64 {
        (self.header + self.ends[from] - self.ends[from - 1]) as u64
    }
}

/// Leaves WALs of a server that is gone, and its queue. The peer has those that are `done`, and of the last one what is before
/// the offset.
fn leave(fs: &SimFileSystem, queue: &str, wals: &[(&str, Vec<u8>)], done: &[&str], offset: u64) {
    let (env, root) = (fs.env(), Path::new("/hbase"));
    let (dir, queues) = (layout::old_wals_dir(root), layout::replication_queues_dir(root));
    [&dir, &queues].into_iter().for_each(|dir| env.fs.create_dir_all(dir).unwrap());
    wals.iter().for_each(|(name, bytes)| env.fs.replace(&dir.join(name), bytes).unwrap());
    let positions = vec![StoredPosition { wal: wals.last().unwrap().0.to_string(), offset }];
    let stored = StoredQueue { done: done.iter().map(ToString::to_string).collect(), positions };
    env.fs.replace(&queues.join(queue), &[vec![1], stored.encode_to_vec()].concat()).unwrap();
}

/// The source had looked at the second WAL before an entry was in it, and noted the place behind its header. Then the round came that the first
/// one has as well, which had failed. The peer got it once more.
#[test]
fn a_round_that_is_repeated_behind_a_noted_header_is_sent_once() {
    let three = Three::new();
    let (here, peer) = (Here::new(), Peer::start(|_| Say::Done));
    let [failed, next] = ["gone%2C1%2C1.1", "gone%2C1%2C1.2"];
    let wals = [(failed, three.part(0, 2)), (next, three.part(1, 3))];
    leave(&here.lab.fs, "p", &wals, &[failed], three.header as u64);
    here.lab.server.peer_changed(&description(&peer, true)).unwrap();
    here.put("last");
    waits("the last row arrives", || peer.rows().last().is_some_and(|row| row == "last"));
    assert_eq!(peer.rows(), ["c", "last"]);
}

/// A round had failed in the current WAL and in the spare one, and went to a third one. The server died before the spare one was removed.
/// The peer got the round once more, behind a newer one.
#[test]
fn a_wal_that_a_dead_server_had_left_out_is_not_sent() {
    let three = Three::new();
    let [failed, spare, third] = ["gone%2C1%2C1.1", "gone%2C1%2C1.2", "gone%2C1%2C1.3"];
    let wals = [(failed, three.part(0, 1)), (spare, three.part(1, 2)), (third, three.part(1, 3))];
    // It has sent the round, or it had looked at the third WAL before that was in it.
    let cases = [(three.first_end(1), &["c"][..]), (three.header as u64, &["b", "c"])];
    for (is_claimed, (offset, expected)) in
        [(false, cases[0]), (false, cases[1]), (true, cases[0]), (true, cases[1])]
    {
        let (fs, peer) = (SimFileSystem::new(), Peer::start(|_| Say::Done));
        let queue = if is_claimed { "p-gone%2C1%2C1" } else { "p" };
        leave(&fs, queue, &wals, &[failed], offset);
        let here = match is_claimed {
            true => {
                peer_files::write(&fs.env(), Path::new("/hbase"), &description(&peer, true)).unwrap();
                let here = Here::one_of_several(&fs, settings(), 1);
                here.lab.server.claim_queue("p", queue).unwrap();
                here
            }
            false => {
                let here = Here::on(fs.clone(), settings());
                here.lab.server.peer_changed(&description(&peer, true)).unwrap();
                here
            }
        };
        let dir = layout::replication_queues_dir(Path::new("/hbase"));
        // Also the spare one, or its file would stay for ever.
        let is_finished = || {
            let files = fs.env().fs.list(&dir).unwrap();
            let queues = files.iter().filter_map(|file| fs.env().fs.read(&dir.join(&file.name)).ok());
            let done: Vec<_> =
                queues.flat_map(|bytes| StoredQueue::decode(&bytes[1..]).unwrap().done).collect();
            [spare, third].iter().all(|wal| done.iter().any(|done| done == wal))
        };
        waits("the WALs are noted as finished", is_finished);
        assert_eq!(peer.rows(), expected, "claimed: {is_claimed}, noted: {offset}");
        drop(here);
    }
}

#[test]
fn bandwidth_limits_a_peer() {
    let (here, peer) = (Here::new(), Peer::start(|_| Say::Done));
    here.lab.server.begin_queue("p").unwrap();
    let mut slow = description(&peer, true);
    slow.config.bandwidth = Some(100);
    here.lab.server.peer_changed(&slow).unwrap();
    here.put("a");
    waits("the first row arrives", || !peer.rows().is_empty());
    let began = Instant::now();
    here.put("b");
    waits("the second row arrives", || peer.rows().len() == 2);
    // a cell of 37 bytes at 100 bytes a second
    assert!(began.elapsed() > Duration::from_millis(200), "{:?}", began.elapsed());
}

#[test]
fn edits_of_a_deleted_table_are_dropped_if_that_is_wanted() {
    for wanted in [true, false] {
        let settings = RegionServerSettings { drop_deleted_tables: wanted, ..settings() };
        let here = Here::on(SimFileSystem::new(), settings);
        let peer = Peer::lacking("gone");
        let gone = open(&here.lab.server, "gone");
        peer.zookeeper_is(peer::ZooKeeper::Closes);
        here.add_peer(&peer);
        here.put("a");
        here.put_into(&gone, "of the deleted table");
        here.put("b");
        // as the master deletes a table: its regions are closed, and its directory goes
        let table = TableName::parse(b"gone").unwrap();
        here.lab.fs.env().fs.remove_dir_all(&table.dir("/hbase".as_ref())).unwrap();
        peer.zookeeper_is(peer::ZooKeeper::Answers);
        if wanted {
            waits("the other rows arrive", || peer.rows() == ["a", "b"]);
        } else {
            waits("the peer has refused", || peer.calls() >= 2);
            assert!(peer.rows().is_empty(), "they wait for the table");
        }
    }
}

fn needed_hfiles(here: &Here) -> Vec<String> {
    here.lab.server.needed_hfiles(&["p".to_string()]).unwrap()
}

fn with_loads() -> RegionServerSettings {
    RegionServerSettings {
        replicates_bulk_loads: true,
        replication_cluster_id: "here".to_string(),
        wal_sync: SyncMode::Fsync,
        ..settings()
    }
}

#[test]
fn a_peer_gets_bulk_loads_and_their_files_are_kept_until_then() {
    let (here, peer) = (Here::on(SimFileSystem::new(), with_loads()), Peer::start(|_| Say::Done));
    peer.zookeeper_is(peer::ZooKeeper::Closes);
    here.add_peer(&peer);
    here.bulk_load("a", true);
    let loaded = here.store_files();
    assert_eq!(loaded.len(), 1);
    assert_eq!(needed_hfiles(&here), loaded);
    // over the end of the server
    let crashed = here.lab.fs.crash(halcyon_env::sim::CrashMode::ALL[0], 1);
    here.lab.server.abort("the machine died");
    let again = Here::on(crashed, with_loads());
    assert_eq!(needed_hfiles(&again), loaded, "also before the peer is known");
    peer.zookeeper_is(peer::ZooKeeper::Answers);
    again.lab.server.peer_changed(&description(&peer, true)).unwrap();
    waits("the bulk load arrives", || !peer.loads().is_empty());
    let load = peer.loads().remove(0);
    assert_eq!(load.encoded_region_name, here.info.encoded_name().as_bytes());
    assert_eq!(load.stores.iter().flat_map(|store| store.store_file.clone()).collect::<Vec<_>>(), loaded);
    assert!(load.replicate() && load.cluster_ids == [OWN]);
    assert_eq!(peer.dirs(), Some(("file:/hbase/data".to_string(), "file:/hbase/archive/data".to_string())));
    assert!(peer.cluster_ids().iter().all(|id| id == "here"));
    waits("the file is not needed any more", || needed_hfiles(&again).is_empty());
    again.put("behind");
    waits("what follows arrives", || peer.rows().last().is_some_and(|row| row == "behind"));
}

#[test]
fn bulk_loads_stay_here_unless_they_are_to_be_sent() {
    for (settings, replicate) in [(settings(), true), (with_loads(), false)] {
        let (here, peer) = (Here::on(SimFileSystem::new(), settings), Peer::start(|_| Say::Done));
        here.add_peer(&peer);
        here.bulk_load("a", replicate);
        assert!(needed_hfiles(&here).is_empty());
        here.put("behind");
        waits("what follows arrives", || peer.rows() == ["behind"]);
        assert!(peer.loads().is_empty());
    }
}
