//! Tells a profiler of some allocations.
//!
//! *Invariants*: off, an allocation costs one relaxed load and a branch that is never taken. On, each thread counts the
//! bytes that it allocates, and every time the count passes the interval it calls the observer. What the observer
//! allocates is not observed.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Allocator;

/// Set this as `#[global_allocator]` instead of [`Allocator`], which does the work, so that [`observe_allocations`] works.
pub struct SampledAllocator;

/// Is called with the bytes that an observed allocation stands for, by the thread that allocates.
pub type Observer = fn(bytes: usize);

/// Bytes between two observed allocations of a thread; 0 is off.
static INTERVAL_BYTES: AtomicUsize = AtomicUsize::new(0);
static OBSERVER: OnceLock<Observer> = OnceLock::new();

thread_local! {
    /// What the thread may still allocate before the next one is observed; more than the interval stands for it. Without
    /// a destructor, so that a thread that ends may allocate.
    static LEFT_BYTES: Cell<usize> = const { Cell::new(usize::MAX) };
    static OBSERVING: Cell<bool> = const { Cell::new(false) };
}

/// From now on `observer` hears of allocations: one for each `interval_bytes` that a thread allocates. A program has one
/// observer: a later call keeps the first one and returns `false`.
pub fn observe_allocations(interval_bytes: usize, observer: Observer) -> bool {
    assert!(interval_bytes > 0, "0 is off");
    let is_first = std::ptr::fn_addr_eq(*OBSERVER.get_or_init(|| observer), observer);
    if is_first {
        INTERVAL_BYTES.store(interval_bytes, Ordering::Relaxed);
    }
    is_first
}

/// Ends what [`observe_allocations`] began. A thread that is just allocating may still call the observer once.
pub fn stop_observing_allocations() {
    INTERVAL_BYTES.store(0, Ordering::Relaxed);
}

/// An allocation of this size takes place.
#[inline(always)]
pub(crate) fn allocates(bytes: usize) {
    let interval_bytes = INTERVAL_BYTES.load(Ordering::Relaxed);
    if interval_bytes != 0 {
        count(bytes, interval_bytes);
    }
}

#[cold]
#[inline(never)]
fn count(bytes: usize, interval_bytes: usize) {
    if OBSERVING.get() {
        return;
    }
    let left = LEFT_BYTES.get().min(interval_bytes);
    if bytes < left {
        LEFT_BYTES.set(left - bytes);
        return;
    }
    let beyond = bytes - left;
    LEFT_BYTES.set(interval_bytes - beyond % interval_bytes);
    let intervals = 1 + beyond / interval_bytes;
    if let Some(observer) = OBSERVER.get() {
        OBSERVING.set(true);
        observer(intervals * interval_bytes);
        OBSERVING.set(false);
    }
}

// SAFETY: every call goes to `Allocator` with what it came with, and what that promises is promised here. The observer
// runs before the allocation and may allocate: it is not called again from there.
unsafe impl GlobalAlloc for SampledAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        allocates(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { Allocator.alloc(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`; the memory came from `Allocator`.
        unsafe { Allocator.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        allocates(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { Allocator.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        allocates(new_size.saturating_sub(layout.size()));
        // SAFETY: the caller keeps the contract of `realloc`; the memory came from `Allocator`.
        unsafe { Allocator.realloc(pointer, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static OBSERVED_COUNT: AtomicUsize = AtomicUsize::new(0);
    static OBSERVED_BYTES: AtomicUsize = AtomicUsize::new(0);

    fn observer(bytes: usize) {
        OBSERVED_COUNT.fetch_add(1, Ordering::Relaxed);
        OBSERVED_BYTES.fetch_add(bytes, Ordering::Relaxed);
        allocates(1 << 30); // by the observer itself: counts for nothing
    }

    fn other(_: usize) {}

    /// One test, as the interval is the whole program's.
    #[test]
    fn each_interval_of_bytes_is_observed_once_and_none_after_the_end() {
        let observed = || (OBSERVED_COUNT.load(Ordering::Relaxed), OBSERVED_BYTES.load(Ordering::Relaxed));
        let thread = |body: fn()| std::thread::scope(|scope| scope.spawn(body).join().unwrap());
        thread(|| allocates(1 << 20));
        assert_eq!(observed(), (0, 0), "nobody observes yet");
        assert!(observe_allocations(1000, observer));
        thread(|| (0..100).for_each(|_| allocates(100)));
        assert_eq!(observed(), (10, 10_000), "small ones add up");
        thread(|| {
            allocates(5500);
            allocates(499);
            allocates(1);
        });
        assert_eq!(observed(), (12, 16_000), "a large one stands for several intervals");
        assert!(!observe_allocations(10, other), "a program has one observer");
        stop_observing_allocations();
        thread(|| allocates(1 << 20));
        assert_eq!(observed(), (12, 16_000));
    }
}
