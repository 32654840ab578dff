//! The files of a master, which it may change only while it is the active one.
//!
//! A master that ZooKeeper does not hear, and HDFS does, is deposed without learning of it for as long as that lasts, and so is one whose
//! machine stands still. Its successor goes on with its procedures. Without this the first one would go on with them as well: it would
//! archive the files of a table that was dropped and made again since, say.
//!
//! The lease counts by the clock of this machine that goes on while it sleeps, so a process that thaws is refused at once. Only a single
//! request that was under way may come late; what those can do, the client of HDFS takes care of.

use std::io;
use std::path::Path;
use std::sync::Arc;

use halcyon_env::{
    DirEntry, Env, ErasureCoding, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile,
};
use halcyon_servers::Permit;

/// What a refusal says.
pub(super) const LEASE_IS_OVER: &str = "the lease of this master is over";

/// Refuses every change while there is no permit. Files that are open for writing stay so: they are sealed by whoever reads them.
///
/// *Thread safety*: as that of the files below.
pub(super) struct PermittedFs {
    files: Arc<dyn FileSystem>,
    permit: Permit,
}

impl PermittedFs {
    pub(super) fn of(env: &Env, permit: &Permit) -> Env {
        let (files, permit) = (Arc::clone(&env.fs), permit.clone());
        Env { fs: Arc::new(PermittedFs { files, permit }), ..env.clone() }
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
        self.files.replace(path, bytes)
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
        self.files.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        self.files.remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.check(path)?;
        self.files.remove_dir_all(path)
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use halcyon_env::sim::SimFileSystem;

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
}
