//! New files, closed files, and when a closed file may go to the archive.
//!
//! Each file knows the last unflushed seq per region. A flush up to or beyond that number, or the region's
//! close, strikes the region out; a closed file with no region left is renamed to `oldWALs`. Marker edits are
//! not counted: nothing is lost with them, and a region without user edits would never be flushed for their
//! sake (HBase: `SequenceIdAccounting`).

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::path::{Path, PathBuf};

use halcyon_cell::{Error, ErrorKind, Result, SeqId};
use halcyon_env::WritableFile;
use halcyon_env::sync::MutexGuard;

use crate::SyncMode;
use crate::appends::{Appends, Unflushed};
use crate::check::Salt;
use crate::format::reset_checks;
use crate::full::Put;
use crate::log::{Wal, Writer};
use crate::new_file::{NewFile, Rolling, is_removed, not_made};
use crate::replace::Replaced;

/// Rounds that a close writes before the last one, if more is buffered than one round takes, or than the file has room for.
const ROUNDS_MAX: usize = 64;

/// What a roll did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollOutcome {
    /// The file that takes appends from now on.
    pub new_file: PathBuf,
    /// The file that was closed.
    pub old_file: PathBuf,
    /// Where the files went that were no longer needed.
    pub archived: Vec<PathBuf>,
}

fn is_thin(writer: MutexGuard<'_, Writer>) -> bool {
    writer.file.as_ref().is_some_and(|file| file.is_thin())
}

/// Closed files that are not archived, oldest first, and the one that a roll writes its last round to.
#[derive(Default)]
pub(crate) struct Files {
    closed: VecDeque<ClosedFile>,
}

/// What became of a switch to a new file.
enum Switched {
    /// From the file of this path.
    From(PathBuf),
    /// The old file failed, and the log needs a replacement before it can roll.
    Broken(Error),
}

/// The file before the current one, not yet on disk.
pub(crate) struct Predecessor {
    /// `None` once it is closed.
    file: Option<Box<dyn WritableFile>>,
    path: PathBuf,
    salt: Salt,
    failed: Option<Error>,
}

pub(crate) struct ClosedFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) unflushed: Unflushed,
    pub(crate) end: End,
}

/// How a closed file has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It gets its last round, or is being ended, and stays where it is until then: its writer knows it by its path.
    Coming,
    /// With its trailer.
    Whole,
    /// It failed, or its end did. Where files have one writer it may be open, and would be so for ever.
    Missing,
}

impl Wal {
    /// Starts a new file, closes the old one and brings it to disk. Archives the closed files that hold no
    /// unflushed edits. If more is buffered than one round takes, the new file gets the rest.
    ///
    /// `Io` if the new file cannot be made, `Busy` if there is no space for what is still to go to the old one: the log
    /// goes on with the old one. Any failure after that stops the log. `Stopping` if it is stopped already.
    pub fn roll(&self) -> Result<RollOutcome> {
        let rolled = self.roll_holding(&mut self.rolling.lock());
        rolled.map(|rolled| self.outcome_of(rolled))
    }

    /// Rolls if the current file and what the next round adds to it have reached the size for that, or if the file has too few
    /// copies. Cheap otherwise.
    pub fn roll_if_needed(&self) -> Result<Option<RollOutcome>> {
        if !self.is_roll_due() {
            return Ok(None);
        }
        let mut rolling = self.rolling.lock();
        if !self.is_roll_due() {
            return Ok(None); // somebody else has done it
        }
        let rolled = self.roll_holding(&mut rolling);
        drop(rolling);
        rolled.map(|rolled| Some(self.outcome_of(rolled)))
    }

    fn is_roll_due(&self) -> bool {
        let is_large = self.current_bytes() >= self.config.roll_size_bytes;
        let is_remote = self.config.sync_mode == SyncMode::Remote;
        is_large || (is_remote && self.writer.try_lock().is_some_and(is_thin))
    }

    fn outcome_of(&self, Replaced { new_file, old_file }: Replaced) -> RollOutcome {
        RollOutcome { new_file, old_file, archived: self.archive() }
    }

    /// Bytes of the file that takes appends now, with what a roll would write to it.
    pub fn current_bytes(&self) -> u64 {
        self.counters.file_bytes() + self.next_round_bytes()
    }

    fn roll_holding(&self, rolling: &mut Rolling) -> Result<Replaced> {
        {
            let appends = self.appends.unwatched().lock();
            appends.check_running()?;
            appends.check_space()?;
        }
        if let Some(replaced) = self.replace_holding(rolling)? {
            self.wake_driver();
            return Ok(replaced); // which is as good as a roll
        }
        let file = self.take_file(rolling).map_err(not_made)?;
        let (new_file, mut file) = (file.path.clone(), Some(file));
        let switched = self.switch_to(&mut file);
        // It wrote what was buffered. The completions are left to the driver, also if it failed: a thread that waits for
        // its append would sleep on.
        self.wake_driver();
        let old_file = match (switched, file) {
            (Ok(Switched::From(old_file)), _) => old_file,
            (Ok(Switched::Broken(error)), file) => {
                file.into_iter().for_each(|file| self.put_aside(file));
                let replaced = self.replace_holding(rolling)?;
                self.wake_driver();
                return replaced.ok_or(error);
            }
            (Err(error), file) => {
                file.into_iter().for_each(|file| self.remove_new_file(file));
                return Err(error);
            }
        };
        self.counters.rolled();
        if let Err(error) = self.finish_predecessor() {
            self.fail(&error);
            return Err(error);
        }
        Ok(Replaced { new_file, old_file })
    }

    /// Moves the closed files that hold no unflushed edits to the archive now, without a roll. Returns their
    /// new paths. A file that cannot be moved is logged and tried again next time.
    pub fn archive(&self) -> Vec<PathBuf> {
        let _archiving = self.archiving.lock();
        self.remove_useless();
        let flushed: Vec<(PathBuf, End)> = {
            let files = self.files.lock();
            let flushed = files.closed.iter().filter(|file| file.unflushed.is_empty());
            let ended = flushed.filter(|file| file.end != End::Coming);
            ended.map(|file| (file.path.clone(), file.end)).collect()
        };
        let mut archived = Vec::new();
        for (path, end) in flushed {
            let target = self.config.archive_dir.join(path.file_name().unwrap_or_default());
            let sealed = if end == End::Missing { self.env.fs.seal(&path) } else { Ok(()) };
            let moved = sealed.and_then(|()| self.env.fs.rename(&path, &target));
            // A rename of before may have been done although it said otherwise.
            if let Err(error) = moved.or_else(|error| self.env.fs.resolve_rename(&path, &target, error)) {
                tracing::warn!(%error, "could not archive a log");
                continue;
            }
            self.files.lock().remove_flushed(&path);
            archived.push(target);
        }
        if !archived.is_empty() {
            let dirs = [&self.config.archive_dir, &self.config.dir];
            if let Err(error) = dirs.into_iter().try_for_each(|dir| self.env.fs.sync_dir(dir)) {
                tracing::warn!(%error, "could not sync the directories of archived logs");
            }
        }
        archived
    }

    /// A file of this log has no use, and would be in the way of whoever reads the log when it is over: it is removed soon.
    pub(crate) fn note_useless(&self, path: PathBuf) {
        self.useless.lock().push(path);
    }

    /// Removes files without use. What cannot be removed is tried again next time. *Blocking*.
    pub(crate) fn remove_useless(&self) {
        let paths = self.useless.lock().clone();
        for path in paths {
            let removed = self.env.fs.remove_file(&path);
            if is_removed(&removed) {
                self.useless.lock().retain(|useless| *useless != path);
            } else if let Err(error) = removed {
                tracing::warn!(%error, "could not remove a file of the write-ahead log that has no use; it is tried again");
            }
        }
    }

    /// Files of the log that are still there and have no use, among them those that have lost a race: their entries are
    /// in other files, where others follow them. Whoever sends entries to others passes over these.
    pub fn useless_files(&self) -> Vec<PathBuf> {
        self.useless.lock().clone()
    }

    /// The region begins to append here. Nothing has to be known of it before its first edit; edits of an
    /// earlier stay that was given up are kept until a flush reaches them.
    pub fn region_opened(&self, region: &[u8]) {
        tracing::trace!(region = %region.escape_ascii(), "region appends to this log");
        let mut appends = self.appends.unwatched().lock();
        // The edits of a file that gets its last round may become those of the current one again.
        let mut files = self.files.lock();
        let coming = files.closed.iter_mut().filter(|file| file.end == End::Coming);
        let accounts = coming.map(|file| &mut file.unflushed).chain([&mut appends.unflushed]);
        for held in accounts.filter_map(|unflushed| unflushed.get_mut(region)) {
            held.last_seq = SeqId::ZERO; // the opening counts from what is in files
        }
    }

    /// All edits of the region up to and with `up_to_seq` are in HFiles whose names are durable.
    pub fn flushed(&self, region: &[u8], up_to_seq: SeqId) {
        self.strike_out(region, up_to_seq);
    }

    /// The region was closed after a last flush. Not to be called when it was given up with edits unflushed.
    pub fn region_closed(&self, region: &[u8]) {
        self.strike_out(region, SeqId::MAX);
    }

    /// The regions to flush so that the oldest files can go: the oldest one if there are more than `files_count_max`, and as many
    /// as it takes until all files together have no more than `bytes_max`. The current file cannot go without a roll.
    pub fn regions_holding_oldest(&self, bytes_max: u64) -> Vec<Vec<u8>> {
        let current_bytes = self.counters.file_bytes() + self.buffered_bytes() as u64;
        let files = self.files.lock();
        let mut bytes = current_bytes + files.bytes();
        let is_one_too_many = files.count() >= self.config.files_count_max;
        let mut regions = BTreeSet::new();
        for (at, file) in files.closed.iter().enumerate() {
            if bytes <= bytes_max && !(is_one_too_many && at == 0) {
                break;
            }
            regions.extend(file.unflushed.keys().map(|region| region.to_vec()));
            bytes -= file.bytes;
        }
        regions.into_iter().collect()
    }

    /// Path of the file that takes appends now.
    pub fn current_file(&self) -> PathBuf {
        self.writer.lock().path.clone()
    }

    /// The file that takes appends now, and how many of its first bytes hold entries that are as durable as `SyncWal`
    /// asks for: what may leave the server (HBase: `WALFileLengthProvider`). `None` once the log is closed, and
    /// while the file before is not on disk, or has entries behind its last sync that are in no other file yet.
    pub fn acknowledged(&self) -> Option<(PathBuf, u64)> {
        let mut writer = self.writer.lock();
        writer.file.as_ref()?;
        if writer.repeats_unsynced {
            return None;
        }
        let written_is_enough = self.config.sync_mode == SyncMode::Written;
        if !written_is_enough && self.predecessor.try_lock().is_none_or(|predecessor| predecessor.is_some()) {
            return None;
        }
        let written = writer.file().len();
        let bytes = {
            let appends = self.appends.unwatched().lock();
            // A round that failed may be in the file, and may be there for its readers.
            let has_failed = appends.broken.is_some() || appends.stopped.is_some();
            let is_whole = written_is_enough || !(writer.unsynced || has_failed);
            if is_whole { written } else { appends.synced_bytes }
        };
        assert!(bytes <= written, "{bytes} bytes are acknowledged, and {written} are written");
        Some((writer.path.clone(), bytes))
    }

    /// Writes and syncs what was appended, ends the file with its trailer, runs all completions, and archives
    /// the files that hold no unflushed edits. Appends are refused from the start. Closing twice is fine.
    /// The error of the last write or sync, if there was one.
    pub fn close(&self) -> Result<()> {
        let result = self.close_file();
        self.drive(); // the last completions
        self.remove_useless();
        result?;
        self.archive();
        Ok(())
    }

    fn close_file(&self) -> Result<()> {
        let mut rolling = self.rolling.lock();
        _ = self.replace_holding(&mut rolling); // an error is told below
        self.write_what_needs_files(&mut rolling);
        let spare = self.spare_file.lock().take();
        spare.into_iter().for_each(|spare| self.remove_new_file(spare));
        let mut writer = self.writer.lock();
        if writer.closed {
            return Ok(());
        }
        writer.closed = true;
        let (unflushed, failed) = {
            let mut appends = self.appends.unwatched().lock();
            let failed = appends.stopped.clone();
            appends.stopped.get_or_insert_with(|| Error::new(ErrorKind::Stopping, "the log is closed"));
            (mem::take(&mut appends.unflushed), failed)
        };
        if let Some(error) = failed {
            return Err(error);
        }
        if let Err(error) = self.write_last_rounds(&mut writer) {
            // Nobody will try again: what waits is told so.
            let rest = self.appends.unwatched().lock().take_all();
            self.finish(rest.round, rest.completions, &Err(error.clone()));
            return Err(error);
        }
        assert_eq!(
            self.buffered_bytes(),
            0,
            "a closed WAL takes nothing, so nothing is behind its last round"
        );
        let mut file = writer.file.take().expect("a WAL is closed once");
        file.write_all(&writer.salt.trailer())?;
        file.sync()?;
        let path = writer.path.clone();
        let closed = ClosedFile { path: path.clone(), bytes: file.len(), unflushed, end: End::Coming };
        self.counters.set_file_bytes(0);
        self.files.lock().push(closed);
        let ended = file.close();
        self.files.lock().end(&path, if ended.is_ok() { End::Whole } else { End::Missing });
        Ok(ended?)
    }

    /// Before the last file is closed: writes what it has no room for to others.
    fn write_what_needs_files(&self, rolling: &mut Rolling) {
        for _ in 0..ROUNDS_MAX {
            let mut writer = self.writer.lock();
            let (rounds_count, bytes) = {
                let appends = self.appends.unwatched().lock();
                (appends.rounds_count(), appends.buffer.len())
            };
            if writer.closed || (rounds_count <= 1 && writer.has_room(bytes)) {
                return;
            }
            let wrote = self.write_round(&mut writer, &mut Vec::new());
            drop(writer);
            let has_new_file = matches!(self.replace_holding(rolling), Ok(Some(_)));
            if !wrote && !has_new_file {
                return; // what is left fails
            }
        }
    }

    /// Writes what is buffered and syncs the file.
    fn write_last_rounds(&self, writer: &mut Writer) -> Result<()> {
        if let Some(error) = self.broken() {
            return Err(error);
        }
        loop {
            let (batch, is_last) = {
                let mut appends = self.appends.unwatched().lock();
                (appends.take(Vec::new(), Vec::new()), appends.rounds_count() == 0)
            };
            match self.write_batch(writer, batch, true, false)? {
                Put::Written if is_last => return Ok(()),
                Put::Written => {}
                Put::NoSpace(error) | Put::TooLarge(error) | Put::Broken(error) => return Err(error),
            }
        }
    }

    /// Lets the new file, which is taken, take the place of the old one.
    ///
    /// With `Fsync` and `Remote` the old file's bytes are on disk by then, so that a log never has a hole. With `Written`
    /// a whole file may be unsynced, and appends would wait a long time; so that is done after the switch, by
    /// the roll or by the first round that wants a sync, whichever comes first.
    ///
    /// The old file gets one round, and the new one what is behind it. With a slow codec a round takes seconds, in which nothing
    /// is acknowledged, and appends may come faster than rounds are written: until the old file had all of them (of up to 64 rounds)
    /// clients waited for two minutes, and then the roll failed.
    fn switch_to(&self, new: &mut Option<NewFile>) -> Result<Switched> {
        let mut guard = self.writer.lock();
        let writer: &mut Writer = &mut guard;
        let busy = |error: Error| Error::new(ErrorKind::Busy, error.context("cannot roll").message());
        let (batch, mark) = {
            let mut appends = self.appends.unwatched().lock();
            appends.check_running()?;
            if let Some(broken) = &appends.broken {
                return Ok(Switched::Broken(busy(broken.error.clone()))); // since the roll began
            }
            let mark = appends.mark();
            let batch = appends.take(Vec::new(), Vec::new());
            // What is behind it and what is appended from here on goes to the new file, of which the header is on disk.
            appends.set_mark(new.as_ref().expect("it was just made").mark());
            let unflushed = self.leave_rest(&mut appends);
            // From now on, so that what is flushed during the write is struck out here.
            let closed = ClosedFile { path: writer.path.clone(), bytes: 0, unflushed, end: End::Coming };
            self.files.lock().push(closed);
            (batch, mark)
        };
        if self.config.sync_mode == SyncMode::Remote {
            self.room.notify_all();
        }
        assert!(!writer.closed, "a closed WAL is not rolled");
        let batch_len = batch.buffer.len();
        let sync = self.config.sync_mode != SyncMode::Written;
        match self.write_batch(writer, batch, sync, false) {
            Ok(Put::Written) => {}
            Ok(Put::NoSpace(error)) => {
                self.take_back(&writer.path, mark, Some(batch_len));
                return Err(busy(error));
            }
            Ok(Put::TooLarge(error) | Put::Broken(error)) => {
                self.take_back(&writer.path, mark, None); // all of it goes to the file that replaces this one
                return Ok(Switched::Broken(busy(error)));
            }
            Err(error) => {
                self.take_back(&writer.path, mark, None); // nothing is buffered, and nothing will be
                return Err(error);
            }
        }
        assert!(!(sync && writer.unsynced), "with fsync a file is on disk before the next one takes entries");
        let (bytes, salt) = (writer.file().len(), writer.salt);
        let (old, old_path) = writer.go_on_in(new.take().expect("it was not given to anybody"));
        writer.unsynced = false;
        let predecessor = Predecessor { file: old, path: old_path.clone(), salt, failed: None };
        let before = self.predecessor.lock().replace(predecessor);
        assert!(
            before.is_none(),
            "a roll finishes its old file, or fails the WAL: two unsynced files are never left"
        );
        self.counters.set_file_bytes(writer.file().len());
        self.files.lock().set_bytes(&old_path, bytes); // it is ended without the lock of the writer
        Ok(Switched::From(old_path))
    }

    /// What is buffered was appended for the old file and goes to another one. Returns the edits of the old one that are not flushed;
    /// those that it does not have are among them, as after a replacement.
    fn leave_rest(&self, appends: &mut Appends) -> Unflushed {
        if appends.buffer.is_empty() {
            return mem::take(&mut appends.unflushed);
        }
        let mark = appends.mark();
        reset_checks(&mut appends.buffer, self.cipher.is_some(), mark)
            .expect("the buffer holds whole entries: appends put them there");
        appends.unflushed.clone()
    }

    /// Brings the previous file to disk and ends it with its trailer, if that is still to be done.
    pub(crate) fn finish_predecessor(&self) -> Result<()> {
        let mut guard = self.predecessor.lock();
        let Some(predecessor) = guard.as_mut() else { return Ok(()) };
        if let Some(error) = &predecessor.failed {
            return Err(error.clone()); // a second sync would say `Ok` about bytes that are gone
        }
        let mut file = predecessor.file.take().expect("only a file that failed stays here");
        // With the other modes it was synced before the next file took entries.
        if self.config.sync_mode == SyncMode::Written
            && let Err(error) = file.sync()
        {
            return Err(predecessor.failed.insert(error.into()).clone());
        }
        // Only now, because a trailer says that all before it is on disk. It may be lost itself. All entries are there
        // whether the file ends well or not.
        let ended = file.write_all(&predecessor.salt.trailer()).and_then(|()| file.close());
        if let Err(error) = &ended {
            tracing::warn!(%error, "could not end a log with its trailer");
        }
        self.files.lock().end(&predecessor.path, if ended.is_ok() { End::Whole } else { End::Missing });
        *guard = None;
        Ok(())
    }

    fn strike_out(&self, region: &[u8], up_to_seq: SeqId) {
        let mut appends = self.appends.unwatched().lock();
        strike(&mut appends.unflushed, region, up_to_seq);
        for file in &mut self.files.lock().closed {
            strike(&mut file.unflushed, region, up_to_seq);
        }
    }
}

impl Files {
    pub(crate) fn push(&mut self, file: ClosedFile) {
        self.closed.push_back(file);
    }

    pub(crate) fn count(&self) -> usize {
        self.closed.len()
    }

    /// The file at `path` has so many bytes before its trailer.
    fn set_bytes(&mut self, path: &Path, bytes: u64) {
        let coming = self.closed.iter_mut().rev().find(|file| file.path == path);
        coming.expect("a file stays here until it is ended and archived").bytes = bytes;
    }

    /// The file at `path` is the current one after all. Returns its edits that are not flushed.
    pub(crate) fn take_current(&mut self, path: &Path) -> Unflushed {
        let at = self.closed.iter().rposition(|file| file.path == path && file.end == End::Coming);
        let file = at.and_then(|at| self.closed.remove(at)).expect("it is not archived before it is ended");
        file.unflushed
    }

    /// The file at `path` was ended, or cannot be.
    fn end(&mut self, path: &Path, end: End) {
        let ended = self.closed.iter_mut().filter(|file| file.path == path);
        ended.for_each(|file| file.end = end);
    }

    /// The file at `path` is in the archive.
    fn remove_flushed(&mut self, path: &Path) {
        let Some(at) = self.closed.iter().position(|file| file.path == path) else { return };
        let file = self.closed.remove(at).expect("it was found there");
        assert!(file.end != End::Coming, "{} is archived while it is being ended", path.display());
        assert!(
            file.unflushed.is_empty(),
            "{} is archived with edits of {} regions that are only in memory",
            path.display(),
            file.unflushed.len()
        );
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.closed.iter().map(|file| file.bytes).sum()
    }
}

fn strike(unflushed: &mut Unflushed, region: &[u8], up_to_seq: SeqId) {
    if unflushed.get(region).is_some_and(|held| held.max_seq <= up_to_seq) {
        unflushed.remove(region);
    }
}
