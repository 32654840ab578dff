//! What a peer has got of the WALs, on disk: files in `replication/queues` below the root directory.
//!
//! `<peer>` is the queue of a standalone server. In a cluster each region server has `<peer>-<server>` for its own WALs; the name is as
//! in the names of WALs. `<peer>--<master>` is that of an active master, for WALs of servers that are gone. The standalone server or the
//! active master adopts the queues of servers that are gone, and of former masters. So a former one that thaws can write its own
//! file only. No id of a peer has a hyphen, and no name of a host begins with one.
//!
//! ```text
//! int8 format number 1 | Stored: WALs that are done with; offsets in those that are not; HFiles of bulk loads
//! ```
//!
//! A WAL that the file does not name is needed as a whole. So nothing has to be written when a WAL begins, and a crash can
//! only make the peer get something twice. HBase names the needed ones instead, as znodes below `replication/rs`.
//!
//! An HFile is named before it is part of its region, and until the peer has got the bulk load (HBase: `replication/hfile-refs`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use halcyon_cell::{Error, Result};
use halcyon_env::Env;
use halcyon_schema::ServerName;
use halcyon_schema::layout::replication_queues_dir;
use prost::Message;

const FORMAT: u8 = 1;

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(string, repeated, tag = "1")]
    done: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    positions: Vec<Position>,
    #[prost(string, repeated, tag = "3")]
    hfiles: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Position {
    #[prost(string, tag = "1")]
    wal: String,
    /// Behind the last entry that the peer has.
    #[prost(uint64, tag = "2")]
    offset: u64,
}

/// See the head of the file. Of one thread at a time.
#[derive(Clone)]
pub(super) struct Queue {
    env: Env,
    path: PathBuf,
    done: BTreeSet<String>,
    positions: BTreeMap<String, u64>,
    /// In the order of their loads.
    hfiles: Vec<String>,
}

/// The name of the queue for WALs of one server.
pub(super) fn name_of(peer: &str, server: &str) -> String {
    format!("{peer}-{server}")
}

/// The name of the queue of an active master, for WALs of servers that are gone.
pub(super) fn master_name_of(peer: &str, master: &str) -> String {
    format!("{peer}--{master}")
}

/// Queues of a peer, by their owners.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Owners {
    /// Of a standalone server.
    pub(super) has_plain: bool,
    /// As in the names of their WALs.
    pub(super) servers: Vec<String>,
    pub(super) masters: Vec<String>,
}

impl Owners {
    /// Whose queues are there.
    pub(super) fn of(env: &Env, root: &Path, peer: &str) -> Result<Owners> {
        let listed = match env.fs.list(&replication_queues_dir(root)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Owners::default()),
            listed => listed?,
        };
        let mut owners = Owners::default();
        for entry in listed.into_iter().filter(|entry| !entry.is_dir) {
            let Some(rest) = entry.name.strip_prefix(peer) else { continue };
            // A file that is being replaced has another name for a moment.
            let is_server = |name: &str| ServerName::parse(&name.replace("%2C", ",")).is_ok();
            match (rest.strip_prefix("--"), rest.strip_prefix('-')) {
                (Some(master), _) if is_server(master) => owners.masters.push(master.to_string()),
                (None, Some(server)) if is_server(server) => owners.servers.push(server.to_string()),
                _ => owners.has_plain |= rest.is_empty(),
            }
        }
        Ok(owners)
    }

    /// The names of all these queues.
    pub(super) fn names(&self, peer: &str) -> Vec<String> {
        let servers = self.servers.iter().map(|server| name_of(peer, server));
        let masters = self.masters.iter().map(|master| master_name_of(peer, master));
        let plain = self.has_plain.then(|| peer.to_string());
        plain.into_iter().chain(servers).chain(masters).collect()
    }
}

/// Whether anyone has noted, here and not in a cluster of HBase, what a peer has got.
pub fn has_replication_queue(env: &Env, root: &Path, peer: &str) -> Result<bool> {
    Ok(Owners::of(env, root, peer)? != Owners::default())
}

/// How far a batch goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// WALs of which nothing is left.
    pub(super) finished: Vec<String>,
    /// The WAL after those, and an offset in it.
    pub(super) position: Option<(String, u64)>,
    /// HFiles of bulk loads that the peer has, or does not get.
    pub(super) hfiles: Vec<String>,
}

impl Queue {
    /// `None` if there is no file. `Corrupt` if it cannot be read.
    pub(super) fn load(env: &Env, root: &Path, name: &str) -> Result<Option<Queue>> {
        let path = replication_queues_dir(root).join(name);
        let bytes = match env.fs.read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let stored = decode(&bytes).map_err(|error| error.context(path.display()))?;
        let positions = stored.positions.into_iter().map(|position| (position.wal, position.offset));
        Ok(Some(Queue {
            env: env.clone(),
            path,
            done: stored.done.into_iter().collect(),
            positions: positions.collect(),
            hfiles: stored.hfiles,
        }))
    }

    /// A new queue, durable, for all WALs but these.
    pub(super) fn create(env: &Env, root: &Path, name: &str, but: Vec<String>) -> Result<Queue> {
        let dir = replication_queues_dir(root);
        env.fs.create_dir_all(&dir)?;
        let (done, positions) = (but.into_iter().collect(), BTreeMap::new());
        let queue = Queue { env: env.clone(), path: dir.join(name), done, positions, hfiles: Vec::new() };
        queue.save()?;
        Ok(queue)
    }

    /// Removes the file, durably. One that is gone is no error.
    pub(super) fn remove(env: &Env, root: &Path, name: &str) -> Result<()> {
        let dir = replication_queues_dir(root);
        match env.fs.remove_file(&dir.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => Ok(removed.and_then(|()| env.fs.sync_dir(&dir))?),
        }
    }

    /// Of its file.
    pub(super) fn name(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Takes over, durably, what is known of the WALs of a server that is gone. May run twice.
    pub(super) fn adopt(&mut self, gone: Queue) -> Result<()> {
        self.done.extend(gone.done);
        for (wal, offset) in gone.positions {
            let known = self.positions.entry(wal).or_default();
            *known = offset.max(*known);
        }
        self.positions.retain(|wal, _| !self.done.contains(wal));
        self.add_hfiles(&gone.hfiles)
    }

    pub(super) fn is_done(&self, wal: &str) -> bool {
        self.done.contains(wal)
    }

    /// Where to read on in a WAL; 0: from its begin.
    pub(super) fn offset(&self, wal: &str) -> u64 {
        self.positions.get(wal).copied().unwrap_or(0)
    }

    /// Notes what the peer has. Durable if `durably`, or if a WAL is finished. WALs that are not among `there` are
    /// forgotten: their files are gone.
    pub(super) fn advance(
        &mut self,
        reached: &Reached,
        there: &HashSet<String>,
        durably: bool,
    ) -> Result<()> {
        for wal in &reached.finished {
            self.positions.remove(wal);
            self.done.insert(wal.clone());
        }
        if let Some((wal, offset)) = &reached.position {
            let before = self.positions.insert(wal.clone(), *offset).unwrap_or(0);
            assert!(before <= *offset, "a peer has got more of {wal} than it gets now: {before}, {offset}");
        }
        let hfiles_before = self.hfiles.len();
        self.hfiles.retain(|name| !reached.hfiles.contains(name));
        let durably = durably || self.hfiles.len() < hfiles_before;
        self.done.retain(|wal| there.contains(wal));
        self.positions.retain(|wal, _| there.contains(wal));
        if durably || !reached.finished.is_empty() { self.save() } else { Ok(()) }
    }

    /// HFiles that the peer has still to copy, oldest first.
    pub(super) fn hfiles(&self) -> &[String] {
        &self.hfiles
    }

    /// Notes HFiles, durably. Those that are noted stay where they are.
    pub(super) fn add_hfiles(&mut self, names: &[String]) -> Result<()> {
        let new: Vec<String> = names.iter().filter(|name| !self.hfiles.contains(name)).cloned().collect();
        self.hfiles.extend(new);
        self.save()
    }

    fn save(&self) -> Result<()> {
        let positions = self.positions.iter();
        let stored = Stored {
            done: self.done.iter().cloned().collect(),
            positions: positions.map(|(wal, &offset)| Position { wal: wal.clone(), offset }).collect(),
            hfiles: self.hfiles.clone(),
        };
        let mut bytes = vec![FORMAT];
        stored.encode(&mut bytes).expect("a Vec grows as needed");
        Ok(self.env.fs.replace(&self.path, &bytes)?)
    }
}

fn decode(bytes: &[u8]) -> Result<Stored> {
    match bytes.split_first() {
        Some((&FORMAT, message)) => {
            Stored::decode(message).map_err(|error| Error::corrupt(format!("a replication queue: {error}")))
        }
        other => {
            let found = other.map(|(format, _)| format);
            Err(Error::corrupt(format!("a replication queue: format {found:?}, expected {FORMAT}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::{CrashMode, SimFileSystem};

    use super::*;

    fn root() -> &'static Path {
        Path::new("/hbase")
    }

    fn there(names: &[&str]) -> HashSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn reached(finished: &[&str], position: Option<(&str, u64)>) -> Reached {
        let finished = finished.iter().map(ToString::to_string).collect();
        let position = position.map(|(wal, offset)| (wal.to_string(), offset));
        Reached { finished, position, hfiles: Vec::new() }
    }

    #[test]
    fn hfiles_are_named_until_the_peer_has_them() {
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(ToString::to_string).collect() };
        for mode in CrashMode::ALL {
            let fs = SimFileSystem::new();
            let mut queue = Queue::create(&fs.env(), root(), "p", Vec::new()).unwrap();
            queue.add_hfiles(&names(&["b", "a"])).unwrap();
            queue.add_hfiles(&names(&["a", "c"])).unwrap();
            let fs = fs.crash(mode, 1);
            let mut queue = Queue::load(&fs.env(), root(), "p").unwrap().unwrap();
            assert_eq!(queue.hfiles(), names(&["b", "a", "c"]));
            let sent = Reached { hfiles: names(&["a", "x"]), ..reached(&[], Some(("s.1", 9))) };
            queue.advance(&sent, &there(&["s.1"]), false).unwrap();
            let fs = fs.crash(mode, 2);
            let queue = Queue::load(&fs.env(), root(), "p").unwrap().unwrap();
            assert_eq!((queue.hfiles(), queue.offset("s.1")), (&names(&["b", "c"])[..], 9));
        }
    }

    #[test]
    fn what_a_peer_has_got_survives_a_crash() {
        for mode in CrashMode::ALL {
            let fs = SimFileSystem::new();
            assert!(Queue::load(&fs.env(), root(), "p").unwrap().is_none());
            let mut queue = Queue::create(&fs.env(), root(), "p", vec!["s.1".to_string()]).unwrap();
            let all = there(&["s.1", "s.2", "s.3"]);
            queue.advance(&reached(&["s.2"], Some(("s.3", 70))), &all, true).unwrap();
            queue.advance(&reached(&[], Some(("s.3", 90))), &all, false).unwrap();
            assert_eq!(queue.offset("s.3"), 90);
            let fs = fs.crash(mode, 1);
            let mut queue = Queue::load(&fs.env(), root(), "p").unwrap().expect("it was durable");
            assert!(queue.is_done("s.1") && queue.is_done("s.2") && !queue.is_done("s.3"));
            assert_eq!((queue.offset("s.3"), queue.offset("s.4")), (70, 0));
            // The files of the first two are deleted; a name that is forgotten stands for a whole WAL again.
            queue.advance(&reached(&["s.3"], None), &there(&["s.3", "s.4"]), false).unwrap();
            let queue = Queue::load(&fs.env(), root(), "p").unwrap().unwrap();
            assert!(queue.is_done("s.3") && !queue.is_done("s.1"));
            Queue::remove(&fs.env(), root(), "p").unwrap();
            Queue::remove(&fs.env(), root(), "p").unwrap();
            assert!(Queue::load(&fs.crash(mode, 2).env(), root(), "p").unwrap().is_none());
        }
    }

    #[test]
    fn queues_of_servers_that_are_gone_are_adopted() {
        let fs = SimFileSystem::new();
        let (env, server) = (fs.env(), "h-1.x%2C16020%2C7");
        let wal = |number: u32| format!("{server}.{number}");
        let mut own = Queue::create(&env, root(), &name_of("p", server), vec![wal(1), wal(2)]).unwrap();
        let all = there(&[&wal(1), &wal(2), &wal(3), &wal(4)]);
        own.advance(&reached(&[&wal(3)], Some((&wal(4), 50))), &all, true).unwrap();
        own.add_hfiles(&["a".to_string()]).unwrap();
        for other in
            [name_of("p2", server), "p-no-server".to_string(), format!("p-{server}.tmp"), "p--x".to_string()]
        {
            Queue::create(&env, root(), &other, Vec::new()).unwrap();
        }
        let servers = vec![server.to_string()];
        let expected = Owners { servers: servers.clone(), ..Owners::default() };
        assert_eq!(Owners::of(&env, root(), "p").unwrap(), expected);

        let mut queue = Queue::create(&env, root(), "p", vec!["o.1".to_string()]).unwrap();
        queue.advance(&reached(&[], Some((&wal(3), 9))), &there(&["o.1", &wal(3)]), true).unwrap();
        Queue::create(&env, root(), &master_name_of("p", server), Vec::new()).unwrap();
        let expected = Owners { has_plain: true, servers: servers.clone(), masters: servers };
        let owners = Owners::of(&env, root(), "p").unwrap();
        assert_eq!(owners, expected);
        let mut names = owners.names("p");
        names.sort();
        assert_eq!(names, ["p".to_string(), master_name_of("p", server), name_of("p", server)]);
        for _ in 0..2 {
            queue.adopt(Queue::load(&env, root(), &name_of("p", server)).unwrap().unwrap()).unwrap();
        }
        let queue = Queue::load(&env, root(), "p").unwrap().unwrap();
        assert!(["o.1", &wal(1), &wal(2), &wal(3)].iter().all(|wal| queue.is_done(wal)));
        assert_eq!((queue.offset(&wal(3)), queue.offset(&wal(4)), queue.hfiles().len()), (0, 50, 1));
    }

    #[test]
    fn garbage_is_an_error() {
        let fs = SimFileSystem::new();
        let env = fs.env();
        Queue::create(&env, root(), "p", vec!["s.1".to_string()]).unwrap();
        let path = replication_queues_dir(root()).join("p");
        let good = env.fs.read(&path).unwrap();
        for bad in [&b""[..], b"\x02", b"\x01\xff\xff", &good[..good.len() - 1]] {
            env.fs.replace(&path, bad).unwrap();
            let error = Queue::load(&env, root(), "p").err().expect("it is damaged");
            assert!(error.message().contains("/hbase/replication/queues/p"), "{error}");
        }
    }
}
