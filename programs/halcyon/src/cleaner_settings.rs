//! Settings of what the master's cleaner keeps.

use std::time::Duration;

/// How long the master keeps files that nothing uses any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanerSettings {
    /// How often archive and old logs are cleaned (`hbase.master.cleaner.interval`). One minute, where HBase has ten: a
    /// look costs little, and less of the disk is held under heavy compaction.
    pub period: Duration,
    /// How long a store file stays in the archive (`hbase.master.hfilecleaner.ttl`).
    pub archive_keep: Duration,
    /// How long a log stays in `oldWALs` (`hbase.master.logcleaner.ttl`).
    pub old_wals_keep: Duration,
    /// Bytes of logs in `oldWALs` that are kept for replication peers (`replication.wal.bytes.max`).
    pub peer_wal_bytes_max: Option<u64>,
    /// Time to live of a snapshot that is taken without one; 0: it is kept (`hbase.master.snapshot.ttl`).
    pub snapshot_ttl_s: u64,
}

impl Default for CleanerSettings {
    fn default() -> CleanerSettings {
        CleanerSettings {
            period: Duration::from_secs(60),
            archive_keep: Duration::from_secs(5 * 60),
            old_wals_keep: Duration::from_secs(10 * 60),
            peer_wal_bytes_max: None,
            snapshot_ttl_s: 0,
        }
    }
}
