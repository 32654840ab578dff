use std::str::FromStr;
use std::time::Duration;

use halcyon_hfile::CacheKinds;
use halcyon_schema::{FamilyDescriptor, FlushPolicy, InMemoryCompaction, TableDescriptor};

use crate::CompactionSettings;
use crate::mob::MobSettings;
use crate::storage_policy::{self, NO_STORAGE_POLICY};

/// Settings of a region, by HBase's meanings. A table's own attributes win where it has them.
#[derive(Clone, Debug)]
pub struct RegionSettings {
    /// Coprocessors will want to see what is written: until [`crate::Region::set_store_hooks`] nothing is left out of files.
    pub is_hosted: bool,
    /// Memstore bytes of a region at which a flush is wanted
    /// (`hbase.hregion.memstore.flush.size`, table `MEMSTORE_FLUSHSIZE`).
    pub flush_size_bytes: u64,
    /// Which families a flush takes (`hbase.regionserver.flush.policy`, table `FLUSH_POLICY`).
    pub flush_policy: FlushPolicy,
    /// Bytes in memory below which no family counts as large
    /// (`hbase.hregion.percolumnfamilyflush.size.lower.bound.min`).
    pub large_family_bytes_min: u64,
    /// Writes are refused (`RegionTooBusyException`) at this many flush sizes
    /// (`hbase.hregion.memstore.block.multiplier`).
    pub block_multiplier: u64,
    /// Largest cell accepted (`hbase.server.keyvalue.maxsize`); 0: no limit.
    pub keyvalue_max_bytes: usize,
    /// Largest row, or part of one, that a Get or a scan may return at once (`hbase.table.max.rowsize`).
    pub row_bytes_max: usize,
    /// How files are compacted; tables and families may say otherwise.
    pub compaction: CompactionSettings,
    /// What families do that do not say (`hbase.hregion.compacting.memstore.type`).
    pub in_memory_compaction: InMemoryCompaction,
    /// Part of the flush size, divided by the families, at which an active segment goes to the pipeline
    /// (`hbase.memstore.inmemoryflush.threshold.factor`).
    pub in_memory_flush_share: f64,
    /// Segments of a pipeline at most before they are merged
    /// (`hbase.hregion.compacting.pipeline.segments.limit`).
    pub pipeline_segments_max: usize,
    /// With `ADAPTIVE`, versions are dropped when they are more than this part of the cells
    /// (`hbase.hregion.compacting.memstore.adaptive.compaction.threshold`).
    pub adaptive_share: f64,
    /// Whether closing a region drops its blocks from the cache, whatever its families say
    /// (`hbase.rs.evictblocksonclose`).
    pub evict_blocks_on_close: bool,
    /// Whether files are read into the cache when they are opened, whatever their families say
    /// (`hbase.rs.prefetchblocksonopen`).
    pub prefetch_blocks_on_open: bool,
    /// Blocks that are in the cache as soon as a flush has written them; index blocks and bloom filters also after a
    /// compaction (`hbase.rs.cacheblocksonwrite`, `hfile.block.index.cacheonwrite`, `hfile.block.bloom.cacheonwrite`).
    pub cache_on_write: CacheKinds,
    /// Whether families may say that old data stay out of the block cache (`hbase.regionserver.datatiering.enable`).
    pub data_tiering: bool,
    /// HBase's class for ZSTD, which decides between two forms of a block (`hbase.io.compress.zstd.codec`). One of
    /// HBase's own (`org.apache.hadoop.hbase.io.compress...`) puts frames into records; Hadoop's, which is what an
    /// empty name stands for, does not. Neither reads the other's, so who shares a directory with HBase says the same.
    pub zstd_codec: String,
    /// On which kind of disks HDFS keeps the files of a region (`hbase.hregion.block.storage.policy`), and those of a family
    /// that does not say (`hbase.hstore.block.storage.policy`, family `STORAGE_POLICY`). `NONE`: as HDFS itself decides.
    pub region_storage_policy: String,
    pub store_storage_policy: String,
    /// Replay reports nonces of log entries that are not older than this. HBase: one and a half times
    /// `hbase.server.hashNonce.gracePeriod`, because the clocks of two servers may differ.
    pub nonce_age_max: Duration,
    /// Whether a replay passes over what is damaged in files of edits (`hbase.hregion.edits.replay.skip.errors`).
    pub replay_skips_errors: bool,
    /// Bytes in memory at which a replay flushes in between. No setting of a site: tests use small ones.
    pub replay_flush_bytes: u64,
    /// What compactions do with mob files; tables and families may say otherwise.
    pub mob: MobSettings,
    /// Most rows that one log entry of a batch carries.
    pub mini_batch_rows_max: usize,
    /// Most bytes of cells that one log entry of a batch carries, unless one row alone has more.
    pub mini_batch_bytes_max: usize,
    /// Most bytes of cells that Increments, Appends and Deletes of rows of one write may make, which stands in memory, and in the log, as a whole.
    /// As many as a request may bring (`hbase.ipc.max.request.size` of HBase). No setting of a site.
    pub new_values_bytes_max: usize,
    /// When Increments and Appends of an atomic batch have so many bytes of results, no other one of it may have any
    /// (`hbase.server.scanner.max.result.size`, which limits other answers in the same way).
    pub results_bytes_max: usize,
}

impl Default for RegionSettings {
    fn default() -> RegionSettings {
        RegionSettings {
            is_hosted: false,
            flush_size_bytes: 128 << 20,
            flush_policy: FlushPolicy::AllStores,
            large_family_bytes_min: 16 << 20,
            block_multiplier: 4,
            keyvalue_max_bytes: 10 << 20,
            row_bytes_max: 1 << 30,
            compaction: CompactionSettings::default(),
            in_memory_compaction: InMemoryCompaction::None,
            in_memory_flush_share: 0.014,
            pipeline_segments_max: 2,
            adaptive_share: 0.5,
            evict_blocks_on_close: false,
            prefetch_blocks_on_open: false,
            cache_on_write: CacheKinds::NONE,
            data_tiering: false,
            zstd_codec: String::new(),
            region_storage_policy: NO_STORAGE_POLICY.to_string(),
            store_storage_policy: NO_STORAGE_POLICY.to_string(),
            nonce_age_max: Duration::from_secs(45 * 60),
            replay_skips_errors: false,
            replay_flush_bytes: 64 << 20,
            mob: MobSettings::default(),
            mini_batch_rows_max: 256,
            mini_batch_bytes_max: 256 << 10,
            new_values_bytes_max: 256 << 20,
            results_bytes_max: 100 << 20,
        }
    }
}

pub(crate) const EVICT_ON_CLOSE: &str = "hbase.rs.evictblocksonclose";
pub(crate) const PREFETCH_ON_OPEN: &str = "hbase.rs.prefetchblocksonopen";

impl RegionSettings {
    /// Whether blocks of the family leave the cache when the region closes: its attribute says so, or a setting of the
    /// family, the table or the server (HBase: `CacheConfig.evictOnClose`).
    pub(crate) fn evicts_on_close(&self, family: &FamilyDescriptor) -> bool {
        let of_family = family.setting(EVICT_ON_CLOSE).and_then(|text| text.trim().parse().ok());
        family.evict_blocks_on_close() || of_family.unwrap_or(self.evict_blocks_on_close)
    }

    /// Whether files of the family are read into the cache when they are opened; as `evicts_on_close`.
    pub(crate) fn prefetches_on_open(&self, family: &FamilyDescriptor) -> bool {
        let of_family = family.setting(PREFETCH_ON_OPEN).and_then(|text| text.trim().parse().ok());
        family.prefetch_blocks_on_open() || of_family.unwrap_or(self.prefetch_blocks_on_open)
    }

    /// These settings with what the table sets for itself, by HBase's property names as table attributes or
    /// configuration. A value that cannot be read is passed over: the table was checked when it was made. What it
    /// says of compactions is asked for each of its families.
    pub fn for_table(mut self, table: &TableDescriptor) -> RegionSettings {
        fn take<T: FromStr>(table: &TableDescriptor, name: &str, field: &mut T) {
            if let Some(value) = table.setting(name).and_then(|text| text.trim().parse().ok()) {
                *field = value;
            }
        }
        take(table, "hbase.server.keyvalue.maxsize", &mut self.keyvalue_max_bytes);
        take(table, "hbase.table.max.rowsize", &mut self.row_bytes_max);
        take(table, "hbase.hregion.memstore.block.multiplier", &mut self.block_multiplier);
        take(table, EVICT_ON_CLOSE, &mut self.evict_blocks_on_close);
        take(table, PREFETCH_ON_OPEN, &mut self.prefetch_blocks_on_open);
        take(table, storage_policy::OF_REGION, &mut self.region_storage_policy);
        take(table, storage_policy::OF_STORE, &mut self.store_storage_policy);
        if let Some(bytes) = table.memstore_flush_size() {
            self.flush_size_bytes = bytes;
        }
        self
    }
}
