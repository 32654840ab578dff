//! The sources of a server, one for each peer, and what the master tells and asks of them.
//!
//! A server that is one of several sends the edits of its own WALs. It reads the peers from their files, when it starts and when the
//! master says that one has changed.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{PeerDescription, ReplicationSources};
use halcyon_env::{Mutex, spawn_thread};
use halcyon_proto::pb;
use halcyon_schema::{ClusterId, ClusterUuid, ServerName, TableName, layout, peer_files};
use tokio::runtime::Handle;

use super::filter::PeerFilter;
use super::queue::{Owners, Queue, master_name_of, name_of};
use super::source::{Source, SourceStats};
use super::target::{self, FileDirs, Sender, Target};
use super::wals::{ReplicatedWals, Wals, begin_of, server_of};
use crate::RegionServer;
use crate::regions::resources::RegionResources;

/// See the head of the file.
///
/// *Thread safety*: shared freely. The lock is held over the beginning and removal of sources, which the master does one after
/// the other, and for look-ups.
pub(crate) struct Sources {
    resources: Arc<RegionResources>,
    /// As in the names of its WALs.
    server: String,
    whose: OnceLock<ReplicatedWals>,
    threads: OnceLock<Handle>,
    all: Mutex<All>,
    /// Held while a peer is read and obeyed, so that what was read last is obeyed last.
    reading: Mutex<()>,
}

#[derive(Default)]
struct All {
    by_peer: BTreeMap<String, Running>,
    have_ended: bool,
}

struct Running {
    source: Arc<Source>,
    /// `None`: the server has no threads for calls yet.
    thread: Option<JoinHandle<()>>,
}

impl Sources {
    pub(crate) fn new(resources: &Arc<RegionResources>, server: &ServerName) -> Sources {
        Sources {
            resources: Arc::clone(resources),
            server: server.to_string().replace(',', "%2C"),
            whose: OnceLock::new(),
            threads: OnceLock::new(),
            all: Mutex::default(),
            reading: Mutex::default(),
        }
    }

    /// Without a call all WALs are sent. The first call counts; it comes before any peer is known.
    pub(crate) fn send_wals(&self, whose: ReplicatedWals) {
        let _ = self.whose.set(whose);
    }

    fn whose(&self) -> ReplicatedWals {
        self.whose.get().copied().unwrap_or_default()
    }

    /// Has the edits of this server sent to all peers that are there. A peer that cannot be obeyed gets nothing from here.
    pub(crate) fn read_peers(&self) -> Result<()> {
        let _reading = self.reading.lock();
        for peer in peer_files::load_all(&self.resources.env, &self.resources.root)? {
            match self.peer_changed(&peer) {
                Err(error) if error.kind().is_permanent() => {
                    tracing::error!(peer = peer.id, %error, "nothing is sent to a peer");
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Obeys what the files say of a peer that has changed, or is new or gone.
    pub(crate) fn read_peer(&self, id: &str) -> Result<()> {
        let _reading = self.reading.lock();
        match peer_files::load(&self.resources.env, &self.resources.root, id)? {
            Some(peer) => self.peer_changed(&peer),
            None => self.peer_removed(id),
        }
    }

    fn queue_name(&self, peer: &str) -> String {
        match self.whose() {
            ReplicatedWals::Own => name_of(peer, &self.server),
            ReplicatedWals::OfGoneServers => master_name_of(peer, &self.server),
            ReplicatedWals::All => peer.to_string(),
        }
    }

    /// Calls to peers run on the threads of this runtime. The first one stays.
    pub(crate) fn work_on(&self, threads: Handle) {
        let _ = self.threads.set(threads);
        for running in self.all.lock().by_peer.values_mut() {
            if let Err(error) = self.start(running) {
                tracing::error!(%error, "nothing is sent to a peer until the next start");
            }
        }
    }

    /// Notes for all peers the HFiles of a bulk load, by family and name, before they are part of their region (HBase:
    /// `ReplicationObserver`). Names of a load that fails after that stay noted, and no file has them.
    pub(crate) fn note_hfiles(&self, table: &TableName, files: &[(String, String)]) -> Result<()> {
        if !self.resources.online.in_force().replicates_bulk_loads || files.is_empty() {
            return Ok(());
        }
        let sources: Vec<Arc<Source>> =
            self.all.lock().by_peer.values().map(|running| Arc::clone(&running.source)).collect();
        sources.iter().try_for_each(|source| source.note_hfiles(table, files))
    }

    pub(crate) fn stats(&self) -> Vec<SourceStats> {
        self.all.lock().by_peer.values().map(|running| running.source.stats()).collect()
    }

    /// As servers report it to the master.
    pub(crate) fn loads(&self) -> Vec<pb::ReplicationLoadSource> {
        let now_ms = self.resources.env.clock.now_ms();
        self.all.lock().by_peer.values().map(|running| running.source.load(now_ms)).collect()
    }

    /// Has all sources end, soon. No other one begins.
    pub(crate) fn end(&self) {
        let mut all = self.all.lock();
        all.have_ended = true;
        all.by_peer.values().for_each(|running| running.source.end());
    }

    /// The id of another cluster, by its cluster key; `None`: it does not say, or the server has no threads for calls yet.
    pub(crate) fn cluster_id_of(&self, cluster_key: &str) -> Option<ClusterId> {
        self.threads.get()?.block_on(target::cluster_id_of(cluster_key))
    }

    /// Ends all sources, and waits for their threads. What the peers have got is noted already.
    pub(crate) fn stop(&self) {
        self.end();
        let ended = std::mem::take(&mut self.all.lock().by_peer);
        ended.into_values().for_each(Running::join);
    }

    fn start(&self, running: &mut Running) -> Result<()> {
        let Some(threads) = self.threads.get().cloned().filter(|_| running.thread.is_none()) else {
            return Ok(());
        };
        let source = Arc::clone(&running.source);
        running.thread = Some(spawn_thread("replication-source", move || source.work(&threads))?);
        Ok(())
    }

    /// What sources say of this cluster.
    fn sender(&self) -> Result<(ClusterUuid, Sender)> {
        let (id, uuid) = self.own_id()?;
        let (settings, root) = (self.resources.online.in_force(), &self.resources.root);
        let address = self.resources.env.fs.address().unwrap_or_else(|| "file:".to_string());
        let dirs = settings.replicates_bulk_loads.then(|| FileDirs {
            data: format!("{address}{}", layout::data_dir(root).display()),
            archive: format!("{address}{}", layout::archive_dir(root).join(layout::DATA).display()),
        });
        let named = Some(settings.replication_cluster_id.clone()).filter(|name| !name.is_empty());
        Ok((uuid, Sender { id: named.unwrap_or(id.0), dirs }))
    }

    fn own_id(&self) -> Result<(ClusterId, ClusterUuid)> {
        let path = layout::cluster_id_file(&self.resources.root);
        let id = ClusterId::decode_file(&self.resources.env.fs.read(&path)?)?;
        let no_uuid = || Error::corrupt(format!("{}: {id} is no UUID", path.display()));
        let uuid = id.uuid().ok_or_else(no_uuid)?;
        Ok((id, uuid))
    }
}

impl Sources {
    /// The queues that servers of a cluster have for these peers, by peer and server. A standalone server has none beside its own.
    fn queues_of_servers(&self, peer_ids: &[String]) -> Result<BTreeMap<(String, String), Queue>> {
        let (env, root) = (&self.resources.env, &self.resources.root);
        let mut queues = BTreeMap::new();
        for peer in peer_ids {
            for server in Owners::of(env, root, peer)?.servers {
                if let Some(queue) = Queue::load(env, root, &name_of(peer, &server))? {
                    queues.insert((peer.clone(), server), queue);
                }
            }
        }
        Ok(queues)
    }
}

impl Running {
    fn join(self) {
        if let Some(thread) = self.thread {
            let _ = thread.join(); // a panic was reported when it happened
        }
    }
}

impl ReplicationSources for Sources {
    fn begin_queue(&self, peer_id: &str) -> Result<()> {
        let (env, root) = (&self.resources.env, &self.resources.root);
        let name = self.queue_name(peer_id);
        if Queue::load(env, root, &name)?.is_some() {
            return Ok(());
        }
        let closed = Wals::list(&self.resources, self.whose(), peer_id)?.closed()?;
        Queue::create(env, root, &name, closed).map(|_| ())
    }

    fn peer_changed(&self, peer: &PeerDescription) -> Result<()> {
        Target::new(peer.config.clusterkey())?;
        PeerFilter::new(&peer.config, false)?;
        let whose = self.whose();
        if peer.config.serial() && whose != ReplicatedWals::All {
            return Err(Error::invalid("serial peers of a cluster of several servers are not supported"));
        }
        if whose == ReplicatedWals::Own {
            self.begin_queue(&peer.id)?;
        }
        let mut all = self.all.lock();
        if all.have_ended {
            return Err(Error::new(ErrorKind::Stopping, "the server is going down"));
        }
        if let Some(running) = all.by_peer.get(&peer.id) {
            running.source.change(peer);
            return Ok(());
        }
        let (env, root) = (&self.resources.env, &self.resources.root);
        let name = self.queue_name(&peer.id);
        let queue = match Queue::load(env, root, &name)? {
            Some(queue) => queue,
            None => Queue::create(env, root, &name, Vec::new())?,
        };
        let source = Arc::new(Source::new((&self.resources, whose), self.sender()?, peer, queue));
        let mut running = Running { source, thread: None };
        self.start(&mut running)?;
        all.by_peer.insert(peer.id.clone(), running);
        Ok(())
    }

    fn peer_removed(&self, peer_id: &str) -> Result<()> {
        let running = self.all.lock().by_peer.remove(peer_id);
        if let Some(running) = running {
            running.source.end();
            running.join();
        }
        let (env, root) = (&self.resources.env, &self.resources.root);
        if self.whose() != ReplicatedWals::Own {
            for name in Owners::of(env, root, peer_id)?.names(peer_id) {
                Queue::remove(env, root, &name)?;
            }
        }
        Queue::remove(env, root, &self.queue_name(peer_id))
    }

    fn needed_wals(&self, peer_ids: &[String], names: &[String]) -> Result<HashSet<String>> {
        // Before the own queues: one that is adopted meanwhile is in those.
        let of_servers = self.queues_of_servers(peer_ids)?;
        let all = self.all.lock();
        let is_needed = |name: &String| {
            let by = |peer: &String| match of_servers.get(&(peer.clone(), server_of(name).to_string())) {
                Some(queue) => !queue.is_done(name),
                None => all.by_peer.get(peer).is_none_or(|running| running.source.needs(name)),
            };
            begin_of(name).is_some() && peer_ids.iter().any(by)
        };
        Ok(names.iter().filter(|name| is_needed(name)).cloned().collect())
    }

    fn needed_hfiles(&self, peer_ids: &[String]) -> Result<Vec<String>> {
        let (env, root) = (&self.resources.env, &self.resources.root);
        let mut needed = Vec::new();
        // Before the own queues: one that is adopted meanwhile is in those.
        for peer in peer_ids {
            for name in Owners::of(env, root, peer)?.names(peer) {
                needed.extend(Queue::load(env, root, &name)?.iter().flat_map(Queue::hfiles).cloned());
            }
        }
        let all = self.all.lock();
        let running = peer_ids.iter().filter_map(|peer| all.by_peer.get(peer));
        let noted: HashSet<String> = needed.iter().cloned().collect();
        needed
            .extend(running.flat_map(|running| running.source.hfiles()).filter(|name| !noted.contains(name)));
        Ok(needed)
    }
}

impl ReplicationSources for RegionServer {
    fn begin_queue(&self, peer_id: &str) -> Result<()> {
        self.sources.begin_queue(peer_id)
    }

    fn peer_changed(&self, peer: &PeerDescription) -> Result<()> {
        self.sources.peer_changed(peer)
    }

    fn peer_removed(&self, peer_id: &str) -> Result<()> {
        self.sources.peer_removed(peer_id)
    }

    fn needed_wals(&self, peer_ids: &[String], names: &[String]) -> Result<HashSet<String>> {
        self.sources.needed_wals(peer_ids, names)
    }

    fn needed_hfiles(&self, peer_ids: &[String]) -> Result<Vec<String>> {
        self.sources.needed_hfiles(peer_ids)
    }
}
