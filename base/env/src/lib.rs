//! Access to the operating system: files, clocks, randomness, threads, and locks that record long waits.
//!
//! Everything in `base`, `storage` and `cluster` reaches the operating system through an [`Env`]. A test replaces it by a
//! simulated file system and a manual clock. `clippy.toml` enforces this.
//!
//! [`FileSystem`] blocks its caller, so it is called on threads made for I/O. Durability is explicit: bytes are durable
//! after [`WritableFile::sync`], names after [`FileSystem::sync_dir`]; [`FileSystem::put_new`] and [`FileSystem::replace`]
//! do both.
//!
//! [`Stalls`] records waits that took too long. [`WatchedMutex`] and [`WatchedRwLock`] record theirs with what the lock's
//! holder was doing ([`Activity`]). [`vitals`] sees threads that do not come on with their work. [`spawn_thread`], [`Mutex`], [`RwLock`] and [`Condvar`] are threads and
//! waits that a simulation of a whole cluster drives ([`sim::SimThreads`]). [`sync`] has those of code that also runs under Shuttle.

mod activity;
mod clock;
mod contain;
mod fs;
mod host;
mod invariants;
mod locks;
mod lookups;
mod patience;
mod proc;
mod read_only;
mod real;
pub mod sim;
mod stalls;
pub mod sync;
mod tally;
mod threads;
pub mod vitals;
mod waits;
mod watched;

use std::sync::Arc;
use std::time::Duration;

pub use activity::{Activity, Before, Holder};
pub use clock::{Clock, ManualClock, SystemClock};
pub use contain::{contained, is_contained};
pub use fs::{
    Attempt, BlockHosts, DirEntry, ErasureCoding, FileLock, FileSystem, ReadableFile, UpdatableFile,
    WritableFile, in_doubt, is_in_doubt,
};
pub use halcyon_crypto::{CryptoSettings, Keys};
pub use invariants::{INVARIANTS, Witness};
pub use locks::{WatchedMutex, WatchedRwLock};
pub use lookups::Lookups;
pub use patience::{Impatience, IsWanted, Patience};
pub use proc::{
    ProcessUsage, ProcessorTimes, ThreadState, ThreadTimes, lock_holder, memory_bytes, process_usage,
    processor_model, processor_times, resident_bytes, thread_state, thread_times,
};
pub use read_only::ReadOnlyFileSystem;
pub use real::RealFileSystem;
pub use stalls::{Due, Stall, StallSum, Stalls, Watch};
pub use tally::{Tally, Waited};
pub use threads::{
    Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitResult, join_thread,
    run_on_threads, spawn_thread, yield_now,
};
pub use waits::Wait;
pub use watched::WatchedFileSystem;

/// Some ten small requests.
const SHORT_SLICE: Duration = Duration::from_micros(200);

/// What a component needs of the world. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// Where the root directory is: tables, WALs, archive.
    pub fs: Arc<dyn FileSystem>,
    /// This machine's own files, wherever the root directory is: configuration, cache tier, `/proc`, and the lock by which
    /// one process at a time has the data directory.
    pub local: Arc<dyn FileSystem>,
    pub clock: Arc<dyn Clock>,
    /// Where waits that took too long are recorded.
    pub stalls: Arc<Stalls>,
    /// For files that are encrypted.
    pub keys: Arc<Keys>,
}

impl Env {
    /// The machine's own files and clock; slow files are recorded.
    pub fn real() -> Env {
        let (clock, stalls) = (Arc::new(SystemClock::new()), Arc::new(Stalls::default()));
        let local = WatchedFileSystem::new(Arc::new(RealFileSystem), clock.clone(), stalls.clone());
        let local: Arc<dyn FileSystem> = Arc::new(local);
        Env { fs: local.clone(), local, clock, stalls, keys: Arc::new(Keys::none()) }
    }

    /// As `real`, for a program that only looks at files: it cannot change any.
    pub fn read_only() -> Env {
        let (clock, stalls) = (Arc::new(SystemClock::new()), Arc::new(Stalls::default()));
        let (fs, local) = (Arc::new(ReadOnlyFileSystem), Arc::new(ReadOnlyFileSystem));
        Env { fs, local, clock, stalls, keys: Arc::new(Keys::none()) }
    }

    /// With keys that are looked for in this machine's files.
    pub fn with_crypto(self, settings: CryptoSettings) -> Env {
        let local = self.local.clone();
        let keys = Keys::new(settings, move |path| local.read(path));
        Env { keys: Arc::new(keys), ..self }
    }

    /// What waits are measured and recorded with.
    pub fn watch(&self) -> Watch {
        Watch { stalls: self.stalls.clone(), clock: self.clock.clone() }
    }
}

/// Lowers the priority of the calling thread, and of threads that it starts, by this many steps of `nice`. While there are
/// too few processors for all threads it gets less time than others; otherwise it runs as fast as before. Where the operating
/// system refuses, nothing changes.
pub fn lower_priority(nice_steps: i32) {
    // "No process" is the calling thread: on Linux each has its own.
    if let Ok(nice) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, nice + nice_steps);
    }
}

/// Lets the calling thread, when it wakes up, preempt threads that have run for longer than a moment, where the operating
/// system has time slices per thread (see `halcyon-scheduler`). For threads that do little at a time while others wait for
/// them.
pub fn raise_priority() {
    let _ = halcyon_scheduler::request_slice(SHORT_SLICE); // it works as well without
}

/// `N` unpredictable bytes from the operating system. In a simulation they follow from its seed.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    sim::threads::random_bytes().unwrap_or_else(real::random_bytes)
}
