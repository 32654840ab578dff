//! One file of a store: an HFile of its own, a link to another region's, or a reference to rows of one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_cache::{BlockCache, FileId};
use halcyon_cell::{Error, ReadPoint, Result, SeqId};
use halcyon_env::Env;
use halcyon_hfile::{BlockReads, CacheKinds, HFile, HalfScanner, ReadMode, ReaderOptions, RowRange};
use halcyon_schema::{FamilyDescriptor, TableName};

use super::file_list::Listed;
use super::name::{StoreFileName, seq_in_name};
use super::reference::Reference;
use super::stripes::{STRIPE_END_KEY, STRIPE_START_KEY};
use crate::api::TimeRange;
use crate::keeping::RowSpan;
use crate::mob;
use crate::row_lock::AHEAD_MS_MAX;
use crate::scan::source::{Source, UpTo};

/// Times that the places of an HFile are looked at. A file can move to a place that was looked at before, once.
const LOOKS_COUNT: usize = 2;

/// One HFile of a store, open for reading; or what a link or reference stands for: another region's HFile, or part of it.
pub(crate) struct StoreFile {
    pub hfile: Arc<HFile>,
    /// Of the link or reference, if it is one.
    pub path: PathBuf,
    pub name: String,
    /// Rows that are shown; only of a reference.
    pub half: Option<RowRange>,
    /// The HFile is in the region's own directory.
    pub is_own: bool,
    /// Its place in the order in which files were opened; unique in this process.
    pub number: FileId,
    /// Its blocks are to be read into the cache, and nobody has begun.
    pub prefetch_wanted: AtomicBool,
    /// Blocks that were in the cache when all of them had been put there; 0: they never were.
    filled_count: AtomicUsize,
    /// Of a reference about what its rows take.
    pub len_bytes: u64,
    pub max_seq: SeqId,
    /// Highest sequence id of a cell in it: readers at an older point have to look at each cell.
    pub max_cell_seq: SeqId,
    /// Smallest and largest timestamp, inclusive; `None`: no cells.
    pub time_range: Option<(i64, i64)>,
    /// Rows of the stripe that it was written for, if it has no others.
    pub stripe: Option<RowSpan>,
    pub has_mob_references: bool,
}

/// What opens store files.
#[derive(Clone, Copy)]
pub(crate) struct StoreFileOpener<'a> {
    pub env: &'a Env,
    pub cache: &'a Arc<BlockCache>,
    pub family: &'a FamilyDescriptor,
}

impl StoreFileOpener<'_> {
    /// Opens the HFile at `path`.
    pub fn open_hfile(self, path: &Path) -> Result<Arc<StoreFile>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hfile = HFile::open(self.env, path, self.cache, self.options(&name))?;
        Ok(StoreFile::new(hfile, path, None, &name, true))
    }

    /// Opens the HFile, link or reference at `path`, which a region of the table has in its store. Corrupt if the HFile is
    /// nowhere.
    pub fn open(
        self,
        path: &Path,
        name: &StoreFileName<'_>,
        root: &Path,
        table: &TableName,
    ) -> Result<Arc<StoreFile>> {
        if name.is_own_hfile() {
            return self.open_hfile(path);
        }
        let reference = name.parent.map(|_| Reference::read(self.env, path)).transpose()?;
        let hfile = self.find(path, name.hfile, &name.places(root, table, &self.family.name_str()))?;
        Ok(StoreFile::new(hfile, path, reference, name.hfile, false))
    }

    fn find(self, path: &Path, hfile_name: &str, places: &[PathBuf]) -> Result<Arc<HFile>> {
        for place in std::iter::repeat_n(places, LOOKS_COUNT).flatten() {
            match self.env.fs.open(place) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => {
                    let hfile = HFile::of_file(opened?, &self.env.keys, self.cache, self.options(hfile_name));
                    return hfile.map_err(|error| error.context(path.display()));
                }
            }
        }
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        Err(Error::corrupt(format!(
            "{} leads to no file; there is none at {}",
            path.display(),
            places.join(" or ")
        )))
    }

    /// The cells of a bulk-loaded file have the sequence id that is in its name.
    fn options(self, hfile_name: &str) -> ReaderOptions {
        ReaderOptions {
            cache_data: self.family.block_cache(),
            in_memory: self.family.in_memory(),
            cell_seq: seq_in_name(hfile_name),
        }
    }
}

impl StoreFile {
    fn new(
        hfile: Arc<HFile>,
        path: &Path,
        reference: Option<Reference>,
        hfile_name: &str,
        is_own: bool,
    ) -> Arc<StoreFile> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = FileId::new(NUMBER.fetch_add(1, Ordering::Relaxed));
        let info = hfile.info();
        // A bulk-loaded file has its sequence id in its name: <32 hex>_SeqId_<n>_. What it says of itself is of the region
        // that it was made in, if it was made in one (HBase: `HStoreFile.open`).
        let loaded_seq = seq_in_name(hfile_name);
        assert!(
            !is_own || reference.is_none(),
            "{hfile_name}: the blocks of the file behind a reference are not its own to retire"
        );
        let mut max_seq = loaded_seq.or_else(|| info.max_seq_id()).unwrap_or_default();
        let max_cell_seq =
            loaded_seq.filter(|_| !info.skips_reset_of_seq_ids()).unwrap_or_else(|| info.max_mvcc());
        // Without a range of times in it any can be there.
        let has_unknown_times = info.time_range().is_none() && loaded_seq.is_some() && info.entry_count() > 0;
        let time_range = if has_unknown_times { Some((0, i64::MAX)) } else { info.time_range() };
        // As HBase counts (`HStoreFile.open`).
        if reference.as_ref().is_some_and(|reference| reference.top) {
            max_seq = max_seq.next();
        }
        let half = reference.map(|reference| reference.range());
        let len_bytes = match &half {
            Some(range) if !covers(range, &hfile) => hfile.len() / 2,
            _ => hfile.len(),
        };
        let stripe = if half.is_some() || loaded_seq.is_some() { None } else { stripe_of(&hfile) };
        Arc::new(StoreFile {
            path: path.to_path_buf(),
            name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            half,
            is_own,
            number,
            prefetch_wanted: AtomicBool::new(false),
            filled_count: AtomicUsize::new(0),
            len_bytes,
            max_seq,
            max_cell_seq,
            time_range,
            stripe,
            has_mob_references: mob::has_references(&hfile),
            hfile,
        })
    }

    /// Bytes of it that are on a machine of this name, about, if it is a reference.
    pub fn bytes_at(&self, host: &str) -> u64 {
        // A reference to a half has half of the bytes.
        let parts = (self.hfile.len() / self.len_bytes.max(1)).max(1);
        self.hfile.bytes_at(host) / parts
    }

    /// As [`HFile::fill_cache`]. A file is no worse for not being in the cache, so an error is only told.
    pub fn fill_cache(&self, kinds: CacheKinds, go_on: impl Fn() -> bool) {
        match self.hfile.fill_cache(kinds, go_on) {
            Ok(filled) if kinds.data => self.filled_count.store(filled.unwrap_or(0), Ordering::Relaxed),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "blocks were not put into the cache"),
        }
    }

    /// Whether all blocks were put into the cache ahead of reads, and all are still there.
    pub fn is_fully_cached(&self) -> bool {
        let filled = self.filled_count.load(Ordering::Relaxed);
        filled > 0 && self.hfile.blocks().cached_count() >= filled
    }

    /// Lets the blocks of a file go that is no store's any more. The HFile of a link or reference is others' as well: what
    /// is left of it goes with the file.
    pub fn retire_blocks(&self) {
        if self.is_own {
            self.hfile.blocks().retire();
        }
    }

    /// Whether a cell in `range` that is not older than `oldest` can be in the file.
    pub fn may_contain_time(&self, range: TimeRange, oldest: i64) -> bool {
        match self.time_range {
            None => false,
            Some((min, max)) => max >= range.min.max(oldest) && (min < range.max || range.max == i64::MAX),
        }
    }

    /// No timestamp that a server gave to a cell of the file is newer; `None`: it has no cells. What is newer was a client's
    /// own choice, because a server gives timestamps that are hardly ahead of its clock, and the file was made afterwards.
    pub fn newest_given_ms(&self) -> Option<i64> {
        let (_, newest_ms) = self.time_range?;
        let made_ms = self.hfile.info().create_time_ms().unwrap_or(i64::MAX);
        Some(newest_ms.min(made_ms.saturating_add(AHEAD_MS_MAX)))
    }

    /// What a list of files says of it.
    pub fn listed(&self) -> Listed {
        let len = if self.is_own { self.hfile.len() } else { 0 };
        Listed { name: self.name.clone(), len }
    }

    pub fn is_major(&self) -> bool {
        !self.is_reference() && self.hfile.info().is_major()
    }

    pub fn is_reference(&self) -> bool {
        self.half.is_some()
    }

    /// The reference that the file is, if it is one.
    pub fn reference(&self) -> Option<Reference> {
        let range = self.half.as_ref()?;
        let reference = match (&range.start, &range.end) {
            (Some(row), _) => Reference { split_row: row.clone(), top: true },
            (None, row) => Reference { split_row: row.clone().unwrap_or_default(), top: false },
        };
        Some(reference)
    }

    /// What the file gives to a merge; cells above `read_point` are passed over.
    pub fn source(&self, mode: ReadMode, cache_blocks: bool, read_point: ReadPoint) -> Source {
        self.source_counting(mode, cache_blocks, read_point, None)
    }

    /// As `source`, of a scan that wants its blocks counted.
    pub fn source_counting(
        &self,
        mode: ReadMode,
        cache_blocks: bool,
        read_point: ReadPoint,
        reads: Option<Arc<BlockReads>>,
    ) -> Source {
        let scanner = self.hfile.scanner(mode, cache_blocks).counting(reads);
        match &self.half {
            None => Source::File(UpTo::new(scanner, read_point)),
            Some(range) => Source::Half(UpTo::new(HalfScanner::new(scanner, range.clone()), read_point)),
        }
    }
}

/// Whether all rows of the file are in the range.
fn covers(range: &RowRange, hfile: &HFile) -> bool {
    let (Some(first), Some(last)) = (hfile.info().first_key(), hfile.info().last_key()) else { return true };
    range.start.as_ref().is_none_or(|start| first.row() >= &start[..])
        && range.end.as_ref().is_none_or(|end| last.row() < &end[..])
}

/// What the file says of its stripe, if all its rows are in that.
fn stripe_of(hfile: &HFile) -> Option<RowSpan> {
    let info = hfile.info();
    let (start, end) = (info.get(STRIPE_START_KEY)?.clone(), info.get(STRIPE_END_KEY)?.clone());
    let bound = |row: &Bytes| Some(row.clone()).filter(|row| !row.is_empty());
    covers(&RowRange { start: bound(&start), end: bound(&end) }, hfile).then_some((start, end))
}
