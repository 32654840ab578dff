//! Where memory comes from: the allocator of the binaries, and pages from the operating system.
//!
//! A server that promises to stay within a budget has to give back what it no longer uses. mimalloc keeps a free
//! piece for a second by default, in case it is wanted again: under a flood of large values that was half of what
//! was resident (for a budget of 128 MiB, 193 MiB with 66 MiB in use; 115 MiB when pieces go back after 10 ms).
//!
//! Unsafe are a setting of the allocator that its Rust wrapper leaves out, counting in front of it, and the mapping of
//! pages.

mod counting;
mod pages;

use std::time::Duration;

pub use counting::{Allocations, CountingAllocator};
pub use pages::Pages;

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
