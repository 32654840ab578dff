//! Threads, and the waits between them, as a simulation can drive them.
//!
//! Outside of a simulation these are `std`'s threads and `parking_lot`'s locks; a simulated thread is recognized by a thread-local
//! variable, which is read where a thread would wait anyway. See [`SimThreads`](crate::sim::SimThreads).

use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::sim::threads as simulated;

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

/// Waits until a thread of [`spawn_thread`] has ended, and returns what it returned.
pub fn join_thread<T>(thread: JoinHandle<T>) -> std::thread::Result<T> {
    simulated::wait_for_end(thread.thread().id())?;
    thread.join()
}

/// A condition variable. Locks that it is used with are held across no call of a file or of another server.
///
/// *Thread safety*: as `parking_lot`'s.
#[derive(Debug, Default)]
pub struct Signal(Condvar);

impl Signal {
    pub fn new() -> Signal {
        Signal::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match simulated::is_simulated() {
            true => MutexGuard::unlocked(guard, || simulated::wait_for_signal(self.key(), None)),
            false => self.0.wait(guard),
        }
    }

    /// Waits for `time` at most.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        match simulated::is_simulated() {
            true => MutexGuard::unlocked(guard, || simulated::wait_for_signal(self.key(), Some(time))),
            false => drop(self.0.wait_for(guard, time)),
        }
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

/// A mutex that is held while its holder waits for files or for other servers.
///
/// *Thread safety*: as `parking_lot`'s.
#[derive(Debug, Default)]
pub struct LongMutex<T>(Mutex<T>);

impl<T> LongMutex<T> {
    pub fn new(value: T) -> LongMutex<T> {
        LongMutex(Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        if let Some(guard) = self.0.try_lock() {
            return guard;
        }
        while simulated::is_simulated() {
            simulated::pause();
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
        }
        self.0.lock()
    }
}
