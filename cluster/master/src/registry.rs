//! Where a client begins: `ClientMetaService`, the RPC registry.

use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError, Service};
use halcyon_schema::RegionInfo;
use prost::Message;

use crate::Master;

/// Answers from memory; never blocks. Served on the master's port and on region servers'.
pub struct ClientMetaService {
    master: Arc<Master>,
}

impl ClientMetaService {
    pub fn new(master: Arc<Master>) -> ClientMetaService {
        ClientMetaService { master }
    }
}

impl Service for ClientMetaService {
    fn call(&self, call: Call) -> Outcome {
        let core = &self.master.core;
        let is_active = core.check_running().is_ok();
        let master = is_active.then(|| core.settings.server_name.to_pb());
        let answer = match call.method.as_str() {
            "GetClusterId" => {
                encode(&pb::GetClusterIdResponse { cluster_id: Some(core.cluster_id.to_string()) })
            }
            "GetActiveMaster" => encode(&pb::GetActiveMasterResponse { server_name: master }),
            "GetMasters" => {
                let entry = |server_name| pb::GetMastersResponseEntry { server_name, is_active };
                encode(&pb::GetMastersResponse { master_servers: master.map(entry).into_iter().collect() })
            }
            "GetMetaRegionLocations" => {
                let location = pb::RegionLocation {
                    region_info: RegionInfo::meta().to_pb(),
                    server_name: Some(core.cluster.region_server.server_name().to_pb()),
                    seq_num: core.meta_open_seq as i64,
                };
                encode(&pb::GetMetaRegionLocationsResponse { meta_locations: vec![location] })
            }
            "GetBootstrapNodes" => encode(&pb::GetBootstrapNodesResponse {
                server_name: vec![core.cluster.region_server.server_name().to_pb()],
            }),
            other => return Outcome::Ready(Err(RpcError::unknown_method(other))),
        };
        Outcome::Ready(Ok(Reply::encoded(answer)))
    }
}

fn encode(message: &impl Message) -> Bytes {
    message.encode_to_vec().into()
}
