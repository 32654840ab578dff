//! Brings a table into the state of one that has been in use: updated, flushed and compacted several times.
//!
//! A table that was just filled lies in memstores, or in one file for each region. `ycsb run --flush-every SECONDS` flushes the
//! table while the workload updates it, so that files pile up and the server compacts them. It counts what came of it: if
//! there are about as many files as there were flushes, nothing was compacted, and the run is partial.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use halcyon_client::{ClientError, Cluster, CompactionState, TableName};
use serde_json::{Value, json};

/// After the last flush compactions may take so long.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(120);
/// Servers report their files every few seconds.
const LOOK_PERIOD: Duration = Duration::from_secs(4);
/// Fewer flushes make too few files to compact several times.
const FLUSHES_MIN: u32 = 4;

/// Flushes while a workload runs.
pub(super) struct Aging<'a> {
    cluster: &'a Cluster,
    table: &'a TableName,
    flushes: AtomicU32,
}

/// What the table looks like afterwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Aged {
    flushes: u32,
    regions: u32,
    store_files: u32,
}

impl Aged {
    /// Why this is not a table in use, or nothing.
    pub fn refused(self) -> Option<String> {
        let Aged { flushes, regions, store_files } = self;
        if flushes < FLUSHES_MIN {
            return Some(format!("not aged: {flushes} flushes, {FLUSHES_MIN} are the least"));
        }
        // each flush makes a file in each region; compactions leave at most half of them
        (store_files * 2 > flushes * regions).then(|| {
            format!("not aged: {store_files} files after {flushes} flushes of {regions} regions, so hardly a compaction")
        })
    }

    pub fn to_json(self) -> Value {
        json!({ "flushes": self.flushes, "regions": self.regions, "store_files": self.store_files })
    }
}

impl<'a> Aging<'a> {
    pub fn new(cluster: &'a Cluster, table: &'a TableName) -> Aging<'a> {
        Aging { cluster, table, flushes: AtomicU32::new(0) }
    }

    /// Flushes the table once each period, and ends only with an error.
    pub async fn flush_every(&self, period: Duration) -> ClientError {
        loop {
            tokio::time::sleep(period).await;
            let flushed = async { self.cluster.admin().await?.flush(self.table).await };
            match flushed.await {
                Ok(()) => self.flushes.fetch_add(1, Ordering::Relaxed),
                Err(error) => return error,
            };
        }
    }

    /// Waits for compactions to end, and counts files.
    pub async fn settle(&self) -> Result<Aged, ClientError> {
        let flushes = self.flushes.load(Ordering::Relaxed);
        let mut waited = Duration::ZERO;
        loop {
            tokio::time::sleep(LOOK_PERIOD).await;
            waited += LOOK_PERIOD;
            let admin = self.cluster.admin().await?;
            let is_compacting = admin.compaction_state(self.table).await? != CompactionState::None;
            let prefix = [&self.table.full_name()[..], b","].concat();
            let metrics = admin.cluster_metrics().await?;
            let regions = metrics.servers.iter().flat_map(|server| &server.regions);
            let regions: Vec<u32> = regions
                .filter(|region| region.region_name.starts_with(&prefix))
                .map(|region| region.store_files_count)
                .collect();
            let aged = Aged { flushes, regions: regions.len() as u32, store_files: regions.iter().sum() };
            if !is_compacting && aged.refused().is_none() || waited >= SETTLE_TIME_MAX {
                return Ok(aged);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_without_compactions_is_not_aged() {
        let refused = |flushes, regions, store_files| Aged { flushes, regions, store_files }.refused();
        assert_eq!(refused(6, 10, 30), None);
        assert!(refused(6, 10, 31).unwrap().contains("31 files after 6 flushes of 10 regions"));
        assert!(refused(6, 10, 70).is_some(), "one file for each flush and the first one");
        assert!(refused(3, 10, 10).unwrap().contains("3 flushes"));
    }
}
