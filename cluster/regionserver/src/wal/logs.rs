//! The WALs of a server: one for tables, and one for `hbase:meta` once meta is opened here.
//!
//! | sync mode | who writes to the WAL |
//! |---|---|
//! | `written` | the event loop that received the calls ([`Logs::drive`]), so that a small write needs no thread switch |
//! | `fsync` | the WAL thread, which waits for work; threads that wait for a write of their own write it too |
//! | files on other machines | the WAL thread alone |
//!
//! In `written` mode the WAL thread writes what is too much for an event loop, because other connections would wait. It
//! also writes what no event loop drives: `ASYNC_WAL` edits, and writes of the server itself. It checks for these every
//! few milliseconds.
//!
//! Files of the root directory may be on other machines (HDFS). Then every write to the WAL is synced, whatever the sync
//! mode, and the next file is made before it is needed (`SyncMode::Remote` of `halcyon-wal`). What is late in one
//! file goes to the next one as well.
//!
//! A WAL that failed accepts no more writes. The server then gives up, so that the next start recovers its WALs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use halcyon_cell::{Error, Result};
use halcyon_compression::has_zstd_in_records;
use halcyon_env::{Condvar, Env, Mutex, vitals};
use halcyon_region::{NO_STORAGE_POLICY, set_storage_policy};
use halcyon_wal::{LateSyncs, SplitMemory, SyncMode, Wal, WalCompression, WalConfig};

use super::recover::SPLITS_COUNT;
use super::sync_threads::SyncPool;
use crate::settings::server::RegionServerSettings;

/// How long an `ASYNC_WAL` edit stays unwritten at most, in `written` mode.
const WRITE_PERIOD: Duration = Duration::from_millis(10);
/// A thread that serves connections writes no more than this to the log: a fraction of a millisecond.
const INLINE_BYTES_MAX: usize = 256 << 10;
/// A buffer of the tables' log is not larger than this, however much memory there is.
const BUFFER_BYTES_MAX: u64 = 64 << 20;
/// With files on other machines, a sync that takes longer is tried in the spare file too. Between the two bounds it
/// depends on how long syncs take.
const LATE_MIN: Duration = Duration::from_millis(20);
const LATE_MAX: Duration = Duration::from_millis(500);
/// A DataNode that is late by less may have collected garbage. To do without it may cost a copy.
const GIVE_UP_MIN: Duration = Duration::from_millis(100);
/// How long the thread of `fsync` mode waits before it looks whether the server still runs.
const WAIT_PERIOD: Duration = Duration::from_millis(500);

/// A full log has so many files at least, so that several servers can read it at once.
const RECOVERY_FILES_COUNT: u64 = 4;
/// Whatever the settings say, files may have so much.
const RECOVERY_BYTES_MIN: u64 = 32 << 20;

/// By whom and how fast the files are read if this server dies.
struct Recovery {
    time: Duration,
    bytes_per_second: u64,
    others_count: Box<dyn Fn() -> usize + Send + Sync>,
}

pub(crate) struct Logs {
    env: Env,
    /// Configuration of the tables' log; the meta log differs in its names only.
    config: WalConfig,
    roll_period_ns: u64,
    /// `None` without other servers, or if the files have no limit.
    recovery: OnceLock<Recovery>,
    tables: Arc<Wal>,
    meta: OnceLock<Arc<Wal>>,
    split_memory: SplitMemory,
    /// Something was appended since the last drive, so that runs of reads need not look into the logs.
    written: AtomicBool,
    rolled_ns: Mutex<u64>,
    /// Somebody left work to the log's thread, in `written` mode.
    left: Mutex<bool>,
    work_left: Condvar,
    /// How often the WAL thread has come round.
    rounds: AtomicU64,
    ended: AtomicBool,
}

impl Logs {
    /// Creates the tables' log in `dir`.
    pub(crate) fn open(
        env: Env,
        settings: &RegionServerSettings,
        dir: PathBuf,
        archive_dir: PathBuf,
        server_name: &str,
    ) -> Result<Logs> {
        let mut config = WalConfig::new(dir, archive_dir, server_name.replace(',', "%2C"));
        let is_remote = env.fs.is_remote();
        config.sync_mode = if is_remote { SyncMode::Remote } else { settings.wal_sync };
        config.hsync = settings.wal_hsync;
        config.keeps_spare = is_remote;
        if is_remote {
            let threads = SyncPool::start()?;
            let (late_min, late_max, give_up_min) = (LATE_MIN, LATE_MAX, GIVE_UP_MIN);
            config.late_syncs = Some(LateSyncs { threads, late_min, late_max, give_up_min });
        }
        config.errors_tolerated = settings.wal_errors_tolerated;
        config.compression = settings.wal_compression.then(|| WalCompression {
            values: settings.wal_value_compression.then_some(settings.wal_value_codec),
            zstd_in_records: has_zstd_in_records(&settings.region.zstd_codec),
        });
        config.roll_size_bytes = settings.wal_roll_bytes;
        config.files_count_max = settings.wal_files_count_max;
        // One fills while the other is written, and an eighth of one is written and not synced. The log of meta has a
        // seventh of each.
        let buffer_bytes = (settings.plan().log / 17 * 7).min(BUFFER_BYTES_MAX);
        config.buffer_max_bytes = buffer_bytes as usize;
        // Before the first file, whose block is placed as soon as its header is written.
        if settings.wal_storage_policy != NO_STORAGE_POLICY {
            env.fs.create_dir_all(&config.dir)?;
            let policy = &settings.wal_storage_policy;
            set_storage_policy(&*env.fs, &config.dir, policy, "hbase.wal.storage.policy");
        }
        let tables = Wal::open(env.clone(), config.clone())?;
        let rolled_ns = Mutex::new(env.clock.monotonic_ns());
        let roll_period_ns = settings.wal_roll_period.as_nanos() as u64;
        Ok(Logs {
            env,
            config,
            roll_period_ns,
            recovery: OnceLock::new(),
            tables,
            meta: OnceLock::new(),
            split_memory: SplitMemory::new(settings.plan().splits() as usize, SPLITS_COUNT),
            written: AtomicBool::new(false),
            rolled_ns,
            left: Mutex::new(false),
            work_left: Condvar::new(),
            rounds: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        })
    }

    /// Where the files are.
    pub(crate) fn dir(&self) -> &Path {
        &self.config.dir
    }

    /// Whether the directory is gone: a master has declared this server dead, and has taken its WALs. False if that cannot be told.
    pub(crate) fn are_taken(&self) -> bool {
        matches!(self.env.fs.exists(&self.config.dir), Ok(false))
    }

    pub(crate) fn tables(&self) -> &Arc<Wal> {
        &self.tables
    }

    /// The log of meta, which is made when meta is opened for the first time.
    pub(crate) fn meta(&self) -> Result<Arc<Wal>> {
        if let Some(meta) = self.meta.get() {
            return Ok(meta.clone());
        }
        let buffer_max_bytes = self.config.buffer_max_bytes / 7;
        let config = WalConfig { meta: true, buffer_max_bytes, ..self.config.clone() };
        let made = Wal::open_in_place(self.env.clone(), config)?;
        Ok(self.meta.get_or_init(|| made).clone())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Wal>> {
        std::iter::once(&self.tables).chain(self.meta.get())
    }

    /// To be told after something was appended.
    #[inline]
    pub(crate) fn note_write(&self) {
        self.written.store(true, Ordering::Release);
    }

    /// Whether something was noted that [`Logs::drive`] would bring along.
    #[inline]
    pub(crate) fn is_noted(&self) -> bool {
        self.written.load(Ordering::Relaxed) && self.config.sync_mode == SyncMode::Written
    }

    /// Whether so much waits to be written that more writes had better wait too.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.tables.buffered_bytes() > self.config.buffer_max_bytes / 2
    }

    /// Bytes of the logs' buffers.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.all().map(|wal| wal.held_bytes() as u64).sum()
    }

    /// What splits of the WALs of dead servers share.
    pub(crate) fn split_memory(&self) -> &SplitMemory {
        &self.split_memory
    }

    /// Brings writes along that were noted, if that does not wait for the disk and is not much.
    #[inline]
    pub(crate) fn drive(&self) {
        // Whoever takes the flag drives what was appended before it was set, or meets a thread that does.
        if self.is_noted() && self.written.swap(false, Ordering::AcqRel) {
            let is_left = |wal: &Arc<Wal>| wal.buffered_bytes() > INLINE_BYTES_MAX || wal.drive_once();
            let left = is_left(&self.tables);
            if self.meta.get().is_some_and(is_left) || left {
                *self.left.lock() = true;
                self.work_left.notify_one();
            }
        }
    }

    /// Writes, and syncs if asked to, whatever was appended, or has the WAL thread do it.
    pub(crate) fn drive_now(&self) {
        if self.config.sync_mode == SyncMode::Remote {
            self.tables.wake_driver(); // it drives meta's as well
        } else {
            self.all().for_each(|wal| _ = wal.drive());
        }
    }

    /// What the WAL thread repeats: waits a while, then writes.
    pub(crate) fn run_once(&self) {
        if self.config.sync_mode != SyncMode::Written {
            // Meta's writers wait for what they write, and drive it; a short wait is enough for the rest.
            let wait = if self.meta.get().is_some() { WRITE_PERIOD } else { WAIT_PERIOD };
            self.tables.wait_for_work(wait);
        } else {
            let mut left = self.left.lock();
            if !*left {
                self.work_left.wait_for(&mut left, WRITE_PERIOD);
            }
            *left = false;
        }
        let _work = vitals::work(|| "writing the WAL".to_string(), Some(&self.config.dir));
        self.all().for_each(|wal| _ = wal.drive());
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the WAL thread has come round. It does so at least every half second, unless the disk holds it.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Why a log takes no more writes.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.all().find_map(|wal| wal.stopped())
    }

    /// Keeps the files so small that other servers read them within this time, at so many bytes a second each. The first call
    /// counts; a time of 0 is no limit.
    pub(crate) fn limit_recovery(
        &self,
        time: Duration,
        bytes_per_second: u64,
        others_count: Box<dyn Fn() -> usize + Send + Sync>,
    ) {
        if !time.is_zero() {
            self.recovery.get_or_init(|| Recovery { time, bytes_per_second, others_count });
        }
    }

    /// How much the files of a log may have; `None` if there is no limit.
    pub(crate) fn bytes_max(&self) -> Option<u64> {
        let Recovery { time, bytes_per_second, others_count } = self.recovery.get()?;
        let others_count = others_count().max(1) as u128;
        let bytes = time.as_millis() * u128::from(*bytes_per_second) * others_count / 1000;
        Some(u64::try_from(bytes).unwrap_or(u64::MAX).max(RECOVERY_BYTES_MIN))
    }

    /// Starts new files where size or age ask for it, and returns the regions to flush so that old files can
    /// go. *Blocking*.
    pub(crate) fn roll_if_due(&self) -> Result<Vec<String>> {
        let file_bytes_max = self.bytes_max().map_or(u64::MAX, |bytes| bytes / RECOVERY_FILES_COUNT);
        let now_ns = self.env.clock.monotonic_ns();
        let aged = now_ns.saturating_sub(*self.rolled_ns.lock()) >= self.roll_period_ns;
        if aged {
            *self.rolled_ns.lock() = now_ns;
        }
        for wal in self.all() {
            if aged || wal.current_bytes() >= file_bytes_max {
                wal.roll()?;
            } else {
                wal.roll_if_needed()?;
            }
            if self.recovery.get().is_some() {
                wal.archive(); // a recovery would read what is flushed as well
            }
        }
        Ok(self.holding_oldest())
    }

    /// Starts new files now.
    pub(crate) fn roll(&self) -> Result<Vec<String>> {
        for wal in self.all() {
            wal.roll()?;
        }
        *self.rolled_ns.lock() = self.env.clock.monotonic_ns();
        Ok(self.holding_oldest())
    }

    /// Makes the next files, if these logs keep some. *Blocking*.
    pub(crate) fn keep_spares(&self) -> Result<()> {
        self.all().try_for_each(|wal| wal.keep_spare())
    }

    fn holding_oldest(&self) -> Vec<String> {
        let bytes_max = self.bytes_max().unwrap_or(u64::MAX);
        let regions = self.all().flat_map(|wal| wal.regions_holding_oldest(bytes_max));
        regions.map(|region| String::from_utf8_lossy(&region).into_owned()).collect()
    }

    /// Ends the files with their trailers. Writes are refused from now on.
    pub(crate) fn close(&self) -> Result<()> {
        let closed = self.all().try_for_each(|wal| wal.close());
        self.end();
        closed
    }

    /// Of a server that has given up: fails the writes that wait, and refuses later ones. The files stay as they are. For the WAL
    /// thread, or when it has ended.
    pub(crate) fn abandon(&self) {
        for wal in self.all() {
            wal.abandon("the server has given up");
            wal.drive();
        }
    }

    /// What the WAL thread repeats when the server has given up, until the end.
    pub(crate) fn abandon_once(&self) {
        self.abandon();
        let mut left = self.left.lock();
        if !self.has_ended() {
            self.work_left.wait_for(&mut left, WRITE_PERIOD);
        }
        drop(left);
        self.rounds.fetch_add(1, Ordering::Relaxed);
    }

    /// Nobody waits for a write any more: the WAL thread ends.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake();
    }

    /// The WAL thread looks whether the server still runs; without this it may take half a second.
    pub(crate) fn wake(&self) {
        self.all().for_each(|wal| wal.wake_driver());
        drop(self.left.lock());
        self.work_left.notify_one();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use halcyon_cell::{Cell, SeqId};
    use halcyon_env::sim::SimFileSystem;
    use halcyon_wal::{Durability, WalEntry};

    use super::*;

    /// Meta may be opened for the first time when the server has been declared dead and does not know it. Its log made the
    /// directory again, which had been taken away.
    #[test]
    fn the_log_of_meta_does_not_make_its_directory() {
        let env = SimFileSystem::hdfs(1).env();
        let dir = Path::new("/hbase/WALs/s,1,1");
        let settings = RegionServerSettings::default();
        let logs = Logs::open(env.clone(), &settings, dir.into(), "/hbase/oldWALs".into(), "s,1,1").unwrap();
        env.fs.rename(dir, Path::new("/hbase/WALs/s,1,1-splitting")).unwrap();
        assert!(logs.meta().is_err() && logs.meta.get().is_none());
        assert!(!env.fs.exists(dir).unwrap());
    }

    #[test]
    fn files_may_have_what_the_other_servers_read_in_time() {
        let env = SimFileSystem::new().env();
        let settings = RegionServerSettings::default();
        let logs = || Logs::open(env.clone(), &settings, "/w".into(), "/o".into(), "s,1,1").unwrap();
        let (seconds, rate) = (Duration::from_secs, 100_000_000);
        for (others_count, bytes_max) in [(0, 300_000_000), (1, 300_000_000), (9, 2_700_000_000)] {
            let logs = logs();
            assert_eq!(logs.bytes_max(), None);
            logs.limit_recovery(seconds(3), rate, Box::new(move || others_count));
            assert_eq!(logs.bytes_max(), Some(bytes_max));
        }
        let (none, least) = (logs(), logs());
        none.limit_recovery(Duration::ZERO, rate, Box::new(|| 1));
        assert_eq!(none.bytes_max(), None);
        least.limit_recovery(Duration::from_millis(1), 1, Box::new(|| 1));
        assert_eq!(least.bytes_max(), Some(RECOVERY_BYTES_MIN));
    }

    /// Nobody else waits for other machines, whatever the sync mode; every write is synced, and the next file is there.
    #[test]
    fn the_wal_thread_alone_writes_files_on_other_machines() {
        let env = SimFileSystem::hdfs(1).env();
        let dir = Path::new("/hbase/WALs/s,1,1");
        let settings =
            RegionServerSettings { wal_sync: SyncMode::Written, ..RegionServerSettings::default() };
        let logs = Logs::open(env.clone(), &settings, dir.into(), "/hbase/oldWALs".into(), "s,1,1").unwrap();
        logs.keep_spares().unwrap();
        let cell = Cell::put(b"r", b"f", b"q", 1, b"v");
        let cells = [cell.get()];
        let entry = WalEntry {
            region: b"region",
            table: b"t",
            seq: SeqId::new(1),
            write_time_ms: 1,
            nonce_group: 0,
            nonce: 0,
            cluster_ids: &[],
            replicated: &[],
            cells: &cells,
        };
        logs.tables().append(&entry, Durability::AsyncWal, Box::new(|_| ())).unwrap();
        logs.note_write();
        logs.drive();
        logs.drive_now();
        assert_eq!(logs.tables().stats().writes, 0);
        logs.run_once();
        let stats = logs.tables().stats();
        assert_eq!((stats.writes, stats.syncs), (1, 1));
        assert_eq!(env.fs.list(dir).unwrap().len(), 2, "with the spare");
        logs.close().unwrap();
        assert_eq!(env.fs.list(dir).unwrap().len(), 1);
    }
}
