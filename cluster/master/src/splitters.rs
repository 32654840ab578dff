//! Which live server is asked to split a WAL of a dead one.
//!
//! One that could not split it is asked again after all others, because it may never be able to: it waits for a DataNode that only it does
//! not reach, say, and then no other one is asked in that attempt (`wal_split.rs`). Of the others the one is asked that splits fewest WALs
//! at the moment, so that all of them work; of these the one that was asked longest ago.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use halcyon_schema::ServerName;

/// WALs of which failed attempts are remembered.
const FAILED_MAX: usize = 1_000;

/// # Invariants
/// What is under way was begun, and ends once.
#[derive(Default)]
pub(crate) struct Splitters {
    servers: BTreeMap<ServerName, Splitter>,
    /// How often each server has failed with a WAL that is not split.
    failed: BTreeMap<PathBuf, BTreeMap<ServerName, u32>>,
    /// How often servers were asked.
    asked: u64,
}

#[derive(Clone, Copy, Default)]
struct Splitter {
    under_way: usize,
    /// The value of `asked` when it was asked last; 0: it was not.
    last: u64,
}

impl Splitters {
    /// Chooses one of `servers`, which splits the WAL until [`Splitters::end`].
    pub(crate) fn begin(&mut self, wal: &Path, servers: &[ServerName]) -> Option<ServerName> {
        let failed = self.failed.get(wal);
        let key = |server: &&ServerName| {
            let known = self.servers.get(*server).copied().unwrap_or_default();
            let failures = failed.and_then(|failed| failed.get(*server)).copied().unwrap_or(0);
            (failures, known.under_way, known.last)
        };
        let server = servers.iter().min_by_key(key)?.clone();
        self.asked += 1;
        let asked = self.servers.entry(server.clone()).or_default();
        assert!(asked.last < self.asked, "{server} was asked before it is asked");
        (asked.under_way, asked.last) = (asked.under_way + 1, self.asked);
        self.forget_idle(servers);
        Some(server)
    }

    /// Servers come and go.
    fn forget_idle(&mut self, servers: &[ServerName]) {
        if self.servers.len() > 2 * servers.len().max(FAILED_MAX) {
            self.servers.retain(|server, known| known.under_way > 0 || servers.contains(server));
        }
    }

    pub(crate) fn end(&mut self, server: &ServerName) {
        let known = self.servers.get_mut(server);
        let known = known.expect("one that splits a WAL is not forgotten");
        assert!(known.under_way > 0, "{server} ends what it has not begun");
        known.under_way -= 1;
    }

    pub(crate) fn note_failed(&mut self, wal: &Path, server: &ServerName) {
        if self.failed.len() < FAILED_MAX || self.failed.contains_key(wal) {
            let count = self.failed.entry(wal.to_path_buf()).or_default().entry(server.clone()).or_default();
            *count = count.saturating_add(1);
        }
    }

    /// Forgets the failures of other WALs.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(&Path) -> bool) {
        self.failed.retain(|wal, _| is_kept(wal));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: u16) -> Vec<ServerName> {
        (0..count).map(|number| ServerName::new("h", number + 1, 1)).collect()
    }

    fn port(server: Option<ServerName>) -> u16 {
        server.map_or(0, |server| server.port)
    }

    /// Turns went over all WALs: with as many WALs in each attempt as servers, each WAL came to the same server again and again.
    #[test]
    fn a_wal_comes_to_all_servers_before_one_is_asked_again() {
        let (servers, wals) = (names(3), ["1", "2", "3"].map(PathBuf::from));
        let mut splitters = Splitters::default();
        let mut asked: BTreeMap<&Path, Vec<u16>> = BTreeMap::new();
        for _attempt in 0..6 {
            for wal in &wals {
                let server = splitters.begin(wal, &servers).unwrap();
                asked.entry(wal).or_default().push(server.port);
                splitters.end(&server);
                splitters.note_failed(wal, &server);
            }
        }
        for (wal, ports) in asked {
            for round in ports.chunks(3) {
                let mut round = round.to_vec();
                round.sort_unstable();
                assert_eq!(round, [1, 2, 3], "{}: {ports:?}", wal.display());
            }
        }
    }

    #[test]
    fn the_one_that_splits_fewest_is_asked() {
        let (servers, wal) = (names(3), Path::new("w"));
        let mut splitters = Splitters::default();
        let first: Vec<u16> = (0..6).map(|_| port(splitters.begin(wal, &servers))).collect();
        assert_eq!(first, [1, 2, 3, 1, 2, 3]);
        splitters.end(&servers[2]);
        splitters.end(&servers[2]);
        splitters.end(&servers[1]);
        assert_eq!(port(splitters.begin(wal, &servers)), 3);
        assert_eq!(
            port(splitters.begin(wal, &servers)),
            2,
            "of equal ones the one that was asked longest ago"
        );
        assert_eq!(port(splitters.begin(wal, &servers[..1])), 1, "the others were asked already");
        assert_eq!(port(splitters.begin(wal, &[])), 0);
        // What was split is forgotten.
        splitters.note_failed(wal, &servers[0]);
        splitters.keep(|other| other != wal);
        assert!(splitters.failed.is_empty());
    }
}
