//! What an operator can choose, as plain data.

use std::fmt;
use std::time::Duration;

use halcyon_cell::{Error, Result};
use halcyon_contract::BackupTables;
use halcyon_memstore::CHUNK_SIZE_BYTES_DEFAULT;
use halcyon_region::{CompactionSettings, NO_STORAGE_POLICY, RegionSettings};
use halcyon_schema::{Compression, FlushPolicy, InMemoryCompaction};
use halcyon_settings::Effect::{Online, Restart};
use halcyon_settings::{
    Codec, Description, Flag, Maybe, Millis, Number, OrNever, Positive, Section, Setting, Share, Text,
    settings,
};
use halcyon_wal::{OnDamage, SyncMode};

use crate::background::split_policy::SplitSettings;
use crate::background::throughput::ThroughputSettings;
use crate::calls::pool::PoolLimits;
use crate::calls::scanners::{SCANNER_BYTES, ScannerLimits};
use crate::memory::budget::{CELLS_SHARE_MAX, MemoryPlan};
use crate::quotas::QuotaSettings;
use crate::settings::backup::BackupTable;
use crate::settings::cache::FileTierSettings;
use crate::settings::coprocessors::CoprocessorSettings;
use crate::settings::strays::StrayCleanerSettings;
use crate::settings::warn::WarnSettings;

/// Settings of a region server. Names in parentheses are the HBase properties that set them.
///
/// They print as `name = value` lines that [`RegionServerSettings::set`] reads back.
#[derive(Clone, Debug)]
pub struct RegionServerSettings {
    /// Memory for cells and blocks together, in bytes. The one knob (`halcyon.memory.bytes`).
    pub memory_bytes: u64,
    /// Part of the memory for memstores; at it, writers are held back
    /// (`hbase.regionserver.global.memstore.size`).
    pub memstore_share: f64,
    /// Part of the memstores' memory at which flushes begin, largest region first
    /// (`hbase.regionserver.global.memstore.size.lower.limit`). 0.95 in HBase; with 0.8 there is room for what comes while
    /// the largest ones are flushed, and writers need not be held back.
    pub memstore_low_share: f64,
    /// A region with more in its memstores is flushed before it is closed, while it serves
    /// (`hbase.hregion.preclose.flush.size`).
    pub preclose_flush_bytes: u64,
    /// Bytes of a chunk of memstore memory (`hbase.hregion.memstore.mslab.chunksize`).
    pub chunk_bytes: usize,
    /// Part of the memstores' memory that unused chunks may keep (`hbase.hregion.memstore.chunkpool.maxsize`).
    pub chunk_pool_share: f64,
    /// Part of the memory for blocks (`hfile.block.cache.size`).
    pub cache_share: f64,
    /// Where blocks go that have no room in memory.
    pub file_tier: FileTierSettings,
    /// Whether the two shares follow the load, as they do unless one of them is set (`halcyon.memory.adapts`).
    pub adapts_shares: bool,
    /// How long a writer is held back at the high mark before it is told to come again. Shorter than any
    /// client's own patience.
    pub hold_back_max: Duration,
    /// Time that a scanner lives between two calls (`hbase.client.scanner.timeout.period`).
    pub scanner_lease: Duration,
    /// A client's patience, where the call does not say (`hbase.rpc.timeout`).
    pub rpc_timeout: Duration,
    /// Most bytes of cells in one answer, whatever the client says (`hbase.server.scanner.max.result.size`).
    pub result_bytes_max: u64,
    /// Most bytes of cells that are made of values in one request: as many as a request may have (`hbase.ipc.max.request.size`).
    pub request_cells_bytes_max: usize,
    /// Whether answers to batches say how loaded their regions are (`hbase.client.backpressure.enabled`).
    pub region_statistics: bool,
    /// A scan gets at least this long before a heartbeat ends it
    /// (`hbase.region.server.rpc.minimum.scan.time.limit.delta`).
    pub scan_time_min: Duration,
    /// Scans of at most this many rows may run where they were received.
    pub inline_scan_rows_max: u32,
    /// Open scanners at most; each holds memory of its region (`halcyon.scanners.max`). A sixteenth of the memory is a
    /// limit as well.
    pub scanners_count_max: usize,
    /// What one peer may have of connections, scanners and room for requests: this part of what the others leave
    /// (`halcyon.peer.share`).
    pub peer_share: f64,
    /// Directories of files that bulk loads may name, divided by commas; empty: the file system of the root directory
    /// (`halcyon.bulkload.roots`).
    pub bulk_load_roots: String,
    /// Calls that wait for the disk at the same time (`hbase.regionserver.handler.count`). HBase has 30 threads that
    /// carry out every call; here only calls that need the disk need one of these.
    pub disk_threads_max: usize,
    /// As many more for calls on `hbase:meta` and those that clients put above others
    /// (`hbase.regionserver.metahandler.count`).
    pub meta_threads_max: usize,
    /// Part of the threads for reads and scans; 0: reads, scans and writes have an eighth each for themselves and
    /// share the rest (`hbase.ipc.server.callqueue.read.ratio`).
    pub read_threads_share: f64,
    /// Of that part, what is for scans; 0: reads and scans share it (`hbase.ipc.server.callqueue.scan.ratio`).
    pub scan_threads_share: f64,
    /// How long a finished nonce is remembered (`hbase.server.hashNonce.gracePeriod`).
    pub nonce_grace: Duration,
    /// A snapshot for a client before 2.6 is aborted if this server's part takes longer (`hbase.snapshot.region.timeout`).
    pub snapshot_time_max: Duration,
    /// The same for a flush of a table (`hbase.flush.procedure.region.timeout`).
    pub flush_table_time_max: Duration,
    /// A server of a cluster ends itself when one of its event loops has not come round for so long, or when a thread of the WALs, of
    /// flushes or of the master's orders has work and has not come on with it; 0: it does not
    /// (`halcyon.regionserver.progress.timeout`).
    pub stuck_time_max: Duration,
    /// A call to a region that is being opened, or will be after a move, waits for that; 0: it is refused at once, as in HBase
    /// (`halcyon.regionserver.opening.wait`).
    pub arrival_wait_max: Duration,
    /// Edits older than this are flushed (`hbase.regionserver.optionalcacheflushinterval`).
    pub flush_period: Duration,
    /// Flushes at the same time (`hbase.hstore.flusher.count`).
    pub flush_threads_count: usize,
    /// Whether `SYNC_WAL` waits for the disk or for the operating system (`wal.sync` = `fsync` or `written`).
    pub wal_sync: SyncMode,
    /// In HDFS: `SYNC_WAL` waits for the disks of the DataNodes, not only for their memory (`hbase.wal.hsync`).
    pub wal_hsync: bool,
    /// Of a WAL in HDFS; 0 is HDFS's own setting (`hbase.regionserver.hlog.replication`).
    pub wal_replication: u32,
    /// On which kind of disks HDFS keeps WALs; NONE is HDFS's own setting (`hbase.wal.storage.policy`).
    pub wal_storage_policy: String,
    /// Whether WALs are written with dictionaries (`hbase.regionserver.wal.enablecompression`).
    pub wal_compression: bool,
    /// Whether values in them are compressed, too (`hbase.regionserver.wal.value.enablecompression`), and by which codec
    /// (`hbase.regionserver.wal.value.compression.type`).
    pub wal_value_compression: bool,
    pub wal_value_codec: Compression,
    /// A log file is closed at this size (`hbase.regionserver.logroll.size`).
    pub wal_roll_bytes: u64,
    /// HBase's two properties whose product is that size (`hbase.regionserver.hlog.blocksize`,
    /// `hbase.regionserver.logroll.multiplier`).
    pub wal_block_bytes: u64,
    pub wal_roll_multiplier: f64,
    /// A log file is closed at this age (`hbase.regionserver.logroll.period`).
    pub wal_roll_period: Duration,
    /// With more log files than this, their regions are flushed (`hbase.regionserver.maxlogs`).
    pub wal_files_count_max: usize,
    /// The log files are kept so small that the other servers of the cluster would read them within this time; 0: they are not
    /// (`halcyon.regionserver.recovery.time`).
    pub recovery_time: Duration,
    /// How much each of them reads in a second, writing what it finds (`halcyon.regionserver.recovery.rate`).
    pub recovery_bytes_per_second: u64,
    /// Errors of log files, one after the other, after which the log goes on in a new file
    /// (`hbase.regionserver.logroll.errors.tolerated`).
    pub wal_errors_tolerated: u32,
    /// Whether WALs of servers that are gone are split although they are damaged: what can be read is taken, and the file goes to
    /// `corrupt` (`hbase.hlog.split.skip.errors`).
    pub wal_split_skips_errors: bool,
    /// Whether edits of tables that are deleted here are dropped when a replication peer lacks them
    /// (`hbase.replication.drop.on.deleted.table`).
    pub drop_deleted_tables: bool,
    /// The same of families (`hbase.replication.drop.on.deleted.columnfamily`).
    pub drop_deleted_families: bool,
    /// Bytes and WAL entries that a replication peer gets in one call (`replication.source.size.capacity`, HBase's default is
    /// 64 MiB; `replication.source.nb.capacity`).
    pub replication_batch_bytes: u64,
    pub replication_batch_entries: usize,
    /// Whether replication peers get bulk loads, too (`hbase.replication.bulkload.enabled`).
    pub replicates_bulk_loads: bool,
    /// By which directory of `replication_conf_dir` peers find the files of this cluster; empty: the cluster's own id
    /// (`hbase.replication.cluster.id`).
    pub replication_cluster_id: String,
    /// Directories of Hadoop's settings, one for each cluster that sends bulk loads; empty: beside the other settings
    /// (`hbase.replication.conf.dir`).
    pub replication_conf_dir: String,
    /// Whether compactions run until somebody says otherwise (`hbase.regionserver.compaction.enabled`).
    pub compactions_enabled: bool,
    /// Selections above this go to the thread for large compactions
    /// (`hbase.regionserver.thread.compaction.throttle`).
    pub compaction_large_bytes: u64,
    /// Compactions of small selections at the same time (`hbase.regionserver.thread.compaction.small`).
    pub small_compaction_threads: usize,
    /// Compactions of large selections at the same time (`hbase.regionserver.thread.compaction.large`).
    pub large_compaction_threads: usize,
    /// How often copies for reads look for the files of their primary; 0: never
    /// (`hbase.regionserver.storefile.refresh.period`, which is 0 in HBase).
    pub file_refresh_period: Duration,
    /// As `file_refresh_period`, for copies of `hbase:meta` (`hbase.regionserver.meta.storefile.refresh.period`).
    pub meta_file_refresh_period: Duration,
    /// How often regions are asked whether a compaction is due (`hbase.server.compactchecker.interval`).
    pub compaction_check_period: Duration,
    /// Regions that wait for a compaction at most; beyond it the next check finds them again.
    pub compaction_queue_max: usize,
    /// How fast compactions write.
    pub throughput: ThroughputSettings,
    /// How long a flush waits for the compaction of a store that has too many files
    /// (`hbase.hstore.blockingWaitTime`).
    pub blocking_files_wait: Duration,
    /// Which calls are logged and kept as slow or large.
    pub warn: WarnSettings,
    /// Slow calls that are kept in memory (`hbase.regionserver.slowlog.ringbuffer.size`).
    pub slow_calls_kept_max: usize,
    /// Whether clients may read and clear them (`hbase.regionserver.slowlog.buffer.enabled`).
    pub slow_calls_for_clients: bool,
    /// Whether they are written to the table `hbase:slowlog` as well (`hbase.regionserver.slowlog.systable.enabled`).
    /// The master makes the table.
    pub slow_log_table: bool,
    /// Slow calls that wait to be written there (`hbase.regionserver.slowlog.systable.queue.size`).
    pub slow_log_queue_max: usize,
    /// How often they are written (`hbase.slowlog.systable.chore.duration`), and HBase's newer name for it
    /// (`hbase.regionserver.named.queue.chore.duration`). The shorter time holds.
    pub slow_log_period: Duration,
    pub named_queue_period: Duration,
    /// Whether HBase's backup tool may be used (`hbase.backup.enable`): bulk loads are noted for it.
    pub backup_enabled: bool,
    /// Where the tool has its books (`hbase.backup.system.table.name`).
    pub backup_tables: BackupTables,
    /// When regions are split.
    pub split: SplitSettings,
    /// What users, tables and namespaces may use.
    pub quotas: QuotaSettings,
    /// Which built-in coprocessors regions have beside those of their tables.
    pub coprocessors: CoprocessorSettings,
    /// Mob files that are kept open (`hbase.mob.file.cache.size`), and the part of them that stays when there are too many
    /// (`hbase.mob.cache.evict.remain.ratio`).
    pub mob_files_max: usize,
    pub mob_remain_share: f64,
    /// Seconds between two looks for mob files that nobody needs; 0: never (`hbase.master.mob.cleaner.period`). Also the
    /// master's.
    pub mob_cleaner_period_s: u64,
    /// Younger mob files stay (`hbase.mob.min.age.archive`). Also the master's.
    pub mob_age_min: Duration,
    /// When files that lie in a store's directory and are not the store's go.
    pub strays: StrayCleanerSettings,
    /// The master's: seconds between two major compactions of families with `IS_MOB`, 0: never
    /// (`hbase.mob.compaction.chore.period`), and regions of a table at the same time, 0: all
    /// (`hbase.mob.major.compaction.region.batch.size`).
    pub mob_compaction_period_s: u64,
    pub mob_compaction_batch: usize,
    /// What every region is opened with.
    pub region: RegionSettings,
}

impl Default for RegionServerSettings {
    fn default() -> RegionServerSettings {
        RegionServerSettings {
            memory_bytes: 1 << 30,
            memstore_share: 0.35,
            memstore_low_share: 0.8,
            preclose_flush_bytes: 5 << 20,
            chunk_bytes: CHUNK_SIZE_BYTES_DEFAULT,
            chunk_pool_share: 1.0,
            cache_share: 0.35,
            file_tier: FileTierSettings::default(),
            adapts_shares: true,
            hold_back_max: Duration::from_secs(5),
            scanner_lease: Duration::from_secs(60),
            rpc_timeout: Duration::from_secs(60),
            result_bytes_max: 100 << 20,
            request_cells_bytes_max: 256 << 20,
            region_statistics: false,
            scan_time_min: Duration::from_millis(10),
            inline_scan_rows_max: 100,
            scanners_count_max: 100_000,
            peer_share: 0.5,
            bulk_load_roots: String::new(),
            disk_threads_max: 16,
            meta_threads_max: 2,
            read_threads_share: 0.0,
            scan_threads_share: 0.0,
            nonce_grace: Duration::from_secs(30 * 60),
            snapshot_time_max: Duration::from_secs(5 * 60),
            flush_table_time_max: Duration::from_secs(60),
            stuck_time_max: Duration::from_secs(15),
            arrival_wait_max: Duration::from_secs(1),
            flush_period: Duration::from_secs(3600),
            flush_threads_count: 2,
            wal_sync: SyncMode::Fsync,
            wal_roll_bytes: 128 << 20,
            wal_block_bytes: 256 << 20,
            wal_roll_multiplier: 0.5,
            wal_roll_period: Duration::from_secs(3600),
            wal_files_count_max: 32,
            recovery_time: Duration::from_secs(3),
            recovery_bytes_per_second: 100_000_000,
            wal_hsync: false,
            wal_replication: 0,
            wal_storage_policy: NO_STORAGE_POLICY.to_string(),
            wal_compression: false,
            wal_value_compression: false,
            wal_value_codec: Compression::Gz,
            wal_errors_tolerated: 2,
            wal_split_skips_errors: false,
            drop_deleted_tables: false,
            drop_deleted_families: false,
            replication_batch_bytes: 16 << 20,
            replication_batch_entries: 25_000,
            replicates_bulk_loads: false,
            replication_cluster_id: String::new(),
            replication_conf_dir: String::new(),
            compactions_enabled: true,
            compaction_large_bytes: 2560 << 20,
            small_compaction_threads: 1,
            large_compaction_threads: 1,
            file_refresh_period: Duration::from_secs(30),
            meta_file_refresh_period: Duration::from_secs(30),
            compaction_check_period: Duration::from_secs(10),
            compaction_queue_max: 10_000,
            throughput: ThroughputSettings::default(),
            blocking_files_wait: Duration::from_secs(90),
            warn: WarnSettings::default(),
            slow_calls_kept_max: 256,
            slow_calls_for_clients: false,
            slow_log_table: false,
            slow_log_queue_max: 1000,
            slow_log_period: Duration::from_secs(600),
            named_queue_period: Duration::from_secs(600),
            backup_enabled: false,
            backup_tables: BackupTables::default(),
            split: SplitSettings::default(),
            quotas: QuotaSettings::default(),
            coprocessors: CoprocessorSettings::default(),
            mob_files_max: 1000,
            mob_remain_share: 0.5,
            mob_cleaner_period_s: 24 * 3600,
            mob_age_min: Duration::from_secs(3600),
            strays: StrayCleanerSettings::default(),
            mob_compaction_period_s: 7 * 24 * 3600,
            mob_compaction_batch: 0,
            region: RegionSettings::default(),
        }
    }
}

impl RegionServerSettings {
    /// What a split of a damaged WAL does.
    pub(crate) fn on_wal_damage(&self) -> OnDamage {
        if self.wal_split_skips_errors { OnDamage::PassOver } else { OnDamage::Refuse }
    }

    /// Bytes of all memstores together at which writers are held back.
    pub fn memstore_high_bytes(&self) -> u64 {
        self.plan().memstores
    }

    /// How the memory is divided.
    pub fn plan(&self) -> MemoryPlan {
        let compactors = self.small_compaction_threads + self.large_compaction_threads;
        let writers = self.flush_threads_count.max(1) + compactors;
        MemoryPlan::new(self.memory_bytes, self.memstore_share, self.cache_share, writers)
    }

    /// Whether memstores and blocks leave enough for calls.
    fn check_shares(&self) -> Result<()> {
        let sum = self.memstore_share + self.cache_share;
        if sum > CELLS_SHARE_MAX + 1e-9 {
            return Err(Error::invalid(format!(
                "hbase.regionserver.global.memstore.size and hfile.block.cache.size are {sum} of the memory together; \
                 more than {CELLS_SHARE_MAX} leaves too little for calls"
            )));
        }
        Ok(())
    }

    /// Bytes of all memstores together at which flushes begin.
    pub fn memstore_low_bytes(&self) -> u64 {
        (self.memstore_high_bytes() as f64 * self.memstore_low_share) as u64
    }

    pub fn cache_bytes(&self) -> u64 {
        self.plan().blocks
    }

    /// Bytes that nonces of finished operations may take, of the part for blocks. With a gibibyte of memory they keep 30
    /// minutes of 3,500 operations a second.
    pub fn nonces_bytes_max(&self) -> u64 {
        self.memory_bytes / 16
    }

    pub(super) fn wal_roll_of_blocks(&self) -> u64 {
        (self.wal_block_bytes as f64 * self.wal_roll_multiplier) as u64
    }

    /// Whether the settings make sense together.
    pub fn check(&self) -> Result<()> {
        self.check_shares()?;
        if self.replicates_bulk_loads && self.replication_cluster_id.trim().is_empty() {
            return Err(Error::invalid(
                "hbase.replication.cluster.id cannot be empty when hbase.replication.bulkload.enabled is set to true",
            ));
        }
        self.file_tier.check()
    }

    /// How often slow calls are written to their table; `None`: they are not. HBase writes what clients may read, too.
    pub(crate) fn slow_log_table_period(&self) -> Option<Duration> {
        let is_written = self.slow_log_table && self.slow_calls_for_clients;
        is_written.then(|| self.slow_log_period.min(self.named_queue_period))
    }

    /// How calls that may wait for the disk are kept apart.
    /// What scanners may have: their number, within a sixteenth of the memory.
    pub(crate) fn scanner_limits(&self) -> ScannerLimits {
        const SCANNERS_MIN: u64 = 1_000;
        let fitting = (self.memory_bytes / 16 / SCANNER_BYTES).max(SCANNERS_MIN);
        let fitting = usize::try_from(fitting).unwrap_or(usize::MAX);
        ScannerLimits { open_count_max: self.scanners_count_max.min(fitting), peer_share: self.peer_share }
    }

    pub(crate) fn pool_limits(&self) -> PoolLimits {
        PoolLimits::new(
            self.disk_threads_max,
            self.meta_threads_max,
            self.read_threads_share,
            self.scan_threads_share,
        )
    }

    /// Sets one by its property name; `Ok(false)` if no setting has that name. Times are in milliseconds.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        Ok(halcyon_settings::set(SETTINGS, self, name, value)?
            || self.file_tier.set(name, value)?
            || self.throughput.set(name, value)?
            || self.region.compaction.set(name, value)?
            || self.split.set(name, value)?
            || self.quotas.set(name, value)?
            || self.coprocessors.set(name, value)?)
    }

    /// All settings with their defaults.
    pub fn describe() -> Vec<Description> {
        let mut all = halcyon_settings::describe(SETTINGS, &RegionServerSettings::default());
        all.extend(FileTierSettings::describe());
        all.extend(CompactionSettings::describe());
        all.extend(ThroughputSettings::describe());
        all.extend(SplitSettings::describe());
        all.extend(QuotaSettings::describe());
        all.extend(CoprocessorSettings::describe());
        all
    }
}

impl fmt::Display for RegionServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        halcyon_settings::print(SETTINGS, self, f)?;
        write!(f, "{}{}{}", self.file_tier, self.throughput, self.region.compaction)?;
        write!(f, "{}{}{}", self.split, self.quotas, self.coprocessors)
    }
}

const SETTINGS: &[Section<RegionServerSettings>] = &[
    Section {
        title: "Calls",
        settings: settings!(RegionServerSettings:
            Restart, "hbase.regionserver.handler.count", "calls", Number, disk_threads_max,
                "Calls that wait for the disk at the same time. HBase: threads for all calls, 30.";
            Restart, "hbase.regionserver.metahandler.count", "calls", Number, meta_threads_max,
                "As many more for calls on `hbase:meta` and those with a priority. HBase: 20.";
            Restart, "hbase.ipc.server.callqueue.read.ratio", "share", Share, read_threads_share,
                "Part of the slots for reads and scans; 0: each class has an eighth, and all share the rest.";
            Restart, "hbase.ipc.server.callqueue.scan.ratio", "share", Share, scan_threads_share,
                "Part of the read slots that is for scans; 0: reads and scans share them.";
            Restart, "hbase.rpc.timeout", "ms", Millis, rpc_timeout,
                "Client timeout of calls that do not say their own.";
            Restart, "hbase.client.scanner.timeout.period", "ms", Millis, scanner_lease,
                "Time that a scanner lives between two calls.";
            Restart, "halcyon.scanners.max", "scanners", Positive, scanners_count_max,
                "Open scanners. They may also have a sixteenth of the memory at most, at 4 KiB each. HBase has no limit.";
            Restart, "halcyon.peer.share", "share", Share, peer_share,
                "What the connections of one address may have: this part of what the others leave of connections, scanners, \
                 sessions of the ZooKeeper endpoint, and of calls and their memory while others want it. 1: an address may have all.";
            Restart, "hbase.server.scanner.max.result.size", "bytes", Number, result_bytes_max,
                "Most bytes of cells in one answer.";
            Restart, "hbase.client.backpressure.enabled", "true, false", Flag, region_statistics,
                "Whether answers to batches say how loaded their regions are. Clients with the same setting slow down by it.";
            Restart, "hbase.server.hashNonce.gracePeriod", "ms", Millis, nonce_grace,
                "How long a finished nonce is remembered.";
            Online, "hbase.ipc.warn.response.time", "ms", OrNever<Millis>, warn.time,
                "Calls that take as long are logged and kept as slow, wherever they waited; -1: none. HBase leaves out the queue.";
            Online, "hbase.ipc.warn.response.time.scan", "ms", Maybe<OrNever<Millis>>, warn.scan_time,
                "The same for scans; not set: as other calls.";
            Online, "hbase.ipc.warn.response.size", "bytes", OrNever<Number>, warn.bytes,
                "Calls whose answers are larger are logged and kept as large; -1: none.";
            Online, "hbase.ipc.warn.response.size.scan", "bytes", Maybe<OrNever<Number>>, warn.scan_bytes,
                "The same for scans; not set: as other calls.";
            Restart, "hbase.regionserver.slowlog.ringbuffer.size", "calls", Number, slow_calls_kept_max,
                "Slow and large calls that are kept in memory, for the console and for clients.";
            Restart, "hbase.regionserver.slowlog.buffer.enabled", "true, false", Flag, slow_calls_for_clients,
                "Whether clients may read and clear them (`get_slowlog_responses`). The console shows them always.";
            Restart, "hbase.regionserver.slowlog.systable.enabled", "true, false", Flag, slow_log_table,
                "Whether they are written to the table `hbase:slowlog`; only with the setting above, as in HBase.";
            Restart, "hbase.regionserver.slowlog.systable.queue.size", "calls", Number, slow_log_queue_max,
                "Slow calls that wait to be written there; when it is full, the oldest are left out.";
            Restart, "hbase.slowlog.systable.chore.duration", "ms", Millis, slow_log_period,
                "How often they are written there.";
            Restart, "hbase.regionserver.named.queue.chore.duration", "ms", Millis, named_queue_period,
                "The same; the shorter time holds.";
        ),
    },
    Section {
        title: "Backups",
        settings: settings!(RegionServerSettings:
            Restart, "hbase.backup.enable", "true, false", Flag, backup_enabled,
                "Whether HBase's `backup` command may be used: WALs and files of bulk loads stay until it has them.";
            Restart, "hbase.backup.system.table.name", "table", BackupTable, backup_tables,
                "The table in which the command keeps what it knows. A second one has `_bulk` behind its name.";
        ),
    },
    Section { title: "Memory and cache", settings: &[MEMSTORE_SHARE, CACHE_SHARE] },
    Section {
        title: "Memory and cache",
        settings: settings!(RegionServerSettings:
            Restart, "halcyon.memory.bytes", "bytes", Number, memory_bytes,
                "Memory budget of the server (`--memory`). HBase: the heap of the JVM.";
            // Behind the two shares, which turn it off when they are read.
            Restart, "halcyon.memory.adapts", "true, false", Flag, adapts_shares,
                "Whether the two shares follow the load.";
            Online, "hbase.regionserver.global.memstore.size.lower.limit", "share", Share, memstore_low_share,
                "Part of the memstores' memory at which flushes begin. HBase: 0.95.";
            Restart, "hbase.hregion.memstore.mslab.chunksize", "bytes", Number, chunk_bytes,
                "Size of a chunk of memstore memory.";
            Restart, "hbase.hregion.memstore.chunkpool.maxsize", "share", Share, chunk_pool_share,
                "Part of the memstores' memory that unused chunks may keep.";
            Restart, "hbase.rs.evictblocksonclose", "true, false", Flag, region.evict_blocks_on_close,
                "Whether closing a region drops its blocks from the cache.";
            Restart, "hbase.rs.prefetchblocksonopen", "true, false", Flag, region.prefetch_blocks_on_open,
                "Whether files are read into the cache when they are opened.";
            Restart, "hbase.rs.cacheblocksonwrite", "true, false", Flag, region.cache_on_write.data,
                "Whether a flush leaves its blocks in the cache.";
            Restart, "hfile.block.index.cacheonwrite", "true, false", Flag, region.cache_on_write.index,
                "Whether flushes and compactions leave index blocks in the cache.";
            Restart, "hfile.block.bloom.cacheonwrite", "true, false", Flag, region.cache_on_write.bloom,
                "Whether flushes and compactions leave bloom filters in the cache.";
            Restart, "hbase.regionserver.datatiering.enable", "true, false", Flag, region.data_tiering,
                "Whether `hbase.hstore.datatiering.type` of families and tables counts: data that are not hot stay out of the cache.";
        ),
    },
    Section {
        title: "Memstore and flush",
        settings: settings!(RegionServerSettings:
            Restart, "hbase.hregion.memstore.flush.size", "bytes", Number, region.flush_size_bytes,
                "Memstore size of a region at which it is flushed.";
            Restart, "hbase.hregion.percolumnfamilyflush.size.lower.bound.min", "bytes", Number,
                region.large_family_bytes_min, "Bytes in memory below which no family counts as large for a flush policy.";
            Restart, "hbase.hregion.memstore.block.multiplier", "times", Number, region.block_multiplier,
                "Writes to a region are refused when its memstore holds this many flush sizes.";
            Restart, "hbase.hregion.preclose.flush.size", "bytes", Number, preclose_flush_bytes,
                "A region with more in its memstores is flushed before it is closed, while it serves.";
            Online, "hbase.regionserver.optionalcacheflushinterval", "ms", Millis, flush_period,
                "Edits older than this are flushed.";
            Restart, "hbase.snapshot.region.timeout", "ms", Millis, snapshot_time_max,
                "A snapshot for a client before 2.6 is aborted if a region server's part takes longer; `halcyon regionserver` only.";
            Restart, "hbase.flush.procedure.region.timeout", "ms", Millis, flush_table_time_max,
                "The same for a flush of a table.";
            Restart, "halcyon.regionserver.progress.timeout", "ms", Millis, stuck_time_max,
                "A server of a cluster ends itself when a thread that it needs is stuck for so long ([Cluster](CLUSTER.md#stuck-threads)); 0: it does not. `halcyon regionserver` only.";
            Restart, "halcyon.regionserver.opening.wait", "ms", Millis, arrival_wait_max,
                "A call to a region that is being opened, or will be after a move, waits for that, up to half of its own timeout. From so long after the beginning of an opening on, calls are refused at once, as HBase does it; 0: always.";
            Restart, "hbase.hstore.flusher.count", "threads", Number, flush_threads_count,
                "Flushes at the same time.";
            Restart, "hbase.server.keyvalue.maxsize", "bytes", Number, region.keyvalue_max_bytes,
                "Largest cell; 0: no limit.";
            Restart, "hbase.table.max.rowsize", "bytes", Number, region.row_bytes_max,
                "Largest row that a Get, or a scan of a client that takes no parts of rows, may read.";
            Restart, "hbase.memstore.inmemoryflush.threshold.factor", "share", Share, region.in_memory_flush_share,
                "Part of the flush size at which a segment goes to the pipeline.";
            Restart, "hbase.hregion.compacting.pipeline.segments.limit", "segments", Number,
                region.pipeline_segments_max, "Segments of a pipeline before they are merged.";
            Restart, "hbase.hregion.compacting.memstore.adaptive.compaction.threshold", "share", Share,
                region.adaptive_share,
                "With `ADAPTIVE`: versions are dropped when they are more than this part of the cells.";
        ),
    },
    Section { title: "Memstore and flush", settings: &[IN_MEMORY_COMPACTION, FLUSH_POLICY] },
    Section {
        title: "MOB files",
        settings: settings!(RegionServerSettings:
            Restart, "hbase.mob.file.cache.size", "files", Number, mob_files_max,
                "Mob files that are kept open; 0: none.";
            Restart, "hbase.mob.cache.evict.remain.ratio", "share", Share, mob_remain_share,
                "Part of them that stays when there are too many. They go at once, where HBase has a period for it.";
            Restart, "hbase.mob.compaction.type", "full, optimized", Text, region.mob.compaction_type,
                "`optimized`: a major compaction leaves values in mob files that are large enough. Tables and families may say otherwise.";
            Restart, "hbase.mob.compactions.max.file.size", "bytes", Number, region.mob.file_bytes_max,
                "Size at which a mob file is large enough.";
            Restart, "hbase.unsafe.mob.discard.miss", "true, false", Flag, region.mob.discards_missing,
                "Whether a major compaction drops values whose mob file is gone. Otherwise it fails.";
            Restart, "hbase.master.mob.cleaner.period", "s", Number, mob_cleaner_period_s,
                "How often region servers and the master archive mob files that nothing refers to, or whose values have expired; 0: never.";
            Restart, "hbase.mob.min.age.archive", "ms", Millis, mob_age_min,
                "Younger mob files are not archived, so that a store file that is about to refer to one is not missed.";
            Restart, "hbase.mob.compaction.chore.period", "s", Number, mob_compaction_period_s,
                "How often the master asks for major compactions of families with `IS_MOB`; 0: never.";
            Restart, "hbase.mob.major.compaction.region.batch.size", "regions", Number, mob_compaction_batch,
                "Regions of a table that compact for that at the same time; 0: all.";
        ),
    },
    Section {
        title: "Store file trackers",
        settings: settings!(RegionServerSettings:
            Restart, "hbase.region.broken.storefilecleaner.enabled", "true, false", Flag, strays.enabled,
                "Whether region servers archive files that lie in the directory of a store with the tracker `FILE` and are in no list.";
            Restart, "hbase.region.broken.storefilecleaner.ttl", "ms", Millis, strays.ttl,
                "How long such a file stays after a region server has seen it first.";
            Restart, "hbase.region.broken.storefilecleaner.delay", "ms", Millis, strays.delay,
                "Time from the start of a region server to its first look.";
            Restart, "hbase.region.broken.storefilecleaner.delay.jitter", "share", Share, strays.delay_jitter,
                "Part of that time by which servers differ.";
            Restart, "hbase.region.broken.storefilecleaner.period", "ms", Millis, strays.period,
                "Time between two looks.";
        ),
    },
    Section {
        title: "Store files in HDFS",
        settings: settings!(RegionServerSettings:
            Restart, "hbase.hregion.block.storage.policy", "policy", Text, region.region_storage_policy,
                "On which kind of disks HDFS keeps the files of regions, such as `ONE_SSD`. `NONE`: HDFS's own setting.";
            Restart, "hbase.hstore.block.storage.policy", "policy", Text, region.store_storage_policy,
                "The same for families without the attribute `STORAGE_POLICY`. Tables and families may say otherwise.";
        ),
    },
    Section {
        title: "Tables and snapshots",
        settings: settings!(RegionServerSettings:
            Restart, "halcyon.bulkload.roots", "paths", Text, bulk_load_roots,
                "Directories, divided by commas, below which files of bulk loads may be, in addition to the root directory. Others are \
                 refused. Empty: any directory of the file system of the root directory, but from other places of a local \
                 disk files are copied, not moved ([Bulk load](BULK_LOAD.md)).";
        ),
    },
    Section { title: "WAL", settings: super::wal::SETTINGS },
    Section {
        title: "WAL",
        settings: settings!(RegionServerSettings:
            Restart, "hbase.regionserver.logroll.size", "bytes", Number, wal_roll_bytes,
                "Size at which a WAL is rolled.";
            Restart, "hbase.regionserver.logroll.period", "ms", Millis, wal_roll_period,
                "Age at which a WAL is rolled.";
            Restart, "hbase.regionserver.wal.enablecompression", "true, false", Flag, wal_compression,
                "Whether WALs are compressed: a name that comes again is written as a number. Takes processor time, and memory for the \
                 names of a file. Tags stay as they are. No effect with `hbase.regionserver.wal.encryption`.";
            Restart, "hbase.regionserver.wal.value.enablecompression", "true, false", Flag, wal_value_compression,
                "Whether values in compressed WALs are compressed, each by itself.";
            Restart, "hbase.regionserver.hlog.replication", "replicas", Number, wal_replication,
                "Replicas of a WAL in HDFS; 0: as `dfs.replication` says.";
            Restart, "hbase.regionserver.maxlogs", "files", Number, wal_files_count_max,
                "With more WALs their regions are flushed.";
            Restart, "halcyon.regionserver.recovery.time", "ms", Millis, recovery_time,
                "Regions are flushed so early that the other live servers would split the WALs of this one within this time ([Cluster](CLUSTER.md#recovery-time)); 0: they are not. `halcyon regionserver` only.";
            Restart, "halcyon.regionserver.recovery.rate", "bytes/s", Positive, recovery_bytes_per_second,
                "How much of a WAL each of them is taken to split in a second.";
            Restart, "hbase.replication.drop.on.deleted.table", "true, false", Flag, drop_deleted_tables,
                "Whether edits of a table that is deleted here are dropped when a replication peer does not have it. Otherwise they \
                 wait for it.";
            Restart, "hbase.replication.drop.on.deleted.columnfamily", "true, false", Flag, drop_deleted_families,
                "The same of families.";
            Restart, "replication.source.size.capacity", "bytes", Positive, replication_batch_bytes,
                "Bytes that a replication peer gets in one call. One WAL entry may be larger.";
            Restart, "replication.source.nb.capacity", "entries", Positive, replication_batch_entries,
                "The same in WAL entries.";
            Restart, "hbase.replication.bulkload.enabled", "true, false", Flag, replicates_bulk_loads,
                "Whether replication peers get bulk loads, too. Needs `hbase.replication.cluster.id`.";
            Restart, "hbase.replication.cluster.id", "name", Text, replication_cluster_id,
                "How peers call this cluster: each has the settings of its file system in the directory of this name below its \
                 `hbase.replication.conf.dir`.";
            Restart, "hbase.replication.conf.dir", "directory", Text, replication_conf_dir,
                "Has a directory for each cluster that sends bulk loads, with `core-site.xml` and `hdfs-site.xml`. Empty: the \
                 directory of `--config`.";
            Restart, "hbase.regionserver.logroll.errors.tolerated", "errors", Number, wal_errors_tolerated,
                "Errors of a WAL, one after the other, after which it continues in a new file. With one more the server gives up, in HDFS only after 15 s. With `wal.sync` = `written`: at the first.";
            Online, "hbase.hlog.split.skip.errors", "true, false", Flag, wal_split_skips_errors,
                "Whether a damaged WAL of a server that is gone is split all the same. Edits that cannot be read are lost; the server's log says which. The file is moved to `corrupt`. Default: its regions stay closed.";
            Restart, "hbase.hregion.edits.replay.skip.errors", "true, false", Flag, region.replay_skips_errors,
                "Whether a region opens although recovered edits of it are damaged. What can be read is replayed, and the file is renamed. Default: it does not open.";
        ),
    },
    Section {
        title: "Compaction",
        settings: settings!(RegionServerSettings:
            Restart, "hbase.regionserver.compaction.enabled", "true, false", Flag, compactions_enabled,
                "Whether compactions run; the `compaction_switch` of the shell changes it.";
            Restart, "hbase.regionserver.thread.compaction.throttle", "bytes", Number, compaction_large_bytes,
                "Larger selections go to the queue for large compactions.";
            Restart, "hbase.regionserver.thread.compaction.small", "threads", Positive, small_compaction_threads,
                "Compactions of small selections at the same time. Each has 2 MiB of the memory budget.";
            Restart, "hbase.regionserver.thread.compaction.large", "threads", Positive, large_compaction_threads,
                "Compactions of large selections at the same time.";
            Online, "hbase.server.compactchecker.interval", "ms", Millis, compaction_check_period,
                "How often regions are asked whether a compaction or a split is due.";
            Online, "hbase.regionserver.storefile.refresh.period", "ms", Millis, file_refresh_period,
                "How often region replicas look for new store files; 0: never. Less than half of `hbase.master.hfilecleaner.ttl`. HBase: 0.";
            Online, "hbase.regionserver.meta.storefile.refresh.period", "ms", Millis, meta_file_refresh_period,
                "The same for replicas of `hbase:meta`. HBase: 0.";
            Online, "hbase.hstore.blockingWaitTime", "ms", Millis, blocking_files_wait,
                "How long a flush waits for the compaction of a store that has too many files.";
            Restart, "hbase.io.compress.zstd.codec", "class", Text, region.zstd_codec,
                "HBase's own codec class writes frames into records, Hadoop's (empty) does not. Say what HBase says \
                 that shares the directory.";
        ),
    },
];

const MEMSTORE_SHARE: Setting<RegionServerSettings> = Setting {
    name: "hbase.regionserver.global.memstore.size",
    unit: "share",
    effect: Restart,
    text: "Part of the memory for memstores; at it writers wait. HBase: 0.4. Setting it turns `halcyon.memory.adapts` off.",
    set: |settings, text| {
        settings.memstore_share = share(text)?;
        settings.adapts_shares = false;
        Ok(())
    },
    get: |settings| Some(settings.memstore_share.to_string()),
};

const CACHE_SHARE: Setting<RegionServerSettings> = Setting {
    name: "hfile.block.cache.size",
    unit: "share",
    effect: Restart,
    text: "Part of the memory for blocks. HBase: 0.4. Setting it turns `halcyon.memory.adapts` off.",
    set: |settings, text| {
        settings.cache_share = share(text)?;
        settings.adapts_shares = false;
        Ok(())
    },
    get: |settings| Some(settings.cache_share.to_string()),
};

const IN_MEMORY_COMPACTION: Setting<RegionServerSettings> = Setting {
    name: "hbase.hregion.compacting.memstore.type",
    unit: "NONE, BASIC, EAGER, ADAPTIVE",
    effect: Restart,
    text: "In-memory compaction of families that do not say.",
    set: |settings, text| {
        let policy = InMemoryCompaction::parse(text.trim());
        let policy = policy.ok_or_else(|| "is none of NONE, BASIC, EAGER, ADAPTIVE".to_string())?;
        settings.region.in_memory_compaction = policy;
        Ok(())
    },
    get: |settings| Some(settings.region.in_memory_compaction.to_string()),
};

const FLUSH_POLICY: Setting<RegionServerSettings> = Setting {
    name: "hbase.regionserver.flush.policy",
    unit: "class",
    effect: Restart,
    text: "Which families a flush takes: `FlushAllStoresPolicy`, `FlushAllLargeStoresPolicy` (the default of HBase) or \
           `FlushNonSloppyStoresFirstPolicy`, with their package. A flush on request, for old edits or for the number of WALs \
           takes all.",
    set: |settings, text| {
        let policy = FlushPolicy::of_class(text).ok_or_else(|| "is no flush policy of HBase".to_string())?;
        settings.region.flush_policy = policy;
        Ok(())
    },
    get: |settings| Some(settings.region.flush_policy.class()),
};

pub(super) fn share(text: &str) -> std::result::Result<f64, String> {
    let share = <Share as Codec<f64>>::parse(text.trim());
    share.ok_or_else(|| <Share as Codec<f64>>::refused(&0.0).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_print_and_parse_back() {
        let mut settings = RegionServerSettings {
            memory_bytes: 12345,
            wal_sync: SyncMode::Written,
            memstore_share: 0.25,
            ..RegionServerSettings::default()
        };
        settings.flush_period = Duration::from_millis(7);
        settings.file_tier.engine = crate::settings::cache::Engine::File("/ssd/cache".into());
        settings.file_tier.size_bytes = 3 << 19;
        settings.file_tier.index_path = Some("/ssd/index".into());
        let printed = settings.to_string();
        let mut read = RegionServerSettings::default();
        for line in printed.lines() {
            let (name, value) = line.split_once(" = ").expect("name = value");
            assert!(read.set(name, value).unwrap(), "{name}");
        }
        assert_eq!(read.to_string(), printed);
        assert!(!read.set("some.other.name", "1").unwrap());
        read.set("hbase.regionserver.hlog.blocksize", "1000").unwrap();
        assert_eq!(read.wal_roll_bytes, 500);
        read.set("hbase.regionserver.logroll.multiplier", "0.9").unwrap();
        assert_eq!(read.wal_roll_bytes, 900);
        assert!(read.set("hfile.block.cache.size", "2").is_err());
    }
}
