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
//! *Lock order*: next leader, leader, rolling, writer, predecessor, appends, files, finished. No lock of the log is taken
//! under those of the spare file and of the useless files, and `archiving` is never held with `rolling`. Completions run under the leader lock
//! only, so they may append, and may call `drive` (which then returns at once), but not `drive_until`.
//!
//! *Failure*: after a failed write or sync the WAL goes on in a new file (`replace.rs`). If that fails too, or if what was
//! written is in no memory, it stops for good: pending appends fail, later ones are refused, and recovery may or may not
//! find their entries. A write that found no space is no failure: see `full.rs`.
//!
//! *Files with a limit* ([`WritableFile::len_max`]): an entry that fits into none is refused, and a round takes no more than
//! fits (`appends.rs`). What does not fit into the rest of a file goes to the next one; and what does not fit into a new one is
//! written in rounds of one entry each. If that is not enough, because later files take less than earlier ones, the log stops: the
//! cells of the entry are in a memstore, whose region can neither show them nor go on without them.

use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cell::{CellRef, Error, ErrorKind, Result, SeqId};
use halcyon_env::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use halcyon_env::sync::{Condvar, Mutex, MutexGuard};
use halcyon_env::{Activity, Env, Holder, Watch, WatchedMutex, WritableFile, invariant};
use halcyon_schema::{ClusterUuid, Compression, Durability};

use crate::appends::{Appends, Batch};
use crate::check::{Mark, SALTED_TRAILER_LEN, Salt};
use crate::cipher::WalCipher;
use crate::drive::Driving;
use crate::format::{PreparedEntry, entry_len_max, entry_lens, is_marker};
use crate::full::{Put, put_or_cut};
use crate::hedge::Lateness;
use crate::new_file::{NewFile, Rolling, not_made};
use crate::replace::Errors;
use crate::roll::{Files, Predecessor};
use crate::stats::Counters;
use crate::{SyncMode, WalConfig, WalStats};

/// An append waits this long for a full buffer to be written before it is refused.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(2);
/// Rounds that an append will write itself to get its entry into a full buffer.
const BUSY_ROUNDS_MAX: usize = 16;
/// A buffer that grew beyond this is given back after its round.
const BUFFER_KEPT_MAX_BYTES: usize = 8 << 20;

/// The headers of a log's files need not have the same length.
const SLACK_BYTES: usize = 1 << 10;

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
    /// Clusters that have the edit already, when it came by replication.
    pub cluster_ids: &'a [ClusterUuid],
    /// Families of the region with `REPLICATION_SCOPE` 1.
    pub replicated: &'a [Bytes],
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
    /// Held over the moves of files to the archive.
    pub(crate) archiving: Mutex<()>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) appends: WatchedMutex<Appends>,
    /// As in `appends`.
    buffered: Arc<AtomicUsize>,
    /// Bytes of memory of the buffer that is being written.
    writing: AtomicUsize,
    /// Those of `Writer::kept`.
    kept: AtomicUsize,
    /// Signalled when a round has taken the buffer, with `Remote`.
    pub(crate) room: Condvar,
    pub(crate) files: Mutex<Files>,
    /// The file before the current one, while it still has to be brought to disk (see `roll.rs`).
    pub(crate) predecessor: Mutex<Option<Predecessor>>,
    /// Whether `Appends::full` is set, for those who only want to know that.
    pub(crate) is_full: AtomicBool,
    /// Whether `Appends::broken` is set.
    pub(crate) is_broken: AtomicBool,
    /// Most bytes of an entry, so that each file takes it that was made so far.
    entry_bytes_max: AtomicU64,
    /// Most cells of an entry.
    entry_cells_max: usize,
    /// Most bytes of a round, if its values have a slow codec.
    round_bytes_max: u64,
    /// Those of files since the last sync.
    pub(crate) errors: Errors,
    /// The next file, if it was made already.
    pub(crate) spare_file: Mutex<Option<NewFile>>,
    /// Files that are to be removed. Not held over I/O.
    pub(crate) useless: Mutex<Vec<PathBuf>>,
    pub(crate) counters: Counters,
    /// If the log is encrypted.
    pub(crate) cipher: Option<Arc<WalCipher>>,
}

/// The current file.
pub(crate) struct Writer {
    /// `None` once the log is closed.
    pub(crate) file: Option<Box<dyn WritableFile>>,
    pub(crate) path: PathBuf,
    pub(crate) salt: Salt,
    /// Where its first entry begins.
    pub(crate) begin: u64,
    /// Bytes were written since the last sync.
    pub(crate) unsynced: bool,
    /// It took the place of a file that failed, and was not synced yet. That one may have entries that are durable nowhere.
    pub(crate) repeats_unsynced: bool,
    /// With `Fsync`: those bytes, at most `WalConfig::kept_max_bytes`.
    pub(crate) kept: Vec<u8>,
    pub(crate) closed: bool,
    pub(crate) lateness: Lateness,
    spare: Vec<u8>,
}

impl Writer {
    #[inline]
    pub(crate) fn file(&mut self) -> &mut dyn WritableFile {
        &mut **self.file.as_mut().expect("a closed WAL takes no entries, so nobody asks for its file")
    }

    /// Lets a file take the place of the current one, which is returned with its path.
    pub(crate) fn go_on_in(&mut self, new: NewFile) -> (Option<Box<dyn WritableFile>>, PathBuf) {
        (self.salt, self.begin) = (new.salt, new.begin);
        (self.file.replace(new.file), mem::replace(&mut self.path, new.path))
    }

    /// Whether its file can have so many bytes more, and a trailer behind them.
    pub(crate) fn has_room(&mut self, bytes: usize) -> bool {
        let file = self.file();
        (bytes + SALTED_TRAILER_LEN) as u64 <= file.len_max().saturating_sub(file.len())
    }

    /// Whether its file has no entries.
    fn is_fresh(&mut self) -> bool {
        self.file().len() == self.begin
    }
}

/// Of files with a limit: the part of their room that an entry may have before it is compressed. Names without a dictionary
/// get longer, and values with a codec by what it adds to each.
fn entry_bytes_max(file: &dyn WritableFile, config: &WalConfig) -> u64 {
    let room = file.len_max().saturating_sub(file.len() + (SALTED_TRAILER_LEN + SLACK_BYTES) as u64);
    match config.compression {
        None => room,
        Some(compression) if compression.values.is_none() => room / 8 * 7,
        Some(compression) => room / compression.values.map_or(1, growth_max),
    }
}

/// How many cells an entry may have, and how many bytes a round: a codec takes some time for each value, however short it is, and what
/// waits for the log waits for a whole round. For values of one byte those of the first line take 50 to 100 µs each, GZ takes 20 and the
/// others 1 to 3 (2026-11-30, a machine with little time): both limits stand for about ten seconds.
fn effort_max(config: &WalConfig) -> (usize, u64) {
    match config.compression.and_then(|compression| compression.values) {
        Some(Compression::Bzip2 | Compression::Lzma | Compression::Brotli) => (100_000, 4 << 20),
        Some(Compression::Gz) => (1_000_000, 32 << 20),
        _ => (usize::MAX, u64::MAX),
    }
}

/// How many times as long an entry may become when its values are compressed.
pub(crate) fn growth_max(values: Compression) -> u64 {
    // A stream of bzip2 with one byte has 37, and the smallest cell has 27.
    if values == Compression::Bzip2 { 3 } else { 2 }
}

impl Wal {
    /// Creates the directories of a log and its first file. `Io` if they cannot be made; `Invalid` if the log is to be
    /// encrypted and there is no key.
    pub fn open(env: Env, config: WalConfig) -> Result<Arc<Wal>> {
        env.fs.create_dir_all(&config.dir)?;
        env.fs.create_dir_all(&config.archive_dir)?;
        Wal::open_in_place(env, config)
    }

    /// As `open`, in directories that are there. A server whose directory was taken away, because it was declared dead,
    /// gets an error and does not make it again.
    pub fn open_in_place(env: Env, config: WalConfig) -> Result<Arc<Wal>> {
        let cipher = WalCipher::of(&env)?;
        // As HBase, which compresses no cell that it encrypts.
        let config = WalConfig { compression: config.compression.filter(|_| cipher.is_none()), ..config };
        let mut rolling = Rolling::new(cipher.clone());
        let NewFile { file, path, salt, begin } = rolling.create_file(&env, &config).map_err(not_made)?;
        let buffered = Arc::new(AtomicUsize::new(0));
        let entry_bytes_max = entry_bytes_max(&*file, &config);
        let (entry_cells_max, round_bytes_max) = effort_max(&config);
        let mark = Mark { salt, synced_bytes: begin };
        let appends = Appends::new(buffered.clone(), mark, round_bytes_max.min(entry_bytes_max));
        let writer = Writer {
            file: Some(file),
            path,
            salt,
            begin,
            unsynced: false,
            repeats_unsynced: false,
            kept: Vec::new(),
            closed: false,
            lateness: Lateness::default(),
            spare: Vec::new(),
        };
        Ok(Arc::new(Wal {
            watch: env.watch(),
            env,
            config,
            driving: Driving::default(),
            rolling: Mutex::new(rolling),
            archiving: Mutex::new(()),
            writer: Mutex::new(writer),
            appends: WatchedMutex::new(appends),
            buffered,
            writing: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            room: Condvar::new(),
            files: Mutex::new(Files::default()),
            predecessor: Mutex::new(None),
            is_full: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
            entry_bytes_max: AtomicU64::new(entry_bytes_max),
            entry_cells_max,
            round_bytes_max,
            errors: Errors::default(),
            spare_file: Mutex::new(None),
            useless: Mutex::new(Vec::new()),
            counters: Counters::default(),
            cipher,
        }))
    }

    /// Puts an entry into the log's buffer; `completion` runs when it is as durable as wanted, for
    /// `AsyncWal` before this returns. After an error it never runs and the entry is not in the log.
    ///
    /// `Stopping` if the log was closed or has failed (the message names the first failure); `Busy` if the
    /// buffer stayed full for about two seconds, or if the disk is full; `Invalid` for an entry without cells, for
    /// one with more than [`crate::APPENDED_LEN_MAX`] bytes of them, for one that no file takes, and for one with more cells than the
    /// codec of the log's values gets through in a while.
    pub fn append(&self, entry: &WalEntry<'_>, durability: Durability, completion: Completion) -> Result<()> {
        debug_assert_ne!(durability, Durability::SkipWal, "a write without WAL never reaches it");
        let prepared = PreparedEntry::new(entry, self.cipher.as_deref())?;
        self.check_fits(prepared.len(), entry.cells.len())?;
        let mut appends = self.lock_with_room(prepared.len())?;
        if !is_marker(entry.cells[0]) {
            appends.note_unflushed(entry.region, entry.seq);
        }
        let was_empty = appends.buffer.is_empty();
        let mark = appends.mark();
        prepared.put(&mut appends.buffer, mark);
        // A completion for each entry, if only one that does nothing, so that a round can be divided.
        let (own, at_once): (Completion, _) = match durability {
            Durability::SkipWal | Durability::AsyncWal => (Box::new(|_| ()), Some(completion)),
            Durability::SyncWal | Durability::FsyncWal => {
                appends.sync_wanted |= self.needs_sync(durability);
                appends.disk_wanted |= durability == Durability::FsyncWal;
                (completion, None)
            }
        };
        appends.note_appended(prepared.len(), own);
        invariant!(
            was_empty || appends.buffer.len() <= self.config.buffer_max_bytes,
            "the buffer has its limit, unless it holds one entry: {} bytes",
            appends.buffer.len()
        );
        self.counters.appended(prepared.len());
        drop(appends);
        self.driving.work.notify_one();
        if let Some(completion) = at_once {
            completion(&Ok(()));
        }
        Ok(())
    }

    /// Whether the log takes an entry with so many cells, and so many bytes of them: to be asked before anything is done for it. Those
    /// of `entry` are not looked at. `Invalid` if not, however often it is tried. What passes here is not refused later for what it is.
    pub fn check_entry(&self, entry: &WalEntry<'_>, cells_bytes: usize, cells_count: usize) -> Result<()> {
        let len = entry_len_max(entry, cells_bytes, cells_count, self.cipher.is_some())?;
        self.check_fits(len, cells_count)
    }

    fn check_fits(&self, entry_bytes: usize, cells_count: usize) -> Result<()> {
        if cells_count > self.entry_cells_max {
            return Err(Error::invalid(format!(
                "a write of {cells_count} cells has more than an entry of the write-ahead log may have where their values are \
                 compressed in this way, {} (hbase.regionserver.wal.value.compression.type)",
                self.entry_cells_max
            )));
        }
        let bytes_max = self.entry_bytes_max.load(Ordering::Relaxed);
        if entry_bytes as u64 <= bytes_max {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a write of {entry_bytes} bytes is larger than an entry of the write-ahead log may be, {bytes_max} bytes: a file of it \
             has one block (hbase.regionserver.hlog.blocksize)"
        )))
    }

    /// A file was made. If it takes less than those before it, nothing larger is appended from now on.
    pub(crate) fn note_limit(&self, file: &dyn WritableFile) {
        let bytes_max = entry_bytes_max(file, &self.config);
        let before = self.entry_bytes_max.fetch_min(bytes_max, Ordering::Relaxed);
        if before > bytes_max {
            self.appends.unwatched().lock().lower_round_bytes_max(bytes_max);
        }
        if before > bytes_max + SLACK_BYTES as u64 {
            tracing::warn!(before, now = bytes_max, "new files of the write-ahead log take shorter entries");
        }
    }

    /// Bytes that were appended and not yet taken to be written.
    #[inline]
    pub fn buffered_bytes(&self) -> usize {
        self.buffered.load(Ordering::Relaxed)
    }

    /// Those of them that the next round may take.
    pub(crate) fn next_round_bytes(&self) -> u64 {
        let round_bytes_max = self.round_bytes_max.min(self.entry_bytes_max.load(Ordering::Relaxed));
        round_bytes_max.min(self.buffered_bytes() as u64)
    }

    /// Whether an append of some bytes might have to wait for files on other machines. A look at it, no promise.
    #[inline]
    pub fn may_wait(&self, len: usize) -> bool {
        let buffered = self.buffered_bytes();
        self.config.sync_mode == SyncMode::Remote
            && buffered > 0
            && buffered + len > self.config.buffer_max_bytes
    }

    /// Bytes of memory that the buffers take: the one that fills, one that is being written, and what is not synced.
    pub fn held_bytes(&self) -> usize {
        let filling = self.appends.unwatched().lock().buffer.capacity();
        filling + self.writing.load(Ordering::Relaxed) + self.kept.load(Ordering::Relaxed)
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
        durability == Durability::FsyncWal || self.config.sync_mode != SyncMode::Written
    }

    /// Whether a batch must get to the disks, or to the memory of other machines. `wanted`: by an append of it.
    pub(crate) fn syncs_to_disk(&self, wanted: bool) -> bool {
        wanted || self.config.hsync || self.config.sync_mode != SyncMode::Remote
    }

    /// The append buffer, with room for `len` more bytes. A single entry may be larger than the limit.
    fn lock_with_room(&self, len: usize) -> Result<MutexGuard<'_, Appends>> {
        for _ in 0..BUSY_ROUNDS_MAX {
            let mut appends = self.lock_appends();
            appends.check_running()?;
            appends.check_space()?;
            if appends.buffer.is_empty() || appends.buffer.len() + len <= self.config.buffer_max_bytes {
                return Ok(appends);
            }
            if self.config.sync_mode == SyncMode::Remote {
                // Its files are not the caller's to wait for.
                self.driving.work.notify_one();
                self.room.wait_for(&mut appends, BUSY_WAIT_MAX / BUSY_ROUNDS_MAX as u32);
                continue;
            }
            drop(appends);
            self.replace_if_broken();
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
            if appends.broken.is_some() || !appends.is_due(|| self.env.clock.monotonic_ns()) {
                return false;
            }
            assert!(
                !writer.closed,
                "a closed WAL refuses appends, so nothing is buffered behind its trailer"
            );
            appends.take(mem::take(&mut writer.spare), mem::take(spare))
        };
        if self.config.sync_mode == SyncMode::Remote {
            self.room.notify_all();
        }
        let sync = batch.sync_wanted;
        if let Ok(Put::Written) = self.write_batch(writer, batch, false, true) {
            assert!(!(sync && writer.unsynced), "a round that wanted a sync leaves nothing unsynced");
            if !writer.unsynced {
                self.appends.unwatched().lock().note_synced(writer.file().len());
            }
        } // else the completions are told, or wait for space or another file
        true
    }

    /// Writes a batch, syncs if it or the caller wants that, and queues the completions. If there was no space, or if the
    /// log needs another file, the batch is back in the append buffer. A failure for good stops the log.
    pub(crate) fn write_batch(
        &self,
        writer: &mut Writer,
        mut batch: Batch,
        sync: bool,
        may_race: bool,
    ) -> Result<Put> {
        let sync = sync || batch.sync_wanted;
        self.writing.store(batch.buffer.capacity(), Ordering::Relaxed);
        let put = match &self.config.late_syncs {
            _ if !writer.has_room(batch.buffer.len()) => Ok(Put::TooLarge(is_full(writer))),
            Some(late) if may_race => self.put_racing(late, writer, &mut batch),
            _ => self.put(writer, &batch.buffer, sync, batch.disk_wanted),
        };
        let result = match put {
            Ok(Put::NoSpace(error)) => {
                let error = error.context(writer.path.display());
                self.writing.store(0, Ordering::Relaxed);
                self.hold(batch, &error);
                return Ok(Put::NoSpace(error));
            }
            Ok(Put::TooLarge(error)) => {
                let error = error.context(writer.path.display());
                if self.can_go_to_next(writer, &mut batch) {
                    self.writing.store(0, Ordering::Relaxed);
                    self.hold_for_replacement(writer, batch, &error, self.env.clock.monotonic_ns());
                    return Ok(Put::Broken(error));
                }
                let message = format!("an entry takes more than a file of the write-ahead log: {error}");
                Err(Error::new(ErrorKind::Io, message))
            }
            Ok(Put::Written | Put::Broken(_)) => Ok(()), // `put` knows no broken files
            Err(error) => {
                let error = error.context(writer.path.display());
                if let Some(retry_at_ns) = self.tolerate_error() {
                    self.writing.store(0, Ordering::Relaxed);
                    self.hold_for_replacement(writer, batch, &error, retry_at_ns);
                    return Ok(Put::Broken(error));
                }
                Err(error)
            }
        };
        self.writing.store(0, Ordering::Relaxed);
        match &result {
            Ok(()) => {
                if writer.repeats_unsynced && !writer.unsynced {
                    writer.repeats_unsynced = self.appends.unwatched().lock().is_divided();
                }
                self.note_space();
            }
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

    /// Whether the next files may take a batch for which the current one has no room. If that has nothing else, they get it entry by
    /// entry; one that fits into a file of its own neither is one that none takes.
    fn can_go_to_next(&self, writer: &mut Writer, batch: &mut Batch) -> bool {
        if !writer.is_fresh() {
            return true;
        }
        batch.lens_alone = entry_lens(&batch.buffer, self.cipher.is_some())
            .expect("a round is whole entries: appends put them there");
        batch.lens_alone.len() > 1
    }

    /// Stops the log outside a round. The completions of what is buffered are left to the driver.
    pub(crate) fn fail(&self, error: &Error) {
        let mut completions = Vec::new();
        let round = self.stop(error, &mut completions);
        self.finish(round, completions, &Err(error.clone()));
        self.wake_driver();
    }

    /// Takes no more appends. Those that nobody writes at this moment fail: they are in the file, or partly, or not. The driver
    /// tells them. To be repeated while somebody may write: what finds no space or no file comes back to the buffer.
    pub fn abandon(&self, why: &str) {
        let error = Error::new(ErrorKind::Stopping, format!("the write-ahead log has ended: {why}"));
        self.appends.unwatched().lock().stopped.get_or_insert_with(|| error.clone());
        self.fail(&error);
    }

    fn put(&self, writer: &mut Writer, bytes: &[u8], sync: bool, to_disk: bool) -> Result<Put> {
        if !bytes.is_empty() {
            match put_or_cut(writer, bytes, self.config.compression.is_some())? {
                Put::Written => {}
                not_written => return Ok(not_written),
            }
            writer.unsynced = true;
            self.counters.wrote();
        }
        let sync = sync
            || match self.config.sync_mode {
                SyncMode::Written => false,
                SyncMode::Fsync => writer.kept.len() + bytes.len() > self.config.kept_max_bytes(),
                SyncMode::Remote => true,
            };
        if sync && writer.unsynced {
            self.sync_file(writer, to_disk)?;
        } else if self.config.sync_mode == SyncMode::Fsync {
            self.keep(writer, bytes);
        }
        Ok(Put::Written)
    }

    fn sync_file(&self, writer: &mut Writer, to_disk: bool) -> Result<()> {
        let begin_ns = self.env.clock.monotonic_ns();
        if self.config.sync_mode == SyncMode::Written {
            self.finish_predecessor()?;
            assert!(
                self.predecessor.lock().is_none(),
                "a file is synced after the one before it: recovery would find a hole between them"
            );
        } // else it was synced before this one took entries
        if self.syncs_to_disk(to_disk) { writer.file().sync() } else { writer.file().flush() }?;
        self.counters.synced(self.env.clock.monotonic_ns().saturating_sub(begin_ns));
        writer.unsynced = false;
        writer.kept.clear();
        self.errors.end();
        Ok(())
    }

    /// Keeps what was written and is not synced, for another file if this one fails.
    fn keep(&self, writer: &mut Writer, bytes: &[u8]) {
        writer.kept.extend_from_slice(bytes);
        assert!(
            writer.kept.len() <= self.config.kept_max_bytes(),
            "what is kept has its limit: {} bytes",
            writer.kept.len()
        );
        self.kept.store(writer.kept.capacity(), Ordering::Relaxed);
    }

    /// Takes out what was written and is not synced.
    pub(crate) fn take_kept(&self, writer: &mut Writer) -> Vec<u8> {
        self.kept.store(0, Ordering::Relaxed);
        mem::take(&mut writer.kept)
    }

    /// Refuses all later appends, and gives the waiting ones to the failed round. Returns the round that they were in.
    fn stop(&self, error: &Error, completions: &mut Vec<Completion>) -> u64 {
        let mut appends = self.appends.unwatched().lock();
        if appends.stopped.is_none() {
            tracing::error!(%error, "the write-ahead log has failed; no more appends are taken");
            let message = format!("the write-ahead log stopped when a write failed: {error}");
            appends.stopped = Some(Error::new(ErrorKind::Stopping, message));
        }
        appends.broken = None;
        self.is_broken.store(false, Ordering::Relaxed);
        let rest = appends.take_all();
        completions.extend(rest.completions);
        rest.round
    }
}

/// The error of a file that has no room for more.
fn is_full(writer: &mut Writer) -> Error {
    let (len, len_max) = (writer.file().len(), writer.file().len_max());
    Error::new(ErrorKind::Io, format!("the file has {len} bytes, and {len_max} is the most that it may have"))
}
