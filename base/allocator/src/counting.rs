//! Counts what a program allocates, for measurements.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Allocator;

/// Set this as `#[global_allocator]` instead of [`Allocator`], which does the work, to learn from
/// [`CountingAllocator::counts`] how much was allocated.
///
/// *Thread safety*: the counts are of all threads together; they are not exact while others allocate.
pub struct CountingAllocator;

/// Since the start of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// Calls that asked for memory, those for more of it included.
    pub count: u64,
    /// What they asked for.
    pub bytes: u64,
}

static COUNT: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

impl CountingAllocator {
    /// Zeros if this is not the program's allocator.
    pub fn counts() -> Allocations {
        Allocations { count: COUNT.load(Ordering::Relaxed), bytes: BYTES.load(Ordering::Relaxed) }
    }
}

fn count(bytes: usize) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call goes to `Allocator` with what it came with, and what that promises is promised here; counting
// allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { Allocator.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; the memory came from `Allocator`.
        unsafe { Allocator.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { Allocator.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size);
        // SAFETY: the caller keeps the contract of `realloc`; the memory came from `Allocator`.
        unsafe { Allocator.realloc(pointer, layout, new_size) }
    }
}
