//! The meta block `RFile.index`: locality groups, each with an index of its data blocks.
//!
//! ```text
//! int32 magic | int32 version | int32 groups | group* [ version 8: has samples | group* | sampler ]
//! group  = is default [ UTF name ] [ versions 3 to 7: int32 number of its first block ]
//!          int32 families (-1: not counted) ( int32 length | family | int64 entries )*
//!          has keys [ first key ]
//!          [ from version 6: int32 data blocks ] | index block
//! index block, version 3 = int32 count | entry*
//!              version 4 = int32 count | int32 offset* | int32 length | entry*
//!              from 6    = int32 level | int32 data blocks before it | has next | int32 count | int32 offset* | int32 length | entry*
//! entry  = key | int32 entries of the block [ from version 6: region ]
//! ```
//!
//! The key of an entry is not less than the last one of its block, and less than the first of the next. Entries of a level above
//! 0 lead to index blocks of the level below; those of level 0 to data blocks. Before version 6 the blocks of a group have
//! consecutive numbers.

use std::sync::Arc;

use super::bytes::Reader;
use super::container::{BlockRegion, Container};
use super::error::{RFileError, Result, damaged};
use super::key::Key;

const MAGIC: i32 = 0x2063_7474;
const LEVELS_MAX: i32 = 16;

/// A locality group.
pub(crate) struct Group {
    has_keys: bool,
    blocks_count: usize,
    root: Arc<IndexBlock>,
}

/// Decoded lazily: the entries stay in their bytes.
struct IndexBlock {
    level: i32,
    entries_at: Vec<u32>,
    bytes: Vec<u8>,
    /// Before version 6: the number of the first data block.
    first_block: Option<usize>,
}

/// Leads to a data block.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// No key of the block is greater.
    pub(crate) last: Key,
    pub(crate) entries_count: usize,
    pub(crate) region: BlockRegion,
}

pub(super) fn read_groups(bytes: &[u8]) -> Result<(i32, Vec<Group>)> {
    let mut reader = Reader::new(bytes);
    let magic = reader.int32()?;
    if magic != MAGIC {
        return damaged(format!("expected the number {MAGIC:#x}, found {magic:#x}"));
    }
    let version = reader.int32()?;
    if !matches!(version, 3 | 4 | 6 | 7 | 8) {
        return Err(RFileError::Unsupported(format!(
            "RFile version {version}; this program reads 3, 4, 6, 7 and 8"
        )));
    }
    let count = reader.count()?;
    let mut groups = Vec::new();
    for number in 0..count {
        groups.push(read_group(&mut reader, version).map_err(|error| error.at(format!("group {number}")))?);
    }
    Ok((version, groups))
}

fn read_group(reader: &mut Reader<'_>, version: i32) -> Result<Group> {
    if !reader.boolean()? {
        reader.java_utf()?;
    }
    let first_block = match version {
        3..=7 => Some(reader.int32()?),
        _ => None,
    };
    for _ in 0..reader.int32()? {
        reader.counted()?; // a family
        reader.int64()?;
    }
    let has_keys = reader.boolean()?;
    if has_keys {
        Key::read(reader)?;
    }
    let blocks_count = if version >= 6 { Some(reader.count()?) } else { None };
    let mut root = IndexBlock::read(reader, version)?;
    if version < 6 {
        // -1 or any other number stands for none if there are no blocks
        let first = first_block.and_then(|first| usize::try_from(first).ok());
        root.first_block = Some(first.unwrap_or_default());
    }
    let blocks_count = blocks_count.unwrap_or(root.entries_at.len());
    if has_keys != (blocks_count > 0) {
        return damaged(format!("{blocks_count} blocks, and a first key: {has_keys}"));
    }
    Ok(Group { has_keys, blocks_count, root: Arc::new(root) })
}

impl IndexBlock {
    fn read(reader: &mut Reader<'_>, version: i32) -> Result<IndexBlock> {
        let level = if version >= 6 { reader.int32()? } else { 0 };
        if !(0..=LEVELS_MAX).contains(&level) {
            return damaged(format!("an index of level {level}"));
        }
        if version >= 6 {
            reader.int32()?;
            reader.boolean()?;
        }
        let count = reader.count()?;
        if version == 3 {
            return IndexBlock::read_version_3(reader, count);
        }
        let mut entries_at = Vec::new();
        for _ in 0..count {
            entries_at.push(reader.int32()? as u32);
        }
        let bytes = reader.counted()?.to_vec();
        Ok(IndexBlock { level, entries_at, bytes, first_block: None })
    }

    fn read_version_3(reader: &mut Reader<'_>, count: usize) -> Result<IndexBlock> {
        let start = reader.position();
        let mut walk = *reader;
        let mut entries_at = Vec::new();
        for _ in 0..count {
            entries_at.push((walk.position() - start) as u32);
            Key::read(&mut walk)?;
            walk.int32()?;
        }
        let bytes = reader.take(walk.position() - start)?.to_vec();
        Ok(IndexBlock { level: 0, entries_at, bytes, first_block: None })
    }

    fn len(&self) -> usize {
        self.entries_at.len()
    }

    fn last_key(&self, at: usize) -> Result<Key> {
        Key::read(&mut Reader::at(&self.bytes, self.entries_at[at] as usize))
    }

    fn entry(&self, at: usize, container: &Container) -> Result<Leaf> {
        let mut reader = Reader::at(&self.bytes, self.entries_at[at] as usize);
        let last = Key::read(&mut reader)?;
        let entries_count = reader.count()?;
        let region = match self.first_block {
            None => BlockRegion::read(&mut reader)?,
            Some(first) => match container.blocks.get(first.saturating_add(at)) {
                Some(region) => *region,
                None => {
                    return damaged(format!(
                        "block {} of {}",
                        first.saturating_add(at),
                        container.blocks.len()
                    ));
                }
            },
        };
        Ok(Leaf { last, entries_count, region })
    }

    /// The first entry whose block may have `row` or a later one.
    fn seek(&self, row: &[u8]) -> Result<usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match &self.last_key(middle)?.row[..] < row {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        Ok(low)
    }
}

/// Walks over the leaves of a group.
pub(crate) struct Leaves {
    container: Arc<Container>,
    /// Index blocks from the root to the leaves, each with the place of the next entry.
    path: Vec<(Arc<IndexBlock>, usize)>,
    /// Leaves that a walk from the beginning has yet to see; `None` after a seek.
    left: Option<usize>,
    version: i32,
    last: Option<Key>,
}

impl Leaves {
    /// From the first block that may have `row` or a later one.
    pub(super) fn seek(
        container: &Arc<Container>,
        version: i32,
        group: &Group,
        row: &[u8],
    ) -> Result<Leaves> {
        let mut leaves = Leaves {
            container: Arc::clone(container),
            path: Vec::new(),
            left: row.is_empty().then_some(group.blocks_count),
            version,
            last: None,
        };
        if group.has_keys {
            leaves.descend(Arc::clone(&group.root), row)?;
        }
        Ok(leaves)
    }

    fn descend(&mut self, block: Arc<IndexBlock>, row: &[u8]) -> Result<()> {
        let mut block = block;
        loop {
            let at = block.seek(row)?;
            self.path.push((Arc::clone(&block), at));
            if block.level == 0 || at == block.len() {
                return Ok(());
            }
            let child = self.child(&block, at)?;
            self.path.last_mut().expect("it was pushed").1 += 1;
            block = child;
        }
    }

    fn child(&self, block: &IndexBlock, at: usize) -> Result<Arc<IndexBlock>> {
        let leaf = block.entry(at, &self.container)?;
        let bytes = self.container.block(leaf.region)?;
        let child = IndexBlock::read(&mut Reader::new(&bytes), self.version)
            .map_err(|error| error.at(format!("index block at {}", leaf.region.offset)))?;
        if child.level + 1 != block.level || child.entries_at.is_empty() {
            return damaged(format!(
                "an index of level {} has a child of level {}",
                block.level, child.level
            ));
        }
        Ok(Arc::new(child))
    }

    pub(crate) fn next(&mut self) -> Result<Option<Leaf>> {
        loop {
            let Some((block, at)) = self.path.last_mut() else {
                return match self.left {
                    Some(left) if left > 0 => damaged(format!("the index ends {left} blocks too early")),
                    _ => Ok(None),
                };
            };
            if *at == block.len() {
                self.path.pop();
                continue;
            }
            let (block, place) = (Arc::clone(block), *at);
            *at += 1;
            if block.level > 0 {
                let child = self.child(&block, place)?;
                self.path.push((child, 0));
                continue;
            }
            let leaf = block.entry(place, &self.container)?;
            if self.last.as_ref().is_some_and(|last| *last > leaf.last) {
                return damaged("the keys of the index are not in order");
            }
            if let Some(left) = &mut self.left {
                let Some(less) = left.checked_sub(1) else { return damaged("the index has too many blocks") };
                *left = less;
            }
            self.last = Some(leaf.last.clone());
            return Ok(Some(leaf));
        }
    }
}
