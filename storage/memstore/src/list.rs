//! The skip list: inserts without locks, no removal.
//!
//! A node is linked level by level from the bottom. On each level the link in front of it is changed by one
//! compare-and-swap; if another insert was faster, the search on that level goes on from where it stood. A
//! node that is linked at the bottom is in the list; the upper levels are shortcuts, and a search is right
//! with any part of them missing.
//!
//! A node goes in front of equal ones, and then marks the one behind it as replaced, so of equal nodes only the
//! first is unmarked. Between the two steps a reader may see both; the read point keeps readers away until the
//! insert has returned.
//!
//! Rows often come in their order. So the list remembers the last node of each level, and a node that belongs behind
//! the last but a few is looked for from there. These *tails* are hints: threads may set them in any order, and each
//! is compared with the new node before it is followed.

use crate::node::{HEIGHT_MAX, Link, NodeRef};
use crate::order::{Order, Target};

pub(crate) struct SkipList {
    head: [Link; HEIGHT_MAX],
    /// Of each level a node that was its last once; it reaches that level.
    tails: [Link; HEIGHT_MAX],
    order: Order,
}

/// For each level the links in front of a place, and what follows them.
pub(crate) type Places<'l> = [(&'l [Link], Option<NodeRef<'l>>); HEIGHT_MAX];

/// Searches that go on at the same time: enough that a node has arrived when its search's turn comes again, and few
/// enough that what they look at stays in the nearest cache.
pub(crate) const SEARCHES_MAX: usize = 8;

/// Levels from whose tails a search begins. About 4^3 nodes lie behind the farthest.
const TAIL_LEVELS: usize = if HEIGHT_MAX < 4 { HEIGHT_MAX } else { 4 };

/// One of several searches that take turns.
struct Search<'l, 'k> {
    target: Target<'k>,
    level: usize,
    links: &'l [Link],
    /// Was found not to be before the target one level up.
    known: Option<NodeRef<'l>>,
    /// What follows `links`; on its way into the cache.
    next: Option<NodeRef<'l>>,
}

impl SkipList {
    pub(crate) fn new(order: Order) -> SkipList {
        let ends = || std::array::from_fn(|_| Link::end());
        SkipList { head: ends(), tails: ends(), order }
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// The place of a node among the others.
    #[inline]
    pub(crate) fn target_of<'k>(&self, node: NodeRef<'k>) -> Target<'k> {
        Target { row_prefix: node.row_prefix(), key: node.cell().key(), seq: node.seq() }
    }

    /// Whether the node belongs before the target.
    #[inline]
    pub(crate) fn is_before(&self, node: NodeRef<'_>, target: &Target<'_>) -> bool {
        self.order.is_before(node.row_prefix(), node, target)
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

    /// Links nodes in order; returns how many replace an equal one.
    ///
    /// Their places are looked for at the same time, [`SEARCHES_MAX`] by [`SEARCHES_MAX`]. In a large list a search
    /// mostly waits for memory, and so it waits once for all of them.
    ///
    /// # Safety
    /// The nodes live as long as the list, were written for a list of this comparator and row start, are in no list
    /// yet, and nobody else is linking them.
    pub(crate) unsafe fn insert_all<'l>(&'l self, nodes: &[NodeRef<'l>]) -> usize {
        if let [node] = nodes {
            // SAFETY: the caller's promise.
            return usize::from(unsafe { self.insert(*node) });
        }
        let mut replaced = 0;
        let mut places: [Places<'l>; SEARCHES_MAX] = [[(&self.head, None); HEIGHT_MAX]; SEARCHES_MAX];
        for group in nodes.chunks(SEARCHES_MAX) {
            if self.belongs_near_end(&self.target_of(group[0])) {
                for node in group {
                    // SAFETY: the caller's promise.
                    replaced += usize::from(unsafe { self.insert(*node) });
                }
                continue;
            }
            self.find_places(group, &mut places);
            for (node, places) in group.iter().zip(&mut places) {
                // SAFETY: the caller's promise.
                replaced += usize::from(unsafe { self.link(*node, places) });
            }
        }
        replaced
    }

    /// Links a node; returns whether it replaces an equal one.
    ///
    /// # Safety
    /// As for [`SkipList::insert_all`].
    pub(crate) unsafe fn insert<'l>(&'l self, node: NodeRef<'l>) -> bool {
        let target = self.target_of(node);
        let mut places: Places<'l> = [(&self.head, None); HEIGHT_MAX];
        if !self.find_places_near_end(node.links().len(), &target, &mut places) {
            let (mut links, mut next) = (&self.head[..], None);
            for level in (0..HEIGHT_MAX).rev() {
                (links, next) = self.advance(links, level, next, &target);
                places[level] = (links, next);
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.link(node, &mut places) }
    }

    /// The tail of a level, if it is before the target.
    #[inline]
    fn tail_before(&self, level: usize, target: &Target<'_>) -> Option<NodeRef<'_>> {
        self.tails[level].load().filter(|tail| self.is_before(*tail, target))
    }

    #[inline]
    fn belongs_near_end(&self, target: &Target<'_>) -> bool {
        self.tail_before(TAIL_LEVELS - 1, target).is_some()
    }

    /// The places on the lowest `height` levels for a target behind the last nodes but a few; false if it is not.
    #[inline]
    fn find_places_near_end<'l>(
        &'l self,
        height: usize,
        target: &Target<'_>,
        places: &mut Places<'l>,
    ) -> bool {
        if !self.belongs_near_end(target) {
            return false;
        }
        let nearest = (0..TAIL_LEVELS).find_map(|level| Some((level, self.tail_before(level, target)?)));
        let Some((nearest_level, nearest)) = nearest else { return false };
        for (level, place) in places.iter_mut().enumerate().take(height).skip(nearest_level + 1) {
            let links = self.tail_before(level, target).map_or(&self.head[..], NodeRef::links);
            *place = self.advance(links, level, None, target);
        }
        let (mut links, mut next) = (nearest.links(), None);
        for level in (0..=nearest_level).rev() {
            (links, next) = self.advance(links, level, next, target);
            places[level] = (links, next);
        }
        true
    }

    /// Links a node at its places; where something came in between since they were found, the search goes on there.
    ///
    /// # Safety
    /// As for [`SkipList::insert_all`].
    unsafe fn link<'l>(&'l self, node: NodeRef<'l>, places: &mut Places<'l>) -> bool {
        let mut replaces = false;
        for (level, (links, next)) in places.iter_mut().enumerate().take(node.links().len()) {
            loop {
                // SAFETY: `next` is in the list and so lives as long as the list, as does `node`.
                unsafe { node.set_link(level, *next) };
                // SAFETY: the caller promised that the node lives as long as the list and its links.
                if unsafe { links[level].swap_in(*next, node) } {
                    break;
                }
                (*links, *next) = self.advance(links, level, None, &self.target_of(node));
            }
            if next.is_none() {
                // SAFETY: the caller promised that the node lives as long as the list and its links.
                unsafe { self.tails[level].set(node) };
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

    /// The places of at most [`SEARCHES_MAX`] nodes, all levels of them.
    fn find_places<'l>(&'l self, nodes: &[NodeRef<'l>], places: &mut [Places<'l>; SEARCHES_MAX]) {
        let mut searches: [Option<Search<'l, 'l>>; SEARCHES_MAX] = std::array::from_fn(|at| {
            let target = self.target_of(*nodes.get(at)?);
            let level = HEIGHT_MAX - 1;
            Some(Search { target, level, links: &self.head, known: None, next: self.head[level].load() })
        });
        let mut searching = nodes.len();
        while searching > 0 {
            for (slot, places) in searches.iter_mut().zip(places.iter_mut()) {
                let Some(search) = slot else { continue };
                match search.next {
                    Some(node) if search.next != search.known && self.is_before(node, &search.target) => {
                        search.links = node.links();
                    }
                    next => {
                        places[search.level] = (search.links, next);
                        if search.level == 0 {
                            *slot = None;
                            searching -= 1;
                            continue;
                        }
                        search.known = next;
                        search.level -= 1;
                    }
                }
                search.next = search.links[search.level].load();
                if let Some(next) = search.next {
                    next.prefetch();
                }
            }
        }
    }

    fn is_equal(&self, left: NodeRef<'_>, right: NodeRef<'_>) -> bool {
        left.row_prefix() == right.row_prefix() && self.order.is_equal(left, right)
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
