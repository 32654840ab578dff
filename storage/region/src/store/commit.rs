//! The one door through which a store's set of files changes.
//!
//! A commit has three steps: the new file is moved from the opening's directory to its place and its name made durable; the
//! view is swapped, so that readers see the new set or the old one and nothing between; the files that it
//! takes the place of are moved to the archive. A crash before the first step leaves the old set, after it the
//! new one: a compacted file names its inputs (`COMPACTION_EVENT_KEY`), and inputs that are still there are
//! archived when the store is opened. Of several files of one compaction the last one placed does; those before
//! it hold copies of cells that the inputs have as well. A flushed file that made it is simply there, and replay
//! passes over the edits it holds. Of several files of one flush only the last one placed has the flush's sequence
//! id, so that replay repeats what those before it hold copies of.
//!
//! With a list of files (`file_list.rs`) the list is the commit: the new files are in place before it is written, and whether
//! they count, all of them, and their inputs do not, is said by it alone. During a migration both hold.
//!
//! A commit that fails halfway without a crash leaves files where a restart would find them: new ones that are in
//! place and belong to no view, or inputs that did not get to the archive. Once later compactions have dropped the
//! deletes that hide their cells, such a file would bring them back. So it is remembered as [`Unsettled`], and no
//! later commit of the store begins before it is where it belongs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cell::{Error, Result};
use halcyon_env::{Mutex, MutexGuard};

use super::{FileList, Part, Store, StoreFile, StoreFileName, StoreView};
use crate::place::{OpeningDir, retire};

/// What changes.
pub(crate) struct Commit<'a> {
    /// Written and synced files with the names they get in the store, in the order in which they are put in place. They are in
    /// `.tmp` or, with a list alone, in the store's directory. None if nothing was left to write.
    pub files: &'a [PathBuf],
    /// Parts of the snapshot whose cells are in the files.
    pub flushed: &'a [Part],
    /// Files whose cells are in the files.
    pub compacted: &'a [Arc<StoreFile>],
}

/// Files that a commit could not bring to where they belong. Its lock is taken by those who commit, and held over
/// their I/O, so that none passes another.
pub(crate) struct Unsettled(Mutex<Files>);

impl Unsettled {
    pub fn new(list: Option<FileList>) -> Unsettled {
        Unsettled(Mutex::new(Files { list, ..Files::default() }))
    }
}

#[derive(Default)]
pub(crate) struct Files {
    /// Belong to no view.
    take_back: Vec<PathBuf>,
    /// Others took their place.
    retire: Vec<PathBuf>,
    /// Nothing took their place.
    retire_alone: Vec<PathBuf>,
    /// With a tracker that writes one.
    list: Option<FileList>,
}

/// A store of which nothing is committed meanwhile.
pub(crate) type Uncommitted<'a> = MutexGuard<'a, Files>;

impl Store {
    /// Carries out one change of the file set. `open` opens a file in its final place, `archive_dir` is
    /// where the compacted files go. Returns the new files. After an error nothing has changed for readers.
    /// *Blocking*. *Crash safety*: see the head of this module.
    pub fn commit(
        &self,
        place: &OpeningDir,
        commit: &Commit<'_>,
        open: impl Fn(&Path) -> Result<Arc<StoreFile>>,
        archive_dir: &Path,
    ) -> Result<Vec<Arc<StoreFile>>> {
        let mut unsettled = self.unsettled.0.lock();
        let settled = self.settle(&mut unsettled, place, archive_dir);
        if self.tracker.writes_in_place() {
            unsettled.take_back.extend_from_slice(commit.files);
        }
        settled.map_err(|error| error.context("putting right what an earlier commit left"))?;
        let placed = self.put_in_place(place, commit, open, &mut unsettled);
        let files = match placed.and_then(|files| {
            self.list_change(place, commit, &files, &mut unsettled)?;
            Ok(files)
        }) {
            Ok(files) => files,
            Err(error) => {
                if let Err(left) = self.settle(&mut unsettled, place, archive_dir) {
                    tracing::error!(error = %left, "a file of a failed commit is still in its store");
                }
                return Err(error);
            }
        };
        unsettled.take_back.clear();
        {
            let mut view = self.view.unwatched().write();
            check_against(&view, commit, &files);
            let mut next = changed(&view, commit, &files);
            next.stripes = Arc::new(super::divided(&self.compaction(), self.comparator, &next.files));
            next.check();
            *view = Arc::new(next);
        }
        if !commit.flushed.is_empty() {
            self.note_memory_left();
        }
        let done = commit.compacted.iter().map(|file| file.path.clone());
        if commit.files.is_empty() && !self.tracker.loads_list() {
            unsettled.retire_alone.extend(done);
        } else {
            unsettled.retire.extend(done);
        }
        if let Err(error) = self.settle(&mut unsettled, place, archive_dir) {
            tracing::error!(%error, "compacted files are not yet archived");
        }
        Ok(files)
    }

    /// Brings all files to where they belong, or fails and knows what is left.
    fn settle(&self, files: &mut Files, place: &OpeningDir, archive_dir: &Path) -> Result<()> {
        let family = self.family.name_str();
        // First the list lets go of what is to leave the store.
        if files.list.as_ref().is_some_and(FileList::is_ahead) {
            self.write_list(files, place, &self.view().files)?;
        }
        while let Some(path) = files.take_back.last() {
            place.take_back(path, &family)?;
            // Durable before anything that could make its cells wrong: those come with a commit, which syncs.
            files.take_back.pop();
        }
        retire(place.env(), files.retire.iter().map(PathBuf::as_path), archive_dir)?;
        files.retire.clear();
        while let Some(path) = files.retire_alone.last() {
            place.retire_alone(path, &family, archive_dir)?;
            files.retire_alone.pop();
        }
        Ok(())
    }

    /// Brings the new files to their names in the store, durably, and opens them.
    fn put_in_place(
        &self,
        place: &OpeningDir,
        commit: &Commit<'_>,
        open: impl Fn(&Path) -> Result<Arc<StoreFile>>,
        unsettled: &mut Files,
    ) -> Result<Vec<Arc<StoreFile>>> {
        if !self.tracker.writes_in_place() {
            let publish =
                |from: &PathBuf| self.publish(place, from, &mut unsettled.take_back).and_then(|to| open(&to));
            return commit.files.iter().map(publish).collect();
        }
        if !commit.files.is_empty() {
            place.env().fs.sync_dir(&self.dir)?;
        }
        commit.files.iter().map(|path| open(path)).collect()
    }

    /// Writes to the list what the store's files are after a commit.
    fn list_change(
        &self,
        place: &OpeningDir,
        commit: &Commit<'_>,
        files: &[Arc<StoreFile>],
        unsettled: &mut Files,
    ) -> Result<()> {
        if unsettled.list.is_none() {
            return Ok(());
        }
        let view = self.view();
        check_against(&view, commit, files);
        self.write_list(unsettled, place, &changed(&view, commit, files).files)
    }

    fn write_list(&self, unsettled: &mut Files, place: &OpeningDir, files: &[Arc<StoreFile>]) -> Result<()> {
        match &mut unsettled.list {
            Some(list) => list.write(place, files.iter().map(|file| file.listed()).collect()),
            None => Ok(()),
        }
    }

    /// Writes to the list that files of a bulk load, which are in place, are the store's. Nothing else is committed before
    /// [`Store::show_loaded`]. After an error they are not the store's, or [`Store::forget_loaded`] has to follow.
    pub fn list_loaded(&self, place: &OpeningDir, files: &[Arc<StoreFile>]) -> Result<Uncommitted<'_>> {
        let mut unsettled = self.unsettled.0.lock();
        let all: Vec<_> = self.view().files.iter().chain(files).cloned().collect();
        self.write_list(&mut unsettled, place, &all)?;
        Ok(unsettled)
    }

    /// Writes to the list what the store shows. `uncommitted`: of [`Store::list_loaded`], if that succeeded.
    pub fn forget_loaded(&self, place: &OpeningDir, uncommitted: Option<Uncommitted<'_>>) -> Result<()> {
        let is_listed = uncommitted.is_some();
        let mut unsettled = uncommitted.unwrap_or_else(|| self.unsettled.0.lock());
        if is_listed || unsettled.list.as_ref().is_some_and(FileList::is_ahead) {
            self.write_list(&mut unsettled, place, &self.view().files)?;
        }
        Ok(())
    }

    /// Moves files to the archive that are in the store's directory and not the store's, and that `is_due` chooses (HBase:
    /// `BrokenStoreFileCleaner`, which removes them; a snapshot may have one). Returns their names. Only with a list by which
    /// the store is opened.
    pub fn archive_strays(
        &self,
        place: &OpeningDir,
        archive_dir: &Path,
        mut is_due: impl FnMut(&Path) -> bool,
    ) -> Result<Vec<String>> {
        assert!(self.tracker.writes_in_place(), "a file that is in the directory would be the store's");
        let entries = place.env().fs.list(&self.dir)?;
        let mut strays = Vec::new();
        for entry in entries.into_iter().filter(|entry| !entry.is_dir) {
            let path = self.dir.join(&entry.name);
            if StoreFileName::parse(&entry.name).is_none() {
                continue;
            }
            // Nothing is committed meanwhile. What is written now is in `being_written` until it is in the view.
            let unsettled = self.unsettled.0.lock();
            let is_written = self.being_written.lock().contains(&path);
            let is_shown = self.view().files.iter().any(|file| file.name == entry.name);
            let is_settled = unsettled.list.as_ref().is_some_and(|list| !list.is_ahead());
            if !is_written && !is_shown && is_settled && is_due(&path) {
                // An opening that has lost the region cannot: the file may be the next one's.
                place.retire_alone(&path, &self.family.name_str(), archive_dir)?;
                strays.push(entry.name);
            }
        }
        Ok(strays)
    }

    /// Shows files that another region has put in place or taken away, newest first. Only in a secondary, which never
    /// commits.
    pub fn follow(&self, files: Vec<Arc<StoreFile>>) {
        let mut view = self.view.unwatched().write();
        assert!(view.is_memory_empty(), "a secondary has nothing in memory");
        let mut next = StoreView::clone(&view);
        next.files = files;
        next.stripes = Arc::new(super::divided(&self.compaction(), self.comparator, &next.files));
        next.check();
        *view = Arc::new(next);
    }

    /// Shows files of a bulk load that are in place. `flushing` is held.
    pub fn show_loaded(&self, files: &[Arc<StoreFile>], _uncommitted: Uncommitted<'_>) {
        let mut view = self.view.unwatched().write();
        let nothing = Commit { files: &[], flushed: &[], compacted: &[] };
        let mut next = changed(&view, &nothing, files);
        next.stripes = Arc::new(super::divided(&self.compaction(), self.comparator, &next.files));
        next.check();
        *view = Arc::new(next);
    }

    /// Moves a file into the store's directory. From the moment that it may be there it stands in `in_place`.
    fn publish(&self, place: &OpeningDir, from: &Path, in_place: &mut Vec<PathBuf>) -> Result<PathBuf> {
        let name = from.file_name().ok_or_else(|| Error::invalid("a store file needs a name"))?;
        let to = self.dir.join(name);
        assert!(from != to, "a file is made elsewhere: a crash would leave half of it among the store's");
        in_place.push(to.clone());
        place.publish(from, &to, &self.family.name_str())?;
        Ok(to)
    }
}

/// What a commit must agree with: the view that it changes, and what is written in its own files. A reader's view and what a
/// restart finds are made by different code, and this is where they are the same.
fn check_against(view: &StoreView, commit: &Commit<'_>, files: &[Arc<StoreFile>]) {
    let is_in_view = |done: &Arc<StoreFile>| view.files.iter().any(|file| file.number == done.number);
    assert!(
        commit.compacted.iter().all(is_in_view),
        "a compaction read a file that is not in the view: what took its place would be there twice"
    );
    assert!(
        commit.flushed.iter().all(|done| view.snapshot.iter().any(|part| part.is(done))),
        "a flush wrote a part that is not in the snapshot: its cells would stay in memory and in a file"
    );
    let Some(last) = files.last() else { return };
    if commit.compacted.is_empty() {
        let flushed_before = view.files.iter().map(|file| file.max_seq).max().unwrap_or_default();
        assert!(
            last.max_seq >= flushed_before,
            "a flush up to {} comes behind a file up to {flushed_before}: readers would take it for older",
            last.max_seq
        );
        return;
    }
    let newest = commit.compacted.iter().map(|file| file.max_seq).max().unwrap_or_default();
    assert!(
        files.iter().all(|file| file.max_seq == newest),
        "a compacted file has its newest input's sequence id, {newest}: it stands where that stood"
    );
    let named = last.hfile.info().compacted_from().unwrap_or_default();
    assert!(
        named.len() == commit.compacted.len()
            && commit.compacted.iter().all(|file| named.contains(&file.name)),
        "the last file names {named:?} as its inputs: a restart would archive these and no others"
    );
}

fn changed(view: &StoreView, commit: &Commit<'_>, files: &[Arc<StoreFile>]) -> StoreView {
    let mut next = view.clone();
    next.snapshot.retain(|part| !commit.flushed.iter().any(|done| done.is(part)));
    next.files.retain(|file| !commit.compacted.iter().any(|done| done.number == file.number));
    if !files.is_empty() {
        next.files.extend_from_slice(files);
        // Newest first; a compacted file stands where its newest input stood.
        next.files.sort_by(|a, b| b.max_seq.cmp(&a.max_seq).then(b.number.cmp(&a.number)));
    }
    next
}
