//! What the normalizer is told (HBase: properties `hbase.normalizer.*`).

use std::time::Duration;

/// Plain data. A table may have attributes with the names of most of them, which hold for it.
#[derive(Clone, Debug, PartialEq)]
pub struct NormalizerSettings {
    /// How often all tables are looked at (`hbase.normalizer.period`). 5 minutes. Zero: only when a client asks.
    pub period: Duration,
    /// Whether tables are normalized that do not say so (`hbase.table.normalization.enabled`). False.
    pub tables_by_default: bool,
    /// `hbase.normalizer.split.enabled`. True.
    pub split: bool,
    /// `hbase.normalizer.merge.enabled`. True.
    pub merge: bool,
    /// A table with fewer regions gets no merges (`hbase.normalizer.merge.min.region.count`, before 2.5
    /// `hbase.normalizer.min.region.count`). 3.
    pub merge_region_count_min: u64,
    /// A younger region is not merged (`hbase.normalizer.merge.min_region_age.days`). 3.
    pub merge_region_age_min_days: u64,
    /// A smaller region is not merged (`hbase.normalizer.merge.min_region_size.mb`). 0.
    pub merge_region_size_min_mb: u64,
    /// Regions of one merge (`hbase.normalizer.merge.merge_request_max_number_of_regions`). 100.
    pub merge_regions_max: u64,
    /// Sizes of regions of all plans for one table together (`hbase.normalizer.plans_size_limit.mb`). No limit.
    pub plans_size_max_mb: u64,
    /// Sizes of regions that are split and merged in a second (`hbase.normalizer.throughput.max_bytes_per_sec`). A terabyte,
    /// which is no limit.
    pub bytes_per_second_max: u64,
}

impl Default for NormalizerSettings {
    fn default() -> NormalizerSettings {
        NormalizerSettings {
            period: Duration::from_secs(5 * 60),
            tables_by_default: false,
            split: true,
            merge: true,
            merge_region_count_min: 3,
            merge_region_age_min_days: 3,
            merge_region_size_min_mb: 0,
            merge_regions_max: 100,
            plans_size_max_mb: i64::MAX as u64,
            bytes_per_second_max: 1_000_000_000_000,
        }
    }
}
