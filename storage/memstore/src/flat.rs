//! Flat segments: cells that came from skip lists, in one sorted array.
//!
//! Nothing is inserted any more, so the links of the nodes are not needed. The array says where each node is, and
//! beside it stands the row prefix: a search in it touches few nodes, and a walk knows long before where it is going.
//! The nodes stay where they are; the segments that own their chunks are held.

use std::cmp::Ordering;
use std::ptr::NonNull;
use std::sync::Arc;

use halcyon_cell::{
    Cell, CellComparator, CellRef, CellScanner, KeyRef, ReadPoint, Result, SeqId, SharedCells,
};
use halcyon_env::invariant;

use crate::node::{Header, NodeRef};
use crate::order::{Order, Target};
use crate::scanner::{owned_cell, share_cell};
use crate::{Segment, SegmentSize};

/// Nodes that a walk asks for ahead of time.
const AHEAD: usize = 8;

/// An immutable segment. The role of HBase's `CellArrayImmutableSegment`.
///
/// *Thread safety*: nothing changes after the making.
///
/// *Invariant*: the entries are in order, no two of them are equal, and all their nodes lie in chunks of `owners`.
pub struct FlatSegment {
    order: Order,
    entries: Box<[Entry]>,
    owners: Vec<Arc<Segment>>,
    max_seq: SeqId,
}

#[derive(Clone, Copy)]
struct Entry {
    /// In the order of this segment, which may be another than the one that the node was written for.
    row_prefix: u64,
    node: NonNull<Header>,
}

// SAFETY: says where a node is; who goes there answers for it.
unsafe impl Send for Entry {}
// SAFETY: the nodes are never written again, and the segments that keep them alive are thread-safe.
unsafe impl Send for FlatSegment {}
// SAFETY: as above.
unsafe impl Sync for FlatSegment {}

/// The array may be large: who lets go of it last does not free it, the pool sees to that.
impl Drop for FlatSegment {
    fn drop(&mut self) {
        let bytes = std::mem::size_of_val(&self.entries[..]);
        self.owners[0].pool().release(Box::new(std::mem::take(&mut self.entries)), bytes);
    }
}

impl FlatSegment {
    /// The cells of a segment that takes no more inserts.
    pub fn of(segment: &Arc<Segment>) -> Arc<FlatSegment> {
        let mut entries = Vec::with_capacity(segment.size().cells_count);
        let mut max_seq = SeqId::ZERO;
        let mut next = segment.list().first();
        while let Some(node) = next {
            if !node.is_replaced() {
                entries.push(Entry { row_prefix: node.row_prefix(), node: node.address() });
                max_seq = max_seq.max(node.seq());
            }
            next = node.links()[0].load();
        }
        let order = segment.list().order().clone();
        FlatSegment::made(order, entries, max_seq, vec![segment.clone()])
    }

    /// The cells of several as one, the newest first: of equal cells the first counts.
    pub fn merged(parts: &[Arc<FlatSegment>]) -> Arc<FlatSegment> {
        let newest = parts.first().expect("a flat segment is made of something");
        let order = newest.order.clone();
        let mut entries = newest.entries.to_vec();
        for part in &parts[1..] {
            if part.order.row_start() == order.row_start() {
                entries = merge(&order, &entries, &part.entries);
                continue;
            }
            let of_order = |entry: &Entry| {
                let row_prefix = order.prefix_of(part.node(entry).cell().row());
                Entry { row_prefix, node: entry.node }
            };
            entries = merge(&order, &entries, &part.entries.iter().map(of_order).collect::<Vec<_>>());
        }
        let counts = || parts.iter().map(|part| part.entries.len());
        assert!(
            (counts().max().unwrap_or(0)..=counts().sum()).contains(&entries.len()),
            "{} cells of {} are left: only equal ones are left out, and each segment has one of them",
            entries.len(),
            counts().sum::<usize>()
        );
        let owners = parts.iter().flat_map(|part| part.owners.iter().cloned()).collect();
        let max_seq = parts.iter().map(|part| part.max_seq).max().unwrap_or_default();
        FlatSegment::made(order, entries, max_seq, owners)
    }

    fn made(
        order: Order,
        entries: Vec<Entry>,
        max_seq: SeqId,
        owners: Vec<Arc<Segment>>,
    ) -> Arc<FlatSegment> {
        invariant!(
            entries.windows(2).all(|pair| {
                // SAFETY: the caller gives the owners that keep the nodes.
                let of = |entry: &Entry| (entry.row_prefix, unsafe { NodeRef::new(entry.node) });
                order.compare(of(&pair[0]), of(&pair[1])) == Ordering::Less
            }),
            "a flat segment is searched by halves, so its cells are in order and each is there once"
        );
        invariant!(
            // SAFETY: as above.
            entries.iter().all(|entry| unsafe { NodeRef::new(entry.node) }.seq() <= max_seq),
            "no cell is newer than {max_seq}: a read at that point takes the whole segment"
        );
        assert!(!owners.is_empty(), "the nodes of a flat segment lie in chunks that a segment holds for it");
        let entries = entries.into_boxed_slice();
        owners[0].pool().charge(std::mem::size_of_val(&entries[..]));
        Arc::new(FlatSegment { order, entries, owners, max_seq })
    }

    fn node<'s>(&'s self, entry: &Entry) -> NodeRef<'s> {
        // SAFETY: the invariant: the node is written, and its chunk is held by one of `owners`.
        unsafe { NodeRef::new(entry.node) }
    }

    pub fn comparator(&self) -> CellComparator {
        self.order.comparator()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What is held in memory for it. The array counts as overhead.
    pub fn size(&self) -> SegmentSize {
        let mut size = SegmentSize {
            data_bytes: 0,
            overhead_bytes: std::mem::size_of_val(&self.entries[..]),
            cells_count: self.entries.len(),
        };
        for owner in &self.owners {
            size.data_bytes += owner.size().data_bytes;
            size.overhead_bytes += owner.size().overhead_bytes;
        }
        size
    }

    /// Bytes of the chunks that hold its cells, and of the array.
    pub fn chunks_bytes(&self) -> usize {
        let owners = self.owners.iter().map(|owner| owner.chunks_bytes()).sum::<usize>();
        owners + std::mem::size_of_val(&self.entries[..])
    }

    /// Different columns of different rows among the cells: the others are further versions of them. Takes time by
    /// the number of cells.
    pub fn columns_count(&self) -> usize {
        let is_same = |pair: &[Entry]| {
            let (first, second) = (self.node(&pair[0]).cell(), self.node(&pair[1]).cell());
            pair[0].row_prefix == pair[1].row_prefix
                && first.row() == second.row()
                && first.family() == second.family()
                && first.qualifier() == second.qualifier()
        };
        self.entries.len() - self.entries.windows(2).filter(|pair| is_same(pair)).count()
    }

    /// The largest sequence id; 0 if there is no cell.
    pub fn max_seq(&self) -> SeqId {
        self.max_seq
    }

    /// A scanner over the cells with sequence ids up to `read_point`. Keeps the segment alive.
    pub fn scanner(self: &Arc<Self>, read_point: ReadPoint) -> FlatScanner {
        FlatScanner { segment: self.clone(), read_point, at: self.entries.len() }
    }

    /// Entries before all cells of `key` and of those behind it.
    fn place_of(&self, key: KeyRef<'_>) -> usize {
        let target = self.order.target(key);
        self.entries
            .partition_point(|entry| self.order.is_before(entry.row_prefix, self.node(entry), &target))
    }

    /// Entries before the target, beginning the search at `from`, which is not behind it: takes time by the logarithm
    /// of the way.
    fn count_before(&self, from: usize, target: &Target<'_>) -> usize {
        let is_before = |entry: &Entry| self.order.is_before(entry.row_prefix, self.node(entry), target);
        let rest = &self.entries[from..];
        let mut reach = 1;
        while reach < rest.len() && is_before(&rest[reach]) {
            reach *= 2;
        }
        let (start, end) = (reach / 2, rest.len().min(reach + 1));
        let found = from + start + rest[start..end].partition_point(is_before);
        invariant!(
            found == from + rest.partition_point(is_before),
            "a search in growing steps finds what a search by halves finds"
        );
        found
    }
}

/// Two sorted runs as one; of equal nodes the one of `first` stays.
fn merge(order: &Order, first: &[Entry], second: &[Entry]) -> Vec<Entry> {
    // SAFETY: both runs are of nodes that the caller keeps alive.
    let of = |entry: &Entry| (entry.row_prefix, unsafe { NodeRef::new(entry.node) });
    // Rows that come in their order: nothing has to be compared.
    let is_before = |earlier: &[Entry], later: &[Entry]| match (earlier.last(), later.first()) {
        (Some(end), Some(start)) => order.compare(of(end), of(start)) == Ordering::Less,
        _ => true,
    };
    if is_before(first, second) {
        return [first, second].concat();
    }
    if is_before(second, first) {
        return [second, first].concat();
    }
    let mut merged = Vec::with_capacity(first.len() + second.len());
    let (mut left, mut right) = (first.iter().peekable(), second.iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let next = match order.compare(of(a), of(b)) {
            Ordering::Less => left.next(),
            Ordering::Greater => right.next(),
            Ordering::Equal => {
                right.next();
                left.next()
            }
        };
        merged.extend(next.copied());
    }
    merged.extend(left.chain(right).copied());
    merged
}

/// Walks a flat segment at one read point. Never fails.
pub struct FlatScanner {
    segment: Arc<FlatSegment>,
    read_point: ReadPoint,
    /// The number of entries stands for "nowhere".
    at: usize,
}

impl FlatScanner {
    #[inline]
    fn node(&self) -> Option<NodeRef<'_>> {
        self.segment.entries.get(self.at).map(|entry| self.segment.node(entry))
    }

    fn is_visible(&self, at: usize) -> bool {
        self.read_point.sees(self.segment.node(&self.segment.entries[at]).seq())
    }

    /// Goes to the first visible cell from `at` on.
    #[inline]
    fn settle_from(&mut self, mut at: usize) {
        let entries = &self.segment.entries;
        while at < entries.len() && !self.is_visible(at) {
            at += 1;
        }
        self.at = at;
        if let Some(ahead) = entries.get(at + AHEAD) {
            self.segment.node(ahead).prefetch();
        }
    }

    /// Goes to the last visible cell in front of `end`.
    fn settle_before(&mut self, end: usize) {
        self.at = (0..end).rev().find(|at| self.is_visible(*at)).unwrap_or(self.segment.entries.len());
    }
}

impl CellScanner for FlatScanner {
    #[inline]
    fn peek(&self) -> Option<CellRef<'_>> {
        invariant!(
            self.node().is_none_or(|node| node.seq().get() <= self.read_point.get()),
            "a scanner stands on a cell that its read point {} sees",
            self.read_point
        );
        self.node().map(NodeRef::cell)
    }

    fn cell(&self) -> Option<Cell> {
        self.node().map(owned_cell)
    }

    #[inline]
    fn share(&self, out: &mut SharedCells) {
        if let Some(node) = self.node() {
            share_cell(node, out);
        }
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.at < self.segment.entries.len() {
            self.settle_from(self.at + 1);
        }
        Ok(())
    }

    fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.settle_from(self.segment.place_of(key));
        Ok(())
    }

    fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        if self.at >= self.segment.entries.len() {
            return self.seek(key);
        }
        let at = self.segment.count_before(self.at, &self.segment.order.target(key));
        if at > self.at {
            self.settle_from(at);
        }
        Ok(())
    }

    fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()> {
        self.settle_before(self.segment.place_of(key));
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.settle_before(self.segment.entries.len());
        Ok(())
    }
}
