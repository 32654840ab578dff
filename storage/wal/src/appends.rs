//! What was appended and not yet taken by a round: the buffer, its completions, and the accounts of the current file.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::mem;
use std::sync::Arc;

use halcyon_cell::{Error, Result, SeqId};
use halcyon_env::sync::atomic::{AtomicUsize, Ordering};

use crate::full::Full;
use crate::log::Completion;
use crate::region_hash::RegionHasher;
use crate::replace::Broken;

/// Edits that a file holds of each region and that are not flushed, by the region's encoded name.
pub(crate) type Unflushed = HashMap<Box<[u8]>, Held, BuildHasherDefault<RegionHasher>>;

/// Edits of one region.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    /// The highest sequence id; up to it the region has to flush.
    pub(crate) max_seq: SeqId,
    /// The one appended last since the region was opened; 0 if there was none.
    pub(crate) last_seq: SeqId,
}

/// What was appended and not yet taken by a round.
pub(crate) struct Appends {
    pub(crate) buffer: Vec<u8>,
    /// The length of `buffer`, for those who only want to know: every write asks.
    buffered: Arc<AtomicUsize>,
    pub(crate) pending: Vec<Completion>,
    pub(crate) sync_wanted: bool,
    /// `FSYNC_WAL` is among them.
    pub(crate) disk_wanted: bool,
    rounds_taken: u64,
    /// Bytes of the file that the buffer goes to, known to be on disk.
    pub(crate) synced_bytes: u64,
    /// Of the current file, the buffered entries included.
    pub(crate) unflushed: Unflushed,
    /// Why nothing can be appended any more.
    pub(crate) stopped: Option<Error>,
    /// Why nothing can be appended for now.
    pub(crate) full: Option<Full>,
    /// Why the current file takes no more bytes. Appends are taken as far as the buffer has room.
    pub(crate) broken: Option<Broken>,
}

/// Everything that one round writes.
pub(crate) struct Batch {
    pub(crate) buffer: Vec<u8>,
    pub(crate) completions: Vec<Completion>,
    pub(crate) sync_wanted: bool,
    pub(crate) disk_wanted: bool,
    /// Rises with each batch that is taken.
    pub(crate) round: u64,
}

impl Appends {
    /// `buffered` gets the length of the buffer; `synced_bytes` of the file that it goes to are on disk.
    pub(crate) fn new(buffered: Arc<AtomicUsize>, synced_bytes: u64) -> Appends {
        Appends {
            buffer: Vec::new(),
            buffered,
            pending: Vec::new(),
            sync_wanted: false,
            disk_wanted: false,
            rounds_taken: 0,
            synced_bytes,
            unflushed: Unflushed::default(),
            stopped: None,
            full: None,
            broken: None,
        }
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    /// Moves out what was appended; an empty buffer and an empty list of completions take its place.
    pub(crate) fn take(&mut self, spare: Vec<u8>, spare_pending: Vec<Completion>) -> Batch {
        assert!(
            spare.is_empty() && spare_pending.is_empty(),
            "a spare buffer is empty: {} bytes and {} completions would be written or run twice",
            spare.len(),
            spare_pending.len()
        );
        let batch = Batch {
            buffer: mem::replace(&mut self.buffer, spare),
            completions: mem::replace(&mut self.pending, spare_pending),
            sync_wanted: mem::take(&mut self.sync_wanted),
            disk_wanted: mem::take(&mut self.disk_wanted),
            round: self.rounds_taken,
        };
        self.rounds_taken += 1;
        self.note_buffered();
        batch
    }

    /// So many bytes of the current file are on disk. Entries say so to recovery, which calls damage before that place
    /// corruption and damage behind it a torn tail.
    pub(crate) fn note_synced(&mut self, bytes: u64) {
        assert!(
            bytes >= self.synced_bytes,
            "bytes on disk never get fewer: {bytes} after {}",
            self.synced_bytes
        );
        self.synced_bytes = bytes;
    }

    pub(crate) fn note_buffered(&self) {
        self.buffered.store(self.buffer.len(), Ordering::Relaxed);
    }

    /// Undoes a `take`, also if there were appends since.
    pub(crate) fn give_back(&mut self, mut batch: Batch) {
        batch.buffer.append(&mut self.buffer);
        batch.completions.append(&mut self.pending);
        self.buffer = batch.buffer;
        self.pending = batch.completions;
        self.sync_wanted |= batch.sync_wanted;
        self.disk_wanted |= batch.disk_wanted;
        self.note_buffered();
    }

    pub(crate) fn note_unflushed(&mut self, region: &[u8], seq: SeqId) {
        match self.unflushed.get_mut(region) {
            Some(Held { max_seq, last_seq }) => {
                assert!(
                    seq > *last_seq,
                    "sequence ids rise strictly within a region: {seq} after {last_seq} of {}",
                    region.escape_ascii()
                );
                (*max_seq, *last_seq) = (seq.max(*max_seq), seq);
            }
            None => {
                self.unflushed.insert(region.into(), Held { max_seq: seq, last_seq: seq });
            }
        }
    }

    /// As [`Appends::note_unflushed`], for edits of a file that goes on after all, beside those appended since.
    pub(crate) fn merge_unflushed(&mut self, region: Box<[u8]>, held: Held) {
        let known = self.unflushed.entry(region).or_insert(held);
        known.max_seq = known.max_seq.max(held.max_seq);
    }
}

#[cfg(all(test, not(halcyon_shuttle)))]
mod tests {
    use super::*;

    /// A batch that found no space is written again before what was appended since.
    #[test]
    fn what_is_given_back_comes_first() {
        let buffered = Arc::new(AtomicUsize::new(0));
        let mut appends = Appends::new(buffered.clone(), 0);
        appends.buffer.extend_from_slice(b"first");
        let batch = appends.take(Vec::new(), Vec::new());
        appends.buffer.extend_from_slice(b"second");
        appends.give_back(batch);
        assert_eq!(appends.buffer, b"firstsecond");
        assert_eq!(buffered.load(Ordering::Relaxed), 11);
    }
}
