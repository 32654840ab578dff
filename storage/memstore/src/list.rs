//! The skip list: inserts without locks, no removal.
//!
//! A node is linked level by level from the bottom. On each level the link in front of it is changed by one
//! compare-and-swap; if another insert was faster, the search on that level goes on from where it stood. A
//! node that is linked at the bottom is in the list; the upper levels are shortcuts, and a search is right
//! with any part of them missing.
//!
//! Nodes are ordered by key, then by descending sequence id. A node goes in front of equal ones, and then
//! marks the one behind it as replaced, so of equal nodes only the first is unmarked. Between the two steps a
//! reader may see both; the read point keeps readers away until the insert has returned.

use std::cmp::Ordering;

use halcyon_cell::{CellComparator, KeyRef};

use crate::node::{HEIGHT_MAX, Link, NodeRef, row_prefix};

/// What is looked for: a place among the keys, and among equal keys a place among the sequence ids.
pub(crate) struct Target<'k> {
    row_prefix: u64,
    key: KeyRef<'k>,
    seq: u64,
}

pub(crate) struct SkipList {
    head: [Link; HEIGHT_MAX],
    comparator: CellComparator,
}

impl SkipList {
    pub(crate) fn new(comparator: CellComparator) -> SkipList {
        SkipList { head: std::array::from_fn(|_| Link::end()), comparator }
    }

    pub(crate) fn comparator(&self) -> CellComparator {
        self.comparator
    }

    /// Whether nodes of this list carry row prefixes: the meta order does not agree with them.
    pub(crate) fn is_prefixed(&self) -> bool {
        self.comparator == CellComparator::Default
    }

    /// The place in front of all cells of `key` and of those behind it.
    #[inline]
    pub(crate) fn target<'k>(&self, key: KeyRef<'k>) -> Target<'k> {
        Target { row_prefix: if self.is_prefixed() { row_prefix(key.row()) } else { 0 }, key, seq: u64::MAX }
    }

    /// The place of a node among the others.
    #[inline]
    pub(crate) fn target_of<'k>(&self, node: NodeRef<'k>) -> Target<'k> {
        Target { row_prefix: node.row_prefix(), key: node.cell().key(), seq: node.seq() }
    }

    /// Whether the node belongs before the target.
    #[inline]
    pub(crate) fn is_before(&self, node: NodeRef<'_>, target: &Target<'_>) -> bool {
        if node.row_prefix() != target.row_prefix {
            return node.row_prefix() < target.row_prefix;
        }
        match self.comparator.compare_keys(node.cell().key(), target.key) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => node.seq() > target.seq,
        }
    }

    pub(crate) fn first(&self) -> Option<NodeRef<'_>> {
        self.head[0].load()
    }

    /// The first node that is not before the target.
    pub(crate) fn find(&self, target: &Target<'_>) -> Option<NodeRef<'_>> {
        self.find_below(&self.head, HEIGHT_MAX, target)
    }

    /// As [`SkipList::find`], starting at a node before the target: takes time by the logarithm of the way.
    pub(crate) fn find_after<'a>(&'a self, from: NodeRef<'a>, target: &Target<'_>) -> Option<NodeRef<'a>> {
        let mut links = from.links();
        while let Some(next) = links[links.len() - 1].load() {
            if !self.is_before(next, target) {
                break;
            }
            links = next.links();
        }
        self.find_below(links, links.len(), target)
    }

    /// Goes down from level `height - 1` of the node whose `links` these are.
    fn find_below<'a>(
        &'a self,
        mut links: &'a [Link],
        height: usize,
        target: &Target<'_>,
    ) -> Option<NodeRef<'a>> {
        let mut found = None;
        for level in (0..height).rev() {
            (links, found) = self.advance(links, level, found, target);
        }
        found
    }

    /// Walks one level from `links` to the last node before the target; returns its links and what follows.
    /// `known` was found not to be before the target one level up and is not compared again.
    #[inline]
    fn advance<'a>(
        &'a self,
        mut links: &'a [Link],
        level: usize,
        known: Option<NodeRef<'a>>,
        target: &Target<'_>,
    ) -> (&'a [Link], Option<NodeRef<'a>>) {
        let mut next = links[level].load();
        prefetch_below(links, level);
        while let Some(node) = next {
            if next == known || !self.is_before(node, target) {
                break;
            }
            links = node.links();
            next = links[level].load();
            prefetch_below(links, level);
        }
        (links, next)
    }

    /// The last node before the target.
    pub(crate) fn find_last_before(&self, target: &Target<'_>) -> Option<NodeRef<'_>> {
        self.find_last(|node| self.is_before(node, target))
    }

    /// The last node of the list.
    pub(crate) fn last(&self) -> Option<NodeRef<'_>> {
        self.find_last(|_| true)
    }

    fn find_last<'a>(&'a self, is_before: impl Fn(NodeRef<'a>) -> bool) -> Option<NodeRef<'a>> {
        let mut last: Option<NodeRef<'a>> = None;
        for level in (0..HEIGHT_MAX).rev() {
            let mut links = last.map_or(&self.head[..], NodeRef::links);
            while let Some(next) = links[level].load() {
                if !is_before(next) {
                    break;
                }
                last = Some(next);
                links = next.links();
            }
        }
        last
    }

    /// Links a node; returns whether it replaces an equal one.
    ///
    /// # Safety
    /// The node lives as long as the list, was written for a list of this comparator, is in no list yet, and
    /// nobody else is linking it.
    pub(crate) unsafe fn insert(&self, node: NodeRef<'_>) -> bool {
        let target = self.target_of(node);
        let height = node.links().len();
        let mut places: [(&[Link], Option<NodeRef<'_>>); HEIGHT_MAX] = [(&self.head, None); HEIGHT_MAX];
        let (mut links, mut next) = (&self.head[..], None);
        for level in (0..HEIGHT_MAX).rev() {
            (links, next) = self.advance(links, level, next, &target);
            places[level] = (links, next);
        }
        let mut replaces = false;
        for (level, place) in places.iter_mut().enumerate().take(height) {
            let (links, next) = place;
            loop {
                // SAFETY: `next` is in the list and so lives as long as the list, as does `node`.
                unsafe { node.set_link(level, *next) };
                // SAFETY: the caller promised that the node lives as long as the list and its links.
                if unsafe { links[level].swap_in(*next, node) } {
                    break;
                }
                (*links, *next) = self.advance(links, level, None, &target);
            }
            if level == 0
                && let Some(next) = *next
                && self.is_equal(node, next)
            {
                next.mark_replaced();
                replaces = true;
            }
        }
        replaces
    }

    fn is_equal(&self, left: NodeRef<'_>, right: NodeRef<'_>) -> bool {
        left.seq() == right.seq()
            && left.row_prefix() == right.row_prefix()
            && self.comparator.compare_keys(left.cell().key(), right.cell().key()) == Ordering::Equal
    }
}

/// Asks for the node that comes next if the search goes down a level, while the one on this level is compared:
/// in a large list both are far away, and so they are waited for at the same time.
#[inline]
fn prefetch_below(links: &[Link], level: usize) {
    if let Some(below) = level.checked_sub(1)
        && let Some(node) = links[below].load()
    {
        node.prefetch();
    }
}
