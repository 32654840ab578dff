use std::ops::Range;

use bytes::Bytes;

use crate::{Cell, CellRef};

/// Cells of an answer, in the order in which they were found, that count references once for each block and not once
/// for each cell: counting is dear beside what a small cell costs otherwise.
///
/// What is given as a slice of a block holds the block as long as cells of it are here; what is given as a copy lies
/// behind the other copies in one piece of memory.
///
/// *Invariants*: the cells up to any of them use the first `owners_count` of its place of the owners, and the last of
/// these is its own unless it is a copy. Copies lie in `copies` in the order of their places.
#[derive(Default)]
pub struct SharedCells {
    places: Vec<Place>,
    owners: Vec<Bytes>,
    copies: Vec<u8>,
}

#[derive(Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
    seq: u64,
    owners_count: u32,
    is_copy: bool,
}

impl SharedCells {
    pub fn new() -> SharedCells {
        SharedCells::default()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Appends the KeyValue at `range` of `owner`, which passed [`CellRef::parse`].
    #[inline]
    pub fn push_slice(&mut self, owner: &Bytes, range: Range<usize>, seq: u64) {
        assert!(range.start <= range.end && range.end <= owner.len());
        // The owner is held, so nothing else can lie where it does.
        let is_last = |last: &Bytes| last.as_ptr() == owner.as_ptr() && last.len() == owner.len();
        if !self.owners.last().is_some_and(is_last) {
            self.owners.push(owner.clone());
        }
        self.push_place(range, seq, false);
    }

    /// Appends a copy.
    #[inline]
    pub fn push_copy(&mut self, cell: CellRef<'_>) {
        let start = self.copies.len();
        self.copies.extend_from_slice(cell.bytes());
        self.push_place(start..self.copies.len(), cell.seq(), true);
    }

    /// Appends a cell that holds its bytes by itself.
    pub fn push(&mut self, cell: Cell) {
        let seq = cell.seq();
        let owner = cell.into_bytes();
        let range = 0..owner.len();
        self.owners.push(owner);
        self.push_place(range, seq, false);
    }

    #[inline]
    fn push_place(&mut self, Range { start, end }: Range<usize>, seq: u64, is_copy: bool) {
        let owners_count = self.owners.len() as u32; // no more than cells
        self.places.push(Place { start, end, seq, owners_count, is_copy });
    }

    /// Panics if there are not so many.
    #[inline]
    pub fn get(&self, at: usize) -> CellRef<'_> {
        self.cell_ref(&self.places[at])
    }

    #[inline]
    fn cell_ref(&self, place: &Place) -> CellRef<'_> {
        let bytes = if place.is_copy { &self.copies[..] } else { &self.owner_of(place)[..] };
        CellRef::trusted(&bytes[place.start..place.end], place.seq)
    }

    #[inline]
    fn owner_of(&self, place: &Place) -> &Bytes {
        &self.owners[place.owners_count as usize - 1]
    }

    pub fn last(&self) -> Option<CellRef<'_>> {
        self.places.last().map(|place| self.cell_ref(place))
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = CellRef<'_>> {
        self.places.iter().map(|place| self.cell_ref(place))
    }

    /// One of them by itself: it holds its block from now on. Panics if there are not so many.
    pub fn cell(&self, at: usize) -> Cell {
        let place = &self.places[at];
        if place.is_copy {
            return self.cell_ref(place).to_cell();
        }
        Cell::trusted(self.owner_of(place).slice(place.start..place.end), place.seq)
    }

    /// Leaves the first `count` and lets go of what the others held.
    pub fn truncate(&mut self, count: usize) {
        let Some(gone) = self.places.get(count..) else { return };
        if let Some(first) = gone.iter().find(|place| place.is_copy) {
            self.copies.truncate(first.start);
        }
        self.places.truncate(count);
        let owners_count = self.places.last().map_or(0, |place| place.owners_count as usize);
        self.owners.truncate(owners_count);
    }

    /// Takes those from `start` on out, each by itself.
    pub fn split_off(&mut self, start: usize) -> Vec<Cell> {
        let cells = (start..self.len()).map(|at| self.cell(at)).collect();
        self.truncate(start);
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(rows: &[&[u8]]) -> (Bytes, Vec<Range<usize>>) {
        let mut bytes = Vec::new();
        let mut ranges = Vec::new();
        for row in rows {
            let start = bytes.len();
            bytes.extend_from_slice(Cell::put(row, b"f", b"q", 1, b"v").bytes());
            ranges.push(start..bytes.len());
        }
        (bytes.into(), ranges)
    }

    fn rows(cells: &SharedCells) -> Vec<&[u8]> {
        cells.iter().map(|cell| cell.row()).collect()
    }

    #[test]
    fn cells_of_all_kinds_are_as_they_were_given() {
        let (first, at) = block(&[b"a", b"b"]);
        let (second, _) = block(&[b"c", b"d"]);
        let mut cells = SharedCells::new();
        cells.push_slice(&first, at[0].clone(), 1);
        cells.push_copy(Cell::put(b"a2", b"f", b"q", 1, b"v").get());
        cells.push_slice(&first, at[1].clone(), 2);
        cells.push(Cell::put(b"b2", b"f", b"q", 1, b"v").with_seq(3));
        cells.push_slice(&second, at[1].clone(), 4);
        assert_eq!(rows(&cells), [&b"a"[..], b"a2", b"b", b"b2", b"d"]);
        assert_eq!(cells.iter().map(|cell| cell.seq()).collect::<Vec<_>>(), [1, 0, 2, 3, 4]);
        for at in 0..cells.len() {
            assert_eq!(cells.get(at).bytes(), cells.cell(at).bytes());
        }
        assert_eq!(cells.last().map(|cell| cell.row()), Some(&b"d"[..]));
        let tail = cells.split_off(3);
        assert_eq!((tail[0].row(), tail[1].row()), (&b"b2"[..], &b"d"[..]));
        assert_eq!(rows(&cells), [&b"a"[..], b"a2", b"b"]);
    }

    #[test]
    fn a_block_is_held_once_and_no_longer_than_needed() {
        let (first, at) = block(&[b"a", b"b"]);
        let (second, _) = block(&[b"c", b"d"]);
        let mut cells = SharedCells::new();
        for (block, range) in [(&first, &at[0]), (&first, &at[1]), (&second, &at[0]), (&second, &at[1])] {
            cells.push_slice(block, range.clone(), 0);
            cells.push_copy(cells.get(0).to_cell().get());
        }
        assert_eq!((cells.owners.len(), cells.copies.len()), (2, 4 * at[0].len()));
        cells.truncate(9);
        assert_eq!(cells.len(), 8);
        cells.truncate(5);
        assert_eq!((cells.owners.len(), cells.copies.len()), (2, 2 * at[0].len()));
        cells.truncate(4);
        assert!(!first.is_unique() && second.is_unique());
        // What is dropped row by row, as a filter does, leaves nothing behind.
        for _ in 0..3 {
            cells.push_slice(&second, at[0].clone(), 0);
            cells.push_copy(cells.get(4).to_cell().get());
            assert_eq!(rows(&cells), [&b"a"[..], b"a", b"b", b"a", b"c", b"c"]);
            cells.truncate(4);
            assert_eq!((cells.owners.len(), cells.copies.len()), (1, 2 * at[0].len()));
        }
        let kept = cells.cell(2);
        cells.truncate(0);
        assert!(!first.is_unique());
        assert_eq!(kept.row(), b"b");
        drop(kept);
        assert!(first.is_unique());
    }
}
