//! Which server has which region, which one gets it, and the way there.
//!
//! A region has edits that are not in its files until the server that had it has closed it, or until that server's WALs are
//! split. So a region whose last server is dead is opened nowhere before the server's recovery is over.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::{Error, ErrorKind, Result};
use halcyon_contract::{RegionServerApi, Standing};
use halcyon_env::Clock;
use halcyon_schema::{RegionInfo, ServerName};

use crate::groups::Scope;
use crate::state::{MasterState, MetaState, RegionState};
use crate::targets::Targets;

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
pub(crate) fn may_be_open(state: RegionState) -> bool {
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
            return self.place(Some(&place.server), place.state != MetaState::Closed);
        }
        let tables = self.tables.read();
        match tables.region(region.encoded_name()) {
            Some((_, _, known)) => self.place(known.server.as_ref(), may_be_open(known.state)),
            None => Place::Nowhere(None),
        }
    }

    /// Whether a procedure closes the region, or is about to: also to split or merge it.
    pub(crate) fn is_closing(&self, region: &RegionInfo) -> bool {
        let tables = self.tables.read();
        let known = tables.region(region.encoded_name());
        let closes = [RegionState::Closing, RegionState::Splitting, RegionState::Merging];
        known.is_some_and(|(_, _, known)| closes.contains(&known.state))
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

    /// The servers that have, or may have, other copies of the same region.
    pub(crate) fn servers_of_others(&self, region: &RegionInfo) -> Vec<ServerName> {
        let tables = self.tables.read();
        let Some(entry) = tables.by_name.get(region.table()) else { return Vec::new() };
        let primary = region.primary();
        let all = primary.secondaries(entry.descriptor.region_replication());
        let others = std::iter::once(primary.clone()).chain(all).filter(|copy| copy != region);
        let known = others.filter_map(|copy| entry.known(&copy));
        known.filter(|known| may_be_open(known.state)).filter_map(|known| known.server.clone()).collect()
    }

    /// A server for a region that moves, chosen before the region is closed. None if only the server that has it may get it. Moves that
    /// choose at the same time see each other's choices, until [`MasterState::forget_target`].
    pub(crate) fn choose_target(&self, region: &RegionInfo, from: Option<&ServerName>) -> Option<ServerName> {
        let mut targets = self.targets.lock();
        let mut chooser = Chooser::with_targets(self, &mut targets).ok()?;
        if let Some(from) = from {
            chooser = chooser.without(from);
        }
        let others = self.servers_of_others(region);
        let chosen = chooser.choose(&self.scope_of(region.table()), None, None, &others).ok();
        let chosen = chosen.filter(|server| from != Some(server))?;
        targets.add(region, &chosen);
        Some(chosen)
    }

    pub(crate) fn forget_target(&self, region: &RegionInfo) {
        self.targets.lock().forget(region);
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
    /// Servers that are alive, with the number of regions that they have.
    counts: HashMap<ServerName, usize>,
    draining: HashSet<ServerName>,
    /// A server that gets no regions, unless it is the only one that may.
    avoided: Option<ServerName>,
}

impl Chooser {
    /// `Busy` if there is no server.
    pub(crate) fn new(core: &MasterState) -> Result<Chooser> {
        Chooser::with_targets(core, &mut core.targets.lock())
    }

    fn with_targets(core: &MasterState, targets: &mut Targets) -> Result<Chooser> {
        let online = core.members.ready(&core.cluster);
        if online.is_empty() {
            let lacks = core.members.lacks(&core.cluster).into_iter().map(|(_, lack)| format!("; {lack}"));
            let text =
                format!("there is no region server to open regions on{}", lacks.take(3).collect::<String>());
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let counts = targets.counts(core, online);
        let draining = core.cluster.servers.draining().into_iter().collect();
        Ok(Chooser { counts, draining, avoided: None })
    }

    /// Leaves a server out, unless it is the only one that may get a region.
    pub(crate) fn without(self, server: &ServerName) -> Chooser {
        Chooser { avoided: Some(server.clone()), ..self }
    }

    /// The server that is wanted, if it may get regions; else the one at the address where the region was last, which may have
    /// blocks of it in its cache; else the one with the fewest regions. Of the last two not one that has another copy of the
    /// region (`others`), unless there is no other. `Busy` if none may have the region: it waits.
    pub(crate) fn choose(
        &mut self,
        scope: &Scope,
        wanted: Option<&ServerName>,
        last: Option<&ServerName>,
        others: &[ServerName],
    ) -> Result<ServerName> {
        let candidates = self.candidates(scope)?;
        let is_wanted = |server: &&ServerName| wanted == Some(*server);
        let is_here = |server: &&ServerName| {
            last.is_some_and(|it| it.host == server.host && it.port == server.port)
                && !others.contains(*server)
        };
        let found = candidates.iter().find(|it| is_wanted(it)).or(candidates.iter().find(|it| is_here(it)));
        let chosen = found.copied().unwrap_or_else(|| self.emptiest(&candidates, None, others)).clone();
        self.check_choice(&candidates, &chosen);
        Ok(self.count(chosen))
    }

    /// Another server than the one that could not open the region, unless there is no other.
    pub(crate) fn choose_after_failure(
        &mut self,
        scope: &Scope,
        failed: Option<&ServerName>,
        others: &[ServerName],
    ) -> Result<ServerName> {
        let candidates = self.candidates(scope)?;
        let chosen = self.emptiest(&candidates, failed, others).clone();
        self.check_choice(&candidates, &chosen);
        Ok(self.count(chosen))
    }

    /// Servers that may get a region. Those that are drained only if there are no others.
    fn candidates(&self, scope: &Scope) -> Result<Vec<&ServerName>> {
        let all = scope.pick(self.counts.keys());
        let undrained: Vec<_> = all.iter().copied().filter(|it| !self.draining.contains(*it)).collect();
        let mut found = if undrained.is_empty() { all } else { undrained };
        if found.len() > 1 {
            found.retain(|server| self.avoided.as_ref() != Some(*server));
        }
        let none = || format!("no server of RSGroup {} is alive: its regions wait for one", scope.group());
        if found.is_empty() { Err(Error::new(ErrorKind::Busy, none())) } else { Ok(found) }
    }

    fn check_choice(&self, candidates: &[&ServerName], chosen: &ServerName) {
        let is_draining = |server: &ServerName| self.draining.contains(server);
        assert!(
            !is_draining(chosen) || candidates.iter().all(|server| is_draining(server)),
            "{chosen} is decommissioned, and gets a region that another server could have"
        );
        assert!(
            self.avoided.as_ref() != Some(chosen) || candidates.len() == 1,
            "a region is to leave {chosen}, and goes there although another server could have it"
        );
    }

    fn count(&mut self, chosen: ServerName) -> ServerName {
        let count = self.counts.get_mut(&chosen).expect("only servers that were alive are chosen");
        *count += 1;
        chosen
    }

    fn emptiest<'a>(
        &self,
        candidates: &[&'a ServerName],
        avoided: Option<&ServerName>,
        others: &[ServerName],
    ) -> &'a ServerName {
        let order = |server: &&'a ServerName| {
            (avoided == Some(*server), others.contains(server), self.counts[*server], *server)
        };
        candidates.iter().copied().min_by_key(order).expect("there is a candidate")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chooser(counts: &[(&str, usize)]) -> Chooser {
        let counts = counts.iter().map(|(host, count)| (ServerName::new(*host, 16020, 1), *count));
        Chooser { counts: counts.collect(), draining: HashSet::new(), avoided: None }
    }

    fn chosen(chooser: &mut Chooser, wanted: Option<&ServerName>, last: Option<&ServerName>) -> String {
        chooser.choose(&Scope::everywhere(), wanted, last, &[]).unwrap().host
    }

    #[test]
    fn regions_go_where_few_are() {
        let mut chooser = chooser(&[("a", 3), ("b", 1), ("c", 2)]);
        let chosen: Vec<_> = (0..6).map(|_| chosen(&mut chooser, None, None)).collect();
        assert_eq!(chosen, ["b", "b", "c", "a", "b", "c"]);
    }

    #[test]
    fn a_region_returns_to_the_address_where_it_was() {
        let mut chooser = chooser(&[("a", 9), ("b", 1)]);
        let (before, other) = (ServerName::new("a", 16020, 0), ServerName::new("a", 16021, 0));
        assert_eq!(chosen(&mut chooser, None, Some(&before)), "a");
        assert_eq!(chosen(&mut chooser, None, Some(&other)), "b");
        let (wanted, gone) = (ServerName::new("b", 16020, 1), ServerName::new("b", 16020, 7));
        assert_eq!(chosen(&mut chooser, Some(&wanted), Some(&before)), "b");
        assert_eq!(chosen(&mut chooser, Some(&gone), Some(&before)), "a");
    }

    #[test]
    fn the_only_server_is_not_left_out() {
        let a = ServerName::new("a", 16020, 1);
        let after_failure = |counts: &[(&str, usize)]| {
            chooser(counts).choose_after_failure(&Scope::everywhere(), Some(&a), &[]).unwrap().host
        };
        assert_eq!(after_failure(&[("a", 1), ("b", 9)]), "b");
        assert_eq!(after_failure(&[("a", 1)]), "a");
        assert_eq!(chosen(&mut chooser(&[("a", 1), ("b", 9)]).without(&a), None, None), "b");
        assert_eq!(chosen(&mut chooser(&[("a", 1)]).without(&a), None, None), "a");
    }

    #[test]
    fn copies_of_a_region_part_where_they_can() {
        let (a, b) = (ServerName::new("a", 16020, 1), ServerName::new("b", 16020, 1));
        let mut chooser = chooser(&[("a", 1), ("b", 9)]);
        let scope = Scope::everywhere();
        let mut choose = |wanted: Option<&ServerName>, last: Option<&ServerName>, others: &[ServerName]| {
            chooser.choose(&scope, wanted, last, others).unwrap().host
        };
        assert_eq!(choose(None, None, std::slice::from_ref(&a)), "b");
        assert_eq!(choose(None, Some(&a), std::slice::from_ref(&a)), "b");
        assert_eq!(choose(None, None, &[a.clone(), b.clone()]), "a");
        assert_eq!(choose(Some(&a), None, std::slice::from_ref(&a)), "a", "an operator wants it");
        let after = chooser.choose_after_failure(&scope, Some(&b), std::slice::from_ref(&a)).unwrap();
        assert_eq!(after.host, "a");
    }

    #[test]
    fn drained_servers_get_regions_if_there_are_no_others() {
        let (a, b) = (ServerName::new("a", 16020, 1), ServerName::new("b", 16020, 1));
        let mut one = chooser(&[("a", 1), ("b", 9)]);
        one.draining.insert(a.clone());
        assert_eq!(chosen(&mut one, Some(&a), Some(&a)), "b");
        one.draining.insert(b);
        assert_eq!(chosen(&mut one, None, None), "a");
    }
}
