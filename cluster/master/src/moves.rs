//! Moves of many regions, as a decommission or the balancer asks for them: they begin in portions.
//!
//! A procedure for each region of a server at once would fill the queue: recoveries would stand behind moves that wait for them, and
//! what does not fit would never move. So moves wait here, where nothing is refused and nothing is locked. A move that is not
//! wanted any more when its turn comes is left out: the region has left the server by another way.
//!
//! They are in memory. That regions are to leave a decommissioned server is noted with it, so that this is asked for again: by a master
//! that takes over, and where a move was refused ([`Master::go_on_offloading`]).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use halcyon_cell::Result;
use halcyon_env::Mutex;
use halcyon_schema::{RegionInfo, ServerName, TableName};
use tracing::{info, warn};

use crate::Master;
use crate::chore::{Chore, Pauses};
use crate::groups;
use crate::placement::Place;
use crate::procedure::{Engine, RegionAction, Submission, TransitRegion};
use crate::state::MasterState;

/// Moves that have begun and not ended, at most. Far less than the queue of procedures takes, and more than threads that run them.
const UNDER_WAY_MAX: usize = 256;
/// Between two looks whether some have ended.
const PAUSE: Duration = Duration::from_millis(50);
/// Between two looks for regions that ought to have left their servers.
const LOOK_PERIOD: Duration = Duration::from_secs(30);

/// A move to be begun.
#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) region: RegionInfo,
    /// The server that it is to leave; `None`: wherever it is.
    pub(crate) from: Option<ServerName>,
    /// `None`: any other one.
    pub(crate) to: Option<ServerName>,
}

/// The moves of a master. *Thread safety*: all methods from any thread.
pub(crate) struct Moves {
    shared: Arc<Shared>,
    pauses: Arc<Pauses>,
    chore: Chore,
    /// When decommissioned servers are looked at (`Clock::monotonic_ns`).
    next_look_ns: Mutex<u64>,
}

struct Shared {
    core: Arc<MasterState>,
    engine: Arc<Engine>,
    state: Mutex<State>,
}

/// *Invariants*: each region of `order` has a move, and no other has one.
#[derive(Default)]
struct State {
    /// Encoded names, in the order in which they were asked for.
    order: VecDeque<String>,
    /// The newest that was asked for of each region.
    waiting: HashMap<String, Move>,
    under_way: Vec<u64>,
}

impl State {
    fn check(&self) {
        assert_eq!(self.order.len(), self.waiting.len(), "each region has one move, and comes to its turn");
        assert!(self.under_way.len() <= UNDER_WAY_MAX, "more moves would keep others from the queue");
    }
}

impl Moves {
    pub(crate) fn start(core: Arc<MasterState>, engine: Arc<Engine>) -> Result<Moves> {
        let shared = Arc::new(Shared { core, engine, state: Mutex::default() });
        let (pauses, working) = (Arc::new(Pauses::default()), shared.clone());
        let pausing = pauses.clone();
        let chore = Chore::start("master-moves", pauses.clone(), move || {
            let mut is_idle = true;
            while pausing.pause((!is_idle).then_some(PAUSE)) {
                is_idle = working.begin_some();
            }
        })?;
        Ok(Moves { shared, pauses, chore, next_look_ns: Mutex::new(0) })
    }

    /// Has these regions moved. The first ones begin before this returns.
    pub(crate) fn add(&self, moves: impl IntoIterator<Item = Move>) {
        {
            let state = &mut *self.shared.state.lock();
            for one in moves {
                let name = one.region.encoded_name().to_string();
                if state.waiting.insert(name.clone(), one).is_none() {
                    state.order.push_back(name);
                }
            }
            state.check();
        }
        if !self.shared.begin_some() {
            self.pauses.wake();
        }
    }

    /// Takes the moves back that have not begun and would have regions leave this server. How many.
    pub(crate) fn take_back(&self, server: &ServerName) -> usize {
        let state = &mut *self.shared.state.lock();
        let count = state.waiting.len();
        state.waiting.retain(|_, one| one.from.as_ref() != Some(server));
        state.order.retain(|name| state.waiting.contains_key(name));
        state.check();
        count - state.waiting.len()
    }

    fn is_waiting(&self, region: &RegionInfo) -> bool {
        self.shared.state.lock().waiting.contains_key(region.encoded_name())
    }

    /// Whether a look is due. If so, the next one is a period later.
    fn begin_look(&self) -> bool {
        let now_ns = self.shared.core.env.clock.monotonic_ns();
        let mut next_ns = self.next_look_ns.lock();
        let is_due = now_ns >= *next_ns;
        if is_due {
            *next_ns = now_ns.saturating_add(LOOK_PERIOD.as_nanos() as u64);
        }
        is_due
    }

    pub(crate) fn stop(&self) {
        self.chore.stop();
    }
}

impl Master {
    /// Has regions moved that a client wants to leave decommissioned servers and that nothing works on: a master before this one was
    /// asked for it, or their moves were refused. To be called now and then. Cheap if no server is decommissioned. *Blocking*.
    pub(crate) fn go_on_offloading(&self) {
        let cluster = &self.core.cluster;
        if cluster.servers.is_one_process() {
            return;
        }
        let draining = cluster.servers.draining();
        if draining.is_empty() || !self.moves.begin_look() {
            return;
        }
        let mut left = regions_at(&self.core, &draining);
        left.retain(|(region, _)| !self.moves.is_waiting(region));
        if left.is_empty() {
            return;
        }
        let offloading = match cluster.coordination.offloading(&draining) {
            Ok(servers) => servers,
            Err(error) => {
                warn!(%error, "it is not known which decommissioned servers regions are to leave: they are looked at later");
                return;
            }
        };
        let (busy, ready) = (groups::busy_regions(self), self.core.members.ready(cluster));
        let undrained: Vec<ServerName> = ready.into_iter().filter(|it| !draining.contains(it)).collect();
        // Where no other server may get a region, a move would bring it back.
        let mut has_other: HashMap<TableName, bool> = HashMap::new();
        left.retain(|(region, server)| {
            offloading.contains(server)
                && !busy.contains(region.encoded_name())
                && *has_other
                    .entry(region.table().clone())
                    .or_insert_with_key(|table| !self.core.scope_of(table).pick(undrained.iter()).is_empty())
        });
        if !left.is_empty() {
            info!(regions = left.len(), "regions are left on decommissioned servers: they move");
            self.moves.add(left.into_iter().map(|(region, server)| Move {
                region,
                from: Some(server),
                to: None,
            }));
        }
    }
}

/// The regions that these servers have, `hbase:meta` last.
pub(crate) fn regions_at(core: &MasterState, servers: &[ServerName]) -> Vec<(RegionInfo, ServerName)> {
    let tables = core.tables.read();
    let live: Vec<RegionInfo> = tables.by_name.values().flat_map(|table| table.to_be_open()).collect();
    drop(tables);
    let with_server = |region: RegionInfo| match core.place_of(&region) {
        Place::At(server) if servers.contains(&server) => Some((region, server)),
        _ => None,
    };
    live.into_iter().chain([RegionInfo::meta()]).filter_map(with_server).collect()
}

impl Shared {
    /// Begins as many as may be under way. True if there is nothing left to do.
    fn begin_some(&self) -> bool {
        let state = &mut *self.state.lock();
        // What cannot end keeps no others waiting.
        state.under_way.retain(|id| self.engine.goes_on(*id));
        while state.under_way.len() < UNDER_WAY_MAX {
            let Some(name) = state.order.pop_front() else { break };
            let one = state.waiting.remove(&name).expect("each region of the order has a move");
            if !self.is_wanted(&one) {
                continue;
            }
            match self.engine.enqueue(one.procedure(), Submission::default()) {
                Ok(id) => state.under_way.push(id),
                Err(_) if self.core.check_running().is_err() => return true,
                Err(error) => {
                    let left = state.order.len() + 1;
                    warn!(region = %one.region, left, %error, "moves of regions begin later");
                    state.waiting.insert(name.clone(), one);
                    state.order.push_front(name);
                    state.check();
                    return false;
                }
            }
        }
        state.check();
        state.order.is_empty() && state.under_way.is_empty()
    }

    fn is_wanted(&self, one: &Move) -> bool {
        let Some(from) = &one.from else { return true };
        let place = self.core.place_of(&one.region);
        let is_there = matches!(&place, Place::At(server) if server == from);
        if !is_there {
            info!(region = %one.region, %from, ?place, "a region does not move: it has left its server");
        }
        is_there
    }
}

impl Move {
    fn procedure(&self) -> Box<TransitRegion> {
        Box::new(match &self.to {
            Some(to) => TransitRegion::to(self.region.clone(), to.clone()),
            None => TransitRegion::new(self.region.clone(), RegionAction::Move, false),
        })
    }
}
