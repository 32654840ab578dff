//! Sends the edits of this cluster's WALs to one peer.
//!
//! A thread of its own reads the WALs in their order, as far as what is in them was acknowledged, and sends batches. The queue
//! is moved on after each batch that the peer has applied. So a crash, or an answer that is lost, makes the peer get
//! something twice, and never makes it miss anything. Checked against `ReplicationSource`, `ReplicationSourceShipper` and
//! `HBaseInterClusterReplicationEndpoint` of 2.6.4.
//!
//! *Thread safety*: shared freely. The queue is locked by the thread and by the cleaner's questions, never while a call
//! to the peer is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{ErrorKind, Result};
use halcyon_contract::PeerDescription;
use halcyon_env::Mutex;
use halcyon_proto::pb;
use halcyon_schema::{ClusterUuid, TableName};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::barriers::ReadBarriers;
use super::closings::{Closing, Closings, WalPlace};
use super::deleted::{Lack, drop_deleted};
use super::filter::PeerFilter;
use super::holders::Holder;
use super::queue::{Queue, Reached};
use super::serial::SerialChecker;
use super::target::{Sender, Target};
use super::wals::{Batch, Wals, Whose, acknowledged, begin_of};
use crate::regions::resources::RegionResources;

/// How often it is looked whether there is something new to send.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How often it is looked whether what waits for other servers may be sent (HBase: `hbase.serial.replication.waiting.ms`).
const WAIT_PERIOD: Duration = Duration::from_millis(200);
/// How often closings of regions are looked through, if there are more than so many.
const FORGET_PERIOD: Duration = Duration::from_secs(10 * 60);
const CLOSED_KEPT: usize = 1000;
/// Pause after a failure (HBase: `replication.source.sleepforretries`), as often longer as there were failures.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The first failure is told, and then one in so many.
const TELL_ONE_IN: u32 = 30;

/// What a source is told.
#[derive(Clone, Debug)]
struct Orders {
    config: pb::ReplicationPeer,
    is_enabled: bool,
    has_ended: bool,
}

/// What was sent since start (HBase: `MetricsSource`).
#[derive(Debug, Default)]
struct Numbers {
    shipped_ops: AtomicU64,
    shipped_batches: AtomicU64,
    shipped_bytes: AtomicU64,
    shipped_hfiles: AtomicU64,
    failed_batches: AtomicU64,
    filtered_edits: AtomicU64,
    completed_wals: AtomicU64,
    read_edits: AtomicU64,
    queued_wals: AtomicU64,
    age_ms: AtomicU64,
    /// When the newest entry was written that the peer has got; 0: none was sent.
    shipped_ms: AtomicU64,
    /// When the oldest entry was written that is being sent; 0: none is.
    next_ms: AtomicU64,
    /// When an entry was written that was to be sent last; 0: there was none.
    seen_ms: AtomicU64,
}

/// What a source has sent since start, besides what servers report to the master (HBase: `MetricsReplicationSourceSource`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceStats {
    /// Of the queue: the peer's, or `<peer>-<server>` if the queue is that of a server that is gone.
    pub queue_id: String,
    /// WAL entries that the peer has applied, and all that were read.
    pub shipped_ops: u64,
    pub read_edits: u64,
    /// Requests that the peer has applied, bytes of their cells, and HFiles of their bulk loads.
    pub shipped_batches: u64,
    pub shipped_bytes: u64,
    pub shipped_hfiles: u64,
    /// Requests that failed.
    pub failed_batches: u64,
    /// WAL entries that the peer does not get.
    pub filtered_edits: u64,
    /// WALs that were sent to their end.
    pub completed_wals: u64,
    /// HFiles of bulk loads that the peer has still to copy.
    pub queued_hfiles: u64,
}

impl SourceStats {
    /// Adds what another source has sent.
    pub(super) fn add(&mut self, other: &SourceStats) {
        self.shipped_ops += other.shipped_ops;
        self.read_edits += other.read_edits;
        self.shipped_batches += other.shipped_batches;
        self.shipped_bytes += other.shipped_bytes;
        self.shipped_hfiles += other.shipped_hfiles;
        self.failed_batches += other.failed_batches;
        self.filtered_edits += other.filtered_edits;
        self.completed_wals += other.completed_wals;
    }
}

/// See the head of the file.
pub(crate) struct Source {
    id: String,
    queue_id: String,
    resources: Arc<RegionResources>,
    whose: Whose,
    own: ClusterUuid,
    sender: Sender,
    orders: watch::Sender<Orders>,
    queue: Mutex<Queue>,
    serial: Serial,
    numbers: Numbers,
    is_running: AtomicBool,
    /// Everything was sent, and nothing will follow: the server is gone whose WALs they are.
    has_finished: AtomicBool,
}

/// What serial peers need.
#[derive(Clone)]
pub(super) struct Serial {
    /// The server whose WALs are sent, named as in those.
    pub(super) server: String,
    pub(super) barriers: Arc<dyn ReadBarriers>,
    pub(super) closings: Arc<Closings>,
}

/// Closings of regions here of which it is not noted that the peer has all edits.
#[derive(Default)]
struct Unnoted {
    /// Of the closings that were looked at; `None`: none were.
    version: Option<u64>,
    are_left: bool,
}

/// Why a pass ended.
#[derive(Debug, PartialEq, Eq)]
enum Pass {
    /// There may be more.
    Moved,
    /// Everything was sent.
    AtEnd,
    /// What is next waits for what other servers send.
    Waiting,
    /// Other orders came.
    Interrupted,
}

impl Source {
    pub(super) fn new(
        (resources, whose): (&Arc<RegionResources>, Whose),
        (own, sender): (ClusterUuid, Sender),
        peer: &PeerDescription,
        queue: Queue,
        serial: Serial,
    ) -> Source {
        let orders = Orders { config: peer.config.clone(), is_enabled: peer.is_enabled, has_ended: false };
        let queue_id = match &whose {
            Whose::Gone(server) => format!("{}-{}", peer.id, server.replace("%2C", ",")),
            Whose::All | Whose::Own => peer.id.clone(),
        };
        Source {
            id: peer.id.clone(),
            queue_id,
            resources: Arc::clone(resources),
            whose,
            own,
            sender,
            orders: watch::Sender::new(orders),
            queue: Mutex::new(queue),
            serial,
            numbers: Numbers::default(),
            is_running: AtomicBool::new(false),
            has_finished: AtomicBool::new(false),
        }
    }

    /// Whether everything of a server that is gone was sent. Then the thread ends.
    pub(super) fn has_finished(&self) -> bool {
        self.has_finished.load(Ordering::Acquire)
    }

    pub(super) fn change(&self, peer: &PeerDescription) {
        self.orders.send_modify(|orders| {
            orders.config = peer.config.clone();
            orders.is_enabled = peer.is_enabled;
        });
    }

    /// Ends the thread, soon.
    pub(super) fn end(&self) {
        self.orders.send_modify(|orders| orders.has_ended = true);
    }

    /// Whether the peer may still need a WAL.
    pub(super) fn needs(&self, wal: &str) -> bool {
        !self.queue.lock().is_done(wal)
    }

    /// Notes HFiles of a bulk load that the peer is to copy, before they are part of their region. Files of families that the
    /// peer does not get are passed over.
    pub(super) fn note_hfiles(&self, table: &TableName, files: &[(String, String)]) -> Result<()> {
        let filter = self.filter(&self.orders.borrow().config)?;
        let sent = files.iter().filter(|(family, _)| filter.passes_loads(table, family.as_bytes()));
        let names: Vec<String> = sent.map(|(_, name)| name.clone()).collect();
        if names.is_empty() { Ok(()) } else { self.queue.lock().add_hfiles(&names) }
    }

    /// HFiles that the peer has still to copy, oldest first.
    pub(super) fn hfiles(&self) -> Vec<String> {
        self.queue.lock().hfiles().to_vec()
    }

    fn filter(&self, config: &pb::ReplicationPeer) -> Result<PeerFilter> {
        PeerFilter::new(config, self.resources.online.in_force().replicates_bulk_loads)
    }

    /// As servers report it to the master. Of what was read and sent it has the times of writing, and 0 where there is nothing
    /// yet (HBase: `ReplicationLoad.buildReplicationLoad`).
    pub(super) fn load(&self, now_ms: i64) -> pb::ReplicationLoadSource {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (numbers, next_ms) = (&self.numbers, get(&self.numbers.next_ms));
        let lag_ms = if next_ms == 0 { 0 } else { (now_ms.max(0) as u64).saturating_sub(next_ms) };
        pb::ReplicationLoadSource {
            peer_id: self.id.clone(),
            age_of_last_shipped_op: get(&numbers.age_ms),
            size_of_log_queue: u32::try_from(get(&numbers.queued_wals)).unwrap_or(u32::MAX),
            time_stamp_of_last_shipped_op: get(&numbers.shipped_ms),
            replication_lag: lag_ms,
            time_stamp_of_next_to_replicate: Some(get(&numbers.seen_ms)),
            queue_id: Some(self.queue_id.clone()),
            recovered: Some(matches!(self.whose, Whose::Gone(_))),
            running: Some(self.is_running.load(Ordering::Relaxed)),
            edits_since_restart: Some(get(&numbers.seen_ms) > 0),
            edits_read: Some(get(&numbers.read_edits)),
            o_ps_shipped: Some(get(&numbers.shipped_ops)),
        }
    }

    pub(super) fn stats(&self) -> SourceStats {
        let (get, numbers) = (|number: &AtomicU64| number.load(Ordering::Relaxed), &self.numbers);
        SourceStats {
            queue_id: self.queue_id.clone(),
            shipped_ops: get(&numbers.shipped_ops),
            read_edits: get(&numbers.read_edits),
            shipped_batches: get(&numbers.shipped_batches),
            shipped_bytes: get(&numbers.shipped_bytes),
            shipped_hfiles: get(&numbers.shipped_hfiles),
            failed_batches: get(&numbers.failed_batches),
            filtered_edits: get(&numbers.filtered_edits),
            completed_wals: get(&numbers.completed_wals),
            queued_hfiles: self.queue.lock().hfiles().len() as u64,
        }
    }

    /// What the source's thread does until the source is ended. The calls run on the threads of this runtime.
    pub(super) fn work(&self, threads: &Handle) {
        threads.block_on(self.run());
        self.is_running.store(false, Ordering::Relaxed);
    }

    async fn run(&self) {
        let mut orders = self.orders.subscribe();
        let mut failures = 0;
        loop {
            let now = orders.borrow_and_update().clone();
            if now.has_ended || self.has_finished() {
                return;
            }
            let mut pause = Duration::MAX;
            if now.is_enabled {
                let worked = self.send_all(&now, &mut orders, &mut failures).await;
                pause = match worked {
                    Ok(()) => Duration::ZERO,
                    Err(error) => {
                        failures += 1;
                        self.is_running.store(false, Ordering::Relaxed);
                        if failures % TELL_ONE_IN == 1 {
                            tracing::warn!(peer = self.id, failures, %error, "nothing is sent to a peer; it is tried again");
                        }
                        (PAUSE * failures).min(PAUSE_MAX)
                    }
                };
            }
            self.is_running.store(now.is_enabled && failures == 0, Ordering::Relaxed);
            if pause == Duration::MAX {
                let _ = orders.changed().await;
            } else {
                let _ = tokio::time::timeout(pause, orders.changed()).await;
            }
        }
    }

    /// Sends until other orders come, or all is sent of a server that is gone.
    async fn send_all(
        &self,
        orders: &Orders,
        news: &mut watch::Receiver<Orders>,
        failures: &mut u32,
    ) -> Result<()> {
        let filter = self.filter(&orders.config)?;
        let mut target = Target::new(orders.config.clusterkey())?;
        let mut wals = self.list()?;
        let (mut serial, mut unnoted) = (self.serial_checker(orders), Unnoted::default());
        let mut forgot_ns = self.resources.env.clock.monotonic_ns();
        loop {
            if news.has_changed().unwrap_or(true) {
                return Ok(());
            }
            if wals.are_old() {
                wals = self.list()?;
            }
            match self.send_next(&wals, (&filter, &mut serial), &mut target, (orders, news)).await {
                Ok(Pass::Interrupted) => return Ok(()),
                Ok(Pass::Moved) => {
                    *failures = 0;
                    self.note_closed(&wals, &mut unnoted)?;
                }
                Ok(Pass::Waiting) => {
                    *failures = 0;
                    self.note_closed(&wals, &mut unnoted)?;
                    let _ =
                        tokio::time::timeout(WAIT_PERIOD, news.changed()).await.map(|_| news.mark_changed());
                }
                Ok(Pass::AtEnd) => {
                    *failures = 0;
                    self.note_closed(&wals, &mut unnoted)?;
                    if matches!(self.whose, Whose::Gone(_)) {
                        self.queue.lock().save_if_changed()?;
                        tracing::info!(queue = self.queue_id, "all that a server left for a peer is sent");
                        self.has_finished.store(true, Ordering::Release);
                        return Ok(());
                    }
                    self.is_running.store(true, Ordering::Relaxed);
                    self.forget_closed(&mut forgot_ns).await;
                    let _ =
                        tokio::time::timeout(LOOK_PERIOD, news.changed()).await.map(|_| news.mark_changed());
                }
                Err(error) if error.kind() == ErrorKind::Moved => wals = self.list()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The WALs that are there, after all other queues were adopted: the queue forgets WALs that no list has.
    fn list(&self) -> Result<Wals> {
        if self.whose == Whose::All {
            self.adopt()?;
        }
        Wals::list(&self.resources, &self.whose)
    }

    /// Adopts what a cluster of several servers has left to a standalone one.
    fn adopt(&self) -> Result<()> {
        let (env, root) = (&self.resources.env, &self.resources.root);
        for holder in Holder::all(env, root, &self.id)?.into_iter().filter(|holder| *holder != Holder::Alone)
        {
            let name = holder.name(&self.id);
            if let Some(gone) = Queue::load(env, root, &name)? {
                self.queue.lock().adopt(gone)?;
                Queue::remove(env, root, &name)?;
                tracing::info!(peer = self.id, queue = name, "what is left of a queue is sent from here");
            }
        }
        Ok(())
    }

    async fn send_next(
        &self,
        wals: &Wals,
        (filter, serial): (&PeerFilter, &mut Option<SerialChecker>),
        target: &mut Target,
        (orders, news): (&Orders, &mut watch::Receiver<Orders>),
    ) -> Result<Pass> {
        let own = self.own;
        let peer = tokio::select! {
            peer = target.cluster_id(own) => peer,
            _ = news.changed() => {
                news.mark_changed();
                return Ok(Pass::Interrupted);
            }
        };
        let peer = match peer {
            Ok(peer) => peer,
            Err(error) => {
                self.note_waiting(wals, filter).await;
                return Err(error);
            }
        };
        let queue = self.queue.lock().clone(); // reading takes long
        let mut batch = wals.read(&queue, filter, (own, peer), serial.as_mut()).await?;
        self.note_read(&batch);
        while !batch.entries.is_empty() {
            let shipped = tokio::select! {
                shipped = target.ship(&batch, &self.sender) => shipped,
                _ = news.changed() => {
                    news.mark_changed();
                    return Ok(Pass::Interrupted);
                }
            };
            match shipped {
                Ok(()) => {
                    self.note_shipped(&batch);
                    break;
                }
                Err(error) => {
                    self.numbers.failed_batches.fetch_add(1, Ordering::Relaxed);
                    if !self.drops_deleted(&mut batch, target.lack()) {
                        return Err(error);
                    }
                    target.cluster_id(own).await?;
                }
            }
        }
        let is_shipped = !batch.entries.is_empty();
        if batch.reached != Reached::default() {
            self.queue.lock().advance(&batch.reached, &wals.names(), is_shipped)?;
            let finished = batch.reached.finished.len() as u64;
            self.numbers.completed_wals.fetch_add(finished, Ordering::Relaxed);
        }
        self.numbers.next_ms.store(0, Ordering::Relaxed);
        self.wait_for_bandwidth(&batch, orders, news).await;
        Ok(match batch {
            Batch { is_at_end: true, .. } => Pass::AtEnd,
            Batch { is_waiting: true, .. } if !is_shipped => Pass::Waiting,
            _ => Pass::Moved,
        })
    }

    /// A server that sends the WALs of all others sends in the order of these.
    fn serial_checker(&self, orders: &Orders) -> Option<SerialChecker> {
        let Serial { server, barriers, closings } = self.serial.clone();
        let is_serial = orders.config.serial() && self.whose != Whose::All;
        is_serial.then(|| SerialChecker::new(&self.resources, (&self.id, &server), barriers, closings))
    }

    /// Notes, durably, which of the regions that were closed here the peer has whole. Also of peers that are not serial: they may
    /// become so.
    fn note_closed(&self, wals: &Wals, unnoted: &mut Unnoted) -> Result<()> {
        let closings = &self.serial.closings;
        if matches!(self.whose, Whose::Gone(_))
            || (unnoted.version == Some(closings.version()) && !unnoted.are_left)
        {
            return Ok(());
        }
        let mut queue = self.queue.lock();
        let (now, names) = (acknowledged(&self.resources), wals.names());
        let is_gone = |wal: &str| {
            !names.contains(wal) && wals.current().is_some_and(|current| begin_of(wal) < begin_of(current))
        };
        let is_new =
            |region: &Bytes, closing: &Closing| queue.closed(region).is_none_or(|seq| seq < closing.seq);
        let (version, closed) = closings.some(now, is_gone, is_new);
        // A WAL that was deleted is passed, though the peer has it not.
        let (noted, left): (Vec<_>, Vec<_>) = closed.into_iter().partition(|(_, closing)| {
            let passed =
                |(wal, offset): &WalPlace| queue.is_done(wal) || queue.offset(wal) >= *offset || is_gone(wal);
            closing.end.as_ref().is_some_and(passed)
        });
        (unnoted.version, unnoted.are_left) = (Some(version), !left.is_empty());
        if noted.is_empty() {
            return Ok(());
        }
        queue
            .add_closed(&noted.into_iter().map(|(region, closing)| (region, closing.seq)).collect::<Vec<_>>())
    }

    /// Forgets closings of which nobody will ask any more, because the barriers before them are gone.
    async fn forget_closed(&self, last_ns: &mut u64) {
        let now_ns = self.resources.env.clock.monotonic_ns();
        if u128::from(now_ns.saturating_sub(*last_ns)) < FORGET_PERIOD.as_nanos() {
            return;
        }
        *last_ns = now_ns;
        let all = self.queue.lock().all_closed();
        if all.len() <= CLOSED_KEPT {
            return;
        }
        let mut unasked = Vec::new();
        for (region_name, seq) in all {
            match self.serial.barriers.named(&region_name).await {
                Ok(found) => {
                    let first = found.and_then(|found| found.ranges.first().map(|range| range.open_seq));
                    if first.is_none_or(|first| first > seq) {
                        unasked.push((region_name, seq));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "closings of regions are kept for now");
                    return;
                }
            }
        }
        self.queue.lock().forget_closed(&unasked);
        self.serial.closings.forget(&unasked);
    }

    /// Whether something of the batch was dropped, because it is deleted here and the peer lacks it.
    fn drops_deleted(&self, batch: &mut Batch, lack: Option<Lack>) -> bool {
        let settings = self.resources.online.in_force();
        let lack = lack.filter(|lack| match lack {
            Lack::Table => settings.drop_deleted_tables,
            Lack::Family => settings.drop_deleted_families,
        });
        let Some(lack) = lack else { return false };
        let cells = drop_deleted(batch, lack, &*self.resources.env.fs, &self.resources.root);
        if cells > 0 {
            tracing::warn!(
                peer = self.id,
                cells,
                ?lack,
                "edits of what is deleted here and at a peer are dropped"
            );
        }
        cells > 0
    }

    fn note_read(&self, batch: &Batch) {
        self.numbers.read_edits.fetch_add(batch.read_count, Ordering::Relaxed);
        let filtered = batch.read_count.saturating_sub(batch.entries.len() as u64);
        self.numbers.filtered_edits.fetch_add(filtered, Ordering::Relaxed);
        self.numbers.queued_wals.store(batch.queued_count as u64, Ordering::Relaxed);
        self.note_next(batch);
    }

    fn note_next(&self, batch: &Batch) {
        let next_ms = batch.entries.first().map_or(0, |entry| entry.key.write_time);
        self.numbers.next_ms.store(next_ms, Ordering::Relaxed);
        if next_ms != 0 {
            self.numbers.seen_ms.store(next_ms, Ordering::Relaxed);
        }
    }

    /// What waits for a peer that is not found: its lag counts from the first entry of that.
    async fn note_waiting(&self, wals: &Wals, filter: &PeerFilter) {
        let queue = self.queue.lock().clone();
        self.numbers.queued_wals.store(wals.queued_count(&queue) as u64, Ordering::Relaxed);
        if self.numbers.next_ms.load(Ordering::Relaxed) != 0 {
            return;
        }
        // The peer's id is not known, so edits that it has already count, too.
        match wals.read(&queue, filter, (self.own, self.own), None).await {
            Ok(batch) => self.note_next(&batch),
            Err(error) => tracing::warn!(peer = self.id, %error, "what waits for a peer cannot be read"),
        }
    }

    fn note_shipped(&self, batch: &Batch) {
        let (numbers, now_ms) = (&self.numbers, self.resources.env.clock.now_ms());
        numbers.shipped_ops.fetch_add(batch.entries.len() as u64, Ordering::Relaxed);
        numbers.shipped_batches.fetch_add(1, Ordering::Relaxed);
        numbers.shipped_bytes.fetch_add(batch.bytes as u64, Ordering::Relaxed);
        numbers.shipped_hfiles.fetch_add(batch.hfiles_count(), Ordering::Relaxed);
        let written_ms = i64::try_from(batch.write_time_ms).unwrap_or(now_ms);
        numbers.age_ms.store(now_ms.saturating_sub(written_ms).max(0) as u64, Ordering::Relaxed);
        numbers.shipped_ms.store(batch.write_time_ms, Ordering::Relaxed);
        numbers.seen_ms.store(batch.write_time_ms, Ordering::Relaxed);
    }

    /// Waits as long as a batch may take by the peer's `bandwidth`, in bytes a second; 0: there is no limit.
    async fn wait_for_bandwidth(&self, batch: &Batch, orders: &Orders, news: &mut watch::Receiver<Orders>) {
        let Ok(limit @ 1..) = u64::try_from(orders.config.bandwidth()) else { return };
        let pause = Duration::from_secs_f64(batch.bytes as f64 / limit as f64);
        let interrupted = tokio::time::timeout(pause, news.changed()).await;
        if interrupted.is_ok() {
            news.mark_changed();
        }
    }
}
