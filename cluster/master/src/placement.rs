//! Which server has which region, which one gets it, and the way there.
//!
//! A region has edits that are not in its files until the server that had it has closed it, or until that server's WALs are
//! split. So a region whose last server is dead is opened nowhere before the server's recovery is over.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{RegionServerApi, Standing};
use halcyon_env::Clock;
use halcyon_schema::{RegionInfo, ServerName};

use crate::state::{MasterState, RegionEntry, RegionState, Tables};

/// Where a region is by what the master knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// This server has it, or may have it.
    At(ServerName),
    /// Open nowhere. The server had it last.
    Nowhere(Option<ServerName>),
    /// The server that had it is dead, and its WALs are not split yet.
    Recovering(ServerName),
}

/// Whether a region in this state may be open, or be opening or closing, on its server.
fn may_be_open(state: RegionState) -> bool {
    use RegionState::{Closing, FailedClose, Merging, Open, Opening, PendingClose, PendingOpen, Splitting};
    matches!(state, Open | Opening | Closing | Splitting | Merging | PendingOpen | PendingClose | FailedClose)
}

impl MasterState {
    pub(crate) fn place_of(&self, region: &RegionInfo) -> Place {
        if self.cluster.servers.is_one_process() {
            // It knows better than the master whether it has the region.
            return self.cluster.servers.online().pop().map_or(Place::Nowhere(None), Place::At);
        }
        if region.is_meta() {
            let place = self.meta_place.read().clone();
            return self.place(Some(&place.server), place.is_open);
        }
        let tables = self.tables.read();
        match tables.region(region.encoded_name()) {
            Some((_, _, known)) => self.place(known.server.as_ref(), may_be_open(known.state)),
            None => Place::Nowhere(None),
        }
    }

    fn place(&self, server: Option<&ServerName>, may_be_open: bool) -> Place {
        let Some(server) = server else { return Place::Nowhere(None) };
        match self.cluster.servers.standing(server) {
            Standing::Online if may_be_open => Place::At(server.clone()),
            Standing::Online | Standing::Gone => Place::Nowhere(Some(server.clone())),
            Standing::Recovering => Place::Recovering(server.clone()),
        }
    }

    /// `Moved` if no server has the region; `Busy` while its server's WALs are being split.
    pub(crate) fn server_name_of(&self, region: &RegionInfo) -> Result<ServerName> {
        match self.place_of(region) {
            Place::At(server) => Ok(server),
            Place::Nowhere(_) => Err(Error::new(ErrorKind::Moved, format!("{region} is not open"))),
            Place::Recovering(server) => Err(recovering(region, &server)),
        }
    }

    /// As [`MasterState::server_name_of`].
    pub(crate) fn server_of(&self, region: &RegionInfo) -> Result<Arc<dyn RegionServerApi>> {
        let name = self.server_name_of(region)?;
        let died = || Error::new(ErrorKind::Busy, format!("{name}, which has {region}, has just died"));
        self.cluster.servers.get(&name).ok_or_else(died)
    }

    /// The regions that live servers have open. *Blocking*.
    pub(crate) fn online_regions(&self) -> Result<Vec<RegionInfo>> {
        let mut regions = Vec::new();
        for server in self.cluster.servers.online() {
            if let Some(server) = self.cluster.servers.get(&server) {
                regions.extend(server.online_regions()?);
            }
        }
        Ok(regions)
    }
}

/// Calls again what failed because a region is not where it is looked for, or not yet: a server lets a region serve some moments
/// after the master knows that it is open.
pub(crate) fn soon<T>(clock: &dyn Clock, call: impl Fn() -> Result<T>) -> Result<T> {
    const PAUSE: Duration = Duration::from_millis(20);
    const ATTEMPTS: u32 = 100;
    for _ in 1..ATTEMPTS {
        match call() {
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Moved) => clock.sleep(PAUSE),
            result => return result,
        }
    }
    call()
}

pub(crate) fn recovering(region: &RegionInfo, server: &ServerName) -> Error {
    Error::new(ErrorKind::Busy, format!("{region} waits until the WALs of {server} are split"))
}

/// Chooses servers for regions. What it has chosen counts for the next choice.
pub(crate) struct Chooser {
    /// Servers that may get regions, with the number of regions that they have.
    counts: HashMap<ServerName, usize>,
}

impl Chooser {
    /// `Busy` if there is no server. Servers that are drained get regions only if there are no others.
    pub(crate) fn new(core: &MasterState) -> Result<Chooser> {
        let (mut online, draining) = (core.cluster.servers.online(), core.cluster.servers.draining());
        if online.iter().any(|server| !draining.contains(server)) {
            online.retain(|server| !draining.contains(server));
        }
        if online.is_empty() {
            return Err(Error::new(ErrorKind::Busy, "there is no region server to open regions on"));
        }
        let mut counts: HashMap<ServerName, usize> = online.into_iter().map(|server| (server, 0)).collect();
        if counts.len() > 1 {
            count(&core.tables.read(), &mut counts);
        }
        Ok(Chooser { counts })
    }

    /// Leaves a server out, unless it is the only one.
    pub(crate) fn without(mut self, server: &ServerName) -> Chooser {
        if self.counts.len() > 1 {
            self.counts.remove(server);
        }
        self
    }

    /// The server that is wanted, if it may get regions; else the one at the address where the region was last, which may have
    /// blocks of it in its cache; else the one with the fewest regions.
    pub(crate) fn choose(&mut self, wanted: Option<&ServerName>, last: Option<&ServerName>) -> ServerName {
        let wanted = wanted.filter(|server| self.counts.contains_key(*server)).cloned();
        let chosen = wanted.or_else(|| self.same_address(last?)).unwrap_or_else(|| self.emptiest(None));
        self.count(chosen)
    }

    /// Another server than the one that could not open the region, unless there is no other.
    pub(crate) fn choose_after_failure(&mut self, failed: Option<&ServerName>) -> ServerName {
        let chosen = self.emptiest(failed);
        self.count(chosen)
    }

    fn count(&mut self, chosen: ServerName) -> ServerName {
        *self.counts.entry(chosen.clone()).or_default() += 1;
        chosen
    }

    fn same_address(&self, last: &ServerName) -> Option<ServerName> {
        let mut known = self.counts.keys();
        known.find(|server| server.host == last.host && server.port == last.port).cloned()
    }

    fn emptiest(&self, avoided: Option<&ServerName>) -> ServerName {
        let fewest = self
            .counts
            .iter()
            .min_by_key(|(server, count)| (avoided == Some(*server), **count, (*server).clone()));
        fewest.expect("there is a server").0.clone()
    }
}

/// Adds the regions of all tables to the servers that have them.
fn count(tables: &Tables, counts: &mut HashMap<ServerName, usize>) {
    let known = tables.by_name.values().flat_map(|table| table.regions.values());
    for RegionEntry { server, state, .. } in known {
        if let Some(count) = server.as_ref().filter(|_| may_be_open(*state)).and_then(|it| counts.get_mut(it))
        {
            *count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chooser(counts: &[(&str, usize)]) -> Chooser {
        let counts = counts.iter().map(|(host, count)| (ServerName::new(*host, 16020, 1), *count));
        Chooser { counts: counts.collect() }
    }

    #[test]
    fn regions_go_where_few_are() {
        let mut chooser = chooser(&[("a", 3), ("b", 1), ("c", 2)]);
        let chosen: Vec<_> = (0..6).map(|_| chooser.choose(None, None).host).collect();
        assert_eq!(chosen, ["b", "b", "c", "a", "b", "c"]);
    }

    #[test]
    fn a_region_returns_to_the_address_where_it_was() {
        let mut chooser = chooser(&[("a", 9), ("b", 1)]);
        let (before, other) = (ServerName::new("a", 16020, 0), ServerName::new("a", 16021, 0));
        assert_eq!(chooser.choose(None, Some(&before)).host, "a");
        assert_eq!(chooser.choose(None, Some(&other)).host, "b");
        let (wanted, gone) = (ServerName::new("b", 16020, 1), ServerName::new("b", 16020, 7));
        assert_eq!(chooser.choose(Some(&wanted), Some(&before)).host, "b");
        assert_eq!(chooser.choose(Some(&gone), Some(&before)).host, "a");
    }

    #[test]
    fn the_only_server_is_not_left_out() {
        let a = ServerName::new("a", 16020, 1);
        assert_eq!(chooser(&[("a", 1), ("b", 9)]).choose_after_failure(Some(&a)).host, "b");
        assert_eq!(chooser(&[("a", 1)]).choose_after_failure(Some(&a)).host, "a");
        assert_eq!(chooser(&[("a", 1), ("b", 9)]).without(&a).choose(None, None).host, "b");
        assert_eq!(chooser(&[("a", 1)]).without(&a).choose(None, None).host, "a");
    }
}
