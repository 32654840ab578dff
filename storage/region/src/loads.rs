//! The files of a bulk load on their way into stores.
//!
//! ```text
//! <region>/.tmp/<opening>/copies-<random>/<n>               copies of files that stay where they are
//! <region>/.tmp/<opening>/load-<random>/<family>@<name>     staged
//! <region>/.tmp/<opening>/load-<random>/origins             where the moved ones were: "<family>@<name>\t<path>\n"
//! <region>/.tmp/<opening>/load-<random>/names               all of them: "<family>@<name>\n"
//! <region>/.bulk-<random>/<family>@<name>                   committed: one rename of the directory
//! <region>/.tmp/<opening>/load-<random>-failed/..           taken back: one rename of the directory, then those of its files
//! <region>/<family>/<name>                                  in its store
//! ```
//!
//! Stores with a list of their files name the loaded ones in it last. The directory of the load goes after that; if it cannot be
//! removed, a file `shown` in it tells that no file is on its way.
//!
//! The source of the commit's rename is in the opening's directory. So a server that has lost the region cannot commit
//! (`place.rs`).

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_cell::{Error, Result};
use halcyon_env::{DirEntry, Env};

use crate::bulk_load::BulkLoadFile;
use crate::copy::copy_bytes;
use crate::place::{OF_FAMILY, OpeningDir, archive_going, random_name};

/// Before the names of directories of copies.
const COPIES: &str = "copies-";
/// Before the names of directories of staged files.
const STAGED: &str = "load-";
/// Behind the names of those that were committed and have failed. Some of their files may be in stores.
const FAILED: &str = "-failed";
/// Before the names of directories of committed files. HBase passes over names that begin with a dot.
const COMMITTED: &str = ".bulk-";
const ORIGINS: &str = "origins";
/// Says which files there are: those that are in their stores already, and in no list yet, are found by it.
const NAMES: &str = "names";
/// Says that all files are in their stores and the directory is what is left.
const SHOWN: &str = "shown";
/// What is no file of the load.
const ABOUT: [&str; 3] = [ORIGINS, NAMES, SHOWN];

/// A file to be staged.
pub(crate) struct SourceFile<'a> {
    pub path: &'a Path,
    /// The copy of it that is loaded. `None`: the file itself is.
    pub copy: Option<&'a Path>,
    pub family: String,
    /// Its name in the store.
    pub name: String,
}

/// Copies of those files of a load that stay where they are or are on another file system. They are made before the load keeps the region
/// from flushing and closing, because copying takes as long as the files are large. What is left of them goes when this is dropped, or
/// else with the opening's directory.
pub(crate) struct Copies {
    place: Arc<OpeningDir>,
    /// `None`: there are none.
    dir: Option<PathBuf>,
    /// For each file of the load.
    copies: Vec<Option<PathBuf>>,
}

impl Copies {
    /// *Blocking*.
    pub fn make(place: &Arc<OpeningDir>, files: &[BulkLoadFile]) -> Result<Copies> {
        let mut copies = Copies { place: place.clone(), dir: None, copies: vec![None; files.len()] };
        let env = place.env();
        for (at, file) in files.iter().enumerate().filter(|(_, file)| file.copy || file.from.is_some()) {
            if copies.dir.is_none() {
                let dir = place.dir().join(format!("{COPIES}{}", random_name()));
                env.fs.create_dir(&dir)?;
                copies.dir = Some(dir);
            }
            let copy = copies.dir.as_ref().expect("it was just made").join(at.to_string());
            let source = file.from.as_ref().unwrap_or(env).fs.open(&file.path)?;
            copy_bytes(env, &*source, &copy)?;
            copies.copies[at] = Some(copy);
        }
        Ok(copies)
    }

    /// That of the file with this number in its load.
    pub fn of(&self, at: usize) -> Option<&Path> {
        self.copies[at].as_deref()
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            let _ = self.place.env().fs.remove_dir_all(dir); // else the next opening does it
        }
    }
}

/// Files that are out of the client's hands and not yet the region's.
pub(crate) struct StagedLoad {
    place: Arc<OpeningDir>,
    archive_dir: PathBuf,
    dir: PathBuf,
    id: String,
    /// `<family>@<name>` of each.
    names: Vec<String>,
}

/// Files that are the region's, whatever happens.
pub(crate) struct CommittedLoad {
    staged: StagedLoad,
    region_dir: PathBuf,
    dir: PathBuf,
}

impl StagedLoad {
    /// Moves the files or their copies. After an error the moved ones are back.
    pub fn stage(
        place: &Arc<OpeningDir>,
        archive_dir: &Path,
        files: &[SourceFile<'_>],
    ) -> Result<StagedLoad> {
        let (id, env) = (random_name(), place.env());
        let dir = place.dir().join(format!("{STAGED}{id}"));
        env.fs.create_dir(&dir)?;
        let (archive_dir, names) =
            (archive_dir.to_path_buf(), files.iter().map(staged_name).collect::<Vec<_>>());
        let distinct: HashSet<&String> = names.iter().collect();
        assert!(
            distinct.len() == names.len(),
            "of two files with one name only one would be loaded: {names:?}"
        );
        let staged = StagedLoad { place: place.clone(), archive_dir, dir, id, names };
        match staged.fill(files) {
            Ok(()) => Ok(staged),
            Err(error) => Err(staged.undo(error)),
        }
    }

    fn fill(&self, files: &[SourceFile<'_>]) -> Result<()> {
        let env = self.place.env();
        let mut origins = String::new();
        for file in files.iter().filter(|file| file.copy.is_none()) {
            let path = file.path.to_str().filter(|path| !path.contains(char::is_control));
            let path = path.ok_or_else(|| {
                Error::invalid(format!("{}: control characters are not allowed here", file.path.display()))
            })?;
            origins.push_str(&format!("{}\t{path}\n", staged_name(file)));
        }
        env.fs.put_new(&self.dir.join(ORIGINS), origins.as_bytes())?;
        let names = self.names.iter().map(|name| format!("{name}\n")).collect::<String>();
        env.fs.put_new(&self.dir.join(NAMES), names.as_bytes())?;
        // Where the files come from is known after a crash before the first of them leaves its place.
        self.place.sync_up()?;
        env.fs.sync_dir(&self.dir)?;
        for file in files {
            let (from, to) = (file.copy.unwrap_or(file.path), self.dir.join(staged_name(file)));
            match env.fs.rename(from, &to) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                    copy_bytes(env, &*env.fs.open(from)?, &to)?;
                }
                Err(error) => env.fs.resolve_rename(from, &to, error)?,
            }
        }
        env.fs.sync_dir(&self.dir)?;
        for file in files.iter().filter(|file| file.copy.is_none()) {
            file.path.parent().map_or(Ok(()), |dir| env.fs.sync_dir(dir))?;
        }
        Ok(())
    }

    /// Moves the files back. Returns the error that is the reason.
    pub fn undo(self, error: Error) -> Error {
        match give_back(self.place.env(), &self.dir, &self.archive_dir) {
            Ok(()) => error,
            Err(left) => {
                tracing::error!(error = %left, dir = %self.dir.display(), "files of a failed bulk load are not back yet");
                error.context("the next opening of the region moves the files back to where they were")
            }
        }
    }

    /// Makes the files the region's, all with one rename. After an error they are back.
    pub fn commit(self, region_dir: &Path) -> Result<CommittedLoad> {
        let fs = self.place.env().fs.clone();
        let dir = region_dir.join(format!("{COMMITTED}{}", self.id));
        let moved = fs.rename(&self.dir, &dir).or_else(|error| fs.resolve_rename(&self.dir, &dir, error));
        let committed = |staged: StagedLoad| CommittedLoad {
            staged,
            region_dir: region_dir.to_path_buf(),
            dir: dir.clone(),
        };
        let Err(error) = moved else {
            let committed = committed(self);
            return match committed.sync() {
                Ok(()) => Ok(committed),
                Err(error) => Err(committed.undo(error)),
            };
        };
        // A rename in doubt may be carried out later. It comes to nothing once its source has another name.
        let away = self.place.dir().join(format!("{STAGED}{}{FAILED}", self.id));
        let disarmed =
            fs.rename(&self.dir, &away).or_else(|error| fs.resolve_rename(&self.dir, &away, error));
        match disarmed {
            Ok(()) => Err(StagedLoad { dir: away, ..self }.undo(error.into())),
            Err(_) if fs.exists(&dir).unwrap_or(false) => Ok(committed(self)),
            Err(_) => Err(Error::from(error).context("whether the files are loaded is not known")),
        }
    }
}

impl CommittedLoad {
    fn sync(&self) -> Result<()> {
        let fs = &self.staged.place.env().fs;
        fs.sync_dir(&self.region_dir)?;
        Ok(fs.sync_dir(self.staged.place.dir())?)
    }

    /// Moves the files to their stores, durably. Returns family and path of each.
    pub fn place(&self) -> Result<Vec<(String, PathBuf)>> {
        place_files(self.staged.place.env(), &self.region_dir, &self.dir)
    }

    /// The files are shown: nothing is left of the load but its directory. One that cannot be removed says so, or a snapshot
    /// would wait for its files; the next opening removes it.
    pub fn end(self) {
        let fs = &self.staged.place.env().fs;
        let Err(error) = fs.remove_dir_all(&self.dir) else { return };
        tracing::warn!(%error, dir = %self.dir.display(), "the directory of a bulk load that has ended is left");
        let said = fs.put_new(&self.dir.join(SHOWN), b"").and_then(|()| fs.sync_dir(&self.dir));
        if let Err(error) = said
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, dir = %self.dir.display(), "snapshots of the region fail until it is opened again");
        }
    }

    /// Takes the files out of their stores and moves them back. A server that has lost the region cannot. Returns the error that is the reason.
    pub fn undo(self, error: Error) -> Error {
        match self.take_out() {
            Ok(()) => StagedLoad { dir: self.away(), ..self.staged }.undo(error),
            Err(left) => {
                tracing::error!(error = %left, dir = %self.dir.display(), "a bulk load is committed and not shown");
                error.context(
                    "the next opening of the region shows the loaded files, or takes them back if that has begun",
                )
            }
        }
    }

    fn away(&self) -> PathBuf {
        self.staged.place.dir().join(format!("{STAGED}{}{FAILED}", self.staged.id))
    }

    /// First of all the load is no longer committed, which an opening that has lost the region cannot bring about: the directory goes
    /// to that of the opening. From then on the next opening goes on with this if it is cut off.
    fn take_out(&self) -> Result<()> {
        let (env, away) = (self.staged.place.env(), self.away());
        env.fs.rename(&self.dir, &away).or_else(|error| env.fs.resolve_rename(&self.dir, &away, error))?;
        self.sync()?;
        take_out_of_stores(env, &self.region_dir, &away)
    }
}

fn staged_name(file: &SourceFile<'_>) -> String {
    format!("{}{OF_FAMILY}{}", file.family, file.name)
}

/// Family and place of a staged file.
fn in_store(region_dir: &Path, staged_name: &str) -> Result<(String, PathBuf)> {
    // A family may have the character in its name, a store file has not.
    let (family, name) = staged_name
        .rsplit_once(OF_FAMILY)
        .ok_or_else(|| Error::corrupt(format!("{staged_name} is no name of a bulk-loaded file")))?;
    Ok((family.to_string(), region_dir.join(family).join(name)))
}

/// Loads that were committed before a crash. Their files are in the stores.
#[derive(Default)]
pub(crate) struct CompletedLoads {
    dirs: Vec<PathBuf>,
    /// Family and name.
    files: Vec<(String, String)>,
}

impl CompletedLoads {
    pub fn names_of(&self, family: &str) -> impl Iterator<Item = &String> {
        self.files.iter().filter(move |(of, _)| of == family).map(|(_, name)| name)
    }

    /// The stores have the files.
    pub fn end(self, env: &Env) -> Result<()> {
        for dir in &self.dirs {
            env.fs.remove_dir_all(dir)?;
            tracing::info!(dir = %dir.display(), files = self.files.len(), "a bulk load was completed");
        }
        Ok(())
    }
}

/// Whether files of a bulk load are the region's and not all of them are in their stores yet, or not all of those are named in
/// the list of their store. A directory that is left of a load that is shown does not count.
pub(crate) fn has_unplaced(env: &Env, region_dir: &Path) -> Result<bool> {
    let is_committed = |entry: &DirEntry| entry.is_dir && entry.name.starts_with(COMMITTED);
    for entry in env.fs.list(region_dir)?.iter().filter(|entry| is_committed(entry)) {
        let files = match env.fs.list(&region_dir.join(&entry.name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue, // it has just ended
            listed => listed?,
        };
        if !files.is_empty() && !files.iter().any(|file| file.name == SHOWN) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Completes the loads that were committed before a crash. Called by an opening, before stores are listed.
pub(crate) fn complete_loads(
    env: &Env,
    region_dir: &Path,
    archive_dir: &Path,
    region_entries: &[DirEntry],
) -> Result<CompletedLoads> {
    let mut loads = CompletedLoads::default();
    for entry in region_entries {
        if entry.is_dir && entry.name.starts_with(COMMITTED) {
            let dir = region_dir.join(&entry.name);
            if env.fs.exists(&dir.join(SHOWN))? {
                loads.dirs.push(dir); // its files may have been compacted since
                continue;
            }
            let names = match env.fs.read(&dir.join(NAMES)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(), // of an earlier version
                read => read?,
            };
            archive_orphans(env, region_dir, archive_dir, &dir)?;
            place_files(env, region_dir, &dir)?;
            for name in String::from_utf8_lossy(&names).lines() {
                if let Some((family, name)) = name.rsplit_once(OF_FAMILY) {
                    loads.files.push((family.to_string(), name.to_string()));
                }
            }
            loads.dirs.push(dir);
        }
    }
    Ok(loads)
}

/// Archives files of families that were deleted since the load was committed: a region that is open has the directories of all its
/// families. One of the same name that was added since does not get them.
fn archive_orphans(env: &Env, region_dir: &Path, archive_dir: &Path, dir: &Path) -> Result<()> {
    for entry in env.fs.list(dir)?.iter().filter(|entry| !ABOUT.contains(&&*entry.name)) {
        let (family, place) = in_store(region_dir, &entry.name)?;
        if !env.fs.exists(&region_dir.join(&family))? {
            let name = place.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            archive_going(env, &dir.join(&entry.name), name, &archive_dir.join(family))?;
        }
    }
    Ok(())
}

fn place_files(env: &Env, region_dir: &Path, dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut placed = Vec::new();
    for entry in env.fs.list(dir)?.iter().filter(|entry| !ABOUT.contains(&&*entry.name)) {
        let (family, to) = in_store(region_dir, &entry.name)?;
        let (store, from) = (region_dir.join(&family), dir.join(&entry.name));
        env.fs.rename(&from, &to).or_else(|error| env.fs.resolve_rename(&from, &to, error))?;
        env.fs.sync_dir(&store)?;
        placed.push((family, to));
    }
    env.fs.sync_dir(dir)?;
    Ok(placed)
}

/// Brings the files of a load that was taken back out of their stores into its directory, durably. May run again.
pub(crate) fn take_out_of_stores(env: &Env, region_dir: &Path, dir: &Path) -> Result<()> {
    let is_failed = dir.file_name().is_some_and(|name| name.to_string_lossy().ends_with(FAILED));
    if !is_failed {
        return Ok(()); // it was never committed
    }
    let names = match env.fs.read(&dir.join(NAMES)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()), // nothing was staged yet
        read => read?,
    };
    for staged_name in String::from_utf8_lossy(&names).lines() {
        let (family, from) = in_store(region_dir, staged_name)?;
        let to = dir.join(staged_name);
        if env.fs.exists(&from)? {
            env.fs.rename(&from, &to).or_else(|error| env.fs.resolve_rename(&from, &to, error))?;
            env.fs.sync_dir(&region_dir.join(family))?;
        }
    }
    Ok(env.fs.sync_dir(dir)?)
}

/// Whether a directory of an opening has files of a load that was not committed.
pub(crate) fn is_staged_load(name: &str) -> bool {
    name.starts_with(STAGED)
}

/// Moves staged files back to where they were, and removes the directory. A file whose place is taken goes to the archive.
/// May run again after an error.
pub(crate) fn give_back(env: &Env, dir: &Path, archive_dir: &Path) -> Result<()> {
    let origins = match env.fs.read(&dir.join(ORIGINS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(), // nothing was moved yet
        read => read?,
    };
    let origins = String::from_utf8_lossy(&origins);
    let origins: HashMap<&str, &str> = origins.lines().filter_map(|line| line.split_once('\t')).collect();
    for entry in env.fs.list(dir)? {
        let Some(origin) = origins.get(&*entry.name).map(Path::new) else { continue };
        let from = dir.join(&entry.name);
        if env.fs.exists(origin)? {
            // A copy of it was made because it is on another disk, or the client has put another file there.
            let (family, name) = in_store(Path::new(""), &entry.name)?;
            let name = name.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_string();
            archive_going(env, &from, &name, &archive_dir.join(family))?;
            continue;
        }
        if let Some(parent) = origin.parent() {
            env.fs.create_dir_all(parent)?;
        }
        env.fs.rename(&from, origin).or_else(|error| env.fs.resolve_rename(&from, origin, error))?;
        origin.parent().map_or(Ok(()), |parent| env.fs.sync_dir(parent))?;
    }
    Ok(env.fs.remove_dir_all(dir)?)
}
