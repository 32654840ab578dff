//! The files as the process of a master reaches them.
//!
//! Before and behind each call the turn may pass, so the process can be frozen or killed at either point. While there are faults some
//! calls are refused, and of some changes the answer is lost. A change that a deposed master makes after its successor has
//! loaded what there is ends the simulation.

use std::io;
use std::path::Path;
use std::sync::Arc;

use halcyon_env::sim::SimThreads;
use halcyon_env::{DirEntry, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile, in_doubt};
use halcyon_schema::layout;

use crate::world::World;

/// One call in so many is disturbed.
const DISTURBED_ONE_IN: usize = 400;

pub(crate) struct ProcessFs {
    pub(crate) world: Arc<World>,
    pub(crate) epoch: u64,
}

impl ProcessFs {
    fn ask<T>(&self, path: &Path, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.world.reach_name_node(path)?;
        SimThreads::step();
        if self.world.lock().fault(DISTURBED_ONE_IN) {
            return Err(no_answer(path));
        }
        let result = call();
        SimThreads::step();
        result
    }

    fn change(&self, path: &Path, call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.world.reach_name_node(path)?;
        SimThreads::step();
        let (refused, lost) = {
            let mut state = self.world.lock();
            (state.fault(DISTURBED_ONE_IN), state.fault(DISTURBED_ONE_IN))
        };
        if refused {
            return Err(no_answer(path));
        }
        let result = call();
        if result.is_ok() {
            let loaded = self.world.lock().epoch_loaded;
            // What is done to the WALs of dead servers may be done by several masters. What is made in the directory of an attempt
            // goes when the region is opened (`place.rs` of `halcyon-region`).
            let is_shared = path.starts_with(layout::wals_dir(&self.world.root))
                || path.starts_with(layout::old_wals_dir(&self.world.root))
                || path.iter().any(|part| part == ".tmp");
            assert!(
                self.epoch >= loaded || is_shared,
                "the master of epoch {} was deposed, {loaded} has loaded, and it changes {}",
                self.epoch,
                path.display()
            );
        }
        SimThreads::step();
        if lost {
            return result.and(Err(in_doubt(no_answer(path))));
        }
        result
    }
}

pub(crate) fn no_answer(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("{}: the NameNode gave no answer in time", path.display()),
    )
}

impl FileSystem for ProcessFs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.ask(path, || self.world.fs.create(path))
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.ask(path, || self.world.fs.create_over(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        self.ask(path, || self.world.fs.open(path))
    }

    fn open_update(&self, path: &Path, len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        self.ask(path, || self.world.fs.open_update(path, len))
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(path, || self.world.fs.put_new(path, bytes))
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.change(path, || self.world.fs.replace(path, bytes))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.ask(path, || self.world.fs.read(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(from, || self.world.fs.rename(from, to))
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.change(from, || self.world.fs.rename_over(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.change(path, || self.world.fs.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.change(path, || self.world.fs.remove_dir(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.change(path, || self.world.fs.remove_dir_all(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.change(path, || self.world.fs.create_dir(path))
    }

    /// A directory that is there is no change.
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        match self.world.exists(path) {
            true => self.ask(path, || self.world.fs.create_dir_all(path)),
            false => self.change(path, || self.world.fs.create_dir_all(path)),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.ask(path, || self.world.fs.list(path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.ask(path, || self.world.fs.exists(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.ask(path, || self.world.fs.sync_dir(path))
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        self.ask(path, || self.world.fs.seal(path))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.ask(path, || self.world.fs.lock(path))
    }
}
