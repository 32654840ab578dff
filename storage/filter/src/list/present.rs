//! Where a list is in its row, told to all of its filters at once.

use std::sync::Arc;

use halcyon_cell::{CellRef, Result};
use halcyon_env::invariant;

use crate::kept::{Kept, Room, SHORT_KEY_LEN};

/// The cell that a list is at. A filter of the list that is done with a family or column remembers its number, and one that gives a hint
/// shares the key with the others: none of them has a copy of its own, of which there may be a hundred thousand.
///
/// *Invariants*: the number of a family or column that was asked for is counted up as soon as the list is at a cell of another one.
pub(super) struct Present {
    family_number: u64,
    column_number: u64,
    /// The family and qualifier that the numbers stand for, if anybody has asked for them.
    knows_family: bool,
    knows_column: bool,
    family: Vec<u8>,
    qualifier: Vec<u8>,
    qualifier_room: Option<Room>,
    /// The present cell, or one before it, whose buffer may be used again.
    cell: Option<Arc<AskedCell>>,
    has_cell: bool,
    kept: Kept,
}

/// A cell without its value: what a filter is asked for a hint with.
pub(super) struct AskedCell {
    bytes: Vec<u8>,
    room: Option<Room>,
}

impl AskedCell {
    pub(super) fn get(&self) -> CellRef<'_> {
        CellRef::trusted(&self.bytes, 0)
    }

    fn set(&mut self, cell: CellRef<'_>) {
        let key = cell.key().bytes();
        self.bytes.clear();
        self.bytes.extend_from_slice(&(key.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(&0u32.to_be_bytes());
        self.bytes.extend_from_slice(key);
        invariant!(
            self.get().key().bytes() == key,
            "what a filter is asked for a hint with has the key of the cell that it was asked about"
        );
    }
}

impl Present {
    /// Bytes of its buffers when they are full of what is kept from one row to the next.
    pub(super) const HELD_BYTES: usize = 3 * SHORT_KEY_LEN;

    pub(super) fn new(kept: Kept) -> Present {
        Present {
            family_number: 0,
            column_number: 0,
            knows_family: false,
            knows_column: false,
            family: Vec::new(),
            qualifier: Vec::new(),
            qualifier_room: None,
            cell: None,
            has_cell: false,
            kept,
        }
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    pub(super) fn go_to(&mut self, cell: CellRef<'_>) {
        self.has_cell = false;
        if self.knows_family && self.family != cell.family() {
            self.family_number += 1;
            self.column_number += 1;
            (self.knows_family, self.knows_column) = (false, false);
        } else if self.knows_column && self.qualifier != cell.qualifier() {
            self.column_number += 1;
            self.knows_column = false;
        }
    }

    /// Lets go of what is long.
    pub(super) fn leave_row(&mut self) {
        (self.knows_family, self.knows_column, self.has_cell) = (false, false, false);
        // No answer of this row is left, so the numbers may stand for what comes.
        self.qualifier.clear();
        self.qualifier.shrink_to(SHORT_KEY_LEN);
        self.qualifier_room = None;
        if self.cell.as_ref().is_some_and(|cell| cell.room.is_some()) {
            self.cell = None;
        }
    }

    pub(super) fn family_number(&self) -> u64 {
        self.family_number
    }

    pub(super) fn column_number(&self) -> u64 {
        self.column_number
    }

    /// The number of the present family, which is that of `cell`.
    pub(super) fn family(&mut self, cell: CellRef<'_>) -> u64 {
        if !self.knows_family {
            self.family.clear();
            self.family.extend_from_slice(cell.family());
            self.knows_family = true;
        }
        self.family_number
    }

    /// The number of the present column, which is that of `cell`.
    ///
    /// Errors: see [`Room::grow_to`].
    pub(super) fn column(&mut self, cell: CellRef<'_>) -> Result<u64> {
        self.family(cell);
        if !self.knows_column {
            let qualifier = cell.qualifier();
            self.qualifier.clear();
            self.qualifier.shrink_to(SHORT_KEY_LEN.max(qualifier.len()));
            self.qualifier_room = None;
            self.qualifier_room = self.kept.room_for_key(qualifier.len())?;
            self.qualifier.extend_from_slice(qualifier);
            self.knows_column = true;
        }
        Ok(self.column_number)
    }

    /// The key of `cell`, which is the present one.
    ///
    /// Errors: see [`Room::grow_to`].
    pub(super) fn asked_cell(&mut self, cell: CellRef<'_>) -> Result<Arc<AskedCell>> {
        if self.has_cell
            && let Some(present) = &self.cell
        {
            return Ok(present.clone());
        }
        let len = cell.key().bytes().len();
        let reusable = self.cell.take().and_then(|mut before| {
            let is_short = before.room.is_none() && len <= SHORT_KEY_LEN;
            (is_short && Arc::get_mut(&mut before).is_some()).then_some(before)
        });
        let mut present = match reusable {
            Some(before) => before,
            None => {
                let room = self.kept.room_for_key(len)?;
                Arc::new(AskedCell { bytes: Vec::with_capacity(halcyon_cell::KEY_OFFSET + len), room })
            }
        };
        Arc::get_mut(&mut present).expect("it is new, or no filter has it any more").set(cell);
        self.cell = Some(present.clone());
        self.has_cell = true;
        Ok(present)
    }
}

#[cfg(test)]
mod tests {
    use halcyon_cell::Cell;

    use super::*;

    #[test]
    fn numbers_tell_families_and_columns_apart() {
        let mut present = Present::new(Kept::default());
        let cell = |family: &str, qualifier: &str, timestamp| {
            Cell::put(b"r", family.as_bytes(), qualifier.as_bytes(), timestamp, b"")
        };
        let mut at = |family, qualifier, timestamp| {
            let cell = cell(family, qualifier, timestamp);
            present.go_to(cell.get());
            let numbers = (present.family(cell.get()), present.column(cell.get()).unwrap());
            assert_eq!(numbers, (present.family_number(), present.column_number()));
            numbers
        };
        let first = at("f", "a", 2);
        assert_eq!(at("f", "a", 1), first);
        let second = at("f", "b", 1);
        assert!(second.0 == first.0 && second.1 != first.1);
        let third = at("g", "b", 1);
        assert!(third.0 != second.0 && third.1 != second.1);
        // Of a family that somebody is done with the end is seen, also when nobody asks for its columns.
        let family = third.0;
        let cells = [cell("g", "c", 1), cell("g", "d", 1), cell("h", "d", 1)];
        let same = cells.map(|cell| {
            present.go_to(cell.get());
            present.family_number() == family
        });
        assert_eq!(same, [true, true, false]);
    }

    #[test]
    fn filters_of_a_list_share_the_key_of_a_cell() {
        let kept = Kept::default();
        let mut present = Present::new(kept.clone());
        let qualifier = vec![b'q'; 1 << 20];
        for timestamp in [2, 1] {
            let cell = Cell::put(b"r", b"f", &qualifier, timestamp, b"v");
            present.go_to(cell.get());
            let all: Vec<Arc<AskedCell>> =
                (0..100).map(|_| present.asked_cell(cell.get()).unwrap()).collect();
            assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
            assert_eq!(all[0].get().key().bytes(), cell.get().key().bytes());
            assert!(all[0].get().value().is_empty());
            assert!(kept.bytes() < 2 * (qualifier.len() + 64), "of cell and column: {} bytes", kept.bytes());
            present.column(cell.get()).unwrap();
        }
        present.leave_row();
        assert_eq!(kept.bytes(), 0);
        let short = Cell::put(b"r", b"f", b"q", 1, b"v");
        present.go_to(short.get());
        let buffer = present.asked_cell(short.get()).unwrap().get().bytes().as_ptr();
        present.go_to(short.get());
        assert_eq!(present.asked_cell(short.get()).unwrap().get().bytes().as_ptr(), buffer, "used again");
    }
}
