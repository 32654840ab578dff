//! Reads the entries of one locality group in their order.

use std::sync::Arc;

use super::bytes::Reader;
use super::container::Container;
use super::error::{Result, damaged};
use super::index::Leaves;
use super::key::Key;

/// Entries of a group whose rows are in a range. Holds one block.
pub(crate) struct GroupScanner {
    container: Arc<Container>,
    leaves: Leaves,
    /// First row behind the range; empty: to the end.
    end: Vec<u8>,
    block: Vec<u8>,
    at: usize,
    /// Entries of the block that are not read yet.
    left: usize,
    is_first: bool,
    block_offset: u64,
    block_last: Key,
    key: Key,
    previous: Key,
    has_previous: bool,
    value: std::ops::Range<usize>,
}

impl GroupScanner {
    pub(super) fn new(container: Arc<Container>, leaves: Leaves, end: &[u8]) -> GroupScanner {
        GroupScanner {
            container,
            leaves,
            end: end.to_vec(),
            block: Vec::new(),
            at: 0,
            left: 0,
            is_first: false,
            block_offset: 0,
            block_last: Key::default(),
            key: Key::default(),
            previous: Key::default(),
            has_previous: false,
            value: 0..0,
        }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn value(&self) -> &[u8] {
        &self.block[self.value.clone()]
    }

    /// Goes to the next entry with a row from `start` on; `false` at the end of the range.
    pub(crate) fn next_from(&mut self, start: &[u8]) -> Result<bool> {
        while self.next()? {
            if &self.key.row[..] >= start {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes to the next entry; `false` at the end of the range.
    pub(crate) fn next(&mut self) -> Result<bool> {
        while self.left == 0 {
            self.end_block()?;
            let Some(leaf) = self.leaves.next()? else { return Ok(false) };
            self.block = self.container.block(leaf.region)?;
            (self.at, self.left, self.is_first) = (0, leaf.entries_count, true);
            (self.block_offset, self.block_last) = (leaf.region.offset, leaf.last);
        }
        self.read_entry().map_err(|error| error.at(format!("block at {}", self.block_offset)))?;
        Ok(self.end.is_empty() || self.key.row < self.end)
    }

    fn read_entry(&mut self) -> Result<()> {
        let mut reader = Reader::at(&self.block, self.at);
        self.previous.clone_from(&self.key);
        self.key.read_relative(&mut reader, self.is_first)?;
        let value = reader.counted()?;
        let value_end = reader.position();
        self.value = value_end - value.len()..value_end;
        self.at = value_end;
        self.is_first = false;
        self.left -= 1;
        if self.has_previous && self.previous > self.key {
            return damaged(format!("the keys before {value_end} are not in order"));
        }
        self.has_previous = true;
        if self.key > self.block_last {
            return damaged(format!("a key before {value_end} is behind the one in the index"));
        }
        Ok(())
    }

    /// A block must end with its last entry.
    fn end_block(&self) -> Result<()> {
        match self.block.len() - self.at {
            0 => Ok(()),
            more => damaged(format!("block at {}: {more} bytes behind its last entry", self.block_offset)),
        }
    }
}
