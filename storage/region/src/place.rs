//! The directory of one opening of a region, and the renames of its store files.
//!
//! ```text
//! <region>/.tmp/<opening>/<file>            written by a flush or compaction of this opening
//! <region>/.tmp/<opening>/<family>/<file>   likewise, of a family whose files HDFS places by a policy of their own
//! <region>/<family>/<file>                  in its store                                    publish, take_back
//! archive/../<family>/<file>                others took its place                           retire
//! <region>/.tmp/<attempt>/<name>            made for a region that no server has open         StagingDir
//! <region>/.tmp/<opening>/family-<random>   the directory of a family that is new here (`new_family.rs`)  publish_dir
//! <region>/.tmp/<opening>/<file>@<family>   on its way to the archive without a successor   retire_alone
//! <region>/.tmp/<opening>/list-<random>     the list of a store's files (`store/file_list.rs`), on its way there
//! <region>/.tmp/<opening>/nonces-<random>   nonces of operations (`replayed_nonces.rs`), likewise          replace
//! ```
//!
//! A server may be declared dead while it is only paused. Its regions open elsewhere, and when it runs again it would
//! flush and compact them as before. Fencing its WAL does not prevent that, because a flush of what is in the WAL
//! already does not write to it.
//!
//! Therefore each opening makes a directory of its own, once, and never with parents. It takes the directories of all
//! earlier ones away, and only then lists the stores. From that moment an earlier opening can neither
//! make a file nor bring one into a store: its `create` and `rename` fail, because the directory is gone. A rename before
//! that moment is seen by the listing. Of two servers that begin to open the region at the same time, at most one succeeds.
//! A region that is closed in order takes its directory along, so that the next opening finds none.
//!
//! A store with a list of its files has them made in its own directory. What belongs to the store is what the list names, and
//! the list comes from the opening's directory.
//!
//! A file that has to leave its store again goes back to the opening's directory and is not removed in the store: there
//! it may be a file of the next opening by now.

use std::io;
use std::path::{Path, PathBuf};

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_env::{DirEntry, Env};
use halcyon_schema::{MobFileName, RegionInfo, TableName};

use crate::loads::{give_back, is_staged_load, take_out_of_stores};

/// HBase's name for it; HBase empties it as well when it opens a region.
const TEMPORARY: &str = ".tmp";
/// Before the name of an opening's directory that was taken away.
const TAKEN: &str = "taken-";
/// Between the name of a file on its way to the archive and its family. No store file has it in its name.
pub(crate) const OF_FAMILY: char = '@';

/// The directory of one opening.
pub(crate) struct OpeningDir {
    env: Env,
    dir: PathBuf,
    /// Families whose files are made in a directory of their own, below `dir`.
    apart: Vec<String>,
}

impl OpeningDir {
    /// Makes a directory for this opening of the region, and takes those of earlier ones away. To be called before the
    /// stores are listed. After an error it can be called again.
    pub fn begin(env: &Env, region_dir: &Path, archive_dir: &Path) -> Result<OpeningDir> {
        let all = region_dir.join(TEMPORARY);
        let place = OpeningDir { env: env.clone(), dir: all.join(random_name()), apart: Vec::new() };
        match env.fs.create_own_dir(&place.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                env.fs.create_dir(&all)?;
                env.fs.create_own_dir(&place.dir)?;
            }
            made => made?,
        }
        let begun = place.take_others_away(&all, archive_dir);
        if begun.is_err() {
            let _ = env.fs.remove_dir_all(&place.dir); // else the next opening does it
        }
        begun.map(|()| place)
    }

    /// Of two openings at the same time, at most one finds itself alone in the end: each looks after it has made its directory,
    /// and again after it has taken another one away.
    fn take_others_away(&self, all: &Path, archive_dir: &Path) -> Result<()> {
        let mine = name_of(&self.dir)?;
        let list = || self.env.fs.list(all);
        let is_alone = |found: &[DirEntry]| found.iter().map(|entry| &*entry.name).eq([mine]);
        let mut found = list()?;
        if !is_alone(&found) && found.iter().any(|entry| entry.name == mine) {
            // Only what is found here is removed, and never `.tmp` as a whole: an opening may have begun since.
            for entry in found.iter().filter(|entry| entry.name != mine) {
                if entry.is_dir {
                    take_away(&self.env, all, &entry.name, archive_dir)?;
                } else {
                    remove_if_there(&self.env, &all.join(&entry.name))?;
                }
            }
            found = list()?;
        }
        if is_alone(&found) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Moved, format!("{}: another server opens the region", all.display())))
    }

    /// Removes the directory of a region that is closed. What is in it, if anything, the next opening takes away.
    pub fn end(&self) {
        for family in &self.apart {
            let _ = self.env.fs.remove_dir(&self.dir.join(family)); // if it stays, so does the other
        }
        if let Err(error) = self.env.fs.remove_dir(&self.dir) {
            tracing::debug!(%error, "the directory of an opening stays until the next one");
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// `Moved` if another opening has begun. It may begin at any time, so a commit needs more than this.
    pub fn check_held(&self) -> Result<()> {
        if self.env.fs.exists(&self.dir)? {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Moved,
            format!("{}: another server has opened the region", self.dir.display()),
        ))
    }

    /// Makes the directory itself durable: what is moved into it must be found after a crash.
    pub fn sync_up(&self) -> Result<()> {
        let all = self.dir.parent().expect("an opening's directory is in another");
        all.parent().into_iter().chain([all, &*self.dir]).try_for_each(|dir| self.env.fs.sync_dir(dir))?;
        Ok(())
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    /// From now on files of this family are made in a directory of their own, which is returned. It goes with the opening's,
    /// and is not made with parents either.
    pub fn set_apart(&mut self, family: &str) -> Result<PathBuf> {
        let dir = self.dir.join(family);
        self.env.fs.create_dir(&dir)?;
        self.apart.push(family.to_string());
        Ok(dir)
    }

    /// Where files of a family are made.
    fn working_dir(&self, family: &str) -> PathBuf {
        if self.apart.iter().any(|apart| apart == family) { self.dir.join(family) } else { self.dir.clone() }
    }

    /// A name for a new file.
    pub fn new_file(&self, family: &str) -> PathBuf {
        self.file_named(family, &random_name())
    }

    /// Where a new file is made that has its name already.
    pub fn file_named(&self, family: &str, name: &str) -> PathBuf {
        self.working_dir(family).join(name)
    }

    /// Moves a file of this opening to `to` in the store of `family`, durably. After an error it may be there: `take_back`
    /// it.
    pub fn publish(&self, from: &Path, to: &Path, family: &str) -> Result<()> {
        assert!(
            from.parent() == Some(&*self.working_dir(family)),
            "only files of this opening enter a store, or a server that lost the region could commit: {}",
            from.display()
        );
        publish(&self.env, from, to)
    }

    /// Moves a directory that was made in that of this opening to the free name `to`, durably. After an error in doubt it may be there.
    pub fn publish_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        assert!(from.parent() == Some(&*self.dir), "{} is not of this opening", from.display());
        let fs = &self.env.fs;
        fs.rename(from, to).or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Err(error),
            _ => fs.resolve_rename(from, to, error),
        })?;
        to.parent().into_iter().chain([&*self.dir]).try_for_each(|dir| fs.sync_dir(dir))
    }

    /// Makes these bytes the file `to`, which is the region's and of no store, durably. After an error the file may have them or
    /// not, or get them later: then `in_doubt` has their source, for the next call.
    pub fn replace(&self, to: &Path, bytes: &[u8], in_doubt: &mut Option<PathBuf>) -> Result<()> {
        if let Some(source) = in_doubt {
            remove_if_there(&self.env, source)?; // without it the rename comes to nothing
            *in_doubt = None;
        }
        let from = self.dir.join(format!("nonces-{}", random_name()));
        if let Err(error) = write_file(&self.env, &from, bytes) {
            let _ = remove_if_there(&self.env, &from); // else the next opening does it
            return Err(error);
        }
        if let Err(error) = self.env.fs.rename_over(&from, to) {
            if remove_if_there(&self.env, &from).is_err() {
                *in_doubt = Some(from);
            }
            return Err(error.into());
        }
        to.parent().into_iter().chain([&*self.dir]).try_for_each(|dir| self.env.fs.sync_dir(dir))?;
        Ok(())
    }

    /// Takes a file that `publish` may have moved out of its store again, if it is there, and removes it.
    ///
    /// A rename in doubt may be carried out later. It comes to nothing once its source is gone, so that goes first.
    pub fn take_back(&self, path: &Path, family: &str) -> Result<()> {
        let back = self.working_dir(family).join(name_of(path)?);
        remove_if_there(&self.env, &back)?;
        if self.env.fs.exists(path)? {
            let moved = self.env.fs.rename(path, &back);
            moved.or_else(|error| self.env.fs.resolve_rename(path, &back, error))?;
            remove_if_there(&self.env, &back)?;
        }
        Ok(())
    }

    /// Moves a file of a store to the archive although no other file took its place. An opening that has lost the region
    /// cannot: it would take a file from the next one. May run again after an error.
    pub fn retire_alone(&self, path: &Path, family: &str, archive_dir: &Path) -> Result<()> {
        let fs = &self.env.fs;
        let going = self.dir.join(format!("{}{OF_FAMILY}{family}", name_of(path)?));
        if fs.exists(path)? {
            // What is in this directory now must be found after a crash.
            let all = self.dir.parent().expect("an opening's directory is in another");
            all.parent().into_iter().chain([all]).try_for_each(|dir| fs.sync_dir(dir))?;
            let moved = fs.rename(path, &going);
            moved.or_else(|error| fs.resolve_rename(path, &going, error))?;
            path.parent().into_iter().chain([&*self.dir]).try_for_each(|dir| fs.sync_dir(dir))?;
        }
        archive_going(&self.env, &going, name_of(path)?, archive_dir)
    }
}

/// The directory of one attempt to make something for a region that no server has open: copies of store files, daughters. It
/// goes with those of the openings when the region is opened, and what was made there cannot be renamed into place any more.
pub(crate) struct StagingDir {
    env: Env,
    dir: PathBuf,
}

impl StagingDir {
    pub fn begin(env: &Env, region_dir: &Path) -> Result<StagingDir> {
        let all = region_dir.join(TEMPORARY);
        if !env.fs.exists(&all)? {
            match env.fs.create_dir(&all) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
                _ => {} // another attempt on the same region may have made it
            }
        }
        let dir = all.join(random_name());
        env.fs.create_dir(&dir)?;
        Ok(StagingDir { env: env.clone(), dir })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Moves what was made here to a free name, durably. After an error it may be there; an opening of the region settles it.
    pub fn publish(&self, from: &Path, to: &Path) -> Result<()> {
        self.rename(from, to)?;
        self.sync(to)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        assert!(from.parent() == Some(&*self.dir), "{} is not of this attempt", from.display());
        let fs = &self.env.fs;
        fs.rename(from, to).or_else(|error| fs.resolve_rename(from, to, error))
    }

    fn sync(&self, to: &Path) -> Result<()> {
        to.parent().into_iter().chain([&*self.dir]).try_for_each(|dir| self.env.fs.sync_dir(dir))?;
        Ok(())
    }

    /// As `publish`, for a complete copy of a file that has this name in each attempt: another one may have brought it there
    /// meanwhile. Ends the attempt.
    pub fn publish_copy(self, from: &Path, to: &Path) -> Result<()> {
        match self.rename(from, to) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
            _ => self.sync(to)?,
        }
        let _ = self.env.fs.remove_dir_all(&self.dir); // else the next opening does it
        Ok(())
    }
}

/// Makes a file with these bytes, durably. Its directory has to be there.
pub(crate) fn write_file(env: &Env, path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = env.fs.create(path)?;
    file.write_all(bytes)?;
    Ok(file.sync_and_close()?)
}

/// Moves a file to a free name, durably.
fn publish(env: &Env, from: &Path, to: &Path) -> Result<()> {
    env.fs.rename(from, to)?;
    // A move is durable when both directories are.
    to.parent().into_iter().chain(from.parent()).try_for_each(|dir| env.fs.sync_dir(dir))?;
    Ok(())
}

/// Moves files whose place others took to the archive, as HBase does: a snapshot or a late reader may still want them.
/// Those that are not there any more were moved by an earlier attempt, or by the next opening of the region.
pub(crate) fn retire<'a>(env: &Env, files: impl Iterator<Item = &'a Path>, archive_dir: &Path) -> Result<()> {
    let mut moved_from = None;
    for path in files {
        if moved_from.is_none() {
            env.fs.create_dir_all(archive_dir)?;
        }
        moved_from = path.parent();
        if env.fs.exists(path)? {
            // A file that was restored from a snapshot has the name and the bytes of the archived one.
            env.fs.rename_over(path, &archive_dir.join(name_of(path)?))?;
        }
    }
    if let Some(dir) = moved_from {
        env.fs.sync_dir(archive_dir)?;
        env.fs.sync_dir(dir)?;
    }
    Ok(())
}

/// Takes an earlier opening's directory away at one stroke, and brings what it was about to archive there.
fn take_away(env: &Env, all: &Path, opening: &str, archive_dir: &Path) -> Result<()> {
    let mut dir = all.join(opening);
    // Most are empty: an opening removes what it has moved into a store.
    match env.fs.remove_dir(&dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    if !opening.starts_with(TAKEN) {
        let taken = all.join(format!("{TAKEN}{opening}"));
        let moved = env.fs.rename(&dir, &taken);
        moved.or_else(|error| env.fs.resolve_rename(&dir, &taken, error))?;
        dir = taken;
    }
    for entry in env.fs.list(&dir)? {
        if entry.is_dir {
            if is_staged_load(&entry.name) {
                let region_dir = all.parent().unwrap_or(all);
                take_out_of_stores(env, region_dir, &dir.join(&entry.name))?;
                give_back(env, &dir.join(&entry.name), archive_dir)?;
            }
        } else if let Some((name, family)) = entry.name.split_once(OF_FAMILY) {
            let archive_dir = match MobFileName::parse(name) {
                Some(_) => mob_archive_dir(archive_dir),
                None => archive_dir.to_path_buf(),
            };
            archive_going(env, &dir.join(&entry.name), name, &archive_dir.join(family))?;
        }
    }
    Ok(env.fs.remove_dir_all(&dir)?)
}

/// The directory in the archive of the mob region of the table that a region is of, by that of the region.
fn mob_archive_dir(archive_dir: &Path) -> PathBuf {
    let table_dir = archive_dir.parent().unwrap_or(archive_dir);
    let name_of = |dir: Option<&Path>| {
        dir.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned().into_bytes()
    };
    match TableName::new(&name_of(table_dir.parent()), &name_of(Some(table_dir))) {
        Ok(table) => table_dir.join(RegionInfo::of_mob_files(&table).encoded_name()),
        Err(_) => archive_dir.to_path_buf(),
    }
}

pub(crate) fn archive_going(env: &Env, going: &Path, name: &str, archive_dir: &Path) -> Result<()> {
    if env.fs.exists(going)? {
        env.fs.create_dir_all(archive_dir)?;
        env.fs.rename_over(going, &archive_dir.join(name))?;
        env.fs.sync_dir(archive_dir)?;
    }
    Ok(())
}

fn name_of(path: &Path) -> Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.ok_or_else(|| Error::invalid(format!("{} is no store file's name", path.display())))
}

pub(crate) fn random_name() -> String {
    halcyon_env::random_bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Removes a file if it is there.
pub(crate) fn remove_if_there(env: &Env, path: &Path) -> Result<()> {
    match env.fs.remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => Ok(removed?),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use halcyon_env::FileSystem;
    use halcyon_env::sim::{Fault, Operation, SimFileSystem};
    use parking_lot::Mutex;

    use super::*;

    const REGION: &str = "/t/r";
    const STORE: &str = "/t/r/f";
    const FAMILY: &str = "f";
    const ARCHIVE: &str = "/archive/t/r";

    fn disk() -> (SimFileSystem, Env) {
        let fs = SimFileSystem::new();
        fs.create_dir_all(Path::new(STORE)).unwrap();
        let env = fs.env();
        (fs, env)
    }

    fn begin(env: &Env) -> OpeningDir {
        OpeningDir::begin(env, Path::new(REGION), Path::new(ARCHIVE)).unwrap()
    }

    fn write(place: &OpeningDir) -> PathBuf {
        let path = place.new_file(FAMILY);
        place.env.fs.create(&path).and_then(|file| file.close()).unwrap();
        path
    }

    fn names(fs: &SimFileSystem, dir: &str) -> Vec<String> {
        fs.list(Path::new(dir)).unwrap_or_default().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn an_opening_that_lost_the_region_brings_nothing_into_a_store() {
        let (fs, env) = disk();
        let first = begin(&env);
        let before = write(&first);
        let to = Path::new(STORE).join(name_of(&before).unwrap());
        let second = begin(&env);
        let error = first.publish(&before, &to, FAMILY).unwrap_err();
        assert!(error.to_string().contains("not found"), "{error}");
        assert_eq!(
            env.fs.create(&first.new_file(FAMILY)).err().map(|e| e.kind()),
            Some(io::ErrorKind::NotFound)
        );
        first.take_back(&to, FAMILY).unwrap();
        assert!(names(&fs, STORE).is_empty());
        let own = write(&second);
        second.publish(&own, &Path::new(STORE).join("b"), FAMILY).unwrap();
        assert_eq!(names(&fs, STORE), ["b"]);
        assert_eq!(names(&fs, "/t/r/.tmp").len(), 1, "of the openings, the last has a directory");
    }

    #[test]
    fn an_opening_that_ends_leaves_what_it_has_not_finished() {
        let (fs, env) = disk();
        let first = begin(&env);
        first.end();
        assert!(names(&fs, "/t/r/.tmp").is_empty());
        let second = begin(&env);
        let going = second.dir().join(format!("a{OF_FAMILY}f"));
        fs.put_new(&going, b"").unwrap();
        second.end();
        assert!(fs.exists(&going).unwrap());
        begin(&env);
        assert_eq!(names(&fs, "/archive/t/r/f"), ["a"]);
    }

    /// A rename whose answer was lost put the file in place. An opening after it lists the file as its own, and the first
    /// one must not remove it.
    #[test]
    fn a_file_that_the_next_opening_found_is_not_taken_back() {
        let (fs, env) = disk();
        let first = begin(&env);
        let file = write(&first);
        let to = Path::new(STORE).join("a");
        fs.inject(Fault::answer_lost(".tmp"));
        first.publish(&file, &to, FAMILY).unwrap_err();
        assert_eq!((fs.faults_hit(), names(&fs, STORE)), (1, vec!["a".to_string()]));
        let _second = begin(&env);
        first.take_back(&to, FAMILY).unwrap_err();
        assert_eq!(names(&fs, STORE), ["a"]);
    }

    /// The second opening begins while the first one is about to make its directory, or has just made it.
    #[test]
    fn of_two_openings_at_the_same_time_one_succeeds() {
        // An earlier opening may have left a file, which takes more steps.
        for (leaves_file, calls_min) in [(false, 4), (true, 7)] {
            let (whole, env) = disk();
            let earlier = begin(&env);
            leaves_file.then(|| write(&earlier));
            let before = whole.calls();
            begin(&env);
            let calls = whole.calls() - before;
            assert!(calls >= calls_min, "{calls} calls");
            for (seed, n) in (0..10).flat_map(|seed| (1..=calls).map(move |n| (seed, n))) {
                let fs = SimFileSystem::hdfs(seed);
                fs.create_dir_all(Path::new(STORE)).unwrap();
                let env = fs.env();
                let earlier = begin(&env);
                leaves_file.then(|| write(&earlier));
                let second = Arc::new(Mutex::new(None));
                let (other, slot) = (env.clone(), second.clone());
                fs.pause_at(fs.calls() + n, move || *slot.lock() = Some(begin(&other)));
                let first = OpeningDir::begin(&env, Path::new(REGION), Path::new(ARCHIVE));
                let second = second.lock().take().expect("it was opened meanwhile");
                let can_commit = [Some(&earlier), first.as_ref().ok(), Some(&second)]
                    .map(|place| place.is_some_and(|place| env.fs.create(&place.new_file(FAMILY)).is_ok()));
                let count = can_commit.iter().filter(|can| **can).count();
                assert!(count == 1 && !can_commit[0], "seed {seed}, before call {n}: {can_commit:?}");
            }
        }
    }

    /// The rename that was to put a file in place comes when its commit has failed already.
    #[test]
    fn a_late_publish_comes_to_nothing() {
        let fs = SimFileSystem::hdfs(1);
        fs.create_dir_all(Path::new(STORE)).unwrap();
        let place = begin(&fs.env());
        let (file, to) = (write(&place), Path::new(STORE).join("a"));
        fs.inject(Fault::new(Operation::Rename, ".tmp").but_done_later());
        place.publish(&file, &to, FAMILY).unwrap_err();
        // It is not known whether the source is gone, so the file is not settled yet.
        fs.inject(Fault::new(Operation::Remove, ".tmp"));
        place.take_back(&Path::new(STORE).join(name_of(&file).unwrap()), FAMILY).unwrap_err();
        place.take_back(&Path::new(STORE).join(name_of(&file).unwrap()), FAMILY).unwrap();
        fs.deliver_late();
        assert_eq!(fs.faults_hit(), 2);
        assert!(names(&fs, STORE).is_empty());
    }

    #[test]
    fn a_file_of_a_failed_publish_leaves_its_store() {
        let (fs, env) = disk();
        let place = begin(&env);
        let to = Path::new(STORE).join("a");
        fs.inject(Fault::answer_lost(".tmp"));
        place.publish(&write(&place), &to, FAMILY).unwrap_err();
        fs.inject(Fault::answer_lost(STORE));
        place.take_back(&to, FAMILY).unwrap();
        assert_eq!(fs.faults_hit(), 2);
        assert!(names(&fs, STORE).is_empty());
        place.take_back(&to, FAMILY).unwrap();
    }

    #[test]
    fn an_opening_that_lost_the_region_retires_nothing_alone() {
        let (fs, env) = disk();
        let first = begin(&env);
        for name in ["a", "b"] {
            fs.put_new(&Path::new(STORE).join(name), b"").unwrap();
        }
        let archive = Path::new(ARCHIVE).join("f");
        // It is interrupted between the two renames of the first file.
        fs.inject(Fault::new(Operation::Rename, "a@f"));
        first.retire_alone(&Path::new(STORE).join("a"), "f", &archive).unwrap_err();
        assert_eq!(fs.faults_hit(), 1);
        let second = begin(&env);
        assert_eq!(names(&fs, "/archive/t/r/f"), ["a"], "the next opening brings it to the archive");
        first.retire_alone(&Path::new(STORE).join("b"), "f", &archive).unwrap_err();
        assert_eq!(names(&fs, STORE), ["b"]);
        second.retire_alone(&Path::new(STORE).join("b"), "f", &archive).unwrap();
        assert_eq!(names(&fs, "/archive/t/r/f"), ["a", "b"]);
        second.retire_alone(&Path::new(STORE).join("b"), "f", &archive).unwrap();
    }
}
