//! Flush: what is in memory becomes one HFile per family, or one for each of its stripes.
//!
//! ```text
//! update lock, exclusive: every store's active segment and pipeline -> snapshot; a sequence id is taken
//! wait until everything up to that id is published (and so is in the log)
//! nonces of the writes up to that id are kept in a file (`replayed_nonces.rs`)
//! per store: snapshot -> matcher -> HFile in .tmp (by stripes: several), synced -> commit door
//!            large values of MOB families -> mob file, in its place before the commit (`mob/`)
//! answers of operations with a nonce that the files lack are kept beside the nonces (`answers.rs`)
//! the log learns the sequence id
//! ```
//!
//! If a step fails the segments stay in the snapshot, where readers find them, and the next flush takes them
//! along. *Crash safety*: until the commit of a file its edits are in the log; afterwards replay passes over
//! them by the file's sequence id.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use halcyon_cell::{Error, Key, ReadPoint, Result, SeqId};
use halcyon_env::{contained, invariant};
use halcyon_hfile::FileMeta;
use halcyon_schema::mob::MOB_FILE_REFS;

use crate::activity;
use crate::edits_dir::RECOVERED_EDITS;
use crate::mob::MobOutputs;
use crate::region::Region;
use crate::scan::matcher::Matcher;
use crate::scan::source::Heap;
use crate::store::{Commit, Cut, Outputs, Part, Store, StoreFile, Written, WrittenBy};
use crate::store_hooks::{FAILURES_MAX, Hooked, RewriteKind, Stage, Walk};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushOutcome {
    /// Whether a file was written.
    pub flushed: bool,
    /// Everything up to this sequence id is in files (of the flushed families).
    pub seq: SeqId,
    /// Bytes of the files written.
    pub bytes: u64,
    pub compaction_wanted: bool,
}

impl Region {
    /// Writes out the given families, or all. *Blocking*; one flush of a region at a time.
    pub fn flush(&self, families: Option<&[Bytes]>) -> Result<FlushOutcome> {
        let _open = self.enter()?;
        self.flush_stores(families)
    }

    /// As [`Region::flush`]; `None`, with nothing done, while another one is running. *Blocking* for its own work alone: who waits for the
    /// other one asks [`Region::when_flush_ends`].
    pub fn try_flush(&self, families: Option<&[Bytes]>) -> Result<Option<FlushOutcome>> {
        let _open = self.enter()?;
        self.flush_unless_running(families, true)
    }

    pub(crate) fn flush_stores(&self, families: Option<&[Bytes]>) -> Result<FlushOutcome> {
        let outcome = self.flush_unless_running(families, false)?;
        Ok(outcome.expect("it waits for the others"))
    }

    fn flush_unless_running(
        &self,
        families: Option<&[Bytes]>,
        gives_up: bool,
    ) -> Result<Option<FlushOutcome>> {
        if gives_up && self.is_flushing() {
            return Ok(None);
        }
        let hooks = self.store_hooks.get().filter(|_| !self.is_secondary());
        if let Some(hooks) = hooks {
            hooks.before_flush().or_else(|error| self.note_hooks_failed(error))?;
        }
        // Hooks that were told of a flush see one.
        let taken = match gives_up && hooks.is_none() {
            true => self.flushing.try_lock(),
            false => Some(self.flushing.lock()),
        };
        let Some(flushing) = taken else { return Ok(None) };
        let outcome = self.flush_locked(families)?;
        if families.is_none() {
            flushing.note(outcome);
        }
        drop(flushing);
        if let Some(hooks) = hooks {
            hooks.after_flush();
        }
        Ok(Some(outcome))
    }

    /// A number for [`Region::flushed_since`].
    pub fn flushes_begun(&self) -> u64 {
        self.flushing.begun()
    }

    /// What a flush of all families did that began since `flushes_begun` said that number, and has ended well: what was acknowledged
    /// before is in files.
    pub fn flushed_since(&self, begun: u64) -> Option<FlushOutcome> {
        self.flushing.done_since(begun)
    }

    /// Has `ended` called when what `is_flushing` tells of is over, by whoever ends it. False, and it is not called, if that is over.
    pub fn when_flush_ends(&self, ended: impl FnOnce() + Send + 'static) -> bool {
        self.flushing.when_free(ended)
    }

    /// As `flush_stores`. `flushing` is held.
    pub(crate) fn flush_locked(&self, families: Option<&[Bytes]>) -> Result<FlushOutcome> {
        if let Some(families) = families {
            for family in families {
                self.store_or_error(family)?;
            }
        }
        if self.is_secondary() {
            return Ok(FlushOutcome::default()); // it has nothing in memory
        }
        let chosen: Vec<&Store> = self
            .stores
            .iter()
            .filter(|store| families.is_none_or(|families| families.contains(store.family.name())))
            .collect();
        let seq = {
            let _updates = self.updates_alone(&activity::BEGIN_FLUSH);
            for store in &chosen {
                store.begin_snapshot(&self.services.chunks);
            }
            self.mvcc.take_number()
        };
        self.mvcc.wait_for(seq, || {
            self.services.wal.drive_or_wake();
            self.check_log_space()
        })?;
        assert!(
            self.mvcc.read_point().sees(seq) && seq <= self.mvcc.last(),
            "what goes into a file is published: a crash leaves the file, and perhaps not the log's last entries"
        );
        // Before the log may let go of the entries that they stand in.
        let edits_dir = self.dir.join(RECOVERED_EDITS);
        self.fresh_nonces.keep(self.place(), &edits_dir, seq, self.oldest_nonce_ms(), None)?;
        let mut outcome = FlushOutcome { seq, ..FlushOutcome::default() };
        for store in &chosen {
            for file in self.flush_store_at(store, seq)? {
                outcome.flushed = true;
                outcome.bytes += file.len_bytes;
            }
        }
        if let Some(news) = self.answers.news() {
            let (oldest_ms, cells) = (self.oldest_nonce_ms(), &news.cells[..]);
            self.fresh_nonces.keep(self.place(), &edits_dir, seq, oldest_ms, Some(cells))?;
            self.answers.note_written(&news);
        }
        assert!(
            chosen.iter().all(|store| store.view().snapshot.is_empty()),
            "the log is told of {seq}, and what is left of a snapshot would be in neither"
        );
        if self.report_flushed(seq, &chosen) {
            self.counters.last_flush_ms.store(self.services.env.clock.now_ms(), Ordering::Relaxed);
        }
        outcome.compaction_wanted = self.compaction_wanted();
        Ok(outcome)
    }

    pub(crate) fn flush_store_at(&self, store: &Store, seq: SeqId) -> Result<Vec<Arc<StoreFile>>> {
        let snapshot = store.view().snapshot.clone();
        if snapshot.is_empty() {
            return Ok(Vec::new());
        }
        let flushed_before = store.max_flushed_seq();
        assert!(
            seq >= flushed_before,
            "files hold edits up to {flushed_before} already; {seq} would pass over newer ones"
        );
        let now_ms = self.services.env.clock.now_ms();
        let mut mobs = self.mobs_of_flush(store, &snapshot, seq, now_ms)?;
        // Nobody has seen these files, and the cells stay in the snapshot.
        let (written, hooked) = self.contained("a flush", || {
            Ok(match self.write_hooked(store, &snapshot, seq, now_ms, &mut mobs)? {
                Some(written) => written,
                None => {
                    mobs = self.mobs_of_flush(store, &snapshot, seq, now_ms)?;
                    let mut kept = Hooked::KeepAll;
                    (self.write_snapshot(store, &snapshot, seq, now_ms, &mut mobs, &mut kept)?, kept)
                }
            })
        })?;
        if let Some(mobs) = &mut mobs {
            mobs.publish()?;
        }
        let paths = written.as_ref().map_or(&[][..], Written::hand_over);
        let commit = Commit { files: paths, flushed: &snapshot, compacted: &[] };
        let open = |path: &std::path::Path| self.open_file(store, path, WrittenBy::Flush);
        let archive_dir = self.archive_dir.join(&*store.family.name_str());
        let files = store.commit(self.place(), &commit, open, &archive_dir)?;
        if let Some(written) = &written {
            written.check(&files);
        }
        if let Some(mobs) = mobs.filter(|mobs| mobs.cells > 0) {
            store.mob.note_flushed(mobs.cells, mobs.bytes);
        }
        hooked.end(&files);
        Ok(files)
    }

    /// An assertion that fails while files are written fails this work, and not the process. *Invariants*: the work changes nothing but
    /// files that nobody has seen.
    pub(crate) fn contained<T>(&self, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        contained(work).unwrap_or_else(|failure| {
            let region = self.info.encoded_name();
            tracing::error!(region, failure, "{what} of a region fails");
            Err(Error::corrupt(format!("{what} of region {}: {failure}", self.info)))
        })
    }

    /// Writes a snapshot as its coprocessors want it. `None`: they have failed, and the flush cannot wait for them: the region closes, or
    /// they have failed too often. A later compaction asks them again.
    fn write_hooked(
        &self,
        store: &Store,
        snapshot: &[Part],
        seq: SeqId,
        now_ms: i64,
        mobs: &mut Option<MobOutputs>,
    ) -> Result<Option<(Option<Written>, Hooked)>> {
        let error = match self.begin_rewrite(store, RewriteKind::Flush) {
            Ok(mut hooked) => match self.write_snapshot(store, snapshot, seq, now_ms, mobs, &mut hooked) {
                Ok(written) => {
                    self.hook_failures.store(0, Ordering::Relaxed);
                    return Ok(Some((written, hooked)));
                }
                Err(error) if matches!(hooked, Hooked::By { has_failed: true, .. }) => error,
                Err(error) => return Err(error),
            },
            Err(error) => error,
        };
        self.note_hooks_failed(error).map(|()| None)
    }

    /// The error, unless the flush has to go on without its coprocessors.
    fn note_hooks_failed(&self, error: Error) -> Result<()> {
        let failures = self.hook_failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < FAILURES_MAX && !self.is_closing() {
            return Err(error);
        }
        let region = self.info.encoded_name();
        tracing::error!(region, failures, %error, "a flush goes on without its coprocessors, which have failed");
        Ok(())
    }

    /// Takes the large values of a flush; `None` where values stay in the store file, whatever their length.
    fn mobs_of_flush(
        &self,
        store: &Store,
        snapshot: &[Part],
        seq: SeqId,
        now_ms: i64,
    ) -> Result<Option<MobOutputs>> {
        if !store.mob.is_on() {
            return Ok(None);
        }
        let newest_ms = snapshot.iter().filter_map(Part::newest_ms).max().unwrap_or(now_ms);
        let options = store.writer_options(&self.table, WrittenBy::Flush, now_ms)?;
        Ok(Some(MobOutputs::new(&store.mob, self.place(), options, newest_ms, seq, false)))
    }

    /// `None`: no cell was left to write.
    fn write_snapshot(
        &self,
        store: &Store,
        snapshot: &[Part],
        seq: SeqId,
        now_ms: i64,
        mobs: &mut Option<MobOutputs>,
        hooked: &mut Hooked,
    ) -> Result<Option<Written>> {
        let sources = snapshot.iter().map(|part| part.source(ReadPoint::NEWEST)).collect();
        let mut heap = Heap::new(store.comparator, sources);
        heap.seek(Key::first_on_row(b"").get())?;
        let keep_above = hooked.keep_above(self.read_points.keep_above(seq));
        let left_out = self.answers.left_out(self.services.env.clock.monotonic_ns());
        let mut matcher = Matcher::minor(hooked.keeping(store), now_ms).keeping_above(keep_above);
        let cut = flush_cut(store, snapshot);
        let target = self.file_target(store, WrittenBy::Flush, now_ms, true)?;
        let mut outputs = Outputs::new(target, cut);
        let family = store.family.name();
        let walk = Walk { heap: &mut heap, matcher: &mut matcher, left_out: &left_out, family };
        self.write_through(hooked, seq, walk, &mut |cell, stage| match stage {
            Stage::Seen { kept: true } => Ok(()),
            Stage::Seen { kept: false } => {
                left_out.note(cell);
                Ok(())
            }
            Stage::Write => {
                invariant!(
                    SeqId::new(cell.seq()) <= seq,
                    "{cell:?} is newer than {seq}: replay would apply it to the file again"
                );
                outputs.note_visited();
                match mobs.as_mut().filter(|mobs| mobs.takes(cell)) {
                    Some(mobs) => outputs.append(mobs.append(cell)?.get()),
                    None => outputs.append(cell),
                }
            }
        })?;
        if outputs.is_empty() {
            return Ok(None);
        }
        if let Some(mobs) = mobs {
            mobs.complete_file()?;
            outputs.append_file_info(MOB_FILE_REFS, mobs.refs.encode());
        }
        // With the files before the last one alone, replay has to repeat what is not in files.
        let before = FileMeta { max_seq_id: Some(store.max_flushed_seq()), ..FileMeta::default() };
        let last = FileMeta { max_seq_id: Some(seq), ..FileMeta::default() };
        outputs.finish(&before, last).map(Some)
    }

    /// Everything up to `seq` of the chosen stores is in files; other stores may still hold older edits. Returns whether none does.
    fn report_flushed(&self, seq: SeqId, chosen: &[&Store]) -> bool {
        assert!(
            chosen.iter().all(|store| store.view().snapshot.is_empty()),
            "the log would forget edits up to {seq} of which some are only in memory"
        );
        let region = self.info.encoded_name().as_bytes();
        let others_are_empty = self
            .stores
            .iter()
            .filter(|store| !chosen.iter().any(|done| std::ptr::eq(*done, *store)))
            .all(|store| store.view().is_memory_empty());
        // Edits that arrived since have numbers above `seq`, so an empty store holds nothing older.
        if others_are_empty {
            self.services.wal.flushed(region, seq);
        }
        others_are_empty
    }
}

/// One file, or one for each stripe that has cells.
fn flush_cut(store: &Store, snapshot: &[Part]) -> Cut {
    let compaction = store.compaction();
    let settings = &compaction.stripes;
    if !store.is_striped() || settings.flush_to_level0 {
        return Cut::nowhere();
    }
    let view = store.view();
    if view.stripes.count() > 0 {
        return Cut::AtRows { starts: view.stripes.starts().to_vec(), always: 0..0 };
    }
    let cells: usize = snapshot.iter().map(|part| part.size().cells_count).sum();
    let cells = (cells / settings.initial_count).max(1) as u64;
    let span = (Bytes::new(), Bytes::new());
    Cut::BySize { span, cells, count_max: settings.initial_count }
}
