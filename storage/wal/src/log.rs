//! The WAL that is being written: appends and rounds.
//!
//! An append encodes its entry outside any lock and copies it into the append buffer (`appends.rs`). The thread that
//! drives (`drive.rs`) takes the whole buffer, writes it with one call, syncs once if an append asked for it, and runs
//! the completions of the round in append order. Meanwhile the next buffer fills: this is group commit.
//!
//! ```text
//! append ─copy─▶ Appends.buffer ──take──▶ write, fdatasync ──▶ finished ──▶ completions
//!    many threads   (appends lock)          (writer lock)                   (leader lock)
//! ```
//!
//! *Lock order*: next leader, leader, rolling, writer, predecessor, appends, files, finished. Completions run
//! under the leader lock only, so they may append, and may call `drive` (which then returns at once), but not
//! `drive_until`.
//!
//! *Failure*: the first failed write or sync stops the WAL for good. Pending appends fail, later ones are refused, and
//! recovery may or may not find their entries. A write that found no space is no failure: see `full.rs`.

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{CellRef, Error, ErrorKind, Result, SeqId};
use halcyon_env::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use halcyon_env::sync::{Mutex, MutexGuard};
use halcyon_env::{Activity, Env, Holder, Watch, WatchedMutex, WritableFile, invariant};
use halcyon_schema::Durability;

use crate::appends::{Appends, Batch};
use crate::drive::Driving;
use crate::format::{PreparedEntry, is_marker};
use crate::full::{Put, put_or_cut};
use crate::roll::{Files, Predecessor, Rolling};
use crate::stats::Counters;
use crate::{SyncMode, WalConfig, WalStats};

/// An append waits this long for a full buffer to be written before it is refused.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(2);
/// Rounds that an append will write itself to get its entry into a full buffer.
const BUSY_ROUNDS_MAX: usize = 16;
/// A buffer that grew beyond this is given back after its round.
const BUFFER_KEPT_MAX_BYTES: usize = 8 << 20;

static WAIT_FOR_ROOM: Activity = Activity::new("a write waiting for room in the WAL's buffer");

/// One atomic edit of a region: HBase's `WALKey` and `WALEdit`.
#[derive(Clone, Copy)]
pub struct WalEntry<'a> {
    /// Encoded region name (32 hex digits, or meta's number).
    pub region: &'a [u8],
    /// Full table name, `namespace:qualifier` or the bare qualifier in the default namespace.
    pub table: &'a [u8],
    /// Rises strictly within a region. The caller assigns it and appends under one lock.
    pub seq: SeqId,
    pub write_time_ms: i64,
    /// 0 for none.
    pub nonce_group: u64,
    /// 0 for none.
    pub nonce: u64,
    pub cells: &'a [CellRef<'a>],
}

/// Told once when an append is as durable as was asked, or has failed. Runs on the thread that drives the
/// log; should be quick (wake somebody).
pub type Completion = Box<dyn FnOnce(&Result<()>) + Send>;

/// A write-ahead log: one file being written, and older ones waiting for their regions to flush.
///
/// *Thread safety*: every method may be called from any thread. Blocking: `drive`, `roll`, `close` do I/O;
/// `append` does so only if the buffer is full.
pub struct Wal {
    pub(crate) env: Env,
    watch: Watch,
    pub(crate) config: WalConfig,
    pub(crate) driving: Driving,
    pub(crate) rolling: Mutex<Rolling>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) appends: WatchedMutex<Appends>,
    /// As in `appends`.
    buffered: Arc<AtomicUsize>,
    /// Bytes of memory of the buffer that is being written.
    writing: AtomicUsize,
    pub(crate) files: Mutex<Files>,
    /// The file before the current one, while it still has to be brought to disk (see `roll.rs`).
    pub(crate) predecessor: Mutex<Option<Predecessor>>,
    /// Whether `Appends::full` is set, for those who only want to know that.
    pub(crate) is_full: AtomicBool,
    pub(crate) counters: Counters,
}

/// The current file.
pub(crate) struct Writer {
    /// `None` once the log is closed.
    pub(crate) file: Option<Box<dyn WritableFile>>,
    pub(crate) path: PathBuf,
    /// Bytes were written since the last sync.
    pub(crate) unsynced: bool,
    pub(crate) closed: bool,
    spare: Vec<u8>,
}

impl Writer {
    #[inline]
    pub(crate) fn file(&mut self) -> &mut dyn WritableFile {
        &mut **self.file.as_mut().expect("a closed WAL takes no entries, so nobody asks for its file")
    }
}

impl Wal {
    /// Creates the directories of a log and its first file. `Io` if they cannot be made.
    pub fn open(env: Env, config: WalConfig) -> Result<Arc<Wal>> {
        env.fs.create_dir_all(&config.dir)?;
        env.fs.create_dir_all(&config.archive_dir)?;
        Wal::open_in_place(env, config)
    }

    /// As `open`, in directories that are there. A server whose directory was taken away, because it was declared dead,
    /// gets an error and does not make it again.
    pub fn open_in_place(env: Env, config: WalConfig) -> Result<Arc<Wal>> {
        let mut rolling = Rolling::default();
        let (file, path) = rolling.create_file(&env, &config)?;
        let buffered = Arc::new(AtomicUsize::new(0));
        let appends = Appends::new(buffered.clone(), file.len());
        let writer = Writer { file: Some(file), path, unsynced: false, closed: false, spare: Vec::new() };
        Ok(Arc::new(Wal {
            watch: env.watch(),
            env,
            config,
            driving: Driving::default(),
            rolling: Mutex::new(rolling),
            writer: Mutex::new(writer),
            appends: WatchedMutex::new(appends),
            buffered,
            writing: AtomicUsize::new(0),
            files: Mutex::new(Files::default()),
            predecessor: Mutex::new(None),
            is_full: AtomicBool::new(false),
            counters: Counters::default(),
        }))
    }

    /// Puts an entry into the log's buffer; `completion` runs when it is as durable as wanted, for
    /// `AsyncWal` before this returns. After an error it never runs and the entry is not in the log.
    ///
    /// `Stopping` if the log was closed or has failed (the message names the first failure); `Busy` if the
    /// buffer stayed full for about two seconds, or if the disk is full; `Invalid` for an entry without cells.
    pub fn append(&self, entry: &WalEntry<'_>, durability: Durability, completion: Completion) -> Result<()> {
        debug_assert_ne!(durability, Durability::SkipWal, "a write without WAL never reaches it");
        let prepared = PreparedEntry::new(entry)?;
        let mut appends = self.lock_with_room(prepared.len())?;
        let synced_bytes = appends.synced_bytes;
        if !is_marker(entry.cells[0]) {
            appends.note_unflushed(entry.region, entry.seq);
        }
        let was_empty = appends.buffer.is_empty();
        prepared.put(&mut appends.buffer, synced_bytes);
        invariant!(
            was_empty || appends.buffer.len() <= self.config.buffer_max_bytes,
            "the buffer has its limit, unless it holds one entry: {} bytes",
            appends.buffer.len()
        );
        appends.note_buffered();
        let at_once = match durability {
            Durability::SkipWal | Durability::AsyncWal => Some(completion),
            Durability::SyncWal | Durability::FsyncWal => {
                appends.sync_wanted |= self.needs_sync(durability);
                appends.pending.push(completion);
                None
            }
        };
        self.counters.appended(prepared.len());
        drop(appends);
        self.driving.work.notify_one();
        if let Some(completion) = at_once {
            completion(&Ok(()));
        }
        Ok(())
    }

    /// Bytes that were appended and not yet taken to be written.
    #[inline]
    pub fn buffered_bytes(&self) -> usize {
        self.buffered.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the buffers take: the one that fills, and one that is being written.
    pub fn held_bytes(&self) -> usize {
        self.appends.unwatched().lock().buffer.capacity() + self.writing.load(Ordering::Relaxed)
    }

    /// What `SyncWal` means in this log.
    pub fn sync_mode(&self) -> SyncMode {
        self.config.sync_mode
    }

    /// Why the log takes no more appends; `None` while it does.
    pub fn stopped(&self) -> Option<Error> {
        self.appends.unwatched().lock().stopped.clone()
    }

    pub fn stats(&self) -> WalStats {
        let closed = self.files.lock();
        let mut stats = self.counters.stats();
        stats.files_count = closed.count() + 1;
        stats.files_bytes = closed.bytes() + self.counters.file_bytes();
        drop(closed);
        stats.buffered_bytes = self.buffered_bytes();
        stats
    }

    /// The longest sync since the last call of this, in nanoseconds. One observer only.
    pub fn take_sync_longest_ns(&self) -> u64 {
        self.counters.take_sync_longest()
    }

    fn needs_sync(&self, durability: Durability) -> bool {
        durability == Durability::FsyncWal || self.config.sync_mode == SyncMode::Fsync
    }

    /// The append buffer, with room for `len` more bytes. A single entry may be larger than the limit.
    fn lock_with_room(&self, len: usize) -> Result<MutexGuard<'_, Appends>> {
        for _ in 0..BUSY_ROUNDS_MAX {
            let appends = self.lock_appends();
            appends.check_running()?;
            appends.check_space()?;
            if appends.buffer.is_empty() || appends.buffer.len() + len <= self.config.buffer_max_bytes {
                return Ok(appends);
            }
            drop(appends);
            // The caller may hold locks that completions want, so they are left to whoever drives.
            let holder = Holder::me();
            let before = holder.is_at(&WAIT_FOR_ROOM);
            let room = || format!("a full buffer of {} bytes", self.config.buffer_max_bytes);
            let wrote = self.env.stalls.watch(&*self.env.clock, "log-room", room, || {
                let writer = self.writer.try_lock_for(BUSY_WAIT_MAX);
                writer.map(|mut writer| self.write_round(&mut writer, &mut Vec::new()))
            });
            holder.resumes(before);
            if wrote.is_none() {
                break;
            }
            self.wake_driver();
        }
        Err(Error::new(
            ErrorKind::Busy,
            format!("the log's buffer of {} bytes is full", self.config.buffer_max_bytes),
        ))
    }

    fn lock_appends(&self) -> MutexGuard<'_, Appends> {
        let detail = |held_by: &str| {
            format!("the WAL's buffer, held by {held_by}; at work: {}", Holder::activities().join("; "))
        };
        self.appends.lock(&self.watch, "log-append", detail)
    }

    /// Takes the buffer and writes it; false if there was nothing. The completions are left in `finished`. `spare`
    /// is room for those of later appends.
    pub(crate) fn write_round(&self, writer: &mut Writer, spare: &mut Vec<Completion>) -> bool {
        let batch = {
            let mut appends = self.appends.unwatched().lock();
            if !appends.is_due(|| self.env.clock.monotonic_ns()) {
                return false;
            }
            assert!(
                !writer.closed,
                "a closed WAL refuses appends, so nothing is buffered behind its trailer"
            );
            appends.take(mem::take(&mut writer.spare), mem::take(spare))
        };
        let sync = batch.sync_wanted;
        if let Ok(Put::Written) = self.write_batch(writer, batch, false)
            && sync
        {
            assert!(!writer.unsynced, "a round that wanted a sync leaves nothing unsynced");
            self.appends.unwatched().lock().note_synced(writer.file().len());
        } // else the completions are told, or wait for space
        true
    }

    /// Writes a batch, syncs if it or the caller wants that, and queues the completions. A failure stops
    /// the log; if there was no space the batch is back in the append buffer.
    pub(crate) fn write_batch(&self, writer: &mut Writer, mut batch: Batch, sync: bool) -> Result<Put> {
        let sync = sync || batch.sync_wanted;
        self.writing.store(batch.buffer.capacity(), Ordering::Relaxed);
        let result = match self.put(writer, &batch.buffer, sync) {
            Ok(Put::NoSpace(error)) => {
                let error = error.context(writer.path.display());
                self.writing.store(0, Ordering::Relaxed);
                self.hold(batch, &error);
                return Ok(Put::NoSpace(error));
            }
            Ok(Put::Written) => Ok(()),
            Err(error) => Err(error.context(writer.path.display())),
        };
        self.writing.store(0, Ordering::Relaxed);
        match &result {
            Ok(()) => self.note_space(),
            Err(error) => {
                self.stop(error, &mut batch.completions);
            }
        }
        self.counters.set_file_bytes(writer.file().len());
        batch.buffer.clear();
        if batch.buffer.capacity() <= BUFFER_KEPT_MAX_BYTES {
            writer.spare = batch.buffer;
        }
        self.finish(batch.round, batch.completions, &result);
        result.map(|()| Put::Written)
    }

    /// Stops the log outside a round. The completions of what is buffered are left to the driver.
    pub(crate) fn fail(&self, error: &Error) {
        let mut completions = Vec::new();
        let round = self.stop(error, &mut completions);
        self.finish(round, completions, &Err(error.clone()));
        self.wake_driver();
    }

    fn put(&self, writer: &mut Writer, bytes: &[u8], sync: bool) -> Result<Put> {
        if !bytes.is_empty() {
            if let Put::NoSpace(error) = put_or_cut(writer, bytes)? {
                return Ok(Put::NoSpace(error));
            }
            writer.unsynced = true;
            self.counters.wrote();
        }
        if sync && writer.unsynced {
            let begin_ns = self.env.clock.monotonic_ns();
            self.finish_predecessor()?;
            writer.file().sync()?;
            assert!(
                self.predecessor.lock().is_none(),
                "a file is synced after the one before it: recovery would find a hole between them"
            );
            self.counters.synced(self.env.clock.monotonic_ns().saturating_sub(begin_ns));
            writer.unsynced = false;
        }
        Ok(Put::Written)
    }

    /// Refuses all later appends, and gives the waiting ones to the failed round. Returns the round that they were in.
    fn stop(&self, error: &Error, completions: &mut Vec<Completion>) -> u64 {
        let mut appends = self.appends.unwatched().lock();
        if appends.stopped.is_none() {
            tracing::error!(%error, "the write-ahead log has failed; no more appends are taken");
            let message = format!("the write-ahead log stopped when a write failed: {error}");
            appends.stopped = Some(Error::new(ErrorKind::Stopping, message));
        }
        let rest = appends.take(Vec::new(), Vec::new());
        completions.extend(rest.completions);
        rest.round
    }
}
