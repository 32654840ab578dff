//! The two threads of the WALs: one writes and syncs, one rolls.
//!
//! A server whose WAL failed gives up, so that the next start recovers its WALs.

use std::sync::Arc;
use std::time::Duration;

use halcyon_env::vitals;

use super::flusher::Flusher;
use crate::lifecycle::Lifecycle;
use crate::memory::pressure::Pressure;
use crate::wal::logs::Logs;

/// How often the size and age of WAL files are checked.
const ROLL_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Writes what calls appended.
pub(crate) struct WalWriter {
    pub(crate) logs: Arc<Logs>,
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) lifecycle: Arc<Lifecycle>,
}

impl WalWriter {
    /// Also while the server stops: calls that came before wait for their writes, and so does the flush of their region.
    pub(crate) fn is_needed(&self) -> bool {
        !self.logs.has_ended()
    }

    pub(crate) fn run_once(&self) {
        if self.lifecycle.has_aborted() {
            // Else calls that are under way would wait for their writes for ever, and with them the closes of their regions.
            return self.logs.abandon_once();
        }
        self.logs.run_once();
        self.pressure.update_log(self.logs.is_behind());
        if self.lifecycle.is_serving()
            && let Some(error) = self.logs.failure()
            && self.lifecycle.is_serving()
        {
            self.lifecycle.abort(&format!("its log failed: {error}"));
        }
    }
}

/// Starts new WAL files, makes the next ones ahead of time, and has regions flushed whose edits keep old ones (HBase: `LogRoller`).
pub(crate) struct WalRoller {
    pub(crate) logs: Arc<Logs>,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) lifecycle: Arc<Lifecycle>,
}

impl WalRoller {
    pub(crate) fn run_once(&self) {
        self.lifecycle.pause(ROLL_CHECK_PERIOD);
        if !self.lifecycle.is_serving() {
            return;
        }
        let _work = vitals::work(|| "new files for the WAL".to_string(), Some(self.logs.dir()));
        let rolled = self.logs.roll_if_due();
        if let Ok(to_flush) = &rolled {
            self.flusher.flush_for_wal(to_flush);
        }
        let spared = self.logs.keep_spares();
        if (rolled.is_err() || spared.is_err()) && self.logs.are_taken() {
            // Others have its regions, or will: what it answers may be old.
            let dir = self.logs.dir().display();
            return self.lifecycle.abort(&format!("{dir} is gone: a master has declared this server dead"));
        }
        if let Err(error) = rolled {
            tracing::error!(%error, "the WAL could not be rolled");
        }
        if let Err(error) = spared {
            tracing::warn!(%error, "the next file of the WAL could not be made; it is tried again");
        }
    }
}
