use std::sync::Arc;

use halcyon_proto::pb;
use halcyon_proto::pb::get_region_info_response::CompactionState;
use halcyon_proto::pb::region_specifier::RegionSpecifierType;
use halcyon_rpc::{Call, Reply, RpcError};
use halcyon_schema::{RegionInfo, TableName};

use super::decode;
use crate::RegionServer;
use crate::background::compactions::CompactionSize;
use crate::errors;
use crate::metrics::load::is_compacting;
use crate::regions::region_table::OnlineRegion;

/// Queues a compaction; it runs in the background.
pub(super) fn compact(server: &Arc<RegionServer>, call: &Call) -> Result<Reply, RpcError> {
    let request: pb::CompactRegionRequest = decode(&call.method, call.param.clone())?;
    if let Some(table) = mob_table(&request.region) {
        compact_mob_files(server, &table, request.major()).map_err(|error| errors::to_rpc(&error))?;
        return Ok(Reply::message(&pb::CompactRegionResponse::default()));
    }
    let online = server.regions.find_for_admin(&request.region)?;
    if server.quotas.forbids_compactions(online.region.table().name()) {
        let text = "Compactions on this region are disabled due to a space quota violation.";
        return Err(RpcError::do_not_retry(text));
    }
    server
        .background
        .compactions
        .request_by_user(&online, request.family.as_deref(), request.major())
        .map_err(|error| errors::to_rpc(&error))?;
    Ok(Reply::message(&pb::CompactRegionResponse::default()))
}

/// The table whose mob region this is; `None`: it is another region. Clients name it for `CompactType.MOB`.
pub(super) fn mob_table(region: &pb::RegionSpecifier) -> Option<TableName> {
    if region.r#type() != RegionSpecifierType::RegionName {
        return None;
    }
    RegionInfo::table_of_mob_files(&region.value).ok().flatten()
}

/// Asks for compactions of the families with `IS_MOB` of the table's regions here. HBase 2.6.4 runs none (HBASE-23571).
fn compact_mob_files(server: &RegionServer, table: &TableName, major: bool) -> halcyon_cell::Result<()> {
    for online in server.regions.online() {
        let region = &online.region;
        if region.info().table() != table || region.is_secondary() {
            continue;
        }
        for family in region.table().families().iter().filter(|family| family.is_mob()) {
            server.background.compactions.request_by_user(&online, Some(family.name()), major)?;
        }
    }
    Ok(())
}

/// Whether a region with `IS_MOB` of the table is compacted here, or waits for it.
pub(super) fn mob_state(server: &RegionServer, table: &TableName) -> CompactionState {
    let compacts = |online: &Arc<OnlineRegion>| {
        let region = &online.region;
        region.info().table() == table
            && region.table().families().iter().any(|family| family.is_mob())
            && is_compacting(online)
    };
    let any = server.regions.online().iter().any(compacts);
    if any { CompactionState::MajorAndMinor } else { CompactionState::None }
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
