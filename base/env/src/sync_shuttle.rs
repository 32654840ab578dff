//! Shuttle's locks with the verbs of `parking_lot`.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub use shuttle::hint::spin_loop;
use shuttle::sync as checked;
pub use shuttle::sync::atomic;
pub use shuttle::thread::yield_now;

#[derive(Debug, Default)]
pub struct Mutex<T>(checked::Mutex<T>);

/// Empty only while a condition is waited for.
pub struct MutexGuard<'a, T>(Option<checked::MutexGuard<'a, T>>);

#[derive(Debug, Default)]
pub struct Condvar(checked::Condvar);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(checked::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().expect("a test that panicked is over")))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
    }

    /// Waits as long as it takes.
    pub fn try_lock_for(&self, _timeout: Duration) -> Option<MutexGuard<'_, T>> {
        Some(self.lock())
    }

    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("a test that panicked is over")
    }
}

impl Condvar {
    pub fn new() -> Condvar {
        Condvar(checked::Condvar::new())
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("nothing else waits with this guard");
        guard.0 = Some(self.0.wait(held).expect("a test that panicked is over"));
    }

    /// Waits as long as it takes.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) {
        self.wait(guard);
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("empty only inside a wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("empty only inside a wait")
    }
}
