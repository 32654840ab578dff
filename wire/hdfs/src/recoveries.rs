//! When the NameNode was last asked to recover a file that its writer had left open.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Between two orders to recover a file. The NameNode ignores a second order for 30 heartbeats of DataNodes (`BlockManager`,
/// `addBlockRecoveryAttempt`). After that it begins again, and what the DataNodes of the first recovery then report is refused. So a
/// recovery that waits for a DataNode must have its time. HBase waits as long (`hbase.lease.recovery.dfs.timeout`).
pub(crate) const AGAIN_AFTER: Duration = Duration::from_secs(64);

/// Files that are being recovered. What is older than [`AGAIN_AFTER`] is forgotten, so files that are never asked for again do not
/// stay here. Threads may share it.
#[derive(Default)]
pub(crate) struct Recoveries {
    ordered: Mutex<HashMap<String, Instant>>,
}

impl Recoveries {
    /// Whether the NameNode is to be asked to recover the file, and not only whether it is closed.
    pub(crate) fn is_due(&self, name: &str) -> bool {
        self.is_due_at(name, Instant::now())
    }

    fn is_due_at(&self, name: &str, now: Instant) -> bool {
        self.ordered.lock().get(name).is_none_or(|at| now - *at >= AGAIN_AFTER)
    }

    /// The NameNode was asked, and recovers the file now.
    pub(crate) fn began(&self, name: &str) {
        self.began_at(name, Instant::now());
    }

    fn began_at(&self, name: &str, now: Instant) {
        let mut ordered = self.ordered.lock();
        ordered.retain(|_, at| now - *at < AGAIN_AFTER);
        ordered.insert(name.to_string(), now);
    }

    /// The file is closed, or nobody knows what became of the recovery.
    pub(crate) fn ended(&self, name: &str) {
        self.ordered.lock().remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_is_ordered_again_when_it_had_its_time() {
        let (recoveries, start) = (Recoveries::default(), Instant::now());
        assert!(recoveries.is_due_at("/a", start));
        recoveries.began_at("/a", start);
        assert!(!recoveries.is_due_at("/a", start));
        assert!(recoveries.is_due_at("/b", start), "another file");
        assert!(!recoveries.is_due_at("/a", start + AGAIN_AFTER - Duration::from_millis(1)));
        assert!(recoveries.is_due_at("/a", start + AGAIN_AFTER));
        recoveries.ended("/a");
        assert!(recoveries.is_due_at("/a", start), "a file that is opened and left open once more");
    }

    #[test]
    fn files_that_nobody_asks_for_are_forgotten() {
        let (recoveries, start) = (Recoveries::default(), Instant::now());
        recoveries.began_at("/a", start);
        recoveries.began_at("/b", start + AGAIN_AFTER);
        assert_eq!(recoveries.ordered.lock().len(), 1);
    }
}
