//! The region server: many regions behind two services, and the threads that keep them healthy.
//!
//! ```text
//! calls     service/*  -> region_table -> region            on network threads, or pool.rs
//! logs      logs.rs          one thread: write, sync        one thread: roll, archive
//! memory    pressure.rs <- flusher.rs                       threads: flush; compact in memory; chunks
//! files     compactor.rs                                    two threads: compact
//! blocks    blocks.rs -> cache                              one thread: what goes on behind reads; one: read ahead
//! size      splitter.rs, split_policy.rs                    asks the master to split what has grown too large
//! time      scanners.rs, nonces.rs, old edits               one thread: chores
//! ```
//!
//! Life: [`RegionServer::start`] recovers the logs of its predecessors and begins a log of its own; regions come
//! and go by [`RegionServer::open_region`] and [`RegionServer::close_region`]; [`RegionServer::stop`] refuses new
//! calls, closes the regions, ends the logs. A server whose log fails gives up by itself
//! ([`RegionServer::failure`]): it answers nothing more that would promise durability, and what was acknowledged
//! is in the log for the next start.
//!
//! *Thread safety*: all methods from any thread. *Lock order*: no lock of this crate is held while another is
//! taken, or while a region is called.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use halcyon_cache::BlockCache;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{Env, spawn_thread, step_back};
use halcyon_memstore::ChunkPool;
use halcyon_region::{Region, RegionServices, RegionSettings};
use halcyon_rpc::{Queues, RpcError};
use halcyon_schema::{RegionInfo, ServerName, TableDescriptor, layout};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

use crate::background::blocks;
use crate::background::compactor::{Compactor, Lane};
use crate::background::flusher::RegionQueue;
use crate::background::held::HeldFlushes;
use crate::background::splitter::SplitRequest;
use crate::background::throughput::Throughput;
use crate::calls::nonces::Nonces;
use crate::calls::pool::DiskPool;
use crate::calls::scanners::Scanners;
use crate::memory::pressure::Pressure;
use crate::memory::tuner::{self, Tuner};
use crate::metrics::counters::{Counters, RequestRate};
use crate::metrics::users::UserLoads;
use crate::regions::region_table::{OnlineRegion, RegionTable};
use crate::regions::servable;
use crate::settings::server::RegionServerSettings;
use crate::wal::logs::Logs;
use crate::wal::recover::{recover_left_logs, recover_logs};

/// How long a worker thread waits for work before it looks whether the server still runs.
const IDLE_WAIT: Duration = Duration::from_millis(500);
/// Part of the memstores' memory that waits for writers in chunks that are there to the last page, and how many chunks that
/// are at least and at most. Regions that are written alike need their next chunks at the same time.
const READY_PART: u64 = 32;
const READY_CHUNKS: RangeInclusive<usize> = 3..=16;
/// How far flushes, compactions and reading ahead step back before calls (in steps of `nice`): where all want one processor
/// they get two parts in seven of it. Not further, as calls wait for them in the end, when memory or files run short.
const BEHIND_CALLS_STEPS: i32 = 4;
/// How often memory is measured.
const MEASURE_PERIOD: Duration = Duration::from_millis(100);
/// How often leases and log files are looked at.
const LEASE_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// How often old edits are looked for.
const OLD_EDITS_CHECK_PERIOD: Duration = Duration::from_secs(10);

/// See the head of the file.
pub struct RegionServer {
    pub(crate) env: Env,
    pub(crate) settings: RegionServerSettings,
    pub(crate) name: ServerName,
    root: PathBuf,
    wal_dir: PathBuf,
    pub(crate) regions: RegionTable,
    pub(crate) scanners: Scanners,
    pub(crate) nonces: Arc<Nonces>,
    pub(crate) pool: DiskPool,
    pub(crate) pressure: Pressure,
    pub(crate) flush_queue: RegionQueue,
    pub(crate) memory_queue: RegionQueue,
    pub(crate) prefetch_queue: RegionQueue,
    pub(crate) held_flushes: HeldFlushes,
    pub(crate) compactor: Compactor,
    pub(crate) logs: Logs,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) chunks: Arc<ChunkPool>,
    pub counters: Counters,
    pub(crate) request_rate: RequestRate,
    pub(crate) user_loads: UserLoads,
    /// Where the server's page is; 0: nowhere.
    info_port: AtomicU16,
    pub(crate) split_request: OnceLock<SplitRequest>,
    /// Bytes that the limits of memstores and blocks are below what was planned, because more is resident.
    pub(crate) cut_bytes: AtomicU64,
    /// What the memstores may hold before that is taken off.
    pub(crate) memstores_bytes: AtomicU64,
    /// Flushes and compactions at work.
    pub(crate) writers: AtomicUsize,
    life: AtomicU8,
    failure: Mutex<Option<String>>,
    pauses: Mutex<()>,
    stopping: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Stages of a server's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Life {
    Serving,
    Stopping,
    /// Gave up; its logs are to be recovered.
    Aborted,
}

impl RegionServer {
    /// Recovers what earlier servers of this root directory left, and starts to serve. *Blocking*. `host` and
    /// `port` are what clients will find it under.
    pub fn start(
        env: Env,
        root: &Path,
        settings: RegionServerSettings,
        host: &str,
        port: u16,
    ) -> Result<Arc<RegionServer>> {
        recover_logs(&env, root)?;
        let name = ServerName::new(host, port, env.clock.now_ms());
        let wal_dir = layout::wals_dir(root).join(name.to_string());
        let logs = Logs::open(
            env.clone(),
            &settings,
            wal_dir.clone(),
            layout::old_wals_dir(root),
            &name.to_string(),
        )?;
        let clock = env.clock.clone();
        let off_peak = settings.region.compaction.off_peak;
        let throughput = Throughput::new(settings.throughput.clone(), off_peak, clock.clone());
        let high_bytes = settings.memstore_high_bytes();
        let pooled_chunks_max =
            (high_bytes as f64 * settings.chunk_pool_share) as usize / settings.chunk_bytes.max(1);
        let server = Arc::new(RegionServer {
            root: root.to_path_buf(),
            wal_dir,
            regions: RegionTable::new(name.to_string()),
            scanners: Scanners::new(clock.clone(), settings.scanner_lease, settings.scanners_count_max),
            nonces: Arc::new(Nonces::new(clock, settings.nonce_grace, settings.nonces_bytes_max())),
            pool: DiskPool::new(settings.pool_limits(), Arc::clone(&env.clock)),
            pressure: Pressure::new(settings.memstore_low_bytes(), high_bytes, settings.hold_back_max),
            flush_queue: RegionQueue::new(|online| &online.flush_queued),
            memory_queue: RegionQueue::new(|online| &online.memory_queued),
            prefetch_queue: RegionQueue::new(|online| &online.prefetch_queued),
            held_flushes: HeldFlushes::default(),
            compactor: Compactor::new(
                settings.compaction_large_bytes,
                settings.compactions_enabled,
                throughput,
            ),
            logs,
            cache: Arc::new(blocks::cache_of(&env, &settings)),
            chunks: ChunkPool::new(settings.chunk_bytes, pooled_chunks_max),
            counters: Counters::default(),
            request_rate: RequestRate::new(env.clock.monotonic_ns(), env.clock.now_ms()),
            user_loads: UserLoads::default(),
            info_port: AtomicU16::new(0),
            split_request: OnceLock::new(),
            cut_bytes: AtomicU64::new(0),
            memstores_bytes: AtomicU64::new(high_bytes),
            writers: AtomicUsize::new(0),
            life: AtomicU8::new(Life::Serving as u8),
            failure: Mutex::new(None),
            pauses: Mutex::new(()),
            stopping: Condvar::new(),
            threads: Mutex::new(Vec::new()),
            env,
            settings,
            name,
        });
        server.chunks.record_stalls(server.env.watch());
        server.chunks.set_allocated_max(high_bytes as usize);
        server.start_threads()?;
        Ok(server)
    }

    pub fn server_name(&self) -> &ServerName {
        &self.name
    }

    pub fn regions(&self) -> &RegionTable {
        &self.regions
    }

    /// Keeps room for answers where the servers of the ports count them, and lets the threads of one runtime do what
    /// may wait for the disk.
    pub fn serve_behind(&self, queues: Arc<Queues>, threads: Handle) {
        self.pool.work_on(threads);
        self.pool.keep_room_in(queues);
    }

    /// Where the server's page is; 0: nowhere.
    pub fn info_port(&self) -> u32 {
        u32::from(self.info_port.load(Ordering::Relaxed))
    }

    /// Lets clients know where the server's page is.
    pub fn set_info_port(&self, port: u16) {
        self.info_port.store(port, Ordering::Relaxed);
    }

    pub fn settings(&self) -> &RegionServerSettings {
        &self.settings
    }

    /// Why the server has given up; `None` while it has not. The program should end then.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Flushes and compactions at work.
    pub(crate) fn writers_busy(&self) -> usize {
        self.writers.load(Ordering::Relaxed)
    }

    fn is_serving(&self) -> bool {
        self.life.load(Ordering::Acquire) == Life::Serving as u8
    }

    /// Refuses calls to a server that is going or gone.
    #[inline]
    pub(crate) fn check_serving(&self) -> std::result::Result<(), RpcError> {
        match self.life.load(Ordering::Acquire) {
            0 => Ok(()),
            1 => Err(RpcError::region_server_stopped(format!("Server {} is stopping", self.name))),
            _ => Err(RpcError::region_server_aborted(format!("Server {} aborting", self.name))),
        }
    }

    /// Brings writes along that were just handed over.
    #[inline]
    pub(crate) fn drive_logs(&self) {
        self.logs.drive();
    }

    // ---- regions ----

    /// Makes a region's files, durably; again is fine. *Blocking*.
    pub fn create_region_files(&self, info: &RegionInfo, table: &TableDescriptor) -> Result<()> {
        Region::create_on_disk(&self.env, &self.root, info, table.families())
    }

    /// Gives a split's daughters, or a merged region, references to the files of closed parents. *Blocking*.
    pub(crate) fn split_files(
        &self,
        table: &TableDescriptor,
        parent: &RegionInfo,
        daughters: &[RegionInfo; 2],
    ) -> Result<()> {
        Region::split_files(&self.env, &self.root, &self.cache, table, parent, daughters)
    }

    /// See `split_files`.
    pub(crate) fn merge_files(
        &self,
        table: &TableDescriptor,
        parents: &[RegionInfo],
        merged: &RegionInfo,
    ) -> Result<()> {
        Region::merge_files(&self.env, &self.root, &self.cache, table, parents, merged)
    }

    /// Copies the cells of a file that are of a region's rows. *Blocking*.
    pub(crate) fn copy_region_rows(
        &self,
        table: &TableDescriptor,
        region: &RegionInfo,
        from: &Path,
        to: &Path,
    ) -> Result<()> {
        Region::copy_rows(&self.services(region)?, table, region, from, to)
    }

    /// Opens a region and returns its open sequence number. *Blocking*. An open region stays as it is; `Busy`
    /// while it is opening or closing.
    pub fn open_region(&self, info: &RegionInfo, table: &TableDescriptor) -> Result<u64> {
        if !self.is_serving() {
            return Err(Error::new(ErrorKind::Stopping, format!("{} is going down", self.name)));
        }
        let encoded = info.encoded_name();
        if !self.regions.begin_open(encoded) {
            return match self.regions.get(encoded) {
                Some(online) => Ok(online.region.open_seq_num().get()),
                None => Err(Error::new(ErrorKind::Busy, format!("{encoded} is opening or closing"))),
            };
        }
        let opened = self.open_on_disk(info, table);
        if let Ok(region) = &opened {
            self.nonces.report_replayed(&region.take_replayed_nonces());
        }
        let online = opened.as_ref().ok().map(|region| OnlineRegion::new(region.clone()));
        self.regions.complete_open(encoded, online.clone());
        let region = opened?;
        if let Some(online) = &online {
            self.check_prefetch(online);
        }
        if let Some(online) = online.filter(|online| online.region.has_references()) {
            self.compactor.push(&online, self.settings.compaction_queue_max);
        }
        tracing::info!(region = encoded, table = %info.table(), seq = region.open_seq_num().get(), "opened");
        Ok(region.open_seq_num().get())
    }

    fn open_on_disk(&self, info: &RegionInfo, table: &TableDescriptor) -> Result<Arc<Region>> {
        servable::check(&self.env, &self.root, table)?;
        Region::open(self.services(info)?, &self.root, info.clone(), Arc::new(table.clone()))
    }

    /// Opens a region of another root directory, for the caller alone, with what the logs there have for it.
    /// *Blocking*.
    pub(crate) fn open_apart(
        &self,
        root: &Path,
        info: &RegionInfo,
        table: &TableDescriptor,
    ) -> Result<Arc<Region>> {
        recover_logs(&self.env, root)?;
        recover_left_logs(&self.env, root, info)?;
        Region::open(self.services(info)?, root, info.clone(), Arc::new(table.clone()))
    }

    fn services(&self, info: &RegionInfo) -> Result<RegionServices> {
        Ok(RegionServices {
            env: self.env.clone(),
            wal: if info.is_meta() { self.logs.meta()? } else { self.logs.tables().clone() },
            cache: self.cache.clone(),
            chunks: self.chunks.clone(),
            settings: RegionSettings {
                nonce_age_max: self.nonces.replayed_age_max(),
                ..self.settings.region.clone()
            },
        })
    }

    /// Closes a region, flushing it unless `abort`. *Blocking*. An unknown region is no error. If the flush
    /// fails the server gives up, because only its log holds the region's edits now.
    pub fn close_region(&self, encoded_name: &str, abort: bool) -> Result<()> {
        let Some(online) = self.regions.begin_close(encoded_name) else { return Ok(()) };
        self.scanners.region_closing(&online);
        let closed = online.region.close(abort);
        if let Err(error) = &closed {
            self.give_up(&format!("region {encoded_name} could not be closed: {error}"));
        }
        self.counters.closed_writes.add(online.region.stats().write_requests);
        self.regions.complete_close(encoded_name);
        tracing::info!(region = encoded_name, abort, "closed");
        closed
    }

    /// Flushes families of a region, or all if none is named. *Blocking*. Returns whether there was anything to
    /// flush; `Moved` if the region is not here.
    pub fn flush_region(&self, encoded_name: &str, families: &[bytes::Bytes]) -> Result<bool> {
        let online = self.regions.get(encoded_name).ok_or_else(|| {
            Error::new(ErrorKind::Moved, format!("{encoded_name} is not online on {}", self.name))
        })?;
        self.flush_online(&online, families)
    }

    pub(crate) fn flush_online(&self, online: &Arc<OnlineRegion>, families: &[bytes::Bytes]) -> Result<bool> {
        let outcome = online.region.flush((!families.is_empty()).then_some(families))?;
        self.scanners.region_flushed(online);
        self.counters.flushes.add(u64::from(outcome.flushed));
        if outcome.compaction_wanted {
            self.compactor.push(online, self.settings.compaction_queue_max);
        }
        self.check_prefetch(online);
        self.check_split(online);
        Ok(outcome.flushed)
    }

    // ---- the end ----

    /// Refuses calls, closes all regions with a last flush, ends the logs. *Blocking*. Not for network threads.
    /// After an error the logs are left for the next start to recover.
    pub fn stop(&self) -> Result<()> {
        if !self.leave(Life::Stopping) {
            return Ok(());
        }
        // Meta last: whoever closes a region may still want to write about it.
        let mut regions = self.regions.online();
        regions.sort_by_key(|online| online.region.info().is_meta());
        let mut result = Ok(());
        for online in regions {
            result = result.and(self.close_region(online.region.info().encoded_name(), false));
        }
        let closed = self.logs.close();
        self.join_threads();
        self.close_cache();
        result.and(closed)?;
        self.env.fs.remove_dir_all(&self.wal_dir)?;
        self.env.fs.sync_dir(&layout::wals_dir(&self.root))?;
        Ok(())
    }

    /// Stops at once, as a crash would: nothing is flushed, the logs stay for the next start.
    pub fn abort(&self, reason: &str) {
        self.give_up(reason);
        for online in self.regions.online() {
            let _ = online.region.close(true); // leaves everything to the log
        }
        self.join_threads();
    }

    fn give_up(&self, reason: &str) {
        if self.life.swap(Life::Aborted as u8, Ordering::AcqRel) == Life::Aborted as u8 {
            return;
        }
        tracing::error!(server = %self.name, reason, "the server gives up");
        *self.failure.lock() = Some(reason.to_string());
        self.wake_threads();
    }

    fn leave(&self, life: Life) -> bool {
        let left =
            self.life.compare_exchange(Life::Serving as u8, life as u8, Ordering::AcqRel, Ordering::Acquire);
        self.wake_threads();
        left.is_ok()
    }

    fn wake_threads(&self) {
        drop(self.pauses.lock());
        self.stopping.notify_all();
        self.flush_queue.wake_all();
        self.memory_queue.wake_all();
        self.chunks.wake();
        self.prefetch_queue.wake_all();
        self.cache.wake();
        self.compactor.stop();
    }

    fn join_threads(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        let me = std::thread::current().id();
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != me) {
            let _ = thread.join(); // a panic was reported when it happened
        }
    }

    // ---- threads ----

    fn start_threads(self: &Arc<Self>) -> Result<()> {
        let mut is_before = false;
        self.start_thread("log", move |server| {
            if !std::mem::replace(&mut is_before, true) {
                halcyon_env::go_before(); // calls wait for it
            }
            server.logs.turn();
            server.pressure.update_log(server.logs.is_behind());
            server.check_logs();
        })?;
        self.start_thread("log-roller", |server| {
            server.pause(LEASE_CHECK_PERIOD);
            if server.is_serving() {
                server.roll_logs();
            }
        })?;
        for number in 0..self.settings.flush_threads_count.max(1) {
            self.start_behind(&format!("flusher-{number}"), |server| server.flush_turn(IDLE_WAIT))?;
        }
        self.start_behind("memory-compactor", |server| server.compact_memory_turn(IDLE_WAIT))?;
        self.chunks.free_beside();
        let ready_bytes = (self.settings.memstore_high_bytes() / READY_PART) as usize;
        let ready = ready_bytes / self.chunks.chunk_size_bytes();
        let ready = ready.clamp(*READY_CHUNKS.start(), *READY_CHUNKS.end());
        self.start_thread("chunks", move |server| server.chunks.keep_ready(ready, IDLE_WAIT))?;
        self.start_thread("cache", |server| {
            server.cache.turn(IDLE_WAIT);
        })?;
        self.start_behind("prefetcher", |server| server.prefetch_turn(IDLE_WAIT))?;
        for (name, lane) in [("compactor-small", Lane::Small), ("compactor-large", Lane::Large)] {
            self.start_behind(name, move |server| server.compact_turn(lane, IDLE_WAIT))?;
        }
        let mut chores = Chores::new(Tuner::new(self.settings.memstore_share, self.settings.cache_share));
        self.start_thread("chores", move |server| {
            server.pause(MEASURE_PERIOD);
            server.do_chores(&mut chores);
        })
    }

    /// Runs `turn` again and again while the server serves and somebody holds it.
    fn start_thread(
        self: &Arc<Self>,
        name: &str,
        mut turn: impl FnMut(&RegionServer) + Send + 'static,
    ) -> Result<()> {
        let server: Weak<RegionServer> = Arc::downgrade(self);
        let thread = spawn_thread(name, move || {
            while let Some(server) = server.upgrade().filter(|server| server.is_serving()) {
                turn(&server);
            }
        })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// As `start_thread`, for work that calls go before.
    fn start_behind(
        self: &Arc<Self>,
        name: &str,
        mut turn: impl FnMut(&RegionServer) + Send + 'static,
    ) -> Result<()> {
        let mut is_behind = false;
        self.start_thread(name, move |server| {
            if !std::mem::replace(&mut is_behind, true) {
                step_back(BEHIND_CALLS_STEPS);
            }
            turn(server);
        })
    }

    /// Waits by real time, so that a test's clock does not make threads spin; ends early when the server stops.
    fn pause(&self, time: Duration) {
        let mut pauses = self.pauses.lock();
        if self.is_serving() {
            self.stopping.wait_for(&mut pauses, time);
        }
    }

    fn check_logs(&self) {
        if self.is_serving()
            && let Some(error) = self.logs.failure()
            && self.is_serving()
        {
            self.give_up(&format!("its log failed: {error}"));
        }
    }

    fn roll_logs(&self) {
        match self.logs.roll_if_due() {
            Ok(to_flush) => self.flush_for_log(&to_flush),
            Err(error) => tracing::error!(%error, "the log could not be rolled"),
        }
    }

    fn do_chores(&self, chores: &mut Chores) {
        self.measure_memory();
        self.pool.look_again();
        self.fit_to_resident();
        let now_ns = self.env.clock.monotonic_ns();
        self.request_rate.update(self.counters.requests(), now_ns, self.env.clock.now_ms());
        if chores.tuning.is_due(now_ns, tuner::PERIOD) {
            self.tune_memory(&mut chores.tuner);
        }
        if chores.leases.is_due(now_ns, LEASE_CHECK_PERIOD) {
            self.counters.leases_expired.add(self.scanners.expire() as u64);
            self.nonces.expire();
            let forgotten = self.nonces.stats().forgotten_early_count;
            self.counters.nonces_forgotten.add(forgotten - self.counters.nonces_forgotten.get());
            self.fit_cache();
        }
        if chores.old_edits.is_due(now_ns, OLD_EDITS_CHECK_PERIOD) {
            self.flush_old_edits();
        }
        if chores.compactions.is_due(now_ns, self.settings.compaction_check_period) {
            self.check_compactions();
            self.check_splits();
        }
        if chores.sweep.is_due(now_ns, blocks::SWEEP_PERIOD) {
            self.sweep_cache(&mut chores.swept_to);
        }
        if chores.throughput.is_due(now_ns, self.compactor.throughput.tune_period()) {
            self.tune_compactions();
        }
        self.release_held_flushes();
    }
}

/// When each chore was done last.
struct Chores {
    tuner: Tuner,
    tuning: Chore,
    leases: Chore,
    old_edits: Chore,
    compactions: Chore,
    throughput: Chore,
    sweep: Chore,
    /// Where the next look at the cache's files begins.
    swept_to: u64,
}

impl Chores {
    fn new(tuner: Tuner) -> Chores {
        let never = Chore::default;
        Chores {
            tuner,
            tuning: never(),
            leases: never(),
            old_edits: never(),
            compactions: never(),
            throughput: never(),
            sweep: never(),
            swept_to: 0,
        }
    }
}

#[derive(Default)]
struct Chore {
    done_ns: Option<u64>,
}

impl Chore {
    /// Whether the period is over since the last time; the first time it begins.
    fn is_due(&mut self, now_ns: u64, period: Duration) -> bool {
        let Some(done_ns) = self.done_ns else {
            self.done_ns = Some(now_ns);
            return false;
        };
        let due = now_ns.saturating_sub(done_ns) >= period.as_nanos() as u64;
        if due {
            self.done_ns = Some(now_ns);
        }
        due
    }
}
