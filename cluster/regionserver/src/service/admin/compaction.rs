use halcyon_proto::pb;
use halcyon_rpc::{Call, Reply, RpcError};
use std::sync::Arc;

use super::decode;
use crate::RegionServer;
use crate::background::compactions::CompactionSize;
use crate::errors;

/// Queues a compaction; it runs in the background.
pub(super) fn compact(server: &Arc<RegionServer>, call: &Call) -> Result<Reply, RpcError> {
    let request: pb::CompactRegionRequest = decode(&call.method, call.param.clone())?;
    let online = server.regions.find(&request.region)?;
    server
        .background
        .compactions
        .request_by_user(&online, request.family.as_deref(), request.major())
        .map_err(|error| errors::to_rpc(&error))?;
    Ok(Reply::message(&pb::CompactRegionResponse::default()))
}

pub(super) fn switch(server: &RegionServer, call: &Call) -> Result<Reply, RpcError> {
    let request: pb::CompactionSwitchRequest = decode(&call.method, call.param.clone())?;
    let prev_state = server.background.compactions.switch(request.enabled);
    Ok(Reply::message(&pb::CompactionSwitchResponse { prev_state }))
}

pub(super) fn clear_queues(server: &RegionServer, call: &Call) -> Result<Reply, RpcError> {
    let request: pb::ClearCompactionQueuesRequest = decode(&call.method, call.param.clone())?;
    for name in &request.queue_name {
        match name.as_str() {
            "long" => server.background.compactions.clear(CompactionSize::Large),
            "short" => server.background.compactions.clear(CompactionSize::Small),
            name => return Err(errors::invalid(format!("Unknown queue name {name}"))),
        }
    }
    Ok(Reply::message(&pb::ClearCompactionQueuesResponse::default()))
}
