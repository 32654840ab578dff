//! The log that is being written: appends, group commit, completions.
//!
//! An append encodes its entry outside any lock and copies it into the append buffer. Whoever drives the log
//! takes the whole buffer, writes it with one call, syncs once if anybody asked for that, and then runs the
//! completions of the round in append order. While a round is on the disk the next buffer fills: that is all
//! there is to group commit.
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
//! *Nobody is left behind*: `drive` gives up only if another thread holds the leader lock. That thread looks
//! at the buffer once more after letting go of the lock, so it sees all that was appended before the other
//! one gave up, or finds that a third thread has become the leader and will do the same. Both have a fence between
//! their two steps (append, then lock; let go, then look), so at least one of them sees what the other did.
//!
//! *In turns*: a thread that waits for its own write (`drive_until`) writes one round at a time and leaves the next to
//! others that wait, so that their writes are made ready while this one's is written. The last one that stops waiting
//! drives what is left.
//!
//! *Failure*: the first failed write or sync stops the log for good. What was pending is told so, every later
//! append is refused, and the entries concerned may or may not be found by recovery. A write that found no space is
//! no failure: see `full.rs`.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{CellRef, Error, ErrorKind, Result};
use halcyon_env::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use halcyon_env::sync::{Condvar, Mutex, MutexGuard, spin_loop, yield_now};
use halcyon_env::{Activity, Env, Holder, Watch, WatchedMutex, WritableFile};
use halcyon_schema::Durability;

use crate::format::{PreparedEntry, is_marker};
use crate::full::{Full, Put, RETRY_PERIOD, put_or_cut};
use crate::region_hash::RegionHasher;
use crate::roll::{Files, Predecessor, Rolling};
use crate::stats::Counters;
use crate::{SyncMode, WalConfig, WalStats};

/// An append waits this long for a full buffer to be written before it is refused.
const BUSY_WAIT_MAX: Duration = Duration::from_secs(2);
/// Rounds that an append will write itself to get its entry into a full buffer.
const BUSY_ROUNDS_MAX: usize = 16;
/// A buffer that grew beyond this is given back after its round.
const BUFFER_KEPT_MAX_BYTES: usize = 8 << 20;
/// Room for completions that is kept from round to round.
const COMPLETIONS_KEPT_MAX: usize = 1 << 10;
/// How often a thread in `drive_until` looks whether another one has finished its round: some ten microseconds without
/// giving up the processor, then about a hundred for whoever else wants it. To be put to sleep and woken takes as long.
const SPINS_MAX: u32 = if cfg!(halcyon_shuttle) { 1 } else { 500 };
const LOOKS_MAX: u32 = SPINS_MAX + if cfg!(halcyon_shuttle) { 1 } else { 300 };

static WAIT_FOR_ROOM: Activity = Activity::new("a write waiting for room in the WAL's buffer");

/// One atomic edit of a region: HBase's `WALKey` and `WALEdit`.
#[derive(Clone, Copy)]
pub struct WalEntry<'a> {
    /// Encoded region name (32 hex digits, or meta's number).
    pub region: &'a [u8],
    /// Full table name, `namespace:qualifier` or the bare qualifier in the default namespace.
    pub table: &'a [u8],
    /// Rises strictly within a region. The caller assigns it and appends under one lock.
    pub seq: u64,
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

/// Edits that a file holds of each region and that are not flushed; no name, nothing held.
pub(crate) type Unflushed = HashMap<Box<[u8]>, Held, BuildHasherDefault<RegionHasher>>;

/// Edits of one region.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    /// The highest sequence id; up to it the region has to flush.
    pub(crate) max_seq: u64,
    /// The one appended last since the region was opened; 0 if there was none.
    pub(crate) last_seq: u64,
}

/// A write-ahead log: one file being written, and older ones waiting for their regions to flush.
///
/// *Thread safety*: every method may be called from any thread. Blocking: `drive`, `roll`, `close` do I/O;
/// `append` does so only if the buffer is full.
pub struct Wal {
    pub(crate) env: Env,
    watch: Watch,
    pub(crate) config: WalConfig,
    leader: Mutex<Leader>,
    /// Held by the one thread that sleeps for `leader`.
    next_leader: Mutex<()>,
    /// Threads in `drive_until`, which look after what is buffered.
    waiting: AtomicUsize,
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
    finished: Mutex<VecDeque<Finished>>,
    /// As many as are in `finished`.
    finished_count: AtomicUsize,
    work: Condvar,
    /// Whether `Appends::full` is set, for those who only want to know that.
    pub(crate) is_full: AtomicBool,
    pub(crate) counters: Counters,
}

/// What was appended and not yet taken by a round.
pub(crate) struct Appends {
    pub(crate) buffer: Vec<u8>,
    /// The length of `buffer`, for those who only want to know: every write asks.
    buffered: Arc<AtomicUsize>,
    pending: Vec<Completion>,
    sync_wanted: bool,
    /// Bytes of the file that the buffer goes to, known to be on disk.
    pub(crate) synced_bytes: u64,
    /// Of the current file, the buffered entries included.
    pub(crate) unflushed: Unflushed,
    /// Why nothing can be appended any more.
    pub(crate) stopped: Option<Error>,
    /// Why nothing can be appended for now.
    pub(crate) full: Option<Full>,
}

/// The current file.
pub(crate) struct Writer {
    pub(crate) file: Box<dyn WritableFile>,
    pub(crate) path: PathBuf,
    /// Bytes were written since the last sync.
    pub(crate) unsynced: bool,
    pub(crate) closed: bool,
    spare: Vec<u8>,
}

/// Who drives the log.
#[derive(Default)]
struct Leader {
    /// Empty; its memory takes the completions of the round after next.
    spare: Vec<Completion>,
}

/// A round whose completions are still to be run.
struct Finished {
    completions: Vec<Completion>,
    result: Result<()>,
}

/// Everything that one round writes.
pub(crate) struct Batch {
    buffer: Vec<u8>,
    pub(crate) completions: Vec<Completion>,
    sync_wanted: bool,
}

impl Wal {
    /// Creates the first file of a log. `Io` if the directories or the file cannot be made.
    pub fn open(env: Env, config: WalConfig) -> Result<Arc<Wal>> {
        env.fs.create_dir_all(&config.dir)?;
        env.fs.create_dir_all(&config.archive_dir)?;
        let mut rolling = Rolling::default();
        let (file, path) = rolling.create_file(&env, &config)?;
        let buffered = Arc::new(AtomicUsize::new(0));
        let appends = Appends {
            buffer: Vec::new(),
            buffered: buffered.clone(),
            pending: Vec::new(),
            sync_wanted: false,
            synced_bytes: file.len(),
            unflushed: Unflushed::default(),
            stopped: None,
            full: None,
        };
        let writer = Writer { file, path, unsynced: false, closed: false, spare: Vec::new() };
        Ok(Arc::new(Wal {
            watch: env.watch(),
            env,
            config,
            leader: Mutex::default(),
            next_leader: Mutex::new(()),
            waiting: AtomicUsize::new(0),
            rolling: Mutex::new(rolling),
            writer: Mutex::new(writer),
            appends: WatchedMutex::new(appends),
            buffered,
            writing: AtomicUsize::new(0),
            files: Mutex::new(Files::default()),
            predecessor: Mutex::new(None),
            finished: Mutex::new(VecDeque::new()),
            finished_count: AtomicUsize::new(0),
            work: Condvar::new(),
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
        prepared.put(&mut appends.buffer, synced_bytes);
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
        self.work.notify_one();
        if let Some(completion) = at_once {
            completion(&Ok(()));
        }
        Ok(())
    }

    /// Writes what is buffered, in one or more rounds, and runs completions, until nothing is left. If
    /// another thread is at it this returns at once, and that thread will take what was appended before.
    /// Returns whether there was anything to do. Failures are told to the completions.
    pub fn drive(&self) -> bool {
        let mut worked = false;
        loop {
            fence(Ordering::SeqCst); // the append was before this
            let Some(mut leader) = self.leader.try_lock() else { return worked };
            while self.drive_round(&mut leader) {
                worked = true;
            }
            drop(leader);
            if !self.has_work() {
                return worked;
            }
        }
    }

    /// Writes what is buffered in one round and runs its completions. Returns whether there is more for somebody: what
    /// others append meanwhile does not keep the caller. False also if another thread is at it.
    pub fn drive_once(&self) -> bool {
        fence(Ordering::SeqCst); // as in `drive`
        let Some(mut leader) = self.leader.try_lock() else { return false };
        self.drive_round(&mut leader);
        drop(leader);
        self.has_work()
    }

    /// Brings the log along until `is_done`, which says whether the caller's own write was completed: for a thread
    /// that has nothing else to do before. Several of them take turns. Returns earlier if others look after what the
    /// caller appended, or if nothing can be written for now; then the caller may sleep until it is told.
    pub fn drive_until(&self, is_done: impl Fn() -> bool) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !is_done() {
            let Some(mut leader) = self.take_turn(&is_done) else { break };
            if is_done() || !self.drive_round(&mut leader) {
                break;
            }
        }
        // Others that wait will look; the last one leaves nothing behind.
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == 1 && self.has_work() {
            self.drive();
        }
    }

    /// The leader lock, unless `is_done` before it is free, or another thread sleeps for it already: that one writes
    /// what is there for all.
    fn take_turn(&self, is_done: impl Fn() -> bool) -> Option<MutexGuard<'_, Leader>> {
        for look in 0..LOOKS_MAX {
            if !self.leader.is_locked()
                && let Some(leader) = self.leader.try_lock()
            {
                return Some(leader);
            }
            if is_done() {
                return None;
            }
            if look < SPINS_MAX { spin_loop() } else { yield_now() }
        }
        let _next = self.next_leader.try_lock()?;
        Some(self.leader.lock())
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

    /// Blocks until there is something to drive, at most `timeout`; returns whether there is.
    pub fn wait_for_work(&self, timeout: Duration) -> bool {
        let now_ns = || self.env.clock.monotonic_ns();
        let mut appends = self.appends.unwatched().lock();
        if !appends.is_due(now_ns) && !self.has_finished() {
            let timeout = if appends.full.is_some() { timeout.min(RETRY_PERIOD) } else { timeout };
            self.work.wait_for(&mut appends, timeout);
        }
        appends.is_due(now_ns) || self.has_finished()
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

    /// Whether there is something to drive; to be asked after letting go of the leader lock.
    fn has_work(&self) -> bool {
        fence(Ordering::SeqCst); // see the head of this file
        self.seems_to_have_work()
            && (self.has_finished()
                || self.appends.unwatched().lock().is_due(|| self.env.clock.monotonic_ns()))
    }

    /// Without a lock. What another thread does at this moment may be missed.
    #[inline]
    fn seems_to_have_work(&self) -> bool {
        self.buffered_bytes() > 0 || self.has_finished()
    }

    #[inline]
    fn has_finished(&self) -> bool {
        self.finished_count.load(Ordering::Acquire) > 0
    }

    /// Wakes a driver in [`Wal::wait_for_work`]: completions are to be run, or the driver is to end. Passing through the
    /// lock makes sure that it has not yet looked, or is waiting.
    pub fn wake_driver(&self) {
        drop(self.appends.unwatched().lock());
        self.work.notify_one();
    }

    fn drive_round(&self, leader: &mut Leader) -> bool {
        if !self.seems_to_have_work() {
            return false;
        }
        let wrote = self.write_round(&mut self.writer.lock(), &mut leader.spare);
        let mut completed = false;
        while self.has_finished() {
            let Some(mut finished) = self.take_finished() else { break };
            completed = true;
            for completion in finished.completions.drain(..) {
                completion(&finished.result);
            }
            if finished.completions.capacity() <= COMPLETIONS_KEPT_MAX {
                leader.spare = finished.completions;
            }
        }
        wrote || completed
    }

    fn take_finished(&self) -> Option<Finished> {
        let mut finished = self.finished.lock();
        let first = finished.pop_front();
        self.finished_count.store(finished.len(), Ordering::Release);
        first
    }

    /// Takes the buffer and writes it; false if there was nothing. The completions are left in `finished`. `spare`
    /// is room for those of later appends.
    fn write_round(&self, writer: &mut Writer, spare: &mut Vec<Completion>) -> bool {
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
            self.appends.unwatched().lock().note_synced(writer.file.len());
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
            Err(error) => self.stop(error, &mut batch.completions),
        }
        self.counters.set_file_bytes(writer.file.len());
        batch.buffer.clear();
        if batch.buffer.capacity() <= BUFFER_KEPT_MAX_BYTES {
            writer.spare = batch.buffer;
        }
        self.finish(batch.completions, &result);
        result.map(|()| Put::Written)
    }

    /// Stops the log outside a round. The completions of what is buffered are left to the driver.
    pub(crate) fn fail(&self, error: &Error) {
        let mut completions = Vec::new();
        self.stop(error, &mut completions);
        self.finish(completions, &Err(error.clone()));
        self.wake_driver();
    }

    pub(crate) fn finish(&self, completions: Vec<Completion>, result: &Result<()>) {
        if !completions.is_empty() {
            let mut finished = self.finished.lock();
            finished.push_back(Finished { completions, result: result.clone() });
            self.finished_count.store(finished.len(), Ordering::Release);
        }
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
            writer.file.sync()?;
            self.counters.synced(self.env.clock.monotonic_ns().saturating_sub(begin_ns));
            writer.unsynced = false;
        }
        Ok(Put::Written)
    }

    /// Refuses all later appends, and gives the waiting ones to the failed round.
    fn stop(&self, error: &Error, completions: &mut Vec<Completion>) {
        let mut appends = self.appends.unwatched().lock();
        if appends.stopped.is_none() {
            tracing::error!(%error, "the write-ahead log has failed; no more appends are taken");
            let message = format!("the write-ahead log stopped when a write failed: {error}");
            appends.stopped = Some(Error::new(ErrorKind::Stopping, message));
        }
        let rest = appends.take(Vec::new(), Vec::new());
        completions.extend(rest.completions);
    }
}

impl Appends {
    pub(crate) fn check_running(&self) -> Result<()> {
        self.stopped.clone().map_or(Ok(()), Err)
    }

    /// Moves out what was appended; an empty buffer and an empty list of completions take its place.
    pub(crate) fn take(&mut self, spare: Vec<u8>, spare_pending: Vec<Completion>) -> Batch {
        assert!(
            spare.is_empty() && spare_pending.is_empty(),
            "a spare buffer is empty: {} bytes and {} completions would be written or run twice",
            spare.len(),
            spare_pending.len()
        );
        let batch = Batch {
            buffer: mem::replace(&mut self.buffer, spare),
            completions: mem::replace(&mut self.pending, spare_pending),
            sync_wanted: mem::take(&mut self.sync_wanted),
        };
        self.note_buffered();
        batch
    }

    /// So many bytes of the current file are on disk. Entries say so to recovery, which calls damage before that place
    /// corruption and damage behind it a torn tail.
    fn note_synced(&mut self, bytes: u64) {
        assert!(
            bytes >= self.synced_bytes,
            "bytes on disk never get fewer: {bytes} after {}",
            self.synced_bytes
        );
        self.synced_bytes = bytes;
    }

    fn note_buffered(&self) {
        self.buffered.store(self.buffer.len(), Ordering::Relaxed);
    }

    /// Undoes a `take`, also if there were appends since.
    pub(crate) fn give_back(&mut self, mut batch: Batch) {
        batch.buffer.append(&mut self.buffer);
        batch.completions.append(&mut self.pending);
        self.buffer = batch.buffer;
        self.pending = batch.completions;
        self.sync_wanted |= batch.sync_wanted;
        self.note_buffered();
    }

    pub(crate) fn note_unflushed(&mut self, region: &[u8], seq: u64) {
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
