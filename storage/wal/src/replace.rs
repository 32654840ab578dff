//! An error of the current file: the log goes on in another one.
//!
//! After a write or sync that failed nobody knows which of the bytes since the last sync are on disk. With
//! [`SyncMode::Fsync`] and [`SyncMode::Remote`] all of them are still in memory: those of the round that failed, and those
//! of rounds that nobody wanted synced (`Writer::kept`). They go back to the front of the append buffer as one round, and
//! whoever drives next gives the log a new file and writes them there: its first sync ends the doubt. Appends go on meanwhile,
//! as far as the buffer has room, and nobody is told anything before the new file is synced.
//!
//! The old file stays, like every closed file, until the regions have flushed what it may hold. An entry may now stand
//! in both files: with the same sequence id and the same cells, so replaying it twice changes nothing.
//!
//! An entry says how much *of its file* was on disk when it was appended (`format.rs`). In another file that number is
//! wrong, and a torn tail would be called corruption. So the checks are made anew ([`reset_checks`]).
//!
//! The next file may have been made before it is needed ([`Wal::keep_spare`]). Then a replacement waits for nothing: not
//! for the making of a file, nor for a roll that is under way.
//!
//! Errors that follow each other without a sync in between are tolerated up to `WalConfig::errors_tolerated`; then the
//! log stops for good (HBase: `hbase.regionserver.logroll.errors.tolerated`). With `Remote` it goes on until they have
//! lasted for [`REMOTE_ERRORS_TIME`]: a DataNode that died is given to new files for a while. With [`SyncMode::Written`]
//! the log stops at the first error: what it has written since the last sync is in no memory of its own.
//!
//! A file with a limit that has no room for a round is no error: the round goes to the next file in the same way.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use halcyon_cell::{Error, Result};
use halcyon_env::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::SyncMode;
use crate::appends::Batch;
use crate::check::Mark;
use crate::format::reset_checks;
use crate::full::{RETRY_PERIOD, is_no_space};
use crate::log::{Wal, Writer};
use crate::new_file::{NewFile, Rolling, not_made};
use crate::roll::{ClosedFile, End};

/// So long a log with files on other machines goes on without a file that can be written.
const REMOTE_ERRORS_TIME: Duration = Duration::from_secs(15);
/// The pause before it tries another file doubles as often, from [`RETRY_PERIOD`] on. On a local disk there is none:
/// what fails there does not heal.
const DOUBLINGS_MAX: u32 = 3;

/// The current file takes no more bytes.
pub(crate) struct Broken {
    pub(crate) error: Error,
    pub(crate) retry_at_ns: u64,
}

/// What takes part in a replacement.
pub(crate) struct Replaced {
    pub(crate) new_file: PathBuf,
    pub(crate) old_file: PathBuf,
}

/// What became of the file that failed.
enum Replacement {
    Done(Replaced),
    /// The log has another file already.
    NotNeeded,
    /// There is no spare file.
    NoFile,
}

/// Errors of files without a sync in between.
#[derive(Default)]
pub(crate) struct Errors {
    count: AtomicU32,
    /// When the first of them was.
    since_ns: AtomicU64,
}

impl Errors {
    /// Counts one; returns how many there are, and for how long.
    fn note(&self, now_ns: u64) -> (u32, u64) {
        let count = self.count.load(Ordering::Relaxed) + 1;
        self.count.store(count, Ordering::Relaxed);
        if count == 1 {
            self.since_ns.store(now_ns, Ordering::Relaxed);
        }
        (count, now_ns.saturating_sub(self.since_ns.load(Ordering::Relaxed)))
    }

    /// A file was synced.
    #[inline]
    pub(crate) fn end(&self) {
        if self.count.load(Ordering::Relaxed) > 0 {
            self.count.store(0, Ordering::Relaxed);
        }
    }
}

impl Wal {
    /// Counts an error of a file. When the log may try another file; `None`: never, it has to stop.
    pub(crate) fn tolerate_error(&self) -> Option<u64> {
        if self.config.sync_mode == SyncMode::Written {
            return None;
        }
        let now_ns = self.env.clock.monotonic_ns();
        let (count, lasting_ns) = self.errors.note(now_ns);
        let is_remote = self.config.sync_mode == SyncMode::Remote;
        let waits = is_remote && lasting_ns < REMOTE_ERRORS_TIME.as_nanos() as u64;
        if count > self.config.errors_tolerated && !waits {
            return None;
        }
        let pause_ns = match count.checked_sub(2) {
            Some(doublings) if is_remote => (RETRY_PERIOD.as_nanos() as u64) << doublings.min(DOUBLINGS_MAX),
            _ => 0,
        };
        Some(now_ns + pause_ns)
    }

    /// Gives back a batch that the current file did not take, and what it has taken since its last sync.
    pub(crate) fn hold_for_replacement(
        &self,
        writer: &mut Writer,
        batch: Batch,
        error: &Error,
        retry_at_ns: u64,
    ) {
        let kept = self.take_kept(writer);
        writer.unsynced = false; // nothing of it is waited for in that file any more
        let mut appends = self.appends.unwatched().lock();
        let waiting = kept.len() + batch.buffer.len();
        tracing::error!(%error, waiting, "the write-ahead log cannot be written; it goes on in a new file");
        appends.give_back_behind(kept, batch);
        appends.broken = Some(Broken { error: error.clone(), retry_at_ns });
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Gives the log a new file if the current one takes no more bytes and it is time to try. *Blocking*.
    pub(crate) fn replace_if_broken(&self) {
        if !self.is_broken.load(Ordering::Relaxed) {
            return;
        }
        let is_due = {
            let appends = self.appends.unwatched().lock();
            appends.broken.as_ref().is_some_and(|broken| self.env.clock.monotonic_ns() >= broken.retry_at_ns)
        };
        if is_due && matches!(self.go_on_in(None), Ok(Replacement::NoFile)) {
            _ = self.replace_holding(&mut self.rolling.lock()); // its error is logged, and told when the log stops
        }
    }

    /// As [`Wal::replace_if_broken`], now. `None` if another thread has done it. The error of a new file that could not be
    /// made; the log has stopped if that was one too many.
    pub(crate) fn replace_holding(&self, rolling: &mut Rolling) -> Result<Option<Replaced>> {
        if !self.is_broken.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut replacement = self.go_on_in(None)?;
        if matches!(replacement, Replacement::NoFile) {
            let made = self.make_file(rolling).map_err(|error| self.not_replaced(error))?;
            replacement = self.go_on_in(Some(made))?;
        }
        match replacement {
            Replacement::Done(replaced) => Ok(Some(replaced)),
            Replacement::NotNeeded | Replacement::NoFile => Ok(None),
        }
    }

    /// Lets a new file, or the spare file, take the place of the one that failed. The spare file is taken under the lock
    /// of the writer: else a newer file could become the current one meanwhile, and the spare file the one after it.
    fn go_on_in(&self, made: Option<NewFile>) -> Result<Replacement> {
        let mut guard = self.writer.lock();
        let writer: &mut Writer = &mut guard;
        let made = made.or_else(|| self.take_fit_spare());
        let (old_file, made) = {
            let mut appends = self.appends.unwatched().lock();
            if appends.stopped.is_some() || appends.broken.is_none() {
                let running = appends.check_running();
                drop(appends);
                drop(guard);
                made.into_iter().for_each(|made| self.put_aside(made));
                return running.map(|()| Replacement::NotNeeded);
            }
            let Some(made) = made else { return Ok(Replacement::NoFile) };
            let mark = Mark::of_new(made.salt);
            if let Err(error) = reset_checks(&mut appends.buffer, self.cipher.is_some(), mark) {
                drop(appends);
                self.fail(&error);
                return Err(error);
            }
            appends.set_mark(made.mark());
            appends.broken = None;
            self.is_broken.store(false, Ordering::Relaxed);
            let path = writer.path.clone();
            // The new file gets what is buffered; that is some of these.
            let unflushed = appends.unflushed.clone();
            let closed =
                ClosedFile { path: path.clone(), bytes: writer.file().len(), unflushed, end: End::Missing };
            self.files.lock().push(closed);
            (path, made)
        };
        assert!(
            writer.kept.is_empty() && !writer.unsynced,
            "what the old file did not take is in the buffer"
        );
        let new_file = made.path.clone();
        let (old, _) = writer.go_on_in(made);
        writer.repeats_unsynced = true;
        self.counters.set_file_bytes(writer.file().len());
        drop(guard);
        self.counters.replaced();
        tracing::warn!(old = %old_file.display(), new = %new_file.display(), "the write-ahead log has a new file");
        drop(old); // abandoned: nothing that is in memory only is asked of it any more
        Ok(Replacement::Done(Replaced { new_file, old_file }))
    }

    /// A full disk is no error that counts: appends wait until there is space.
    fn not_replaced(&self, error: io::Error) -> Error {
        let no_space = is_no_space(&error);
        let error = not_made(error);
        let retry_at_ns = if no_space {
            Some(self.env.clock.monotonic_ns() + RETRY_PERIOD.as_nanos() as u64)
        } else {
            self.tolerate_error()
        };
        let Some(retry_at_ns) = retry_at_ns else {
            self.fail(&error);
            return error;
        };
        tracing::error!(%error, "a new file of the write-ahead log cannot be made; it is tried again");
        let mut appends = self.appends.unwatched().lock();
        if no_space {
            self.refuse_appends(&mut appends, &error);
        }
        if let Some(broken) = &mut appends.broken {
            broken.retry_at_ns = retry_at_ns;
        }
        error
    }

    /// The error of a log that has lost its file and has no other yet.
    pub(crate) fn broken(&self) -> Option<Error> {
        let appends = self.appends.unwatched().lock();
        let broken = appends.broken.as_ref()?;
        Some(broken.error.clone().context("the log has no file that can be written"))
    }

    /// Makes the next file now, so that the next roll or replacement finds it: with a file system where that takes
    /// long. One that is there is made anew if a machine of it has failed, or if it can have more copies by now. Does nothing unless
    /// [`WalConfig::keeps_spare`](crate::WalConfig), and for a while after an error: a second, and twice as long after each
    /// one that follows. Removes files of lost races. *Blocking*.
    pub fn keep_spare(&self) -> Result<()> {
        if !self.config.keeps_spare {
            return Ok(());
        }
        self.remove_useless();
        self.discard_unfit_spare();
        if self.spare_file.lock().is_some() {
            return Ok(());
        }
        let mut rolling = self.rolling.lock();
        self.appends.unwatched().lock().check_running()?;
        if !rolling.spare_pause.is_over(self.env.clock.monotonic_ns()) {
            return Ok(());
        }
        let made = self.make_file(&mut rolling);
        if made.is_err() {
            rolling.spare_pause.begin(self.env.clock.monotonic_ns());
        }
        self.put_aside(made.map_err(not_made)?);
        Ok(())
    }

    /// A new file. Of one that could not be made nothing stays.
    fn make_file(&self, rolling: &mut Rolling) -> io::Result<NewFile> {
        let made = rolling.create_file(&self.env, &self.config);
        rolling.take_left().into_iter().for_each(|left| self.note_useless(left));
        made.inspect(|made| self.note_limit(&*made.file))
    }

    /// Deletes a spare file that would be of no use. Nobody else would notice, because nobody writes it; and whoever splits the logs of
    /// this server would have to wait for its machines.
    fn discard_unfit_spare(&self) {
        let NewFile { file, path, .. } = {
            let mut slot = self.spare_file.lock();
            let Some(NewFile { file, .. }) = slot.as_mut() else { return };
            match file.check() {
                Err(error) => tracing::warn!(%error, "the spare log is of no use and is made anew"),
                Ok(()) if file.is_thin() => {
                    tracing::info!("the spare log has fewer copies than it can have and is made anew")
                }
                Ok(()) => return,
            }
            slot.take().expect("it was there")
        };
        drop(file); // abandoned, and sealed if it stays
        self.note_useless(path);
        self.remove_useless();
    }

    /// The spare file, or one that is made now.
    pub(crate) fn take_file(&self, rolling: &mut Rolling) -> io::Result<NewFile> {
        let spare = self.take_fit_spare();
        spare.map_or_else(|| self.make_file(rolling), Ok)
    }

    /// The spare file, unless a machine of it is known to have failed. Then it has no use.
    pub(crate) fn take_fit_spare(&self) -> Option<NewFile> {
        let mut spare = self.spare_file.lock().take()?;
        let Err(error) = spare.file.check() else { return Some(spare) };
        tracing::warn!(%error, "the spare log is of no use");
        drop(spare.file); // abandoned
        self.note_useless(spare.path);
        None
    }

    /// Leaves a file without entries to the next roll or replacement.
    pub(crate) fn put_aside(&self, made: NewFile) {
        let second = {
            let mut spare = self.spare_file.lock();
            if spare.is_none() { spare.replace(made) } else { Some(made) }
        };
        second.into_iter().for_each(|second| self.remove_new_file(second));
    }

    /// Removes a file without entries. It does no harm if it stays.
    pub(crate) fn remove_new_file(&self, NewFile { file, path, .. }: NewFile) {
        if let Err(error) = file.close().and_then(|()| self.env.fs.remove_file(&path)) {
            tracing::warn!(%error, "could not remove a file of the write-ahead log; it is empty");
            self.note_useless(path);
        }
    }
}
