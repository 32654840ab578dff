//! How many regions each server has, for who chooses a server for a region.
//!
//! Counting looks at every region. A server that is decommissioned has as many moves as regions, so a count for each move would take a
//! time that grows with the square of the regions: 20,000 moves of 60,000 regions would look at 1,200,000,000. So a count serves for a
//! while that is long beside what it took. What was chosen meanwhile is added to it, so that choices at the same time see each other.

use std::collections::HashMap;

use halcyon_schema::{RegionInfo, ServerName};

use crate::placement::may_be_open;
use crate::state::{MasterState, RegionEntry, Tables};

/// A count serves so many times as long as it took: counting takes a twentieth of the time at most.
const SERVES_TIMES: u64 = 20;

/// Servers that regions move to, and the last count. Behind a lock that is taken before that of the tables.
#[derive(Default)]
pub(crate) struct Targets {
    /// Of regions that are not closed yet, by their encoded names.
    by_region: HashMap<String, ServerName>,
    counted: Option<Counted>,
}

struct Counted {
    counts: HashMap<ServerName, usize>,
    /// Until when it serves (`Clock::monotonic_ns`).
    until_ns: u64,
}

impl Targets {
    /// The numbers of regions of these servers.
    pub(crate) fn counts(
        &mut self,
        core: &MasterState,
        online: Vec<ServerName>,
    ) -> HashMap<ServerName, usize> {
        let clock = &core.env.clock;
        let asked_ns = clock.monotonic_ns();
        if let Some(Counted { counts, until_ns }) = &self.counted
            && asked_ns < *until_ns
            && counts.len() == online.len()
            && online.iter().all(|server| counts.contains_key(server))
        {
            return counts.clone();
        }
        let online_count = online.len();
        let mut counts: HashMap<ServerName, usize> = online.into_iter().map(|server| (server, 0)).collect();
        let mut until_ns = 0;
        if counts.len() > 1 {
            let tables = core.tables.read();
            let begun_ns = clock.monotonic_ns(); // who waits for the lock has not counted yet
            count(&tables, &mut counts);
            count_targets(&tables, &self.by_region, &mut counts);
            let now_ns = clock.monotonic_ns();
            let took_ns = now_ns.saturating_sub(begun_ns);
            until_ns = now_ns.saturating_add(took_ns.saturating_mul(SERVES_TIMES));
        }
        assert_eq!(
            counts.len(),
            online_count,
            "regions are counted of servers that may get some, and of no others"
        );
        self.counted = Some(Counted { counts: counts.clone(), until_ns });
        counts
    }

    /// A region that is to move there when it is closed.
    pub(crate) fn add(&mut self, region: &RegionInfo, server: &ServerName) {
        self.by_region.insert(region.encoded_name().to_string(), server.clone());
        self.note(server);
    }

    /// A region is about to be opened there.
    pub(crate) fn note(&mut self, server: &ServerName) {
        let counts = self.counted.as_mut().map(|counted| &mut counted.counts);
        if let Some(count) = counts.and_then(|counts| counts.get_mut(server)) {
            *count += 1;
        }
    }

    pub(crate) fn forget(&mut self, region: &RegionInfo) {
        self.by_region.remove(region.encoded_name());
    }
}

/// Adds the regions of all tables to the servers that have them.
fn count(tables: &Tables, counts: &mut HashMap<ServerName, usize>) {
    let known = tables.by_name.values().flat_map(|table| table.all().map(|(_, known)| known));
    for RegionEntry { server, state, .. } in known {
        if let Some(count) = server.as_ref().filter(|_| may_be_open(*state)).and_then(|it| counts.get_mut(it))
        {
            *count += 1;
        }
    }
}

/// Adds the regions that are about to come to a server, and that [`count`] has not counted there.
fn count_targets(
    tables: &Tables,
    targets: &HashMap<String, ServerName>,
    counts: &mut HashMap<ServerName, usize>,
) {
    for (region, target) in targets {
        let known = tables.region(region).map(|(_, _, known)| known);
        let is_there =
            |known: &RegionEntry| known.server.as_ref() == Some(target) && may_be_open(known.state);
        if let Some(count) = counts.get_mut(target).filter(|_| known.is_some_and(|known| !is_there(known))) {
            *count += 1;
        }
    }
}
