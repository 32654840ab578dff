//! Regions in transition: which are not where they ought to be, since when, why, and which procedure works on it.
//!
//! Nothing is written down for this: all of it follows from what the master knows. Only the moment at which a region was first
//! seen on its way is remembered.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use halcyon_env::Mutex;
use halcyon_schema::{RegionInfo, ServerName, TableName};

use crate::Master;
use crate::procedure::{Lock, ProcedureView, Resource};
use crate::state::{MasterState, MetaState, RegionEntry, RegionState, TableEntry, TableState};

/// A region that is so long on its way is over the threshold (HBase: `hbase.metrics.rit.stuck.warning.threshold`).
pub const STUCK_MS: i64 = 60_000;
/// A list that is not older is not made anew.
const FRESH_MS: i64 = 900;

/// A region that is not where it ought to be.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionInTransition {
    pub region: RegionInfo,
    /// HBase's word.
    pub state: &'static str,
    /// Where it is, was last, or goes to.
    pub server: Option<ServerName>,
    /// Unix time.
    pub since_ms: i64,
    /// Number and name of the procedure that works on it.
    pub procedure: Option<(u64, String)>,
    pub reason: String,
}

/// What was last seen.
#[derive(Default)]
pub(crate) struct Transitions(Mutex<Seen>, Mutex<HashMap<String, String>>);

/// Failures of openings that are remembered. Others are in the log.
const FAILURES_MAX: usize = 10_000;

#[derive(Default)]
struct Seen {
    at_ms: i64,
    list: Arc<Vec<RegionInTransition>>,
    /// When a region was first seen on its way, by its encoded name.
    since_ms: HashMap<String, i64>,
    /// The same, as clients were told last.
    told_ms: HashMap<String, i64>,
}

impl Transitions {
    /// Why a region was not opened, to be shown as long as it is FAILED_OPEN.
    pub(crate) fn note_failure(&self, region: &RegionInfo, why: &str) {
        let mut failures = self.1.lock();
        if failures.len() < FAILURES_MAX || failures.contains_key(region.encoded_name()) {
            failures.insert(region.encoded_name().to_string(), why.to_string());
        }
    }

    /// Keeps the failures of these regions, which are FAILED_OPEN.
    fn failures_of(&self, failed: &HashSet<String>) -> HashMap<String, String> {
        let mut failures = self.1.lock();
        failures.retain(|name, _| failed.contains(name));
        failures.clone()
    }

    /// When each of the regions, by its encoded name, was first seen on its way: now, if neither the last call nor the last list
    /// had it.
    pub(crate) fn since_ms(&self, names: &[&str], now_ms: i64) -> Vec<i64> {
        let mut seen = self.0.lock();
        let before = std::mem::take(&mut seen.told_ms);
        let since = |name: &&str| seen.since_ms.get(*name).or(before.get(*name)).copied().unwrap_or(now_ms);
        let all: Vec<i64> = names.iter().map(since).collect();
        seen.told_ms = names.iter().map(|name| name.to_string()).zip(all.iter().copied()).collect();
        all
    }
}

/// Why a region is listed.
enum Why {
    Moves(RegionState),
    /// Its server is dead, and its WALs are not split yet.
    Recovering,
    /// Its server is dead and recovered, or it was never opened.
    Nowhere,
}

impl Master {
    /// Regions that open, close, split or merge, that cannot be opened, and that wait for the recovery of their server. In the
    /// order of tables and keys. Not older than a second.
    pub fn regions_in_transition(&self) -> Arc<Vec<RegionInTransition>> {
        let (core, now_ms) = (&self.core, self.core.now_ms());
        let mut seen = core.transitions.0.lock();
        if (0..FRESH_MS).contains(&(now_ms - seen.at_ms)) {
            return seen.list.clone();
        }
        let found = found(core);
        let views = if found.is_empty() { Vec::new() } else { self.engine.views() };
        let procedures = Procedures::new(&views);
        let is_failed = |found: &&Found| matches!(found.why, Why::Moves(RegionState::FailedOpen));
        let failed = found.iter().filter(is_failed).map(|found| found.region.encoded_name().to_string());
        let failures = core.transitions.failures_of(&failed.collect());
        let mut since = std::mem::take(&mut seen.since_ms);
        let mut list = Vec::with_capacity(found.len());
        for Found { region, server, why, state } in found {
            let name = region.encoded_name().to_string();
            let procedure = procedures.of(&region, server.as_ref());
            let began_ms = procedure.map_or(now_ms, |view| view.submitted_ms);
            let since_ms = since.remove(&name).unwrap_or(began_ms.min(now_ms));
            seen.since_ms.insert(name.clone(), since_ms);
            let mut reason = reason(&why, server.as_ref(), procedure);
            if let Some(failure) = failures.get(&name) {
                reason.push_str(&format!("; {failure}"));
            }
            let procedure = procedure.map(|view| (view.id, name_of(view)));
            list.push(RegionInTransition { region, state, server, since_ms, procedure, reason });
        }
        (seen.at_ms, seen.list) = (now_ms, Arc::new(list));
        seen.list.clone()
    }

    /// When this was asked last is remembered: since when a region is on its way is known to that.
    pub fn look_at_transitions(&self) {
        drop(self.regions_in_transition());
        self.core.timelines.save();
    }

    /// Regions of recoveries that no procedure works on any more do not keep those from ending.
    pub(crate) fn sweep_timelines(&self) {
        let overdue = self.core.timelines.overdue();
        if overdue.is_empty() {
            return;
        }
        let views = self.engine.views();
        let locks = || views.iter().flat_map(|view| &view.locks);
        let of_region = |lock: &'_ Lock| match &lock.resource {
            Resource::Region(name) => Some(name.clone()),
            _ => None,
        };
        let attended: HashSet<String> = locks().filter_map(of_region).collect();
        let left: Vec<String> = overdue.into_iter().filter(|name| !attended.contains(name)).collect();
        self.core.timelines.given_up(&left);
    }
}

struct Found {
    region: RegionInfo,
    server: Option<ServerName>,
    why: Why,
    state: &'static str,
}

/// The servers that can have regions, at one moment.
pub(crate) struct Living {
    /// Of several processes.
    online: Option<BTreeSet<ServerName>>,
}

impl Living {
    pub(crate) fn of(core: &MasterState) -> Living {
        let servers = &core.cluster.servers;
        Living { online: (!servers.is_one_process()).then(|| servers.online().into_iter().collect()) }
    }

    pub(crate) fn has(&self, server: &ServerName) -> bool {
        self.online.as_ref().is_none_or(|online| online.contains(server))
    }

    /// Whether the server of the region is dead.
    pub(crate) fn lost(&self, region: &RegionEntry) -> bool {
        region.server.as_ref().is_some_and(|server| !self.has(server))
    }
}

fn found(core: &MasterState) -> Vec<Found> {
    let living = Living::of(core);
    let recovering: BTreeSet<ServerName> = core.cluster.servers.recovering().into_iter().collect();
    let why = |entry: &TableEntry, region: &RegionInfo, known: &RegionEntry| {
        use RegionState::{Closed, FailedOpen, Open};
        if region.is_split() || region.is_offline() {
            return None;
        }
        let is_wanted = matches!(entry.state, TableState::Enabled | TableState::Enabling);
        let is_dead = living.lost(known);
        match known.state {
            _ if is_dead && is_wanted && known.server.as_ref().is_some_and(|it| recovering.contains(it)) => {
                Some(Why::Recovering)
            }
            Open if is_dead && is_wanted => Some(Why::Nowhere),
            Closed if is_wanted => Some(Why::Nowhere),
            Open | Closed => None,
            FailedOpen if !is_wanted => None,
            state if is_moving(state) => Some(Why::Moves(state)),
            _ => None,
        }
    };
    let mut all = Vec::new();
    let meta = core.meta_place.read().clone();
    if !(living.online.is_none() || meta.is_open() && living.has(&meta.server)) {
        let is_recovering = recovering.contains(&meta.server);
        let why = if is_recovering { Why::Recovering } else { Why::Nowhere };
        let state = match meta.state {
            MetaState::Open => "OPEN",
            MetaState::Opening => "OPENING",
            MetaState::Closed => "CLOSED",
        };
        all.push(Found { region: RegionInfo::meta(), server: Some(meta.server), why, state });
    }
    let tables = core.tables.read();
    for entry in tables.by_name.values() {
        for (region, known) in &entry.regions {
            if let Some(why) = why(entry, region, known) {
                let (server, state) = (known.server.clone(), known.state.as_str_name());
                all.push(Found { region: region.clone(), server, why, state });
            }
        }
    }
    all
}

fn is_moving(state: RegionState) -> bool {
    use RegionState::{Closing, FailedClose, FailedOpen, Merging, Opening, Splitting};
    matches!(state, Opening | Closing | Splitting | Merging | FailedOpen | FailedClose)
}

fn reason(why: &Why, server: Option<&ServerName>, procedure: Option<&ProcedureView>) -> String {
    let at = server.map_or_else(|| "no server".to_string(), ServerName::to_string);
    let what = match why {
        Why::Moves(RegionState::Opening) => format!("opens at {at}"),
        Why::Moves(RegionState::Closing) => format!("closes at {at}"),
        Why::Moves(RegionState::Splitting) => format!("is split at {at}"),
        Why::Moves(RegionState::Merging) => format!("is merged at {at}"),
        Why::Moves(RegionState::FailedOpen) => format!("could not be opened at {at}"),
        Why::Moves(_) => format!("could not be closed at {at}"),
        Why::Recovering => format!("waits until the WALs of {at} are split"),
        Why::Nowhere if server.is_some() => format!("is open nowhere, last at {at}"),
        Why::Nowhere => "is open nowhere".to_string(),
    };
    match procedure {
        Some(ProcedureView { set_aside: Some(set_aside), .. }) => format!("{what}; set aside: {set_aside}"),
        Some(ProcedureView { trouble: Some(trouble), .. }) => format!("{what}; {trouble}"),
        Some(view) if !view.begun => format!("{what}; its procedure waits for a lock"),
        Some(view) => format!("{what}; step '{}'", view.step),
        None => format!("{what}; no procedure works on it"),
    }
}

fn name_of(view: &ProcedureView) -> String {
    view.class_name.rsplit('.').next().unwrap_or_default().to_string()
}

/// The procedures by what they lock.
struct Procedures<'v> {
    regions: HashMap<&'v str, &'v ProcedureView>,
    tables: HashMap<&'v TableName, &'v ProcedureView>,
    servers: HashMap<&'v ServerName, &'v ProcedureView>,
}

impl<'v> Procedures<'v> {
    fn new(views: &'v [ProcedureView]) -> Procedures<'v> {
        let mut all = Procedures { regions: HashMap::new(), tables: HashMap::new(), servers: HashMap::new() };
        for view in views {
            for lock in &view.locks {
                match &lock.resource {
                    Resource::Region(name) => drop(all.regions.entry(name).or_insert(view)),
                    Resource::Table(table) if !lock.shared => drop(all.tables.entry(table).or_insert(view)),
                    Resource::Server(server) => drop(all.servers.entry(server).or_insert(view)),
                    _ => {}
                }
            }
        }
        all
    }

    fn of(&self, region: &RegionInfo, server: Option<&ServerName>) -> Option<&'v ProcedureView> {
        let by_region = self.regions.get(region.encoded_name());
        let by_table = || self.tables.get(region.table());
        by_region.or_else(by_table).or_else(|| self.servers.get(server?)).copied()
    }
}
