//! Threads, and the waits between them, as a simulation can drive them.
//!
//! Outside of a simulation these are `std`'s threads and `parking_lot`'s locks. A lock that is free costs what it costs there. A
//! simulated thread is recognized by a thread-local variable, which is read where a thread would wait, and where it wakes others. See [`SimThreads`](crate::sim::SimThreads).

use std::thread::JoinHandle;
use std::time::Duration;

pub use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::sim::threads as simulated;
use crate::vitals::Helped;

/// Starts a named operating system thread.
#[allow(clippy::disallowed_methods)] // the one place that may
pub fn spawn_thread<F, T>(name: &str, body: F) -> std::io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let builder = std::thread::Builder::new().name(name.to_string());
    match simulated::newcomer(name) {
        None => builder.spawn(body),
        Some(newcomer) => {
            let known = newcomer.clone();
            let thread = builder.spawn(move || newcomer.run(body))?;
            known.started(thread.thread());
            Ok(thread)
        }
    }
}

/// Runs `body` on the calling thread and on others, `count` in all, and returns when all have ended. There may be fewer: a thread
/// that cannot be started is left out, and in a simulation there is none but the calling one.
pub fn run_on_threads(name: &str, count: usize, body: &(dyn Fn() + Sync)) {
    let others = if simulated::is_simulated() { 0 } else { count.saturating_sub(1) };
    let helped = Helped::by_others();
    std::thread::scope(|scope| {
        for number in 1..=others {
            let builder = std::thread::Builder::new().name(format!("{name}-{number}"));
            let helped = helped.clone();
            let help = move || {
                helped.help();
                body();
            };
            if builder.spawn_scoped(scope, help).is_err() {
                break;
            }
        }
        body();
    });
}

/// Waits until a thread of [`spawn_thread`] has ended, and returns what it returned.
pub fn join_thread<T>(thread: JoinHandle<T>) -> std::thread::Result<T> {
    simulated::wait_for_end(thread.thread().id())?;
    thread.join()
}

/// Gives other threads a chance to run, in a loop that looks at what they do.
#[inline]
pub fn yield_now() {
    match simulated::is_simulated() {
        true => simulated::pause(),
        false => std::thread::yield_now(),
    }
}

/// A mutex.
///
/// *Thread safety*: as `parking_lot`'s.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(parking_lot::const_mutex(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => simulated::wait_for_lock(None, || self.0.try_lock()).unwrap_or_else(|| self.0.lock()),
        }
    }

    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock()
    }

    pub fn try_lock_for(&self, time: Duration) -> Option<MutexGuard<'_, T>> {
        match simulated::is_simulated() {
            true => simulated::wait_for_lock(Some(time), || self.0.try_lock()),
            false => self.0.try_lock_for(time),
        }
    }

    pub fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A lock that several may hold to read.
///
/// *Thread safety*: as `parking_lot`'s.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(parking_lot::const_rwlock(value))
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.0.try_read() {
            Some(guard) => guard,
            None => simulated::wait_for_lock(None, || self.0.try_read()).unwrap_or_else(|| self.0.read()),
        }
    }

    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.0.try_read()
    }

    pub fn try_read_for(&self, time: Duration) -> Option<RwLockReadGuard<'_, T>> {
        match simulated::is_simulated() {
            true => simulated::wait_for_lock(Some(time), || self.0.try_read()),
            false => self.0.try_read_for(time),
        }
    }

    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match self.0.try_write() {
            Some(guard) => guard,
            None => simulated::wait_for_lock(None, || self.0.try_write()).unwrap_or_else(|| self.0.write()),
        }
    }

    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.0.try_write()
    }

    pub fn try_write_for(&self, time: Duration) -> Option<RwLockWriteGuard<'_, T>> {
        match simulated::is_simulated() {
            true => simulated::wait_for_lock(Some(time), || self.0.try_write()),
            false => self.0.try_write_for(time),
        }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

/// A condition variable for a [`Mutex`].
///
/// *Thread safety*: as `parking_lot`'s.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

/// Whether a wait ended because its time was over.
#[derive(Clone, Copy, Debug)]
pub struct WaitResult(bool);

impl WaitResult {
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    pub fn new() -> Condvar {
        Condvar::default()
    }

    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match simulated::is_simulated() {
            true => {
                MutexGuard::unlocked(guard, || simulated::wait_for_signal(self.key(), None));
            }
            false => self.0.wait(guard),
        }
    }

    /// Waits for `time` at most.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitResult {
        let is_over = match simulated::is_simulated() {
            true => MutexGuard::unlocked(guard, || simulated::wait_for_signal(self.key(), Some(time))),
            false => self.0.wait_for(guard, time).timed_out(),
        };
        WaitResult(is_over)
    }

    pub fn notify_one(&self) {
        if !simulated::notify(self.key(), false) {
            self.0.notify_one();
        }
    }

    pub fn notify_all(&self) {
        if !simulated::notify(self.key(), true) {
            self.0.notify_all();
        }
    }

    /// Two that exist at the same time have different keys.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
