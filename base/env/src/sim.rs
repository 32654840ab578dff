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
//! [`SimFileSystem::hdfs`] is HDFS instead of a local disk, with the same tools. Two servers on it are two users of the same
//! object, and [`SimFileSystem::pause_at`] lets one of them stand still while the other takes over.
//!
//! - `tree.rs`: files, directories and the changes of names that are not yet on the disk
//! - `files.rs`: the calls of a file system; `open_files.rs`: those of its files
//! - `hdfs.rs`: leases, DataNodes, and answers that do not come
//! - `crash.rs`: what is left after a crash
//! - `fault.rs`: operations that fail
//! - `dice.rs`: repeatable random numbers, for this and for tests
//!
//! `threads.rs` is apart from all that: threads that take turns, and time that passes while all of them wait.

mod crash;
mod dice;
mod fault;
mod files;
mod hdfs;
mod open_files;
#[cfg(test)]
mod tests;
pub(crate) mod threads;
mod tree;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

pub use crash::CrashMode;
pub use dice::Dice;
pub use fault::{Fault, Operation};
pub use threads::{Process, SimThreads};

use crate::{Env, FileSystem, ManualClock};
use fault::Faults;
use hdfs::Hdfs;
use tree::{NodeId, Tree};

/// A simulated file system. Clones share it.
///
/// *Thread safety*: any number of threads; each call is one step under one lock.
#[derive(Clone, Default)]
pub struct SimFileSystem {
    state: Arc<Mutex<State>>,
    /// Signalled when a frozen DataNode thaws.
    thawed: Arc<Condvar>,
}

#[derive(Default)]
struct State {
    tree: Tree,
    faults: Faults,
    locked: HashSet<NodeId>,
    sync_points: u64,
    /// Calls of `WritableFile::sync`; those of `flush` are not among them.
    disk_syncs: u64,
    /// The sync point at which the machine dies.
    fail_at: Option<u64>,
    dead: bool,
    /// `None`: a local disk.
    hdfs: Option<Hdfs>,
    calls: u64,
    /// [`WritableFile::len_max`](crate::WritableFile::len_max) of all files.
    len_max: Option<u64>,
    /// What happens before the call of this number.
    pause: Option<(u64, Box<dyn FnOnce() + Send>)>,
}

/// A kind of disk that a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimDisk {
    Local,
    Hdfs,
}

impl SimDisk {
    pub const ALL: [SimDisk; 2] = [SimDisk::Local, SimDisk::Hdfs];

    /// An empty file system of this kind. A local disk has chance in its crashes only.
    pub fn files(self, seed: u64) -> SimFileSystem {
        match self {
            SimDisk::Local => SimFileSystem::new(),
            SimDisk::Hdfs => SimFileSystem::hdfs(seed),
        }
    }
}

impl SimFileSystem {
    /// An empty local disk: a root directory and nothing else.
    pub fn new() -> SimFileSystem {
        SimFileSystem::default()
    }

    /// An empty HDFS. The same seed and the same calls give the same answers.
    pub fn hdfs(seed: u64) -> SimFileSystem {
        let state = State { hdfs: Some(Hdfs::new(seed)), ..State::default() };
        SimFileSystem { state: Arc::new(Mutex::new(state)), thawed: Arc::default() }
    }

    /// This file system for all files, and a clock that stands still until it is moved. Beside HDFS there is an empty
    /// local disk.
    pub fn env(&self) -> Env {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let fs: Arc<dyn FileSystem> = Arc::new(self.clone());
        let is_local = self.state.lock().hdfs.is_none();
        let local = if is_local { fs.clone() } else { Arc::new(SimFileSystem::new()) };
        Env { fs, local, clock, stalls: Arc::default(), keys: Arc::new(crate::Keys::none()) }
    }

    /// How often something was asked to be durable: syncs of files and directories, `put_new`, `replace`, and
    /// each directory made by `create_dir_all`. In HDFS, syncs and ends of files and every change of names.
    pub fn sync_points(&self) -> u64 {
        self.state.lock().sync_points
    }

    /// How often a file was synced to the disk: by `sync`, not by `flush`.
    pub fn disk_syncs(&self) -> u64 {
        self.state.lock().disk_syncs
    }

    /// The storage policy of HDFS that decided where the blocks of a file went, or that decides it for new files of a
    /// directory.
    pub fn storage_policy(&self, path: &Path) -> Option<String> {
        let state = self.state.lock();
        match state.tree.find_file(path) {
            Ok(file) => state.tree.file(file).placed_by.clone(),
            Err(_) => state.tree.storage_policy(path).map(str::to_string),
        }
    }

    /// Likewise the erasure coding policy.
    pub fn erasure_coding(&self, path: &Path) -> Option<String> {
        let state = self.state.lock();
        match state.tree.find_file(path) {
            Ok(file) => state.tree.file(file).coded_by.clone(),
            Err(_) => state.tree.erasure_coding(path).map(str::to_string),
        }
    }

    /// How many copies of a file were asked for when it was created, if that was said.
    pub fn copies(&self, path: &Path) -> Option<u32> {
        let state = self.state.lock();
        state.tree.find_file(path).ok().and_then(|file| state.tree.file(file).copies)
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

    /// Runs `action` once, before the `n`-th call counted from the beginning: its caller stands still meanwhile, as a
    /// server does that is frozen and thaws. The action may use this file system.
    pub fn pause_at(&self, n: u64, action: impl FnOnce() + Send + 'static) {
        self.state.lock().pause = Some((n, Box::new(action)));
    }

    /// No file gets more bytes than that, as a file of one block in HDFS.
    pub fn set_len_max(&self, len_max: u64) {
        self.state.lock().len_max = Some(len_max);
    }

    /// How many calls there were, which [`SimFileSystem::pause_at`] counts.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Takes back all faults and interruptions that have not happened, and disturbs nothing any more.
    pub fn clear_faults(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        if let Some(hdfs) = &mut state.hdfs {
            hdfs.disturb_one_in = None;
        }
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

    /// From now on the NameNode disturbs one call in so many: it refuses it, answers an error to what it has done, or
    /// answers an error and does it later. Only for HDFS.
    pub fn disturb(&self, one_in: usize) {
        self.with_hdfs(|hdfs, _| hdfs.disturb_one_in = Some(one_in));
    }

    /// Carries out the changes that were late. Those of whom another change has taken the ground away come to nothing.
    pub fn deliver_late(&self) {
        self.with_hdfs(|hdfs, tree| hdfs.late.drain(..).for_each(|change| change(tree)));
    }

    /// A DataNode of HDFS (0 to 3) dies, or is there again with what it had.
    pub fn set_data_node(&self, number: usize, is_up: bool) {
        self.with_hdfs(|hdfs, _| hdfs.set_data_node(number, is_up));
    }

    /// A DataNode of HDFS (0 to 3) stands still, and syncs of files that lie on it wait, until it thaws.
    pub fn freeze_data_node(&self, number: usize, is_frozen: bool) {
        self.with_hdfs(|hdfs, _| hdfs.freeze_data_node(number, is_frozen));
        self.thawed.notify_all();
    }

    /// Whether writers of HDFS can stop waiting for late DataNodes. Default: with odd seeds.
    pub fn set_waits_within(&self, waits_within: bool) {
        self.with_hdfs(|hdfs, _| hdfs.waits_within = waits_within);
    }

    /// The DataNodes of a file in HDFS.
    pub fn data_nodes_of(&self, path: &Path) -> io::Result<Vec<usize>> {
        let state = self.state.lock();
        let file = state.tree.file(state.tree.find_file(path)?);
        Ok(file.replicas.as_ref().expect("only HDFS has this").on.to_vec())
    }

    fn with_hdfs(&self, change: impl FnOnce(&mut Hdfs, &mut Tree)) {
        let mut state = self.state.lock();
        let State { hdfs, tree, .. } = &mut *state;
        change(hdfs.as_mut().expect("only HDFS has this"), tree);
        tree.make_all_durable();
    }

    /// What the machine finds when it comes back after a crash now. Open files and locks are gone, and this
    /// file system is dead afterwards. The same seed gives the same end. In HDFS it is the program that died: its open
    /// files are there and wait to be sealed.
    pub fn crash(&self, mode: CrashMode, seed: u64) -> SimFileSystem {
        let mut state = self.state.lock();
        state.dead = true;
        let tree = crash::survivors(&state.tree, mode, seed);
        let hdfs = state.hdfs.as_mut().map(|hdfs| hdfs.after_crash(seed));
        self.thawed.notify_all();
        let state = State { tree, hdfs, ..State::default() };
        SimFileSystem { state: Arc::new(Mutex::new(state)), thawed: Arc::default() }
    }

    /// Every file that running code sees, with its length, sorted: for looking at a failed test.
    pub fn dump(&self) -> Vec<(PathBuf, u64)> {
        self.state.lock().tree.files()
    }

    /// The state, for one call; pauses before it if it is the call's turn.
    fn enter(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.calls += 1;
        if state.pause.as_ref().is_some_and(|(n, _)| *n <= state.calls) {
            let (_, action) = state.pause.take().expect("was just looked at");
            MutexGuard::unlocked(&mut state, action);
        }
        state
    }
}

impl State {
    fn begin(&mut self, operation: Operation, path: &Path) -> io::Result<()> {
        self.check_alive(path)?;
        self.faults.check(operation, path)?;
        self.hdfs.as_mut().map_or(Ok(()), |hdfs| hdfs.disturb_question(path))
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

    fn check_lease(&self, node: NodeId, lease: u64, path: &Path) -> io::Result<()> {
        let hdfs = self.hdfs.as_ref().expect("a file with a lease is in HDFS");
        hdfs.check_lease(&self.tree, node, lease, path)
    }

    /// Bytes of a writer who has lost its file come to nothing.
    fn write(&mut self, node: NodeId, lease: Option<u64>, bytes: &[u8]) {
        let lost = |lease| self.hdfs.as_ref().is_some_and(|hdfs| !hdfs.has_lease(&self.tree, node, lease));
        if !lease.is_some_and(lost) {
            self.tree.write(node, bytes);
        }
    }
}
