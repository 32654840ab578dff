//! `FuzzyRowFilter`: rows that have given bytes at given places, with hints to the next row that can match.
//!
//! A fuzzy key is a key and a mask of the same length. The mask says of each byte whether the row must have
//! it (fixed) or may have any byte there. Rows are matched on the length that row and key have in common, so
//! a key is a prefix pattern, and a short row matches if as much of it as there is does.
//!
//! Masks arrive in three dialects, because Java clients send the form that their processor likes:
//!
//! ```text
//!                                           fixed  any
//! raw (other languages, other platforms)    00     01
//! Java, is_mask_v2 absent or false          ff     00
//! Java, is_mask_v2 (2.6 and later)          ff     02
//! ```
//!
//! A mask of zeros alone is raw with is_mask_v2, and means "any" everywhere without it. Java clients between
//! the two dialects send ff and 02 without the flag, which is read as meant.

use std::cmp::Ordering;

use halcyon_cell::{CellRef, Error, Key, Result};
use halcyon_env::invariant;

use crate::filter::direction_flag;
use crate::rows::increase_last_byte;
use crate::{Filter, ReturnCode};

/// A key of which some bytes are fixed.
pub(crate) struct FuzzyKey {
    /// Zero where any byte may stand.
    key: Vec<u8>,
    /// 0xff where the byte is fixed, 0 where any may stand.
    mask: Vec<u8>,
}

impl FuzzyKey {
    /// Errors (kind `Invalid`): key and mask differ in length.
    pub(crate) fn new(key: &[u8], mask: &[u8], mask_v2: bool) -> Result<FuzzyKey> {
        if key.len() != mask.len() {
            return Err(Error::invalid(format!(
                "FuzzyRowFilter: key {} and mask {} differ in length",
                key.escape_ascii(),
                mask.escape_ascii()
            )));
        }
        let any = if mask_v2 { 2 } else { 0 };
        let processed = mask.iter().all(|&byte| byte == 0xff || byte == any);
        let is_fixed = |byte: u8| byte >= 0x80 || (!processed && byte == 0);
        let mask: Vec<u8> = mask.iter().map(|&byte| if is_fixed(byte) { 0xff } else { 0 }).collect();
        let key = key.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
        Ok(FuzzyKey { key, mask })
    }

    fn matches(&self, row: &[u8]) -> bool {
        let pattern = self.key.iter().zip(&self.mask);
        row.iter().zip(pattern).all(|(byte, (key, mask))| byte & mask == *key)
    }

    /// The next row behind `row`, in the direction of the scan, at or behind which a match can be; `None` if
    /// there is none.
    fn next_row(&self, row: &[u8], reversed: bool) -> Option<Vec<u8>> {
        let (lowest, highest) = if reversed { (0xff, 0) } else { (0, 0xff) };
        let ordered = |order: Ordering| if reversed { order.reverse() } else { order };
        // The row is copied up to the first place where it leaves the pattern. Behind that the pattern
        // starts anew, with the lowest bytes where any may stand.
        let length = row.len().max(self.key.len());
        let is_fixed = |at: usize| self.mask.get(at).is_some_and(|&mask| mask == 0xff);
        let mut next: Vec<u8> =
            (0..length).map(|at| if is_fixed(at) { self.key[at] } else { lowest }).collect();
        let mut last_free = None;
        let mut increased = false;
        for (at, slot) in next.iter_mut().enumerate() {
            let Some(&byte) = row.get(at) else {
                // The row matches as far as it goes; what is longer is above it.
                increased = !reversed;
                break;
            };
            if !is_fixed(at) {
                *slot = byte;
                if byte != highest {
                    last_free = Some(at);
                }
                continue;
            }
            match ordered(byte.cmp(&self.key[at])) {
                Ordering::Less => {
                    increased = true;
                    break;
                }
                Ordering::Greater => break,
                Ordering::Equal => {}
            }
        }
        if !increased {
            let at = last_free?;
            next[at] = if reversed { next[at] - 1 } else { next[at] + 1 };
            for (at, byte) in next.iter_mut().enumerate().skip(at + 1) {
                if !is_fixed(at) {
                    *byte = lowest;
                }
            }
        }
        let fixed_end = self.mask.iter().rposition(|&mask| mask == 0xff).map_or(0, |at| at + 1);
        let free_end = last_free.map_or(0, |at| at + 1);
        next.truncate(fixed_end.max(free_end).max(1));
        next.shrink_to_fit(); // the row may be much longer than the key, and the scan keeps a row for each key
        invariant!(
            reversed || self.matches(&next),
            "the next possible row of a pattern matches it: {}",
            next.escape_ascii()
        );
        invariant!(
            reversed || self.matches(row) || &next[..] > row,
            "a hint leads forward from a row that does not match: from {} to {}",
            row.escape_ascii(),
            next.escape_ascii()
        );
        Some(if reversed { increase_last_byte(next) } else { next })
    }
}

/// Bytes of a key that a row is compared with, or that the next row is made of, for the cost of a look.
const KEY_BYTES_OF_A_LOOK: usize = 64;
/// What the three allocations for a short key take beside its bytes, about.
const ALLOCATION_BYTES: usize = 48;

pub(crate) struct FuzzyRowFilter {
    keys: Vec<FuzzyKey>,
    /// The next possible row of each key that still has one, and the key's index; filled at the first hint.
    next_rows: Option<Vec<(Vec<u8>, usize)>>,
    /// The key that matched last is tried first.
    last_found: usize,
    drop_row: bool,
    done: bool,
    reversed: bool,
}

impl FuzzyRowFilter {
    pub(crate) fn new(keys: Vec<FuzzyKey>) -> FuzzyRowFilter {
        assert!(
            !keys.is_empty(),
            "a request without keys is refused: the key that matched last is one of them"
        );
        FuzzyRowFilter { keys, next_rows: None, last_found: 0, drop_row: false, done: false, reversed: false }
    }

    /// Moves each key's next row behind `row`.
    fn update_next_rows(&mut self, row: &[u8]) {
        let (keys, reversed) = (&self.keys, self.reversed);
        let Some(next_rows) = &mut self.next_rows else {
            let all = keys.iter().enumerate();
            let next = all.filter_map(|(index, key)| Some((key.next_row(row, reversed)?, index)));
            self.next_rows = Some(next.collect());
            return;
        };
        next_rows.retain_mut(|(next, index)| {
            let order = row.cmp(next);
            if if reversed { order.is_gt() } else { order.is_lt() } {
                return true;
            }
            match keys[*index].next_row(row, reversed) {
                Some(row) => *next = row,
                None => return false,
            }
            true
        });
    }
}

impl Filter for FuzzyRowFilter {
    fn cost(&self) -> u32 {
        let looks = self.keys.iter().map(|key| 1 + key.key.len() / KEY_BYTES_OF_A_LOOK).sum::<usize>();
        u32::try_from(looks).unwrap_or(u32::MAX)
    }

    /// A next row is about as long as its key.
    fn held_bytes(&self) -> usize {
        let of_key = |key: &FuzzyKey| {
            size_of::<FuzzyKey>() + size_of::<(Vec<u8>, usize)>() + 3 * key.key.len() + ALLOCATION_BYTES
        };
        size_of::<Self>() + self.keys.iter().map(of_key).sum::<usize>()
    }

    fn reset(&mut self) -> Result<()> {
        self.drop_row = false;
        Ok(())
    }

    fn filter_all_remaining(&mut self) -> Result<bool> {
        Ok(self.done)
    }

    fn filter_cell(&mut self, cell: CellRef<'_>) -> Result<ReturnCode> {
        let (before, from) = self.keys.split_at(self.last_found);
        let mut order = from.iter().chain(before);
        if let Some(at) = order.position(|key| key.matches(cell.row())) {
            self.last_found = (self.last_found + at) % self.keys.len();
            return Ok(ReturnCode::Include);
        }
        self.last_found = 0;
        self.drop_row = true;
        Ok(ReturnCode::SeekNextUsingHint)
    }

    fn filter_row(&mut self) -> Result<bool> {
        Ok(self.drop_row)
    }

    fn next_cell_hint(&mut self, cell: CellRef<'_>) -> Result<Option<Key>> {
        self.update_next_rows(cell.row());
        let rows = self.next_rows.iter().flatten().map(|(row, _)| row);
        let next = if self.reversed { rows.max() } else { rows.min() };
        self.done = next.is_none();
        Ok(next.map(|row| Key::first_on_row(row)))
    }

    fn is_hinting(&self) -> bool {
        true
    }

    direction_flag!();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row much longer than the keys was kept for each of them, to say where the scan goes next.
    #[test]
    fn next_rows_take_as_much_as_their_keys() {
        let key = FuzzyKey::new(&[2, 0], &[0, 1], false).unwrap();
        let next = key.next_row(&[1; halcyon_cell::ROW_LEN_MAX], false).unwrap();
        assert_eq!(next, [2]);
        assert!(next.capacity() < 64, "{} bytes", next.capacity());
    }
}
