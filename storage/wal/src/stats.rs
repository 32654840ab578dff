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
    /// Files that were given up after an error, and replaced by new ones.
    pub replacements: u64,
    /// Rounds that went to the spare file too, because their sync was late.
    pub late_syncs: u64,
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
    sync_ns_recent: AtomicU64,
    rolls: AtomicU64,
    replacements: AtomicU64,
    late_syncs: AtomicU64,
    file_bytes: AtomicU64,
}

impl Counters {
    /// Under the lock of the append buffer.
    pub(crate) fn appended(&self, len: usize) {
        add_alone(&self.entries, 1);
        add_alone(&self.bytes, len as u64);
    }

    /// Under the lock of the file.
    pub(crate) fn wrote(&self) {
        add_alone(&self.writes, 1);
    }

    pub(crate) fn synced(&self, ns: u64) {
        self.syncs.fetch_add(1, Relaxed);
        self.sync_ns_total.fetch_add(ns, Relaxed);
        self.sync_ns_longest.fetch_max(ns, Relaxed);
        self.sync_ns_recent.fetch_max(ns, Relaxed);
    }

    /// The longest sync since the last call of this.
    pub(crate) fn take_sync_longest(&self) -> u64 {
        self.sync_ns_recent.swap(0, Relaxed)
    }

    pub(crate) fn rolled(&self) {
        self.rolls.fetch_add(1, Relaxed);
    }

    pub(crate) fn replaced(&self) {
        self.replacements.fetch_add(1, Relaxed);
    }

    pub(crate) fn hedged(&self) {
        self.late_syncs.fetch_add(1, Relaxed);
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
            replacements: self.replacements.load(Relaxed),
            late_syncs: self.late_syncs.load(Relaxed),
            ..WalStats::default()
        }
    }
}

/// Adds to a counter that nobody else writes meanwhile: cheaper than a step that all processors agree upon.
fn add_alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

#[cfg(test)]
#[test]
fn the_longest_recent_sync_is_taken_once() {
    let counters = Counters::default();
    counters.synced(7);
    counters.synced(5);
    assert_eq!((counters.take_sync_longest(), counters.take_sync_longest()), (7, 0));
    assert_eq!((counters.stats().sync_ns_longest, counters.stats().syncs), (7, 2));
}
