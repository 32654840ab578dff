//! A profile of allocations.

use std::io;

use halcyon_allocator::{observe_allocations, stop_observing_allocations};
use parking_lot::Mutex;

use crate::Profile;
use crate::stacks::{Stack, Stacks};
use crate::symbols::Symbols;

/// Calls from the innermost to the outermost function that are kept.
const DEPTH_MAX: usize = 256;

/// What the running profile has seen.
static SEEN: Mutex<Option<Stacks>> = Mutex::new(None);

/// Samples allocations from [`AllocationProfile::start`] to [`AllocationProfile::finish`]; dropped earlier, it just ends.
/// Sees something only in a program whose `#[global_allocator]` is [`halcyon_allocator::SampledAllocator`].
///
/// *Thread safety*: a process has one at a time.
pub struct AllocationProfile(());

impl AllocationProfile {
    /// A sample for each `interval_bytes` that a thread allocates, which stands for so many bytes. `AlreadyExists` while
    /// another profile runs.
    pub fn start(interval_bytes: usize) -> io::Result<AllocationProfile> {
        let mut seen = SEEN.lock();
        if seen.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        *seen = Some(Stacks::default());
        drop(seen);
        let profile = AllocationProfile(());
        if observe_allocations(interval_bytes, observe) {
            Ok(profile)
        } else {
            Err(io::Error::other("the allocator has another observer"))
        }
    }

    /// *Blocking*: reads debug information for names.
    pub fn finish(self) -> io::Result<Profile> {
        stop_observing_allocations();
        let stacks = SEEN.lock().take().unwrap_or_default();
        std::mem::forget(self); // another profile may begin from here on
        let folded = stacks.fold(&mut Symbols::of_this_process(), is_of_allocator);
        Ok(Profile { folded, samples_count: stacks.samples_count, lost_count: stacks.lost_count })
    }
}

impl Drop for AllocationProfile {
    fn drop(&mut self) {
        stop_observing_allocations();
        SEEN.lock().take();
    }
}

/// By the thread that allocates. What this allocates is not observed.
fn observe(bytes: usize) {
    let mut addresses = Vec::with_capacity(64);
    backtrace::trace(|frame| {
        addresses.push((frame.ip() as u64).saturating_sub(1)); // the call is before the return address
        addresses.len() < DEPTH_MAX
    });
    let thread = rustix::thread::name().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    if let Some(stacks) = &mut *SEEN.lock() {
        stacks.add(Stack { thread, addresses: addresses.into() }, bytes as u64);
    }
}

/// Frames from here on are the same for all allocations.
fn is_of_allocator(name: &str) -> bool {
    name.contains("halcyon_allocator::") || name.contains("__rust_alloc") || name.contains("__rust_realloc")
}
