//! Replication peers.

use halcyon_contract::PeerDescription;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use pb::replication_state::State;

use super::{Answer, Request, procedures};
use crate::errors;
use crate::names::NamePattern;
use crate::peers;
use crate::procedure::{ChangePeer, Engine, PeerChange};
use crate::state::MasterState;
use crate::switches::Switch;

/// What the classes of peers' procedures have in common.
const CLASSES: &str = "org.apache.hadoop.hbase.master.replication.";

/// A switch that is off is the answer to the call (`HMaster.executePeerProcedure`); what else is wrong is the result of the procedure.
fn check_switch(core: &MasterState) -> Answer<()> {
    if core.switches.lock().get(Switch::ReplicationPeerModification) {
        return Ok(());
    }
    Err(RpcError::do_not_retry("Replication peer modification disabled"))
}

pub(super) fn add(core: &MasterState, request: pb::AddReplicationPeerRequest) -> Answer<Request> {
    check_switch(core)?;
    let is_enabled = request.peer_state.state() == State::Enabled;
    Ok((Box::new(ChangePeer::add(request.peer_id, request.peer_config, is_enabled)), (0, 0)))
}

pub(super) fn update(core: &MasterState, request: pb::UpdateReplicationPeerConfigRequest) -> Answer<Request> {
    check_switch(core)?;
    Ok((Box::new(ChangePeer::update(request.peer_id, request.peer_config)), (0, 0)))
}

pub(super) fn change(core: &MasterState, change: PeerChange, id: String) -> Answer<Request> {
    check_switch(core)?;
    Ok((Box::new(ChangePeer::of(change, id)), (0, 0)))
}

pub(super) fn config(
    core: &MasterState,
    request: pb::GetReplicationPeerConfigRequest,
) -> Answer<pb::GetReplicationPeerConfigResponse> {
    let peer = core.peers.get(&request.peer_id).ok_or_else(|| peers::not_found(&request.peer_id))?;
    Ok(pb::GetReplicationPeerConfigResponse { peer_id: peer.id, peer_config: peer.config })
}

pub(super) fn is_enabled(
    core: &MasterState,
    request: &pb::GetReplicationPeerStateRequest,
) -> Answer<pb::GetReplicationPeerStateResponse> {
    let peer = core.peers.get(&request.peer_id).ok_or_else(|| peers::not_found(&request.peer_id))?;
    Ok(pb::GetReplicationPeerStateResponse { is_enabled: peer.is_enabled })
}

pub(super) fn list(
    core: &MasterState,
    request: &pb::ListReplicationPeersRequest,
) -> Answer<pb::ListReplicationPeersResponse> {
    let pattern = request.regex.as_deref().map(NamePattern::new).transpose()?;
    let peers = core.peers.all().into_iter();
    let matching = peers.filter(|peer| pattern.as_ref().is_none_or(|pattern| pattern.matches_text(&peer.id)));
    Ok(pb::ListReplicationPeersResponse { peer_desc: matching.map(description).collect() })
}

fn description(peer: PeerDescription) -> pb::ReplicationPeerDescription {
    let state = if peer.is_enabled { State::Enabled } else { State::Disabled };
    let sync = pb::SyncReplicationState { state: pb::sync_replication_state::State::None as i32 };
    pb::ReplicationPeerDescription {
        id: peer.id,
        state: pb::ReplicationState { state: state as i32 },
        config: peer.config,
        sync_replication_state: Some(sync),
    }
}

pub(super) fn switch_modification(
    core: &MasterState,
    request: pb::ReplicationPeerModificationSwitchRequest,
) -> Answer<pb::ReplicationPeerModificationSwitchResponse> {
    let before = core.set_switch(Switch::ReplicationPeerModification, request.on);
    let previous_value = before.map_err(|error| errors::from_error(&error))?;
    Ok(pb::ReplicationPeerModificationSwitchResponse { previous_value })
}

/// Changes of peers that have not ended.
pub(super) fn modifications(engine: &Engine) -> pb::GetReplicationPeerModificationProceduresResponse {
    let views = engine.views();
    let of_peers = views.iter().filter(|view| view.class_name.starts_with(CLASSES));
    pb::GetReplicationPeerModificationProceduresResponse {
        procedure: of_peers.map(procedures::view).collect(),
    }
}
