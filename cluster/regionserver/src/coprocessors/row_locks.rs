//! Locks of rows that a coprocessor may hold over several calls (`Region.getRowLock`).
//!
//! The row locks of the engine are never held across I/O (decision 0002), so a hook cannot hold one. A region with
//! coprocessors has these beside them: every write of a client to it takes them first, and hooks that HBase calls under a
//! row's lock are called under one of these. An owner is an operation; it takes a lock again as often as it likes. As in HBase,
//! writes that are not atomic share a row.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use halcyon_env::{Clock, Condvar, Mutex};
use halcyon_rpc::RpcError;

/// See the head of the file. *Thread safety*: from any thread; waits hold no other lock.
#[derive(Default)]
pub(crate) struct RowLocks {
    rows: Mutex<HashMap<Bytes, Held>>,
    released: Condvar,
}

/// Who has a row, and how often.
#[derive(Default)]
struct Held {
    exclusive: Option<(u64, usize)>,
    shared: HashMap<u64, usize>,
}

impl Held {
    fn take(&mut self, owner: u64, shared: bool) -> bool {
        match &mut self.exclusive {
            Some((holder, _)) if *holder != owner => return false,
            Some((_, count)) if !shared => {
                *count += 1;
                return true;
            }
            _ => {}
        }
        if !shared {
            if self.shared.keys().any(|holder| *holder != owner) {
                return false;
            }
            self.exclusive = Some((owner, 1));
            return true;
        }
        *self.shared.entry(owner).or_default() += 1;
        true
    }

    fn give_back(&mut self, owner: u64, shared: bool) {
        if shared {
            if let Some(count) = self.shared.get_mut(&owner) {
                *count -= 1;
                if *count == 0 {
                    self.shared.remove(&owner);
                }
            }
        } else if let Some((holder, count)) = &mut self.exclusive
            && *holder == owner
        {
            *count -= 1;
            if *count == 0 {
                self.exclusive = None;
            }
        }
    }

    fn is_free(&self) -> bool {
        self.exclusive.is_none() && self.shared.is_empty()
    }
}

impl RowLocks {
    /// Waits for the row; TimeoutIOException after `patience`, as HBase's. A row that another owner gives back wakes all who
    /// wait, whichever row they want: the time is counted from the call, not from the last time they were woken.
    pub(crate) fn lock(
        &self,
        owner: u64,
        row: &Bytes,
        shared: bool,
        patience: Duration,
        clock: &dyn Clock,
    ) -> Result<(), RpcError> {
        let mut rows = self.rows.lock();
        let (mut until_ns, mut is_late) = (None, false);
        while !rows.entry(row.clone()).or_default().take(owner, shared) {
            let now_ns = clock.monotonic_ns();
            let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
            let left_ns = until_ns.get_or_insert(now_ns.saturating_add(patience_ns)).saturating_sub(now_ns);
            if is_late || left_ns == 0 {
                let text = format!("Timed out waiting for lock for row: {}", row.escape_ascii());
                return Err(RpcError::timeout_io(text));
            }
            is_late = self.released.wait_for(&mut rows, Duration::from_nanos(left_ns)).timed_out();
        }
        Ok(())
    }

    pub(crate) fn unlock(&self, owner: u64, row: &Bytes, shared: bool) {
        let mut rows = self.rows.lock();
        if let Some(held) = rows.get_mut(row) {
            held.give_back(owner, shared);
            if held.is_free() {
                rows.remove(row);
            }
        }
        drop(rows);
        self.released.notify_all();
    }

    /// Gives back whatever an owner has.
    pub(crate) fn forget(&self, owner: u64) {
        self.rows.lock().retain(|_, held| {
            held.shared.remove(&owner);
            held.exclusive.take_if(|(holder, _)| *holder == owner);
            !held.is_free()
        });
        self.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use halcyon_env::SystemClock;

    use super::*;

    const SHORT: Duration = Duration::from_millis(5);

    #[test]
    fn owners_come_again_and_others_wait() {
        let (locks, row) = (RowLocks::default(), Bytes::from_static(b"r"));
        let clock = SystemClock::new();
        let lock = |owner, shared| locks.lock(owner, &row, shared, SHORT, &clock);
        lock(1, false).unwrap();
        lock(1, false).unwrap();
        lock(1, true).unwrap();
        let refused = lock(2, true).unwrap_err();
        assert!(refused.class.ends_with(".TimeoutIOException"), "{refused}");
        locks.unlock(1, &row, false);
        locks.unlock(1, &row, false);
        lock(2, true).unwrap();
        lock(2, false).unwrap_err();
        locks.forget(1);
        lock(2, false).unwrap();
        locks.forget(2);
        assert!(locks.rows.lock().is_empty());
    }

    /// Two operations that lock rows in different orders wait for each other. The time of each wait began anew whenever any row
    /// of the region was given back, so in a region with traffic neither ever ended, and both handlers were lost.
    #[test]
    fn other_rows_do_not_make_it_wait_longer() {
        let (locks, row, other) = (RowLocks::default(), Bytes::from_static(b"r"), Bytes::from_static(b"o"));
        let (clock, is_over) = (SystemClock::new(), AtomicBool::new(false));
        locks.lock(1, &row, false, SHORT, &clock).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let traffic = 0..3000; // of which each round takes a millisecond or more
                for _ in traffic.take_while(|_| !is_over.load(Ordering::Acquire)) {
                    locks.lock(3, &other, false, SHORT, &clock).unwrap();
                    locks.unlock(3, &other, false);
                    clock.sleep(Duration::from_millis(1));
                }
            });
            let begun_ns = clock.monotonic_ns();
            locks.lock(2, &row, false, Duration::from_millis(50), &clock).unwrap_err();
            let waited = Duration::from_nanos(clock.monotonic_ns() - begun_ns);
            is_over.store(true, Ordering::Release);
            assert!(waited < Duration::from_secs(2), "{waited:?} where 50 ms were allowed");
        });
    }
}
