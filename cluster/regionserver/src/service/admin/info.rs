use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_rpc::{Call, Reply, RpcError};
use halcyon_schema::TableName;

use super::decode;
use crate::RegionServer;
use crate::errors;
use crate::load;

pub(super) fn region_info(server: &RegionServer, call: &Call) -> Result<Reply, RpcError> {
    let request: pb::GetRegionInfoRequest = decode(&call.method, call.param.clone())?;
    let online = server.regions.find(&request.region)?;
    let info = online.region.info();
    let state = request.compaction_state().then(|| {
        let state = load::compaction_state(&online, &online.region.stats());
        state as i32 // the two messages' enumerations have the same numbers
    });
    let whole = !info.is_split() && !info.is_offline() && !info.is_meta();
    Ok(Reply::message(&pb::GetRegionInfoResponse {
        region_info: info.to_pb(),
        compaction_state: state,
        splittable: Some(whole && online.region.table().split_enabled()),
        mergeable: Some(whole && online.region.table().merge_enabled()),
        best_split_row: None,
    }))
}

pub(super) fn online_regions(server: &RegionServer) -> Reply {
    let regions = server.regions.online();
    let region_info = regions.iter().map(|online| online.region.info().to_pb()).collect();
    Reply::message(&pb::GetOnlineRegionResponse { region_info })
}

pub(super) fn server_info(server: &RegionServer) -> Reply {
    let server_info = pb::ServerInfo { server_name: server.name.to_pb(), webui_port: Some(0) };
    Reply::message(&pb::GetServerInfoResponse { server_info })
}

/// Loads of all regions, or of one table's.
pub(super) fn region_load(server: &Arc<RegionServer>, call: &Call) -> Result<Reply, RpcError> {
    let request: pb::GetRegionLoadRequest = decode(&call.method, call.param.clone())?;
    let table = request.table_name.as_ref().map(TableName::from_pb).transpose();
    let table = table.map_err(|error| errors::to_rpc(&error))?;
    let regions = server.regions.online();
    let wanted = regions
        .iter()
        .filter(|online| table.as_ref().is_none_or(|table| online.region.info().table() == table));
    let region_loads = wanted.map(|online| load::region_load(online)).collect();
    Ok(Reply::message(&pb::GetRegionLoadResponse { region_loads }))
}
