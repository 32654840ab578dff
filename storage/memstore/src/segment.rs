use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use halcyon_cell::{CellComparator, CellRef, CellType, ReadPoint, SeqId};
use halcyon_env::sync::MutexGuard;
use halcyon_env::{WatchedMutex, invariant};

use crate::SegmentScanner;
use crate::chunk::{Chunk, ChunkPool, locked};
use crate::hints::table_len;
use crate::list::SkipList;
use crate::node::{HEIGHT_MAX, Header, NodeRef, node_len, write_node};
use crate::order::Order;

/// A segment begins with small chunks, so that a thousand quiet stores do not hold a thousand full ones: its first
/// chunks are these fractions of a full one. At most about half of what a segment holds is not used.
const FIRST_CHUNKS_FRACTIONS: [usize; 4] = [32, 8, 4, 2];
/// What takes more than this fraction of a chunk gets memory of its own, or the ends of chunks would be lost.
const LARGE_FRACTION: usize = 8;

/// Nodes of so many levels and more lie next to each other, in parts of chunks: one in 64 nodes, which most steps of a search
/// come by. Among all others each of them would lie on a page of its own, and the processor knows the places of some
/// thousand pages only.
const TALL_HEIGHT: usize = 4;
/// How large those parts are, as a fraction of their chunk, and what is too large for them, as a fraction of the part.
const TALL_PART_FRACTION: usize = 64;
const TALL_NODE_FRACTION: usize = 8;

/// Whoever holds less than this fraction of a chunk finds rows without hints.
const HINTS_FRACTION: usize = 8;

static NEXT_SEGMENT_ID: AtomicU64 = AtomicU64::new(1);

/// Sorted cells in memory: a concurrent skip list whose nodes and cells live in chunks.
///
/// Insert-only: a segment grows until its store puts another in its place, and goes as a whole. The role of
/// HBase's `MutableSegment` with its `CellSet` and `MemStoreLAB`.
///
/// # Thread safety
/// All methods may be called from any thread at any time. Inserts and scans take no lock; `prepare` takes one
/// when a chunk is full and for large cells.
///
/// # Invariants
/// - All linked nodes lie in chunks of `chunks`, of which none goes until the segment is dropped. Other segments may have
///   nodes in them too.
/// - `current` and `tall`, if not null, point at one of `chunks`.
pub struct Segment {
    id: u64,
    list: SkipList,
    current: AtomicPtr<Chunk>,
    /// The part of a chunk that takes nodes of [`TALL_HEIGHT`].
    tall: AtomicPtr<Chunk>,
    pool: Arc<ChunkPool>,
    chunks: WatchedMutex<Chunks>,
    data_bytes: AtomicUsize,
    overhead_bytes: AtomicUsize,
    cells_count: AtomicUsize,
    timestamp_min: AtomicI64,
    timestamp_max: AtomicI64,
    has_deletes: AtomicBool,
}

#[derive(Default)]
struct Chunks {
    held: Vec<Arc<Chunk>>,
    /// How many of them were ever `current`; the others hold one large cell each, or are parts.
    filled_count: usize,
    /// Of all that are held, parts not counted: they lie in others.
    size_bytes: usize,
}

/// What a segment holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentSize {
    /// Bytes of all inserted cells (KeyValue bytes), replaced ones included: they are still in memory.
    pub data_bytes: usize,
    /// Bytes of nodes, of padding, of what is remembered of rows, and of cells that were given up.
    pub overhead_bytes: usize,
    /// Cells that a scanner of the highest read point would find.
    pub cells_count: usize,
}

/// A cell that lies in its chunk and is not visible yet.
///
/// Holds its chunk, so it may outlive the segment. What is not inserted is to be given up ([`Segment::give_up`]): its bytes
/// of the chunk are lost until the chunk goes.
pub struct PreparedCell {
    node: NonNull<Header>,
    /// Which segment it was prepared by; no two segments of a process have the same.
    segment_id: u64,
    /// Keeps the node.
    chunk: Arc<Chunk>,
}

// SAFETY: a prepared cell is the only owner of its node until it is inserted, and gives out shared borrows of
// unchanging bytes; the chunk is thread-safe.
unsafe impl Send for PreparedCell {}
// SAFETY: as above.
unsafe impl Sync for PreparedCell {}

impl PreparedCell {
    #[inline]
    fn node(&self) -> NodeRef<'_> {
        // SAFETY: `prepare` wrote the node; the chunk is held.
        unsafe { NodeRef::new(self.node) }
    }

    /// The cell as it lies in the chunk, with the sequence id that it is going to have.
    #[inline]
    pub fn cell_ref(&self, seq: SeqId) -> CellRef<'_> {
        CellRef::trusted(self.node().cell().bytes(), seq.get())
    }
}

impl fmt::Debug for PreparedCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cell_ref(SeqId::ZERO).fmt(f)
    }
}

impl Segment {
    /// An empty segment; takes no chunk before the first cell.
    pub fn new(pool: Arc<ChunkPool>, comparator: CellComparator) -> Arc<Segment> {
        Segment::with_row_start(pool, comparator, b"")
    }

    /// As [`Segment::new`], for rows of which most begin with `row_start`: only a hint, it makes searches among
    /// such rows faster.
    pub fn with_row_start(
        pool: Arc<ChunkPool>,
        comparator: CellComparator,
        row_start: &[u8],
    ) -> Arc<Segment> {
        Arc::new(Segment {
            id: NEXT_SEGMENT_ID.fetch_add(1, Ordering::Relaxed),
            list: SkipList::new(Order::new(comparator, row_start)),
            current: AtomicPtr::default(),
            tall: AtomicPtr::default(),
            pool,
            chunks: WatchedMutex::default(),
            data_bytes: AtomicUsize::new(0),
            overhead_bytes: AtomicUsize::new(0),
            cells_count: AtomicUsize::new(0),
            timestamp_min: AtomicI64::new(i64::MAX),
            timestamp_max: AtomicI64::new(i64::MIN),
            has_deletes: AtomicBool::new(false),
        })
    }

    /// An empty segment for what is written after this one, which goes on with this one's chunk where that is not full:
    /// segments that are smaller than a chunk would leave much of theirs unused.
    pub fn successor(&self, row_start: &[u8]) -> Arc<Segment> {
        let mut next = Segment::with_row_start(self.pool.clone(), self.comparator(), row_start);
        let mut chunks = self.chunks.unwatched().lock();
        let current = self.current.load(Ordering::Acquire);
        let shared = chunks.held.iter().find(|chunk| Arc::as_ptr(chunk) == current).cloned();
        if let (Some(shared), Some(next)) = (shared, Arc::get_mut(&mut next)) {
            // Counted where it is filled.
            assert!(
                chunks.size_bytes >= shared.size_bytes(),
                "a chunk that is handed on was counted: {} of {} bytes",
                shared.size_bytes(),
                chunks.size_bytes
            );
            chunks.size_bytes -= shared.size_bytes();
            let size_bytes = shared.size_bytes();
            let filled_count = chunks.filled_count;
            *next.chunks.get_mut() = Chunks { held: vec![shared], filled_count, size_bytes };
            *next.current.get_mut() = current;
        }
        drop(chunks);
        next
    }

    /// Copies a KeyValue into a chunk, its timestamp replaced by `timestamp` if there is one.
    ///
    /// `kv` must be a whole KeyValue that passed [`CellRef::parse`]; other bytes make this or a later call
    /// panic. Cells over an eighth of the chunk size get memory of their own.
    pub fn prepare(&self, kv: &[u8], timestamp: Option<i64>) -> PreparedCell {
        debug_assert!(CellRef::parse(kv, 0).is_ok(), "prepare wants a whole KeyValue");
        let height = self.draw_height();
        let len = node_len(height) + kv.len();
        let (range, chunk) = self.allocate(len, height);
        // SAFETY: the range is fresh from `allocate`, which gives `len` aligned bytes to this call alone.
        let node = unsafe { write_node(range, &chunk, height, self.list.order(), kv, timestamp) };
        PreparedCell { node, segment_id: self.id, chunk }
    }

    /// Makes a prepared cell visible under its sequence id. Of equal keys with equal sequence ids the one that
    /// was inserted last counts.
    ///
    /// Panics if the cell was prepared by another segment.
    pub fn insert(&self, prepared: PreparedCell, seq: SeqId) {
        let node = self.ready_to_link(&prepared, seq);
        // SAFETY: `ready_to_link` promises what `insert` asks for, and `prepared`, the only handle of the node, ends here.
        let replaces = unsafe { self.list.insert(node) };
        self.cells_count.fetch_add(usize::from(!replaces), Ordering::Relaxed);
    }

    /// As [`Segment::insert`] of each, in order, but in less time.
    pub fn insert_all(&self, prepared: Vec<PreparedCell>, seq: SeqId) {
        let nodes: Vec<NodeRef<'_>> = prepared.iter().map(|cell| self.ready_to_link(cell, seq)).collect();
        // SAFETY: as in `insert`.
        let replaced_count = unsafe { self.list.insert_all(&nodes) };
        assert!(replaced_count <= nodes.len(), "{replaced_count} of {} nodes replace one", nodes.len());
        self.cells_count.fetch_add(nodes.len() - replaced_count, Ordering::Relaxed);
    }

    /// Counts a prepared cell that is not going to be inserted as overhead: it takes memory until the segment goes.
    ///
    /// Panics if the cell was prepared by another segment.
    pub fn give_up(&self, prepared: PreparedCell) {
        assert_eq!(prepared.segment_id, self.id, "a cell is given up where it was prepared");
        let len = prepared.node().overhead_len() + prepared.cell_ref(SeqId::ZERO).bytes().len();
        self.overhead_bytes.fetch_add(len, Ordering::Relaxed);
    }

    /// Makes a cell's node ready for being linked and counts it. The node was written for this list, is in none yet,
    /// and lives as long as the segment. To be called once for a cell, by who has it for himself.
    fn ready_to_link<'s>(&'s self, prepared: &PreparedCell, seq: SeqId) -> NodeRef<'s> {
        assert_eq!(prepared.segment_id, self.id, "a cell is inserted where it was prepared");
        assert_eq!(
            prepared.node().seq(),
            SeqId::ZERO,
            "a cell is inserted once: linked twice, the list would be a ring"
        );
        invariant!(
            prepared.chunk.contains(
                prepared.node.cast(),
                prepared.node().overhead_len() + prepared.cell_ref(SeqId::ZERO).bytes().len()
            ),
            "a node lies in the chunk that keeps it; others would be freed under its readers"
        );
        // SAFETY: `prepare` of this segment wrote the node, in a chunk that is among `chunks` and lives as long as the
        // segment.
        let node: NodeRef<'s> = unsafe { NodeRef::new(prepared.node) };
        // SAFETY: the node is not linked, and its only user is the caller.
        unsafe { node.set_seq(seq) };
        let cell = node.cell();
        self.note_time(cell.timestamp(), cell.cell_type());
        self.data_bytes.fetch_add(cell.bytes().len(), Ordering::Relaxed);
        self.overhead_bytes.fetch_add(node.overhead_len(), Ordering::Relaxed);
        node
    }

    /// What all rows begin with: a hint for the segment that comes next. Empty if the segment is, if it has one
    /// row only, which says little of others, and for meta, whose order is not that of the rows' bytes.
    pub fn row_start(&self) -> Vec<u8> {
        let (Some(first), Some(last)) = (self.list.first(), self.list.last()) else { return Vec::new() };
        let (first, last) = (first.cell().row(), last.cell().row());
        if first == last || !self.list.order().is_prefixed() {
            return Vec::new();
        }
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        first[..common].to_vec()
    }

    /// What was inserted up to now. Exact when no insert is going on.
    pub fn size(&self) -> SegmentSize {
        SegmentSize {
            data_bytes: self.data_bytes.load(Ordering::Relaxed),
            overhead_bytes: self.overhead_bytes.load(Ordering::Relaxed),
            cells_count: self.cells_count.load(Ordering::Relaxed),
        }
    }

    /// Bytes of the chunks that it holds, filled or not.
    pub fn chunks_bytes(&self) -> usize {
        self.chunks.unwatched().lock().size_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.list.first().is_none()
    }

    pub fn comparator(&self) -> CellComparator {
        self.list.order().comparator()
    }

    /// The smallest and the largest timestamp, both inclusive; `None` if the segment is empty. Markers that
    /// delete a family or a column reach from 0 to their timestamp (HBase: `TimeRangeTracker`).
    pub fn time_range(&self) -> Option<(i64, i64)> {
        let range = (self.timestamp_min.load(Ordering::Relaxed), self.timestamp_max.load(Ordering::Relaxed));
        (range.0 <= range.1).then_some(range)
    }

    /// Whether a delete marker of any kind was inserted.
    pub fn has_deletes(&self) -> bool {
        self.has_deletes.load(Ordering::Relaxed)
    }

    /// A scanner over the cells with sequence ids up to `read_point`. Keeps the segment alive.
    pub fn scanner(self: &Arc<Self>, read_point: ReadPoint) -> SegmentScanner {
        SegmentScanner::new(self.clone(), read_point)
    }

    /// What most rows were expected to begin with when the segment was made.
    pub fn expected_row_start(&self) -> &[u8] {
        self.list.order().row_start()
    }

    pub(crate) fn pool(&self) -> &Arc<ChunkPool> {
        &self.pool
    }

    pub(crate) fn list(&self) -> &SkipList {
        &self.list
    }

    /// Takes `len` bytes for a node of so many levels.
    fn allocate(&self, len: usize, height: usize) -> (NonNull<u8>, Arc<Chunk>) {
        if height >= TALL_HEIGHT
            && let Some(done) = self.allocate_tall(len)
        {
            return done;
        }
        let mut full = std::ptr::null_mut();
        if len <= self.pool.chunk_size_bytes() / LARGE_FRACTION {
            full = self.current.load(Ordering::Acquire);
            if let Some(done) = self.allocate_in(full, len) {
                return done;
            }
        }
        self.allocate_slowly(full, len)
    }

    /// Takes `len` bytes of `current` or `tall`, as it was read.
    #[inline]
    fn allocate_in(&self, current: *mut Chunk, len: usize) -> Option<(NonNull<u8>, Arc<Chunk>)> {
        // SAFETY: `current` is null or points at a chunk that `chunks` holds as long as `self` is.
        let range = unsafe { current.as_ref() }?.allocate(len)?;
        // SAFETY: as above; the pointer came from `Arc::as_ptr`.
        let chunk = unsafe {
            Arc::increment_strong_count(current.cast_const());
            Arc::from_raw(current.cast_const())
        };
        Some((range, chunk))
    }

    /// Takes `len` bytes of the part for tall nodes, or of a new one; `None` if they are too many, or the current chunk has
    /// no room for a part.
    fn allocate_tall(&self, len: usize) -> Option<(NonNull<u8>, Arc<Chunk>)> {
        let full = self.tall.load(Ordering::Acquire);
        if let Some(done) = self.allocate_in(full, len) {
            return Some(done);
        }
        let mut chunks = self.lock_chunks();
        let tall = self.tall.load(Ordering::Acquire);
        if tall != full
            && let Some(done) = self.allocate_in(tall, len)
        {
            return Some(done); // another thread was faster
        }
        let current = self.current.load(Ordering::Acquire);
        let chunk = chunks.held.iter().rfind(|chunk| Arc::as_ptr(chunk) == current)?;
        let part_bytes = chunk.size_bytes() / TALL_PART_FRACTION;
        if len > part_bytes / TALL_NODE_FRACTION {
            return None;
        }
        let part = chunk.part(part_bytes)?;
        let range = part.allocate(len)?;
        self.tall.store(Arc::as_ptr(&part).cast_mut(), Ordering::Release);
        chunks.held.push(part.clone());
        Some((range, part))
    }

    fn lock_chunks(&self) -> MutexGuard<'_, Chunks> {
        match self.pool.watch() {
            None => locked(self.chunks.unwatched()),
            Some(watch) => self.chunks.lock(watch, "chunk-lock", |_| "another write makes room".to_string()),
        }
    }

    /// Takes `len` bytes of the current chunk, or of a new one.
    #[cold]
    fn allocate_slowly(&self, mut full: *mut Chunk, len: usize) -> (NonNull<u8>, Arc<Chunk>) {
        let mut chunks = self.lock_chunks();
        if len > self.pool.chunk_size_bytes() / LARGE_FRACTION {
            let chunk = self.pool.take(len.next_multiple_of(8));
            let range = chunk.allocate(len).expect("the chunk is as large as the cell");
            self.hold(&mut chunks, chunk.clone());
            return (range, chunk);
        }
        loop {
            let current = self.current.load(Ordering::Acquire);
            if current != full
                && let Some(done) = self.allocate_in(current, len)
            {
                return done; // another thread was faster
            }
            full = current;
            let chunk = self.pool.take(self.next_chunk_size_bytes(chunks.filled_count, len));
            chunks.filled_count += 1;
            let address = Arc::as_ptr(&chunk).cast_mut();
            self.hold(&mut chunks, chunk);
            self.current.store(address, Ordering::Release);
            self.grow_hints(&mut chunks);
        }
    }

    /// Gives the list a larger table of hints if it has grown enough, in a chunk of its own.
    fn grow_hints(&self, chunks: &mut Chunks) {
        if chunks.size_bytes < self.pool.chunk_size_bytes() / HINTS_FRACTION {
            return;
        }
        let Some(places_count) = self.list.hints().wanted_places(chunks.size_bytes) else { return };
        let len = table_len(places_count);
        let chunk = self.pool.take(len);
        let range = chunk.allocate(len).expect("the chunk is as large as the table");
        // SAFETY: the range is fresh and of this length, `allocate` aligns it to 8, it lives as long as the segment, whose
        // the list is; the lock of `chunks` is held.
        unsafe { self.list.hints().replace(range, places_count) };
        self.overhead_bytes.fetch_add(len, Ordering::Relaxed);
        self.hold(chunks, chunk);
    }

    fn hold(&self, chunks: &mut Chunks, chunk: Arc<Chunk>) {
        self.pool.note_in_segment(&chunk);
        chunks.size_bytes += chunk.size_bytes();
        chunks.held.push(chunk);
    }

    fn next_chunk_size_bytes(&self, filled_count: usize, len: usize) -> usize {
        let full = self.pool.chunk_size_bytes();
        let size = FIRST_CHUNKS_FRACTIONS.get(filled_count).map_or(full, |fraction| full / fraction);
        if size < 2 * len { full } else { size }
    }

    /// Levels of a new node: one, and with a chance of one in four each, more. The randomness comes from how
    /// far the chunks are filled, so that the same cells in the same order always take the same memory.
    fn draw_height(&self) -> usize {
        let used = |chunk: &AtomicPtr<Chunk>| {
            // SAFETY: it is null or points at a chunk that `chunks` holds as long as `self` is.
            unsafe { chunk.load(Ordering::Acquire).as_ref() }.map_or(0, Chunk::used_bytes) as u64
        };
        let cells = self.cells_count.load(Ordering::Relaxed) as u64;
        let bits =
            mix(mix(used(&self.current) << 32 ^ cells) ^ used(&self.tall)) | 1 << (2 * (HEIGHT_MAX - 1));
        1 + bits.trailing_zeros() as usize / 2
    }

    fn note_time(&self, timestamp: i64, cell_type: CellType) {
        let from_zero = matches!(cell_type, CellType::DeleteColumn | CellType::DeleteFamily);
        let (oldest, newest) =
            if from_zero { (timestamp.min(0), timestamp.max(0)) } else { (timestamp, timestamp) };
        // Read first: most inserts change nothing here, and a shared line that is only read costs nothing.
        if oldest < self.timestamp_min.load(Ordering::Relaxed) {
            self.timestamp_min.fetch_min(oldest, Ordering::Relaxed);
        }
        if newest > self.timestamp_max.load(Ordering::Relaxed) {
            self.timestamp_max.fetch_max(newest, Ordering::Relaxed);
        }
        if cell_type.is_delete() && !self.has_deletes() {
            self.has_deletes.store(true, Ordering::Relaxed);
        }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let chunks = self.chunks.get_mut();
        invariant!(
            chunks.size_bytes <= chunks.held.iter().map(|chunk| chunk.size_bytes()).sum::<usize>(),
            "a segment counts no bytes that it does not hold: {}",
            chunks.size_bytes
        );
        self.pool.note_segment_gone(chunks.size_bytes);
    }
}

/// Spreads a number over all bits (the finalizer of splitmix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("id", &self.id).field("size", &self.size()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use halcyon_cell::Cell;

    use super::*;

    /// Of the cells of one batch as well, of which none is inserted while heights are drawn.
    #[test]
    fn one_node_in_64_is_tall_and_those_lie_together() {
        const CELLS: usize = 40_000;
        const PAGE_BYTES: usize = 4096;
        let segment = Segment::new(ChunkPool::new(2 << 20, 0), CellComparator::Default);
        let cell = |at| Cell::put(format!("row{at:08}").as_bytes(), b"f", b"q", 1, &[b'v'; 40]);
        let prepared: Vec<_> = (0..CELLS).map(|at| segment.prepare(cell(at).bytes(), None)).collect();
        let tall: Vec<_> = prepared.iter().filter(|cell| cell.node().links().len() >= TALL_HEIGHT).collect();
        assert!((CELLS / 64 / 2..CELLS / 64 * 2).contains(&tall.len()), "{} of {CELLS}", tall.len());
        let page = |cell: &&PreparedCell| cell.node().address().addr().get() / PAGE_BYTES;
        let pages: BTreeSet<_> = tall.iter().map(page).collect();
        assert!(pages.len() * 10 < tall.len(), "{} nodes on {} pages", tall.len(), pages.len());
        segment.insert_all(prepared, SeqId::new(1));
        assert_eq!(segment.size().cells_count, CELLS);
    }

    /// It was in no account, and nobody knew that the segment held anything.
    #[test]
    fn cells_that_are_given_up_are_counted() {
        let segment = Segment::new(ChunkPool::new(64 << 10, 0), CellComparator::Default);
        for value_len in [10, 50_000] {
            let before = segment.size();
            let cell = Cell::put(b"row", b"f", b"q", 1, &vec![b'v'; value_len]);
            segment.give_up(segment.prepare(cell.bytes(), None));
            let size = segment.size();
            let grown = size.overhead_bytes - before.overhead_bytes;
            assert!((cell.bytes().len()..cell.bytes().len() + 1000).contains(&grown), "{grown}");
            assert_eq!((size.data_bytes, size.cells_count), (0, 0));
        }
        assert!(segment.is_empty() && segment.time_range().is_none());
    }
}
