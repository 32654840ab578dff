use std::str::FromStr;

use halcyon_schema::{InMemoryCompaction, TableDescriptor};

/// Settings of a region, by HBase's meanings. A table's own attributes win where it has them.
#[derive(Clone, Debug)]
pub struct RegionSettings {
    /// Memstore bytes of a region at which a flush is wanted
    /// (`hbase.hregion.memstore.flush.size`, table `MEMSTORE_FLUSHSIZE`).
    pub flush_size_bytes: u64,
    /// Writes are refused (`RegionTooBusyException`) at this many flush sizes
    /// (`hbase.hregion.memstore.block.multiplier`).
    pub block_multiplier: u64,
    /// Largest cell accepted (`hbase.server.keyvalue.maxsize`); 0: no limit.
    pub keyvalue_max_bytes: usize,
    /// Most files a minor compaction takes (`hbase.hstore.compaction.max`).
    pub compaction_files_max: usize,
    /// Fewest files a minor compaction takes (`hbase.hstore.compaction.min`).
    pub compaction_files_min: usize,
    /// A file larger than this many times the sum of the others stays out
    /// (`hbase.hstore.compaction.ratio`).
    pub compaction_ratio: f64,
    /// Files below this size are always taken (`hbase.hstore.compaction.min.size`).
    pub compaction_min_size_bytes: u64,
    /// Files above this size are left to major compactions (`hbase.hstore.compaction.max.size`).
    pub compaction_max_size_bytes: u64,
    /// A store with this many files holds writes back until it is compacted
    /// (`hbase.hstore.blockingStoreFiles`).
    pub blocking_files_count: usize,
    /// Milliseconds between major compactions, 0: only on demand (`hbase.hregion.majorcompaction`).
    pub major_period_ms: i64,
    /// Share of `major_period_ms` by which it varies from file to file
    /// (`hbase.hregion.majorcompaction.jitter`).
    pub major_jitter: f64,
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
    /// Most rows that one log entry of a batch carries.
    pub mini_batch_rows_max: usize,
    /// Most bytes of cells that one log entry of a batch carries, unless one row alone has more.
    pub mini_batch_bytes_max: usize,
}

impl Default for RegionSettings {
    fn default() -> RegionSettings {
        RegionSettings {
            flush_size_bytes: 128 << 20,
            block_multiplier: 4,
            keyvalue_max_bytes: 10 << 20,
            compaction_files_max: 10,
            compaction_files_min: 3,
            compaction_ratio: 1.2,
            compaction_min_size_bytes: 128 << 20,
            compaction_max_size_bytes: u64::MAX,
            blocking_files_count: 16,
            major_period_ms: 7 * 24 * 3_600_000,
            major_jitter: 0.5,
            in_memory_compaction: InMemoryCompaction::None,
            in_memory_flush_share: 0.014,
            pipeline_segments_max: 2,
            adaptive_share: 0.5,
            mini_batch_rows_max: 256,
            mini_batch_bytes_max: 256 << 10,
        }
    }
}

impl RegionSettings {
    /// These settings with what the table sets for itself, by HBase's property names as table attributes or
    /// configuration. A value that cannot be read is passed over: the table was checked when it was made.
    pub fn for_table(mut self, table: &TableDescriptor) -> RegionSettings {
        fn take<T: FromStr>(table: &TableDescriptor, name: &str, field: &mut T) {
            if let Some(value) = table.setting(name).and_then(|text| text.trim().parse().ok()) {
                *field = value;
            }
        }
        take(table, "hbase.server.keyvalue.maxsize", &mut self.keyvalue_max_bytes);
        take(table, "hbase.hregion.memstore.block.multiplier", &mut self.block_multiplier);
        take(table, "hbase.hstore.compaction.max", &mut self.compaction_files_max);
        take(table, "hbase.hstore.compaction.min", &mut self.compaction_files_min);
        take(table, "hbase.hstore.compaction.ratio", &mut self.compaction_ratio);
        take(table, "hbase.hstore.compaction.min.size", &mut self.compaction_min_size_bytes);
        take(table, "hbase.hstore.compaction.max.size", &mut self.compaction_max_size_bytes);
        take(table, "hbase.hstore.blockingStoreFiles", &mut self.blocking_files_count);
        take(table, "hbase.hregion.majorcompaction", &mut self.major_period_ms);
        take(table, "hbase.hregion.majorcompaction.jitter", &mut self.major_jitter);
        if let Some(bytes) = table.memstore_flush_size() {
            self.flush_size_bytes = bytes;
        }
        self
    }
}
