//! Large pieces of memory straight from the operating system, on huge pages where it has them.
//!
//! A skip list of a hundred megabytes is walked at random, and with pages of 4 KiB nearly every step of a walk misses
//! the processor's table of pages; in a virtual machine such a miss costs more than the access itself.

use std::io;
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4 << 10;
/// A huge page of x86-64, and of 64-bit Arm with 4 KiB pages.
#[cfg_attr(miri, allow(dead_code))] // it maps nothing
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Zeroed memory that is this value's own; goes back when dropped.
///
/// *Thread safety*: an address and a length. Whoever writes through the address sees to it that nobody else does.
#[derive(Debug)]
pub struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the value and to no thread; the value itself gives no access to it.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` bytes, a multiple of 4,096 and not 0. From 2 MiB on they begin at a multiple of that.
    pub fn map(len: usize) -> io::Result<Pages> {
        assert!(len > 0 && len.is_multiple_of(PAGE_BYTES), "whole pages are mapped, not {len} bytes");
        crate::sampling::allocates(len);
        sys::map(len)
    }

    /// As [`Pages::map`]; the operating system has found and cleared the memory already. *Blocking*: this can take
    /// milliseconds, and tens of them in a virtual machine whose host has to find the memory too.
    pub fn map_present(len: usize) -> io::Result<Pages> {
        let pages = Pages::map(len)?;
        // Page by page: Linux has an advice that does it at once (`MADV_POPULATE_WRITE`), but meanwhile holds a lock that
        // whoever maps something waits for, and behind him all who give memory back.
        for offset in (0..len).step_by(PAGE_BYTES) {
            // SAFETY: within the mapping, which nobody else has seen; it holds zeros, and bytes have no alignment.
            unsafe { pages.base.add(offset).write_volatile(0) };
        }
        Ok(pages)
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(not(miri))]
mod sys {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::*;

    pub(super) fn map(len: usize) -> io::Result<Pages> {
        let slack = if len >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { 0 };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the system's choice touches no memory of anybody.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len + slack, protection, MapFlags::PRIVATE) }?;
        let start = start.cast::<u8>();
        let before = if slack > 0 { start.align_offset(HUGE_PAGE_BYTES) } else { 0 };
        // SAFETY: what is cut off at both ends is part of the new mapping, and nobody has seen it.
        unsafe {
            let base = start.add(before);
            if before > 0 {
                munmap(start.cast(), before)?;
            }
            if slack > before {
                munmap(base.add(len).cast(), slack - before)?;
            }
            if slack > 0 {
                let _ = madvise(base.cast(), len, Advice::LinuxHugepage); // small pages do as well
            }
            Ok(Pages { base: NonNull::new(base).expect("a mapping is not at 0"), len })
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: the range was mapped by `map` and is unmapped once.
            let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}

/// The checker of memory accesses knows no mappings.
#[cfg(miri)]
mod sys {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    use super::*;

    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, PAGE_BYTES).expect("a length of memory")
    }

    pub(super) fn map(len: usize) -> io::Result<Pages> {
        // SAFETY: the length is not 0.
        let base = unsafe { alloc_zeroed(layout(len)) };
        Ok(Pages { base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: allocated by `map` with this layout, and freed once.
            unsafe { dealloc(self.base.as_ptr(), layout(self.len)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_memory_is_zeroed_aligned_and_writable() {
        let lens = [4096, 64 << 10, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 4096];
        let mapped = lens.iter().flat_map(|len| [(*len, Pages::map(*len)), (*len, Pages::map_present(*len))]);
        for (len, pages) in mapped {
            let pages = pages.expect("memory");
            assert_eq!((pages.len(), pages.is_empty()), (len, false));
            assert!(
                len < HUGE_PAGE_BYTES || (pages.base().as_ptr() as usize).is_multiple_of(HUGE_PAGE_BYTES)
            );
            // SAFETY: the memory is this test's own.
            let bytes = unsafe { std::slice::from_raw_parts_mut(pages.base().as_ptr(), len) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
        }
    }

    #[test]
    #[should_panic(expected = "whole pages")]
    fn parts_of_pages_are_refused() {
        let _ = Pages::map(100);
    }
}
