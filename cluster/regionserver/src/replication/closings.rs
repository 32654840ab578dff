//! Openings and closings of regions here, as serial peers need them (`serial.rs`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use halcyon_env::Mutex;

/// A place in the WAL that this server writes: the file, and an offset.
pub(super) type WalPlace = (String, u64);

/// Closings of a region that are kept while there is no source. A peer that comes later asks for the last one; those before are for one
/// that is just being added.
const UNASKED_KEPT: usize = 64;

/// *Thread safety*: shared freely. The lock is held for look-ups in memory.
#[derive(Default)]
pub(super) struct Closings {
    openings: AtomicU64,
    closed: Mutex<Closed>,
}

#[derive(Default)]
struct Closed {
    /// Changes with each closing.
    version: u64,
    /// In their order: a source may have passed the first one of a region while the next one waits for another server.
    by_region: BTreeMap<Bytes, Vec<Closing>>,
}

/// A closing of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Closing {
    /// No edit of the region is above.
    pub(super) seq: u64,
    /// Where all edits of the region have ended. `None`: it is not known yet.
    pub(super) end: Option<WalPlace>,
}

impl Closings {
    /// A region serves from now on; `hbase:meta` has its barrier.
    pub(super) fn note_opened(&self) {
        self.openings.fetch_add(1, Ordering::AcqRel);
    }

    /// How many regions were opened here. What was found out about barriers counts until it changes.
    pub(super) fn openings(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }

    /// Of a region that does not serve here any more. `is_asked`: there are sources, which take away what they have passed.
    pub(super) fn note_closed(&self, region_name: &Bytes, seq: u64, end: Option<WalPlace>, is_asked: bool) {
        let mut closed = self.closed.lock();
        closed.version += 1;
        let closings = closed.by_region.entry(region_name.clone()).or_default();
        closings.push(Closing { seq, end });
        if !is_asked && closings.len() > UNASKED_KEPT {
            closings.drain(..closings.len() - UNASKED_KEPT);
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.closed.lock().version
    }

    /// The closings that `is_wanted` chooses. Those whose end is not known get this one, which is behind all of them. Of those whose WALs are
    /// gone only the last one of each region stays.
    pub(super) fn some(
        &self,
        now: Option<WalPlace>,
        is_gone: impl Fn(&str) -> bool,
        is_wanted: impl Fn(&Bytes, &Closing) -> bool,
    ) -> (u64, Vec<(Bytes, Closing)>) {
        let mut closed = self.closed.lock();
        let mut wanted = Vec::new();
        for (region, closings) in &mut closed.by_region {
            for closing in closings.iter_mut().filter(|closing| closing.end.is_none()) {
                closing.end.clone_from(&now);
            }
            let is_past = |closing: &Closing| closing.end.as_ref().is_some_and(|(wal, _)| is_gone(wal));
            if let Some(last) = closings.iter().rposition(is_past) {
                closings.drain(..last);
            }
            let some = closings.iter().filter(|closing| is_wanted(region, closing));
            wanted.extend(some.map(|closing| (region.clone(), closing.clone())));
        }
        (closed.version, wanted)
    }

    /// Forgets closings of which nobody will ask any more.
    pub(super) fn forget(&self, closings: &[(Bytes, u64)]) {
        let mut closed = self.closed.lock();
        for (region, seq) in closings {
            if let Some(known) = closed.by_region.get_mut(region) {
                known.retain(|closing| closing.seq > *seq);
            }
        }
        closed.by_region.retain(|_, closings| !closings.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_sources_the_last_closings_of_a_region_are_kept() {
        let closings = Closings::default();
        let region = Bytes::from_static(b"r");
        let seqs = |closings: &Closings| -> Vec<u64> {
            closings.some(None, |_| false, |_, _| true).1.iter().map(|(_, closing)| closing.seq).collect()
        };
        (1..=100).for_each(|seq| closings.note_closed(&region, seq, None, false));
        assert_eq!(seqs(&closings), (37..=100).collect::<Vec<_>>());
        (101..=200).for_each(|seq| closings.note_closed(&region, seq, None, true));
        assert_eq!(
            seqs(&closings),
            (37..=200).collect::<Vec<_>>(),
            "a source may still wait for each of them"
        );
    }
}
