//! The one door through which a store's set of files changes.
//!
//! A commit has three steps: the new file is moved from `.tmp` to its place and its name made durable; the
//! view is swapped, so that readers see the new set or the old one and nothing between; the files that it
//! takes the place of are moved to the archive. A crash before the first step leaves the old set, after it the
//! new one: a compacted file names its inputs (`COMPACTION_EVENT_KEY`), and inputs that are still there are
//! archived when the store is opened. A flushed file that made it is simply there, and replay passes over the
//! edits it holds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cell::{Error, Result};
use halcyon_env::Env;

use super::{Part, Store, StoreFile, StoreView};

/// What changes.
pub(crate) struct Commit<'a> {
    /// Written and synced file in `.tmp`, and the name it gets in the store; `None` if nothing was left to
    /// write.
    pub file: Option<&'a Path>,
    /// Parts of the snapshot whose cells are in the file.
    pub flushed: &'a [Part],
    /// Files whose cells are in the file.
    pub compacted: &'a [Arc<StoreFile>],
}

impl Store {
    /// Carries out one change of the file set. `open` opens the file in its final place, `archive_dir` is
    /// where the compacted files go. *Crash safety*: see the head of this module.
    pub fn commit(
        &self,
        env: &Env,
        commit: &Commit<'_>,
        open: impl FnOnce(&Path) -> Result<Arc<StoreFile>>,
        archive_dir: &Path,
    ) -> Result<Option<Arc<StoreFile>>> {
        let file = match commit.file {
            None => None,
            Some(from) => Some(open(&self.place(env, from)?)?),
        };
        {
            let mut view = self.view.write();
            let next = changed(&view, commit, file.as_ref());
            *view = Arc::new(next);
        }
        archive(env, commit.compacted.iter().map(|file| file.path.as_path()), archive_dir)?;
        Ok(file)
    }

    fn place(&self, env: &Env, from: &Path) -> Result<PathBuf> {
        let name = from.file_name().ok_or_else(|| Error::invalid("a store file needs a name"))?;
        let to = self.dir.join(name);
        env.fs.rename(from, &to)?;
        env.fs.sync_dir(&self.dir)?;
        if let Some(temporary) = from.parent() {
            env.fs.sync_dir(temporary)?; // a move is durable when both directories are
        }
        Ok(to)
    }
}

fn changed(view: &StoreView, commit: &Commit<'_>, file: Option<&Arc<StoreFile>>) -> StoreView {
    let mut next = view.clone();
    next.snapshot.retain(|part| !commit.flushed.iter().any(|done| done.is(part)));
    next.files.retain(|file| !commit.compacted.iter().any(|done| done.number == file.number));
    if let Some(file) = file {
        next.files.push(file.clone());
        // Newest first; a compacted file stands where its newest input stood.
        next.files.sort_by(|a, b| b.max_seq.cmp(&a.max_seq).then(b.number.cmp(&a.number)));
    }
    next
}

/// Moves files to the archive, as HBase does: a snapshot or a late reader may still want them.
pub(crate) fn archive<'a>(
    env: &Env,
    files: impl Iterator<Item = &'a Path>,
    archive_dir: &Path,
) -> Result<()> {
    let mut moved_from = None;
    for path in files {
        if moved_from.is_none() {
            env.fs.create_dir_all(archive_dir)?;
        }
        let name = path.file_name().ok_or_else(|| Error::invalid("a store file needs a name"))?;
        env.fs.rename(path, &archive_dir.join(name))?;
        moved_from = path.parent();
    }
    if let Some(dir) = moved_from {
        env.fs.sync_dir(archive_dir)?;
        env.fs.sync_dir(dir)?;
    }
    Ok(())
}
