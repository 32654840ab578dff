//! What is left after a crash.

use super::dice::Dice;
use super::tree::{Dir, File, Node, NodeId, ROOT, Tree, with_predecessors};

/// What becomes of bytes and names that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashMode {
    /// All gone.
    Drop,
    /// All there: the process died, the machine did not.
    Keep,
    /// Anything, file by file and name by name: cut at any byte, zeros or garbage in place of pages, some
    /// changes of names and not others.
    Torn,
}

impl CrashMode {
    pub const ALL: [CrashMode; 3] = [CrashMode::Drop, CrashMode::Keep, CrashMode::Torn];
}

const PAGE_LEN: usize = 4096;

/// The tree on disk, everything in it synced.
pub(super) fn survivors(tree: &Tree, mode: CrashMode, seed: u64) -> Tree {
    let mut dice = Dice::new(seed);
    let mut on_disk = Tree::default();
    let mut names = NamesOnDisk::choose(tree, mode, &mut dice);
    on_disk.copy_dir(tree, &mut names, ROOT, ROOT, mode, &mut dice);
    on_disk
}

/// The durable names of every directory, with the pending changes that happened to make it.
struct NamesOnDisk(Vec<(NodeId, Vec<(String, NodeId)>)>);

impl NamesOnDisk {
    fn choose(tree: &Tree, mode: CrashMode, dice: &mut Dice) -> NamesOnDisk {
        let mut scratch = Tree::names_only(tree);
        // A journalling file system keeps changes in order; others promise nothing. Half of the crashes each.
        let in_order = dice.below(2) == 0;
        let kept_count = dice.below(tree.pending.len() + 1);
        let kept = with_predecessors(&tree.pending, |at, _| match mode {
            CrashMode::Drop => false,
            CrashMode::Keep => true,
            CrashMode::Torn if in_order => at < kept_count,
            CrashMode::Torn => dice.below(2) == 0,
        });
        for (change, _) in tree.pending.iter().zip(kept).filter(|(_, kept)| *kept) {
            scratch.make_durable(change);
        }
        let mut dirs = Vec::new();
        for (id, node) in &scratch.nodes {
            if let Node::Dir(dir) = node {
                let live = dir.durable.iter().filter_map(|(name, (node, _))| Some((name.clone(), (*node)?)));
                dirs.push((*id, live.collect()));
            }
        }
        dirs.sort();
        NamesOnDisk(dirs)
    }

    fn take(&mut self, dir: NodeId) -> Vec<(String, NodeId)> {
        match self.0.binary_search_by_key(&dir, |(id, _)| *id) {
            Ok(at) => std::mem::take(&mut self.0[at].1),
            Err(_) => Vec::new(),
        }
    }
}

impl Tree {
    /// The durable names alone, without files.
    fn names_only(tree: &Tree) -> Tree {
        let mut copy = Tree::default();
        for (id, node) in &tree.nodes {
            if let Node::Dir(dir) = node {
                let dir = Dir { durable: dir.durable.clone(), ..Dir::default() };
                copy.nodes.insert(*id, Node::Dir(dir));
            }
        }
        copy
    }

    /// Fills directory `to` of this tree with what is left of `from` of the old one. A directory comes along
    /// once, so that a cycle of lost renames ends.
    fn copy_dir(
        &mut self,
        old: &Tree,
        names: &mut NamesOnDisk,
        from: NodeId,
        to: NodeId,
        mode: CrashMode,
        dice: &mut Dice,
    ) {
        for (name, id) in names.take(from) {
            match &old.nodes[&id] {
                Node::File(file) => {
                    let file = file_on_disk(file, mode, dice);
                    self.put_durable(to, name, Node::File(file));
                }
                Node::Dir(dir) => {
                    let (storage_policy, erasure_coding) =
                        (dir.storage_policy.clone(), dir.erasure_coding.clone());
                    let dir = Dir { storage_policy, erasure_coding, ..Dir::default() };
                    let copy = self.put_durable(to, name, Node::Dir(dir));
                    self.copy_dir(old, names, id, copy, mode, dice);
                }
            }
        }
    }
}

fn file_on_disk(file: &File, mode: CrashMode, dice: &mut Dice) -> File {
    if let Some(before) = &file.before_updates {
        let bytes = match mode {
            CrashMode::Drop => before.clone(),
            CrashMode::Keep => file.bytes.clone(),
            CrashMode::Torn => mix(before, &file.bytes, dice),
        };
        return File { synced_len: bytes.len(), bytes, ..File::default() };
    }
    if let Some(replicas) = &file.replicas {
        let len = match mode {
            _ if replicas.lease.is_none() => file.bytes.len(),
            CrashMode::Drop => file.synced_len,
            CrashMode::Keep => file.bytes.len(),
            CrashMode::Torn => dice.between(file.synced_len, file.bytes.len()),
        };
        let bytes = file.bytes[..len].to_vec();
        return File { bytes, synced_len: len, replicas: Some(replicas.clone()), ..File::default() };
    }
    let mut bytes = file.bytes[..file.synced_len].to_vec();
    let unsynced = &file.bytes[file.synced_len..];
    match mode {
        CrashMode::Drop => {}
        // A process's death loses nothing; bytes whose sync failed are in memory still.
        CrashMode::Keep => bytes.extend_from_slice(unsynced),
        CrashMode::Torn => tear(&mut bytes, unsynced, dice),
    }
    let synced_len = bytes.len();
    File { bytes, synced_len, ..File::default() }
}

/// What a power cut may leave of a file that was written to anywhere: each page as it was or as it should be, and
/// of pages that changed some garbage.
fn mix(before: &[u8], after: &[u8], dice: &mut Dice) -> Vec<u8> {
    let len = if dice.below(2) == 0 { before.len() } else { after.len() };
    let page_of = |bytes: &[u8], start: usize, end: usize| {
        let mut page = bytes.get(start..end.min(bytes.len())).unwrap_or_default().to_vec();
        page.resize(end - start, 0);
        page
    };
    let mut bytes = Vec::with_capacity(len);
    for start in (0..len).step_by(PAGE_LEN) {
        let end = len.min(start + PAGE_LEN);
        let (mut old, new) = (page_of(before, start, end), page_of(after, start, end));
        match dice.below(8) {
            _ if old == new => bytes.append(&mut old),
            0..4 => bytes.extend(new),
            4..7 => bytes.append(&mut old),
            _ => bytes.extend(new.iter().map(|_| dice.next_u64() as u8)),
        }
    }
    bytes
}

/// Appends to the synced bytes what a power cut may leave of the others.
fn tear(bytes: &mut Vec<u8>, unsynced: &[u8], dice: &mut Dice) {
    let kept = dice.below(unsynced.len() + 1);
    let begin = bytes.len();
    match dice.below(5) {
        0 => {}
        1 => bytes.extend_from_slice(&unsynced[..kept]),
        2 => {
            // The length reached the disk, the last bytes did not.
            bytes.extend_from_slice(&unsynced[..kept]);
            bytes.resize(begin + unsynced.len(), 0);
        }
        3 => {
            // The last page holds what was there before.
            bytes.extend_from_slice(&unsynced[..kept]);
            let page = begin.max(bytes.len() / PAGE_LEN * PAGE_LEN);
            bytes[page..].iter_mut().for_each(|byte| *byte = dice.next_u64() as u8);
        }
        _ => {
            // Pages are written in any order.
            bytes.extend_from_slice(unsynced);
            for page in begin / PAGE_LEN..=bytes.len() / PAGE_LEN {
                let end = bytes.len().min((page + 1) * PAGE_LEN);
                let lost = begin.max(page * PAGE_LEN)..end;
                if dice.below(2) == 0 && !lost.is_empty() {
                    bytes[lost].fill(0);
                }
            }
        }
    }
}
