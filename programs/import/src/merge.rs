//! The entries of a range as a scan of Accumulo would show them: all files merged, deletions carried out, versions counted.
//!
//! This is what a full major compaction does with the tablet's files (`DeletingIterator`, `VersioningIterator`), so
//! no delete marker goes to the target. A deletion hides all entries of its column that are not newer, and the visibility
//! is a part of the column. Such a marker cannot be said in HBase, whose columns have no visibility.
//!
//! Two entries with one key are two versions for Accumulo. HBase has one cell for them: the one of the newer file stays.

use std::fmt;

use crate::rfile::{GroupScanner, Key, RFileError};

/// Entries in Accumulo's order.
pub(crate) trait Entries: Send {
    /// Goes to the next entry; `false` at the end.
    fn next(&mut self) -> Result<bool, ReadError>;

    fn key(&self) -> &Key;

    fn value(&self) -> &[u8];

    /// What was left out so far.
    fn left_out(&self) -> LeftOut {
        LeftOut::default()
    }
}

/// Why entries cannot be read.
#[derive(Debug)]
pub(crate) struct ReadError {
    /// The file's number in its source; `None` if the source has no files.
    pub(crate) file: Option<usize>,
    pub(crate) why: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Entries of files that have no cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    /// Delete markers.
    pub(crate) deletes: u64,
    /// Entries that a delete marker hides.
    pub(crate) deleted: u64,
    /// Older than the newest so many versions.
    pub(crate) old_versions: u64,
    /// The same key twice.
    pub(crate) doubles: u64,
}

impl LeftOut {
    pub(crate) fn add(&mut self, other: LeftOut) {
        self.deletes += other.deletes;
        self.deleted += other.deleted;
        self.old_versions += other.old_versions;
        self.doubles += other.doubles;
    }
}

/// A locality group of a file, from the first entry of the range on.
pub(crate) struct Stream {
    scanner: GroupScanner,
    file: usize,
    /// Of a bulk import with `setTime`: the timestamp of all entries.
    set_time: Option<i64>,
    /// The key with that timestamp.
    timed: Key,
}

impl Stream {
    /// `None`: there is no entry in the range.
    pub(crate) fn open(
        mut scanner: GroupScanner,
        file: usize,
        set_time: Option<i64>,
        start: &[u8],
    ) -> Result<Option<Stream>, RFileError> {
        let has_entry = scanner.next_from(start)?;
        let mut stream = Stream { scanner, file, set_time, timed: Key::default() };
        stream.set_time();
        Ok(has_entry.then_some(stream))
    }

    fn set_time(&mut self) {
        if let Some(time) = self.set_time {
            self.timed.clone_from(self.scanner.key());
            self.timed.timestamp = time;
        }
    }

    fn next(&mut self) -> Result<bool, RFileError> {
        let has_entry = self.scanner.next()?;
        self.set_time();
        Ok(has_entry)
    }

    fn key(&self) -> &Key {
        if self.set_time.is_some() { &self.timed } else { self.scanner.key() }
    }
}

/// See the head of the file.
pub(crate) struct Merged {
    /// Those of newer files come first.
    streams: Vec<Stream>,
    /// Streams with an entry, by their keys and numbers, the first entry last.
    order: Vec<usize>,
    versions_max: Option<u64>,
    /// A stream's entry was handed out or passed over.
    is_past: bool,
    column: Column,
    left_out: LeftOut,
}

/// What is known of the column at hand.
#[derive(Default)]
struct Column {
    key: Key,
    is_known: bool,
    is_deleted: bool,
    versions: u64,
    timestamp: i64,
}

impl Merged {
    /// `versions_max`: of a column; `None`: all.
    pub(crate) fn new(streams: Vec<Stream>, versions_max: Option<u64>) -> Merged {
        let mut order: Vec<usize> = (0..streams.len()).collect();
        order.sort_by(|left, right| {
            streams[*right].key().cmp(streams[*left].key()).then_with(|| right.cmp(left))
        });
        let (column, left_out) = (Column::default(), LeftOut::default());
        Merged { streams, order, versions_max, is_past: false, column, left_out }
    }

    /// The stream with the next entry.
    fn advance(&mut self) -> Result<Option<usize>, ReadError> {
        if std::mem::replace(&mut self.is_past, true) {
            let first = self.order.pop().expect("it was handed out");
            let stream = &mut self.streams[first];
            let more = stream
                .next()
                .map_err(|error| ReadError { file: Some(stream.file), why: error.to_string() })?;
            if more {
                let (key, streams) = (self.streams[first].key(), &self.streams);
                let place = self.order.partition_point(|other| {
                    streams[*other].key().cmp(key).then_with(|| other.cmp(&first)).is_gt()
                });
                self.order.insert(place, first);
            }
        }
        Ok(self.order.last().copied())
    }
}

impl Entries for Merged {
    fn next(&mut self) -> Result<bool, ReadError> {
        while let Some(first) = self.advance()? {
            let (key, column) = (self.streams[first].key(), &mut self.column);
            if !column.is_known || !column.key.is_same_column(key) {
                column.key.clone_from(key);
                *column =
                    Column { key: std::mem::take(&mut column.key), is_known: true, ..Column::default() };
            }
            if column.is_deleted {
                match key.is_deleted {
                    true => self.left_out.deletes += 1,
                    false => self.left_out.deleted += 1,
                }
            } else if key.is_deleted {
                column.is_deleted = true; // what follows in this column is not newer
                self.left_out.deletes += 1;
            } else if column.versions > 0 && column.timestamp == key.timestamp {
                self.left_out.doubles += 1;
            } else if self.versions_max.is_some_and(|max| column.versions >= max) {
                self.left_out.old_versions += 1;
            } else {
                column.versions += 1;
                column.timestamp = key.timestamp;
                return Ok(true);
            }
        }
        self.is_past = false;
        Ok(false)
    }

    fn key(&self) -> &Key {
        self.streams[*self.order.last().expect("there is an entry")].key()
    }

    fn value(&self) -> &[u8] {
        self.streams[*self.order.last().expect("there is an entry")].scanner.value()
    }

    fn left_out(&self) -> LeftOut {
        self.left_out
    }
}

#[cfg(test)]
mod tests;
