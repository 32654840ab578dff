//! Reads a whole file and holds its parts against each other.

use std::sync::Arc;

use halcyon_cache::{Block, BlockKind, BlockOffset};
use halcyon_cell::{Error, KeyRef, Result};

use crate::BloomType;
use crate::block_writer::BlockPlace;
use crate::data_block::cell_at;
use crate::index::IndexCursor;
use crate::read_mode::ReadMode;
use crate::reader::HFile;

impl HFile {
    /// Reads the whole file from the disk and checks that every block, the index, the order of cells, the
    /// counts and the bloom filters agree. The first contradiction is an error.
    pub fn verify(self: &Arc<Self>) -> Result<()> {
        walk_blocks(self)?;
        self.verify_index()
    }

    /// The part of [`HFile::verify`] that follows the index: whether data blocks, index, order of cells, counts and bloom
    /// filters agree.
    pub fn verify_index(self: &Arc<Self>) -> Result<()> {
        walk_index(self).map_err(|e| e.context(self.path().display()))
    }
}

/// Every block from the first to the load-on-open section, by its header.
fn walk_blocks(file: &HFile) -> Result<()> {
    let mut offset = BlockOffset::ZERO;
    let end = BlockOffset::new(file.trailer().proto.load_on_open_data_offset());
    while offset < end {
        let header = file.source().read_header(offset)?;
        let place = BlockPlace { offset, on_disk_len: header.on_disk_len as u32 };
        file.read_block(place, header.kind)?;
        offset = offset.after(header.on_disk_len as u64);
    }
    if offset != end {
        let message = format!("expected the load-on-open section at {end}, found blocks up to {offset}");
        return Err(Error::corrupt(message).context(file.path().display()));
    }
    Ok(())
}

/// Every data block by way of the index.
fn walk_index(file: &HFile) -> Result<()> {
    let mut walk = Walk { cells_count: 0, delete_families_count: 0, last_key: Vec::new() };
    let mut index = IndexCursor::default();
    let mut more = index.seek_to_first(file, ReadMode::AnyDisk)?;
    while more {
        let place = index.place(file);
        let block = file.read_block(place, BlockKind::Data)?;
        let walked = walk.block(file, &index.key(file), &block);
        walked.map_err(|e| e.context(file.source().place(place.offset)))?;
        more = index.next(file, ReadMode::AnyDisk)?;
    }
    walk.end(file)
}

struct Walk {
    cells_count: u64,
    delete_families_count: u64,
    /// Empty before the first cell.
    last_key: Vec<u8>,
}

impl Walk {
    fn block(&mut self, file: &HFile, index_key: &[u8], block: &Block) -> Result<()> {
        let runs_count = file.runs(block).map_or(1, |runs| runs.count());
        for run in 0..runs_count {
            let cells = file.plain_cells(block, run)?;
            if run == 0 {
                self.check_index_key(file, index_key, cell_at(&cells, 0, file.layout()).cell(&cells).key())?;
            }
            self.cells(file, &cells)?;
            let last = KeyRef::trusted(&self.last_key);
            if file.runs(block).is_some_and(|runs| runs.last_key(run) != last) {
                return Err(Error::corrupt(format!("last key of run {run}: expected {last:?}")));
            }
        }
        Ok(())
    }

    fn check_index_key(&self, file: &HFile, index_key: &[u8], first: KeyRef<'_>) -> Result<()> {
        let comparator = file.comparator();
        let index_key = KeyRef::trusted(index_key);
        let behind_last = self.last_key.is_empty()
            || comparator.compare_keys(KeyRef::trusted(&self.last_key), index_key).is_lt();
        if !behind_last || comparator.compare_keys(index_key, first).is_gt() {
            return Err(Error::corrupt(format!(
                "index key: expected one up to {first:?}, found {index_key:?}"
            )));
        }
        Ok(())
    }

    fn cells(&mut self, file: &HFile, bytes: &[u8]) -> Result<()> {
        let (comparator, layout) = (file.comparator(), file.layout());
        let mut at = 0;
        while at < bytes.len() {
            let span = cell_at(bytes, at, layout);
            let cell = span.cell(bytes);
            let key = cell.key();
            if !self.last_key.is_empty() {
                let last = KeyRef::trusted(&self.last_key);
                if comparator.compare_keys(last, key).is_gt() {
                    return Err(Error::corrupt(format!("expected a cell behind {last:?}, found {key:?}")));
                }
            }
            self.check_blooms(file, key)?;
            self.cells_count += 1;
            self.last_key.clear();
            self.last_key.extend_from_slice(key.bytes());
            at = span.next;
        }
        Ok(())
    }

    fn check_blooms(&mut self, file: &HFile, key: KeyRef<'_>) -> Result<()> {
        let missing = |what: &str| {
            Err(Error::corrupt(format!("{what} filter: expected {key:?} to be in it, found it is not")))
        };
        let mode = ReadMode::AnyDisk;
        let new_row = self.last_key.is_empty() || KeyRef::trusted(&self.last_key).row() != key.row();
        let row_col = file.info().bloom_type() == BloomType::RowCol;
        if (new_row || row_col) && !file.may_contain_row_col(key.row(), key.qualifier(), mode)? {
            return missing("bloom");
        }
        if matches!(key.type_code(), 10 | 14) {
            self.delete_families_count += 1;
            if !file.may_contain_delete_family(key.row(), mode)? {
                return missing("delete family bloom");
            }
        }
        Ok(())
    }

    fn end(&self, file: &HFile) -> Result<()> {
        let info = file.info();
        if self.cells_count != info.entry_count() {
            let (expected, found) = (info.entry_count(), self.cells_count);
            return Err(Error::corrupt(format!("cells: expected {expected}, found {found}")));
        }
        let last = info.last_key().map_or(&[][..], |key| key.bytes());
        if last != &self.last_key[..] {
            return Err(Error::corrupt("hfile.LASTKEY is not the last cell's key"));
        }
        let found = self.delete_families_count;
        match info.delete_family_count() {
            Some(expected) if expected != found => {
                Err(Error::corrupt(format!("family delete markers: expected {expected}, found {found}")))
            }
            _ => Ok(()),
        }
    }
}
