//! Which procedures may run beside each other.

use std::collections::HashMap;
use std::fmt;

use halcyon_schema::{RegionInfo, ServerName, TableName};

use super::job::Job;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Resource {
    Namespace(String),
    Table(TableName),
    /// By its encoded name: beside a shared lock of its table.
    Region(String),
    /// A dead region server.
    Server(ServerName),
    /// By its name: what reads a snapshot shares it, what makes or deletes one has it alone.
    Snapshot(String),
    /// A replication peer, by its id.
    Peer(String),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Namespace(name) => write!(f, "namespace {name}"),
            Resource::Table(name) => write!(f, "table {name}"),
            Resource::Region(name) => write!(f, "region {name}"),
            Resource::Server(name) => write!(f, "server {name}"),
            Resource::Snapshot(name) => write!(f, "snapshot {name}"),
            Resource::Peer(id) => write!(f, "peer {id}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) resource: Resource,
    pub(crate) shared: bool,
}

impl Lock {
    /// What an action on a table takes: the table, and the namespace so that it stays.
    pub(crate) fn table(table: &TableName) -> Vec<Lock> {
        vec![
            Lock { resource: Resource::Namespace(table.namespace().to_string()), shared: true },
            Lock { resource: Resource::Table(table.clone()), shared: false },
        ]
    }

    /// What an action takes that changes nothing about a table but needs it to stay as it is.
    pub(crate) fn table_shared(table: &TableName) -> Vec<Lock> {
        let mut locks = Lock::table(table);
        locks[1].shared = true;
        locks
    }

    /// As [`Lock::table_shared`] for what brings regions back. A namespace that has a table stays without a lock, and who changes one may
    /// be waiting for just this region: that of `hbase:namespace`.
    pub(crate) fn table_kept(table: &TableName) -> Vec<Lock> {
        vec![Lock { resource: Resource::Table(table.clone()), shared: true }]
    }

    /// To be taken beside [`Lock::table_shared`].
    pub(crate) fn region(region: &RegionInfo) -> Lock {
        Lock { resource: Resource::Region(region.encoded_name().to_string()), shared: false }
    }

    pub(crate) fn server(server: &ServerName) -> Lock {
        Lock { resource: Resource::Server(server.clone()), shared: false }
    }

    pub(crate) fn snapshot(name: &str) -> Lock {
        Lock { resource: Resource::Snapshot(name.to_string()), shared: false }
    }

    pub(crate) fn snapshot_shared(name: &str) -> Lock {
        Lock { shared: true, ..Lock::snapshot(name) }
    }

    pub(crate) fn peer(id: &str) -> Lock {
        Lock { resource: Resource::Peer(id.to_string()), shared: false }
    }

    pub(crate) fn namespace(name: &str) -> Vec<Lock> {
        vec![Lock { resource: Resource::Namespace(name.to_string()), shared: false }]
    }
}

/// Who holds what. The number of holders; -1 is one exclusive holder.
#[derive(Default)]
pub(crate) struct LockTable {
    held: HashMap<Resource, i32>,
}

impl LockTable {
    pub(crate) fn is_free(&self, locks: &[Lock]) -> bool {
        locks.iter().all(|lock| match self.held.get(&lock.resource) {
            None => true,
            Some(&holders) => lock.shared && holders > 0,
        })
    }

    pub(crate) fn take(&mut self, locks: &[Lock]) {
        assert!(self.is_free(locks), "a lock is taken only when it is free");
        for lock in locks {
            *self.held.entry(lock.resource.clone()).or_insert(0) += if lock.shared { 1 } else { -1 };
        }
    }

    /// What procedures hold that fail again and again, or are set aside.
    pub(super) fn of_stuck(paused: &[Job]) -> LockTable {
        let mut stuck = LockTable::default();
        for job in paused.iter().filter(|job| job.is_stuck()) {
            for lock in job.locks.iter().filter(|lock| !job.yielded.contains(lock)) {
                let holders = stuck.held.entry(lock.resource.clone()).or_insert(0);
                *holders = if lock.shared && *holders >= 0 { *holders + 1 } else { -1 };
            }
        }
        stuck
    }

    /// Whether each of these is held, and in that way, by somebody.
    pub(crate) fn holds(&self, locks: &[Lock]) -> bool {
        locks
            .iter()
            .all(|lock| self.held.get(&lock.resource).is_some_and(|&holders| (holders > 0) == lock.shared))
    }

    pub(crate) fn release(&mut self, locks: &[Lock]) {
        for lock in locks {
            let holders = self.held.get_mut(&lock.resource).expect("a lock is held until it is released");
            assert!((*holders > 0) == lock.shared, "{lock:?} is released in the way it was taken");
            *holders -= if lock.shared { 1 } else { -1 };
            if *holders == 0 {
                self.held.remove(&lock.resource);
            }
        }
    }

    /// Adds what a waiting procedure wants, for those behind it: nobody overtakes on the same resource.
    pub(crate) fn reserve(&mut self, locks: &[Lock]) {
        for lock in locks {
            let holders = self.held.entry(lock.resource.clone()).or_insert(0);
            *holders = if lock.shared && *holders >= 0 { *holders + 1 } else { -1 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_share_a_namespace_but_not_a_table() {
        let (a, b) = (TableName::parse(b"n:a").unwrap(), TableName::parse(b"n:b").unwrap());
        let mut locks = LockTable::default();
        locks.take(&Lock::table(&a));
        assert!(locks.is_free(&Lock::table(&b)));
        assert!(!locks.is_free(&Lock::table(&a)));
        assert!(!locks.is_free(&Lock::table_shared(&a)));
        assert!(!locks.is_free(&Lock::namespace("n")));
        locks.take(&Lock::table_shared(&b));
        assert!(locks.is_free(&Lock::table_shared(&b)));
        locks.release(&Lock::table(&a));
        locks.release(&Lock::table_shared(&b));
        assert!(locks.is_free(&Lock::namespace("n")));
        assert!(locks.held.is_empty());
    }
}
