//! Archives files that lie in the directory of a store and are not the store's (HBase: `BrokenStoreFileCleaner`). Only stores
//! that know their files by a list alone have such: what a crash left half written, and what a compaction has replaced.
//!
//! HBase goes by the time at which a file was changed last, and removes it. Here its time begins when a run of this server
//! has seen it first, and it goes to the archive: a snapshot may name it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::ErrorKind;
use halcyon_env::{Clock, Condvar, Mutex};

use super::workers::Worker;
use crate::regions::region_table::RegionTable;
use crate::settings::strays::StrayCleanerSettings;

/// Files that are remembered. More have to wait until these are gone.
const SEEN_MAX: usize = 100_000;

/// See the head of the file.
pub(crate) struct StrayCleaner {
    clock: Arc<dyn Clock>,
    regions: Arc<RegionTable>,
    settings: StrayCleanerSettings,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// When the next run is due; `None`: the first one has no time yet.
    next_ns: Option<u64>,
    /// When each file was seen first.
    seen: HashMap<PathBuf, u64>,
}

impl StrayCleaner {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        regions: Arc<RegionTable>,
        settings: StrayCleanerSettings,
    ) -> StrayCleaner {
        StrayCleaner { clock, regions, settings, state: Mutex::default(), wake: Condvar::new() }
    }

    fn run(&self, seen: &mut HashMap<PathBuf, u64>) {
        let (now_ns, mut count) = (self.clock.monotonic_ns(), 0);
        let mut still: HashMap<PathBuf, u64> = HashMap::new();
        let mut is_due = |path: &Path| {
            let since = seen.get(path).copied().unwrap_or(now_ns);
            if still.len() < SEEN_MAX {
                still.insert(path.to_path_buf(), since);
            }
            Duration::from_nanos(now_ns.saturating_sub(since)) >= self.settings.ttl
        };
        for online in self.regions.online() {
            let region = &online.region;
            match region.archive_strays(&mut is_due) {
                Ok(archived) => count += archived,
                Err(error) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Stopping) => {}
                Err(error) => {
                    let name = region.info().encoded_name();
                    tracing::warn!(region = name, %error, "a store's directory could not be cleaned");
                }
            }
        }
        *seen = still;
        if count > 0 {
            tracing::info!(count, "files that are no store's were archived");
        }
    }

    /// The first run comes later in one server than in another.
    fn first_delay(&self) -> Duration {
        let random = f64::from(u32::from_be_bytes(halcyon_env::random_bytes::<4>())) / f64::from(u32::MAX);
        let factor = 1.0 + (random - 0.5) * self.settings.delay_jitter;
        self.settings.delay.mul_f64(factor.max(0.0))
    }
}

impl Worker for StrayCleaner {
    fn run_once(&self, timeout: Duration) {
        let mut state = self.state.lock();
        if self.settings.enabled {
            let now_ns = self.clock.monotonic_ns();
            let after =
                |delay: Duration| now_ns.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
            let next_ns = *state.next_ns.get_or_insert_with(|| after(self.first_delay()));
            if now_ns >= next_ns {
                self.run(&mut state.seen);
                state.next_ns = Some(after(self.settings.period.max(Duration::from_millis(1))));
            }
        }
        self.wake.wait_for(&mut state, timeout);
    }

    fn wake(&self) {
        self.wake.notify_all();
    }
}
