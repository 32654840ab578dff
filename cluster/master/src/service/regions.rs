//! Single regions.

use halcyon_contract::Standing;
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, ServerName, parse_region_name};

use super::{Answer, Request};
use crate::Master;
use crate::errors::{self, invalid};
use crate::placement::Place;
use crate::procedure::{MergeRegions, Procedure, RegionAction, SplitRegion, TransitRegion, TruncateRegion};
use crate::state::MasterState;

type Transit = Answer<Option<Box<dyn Procedure>>>;

/// Moves a region to another server; the only server closes and opens it. With a destination that is the region's own server
/// nothing is to do; one that is not a live server is refused.
pub(super) fn move_region(core: &MasterState, request: pb::MoveRegionRequest) -> Transit {
    let region = find(core, &request.region)?;
    if let Some(to) = &request.dest_server_name {
        let to = ServerName::from_pb(to).map_err(invalid)?;
        if core.place_of(&region) == Place::At(to.clone()) {
            return Ok(None);
        }
        if core.cluster.servers.standing(&to) != Standing::Online {
            let text = format!("Cannot move {region}: {to} is not a live region server");
            return Err(RpcError::do_not_retry(text));
        }
        let scope = core.scope_of(region.table());
        if !scope.pick(core.cluster.servers.online().iter()).contains(&&to) {
            let table = region.table();
            return Err(errors::constraint(format!(
                "Cannot move {region}: {to} is not in RSGroup {} of table {table}",
                scope.group()
            )));
        }
        return Ok(Some(Box::new(TransitRegion::to(region, to))));
    }
    Ok(Some(Box::new(TransitRegion::new(region, RegionAction::Move, false))))
}

pub(super) fn assign(core: &MasterState, request: pb::AssignRegionRequest) -> Transit {
    let region = find(core, &request.region)?;
    Ok(Some(Box::new(TransitRegion::new(region, RegionAction::Assign, request.r#override()))))
}

pub(super) fn unassign(core: &MasterState, request: pb::UnassignRegionRequest) -> Transit {
    let region = find(core, &request.region)?;
    Ok(Some(Box::new(TransitRegion::new(region, RegionAction::Unassign, request.force()))))
}

pub(super) fn offline(core: &MasterState, request: pb::OfflineRegionRequest) -> Transit {
    let region = find(core, &request.region)?;
    Ok(Some(Box::new(TransitRegion::new(region, RegionAction::Unassign, true))))
}

pub(super) fn truncate(request: pb::TruncateRegionRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let region = RegionInfo::from_pb(&request.region_info).map_err(invalid)?;
    Ok((Box::new(TruncateRegion::new(region)), nonce))
}

pub(super) fn split(request: pb::SplitTableRegionRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let region = RegionInfo::from_pb(&request.region_info).map_err(invalid)?;
    let row = request.split_row.filter(|row| !row.is_empty());
    Ok((Box::new(SplitRegion::new(region, row)), nonce))
}

pub(super) fn merge(core: &MasterState, request: pb::MergeTableRegionsRequest) -> Answer<Request> {
    let nonce = (request.nonce_group(), request.nonce());
    let regions: Vec<_> =
        request.region.iter().map(|specifier| find(core, specifier)).collect::<Answer<_>>()?;
    MergeRegions::check_enabled(core, &regions)?;
    Ok((Box::new(MergeRegions::new(regions, request.forcible())?), nonce))
}

pub(super) fn decommission(
    master: &Master,
    request: &pb::DecommissionRegionServersRequest,
) -> Answer<pb::DecommissionRegionServersResponse> {
    if master.core.cluster.servers.is_one_process() {
        return Err(errors::unsupported("Decommissioning the only region server is"));
    }
    let servers = request.server_name.iter().map(ServerName::from_pb).collect::<Result<Vec<_>, _>>();
    let servers = servers.map_err(invalid)?;
    let online = master.core.cluster.servers.online();
    if let Some(unknown) = servers.iter().find(|server| !online.contains(server)) {
        return Err(RpcError::do_not_retry(format!("Server {unknown} is not online")));
    }
    master.decommission(&servers, request.offload).map_err(|error| errors::from_error(&error))?;
    Ok(pb::DecommissionRegionServersResponse {})
}

pub(super) fn recommission(
    master: &Master,
    request: &pb::RecommissionRegionServerRequest,
) -> Answer<pb::RecommissionRegionServerResponse> {
    if master.core.cluster.servers.is_one_process() {
        return Err(errors::unsupported("Decommissioning the only region server is"));
    }
    let server = ServerName::from_pb(&request.server_name).map_err(invalid)?;
    let regions = request.region.iter().map(|region| find(&master.core, region)).collect::<Answer<_>>()?;
    master.recommission(&server, regions).map_err(|error| errors::from_error(&error))?;
    Ok(pb::RecommissionRegionServerResponse {})
}

/// Finds a region by full or encoded name, whichever the specifier says it is.
pub(super) fn find(core: &MasterState, specifier: &pb::RegionSpecifier) -> Answer<RegionInfo> {
    let value = &specifier.value;
    let copies = core
        .meta_replicas
        .read()
        .keys()
        .map(|number| RegionInfo::meta().replica(*number))
        .collect::<Vec<_>>();
    for meta in [RegionInfo::meta()].into_iter().chain(copies) {
        if value == meta.region_name() || value == meta.encoded_name().as_bytes() {
            return Ok(meta);
        }
    }
    let encoded = match parse_region_name(value) {
        Ok(parts) => parts.encoded_name.unwrap_or_default(),
        Err(_) => String::from_utf8_lossy(value).into_owned(),
    };
    let tables = core.tables.read();
    match tables.region(&encoded) {
        Some((_, region, _)) => Ok(region.clone()),
        None => Err(RpcError::unknown_region(value.escape_ascii().to_string())),
    }
}
