//! The machine's files for a program that only looks: nothing is written, and no file's access time changes.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

use crate::real::Readable;
use crate::{DirEntry, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile};

/// Reads as [`crate::RealFileSystem`] does; every call that would change something is refused with
/// `ReadOnlyFilesystem`.
pub struct ReadOnlyFileSystem;

/// Only the owner of a file may read it without a trace. For others the mount options decide about access times.
fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty());
    let opened = match opened {
        Err(rustix::io::Errno::PERM) => rustix::fs::open(path, flags, Mode::empty()),
        opened => opened,
    };
    opened.map(File::from).map_err(|error| named(error.into(), path))
}

fn named(error: io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn refused<T>(path: &Path) -> io::Result<T> {
    let text = format!("{}: this program only reads files", path.display());
    Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, text))
}

impl FileSystem for ReadOnlyFileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        refused(path)
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        refused(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        let file = open(path, OFlags::empty())?;
        if file.metadata().map_err(|error| named(error, path))?.is_dir() {
            return Err(named(io::ErrorKind::IsADirectory.into(), path));
        }
        Ok(Arc::new(Readable::new(file, path)))
    }

    fn open_update(&self, path: &Path, _len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        refused(path)
    }

    fn put_new(&self, path: &Path, _bytes: &[u8]) -> io::Result<()> {
        refused(path)
    }

    fn replace(&self, path: &Path, _bytes: &[u8]) -> io::Result<()> {
        refused(path)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = open(path, OFlags::empty())?.read_to_end(&mut bytes);
        read.map(|_| bytes).map_err(|error| named(error, path))
    }

    fn rename(&self, from: &Path, _to: &Path) -> io::Result<()> {
        refused(from)
    }

    fn rename_over(&self, from: &Path, _to: &Path) -> io::Result<()> {
        refused(from)
    }

    fn link(&self, from: &Path, _to: &Path) -> io::Result<bool> {
        refused(from)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        refused(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        refused(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        refused(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        refused(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        refused(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let dir = open(path, OFlags::DIRECTORY)?;
        let listed = |error: rustix::io::Errno| named(error.into(), path);
        let mut entries = Vec::new();
        for entry in Dir::read_from(&dir).map_err(listed)? {
            let entry = entry.map_err(listed)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let len = if is_dir { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) };
            entries.push(DirEntry { name: name.to_string_lossy().into_owned(), is_dir, len });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        crate::real::exists(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        refused(path)
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        refused(path)
    }

    fn set_storage_policy(&self, directory: &Path, _policy: &str) -> io::Result<()> {
        refused(directory)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        refused(path)
    }
}
