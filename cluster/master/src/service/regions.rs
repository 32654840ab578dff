//! Single regions.

use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::{RegionInfo, ServerName, parse_region_name};

use super::{Answer, Request};
use crate::errors::invalid;
use crate::procedure::{MergeRegions, Procedure, RegionAction, SplitRegion, TransitRegion, TruncateRegion};
use crate::state::MasterState;

type Transit = Answer<Option<Box<dyn Procedure>>>;

/// Closes and opens the region where it is. With a destination that is the region's own server nothing is to do;
/// one that is not a live server is refused.
pub(super) fn move_region(core: &MasterState, request: pb::MoveRegionRequest) -> Transit {
    let region = find(core, &request.region)?;
    if let Some(to) = &request.dest_server_name {
        let (to, here) =
            (ServerName::from_pb(to).map_err(invalid)?, core.cluster.region_server.server_name());
        if to == here {
            return Ok(None);
        }
        return Err(RpcError::do_not_retry(format!(
            "Cannot move {region}: {to} is not a live region server"
        )));
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
    let regions = request.region.iter().map(|specifier| find(core, specifier)).collect::<Answer<_>>()?;
    Ok((Box::new(MergeRegions::new(regions)?), nonce))
}

/// Finds a region by full or encoded name, whichever the specifier says it is.
pub(super) fn find(core: &MasterState, specifier: &pb::RegionSpecifier) -> Answer<RegionInfo> {
    let value = &specifier.value;
    let meta = RegionInfo::meta();
    if value == meta.region_name() || value == meta.encoded_name().as_bytes() {
        return Ok(meta);
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
