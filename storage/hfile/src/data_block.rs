//! Cells inside a data block without encoding.
//!
//! ```text
//! ( int32 key length | int32 value length | key | value | [ int16 tags length | tags ] | [ VLong sequence id ] )*
//! ```
//!
//! Whether the tags and the sequence id are there is the same for all cells of a file. [`check`] walks a block
//! once when it is loaded; after that [`cell_at`] trusts it. The same walk notes where every 16th cell starts,
//! and the last one, so that a seek inside the block need not read all cells in front.

use std::cmp::Ordering;

use halcyon_cell::{CellComparator, CellRef, Error, KEY_OFFSET, KeyRef, Result, TagIterator};

use crate::format::read_vlong;

/// Cells between two marks.
const MARK_EVERY: usize = 16;

/// What stands behind each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellLayout {
    pub(crate) tags: bool,
    /// A sequence id is there.
    pub(crate) mvcc: bool,
    /// Gives all cells this sequence id, whatever is there (bulk-loaded files).
    pub(crate) seq: Option<u64>,
}

/// Where a cell lies in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellSpan {
    pub(crate) start: usize,
    /// End of the KeyValue: behind the tags or, if there are none, behind the value.
    pub(crate) end: usize,
    /// Start of the next cell.
    pub(crate) next: usize,
    pub(crate) seq: u64,
}

impl CellSpan {
    /// The cell in `bytes`.
    #[inline]
    pub(crate) fn cell<'a>(&self, bytes: &'a [u8]) -> CellRef<'a> {
        CellRef::trusted(&bytes[self.start..self.end], self.seq)
    }
}

/// The cell at `start` of a checked block; `start` must be a cell's.
#[inline]
pub(crate) fn cell_at(bytes: &[u8], start: usize, layout: CellLayout) -> CellSpan {
    let lengths = u64::from_be_bytes(bytes[start..start + 8].try_into().expect("eight bytes"));
    let value_end = start + KEY_OFFSET + (lengths >> 32) as usize + (lengths as u32) as usize;
    let (mut end, mut next) = (value_end, value_end);
    if layout.tags {
        let tags_len = usize::from(u16::from_be_bytes([bytes[next], bytes[next + 1]]));
        next += 2 + tags_len;
        if tags_len > 0 {
            end = next;
        }
    }
    let mut seq = 0;
    if layout.mvcc {
        let first = bytes[next] as i8;
        if first >= -112 {
            seq = first as u64;
            next += 1;
        } else {
            let (value, len) = read_vlong(&bytes[next..]).expect("the block was checked");
            seq = value as u64;
            next += len;
        }
    }
    CellSpan { start, end, next, seq: layout.seq.unwrap_or(seq) }
}

#[inline]
fn key_at(bytes: &[u8], start: usize) -> KeyRef<'_> {
    let key_len = u32::from_be_bytes(bytes[start..start + 4].try_into().expect("four bytes")) as usize;
    KeyRef::trusted(&bytes[start + KEY_OFFSET..start + KEY_OFFSET + key_len])
}

/// Checks every length, key and tag of a block and returns its marks. The error says at which position.
pub(crate) fn check(bytes: &[u8], layout: CellLayout) -> Result<Box<[u32]>> {
    if bytes.is_empty() || bytes.len() > i32::MAX as usize {
        return Err(Error::corrupt(format!("expected a data block with cells, found {} bytes", bytes.len())));
    }
    let mut marks = Vec::with_capacity(bytes.len() / (MARK_EVERY * 32) + 2);
    let (mut at, mut last, mut count) = (0, 0, 0usize);
    while at < bytes.len() {
        if count.is_multiple_of(MARK_EVERY) {
            marks.push(at as u32);
        }
        last = at;
        at = check_cell(bytes, at, layout).map_err(|e| e.context(format_args!("cell at position {at}")))?;
        count += 1;
    }
    if marks.last() != Some(&(last as u32)) {
        marks.push(last as u32);
    }
    Ok(marks.into())
}

/// Checks one cell and gives the start of the next.
fn check_cell(bytes: &[u8], start: usize, layout: CellLayout) -> Result<usize> {
    let rest = &bytes[start..];
    let short = |what: &str, need: usize| {
        Error::corrupt(format!("{what}: expected {need} bytes, found {}", rest.len()))
    };
    let Some((lengths, _)) = rest.split_first_chunk::<8>() else {
        return Err(short("key and value length", 8));
    };
    let lengths = u64::from_be_bytes(*lengths);
    let key_end = KEY_OFFSET + (lengths >> 32) as usize;
    let mut end = key_end + (lengths as u32) as usize;
    if end > rest.len() {
        return Err(short("key and value", end));
    }
    KeyRef::parse(&rest[KEY_OFFSET..key_end])?;
    if layout.tags {
        let Some(tags_len) = rest.get(end..end + 2) else { return Err(short("tags length", end + 2)) };
        let tags_len = usize::from(u16::from_be_bytes([tags_len[0], tags_len[1]]));
        let tags_start = end + 2;
        end = tags_start + tags_len;
        let tags = rest.get(tags_start..end).ok_or_else(|| short("tags", end))?;
        TagIterator::check(tags)?;
    }
    if layout.mvcc {
        let (seq, len) = read_vlong(&rest[end..]).ok_or_else(|| short("sequence id", end + 1))?;
        if seq < 0 {
            return Err(Error::corrupt(format!("sequence id: expected none below 0, found {seq}")));
        }
        end += len;
    }
    Ok(start + end)
}

/// Start of the first cell at or after `from` (a cell's start) whose key is not before `key`; `None` if all are.
///
/// `marks` are the block's; the mark at or before `from` bounds the search from below.
pub(crate) fn seek(
    bytes: &[u8],
    marks: &[u32],
    layout: CellLayout,
    comparator: CellComparator,
    key: KeyRef<'_>,
    from: usize,
) -> Option<usize> {
    let is_before = |start: usize| comparator.compare_keys(key_at(bytes, start), key) == Ordering::Less;
    let first = marks.partition_point(|&mark| (mark as usize) < from);
    let before = marks[first..].partition_point(|&mark| is_before(mark as usize));
    // The cell under the last such mark is before the key; between marks there is no way but to walk.
    let mut start = if before == 0 { from } else { marks[first + before - 1] as usize };
    while start < bytes.len() {
        if !is_before(start) {
            return Some(start);
        }
        start = cell_at(bytes, start, layout).next;
    }
    None
}

/// Start of the last cell whose key is before `key`; `None` if there is none.
pub(crate) fn seek_before(
    bytes: &[u8],
    marks: &[u32],
    layout: CellLayout,
    comparator: CellComparator,
    key: KeyRef<'_>,
) -> Option<usize> {
    let is_before = |start: usize| comparator.compare_keys(key_at(bytes, start), key) == Ordering::Less;
    let before = marks.partition_point(|&mark| is_before(mark as usize));
    let mut found = marks[before.checked_sub(1)?] as usize;
    loop {
        let next = cell_at(bytes, found, layout).next;
        if next >= bytes.len() || !is_before(next) {
            return Some(found);
        }
        found = next;
    }
}

/// Start of the last cell.
pub(crate) fn last_cell(marks: &[u32]) -> usize {
    *marks.last().expect("a checked block has cells") as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::hex;

    const BOTH: CellLayout = CellLayout { tags: true, mvcc: true, seq: None };

    fn golden() -> Vec<u8> {
        hex("00000011 00000002 0002 7231 01 66 7131 00000000000003e8 04 7631 0000 05
             0000000f 00000000 0002 7232 01 66 0000000000000384 0e 0000 8e012c")
    }

    #[test]
    fn golden_cells_of_hbase() {
        let bytes = golden();
        let marks = check(&bytes, BOTH).unwrap();
        assert_eq!(&*marks, [0, 30]);
        let first = cell_at(&bytes, 0, BOTH);
        let cell = first.cell(&bytes);
        assert_eq!(
            (cell.row(), cell.value(), cell.timestamp(), cell.seq()),
            (&b"r1"[..], &b"v1"[..], 1000, 5)
        );
        CellRef::parse(cell.bytes(), 0).unwrap();
        let second = cell_at(&bytes, first.next, BOTH).cell(&bytes);
        assert_eq!((second.row(), second.timestamp(), second.seq()), (&b"r2"[..], 900, 300));
        let reset = CellLayout { seq: Some(7), ..BOTH };
        assert_eq!(cell_at(&bytes, first.next, reset).seq, 7);
    }

    #[test]
    fn truncated_or_damaged_blocks_are_refused_or_readable() {
        let bytes = golden();
        for layout in [BOTH, CellLayout { tags: false, ..BOTH }, CellLayout { mvcc: false, ..BOTH }] {
            for at in 0..=bytes.len() {
                for bit in 0..9 {
                    let mut bad = bytes[..if bit == 8 { at } else { bytes.len() }].to_vec();
                    if bit < 8 && at < bad.len() {
                        bad[at] ^= 1 << bit;
                    }
                    let Ok(marks) = check(&bad, layout) else { continue };
                    let mut start = 0;
                    while start < bad.len() {
                        let span = cell_at(&bad, start, layout);
                        CellRef::parse(span.cell(&bad).bytes(), 0).unwrap();
                        start = span.next;
                    }
                    let key = halcyon_cell::Key::first_on_row(b"r2");
                    let _ = seek(&bad, &marks, layout, CellComparator::Default, key.get(), 0);
                    let _ = seek_before(&bad, &marks, layout, CellComparator::Default, key.get());
                }
            }
        }
    }
}
