//! The calls of a file system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fault::Fate;
use super::hdfs::Hdfs;
use super::open_files::{SimLock, SimReadable, SimWritable};
use super::tree::{self, Tree};
use super::{Operation, SimFileSystem, State};
use crate::{DirEntry, ErasureCoding, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile};

pub(super) fn unsupported<T>(path: &Path, why: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("{}: {why}", path.display())))
}

pub(super) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn rename(tree: &mut Tree, from: &Path, to: &Path, over: bool) -> io::Result<()> {
    // What is below itself is refused for that, whether it is there or not.
    if !over && tree.find(from).is_ok() && tree.find(to).is_ok() {
        return Err(tree::named(io::ErrorKind::AlreadyExists, to));
    }
    tree.rename(from, to)
}

impl State {
    /// Carries out a change of names, or what a fault makes of it.
    fn change(
        &mut self,
        operation: Operation,
        path: &Path,
        apply: impl FnOnce(&mut Tree) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        self.check_alive(path)?;
        let mut fate = self.faults.fate(operation, path)?;
        if let (Fate::Done, Some(hdfs)) = (&fate, &mut self.hdfs) {
            fate = hdfs.disturbed(&mut self.tree, path)?;
        }
        match fate {
            Fate::Done => self.apply(path, apply),
            Fate::AnswerLost(error) => self.apply(path, apply).and(Err(error)),
            Fate::Late(error) => {
                let hdfs = self.hdfs.as_mut().expect("a local disk does nothing late");
                hdfs.late.push(Box::new(move |tree: &mut Tree| drop(apply(tree)))); // nobody waits for the answer
                Err(error)
            }
        }
    }

    /// In HDFS a change is durable at once, and the machine may die before it or behind it.
    fn apply(&mut self, path: &Path, apply: impl FnOnce(&mut Tree) -> io::Result<()>) -> io::Result<()> {
        let Some(hdfs) = &mut self.hdfs else { return apply(&mut self.tree) };
        self.sync_points += 1;
        self.dead = self.fail_at == Some(self.sync_points);
        let done = if self.dead && hdfs.dice.one_in(2) { Ok(()) } else { apply(&mut self.tree) };
        self.tree.make_all_durable();
        self.check_alive(path).and(done)
    }

    fn rename(&mut self, from: &Path, to: &Path, over: bool) -> io::Result<()> {
        let (source, target) = (from.to_path_buf(), to.to_path_buf());
        self.change(Operation::Rename, from, move |tree| rename(tree, &source, &target, over))
    }

    /// A file with these bytes. On a local disk the name comes with the last sync; in HDFS the bytes are written under
    /// another name first, which a crash may leave.
    fn put(&mut self, path: &Path, bytes: &[u8], over: bool) -> io::Result<()> {
        if self.hdfs.is_some() {
            return self.put_by_rename(path, bytes, over);
        }
        self.begin(Operation::Put, path)?;
        if !over && self.tree.find(path).is_ok() {
            return Err(tree::named(io::ErrorKind::AlreadyExists, path));
        }
        let node = self.tree.create(path)?;
        self.tree.write(node, bytes);
        self.tree.sync_file(node);
        self.sync_point(path)?;
        self.tree.sync_dir(parent(path))
    }

    fn put_by_rename(&mut self, path: &Path, bytes: &[u8], over: bool) -> io::Result<()> {
        self.check_alive(path)?;
        let mut replicas = self.hdfs.as_mut().expect("only for HDFS").place();
        let number = replicas.lease.take().unwrap_or_default();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{number}.tmp"));
        let (source, target) = (temporary.clone(), path.to_path_buf());
        self.apply(path, |tree| {
            let node = tree.create(&source)?;
            tree.write(node, bytes);
            tree.sync_file(node);
            tree.file_mut(node).replicas = Some(replicas);
            Ok(())
        })?;
        let renamed = self.change(Operation::Put, path, move |tree| rename(tree, &source, &target, over));
        if renamed.is_err() && !self.dead {
            let _ = self.tree.remove(&temporary); // it may be renamed
            self.tree.make_all_durable();
        }
        renamed
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = self.tree.list(path)?;
        entries.iter().try_for_each(|entry| self.faults.check_entry(&path.join(&entry.name)))?;
        if let Some(hdfs) = &mut self.hdfs {
            for entry in entries.iter_mut().filter(|entry| !entry.is_dir) {
                let node = self.tree.find_file(&path.join(&entry.name))?;
                entry.len = hdfs.visible_len(&self.tree, node) as u64;
            }
        }
        Ok(entries)
    }

    fn make_dirs(&mut self, path: &Path) -> io::Result<()> {
        if self.tree.find_dir(path).is_ok() {
            return self.begin(Operation::Exists, path);
        }
        let target = path.to_path_buf();
        self.change(Operation::Create, path, move |tree| {
            let missing = target.ancestors().take_while(|above| tree.find(above).is_err());
            let missing: Vec<PathBuf> = missing.map(Path::to_path_buf).collect();
            missing.iter().rev().try_for_each(|above| tree.create_dir(above).map(|_| ()))?;
            tree.find_dir(&target).map(|_| ())
        })
    }
}

impl SimFileSystem {
    fn create_file(&self, path: &Path, over: bool, copies: Option<u32>) -> io::Result<Box<dyn WritableFile>> {
        let mut state = self.enter();
        let replicas = state.hdfs.as_mut().map(Hdfs::place);
        let lease = replicas.as_ref().and_then(|replicas| replicas.lease);
        let name = path.to_path_buf();
        state.change(Operation::Create, path, move |tree| {
            if !over && tree.find(&name).is_ok() {
                return Err(tree::named(io::ErrorKind::AlreadyExists, &name));
            }
            let placed_by = tree.storage_policy(parent(&name)).map(str::to_string);
            let coded_by = tree.erasure_coding(parent(&name)).map(str::to_string);
            let node = tree.create(&name)?;
            let file = tree.file_mut(node);
            (file.replicas, file.placed_by, file.coded_by, file.copies) =
                (replicas, placed_by, coded_by, copies);
            Ok(())
        })?;
        let node = state.tree.find_file(path)?;
        let (files, path) = (self.clone(), path.to_path_buf());
        Ok(Box::new(SimWritable { files, node, path, len: 0, lease, is_abandoned: false }))
    }
}

impl FileSystem for SimFileSystem {
    fn create(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.create_file(path, false, None)
    }

    fn create_copies(&self, path: &Path, copies: u32) -> io::Result<Box<dyn WritableFile>> {
        self.create_file(path, false, Some(copies))
    }

    fn create_over(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.create_file(path, true, None)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadableFile>> {
        let mut state = self.enter();
        state.begin(Operation::Open, path)?;
        let State { tree, hdfs, .. } = &mut *state;
        let node = tree.find_file(path)?;
        let visible_len = hdfs.as_mut().map(|hdfs| hdfs.visible_len(tree, node));
        Ok(Arc::new(SimReadable { files: self.clone(), node, path: path.to_path_buf(), visible_len }))
    }

    fn open_up_to(&self, path: &Path, len: u64) -> io::Result<Arc<dyn ReadableFile>> {
        let mut state = self.enter();
        state.begin(Operation::Open, path)?;
        let node = state.tree.find_file(path)?;
        let synced_len = state.tree.file(node).synced_len;
        let visible_len =
            state.hdfs.is_some().then(|| usize::try_from(len).map_or(synced_len, |len| len.min(synced_len)));
        Ok(Arc::new(SimReadable { files: self.clone(), node, path: path.to_path_buf(), visible_len }))
    }

    fn open_update(&self, path: &Path, len: u64) -> io::Result<Arc<dyn UpdatableFile>> {
        let mut state = self.enter();
        if state.hdfs.is_some() {
            return unsupported(path, "a file in HDFS cannot be written in place");
        }
        state.begin(Operation::Open, path)?;
        let node = match state.tree.find_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => state.tree.create(path)?,
            found => found?,
        };
        let len = usize::try_from(len).map_err(|_| tree::named(io::ErrorKind::StorageFull, path))?;
        state.tree.set_len(node, len);
        Ok(Arc::new(SimReadable { files: self.clone(), node, path: path.to_path_buf(), visible_len: None }))
    }

    fn put_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.enter().put(path, bytes, false)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.enter().put(path, bytes, true)
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.enter();
        state.begin(Operation::Read, path)?;
        let State { tree, hdfs, .. } = &mut *state;
        let node = tree.find_file(path)?;
        let Some(hdfs) = hdfs else { return Ok(tree.file(node).bytes.clone()) };
        hdfs.check_read(tree, node, path)?;
        let len = hdfs.visible_len(tree, node);
        Ok(tree.file(node).bytes[..len].to_vec())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter().rename(from, to, false)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.enter().rename(from, to, true)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let name = path.to_path_buf();
        self.enter().change(Operation::Remove, path, move |tree| {
            tree.find_file(&name)?;
            tree.remove(&name)
        })
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let name = path.to_path_buf();
        self.enter().change(Operation::Remove, path, move |tree| {
            let node = tree.find_dir(&name)?;
            if !tree.dir(node).names.is_empty() {
                return Err(tree::named(io::ErrorKind::DirectoryNotEmpty, &name));
            }
            tree.remove(&name)
        })
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let name = path.to_path_buf();
        self.enter().change(Operation::Remove, path, move |tree| {
            tree.find_dir(&name)?;
            tree.remove(&name)
        })
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let name = path.to_path_buf();
        self.enter().change(Operation::Create, path, move |tree| tree.create_dir(&name).map(|_| ()))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.enter();
        state.check_alive(path)?;
        if state.hdfs.is_some() {
            return state.make_dirs(path);
        }
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
        let mut state = self.enter();
        state.begin(Operation::List, path)?;
        state.list(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.enter();
        state.begin(Operation::Exists, path)?;
        Ok(state.tree.find(path).is_ok())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.enter();
        if state.hdfs.is_some() {
            return state.check_alive(path);
        }
        state.begin(Operation::SyncDir, path)?;
        state.tree.find_dir(path)?;
        state.sync_point(path)?;
        state.tree.sync_dir(path)
    }

    fn seal(&self, path: &Path) -> io::Result<()> {
        let mut state = self.enter();
        state.begin(Operation::Seal, path)?;
        let node = state.tree.find_file(path)?;
        if state.hdfs.is_some() {
            state.sync_point(path)?;
        }
        let State { tree, hdfs, .. } = &mut *state;
        hdfs.as_mut().map_or(Ok(()), |hdfs| hdfs.seal(tree, node, path))
    }

    fn set_storage_policy(&self, directory: &Path, policy: &str) -> io::Result<()> {
        if !self.is_remote() {
            return Ok(());
        }
        let (name, policy) = (directory.to_path_buf(), policy.to_string());
        self.enter().change(Operation::SetStoragePolicy, directory, move |tree| {
            let node = tree.find_dir(&name)?;
            tree.dir_mut(node).storage_policy = Some(policy);
            Ok(())
        })
    }

    fn erasure_codings(&self) -> io::Result<Vec<ErasureCoding>> {
        if !self.is_remote() {
            return unsupported(Path::new("/"), "erasure coding is only available in HDFS");
        }
        self.enter().begin(Operation::Exists, Path::new("/"))?;
        let known = [("RS-3-2-1024k", "ENABLED"), ("RS-6-3-1024k", "DISABLED"), ("XOR-2-1-1024k", "ENABLED")];
        let coding = |(name, state): (&str, &str)| ErasureCoding {
            name: name.to_string(),
            state: state.to_string(),
            is_writable: name.starts_with("RS-"),
        };
        Ok(known.into_iter().map(coding).collect())
    }

    fn set_erasure_coding(&self, directory: &Path, policy: Option<&str>) -> io::Result<()> {
        if !self.is_remote() {
            return unsupported(directory, "erasure coding is only available in HDFS");
        }
        let (name, policy) = (directory.to_path_buf(), policy.map(str::to_string));
        self.enter().change(Operation::SetErasureCoding, directory, move |tree| {
            let node = tree.find_dir(&name)?;
            tree.dir_mut(node).erasure_coding = policy;
            Ok(())
        })
    }

    fn is_remote(&self) -> bool {
        self.state.lock().hdfs.is_some()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let mut state = self.enter();
        if state.hdfs.is_some() {
            return unsupported(path, "HDFS has no lock that its holder cannot lose unnoticed");
        }
        state.check_alive(path)?;
        let node = match state.tree.find_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => state.tree.create(path)?,
            found => found?,
        };
        if !state.locked.insert(node) {
            return Err(tree::named(io::ErrorKind::WouldBlock, path));
        }
        Ok(Box::new(SimLock { files: self.clone(), node }))
    }
}
