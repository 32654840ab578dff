//! A disk without space: what the log does until there is some again.
//!
//! A write that finds no space is cut off the file again, and its batch goes back to the front of the append buffer:
//! the file is what it was, and nothing is in doubt. From then on appends are refused with `Busy`, so nothing new
//! begins, and whoever drives tries the same bytes again, at most every [`RETRY_PERIOD`]. The first write that goes
//! through ends it, and the appends that waited are acknowledged then; they are neither lost nor failed.
//!
//! Only a failed *write* is treated so. After a failed sync it is unknown what the disk holds: see `replace.rs`.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::WritableFile;

use crate::appends::{Appends, Batch};
use crate::check::Mark;
use crate::format::reset_checks;
use crate::log::{Wal, Writer};

/// How often it is tried whether there is space again.
pub(crate) const RETRY_PERIOD: Duration = Duration::from_millis(100);

/// Why appends are refused for now.
pub(crate) struct Full {
    refusal: Error,
    since_ns: u64,
    retry_at_ns: u64,
}

/// What became of a batch whose write did not fail for good.
pub(crate) enum Put {
    Written,
    /// The file is as it was before.
    NoSpace(Error),
    /// The file is as it was before, and has no room for the batch.
    TooLarge(Error),
    /// The file takes no more bytes; the log needs another one (`replace.rs`).
    Broken(Error),
}

/// Whether an error says that the disk (or the share of it that is allowed) is full.
pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Whether an error says that a file with a limit has no room. Of others nobody knows what they have then.
pub(crate) fn is_too_large(file: &dyn WritableFile, error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge && file.len_max() < u64::MAX
}

/// Writes all bytes, or leaves the file as it was if there is no space.
pub(crate) fn put_or_cut(writer: &mut Writer, bytes: &[u8], is_compressed: bool) -> Result<Put> {
    let before = writer.file().len();
    let Err(error) = writer.file().write_all(bytes) else {
        let (after, len) = (writer.file().len(), bytes.len());
        let grown =
            if is_compressed { before + 1..=u64::MAX } else { before + len as u64..=before + len as u64 };
        assert!(
            grown.contains(&after),
            "a batch of {len} bytes is appended behind {before}, not up to {after}"
        );
        return Ok(Put::Written);
    };
    if is_too_large(writer.file(), &error) {
        return Ok(Put::TooLarge(error.into()));
    }
    if !is_no_space(&error) {
        return Err(error.into());
    }
    writer.file().truncate(before).map_err(|cut| {
        Error::new(ErrorKind::Io, format!("{error}; what was written could not be cut off again: {cut}"))
    })?;
    assert_eq!(
        writer.file().len(),
        before,
        "what did not fit was cut off, or its retry would follow half an entry"
    );
    Ok(Put::NoSpace(error.into()))
}

impl Wal {
    /// Why appends are refused for now: the disk is full. `None`, cheaply, while there is space. It ends by itself,
    /// driven like everything else.
    #[inline]
    pub fn no_space(&self) -> Option<Error> {
        if !self.is_full.load(Ordering::Relaxed) {
            return None;
        }
        self.appends.unwatched().lock().full.as_ref().map(|full| full.refusal.clone())
    }

    /// Gives a batch back to the append buffer, before what was appended since.
    pub(crate) fn hold(&self, batch: Batch, error: &Error) {
        let mut appends = self.appends.unwatched().lock();
        appends.give_back(batch);
        self.refuse_appends(&mut appends, error);
    }

    /// Until there is space again. It is tried in a while.
    pub(crate) fn refuse_appends(&self, appends: &mut Appends, error: &Error) {
        let now_ns = self.env.clock.monotonic_ns();
        let since_ns = appends.full.as_ref().map_or(now_ns, |full| full.since_ns);
        if appends.full.is_none() {
            let waiting = appends.buffer.len();
            tracing::error!(%error, waiting, "no space for the write-ahead log; writes are refused until there is some");
        }
        let message = format!("the write-ahead log waits for space on the disk: {error}");
        let refusal = Error::new(ErrorKind::Busy, message);
        let retry_at_ns = now_ns + RETRY_PERIOD.as_nanos() as u64;
        appends.full = Some(Full { refusal, since_ns, retry_at_ns });
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// A write went through.
    pub(crate) fn note_space(&self) {
        if !self.is_full.load(Ordering::Relaxed) {
            return;
        }
        if let Some(full) = self.appends.unwatched().lock().full.take() {
            let waited_ns = self.env.clock.monotonic_ns().saturating_sub(full.since_ns);
            tracing::info!(waited_ms = waited_ns / 1_000_000, "there is space for the write-ahead log again");
        }
        self.is_full.store(false, Ordering::Relaxed);
    }

    /// As [`Wal::hold`], for a batch that had been taken together with the accounts of its file: they are among those of closed
    /// files. What was appended since was for another file; it is behind so many bytes, if the old file goes on.
    pub(crate) fn take_back(&self, file: &Path, mark: Mark, batch_len: Option<usize>) {
        let mut appends = self.appends.unwatched().lock();
        appends.set_mark(mark);
        if let Some(batch_len) = batch_len {
            // If the log was abandoned meanwhile, nothing is buffered any more.
            let behind = appends.buffer.get_mut(batch_len..).unwrap_or_default();
            reset_checks(behind, self.cipher.is_some(), mark)
                .expect("the buffer holds whole entries: appends put them there");
        }
        let unflushed = self.files.lock().take_current(file);
        for (region, held) in unflushed {
            appends.merge_unflushed(region, held);
        }
    }
}

impl Appends {
    /// Whether a driver has something to write now.
    pub(crate) fn is_due(&self, now_ns: impl FnOnce() -> u64) -> bool {
        let full = self.full.as_ref().map(|full| full.retry_at_ns);
        let broken = self.broken.as_ref().map(|broken| broken.retry_at_ns);
        !self.buffer.is_empty() && full.max(broken).is_none_or(|retry_at_ns| now_ns() >= retry_at_ns)
    }

    /// `Busy` while the disk is full.
    pub(crate) fn check_space(&self) -> Result<()> {
        self.full.as_ref().map_or(Ok(()), |full| Err(full.refusal.clone()))
    }
}

#[cfg(all(test, not(halcyon_shuttle)))]
mod tests {
    use halcyon_cell::SeqId;
    use halcyon_env::sim::SimFileSystem;

    use super::*;
    use crate::WalConfig;
    use crate::appends::Unflushed;
    use crate::roll::{ClosedFile, End};

    /// A server that was ending itself while a roll found no space panicked.
    #[test]
    fn a_log_that_is_abandoned_takes_nothing_back() {
        let wal = Wal::open(SimFileSystem::new().env(), WalConfig::new("/WALs/s", "/oldWALs", "s")).unwrap();
        let mark = wal.appends.unwatched().lock().mark();
        wal.abandon("a test");
        let path = wal.current_file();
        let closed =
            ClosedFile { path: path.clone(), bytes: 0, unflushed: Unflushed::default(), end: End::Coming };
        wal.files.lock().push(closed);
        wal.take_back(&path, mark, Some(100));
        assert_eq!(wal.buffered_bytes(), 0);
    }

    /// A region was given up and opened again while a roll wrote. The file went on after all, and with it what was last of the region
    /// there: its next edit ended the server.
    #[test]
    fn a_region_that_opens_during_a_roll_begins_anew() {
        let wal = Wal::open(SimFileSystem::new().env(), WalConfig::new("/WALs/s", "/oldWALs", "s")).unwrap();
        let (mark, path) = (wal.appends.unwatched().lock().mark(), wal.current_file());
        wal.appends.unwatched().lock().note_unflushed(b"r", SeqId::new(9));
        let unflushed = std::mem::take(&mut wal.appends.unwatched().lock().unflushed);
        wal.files.lock().push(ClosedFile { path: path.clone(), bytes: 0, unflushed, end: End::Coming });
        wal.region_opened(b"r");
        wal.take_back(&path, mark, None);
        let mut appends = wal.appends.unwatched().lock();
        appends.note_unflushed(b"r", SeqId::new(5));
        assert_eq!(appends.unflushed[&b"r"[..]].max_seq, SeqId::new(9), "the edit before is not flushed");
    }
}
