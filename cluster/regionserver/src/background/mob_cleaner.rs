//! Archives mob files that no store file refers to any more (HBase: `RSMobFileCleanerChore`).
//!
//! A thread of its own, as a look lists a directory and opens files. Which files it may take is the region's to know.

use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::ErrorKind;
use halcyon_env::{Clock, Condvar, Mutex};

use super::chores::Due;
use super::workers::Worker;
use crate::regions::region_table::RegionTable;

/// See the head of the file.
pub(crate) struct MobCleaner {
    clock: Arc<dyn Clock>,
    regions: Arc<RegionTable>,
    /// Zero: never.
    period: Duration,
    /// Younger files stay.
    age_min: Duration,
    due: Mutex<Due>,
    wake: Condvar,
}

impl MobCleaner {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        regions: Arc<RegionTable>,
        period: Duration,
        age_min: Duration,
    ) -> MobCleaner {
        MobCleaner { clock, regions, period, age_min, due: Mutex::default(), wake: Condvar::new() }
    }

    /// One run over the regions that are open here. Returns the number of files archived.
    pub(crate) fn run(&self) -> usize {
        let age_min_ms = i64::try_from(self.age_min.as_millis()).unwrap_or(i64::MAX);
        let mut count = 0;
        for online in self.regions.online() {
            let region = &online.region;
            match region.archive_unused_mob_files(age_min_ms) {
                Ok(archived) => count += archived,
                Err(error) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Stopping) => {}
                Err(error) => {
                    let name = region.info().encoded_name();
                    tracing::warn!(region = name, %error, "mob files could not be cleaned");
                }
            }
        }
        if count > 0 {
            tracing::info!(count, "mob files without reference are archived");
        }
        count
    }
}

impl Worker for MobCleaner {
    fn run_once(&self, timeout: Duration) {
        let mut due = self.due.lock();
        if !self.period.is_zero() && due.is_due(self.clock.monotonic_ns(), self.period) {
            self.run();
        }
        self.wake.wait_for(&mut due, timeout);
    }

    fn wake(&self) {
        self.wake.notify_all();
    }
}
