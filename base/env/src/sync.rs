//! Locks and atomics of the code that runs under Shuttle too: those of this crate and `std`, or Shuttle's own under
//! `cfg(halcyon_shuttle)`. A module whose interleavings are tested takes them from here.
//!
//! Under Shuttle no wait ends by its timeout: a lost wakeup is then a deadlock, which Shuttle reports.

#[cfg(not(halcyon_shuttle))]
mod real {
    pub use crate::threads::{Condvar, Mutex, MutexGuard, yield_now};
    pub use std::hint::spin_loop;
    pub use std::sync::atomic;
}

#[cfg(halcyon_shuttle)]
#[path = "sync_shuttle.rs"]
mod real;

pub use real::{Condvar, Mutex, MutexGuard, atomic, spin_loop, yield_now};
