//! The books of an active master of a cluster: which WALs of servers that are gone were sent to the end, and who sends the others
//! (HBase: `ClaimReplicationQueuesProcedure`). The master itself sends nothing.
//!
//! Books are a queue of the master's own for each peer. They take over the queues of former masters and of a standalone server that
//! was here before, and claimed queues of which everything was sent. If a server that is gone has no queue, it gets one as soon as
//! some archived WAL of it is not in the books.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{LeftQueue, PeerDescription, ReplicationBooks, ReplicationSources};
use halcyon_env::Mutex;
use halcyon_schema::{RegionBarriers, ServerName};

use super::holders::{Holder, is_server};
use super::queue::{Queue, is_needed_by};
use super::sources::{check, sent_ranges};
use super::wals::{archived, begin_of, is_gone, server_of, splitting, wal_owners};
use crate::RegionServer;
use crate::regions::resources::RegionResources;

/// See the head of the file. *Thread safety*: shared freely. The lock is held over changes of files.
pub(crate) struct Books {
    resources: Arc<RegionResources>,
    /// As in the names of WALs.
    master: String,
    by_peer: Mutex<BTreeMap<String, Queue>>,
    /// Of each peer, why it could not be looked at the last time.
    failed: Mutex<BTreeMap<String, String>>,
}

impl RegionServer {
    /// The books about replication queues, of an active master whose files this server has.
    pub fn replication_books(&self) -> Arc<dyn ReplicationBooks> {
        let master = self.server_name().to_string().replace(',', "%2C");
        let (by_peer, failed) = (Mutex::default(), Mutex::default());
        Arc::new(Books { resources: Arc::clone(&self.resources), master, by_peer, failed })
    }
}

impl Books {
    fn holder(&self) -> Holder {
        Holder::Master(self.master.clone())
    }

    fn load(&self, peer: &str) -> Result<Option<Queue>> {
        Queue::load(&self.resources.env, &self.resources.root, &self.holder().name(peer))
    }

    fn create(&self, peer: &str, done: Vec<String>) -> Result<Queue> {
        Queue::create(&self.resources.env, &self.resources.root, &self.holder().name(peer), done)
    }

    /// Adopts what nobody else will, divides what is to be sent, and tells of the queues of servers that are gone.
    fn look_at(&self, peer: &str, gone: &mut Gone<'_>, left: &mut Vec<LeftQueue>) -> Result<()> {
        let (env, root) = (&self.resources.env, &self.resources.root);
        let queues = Queue::load_all(env, root, peer)?;
        let with_queue: HashSet<&str> = queues.iter().filter_map(|(holder, _)| holder.server()).collect();
        let mut unsplit = wal_owners(&self.resources)?;
        unsplit.remove(&self.master);
        for (holder, _) in &queues {
            gone.look_at(holder)?;
        }
        let splitting = splitting(&self.resources)?;
        // After that: the WALs of a server that is gone have been archived, and there will be no others.
        let archived = archived(&self.resources)?;
        let mut by_peer = self.by_peer.lock();
        let Some(books) = by_peer.get_mut(peer) else { return Ok(()) };
        for (holder, queue) in &queues {
            let name = holder.name(peer);
            let is_sent = |server: &str| {
                archived.iter().filter(|wal| server_of(wal) == server).all(|wal| queue.is_done(wal))
            };
            let (server, claimed_by) = match holder {
                Holder::Master(master) if *master == self.master => continue,
                Holder::Master(_) | Holder::Alone => (None, None),
                Holder::Server(server) => {
                    if !gone.is_gone(server) {
                        continue;
                    }
                    (Some(server.as_str()).filter(|server| !is_sent(server)), None)
                }
                Holder::Claimer { server, by } => {
                    let claimed_by = if gone.is_gone(by) { None } else { Some(by.as_str()) };
                    (Some(server.as_str()).filter(|server| !is_sent(server)), claimed_by)
                }
            };
            match server {
                Some(server) => left.push(left_queue(peer, holder, server, claimed_by)?),
                None => {
                    books.adopt(queue.clone())?;
                    Queue::remove(env, root, &name)?;
                    tracing::info!(peer, queue = name, "a queue has come to its end, or its holder has");
                }
            }
        }
        let unsent = archived.iter().filter(|wal| !books.is_done(wal)).map(|wal| server_of(wal));
        let without: BTreeSet<&str> =
            unsent.filter(|server| is_server(server) && !with_queue.contains(*server)).collect();
        for server in without {
            if !is_gone(&self.resources, server)? {
                continue; // a server of HBase: it sends nothing
            }
            let holder = Holder::Server(server.to_string());
            books.divide(server, &holder.name(peer))?;
            left.push(left_queue(peer, &holder, server, None)?);
        }
        if unsplit.iter().all(|server| with_queue.contains(server.as_str())) {
            books.forget_hfiles()?; // each of the queues has them
        }
        books.forget_all_but(&archived.union(&splitting).cloned().collect());
        Ok(())
    }
}

/// Which holders of queues are gone, asked once for each.
struct Gone<'a> {
    resources: &'a RegionResources,
    known: BTreeMap<String, bool>,
}

impl Gone<'_> {
    fn look_at(&mut self, holder: &Holder) -> Result<()> {
        if let Holder::Server(by) | Holder::Claimer { by, .. } = holder
            && !self.known.contains_key(by)
        {
            self.known.insert(by.clone(), is_gone(self.resources, by)?);
        }
        Ok(())
    }

    /// One that was not looked at is not.
    fn is_gone(&self, server: &str) -> bool {
        self.known.get(server).copied().unwrap_or(false)
    }
}

fn left_queue(peer: &str, holder: &Holder, server: &str, claimed_by: Option<&str>) -> Result<LeftQueue> {
    let parse = |name: &str| ServerName::parse(&name.replace("%2C", ","));
    Ok(LeftQueue {
        peer_id: peer.to_string(),
        name: holder.name(peer),
        server: parse(server)?,
        claimed_by: claimed_by.map(parse).transpose()?,
    })
}

impl ReplicationSources for Books {
    fn begin_queue(&self, peer_id: &str) -> Result<()> {
        if self.load(peer_id)?.is_none() {
            // In this order, because these become those.
            let mut before = splitting(&self.resources)?;
            before.extend(archived(&self.resources)?);
            self.create(peer_id, before.into_iter().collect())?;
        }
        Ok(())
    }

    fn peer_changed(&self, peer: &PeerDescription) -> Result<()> {
        check(peer)?;
        let mut by_peer = self.by_peer.lock();
        if !by_peer.contains_key(&peer.id) {
            let books = match self.load(&peer.id)? {
                Some(books) => books,
                None => self.create(&peer.id, Vec::new())?,
            };
            by_peer.insert(peer.id.clone(), books);
        }
        Ok(())
    }

    fn peer_removed(&self, peer_id: &str) -> Result<()> {
        let (env, root) = (&self.resources.env, &self.resources.root);
        let mut by_peer = self.by_peer.lock();
        by_peer.remove(peer_id);
        let holders = Holder::all(env, root, peer_id)?;
        holders.iter().try_for_each(|holder| Queue::remove(env, root, &holder.name(peer_id)))
    }

    fn needed_wals(&self, peer_ids: &[String], names: &[String]) -> Result<HashSet<String>> {
        let mut needed = HashSet::new();
        for peer in peer_ids {
            // Before the books: one that is adopted meanwhile is in those.
            let queues = Queue::load_all(&self.resources.env, &self.resources.root, peer)?;
            let by_peer = self.by_peer.lock();
            let books = by_peer.get(peer);
            let by_books = |name: &str| books.is_none_or(|books| !books.is_done(name));
            let is_needed = |name: &str| is_needed_by(&queues, name).unwrap_or_else(|| by_books(name));
            needed.extend(names.iter().filter(|name| begin_of(name).is_some() && is_needed(name)).cloned());
        }
        Ok(needed)
    }

    fn needed_hfiles(&self, peer_ids: &[String]) -> Result<Vec<String>> {
        let mut needed = Vec::new();
        for peer in peer_ids {
            let queues = Queue::load_all(&self.resources.env, &self.resources.root, peer)?;
            needed.extend(queues.iter().flat_map(|(_, queue)| queue.hfiles()).cloned());
        }
        Ok(needed)
    }

    fn sent_ranges(&self, peer_ids: &[String], regions: &[RegionBarriers]) -> Result<Vec<usize>> {
        sent_ranges(&self.resources, peer_ids, regions)
    }
}

impl ReplicationBooks for Books {
    fn left_queues(&self) -> Result<Vec<LeftQueue>> {
        let peers: Vec<String> = self.by_peer.lock().keys().cloned().collect();
        let mut gone = Gone { resources: &self.resources, known: BTreeMap::new() };
        let (mut left, mut failed) = (Vec::new(), self.failed.lock());
        for peer in peers {
            match self.look_at(&peer, &mut gone, &mut left) {
                Ok(()) => _ = failed.remove(&peer),
                Err(error) => {
                    let before = failed.insert(peer.clone(), error.to_string());
                    if before != Some(error.to_string()) {
                        tracing::warn!(peer, %error, "what servers that are gone have left for a peer stays for now");
                    }
                }
            }
        }
        Ok(left)
    }

    fn end_addition(&self, peer_id: &str, told: &[ServerName], waits: bool) -> Result<()> {
        let (env, root) = (&self.resources.env, &self.resources.root);
        let holders = Holder::all(env, root, peer_id)?;
        let mut others: HashSet<String> =
            told.iter().map(|server| server.to_string().replace(',', "%2C")).collect();
        others.extend(holders.iter().filter_map(Holder::server).map(str::to_string));
        others.insert(self.master.clone());
        if waits && let Some(server) = wal_owners(&self.resources)?.difference(&others).next() {
            let text =
                format!("the WALs of {server} are not taken from it, and it does not know peer {peer_id}");
            return Err(Error::new(ErrorKind::Busy, text));
        }
        // Not those that are still to be split: until one is sealed, its server may write to it.
        let mut wals = archived(&self.resources)?;
        wals.retain(|wal| !others.contains(server_of(wal)));
        let mut by_peer = self.by_peer.lock();
        let mut loaded = None;
        let books = match by_peer.get_mut(peer_id) {
            Some(books) => books,
            None => loaded.insert(match self.load(peer_id)? {
                Some(books) => books,
                None => self.create(peer_id, Vec::new())?,
            }),
        };
        wals.retain(|wal| !books.is_done(wal));
        if !wals.is_empty() {
            tracing::info!(
                peer = peer_id,
                ?wals,
                "a new peer gets nothing of WALs of servers that died meanwhile"
            );
        }
        books.leave_out(wals.into_iter().collect())
    }
}
