//! Adds, removes, enables, disables or updates a replication peer.
//!
//! A new peer's queue begins before the peer is there: from then on no WAL is deleted that it needs. The queue of a removed
//! one goes after the peer.

use std::collections::HashSet;

use halcyon_cell::{Error, Result};
use halcyon_contract::PeerDescription;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use prost::Message;

use super::{
    HasSteps, Lock, Parameters, Procedure, ProcedureView, Resource, Step, parameters, payload, step,
};
use crate::peers;
use crate::state::MasterState;

pub(super) const KIND: &str = "change_peer";
const ADD_CLASS: &str = "org.apache.hadoop.hbase.master.replication.AddPeerProcedure";

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum PeerChange {
    Add = 0,
    Remove = 1,
    Enable = 2,
    Disable = 3,
    Update = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ChangePeer {
    #[prost(enumeration = "PeerChange", tag = "1")]
    change: i32,
    #[prost(string, tag = "2")]
    id: String,
    /// What the peer is afterwards; known when the procedure has been prepared.
    #[prost(message, optional, tag = "3")]
    config: Option<pb::ReplicationPeer>,
    #[prost(bool, tag = "4")]
    is_enabled: bool,
}

impl ChangePeer {
    pub(crate) fn add(id: String, config: pb::ReplicationPeer, is_enabled: bool) -> ChangePeer {
        ChangePeer { change: PeerChange::Add as i32, id, config: Some(config), is_enabled }
    }

    pub(crate) fn update(id: String, config: pb::ReplicationPeer) -> ChangePeer {
        ChangePeer { change: PeerChange::Update as i32, id, config: Some(config), is_enabled: false }
    }

    /// A change without a configuration.
    pub(crate) fn of(change: PeerChange, id: String) -> ChangePeer {
        ChangePeer { change: change as i32, id, config: None, is_enabled: false }
    }

    /// The peers among these procedures that are not added yet.
    pub(crate) fn being_added(views: &[ProcedureView]) -> HashSet<String> {
        let additions = views.iter().filter(|view| view.class_name == ADD_CLASS).flat_map(|view| &view.locks);
        let id = |lock: &Lock| match &lock.resource {
            Resource::Peer(id) => Some(id.clone()),
            _ => None,
        };
        additions.filter_map(id).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<ChangePeer> {
        payload(KIND, bytes)
    }

    fn peer(&self) -> PeerDescription {
        let config = self.config.clone().unwrap_or_default();
        PeerDescription { id: self.id.clone(), config, is_enabled: self.is_enabled }
    }
}

impl Procedure for ChangePeer {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn class_name(&self) -> &'static str {
        match self.change() {
            PeerChange::Add => ADD_CLASS,
            PeerChange::Remove => "org.apache.hadoop.hbase.master.replication.RemovePeerProcedure",
            PeerChange::Enable => "org.apache.hadoop.hbase.master.replication.EnablePeerProcedure",
            PeerChange::Disable => "org.apache.hadoop.hbase.master.replication.DisablePeerProcedure",
            PeerChange::Update => "org.apache.hadoop.hbase.master.replication.UpdatePeerConfigProcedure",
        }
    }

    fn parameters(&self, _owner: &str) -> Parameters {
        let config = self.config.clone();
        let mut all = parameters::of(&pb::PeerProcedureStateData { peer_id: self.id.clone() });
        all.push(match self.change() {
            PeerChange::Add => parameters::any(&pb::AddPeerStateData {
                peer_config: config.unwrap_or_default(),
                enabled: self.is_enabled,
            }),
            PeerChange::Update => parameters::any(&pb::UpdatePeerConfigStateData {
                peer_config: config.unwrap_or_default(),
                old_peer_config: None,
                enabled: self.is_enabled,
            }),
            PeerChange::Remove => parameters::any(&pb::RemovePeerStateData { peer_config: config }),
            PeerChange::Enable => parameters::any(&pb::EnablePeerStateData {}),
            PeerChange::Disable => parameters::any(&pb::DisablePeerStateData {}),
        });
        all
    }

    fn locks(&self) -> Vec<Lock> {
        vec![Lock::peer(&self.id)]
    }

    fn prepare(&mut self, core: &MasterState) -> std::result::Result<(), RpcError> {
        peers::sources(core)?;
        let before = core.peers.get(&self.id);
        if self.change() == PeerChange::Add {
            peers::check_id(&self.id)?;
            let mut config = self.config.take().unwrap_or_default();
            peers::complete(&mut config, &core.settings.peer_base_config);
            peers::check_config(&config)?;
            self.config = Some(config);
            return match before {
                Some(_) => {
                    Err(RpcError::do_not_retry(format!("Replication peer {} already exists", self.id)))
                }
                None => Ok(()),
            };
        }
        let before = before.ok_or_else(|| peers::not_found(&self.id))?;
        let already = |word: &str| {
            Err(RpcError::do_not_retry(format!("Replication peer {} has already been {word}", self.id)))
        };
        match self.change() {
            PeerChange::Enable if before.is_enabled => return already("enabled"),
            PeerChange::Disable if !before.is_enabled => return already("disabled"),
            PeerChange::Update => {
                let mut config = self.config.take().unwrap_or_default();
                peers::check_update(&self.id, &before.config, &config)?;
                // Those that the update does not name stay.
                let named: Vec<String> = config.configuration.iter().map(|pair| pair.name.clone()).collect();
                let kept = before.config.configuration.iter().filter(|pair| !named.contains(&pair.name));
                config.configuration.extend(kept.cloned());
                peers::check_config(&config)?;
                (self.config, self.is_enabled) = (Some(config), before.is_enabled);
            }
            change => (self.config, self.is_enabled) = (Some(before.config), change == PeerChange::Enable),
        }
        Ok(())
    }

    fn payload(&self) -> Vec<u8> {
        self.encode_to_vec()
    }
}

const STEPS: &[Step<ChangePeer>] = &[
    step("look whether it is another cluster", ChangePeer::look),
    step("begin the queue", ChangePeer::begin_queue),
    step("write", ChangePeer::write),
    step("tell the sources", ChangePeer::tell),
];

impl HasSteps for ChangePeer {
    fn steps(&self) -> &'static [Step<Self>] {
        STEPS
    }
}

impl ChangePeer {
    /// A peer that is added or updated must be reached then, and be another cluster (HBase: `checkSameClusterKey`).
    fn look(&mut self, core: &MasterState) -> Result<()> {
        if !matches!(self.change(), PeerChange::Add | PeerChange::Update) {
            return Ok(());
        }
        let config = self.config.clone().unwrap_or_default();
        let key = config.clusterkey();
        let id = core.cluster.coordination.cluster_id_of(key).map_err(|error| {
            tracing::warn!(peer = self.id, key, %error, "a cluster that is to be a peer does not say its id");
            Error::invalid(format!("Can't get peerClusterId for clusterKey={key}"))
        })?;
        if id.is_some_and(|id| id == core.cluster_id) {
            return Err(Error::invalid(format!(
                "Invalid cluster key: {key}, should not replicate to itself for HBaseInterClusterReplicationEndpoint"
            )));
        }
        Ok(())
    }

    /// HBase also reopens all regions that a serial peer gets, which gives them barriers. Here each region has one since it was opened,
    /// unless that was before there were any.
    fn begin_queue(&mut self, core: &MasterState) -> Result<()> {
        let is_serial = self.config.as_ref().is_some_and(pb::ReplicationPeer::serial);
        if is_serial && matches!(self.change(), PeerChange::Add | PeerChange::Update) {
            peers::barriers::write_missing(core)?;
        }
        match self.change() {
            PeerChange::Add => sources(core)?.begin_queue(&self.id),
            _ => Ok(()),
        }
    }

    fn write(&mut self, core: &MasterState) -> Result<()> {
        match self.change() {
            PeerChange::Remove => peers::remove(core, &self.id),
            _ => peers::write(core, &self.peer()),
        }
    }

    fn tell(&mut self, core: &MasterState) -> Result<()> {
        match self.change() {
            PeerChange::Remove => sources(core)?.peer_removed(&self.id),
            PeerChange::Add => sources(core)?.peer_added(&self.peer()),
            _ => sources(core)?.peer_changed(&self.peer()),
        }
    }
}

fn sources(core: &MasterState) -> Result<&std::sync::Arc<dyn halcyon_contract::ReplicationSources>> {
    peers::sources(core).map_err(|error| Error::invalid(error.message))
}
