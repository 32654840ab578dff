//! One flush of a region at a time, and who waits for its end without a thread.
//!
//! A flush that began after something was acknowledged has it. So who wants all of that in files waits for the end of what is running,
//! and needs no flush of its own if another one has begun and ended meanwhile.

use halcyon_env::{Mutex, MutexGuard};

use crate::flush::FlushOutcome;

/// *Thread safety*: from any thread. *Lock order*: `running`, then `state`, which is held for moments. Nothing is called under either by
/// this file.
#[derive(Default)]
pub(crate) struct FlushLock {
    running: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How often `running` was taken.
    begun: u64,
    /// The last flush of all families that ended well, by its number, and what it did.
    last: Option<(u64, FlushOutcome)>,
    /// Called once, when `running` is free. As many as calls that wait, which are limited.
    waiting: Vec<Box<dyn FnOnce() + Send>>,
}

/// Holds the lock.
pub(crate) struct Flushing<'a> {
    lock: &'a FlushLock,
    /// `None` once it was let go.
    guard: Option<MutexGuard<'a, ()>>,
    number: u64,
}

impl FlushLock {
    pub fn lock(&self) -> Flushing<'_> {
        self.begin(self.running.lock())
    }

    pub fn try_lock(&self) -> Option<Flushing<'_>> {
        self.running.try_lock().map(|guard| self.begin(guard))
    }

    fn begin<'a>(&'a self, guard: MutexGuard<'a, ()>) -> Flushing<'a> {
        let mut state = self.state.lock();
        state.begun += 1;
        Flushing { lock: self, guard: Some(guard), number: state.begun }
    }

    pub fn is_locked(&self) -> bool {
        self.running.is_locked()
    }

    /// The number of the last flush that has begun.
    pub fn begun(&self) -> u64 {
        self.state.lock().begun
    }

    /// What a flush of all families did that began after the one of this number, and has ended well.
    pub fn done_since(&self, begun: u64) -> Option<FlushOutcome> {
        self.state.lock().last.filter(|(number, _)| *number > begun).map(|(_, outcome)| outcome)
    }

    /// Has `ended` called when who holds the lock has let it go. False if nobody holds it.
    pub fn when_free(&self, ended: impl FnOnce() + Send + 'static) -> bool {
        let mut state = self.state.lock();
        // Who lets it go looks into the list after that, so either they find it there or it is free here.
        let is_locked = self.running.is_locked();
        if is_locked {
            state.waiting.push(Box::new(ended));
        }
        is_locked
    }
}

impl Flushing<'_> {
    /// All families were flushed.
    pub fn note(&self, outcome: FlushOutcome) {
        let mut state = self.lock.state.lock();
        assert!(
            state.last.is_none_or(|(number, _)| number < self.number) && self.number <= state.begun,
            "flushes end in the order in which they began: {} after {:?}",
            self.number,
            state.last
        );
        state.last = Some((self.number, outcome));
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let waiting = std::mem::take(&mut self.lock.state.lock().waiting);
        waiting.into_iter().for_each(|ended| ended());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn who_waits_is_told_of_the_end() {
        let lock = FlushLock::default();
        let told = Arc::new(AtomicUsize::new(0));
        let count = || {
            let told = told.clone();
            move || _ = told.fetch_add(1, Ordering::Relaxed)
        };
        assert!(!lock.when_free(count()) && !lock.is_locked(), "nothing to wait for");
        let first = lock.lock();
        assert!(lock.try_lock().is_none() && lock.is_locked());
        assert!(lock.when_free(count()) && lock.when_free(count()));
        assert_eq!(told.load(Ordering::Relaxed), 0);
        first.note(FlushOutcome::default());
        drop(first);
        assert_eq!(told.load(Ordering::Relaxed), 2);
        drop(lock.try_lock().expect("it is free"));
        assert_eq!(told.load(Ordering::Relaxed), 2, "once each");
    }

    #[test]
    fn what_began_before_does_not_count() {
        let lock = FlushLock::default();
        let running = lock.lock();
        let asked = lock.begun();
        running.note(FlushOutcome { flushed: true, ..FlushOutcome::default() });
        drop(running);
        assert_eq!(lock.done_since(asked), None, "it may lack what came after its beginning");
        drop(lock.lock()); // failed
        assert_eq!(lock.done_since(asked), None);
        let later = lock.lock();
        later.note(FlushOutcome { bytes: 7, ..FlushOutcome::default() });
        assert_eq!(lock.done_since(asked).map(|outcome| outcome.bytes), Some(7));
        assert_eq!(lock.done_since(lock.begun()), None);
    }
}
