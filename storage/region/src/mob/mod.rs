//! Medium-sized objects: values over a threshold stand in mob files, and store files have references to them
//! (HBase: `HMobStore`, `DefaultMobStoreFlusher`, `DefaultMobStoreCompactor`, `MobFileCache`).
//!
//! ```text
//! flush    large values -> mob file, the cells with references in their place -> store file
//! read     a reference that is to be returned -> mob file, in the table's directory or the archive -> the cell
//! compact  references stay; a major compaction that a user asked for rewrites the values, too
//! ```
//!
//! The bytes are drawn in `halcyon_schema::mob`. Log and memstore hold whole values.
//!
//! *Crash safety*: a mob file is durable in its place before the store file that refers to it is put in its own. So no
//! reference is without a file. A crash between the two leaves a mob file without reference, which `clean.rs` finds.
//!
//! Whatever has the tag of a reference is resolved, also where the family has no `IS_MOB` any more; HBase then returns the
//! references themselves.

mod cache;
mod clean;
mod look;
mod references_only;
mod rewrite;
mod seeing_values;
mod settings;
mod writer;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_cache::BlockCache;
use halcyon_cell::{Cell, CellRef, CellScanner, CellType, Error, ErrorKind, Result};
use halcyon_env::{Env, Mutex, invariant};
use halcyon_hfile::{BlockReads, HFile, ReadMode, ReaderOptions};
use halcyon_schema::mob::{MOB_FILE_REFS, MobReference, is_mob_reference, mob_reference_tags};
use halcyon_schema::{FamilyDescriptor, RegionInfo, TableDescriptor, TableName, layout};

pub use cache::{MobCacheStats, MobFileCache};
pub use look::mob_references_of_file;
pub(crate) use references_only::ReferencesOnly;
pub(crate) use rewrite::MobRewriter;
pub(crate) use seeing_values::SeeingValues;
pub use settings::{MobCompactionType, MobSettings};
pub(crate) use writer::MobOutputs;

use crate::region::{Region, RegionServices};
use crate::store::StoreFile;

/// What of a scan is about mob files (attributes of Get and Scan, HBase: `MobConstants`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MobScan {
    /// References are returned as they stand (`hbase.mob.scan.raw`).
    pub raw: bool,
    /// Of families with `IS_MOB` only cells with references are returned (`hbase.mob.scan.ref.only`).
    pub references_only: bool,
    /// Blocks of mob files go into the cache (`hbase.mob.cache.blocks`).
    pub cache_blocks: bool,
    /// A value whose file is gone or damaged is empty, and no error (`empty.value.on.mobcell.miss`).
    pub empty_on_miss: bool,
}

/// Counts since a region was opened (HBase: `HMobStore`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MobCounts {
    /// Cells whose values compactions brought into mob files, and bytes of these values.
    pub compacted_to_mob_cells: u64,
    pub compacted_to_mob_bytes: u64,
    /// Likewise, out of mob files.
    pub compacted_from_mob_cells: u64,
    pub compacted_from_mob_bytes: u64,
    /// Flushes that wrote a mob file, its cells, and bytes of their values.
    pub flushes: u64,
    pub flushed_cells: u64,
    pub flushed_bytes: u64,
    /// References that reads followed, and bytes of the values.
    pub scanned_cells: u64,
    pub scanned_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub to_mob_cells: AtomicU64,
    pub to_mob_bytes: AtomicU64,
    pub from_mob_cells: AtomicU64,
    pub from_mob_bytes: AtomicU64,
    pub flushes: AtomicU64,
    pub flushed_cells: AtomicU64,
    pub flushed_bytes: AtomicU64,
    scanned_cells: AtomicU64,
    scanned_bytes: AtomicU64,
}

/// The mob files of one store.
///
/// *Thread safety*: readers, flushes, compactions and the cleaner use it at the same time.
pub(crate) struct MobStore {
    env: Env,
    files: Arc<MobFileCache>,
    blocks: Arc<BlockCache>,
    root: PathBuf,
    table: TableName,
    family: FamilyDescriptor,
    /// Of the region.
    start_key: bytes::Bytes,
    encoded_region: String,
    /// Where new mob files go.
    dir: PathBuf,
    /// What stands first in the tags of a reference.
    tags: Vec<u8>,
    pub settings: MobSettings,
    /// Names of mob files that are in their place, or about to be, whose store file is not.
    being_written: Mutex<BTreeSet<String>>,
    pub counters: Counters,
}

/// How references are resolved.
#[derive(Clone, Debug)]
pub(crate) struct MobRead {
    pub mode: ReadMode,
    pub cache_blocks: bool,
    pub empty_on_miss: bool,
    pub reads: Option<Arc<BlockReads>>,
}

/// Resolves what a scanner of one store finds.
#[derive(Clone)]
pub(crate) struct MobReader {
    store: Arc<MobStore>,
    how: MobRead,
    /// What the filter has looked at last, which the scan returns if it passes. `None`: there is no filter.
    last: Option<Arc<Mutex<Option<Cell>>>>,
}

impl MobReader {
    pub fn new(store: Arc<MobStore>, how: MobRead) -> MobReader {
        MobReader { store, how, last: None }
    }

    /// Its clones share what was read last from now on.
    pub fn sharing(self) -> MobReader {
        MobReader { last: Some(Arc::default()), ..self }
    }

    #[inline]
    pub fn is_reference(&self, cell: CellRef<'_>) -> bool {
        is_mob_reference(cell)
    }

    /// The cell that a reference stands for; `None`: the cell is no reference. Errors as for [`MobStore::resolve`].
    #[inline]
    pub fn resolved(&self, cell: CellRef<'_>) -> Result<Option<Cell>> {
        if !is_mob_reference(cell) {
            return Ok(None);
        }
        let is_it = |found: &mut Cell| found.seq() == cell.seq() && found.get().key() == cell.key();
        let found = match self.last.as_ref().and_then(|last| last.lock().take_if(is_it)) {
            Some(found) => found,
            None => self.store.resolve(cell, &self.how)?,
        };
        invariant!(
            found.seq() == cell.seq() && found.get().key() == cell.key(),
            "{found:?} stands where {cell:?} is referred to: the scan would return it out of order"
        );
        self.store.counters.scanned_cells.fetch_add(1, Ordering::Relaxed);
        self.store.counters.scanned_bytes.fetch_add(found.get().value_len() as u64, Ordering::Relaxed);
        Ok(Some(found))
    }

    /// The cell that the reference `cell` stands for, kept for [`MobReader::resolved`]. Errors as for that.
    pub fn looked_at(&self, cell: CellRef<'_>) -> Result<Option<Cell>> {
        let found = self.store.resolve(cell, &self.how)?;
        if let Some(last) = &self.last {
            *last.lock() = Some(found.clone());
        }
        Ok(Some(found))
    }

    /// What was looked at is not asked for any more.
    pub fn forget(&self) {
        if let Some(last) = &self.last {
            let looked_at = last.lock().take();
            drop(looked_at);
        }
    }

    /// Bytes of what was looked at and may be asked for.
    pub fn held_bytes(&self) -> usize {
        self.last.as_ref().and_then(|last| last.lock().as_ref().map(|cell| cell.bytes().len())).unwrap_or(0)
    }
}

impl MobStore {
    pub fn new(
        services: &RegionServices,
        root: &Path,
        table: &TableDescriptor,
        info: &RegionInfo,
        family: &FamilyDescriptor,
    ) -> MobStore {
        let name = info.table();
        MobStore {
            env: services.env.clone(),
            files: services.mob_files.clone(),
            blocks: services.cache.clone(),
            root: root.to_path_buf(),
            table: name.clone(),
            family: family.clone(),
            start_key: info.start_key().clone(),
            encoded_region: info.primary().encoded_name().to_string(),
            dir: layout::mob_family_dir(root, name, &family.name_str()),
            tags: mob_reference_tags(name),
            settings: services.settings.mob.clone().for_store(table, family),
            being_written: Mutex::default(),
            counters: Counters::default(),
        }
    }

    /// Whether large values of new cells go to mob files.
    pub fn is_on(&self) -> bool {
        self.family.is_mob()
    }

    /// Whether the value of the cell is to stand in a mob file.
    fn is_large(&self, cell: CellRef<'_>) -> bool {
        self.is_on() && cell.value_len() > self.family.mob_threshold()
    }

    /// Whether cells that are read may be references.
    pub fn may_have_references(&self, files: &[Arc<StoreFile>]) -> bool {
        self.is_on() || files.iter().any(|file| file.has_mob_references)
    }

    /// The cell that a reference stands for, with the reference's sequence id. *Blocking* with `ReadMode::AnyDisk`.
    ///
    /// Errors: `Invalid` if the mob file is nowhere, as it will not come back; `Corrupt` if the file lacks the cell, or one
    /// of the two is damaged; `NeedsDisk`. With `empty_on_miss` these are a cell without value, but for the last.
    pub fn resolve(&self, cell: CellRef<'_>, how: &MobRead) -> Result<Cell> {
        match self.look_up(cell, how) {
            Err(error) if how.empty_on_miss && error.kind().is_permanent() => {
                tracing::warn!(%error, "a value that is gone is returned empty, as asked for");
                let (row, family, qualifier) = (cell.row(), cell.family(), cell.qualifier());
                let (time, tags) = (cell.timestamp(), cell.tags());
                Ok(Cell::build(row, family, qualifier, time, CellType::Put, b"", tags, cell.seq()))
            }
            found => found,
        }
    }

    fn look_up(&self, cell: CellRef<'_>, how: &MobRead) -> Result<Cell> {
        let reference = MobReference::of(cell)?;
        let mut hfile = self.open(&reference, how.mode)?;
        let mut found = find(&hfile, cell, how);
        if found.as_ref().is_err_and(|error| error.kind() == ErrorKind::Io) {
            // It may have gone to the archive since it was opened.
            self.files.forget(reference.file);
            hfile = self.open(&reference, how.mode)?;
            found = find(&hfile, cell, how);
        }
        found?.map(|found| found.with_seq(cell.seq())).ok_or_else(|| {
            Error::corrupt(format!(
                "{}: expected a cell {:?}, found none",
                hfile.path().display(),
                cell.key()
            ))
        })
    }

    /// `Invalid` if the file is nowhere.
    fn open(&self, reference: &MobReference<'_>, mode: ReadMode) -> Result<Arc<HFile>> {
        let MobReference { table, file, .. } = reference;
        if let Some(hfile) = self.files.get(file) {
            return Ok(hfile);
        }
        if mode == ReadMode::CacheOnly {
            return Err(Error::needs_disk());
        }
        let family = self.family.name_str();
        let live = layout::mob_family_dir(&self.root, table, &family).join(file);
        let archived = layout::mob_archive_dir(&self.root, table, &family).join(file);
        // A file goes from the first place to the second one, and a restored table brings it back.
        for place in [&live, &archived, &live] {
            match self.env.fs.open(place) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => {
                    let hfile = HFile::of_file(opened?, &self.env.keys, &self.blocks, self.reader_options())
                        .map_err(|error| error.context(place.display()))?;
                    self.files.keep(file, &hfile);
                    return Ok(hfile);
                }
            }
        }
        // To clients a DoNotRetryIOException, and of HBase's kind: it puts the other exception into the message.
        Err(Error::invalid(format!(
            "java.io.FileNotFoundException: File does not exist: {}",
            archived.display()
        )))
    }

    /// Bytes of a mob file, wherever it is; `None`: nowhere.
    fn len_of(&self, table: &TableName, file: &str) -> Result<Option<u64>> {
        let family = self.family.name_str();
        let live = layout::mob_family_dir(&self.root, table, &family).join(file);
        let archived = layout::mob_archive_dir(&self.root, table, &family).join(file);
        for place in [&live, &archived, &live] {
            match self.env.fs.open(place) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return Ok(Some(opened?.len()?)),
            }
        }
        Ok(None)
    }

    fn reader_options(&self) -> ReaderOptions {
        ReaderOptions { cache_data: true, in_memory: self.family.in_memory(), cell_seq: None }
    }

    /// A flush that wrote a mob file is complete.
    pub fn note_flushed(&self, cells: u64, bytes: u64) {
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters.flushed_cells.fetch_add(cells, Ordering::Relaxed);
        self.counters.flushed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn counts(&self) -> MobCounts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counters = &self.counters;
        MobCounts {
            compacted_to_mob_cells: get(&counters.to_mob_cells),
            compacted_to_mob_bytes: get(&counters.to_mob_bytes),
            compacted_from_mob_cells: get(&counters.from_mob_cells),
            compacted_from_mob_bytes: get(&counters.from_mob_bytes),
            flushes: get(&counters.flushes),
            flushed_cells: get(&counters.flushed_cells),
            flushed_bytes: get(&counters.flushed_bytes),
            scanned_cells: get(&counters.scanned_cells),
            scanned_bytes: get(&counters.scanned_bytes),
        }
    }
}

/// Whether the store file has references to mob files.
pub(crate) fn has_references(hfile: &HFile) -> bool {
    hfile.info().get(MOB_FILE_REFS).is_some_and(|refs| refs.len() > 1)
}

/// The cell of this key in a mob file. Of several writes of the key, that which the reference was made of; if none has its
/// sequence id, the newest. HBase writes sequence ids that all readers see as 0 (`keep.seqId.period`), in the mob file or beside the
/// reference, and what was merged then is the newest write. Here they stay: it may be an older one that a scanner still sees.
fn find(hfile: &Arc<HFile>, reference: CellRef<'_>, how: &MobRead) -> Result<Option<Cell>> {
    let key = reference.key();
    let mut scanner = hfile.scanner(how.mode, how.cache_blocks).counting(how.reads.clone());
    scanner.seek(key)?;
    let mut newest = None;
    while let Some(cell) = scanner.peek().filter(|cell| cell.key().bytes() == key.bytes()) {
        if cell.seq() == reference.seq() {
            return Ok(scanner.cell());
        }
        newest = newest.or_else(|| scanner.cell());
        scanner.next()?;
    }
    Ok(newest)
}

impl std::ops::AddAssign for MobCounts {
    fn add_assign(&mut self, other: MobCounts) {
        self.compacted_to_mob_cells += other.compacted_to_mob_cells;
        self.compacted_to_mob_bytes += other.compacted_to_mob_bytes;
        self.compacted_from_mob_cells += other.compacted_from_mob_cells;
        self.compacted_from_mob_bytes += other.compacted_from_mob_bytes;
        self.flushes += other.flushes;
        self.flushed_cells += other.flushed_cells;
        self.flushed_bytes += other.flushed_bytes;
        self.scanned_cells += other.scanned_cells;
        self.scanned_bytes += other.scanned_bytes;
    }
}

impl Region {
    /// What the region's stores did with mob files.
    pub fn mob_counts(&self) -> MobCounts {
        let mut sum = MobCounts::default();
        self.stores.iter().for_each(|store| sum += store.mob.counts());
        sum
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;
    use halcyon_hfile::{FileMeta, HFileWriter, WriterOptions};

    use super::*;

    /// HBase writes sequence ids as 0 that are old enough, so a reference may have none that its mob file knows. Of several writes
    /// of one key the oldest was returned.
    #[test]
    fn of_several_writes_of_a_key_the_newest_is_found() {
        let (fs, path) = (SimFileSystem::new(), Path::new("/mob"));
        let env = fs.env();
        let mut writer = HFileWriter::create(&env, path, WriterOptions::default()).unwrap();
        let cell = |value: &[u8], seq| Cell::put(b"r", b"f", b"q", 7, value).with_seq(seq);
        for (value, seq) in [(&b"newest"[..], 9), (b"middle", 7), (b"oldest", 5)] {
            writer.append(cell(value, seq).get()).unwrap();
        }
        writer.finish(FileMeta::default()).unwrap();
        let cache = Arc::new(BlockCache::new(1 << 20));
        let hfile = HFile::open(&env, path, &cache, ReaderOptions::default()).unwrap();
        let how = MobRead { mode: ReadMode::AnyDisk, cache_blocks: false, empty_on_miss: false, reads: None };
        let found = |seq| find(&hfile, cell(b"", seq).get(), &how).unwrap().unwrap().value().to_vec();
        assert_eq!([9, 7, 5].map(found), [&b"newest"[..], b"middle", b"oldest"].map(<[u8]>::to_vec));
        assert_eq!([0, 12].map(found), [b"newest"; 2].map(|value| value.to_vec()));
    }
}
