//! The locks and atomics of [`super::Mvcc`]: those of `parking_lot` and `std`, or those of the interleaving checker.

#[cfg(not(halcyon_shuttle))]
mod real {
    pub use std::hint::spin_loop;
    pub use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    pub use parking_lot::{Condvar, Mutex, MutexGuard};
}
#[cfg(not(halcyon_shuttle))]
pub(super) use real::*;

/// `parking_lot`'s shape around Shuttle's locks.
#[cfg(halcyon_shuttle)]
mod checked {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    pub use shuttle::hint::spin_loop;
    pub use shuttle::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    /// `None` only inside of a wait.
    pub struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("a panic ends the whole test")))
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }

        pub fn try_lock_for(&self, _: Duration) -> Option<MutexGuard<'_, T>> {
            self.try_lock()
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("no wait is under way")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("no wait is under way")
        }
    }

    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        pub fn new() -> Condvar {
            Condvar(shuttle::sync::Condvar::new())
        }

        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let held = guard.0.take().expect("no other wait is under way");
            guard.0 = Some(self.0.wait(held).expect("a panic ends the whole test"));
        }

        /// Time never passes: a wakeup that is lost is a deadlock, which the checker reports, and not a few milliseconds.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
            self.wait(guard);
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
#[cfg(halcyon_shuttle)]
pub(super) use checked::*;
