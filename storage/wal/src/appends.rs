//! What was appended and not yet taken by a round: the buffer, its completions, and the accounts of the current file.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::mem;
use std::sync::Arc;

use halcyon_cell::{Error, Result, SeqId};
use halcyon_env::sync::atomic::{AtomicUsize, Ordering};

use crate::check::{Mark, Salt};
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
    /// What is buffered, divided into rounds that a file takes. Nearly always one, or none.
    parts: VecDeque<Part>,
    /// Most bytes of a part, unless it is one entry, or is written once more.
    round_bytes_max: u64,
    /// Of the file that the buffer goes to.
    pub(crate) salt: Salt,
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

/// Entries in the buffer that one round writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    bytes: usize,
    completions_count: usize,
    /// It stays a round of its own: with others it was more than a file takes.
    is_alone: bool,
}

impl Part {
    /// Whether one round may write both.
    fn goes_with(&self, other: &Part, bytes_max: u64) -> bool {
        !self.is_alone && !other.is_alone && (self.bytes + other.bytes) as u64 <= bytes_max
    }
}

/// Everything that one round writes.
pub(crate) struct Batch {
    pub(crate) buffer: Vec<u8>,
    /// One of each entry, but for those at the front that were written before ([`Appends::give_back_behind`]).
    pub(crate) completions: Vec<Completion>,
    pub(crate) sync_wanted: bool,
    pub(crate) disk_wanted: bool,
    /// If each of its entries is to be a round of its own when it is given back: their lengths.
    pub(crate) lens_alone: Vec<usize>,
    /// Rises with each batch that is taken.
    pub(crate) round: u64,
}

impl Appends {
    /// `buffered` gets the length of the buffer; `mark` is that of the file that it goes to.
    pub(crate) fn new(buffered: Arc<AtomicUsize>, mark: Mark, round_bytes_max: u64) -> Appends {
        Appends {
            buffer: Vec::new(),
            buffered,
            pending: Vec::new(),
            sync_wanted: false,
            disk_wanted: false,
            rounds_taken: 0,
            parts: VecDeque::new(),
            round_bytes_max,
            salt: mark.salt,
            synced_bytes: mark.synced_bytes,
            unflushed: Unflushed::default(),
            stopped: None,
            full: None,
            broken: None,
        }
    }

    pub(crate) fn check_running(&self) -> Result<()> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    /// What is appended now says this of its file.
    pub(crate) fn mark(&self) -> Mark {
        Mark { salt: self.salt, synced_bytes: self.synced_bytes }
    }

    /// What is appended from now on goes to another file.
    pub(crate) fn set_mark(&mut self, mark: Mark) {
        (self.salt, self.synced_bytes) = (mark.salt, mark.synced_bytes);
    }

    /// From now on a round has no more bytes than that.
    pub(crate) fn lower_round_bytes_max(&mut self, bytes_max: u64) {
        self.round_bytes_max = self.round_bytes_max.min(bytes_max);
    }

    /// An entry of so many bytes was put behind the others in the buffer.
    pub(crate) fn note_appended(&mut self, bytes: usize, completion: Completion) {
        let entry = Part { bytes, completions_count: 1, is_alone: false };
        self.pending.push(completion);
        match self.parts.back_mut() {
            Some(last) if last.goes_with(&entry, self.round_bytes_max) => {
                last.bytes += bytes;
                last.completions_count += 1;
            }
            _ => self.parts.push_back(entry),
        }
        self.note_buffered();
    }

    /// Whether the rest of a round that was more than a file takes is still to be written.
    pub(crate) fn is_divided(&self) -> bool {
        self.parts.front().is_some_and(|part| part.is_alone)
    }

    /// How many rounds it takes to write what is buffered.
    pub(crate) fn rounds_count(&self) -> usize {
        self.parts.len()
    }

    /// Moves out what one round writes: all that was appended, if a file takes it. An empty buffer and an empty list of completions
    /// take its place.
    pub(crate) fn take(&mut self, spare: Vec<u8>, spare_pending: Vec<Completion>) -> Batch {
        assert!(
            spare.is_empty() && spare_pending.is_empty(),
            "a spare buffer is empty: {} bytes and {} completions would be written or run twice",
            spare.len(),
            spare_pending.len()
        );
        let first = self.parts.pop_front().unwrap_or_default();
        let (rest, rest_pending) = match self.parts.is_empty() {
            true => (spare, spare_pending),
            false => (self.buffer.split_off(first.bytes), self.pending.split_off(first.completions_count)),
        };
        assert!(
            self.buffer.len() == first.bytes && self.pending.len() == first.completions_count,
            "a round has whole entries and their completions: {} bytes and {} completions of {first:?}",
            self.buffer.len(),
            self.pending.len()
        );
        let batch = Batch {
            buffer: mem::replace(&mut self.buffer, rest),
            completions: mem::replace(&mut self.pending, rest_pending),
            sync_wanted: self.sync_wanted,
            disk_wanted: self.disk_wanted,
            lens_alone: Vec::new(),
            round: self.rounds_taken,
        };
        // Of the rest it is not known who wants what.
        self.sync_wanted &= !self.parts.is_empty();
        self.disk_wanted &= !self.parts.is_empty();
        self.rounds_taken += 1;
        self.note_buffered();
        batch
    }

    /// Moves out all that was appended, which nobody writes any more.
    pub(crate) fn take_all(&mut self) -> Batch {
        let all = Part { bytes: self.buffer.len(), completions_count: self.pending.len(), is_alone: false };
        self.parts = [all].into();
        self.take(Vec::new(), Vec::new())
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
        let completions_count = batch.completions.len();
        assert!(
            batch.lens_alone.is_empty()
                || batch.lens_alone.iter().sum::<usize>() == batch.buffer.len()
                    && completions_count <= batch.lens_alone.len(),
            "a round is divided into whole entries, and each has its own completion: {completions_count} of {}",
            batch.lens_alone.len()
        );
        let is_alone = !batch.lens_alone.is_empty();
        if !is_alone {
            self.put_first(Part { bytes: batch.buffer.len(), completions_count, is_alone });
        }
        for (at_end, bytes) in batch.lens_alone.iter().rev().enumerate() {
            // Those at the front have none.
            let completions_count = usize::from(at_end < completions_count);
            self.put_first(Part { bytes: *bytes, completions_count, is_alone });
        }
        batch.buffer.append(&mut self.buffer);
        batch.completions.append(&mut self.pending);
        self.buffer = batch.buffer;
        self.pending = batch.completions;
        self.sync_wanted |= batch.sync_wanted;
        self.disk_wanted |= batch.disk_wanted;
        self.note_buffered();
    }

    /// As [`Appends::give_back`], for another file that also gets the entries before the batch once more. All of them are one round,
    /// however large: once a round of the new file is synced, nothing is left that only the old one has.
    pub(crate) fn give_back_behind(&mut self, mut written: Vec<u8>, mut batch: Batch) {
        if !written.is_empty() {
            assert!(
                batch.lens_alone.is_empty(),
                "a round is divided only if its file has nothing else: {} bytes are before it",
                written.len()
            );
            written.append(&mut batch.buffer);
            batch.buffer = written;
        }
        self.give_back(batch);
    }

    fn put_first(&mut self, part: Part) {
        match self.parts.front_mut() {
            Some(first) if part.goes_with(first, self.round_bytes_max) => {
                first.bytes += part.bytes;
                first.completions_count += part.completions_count;
            }
            _ if part == Part::default() => {}
            _ => self.parts.push_front(part),
        }
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
        let (mut appends, buffered) = appends(u64::MAX);
        append(&mut appends, b"first");
        let batch = appends.take(Vec::new(), Vec::new());
        append(&mut appends, b"second");
        appends.give_back(batch);
        assert_eq!(appends.buffer, b"firstsecond");
        assert_eq!(buffered.load(Ordering::Relaxed), 11);
        assert_eq!(appends.rounds_count(), 1);
    }

    /// A round that no file takes was tried again and again until the log stopped.
    #[test]
    fn a_round_takes_whole_entries_and_no_more_than_a_file_does() {
        let (mut appends, buffered) = appends(10);
        for entry in [&b"aaaa"[..], b"bbbb", b"cccc", b"more than ten", b"d", b"e"] {
            append(&mut appends, entry);
        }
        appends.sync_wanted = true;
        let first = appends.take(Vec::new(), Vec::new());
        assert_eq!(
            (&first.buffer[..], first.completions.len(), first.sync_wanted),
            (&b"aaaabbbb"[..], 2, true)
        );
        assert_eq!(buffered.load(Ordering::Relaxed), 19);
        append(&mut appends, b"f");
        appends.give_back_behind(b"kept".to_vec(), first);
        let mut taken = Vec::new();
        while !appends.buffer.is_empty() {
            let batch = appends.take(Vec::new(), Vec::new());
            assert!(batch.sync_wanted);
            taken.push((String::from_utf8(batch.buffer).unwrap(), batch.completions.len()));
        }
        let expected = [("keptaaaabbbb", 2), ("cccc", 1), ("more than ten", 1), ("def", 3)];
        assert!(taken.iter().map(|(text, count)| (&text[..], *count)).eq(expected), "{taken:?}");
        assert!(!appends.sync_wanted && appends.pending.is_empty() && buffered.load(Ordering::Relaxed) == 0);
        [&b"aaaa"[..], b"more than ten"].iter().for_each(|entry| append(&mut appends, entry));
        assert_eq!(appends.rounds_count(), 2);
        assert_eq!(appends.take_all().buffer, b"aaaamore than ten");
        assert_eq!(appends.rounds_count(), 0);
    }

    /// What is more than a file takes is divided, and stays so whatever comes before and behind it.
    #[test]
    fn entries_that_are_given_back_alone_are_rounds_of_their_own() {
        let (mut appends, _) = appends(100);
        append(&mut appends, b"aaaa");
        append(&mut appends, b"bb");
        let batch = appends.take(Vec::new(), Vec::new());
        append(&mut appends, b"dd");
        appends.give_back_behind(b"kept".to_vec(), batch);
        let mut batch = appends.take(Vec::new(), Vec::new());
        assert_eq!((&batch.buffer[..], batch.completions.len()), (&b"keptaaaabbdd"[..], 3));
        batch.lens_alone = vec![3, 1, 4, 2, 2];
        append(&mut appends, b"e");
        appends.give_back(batch);
        append(&mut appends, b"f");
        let taken = (0..6).map(|_| appends.take(Vec::new(), Vec::new()));
        let taken: Vec<_> =
            taken.map(|it| (String::from_utf8(it.buffer).unwrap(), it.completions.len())).collect();
        let expected = [("kep", 0), ("t", 0), ("aaaa", 1), ("bb", 1), ("dd", 1), ("ef", 2)];
        assert!(taken.iter().map(|(text, count)| (&text[..], *count)).eq(expected), "{taken:?}");
        assert_eq!(appends.rounds_count(), 0);
    }

    fn appends(round_bytes_max: u64) -> (Appends, Arc<AtomicUsize>) {
        let buffered = Arc::new(AtomicUsize::new(0));
        (Appends::new(buffered.clone(), Mark::of_new(Salt::random()), round_bytes_max), buffered)
    }

    fn append(appends: &mut Appends, entry: &[u8]) {
        appends.buffer.extend_from_slice(entry);
        appends.note_appended(entry.len(), Box::new(|_| ()));
    }
}
