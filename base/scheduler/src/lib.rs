//! The scheduler slice of the calling thread.
//!
//! Linux runs each ready thread for a slice of some milliseconds (three, mostly). A thread that wakes while all CPUs are
//! busy waits for the end of such a slice. If it has requested a shorter slice than the running threads have, it
//! preempts them, and its own slices end earlier (EEVDF, with a slice for each thread since Linux 6.12; see
//! `sched_setattr(2)` and `Documentation/scheduler/sched-eevdf.rst`). A thread that answers small requests runs for
//! about ten microseconds at a time and loses nothing.
//!
//! Unsafe code: two system calls that no library in use offers.

use std::io;
use std::time::Duration;

/// Requests a time slice of this length for the calling thread. The operating system clamps it to 0.1 ms to 100 ms. The
/// `nice` value stays. Threads that the thread starts have the default slice.
///
/// `Unsupported` where the system has no slices per thread, or the thread has another scheduling policy. Before Linux 6.12
/// the call succeeds and changes nothing.
pub fn request_slice(length: Duration) -> io::Result<()> {
    sys::request_slice(length)
}

/// The calling thread's time slice, requested or default; zero where the system does not tell.
pub fn slice_length() -> io::Result<Duration> {
    sys::slice_length()
}

#[cfg(all(target_os = "linux", not(miri)))]
mod sys {
    use std::mem::{size_of, zeroed};

    use libc::{SCHED_FLAG_RESET_ON_FORK, SCHED_OTHER, SYS_sched_getattr, SYS_sched_setattr, sched_attr};

    use super::*;

    /// The calling thread.
    const MYSELF: libc::pid_t = 0;
    const NO_FLAGS: libc::c_uint = 0;

    fn attributes() -> io::Result<sched_attr> {
        // SAFETY: the structure consists of numbers, for which 0 is a value.
        let mut attributes: sched_attr = unsafe { zeroed() };
        let len = size_of::<sched_attr>() as libc::c_uint;
        // SAFETY: the kernel writes at most `len` bytes, which are the structure's own.
        let failed = unsafe { libc::syscall(SYS_sched_getattr, MYSELF, &raw mut attributes, len, NO_FLAGS) };
        if failed == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn request_slice(length: Duration) -> io::Result<()> {
        let mut attributes = attributes()?;
        if attributes.sched_policy != SCHED_OTHER as u32 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        attributes.size = size_of::<sched_attr>() as u32;
        attributes.sched_flags = SCHED_FLAG_RESET_ON_FORK as u64;
        attributes.sched_runtime = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the kernel reads as many bytes as `size` says, which is how large the structure is.
        let failed = unsafe { libc::syscall(SYS_sched_setattr, MYSELF, &raw const attributes, NO_FLAGS) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    pub(super) fn slice_length() -> io::Result<Duration> {
        attributes().map(|attributes| Duration::from_nanos(attributes.sched_runtime))
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod sys {
    use super::*;

    pub(super) fn request_slice(_: Duration) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn slice_length() -> io::Result<Duration> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
