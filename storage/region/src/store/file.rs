//! One file of a store: an HFile of its own, or a reference to rows of another region's.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use halcyon_cache::{BlockCache, FileId};
use halcyon_cell::{Error, ReadPoint, Result, SeqId};
use halcyon_env::Env;
use halcyon_hfile::{BlockReads, CacheKinds, HFile, HalfScanner, ReadMode, ReaderOptions, RowRange};
use halcyon_schema::{FamilyDescriptor, layout};

use super::reference::Reference;
use super::stripes::{STRIPE_END_KEY, STRIPE_START_KEY};
use crate::api::TimeRange;
use crate::keeping::RowSpan;
use crate::scan::source::{Source, UpTo};

/// One HFile of a store, open for reading; or the part of another region's file that a reference stands for.
pub(crate) struct StoreFile {
    pub hfile: Arc<HFile>,
    /// Of the reference, if it is one.
    pub path: PathBuf,
    pub name: String,
    /// Rows that are shown; only of a reference.
    pub half: Option<RowRange>,
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
}

impl StoreFile {
    /// Opens the store file or reference at `path`. `archive_table_dir` is where the file of a reference is if
    /// the region that it belonged to is gone already.
    pub fn open(
        env: &Env,
        path: &Path,
        archive_table_dir: &Path,
        family: &FamilyDescriptor,
        cache: &Arc<BlockCache>,
    ) -> Result<Arc<StoreFile>> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = FileId::new(NUMBER.fetch_add(1, Ordering::Relaxed));
        let options = ReaderOptions {
            cache_data: family.block_cache(),
            in_memory: family.in_memory(),
            ..ReaderOptions::default()
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (hfile, reference) = match layout::parse_reference_name(&name) {
            None => (HFile::open(env, path, cache, options)?, None),
            Some((file, parent)) => {
                let reference = Reference::read(env, path)?;
                let referred = referred_file(env, path, archive_table_dir, file, parent)?;
                let hfile = HFile::open(env, &referred, cache, options)
                    .map_err(|error| error.context(path.display()))?;
                (hfile, Some(reference))
            }
        };
        let info = hfile.info();
        // A bulk-loaded file has its sequence id in its name: <32 hex>_SeqId_<n>_.
        let file_name = name.split('.').next().unwrap_or_default();
        let mut max_seq = info.max_seq_id().or_else(|| seq_in_name(file_name)).unwrap_or_default();
        // As HBase counts (`HStoreFile.open`).
        if reference.as_ref().is_some_and(|reference| reference.top) {
            max_seq = max_seq.next();
        }
        let half = reference.map(|reference| reference.range());
        let len_bytes = match &half {
            Some(range) if !covers(range, &hfile) => hfile.len() / 2,
            _ => hfile.len(),
        };
        let stripe = if half.is_some() { None } else { stripe_of(&hfile) };
        Ok(Arc::new(StoreFile {
            path: path.to_path_buf(),
            name,
            half,
            number,
            prefetch_wanted: AtomicBool::new(false),
            filled_count: AtomicUsize::new(0),
            len_bytes,
            max_seq,
            max_cell_seq: info.max_mvcc(),
            time_range: info.time_range(),
            stripe,
            hfile,
        }))
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

    /// Lets the blocks of a file go that is no store's any more. A reference's file is others' as well: what is left
    /// of it goes with the file.
    pub fn retire_blocks(&self) {
        if !self.is_reference() {
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

/// Where the file is that the reference at this path names: with its region, or archived. Corrupt if it is nowhere.
fn referred_file(
    env: &Env,
    reference: &Path,
    archive_table_dir: &Path,
    file: &str,
    parent: &str,
) -> Result<PathBuf> {
    let nowhere = || Error::invalid(format!("{} is in no region's directory", reference.display()));
    let family_dir = reference.parent().ok_or_else(nowhere)?;
    let family = family_dir.file_name().ok_or_else(nowhere)?;
    let table_dir = family_dir.parent().and_then(Path::parent).ok_or_else(nowhere)?;
    let place = Path::new(parent).join(family).join(file);
    let places = [table_dir.join(&place), archive_table_dir.join(&place)];
    let found = env.fs.first_existing(places.iter().map(PathBuf::as_path))?;
    found
        .map(Path::to_path_buf)
        .ok_or_else(|| Error::corrupt(format!("{} leads to no file", reference.display())))
}

/// The sequence id in the name of a bulk-loaded file: `<32 hex>_SeqId_<n>_`.
pub fn seq_in_name(name: &str) -> Option<SeqId> {
    name.split_once("_SeqId_")?.1.strip_suffix('_')?.parse().ok().map(SeqId::new)
}

/// Whether a name in a family directory is a store file's or a reference's.
pub fn is_store_file_name(name: &str) -> bool {
    let name = layout::parse_reference_name(name).map_or(name, |(file, _)| file);
    let (hex, rest) = match name.find("_SeqId_") {
        Some(at) => name.split_at(at),
        None => (name, ""),
    };
    let is_hex = !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_hex && (rest.is_empty() || seq_in_name(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_store_files() {
        assert!(is_store_file_name("0123456789abcdef0123456789abcdef"));
        assert!(is_store_file_name("0123456789abcdef0123456789abcdef_SeqId_42_"));
        assert!(is_store_file_name("0123456789abcdef0123456789abcdef.2140f686c386930b96c060b1030c2875"));
        assert!(is_store_file_name("01_SeqId_42_.2140f686c386930b96c060b1030c2875"));
        assert!(!is_store_file_name(".tmp"));
        assert!(!is_store_file_name("0123.parent"));
        assert_eq!(seq_in_name("ab_SeqId_42_"), Some(SeqId::new(42)));
    }
}
