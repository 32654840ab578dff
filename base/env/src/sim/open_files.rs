//! Open files.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::unsupported;
use super::tree::{self, NodeId};
use super::{Operation, SimFileSystem, State};
use crate::{Attempt, BlockHosts, FileLock, ReadableFile, UpdatableFile, WritableFile};

pub(super) struct SimWritable {
    pub(super) files: SimFileSystem,
    pub(super) node: NodeId,
    pub(super) path: PathBuf,
    /// Without what a failed write left.
    pub(super) len: u64,
    /// In HDFS, what allows to add to the file.
    pub(super) lease: Option<u64>,
    /// In HDFS, something has failed, and the file takes no more bytes.
    pub(super) is_abandoned: bool,
}

pub(super) struct SimReadable {
    pub(super) files: SimFileSystem,
    pub(super) node: NodeId,
    pub(super) path: PathBuf,
    /// In HDFS, as many bytes as there were when it was opened.
    pub(super) visible_len: Option<usize>,
}

pub(super) struct SimLock {
    pub(super) files: SimFileSystem,
    pub(super) node: NodeId,
}

/// The name of a DataNode.
fn machine(node: usize) -> String {
    format!("datanode{node}")
}

impl SimWritable {
    /// After this the file takes no more bytes, if it is in HDFS.
    fn failed(&mut self, error: io::Error) -> io::Error {
        self.is_abandoned = self.lease.is_some();
        error
    }

    fn check_usable(&self) -> io::Result<()> {
        if self.is_abandoned {
            let text = format!("{} takes no more bytes since an earlier error", self.path.display());
            return Err(io::Error::other(text));
        }
        Ok(())
    }

    /// With a limit, `Late` if a DataNode is frozen for so long.
    fn sync_within(&self, limit: Option<Duration>) -> Attempt {
        match self.wait_and_sync(limit) {
            Ok(true) => Attempt::Done(Ok(())),
            Ok(false) => Attempt::Late,
            Err(error) => Attempt::Done(Err(error)),
        }
    }

    fn sync_now(&self) -> io::Result<()> {
        self.wait_and_sync(None).map(|_| ())
    }

    fn wait_and_sync(&self, limit: Option<Duration>) -> io::Result<bool> {
        let mut state = self.files.enter();
        state.check_alive(&self.path)?;
        self.check_usable()?;
        let Some(lease) = self.lease else {
            return state.sync_file(self.node, &self.path).map(|()| true);
        };
        while !state.dead && state.hdfs.as_ref().is_some_and(|hdfs| hdfs.is_frozen(&state.tree, self.node)) {
            match limit {
                None => self.files.thawed.wait(&mut state),
                Some(limit) if self.files.thawed.wait_for(&mut state, limit).timed_out() => return Ok(false),
                Some(_) => {}
            }
        }
        state.check_alive(&self.path)?;
        state.faults.check(Operation::Sync, &self.path)?;
        state.check_lease(self.node, lease, &self.path)?;
        state.sync_point(&self.path)?;
        state.tree.sync_file(self.node);
        Ok(true)
    }

    fn close_now(&self) -> io::Result<()> {
        let mut state = self.files.enter();
        let Some(lease) = self.lease else { return state.begin(Operation::Close, &self.path) };
        state.check_alive(&self.path)?;
        self.check_usable()?;
        state.check_lease(self.node, lease, &self.path)?;
        let failed = state.faults.check(Operation::Close, &self.path);
        let is_done = failed.is_ok() || state.hdfs.as_mut().is_some_and(|hdfs| hdfs.dice.one_in(2));
        state.sync_point(&self.path)?;
        if is_done {
            state.tree.close(self.node);
        }
        failed
    }
}

impl WritableFile for SimWritable {
    fn close(mut self: Box<Self>) -> io::Result<()> {
        let closed = self.close_now();
        self.is_abandoned |= closed.is_err();
        closed
    }

    /// A write that fails leaves the first half of its bytes.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check_usable()?;
        let files = self.files.clone();
        let mut state = files.enter();
        state.check_alive(&self.path)?;
        if state.len_max.is_some_and(|len_max| self.len + bytes.len() as u64 > len_max) {
            let text = format!("{} cannot have {} bytes more", self.path.display(), bytes.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let fault = state.faults.check(Operation::Write, &self.path);
        let written = if fault.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        state.write(self.node, self.lease, written);
        fault.map_err(|error| self.failed(error))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.files.state.lock().disk_syncs += 1;
        self.flush()
    }

    /// What was flushed is on the disks, too: a simulated crash is that of one machine, not of all DataNodes at once.
    fn flush(&mut self) -> io::Result<()> {
        self.sync_now().map_err(|error| self.failed(error))
    }

    fn write_within(&mut self, bytes: &[u8], to_disk: bool, limit: Duration) -> Attempt {
        if !self.files.state.lock().hdfs.as_ref().is_some_and(|hdfs| hdfs.waits_within) {
            return Attempt::NotMade;
        }
        if let Err(error) = self.write_all(bytes) {
            return Attempt::Done(Err(error));
        }
        self.files.state.lock().disk_syncs += u64::from(to_disk);
        self.wait_within(limit)
    }

    fn wait_within(&mut self, limit: Duration) -> Attempt {
        match self.sync_within(Some(limit)) {
            Attempt::Done(result) => Attempt::Done(result.map_err(|error| self.failed(error))),
            other => other,
        }
    }

    fn late_machines(&self) -> Vec<String> {
        let state = self.files.state.lock();
        let late = state.hdfs.as_ref().map(|hdfs| hdfs.late_of(&state.tree, self.node));
        late.unwrap_or_default().iter().map(|node| machine(*node)).collect()
    }

    fn is_on(&self, machines: &[String]) -> bool {
        let state = self.files.state.lock();
        let replicas = state.tree.file(self.node).replicas.as_ref();
        replicas.is_some_and(|replicas| replicas.on.iter().any(|node| machines.contains(&machine(*node))))
    }

    fn avoid_late(&mut self) {
        let mut state = self.files.state.lock();
        let State { tree, hdfs, .. } = &mut *state;
        if let Some(hdfs) = hdfs.as_mut() {
            hdfs.avoid_late(tree, self.node);
        }
    }

    fn check(&mut self) -> io::Result<()> {
        self.check_usable()?;
        let state = self.files.state.lock();
        let Some(hdfs) = state.hdfs.as_ref().filter(|hdfs| hdfs.waits_within) else { return Ok(()) };
        hdfs.check_fit(&state.tree, self.node, &self.path)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.files.enter();
        if self.lease.is_some() {
            return unsupported(&self.path, "a file in HDFS only grows");
        }
        state.begin(Operation::Truncate, &self.path)?;
        state.tree.truncate(self.node, len);
        self.len = len;
        Ok(())
    }

    fn len_max(&self) -> u64 {
        self.files.state.lock().len_max.unwrap_or(u64::MAX)
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

/// A file of HDFS that was not closed is sealed in the background, now or never.
impl Drop for SimWritable {
    fn drop(&mut self) {
        let Some(lease) = self.lease else { return };
        let mut state = self.files.state.lock();
        let State { tree, hdfs, dead, .. } = &mut *state;
        let Some(hdfs) = hdfs.as_mut().filter(|_| !*dead) else { return };
        if hdfs.has_lease(tree, self.node, lease) && hdfs.dice.one_in(2) {
            let _ = hdfs.seal(tree, self.node, &self.path); // else whoever reads it seals it
        }
    }
}

impl ReadableFile for SimReadable {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.files.enter();
        state.begin(Operation::Read, &self.path)?;
        if let Some(hdfs) = &state.hdfs {
            hdfs.check_read(&state.tree, self.node, &self.path)?;
        }
        let bytes = &state.tree.file(self.node).bytes;
        let bytes = &bytes[..self.visible_len.unwrap_or(bytes.len()).min(bytes.len())];
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = begin.checked_add(buffer.len()).and_then(|end| bytes.get(begin..end));
        let found = found.ok_or_else(|| tree::named(io::ErrorKind::UnexpectedEof, &self.path))?;
        buffer.copy_from_slice(found);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.files.enter();
        state.check_alive(&self.path)?;
        Ok(self.visible_len.unwrap_or_else(|| state.tree.file(self.node).bytes.len()) as u64)
    }

    fn path(&self) -> &PathBuf {
        &self.path
    }

    fn block_hosts(&self) -> Option<Vec<BlockHosts>> {
        let state = self.files.state.lock();
        let file = state.tree.file(self.node);
        let hosts = file.replicas.as_ref()?.on.iter().map(|number| format!("data-node-{number}")).collect();
        Some(vec![BlockHosts { len_bytes: file.bytes.len() as u64, hosts }])
    }
}

impl UpdatableFile for SimReadable {
    /// A write that fails leaves the first half of its bytes; one beyond the end makes the file longer.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.files.enter();
        state.check_alive(&self.path)?;
        let fault = state.faults.check(Operation::Write, &self.path);
        let written = if fault.is_ok() { bytes } else { &bytes[..bytes.len() / 2] };
        state.tree.write_at(self.node, written, offset as usize);
        fault
    }

    fn sync(&self) -> io::Result<()> {
        self.files.enter().sync_file(self.node, &self.path)
    }
}

impl FileLock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.files.state.lock().locked.remove(&self.node);
    }
}
