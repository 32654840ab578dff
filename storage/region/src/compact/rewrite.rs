//! The work of a compaction: inputs merged, what nobody may see dropped, the rest in one file or, by windows of
//! time, in several.
//!
//! Only the file that is put in place last names the inputs. A crash before that leaves inputs and some copies of
//! their cells, which is as good as the inputs alone; after it, opening the store archives the inputs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use halcyon_cell::{CellRef, Error, ErrorKind, Key, Result};
use halcyon_env::Env;
use halcyon_hfile::{FileMeta, HFileWriter, ReadMode};

use super::CompactionControl;
use super::select::Selection;
use crate::flush::look_at_all;
use crate::region::Region;
use crate::scan::matcher::Matcher;
use crate::scan::source::Heap;
use crate::store::{Store, StoreFile, WrittenBy};

/// Bytes of cells between two questions whether the compaction goes on. HBase asks every 10 MB
/// (`hbase.hstore.close.check.interval`).
const BYTES_BETWEEN_QUESTIONS: u64 = 1 << 20;

/// Files in `.tmp`, complete and synced. They are removed if nobody has moved them when this is dropped.
pub(super) struct Written {
    env: Env,
    paths: Vec<PathBuf>,
}

impl Written {
    /// In the order in which they are to be put in place.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        for path in &self.paths {
            let _ = self.env.fs.remove_file(path); // `.tmp` is emptied at the next open anyway
        }
    }
}

/// One file for each window of time that has cells.
struct Outputs<'a> {
    region: &'a Region,
    store: &'a Store,
    now_ms: i64,
    boundaries: &'a [i64],
    /// All files of the store are merged.
    all: bool,
    /// By boundary, made when its first cell comes.
    writers: Vec<Option<HFileWriter>>,
    written: Written,
}

impl<'a> Outputs<'a> {
    fn new(region: &'a Region, store: &'a Store, now_ms: i64, selection: &'a Selection) -> Outputs<'a> {
        let env = region.services.env.clone();
        let boundaries = &selection.boundaries[..];
        let writers = boundaries.iter().map(|_| None).collect();
        let written = Written { env, paths: Vec::new() };
        Outputs { region, store, now_ms, boundaries, all: selection.all, writers, written }
    }

    fn append(&mut self, cell: CellRef<'_>) -> Result<()> {
        let after = self.boundaries.partition_point(|&start| start <= cell.timestamp());
        self.writer(after.saturating_sub(1))?.append(cell)
    }

    fn writer(&mut self, at: usize) -> Result<&mut HFileWriter> {
        if self.writers[at].is_none() {
            let path = self.region.temporary_file(self.store)?;
            let options = self.store.writer_options(&self.region.table, written_by(self.all), self.now_ms)?;
            self.written.paths.push(path.clone());
            self.writers[at] = Some(HFileWriter::create(&self.written.env, &path, options)?);
        }
        Ok(self.writers[at].as_mut().expect("it was just made"))
    }

    /// Completes the files, oldest window first. Without a cell left there is still a file, which remembers the
    /// sequence id and the inputs.
    fn finish(mut self, inputs: &[Arc<StoreFile>]) -> Result<Written> {
        if self.writers.iter().all(Option::is_none) {
            self.writer(0)?;
        }
        let mut open: Vec<HFileWriter> = std::mem::take(&mut self.writers).into_iter().flatten().collect();
        let last = open.pop().expect("one was made");
        let meta = FileMeta {
            max_seq_id: inputs.iter().map(|file| file.max_seq).max(),
            major_compaction: self.all,
            ..FileMeta::default()
        };
        let mut paths = Vec::new();
        for writer in open {
            paths.push(writer.finish(meta.clone())?.path);
        }
        let compacted_from = inputs.iter().map(|file| file.name.clone()).collect();
        paths.push(last.finish(FileMeta { compacted_from, ..meta })?.path);
        self.written.paths = paths;
        Ok(self.written)
    }
}

impl Region {
    /// Writes the files that are to take the place of `inputs`, oldest first. `Stopping` if `control` or the
    /// region's closing ends it; nothing is left behind then.
    pub(super) fn rewrite(
        &self,
        store: &Store,
        inputs: &[Arc<StoreFile>],
        selection: &Selection,
        control: &mut dyn CompactionControl,
    ) -> Result<Written> {
        let now_ms = self.services.env.clock.now_ms();
        // Newest first; blocks that only a compaction reads are not worth a place in the cache.
        let sources = inputs.iter().rev().map(|file| file.source(ReadMode::AnyDisk, false, u64::MAX));
        let mut heap = Heap::new(store.comparator, sources.collect());
        heap.seek(Key::first_on_row(b"").get())?;
        let mut matcher = if selection.all {
            let earliest = inputs.iter().filter_map(|file| file.hfile.info().earliest_put_ts()).min();
            Matcher::major(store.keeping, earliest.unwrap_or(i64::MAX), now_ms)
        } else {
            Matcher::minor(store.keeping, now_ms)
        };
        let mut outputs = Outputs::new(self, store, now_ms, selection);
        let (mut looked_at_bytes, mut written_bytes) = (0, 0);
        look_at_all(&mut heap, &mut matcher, |cell, kept| {
            let len = cell.bytes().len() as u64;
            looked_at_bytes += len;
            if kept {
                written_bytes += len;
                outputs.append(cell)?;
            }
            if looked_at_bytes < BYTES_BETWEEN_QUESTIONS {
                return Ok(());
            }
            looked_at_bytes = 0;
            self.ask(control, std::mem::take(&mut written_bytes))
        })?;
        outputs.finish(inputs)
    }

    fn ask(&self, control: &mut dyn CompactionControl, written_bytes: u64) -> Result<()> {
        let is_closing = || self.closing.load(Ordering::Acquire);
        if control.go_on(written_bytes, &is_closing) && !is_closing() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Stopping, "the compaction was called off"))
    }
}

pub(super) fn written_by(all: bool) -> WrittenBy {
    if all { WrittenBy::MajorCompaction } else { WrittenBy::MinorCompaction }
}
