//! Region servers that a cluster waits for when it starts as a whole.
//!
//! A region is to open where it was before: the blocks of its files are there. So the master waits until a server has come back at
//! each address where `hbase:meta` has regions, and may get regions: one that has no znode yet, or no WALs, gets none. A server that
//! does not come back holds it up until no other has come for a while.
//! HBase waits for a fixed time at least, because it does not look at meta before (`ServerManager.waitForRegionServers`).

use std::collections::BTreeSet;
use std::time::Duration;

use halcyon_schema::ServerName;

use crate::state::{MasterState, RegionEntry, RegionState, TableState};

/// Between two looks at who has come.
const LOOK: Duration = Duration::from_millis(20);

/// Host and port.
type Address = (String, u16);

fn address(server: &ServerName) -> Address {
    (server.host.clone(), server.port)
}

/// Returns at once if a server has regions already: another master was active until now. *Blocking*.
pub(crate) fn wait_for_servers(core: &MasterState) {
    let (clock, settings) = (&core.env.clock, &core.settings);
    let ready = || core.members.ready(&core.cluster);
    let mut missing = match addresses_before(core) {
        Some(addresses) if !core.cluster.servers.is_one_process() => addresses,
        _ => return,
    };
    let (mut here, mut since_ns) = (ready(), clock.monotonic_ns());
    let settle_ns = settings.servers_settle.as_nanos() as u64;
    let is_enough = |count: usize| settings.servers_max.is_some_and(|max| count >= max);
    loop {
        missing.retain(|before| here.iter().all(|server| address(server) != *before));
        let is_quiet = clock.monotonic_ns().saturating_sub(since_ns) >= settle_ns;
        if missing.is_empty() || is_quiet || is_enough(here.len()) {
            break;
        }
        clock.sleep(LOOK);
        let now = ready();
        if now != here {
            (here, since_ns) = (now, clock.monotonic_ns());
        }
    }
    tracing::info!(servers = here.len(), missing = missing.len(), "region servers have joined");
}

/// Where regions of enabled tables were. `None` if one of these servers is still there.
fn addresses_before(core: &MasterState) -> Option<BTreeSet<Address>> {
    let online = core.cluster.servers.online();
    let tables = core.tables.read();
    let enabled = tables.by_name.values().filter(|entry| entry.state == TableState::Enabled);
    let known = enabled
        .flat_map(|entry| entry.to_be_open().into_iter().filter_map(|region| entry.known(&region).cloned()));
    let mut addresses = BTreeSet::new();
    for RegionEntry { state, server, .. } in known {
        let Some(server) = server else { continue };
        if state == RegionState::Open && online.contains(&server) {
            return None;
        }
        addresses.insert(address(&server));
    }
    Some(addresses)
}
