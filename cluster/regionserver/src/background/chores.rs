//! What is due from time to time (HBase: `ScheduledChore`s). One thread does all of it, so no chore waits for the disk.

use std::sync::Arc;
use std::time::Duration;

use halcyon_env::Clock;

use super::cache_upkeep::{self, CacheUpkeep};
use super::compactions::Compactions;
use super::flusher::Flusher;
use super::split_checker::SplitChecker;
use crate::calls::nonces::Nonces;
use crate::calls::pool::DiskPool;
use crate::calls::scanners::Scanners;
use crate::lifecycle::Lifecycle;
use crate::memory::accountant::MemoryAccountant;
use crate::memory::tuner;
use crate::metrics::counters::{Counters, RequestRate};
use crate::regions::region_table::RegionTable;
use crate::settings::online::OnlineSettings;

/// How often memory is measured.
const MEASURE_PERIOD: Duration = Duration::from_millis(100);
/// How often leases are checked.
const LEASE_CHECK_PERIOD: Duration = Duration::from_secs(1);
/// How often old edits are looked for.
const OLD_EDITS_CHECK_PERIOD: Duration = Duration::from_secs(10);

/// What the chores work on.
pub(crate) struct ChoreParts {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) compactions: Arc<Compactions>,
    pub(crate) splits: Arc<SplitChecker>,
    pub(crate) memory: Arc<MemoryAccountant>,
    pub(crate) cache: Arc<CacheUpkeep>,
    pub(crate) regions: Arc<RegionTable>,
    pub(crate) pool: Arc<DiskPool>,
    pub(crate) scanners: Arc<Scanners>,
    pub(crate) nonces: Arc<Nonces>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) request_rate: Arc<RequestRate>,
}

impl ChoreParts {
    fn expire_nonces(&self) {
        self.nonces.expire();
        let forgotten = self.nonces.stats().forgotten_early_count;
        self.counters.nonces_forgotten.add(forgotten - self.counters.nonces_forgotten.get());
    }
}

/// See the head of the file.
pub(crate) struct Chores {
    parts: ChoreParts,
    settings: Arc<OnlineSettings>,
    tuning: Due,
    leases: Due,
    old_edits: Due,
    compactions: Due,
    throughput: Due,
    sweep: Due,
}

impl Chores {
    pub(crate) fn new(parts: ChoreParts, settings: Arc<OnlineSettings>) -> Chores {
        Chores {
            parts,
            settings,
            tuning: Due::default(),
            leases: Due::default(),
            old_edits: Due::default(),
            compactions: Due::default(),
            throughput: Due::default(),
            sweep: Due::default(),
        }
    }

    /// Waits a while, then does what is due.
    pub(crate) fn run_once(&mut self) {
        let parts = &self.parts;
        parts.lifecycle.pause(MEASURE_PERIOD);
        parts.flusher.relieve_memory();
        parts.pool.look_again();
        parts.memory.fit_to_resident();
        let now_ns = parts.clock.monotonic_ns();
        parts.request_rate.update(parts.counters.requests(), now_ns, parts.clock.now_ms());
        if self.tuning.is_due(now_ns, tuner::PERIOD) {
            parts.memory.tune();
        }
        if self.leases.is_due(now_ns, LEASE_CHECK_PERIOD) {
            parts.counters.leases_expired.add(parts.scanners.expire() as u64);
            parts.expire_nonces();
            parts.memory.fit_answers();
            parts.memory.fit_cache();
        }
        if self.old_edits.is_due(now_ns, OLD_EDITS_CHECK_PERIOD) {
            parts.flusher.flush_old_edits();
        }
        if self.compactions.is_due(now_ns, self.settings.in_force().compaction_check_period) {
            parts.compactions.check_all();
            parts.splits.check_all();
        }
        if self.sweep.is_due(now_ns, cache_upkeep::SWEEP_PERIOD) {
            parts.cache.sweep();
            parts.cache.evict_cold(&parts.regions);
        }
        if self.throughput.is_due(now_ns, parts.compactions.tune_period()) {
            parts.compactions.tune();
        }
        parts.flusher.release_held();
    }
}

/// When a chore was done last.
#[derive(Default)]
pub(super) struct Due {
    done_ns: Option<u64>,
}

impl Due {
    /// Whether the period is over since the last time; the first call begins it.
    pub(super) fn is_due(&mut self, now_ns: u64, period: Duration) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chore_is_due_once_a_period() {
        let (mut due, period) = (Due::default(), Duration::from_nanos(10));
        assert!(!due.is_due(100, period), "the first call begins the period");
        assert!(!due.is_due(109, period));
        assert!(due.is_due(110, period));
        assert!(!due.is_due(119, period));
        assert!(due.is_due(500, period), "missed periods are not made up for");
        assert!(!due.is_due(501, period));
    }
}
