//! A file system that remembers what took too long, and sees that threads come on with their work ([`crate::vitals`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::vitals::FileOperation;
use crate::{
    Attempt, BlockHosts, Clock, DirEntry, ErasureCoding, FileLock, FileSystem, ReadableFile, Stalls,
    UpdatableFile, Watch, WritableFile,
};

/// Passes everything on to another file system and records slow calls. Causes: `sync`, `read`, `write`, `rename` and
/// `files` (all that changes or lists names).
pub struct WatchedFileSystem {
    inner: Arc<dyn FileSystem>,
    watch: Watch,
}

impl Watch {
    #[inline]
    fn over<T>(&self, cause: &'static str, path: &Path, body: impl FnOnce() -> T) -> T {
        let operation = match cause {
            "read" => FileOperation::reads(&*self.clock),
            _ => FileOperation::changes(&*self.clock, path),
        };
        let result = self.stalls.watch(&*self.clock, cause, || path.display().to_string(), body);
        drop(operation);
        result
    }
}

impl WatchedFileSystem {
    pub fn new(inner: Arc<dyn FileSystem>, clock: Arc<dyn Clock>, stalls: Arc<Stalls>) -> WatchedFileSystem {
        WatchedFileSystem { inner, watch: Watch { stalls, clock } }
    }
}

impl FileSystem for WatchedFileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.watch.over("files", path, || self.inner.create(path))?;
        Ok(Box::new(WatchedWriter { inner, watch: self.watch.clone() }))
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.watch.over("files", path, || self.inner.create_over(path))?;
        Ok(Box::new(WatchedWriter { inner, watch: self.watch.clone() }))
    }

    fn create_copies(&self, path: &Path, copies: u32) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.watch.over("files", path, || self.inner.create_copies(path, copies))?;
        Ok(Box::new(WatchedWriter { inner, watch: self.watch.clone() }))
    }

    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let inner = self.watch.over("files", path, || self.inner.create_log(path))?;
        Ok(Box::new(WatchedWriter { inner, watch: self.watch.clone() }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        let inner = self.watch.over("files", path, || self.inner.open(path))?;
        Ok(Arc::new(WatchedFile { inner, watch: self.watch.clone() }))
    }

    fn open_up_to(&self, path: &Path, len: u64) -> io::Result<Arc<dyn ReadableFile>> {
        let inner = self.watch.over("files", path, || self.inner.open_up_to(path, len))?;
        Ok(Arc::new(WatchedFile { inner, watch: self.watch.clone() }))
    }

    fn open_update(&self, path: &Path, len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        let inner = self.watch.over("files", path, || self.inner.open_update(path, len))?;
        Ok(Arc::new(WatchedFile { inner, watch: self.watch.clone() }))
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.watch.over("sync", path, || self.inner.put_new(path, bytes))
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.watch.over("sync", path, || self.inner.replace(path, bytes))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.watch.over("read", path, || self.inner.read(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.watch.over("rename", to, || self.inner.rename(from, to))
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.watch.over("rename", to, || self.inner.rename_over(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<bool> {
        self.watch.over("files", to, || self.inner.link(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.watch.over("files", path, || self.inner.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.watch.over("files", path, || self.inner.remove_dir(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.watch.over("files", path, || self.inner.remove_dir_all(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.watch.over("files", path, || self.inner.create_dir(path))
    }

    fn create_own_dir(&self, path: &Path) -> io::Result<()> {
        self.watch.over("files", path, || self.inner.create_own_dir(path))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.watch.over("files", path, || self.inner.create_dir_all(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.watch.over("files", path, || self.inner.list(path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let operation = FileOperation::reads(&*self.watch.clock);
        let exists = self.inner.exists(path);
        drop(operation);
        exists
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.watch.over("sync", path, || self.inner.sync_dir(path))
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        self.watch.over("files", path, || self.inner.seal(path))
    }

    fn set_storage_policy(&self, directory: &Path, policy: &str) -> io::Result<()> {
        self.watch.over("files", directory, || self.inner.set_storage_policy(directory, policy))
    }

    fn erasure_codings(&self) -> io::Result<Vec<ErasureCoding>> {
        self.inner.erasure_codings()
    }

    fn set_erasure_coding(&self, directory: &Path, policy: Option<&str>) -> io::Result<()> {
        self.watch.over("files", directory, || self.inner.set_erasure_coding(directory, policy))
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn address(&self) -> Option<String> {
        self.inner.address()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }
}

struct WatchedWriter {
    inner: Box<dyn WritableFile>,
    watch: Watch,
}

impl WatchedWriter {
    fn over_sync<T>(&mut self, sync: impl FnOnce(&mut dyn WritableFile) -> T) -> T {
        let WatchedWriter { inner, watch } = self;
        let operation = FileOperation::changes(&*watch.clock, inner.path());
        let started_ns = watch.clock.monotonic_ns();
        let synced = sync(&mut **inner);
        drop(operation);
        let time_ns = watch.clock.monotonic_ns().saturating_sub(started_ns);
        watch.stalls.took(&*watch.clock, "sync", || inner.path().display().to_string(), time_ns);
        synced
    }

    fn over_end(
        self,
        kind: &'static str,
        end: impl FnOnce(Box<dyn WritableFile>) -> io::Result<()>,
    ) -> io::Result<()> {
        let WatchedWriter { inner, watch } = self;
        let path = inner.path().to_path_buf();
        watch.over(kind, &path, || end(inner))
    }
}

impl WritableFile for WatchedWriter {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let WatchedWriter { inner, watch } = self;
        let operation = FileOperation::changes(&*watch.clock, inner.path());
        let started_ns = watch.clock.monotonic_ns();
        let written = inner.write_all(bytes);
        drop(operation);
        let time_ns = watch.clock.monotonic_ns().saturating_sub(started_ns);
        watch.stalls.took(&*watch.clock, "write", || inner.path().display().to_string(), time_ns);
        written
    }

    fn sync(&mut self) -> io::Result<()> {
        self.over_sync(|inner| inner.sync())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.over_sync(|inner| inner.flush())
    }

    fn write_within(&mut self, bytes: &[u8], to_disk: bool, limit: Duration) -> Attempt {
        self.over_sync(|inner| inner.write_within(bytes, to_disk, limit))
    }

    fn wait_within(&mut self, limit: Duration) -> Attempt {
        self.over_sync(|inner| inner.wait_within(limit))
    }

    fn late_machines(&self) -> Vec<String> {
        self.inner.late_machines()
    }

    fn is_on(&self, machines: &[String]) -> bool {
        self.inner.is_on(machines)
    }

    fn avoid_late(&mut self) {
        self.inner.avoid_late();
    }

    fn check(&mut self) -> io::Result<()> {
        let WatchedWriter { inner, watch } = self;
        let operation = FileOperation::changes(&*watch.clock, inner.path());
        let checked = inner.check();
        drop(operation);
        checked
    }

    fn is_thin(&self) -> bool {
        self.inner.is_thin()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let WatchedWriter { inner, watch } = self;
        let operation = FileOperation::changes(&*watch.clock, inner.path());
        let cut = inner.truncate(len);
        drop(operation);
        cut
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.over_end("files", |inner| inner.close())
    }

    fn sync_and_close(self: Box<Self>) -> io::Result<()> {
        self.over_end("sync", |inner| inner.sync_and_close())
    }

    fn len_max(&self) -> u64 {
        self.inner.len_max()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}

/// A file that is read, and perhaps written to anywhere.
struct WatchedFile<F: ?Sized> {
    inner: Arc<F>,
    watch: Watch,
}

impl<F: ReadableFile + ?Sized> ReadableFile for WatchedFile<F> {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.watch.over("read", self.inner.path(), || self.inner.read_exact_at(buffer, offset))
    }

    fn read_resident_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        self.inner.read_resident_at(buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        let operation = FileOperation::reads(&*self.watch.clock);
        let len = self.inner.len();
        drop(operation);
        len
    }

    fn path(&self) -> &PathBuf {
        self.inner.path()
    }

    fn block_hosts(&self) -> Option<Vec<BlockHosts>> {
        self.inner.block_hosts()
    }
}

impl UpdatableFile for WatchedFile<dyn UpdatableFile> {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.watch.over("write", self.inner.path(), || self.inner.write_all_at(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.watch.over("sync", self.inner.path(), || self.inner.sync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use crate::sim::SimFileSystem;

    /// What has a default in the traits must be passed on all the same.
    #[test]
    fn a_flush_is_no_sync() {
        let inner = SimFileSystem::new();
        let clock = Arc::new(ManualClock::at(1));
        let watched = WatchedFileSystem::new(Arc::new(inner.clone()), clock, Arc::default());
        let mut file = watched.create_log(Path::new("/log")).unwrap();
        file.write_all(b"1").and_then(|()| file.flush()).unwrap();
        assert_eq!(inner.disk_syncs(), 0);
        file.sync().unwrap();
        assert_eq!(inner.disk_syncs(), 1);
    }
}
