use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_cell::{Cell, CellRef, CellScanner, KeyRef, ReadPoint, Result, SharedCells};
use halcyon_env::invariant;

use crate::Segment;
use crate::lookahead::Lookahead;
use crate::node::{Header, NodeRef};

/// Cells below this size are copied by [`SegmentScanner::cell`] instead of shared. Both ways take one
/// allocation, copying so few bytes costs no more than counting references on a line that all threads write,
/// and a small cell in some queue does not hold on to a whole chunk.
const SHARED_LEN_MIN: usize = 512;

/// Walks one segment at one read point.
///
/// Holds the segment. Never fails: the errors of [`CellScanner`] are for disks. Cells that are inserted while it
/// stands somewhere appear if they come behind its position and are not above the read point.
pub struct SegmentScanner {
    segment: Arc<Segment>,
    read_point: ReadPoint,
    /// A linked node of the segment.
    position: Option<NonNull<Header>>,
    /// Holds nodes of the segment: `'static` stands for "as long as `segment` is held".
    lookahead: Lookahead<'static>,
}

// SAFETY: position and lookahead are shared borrows of nodes that `segment` keeps alive, and segments are
// thread-safe.
unsafe impl Send for SegmentScanner {}

impl SegmentScanner {
    pub(crate) fn new(segment: Arc<Segment>, read_point: ReadPoint) -> SegmentScanner {
        SegmentScanner { segment, read_point, position: None, lookahead: Lookahead::default() }
    }

    pub fn read_point(&self) -> ReadPoint {
        self.read_point
    }

    #[inline]
    fn node(&self) -> Option<NodeRef<'_>> {
        // SAFETY: `position` came from a node of the segment's list, and the segment is held.
        self.position.map(|at| unsafe { NodeRef::new(at) })
    }

    #[inline]
    fn is_visible(&self, node: NodeRef<'_>) -> bool {
        self.read_point.sees(node.seq()) && !node.is_replaced()
    }

    /// Goes to the first visible node from `node` on.
    fn settle_from(&mut self, node: Option<NonNull<Header>>) {
        self.lookahead = Lookahead::default();
        self.position = node;
        // SAFETY: `node` is one of the segment's list, and the segment is held.
        if let Some(node) = node.map(|at| unsafe { NodeRef::new(at) })
            && !self.is_visible(node)
        {
            self.step();
        }
    }

    /// Goes to the next visible node.
    #[inline]
    fn step(&mut self) {
        while let Some(at) = self.position {
            // SAFETY: `position` came from a node of the segment's list, and the segment is held. Only
            // `lookahead` keeps this lifetime, and nothing of it is used once the segment goes.
            let node: NodeRef<'static> = unsafe { NodeRef::new(at) };
            let next = node.links()[0].load();
            self.position = next.map(NodeRef::address);
            if let Some(next) = next {
                invariant!(
                    self.segment.list().compare(node, next).is_le(),
                    "a scan goes forward: {:?} comes after {:?}",
                    next.cell(),
                    node.cell()
                );
                self.lookahead.step(next);
                if self.is_visible(next) {
                    break;
                }
            }
        }
    }

    /// The last visible node up to `node`.
    fn visible_back_from<'a>(&'a self, mut node: Option<NodeRef<'a>>) -> Option<NonNull<Header>> {
        let list = self.segment.list();
        while let Some(found) = node {
            if self.is_visible(found) {
                return Some(found.address());
            }
            let target = list.target_of(found);
            node = if !self.read_point.sees(found.seq()) {
                list.find_last_before(&target)
            } else {
                list.find(&target) // replaced: the first of the equal ones is not
            };
        }
        None
    }
}

/// A cell that stays when the scanner goes on.
pub(crate) fn owned_cell(node: NodeRef<'_>) -> Cell {
    let cell = node.cell();
    let bytes = if cell.bytes().len() < SHARED_LEN_MIN {
        Bytes::copy_from_slice(cell.bytes())
    } else {
        node.share_cell()
    };
    Cell::trusted(bytes, cell.seq())
}

/// Puts a cell among others that stay when the scanner goes on.
#[inline]
pub(crate) fn share_cell(node: NodeRef<'_>, out: &mut SharedCells) {
    let cell = node.cell();
    if cell.bytes().len() < SHARED_LEN_MIN {
        out.push_copy(cell);
    } else {
        out.push(Cell::trusted(node.share_cell(), cell.seq()));
    }
}

impl CellScanner for SegmentScanner {
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
        self.step();
        Ok(())
    }

    fn seek(&mut self, key: KeyRef<'_>) -> Result<()> {
        let list = self.segment.list();
        let found = list.find(&list.order().target(key)).map(NodeRef::address);
        self.settle_from(found);
        Ok(())
    }

    fn reseek(&mut self, key: KeyRef<'_>) -> Result<()> {
        let list = self.segment.list();
        let target = list.order().target(key);
        let found = match self.node() {
            None => list.find(&target),
            Some(here) if list.is_before(here, &target) => list.find_after(here, &target),
            Some(_) => return Ok(()),
        };
        let found = found.map(NodeRef::address);
        self.settle_from(found);
        Ok(())
    }

    fn seek_before(&mut self, key: KeyRef<'_>) -> Result<()> {
        let list = self.segment.list();
        self.position = self.visible_back_from(list.find_last_before(&list.order().target(key)));
        self.lookahead = Lookahead::default();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position = self.visible_back_from(self.segment.list().last());
        self.lookahead = Lookahead::default();
        Ok(())
    }
}
