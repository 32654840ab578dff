//! Access to the operating system: files, clocks, randomness and threads.
//!
//! Everything in `base`, `storage` and `cluster` reaches the operating system through an [`Env`], so that a
//! test can put a simulated file system and a clock of its own in place. `clippy.toml` holds this.
//!
//! [`FileSystem`] is blocking: callers use threads that may block. Durability is explicit:
//! bytes are safe after [`WritableFile::sync`], names after [`FileSystem::sync_dir`]; [`FileSystem::put_new`]
//! and [`FileSystem::replace`] do both.

mod clock;
mod fs;
mod host;
mod invariants;
mod proc;
mod real;
pub mod sim;
mod stalls;
mod watched;

use std::sync::Arc;
use std::time::Duration;

pub use clock::{Clock, ManualClock, SystemClock};
pub use fs::{DirEntry, FileLock, FileSystem, ReadableFile, UpdatableFile, WritableFile};
pub use invariants::{INVARIANTS, Witness};
pub use proc::{
    ProcessUsage, ProcessorTimes, memory_bytes, process_usage, processor_model, processor_times,
    resident_bytes,
};
pub use real::RealFileSystem;
pub use stalls::{Activity, Due, Holder, Stall, StallSum, Stalls, Watch};
pub use watched::WatchedFileSystem;

/// Some ten small requests.
const SHORT_TURN: Duration = Duration::from_micros(200);

/// What a component needs of the world. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    pub fs: Arc<dyn FileSystem>,
    pub clock: Arc<dyn Clock>,
    /// Where waits that took too long are recorded.
    pub stalls: Arc<Stalls>,
}

impl Env {
    /// The machine's own files and clock; slow files are recorded.
    pub fn real() -> Env {
        let (clock, stalls) = (Arc::new(SystemClock::new()), Arc::new(Stalls::default()));
        let fs = WatchedFileSystem::new(Arc::new(RealFileSystem), clock.clone(), stalls.clone());
        Env { fs: Arc::new(fs), clock, stalls }
    }

    /// As [`Stalls::acquire`].
    #[inline]
    pub fn acquire<T>(
        &self,
        cause: &'static str,
        at_once: impl FnOnce() -> Option<T>,
        within: impl FnOnce(Duration) -> Option<T>,
        at_last: impl FnOnce() -> T,
        detail: impl FnOnce() -> String,
    ) -> T {
        self.stalls.acquire(&*self.clock, cause, at_once, within, at_last, detail)
    }

    /// What waits are measured and recorded with.
    pub fn watch(&self) -> Watch {
        Watch { stalls: self.stalls.clone(), clock: self.clock.clone() }
    }
}

/// Starts a named operating system thread.
#[allow(clippy::disallowed_methods)] // the one place that may
pub fn spawn_thread<F>(name: &str, body: F) -> std::io::Result<std::thread::JoinHandle<()>>
where
    F: FnOnce() + Send + 'static,
{
    std::thread::Builder::new().name(name.to_string()).spawn(body)
}

/// From now on the calling thread, and what it starts, gets less of a processor than others while there are too few for
/// all: so many steps of `nice` less than before. It still runs, and alone as fast as ever. Where the operating system
/// refuses, nothing changes.
pub fn step_back(steps: i32) {
    // "No process" is the calling thread: on Linux each has its own.
    if let Ok(nice) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, nice + steps);
    }
}

/// From now on the calling thread, when it wakes up, goes before others that have run for longer than a moment already; where
/// the operating system knows such a thing (see `halcyon-scheduler`). For threads that do little at a time and have others
/// wait for it.
pub fn go_before() {
    let _ = halcyon_scheduler::ask_for_turns_of(SHORT_TURN); // it does as well without
}

/// `N` unpredictable bytes from the operating system.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    real::random_bytes()
}
