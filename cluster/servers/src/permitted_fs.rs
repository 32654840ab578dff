//! The files of a master, which it may change only while it is the active one.
//!
//! A master that ZooKeeper does not hear, and HDFS does, is deposed without learning of it for as long as that lasts, and so is one whose
//! machine stands still. Its successor goes on with its procedures. Without this the first one would go on with them as well: it would
//! archive the files of a table that was dropped and made again since, say.
//!
//! The lease counts by the clock of this machine that goes on while it sleeps, so a process that thaws is refused at once. Only a single
//! request that was under way may come late: when the successor has made another table, or another snapshot, of the name that it is about.
//! So what has a name that may come again is removed and replaced by renames through a directory of this master, which its successor takes
//! away before it runs a procedure (`scratch.rs` in `halcyon-master`):
//!
//! | change | requests | a late one |
//! |---|---|---|
//! | a directory is removed | rename into the own directory, removal there | finds no directory to move into, or nothing of its name |
//! | a file is removed, but for store files and WALs in the archives | the same | the same |
//! | a file of the master is replaced | creation in the own directory, rename over the file | finds no directory, or no source |
//!
//! The own directory may be removed by somebody else. Then "not found" would be said of it, which callers take for "removed before". So it is
//! made anew, but only while the lease lasts and no directory of a later master is beside it. The lease alone does not tell: a successor
//! that has seen the end of this process, wrongly, does not wait for it. A successor makes its own directory before it takes away those of
//! others, so this master sees it, or the successor finds the new directory and takes it away too. Its name is another one each time: a
//! late request to make it cannot give a late rename its target.
//!
//! What is left, and why it harms nothing:
//!
//! | change | a late one |
//! |---|---|
//! | a directory is made | leaves an empty directory. A table is what has a descriptor, and a region is what `hbase:meta` names |
//! | a file is created, and not closed | leaves a file of a random name, or one that a reader passes over because of its length |
//! | a file is renamed to its final name: descriptors, `.regioninfo`, records | its source is in the same directory, and went with it. In one that is still there the same step has written the same bytes, or a later descriptor has a higher number |
//! | store files and regions go to the archive; WALs are taken and archived | their names never come again: the successor has done the same, and the source is gone |
//! | a store file or WAL is deleted in the archive | its name never comes again, unless it is a mob file that a snapshot has brought back and its table has archived once more |
//! | a file is sealed | its writer was dead |
//! | the policy of storage or of erasure coding of a directory is set | a table that was made again under the name keeps its rows, and writes its next files as the old one did |

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use halcyon_env::{
    DirEntry, Env, ErasureCoding, FileLock, FileSystem, Mutex, ReadableFile, UpdatableFile, WritableFile,
    is_in_doubt, random_bytes,
};
use halcyon_schema::layout;

use crate::Permit;

/// So often the own directory is made anew for one change.
const OWN_ATTEMPTS_MAX: usize = 3;

/// What a refusal says.
pub const LEASE_IS_OVER: &str = "the lease of this master is over";

/// Refuses every change while there is no permit. Files that are open for writing stay so: they are sealed by whoever reads them.
///
/// *Thread safety*: as that of the files below.
pub struct PermittedFs {
    files: Arc<dyn FileSystem>,
    permit: Permit,
    own: Option<Own>,
}

/// The directory of this master.
struct Own {
    /// Where it was when this master began. The names of those that take its place begin with this one.
    first: PathBuf,
    /// Where it is. The lock is held while it is made anew.
    now: Mutex<PathBuf>,
    /// Files in these are named once and for all.
    archives: [PathBuf; 2],
    /// Files in this one are the master's, of any epoch.
    of_masters: PathBuf,
}

impl PermittedFs {
    pub fn of(env: &Env, permit: &Permit) -> Env {
        let (files, permit) = (Arc::clone(&env.fs), permit.clone());
        Env { fs: Arc::new(PermittedFs { files, permit, own: None }), ..env.clone() }
    }

    /// For the files below `root`. `own` is a directory there that this master alone has, and its successor takes away.
    pub fn through(env: &Env, permit: &Permit, root: &Path, own: PathBuf) -> Env {
        let (files, permit) = (Arc::clone(&env.fs), permit.clone());
        let archives = [layout::archive_dir(root), layout::old_wals_dir(root)];
        let (first, now) = (own.clone(), Mutex::new(own));
        let own = Some(Own { first, now, archives, of_masters: layout::master_dir(root) });
        Env { fs: Arc::new(PermittedFs { files, permit, own }), ..env.clone() }
    }

    /// Moves what is to be removed into the own directory: its new name. `None`: it is removed where it is. That is so if it cannot be
    /// moved there, to another encryption zone say.
    fn take_away(&self, path: &Path, own: &Own) -> io::Result<Option<PathBuf>> {
        let moved = self.with_own(path, own, |target| self.files.rename(path, target));
        match moved {
            Ok(target) => Ok(Some(target)),
            Err(error) if is_in_doubt(&error) || is_final(&error) => Err(error),
            Err(error) => {
                self.check_not_followed(own)?;
                self.check(path)?;
                tracing::debug!("{} is removed where it is: {error}", path.display());
                Ok(None)
            }
        }
    }

    /// Has `change` take a free name in the own directory; that name. An error of `NotFound` is of `path`, and never of the directory.
    fn with_own(
        &self,
        path: &Path,
        own: &Own,
        change: impl Fn(&Path) -> io::Result<()>,
    ) -> io::Result<PathBuf> {
        for _ in 0..OWN_ATTEMPTS_MAX {
            let dir = own.now.lock().clone();
            let name = dir.join(unique());
            let error = match change(&name) {
                Ok(()) => return Ok(name),
                Err(error) => error,
            };
            let may_be_of_own = error.kind() == io::ErrorKind::NotFound && !is_in_doubt(&error);
            if !may_be_of_own || self.files.exists(&dir)? {
                return Err(error);
            }
            self.check(path)?;
            self.make_anew(own, &dir)?;
            self.check(path)?;
        }
        let text = format!("{}: the directory {} comes and goes", path.display(), own.first.display());
        Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
    }

    fn make_anew(&self, own: &Own, gone: &Path) -> io::Result<()> {
        let now = &mut *own.now.lock();
        if now.as_path() != gone {
            return Ok(()); // another thread was faster
        }
        self.check_not_followed(own)?;
        let mut name = own.first.clone().into_os_string();
        name.push(format!("-{}", unique()));
        let dir = PathBuf::from(name);
        tracing::warn!("{} was removed by somebody; {} takes its place", gone.display(), dir.display());
        self.files.create_dir_all(&dir).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other(format!("{} cannot be made: {error}", dir.display())),
            _ => error,
        })?;
        assert!(
            dir.parent() == own.first.parent(),
            "the next master takes away what is there, and nothing else"
        );
        // One that began meanwhile may have taken away what it found before.
        if let Err(followed) = self.check_not_followed(own) {
            if let Err(error) = self.files.remove_dir(&dir) {
                tracing::info!("{} is left to the next master: {error}", dir.display());
            }
            return Err(followed);
        }
        *now = dir;
        Ok(())
    }

    /// An error if there is a directory of a later master beside the own one.
    fn check_not_followed(&self, own: &Own) -> io::Result<()> {
        let Some(all) = own.first.parent() else { return Ok(()) };
        let dirs = match self.files.list(all) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !is_in_doubt(&error) => return Ok(()),
            dirs => dirs?,
        };
        let epoch = own.first.file_name().and_then(OsStr::to_str).and_then(epoch_of);
        let Some(later) = dirs.into_iter().find(|dir| dir.is_dir && epoch_of(&dir.name) > epoch) else {
            return Ok(());
        };
        let text = format!(
            "{}: {LEASE_IS_OVER}: {} is of a later one, and this one changes no files",
            own.first.display(),
            all.join(later.name).display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }

    fn check(&self, path: &Path) -> io::Result<()> {
        if self.permit.is_given() {
            return Ok(());
        }
        let text = format!(
            "{}: {LEASE_IS_OVER}, and another one may be active: it changes no files",
            path.display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}

/// The epoch with which the name of a master's directory begins. Later ones may have more digits.
fn epoch_of(name: &str) -> Option<u64> {
    let digits = name.split('-').next().unwrap_or_default();
    digits.parse().ok().filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))
}

fn unique() -> String {
    format!("{:032x}", u128::from_be_bytes(random_bytes()))
}

/// Whether another way than through the own directory would come to the same.
fn is_final(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ResourceBusy)
}

impl Own {
    fn has(&self, path: &Path) -> bool {
        path.starts_with(&self.first) || path.starts_with(&*self.now.lock())
    }

    /// Whether a file keeps its name for ever.
    fn is_named_once(&self, path: &Path) -> bool {
        self.archives.iter().any(|archive| path.starts_with(archive)) && !is_back_reference(path)
    }
}

/// Back references come and go by the same name.
fn is_back_reference(path: &Path) -> bool {
    let dir = path.parent().and_then(Path::file_name).and_then(OsStr::to_str);
    dir.is_some_and(|dir| layout::parse_back_references_name(dir).is_some())
}

impl FileSystem for PermittedFs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.check(path)?;
        self.files.create(path)
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.check(path)?;
        self.files.create_over(path)
    }

    fn create_copies(&self, path: &Path, copies: u32) -> io::Result<Box<dyn WritableFile>> {
        self.check(path)?;
        self.files.create_copies(path, copies)
    }

    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.check(path)?;
        self.files.create_log(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        self.files.open(path)
    }

    fn open_up_to(&self, path: &Path, len: u64) -> io::Result<Arc<dyn ReadableFile>> {
        self.files.open_up_to(path, len)
    }

    fn open_update(&self, path: &Path, len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        self.check(path)?;
        self.files.open_update(path, len)
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.check(path)?;
        self.files.put_new(path, bytes)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.check(path)?;
        let own = self.own.as_ref().filter(|own| path.parent() == Some(&*own.of_masters));
        let Some(own) = own else { return self.files.replace(path, bytes) };
        let source = self.with_own(path, own, |source| self.files.put_new(source, bytes))?;
        self.check(path)?;
        self.files.rename_over(&source, path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if !is_in_doubt(&error) => io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{} is not replaced: {error}", path.display()),
            ),
            _ => error,
        })?;
        self.files.sync_dir(&own.of_masters)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.files.read(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(from)?;
        self.files.rename(from, to)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.check(from)?;
        self.files.rename_over(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.check(to)?;
        self.files.link(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        let own = self.own.as_ref().filter(|own| !own.has(path) && !own.is_named_once(path));
        match own.map(|own| self.take_away(path, own)).transpose()?.flatten() {
            Some(taken) => remove_taken(&taken, self.files.remove_file(&taken)),
            None => self.files.remove_file(path),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        self.files.remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        let Some(own) = self.own.as_ref().filter(|own| !own.has(path)) else {
            return self.files.remove_dir_all(path);
        };
        self.files.list(path)?; // an error if it is no directory
        match self.take_away(path, own)? {
            Some(taken) => remove_taken(&taken, self.files.remove_dir_all(&taken)),
            None => self.files.remove_dir_all(path),
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        self.files.create_dir(path)
    }

    fn create_own_dir(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        self.files.create_own_dir(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        self.files.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.files.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.files.exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.files.sync_dir(path)
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        self.files.seal(path)
    }

    fn set_storage_policy(&self, directory: &Path, policy: &str) -> io::Result<()> {
        self.check(directory)?;
        self.files.set_storage_policy(directory, policy)
    }

    fn erasure_codings(&self) -> io::Result<Vec<ErasureCoding>> {
        self.files.erasure_codings()
    }

    fn set_erasure_coding(&self, directory: &Path, policy: Option<&str>) -> io::Result<()> {
        self.check(directory)?;
        self.files.set_erasure_coding(directory, policy)
    }

    fn is_remote(&self) -> bool {
        self.files.is_remote()
    }

    fn address(&self) -> Option<String> {
        self.files.address()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.files.lock(path)
    }
}

/// It is gone from its name. What is left of it the next master takes away.
fn remove_taken(taken: &Path, removed: io::Result<()>) -> io::Result<()> {
    if let Err(error) = removed {
        tracing::info!("{} is left to the next master: {error}", taken.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use halcyon_env::sim::{Fault, Operation, SimFileSystem};

    use super::*;

    #[test]
    fn a_master_whose_lease_is_over_changes_no_files() {
        let below = SimFileSystem::hdfs(1).env();
        let given = Arc::new(AtomicBool::new(true));
        let permit = {
            let given = Arc::clone(&given);
            Permit::while_true(move || given.load(Ordering::SeqCst))
        };
        let fs = PermittedFs::of(&below, &permit).fs;
        let (dir, file) = (Path::new("/t"), Path::new("/t/f"));
        fs.create_dir_all(dir).unwrap();
        fs.put_new(file, b"1").unwrap();
        given.store(false, Ordering::SeqCst);
        let other = Path::new("/t/g");
        let refused: [io::Result<()>; 14] = [
            fs.create(other).map(drop),
            fs.create_over(file).map(drop),
            fs.create_copies(other, 2).map(drop),
            fs.create_log(other).map(drop),
            fs.open_update(file, 0).map(drop),
            fs.put_new(other, b"2"),
            fs.replace(file, b"2"),
            fs.rename(file, other),
            fs.rename_over(file, other),
            fs.link(file, other).map(drop),
            fs.remove_file(file),
            fs.remove_dir_all(dir),
            fs.create_dir_all(other),
            fs.seal(file),
        ];
        for result in refused {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(fs.list(dir).unwrap().len(), 1);
        assert_eq!(fs.read(file).unwrap(), b"1");
        given.store(true, Ordering::SeqCst);
        fs.remove_dir_all(dir).unwrap();
        assert!(!below.fs.exists(dir).unwrap());
    }

    const ROOT: &str = "/hbase";

    /// The files of the masters of a cluster, each with a directory of its own.
    struct Masters(SimFileSystem);

    impl Masters {
        fn new() -> Masters {
            let files = SimFileSystem::hdfs(1);
            for dir in ["MasterData", "data/default/t", "archive", "oldWALs"] {
                files.env().fs.create_dir_all(&Path::new(ROOT).join(dir)).unwrap();
            }
            Masters(files)
        }

        fn own(epoch: u64) -> PathBuf {
            Path::new(ROOT).join(format!("MasterData/scratch/{epoch}"))
        }

        /// The one of this epoch takes over from the one before.
        fn begin(&self, epoch: u64) -> Arc<dyn FileSystem> {
            let env = self.0.env();
            env.fs.create_dir_all(&Masters::own(epoch)).unwrap();
            let fs = PermittedFs::through(&env, &Permit::always(), Path::new(ROOT), Masters::own(epoch)).fs;
            match fs.remove_dir_all(&Masters::own(epoch - 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{error}"),
                _ => fs,
            }
        }
    }

    fn at(path: &str) -> PathBuf {
        Path::new(ROOT).join(path)
    }

    /// A table was dropped. The request of a master that was deposed meanwhile was carried out when its successor had made another table
    /// of that name: the new table's directory was gone.
    #[test]
    fn a_removal_that_comes_late_finds_nothing_to_move_into() {
        let (table, descriptor) = (at("data/default/t"), at("data/default/t/.tableinfo.0000000001"));
        type Removal<'a> = &'a dyn Fn(&dyn FileSystem) -> io::Result<()>;
        let removals: [Removal<'_>; 2] = [&|fs| fs.remove_dir_all(&at("data/default/t")), &|fs| {
            fs.remove_file(&at("data/default/t/.tableinfo.0000000001"))
        }];
        for remove in removals {
            let masters = Masters::new();
            let deposed = masters.begin(1);
            deposed.put_new(&descriptor, b"old").unwrap();
            masters.0.inject(Fault::new(Operation::Rename, "default/t").but_done_later());
            assert!(is_in_doubt(&remove(&*deposed).unwrap_err()));
            let next = masters.begin(2);
            next.remove_dir_all(&table).unwrap();
            next.create_dir_all(&table).unwrap();
            next.put_new(&descriptor, b"new").unwrap();
            masters.0.deliver_late();
            assert_eq!(next.read(&descriptor).unwrap(), b"new");
        }
    }

    #[test]
    fn a_replacement_that_comes_late_finds_no_source() {
        let (masters, switches) = (Masters::new(), at("MasterData/switches"));
        let deposed = masters.begin(1);
        deposed.replace(&switches, b"off").unwrap();
        masters.0.inject(Fault::new(Operation::Rename, "scratch/1").but_done_later());
        assert!(is_in_doubt(&deposed.replace(&switches, b"on").unwrap_err()));
        let next = masters.begin(2);
        next.replace(&switches, b"again off").unwrap();
        masters.0.deliver_late();
        assert_eq!(next.read(&switches).unwrap(), b"again off");
    }

    /// Somebody had removed the directories below `MasterData/scratch`. Each removal was "not found", which callers took for "removed before":
    /// a table was deleted whose directory stayed, and the next table of its name had its rows.
    #[test]
    fn a_removal_without_the_own_directory_is_not_taken_for_done() {
        let masters = Masters::new();
        let fs = masters.begin(1);
        let (dir, file) = (at("data/default/t/r"), at("data/default/t/f"));
        let lose = || masters.0.env().fs.remove_dir_all(&at("MasterData/scratch")).unwrap();
        for _ in 0..3 {
            fs.create_dir_all(&dir).unwrap();
            fs.put_new(&file, b"1").unwrap();
            lose();
            fs.remove_dir_all(&dir).unwrap();
            lose();
            fs.remove_file(&file).unwrap();
            assert!(!fs.exists(&dir).unwrap() && !fs.exists(&file).unwrap());
            lose();
            fs.replace(&at("MasterData/switches"), b"on").unwrap();
            assert_eq!(fs.read(&at("MasterData/switches")).unwrap(), b"on");
            lose();
            for gone in [fs.remove_dir_all(&dir), fs.remove_file(&file)] {
                assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound, "this is the truth");
            }
        }
        // The next master takes away what has taken its place.
        let all = masters.0.env().fs.list(&at("MasterData/scratch")).unwrap();
        assert_eq!(all.len(), 1);
        assert_ne!(
            at("MasterData/scratch").join(&all[0].name),
            Masters::own(1),
            "a late request may make that one"
        );
    }

    /// The place of a master that lived was taken, and its lease lasted. It took the loss of its directory for that of somebody who cleans
    /// up, made it anew, and removed the descriptor of a table that its successor had made.
    #[test]
    fn a_master_that_has_a_successor_makes_its_directory_not_anew() {
        for (first, second) in [(1, 2), (9, 10), (9_999_999_999_999_999, 10_000_000_000_000_000)] {
            let masters = Masters::new();
            let deposed = masters.begin(first);
            masters.begin(second); // takes the directory of the first one away
            let (table, file) = (at("data/default/t/r"), at("data/default/t/f"));
            let files = masters.0.env().fs;
            files.create_dir_all(&table).unwrap();
            files.put_new(&file, b"1").unwrap();
            files.put_new(&at("MasterData/switches"), b"on").unwrap();
            let refused = [
                deposed.remove_dir_all(&table),
                deposed.remove_file(&file),
                deposed.replace(&at("MasterData/switches"), b"off"),
            ];
            for result in refused {
                assert_eq!(result.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
            }
            assert!(files.exists(&table).unwrap() && files.exists(&file).unwrap());
            assert_eq!(files.read(&at("MasterData/switches")).unwrap(), b"on");
            assert_eq!(files.list(&at("MasterData/scratch")).unwrap().len(), 1, "that of the successor");
        }
    }

    /// The directory of a master before this one, which came late, is none of a successor.
    #[test]
    fn a_directory_of_an_earlier_master_is_not_taken_for_one_of_a_later() {
        let masters = Masters::new();
        masters.begin(9);
        let fs = masters.begin(10);
        let files = masters.0.env().fs;
        files.remove_dir_all(&at("MasterData/scratch")).unwrap();
        files.create_dir_all(&at("MasterData/scratch/9-h,16000,1-0123")).unwrap();
        files.create_dir_all(&at("data/default/t/r")).unwrap();
        fs.remove_dir_all(&at("data/default/t/r")).unwrap();
        assert!(!files.exists(&at("data/default/t/r")).unwrap());
    }

    /// A master that was deposed finds no directory of its own, and makes none.
    #[test]
    fn a_deposed_master_makes_its_directory_not_anew() {
        let masters = Masters::new();
        let env = masters.0.env();
        let given = Arc::new(AtomicBool::new(true));
        let permit = {
            let given = Arc::clone(&given);
            // It ends while the request is under way.
            Permit::while_true(move || given.swap(false, Ordering::SeqCst))
        };
        env.fs.create_dir_all(&at("data/default/t/r")).unwrap();
        let fs = PermittedFs::through(&env, &permit, Path::new(ROOT), Masters::own(1)).fs;
        let refused = fs.remove_dir_all(&at("data/default/t/r")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(env.fs.exists(&at("data/default/t/r")).unwrap());
        assert!(!env.fs.exists(&at("MasterData/scratch")).unwrap());
        given.store(true, Ordering::SeqCst);
        env.fs.put_new(&at("data/default/t/f"), b"1").unwrap();
        assert_eq!(
            fs.remove_file(&at("data/default/t/f")).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
    }

    #[test]
    fn what_is_removed_is_gone_and_errors_are_those_of_the_files() {
        let masters = Masters::new();
        let fs = masters.begin(1);
        let (dir, file) = (at("data/default/t/r"), at("data/default/t/f"));
        for gone in [fs.remove_dir_all(&dir), fs.remove_file(&file)] {
            assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        fs.create_dir_all(&dir).unwrap();
        fs.put_new(&dir.join("x"), b"1").unwrap();
        fs.put_new(&file, b"1").unwrap();
        assert_eq!(fs.remove_dir_all(&file).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        fs.remove_dir_all(&dir).unwrap();
        fs.remove_file(&file).unwrap();
        assert!(!fs.exists(&dir).unwrap() && !fs.exists(&file).unwrap());
        fs.put_new(&at("oldWALs/w"), b"1").unwrap();
        fs.remove_file(&at("oldWALs/w")).unwrap();
        assert!(fs.list(&Masters::own(1)).unwrap().is_empty(), "nothing is left");
    }
}
