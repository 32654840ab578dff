//! Chunks: large pieces of memory that cells are copied into, and the pool that they return to.
//!
//! A chunk is handed out from front to back by an atomic counter and never piecewise freed. Whoever needs
//! bytes of it to stay holds the chunk by reference count; with the last reference it goes back to the pool.
//! What is to lie together lies in a part of a chunk, which is a chunk itself and holds the one around it.
//!
//! # Thread safety
//! [`Chunk::allocate`] may be called from many threads at once; the ranges it returns never overlap. What is
//! written to a range is the business of the thread that got it, until it publishes the range with a
//! release-ordered store.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use halcyon_allocator::Pages;
use halcyon_env::sync::{Condvar, Mutex, MutexGuard};
use halcyon_env::{Watch, invariant};

/// 2 MiB, as HBase's `hbase.hregion.memstore.mslab.chunksize`.
pub const CHUNK_SIZE_BYTES_DEFAULT: usize = 2 << 20;

/// Every range starts on this boundary: enough for a node's pointers.
pub(crate) const RANGE_ALIGN: usize = 8;
/// Chunks are whole pages.
const PAGE_BYTES: usize = 4 << 10;
const CHUNK_SIZE_BYTES_MIN: usize = 4 << 10;
const CHUNK_SIZE_BYTES_MAX: usize = 1 << 30;
const _: () = assert!(CHUNK_SIZE_BYTES_MIN <= CHUNK_SIZE_BYTES_DEFAULT);
const _: () =
    assert!(CHUNK_SIZE_BYTES_DEFAULT <= CHUNK_SIZE_BYTES_MAX && PAGE_BYTES.is_multiple_of(RANGE_ALIGN));

/// Lends chunks to segments and keeps some of those that come back. Shared by all stores of a server.
///
/// Thread-safe. The role of HBase's `ChunkCreator`.
pub struct ChunkPool {
    chunk_size_bytes: usize,
    pooled_chunks_max: AtomicUsize,
    allocated_bytes: AtomicUsize,
    /// The part of it in chunks of segments that are there.
    in_segments_bytes: AtomicUsize,
    /// The part of it that is charged for other memory than chunks, and the part that is to go.
    charged_bytes: AtomicUsize,
    going_bytes: AtomicUsize,
    /// Chunks wait in the pool only while all together take no more than this.
    allocated_max_bytes: AtomicUsize,
    unused: Mutex<Unused>,
    /// Somebody calls `keep_ready`, so what is to go can be left to them.
    frees_beside: AtomicBool,
    /// As many as are pooled, for those who only want to know: every write asks.
    pooled_count: AtomicUsize,
    /// Told when a chunk was taken from the pool, or something is to go.
    work: Condvar,
    watch: OnceLock<Watch>,
}

/// Memory that nobody reads any more.
#[derive(Default)]
struct Unused {
    /// Chunks that will be used again.
    pooled: Vec<Pages>,
    /// Goes back to the operating system, piece by piece; counts as allocated until then.
    going: Vec<Going>,
}

enum Going {
    Pages(Pages),
    /// What was charged with so many bytes.
    Charged {
        _memory: Box<dyn Send>,
        bytes: usize,
    },
}

impl Going {
    fn len(&self) -> usize {
        match self {
            Going::Pages(pages) => pages.len(),
            Going::Charged { bytes, .. } => *bytes,
        }
    }
}

impl ChunkPool {
    /// `chunk_size_bytes` is brought into 4 KiB..=1 GiB and up to whole pages; at most
    /// `pooled_chunks_max` unused chunks are kept, the others go back to the operating system.
    pub fn new(chunk_size_bytes: usize, pooled_chunks_max: usize) -> Arc<ChunkPool> {
        let size = chunk_size_bytes.clamp(CHUNK_SIZE_BYTES_MIN, CHUNK_SIZE_BYTES_MAX);
        Arc::new(ChunkPool {
            chunk_size_bytes: size.next_multiple_of(PAGE_BYTES),
            pooled_chunks_max: AtomicUsize::new(pooled_chunks_max),
            allocated_bytes: AtomicUsize::new(0),
            in_segments_bytes: AtomicUsize::new(0),
            charged_bytes: AtomicUsize::new(0),
            going_bytes: AtomicUsize::new(0),
            allocated_max_bytes: AtomicUsize::new(usize::MAX),
            unused: Mutex::default(),
            frees_beside: AtomicBool::new(false),
            pooled_count: AtomicUsize::new(0),
            work: Condvar::new(),
            watch: OnceLock::new(),
        })
    }

    /// Waits for chunks are recorded from now on, if they are long.
    pub fn record_stalls(&self, watch: Watch) {
        let _ = self.watch.set(watch); // once is enough
    }

    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.get()
    }

    /// Bytes of a full-sized chunk.
    pub fn chunk_size_bytes(&self) -> usize {
        self.chunk_size_bytes
    }

    /// Bytes taken from the operating system and not given back: chunks in use, memory of large cells, arrays of
    /// flat segments, and the pool.
    pub fn allocated_bytes(&self) -> usize {
        self.allocated_bytes.load(Ordering::Relaxed)
    }

    /// The part of [`ChunkPool::allocated_bytes`] that waits in the pool to be used again.
    pub fn pooled_bytes(&self) -> usize {
        self.pooled_count.load(Ordering::Relaxed) * self.chunk_size_bytes
    }

    /// Bytes of chunks in use: held by a segment, or by readers of one that is gone.
    pub fn used_bytes(&self) -> usize {
        self.allocated_bytes().saturating_sub(self.pooled_bytes())
    }

    /// The part of [`ChunkPool::used_bytes`] that is in segments, whoever holds those, arrays of flat ones included.
    pub fn in_segments_bytes(&self) -> usize {
        self.in_segments_bytes.load(Ordering::Relaxed) + self.charged_bytes.load(Ordering::Relaxed)
    }

    /// The part of [`ChunkPool::used_bytes`] that nobody holds any more: it is on its way to the operating system.
    pub fn going_bytes(&self) -> usize {
        self.going_bytes.load(Ordering::Relaxed)
    }

    /// The part of [`ChunkPool::used_bytes`] whose segments are gone: single cells, in answers that wait, hold it.
    pub fn in_cells_bytes(&self) -> usize {
        self.used_bytes().saturating_sub(self.in_segments_bytes() + self.going_bytes())
    }

    /// A segment has taken a chunk in.
    pub(crate) fn note_in_segment(&self, chunk: &Chunk) {
        self.in_segments_bytes.fetch_add(chunk.size_bytes(), Ordering::Relaxed);
    }

    /// A segment with chunks of so many bytes is gone.
    pub(crate) fn note_segment_gone(&self, bytes: usize) {
        take_off(&self.in_segments_bytes, bytes, "bytes in segments");
    }

    /// A chunk of `size_bytes`: from the pool if it is the full size and there is one.
    pub(crate) fn take(self: &Arc<Self>, size_bytes: usize) -> Arc<Chunk> {
        let size_bytes = size_bytes.next_multiple_of(PAGE_BYTES);
        let pooled = if size_bytes == self.chunk_size_bytes {
            let mut unused = locked(&self.unused);
            let pooled = self.pop_pooled(&mut unused).or_else(|| self.pop_going(&mut unused));
            drop(unused);
            self.work.notify_one();
            pooled
        } else {
            None
        };
        let memory = pooled.unwrap_or_else(|| {
            self.allocated_bytes.fetch_add(size_bytes, Ordering::Relaxed);
            self.make_room(size_bytes);
            let map = || Pages::map(size_bytes).expect("the operating system has memory");
            let detail = || "a chunk, from the operating system".to_string();
            match self.watch() {
                Some(watch) => watch.stalls.watch(&*watch.clock, "chunk-memory", detail, map),
                None => map(),
            }
        });
        Chunk::pooled(memory, self.clone())
    }

    /// Changes how many bytes of unused chunks are kept. What is too much goes back to the operating system, chunk by
    /// chunk.
    pub fn set_pooled_max(&self, bytes: usize) {
        let count = bytes / self.chunk_size_bytes;
        self.pooled_chunks_max.store(count, Ordering::Relaxed);
        loop {
            let mut unused = locked(&self.unused);
            if unused.pooled.len() <= count {
                return;
            }
            let memory = self.pop_pooled(&mut unused);
            drop(unused);
            take_off(&self.allocated_bytes, memory.map_or(0, |memory| memory.len()), "allocated bytes");
        }
    }

    /// Limits what chunks in use and chunks in the pool take together, in bytes: chunks wait in the pool only while it
    /// is less. Chunks in use are not limited here.
    pub fn set_allocated_max(&self, bytes: usize) {
        self.allocated_max_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Gives chunks that wait back to the operating system for `size_bytes` of another kind, if there is no room for
    /// both.
    fn make_room(&self, size_bytes: usize) {
        let mut left = size_bytes.div_ceil(self.chunk_size_bytes);
        while left > 0
            && self.pooled_bytes() > 0
            && self.allocated_bytes() > self.allocated_max_bytes.load(Ordering::Relaxed)
        {
            let memory = self.pop_pooled(&mut locked(&self.unused));
            take_off(&self.allocated_bytes, memory.map_or(0, |memory| memory.len()), "allocated bytes");
            left -= 1;
        }
    }

    /// From now on memory that is to go back to the operating system is left to whoever calls
    /// [`ChunkPool::keep_ready`]: the last reader of a large memstore must not pay for all of it.
    pub fn free_beside(&self) {
        self.frees_beside.store(true, Ordering::Relaxed);
    }

    /// Does one thing, and waits until there is one to be done, at most `timeout`. Frees a piece of memory that waits for
    /// it; or, if fewer than `count` chunks are pooled, adds one whose memory is there to the last page: a writer that
    /// needs a chunk need not wait while the operating system finds one. For a thread that does nothing else.
    /// *Blocking*.
    pub fn keep_ready(&self, count: usize, timeout: Duration) {
        let count = count.min(self.pooled_chunks_max.load(Ordering::Relaxed));
        let mut unused = locked(&self.unused);
        if unused.going.is_empty() && unused.pooled.len() >= count {
            self.work.wait_for(&mut unused, timeout);
        }
        if let Some(going) = unused.going.pop() {
            drop(unused);
            let len = going.len();
            drop(going);
            take_off(&self.allocated_bytes, len, "allocated bytes");
            take_off(&self.going_bytes, len, "bytes that are to go");
            return;
        }
        if unused.pooled.len() >= count {
            return;
        }
        drop(unused);
        let memory = Pages::map_present(self.chunk_size_bytes).expect("the operating system has memory");
        self.allocated_bytes.fetch_add(memory.len(), Ordering::Relaxed);
        self.give_back(memory);
    }

    /// Ends a [`ChunkPool::keep_ready`] that waits.
    pub fn wake(&self) {
        drop(locked(&self.unused));
        self.work.notify_all();
    }

    fn pop_pooled(&self, unused: &mut Unused) -> Option<Pages> {
        let memory = unused.pooled.pop();
        self.pooled_count.store(unused.pooled.len(), Ordering::Relaxed);
        memory
    }

    /// A full-sized chunk that was about to go.
    fn pop_going(&self, unused: &mut Unused) -> Option<Pages> {
        let is_full_sized =
            |going: &Going| matches!(going, Going::Pages(pages) if pages.len() == self.chunk_size_bytes);
        match unused.going.pop_if(|last| is_full_sized(last))? {
            Going::Pages(pages) => {
                take_off(&self.going_bytes, pages.len(), "bytes that are to go");
                Some(pages)
            }
            Going::Charged { .. } => None,
        }
    }

    fn give_back(&self, memory: Pages) {
        let has_room = self.allocated_bytes() <= self.allocated_max_bytes.load(Ordering::Relaxed);
        if memory.len() == self.chunk_size_bytes && has_room {
            let mut unused = locked(&self.unused);
            if unused.pooled.len() < self.pooled_chunks_max.load(Ordering::Relaxed) {
                unused.pooled.push(memory);
                self.pooled_count.store(unused.pooled.len(), Ordering::Relaxed);
                let (pooled, allocated) =
                    (unused.pooled.len() * self.chunk_size_bytes, self.allocated_bytes());
                assert!(pooled <= allocated, "chunks that wait are allocated: {pooled} of {allocated} bytes");
                return;
            }
        }
        self.let_go(Going::Pages(memory));
    }

    /// Memory besides chunks counts as used of this pool, until it is [`ChunkPool::release`]d.
    pub(crate) fn charge(&self, bytes: usize) {
        self.allocated_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.charged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Frees what was charged.
    pub(crate) fn release(&self, memory: Box<dyn Send>, bytes: usize) {
        take_off(&self.charged_bytes, bytes, "bytes charged besides chunks");
        self.let_go(Going::Charged { _memory: memory, bytes });
    }

    /// Frees at once, or leaves it to the thread that does.
    fn let_go(&self, going: Going) {
        if self.frees_beside.load(Ordering::Relaxed) {
            self.going_bytes.fetch_add(going.len(), Ordering::Relaxed);
            locked(&self.unused).going.push(going);
            self.work.notify_one();
            return;
        }
        let len = going.len();
        drop(going);
        take_off(&self.allocated_bytes, len, "allocated bytes");
    }
}

/// Takes bytes off an account that has them. Below nothing it would wrap, and a server that believes to have no memory left
/// refuses every write.
fn take_off(account: &AtomicUsize, bytes: usize, what: &str) {
    let before = account.fetch_sub(bytes, Ordering::Relaxed);
    assert!(before >= bytes, "{what}: {bytes} are taken off, {before} are there");
}

/// A piece of memory that belongs to a segment, or to several that follow each other.
pub(crate) struct Chunk {
    memory: Memory,
    /// May run past the end; then the chunk is full.
    used_bytes: AtomicUsize,
}

enum Memory {
    Pooled {
        /// `None` only inside `drop`.
        pages: Option<Pages>,
        pool: Arc<ChunkPool>,
    },
    /// A range of another chunk, which no other part overlaps.
    Part { start: NonNull<u8>, len: usize, _of: Arc<Chunk> },
}

// SAFETY: the memory is reached through ranges that `allocate` gives to one caller each; a part keeps the chunk that it
// lies in.
unsafe impl Send for Chunk {}
// SAFETY: as above; what `allocate` changes is atomic.
unsafe impl Sync for Chunk {}

impl Chunk {
    fn pooled(pages: Pages, pool: Arc<ChunkPool>) -> Arc<Chunk> {
        let base = pages.base().addr().get();
        assert!(
            base.is_multiple_of(RANGE_ALIGN),
            "ranges are aligned as their chunk is, which lies at {base:#x}"
        );
        let memory = Memory::Pooled { pages: Some(pages), pool };
        Arc::new(Chunk { memory, used_bytes: AtomicUsize::new(0) })
    }

    /// A chunk of `size_bytes` inside this one; `None` if this one is full.
    pub(crate) fn part(self: &Arc<Self>, size_bytes: usize) -> Option<Arc<Chunk>> {
        let start = self.allocate(size_bytes)?;
        let memory = Memory::Part { start, len: size_bytes, _of: self.clone() };
        Some(Arc::new(Chunk { memory, used_bytes: AtomicUsize::new(0) }))
    }

    #[inline]
    fn range(&self) -> (NonNull<u8>, usize) {
        match &self.memory {
            Memory::Pooled { pages, .. } => {
                let pages = pages.as_ref().expect("a live chunk has its memory");
                (pages.base(), pages.len())
            }
            Memory::Part { start, len, .. } => (*start, *len),
        }
    }

    /// Takes `size_bytes` of uninitialised memory aligned to [`RANGE_ALIGN`]; `None` if the chunk is full.
    /// The range is the caller's alone, and is valid as long as the chunk is.
    #[inline]
    pub(crate) fn allocate(&self, size_bytes: usize) -> Option<NonNull<u8>> {
        let size_bytes = size_bytes.next_multiple_of(RANGE_ALIGN);
        let (base, len) = self.range();
        if self.used_bytes.load(Ordering::Relaxed) > len {
            return None; // full before: do not let the counter run on
        }
        let start = self.used_bytes.fetch_add(size_bytes, Ordering::Relaxed);
        assert!(
            start.is_multiple_of(RANGE_ALIGN),
            "a node's pointers are aligned; this range begins at {start}"
        );
        if start.checked_add(size_bytes)? > len {
            return None;
        }
        // SAFETY: start + size is inside the range, so start is.
        let range = unsafe { base.add(start) };
        invariant!(
            self.contains(range, size_bytes),
            "{size_bytes} bytes at {start} lie in their chunk of {len} bytes: a cell would be written over another one"
        );
        Some(range)
    }

    /// Whether these bytes lie in the chunk.
    pub(crate) fn contains(&self, range: NonNull<u8>, size_bytes: usize) -> bool {
        let (base, len) = self.range();
        let start = range.addr().get().checked_sub(base.addr().get());
        start.is_some_and(|start| start + size_bytes <= len)
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.range().1
    }

    /// How far the chunk is used: a number that is different at nearly every allocation.
    #[inline]
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if let Memory::Pooled { pages, pool } = &mut self.memory
            && let Some(pages) = pages.take()
        {
            pool.give_back(pages);
        }
    }
}

/// Initialised bytes of a chunk, and the reference that keeps them.
struct ChunkBytes {
    start: NonNull<u8>,
    len: usize,
    _chunk: Arc<Chunk>,
}

// SAFETY: the bytes are never written again once `share` was called, and the chunk is thread-safe.
unsafe impl Send for ChunkBytes {}
// SAFETY: as above.
unsafe impl Sync for ChunkBytes {}

impl AsRef<[u8]> for ChunkBytes {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: promised by the caller of `share`; the chunk is held.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

/// Shares bytes of a chunk; they keep the chunk alive.
///
/// # Safety
/// `bytes` lie in `chunk`, are initialised, and are not written any more.
pub(crate) unsafe fn share(chunk: Arc<Chunk>, bytes: &[u8]) -> Bytes {
    Bytes::from_owner(ChunkBytes { start: NonNull::from(bytes).cast(), len: bytes.len(), _chunk: chunk })
}

/// Takes a lock. Under Miri nobody sleeps for one: it objects to the types with which `parking_lot` calls the kernel.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    while cfg!(miri) {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        std::thread::yield_now();
    }
    mutex.lock()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_sized_chunks_return_to_the_pool_and_odd_ones_to_the_system() {
        let pool = ChunkPool::new(8192, 1);
        let (one, two, odd) = (pool.take(8192), pool.take(8192), pool.take(100));
        assert_eq!((pool.allocated_bytes(), pool.pooled_bytes()), (2 * 8192 + 4096, 0));
        drop((one, odd));
        assert_eq!((pool.allocated_bytes(), pool.pooled_bytes()), (2 * 8192, 8192));
        drop(two);
        assert_eq!((pool.allocated_bytes(), pool.pooled_bytes()), (8192, 8192));
        let again = pool.take(8192);
        assert_eq!((pool.allocated_bytes(), pool.pooled_bytes()), (8192, 0));
        drop(again);
    }

    #[test]
    fn what_waits_goes_before_there_is_too_much() {
        let pool = ChunkPool::new(8192, 10);
        pool.set_allocated_max(4 * 8192);
        drop((0..4).map(|_| pool.take(8192)).collect::<Vec<_>>());
        assert_eq!((pool.used_bytes(), pool.pooled_bytes()), (0, 4 * 8192));
        let large = pool.take(3 * 8192);
        assert_eq!((pool.used_bytes(), pool.pooled_bytes()), (3 * 8192, 8192));
        let used = [pool.take(8192), pool.take(8192), pool.take(8192)];
        assert_eq!((pool.used_bytes(), pool.pooled_bytes()), (6 * 8192, 0));
        drop(used);
        assert_eq!(pool.pooled_bytes(), 8192, "as many as there is room for");
        drop(large);
    }

    #[test]
    fn chunks_are_made_ready_up_to_a_number() {
        let pool = ChunkPool::new(8192, 3);
        for _ in 0..5 {
            pool.keep_ready(2, Duration::ZERO);
        }
        assert_eq!((pool.allocated_bytes(), pool.pooled_bytes()), (2 * 8192, 2 * 8192));
        let taken = pool.take(8192);
        pool.keep_ready(2, Duration::ZERO);
        assert_eq!((pool.allocated_bytes(), pool.pooled_bytes()), (3 * 8192, 2 * 8192));
        drop(taken);
        pool.keep_ready(100, Duration::ZERO);
        assert_eq!(pool.pooled_bytes(), 3 * 8192);
        pool.set_pooled_max(10_000);
        assert_eq!((pool.allocated_bytes(), pool.pooled_bytes()), (8192, 8192));
        pool.keep_ready(2, Duration::ZERO);
        assert_eq!(pool.pooled_bytes(), 8192);
    }

    /// The last reader of a memstore hands over what it held; somebody else pays for it, one piece at a time.
    #[test]
    fn memory_goes_piece_by_piece_beside() {
        let pool = ChunkPool::new(8192, 1);
        pool.free_beside();
        pool.charge(5000);
        let odd = pool.take(100_000);
        let chunks: Vec<_> = (0..10).map(|_| pool.take(8192)).collect();
        let all = pool.allocated_bytes();
        drop((odd, chunks));
        pool.release(Box::new([0u8; 5000]), 5000);
        assert_eq!(
            (pool.allocated_bytes(), pool.pooled_bytes()),
            (all, 8192),
            "one was pooled, nothing was freed"
        );
        let mut before = all;
        let mut steps = 0;
        while pool.allocated_bytes() > 8192 {
            pool.keep_ready(0, Duration::ZERO);
            let step = before - pool.allocated_bytes();
            assert!(step > 0 && step <= 102_400, "{step}");
            before -= step;
            steps += 1;
        }
        assert_eq!(steps, 11);
        // What is about to go is taken again rather than mapped anew.
        drop((0..3).map(|_| pool.take(8192)).collect::<Vec<_>>());
        assert_eq!(pool.allocated_bytes(), 3 * 8192);
        let again: Vec<_> = (0..3).map(|_| pool.take(8192)).collect();
        assert_eq!(pool.allocated_bytes(), 3 * 8192);
        drop(again);
    }

    #[test]
    fn ranges_are_aligned_and_end_with_the_chunk() {
        let pool = ChunkPool::new(4096, 1);
        let chunk = pool.take(4096);
        let first = chunk.allocate(13).expect("room");
        let second = chunk.allocate(4080).expect("room");
        assert_eq!(second.as_ptr() as usize - first.as_ptr() as usize, 16);
        assert!(chunk.allocate(1).is_none());
        assert!(chunk.allocate(1).is_none());
    }

    #[test]
    fn shared_bytes_keep_the_chunk() {
        let pool = ChunkPool::new(4096, 4);
        let chunk = pool.take(4096);
        let start = chunk.allocate(4).expect("room");
        // SAFETY: four fresh bytes of the chunk, written before they are shared.
        let bytes = unsafe {
            start.copy_from_nonoverlapping(NonNull::from(b"abcd").cast(), 4);
            share(chunk, std::slice::from_raw_parts(start.as_ptr(), 4))
        };
        let tail = bytes.slice(2..);
        drop(bytes);
        assert_eq!((&tail[..], pool.pooled_bytes()), (&b"cd"[..], 0));
        drop(tail);
        assert_eq!(pool.pooled_bytes(), 4096);
    }
}
