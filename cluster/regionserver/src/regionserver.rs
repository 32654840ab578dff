//! The region server: many regions behind two services, and the threads that keep them healthy.
//!
//! ```text
//! calls       service/*  -> region_table -> region         on event loops, or pool.rs for the disk
//! WALs        wal/logs.rs, background/wal_threads.rs        one thread: write, sync; one: roll, archive
//! memory      memory/*, background/flusher.rs               threads: flush; compact in memory; chunks
//! files       background/compactions.rs                     two threads: compact
//! blocks      background/cache_upkeep.rs, prefetcher.rs     one thread: work that reads postpone; one: read ahead
//! size        background/split_checker.rs                   reports to the master what has grown too large
//! time        background/chores.rs                          one thread: leases, old edits, memory, checks
//! ```
//!
//! Life: [`RegionServer::start`] recovers the WALs of its predecessors and begins its own. Regions come and go by
//! [`RegionServer::open_region`] and [`RegionServer::close_region`]. [`RegionServer::stop`] refuses new calls, closes
//! the regions, ends the WALs. A server whose WAL fails gives up by itself ([`RegionServer::failure`]). It answers
//! nothing more that would promise durability, and what was acknowledged is in the WAL for the next start. A server
//! that is dropped ends its threads and leaves its WALs.
//!
//! *Thread safety*: all methods from any thread. *Lock order*: no lock of this crate is held while another is taken, or
//! while a region is called.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result, SeqId};
use halcyon_contract::{BackupBooks, QuotaSource, RegionFiles, RegionServerStatus};
use halcyon_env::vitals::{StuckThread, Vitals};
use halcyon_env::{Env, contained};
use halcyon_memstore::ChunkPool;
use halcyon_region::{MobFileCache, RegionSettings, WalRoot};
use halcyon_rpc::{Connection, Queues, RpcError};
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor, layout};
use tokio::runtime::Handle;

use crate::background::split_checker::SplitChecker;
use crate::background::{Background, Shared, cache_upkeep};
use crate::calls::nonces::Nonces;
use crate::calls::pool::{DiskPool, PoolLimits};
use crate::calls::scanners::Scanners;
use crate::calls::slow_calls::{SlowCall, SlowCalls};
use crate::coprocessors::Coprocessors;
use crate::lifecycle::Lifecycle;
use crate::memory::account::MemoryAccount;
use crate::memory::budget::MemoryPart;
use crate::memory::pressure::Pressure;
use crate::metrics::counters::{Counters, RequestRate};
use crate::metrics::op_times::OpTimes;
use crate::metrics::users::UserLoads;
use crate::quotas::{QuotaParts, Quotas};
use crate::regions::files::LocalRegionFiles;
use crate::regions::region_table::{OnlineRegion, RegionTable};
use crate::regions::resources::RegionResources;
use crate::replication::{OpenSourceFiles, ReadBarriers, Sink, Sources};
use crate::settings::online::OnlineSettings;
use crate::settings::server::RegionServerSettings;
use crate::wal::logs::Logs;
use crate::wal::recover::{Predecessors, recover_logs, remove_emptied};

/// Flushes of a region before it is closed.
const PRECLOSE_FLUSHES_MAX: usize = 2;
/// Calls of administrators, and bulk loads that copy, at the same time. Others of their kind wait.
const SLOW_THREADS: usize = 2;

/// See the head of the file.
pub struct RegionServer {
    pub(crate) env: Env,
    /// What the server was started with; see `online` for what may have changed since.
    pub(crate) settings: RegionServerSettings,
    pub(crate) online: Arc<OnlineSettings>,
    pub(crate) name: ServerName,
    wal_dir: PathBuf,
    pub(crate) lifecycle: Arc<Lifecycle>,
    vitals: Arc<Vitals>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) resources: Arc<RegionResources>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) scanners: Arc<Scanners>,
    pub(crate) nonces: Arc<Nonces>,
    pub(crate) pool: Arc<DiskPool>,
    /// For calls of administrators, which may take as long as a flush.
    pub(crate) admin_pool: Arc<DiskPool>,
    /// For bulk loads that copy files.
    pub(crate) load_pool: Arc<DiskPool>,
    pub(crate) pressure: Arc<Pressure>,
    pub counters: Arc<Counters>,
    pub(crate) request_rate: Arc<RequestRate>,
    pub(crate) user_loads: UserLoads,
    pub(crate) op_times: OpTimes,
    pub(crate) slow_calls: SlowCalls,
    pub(crate) sink: Arc<Sink>,
    pub(crate) sources: Arc<Sources>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) coprocessors: Coprocessors,
    /// Not set: all regions of these tables are here.
    backup_books: OnceLock<Arc<dyn BackupBooks>>,
    /// Where the server's page is; 0: nowhere.
    info_port: AtomicU16,
    pub(crate) background: Background,
}

impl RegionServer {
    /// Recovers what `predecessors` left, and starts to serve. *Blocking*. `host` and `port` are what clients will find it
    /// under.
    pub fn start(
        env: Env,
        root: &Path,
        predecessors: &Predecessors,
        settings: RegionServerSettings,
        host: &str,
        port: u16,
    ) -> Result<Arc<RegionServer>> {
        RegionServer::start_over(env, root, None, predecessors, settings, (host, port))
    }

    /// As [`RegionServer::start`]. With a `wal_root`, WALs and recovered edits are there. Those that were left in the root
    /// directory before there was one are recovered as well.
    pub fn start_over(
        env: Env,
        root: &Path,
        wal_root: Option<WalRoot>,
        predecessors: &Predecessors,
        settings: RegionServerSettings,
        (host, port): (&str, u16),
    ) -> Result<Arc<RegionServer>> {
        let on_damage = settings.on_wal_damage();
        recover_logs(&env, root, (&env, root), predecessors, on_damage)?;
        if let Some(wal) = &wal_root {
            recover_logs(&env, root, (&wal.env, &wal.path), predecessors, on_damage)?;
        }
        let name = ServerName::new(host, port, env.clock.now_ms());
        RegionServer::start_as(env, root, wal_root, settings, name)
    }

    /// Starts to serve under a name that the master knows. Recovers nothing. *Blocking*. With a `wal_root`, WALs and
    /// recovered edits are there and not in the root directory.
    pub fn start_as(
        env: Env,
        root: &Path,
        wal_root: Option<WalRoot>,
        settings: RegionServerSettings,
        name: ServerName,
    ) -> Result<Arc<RegionServer>> {
        let wals = layout::wals_dir(wal_root.as_ref().map_or(root, |wal| &wal.path));
        let wal_dir = wals.join(name.to_string());
        let clock = &env.clock;
        let nonces = Arc::new(Nonces::new(clock.clone(), settings.nonce_grace, settings.nonces_bytes_max()));
        let region_settings = RegionSettings {
            nonce_age_max: nonces.replayed_age_max(),
            results_bytes_max: usize::try_from(settings.result_bytes_max).unwrap_or(usize::MAX),
            ..settings.region.clone()
        };
        let online = Arc::new(OnlineSettings::new(settings.clone()));
        let resources = region_resources(&env, (root, wal_root), &online, region_settings, &name, &wal_dir)?;
        let resources = Arc::new(resources);
        let (lifecycle, regions) =
            (Arc::new(Lifecycle::new(name.clone())), Arc::new(RegionTable::new(name.to_string())));
        let request_rate = Arc::new(RequestRate::new(clock.monotonic_ns(), clock.now_ms()));
        let counters = Arc::new(Counters::default());
        let quota_parts = QuotaParts {
            clock: clock.clone(),
            lifecycle: lifecycle.clone(),
            regions: regions.clone(),
            request_rate: request_rate.clone(),
            counters: counters.clone(),
            handlers_count: settings.disk_threads_max,
        };
        let coprocessors = Coprocessors::new(&settings.coprocessors, &env, &lifecycle, name.to_string());
        let shared = Shared {
            quotas: Arc::new(Quotas::new(&settings.quotas, quota_parts)),
            lifecycle,
            vitals: Arc::default(),
            regions,
            scanners: Arc::new(Scanners::new(
                clock.clone(),
                settings.scanner_lease,
                settings.scanner_limits(),
            )),
            pool: Arc::new(DiskPool::new(settings.pool_limits(), clock.clone())),
            pressure: Arc::new(Pressure::new(
                settings.memstore_low_bytes(),
                settings.memstore_high_bytes(),
                settings.hold_back_max,
            )),
            counters,
            request_rate,
            nonces,
            resources: resources.clone(),
            online: online.clone(),
        };
        shared.vitals.watch_log(&wal_dir);
        let splits = SplitChecker::new(name.clone(), online.clone(), clock.clone(), shared.regions.clone());
        let background = Background::new(&shared, splits, &settings);
        let sources = Arc::new(Sources::new(&resources, &name));
        shared.lifecycle.on_end({
            let sources = sources.clone();
            move || sources.end()
        });
        let server = Arc::new(RegionServer {
            wal_dir,
            coprocessors,
            lifecycle: shared.lifecycle.clone(),
            vitals: shared.vitals.clone(),
            regions: shared.regions.clone(),
            logs: resources.logs.clone(),
            resources,
            scanners: shared.scanners.clone(),
            nonces: shared.nonces.clone(),
            pool: shared.pool.clone(),
            admin_pool: Arc::new(DiskPool::new(PoolLimits::flat(SLOW_THREADS), clock.clone())),
            load_pool: Arc::new(DiskPool::new(PoolLimits::flat(SLOW_THREADS), clock.clone())),
            pressure: shared.pressure.clone(),
            counters: shared.counters.clone(),
            request_rate: shared.request_rate.clone(),
            user_loads: UserLoads::default(),
            op_times: OpTimes::default(),
            slow_calls: SlowCalls::new(settings.slow_calls_kept_max),
            sink: Arc::new(Sink::new(&name, env.clock.now_ms())),
            sources: sources.clone(),
            quotas: shared.quotas.clone(),
            backup_books: OnceLock::new(),
            info_port: AtomicU16::new(0),
            background,
            online,
            env,
            settings,
            name,
        });
        server.background.start(&shared, &server.settings)?;
        Ok(server)
    }

    pub fn server_name(&self) -> &ServerName {
        &self.name
    }

    pub fn regions(&self) -> &RegionTable {
        &self.regions
    }

    pub fn settings(&self) -> &RegionServerSettings {
        &self.settings
    }

    /// Counts room for answers in the queues of the ports, and runs what may wait for the disk on the threads of one
    /// runtime.
    pub fn serve_behind(&self, queues: Arc<Queues>, threads: Handle) {
        self.sink.work_on(threads.clone());
        self.sources.work_on(threads.clone());
        self.coprocessors.pool.work_on(threads.clone());
        self.admin_pool.work_on(threads.clone());
        self.load_pool.work_on(threads.clone());
        self.pool.work_on(threads);
        self.pool.keep_room_in(queues);
    }

    /// Only the server's own WALs are sent to replication peers, and those of queues that it claims; without a call all WALs that are
    /// there. Before any peer is known.
    pub fn replicate_own_wals(&self) {
        self.sources.send_own_wals();
    }

    /// Has edits sent to all peers that are in the root directory. *Blocking*. For a server of a cluster, when it starts.
    pub fn read_peers(&self) -> Result<()> {
        self.sources.read_peers()
    }

    /// Where serial peers' sources read barriers, instead of `hbase:meta`. The first one stays.
    pub fn read_barriers_with(&self, barriers: Arc<dyn ReadBarriers>) {
        self.sources.read_barriers_with(barriers);
    }

    /// Has what is left of a replication queue sent from here, by the name of its file: that of a server that is gone, and not claimed by
    /// one that lives. `Busy` if that cannot be done now. *Blocking*.
    pub fn claim_queue(&self, peer_id: &str, name: &str) -> Result<()> {
        self.sources.claim(peer_id, name)
    }

    /// How files of bulk loads of other clusters are opened, where those are in another file system. The first one stays.
    pub fn open_source_files_with(&self, open: Arc<OpenSourceFiles>) {
        self.sink.open_source_files_with(open);
    }

    /// Where to report what the master decides about. Without a master regions grow without end. The first one stays.
    pub fn report_to(&self, master: Weak<dyn RegionServerStatus>) {
        self.background.splits.report_to(master);
    }

    /// Where this server reads and writes what HBase's `backup` tool needs of it; by default in its own regions. The first one
    /// stays.
    pub fn keep_backup_books(&self, books: Arc<dyn BackupBooks>) {
        let _ = self.backup_books.set(books);
    }

    pub(crate) fn backup_books(&self) -> Option<&Arc<dyn BackupBooks>> {
        self.backup_books.get()
    }

    /// The directory of this server's WALs, and the file system that it is in.
    pub(crate) fn wal_place(&self) -> (&Env, &Path) {
        (self.resources.wals().0, &self.wal_dir)
    }

    /// Where the quotas of the cluster are read from. The first one stays.
    pub fn read_quotas_from(&self, source: Weak<dyn QuotaSource>) {
        self.quotas.read_from(source);
    }

    /// Reads the quotas now. *Blocking*.
    pub fn reload_quotas(&self) -> Result<()> {
        self.quotas.reload()
    }

    /// Work on files of regions that no server has open.
    pub fn region_files(&self) -> Arc<dyn RegionFiles> {
        Arc::new(LocalRegionFiles::new(self.resources.clone()))
    }

    /// Where the server's page is; 0: nowhere.
    pub fn info_port(&self) -> u32 {
        u32::from(self.info_port.load(Ordering::Relaxed))
    }

    /// Lets clients know where the server's page is.
    pub fn set_info_port(&self, port: u16) {
        self.info_port.store(port, Ordering::Relaxed);
    }

    /// Why the server has given up; `None` while it has not. The program should end then.
    pub fn failure(&self) -> Option<String> {
        self.lifecycle.failure()
    }

    /// A number that rises while the WAL thread works: at least once in half a second, unless the disk holds it.
    pub fn wal_rounds(&self) -> u64 {
        self.resources.logs.rounds()
    }

    /// How many bytes the WALs may have before regions are flushed for that; `None` if there is no limit.
    pub fn wal_bytes_max(&self) -> Option<u64> {
        self.resources.logs.bytes_max()
    }

    /// Keeps the WALs so small that the other servers of the cluster, which are so many now, recover them within
    /// `halcyon.regionserver.recovery.time`.
    pub fn limit_recovery(&self, others_count: impl Fn() -> usize + Send + Sync + 'static) {
        let settings = self.settings();
        let rate = settings.recovery_bytes_per_second;
        self.resources.logs.limit_recovery(settings.recovery_time, rate, Box::new(others_count));
    }

    /// Looks at the threads of the WALs, of flushes and of the master's orders. Returns those that have work and have not come on
    /// with it since the last look, the longest first. To be asked once in each `period`.
    pub fn look_at_threads(&self, period: Duration) -> Vec<StuckThread> {
        self.vitals.look(&*self.env.local, &*self.env.clock, period)
    }

    /// The longest time that such a thread had not come on at the last look.
    pub fn longest_without_progress(&self) -> Duration {
        self.vitals.longest()
    }

    /// Why the file tier of the block cache that the settings ask for is off; `None` while it is on.
    pub fn file_tier_failure(&self) -> Option<String> {
        self.resources.cache.file_tier_failure()
    }

    /// The last slow calls, the newest first.
    pub fn slow_calls(&self) -> Vec<SlowCall> {
        self.slow_calls.kept()
    }

    /// What each part holds, but for requests and answers, which the servers of the ports count.
    pub fn memory(&self) -> Vec<MemoryPart> {
        self.background.memory.report()
    }

    /// Counts the memory of another part of the program with the server's own.
    pub fn open_memory_account(&self, name: &'static str) -> Arc<MemoryAccount> {
        self.background.memory.accounts.open(name)
    }

    /// Refuses calls to a server that stops or has given up, and those of a master that was deposed.
    #[inline]
    pub(crate) fn check_call(&self, connection: &Connection) -> std::result::Result<(), RpcError> {
        self.lifecycle.check_serving()?;
        self.lifecycle.check_master(connection)
    }

    /// Writes what was just handed over to the WALs, if that does not wait for the disk.
    #[inline]
    pub(crate) fn drive_logs(&self) {
        self.logs.drive();
    }

    /// Looks at a region that was just written to, and remembers that its WAL is to be driven.
    #[inline]
    pub(crate) fn after_write(&self, online: &Arc<OnlineRegion>) {
        self.background.write_monitor.after_write(online);
    }

    // ---- regions ----

    /// Opens a region and returns its open sequence number. *Blocking*. An open region stays as it is; `Busy` while it
    /// is opening or closing.
    pub fn open_region(&self, info: &RegionInfo, table: &Arc<TableDescriptor>) -> Result<u64> {
        self.open_region_announced(info, table, &|_| Ok(()))
    }

    /// As [`RegionServer::open_region`]. The region serves only after `announce`, which gets its open sequence number, has
    /// succeeded. It is also called for a region that is open already.
    pub(crate) fn open_region_announced(
        &self,
        info: &RegionInfo,
        table: &Arc<TableDescriptor>,
        announce: &dyn Fn(u64) -> Result<()>,
    ) -> Result<u64> {
        if let Some(opening) = self.begin_opening(info, table)? {
            let announced = announce(opening.seq());
            return self.end_opening(opening, announced);
        }
        let encoded = info.encoded_name();
        match self.regions.get(encoded) {
            Some(online) => {
                let seq = online.region.open_seq_num().get();
                announce(seq).map(|()| seq)
            }
            None => Err(Error::new(ErrorKind::Busy, format!("{encoded} is opening or closing"))),
        }
    }

    /// Opens a region that does not serve before [`RegionServer::end_opening`] was called for what this returns. `None`: it is open, or
    /// is opening or closing.
    pub(crate) fn begin_opening(
        &self,
        info: &RegionInfo,
        table: &Arc<TableDescriptor>,
    ) -> Result<Option<Opening>> {
        if !self.lifecycle.is_serving() {
            return Err(Error::new(ErrorKind::Stopping, format!("{} is going down", self.name)));
        }
        if !self.regions.begin_open(info.encoded_name(), self.env.clock.monotonic_ns()) {
            return Ok(None);
        }
        // Not after a freeze in which the master may have declared this server dead: the region may be open elsewhere, and its
        // directory would be taken from that server.
        let opened = match self.lifecycle.check_serving() {
            Ok(()) => self.open_contained(info, table),
            Err(refusal) => Err(Error::new(ErrorKind::Stopping, refusal.message)),
        };
        if let Ok(online) = &opened {
            self.nonces.report_replayed(&online.region.take_replayed_nonces());
        }
        match opened {
            Ok(online) => match self.load_coprocessors(&online) {
                Ok(()) => Ok(Some(Opening { online })),
                Err(error) => self.end_opening(Opening { online }, Err(error)).map(|_| None),
            },
            Err(error) => {
                self.regions.complete_open(info.encoded_name(), None);
                Err(error)
            }
        }
    }

    /// Lets a region serve that the master has recorded, or closes it if `announced` is an error. *Blocking*.
    pub(crate) fn end_opening(&self, opening: Opening, announced: Result<()>) -> Result<u64> {
        let Opening { online } = opening;
        let (info, encoded) = (online.region.info().clone(), online.region.info().encoded_name());
        let opened = match announced {
            Ok(()) => {
                self.sources.note_opened();
                Ok(())
            }
            Err(error) => {
                self.unload_coprocessors(&online, true);
                let closed = online.region.close(true); // no client has written to it
                if closed.is_ok() && is_replicated(&online) {
                    // It may have been announced.
                    self.sources.note_closed(info.region_name(), online.region.open_seq_num().get());
                }
                closed.and(Err(error))
            }
        };
        self.regions.complete_open(encoded, opened.is_ok().then(|| online.clone()));
        opened?;
        self.background.prefetcher.check(&online);
        // As in HBase (`HRegionServer.postOpenDeployTasks`).
        if online.region.has_references() || online.region.compaction_wanted() {
            self.background.compactions.request(&online);
        }
        let seq = online.region.open_seq_num().get();
        tracing::info!(region = encoded, table = %info.table(), seq, "opened");
        Ok(seq)
    }

    /// What a region holds may be more than this program can handle, and is opened again after each start.
    fn open_contained(&self, info: &RegionInfo, table: &Arc<TableDescriptor>) -> Result<Arc<OnlineRegion>> {
        contained(|| self.open_with_coprocessors(info, table)).unwrap_or_else(|failure| {
            tracing::error!(region = info.encoded_name(), failure, "the region is not opened");
            Err(Error::corrupt(format!("{info} is not opened: {failure}")))
        })
    }

    fn open_with_coprocessors(
        &self,
        info: &RegionInfo,
        table: &Arc<TableDescriptor>,
    ) -> Result<Arc<OnlineRegion>> {
        let coprocessors = self.coprocessors.of_table(table)?;
        let is_hosted = coprocessors.as_ref().is_some_and(|coprocessors| !coprocessors.only_filters());
        let region = self.resources.open(info, table, is_hosted)?;
        let online = OnlineRegion::new(region, self.op_times.of(info.table()), coprocessors);
        self.hook_stores(&online);
        Ok(online)
    }

    /// Closes a region, flushing it unless `abort`. *Blocking*. An unknown region is no error, unless the server has given up;
    /// `Busy` while it is opening. If the flush fails the server gives up, because only its WAL holds the region's edits now.
    /// Of two that close a region at once each returns when all is flushed.
    pub fn close_region(&self, encoded_name: &str, abort: bool) -> Result<()> {
        self.close_flushed(encoded_name, abort).map(|_| ())
    }

    /// As `close_region`. Returns up to which sequence id the region's files have everything, if it is this call that has flushed it.
    pub(crate) fn close_flushed(&self, encoded_name: &str, abort: bool) -> Result<Option<SeqId>> {
        if !abort && self.is_serving() {
            self.flush_before_close(encoded_name);
        }
        let Some(online) = self.regions.begin_close(encoded_name)? else {
            // It may be one whose last flush has failed: then it is in the WAL only.
            return self.check_not_given_up().map(|()| None);
        };
        self.scanners.region_closing(&online);
        self.announce_close(&online, abort);
        let closed = online.region.close(abort);
        self.unload_coprocessors(&online, abort);
        if let Err(error) = &closed {
            self.lifecycle.abort(&format!("region {encoded_name} could not be closed: {error}"));
        } else if self.is_serving() && is_replicated(&online) {
            match online.region.mark_closed(&self.name) {
                Ok(seq) => self.sources.note_closed(online.region.info().region_name(), seq),
                Err(error) => self
                    .lifecycle
                    .abort(&format!("the WAL does not take that region {encoded_name} was closed: {error}")),
            }
        }
        self.counters.closed_writes.add(online.region.stats().write_requests);
        self.regions.complete_close(&online);
        let flushed = closed?;
        tracing::info!(region = encoded_name, abort, "closed");
        if !abort {
            self.check_not_given_up()?; // the master is to hear of a death, and of nothing else
        }
        Ok(flushed)
    }

    /// Leaves little for the last flush, during which nobody can read or write the region (HBase: `HRegion.doClose`). What comes
    /// meanwhile is flushed too, if it is as much again.
    fn flush_before_close(&self, encoded_name: &str) {
        for _ in 0..PRECLOSE_FLUSHES_MAX {
            let Some(online) = self.regions.get(encoded_name) else { return };
            let bytes = online.region.memstore_size().heap_bytes;
            if bytes <= self.settings.preclose_flush_bytes {
                return;
            }
            tracing::info!(region = encoded_name, bytes, "flushed before it is closed");
            if let Err(error) = self.background.flusher.flush(&online, &[]) {
                tracing::warn!(region = encoded_name, %error, "not flushed before it is closed");
                return;
            }
        }
    }

    // ---- for a master in another process ----

    pub(crate) fn is_serving(&self) -> bool {
        self.lifecycle.is_serving()
    }

    /// Answers calls only while `may_answer` is true, which is asked before each call. Others are told to come again.
    pub fn answer_while(&self, may_answer: impl Fn() -> bool + Send + Sync + 'static) {
        self.lifecycle.answer_while(may_answer);
    }

    /// Takes calls of masters up to the epoch `newest_epoch` only, which is asked when a call has a greater one than all before. Others are
    /// told to come again.
    pub fn check_epochs_by(&self, newest_epoch: impl Fn() -> u64 + Send + Sync + 'static) {
        self.lifecycle.check_epochs_by(newest_epoch);
    }

    /// Waits; less long if the server ends.
    pub(crate) fn pause(&self, time: Duration) {
        self.lifecycle.pause(time);
    }

    pub(crate) fn want_stop(&self, reason: &str) {
        self.lifecycle.want_stop(reason);
    }

    /// Why an administrator wants the server to stop (`StopServer`); `None` while nobody does.
    pub fn stop_wanted(&self) -> Option<String> {
        self.lifecycle.stop_wanted()
    }

    /// Stops to serve. What was acknowledged is in the WAL.
    pub fn give_up(&self, why: &str) {
        self.lifecycle.abort(why);
    }

    // ---- the end ----

    /// Refuses calls, closes all regions with a last flush, ends the WALs. *Blocking*. Not for network threads. After an
    /// error the WALs are left for the next start to recover.
    pub fn stop(&self) -> Result<()> {
        if !self.lifecycle.begin_stop() {
            return self.check_not_given_up();
        }
        if let Some(table) = &self.background.slow_log_table {
            table.write_queued();
        }
        // Meta last: whoever closes a region may still want to write about it.
        let mut regions = self.regions.online();
        regions.sort_by_key(|online| online.region.info().is_meta());
        let mut result = Ok(());
        for online in regions {
            // After a region that could not be closed: its WAL is split, and what the others have in memory is in it, too.
            let gave_up = self.lifecycle.has_aborted();
            result = result.and(self.close_region(online.region.info().encoded_name(), gave_up));
        }
        let closed = if self.lifecycle.has_aborted() { Ok(()) } else { self.logs.close() };
        self.logs.end();
        self.join();
        self.background.cache.close();
        result.and(closed)?;
        self.check_not_given_up()?; // what regions had in memory may be nowhere else than in the WALs
        let (wal_env, wal_root) = self.resources.wals();
        // A WAL that could not be archived may be what a replication peer waits for. The next start splits it and archives it.
        let left = remove_emptied(wal_env, &self.wal_dir)?;
        if !left.is_empty() {
            tracing::warn!(?left, "WALs are left for the next start");
        }
        wal_env.fs.sync_dir(&layout::wals_dir(wal_root))?;
        Ok(())
    }

    /// Stops at once, as a crash would: nothing is flushed, the WALs stay for the next start.
    pub fn abort(&self, reason: &str) {
        self.lifecycle.abort(reason);
        self.logs.wake();
        for online in self.regions.online() {
            let _ = online.region.close(true); // leaves everything to the WAL
        }
        self.logs.end();
        self.join();
    }

    fn check_not_given_up(&self) -> Result<()> {
        if !self.lifecycle.has_aborted() {
            return Ok(());
        }
        let why = self.lifecycle.failure().unwrap_or_default();
        Err(Error::new(ErrorKind::Stopping, format!("{} has given up: {why}", self.name)))
    }

    /// Waits for the ends of all threads. The WALs have ended.
    fn join(&self) {
        self.sources.stop();
        self.background.join();
        if self.lifecycle.has_aborted() {
            self.logs.abandon(); // the WAL thread may have ended before
        }
    }
}

impl Drop for RegionServer {
    /// Ends the threads of a server that was neither stopped nor aborted.
    fn drop(&mut self) {
        self.lifecycle.begin_stop();
        self.logs.end();
    }
}

/// A region that was opened and does not serve yet: [`RegionServer::end_opening`].
#[must_use]
pub(crate) struct Opening {
    online: Arc<OnlineRegion>,
}

impl Opening {
    /// The open sequence number.
    pub(crate) fn seq(&self) -> u64 {
        self.online.region.open_seq_num().get()
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the opening of {}", self.online.region.info())
    }
}

/// Whether replication peers may get edits of a region.
fn is_replicated(online: &OnlineRegion) -> bool {
    !online.region.is_secondary() && online.region.table().has_global_scope()
}

/// Opens the server's WAL and makes what its regions share.
fn region_resources(
    env: &Env,
    (root, wal_root): (&Path, Option<WalRoot>),
    online: &Arc<OnlineSettings>,
    region_settings: RegionSettings,
    name: &ServerName,
    wal_dir: &Path,
) -> Result<RegionResources> {
    let (wal_env, wals) = wal_root.as_ref().map_or((env, root), |wal| (&wal.env, &wal.path));
    let (settings, archive_dir) = (online.in_force(), layout::old_wals_dir(wals));
    let logs = Logs::open(wal_env.clone(), &settings, wal_dir.to_path_buf(), archive_dir, &name.to_string())?;
    let high_bytes = settings.memstore_high_bytes();
    let pooled_chunks_max =
        (high_bytes as f64 * settings.chunk_pool_share) as usize / settings.chunk_bytes.max(1);
    let chunks = ChunkPool::new(settings.chunk_bytes, pooled_chunks_max);
    chunks.record_stalls(env.watch());
    chunks.set_allocated_max(high_bytes as usize);
    Ok(RegionResources {
        env: env.clone(),
        root: root.to_path_buf(),
        wal_root,
        logs: Arc::new(logs),
        cache: Arc::new(cache_upkeep::new_cache(env, &settings)),
        mob_files: MobFileCache::new(settings.mob_files_max, settings.mob_remain_share),
        chunks,
        settings: region_settings,
        online: online.clone(),
    })
}
