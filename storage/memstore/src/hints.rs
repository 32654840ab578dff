//! Where rows begin, for those that were read before.
//!
//! A search in a large list is a row of waits for memory. Those who read tend to read the same rows again: a table with a
//! place for each hash of a row remembers the node in front of what was found last. Nodes stay where they are in the order,
//! so such a node is never wrong, only far away by now, or of another row with the same hash; whoever uses it looks. Most
//! nodes of other rows are known by a few bits of their hashes, so that they need not be waited for.
//!
//! # Invariants
//! - A table and the nodes that it points at live as long as the list: both lie in chunks of its segment.

use std::mem::size_of;
use std::ptr::NonNull;
#[cfg(not(halcyon_shuttle))]
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(halcyon_shuttle)]
use shuttle::sync::atomic::{AtomicPtr, Ordering};

use crate::node::{NodeRef, TAGS, TaggedLink};

/// Bytes of chunks for which there is one place, when a table is new.
const BYTES_PER_PLACE: usize = 512;
const PLACES_MIN: usize = 8;
const PLACES_MAX: usize = 1 << 20;

/// The table in use, if any. *Thread safety*: looked at from any thread; replaced by one at a time.
pub(crate) struct RowHints {
    table: AtomicPtr<Table>,
}

/// Where a row may be remembered.
pub(crate) struct Place<'t> {
    link: &'t TaggedLink,
    tag: usize,
}

impl<'t> Place<'t> {
    /// The node in front of the row, or of another one.
    #[inline]
    pub(crate) fn load(&self) -> Option<NodeRef<'t>> {
        self.link.load(self.tag)
    }

    /// # Safety
    /// `node` is in the list whose hints these are.
    #[inline]
    pub(crate) unsafe fn remember(&self, node: NodeRef<'_>) {
        // SAFETY: it lives as long as the list and its hints; the tag is one of `TAGS` parts.
        unsafe { self.link.set(node, self.tag) };
    }
}

/// Followed by as many places.
#[repr(C)]
struct Table {
    places_count: usize,
}

impl RowHints {
    pub(crate) fn none() -> RowHints {
        RowHints { table: AtomicPtr::default() }
    }

    fn table(&self) -> Option<NonNull<Table>> {
        // Acquire: pairs with `replace`.
        NonNull::new(self.table.load(Ordering::Acquire))
    }

    fn places(&self) -> &[TaggedLink] {
        let Some(table) = self.table() else { return &[] };
        // SAFETY: `replace` wrote the table and its places, which live as long as this value; the pointer comes from the
        // whole range.
        unsafe {
            let count = table.as_ref().places_count;
            std::slice::from_raw_parts(table.add(1).cast::<TaggedLink>().as_ptr(), count)
        }
    }

    /// The place of a row.
    #[inline]
    pub(crate) fn place(&self, row: &[u8]) -> Option<Place<'_>> {
        let places = self.places();
        // Where the hash lies among all, in places, and then within its place, in tags: its upper bits are the mixed ones.
        let split = |part: u64, parts: usize| {
            let product = u128::from(part) * parts as u128;
            ((product >> 64) as usize, product as u64)
        };
        let (at, within) = split(hash(row), places.len());
        let link = places.get(at)?;
        Some(Place { link, tag: split(within, TAGS).0 })
    }

    /// How many places a larger table is to have when this many bytes are held; `None` if there are enough.
    pub(crate) fn wanted_places(&self, held_bytes: usize) -> Option<usize> {
        let wanted = (held_bytes / BYTES_PER_PLACE).min(PLACES_MAX);
        let wanted = (wanted + 1).next_power_of_two() / 2;
        // With what stands in front of them they fill pages.
        (wanted >= PLACES_MIN && wanted > 4 * self.places().len()).then_some(wanted - 1)
    }

    /// Goes on with an empty table of so many places.
    ///
    /// # Safety
    /// `range` is writable, not shared, aligned to 8, of at least [`table_len`] bytes, and lives as long as this value.
    /// Nobody else replaces the table.
    pub(crate) unsafe fn replace(&self, range: NonNull<u8>, places_count: usize) {
        assert!(
            (1..=PLACES_MAX).contains(&places_count),
            "a table has places, and no more than a search of any list gains by: {places_count}"
        );
        let table = range.cast::<Table>();
        // SAFETY: the caller promised room, alignment and that nobody else has the range.
        unsafe {
            table.write(Table { places_count });
            let places = table.add(1).cast::<TaggedLink>();
            for at in 0..places_count {
                places.add(at).write(TaggedLink::end());
            }
        }
        self.table.store(table.as_ptr(), Ordering::Release);
    }
}

pub(crate) const fn table_len(places_count: usize) -> usize {
    size_of::<Table>() + places_count * size_of::<TaggedLink>()
}

/// Spreads rows over places; equal for equal rows.
#[inline]
fn hash(row: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = row.len() as u64;
    let mut add = |word: u64| hash = (hash.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = row.as_chunks::<8>();
    words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    add(u64::from_le_bytes(last));
    hash
}

#[cfg(test)]
mod tests {
    use halcyon_cell::{Cell, CellComparator, Key, SeqId};

    use crate::{ChunkPool, Segment};

    /// What one row has left at a place is nothing for another row with other bits.
    #[test]
    fn a_node_of_another_row_is_known_by_its_tag() {
        let segment = Segment::new(ChunkPool::new(4096, 0), CellComparator::Default);
        let rows: Vec<_> = (0..200).map(|at| format!("row{at:04}")).collect();
        for row in &rows {
            let cell = Cell::put(row.as_bytes(), b"f", b"q", 1, &[b'v'; 100]);
            segment.insert(segment.prepare(cell.bytes(), None), SeqId::new(1));
        }
        let list = segment.list();
        let (mut same, mut others) = (0, 0);
        for row in &rows[1..] {
            let key = Key::first_on_row(row.as_bytes());
            list.find(&list.order().target(key.get()));
            let place = list.hints().place(row.as_bytes()).expect("there is a table");
            for other in rows.iter().filter(|other| *other != row) {
                let of_other = list.hints().place(other.as_bytes()).expect("there is a table");
                if std::ptr::eq(place.link, of_other.link) {
                    assert_eq!(of_other.load().is_some(), place.tag == of_other.tag, "{row} {other}");
                    *if place.tag == of_other.tag { &mut same } else { &mut others } += 1;
                }
            }
        }
        assert!(others > 4 * same, "{others} of other tags, {same} of the same");
    }
}
