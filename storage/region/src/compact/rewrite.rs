use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use halcyon_cell::{Error, ErrorKind, Key, Result};
use halcyon_hfile::{FileMeta, HFileWriter, ReadMode};

use super::{FileChoice, select};
use crate::flush::copy_kept;
use crate::region::Region;
use crate::scan::matcher::Matcher;
use crate::scan::source::{Heap, Source};
use crate::store::{Commit, Store, StoreFile, WrittenBy};

/// Cells between two looks at the cancel flag.
const CELLS_BETWEEN_LOOKS: u64 = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionRequest {
    /// All files of the store, markers dropped.
    pub major: bool,
    /// Somebody asked, so two files are enough.
    pub user: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionOutcome {
    /// Files that were merged; 0: nothing was to be done.
    pub compacted_files: usize,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub major: bool,
}

/// Counts a running compaction while it lives.
struct Running<'a>(&'a AtomicU64);

impl<'a> Running<'a> {
    fn begin(count: &'a AtomicU64) -> Running<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Running(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Region {
    /// Remembers that a major compaction is wanted, of one family or of all.
    pub fn request_major_compaction(&self, family: Option<&[u8]>) {
        for store in &self.stores {
            if family.is_none_or(|family| family == store.family.name()) {
                store.major_wanted.store(true, Ordering::Release);
            }
        }
    }

    /// Whether `compact` would find something to do.
    pub fn compaction_wanted(&self) -> bool {
        let now_ms = self.services.env.clock.now_ms();
        self.stores.iter().any(|store| {
            let files = oldest_first(store);
            let major = store.major_wanted.load(Ordering::Acquire) || self.major_is_due(&files, now_ms);
            select(&choices(&files), major, major, &self.services.settings).is_some()
        })
    }

    /// Merges files of one family, or of all, one store after the other. *Blocking*, on the caller's thread;
    /// ends early (with an error of kind `Stopping`, and nothing changed in that store) when `cancel` is set
    /// or the region closes.
    pub fn compact(
        &self,
        family: Option<&[u8]>,
        request: CompactionRequest,
        cancel: &AtomicBool,
    ) -> Result<CompactionOutcome> {
        if let Some(family) = family {
            self.store_or_error(family)?;
        }
        let mut sum = CompactionOutcome::default();
        for store in &self.stores {
            if family.is_some_and(|family| family != store.family.name()) {
                continue;
            }
            let done = self.compact_store(store, request, cancel)?;
            sum.compacted_files += done.compacted_files;
            sum.bytes_read += done.bytes_read;
            sum.bytes_written += done.bytes_written;
            sum.major |= done.major;
        }
        Ok(sum)
    }

    fn compact_store(
        &self,
        store: &Store,
        request: CompactionRequest,
        cancel: &AtomicBool,
    ) -> Result<CompactionOutcome> {
        let _compacting = store.compacting.lock();
        let now_ms = self.services.env.clock.now_ms();
        let files = oldest_first(store);
        let wanted = store.major_wanted.swap(false, Ordering::AcqRel);
        let major = request.major || wanted || self.major_is_due(&files, now_ms);
        let forced = request.user || wanted;
        let Some(selection) = select(&choices(&files), major, forced, &self.services.settings) else {
            return Ok(CompactionOutcome::default());
        };
        let running =
            if selection.major { &self.counters.major_running } else { &self.counters.minor_running };
        let _running = Running::begin(running);
        let inputs = &files[selection.from..selection.to];
        let outcome = self.rewrite(store, inputs, selection.major, now_ms, cancel);
        if outcome.is_err() && wanted {
            store.major_wanted.store(true, Ordering::Release);
        }
        outcome
    }

    fn rewrite(
        &self,
        store: &Store,
        inputs: &[Arc<StoreFile>],
        major: bool,
        now_ms: i64,
        cancel: &AtomicBool,
    ) -> Result<CompactionOutcome> {
        let env = &self.services.env;
        let path = self.temporary_file(store)?;
        let written = self.merge(store, inputs, major, now_ms, cancel, &path);
        let cells = match written {
            Ok(cells) => cells,
            Err(error) => {
                let _ = env.fs.remove_file(&path); // .tmp is emptied at the next open anyway
                return Err(error);
            }
        };
        let written_by = written_by(major);
        // Without a cell left there is still a file, which remembers the sequence id and the inputs.
        let commit = Commit { file: Some(&path), flushed: &[], compacted: inputs };
        let _open = self.enter()?;
        let file = store.commit(
            env,
            &commit,
            |path| self.open_file(store, path, written_by),
            &self.archive_dir.join(&*store.family.name_str()),
        )?;
        for input in inputs {
            self.services.cache.evict_file(input.number);
        }
        tracing::debug!(region = self.info.encoded_name(), inputs = inputs.len(), cells, major, "compacted");
        Ok(CompactionOutcome {
            compacted_files: inputs.len(),
            bytes_read: inputs.iter().map(|file| file.len_bytes).sum(),
            bytes_written: file.map_or(0, |file| file.len_bytes),
            major,
        })
    }

    fn merge(
        &self,
        store: &Store,
        inputs: &[Arc<StoreFile>],
        major: bool,
        now_ms: i64,
        cancel: &AtomicBool,
        path: &std::path::Path,
    ) -> Result<u64> {
        // Newest first; blocks that only a compaction reads are not worth a place in the cache.
        let sources = inputs.iter().rev().map(|file| Source::File {
            scanner: file.hfile.scanner(ReadMode::AnyDisk, false),
            read_point: u64::MAX,
        });
        let mut heap = Heap::new(store.comparator, sources.collect());
        heap.seek(Key::first_on_row(b"").get())?;
        let mut matcher = if major {
            let earliest = inputs.iter().filter_map(|file| file.hfile.info().earliest_put_ts()).min();
            Matcher::major(store.keeping, earliest.unwrap_or(i64::MAX), now_ms)
        } else {
            Matcher::minor(store.keeping, now_ms)
        };
        let options = store.writer_options(&self.table, written_by(major), now_ms)?;
        let mut writer = HFileWriter::create(&self.services.env, path, options)?;
        let mut cells = 0u64;
        copy_kept(&mut heap, &mut matcher, |cell| {
            cells += 1;
            if cells.is_multiple_of(CELLS_BETWEEN_LOOKS)
                && (cancel.load(Ordering::Relaxed) || self.closing.load(Ordering::Relaxed))
            {
                return Err(Error::new(ErrorKind::Stopping, "the compaction was called off"));
            }
            writer.append(cell)
        })?;
        writer.finish(FileMeta {
            max_seq_id: inputs.iter().map(|file| file.max_seq).max(),
            major_compaction: major,
            compacted_from: inputs.iter().map(|file| file.name.clone()).collect(),
            ..FileMeta::default()
        })?;
        Ok(cells)
    }

    /// Whether the oldest file is older than the major period, varied by the file's name so that not all
    /// regions come due together (`RatioBasedCompactionPolicy.shouldPerformMajorCompaction`).
    fn major_is_due(&self, files: &[Arc<StoreFile>], now_ms: i64) -> bool {
        let settings = &self.services.settings;
        let Some(oldest) = files.first() else { return false };
        if settings.major_period_ms <= 0 {
            return false;
        }
        let share = oldest.name.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte)) % 1000;
        let jitter = settings.major_jitter * (share as f64 / 500.0 - 1.0);
        let period = settings.major_period_ms as f64 * (1.0 + jitter);
        let age = now_ms.saturating_sub(oldest.hfile.info().create_time_ms().unwrap_or(now_ms));
        let settled = files.len() == 1 && oldest.is_major();
        age as f64 > period && !settled
    }
}

fn written_by(major: bool) -> WrittenBy {
    if major { WrittenBy::MajorCompaction } else { WrittenBy::MinorCompaction }
}

fn oldest_first(store: &Store) -> Vec<Arc<StoreFile>> {
    store.view().files.iter().rev().cloned().collect()
}

fn choices(files: &[Arc<StoreFile>]) -> Vec<FileChoice> {
    files
        .iter()
        .map(|file| FileChoice {
            len_bytes: file.len_bytes,
            major_only: file.hfile.info().is_excluded_from_minor_compaction(),
        })
        .collect()
}
