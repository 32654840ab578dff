use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_rpc::{Call, Outcome, Reply, RpcError};
use halcyon_schema::{RegionInfo, TableName};

use super::{compaction, decode, pooled, ready};
use crate::RegionServer;
use crate::errors;

/// Looking for a split row may flush the region, so that goes to the pool.
pub(super) fn region_info(server: &Arc<RegionServer>, call: Call) -> Outcome {
    let request: pb::GetRegionInfoRequest = match decode(&call.method, call.param.clone()) {
        Ok(request) => request,
        Err(error) => return ready(Err(error)),
    };
    if request.best_split_row() {
        return pooled(server, call.into_terms(), move |server| tell_region(server, &request));
    }
    ready(tell_region(server, &request))
}

fn tell_region(server: &RegionServer, request: &pb::GetRegionInfoRequest) -> Result<Reply, RpcError> {
    if let Some(table) = compaction::mob_table(&request.region) {
        let state = request.compaction_state().then(|| compaction::mob_state(server, &table) as i32);
        let region_info = RegionInfo::of_mob_files(&table).to_pb();
        return Ok(Reply::message(&pb::GetRegionInfoResponse {
            region_info,
            compaction_state: state,
            ..Default::default()
        }));
    }
    let online = server.regions.find_for_admin(&request.region)?;
    let info = online.region.info();
    let state = request.compaction_state().then(|| {
        let state = crate::metrics::load::compaction_state(&online, &online.region.stats());
        state as i32 // the two messages' enumerations have the same numbers
    });
    let shape =
        server.region_info_of(&online, request.best_split_row()).map_err(|error| errors::to_rpc(&error))?;
    Ok(Reply::message(&pb::GetRegionInfoResponse {
        region_info: info.to_pb(),
        compaction_state: state,
        splittable: Some(shape.splittable),
        mergeable: Some(shape.mergeable),
        best_split_row: shape.best_split_row,
    }))
}

/// Paths of the files of a region, or of some of its families.
pub(super) fn store_files(server: &RegionServer, call: &Call) -> Result<Reply, RpcError> {
    let request: pb::GetStoreFileRequest = decode(&call.method, call.param.clone())?;
    let online = server.regions.find_for_admin(&request.region)?;
    let files = online.region.store_files(&request.family).map_err(|error| errors::to_rpc(&error))?;
    let store_file = files.iter().map(|file| file.display().to_string()).collect();
    Ok(Reply::message(&pb::GetStoreFileResponse { store_file }))
}

pub(super) fn online_regions(server: &RegionServer) -> Reply {
    let regions = server.regions.online();
    let region_info = regions.iter().map(|online| online.region.info().to_pb()).collect();
    Reply::message(&pb::GetOnlineRegionResponse { region_info })
}

pub(super) fn server_info(server: &RegionServer) -> Reply {
    let server_info =
        pb::ServerInfo { server_name: server.name.to_pb(), webui_port: Some(server.info_port()) };
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
    let region_loads = wanted.map(|online| server.region_load(online)).collect();
    Ok(Reply::message(&pb::GetRegionLoadResponse { region_loads }))
}
