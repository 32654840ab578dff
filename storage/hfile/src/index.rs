//! Reading the block index: which block may hold a key.
//!
//! ```text
//! root:   ( int64 offset | int32 on-disk size | VInt key length | key )*   count stands elsewhere
//! others: int32 n | n * int32 entry offset | int32 entries size | ( int64 offset | int32 on-disk size | key )*
//! ```
//!
//! The root is in memory. Levels below are blocks, found in the cache or read; the one above the data blocks
//! is the leaf level. An entry's key is not behind the first key below it, and behind all keys before it.

use std::cmp::Ordering;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cache::{Block, BlockKind, BlockOffset};
use halcyon_cell::{CellComparator, Error, KeyRef, Result};
use halcyon_env::invariant;

use crate::block_writer::BlockPlace;
use crate::format::Reader;
use crate::read_mode::ReadMode;

/// What index keys are and how they sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    /// Cell keys.
    Cells(CellComparator),
    /// Plain bytes (rows in a bloom filter, names of meta blocks).
    Bytes,
}

impl KeyOrder {
    /// Compares two checked keys.
    pub(crate) fn compare(self, left: &[u8], right: &[u8]) -> Ordering {
        match self {
            KeyOrder::Bytes => left.cmp(right),
            KeyOrder::Cells(c) => c.compare_keys(KeyRef::trusted(left), KeyRef::trusted(right)),
        }
    }
}

/// A root index: few entries, decoded once.
pub(crate) struct RootIndex {
    bytes: Bytes,
    entries: Box<[RootEntry]>,
    /// Where the entries end in the payload they were parsed from.
    pub(crate) end: usize,
}

struct RootEntry {
    place: BlockPlace,
    key_start: u32,
    key_end: u32,
}

impl RootIndex {
    /// Parses `count` entries from position `start` of `payload`.
    pub(crate) fn parse(payload: &Bytes, start: usize, count: u32, order: KeyOrder) -> Result<RootIndex> {
        let mut reader = Reader::new(payload);
        reader.take(start, "what stands before the index")?;
        let mut entries = Vec::with_capacity((count as usize).min(reader.left() / 13));
        for _ in 0..count {
            let place = read_place(&mut reader)?;
            let key = reader.vint_bytes("index key")?;
            check_key(key, order)?;
            let key_end = reader.at() as u32;
            entries.push(RootEntry { place, key_start: key_end - key.len() as u32, key_end });
        }
        Ok(RootIndex { bytes: payload.clone(), entries: entries.into(), end: reader.at() })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let entry = &self.entries[at];
        &self.bytes[entry.key_start as usize..entry.key_end as usize]
    }

    pub(crate) fn place(&self, at: usize) -> BlockPlace {
        self.entries[at].place
    }

    /// The payload that it was parsed from.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.entries)
    }

    /// Number of leading entries whose key satisfies `holds`, which must hold for a run from the first on.
    pub(crate) fn count_while(&self, holds: impl Fn(&[u8]) -> bool) -> usize {
        count_while(self.len(), |at| holds(self.key(at)))
    }
}

/// A view of a checked leaf or intermediate block.
struct Node<'a> {
    bytes: &'a [u8],
    count: usize,
    entries: usize,
}

impl<'a> Node<'a> {
    fn new(bytes: &'a [u8]) -> Node<'a> {
        let count = read_u32(bytes, 0);
        Node { bytes, count, entries: 4 + 4 * (count + 1) }
    }

    fn entry(&self, at: usize) -> &'a [u8] {
        invariant!(
            at < self.count,
            "entry {at} of {}: what is behind the last offset is no entry",
            self.count
        );
        let start = read_u32(self.bytes, 4 + 4 * at);
        let end = read_u32(self.bytes, 8 + 4 * at);
        &self.bytes[self.entries + start..self.entries + end]
    }

    fn key(&self, at: usize) -> &'a [u8] {
        &self.entry(at)[12..]
    }

    fn place(&self, at: usize) -> BlockPlace {
        let entry = self.entry(at);
        let offset = BlockOffset::new(u64::from_be_bytes(entry[..8].try_into().expect("eight bytes")));
        BlockPlace { offset, on_disk_len: read_u32(entry, 8) as u32 }
    }
}

/// Checks a leaf or intermediate block so that [`Node`] may trust it.
pub(crate) fn check_node(bytes: &[u8], comparator: CellComparator) -> Result<()> {
    let mut reader = Reader::new(bytes);
    let count = reader.count("index entry count")? as usize;
    if count == 0 || count > reader.left() / 16 {
        return Err(Error::corrupt(format!(
            "index entry count: expected 1 to {}, found {count}",
            reader.left() / 16
        )));
    }
    let entries = 4 + 4 * (count + 1);
    let mut start = reader.count("index entry offset")? as usize;
    if start != 0 {
        return Err(Error::corrupt(format!("first index entry offset: expected 0, found {start}")));
    }
    for at in 0..count {
        let end = reader.count("index entry offset")? as usize;
        if end < start + 12 || entries + end > bytes.len() {
            return Err(Error::corrupt(format!(
                "index entry {at}: expected bytes within {}, found {start} to {end}",
                bytes.len() - entries
            )));
        }
        check_place(&bytes[entries + start..])?;
        check_key(&bytes[entries + start + 12..entries + end], KeyOrder::Cells(comparator))?;
        start = end;
    }
    Ok(())
}

/// Reads all entries of a checked block.
#[cfg(test)]
pub(crate) fn read_all_entries(bytes: &[u8]) {
    let node = Node::new(bytes);
    for at in 0..node.count {
        let key = KeyRef::trusted(node.key(at));
        let _ = (node.place(at), key.row(), key.family(), key.qualifier(), key.timestamp());
    }
}

fn check_place(bytes: &[u8]) -> Result<()> {
    read_place(&mut Reader::new(bytes)).map(|_| ())
}

fn read_place(reader: &mut Reader<'_>) -> Result<BlockPlace> {
    let offset = reader.i64("index block offset")?;
    let offset = u64::try_from(offset)
        .map_err(|_| Error::corrupt(format!("index block offset: expected a position, found {offset}")))?;
    Ok(BlockPlace { offset: BlockOffset::new(offset), on_disk_len: reader.count("index block size")? })
}

fn check_key(key: &[u8], order: KeyOrder) -> Result<()> {
    match order {
        KeyOrder::Bytes => Ok(()),
        KeyOrder::Cells(_) => KeyRef::parse(key).map(|_| ()).map_err(|e| e.context("index key")),
    }
}

fn read_u32(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn count_while(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    invariant!(
        (low == 0 || holds(low - 1)) && (low == count || !holds(low)),
        "entry {low} of {count} is the first for which it does not hold"
    );
    low
}

/// The key of one entry of a checked leaf block; the entry number comes from the file.
pub(crate) fn leaf_key(block: &Block, at: u32) -> Result<KeyRef<'_>> {
    let node = Node::new(block.bytes());
    if at as usize >= node.count {
        return Err(Error::corrupt(format!("entry: expected one of {}, found {at}", node.count)));
    }
    Ok(KeyRef::trusted(node.key(at as usize)))
}

/// What a search in an index needs of its file.
pub(crate) trait BlockLoader {
    fn shape(&self) -> IndexShape<'_>;

    /// A checked leaf or intermediate block.
    fn load_index_block(&self, place: BlockPlace, kind: BlockKind, mode: ReadMode) -> Result<Arc<Block>>;

    /// For errors.
    fn path(&self) -> &Path;
}

/// The part of an index that is in memory as long as its file is open.
#[derive(Clone, Copy)]
pub(crate) struct IndexShape<'a> {
    pub(crate) root: &'a RootIndex,
    /// The root included.
    pub(crate) levels: usize,
    pub(crate) comparator: CellComparator,
}

/// A position among a file's data blocks: the way from the root to a leaf entry.
#[derive(Default)]
pub(crate) struct IndexCursor {
    /// One step per level, the root's first. Empty when the cursor stands nowhere.
    path: Vec<Step>,
}

struct Step {
    /// `None` for the root.
    node: Option<Arc<Block>>,
    at: usize,
    count: usize,
}

impl Step {
    fn place(&self, root: &RootIndex) -> BlockPlace {
        match &self.node {
            None => root.place(self.at),
            Some(block) => Node::new(block.bytes()).place(self.at),
        }
    }
}

/// Where to go below a node.
enum Way<'a> {
    First,
    Last,
    /// To the last entry whose key satisfies this, or to the first if none does.
    LastWhere(&'a dyn Fn(KeyRef<'_>) -> bool),
}

impl IndexCursor {
    /// Forgets the position and lets go of index blocks.
    pub(crate) fn clear(&mut self) {
        self.path.clear();
    }

    /// Goes to the one block that may hold `key` or, if it does not, ends just before where it would be.
    /// `false` if the file has no blocks.
    pub(crate) fn seek(&mut self, file: &impl BlockLoader, key: KeyRef<'_>, mode: ReadMode) -> Result<bool> {
        let comparator = file.shape().comparator;
        self.descend(file, mode, &Way::LastWhere(&|k| comparator.compare_keys(k, key).is_le()))
    }

    /// Goes to the last block whose index key is before `key`: it holds the last cell before `key`, unless
    /// its own cells all lie behind; then the block before does.
    pub(crate) fn seek_before(
        &mut self,
        file: &impl BlockLoader,
        key: KeyRef<'_>,
        mode: ReadMode,
    ) -> Result<bool> {
        let comparator = file.shape().comparator;
        self.descend(file, mode, &Way::LastWhere(&|k| comparator.compare_keys(k, key).is_lt()))
    }

    pub(crate) fn seek_to_first(&mut self, file: &impl BlockLoader, mode: ReadMode) -> Result<bool> {
        self.descend(file, mode, &Way::First)
    }

    pub(crate) fn seek_to_last(&mut self, file: &impl BlockLoader, mode: ReadMode) -> Result<bool> {
        self.descend(file, mode, &Way::Last)
    }

    /// The data block under the cursor, which must stand somewhere.
    pub(crate) fn place(&self, file: &impl BlockLoader) -> BlockPlace {
        assert!(
            self.path.len() == file.shape().levels,
            "only an entry of the lowest of {} levels leads to a data block, not one of level {}",
            file.shape().levels,
            self.path.len()
        );
        self.path.last().expect("the cursor stands on a block").place(file.shape().root)
    }

    /// The index key of the block under the cursor.
    pub(crate) fn key(&self, file: &impl BlockLoader) -> Vec<u8> {
        let step = self.path.last().expect("the cursor stands on a block");
        match &step.node {
            None => file.shape().root.key(step.at).to_vec(),
            Some(block) => Node::new(block.bytes()).key(step.at).to_vec(),
        }
    }

    /// Goes to the next data block; `false`, and nowhere, if there is none.
    pub(crate) fn next(&mut self, file: &impl BlockLoader, mode: ReadMode) -> Result<bool> {
        let Some(from) = self.path.last().map(|step| step.place(file.shape().root)) else { return Ok(false) };
        while let Some(step) = self.path.last_mut() {
            if step.at + 1 < step.count {
                step.at += 1;
                self.descend_from(file, mode, &Way::First)?;
                let to = self.place(file);
                return self.check_order(file, from, to).map(|()| true);
            }
            self.path.pop();
        }
        Ok(false)
    }

    /// Goes to the previous data block; `false`, and nowhere, if there is none.
    pub(crate) fn previous(&mut self, file: &impl BlockLoader, mode: ReadMode) -> Result<bool> {
        let Some(from) = self.path.last().map(|step| step.place(file.shape().root)) else { return Ok(false) };
        while let Some(step) = self.path.last_mut() {
            if step.at > 0 {
                step.at -= 1;
                self.descend_from(file, mode, &Way::Last)?;
                let to = self.place(file);
                return self.check_order(file, to, from).map(|()| true);
            }
            self.path.pop();
        }
        Ok(false)
    }

    /// Data blocks lie in a file in the order of their keys. An index that says otherwise could lead in circles.
    fn check_order(&mut self, file: &impl BlockLoader, first: BlockPlace, second: BlockPlace) -> Result<()> {
        if first.offset < second.offset {
            return Ok(());
        }
        self.path.clear();
        let message = format!("index: expected a block behind {}, found {}", first.offset, second.offset);
        Err(Error::corrupt(message).context(file.path().display()))
    }

    fn descend(&mut self, file: &impl BlockLoader, mode: ReadMode, way: &Way<'_>) -> Result<bool> {
        self.path.clear();
        let root = file.shape().root;
        if root.len() == 0 {
            return Ok(false);
        }
        let at = choose(root.len(), |at| root.key(at), way);
        self.path.push(Step { node: None, at, count: root.len() });
        self.descend_from(file, mode, way)?;
        Ok(true)
    }

    /// Adds the levels that are missing below the last step.
    fn descend_from(&mut self, file: &impl BlockLoader, mode: ReadMode, way: &Way<'_>) -> Result<()> {
        let levels = file.shape().levels;
        while self.path.len() < levels {
            let place = self.path.last().expect("the root is there").place(file.shape().root);
            let is_leaf = self.path.len() + 1 == levels;
            let kind = if is_leaf { BlockKind::LeafIndex } else { BlockKind::IntermediateIndex };
            let loaded = file.load_index_block(place, kind, mode);
            let block = loaded.inspect_err(|_| self.path.clear())?;
            assert!(block.kind() == kind, "a {kind:?} block was asked for, found {:?}", block.kind());
            let node = Node::new(block.bytes());
            let (count, at) = (node.count, choose(node.count, |at| node.key(at), way));
            self.path.push(Step { node: Some(block), at, count });
        }
        Ok(())
    }
}

fn choose<'k>(count: usize, key: impl Fn(usize) -> &'k [u8], way: &Way<'_>) -> usize {
    assert!(count > 0, "a checked index block has an entry, and a root without one is not searched");
    match way {
        Way::First => 0,
        Way::Last => count - 1,
        Way::LastWhere(holds) => {
            let before = count_while(count, |at| holds(KeyRef::trusted(key(at))));
            before.saturating_sub(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halcyon_cell::{CellType, Key};

    fn key(row: &[u8]) -> Vec<u8> {
        Key::new(row, b"f", b"q", 1, CellType::Put).into_bytes()
    }

    fn node_of(keys: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = crate::index_writer::Chunk::default();
        for (at, key) in keys.iter().enumerate() {
            writer.add(key, BlockPlace { offset: BlockOffset::new(at as u64 * 100), on_disk_len: 100 }, 0);
        }
        let mut out = Vec::new();
        writer.write_non_root(&mut out);
        out
    }

    #[test]
    fn nodes_come_back() {
        let keys: Vec<_> = [&b"a"[..], b"bb", b"c"].iter().map(|row| key(row)).collect();
        let bytes = node_of(&keys);
        check_node(&bytes, CellComparator::Default).unwrap();
        let node = Node::new(&bytes);
        for (at, key) in keys.iter().enumerate() {
            assert_eq!(node.key(at), &key[..]);
            assert_eq!(
                node.place(at),
                BlockPlace { offset: BlockOffset::new(at as u64 * 100), on_disk_len: 100 }
            );
        }
    }

    #[test]
    fn damaged_nodes_are_refused_or_readable() {
        let bytes = node_of(&[key(b"a"), key(b"bb"), key(b"c")]);
        for at in 0..bytes.len() {
            assert!(check_node(&bytes[..at], CellComparator::Default).is_err());
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                if check_node(&bad, CellComparator::Default).is_ok() {
                    read_all_entries(&bad);
                }
            }
        }
    }

    /// An index of three levels without a file: two intermediate blocks over four leaves over eight data blocks, which
    /// would lie at 1000, 1100 ...
    struct Blocks {
        root: RootIndex,
        nodes: std::collections::HashMap<BlockOffset, Arc<Block>>,
    }

    impl BlockLoader for Blocks {
        fn shape(&self) -> IndexShape<'_> {
            IndexShape { root: &self.root, levels: 3, comparator: CellComparator::Default }
        }

        fn load_index_block(&self, place: BlockPlace, kind: BlockKind, _: ReadMode) -> Result<Arc<Block>> {
            let block = self.nodes.get(&place.offset).expect("an entry leads to a block").clone();
            assert_eq!(block.kind(), kind);
            Ok(block)
        }

        fn path(&self) -> &Path {
            Path::new("/no/file")
        }
    }

    /// Data block `at` begins with this key.
    fn first_key(at: usize) -> Vec<u8> {
        key(&[b'a' + 2 * at as u8])
    }

    fn three_levels() -> Blocks {
        let mut nodes = std::collections::HashMap::new();
        let mut add = |offset: u64, kind, children: &[(u64, Vec<u8>)]| {
            let mut writer = crate::index_writer::Chunk::default();
            for (child, key) in children {
                writer.add(key, BlockPlace { offset: BlockOffset::new(*child), on_disk_len: 100 }, 0);
            }
            let mut bytes = Vec::new();
            writer.write_non_root(&mut bytes);
            check_node(&bytes, CellComparator::Default).unwrap();
            let block = Block::new(kind, bytes.into(), Box::new([]), 4096);
            nodes.insert(BlockOffset::new(offset), Arc::new(block));
        };
        let data = |at: usize| (1000 + 100 * at as u64, first_key(at));
        for leaf in 0..4 {
            add(5000 + 100 * leaf as u64, BlockKind::LeafIndex, &[data(2 * leaf), data(2 * leaf + 1)]);
        }
        let leaf = |at: usize| (5000 + 100 * at as u64, first_key(2 * at));
        for node in 0..2 {
            add(
                6000 + 100 * node as u64,
                BlockKind::IntermediateIndex,
                &[leaf(2 * node), leaf(2 * node + 1)],
            );
        }
        let mut root = crate::index_writer::Chunk::default();
        for node in 0..2 {
            root.add(
                &first_key(4 * node),
                BlockPlace { offset: BlockOffset::new(6000 + 100 * node as u64), on_disk_len: 100 },
                0,
            );
        }
        let mut payload = Vec::new();
        root.write_root(&mut payload);
        let order = KeyOrder::Cells(CellComparator::Default);
        Blocks { root: RootIndex::parse(&payload.into(), 0, 2, order).unwrap(), nodes }
    }

    #[test]
    fn an_index_is_searched_and_walked_without_a_file() {
        let (blocks, mut cursor) = (three_levels(), IndexCursor::default());
        let offset = |cursor: &IndexCursor| cursor.place(&blocks).offset.get();
        let mode = ReadMode::CacheOnly;
        for at in 0..8 {
            let (first, behind) = (first_key(at), key(&[b'a' + 2 * at as u8, 1]));
            let expected = 1000 + 100 * at as u64;
            for wanted in [&first, &behind] {
                assert!(cursor.seek(&blocks, KeyRef::trusted(wanted), mode).unwrap());
                assert_eq!((offset(&cursor), cursor.key(&blocks)), (expected, first.clone()));
            }
            assert!(cursor.seek_before(&blocks, KeyRef::trusted(&first), mode).unwrap());
            assert_eq!(offset(&cursor), 1000 + 100 * at.saturating_sub(1) as u64);
        }
        assert!(cursor.seek(&blocks, KeyRef::trusted(&key(b"A")), mode).unwrap());
        assert_eq!(offset(&cursor), 1000, "in front of all keys: the first block");
        let mut walked = vec![offset(&cursor)];
        while cursor.next(&blocks, mode).unwrap() {
            walked.push(offset(&cursor));
        }
        assert_eq!(walked, (0..8).map(|at| 1000 + 100 * at).collect::<Vec<u64>>());
        assert!(cursor.seek_to_last(&blocks, mode).unwrap());
        let mut back = vec![offset(&cursor)];
        while cursor.previous(&blocks, mode).unwrap() {
            back.push(offset(&cursor));
        }
        back.reverse();
        assert_eq!(back, walked);
    }

    #[test]
    fn counts_the_leading_run() {
        for count in 0..20 {
            for run in 0..=count {
                assert_eq!(count_while(count, |at| at < run), run);
            }
        }
    }
}
