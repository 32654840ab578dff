//! Locks of rows that a coprocessor may hold over several calls (`Region.getRowLock`).
//!
//! The row locks of the engine are never held across I/O (decision 0002), so a hook cannot hold one. A region with
//! coprocessors has these beside them: every write of a client to it takes them first, and hooks that HBase calls under a
//! row's lock are called under one of these. An owner is an operation; it takes a lock again as often as it likes. As in HBase,
//! writes that are not atomic share a row.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use halcyon_env::{Condvar, Mutex};
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
    /// Waits for the row; TimeoutIOException after `patience`, as HBase's.
    pub(crate) fn lock(
        &self,
        owner: u64,
        row: &Bytes,
        shared: bool,
        patience: Duration,
    ) -> Result<(), RpcError> {
        let mut rows = self.rows.lock();
        loop {
            if rows.entry(row.clone()).or_default().take(owner, shared) {
                return Ok(());
            }
            if self.released.wait_for(&mut rows, patience).timed_out() {
                let text = format!("Timed out waiting for lock for row: {}", row.escape_ascii());
                return Err(RpcError::timeout_io(text));
            }
        }
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
    use super::*;

    const SHORT: Duration = Duration::from_millis(5);

    #[test]
    fn owners_come_again_and_others_wait() {
        let (locks, row) = (RowLocks::default(), Bytes::from_static(b"r"));
        locks.lock(1, &row, false, SHORT).unwrap();
        locks.lock(1, &row, false, SHORT).unwrap();
        locks.lock(1, &row, true, SHORT).unwrap();
        let refused = locks.lock(2, &row, true, SHORT).unwrap_err();
        assert!(refused.class.ends_with(".TimeoutIOException"), "{refused}");
        locks.unlock(1, &row, false);
        locks.unlock(1, &row, false);
        locks.lock(2, &row, true, SHORT).unwrap();
        locks.lock(2, &row, false, SHORT).unwrap_err();
        locks.forget(1);
        locks.lock(2, &row, false, SHORT).unwrap();
        locks.forget(2);
        assert!(locks.rows.lock().is_empty());
    }
}
