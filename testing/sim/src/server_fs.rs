//! The files as the process of a region server reaches them.
//!
//! Before and behind each call the turn may pass, so the process can be frozen or killed at either point. While there are faults
//! questions and writes fail, and changes of names are refused, or done without an answer, or done later: then the one who asked
//! may be dead by then.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halcyon_env::sim::{SimFileSystem, SimThreads};
use halcyon_env::{
    Attempt, DirEntry, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile, in_doubt,
};

use halcyon_schema::{ServerName, layout};

use crate::process_fs::no_answer;
use crate::removal::Removal;
use crate::world::World;

/// Between two looks whether a DataNode has thawed.
const LOOK_PAUSE: Duration = Duration::from_millis(5);
/// A writer that waits for a DataNode without a limit takes it for dead after this time.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// A file that should not lie on a DataNode is placed anew so often. In the end it may lie there all the same.
const PLACES_MAX: usize = 8;
/// A change that is done later is done within this time.
const LATE_MAX: Duration = Duration::from_secs(3);

pub(crate) struct ServerFs {
    pub(crate) world: Arc<World>,
    pub(crate) server: ServerName,
}

/// A call between two points at which the turn may pass.
fn stepping<T>(call: impl FnOnce() -> T) -> T {
    SimThreads::step();
    let result = call();
    SimThreads::step();
    result
}

impl ServerFs {
    fn ask<T>(&self, path: &Path, call: impl FnOnce(&SimFileSystem) -> io::Result<T>) -> io::Result<T> {
        self.world.reach_name_node(path)?;
        SimThreads::step();
        if self.world.lock().fault(self.world.rates.name_fault_one_in) {
            return Err(no_answer(path));
        }
        let result = call(&self.world.fs);
        SimThreads::step();
        result
    }

    fn change(
        &self,
        path: &Path,
        call: impl FnOnce(&SimFileSystem) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        self.world.reach_name_node(path)?;
        SimThreads::step();
        let fate = {
            let mut state = self.world.lock();
            if state.fault(self.world.rates.name_fault_one_in) { Some(state.dice.below(3)) } else { None }
        };
        let result = match fate {
            None => call(&self.world.fs),
            Some(0) => Err(no_answer(path)),
            Some(1) => call(&self.world.fs).and(Err(in_doubt(no_answer(path)))),
            Some(_) => {
                self.world.change_late(LATE_MAX, Box::new(call));
                Err(in_doubt(no_answer(path)))
            }
        };
        SimThreads::step();
        result
    }

    /// A change of which an attempt before the one that is answered may be carried out once more, later.
    fn again_later(
        &self,
        path: &Path,
        change: impl Fn(&SimFileSystem) -> io::Result<()> + Clone + Send + 'static,
    ) -> io::Result<()> {
        self.change(path, change.clone())?;
        if self.world.lock().fault(self.world.rates.name_fault_one_in) {
            self.world.change_late(LATE_MAX, Box::new(change));
        }
        Ok(())
    }

    fn written(&self, file: io::Result<Box<dyn WritableFile>>) -> io::Result<Box<dyn WritableFile>> {
        let is_thin = self.world.lock().data_node_down;
        let written = |file| Written { file, world: self.world.clone(), has_failed: false, is_thin };
        file.map(|file| Box::new(written(file)) as Box<dyn WritableFile>)
    }
}

impl FileSystem for ServerFs {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.written(self.ask(path, |fs| fs.create(path)))
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.written(self.ask(path, |fs| fs.create_over(path)))
    }

    fn create_copies(&self, path: &Path, copies: u32) -> io::Result<Box<dyn WritableFile>> {
        self.written(self.ask(path, |fs| fs.create_copies(path, copies)))
    }

    fn create_log(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.written(self.ask(path, |fs| {
            let mut file = fs.create_log(path)?;
            for _ in 0..PLACES_MAX {
                let avoided = self.world.lock().data_node_avoided;
                if avoided.is_none_or(|number| !file.is_on(&[format!("datanode{number}")])) {
                    break;
                }
                drop(file);
                fs.remove_file(path)?;
                file = fs.create_log(path)?;
            }
            Ok(file)
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        let file = self.ask(path, |fs| fs.open(path))?;
        Ok(Arc::new(Readable { file, world: self.world.clone() }))
    }

    fn open_update(&self, path: &Path, len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        self.ask(path, |fs| fs.open_update(path, len))
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (at, bytes) = (path.to_path_buf(), bytes.to_vec());
        self.change(path, move |fs| fs.put_new(&at, &bytes))
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (at, bytes) = (path.to_path_buf(), bytes.to_vec());
        self.change(path, move |fs| fs.replace(&at, &bytes))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.ask(path, |fs| fs.read(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (old, new) = (from.to_path_buf(), to.to_path_buf());
        self.change(from, move |fs| fs.rename(&old, &new))
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (old, new) = (from.to_path_buf(), to.to_path_buf());
        self.change(from, move |fs| fs.rename_over(&old, &new))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let at = path.to_path_buf();
        self.change(path, move |fs| fs.remove_file(&at))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let at = path.to_path_buf();
        self.change(path, move |fs| fs.remove_dir(&at))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let number = self.world.lock().next_id();
        let removal = Removal::of(path, number);
        self.ask(path, |fs| fs.list(path).map(|_| ()))?;
        let step = removal.clone();
        self.change(path, move |fs| step.make_own_dir(fs))?;
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

    /// A server that cannot open regions makes no directory for an opening.
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let is_of_opening =
            path.parent().is_some_and(|parent| parent.file_name().is_some_and(|name| name == ".tmp"));
        let is_system = path.starts_with(layout::namespace_dir(&self.world.root, "hbase"));
        let refuses = self.world.lock().servers.get(&self.server).is_some_and(|server| server.refuses);
        if refuses && is_of_opening && !is_system {
            return Err(io::Error::other("this server opens nothing"));
        }
        let at = path.to_path_buf();
        self.change(path, move |fs| fs.create_dir(&at))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let at = path.to_path_buf();
        self.change(path, move |fs| fs.create_dir_all(&at))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.ask(path, |fs| fs.list(path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.ask(path, |fs| fs.exists(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.ask(path, |fs| fs.sync_dir(path))
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        self.ask(path, |fs| fs.seal(path))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.ask(path, |fs| fs.lock(path))
    }
}

struct Written {
    file: Box<dyn WritableFile>,
    world: Arc<World>,
    /// Then it takes no more bytes.
    has_failed: bool,
    /// It was made while a DataNode was dead.
    is_thin: bool,
}

impl Written {
    fn write(&mut self, call: impl FnOnce(&mut dyn WritableFile) -> io::Result<()>) -> io::Result<()> {
        SimThreads::step();
        self.has_failed |= self.world.lock().fault(self.world.rates.write_fault_one_in);
        let result = match self.has_failed {
            true => Err(no_answer(self.file.path())),
            false => call(&mut *self.file),
        };
        SimThreads::step();
        result
    }
}

impl Written {
    /// A DataNode of the file is frozen.
    fn is_late(&self) -> bool {
        !self.late_machines().is_empty()
    }

    /// False if a DataNode is frozen for longer.
    fn wait_for_thaw(&self, limit: Duration) -> bool {
        let begun_ns = self.world.now_ns();
        while self.is_late() {
            if self.world.now_ns() - begun_ns >= limit.as_nanos() as u64 {
                return false;
            }
            self.world.clock.sleep(LOOK_PAUSE);
        }
        true
    }
}

impl WritableFile for Written {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(|file| file.write_all(bytes))
    }

    fn sync(&mut self) -> io::Result<()> {
        self.wait_for_thaw(WRITE_TIME);
        self.write(|file| file.sync())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait_for_thaw(WRITE_TIME);
        self.write(|file| file.flush())
    }

    fn write_within(&mut self, bytes: &[u8], to_disk: bool, limit: Duration) -> Attempt {
        if !self.is_late() {
            return stepping(|| self.file.write_within(bytes, to_disk, limit));
        }
        if !self.world.rates.waits_within {
            return Attempt::NotMade;
        }
        match self.write(|file| file.write_all(bytes)) {
            Ok(()) => self.wait_within(limit),
            Err(error) => Attempt::Done(Err(error)),
        }
    }

    fn wait_within(&mut self, limit: Duration) -> Attempt {
        if !self.wait_for_thaw(limit) {
            self.world.lock().count("late syncs");
            return Attempt::Late;
        }
        stepping(|| self.file.wait_within(limit))
    }

    fn late_machines(&self) -> Vec<String> {
        self.world.while_frozen(|| self.file.late_machines())
    }

    fn is_on(&self, machines: &[String]) -> bool {
        self.file.is_on(machines)
    }

    fn avoid_late(&mut self) {
        let mut state = self.world.lock();
        state.data_node_avoided = state.data_node_frozen;
    }

    fn check(&mut self) -> io::Result<()> {
        self.file.check()
    }

    fn is_thin(&self) -> bool {
        self.is_thin && !self.world.lock().data_node_down
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        stepping(|| self.file.truncate(len))
    }

    fn close(mut self: Box<Self>) -> io::Result<()> {
        self.wait_for_thaw(WRITE_TIME);
        self.write(|_| Ok(()))?;
        stepping(|| self.file.close())
    }

    fn len_max(&self) -> u64 {
        self.file.len_max()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn path(&self) -> &Path {
        self.file.path()
    }
}

struct Readable {
    file: Arc<dyn ReadableFile>,
    world: Arc<World>,
}

impl ReadableFile for Readable {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        SimThreads::step();
        if self.world.lock().fault(self.world.rates.name_fault_one_in) {
            return Err(no_answer(self.file.path()));
        }
        let result = self.file.read_exact_at(buffer, offset);
        SimThreads::step();
        result
    }

    fn read_resident_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
        self.file.read_resident_at(buffer, offset)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn path(&self) -> &PathBuf {
        self.file.path()
    }
}
