//! What servers of a cluster leave for a peer when they die: live servers claim it, also from claimers that die, and masters keep the
//! books. Nothing is lost, in whatever order they die.

#![allow(clippy::disallowed_methods)] // the time is the real one: so is the connection to the peer

use crate::peer;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use crate::common::{ROOT, settings};
use crate::peer::here::{Here, archive_wals, description, in_file_names, rows, waits};
use crate::peer::{Peer, Say};
use halcyon_cell::{Cell, CellRef, ErrorKind, SeqId};
use halcyon_contract::{LeftQueue, ReplicationBooks, ReplicationSources};
use halcyon_env::Env;
use halcyon_env::sim::{CrashMode, SimFileSystem};
use halcyon_proto::pb;
use halcyon_regionserver::{RegionServer, RegionServerSettings};
use halcyon_schema::{ServerName, layout, peer_files};
use halcyon_wal::{Durability, SyncMode, Wal, WalConfig, WalEntry, WalReader};

fn durable() -> RegionServerSettings {
    RegionServerSettings {
        wal_sync: SyncMode::Fsync,
        replicates_bulk_loads: true,
        replication_cluster_id: "here".to_string(),
        ..settings()
    }
}

/// The process of an active master, and its books.
struct Master {
    files: Arc<RegionServer>,
    books: Arc<dyn ReplicationBooks>,
}

impl Master {
    fn start(fs: &SimFileSystem, port: u16, peer: &Peer) -> Master {
        let name = ServerName::new("localhost", port, 9);
        let files = RegionServer::start_as(fs.env(), ROOT.as_ref(), None, durable(), name).unwrap();
        let books = files.replication_books();
        books.peer_changed(&description(peer, true)).unwrap();
        Master { files, books }
    }

    fn left(&self) -> Vec<LeftQueue> {
        self.books.left_queues().unwrap()
    }

    /// Has servers claim what is left, as a master orders it.
    fn share(&self, servers: &[&Here]) -> usize {
        let left = self.left();
        for (number, queue) in left.iter().enumerate().filter(|(_, queue)| queue.claimed_by.is_none()) {
            let server = &servers[number % servers.len()].lab.server;
            match server.claim_queue("p", &queue.name) {
                Err(error) if error.kind() == ErrorKind::Busy => {}
                claimed => claimed.unwrap(),
            }
        }
        left.len()
    }

    fn needed(&self, fs: &SimFileSystem) -> HashSet<String> {
        self.books.needed_wals(&["p".to_string()], &archived(&fs.env())).unwrap()
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.files.abort("the test is over");
    }
}

fn archived(env: &Env) -> Vec<String> {
    let listed = env.fs.list(&layout::old_wals_dir(ROOT.as_ref())).unwrap_or_default();
    listed.into_iter().map(|file| file.name).collect()
}

fn queues(env: &Env) -> Vec<String> {
    let listed = env.fs.list(&layout::replication_queues_dir(ROOT.as_ref())).unwrap();
    listed.into_iter().map(|file| file.name).collect()
}

fn set_peer(fs: &SimFileSystem, peer: &Peer, is_enabled: bool) {
    peer_files::write(&fs.env(), ROOT.as_ref(), &description(peer, is_enabled)).unwrap();
}

fn kill(server: Here) -> ServerName {
    let name = server.lab.server.server_name().clone();
    server.lab.server.abort("killed");
    archive_wals(&server.lab.fs.env(), &name);
    name
}

#[test]
fn a_live_server_claims_what_a_dead_one_left_and_another_one_what_that_had_claimed() {
    for (number, mode) in CrashMode::ALL.into_iter().enumerate() {
        let (fs, peer) = (SimFileSystem::new(), Peer::start(|_| Say::Done));
        set_peer(&fs, &peer, true);
        let dead = Here::one_of_several(&fs, durable(), 1);
        rows(0..5).iter().for_each(|row| dead.put(row));
        waits("the rows arrive", || peer.rows().len() == 5);
        dead.roll(); // what is finished is noted durably
        waits("it is noted", || dead.lab.server.source_stats()[0].completed_wals == 1);
        peer.zookeeper_is(peer::ZooKeeper::Closes);
        dead.lab.server.peer_changed(&description(&peer, false)).unwrap();
        rows(5..9).iter().for_each(|row| dead.put(row));
        dead.bulk_load("loaded", true);
        dead.roll();
        rows(9..12).iter().for_each(|row| dead.put(row));
        let mut hfiles = dead.store_files();
        hfiles.retain(|name| name.contains("_SeqId_")); // the region was flushed before
        assert_eq!(hfiles.len(), 1);

        let of_dead = dead.lab.server.server_name().clone();
        let fs = fs.crash(mode, number as u64);
        dead.lab.server.abort("the machine died");
        drop(dead);
        let env = fs.env();
        let master = Master::start(&fs, 100, &peer);
        assert!(master.left().is_empty(), "its WALs are not split");
        archive_wals(&env, &of_dead);
        set_peer(&fs, &peer, false);
        let (first, second) =
            (Here::one_of_several(&fs, durable(), 2), Here::one_of_several(&fs, durable(), 3));
        let needed = master.needed(&fs);
        assert!(!needed.is_empty() && needed.len() < archived(&env).len(), "by the queue that is there");
        let is_needed = |master: &Master| master.books.needed_hfiles(&["p".to_string()]).unwrap() == hfiles;
        assert!(is_needed(&master));

        let (dead, names) =
            (in_file_names(&of_dead), [&first, &second].map(|it| it.lab.server.server_name().clone()));
        let [of_first, of_second] = names.each_ref().map(in_file_names);
        let left = |by: Option<&ServerName>, name: &str| LeftQueue {
            peer_id: "p".to_string(),
            name: name.to_string(),
            server: of_dead.clone(),
            claimed_by: by.cloned(),
        };
        let name = format!("p-{dead}");
        assert_eq!(master.left(), [left(None, &name)]);
        for wrong in ["p", "p-x", &format!("p--{dead}"), &format!("p-{of_first}"), &format!("q-{dead}")] {
            let error = first.lab.server.claim_queue("p", wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}: {error}");
        }
        let error = first.lab.server.claim_queue("p", &format!("p-{of_second}")).unwrap_err();
        assert!(error.kind() == ErrorKind::Busy && error.message().contains("not gone"), "{error}");
        first.lab.server.claim_queue("p", &name).unwrap();
        let claimed = format!("p-{dead}+{of_first}");
        first.lab.server.claim_queue("p", &claimed).unwrap(); // the order may come again
        second.lab.server.claim_queue("p", &name).unwrap(); // the other one was faster
        assert_eq!(master.left(), [left(Some(&names[0]), &claimed)]);
        let error = second.lab.server.claim_queue("p", &claimed).unwrap_err();
        assert!(error.kind() == ErrorKind::Busy, "{error}");
        assert!(is_needed(&master));
        let recovered = first.loads().into_iter().find(|load| load.recovered()).expect("it is shown");
        assert_eq!(recovered.queue_id(), format!("p-{of_dead}"));
        assert_eq!((recovered.peer_id, recovered.running), ("p".to_string(), Some(false)));
        assert_eq!(second.loads().len(), 1);

        // The claimer dies, and a part of the machine's memory with it. So does the master.
        let stale = env.fs.read(&layout::replication_queues_dir(ROOT.as_ref()).join(&claimed)).unwrap();
        kill(first);
        let next = Master::start(&fs, 101, &peer);
        assert!(next.left().contains(&left(None, &claimed)));
        drop(master);
        archive_wals(&env, &ServerName::new("localhost", 100, 9));
        second.lab.server.claim_queue("p", &claimed).unwrap();
        assert!(is_needed(&next));
        peer.zookeeper_is(peer::ZooKeeper::Answers);
        set_peer(&fs, &peer, true);
        second.lab.server.read_peers().unwrap();
        waits("the rest arrives", || peer.rows().last().is_some_and(|row| row == "r011"));
        waits("nothing is left", || next.share(&[&second]) == 0);
        let mut got = peer.rows();
        got.retain(|row| row.starts_with('r'));
        assert_eq!(got, rows(0..12), "what was noted is not sent again");
        assert_eq!(peer.loads().len(), 1);
        assert!(next.needed(&fs).is_empty() && !is_needed(&next));
        let master_of = |port| in_file_names(&ServerName::new("localhost", port, 9));
        assert_eq!(queues(&env), [format!("p--{}", master_of(101)), format!("p-{of_second}")]);
        waits("no claim is shown", || second.loads().iter().all(|load| !load.recovered()));
        let (count, sent) = second.lab.server.completed_claims();
        assert!(count >= 2 && sent.shipped_ops >= 8, "also that of the first claimer: {count}, {sent:?}");

        // The first claimer thaws, and writes what it knew.
        env.fs.replace(&layout::replication_queues_dir(ROOT.as_ref()).join(&claimed), &stale).unwrap();
        assert_eq!(next.left(), [left(None, &claimed)]);
        waits("nothing is left", || next.share(&[&second]) == 0);
        assert!(next.needed(&fs).is_empty());
        second.lab.server.peer_removed("p").unwrap();
        next.books.peer_removed("p").unwrap();
        assert!(queues(&env).is_empty());
    }
}

#[test]
fn wals_of_dead_servers_without_a_queue_get_one() {
    let (fs, peer) = (SimFileSystem::new(), Peer::start(|_| Say::Done));
    let env = fs.env();
    let before = Here::one_of_several(&fs, durable(), 1);
    before.put("before the peer");
    kill(before);
    let master = Master::start(&fs, 100, &peer);
    drop(master);
    archive_wals(&env, &ServerName::new("localhost", 100, 9));
    let dir = layout::replication_queues_dir(ROOT.as_ref());
    env.fs.remove_dir_all(&dir).unwrap();

    // As when a peer is added. Then a server dies that has not read the peers yet.
    let files =
        RegionServer::start_as(env.clone(), ROOT.as_ref(), None, durable(), ServerName::new("m", 1, 1));
    let files = files.unwrap();
    let books = files.replication_books();
    books.begin_queue("p").unwrap();
    set_peer(&fs, &peer, true);
    books.peer_changed(&description(&peer, true)).unwrap();
    let master = Master { files, books };
    assert!(master.left().is_empty() && master.needed(&fs).is_empty());
    env.fs.rename(Path::new("/hbase/peers"), Path::new("/hbase/no-peers")).unwrap();
    let dead = Here::one_of_several(&fs, durable(), 2);
    dead.put("behind the peer");
    env.fs.rename(Path::new("/hbase/no-peers"), Path::new("/hbase/peers")).unwrap();
    // What a standalone server that was here has noted.
    peer.zookeeper_is(peer::ZooKeeper::Closes);
    let alone = Here::one_of_several(&fs, durable(), 4);
    alone.bulk_load("loaded", true);
    let own = dir.join(format!("p-{}", in_file_names(alone.lab.server.server_name())));
    let of_alone = env.fs.read(&own).unwrap();
    alone.lab.server.abort("it was alone");
    env.fs.remove_file(&own).unwrap();
    env.fs.replace(&dir.join("p"), &of_alone).unwrap();
    let hfiles = || master.books.needed_hfiles(&["p".to_string()]).unwrap();
    let kept = alone.store_files();
    assert_eq!(hfiles(), kept);

    assert!(master.left().is_empty(), "nobody is gone");
    assert_eq!(hfiles(), kept, "files are kept for WALs that are not split");
    let of_dead = kill(dead);
    let left = master.left();
    assert_eq!(left.iter().map(|queue| &queue.server).collect::<Vec<_>>(), [&of_dead]);
    kill(alone);
    peer.zookeeper_is(peer::ZooKeeper::Answers);
    let live = Here::one_of_several(&fs, durable(), 3);
    waits("nothing is left", || master.share(&[&live]) == 0);
    assert!(peer.rows().contains(&"behind the peer".to_string()));
    assert!(!peer.rows().contains(&"before the peer".to_string()), "{:?}", peer.rows());
    assert_eq!(peer.loads().len(), 1);
    assert!(hfiles().is_empty(), "the files are not needed any more");
    assert!(master.needed(&fs).is_empty());
}

/// WALs that were just being split when the peer was added were archived later, and nobody had noted them: the peer got what was written
/// long before it, such as a row that is deleted and compacted away by now.
#[test]
fn a_peer_that_is_added_while_wals_are_split_does_not_get_them() {
    let (fs, peer) = (SimFileSystem::new(), Peer::start(|_| Say::Done));
    let env = fs.env();
    let dead = Here::one_of_several(&fs, durable(), 1);
    dead.put("before the peer");
    dead.roll();
    dead.put("before the peer, too");
    let name = dead.lab.server.server_name().clone();
    dead.lab.server.abort("killed");
    let (dir, splitting) = (
        Path::new("/hbase/WALs").join(name.to_string()),
        Path::new("/hbase/WALs").join(format!("{name}-splitting")),
    );
    env.fs.rename(&dir, &splitting).unwrap();

    let files =
        RegionServer::start_as(env.clone(), ROOT.as_ref(), None, durable(), ServerName::new("m", 1, 1));
    let files = files.unwrap();
    let books = files.replication_books();
    books.begin_queue("p").unwrap();
    set_peer(&fs, &peer, true);
    books.peer_changed(&description(&peer, true)).unwrap();
    let master = Master { files, books };
    let other = Here::one_of_several(&fs, durable(), 2);
    other.put("behind the peer");
    assert!(master.left().is_empty(), "they are still being split");
    // The next master takes over what this one has noted.
    let next = Master::start(&fs, 100, &peer);
    drop(master);
    assert!(next.left().is_empty());
    env.fs.rename(&splitting, &dir).unwrap();
    archive_wals(&env, &name);
    kill(other);
    let live = Here::one_of_several(&fs, durable(), 3);
    waits("nothing is left", || next.share(&[&live]) == 0);
    waits("it has arrived", || !peer.rows().is_empty());
    assert!(peer.rows().iter().all(|row| row == "behind the peer"), "{:?}", peer.rows());
}

/// A server died while a peer was added: its WALs were no others' yet, and it did not know the peer. The peer got all that it had written.
#[test]
fn a_peer_gets_nothing_of_a_server_that_died_while_it_was_added() {
    let (fs, peer) = (SimFileSystem::new(), Peer::start(|_| Say::Done));
    let env = fs.env();
    let (dead, late) = (Here::one_of_several(&fs, durable(), 1), Here::one_of_several(&fs, durable(), 2));
    for row in ["before the peer", "before the peer, too"] {
        dead.put(row);
        dead.roll();
    }
    late.put("of one whose WALs are not taken in time");
    let (dead, late) = [dead, late]
        .map(|server| {
            server.lab.server.abort("killed");
            server.lab.server.server_name().clone()
        })
        .into();
    let files =
        RegionServer::start_as(env.clone(), ROOT.as_ref(), None, durable(), ServerName::new("m", 1, 1));
    let files = files.unwrap();
    let books = files.replication_books();
    books.begin_queue("p").unwrap();
    set_peer(&fs, &peer, true);

    // A live server of HBase has no queue.
    let of_hbase = ServerName::new("hbase", 1, 1);
    let wals = layout::wals_dir(ROOT.as_ref());
    env.fs.create_dir_all(&wals.join(of_hbase.to_string())).unwrap();
    let end = |waits| books.end_addition("p", std::slice::from_ref(&of_hbase), waits);
    assert_eq!(end(true).unwrap_err().kind(), ErrorKind::Busy, "they may still write");
    let (dir, splitting) = (wals.join(dead.to_string()), wals.join(format!("{dead}-splitting")));
    env.fs.rename(&dir, &splitting).unwrap();
    let of_late = wals.join(late.to_string());
    let aside = Path::new(ROOT).join("aside");
    env.fs.rename(&of_late, &aside).unwrap();
    let error = end(true).unwrap_err();
    assert!(
        error.message().contains(&in_file_names(&dead)),
        "it may write to the WAL that it has open: {error}"
    );
    env.fs.rename(&splitting, &dir).unwrap();
    archive_wals(&env, &dead);
    env.fs.rename(&aside, &of_late).unwrap();
    let error = end(true).unwrap_err();
    assert!(error.message().contains(&in_file_names(&late)), "{error}");
    end(false).unwrap();
    books.peer_changed(&description(&peer, true)).unwrap();
    let master = Master { files, books };
    assert!(
        master.left().is_empty(),
        "the WALs of one are not taken yet, and nothing of the other one is sent"
    );
    archive_wals(&env, &late);
    env.fs.remove_dir(&wals.join(of_hbase.to_string())).unwrap();
    let live = Here::one_of_several(&fs, durable(), 3);
    live.put("behind the peer");
    waits("nothing is left", || master.share(&[&live]) == 0);
    waits("both have arrived", || peer.rows().len() >= 2);
    let mut rows = peer.rows();
    rows.sort_unstable();
    assert_eq!(rows, ["behind the peer", "of one whose WALs are not taken in time"]);
}

/// The bytes of a WAL that has these entries and no trailer. They are appended to it, as the log does that repeats a round: the check of
/// an entry holds at its place in its own file only, so the same bytes in another one would be a torn tail.
fn wal_with(env: &Env, entries: &[(pb::WalKey, Vec<Cell>)]) -> Vec<u8> {
    let wal = Wal::open(env.clone(), WalConfig::new("/made", "/made/old", "w")).unwrap();
    for (key, cells) in entries {
        let cells: Vec<CellRef<'_>> = cells.iter().map(Cell::get).collect();
        let replicated: Vec<_> = key.scopes.iter().map(|scope| scope.family.clone()).collect();
        let entry = WalEntry {
            region: &key.encoded_region_name,
            table: &key.table_name,
            seq: SeqId::new(key.log_sequence_number),
            write_time_ms: key.write_time as i64,
            nonce_group: key.nonce_group(),
            nonce: key.nonce(),
            cluster_ids: &[],
            replicated: &replicated,
            cells: &cells,
        };
        wal.append(&entry, Durability::SyncWal, Box::new(|_| ())).unwrap();
        wal.drive();
    }
    env.fs.read(&wal.current_file()).unwrap()
}

/// A spare WAL that has lost a race has a round from the middle of the WAL before it, and the server died before it was removed. A
/// WAL that took the place of a failed one begins with that one's last round. Both were sent again: the first behind edits
/// that are newer, so that the peer went back to what it had before.
#[test]
fn a_round_that_is_in_two_wals_is_sent_once() {
    let (fs, peer) = (SimFileSystem::new(), Peer::start(|_| Say::Done));
    set_peer(&fs, &peer, true);
    peer.zookeeper_is(peer::ZooKeeper::Closes);
    let dead = Here::one_of_several(&fs, durable(), 1);
    rows(0..9).iter().for_each(|row| dead.put(row));
    kill(dead);
    let (env, old) = (fs.env(), layout::old_wals_dir(ROOT.as_ref()));
    let first = archived(&env).remove(0);
    let bytes = env.fs.read(&old.join(&first)).unwrap();
    let mut reader = WalReader::open(&env, &old.join(&first)).unwrap();
    let (mut begins, mut entries) = (Vec::new(), Vec::new());
    let mut at = reader.offset() as usize;
    while let Some((key, cells)) = reader.next_entry().unwrap() {
        if cells[0].family() == b"f" {
            begins.push(at);
            entries.push((key, cells));
        }
        at = reader.offset() as usize;
    }
    assert_eq!(entries.len(), 9);
    let (server, number) = first.rsplit_once('.').unwrap();
    let leave = |behind: u64, entries: &[(pb::WalKey, Vec<Cell>)]| {
        let name = format!("{server}.{}", number.parse::<u64>().unwrap() + behind);
        env.fs.put_new(&old.join(name), &wal_with(&env, entries)).unwrap();
    };
    // One of the nine is in the third WAL alone: the second has failed with it.
    env.fs.replace(&old.join(&first), &bytes[..begins[8]]).unwrap();
    leave(1, &entries[3..6]);
    leave(2, &entries[6..]);
    peer.zookeeper_is(peer::ZooKeeper::Answers);
    let master = Master::start(&fs, 100, &peer);
    let live = Here::one_of_several(&fs, durable(), 2);
    waits("nothing is left", || master.share(&[&live]) == 0);
    assert_eq!(peer.rows(), rows(0..9));
}

/// A small generator (xorshift): the order of deaths has to be the same each time.
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
fn nothing_is_lost_in_whatever_order_servers_and_masters_die() {
    for seed in 1..=2_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let fs = SimFileSystem::new();
        let peer = Peer::start(move |number| match (number as u64 * 7 + seed) % 16 {
            3 => Say::Fail,
            5 => Say::DoneAndFail,
            _ => Say::Done,
        });
        set_peer(&fs, &peer, true);
        let (mut port, mut put) = (3, Vec::new());
        let mut servers: Vec<Here> = (1..=3).map(|port| Here::one_of_several(&fs, durable(), port)).collect();
        let mut master = Master::start(&fs, 100, &peer);
        for step in 0..40 {
            let at = random.below(servers.len());
            match random.below(8) {
                0..=3 => {
                    for number in 0..5 {
                        put.push(format!("s{step}-{number}"));
                        servers[at].put(put.last().unwrap());
                    }
                }
                4 => servers[at].roll(),
                5 => _ = master.share(&servers.iter().collect::<Vec<_>>()),
                6 => {
                    kill(servers.remove(at));
                    port += 1;
                    servers.push(Here::one_of_several(&fs, durable(), port));
                }
                _ => {
                    // The next one may look before the former one has ended.
                    let next = Master::start(&fs, 101 + step, &peer);
                    next.left();
                    let former = std::mem::replace(&mut master, next);
                    former.share(&servers.iter().collect::<Vec<_>>());
                    let name = former.files.server_name().clone();
                    drop(former);
                    archive_wals(&fs.env(), &name);
                }
            }
        }
        let all: Vec<&Here> = servers.iter().collect();
        waits("nothing is left", || master.share(&all) == 0);
        waits("the live servers have sent all", || {
            let got: HashSet<String> = peer.rows().into_iter().collect();
            put.iter().all(|row| got.contains(row))
        });
        assert!(put.len() > 30, "seed {seed}");
        let by_live = |name: &String| {
            all.iter().any(|it| name.starts_with(&in_file_names(it.lab.server.server_name())))
        };
        assert!(master.needed(&fs).iter().all(by_live), "seed {seed}");
        assert_eq!(queues(&fs.env()).len(), 1 + all.len(), "seed {seed}: {:?}", queues(&fs.env()));
    }
}

#[test]
fn a_damaged_queue_holds_up_its_peer_only() {
    let (fs, peer) = (SimFileSystem::new(), Peer::start(|_| Say::Done));
    peer.zookeeper_is(peer::ZooKeeper::Closes);
    let of = |id: &str| {
        let description = description(&peer, true);
        halcyon_contract::PeerDescription { id: id.to_string(), ..description }
    };
    let master = Master::start(&fs, 100, &peer);
    for id in ["p", "q"] {
        peer_files::write(&fs.env(), ROOT.as_ref(), &of(id)).unwrap();
        master.books.peer_changed(&of(id)).unwrap();
    }
    let dead = Here::one_of_several(&fs, durable(), 1);
    dead.put("a");
    let gone = kill(dead);
    let live = Here::one_of_several(&fs, durable(), 2);
    let name = format!("p-{}", in_file_names(&gone));
    let path = layout::replication_queues_dir(ROOT.as_ref()).join(&name);
    let good = fs.env().fs.read(&path).unwrap();
    for bad in [&b""[..], b"\x02", b"\x01\xff\xff", &good[..good.len() - 1]] {
        fs.env().fs.replace(&path, bad).unwrap();
        let peers: Vec<String> = master.left().into_iter().map(|queue| queue.peer_id).collect();
        assert_eq!(peers, ["q"]);
        let error = live.lab.server.claim_queue("p", &name).unwrap_err();
        assert!(error.kind() == ErrorKind::Corrupt && error.message().contains(&name), "{error}");
    }
    fs.env().fs.replace(&path, &good).unwrap();
    let peers: Vec<String> = master.left().into_iter().map(|queue| queue.peer_id).collect();
    assert_eq!(peers, ["p", "q"]);
}
