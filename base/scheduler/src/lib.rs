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

/// Asks for turns of this length for the calling thread, from a tenth of a millisecond to a tenth of a second; what is
/// outside is brought inside by the operating system. Its priority stays. Threads that it starts have not asked for anything.
///
/// `Unsupported` where threads have no such length, or where the thread is not scheduled like most others. Before Linux 6.12
/// nothing changes, and nobody says so.
pub fn ask_for_turns_of(length: Duration) -> io::Result<()> {
    sys::ask_for_turns_of(length)
}

/// How long the calling thread's turns are, as asked for or not; zero where the system does not say.
pub fn length_of_turns() -> io::Result<Duration> {
    sys::length_of_turns()
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

    pub(super) fn ask_for_turns_of(length: Duration) -> io::Result<()> {
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

    pub(super) fn length_of_turns() -> io::Result<Duration> {
        attributes().map(|attributes| Duration::from_nanos(attributes.sched_runtime))
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod sys {
    use super::*;

    pub(super) fn ask_for_turns_of(_: Duration) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn length_of_turns() -> io::Result<Duration> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
