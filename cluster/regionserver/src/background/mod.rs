//! Work behind calls: flushes, compactions and their speed, splits, WAL files, care of the block cache.
//!
//! ```text
//! write_monitor ─┐
//! wal_threads ───┼─> flusher ──> compactions ──> listeners: prefetcher, split_checker, replica_refresher
//! chores ────────┘      └──────────────────────> listeners
//! ```
//!
//! Arrows are imports, and they point one way. A part has what it needs and no more; none knows the server. What a
//! flush or compaction leaves to do comes to the prefetcher and the split checker through [`listener`].

pub(crate) mod cache_upkeep;
pub(crate) mod chores;
pub(crate) mod compactions;
pub(crate) mod flusher;
mod held_flushes;
pub(crate) mod listener;
pub(crate) mod memory_compactor;
pub(crate) mod mob_cleaner;
pub(crate) mod prefetcher;
mod queue;
pub(crate) mod replica_refresher;
pub(crate) mod slow_log_table;
pub(crate) mod split_checker;
pub(crate) mod split_policy;
pub(crate) mod stray_cleaner;
pub(crate) mod throughput;
pub(crate) mod wal_threads;
pub(crate) mod workers;
pub(crate) mod write_monitor;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_env::vitals::Vitals;

use self::cache_upkeep::CacheUpkeep;
use self::chores::{ChoreParts, Chores, Due};
use self::compactions::{CompactionLimits, CompactionParts, CompactionSize, CompactionWorker, Compactions};
use self::flusher::{Flusher, FlusherParts, FlusherSettings};
use self::listener::{StoreFileListener, StoreFileListeners};
use self::memory_compactor::MemoryCompactor;
use self::mob_cleaner::MobCleaner;
use self::prefetcher::Prefetcher;
use self::replica_refresher::ReplicaRefresher;
use self::slow_log_table::{SlowLogParts, SlowLogTable};
use self::split_checker::SplitChecker;
use self::stray_cleaner::StrayCleaner;
use self::throughput::Throughput;
use self::wal_threads::{WalRoller, WalWriter};
use self::workers::{IDLE_WAIT, Priority, Worker, Workers};
use self::write_monitor::WriteMonitor;
use crate::calls::nonces::Nonces;
use crate::calls::pool::DiskPool;
use crate::calls::scanners::Scanners;
use crate::lifecycle::Lifecycle;
use crate::memory::accountant::{MemoryAccountant, MemoryParts, MemoryShares};
use crate::memory::pressure::Pressure;
use crate::memory::writers::FileWriters;
use crate::metrics::counters::{Counters, RequestRate};
use crate::quotas::Quotas;
use crate::regions::region_table::RegionTable;
use crate::regions::resources::RegionResources;
use crate::settings::online::OnlineSettings;
use crate::settings::server::RegionServerSettings;

/// Part of the memstores' memory that waits for writers in chunks that are there to the last page, and how many chunks
/// that are at least and at most. Regions that are written alike need their next chunks at the same time.
const READY_PART: u64 = 32;
const READY_CHUNKS: RangeInclusive<usize> = 3..=16;

/// What background work shares with calls.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) resources: Arc<RegionResources>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) scanners: Arc<Scanners>,
    pub(crate) nonces: Arc<Nonces>,
    pub(crate) pool: Arc<DiskPool>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) request_rate: Arc<RequestRate>,
    pub(crate) online: Arc<OnlineSettings>,
    pub(crate) quotas: Arc<Quotas>,
}

/// All parts that work behind calls, and their threads.
pub(crate) struct Background {
    pub(crate) prefetcher: Arc<Prefetcher>,
    replica_refresher: Arc<ReplicaRefresher>,
    mob_cleaner: Arc<MobCleaner>,
    stray_cleaner: Arc<StrayCleaner>,
    pub(crate) splits: Arc<SplitChecker>,
    pub(crate) compactions: Arc<Compactions>,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) memory_compactor: Arc<MemoryCompactor>,
    pub(crate) memory: Arc<MemoryAccountant>,
    pub(crate) cache: Arc<CacheUpkeep>,
    pub(crate) write_monitor: WriteMonitor,
    /// `None`: slow calls are kept in memory only.
    pub(crate) slow_log_table: Option<Arc<SlowLogTable>>,
    workers: Workers,
}

impl Background {
    /// Puts the parts together; no thread runs yet.
    pub(crate) fn new(shared: &Shared, splits: SplitChecker, settings: &RegionServerSettings) -> Background {
        let resources = &shared.resources;
        let (prefetcher, splits) = (Arc::new(Prefetcher::new()), Arc::new(splits));
        let replica_refresher = Arc::new(ReplicaRefresher::new(
            resources.env.clock.clone(),
            resources.root.clone(),
            shared.regions.clone(),
            shared.online.clone(),
        ));
        let listeners: [Arc<dyn StoreFileListener>; 3] =
            [prefetcher.clone(), splits.clone(), replica_refresher.clone()];
        let listeners: StoreFileListeners = listeners.into();
        let writers = Arc::new(FileWriters::default());
        let compactions = Arc::new(new_compactions(shared, &writers, &listeners, settings));
        let flusher = Arc::new(new_flusher(shared, &writers, &compactions, listeners.clone(), settings));
        let memory_compactor =
            Arc::new(MemoryCompactor::new(shared.scanners.clone(), shared.counters.clone()));
        let write_monitor = WriteMonitor {
            logs: resources.logs.clone(),
            pressure: shared.pressure.clone(),
            chunks: resources.chunks.clone(),
            flusher: flusher.clone(),
            memory_compactor: memory_compactor.clone(),
        };
        Background {
            slow_log_table: new_slow_log_table(shared, &write_monitor, settings),
            write_monitor,
            memory: Arc::new(new_accountant(shared, writers, settings)),
            cache: Arc::new(CacheUpkeep::new(resources.env.clone(), resources.cache.clone())),
            workers: Workers::new(shared.lifecycle.clone(), shared.vitals.clone()),
            prefetcher,
            replica_refresher,
            mob_cleaner: Arc::new(MobCleaner::new(
                resources.env.clock.clone(),
                shared.regions.clone(),
                Duration::from_secs(settings.mob_cleaner_period_s),
                settings.mob_age_min,
            )),
            stray_cleaner: Arc::new(StrayCleaner::new(
                resources.env.clock.clone(),
                shared.regions.clone(),
                settings.strays.clone(),
            )),
            splits,
            compactions,
            flusher,
            memory_compactor,
        }
    }

    /// Starts a thread for a worker of another part of the server; it ends with the others.
    pub(crate) fn start_worker(
        &self,
        name: &str,
        priority: Priority,
        worker: Arc<impl Worker>,
    ) -> Result<()> {
        self.workers.start(name, priority, worker)
    }

    /// Starts all threads.
    pub(crate) fn start(&self, shared: &Shared, settings: &RegionServerSettings) -> Result<()> {
        let workers = &self.workers;
        self.start_wal_threads(shared)?;
        for number in 0..settings.flush_threads_count.max(1) {
            workers.start(&format!("flusher-{number}"), Priority::Lowered, self.flusher.clone())?;
        }
        workers.start("memory-compactor", Priority::Lowered, self.memory_compactor.clone())?;
        self.start_chunk_thread(shared, settings)?;
        workers.start("cache", Priority::Normal, self.cache.clone())?;
        workers.start("prefetcher", Priority::Lowered, self.prefetcher.clone())?;
        workers.start("replica-refresher", Priority::Normal, self.replica_refresher.clone())?;
        workers.start("mob-cleaner", Priority::Lowered, self.mob_cleaner.clone())?;
        workers.start("stray-cleaner", Priority::Lowered, self.stray_cleaner.clone())?;
        let (small, large) = (settings.small_compaction_threads, settings.large_compaction_threads);
        self.start_compactors("compactor-small", CompactionSize::Small, small)?;
        self.start_compactors("compactor-large", CompactionSize::Large, large)?;
        self.start_slow_log_table(settings)?;
        if shared.quotas.is_enabled() {
            workers.start("quotas", Priority::Normal, shared.quotas.clone())?;
        }
        let mut chores = self.chores(shared);
        workers.repeat("chores", Priority::Normal, move || chores.run_once())
    }

    /// Waits for the ends of all threads. The server must have stopped serving.
    pub(crate) fn join(&self) {
        self.workers.join();
    }

    fn start_compactors(&self, name: &str, size: CompactionSize, count: usize) -> Result<()> {
        for number in 0..count {
            let name = if number == 0 { name.to_string() } else { format!("{name}-{number}") };
            let worker = CompactionWorker::new(&self.compactions, size);
            self.workers.start(&name, Priority::Lowered, worker)?;
        }
        Ok(())
    }

    fn start_wal_threads(&self, shared: &Shared) -> Result<()> {
        let (logs, lifecycle) = (&shared.resources.logs, &shared.lifecycle);
        let writer =
            WalWriter { logs: logs.clone(), pressure: shared.pressure.clone(), lifecycle: lifecycle.clone() };
        let writer = Arc::new(writer);
        let is_needed = {
            let writer = writer.clone();
            move || writer.is_needed()
        };
        self.workers.repeat_while("log", Priority::Raised, is_needed, move || writer.run_once())?;
        let roller =
            WalRoller { logs: logs.clone(), flusher: self.flusher.clone(), lifecycle: lifecycle.clone() };
        self.workers.repeat("log-roller", Priority::Normal, move || roller.run_once())
    }

    fn start_slow_log_table(&self, settings: &RegionServerSettings) -> Result<()> {
        let (Some(table), Some(period)) = (self.slow_log_table.clone(), settings.slow_log_table_period())
        else {
            return Ok(());
        };
        let mut due = Due::default();
        self.workers.repeat("slow-log-table", Priority::Lowered, move || table.run_once(&mut due, period))
    }

    /// Has chunks ready before writers need them.
    fn start_chunk_thread(&self, shared: &Shared, settings: &RegionServerSettings) -> Result<()> {
        let chunks = shared.resources.chunks.clone();
        chunks.free_beside();
        let ready_bytes = (settings.memstore_high_bytes() / READY_PART) as usize;
        let ready = ready_bytes / chunks.chunk_size_bytes();
        let ready = ready.clamp(*READY_CHUNKS.start(), *READY_CHUNKS.end());
        let woken = chunks.clone();
        shared.lifecycle.on_end(move || woken.wake());
        self.workers.repeat("chunks", Priority::Normal, move || chunks.keep_ready(ready, IDLE_WAIT))
    }

    fn chores(&self, shared: &Shared) -> Chores {
        let parts = ChoreParts {
            clock: shared.resources.env.clock.clone(),
            lifecycle: shared.lifecycle.clone(),
            flusher: self.flusher.clone(),
            compactions: self.compactions.clone(),
            splits: self.splits.clone(),
            memory: self.memory.clone(),
            cache: self.cache.clone(),
            regions: shared.regions.clone(),
            pool: shared.pool.clone(),
            scanners: shared.scanners.clone(),
            nonces: shared.nonces.clone(),
            counters: shared.counters.clone(),
            request_rate: shared.request_rate.clone(),
        };
        Chores::new(parts, shared.online.clone())
    }
}

fn new_compactions(
    shared: &Shared,
    writers: &Arc<FileWriters>,
    listeners: &StoreFileListeners,
    settings: &RegionServerSettings,
) -> Compactions {
    let parts = CompactionParts {
        regions: shared.regions.clone(),
        counters: shared.counters.clone(),
        writers: writers.clone(),
        listeners: listeners.clone(),
        quotas: shared.quotas.clone(),
    };
    let limits = CompactionLimits {
        large_bytes: settings.compaction_large_bytes,
        queue_max: settings.compaction_queue_max,
    };
    let off_peak = settings.region.compaction.off_peak;
    let clock = shared.resources.env.clock.clone();
    let throughput = Throughput::new(settings.throughput.clone(), off_peak, clock);
    Compactions::new(parts, limits, settings.compactions_enabled, throughput)
}

fn new_flusher(
    shared: &Shared,
    writers: &Arc<FileWriters>,
    compactions: &Arc<Compactions>,
    listeners: StoreFileListeners,
    settings: &RegionServerSettings,
) -> Flusher {
    let parts = FlusherParts {
        clock: shared.resources.env.clock.clone(),
        root: shared.resources.root.clone(),
        regions: shared.regions.clone(),
        scanners: shared.scanners.clone(),
        counters: shared.counters.clone(),
        pressure: shared.pressure.clone(),
        chunks: shared.resources.chunks.clone(),
        writers: writers.clone(),
        compactions: compactions.clone(),
        listeners,
    };
    let settings =
        FlusherSettings { threads_count: settings.flush_threads_count, online: shared.online.clone() };
    Flusher::new(parts, settings)
}

fn new_slow_log_table(
    shared: &Shared,
    write_monitor: &WriteMonitor,
    settings: &RegionServerSettings,
) -> Option<Arc<SlowLogTable>> {
    settings.slow_log_table_period()?;
    let parts = SlowLogParts {
        clock: shared.resources.env.clock.clone(),
        lifecycle: shared.lifecycle.clone(),
        regions: shared.regions.clone(),
        logs: shared.resources.logs.clone(),
        pressure: shared.pressure.clone(),
        write_monitor: write_monitor.clone(),
    };
    Some(Arc::new(SlowLogTable::new(parts, settings.slow_log_queue_max)))
}

fn new_accountant(
    shared: &Shared,
    writers: Arc<FileWriters>,
    settings: &RegionServerSettings,
) -> MemoryAccountant {
    let parts = MemoryParts {
        local: shared.resources.env.local.clone(),
        regions: shared.regions.clone(),
        scanners: shared.scanners.clone(),
        nonces: shared.nonces.clone(),
        pressure: shared.pressure.clone(),
        chunks: shared.resources.chunks.clone(),
        cache: shared.resources.cache.clone(),
        mob_files: shared.resources.mob_files.clone(),
        logs: shared.resources.logs.clone(),
        writers,
    };
    let shares = MemoryShares {
        plan: settings.plan(),
        memstore_share: settings.memstore_share,
        cache_share: settings.cache_share,
        online: shared.online.clone(),
        chunk_pool_share: settings.chunk_pool_share,
        adapts: settings.adapts_shares,
    };
    MemoryAccountant::new(parts, shares)
}
