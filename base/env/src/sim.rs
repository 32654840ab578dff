//! A file system in memory that forgets what was not synced, and fails when told to.
//!
//! [`SimFileSystem`] keeps two truths: what running code sees, and what the disk holds. A file's bytes reach
//! the disk with [`WritableFile::sync`], a name with [`FileSystem::sync_dir`] of its directory (of both
//! directories after a rename). [`SimFileSystem::crash`] makes the file system that the machine finds when it
//! comes back: what was on the disk for certain, and of the rest as much as [`CrashMode`] and a seed say.
//!
//! A crash test runs a script once to count its [`SimFileSystem::sync_points`], then once more for each of
//! them with [`SimFileSystem::fail_at`], which lets the machine die there; then it crashes in every mode and
//! looks at what recovery finds. Faults of single operations are [`SimFileSystem::inject`]ed.
//!
//! - `tree.rs`: files, directories and the changes of names that are not yet on the disk
//! - `crash.rs`: what is left after a crash
//! - `fault.rs`: operations that fail
//! - `dice.rs`: repeatable random numbers, for this and for tests

mod crash;
mod dice;
mod fault;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use crash::CrashMode;
pub use dice::Dice;
pub use fault::{Fault, Operation};

use crate::{DirEntry, Env, FileLock, FileSystem, ManualClock, ReadableFile, UpdatableFile, WritableFile};
use fault::Faults;
use tree::{NodeId, Tree};

/// A simulated file system. Clones share it.
///
/// *Thread safety*: any number of threads; each call is one step under one lock.
#[derive(Clone, Default)]
pub struct SimFileSystem {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    tree: Tree,
    faults: Faults,
    locked: HashSet<NodeId>,
    sync_points: u64,
    /// The sync point at which the machine dies.
    fail_at: Option<u64>,
    dead: bool,
}

struct SimWritable {
    state: Arc<Mutex<State>>,
    node: NodeId,
    path: PathBuf,
    /// Without what a failed write left.
    len: u64,
}

struct SimReadable {
    state: Arc<Mutex<State>>,
    node: NodeId,
    path: PathBuf,
}

struct SimLock {
    state: Arc<Mutex<State>>,
    node: NodeId,
}

impl SimFileSystem {
    /// An empty file system: a root directory and nothing else.
    pub fn new() -> SimFileSystem {
        SimFileSystem::default()
    }

    /// This file system for all files, and a clock that stands still until it is moved.
    pub fn env(&self) -> Env {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let fs: Arc<dyn FileSystem> = Arc::new(self.clone());
        Env { fs: fs.clone(), local: fs, clock, stalls: Arc::default() }
    }

    /// How often something was asked to be durable: syncs of files and directories, `put_new`, `replace`, and
    /// each directory made by `create_dir_all`.
    pub fn sync_points(&self) -> u64 {
        self.state.lock().sync_points
    }

    /// Lets the machine die at the `n`-th sync point counted from the beginning (1 is the first): that call
    /// and every later operation fail, and what it should have made durable is in doubt.
    pub fn fail_at(&self, n: u64) {
        self.state.lock().fail_at = Some(n);
    }

    /// Whether the machine has died.
    pub fn is_dead(&self) -> bool {
        self.state.lock().dead
    }

    /// Makes an operation fail; several faults may wait at once.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.add(fault);
    }

    /// Runs `action` once, before the next such operation on a path that contains `path_part`: what another thread
    /// does at that moment. It must not use this file system, whose lock is held meanwhile.
    pub fn interrupt(&self, operation: Operation, path_part: &str, action: impl FnOnce() + Send + 'static) {
        self.state.lock().faults.interrupt(operation, path_part, Box::new(action));
    }

    /// Takes back all faults and interruptions that have not happened.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// How many operations failed by an injected fault. A test asserts it, so that a fault that never came true does
    /// not look like one that was survived.
    pub fn faults_hit(&self) -> u64 {
        self.state.lock().faults.hit
    }

    /// How many operations there were that a fault could have hit.
    pub fn operations(&self) -> u64 {
        self.state.lock().faults.count
    }

    /// What the machine finds when it comes back after a crash now. Open files and locks are gone, and this
    /// file system is dead afterwards. The same seed gives the same end.
    pub fn crash(&self, mode: CrashMode, seed: u64) -> SimFileSystem {
        let mut state = self.state.lock();
        state.dead = true;
        let tree = crash::survivors(&state.tree, mode, seed);
        SimFileSystem { state: Arc::new(Mutex::new(State { tree, ..State::default() })) }
    }

    /// Every file that running code sees, with its length, sorted: for looking at a failed test.
    pub fn dump(&self) -> Vec<(PathBuf, u64)> {
        self.state.lock().tree.files()
    }
}

impl State {
    fn begin(&mut self, operation: Operation, path: &Path) -> io::Result<()> {
        self.check_alive(path)?;
        self.faults.check(operation, path)
    }

    fn check_alive(&self, path: &Path) -> io::Result<()> {
        if self.dead {
            return Err(io::Error::other(format!("{}: the machine is dead", path.display())));
        }
        Ok(())
    }

    /// Counts a sync point; fails if the machine dies at this one.
    fn sync_point(&mut self, path: &Path) -> io::Result<()> {
        self.sync_points += 1;
        if self.fail_at == Some(self.sync_points) {
            self.dead = true;
        }
        self.check_alive(path)
    }

    /// After a sync that failed the bytes that it was about never reach the disk, whatever later syncs say:
    /// so it is with Linux, which forgets that such pages are dirty.
    fn sync_file(&mut self, node: NodeId, path: &Path) -> io::Result<()> {
        self.check_alive(path)?;
        if let Err(error) = self.faults.check(Operation::Sync, path) {
            self.tree.lose_unsynced(node);
            return Err(error);
        }
        self.sync_point(path)?;
        self.tree.sync_file(node);
        Ok(())
    }

    fn rename(&mut self, from: &Path, to: &Path, over: bool) -> io::Result<()> {
        self.check_alive(from)?;
        let lost = self.faults.check_answer(Operation::Rename, from)?;
        // What is below itself is refused for that, whether it is there or not.
        if !over && self.tree.find(from).is_ok() && self.tree.find(to).is_ok() {
            return Err(tree::named(io::ErrorKind::AlreadyExists, to));
        }
        self.tree.rename(from, to)?;
        lost.map_or(Ok(()), Err)
    }

    fn put_whole(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let node = self.tree.create(path)?;
        self.tree.write(node, bytes);
        self.tree.sync_file(node);
        self.sync_point(path)?;
        self.tree.sync_dir(parent(path))
    }
}

impl FileSystem for SimFileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let mut state = self.state.lock();
        state.begin(Operation::Create, path)?;
        if state.tree.find(path).is_ok() {
            return Err(tree::named(io::ErrorKind::AlreadyExists, path));
        }
        let node = state.tree.create(path)?;
        Ok(Box::new(SimWritable { state: self.state.clone(), node, path: path.to_path_buf(), len: 0 }))
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let mut state = self.state.lock();
        state.begin(Operation::Create, path)?;
        let node = state.tree.create(path)?;
        Ok(Box::new(SimWritable { state: self.state.clone(), node, path: path.to_path_buf(), len: 0 }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        let mut state = self.state.lock();
        state.begin(Operation::Open, path)?;
        let node = state.tree.find_file(path)?;
        Ok(Arc::new(SimReadable { state: self.state.clone(), node, path: path.to_path_buf() }))
    }

    fn open_update(&self, path: &Path, len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        let mut state = self.state.lock();
        state.begin(Operation::Open, path)?;
        let node = match state.tree.find_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => state.tree.create(path)?,
            found => found?,
        };
        let len = usize::try_from(len).map_err(|_| tree::named(io::ErrorKind::StorageFull, path))?;
        state.tree.set_len(node, len);
        Ok(Arc::new(SimReadable { state: self.state.clone(), node, path: path.to_path_buf() }))
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(Operation::Put, path)?;
        if state.tree.find(path).is_ok() {
            return Err(tree::named(io::ErrorKind::AlreadyExists, path));
        }
        state.put_whole(path, bytes)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(Operation::Put, path)?;
        state.put_whole(path, bytes)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        state.begin(Operation::Read, path)?;
        let node = state.tree.find_file(path)?;
        Ok(state.tree.bytes(node).to_vec())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state.lock().rename(from, to, false)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.state.lock().rename(from, to, true)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(Operation::Remove, path)?;
        state.tree.find_file(path)?;
        state.tree.remove(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(Operation::Remove, path)?;
        state.tree.find_dir(path)?;
        state.tree.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(Operation::Create, path)?;
        state.tree.create_dir(path).map(|_| ())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_alive(path)?;
        let missing: Vec<&Path> =
            path.ancestors().take_while(|above| state.tree.find(above).is_err()).collect();
        for above in missing.into_iter().rev() {
            state.begin(Operation::Create, above)?;
            state.tree.create_dir(above)?;
            state.sync_point(above)?;
            state.tree.sync_dir(parent(above))?;
        }
        state.tree.find_dir(path).map(|_| ())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.state.lock();
        state.begin(Operation::List, path)?;
        state.tree.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.state.lock();
        state.begin(Operation::Exists, path)?;
        Ok(state.tree.find(path).is_ok())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(Operation::SyncDir, path)?;
        state.tree.find_dir(path)?;
        state.sync_point(path)?;
        state.tree.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut state = self.state.lock();
        state.check_alive(path)?;
        let node = match state.tree.find_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => state.tree.create(path)?,
            found => found?,
        };
        if !state.locked.insert(node) {
            return Err(tree::named(io::ErrorKind::WouldBlock, path));
        }
        Ok(Box::new(SimLock { state: self.state.clone(), node }))
    }
}

impl WritableFile for SimWritable {
    fn close(self: Box<Self>) -> io::Result<()> {
        self.state.lock().begin(Operation::Close, &self.path)
    }

    /// A write that fails leaves the first half of its bytes.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_alive(&self.path)?;
        let fault = state.faults.check(Operation::Write, &self.path);
        let written = if fault.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        state.tree.write(self.node, written);
        fault?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.state.lock().sync_file(self.node, &self.path)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(Operation::Truncate, &self.path)?;
        state.tree.truncate(self.node, len);
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

impl ReadableFile for SimReadable {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.begin(Operation::Read, &self.path)?;
        let bytes = state.tree.bytes(self.node);
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = begin.checked_add(buffer.len()).and_then(|end| bytes.get(begin..end));
        let found = found.ok_or_else(|| tree::named(io::ErrorKind::UnexpectedEof, &self.path))?;
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.state.lock();
        state.check_alive(&self.path)?;
        Ok(state.tree.bytes(self.node).len() as u64)
    }

    fn path(&self) -> &PathBuf {
        &self.path
    }
}

impl UpdatableFile for SimReadable {
    /// A write that fails leaves the first half of its bytes; one beyond the end makes the file longer.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_alive(&self.path)?;
        let fault = state.faults.check(Operation::Write, &self.path);
        let written = if fault.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        state.tree.write_at(self.node, written, offset as usize);
        fault
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.sync_file(self.node, &self.path)
    }
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.state.lock().locked.remove(&self.node);
    }
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}
