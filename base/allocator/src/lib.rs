//! The allocator of the binaries, and memory pages from the operating system.
//!
//! A server with a memory budget must return unused memory. By default mimalloc keeps free memory for a second in case
//! it is needed again. Under a flood of large values that was half of the resident memory: with a budget of 128 MiB,
//! 193 MiB resident and 66 MiB in use. With a delay of 10 ms it was 115 MiB.
//!
//! Unsafe code: one setting of the allocator that its Rust wrapper lacks, the counting and the sampling wrapper, and page mapping.

mod counting;
mod pages;
mod sampling;

use std::time::Duration;

pub use counting::{Allocations, CountingAllocator};
pub use pages::Pages;
pub use sampling::{Observer, SampledAllocator, observe_allocations, stop_observing_allocations};

/// Set this as `#[global_allocator]`.
pub use mimalloc::MiMalloc as Allocator;

/// `mi_option_purge_delay`: its place among the options of `mimalloc.h`, the same in versions 2 and 3.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Gives memory back that the calling thread has allocated and others have freed since, and what all threads have left
/// of whole pages. A thread that allocates much and then rests keeps all that otherwise. Some ten microseconds.
pub fn give_back() {
    // SAFETY: may be called at any time by any thread.
    unsafe { libmimalloc_sys::mi_collect(false) }
}

/// How long free memory is kept before the operating system gets it back. For the start of a program.
pub fn set_keep_time(time: Duration) {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    // SAFETY: the option exists, and the call stores a number and nothing else; it is safe at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, millis) }
}
