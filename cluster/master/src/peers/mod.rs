//! Peers: clusters that get the edits of this one (HBase: `ReplicationPeerManager`).
//!
//! A change is a procedure (`procedure/change_peer.rs`): the queue begins, the peer is written (`files.rs`), and the region
//! server is told. `check.rs` says what is refused.

mod check;
mod files;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use halcyon_cell::Result;
use halcyon_contract::{PeerDescription, ReplicationSources};
use halcyon_rpc::RpcError;
use parking_lot::RwLock;
use tracing::warn;

use crate::errors;
use crate::state::MasterState;

pub(crate) use check::{check_config, check_id, check_update, not_found};

/// As they are on disk: they are written there first.
#[derive(Default)]
pub(crate) struct Peers {
    by_id: RwLock<BTreeMap<String, PeerDescription>>,
}

impl Peers {
    pub(crate) fn get(&self, id: &str) -> Option<PeerDescription> {
        self.by_id.read().get(id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<PeerDescription> {
        self.by_id.read().values().cloned().collect()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.by_id.read().keys().cloned().collect()
    }
}

/// Reads the peers, and has their edits sent. A peer that cannot be obeyed keeps its WALs.
pub(crate) fn load(core: &MasterState) -> Result<()> {
    for peer in files::load(&core.env, &core.root)? {
        match &core.cluster.replication {
            Some(sources) => {
                if let Err(error) = sources.peer_changed(&peer) {
                    warn!(peer = peer.id, %error, "nothing is sent to a peer; its WALs are kept");
                }
            }
            None => warn!(peer = peer.id, "nothing is sent to a peer: replication needs a standalone server; all WALs are kept"),
        }
        core.peers.by_id.write().insert(peer.id.clone(), peer);
    }
    Ok(())
}

/// Makes a peer what the description says, on disk and in memory. May run twice.
pub(crate) fn write(core: &MasterState, peer: &PeerDescription) -> Result<()> {
    files::write(&core.env, &core.root, peer)?;
    core.peers.by_id.write().insert(peer.id.clone(), peer.clone());
    Ok(())
}

/// Removes a peer on disk and in memory. May run twice.
pub(crate) fn remove(core: &MasterState, id: &str) -> Result<()> {
    files::remove(&core.env, &core.root, id)?;
    core.peers.by_id.write().remove(id);
    Ok(())
}

/// Of these names of WALs, those that some peer needs: all of them where nothing can tell.
pub(crate) fn needed_wals(core: &MasterState, names: &[String]) -> Result<HashSet<String>> {
    let ids = core.peers.ids();
    match &core.cluster.replication {
        _ if ids.is_empty() => Ok(HashSet::new()),
        Some(sources) => sources.needed_wals(&ids, names),
        None => Ok(names.iter().cloned().collect()),
    }
}

/// What sends edits to peers; an error that says so where nothing does.
pub(crate) fn sources(core: &MasterState) -> std::result::Result<&Arc<dyn ReplicationSources>, RpcError> {
    core.cluster.replication.as_ref().ok_or_else(|| {
        errors::unsupported("Replication peers of a cluster of several servers (they need a standalone server) are")
    })
}
