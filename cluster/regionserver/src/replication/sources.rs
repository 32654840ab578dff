//! The sources of a server, one for each peer, and what the master tells and asks of them.
//!
//! A server that is one of several sends the edits of its own WALs. It reads the peers from their files, when it starts and when the
//! master says that one has changed. By order of the master it also claims queues of servers that are gone (`claims.rs`).

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{PeerDescription, ReplicationSources};
use halcyon_env::{Mutex, spawn_thread};
use halcyon_proto::pb;
use halcyon_schema::{ClusterId, ClusterUuid, RegionBarriers, ServerName, TableName, layout, peer_files};
use tokio::runtime::Handle;

use super::barriers::{MetaBarriers, ReadBarriers};
use super::closings::Closings;
use super::filter::PeerFilter;
use super::holders::Holder;
use super::queue::{Queue, is_needed_by};
use super::sent::Sent;
use super::serial::count_sent;
use super::source::{Serial, Source, SourceStats};
use super::target::{self, FileDirs, Sender, Target};
use super::wals::{Wals, Whose, acknowledged, begin_of};
use crate::RegionServer;
use crate::regions::resources::RegionResources;

/// For a moment, while the log rolls, it is not known where it ends.
const LOOK_PERIOD: Duration = Duration::from_millis(5);
const LOOKS_MAX: u32 = 1000;

/// See the head of the file.
///
/// *Thread safety*: shared freely. The lock is held over the beginning and removal of sources, which the master does one after
/// the other, and for look-ups.
pub(crate) struct Sources {
    pub(super) resources: Arc<RegionResources>,
    /// As in the names of its WALs.
    pub(super) server: String,
    is_one_of_several: AtomicBool,
    threads: OnceLock<Handle>,
    pub(super) all: Mutex<All>,
    /// Held while a peer is read and obeyed, so that what was read last is obeyed last.
    pub(super) reading: Mutex<()>,
    closings: Arc<Closings>,
    barriers: OnceLock<Arc<dyn ReadBarriers>>,
    own_address: String,
}

#[derive(Default)]
pub(super) struct All {
    by_peer: BTreeMap<String, Running>,
    /// Sources of queues that were claimed, by peer and server.
    pub(super) claims: BTreeMap<(String, String), Running>,
    pub(super) have_ended: bool,
    /// Claimed queues that were sent to the end, and what was sent of them.
    completed_claims: (u64, SourceStats),
}

pub(super) struct Running {
    pub(super) source: Arc<Source>,
    /// `None`: the server has no threads for calls yet.
    thread: Option<JoinHandle<()>>,
}

impl All {
    fn running(&self) -> impl Iterator<Item = &Running> {
        self.by_peer.values().chain(self.claims.values())
    }

    /// Forgets sources of servers that are gone which have sent everything.
    pub(super) fn forget_finished(&mut self) {
        let (count, sum) = &mut self.completed_claims;
        self.claims.retain(|_, running| {
            let has_finished = running.source.has_finished();
            if has_finished {
                *count += 1;
                sum.add(&running.source.stats());
            }
            !has_finished
        });
    }

    fn take_claims(&mut self, peer: &str) -> Vec<Running> {
        let keys: Vec<_> = self.claims.keys().filter(|(of, _)| of == peer).cloned().collect();
        keys.iter().filter_map(|key| self.claims.remove(key)).collect()
    }
}

impl Sources {
    pub(crate) fn new(resources: &Arc<RegionResources>, server: &ServerName) -> Sources {
        Sources {
            resources: Arc::clone(resources),
            server: server.to_string().replace(',', "%2C"),
            is_one_of_several: AtomicBool::new(false),
            threads: OnceLock::new(),
            all: Mutex::default(),
            reading: Mutex::default(),
            closings: Arc::default(),
            barriers: OnceLock::new(),
            own_address: server.address(),
        }
    }

    /// Only the WALs of this server are sent: it is one of several. Comes before any peer is known.
    pub(crate) fn send_own_wals(&self) {
        self.is_one_of_several.store(true, Ordering::Relaxed);
    }

    fn whose(&self) -> Whose {
        if self.is_one_of_several.load(Ordering::Relaxed) { Whose::Own } else { Whose::All }
    }

    /// Where sources read barriers, instead of `hbase:meta`. The first one stays.
    pub(crate) fn read_barriers_with(&self, barriers: Arc<dyn ReadBarriers>) {
        let _ = self.barriers.set(barriers);
    }

    /// A region serves from now on, and `hbase:meta` says so.
    pub(crate) fn note_opened(&self) {
        self.closings.note_opened();
    }

    /// A region does not serve here any more: an opening has failed, or the marker of its closing is in the WAL. No edit of it has a
    /// sequence id above this one. Where the WAL ends is found out before another server can open the region: what has to wait for that
    /// is so behind everything that it waits for. *Blocking*.
    pub(crate) fn note_closed(&self, region_name: &Bytes, seq: u64) {
        let mut end = acknowledged(&self.resources);
        for _ in 0..LOOKS_MAX {
            if end.is_some() {
                break;
            }
            self.resources.env.clock.sleep(LOOK_PERIOD);
            end = acknowledged(&self.resources);
        }
        let is_asked = self.all.lock().running().next().is_some();
        self.closings.note_closed(region_name, seq, end, is_asked);
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
            Whose::All => Holder::Alone.name(peer),
            _ => Holder::Server(self.server.clone()).name(peer),
        }
    }

    /// Calls to peers run on the threads of this runtime. The first one stays.
    pub(crate) fn work_on(&self, threads: Handle) {
        let _ = self.threads.set(threads);
        let mut all = self.all.lock();
        let All { by_peer, claims, .. } = &mut *all;
        for running in by_peer.values_mut().chain(claims.values_mut()) {
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
        self.all.lock().running().map(|running| running.source.stats()).collect()
    }

    /// Queues of servers that are gone, which were claimed and sent to the end since start, and what was sent of them.
    pub(crate) fn completed_claims(&self) -> (u64, SourceStats) {
        let mut all = self.all.lock();
        all.forget_finished();
        all.completed_claims.clone()
    }

    /// As servers report it to the master.
    pub(crate) fn loads(&self) -> Vec<pb::ReplicationLoadSource> {
        let now_ms = self.resources.env.clock.now_ms();
        let mut all = self.all.lock();
        all.forget_finished();
        all.running().map(|running| running.source.load(now_ms)).collect()
    }

    /// Has all sources end, soon. No other one begins.
    pub(crate) fn end(&self) {
        let mut all = self.all.lock();
        all.have_ended = true;
        all.running().for_each(|running| running.source.end());
    }

    /// The id of another cluster, by its cluster key; `None`: it has none, or the server has no threads for calls yet.
    pub(crate) fn cluster_id_of(&self, cluster_key: &str) -> Result<Option<ClusterId>> {
        let Some(threads) = self.threads.get() else { return Ok(None) };
        threads.block_on(target::cluster_id_of(cluster_key))
    }

    /// Ends all sources, and waits for their threads. What the peers have got is noted already.
    pub(crate) fn stop(&self) {
        self.end();
        let mut all = self.all.lock();
        let (ended, claims) = (std::mem::take(&mut all.by_peer), std::mem::take(&mut all.claims));
        drop(all);
        ended.into_values().chain(claims.into_values()).for_each(Running::join);
    }

    /// A source of this server, with its thread.
    pub(super) fn begin(&self, whose: Whose, peer: &PeerDescription, queue: Queue) -> Result<Running> {
        let barriers = self.barriers.get_or_init(|| Arc::new(MetaBarriers::new(self.own_address.clone())));
        let server = match &whose {
            Whose::Gone(server) => server.clone(),
            Whose::All | Whose::Own => self.server.clone(),
        };
        let serial = Serial { server, barriers: Arc::clone(barriers), closings: Arc::clone(&self.closings) };
        let source = Source::new((&self.resources, whose), self.sender()?, peer, queue, serial);
        let source = Arc::new(source);
        let mut running = Running { source, thread: None };
        self.start(&mut running)?;
        Ok(running)
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

/// `Invalid` if a server cannot send what a peer is to get.
pub(super) fn check(peer: &PeerDescription) -> Result<()> {
    Target::new(peer.config.clusterkey())?;
    PeerFilter::new(&peer.config, false).map(drop)
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
        let closed = Wals::list(&self.resources, &self.whose())?.closed()?;
        Queue::create(env, root, &name, closed).map(|_| ())
    }

    fn peer_changed(&self, peer: &PeerDescription) -> Result<()> {
        let whose = self.whose();
        check(peer)?;
        if whose == Whose::Own {
            self.begin_queue(&peer.id)?;
        }
        let mut all = self.all.lock();
        if all.have_ended {
            return Err(Error::new(ErrorKind::Stopping, "the server is going down"));
        }
        let claims = all.claims.iter().filter(|((of, _), _)| *of == peer.id);
        claims.for_each(|(_, running)| running.source.change(peer));
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
        let running = self.begin(whose, peer, queue)?;
        all.by_peer.insert(peer.id.clone(), running);
        Ok(())
    }

    fn peer_removed(&self, peer_id: &str) -> Result<()> {
        let mut all = self.all.lock();
        let running = all.by_peer.remove(peer_id);
        let ended: Vec<Running> = running.into_iter().chain(all.take_claims(peer_id)).collect();
        drop(all);
        ended.iter().for_each(|running| running.source.end());
        ended.into_iter().for_each(Running::join);
        let (env, root) = (&self.resources.env, &self.resources.root);
        let whose = self.whose();
        for holder in Holder::all(env, root, peer_id)? {
            let is_own = matches!(&holder, Holder::Claimer { by, .. } if *by == self.server);
            if whose == Whose::All || is_own {
                Queue::remove(env, root, &holder.name(peer_id))?;
            }
        }
        Queue::remove(env, root, &self.queue_name(peer_id))
    }

    fn needed_wals(&self, peer_ids: &[String], names: &[String]) -> Result<HashSet<String>> {
        let (env, root) = (&self.resources.env, &self.resources.root);
        let mut needed = HashSet::new();
        for peer in peer_ids {
            // Before the own queue: one that is adopted meanwhile is in that.
            let queues = Queue::load_all(env, root, peer)?;
            let all = self.all.lock();
            let own = all.by_peer.get(peer);
            let by_own = |name: &str| own.is_none_or(|running| running.source.needs(name));
            let is_needed = |name: &str| is_needed_by(&queues, name).unwrap_or_else(|| by_own(name));
            needed.extend(names.iter().filter(|name| begin_of(name).is_some() && is_needed(name)).cloned());
        }
        Ok(needed)
    }

    fn needed_hfiles(&self, peer_ids: &[String]) -> Result<Vec<String>> {
        let (env, root) = (&self.resources.env, &self.resources.root);
        let mut needed = Vec::new();
        // Before the own queues: one that is adopted meanwhile is in those.
        for peer in peer_ids {
            let queues = Queue::load_all(env, root, peer)?;
            needed.extend(queues.iter().flat_map(|(_, queue)| queue.hfiles()).cloned());
        }
        let all = self.all.lock();
        let running = peer_ids.iter().filter_map(|peer| all.by_peer.get(peer));
        let noted: HashSet<String> = needed.iter().cloned().collect();
        needed
            .extend(running.flat_map(|running| running.source.hfiles()).filter(|name| !noted.contains(name)));
        Ok(needed)
    }

    fn sent_ranges(&self, peer_ids: &[String], regions: &[RegionBarriers]) -> Result<Vec<usize>> {
        sent_ranges(&self.resources, peer_ids, regions)
    }
}

/// What the master takes away of barriers.
pub(super) fn sent_ranges(
    resources: &RegionResources,
    peer_ids: &[String],
    regions: &[RegionBarriers],
) -> Result<Vec<usize>> {
    let mut counts: Vec<usize> = regions.iter().map(|region| region.ranges.len()).collect();
    for peer in peer_ids {
        let of_peer = count_sent(&mut Sent::new(resources, peer, None), regions)?;
        counts.iter_mut().zip(of_peer).for_each(|(count, other)| *count = other.min(*count));
    }
    Ok(counts)
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

    fn sent_ranges(&self, peer_ids: &[String], regions: &[RegionBarriers]) -> Result<Vec<usize>> {
        self.sources.sent_ranges(peer_ids, regions)
    }
}
