//! A scanner that shows the rows of a range of a file, as if the file held no others.
//!
//! A region that was split leaves its files where they are; each daughter reads the half that is hers through
//! this, until a compaction has written it anew (HBase: `HalfStoreFileReader`).

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, CellScanner, Key, KeyRef, Result, SharedCells};

use crate::scanner::HFileScanner;

/// Rows in `[start, end)`, in the order of bytes; `None`: open on that side. Not for files of `hbase:meta`, whose
/// rows have another order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowRange {
    pub start: Option<Bytes>,
    pub end: Option<Bytes>,
}

impl RowRange {
    fn is_before(&self, row: &[u8]) -> bool {
        self.start.as_ref().is_some_and(|start| row < &start[..])
    }

    fn is_behind(&self, row: &[u8]) -> bool {
        self.end.as_ref().is_some_and(|end| row >= &end[..])
    }
}

/// See the head of the file. Behaves as [`HFileScanner`] does on a file of the range's cells.
pub struct HalfScanner {
    inner: HFileScanner,
    range: RowRange,
    /// Whether `inner` stands on a cell of the range.
    inside: bool,
}

impl HalfScanner {
    pub fn new(inner: HFileScanner, range: RowRange) -> HalfScanner {
        HalfScanner { inner, range, inside: false }
    }

    /// As [`HFileScanner::held_bytes`].
    pub fn held_bytes(&self) -> usize {
        self.inner.held_bytes()
    }

    /// Looks where a move forward, which began in the range or at its start, has led.
    #[inline]
    fn settle_forward(&mut self) {
        self.inside = self.inner.peek().is_some_and(|cell| !self.range.is_behind(cell.row()));
    }

    /// Looks where a move back, which began in the range or at its end, has led.
    fn settle_back(&mut self) {
        self.inside = self.inner.peek().is_some_and(|cell| !self.range.is_before(cell.row()));
    }
}

impl CellScanner for HalfScanner {
    #[inline]
    fn peek(&self) -> Option<CellRef<'_>> {
        if self.inside { self.inner.peek() } else { None }
    }

    fn cell(&self) -> Option<Cell> {
        if self.inside { self.inner.cell() } else { None }
    }

    #[inline]
    fn share(&self, out: &mut SharedCells) {
        if self.inside {
            self.inner.share(out);
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.inside {
            return Ok(());
        }
        self.inside = false; // and stays so if the move fails
        self.inner.next()?;
        self.settle_forward();
        Ok(())
    }

    fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.inside = false;
        if self.range.is_behind(key.row()) {
            return Ok(());
        }
        match &self.range.start {
            Some(start) if key.row() < &start[..] => self.inner.seek(Key::first_on_row(start).get())?,
            _ => self.inner.seek(key)?,
        }
        self.settle_forward();
        Ok(())
    }

    fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        if !self.inside {
            return self.seek(key);
        }
        // The key is not before the current cell, so not before the range.
        self.inside = false;
        if self.range.is_behind(key.row()) {
            return Ok(());
        }
        self.inner.reseek(key)?;
        self.settle_forward();
        Ok(())
    }

    fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.inside = false;
        match &self.range.end {
            Some(end) if key.row() >= &end[..] => self.inner.seek_before(Key::first_on_row(end).get())?,
            _ => self.inner.seek_before(key)?,
        }
        self.settle_back();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.inside = false;
        match &self.range.end {
            Some(end) => self.inner.seek_before(Key::first_on_row(end).get())?,
            None => self.inner.seek_to_last()?,
        }
        self.settle_back();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use halcyon_cache::BlockCache;
    use halcyon_cell::CellType;
    use halcyon_env::sim::SimFileSystem;

    use super::*;
    use crate::{FileMeta, HFile, HFileWriter, ReadMode, ReaderOptions, WriterOptions};

    /// A file of rows r000, r002, ... with three columns each, in many small blocks.
    fn file() -> (Arc<HFile>, Vec<Cell>) {
        let env = SimFileSystem::new().env();
        let path = Path::new("/f");
        let options = WriterOptions { block_size: 200, ..WriterOptions::default() };
        let mut writer = HFileWriter::create(&env, path, options).unwrap();
        let mut cells = Vec::new();
        for row in (0..100).step_by(2) {
            for column in ["a", "b", "c"] {
                let row = format!("r{row:03}");
                cells.push(Cell::put(row.as_bytes(), b"f", column.as_bytes(), 5, b"value"));
            }
        }
        cells.iter().for_each(|cell| writer.append(cell.get()).unwrap());
        writer.finish(FileMeta::default()).unwrap();
        let cache = Arc::new(BlockCache::new(1 << 20));
        (HFile::open(&env, path, &cache, ReaderOptions::default()).unwrap(), cells)
    }

    fn shown(scanner: &HalfScanner) -> Option<Vec<u8>> {
        scanner.peek().map(|cell| [cell.row(), cell.qualifier()].concat())
    }

    fn named(cell: Option<&Cell>) -> Option<Vec<u8>> {
        cell.map(|cell| [cell.row(), cell.qualifier()].concat())
    }

    /// Every seek to every key in and around the file, against the list of the cells that are in the range.
    #[test]
    fn behaves_as_a_file_of_the_range() {
        let (file, cells) = file();
        let bounds = [None, Some("r"), Some("r030"), Some("r031"), Some("r060"), Some("r098"), Some("s")];
        for start in bounds {
            for end in bounds {
                let bytes =
                    |bound: Option<&'static str>| bound.map(|text| Bytes::from_static(text.as_bytes()));
                let range = RowRange { start: bytes(start), end: bytes(end) };
                let inside: Vec<&Cell> = cells
                    .iter()
                    .filter(|cell| !range.is_before(cell.row()) && !range.is_behind(cell.row()))
                    .collect();
                let mut scanner = HalfScanner::new(file.scanner(ReadMode::AnyDisk, true), range.clone());
                assert_eq!(shown(&scanner), None);
                scanner.seek(Key::first_on_row(b"").get()).unwrap();
                let mut walked = Vec::new();
                while let Some(cell) = scanner.cell() {
                    walked.push(cell);
                    scanner.next().unwrap();
                }
                assert_eq!(walked.iter().collect::<Vec<_>>(), inside, "{range:?}");
                scanner.seek_to_last().unwrap();
                assert_eq!(shown(&scanner), named(inside.last().copied()), "{range:?}");
                for row in ["", "r000", "r029", "r030", "r031", "r032", "r059", "r060", "r061", "r098", "t"] {
                    let key = Key::new(row.as_bytes(), b"f", b"b", 5, CellType::Put);
                    let order = file.comparator();
                    let first =
                        inside.iter().position(|c| order.compare_keys(c.get().key(), key.get()).is_ge());
                    let first = first.unwrap_or(inside.len());
                    scanner.seek(key.get()).unwrap();
                    assert_eq!(shown(&scanner), named(inside.get(first).copied()), "{range:?} {row}");
                    scanner.seek(Key::first_on_row(b"").get()).unwrap();
                    scanner.reseek(key.get()).unwrap();
                    assert_eq!(shown(&scanner), named(inside.get(first).copied()), "{range:?} {row}");
                    scanner.seek_before(key.get()).unwrap();
                    let before = first.checked_sub(1).map(|at| inside[at]);
                    assert_eq!(shown(&scanner), named(before), "{range:?} {row}");
                }
            }
        }
    }
}
