use std::hash::{BuildHasher, RandomState};

use parking_lot::{Mutex, MutexGuard};

const STRIPES: usize = 1024;

/// Striped locks of rows: equal rows share a lock, and so may different ones.
///
/// Held from before a write reads what it depends on until its cells stand in the memstore; never across I/O
/// (see docs/decisions/0002). *Lock order*: stripes of one batch in ascending order, then the region's update
/// lock, then the write numbers, then the log.
pub(crate) struct RowLocks {
    stripes: Box<[Mutex<()>]>,
    hasher: RandomState,
}

/// Holds the locks of one batch.
pub(crate) struct RowGuards<'a> {
    _guards: Guards<'a>,
}

enum Guards<'a> {
    One { _guard: MutexGuard<'a, ()> },
    Many { _guards: Vec<MutexGuard<'a, ()>> },
}

impl RowLocks {
    pub fn new() -> RowLocks {
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        RowLocks { stripes, hasher: RandomState::new() }
    }

    fn stripe(&self, row: &[u8]) -> usize {
        (self.hasher.hash_one(row) % STRIPES as u64) as usize
    }

    pub fn lock_one(&self, row: &[u8]) -> RowGuards<'_> {
        RowGuards { _guards: Guards::One { _guard: self.stripes[self.stripe(row)].lock() } }
    }

    pub fn lock_all<'r>(&self, rows: impl Iterator<Item = &'r [u8]>) -> RowGuards<'_> {
        let mut stripes: Vec<usize> = rows.map(|row| self.stripe(row)).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let guards = stripes.into_iter().map(|stripe| self.stripes[stripe].lock()).collect();
        RowGuards { _guards: Guards::Many { _guards: guards } }
    }
}
