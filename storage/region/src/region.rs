//! A region: its parts, its locks, its sizes, and its numbers for load reports.
//!
//! Its operations are in other files, each with an `impl Region`: `read.rs`, `write.rs`, `modify.rs`, `flush.rs`,
//! `in_memory.rs`, `compact/run.rs`, `open.rs`, `replica.rs`, `split.rs`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use halcyon_cache::BlockCache;
use halcyon_cell::{Error, ErrorKind, ReadPoint, Result, SeqId, same_bytes};
use halcyon_env::{Activity, Env, Holder, Mutex, RwLockReadGuard, RwLockWriteGuard, Watch, WatchedRwLock};
use halcyon_hfile::CacheKinds;
use halcyon_memstore::ChunkPool;
use halcyon_schema::{RegionInfo, StoreFileTracker, TableDescriptor};
use halcyon_wal::Wal;

use crate::answers::Answers;
use crate::api::Mutation;
use crate::flush_lock::FlushLock;
use crate::key_samples::{KeySample, KeySamples};
use crate::mob::{MobCounts, MobFileCache, MobStore};
use crate::mvcc::Mvcc;
use crate::place::OpeningDir;
use crate::read_points::ReadPoints;
use crate::replayed_nonces::{FreshNonces, ReplayedNonce};
use crate::row_lock::RowLocks;
use crate::store::{MemStoreSize, Store, StoreFile, StoreServices};
use crate::store_hooks::StoreHooks;
use crate::{CompactionSettings, RegionSettings};

/// What a region needs of its server. Cheap to clone.
#[derive(Clone)]
pub struct RegionServices {
    pub env: Env,
    pub wal: Arc<Wal>,
    pub cache: Arc<BlockCache>,
    pub mob_files: Arc<MobFileCache>,
    pub chunks: Arc<ChunkPool>,
    pub settings: RegionSettings,
    /// Where WALs and recovered edits are, if not in the root directory.
    pub wal_root: Option<WalRoot>,
}

/// The root directory of WALs (`hbase.wal.dir`): in it, recovered edits have the place that a region has in the root
/// directory.
#[derive(Clone)]
pub struct WalRoot {
    pub env: Env,
    pub path: PathBuf,
}

impl RegionServices {
    pub(crate) fn of_store(&self, mob: MobStore) -> StoreServices<'_> {
        StoreServices {
            chunks: &self.chunks,
            watch: self.env.watch(),
            zstd_codec: &self.settings.zstd_codec,
            keys: &self.env.keys,
            mob: Arc::new(mob),
            tiering: None,
            tracker: StoreFileTracker::DEFAULT,
            list: None,
        }
    }
}

/// A range of a table's rows, open for reading and writing.
///
/// *Thread safety*: every verb may be called from any thread. Verbs marked *blocking* do I/O; the others do
/// not, given `ReadMode::CacheOnly`. A region never schedules itself: it says what it wants (`flush_wanted`,
/// `compaction_wanted`), and the server decides.
///
/// *Lock order*: `flushed_at_close`, `closed` (shared by every operation), `flushing`, row locks, `updates`, write numbers,
/// log. The update lock is shared by writers from the copy into a chunk to the memstore insert, and exclusive for the
/// moment in which flush puts new segments in place. No lock is held across I/O but `flushed_at_close`, `flushing` and a
/// store's `compacting`, which readers and writers never take, and row locks where a write reads what no cache keeps (`read_first.rs`):
/// who may not wait for a disk does not wait for a row.
pub struct Region {
    pub(crate) info: RegionInfo,
    pub(crate) table: Arc<TableDescriptor>,
    pub(crate) services: RegionServices,
    pub(crate) watch: Watch,
    /// `data/<namespace>/<table>/<encoded name>`, of a secondary that of its primary.
    pub(crate) dir: PathBuf,
    /// The same under `archive`.
    pub(crate) archive_dir: PathBuf,
    /// Where this opening makes files; `None` of a secondary, which makes none.
    pub(crate) place: Option<Arc<OpeningDir>>,
    /// In order of family names.
    pub(crate) stores: Vec<Store>,
    /// Families with `REPLICATION_SCOPE` 1, as the WAL names them.
    pub(crate) replicated: Box<[bytes::Bytes]>,
    pub(crate) mvcc: Arc<Mvcc>,
    /// Of scanners that stay open between calls.
    pub(crate) read_points: Arc<ReadPoints>,
    pub(crate) answers: Answers,
    pub(crate) row_locks: RowLocks,
    pub(crate) updates: WatchedRwLock<()>,
    pub(crate) flushing: FlushLock,
    pub(crate) compacting_memory: Mutex<()>,
    /// True once the region is closed.
    pub(crate) closed: WatchedRwLock<bool>,
    /// Set before `closed` is waited for, so that scans and compactions end early.
    pub(crate) closing: AtomicBool,
    /// True once the last flush of an orderly close is done; held for the whole of such a close.
    pub(crate) flushed_at_close: Mutex<bool>,
    pub(crate) open_seq_num: SeqId,
    pub(crate) counters: Counters,
    pub(crate) key_samples: KeySamples,
    /// Bulk loads, counted twice each; odd while one exchanges the views of several stores.
    pub(crate) loads: AtomicU64,
    /// Until the server takes them.
    pub(crate) replayed_nonces: Mutex<Vec<ReplayedNonce>>,
    /// Until the next flush.
    pub(crate) fresh_nonces: FreshNonces,
    /// Coprocessors that flushes and compactions ask.
    pub(crate) store_hooks: OnceLock<Arc<dyn StoreHooks>>,
    /// Flushes in a row that they have let fail.
    pub(crate) hook_failures: AtomicU32,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub reads: AtomicU64,
    pub writes: AtomicU64,
    pub filtered_reads: AtomicU64,
    pub last_flush_ms: AtomicI64,
    pub minor_running: AtomicU64,
    pub major_running: AtomicU64,
}

/// Numbers of a region, for load reports and for the server's decisions.
#[derive(Clone, Debug, Default)]
pub struct RegionStats {
    pub store_files: usize,
    pub store_file_bytes: u64,
    pub uncompressed_bytes: u64,
    pub memstore: MemStoreSize,
    pub read_requests: u64,
    pub filtered_read_requests: u64,
    pub write_requests: u64,
    /// Highest sequence id given out.
    pub max_seq: SeqId,
    /// Per family: highest sequence id that is in a file.
    pub flushed_seqs: Vec<(bytes::Bytes, SeqId)>,
    /// When the oldest file that a major compaction wrote was written; 0 if there is none. Other files do not matter
    /// (HBase: `HRegion.getOldestHfileTs`).
    pub last_major_compaction_ms: i64,
    /// When memory was written out last; opening counts.
    pub last_flush_ms: i64,
    pub minor_compactions_running: u64,
    pub major_compactions_running: u64,
    /// Cells of the files that are compacted, and those of them that were looked at; of the last compactions where none
    /// runs.
    pub compacting_cells: u64,
    pub compacted_cells: u64,
    /// Bytes of memory that roots of data indexes take.
    pub root_index_bytes: u64,
    /// Bytes of all levels of data indexes, and of bloom filters, before compression.
    pub data_index_bytes: u64,
    pub bloom_bytes: u64,
    /// Readers that have a file open at this moment, summed over the files.
    pub file_readers: usize,
    /// Largest number of files in one store.
    pub files_in_a_store_max: usize,
    /// Bytes of the largest store's files.
    pub store_bytes_max: u64,
    /// Files that stand for a part of a parent's.
    pub references: usize,
    pub mob: MobCounts,
}

impl Region {
    pub fn info(&self) -> &RegionInfo {
        &self.info
    }

    pub fn table(&self) -> &Arc<TableDescriptor> {
        &self.table
    }

    /// The first sequence id of this opening; greater than any before it.
    pub fn open_seq_num(&self) -> SeqId {
        self.open_seq_num
    }

    /// What a new read sees.
    pub fn read_point(&self) -> ReadPoint {
        self.mvcc.read_point()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether this is a further copy for reads (`replica.rs`).
    #[inline]
    pub fn is_secondary(&self) -> bool {
        self.place.is_none()
    }

    /// Moves files to the archive that are in a store's directory and not the store's, and that `is_due` chooses. Only of
    /// stores that know their files by a list alone; in others no such files are. Returns how many. *Blocking.*
    pub fn archive_strays(&self, mut is_due: impl FnMut(&Path) -> bool) -> Result<usize> {
        let _open = self.enter()?;
        let mut count = 0;
        for store in self.stores.iter().filter(|store| store.tracker.writes_in_place()) {
            let Some(place) = &self.place else { break };
            let archive_dir = self.archive_dir.join(&*store.family.name_str());
            let strays = store.archive_strays(place, &archive_dir, &mut is_due)?;
            for name in &strays {
                tracing::info!(
                    region = self.info.encoded_name(),
                    name,
                    "a file that is no store's was archived"
                );
            }
            count += strays.len();
        }
        Ok(count)
    }

    /// Where this opening makes files.
    pub(crate) fn place(&self) -> &Arc<OpeningDir> {
        self.place.as_ref().expect("a secondary neither flushes nor compacts")
    }

    pub(crate) fn store(&self, family: &[u8]) -> Option<&Store> {
        // A handful of families: walking is faster than hashing.
        self.stores.iter().find(|store| same_bytes(store.family.name(), family))
    }

    pub(crate) fn store_or_error(&self, family: &[u8]) -> Result<&Store> {
        self.store(family).ok_or_else(|| {
            let message = format!(
                "Column family {} does not exist in region {} in table {}",
                family.escape_ascii(),
                self.info.region_name().escape_ascii(),
                self.table.name()
            );
            Error::new(ErrorKind::NoSuchFamily, message)
        })
    }

    /// Set from the first step of a close. Work of clients that is under way then keeps the region from closing, and has to end soon.
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// What a client is told of work that failed: if that was given up because the region is closing, its rows are elsewhere soon.
    #[cold]
    pub(crate) fn given_up(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::Stopping && self.is_closing() { self.closing_error() } else { error }
    }

    #[cold]
    fn closing_error(&self) -> Error {
        Error::new(ErrorKind::Moved, format!("{} is closing", self.info.region_name().escape_ascii()))
    }

    /// Keeps the region open while the guard lives; `Moved` once it is closing.
    pub(crate) fn enter(&self) -> Result<RwLockReadGuard<'_, bool>> {
        if self.is_closing() {
            return Err(self.closing_error());
        }
        // Only a close takes it alone. Who is in the region already, such as a flush whose coprocessors read, must not wait for that.
        match self.closed.unwatched().try_read() {
            Some(guard) if !*guard => Ok(guard),
            _ => Err(self.closing_error()),
        }
    }

    /// The update lock as writers take it.
    #[inline]
    pub(crate) fn updates_shared(&self) -> RwLockReadGuard<'_, ()> {
        let name = self.info.encoded_name();
        self.updates.read(&self.watch, "update-lock", |writer| format!("region {name}, for {writer}"))
    }

    /// The update lock as a flush takes it: waits for the writers that have it.
    pub(crate) fn updates_alone(&self, why: &'static Activity) -> RwLockWriteGuard<'_, ()> {
        Holder::me().is_at(why);
        let (name, why) = (self.info.encoded_name(), why.text());
        let detail = |others: &str| format!("region {name}: {why} waits for: {others}");
        self.updates.write(&self.watch, "update-lock", detail)
    }

    pub(crate) fn check_row(&self, row: &[u8], operation: &str) -> Result<()> {
        if self.info.contains_row(row) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::RowOutOfRange,
            format!(
                "Requested row out of range for {operation} on HRegion {}, startKey='{}', endKey='{}', row='{}'",
                self.info.region_name().escape_ascii(),
                self.info.start_key().escape_ascii(),
                self.info.end_key().escape_ascii(),
                row.escape_ascii()
            ),
        ))
    }

    /// Bytes of all memstores, what is being flushed included.
    pub fn memstore_size(&self) -> MemStoreSize {
        let mut sum = MemStoreSize::default();
        for store in &self.stores {
            let size = store.memstore_size();
            sum.data_bytes += size.data_bytes;
            sum.heap_bytes += size.heap_bytes;
        }
        sum
    }

    /// Bytes of the chunks and arrays of all memstores, what is being flushed included. What readers hold of memstores
    /// that were flushed is not.
    pub fn chunks_bytes(&self) -> u64 {
        self.stores.iter().map(|store| store.chunks_bytes() as u64).sum()
    }

    /// The size at which the region wants to be flushed.
    pub fn flush_size_bytes(&self) -> u64 {
        self.services.settings.flush_size_bytes
    }

    /// From now on files are compacted by these settings of the server, and by what the table and its families say.
    pub fn set_compaction(&self, of_server: &CompactionSettings) {
        for store in &self.stores {
            store.set_compaction(of_server.clone().for_store(&self.table, &store.family));
        }
    }

    /// Whether memory is being written out, or files of a bulk load are taken in.
    pub fn is_flushing(&self) -> bool {
        self.flushing.is_locked()
    }

    /// Whether the memstores are over the flush size.
    pub fn flush_wanted(&self) -> bool {
        self.memstore_size().heap_bytes >= self.flush_size_bytes()
    }

    /// Whether nothing of the region is in files, so that no read waits for the disk.
    pub fn memory_only(&self) -> bool {
        self.stores.iter().all(|store| store.view().files.is_empty())
    }

    /// Bytes of memory that the region's open files take besides blocks in the cache.
    pub fn files_held_bytes(&self) -> u64 {
        let of =
            |store: &Store| store.view().files.iter().map(|file| file.hfile.held_bytes() as u64).sum::<u64>();
        self.stores.iter().map(of).sum()
    }

    /// Drops the cached blocks of the region's files. Returns their number. *Blocking*, for as long as there are
    /// blocks.
    pub fn evict_blocks(&self) -> usize {
        let of_store = |store: &Store| {
            let view = store.view();
            view.files.iter().map(|file| file.hfile.blocks().evict_now()).sum::<usize>()
        };
        self.stores.iter().map(of_store).sum()
    }

    /// What becomes of the cached blocks when the region has closed. They are of use to whoever opens the files again,
    /// this region or one that refers to them, unless somebody wants them away (`EVICT_BLOCKS_ON_CLOSE`).
    pub(crate) fn evict_closed(&self) {
        for store in &self.stores {
            if self.services.settings.evicts_on_close(&store.family) {
                store.view().files.iter().for_each(|file| file.hfile.blocks().evict());
            }
        }
    }

    /// Whether there are files whose blocks are to be in the cache before they are asked for.
    pub fn prefetch_wanted(&self) -> bool {
        let is_wanted = |file: &Arc<StoreFile>| file.prefetch_wanted.load(Ordering::Acquire);
        self.stores.iter().any(|store| store.view().files.iter().any(is_wanted))
    }

    /// Reads such files into the cache (`PREFETCH_BLOCKS_ON_OPEN`), each of them once, until the cache is nearly full.
    /// *Blocking*, and long; does not keep the region from closing, and ends within a block when it does.
    pub fn prefetch(&self) {
        let now_ms = self.services.env.clock.now_ms();
        for store in &self.stores {
            for file in &store.view().files {
                if file.prefetch_wanted.swap(false, Ordering::AcqRel) {
                    let kinds = CacheKinds { data: store.keeps_in_cache(file, now_ms), ..CacheKinds::ALL };
                    file.fill_cache(kinds, || !self.closing.load(Ordering::Acquire));
                }
            }
        }
    }

    /// Takes blocks out of the cache whose data are older than the hot data of their family. For a cache that is full.
    pub fn evict_cold_blocks(&self) {
        let now_ms = self.services.env.clock.now_ms();
        self.stores.iter().for_each(|store| store.evict_cold(now_ms));
    }

    pub(crate) fn check_pressure(&self) -> Result<()> {
        let limit = self.flush_size_bytes().saturating_mul(self.services.settings.block_multiplier);
        let size = self.memstore_size().heap_bytes;
        if size <= limit {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Busy,
            format!(
                "Over memstore limit={limit}, regionName={}, memstoreSize={size}",
                self.info.encoded_name()
            ),
        ))
    }

    /// Counts rounds of a scan and the rows that its filter dropped. HBase counts each call of `RegionScanner.next` as a
    /// read request, also the one that finds nothing. `last_row` stands for the rows that were read; it may be empty.
    pub fn note_scanned(&self, rounds: u64, filtered_rows: u64, last_row: &[u8]) {
        let before = self.counters.reads.fetch_add(rounds, Ordering::Relaxed);
        if !last_row.is_empty() && self.key_samples.first_due(before, rounds).is_some() {
            self.key_samples.keep(last_row, false, rounds);
        }
        if filtered_rows > 0 {
            self.counters.filtered_reads.fetch_add(filtered_rows, Ordering::Relaxed);
        }
    }

    /// Names of the files of which all blocks were put into the cache and are still there.
    pub fn cached_files(&self) -> Vec<String> {
        let views = self.stores.iter().map(Store::view);
        let names = |view: Arc<crate::store::StoreView>| -> Vec<String> {
            let cached = view.files.iter().filter(|file| file.is_fully_cached());
            cached.map(|file| file.name.clone()).collect()
        };
        views.flat_map(names).collect()
    }

    /// Where the files of these families are; of all families if there is none. `NoSuchFamily` names one that is not there.
    pub fn store_files(&self, families: &[impl AsRef<[u8]>]) -> Result<Vec<PathBuf>> {
        let named: Vec<&Store> =
            families.iter().map(|family| self.store_or_error(family.as_ref())).collect::<Result<_>>()?;
        let stores = if named.is_empty() { self.stores.iter().collect() } else { named };
        let paths = |store: &Store| -> Vec<PathBuf> {
            store.view().files.iter().map(|file| file.path.clone()).collect()
        };
        Ok(stores.into_iter().flat_map(paths).collect())
    }

    /// Whether the next read is to be kept; nearly, as others read too.
    #[inline]
    pub(crate) fn is_read_due(&self) -> bool {
        self.key_samples.first_due(self.counters.reads.load(Ordering::Relaxed), 1).is_some()
    }

    /// Keeps rows of some of these mutations for [`Region::take_key_samples`]. Those that fail are among them.
    #[inline]
    pub(crate) fn sample_writes(&self, batch: &[Mutation]) {
        let before = self.counters.writes.load(Ordering::Relaxed);
        if let Some(first) = self.key_samples.first_due(before, batch.len() as u64) {
            self.key_samples.keep_some(first, batch.iter().map(|mutation| &*mutation.row), true);
        }
    }

    /// Rows of some requests since the last call of this; at most 128, of at most 128 bytes each. A row that an
    /// Increment or Append reads counts once, as written.
    pub fn take_key_samples(&self) -> Vec<KeySample> {
        self.key_samples.take()
    }

    /// Read and write requests since the region was opened.
    pub fn requests(&self) -> (u64, u64) {
        (self.counters.reads.load(Ordering::Relaxed), self.counters.writes.load(Ordering::Relaxed))
    }

    /// Bytes of store files that are on a machine of this name: at most `RegionStats::store_file_bytes`. Asks nobody; the
    /// places are those of the time when a file was opened.
    pub fn store_file_bytes_at(&self, host: &str) -> u64 {
        let files_of = |store: &Store| store.view().files.iter().map(|file| file.bytes_at(host)).sum::<u64>();
        self.stores.iter().map(files_of).sum()
    }

    pub fn stats(&self) -> RegionStats {
        let mut stats = RegionStats {
            memstore: self.memstore_size(),
            read_requests: self.counters.reads.load(Ordering::Relaxed),
            filtered_read_requests: self.counters.filtered_reads.load(Ordering::Relaxed),
            write_requests: self.counters.writes.load(Ordering::Relaxed),
            max_seq: self.mvcc.last(),
            last_flush_ms: self.counters.last_flush_ms.load(Ordering::Relaxed),
            minor_compactions_running: self.counters.minor_running.load(Ordering::Relaxed),
            major_compactions_running: self.counters.major_running.load(Ordering::Relaxed),
            mob: self.mob_counts(),
            ..RegionStats::default()
        };
        let mut oldest_major = i64::MAX;
        for store in &self.stores {
            let view = store.view();
            stats.files_in_a_store_max = stats.files_in_a_store_max.max(view.files.len());
            let store_bytes = view.files.iter().map(|file| file.len_bytes).sum();
            stats.store_bytes_max = stats.store_bytes_max.max(store_bytes);
            stats.references += view.files.iter().filter(|file| file.is_reference()).count();
            for file in &view.files {
                stats.store_files += 1;
                stats.store_file_bytes += file.len_bytes;
                stats.uncompressed_bytes += file.hfile.uncompressed_len();
                stats.root_index_bytes += file.hfile.root_index_bytes();
                stats.data_index_bytes += file.hfile.data_index_bytes();
                stats.bloom_bytes += file.hfile.bloom_bytes();
                stats.file_readers += Arc::strong_count(&file.hfile).saturating_sub(1); // one is the store's
                if file.is_major() {
                    oldest_major = oldest_major.min(file.hfile.info().create_time_ms().unwrap_or(0));
                }
            }
            stats.compacting_cells += store.progress.total_cells.load(Ordering::Relaxed);
            stats.compacted_cells += store.progress.done_cells.load(Ordering::Relaxed);
            stats.flushed_seqs.push((store.family.name().clone(), store.max_flushed_seq()));
        }
        stats.last_major_compaction_ms = if oldest_major == i64::MAX { 0 } else { oldest_major };
        stats
    }
}
