//! Locks that record long waits, with what the holder was doing.
//!
//! A free lock costs one `try_lock` and a relaxed store of the holder. A wait over the threshold of [`Stalls`]
//! (10 ms by default) is recorded under its cause. Its detail says what the last holder does ([`Activity`]).
//!
//! [`Stalls`]: crate::Stalls
//! [`Activity`]: crate::Activity

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crate::sync::{Mutex, MutexGuard};
use crate::{Holder, RwLock, RwLockReadGuard, RwLockWriteGuard, Watch};

/// A mutex that records long waits for it. *Thread safety*: as `parking_lot`'s.
#[derive(Default)]
pub struct WatchedMutex<T> {
    lock: Mutex<T>,
    /// The thread that took it last.
    holder: AtomicU8,
}

impl<T> WatchedMutex<T> {
    pub fn new(value: T) -> WatchedMutex<T> {
        WatchedMutex { lock: Mutex::new(value), holder: AtomicU8::new(0) }
    }

    /// Takes the lock. A long wait is recorded as `cause`; `detail` is asked only then and gets the holder's activity.
    #[inline]
    pub fn lock(
        &self,
        watch: &Watch,
        cause: &'static str,
        detail: impl FnOnce(&str) -> String,
    ) -> MutexGuard<'_, T> {
        let guard = self.lock.try_lock().unwrap_or_else(|| {
            let holder = || Holder::of_number(self.holder.load(Ordering::Relaxed));
            let within = |time| self.lock.try_lock_for(time);
            watch.acquire_slowly(cause, within, || self.lock.lock(), || detail(holder().activity()))
        });
        self.holder.store(Holder::me().number(), Ordering::Relaxed);
        guard
    }

    /// As `lock`, but waits no longer than `time`.
    #[inline]
    pub fn lock_within(
        &self,
        time: impl FnOnce() -> Duration,
        watch: &Watch,
        cause: &'static str,
        detail: impl FnOnce(&str) -> String,
    ) -> Option<MutexGuard<'_, T>> {
        let guard = self.lock.try_lock().or_else(|| {
            let holder = || Holder::of_number(self.holder.load(Ordering::Relaxed));
            let time = time();
            let within = |wanted: Duration| match self.lock.try_lock_for(wanted.min(time)) {
                None if wanted < time => None,
                taken => Some(taken),
            };
            let wait = || self.lock.try_lock_for(time);
            watch.acquire_slowly(cause, within, wait, || detail(holder().activity()))
        })?;
        self.holder.store(Holder::me().number(), Ordering::Relaxed);
        Some(guard)
    }

    /// The lock itself, for short and rare uses that need no record.
    #[inline]
    pub fn unwatched(&self) -> &Mutex<T> {
        &self.lock
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

/// A reader-writer lock that records long waits for it. *Thread safety*: as `parking_lot`'s.
#[derive(Default)]
pub struct WatchedRwLock<T> {
    lock: RwLock<T>,
    /// The thread that wanted to write last: readers wait for it, be it inside or before the door.
    writer: AtomicU8,
}

impl<T> WatchedRwLock<T> {
    pub fn new(value: T) -> WatchedRwLock<T> {
        WatchedRwLock { lock: RwLock::new(value), writer: AtomicU8::new(0) }
    }

    /// Takes the lock beside other readers. As [`WatchedMutex::lock`]; `detail` gets the last writer's activity.
    #[inline]
    pub fn read(
        &self,
        watch: &Watch,
        cause: &'static str,
        detail: impl FnOnce(&str) -> String,
    ) -> RwLockReadGuard<'_, T> {
        self.lock.try_read().unwrap_or_else(|| {
            let writer = || Holder::of_number(self.writer.load(Ordering::Relaxed));
            let within = |time| self.lock.try_read_for(time);
            watch.acquire_slowly(cause, within, || self.lock.read(), || detail(writer().activity()))
        })
    }

    /// Takes the lock alone. As [`WatchedMutex::lock`]; `detail` gets the activities of all threads, as readers are not
    /// known one by one.
    #[inline]
    pub fn write(
        &self,
        watch: &Watch,
        cause: &'static str,
        detail: impl FnOnce(&str) -> String,
    ) -> RwLockWriteGuard<'_, T> {
        self.writer.store(Holder::me().number(), Ordering::Relaxed);
        self.lock.try_write().unwrap_or_else(|| {
            let within = |time| self.lock.try_write_for(time);
            let detail = || detail(&Holder::activities().join("; "));
            watch.acquire_slowly(cause, within, || self.lock.write(), detail)
        })
    }

    /// As [`WatchedMutex::unwatched`].
    #[inline]
    pub fn unwatched(&self) -> &RwLock<T> {
        &self.lock
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::{Activity, Env, spawn_thread};

    static AT_WORK: Activity = Activity::new("a test at work");

    /// Has another thread wait for what `take` takes, until the wait is over the threshold by far.
    fn waits<G>(
        watch: &Watch,
        held: G,
        take: impl FnOnce(&Watch) + Send + 'static,
    ) -> (&'static str, String) {
        let (other, (begun, begins)) = (watch.clone(), channel());
        let waiting = spawn_thread("waits", move || {
            begun.send(()).expect("the test waits");
            take(&other);
        });
        begins.recv().expect("it begins");
        watch.clock.sleep(Duration::from_millis(50));
        drop(held);
        waiting.expect("started").join().expect("no panic");
        let stall = watch.stalls.recent().pop().expect("it waited long");
        assert!(stall.time >= Duration::from_millis(5), "{stall:?}");
        (stall.cause, stall.detail)
    }

    fn watch() -> Watch {
        let watch = Env::real().watch();
        watch.stalls.set_threshold(Duration::from_millis(5));
        watch
    }

    #[test]
    fn a_long_wait_for_a_mutex_names_what_its_holder_does() {
        let (watch, lock) = (watch(), Arc::new(WatchedMutex::new(1)));
        let held = lock.lock(&watch, "number", |_| unreachable!("it is free"));
        Holder::me().is_at(&AT_WORK);
        let other = lock.clone();
        let told = waits(&watch, held, move |watch| {
            *other.lock(watch, "number", |held_by| format!("by {held_by}")) += 1
        });
        assert_eq!(told, ("number", "by a test at work".into()));
        assert_eq!(*lock.unwatched().lock(), 2);
    }

    #[test]
    fn a_wait_has_an_end() {
        let (watch, lock) = (watch(), WatchedMutex::new(1));
        let taken = |time_ms| {
            let time = || Duration::from_millis(time_ms);
            lock.lock_within(time, &watch, "number", |_| String::new()).is_some()
        };
        assert!(taken(0));
        let held = lock.unwatched().lock();
        assert!(!taken(0) && !taken(1));
        assert_eq!(watch.stalls.recent().len(), 0);
        assert!(!taken(20));
        assert_eq!(watch.stalls.recent().len(), 1, "a long one is recorded all the same");
        drop(held);
        assert!(taken(0));
    }

    #[test]
    fn readers_name_the_writer_and_a_writer_all_who_are_at_work() {
        let (watch, lock) = (watch(), Arc::new(WatchedRwLock::new(1)));
        Holder::me().is_at(&AT_WORK);
        let held = lock.write(&watch, "view", |_| unreachable!("it is free"));
        let other = lock.clone();
        let told =
            waits(&watch, held, move |watch| drop(other.read(watch, "view", |writer| writer.to_string())));
        assert_eq!(told, ("view", "a test at work".into()));
        let held = lock.read(&watch, "view", |_| unreachable!("it is free"));
        let other = lock.clone();
        let told = waits(&watch, held, move |watch| *other.write(watch, "view", |at| at.to_string()) = 5);
        assert!(told.1.contains("a test at work"), "{told:?}");
        assert_eq!((*lock.unwatched().read(), watch.stalls.recent().len()), (5, 2));
    }
}
