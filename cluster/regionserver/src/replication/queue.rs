//! What a peer has got of the WALs, on disk: files in `replication/queues` below the root directory, with the names of `holders.rs`.
//!
//! ```text
//! int8 format number 1 | Stored: WALs that are done with; offsets in those that are not; HFiles of bulk loads; regions that were closed
//! ```
//!
//! A WAL that the file does not name is needed as a whole. So nothing has to be written when a WAL begins, and a crash can
//! only make the peer get something twice. HBase names the needed ones instead, as znodes below `replication/rs`.
//!
//! A server claims the queue of one that is gone by a new name for the file. A former holder that thaws writes a file of its old name:
//! that one is claimed once more, and the peer may get edits twice.
//!
//! A region that the server has closed is named when the peer has all its edits up to then, with a sequence id that none of them is above
//! (HBase: the last pushed sequence id, of serial peers). See `serial.rs`.
//!
//! An HFile is named before it is part of its region, and until the peer has got the bulk load (HBase: `replication/hfile-refs`).

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::Env;
use halcyon_schema::layout::replication_queues_dir;
use prost::Message;

use super::holders::Holder;
use super::wals::server_of;

const FORMAT: u8 = 1;

/// Queues are read anew if one got another holder meanwhile, at most so often.
const LOADS_MAX: usize = 20;

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(string, repeated, tag = "1")]
    done: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    positions: Vec<Position>,
    #[prost(string, repeated, tag = "3")]
    hfiles: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    closed: Vec<Closed>,
}

#[derive(Clone, PartialEq, Message)]
struct Closed {
    #[prost(bytes = "bytes", tag = "1")]
    region_name: Bytes,
    #[prost(uint64, tag = "2")]
    seq: u64,
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
    /// By region name.
    closed: BTreeMap<Bytes, u64>,
    /// The file does not have all of this.
    is_unsaved: bool,
}

/// Whether anyone has noted, here and not in a cluster of HBase, what a peer has got.
pub fn has_replication_queue(env: &Env, root: &Path, peer: &str) -> Result<bool> {
    Ok(!Holder::all(env, root, peer)?.is_empty())
}

/// Whether a server's queues of a peer say that a WAL is needed; `None`: it has none of its own.
pub(super) fn is_needed_by(queues: &[(Holder, Queue)], wal: &str) -> Option<bool> {
    let server = server_of(wal);
    let of_server = queues.iter().filter(|(holder, _)| holder.server() == Some(server));
    of_server.map(|(_, queue)| !queue.is_done(wal)).reduce(|one, other| one || other)
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
            closed: stored.closed.into_iter().map(|closed| (closed.region_name, closed.seq)).collect(),
            is_unsaved: false,
        }))
    }

    /// All queues of a peer that are there at one moment. `Busy` if they change too often meanwhile.
    pub(super) fn load_all(env: &Env, root: &Path, peer: &str) -> Result<Vec<(Holder, Queue)>> {
        for _ in 0..LOADS_MAX {
            let holders = Holder::all(env, root, peer)?;
            let mut queues = Vec::with_capacity(holders.len());
            for holder in &holders {
                let queue = Queue::load(env, root, &holder.name(peer))?;
                queues.extend(queue.map(|queue| (holder.clone(), queue)));
            }
            if queues.len() == holders.len() && Holder::all(env, root, peer)? == holders {
                return Ok(queues);
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("the queues of peer {peer} change while they are read")))
    }

    /// A new queue, durable, for all WALs but these.
    pub(super) fn create(env: &Env, root: &Path, name: &str, but: Vec<String>) -> Result<Queue> {
        let dir = replication_queues_dir(root);
        env.fs.create_dir_all(&dir)?;
        let (done, positions) = (but.into_iter().collect(), BTreeMap::new());
        let (env, path) = (env.clone(), dir.join(name));
        let mut queue = Queue {
            env,
            path,
            done,
            positions,
            hfiles: Vec::new(),
            closed: BTreeMap::new(),
            is_unsaved: true,
        };
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

    /// Gives the file another name, durably. One that is there is not replaced (`AlreadyExists` of the file system). After an error the
    /// file may have the one name or the other.
    pub(super) fn rename(&mut self, name: &str) -> Result<()> {
        let to = self.path.with_file_name(name);
        self.env.fs.rename(&self.path, &to)?;
        if let Some(dir) = to.parent() {
            self.env.fs.sync_dir(dir)?;
        }
        self.path = to;
        Ok(())
    }

    /// Notes, durably, WALs of which the peer gets nothing.
    pub(super) fn leave_out(&mut self, wals: Vec<String>) -> Result<()> {
        if wals.is_empty() {
            return Ok(());
        }
        self.positions.retain(|wal, _| !wals.contains(wal));
        self.done.extend(wals);
        self.save()
    }

    /// Creates a queue of its own for the WALs of one server, durably, with what is known here of these. One that is there stays.
    pub(super) fn divide(&self, server: &str, name: &str) -> Result<()> {
        let of_server = |wal: &String| server_of(wal) == server;
        let part = Queue {
            env: self.env.clone(),
            path: self.path.with_file_name(name),
            done: self.done.iter().filter(|wal| of_server(wal)).cloned().collect(),
            positions: self.positions.clone().into_iter().filter(|(wal, _)| of_server(wal)).collect(),
            hfiles: self.hfiles.clone(), // it is not known which of them
            closed: BTreeMap::new(),
            is_unsaved: true,
        };
        match self.env.fs.put_new(&part.path, &part.encoded()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            created => Ok(created?),
        }
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

    /// WALs of which something was read, also those that are done.
    pub(super) fn begun(&self) -> impl Iterator<Item = &str> {
        let positions = self.positions.iter().filter(|(_, offset)| **offset > 0).map(|(wal, _)| wal);
        self.done.iter().chain(positions).map(String::as_str)
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
        self.forget_all_but(there);
        self.is_unsaved = true;
        if durably || !reached.finished.is_empty() { self.save() } else { Ok(()) }
    }

    /// Writes the file again if it does not have all of this.
    pub(super) fn save_if_changed(&mut self) -> Result<()> {
        if self.is_unsaved { self.save() } else { Ok(()) }
    }

    /// A sequence id that no edit of a closed region is above, if the peer has all its edits.
    pub(super) fn closed(&self, region_name: &[u8]) -> Option<u64> {
        self.closed.get(region_name).copied()
    }

    /// Regions of which the peer has all edits up to their last closing.
    pub(super) fn all_closed(&self) -> Vec<(Bytes, u64)> {
        self.closed.iter().map(|(region_name, seq)| (region_name.clone(), *seq)).collect()
    }

    /// Notes, durably, that the peer has all edits of these regions, which were closed, and up to which sequence ids.
    pub(super) fn add_closed(&mut self, regions: &[(Bytes, u64)]) -> Result<()> {
        for (region_name, seq) in regions {
            let known = self.closed.entry(region_name.clone()).or_default();
            *known = (*known).max(*seq); // a restored snapshot may have given the region lower ones
        }
        self.is_unsaved = true;
        self.save()
    }

    /// Forgets closings of which nobody will ask any more. Not durable at once.
    pub(super) fn forget_closed(&mut self, closings: &[(Bytes, u64)]) {
        for (region_name, seq) in closings {
            if self.closed(region_name) == Some(*seq) {
                self.closed.remove(region_name);
            }
        }
        self.is_unsaved = true;
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

    /// Forgets, durably, all HFiles.
    pub(super) fn forget_hfiles(&mut self) -> Result<()> {
        if self.hfiles.is_empty() {
            return Ok(());
        }
        self.hfiles.clear();
        self.save()
    }

    /// Forgets WALs whose files are gone. That is durable with the next change.
    pub(super) fn forget_all_but(&mut self, there: &HashSet<String>) {
        self.done.retain(|wal| there.contains(wal));
        self.positions.retain(|wal, _| there.contains(wal));
    }

    fn save(&mut self) -> Result<()> {
        self.is_unsaved = true;
        self.env.fs.replace(&self.path, &self.encoded())?;
        self.is_unsaved = false;
        Ok(())
    }

    fn encoded(&self) -> Vec<u8> {
        let positions = self.positions.iter();
        let stored = Stored {
            done: self.done.iter().cloned().collect(),
            positions: positions.map(|(wal, &offset)| Position { wal: wal.clone(), offset }).collect(),
            hfiles: self.hfiles.clone(),
            closed: self
                .closed
                .iter()
                .map(|(name, &seq)| Closed { region_name: name.clone(), seq })
                .collect(),
        };
        let mut bytes = vec![FORMAT];
        stored.encode(&mut bytes).expect("a Vec grows as needed");
        bytes
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
    fn closings_of_regions_are_durable_with_how_far_the_peer_is() {
        let region = |name: &'static str| Bytes::from_static(name.as_bytes());
        for (number, mode) in CrashMode::ALL.into_iter().enumerate() {
            let fs = SimFileSystem::new();
            let mut queue = Queue::create(&fs.env(), root(), "p-h%2C1%2C2", Vec::new()).unwrap();
            queue
                .advance(&reached(&[], Some(("s.1", 9))), &HashSet::from(["s.1".to_string()]), false)
                .unwrap();
            queue.add_closed(&[(region("a"), 5), (region("b"), 7)]).unwrap();
            queue.add_closed(&[(region("a"), 4)]).unwrap();
            queue.rename("p-h%2C1%2C2+h%2C3%2C4").unwrap();
            let fs = fs.crash(mode, number as u64);
            let mut queue = Queue::load(&fs.env(), root(), "p-h%2C1%2C2+h%2C3%2C4").unwrap().unwrap();
            assert_eq!([b"a", b"b", b"c"].map(|name| queue.closed(name)), [Some(5), Some(7), None]);
            assert_eq!(queue.offset("s.1"), 9);
            queue.forget_closed(&[(region("a"), 4), (region("b"), 7)]);
            assert_eq!(queue.all_closed(), [(region("a"), 5)]);
        }
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
    fn a_queue_is_claimed_divided_and_adopted() {
        let server = "h-1.x%2C16020%2C7";
        let wal = |number: u32| format!("{server}.{number}");
        let all = there(&[&wal(1), &wal(2), &wal(3), &wal(4), "o.1"]);
        for mode in CrashMode::ALL {
            let fs = SimFileSystem::new();
            let env = fs.env();
            let mut own = Queue::create(&env, root(), "p-a", vec![wal(1), wal(2)]).unwrap();
            own.advance(&reached(&[&wal(3)], Some((&wal(4), 50))), &all, true).unwrap();
            own.add_hfiles(&["a".to_string()]).unwrap();
            own.rename("p-a+b").unwrap();
            let fs = fs.crash(mode, 1);
            let env = fs.env();
            assert!(Queue::load(&env, root(), "p-a").unwrap().is_none());
            let mut claimed = Queue::load(&env, root(), "p-a+b").unwrap().unwrap();
            assert_eq!(claimed.offset(&wal(4)), 50);
            Queue::create(&env, root(), "p-a", Vec::new()).unwrap();
            assert!(claimed.rename("p-a").is_err(), "another file is not replaced");

            let mut books = Queue::create(&env, root(), "p", vec!["o.1".to_string()]).unwrap();
            books.advance(&reached(&[], Some((&wal(3), 9))), &all, true).unwrap();
            for _ in 0..2 {
                books.adopt(Queue::load(&env, root(), "p-a+b").unwrap().unwrap()).unwrap();
            }
            let books = Queue::load(&env, root(), "p").unwrap().unwrap();
            assert!(["o.1", &wal(1), &wal(2), &wal(3)].iter().all(|wal| books.is_done(wal)));
            assert_eq!((books.offset(&wal(3)), books.offset(&wal(4)), books.hfiles().len()), (0, 50, 1));
            books.divide(server, "p-c").unwrap();
            let fs = fs.crash(mode, 2);
            let mut books = Queue::load(&fs.env(), root(), "p").unwrap().unwrap();
            let part = Queue::load(&fs.env(), root(), "p-c").unwrap().expect("it was durable");
            assert!(part.is_done(&wal(3)) && !part.is_done("o.1"));
            assert_eq!((part.offset(&wal(4)), part.hfiles()), (50, books.hfiles()));
            books.divide("o", "p-c").unwrap();
            let part = Queue::load(&fs.env(), root(), "p-c").unwrap().unwrap();
            assert!(part.is_done(&wal(3)), "one that is there stays");
            books.forget_hfiles().unwrap();
            assert!(Queue::load(&fs.env(), root(), "p").unwrap().unwrap().hfiles().is_empty());
        }
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
