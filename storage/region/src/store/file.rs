use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_cache::BlockCache;
use halcyon_cell::Result;
use halcyon_env::Env;
use halcyon_hfile::{CacheKinds, HFile, ReaderOptions};
use halcyon_schema::FamilyDescriptor;

use crate::api::TimeRange;

/// One HFile of a store, open for reading.
pub(crate) struct StoreFile {
    pub hfile: Arc<HFile>,
    pub path: PathBuf,
    pub name: String,
    /// Number under which its blocks are cached; unique in this process.
    pub number: u64,
    pub len_bytes: u64,
    pub max_seq: u64,
    /// Highest sequence id of a cell in it: readers at an older point have to look at each cell.
    pub max_cell_seq: u64,
    /// Smallest and largest timestamp, inclusive; `None`: no cells.
    pub time_range: Option<(i64, i64)>,
}

impl StoreFile {
    pub fn open(
        env: &Env,
        path: &Path,
        family: &FamilyDescriptor,
        cache: &Arc<BlockCache>,
    ) -> Result<Arc<StoreFile>> {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let options = ReaderOptions {
            cache_data: family.block_cache(),
            in_memory: family.in_memory(),
            ..ReaderOptions::default()
        };
        let hfile = HFile::open(env, path, number, cache.clone(), options)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let info = hfile.info();
        // A bulk-loaded file has its sequence id in its name: <32 hex>_SeqId_<n>_.
        let max_seq = info.max_seq_id().or_else(|| seq_in_name(&name)).unwrap_or(0);
        let file = Arc::new(StoreFile {
            path: path.to_path_buf(),
            name,
            number,
            len_bytes: hfile.len(),
            max_seq,
            max_cell_seq: info.max_mvcc(),
            time_range: info.time_range(),
            hfile,
        });
        if family.prefetch_blocks_on_open() {
            file.fill_cache(CacheKinds { data: family.block_cache(), ..CacheKinds::ALL });
        }
        Ok(file)
    }

    /// As [`HFile::fill_cache`]. A file is no worse for not being in the cache, so an error is only told.
    pub fn fill_cache(&self, kinds: CacheKinds) {
        if let Err(error) = self.hfile.fill_cache(kinds) {
            tracing::warn!(%error, "blocks were not put into the cache");
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
        self.hfile.info().is_major()
    }
}

fn seq_in_name(name: &str) -> Option<u64> {
    name.split_once("_SeqId_")?.1.strip_suffix('_')?.parse().ok()
}

/// Whether a name in a family directory is a store file's.
pub(crate) fn is_store_file_name(name: &str) -> bool {
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
        assert!(!is_store_file_name(".tmp"));
        assert!(!is_store_file_name("0123.parent"));
        assert_eq!(seq_in_name("ab_SeqId_42_"), Some(42));
    }
}
