//! Regions on their way that no procedure works on, which are begun again.
//!
//! A region goes on by the procedure that moves, opens or recovers it. The master submits many of those itself, when it starts or a
//! server dies, and nobody repeats such a request: if its record cannot be written, it is gone. So the master looks now and then.

use std::collections::{HashMap, HashSet};

use halcyon_contract::Standing;
use halcyon_schema::{RegionInfo, ServerName};
use tracing::warn;

use crate::Master;
use crate::procedure::{RegionAction, Resource, Submission, TransitRegion};
use crate::state::{MasterState, RegionEntry, RegionState, TableEntry, TableState};

impl Master {
    /// Has procedures open what is left over. Cheap if nothing is.
    pub(crate) fn open_left_over(&self) {
        let found = left_over(&self.core);
        if found.is_empty() {
            return;
        }
        let locks = self.engine.views().into_iter().flat_map(|view| view.locks).filter(|lock| !lock.shared);
        let busy: HashSet<Resource> = locks.map(|lock| lock.resource).collect();
        // Looked at again, because a procedure may have ended, or begun, between the two.
        let again: HashMap<RegionInfo, At> = left_over(&self.core).into_iter().collect();
        for (region, at) in found.into_iter().filter(|(region, at)| again.get(region) == Some(at)) {
            let of_region = Resource::Region(region.encoded_name().to_string());
            let of_table = Resource::Table(region.table().clone());
            // The recovery of its server opens it next.
            let recovers = at.server.is_some_and(|server| busy.contains(&Resource::Server(server)));
            if !recovers && !busy.contains(&of_region) && !busy.contains(&of_table) {
                warn!(%region, "a region is on its way, and no procedure works on it: one begins");
                // Its state may be OPEN, at a server that is gone.
                let open = TransitRegion::new(region, RegionAction::Assign, true);
                drop(self.engine.submit(Box::new(open), Submission::default()));
            }
        }
    }
}

/// A server has opened a region anew that is shown as open there. It does not serve before this has an answer, so it is not open: the
/// master looks for such regions, and has them opened ([`Master::open_left_over`]).
pub(crate) fn note_opening(core: &MasterState, region: &RegionInfo, server: &ServerName, open_seq: u64) {
    core.update_region(region, |known| {
        let is_older = known.server.as_ref() == Some(server) && known.open_seq < open_seq;
        if known.state == RegionState::Open && is_older {
            known.state = RegionState::Opening;
        }
    });
}

/// How far a region has come.
#[derive(Debug, PartialEq, Eq)]
struct At {
    state: RegionState,
    server: Option<ServerName>,
}

/// Regions of enabled tables that are being opened or closed, or that were at a server that is dead and recovered. A close that was
/// ended by force leaves one that is CLOSING: it may be open, and nobody would open it if it is not.
fn left_over(core: &MasterState) -> Vec<(RegionInfo, At)> {
    if core.cluster.servers.is_one_process() {
        return Vec::new();
    }
    let is_left = |known: &RegionEntry| {
        let is_gone = || {
            known
                .server
                .as_ref()
                .is_some_and(|server| core.cluster.servers.standing(server) == Standing::Gone)
        };
        match known.state {
            RegionState::Opening | RegionState::Closing => true,
            RegionState::Open => is_gone(),
            _ => false,
        }
    };
    let tables = core.tables.read();
    let enabled = tables.by_name.values().filter(|entry| entry.state == TableState::Enabled);
    let of_table = |entry: &TableEntry| {
        let regions = entry.to_be_open().into_iter();
        let left = regions.filter_map(|region| {
            let known = entry.known(&region).filter(|known| is_left(known))?;
            let at = At { state: known.state, server: known.server.clone() };
            Some((region, at))
        });
        left.collect::<Vec<_>>()
    };
    enabled.flat_map(of_table).collect()
}
