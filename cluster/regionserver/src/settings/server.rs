//! What an operator can choose, as plain data.

use std::fmt;
use std::time::Duration;

use halcyon_cell::{Error, Result};
use halcyon_memstore::CHUNK_SIZE_BYTES_DEFAULT;
use halcyon_region::RegionSettings;
use halcyon_schema::InMemoryCompaction;
use halcyon_wal::SyncMode;

use crate::background::split_policy::SplitSettings;
use crate::background::throughput::ThroughputSettings;
use crate::calls::pool::PoolLimits;
use crate::memory::budget::{CELLS_SHARE_MAX, MemoryPlan};
use crate::settings::cache::FileTierSettings;

/// Threads that compact: one for small selections, one for large ones.
const COMPACTION_THREADS: usize = 2;

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
    /// A scan gets at least this long before a heartbeat ends it
    /// (`hbase.region.server.rpc.minimum.scan.time.limit.delta`).
    pub scan_time_min: Duration,
    /// Scans of at most this many rows may run where they were received.
    pub inline_scan_rows_max: u32,
    /// Open scanners at most; each holds memory of its region.
    pub scanners_count_max: usize,
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
    /// Edits older than this are flushed (`hbase.regionserver.optionalcacheflushinterval`).
    pub flush_period: Duration,
    /// Flushes at the same time (`hbase.hstore.flusher.count`).
    pub flush_threads_count: usize,
    /// Whether `SYNC_WAL` waits for the disk or for the operating system (`wal.sync` = `fsync` or `written`).
    pub wal_sync: SyncMode,
    /// A log file is closed at this size (`hbase.regionserver.logroll.size`).
    pub wal_roll_bytes: u64,
    /// A log file is closed at this age (`hbase.regionserver.logroll.period`).
    pub wal_roll_period: Duration,
    /// With more log files than this, their regions are flushed (`hbase.regionserver.maxlogs`).
    pub wal_files_count_max: usize,
    /// Whether compactions run until somebody says otherwise (`hbase.regionserver.compaction.enabled`).
    pub compactions_enabled: bool,
    /// Selections above this go to the thread for large compactions
    /// (`hbase.regionserver.thread.compaction.throttle`).
    pub compaction_large_bytes: u64,
    /// How often regions are asked whether a compaction is due (`hbase.server.compactchecker.interval`).
    pub compaction_check_period: Duration,
    /// Regions that wait for a compaction at most; beyond it the next check finds them again.
    pub compaction_queue_max: usize,
    /// How fast compactions write.
    pub throughput: ThroughputSettings,
    /// How long a flush waits for the compaction of a store that has too many files
    /// (`hbase.hstore.blockingWaitTime`).
    pub blocking_files_wait: Duration,
    /// Calls that take longer are logged (`hbase.ipc.warn.response.time`).
    pub slow_call: Duration,
    /// When regions are split.
    pub split: SplitSettings,
    /// What every region is opened with.
    pub region: RegionSettings,
}

impl Default for RegionServerSettings {
    fn default() -> RegionServerSettings {
        RegionServerSettings {
            memory_bytes: 1 << 30,
            memstore_share: 0.35,
            memstore_low_share: 0.8,
            chunk_bytes: CHUNK_SIZE_BYTES_DEFAULT,
            chunk_pool_share: 1.0,
            cache_share: 0.35,
            file_tier: FileTierSettings::default(),
            adapts_shares: true,
            hold_back_max: Duration::from_secs(5),
            scanner_lease: Duration::from_secs(60),
            rpc_timeout: Duration::from_secs(60),
            result_bytes_max: 100 << 20,
            scan_time_min: Duration::from_millis(10),
            inline_scan_rows_max: 100,
            scanners_count_max: 100_000,
            disk_threads_max: 16,
            meta_threads_max: 2,
            read_threads_share: 0.0,
            scan_threads_share: 0.0,
            nonce_grace: Duration::from_secs(30 * 60),
            flush_period: Duration::from_secs(3600),
            flush_threads_count: 2,
            wal_sync: SyncMode::Fsync,
            wal_roll_bytes: 128 << 20,
            wal_roll_period: Duration::from_secs(3600),
            wal_files_count_max: 32,
            compactions_enabled: true,
            compaction_large_bytes: 2560 << 20,
            compaction_check_period: Duration::from_secs(10),
            compaction_queue_max: 10_000,
            throughput: ThroughputSettings::default(),
            blocking_files_wait: Duration::from_secs(90),
            slow_call: Duration::from_secs(10),
            split: SplitSettings::default(),
            region: RegionSettings::default(),
        }
    }
}

impl RegionServerSettings {
    /// Bytes of all memstores together at which writers are held back.
    pub fn memstore_high_bytes(&self) -> u64 {
        self.plan().memstores
    }

    /// How the memory is divided.
    pub fn plan(&self) -> MemoryPlan {
        let writers = self.flush_threads_count.max(1) + COMPACTION_THREADS;
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

    /// Whether the settings make sense together.
    pub fn check(&self) -> Result<()> {
        self.check_shares()?;
        self.file_tier.check()
    }

    /// How calls that may wait for the disk are kept apart.
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
        match name {
            "halcyon.memory.bytes" => self.memory_bytes = number(name, value)?,
            "hbase.regionserver.global.memstore.size" => {
                self.memstore_share = share(name, value)?;
                self.adapts_shares = false;
            }
            "hbase.regionserver.global.memstore.size.lower.limit" => {
                self.memstore_low_share = share(name, value)?;
            }
            "hfile.block.cache.size" => {
                self.cache_share = share(name, value)?;
                self.adapts_shares = false;
            }
            "halcyon.memory.adapts" => {
                let parsed = value.trim().parse();
                self.adapts_shares = parsed
                    .map_err(|_| Error::invalid(format!("{name}: {value:?} is neither true nor false")))?;
            }
            "hbase.client.scanner.timeout.period" => self.scanner_lease = millis(name, value)?,
            "hbase.rpc.timeout" => self.rpc_timeout = millis(name, value)?,
            "hbase.server.scanner.max.result.size" => self.result_bytes_max = number(name, value)?,
            "hbase.regionserver.handler.count" => self.disk_threads_max = number(name, value)? as usize,
            "hbase.regionserver.metahandler.count" => self.meta_threads_max = number(name, value)? as usize,
            "hbase.ipc.server.callqueue.read.ratio" => self.read_threads_share = share(name, value)?,
            "hbase.ipc.server.callqueue.scan.ratio" => self.scan_threads_share = share(name, value)?,
            "hbase.server.hashNonce.gracePeriod" => self.nonce_grace = millis(name, value)?,
            "hbase.regionserver.optionalcacheflushinterval" => self.flush_period = millis(name, value)?,
            "hbase.hstore.flusher.count" => self.flush_threads_count = number(name, value)? as usize,
            "wal.sync" => self.wal_sync = sync_mode(name, value)?,
            "hbase.regionserver.logroll.size" => self.wal_roll_bytes = number(name, value)?,
            "hbase.regionserver.logroll.period" => self.wal_roll_period = millis(name, value)?,
            "hbase.regionserver.maxlogs" => self.wal_files_count_max = number(name, value)? as usize,
            "hbase.regionserver.thread.compaction.throttle" => {
                self.compaction_large_bytes = number(name, value)?;
            }
            "hbase.regionserver.compaction.enabled" => self.compactions_enabled = flag(name, value)?,
            "hbase.hstore.blockingWaitTime" => self.blocking_files_wait = millis(name, value)?,
            "hbase.server.compactchecker.interval" => self.compaction_check_period = millis(name, value)?,
            "hbase.hregion.memstore.flush.size" => self.region.flush_size_bytes = number(name, value)?,
            "hbase.hregion.memstore.block.multiplier" => self.region.block_multiplier = number(name, value)?,
            "hbase.server.keyvalue.maxsize" => {
                self.region.keyvalue_max_bytes = number(name, value)? as usize;
            }
            "hbase.hregion.compacting.memstore.type" => {
                let policy = InMemoryCompaction::parse(value.trim());
                self.region.in_memory_compaction = policy.ok_or_else(|| {
                    Error::invalid(format!("{name}: {value:?} is none of NONE, BASIC, EAGER, ADAPTIVE"))
                })?;
            }
            "hbase.memstore.inmemoryflush.threshold.factor" => {
                self.region.in_memory_flush_share = share(name, value)?;
            }
            "hbase.hregion.compacting.pipeline.segments.limit" => {
                self.region.pipeline_segments_max = number(name, value)? as usize;
            }
            "hbase.hregion.compacting.memstore.adaptive.compaction.threshold" => {
                self.region.adaptive_share = share(name, value)?;
            }
            "hbase.io.compress.zstd.codec" => self.region.zstd_codec = value.trim().to_string(),
            "hbase.hregion.memstore.mslab.chunksize" => self.chunk_bytes = number(name, value)? as usize,
            "hbase.hregion.memstore.chunkpool.maxsize" => self.chunk_pool_share = share(name, value)?,
            "hbase.rs.evictblocksonclose" => self.region.evict_blocks_on_close = flag(name, value)?,
            "hbase.rs.prefetchblocksonopen" => self.region.prefetch_blocks_on_open = flag(name, value)?,
            "hbase.ipc.warn.response.time" => self.slow_call = millis(name, value)?,
            _ => {
                return Ok(self.file_tier.set(name, value)?
                    || self.throughput.set(name, value)?
                    || self.region.compaction.set(name, value)?
                    || self.split.set(name, value)?);
            }
        }
        Ok(true)
    }
}

impl fmt::Display for RegionServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sync = if self.wal_sync == SyncMode::Fsync { "fsync" } else { "written" };
        writeln!(f, "halcyon.memory.bytes = {}", self.memory_bytes)?;
        writeln!(f, "hbase.regionserver.global.memstore.size = {}", self.memstore_share)?;
        writeln!(f, "hbase.regionserver.global.memstore.size.lower.limit = {}", self.memstore_low_share)?;
        writeln!(f, "hfile.block.cache.size = {}", self.cache_share)?;
        writeln!(f, "halcyon.memory.adapts = {}", self.adapts_shares)?;
        writeln!(f, "hbase.client.scanner.timeout.period = {}", self.scanner_lease.as_millis())?;
        writeln!(f, "hbase.rpc.timeout = {}", self.rpc_timeout.as_millis())?;
        writeln!(f, "hbase.server.scanner.max.result.size = {}", self.result_bytes_max)?;
        writeln!(f, "hbase.regionserver.handler.count = {}", self.disk_threads_max)?;
        writeln!(f, "hbase.regionserver.metahandler.count = {}", self.meta_threads_max)?;
        writeln!(f, "hbase.ipc.server.callqueue.read.ratio = {}", self.read_threads_share)?;
        writeln!(f, "hbase.ipc.server.callqueue.scan.ratio = {}", self.scan_threads_share)?;
        writeln!(f, "hbase.server.hashNonce.gracePeriod = {}", self.nonce_grace.as_millis())?;
        writeln!(f, "hbase.regionserver.optionalcacheflushinterval = {}", self.flush_period.as_millis())?;
        writeln!(f, "hbase.hstore.flusher.count = {}", self.flush_threads_count)?;
        writeln!(f, "wal.sync = {sync}")?;
        writeln!(f, "hbase.regionserver.logroll.size = {}", self.wal_roll_bytes)?;
        writeln!(f, "hbase.regionserver.logroll.period = {}", self.wal_roll_period.as_millis())?;
        writeln!(f, "hbase.regionserver.maxlogs = {}", self.wal_files_count_max)?;
        writeln!(f, "hbase.regionserver.thread.compaction.throttle = {}", self.compaction_large_bytes)?;
        writeln!(f, "hbase.regionserver.compaction.enabled = {}", self.compactions_enabled)?;
        writeln!(f, "hbase.server.compactchecker.interval = {}", self.compaction_check_period.as_millis())?;
        writeln!(f, "hbase.hregion.memstore.flush.size = {}", self.region.flush_size_bytes)?;
        writeln!(f, "hbase.hregion.memstore.block.multiplier = {}", self.region.block_multiplier)?;
        writeln!(f, "hbase.server.keyvalue.maxsize = {}", self.region.keyvalue_max_bytes)?;
        let policy = self.region.in_memory_compaction;
        writeln!(f, "hbase.hregion.compacting.memstore.type = {policy}")?;
        let share = self.region.in_memory_flush_share;
        writeln!(f, "hbase.memstore.inmemoryflush.threshold.factor = {share}")?;
        let limit = self.region.pipeline_segments_max;
        writeln!(f, "hbase.hregion.compacting.pipeline.segments.limit = {limit}")?;
        let share = self.region.adaptive_share;
        writeln!(f, "hbase.hregion.compacting.memstore.adaptive.compaction.threshold = {share}")?;
        writeln!(f, "hbase.io.compress.zstd.codec = {}", self.region.zstd_codec)?;
        writeln!(f, "hbase.hregion.memstore.mslab.chunksize = {}", self.chunk_bytes)?;
        writeln!(f, "hbase.hregion.memstore.chunkpool.maxsize = {}", self.chunk_pool_share)?;
        writeln!(f, "hbase.hstore.blockingWaitTime = {}", self.blocking_files_wait.as_millis())?;
        writeln!(f, "hbase.rs.evictblocksonclose = {}", self.region.evict_blocks_on_close)?;
        writeln!(f, "hbase.rs.prefetchblocksonopen = {}", self.region.prefetch_blocks_on_open)?;
        writeln!(f, "hbase.ipc.warn.response.time = {}", self.slow_call.as_millis())?;
        write!(f, "{}{}{}{}", self.file_tier, self.throughput, self.region.compaction, self.split)
    }
}

fn number(name: &str, value: &str) -> Result<u64> {
    value.trim().parse().map_err(|_| Error::invalid(format!("{name}: {value:?} is not a whole number")))
}

fn flag(name: &str, value: &str) -> Result<bool> {
    value.trim().parse().map_err(|_| Error::invalid(format!("{name}: {value:?} is neither true nor false")))
}

fn millis(name: &str, value: &str) -> Result<Duration> {
    number(name, value).map(Duration::from_millis)
}

fn share(name: &str, value: &str) -> Result<f64> {
    let share = value.trim().parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| Error::invalid(format!("{name}: {value:?} is not between 0 and 1")))
}

fn sync_mode(name: &str, value: &str) -> Result<SyncMode> {
    match value.trim() {
        "fsync" => Ok(SyncMode::Fsync),
        "written" => Ok(SyncMode::Written),
        _ => Err(Error::invalid(format!("{name}: {value:?} is neither fsync nor written"))),
    }
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
        assert!(read.set("hfile.block.cache.size", "2").is_err());
    }
}
