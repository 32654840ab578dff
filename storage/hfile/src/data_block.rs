//! Cells inside a data block without encoding.
//!
//! ```text
//! ( int32 key length | int32 value length | key | value | [ int16 tags length | tags ] | [ VLong sequence id ] )*
//! ```
//!
//! Whether the tags and the sequence id are there is the same for all cells of a file. [`check`] walks a block
//! once when it is loaded; after that [`cell_at`] trusts it. The same walk notes where every 8th cell starts, and
//! the last one, so that a seek inside the block need not read all cells in front.
//!
//! A mark also has four bytes of its cell's row, those behind what all rows of the block begin with. A search
//! decides by them alone nearly always, within a few neighbouring cache lines; looking at the keys instead costs
//! one cache miss a step, and most of a seek's time.

use std::cmp::Ordering;

use halcyon_cell::{CellComparator, CellRef, Error, KEY_OFFSET, KeyRef, Result, SeqId, TagIterator};
use halcyon_env::invariant;

use crate::format::read_vlong;

/// Cells between two marks.
const MARK_EVERY: usize = 8;

/// What stands behind each value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellLayout {
    pub(crate) tags: bool,
    /// A sequence id is there.
    pub(crate) mvcc: bool,
    /// Gives all cells this sequence id, whatever is there (bulk-loaded files).
    pub(crate) seq: Option<SeqId>,
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
    invariant!(
        end <= next && next <= bytes.len(),
        "a cell of a checked block lies in it: from {start} to {next} of {}, or {start} is no cell's start",
        bytes.len()
    );
    CellSpan { start, end, next, seq: layout.seq.map_or(seq, SeqId::get) }
}

#[inline]
fn key_at(bytes: &[u8], start: usize) -> KeyRef<'_> {
    let key_len = u32::from_be_bytes(bytes[start..start + 4].try_into().expect("four bytes")) as usize;
    KeyRef::trusted(&bytes[start + KEY_OFFSET..start + KEY_OFFSET + key_len])
}

/// Checks every length, key and tag of a block and returns its marks; `see` is told where each cell starts. The
/// error says at which position.
pub(crate) fn check(
    bytes: &[u8],
    layout: CellLayout,
    comparator: CellComparator,
    mut see: impl FnMut(usize),
) -> Result<Box<[u64]>> {
    if bytes.is_empty() || bytes.len() > i32::MAX as usize {
        return Err(Error::corrupt(format!("expected a data block with cells, found {} bytes", bytes.len())));
    }
    let mut starts = Vec::with_capacity(bytes.len() / (MARK_EVERY * 32) + 2);
    let (mut last, mut count) = (0, 0usize);
    check_cells(bytes, layout, |start| {
        if count.is_multiple_of(MARK_EVERY) {
            starts.push(start);
        }
        last = start;
        count += 1;
        see(start);
    })?;
    if starts.last() != Some(&last) {
        starts.push(last);
    }
    Ok(Marks::pack(bytes, &starts, comparator))
}

/// Checks every length, key and tag of plain cells, and tells where each of them starts.
pub(crate) fn check_cells(bytes: &[u8], layout: CellLayout, mut see: impl FnMut(usize)) -> Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        let next =
            check_cell(bytes, at, layout).map_err(|e| e.context(format_args!("cell at position {at}")))?;
        invariant!(
            next > at && next <= bytes.len(),
            "readers trust the lengths of each cell that passes: from {at} to {next} of {}",
            bytes.len()
        );
        see(at);
        at = next;
    }
    Ok(())
}

/// A block's marks as the cache keeps them.
///
/// ```text
/// u64 length of the beginning that all rows share, or NO_HINTS | ( u32 start of a cell | u32 hint )*
/// ```
///
/// The hint is the four bytes of the row behind that beginning, padded with zeros: of two different hints the
/// smaller belongs to the smaller row; equal hints say nothing.
///
/// The cache may keep marks in a file from one life of the process to the next: when you change what they say, also
/// raise the version in `storage/cache/src/tier/saved.rs`.
#[derive(Clone, Copy)]
pub(crate) struct Marks<'a> {
    shared_len: u64,
    marks: &'a [u64],
}

/// Rows of meta do not sort as bytes.
const NO_HINTS: u64 = u64::MAX;

impl<'a> Marks<'a> {
    /// Takes what [`check`] gave.
    #[inline]
    pub(crate) fn of(packed: &'a [u64]) -> Marks<'a> {
        let (&shared_len, marks) = packed.split_first().expect("a checked block has marks");
        Marks { shared_len, marks }
    }

    fn pack(bytes: &[u8], starts: &[usize], comparator: CellComparator) -> Box<[u64]> {
        invariant!(
            starts.is_sorted_by(|left, right| left < right),
            "marks are searched by halves, and a cell that has two would be counted twice"
        );
        let row = |start: usize| key_at(bytes, start).row();
        let (first, last) = (row(starts[0]), row(starts[starts.len() - 1]));
        let shared_len = first.iter().zip(last).take_while(|(f, l)| f == l).count();
        let ordered = comparator == CellComparator::Default;
        let mut packed = Vec::with_capacity(starts.len() + 1);
        packed.push(if ordered { shared_len as u64 } else { NO_HINTS });
        packed.extend(starts.iter().map(|&start| {
            let hint = if ordered { hint_of(row(start), shared_len) } else { 0 };
            (start as u64) << 32 | u64::from(hint)
        }));
        packed.into()
    }

    fn start(&self, at: usize) -> usize {
        (self.marks[at] >> 32) as usize
    }

    /// Start of the last cell.
    pub(crate) fn last_cell(&self) -> usize {
        self.start(self.marks.len() - 1)
    }

    /// Number of leading marks whose cells are before `key`.
    fn count_before(&self, bytes: &[u8], comparator: CellComparator, key: KeyRef<'_>) -> usize {
        let is_before = |mark: u64| compare(bytes, (mark >> 32) as usize, comparator, key).is_lt();
        let (mut low, mut high) = (0, self.marks.len());
        let row = key.row();
        let shared_len = self.shared_len as usize;
        let first_row = || key_at(bytes, self.start(0)).row();
        if self.shared_len != NO_HINTS
            && row.len() >= shared_len
            && first_row().get(..shared_len) == Some(&row[..shared_len])
        {
            let hint = hint_of(row, shared_len);
            low = self.marks.partition_point(|&mark| (mark as u32) < hint);
            high = low + self.marks[low..].partition_point(|&mark| mark as u32 == hint);
        }
        low + self.marks[low..high].partition_point(|&mark| is_before(mark))
    }
}

#[inline]
fn hint_of(row: &[u8], shared_len: usize) -> u32 {
    let rest = row.get(shared_len..).unwrap_or_default();
    match rest.first_chunk::<4>() {
        Some(hint) => u32::from_be_bytes(*hint),
        None => rest.iter().zip([24, 16, 8]).fold(0, |hint, (&b, shift)| hint | u32::from(b) << shift),
    }
}

#[inline]
fn compare(bytes: &[u8], start: usize, comparator: CellComparator, key: KeyRef<'_>) -> Ordering {
    comparator.compare_keys(key_at(bytes, start), key)
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
pub(crate) fn seek(
    bytes: &[u8],
    marks: Marks<'_>,
    layout: CellLayout,
    comparator: CellComparator,
    key: KeyRef<'_>,
    from: usize,
) -> Option<usize> {
    // The cell under the last such mark is before the key; between marks there is no way but to walk.
    let start = match marks.count_before(bytes, comparator, key) {
        0 => from,
        before => from.max(marks.start(before - 1)),
    };
    walk(bytes, layout, comparator, key, start)
}

/// As `seek`, cell by cell from `start` on.
pub(crate) fn walk(
    bytes: &[u8],
    layout: CellLayout,
    comparator: CellComparator,
    key: KeyRef<'_>,
    mut start: usize,
) -> Option<usize> {
    while start < bytes.len() {
        if compare(bytes, start, comparator, key).is_ge() {
            return Some(start);
        }
        start = cell_at(bytes, start, layout).next;
    }
    None
}

/// Start of the last cell whose key is before `key`; `None` if there is none.
pub(crate) fn seek_before(
    bytes: &[u8],
    marks: Marks<'_>,
    layout: CellLayout,
    comparator: CellComparator,
    key: KeyRef<'_>,
) -> Option<usize> {
    let before = marks.count_before(bytes, comparator, key);
    Some(walk_before(bytes, layout, comparator, key, marks.start(before.checked_sub(1)?)))
}

/// Start of the last cell before `key`, from `found` on, which is before it.
pub(crate) fn walk_before(
    bytes: &[u8],
    layout: CellLayout,
    comparator: CellComparator,
    key: KeyRef<'_>,
    mut found: usize,
) -> usize {
    loop {
        let next = cell_at(bytes, found, layout).next;
        if next >= bytes.len() || compare(bytes, next, comparator, key).is_ge() {
            return found;
        }
        found = next;
    }
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
        let marks = check(&bytes, BOTH, CellComparator::Default, |_| {}).unwrap();
        let marks = Marks::of(&marks);
        assert_eq!((marks.marks.len(), marks.start(0), marks.last_cell()), (2, 0, 30));
        let first = cell_at(&bytes, 0, BOTH);
        let cell = first.cell(&bytes);
        assert_eq!(
            (cell.row(), cell.value(), cell.timestamp(), cell.seq()),
            (&b"r1"[..], &b"v1"[..], 1000, 5)
        );
        CellRef::parse(cell.bytes(), 0).unwrap();
        let second = cell_at(&bytes, first.next, BOTH).cell(&bytes);
        assert_eq!((second.row(), second.timestamp(), second.seq()), (&b"r2"[..], 900, 300));
        let reset = CellLayout { seq: Some(SeqId::new(7)), ..BOTH };
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
                    let Ok(marks) = check(&bad, layout, CellComparator::Default, |_| {}) else { continue };
                    let marks = Marks::of(&marks);
                    let mut start = 0;
                    while start < bad.len() {
                        let span = cell_at(&bad, start, layout);
                        CellRef::parse(span.cell(&bad).bytes(), 0).unwrap();
                        start = span.next;
                    }
                    let key = halcyon_cell::Key::first_on_row(b"r2");
                    let _ = seek(&bad, marks, layout, CellComparator::Default, key.get(), 0);
                    let _ = seek_before(&bad, marks, layout, CellComparator::Default, key.get());
                }
            }
        }
    }
}
