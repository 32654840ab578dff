//! Where a client begins: `ClientMetaService`, the RPC registry.
//!
//! HBase's clients ask it instead of ZooKeeper with `hbase.client.registry.impl` = `RpcConnectionRegistry`. Masters and
//! region servers answer it. Checked against `HBaseRpcServicesBase` and `ConnectionRegistryEndpoint` of HBase 2.6.4.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service};
use halcyon_schema::znode::MetaLocation;
use halcyon_schema::{RegionInfo, ServerName};
use prost::Message;

use crate::ClusterView;

/// HBase's `NO_SEQNUM`: ZooKeeper does not hold it.
const NO_SEQ_NUM: i64 = -1;

/// What a client is told before it knows anything. None of the methods blocks.
pub trait ConnectionRegistry: Send + Sync {
    fn cluster_id(&self) -> String;

    fn active_master(&self) -> Option<ServerName>;

    fn backup_masters(&self) -> Vec<ServerName>;

    /// Server of each replica of `hbase:meta` with its open sequence number.
    fn meta_locations(&self) -> Vec<(MetaLocation, i64)>;

    /// Live region servers, which a client may ask next.
    fn region_servers(&self) -> Vec<ServerName>;
}

/// A member of a cluster knows what its coordination service shows.
pub struct MemberRegistry {
    cluster_id: String,
    view: ClusterView,
}

impl MemberRegistry {
    pub fn new(cluster_id: String, view: ClusterView) -> MemberRegistry {
        MemberRegistry { cluster_id, view }
    }
}

impl ConnectionRegistry for MemberRegistry {
    fn cluster_id(&self) -> String {
        self.cluster_id.clone()
    }

    fn active_master(&self) -> Option<ServerName> {
        self.view.master.present().map(|master| master.server)
    }

    fn backup_masters(&self) -> Vec<ServerName> {
        self.view.backup_masters.present().unwrap_or_default()
    }

    fn meta_locations(&self) -> Vec<(MetaLocation, i64)> {
        let locations = self.view.meta.present().unwrap_or_default();
        locations.into_iter().map(|location| (location, NO_SEQ_NUM)).collect()
    }

    fn region_servers(&self) -> Vec<ServerName> {
        self.view.region_servers.present().unwrap_or_default()
    }
}

/// The service. Answers from memory.
pub struct ClientMetaService<R: ?Sized> {
    registry: Arc<R>,
    /// Region servers that one answer names (HBase: `hbase.client.bootstrap.node.limit`).
    bootstrap_nodes_max: usize,
}

impl<R: ConnectionRegistry + ?Sized> ClientMetaService<R> {
    pub fn new(registry: Arc<R>, bootstrap_nodes_max: usize) -> ClientMetaService<R> {
        ClientMetaService { registry, bootstrap_nodes_max }
    }

    fn answer(&self, method: &str) -> Option<Bytes> {
        let registry = &self.registry;
        Some(match method {
            "GetClusterId" => encode(&pb::GetClusterIdResponse { cluster_id: Some(registry.cluster_id()) }),
            "GetActiveMaster" => {
                let server_name = registry.active_master().map(|master| master.to_pb());
                encode(&pb::GetActiveMasterResponse { server_name })
            }
            "GetMasters" => encode(&pb::GetMastersResponse { master_servers: masters(&**registry) }),
            "GetMetaRegionLocations" => {
                let meta_locations = registry.meta_locations().into_iter().map(meta_location).collect();
                encode(&pb::GetMetaRegionLocationsResponse { meta_locations })
            }
            "GetBootstrapNodes" => {
                let random = u64::from_ne_bytes(halcyon_env::random_bytes());
                let nodes = some_of(registry.region_servers(), random, self.bootstrap_nodes_max);
                let server_name = nodes.iter().map(ServerName::to_pb).collect();
                encode(&pb::GetBootstrapNodesResponse { server_name })
            }
            _ => return None,
        })
    }
}

impl<R: ConnectionRegistry + ?Sized> Service for ClientMetaService<R> {
    fn call(&self, call: Call) -> Outcome {
        let answer = self.answer(&call.method).ok_or_else(|| RpcError::unknown_method(&call.method));
        Outcome::Ready(answer.map(Reply::encoded))
    }
}

fn masters(registry: &(impl ConnectionRegistry + ?Sized)) -> Vec<pb::GetMastersResponseEntry> {
    let entry = |is_active| {
        move |server: ServerName| pb::GetMastersResponseEntry { server_name: server.to_pb(), is_active }
    };
    let active = registry.active_master().into_iter().map(entry(true));
    active.chain(registry.backup_masters().into_iter().map(entry(false))).collect()
}

fn meta_location((location, seq_num): (MetaLocation, i64)) -> pb::RegionLocation {
    let mut region_info = RegionInfo::meta().to_pb();
    region_info.replica_id = i32::try_from(location.replica).ok();
    pb::RegionLocation { region_info, server_name: Some(location.server.to_pb()), seq_num }
}

/// Some of the servers, from any one on, so that clients spread.
fn some_of(mut servers: Vec<ServerName>, random: u64, max: usize) -> Vec<ServerName> {
    if !servers.is_empty() {
        let first = random % servers.len() as u64;
        servers.rotate_left(first as usize);
    }
    servers.truncate(max);
    servers
}

fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}

#[cfg(test)]
mod tests {
    use halcyon_schema::znode::ActiveMaster;

    use super::*;
    use crate::{ClusterPublisher, Seen};

    fn ask<M: Message + Default>(service: &ClientMetaService<MemberRegistry>, method: &str) -> M {
        M::decode(service.answer(method).unwrap()).unwrap()
    }

    #[test]
    fn a_member_answers_what_its_view_shows() {
        let (publisher, view) = ClusterPublisher::new();
        let service = ClientMetaService::new(Arc::new(MemberRegistry::new("id".to_string(), view)), 10);
        let id: pb::GetClusterIdResponse = ask(&service, "GetClusterId");
        assert_eq!(id.cluster_id.as_deref(), Some("id"));
        let master: pb::GetActiveMasterResponse = ask(&service, "GetActiveMaster");
        assert_eq!(master.server_name, None, "nothing was read yet");

        let (one, two) = (ServerName::new("m", 16000, 1), ServerName::new("n", 16000, 1));
        publisher.master.publish(Seen::Present(ActiveMaster { server: one.clone(), info_port: 0 }));
        publisher.backup_masters.publish(Seen::Present(vec![two.clone()]));
        let at = |replica| MetaLocation { replica, server: ServerName::new("h", 16020, 1), is_open: true };
        publisher.meta.publish(Seen::Present(vec![at(0), at(2)]));
        publisher.region_servers.publish(Seen::Present(vec![ServerName::new("h", 16020, 1)]));
        let masters: pb::GetMastersResponse = ask(&service, "GetMasters");
        let masters: Vec<_> =
            masters.master_servers.into_iter().map(|it| (it.server_name, it.is_active)).collect();
        assert_eq!(masters, [(one.to_pb(), true), (two.to_pb(), false)]);
        let meta: pb::GetMetaRegionLocationsResponse = ask(&service, "GetMetaRegionLocations");
        let replicas: Vec<_> = meta.meta_locations.iter().map(|it| it.region_info.replica_id()).collect();
        assert_eq!(replicas, [0, 2]);
        assert_eq!(meta.meta_locations[0].server_name, Some(ServerName::new("h", 16020, 1).to_pb()));
        let nodes: pb::GetBootstrapNodesResponse = ask(&service, "GetBootstrapNodes");
        assert_eq!(nodes.server_name.len(), 1);
        assert!(service.answer("GetEverything").is_none());
    }

    #[test]
    fn clients_are_told_some_of_many_servers() {
        let servers: Vec<_> = (1..=25).map(|port| ServerName::new("h", port, 1)).collect();
        assert_eq!(some_of(servers.clone(), 20, 10)[..5], servers[20..]);
        assert_eq!(some_of(servers, 20, 7).len(), 7);
        assert_eq!(some_of(Vec::new(), 3, 10), []);
    }
}
