//! Memory of parts of the program that the region server does not know, such as the console.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use halcyon_env::Mutex;

/// What one part holds. The part itself says how much that is. It shares the limit of the block cache, which gets
/// smaller by it.
pub struct MemoryAccount {
    name: &'static str,
    held_bytes: AtomicU64,
}

impl MemoryAccount {
    pub fn set(&self, held_bytes: u64) {
        self.held_bytes.store(held_bytes, Ordering::Relaxed);
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes.load(Ordering::Relaxed)
    }
}

/// All accounts. One ends when its part drops it.
#[derive(Default)]
pub(crate) struct MemoryAccounts(Mutex<Vec<Arc<MemoryAccount>>>);

impl MemoryAccounts {
    pub(crate) fn open(&self, name: &'static str) -> Arc<MemoryAccount> {
        let account = Arc::new(MemoryAccount { name, held_bytes: AtomicU64::new(0) });
        self.0.lock().push(Arc::clone(&account));
        account
    }

    pub(crate) fn all(&self) -> Vec<Arc<MemoryAccount>> {
        let mut accounts = self.0.lock();
        accounts.retain(|account| Arc::strong_count(account) > 1);
        accounts.clone()
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.all().iter().map(|account| account.held_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_counts_until_its_part_ends() {
        let accounts = MemoryAccounts::default();
        let (one, other) = (accounts.open("one"), accounts.open("other"));
        one.set(5);
        other.set(7);
        one.set(6);
        assert_eq!(accounts.held_bytes(), 13);
        drop(one);
        assert_eq!(accounts.held_bytes(), 7);
        let names: Vec<_> = accounts.all().iter().map(|account| account.name()).collect();
        assert_eq!(names, ["other"]);
    }
}
