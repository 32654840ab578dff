//! Files, directories, and the changes of names that are not yet on the disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use super::hdfs::Replicas;
use crate::DirEntry;

pub(super) type NodeId = u64;

pub(super) const ROOT: NodeId = 0;

/// Where a name stands.
pub(super) type Slot = (NodeId, String);

pub(super) enum Node {
    File(File),
    Dir(Dir),
}

#[derive(Clone, Default)]
pub(super) struct File {
    /// Grows at its end, and loses at most what was not synced, unless it was opened for updates; a file that is
    /// created anew is another node.
    pub(super) bytes: Vec<u8>,
    pub(super) synced_len: usize,
    /// A sync has failed: nothing more reaches the disk.
    pub(super) lost: bool,
    /// What was synced last, of a file that was opened for updates: any of its bytes may have changed since.
    pub(super) before_updates: Option<Vec<u8>>,
    /// Where it is in HDFS.
    pub(super) replicas: Option<Replicas>,
    /// The storage policy that was in force when the file was created: it decides where the blocks go.
    pub(super) placed_by: Option<String>,
    /// Likewise the erasure coding policy.
    pub(super) coded_by: Option<String>,
    /// Asked for at its creation.
    pub(super) copies: Option<u32>,
}

#[derive(Default)]
pub(super) struct Dir {
    pub(super) names: BTreeMap<String, NodeId>,
    /// What the disk holds; `None` for a name that was removed. The number is that of the last change, so that
    /// a change that becomes durable late does not undo a newer one.
    pub(super) durable: BTreeMap<String, (Option<NodeId>, u64)>,
    /// Of HDFS, if it was set for this directory itself.
    pub(super) storage_policy: Option<String>,
    /// Likewise.
    pub(super) erasure_coding: Option<String>,
}

/// One change of names, atomic: a node vanishes from one slot, appears in another, or both.
pub(super) struct Change {
    number: u64,
    pub(super) node: NodeId,
    removed: Option<Slot>,
    added: Option<Slot>,
    /// Directories that must still be synced for it to be durable.
    unsynced_dirs: Vec<NodeId>,
}

pub(super) struct Tree {
    pub(super) nodes: HashMap<NodeId, Node>,
    /// In the order they were made.
    pub(super) pending: Vec<Change>,
    next_node: NodeId,
    next_change: u64,
}

impl Default for Tree {
    fn default() -> Tree {
        let nodes = HashMap::from([(ROOT, Node::Dir(Dir::default()))]);
        Tree { nodes, pending: Vec::new(), next_node: ROOT + 1, next_change: 1 }
    }
}

pub(super) fn named(kind: io::ErrorKind, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{}: {kind}", path.display()))
}

/// Which changes are chosen, when a chosen one brings along the earlier ones of the same node: a node that was
/// renamed twice is never found under its first name and its last.
pub(super) fn with_predecessors(
    changes: &[Change],
    mut chosen: impl FnMut(usize, &Change) -> bool,
) -> Vec<bool> {
    let mut nodes = HashSet::new();
    let mut out: Vec<bool> = changes
        .iter()
        .enumerate()
        .rev()
        .map(|(at, change)| {
            let taken = nodes.contains(&change.node) || chosen(at, change);
            if taken {
                nodes.insert(change.node);
            }
            taken
        })
        .collect();
    out.reverse();
    out
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(named(io::ErrorKind::InvalidInput, path));
            }
        }
    }
    Ok(names)
}

impl Tree {
    pub(super) fn find(&self, path: &Path) -> io::Result<NodeId> {
        let mut at = ROOT;
        for name in names(path)? {
            let Node::Dir(dir) = &self.nodes[&at] else {
                return Err(named(io::ErrorKind::NotADirectory, path));
            };
            at = *dir.names.get(&name).ok_or_else(|| named(io::ErrorKind::NotFound, path))?;
        }
        Ok(at)
    }

    /// The storage policy of the nearest directory that has one, from `path` upwards.
    pub(super) fn storage_policy(&self, path: &Path) -> Option<&str> {
        self.nearest(path, |dir| dir.storage_policy.as_deref())
    }

    /// Likewise.
    pub(super) fn erasure_coding(&self, path: &Path) -> Option<&str> {
        self.nearest(path, |dir| dir.erasure_coding.as_deref())
    }

    fn nearest<'a>(&'a self, path: &Path, policy: impl Fn(&'a Dir) -> Option<&'a str>) -> Option<&'a str> {
        path.ancestors().find_map(|above| match self.find(above).map(|node| &self.nodes[&node]) {
            Ok(Node::Dir(dir)) => policy(dir),
            _ => None,
        })
    }

    pub(super) fn find_file(&self, path: &Path) -> io::Result<NodeId> {
        let id = self.find(path)?;
        match &self.nodes[&id] {
            Node::File(_) => Ok(id),
            Node::Dir(_) => Err(named(io::ErrorKind::IsADirectory, path)),
        }
    }

    pub(super) fn find_dir(&self, path: &Path) -> io::Result<NodeId> {
        let id = self.find(path)?;
        match &self.nodes[&id] {
            Node::Dir(_) => Ok(id),
            Node::File(_) => Err(named(io::ErrorKind::NotADirectory, path)),
        }
    }

    /// Makes an empty file; one of that name is let go.
    pub(super) fn create(&mut self, path: &Path) -> io::Result<NodeId> {
        let slot = self.slot(path)?;
        if self.find_dir(path).is_ok() {
            return Err(named(io::ErrorKind::IsADirectory, path));
        }
        self.let_go(path);
        Ok(self.add(slot, Node::File(File::default())))
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<NodeId> {
        let slot = self.slot(path)?;
        if self.find(path).is_ok() {
            return Err(named(io::ErrorKind::AlreadyExists, path));
        }
        Ok(self.add(slot, Node::Dir(Dir::default())))
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let id = self.find(from)?;
        let (old, new) = (self.slot(from)?, self.slot(to)?);
        if old == new {
            return Ok(());
        }
        if names(to)?.starts_with(&names(from)?) {
            return Err(named(io::ErrorKind::InvalidInput, to));
        }
        if let Ok(target) = self.find(to) {
            match (&self.nodes[&id], &self.nodes[&target]) {
                (Node::File(_), Node::File(_)) => {}
                (Node::Dir(_), Node::Dir(dir)) if dir.names.is_empty() => {}
                (Node::Dir(_), Node::Dir(_)) => return Err(named(io::ErrorKind::DirectoryNotEmpty, to)),
                (Node::File(_), Node::Dir(_)) => return Err(named(io::ErrorKind::IsADirectory, to)),
                (Node::Dir(_), Node::File(_)) => return Err(named(io::ErrorKind::NotADirectory, to)),
            }
        }
        self.let_go(to);
        self.change(id, Some(old), Some(new));
        Ok(())
    }

    /// Takes a name away, with all below it.
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (id, slot) = (self.find(path)?, self.slot(path)?);
        self.let_go(path);
        self.change(id, Some(slot), None);
        Ok(())
    }

    /// In HDFS, files that lose their name can neither be read nor written any more.
    fn let_go(&mut self, path: &Path) {
        let mut left: Vec<NodeId> = self.find(path).into_iter().collect();
        while let Some(id) = left.pop() {
            match self.nodes.get_mut(&id).expect("a name's node is there") {
                Node::Dir(dir) => left.extend(dir.names.values()),
                Node::File(file) => file.replicas.iter_mut().for_each(Replicas::let_go),
            }
        }
    }

    /// Ends a file of HDFS.
    pub(super) fn close(&mut self, id: NodeId) {
        if let Some(replicas) = &mut self.file_mut(id).replicas {
            replicas.lease = None;
        }
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let id = self.find_dir(path)?;
        let entry = |(name, id): (&String, &NodeId)| match &self.nodes[id] {
            Node::File(file) => DirEntry { name: name.clone(), is_dir: false, len: file.bytes.len() as u64 },
            Node::Dir(_) => DirEntry { name: name.clone(), is_dir: true, len: 0 },
        };
        Ok(self.dir(id).names.iter().map(entry).collect())
    }

    pub(super) fn files(&self) -> Vec<(PathBuf, u64)> {
        let mut out = Vec::new();
        let mut dirs = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, id)) = dirs.pop() {
            for (name, id) in &self.dir(id).names {
                match &self.nodes[id] {
                    Node::File(file) => out.push((path.join(name), file.bytes.len() as u64)),
                    Node::Dir(_) => dirs.push((path.join(name), *id)),
                }
            }
        }
        out.sort();
        out
    }

    pub(super) fn file(&self, id: NodeId) -> &File {
        match &self.nodes[&id] {
            Node::File(file) => file,
            Node::Dir(_) => unreachable!("handles are made for files only"),
        }
    }

    pub(super) fn write(&mut self, id: NodeId, bytes: &[u8]) {
        self.file_mut(id).bytes.extend_from_slice(bytes);
    }

    /// What was synced stays on the disk until the cut is synced, too; a log that grows again from there overwrites it,
    /// which is not played: nobody cuts below what was synced.
    pub(super) fn truncate(&mut self, id: NodeId, len: u64) {
        let file = self.file_mut(id);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        assert!(len >= file.synced_len, "a cut below what was synced is not simulated");
        file.bytes.truncate(len);
    }

    /// Opens a file for updates.
    pub(super) fn set_len(&mut self, id: NodeId, len: usize) {
        let file = self.file_mut(id);
        if file.before_updates.is_none() {
            file.before_updates = Some(file.bytes[..file.synced_len].to_vec());
        }
        file.bytes.resize(len, 0);
    }

    pub(super) fn write_at(&mut self, id: NodeId, bytes: &[u8], offset: usize) {
        let file = self.file_mut(id);
        let end = offset + bytes.len();
        if file.bytes.len() < end {
            file.bytes.resize(end, 0);
        }
        file.bytes[offset..end].copy_from_slice(bytes);
    }

    pub(super) fn sync_file(&mut self, id: NodeId) {
        let file = self.file_mut(id);
        if !file.lost {
            file.synced_len = file.bytes.len();
            if let Some(before) = &mut file.before_updates {
                before.clone_from(&file.bytes);
            }
        }
    }

    pub(super) fn lose_unsynced(&mut self, id: NodeId) {
        let file = self.file_mut(id);
        let changed = file.before_updates.as_ref().is_some_and(|before| *before != file.bytes);
        file.lost = changed || file.bytes.len() > file.synced_len;
    }

    /// Brings the changes of a directory's names to the disk; a rename waits for its other directory.
    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let id = self.find_dir(path)?;
        for change in &mut self.pending {
            change.unsynced_dirs.retain(|dir| *dir != id);
        }
        let durable = with_predecessors(&self.pending, |_, change| change.unsynced_dirs.is_empty());
        for (change, durable) in std::mem::take(&mut self.pending).into_iter().zip(durable) {
            if durable {
                self.make_durable(&change);
            } else {
                self.pending.push(change);
            }
        }
        Ok(())
    }

    /// All names reach the disk.
    pub(super) fn make_all_durable(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            self.make_durable(&change);
        }
    }

    pub(super) fn make_durable(&mut self, change: &Change) {
        let removed = change.removed.iter().map(|slot| (slot, None));
        let added = change.added.iter().map(|slot| (slot, Some(change.node)));
        for ((dir, name), id) in removed.chain(added) {
            let durable = &mut self.dir_mut(*dir).durable;
            if durable.get(name).is_none_or(|(_, number)| *number < change.number) {
                durable.insert(name.clone(), (id, change.number));
            }
        }
    }

    /// Parent directory and name of a path that may not exist yet.
    fn slot(&self, path: &Path) -> io::Result<Slot> {
        let name = names(path)?.pop().ok_or_else(|| named(io::ErrorKind::InvalidInput, path))?;
        let dir = self.find_dir(super::files::parent(path))?;
        Ok((dir, name))
    }

    fn add(&mut self, slot: Slot, node: Node) -> NodeId {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        self.change(id, None, Some(slot));
        id
    }

    /// A node whose name is on the disk.
    pub(super) fn put_durable(&mut self, dir: NodeId, name: String, node: Node) -> NodeId {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        let dir = self.dir_mut(dir);
        dir.names.insert(name.clone(), id);
        dir.durable.insert(name, (Some(id), 0));
        id
    }

    fn change(&mut self, node: NodeId, removed: Option<Slot>, added: Option<Slot>) {
        let mut unsynced_dirs = Vec::new();
        if let Some((dir, name)) = &removed {
            self.dir_mut(*dir).names.remove(name);
            unsynced_dirs.push(*dir);
        }
        if let Some((dir, name)) = &added {
            self.dir_mut(*dir).names.insert(name.clone(), node);
            unsynced_dirs.push(*dir);
        }
        let number = self.next_change;
        self.next_change += 1;
        self.pending.push(Change { number, node, removed, added, unsynced_dirs });
    }

    pub(super) fn dir(&self, id: NodeId) -> &Dir {
        match &self.nodes[&id] {
            Node::Dir(dir) => dir,
            Node::File(_) => unreachable!("was looked up as a directory"),
        }
    }

    pub(super) fn dir_mut(&mut self, id: NodeId) -> &mut Dir {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir(dir)) => dir,
            _ => unreachable!("was looked up as a directory"),
        }
    }

    pub(super) fn file_mut(&mut self, id: NodeId) -> &mut File {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => file,
            _ => unreachable!("handles are made for files only"),
        }
    }
}
