//! Finds the mob files of a region that no store file refers to (HBase: `RSMobFileCleanerChore`).

use halcyon_cell::Result;
use halcyon_hfile::HFile;
use halcyon_schema::layout;
use halcyon_schema::mob::{BULK_LOAD_TASK, MOB_FILE_REFS, MobFileName, MobFileRefs};

use super::MobStore;
use crate::region::Region;
use crate::store::Store;

impl Region {
    /// Moves the mob files that this region wrote to the archive, if none of its store files refers to them and they are
    /// older than `age_min_ms`. Returns their number. A secondary does nothing. *Blocking*.
    ///
    /// Readers that took their view before find them in the archive. Files of regions that this one was split or merged
    /// of are the master's to clean.
    pub fn archive_unused_mob_files(&self, age_min_ms: i64) -> Result<usize> {
        if self.is_secondary() {
            return Ok(0);
        }
        let _open = self.enter()?;
        let mut count = 0;
        for store in &self.stores {
            count += self.archive_unused_of(store, age_min_ms)?;
        }
        Ok(count)
    }

    fn archive_unused_of(&self, store: &Store, age_min_ms: i64) -> Result<usize> {
        let mob = &store.mob;
        let mut unused = mob.files_of_region()?;
        if unused.is_empty() {
            return Ok(0);
        }
        // In this order: what was in place at the look is being written now, or its store file is in the view.
        let being_written = mob.being_written.lock().clone();
        let Some(refs) = references_of(store)? else {
            tracing::warn!(
                region = self.info.encoded_name(),
                family = %store.family.name_str(),
                "a store file does not say which mob files it refers to: none is cleaned before a major compaction"
            );
            return Ok(0);
        };
        unused.retain(|name| !being_written.contains(name) && !refs.contains(&mob.table, name));
        let latest_ms = self.services.env.clock.now_ms().saturating_sub(age_min_ms);
        let mut old = Vec::new();
        for name in unused {
            if mob.made_ms(&name)?.is_some_and(|made_ms| made_ms < latest_ms) {
                old.push(name);
            }
        }
        let family = store.family.name_str();
        let archive_dir = layout::mob_archive_dir(&mob.root, &mob.table, &family);
        for name in &old {
            assert!(!refs.contains(&mob.table, name), "{name} goes although a store file refers to it");
            // By way of the opening's directory: a server that has lost the region does not know who refers to the file.
            self.place().retire_alone(&mob.dir.join(name), &family, &archive_dir)?;
            if let Some(hfile) = mob.files.forget(name) {
                hfile.blocks().retire();
            }
        }
        Ok(old.len())
    }
}

/// What the files in the view refer to; `None` if one of them does not say.
fn references_of(store: &Store) -> Result<Option<MobFileRefs>> {
    let mut all = MobFileRefs::default();
    for file in &store.view().files {
        match stated_references(&file.hfile) {
            Ok(Some(refs)) => all.extend(refs),
            Ok(None) => return Ok(None),
            Err(error) => return Err(error.context(file.path.display())),
        }
    }
    Ok(Some(all))
}

/// The mob files that a store file says that it refers to. `None`: it does not say, and may refer to some. A file without
/// tags cannot, nor can one that was made for bulk load.
pub(crate) fn stated_references(hfile: &HFile) -> Result<Option<MobFileRefs>> {
    let info = hfile.info();
    match info.get(MOB_FILE_REFS) {
        Some(bytes) => MobFileRefs::decode(bytes).map(Some),
        None if info.max_tags_len() == 0 || info.get(BULK_LOAD_TASK).is_some() => {
            Ok(Some(MobFileRefs::default()))
        }
        None => Ok(None),
    }
}

impl MobStore {
    /// Names of the mob files in place that this region wrote.
    fn files_of_region(&self) -> Result<Vec<String>> {
        let entries = match self.env.fs.list(&self.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let is_of_region =
            |name: &str| MobFileName::parse(name).is_some_and(|parsed| parsed.region == self.encoded_region);
        let files = entries.into_iter().filter(|entry| !entry.is_dir && is_of_region(&entry.name));
        Ok(files.map(|entry| entry.name).collect())
    }

    /// See [`Region::file_made_ms`]. A damaged mob file stays where it is.
    fn made_ms(&self, name: &str) -> Result<Option<i64>> {
        Region::file_made_ms(&self.env, &self.blocks, &self.dir.join(name))
    }
}
