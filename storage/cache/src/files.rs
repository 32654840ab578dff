//! Files whose blocks are cached: what tells one from another, and which of their blocks are where.
//!
//! A key holds a number, which is short; a file is known by what it is ([`FileIdentity`]), which does not change when
//! the file is moved, closed and opened again, or met in the next life of the process. Numbers are given out once, so
//! that a block of a file that is gone can never be taken for another file's. A file is forgotten when nobody has it
//! open and none of its blocks is left.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use halcyon_env::{Mutex, invariant};

use crate::{BlockKey, BlockOffset, FileId};

/// What tells a file from all others, now and after a restart. Two files of one identity have the same blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The file's name without its directory: HBase's names of HFiles are random.
    pub name: Box<str>,
    /// Bytes of the file.
    pub len: u64,
    /// Made of what the file says of its content, in case that a name is used twice.
    pub stamp: u64,
}

impl FileIdentity {
    /// The identity in eight bytes (FNV-1a), for the record of a block on the disk.
    pub(crate) fn tag(&self) -> u64 {
        let parts = [self.name.as_bytes(), &self.len.to_be_bytes(), &self.stamp.to_be_bytes()];
        let bytes = parts.iter().flat_map(|part| part.iter());
        bytes
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
    }
}

/// A file that is open, or of which blocks are left.
pub(crate) struct KnownFile {
    pub number: FileId,
    pub identity: FileIdentity,
    pub tag: u64,
    /// Nobody will ask for its blocks any more: none is taken in.
    gone: AtomicBool,
}

impl KnownFile {
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }
}

struct Entry {
    file: Arc<KnownFile>,
    /// Where it was when it was opened last.
    path: PathBuf,
    open_count: usize,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Files {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    by_identity: HashMap<FileIdentity, FileId>,
    by_number: BTreeMap<FileId, Entry>,
    last_number: FileId,
}

impl Files {
    /// The file of this identity, open once more. One that is not known gets a number.
    pub fn open(&self, identity: FileIdentity, path: &Path) -> Arc<KnownFile> {
        let mut state = self.state.lock();
        let entry = state.entry(identity, path);
        entry.open_count += 1;
        if entry.path != path {
            entry.path = path.to_path_buf();
        }
        entry.file.clone()
    }

    /// As `open`, of a file that is only known from an earlier life.
    pub fn remember(&self, identity: FileIdentity, path: &Path) -> Arc<KnownFile> {
        self.state.lock().entry(identity, path).file.clone()
    }

    /// Takes back one `open`. Ask `forget_unused` afterwards.
    pub fn close(&self, number: FileId) {
        if let Some(entry) = self.state.lock().by_number.get_mut(&number) {
            let open_count = entry.open_count.checked_sub(1);
            entry.open_count = open_count.expect("a file is closed as often as it was opened");
        }
    }

    /// Forgets a file that is not open, unless it `has_blocks`.
    pub fn forget_unused(&self, number: FileId, has_blocks: impl FnOnce() -> bool) {
        let mut state = self.state.lock();
        let unused = state.by_number.get(&number).is_some_and(|entry| entry.open_count == 0);
        if unused && !has_blocks() {
            state.remove(number);
        }
    }

    pub fn get(&self, number: FileId) -> Option<Arc<KnownFile>> {
        self.state.lock().by_number.get(&number).map(|entry| entry.file.clone())
    }

    /// Says that nobody will ask for blocks of the file any more, unless it is open more than `open_max` times: the
    /// same file may be in several places (a table that was cloned). Returns whether it was retired. Who opens a file
    /// of that identity later gets another number.
    pub fn retire(&self, number: FileId, open_max: usize) -> bool {
        let mut state = self.state.lock();
        let unused = state.by_number.get(&number).is_some_and(|entry| entry.open_count <= open_max);
        if unused {
            state.retire(number);
        }
        unused
    }

    /// Files that are not open, with their paths: of at most `count_max` files behind number `after`. Beside them the
    /// number to go on behind, `None` at the end.
    pub fn closed_after(&self, after: FileId, count_max: usize) -> (Vec<(FileId, PathBuf)>, Option<FileId>) {
        let state = self.state.lock();
        let looked_at: Vec<_> =
            state.by_number.range((Bound::Excluded(after), Bound::Unbounded)).take(count_max).collect();
        let next = (looked_at.len() == count_max).then(|| *looked_at[count_max - 1].0);
        let closed = looked_at.into_iter().filter(|(_, entry)| entry.open_count == 0);
        (closed.map(|(number, entry)| (*number, entry.path.clone())).collect(), next)
    }

    /// All that are not gone, with their paths.
    pub fn all(&self) -> Vec<(Arc<KnownFile>, PathBuf)> {
        let state = self.state.lock();
        let entries = state.by_number.values().filter(|entry| !entry.file.is_gone());
        entries.map(|entry| (entry.file.clone(), entry.path.clone())).collect()
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.state.lock().by_number.len()
    }
}

impl State {
    fn entry(&mut self, identity: FileIdentity, path: &Path) -> &mut Entry {
        let number = match self.by_identity.get(&identity) {
            Some(number) => *number,
            None => {
                self.last_number = self.last_number.next();
                let last = self.by_number.last_key_value().map_or(FileId::ZERO, |(number, _)| *number);
                assert!(
                    self.last_number > last,
                    "numbers are given out once: {} after {last}",
                    self.last_number
                );
                self.by_identity.insert(identity.clone(), self.last_number);
                self.last_number
            }
        };
        let entry = self.by_number.entry(number).or_insert_with(|| {
            let (tag, gone) = (identity.tag(), AtomicBool::new(false));
            let file = Arc::new(KnownFile { number, identity: identity.clone(), tag, gone });
            Entry { file, path: path.to_path_buf(), open_count: 0 }
        });
        assert!(
            entry.file.identity == identity && !entry.file.is_gone(),
            "number {number} is of {:?}; blocks of it would be taken for those of {identity:?}",
            entry.file.identity
        );
        entry
    }

    fn retire(&mut self, number: FileId) {
        if let Some(entry) = self.by_number.get(&number) {
            entry.file.gone.store(true, Ordering::Release);
            self.unname(number);
        }
    }

    fn remove(&mut self, number: FileId) {
        self.unname(number);
        let removed = self.by_number.remove(&number);
        assert!(
            removed.is_none_or(|entry| entry.open_count == 0),
            "file {number} is forgotten while it is open: its blocks would never be evicted"
        );
        invariant!(
            self.by_identity.values().all(|number| self.by_number.contains_key(number)),
            "a name leads to a number that is known: {number} is forgotten, and would be given to two files"
        );
    }

    fn unname(&mut self, number: FileId) {
        if let Some(entry) = self.by_number.get(&number)
            && self.by_identity.get(&entry.file.identity) == Some(&number)
        {
            self.by_identity.remove(&entry.file.identity);
        }
    }
}

/// Which blocks of a file are in one tier, so that dropping a file need not walk the tier. A file's lock is held while
/// one of its blocks enters the tier or leaves it on purpose, so that the two never disagree for long.
#[derive(Default)]
pub(crate) struct FileBlocks {
    tables: [Mutex<HashMap<FileId, HashSet<BlockOffset>>>; TABLES_COUNT],
}

const TABLES_COUNT: usize = 16;

impl FileBlocks {
    /// Adds a block while `put` puts it into the tier.
    pub fn add<T>(&self, key: BlockKey, put: impl FnOnce() -> T) -> T {
        let mut table = self.table(key.file).lock();
        table.entry(key.file).or_default().insert(key.offset);
        put()
    }

    /// Removes a block while `check` says that it is not in the tier (any more). Returns whether it was the file's
    /// last one.
    pub fn remove(&self, key: BlockKey, check: impl FnOnce() -> bool) -> bool {
        let mut table = self.table(key.file).lock();
        if !check() {
            return false;
        }
        let Some(offsets) = table.get_mut(&key.file) else { return true };
        offsets.remove(&key.offset);
        let last = offsets.is_empty();
        if last {
            table.remove(&key.file);
        }
        last
    }

    pub fn take(&self, file: FileId) -> HashSet<BlockOffset> {
        self.table(file).lock().remove(&file).unwrap_or_default()
    }

    pub fn has(&self, file: FileId) -> bool {
        self.table(file).lock().contains_key(&file)
    }

    pub fn offsets(&self, file: FileId) -> Vec<BlockOffset> {
        let table = self.table(file).lock();
        table.get(&file).map_or(Vec::new(), |offsets| offsets.iter().copied().collect())
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.tables.iter().map(|table| table.lock().values().map(HashSet::len).sum::<usize>()).sum()
    }

    fn table(&self, file: FileId) -> &Mutex<HashMap<FileId, HashSet<BlockOffset>>> {
        &self.tables[file.get() as usize % TABLES_COUNT]
    }
}

/// All that is known of files, shared by the tiers.
#[derive(Default)]
pub(crate) struct Registry {
    pub files: Files,
    pub in_memory: FileBlocks,
    pub in_file: FileBlocks,
}

impl Registry {
    /// A block leaves the memory tier, or has left it; `check` as in [`FileBlocks::remove`].
    pub fn left_memory(&self, key: BlockKey, check: impl FnOnce() -> bool) {
        if self.in_memory.remove(key, check) {
            self.forget_unused(key.file);
        }
    }

    /// As `left_memory`, of the file tier.
    pub fn left_file(&self, key: BlockKey, check: impl FnOnce() -> bool) {
        if self.in_file.remove(key, check) {
            self.forget_unused(key.file);
        }
    }

    pub fn forget_unused(&self, file: FileId) {
        self.files.forget_unused(file, || self.in_memory.has(file) || self.in_file.has(file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str) -> FileIdentity {
        FileIdentity { name: name.into(), len: 10, stamp: 1 }
    }

    #[test]
    fn a_file_keeps_its_number_while_it_is_known() {
        let files = Files::default();
        let first = files.open(identity("a"), Path::new("/t/a"));
        let again = files.open(identity("a"), Path::new("/archive/a"));
        assert_eq!(first.number, again.number);
        let other = files.open(FileIdentity { stamp: 2, ..identity("a") }, Path::new("/t/a"));
        assert_ne!(first.number, other.number);
        files.close(first.number);
        files.forget_unused(first.number, || false);
        assert_eq!(files.count(), 2, "it is open still");
        files.close(first.number);
        files.forget_unused(first.number, || true);
        assert_eq!(files.open(identity("a"), Path::new("/t/a")).number, first.number, "it had blocks");
        files.close(first.number);
        files.forget_unused(first.number, || false);
        assert_ne!(files.open(identity("a"), Path::new("/t/a")).number, first.number);
    }

    #[test]
    fn a_retired_file_is_not_found_again() {
        let files = Files::default();
        let old = files.open(identity("a"), Path::new("/t/a"));
        let elsewhere = files.open(identity("a"), Path::new("/clone/a"));
        assert!(!files.retire(old.number, 0) && !files.retire(old.number, 1), "it is open twice");
        files.close(elsewhere.number);
        assert!(files.retire(old.number, 1));
        assert!(old.is_gone());
        let new = files.open(identity("a"), Path::new("/t/a"));
        assert!(new.number != old.number && !new.is_gone());
        files.close(old.number);
        files.forget_unused(old.number, || false);
        assert_eq!(files.open(identity("a"), Path::new("/t/a")).number, new.number);
    }

    #[test]
    fn closed_files_are_listed_in_portions() {
        let files = Files::default();
        let numbers: Vec<FileId> =
            (0..10).map(|at| files.open(identity(&at.to_string()), Path::new("/f")).number).collect();
        numbers[3..].iter().for_each(|number| files.close(*number));
        let (first, next) = files.closed_after(FileId::ZERO, 5);
        assert_eq!((first.len(), next), (2, Some(numbers[4])));
        let (rest, next) = files.closed_after(numbers[4], 100);
        assert_eq!((rest.len(), next), (5, None));
    }
}
