//! The files as the process of a master reaches them.
//!
//! Before and behind each call the turn may pass, so the process can be frozen or killed at either point. While there are faults some
//! calls are refused, and of some changes the answer is lost. Directories and files may be made late, and attempts of a removal may be
//! carried out again later. A change that a deposed master makes after its successor has
//! loaded what there is ends the simulation.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::sim::{SimFileSystem, SimThreads};
use halcyon_env::{DirEntry, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile, in_doubt};
use halcyon_schema::layout;

use crate::removal::Removal;
use crate::world::World;

/// One call in so many is disturbed.
const DISTURBED_ONE_IN: usize = 400;
/// A request that is late is carried out within this time.
const LATE_MAX: Duration = Duration::from_secs(3);

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

impl ProcessFs {
    /// A change that gets no answer, and is made later.
    fn is_late(&self, change: impl FnOnce(&SimFileSystem) -> io::Result<()> + Send + 'static) -> bool {
        let is_late = self.world.lock().fault(DISTURBED_ONE_IN);
        if is_late {
            self.world.change_late(LATE_MAX, Box::new(change));
        }
        is_late
    }

    /// A change of which an attempt before the one that is answered may be carried out once more, later.
    fn again_later(
        &self,
        path: &Path,
        change: impl Fn(&SimFileSystem) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        self.change(path, || change(&self.world.fs))?;
        self.is_late(change);
        Ok(())
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
        let late = path.to_path_buf();
        if self.is_late(move |fs| fs.create(&late).map(drop)) {
            return Err(in_doubt(no_answer(path)));
        }
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
        let number = self.world.lock().next_id();
        let removal = Removal::of(path, number);
        self.ask(path, || self.world.fs.list(path).map(|_| ()))?;
        self.change(path, || removal.make_own_dir(&self.world.fs))?;
        let step = removal.clone();
        if let Err(error) = self.again_later(path, move |fs| step.take_away(fs)) {
            self.world.change_late(LATE_MAX, Box::new(move |fs| removal.remove(fs)));
            return Err(error);
        }
        let step = removal.clone();
        if self.again_later(path, move |fs| step.remove(fs)).is_err() {
            // The client goes on trying beside its caller.
            self.world.change_late(LATE_MAX, Box::new(move |fs| removal.remove(fs)));
        }
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let late = path.to_path_buf();
        if self.is_late(move |fs| fs.create_dir(&late)) {
            return Err(in_doubt(no_answer(path)));
        }
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
