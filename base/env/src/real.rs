//! The machine's own file system.
#![allow(clippy::disallowed_methods)] // the one place that may

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{DirEntry, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile, in_doubt, proc};

/// `std::fs` behind the door.
pub struct RealFileSystem;

struct Writable {
    file: File,
    path: PathBuf,
    len: u64,
}

pub(crate) struct Readable {
    file: File,
    path: PathBuf,
}

impl Readable {
    pub(crate) fn new(file: File, path: &Path) -> Readable {
        Readable { file, path: path.to_path_buf() }
    }
}

struct Lock {
    _file: File,
}

impl FileLock for Lock {}

fn named(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A name beside `path` that no other writer uses.
fn temporary_beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}-{count}.tmp", std::process::id()))
}

fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let temporary = temporary_beside(path);
    let mut file = File::create(&temporary).map_err(|e| named(e, &temporary))?;
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    if let Err(error) = written {
        let_go(&temporary);
        return Err(named(error, &temporary));
    }
    Ok(temporary)
}

/// Removes a temporary name. It does no harm if it stays: what was asked for is done or not, whatever becomes of it.
fn let_go(temporary: &Path) {
    let _ = std::fs::remove_file(temporary);
}

/// A name of a directory, by what is known of it. `None`: it was removed since the directory was read. Any other error is one of
/// the whole list: without the name its file would count as gone.
fn entry_of(path: &Path, metadata: io::Result<Metadata>) -> io::Result<Option<DirEntry>> {
    let metadata = match metadata {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        metadata => metadata.map_err(|e| named(e, path))?,
    };
    let is_dir = metadata.is_dir();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Some(DirEntry { name, is_dir, len: if is_dir { 0 } else { metadata.len() } }))
}

/// Makes a directory durable that was just made. If that fails it is removed again: whoever finds it would take it for durable.
fn keep_new_dir(path: &Path, synced: io::Result<()>) -> io::Result<()> {
    synced.map_err(|error| if std::fs::remove_dir(path).is_ok() { error } else { in_doubt(error) })
}

pub(crate) fn exists(path: &Path) -> io::Result<bool> {
    match path.try_exists() {
        // A part of the path is a file: there can be nothing below. Or it is longer than any name here.
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename) =>
        {
            Ok(false)
        }
        found => found.map_err(|e| named(e, path)),
    }
}

fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // A file system that does not know the flag (NFS). One process at a time has the directory, by its lock.
        Err(Errno::INVAL | Errno::NOSYS) if to.try_exists()? => Err(io::ErrorKind::AlreadyExists.into()),
        Err(Errno::INVAL | Errno::NOSYS) => std::fs::rename(from, to),
        renamed => Ok(renamed?),
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl FileSystem for RealFileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file = File::create_new(path).map_err(|e| named(e, path))?;
        Ok(Box::new(Writable { file, path: path.to_path_buf(), len: 0 }))
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file = File::create(path).map_err(|e| named(e, path))?;
        Ok(Box::new(Writable { file, path: path.to_path_buf(), len: 0 }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        let file = File::open(path).map_err(|e| named(e, path))?;
        Ok(Arc::new(Readable::new(file, path)))
    }

    fn open_update(&self, path: &Path, len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
        let file = file.and_then(|file| file.set_len(len).map(|()| file)).map_err(|e| named(e, path))?;
        Ok(Arc::new(Readable::new(file, path)))
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = write_whole(path, bytes)?;
        let linked = std::fs::hard_link(&temporary, path).map_err(|e| named(e, path));
        let_go(&temporary); // the file has its other name, or none
        linked?;
        self.sync_dir(parent(path)).map_err(in_doubt)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let temporary = write_whole(path, bytes)?;
        if let Err(error) = std::fs::rename(&temporary, path) {
            let_go(&temporary);
            return Err(named(error, path));
        }
        self.sync_dir(parent(path)).map_err(in_doubt)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path).and_then(|mut f| f.read_to_end(&mut bytes)).map_err(|e| named(e, path))?;
        Ok(bytes)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        rename_to_free(from, to).map_err(|e| named(e, from))
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to).map_err(|e| named(e, from))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<bool> {
        use io::ErrorKind::{CrossesDevices, PermissionDenied, TooManyLinks, Unsupported};
        match std::fs::hard_link(from, to) {
            Ok(()) => Ok(true),
            Err(error)
                if matches!(error.kind(), CrossesDevices | PermissionDenied | TooManyLinks | Unsupported) =>
            {
                Ok(false)
            }
            Err(error) => Err(named(error, from)),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path).map_err(|e| named(e, path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path).map_err(|e| named(e, path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir_all(path).map_err(|e| named(e, path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path).map_err(|e| named(e, path))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        if path.is_dir() {
            return Ok(());
        }
        let above = parent(path);
        if above != path {
            self.create_dir_all(above)?;
        }
        match std::fs::create_dir(path) {
            Ok(()) => keep_new_dir(path, self.sync_dir(above)),
            // Somebody makes it at this moment, and may not have synced it.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                self.sync_dir(above).map_err(in_doubt)
            }
            Err(e) => Err(named(e, path)),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path).map_err(|e| named(e, path))? {
            let entry = entry.map_err(|e| named(e, path))?;
            entries.extend(entry_of(&entry.path(), entry.metadata())?);
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path).and_then(|dir| dir.sync_all()).map_err(|e| named(e, path))
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        if std::fs::metadata(path).map_err(|e| named(e, path))?.is_dir() {
            return Err(named(io::ErrorKind::IsADirectory.into(), path));
        }
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let file = file.map_err(|e| named(e, path))?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(Lock { _file: file })),
            Err(TryLockError::WouldBlock) => {
                let holder = file.metadata().ok().and_then(|file| proc::flock_holder(&file));
                let by = holder.map_or_else(String::new, |pid| format!(" by process {pid}"));
                let text = format!("{} is locked{by}", path.display());
                Err(io::Error::new(io::ErrorKind::WouldBlock, text))
            }
            Err(TryLockError::Error(e)) => Err(named(e, path)),
        }
    }
}

impl WritableFile for Writable {
    /// Linux has each written byte in the file already. An error of its `close` would be about bytes that were not synced.
    fn close(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes).map_err(|e| named(e, &self.path))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data().map_err(|e| named(e, &self.path))
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let cut = self.file.set_len(len).and_then(|()| self.file.seek(SeekFrom::Start(len)));
        cut.map_err(|e| named(e, &self.path))?;
        self.len = len;
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl ReadableFile for Readable {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset).map_err(|e| named(e, &self.path))
    }

    fn read_resident_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        let wanted = buffer.len();
        let mut slices = [io::IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.file, &mut slices, offset, rustix::io::ReadWriteFlags::NOWAIT) {
            Ok(read) => Ok(read == wanted), // less: the rest is on the disk, or the file ends
            // Not in memory, or a file system that does not know the flag: somebody who may wait reads it.
            Err(_) => Ok(false),
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata().map_err(|e| named(e, &self.path))?.len())
    }

    fn path(&self) -> &PathBuf {
        &self.path
    }
}

impl UpdatableFile for Readable {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|e| named(e, &self.path))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data().map_err(|e| named(e, &self.path))
    }
}

pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes));
    filled.expect("/dev/urandom is there on every Linux");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::is_in_doubt;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("halcyon-real-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    /// A name that could not be looked at was left out of the list, whatever the reason: a region opened without the rows of a
    /// file on a bad sector, and a WAL was removed unread.
    #[test]
    fn only_a_name_that_is_gone_is_left_out_of_a_list() {
        let path = Path::new("/d/a");
        assert_eq!(entry_of(path, Err(io::ErrorKind::NotFound.into())).unwrap(), None);
        for errno in [5, 13, 116, 117] {
            // EIO, EACCES, ESTALE, EUCLEAN
            let error = entry_of(path, Err(io::Error::from_raw_os_error(errno))).unwrap_err();
            assert!(error.to_string().starts_with("/d/a: "), "{error}");
        }
        let dir = scratch("list");
        std::fs::write(dir.join("a"), b"xyz").unwrap();
        let listed = RealFileSystem.list(&dir).unwrap();
        assert_eq!(listed, [DirEntry { name: "a".to_string(), is_dir: false, len: 3 }]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A directory whose name could not be made durable stayed, and the next call took it for durable.
    #[test]
    fn a_directory_that_is_not_durable_does_not_stay() {
        let (dir, failed) = (scratch("dirs"), || io::Error::from_raw_os_error(5));
        let (empty, full) = (dir.join("empty"), dir.join("full"));
        std::fs::create_dir_all(full.join("below")).unwrap();
        std::fs::create_dir(&empty).unwrap();
        keep_new_dir(&empty, Ok(())).unwrap();
        assert!(!is_in_doubt(&keep_new_dir(&empty, Err(failed())).unwrap_err()));
        assert!(!empty.exists());
        assert!(is_in_doubt(&keep_new_dir(&full, Err(failed())).unwrap_err()));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    /// A sync that does nothing was noticed nowhere: what is written survives a killed process in the page cache. Here the kernel
    /// has to be asked, since it refuses to sync the null device.
    #[test]
    fn a_sync_asks_the_kernel() {
        let null = Path::new("/dev/null");
        let refused = |synced: io::Result<()>| synced.expect_err("the null device cannot be synced").kind();
        let mut written = RealFileSystem.create_over(null).unwrap();
        written.write_all(b"x").unwrap();
        assert_eq!(refused(written.sync()), io::ErrorKind::InvalidInput);
        let updated = OpenOptions::new().read(true).write(true).open(null).unwrap();
        let updated = Readable::new(updated, null);
        assert_eq!(refused(UpdatableFile::sync(&updated)), io::ErrorKind::InvalidInput);
        assert_eq!(refused(RealFileSystem.sync_dir(null)), io::ErrorKind::InvalidInput);
    }

    /// What failed left its temporary file behind.
    #[test]
    fn a_file_that_cannot_be_put_in_place_leaves_nothing() {
        let dir = scratch("put");
        std::fs::create_dir(dir.join("d")).unwrap();
        std::fs::write(dir.join("a"), b"old").unwrap();
        assert_eq!(
            RealFileSystem.put_new(&dir.join("a"), b"new").unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        RealFileSystem.replace(&dir.join("d"), b"new").unwrap_err();
        let names: Vec<String> =
            RealFileSystem.list(&dir).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["a", "d"]);
        assert_eq!(std::fs::read(dir.join("a")).unwrap(), b"old");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
