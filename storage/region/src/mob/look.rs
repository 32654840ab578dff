//! What the master asks of files of regions that may be open elsewhere.

use std::io;
use std::path::Path;
use std::sync::Arc;

use halcyon_cache::BlockCache;
use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::Env;
use halcyon_hfile::{HFile, ReaderOptions};
use halcyon_schema::mob::MobFileRefs;
use halcyon_schema::{FamilyDescriptor, RegionInfo, StoreFileTracker, TableDescriptor};

use super::clean::stated_references;
use crate::open::{names_in_store, open_files};
use crate::region::Region;
use crate::store::StoreFileOpener;

/// Looks at a directory that a compaction is changing.
const LOOKS_MAX: usize = 8;

impl Region {
    /// The mob files that the store files of a family refer to; `None` if one of them does not say. Changes nothing.
    /// *Blocking*. `Busy` if the store changes too fast.
    pub fn mob_references(
        env: &Env,
        cache: &Arc<BlockCache>,
        root: &Path,
        info: &RegionInfo,
        table: &TableDescriptor,
        family: &FamilyDescriptor,
    ) -> Result<Option<MobFileRefs>> {
        let dir = info.dir(root).join(&*family.name_str());
        let tracker = table.store_file_tracker(family)?;
        let opener = StoreFileOpener { env, cache, family };
        for _ in 0..LOOKS_MAX {
            match references_in(opener, &dir, tracker, root, info) {
                // A file that was compacted or archived meanwhile: look again.
                Err(error) if !env.fs.exists(&dir)? => {
                    tracing::debug!(%error, "the store is gone");
                    return Ok(Some(MobFileRefs::default()));
                }
                Err(error) => tracing::debug!(%error, "the store is looked at again"),
                found => return found,
            }
        }
        Err(Error::new(ErrorKind::Busy, format!("{} cannot be read, or changes too fast", dir.display())))
    }

    /// When a store file or mob file was made, by what it says of itself; `None`: it is gone, does not say, or is damaged.
    pub fn file_made_ms(env: &Env, cache: &Arc<BlockCache>, path: &Path) -> Result<Option<i64>> {
        let file = match env.fs.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        match HFile::of_file(file, &env.keys, cache, ReaderOptions::default()) {
            Err(error) if error.kind().is_permanent() => Ok(None),
            opened => Ok(opened?.info().create_time_ms()),
        }
    }
}

/// The mob files that a store file refers to; `None`: it does not say. *Blocking*.
pub fn mob_references_of_file(env: &Env, path: &Path) -> Result<Option<MobFileRefs>> {
    let cache = Arc::new(BlockCache::new(0));
    let hfile = HFile::open(env, path, &cache, ReaderOptions::default())?;
    stated_references(&hfile).map_err(|error| error.context(path.display()))
}

fn references_in(
    opener: StoreFileOpener<'_>,
    dir: &Path,
    tracker: StoreFileTracker,
    root: &Path,
    info: &RegionInfo,
) -> Result<Option<MobFileRefs>> {
    let mut all = MobFileRefs::default();
    let listed = if tracker.loads_list() { names_in_store(opener.env, dir, tracker)? } else { Vec::new() };
    // All that is there: what is known of the tracker may be old. What no list names may be half written.
    for name in names_in_store(opener.env, dir, StoreFileTracker::DEFAULT)? {
        let files = match open_files(opener, dir, std::slice::from_ref(&name), root, info) {
            Err(error) if tracker.loads_list() && !listed.contains(&name) && error.kind().is_permanent() => {
                continue;
            }
            opened => opened?,
        };
        for file in files {
            match stated_references(&file.hfile)? {
                Some(refs) => all.extend(refs),
                None => return Ok(None),
            }
        }
    }
    Ok(Some(all))
}
