//! A node of the skip list and its cell, as one range of a chunk.
//!
//! ```text
//! u64 row prefix | u64 sequence id | chunk | u32 cell length | u8 height | bool replaced | links (height)
//!     | column link (if height > 1) | cell
//! ```
//!
//! The column link of a node points at a node of the same column somewhere behind it: over versions that a reader does
//! not want it leads to the column's end. Only nodes that reach the second level have one: the next of them is some four
//! steps away.
//!
//! Header, lowest links and the start of the cell are neighbours, so that a step of a search touches one or
//! two cache lines. The row prefix (eight bytes of the row as a number, see [`Order::prefix_of`]) decides most comparisons
//! without reading the cell; two rows of different prefixes are ordered like them.
//!
//! # Invariants
//! - A node is written by one thread until it is linked; after that only its links (not the column link) and `replaced`
//!   change.
//! - A node outlives every link that points at it: [`Link::swap_in`] and [`NodeRef::set_link`] are unsafe
//!   because of this, and all that reads links is safe because of this.

use std::marker::PhantomData;
use std::mem::size_of;
use std::ptr::{self, NonNull};
use std::sync::Arc;
#[cfg(not(halcyon_shuttle))]
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use bytes::Bytes;
use halcyon_cell::{CellRef, KEY_OFFSET, SeqId};
#[cfg(halcyon_shuttle)]
use shuttle::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::chunk::{self, Chunk};
use crate::order::Order;

/// A quarter of the nodes of one level reach the next, so twelve levels serve 16 million cells.
/// The interleaving test has few cells; with two levels, some of them are on both.
pub(crate) const HEIGHT_MAX: usize = if cfg!(halcyon_shuttle) { 2 } else { 12 };

#[repr(C)]
pub(crate) struct Header {
    row_prefix: u64,
    seq: SeqId,
    chunk: *const Chunk,
    cell_len: u32,
    height: u8,
    replaced: AtomicBool,
}

const LINKS_OFFSET: usize = size_of::<Header>();
const _: () = assert!(LINKS_OFFSET.is_multiple_of(align_of::<Link>()));
const _: () = assert!(align_of::<Header>() <= chunk::RANGE_ALIGN && align_of::<Link>() <= chunk::RANGE_ALIGN);

/// A pointer to the next node of one level; null at the end.
#[repr(transparent)]
pub(crate) struct Link(AtomicPtr<Header>);

impl Link {
    pub(crate) fn end() -> Link {
        Link(AtomicPtr::new(ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn load(&self) -> Option<NodeRef<'_>> {
        // Acquire: pairs with `swap_in`, so that the node's bytes are seen by who sees the node.
        NonNull::new(self.0.load(Ordering::Acquire)).map(|at| NodeRef { at, life: PhantomData })
    }

    /// Makes the link point at `new` if it still points at `old`.
    ///
    /// # Safety
    /// `new` lives as long as the link.
    #[inline]
    pub(crate) unsafe fn swap_in(&self, old: Option<NodeRef<'_>>, new: NodeRef<'_>) -> bool {
        self.0.compare_exchange(address(old), new.at.as_ptr(), Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Makes the link point at `node`.
    ///
    /// # Safety
    /// `node` lives as long as the link.
    #[inline]
    pub(crate) unsafe fn set(&self, node: NodeRef<'_>) {
        self.0.store(node.at.as_ptr(), Ordering::Release);
    }
}

/// How many different tags fit into the address of a node.
pub(crate) const TAGS: usize = chunk::RANGE_ALIGN;

/// A link with a number below [`TAGS`] that says for whom it was set.
#[repr(transparent)]
pub(crate) struct TaggedLink(Link);

impl TaggedLink {
    pub(crate) fn end() -> TaggedLink {
        TaggedLink(Link::end())
    }

    /// The node it points at, unless it was set with another tag.
    #[inline]
    pub(crate) fn load(&self, tag: usize) -> Option<NodeRef<'_>> {
        // Acquire: pairs with `set`.
        let tagged = NonNull::new(self.0.0.load(Ordering::Acquire))?;
        let at = NonNull::new(tagged.as_ptr().map_addr(|address| address & !(TAGS - 1)))?;
        (tagged.addr().get() & (TAGS - 1) == tag).then_some(NodeRef { at, life: PhantomData })
    }

    /// # Safety
    /// `node` lives as long as the link; `tag` is below [`TAGS`].
    #[inline]
    pub(crate) unsafe fn set(&self, node: NodeRef<'_>, tag: usize) {
        self.0.0.store(node.at.as_ptr().map_addr(|address| address | tag), Ordering::Release);
    }
}

fn address(node: Option<NodeRef<'_>>) -> *mut Header {
    node.map_or(ptr::null_mut(), |node| node.at.as_ptr())
}

/// A node that is alive for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct NodeRef<'a> {
    at: NonNull<Header>,
    life: PhantomData<&'a Header>,
}

impl PartialEq for NodeRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.at == other.at
    }
}

/// Bytes that a node takes besides its cell and the padding behind it.
pub(crate) const fn node_len(height: usize) -> usize {
    let column_links = if height > 1 { 1 } else { 0 };
    LINKS_OFFSET + (height + column_links) * size_of::<Link>()
}

/// Writes a node: all of it but the sequence id.
///
/// Panics if `kv` is not a KeyValue as far as its row and its timestamp are concerned.
///
/// # Safety
/// `range` is writable, not shared, of at least `node_len(height) + kv.len()` bytes, aligned to
/// [`chunk::RANGE_ALIGN`], and lives as long as `chunk`.
pub(crate) unsafe fn write_node(
    range: NonNull<u8>,
    chunk: &Arc<Chunk>,
    height: usize,
    order: &Order,
    kv: &[u8],
    timestamp: Option<i64>,
) -> NonNull<Header> {
    assert!((1..=HEIGHT_MAX).contains(&height), "a node has a link for each of its {height} levels");
    let address = range.addr().get();
    assert!(
        address.is_multiple_of(chunk::RANGE_ALIGN),
        "a node's pointers are aligned; its range is at {address:#x}"
    );
    let header = Header {
        row_prefix: order.prefix_of(CellRef::trusted(kv, 0).row()),
        seq: SeqId::ZERO,
        chunk: Arc::as_ptr(chunk),
        cell_len: u32::try_from(kv.len()).expect("a cell is shorter than 4 GiB"),
        height: height as u8,
        replaced: AtomicBool::new(false),
    };
    let node = range.cast::<Header>();
    // SAFETY: the caller promised room, alignment and that nobody else has this range; the three parts that
    // are written follow each other and are initialised before they are read or borrowed.
    let cell = unsafe {
        node.write(header);
        let cell = range.add(node_len(height));
        let mut link = range.add(LINKS_OFFSET);
        while link < cell {
            link.cast::<Link>().write(Link::end());
            link = link.add(size_of::<Link>());
        }
        cell.copy_from_nonoverlapping(NonNull::from(kv).cast(), kv.len());
        std::slice::from_raw_parts_mut(cell.as_ptr(), kv.len())
    };
    if let Some(timestamp) = timestamp {
        let end = KEY_OFFSET + CellRef::trusted(kv, 0).key_len() - 1;
        cell[end - 8..end].copy_from_slice(&timestamp.to_be_bytes());
    }
    node
}

impl<'a> NodeRef<'a> {
    /// # Safety
    /// `at` was returned by [`write_node`], and its chunk lives for `'a`.
    #[inline]
    pub(crate) unsafe fn new(at: NonNull<Header>) -> NodeRef<'a> {
        NodeRef { at, life: PhantomData }
    }

    #[inline]
    pub(crate) fn address(self) -> NonNull<Header> {
        self.at
    }

    #[inline]
    fn header(self) -> &'a Header {
        // SAFETY: a `NodeRef` points at a written header that lives for 'a; after linking only its atomic
        // field changes, before linking `set_seq` has the node to itself.
        unsafe { &*self.at.as_ptr() }
    }

    #[inline]
    pub(crate) fn row_prefix(self) -> u64 {
        self.header().row_prefix
    }

    #[inline]
    pub(crate) fn seq(self) -> SeqId {
        self.header().seq
    }

    /// # Safety
    /// The node is not linked yet, and no other thread uses it.
    #[inline]
    pub(crate) unsafe fn set_seq(self, seq: SeqId) {
        // SAFETY: promised by the caller; through the pointer, because no `&mut` to a node ever exists.
        unsafe { (&raw mut (*self.at.as_ptr()).seq).write(seq) }
    }

    /// Whether a later insert put an equal cell in front of this one.
    #[inline]
    pub(crate) fn is_replaced(self) -> bool {
        self.header().replaced.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_replaced(self) {
        self.header().replaced.store(true, Ordering::Relaxed);
    }

    /// The links of the node, the bottom level first.
    #[inline]
    pub(crate) fn links(self) -> &'a [Link] {
        let height = usize::from(self.header().height);
        // SAFETY: `write_node` put `height` links behind the header; the pointer comes from the whole range.
        unsafe {
            let links = self.at.cast::<u8>().add(LINKS_OFFSET).cast::<Link>();
            std::slice::from_raw_parts(links.as_ptr(), height)
        }
    }

    /// Points a link of a node at `next` before the node is linked on that level.
    ///
    /// # Safety
    /// `next` lives as long as this node.
    #[inline]
    pub(crate) unsafe fn set_link(self, level: usize, next: Option<NodeRef<'_>>) {
        self.links()[level].0.store(address(next), Ordering::Relaxed);
    }

    #[inline]
    fn column_link(self) -> Option<&'a Link> {
        let height = usize::from(self.header().height);
        // SAFETY: `write_node` put one more link behind those of a node that has several; the pointer comes from the
        // whole range.
        (height > 1)
            .then(|| unsafe { self.at.cast::<u8>().add(LINKS_OFFSET).cast::<Link>().add(height).as_ref() })
    }

    /// A node of the same column behind this one, if one is known.
    #[inline]
    pub(crate) fn later_in_column(self) -> Option<NodeRef<'a>> {
        self.column_link().and_then(Link::load)
    }

    /// Whether it can point at a node of its column.
    #[inline]
    pub(crate) fn has_column_link(self) -> bool {
        self.header().height > 1
    }

    /// Points the column link, where there is one, at `later` before the node is linked.
    ///
    /// # Safety
    /// `later` lives as long as this node.
    pub(crate) unsafe fn set_later_in_column(self, later: Option<NodeRef<'_>>) {
        if let Some(link) = self.column_link() {
            link.0.store(address(later), Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn cell(self) -> CellRef<'a> {
        let header = self.header();
        // SAFETY: `write_node` put `cell_len` bytes behind the links, and nobody writes them again.
        let bytes = unsafe {
            let cell = self.at.cast::<u8>().add(node_len(usize::from(header.height)));
            std::slice::from_raw_parts(cell.as_ptr(), header.cell_len as usize)
        };
        CellRef::trusted(bytes, header.seq.get())
    }

    /// Bytes of the chunk that the node takes besides its cell, padding included.
    pub(crate) fn overhead_len(self) -> usize {
        let header = self.header();
        let len = node_len(usize::from(header.height)) + header.cell_len as usize;
        len.next_multiple_of(chunk::RANGE_ALIGN) - header.cell_len as usize
    }

    #[inline]
    fn chunk(self) -> Arc<Chunk> {
        let chunk = self.header().chunk;
        // SAFETY: the pointer is that of an `Arc`, and as the node is alive, so is its chunk.
        unsafe {
            Arc::increment_strong_count(chunk);
            Arc::from_raw(chunk)
        }
    }

    /// The bytes of the cell; they keep the chunk alive.
    pub(crate) fn share_cell(self) -> Bytes {
        // SAFETY: the cell lies in the node's chunk, is written, and stays as it is.
        unsafe { chunk::share(self.chunk(), self.cell().bytes()) }
    }

    /// Asks the processor to fetch the node's first cache line.
    #[inline]
    pub(crate) fn prefetch(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        // SAFETY: a prefetch reads nothing as far as the program can tell; any address is allowed.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.at.as_ptr().cast());
        }
    }
}
