//! Our engine: one region, driven as the region server drives it.
//!
//! Writers bring the log along themselves, in turns. (In a server network threads do, and where they would wait for the
//! disk the log's own thread does instead: `regionserver/wal/logs.rs`.) One thread flushes, one compacts, one keeps chunks
//! ready.
//! There is no limit of throughput, and none of the engines has one here.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use halcyon_cache::BlockCache;
use halcyon_cell::{Cell, CellType, ErrorKind, LATEST_TIMESTAMP, SharedCells};
use halcyon_env::{Env, spawn_thread};
use halcyon_memstore::{CHUNK_SIZE_BYTES_DEFAULT, ChunkPool};
use halcyon_region::{
    CompactionRequest, Mutation, MutationKind, NextState, Nonce, ReadMode, Region, RegionServices,
    RegionSettings, Scan, ScanLimits, TimeRange,
};
use halcyon_schema::{FamilyDescriptor, RegionInfo, TableDescriptor, TableName};
use halcyon_wal::{SyncMode, Wal, WalConfig};
use parking_lot::{Condvar, Mutex};

use crate::engine::{Compression, Scanned};
use crate::keys::Key;
use crate::{Engine, Failure, Opening, Row};

pub const FAMILY: &[u8] = b"f";
pub const QUALIFIER: &[u8] = b"q";
/// As in a region server of some hundred megabytes: so many chunks wait to be taken.
const READY_CHUNKS: usize = 3;
/// Cells that a scan collects before anybody looks at them, as a server does for an answer.
pub const ANSWER_CELLS: usize = 1000;
/// How long a thread waits before it looks again whether it is still wanted.
const IDLE_WAIT: Duration = Duration::from_millis(100);
/// How long a writer that was refused waits for a flush before it tries again.
const REFUSED_WAIT: Duration = Duration::from_millis(10);

pub struct HalcyonEngine {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    region: Arc<Region>,
    wal: Arc<Wal>,
    env: Env,
    chunks: Arc<ChunkPool>,
    archive: PathBuf,
    stopping: AtomicBool,
    failed: AtomicBool,
    turn: Mutex<Turn>,
    /// Something in `turn` has changed.
    changed: Condvar,
}

#[derive(Default)]
struct Turn {
    flush_wanted: bool,
    flushing: bool,
    compaction_wanted: bool,
    compacting: bool,
}

/// What a region needs, on the machine's own files below `opening.dir`.
pub struct Opened {
    pub region: Arc<Region>,
    pub wal: Arc<Wal>,
    pub env: Env,
    pub chunks: Arc<ChunkPool>,
}

pub fn open_region(opening: &Opening) -> Result<Opened, Failure> {
    let env = Env::real();
    env.fs.create_dir_all(&opening.dir)?;
    let mut config = WalConfig::new(opening.dir.join("WALs"), opening.dir.join("oldWALs"), "bench");
    config.sync_mode = if opening.fsync { SyncMode::Fsync } else { SyncMode::Written };
    let wal = Wal::open(env.clone(), config)?;
    let chunks_max = opening.memstore_bytes / CHUNK_SIZE_BYTES_DEFAULT * opening.memstores_max;
    let chunks = ChunkPool::new(CHUNK_SIZE_BYTES_DEFAULT, chunks_max);
    let settings = RegionSettings {
        flush_size_bytes: opening.memstore_bytes as u64,
        block_multiplier: opening.memstores_max as u64,
        ..RegionSettings::default()
    };
    let services = RegionServices {
        env: env.clone(),
        wal: wal.clone(),
        cache: Arc::new(BlockCache::new(opening.cache_bytes as u64)),
        mob_files: halcyon_region::MobFileCache::new(1000, 0.5),
        chunks: chunks.clone(),
        settings,
        wal_root: None,
    };
    let table = table(opening)?;
    let info = RegionInfo::new(table.name().clone(), Bytes::new(), Bytes::new(), 1);
    let region = Region::open(services, &opening.dir, info, Arc::new(table))?;
    Ok(Opened { region, wal, env, chunks })
}

/// One family, one version, a bloom filter of rows: what a shell's `create` makes.
fn table(opening: &Opening) -> Result<TableDescriptor, Failure> {
    let compression = match opening.compression {
        Compression::None => "NONE",
        Compression::Lz4 => "LZ4",
        Compression::Snappy => "SNAPPY",
    };
    let mut family =
        FamilyDescriptor::new(FAMILY)?.with("BLOOMFILTER", "ROW").with("COMPRESSION", compression);
    if let Some(bytes) = opening.block_bytes {
        family = family.with("BLOCKSIZE", bytes.to_string());
    }
    Ok(TableDescriptor::new(TableName::parse(b"bench")?).with_family(family))
}

/// A put of one cell, as a request brings it.
pub fn put(key: &Key, value: &[u8]) -> Mutation {
    let cell = Cell::build(key, FAMILY, QUALIFIER, LATEST_TIMESTAMP, CellType::Put, value, b"", 0);
    Mutation {
        kind: MutationKind::Put,
        row: Bytes::copy_from_slice(key),
        cells: vec![cell],
        timestamp: LATEST_TIMESTAMP,
        durability: None,
        time_range: TimeRange::ALL,
        return_results: false,
        cell_ttl_ms: None,
        cluster_ids: None,
    }
}

impl HalcyonEngine {
    pub fn open(opening: &Opening) -> Result<Box<dyn Engine>, Failure> {
        let Opened { region, wal, env, chunks } = open_region(opening)?;
        let shared = Arc::new(Shared {
            region,
            wal,
            env,
            chunks,
            archive: opening.dir.join("archive"),
            stopping: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            turn: Mutex::default(),
            changed: Condvar::new(),
        });
        let threads = vec![
            shared.spawn("flush", Shared::flush_turn)?,
            shared.spawn("compact", Shared::compact_turn)?,
            shared.spawn("chunks", |shared| {
                shared.chunks.keep_ready(READY_CHUNKS, IDLE_WAIT);
                Ok(())
            })?,
        ];
        Ok(Box::new(HalcyonEngine { shared, threads }))
    }

    fn stop(&mut self) -> Result<(), Failure> {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| "a thread of the engine died")?;
        }
        self.shared.check()
    }
}

impl Shared {
    fn spawn(
        self: &Arc<Shared>,
        name: &str,
        turn: fn(&Shared) -> Result<(), Failure>,
    ) -> Result<JoinHandle<()>, Failure> {
        let shared = self.clone();
        let body = move || {
            while !shared.stopping.load(Ordering::Acquire) {
                if let Err(error) = turn(&shared) {
                    eprintln!("{error}");
                    shared.failed.store(true, Ordering::Release);
                    return;
                }
            }
        };
        Ok(spawn_thread(name, body)?)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.failed.load(Ordering::Acquire) {
            Err("a thread of the engine gave up".into())
        } else {
            Ok(())
        }
    }

    /// Waits until `wanted` takes up what there is to do; false if it is time to look around.
    fn take(&self, wanted: impl Fn(&mut Turn) -> bool) -> bool {
        let mut turn = self.turn.lock();
        if wanted(&mut turn) {
            return true;
        }
        self.changed.wait_for(&mut turn, IDLE_WAIT);
        wanted(&mut turn)
    }

    fn change(&self, change: impl FnOnce(&mut Turn)) {
        change(&mut self.turn.lock());
        self.changed.notify_all();
    }

    fn flush_turn(&self) -> Result<(), Failure> {
        // With too many files a flush waits for compactions, as in the region server.
        let has_room = self.region.store_files_left() >= 0;
        let begin = |turn: &mut Turn| {
            let begins = turn.flush_wanted && has_room;
            turn.flushing |= begins;
            turn.flush_wanted &= !begins;
            begins
        };
        if !self.take(begin) {
            return Ok(());
        }
        let flushed = self.region.flush(None);
        self.roll(false)?;
        self.change(|turn| {
            turn.flushing = false;
            turn.compaction_wanted = true;
        });
        flushed?;
        Ok(())
    }

    fn compact_turn(&self) -> Result<(), Failure> {
        let begin = |turn: &mut Turn| {
            let begins = std::mem::take(&mut turn.compaction_wanted);
            turn.compacting |= begins;
            begins
        };
        if !self.take(begin) {
            return Ok(());
        }
        let mut done = Ok(());
        while done.is_ok() && self.region.compaction_wanted() && !self.stopping.load(Ordering::Acquire) {
            done = self.region.compact(None, CompactionRequest::default(), &mut &self.stopping).map(|_| ());
        }
        self.empty_archive()?;
        self.change(|turn| turn.compacting = false);
        match done {
            Err(error) if error.kind() == ErrorKind::Stopping => Ok(()),
            done => Ok(done?),
        }
    }

    /// What the master's janitor does in a server: files that were compacted away are kept for nobody here.
    fn empty_archive(&self) -> Result<(), Failure> {
        if self.env.fs.exists(&self.archive)? {
            self.env.fs.remove_dir_all(&self.archive)?;
        }
        Ok(())
    }

    /// A new log if this one is full, and no archived ones: RocksDB keeps none either.
    fn roll(&self, always: bool) -> Result<(), Failure> {
        let archived = if always {
            self.wal.roll()?.archived
        } else {
            self.wal.roll_if_needed()?.map_or_else(|| self.wal.archive(), |rolled| rolled.archived)
        };
        // A roll writes what is buffered and leaves it to whoever drives the log to tell those who wait for it. A server has a
        // thread for that; here a lone writer may be asleep by now.
        self.wal.drive();
        for path in archived {
            self.env.fs.remove_file(&path)?;
        }
        Ok(())
    }

    fn want_flush(&self) {
        let mut turn = self.turn.lock();
        if !turn.flush_wanted && !turn.flushing {
            turn.flush_wanted = true;
            self.changed.notify_all();
        }
    }
}

impl Engine for HalcyonEngine {
    fn write(&self, rows: &[Row<'_>]) -> Result<(), Failure> {
        let shared = &*self.shared;
        let outcome = loop {
            let batch = rows.iter().map(|row| put(&row.key, row.value)).collect();
            match shared.region.mutate(batch, false, Nonce::default(), ReadMode::AnyDisk) {
                Ok(outcome) => break outcome,
                Err(error) if error.kind() == ErrorKind::Busy => {
                    shared.check()?;
                    shared.want_flush();
                    let mut turn = shared.turn.lock();
                    shared.changed.wait_for(&mut turn, REFUSED_WAIT);
                }
                Err(error) => return Err(error.into()),
            }
        };
        shared.wal.drive_until(|| outcome.ticket.is_ready());
        outcome.ticket.wait()?;
        for result in outcome.results {
            result?;
        }
        if shared.region.flush_wanted() {
            shared.want_flush();
        }
        Ok(())
    }

    fn read(&self, key: &Key) -> Result<Option<usize>, Failure> {
        let cells = self.shared.region.get(Scan::of_row(Bytes::copy_from_slice(key)), ReadMode::AnyDisk)?;
        Ok(cells.first().map(|cell| cell.value().len()))
    }

    fn scan(&self) -> Result<Scanned, Failure> {
        let mut scanner = self.shared.region.scanner(Scan::default(), ReadMode::AnyDisk)?;
        let (mut scanned, mut cells, mut limits) = (Scanned::default(), SharedCells::new(), ScanLimits::NONE);
        loop {
            let state = scanner.next_shared(&mut limits, &mut cells)?;
            let is_last = state == NextState::Exhausted;
            if cells.len() < ANSWER_CELLS && !is_last {
                continue;
            }
            for cell in cells.iter() {
                scanned.rows += 1;
                scanned.bytes += (cell.row().len() + cell.value().len()) as u64;
            }
            cells.truncate(0);
            if is_last {
                return Ok(scanned);
            }
        }
    }

    fn settle(&self) -> Result<(), Failure> {
        let shared = &*self.shared;
        loop {
            shared.check()?;
            {
                let mut turn = shared.turn.lock();
                if turn.flushing || turn.flush_wanted || turn.compacting || turn.compaction_wanted {
                    shared.changed.wait_for(&mut turn, IDLE_WAIT);
                    continue;
                }
            }
            if shared.region.memstore_size().data_bytes > 0 {
                shared.want_flush();
            } else if shared.region.compaction_wanted() {
                shared.change(|turn| turn.compaction_wanted = true);
            } else {
                return shared.roll(true);
            }
        }
    }

    fn close(mut self: Box<Self>) -> Result<(), Failure> {
        self.stop()?;
        self.shared.wal.drive();
        self.shared.region.close(false)?;
        self.shared.wal.close()?;
        Ok(())
    }
}

impl Drop for HalcyonEngine {
    fn drop(&mut self) {
        if !self.threads.is_empty()
            && let Err(error) = self.stop()
        {
            eprintln!("{error}");
        }
    }
}
