//! When files that lie in the directory of a store and are not the store's go.

use std::time::Duration;

/// HBase's names and defaults (`BrokenStoreFileCleaner`).
#[derive(Clone, Debug)]
pub struct StrayCleanerSettings {
    /// `hbase.region.broken.storefilecleaner.enabled`. False, as in HBase.
    pub enabled: bool,
    /// How long a file stays after it was seen first (`hbase.region.broken.storefilecleaner.ttl`). 12 hours.
    pub ttl: Duration,
    /// Time to the first run (`hbase.region.broken.storefilecleaner.delay`). 2 hours.
    pub delay: Duration,
    /// Part of it by which servers differ (`hbase.region.broken.storefilecleaner.delay.jitter`). 0.25.
    pub delay_jitter: f64,
    /// Time between two runs (`hbase.region.broken.storefilecleaner.period`). 6 hours.
    pub period: Duration,
}

impl Default for StrayCleanerSettings {
    fn default() -> StrayCleanerSettings {
        let hours = |count: u64| Duration::from_secs(3600 * count);
        StrayCleanerSettings {
            enabled: false,
            ttl: hours(12),
            delay: hours(2),
            delay_jitter: 0.25,
            period: hours(6),
        }
    }
}
