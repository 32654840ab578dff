//! HDFS, as far as a program can tell it from a local disk.
//!
//! - **Names.** The NameNode carries out a change at once and durably. A crash of the program is before it or behind it.
//! - **Leases.** Whoever creates a file may add to it until it closes the file, or until somebody seals or removes it.
//!   From then on every write, sync and close of the old writer fails.
//! - **Bytes.** A reader of a file that is not closed sees none of its bytes, or those of the last sync, by chance. After a
//!   seal the file has all synced bytes and of the others a beginning, which may be empty.
//! - **Answers.** A change may be done although its caller gets an error, and it may be done later: see
//!   [`Fault::but_done`](super::Fault::but_done), [`Fault::but_done_later`](super::Fault::but_done_later) and
//!   [`SimFileSystem::disturb`](super::SimFileSystem::disturb).
//! - **DataNodes.** Each file lies on three of four. Its writer fails when one of them is dead, its readers when all of them
//!   are. While one of them is frozen, syncs wait. Files that are created afterwards avoid them, but not always.
//!
//! A writer that has failed takes no more bytes, as in the crate that speaks with a real HDFS.

use std::io;
use std::path::Path;

use super::dice::Dice;
use super::fault::Fate;
use super::tree::{NodeId, Tree, named};
use crate::in_doubt;

pub(super) const DATA_NODES: usize = 4;
const REPLICAS: usize = 3;

/// A change that is carried out later.
pub(super) type LateChange = Box<dyn FnOnce(&mut Tree) + Send>;

/// What a file in HDFS has beside its bytes.
#[derive(Clone)]
pub(super) struct Replicas {
    pub(super) on: [usize; REPLICAS],
    /// Who may add to the file; `None` once it is closed.
    pub(super) lease: Option<u64>,
    /// It has no name any more.
    pub(super) is_removed: bool,
}

/// What the NameNode and the DataNodes know besides the tree.
pub(super) struct Hdfs {
    pub(super) dice: Dice,
    is_up: [bool; DATA_NODES],
    is_frozen: [bool; DATA_NODES],
    /// They were late for a writer, which makes no new files there if it can help it.
    is_blamed: [bool; DATA_NODES],
    /// Writers may stop waiting ([`WritableFile::write_within`](crate::WritableFile::write_within)).
    pub(super) waits_within: bool,
    next_lease: u64,
    /// Requests that have not arrived yet, oldest first.
    pub(super) late: Vec<LateChange>,
    /// One call in so many is disturbed.
    pub(super) disturb_one_in: Option<usize>,
}

impl Replicas {
    /// The file has lost its name.
    pub(super) fn let_go(&mut self) {
        (self.lease, self.is_removed) = (None, true);
    }
}

impl Hdfs {
    pub(super) fn new(seed: u64) -> Hdfs {
        Hdfs {
            dice: Dice::new(seed),
            is_up: [true; DATA_NODES],
            is_frozen: [false; DATA_NODES],
            is_blamed: [false; DATA_NODES],
            waits_within: seed % 2 == 1,
            next_lease: 1,
            late: Vec::new(),
            disturb_one_in: None,
        }
    }

    /// What a program finds that starts after another one died: the same cluster. Requests of the dead one may arrive yet.
    pub(super) fn after_crash(&mut self, seed: u64) -> Hdfs {
        Hdfs {
            is_up: self.is_up,
            next_lease: self.next_lease,
            late: std::mem::take(&mut self.late),
            ..Hdfs::new(seed)
        }
    }

    pub(super) fn set_data_node(&mut self, number: usize, is_up: bool) {
        self.is_up[number] = is_up;
    }

    pub(super) fn freeze_data_node(&mut self, number: usize, is_frozen: bool) {
        self.is_frozen[number] = is_frozen;
    }

    /// Whether a sync of this file gets no answer for now.
    pub(super) fn is_frozen(&self, tree: &Tree, node: NodeId) -> bool {
        let replicas = tree.file(node).replicas.as_ref().expect("a file of HDFS");
        replicas.on.iter().any(|node| self.is_frozen[*node])
    }

    /// The frozen DataNodes of the file, if it has others.
    pub(super) fn late_of(&self, tree: &Tree, node: NodeId) -> Vec<usize> {
        let on = tree.file(node).replicas.as_ref().expect("a file of HDFS").on;
        let frozen: Vec<usize> = on.into_iter().filter(|node| self.is_frozen[*node]).collect();
        if frozen.len() < on.len() { frozen } else { Vec::new() }
    }

    /// They are avoided from now on.
    pub(super) fn avoid_late(&mut self, tree: &Tree, node: NodeId) {
        self.late_of(tree, node).iter().for_each(|node| self.is_blamed[*node] = true);
    }

    /// An error if the writer knows that a DataNode of the file is of no use.
    pub(super) fn check_fit(&self, tree: &Tree, node: NodeId, path: &Path) -> io::Result<()> {
        let on = tree.file(node).replicas.as_ref().expect("a file of HDFS").on;
        match on.iter().find(|node| !self.is_up[**node] || self.is_blamed[**node]) {
            None => Ok(()),
            Some(node) => Err(not_written(path, *node)),
        }
    }

    /// Where a new file lies, with the lease of its writer. The NameNode learns late that a DataNode is gone.
    pub(super) fn place(&mut self) -> Replicas {
        let mut nodes: Vec<usize> = (0..DATA_NODES).collect();
        let mut on = [0; REPLICAS];
        for (at, node) in on.iter_mut().enumerate() {
            let left = DATA_NODES - at;
            let is_well = |at: &usize| self.is_up[nodes[*at]] && !self.is_blamed[nodes[*at]];
            let live: Vec<usize> = (0..left).filter(is_well).collect();
            let knows = !live.is_empty() && (self.is_blamed.contains(&true) || !self.dice.one_in(4));
            let chosen = if knows { self.dice.pick(&live) } else { self.dice.below(left) };
            *node = nodes.remove(chosen);
        }
        self.next_lease += 1;
        Replicas { on, lease: Some(self.next_lease), is_removed: false }
    }

    /// Bytes reach a file when all its DataNodes have them.
    fn check_writable(&self, replicas: &Replicas, path: &Path) -> io::Result<()> {
        match replicas.on.iter().find(|node| !self.is_up[**node]) {
            None => Ok(()),
            Some(node) => Err(not_written(path, *node)),
        }
    }

    fn check_readable(&self, replicas: &Replicas, path: &Path) -> io::Result<()> {
        if replicas.on.iter().any(|node| self.is_up[*node]) {
            Ok(())
        } else {
            Err(not_written(path, replicas.on[0]))
        }
    }

    /// How many of a file's bytes a reader sees who opens it now.
    pub(super) fn visible_len(&mut self, tree: &Tree, node: NodeId) -> usize {
        let file = tree.file(node);
        let is_open = file.replicas.as_ref().is_some_and(|replicas| replicas.lease.is_some());
        match is_open {
            false => file.bytes.len(),
            true if self.dice.one_in(2) => 0,
            true => file.synced_len,
        }
    }

    /// Whether this writer may still add to its file.
    pub(super) fn check_lease(&self, tree: &Tree, node: NodeId, lease: u64, path: &Path) -> io::Result<()> {
        let replicas = tree.file(node).replicas.as_ref().expect("a file of HDFS");
        if replicas.lease != Some(lease) {
            let text =
                format!("{}: its lease is another's, or the file was sealed or removed", path.display());
            return Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, text));
        }
        self.check_writable(replicas, path)
    }

    pub(super) fn check_read(&self, tree: &Tree, node: NodeId, path: &Path) -> io::Result<()> {
        let file = tree.file(node);
        let replicas = file.replicas.as_ref().expect("a file of HDFS");
        if replicas.is_removed {
            return Err(named(io::ErrorKind::NotFound, path));
        }
        if file.bytes.is_empty() { Ok(()) } else { self.check_readable(replicas, path) }
    }

    pub(super) fn has_lease(&self, tree: &Tree, node: NodeId, lease: u64) -> bool {
        tree.file(node).replicas.as_ref().is_some_and(|replicas| replicas.lease == Some(lease))
    }

    /// What becomes of a change of names. Late ones may arrive before it.
    pub(super) fn disturbed(&mut self, tree: &mut Tree, path: &Path) -> io::Result<Fate> {
        let Some(n) = self.disturb_one_in else { return Ok(Fate::Done) };
        if !self.late.is_empty() && self.dice.one_in(4) {
            self.late.remove(0)(tree);
        }
        if !self.dice.one_in(n) {
            return Ok(Fate::Done);
        }
        let error = no_answer(path);
        match self.dice.below(3) {
            0 => Err(error),
            1 => Ok(Fate::AnswerLost(in_doubt(error))),
            _ => Ok(Fate::Late(in_doubt(error))),
        }
    }

    /// A question that is not answered has changed nothing.
    pub(super) fn disturb_question(&mut self, path: &Path) -> io::Result<()> {
        let disturbed = self.disturb_one_in.is_some_and(|n| self.dice.one_in(n));
        if disturbed { Err(no_answer(path)) } else { Ok(()) }
    }

    /// Ends a file whose writer is gone or is not to go on.
    pub(super) fn seal(&mut self, tree: &mut Tree, node: NodeId, path: &Path) -> io::Result<()> {
        let file = tree.file_mut(node);
        let replicas = file.replicas.as_mut().expect("a file of HDFS");
        if replicas.lease.is_none() {
            return Ok(());
        }
        if !file.bytes.is_empty() {
            self.check_readable(replicas, path)?;
        }
        replicas.lease = None;
        let len = self.dice.between(file.synced_len, file.bytes.len());
        file.bytes.truncate(len);
        file.synced_len = file.bytes.len();
        Ok(())
    }
}

fn no_answer(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("{}: the NameNode gave no answer in time", path.display()),
    )
}

fn not_written(path: &Path, data_node: usize) -> io::Error {
    let text = format!("{}: no answer from DataNode {data_node} in time", path.display());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests;
