use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers of one log since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Entries appended.
    pub entries: u64,
    /// Their encoded bytes.
    pub bytes: u64,
    /// Writes, that is, rounds of group commit.
    pub writes: u64,
    pub syncs: u64,
    pub sync_ns_total: u64,
    pub sync_ns_longest: u64,
    pub rolls: u64,
    /// Files not archived, the current one included.
    pub files_count: usize,
    pub files_bytes: u64,
    /// Appended and not yet written.
    pub buffered_bytes: usize,
}

#[derive(Default)]
pub(crate) struct Counters {
    entries: AtomicU64,
    bytes: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    sync_ns_total: AtomicU64,
    sync_ns_longest: AtomicU64,
    rolls: AtomicU64,
    file_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn appended(&self, len: usize) {
        self.entries.fetch_add(1, Relaxed);
        self.bytes.fetch_add(len as u64, Relaxed);
    }

    pub(crate) fn wrote(&self) {
        self.writes.fetch_add(1, Relaxed);
    }

    pub(crate) fn synced(&self, ns: u64) {
        self.syncs.fetch_add(1, Relaxed);
        self.sync_ns_total.fetch_add(ns, Relaxed);
        self.sync_ns_longest.fetch_max(ns, Relaxed);
    }

    pub(crate) fn rolled(&self) {
        self.rolls.fetch_add(1, Relaxed);
    }

    pub(crate) fn set_file_bytes(&self, bytes: u64) {
        self.file_bytes.store(bytes, Relaxed);
    }

    /// Bytes of the current file after its last round.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Relaxed)
    }

    pub(crate) fn stats(&self) -> WalStats {
        WalStats {
            entries: self.entries.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            sync_ns_total: self.sync_ns_total.load(Relaxed),
            sync_ns_longest: self.sync_ns_longest.load(Relaxed),
            rolls: self.rolls.load(Relaxed),
            ..WalStats::default()
        }
    }
}
