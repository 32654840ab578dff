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

use halcyon_cell::KEY_OFFSET;
use halcyon_env::invariant;

use crate::hints::RowHints;
use crate::node::{HEIGHT_MAX, Link, NodeRef};
use crate::order::{Order, Target};

pub(crate) struct SkipList {
    head: [Link; HEIGHT_MAX],
    /// Of each level a node that was its last once; it reaches that level.
    tails: [Link; HEIGHT_MAX],
    hints: RowHints,
    order: Order,
}

/// For each level the links in front of a place, and what follows them.
pub(crate) type Places<'l> = [(&'l [Link], Option<NodeRef<'l>>); HEIGHT_MAX];

/// Searches that go on at the same time: enough that a node has arrived when its search's turn comes again, and few
/// enough that what they look at stays in the nearest cache.
pub(crate) const SEARCHES_MAX: usize = 24;

/// Nodes that are looked at behind what was remembered of a row.
const HINT_STEPS_MAX: usize = 4;

/// Timestamp and type.
const KEY_END_LEN: usize = 9;

/// Nodes that are looked at for one of the same column that has a column link.
const COLUMN_STEPS_MAX: usize = 32;

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
        SkipList { head: ends(), tails: ends(), hints: RowHints::none(), order }
    }

    /// What [`SkipList::find`] remembers of rows.
    pub(crate) fn hints(&self) -> &RowHints {
        &self.hints
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
        let Some(hint) = self.hints.place(target.key.row()) else {
            return self.find_below(&self.head, HEIGHT_MAX, target);
        };
        if let Some(before) = hint.load()
            && let Some(found) = self.find_close_behind(before, target)
        {
            return found;
        }
        let (mut before, mut links, mut found) = (None, &self.head[..], None);
        for level in (0..HEIGHT_MAX).rev() {
            (links, found) = self.advance(links, level, found, target, &mut before);
        }
        if let Some(before) = before {
            // SAFETY: the node is in the list.
            unsafe { hint.remember(before) };
        }
        found
    }

    /// What [`SkipList::find`] finds, if that is close behind `before`.
    #[inline]
    fn find_close_behind<'a>(
        &'a self,
        before: NodeRef<'a>,
        target: &Target<'_>,
    ) -> Option<Option<NodeRef<'a>>> {
        if !self.is_before(before, target) {
            return None;
        }
        let mut next = before.links()[0].load();
        for _ in 0..HINT_STEPS_MAX {
            let Some(node) = next.filter(|node| self.is_before(*node, target)) else { return Some(next) };
            if node.row_prefix() != target.row_prefix {
                return None; // of another row, or one that has come in between
            }
            next = node.links()[0].load();
        }
        None
    }

    /// As [`SkipList::find`], starting at a node before the target: takes time by the logarithm of the way, and over
    /// versions of one column only a few steps.
    pub(crate) fn find_after<'a>(&'a self, from: NodeRef<'a>, target: &Target<'_>) -> Option<NodeRef<'a>> {
        let mut here = from;
        loop {
            if let Some(later) = here.later_in_column()
                && self.is_before(later, target)
            {
                here = later;
                continue;
            }
            let links = here.links();
            match links[links.len() - 1].load() {
                Some(next) if self.is_before(next, target) => here = next,
                _ => return self.find_below(links, links.len(), target),
            }
        }
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
            (links, found) = self.advance(links, level, found, target, &mut None);
        }
        found
    }

    /// Walks one level from `links` to the last node before the target; returns its links and what follows.
    /// `known` was found not to be before the target one level up and is not compared again. `before` is the node whose
    /// links they are, if it was left or was known.
    #[inline]
    fn advance<'a>(
        &'a self,
        mut links: &'a [Link],
        level: usize,
        known: Option<NodeRef<'a>>,
        target: &Target<'_>,
        before: &mut Option<NodeRef<'a>>,
    ) -> (&'a [Link], Option<NodeRef<'a>>) {
        let mut next = links[level].load();
        prefetch_below(links, level);
        while let Some(node) = next {
            if next == known || !self.is_before(node, target) {
                break;
            }
            *before = Some(node);
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
        let unknown: Places<'l> = [(&self.head, None); HEIGHT_MAX];
        let mut places = vec![unknown; nodes.len().min(SEARCHES_MAX)];
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
                (links, next) = self.advance(links, level, next, &target, &mut None);
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
            *place = self.advance(links, level, None, target, &mut None);
        }
        let (mut links, mut next) = (nearest.links(), None);
        for level in (0..=nearest_level).rev() {
            (links, next) = self.advance(links, level, next, target, &mut None);
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
                if level == 0 && node.has_column_link() {
                    // SAFETY: as above.
                    unsafe { node.set_later_in_column(self.latest_in_column(node, *next)) };
                }
                invariant!(
                    next.is_none_or(|next| !self.is_before(next, &self.target_of(node))),
                    "level {level}: the node that is going to follow does not belong before this one"
                );
                // SAFETY: the caller promised that the node lives as long as the list and its links.
                if unsafe { links[level].swap_in(*next, node) } {
                    break;
                }
                (*links, *next) = self.advance(links, level, None, &self.target_of(node), &mut None);
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

    /// The farthest node of the same column that is known from `next`, which is going to follow the node.
    fn latest_in_column<'l>(
        &'l self,
        node: NodeRef<'_>,
        mut next: Option<NodeRef<'l>>,
    ) -> Option<NodeRef<'l>> {
        let mut latest = None;
        for _ in 0..COLUMN_STEPS_MAX {
            let Some(later) = next.filter(|later| is_same_column(node, *later)) else { break };
            latest = Some(later);
            if later.has_column_link() {
                return later.later_in_column().or(latest);
            }
            next = later.links()[0].load();
        }
        latest
    }

    /// The places of at most [`SEARCHES_MAX`] nodes, all levels of them.
    fn find_places<'l>(&'l self, nodes: &[NodeRef<'l>], places: &mut [Places<'l>]) {
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

    /// How two nodes of this list are ordered.
    pub(crate) fn compare(&self, left: NodeRef<'_>, right: NodeRef<'_>) -> std::cmp::Ordering {
        self.order.compare((left.row_prefix(), left), (right.row_prefix(), right))
    }

    fn is_equal(&self, left: NodeRef<'_>, right: NodeRef<'_>) -> bool {
        left.row_prefix() == right.row_prefix() && self.order.is_equal(left, right)
    }
}

/// Whether row, family and qualifier are the same: what stands in a key before timestamp and type.
fn is_same_column(left: NodeRef<'_>, right: NodeRef<'_>) -> bool {
    fn column(node: NodeRef<'_>) -> &[u8] {
        let cell = node.cell();
        &cell.bytes()[KEY_OFFSET..KEY_OFFSET + cell.key_len() - KEY_END_LEN]
    }
    left.row_prefix() == right.row_prefix() && column(left) == column(right)
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

#[cfg(test)]
mod tests {
    use halcyon_cell::{Cell, CellComparator, CellScanner, Key, ReadPoint, SeqId};

    use crate::{ChunkPool, Segment};

    #[test]
    fn column_links_lead_over_versions() {
        const VERSIONS: i64 = if cfg!(miri) { 200 } else { 5_000 };
        let orders: [fn(i64) -> i64; 3] = [|at| at, |at| (at * 2_654_435_761) % 4_999, |at| -at];
        let steps = orders.map(|timestamp_of| {
            let segment = Segment::new(ChunkPool::new(1 << 20, 0), CellComparator::Default);
            let put = |qualifier, timestamp, seq| {
                let cell = Cell::put(b"row", b"f", qualifier, timestamp, b"value");
                segment.insert(segment.prepare(cell.bytes(), None), SeqId::new(seq));
            };
            put(b"p", 1, 1);
            put(b"r", 1, 1);
            (0..VERSIONS).for_each(|at| put(b"q", 10_000 + timestamp_of(at), 2 + at as u64));

            let mut scanner = segment.scanner(ReadPoint::NEWEST);
            scanner.seek(Key::first_on_column(b"row", b"f", b"q").get()).unwrap();
            scanner.reseek(Key::last_on_column(b"row", b"f", b"q").get()).unwrap();
            assert_eq!(scanner.peek().unwrap().qualifier(), b"r");

            // Along column links, and from node to node where there is none.
            let list = segment.list();
            let first = Key::first_on_column(b"row", b"f", b"q");
            let mut here = list.find(&list.order().target(first.get())).unwrap();
            let mut steps = 0;
            while here.cell().qualifier() == b"q" {
                here = here.later_in_column().or_else(|| here.links()[0].load()).unwrap();
                steps += 1;
            }
            steps
        });
        assert!(steps[0] < 40 && steps[1] < 200, "{steps:?}");
        assert_eq!(steps[2], VERSIONS, "each came behind all others, so none knew of one behind it");
    }

    /// What is remembered is the node in front of a row; what comes in between, or before, is found all the same.
    #[test]
    fn rows_that_were_read_are_remembered() {
        let segment = Segment::new(ChunkPool::new(4096, 0), CellComparator::Default);
        let put = |row: &str, seq| {
            let cell = Cell::put(row.as_bytes(), b"f", b"q", 1, &[b'v'; 100]);
            segment.insert(segment.prepare(cell.bytes(), None), SeqId::new(seq));
        };
        (0..100).for_each(|at| put(&format!("row{:04}", 2 * at), 1));
        let list = segment.list();
        let first_of = |row: &str| {
            let key = Key::first_on_row(row.as_bytes());
            let found = list.find(&list.order().target(key.get())).expect("it is not behind all");
            String::from_utf8(found.cell().row().to_vec()).unwrap()
        };
        let remembered = |row: &str| {
            let before = list.hints().place(row.as_bytes()).expect("there is a table").load();
            before.map(|node| String::from_utf8(node.cell().row().to_vec()).unwrap())
        };
        for _ in 0..2 {
            assert_eq!(first_of("row0100"), "row0100");
            assert_eq!(remembered("row0100").as_deref(), Some("row0098"));
        }
        put("row0099", 2); // in between
        put("row0100", 2); // in front of the old version
        assert_eq!(first_of("row0100"), "row0100");
        assert_eq!(remembered("row0100").as_deref(), Some("row0099"));
        assert_eq!(first_of("row0101"), "row0102", "a row that is not there");
        assert_eq!(first_of("row"), "row0000", "nothing is in front of the first one");
        (0..100).for_each(|at| put(&format!("row{:04}", 2 * at + 1), 3));
        for at in 0..200 {
            let row = format!("row{at:04}");
            assert_eq!((first_of(&row), first_of(&row)), (row.clone(), row));
        }
    }
}
